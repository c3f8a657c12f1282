"""Why a segment has its label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from crfkit.model.explaining import Contribution, Decision, Explanation
from crfkit.segment.inference import decode, log_partition, marginals
from crfkit.segment.model import SegmentModel
from crfkit.segment.objective import joined
from crfkit.segment.potentials import Potentials
from crfkit.segment.scores import length_scores


def explain(model: SegmentModel, x: Any) -> Explanation:
    r"""Why each segment of the best segmentation of a sequence has its label rather than the runner-up.

    Contributions to a segment sum to the logarithm of how many times more probable the segmentation is than the same
    one with the runner-up there: the most probable other label of the segment, or its tokens outside any segment.

    Parameters
    ----------
    model : SegmentModel
    x : sequence of tokens

    Returns
    -------
    Explanation
        A decision for each segment; ``position`` is its first token, and ``token`` the words.
    """
    tokens = model.encoder.read_one(x, "'x' of explain")
    piece = model.encoder.read([tokens])
    p = model.score(piece, 1, np.float64)
    rows = decode(p)[0]
    every = [(a, b, j) for a, b, _ in rows.tolist() for j in range(p.n_labels)]
    chances = marginals(p).probability(np.array(every, np.int64)).reshape(len(rows), p.n_labels)
    sources, log_z = _Sources(model, piece, p), float(log_partition(p)[0])
    decisions = []
    for i, (a, b, j) in enumerate(rows.tolist()):
        words = [t[0] if isinstance(t, tuple) else t for t in tokens[a:b]]
        text = " ".join(words) if all(isinstance(w, str) for w in words) else tokens[a]
        others = np.where(np.isneginf(p.lengths[min(b - a, p.max_length) - 1]), -1.0, chances[i])
        others[j] = -1.0
        k, outside = int(np.argmax(others)), model.shape.single
        apart = False
        if outside >= 0 and j != outside and b - a > 1:  # as long, the outside is one segment for each token
            chance = _chance_of_run(p, a, b, outside, log_z)
            apart = chance > max(others[k], 0.0)
            k = outside if apart else k
            others[k] = chance if apart else others[k]
        if others[k] < 0:
            decisions.append(Decision(a, text, model.labels[j], None, float(chances[i, j]), 0.0, np.inf, ()))
            continue
        around = rows[i - 1, 2] if i else None, rows[i + 1, 2] if i + 1 < len(rows) else None
        found = sorted(sources.contributions(a, b, j, k, around, apart), key=lambda c: -abs(c.amount))
        total = float(sum(c.amount for c in found))
        odds = float(chances[i, j]), float(others[k]), total
        kept = tuple(c for c in found if c.amount)
        decisions.append(Decision(a, text, model.labels[j], model.labels[k], *odds, kept))
    return Explanation(tuple(decisions))


def _chance_of_run(p: Potentials, a: int, b: int, label: int, log_z: float) -> float:
    """Probability that all segments from token a to token b have this label."""
    allowed = np.ones(p.unary.shape, bool)
    allowed[a:b] = np.arange(p.n_labels) == label
    try:
        return float(np.exp(log_partition(replace(p, allowed=allowed))[0] - log_z))
    except ValueError:  # no segmentation is allowed
        return 0.0


class _Sources:
    """The weights of a model, by what has them in one sequence."""

    def __init__(self, model: SegmentModel, piece: Any, p: Potentials) -> None:
        self.model, self.names, self.potentials = model, model.attribute_names(), p
        data = model.encoder.encode(piece, False, 1)
        self.items, self.n_tokens = model.listed(piece, 1), data.n_tokens
        self.rows = joined(data, self.items)

    def _weights(self, attribute: int) -> Any:
        c = self.model.columns
        row = np.zeros(self.model.shape.columns)
        a, b = int(c.state_ptr[attribute]), int(c.state_ptr[attribute + 1])
        row[c.state_label[a:b]] = self.model.weights[a:b]
        return row

    def _attributes(self, row: int) -> Iterator[tuple[str, float, Any]]:
        known = len(self.model.columns.state_ptr) - 1
        for k in range(int(self.rows.ptr[row]), int(self.rows.ptr[row + 1])):
            attribute = int(self.rows.attr[k])
            if attribute < known:
                value = 1.0 if self.rows.value is None else float(self.rows.value[k])
                yield self.names[attribute], value, self._weights(attribute)

    def contributions(self, a: int, b: int, j: int, k: int, around: Any, apart: bool) -> Iterator[Contribution]:
        """What adds to label j of a segment rather than k, between labels of the segments before and after.

        ``apart``: rather than a segment with label k for each of its tokens.
        """
        m, n, labels = self.model, self.model.shape.n_labels, self.model.labels
        t = m.tables

        def one(kind: str, name: str, mine: float, other: float, value: float = 1.0) -> Contribution:
            return Contribution(kind, name, value, float(mine), float(other), float(value * (mine - other)))

        # row, column, name, and whether the label's segment and the other's have it
        places = [(row, 0, "", True, True) for row in range(a, b)]
        if m.shape.first:
            places += [(row, n, "first: ", row == a, apart or row == a) for row in range(a, b)]
        if m.shape.last:
            places += [(row, m.shape.columns - n, "last: ", row == b - 1, apart or row == b - 1) for row in range(a, b)]
        if self.items is not None:
            end, length = self.items.end, self.items.length
            whole = (end == b) & (length == b - a)
            single = apart & (end > a) & (end <= b) & (length == 1)
            for i in np.flatnonzero(whole | single).tolist():
                places.append((self.n_tokens + i, 0, "", bool(whole[i]), bool(single[i] if apart else whole[i])))
        for row, column, where, here, there in places:
            if here or there:
                for name, value, w in self._attributes(row):
                    yield one("attribute", f"{where}{name}", here * w[column + j], there * w[column + k], value)
        sizes = np.array([b - a, 1 if apart else b - a])
        mine, other = length_scores(self.potentials, sizes, np.array([j, k]))
        yield one("length", f"{b - a}", mine, other * (b - a if apart else 1))
        pairs = t["pairs"].reshape(n, n)
        before, after = around
        if before is None:
            yield one("start", str(labels[j]), t["start"][j], t["start"][k])
        else:
            yield one("transition", f"{labels[before]} -> {labels[j]}", pairs[before, j], pairs[before, k])
        if apart:
            yield one("transition", f"{labels[k]} -> {labels[k]}", 0.0, pairs[k, k], b - a - 1)
        if after is None:
            yield one("end", str(labels[j]), t["end"][j], t["end"][k])
        else:
            yield one("transition", f"{labels[j]} -> {labels[after]}", pairs[j, after], pairs[k, after])
