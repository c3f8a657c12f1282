"""CRFs of sparse features on a GPU: scores gathered by token, gradients gathered by attribute.

::

    weights -> table [A, L] -> scores of tokens: sums of their attributes' rows -> lattices in padded batches
    gradient of an attribute: the sum of the rows of its tokens, in segments of a fixed order -> weights

Nothing is added atomically, so that results are the same in every run. Batches hold sequences of similar lengths, cut
so that short steps and little padding come together.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from crfkit.data.dataset import Dataset, Layout
from crfkit.torch import gpu, operators
from crfkit.torch.chains import Batch
from crfkit.training.lbfgs import Vectors
from crfkit.training.objective import Objective, Problem

__all__: list[str] = []

Vector = NDArray[np.float64]
_SEGMENT = 64  # rows that are added one after another
_CHUNKS = 512  # parts of a vector whose inner products are taken side by side
_UNKNOWN = -100
#: Microseconds of a batch, of each of its steps and of each padded row, on an H200 with some twenty labels.
_BATCH_TIME, _STEP_TIME, _ROW_TIME = 40.0, 1.5, 0.005
#: Different lengths at which batches may be cut.
_MOST_LENGTHS = 200


def require_device(owner: str, device: str) -> None:
    """Raises in one line if there is no such device."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"'device' of {owner} must be 'cpu', 'cuda' or 'cuda:N', got {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"'device' of {owner} is {device!r}, but torch finds no such GPU here: use device='cpu'")


class Part(NamedTuple):
    """Sequences of similar lengths as a padded batch; its rows follow each other in the padded rows."""

    first: int  # row
    n_batch: int
    n_steps: int
    mask: Tensor  # [B, T]


class Padded:
    """Where the tokens of ragged sequences lie in padded batches.

    Attributes
    ----------
    parts : list of Part
    order : int64 array [S]
        Sequences in the order of the batches.
    row : int64 array [N]
        Padded row of every token.
    n_rows : int
    """

    def __init__(self, offsets: NDArray[np.int64], device: torch.device) -> None:
        lengths = np.diff(offsets)
        self.order = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]
        self.row = np.zeros(int(offsets[-1]), np.int64)
        self.parts: list[Part] = []
        self.n_rows = 0
        for begin, end in itertools.pairwise(_cuts(lengths[self.order])):
            mine = self.order[begin:end]
            most = int(lengths[mine[-1]])
            mask = np.arange(most) < lengths[mine, None]
            begins = self.n_rows + most * np.arange(len(mine))
            steps = np.arange(most)[None, :]
            self.row[(offsets[mine, None] + steps)[mask]] = (begins[:, None] + steps)[mask]
            self.parts.append(Part(self.n_rows, len(mine), most, torch.from_numpy(mask).to(device)))
            self.n_rows += most * len(mine)


def _cuts(lengths: NDArray[np.int64]) -> list[int]:
    """Where sequences in the order of their lengths are cut into batches: those that are estimated to take least time.

    A batch takes some time as such, some for each step of its longest sequence, and some for each padded row.

    >>> _cuts(np.array([1, 1, 2, 3] + [30] * 9000 + [60] * 2000))
    [0, 9004, 11004]
    """
    if not len(lengths):
        return [0]
    values, ends = np.unique(lengths, return_index=True)
    ends = np.append(ends[1:], len(lengths))  # sequences up to each length
    if len(values) > _MOST_LENGTHS:
        kept = np.unique(np.linspace(0, len(values) - 1, _MOST_LENGTHS).astype(np.int64))
        values, ends = values[kept], ends[kept]
    begins = np.concatenate([[0], ends])
    least, before = np.zeros(len(begins)), np.zeros(len(begins), np.int64)
    for k in range(1, len(begins)):
        rows = (begins[k] - begins[:k]) * values[k - 1]
        cost = least[:k] + _BATCH_TIME + _STEP_TIME * values[k - 1] + _ROW_TIME * rows
        before[k] = int(cost.argmin())
        least[k] = cost[before[k]]
    cuts, k = [], len(begins) - 1
    while k:
        cuts.append(int(begins[k]))
        k = int(before[k])
    return [0, *reversed(cuts)]


