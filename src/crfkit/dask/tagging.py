"""Labelling files on a cluster, piece by piece, in their order."""

from __future__ import annotations

import io
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from crfkit.dask.sources import Piece, cut_file
from crfkit.data.readers import DataError, Source
from crfkit.model.chain_model import ChainModel
from crfkit.model.streaming import Tagged, tag_columns

_PIECE = 1 << 23

#: Labels a source, which is a path or a part of a file, with a model.
Label = Callable[[Any, Source], Tagged]


class _Text(io.BytesIO):
    """Text of a file that messages name."""

    def __init__(self, text: bytes, name: str) -> None:
        super().__init__(text)
        self.name = name


def tag_file(client: Any, model: Any, path: str, label: Label) -> Iterator[Tagged]:
    """Labels a file that all workers see and whose sequences end at blank lines, in its order.

    A few pieces per thread are on their way at a time, whatever the size of the file.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # a task comes back when its worker is lost
        held = client.submit(_same, model, pure=False)
    waiting: deque[Any] = deque()
    for k, piece in enumerate(cut_file(path, _PIECE)):
        key = f"crfkit-tag-{held.key}-{k}"
        waiting.append(client.submit(tag_piece, held, piece, label, key=key))
        if len(waiting) > 2 * sum(client.nthreads().values()) + 2:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _same(model: Any) -> Any:
    return model


def tag_piece(model: Any, piece: Piece, label: Label) -> Tagged:
    """The labelled text of a piece of a file."""
    if piece.begin is None:
        return label(model, piece.path)
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        text = file.read(piece.end - piece.begin)
        try:
            return label(model, _Text(text, piece.path))
        except DataError:  # lines are counted only to be named
            file.seek(0)
            return label(model, _Text(b"\n" * file.read(piece.begin).count(b"\n") + text, piece.path))


def tag_text(model: ChainModel, source: Source, **how: Any) -> Tagged:
    """What :func:`crfkit.model.streaming.tag_columns` gives, in one."""
    found = list(tag_columns(model, source, **how))
    return Tagged(b"".join(x.text for x in found), sum(x.sequences for x in found), sum(x.tokens for x in found))
