"""The hidden Markov model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import Checkpoint, digest, seconds_of
from crfkit.base.parameters import check_number
from crfkit.chain.inference import log_partition, marginals, score
from crfkit.chain.potentials import Potentials
from crfkit.data.dataset import Dataset, Layout, WeightRules
from crfkit.data.labels import allowed_by, collect_labels, label_numbers, label_sets
from crfkit.data.sequences import Columns
from crfkit.estimators.chained import ChainEstimator
from crfkit.features.encoders import FeatureSource, PlanEncoder, as_columns
from crfkit.features.template import Template
from crfkit.model.chain_model import ChainModel
from crfkit.training.optimiser import Callback, Progress, Reason, Result

Floats = NDArray[np.float64]
_FLOOR = -700.0  # logarithm of what stands for zero


class HMM(ChainEstimator):
    r"""Hidden Markov model with categorical emissions, one for each column of the tokens.

    .. math::

        p(x, y) = \pi(y_0) \prod_{t > 0} p(y_t \mid y_{t-1}) \prod_t \prod_c p(x_t^{(c)} \mid y_t)

    Where labels are known, parameters are smoothed relative frequencies: a count n of N over V possible outcomes
    gives :math:`(n + a) / (N + a V)`, where an unseen value is one more outcome of an emission. Where labels are
    unknown (None) or several (a set), Baum-Welch takes expected counts instead, again and again; its objective
    :math:`\log p(x, y_{known}) + a \sum \log \theta` never falls.

    Parameters
    ----------
    smoothing : float, default=0.1
        Added to the counts of emissions.
    transition_smoothing : float, default=0.1
        Added to the counts of transitions and first labels.
    n_states : int, optional
        How many labels there are if none is known; they are called 0, 1, ...
    max_iter : int, default=100
        Most iterations of Baum-Welch.
    tol : float, default=1e-6
        Baum-Welch ends when the objective rises by less than this fraction of itself.
    random_state : int, optional
        For the start of Baum-Welch where no label is known.
    n_jobs : int, default=-1
    callback : callable, optional
        Called as ``callback(progress, w)`` after every iteration of Baum-Welch; stops if it returns True.
    checkpoint : path, optional
    checkpoint_every : float or str, default="5min"
        As for :class:`~crfkit.CRF`, between two iterations of Baum-Welch.

    Attributes
    ----------
    start_ : float64 array [L], transitions_ : float64 array [L, L]
        Probabilities.
    emissions_ : list of float64 arrays [L, V + 1]
        For each column, probabilities of its values in the order of ``vocabulary_``, and last of an unseen one.
    vocabulary_ : list of lists of str
    history_ : list of float
        Objective of every iteration of Baum-Welch.

    Examples
    --------
    >>> from crfkit import HMM
    >>> hmm = HMM().fit([["the", "dog"], ["a", "cat"]], [["D", "N"], ["D", "N"]])
    >>> hmm.predict([["the", "bird"]])
    [['D', 'N']]
    >>> bool(hmm.log_joint([["the", "dog"]], [["D", "N"]])[0] <= hmm.log_likelihood([["the", "dog"]])[0])
    True
    """

    _kind = "hmm"

    def __init__(
        self,
        *,
        smoothing: float = 0.1,
        transition_smoothing: float = 0.1,
        n_states: int | None = None,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: int | None = None,
        n_jobs: int | None = -1,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self.smoothing = smoothing
        self.transition_smoothing = transition_smoothing
        self.n_states = n_states
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def fit(self, X: Any, y: Any = None, *, resume: bool = False) -> Self:
        """Learns the probabilities.

        Parameters
        ----------
        X : sequences of strings, or of tuples of strings
        y : sequences of labels, optional
            ``y[i][t]`` is a label, None, or a set of labels; ``y[i]`` may be None.
        resume : bool
            Go on from ``checkpoint``, if the file is there, as if Baum-Welch had never been stopped.

        Returns
        -------
        self
        """
        for name in ("smoothing", "transition_smoothing", "tol"):
            check_number(self, name, getattr(self, name), 0)
        check_number(self, "n_states", self.n_states, 1, integer=True, optional=True)
        check_number(self, "max_iter", self.max_iter, 0, integer=True)
        seconds_of(self.checkpoint_every)
        columns = as_columns(X)
        if len(columns) == 0:
            raise ValueError("there is no sequence to learn from")
        lines = [f"U{c}:%x[0,{c}]" for c in range(columns.n_columns)]
        encoder = PlanEncoder(Template("\n".join(["U:", *lines, "B"])).plan())
        data = encoder.encode(columns, True, self.n_jobs)
        counted = _Counter(columns, data, encoder)
        labels, numbers, allowed = self._labels(y, data.offsets)
        rule = WeightRules(all_possible_states=True)
        layout = Layout.build(data, np.zeros(data.n_tokens, np.int32), len(labels), encoder.n_attributes, rule)
        settings = self._settings()

        def model(parameters: _Parameters, info: dict[str, Any]) -> ChainModel:
            w = parameters.weights(layout, counted)
            return ChainModel(encoder, labels, layout, w, None, np.dtype(np.float64), settings, info)

        info: dict[str, Any] = {"sequences": len(columns), "tokens": data.n_tokens, "iterations": 0}
        self.history_: list[float] = []
        reason: Reason = "converged"
        if numbers is not None:
            counts = counted.known(numbers, len(labels))
            parameters = self._estimate(*counts)
            value, message = parameters.objective(counts, self.smoothing, self.transition_smoothing), "counted"
        else:
            assert allowed is not None
            keep = Checkpoint.of(self, self._fingerprint(data, allowed, labels), resume)
            if keep.finished is None:
                parameters, reason, message = self._baum_welch(counted, allowed, lambda p: model(p, {}), keep)
                ended = {"tables": vars(parameters), "history": self.history_, "reason": reason, "message": message}
                keep.finish(ended)
            else:
                parameters, self.history_ = _Parameters(**keep.finished["tables"]), keep.finished["history"]
                reason, message = keep.finished["reason"], keep.finished["message"]
            value = self.history_[-1] if self.history_ else float("nan")
            info["iterations"] = len(self.history_)
        self.start_, self.transitions_ = parameters.start, parameters.transitions
        self.emissions_ = parameters.emissions
        self.vocabulary_ = counted.vocabulary()
        info["unseen"] = [_log(e[:, -1]).tolist() for e in parameters.emissions]
        fitted = model(parameters, info)
        self.model_ = fitted
        info |= {"objective": value, "stopped": message}
        self.result_ = Result(fitted.weights, value, len(self.history_), len(self.history_), reason, message)
        self.n_iter_ = len(self.history_)
        return self

    def _labels(
        self, y: Any, offsets: NDArray[np.int64]
    ) -> tuple[tuple[Any, ...], NDArray[np.int32] | None, NDArray[np.bool_] | None]:
        """The labels; their numbers if all are known, otherwise which ones each token may have."""
        rows: Any = [None] * (len(offsets) - 1) if y is None else y
        if not isinstance(rows, Columns):
            rows = [row if row is None or isinstance(row, str) else [_single(x) for x in row] for row in rows]
        some = isinstance(rows, Columns) or any(x is not None for row in rows for x in row or ())
        if not some and self.n_states is None:
            raise ValueError("'n_states' of HMM must be given where no label is known")
        labels = collect_labels(rows) if some else ()
        if self.n_states is not None and not isinstance(rows, Columns):
            more = max(0, self.n_states - len(labels))
            labels += tuple(k for k in range(self.n_states) if k not in labels)[:more]
        numbers = label_numbers(rows, labels, offsets)
        if numbers.min(initial=0) >= 0:
            return labels, numbers, None
        return labels, None, allowed_by(numbers, label_sets(rows, labels, offsets), len(labels))

    def _estimate(self, start: Floats, transitions: Floats, emissions: list[Floats]) -> _Parameters:
        """Smoothed relative frequencies of counts [L], [L, L] and [L, V]."""
        a, b = self.smoothing, self.transition_smoothing
        unseen = [np.hstack([e, np.zeros((len(e), 1))]) for e in emissions]
        return _Parameters(_rows(start[None], b)[0], _rows(transitions, b), [_rows(e, a) for e in unseen])

    def _fingerprint(self, data: Dataset, allowed: NDArray[np.bool_], labels: tuple[Any, ...]) -> dict[str, str]:
        """What must be the same for the probabilities to be the same."""
        if self.checkpoint is None:
            return {}
        settings = {name: repr(x) for name, x in self._settings().items() if name != "n_jobs"}
        return {"model": self._kind, **settings, "training data": digest([data.offsets, data.attr, allowed, labels])}

    def _baum_welch(
        self, counted: _Counter, allowed: NDArray[np.bool_], model: Any, keep: Checkpoint
    ) -> tuple[_Parameters, Reason, str]:
        """Expected counts and new parameters in turn, beginning with what the known labels say and a little noise."""
        n = allowed.shape[1]
        rng = np.random.default_rng(self.random_state)
        first = allowed * (0.5 + rng.random(allowed.shape))
        first /= first.sum(axis=1, keepdims=True)
        parameters = self._estimate(*counted.expected(iter([(first, None)]), n))
        if saved := keep.part("em", lambda: {"tables": vars(parameters), "history": self.history_}):
            parameters, self.history_ = _Parameters(**saved["tables"]), saved["history"]
        for _ in range(len(self.history_), self.max_iter):
            m = model(parameters)
            value = 0.0

            def posteriors(m: ChainModel = m) -> Iterator[tuple[Floats, Floats]]:
                nonlocal value
                for piece, (a, b) in counted.pieces(n * n):
                    p = m.score(piece, self.n_jobs)
                    p = Potentials(p.unary, p.pairwise, allowed=allowed[a:b], offsets=piece.offsets)
                    found = marginals(p, self.n_jobs, pairs=True)
                    value += float(np.sum(found.log_z))
                    yield found.nodes.astype(np.float64), found.edges.sum(axis=0)

            counts = counted.expected(posteriors(), n)
            value += parameters.prior(self.smoothing, self.transition_smoothing)
            self.history_.append(value)
            old, parameters = parameters, self._estimate(*counts)
            if self.callback is not None:
                k = len(self.history_)
                w = m.weights
                if self.callback(Progress(k, -value, float("nan"), len(w), 1.0, k, 0.0), w.copy()):
                    return old, "callback", "the callback asked to stop"
            if len(self.history_) > 1 and value - self.history_[-2] <= self.tol * abs(value):
                return parameters, "tolerance", f"the objective rose by less than {self.tol:g}"
            keep.tick()
        return parameters, "max_iter", f"stopped after {self.max_iter} iterations"

    def log_joint(self, X: Any, y: Any) -> Floats:
        """Log p(x, y) of every sequence with its labels, [S]."""
        self._require_fitted()
        p = self.potentials(X)
        number = {label: k for k, label in enumerate(self.model_.labels)}
        assert p.offsets is not None
        flat = label_numbers(y, list(number), p.offsets)
        return np.asarray(score(p, p.split(flat)))

    def log_likelihood(self, X: Any) -> Floats:
        """Log p(x) of every sequence, [S]."""
        return np.asarray(log_partition(self.potentials(X), self.n_jobs))

    def generate(self, length: int, random_state: int | None = None) -> tuple[list[Any], list[Any]]:
        """A sequence drawn from p(x, y), and its labels. Unseen values come out as ``"<unseen>"``."""
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        X: list[Any] = []
        y: list[Any] = []
        p = self.start_
        for _ in range(length):
            j = int(rng.choice(len(p), p=p))
            row = tuple(
                [*words, "<unseen>"][int(rng.choice(len(words) + 1, p=e[j]))]
                for words, e in zip(self.vocabulary_, self.emissions_, strict=True)
            )
            X.append(row if len(row) > 1 else row[0])
            y.append(self.model_.labels[j])
            p = self.transitions_[j]
        return X, y

    @classmethod
    def _of_model(cls, model: ChainModel, params: dict[str, Any], features: FeatureSource, n_jobs: int | None) -> Self:
        out = super()._of_model(model, params, features, n_jobs)
        layout, n = model.layout, len(model.labels)
        w = np.asarray(model.weights)
        out.start_ = np.exp(w[layout.start : layout.start + n])
        out.transitions_ = np.exp(w[layout.transition].reshape(n, n))
        names = model.encoder.names()
        table = w[: len(layout.state_label)].reshape(-1, n)
        unseen = np.array(model.info["unseen"]).reshape(-1, n)
        out.vocabulary_, out.emissions_ = [], []
        for c, low in enumerate(unseen):
            rows = [k for k, name in enumerate(names) if name.startswith(f"U{c}:")]
            out.vocabulary_.append([names[k].split(":", 1)[1] for k in rows])
            out.emissions_.append(np.exp(np.vstack([table[rows] + low, low[None]])).T)
        return out


def _single(label: Any) -> Any:
    """A label that is the only one of its set."""
    return next(iter(label)) if isinstance(label, (set, frozenset)) and len(label) == 1 else label


def _rows(counts: Floats, smoothing: float) -> Floats:
    """Rows of counts made into probabilities; a row without any count is uniform."""
    x = counts + smoothing
    total = x.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, x / np.where(total > 0, total, 1), 1 / x.shape[1]))


def _log(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p), _FLOOR)


@dataclass
class _Parameters:
    start: Floats
    transitions: Floats
    emissions: list[Floats]

    def prior(self, smoothing: float, transition_smoothing: float) -> float:
        """The logarithm of the prior whose mode smoothed counts are, up to a constant."""
        total = 0.0
        for a, tables in ((smoothing, self.emissions), (transition_smoothing, [self.start, self.transitions])):
            if a:
                total += a * sum(float(_log(x).sum()) for x in tables)
        return total

    def objective(
        self, counts: tuple[Floats, Floats, list[Floats]], smoothing: float, transition_smoothing: float
    ) -> float:
        """Log p(x, y) of what was counted, plus the logarithm of the prior."""
        start, transitions, emissions = counts
        pairs = [(start, self.start), (transitions, self.transitions)]
        pairs += [(c, e[:, :-1]) for c, e in zip(emissions, self.emissions, strict=True)]
        return sum(float((c * _log(p)).sum()) for c, p in pairs) + self.prior(smoothing, transition_smoothing)

    def weights(self, layout: Layout, counted: _Counter) -> Floats:
        """Weights of a chain model: an unseen value costs what the constant attribute says, a seen one the rest."""
        n = layout.n_labels
        w = np.zeros(layout.size)
        table = w[: len(layout.state_label)].reshape(-1, n)  # all attributes with all labels
        for attributes, e in zip(counted.attributes, self.emissions, strict=True):
            low = _log(e[:, -1])
            table[attributes] = (_log(e[:, :-1]) - low[:, None]).T
            table[counted.constant] += low
        w[layout.transition] = _log(self.transitions).ravel()
        w[layout.start : layout.start + n] = _log(self.start)
        return w


class _Counter:
    """Counts of what happens in the data."""

    def __init__(self, columns: Columns, data: Dataset, encoder: PlanEncoder) -> None:
        self.data = data
        names = encoder.names()
        self.constant = names.index("U:")
        self.names = names
        width = columns.n_columns + 1
        rows = data.attr.reshape(-1, width)  # the attributes of a token come in the order of the templates
        self.columns: list[NDArray[np.int64]] = []
        self.attributes: list[NDArray[np.int64]] = []
        for c in range(width):
            if (rows[:, c] == self.constant).all():
                continue
            attributes, ids = np.unique(rows[:, c], return_inverse=True)
            self.attributes.append(attributes.astype(np.int64))
            self.columns.append(ids.reshape(-1))
        filled = np.diff(data.offsets) > 0
        self.first = data.offsets[:-1][filled]
        inner = np.ones(data.n_tokens, bool)
        inner[self.first] = False
        self.inner = np.flatnonzero(inner)

    def vocabulary(self) -> list[list[str]]:
        """The values of each column."""
        return [[self.names[a].split(":", 1)[1] for a in attributes] for attributes in self.attributes]

    def known(self, y: NDArray[np.int32], n: int) -> tuple[Floats, Floats, list[Floats]]:
        """Counts where every label is known."""
        start = np.bincount(y[self.first], minlength=n).astype(np.float64)
        pairs = np.bincount(y[self.inner - 1].astype(np.int64) * n + y[self.inner], minlength=n * n)
        emissions = [
            np.bincount(y.astype(np.int64) * len(a) + ids, minlength=n * len(a)).reshape(n, -1).astype(np.float64)
            for a, ids in zip(self.attributes, self.columns, strict=True)
        ]
        return start, pairs.reshape(n, n).astype(np.float64), emissions

    def expected(
        self, posteriors: Iterator[tuple[Floats, Floats | None]], n: int
    ) -> tuple[Floats, Floats, list[Floats]]:
        """Counts by probabilities of labels and of pairs, piece by piece; independent labels without pairs."""
        from scipy.sparse import csr_matrix

        nodes = np.empty((self.data.n_tokens, n))
        pairs = np.zeros((n, n))
        done = 0
        independent = False
        for part, edge in posteriors:
            nodes[done : done + len(part)] = part
            done += len(part)
            if edge is None:
                independent = True
            else:
                pairs += edge
        if independent:
            pairs = nodes[self.inner - 1].T @ nodes[self.inner]
        emissions = []
        for a, ids in zip(self.attributes, self.columns, strict=True):
            one = csr_matrix((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(len(a), len(ids)))
            emissions.append(np.ascontiguousarray((one @ nodes).T))
        return nodes[self.first].sum(axis=0), pairs, emissions

    def pieces(self, per_token: int) -> Iterator[tuple[Dataset, tuple[int, int]]]:
        """Parts of the data of bounded size, and their tokens."""
        data = self.data
        limit = max(1, (1 << 22) // per_token)
        begin = 0
        while begin < data.n_sequences:
            first = int(data.offsets[begin])
            end = max(begin + 1, int(np.searchsorted(data.offsets, first + limit, side="right")) - 1)
            yield data.take(np.arange(begin, end)), (first, int(data.offsets[end]))
            begin = end
