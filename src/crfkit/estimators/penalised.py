"""Training by penalised likelihood, shared by CRF and MEMM."""

from __future__ import annotations

import itertools
import json
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.checkpoints import Checkpoint, State, digest, seconds_of
from crfkit.base.interrupts import searching
from crfkit.base.messages import are_counted, counted, warn
from crfkit.base.numbers import frozen
from crfkit.base.parameters import check_number
from crfkit.chain.beams import Adaptive, Beam, MinDivergence, as_beam
from crfkit.chain.constraints import Constraints
from crfkit.chain.ordered import holds_all
from crfkit.data.blocks import Blocks
from crfkit.data.dataset import NONE, Layout, WeightRules, check_label_count
from crfkit.data.labels import Hints, collect_labels, found_labels, label_classes, label_numbers, split_by_knowledge
from crfkit.data.readers import Weighted
from crfkit.data.sequences import check_sequences
from crfkit.estimators.chained import ChainEstimator
from crfkit.estimators.expectations import Expectations, warn_unseen
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder, plain_lists
from crfkit.features.encoding import BlockWriter
from crfkit.features.hashing import MOST_BITS, HashedEncoder
from crfkit.features.restoring import StoredEncoder, features_of, numbers_in, renumbered
from crfkit.model.chain_model import ChainModel
from crfkit.training import BackwardObjective
from crfkit.training.checks import check_gold, check_partial, class_weights, sequence_weights
from crfkit.training.expectations import ExpectationObjective
from crfkit.training.objective import SINGLE_NOISE, LikelihoodObjective, Objective, Problem
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Callback, Result
from crfkit.training.registry import find_algorithm, supporting
from crfkit.training.semi import SemiSupervisedObjective, minimize_with_entropy
from crfkit.training.sequences import SequenceObjective
from crfkit.training.watching import Watch, held_out_data, watched

Vector = NDArray[np.float64]
_SPREAD = 0.1  # of random weights at the start, where states are hidden
_ORDERED_BEAM = MinDivergence(0.1, 2)  # in which higher orders are trained where no other is asked for
_PIECE = 2000  # sequences that are encoded at a time
Rules = str | Constraints | Iterable[tuple[str, str]] | None


@dataclass(frozen=True)
class Skeleton:
    """A model without its weights."""

    encoder: Encoder
    labels: tuple[Any, ...]
    layout: Layout
    constraints: Constraints | None

    def loaded(self) -> Skeleton:
        """With its encoder in memory."""
        return replace(self, encoder=self.encoder.load()) if isinstance(self.encoder, StoredEncoder) else self

    def pruned(self) -> Skeleton:
        """Without attributes that have no weight."""
        keep = [np.diff(ptr) > 0 for ptr in (self.layout.state_ptr, self.layout.edge_ptr)]
        if all(k.all() for k in keep):
            return self
        return replace(self, encoder=self.encoder.pruned(*keep), layout=self.layout.without_empty_rows())


_MOST_STATES = 256  # hidden ones of a label


