"""What the room's parts hand to each other: sentences with their source, and errors."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


class AnnotateError(ValueError):
    """A request that cannot be served: the message is one line for the person who asked.

    Attributes
    ----------
    status : int
        The HTTP status that says the same: 4xx for a mistake of the caller, 5xx for one of ours or the machine's.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Document:
    """A sentence of the pool, as an import format made it and an export format gets it back.

    Attributes
    ----------
    text : str
    tokens : list of (int, int)
        Where each token begins and ends in ``text``; white space only lies between them.
    columns : list of lists of str, or None
        Further columns, one list per token, of files that have some.
    labels : list of str or None, or None
        Labels that the file has (BIO in span tasks), None for tokens without; None if there are none at all.
    source : dict
        What the format needs to write the sentence back byte for byte; plain JSON.
    """

    text: str
    tokens: list[tuple[int, int]]
    columns: list[list[str]] | None = None
    labels: list[str | None] | None = None
    source: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def words(self) -> list[str]:
        """The tokens themselves; the same object for the same word, since a pool has most of them many times."""
        return [sys.intern(self.text[a:b]) for a, b in self.tokens]
