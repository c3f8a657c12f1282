"""Conditional random fields on general graphs.

:class:`FactorGraph` holds discrete variables and factors and answers the questions of :mod:`crfkit.chain` about them:
exactly where the treewidth allows, approximately where it does not. Builders make the common shapes.
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
from crfkit.graph.engine import Convergence, ConvergenceWarning, Cost, CostError, Passing
from crfkit.graph.factor_graph import Assignment, FactorGraph, GraphMarginals

__all__ = [
    "Assignment",
    "Convergence",
    "ConvergenceWarning",
    "Cost",
    "CostError",
    "FactorGraph",
    "GraphMarginals",
    "Passing",
    "chain",
    "factorial",
    "grid",
    "higher_order_chain",
    "pairwise_graph",
    "semi_markov_chain",
    "skip_chain",
    "tree",
]
