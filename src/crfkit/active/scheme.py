"""The labels that people use, and those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.chain.constraints import Constraints

Allowed = NDArray[np.bool_]


class Scheme:
    """Names of labels as people use them, and the labels of the model: BIO for spans, the names themselves for tokens.

    Parameters
    ----------
    names : sequence of str
        Types of spans, or labels of tokens.
    spans : bool

    Examples
    --------
    >>> Scheme(["PER"], spans=True).labels
    ('O', 'B-PER', 'I-PER')
    """

    def __init__(self, names: Sequence[str], spans: bool) -> None:
        self.names = tuple(names)
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"'labels' must differ from each other, got {list(names)}")
        self.spans = spans
        pairs = [f"{tag}-{name}" for name in self.names for tag in "BI"]
        self.labels: tuple[str, ...] = ("O", *pairs) if spans else self.names
        self.constraints = Constraints.from_scheme(self.labels, "bio") if spans else None
        self.number = {label: i for i, label in enumerate(self.labels)}

    @classmethod
    def of_model(cls, labels: Sequence[Any], constraints: Constraints | None) -> Scheme:
        """The labels of a model, whatever they are: each token has one."""
        scheme = cls((), spans=False)
        scheme.names = scheme.labels = tuple(labels)
        scheme.number = {label: i for i, label in enumerate(labels)}
        scheme.constraints = constraints
        return scheme

    def kind(self, label: int) -> str | None:
        """The name that a number of the model stands for; None for outside."""
        if not self.spans:
            return self.names[label]
        return None if label == 0 else self.names[(label - 1) // 2]

    def anything(self, length: int) -> Allowed:
        """Nothing is known, [T, L]."""
        return np.ones((length, len(self.labels)), bool)

    def allowed(self, length: int, spans: Sequence[tuple[int, int, str | None]], judged: Any, old: Allowed) -> Allowed:
        """What is known after an answer, [T, L].

        Parameters
        ----------
        length : int
            Tokens of the sequence.
        spans : sequence of (start, end, name)
            ``name`` is None for tokens that are outside all spans.
        judged : sequence of (start, end)
            Ranges of tokens that the person confirms: outside, where no span is; spans are among them in any case.
        old : bool array [T, L]
            What was known before; new answers win.

        Examples
        --------
        >>> s = Scheme(["X"], spans=True)
        >>> s.allowed(4, [(1, 3, "X")], [(0, 3)], s.anything(4)).astype(int).tolist()
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]
        """
        new = np.full(length, -1)
        if self.spans:
            for start, end in judged:
                new[start:end] = 0
            for start, end, name in spans:
                new[start:end] = 0 if name is None else self.number[f"I-{name}"]
                if name is not None:
                    new[start] = self.number[f"B-{name}"]
        else:
            for start, end, name in spans:
                if name is not None:
                    new[start:end] = self.number[name]
        out = old.copy()
        told = new >= 0
        out[told] = False
        out[told, new[told]] = True
        return self.joined(out, told) if self.spans else out

    def joined(self, allowed: Allowed, told: NDArray[np.bool_]) -> Allowed:
        """The same where a token after those just told goes on with no span: the end of a span is part of an answer."""
        for t in np.flatnonzero(told[:-1] & ~told[1:]).tolist():
            row = allowed[t + 1]
            after = row.copy()
            after[2::2] = False
            if not after.any():  # an older answer had a span go on here: it begins here then
                after[np.flatnonzero(row[2::2]) * 2 + 1] = True
            allowed[t + 1] = after
        return allowed

    def path(self, labels: Sequence[str | None]) -> Allowed:
        """What a row of the model's labels says; None where nothing is known. A span may begin with I."""
        out = self.anything(len(labels))
        for t, label in enumerate(labels):
            if label is None:
                continue
            number = self.number[label]
            if self.spans and label.startswith("I-"):
                before = labels[t - 1] if t else "O"
                if before is not None and before[2:] != label[2:]:
                    number -= 1
            out[t] = False
            out[t, number] = True
        return out

    def chunks(self, path: Sequence[int]) -> list[tuple[int, int, str | None]]:
        """The units of a labelling: its spans, and single tokens that are outside."""
        out: list[tuple[int, int, str | None]] = []
        for t, label in enumerate(path):
            if self.spans and label > 0 and label % 2 == 0 and out and out[-1][2] == self.kind(label):
                out[-1] = (out[-1][0], t + 1, out[-1][2])
            else:
                out.append((t, t + 1, self.kind(label)))
        return out
