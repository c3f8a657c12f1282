"""Newton's method in a trust region."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import State
from crfkit.base.messages import counted
from crfkit.training.objective import Change, Objective
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Progress, Reason, Result, Settings, lent

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class NewtonCG(Algorithm):
    r"""Newton's method in a trust region, its steps by conjugate gradients on exact Hessian products.

    Each iteration minimises, roughly and within a ball,

    .. math::

        q(d) = g^\top d + \tfrac12 d^\top \nabla^2 f(w)\, d, \qquad \lVert d \rVert \le \Delta

    by conjugate gradients from zero, which end at the sphere (Steihaug) or when the k-th of them lowers q by less than
    ``accuracy / k`` of what all have (Nash and Sofer). The norm of the residual, a common stopping rule, is dominated
    by a few frequent features. The first radius is the length of the best step along the gradient. After a step that
    achieves less than a quarter of what q promised, it is a quarter of that step's length; after one that achieves
    more than three quarters, three times its length.

    Parameters
    ----------
    accuracy : float, default=0.5
        Smaller values take more products per iteration, and fewer iterations.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    >>> CRF(algorithm="newton-cg", dtype="float64").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    accuracy: float = 0.5

    bytes_per_pair: ClassVar[int] = 800
    rules: ClassVar = {"accuracy": {"low": 0, "strict": True}}

    def run(self, objective: Objective, w: Vector, settings: Settings) -> Result:
        """Minimises a function with a ``hessian_product``, until the gradient is ``tol`` of its first norm."""
        max_iter, tol, callback = settings.max_iter, settings.tol, settings.callback
        noise, began, keep = 10 * float(objective.noise), time.perf_counter(), settings.checkpoint

        def state() -> State:
            counts = [evaluations, iteration, radius, first, history[-6:]]
            return {"w": w, "counts": counts, "objective": objective.state()}

        evaluations, iteration, radius, first, history = 1, 0, np.inf, 0.0, [0.0]
        if saved := keep.part("search", state):
            w = saved["w"]
            with keep.restoring():
                objective.restore(saved["objective"])
        value, gradient = objective.value_and_grad(w)
        norm = float(np.linalg.norm(gradient))
        evaluations, iteration, radius, first, history = saved["counts"] if saved else (1, 0, np.inf, norm, [value])

        def done(reason: Reason, message: str) -> Result:
            return Result(w, value, iteration, evaluations, reason, message)

        terms = objective.terms

        def review(old: Vector, fell: float, converged: bool) -> Change | None:
            """How the objective changed itself between two steps; the search is then where it says."""
            nonlocal w, value, gradient, norm, first, evaluations, terms
            change = objective.review(old, w, fell, converged)
            if change is None:
                return None
            w = change.at
            value, gradient = objective.value_and_grad(w)
            terms = objective.terms
            evaluations += 1
            norm = float(np.linalg.norm(gradient))
            first = max(first, norm)
            history[:] = [value]
            return change

        try:
            while True:
                if norm <= tol * max(1.0, first):
                    if review(w, 0.0, True):
                        continue
                    return done("converged", "the gradient vanishes")
                if max_iter is not None and iteration >= max_iter:
                    return done("max_iter", f"stopped after {counted(max_iter or 0, 'iteration')}")
                if not np.isfinite(radius):
                    curvature = abs(float(gradient @ objective.hessian_product(w, gradient)))
                    radius = norm**3 / max(curvature, 1e-10 * norm**2)
                step, promised = self._step(partial(objective.hessian_product, w), gradient, radius)
                trial, there = objective.value_and_grad(w + step)
                evaluations += 1
                iteration += 1
                floor = noise * abs(value)  # of a smaller change nothing is known
                gained = (value - trial + floor) / (promised + floor)
                length = float(np.linalg.norm(step))
                if gained < 0.25:
                    radius = 0.25 * length
                elif gained > 0.75:
                    radius = max(radius, 3 * length)
                old, fell = w, 0.0
                if gained > 1e-4:
                    fell = value - trial
                    w, value, gradient = w + step, trial, there
                    norm = float(np.linalg.norm(gradient))
                    terms = objective.terms
                history.append(value)
                if callback is not None:
                    counts = int(np.count_nonzero(w)), 1.0, evaluations, time.perf_counter() - began
                    progress = Progress(iteration, value, norm, *counts, terms=terms, beams=objective.report)
                    if callback(progress, lent(callback, w)):
                        return done("callback", "the callback asked to stop")
                converged = len(history) > 5 and history[-6] - value <= floor
                change = review(old, fell, converged)
                if change and change.way == "over":
                    return done("beams", "the exact objective falls no more with fresh beams")
                if converged and not change:
                    return done("precision", "no further descent is possible in this precision")
                keep.tick()
        except KeyboardInterrupt:
            return done("interrupted", INTERRUPTED)

    def _step(self, times: Callable[[Vector], Vector], gradient: Vector, radius: float) -> tuple[Vector, float]:
        """An approximate minimiser of q in the ball, and how far it lowers q."""
        step, rest = np.zeros_like(gradient), -gradient  # rest: minus the gradient of q
        p, square = rest.copy(), float(rest @ rest)
        if not np.isfinite(square):
            raise ValueError("the gradient is not finite: the initial weights are too large")
        model = 0.0
        for k in itertools.count(1):
            hp = times(p)
            curvature = float(p @ hp)
            size = square / curvature if curvature > 0 else np.inf
            pp, sp, ss = float(p @ p), float(step @ p), float(step @ step)
            # step + size p is on the sphere if pp size^2 + 2 sp size + ss = radius^2
            most = (np.sqrt(sp * sp + pp * max(radius * radius - ss, 0.0)) - sp) / pp
            outside = size >= most
            size = min(size, most)
            step += size * p
            rest -= size * hp
            before, model = model, 0.5 * float(step @ (gradient - rest))
            square, last = float(rest @ rest), square
            if outside or k * (model - before) >= self.accuracy * model or not square or not np.isfinite(square):
                break
            p = rest + (square / last) * p
        return step, -model
