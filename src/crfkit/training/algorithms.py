"""The optimisers by name, and those that see the whole data at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import Objective
from crfkit.training.stochastic import AROW, SAG, SGD, SMD, AdaGrad, PassiveAggressive, Perceptron, Stochastic

__all__ = ["ALGORITHMS", "LBFGS", "Algorithm", "NewtonCG", "find_algorithm"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class LBFGS:
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

    def minimize(
        self,
        objective: Objective,
        w0: Vector,
        *,
        c1: float = 0.0,
        tol: float = 1e-5,
        max_iter: int | None = None,
        callback: Callback | None = None,
        n_jobs: int | None = None,
    ) -> Result:
        """Minimises."""
        return minimize_lbfgs(
            objective,
            w0,
            c1=c1,
            tol=tol,
            period=self.period,
            max_iter=max_iter,
            memory=self.memory,
            callback=callback,
            n_jobs=n_jobs,
        )


@dataclass(frozen=True)
class NewtonCG:
    r"""Newton's method in a trust region, its steps by conjugate gradients on exact Hessian products.

    Each iteration minimises, roughly and inside of a ball,

    .. math::

        q(d) = g^\top d + \tfrac12 d^\top \nabla^2 f(w)\, d, \qquad \lVert d \rVert \le \Delta

    by conjugate gradients from zero, which end at the sphere (Steihaug) or when the k-th of them lowers q by less than
    ``accuracy / k`` of what all have (Nash and Sofer). The norm of the residual, by which they are often ended, is
    mostly that of a few frequent features. The first radius is the length of the best step along the gradient; it
    is a quarter of a step that gains less than a quarter of what q promised, and thrice one that gains more than three.

    Parameters
    ----------
    accuracy : float, default=0.5
        Less takes more products in an iteration, and fewer iterations.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    >>> CRF(algorithm="newton-cg", dtype="float64").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    accuracy: float = 0.5

    def minimize(
        self,
        objective: Objective,
        w0: Vector,
        *,
        tol: float = 1e-5,
        max_iter: int | None = None,
        callback: Callback | None = None,
    ) -> Result:
        """Minimises a function with a ``hessian_product``, until the gradient is ``tol`` of its first norm."""
        if not self.accuracy > 0:
            raise ValueError(f"'accuracy' of NewtonCG must be > 0, got {self.accuracy!r}")
        times = objective.hessian_product  # type: ignore[attr-defined]
        noise = 10 * float(getattr(objective, "noise", 1e-13))
        began = time.perf_counter()
        w = np.array(w0, np.float64)
        value, gradient = objective.value_and_grad(w)
        evaluations, iteration, radius = 1, 0, np.inf
        norm = first = float(np.linalg.norm(gradient))
        history = [value]

        def done(converged: bool, message: str) -> Result:
            return Result(w, value, iteration, evaluations, converged, message)

        terms = getattr(objective, "terms", {})
        review = getattr(objective, "review", None)

        def changed(old: Vector, fell: float, converged: bool) -> bool:
            """Whether the objective changed itself between two steps; then the search goes on with what it is now."""
            nonlocal value, gradient, norm, first, evaluations, terms
            if review is None or review(old, w, fell, converged) is None:
                return False
            value, gradient = objective.value_and_grad(w)
            terms = getattr(objective, "terms", {})
            evaluations += 1
            norm = float(np.linalg.norm(gradient))
            first = max(first, norm)
            history[:] = [value]
            return True

        try:
            while True:
                if norm <= tol * max(1.0, first):
                    if changed(w, 0.0, True):
                        continue
                    return done(True, "the gradient vanishes")
                if max_iter is not None and iteration >= max_iter:
                    return done(False, f"stopped after {max_iter} iterations")
                if not np.isfinite(radius):
                    radius = norm**3 / max(abs(float(gradient @ times(w, gradient))), 1e-10 * norm**2)
                step, promised = self._step(partial(times, w), gradient, radius)
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
                    terms = getattr(objective, "terms", {})
                history.append(value)
                if callback is not None:
                    active, seconds = int(np.count_nonzero(w)), time.perf_counter() - began
                    progress = Progress(iteration, value, norm, active, 1.0, evaluations, seconds, terms=terms)
                    if callback(progress, w.copy()):
                        return done(False, "the callback asked to stop")
                converged = len(history) > 5 and history[-6] - value <= floor
                if changed(old, fell, converged):
                    continue
                if converged:
                    return done(True, "no further descent is possible in this precision")
        except KeyboardInterrupt:
            return done(False, "interrupted; the best weights so far are kept")

    def _step(self, times: Callable[[Vector], Vector], gradient: Vector, radius: float) -> tuple[Vector, float]:
        """An approximate minimiser of q in the ball, and how far it lowers q."""
        step, rest = np.zeros_like(gradient), -gradient  # rest: minus the gradient of q
        p, square = rest.copy(), float(rest @ rest)
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
            if outside or k * (model - before) >= self.accuracy * model:
                break
            square, last = float(rest @ rest), square
            p = rest + (square / last) * p
        return step, -model


Algorithm = LBFGS | NewtonCG | Stochastic

#: What ``algorithm=`` takes by name.
ALGORITHMS: dict[str, type[LBFGS] | type[NewtonCG] | type[Stochastic]] = {
    "lbfgs": LBFGS,
    "newton-cg": NewtonCG,
    "sgd": SGD,
    "smd": SMD,
    "adagrad": AdaGrad,
    "sag": SAG,
    "ap": Perceptron,
    "pa": PassiveAggressive,
    "arow": AROW,
}


def find_algorithm(algorithm: str | Algorithm, owner: str = "CRF") -> Algorithm:
    """The optimiser of a name, or the one given.

    >>> find_algorithm("sgd")
    SGD(eta0=None, batch=1, average=True, sample=300)
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        known = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(f"'algorithm' of {owner} must be one of {known}, or an optimiser, got {algorithm!r}")
    return ALGORITHMS[algorithm]()
