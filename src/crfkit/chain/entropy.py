"""Exact entropies of linear chains, their gradients, and measures of confidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.numbers import inner_tokens
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.chain.constraints import SCHEMES
from crfkit.chain.inference import _require_paths, decode, log_partition, log_probability, nbest
from crfkit.chain.potentials import Floats, Potentials

Vector = NDArray[np.float64]
LabelSet = int | Iterable[int] | None


@dataclass(frozen=True, eq=False, repr=False)
class EntropyGradient(Record):
    """Entropy and its derivatives with respect to the scores.

    Attributes
    ----------
    entropy : float, or float64 array [S] for a batch
    unary : array [N, L]
    pairwise : array [L, L], or [E, L, L] if the potentials have a matrix per step or are of a higher order
        For a shared matrix, the sum over all steps of all sequences.
    """

    entropy: Any
    unary: Floats
    pairwise: Floats


class UncertainSpan(NamedTuple):
    """A span (``end`` is the token after it) and the entropy of its labels."""

    start: int
    end: int
    entropy: float


def _entropies(p: Potentials, n_jobs: int | None, wanted: str = "") -> tuple[Vector, Any, Any]:
    """Entropies of the sequences, and the two arrays of "spans" (of "nodes": the first), "gradient" or "lattices"."""
    if not isinstance(p, Potentials):
        raise TypeError(f"expected Potentials, got {type(p).__name__}")
    x = p.lattice
    shapes = {
        "spans": ((len(x.unary),), (int(np.maximum(np.diff(x.offsets) - 1, 0).sum()),)),
        "gradient": (x.unary.shape, x.pairwise.shape),
        "lattices": (x.unary.shape, x.unary.shape),
    }
    dtype = x.unary.dtype if wanted == "gradient" else np.float64
    out: Any = [np.zeros(s, dtype) if kind == wanted else None for kind, pair in shapes.items() for s in pair]
    if wanted == "nodes":
        out[0] = np.zeros(len(x.unary))
    log_z, found = np.empty(len(p)), np.empty(len(p))
    _core.entropies(x, resolve_threads(n_jobs), log_z, found, *out)
    _require_paths(p, np.isneginf(log_z))
    first, second, *_ = [*(array for array in out if array is not None), None, None]
    for rounded in (first, second) if wanted in ("spans", "nodes") else ():
        if rounded is not None:
            np.maximum(rounded, 0.0, out=rounded)  # where one label is certain
    return found, first, second


def _one(p: Potentials, values: Vector) -> Any:
    return values if p.offsets is not None else float(values[0])


def _require_single(p: Potentials, function: str) -> None:
    if p.offsets is not None:
        raise ValueError(f"{function} takes one sequence; p[i] is sequence i of a batch")


def _require_span(p: Potentials, start: int, end: int) -> None:
    if not 0 <= start < end <= len(p.unary):
        raise ValueError(f"a span needs 0 <= start < end <= {len(p.unary)}, got start {start} and end {end}")


def span_lengths(length: int | tuple[int, int]) -> tuple[int, int]:
    """The minimum and maximum length of a span; raises unless ``length`` is an int or a pair of ints."""
    bounds = tuple(length) if isinstance(length, (tuple, list)) else (length, length)
    whole = all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in bounds)
    if not whole or len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1]:
        raise ValueError(f"'length' must be an int >= 1 or a pair (min, max), got {length!r}")
    return bounds


def entropy(p: Potentials, n_jobs: int | None = None) -> Any:
    r"""Entropy of the labellings in nats, :math:`H = -\sum_y p(y) \log p(y)`, exact in O(T L^2).

    It is the sum of :math:`H(y_0)` and of :math:`H(y_{t+1} \mid y_t)` over the steps.

    Parameters
    ----------
    p : Potentials
        The scores.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Returns
    -------
    float, or float64 array [S] for a batch
        0 for a sequence without tokens.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(entropy(p) / float(np.log(2)), 6)
    3.0
    """
    return _one(p, _entropies(p, n_jobs)[0])


def entropy_gradient(p: Potentials, n_jobs: int | None = None) -> EntropyGradient:
    r"""Entropy and its gradient, the negative covariance of label counts with the score.

    .. math::

        \partial H / \partial U_t(j) = -\operatorname{Cov}([y_t = j], s(y)), \qquad
        \partial H / \partial A_t(i, j) = -\operatorname{Cov}([y_t = i, y_{t+1} = j], s(y))

    It takes two further passes over the lattice, with no logarithm per edge. Derivatives with respect to start and end
    scores are those of the first and last token.

    Examples
    --------
    >>> p = Potentials([[0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> entropy_gradient(p).unary.round(4)
    array([[ 0.1966, -0.1966]])
    """
    found, unary, pairwise = _entropies(p, n_jobs, "gradient")
    if (pairs := p.by_pair(unary)) is not None:
        return EntropyGradient(_one(p, found), p.by_label(unary), pairs)
    return EntropyGradient(_one(p, found), unary, pairwise if p.lattice.per_step else pairwise[0])


class SpanEntropies:
    r"""Entropies of the labels of all spans, each in constant time after one pass.

    .. math::

        H(y_a, \ldots, y_{b-1}) = H(y_a) + \sum_{t=a}^{b-2} H(y_{t+1} \mid y_t)

    With order n, the first n labels of the span take the place of :math:`y_a`, and those that a label depends on
    that of :math:`y_t`. Made by :func:`span_entropies`.

    Attributes
    ----------
    nodes : float64 array [N]
        Entropy of each token's label.
    steps : float64 array [E]
        :math:`H(y_{t+1} \mid y_t)`.
    entropy : float64 array [S]
        Of whole sequences.
    """

    def __init__(self, p: Potentials, nodes: Sequence[Vector], steps: Vector, whole: Vector) -> None:
        self.offsets = p.lattice.offsets
        self._joint = list(nodes)  # of a token's label, of it and the one before, and so on up to the order
        self.nodes = self._joint[0]
        self.steps = steps
        self.entropy = whole
        # sums[t]: of the steps that end at or before token t, one running sum over all sequences
        into = np.zeros(len(self.nodes))
        self._inner = inner_tokens(self.offsets)
        into[self._inner] = steps
        self._sums = np.cumsum(into)
        self._lengths = np.diff(self.offsets)

    def span(self, start: int, end: int, sequence: int | None = None) -> float:
        """Entropy of the labels of tokens ``start`` to ``end - 1``; in a batch, of sequence number ``sequence``."""
        many = len(self._lengths)
        if sequence is None and many == 1:
            sequence = 0
        if sequence is None or not 0 <= sequence < many:
            raise ValueError(f"'sequence' must be a number from 0 to {many - 1}, got {sequence}")
        length = int(self._lengths[sequence])
        if not 0 <= start < end <= length:
            raise ValueError(f"a span needs 0 <= start < end <= {length}, got start {start} and end {end}")
        shift, k = int(self.offsets[sequence]), min(end - start, len(self._joint)) - 1
        first, last = shift + start + k, shift + end - 1
        # max: the difference of the sums is rounded
        return max(0.0, float(self._joint[k][first] + self._sums[last] - self._sums[first]))

    def of_length(self, length: int) -> Vector:
        """Entropies of all spans of a length, by their first token, [N]; NaN where the sequence is too short.

        Examples
        --------
        >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
        >>> (span_entropies(p).of_length(2) / np.log(2)).round(6)
        array([ 2.,  2., nan])
        """
        if length < 1:
            raise ValueError(f"'length' must be >= 1, got {length}")
        out = np.full(len(self.nodes), np.nan)
        n = len(self.nodes) - length + 1
        if n > 0:
            k = min(length, len(self._joint)) - 1
            first = slice(k, k + n)
            out[:n] = np.maximum(self._joint[k][first] + self._sums[length - 1 :] - self._sums[first], 0.0)
            ends = np.repeat(self.offsets[1:], self._lengths)
            out[np.arange(len(out)) + length > ends] = np.nan
        return out

    def most_uncertain(self, length: int | tuple[int, int], rate: float | None = None) -> list[UncertainSpan | None]:
        """The most uncertain span of each sequence; see :func:`most_uncertain_span`."""
        low, high = span_lengths(length)
        rates = self.entropy / np.maximum(self._lengths, 1) if rate is None else np.full(len(self._lengths), rate)
        best: list[UncertainSpan | None] = [None] * len(self._lengths)
        value = np.full(len(self._lengths), -np.inf)
        longest = int(self._lengths.max(initial=0))
        for n in range(low, min(high, longest) + 1):
            spans = self.of_length(n)
            for s in np.flatnonzero(self._lengths >= n).tolist():
                part = spans[self.offsets[s] : self.offsets[s + 1] - n + 1]
                t = int(np.argmax(part))
                worth = part[t] - n * rates[s]
                if worth > value[s] + 1e-12:
                    value[s] = worth
                    best[s] = UncertainSpan(t, t + n, float(part[t]))
        for s in np.flatnonzero((self._lengths > 0) & (self._lengths < low)).tolist():
            best[s] = UncertainSpan(0, int(self._lengths[s]), float(self.entropy[s]))
        return best


def span_entropies(p: Potentials, n_jobs: int | None = None) -> SpanEntropies:
    """Entropies of the labels of all spans; one pass over the lattice, with a logarithm per label and none per pair.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, -np.inf], [-np.inf, 0.0]])
    >>> found = span_entropies(p)
    >>> round(found.span(0, 3), 4), round(found.span(1, 2), 4)
    (0.6931, 0.6931)
    """
    whole, nodes, steps = _entropies(p, n_jobs, "spans")
    return SpanEntropies(p, [*p.shorter_entropies(n_jobs), nodes], steps, whole)


def token_entropies(p: Potentials, n_jobs: int | None = None) -> tuple[Vector, float]:
    r"""Entropy of each token's label [N], and the sum of the sequences' entropies; cheaper than :func:`span_entropies`.

    .. math:: \sum_s H(y^{(s)}) = \sum_s \log Z_s - E[s(y)]

    The sum has the rounding errors of a difference of large numbers.

    >>> nodes, total = token_entropies(Potentials([[0.0, 0.0]] * 3, [[0.0, -np.inf], [-np.inf, 0.0]]))
    >>> (nodes / np.log(2)).round(6).tolist(), round(total / float(np.log(2)), 6)
    ([1.0, 1.0, 1.0], 1.0)
    """
    found, nodes, _ = _entropies(p, n_jobs, "nodes")
    return [*p.shorter_entropies(n_jobs), nodes][0], float(found.sum())


def span_entropy(p: Potentials | SpanEntropies, start: int, end: int, sequence: int | None = None) -> float:
    """Entropy of the labels of tokens ``start`` to ``end - 1``; for many spans, use :func:`span_entropies`.

    For a batch, ``sequence`` is the number of the sequence.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(span_entropy(p, 0, 2) / float(np.log(2)), 6)
    2.0
    """
    found = p if isinstance(p, SpanEntropies) else span_entropies(p)
    return found.span(start, end, sequence)


def most_uncertain_span(p: Potentials, length: int | tuple[int, int] = 1, rate: float | None = None) -> Any:
    r"""The span whose labels' entropy most exceeds the average for its length.

    .. math:: H(y_a, \ldots, y_{b-1}) - (b - a) r, \qquad r = H(y) / T

    Here r is the mean entropy per token of the sequence. A span grows while a token adds more than the average, that
    is :math:`H(y_b \mid y_{b-1}) > r`. Entropy alone would always choose the longest span, and entropy per token
    always the shortest, since a span's entropy is at most the sum of its tokens'.

    Parameters
    ----------
    p : Potentials
        The scores.
    length : int or (int, int)
        Length of the span in tokens, or its minimum and maximum. Shorter sequences are used whole.
    rate : float, optional
        The r of the formula, in nats per token: larger values give shorter spans, 0 the longest allowed.

    Returns
    -------
    UncertainSpan, or a list of them for a batch
        None for a sequence without tokens.

    Examples
    --------
    >>> p = Potentials([[9.0, 0.0], [0.1, 0.0], [0.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> most_uncertain_span(p)[:2]
    (1, 2)
    >>> p = Potentials([[9.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.0, 9.0]], [[0.0, 0.0], [0.0, 0.0]])
    >>> most_uncertain_span(p, (1, 4))[:2]
    (1, 3)
    """
    found = span_entropies(p).most_uncertain(length, rate)
    return found if p.offsets is not None else found[0]


def _mask_log_probability(p: Potentials, allowed: NDArray[np.bool_]) -> float:
    """Log-probability that every label is allowed, log Z(allowed) - log Z."""
    log_z = log_partition(p)
    try:
        return float(min(0.0, log_partition(p.masked(allowed)) - log_z))
    except ValueError:  # no labelling is left
        return -np.inf


def _label_numbers(p: Potentials, label: Any) -> list[int]:
    """The numbers of one label or of several."""
    one = isinstance(label, (int, np.integer))
    numbers = [label] if one else list(label) if isinstance(label, Iterable) else [label]
    if any(not isinstance(x, (int, np.integer)) or not 0 <= x < p.n_labels for x in numbers):
        raise ValueError(f"'labels' must hold numbers from 0 to {p.n_labels - 1}, got {label!r}")
    return [int(x) for x in numbers]


def _span_mask(p: Potentials, start: int, end: int, labels: Sequence[LabelSet]) -> NDArray[np.bool_]:
    """What :func:`span_probability` allows, [T, L]."""
    _require_span(p, start, end)
    if len(labels) != end - start:
        raise ValueError(f"'labels' must hold {end - start} labels, got {len(labels)}")
    allowed = np.ones((len(p.unary), p.n_labels), bool)
    for t, label in enumerate(labels, start):
        if label is not None:
            numbers = _label_numbers(p, label)
            allowed[t] = False
            allowed[t, numbers] = True
    return allowed


def span_probability(p: Potentials, start: int, end: int, labels: Sequence[LabelSet]) -> float:
    r"""Exact probability that tokens ``start`` to ``end - 1`` have the given labels, whatever the other labels are.

    .. math:: P(y_a \in B_a, \ldots, y_{b-1} \in B_{b-1}) = Z(\text{restricted}) / Z

    Parameters
    ----------
    p : Potentials
        Of one sequence.
    start, end : int
        First position, and one past the last.
    labels : sequence of label numbers
        One for each token of the span: a number, several numbers (any of them), or None (any label).

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(span_probability(p, 1, 3, [0, 1]), 6), round(span_probability(p, 1, 3, [0, {0, 1}]), 6)
    (0.25, 0.5)
    """
    _require_single(p, "span_probability")
    return float(np.exp(_mask_log_probability(p, _span_mask(p, start, end, labels))))


def entity_probability(
    p: Potentials,
    start: int,
    end: int,
    kind: str,
    names: Sequence[str],
    scheme: Literal["bio", "bioes", "bilou"] = "bio",
) -> float:
    """Exact probability of an entity of this type at exactly the tokens ``start`` to ``end - 1``.

    Only label sequences that follow the scheme count: in ``"bio"`` an entity begins with B. ``CRF.predict_entities``
    follows :func:`crfkit.metrics.spans`, where an I may also begin one; with constraints the two agree.

    Parameters
    ----------
    p : Potentials
        Of one sequence.
    start, end : int
        First position, and one past the last.
    kind : str
        The type: X of B-X.
    names : sequence of str
        Names of the labels.
    scheme : {"bio", "bioes", "bilou"}
        The scheme of the names. If the labels of the type do not fit it, an error is raised.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0, 0.0]] * 2, np.zeros((3, 3)))
    >>> round(entity_probability(p, 0, 1, "X", ["B-X", "I-X", "O"]) * 9, 6)  # B-X, then anything but I-X
    2.0
    """
    _require_single(p, "entity_probability")
    _require_span(p, start, end)
    number = {name: i for i, name in enumerate(names)}
    if len(number) != p.n_labels:
        raise ValueError(f"'names' must name {p.n_labels} labels, got {len(number)}")
    if scheme not in ("bio", "bioes", "bilou"):
        raise ValueError(f"'scheme' must be 'bio', 'bioes' or 'bilou', got {scheme!r}")
    rules = SCHEMES[scheme]
    (single,), (last,) = rules.begins & rules.ends, rules.ends - rules.begins
    found = {name[0] for name in number if name[1:] == f"-{kind}"}
    if not found:
        raise ValueError(f"'kind' must be a type of the labels, got {kind!r}")
    if not found <= rules.tags or not found & (rules.tags - {"B", "I"} or {"B"}):
        raise ValueError(f"the labels of {kind!r} are not those of the scheme {scheme!r}: {', '.join(sorted(found))}")
    n = end - start
    tags = [single] if n == 1 else ["B", *"I" * (n - 2), last]
    allowed = np.ones((len(p.unary), p.n_labels), bool)
    for t, tag in enumerate(tags, start):
        allowed[t] = False
        if tag in found:
            allowed[t, number[f"{tag}-{kind}"]] = True
    if scheme == "bio" and end < len(p.unary) and f"I-{kind}" in number:
        allowed[end, number[f"I-{kind}"]] = False
    return float(np.exp(_mask_log_probability(p, allowed)))


def confidence(p: Potentials, n_jobs: int | None = None) -> Any:
    r"""Probability of the best labelling, :math:`\max_y p(y)`.

    Examples
    --------
    >>> p = Potentials([[0.0, 0.0]] * 2, [[0.0, 0.0], [0.0, 0.0]])
    >>> round(confidence(p), 6)
    0.25
    """
    best = np.atleast_1d(log_probability(p, decode(p, n_jobs), n_jobs))
    return _one(p, np.exp(np.minimum(best, 0.0)))


def _best(p: Potentials, k: int, n_jobs: int | None) -> list[Vector]:
    """Log-probabilities of the k best labellings of each sequence."""
    log_z = np.atleast_1d(log_partition(p, n_jobs))
    found = nbest(p, k, n_jobs=n_jobs)
    lists = found if p.offsets is not None else [found]
    return [best.scores - z for best, z in zip(lists, log_z, strict=True)]


def margin(p: Potentials, n_jobs: int | None = None) -> Any:
    """Probability of the best labelling minus that of the runner-up; if there is no other, that of the best.

    Examples
    --------
    >>> p = Potentials([[0.0, float(np.log(3))]], [[0.0, 0.0], [0.0, 0.0]])
    >>> round(margin(p), 6)
    0.5
    """
    best = [np.exp(x) for x in _best(p, 2, n_jobs)]
    return _one(p, np.array([x[0] - x[1] if len(x) > 1 else x[0] for x in best]))