class PenalisedChain(ChainEstimator):
    """A chain of labels whose weights minimise a penalised likelihood.

    Parameters that only some of these estimators have are class attributes here.
    """

    features: FeatureSource
    algorithm: str | Algorithm
    c1: float = 0
    c2: float
    min_freq: float
    all_possible_states: bool
    all_possible_transitions: bool
    start_end: bool = True
    hash_bits: int | None = None
    constraints: Rules = None
    class_weight: str | Mapping[Any, float] | None = None
    entropy_weight: float = 0
    entropy_per: str = "sequence"
    entropy_ramp: int = 10
    beam: Beam | Adaptive | str | None = None
    gradient: str = "forward-backward"
    hidden_states: int = 1
    order: int = 1
    n_init: int = 1
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
        check_number(self, "hidden_states", self.hidden_states, 1, integer=True)
        check_number(self, "n_init", self.n_init, 1, integer=True)
        if self.hidden_states > _MOST_STATES:
            raise ValueError(f"'hidden_states' of {owner} must be at most {_MOST_STATES}, got {self.hidden_states}")
        if self.hidden_states > 1:
            for name in ("class_weight", "warm_start_fraction"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name!r} of {owner} needs hidden_states=1, got {self.hidden_states}")
        self._check_order(owner)
        if self.n_init > 1 and self.checkpoint is not None:
            raise ValueError(f"'checkpoint' of {owner} needs n_init=1, got {self.n_init}")
        check_number(self, "entropy_ramp", self.entropy_ramp, 0, integer=True)
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        check_number(self, "hash_bits", self.hash_bits, 1, integer=True, optional=True)
        if self.hash_bits is not None and self.hash_bits > MOST_BITS:
            raise ValueError(f"'hash_bits' of {owner} must be at most {MOST_BITS}, got {self.hash_bits!r}")
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

    def _check_order(self, owner: str) -> None:
        """Raises if the order is not 1, 2 or 3, or another parameter does not support it."""
        check_number(self, "order", self.order, 1, integer=True)
        if self.order > 3:
            raise ValueError(f"'order' of {owner} must be 1, 2 or 3, got {self.order!r}")
        if self.order == 1:
            return
        self._require("order", self.order, 1)
        first = ("hidden_states", "entropy_weight", "gradient", "warm_start_fraction", "device")
        for name in first:
            if getattr(self, name) != getattr(PenalisedChain, name):
                raise ValueError(f"{name!r} of {owner} needs order=1, got {getattr(self, name)!r}")
        if isinstance(as_beam(self.beam), Adaptive):
            raise ValueError(f"'beam' of {owner} must not be Adaptive with order={self.order}")

    def _beam(self, n_labels: int) -> Beam | Adaptive | None:
        """The beam to train within: one is needed if a higher order has many labels."""
        beam: Beam | Adaptive | None = as_beam(self.beam)
        if self.order == 1 or (beam is None and holds_all(self.order, n_labels)):
            return beam
        if not find_algorithm(self.algorithm).sequential:
            raise ValueError(
                f"'algorithm' of {type(self).__name__} must be 'sgd' or 'adagrad' for order={self.order} "
                f"{'within beams' if beam else f'and {n_labels} labels'}, got {self.algorithm!r}"
            )
        return beam or _ORDERED_BEAM

    def _check_device(self, owner: str) -> None:
        """Raises if there is no such device, or it does not support another parameter."""
        from crfkit.torch.sparse import require_device

        require_device(owner, self.device)
        self._require("device", self.device, "cpu")
        for name in ("c1", "entropy_weight", "beam", "gradient", "hidden_states"):
            if getattr(self, name) != getattr(PenalisedChain, name):
                raise ValueError(f"{name!r} of {owner} needs device='cpu', got {self.device!r}")

    def _require(self, name: str, value: Any, unset: Any = None) -> None:
        """Raises if the algorithm does not support the value of a parameter."""
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

    def _state_rules(self, labels: Sequence[Any]) -> Constraints | None:
        """The rules of states, of which a label may have several."""
        distinct = list(dict.fromkeys(labels))
        rules = self._rules(distinct)
        if rules is None or len(distinct) == len(labels):
            return rules
        place = [distinct.index(label) for label in labels]
        return Constraints(rules.transitions[np.ix_(place, place)], rules.start[place], rules.end[place])

    def _prepare(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        model: ChainModel | None,
        grow: bool,
        expectations: Expectations | None = None,
    ) -> tuple[Skeleton, Problem]:
        """Columns to features to numbers, beginning with what ``model`` knows; ``grow`` adds what is new."""
        self._check_parameters()
        if not isinstance(expectations, (Expectations, NoneType)):
            raise TypeError(f"'expectations' of fit must be Expectations or None, got {reprlib.repr(expectations)}")
        if isinstance(X, Blocks):
            for name, value, unset in (("hidden_states", self.hidden_states, 1), ("expectations", expectations, None)):
                if value != unset:
                    raise ValueError(f"{name!r} of {type(self).__name__} needs data in memory, not a block file")
            encoder, data, labels, numbers, hints = self._stored(X, y, model, grow)
            sample_weight = X.weights if sample_weight is None else sample_weight
        else:
            named = () if expectations is None else expectations.labels
            encoder, data, labels, numbers, hints = self._encoded(X, y, model, grow, named)
        if hints is not None:
            self._require("unknown_labels", "some")
            if self._needs_labels:
                raise ValueError("unknown labels in 'y' need a CRF or an HMM")
            if self.entropy_weight and self.gradient == "backward":
                raise ValueError(f"'entropy_weight' of {type(self).__name__} needs gradient='forward-backward'")
        weights = sequence_weights(sample_weight, data.n_sequences)
        by_class = class_weights(self.class_weight, labels, numbers, data.offsets)
        if by_class is not None:
            weights = by_class if weights is None else weights * by_class
        if weights is not None:
            self._require("sample_weight", weights)
        rules = self._state_rules(labels)
        if rules is not None:
            check_gold(numbers, data, rules, labels)
            if hints is not None:
                check_partial(numbers, hints, data, rules)
        if model is not None and not grow:
            layout = model.layout
        else:
            shape = self._min_freq(X), self.all_possible_states, self.all_possible_transitions, self.start_end
            base = None if model is None else model.layout
            classes = label_classes(labels, () if base is None else base.class_of.tolist()) if self.order > 1 else ()
            rule = WeightRules(*shape, encoder.transitions, self._sums, self.order, classes)
            asking = numbers, hints
            if expectations is not None and hints is not None:  # unlabelled tokens may have any label
                asking = np.where(numbers == -1, -2 - len(hints), numbers), np.vstack([hints, np.zeros(len(labels))])
            sizes = len(labels), encoder.n_attributes
            layout = Layout.build(data, asking[0], *sizes, rule, base=base, hints=asking[1])
        entropy = self.entropy_weight, self.entropy_per, self.entropy_ramp
        settings = self.c2, *entropy, self.dtype, self.n_jobs
        problem = Problem(layout, data.without_zeros(), numbers, hints, weights, rules, *settings)
        if expectations is not None:
            self._require("expectations", expectations)
            for name in ("device", "gradient", "beam", "order"):
                if getattr(self, name) != (unset := getattr(PenalisedChain, name)):
                    raise ValueError(
                        f"{name!r} of {type(self).__name__} must be {unset!r} where there are expectations"
                    )
            unknown = split_by_knowledge(data, numbers)[2]
            if not len(unknown):
                raise ValueError("'expectations' of fit need unlabelled sequences: None in place of their labels")
            problem = replace(problem, criteria=expectations.criteria(encoder, data.take(unknown), labels))
            warn_unseen(expectations.labels, found_labels(y).union(() if model is None else model.labels))
        layout, problem = self._as_trained(problem)
        return Skeleton(encoder, labels, layout, rules), problem

    def _encoded(
        self, X: Any, y: Any, model: ChainModel | None, grow: bool, named: Sequence[Any]
    ) -> tuple[Encoder, Any, tuple[Any, ...], NDArray[np.int32], Hints | None]:
        """Encoder, data, labels (``named`` ones among them), their numbers, and hints if not all are known."""
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        check_sequences(X, text=True)
        if len(X) == 0:
            raise ValueError("there are no sequences to learn from")
        encoder = self._new_encoder(X) if model is None else model.encoder.copy() if grow else model.encoder
        data = encoder.encode(X, grow or model is None, self.n_jobs)
        old = () if model is None else model.labels
        if model is not None and grow and len(old) != self.hidden_states * len(set(old)):
            raise ValueError(
                f"'hidden_states' of {type(self).__name__} is {self.hidden_states}, but the model to continue from has "
                f"{len(old)} states of {counted(len(set(old)), 'label')}"
            )
        new = collect_labels(y, (*old, *(x for x in named if x not in old)))[len(old) :]
        if model is not None and not grow and new:
            raise ValueError(f"label {new[0]!r} is not one of the model's labels")
        labels = (*old, *(label for label in new for _ in range(self.hidden_states)))
        check_label_count(len(labels), states=self.hidden_states > 1)
        numbers, hints = label_numbers(y, labels, data.offsets)
        return encoder, data, labels, numbers, hints if len(numbers) and numbers.min() < 0 else None

    def _stored(
        self, X: Blocks, y: Any, model: ChainModel | None, grow: bool
    ) -> tuple[Encoder, Any, tuple[Any, ...], NDArray[np.int32], Hints | None]:
        """The same of a block file."""
        if y is not None:
            raise ValueError("'y' of fit must be None: a block file holds the labels")
        if not X.classes:
            raise ValueError("there are no labels to learn from")
        if model is None:
            self._check_features(X)
        self._check_min_freq(X)
        X.verify(self.n_jobs)
        check_label_count(len(X.classes))
        labels, (numbers, hints) = X.classes, X.known()
        if model is None:
            return StoredEncoder(X), X.dataset, labels, numbers, hints
        known = list(numbers_in(X, model.encoder))
        encoder = model.encoder
        if grow:
            new = [
                np.where(x == NONE, n + np.cumsum(x == NONE) - 1, NONE)
                for x, n in zip(known, encoder.n_attributes, strict=True)
            ]
            given = [x.astype(np.uint32) for x in new]
            known = [np.minimum(a, b).astype(np.uint32) for a, b in zip(known, given, strict=True)]
            placed = known if encoder.shares_names else given
            encoder = encoder.merged([(StoredEncoder(X).load().arrays(), placed[0], placed[1])])
        labels = (*model.labels, *(x for x in labels if x not in model.labels))
        if not grow and len(labels) > len(model.labels):
            raise ValueError(f"label {labels[len(model.labels)]!r} is not one of the model's labels")
        order = [labels.index(x) for x in X.classes]
        if hints is not None:
            moved = np.full((len(hints), len(labels)), -np.inf)
            moved[:, order] = hints
            hints = moved
        numbers = np.where(numbers < 0, numbers, np.array([*order, -1], np.int32)[np.maximum(numbers, -1)])
        return encoder, renumbered(X.dataset.flat, *known), labels, numbers, hints

    def _check_min_freq(self, X: Blocks) -> None:
        """Raises if a block file lacks attributes that would have weights."""
        least = self._min_freq(X)
        if X.min_freq > max(self._least(least), 1):
            name, needed = (
                ("min_freq", f"at least {X.min_freq:g}") if least < X.min_freq else ("all_possible_states", False)
            )
            raise ValueError(
                f"{name!r} of {type(self).__name__} must be {needed} for {X.path}: attributes that occur fewer than "
                f"{X.min_freq:g} times were left out of it"
            )

    def _check_features(self, X: Blocks) -> None:
        """Raises if features are asked for that are not those of a block file."""
        known = features_of(X.encoder_config)
        same = self.features == "auto"
        if not same:
            token = ("",) * (known["n_columns"] or 1)
            own = make_encoder(self.features, [[token]]).config()
            found = features_of({**own, "n_columns": known["n_columns"], "bits": known["bits"]})
            same = json.loads(json.dumps(found)) == known
        for name, value, unset, good in (
            ("features", self.features, "auto", same),
            ("hash_bits", self.hash_bits, None, self.hash_bits in (None, known["bits"])),
        ):
            if not good:
                raise ValueError(
                    f"{name!r} of {type(self).__name__} must be {unset!r}, or what {X.path} was encoded with, "
                    f"{getattr(X, name)!r}, got {value!r}"
                )

    def _as_trained(self, problem: Problem) -> tuple[Layout, Problem]:
        """The layout of the model, and what is minimised: a hook for estimators that look at the data differently."""
        return problem.layout, problem

    def _objective(self, problem: Problem, training: bool = False) -> Any:
        """What is minimised; in training, in the form that the optimiser needs."""
        beam = self._beam(problem.layout.n_labels)
        if training and find_algorithm(self.algorithm).sequential:
            return SequenceObjective(problem, beam, seen=self._seen)
        if self.order > 1:
            return SequenceObjective(replace(problem, dtype=np.float64), beam)
        if self.gradient == "backward":
            return BackwardObjective(problem)
        if self.device != "cpu":
            from crfkit.torch.sparse import DeviceObjective

            return DeviceObjective(problem, self.device)
        found = LikelihoodObjective(problem) if problem.hints is None else SemiSupervisedObjective(problem)
        if problem.criteria is None:
            return found
        unknown = split_by_knowledge(problem.data, problem.labels)[2]
        return ExpectationObjective(found, problem.take(unknown), problem.criteria)

    def objective(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> LikelihoodObjective:
        """What :meth:`fit` minimises, without the ``c1`` term, for use with any optimiser.

        After :meth:`fit` it has the weights of the fitted model, in the order of ``weights_``; before, those that
        :meth:`fit` would give a model of this data.

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
        y: Any = None,
        *,
        X_dev: Any = None,
        y_dev: Any = None,
        sample_weight: ArrayLike | None = None,
        expectations: Expectations | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : sequences of tokens, or :class:`crfkit.data.Blocks`
            Training data.
        y : sequences of labels; None for a block file, which holds them
            One label per token. For a CRF, a label may be None (unknown), a set (one of these) or a soft label, a
            dict of labels and weights q, and a sequence without labels may be None: see ``entropy_weight``. Training
            maximises the likelihood of what is known, :math:`\\log Z_{known} - \\log Z`, with
            :math:`Z_{known}` a sum over the labellings that fit, each times the product of its :math:`q_t(y_t)`;
            ``"ap"``, ``"pa"`` and ``"arow"`` move towards the best labelling that fits.
        X_dev, y_dev : optional
            Held-out data, scored after every iteration for the callback; all its labels must be known.
        sample_weight : array [S], optional
            Weights of the sequences. Expectations are of all unlabelled sequences alike: their weights have no effect
            on these.
        expectations : Expectations, optional
            Label distributions that tokens of the unlabelled sequences, None in ``y``, are expected to have. All
            attributes of these sequences then get weights for all labels, as far as ``min_freq`` allows. For
            ``"lbfgs"`` only.
        resume : bool
            Continue from ``checkpoint``, if the file exists, with the same data and settings. The weights will be the
            same, bit for bit, as without the interruption. If training had ended, they are read from the file.

        Returns
        -------
        self
            If interrupted from the keyboard, with the best weights so far, and a warning.
        """
        self._check_parameters()  # before there are others with a single start each
        held_out = held_out_data(X_dev, y_dev, self.early_stopping, type(self).__name__)
        self._seen = 0
        if self.n_init == 1:
            self._fit(X, y, held_out, sample_weight, resume=resume, expectations=expectations)
        else:
            self._fit_several(X, y, held_out, sample_weight, expectations)
        if text := find_algorithm(self.algorithm).shortfall(self.result_, self.max_iter, self.tol):
            self._say_not_converged(text)
        return self

    def _fit_several(
        self,
        X: Any,
        y: Any,
        held_out: tuple[Any, Any] | None,
        sample_weight: ArrayLike | None,
        expectations: Expectations | None,
    ) -> None:
        """Keeps the best of ``n_init`` starts, of which the first is that of a single one."""
        first = self.random_state or 0
        best, settings = None, {**self.get_params(deep=False), "n_init": 1}
        for seed in (first, *np.random.SeedSequence(first).generate_state(self.n_init - 1).tolist()):
            one = type(self)(**{**settings, "random_state": seed})
            one._fit(X, y, held_out, sample_weight, expectations=expectations)
            ended = one.result_
            best = one if best is None or ended.value < best.result_.value else best
            if ended.reason in ("interrupted", "callback"):  # of all starts
                best.result_ = replace(best.result_, reason=ended.reason, message=ended.message)
                break
        assert best is not None
        for name in ("model_", "result_", "n_iter_", "beams_"):
            setattr(self, name, getattr(best, name))

    def encode(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str],
        *,
        sample_weight: ArrayLike | None = None,
        memory: float | str = "1GB",
    ) -> Blocks:
        """Writes sequences to a block file, from which :meth:`fit` learns without having them in memory.

        The weights are then the same, bit for bit, as those of ``fit(X, y)``.

        Parameters
        ----------
        X : sequences of tokens, or an iterator of them
            What to encode.
        y : sequences of labels, or an iterator of them
            As for :meth:`fit`.
        path : path
            The file to write. Attributes that occur fewer than ``min_freq`` times are left out of it. Until it is done,
            there is a folder beside it, ``path.part``. It goes after an error, and the next call replaces what a killed
            process left there; ``crfkit encode --resume`` continues with files of text.
        sample_weight : array [S], optional
            Weights of the sequences.
        memory : float or str
            Memory for the vocabulary while it is counted: bytes, or a string such as ``"2GB"``. What does not fit is
            counted on disk. At least 64 MB are used. The final vocabulary must fit in memory.

        Returns
        -------
        Blocks

        Examples
        --------
        >>> import os, tempfile
        >>> from crfkit import CRF
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     blocks = CRF().encode([["one", "pear"]], [["QTY", "NAME"]], os.path.join(folder, "x.blocks"))
        ...     crf = CRF().fit(blocks)
        >>> crf.predict([["one", "pear"]])
        [['QTY', 'NAME']]
        """
        self._check_parameters()
        if isinstance(X, Blocks):
            raise ValueError(f"'X' of encode must hold sequences of tokens: {X.path} is encoded already")
        if y is None:
            raise ValueError("'y' of encode must hold the labels of the sequences, got None")
        pieces = _in_pieces(X, y, sample_weight)
        first = next(pieces, None)
        if first is None:
            raise ValueError("there is no sequence to learn from")
        settings: dict[str, Any] = {"min_freq": self._least(), "memory": memory, "n_jobs": self.n_jobs}
        writer = BlockWriter(path, self._new_encoder(first.X), features=self.features, **settings)
        return writer.write(itertools.chain([first], pieces))

    def _new_encoder(self, X: Any) -> Encoder:
        """An encoder without a vocabulary, or one that needs none."""
        encoder = make_encoder(self.features, X)
        return encoder if self.hash_bits is None else HashedEncoder(encoder, self.hash_bits)

    def _min_freq(self, X: Any) -> float:
        """``min_freq``; by default that of a block file."""
        return X.min_freq or self.min_freq if isinstance(X, Blocks) and not self.min_freq else self.min_freq

    def _least(self, min_freq: float | None = None) -> float:
        """How often an attribute must occur to have a weight, whatever its labels."""
        least = self.min_freq if min_freq is None else min_freq
        return 0 if self.all_possible_states or self._sums else least

    def _fit(
        self,
        X: Any,
        y: Any,
        held_out: tuple[Any, Any] | None,
        sample_weight: ArrayLike | None,
        stream: bool = False,
        resume: bool = False,
        expectations: Expectations | None = None,
    ) -> Self:
        """Columns -> features -> Dataset -> objective -> optimiser -> model."""
        X, y = (X, y) if isinstance(X, Blocks) else (_as_list(X), _as_list(y))
        old = self.model_ if (stream or self.warm_start) and self._is_fitted() else None
        skeleton, problem = self._prepare(X, y, sample_weight, old, grow=True, expectations=expectations)
        if stream:  # of one pass
            problem = replace(problem, entropy_ramp=0)
        if 0 < self.tol < SINGLE_NOISE and not find_algorithm(self.algorithm).sequential:
            problem = replace(problem, dtype=np.float64)
        objective = self._objective(problem, training=True)
        layout, n_tokens = skeleton.layout, objective.n_tokens
        w = self._start(layout) if old is None else old.layout.move_weights(old.weights, layout)
        fingerprint = self._fingerprint(skeleton, problem, w, held_out)
        keep = Checkpoint() if stream else Checkpoint.of(self, fingerprint, resume)
        result = keep.ended(lambda state: Result.of_state(state, layout.size))
        start: State = {"w": None}  # where the search on a fraction of the sequences ended
        start |= keep.part("start", lambda: start) or {}
        if start["w"] is not None and np.shape(start["w"]) != w.shape:
            raise ValueError(f"{keep.path}: the checkpoint is damaged: it has the wrong number of weights")
        if self.warm_start_fraction is not None and start["w"] is None and result is None:
            first = self._minimize(LikelihoodObjective(self._some(problem)), w, loose=10, checkpoint=keep)
            start["w"] = first.w
            result = first if first.reason == "interrupted" else None
        del problem
        if result is None:
            w = w if start["w"] is None else start["w"]
            patience = None if stream else self.early_stopping
            search = partial(self._minimize, objective, w, stream=stream, checkpoint=keep)
            result = self._watched(search, skeleton, held_out, patience, keep)
            del search
        del objective, w
        self._end(skeleton, result, keep, len(X), n_tokens)
        self._take_over(X, old is None)
        self._seen += len(X) if stream else 0
        return self

    def _take_over(self, X: Any, features: bool = True) -> None:
        """Has the model say what a block file decided: ``min_freq``, and its features if the model has these."""
        if not isinstance(X, Blocks):
            return
        found: dict[str, Any] = {"min_freq": self._min_freq(X)}
        if features:
            found |= {"features": X.features, "hash_bits": X.hash_bits}
        found = {name: x for name, x in found.items() if name in self._parameters()}
        self.model_ = replace(self.model_, params={**self.model_.params, **found})

    def _watched(
        self,
        search: Callable[..., Result],
        skeleton: Skeleton,
        held_out: tuple[Any, Any] | None,
        patience: int | None,
        keep: Checkpoint,
    ) -> Result:
        """What the search finds, which is called with a callback; the best weights by held-out scores, if asked for."""
        model = partial(self._model, skeleton)

        def predict(w: Vector, X: Any) -> Any:
            probe = ChainEstimator()
            probe.n_jobs, probe.model_ = self.n_jobs, model(w)
            return probe.predict(X)

        return watched(search, Watch(self._callback(model), self.verbose, predict, held_out, patience), keep)

    def _end(self, skeleton: Skeleton, result: Result, keep: Checkpoint, n_sequences: int, n_tokens: int) -> None:
        """Sets the model and the results after training, and warns if it was interrupted."""
        if result.reason != "interrupted":
            keep.finish(result.state())
        keep.let_go()  # the optimiser's vectors: the vocabulary needs room now
        info = {
            "iterations": result.iterations,
            "objective": result.value,
            "reason": result.reason,
            "stopped": result.message,
            "sequences": n_sequences,
            "tokens": n_tokens,
        }
        self.model_ = self._model(skeleton.loaded().pruned(), result.w, info)
        self.result_, self.n_iter_, self.beams_ = result, result.iterations, result.beams
        if result.reason == "interrupted":
            warn(f"training was {result.message} (iteration {result.iterations})", RuntimeWarning, stacklevel=4)

    def _optimiser(self) -> Algorithm:
        """What minimises the objective."""
        return find_algorithm(self.algorithm)

    def _start(self, layout: Layout) -> Vector:
        """Where training begins: at zero, or at random with hidden states, which would otherwise stay equal."""
        if self.hidden_states == 1:
            return np.zeros(layout.size)
        return np.random.default_rng(self.random_state or 0).normal(0.0, _SPREAD, layout.size)

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
            self._optimiser().minimize,
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
                    beam=as_beam(self.beam) if self.order == 1 else None,
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
        given = data.digested
        parts: dict[str, list[Any]] = {
            "training data": [*given, p.labels, p.hints, skeleton.labels, *p.layout.arrays().values()],
            "sample weights": [p.weights],
            "constraints of labels": [p.scores],
            "starting weights": [w],
        }
        if p.criteria is not None:
            parts["expectations"] = [*vars(p.criteria).values()]
        return self._same_training(skeleton, parts, held_out)

    def _same_training(
        self, skeleton: Skeleton, parts: dict[str, list[Any]], held_out: tuple[Any, Any] | None
    ) -> dict[str, str]:
        """Digests of parts, of held-out data where it has a say, and the settings."""
        if held_out is not None and self.early_stopping is not None:
            if isinstance(held_out[0], Blocks):
                given = held_out[0].dataset.digested
            else:
                kept = skeleton.encoder.encode(held_out[0], False, self.n_jobs)
                given = [kept.offsets, kept.attr, kept.value]
            parts["held-out data"] = [*given, *map(list, held_out[1])]
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


