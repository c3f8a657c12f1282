"""The optimisers by name, and those that see the whole data at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

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


class _Stop(Exception):
    pass


_MOST_PRODUCTS = 500  # in one iteration of Newton's method


@dataclass(frozen=True)
class NewtonCG:
    r"""Newton's method in a trust region, its steps by conjugate gradients on exact Hessian products.

    Each iteration minimises, roughly and inside of a ball,
    :math:`f(w) + g^\top d + \tfrac12 d^\top \nabla^2 f(w)\, d`; see ``scipy.optimize``.

    Parameters
    ----------
    method : {"trust-ncg", "Newton-CG", "trust-krylov"}
        Of ``scipy.optimize.minimize``.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    >>> CRF(algorithm="newton-cg", dtype="float64").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    method: str = "trust-ncg"

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
        from scipy.optimize import minimize

        if self.method not in ("trust-ncg", "Newton-CG", "trust-krylov"):
            raise ValueError(
                f"'method' of NewtonCG must be 'trust-ncg', 'Newton-CG' or 'trust-krylov', got {self.method!r}"
            )
        times = objective.hessian_product  # type: ignore[attr-defined]
        began = time.perf_counter()
        best: list[Any] = [np.inf, np.array(w0, np.float64), np.inf]
        counts = [0, 0, 0]  # evaluations, iterations, products in the present one
        history: list[float] = []
        noise = 10 * float(getattr(objective, "noise", 1e-13))

        def value(w: Vector) -> tuple[float, Vector]:
            f, g = objective.value_and_grad(np.ascontiguousarray(w))
            counts[0] += 1
            if f < best[0]:
                best[:] = [f, w.copy(), float(np.linalg.norm(g))]
            return f, g

        first = float(np.linalg.norm(value(np.array(w0, np.float64))[1]))

        def product(w: Vector, v: Vector) -> Vector:
            counts[2] += 1
            if counts[2] > _MOST_PRODUCTS:  # rounding errors keep the conjugate gradients from ending
                raise _Stop("no further descent is possible in this precision")
            out: Vector = times(w, v)
            return out

        def watch(w: Vector) -> None:
            counts[1:] = [counts[1] + 1, 0]
            if callback is not None:
                active = int(np.count_nonzero(best[1]))
                seconds = time.perf_counter() - began
                if callback(Progress(counts[1], best[0], best[2], active, 1.0, counts[0], seconds), best[1].copy()):
                    raise _Stop("the callback asked to stop")
            if best[2] <= tol * max(1.0, first):
                raise _Stop("the gradient vanishes")
            history.append(best[0])
            if len(history) > 5 and history[-6] - best[0] <= noise * abs(best[0]):
                raise _Stop("no further descent is possible in this precision")

        options: dict[str, float] = {} if max_iter is None else {"maxiter": max_iter}
        if self.method == "Newton-CG":
            options["xtol"] = 0.0
        else:
            options["gtol"] = tol * max(1.0, first)
        message, converged = "", False
        try:
            if max_iter == 0:
                raise _Stop("stopped after 0 iterations")
            found = minimize(
                value,
                np.array(w0, np.float64),
                jac=True,
                hessp=product,
                method=self.method,
                callback=watch,
                options=options,
            )
            message, converged = str(found.message).strip().rstrip("."), bool(found.success)
        except _Stop as stop:
            message, converged = str(stop), "callback" not in str(stop)
        except KeyboardInterrupt:
            message = "interrupted; the best weights so far are kept"
        return Result(best[1], best[0], counts[1], counts[0], converged, message)


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
