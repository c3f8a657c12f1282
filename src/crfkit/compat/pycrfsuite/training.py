"""A run of a trainer: the data, the optimiser, the log, the model."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.numbers import over_rows
from crfkit.chain.inference import decode_flat
from crfkit.compat.pycrfsuite.parameters import ALGORITHMS, TITLES, UNLIMITED, log_value
from crfkit.compat.suite_file import SuiteFeatures, chain_model, empty_features, suite_bytes, suite_features
from crfkit.compat.trainlog import iteration_lines, progress_marks
from crfkit.data.dataset import Dataset
from crfkit.data.sequences import Items
from crfkit.estimators.crf import CRF
from crfkit.model.chain_model import ChainModel
from crfkit.training.optimiser import Algorithm, Callback, Progress, Reason, Result, Settings
from crfkit.training.sequences import SequenceObjective
from crfkit.training.stochastic import AROW, SGD, Pass, PassiveAggressive, Perceptron

if TYPE_CHECKING:
    from crfkit.compat.pycrfsuite.trainer import BaseTrainer


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


#: Of a model file, as the log names them.
_PARTS = ("labels", "attributes", "feature references for transitions", "feature references for attributes")


def _some(items: Items, numbers: NDArray[Any]) -> Items:
    chosen: Any = numbers
    some: Any = items[chosen]
    assert isinstance(some, Items)
    return some


class _SuiteCRF(CRF):
    """The CRF as CRFsuite trains it; tells the trainer about every iteration."""

    _sums = True
    _listener: Any = None

    def _say_not_converged(self, text: str) -> None:
        """Nothing, as CRFsuite."""

    def _callback(self, model: Any) -> Callback | None:
        return None if self._listener is None else self._listener(model)


class Training:
    """One run of a trainer."""

    def __init__(self, trainer: BaseTrainer, holdout: int) -> None:
        self.trainer = trainer
        self.holdout = holdout
        self.values = trainer.get_params()
        self.algorithm = trainer._algorithm
        self.began = time.perf_counter()
        #: The weights that the log is about, if not those of the model.
        self.current: Callable[[], NDArray[np.float64]] | None = None
        self.announced = False
        #: Which of CRFsuite's rules has ended training: on the size of the gradient or the mean loss, or on its fall.
        self.ended: Literal["", "epsilon", "delta"] = ""

    def say(self, *lines: str) -> None:
        """Gives lines of the log to the trainer."""
        for line in lines:
            self.trainer.message(line)

    def estimator(self) -> _SuiteCRF:
        """The CRF with the trainer's parameters."""
        v = self.values
        most = v["max_iterations"]
        unlimited = most >= UNLIMITED or (self.algorithm == "lbfgs" and most == 0)
        settings: dict[str, Any] = {
            "features": None,
            "c1": v.get("c1", 0.0),
            "c2": v.get("c2", 0.0),
            "min_freq": max(0.0, v["feature.minfreq"]),
            "all_possible_states": v["feature.possible_states"],
            "all_possible_transitions": v["feature.possible_transitions"],
            "start_end": False,
            "max_iter": None if unlimited else max(most, int(self.algorithm == "lbfgs")),
            "tol": self.tolerance(),
        }
        settings["algorithm"] = self.optimiser()
        return _SuiteCRF(**settings)

    def optimiser(self) -> str | Algorithm:
        """What ``CRF(algorithm=...)`` takes."""
        v = self.values
        if self.algorithm == "l2sgd":
            return _Descent(values=v)
        if self.algorithm == "passive-aggressive":
            return _PassiveAggressive(v["type"], v["c"], v["error_sensitive"], v["averaging"], self)
        if self.algorithm == "arow":
            return AROW(v["variance"], v["gamma"])
        if self.algorithm == "averaged-perceptron":
            return _Perceptron()
        return ALGORITHMS[self.algorithm]

    def tolerance(self) -> float:
        """CRF's ``tol`` where it means the same; otherwise zero, and the listener decides."""
        v = self.values
        same = self.algorithm == "lbfgs" and v["epsilon"] == v["delta"] and v["period"] == 10
        return float(v["delta"]) if same else 0.0

    def run(self, path: str) -> ChainModel:
        """Trains, and writes the model if there is a path."""
        trainer = self.trainer
        items = Items.concatenate(trainer._parts) if trainer._parts else Items.from_sequences([])
        inside = np.array(trainer._groups, int) != self.holdout if self.holdout != -1 else np.ones(len(items), bool)
        if self.holdout != -1:
            self.say(f"Holdout group: {self.holdout + 1}\n", "\n")
        names = [key for key in self.values if key.startswith("feature.")]
        self.say("Feature generation\n", "type: CRF1d\n", *(log_value(k, self.values[k]) for k in names))
        features, size, info = self.train(items, inside)
        self.say(f"Total seconds required for training: {time.perf_counter() - self.began:.3f}\n", "\n")
        began = time.perf_counter()
        self.say("Storing the model\n")
        active = len(features.state) + len(features.transitions)
        self.say(f"Number of active features: {active} ({size})\n")
        self.say(f"Number of active attributes: {len(features.names)} ({len(items.names)})\n")
        self.say(f"Number of active labels: {len(features.labels)} ({len(features.labels)})\n")
        if path:
            with open(path, "wb") as file:
                file.write(suite_bytes(features))
        self.say(*(f"Writing {part}\n" for part in _PARTS))
        self.say(f"Seconds required: {time.perf_counter() - began:.3f}\n", "\n")
        return chain_model(features, info)

    def train(self, items: Items, inside: NDArray[np.bool_]) -> tuple[SuiteFeatures, int, dict[str, Any]]:
        """Trains on the sequences inside; gives what has a weight, how many could have, and the model's info."""
        every = self.trainer._labels
        labels = tuple(dict.fromkeys(label for y in every for label in y))
        y = [own for own, trained in zip(every, inside, strict=True) if trained]
        if not any(y):
            self.announce(0)
            if self.algorithm == "lbfgs":
                self.say("L-BFGS terminated with error code (-1020)\n")
            return empty_features(labels), 0, {}
        train = items if inside.all() else _some(items, np.flatnonzero(inside))
        rest = np.flatnonzero(~inside)
        held = (_some(items, rest), [every[i] for i in rest]) if len(rest) else None
        crf = self.estimator()
        crf._listener = lambda model: _Listener(self, model, held, labels, len(y))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                crf.fit(train, y)
            except RuntimeWarning:
                raise KeyboardInterrupt from None
        if not self.announced:  # training ended before its first iteration
            self.announce(crf.model_.layout.size)
        self.say(*_ending(self.algorithm, crf.result_.reason, crf.result_.value, self.ended))
        features = suite_features(crf.model_, _all_labels(labels, crf.model_.labels))
        return features, crf.model_.layout.size, dict(crf.model_.info)

    def announce(self, n_features: int) -> None:
        """The log between feature generation and the first iteration."""
        self.announced = True
        self.say(*progress_marks())
        self.say("\n", f"Number of features: {n_features}\n")
        self.say(f"Seconds required: {time.perf_counter() - self.began:.3f}\n", "\n")
        rest = [key for key in self.values if not key.startswith("feature.")]
        if self.algorithm == "lbfgs":  # whose log has an order of its own
            rest.remove("num_memories")
            rest.insert(rest.index("max_iterations"), "num_memories")
        self.say(f"{TITLES[self.algorithm]}\n", *(log_value(k, self.values[k], self.algorithm) for k in rest), "\n")


