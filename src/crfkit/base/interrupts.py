"""Signals that end a search early: what it has found is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

_current: Guard | None = None


class Guard:
    """Lets Ctrl-C, SIGTERM and SIGHUP end a search, but not what runs before or after it.

    Within :func:`searching` the first signal raises KeyboardInterrupt; one that arrived earlier does so when the search
    begins. The second ends the program at once. Signals that are ignored (nohup) stay ignored.

    Attributes
    ----------
    signum : int
        The signal received; 0 for none.
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
    """Whether a signal has arrived: its sender may not wait for long."""
    return _current is not None and _current.signum != 0


@contextmanager
def searching() -> Iterator[None]:
    """The block that signals may interrupt; on KeyboardInterrupt the caller keeps what it has found so far."""
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
