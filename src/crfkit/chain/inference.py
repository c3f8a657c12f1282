"""Exact inference on a linear chain: sums, probabilities, best paths, samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit import _core
from crfkit.base.numbers import inner_tokens
from crfkit.base.parameters import check_number
from crfkit.base.shown import Record, shown
from crfkit.base.threads import resolve_threads
from crfkit.chain.beams import Beam, as_rule, beam_core
from crfkit.chain.potentials import Floats, Potentials

Path = NDArray[np.int32]
Form = Literal["frozen", "smoothed", "paper"]


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(Record, ABC):
    """Probabilities of labels and of label pairs.

    Attributes
    ----------
    log_z : float, or float64 array [S] for a batch
    nodes : array [T, L]
        P(label j at t); for a batch, the tokens of all sequences one after another.
    edges : array [T - 1, L, L]
        P(label i at t and j at t + 1), likewise. Computed on first access, unless ``pairs`` was set; until then the
        arrays of the potentials must not be changed.
    """

    log_z: Any

    @property
    @abstractmethod
    def nodes(self) -> Floats:
        """P(label j at t), [T, L]."""

    @property
    @abstractmethod
    def edges(self) -> Floats:
        """P(label i at t and j at t + 1), [T - 1, L, L]."""


@dataclass(frozen=True, eq=False, repr=False)
class ExactMarginals(Marginals):
    """Marginals over all labels."""

    _nodes: Floats
    _pairs: Floats | tuple[Potentials, int | None] = field(repr=False)  # or what they are computed from

    @property
    def nodes(self) -> Floats:
        """P(label j at t), [T, L]."""
        return self._nodes

    @cached_property
    def edges(self) -> Floats:
        """P(label i at t and j at t + 1), [T - 1, L, L]."""
        edges = _sum_product(*self._pairs, edges=True)[2] if isinstance(self._pairs, tuple) else self._pairs
        assert edges is not None
        return edges

    def _shown(self) -> dict[str, str]:
        return {name: shown(getattr(self, name)) for name in ("log_z", "nodes")}


@dataclass(frozen=True, eq=False, repr=False)
class BeamMarginals(Marginals):
    """Probabilities within beams, and the beams; ``nodes`` and ``edges`` are zero outside.

    Attributes
    ----------
    log_z : float, or float64 array [S] for a batch
        Logarithm of the mass of all labellings within the beams: a lower bound on the log-partition.
    ptr : int64 array [N + 1]
        First label of each token's beam in ``labels``.
    labels : int32 array [ptr[N]]
        The beams, ascending.
    probabilities : float64 array [ptr[N]]
        P(label at token), within the beams.
    edge_ptr, edge_probabilities : arrays
        The same for label pairs: for each step, beam times next beam.
    divergence : float64 array [N]
        Divergence of each step: -log of the fraction of the belief that was kept.
    n_labels : int
    """

    ptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    edge_ptr: NDArray[np.int64]
    edge_probabilities: NDArray[np.float64]
    divergence: NDArray[np.float64]
    n_labels: int
    offsets: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Labels in each token's beam, [N]."""
        return np.diff(self.ptr)

    @cached_property
    def nodes(self) -> NDArray[np.float64]:
        """The probabilities as an array [N, L], zero outside the beams."""
        out = np.zeros((len(self.ptr) - 1, self.n_labels))
        out[np.repeat(np.arange(len(out)), self.sizes), self.labels] = self.probabilities
        return out

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The pairs' probabilities as an array [E, L, L], zero outside the beams."""
        out = np.zeros((len(self.edge_ptr) - 1, self.n_labels, self.n_labels))
        for e, t in enumerate(np.flatnonzero(inner_tokens(self.offsets))):
            a = self.labels[self.ptr[t - 1] : self.ptr[t]]
            b = self.labels[self.ptr[t] : self.ptr[t + 1]]
            block = self.edge_probabilities[self.edge_ptr[e] : self.edge_ptr[e + 1]]
            out[e][np.ix_(a, b)] = block.reshape(len(a), len(b))
        return out


@dataclass(frozen=True, eq=False, repr=False)
class NBest(Record):
    """The best labellings of one sequence, best first.

    Attributes
    ----------
    paths : int32 array [k, T]
    scores : float64 array [k]
    """

    paths: Path
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scores)


