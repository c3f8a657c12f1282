"""The thread that learns: answers come in, the model follows, and no caller waits for a slow training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from crfkit.active.pool import Pool

_log = logging.getLogger("crfkit")

_MOMENT = 0.05  # seconds without an answer after which the rest is done
_CROWD = 2  # answers that one person gives during a step at most
_PAUSE = 3  # after a step for more people than that, times its own seconds that are theirs


class Learner:
    """Learns what a pool is told, in a thread of its own.

    A step takes all answers that came since the last one, learns them within ``learn_seconds``, and rescores for
    ``rescore_seconds``, so that a pool of a few hundred thousand tokens is rescored as a whole. What a step left
    unfinished goes on when nobody waits: a full training in a second thread, and the rest of the pool. The lock is
    held for moments only, so that questions can be chosen all the while.

    Parameters
    ----------
    pool : Pool
    lock : RLock
        Held while the pool changes.
    apply : callable
        Called with the lock: tells the pool all that is new.
    after : callable
        Called with the lock after every step that changed something.
    spare : callable
        Called when nobody has waited for a moment after that; not if ``patient``.
    patient : bool
        Take all the time that a step needs, and train nothing else meanwhile.
    """

    learn_seconds: float | None = 0.04
    learn_steps = 30
    rescore_seconds: float | None = 0.15

    def __init__(
        self,
        pool: Pool,
        lock: threading.RLock,
        apply: Callable[[], int],
        after: Callable[[], None],
        spare: Callable[[], None],
        patient: bool = False,
    ) -> None:
        self.pool, self.lock, self.patient = pool, lock, patient
        if patient:
            self.learn_seconds = self.rescore_seconds = None
        self.spare = spare
        self._spared = True  # whether what is done in spare time is done
        self.apply, self.after = apply, after
        self.status = "idle"
        self.done = 0  # the last event that the model has learned
        self._changed = threading.Condition()
        self._wanted = 0
        self._closed = False
        self._settled = True  # whether the model is at the optimum of what it was told
        self._training: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="crfkit-learner", daemon=True)
        self._thread.start()

    def want(self, number: int) -> None:
        """Says that an event is there to be learned."""
        with self._changed:
            self._wanted = max(self._wanted, number)
            self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> bool:
        """Waits until an event has been learned, at most for some seconds; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done >= number or self._closed, seconds)

    def idle(self, seconds: float) -> bool:
        """Waits until nothing is left to learn or to rescore; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.status == "idle" and self.done >= self._wanted, seconds)

    def close(self) -> None:
        """Ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._training is not None:
            self._training.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._work(), _MOMENT)
                if not self._closed and not self._work() and self._spared:
                    self._set("training" if self._training is not None else "idle")
                    self._changed.wait_for(lambda: self._closed or self._work())
                if self._closed:
                    return
                work = self._work()
                self._set("learning" if work else self.status)
            try:
                if work:
                    self._step()
                else:
                    self._spared = True
                    if not self.patient:
                        self.spare()
            except Exception:  # a model that cannot be learned must not stop the questions
                _log.exception("annotate: learning failed")
                time.sleep(_MOMENT)

    def _work(self) -> bool:
        """Whether a step has something to do."""
        return self._wanted > self.done or self.pool.fresh < 1

    def _set(self, status: str) -> None:
        if status != self.status:
            self.status = status
            self._changed.notify_all()

    def _step(self) -> None:
        began = time.perf_counter()
        with self.lock:
            before = self.done
            number = self.apply()
        if number > before:
            self._settled = self.pool.learn(self.learn_seconds, self.learn_steps, self.lock)
        # when nobody waits, piece by piece, so that nobody will
        self.pool.rescore(self.rescore_seconds if number > before else 0.0, self.lock)
        with self.lock:
            self.after()
        self.seconds = time.perf_counter() - began
        with self._changed:
            self._spared = False
            self.done = max(self.done, number)
            self._changed.notify_all()
            if number > before + _CROWD and not self.patient:  # many answer at once
                self._changed.wait_for(lambda: self._closed, _PAUSE * self.seconds)
        if not self._settled and not self.patient and self._training is None and self._wanted <= self.done:
            self._train()

    def yields(self) -> bool:
        """For background work: waits while a step has something to do, so that the step has the machine to itself.

        Returns
        -------
        bool
            Whether the learner is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wanted <= self.done)
            return self._closed

    def _train(self) -> None:
        """A full training beside the questions; its weights are where the next steps begin."""
        with self.lock:
            told, version = self.pool.told(), self.pool.version
        self._settled = True

        def train() -> None:
            try:
                problem = self.pool.problem(told)
                if problem is None:
                    return
                result = self.pool.train(problem, self.pool.start(problem), stop=self.yields)
                with self.lock:
                    behind = self.pool.version > version  # the model has learned more meanwhile
                    fits = not self._closed and self.pool.adopt(told, problem, result.w)
                if fits and behind:
                    self.pool.learn(self.learn_seconds, self.learn_steps, self.lock)
            except Exception:
                _log.exception("annotate: training failed")
            finally:
                with self._changed:
                    self._training = None
                    self._changed.notify_all()

        self._training = threading.Thread(target=train, name="crfkit-training", daemon=True)
        self._training.start()
