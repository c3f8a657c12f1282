"""Training by penalised likelihood: what CRF and MEMM share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.checkpoints import Checkpoint, State, digest, seconds_of
from crfkit.base.interrupts import searching
from crfkit.base.messages import counted, is_watched, show, warn
from crfkit.base.numbers import frozen
from crfkit.base.parameters import check_number
from crfkit.chain.beams import Adaptive, Beam, as_beam
from crfkit.chain.constraints import Constraints
from crfkit.data.dataset import Layout, WeightRules
from crfkit.data.labels import collect_labels, label_numbers, label_sets
from crfkit.data.sequences import check_sequences
from crfkit.estimators.chained import ChainEstimator
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder, plain_lists
from crfkit.metrics import evaluate, require_known
from crfkit.model.chain_model import ChainModel
from crfkit.training import BackwardObjective
from crfkit.training.checks import check_gold, check_partial, class_weights, sequence_weights
from crfkit.training.objective import LikelihoodObjective, Objective, Problem
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Callback, Progress, Result, lent
from crfkit.training.registry import find_algorithm, supporting
from crfkit.training.semi import SemiSupervisedObjective, minimize_with_entropy
from crfkit.training.sequences import SequenceObjective

Vector = NDArray[np.float64]
Rules = str | Constraints | Iterable[tuple[str, str]] | None


@dataclass(frozen=True)
class Skeleton:
    """A model without its weights."""

    encoder: Encoder
    labels: tuple[Any, ...]
    layout: Layout
    constraints: Constraints | None

    def pruned(self) -> Skeleton:
        """Without attributes that have no weight."""
        keep = [np.diff(ptr) > 0 for ptr in (self.layout.state_ptr, self.layout.edge_ptr)]
        if all(k.all() for k in keep):
            return self
        return replace(self, encoder=self.encoder.pruned(*keep), layout=self.layout.without_empty_rows())


class PenalisedChain(ChainEstimator):
    """A chain of labels whose weights minimise a penalised likelihood.

    The parameters that not all of these estimators have are class attributes here.
    """

    features: FeatureSource
    algorithm: str | Algorithm
    c1: float = 0
    c2: float
    min_freq: float
    all_possible_states: bool
    all_possible_transitions: bool
    start_end: bool = True
    constraints: Rules = None
    class_weight: str | Mapping[Any, float] | None = None
    entropy_weight: float = 0
    entropy_per: str = "sequence"
    entropy_ramp: int = 10
    beam: Beam | Adaptive | str | None = None
    gradient: str = "forward-backward"
    max_iter: int | None
    tol: float
    early_stopping: int | None
    warm_start: bool = False
    warm_start_fraction: float | None = None
    dtype: str
    device: str = "cpu"
    random_state: int | None
    verbose: bool
    callback: Callback | None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float | str = "5min"

    _sums = False  # whether min_freq sums values, as CRFsuite does
    _model_class: type[ChainModel] = ChainModel
    _needs_labels = False  # whether all labels must be known
    _seen = 0  # sequences of a stream so far

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        for name in ("c1", "c2", "min_freq", "tol", "entropy_weight"):
            check_number(self, name, getattr(self, name), 0)
        check_number(self, "entropy_ramp", self.entropy_ramp, 0, integer=True)
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        check_number(self, "early_stopping", self.early_stopping, 1, integer=True, optional=True)
        check_number(self, "warm_start_fraction", self.warm_start_fraction, 0, optional=True, strict=True)
        if self.warm_start_fraction is not None and self.warm_start_fraction > 1:
            raise ValueError(f"'warm_start_fraction' of {owner} must be at most 1, got {self.warm_start_fraction!r}")
        if np.isinf(self.entropy_weight):
            raise ValueError(f"'entropy_weight' of {owner} must be finite, got {self.entropy_weight!r}")
        choices = {
            "entropy_per": ("sequence", "token"),
            "gradient": ("forward-backward", "backward"),
            "dtype": ("float32", "float64"),
        }
        for name, (a, b) in choices.items():
            if getattr(self, name) not in (a, b):
                raise ValueError(f"{name!r} of {owner} must be {a!r} or {b!r}, got {getattr(self, name)!r}")
        as_beam(self.beam)
        seconds_of(self.checkpoint_every)
        for name in ("c1", "entropy_weight", "beam", "gradient", "warm_start_fraction"):
            value, unset = getattr(self, name), getattr(PenalisedChain, name)
            if value != unset:
                self._require(name, value, unset)
                if name in ("beam", "warm_start_fraction") and self.gradient == "backward":
                    raise ValueError(f"{name!r} of {owner} needs gradient='forward-backward', got 'backward'")
        find_algorithm(self.algorithm, owner)
        if self.device != "cpu":
            self._check_device(owner)

    def _check_device(self, owner: str) -> None:
        """Raises if there is no such device, or it does not know what is asked of it."""
        from crfkit.torch.sparse import require_device

        require_device(owner, self.device)
        self._require("device", self.device, "cpu")
        for name in ("c1", "entropy_weight", "beam", "gradient"):
            if getattr(self, name) != getattr(PenalisedChain, name):
                raise ValueError(f"{name!r} of {owner} needs device='cpu', got {self.device!r}")

    def _require(self, name: str, value: Any, unset: Any = None) -> None:
        """Raises if the algorithm does not support what is asked of it."""
        owner = type(self).__name__
        if name not in find_algorithm(self.algorithm, owner).supports:
            raise ValueError(
                f"{name!r} of {owner} must be {unset!r} for the algorithm {self.algorithm!r} "
                f"(others are for {supporting(name)}), got {value!r}"
            )

    def _rules(self, labels: Sequence[Any]) -> Constraints | None:
        rules, owner = self.constraints, type(self).__name__
        if rules is None or isinstance(rules, Constraints):
            if rules is not None and len(rules.start) != len(labels):
                raise ValueError(
                    f"'constraints' of {owner} are for {len(rules.start)} labels, the data has {len(labels)}"
                )
            return rules
        if not isinstance(rules, Iterable):
            raise TypeError(f"'constraints' of {owner} must be a scheme, Constraints or pairs of labels, got {rules!r}")
        if isinstance(rules, str):
            return Constraints.from_scheme(labels, rules)
        return Constraints.from_forbidden(labels, rules)

    def _prepare(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, model: ChainModel | None, grow: bool
    ) -> tuple[Skeleton, Problem]:
        """Columns to features to numbers, beginning with what ``model`` knows; ``grow`` adds what is new."""
        self._check_parameters()
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        check_sequences(X, text=True)
        if len(X) == 0:
            raise ValueError("there is no sequence to learn from")
        encoder = make_encoder(self.features, X) if model is None else model.encoder.copy() if grow else model.encoder
        data = encoder.encode(X, grow or model is None, self.n_jobs)
        labels = collect_labels(y, () if model is None else model.labels)
        if model is not None and not grow and len(labels) > len(model.labels):
            raise ValueError(f"label {labels[len(model.labels)]!r} is not one of the model's")
        numbers = label_numbers(y, labels, data.offsets)
        sets = label_sets(y, labels, data.offsets) if len(numbers) and numbers.min() < 0 else None
        if sets is not None:
            self._require("unknown_labels", "some")
            if self._needs_labels or self.gradient == "backward":
                raise ValueError("unknown labels in 'y' need CRF(gradient='forward-backward') or an HMM")
        weights = sequence_weights(sample_weight, data.n_sequences)
        by_class = class_weights(self.class_weight, labels, numbers, data.offsets)
        if by_class is not None:
            weights = by_class if weights is None else weights * by_class
        if weights is not None:
            self._require("sample_weight", weights)
        rules = self._rules(labels)
        if rules is not None:
            check_gold(numbers, data, rules, labels)
            if sets is not None:
                check_partial(numbers, sets, data, rules)
        if model is not None and not grow:
            layout = model.layout
        else:
            shape = self.min_freq, self.all_possible_states, self.all_possible_transitions, self.start_end
            rule = WeightRules(*shape, encoder.transitions, self._sums)
            base = None if model is None else model.layout
            layout = Layout.build(data, numbers, len(labels), encoder.n_attributes, rule, base=base, sets=sets)
        entropy = self.entropy_weight, self.entropy_per, self.entropy_ramp
        settings = self.c2, *entropy, self.dtype, self.n_jobs
        problem = Problem(layout, data.without_zeros(), numbers, sets, weights, rules, *settings)
        layout, problem = self._as_trained(problem)
        return Skeleton(encoder, labels, layout, rules), problem

    def _as_trained(self, problem: Problem) -> tuple[Layout, Problem]:
        """The layout of the model, and what is minimised: a hook for estimators that look at the data differently."""
        return problem.layout, problem

    def _objective(self, problem: Problem, training: bool = False) -> Any:
        """What is minimised; in training, in the form that the optimiser needs."""
        if training and find_algorithm(self.algorithm).sequential:
            return SequenceObjective(problem, as_beam(self.beam), seen=self._seen)
        if self.gradient == "backward":
            return BackwardObjective(problem)
        if self.device != "cpu":
            from crfkit.torch.sparse import DeviceObjective

            return DeviceObjective(problem, self.device)
        return LikelihoodObjective(problem) if problem.sets is None else SemiSupervisedObjective(problem)

    def objective(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LikelihoodObjective:
        """What :meth:`fit` minimises, without the ``c1`` term, for use with any optimiser.

        After :meth:`fit` it has the weights of the fitted model, in the order of ``weights_``; before, those that the
        data asks for, which are the same for the same data.

        Returns
        -------
        LikelihoodObjective
            ``size``, ``value_and_grad(w)`` and ``hessian_product(w, v)``.

        Examples
        --------
        >>> import numpy as np
        >>> from crfkit import CRF
        >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
        >>> crf = CRF().fit(X, y)
        >>> f = crf.objective(X, y)
        >>> value, gradient = f.value_and_grad(crf.weights_)
        >>> f.size == len(crf.weights_), bool(np.abs(gradient).max() < 0.01)
        (True, True)
        """
        model = self.model_ if self._is_fitted() else None
        found: LikelihoodObjective = self._objective(self._prepare(X, y, sample_weight, model, grow=False)[1])
        return found

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_dev: Any = None,
        y_dev: Any = None,
        sample_weight: ArrayLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : sequences of tokens
        y : sequences of labels
            One label per token. For a CRF, a label may be None (unknown) or a set (one of these), and a sequence
            without labels may be None: see ``entropy_weight``. Training maximises the likelihood of what is known,
            :math:`\\log Z_{known} - \\log Z`; ``"ap"``, ``"pa"`` and ``"arow"`` move towards the best labelling that
            fits.
        X_dev, y_dev : optional
            Held-out data, scored after every iteration for the callback; all its labels must be known.
        sample_weight : array [S], optional
            Weights of the sequences.
        resume : bool
            Continue from ``checkpoint``, if the file exists, with the same data and settings. The weights will be the
            same, bit for bit, as without the interruption. If training had ended, they are read from the file.

        Returns
        -------
        self
            If interrupted from the keyboard, with the best weights so far, and a warning.
        """
        held_out = _held_out(X_dev, y_dev)
        if self.early_stopping is not None and held_out is None:
            raise ValueError(
                f"'early_stopping' of {type(self).__name__} needs held-out data: 'X_dev' and 'y_dev' of fit"
            )
        self._seen = 0
        self._fit(X, y, held_out, sample_weight, resume=resume)
        if text := find_algorithm(self.algorithm).shortfall(self.result_, self.max_iter, self.tol):
            self._say_not_converged(text)
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        held_out: tuple[Any, Any] | None,
        sample_weight: ArrayLike | None,
        stream: bool = False,
        resume: bool = False,
    ) -> Self:
        """Columns -> features -> Dataset -> objective -> optimiser -> model."""
        X, y = _as_list(X), _as_list(y)
        old = self.model_ if (stream or self.warm_start) and self._is_fitted() else None
        skeleton, problem = self._prepare(X, y, sample_weight, old, grow=True)
        if stream:  # of one pass
            problem = replace(problem, entropy_ramp=0)
        objective = self._objective(problem, training=True)
        layout, n_tokens = skeleton.layout, objective.n_tokens
        w = np.zeros(layout.size) if old is None else old.layout.move_weights(old.weights, layout)
        fingerprint = self._fingerprint(skeleton, problem, w, held_out)
        keep = Checkpoint() if stream else Checkpoint.of(self, fingerprint, resume)
        result = None if keep.finished is None else Result.of_state(keep.finished, layout.size)
        start: State = {"w": None}  # where the search on a fraction of the sequences ended
        start |= keep.part("start", lambda: start) or {}
        if start["w"] is not None and np.shape(start["w"]) != w.shape:
            raise ValueError(f"{keep.path}: the checkpoint is damaged: its weights are of another number")
        if self.warm_start_fraction is not None and start["w"] is None and result is None:
            first = self._minimize(LikelihoodObjective(self._some(problem)), w, loose=10, checkpoint=keep)
            start["w"] = first.w
            result = first if first.reason == "interrupted" else None
        del problem
        if result is None:
            watch = _Watch(self, partial(self._model, skeleton), held_out, None if stream else self.early_stopping)
            watch.restore(keep.part("watch", watch.state))
            callback = watch if watch.needed else None
            w = w if start["w"] is None else start["w"]
            result = watch.best(self._minimize(objective, w, callback, stream, checkpoint=keep))
        del objective
        if result.reason != "interrupted":
            keep.finish(result.state())
        info = {
            "iterations": result.iterations,
            "objective": result.value,
            "stopped": result.message,
            "sequences": len(X),
            "tokens": n_tokens,
        }
        self.model_ = self._model(skeleton.pruned(), result.w, info)
        self.result_, self.n_iter_, self.beams_ = result, result.iterations, result.beams
        self._seen += len(X) if stream else 0
        if result.reason == "interrupted":
            warn(f"training was {result.message} (iteration {result.iterations})", RuntimeWarning, stacklevel=3)
        return self

    def _minimize(
        self,
        objective: Objective,
        w0: Vector,
        callback: Callback | None = None,
        stream: bool = False,
        loose: float = 1.0,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        """Runs the optimiser, within beams if they are asked for; ``loose`` is a factor of ``tol``."""
        latest = Result(w0, float("nan"), 0, 0, "interrupted", INTERRUPTED)
        algorithm = partial(
            find_algorithm(self.algorithm).minimize,
            c1=self.c1,
            max_iter=1 if stream else self.max_iter,
            tol=loose * self.tol,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

        def minimize(*given: Any, **more: Any) -> Result:
            nonlocal latest
            latest = algorithm(*given, **more)
            return latest

        try:
            with searching():
                return minimize_with_entropy(
                    minimize,
                    objective,
                    w0,
                    beam=as_beam(self.beam),
                    from_optimum=not w0.any(),
                    callback=callback,
                    checkpoint=checkpoint,
                )
        except KeyboardInterrupt:  # before, between or after the runs of the optimiser, which keeps its weights itself
            return replace(latest, reason="interrupted", message=INTERRUPTED)

    def _fingerprint(
        self, skeleton: Skeleton, problem: Problem, w: Vector, held_out: tuple[Any, Any] | None
    ) -> dict[str, str]:
        """What must be the same for the weights to be the same."""
        if self.checkpoint is None:
            return {}
        p, data = problem, problem.data
        given = [data.offsets, data.ptr, data.attr, data.value, data.edge_ptr, data.edge_attr]
        parts: dict[str, list[Any]] = {
            "training data": [*given, p.labels, *(p.sets or ()), skeleton.labels, *p.layout.arrays().values()],
            "sample weights": [p.weights],
            "constraints of labels": [p.scores],
            "starting weights": [w],
        }
        if held_out is not None and self.early_stopping is not None:
            kept = skeleton.encoder.encode(held_out[0], False, self.n_jobs)
            parts["held-out data"] = [kept.offsets, kept.attr, kept.value, *map(list, held_out[1])]
        left_out = ("features", "constraints", "n_jobs", "verbose", "warm_start")
        settings = {name: repr(x) for name, x in self._settings().items() if name not in left_out}
        return {"model": self._kind, **settings, **{name: digest(things) for name, things in parts.items()}}

    def _some(self, problem: Problem) -> Problem:
        """The sequences of ``warm_start_fraction``."""
        n, fraction = problem.data.n_sequences, self.warm_start_fraction
        assert fraction is not None
        pick = np.random.default_rng(self.random_state or 0).permutation(n)
        some = problem.take(np.sort(pick[: max(1, round(fraction * n))]))
        if (some.labels < 0).any():
            raise ValueError(f"'warm_start_fraction' of {type(self).__name__} needs labels for all tokens")
        return replace(some, weights=None)

    def _model(self, skeleton: Skeleton, w: Vector, info: dict[str, Any] | None = None) -> ChainModel:
        s = skeleton
        parts = s.encoder, s.labels, s.layout, w, s.constraints, np.dtype(self.dtype)
        return self._model_class(*parts, self._settings(), info or {})

    def _callback(self, model: Callable[[Vector], ChainModel]) -> Callback | None:
        """What is called after every iteration; ``model`` makes a model of its weights."""
        return self.callback

    @property
    def weights_(self) -> Vector:
        """The weights, in the order of :meth:`objective`; read-only."""
        self._require_fitted()
        return frozen(self.model_.weights)


class _Watch:
    """A callback that adds held-out scores, prints, and stops early, around the user's."""

    borrows = True  # the user's gets a copy

    def __init__(
        self,
        owner: PenalisedChain,
        model: Callable[[Vector], ChainModel],
        held_out: tuple[Any, Any] | None,
        patience: int | None,
    ) -> None:
        self.model, self.held_out, self.patience = model, held_out, patience
        self.verbose, self.n_jobs = owner.verbose, owner.n_jobs
        self.callback = owner._callback(model)
        self.needed = self.callback is not None or is_watched(self.verbose) or patience is not None
        self.score, self.w, self.since = -np.inf, np.zeros(0), 0

    def __call__(self, progress: Progress, w: Vector) -> bool | None:
        if self.held_out is not None:
            probe = ChainEstimator()
            probe.n_jobs = self.n_jobs
            probe.model_ = self.model(w)
            scores = evaluate(self.held_out[1], probe.predict(self.held_out[0])).summary()
            progress = replace(progress, scores=scores)
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


def _held_out(X_dev: Any, y_dev: Any) -> tuple[Any, Any] | None:
    """Held-out data, checked."""
    if (X_dev is None) != (y_dev is None):
        raise ValueError("'X_dev' and 'y_dev' of fit go together")
    if X_dev is None:
        return None
    if len(X_dev) != len(y_dev):
        raise ValueError(f"'X_dev' holds {counted(len(X_dev), 'sequence')}, 'y_dev' labels for {len(y_dev)}")
    require_known(y_dev, "y_dev")
    return X_dev, y_dev


def _as_list(x: Any) -> Any:
    """The same, or a list of what an iterator or an Arrow array gives."""
    return list(x) if isinstance(x, Iterator) else plain_lists(x)
