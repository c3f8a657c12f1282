"""Objectives and optimisers."""

from crfkit.training.beams import BeamObjective, BeamReport
from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import LikelihoodObjective, Objective
from crfkit.training.semi import EntropyRamp, SemiSupervisedObjective, minimize_with_entropy

__all__ = [
    "BeamObjective",
    "BeamReport",
    "Callback",
    "EntropyRamp",
    "LikelihoodObjective",
    "Objective",
    "Progress",
    "Result",
    "SemiSupervisedObjective",
    "minimize_lbfgs",
    "minimize_with_entropy",
]
