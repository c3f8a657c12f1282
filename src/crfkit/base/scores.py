"""Arrays of scores as users give them: one precision, their shapes, and what a score may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_scores(given: Mapping[str, Any]) -> dict[str, NDArray[np.floating[Any]]]:
    """The same as contiguous arrays, without those that are None: float32 if all are, float64 otherwise.

    >>> {name: str(x.dtype) for name, x in as_scores({"unary": [[1]], "start": None}).items()}
    {'unary': 'float64'}
    """
    arrays = {name: np.asarray(x) for name, x in given.items() if x is not None}
    dtype = np.float32 if all(x.dtype == np.float32 for x in arrays.values()) else np.float64
    return {name: np.ascontiguousarray(x, dtype) for name, x in arrays.items()}


def check_tokens(unary: NDArray[Any], offsets: NDArray[np.int64] | None) -> None:
    """Raises ValueError unless there is a row of scores per token, and offsets cut the tokens into sequences."""
    if unary.ndim != 2 or unary.shape[1] == 0:
        raise ValueError(f"'unary' must have shape [T, L] with L >= 1, got {unary.shape}")
    if offsets is None:
        return
    good = offsets.ndim == 1 and offsets.size >= 1 and offsets[0] == 0 and offsets[-1] == len(unary)
    if not good or (np.diff(offsets) < 0).any():
        raise ValueError(f"'offsets' must increase from 0 to the number of tokens, {len(unary)}")


def check_shapes(owner: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ValueError unless the owner's arrays, as far as they are there, have these shapes."""
    for name, shape in shapes.items():
        value = getattr(owner, name)
        if value is not None and value.shape != shape:
            raise ValueError(f"{name!r} must have shape {shape}, got {value.shape}")


def check_scores(scores: Mapping[str, NDArray[Any]], offsets: NDArray[np.int64] | None) -> None:
    """Raises ValueError, with the place, if a score is NaN or plus infinity."""
    for name, value in scores.items():
        # one pass: the maximum is NaN or plus infinity just where some score is
        if not value.size or value.max() < np.inf:
            continue
        where = tuple(int(i) for i in np.argwhere(~(value < np.inf))[0])
        place = f"{name}{list(where)}"
        if name == "unary" and offsets is not None:
            sequence = int(np.searchsorted(offsets, where[0], side="right")) - 1
            place += f" (sequence {sequence}, position {where[0] - int(offsets[sequence])})"
        raise ValueError(f"a score must be finite or minus infinity, got {value[where]} at {place}")
