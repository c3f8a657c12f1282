"""L-BFGS, and OWL-QN for the absolute-value penalty."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import State
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.training.objective import Change, Objective
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Progress, Reason, Result, Settings

Vector = NDArray[np.float64]


@dataclass
class _Point:
    """A point of the search: the objective is ``value``, its smooth part has the gradient."""

    x: Vector
    value: float
    gradient: Vector
    terms: Mapping[str, float] = field(default_factory=dict)


class _Search:
    """One run of :class:`LBFGS`."""

    def __init__(self, objective: Objective, w0: Vector, c1: float, how: LBFGS) -> None:
        self.objective = objective
        self.c1 = c1
        self.max_linesearch = how.max_linesearch
        self.noise = float(objective.noise)
        self.began = time.perf_counter()
        self.history: deque[float] = deque(maxlen=how.period + 1)
        self.iteration = self.evaluations = 0
        size = objective.size
        self.known = _core.Memory(size, how.memory)
        self.point = _Point(w0, np.inf, np.zeros(size))
        self.spare = _Point(np.empty(size), np.inf, np.empty(size))

    def state(self) -> State:
        """For a checkpoint, between two iterations."""
        counts = {"iteration": self.iteration, "evaluations": self.evaluations, "history": list(self.history)}
        pairs = self.known.pairs().reshape(-1, 2, self.objective.size)
        return {**counts, "point": vars(self.point), "pairs": pairs, "objective": self.objective.state()}

    def restore(self, state: State, threads: int) -> None:
        """The search as it was."""
        self.iteration, self.evaluations = state["iteration"], state["evaluations"]
        self.history.extend(state["history"])
        self.objective.restore(state["objective"])
        self.point = _Point(**state["point"])
        zero = np.zeros(self.objective.size)
        for step, change in state["pairs"]:
            self.known.push(step.astype(np.float64), zero, change.astype(np.float64), zero, threads)

    def evaluate(self, x: Vector, gradient: Vector) -> _Point:
        value, gradient = self.objective.value_and_grad(x, gradient)
        self.evaluations += 1
        if self.c1:
            value += self.c1 * float(np.abs(x).sum())
        return _Point(x, value, gradient, self.objective.terms)

    def done(self, reason: Reason, message: str) -> Result:
        return Result(self.point.x, self.point.value, self.iteration, self.evaluations, reason, message)

    def progress(self, step: float) -> Progress:
        v, x = self.steepest(self.point), self.point.x
        norm, seconds = float(np.sqrt(_core.dot(v, v))), time.perf_counter() - self.began
        counts = int(np.count_nonzero(x)), step, self.evaluations, seconds
        return Progress(
            self.iteration, self.point.value, norm, *counts, terms=self.point.terms, beams=self.objective.report
        )

    def review(self, old: Vector, fell: float, converged: bool) -> Change | None:
        """How the objective changed itself between two steps; the search is then where it says."""
        change = self.objective.review(old, self.point.x, fell, converged)
        if change is None:
            return None
        before = self.point.value + (fell if change.way == "back" else 0.0)
        self.point = self.evaluate(np.array(change.at), self.point.gradient)
        # as if it had been this objective all along
        past = [value + self.point.value - before for value in self.history]
        self.history.clear()
        self.history.extend(past[:-1] if len(past) == self.history.maxlen else past)
        return change

    def steepest(self, point: _Point) -> Vector:
        """The gradient; with c1, the subgradient of least norm (the pseudo-gradient)."""
        if not self.c1:
            return point.gradient
        x, g = point.x, point.gradient
        at_zero = np.sign(g) * np.maximum(np.abs(g) - self.c1, 0)
        return np.where(x != 0, g + self.c1 * np.sign(x), at_zero)

    def move(self, point: _Point, v: Vector, d: Vector, step: float, out: Vector) -> None:
        """Out = x + step d; with c1, what would leave x's orthant stays at zero."""
        np.multiply(d, step, out=out)
        out += point.x
        if self.c1:
            orthant = np.where(point.x != 0, np.sign(point.x), -np.sign(v))
            out[out * orthant <= 0] = 0

    def line_search(self, v: Vector, d: Vector, slope: float, step: float) -> tuple[_Point | None, float]:
        """A point of sufficient decrease (and, for smooth objectives, curvature), or the best seen, or None."""
        point, spare = self.point, self.spare
        low, high = 0.0, np.inf
        slack = self.noise * abs(point.value)  # differences below this mean nothing
        best: _Point | None = None
        best_step = step
        for _ in range(self.max_linesearch):
            x, gradient = (spare.x, spare.gradient) if best is None else (np.empty_like(d), np.empty_like(d))
            self.move(point, v, d, step, x)
            new = self.evaluate(x, gradient)
            expected = _core.dot(v, x - point.x) if self.c1 else slope * step
            if np.isfinite(new.value) and new.value < (point.value if best is None else best.value):
                best, best_step = new, step
            if not new.value <= point.value + 1e-4 * expected + slack:
                high = step
            elif not self.c1 and _core.dot(new.gradient, d) < 0.9 * slope:
                low = step
            else:
                return new, step
            if np.isinf(high):
                step = 2 * step
                continue
            # the minimum of the parabola through value and slope at 0 and the value at the step
            bend = new.value - point.value - slope * step
            guess = -slope * step**2 / (2 * bend) if np.isfinite(bend) and bend > 0 else low
            step = float(np.clip(guess, low + 0.1 * (high - low), low + 0.6 * (high - low)))
        return best, best_step


