"""sklearn-crfsuite's estimator."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from crfkit import _core
from crfkit.base.messages import are_counted
from crfkit.base.threads import resolve_threads
from crfkit.compat import pycrfsuite
from crfkit.compat.sklearn_crfsuite._fileresource import FileResource
from crfkit.compat.sklearn_crfsuite.metrics import flat_accuracy_score
from crfkit.compat.sklearn_crfsuite.trainer import LinePerIterationTrainer
from crfkit.compat.suite_file import chain_model, parse_suite, read_suite_model, suite_bytes, suite_features
from crfkit.compat.trainlog import TrainLogParser
from crfkit.data.labels import LabelLists
from crfkit.data.sequences import Items
from crfkit.features.encoders import ItemEncoder
from crfkit.model.chain_model import ChainModel

__all__ = ["CRF", "register_eli5"]

#: The estimator's parameters by CRFsuite's names, where they differ.
_NAMES = {
    "min_freq": "feature.minfreq",
    "all_possible_states": "feature.possible_states",
    "all_possible_transitions": "feature.possible_transitions",
    "pa_type": "type",
    **{f"calibration_{x}": f"calibration.{x}" for x in ("eta", "rate", "samples", "candidates", "max_trials")},
}
#: What is made of the model when it is asked for.
_CACHES = ("_tagger", "_info", "_modelfile")
_OWN = ("algorithm", "verbose", "model_filename", "keep_tempfiles", "trainer_cls")


class _Matches(np.ndarray[Any, Any]):
    """Where labels agree; true as a whole if all do, as when lists are compared."""

    def __bool__(self) -> bool:
        return bool(np.asarray(self).all())


class Predictions(LabelLists):
    """Lists of labels, which compare as the original's array does: label by label where all sequences are as long."""

    def __eq__(self, other: object) -> Any:
        if isinstance(other, np.ndarray):
            return np.array(list(self)) == other
        if isinstance(other, list) and len(self) and other and isinstance(other[0], str):  # one list for every sequence
            return np.array([labels == other for labels in self])
        same = super().__eq__(other)
        if (
            isinstance(other, list)
            and len({len(labels) for labels in (*self, *other)}) == 1
            and len(self) == len(other)
        ):
            return (np.array(list(self)) == np.array(list(other))).view(_Matches)
        return np.bool_(same)

    def __ne__(self, other: object) -> Any:
        return np.asarray(~(self == other))[()]

    def tolist(self) -> list[list[str]]:
        """Plain lists, as of the original's array."""
        return [list(labels) for labels in self]

    __hash__ = None  # type: ignore[assignment]


