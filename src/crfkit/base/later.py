"""Names that are imported when they are first asked for, and packages that may not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def needs(what: str, package: str, extra: str) -> Iterator[None]:
    """Around the imports of a package that an extra installs; if it is missing, the error names the extra.

    >>> with needs("a plot", "matplotlib", "plot"):
    ...     import no_such_package
    Traceback (most recent call last):
    ImportError: a plot needs matplotlib: pip install 'crfkit[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as e:
        raise ImportError(f"{what} needs {package}: pip install 'crfkit[{extra}]'") from e
