"""Columns as Wapiti reads them: blanks between, lines may have more columns than the patterns look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from crfkit.compat.wapiti.options import Failure
from crfkit.data.sequences import Columns

_PIECE = 1 << 20


@dataclass
class Text:
    """Sequences: their lines as they came, and the number of the first of them."""

    sequences: list[list[bytes]] = field(default_factory=list)
    first: list[int] = field(default_factory=list)


def read_text(file: IO[bytes]) -> Iterator[Text]:
    """All sequences that are there, as soon as they are whole: a blank line ends one.

    >>> import io
    >>> [text.sequences for text in read_text(io.BytesIO(b"a x\\n\\n\\nb y\\nc z"))]
    [[[b'a x']], [[b'b y', b'c z']]]
    """
    read = getattr(file, "read1", file.read)
    rest = b""
    lines: list[bytes] = []
    number = 0  # of the line before
    while piece := read(_PIECE):
        *whole, rest = (rest + piece).split(b"\n")
        out = Text()
        for line in whole:
            number += 1
            if line.strip():
                lines.append(line)
            elif lines:
                out.sequences.append(lines)
                out.first.append(number - len(lines))
                lines = []
        if out.sequences:
            yield out
    if rest.strip():
        number += 1
        lines.append(rest)
    if lines:
        yield Text([lines], [number + 1 - len(lines)])


def split_columns(text: Text, n_columns: int, labelled: bool, name: str) -> tuple[Columns, list[list[str]]]:
    """The first columns of all lines; and the last, which are labels, where there are any.

    Raises
    ------
    Failure
        With file and line, if a line has too few columns or is not valid UTF-8.
    """
    rows: list[list[Any]] = []
    labels: list[list[str]] = []
    for first, lines in zip(text.first, text.sequences, strict=True):
        row, gold = [], []
        for number, line in enumerate(lines, first):
            try:
                cells = split_line(line)
            except UnicodeDecodeError:
                raise Failure(f"{name}:{number}: not valid UTF-8") from None
            if labelled and cells:
                gold.append(cells.pop())
            if len(cells) < n_columns:
                raise Failure(f"{name}:{number}: missing tokens, cannot apply pattern: {len(cells)} of {n_columns}")
            row.append(tuple(cells[:n_columns]) or ("",))
        rows.append(row)
        labels.append(gold)
    return Columns.from_sequences(rows), labels


def split_line(line: bytes) -> list[str]:
    """Splits at ASCII blanks only; other blanks are part of a string."""
    return [cell.decode("utf-8") for cell in line.split()]