def _require_paths(p: Potentials, dead: NDArray[np.bool_], beam: Beam | None = None) -> None:
    if not dead.any():
        return
    where = "" if p.offsets is None else f" in sequence {int(np.argmax(dead))}"
    if beam is not None and not np.isneginf(reachable(p)[dead]).any():
        raise ValueError(f"the beam {beam.text()} discarded every permitted labelling{where}: use a larger one")
    raise ValueError(f"no labelling is allowed{where}: every path has a score of minus infinity")


def _sum_product(
    p: Potentials, n_jobs: int | None, *, nodes: bool = False, edges: bool = False, strict: bool = True
) -> tuple[NDArray[np.float64], Floats | None, Floats | None]:
    x = p.lattice
    labels = x.unary.shape[1]
    log_z = np.empty(len(p))
    node_out = np.empty(x.unary.shape, x.unary.dtype) if nodes or (edges and p.is_ordered) else None
    edge_out = None
    if edges and not p.is_ordered:
        steps = int(np.maximum(np.diff(x.offsets) - 1, 0).sum())
        edge_out = np.empty((steps, labels, labels), x.unary.dtype)
    _core.expectations(x, resolve_threads(n_jobs), None, log_z, node_out, None, edge_out)
    if strict:
        _require_paths(p, np.isneginf(log_z))
    if node_out is not None:
        edge_out = p.by_pair(node_out) if edges and p.is_ordered else edge_out
        node_out = p.by_label(node_out)
    return log_z, node_out, edge_out


def reachable(p: Potentials, n_jobs: int | None = None) -> NDArray[np.float64]:
    """``log_partition`` of a batch that is minus infinity, not an error, where no labelling is allowed."""
    return _sum_product(p, n_jobs, strict=False)[0]


def log_partition(p: Potentials, n_jobs: int | None = None) -> Any:
    r"""Logarithm of the partition function, :math:`\log Z = \log \sum_y e^{s(y)}`.

    Parameters
    ----------
    p : Potentials
        The scores.
    n_jobs : int, optional
        Threads for a batch; all cores by default.

    Returns
    -------
    float, or float64 array [S] for a batch
        0 for a sequence without tokens.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(float(np.exp(log_partition(p))), 6)
    8.0
    """
    log_z, _, _ = _sum_product(p, n_jobs)
    return log_z if p.offsets is not None else float(log_z[0])


@overload
def marginals(p: Potentials, n_jobs: int | None = None, *, pairs: bool = False) -> Marginals: ...
@overload
def marginals(
    p: Potentials,
    n_jobs: int | None = None,
    *,
    beam: Beam | str,
    keep: ArrayLike | Sequence[ArrayLike] | None = None,
    form: Form = "frozen",
) -> BeamMarginals: ...
def marginals(
    p: Potentials,
    n_jobs: int | None = None,
    *,
    pairs: bool = False,
    beam: Beam | str | None = None,
    keep: ArrayLike | Sequence[ArrayLike] | None = None,
    form: Form = "frozen",
) -> Marginals:
    r"""Probabilities of each label at each token, and of each pair of labels at neighbouring tokens.

    .. math::

        \text{nodes}[t, j] = \sum_{y: y_t = j} p(y) = \partial \log Z / \partial U_t(j), \qquad
        \text{edges}[t, i, j] = \sum_{y: y_t = i, y_{t+1} = j} p(y) = \partial \log Z / \partial A_t(i, j)

    Parameters
    ----------
    p : Potentials
        The scores.
    n_jobs : int, optional
        Threads; -1 or None for all cores.
    pairs : bool
        Compute the probabilities of label pairs immediately. Otherwise they are computed on first access of ``edges``,
        in a second pass. Memory for ``nodes`` alone grows with labels, not with labels squared. With a beam, pairs
        within it are always computed.
    beam : MinDivergence, FixedSize, Threshold or str, optional
        Keep only a beam of labels at each step: time and memory then grow with beam times labels, not with labels
        squared.
    keep : int array [T], or one for each sequence of a batch, optional
        A label that each beam must hold, -1 for none (the gold path, when training).
    form : {"frozen", "smoothed", "paper"}
        ``"frozen"`` selects beams in a forward pass and gives the exact marginals within them, which are the
        derivatives of ``log_z``. ``"smoothed"`` selects them again in a backward pass, by the belief of both
        directions, which gives smaller beams for the same mass; training uses it. ``"paper"`` is sparse
        forward-backward as published by Pal, Sutton and McCallum: the backward pass selects its own beams, each step is
        normalised separately, and ``log_z`` is the mass of the forward pass.

    Returns
    -------
    Marginals
        ``log_z``, ``nodes`` [T, L] and ``edges`` [T - 1, L, L]; with a beam,
        :class:`BeamMarginals`, which also has the beams.

    Examples
    --------
    >>> p = Potentials([[0.0, np.log(3.0)]], [[0.0, 0.0], [0.0, 0.0]])
    >>> marginals(p).nodes.round(3)
    array([[0.25, 0.75]])
    """
    rule = as_rule(beam)
    if rule is not None:
        return _beam_marginals(p, rule, keep, form, n_jobs)
    if keep is not None or form != "frozen":
        raise ValueError("'keep' and 'form' of marginals need a 'beam'")
    log_z, nodes, edges = _sum_product(p, n_jobs, nodes=True, edges=pairs)
    assert nodes is not None
    pairs_of = (p, n_jobs) if edges is None else edges
    return ExactMarginals(log_z if p.offsets is not None else float(log_z[0]), nodes, pairs_of)


