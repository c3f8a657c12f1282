"""Partitions on a cluster: where they lie, how they are lost and made again, how their sums come about."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray

from crfkit.base.messages import counted, warn
from crfkit.base.threads import resolve_threads
from crfkit.dask.encoding import Facts, Frozen, PartitionMoved, call, encode, facts_of, hold, merge, vocabulary_of
from crfkit.features.encoders import Encoder
from crfkit.features.vocabulary import Vocabulary
from crfkit.training.partitions import LocalPartitions, tree, tree_sum

Vector = NDArray[np.float64]
#: Called with what is being done, and how many of how many partitions are done.
Tell = Callable[[str, int, int], None]
Make = Callable[[Any], Encoder]

_ATTEMPTS = 30  # in a row without anything coming of it
_LOOK = 0.25  # seconds between two looks at which workers there are
_WAIT = 300.0  # seconds without any worker


class SchedulerLost(ConnectionError):
    """The scheduler no longer answers."""


class _WorkersLost(Exception):
    """Something has to be done again, because workers are gone."""


class LocalEngine(LocalPartitions):
    """No cluster: all partitions in this process, through the same code and the same tree."""

    def __init__(self, parts: Sequence[Delayed], make: Make, n_jobs: int | None) -> None:
        super().__init__([])
        self.threads = resolve_threads(n_jobs)
        self._encoded = dask.compute(*(delayed(encode)(p, make, i) for i, p in enumerate(parts)))

    def survey(self, full: bool) -> tuple[Vocabulary | None, list[Facts]]:
        """The vocabulary of all partitions, and what is known of each."""
        facts = [facts_of(x, full) for x in self._encoded]
        return tree_sum([x.vocabulary for x in self._encoded], merge), facts

    def hold(self, frozen: Frozen) -> None:
        """Makes the partitions ready for training."""
        self.parts = [hold(x, frozen, i) for i, x in enumerate(self._encoded)]
        self._encoded = ()

    def sum(self, method: str, *given: Any) -> Vector:
        """The sum of what the method of that name of each partition gives."""
        for part in self.parts:
            part.use(self.threads)
        return super().sum(method, *given)

    def close(self) -> None:
        """Lets go of the partitions."""
        self.parts = []


class ClusterEngine:
    """Partitions on the workers of a cluster.

    A partition has a home, where it is encoded and held; only vocabularies, weights and partial sums travel. What a
    worker held when it was lost is made again elsewhere out of the partition's own graph.

    Parameters
    ----------
    client : distributed.Client
    parts : sequence of Delayed
    make : callable
        Gives an encoder for the sequences of a partition.
    tell : callable
    """

    def __init__(self, client: Any, parts: Sequence[Delayed], make: Make, tell: Tell) -> None:
        self.client, self.tell = client, tell
        self.run = f"0{uuid4().hex}"  # what follows a digit is not part of a task's name
        self.n = len(parts)
        self._graphs = [
            delayed(encode)(p, make, i, dask_key_name=f"crfkit-encode-{self.run}-{i}") for i, p in enumerate(parts)
        ]
        self._encoded: dict[int, Any] = {}
        self._held: dict[int, Any] = {}
        self._frozen: Frozen | None = None
        self._count = 0
        self.homes: dict[int, str] = {}
        self._settle(range(self.n))

    # where partitions lie

    def _send(self, x: Any, **how: Any) -> Any:
        """A future of something that is here; whoever held it when it is lost, it is here."""
        self._workers()
        try:
            return self.client.scatter(x, hash=False, **how)
        except (KeyError, OSError, TimeoutError) as e:  # the scheduler answers so if a worker is lost in between, too
            self._check()
            raise _WorkersLost from e

    def _check(self) -> dict[str, int]:
        """The threads of each worker, by address; raises if the scheduler is gone."""
        try:
            if self.client.status == "running":
                return dict(self.client.nthreads())
            raise OSError(f"the connection is {self.client.status}")
        except (OSError, TimeoutError) as e:
            raise SchedulerLost(str(e)) from e

    def _workers(self) -> dict[str, int]:
        """Addresses and threads; waits for one if there is none, as while a nanny starts it again."""
        began = time.monotonic()
        while not (found := self._check()):
            if time.monotonic() - began > _WAIT:
                raise TimeoutError(f"the Dask cluster has had no worker for {_WAIT:g} seconds")
            time.sleep(_LOOK)
        return found

    def _settle(self, which: Iterable[int]) -> None:
        """Gives partitions a home: neighbours on the same worker, as many as it has threads for."""
        which, workers = sorted(which), self._workers()
        load = dict.fromkeys(workers, 0.0)
        for home in self.homes.values():
            if home in load:
                load[home] += 1 / workers[home]
        if len(which) == self.n:
            slots = [address for address, n in sorted(workers.items()) for _ in range(n)]
            self.homes = {i: slots[i * len(slots) // self.n] for i in which}
            return
        for i in which:
            home = min(sorted(load), key=load.__getitem__)
            load[home] += 1 / workers[home]
            self.homes[i] = home

    def _lost(self) -> list[int]:
        """Partitions whose home is gone, or that are no longer there."""
        workers = self._workers()
        gone = [i for i, home in self.homes.items() if home not in workers]
        return sorted({*gone, *(i for i, future in self._held.items() if future.status != "finished")})

    # vocabulary

    def _start(self, which: Iterable[int]) -> None:
        """Encodes partitions; wherever there is room if their home is lost."""
        for i in which:
            if i not in self._encoded or self._encoded[i].status in ("cancelled", "error", "lost"):
                how = {"workers": [self.homes[i]], "allow_other_workers": True}
                self._encoded[i] = self.client.compute(self._graphs[i], **how)

    def survey(self, full: bool) -> tuple[Vocabulary | None, list[Facts]]:
        """The vocabulary of all partitions, and what is known of each."""
        for _ in range(_ATTEMPTS):
            try:
                self._start(range(self.n))
                vocabularies = self._map("count", vocabulary_of, self._encoded)
                root = self._reduce("merge", merge, vocabularies)
                facts = self._map("look", facts_of, self._encoded, full)
                self._wait([root, *facts.values()], "encoding", self._encoded)
                found, *known = self._gather([root, *facts.values()])
                return found, known
            except _WorkersLost:
                self._encoded = {i: f for i, f in self._encoded.items() if f.status in ("pending", "finished")}
                self._move([i for i, home in self.homes.items() if home not in self._workers()])
        raise self._gave_up("encoding the partitions")

    def _map(self, name: str, function: Callable[..., Any], futures: dict[int, Any], *more: Any) -> dict[int, Any]:
        self._count += 1
        key = f"crfkit-{name}-{self.run}-{self._count}"
        return {i: self.client.submit(function, futures[i], *more, key=f"{key}-{i}") for i in range(self.n)}

    def _reduce(self, name: str, add: Callable[..., Any], futures: dict[int, Any]) -> Any:
        sums = dict(futures)
        for k, (i, j) in enumerate(tree(self.n)):
            key = f"crfkit-{name}-{self.run}-{self._count}-{k}"
            sums[i] = self.client.submit(add, sums[i], sums[j], key=key)
        return sums[0]

    # partitions that stay

    def hold(self, frozen: Frozen) -> None:
        """Makes the partitions ready for training."""
        self._frozen = frozen
        self._make(range(self.n))

    def _make(self, which: Iterable[int]) -> None:
        """Encodes and holds partitions at their homes."""
        missing = set(which)
        for _ in range(_ATTEMPTS):
            self._count += 1
            with suppress(_WorkersLost):
                shared = self._send(self._frozen, broadcast=True)
                self._start(missing)
                for i in missing:
                    key = f"crfkit-hold-{self.run}-{self._count}-{i}"
                    home = {"workers": [self.homes[i]], "allow_other_workers": False}
                    self._held[i] = self.client.submit(hold, self._encoded[i], shared, i, key=key, **home)
                self._wait([self._held[i] for i in missing], "loading", self._held)
                missing = set()
            lost = set(self._lost())
            missing = {i for i in missing | lost if i not in self._held or i in lost}
            self._move([i for i in missing if self.homes[i] not in self._workers()])
            if not missing:
                self._encoded.clear()  # their graphs are kept, not what they gave
                return
        raise self._gave_up("loading the partitions")

    def _move(self, lost: Sequence[int]) -> None:
        """New homes for partitions that lost theirs."""
        if lost:
            gone = sorted({self.homes[i] for i in lost})
            which = ", ".join(map(str, lost[:8])) + (", ..." if len(lost) > 8 else "")
            warn(
                f"lost {counted(len(gone), 'Dask worker')} ({', '.join(gone[:3])}): {counted(len(lost), 'partition')} "
                f"({which}) will be made again; the result is the same",
                RuntimeWarning,
            )
            self._settle(lost)

    # sums

    def sum(self, method: str, *given: Any) -> Vector:
        """The sum of what the method of that name of each partition gives, in the order of :func:`tree`."""
        for _ in range(_ATTEMPTS):
            try:
                return self._sum(method, given)
            except _WorkersLost:
                lost = self._lost()
                self._move([i for i in lost if self.homes[i] not in self._workers()])
                if lost:
                    self._make(lost)
        raise self._gave_up(f"evaluating {method}")

    def _sum(self, method: str, given: Sequence[Any]) -> Vector:
        self._count += 1
        name = _NAMES[method]
        # each worker fetches them once, the first from here and the others from one another
        sent = [self._send(x) if isinstance(x, np.ndarray) else x for x in given]
        parts = {}
        for i in range(self.n):
            key = f"crfkit-{name}-{self.run}-{self._count}-{i}"
            home = {"workers": [self.homes[i]], "allow_other_workers": False}
            parts[i] = self.client.submit(call, self._held[i], method, *sent, key=key, **home)
        root = self._reduce("add", operator.add, parts)
        del parts
        self._wait([root])
        return self._gather([root])[0]  # type: ignore[no-any-return]

    def _wait(self, futures: Sequence[Any], what: str = "", shown: dict[int, Any] | None = None) -> None:
        """Waits until all are there; raises what went wrong, or that workers were lost."""
        from distributed import wait

        while True:
            try:
                wait(futures, timeout=_LOOK)
                break
            except TimeoutError:
                self._check()
                if shown is not None:
                    self.tell(what, sum(f.status == "finished" for f in shown.values()), self.n)
                workers = self._workers()
                if not all(home in workers for home in self.homes.values()):
                    raise _WorkersLost from None
            except CancelledError:
                self._check()
                raise _WorkersLost from None
        for future in futures:
            if future.status != "finished":
                self._raise(future)

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        from distributed.scheduler import KilledWorker

        try:
            return list(self.client.gather(list(futures), direct=True))
        except (OSError, KilledWorker, CancelledError) as e:
            self._check()
            raise _WorkersLost from e

    def _raise(self, future: Any) -> None:
        """Why something is not there."""
        from distributed.scheduler import KilledWorker

        self._check()
        if future.status == "error":
            error = future.exception()
            if not isinstance(error, (KilledWorker, PartitionMoved)):
                raise error
        raise _WorkersLost

    def _gave_up(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"{what} failed {_ATTEMPTS} times because workers were lost: do partitions fit into their memory?"
        )

    def close(self) -> None:
        """Lets go of the partitions."""
        with suppress(Exception):
            self._encoded.clear()
            self._held.clear()


#: What tasks are called on the dashboard.
_NAMES = {"value_and_grad": "gradient", "hessian_product": "hessian", "passes": "passes"}
