"""How records look in a terminal and in a notebook: a line or a small table, never the contents of arrays."""

from __future__ import annotations

import html
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

_MOST = 80  # characters of a value


def shown(value: Any) -> str:
    """A value in a few words: arrays by type and shape, what is long by its beginning.

    >>> shown(np.zeros((3, 4))), shown({"a": 1}), shown(list(range(1000)))
    ('<float64 [3, 4]>', "{'a': 1}", '<list of 1000>')
    """
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {list(value.shape)}>"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple, Mapping)):
        text = repr(value) if len(value) <= 20 else ""
        return text if 0 < len(text) <= _MOST else f"<{type(value).__name__} of {len(value)}>"
    text = repr(value)
    return text if len(text) <= _MOST else reprlib.repr(value)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values with a title."""
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(k)}</th><td style="text-align:left">{html.escape(v)}</td></tr>'
        for k, v in rows
    )
    return f'<table class="crfkit"><caption style="text-align:left">{html.escape(title)}</caption>{cells}</table>'


class Record:
    """Base of dataclasses (with ``repr=False``) that show their fields in abbreviated form."""

    def _shown(self) -> dict[str, str]:
        return {f.name: shown(getattr(self, f.name)) for f in fields(self) if f.repr}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self._shown().items())})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._shown().items())
