"""The base class of estimators, where sklearn-crfsuite has it."""

from sklearn.base import BaseEstimator

__all__ = ["BaseEstimator"]
