"""An annotation campaign, played against data whose labels are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from crfkit.active.strategies import Length, query, require_chain
from crfkit.base.messages import counted
from crfkit.estimators.crf import CRF
from crfkit.metrics import evaluate, require_known


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Scores on held-out data after every round.

    Attributes
    ----------
    sequences : int64 array [rounds]
        Sequences queried so far.
    tokens : int64 array [rounds]
        Tokens labelled so far.
    f1 : float64 array [rounds]
        F1 of chunks, or token accuracy if the labels form no chunks.
    known : list
        The labels at the end, as ``y`` of :meth:`CRF.fit` takes them.
    """

    sequences: NDArray[np.int64]
    tokens: NDArray[np.int64]
    f1: NDArray[np.float64]
    known: list[Any]

    def tokens_to_reach(self, f1: float) -> int | None:
        """Tokens labelled when the score was first reached, interpolated linearly; None if it never was."""
        at = np.flatnonzero(self.f1 >= f1)
        if not len(at):
            return None
        i = int(at[0])
        if i == 0:
            return int(self.tokens[0])
        a, b = self.f1[i - 1], self.f1[i]
        part = (f1 - a) / (b - a)
        return round(float(self.tokens[i - 1] + part * (self.tokens[i] - self.tokens[i - 1])))


class Asking(TypedDict, total=False):
    """What to ask, as :func:`query` takes it."""

    strategy: str
    per_token: bool
    length: Length | None
    diversity: float
    k: int


def simulate(
    crf: CRF,
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    *,
    start: int = 20,
    batch_size: int | Sequence[int] = (20,) * 10,
    pool: int | None = None,
    random_state: int = 0,
    **how: Unpack[Asking],
) -> LearningCurve:
    """Simulates an annotation campaign: train, query, take the answers from ``y``, repeat.

    Parameters
    ----------
    crf : CRF
        Its parameters are used; it is not changed.
    X, y : sequences and their true labels
        The pool, and the answers to every question.
    X_test, y_test : held-out data
        What every model is scored on.
    start : int
        Number of sequences, drawn at random, that are fully labelled at the start.
    batch_size : int or sequence of int
        Questions in each of the rounds; a number means one round.
    pool : int, optional
        Consider at most this many sequences, drawn at random, per round.
    random_state : int
        Seed.
    **how : Asking
        What to ask, as for :func:`query`: ``strategy``, ``length``, ``per_token``, ``diversity``, ``k``. With
        ``length`` only the asked part of a sequence becomes known, and the rest of it may be asked for later.

    Returns
    -------
    LearningCurve
        With one more entry than there are rounds, or fewer if everything is known earlier.

    Examples
    --------
    >>> from crfkit.data import load_corpus
    >>> X, y = load_corpus("ingredients", "train")
    >>> curve = simulate(CRF(max_iter=10), X, y, X[:50], y[:50], batch_size=[5, 5])
    >>> curve.sequences.tolist()
    [20, 25, 30]
    """
    require_chain(crf, "simulate")
    require_known(y, "y")
    if len(X) != len(y):
        raise ValueError(f"'X' holds {counted(len(X), 'sequence')}, but 'y' holds labels for {len(y)}")
    if len(X_test) != len(y_test):
        raise ValueError(
            f"'X_test' holds {counted(len(X_test), 'sequence')}, but 'y_test' holds labels for {len(y_test)}"
        )
    for name, number in (("start", start), ("pool", pool)):
        if number is not None and number < 1:
            raise ValueError(f"{name!r} of simulate must be >= 1, got {number}")
    sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
    rng = np.random.default_rng(random_state)
    gold = [list(row) for row in y]
    tokens_of = [list(row) for row in X]
    known: list[Any] = [None] * len(gold)
    for i in rng.permutation(len(gold))[:start].tolist():
        known[i] = list(gold[i])
    settings = {**crf.get_params(deep=False), "warm_start": True, "callback": None}
    model = CRF(**settings)
    rows: list[tuple[int, int, float]] = []
    for size in [*sizes, 0]:
        use = [i for i, row in enumerate(known) if row is not None or model.entropy_weight]
        model.fit([tokens_of[i] for i in use], [known[i] for i in use])
        f1 = evaluate(y_test, model.predict(X_test)).f1
        asked = [row for row in known if row is not None]
        rows.append((len(asked), sum(x is not None for row in asked for x in row), f1))
        left = np.array([i for i, row in enumerate(known) if len(gold[i]) and (row is None or None in row)], np.int64)
        if not size or not len(left):
            break
        if pool is not None and len(left) > pool:
            left = np.sort(rng.choice(left, pool, replace=False))
        given, seed = [known[i] for i in left], int(rng.integers(2**31))
        questions = query(model, [tokens_of[i] for i in left], size, given=given, random_state=seed, **how)
        for q in questions:
            i = int(left[q.sequence])
            row = list(known[i]) if known[i] is not None else [None] * len(gold[i])
            row[q.start : q.end] = gold[i][q.start : q.end]
            known[i] = row
    table = np.array(rows)
    return LearningCurve(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2], known)
