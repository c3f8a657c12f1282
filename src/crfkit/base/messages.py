"""Warnings, and the log ``crfkit``, which is silent unless the user configures it."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")
_LONG_WORD = re.compile(r"(\S{40})\S{240,}(\S{20})")

#: Progress at INFO, warnings at WARNING.
log = logging.getLogger("crfkit")
log.addHandler(logging.NullHandler())


def counted(n: int, noun: str, form: str = "") -> str:
    """A count with its noun, singular or plural; ``form`` is a format specification for the number.

    >>> counted(1, "pass"), counted(2, "pass"), counted(0, "token")
    ('1 pass', '2 passes', '0 tokens')
    """
    return f"{n:{form}} {noun}{'' if n == 1 else 'es' if noun.endswith('s') else 's'}"


def are_counted(n: int, noun: str) -> str:
    """The same with its verb.

    >>> are_counted(1, "graph"), are_counted(2, "graph")
    ('is 1 graph', 'are 2 graphs')
    """
    return f"{'is' if n == 1 else 'are'} {counted(n, noun)}"


def is_watched(verbose: bool = False) -> bool:
    """Whether anybody would see a line of progress."""
    return verbose or log.isEnabledFor(logging.INFO)


def show(progress: object, verbose: bool = False) -> None:
    """A line of progress: in the log, and on standard error if ``verbose``."""
    log.info("%s", progress)
    if verbose:
        print(progress, file=sys.stderr, flush=True)


class FileError(ValueError):
    """An error in a file. It may quote the file, so long words are abbreviated, and so is what is long after all.

    >>> FileError("f.txt:3: there is no label " + "x" * 1000)
    FileError('f.txt:3: there is no label xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxx')
    """

    def __init__(self, message: str = "") -> None:
        place, colon, text = message.partition(": ")  # a path is left as it is
        if not colon:
            place, text = "", message
        text = text if len(text) <= 1000 else f"{text[:700]}...{text[-200:]}"
        super().__init__(place + colon + _LONG_WORD.sub(r"\1...\2", text))


class NotFittedError(ValueError, AttributeError):
    """Raised if ``fit`` has not been called; stands in for scikit-learn's error if that is not installed."""


class ConvergenceWarning(UserWarning):
    """Training or inference ended early; stands in for scikit-learn's warning if that is not installed."""


def _scikit_learns(name: str, otherwise: type[T]) -> type[T]:
    """A class of sklearn.exceptions if there is one; imported only here, because that takes a second."""
    try:
        found: type[T] = getattr(import_module("sklearn.exceptions"), name)
    except ModuleNotFoundError:
        return otherwise
    return found


def not_fitted(thing: object) -> ValueError:
    """The error for what needs ``fit`` first: scikit-learn's, if it is installed."""
    return _scikit_learns("NotFittedError", NotFittedError)(
        f"This {type(thing).__name__} instance is not fitted yet. "
        "Call 'fit' with appropriate arguments before using this estimator."
    )


def warn(text: str, category: type[Warning] | None = None, stacklevel: int = 2) -> None:
    """A warning, which is in the log too; by default a ConvergenceWarning."""
    category = category or _scikit_learns("ConvergenceWarning", ConvergenceWarning)
    log.warning("%s", text)
    warnings.warn(text, category, stacklevel=stacklevel + 1)
