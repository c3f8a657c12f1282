"""Conditional random fields on general graphs.

:class:`FactorGraph` holds discrete variables and factors and answers the questions of :mod:`crfkit.chain` about them:
exactly where the treewidth allows, approximately where it does not. Builders make the common shapes.
:class:`GraphCRF`, :class:`SkipChainCRF` and :class:`FactorialCRF` learn scores from data.
"""

from crfkit.graph.builders import (
    chain,
    factorial,
    grid,
    higher_order_chain,
    pairwise_graph,
    semi_markov_chain,
    skip_chain,
    tree,
)
from crfkit.graph.engine import CostError, Inference
from crfkit.graph.estimators import GraphCRF
from crfkit.graph.factor_graph import FactorGraph
from crfkit.graph.sequences import FactorialCRF, SkipChainCRF, repeated_words

__all__ = [
    "CostError",
    "FactorGraph",
    "FactorialCRF",
    "GraphCRF",
    "Inference",
    "SkipChainCRF",
    "chain",
    "factorial",
    "grid",
    "higher_order_chain",
    "pairwise_graph",
    "repeated_words",
    "semi_markov_chain",
    "skip_chain",
    "tree",
]
