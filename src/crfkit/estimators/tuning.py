"""A search over c1 and c2 that encodes once and starts each training run from the weights of its neighbour."""

from __future__ import annotations

import itertools
import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from crfkit.base.parameters import check_number
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.chain.inference import decode_flat
from crfkit.data.blocks import Blocks, StoredDataset
from crfkit.data.dataset import Dataset, Layout, WeightRules
from crfkit.data.labels import split_by_knowledge
from crfkit.estimators.crf import CRF
from crfkit.estimators.penalised import Skeleton
from crfkit.metrics import evaluate
from crfkit.model.chain_model import ChainModel
from crfkit.training.objective import LikelihoodObjective, Problem
from crfkit.training.optimiser import Algorithm
from crfkit.training.registry import find_algorithm
from crfkit.training.semi import SemiSupervisedObjective

__all__ = ["Tuning", "tune"]

Ints = NDArray[np.int64]
#: Coefficients that are tried by default.
C1 = (0.0, 0.01, 0.03, 0.1, 0.3)
C2 = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

_CHAIN = 10  # most settings that are trained one after another
_LOOSE = 10.0  # factor of the tolerance in the search: scores change by far less than they differ between folds


class Setting(NamedTuple):
    """Coefficients of L1 and L2 regularisation."""

    c1: float
    c2: float


