"""Conditional random fields for sequences.

The line of flow, of which everything here is a part::

    columns -> features -> Dataset -> Potentials -> inference -> objective -> optimizer -> model -> predictions
    text       strings     ids, CSR   scores         log Z,       value,       weights      file     labels, n-best,
                                      [T,L] [L,L]    marginals    gradient                           marginals

:class:`CRF` walks the whole line; the modules :mod:`crfkit.data`, :mod:`crfkit.features`, :mod:`crfkit.chain`,
:mod:`crfkit.training` and :mod:`crfkit.metrics` are its parts.
"""

from importlib import import_module
from typing import Any

from crfkit import chain, data, features, graph, metrics, model, training
from crfkit.data.labels import Entity, Tagging
from crfkit.estimators import CRF, HMM, MEMM
from crfkit.features import Template, TokenFeatures
from crfkit.loading import load
from crfkit.model import ModelError

__version__ = "0.1.0"

_LATER = ("active", "calibration", "compat", "integrations", "torch")


def __getattr__(name: str) -> Any:
    """What takes long to import, or needs an extra, is imported when it is first asked for."""
    if name in _LATER:
        return import_module(f"crfkit.{name}")
    if name == "NeuralCRF":
        return import_module("crfkit.torch").NeuralCRF
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "NeuralCRF"})


__all__ = [
    "CRF",
    "HMM",
    "MEMM",
    "Entity",
    "ModelError",
    "Tagging",
    "Template",
    "TokenFeatures",
    "__version__",
    "active",
    "chain",
    "data",
    "features",
    "graph",
    "integrations",
    "load",
    "metrics",
    "model",
    "training",
]
