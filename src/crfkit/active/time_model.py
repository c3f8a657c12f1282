"""How long a person takes for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

#: Answers that the published figures count for when they are fitted to a person's own times.
_PRIOR = 20.0


@dataclass(frozen=True)
class TimeModel:
    r"""Seconds that a person needs for a question about some tokens of a sentence.

    .. math:: \text{seconds} = s + a \cdot \text{tokens judged} + c \cdot \text{corrections}

    The default represents the cost model of a user study of assisted part-of-speech annotation (Haertel, Ringger,
    Seppi, Carroll and McClanahan: Assessing the Costs of Sampling Methods in Active Learning for Annotation, ACL 2008),
    quoted at second hand.

    Parameters
    ----------
    sentence : float
        Seconds to read a sentence, whatever is asked about it.
    token : float
        Seconds per token judged.
    correction : float
        Seconds per token whose suggested label is wrong.

    Examples
    --------
    >>> round(TimeModel().seconds(5, 1), 2)
    36.93
    """

    sentence: float = 12.57
    token: float = 3.795
    correction: float = 5.387

    def __post_init__(self) -> None:
        for name in ("sentence", "token", "correction"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0:
                raise ValueError(f"{name!r} of TimeModel must be finite and >= 0, got {value!r}")
        if not self.sentence + self.token > 0:
            raise ValueError("'sentence' and 'token' of TimeModel must not both be 0")

    def seconds(self, tokens: float, corrections: float) -> float:
        """Seconds for a sentence of which ``tokens`` are judged, with ``corrections`` among them."""
        return self.sentence + self.token * tokens + self.correction * corrections

    def fitted(self, times: Sequence[tuple[float, float, float]], prior: float = _PRIOR) -> TimeModel:
        r"""The model of a person, from this one and the times of their answers.

        Ridge regression towards this model: with x = (1, tokens, corrections) of each answer and m this model,

        .. math:: \min_{v \ge 0} \sum_i (s_i - v \cdot x_i)^2 + \lambda \sum_k q_k (v_k - r m_k)^2

        where q is the mean of x squared over the answers, so that the prior counts as ``prior`` answers, and r is the
        person's pace: the median of their seconds over those that this model expects. Times beyond four times what
        is usual, as when somebody left the desk, count as that much.

        Parameters
        ----------
        times : sequence of (seconds, tokens, corrections)
            What each answer took.
        prior : float
            Answers that this model counts for.

        Examples
        --------
        >>> quick = [(2.0 + 0.5 * n + 1.0 * c, n, c) for n in range(1, 9) for c in range(3)] * 20
        >>> fitted = TimeModel().fitted(quick)
        >>> round(fitted.sentence), round(fitted.token, 1), round(fitted.correction)
        (2, 0.5, 1)
        """
        if not len(times):
            return self
        table: NDArray[np.float64] = np.asarray(times, np.float64)
        x = np.column_stack([np.ones(len(table)), table[:, 1:3]])
        mine = np.array([self.sentence, self.token, self.correction])
        expected = np.maximum(x @ mine, 1e-9)
        ratio = table[:, 0] / expected
        # one pace for all three, itself held to 1 by the first few answers
        pace = float(np.exp((np.log(np.maximum(median(ratio.tolist()), 1e-3)) * len(x)) / (len(x) + 3.0)))
        y = np.minimum(table[:, 0], 4 * pace * expected)
        ridge = prior * np.maximum((x**2).mean(axis=0), 1e-3)
        free = np.ones(3, bool)
        v = np.zeros(3)
        while free.any():  # the largest set of terms whose coefficients are not negative
            a = x[:, free]
            v[:] = 0
            v[free] = np.linalg.solve(a.T @ a + np.diag(ridge[free]), a.T @ y + ridge[free] * pace * mine[free])
            if (v >= 0).all():
                break
            free[np.argmin(v)] = False
        v[0] = max(v[0], 0.05)
        return TimeModel(*(float(k) for k in v))
