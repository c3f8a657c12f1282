"""L-BFGS, and OWL-QN for the absolute-value penalty."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.training.objective import as_objective
from crfkit.training.optimiser import Algorithm, Callback, Progress, Reason, Result

__all__ = ["LBFGS", "minimize_lbfgs"]

Vector = NDArray[np.float64]


@dataclass
class _Point:
    """A point of the search: the objective is ``value``, its smooth part has the gradient."""

    x: Vector
    value: float
    gradient: Vector
    terms: Mapping[str, float] = field(default_factory=dict)


class _Search:
    """One run of the optimiser; see :func:`minimize_lbfgs`."""

    def __init__(self, objective: Any, w0: Vector, c1: float, period: int, max_linesearch: int) -> None:
        self.objective = as_objective(objective)
        self.c1 = c1
        self.max_linesearch = max_linesearch
        self.noise = float(self.objective.noise)
        self.began = time.perf_counter()
        self.history: deque[float] = deque(maxlen=period + 1)
        self.iteration = self.evaluations = 0
        size = self.objective.size
        self.point = _Point(np.array(w0, dtype=np.float64), np.inf, np.zeros(size))
        self.spare = _Point(np.empty(size), np.inf, np.empty(size))

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
        return Progress(self.iteration, self.point.value, norm, *counts, terms=self.point.terms)

    def changed(self, old: Vector, new: Vector, fell: float, converged: bool) -> bool:
        """Whether the objective changed itself between two steps; then the search goes on where it says."""
        resume = self.objective.review(old, new, fell, converged)
        if resume is None:
            return False
        before = self.point.value if resume is new else self.point.value + fell
        self.point = self.evaluate(np.array(resume), self.point.gradient)
        # as if it had been this objective all along
        past = [value + self.point.value - before for value in self.history]
        self.history.clear()
        self.history.extend(past[:-1] if len(past) == self.history.maxlen else past)
        return True

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


def minimize_lbfgs(
    objective: Any,
    w0: Vector,
    *,
    c1: float = 0.0,
    max_iter: int | None = None,
    tol: float = 1e-5,
    period: int = 10,
    memory: int = 8,
    max_linesearch: int = 20,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> Result:
    r"""Minimises :math:`f(w) + c_1 \lVert w \rVert_1` by L-BFGS, with ``c1`` by OWL-QN.

    Parameters
    ----------
    objective : Objective, or any object with ``size`` and ``value_and_grad``
        The smooth part f.
    w0 : float64 array [size]
        Where to begin.
    c1 : float
        Coefficient of the absolute values.
    max_iter : int, optional
        Most iterations.
    tol : float
        Stops when the relative improvement over the last ``period`` iterations falls below this, or when the gradient's
        norm is below this fraction of the weights' norm.
    period : int
    memory : int
        Steps remembered.
    max_linesearch : int
        Evaluations allowed in one line search.
    n_jobs : int, optional
    callback : callable, optional
        Called as ``callback(progress, w)``; returning True stops.

    Returns
    -------
    Result
        The best point seen, also when interrupted from the keyboard.

    Examples
    --------
    >>> class Bowl:
    ...     size = 2
    ...     def value_and_grad(self, w, out=None):
    ...         return float(((w - [1, 2]) ** 2).sum()), 2 * (w - [1, 2])
    >>> minimize_lbfgs(Bowl(), np.zeros(2)).w.round(3)
    array([1., 2.])
    """
    threads = resolve_threads(n_jobs)
    search = _Search(objective, w0, c1, period, max_linesearch)
    history = search.history
    known = _core.Memory(len(search.point.gradient), memory)
    d = np.empty_like(search.point.gradient)
    try:
        search.point = search.evaluate(search.point.x, search.point.gradient)
        if not np.isfinite(search.point.value):
            raise ValueError(f"the objective is {search.point.value} at the starting point")
        while max_iter is None or search.iteration < max_iter:
            point = search.point
            history.append(point.value)
            v = search.steepest(point)
            norm = np.sqrt(_core.dot(v, v))
            if norm <= tol * max(1.0, np.sqrt(_core.dot(point.x, point.x))):
                if search.changed(point.x, point.x, 0.0, True):
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
                if search.changed(point.x, point.x, 0.0, True):
                    continue
                return search.done("precision", "no further descent is possible in this precision")
            known.push(new.x, point.x, new.gradient, point.gradient, threads)
            search.spare, search.point = point, new
            search.iteration += 1
            if callback is not None and callback(search.progress(step), new.x.copy()):
                return search.done("callback", "the callback asked to stop")
            converged = len(history) > period and history[0] - new.value <= tol * abs(new.value)
            if search.changed(point.x, new.x, point.value - new.value, converged):
                if search.objective.done:
                    return search.done("beams", "the exact objective falls no more with fresh beams")
                continue
            if converged:
                return search.done("tolerance", f"the objective fell by less than {tol:g} over {period} iterations")
        return search.done("max_iter", f"stopped after {max_iter} iterations")
    except KeyboardInterrupt:
        return search.done("interrupted", "interrupted; the best weights so far are kept")


@dataclass(frozen=True)
class LBFGS(Algorithm):
    """L-BFGS, with a ``c1`` OWL-QN; see :func:`~crfkit.training.minimize_lbfgs`.

    Parameters
    ----------
    memory : int, default=8
        Steps remembered.
    period : int, default=10
        Iterations over which the objective must fall by ``tol``.
    """

    memory: int = 8
    period: int = 10

    supports: ClassVar = Algorithm.supports | {"c1", "beam", "gradient", "warm_start_fraction"}

    def minimize(
        self,
        objective: Any,
        w0: Vector,
        *,
        c1: float = 0.0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Result:
        """Minimises an objective."""
        settings: dict[str, Any] = {"memory": self.memory, "period": self.period, "n_jobs": n_jobs}
        return minimize_lbfgs(objective, w0, c1=c1, max_iter=max_iter, tol=tol, callback=callback, **settings)
