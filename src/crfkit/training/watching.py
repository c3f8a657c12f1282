"""Monitoring of training: held-out scores, progress lines, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import Checkpoint, State
from crfkit.base.messages import counted, is_watched, show
from crfkit.data.blocks import Blocks
from crfkit.metrics import evaluate, require_known
from crfkit.training.optimiser import Callback, Progress, Result, lent

Vector = NDArray[np.float64]


class Watch:
    """A callback around the user's that adds held-out scores, prints, and stops early.

    Parameters
    ----------
    callback : callable, optional
        The user's.
    verbose : bool
    predict : callable
        Called as ``predict(w, X)``; returns the labels of sequences at weights w.
    held_out : (X, y), optional
    patience : int, optional
        Number of iterations without a higher score after which training stops.
    """

    borrows = True  # the user's gets a copy

    def __init__(
        self,
        callback: Callback | None,
        verbose: bool,
        predict: Callable[[Vector, Any], Any],
        held_out: tuple[Any, Any] | None,
        patience: int | None,
    ) -> None:
        self.callback, self.verbose, self.predict = callback, verbose, predict
        self.held_out, self.patience = held_out, patience
        self.needed = callback is not None or is_watched(verbose) or patience is not None
        self.score, self.w, self.since = -np.inf, np.zeros(0), 0

    def __call__(self, progress: Progress, w: Vector) -> bool | None:
        """Whether to stop."""
        if self.held_out is not None:
            X, y = self.held_out
            progress = replace(progress, scores=evaluate(y, self.predict(w, X)).summary())
        show(progress, self.verbose)
        stop = None if self.callback is None else self.callback(progress, lent(self.callback, w))
        if self.patience is None:
            return stop
        score = progress.scores.get("f1", progress.scores["accuracy"])
        self.since += 1
        if score > self.score:
            self.score, self.w, self.since = score, w.copy(), 0
        return stop or self.since >= self.patience

    def state(self) -> State:
        """For a checkpoint."""
        return {"score": self.score, "w": self.w, "since": self.since}

    def restore(self, state: State | None) -> None:
        """As it was, if there is a state."""
        if state is not None:
            self.score, self.w, self.since = state["score"], state["w"], state["since"]

    def best(self, result: Result) -> Result:
        """The result, with early stopping at the weights that scored best."""
        if not len(self.w) or result.reason == "interrupted":
            return result
        if self.patience is None or self.since < self.patience:
            return replace(result, w=self.w)
        message = f"the held-out score has not risen for {counted(self.patience, 'iteration')}"
        return replace(result, w=self.w, reason="early_stopping", message=message)


def watched(search: Callable[..., Result], watch: Watch, keep: Checkpoint) -> Result:
    """The result of a search that is called with a callback; with early stopping, the weights that scored best."""
    watch.restore(keep.part("watch", watch.state))
    return watch.best(search(callback=watch if watch.needed else None))


def held_out_data(X_dev: Any, y_dev: Any, patience: int | None, owner: str) -> tuple[Any, Any] | None:
    """Held-out data for ``fit``, checked."""
    if isinstance(X_dev, Blocks) and y_dev is None:
        y_dev = X_dev.label_lists()
    if (X_dev is None) != (y_dev is None):
        raise ValueError("'X_dev' and 'y_dev' of fit must be given together")
    if X_dev is None:
        if patience is not None:
            raise ValueError(f"'early_stopping' of {owner} needs held-out data: 'X_dev' and 'y_dev' of fit")
        return None
    if len(X_dev) != len(y_dev):
        raise ValueError(f"'X_dev' holds {counted(len(X_dev), 'sequence')}, but 'y_dev' holds labels for {len(y_dev)}")
    require_known(y_dev, "y_dev")
    return X_dev, y_dev
