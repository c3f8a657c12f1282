"""Which sequences, or which parts of them, to label next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import counted
from crfkit.chain import kbest_entropy
from crfkit.chain.entropy import UncertainSpan, confidence, entropy, margin, span_entropies, span_lengths
from crfkit.chain.potentials import Potentials
from crfkit.estimators.chained import ChainEstimator
from crfkit.estimators.crf import CRF

Vector = NDArray[np.float64]
Length = int | tuple[int, int]
_SEVERAL = (set, frozenset, Mapping)  # partial labels and soft ones

#: Names of the strategies.
STRATEGIES = (
    "random",
    "least_confidence",
    "margin",
    "token_entropy",
    "sequence_entropy",
    "kbest_entropy",
    "span_entropy",
)


class Query(NamedTuple):
    """A query: tokens ``start`` to ``end - 1`` of a sequence of the pool, and their uncertainty."""

    sequence: int
    start: int
    end: int
    score: float


def require_chain(crf: Any, name: str) -> None:
    """Raises if the entropies of an estimator's labellings are not those of a chain; ``name`` is of the function."""
    if not isinstance(crf, ChainEstimator):
        raise TypeError(f"'crf' of {name} must be a chain, such as a CRF, got a {type(crf).__name__}")


def _scores(p: Potentials, strategy: str, k: int, n_jobs: int | None) -> Vector:
    """Uncertainty of each sequence of a batch, of a strategy that looks at whole sequences."""
    if strategy == "least_confidence":
        return np.asarray(-np.log(np.maximum(confidence(p, n_jobs), 1e-300)))
    if strategy == "margin":
        return np.asarray(1 - margin(p, n_jobs))
    if strategy == "sequence_entropy":
        return np.asarray(entropy(p, n_jobs))
    if strategy == "kbest_entropy":
        return np.asarray(kbest_entropy(p, k, n_jobs))
    return np.array([part.sum() for part in p.split(span_entropies(p, n_jobs).nodes)])


