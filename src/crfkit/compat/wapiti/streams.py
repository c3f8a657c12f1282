"""Files and standard streams of the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from crfkit.base.files import whole_file


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def reading(path: str | None) -> Iterator[IO[bytes]]:
    """A file, or standard input."""
    if path is None:
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield file


@contextmanager
def writing(path: str | None, whole: bool = False) -> Iterator[IO[bytes]]:
    """A file, or standard output; with ``whole`` the file appears only when all is written."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with whole_file(path) if whole else open(path, "wb") as file:
        yield file
