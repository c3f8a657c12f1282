"""Names that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def later(package: str, *modules: str, **homes: str) -> Callable[[str], Any]:
    """A package's ``__getattr__``: imports one of its modules, or a name out of its home, when asked for it.

    For what takes long to import or needs an extra.

    >>> later("crfkit", "metrics", evaluate="metrics")("evaluate").__module__
    'crfkit.metrics'
    """

    def get(name: str) -> Any:
        if name not in modules and name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = import_module(f"{package}.{homes.get(name, name)}")
        return getattr(found, name) if name in homes else found

    return get
