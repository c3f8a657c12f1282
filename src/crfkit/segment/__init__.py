"""Segmentations: sequences cut into labelled segments, each with a length.

Everything but the estimator is a function of :class:`Potentials`, the scores of tokens, lengths, neighbouring labels
and single segments, for one sequence or for a ragged batch.
"""

from crfkit.segment.estimator import SegmentCRF
from crfkit.segment.features import SegmentFeatures
from crfkit.segment.inference import Marginals, NBest, decode, log_partition, marginals, nbest, sample
from crfkit.segment.potentials import Potentials
from crfkit.segment.scores import entropy, entropy_gradient, log_probability, score

__all__ = [
    "Marginals",
    "NBest",
    "Potentials",
    "SegmentCRF",
    "SegmentFeatures",
    "decode",
    "entropy",
    "entropy_gradient",
    "log_partition",
    "log_probability",
    "marginals",
    "nbest",
    "sample",
    "score",
]
