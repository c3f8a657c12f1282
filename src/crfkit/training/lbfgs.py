"""L-BFGS, and OWL-QN for the absolute-value penalty."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.training.objective import Objective

__all__ = ["Callback", "Progress", "Result", "minimize_lbfgs"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Progress:
    """Where training stands after an iteration.

    Attributes
    ----------
    iteration : int
    value : float
        Objective with all penalties.
    gradient_norm : float
        Euclidean norm of the gradient (with ``c1``, of the pseudo-gradient).
    active : int
        Weights that are not zero.
    step : float
        Length of the step along the search direction.
    evaluations : int
        Objective evaluations so far.
    seconds : float
        Since training began.
    scores : mapping of str to float
        Held-out scores, if there is held-out data.
    terms : mapping of str to float
        Parts of the objective, if it has several: ``"likelihood"``, the negative log-likelihood of what is known, and
        ``"entropy"``, without its weight, which is 0 as long as the weight is.
    """

    iteration: int
    value: float
    gradient_norm: float
    active: int
    step: float
    evaluations: int
    seconds: float
    scores: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)

    def with_scores(self, scores: Mapping[str, float]) -> Progress:
        """The same with held-out scores."""
        return replace(self, scores=scores)


#: Called after every iteration with the progress and the weights; returning True stops training.
Callback = Callable[[Progress, Vector], bool | None]


@dataclass(frozen=True, eq=False)
class Result:
    """What an optimiser found.

    Attributes
    ----------
    w : float64 array
        The best point seen.
    value : float
        Objective there, with all penalties.
    iterations, evaluations : int
    converged : bool
    message : str
        Why it stopped.
    """

    w: Vector
    value: float
    iterations: int
    evaluations: int
    converged: bool
    message: str


@dataclass
class _Point:
    """A point of the search: the objective is ``value``, its smooth part has the gradient."""

    x: Vector
    value: float
    gradient: Vector
    terms: Mapping[str, float] = field(default_factory=dict)


class _Search:
    """One run of the optimiser; see :func:`minimize_lbfgs`."""

    def __init__(self, objective: Objective, c1: float, max_linesearch: int) -> None:
        self.objective = objective
        self.c1 = c1
        self.max_linesearch = max_linesearch
        self.noise = float(getattr(objective, "noise", 1e-13))
        self.evaluations = 0

    def evaluate(self, x: Vector, gradient: Vector) -> _Point:
        value, gradient = self.objective.value_and_grad(x, gradient)
        self.evaluations += 1
        if self.c1:
            value += self.c1 * float(np.abs(x).sum())
        return _Point(x, value, gradient, getattr(self.objective, "terms", {}))

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

    def line_search(
        self, point: _Point, v: Vector, d: Vector, slope: float, step: float, spare: _Point
    ) -> tuple[_Point | None, float]:
        """A point of sufficient decrease (and, for smooth objectives, curvature), or the best seen, or None."""
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
    objective: Objective,
    w0: Vector,
    *,
    c1: float = 0.0,
    tol: float = 1e-5,
    period: int = 10,
    max_iter: int | None = None,
    memory: int = 8,
    max_linesearch: int = 20,
    callback: Callback | None = None,
    n_jobs: int | None = None,
) -> Result:
    r"""Minimises :math:`f(w) + c_1 \lVert w \rVert_1` by L-BFGS, with ``c1`` by OWL-QN.

    Parameters
    ----------
    objective : Objective
        The smooth part f.
    w0 : float64 array [size]
        Where to begin.
    c1 : float
        Coefficient of the absolute values.
    tol : float
        Stops when the objective fell by less than this part of itself over the last ``period`` iterations, or
        when the gradient's norm is below this part of the weights' norm.
    period : int
    max_iter : int, optional
    memory : int
        Steps remembered.
    max_linesearch : int
        Evaluations allowed in one line search.
    callback : callable, optional
        Called as ``callback(progress, w)``; returning True stops.
    n_jobs : int, optional

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
    search = _Search(objective, c1, max_linesearch)
    began = time.perf_counter()
    history: deque[float] = deque(maxlen=period + 1)
    known = _core.Memory(objective.size, memory)
    d = np.empty(objective.size)
    spare = _Point(np.empty(objective.size), np.inf, np.empty(objective.size))
    point = _Point(np.array(w0, dtype=np.float64), np.inf, np.zeros(objective.size))
    iteration = 0

    def done(converged: bool, message: str) -> Result:
        return Result(point.x, point.value, iteration, search.evaluations, converged, message)

    def changed(old: Vector, new: Vector, fell: float, converged: bool) -> bool:
        """Whether the objective changed itself between two steps; then the search goes on where it says."""
        nonlocal point
        review = getattr(objective, "review", None)
        resume = None if review is None else review(old, new, fell, converged)
        if resume is None:
            return False
        before = point.value if resume is new else point.value + fell
        point = search.evaluate(np.array(resume), point.gradient)
        # as if it had been this objective all along
        past = [value + point.value - before for value in history]
        history.clear()
        history.extend(past[:-1] if len(past) == history.maxlen else past)
        return True

    try:
        point = search.evaluate(point.x, point.gradient)
        if not np.isfinite(point.value):
            raise ValueError(f"the objective is {point.value} at the starting point")
        while max_iter is None or iteration < max_iter:
            history.append(point.value)
            v = search.steepest(point)
            norm = np.sqrt(_core.dot(v, v))
            if norm <= tol * max(1.0, np.sqrt(_core.dot(point.x, point.x))):
                if changed(point.x, point.x, 0.0, True):
                    continue
                return done(True, "the gradient vanishes")
            known.direction(v, d, threads)
            if c1:
                d[d * v >= 0] = 0
            slope = _core.dot(v, d)
            if not slope < 0:
                known.clear()
                np.negative(v, out=d)
                slope = -(norm**2)
            step = 1.0 if len(known) else 1.0 / norm
            new, step = search.line_search(point, v, d, slope, step, spare)
            if new is None:
                if len(known):
                    known.clear()
                    continue
                if changed(point.x, point.x, 0.0, True):
                    continue
                return done(True, "no further descent is possible in this precision")
            known.push(new.x, point.x, new.gradient, point.gradient, threads)
            spare, point = point, new
            iteration += 1
            if callback is not None:
                v = search.steepest(point)
                progress = Progress(
                    iteration,
                    point.value,
                    float(np.sqrt(_core.dot(v, v))),
                    int(np.count_nonzero(point.x)),
                    step,
                    search.evaluations,
                    time.perf_counter() - began,
                    terms=point.terms,
                )
                if callback(progress, point.x.copy()):
                    return done(False, "the callback asked to stop")
            converged = len(history) > period and history[0] - point.value <= tol * abs(point.value)
            if changed(spare.x, point.x, spare.value - point.value, converged):
                if getattr(objective, "done", False):
                    return done(True, "the exact objective falls no more with fresh beams")
                continue
            if converged:
                return done(True, f"the objective fell by less than {tol:g} over {period} iterations")
        return done(False, f"stopped after {max_iter} iterations")
    except KeyboardInterrupt:
        return done(False, "interrupted; the best weights so far are kept")
