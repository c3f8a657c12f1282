"""Tables of tokens in and out: data frames, Arrow tables, and columns of lists as Hugging Face's data sets have.

Neither pandas nor pyarrow is imported unless a table of theirs is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from crfkit.base.later import needs
from crfkit.base.messages import counted
from crfkit.data.readers import Labelled
from crfkit.data.sequences import Columns

_IGNORED = -100  # the label of tokens that torch's and Hugging Face's losses skip


def _names(table: Any) -> list[str]:
    """Names of the columns of a data frame, an Arrow table, a data set or a dict."""
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is None:
        if not hasattr(table, "keys"):
            kind = type(table).__name__
            raise ValueError(
                f"a table must be a data frame, an Arrow table, a dict of columns or a list of dicts, got {kind}"
            )
        names = table.keys()
    return [str(name) for name in names]


def _column(table: Any, name: str) -> list[Any]:
    if name not in _names(table):
        raise ValueError(f"the table has no column {name!r}: it has {', '.join(_names(table))}")
    column = table[name]
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _is_empty(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, blanks, or pandas' NA, which does not say whether it equals itself."""
    try:
        return value is None or bool(value != value) or (isinstance(value, str) and not value.strip())
    except TypeError:
        return True


def _text(values: list[Any], name: str) -> list[str]:
    for i, value in enumerate(values):
        if _is_empty(value):
            raise ValueError(
                f"column {name!r}, row {i}: the value is missing. (pandas.read_csv takes words such as 'NA' and 'null' "
                "for missing ones, unless keep_default_na=False.)"
            )
    return [str(value) for value in values]


def _keys(values: list[Any], name: str, fill: bool) -> list[Any]:
    """Numbers of the sequences, row by row; empty cells get the value above them if ``fill``."""
    out: list[Any] = []
    for i, value in enumerate(values):
        if not _is_empty(value):
            out.append(value)
        elif not fill:
            raise ValueError(
                f"column {name!r}, row {i}: the value is missing. If a sequence has its number on its first row only, "
                "give fill=True: empty cells then get the value above them"
            )
        elif not out:
            raise ValueError(f"column {name!r}, row 0: the value is missing, and there is none above to fill it with")
        else:
            out.append(out[-1])
    return out


def _groups(keys: list[Any], name: str, repeats: str) -> list[list[int]]:
    """Rows of each sequence; ``repeats`` says what becomes of a key that comes back after another."""
    groups: list[list[int]] = []
    place: dict[Any, int] = {}
    for i, key in enumerate(keys):
        if i and key == keys[i - 1]:
            groups[place[key]].append(i)
        elif key not in place or repeats == "new":
            place[key] = len(groups)
            groups.append([i])
        elif repeats == "group":
            groups[place[key]].append(i)
        else:
            shown = key[0] if len(key) == 1 else key
            raise ValueError(
                f"column {name}, row {i}: the sequence {shown!r} of row {groups[place[key]][-1]} occurs again after "
                "another. Give more columns in 'by', such as document and sentence, or number each sequence anew; "
                "from_table can also put its rows together, repeats='group', or begin a new sequence, repeats='new'"
            )
    return groups


def from_table(
    table: Any,
    columns: Sequence[str] | str,
    *,
    label: str | None = None,
    by: Sequence[str] | str,
    fill: bool = False,
    repeats: str = "error",
) -> Labelled:
    """Sequences from a table with one row per token.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame, pyarrow.Table, dict of lists, or list of dicts
        Rows of a ``csv.DictReader`` are dicts.
    columns : str or sequence of str
        What to learn from: the token, its part of speech, ...
    label : str, optional
        Column of the labels. They become strings; the number -100 is an unknown label, as in :func:`from_lists`.
    by : str or sequence of str
        Column that numbers the sequences, or several, such as document and sentence. A new sequence begins where the
        value changes.
    fill : bool
        Whether an empty cell of ``by`` gets the value above it: for tables that number a sequence on its first row
        only. Otherwise empty cells are an error.
    repeats : {"error", "group", "new"}
        What to do with a value of ``by`` that comes back after another one: raise an error, append to the sequence that
        had it first, or begin a new sequence.

    Returns
    -------
    Labelled
        ``X`` and ``y``, which is None without ``label``.

    Examples
    --------
    >>> table = {"sentence": [1, None, 2], "word": ["two", "pears", "one"], "tag": ["QTY", "NAME", "QTY"]}
    >>> X, y = from_table(table, "word", label="tag", by="sentence", fill=True)
    >>> list(X), list(y)
    ([['two', 'pears'], ['one']], [['QTY', 'NAME'], ['QTY']])
    >>> list(from_table({"s": [1, 2, 1], "word": ["a", "b", "c"]}, "word", by="s", repeats="group").X)
    [['a', 'c'], ['b']]
    """
    wanted = _wanted(columns, label, "from_table")
    rows = list(table) if isinstance(table, (list, Iterator)) else []
    if rows and all(isinstance(row, Mapping) for row in rows):
        table = {name: [row.get(name) for row in rows] for name in rows[0]}
    ids = [by] if isinstance(by, str) else list(by)
    if not ids:
        raise ValueError("'by' of from_table must name at least one column")
    if repeats not in ("error", "group", "new"):
        raise ValueError(f"'repeats' of from_table must be 'error', 'group' or 'new', got {repeats!r}")
    keys = list(zip(*(_keys(_column(table, name), name, fill) for name in ids), strict=True))
    groups = _groups(keys, " and ".join(map(repr, ids)), repeats)

    def cut(flat: Sequence[Any], name: str) -> list[list[Any]]:
        if len(flat) != len(keys):
            raise ValueError(f"column {name!r} has {counted(len(flat), 'row')}, column {ids[0]!r} has {len(keys)}")
        return [[flat[i] for i in rows] for rows in groups]

    texts = [cut(_text(_column(table, name), name), name) for name in wanted]
    X = texts[0] if len(texts) == 1 else [list(zip(*lists, strict=True)) for lists in zip(*texts, strict=True)]
    if label is None:
        return Labelled(Columns.from_sequences(X), None)
    labels = _column(table, label)
    _text(labels, label)
    return Labelled(Columns.from_sequences(X), _labels(cut(labels, label)))


