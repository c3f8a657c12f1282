"""Stands in for python-crfsuite: ``import crfkit.compat.pycrfsuite as pycrfsuite``.

The classes have the original's names, arguments and defaults, and read and write CRFsuite's model files.

Examples
--------
>>> import os, tempfile
>>> import crfkit.compat.pycrfsuite as pycrfsuite
>>> trainer = pycrfsuite.Trainer(verbose=False)
>>> trainer.append([{"walk": 1, "shop": 0.5}, {"walk": 1}, ["clean"]], ["sunny", "sunny", "rainy"])
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "model.crfsuite")
...     trainer.train(path)
...     with pycrfsuite.Tagger().open(path) as tagger:
...         tagger.tag([{"walk": 1}, ["clean"]])
['sunny', 'rainy']
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.chain.inference import decode_flat, log_partition, node_marginals
from crfkit.chain.potentials import Potentials
from crfkit.compat.suite_file import SuiteFeatures, chain_model, parse_suite, suite_bytes, suite_features
from crfkit.compat.trainlog import TrainLogParser, iteration_lines, progress_marks
from crfkit.data.sequences import Items
from crfkit.dataset import Dataset
from crfkit.estimators.crf import CRF
from crfkit.features.encoders import ItemEncoder
from crfkit.model import ChainModel
from crfkit.training.lbfgs import Callback, Progress
from crfkit.training.stochastic import AROW, PassiveAggressive

__all__ = ["CRFSUITE_VERSION", "BaseTrainer", "CRFSuiteError", "ItemSequence", "Tagger", "Trainer"]

#: The version of CRFsuite whose files and behaviour this module follows.
CRFSUITE_VERSION = "0.12.2"

_UNLIMITED = 2**31 - 1


class CRFSuiteError(Exception):
    """Training failed; ``code`` is CRFsuite's number for the reason."""

    _messages: ClassVar[dict[int, str]] = {
        -2147483648: "an error without a known reason",
        -2147483647: "out of memory",
        -2147483646: "not supported",
        -2147483645: "incompatible data",
        -2147483644: "an internal error",
        -2147483643: "overflow",
        -2147483642: "not implemented",
    }

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(self._messages.get(code, f"error {code}"))


class ItemSequence:
    """A sequence of items, converted once and used many times.

    An item is a list of attributes, or a dict of attributes and values: ``{"a": 2.0}``, ``{"a": "b"}`` for the
    attribute ``a:b``, ``{"a": {"b": 1.0}}`` and ``{"a": ["b", "c"]}`` for ``a:b`` and ``a:c``.

    Examples
    --------
    >>> ItemSequence([{"a": 2.0, "b": {"c", }}, ["d"]]).items()
    [{'a': 2.0, 'b:c': 1.0}, {'d': 1.0}]
    """

    def __init__(self, pyseq: Iterable[Any]) -> None:
        self._items = Items.from_sequences([list(pyseq)], keep_zeros=True)

    def items(self) -> list[dict[str, float]]:
        """The items as plain dicts."""
        return self._items[0]

    def __len__(self) -> int:
        return int(self._items.offsets[-1])

    def __repr__(self) -> str:
        return f"<ItemSequence of size {len(self)}>"


class _Option(NamedTuple):
    """A training parameter: its type, its default, and what it does."""

    kind: Any
    default: Any
    help: str


def _flag(text: str) -> bool:
    return bool(int(text))


