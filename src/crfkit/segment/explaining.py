"""Why a segment has its label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crfkit.model.explaining import Contribution, Decision, Explanation
from crfkit.segment.inference import decode, marginals
from crfkit.segment.model import SegmentModel
from crfkit.segment.objective import joined


def explain(model: SegmentModel, x: Any) -> Explanation:
    r"""Why each segment of the best segmentation of a sequence has its label rather than the runner-up.

    Contributions to a segment sum to the logarithm of how many times more probable the segmentation is than the same
    one with the runner-up there: the most probable other label of the segment.

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
    sources = _Sources(model, piece)
    decisions = []
    for i, (a, b, j) in enumerate(rows.tolist()):
        words = [t[0] if isinstance(t, tuple) else t for t in tokens[a:b]]
        text = " ".join(words) if all(isinstance(w, str) for w in words) else tokens[a]
        others = np.where(np.isneginf(p.lengths[min(b - a, p.max_length) - 1]), -1.0, chances[i])
        others[j] = -1.0
        k = int(np.argmax(others))
        if others[k] < 0:
            decisions.append(Decision(a, text, model.labels[j], None, float(chances[i, j]), 0.0, np.inf, ()))
            continue
        around = rows[i - 1, 2] if i else None, rows[i + 1, 2] if i + 1 < len(rows) else None
        found = sorted(sources.contributions(a, b, j, k, around), key=lambda c: -abs(c.amount))
        total = float(sum(c.amount for c in found))
        odds = float(chances[i, j]), float(chances[i, k]), total
        kept = tuple(c for c in found if c.amount)
        decisions.append(Decision(a, text, model.labels[j], model.labels[k], *odds, kept))
    return Explanation(tuple(decisions))


class _Sources:
    """The weights of a model, by what has them in one sequence."""

    def __init__(self, model: SegmentModel, piece: Any) -> None:
        self.model, self.names = model, model.attribute_names()
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

    def contributions(self, a: int, b: int, j: int, k: int, around: Any) -> Iterator[Contribution]:
        """What adds to label j of a segment rather than k, between labels of the segments before and after."""
        m, n, labels = self.model, self.model.shape.n_labels, self.model.labels
        t = m.tables

        def one(kind: str, name: str, mine: float, other: float, value: float = 1.0) -> Contribution:
            return Contribution(kind, name, value, float(mine), float(other), float(value * (mine - other)))

        places = [(row, 0, "") for row in range(a, b)]
        if m.shape.first:
            places.append((a, n, "first: "))
        if m.shape.last:
            places.append((b - 1, m.shape.columns - n, "last: "))
        if self.items is not None:
            listed = np.flatnonzero((self.items.end == b) & (self.items.length == b - a))
            places += [(self.n_tokens + int(i), 0, "") for i in listed]
        for row, column, where in places:
            for name, value, w in self._attributes(row):
                yield one("attribute", f"{where}{name}", w[column + j], w[column + k], value)
        lengths = t["lengths"].reshape(-1, n)
        size = min(b - a, m.shape.max_length)
        mine, other = lengths[size - 1, j], lengths[size - 1, k]
        if b - a > size:
            mine, other = mine + (b - a - size) * t["tail"][j], other + (b - a - size) * t["tail"][k]
        yield one("length", f"{b - a}", mine, other)
        pairs = t["pairs"].reshape(n, n)
        before, after = around
        if before is None:
            yield one("start", str(labels[j]), t["start"][j], t["start"][k])
        else:
            yield one("transition", f"{labels[before]} -> {labels[j]}", pairs[before, j], pairs[before, k])
        if after is None:
            yield one("end", str(labels[j]), t["end"][j], t["end"][k])
        else:
            yield one("transition", f"{labels[j]} -> {labels[after]}", pairs[j, after], pairs[k, after])
