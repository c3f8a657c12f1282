"""Objectives and optimisers."""

from crfkit.training.beams import BeamObjective, BeamReport
from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import LikelihoodObjective, Objective

__all__ = [
    "BeamObjective",
    "BeamReport",
    "Callback",
    "LikelihoodObjective",
    "Objective",
    "Progress",
    "Result",
    "minimize_lbfgs",
]
