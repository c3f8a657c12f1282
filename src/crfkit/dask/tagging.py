"""Labelling files on a cluster, piece by piece, in their order."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from crfkit.dask.sources import Piece, cut_file
from crfkit.data.readers import DataError
from crfkit.data.sequences import Columns
from crfkit.model.chain_model import ChainModel
from crfkit.model.streaming import Tagged, tag_columns

_PIECE = 1 << 23


class _Text(io.BytesIO):
    """Text of a file that messages name."""

    def __init__(self, text: bytes, name: str) -> None:
        super().__init__(text)
        self.name = name


def tag_file(
    client: Any,
    model: ChainModel,
    path: str,
    select: Callable[[Columns], Columns],
    comment: str = "",
    probabilities: bool = False,
) -> Iterator[Tagged]:
    """Labels a column file that all workers see, as :func:`crfkit.model.streaming.tag_columns` does.

    A few pieces per thread are on their way at a time, whatever the size of the file.
    """
    held = client.scatter(model, hash=False, broadcast=True)
    waiting: deque[Any] = deque()
    for k, piece in enumerate(cut_file(path, _PIECE)):
        key = f"crfkit-tag-{held.key}-{k}"
        waiting.append(client.submit(tag_piece, held, piece, select, comment, probabilities, key=key))
        if len(waiting) > 2 * sum(client.nthreads().values()) + 2:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def tag_piece(
    model: ChainModel, piece: Piece, select: Callable[[Columns], Columns], comment: str, probabilities: bool
) -> Tagged:
    """The labelled text of a piece of a file."""

    def tagged(text: bytes) -> Tagged:
        found = list(
            tag_columns(model, _Text(text, piece.path), select=select, comment=comment, probabilities=probabilities)
        )
        text = b"".join(x.text for x in found)
        return Tagged(text, sum(x.sequences for x in found), sum(x.tokens for x in found))

    if piece.begin is None:
        with open(piece.path, "rb") as file:
            return tagged(file.read())
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        text = file.read(piece.end - piece.begin)
        try:
            return tagged(text)
        except DataError:  # lines are counted only to be named
            file.seek(0)
            return tagged(b"\n" * file.read(piece.begin).count(b"\n") + text)
