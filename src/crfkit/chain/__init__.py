"""Inference on linear chains.

Everything is a function of :class:`Potentials`, the scores of the labels of each token and of
neighbouring labels, for one sequence or for a ragged batch.
"""

from crfkit.chain.beams import Adaptive, FixedSize, MinDivergence, Threshold
from crfkit.chain.constraints import Constraints
from crfkit.chain.entropy import (
    confidence,
    entity_probability,
    entropy,
    entropy_gradient,
    margin,
    most_uncertain_span,
    span_entropies,
    span_entropy,
    span_probability,
)
from crfkit.chain.inference import (
    BeamMarginals,
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
from crfkit.chain.study import (
    conditional_entropy,
    constrained_entropy,
    entropy_lattices,
    kbest_entropy,
)

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
    "conditional_entropy",
    "confidence",
    "constrained_entropy",
    "decode",
    "entity_probability",
    "entropy",
    "entropy_gradient",
    "entropy_lattices",
    "kbest_entropy",
    "log_partition",
    "log_probability",
    "margin",
    "marginals",
    "most_uncertain_span",
    "nbest",
    "sample",
    "score",
    "span_entropies",
    "span_entropy",
    "span_probability",
]
