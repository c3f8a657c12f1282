"""How many threads a caller means."""

from __future__ import annotations

import os
from operator import index
from typing import SupportsIndex

_MOST = 256


def resolve_threads(n_jobs: SupportsIndex | None) -> int:
    """Number of threads for ``n_jobs``: -1 or None means every core that we may use, -2 all but one, and so on.

    scikit-learn's None is one job. Here it is all cores: threads share the data, and no result depends on their number.

    >>> resolve_threads(3)
    3
    """
    if isinstance(n_jobs, bool) or not (n_jobs is None or hasattr(n_jobs, "__index__")):
        raise TypeError(f"'n_jobs' must be an int or None, got {n_jobs!r}")
    n = -1 if n_jobs is None else index(n_jobs)
    if n == 0:
        raise ValueError("'n_jobs' must not be 0: use 1 for one thread, -1 for all cores")
    if n > 0:
        return min(n, _MOST)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (available or 1) + 1 + n)
