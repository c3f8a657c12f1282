"""Estimators by scikit-learn's rules."""

from crfkit.estimators.crf import CRF, Tagging, load

__all__ = ["CRF", "Tagging", "load"]
