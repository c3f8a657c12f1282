"""Training on sequences whose labels are known in part, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.chain.constraints import Constraints
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import Sets, allowed_by, split_by_knowledge
from crfkit.data.sequences import rows_of
from crfkit.training.beams import BeamObjective
from crfkit.training.lbfgs import Callback, Progress, Result
from crfkit.training.objective import LikelihoodObjective, Objective
from crfkit.training.sequences import SequenceObjective

__all__ = ["EntropyRamp", "SemiSupervisedObjective", "minimize_with_entropy"]

Vector = NDArray[np.float64]


class SemiSupervisedObjective(LikelihoodObjective):
    r"""Likelihood of what is known about the labels, and entropy of what is not.

    .. math::

        f(w) = \sum_{s \text{ labelled}} \omega_s (\log Z - \log Z^{(s)}_{known})
             + \eta \sum_{s \text{ unlabelled}} \omega_s H_w(y \mid x^{(s)}) + c_2 \lVert w \rVert^2

    where :math:`Z_{known}` sums over the labellings that fit the known labels: the gold path where all are known. Its
    gradient is the difference of two expected counts. The entropy is not convex in w; see
    :func:`minimize_with_entropy`.

    Parameters
    ----------
    layout : Layout
    data : Dataset
        S sequences, N tokens.
    labels : int32 array [N]
        -1 where the label is not known for certain.
    sets : (int64 array [K], bool array [K, L])
        Tokens with -1 of which something is known, and the labels they may have.
    entropy_weight : float
        Coefficient of the entropy of the sequences about which nothing is known; with 0 they are left out.
    entropy_per : {"sequence", "token"}
        Whether such a sequence counts with its entropy, or with that divided by its length.
    c2, weights, constraints, dtype, n_jobs
        As for :class:`LikelihoodObjective`. Beams, where they are chosen, are used for the fully labelled sequences.

    Attributes
    ----------
    terms : dict
        ``"likelihood"`` (the negative log-likelihood) and ``"entropy"`` at the last evaluation, without coefficients.
    """

    def __init__(
        self,
        layout: Layout,
        data: Dataset,
        labels: NDArray[np.int32],
        sets: Sets,
        *,
        entropy_weight: float = 0.0,
        entropy_per: Literal["sequence", "token"] = "sequence",
        c2: float = 0.0,
        weights: Vector | None = None,
        constraints: Constraints | None = None,
        dtype: Any = np.float32,
        n_jobs: int | None = None,
    ) -> None:
        full, some, unknown = split_by_knowledge(data, labels, sets[0])
        omega = np.ones(data.n_sequences) if weights is None else np.asarray(weights, np.float64)
        super().__init__(
            layout,
            data.take(full),
            labels[rows_of(data.offsets, full)[0]],
            c2=c2,
            weights=None if weights is None else np.ascontiguousarray(omega[full]),
            constraints=constraints,
            dtype=dtype,
            n_jobs=n_jobs,
        )
        if not entropy_weight:
            unknown = unknown[:0]
        self.entropy_weight = float(entropy_weight)
        self.n_unlabelled = len(unknown)
        self.terms: dict[str, float] = {}
        if entropy_per == "token":
            omega = omega.copy()
            omega[unknown] /= np.diff(data.offsets)[unknown]
        rest = np.concatenate([some, unknown])
        tokens = rows_of(data.offsets, some)[0]
        allowed = allowed_by(labels, sets, layout.n_labels)
        part = data.take(rest)
        self.n_tokens += part.n_tokens
        native = _core.SemiObjectiveF32 if np.dtype(dtype) == np.float32 else _core.SemiObjectiveF64
        self._rest = native(
            layout.native,
            part.native,
            len(some),
            np.ascontiguousarray(allowed[tokens]).view(np.uint8),
            omega[rest],
            None if constraints is None else constraints.as_scores(),
            self.threads,
        )

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
        self.terms = {"likelihood": loss, "entropy": entropy}
        return value + known + self.entropy_weight * entropy, gradient

    def estimate(self, w: Vector) -> float:
        """The objective with all labels; the fully labelled sequences' share is told from their first block."""
        unused = np.zeros(self.size)
        known, entropy = self._rest.add(w, self.entropy_weight, unused, self.threads)
        return super().estimate(w) + known + self.entropy_weight * entropy


