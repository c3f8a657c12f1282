"""Conditional random fields for sequences.

The pipeline::

    columns -> features -> Dataset -> Potentials -> inference -> objective -> optimiser -> model -> predictions
    text       strings     ids, CSR   scores         log Z,       value,       weights      file     labels, n-best,
                                      [T,L] [L,L]    marginals    gradient                           marginals

:class:`CRF` walks the whole line; the modules :mod:`crfkit.data`, :mod:`crfkit.features`, :mod:`crfkit.chain`,
:mod:`crfkit.training` and :mod:`crfkit.metrics` are its parts.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import crfkit.base.interpreter  # noqa: F401 - refuses some, before the core is imported
from crfkit.base.later import later

# Nothing is imported before it is asked for: numpy and the core take most of the time of a first import.
if TYPE_CHECKING:
    from crfkit import (
        active,
        calibration,
        chain,
        compat,
        dask,
        data,
        features,
        graph,
        integrations,
        metrics,
        model,
        plotting,
        segment,
        torch,
        training,
    )
    from crfkit.data.labels import Tagging
    from crfkit.estimators import CRF, HMM, MEMM, Expectations, WeakLabels, tune
    from crfkit.features import Gazetteer, Template, TokenFeatures, WordClasses, WordVectors
    from crfkit.loading import load
    from crfkit.model import ModelError
    from crfkit.segment import SegmentCRF
    from crfkit.torch import NeuralCRF
else:
    __getattr__ = later(
        __name__,
        *("active", "calibration", "chain", "cli", "compat", "dask", "data", "features", "graph", "integrations"),
        *("metrics", "model", "plotting", "segment", "torch", "training"),
        CRF="estimators.crf",
        Expectations="estimators.expectations",
        Gazetteer="features",
        HMM="estimators.hmm",
        MEMM="estimators.memm",
        ModelError="model",
        NeuralCRF="torch",
        SegmentCRF="segment",
        Tagging="data.labels",
        Template="features",
        TokenFeatures="features",
        WeakLabels="estimators.weak",
        WordClasses="features",
        WordVectors="features",
        load="loading",
        tune="estimators.tuning",
    )

__version__ = "0.2.0"

__all__ = [
    "CRF",
    "HMM",
    "MEMM",
    "Expectations",
    "Gazetteer",
    "ModelError",
    "NeuralCRF",
    "SegmentCRF",
    "Tagging",
    "Template",
    "TokenFeatures",
    "WeakLabels",
    "WordClasses",
    "WordVectors",
    "__version__",
    "active",
    "calibration",
    "chain",
    "compat",
    "dask",
    "data",
    "features",
    "graph",
    "integrations",
    "load",
    "metrics",
    "model",
    "plotting",
    "segment",
    "torch",
    "training",
    "tune",
]
# ``from crfkit import *`` takes what there is
if find_spec("torch") is None:
    __all__ = [name for name in __all__ if name not in ("NeuralCRF", "torch")]
if find_spec("dask") is None:
    __all__ = [name for name in __all__ if name != "dask"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
