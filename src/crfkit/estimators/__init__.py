"""Estimators by scikit-learn's rules."""

from crfkit.data.labels import Tagging
from crfkit.estimators.crf import CRF
from crfkit.estimators.hmm import HMM
from crfkit.estimators.memm import MEMM

__all__ = ["CRF", "HMM", "MEMM", "Tagging"]
