"""How questions are chosen, and the records of what a pool asks, expects and was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.active.scheme import Allowed, Scheme

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Strategy:
    """How questions are chosen; the defaults were chosen on held-out training data (``experiments/annotate.py``).

    Attributes
    ----------
    cover : int, optional
        Number of first questions, which cover the pool's words instead of asking what the model knows least. By
        default 5; with ``reach``, the number of labels if that is more.
    whole : bool
        Ask for whole sentences instead of their uncertain spans.
    random : bool
        Ask for sentences drawn at random.
    power : float
        Exponent of a token's entropy. Below 1, tokens with two possible labels gain on those that may have any.
    reach : bool, optional
        Whether the entropy of a token counts more if it shares many attributes with other uncertain tokens of the pool
        and few with labelled ones. By default, true with more than 20 labels.
    spread : float
        From 0 to 1: how much less a sentence counts if it resembles one of those asked last.

    Examples
    --------
    >>> from crfkit.active import Pool
    >>> Pool([["a", "b"], ["c"]], ["X"], strategy=Strategy(random=True)).ask().kind
    'random'
    """

    cover: int | None = None
    whole: bool = False
    random: bool = False
    power: float = 0.5
    reach: bool | None = None
    spread: float = 0.5


class Choice(NamedTuple):
    """A label that a span may have, None for outside, and its probability."""

    label: str | None
    p: float


class AskedSpan(NamedTuple):
    """Tokens ``start`` to ``end - 1`` of a question, with the labels that they may have, most likely first."""

    start: int
    end: int
    choices: list[Choice]


@dataclass(frozen=True)
class Question:
    """A sentence of the pool and the spans in it that are asked about.

    Attributes
    ----------
    sequence : int
    kind : {"uncertain", "cover", "random"}
    spans : list of AskedSpan
    guess : list of str
        The model's labels, given what is known.
    seconds, gain : float
        Expected time of the answer, and the information expected from it (nats).
    """

    sequence: int
    kind: str
    spans: list[AskedSpan]
    guess: list[str]
    seconds: float
    gain: float


class Expected(NamedTuple):
    """How many of the model's labels of some sequences are expected to be wrong, given what is known.

    Attributes
    ----------
    path : int32 array [n]
        The labels that the model would give without using what is known.
    tokens, wrong : float64 arrays [S]
        Tokens, and how many of them have a wrong label.
    spans, false, missed : float64 arrays [S]
        Spans, how many of them are wrong, and how many of the true ones are missed; zeros for labels of tokens.
    """

    path: NDArray[np.int32]
    tokens: Vector
    wrong: Vector
    spans: Vector
    false: Vector
    missed: Vector


class Told(NamedTuple):
    """What was known of a pool at one moment, [T, L] of each sequence, and the labels that it refers to."""

    scheme: Scheme
    known: dict[int, Allowed]

    def without(self, sequences: Iterable[int]) -> Told:
        """The same without some sequences."""
        gone = set(sequences)
        return Told(self.scheme, {i: allowed for i, allowed in self.known.items() if i not in gone})
