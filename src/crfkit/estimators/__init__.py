"""Estimators by scikit-learn's rules."""

from typing import TYPE_CHECKING

from crfkit.base.later import later
from crfkit.data.labels import Tagging

if TYPE_CHECKING:
    from crfkit.estimators.crf import CRF
    from crfkit.estimators.hmm import HMM
    from crfkit.estimators.memm import MEMM
    from crfkit.estimators.tuning import Tuning, tune
else:
    __getattr__ = later(__name__, CRF="crf", HMM="hmm", MEMM="memm", Tuning="tuning", tune="tuning")

__all__ = ["CRF", "HMM", "MEMM", "Tagging", "Tuning", "tune"]
