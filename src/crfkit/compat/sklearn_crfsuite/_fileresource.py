"""The model file of an estimator, where sklearn-crfsuite has it; pickles made there name this module."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["FileResource"]

#: Under which key the original keeps the file's bytes in a pickle.
_DATA = "__FILE_RESOURCE_DATA__"


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)


class FileResource:
    """A file that travels in pickles: one with a given name, or a temporary one that is removed in the end.

    Parameters
    ----------
    filename : str, optional
        A file of the user's, which is never removed. By default a temporary file is made when its name is first needed.
    keep_tempfiles : bool
        Whether the temporary file stays.
    suffix, prefix : str
        Of the temporary file's name.
    """

    def __init__(
        self, filename: str | None = None, keep_tempfiles: bool = False, suffix: str = "", prefix: str = ""
    ) -> None:
        self.auto = filename is None
        self.keep_tempfiles, self.suffix, self.prefix = keep_tempfiles, suffix, prefix
        self._name = filename
        self._content: Callable[[], bytes | None] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    @classmethod
    def _of(cls, content: Callable[[], bytes | None], keep_tempfiles: bool) -> FileResource:
        """A temporary file with this content, once there is any and somebody asks for its name."""
        self = cls(None, keep_tempfiles, ".crfsuite", "model")
        self._content = content
        return self

    @property
    def name(self) -> str | None:
        """The file's name, or None if there is no file."""
        if self._name is None and self._content is not None:
            data = self._content()
            if data is not None:
                with open(self.ensure_name(), "wb") as file:
                    file.write(data)
        return self._name

    def ensure_name(self) -> str:
        """Makes the temporary file if there is none."""
        if self._name is None:
            handle, self._name = tempfile.mkstemp(self.suffix, self.prefix)
            os.close(handle)
            if not self.keep_tempfiles:
                self._finalizer = weakref.finalize(self, _remove, self._name)
        return self._name

    def refresh(self) -> None:
        """A new temporary file."""
        if self.auto:
            self.cleanup()
            self.ensure_name()

    def cleanup(self) -> None:
        """Removes the temporary file, unless it is to be kept."""
        if not self.auto:
            return
        if self._finalizer is not None:
            self._finalizer()
        self._name = self._finalizer = self._content = None

    def _bytes(self) -> bytes | None:
        """What is in the file, if there is one."""
        if self._name is None and self._content is not None:
            return self._content()
        if self._name is None or not os.path.exists(self._name):
            return None
        with open(self._name, "rb") as file:
            return file.read()

    def __getstate__(self) -> dict[str, Any]:
        names = "auto", "keep_tempfiles", "suffix", "prefix"
        state = {"name": None if self.auto else self._name, **{name: getattr(self, name) for name in names}}
        data = self._bytes() if self.auto else None
        return state if data is None else {**state, _DATA: data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = None if state["auto"] else state["name"]
        self.__init__(name, state["keep_tempfiles"], state["suffix"], state["prefix"])  # type: ignore[misc]
        data = state.get(_DATA)
        if data is not None:
            self._content = lambda: data