class CRF(BaseEstimator):  # type: ignore[misc]
    """sklearn-crfsuite's CRF, trained by crfkit.

    The parameters are the original's; None means CRFsuite's default, which :mod:`crfkit.compat.pycrfsuite` lists.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd", "ap", "pa", "arow"}, optional
        Training algorithm.
    min_freq, all_possible_states, all_possible_transitions : optional
        Which weights there are.
    c1, c2, max_iterations, num_memories, epsilon, period, delta, linesearch, max_linesearch : optional
        Of ``"lbfgs"``; ``c2``, ``max_iterations``, ``period`` and ``delta`` of ``"l2sgd"`` too.
    calibration_eta, calibration_rate, calibration_samples, calibration_candidates, calibration_max_trials : optional
        Of ``"l2sgd"``.
    pa_type, c, error_sensitive, averaging : optional
        Of ``"pa"``.
    variance, gamma : optional
        Of ``"arow"``.
    verbose : bool
        Print the training log.
    model_filename : str, optional
        Where :meth:`fit` writes a CRFsuite model file; an existing file can be used without fitting.
    keep_tempfiles : bool
        Accepted: there are no temporary files.
    trainer_cls : class, optional
        A subclass of :class:`crfkit.compat.pycrfsuite.Trainer`.

    Attributes
    ----------
    classes_, attributes_, num_attributes_, size_, state_features_, transition_features_, tagger_, training_log_
        As in the original; None before :meth:`fit`.
    modelfile : FileResource
        As in the original.

    Examples
    --------
    >>> crf = CRF(c1=0.1, c2=0.1, max_iterations=100)
    >>> X = [[{"word": "two"}, {"word": "pears"}], [{"word": "one"}, {"word": "pear"}]]
    >>> crf.fit(X, [["QTY", "NAME"], ["QTY", "NAME"]]).predict(X[:1])
    [['QTY', 'NAME']]
    """

    def __init__(
        self,
        algorithm: str | None = None,
        min_freq: float | None = None,
        all_possible_states: bool | None = None,
        all_possible_transitions: bool | None = None,
        c1: float | None = None,
        c2: float | None = None,
        max_iterations: int | None = None,
        num_memories: int | None = None,
        epsilon: float | None = None,
        period: int | None = None,
        delta: float | None = None,
        linesearch: str | None = None,
        max_linesearch: int | None = None,
        calibration_eta: float | None = None,
        calibration_rate: float | None = None,
        calibration_samples: int | None = None,
        calibration_candidates: int | None = None,
        calibration_max_trials: int | None = None,
        pa_type: int | None = None,
        c: float | None = None,
        error_sensitive: bool | None = None,
        averaging: bool | None = None,
        variance: float | None = None,
        gamma: float | None = None,
        verbose: bool = False,
        model_filename: str | None = None,
        keep_tempfiles: bool = False,
        trainer_cls: Any = None,
    ) -> None:
        self.__dict__ |= {name: value for name, value in locals().items() if name != "self"}
        self.training_log_: TrainLogParser | None = None

    def fit(self, X: Any, y: Any, X_dev: Any = None, y_dev: Any = None) -> Self:
        """Trains on sequences of items and sequences of labels; scores the held-out data on the way."""
        if (X_dev is None) != (y_dev is None):
            raise ValueError("Pass both X_dev and y_dev to use the holdout data")
        params = {
            _NAMES.get(k, k): v for k, v in self.get_params(deep=False).items() if k not in _OWN and v is not None
        }
        trainer_cls = self.trainer_cls or LinePerIterationTrainer
        trainer = trainer_cls(algorithm=self.algorithm, params=params, verbose=self.verbose)
        for part, labels, group in ((X, y, 0), (X_dev, y_dev, 1)):
            if part is None:
                continue
            part = part if isinstance(part, (list, Items)) else list(part)
            labels = labels if hasattr(labels, "__len__") else list(labels)
            if len(part) != len(labels):
                raise ValueError(f"there {are_counted(len(part), 'sequence')} of items, but {len(labels)} of labels")
            if isinstance(trainer, pycrfsuite.BaseTrainer) and type(trainer).append is pycrfsuite.BaseTrainer.append:
                trainer._append_all(part, labels, group)
            else:
                for xseq, yseq in zip(part, labels, strict=True):
                    trainer.append(xseq, yseq, group)
        holdout = -1 if X_dev is None else 1
        for name in _CACHES:
            self.__dict__.pop(name, None)
        if isinstance(trainer, pycrfsuite.BaseTrainer):
            trainer.train(self.model_filename or "", holdout)
            assert trainer._model is not None
            self.model_: ChainModel = trainer._model
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = self.model_filename or os.path.join(folder, "model.crfsuite")
                trainer.train(path, holdout=holdout)
                self.model_ = read_suite_model(path)
        self.training_log_ = trainer.logparser
        if "eli5" in sys.modules:
            with contextlib.suppress(ImportError):  # an eli5 that knows nothing of CRFs
                register_eli5()
        return self

    def _chain(self) -> ChainModel | None:
        if "model_" not in self.__dict__ and self.model_filename and os.path.exists(self.model_filename):
            self.model_ = read_suite_model(self.model_filename)
        return self.__dict__.get("model_")

    def _fitted(self) -> ChainModel:
        model = self._chain()
        if model is None:
            from sklearn.exceptions import NotFittedError

            if self.model_filename:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.model_filename)
            raise NotFittedError("This CRF instance is not fitted yet: call 'fit' first")
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return self._chain() is not None

    def predict(self, X: Any) -> list[list[str]]:
        """The best labels of every sequence: always a list of lists."""
        model = self._fitted()
        encoder = model.encoder
        assert isinstance(encoder, ItemEncoder)
        sequences = [x.items() if isinstance(x, pycrfsuite.ItemSequence) else x for x in X]
        labels = [str(x) for x in model.labels]
        return Predictions(
            _core.tag_items(model.scorer(dtype=np.float64), encoder._names, sequences, labels, resolve_threads(-1))
        )

    def predict_single(self, xseq: Any) -> list[str]:
        """The best labels of a sequence."""
        return self._tagger_of(self._fitted()).tag(xseq)

    def predict_marginals(self, X: Any) -> list[list[dict[str, float]]]:
        """Probabilities of all labels at all positions of every sequence."""
        return LabelLists([self.predict_marginals_single(x) for x in X])

    def predict_marginals_single(self, xseq: Any) -> list[dict[str, float]]:
        """Probabilities ``{label: p}`` for each position of a sequence."""
        return self._tagger_of(self._fitted())._marginals(xseq)

    def score(self, X: Any, y: Sequence[Sequence[Any]]) -> float:
        """Accuracy over all tokens."""
        return flat_accuracy_score(y, self.predict(X))

    def _tagger_of(self, model: ChainModel) -> pycrfsuite.Tagger:
        tagger: pycrfsuite.Tagger | None = self.__dict__.get("_tagger")
        if tagger is None:
            tagger = self._tagger = pycrfsuite.Tagger._of_model(model)
        return tagger

    def _suite_bytes(self) -> bytes | None:
        model = self._chain()
        return None if model is None else suite_bytes(suite_features(model))

    @property
    def modelfile(self) -> FileResource:
        """The model file: that of ``model_filename``, else a temporary one, which is made if its ``name`` is read."""
        resource: FileResource | None = self.__dict__.get("_modelfile")
        if resource is None:
            if self.model_filename:
                resource = FileResource(self.model_filename, self.keep_tempfiles, ".crfsuite", "model")
            else:
                resource = FileResource._of(self._suite_bytes, self.keep_tempfiles)
            self._modelfile = resource
        return resource

    def _model_info(self) -> pycrfsuite.ModelInfo | None:
        model = self._chain()
        if model is None:
            return None
        if "_info" not in self.__dict__:
            self._info = self._tagger_of(model).info()
        return self._info

    @property
    def tagger_(self) -> pycrfsuite.Tagger | None:
        """The tagger."""
        model = self._chain()
        return None if model is None else self._tagger_of(model)

    @property
    def classes_(self) -> list[str] | None:
        """The labels."""
        model = self._chain()
        return None if model is None else [str(x) for x in model.labels]

    @property
    def size_(self) -> int | None:
        """Bytes of the CRFsuite model file."""
        data = self._suite_bytes()
        return None if data is None else len(data)

    @property
    def num_attributes_(self) -> int | None:
        """Number of attributes that have a weight."""
        attributes = self.attributes_
        return None if attributes is None else len(attributes)

    @property
    def attributes_(self) -> list[str] | None:
        """The attributes that have a weight."""
        info = self._model_info()
        return None if info is None else list(info.attributes)

    @property
    def state_features_(self) -> dict[tuple[str, str], float] | None:
        """Weights ``{(attribute, label): w}``."""
        info = self._model_info()
        return None if info is None else info.state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float] | None:
        """Weights ``{(label, next label): w}``."""
        info = self._model_info()
        return None if info is None else info.transitions

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        for key in _CACHES:
            state.pop(key, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        resource: FileResource | None = state.pop("modelfile", None)  # of the original's pickles
        if resource is not None:
            for key in ("_tagger", "_info_cached"):
                state.pop(key, None)
            data = resource._bytes() if resource.auto else None
            if data is not None:
                state["model_"] = chain_model(parse_suite(data)[0])
        super().__setstate__(state)


def register_eli5() -> None:
    """Lets eli5 explain :class:`CRF` as it explains the original; ``fit`` calls this if eli5 is imported already.

    While eli5's module for CRFs is imported, this package stands in for sklearn-crfsuite if that is missing.
    """
    name = "sklearn_crfsuite"
    missing = name not in sys.modules and find_spec(name) is None
    if missing:
        sys.modules[name] = import_module(__package__)
    try:
        from eli5.explain import explain_weights
        from eli5.sklearn_crfsuite.explain_weights import explain_weights_sklearn_crfsuite
    finally:
        if missing:
            del sys.modules[name]
    explain_weights.register(CRF, explain_weights_sklearn_crfsuite)
