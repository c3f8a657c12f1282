"""A sequence of items, converted once and used many times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crfkit.data.sequences import Items


def as_text(x: Any) -> Any:
    """Bytes (or a bytearray) as the text in UTF-8 that they are, or else in Latin-1; anything else as it is."""
    if not isinstance(x, (bytes, bytearray)):
        return x
    try:
        return x.decode("utf-8")
    except UnicodeDecodeError:
        return x.decode("latin-1")


class ItemSequence:
    """A sequence of items, converted once and used many times.

    An item is a list, set, array or other sized iterable of attributes, or a dict of attributes and values:
    ``{"a": 2.0}``, ``{"a": "b"}`` for the attribute ``a:b``, ``{"a": {"b": 1.0}}`` and ``{"a": ["b", "c"]}`` for
    ``a:b`` and ``a:c``. Names and values may be bytes, in UTF-8 or else in Latin-1. As in the original, a mapping that
    is not a dict is treated as the iterable of its keys.

    Examples
    --------
    >>> ItemSequence([{"a": 2.0, "b": {"c", }}, ["d"]]).items()
    [{'a': 2.0, 'b:c': 1.0}, {'d': 1.0}]
    """

    def __init__(self, pyseq: Iterable[Any] | ItemSequence) -> None:
        if isinstance(pyseq, ItemSequence):
            self._items: Items = pyseq._items
        else:
            self._items = Items.from_sequences([list(pyseq)], keep_zeros=True)

    def items(self) -> list[dict[str, float]]:
        """The items as plain dicts."""
        return self._items[0]

    def __len__(self) -> int:
        return int(self._items.offsets[-1])

    def __repr__(self) -> str:
        return f"<ItemSequence of size {len(self)}>"
