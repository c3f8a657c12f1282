"""The linear-chain CRF on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from crfkit.base.checkpoints import Checkpoint
from crfkit.base.messages import is_watched, show, warn
from crfkit.dask.encoding import Facts, Frozen, new_encoder
from crfkit.dask.engine import ClusterEngine, LocalEngine, NoWorkers, SchedulerLost
from crfkit.dask.sources import Fields, is_lazy, map_parts, parts_of, require_columns, stored
from crfkit.data.dataset import WeightRules
from crfkit.estimators.crf import CRF as LocalCRF
from crfkit.estimators.penalised import Skeleton
from crfkit.features.rewriting import require_same_features
from crfkit.training.optimiser import Result
from crfkit.training.partitions import IterateAveraging, PartitionedObjective
from crfkit.training.registry import find_algorithm
from crfkit.training.stochastic import Stochastic
from crfkit.training.watching import held_out_data


class CRF(LocalCRF):
    """:class:`crfkit.CRF`, trained on partitions of data that lie on a Dask cluster.

    The cluster is that of the current ``distributed.Client``; without one, partitions are processed one after another
    in this process, with the same result. Parameters and attributes are those of :class:`crfkit.CRF`. Beams,
    entropies, hidden states, ``order``, ``gradient``, ``n_init``, ``warm_start``, ``warm_start_fraction``,
    ``partial_fit`` and ``algorithm="sag"`` are not available here. Other stochastic algorithms run on each partition
    by itself, and their weights are averaged after every pass.

    Examples
    --------
    >>> import dask.bag as db
    >>> from crfkit.dask import CRF
    >>> data = [(["two", "red", "apples"], ["QTY", "ADJ", "NAME"]), (["one", "pear"], ["QTY", "NAME"])]
    >>> crf = CRF().fit(db.from_sequence(data, npartitions=2))
    >>> crf.predict(db.from_sequence([["two", "pear"]])).compute(scheduler="sync")
    [['QTY', 'NAME']]
    >>> crf.to_local().predict([["two", "pear"]])
    [['QTY', 'NAME']]
    """

    _fields = Fields(None, None, None)
    _partitioned = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        unset = {name: p.default for name, p in self._parameters().items()}
        names = (
            "beam",
            "entropy_weight",
            "gradient",
            "order",
            "warm_start",
            "warm_start_fraction",
            "hidden_states",
            "n_init",
        )
        for name in names:
            if getattr(self, name) != unset[name]:
                raise ValueError(f"{name!r} of crfkit.dask.CRF must be {unset[name]!r}, got {getattr(self, name)!r}")
        algorithm = find_algorithm(self.algorithm)
        if algorithm.sequential and "partial_fit" not in algorithm.supports:
            raise ValueError(
                f"'algorithm' of crfkit.dask.CRF must not be {self.algorithm!r}, which needs all sequences"
            )

    def fit(  # type: ignore[override]
        self,
        data: Any,
        y: Any = None,
        *,
        columns: str | Sequence[str] | None = None,
        label: str | None = None,
        by: str | Sequence[str] | None = None,
        X_dev: Any = None,
        y_dev: Any = None,
        resume: bool = False,
    ) -> Self:
        """Learns the weights.

        Sums over partitions are added up in an order that depends only on their number: the weights depend neither on
        the number of workers nor on whether some of them are lost.

        Parameters
        ----------
        data : dask bag, dask data frame, list of Delayed, or crfkit.data.Blocks
            A bag of ``(sequence, labels)`` or ``(sequence, labels, weight)``, or, with ``y``, of sequences. A data
            frame with one row per sequence (columns of lists) or, with ``by``, one row per token; a sequence must lie
            within one partition. Delayed parts give ``(X, y)`` or ``(X, y, weights)``, as those of
            :func:`read_columns` do. A block file, or a list of them, must be one that all workers see.
        y : dask bag or list of Delayed, optional
            Labels, in partitions of the same sizes.
        columns, label, by : str, or for columns and by several
            Columns of a data frame, as for :func:`crfkit.integrations.from_lists` (without ``by``) and
            :func:`crfkit.integrations.from_table`; the index may be named in ``by``.
        X_dev, y_dev : optional
            Held-out data in memory, scored after every iteration.
        resume : bool
            Continue from ``checkpoint``, if the file exists.

        Returns
        -------
        self
        """
        self._check_parameters()
        for name, x in (("X_dev", X_dev), ("y_dev", y_dev)):
            if is_lazy(x):
                raise ValueError(f"{name!r} of fit must be in memory, got {type(x).__name__}: compute it")
        held_out = held_out_data(X_dev, y_dev, self.early_stopping, type(self).__name__)
        fields = Fields(columns, label, by)
        require_columns(data, fields, "fit")
        parts = parts_of(data, y, fields)
        if not parts:
            raise ValueError("there is no sequence to learn from")
        files = stored(data)
        require_same_features(files)
        for x in files:
            self._check_features(x)
            self._check_min_freq(x)
        client = current_client()
        make = partial(new_encoder, self.features, self.hash_bits)
        engine: LocalEngine | ClusterEngine | None = None
        try:
            if client is None:
                engine = LocalEngine(parts, make, self.n_jobs)
            else:
                engine = ClusterEngine(client, parts, make, self._tell, self._say_lost)
            self._learn(engine, max((self._min_freq(x) for x in files), default=self.min_freq), held_out, resume)
        except SchedulerLost as e:
            raise ConnectionError(f"the Dask scheduler was lost: {e}. {self._way_on()}") from e
        except NoWorkers as e:
            raise TimeoutError(f"{e}. {self._way_on()}") from e
        finally:
            if engine is not None:
                engine.close()
        for x in sorted(files, key=self._min_freq):
            self._take_over(x)
        self._fields = fields._replace(label=None)
        if text := find_algorithm(self.algorithm).shortfall(self.result_, self.max_iter, self.tol):
            self._say_not_converged(text)
        return self

    @property
    def partial_fit(self) -> Any:
        """Not available: use that of :meth:`to_local`, which takes data in memory."""
        raise AttributeError("crfkit.dask.CRF has no 'partial_fit': use to_local().partial_fit with data in memory")

    def _way_on(self) -> str:
        if self.checkpoint is None:
            return "Without a 'checkpoint', training must begin again"
        if not os.path.exists(self.checkpoint):
            return f"{self.checkpoint} has not been written yet: training must begin again"
        return (
            f"The state of training is in {self.checkpoint}: start a cluster, connect to it, "
            "and call fit with resume=True (crfkit train: --resume)"
        )

    def _say_lost(self, text: str) -> None:
        warn(text, RuntimeWarning)

    def _tell(self, what: str, done: int, total: int) -> None:
        if is_watched(self.verbose):
            show(f"{what}: {done} of {total} partitions", self.verbose)

    def _learn(self, engine: LocalEngine | ClusterEngine, min_freq: float, held_out: Any, resume: bool) -> None:
        """Vocabulary -> partitions -> objective -> optimiser -> model."""
        vocabulary, facts = engine.survey(self.checkpoint is not None)
        if vocabulary is None:
            raise ValueError("there is no sequence to learn from")
        if not vocabulary.labels:
            raise ValueError("there is no label to learn")
        _require_whole_sequences(facts)
        if any(x.unknown for x in facts):
            self._require("unknown_labels", "some")
        if self.class_weight is not None or any(x.weighted for x in facts):
            self._require("sample_weight", "some")
        rule = WeightRules(
            min_freq,
            self.all_possible_states,
            self.all_possible_transitions,
            self.start_end,
            vocabulary.encoder.transitions,
        )
        encoder, layout = vocabulary.cut(rule)
        skeleton = Skeleton(encoder, vocabulary.labels, layout, self._rules(vocabulary.labels))
        n_sequences, n_tokens = vocabulary.n_sequences, vocabulary.n_tokens
        algorithm = find_algorithm(self.algorithm)
        keep = Checkpoint.of(self, self._marks(skeleton, facts, held_out), resume)
        result = keep.ended(lambda state: Result.of_state(state, layout.size))
        if result is None:
            counts = vocabulary.counts.labels
            shared = skeleton.encoder, skeleton.labels, layout, skeleton.constraints, self.class_weight, counts
            del vocabulary
            first = next(i for i, x in enumerate(facts) if x.n_sequences)
            engine.hold(Frozen(*shared, n_sequences, first, self.c2, self.dtype, algorithm.sequential))
            objective = PartitionedObjective(engine, layout.size, self.dtype)
            search = partial(self._minimize, objective, np.zeros(layout.size), checkpoint=keep)
            result = self._watched(search, skeleton, held_out, self.early_stopping, keep)
        self._end(skeleton, result, keep, n_sequences, n_tokens)

    def _optimiser(self) -> Any:
        found = super()._optimiser()
        return IterateAveraging(found) if isinstance(found, Stochastic) else found

    def _marks(self, skeleton: Skeleton, facts: list[Facts], held_out: Any) -> dict[str, str]:
        """What must be the same for the weights to be the same."""
        if self.checkpoint is None:
            return {}
        parts = {"training data": [*(x.digest for x in facts), *skeleton.layout.arrays().values()]}
        return self._same_training(skeleton, parts, held_out)

    def predict(self, X: Any, *, given: Any = None, beam: Any = None, by: str = "path") -> Any:
        """The best labels of every sequence; see :meth:`crfkit.CRF.predict`.

        Parameters
        ----------
        X : dask bag, dask data frame or list of Delayed
            Of sequences; a frame as in :meth:`fit`. Anything else is labelled at once, in this process.
        given, beam, by
            As there; ``given`` is not for partitions.

        Returns
        -------
        bag, series or list of Delayed
            Lazy, in the same partitions. For a frame with one row per token, a label for each row.
        """
        return self._lazily("predict", X, {"given": given, "beam": beam, "by": by})

    def predict_marginals(self, X: Any, *, given: Any = None) -> Any:
        """Probabilities of all labels at all tokens, lazily and in the same partitions; see :meth:`predict`."""
        return self._lazily("predict_marginals", X, {"given": given})

    def predict_entities(self, X: Any, *, given: Any = None, threshold: float | None = None) -> Any:
        """Entities and their probabilities, lazily and in the same partitions, one list per sequence."""
        return self._lazily("predict_entities", X, {"given": given, "threshold": threshold})

    def _lazily(self, method: str, X: Any, how: dict[str, Any]) -> Any:
        local = self.to_local()
        if not is_lazy(X):
            return getattr(local, method)(X, **how)
        if how.get("given") is not None:
            raise ValueError(f"'given' of {method} must be None for partitions: label them with map_partitions")
        getattr(local, method)([], **how)  # what is wrong with the parameters is said now, not in the partitions
        require_columns(X, self._fields._replace(label=None), method)
        local.n_jobs = 1
        name = method.removeprefix("predict_")
        return map_parts(X, partial(_predict, method, how), local, self._fields, name)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Fraction of the tokens that are labelled correctly, of sequences in memory; see :meth:`crfkit.CRF.score`."""
        for name, x in (("X", X), ("y", y)):
            if is_lazy(x):
                raise ValueError(f"{name!r} of score must be in memory, got {type(x).__name__}: compute it")
        return super().score(X, y, sample_weight)

    def to_local(self) -> LocalCRF:
        """The same model as a :class:`crfkit.CRF`."""
        self._require_fitted()
        local = LocalCRF(**self.get_params(deep=False))
        local.model_, local.result_, local.n_iter_, local.beams_ = self.model_, self.result_, self.n_iter_, None
        return local


def _predict(method: str, how: dict[str, Any], crf: LocalCRF, X: Any) -> Any:
    return getattr(crf, method)(X, **how)


def _require_whole_sequences(facts: Sequence[Facts]) -> None:
    """Raises if a sequence of a table goes on in the next partition."""
    last: tuple[int, Any] | None = None
    for i, one in enumerate(facts):
        if one.ends is None:
            continue
        if last is not None and one.ends[0] == last[1]:
            key = last[1][0] if len(last[1]) == 1 else last[1]
            raise ValueError(
                f"the sequence {key!r} lies in partitions {last[0]} and {i}: partition the frame by sequences, "
                "as set_index does with a column that numbers them"
            )
        last = i, one.ends[1]


def current_client() -> Any:
    """The client of a cluster, if there is one."""
    try:
        from distributed import default_client
    except ModuleNotFoundError:
        return None
    try:
        return default_client()
    except ValueError:
        return None
