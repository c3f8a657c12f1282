"""Files that appear only when they are complete."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from crfkit.base.fields import ModelError

if sys.platform != "win32":
    import fcntl

_LARGE = 1 << 26  # bytes; smaller files are not asked for holes


@contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Opens a temporary file beside ``path``, and renames it when all is written; after an error nothing remains.

    The file and its folder are on the disk when this ends, and a file that was there before keeps its mode. A process
    that is killed leaves the file beside it; the next one that writes to ``path`` removes it. What is not a regular
    file (a pipe, a device) is written to directly.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(os.path.join(folder, "a"), "w") as file:
    ...         _ = file.write("text")
    ...     os.listdir(folder)
    ['a']
    """
    target = _target(path)
    if target is None:
        with full_disk(path), open(path, mode, **options) as file:
            yield file
        return
    _remove_stale(target)
    handle, beside = _create(target)
    held = os.dup(handle) if sys.platform != "win32" else None  # the lock lives until the new name stands
    try:
        with full_disk(path), open(handle, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    finally:
        if held is not None:
            os.close(held)
    _sync_folder(target.parent)


@contextmanager
def full_disk(path: str | os.PathLike[str]) -> Iterator[None]:
    """Where there is no room for what is written, the error names the file."""
    try:
        yield
    except OSError as e:
        code = errno.ENOSPC if e.errno is None and " requested and " in str(e) else e.errno  # numpy tells no number
        if e.filename is not None or code not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(code, os.strerror(code), os.fspath(path)) from e


@contextmanager
def open_whole(path: str | os.PathLike[str], what: str) -> Iterator[tuple[IO[bytes], int]]:
    """Opens a file that will be in memory as a whole, and gives its size; ``what`` is its name in messages.

    A pipe or a device, which may never end, is refused, and so is a large file that is nearly all holes: it takes no
    place on the disk, but would in memory.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{os.fspath(path)}: not a {what}: it is not a regular file")
        stored = _stored(file.fileno(), status.st_size)
        if stored < status.st_size:
            name, size = os.fspath(path), status.st_size
            raise ModelError(f"{name}: not a {what}: only {stored} of its {size} bytes are stored, the rest is holes")
        yield file, status.st_size


def read_whole(path: str | os.PathLike[str], what: str) -> bytes:
    """The bytes of a file; see :func:`open_whole`."""
    with open_whole(path, what) as (file, size):
        return file.read(size)


def _stored(handle: int, size: int) -> int:
    """The bytes of a file that are no holes, or its size if it is not large or more than an eighth is stored."""
    if size < _LARGE or not hasattr(os, "SEEK_HOLE"):
        return size
    stored = at = 0
    try:
        while at < size and 8 * stored < size:
            begin = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, begin, os.SEEK_HOLE)
            stored += at - begin
    except OSError:  # the rest is a hole
        pass
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    return size if 8 * stored >= size else stored


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises the error that :func:`whole_file` would, by trying: for the beginning of work that is to be kept.

    >>> check_writable("no/such/folder/model")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] the folder to write to does not exist: 'no/such/folder'
    """
    target = _target(path)
    if target is not None:
        handle, beside = _create(target)
        os.close(handle)
        os.unlink(beside)
    elif os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "this is a folder, not a file", os.fspath(path))
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))


def _target(path: str | os.PathLike[str]) -> Path | None:
    """The regular file to be replaced, or to be; None for what is something else. Links are followed."""
    target = Path(path)
    if target.exists() and not target.is_file():
        return None
    if target.is_symlink():
        target = target.resolve()
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder to write to does not exist", str(target.parent))
    return target


def _create(target: Path) -> tuple[int, Path]:
    """A new file beside the target, with the target's mode, and with a lock while this process lives."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    while True:
        beside = target.with_name(f".{target.name}.{os.urandom(6).hex()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(beside, flags, 0o666 if mode is None else mode)
        except OSError as e:
            raise OSError(e.errno, e.strerror, str(target)) from e
        try:
            if _lock(handle, wait=True) and not os.path.exists(beside):  # it was taken for a stale one before
                os.close(handle)
                continue
            if mode is not None:
                os.chmod(beside, mode)
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                os.unlink(beside)
            raise
        return handle, beside


def _lock(handle: int, wait: bool = False) -> bool:
    """Whether a file is now locked by us; not where another process holds it, or where there are no locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _remove_stale(target: Path) -> None:
    """Removes what killed processes left beside the target: no living one holds its lock."""
    for old in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        if re.fullmatch(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}\.part", old.name):
            with suppress(OSError):
                handle = os.open(old, os.O_RDWR if os.access(old, os.W_OK) else os.O_RDONLY)
                try:
                    if _lock(handle):
                        os.unlink(old)
                finally:
                    os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Puts a folder's list of names on the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
