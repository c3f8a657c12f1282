"""Training on what is expected of unlabelled sequences: generalised expectation criteria."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import State
from crfkit.training.objective import Change, LikelihoodObjective, Objective, Problem

Vector = NDArray[np.float64]
_LEAST = 1e-12  # of a probability whose logarithm is taken


@dataclass(frozen=True, eq=False)
class Criteria:
    r"""Expected distributions over groups of labels, each of the tokens that have something in common.

    Attributes
    ----------
    feature, row, column : int64 arrays [M]
        Weight number ``feature`` counts a token of criterion ``row`` with label ``column``: sums of expected features
        give expected labels.
    groups : int64 array [K, L]
        Group of each label; a criterion has G groups.
    target : float64 array [K, G]
        Expected probabilities of the groups; zero for groups that are not there.
    bound : int8 array [K]
        0: the distribution is to be the target's; 1: the first group is to be at least, -1: at most as probable.
    weight : float64 array [K]
        Coefficients.
    tokens : float64 array [K]
        How many tokens each criterion is about.
    """

    feature: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    groups: NDArray[np.int64]
    target: Vector
    bound: NDArray[np.int8]
    weight: Vector
    tokens: Vector

    def label_counts(self, expected: Vector) -> Vector:
        """Expected labels [K, L] out of expected features."""
        k, n = self.groups.shape
        flat = np.bincount(self.row * n + self.column, expected[self.feature], minlength=k * n)
        return flat.reshape(k, n).astype(np.float64, copy=False)

    def divergence(self, counts: Vector) -> tuple[float, Vector]:
        r"""The weighted sum of :math:`\mathrm{KL}(q_k \Vert p_k)` over all that are not fulfilled, and its derivative.

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
        total = counts.sum(axis=1, keepdims=True)
        share = counts / np.maximum(total, _LEAST)
        groups, q = self.groups, self.target
        p = np.zeros(q.shape)
        np.add.at(p, (np.arange(len(q))[:, None], groups), share)
        wanted = (self.bound == 0) | (self.bound * (q[:, 0] - p[:, 0]) > 0)
        weight = np.where(wanted & (total[:, 0] > 0), self.weight, 0.0)
        safe = np.maximum(p, _LEAST)
        kl = np.where(q > 0, q * np.log(np.maximum(q, _LEAST) / safe), 0.0).sum(axis=1)
        slope = np.take_along_axis(-q / safe, groups, axis=1)  # by the proportions
        by_counts = (slope - (slope * share).sum(axis=1, keepdims=True)) / np.maximum(total, _LEAST)
        return float(weight @ kl), weight[:, None] * by_counts

    def direction(self, slope: Vector, size: int) -> Vector:
        """Weights v of which v . F is the sum of the slopes [K, L] of all tokens' labels."""
        return np.bincount(self.feature, slope[self.row, self.column], minlength=size).astype(np.float64, copy=False)


class ExpectationObjective(Objective):
    r"""An objective, and how far expected labels of unlabelled sequences are from what they should be.

    .. math::

        f(w) + \sum_k \lambda_k \mathrm{KL}(q_k \Vert p_k(w)), \qquad
        p_k(w) = \frac{1}{n_k} \sum_{t \in k} P_w(y_t \mid x)

    With :math:`v` such that :math:`v \cdot F(x, y)` adds up the derivatives by the labels' counts, the gradient is
    :math:`\operatorname{Cov}(F, v \cdot F)`: the Hessian of :math:`\sum \log Z` times v. So an evaluation is a gradient
    and a Hessian product of the likelihood's own kernels.

    Parameters
    ----------
    objective : Objective
        Of the labelled sequences.
    unlabelled : Problem
        Its labels do not count.
    criteria : Criteria
    """

    def __init__(self, objective: Objective, unlabelled: Problem, criteria: Criteria) -> None:
        self.objective, self.criteria = objective, criteria
        self.size, self.noise = objective.size, 10 * objective.noise
        self.n_unlabelled = objective.n_unlabelled
        self.n_tokens = getattr(objective, "n_tokens", 0) + unlabelled.data.n_tokens
        # label 0 stands in for all: the gradient is the expected features less those of this labelling
        stand_in = np.zeros(unlabelled.data.n_tokens, np.int32)
        self._rest = LikelihoodObjective(replace(unlabelled, labels=stand_in, hints=None, weights=None, c2=0.0))
        self._gradient = np.empty(self.size)
        self._divergence = 0.0

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

    def _counts(self, w: Vector) -> Vector:
        self._rest.value_and_grad(w, self._gradient)
        counts = self.criteria.label_counts(self._gradient)
        counts[:, 0] += self.criteria.tokens
        return np.asarray(np.maximum(counts, 0.0))

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        value, gradient = self.objective.value_and_grad(w, out)
        self._divergence, slope = self.criteria.divergence(self._counts(w))
        if slope.any():
            gradient += self._rest.hessian_product(w, self.criteria.direction(slope, self.size))
        return value + self._divergence, gradient

    def growing(self, within: Objective) -> Objective:
        """The same, with an entropy that grows iteration by iteration."""
        return self.objective.growing(within)

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        """As the objective says."""
        return self.objective.review(old, new, fell, converged)

    def state(self) -> State:
        """That of the objective."""
        return self.objective.state()

    def restore(self, state: State) -> None:
        """The objective as it was."""
        self.objective.restore(state)
