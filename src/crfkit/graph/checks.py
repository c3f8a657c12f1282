"""Checks of arrays that users give; errors name the array."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_VALUE = 1e10  # of a feature, as in chains: beyond it training does not stay finite
_LARGE = 1e300  # sums of scores below this do not overflow


def float_array(x: Any, name: str) -> NDArray[np.float64]:
    """Numbers as an array.

    Examples
    --------
    >>> float_array([[1, 2], [3]], "factor 3: 'log_table'")
    Traceback (most recent call last):
    ValueError: factor 3: 'log_table' must be numbers in rows of one length, got [[1, 2], [3]]
    """
    try:
        raw = np.asarray(x)
        if raw.dtype.kind in "biufO":
            return np.ascontiguousarray(raw, np.float64)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be numbers in rows of one length, got {reprlib.repr(x)}")


def check_scores(x: NDArray[np.float64], name: str) -> None:
    """Raises unless all are numbers whose sums do not overflow, or minus infinity."""
    if x.size == 0 or (x.min() > -_LARGE and x.max() < _LARGE):
        return
    if not x.max() < np.inf:
        raise ValueError(f"{name}: a score must be finite or minus infinity")
    large = x[(x > -np.inf) & (np.abs(x) >= _LARGE)]
    if large.size:
        raise ValueError(f"{name}: a score must be below {_LARGE:g} in magnitude, or minus infinity, got {large[0]:g}")


def int_array(x: Any, name: str) -> NDArray[np.int64]:
    """Whole numbers as an array."""
    try:
        raw = np.asarray(x)
        if raw.size == 0 or raw.dtype.kind in "iu":
            return raw.astype(np.int64)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be ints in rows of one length, got {reprlib.repr(x)}")


def edge_array(x: Any, name: str, n: int) -> NDArray[np.int64]:
    """Pairs of distinct nodes out of n, [m, 2]."""
    out = int_array(x, name)
    if out.size == 0:
        return out.reshape(0, 2)
    if out.ndim != 2 or out.shape[1] != 2:
        raise ValueError(f"{name} must have shape [m, 2], got {out.shape}")
    if out.min() < 0 or out.max() >= n or (out[:, 0] == out[:, 1]).any():
        wrong = np.flatnonzero((out < 0).any(axis=1) | (out >= n).any(axis=1) | (out[:, 0] == out[:, 1]))[0]
        raise ValueError(f"{name} must join distinct nodes from 0 to {n - 1}, got {out[wrong].tolist()}")
    return out


def int_list(x: Iterable[Any]) -> list[int] | None:
    """Whole numbers as a list, or None if they are not whole numbers."""
    try:
        return [operator.index(v) for v in x]
    except TypeError:
        return None