class Bags(NamedTuple):
    """Sums of rows: which ones, where the rows of each sum begin and end, and their factors."""

    entries: Tensor  # which rows  [entries]
    bounds: Tensor  # [bags + 1]
    values: Tensor | None = None  # [entries]

    def sums(self, rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """[bags, L], each added in the order of its entries; in the type of the rows if no other is given."""
        if rows.is_cuda and gpu.has_triton():
            from crfkit.torch.gathering import gather

            return gather(rows, *self, dtype or rows.dtype)
        rows = rows if dtype is None else rows.to(dtype)
        return embedding_bag(self.entries, rows, self.bounds[:-1], mode="sum", per_sample_weights=self.values)


class Scorer:
    """Scores of all padded rows from weights, and the adjoint: the gradients of the weights from those of the rows."""

    def __init__(self, layout: Layout, data: Dataset, padded: Padded, dtype: torch.dtype, device: torch.device) -> None:
        if data.edge_ptr is not None and len(layout.edge_pair):
            raise ValueError("attributes of transitions are not supported on a GPU: use device='cpu'")
        self.n_labels, self.dtype, self.device = layout.n_labels, dtype, device
        n_attributes = len(layout.state_ptr) - 1
        token = np.repeat(np.arange(data.n_tokens), np.diff(data.ptr))
        known = data.attr < n_attributes
        row, attribute = padded.row[token[known]], data.attr[known].astype(np.int64)
        value = None if data.value is None else data.value[known]
        by_row = self._order(row)
        bounds = np.searchsorted(row[by_row], np.arange(padded.n_rows + 1))
        values = None if value is None else self._put(value[by_row]).to(dtype)
        self.tokens = self._bags(attribute[by_row], bounds, values)
        label = layout.state_label.astype(np.int64)
        attribute_of = np.repeat(np.arange(n_attributes), layout.state_ptr[1:].astype(np.int64) - layout.state_ptr[:-1])
        self.place = self._put(attribute_of * self.n_labels + label)
        pairs = np.flatnonzero(layout.transition >= 0)
        self.pairs, self.pair_weights = self._put(pairs), self._put(layout.transition[pairs].astype(np.int64))
        self.ends = layout.start, layout.end
        self.table = torch.zeros(n_attributes, self.n_labels, dtype=dtype, device=device)
        by_attribute = self._order(attribute)
        value_by_attribute = None if value is None else self._put(value[by_attribute]).to(dtype)
        counts = np.bincount(attribute, minlength=n_attributes)
        segments = np.maximum(1, -(-counts // _SEGMENT))
        last = np.cumsum(segments)
        self.segments = self._bags(row[by_attribute], _bounds(counts, segments), value_by_attribute)
        # attributes of one segment have their sums there; those of others are added up in double precision
        many = np.flatnonzero(segments > 1)
        self.upper: list[Bags] = []
        inside = np.concatenate([np.arange(last[k] - segments[k], last[k]) for k in many]) if len(many) else many
        sizes = segments[many]
        while len(many):
            parts = np.maximum(1, -(-sizes // _SEGMENT))
            self.upper.append(self._bags(inside, _bounds(sizes, parts)))
            if (parts == 1).all():
                break
            inside, sizes = np.arange(parts.sum()), parts
        few = segments[attribute_of] == 1
        self.few = self._put(np.flatnonzero(few)), self._put((last - 1)[attribute_of[few]] * self.n_labels + label[few])
        of_many = np.searchsorted(many, attribute_of[~few])
        self.many = self._put(np.flatnonzero(~few)), self._put(of_many * self.n_labels + label[~few])

    def _order(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """What sorts x, equal ones in their order: on the device, which is many times faster."""
        found: NDArray[np.int64] = torch.sort(self._put(x), stable=True).indices.cpu().numpy()
        return found

    def _put(self, x: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

    def _bags(self, entries: NDArray[np.int64], bounds: NDArray[np.int64], values: Tensor | None = None) -> Bags:
        """Sums of rows on the device, whose numbers have 32 bits if they fit."""
        kind = np.int32 if max(entries.max(initial=0), len(entries)) < 1 << 31 else np.int64
        return Bags(self._put(entries.astype(kind)), self._put(bounds.astype(kind)), values)

    def scores(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores of the padded rows [P, L], transitions [L, L], start and end [L]."""
        n = self.n_labels
        w = w.to(self.dtype)
        self.table.view(-1).index_copy_(0, self.place, w[: len(self.place)])
        rows = self.tokens.sums(self.table)
        a = w.new_zeros(n * n).index_copy_(0, self.pairs, w[self.pair_weights]).view(n, n)
        start, end = (w.new_zeros(n) if at < 0 else w[at : at + n] for at in self.ends)
        return rows, a, start, end

    def adjoint(self, rows: Tensor, a: Tensor, start: Tensor, end: Tensor, out: Tensor) -> None:
        """Writes the gradient of the weights, out of those of what :meth:`scores` gives."""
        total = self.segments.sums(rows)
        out[self.few[0]] = total.view(-1)[self.few[1]].to(out.dtype)
        for bags in self.upper:
            total = bags.sums(total, torch.float64)
        if self.upper:
            out[self.many[0]] = total.view(-1)[self.many[1]]
        out[self.pair_weights] = a.reshape(-1)[self.pairs].to(out.dtype)
        for at, g in zip(self.ends, (start, end), strict=True):
            if at >= 0:
                out[at : at + self.n_labels] = g


def _bounds(counts: NDArray[np.int64], segments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the segments of bags of these sizes begin, and where the last one ends."""
    first = np.cumsum(counts) - counts
    within = np.arange(segments.sum()) - np.repeat(np.cumsum(segments) - segments, segments)
    return np.append(np.repeat(first, segments) + _SEGMENT * within, counts.sum())


class DeviceObjective(Objective):
    """The objective of :class:`~crfkit.training.LikelihoodObjective`, computed on a device of torch.

    Labels may be unknown, but not sets. Between evaluations only numbers go to the host: see :meth:`vectors`.

    Parameters
    ----------
    problem : Problem
    device : str
    """

    def __init__(self, problem: Problem, device: str) -> None:
        if problem.hints is not None and len(problem.hints):
            raise ValueError("sets of labels and soft labels are not supported on a GPU: use device='cpu'")
        if problem.entropy_weight and (problem.labels < 0).any():
            raise ValueError("'entropy_weight' is not supported on a GPU: use device='cpu'")
        self.layout, self.size, self.c2 = problem.layout, problem.layout.size, float(problem.c2)
        self.n_tokens = problem.data.n_tokens
        self.noise = 3e-8 if problem.is_single else 1e-13
        self.device, data = torch.device(device), problem.data
        dtype = torch.float32 if problem.is_single else torch.float64
        self.padded = Padded(data.offsets, self.device)
        self.scorer = Scorer(problem.layout, data, self.padded, dtype, self.device)
        put = self.scorer._put
        tags = np.zeros(self.padded.n_rows, np.int64)
        tags[self.padded.row] = np.where(problem.labels < 0, _UNKNOWN, problem.labels)
        self.tags = put(tags)
        weights = np.ones(data.n_sequences) if problem.weights is None else np.asarray(problem.weights, np.float64)
        self.weights = put(-weights[self.padded.order])
        self.factors = self.weights.to(dtype)
        self.rules = None
        if problem.constraints is not None:
            parts = problem.constraints.transitions, problem.constraints.start, problem.constraints.end
            self.rules = [put(np.where(x, 0.0, -np.inf)).to(dtype).view(x.shape) for x in parts]
        self._captured: Any = None

    def at(self, w: Tensor, gradient: Tensor) -> Tensor:
        """The value at w, float64 []; the gradient is written."""
        rows, *others = self.scorer.scores(w)
        if self.rules is not None:
            others = [x + rule for x, rule in zip(others, self.rules, strict=True)]
        done, found, values = 0, [], []
        for part in self.padded.parts:
            last = part.first + part.n_batch * part.n_steps
            shape = part.n_batch, part.n_steps
            x = rows[part.first : last].view(*shape, -1)
            a, start, end = others
            tags = self.tags[part.first : last].view(shape)
            batch = Batch(x, a, start, end, None, part.mask, tags, _UNKNOWN)
            backend = gpu.choose(x, None, "auto")
            g = self.factors[done : done + part.n_batch]
            each, *kept = operators.value.run(*batch, backend, True, 0.0)
            values.append(each)
            found.append(operators.gradient.run(g, *batch, backend, *kept, 1.0)[:4])
            done += part.n_batch
        du = torch.cat([f[0].reshape(-1, self.scorer.n_labels) for f in found])
        sums = [torch.stack([f[k] for f in found]).sum(0, dtype=torch.float64) for k in (1, 2, 3)]
        value = self.c2 * torch.dot(w, w) + torch.dot(self.weights, torch.cat(values).double())
        self.scorer.adjoint(du, sums[0], sums[1], sums[2], gradient)
        gradient.add_(w, alpha=2 * self.c2)
        return value

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        x = torch.from_numpy(np.array(w, np.float64)).to(self.device)
        if x.shape != (self.size,):
            raise ValueError(f"'w' must have shape ({self.size},), got {tuple(x.shape)}")
        gradient = torch.empty_like(x)
        value = self.evaluate(x, gradient)
        found = gradient.cpu().numpy()
        if out is not None:
            out[:] = found
        return float(value), found if out is None else out

    def evaluate(self, w: Tensor, gradient: Tensor) -> Tensor:
        """As :meth:`at`; on a GPU it is captured once and replayed."""
        if self.device.type != "cuda":
            return self.at(w, gradient)
        if self._captured is None:
            x, g = w.clone(), torch.empty_like(gradient)
            side: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                self.at(x, g)
            torch.cuda.current_stream(self.device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                value = self.at(x, g)
            self._captured = graph, x, g, value
        graph, x, g, found = self._captured
        x.copy_(w)
        graph.replay()
        gradient.copy_(g)
        at: Tensor = found
        return at

    def vectors(self, memory: int, threads: int) -> Vectors:
        """Vectors of the search on the device."""
        return DeviceVectors(self, memory)


class DeviceVectors(Vectors):
    """The vectors of L-BFGS on a device: with each value, all inner products come to the host at once.

    The last ``memory`` steps s and changes of the gradient y are rows of one matrix; the direction is a combination of
    these rows and of the gradient, whose coefficients follow on the host from the rows' inner products.
    """

    objective: DeviceObjective

    def __init__(self, objective: DeviceObjective, memory: int) -> None:
        self.objective, self.memory, self.device = objective, memory, objective.device
        self.size = objective.size
        self.length = -(-self.size // _CHUNKS) * _CHUNKS
        # rows: s of each place, y of each place, then s, y and the gradient of the trial
        self.rows = torch.zeros(2 * memory + 3, self.length, dtype=torch.float64, device=self.device)
        self.order: list[int] = []  # places, oldest first
        self.products = np.zeros((2 * memory, 2 * memory))
        self.with_gradient = np.zeros(2 * memory)
        self.d = self.empty()
        self.base: tuple[Tensor, Tensor] | None = None
        self.trial: Any = None  # the gradient of the trial, and what came with it

    def __len__(self) -> int:
        return len(self.order)

    def empty(self) -> Any:
        """A vector."""
        return torch.zeros(self.size, dtype=torch.float64, device=self.device)

    def put(self, x: Vector) -> Any:
        """A vector of the host's."""
        return torch.from_numpy(np.array(x, np.float64)).to(self.device)

    def host(self, x: Any) -> Vector:
        """The same on the host."""
        found: Vector = x.cpu().numpy()
        return found

    def evaluate(self, x: Any, gradient: Any) -> tuple[float, Any]:
        """Value and gradient; the inner products that the next direction needs come along."""
        value = self.objective.evaluate(x, gradient)
        m, n = self.memory, self.size
        trial = self.rows[2 * m :]
        if self.base is not None:
            torch.sub(x, self.base[0], out=trial[0, :n])
            torch.sub(gradient, self.base[1], out=trial[1, :n])
        trial[2, :n] = gradient
        parts = self.rows.view(len(self.rows), _CHUNKS, -1).transpose(0, 1)
        products = torch.bmm(parts, parts[:, 2 * m :].transpose(1, 2)).sum(0)  # [2m + 3, 3]
        more = torch.stack([value, torch.dot(gradient, self.d), torch.dot(x, x), torch.count_nonzero(x).double()])
        numbers = torch.cat([more, products.reshape(-1)]).cpu().numpy()
        self.trial = gradient, float(numbers[1]), float(numbers[2]), int(numbers[3]), numbers[4:].reshape(-1, 3)
        return float(numbers[0]), gradient

    def look(self, x: Any, gradient: Any) -> tuple[float, float, int]:
        """Squares of the gradient and of x, and how many of x are not zero; the search goes on from here."""
        if self.trial is None or self.trial[0] is not gradient:
            self.evaluate(x, gradient)
        _, _, square, active, products = self.trial
        self.with_gradient = products[: 2 * self.memory, 2].copy()
        self.base = x, gradient
        self.square = float(products[-1, 2])
        return self.square, square, active

    def advance(self, x: Any, old_x: Any, gradient: Any, old: Any) -> tuple[float, float, int]:
        """Remembers the step to x if it has curvature; then as :meth:`look`."""
        m = self.memory
        products = self.trial[4]
        ss, sy, yy = products[2 * m, 0], products[2 * m + 1, 0], products[2 * m + 1, 1]
        norms = self.look(x, gradient)
        if sy > 1e-12 * np.sqrt(ss * yy):
            k = self.order.pop(0) if len(self.order) == m else len(self.order)
            self.order.append(k)
            self.rows[k] = self.rows[2 * m]
            self.rows[m + k] = self.rows[2 * m + 1]
            for at, column in ((k, 0), (m + k, 1)):
                self.products[at] = self.products[:, at] = products[: 2 * m, column]
            self.products[k, k], self.products[m + k, m + k] = ss, yy
            self.products[k, m + k] = self.products[m + k, k] = sy
            self.with_gradient[[k, m + k]] = products[2 * m : 2 * m + 2, 2]
        return norms

    def direction(self, x: Any, gradient: Any, step: float, out: Any) -> tuple[float, float, float]:
        """Out = x + step d, for d = -H g by the two loops, in coefficients; gives g d, v (out - x) and nothing."""
        m, order = self.memory, self.order
        c = np.zeros(2 * m)  # of q in the rows, beside the gradient with coefficient one
        alpha = {}
        for k in reversed(order):
            sy = self.products[k, m + k]
            alpha[k] = (self.with_gradient[k] + c @ self.products[:, k]) / sy
            c[m + k] -= alpha[k]
        scale = 1.0
        if order:
            k = order[-1]
            scale = self.products[k, m + k] / self.products[m + k, m + k]
        c *= scale
        for k in order:
            sy = self.products[k, m + k]
            beta = (scale * self.with_gradient[m + k] + c @ self.products[:, m + k]) / sy
            c[k] += alpha[k] - beta
        slope = -(scale * self.square + c @ self.with_gradient)
        factors = torch.from_numpy(-c).to(self.device)
        torch.mv(self.rows[: 2 * m, : self.size].t(), factors, out=self.d)
        self.d.sub_(gradient, alpha=scale)
        torch.add(x, self.d, alpha=step, out=out)
        return float(slope), float(slope * step), 0.0

    def steepest(self, gradient: Any) -> None:
        """The direction is that of steepest descent."""
        torch.neg(gradient, out=self.d)

    def move(self, x: Any, gradient: Any, step: float, out: Any) -> list[float]:
        """Out = x + step d."""
        torch.add(x, self.d, alpha=step, out=out)
        return [0.0, 0.0]

    def slope(self, gradient: Any) -> float:
        """The product of the gradient with the direction."""
        return float(torch.dot(gradient, self.d)) if self.trial[0] is not gradient else float(self.trial[1])

    def clear(self) -> None:
        """Forgets all steps."""
        self.order.clear()

    def pairs(self) -> NDArray[Any]:
        """Steps and changes of the gradient, oldest first [pairs, 2, size]."""
        at = [[k, self.memory + k] for k in self.order]
        return (
            self.rows[at].reshape(-1, 2, self.length)[..., : self.size].cpu().numpy()
            if at
            else np.zeros((0, 2, self.size))
        )

    def restore(self, pairs: Any) -> None:
        """The steps of a checkpoint."""
        self.order = list(range(len(pairs)))
        m, n = self.memory, self.size
        for k, (step, change) in enumerate(pairs):
            self.rows[k, :n], self.rows[m + k, :n] = self.put(step), self.put(change)
        old = self.rows[: 2 * m]
        self.products = (old @ old.t()).cpu().numpy()


class DeviceDecoder:
    """Best labels of encoded sequences, scored and decoded on a device."""

    def __init__(self, layout: Layout, weights: Vector, rules: Any, device: str) -> None:
        self.layout, self.rules, self.device = layout, rules, torch.device(device)
        self.weights = torch.from_numpy(np.array(weights, np.float64)).to(self.device)

    def decode(self, data: Dataset) -> NDArray[np.int64]:
        """Labels [N]."""
        padded = Padded(data.offsets, self.device)
        scorer = Scorer(self.layout, data, padded, torch.float32, self.device)
        rows, *others = scorer.scores(self.weights)
        if self.rules is not None:
            parts = zip((self.rules.transitions, self.rules.start, self.rules.end), others, strict=True)
            others = [x + scorer._put(np.where(y, 0.0, -np.inf)).to(x).view_as(x) for y, x in parts]
        found = torch.zeros(padded.n_rows, dtype=torch.int64, device=self.device)
        for part in padded.parts:
            last = part.first + part.n_batch * part.n_steps
            x = rows[part.first : last].view(part.n_batch, part.n_steps, -1)
            a, start, end = others
            found[part.first : last] = gpu.decode(Batch(x, a, start, end, None, part.mask)).view(-1)
        path: NDArray[np.int64] = found.cpu().numpy()[padded.row]
        return path
