"""Checkpoints: training state saved to a file, from which training resumes as if it had never stopped."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from hashlib import blake2b
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays, anything, damaged, record, refuse, text
from crfkit.base.files import check_writable
from crfkit.base.tensors import TensorFile, read_tensors, write_tensors

#: Arrays, numbers, texts and None by name; also lists and dicts of these.
State = dict[str, Any]
T = TypeVar("T")

_KEY = "crfkit checkpoint"
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


def seconds_of(every: float | str) -> float:
    """Seconds from a number, or from a string such as ``"30s"``, ``"5min"`` or ``"1h"``.

    >>> seconds_of("5min"), seconds_of("0.5h"), seconds_of(7)
    (300.0, 1800.0, 7.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(s|min|h|)", str(every).strip())
    if found is None:
        raise ValueError(f"'checkpoint_every' must be seconds >= 0, or a string such as '30s' or '5min', got {every!r}")
    return float(found[1]) * _UNITS[found[2]]


def digest(things: Iterable[Any]) -> str:
    """A digest of the contents of arrays, including those in lists, and of the text of anything else.

    >>> digest([[np.array([0.1])]]) == digest([[np.array([0.1 + 1e-12])]])
    False
    """
    sum_ = blake2b(digest_size=16)
    for x in things:
        if isinstance(x, (list, tuple)):
            sum_.update(digest(x).encode())
            continue
        array = isinstance(x, np.ndarray)
        sum_.update(f"{x.dtype}{x.shape}".encode() if array else f"{x!r};".encode())
        if array:
            sum_.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
    return sum_.hexdigest()


def _alike(found: Any, own: Any) -> bool:
    """Whether a state has the names and types of another one; what that has not got yet may be there.

    >>> _alike({"n": 3, "w": np.ones(2)}, {"n": 0, "w": None}), _alike({"n": "3", "w": None}, {"n": 0, "w": None})
    (True, False)
    """
    if own is None:
        return not isinstance(found, str)
    if isinstance(own, np.ndarray):
        if not isinstance(found, np.ndarray) or found.dtype != own.dtype or found.ndim != own.ndim:
            return False
        free = own.size == 0 or (own.dtype.kind == "u" and own.itemsize > 1)  # lists of labels have any length
        return found.shape == own.shape or (free and found.shape[1:] == own.shape[1:])
    if isinstance(own, Mapping):
        if not isinstance(found, dict) or (own and found.keys() != own.keys()):
            return False
        return all(_alike(found[k], x) for k, x in own.items())
    if isinstance(own, (list, tuple)):
        if not isinstance(found, list):
            return found is None  # beams, which may be there now and not then
        if not own:
            return all(isinstance(x, (int, float, dict)) for x in found)
        return all(map(_alike, found, own if len(own) == len(found) else own[:1] * len(found)))
    if isinstance(own, (bool, np.bool_)):
        return type(found) is bool
    if isinstance(own, str):
        return type(found) is str
    kinds = int if isinstance(own, Integral) else (int, float)
    return isinstance(found, kinds) and type(found) is not bool


class Checkpoint:
    """Where and how often the training state is written; nowhere if there is no path.

    Each part of training (an optimiser and its objective, early stopping) registers a function that gives its state,
    and receives its state from the file when training resumes. :meth:`tick` is called between two iterations, when
    all states belong to the same moment.

    Parameters
    ----------
    path : path, optional
    every : float or str
        Seconds between two writes, or a string for :func:`seconds_of`.
    fingerprint : dict of str
        Settings, and digests of the data. A file whose fingerprint differs is refused.
    resume : bool
        Whether to resume from the file, if it exists.

    Attributes
    ----------
    finished : dict, optional
        What the training run that wrote the file gave to :meth:`finish`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, state = os.path.join(folder, "run"), {"n": 3, "w": np.arange(2.0)}
    ...     first = Checkpoint(path, 0)
    ...     _ = first.part("search", lambda: state)
    ...     first.tick()
    ...     again = Checkpoint(path, resume=True).part("search", lambda: state)
    >>> again
    {'n': 3, 'w': array([0., 1.])}
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        every: float | str = "5min",
        fingerprint: Mapping[str, str] | None = None,
        resume: bool = False,
    ) -> None:
        self.path, self.every, self.fingerprint = path, seconds_of(every), dict(fingerprint or {})
        self.finished: State | None = None
        self._parts: dict[str, Callable[[], State]] = {}
        self._saved: State = {}
        self._last = time.monotonic()
        if path is None:
            return
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "'checkpoint' must be a file, not a folder", os.fspath(path))
        if os.path.exists(path):
            found, parts = _read(path)
            if resume:
                self._compare(found)
                self.finished = parts.pop("finished", None)
                self._saved = parts
            elif "finished" not in parts:
                raise ValueError(
                    f"{path}: this checkpoint belongs to a training run that has not finished: "
                    "resume it (resume=True, --resume) or delete the file"
                )
        check_writable(path)

    @classmethod
    def of(cls, owner: Any, fingerprint: Mapping[str, str], resume: bool) -> Self:
        """The checkpoint of an estimator; clones, which a search makes, have paths of their own.

        These end in a digest of the fingerprint, so that each of them is found again.
        """
        path = owner.checkpoint
        if path is None:
            if resume:
                raise ValueError(f"'resume' of fit needs a 'checkpoint' of {type(owner).__name__}")
            return cls()
        if owner._cloned:
            path = f"{os.fspath(path)}.{digest(sorted(fingerprint.items()))[:12]}"
        return cls(path, owner.checkpoint_every, fingerprint, resume)

    def part(self, name: str, state: Callable[[], State]) -> State | None:
        """Registers the function that gives a part's state; returns its state in the file, on the first call only.

        Raises ValueError if that is not built as the state which the part has now.
        """
        self._parts[name] = state
        if name not in self._saved:
            return None
        return self._like(state(), name, self._saved.pop(name))

    def restoring(self) -> AbstractContextManager[None]:
        """While a part takes its state from the file: whatever goes wrong then, the file is damaged."""
        return damaged(os.fspath(self.path or ""), "checkpoint")

    def result(self, like: State) -> State | None:
        """What :meth:`finish` was given, if the file is of a training that ended; it must be built as ``like``."""
        return None if self.finished is None else self._like(like, "finished", self.finished)

    def ended(self, build: Callable[[State], T]) -> T | None:
        """What ``build`` makes of what :meth:`finish` was given, if the file is of a training that ended."""
        if self.finished is None:
            return None
        with self.restoring():
            return build(self.finished)

    def _like(self, own: State, name: str, found: Any) -> State:
        if not _alike(found, own):
            raise ValueError(
                f"{self.path}: the checkpoint is damaged: {name!r} is not the state of this kind of training"
            )
        out: State = found
        return out

    def tick(self) -> None:
        """Writes the file, if it is time."""
        if self.path is not None and time.monotonic() - self._last >= self.every:
            self._write({name: state() for name, state in self._parts.items()})

    def finish(self, result: State) -> None:
        """Training has ended well: the file holds its result from now on, and nothing else."""
        if self.path is not None:
            self._write({"finished": result})

    def let_go(self) -> None:
        """Forgets the parts, and with them whatever memory they hold: training is over."""
        self._parts.clear()

    def _write(self, parts: State) -> None:
        assert self.path is not None
        arrays: dict[str, NDArray[Any]] = {}
        tree = _without_arrays(parts, "", arrays)
        write_tensors(self.path, _KEY, {"fingerprint": self.fingerprint, "tree": tree}, arrays)
        self._last = time.monotonic()

    def _compare(self, found: Mapping[str, str]) -> None:
        for name in {**found, **self.fingerprint}:
            then, now = found.get(name), self.fingerprint.get(name)
            if then != now:
                what = f"{name} differ" if " " in name else f"{name!r} was {then}, now it is {now}"
                raise ValueError(f"{self.path}: the checkpoint belongs to another training run: {what}")


def _without_arrays(x: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """The same with names of arrays in their place; the arrays are put under these names."""
    if isinstance(x, np.ndarray):
        arrays[name] = np.asarray(x, order="C")
        return {"array": name}
    if isinstance(x, Mapping):
        return {"dict": {k: _without_arrays(v, f"{name}/{k}", arrays) for k, v in x.items()}}
    if isinstance(x, (list, tuple)):
        return [_without_arrays(v, f"{name}/{k}", arrays) for k, v in enumerate(x)]
    return x


def _with_arrays(x: Any, arrays: Arrays, field: str) -> Any:
    """What :func:`_without_arrays` was given."""
    if isinstance(x, list):
        return [_with_arrays(v, arrays, f"{field}[{k}]") for k, v in enumerate(x)]
    if not isinstance(x, dict):
        return x
    if x.keys() == {"array"}:
        return arrays[text(x["array"], field)]
    inner = record({"dict": record({})}, closed=True)(x, field)["dict"]
    return {k: _with_arrays(v, arrays, f"{field}.{k}") for k, v in inner.items()}


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, str], State]:
    """Fingerprint and states of a file."""
    file = read_tensors(path, _KEY, "checkpoint")
    with damaged(os.fspath(path), "checkpoint"):
        head = record({"fingerprint": record({}), "tree": anything})(file.header, "")
        found = {key: text(x, f"fingerprint.{key}") for key, x in head["fingerprint"].items()}
        parts = _with_arrays(head["tree"], file.arrays, "tree")
        if not isinstance(parts, dict):
            refuse("tree", "an object with named fields", parts)
        if head["format"] == 1 and not _matches_sum(file, parts):
            raise ValueError("it does not match its checksum")
    return found, parts


def _matches_sum(file: TensorFile, parts: State) -> bool:
    """Whether a checkpoint of format 1 is whole: it has one sum of header and arrays, in the order of the tree."""
    order: dict[str, NDArray[Any]] = {}
    _without_arrays(parts, "", order)
    return order.keys() == file.arrays.keys() and digest([file.text, *order.values()]) == file.texts.get("sum")
