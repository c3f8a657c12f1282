"""Estimators that follow scikit-learn's conventions."""

from typing import TYPE_CHECKING

from crfkit.base.later import later
from crfkit.data.labels import Tagging

if TYPE_CHECKING:
    from crfkit.estimators.crf import CRF
    from crfkit.estimators.expectations import Expectations
    from crfkit.estimators.hmm import HMM
    from crfkit.estimators.memm import MEMM
    from crfkit.estimators.tuning import Tuning, tune
    from crfkit.estimators.weak import WeakLabels
else:
    __getattr__ = later(
        __name__,
        CRF="crf",
        Expectations="expectations",
        HMM="hmm",
        MEMM="memm",
        Tuning="tuning",
        WeakLabels="weak",
        tune="tuning",
    )

__all__ = ["CRF", "HMM", "MEMM", "Expectations", "Tagging", "Tuning", "WeakLabels", "tune"]
