"""Estimators by scikit-learn's rules."""

from crfkit.estimators.crf import CRF, Tagging, load
from crfkit.estimators.hmm import HMM
from crfkit.estimators.memm import MEMM

__all__ = ["CRF", "HMM", "MEMM", "Tagging", "load"]
