"""Partitions on a cluster: where they lie, how they are lost and made again, how their sums come about."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import dask
import numpy as np
from dask import delayed
from dask.callbacks import Callback
from dask.delayed import Delayed
from numpy.typing import NDArray

from crfkit.base.interrupts import is_leaving
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.dask.encoding import Facts, Frozen, PartitionMoved, call, encode, facts_of, hold, merge, vocabulary_of
from crfkit.features.encoders import Encoder
from crfkit.features.vocabulary import Vocabulary
from crfkit.training.partitions import LocalPartitions, tree, tree_sum

Vector = NDArray[np.float64]
T = TypeVar("T")
#: Called with what is being done, and how many of how many partitions are done.
Tell = Callable[[str, int, int], None]
Make = Callable[[Any], Encoder]

_ATTEMPTS = 30  # in a row without anything coming of it
_LOOK = 0.25  # seconds between two looks at which workers there are
_WAIT = 300.0  # seconds without any worker


class SchedulerLost(ConnectionError):
    """The scheduler no longer answers."""


class NoWorkers(TimeoutError):
    """The cluster has had no worker for too long."""


class _WorkersLost(Exception):
    """Something has to be done again, because workers are gone."""


class LocalEngine(LocalPartitions):
    """No cluster: all partitions in this process, through the same code and the same tree."""

    def __init__(self, parts: Sequence[Delayed], make: Make, n_jobs: int | None) -> None:
        super().__init__([])
        self.threads = resolve_threads(n_jobs)
        tasks = [delayed(encode)(p, make, i) for i, p in enumerate(parts)]
        done: set[Any] = set()
        try:
            with Callback(posttask=lambda key, *_: done.add(key)):
                self._encoded = dask.compute(*tasks)
        except Exception as e:
            if "(partition " not in str(e):
                _tell_partition({i: p for i, p in enumerate(parts) if tasks[i].key not in done})
            raise

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
    note : callable
        Called with what must be known at once, such as that workers were lost.
    """

    def __init__(
        self, client: Any, parts: Sequence[Delayed], make: Make, tell: Tell, note: Callable[[str], None]
    ) -> None:
        self.client, self.parts, self.make, self.tell, self.note = client, parts, make, tell, note
        self.run = f"0{uuid4().hex}"  # what follows a digit is not part of a task's name
        self.n = len(parts)
        self._encoded: dict[int, Any] = {}
        self._held: dict[int, Any] = {}
        self._passing: list[Any] = []  # what an attempt asked for, until it ends
        self._frozen: Frozen | None = None
        self._count = 0
        self.homes: dict[int, str] = {}
        self._settle(range(self.n))

    # where partitions lie

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
        began = None
        while not (found := self._check()):
            if began is None:
                began = time.monotonic()
                self.note(f"the Dask cluster has no worker: waiting for one, for at most {_WAIT:g} seconds")
            if is_leaving():
                raise KeyboardInterrupt
            if time.monotonic() - began > _WAIT:
                raise NoWorkers(
                    f"the Dask cluster has had no worker for {_WAIT:g} seconds (a LocalCluster gives up one that is "
                    "not back within 'distributed.deploy.lost-worker-timeout': raise it in Dask's configuration)"
                )
            time.sleep(_LOOK)
        return found

    def _require_homes(self) -> None:
        """Raises that workers were lost if the home of a partition is not there."""
        workers = self._workers()
        if not all(home in workers for home in self.homes.values()):
            raise _WorkersLost

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

    # what is done again if workers are lost

    def _insist(self, what: str, attempt: Callable[[], T]) -> T:
        """What an attempt gives; if workers are lost meanwhile, another one, with new homes for their partitions."""
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except _WorkersLost:
                pass
            finally:
                _release(self._passing)
            self._recover()
        raise RuntimeError(
            f"{what} failed {_ATTEMPTS} times because workers were lost: do partitions fit into their memory?"
        )

    def _recover(self) -> None:
        """Lets go of all that was lost, or asked of a worker that is lost; its partitions get new homes.

        Dask keeps a task for the worker it was asked of, and forgets it when nobody waits for what depends on it.
        """
        workers = self._workers()
        lost = [i for i, home in self.homes.items() if home not in workers]
        for futures in (self._encoded, self._held):
            gone = [i for i, f in futures.items() if i in lost or f.status not in ("pending", "finished")]
            _release([futures.pop(i) for i in gone])
        if lost:
            addresses = sorted({self.homes[i] for i in lost})
            which = ", ".join(map(str, lost[:8])) + (", ..." if len(lost) > 8 else "")
            self.note(
                f"lost {counted(len(addresses), 'Dask worker')} ({', '.join(addresses[:3])}): "
                f"{counted(len(lost), 'partition')} ({which}) will be made again; the result is the same"
            )
            self._settle(lost)  # asks the scheduler, which has then been told of all that was released

    # tasks

    def _send(self, x: Any, **how: Any) -> Any:
        """A future of something that is here; whoever held it when it is lost, it is here."""
        self._workers()
        try:
            found = self.client.scatter(x, hash=False, **how)
        except (KeyError, OSError, TimeoutError) as e:  # KeyError: Scheduler.update_data, if a worker is lost meanwhile
            self._check()
            raise _WorkersLost from e
        self._passing.append(found)
        return found

    def _name(self, task: str) -> str:
        """A new name; numbers of partitions may follow."""
        self._count += 1
        return f"crfkit-{task}-{self.run}-{self._count}"

    def _map(self, name: str, function: Callable[..., Any], futures: dict[int, Any], *more: Any) -> dict[int, Any]:
        key = self._name(name)
        found = {i: self.client.submit(function, futures[i], *more, key=f"{key}-{i}") for i in range(self.n)}
        self._passing += found.values()
        return found

    def _reduce(self, name: str, add: Callable[..., Any], futures: dict[int, Any]) -> Any:
        sums, key = dict(futures), self._name(name)
        for k, (i, j) in enumerate(tree(self.n)):
            sums[i] = self.client.submit(add, sums[i], sums.pop(j), key=f"{key}-{k}")
        self._passing.append(sums[0])
        return sums[0]

    def _encode(self) -> None:
        """Encodes partitions at their homes; wherever there is room while that is lost."""
        key = self._name("encode")
        for i in range(self.n):
            if i not in self._encoded and i not in self._held:
                task = delayed(encode)(self.parts[i], self.make, i, dask_key_name=f"{key}-{i}")
                how = {"workers": [self.homes[i]], "allow_other_workers": True}
                self._encoded[i] = self.client.compute(task, **how)

    # vocabulary

    def survey(self, full: bool) -> tuple[Vocabulary | None, list[Facts]]:
        """The vocabulary of all partitions, and what is known of each."""
        return self._insist("encoding the partitions", partial(self._survey, full))

    def _survey(self, full: bool) -> tuple[Vocabulary | None, list[Facts]]:
        self._encode()
        root = self._reduce("merge", merge, self._map("count", vocabulary_of, self._encoded))
        facts = self._map("look", facts_of, self._encoded, full)
        self._wait([root, *facts.values()], "encoding", self._encoded)
        found, *known = self._gather([root, *facts.values()])
        return found, known

    # partitions that stay

    def hold(self, frozen: Frozen) -> None:
        """Makes the partitions ready for training."""
        self._frozen = frozen
        self._insist("loading the partitions", self._hold)

    def _hold(self) -> None:
        """Encodes and holds those at their homes that are not there."""
        if len(self._held) < self.n:
            self._encode()
            shared, key = self._send(self._frozen, broadcast=True), self._name("hold")
            for i in self._encoded.keys() - self._held.keys():
                home = {"workers": [self.homes[i]], "allow_other_workers": False}
                self._held[i] = self.client.submit(hold, self._encoded[i], shared, i, key=f"{key}-{i}", **home)
            self._wait([*self._held.values()], "loading", self._held)
            self._encoded.clear()  # the graphs of partitions are kept, not what they gave

    # sums

    def sum(self, method: str, *given: Any) -> Vector:
        """The sum of what the method of that name of each partition gives, in the order of :func:`tree`."""
        return self._insist(f"evaluating {method}", partial(self._sum, method, given))

    def _sum(self, method: str, given: Sequence[Any]) -> Vector:
        self._hold()
        # each worker fetches them once, the first from here and the others from one another
        sent = [self._send(x) if isinstance(x, np.ndarray) else x for x in given]
        key, parts = self._name(_NAMES[method]), {}
        for i in range(self.n):
            home = {"workers": [self.homes[i]], "allow_other_workers": False}
            parts[i] = self.client.submit(call, self._held[i], method, *sent, key=f"{key}-{i}", **home)
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
                self._require_homes()
            except CancelledError:
                self._check()
                raise _WorkersLost from None
        for future in futures:
            if future.status != "finished":
                self._raise(future)

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        """What they hold; Dask waits without end for some that are lost between wait() and this."""
        from distributed.scheduler import KilledWorker

        seconds = 2.0
        while True:
            get = partial(self.client.gather, list(futures), direct=True, asynchronous=True)
            try:
                return list(self.client.sync(get, callback_timeout=seconds))
            except TimeoutError:
                self._require_homes()
                seconds *= 2
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
                failed = [i for i, x in self._encoded.items() if x.status == "error"]
                if failed and "(partition " not in str(error):
                    error.add_note(f"in partition {failed[0]}")
                raise error
        raise _WorkersLost

    def close(self) -> None:
        """Lets go of the partitions."""
        for futures in (self._encoded, self._held):
            _release([*futures.values()])
            futures.clear()


def _tell_partition(parts: dict[int, Delayed]) -> None:
    """Makes unfinished partitions once more, for the number of one that cannot be made, which Dask does not tell."""
    for i, part in parts.items():
        try:
            part.compute()
        except Exception as e:
            e.add_note(f"in partition {i}")
            raise


def _release(futures: list[Any]) -> None:
    """Lets go of futures, whoever still knows them: tracebacks do."""
    for future in futures:
        with suppress(RuntimeError):  # the client is closed
            future.release()
    futures.clear()


#: What tasks are called on the dashboard.
_NAMES = {"value_and_grad": "gradient", "hessian_product": "hessian", "passes": "passes"}
