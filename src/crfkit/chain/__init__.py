"""Inference on linear chains.

Everything is a function of :class:`Potentials`, the scores of the labels of each token and of
neighbouring labels, for one sequence or for a ragged batch.
"""

from crfkit.chain.beams import Adaptive, BeamMarginals, FixedSize, MinDivergence, Threshold
from crfkit.chain.constraints import Constraints
from crfkit.chain.inference import (
    Marginals,
    NBest,
    decode,
    log_partition,
    log_probability,
    marginals,
    nbest,
    sample,
    score,
)
from crfkit.chain.potentials import Potentials

__all__ = [
    "Adaptive",
    "BeamMarginals",
    "Constraints",
    "FixedSize",
    "Marginals",
    "MinDivergence",
    "NBest",
    "Potentials",
    "Threshold",
    "decode",
    "log_partition",
    "log_probability",
    "marginals",
    "nbest",
    "sample",
    "score",
]
