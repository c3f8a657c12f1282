"""Signals that end a search early: what it has found is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

_current: Guard | None = None


class Guard:
    """Lets Ctrl-C, SIGTERM and SIGHUP end a search, and nothing that comes before or after it.

    Within :func:`searching` the first of them raises KeyboardInterrupt; one that came before does so when the search
    begins. The second ends the program at once. Signals that are ignored (nohup) stay so.

    Attributes
    ----------
    signum : int
        The signal that came; 0 for none.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.inside = False
        self._old: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        global _current
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows knows no SIGHUP
                if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._old[number] = signal.signal(number, self._receive)
        _current = self
        return self

    def __exit__(self, *error: object) -> None:
        global _current
        _current = None
        for number, old in self._old.items():
            signal.signal(number, old)

    def _receive(self, signum: int, frame: object) -> None:
        if self.signum:
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)
        self.signum = signum
        if self.inside:
            raise KeyboardInterrupt


def is_leaving() -> bool:
    """Whether a signal has come: whoever sent it may not wait for long."""
    return _current is not None and _current.signum != 0


@contextmanager
def searching() -> Iterator[None]:
    """Where signals may strike: the caller keeps what there is when KeyboardInterrupt comes out of it."""
    guard = _current
    if guard is None:
        yield
        return
    guard.inside = True
    try:
        if guard.signum:
            raise KeyboardInterrupt
        yield
    finally:
        guard.inside = False
