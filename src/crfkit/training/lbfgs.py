"""L-BFGS, and OWL-QN for L1 regularisation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import State
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.training.objective import Change, Objective
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Progress, Reason, Result, Settings, lent

Vector = NDArray[np.float64]


@dataclass
class _Point:
    """A point of the search: the objective is ``value``, its smooth part has the gradient."""

    x: Any
    value: float
    gradient: Any
    terms: Mapping[str, float] = field(default_factory=dict)


class Vectors:
    """Where the search keeps its vectors: arrays of the host, by the core's kernels.

    Attributes
    ----------
    d : vector
        The direction of the search.
    v : vector or None
        The subgradient of least norm; without c1 it is the gradient.
    """

    d: Any
    v: Any = None

    def __init__(self, objective: Objective, memory: int, c1: float, threads: int) -> None:
        self.objective, self.c1, self.threads, self.size = objective, c1, threads, objective.size
        self.known = _core.Memory(self.size, memory)
        self.d = np.empty(self.size)
        self.v = np.empty(self.size) if c1 else None

    def __len__(self) -> int:
        return len(self.known)

    def empty(self) -> Any:
        """A vector."""
        return np.empty(self.size)

    def put(self, x: Vector) -> Any:
        """A vector of the host's."""
        return x

    def host(self, x: Any) -> Vector:
        """The same on the host."""
        found: Vector = x
        return found

    def evaluate(self, x: Any, gradient: Any) -> tuple[float, Any]:
        """Value and gradient."""
        return self.objective.value_and_grad(x, gradient)

    def look(self, x: Any, gradient: Any) -> tuple[float, float, int]:
        """Squares of the steepest ascent and of x, and how many of x are not zero."""
        return self.known.look(x, gradient, self.c1, self.v, self.threads)

    def advance(self, x: Any, old_x: Any, gradient: Any, old: Any) -> tuple[float, float, int]:
        """Remembers the step to x; then as :meth:`look`."""
        return self.known.advance(x, old_x, gradient, old, self.c1, self.v, self.threads)

    def direction(self, x: Any, gradient: Any, step: float, out: Any) -> tuple[float, float, float]:
        """Out = x + step d, for d by the remembered steps; gives the slope along d, v (out - x) and abs(out)."""
        return self.known.direction(x, self._ascent(gradient), self.c1 > 0, self.d, step, out, self.threads)

    def steepest(self, gradient: Any) -> None:
        """The direction is that of steepest descent."""
        np.negative(self._ascent(gradient), out=self.d)

    def _ascent(self, gradient: Any) -> Any:
        """The gradient; with c1, the subgradient of least norm (the pseudo-gradient)."""
        return gradient if self.v is None else self.v

    def move(self, x: Any, gradient: Any, step: float, out: Any) -> list[float]:
        """Out = x + step d; with c1, what would leave x's orthant stays at zero. Gives v (out - x) and abs(out)."""
        return [*_core.move(x, self._ascent(gradient), self.c1 > 0, self.d, step, out, self.threads)][1:]

    def slope(self, gradient: Any) -> float:
        """The product of the gradient with the direction."""
        return _core.dot(gradient, self.d, self.threads)

    def clear(self) -> None:
        """Forgets all steps."""
        self.known.clear()

    def pairs(self) -> NDArray[Any]:
        """Steps and changes of the gradient, oldest first [pairs, 2, size]."""
        return self.known.pairs().reshape(-1, 2, self.size)

    def restore(self, pairs: Any) -> None:
        """The steps of a checkpoint."""
        zero = np.zeros(self.size)
        for step, change in pairs:
            self.known.push(step.astype(np.float64), zero, change.astype(np.float64), zero, self.threads)


