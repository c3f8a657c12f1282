"""How good the model is on the whole pool, from questions that were drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

LEAST = 5  # random questions before anything is stated
_LEVEL = 0.90
_BASE = 0.5  # mistakes, expected and actual, that are there before any question


class Scored(NamedTuple):
    """A sentence drawn at random: what the model that had never seen it got wrong, and what it expected to.

    Attributes
    ----------
    truth, guess : list of str
    tokens, wrong, expected_wrong : float
        Tokens, those with a wrong label, and how many the model expected.
    false, expected_false, missed, expected_missed : float
        Spans of the model that are wrong, and true spans that it missed.
    """

    truth: list[str]
    guess: list[str]
    tokens: float
    wrong: float
    expected_wrong: float
    false: float
    expected_false: float
    missed: float
    expected_missed: float


class Totals(NamedTuple):
    """The model of now on the whole pool.

    Attributes
    ----------
    tokens, spans : float
        Tokens, and spans that the model finds.
    wrong, false, missed : float
        Mistakes in sentences whose labels are all known: counted.
    expected_wrong, expected_false, expected_missed : float
        Mistakes that the model expects in the others.
    """

    tokens: float
    spans: float
    wrong: float
    false: float
    missed: float
    expected_wrong: float
    expected_false: float
    expected_missed: float


class Estimate(NamedTuple):
    """A value and the ends of its 90% interval."""

    value: float
    low: float
    high: float


def _ratio(actual: Vector, expected: Vector) -> Vector:
    """How many mistakes there are for each that the model expects, of sums of both."""
    return (actual + _BASE) / (expected + _BASE)


def _token(sums: Vector, pool: Totals) -> Vector:
    wrong = pool.wrong + _ratio(sums[0], sums[1]) * pool.expected_wrong
    return 1 - wrong / max(pool.tokens, 1.0)


def _f1(sums: Vector, pool: Totals) -> Vector:
    false = pool.false + _ratio(sums[2], sums[3]) * pool.expected_false
    missed = pool.missed + _ratio(sums[4], sums[5]) * pool.expected_missed
    right = np.maximum(pool.spans - false, 0.0)
    return 2 * right / np.maximum(2 * right + false + missed, 1e-9)


def estimates(scored: Sequence[Scored], pool: Totals, spans: bool) -> tuple[Estimate | None, Estimate | None]:
    r"""Token accuracy and span F1 of the model of now on the whole pool, with 90% intervals; None if too few questions.

    The model's own expectation of its mistakes is known for the whole pool. Random questions tell by which factor it is
    off:

    .. math::

        \hat{\rho} = \frac{\sum_i \text{mistakes}_i}{\sum_i \text{expected}_i}, \qquad
        \widehat{\text{mistakes}} = \text{counted} + \hat{\rho} \cdot \text{expected}

    a ratio estimator, whose variance is only that of mistakes about their expectation. Errors are jackknifed over
    sentences on the scale of the logit, and the interval is Student's.
    """
    if len(scored) < LEAST:
        return None, None
    names = ("wrong", "expected_wrong", "false", "expected_false", "missed", "expected_missed")
    rows = np.array([[getattr(s, name) for name in names] for s in scored], np.float64)
    token = _interval(rows, pool, _token)
    return token, _interval(rows, pool, _f1) if spans else None


def _interval(rows: Vector, pool: Totals, measure: Callable[[Vector, Totals], Vector]) -> Estimate:
    from scipy.stats import t as student  # slow to import

    def logit(sums: Vector) -> Vector:
        x = np.clip(measure(sums, pool), 1e-4, 1 - 1e-4)
        return np.asarray(np.log(x / (1 - x)))

    n = len(rows)
    total = rows.sum(axis=0)
    centre = float(logit(total[:, None])[0])
    left_out = logit(total[:, None] - rows.T)
    error = float(np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()))
    half = float(student.ppf((1 + _LEVEL) / 2, n - 1)) * error
    value, low, high = (1 / (1 + np.exp(-x)) for x in (centre, centre - half, centre + half))
    return Estimate(float(value), float(low), float(high))
