"""Trainers collect sequences, take parameters, and train."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from crfkit import _core
from crfkit.base.messages import counted
from crfkit.base.parameters import check_text
from crfkit.compat.pycrfsuite.items import ItemSequence, as_text
from crfkit.compat.pycrfsuite.parameters import ALIASES, LINE_SEARCHES, OPTIONS
from crfkit.compat.pycrfsuite.training import Training
from crfkit.compat.trainlog import TrainLogParser
from crfkit.data.sequences import Items
from crfkit.model.chain_model import ChainModel


class BaseTrainer:
    """Collects sequences and trains; all messages go to :meth:`message`.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd", "ap", "pa", "arow"}, optional
        Training algorithm; ``select`` chooses it later.
    params : dict, optional
        As for :meth:`set_params`.
    verbose : bool
        Whether :meth:`message` prints.
    """

    # all have defaults, so that a subclass may have an __init__ that does not call this one
    verbose: bool = False
    _algorithm = "lbfgs"
    _model: ChainModel | None = None
    _open = False  # whether the builder holds sequences
    _cleared = False

    @cached_property
    def _values(self) -> dict[str, Any]:
        return {key: option.default for key, option in OPTIONS[self._algorithm].items()}

    @cached_property
    def _labels(self) -> list[list[str]]:
        return []

    @cached_property
    def _groups(self) -> list[int]:
        return []

    @cached_property
    def _parts(self) -> list[Items]:
        return []

    @cached_property
    def _builder(self) -> _core.ItemBuilder:
        return _core.ItemBuilder(keep_zeros=True)

    def __init__(
        self, algorithm: str | None = None, params: Mapping[str, Any] | None = None, verbose: bool = True
    ) -> None:
        self.verbose = verbose
        if algorithm is not None:
            self.select(algorithm)
        if params is not None:
            self.set_params(params)

    def message(self, message: str) -> None:
        """Takes a piece of the training log; prints it if ``verbose``."""
        if self.verbose:
            print(message, end="")

    def append(self, xseq: Any, yseq: Sequence[str | bytes | bytearray], group: int = 0) -> None:
        """Adds a sequence of items (or an :class:`ItemSequence`) and its labels.

        ``group`` numbers parts of the data, one of which :meth:`train` may hold out.
        """
        labels = _checked_labels(yseq, len(self._labels))
        if isinstance(xseq, ItemSequence):
            n = len(xseq)
        else:
            xseq = xseq if isinstance(xseq, (list, tuple)) else list(xseq)
            n = len(xseq)
        if n != len(labels):
            raise ValueError(f"The numbers of items and labels differ: |x| = {n}, |y| = {len(labels)}")
        if isinstance(xseq, ItemSequence):
            self._flush()
            self._parts.append(xseq._items)
        else:
            self._builder.read_items([xseq])
            self._open = True
        self._labels.append(labels)
        self._groups.append(int(group))

    def _append_all(self, X: Any, y: Any, group: int = 0) -> None:
        """Adds many sequences at once."""
        if isinstance(X, Items):
            items = X
        elif any(isinstance(x, ItemSequence) for x in X):
            for xseq, yseq in zip(X, y, strict=True):
                self.append(xseq, yseq, group)
            return
        else:
            items = Items.from_sequences(X, keep_zeros=True)
        labels = [_checked_labels(yseq, i) for i, yseq in enumerate(y)]
        if len(labels) != len(items):
            raise ValueError(f"'X' holds {counted(len(items), 'sequence')}, but 'y' holds labels for {len(labels)}")
        for i, (n, own) in enumerate(zip(items.lengths.tolist(), labels, strict=True)):
            if n != len(own):
                raise ValueError(f"sequence {i}: The numbers of items and labels differ: |x| = {n}, |y| = {len(own)}")
        self._flush()
        self._parts.append(items)
        self._labels += labels
        self._groups += [group] * len(labels)

    def _flush(self) -> None:
        if self._open:
            names, offsets, ptr, attr, value, *_ = self._builder.take()
            self._parts.append(Items(names, offsets, ptr, attr, value))
            self._open = False

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Chooses the algorithm; its parameters get their defaults."""
        name = ALIASES.get(algorithm.lower(), algorithm.lower())
        if name not in OPTIONS or type != "crf1d":
            raise ValueError(f"Bad arguments: algorithm={algorithm!r}, type={type!r}")
        self._algorithm = name
        self.__dict__.pop("_values", None)

    def params(self) -> list[str]:
        """Names of the algorithm's parameters."""
        return list(self._values)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Sets parameters."""
        for name, value in params.items():
            self.set(name, value)

    def get_params(self) -> dict[str, Any]:
        """The parameters by name."""
        return dict(self._values)

    def set(self, name: str | bytes, value: Any) -> None:
        """Sets a parameter."""
        name, value = str(as_text(name)), as_text(value)
        if name not in self._values:
            raise ValueError(f"Parameter not found: {name} = {value}")
        text = str(int(value)) if isinstance(value, bool) else str(value)
        kind = OPTIONS[self._algorithm][name].kind
        try:
            known = int(float(text)) if kind is int else kind(text)
        except (ValueError, OverflowError):
            raise ValueError(f"{name!r} must be a {'number' if kind is not str else 'str'}, got {value!r}") from None
        if name == "linesearch" and known not in LINE_SEARCHES:
            raise ValueError(f"'linesearch' must be one of {', '.join(LINE_SEARCHES)}, got {value!r}")
        self._values[name] = known

    def get(self, name: str) -> Any:
        """The value of a parameter."""
        if name not in self._values:
            raise ValueError(f"Parameter not found: {name}")
        return self._values[name]

    def help(self, name: str) -> str:
        """What a parameter does."""
        if name not in self._values:
            raise ValueError(f"Parameter not found: {name}")
        return OPTIONS[self._algorithm][name].help

    def clear(self) -> None:
        """Forgets the data."""
        for name in ("_labels", "_groups", "_parts", "_builder"):
            self.__dict__.pop(name, None)
        self._open = False
        self._cleared = True

    def _before_train(self) -> None:
        """Called when training begins."""

    def train(self, model: str | os.PathLike[str], holdout: int = -1) -> None:
        """Trains, and writes a CRFsuite model file; without data, that of an empty model.

        Parameters
        ----------
        model : path
            If it is empty, nothing is written.
        holdout : int
            Number of the group to hold out and score after every iteration; -1 for none.

        Raises
        ------
        ValueError
            After :meth:`clear`, unless sequences have been appended since.
        """
        if self._cleared and not self._labels:
            raise ValueError("there are no sequences to train on since clear: add some with append")
        self._before_train()
        self._flush()
        trained = Training(self, holdout).run(os.fspath(model))
        self._model = trained


def _checked_labels(yseq: Sequence[Any], number: int) -> list[str]:
    labels = [y.item() if isinstance(y, np.generic) else y for y in yseq]
    for t, label in enumerate(labels):
        labels[t] = label = as_text(label)
        if not isinstance(label, str):
            raise TypeError(f"sequence {number}, position {t}: a label must be a str, got {type(label).__name__}")
        check_text(label, f"sequence {number}, position {t}: a label")
    return labels


class Trainer(BaseTrainer):
    """A trainer that parses its own log and calls a method for every event.

    Override :meth:`on_iteration` and the others to monitor training; an exception in one of them stops it.

    Attributes
    ----------
    logparser : TrainLogParser
        The parsed log of the last training run.
    """

    logparser: TrainLogParser | None = None

    def _before_train(self) -> None:
        self.logparser = TrainLogParser()

    def message(self, message: str) -> None:
        """Parses a piece of the log, and calls the method for its event."""
        parser = self.logparser
        assert parser is not None
        event = parser.feed(message)
        if not self.verbose or event is None:
            return
        log = parser.last_log
        if event == "featgen_progress":
            self.on_featgen_progress(log, parser.featgen_percent)
        elif event == "iteration":
            self.on_iteration(log, parser.last_iteration or {})
        else:
            getattr(self, f"on_{event}")(log)

    def on_start(self, log: str) -> None:
        """When training begins."""
        print(log, end="")

    def on_featgen_progress(self, log: str, percent: int) -> None:
        """For every 2% of feature generation."""
        print(log, end="")

    def on_featgen_end(self, log: str) -> None:
        """When the features have been generated."""
        print(log, end="")

    def on_prepared(self, log: str) -> None:
        """When the first iteration begins."""
        print(log, end="")

    def on_prepare_error(self, log: str) -> None:
        """When training fails before the first iteration."""
        print(log, end="")

    def on_iteration(self, log: str, info: dict[str, Any]) -> None:
        """After every iteration."""
        print(log, end="")

    def on_optimization_end(self, log: str) -> None:
        """When optimisation has ended."""
        print(log, end="")

    def on_end(self, log: str) -> None:
        """When the model is stored."""
        print(log, end="")
