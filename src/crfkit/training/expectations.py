"""Training with expectations on unlabelled sequences: generalised expectation criteria, posterior regularisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import State
from crfkit.base.threads import resolve_threads
from crfkit.training.dual import Dual
from crfkit.training.objective import Change, Objective, Problem

Vector = NDArray[np.float64]
_LEAST = 1e-12  # of a probability whose logarithm is taken


@dataclass(frozen=True, eq=False)
class Criteria:
    r"""Expected distributions over groups of labels, each for a set of tokens with a common attribute.

    Attributes
    ----------
    ptr : int64 array [N + 1]
    criterion : int32 array
        Criteria that token t belongs to: ``criterion[ptr[t] : ptr[t + 1]]``.
    groups : int64 array [K, L]
        Group of each label; a criterion has G groups.
    target : float64 array [K, G]
        Expected probabilities of the groups; zero for groups that are not there.
    bound : int8 array [K]
        0: the distribution should equal the target; 1: the first group should be at least as probable as there, -1: at
        most.
    weight : float64 array [K]
        Coefficients.
    method : {"expectation", "posterior"}
        How they enter the objective.
    """

    ptr: NDArray[np.int64]
    criterion: NDArray[np.int32]
    groups: NDArray[np.int64]
    target: Vector
    bound: NDArray[np.int8]
    weight: Vector
    method: str = "expectation"

    @property
    def tokens(self) -> Vector:
        """Number of tokens of each criterion, [K]."""
        return np.bincount(self.criterion, minlength=len(self.groups)).astype(np.float64)

    def shares(self, counts: Vector) -> tuple[Vector, Vector, Vector]:
        """Sums [K, 1] of counts [K, L], shares of the labels [K, L] and of the groups [K, G]."""
        total = counts.sum(axis=1, keepdims=True)
        share = counts / np.maximum(total, _LEAST)
        p = np.zeros(self.target.shape)
        np.add.at(p, (np.arange(len(p))[:, None], self.groups), share)
        return total, share, p

    def divergence(self, counts: Vector) -> tuple[float, Vector]:
        r"""The weighted sum of :math:`\mathrm{KL}(q_k \Vert p_k)` over the criteria not met, and its derivative.

        Parameters
        ----------
        counts : float64 array [K, L]
            Expected labels; :math:`p_k` are their proportions.

        Returns
        -------
        float
        float64 array [K, L]
            By the counts.
        """
        total, share, p = self.shares(counts)
        q = self.target
        wanted = (self.bound == 0) | (self.bound * (q[:, 0] - p[:, 0]) > 0)
        weight = np.where(wanted & (total[:, 0] > 0), self.weight, 0.0)
        safe = np.maximum(p, _LEAST)
        kl = np.where(q > 0, q * np.log(np.maximum(q, _LEAST) / safe), 0.0).sum(axis=1)
        slope = self.by_label(-q / safe)  # by the proportions
        by_counts = (slope - (slope * share).sum(axis=1, keepdims=True)) / np.maximum(total, _LEAST)
        return float(weight @ kl), weight[:, None] * by_counts

    def by_label(self, x: Vector) -> Vector:
        """Numbers of groups [K, G] as those of their labels [K, L]."""
        return np.take_along_axis(x, self.groups, axis=1)


class ExpectationObjective(Objective):
    r"""An objective, plus the divergence of the model's labels on unlabelled sequences from what is expected.

    .. math::

        f(w) + \sum_k \lambda_k \mathrm{KL}(q_k \Vert p_k(w)), \qquad
        p_k(w) = \frac{1}{n_k} \sum_{t \in k} P_w(y_t \mid x)

    With :math:`R(y)` the sum of the derivatives by the labels' counts over all tokens of a labelling, the gradient is
    :math:`\operatorname{Cov}(F, R)`: one pass gives the expected labels, and one the covariances.

    With the criteria's method ``"posterior"``, instead

    .. math::

        f(w) + \lambda \min_q \Bigl[\mathrm{KL}(q \Vert p_w)
        + \frac{1}{2 \varepsilon} \sum_k n_k \lVert p_k(q) - q_k \rVert^2\Bigr]

    See :class:`~crfkit.training.dual.Dual`: the minimum is at :math:`q(y) \propto p_w(y) e^{R(y)}`, R being sums of
    dual variables, and the gradient is :math:`E_p[F] - E_q[F]`.

    Parameters
    ----------
    objective : Objective
        Of the labelled sequences.
    unlabelled : Problem
        Its labels are ignored.
    criteria : Criteria
    """

    def __init__(self, objective: Objective, unlabelled: Problem, criteria: Criteria) -> None:
        self.objective, self.criteria = objective, criteria
        self.size, self.noise = objective.size, 10 * objective.noise
        self.n_unlabelled = objective.n_unlabelled
        self.n_tokens = getattr(objective, "n_tokens", 0) + unlabelled.data.n_tokens
        self.threads = resolve_threads(unlabelled.n_jobs)
        native = _core.ExpectationObjectiveF32 if unlabelled.is_single else _core.ExpectationObjectiveF64
        tokens = unlabelled.layout.native, unlabelled.data.native, criteria.ptr, criteria.criterion
        self._native = native(*tokens, len(criteria.groups), unlabelled.scores, self.threads)
        self._counts = np.empty(criteria.groups.shape)
        self._divergence = 0.0
        self._dual: Dual | None = None
        if criteria.method == "posterior":
            self._dual = Dual(criteria, self._expected, 1e-4 if unlabelled.is_single else 1e-8)
            self.noise = max(self.noise, 1e-7 if unlabelled.is_single else 1e-12)

    @property
    def entropy_weight(self) -> float:
        """That of the objective."""
        return self.objective.entropy_weight

    @entropy_weight.setter
    def entropy_weight(self, value: float) -> None:
        self.objective.entropy_weight = value

    @property
    def terms(self) -> Mapping[str, float]:
        """Those of the objective, and ``"expectations"``."""
        return {**self.objective.terms, "expectations": self._divergence}

    def _expected(self, table: Vector | None) -> Vector:
        """Expected labels [K, L] at the current weights, with a table [K, L] added to the tokens' scores."""
        self._native.expected(table, self._counts, self.threads)
        return self._counts

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        value, gradient = self.objective.value_and_grad(w, out)
        self._native.set(np.ascontiguousarray(w, np.float64), self.threads)
        if self._dual is None:
            self._divergence, slope = self.criteria.divergence(self._expected(None))
            if slope.any():
                self._native.add_covariance(slope, gradient, self.threads)
        else:
            table, gained = self._dual.solve()
            scale = float(self.criteria.weight[0])
            self._divergence = self._native.add_divergence(table, scale, gradient, self.threads) + scale * gained
        return value + self._divergence, gradient

    def growing(self, within: Objective) -> Objective:
        """The same, with an entropy that grows iteration by iteration."""
        return self.objective.growing(within)

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        """As the objective says."""
        return self.objective.review(old, new, fell, converged)

    def state(self) -> State:
        """That of the objective, and the dual variables."""
        return {"objective": self.objective.state(), "dual": None if self._dual is None else self._dual.state()}

    def restore(self, state: State) -> None:
        """The objective as it was."""
        self.objective.restore(state["objective"])
        if self._dual is not None:
            self._dual.restore(state["dual"])