def _beam_marginals(
    p: Potentials, beam: Beam, keep: ArrayLike | Sequence[ArrayLike] | None, form: Form, n_jobs: int | None
) -> BeamMarginals:
    if p.is_ordered:
        raise ValueError("'beam' of marginals is for first-order models: higher orders already use beams")
    if form not in ("frozen", "smoothed", "paper"):
        raise ValueError(f"'form' must be 'frozen', 'smoothed' or 'paper', got {form!r}")
    kept = None if keep is None else _flat_path(p, keep, low=-1, name="keep").astype(np.int32)
    x = p.lattice
    # the paper's form has no way out of the precision it is given
    dtype = np.float64 if form == "paper" else x.unary.dtype
    x = x._replace(unary=x.unary.astype(dtype, copy=False), pairwise=x.pairwise.astype(dtype, copy=False))
    found = _core.beam_sum_product(x, resolve_threads(n_jobs), beam.core(), kept, form)
    log_z = found[0]
    _require_paths(p, np.isneginf(log_z), beam)
    return BeamMarginals(log_z if p.offsets is not None else float(log_z[0]), *found[1:], p.n_labels, x.offsets)


def decode_flat(p: Potentials, n_jobs: int | None = None, beam: Beam | str | None = None) -> Path:
    """``decode`` with the paths of a batch one after another, [N]."""
    x = p.lattice
    path = np.empty(len(x.unary), np.int32)
    dead = np.empty(len(p), np.uint8)
    _core.decode(x, resolve_threads(n_jobs), beam_core(beam), path, dead)
    _require_paths(p, dead.astype(bool))
    return p.labels_of(path)


def decode(p: Potentials, n_jobs: int | None = None, *, beam: Beam | str | None = None) -> Any:
    r"""Best labelling, :math:`\arg\max_y s(y)` (Viterbi). Ties go to the smaller label, from the last token backwards.

    With 128 labels or more, labels l that cannot be on the best path are skipped at each step: those with
    :math:`v_l + \max_m a_{lm} < v_i + \min_m a_{im}` for some i, where v are the scores of the best paths so far and a
    those of transitions that all steps share.

    Parameters
    ----------
    p : Potentials
        The scores.
    n_jobs : int, optional
        Threads; -1 or None for all cores.
    beam : MinDivergence, FixedSize, Threshold or str, optional
        Consider only a beam of labels at each step, selected by the scores of the best paths so far. The labelling may
        then not be the best. If forbidden transitions leave a beam no path, all labels are used.

    Returns
    -------
    int32 array [T], or a list of them for a batch

    Examples
    --------
    >>> p = Potentials([[0.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> decode(p)
    array([1, 0], dtype=int32)
    """
    path = decode_flat(p, n_jobs, beam)
    return path if p.offsets is None else p.split(path)