@dataclass(frozen=True)
class LBFGS(Algorithm):
    r"""L-BFGS, with a ``c1`` OWL-QN.

    Minimises :math:`f(w) + c_1 \lVert w \rVert_1`. Stops when the relative improvement over the last ``period``
    iterations falls below ``tol``, or when the gradient's norm is below this fraction of the weights' norm.

    Parameters
    ----------
    memory : int, default=8
        Steps remembered.
    period : int, default=10
        Iterations over which the objective must fall by ``tol``.
    max_linesearch : int, default=20
        Evaluations allowed in one line search.

    Examples
    --------
    >>> class Bowl:
    ...     size = 2
    ...     def value_and_grad(self, w, out=None):
    ...         return float(((w - [1, 2]) ** 2).sum()), 2 * (w - [1, 2])
    >>> LBFGS().minimize(Bowl()).w.round(3)
    array([1., 2.])
    """

    memory: int = 8
    period: int = 10
    max_linesearch: int = 20

    supports: ClassVar = Algorithm.supports | {"c1", "beam", "gradient", "warm_start_fraction"}

    def run(self, objective: Objective, w: Vector, settings: Settings) -> Result:
        """Minimises by line searches."""
        c1, tol, max_iter, callback = settings.c1, settings.tol, settings.max_iter, settings.callback
        threads = resolve_threads(settings.n_jobs)
        search = _Search(objective, w, c1, self)
        history, known, keep = search.history, search.known, settings.checkpoint
        d = np.empty(objective.size)
        try:
            if saved := keep.part("search", search.state):
                search.restore(saved, threads)
            else:
                search.point = search.evaluate(search.point.x, search.point.gradient)
            if not np.isfinite(search.point.value):
                raise ValueError(f"the objective is {search.point.value} at the starting point")
            while max_iter is None or search.iteration < max_iter:
                point = search.point
                history.append(point.value)
                v = search.steepest(point)
                norm = np.sqrt(_core.dot(v, v))
                if norm <= tol * max(1.0, np.sqrt(_core.dot(point.x, point.x))):
                    if search.review(point.x, 0.0, True):
                        continue
                    return search.done("converged", "the gradient vanishes")
                known.direction(v, d, threads)
                if c1:
                    d[d * v >= 0] = 0
                slope = _core.dot(v, d)
                if not slope < 0:
                    known.clear()
                    np.negative(v, out=d)
                    slope = -(norm**2)
                new, step = search.line_search(v, d, slope, 1.0 if len(known) else 1.0 / norm)
                if new is None:
                    if len(known):
                        known.clear()
                        continue
                    if search.review(point.x, 0.0, True):
                        continue
                    return search.done("precision", "no further descent is possible in this precision")
                known.push(new.x, point.x, new.gradient, point.gradient, threads)
                search.spare, search.point = point, new
                search.iteration += 1
                if callback is not None and callback(search.progress(step), new.x.copy()):
                    return search.done("callback", "the callback asked to stop")
                converged = len(history) > self.period and history[0] - new.value <= tol * abs(new.value)
                change = search.review(point.x, point.value - new.value, converged)
                if change and change.way == "over":
                    return search.done("beams", "the exact objective falls no more with fresh beams")
                if converged and not change:
                    message = f"the objective fell by less than {tol:g} over {self.period} iterations"
                    return search.done("tolerance", message)
                keep.tick()
            return search.done("max_iter", f"stopped after {counted(max_iter or 0, 'iteration')}")
        except KeyboardInterrupt:
            return search.done("interrupted", INTERRUPTED)
