"""Calibration of probabilities: calibration curves, temperatures, and prediction sets with guaranteed coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import counted, not_fitted, warn
from crfkit.base.parameters import check_number
from crfkit.base.shown import Record, html_table, shown
from crfkit.chain.chunks import ChunkLabels, Chunks, chunk_probabilities
from crfkit.chain.entropy import entropy
from crfkit.chain.inference import NBest, log_partition, nbest, score
from crfkit.chain.potentials import Potentials
from crfkit.data.labels import Tagging
from crfkit.estimators.chained import ChainEstimator
from crfkit.metrics import require_known, spans

__all__ = ["PredictionSets", "calibration_curve", "fit_temperature"]

Vector = NDArray[np.float64]
_COLDEST, _HOTTEST = 0.02, 50.0
_PATHS = 1 << 24  # labels of n-best lists held at a time


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationCurve(Record):
    """How often predictions of each confidence are right; print it for a table.

    Attributes
    ----------
    confidence, accuracy : float64 arrays [B]
        Mean probability, and fraction correct, of the predictions in each bin; NaN in an empty one.
    counts : int64 array [B]
        Predictions in each bin.
    """

    confidence: Vector
    accuracy: Vector
    counts: NDArray[np.int64]

    @property
    def ece(self) -> float:
        r"""Expected calibration error, :math:`\sum_b n_b / n \, |\text{accuracy}_b - \text{confidence}_b|`."""
        gap = np.abs(np.nan_to_num(self.accuracy) - np.nan_to_num(self.confidence))
        return float(self.counts @ gap / max(1, self.counts.sum()))

    def _shown(self) -> dict[str, str]:
        return {"bins": str(len(self.counts)), "predictions": str(self.counts.sum()), "ece": f"{self.ece:.4f}"}

    def __str__(self) -> str:
        edges = np.linspace(0, 1, len(self.counts) + 1)
        lines = ["probability    mean  right   count"]
        for low, high, p, right, n in zip(edges, edges[1:], self.confidence, self.accuracy, self.counts, strict=False):
            lines.append(f"{low:.2f} to {high:.2f}  {p:.3f}  {right:.3f} {n:7d}" if n else f"{low:.2f} to {high:.2f}")
        return "\n".join([*lines, f"expected calibration error: {self.ece:.4f}"])


def calibration_curve(
    crf: Any, X: Any, y: Any, unit: Literal["spans", "tokens"] = "spans", bins: int = 10
) -> CalibrationCurve:
    """Compares the probabilities of predictions with how often they are right.

    Parameters
    ----------
    crf : a fitted CRF, HMM, MEMM or NeuralCRF
        A fitted model.
    X, y : sequences and their labels
        Held-out data; all labels must be known.
    unit : {"spans", "tokens"}
        Entities of ``predict_entities``, or labels of ``predict`` with their marginal probabilities.
    bins : int
        Number of bins, of equal width between 0 and 1.

    Returns
    -------
    CalibrationCurve
        ``confidence``, ``accuracy``, ``counts`` and ``ece``.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]]
    >>> curve = calibration_curve(CRF().fit(X, y), X, y, unit="tokens", bins=4)
    >>> curve.counts.tolist(), curve.accuracy.tolist(), curve.ece < 0.3
    ([0, 0, 0, 4], [nan, nan, nan, 1.0], True)
    """
    _require("unit", unit, ("spans", "tokens"))
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"'bins' of calibration_curve must be an int >= 1, got {bins!r}")
    methods = ("predict_entities",) if unit == "spans" else ("predict", "predict_marginals")
    if isinstance(crf, type) or not all(hasattr(crf, method) for method in methods):
        raise TypeError(f"calibration_curve of {unit} takes a CRF, HMM, MEMM or NeuralCRF, got {type(crf).__name__}")
    X = list(X) if isinstance(X, Iterator) else X
    y = _known_rows(X, y)
    for i, (x, row) in enumerate(zip(X, y, strict=True)):
        _require_length(i, len(x), len(row))
    if not any(map(len, y)):
        raise ValueError("'X' and 'y' of calibration_curve contain no tokens")
    chance: list[float] = []
    right: list[bool] = []
    if unit == "spans":
        for entities, row in zip(crf.predict_entities(X), y, strict=True):
            true = set(spans(row))
            chance += [e.probability for e in entities]
            right += [(e.label, e.start, e.end) in true for e in entities]
    else:
        number = {label: k for k, label in enumerate(crf.classes_.tolist())}
        for labels, p, row in zip(crf.predict(X), crf.predict_marginals(X), y, strict=True):
            chance += p[np.arange(len(labels)), [number[label] for label in labels]].tolist()
            right += [a == b for a, b in zip(labels, row, strict=True)]
    chances, hits = np.array(chance, np.float64), np.array(right, np.float64)
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (np.bincount(place, x, minlength=bins) / counts for x in (chances, hits))
    return CalibrationCurve(confidence, accuracy, counts)


def fit_temperature(crf: ChainEstimator, X: Any, y: Any) -> float:
    r"""Chooses the temperature of a fitted model that maximises the likelihood of held-out labels, and sets it.

    Minimises over T, on data that the model was not trained on,

    .. math:: -\sum_i \log p_T(y_i \mid x_i), \qquad p_T(y \mid x) \propto p(y \mid x)^{1/T}

    which is convex in 1/T. A temperature above 1 means that the model was overconfident. It affects all probabilities
    of the estimator: ``predict_marginals``, ``predict_entities``, ``predict_nbest``. The best labels do not change.
    Saved models keep the temperature; another :meth:`fit` resets it.

    Parameters
    ----------
    crf : a fitted CRF, HMM or MEMM
        A fitted model.
    X, y : sequences and their labels
        Held-out data. All labels must be known; sequences that are impossible under the model, such as those with a
        label that it has not seen, are ignored.

    Returns
    -------
    float
        ``crf.model_.temperature``, between 0.02 and 50.

    Examples
    --------
    >>> from crfkit import CRF
    >>> crf = CRF().fit([["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]])
    >>> temperature = fit_temperature(crf, [["a", "b"], ["b", "b"]], [["A", "B"], ["B", "A"]])
    >>> temperature == crf.model_.temperature
    True
    """
    _require_chain(crf, "fit_temperature")
    plain = replace(crf.model_, temperature=1.0)
    kept = []
    done = 0
    total = 0.0
    rows = _known_rows(X, y)
    for p in plain.potentials(X, crf.n_jobs, np.float64):
        gold = _gold_scores(p, plain.labels, rows[done : done + len(p)], done)
        done += len(p)
        usable = np.flatnonzero(np.isfinite(gold)).tolist()
        total += float(gold[usable].sum())
        kept.append(p if len(usable) == len(p) else Potentials.batch([p[i] for i in usable]) if len(usable) else None)
    parts = [p for p in kept if p is not None]
    if not parts:
        raise ValueError("'X' and 'y' of fit_temperature contain no sequence that is possible under the model")

    def slope(log_inverse: float) -> float:
        """The derivative by 1/T: E[s] - s(y), the mean score being (log Z - H) T."""
        b = float(np.exp(log_inverse))
        scaled = (Potentials(p.unary * b, p.pairwise * b, offsets=p.offsets) for p in parts)
        return sum(float((log_partition(q, crf.n_jobs) - entropy(q, crf.n_jobs)).sum()) for q in scaled) / b - total

    low, high = -float(np.log(_HOTTEST)), -float(np.log(_COLDEST))
    best = low if slope(low) >= 0 else high if slope(high) <= 0 else _root(slope, low, high)
    temperature = float(np.exp(-best))
    if best in (low, high):
        why = "fit the scores of the model worse than chance: check 'y'"
        if best == high:
            why = "are almost all ones that the model is sure of: use more data, or other data"
        warn(f"the temperature is at its bound, {temperature:g}: the labels for fit_temperature {why}", UserWarning)
    crf.model_ = replace(crf.model_, temperature=temperature)
    return temperature


def _root(rising: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    """Where a function that rises from low to high is zero, by bisection."""
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


class Coverage(NamedTuple):
    """Prediction sets on other data: fraction of true candidates they contain, mean size, fraction of empty sets."""

    coverage: float
    size: float
    empty: float

    def __repr__(self) -> str:
        return f"Coverage({', '.join(f'{k}={v:.4g}' for k, v in self._asdict().items())})"

    def _repr_html_(self) -> str:
        return html_table("Coverage", [(k, f"{v:.4g}") for k, v in self._asdict().items()])


class PredictionSets:
    r"""Sets of labellings, or of entities, that contain the true one with a given probability (split conformal).

    The set of a sequence holds all candidates whose probability is at least a threshold. The threshold is chosen on
    calibration data that neither training nor the temperature has used: with n true candidates there, it is the k-th
    smallest of their probabilities, :math:`k = \lfloor (n + 1)(1 - \text{coverage}) \rfloor`. A true candidate of new
    data from the same source is then in its set with a probability of at least ``coverage``, for any model; a worse
    model has larger sets.

    Parameters
    ----------
    crf : a fitted CRF, HMM or MEMM
        A fitted model.
    unit : {"spans", "labellings"}
        ``"spans"``: a set holds entities, and the coverage is the fraction of all true entities that are in the sets.
        ``"labellings"``: a set holds whole labellings, and the coverage is the fraction of sets that hold the true one.
    coverage : float, default=0.9
        The probability to guarantee. If the model alone is right more often than this, some sets are empty.
    max_size : int or None, default=1000
        Maximum number of labellings in a set, the most probable ones; None for no limit. The threshold accounts for it,
        so the guarantee holds; :meth:`fit` raises an error if it cannot hold. Not used for spans.

    Attributes
    ----------
    threshold_ : float
        Lowest probability of a candidate in a set.

    Examples
    --------
    >>> from crfkit import CRF
    >>> from crfkit.data import load_corpus
    >>> X, y = load_corpus("ingredients", "train")
    >>> crf = CRF(max_iter=20).fit(X[:250], y[:250])
    >>> sets = PredictionSets(crf, "labellings", coverage=0.8).fit(X[250:], y[250:])
    >>> sets.predict([["2", "eggs"]])[0][0].labels
    ['B-QTY', 'B-NAME']
    """

    def __init__(
        self,
        crf: ChainEstimator,
        unit: Literal["spans", "labellings"] = "spans",
        coverage: float = 0.9,
        max_size: int | None = 1000,
    ) -> None:
        _require("unit", unit, ("spans", "labellings"))
        check_number(self, "max_size", max_size, 1, integer=True, optional=True)
        if not 0 < coverage < 1:
            raise ValueError(f"'coverage' of PredictionSets must lie between 0 and 1, got {coverage!r}")
        _require_chain(crf, "PredictionSets")
        self.crf, self.unit, self.coverage, self.max_size = crf, unit, coverage, max_size

    def _shown(self) -> dict[str, str]:
        names = ("crf", "unit", "coverage", "max_size", "threshold_")
        return {k: shown(getattr(self, k)) for k in names if hasattr(self, k)}

    def __repr__(self) -> str:
        return f"PredictionSets({', '.join(f'{k}={v}' for k, v in self._shown().items())})"

    def _repr_html_(self) -> str:
        return html_table("PredictionSets", self._shown().items())

    def _require_fitted(self) -> None:
        if not hasattr(self, "threshold_"):
            raise not_fitted(self)

    def true_probabilities(self, X: Any, y: Any) -> list[Vector]:
        """Probability of each sequence's true labelling [1], or of each of its true entities [n]."""
        crf, labels = self.crf, self.crf.model_.labels
        rows = _known_rows(X, y)
        out: list[Vector] = []
        for p in crf.model_.potentials(X, crf.n_jobs, np.float64):
            part = rows[len(out) : len(out) + len(p)]
            gold = _gold_scores(p, labels, part, len(out))
            if self.unit == "labellings":
                out += list(np.exp(np.minimum(gold - log_partition(p, crf.n_jobs), 0.0))[:, None])
            else:
                out += _true_spans(p, ChunkLabels(labels), part, crf.n_jobs)
        return out

    def fit(self, X: Any, y: Any) -> Self:
        """Chooses the threshold on calibration data, whose labels must all be known.

        Returns
        -------
        self
        """
        truth = self.true_probabilities(X, y)
        threshold = conformal_threshold(truth, self.coverage)
        if self.unit == "labellings" and self.max_size is not None and threshold * self.max_size < 1:
            listed = self._listed(X, y)
            truth = [p * inside for p, inside in zip(truth, listed, strict=True)]
            n, most = len(listed), sum(listed) / (len(listed) + 1)
            if self.coverage > most + 1e-9:
                raise ValueError(
                    f"no sets of at most {counted(self.max_size, 'labelling')} cover {self.coverage:g}: they hold "
                    f"{sum(listed)} of {n} true ones; ask for a coverage of at most {np.floor(1000 * most) / 1000:g}, "
                    "or raise 'max_size' of PredictionSets"
                )
            threshold = conformal_threshold(truth, self.coverage)
        self.threshold_ = threshold * (1 - 1e-9)  # what has just this probability is in, however it is added up
        return self

    def _listed(self, X: Any, y: Any) -> list[bool]:
        """Whether each sequence's true labelling is among the ``max_size`` best.

        One that is not counts as of probability 0 in :meth:`fit`: no set holds it, and the threshold allows for that.
        """
        assert self.max_size is not None
        crf, size, rows = self.crf, self.max_size, list(y)
        number = {label: k for k, label in enumerate(crf.model_.labels)}
        out: list[bool] = []
        for p in crf.model_.potentials(X, crf.n_jobs, np.float64):
            part = [[number.get(label, -1) for label in row] for row in rows[len(out) : len(out) + len(p)]]
            gold = _gold_scores(p, crf.model_.labels, rows[len(out) : len(out) + len(p)], len(out))
            chances = np.exp(np.minimum(gold - log_partition(p, crf.n_jobs), 0.0))
            inside = chances * size >= 1  # one of probability c is among the best 1 / c
            for i, best in _best(p, np.flatnonzero((chances > 0) & ~inside), size, crf.n_jobs):
                inside[i] = bool((best.paths == part[i]).all(axis=1).any())
            out += inside.tolist()
        return out

    def predict(self, X: Any) -> list[list[Any]]:
        """The set of every sequence.

        Returns
        -------
        list of lists of Entity, or of Tagging
            Entities in the order of the tokens; labellings, the best first.
        """
        self._require_fitted()
        if self.unit == "spans":
            return [list(row) for row in self.crf.predict_entities(X, threshold=self.threshold_)]
        labels = self.crf.model_.labels
        return [
            [Tagging([labels[j] for j in path], chance) for path, chance in zip(best.tolist(), p.tolist(), strict=True)]
            for best, p in self._labellings(X)
        ]

    def probabilities(self, X: Any) -> list[Vector]:
        """Probabilities of what :meth:`predict` returns."""
        self._require_fitted()
        if self.unit == "labellings":
            return [p for _, p in self._labellings(X)]
        return [
            np.array([e.probability for e in row]) for row in self.crf.predict_entities(X, threshold=self.threshold_)
        ]

    def _labellings(self, X: Any) -> Iterator[tuple[NDArray[np.int32], Vector]]:
        """Paths [n, T] of each sequence's set, and their probabilities [n]."""
        crf = self.crf
        for p in crf.model_.potentials(X, crf.n_jobs, np.float64):
            log_z = log_partition(p, crf.n_jobs)
            out: dict[int, tuple[NDArray[np.int32], Vector]] = {}
            todo, most = np.arange(len(p)), self.max_size
            k = 16
            while len(todo):  # for most sequences a few labellings are enough
                k = k if most is None else min(k, most)
                more = []
                for i, best in _best(p, todo, k, crf.n_jobs):
                    chances = np.exp(np.minimum(best.scores - log_z[i], 0.0))
                    n = int((chances >= self.threshold_).sum())
                    out[i] = best.paths[:n].copy(), chances[:n]
                    more += [i] if n == k != most else []
                todo, k = np.array(more, np.int64), 8 * k
            yield from (out[i] for i in range(len(p)))

    def measure(self, X: Any, y: Any) -> Coverage:
        """Coverage of the true labels of other data, mean size of the sets, and the fraction of empty sets."""
        self._require_fitted()
        truth = np.concatenate([np.zeros(0), *self.true_probabilities(X, y)])
        if not len(truth):
            raise ValueError("'X' and 'y' of measure contain nothing to look for in the sets")
        sizes = np.array([len(p) for p in self.probabilities(X)])
        inside = truth >= self.threshold_
        if self.unit == "labellings" and (sizes == self.max_size).any():
            inside &= self._listed(X, y)
        return Coverage(float(inside.mean()), float(sizes.mean()), float((sizes == 0).mean()))


def _best(p: Potentials, which: NDArray[np.int64], k: int, n_jobs: int | None) -> Iterator[tuple[int, NBest]]:
    """The numbers of some sequences and their k best labellings, a bounded number of labels at a time."""
    for some in np.array_split(which, 1 + k * int(p.lengths[which].sum()) // _PATHS):
        if len(some):
            q = p if len(some) == len(p) else Potentials.batch([p[i] for i in some.tolist()])
            yield from zip(some.tolist(), nbest(q, k, n_jobs=n_jobs), strict=True)


def conformal_threshold(probabilities: Sequence[Vector], coverage: float) -> float:
    """The k-th smallest probability, k = floor((n + 1) (1 - coverage))."""
    ordered = np.sort(np.concatenate([np.zeros(0), *probabilities]))
    k = int(np.floor((len(ordered) + 1) * (1 - coverage) + 1e-9))
    if k < 1:
        least = int(np.ceil(coverage / (1 - coverage) - 1e-9))
        raise ValueError(f"coverage {coverage:g} needs at least {least} true examples, got {len(ordered)}")
    threshold = float(ordered[k - 1])
    if threshold <= 0:
        raise ValueError(
            f"no set covers {coverage:g}: {k} of {len(ordered)} true answers are impossible under the model"
        )
    return threshold


def _known_rows(X: Any, y: Any) -> list[Any]:
    require_known(y, "y")
    if len(X) != len(y):
        raise ValueError(f"'X' holds {counted(len(X), 'sequence')}, but 'y' holds labels for {len(y)}")
    return list(y)


def _require_length(i: int, tokens: int, labels: int) -> None:
    if tokens != labels:
        raise ValueError(f"sequence {i} has {counted(tokens, 'token')}, but {counted(labels, 'label')}")


def _gold_scores(p: Potentials, labels: Sequence[Any], rows: list[Any], first: int) -> Vector:
    """Scores of the given labellings [S]; minus infinity where a label is not one of the model's."""
    number = {label: k for k, label in enumerate(labels)}
    paths = [np.array([number.get(label, -1) for label in row], np.int64) for row in rows]
    for i, (path, length) in enumerate(zip(paths, p.lengths.tolist(), strict=True)):
        _require_length(first + i, length, len(path))
    unknown = np.array([bool((path < 0).any()) for path in paths], bool)
    found: Vector = score(p, [np.maximum(path, 0) for path in paths])
    return np.where(unknown, -np.inf, found)


def _true_spans(p: Potentials, table: ChunkLabels, rows: list[Any], n_jobs: int | None) -> list[Vector]:
    """Probabilities of the spans of each row of labels; 0 for a type that the model does not know."""
    number = {kind: k for k, kind in enumerate(table.kinds)}
    found = [(s, number.get(kind, -1), a, b) for s, row in enumerate(rows) for kind, a, b in spans(row)]
    columns = np.array(found, np.int64).reshape(-1, 4)
    known = columns[:, 1] >= 0
    out = np.zeros(len(columns))
    out[known] = chunk_probabilities(p, table, Chunks(*columns[known].T), n_jobs)
    return np.split(out, np.searchsorted(columns[:, 0], np.arange(1, len(rows)))) if rows else []


def _require(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name!r} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _require_chain(crf: Any, owner: str) -> None:
    if not isinstance(crf, ChainEstimator):
        raise TypeError(f"{owner} takes a CRF, HMM or MEMM, got {type(crf).__name__}")
    crf._require_fitted()
