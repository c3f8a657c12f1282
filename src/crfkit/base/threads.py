"""How many threads a caller means."""

from __future__ import annotations

import os

_MOST = 256


def resolve_threads(n_jobs: int | None) -> int:
    """Number of threads, which the core takes, for ``n_jobs``: -1 or None means every core that we may use.

    >>> resolve_threads(3)
    3
    """
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool)):
        raise TypeError(f"'n_jobs' must be an int or None, got {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("'n_jobs' must not be 0: use 1 for one thread, -1 for all cores")
    if n_jobs is not None and n_jobs > 0:
        return min(n_jobs, _MOST)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (available or 1) + 1 + (-1 if n_jobs is None else n_jobs))
