"""The semi-Markov conditional random field."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.checkpoints import Checkpoint, digest, seconds_of
from crfkit.base.fields import Arrays, damaged
from crfkit.base.interrupts import searching
from crfkit.base.messages import counted, warn
from crfkit.base.numbers import frozen
from crfkit.base.parameters import Estimator, check_number
from crfkit.data.dataset import Dataset, Layout, WeightRules, check_label_count
from crfkit.data.labels import Entity, LabelLists, Tagging, label_array
from crfkit.data.sequences import Columns, check_sequences
from crfkit.features.encoders import FeatureSource, make_encoder, plain_lists
from crfkit.metrics import require_known, token_accuracy
from crfkit.model.entities import _place, check_threshold
from crfkit.segment.features import FeatureFinder, SegmentFeatures
from crfkit.segment.inference import decode, log_partition, marginals, nbest, sample
from crfkit.segment.known import (
    Known,
    are_spans,
    as_tags,
    check_fits,
    cut_long,
    found_types,
    read_tags,
    refuse_inner,
    rewritten,
    split_tag,
    write_tags,
)
from crfkit.segment.model import SegmentModel, column_layout, restore_model
from crfkit.segment.objective import Items, SegmentObjective, Shape, column_hints, joined
from crfkit.segment.potentials import MOST_ORDER, Potentials
from crfkit.training.checks import sequence_weights
from crfkit.training.newton import NewtonCG
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Callback, Result
from crfkit.training.registry import find_algorithm
from crfkit.training.watching import Watch, held_out_data, watched

if TYPE_CHECKING:
    from crfkit.model.explaining import Explanation

_OUTSIDE = "O"
_NOT_SAVED = ("callback", "n_jobs", "verbose", "features", "segments", "algorithm", "checkpoint", "checkpoint_every")
_Parts = tuple[Shape, Layout, Dataset, Items | None, Known, NDArray[np.float64] | None]


_MOST = {"max_length": 1_000_000, "tail_order": MOST_ORDER}  # what tables of scores can hold


class SegmentCRF(Estimator):
    r"""Semi-Markov conditional random field: labels whole segments, such as entities, and their lengths.

    .. math::

        p_w(y \mid x) \propto \exp \Bigl( \sum_{(a, b, j)} \bigl( \sum_{t=a}^{b-1} u_t(j) + f_a(j)
            + d_{b-a}(j) + s_{ab}(j) \bigr) + \sum_{(i, j)} a(i, j) \Bigr)

    for the segments (a, b, j) of a segmentation: u sums the weights of a token's attributes for the label of its
    segment, f those for beginning a segment, d is the weight of the length, s sums the weights of attributes of the
    whole segment, and a is the weight of neighbouring labels. Training minimises
    :math:`-\sum \log p_w(y \mid x) + c_1 \lVert w \rVert_1 + c_2 \lVert w \rVert^2`.

    Parameters
    ----------
    features : "auto", TokenFeatures, Template, callable or None
        How tokens become attributes, as for :class:`crfkit.CRF`.
    segments : SegmentFeatures, callable or None
        Features of whole segments; a callable is ``SegmentFeatures(dictionary=False, function=f)``.
    max_length : int, optional
        The longest segment, K; by default the longest in the training data. With a tail, the default is 1.
        With features of segments it is then one more than the longest training segment; only segments of up to K - 1
        tokens have such features.
    too_long : {"error", "cut"}
        What to do with longer segments in training data; ``"cut"`` makes several of them.
    lengths : {"table", "buckets"}
        Whether each length has a weight of its own for each label, or lengths of about the same size share one.
    tail_order : int, default=0
        Allows segments longer than K: their scores fall (or rise) by a weight per token, as in a geometric distribution
        of lengths (1) or a negative-binomial one (2 and more).
    outside : str, default="O"
        The label of text that is in no segment.
    outside_runs : bool, default=False
        Whether each run of text outside segments is one segment; otherwise each of its tokens is.
    begins, ends : bool
        Whether tokens' attributes have weights of their own for the first and for the last token of a segment.
    algorithm : "lbfgs" or an optimiser
        It must need only values and gradients.
    c1, c2 : float
        Coefficients of L1 and L2 regularisation.
    min_freq : float, default=0
        (attribute, label) pairs that occur less often get no weight.
    warm_start : bool, default=False
        Start from the features and weights of the last fit; new labels and attributes are added, those that do not
        occur in the new data are left out.
    max_iter, tol, early_stopping, dtype, n_jobs, verbose, callback, checkpoint, checkpoint_every
        As for :class:`crfkit.CRF`.

    Attributes
    ----------
    classes_ : array of the labels of segments
    weights_ : float64 array
    model_ : SegmentModel
    n_iter_ : int
    result_ : Result

    Examples
    --------
    >>> from crfkit import SegmentCRF
    >>> X = [["two", "red", "apples", "today"], ["one", "pear"]]
    >>> y = [["B-QTY", "B-ITEM", "I-ITEM", "O"], ["B-QTY", "B-ITEM"]]
    >>> crf = SegmentCRF(c2=0.1).fit(X, y)
    >>> crf.predict([["one", "red", "pear"]])
    [['B-QTY', 'B-ITEM', 'I-ITEM']]
    >>> [(e.label, e.text) for e in crf.predict_entities([["one", "red", "pear"]])[0]]
    [('QTY', 'one'), ('ITEM', 'red pear')]
    """

    _kind: ClassVar[str] = "segment_crf"
    model_: SegmentModel
    n_iter_: int
    result_: Result

    features: FeatureSource
    segments: Any
    max_length: int | None
    too_long: str
    lengths: str
    tail_order: int
    outside: str
    outside_runs: bool
    begins: bool
    ends: bool
    algorithm: str | Algorithm
    c1: float
    c2: float
    min_freq: float
    max_iter: int | None
    tol: float
    early_stopping: int | None
    warm_start: bool
    dtype: str
    n_jobs: int | None
    verbose: bool
    callback: Callback | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float | str

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        segments: SegmentFeatures | Any = None,
        max_length: int | None = None,
        too_long: str = "error",
        lengths: str = "table",
        tail_order: int = 0,
        outside: str = _OUTSIDE,
        outside_runs: bool = False,
        begins: bool = True,
        ends: bool = False,
        algorithm: str | Algorithm = "lbfgs",
        c1: float = 0.0,
        c2: float = 1.0,
        min_freq: float = 0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        early_stopping: int | None = None,
        warm_start: bool = False,
        dtype: str = "float32",
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self._keep(locals())

    def _is_fitted(self) -> bool:
        return hasattr(self, "model_")

    def _check_parameters(self) -> None:
        for name in ("c1", "c2", "min_freq", "tol"):
            check_number(self, name, getattr(self, name), 0)
        check_number(self, "max_length", self.max_length, 1, integer=True, optional=True)
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        check_number(self, "early_stopping", self.early_stopping, 1, integer=True, optional=True)
        check_number(self, "tail_order", self.tail_order, 0, integer=True)
        for name, most in _MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name!r} of {type(self).__name__} must be at most {most}, got {getattr(self, name)}")
        seconds_of(self.checkpoint_every)
        choices = {"too_long": ("error", "cut"), "lengths": ("table", "buckets"), "dtype": ("float32", "float64")}
        for name, (a, b) in choices.items():
            if getattr(self, name) not in (a, b):
                raise ValueError(f"{name!r} of SegmentCRF must be {a!r} or {b!r}, got {getattr(self, name)!r}")
        found = find_algorithm(self.algorithm, "SegmentCRF")
        if found.sequential or isinstance(found, NewtonCG):
            raise ValueError(f"'algorithm' of SegmentCRF must be 'lbfgs', got {self.algorithm!r}")

    def _rule(self) -> SegmentFeatures | None:
        if self.segments is None or isinstance(self.segments, SegmentFeatures):
            return self.segments
        if callable(self.segments):
            return SegmentFeatures(dictionary=False, function=self.segments)
        raise ValueError(f"'segments' of SegmentCRF must be SegmentFeatures, a function or None, got {self.segments!r}")

    def set_params(self, **params: Any) -> Self:
        """Sets parameters. A model from a file, which holds no function of segments, takes it as ``segments``."""
        super().set_params(**params)
        finder = self.model_.finder if "segments" in params and hasattr(self, "model_") else None
        if finder is not None and finder.needs_function and finder.function is None:
            rule = self._rule()
            finder.function = None if rule is None else rule.function
        return self

    def _known(self, y: Any, offsets: NDArray[np.int64], types: Any) -> Known:
        return read_tags(y, types, offsets, self.outside, self.outside_runs)

    def _tags(self, y: Any, lengths: NDArray[np.int64]) -> list[Any]:
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        y = plain_lists(y)
        return as_tags(y, lengths, self.outside) if are_spans(y) else list(y)

    def _shape(self, known: Known, types: list[Any]) -> Shape:
        single = types.index(self.outside) if self.outside in types and not self.outside_runs else -1
        start, end = known.blocks().T
        size = (end - start)[(known.labels[start] != single) | (single < 0)]
        longest = self.max_length or int(size.max(initial=1))
        if self.tail_order and self.max_length is None:  # features are those of segments of up to K - 1 tokens
            longest = 1 if self.segments is None else longest + 1
        settings = self.lengths, int(self.tail_order), bool(self.begins), bool(self.ends)
        return Shape(len(types), longest, single, *settings)

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any, old: SegmentModel | None, grow: bool
    ) -> tuple[SegmentModel, _Parts]:
        """Everything but the weights, and what the objective is made of; ``grow`` adds what is new to ``old``."""
        self._check_parameters()
        check_sequences(X, text=True)
        if len(X) == 0:
            raise ValueError("there are no sequences to learn from")
        fixed = None if grow else old
        encoder = make_encoder(self.features, plain_lists(X)) if old is None else old.encoder
        encoder = encoder.copy() if grow else encoder
        text = encoder.read(X)
        data = encoder.encode(text, grow, self.n_jobs)
        if data.edge_ptr is not None:
            raise ValueError("SegmentCRF has no attributes of transitions: leave out templates that begin with B")
        tags = self._tags(y, np.diff(data.offsets))
        types = list(fixed.labels) if fixed is not None else found_types(tags, self.outside)
        check_label_count(len(types))
        known = self._known(tags, data.offsets, types)
        refuse_inner(known, types)
        shape = fixed.shape if fixed is not None else self._shape(known, types)
        longest = shape.longest(len(known.labels))
        if not shape.order:
            known = cut_long(known, longest, self.too_long == "cut", types)
        check_fits(known, longest)
        rule, items = self._rule(), None
        source: Any = text if isinstance(text, Columns) else plain_lists(X)
        most = shape.max_length - (shape.order > 0)
        finder = None if old is None else old.finder
        if grow and rule is not None:
            finder = FeatureFinder.learn(rule, source, known, types, most, shape.single)
        n_tokens = encoder.n_attributes[0]
        if finder is not None:
            items = finder.find(source, data.offsets, most, n_tokens, known, self.n_jobs, grow)
        data = data.without_zeros() if data.value is not None else data
        columns = self._columns(shape, data, items, known, n_tokens, finder) if fixed is None else fixed.columns
        weights = sequence_weights(sample_weight, data.n_sequences)
        chunks = any(split_tag(tag)[0] for s in tags if s is not None for tag in s if isinstance(tag, str))
        outside = self.outside if self.outside in types else None
        w = np.zeros(shape.numbers(columns.size)[1])
        model = encoder, finder, tuple(types), outside, chunks, shape, columns, w
        parts = shape, columns, data, items, known, weights
        return SegmentModel(*model, np.dtype(self.dtype), self._settings()), parts

    def _columns(self, shape: Shape, data: Any, items: Any, known: Known, n_tokens: int, finder: Any) -> Layout:
        """The weights that training data asks for: tokens for what is known of them, listed segments for all labels."""
        numbers, hints = column_hints(shape, known)
        n_attributes = n_tokens + (0 if finder is None else len(finder.names()))
        if items is not None:
            both = np.full((2, shape.columns), -np.inf)
            both[:, : shape.n_labels] = 0
            if shape.single >= 0:
                both[1, shape.single] = -np.inf
            more = -2 - len(hints) - (items.length > 1).astype(np.int32)
            numbers, hints = np.concatenate([numbers, more]).astype(np.int32), np.concatenate([hints, both])
        rule = WeightRules(self.min_freq, False, False, False, False)
        found = Layout.build(joined(data, items), numbers, shape.columns, (n_attributes, 0), rule, hints=hints)
        return column_layout(shape.columns, found.state_ptr, found.state_label)

    def objective(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> SegmentObjective:
        """What :meth:`fit` minimises, without the ``c1`` term; ``size`` and ``value_and_grad(w)``.

        ``X`` and ``y`` are taken as the training data: with ``SegmentFeatures(seen=True)``, sentences do not count for
        themselves.
        """
        model = self.model_ if self._is_fitted() else None
        return self._objective(self._prepare(X, y, sample_weight, model, grow=model is None)[1])

    def _objective(self, parts: _Parts) -> SegmentObjective:
        return SegmentObjective(*parts, self.c2, self.dtype, self.n_jobs)

    def fit(
        self,
        X: Any,
        y: Any = None,
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
            Training data.
        y : sequences of labels, or of spans
            A label per token: chunk tags (``B-X``, ``I-X``, ``O``, and those of BIOES and BILOU), or bare labels, whose
            runs are segments. A label may be None (unknown), a set of possible ones or a soft label, a dict of labels
            and weights, with the same weight for ``B-X`` and ``I-X``; a sequence without labels may be None. Training
            maximises the likelihood of what is known. Or spans ``(start, end, label)``; tokens that are in none of
            them, or in one labelled as outside, are outside.
        X_dev, y_dev : optional
            Held-out data, scored after every iteration for the callback and the log.
        sample_weight : array [S], optional
            Weights of the sequences.
        resume : bool
            Continue from ``checkpoint`` if the file exists; the result is the same as without the interruption.
        """
        X = list(X) if isinstance(X, Iterator) else check_sequences(plain_lists(X), text=True)
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        held_out = held_out_data(X_dev, y_dev, self.early_stopping, "SegmentCRF")
        old = self.model_ if self.warm_start and self._is_fitted() else None
        model, parts = self._prepare(X, y, sample_weight, old, grow=True)
        if held_out is not None:
            held_out = X_dev, self._rewritten(self._tags(y_dev, np.array([len(x) for x in X_dev])), model)
        w = model.weights if old is None else old.moved(model)
        keep = Checkpoint.of(self, self._fingerprint(model, parts, w, held_out), resume)
        n_tokens = parts[2].n_tokens
        latest = Result(w, float("nan"), 0, 0, "interrupted", INTERRUPTED)
        algorithm = find_algorithm(self.algorithm)

        def predict(at: NDArray[np.float64], held: Any) -> Any:
            probe = type(self)(n_jobs=self.n_jobs)
            probe.model_ = replace(model, weights=at.copy())
            return probe.predict(held)

        watch = Watch(self.callback, self.verbose, predict, held_out, self.early_stopping)
        settings: dict[str, Any] = {"c1": self.c1, "max_iter": self.max_iter, "tol": self.tol, "n_jobs": self.n_jobs}
        try:
            if ended := keep.ended(lambda state: Result.of_state(state, len(w))):
                latest = ended
            else:
                search = partial(algorithm.minimize, self._objective(parts), w, checkpoint=keep, **settings)
                with searching():
                    latest = watched(search, watch, keep)
        except KeyboardInterrupt:
            latest = replace(latest, reason="interrupted", message=INTERRUPTED)
        if latest.reason != "interrupted":
            keep.finish(latest.state())
        info = {
            "iterations": latest.iterations,
            "objective": latest.value,
            "reason": latest.reason,
            "stopped": latest.message,
            "sequences": len(X),
            "tokens": n_tokens,
        }
        self.model_ = replace(model, weights=latest.w, info=info)
        self.result_, self.n_iter_ = latest, latest.iterations
        if latest.reason == "interrupted":
            warn(f"training was {latest.message} (iteration {latest.iterations})", RuntimeWarning, stacklevel=2)
        elif text := algorithm.shortfall(latest, self.max_iter, self.tol):
            self._say_not_converged(text)
        return self

    def _fingerprint(self, model: SegmentModel, parts: _Parts, w: Any, held_out: Any) -> dict[str, str]:
        """What must be the same for the weights to be the same."""
        if self.checkpoint is None:
            return {}
        _, columns, data, items, known, weights = parts
        given: dict[str, list[Any]] = {
            "training data": [*data.digested, *([] if items is None else vars(items).values()), model.labels],
            "sample weights": [weights],
            "starting weights": [w],
        }
        given["training data"] += [known.labels, known.hints, known.borders, *columns.arrays().values()]
        if held_out is not None and self.early_stopping is not None:
            given["held-out data"] = [list(map(list, x)) for x in held_out]
        settings = {name: repr(x) for name, x in self._settings().items() if name != "warm_start"}
        return {"model": self._kind, **settings, **{name: digest(things) for name, things in given.items()}}

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels of segments, in the order of their numbers."""
        self._require_fitted()
        return label_array(self.model_.labels)

    @property
    def weights_(self) -> NDArray[np.float64]:
        """The weights; read-only."""
        self._require_fitted()
        return frozen(self.model_.weights)

    def _pieces(self, X: Any, given: Any, dtype: Any = None) -> Iterator[tuple[Potentials, Any]]:
        """Potentials and tokens, piece by piece, restricted to what is given."""
        self._require_fitted()
        if given is not None and are_spans(given):
            raise ValueError(
                "'given' must hold a label for each token, None where nothing is known; got spans (start, end, label)"
            )
        done = 0
        X = list(X) if isinstance(X, Iterator) else X
        for p, piece in self.model_.potentials(X, self.n_jobs, dtype):
            if given is not None:
                p = self._restricted(p, given[done : done + len(p)])
            done += len(p)
            yield p, piece
        if given is not None and done != len(given):
            raise ValueError(f"'given' holds labels for {counted(len(given), 'sequence')}, but 'X' holds {done}")

    def _restricted(self, p: Potentials, given: Any) -> Potentials:
        from crfkit.data.labels import scores_by

        m = self.model_
        known = read_tags(given, m.labels, p.all_offsets, self.outside, m.shape.single < 0)
        check_fits(known, m.shape.longest(len(known.labels)))
        borders = np.where(known.borders == 2, -1, known.borders).astype(np.int8)
        unary = p.unary + scores_by(known.labels, known.hints).astype(p.unary.dtype)
        fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
        if len(known.inner):
            first = np.zeros_like(unary) if p.first is None else p.first.copy()
            first[tuple(known.inner.T)] += known.inner_scores
            fields["first"] = first
        return Potentials(**(fields | {"unary": unary, "borders": borders}))

    def potentials(self, X: Any) -> Potentials:
        """The scores of all segmentations of the sequences, for the functions of :mod:`crfkit.segment`; a batch.

        Examples
        --------
        >>> from crfkit import SegmentCRF, segment
        >>> crf = SegmentCRF().fit([["a", "b"]], [["B-X", "I-X"]])
        >>> segment.log_partition(crf.potentials([["a", "b"], ["b"]])).shape
        (2,)
        """
        self._require_fitted()
        return self.model_.score(self.model_.encoder.read(X), self.n_jobs, np.float64)

    def _written(self, segments: Any) -> list[Any]:
        m = self.model_
        return write_tags(segments, m.labels, m.outside, m.chunks)

    def predict(self, X: Any, *, given: Any = None) -> list[list[Any]]:
        """The labels of the best segmentation of every sequence, a list for each: BIO tags, or bare labels.

        ``given``: known labels of tokens, as in ``y`` of :meth:`fit`, None where nothing is known; not spans. Only
        segmentations that fit them are considered.
        """
        out = LabelLists()
        for p, _ in self._pieces(X, given):
            out += [self._written(s) for s in decode(p, self.n_jobs)]
        return out

    def predict_segments(self, X: Any, *, given: Any = None) -> list[list[tuple[int, int, Any]]]:
        """The best segmentation of every sequence, as (start, end, label), without the text outside segments."""
        m, out = self.model_, []
        for p, _ in self._pieces(X, given):
            for s in decode(p, self.n_jobs):
                rows = [(a, b, m.labels[j]) for a, b, j in s.tolist()]
                out.append([row for row in rows if row[2] != m.outside])
        return out

    def predict_marginals(self, X: Any, *, given: Any = None) -> list[NDArray[np.floating[Any]]]:
        """Probabilities of segments' labels at all tokens: float64 arrays [T, L], in the order of ``classes_``."""
        out: list[NDArray[np.floating[Any]]] = []
        for p, _ in self._pieces(X, given, np.float64):
            out += np.split(marginals(p, self.n_jobs).nodes, p.all_offsets[1:-1])[: len(p)]
        return out

    def predict_nbest(self, X: Any, k: int = 5, *, given: Any = None) -> list[list[Tagging]]:
        """The labels of the ``k`` best segmentations of every sequence, with the segmentations' probabilities.

        Bare labels, and O with ``outside_runs=True``, do not show where a segment ends and the next one with the same
        label begins: there several segmentations may have the same labels, each with a probability of its own.
        """
        out = []
        for p, _ in self._pieces(X, given, np.float64):
            log_z = log_partition(p, self.n_jobs)
            for z, best in zip(log_z, nbest(p, k, self.n_jobs), strict=True):
                pairs = zip(best.segments, best.scores, strict=True)
                out.append([Tagging(self._written(s), float(np.exp(x - z))) for s, x in pairs])
        return out

    def predict_entities(self, X: Any, *, given: Any = None, threshold: float | None = None) -> list[list[Entity]]:
        """The segments of every sequence, without the text outside, each with its exact probability.

        Parameters
        ----------
        X : sequences of tokens
            What to label.
        given : sequences of labels, optional
            What is known of the labels of tokens; None where nothing is. Not spans.
        threshold : float, optional
            Return all segments of up to K tokens (``max_length``) that are at least this probable; they may overlap.
            Longer ones, which a tail allows, are not listed.
        """
        m = self.model_
        X = list(X) if isinstance(X, Iterator) else plain_lists(X)
        out: list[list[Entity]] = []
        for p, _ in self._pieces(X, given, np.float64):
            sums = marginals(p, self.n_jobs)
            if threshold is None:
                rows = [s + np.array([o, o, 0]) for s, o in zip(decode(p, self.n_jobs), p.all_offsets, strict=False)]
                found = np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)
                chances = sums.probability(found)
            else:
                check_threshold(threshold)
                start, size, label = np.nonzero(sums.segments >= threshold)
                found, chances = np.stack([start, start + size + 1, label], axis=1), sums.segments[start, size, label]
            out += self._entities(p, X[len(out) : len(out) + len(p)], found, chances, m.outside)
        return out

    def _entities(self, p: Potentials, tokens: Any, found: Any, chances: Any, outside: Any) -> list[list[Entity]]:
        out: list[list[Entity]] = [[] for _ in range(len(p))]
        sequence = np.searchsorted(p.all_offsets, found[:, 0], side="right") - 1
        for i, (a, b, j), chance in zip(sequence.tolist(), found.tolist(), chances.tolist(), strict=True):
            if self.model_.labels[j] == outside:
                continue
            o = int(p.all_offsets[i])
            words = list(tokens[i])[a - o : b - o]
            out[i].append(Entity(self.model_.labels[j], a - o, b - o, *_place(words, min(1.0, chance))))
        return out

    def sample(self, X: Any, n: int = 1, random_state: int | None = None) -> list[list[list[Any]]]:
        """Labels of segmentations drawn from p(y | x): ``n`` for every sequence."""
        drawn = sample(self.potentials(X), n, random_state, self.n_jobs)
        return [[self._written(s) for s in one] for one in drawn]

    def as_predicted(self, y: Any, X: Any = None) -> list[list[Any]]:
        """Tags of any scheme as :meth:`predict` writes the same segments; all must be known.

        Spans are written as tags too, if their sequences are given in ``X``.

        Examples
        --------
        >>> crf = SegmentCRF().fit([["New", "York"]], [["B-LOC", "E-LOC"]])
        >>> crf.as_predicted([["B-LOC", "E-LOC", "S-LOC"]])
        [['B-LOC', 'I-LOC', 'B-LOC']]
        """
        self._require_fitted()
        if X is not None:
            y = self._tags(y, np.array([len(x) for x in X], np.int64))
        return self._rewritten(y, self.model_)

    def _rewritten(self, y: Any, m: SegmentModel) -> list[list[Any]]:
        require_known(y, "y")
        return rewritten(list(plain_lists(y)), self.outside, m.shape.single < 0, m.chunks)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the tokens that :meth:`predict` labels right, in tags of any scheme; all must be known."""
        return token_accuracy(self.as_predicted(y, X), self.predict(X), sample_weight)

    def explain(self, x: Any) -> Explanation:
        """Why each segment of the best segmentation of one sequence has its label rather than the runner-up.

        The runner-up is the most probable of the other labels and, for a segment of several tokens, of these tokens
        outside any segment.

        Returns
        -------
        Explanation
            A decision for each segment, as in :meth:`crfkit.CRF.explain`: attributes of its tokens and of the whole
            segment, its length and its neighbours.

        Examples
        --------
        >>> crf = SegmentCRF(c2=0.1).fit([["in", "New", "York"]], [["O", "B-LOC", "I-LOC"]])
        >>> [(d.token, d.label) for d in crf.explain(["in", "New", "York"])]
        [('in', 'O'), ('New York', 'LOC')]
        """
        from crfkit.segment.explaining import explain

        self._require_fitted()
        return explain(self.model_, x)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads; functions are not in it."""
        self._require_fitted()
        self.model_.write(path)

    def _settings(self) -> dict[str, Any]:
        return {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}

    @classmethod
    def _restore(
        cls, name: str, header: dict[str, Any], arrays: Arrays, features: FeatureSource, n_jobs: int | None
    ) -> Self:
        """The estimator that a file holds; ``name`` is for messages."""
        with damaged(name):
            model = restore_model(header, arrays, features, None)
            known = cls._parameters()
            out = cls(**{k: v for k, v in model.params.items() if k in known and k not in _NOT_SAVED})
            out.n_jobs = n_jobs
            out._check_parameters()
            out.model_, out.n_iter_ = model, int(model.info.get("iterations", 0))
            return out
