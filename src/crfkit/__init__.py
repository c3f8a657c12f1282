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

from crfkit import chain, data, features, graph, metrics, training
from crfkit.estimators import CRF, HMM, MEMM, Tagging
from crfkit.features import Template, TokenFeatures
from crfkit.loading import load
from crfkit.model.chain_model import ModelError

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports NeuralCRF, and the modules that are seldom needed or need an extra, when somebody asks for them."""
    if name == "NeuralCRF":
        return import_module("crfkit.torch.estimator").NeuralCRF
    if name in ("active", "compat", "integrations", "torch"):
        return import_module(f"crfkit.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CRF",
    "HMM",
    "MEMM",
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
    "load",
    "metrics",
    "training",
]
