"""Objectives and optimisers."""

from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import LikelihoodObjective, Objective

__all__ = ["Callback", "LikelihoodObjective", "Objective", "Progress", "Result", "minimize_lbfgs"]
