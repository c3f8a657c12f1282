"""Entropy and accuracy by the number of answers, and what more answers are expected to gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_POINTS = 400  # of a curve

Json = dict[str, Any]
Points = list[list[float]]


class Curves:
    """Entropy and accuracy by the number of answers.

    Attributes
    ----------
    entropy : list of [answers, nats]
    accuracy : list of [answers, value, low, high]
        F1, or token accuracy where labels are those of tokens, with its interval.

    Examples
    --------
    >>> curves = Curves()
    >>> for answers in range(1, 9):
    ...     curves.add("entropy", answers, 1000 / answers)
    >>> curves.expected_gain()["entropy"] < 0
    True
    """

    def __init__(self) -> None:
        self.entropy: Points = []
        self.accuracy: Points = []
        self._gain: tuple[Json | None] | None = None

    def add(self, name: str, answers: int, *values: float) -> None:
        """A point of a curve, in place of those after as many answers or more, which have been undone."""
        kept = [point for point in getattr(self, name) if point[0] < answers]
        setattr(self, name, _thinned([*kept, [answers, *values]]))
        self._gain = None

    def restore(self, stood: Sequence[Json]) -> None:
        """The curves again, out of what :meth:`stood` gave with each answer."""
        for name in ("entropy", "accuracy"):
            curve: Points = []
            for point in (row.get(name) for row in stood):
                if point and (not curve or curve[-1][0] < point[0]):
                    curve.append(point)
            setattr(self, name, _thinned(curve))
        self._gain = None

    def stood(self, stated_at: int) -> Json:
        """The last points; that of the accuracy only if it was stated after ``stated_at`` answers."""
        stated = self.accuracy[-1] if self.accuracy and self.accuracy[-1][0] == stated_at else None
        return {"entropy": self.entropy[-1] if self.entropy else None, "accuracy": stated}

    def expected_gain(self) -> Json | None:
        """What the next hundred answers are expected to gain, if things go on as they went.

        Entropy, and errors of F1, fall about as a power of the number of answers; it is fitted to the curves.
        """
        if self._gain is None:
            entropy, f1 = _power_law(self.entropy), _power_law([[n, 1 - v] for n, v, *_ in self.accuracy])
            gain: Json | None = None
            if entropy is not None:
                f1_gain = None if f1 is None else round(-f1(100.0), 4)
                gain = {"answers": 100, "entropy": round(entropy(100.0), 1), "f1": f1_gain}
            self._gain = (gain,)
        return self._gain[0]


def _thinned(points: Points) -> Points:
    """At most ``_POINTS`` points: every second one of the older half is dropped."""
    while len(points) > _POINTS:
        half = len(points) // 2
        points = points[:half:2] + points[half:]
    return points


def _power_law(points: Sequence[Sequence[float]]) -> Callable[[float], float] | None:
    """How much a falling curve falls over the next answers; None if there are too few points."""
    table = np.array([p[:2] for p in points if p[0] > 0 and p[1] > 0][-200:], np.float64)
    if len(table) < 5 or table[-1, 0] <= table[0, 0]:
        return None
    slope, level = np.polyfit(np.log(table[:, 0]), np.log(table[:, 1]), 1)
    last = float(table[-1, 0])
    now = float(np.exp(level) * last**slope)
    return lambda more: float(min(np.exp(level) * (last + more) ** slope - now, 0.0))
