"""The distribution closest to a model's that meets given expectations: posterior regularisation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from crfkit.training.expectations import Criteria

Vector = NDArray[np.float64]
#: epsilon: what is expected may be missed by this times the dual variable, a difference of log-odds.
SLACK = 0.01
_MOST = 100  # steps
_MEMORY = 20  # pairs of steps and changes of the slope


class Dual:
    r"""The distribution q closest to the current model p that nearly meets the expectations.

    .. math::

        \min_q \mathrm{KL}(q \Vert p) + \frac{1}{2 \varepsilon} \sum_k n_k \lVert p_k(q) - q_k \rVert^2

    where :math:`p_k(q)` are the fractions of groups of labels among the :math:`n_k` tokens of criterion k, and a bound
    costs only the amount by which it is missed. By duality it is the maximum, over one number :math:`\lambda_{kg}` for
    each criterion and group, of

    .. math::

        D(\lambda) = \log Z - \log Z_\lambda
        + \sum_k n_k \Bigl(\lambda_k \cdot q_k - \frac{\varepsilon}{2} \lVert \lambda_k \rVert^2\Bigr), \qquad
        \frac{\partial D}{\partial \lambda_k} = n_k \big(q_k - p_k(q_\lambda) - \varepsilon \lambda_k\big)

    with :math:`q_\lambda(y) \propto p(y) e^{R(y)}`, R(y) the sum of the :math:`\lambda_{kg}` of the groups of the
    tokens' labels. D is concave. The numbers of a lower bound are not negative, those of an upper one not positive.

    Parameters
    ----------
    criteria : Criteria
    expected : callable
        Expected labels [K, L] with a table [K, L] added to the scores of the criteria's tokens.
    tol : float
        Tolerance of the fractions.
    """

    def __init__(self, criteria: Criteria, expected: Callable[[Vector | None], Vector], tol: float) -> None:
        self.criteria, self.expected, self.tol = criteria, expected, tol
        n_groups = criteria.target.shape[1]
        there = (criteria.groups[:, :, None] == np.arange(n_groups)).any(axis=1)
        bounded = criteria.bound[:, None] != 0
        self.free = there & (criteria.tokens[:, None] > 0) & (~bounded | (np.arange(n_groups) == 0))
        self.low = np.where(criteria.bound > 0, 0.0, -np.inf)[:, None]
        self.high = np.where(criteria.bound < 0, 0.0, np.inf)[:, None]
        self.tokens = np.maximum(criteria.tokens, 1.0)[:, None]
        self.x = np.zeros(criteria.target.shape)

    def solve(self) -> tuple[Vector, float]:
        """The best table [K, L], and D without the two log Z terms; starts from the previous solution."""
        x, pairs = self.x, deque[tuple[Vector, Vector]](maxlen=_MEMORY)
        slope, curvature = self._slope(x)
        for _ in range(_MOST):
            out = ((x <= self.low) & (slope < 0)) | ((x >= self.high) & (slope > 0)) | ~self.free
            ahead = np.where(out, 0.0, slope)
            if np.abs(ahead / self.tokens).max() <= self.tol:
                break
            way = np.where(out, 0.0, _product(ahead, pairs, curvature))
            if not (way * ahead).sum() > 0:
                pairs.clear()
                way = ahead / curvature
            length = 1.0
            for _ in range(_MOST):
                new = np.clip(x + length * way, self.low, self.high)
                new_slope, new_curvature = self._slope(new)
                before, after = ((new - x) * slope).sum(), ((new - x) * new_slope).sum()
                if after >= -0.5 * before:  # not far behind the top, as D is concave
                    break
                length *= before / (before - after)
            pairs.append((new - x, slope - new_slope))
            x, slope, curvature = new, new_slope, new_curvature
        self.x = x
        target = np.where(self.free, self.criteria.target, 0.0)
        return self.criteria.by_label(x), float((self.tokens * (x * target - SLACK / 2 * x * x)).sum())

    def _slope(self, x: Vector) -> tuple[Vector, Vector]:
        """The derivative of D, and about minus its second ones, as if tokens were independent."""
        _, _, p = self.criteria.shares(self.expected(self.criteria.by_label(x)))
        slope = self.tokens * np.where(self.free, self.criteria.target - p - SLACK * x, 0.0)
        return slope, self.tokens * (p * (1 - p) + SLACK)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"x": self.x}

    def restore(self, state: dict[str, Any]) -> None:
        """As it was."""
        if np.shape(state["x"]) != self.x.shape:
            raise ValueError("the checkpoint is damaged: it has the wrong number of dual variables")
        self.x = np.array(state["x"], np.float64)


def _product(slope: Vector, pairs: deque[tuple[Vector, Vector]], curvature: Vector) -> Vector:
    """The inverse of the curvature, as steps and changes of the slope tell it, times the slope: L-BFGS."""
    q, used = slope.copy(), []
    for s, y in reversed(pairs):
        if (sy := float((s * y).sum())) > 1e-12:
            a = float((s * q).sum()) / sy
            q -= a * y
            used.append((s, y, sy, a))
    q /= curvature
    if used:
        _, y, sy, _ = used[0]
        q *= sy / float((y * y / curvature).sum())
    for s, y, sy, a in reversed(used):
        q += (a - float((y * q).sum()) / sy) * s
    return q
