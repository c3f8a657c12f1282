"""The number of threads, and an ordered map over threads."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from operator import index
from typing import SupportsIndex, TypeVar

A = TypeVar("A")
B = TypeVar("B")

_MOST = 256


def resolve_threads(n_jobs: SupportsIndex | None) -> int:
    """Number of threads for ``n_jobs``: -1 or None means every available core, -2 all but one, and so on.

    In scikit-learn None means one job. Here it means all cores: threads share the data, and results do not depend on
    their number.

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


def ordered(function: Callable[[A], B], items: Iterator[A], threads: int) -> Iterator[B]:
    """Maps a function over items, in order, computing a few items ahead on threads.

    The items are taken on a separate thread, so that producing them may be slow too.

    >>> list(ordered(abs, iter([-1, -2, -3]), 2))
    [1, 2, 3]
    """
    waiting: queue.Queue[Future[B] | BaseException | None] = queue.Queue(threads + 2)
    stop = threading.Event()
    pool = ThreadPoolExecutor(threads)

    def put(x: Future[B] | BaseException | None) -> None:
        while not stop.is_set():
            try:
                waiting.put(x, timeout=0.1)
                return
            except queue.Full:
                continue

    def feed() -> None:
        try:
            for item in items:
                if stop.is_set():
                    return
                put(pool.submit(function, item))
            put(None)
        except BaseException as e:  # told to the reader, who raises it
            put(e)

    feeder = threading.Thread(target=feed, name="crfkit-reader", daemon=True)
    feeder.start()
    try:
        while (next_one := waiting.get()) is not None:
            if isinstance(next_one, BaseException):
                raise next_one
            yield next_one.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        feeder.join()