class Trial(NamedTuple):
    """One training run: setting and fold by number, score on the held-out fold, iterations, seconds."""

    setting: int
    fold: int
    score: float
    iterations: int
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(Record):
    """What :func:`tune` found.

    Attributes
    ----------
    settings : list of (c1, c2)
    scores : float64 array [settings, folds]
        Held-out scores; NaN where a setting was rejected early.
    iterations : int64 array [settings, folds]
    scoring : {"f1", "accuracy"}
    seconds : float
    crf : crfkit.CRF or None
        The best setting, trained on all data.
    """

    settings: list[Setting]
    scores: NDArray[np.float64]
    iterations: Ints
    scoring: str
    seconds: float
    crf: CRF | None = None

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean score of each setting; NaN where it was rejected."""
        return np.asarray(self.scores.mean(axis=1))

    @property
    def best(self) -> Setting:
        """The setting with the best mean score; among equals, the one with the strongest regularisation."""
        return self.settings[self._order()[0]]

    @property
    def best_score(self) -> float:
        """Its mean score."""
        return float(self.mean[self._order()[0]])

    def _order(self) -> list[int]:
        mean = np.where(np.isnan(self.mean), -np.inf, self.mean)
        return sorted(range(len(mean)), key=lambda i: (-mean[i], -self.settings[i].c2, -self.settings[i].c1))

    def table(self, top: int | None = None) -> str:
        """The settings, best first: mean and standard deviation over the folds, iterations."""
        lines = [f"{'c1':>10} {'c2':>10} {self.scoring:>9} {'+/-':>7} {'iterations':>11}"]
        for i in self._order()[:top]:
            known = self.scores[i][~np.isnan(self.scores[i])]
            note = "" if len(known) == self.scores.shape[1] else "  rejected"
            numbers = f"{100 * known.mean():9.2f} {100 * known.std():7.2f} {int(self.iterations[i].sum()):11d}"
            lines.append(f"{self.settings[i].c1:10.4g} {self.settings[i].c2:10.4g} {numbers}{note}")
        return "\n".join(lines)


def tune(
    crf: CRF,
    X: Any,
    y: Any,
    *,
    c1: Sequence[float] = C1,
    c2: Sequence[float] = C2,
    n_settings: int | None = None,
    folds: int = 5,
    reject: float | None = None,
    callback: Callable[[Trial, int, int], None] | None = None,
    cluster: Any = None,
) -> Tuning:
    """Searches for the best ``c1`` and ``c2`` by cross-validation, and trains with them.

    The data is encoded once. Settings with the same ``c1`` are trained in order of decreasing ``c2``, each from the
    weights of the one before, which saves most of the iterations, with ten times the tolerance ``tol``. Folds run in
    parallel, one thread each. The best setting is then trained on all data, with ``tol``.

    Parameters
    ----------
    crf : CRF
        The estimator with all other parameters. ``n_jobs`` is the number of training runs at a time; ``random_state``
        is the seed for folds and settings. Its algorithm must be ``"lbfgs"``, or ``"newton-cg"`` if ``c1`` is 0.
    X, y : sequences of tokens, and their labels; or crfkit.data.Blocks, and None
        Sequences with unknown labels are never held out: every fold trains on what is known of them.
    c1, c2 : sequences of float
        Coefficients: all pairs of them are tried.
    n_settings : int, optional
        Draw this many settings at random instead, log-uniformly between the smallest and the largest ``c1`` and ``c2``;
        a ``c1`` of 0 keeps its share.
    folds : int, default=5
        Number of parts; each is held out once.
    reject : float, optional
        After the first fold, drop settings that score this much less than the best.
    callback : callable, optional
        Called as ``callback(trial, done, total)`` after every training run.
    cluster : distributed.Client, optional
        Train on a Dask cluster instead of on the threads of this machine.

    Returns
    -------
    Tuning
        ``best``, ``best_score``, ``table()``, and the trained ``crf``.

    Examples
    --------
    >>> from crfkit import CRF, tune
    >>> X = [["two", "red", "apples"], ["one", "pear"], ["two", "pears"], ["one", "red", "pear"]]
    >>> y = [["QTY", "ADJ", "NAME"], ["QTY", "NAME"], ["QTY", "NAME"], ["QTY", "ADJ", "NAME"]]
    >>> found = tune(CRF(), X, y, c1=[0], c2=[1, 0.1], folds=2)
    >>> found.scores.shape, found.crf.c2 == found.best.c2
    ((2, 2), True)
    """
    began = time.perf_counter()
    check_search(crf, folds, reject, n_settings)
    crf = type(crf)(**{**crf.get_params(deep=False), "min_freq": crf._min_freq(X)})
    gold = X.label_lists() if isinstance(X, Blocks) and y is None else y
    settings = _settings(crf, c1, c2, n_settings)
    skeleton, problem = crf._prepare(X, y, None, None, grow=False)
    if isinstance(problem.data, StoredDataset):  # every training has some of the sequences
        problem = replace(problem, data=problem.data.flat)
    search = _Search.of(crf, skeleton, problem, gold, settings, folds)
    scores = np.full((len(settings), folds), np.nan)
    iterations = np.zeros((len(settings), folds), np.int64)
    every = list(range(len(settings)))
    first = [0] if reject is not None else list(range(folds))
    total = len(settings) * folds
    done = 0
    for numbers in (first, [k for k in range(folds) if k not in first]):
        if not numbers:
            continue
        if numbers is not first:
            assert reject is not None
            every = [i for i in every if scores[i, 0] >= np.max(scores[:, 0]) - reject]
            total = done + len(every) * len(numbers)
        for trial in search.run(every, numbers, crf.n_jobs, cluster):
            scores[trial.setting, trial.fold] = trial.score
            iterations[trial.setting, trial.fold] = trial.iterations
            done += 1
            if callback is not None:
                callback(trial, done, total)
    out = Tuning(settings, scores, iterations, search.scoring, 0.0)
    best = _with(crf, out.best)
    best.fit(X, y)
    return replace(out, crf=best, seconds=time.perf_counter() - began)


def _with(crf: CRF, setting: Setting) -> CRF:
    """The same estimator, not fitted, with these coefficients."""
    return type(crf)(**{**crf.get_params(deep=False), **setting._asdict()})


def check_search(crf: CRF, folds: int, reject: float | None, n_settings: int | None) -> None:
    """Raises if a search cannot be as asked, whatever the data."""
    if not isinstance(crf, CRF) or crf._partitioned:
        kind = f"{type(crf).__module__.removesuffix('.estimator')}.{type(crf).__name__}"
        raise ValueError(f"'crf' of tune must be a crfkit.CRF, got {kind}; give cluster= to train on a cluster")
    crf._check_parameters()
    check_number("tune", "folds", folds, 2, integer=True)
    check_number("tune", "reject", reject, 0, optional=True)
    check_number("tune", "n_settings", n_settings, 1, integer=True, optional=True)
    if find_algorithm(crf.algorithm).sequential:
        raise ValueError(f"'algorithm' of the CRF for tune must be 'lbfgs' or 'newton-cg', got {crf.algorithm!r}")
    for name in ("beam", "warm_start_fraction", "early_stopping", "entropy_weight"):
        if getattr(crf, name):
            raise ValueError(f"{name!r} of the CRF for tune must not be set, got {getattr(crf, name)!r}")
    if crf.hidden_states > 1:
        raise ValueError(f"'hidden_states' of the CRF for tune must be 1, got {crf.hidden_states}")


def _settings(crf: CRF, c1: Sequence[float], c2: Sequence[float], n_settings: int | None) -> list[Setting]:
    for name, given in (("c1", c1), ("c2", c2)):
        if not len(given):
            raise ValueError(f"{name!r} of tune must hold at least one number")
        for x in given:
            check_number("tune", name, x, 0)
    if n_settings is None:
        return [Setting(float(a), float(b)) for a in sorted(set(c1)) for b in sorted(set(c2), reverse=True)]
    rng = np.random.default_rng(crf.random_state or 0)

    def draw(given: Sequence[float]) -> float:
        some = [float(x) for x in given if x > 0]
        if not some or rng.random() < 1 - len(some) / len(given):
            return 0.0
        return float(np.exp(rng.uniform(np.log(min(some)), np.log(max(some)))))

    return sorted(Setting(draw(c1), draw(c2)) for _ in range(n_settings))


@dataclass(frozen=True, eq=False)
class _Fold:
    """Numbers of the sequences to learn from, and of those held out with their labels."""

    train: Ints
    held_out: Ints
    gold: list[list[Any]]


@dataclass(frozen=True, eq=False)
class _Search:
    """All that the trainings share: the encoded data, and how to train."""

    problem: Problem
    labels: tuple[Any, ...]
    n_attributes: tuple[int, int]
    rule: WeightRules
    settings: list[Setting]
    folds: list[_Fold]
    scoring: str
    algorithm: Algorithm
    max_iter: int | None
    tol: float
    #: Objectives that no training uses at present, by fold.
    free: dict[int, list[LikelihoodObjective]] = field(default_factory=dict)

    @classmethod
    def of(cls, crf: CRF, skeleton: Skeleton, problem: Problem, y: Any, settings: list[Setting], folds: int) -> _Search:
        """That of an estimator and its data."""
        whole = split_by_knowledge(problem.data, problem.labels)[0]
        if folds > len(whole):
            kind = "" if len(whole) == len(y) else " whose labels are all known"
            raise ValueError(
                f"'folds' of tune must be at most the number of sequences{kind}, {len(whole)}, got {folds}"
            )
        order = np.random.default_rng(crf.random_state or 0).permutation(whole)
        parts = []
        for k in range(folds):
            held = np.sort(order[k::folds])
            rest = np.setdiff1d(np.arange(problem.data.n_sequences), held)
            parts.append(_Fold(rest, held, [list(y[int(i)]) for i in held]))
        scores = evaluate(parts[0].gold, parts[0].gold).summary()
        shape = crf.min_freq, crf.all_possible_states, crf.all_possible_transitions, crf.start_end
        rule = WeightRules(*shape, skeleton.encoder.transitions)
        known = skeleton.labels, skeleton.encoder.n_attributes
        name = "f1" if "f1" in scores else "accuracy"
        how: tuple[Any, ...] = (find_algorithm(crf.algorithm), crf.max_iter, crf.tol)
        return cls(replace(problem, n_jobs=1), *known, rule, settings, parts, name, *how)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "free": {}}

    def chains(self, which: Sequence[int]) -> list[list[int]]:
        """Settings that are trained one after another: neighbours, from strong to weak regularisation."""
        by_c1 = sorted(which, key=lambda i: (self.settings[i].c1, -self.settings[i].c2))
        rows = [list(row) for _, row in itertools.groupby(by_c1, key=lambda i: self.settings[i].c1)]
        if len(rows) > len(which) / 2:  # drawn at random: neighbours are nearly the same
            rows = [by_c1[k : k + _CHAIN] for k in range(0, len(by_c1), _CHAIN)]
        out = []
        for row in rows:
            row = sorted(row, key=lambda i: (-self.settings[i].c2, -self.settings[i].c1))
            size = math.ceil(len(row) / math.ceil(len(row) / _CHAIN))
            out += [row[k : k + size] for k in range(0, len(row), size)]
        return sorted(out, key=lambda chain: self.settings[chain[-1]])  # those that take longest come first

    def run(self, which: Sequence[int], folds: Sequence[int], n_jobs: int | None, cluster: Any) -> Iterator[Trial]:
        """All trainings of these settings and folds, as they end."""
        jobs = [(chain, fold) for chain in self.chains(which) for fold in folds]
        results: queue.Queue[Any] = queue.Queue()
        if cluster is not None:
            shared = cluster.scatter(self, hash=False, broadcast=True)
            futures = [cluster.submit(_run_chain, shared, *job, key=f"crfkit-tune-0{uuid4().hex}") for job in jobs]
            for future in futures:
                future.add_done_callback(results.put)
            for _ in jobs:
                yield from results.get().result()
            return
        with ThreadPoolExecutor(min(resolve_threads(n_jobs), len(jobs))) as pool:
            waiting = [pool.submit(self.train, *job, tell=results.put) for job in jobs]
            for future in waiting:
                future.add_done_callback(results.put)
            try:
                left = len(jobs)
                while left:
                    found = results.get()
                    if isinstance(found, Trial):
                        yield found
                    else:
                        found.result()
                        left -= 1
            finally:
                for future in waiting:
                    future.cancel()

    def train(self, chain: Sequence[int], number: int, tell: Callable[[Trial], None] | None = None) -> list[Trial]:
        """Trains on a fold with these settings, each from the weights of the one before."""
        fold = self.folds[number]
        held_out = self.problem.data.take(fold.held_out)
        try:
            objective = self.free.setdefault(number, []).pop()
        except IndexError:
            objective = self._objective(fold)
        w = before = np.zeros(objective.size)
        out: list[Trial] = []
        for k, i in enumerate(chain):
            began = time.perf_counter()
            objective.c2 = self.settings[i].c2
            # weights change evenly with the logarithm of c2, or nearly so
            start = w + _further([self.settings[j] for j in chain[max(0, k - 2) : k + 1]]) * (w - before)
            how: dict[str, Any] = {"max_iter": self.max_iter, "tol": _LOOSE * self.tol, "n_jobs": 1}
            result = self.algorithm.minimize(objective, start, c1=self.settings[i].c1, **how)
            w, before = result.w, w
            score = self._score(objective.layout, w, held_out, fold.gold)
            out.append(Trial(i, number, score, result.iterations, time.perf_counter() - began))
            if tell is not None:
                tell(out[-1])
        self.free[number].append(objective)
        return out

    def _objective(self, fold: _Fold) -> LikelihoodObjective:
        some, hints = self.problem.take(fold.train), self.problem.hints
        layout = Layout.build(some.data, some.labels, len(self.labels), self.n_attributes, self.rule, hints=hints)
        some = replace(some, layout=layout, hints=hints)
        return LikelihoodObjective(some) if hints is None else SemiSupervisedObjective(some)

    def _score(self, layout: Layout, w: NDArray[np.float64], data: Dataset, gold: list[list[Any]]) -> float:
        given = self.labels, layout, w, self.problem.constraints, np.dtype(self.problem.dtype)
        p = ChainModel(None, *given).score(data, 1)  # type: ignore[arg-type] # encoded already
        flat = [self.labels[j] for j in decode_flat(p, 1).tolist()]
        bounds = data.offsets.tolist()
        found = [flat[a:b] for a, b in itertools.pairwise(bounds)]
        return float(evaluate(gold, found).summary()[self.scoring])


def _further(last: Sequence[Setting]) -> float:
    """Factor by which the step between the last two settings extrapolates to the next one."""
    if len(last) < 3 or not all(s.c2 > 0 for s in last) or last[0].c2 == last[1].c2:
        return 0.0
    a, b, c = (np.log(s.c2) for s in last)
    return float(np.clip((c - b) / (b - a), 0, 1.5))


def _run_chain(search: _Search, chain: list[int], fold: int) -> list[Trial]:
    return search.train(chain, fold)
