"""Labelling column files of any size: pieces on several threads, written in their order, in constant memory.

::

    read, cut at blank lines -> parse, expand templates, score, decode, write as text -> in order to the output
    one thread                  one thread a piece, the interpreter's lock released

A few pieces of half a megabyte are in memory at a time, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from crfkit import _core
from crfkit.base.threads import ordered, resolve_threads
from crfkit.chain.inference import decode_flat, marginals
from crfkit.data.labels import by_label
from crfkit.data.readers import Source, TextPiece, cut_text, feed, find_separator, source_name
from crfkit.data.sequences import Columns, Items
from crfkit.model.chain_model import ChainModel

_PIECE = 1 << 19


class Tagged(NamedTuple):
    """A piece of labelled text: the lines, and how many sequences and tokens they hold."""

    text: bytes
    sequences: int
    tokens: int


def iter_items(source: Source) -> Iterator[Items]:
    """Reads CRFsuite's format piece by piece, a few megabytes at a time; sequences are never split, labels are skipped.

    Examples
    --------
    >>> import io
    >>> sum(len(part) for part in iter_items(io.BytesIO(b"A\\ta\\n\\nB\\tb\\n")))
    2
    """
    for text in cut_text(source, _PIECE):
        builder = _core.ItemBuilder()
        feed(builder, text.data, text.line, source_name(source))
        names, offsets, ptr, attr, value, *_ = builder.take()
        if len(offsets) > 1:
            yield Items(names, offsets, ptr, attr, value)


class _Worker:
    """Labels pieces; knows the layout of the file from its first piece."""

    def __init__(
        self,
        model: ChainModel,
        name: str,
        select: Callable[[Columns], Columns],
        comment: str,
        document: str,
        probabilities: bool,
    ) -> None:
        self.model = model
        self.name = name
        self.select = select
        self.options = (comment, document)
        self.probabilities = probabilities
        self.labels = [str(x) for x in model.labels]
        self.of_state = np.array([model.distinct_labels.index(x) for x in model.labels])
        self.separator = ""
        self.n_columns = 0
        self.dtype = np.float64 if probabilities else None

    def look(self, text: TextPiece) -> None:
        """Finds the column separator, from the first line that has one."""
        self.separator = find_separator(text.data, self.options[0])

    def __call__(self, text: TextPiece, n_jobs: int = 1) -> Tagged:
        builder = _core.ColumnBuilder(self.separator or "blank", *self.options, False, self.n_columns)
        feed(builder, text.data, text.line, self.name)
        table = Columns.from_builder(builder)
        if len(table) == 0:
            return Tagged(b"", 0, 0)
        self.n_columns = table.n_columns
        paths, chances = [], []
        for p in self.model.potentials(self.select(table), n_jobs, self.dtype):
            paths.append(decode_flat(p, n_jobs))
            if self.probabilities:
                nodes = by_label(marginals(p, n_jobs).nodes, self.labels)
                chances.append(nodes[np.arange(len(nodes)), self.of_state[paths[-1]]].astype(np.float64))
        path, chance = np.concatenate(paths), np.concatenate(chances) if chances else None
        out = _core.write_columns(table.strings, table.ids, table.offsets, path, self.labels, chance)
        return Tagged(out, len(table), len(path))


def tag_columns(
    model: ChainModel,
    source: Source,
    *,
    select: Callable[[Columns], Columns] = lambda table: table,
    comment: str = "",
    document: str = "-DOCSTART-",
    probabilities: bool = False,
    n_jobs: int | None = 1,
) -> Iterator[Tagged]:
    """Labels a column file piece by piece, in the order of the file.

    Parameters
    ----------
    model : ChainModel
    source : path, "-" for standard input, or binary file
    select : callable
        Selects the columns that the model uses from those of the file.
    comment, document : str
        As for :func:`crfkit.data.read_columns`.
    probabilities : bool
        Whether to write the probability of each label after it.
    n_jobs : int, optional

    Yields
    ------
    Tagged
        Lines of the columns and the label, separated by tabs; a blank line after each sequence.

    Examples
    --------
    >>> import io
    >>> from crfkit import CRF
    >>> crf = CRF().fit([["one", "pear"]], [["QTY", "NAME"]])
    >>> [piece] = tag_columns(crf.model_, io.BytesIO(b"one\\npear\\n"))
    >>> piece.text
    b'one\\tQTY\\npear\\tNAME\\n\\n'
    """
    threads = resolve_threads(n_jobs)
    worker = _Worker(model, source_name(source), select, comment, document, probabilities)
    model.scorer(threads, worker.dtype)  # made once, before several threads ask for it
    pieces = cut_text(source, _PIECE)
    for first in pieces:
        worker.look(first)
        tagged = worker(first, threads)
        yield tagged
        if tagged.tokens:
            break
    if threads == 1 or source == "-":  # a pipe is answered as soon as it says something
        for text in pieces:
            yield worker(text, threads)
        return
    yield from ordered(worker, pieces, threads)
