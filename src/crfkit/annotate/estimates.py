"""How good the model is on the whole pool, from questions that were drawn at random."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.active.pool import Pool
from crfkit.active.scheme import Allowed, Scheme
from crfkit.model.chain_model import ChainModel

Vector = NDArray[np.float64]

LEAST = 5  # random questions before anything is stated
_LEVEL = 0.90
_FOLDS = 5  # parts of the random questions, each scored by a model that was trained without it
_STEPS = 40  # of such a training at most
_SAMPLE = 1000  # sentences from which the model's expectation of its mistakes is taken
_BASE = 0.5  # mistakes, expected and actual, of a sentence that is there before any question
_TRUST = 0.2  # weight, relative to the questions', of the belief that the model's expectations are right


class Scored(NamedTuple):
    """A sentence drawn at random: what a model that had never seen it got wrong, and what it expected to.

    Attributes
    ----------
    truth, guess : list of str
    tokens, wrong, expected_wrong : float
        Tokens, those with a wrong label, and how many the model expected.
    false, expected_false, missed, expected_missed : float
        Spans of the model that are wrong, and true spans that it missed.
    """

    truth: list[str]
    guess: list[str]
    tokens: float
    wrong: float
    expected_wrong: float
    false: float
    expected_false: float
    missed: float
    expected_missed: float


class Totals(NamedTuple):
    """The current model on the whole pool.

    Attributes
    ----------
    tokens, spans : float
        Tokens, and spans that the model finds.
    wrong, false, missed : float
        Mistakes in sentences whose labels are all known: counted.
    expected_wrong, expected_false, expected_missed : float
        Mistakes that the model expects in the others.
    others : int
        How many others there are.
    other_tokens : float
        Their tokens.
    """

    tokens: float
    spans: float
    wrong: float
    false: float
    missed: float
    expected_wrong: float
    expected_false: float
    expected_missed: float
    others: int
    other_tokens: float


class Estimate(NamedTuple):
    """A value and the ends of its 90% interval."""

    value: float
    low: float
    high: float


class Referee:
    """Tells how good a pool's model is, from random questions on which it may have been trained since.

    The random questions are cut into a few parts. Each part is scored by a model that was trained on all that is known
    but this part, and that differs from the current model by a few sentences only.

    Parameters
    ----------
    pool : Pool
    lock : RLock
        Held while the pool is looked at, not while models are trained.
    seed : int
    """

    def __init__(self, pool: Pool, lock: threading.RLock, seed: int = 0) -> None:
        self.pool, self.lock, self.seed = pool, lock, seed
        self.scored: list[Scored] = []
        self._models: list[ChainModel | None] = [None] * _FOLDS

    def score(self, drawn: Sequence[int], stop: Callable[[], bool] | None = None) -> tuple[Totals, int] | None:
        """Scores the sequences that were drawn, in their order, and sums up the pool by the current model.

        Returns
        -------
        tuple of Totals and int, or None
            The sums, and the version of the model; None if it was stopped, or nothing was drawn.
        """
        pool = self.pool
        for k in range(min(_FOLDS, len(drawn))):
            with self.lock:
                told, old = pool.told(), self._models[k]
            problem = pool.problem(told.without(drawn[k::_FOLDS]))
            if problem is None:
                return None
            fits = old is not None and old.layout.n_labels == problem.layout.n_labels
            # from where the same part was left out before: the current model has seen it
            start = (
                old.layout.move_weights(old.weights, problem.layout) if old and fits else np.zeros(problem.layout.size)
            )
            w = pool.train(problem, start, None, _STEPS, stop).w
            with self.lock:
                if told.scheme is not pool.scheme:
                    return None
                self._models[k] = pool.model_of(problem.layout, w)
            if stop is not None and stop():
                return None
        with self.lock:
            model, version, scheme, known = pool.model, pool.version, pool.scheme, dict(pool.known)
        parts = [(self._models[k], drawn[k::_FOLDS]) for k in range(min(_FOLDS, len(drawn)))]
        scored = [row for part, ids in parts for row in self._rows(part, scheme, known, ids)]
        totals = self.totals(model, known, version)
        with self.lock:
            if pool.scheme is not scheme:
                return None
            self.scored = scored
        return (totals, version) if scored else None

    def _rows(
        self, model: ChainModel | None, scheme: Scheme, known: Mapping[int, Allowed], ids: Sequence[int]
    ) -> list[Scored]:
        """The sequences of a part, by the model that never saw them."""
        whole = [i for i in ids if i in known and (known[i].sum(axis=1) == 1).all()]
        if not whole or model is None or model.labels != scheme.labels:
            return []
        x = self.pool.expect(whole, {}, model)
        ends = np.cumsum(x.tokens).astype(np.int64)
        out = []
        for j, i in enumerate(whole):
            guess = x.path[ends[j] - int(x.tokens[j]) : ends[j]].tolist()
            truth = known[i].argmax(axis=1).tolist()
            true, found = ({c for c in scheme.chunks(row) if c[2] is not None} for row in (truth, guess))
            names = [[scheme.labels[t] for t in row] for row in (truth, guess)]
            wrong = sum(a != b for a, b in zip(truth, guess, strict=True))
            spans = len(found - true), float(x.false[j]), len(true - found), float(x.missed[j])
            out.append(Scored(names[0], names[1], len(truth), wrong, float(x.wrong[j]), *spans))
        return out

    def totals(self, model: ChainModel, known: Mapping[int, Allowed], version: int) -> Totals:
        """What a model gets wrong on the whole pool: counted where labels are known, else expected."""
        pool = self.pool
        done = np.array(sorted(i for i, x in known.items() if (x.sum(axis=1) == 1).all()), np.int64)
        filled = pool.lengths > 0
        filled[done] = False
        some = rest = np.flatnonzero(filled)
        if len(rest) > _SAMPLE:
            some = np.sort(np.random.default_rng([self.seed, version]).choice(rest, _SAMPLE, replace=False))
        scale = len(rest) / max(1, len(some))
        a = [float(x.sum()) for x in pool.expect(done, known, model)[2:]] if len(done) else [0.0] * 4
        b = [scale * float(x.sum()) for x in pool.expect(some, known, model)[2:]] if len(some) else [0.0] * 4
        n, n_rest = float(pool.lengths.sum()), float(pool.lengths[rest].sum())
        return Totals(n, a[1] + b[1], a[0], a[2], a[3], b[0], b[2], b[3], len(rest), n_rest)


def _moments(scored: Sequence[Scored]) -> Vector:
    """Moments of each sentence [n + 1, 13]: tokens n, and for each kind of mistake e, e^2 / n, a, e a / n.

    There e is how many of them the model expects, and a how many there are.

    One sentence more than there are: of mean length, with half a mistake of each kind, as the model expects.
    """
    pairs = ("expected_wrong", "wrong"), ("expected_false", "false"), ("expected_missed", "missed")
    tokens = np.array([s.tokens for s in scored])
    tokens = np.append(tokens, tokens.mean())
    columns = [tokens]
    for names in pairs:
        expected, actual = (np.append([getattr(s, name) for s in scored], _BASE) for name in names)
        columns += [expected, expected**2 / tokens, actual, expected * actual / tokens]
    return np.stack(columns, axis=1)


def _mistakes(sums: Vector, kind: int, tokens: float, expected: float) -> Vector:
    """Estimated mistakes in ``tokens`` tokens of which the model expects ``expected`` to be wrong, by sums [13, m]."""
    n, e, ee, a, ea = sums[0], *sums[1 + 4 * kind : 5 + 4 * kind]
    trust = _TRUST * ee
    slope = (n * (ea + trust) - e * a) / np.maximum(n * (ee + trust) - e * e, 1e-12)
    return np.asarray(np.maximum((a - slope * e) / n * tokens + slope * expected, 0.0))


def _token(sums: Vector, pool: Totals) -> Vector:
    wrong = pool.wrong + _mistakes(sums, 0, pool.other_tokens, pool.expected_wrong)
    return 1 - wrong / max(pool.tokens, 1.0)


def _f1(sums: Vector, pool: Totals) -> Vector:
    false = pool.false + _mistakes(sums, 1, pool.other_tokens, pool.expected_false)
    missed = pool.missed + _mistakes(sums, 2, pool.other_tokens, pool.expected_missed)
    right = np.maximum(pool.spans - false, 0.0)
    return 2 * right / np.maximum(2 * right + false + missed, 1e-9)


def estimates(scored: Sequence[Scored], pool: Totals, spans: bool) -> tuple[Estimate | None, Estimate | None]:
    r"""Token accuracy and span F1 of the current model on the pool, with 90% intervals; None if too few questions.

    The model's own expectation of its mistakes, :math:`e_i` in a sentence of :math:`n_i` tokens, is known for the whole
    pool. Random questions tell how far it is off:

    .. math::

        \text{mistakes}_i \approx \beta_0 n_i + \beta_1 e_i, \qquad
        \widehat{\text{mistakes}} = \text{counted} + \sum_{\text{others}} \beta_0 n_i + \beta_1 e_i

    by least squares, a variance of :math:`n_i` each. A factor alone would not do: the sentences that are left are those
    that the model is sure of, and where it is sure it makes more mistakes than it expects, elsewhere fewer. Errors are
    jackknifed over sentences on the scale of the logit; since the mistakes of the N sentences that are not labelled in
    full vary about their expectation as those of the m questions do, the variance counts 1 + m / N times. The interval
    is Student's.
    """
    if len(scored) < LEAST:
        return None, None
    rows = _moments(scored)
    return _interval(rows, pool, _token), _interval(rows, pool, _f1) if spans else None


def _interval(rows: Vector, pool: Totals, measure: Callable[[Vector, Totals], Vector]) -> Estimate:
    def logit(sums: Vector) -> Vector:
        x = np.clip(measure(sums, pool), 1e-4, 1 - 1e-4)
        return np.asarray(np.log(x / (1 - x)))

    n = len(rows)
    total = rows.sum(axis=0)
    centre = float(logit(total[:, None])[0])
    left_out = logit(total[:, None] - rows.T)
    error = float(np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()))
    half = _student(n - 2) * error * float(np.sqrt(1 + n / max(pool.others, 1)))
    value, low, high = (1 / (1 + np.exp(-x)) for x in (centre, centre - half, centre + half))
    return Estimate(float(value), float(low), float(high))


def _student(n: int) -> float:
    """Where Student's distribution of n degrees of freedom ends its 90% interval, by its expansion about the normal.

    >>> [round(_student(n), 2) for n in (4, 10, 100)]
    [2.13, 1.81, 1.66]
    """
    z = NormalDist().inv_cdf((1 + _LEVEL) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(term / n**k for k, term in enumerate(terms, 1)))
