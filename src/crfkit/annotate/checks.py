"""Rules of requests: which fields, of which types, how large; a fault is named by its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from crfkit.annotate.documents import AnnotateError
from crfkit.base.parameters import has_lone_surrogate

#: Takes a value and its place in the request, and gives the value back or raises.
Check = Callable[[Any, str], Any]


def text(most: int = 200, least: int = 0) -> Check:
    """A string of ``least`` to ``most`` characters."""

    def check(x: Any, place: str) -> str:
        if not isinstance(x, str) or not least <= len(x) <= most:
            raise _fault(place, f"text of {least} to {most} characters", x)
        if has_lone_surrogate(x):
            raise _fault(place, "text without lone surrogates", x)
        return x

    return check


def whole(least: int = 0, most: int = 2**53) -> Check:
    """An integer in a range; ``true`` is none."""

    def check(x: Any, place: str) -> int:
        if isinstance(x, bool) or not isinstance(x, int) or not least <= x <= most:
            raise _fault(place, f"a whole number from {least} to {most}", x)
        return x

    return check


def number(least: float = 0.0, most: float = 1e9) -> Check:
    """A finite number in a range."""

    def check(x: Any, place: str) -> float:
        if isinstance(x, bool) or not isinstance(x, int | float) or not (math.isfinite(x) and least <= x <= most):
            raise _fault(place, f"a number from {least:g} to {most:g}", x)
        return float(x)

    return check


def flag(x: Any, place: str) -> bool:
    """True or false."""
    if not isinstance(x, bool):
        raise _fault(place, "true or false", x)
    return x


def maybe(check: Check) -> Check:
    """The same, or null."""
    return lambda x, place: None if x is None else check(x, place)


def several(check: Check, most: int = 200_000) -> Check:
    """A list."""

    def check_all(x: Any, place: str) -> list[Any]:
        if not isinstance(x, list) or len(x) > most:
            raise _fault(place, f"a list of at most {most}", x)
        return [check(item, f"{place}[{k}]") for k, item in enumerate(x)]

    return check_all


def pair(x: Any, place: str) -> list[int]:
    """A range of tokens, ``[start, end]``."""
    if not isinstance(x, list) or len(x) != 2:
        raise _fault(place, "a pair [start, end]", x)
    start, end = (whole()(item, f"{place}[{k}]") for k, item in enumerate(x))
    if start >= end:
        raise _fault(place, "a pair [start, end] with start < end", x)
    return [start, end]


def record(required: dict[str, Check] | None = None, **optional: Check) -> Check:
    """An object with these fields and no others."""
    fields = {**(required or {}), **optional}

    def check(x: Any, place: str) -> dict[str, Any]:
        if not isinstance(x, dict):
            raise _fault(place, "an object", x)
        dot = f"{place}." if place else ""
        for name in x:
            if name not in fields:
                known = ", ".join(fields) or "none"
                raise AnnotateError(f"there is no field {f'{dot}{name}'[:100]!r} here; fields: {known}")
        for name in required or ():
            if name not in x:
                raise AnnotateError(f"the field {f'{dot}{name}'!r} is missing")
        return {name: fields[name](value, f"{dot}{name}") for name, value in x.items()}

    return check


def _fault(place: str, rule: str, got: Any) -> AnnotateError:
    shown = repr(got)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return AnnotateError(f"{place!r} must be {rule}, got {shown}" if place else f"the request must be {rule}")
