"""Learning curves: held-out accuracy and exact objective against processor seconds of training and label pairs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from crfkit import CRF
from crfkit.training import LikelihoodObjective, SequenceObjective


class Point(NamedTuple):
    """Where training stands after an iteration; scoring is not counted."""

    seconds: float  # of the processor
    value: float
    accuracy: float
    pairs: float  # label pairs visited so far


class Work:
    """Counts label pairs: of a pass the beam's or all labels' squared, of choosing beams the beam times all labels.

    Passes of SGD choose beams all the time.
    """

    def __init__(self) -> None:
        self.pairs = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what objectives do meanwhile."""
        passed = SequenceObjective.end_pass
        evaluate, choose, drop = (
            getattr(LikelihoodObjective, name) for name in ("value_and_grad", "choose_beams", "drop_beams")
        )
        beams: dict[int, float] = {}

        def value_and_grad(objective: Any, *arguments: Any) -> Any:
            self.pairs += objective.n_tokens * beams.get(id(objective), objective.layout.n_labels) ** 2
            return evaluate(objective, *arguments)

        def choose_beams(objective: Any, *arguments: Any, **options: Any) -> Any:
            sizes = choose(objective, *arguments, **options)
            beams[id(objective)] = sizes[0]
            self.pairs += objective.n_tokens * sizes[0] * objective.layout.n_labels
            return sizes

        def drop_beams(objective: Any) -> None:
            beams.pop(id(objective), None)
            drop(objective)

        def end_pass(objective: Any, fell: float) -> None:
            labels, (_, inside, _) = objective.layout.n_labels, objective.native.tally
            self.pairs += labels * (inside or objective.n_tokens * labels)
            passed(objective, fell)

        with (
            mock.patch.multiple(
                LikelihoodObjective, value_and_grad=value_and_grad, choose_beams=choose_beams, drop_beams=drop_beams
            ),
            mock.patch.object(SequenceObjective, "end_pass", end_pass),
        ):
            yield


class Watched(CRF):
    """A CRF that scores held-out data after every iteration with the clock stopped."""

    def learn(self, X: Any, y: Any, X_test: Any, y_test: Any, exactly: bool = False) -> list[Point]:
        """Fits, and gives the curve; ``exactly`` with the objective of all labels, else with that of the beams."""
        self._test = (X_test, y_test)
        self._points: list[Point] = []
        self._judge = self.objective(X, y) if exactly else None
        self._paused = 0.0
        self._work = Work()
        self._began = time.process_time()
        with self._work.counting():
            self.fit(X, y)
        return self._points

    def _callback(self, model: Any) -> Any:
        def watch(progress: Any, w: Any) -> None:
            now = time.process_time()
            probe = CRF(n_jobs=self.n_jobs)
            probe.model_ = model(w)
            accuracy = 100 * probe.score(*self._test)
            pairs = self._work.pairs
            value = progress.value
            if self._judge is not None and len(w) == self._judge.size:
                value = self._judge.value_and_grad(w)[0]
            self._work.pairs = pairs
            self._points.append(Point(now - self._began - self._paused, value, accuracy, pairs))
            self._paused += time.process_time() - now

        return watch


def reached(points: list[Point], goal: float) -> float | None:
    """Seconds until the accuracy is at least the goal."""
    return next((p.seconds for p in points if p.accuracy >= goal), None)
