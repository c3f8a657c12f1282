"""Training on partly labelled and unlabelled sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import Checkpoint, State
from crfkit.chain.beams import Adaptive, Beam
from crfkit.data.sequences import rows_of
from crfkit.training.beams import within_beams
from crfkit.training.objective import Change, LikelihoodObjective, Objective, Problem
from crfkit.training.optimiser import Callback, Progress, Result, lent

Vector = NDArray[np.float64]


class SemiSupervisedObjective(LikelihoodObjective):
    r"""Likelihood of the known labels, plus entropy of the unlabelled sequences.

    .. math::

        f(w) = \sum_{s \text{ labelled}} \omega_s (\log Z - \log Z^{(s)}_{known})
             + \eta \sum_{s \text{ unlabelled}} \omega_s H_w(y \mid x^{(s)}) + c_2 \lVert w \rVert^2

    where :math:`Z_{known}` sums over the labellings that fit the known labels, each times the product of the weights
    that soft labels give it. If all labels are known, only the gold path is left. The gradient is the difference of two
    expected counts. The entropy is not convex in w; see :func:`minimize_with_entropy`.

    Parameters
    ----------
    problem : Problem
        With ``hints``. Beams, where they are chosen, are used for the fully labelled sequences.
    """

    def __init__(self, problem: Problem) -> None:
        full, some, unknown, omega = problem.split()
        super().__init__(problem.take(full))
        self.entropy_weight, self.ramp = float(problem.entropy_weight), problem.entropy_ramp
        self.n_unlabelled = len(unknown)
        self._terms: dict[str, float] = {}
        rest = np.concatenate([some, unknown])
        part = problem.data.take(rest)
        self.n_tokens += part.n_tokens
        labels = problem.labels[rows_of(problem.data.offsets, some)[0]]
        assert problem.hints is not None
        native = _core.SemiObjectiveF32 if problem.is_single else _core.SemiObjectiveF64
        self._rest = native(
            self.layout.native, part.native, len(some), labels, problem.hints, omega[rest], problem.scores, self.threads
        )

    @property
    def terms(self) -> Mapping[str, float]:
        """``"likelihood"`` (negative) and, if it counts, ``"entropy"`` at the last evaluation, without coefficients."""
        return self._terms

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        r"""The Hessian at w times v.

        Of a partly labelled sequence it is the difference of two covariances, that of all labellings and that of those
        that fit, exactly. The entropy's part is a central difference of its gradient along v. Neither need be positive.
        """
        out = super().hessian_product(w, v)
        self._rest.add_hessian_product(
            np.ascontiguousarray(w, np.float64),
            np.ascontiguousarray(v, np.float64),
            self.entropy_weight,
            out,
            self.threads,
        )
        return out

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w; ``terms`` are set."""
        value, gradient = super().value_and_grad(w, out)
        w = np.ascontiguousarray(w, np.float64)
        known, entropy = self._rest.add(w, self.entropy_weight, gradient, self.threads)
        loss = value - self.c2 * _core.dot(w, w) + known
        self._terms = {"likelihood": loss} | ({"entropy": entropy} if self.n_unlabelled else {})
        return value + known + self.entropy_weight * entropy, gradient

    def estimate(self, w: Vector) -> float:
        """The objective with all labels; the fully labelled sequences' part is estimated from their first block."""
        unused = np.zeros(self.size)
        known, entropy = self._rest.add(w, self.entropy_weight, unused, self.threads)
        return super().estimate(w) + known + self.entropy_weight * entropy

    def growing(self, within: Objective) -> Objective:
        """The same, with an entropy that grows iteration by iteration."""
        return EntropyRamp(self, within)


