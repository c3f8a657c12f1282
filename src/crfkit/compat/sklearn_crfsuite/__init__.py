"""Stands in for sklearn-crfsuite: ``import crfkit.compat.sklearn_crfsuite as sklearn_crfsuite``.

Needs ``crfkit[sklearn]``.
"""

from crfkit.base.later import needs

with needs("crfkit.compat.sklearn_crfsuite", "scikit-learn", "sklearn"):
    import sklearn as sklearn

from crfkit.compat.sklearn_crfsuite import _fileresource as _fileresource  # named by the original's pickles
from crfkit.compat.sklearn_crfsuite import metrics, scorers, utils
from crfkit.compat.sklearn_crfsuite.estimator import CRF, register_eli5

__all__ = ["CRF", "metrics", "register_eli5", "scorers", "utils"]
