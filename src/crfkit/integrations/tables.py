"""Tables of tokens in and out: pandas data frames, Arrow tables, and columns of lists as Hugging Face's data sets have.

Neither pandas nor pyarrow is imported unless a table of theirs is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfkit.data.readers import Labelled
from crfkit.data.sequences import Columns


def _names(table: Any) -> list[str]:
    """Names of the columns of a data frame, an Arrow table, a data set or a dict."""
    names = getattr(table, "column_names", None)
    if names is None:
        names = list(table.keys()) if hasattr(table, "keys") else []
    return [str(name) for name in names]


def _column(table: Any, name: str) -> list[Any]:
    if name not in _names(table):
        raise ValueError(f"the table has no column {name!r}: it has {', '.join(_names(table))}")
    column = table[name]
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _text(values: list[Any], name: str) -> list[str]:
    for i, value in enumerate(values):
        if value is None or value != value:
            raise ValueError(f"column {name!r}, row {i}: there is no value")
    return [str(value) for value in values]


def _cut(flat: Sequence[Any], bounds: Sequence[int]) -> list[list[Any]]:
    return [list(flat[a:b]) for a, b in itertools.pairwise(bounds)]


def from_table(table: Any, columns: Sequence[str] | str, *, label: str | None = None, by: str) -> Labelled:
    """Sequences out of a table with a row for each token.

    Parameters
    ----------
    table : pandas.DataFrame, pyarrow.Table or dict of lists
    columns : str or sequence of str
        What to learn from: the token, its part of speech, ...
    label : str, optional
        Column of the labels.
    by : str
        Column that numbers the sequences; a new one begins where its value changes.

    Returns
    -------
    Labelled
        ``X`` and ``y``, which is None without ``label``.

    Examples
    --------
    >>> table = {"sentence": [1, 1, 2], "word": ["two", "pears", "one"], "tag": ["QTY", "NAME", "QTY"]}
    >>> X, y = from_table(table, "word", label="tag", by="sentence")
    >>> list(X), list(y)
    ([['two', 'pears'], ['one']], [['QTY', 'NAME'], ['QTY']])
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    if not wanted:
        raise ValueError("'columns' of from_table must name at least one column")
    keys = _column(table, by)
    bounds = [0, *(i for i in range(1, len(keys)) if keys[i] != keys[i - 1]), len(keys)] if keys else [0]
    texts = [_text(_column(table, name), name) for name in wanted]
    rows: Sequence[Any] = texts[0] if len(texts) == 1 else list(zip(*texts, strict=True))
    X = Columns.from_sequences(_cut(rows, bounds))
    y = None if label is None else Columns.from_sequences(_cut(_text(_column(table, label), label), bounds))
    return Labelled(X, y)


def from_lists(data: Any, columns: Sequence[str] | str = "tokens", *, label: str | None = None) -> Labelled:
    """Sequences out of columns of lists, as Hugging Face's ``datasets`` have: a row for each sequence.

    Parameters
    ----------
    data : datasets.Dataset, pyarrow.Table, pandas.DataFrame or dict of lists of lists
    columns : str or sequence of str
        Columns with a list of strings for each sequence.
    label : str, optional
        Column of the labels. Numbers become names where the data set knows them.

    Returns
    -------
    Labelled

    Examples
    --------
    >>> data = {"tokens": [["two", "pears"], ["one"]], "ner_tags": [["QTY", "NAME"], ["QTY"]]}
    >>> X, y = from_lists(data, label="ner_tags")
    >>> X[0], y[0]
    (['two', 'pears'], ['QTY', 'NAME'])
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    parts = [[list(tokens) for tokens in _column(data, name)] for name in wanted]
    if not parts:
        raise ValueError("'columns' of from_lists must name at least one column")
    sequences: list[list[Any]] = parts[0]
    if len(parts) > 1:
        sequences = []
        for i, lists in enumerate(zip(*parts, strict=True)):
            if len({len(x) for x in lists}) > 1:
                raise ValueError(f"sequence {i}: the columns {', '.join(wanted)} have lists of different lengths")
            sequences.append(list(zip(*lists, strict=True)))
    X = Columns.from_sequences(sequences)
    if label is None:
        return Labelled(X, None)
    names = _class_names(data, label)
    labels = [[str(x if names is None else names[int(x)]) for x in row] for row in _column(data, label)]
    for i, (a, b) in enumerate(zip(sequences, labels, strict=True)):
        if len(a) != len(b):
            raise ValueError(f"sequence {i}: {len(a)} tokens, but {len(b)} labels in {label!r}")
    return Labelled(X, Columns.from_sequences(labels))


def _class_names(data: Any, label: str) -> list[str] | None:
    """The names of numbered labels, if the data set tells: ``features[label].feature.names``."""
    features: Any = getattr(data, "features", None)
    kind = features.get(label) if hasattr(features, "get") else None
    names = getattr(getattr(kind, "feature", kind), "names", None)
    return None if names is None else list(names)


def to_table(
    X: Any,
    y: Sequence[Sequence[Any]] | None = None,
    *,
    columns: Sequence[str] | None = None,
    label: str = "label",
    by: str = "sequence",
) -> Any:
    """A data frame with a row for each token.

    Parameters
    ----------
    X : sequences of tokens, which are strings or tuples of strings
    y : sequences of labels, optional
    columns : sequence of str, optional
        Names of the columns; ``token``, ``column1``, ... by default.
    label, by : str
        Names of the columns of labels and of the sequences' numbers.

    Returns
    -------
    pandas.DataFrame

    Examples
    --------
    >>> to_table([["two", "pears"], ["one"]], [["QTY", "NAME"], ["QTY"]])  # doctest: +SKIP
       sequence  token label
    0         0    two   QTY
    1         0  pears  NAME
    2         1    one   QTY
    """
    import pandas as pd

    return pd.DataFrame(_lists(X, y, columns, label, by))


def to_arrow(
    X: Any,
    y: Sequence[Sequence[Any]] | None = None,
    *,
    columns: Sequence[str] | None = None,
    label: str = "label",
    by: str = "sequence",
) -> Any:
    """A pyarrow.Table with a row for each token; parameters as for :func:`to_table`."""
    import pyarrow as pa

    return pa.table(_lists(X, y, columns, label, by))


def _lists(
    X: Any, y: Sequence[Sequence[Any]] | None, columns: Sequence[str] | None, label: str, by: str
) -> dict[str, list[Any]]:
    """The columns of a table, by name."""
    lengths = [len(x) for x in X]
    rows = [token if isinstance(token, tuple) else (token,) for x in X for token in x]
    width = len(rows[0]) if rows else 1
    names = list(columns) if columns is not None else ["token", *(f"column{c}" for c in range(1, width))]
    if len(names) != width:
        raise ValueError(f"'columns' must name the {width} columns of the tokens, got {names!r}")
    out: dict[str, list[Any]] = {by: np.repeat(np.arange(len(lengths)), lengths).tolist()}
    out |= {name: [row[c] for row in rows] for c, name in enumerate(names)}
    if y is not None:
        for i, (n, labels) in enumerate(zip(lengths, y, strict=True)):
            if n != len(labels):
                raise ValueError(f"sequence {i}: {n} tokens, but {len(labels)} labels")
        out[label] = [value for labels in y for value in labels]
    return out
