"""The likelihood as a sum over partitions of the data, wherever they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import State
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.training.objective import SINGLE_NOISE, LikelihoodObjective, Objective, Problem
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Progress, Reason, Result, Settings, lent
from crfkit.training.semi import SemiSupervisedObjective
from crfkit.training.sequences import SequenceObjective
from crfkit.training.stochastic import Stochastic

Vector = NDArray[np.float64]
T = TypeVar("T")


def tree(n: int) -> Iterator[tuple[int, int]]:
    """The order in which n things are added up: the second of each pair is added to the first, which stays.

    It depends on n alone, so that sums do not depend on where the things are or on which is ready first.

    >>> list(tree(5))
    [(0, 1), (2, 3), (0, 2), (0, 4)]
    """
    step = 1
    while step < n:
        yield from ((k, k + step) for k in range(0, n - step, 2 * step))
        step *= 2


def tree_sum(things: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The things added up by :func:`tree`.

    >>> tree_sum(["a", "b", "c"], lambda x, y: f"({x}{y})")
    '((ab)c)'
    """
    sums = list(things)
    for i, j in tree(len(sums)):
        sums[i] = add(sums[i], sums[j])
    return sums[0]


class Partition:
    """Some of the sequences, encoded: computes their part of the sums that training needs.

    All methods give vectors: the value, if there is one, is after the last weight.

    Parameters
    ----------
    problem : Problem
        Its ``c2`` is the partition's part of the penalty.
    share : float
        Fraction of the sequences of all the data.
    sequential : bool
        Whether the partition is for stochastic optimisers.
    """

    def __init__(self, problem: Problem, share: float, sequential: bool) -> None:
        self.size = problem.layout.size
        self.n_sequences, self.n_tokens = problem.data.n_sequences, problem.data.n_tokens
        self.share = share
        self._objective: Any
        if not self.n_sequences:
            self._objective = None
        elif sequential:
            self._objective = SequenceObjective(problem)
        else:
            kind = LikelihoodObjective if problem.hints is None else SemiSupervisedObjective
            self._objective = kind(problem)

    def use(self, n_jobs: int) -> None:
        """Uses this many threads from now on."""
        if self._objective is not None:
            self._objective.threads = resolve_threads(n_jobs)

    def value_and_grad(self, w: Vector) -> Vector:
        """Value and gradient at w, [size + 1]."""
        out = np.zeros(self.size + 1)
        if self._objective is not None:
            out[-1] = self._objective.value_and_grad(w, out[:-1])[0]
        return out

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian at w times v, [size]."""
        return np.zeros(self.size) if self._objective is None else self._objective.hessian_product(w, v)

    def passes(self, algorithm: Algorithm, w: Vector, done: int, many: int, limit: int, seed: int) -> Vector:
        """Weights after ``many`` more passes from w on, times its share of the data; and the loss of the last pass.

        Steps are those of a training of ``limit`` passes, ``done`` of which came before.
        """
        out = np.zeros(self.size + 1)
        if self._objective is not None:
            assert isinstance(algorithm, Stochastic)
            found, out[-1] = algorithm.some_passes(self._objective, w, done, many, limit, seed)
            np.multiply(found, self.share, out=out[:-1])
        return out


class Partitions(Protocol):
    """Partitions, wherever they lie."""

    def sum(self, method: str, *given: Any) -> Vector:
        """The sum, by :func:`tree`, of what the method of that name of each :class:`Partition` gives."""
        ...


class LocalPartitions:
    """Partitions in this process, one after another."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self.parts = parts

    def sum(self, method: str, *given: Any) -> Vector:
        """The sum, by :func:`tree`."""
        sums: dict[int, Vector] = {}
        waiting = list(tree(len(self.parts)))
        for k, part in enumerate(self.parts):
            sums[k] = getattr(part, method)(*given)
            while waiting and max(waiting[0]) <= k:  # so that few are in memory at a time
                i, j = waiting.pop(0)
                sums[i] += sums.pop(j)
        for i, j in waiting:
            sums[i] += sums.pop(j)
        return sums[0]


class PartitionedObjective(Objective):
    r"""Penalised negative log-likelihood as a sum over partitions, one of which holds the penalty.

    .. math:: f(w) = \sum_p f_p(w), \qquad f_1(w) = -\log p_w(D_1) + c_2 \lVert w \rVert^2

    Partial sums are added in an order that depends only on the number of partitions (:func:`tree`). So the result
    depends neither on where the partitions are nor on the number of threads or processes; with one partition, it is
    that of :class:`~crfkit.training.LikelihoodObjective`.

    Parameters
    ----------
    parts : Partitions
    size : int
        Number of weights.
    dtype : numpy dtype
        Precision of the lattices.
    """

    def __init__(self, parts: Partitions, size: int, dtype: Any) -> None:
        self.parts, self.size = parts, size
        self.noise = SINGLE_NOISE if np.dtype(dtype) == np.float32 else Objective.noise

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        total = self.parts.sum("value_and_grad", np.ascontiguousarray(w, np.float64))
        gradient = total[:-1]
        if out is not None:
            out[:] = gradient
            gradient = out
        return float(total[-1]), gradient

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian at w times v."""
        return self.parts.sum("hessian_product", w, v)


@dataclass(frozen=True)
class IterateAveraging(Algorithm):
    r"""Runs a stochastic optimiser on each partition, and averages the weights after every few passes.

    .. math:: w \leftarrow \sum_p \frac{S_p}{S}\, w_p

    where partition p, with :math:`S_p` of the S sequences, has continued from w on its own
    (McDonald, Hall and Mann, *Distributed training strategies for the structured perceptron*, 2010).

    Parameters
    ----------
    algorithm : Algorithm
        A stochastic optimiser.
    every : int
        Passes between two averages.
    """

    algorithm: Stochastic
    every: int = 1

    sequential: ClassVar[bool] = True

    def run(self, objective: PartitionedObjective, w: Vector, settings: Settings) -> Result:
        """Alternates passes and averages, until a limit is reached or the losses no longer change."""
        began, callback, keep = time.perf_counter(), settings.callback, settings.checkpoint
        limit = self.algorithm.passes if settings.max_iter is None else settings.max_iter
        seed = settings.random_state if isinstance(settings.random_state, int) else 0
        here: State = {"w": w, "losses": []}
        here |= keep.part("search", lambda: here) or {}
        losses: list[float] = here["losses"]
        reason: Reason = "max_iter"
        message = f"stopped after {counted(limit, 'pass')}"
        try:
            while (done := len(losses) * self.every) < limit:
                many = min(self.every, limit - done)
                total = objective.parts.sum("passes", self.algorithm, here["w"], done, many, limit, seed)
                here["w"] = w = np.ascontiguousarray(total[:-1])
                if not np.isfinite(total).all():
                    raise ValueError(f"training diverged in pass {done + 1}: use a smaller step")
                losses.append(float(total[-1]))
                done += many
                if callback is not None:
                    counts = int(np.count_nonzero(w)), 0.0, done, time.perf_counter() - began
                    if callback(Progress(done, losses[-1], float("nan"), *counts), lent(callback, w)):
                        reason, message = "callback", "the callback asked to stop"
                        break
                last = losses[-5:]
                if settings.tol and len(last) == 5 and max(last) - min(last) <= settings.tol * abs(last[-1]):
                    reason, message = "tolerance", f"the losses changed by less than {settings.tol:g} over 5 means"
                    break
                keep.tick()
        except KeyboardInterrupt:
            reason, message = "interrupted", INTERRUPTED
        value = losses[-1] if losses else float("nan")
        return Result(here["w"], value, len(losses), len(losses), reason, message)
