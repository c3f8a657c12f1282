"""Arithmetic on logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np


def log_sum_exp(x: Any) -> Any:
    """Logarithm of the sum of exponentials over the last axis, which is kept; minus infinity where all are.

    >>> log_sum_exp(np.log([[1.0, 3.0], [0.5, 0.5]])).round(6).tolist()
    [[1.386294], [0.0]]
    """
    top = x.max(axis=-1, keepdims=True)
    safe = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):  # recursion: log-sum-exp
        return safe + np.log(np.exp(x - safe).sum(axis=-1, keepdims=True))