def from_lists(data: Any, columns: Sequence[str] | str = "tokens", *, label: str | None = None) -> Labelled:
    """Sequences from columns of lists, with one row per sequence, as in Hugging Face's ``datasets``.

    Parameters
    ----------
    data : datasets.Dataset, pyarrow.Table, pandas.DataFrame or dict of lists of lists
        Rows are sequences; columns hold lists.
    columns : str or sequence of str
        Columns with a list of strings for each sequence.
    label : str, optional
        Column of the labels. Numbers become names where the data set knows them, else strings. The number -100, which
        Hugging Face's losses skip, is an unknown label, as is None; other numbers that name no label are an error.

    Returns
    -------
    Labelled
        ``X`` and ``y``. Where labels are unknown, ``y`` has lists with None in their places, which
        :meth:`crfkit.CRF.fit` learns from; see there.

    Examples
    --------
    >>> data = {"tokens": [["two", "pears"], ["one"]], "ner_tags": [["QTY", "NAME"], ["QTY"]]}
    >>> X, y = from_lists(data, label="ner_tags")
    >>> X[0], y[0]
    (['two', 'pears'], ['QTY', 'NAME'])
    >>> from_lists({"tokens": [["two", "pears"]], "ner_tags": [[3, -100]]}, label="ner_tags").y
    [['3', None]]
    """
    wanted = _wanted(columns, label, "from_lists")
    parts = [_column_of_lists(data, name) for name in wanted]
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
    rows = _column_of_lists(data, label)
    for i, (a, b) in enumerate(zip(sequences, rows, strict=True)):
        if len(a) != len(b):
            raise ValueError(f"sequence {i}: {counted(len(a), 'token')}, but {counted(len(b), 'label')} in {label!r}")
    return Labelled(X, _labels(rows, names))


def _wanted(columns: Sequence[str] | str, label: str | None, owner: str) -> list[str]:
    """Names of the columns to learn from."""
    wanted = [columns] if isinstance(columns, str) else list(columns)
    if not wanted:
        raise ValueError(f"'columns' of {owner} must name at least one column")
    if label in wanted:
        raise ValueError(f"'columns' of {owner} must not hold the column of the labels, {label!r}")
    return wanted


def _column_of_lists(data: Any, name: str) -> list[list[Any]]:
    """A column of lists."""
    column = _column(data, name)
    for i, row in enumerate(column):
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise ValueError(f"sequence {i}: column {name!r} must hold lists, got {row!r}")
    return [list(row) for row in column]


def _labels(rows: list[list[Any]], names: list[str] | None = None) -> Columns | list[list[str | None]]:
    """Labels as strings; lists with None where some are unknown."""
    labels = [[_label(x, names, i, t) for t, x in enumerate(row)] for i, row in enumerate(rows)]
    return labels if any(x is None for row in labels for x in row) else Columns.from_sequences(labels)


def _label(x: Any, names: list[str] | None, i: int, t: int) -> str | None:
    """The name of a label; None if it is unknown."""
    if _is_empty(x) or (isinstance(x, Real) and x == _IGNORED):
        return None
    if names is None and not (isinstance(x, Real) and x < 0):
        return str(x)
    if names is not None and x in range(len(names)):
        return names[int(x)]
    known = "numbers >= 0" if names is None else f"0 to {len(names) - 1}"
    raise ValueError(
        f"sequence {i}, position {t}: there is no label {x!r}: numbered labels are {known}, or {_IGNORED} if unknown"
    )


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
    """A data frame with one row per token.

    Parameters
    ----------
    X : sequences of tokens, which are strings or tuples of strings
        The tokens, one row for each.
    y : sequences of labels, optional
        Their labels, a further column.
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
    with needs("to_table", "pandas", "tables"):
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
    """A pyarrow.Table with one row per token; parameters as for :func:`to_table`."""
    with needs("to_arrow", "pyarrow", "tables"):
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
        raise ValueError(f"'columns' must name {counted(width, 'column')} of the tokens, got {names!r}")
    out: dict[str, list[Any]] = {by: np.repeat(np.arange(len(lengths)), lengths).tolist()}
    out |= {name: [row[c] for row in rows] for c, name in enumerate(names)}
    if y is not None:
        for i, (n, labels) in enumerate(zip(lengths, y, strict=True)):
            if n != len(labels):
                raise ValueError(f"sequence {i}: {counted(n, 'token')}, but {counted(len(labels), 'label')}")
        out[label] = [value for labels in y for value in labels]
    return out