def _in_pieces(X: Any, y: Any, sample_weight: ArrayLike | None) -> Iterator[Weighted]:
    """A few thousand sequences at a time, with their labels and weights."""
    X, y = plain_lists(X), plain_lists(y)
    weights = None if sample_weight is None else np.ascontiguousarray(sample_weight, np.float64)
    left: Iterator[Any] = iter(())  # labels that no sequence has
    if isinstance(X, Iterator) or isinstance(y, Iterator):
        xs, ys = iter(X), iter(y)
        left = ys
        slices: Iterator[Any] = (
            (part, list(itertools.islice(ys, len(part))))
            for part in iter(lambda: list(itertools.islice(xs, _PIECE)), [])
        )
    else:
        if len(X) != len(y):
            raise ValueError(f"there {are_counted(len(X), 'sequence')}, but labels for {len(y)}")
        slices = ((X[k : k + _PIECE], y[k : k + _PIECE]) for k in range(0, len(X), _PIECE))
    done = 0
    for part, labels in slices:
        yield Weighted(part, labels, None if weights is None else weights[done : done + len(part)])
        done += len(part)
    if any(True for _ in left):
        raise ValueError(f"there {are_counted(done, 'sequence')}, but labels for more")
    if weights is not None:
        sequence_weights(weights, done)


def _as_list(x: Any) -> Any:
    """The same, or a list of what an iterator or an Arrow array gives."""
    return list(x) if isinstance(x, Iterator) else plain_lists(x)
