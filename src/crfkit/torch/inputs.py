"""Sequences as batches of tensors: dense vectors, tokens, sparse features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crfkit import _core
from crfkit.base.fields import Arrays, anything, flag, integer, list_of, number, one_of, record, text
from crfkit.base.parameters import check_text
from crfkit.features.encoders import Encoder, make_encoder
from crfkit.features.restoring import restore_encoder

__all__: list[str] = []

#: Characters of a word that count.
_LETTERS = 32


class Reader(Protocol):
    """Turns sequences into padded tensors."""

    kind: str

    def fit(self, X: Sequence[Any]) -> None:
        """Learns the vocabulary, or the size of the vectors."""

    def prepare(self, X: Sequence[Any]) -> list[Any]:
        """What a batch is made of, sequence by sequence."""

    def batch(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """Padded tensors with ``mask`` [B, T]."""

    def config(self) -> dict[str, Any]:
        """What JSON can hold."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rest."""


def _mask(lengths: Sequence[int]) -> Tensor:
    n = torch.tensor(lengths)
    return torch.arange(max(lengths, default=0))[None] < n[:, None]


class Dense:
    """Vectors: an array [T, D] for each sequence.

    Examples
    --------
    >>> import numpy as np
    >>> reader = Dense()
    >>> reader.fit([np.zeros((2, 3))])
    >>> reader.batch(reader.prepare([np.zeros((2, 3)), np.zeros((1, 3))]))["mask"].tolist()
    [[True, True], [True, False]]
    """

    kind = "dense"

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def fit(self, X: Sequence[Any]) -> None:
        """Takes the size of the vectors from the first sequence that has any."""
        for i, x in enumerate(X):
            if np.ndim(x) == 2 and len(x):
                self.size = int(np.shape(x)[1])
                return
            if len(x):
                raise ValueError(f"sequence {i} must be an array [T, D], got shape {np.shape(x)}")
        raise ValueError("there are no tokens to learn from")

    def prepare(self, X: Sequence[Any]) -> list[Any]:
        """Float32 tensors [T, D]."""
        out = []
        for i, x in enumerate(X):
            a = np.asarray(x, np.float32)
            if a.size == 0:
                a = a.reshape(0, self.size)
            if a.ndim != 2 or a.shape[1] != self.size:
                raise ValueError(f"sequence {i} must be an array [T, {self.size}], got shape {a.shape}")
            out.append(torch.from_numpy(np.array(a)))
        return out

    def batch(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """``x`` [B, T, D] and ``mask``."""
        return {
            "x": torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True),
            "mask": _mask([len(r) for r in rows]),
        }

    def config(self) -> dict[str, Any]:
        """The size."""
        return {"size": self.size}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """None."""
        return {}


def _words(X: Sequence[Any]) -> Iterator[Sequence[str]]:
    """The sequences, whose tokens must be strings."""
    for i, sequence in enumerate(X):
        for t, token in enumerate(sequence):
            if not isinstance(token, str):
                raise ValueError(f"sequence {i}, position {t}: a token must be a str, got {type(token).__name__}")
            check_text(token, f"sequence {i}, position {t}: a token")
        yield sequence