def _all_labels(seen: tuple[str, ...], trained: Sequence[Any]) -> tuple[str, ...]:
    """The labels that have weights, in the order of the data."""
    known = set(trained)
    return tuple(label for label in seen if label in known)


def _ending(algorithm: str, reason: Reason, value: float, ended: str) -> tuple[str, ...]:
    """What the log says about the end of training."""
    limit = "terminated with the maximum number of iterations\n"
    if algorithm == "l2sgd":
        why = limit if reason == "max_iter" else "terminated with the stopping criteria\n"
        return f"SGD {why}", f"Loss: {value:.6f}\n"
    if algorithm != "lbfgs":
        return ("Terminated with the stopping criterion\n", "\n") if ended else ()
    if reason == "max_iter":
        return (f"L-BFGS {limit}",)
    if ended == "epsilon" or reason in ("converged", "precision"):
        return ("L-BFGS resulted in convergence\n",)
    return ("L-BFGS terminated with the stopping criteria\n",)


class _Perceptron(Perceptron):
    """The perceptron, whose loss of a sequence is the fraction of its labels that are wrong, as in CRFsuite."""

    def prepare(self, objective: SequenceObjective, w: NDArray[np.float64], rng: Any, limit: int) -> Pass:
        native = objective.native

        def run(order: NDArray[np.int64], past: int) -> float:
            native.perceptron(order)
            return native.mistakes

        return run


@dataclass(frozen=True)
class _PassiveAggressive(PassiveAggressive):
    """Its log is about the weights as they are, also where the model gets their mean."""

    training: Any = None

    def prepare(self, objective: SequenceObjective, w: NDArray[np.float64], rng: Any, limit: int) -> Pass:
        self.training.current = objective.weights
        return super().prepare(objective, w, rng, limit)