def nbest(p: Potentials, k: int, *, beam: Beam | str | None = None, n_jobs: int | None = None) -> Any:
    """The ``k`` best labellings, all different, best first.

    There are fewer than ``k`` if fewer are allowed. With a ``beam``, only labellings within it are considered.

    Returns
    -------
    NBest, or a list of them for a batch
        ``paths`` [k, T] and ``scores`` [k].

    Examples
    --------
    >>> p = Potentials([[0.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> nbest(p, 3).paths.tolist()
    [[1, 0], [0, 0], [1, 1]]
    """
    check_number("nbest", "k", k, 1, integer=True)
    rule = as_rule(beam)
    count, path, scores = _core.nbest(p.lattice, resolve_threads(n_jobs), beam_core(rule), min(int(k), 2**31 - 1))
    found = []
    at = first = 0
    for start, n, length in zip(p.lattice.offsets.tolist(), count.tolist(), p.lengths.tolist(), strict=False):
        paths = path[at : at + n * length].reshape(n, length)
        found.append(NBest(p.labels_of(paths, np.arange(start, start + length)), scores[first : first + n]))
        at += n * length
        first += n
    _require_paths(p, np.array([len(best) == 0 for best in found], bool), rule)
    return found if p.offsets is not None else found[0]


def sample(p: Potentials, n: int, rng: np.random.Generator | int | None = None, n_jobs: int | None = None) -> Any:
    """Labellings drawn independently from p(y).

    Parameters
    ----------
    p : Potentials
        The scores.
    n : int
        How many for each sequence.
    rng : numpy Generator, or a seed, optional
        Source of random numbers.

    Returns
    -------
    int32 array [n, T], or a list of them for a batch

    Examples
    --------
    >>> p = Potentials([[0.0, 100.0]] * 4, [[0.0, 0.0], [0.0, 0.0]])
    >>> sample(p, 2, rng=0)
    array([[1, 1, 1, 1],
           [1, 1, 1, 1]], dtype=int32)
    """
    check_number("sample", "n", n, 0, integer=True)
    x = p.lattice
    uniform = np.random.default_rng(rng).random((n, len(x.unary)))
    paths = np.empty(uniform.shape, np.int32)
    log_z = np.empty(len(p))
    _core.sample(x, resolve_threads(n_jobs), uniform, log_z, paths)
    _require_paths(p, np.isneginf(log_z))
    paths = p.labels_of(paths)
    return paths if p.offsets is None else p.split(paths, axis=1)


def _flat_path(
    p: Potentials, path: ArrayLike | Sequence[ArrayLike], low: int = 0, name: str = "path"
) -> NDArray[np.int64]:
    given: Any = path
    rows = [np.asarray(row) for row in ([given] if p.offsets is None else given)]
    if len(rows) != len(p):
        raise ValueError(f"{name!r} must hold one entry for each of {len(p)} sequences, got {len(rows)}")
    for i, (row, length) in enumerate(zip(rows, p.lengths, strict=True)):
        if row.shape != (length,):
            raise ValueError(f"{name} of sequence {i} must have shape ({length},), got {row.shape}")
        if row.size and (row.dtype.kind not in "iu" or row.min() < low or row.max() >= p.n_labels):
            raise ValueError(f"{name} of sequence {i} must hold label numbers from {low} to {p.n_labels - 1}")
    return np.concatenate(rows).astype(np.int64) if rows else np.empty(0, np.int64)


def score(p: Potentials, path: ArrayLike | Sequence[ArrayLike]) -> Any:
    """Score s(y) of a labelling; minus infinity if it is not allowed.

    Parameters
    ----------
    p : Potentials
        The scores.
    path : int array [T], or one for each sequence of a batch
        Numbers of the labels.

    Returns
    -------
    float, or float64 array [S] for a batch

    Examples
    --------
    >>> p = Potentials([[0.0, 1.0], [2.0, 0.0]], [[0.0, 0.5], [0.0, 0.0]])
    >>> score(p, [0, 1])
    0.5
    """
    x = p.lattice
    flat = p.slots_of(_flat_path(p, path))
    tokens = np.arange(len(flat))
    steps = np.where(flat >= 0, x.unary[tokens, flat], -np.inf).astype(np.float64)
    at = np.flatnonzero(inner_tokens(x.offsets))
    edge = np.arange(len(at)) if x.per_step else np.zeros(len(at), np.int64)
    steps[at] += x.pairwise[edge, flat[at - 1], flat[at]]
    sums = np.array([steps[a:b].sum() for a, b in zip(x.offsets[:-1], x.offsets[1:], strict=True)])
    return sums if p.offsets is not None else float(sums[0])


def log_probability(p: Potentials, path: ArrayLike | Sequence[ArrayLike], n_jobs: int | None = None) -> Any:
    r"""Log-probability of a labelling, :math:`\log p(y) = s(y) - \log Z`.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 2, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(float(np.exp(log_probability(p, [0, 1]))), 6)
    0.25
    """
    return score(p, path) - log_partition(p, n_jobs)