class _Search:
    """One run of :class:`LBFGS`."""

    def __init__(self, objective: Objective, w0: Vector, c1: float, how: LBFGS, threads: int) -> None:
        self.objective = objective
        self.c1 = c1 = float(c1)  # numpy's comparisons are not Python's bool, which the core takes
        self.max_linesearch = how.max_linesearch
        self.noise = float(objective.noise)
        self.began = time.perf_counter()
        self.history: deque[float] = deque(maxlen=how.period + 1)
        self.iteration = self.evaluations = 0
        elsewhere = objective.vectors(how.memory, threads)
        self.known: Vectors = Vectors(objective, how.memory, c1, threads) if elsewhere is None else elsewhere
        self.point = _Point(self.known.put(w0), np.inf, self.known.put(np.zeros(objective.size)))
        self.spare = _Point(self.known.empty(), np.inf, self.known.empty())
        self.norms = 0.0, 0.0, 0  # squares of the steepest ascent and of x, and how many of x are not zero

    def look(self) -> None:
        """Takes norms and inner products at the point, which the direction is made of."""
        self.norms = self.known.look(self.point.x, self.point.gradient)

    def state(self) -> State:
        """For a checkpoint, between two iterations."""
        counts = {"iteration": self.iteration, "evaluations": self.evaluations, "history": list(self.history)}
        host = self.known.host
        point = {**vars(self.point), "x": host(self.point.x), "gradient": host(self.point.gradient)}
        return {**counts, "point": point, "pairs": self.known.pairs(), "objective": self.objective.state()}

    def restore(self, state: State) -> None:
        """The search as it was."""
        self.iteration, self.evaluations = state["iteration"], state["evaluations"]
        self.history.extend(state["history"])
        self.objective.restore(state["objective"])
        point, put = state["point"], self.known.put
        self.point = _Point(**{**point, "x": put(point["x"]), "gradient": put(point["gradient"])})
        self.known.restore(state["pairs"])

    def evaluate(self, x: Any, gradient: Any, l1: float | None = None) -> _Point:
        """The point x; ``l1`` is the sum of absolute values, where it is known."""
        value, gradient = self.known.evaluate(x, gradient)
        self.evaluations += 1
        if self.c1:
            value += self.c1 * (float(np.abs(x).sum()) if l1 is None else l1)
        return _Point(x, value, gradient, self.objective.terms)

    def done(self, reason: Reason, message: str) -> Result:
        return Result(
            self.known.host(self.point.x), self.point.value, self.iteration, self.evaluations, reason, message
        )

    def progress(self, step: float) -> Progress:
        norm, seconds = float(np.sqrt(self.norms[0])), time.perf_counter() - self.began
        counts = self.norms[2], step, self.evaluations, seconds
        return Progress(
            self.iteration, self.point.value, norm, *counts, terms=self.point.terms, beams=self.objective.report
        )

    def review(self, old: Any, fell: float, converged: bool) -> Change | None:
        """How the objective changed itself between two steps; the search is then where it says."""
        change = self.objective.review(old, self.point.x, fell, converged)
        if change is None:
            return None
        before = self.point.value + (fell if change.way == "back" else 0.0)
        self.point = self.evaluate(self.known.put(np.array(change.at)), self.point.gradient)
        self.look()
        # as if it had been this objective all along
        past = [value + self.point.value - before for value in self.history]
        self.history.clear()
        self.history.extend(past[:-1] if len(past) == self.history.maxlen else past)
        return change

    def descend(self) -> tuple[_Point | None, float]:
        """The next point, in the direction of the memory; None where nothing further down was found."""
        point, norm = self.point, float(np.sqrt(self.norms[0]))
        step = 1.0 if len(self.known) else 1.0 / norm
        slope, *moved = self.known.direction(point.x, point.gradient, step, self.spare.x)
        if not slope < 0:
            self.known.clear()
            self.known.steepest(point.gradient)
            slope, step = -(norm**2), 1.0 / norm
            moved = self.known.move(point.x, point.gradient, step, self.spare.x)
        return self.line_search(slope, step, *moved)

    def line_search(self, slope: float, step: float, ascent: float, l1: float) -> tuple[_Point | None, float]:
        """A point of sufficient decrease (and, for smooth objectives, curvature), or the best seen, or None.

        The first step is in ``spare`` already, with what :meth:`move` gives.
        """
        point, spare, known = self.point, self.spare, self.known
        low, high = 0.0, np.inf
        slack = self.noise * abs(point.value)  # differences below this mean nothing
        best: _Point | None = None
        worse: _Point | None
        best_step = step
        free = [(spare.x, spare.gradient)]  # vectors of points that are not needed any more
        for trial in range(self.max_linesearch):
            x, gradient = free.pop() if free else (known.empty(), known.empty())
            if trial:
                ascent, l1 = known.move(point.x, point.gradient, step, x)
            new = worse = self.evaluate(x, gradient, l1)
            expected = ascent if self.c1 else slope * step
            if np.isfinite(new.value) and new.value < (point.value if best is None else best.value):
                worse, best, best_step = best, new, step
            if not new.value <= point.value + 1e-4 * expected + slack:
                high = step
            elif not self.c1 and known.slope(new.gradient) < 0.9 * slope:
                low = step
            else:
                return new, step
            if worse is not None:
                free.append((worse.x, worse.gradient))
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
    r"""L-BFGS; with ``c1``, OWL-QN.

    Minimises :math:`f(w) + c_1 \lVert w \rVert_1`. Stops when the relative improvement over the last ``period``
    iterations falls below ``tol``, or when the gradient's norm is below this fraction of the weights' norm.

    Parameters
    ----------
    memory : int, default=8
        Number of steps remembered.
    period : int, default=10
        Number of iterations over which the relative improvement is measured.
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

    supports: ClassVar = Algorithm.supports | {
        *("c1", "beam", "gradient", "warm_start_fraction", "expectations", "device", "order")
    }

    @property
    def bytes_per_weight(self) -> int:
        """Of the vectors of the search, and of the steps it remembers, in single precision."""
        return 36 + 8 * self.memory

    def run(self, objective: Objective, w: Vector, settings: Settings) -> Result:
        """Minimises by line searches."""
        c1, tol, max_iter, callback = settings.c1, settings.tol, settings.max_iter, settings.callback
        search = _Search(objective, w, c1, self, resolve_threads(settings.n_jobs))
        del w  # or its memory would stay when the search needs it no more
        history, known, keep = search.history, search.known, settings.checkpoint
        try:
            if saved := keep.part("search", search.state):
                with keep.restoring():
                    search.restore(saved)
            else:
                search.point = search.evaluate(search.point.x, search.point.gradient)
            if not np.isfinite(search.point.value):
                raise ValueError(f"the objective is {search.point.value} at the starting point")
            search.look()
            while max_iter is None or search.iteration < max_iter:
                point = search.point
                history.append(point.value)
                norm, size = np.sqrt(search.norms[:2])
                if norm <= tol * max(1.0, size):
                    if search.review(point.x, 0.0, True):
                        continue
                    return search.done("converged", "the gradient vanishes")
                new, step = search.descend()
                if new is None:
                    if len(known):
                        known.clear()
                        continue
                    if search.review(point.x, 0.0, True):
                        continue
                    return search.done("precision", "no further descent is possible in this precision")
                search.norms = known.advance(new.x, point.x, new.gradient, point.gradient)
                search.spare, search.point = point, new
                search.iteration += 1
                if callback is not None and callback(search.progress(step), lent(callback, known.host(new.x))):
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
