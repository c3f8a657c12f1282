"""Learning curves: held-out accuracy and exact objective against seconds of training."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from crfkit import CRF


class Point(NamedTuple):
    """Where training stands after an iteration; scoring is not counted."""

    seconds: float
    value: float
    accuracy: float


class Watched(CRF):
    """A CRF that scores held-out data after every iteration with the clock stopped."""

    def learn(self, X: Any, y: Any, X_test: Any, y_test: Any) -> list[Point]:
        """Fits, and gives the curve."""
        self._test = (X_test, y_test)
        self._points: list[Point] = []
        self._paused = 0.0
        self._began = time.perf_counter()
        self.fit(X, y)
        return self._points

    def _watch(self, model: Any, dev: Any, best: Any = None) -> Any:
        def watch(progress: Any, w: Any) -> None:
            now = time.perf_counter()
            probe = CRF(n_jobs=self.n_jobs)
            probe._adopt(model(w))
            accuracy = 100 * probe.score(*self._test)
            self._points.append(Point(now - self._began - self._paused, progress.value, accuracy))
            self._paused += time.perf_counter() - now

        return watch


def reached(points: list[Point], goal: float) -> float | None:
    """Seconds until the accuracy is at least the goal."""
    return next((p.seconds for p in points if p.accuracy >= goal), None)