class Tokens:
    """Token strings, as the numbers of words, affixes and characters; 0 is padding, 1 is unknown.

    Examples
    --------
    >>> reader = Tokens(affixes=(-2,), characters=True)
    >>> reader.fit([["walking", "talking"]])
    >>> reader.batch(reader.prepare([["walking", "xng"]]))["ids"].tolist()
    [[[3, 2], [1, 2]]]
    """

    kind = "tokens"

    def __init__(
        self,
        affixes: Sequence[int] = (),
        characters: bool = False,
        min_freq: float = 0,
        lower: bool = False,
        tables: Sequence[Sequence[str]] = (),
        alphabet: Sequence[str] = (),
    ) -> None:
        self.affixes, self.characters = tuple(affixes), characters
        self.min_freq, self.lower = min_freq, lower
        self._adopt(tables, alphabet)

    def _adopt(self, tables: Sequence[Sequence[str]], alphabet: Sequence[str]) -> None:
        # a file may hold a word twice: no number is then above the size of the table
        self.tables = [{w: i + 2 for i, w in enumerate(dict.fromkeys(words))} for words in tables]
        self.alphabet = {c: i + 2 for i, c in enumerate(dict.fromkeys(alphabet))}

    def _parts(self, token: str) -> list[str]:
        word = token.lower() if self.lower else token
        return [word, *(word[:n] if n > 0 else word[n:] for n in self.affixes)]

    def fit(self, X: Sequence[Any]) -> None:
        """Collects words, affixes and characters."""
        counts: list[Counter[str]] = [Counter() for _ in range(1 + len(self.affixes))]
        letters: Counter[str] = Counter()
        for sequence in _words(X):
            for token in sequence:
                for count, part in zip(counts, self._parts(token), strict=True):
                    count[part] += 1
                letters.update(token)
        self._adopt(
            [sorted(w for w, n in count.items() if n >= self.min_freq) for count in counts],
            sorted(letters) if self.characters else [],
        )

    def prepare(self, X: Sequence[Any]) -> list[Any]:
        """Ids [T, tables] and the characters' numbers."""
        out = []
        for sequence in _words(X):
            ids = [[t.get(p, 1) for t, p in zip(self.tables, self._parts(w), strict=True)] for w in sequence]
            out.append(
                (torch.tensor(ids, dtype=torch.long).reshape(len(ids), len(self.tables)), self._letters(sequence))
            )
        return out

    def _letters(self, sequence: Sequence[str]) -> Tensor | None:
        """Numbers of the characters [T, C], as far as they count."""
        if not self.characters:
            return None
        words = [[self.alphabet.get(c, 1) for c in w[:_LETTERS]] for w in sequence]
        out = torch.zeros(len(words), max((len(w) for w in words), default=0), dtype=torch.long)
        for row, word in zip(out, words, strict=True):
            row[: len(word)] = torch.tensor(word)
        return out

    def batch(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """``ids`` [B, T, tables], ``characters`` [B, T, C] and ``mask``."""
        ids = [r[0] for r in rows]
        out = {"ids": torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), "mask": _mask([len(r) for r in ids])}
        if self.characters:
            longest = max((r[1].shape[1] for r in rows), default=0)
            # whole eights, so that shapes repeat
            grid = torch.zeros(*out["mask"].shape, max(8, -(-longest // 8) * 8), dtype=torch.long)
            for place, (_, letters) in zip(grid, rows, strict=True):
                place[: letters.shape[0], : letters.shape[1]] = letters
            out["characters"] = grid
        return out

    def config(self) -> dict[str, Any]:
        """Settings and characters."""
        return {
            "affixes": list(self.affixes),
            "characters": self.characters,
            "min_freq": self.min_freq,
            "lower": self.lower,
            "alphabet": list(self.alphabet),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The words and affixes: ``tables.K.bytes`` and ``tables.K.ends``."""
        out: dict[str, NDArray[Any]] = {}
        for k, words in enumerate(self.tables):
            table = _core.StringTable()
            for word in words:
                table.add(word)
            out[f"tables.{k}.bytes"], out[f"tables.{k}.ends"] = table.arrays()
        return out


class Sparse:
    """Attributes by crfkit's encoders: templates, dicts, lists of names, functions.

    Examples
    --------
    >>> reader = Sparse()
    >>> reader.fit([[{"a": 1.0}, {"b": 2.0}]])
    >>> reader.batch(reader.prepare([[{"b": 2.0, "c": 1.0}]]))["value"].tolist()
    [2.0]
    """

    kind = "features"

    def __init__(self, features: Any = "auto", encoder: Encoder | None = None) -> None:
        self.features, self.encoder = features, encoder

    def fit(self, X: Sequence[Any]) -> None:
        """Learns the attributes."""
        self.encoder = make_encoder(self.features, X)
        self.encoder.encode(X, True, -1)

    @property
    def size(self) -> int:
        """Number of attributes."""
        assert self.encoder is not None
        return self.encoder.n_attributes[0]

    def prepare(self, X: Sequence[Any]) -> list[Any]:
        """Attributes, values and number of attributes of each token."""
        assert self.encoder is not None
        data = self.encoder.encode(X, False, -1)
        value = np.ones(len(data.attr)) if data.value is None else data.value
        out = []
        for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            span = slice(data.ptr[a], data.ptr[b])
            attr, v = data.attr[span].astype(np.int64), value[span]
            token = np.repeat(np.arange(b - a), np.diff(data.ptr[a : b + 1]))
            known = attr < self.size
            out.append((attr[known], v[known], np.bincount(token[known], minlength=b - a)))
        return out

    def batch(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """``attr``, ``value`` and ``ptr`` of all tokens, and ``mask``."""
        counts = np.concatenate([r[2] for r in rows])
        ptr = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else np.zeros(0)
        return {
            "attr": torch.from_numpy(np.concatenate([r[0] for r in rows])),
            "value": torch.from_numpy(np.concatenate([r[1] for r in rows]).astype(np.float32)),
            "ptr": torch.from_numpy(ptr.astype(np.int64)),
            "mask": _mask([len(r[2]) for r in rows]),
        }

    def config(self) -> dict[str, Any]:
        """The encoder's."""
        assert self.encoder is not None
        return {"encoder": self.encoder.config()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The encoder's."""
        assert self.encoder is not None
        return dict(self.encoder.arrays())


def make_reader(kind: str, X: Sequence[Any], settings: dict[str, Any]) -> Reader:
    """The reader for ``NeuralCRF(inputs=...)``; ``"auto"`` looks at the first token."""
    if kind == "auto":
        first = next((token for sequence in X for token in sequence), None)
        if isinstance(first, str):
            kind = "tokens"
        elif isinstance(first, (dict, list, set, tuple)) and not _numbers(first):
            kind = "features"
        else:
            kind = "dense"
    if kind == "tokens":
        return Tokens(settings["affixes"], settings["character_size"] > 0, settings["min_freq"], settings["lower"])
    return Sparse(settings["features"]) if kind == "features" else Dense()


def _numbers(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and all(isinstance(v, (int, float, np.number)) for v in x)


_TOKENS = record(
    {
        "affixes": list_of(integer(-(2**31), 2**31)),
        "characters": flag,
        "min_freq": number(0),
        "lower": flag,
        "alphabet": list_of(text),
    },
    closed=True,
)


def restore_reader(head: dict[str, Any], arrays: Arrays, features: Any) -> Reader:
    """A reader from what a file says of it, and its arrays."""
    kind, config = one_of("tokens", "dense", "features")(head["kind"], "reader.kind"), head["config"]
    if kind == "tokens":
        tables = config.pop("tables", None) if isinstance(config, dict) else None  # where earlier versions wrote them
        own = _TOKENS(config, "reader.config")
        if tables is None:
            names = [f"tables.{k}" for k in range(1 + len(own["affixes"]))]
            tables = [_core.StringTable.from_arrays(arrays[f"{x}.bytes"], arrays[f"{x}.ends"]).tolist() for x in names]
        elif len(list_of(list_of(text))(tables, "reader.config.tables")) != 1 + len(own["affixes"]):
            raise ValueError("'reader.config.tables' must be one for words and one for each of the affixes")
        return Tokens(**own, tables=tables)
    if kind == "dense":
        return Dense(**record({"size": integer(0, 2**31)}, closed=True)(config, "reader.config"))
    encoder = record({"encoder": anything})(config, "reader.config")["encoder"]
    return Sparse(features, restore_encoder(encoder, arrays, features))