_CALIBRATION = ("eta", "rate", "samples", "candidates", "max_trials")


@dataclass(frozen=True)
class _Descent(SGD):
    """SGD with CRFsuite's steps, 1 / (lambda (t0 + t)), whose result are the weights after the pass of least loss."""

    average: bool = False
    values: Mapping[str, float] = field(default_factory=dict)  # those of CRFsuite's parameters

    def run(self, objective: SequenceObjective, w: NDArray[np.float64], settings: Settings) -> Result:
        least, best, callback = np.inf, w, settings.callback

        def watch(progress: Progress, w: NDArray[np.float64]) -> bool | None:
            nonlocal least, best
            if progress.value < least:
                least, best = progress.value, w.copy()
            return None if callback is None else callback(progress, w)

        found = super().run(objective, w, replace(settings, callback=watch))
        return found if least == np.inf else replace(found, w=best, value=least)

    def calibrate(self, objective: SequenceObjective, w: NDArray[np.float64], rng: Any) -> float:
        """The first step of least loss: of those from ``eta`` upwards while they lower it, then of smaller ones."""
        native, decay = objective.native, objective.decay
        first, rate, samples, candidates, left = (self.values[f"calibration.{name}"] for name in _CALIBRATION)
        if not (first > 0 and rate > 1):
            raise ValueError(f"'calibration.eta' must be > 0 and 'calibration.rate' > 1, got {first:g} and {rate:g}")
        sample = rng.permutation(objective.n_sequences)[: int(samples)]

        def loss(eta: float) -> float:
            native.set_weights(w)
            try:
                total = native.sgd(sample, eta, decay, max(decay, 1e-9), 1.0, 0, 1, False)
            except ValueError:  # the weights blew up
                return float("inf")
            moved = objective.weights()
            return float(total) + decay * len(sample) / 2 * float(moved @ moved)

        limit = least = loss(0.0)
        best = first
        for up in (True, False):
            eta, lower = first if up else first / rate, 0
            while left > 0 and lower < candidates:
                found, left = loss(eta), left - 1
                if found < least:
                    least, best = found, eta
                if up and not found < limit:
                    break
                lower += found < limit
                eta = eta * rate if up else eta / rate
        native.set_weights(w)
        return best


class _Listener:
    """Turns iterations into log lines, scores held-out data, and applies CRFsuite's stopping rules."""

    def __init__(
        self,
        training: Training,
        model: Any,
        held: tuple[Items, list[list[str]]] | None,
        labels: tuple[str, ...],
        n_sequences: int,
    ) -> None:
        self.training = training
        self.model = model
        self.labels = labels
        self.n_sequences = n_sequences
        self.losses: deque[float] = deque(maxlen=max(0, int(training.values.get("period", 10))) + 1)
        self.last_time, self.last_evaluations = 0.0, 1
        self.held: tuple[Dataset, NDArray[np.int64]] | None = None
        self.raw_held = held

    def __call__(self, progress: Progress, w: NDArray[np.float64]) -> bool | None:
        training = self.training
        if not training.announced:
            training.announce(len(w))
        scores = None if self.raw_held is None else self.score(self.model(w), self.raw_held)
        own = w if training.current is None else training.current()
        norm = float(np.sqrt(_core.dot(own, own)))
        name = "Feature L2-norm" if training.algorithm == "l2sgd" else "Feature norm"
        numbers: dict[str, float] = {"Loss": progress.value, name: norm}
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
        training.ended = self.stops(progress, norm)
        return bool(training.ended)

    def stops(self, progress: Progress, norm: float) -> Literal["", "epsilon", "delta"]:
        """Which of CRFsuite's rules ends training now."""
        v, algorithm = self.training.values, self.training.algorithm
        if algorithm in ("lbfgs", "l2sgd"):
            if self.training.tolerance() > 0 or (algorithm == "l2sgd" and v["delta"] == 0):
                return ""
            if algorithm == "lbfgs" and progress.gradient_norm <= v["epsilon"] * max(1.0, norm):
                return "epsilon"
            self.losses.append(progress.value)
            gain = self.losses[0] - progress.value
            full = len(self.losses) == self.losses.maxlen and len(self.losses) > 1
            limit = v["delta"] * abs(progress.value)
            return "delta" if full and (gain <= limit if algorithm == "lbfgs" else gain < limit) else ""
        mean = progress.value / self.n_sequences
        return "epsilon" if (mean <= v["epsilon"] if algorithm == "arow" else mean < v["epsilon"]) else ""

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
        whole = over_rows(np.logical_and, right, data.offsets, True)
        return counts, (int(right.sum()), len(right)), (int(whole.sum()), len(whole))