class EntropyRamp:
    """Lets the weight of the entropy grow, iteration by iteration, up to its full size.

    Parameters
    ----------
    objective : SemiSupervisedObjective
    iterations : int
        Over how many iterations.
    inside : Objective, optional
        What is evaluated: the objective itself, or that inside of beams.
    """

    def __init__(
        self, objective: SemiSupervisedObjective, iterations: int, inside: Objective | BeamObjective | None = None
    ) -> None:
        self.objective = objective
        self.inside = objective if inside is None else inside
        self.iterations = iterations
        self.full = objective.entropy_weight
        self.size = objective.size
        self.noise = objective.noise
        self._done = 1
        objective.entropy_weight = self.full / max(1, iterations)

    @property
    def terms(self) -> dict[str, float]:
        """Of the objective."""
        return self.objective.terms

    @property
    def done(self) -> bool:
        """Whether the beams, if there are any, are as good as they get."""
        return self._done >= self.iterations and getattr(self.inside, "done", False)

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient with the weight of the moment."""
        return self.inside.value_and_grad(w, out)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian with the weight of the moment, times v."""
        return self.objective.hessian_product(w, v)

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Vector | None:
        """After a step: the next weight, unless it is full already, and perhaps other beams."""
        if self._done < self.iterations:
            self._done = self.iterations if converged else self._done + 1
            self.objective.entropy_weight = self.full * self._done / self.iterations
            return new
        return self.inside.review(old, new, fell, converged) if isinstance(self.inside, BeamObjective) else None


def minimize_with_entropy(
    minimize: Callable[..., Result],
    objective: SemiSupervisedObjective | SequenceObjective,
    w0: Vector,
    *,
    ramp: int = 10,
    from_optimum: bool = True,
    inside: Callable[[SemiSupervisedObjective, Vector], Objective | BeamObjective] | None = None,
    callback: Callback | None = None,
) -> Result:
    """Minimises an objective with an entropy term, which has many local minima, from a good start.

    First without the term, then with its weight growing over ``ramp`` iterations, or passes over the data.

    Parameters
    ----------
    minimize : callable
        An optimiser: ``minimize(objective, w0)`` gives a Result. Of a SequenceObjective, a stochastic one, which is
        told the ``ramp``.
    objective : SemiSupervisedObjective or SequenceObjective
    w0 : float64 array
    ramp : int
        Iterations over which the weight grows; 0 or 1 for none.
    from_optimum : bool
        Whether to begin with the optimum of the labelled data; else with w0.
    inside : callable, optional
        ``inside(objective, w)`` gives what is evaluated from w on, for beams.
    callback : callable, optional
        Called after every iteration, as by the optimiser; iterations, evaluations and seconds count on.
    """
    began = time.perf_counter()

    def within(objective: SemiSupervisedObjective | SequenceObjective, w: Vector) -> Any:
        if inside is None or isinstance(objective, SequenceObjective):
            return objective
        return inside(objective, w)

    weight = objective.entropy_weight
    iterations = evaluations = 0

    def count_on(progress: Progress, w: Vector) -> bool | None:
        assert callback is not None
        moved = replace(
            progress,
            iteration=iterations + progress.iteration,
            evaluations=evaluations + progress.evaluations,
            seconds=time.perf_counter() - began,
        )
        return callback(moved, w)

    watched = partial(minimize, callback=None if callback is None else count_on)
    if from_optimum:
        objective.entropy_weight = 0.0
        try:
            first = watched(within(objective, w0), w0)
        finally:
            objective.entropy_weight = weight
        if "interrupted" in first.message or "callback" in first.message:
            return first
        w0, iterations, evaluations = first.w, first.iterations, first.evaluations
    try:
        if isinstance(objective, SequenceObjective):
            last = watched(objective, w0, ramp=ramp)
        else:
            last = watched(EntropyRamp(objective, max(ramp, 1), within(objective, w0)), w0)
    finally:
        objective.entropy_weight = weight
    return replace(last, iterations=iterations + last.iterations, evaluations=evaluations + last.evaluations)