_FEATURES = {
    "feature.minfreq": _Option(float, 0.0, "Features whose values sum to less than this get no weight."),
    "feature.possible_states": _Option(_flag, False, "Weights for (attribute, label) pairs that do not occur, too."),
    "feature.possible_transitions": _Option(_flag, False, "Weights for label pairs that do not occur, too."),
}
_EPOCHS = {
    "max_iterations": _Option(int, 100, "Most passes over the data."),
    "epsilon": _Option(float, 0.0, "Training ends when the mean loss is not above this."),
}
_OPTIONS: dict[str, dict[str, _Option]] = {
    "lbfgs": {
        **_FEATURES,
        "c1": _Option(float, 0.0, "Coefficient of the sum of absolute weights."),
        "c2": _Option(float, 1.0, "Coefficient of the sum of squared weights."),
        "max_iterations": _Option(int, _UNLIMITED, "Most iterations."),
        "num_memories": _Option(int, 6, "Accepted; crfkit chooses how many steps L-BFGS remembers."),
        "epsilon": _Option(float, 1e-5, "Training ends when the gradient is below this part of the weights' norm."),
        "period": _Option(int, 10, "Over how many iterations delta is measured."),
        "delta": _Option(float, 1e-5, "Training ends when the loss falls by less than this part of itself."),
        "linesearch": _Option(str, "MoreThuente", "Accepted; crfkit has a line search of its own."),
        "max_linesearch": _Option(int, 20, "Accepted; crfkit has a line search of its own."),
    },
    "l2sgd": {
        **_FEATURES,
        "c2": _Option(float, 1.0, "Coefficient of the sum of squared weights."),
        "max_iterations": _Option(int, 1000, "Most passes over the data."),
        "period": _Option(int, 10, "Over how many passes delta is measured."),
        "delta": _Option(float, 1e-6, "Training ends when the loss falls by less than this part of itself."),
        "calibration.eta": _Option(float, 0.1, "Accepted; crfkit calibrates by itself."),
        "calibration.rate": _Option(float, 2.0, "Accepted; crfkit calibrates by itself."),
        "calibration.samples": _Option(float, 1000.0, "Accepted; crfkit calibrates by itself."),
        "calibration.candidates": _Option(int, 10, "Accepted; crfkit calibrates by itself."),
        "calibration.max_trials": _Option(int, 20, "Accepted; crfkit calibrates by itself."),
    },
    "averaged-perceptron": {**_FEATURES, **_EPOCHS},
    "passive-aggressive": {
        **_FEATURES,
        "type": _Option(int, 1, "0 without slack, 1 for PA-I, 2 for PA-II."),
        "c": _Option(float, 1.0, "How strongly an error changes the weights."),
        "error_sensitive": _Option(_flag, True, "Whether the number of wrong labels counts."),
        "averaging": _Option(_flag, True, "Whether weights are averaged."),
        **_EPOCHS,
    },
    "arow": {
        **_FEATURES,
        "variance": _Option(float, 1.0, "Variance of every weight at the beginning."),
        "gamma": _Option(float, 1.0, "Trade-off between loss and change."),
        **_EPOCHS,
    },
}
_ALIASES = {"ap": "averaged-perceptron", "pa": "passive-aggressive"}
_LINE_SEARCHES = ("MoreThuente", "Backtracking", "StrongBacktracking")
#: CRFsuite's algorithms by crfkit's names.
_ALGORITHMS = {
    "lbfgs": "lbfgs",
    "l2sgd": "sgd",
    "averaged-perceptron": "ap",
    "passive-aggressive": "pa",
    "arow": "arow",
}
_TITLES = {
    "lbfgs": "L-BFGS optimization",
    "l2sgd": "Stochastic Gradient Descent (SGD)",
    "averaged-perceptron": "Averaged perceptron",
    "passive-aggressive": "Passive Aggressive",
    "arow": "Adaptive Regularization of Weights (AROW)",
}
#: How the log names what differs from the parameter's name.
_LOG_NAMES = {"period": "stop", "max_linesearch": "linesearch.max_iterations"}


def _log_value(name: str, value: Any) -> str:
    text = f"{value:.6f}" if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
    return f"{_LOG_NAMES.get(name, name)}: {text}\n"