def uncertainty(
    crf: CRF,
    X: Any,
    strategy: str = "sequence_entropy",
    *,
    given: Any = None,
    per_token: bool = False,
    length: Length = (1, 5),
    k: int = 10,
    random_state: int | None = None,
) -> Vector:
    r"""The model's uncertainty about each sequence.

    Parameters
    ----------
    crf : CRF
        Fitted.
    X : sequences of tokens
        The pool.
    strategy : str
        ``"random"``; ``"least_confidence"``: :math:`-\log \max_y p(y)`; ``"margin"``: one minus the difference of the
        two best probabilities; ``"token_entropy"``: :math:`\sum_t H(y_t)`; ``"sequence_entropy"``: :math:`H(y)`;
        ``"kbest_entropy"``: entropy of the k best labellings; ``"span_entropy"``: the highest entropy of a span.
    given : sequences of labels, optional
        Known labels, as in :meth:`CRF.predict`; uncertainty is conditional on them. Labels unknown to the model count
        as known, but carry no information.
    per_token : bool
        Divide by the length of the sequence, or of the span; otherwise long ones are preferred.
    length : int or (int, int)
        Length of spans for ``"span_entropy"``, or the least and most.
    k : int
        For ``"kbest_entropy"``.
    random_state : int, optional
        For ``"random"``.

    Returns
    -------
    float64 array [S]

    Examples
    --------
    >>> crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
    >>> u = uncertainty(crf, [["a"], ["c", "d"]])
    >>> bool(u[1] > u[0])
    True
    """
    require_chain(crf, "uncertainty")
    if strategy not in STRATEGIES:
        raise ValueError(f"'strategy' must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    crf._require_fitted()
    if given is not None and len(given) != len(X):
        raise ValueError(f"'given' holds labels for {counted(len(given), 'sequence')}, but 'X' holds {len(X)}")
    if strategy == "random":
        crf.model_.encoder.read(X)  # only to see whether it could be read
        return np.random.default_rng(random_state).random(len(X))
    given = fit_to_model(crf, given)
    if strategy == "span_entropy":
        found = _spans(crf, X, given, length, 0.0)
        return np.array([0.0 if b is None else b.entropy / (b.end - b.start if per_token else 1) for b in found])
    parts, lengths = [np.zeros(0)], [np.zeros(0, np.int64)]
    for p in crf._potentials(X, given, np.float64):
        parts.append(_scores(p, strategy, k, crf.n_jobs))
        lengths.append(p.lengths)
    scores = np.concatenate(parts)
    return scores / np.maximum(np.concatenate(lengths), 1) if per_token else scores


def fit_to_model(crf: CRF, given: Any) -> Any:
    """What is known, with None for labels that the model has not seen: of these it can say nothing."""
    if given is None:
        return None
    labels = set(crf.model_.labels)

    def one(x: Any) -> Any:
        if isinstance(x, (set, frozenset)):
            return x & labels or None
        if isinstance(x, Mapping):
            known = {label: share for label, share in x.items() if label in labels}
            return known if any(known.values()) else None
        return x if x in labels else None

    return [None if row is None else [one(x) for x in row] for row in given]


def _spans(crf: CRF, X: Any, given: Any, length: Length, rate: float | None) -> list[UncertainSpan | None]:
    out: list[UncertainSpan | None] = []
    for p in crf._potentials(X, given, np.float64):
        out += span_entropies(p, crf.n_jobs).most_uncertain(length, rate)
    return out


class _Directions(NamedTuple):
    """Sequences as unit vectors of their attributes, rare ones heavier; entries in the order of the sequences."""

    ptr: NDArray[np.int64]  # [S + 1]
    sequence: NDArray[np.int64]
    attr: NDArray[np.int64]
    value: Vector

    def nearness(self, i: int) -> Vector:
        """Cosines of all sequences with one, [S]."""
        one = np.zeros(int(self.attr.max(initial=0)) + 1)
        entries = slice(self.ptr[i], self.ptr[i + 1])
        one[self.attr[entries]] = self.value[entries]
        return np.asarray(np.bincount(self.sequence, self.value * one[self.attr], len(self.ptr) - 1), np.float64)


def _directions(crf: CRF, X: Any) -> _Directions:
    data = crf.model_.encoder.encode(X, False, crf.n_jobs)
    n, sequences = crf.model_.encoder.n_attributes[0], data.n_sequences
    sequence = np.repeat(np.arange(sequences), np.diff(data.ptr[data.offsets]))
    known = data.attr < n
    sequence, attr = np.divmod(np.unique(sequence[known] * n + data.attr[known]), max(n, 1))
    value = np.log1p(sequences / (1.0 + np.bincount(attr, minlength=n)))[attr]
    norm = np.sqrt(np.bincount(sequence, value**2, sequences))
    return _Directions(
        np.searchsorted(sequence, np.arange(sequences + 1)), sequence, attr, value / np.maximum(norm, 1e-12)[sequence]
    )


def query(
    crf: CRF,
    X: Any,
    n: int = 10,
    strategy: str = "sequence_entropy",
    *,
    given: Any = None,
    per_token: bool = False,
    length: Length | None = None,
    diversity: float = 0.0,
    k: int = 10,
    random_state: int | None = None,
) -> list[Query]:
    r"""The ``n`` most useful queries to a pool, best first.

    Parameters
    ----------
    crf : CRF
        Fitted.
    X : sequences of tokens
        The pool.
    n : int
        Number of queries.
    strategy, given, per_token, k, random_state
        As for :func:`uncertainty`. Fully labelled sequences are skipped.
    length : int or (int, int), optional
        Ask only for the most uncertain span of this length in each chosen sequence, not for all of it. A range
        gives the span of :func:`crfkit.chain.most_uncertain_span`, which grows while a token adds more entropy than
        the sequence's tokens do on average.
    diversity : float
        Between 0 and 1: maximal marginal relevance. A question's score is
        :math:`(1 - d) u - d \max_{chosen} \cos`, with u the uncertainty relative to the largest, and the cosine of
        the two sequences' attributes.

    Returns
    -------
    list of Query

    Examples
    --------
    >>> crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
    >>> [q[:3] for q in query(crf, [["a"], ["c", "d"]], 1)]
    [(1, 0, 2)]
    """
    require_chain(crf, "query")
    if n < 1:
        raise ValueError(f"'n' of query must be >= 1, got {n}")
    if not 0 <= diversity <= 1:
        raise ValueError(f"'diversity' must lie between 0 and 1, got {diversity}")
    bounds = (1, 5) if length is None else span_lengths(length)
    scores = uncertainty(
        crf, X, strategy, given=given, per_token=per_token, length=bounds, k=k, random_state=random_state
    )
    lengths = np.array([len(x) for x in X], np.int64)
    open_ = lengths > 0
    if given is not None:
        open_ &= np.array([g is None or any(x is None or isinstance(x, _SEVERAL) for x in g) for g in given])
    order = np.flatnonzero(open_)
    if diversity and len(order):
        chosen = _diverse(crf, X, scores, order, n, diversity)
    else:
        chosen = order[np.argsort(-scores[order], kind="stable")][:n].tolist()
    if length is None:
        return [Query(i, 0, int(lengths[i]), float(scores[i])) for i in chosen]
    known = None if given is None else fit_to_model(crf, [given[i] for i in chosen])
    best = _spans(crf, [X[i] for i in chosen], known, bounds, None)
    return [Query(i, b.start, b.end, float(scores[i])) for i, b in zip(chosen, best, strict=True) if b is not None]


def _diverse(crf: CRF, X: Any, scores: Vector, order: NDArray[np.int64], n: int, weight: float) -> list[int]:
    x = _directions(crf, X)
    worth = scores[order] - scores[order].min()
    worth = worth / max(float(worth.max()), 1e-12)
    near = np.zeros(len(order))
    left = np.ones(len(order), bool)
    chosen: list[int] = []
    for _ in range(min(n, len(order))):
        value = np.where(left, (1 - weight) * worth - weight * near, -np.inf)
        i = int(np.argmax(value))
        chosen.append(int(order[i]))
        left[i] = False
        near = np.maximum(near, x.nearness(chosen[-1])[order])
    return chosen
