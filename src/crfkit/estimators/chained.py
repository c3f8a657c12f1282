"""What estimators have in common whose model is a chain of labels."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.chain.inference import sample
from crfkit.chain.potentials import Potentials
from crfkit.estimators.base import Estimator
from crfkit.estimators.crf import CRF, Tagging
from crfkit.model import ChainModel, write_model

__all__ = ["ChainEstimator"]


class ChainEstimator(Estimator):
    """Predictions out of a chain model; :class:`CRF` makes them, whatever filled the model."""

    model_: ChainModel
    n_jobs: int | None
    _kind = ""

    def _is_fitted(self) -> bool:
        return hasattr(self, "model_")

    def _adopt(self, model: ChainModel) -> None:
        self.model_ = model

    @property
    def _chain(self) -> CRF:
        self._require_fitted()
        crf = CRF(n_jobs=self.n_jobs)
        crf._adopt(self.model_)
        return crf

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of their numbers."""
        return self._chain.classes_

    def predict(self, X: Any) -> list[list[Any]]:
        """The best labels of every sequence (Viterbi)."""
        return self._chain.predict(X)

    def predict_marginals(self, X: Any) -> list[NDArray[np.floating[Any]]]:
        """Probabilities of all labels at all tokens, float64 arrays [T, L], columns in the order of ``classes_``."""
        return self._chain.predict_marginals(X)

    def predict_proba(self, X: Any) -> list[NDArray[np.floating[Any]]]:
        """The same as :meth:`predict_marginals`."""
        return self.predict_marginals(X)

    def predict_nbest(self, X: Any, k: int = 5) -> list[list[Tagging]]:
        """The ``k`` best labellings of every sequence, best first, with their probabilities given the sequence."""
        return self._chain.predict_nbest(X, k)

    def potentials(self, X: Any) -> Potentials:
        """The scores of all labellings, for every question that :mod:`crfkit.chain` answers, beams included."""
        return self._chain.potentials(X)

    def sample(self, X: Any, n: int = 1, random_state: int | None = None) -> list[list[list[Any]]]:
        """Labellings drawn from p(y | x): ``n`` for every sequence."""
        labels = self.model_.labels if self._is_fitted() else ()
        drawn = sample(self.potentials(X), n, random_state, self.n_jobs)
        return [[[labels[j] for j in path] for path in paths.tolist()] for paths in drawn]

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Part of the tokens that :meth:`predict` labels right."""
        return self._chain.score(X, y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads."""
        self._require_fitted()
        write_model(self.model_, path, self._kind)

    @classmethod
    def _restore(cls, model: ChainModel, header: dict[str, Any], n_jobs: int | None) -> Self:
        known = cls._parameters()
        params = {k: v for k, v in header["params"].items() if k in known and k not in ("features", "algorithm")}
        out = cls(**{**params, "n_jobs": n_jobs})
        out._adopt(model)
        return out