def _merged(parts: Sequence[Items]) -> Items:
    """Items one behind the other, with one table of names."""
    if len(parts) == 1:
        return parts[0]
    names = _core.StringTable()
    values = any(p.value is not None for p in parts)
    attr, value, ptr, offsets = [], [], [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for p in parts:
        numbers = names.translate(p.names, True)
        attr.append(numbers[p.attr] if len(numbers) else p.attr)
        value.append(np.ones(len(p.attr)) if p.value is None else p.value)
        ptr.append(p.ptr[1:] + ptr[-1][-1])
        offsets.append(p.offsets[1:] + offsets[-1][-1])
    joined = np.concatenate(value) if values else None
    return Items(names, np.concatenate(offsets), np.concatenate(ptr), np.concatenate(attr), joined)


def _some(items: Items, numbers: NDArray[Any]) -> Items:
    chosen: Any = numbers
    some: Any = items[chosen]
    assert isinstance(some, Items)
    return some


class _SuiteCRF(CRF):
    """The CRF as CRFsuite trains it; tells the trainer about every iteration."""

    _sums = True
    _listener: Any = None

    def _watch(self, model: Any, dev: Any, best: Any = None) -> Callback | None:
        return None if self._listener is None else self._listener(model)


class BaseTrainer:
    """Collects sequences and trains; all messages go to :meth:`message`.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd", "ap", "pa", "arow"}, optional
    params : dict, optional
        As for :meth:`set_params`.
    verbose : bool
        Whether :meth:`message` prints.
    """

    def __init__(
        self, algorithm: str | None = None, params: Mapping[str, Any] | None = None, verbose: bool = True
    ) -> None:
        self.verbose = verbose
        self._algorithm = "lbfgs"
        self._values: dict[str, Any] = {}
        self._labels: list[list[str]] = []
        self._groups: list[int] = []
        self._parts: list[Items] = []
        self._builder = _core.ItemBuilder(keep_zeros=True)
        self._open = False
        self._model: ChainModel | None = None
        self.select(algorithm or "lbfgs")
        if params is not None:
            self.set_params(params)

    def message(self, message: str) -> None:
        """Takes a piece of the training log; prints it if ``verbose``."""
        if self.verbose:
            print(message, end="")

    def append(self, xseq: Any, yseq: Sequence[str], group: int = 0) -> None:
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
            raise ValueError(f"'X' holds {len(items)} sequences, 'y' labels for {len(labels)}")
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
        name = _ALIASES.get(algorithm.lower(), algorithm.lower())
        if name not in _OPTIONS or type != "crf1d":
            raise ValueError(f"Bad arguments: algorithm={algorithm!r}, type={type!r}")
        self._algorithm = name
        self._values = {key: option.default for key, option in _OPTIONS[name].items()}

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

    def set(self, name: str, value: Any) -> None:
        """Sets a parameter."""
        if name not in self._values:
            raise ValueError(f"Parameter not found: {name} = {value}")
        text = str(int(value)) if isinstance(value, bool) else str(value)
        kind = _OPTIONS[self._algorithm][name].kind
        try:
            known = int(float(text)) if kind is int else kind(text)
        except (ValueError, OverflowError):
            raise ValueError(f"{name!r} must be a {'number' if kind is not str else 'str'}, got {value!r}") from None
        if name == "linesearch" and known not in _LINE_SEARCHES:
            raise ValueError(f"'linesearch' must be one of {', '.join(_LINE_SEARCHES)}, got {value!r}")
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
        return _OPTIONS[self._algorithm][name].help

    def clear(self) -> None:
        """Forgets the data."""
        self._labels, self._groups, self._parts = [], [], []
        self._builder = _core.ItemBuilder(keep_zeros=True)
        self._open = False

    def _before_train(self) -> None:
        """Called when training begins."""

    def train(self, model: str | os.PathLike[str], holdout: int = -1) -> None:
        """Trains, and writes a CRFsuite model file.

        Parameters
        ----------
        model : path
            Nothing is written if it is empty.
        holdout : int
            Number of the group that is not trained on, but scored after every iteration; -1 for none.
        """
        self._before_train()
        self._flush()
        trained = _Training(self, holdout).run(os.fspath(model))
        self._model = trained


def _checked_labels(yseq: Sequence[Any], number: int) -> list[str]:
    if isinstance(yseq, (str, bytes)):
        raise ValueError(f"labels of sequence {number} must be a list of str, got a {type(yseq).__name__}")
    labels = [y.item() if isinstance(y, np.generic) else y for y in yseq]
    for t, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(f"sequence {number}, position {t}: a label must be a str, got {type(label).__name__}")
    return labels


class _Training:
    """One run of a trainer."""

    def __init__(self, trainer: BaseTrainer, holdout: int) -> None:
        self.trainer = trainer
        self.holdout = holdout
        self.values = trainer.get_params()
        self.algorithm = trainer._algorithm
        self.began = time.perf_counter()
        if not trainer._labels:
            raise CRFSuiteError(-2147483645)

    def say(self, *lines: str) -> None:
        for line in lines:
            self.trainer.message(line)

    def estimator(self) -> _SuiteCRF:
        """The CRF with the trainer's parameters."""
        v = self.values
        most = v["max_iterations"]
        settings: dict[str, Any] = {
            "features": None,
            "c1": v.get("c1", 0.0),
            "c2": v.get("c2", 0.0),
            "min_freq": max(0.0, v["feature.minfreq"]),
            "all_possible_states": v["feature.possible_states"],
            "all_possible_transitions": v["feature.possible_transitions"],
            "start_end": False,
            "max_iter": None if most >= _UNLIMITED else most,
            "tol": self.tolerance(),
        }
        settings["algorithm"] = self.optimiser()
        return _SuiteCRF(**settings)

    def optimiser(self) -> str | PassiveAggressive | AROW:
        """What ``CRF(algorithm=...)`` takes."""
        v = self.values
        if self.algorithm == "passive-aggressive":
            return PassiveAggressive(v["type"], v["c"], v["error_sensitive"], v["averaging"])
        if self.algorithm == "arow":
            return AROW(v["variance"], v["gamma"])
        return _ALGORITHMS[self.algorithm]

    def tolerance(self) -> float:
        """CRF's ``tol`` where it means the same; otherwise zero, and :meth:`stops` decides."""
        v = self.values
        if self.algorithm == "lbfgs":
            return float(v["delta"]) if v["epsilon"] == v["delta"] and v["period"] == 10 else 0.0
        return float(v.get("delta", v.get("epsilon", 0.0)))

    def run(self, path: str) -> ChainModel:
        trainer = self.trainer
        items = _merged(trainer._parts)
        groups = np.array(trainer._groups)
        labels = tuple(dict.fromkeys(label for y in trainer._labels for label in y))
        train: Any = items
        y = trainer._labels
        held: tuple[Items, list[list[str]]] | None = None
        if self.holdout != -1 and (groups == self.holdout).any():
            inside = np.flatnonzero(groups != self.holdout)
            outside = np.flatnonzero(groups == self.holdout)
            if not len(inside):
                raise CRFSuiteError(-2147483645)
            train, y = _some(items, inside), [trainer._labels[i] for i in inside]
            held = (_some(items, outside), [trainer._labels[i] for i in outside])
        if self.holdout != -1:
            self.say(f"Holdout group: {self.holdout + 1}\n", "\n")
        crf = self.estimator()
        names = [key for key in self.values if key.startswith("feature.")]
        self.say("Feature generation\n", "type: CRF1d\n", *(_log_value(k, self.values[k]) for k in names))
        crf._listener = lambda model: _Listener(self, model, held, labels)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                crf.fit(train, y)
            except RuntimeWarning:
                raise KeyboardInterrupt from None
        if self.algorithm == "lbfgs":
            self.say(_ending(crf.result_.message))
        self.say(f"Total seconds required for training: {time.perf_counter() - self.began:.3f}\n", "\n")
        features = suite_features(crf.model_, _all_labels(labels, crf.model_.labels))
        began = time.perf_counter()
        self.say("Storing the model\n")
        active = len(features.state) + len(features.transitions)
        self.say(f"Number of active features: {active} ({crf.model_.layout.size})\n")
        self.say(f"Number of active attributes: {len(features.names)} ({len(items.names)})\n")
        self.say(f"Number of active labels: {len(features.labels)} ({len(features.labels)})\n")
        if path:
            with open(path, "wb") as file:
                file.write(suite_bytes(features))
        self.say(f"Seconds required: {time.perf_counter() - began:.3f}\n", "\n")
        return chain_model(features, dict(crf.model_.info))

    def announce(self, n_features: int) -> None:
        """The log between feature generation and the first iteration."""
        self.say(*progress_marks())
        self.say("\n", f"Number of features: {n_features}\n")
        self.say(f"Seconds required: {time.perf_counter() - self.began:.3f}\n", "\n")
        rest = [key for key in self.values if not key.startswith("feature.")]
        self.say(f"{_TITLES[self.algorithm]}\n", *(_log_value(k, self.values[k]) for k in rest), "\n")


def _all_labels(seen: tuple[str, ...], trained: Sequence[Any]) -> tuple[str, ...]:
    """The labels that have weights, in the order of the data."""
    known = set(trained)
    return tuple(label for label in seen if label in known)


def _ending(message: str) -> str:
    if message.startswith("stopped after"):
        return "L-BFGS terminated with the maximum number of iterations\n"
    if "gradient" in message or "descent" in message:
        return "L-BFGS resulted in convergence\n"
    return "L-BFGS terminated with the stopping criteria\n"


class _Listener:
    """Turns iterations into log lines, scores held-out data, and applies CRFsuite's stopping rules."""

    def __init__(
        self, training: _Training, model: Any, held: tuple[Items, list[list[str]]] | None, labels: tuple[str, ...]
    ) -> None:
        self.training = training
        self.model = model
        self.labels = labels
        self.losses: deque[float] = deque(maxlen=int(training.values.get("period", 10)) + 1)
        self.last_time, self.last_evaluations = 0.0, 1
        self.started = False
        self.held: tuple[Dataset, NDArray[np.int64]] | None = None
        self.raw_held = held

    def __call__(self, progress: Progress, w: NDArray[np.float64]) -> bool | None:
        training = self.training
        if not self.started:
            self.started = True
            training.announce(len(w))
        scores = None if self.raw_held is None else self.score(self.model(w), self.raw_held)
        norm = float(np.sqrt(_core.dot(w, w)))
        numbers: dict[str, float] = {"Loss": progress.value, "Feature norm": norm}
        if training.algorithm == "lbfgs":
            numbers |= {
                "Error norm": progress.gradient_norm,
                "Active features": progress.active,
                "Line search trials": progress.evaluations - self.last_evaluations,
                "Line search step": progress.step,
            }
        word = "Epoch" if training.algorithm == "l2sgd" else "Iteration"
        training.say(*iteration_lines(progress.iteration, numbers, progress.seconds - self.last_time, scores, word))
        self.last_time, self.last_evaluations = progress.seconds, progress.evaluations
        return self.stops(progress, norm)

    def stops(self, progress: Progress, norm: float) -> bool:
        v = self.training.values
        if self.training.algorithm != "lbfgs" or self.training.tolerance() > 0:
            return False
        self.losses.append(progress.value)
        if progress.gradient_norm <= v["epsilon"] * max(1.0, norm):
            return True
        full = len(self.losses) == self.losses.maxlen
        return full and self.losses[0] - progress.value <= v["delta"] * abs(progress.value)

    def score(self, model: ChainModel, held: tuple[Items, list[list[str]]]) -> tuple[Any, Any, Any]:
        X, y = held
        if self.held is None:
            number = {label: i for i, label in enumerate(model.labels)}
            gold = np.array([number.get(label, -1) for labels in y for label in labels], np.int64)
            self.held = (model.encoder.encode(X, False, 1), gold)
        data, gold = self.held
        path = decode_flat(model.score(data, 1), 1).astype(np.int64)
        right = path == gold
        counts: dict[str, tuple[int, int, int]] = {}
        flat = np.array([label for labels in y for label in labels])
        for label in self.labels:
            own = model.labels.index(label) if label in model.labels else -2
            match = int((right & (gold == own)).sum())
            counts[label] = (match, int((path == own).sum()), int((flat == label).sum()))
        filled = np.diff(data.offsets) > 0
        whole = np.logical_and.reduceat(right, data.offsets[:-1][filled]) if len(right) else np.zeros(0, bool)
        n = len(data.offsets) - 1
        return counts, (int(right.sum()), len(right)), (int(whole.sum()) + int((~filled).sum()), n)


class Trainer(BaseTrainer):
    """A trainer that follows its own log and calls a method for everything that happens.

    Override :meth:`on_iteration` and the others to watch training; an exception in one of them stops it.

    Attributes
    ----------
    logparser : TrainLogParser
        What the log of the last training said.
    """

    logparser: TrainLogParser | None = None

    def _before_train(self) -> None:
        self.logparser = TrainLogParser()

    def message(self, message: str) -> None:
        """Parses a piece of the log, and calls the method for what it tells."""
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
        """For every two per cent of feature generation."""
        print(log, end="")

    def on_featgen_end(self, log: str) -> None:
        """When the features are there."""
        print(log, end="")

    def on_prepared(self, log: str) -> None:
        """When the first iteration begins."""
        print(log, end="")

    def on_prepare_error(self, log: str) -> None:
        """When there will be no first iteration."""
        print(log, end="")

    def on_iteration(self, log: str, info: dict[str, Any]) -> None:
        """After every iteration."""
        print(log, end="")

    def on_optimization_end(self, log: str) -> None:
        """When the weights are there."""
        print(log, end="")

    def on_end(self, log: str) -> None:
        """When the model is stored."""
        print(log, end="")


class ModelInfo:
    """What :meth:`Tagger.info` tells.

    Attributes
    ----------
    header : dict of str to str
    labels, attributes : dict of name to number (as text)
    transitions : dict of (label, next label) to weight
    state_features : dict of (attribute, label) to weight
    """

    def __init__(self, features: SuiteFeatures, header: dict[str, str]) -> None:
        names = features.names.tolist()
        labels = features.labels
        self.header = header
        self.labels = {label: str(i) for i, label in enumerate(labels)}
        self.attributes = {name: str(i) for i, name in enumerate(names)}
        t, s = features.transitions, features.state
        self.transitions = {
            (labels[i], labels[j]): w
            for i, j, w in zip(t["source"].tolist(), t["target"].tolist(), t["weight"].tolist(), strict=True)
        }
        self.state_features = {
            (names[a], labels[j]): w
            for a, j, w in zip(s["source"].tolist(), s["target"].tolist(), s["weight"].tolist(), strict=True)
        }


class Tagger:
    """Labels sequences with a CRFsuite model.

    ``open`` and ``open_inmemory`` give a context manager that closes the tagger; several threads may share a
    tagger for ``tag(xseq)``.
    """

    def __init__(self) -> None:
        self._model: ChainModel | None = None
        self._header: dict[str, str] | None = None
        self._labels: list[str] = []
        self._tagged: Any = None
        self._sequence: Dataset | None = None
        self._potentials: tuple[Potentials, float, NDArray[Any]] | None = None

    @classmethod
    def _of_model(cls, model: ChainModel) -> Self:
        tagger = cls()
        tagger._adopt(model, None)
        return tagger

    def _adopt(self, model: ChainModel, header: dict[str, str] | None) -> None:
        self._model, self._header = model, header
        self._labels = [str(x) for x in model.labels]
        self._names = model.encoder._names if isinstance(model.encoder, ItemEncoder) else None
        if self._names is None:
            raise ValueError("the model makes attributes by templates; crfkit.load opens it")
        self._scorer = model.scorer(np.float64)
        self._tagged = self._sequence = self._potentials = None

    def open(self, name: str | os.PathLike[str]) -> contextlib.closing[Self]:
        """Opens a model file: CRFsuite's, or crfkit's if it was trained on items."""
        with open(name, "rb") as file:
            data = file.read()
        if data[:4] != b"lCRF" and data[8:9] == b"{":
            from crfkit.model import read_model

            self._adopt(read_model(name)[0], None)
        else:
            features, header = parse_suite(data, os.fspath(name))
            self._adopt(chain_model(features), header)
        return contextlib.closing(self)

    def open_inmemory(self, value: bytes) -> contextlib.closing[Self]:
        """Opens a model that is in memory."""
        features, header = parse_suite(value)
        self._adopt(chain_model(features), header)
        return contextlib.closing(self)

    def close(self) -> None:
        """Closes the model."""
        self.__init__()  # type: ignore[misc]

    def _opened(self) -> ChainModel:
        if self._model is None:
            raise ValueError("The tagger is not opened")
        return self._model

    def labels(self) -> list[str]:
        """The model's labels."""
        self._opened()
        return list(self._labels)

    def set(self, xseq: Any) -> None:
        """Sets the sequence for :meth:`tag`, :meth:`probability` and :meth:`marginal`."""
        self._sequence = _known(self._opened(), [xseq])
        self._tagged = self._potentials = None

    def tag(self, xseq: Any = None) -> list[str]:
        """The best labels of a sequence, or of that given to :meth:`set`."""
        model = self._opened()
        if xseq is None:
            data = self._current()
            if data is None:
                return []
            p = model.score(data, 1, np.float64)
            return [self._labels[i] for i in decode_flat(p, 1).tolist()]
        if isinstance(xseq, ItemSequence):
            self.set(xseq)
            return self.tag()
        self._tagged, self._sequence, self._potentials = xseq, None, None  # read again only if somebody asks
        return _core.tag_items(self._scorer, self._names, (xseq,), self._labels, 1)[0]  # type: ignore[arg-type]

    def _current(self) -> Dataset | None:
        if self._sequence is None and self._tagged is not None:
            self.set(self._tagged)
        return self._sequence

    def _inference(self) -> tuple[Potentials, float, NDArray[Any]]:
        model = self._opened()
        data = self._current()
        if data is None:
            raise ValueError("there is no sequence: call set or tag first")
        if self._potentials is None:
            p = model.score(data, 1, np.float64)
            self._potentials = (p, float(log_partition(p, 1)[0]), node_marginals(p, 1))
        return self._potentials

    def probability(self, yseq: Sequence[str]) -> float:
        """Probability of a labelling of the sequence that was set or tagged last."""
        p, log_z, _ = self._inference()
        n = len(p.unary)
        if len(yseq) != n:
            raise ValueError(f"The numbers of items and labels differ: |x| = {n}, |y| = {len(yseq)}")
        path = np.array([self._number(y) for y in yseq], np.int64)
        score = float(p.unary[np.arange(n), path].sum() + p.pairwise[path[:-1], path[1:]].sum())
        return float(np.exp(score - log_z))

    def _number(self, label: str) -> int:
        if label not in self._labels:
            raise RuntimeError(f"Failed to convert into label identifier: {label}")
        return self._labels.index(label)

    def marginal(self, y: str, pos: int) -> float:
        """Probability of a label at a position of the sequence that was set or tagged last."""
        nodes = self._inference()[2]
        if not 0 <= pos < len(nodes):
            raise ValueError(f"The position {pos} is out of range of {len(nodes)}")
        return float(nodes[pos, self._number(y)])

    def _features(self) -> tuple[SuiteFeatures, dict[str, str]]:
        features = suite_features(self._opened())
        if self._header is None:
            self._header = parse_suite(suite_bytes(features))[1]
        return features, self._header

    def info(self) -> ModelInfo:
        """Header, labels, attributes and weights, in full precision."""
        return ModelInfo(*self._features())

    def dump(self, filename: str | os.PathLike[str] | None = None) -> None:
        """Writes the model as text, as ``crfsuite dump`` does but in full precision; prints it without a file name."""
        if filename is None:
            _write_dump(sys.stdout, *self._features())
        else:
            with open(filename, "w", encoding="utf-8") as file:
                _write_dump(file, *self._features())


def _known(model: ChainModel, sequences: list[Any]) -> Dataset:
    assert isinstance(model.encoder, ItemEncoder)
    if isinstance(sequences[0], ItemSequence):
        return model.encoder.encode(sequences[0]._items, False, 1)
    return Dataset(*_core.find_items(model.encoder._names, sequences))


def _write_dump(out: IO[str], features: SuiteFeatures, header: dict[str, str]) -> None:
    def block(title: str, lines: Iterator[str]) -> None:
        out.write(f"{title} = {{\n")
        out.writelines(f"{line}\n" for line in lines)
        out.write("}\n\n")

    def weights(kind: int, records: NDArray[Any], names: Sequence[str]) -> Iterator[str]:
        for _, i, j, w in records.tolist():
            yield f"  ({kind}) {names[i]} --> {features.labels[j]}: {np.format_float_positional(w, trim='0')}"

    names = features.names.tolist()
    block("FILEHEADER", (f"  {k}: {v}" for k, v in header.items()))
    block("LABELS", (f"  {i:5d}: {label}" for i, label in enumerate(features.labels)))
    block("ATTRIBUTES", (f"  {i:5d}: {name}" for i, name in enumerate(names)))
    block("TRANSITIONS", weights(1, features.transitions, features.labels))
    block("STATE_FEATURES", weights(0, features.state, names))