class EntropyRamp(Objective):
    """Raises the weight of the entropy, iteration by iteration, to its full value.

    Parameters
    ----------
    objective : SemiSupervisedObjective
        Its ``ramp`` says over how many iterations.
    within : Objective
        What is evaluated: the objective itself, or that within beams.
    """

    def __init__(self, objective: SemiSupervisedObjective, within: Objective) -> None:
        self.objective, self.within = objective, within
        self.iterations = max(objective.ramp, 1)
        self.full = objective.entropy_weight
        self.size = objective.size
        self.noise = objective.noise
        self._steps = 1
        objective.entropy_weight = self.full / self.iterations

    @property
    def terms(self) -> Mapping[str, float]:
        """Of the objective."""
        return self.objective.terms

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient with the current weight."""
        return self.within.value_and_grad(w, out)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian with the current weight, times v."""
        return self.objective.hessian_product(w, v)

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        """After a step: the next weight, unless it is full already, and perhaps other beams."""
        if self._steps < self.iterations:
            self._steps = self.iterations if converged else self._steps + 1
            self.objective.entropy_weight = self.full * self._steps / self.iterations
            return Change(new)
        return self.within.review(old, new, fell, converged)

    def state(self) -> State:
        """How far the weight is, and the beams."""
        return {"steps": self._steps, "within": self.within.state()}

    def restore(self, state: State) -> None:
        """The weight and the beams as they were."""
        self._steps = state["steps"]
        self.objective.entropy_weight = self.full * self._steps / self.iterations
        self.within.restore(state["within"])


def minimize_with_entropy(
    minimize: Callable[..., Result],
    objective: Objective,
    w0: Vector,
    *,
    beam: Beam | Adaptive | None = None,
    from_optimum: bool = True,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Minimises an objective from a good start if it has an entropy term, which has many local minima.

    First it minimises without the term, then with its weight growing over the problem's ``entropy_ramp``. An objective
    without such a term is simply minimised.

    Parameters
    ----------
    minimize : callable
        An optimiser: ``minimize(objective, w0, callback=callback, checkpoint=checkpoint)`` gives a Result.
    objective : Objective
    w0 : float64 array
    beam : MinDivergence, FixedSize, Threshold or Adaptive, optional
        Minimise the likelihood within beams.
    from_optimum : bool
        Whether to begin at the optimum of the labelled data, rather than at w0.
    callback : callable, optional
        Called after every iteration, as by the optimiser; iterations, evaluations and seconds keep counting.
    checkpoint : Checkpoint, optional
        Where the state of training is kept.
    """
    began = time.perf_counter()
    keep = checkpoint or Checkpoint()
    # where the search without the term ended, and after how many iterations and evaluations
    first: State = {"w": None, "iterations": 0, "evaluations": 0}
    first |= keep.part("first", lambda: first) or {}

    def count_on(progress: Progress, w: Vector) -> bool | None:
        assert callback is not None
        moved = replace(
            progress,
            iteration=first["iterations"] + progress.iteration,
            evaluations=first["evaluations"] + progress.evaluations,
            seconds=time.perf_counter() - began,
        )
        return callback(moved, lent(callback, w))

    setattr(count_on, "borrows", True)  # noqa: B010 - mypy knows no attributes of functions

    def ended(result: Result, within: Objective) -> Result:
        w = result.w if result.converged else within.better(result.w)
        total = first["iterations"] + result.iterations, first["evaluations"] + result.evaluations
        return replace(result, w=w, iterations=total[0], evaluations=total[1], beams=within.measure(w))

    watched = partial(minimize, callback=None if callback is None else count_on, checkpoint=keep)
    weight = objective.entropy_weight if objective.n_unlabelled else 0.0
    within = within_beams(objective, beam, w0)
    if not weight:
        return ended(watched(within, w0), within)
    try:
        if from_optimum:
            if first["w"] is None:
                objective.entropy_weight = 0.0
                result = watched(within, w0)
                if result.reason in ("interrupted", "callback"):
                    return ended(result, within)
                objective.entropy_weight = weight
                first |= {"w": result.w, "iterations": result.iterations, "evaluations": result.evaluations}
            w0 = first["w"]
            within = within_beams(objective, beam, w0)
        last = watched(objective.growing(within), w0)
    finally:
        objective.entropy_weight = weight
    return ended(last, within)
