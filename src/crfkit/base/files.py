"""Files that appear only when they are whole."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Opens a file beside ``path`` for writing, and renames it when all is written; after an error nothing remains.

    What is not a regular file (a pipe, a device) is written to directly.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(os.path.join(folder, "a"), "w") as file:
    ...         _ = file.write("text")
    ...     os.listdir(folder)
    ['a']
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with open(target, mode, **options) as file:
            yield file
        return
    if target.is_symlink():
        target = target.resolve()
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no folder to write to", str(target))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with open(handle, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
