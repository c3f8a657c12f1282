"""The probabilities of a hidden Markov model, their places among the weights of a chain, and counts of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import inner_tokens, pieces
from crfkit.base.shown import Record
from crfkit.data.dataset import Dataset, Layout, WeightRules
from crfkit.features.encoders import Encoder, PlanEncoder
from crfkit.features.template import Template

Floats = NDArray[np.float64]
_FLOOR = -700.0  # logarithm of what stands for zero


def log(p: Floats) -> Floats:
    """Logarithms of probabilities; that of zero is a very low finite number.

    Weights must be finite, as they are added up and taken apart; :func:`is_zero` tells which scores are infinite.
    """
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(p), _FLOOR)


def is_zero(p: Floats) -> Floats:
    """One where a probability is zero: sums of these count what makes a labelling impossible."""
    return np.where(p == 0, 1.0, 0.0)


def exp(w: Floats) -> Floats:
    """The inverse of :func:`log`."""
    return np.where(w < _FLOOR + 1e-6, 0.0, np.exp(w))


def rows(counts: Floats, smoothing: float, possible: NDArray[np.bool_] | None = None) -> Floats:
    """Rows of counts made into probabilities; a row without any count is uniform over what is possible."""
    allowed = np.ones(counts.shape, bool) if possible is None else possible
    x = np.where(allowed, counts + smoothing, 0)
    total = x.sum(axis=1, keepdims=True)
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, x / np.where(total > 0, total, 1), uniform))


def checked(value: Any, name: str, dimensions: int, rest: bool = False) -> Floats:
    """Distributions that a user gives: rows that sum to one or, with a rest, to at most one."""
    p = np.array(value, np.float64)
    if p.ndim != dimensions or p.size == 0:
        raise ValueError(f"{name!r} of HMM must have {dimensions} dimensions, got shape {p.shape}")
    if (p < 0).any():
        raise ValueError(f"{name!r} of HMM must hold probabilities, which are not negative, got {p.min():g}")
    sums = p.sum(axis=-1)
    if not (p >= 0).all() or (sums > 1 + 1e-8).any() or not (rest or np.allclose(sums, 1, atol=1e-8)):
        rule = "at most 1" if rest else "1"
        raise ValueError(f"{name!r} of HMM must hold probabilities that sum to {rule}, got sums of {sums}")
    return p


@dataclass(repr=False)
class Monitor(Record):
    """The progress of Baum-Welch.

    Attributes
    ----------
    history : list of float
        Log-likelihood of the data at the beginning of every iteration.
    converged : bool
        Whether it ended because the objective no longer rose, and not at ``max_iter``.
    """

    history: list[float] = field(default_factory=list)
    converged: bool = False

    @property
    def iter(self) -> int:
        """Number of iterations."""
        return len(self.history)

    def _shown(self) -> dict[str, str]:
        last = {"log_likelihood": f"{self.history[-1]:.6g}"} if self.history else {}
        return {"iter": str(self.iter), "converged": str(self.converged)} | last


class Vocabulary:
    """The values of each column, and the attributes of an encoder that stand for them."""

    def __init__(self, encoder: Encoder) -> None:
        self.attributes: list[NDArray[np.int64]] = []
        self.values: list[list[str]] = []
        found: dict[str, list[tuple[int, str]]] = {}
        for k, name in enumerate(encoder.names()):
            template, _, value = name.partition(":")
            found.setdefault(template, []).append((k, value))
        wanted = ["U", *(f"U{c}" for c in range(len(found) - 1))]
        if found.keys() != set(wanted) or len(found["U"]) != 1:
            raise ValueError("the attributes of an HMM must be one constant, and the values of its columns")
        self.constant = found["U"][0][0]
        for key in wanted[1:]:
            column = found[key]
            self.attributes.append(np.array([k for k, _ in column], np.int64))
            self.values.append([value for _, value in column])

    def of(self, integers: bool) -> list[list[Any]]:
        """The values, as the ints that they were."""
        return [[int(x) for x in column] for column in self.values] if integers else list(self.values)


def column_encoder(n_columns: int) -> PlanEncoder:
    """An encoder whose attributes are a constant and the values of the columns."""
    lines = [f"U{c}:%x[0,{c}]" for c in range(n_columns)]
    return PlanEncoder(Template("\n".join(["U:", *lines, "B"])).plan())


def dense_layout(data: Dataset, n_labels: int, encoder: Encoder) -> Layout:
    """Weights for all attributes with all labels."""
    anything = np.zeros(data.n_tokens, np.int32)
    rule = WeightRules(all_possible_states=True)
    return Layout.build(data, anything, n_labels, encoder.n_attributes, rule)


@dataclass(frozen=True, eq=False)
class Tables:
    """The probabilities: of first labels [L], of labels after labels [L, L], and of the values of each column.

    The last of the [L, V + 1] emissions of a column is that of an unseen value.
    """

    start: Floats
    transitions: Floats
    emissions: list[Floats]

    @classmethod
    def of_weights(cls, w: Floats, layout: Layout, vocabulary: Vocabulary, unseen: Sequence[Sequence[float]]) -> Tables:
        """The probabilities that :meth:`weights` was made of; ``unseen`` has logarithms [C, L]."""
        n = layout.n_labels
        n_attributes = 1 + sum(map(len, vocabulary.attributes))
        if layout.start < 0 or (layout.transition < 0).any() or len(layout.state_label) != n_attributes * n:
            raise ValueError("an HMM must have weights for first labels, all label pairs and all values")
        if [len(low) for low in unseen] != [n] * len(vocabulary.attributes):
            raise ValueError(f"'info.unseen' must be {len(vocabulary.attributes)} lists of {n} numbers")
        table = w[: len(layout.state_label)].reshape(-1, n)
        emissions = [
            exp(np.vstack([table[attributes] + low, np.array(low)[None]])).T
            for attributes, low in zip(vocabulary.attributes, unseen, strict=True)
        ]
        return cls(exp(w[layout.start : layout.start + n]), exp(w[layout.transition].reshape(n, n)), emissions)

    @property
    def unseen(self) -> list[list[float]]:
        """Logarithms of the probability of an unseen value, [C, L]."""
        return [log(e[:, -1]).tolist() for e in self.emissions]

    def grown(self, vocabulary: Vocabulary) -> Tables:
        """With room for new values, which share the probability of an unseen one with it."""
        emissions = []
        for e, values in zip(self.emissions, vocabulary.values, strict=True):
            share = len(values) + 2 - e.shape[1]
            emissions.append(np.hstack([e[:, :-1], np.repeat(e[:, -1:] / share, share, axis=1)]))
        return Tables(self.start, self.transitions, emissions)

    def prior(self, smoothing: float, transition_smoothing: float) -> float:
        """The logarithm of the prior whose mode smoothed counts are, up to a constant.

        Zeros of first labels and transitions stay zero in training, and have no term. Smoothing does away with those
        of emissions, so they have one: without, the first objective would be another function than the rest.
        """
        total = 0.0
        if smoothing:
            total += smoothing * sum(float(log(x.ravel()).sum()) for x in self.emissions)
        if transition_smoothing:
            total += transition_smoothing * sum(float(log(x[x > 0]).sum()) for x in (self.start, self.transitions))
        return total

    def objective(
        self, counts: tuple[Floats, Floats, list[Floats]], smoothing: float, transition_smoothing: float
    ) -> float:
        """Log p(x, y) of what was counted, plus the logarithm of the prior."""
        start, transitions, emissions = counts
        pairs = [(start, self.start), (transitions, self.transitions)]
        pairs += [(c, e[:, :-1]) for c, e in zip(emissions, self.emissions, strict=True)]
        return sum(float((c * log(p)).sum()) for c, p in pairs) + self.prior(smoothing, transition_smoothing)

    @property
    def has_zeros(self) -> bool:
        """Whether anything is impossible."""
        return any(not x.all() for x in (self.start, self.transitions, *self.emissions))

    def weights(self, layout: Layout, vocabulary: Vocabulary, of: Callable[[Floats], Floats] = log) -> Floats:
        """Weights of a chain model: an unseen value costs what the constant attribute says, a seen one the rest.

        Scores are then sums of logarithms, or of what else is taken ``of`` probabilities.
        """
        n = layout.n_labels
        w = np.zeros(layout.size)
        table = w[: len(layout.state_label)].reshape(-1, n)  # all attributes with all labels
        for attributes, e in zip(vocabulary.attributes, self.emissions, strict=True):
            low = of(e[:, -1])
            table[attributes] = (of(e[:, :-1]) - low[:, None]).T
            table[vocabulary.constant] += low
        w[layout.transition] = of(self.transitions).ravel()
        w[layout.start : layout.start + n] = of(self.start)
        return w


class Counter:
    """Counts of what happens in the data."""

    def __init__(self, data: Dataset, vocabulary: Vocabulary) -> None:
        self.data, self.vocabulary = data, vocabulary
        width = len(vocabulary.values) + 1
        tokens = data.attr.reshape(-1, width)  # the attributes of a token come in the order of the templates
        inner = [c for c in range(width) if not (tokens[:, c] == vocabulary.constant).all()]
        self.columns = [
            np.searchsorted(attributes, tokens[:, c])
            for attributes, c in zip(vocabulary.attributes, inner, strict=True)
        ]
        later = inner_tokens(data.offsets)
        self.first, self.inner = np.flatnonzero(~later), np.flatnonzero(later)

    def known(self, y: NDArray[np.int32], n: int) -> tuple[Floats, Floats, list[Floats]]:
        """Counts where every label is known."""
        start = np.bincount(y[self.first], minlength=n).astype(np.float64)
        pairs = np.bincount(y[self.inner - 1].astype(np.int64) * n + y[self.inner], minlength=n * n)
        emissions = [
            np.bincount(y.astype(np.int64) * len(a) + ids, minlength=n * len(a)).reshape(n, -1).astype(np.float64)
            for a, ids in zip(self.vocabulary.attributes, self.columns, strict=True)
        ]
        return start, pairs.reshape(n, n).astype(np.float64), emissions

    def expected(
        self, posteriors: Iterator[tuple[Floats, Floats | None]], n: int
    ) -> tuple[Floats, Floats, list[Floats]]:
        """Counts by probabilities of labels and of pairs, piece by piece; independent labels without pairs."""
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
        emissions = [
            np.array([np.bincount(ids, nodes[:, label], len(a)) for label in range(n)], np.float64)
            for a, ids in zip(self.vocabulary.attributes, self.columns, strict=True)
        ]
        return nodes[self.first].sum(axis=0), pairs, emissions

    def pieces(self, per_token: int) -> Iterator[tuple[Dataset, tuple[int, int]]]:
        """Parts of the data of bounded size, and their tokens."""
        data = self.data
        for a, b in pieces(data.offsets, max(1, (1 << 22) // per_token)):
            yield data.take(np.arange(a, b)), (int(data.offsets[a]), int(data.offsets[b]))
