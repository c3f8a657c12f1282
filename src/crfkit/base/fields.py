"""Rules for checking the fields of a file; an error names the file, the field and what was expected.

A rule is a function of a value and the name of its field. It returns the value, or raises.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import FileError

#: A value and the name of its field to the value.
Rule = Callable[[Any, str], Any]


class ModelError(FileError):
    """A file that is not a model, or is incomplete or damaged."""


@contextmanager
def damaged(name: str, what: str = "model") -> Iterator[None]:
    """Turns errors while something is built from its file into errors that say the file is damaged."""
    try:
        yield
    except ModelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        message = " ".join(str(e).split())  # a line, whatever texts of the file are in it
        raise ModelError(f"{name}: the {what} is damaged: {message}") from e


def refuse(field: str, expected: str, value: Any) -> NoReturn:
    """Raises for a value that is not as expected."""
    raise ValueError(f"{field!r} must be {expected}, got {reprlib.repr(value)}")


def anything(value: Any, field: str) -> Any:
    """Any value."""
    return value


def text(value: Any, field: str) -> str:
    """A str."""
    return value if isinstance(value, str) else refuse(field, "a string", value)


def flag(value: Any, field: str) -> bool:
    """True or False."""
    return value if isinstance(value, bool) else refuse(field, "true or false", value)


def integer(low: int = -(2**63), high: int = 2**63 - 1) -> Rule:
    """An int from low to high.

    >>> integer(0)(None, "info.iterations")
    Traceback (most recent call last):
    ValueError: 'info.iterations' must be an int from 0 to 9223372036854775807, got None
    """

    def rule(value: Any, field: str) -> Any:
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return value if good else refuse(field, f"an int from {low} to {high}", value)

    return rule


def number(low: float = -math.inf, *, strict: bool = False) -> Rule:
    """A finite float (or int) of at least (or, if strict, above) ``low``."""

    def rule(value: Any, field: str) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308
        if not good or value < low or (strict and value == low):
            least = "" if low == -math.inf else f" {'>' if strict else '>='} {low:g}"
            refuse(field, f"a finite number{least}", value)
        return float(value)

    return rule


def one_of(*values: Any) -> Rule:
    """One of a few plain values."""

    def rule(value: Any, field: str) -> Any:
        good = any(value == x and type(value) is type(x) for x in values)
        return value if good else refuse(field, f"one of {', '.join(map(repr, values))}", value)

    return rule


def optional(inner: Rule) -> Rule:
    """None, or as the rule says."""
    return lambda value, field: None if value is None else inner(value, field)


def list_of(inner: Rule, low: int = 0, high: int | None = None) -> Rule:
    """A list of values, each as the rule says."""

    def rule(value: Any, field: str) -> list[Any]:
        if not isinstance(value, list) or len(value) < low or (high is not None and len(value) > high):
            most = f"{low} or more" if high is None else f"{low}" if high == low else f"{low} to {high}"
            refuse(field, f"a list{'' if high is None and low == 0 else f' of {most}'}", value)
        return value if inner is anything else [inner(x, f"{field}[{k}]") for k, x in enumerate(value)]

    return rule


def record(needed: Mapping[str, Rule], known: Mapping[str, Rule] | None = None, *, closed: bool = False) -> Rule:
    """A dict with the fields that are needed, those known that are there, and, unless closed, any others.

    >>> record({"n": integer(1)}, {"name": text})({"n": 1, "name": []}, "layout")
    Traceback (most recent call last):
    ValueError: 'layout.name' must be a string, got []
    """
    rules = {**needed, **(known or {})}

    def rule(value: Any, field: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            refuse(field, "an object with named fields", value)
        prefix = f"{field}." if field else ""
        for key in needed:
            if key not in value:
                raise ValueError(f"{prefix + key!r} is missing")
        if closed and (odd := value.keys() - rules.keys()):
            raise ValueError(f"{prefix + min(odd)[:60]!r} is not known")
        return {key: rules.get(key, anything)(x, f"{prefix}{key}") for key, x in value.items()}

    return rule


def _label(value: Any, field: str) -> Any:
    """A label: a str or a number."""
    if isinstance(value, str) or (isinstance(value, (int, float)) and -(2**63) <= value < 2**63):
        return value
    return refuse(field, "a string or a number", value)


def state_list(value: Any, field: str) -> list[Any]:
    """A list of labels, which may repeat if each occurs equally often: once for each of its hidden states.

    An array of them takes as many characters for each as the longest has, so that one alone may not be very long.
    """
    found: list[Any] = list_of(_label, 1, 65535)(value, field)
    if len(set(Counter(found).values())) > 1:
        raise ValueError(f"each label must occur equally often in {field!r}")
    sizes = [len(x) for x in found if isinstance(x, str)]
    if len(sizes) * max(sizes, default=0) > max(2**22, 16 * sum(sizes)):
        raise ValueError(f"a label in {field!r} is too long: {max(sizes)} characters")
    return found


def label_list(value: Any, field: str) -> list[Any]:
    """A list of different labels."""
    found = state_list(value, field)
    if len(set(found)) != len(found):
        raise ValueError(f"a label occurs twice in {field!r}")
    return found


#: Labels of other tools' models, which take up to a gigabyte when they predict.
MOST_FOREIGN = 2000


def check_pairs(n_labels: int, size: int, most: int = 4096) -> None:
    """Raises if a table of all label pairs would be large, and a file of ``size`` bytes cannot have one.

    A model has such a table, whatever its file has.
    """
    if n_labels**2 > max(most**2, size):
        raise ValueError(f"it has {n_labels} labels in {size} bytes: more than {most} need a byte for each label pair")


#: Numbers of a model in magnitude, so that sums of many are finite in single precision.
LARGEST = 1e30


def all_finite(values: NDArray[np.floating[Any]]) -> bool:
    """Whether numbers of a file are finite, and at most :data:`LARGEST` in magnitude."""
    return not values.size or bool(values.min() >= -LARGEST and values.max() <= LARGEST)  # no NaN


class Arrays(dict[str, NDArray[Any]]):
    """The arrays of a file, by name; one that is missing, or of another type, is an error that names it."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> None:
        super().__init__(arrays)
        self.prefix = prefix

    def __missing__(self, key: str) -> NDArray[Any]:
        raise ValueError(f"the array '{self.prefix}{key}' is missing")

    def group(self, prefix: str) -> Arrays:
        """The arrays whose names begin with a prefix and a dot, without it."""
        whole = f"{prefix}."
        found = {k.removeprefix(whole): v for k, v in self.items() if k.startswith(whole)}
        return Arrays(found, f"{self.prefix}{whole}")

    def parts(self, prefix: str, n: int) -> list[Arrays]:
        """The groups ``prefix.0`` to ``prefix.(n - 1)``, in one pass over the arrays."""
        out = [Arrays({}, f"{self.prefix}{prefix}.{k}.") for k in range(n)]
        number = {f"{prefix}.{k}": part for k, part in enumerate(out)}
        deep = prefix.count(".") + 2
        for name, x in self.items():
            *start, rest = name.split(".", deep)
            if (part := number.get(".".join(start))) is not None:
                part[rest] = x
        return out

    def of_kind(self, key: str, kinds: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array whose type is of one of numpy's kinds (``"f"``, ``"iu"``), with this shape; None: any length."""
        array = self[key]
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if array.dtype.kind not in kinds or not fits:
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            got = f"{array.dtype} {list(array.shape)}"
            raise ValueError(f"the array '{self.prefix}{key}' must be of shape [{wanted}], got {got}")
        return array

    def finite(self, key: str, shape: tuple[int | None, ...], kinds: str = "f") -> NDArray[np.float64]:
        """An array of numbers that may be weights."""
        array = self.of_kind(key, kinds, shape)
        if array.dtype.kind == "f" and not all_finite(array):
            raise ValueError(f"the array '{self.prefix}{key}' must hold finite numbers of at most {LARGEST:g}")
        return np.asarray(array, np.float64)
