"""Objectives and optimisers."""

from crfkit.training.algorithms import ALGORITHMS, LBFGS, NewtonCG
from crfkit.training.backward import BackwardObjective
from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import LikelihoodObjective, Objective
from crfkit.training.sequences import SequenceObjective
from crfkit.training.stochastic import AROW, SAG, SGD, SMD, AdaGrad, PassiveAggressive, Perceptron

__all__ = [
    "ALGORITHMS",
    "AROW",
    "LBFGS",
    "SAG",
    "SGD",
    "SMD",
    "AdaGrad",
    "BackwardObjective",
    "Callback",
    "LikelihoodObjective",
    "NewtonCG",
    "Objective",
    "PassiveAggressive",
    "Perceptron",
    "Progress",
    "Result",
    "SequenceObjective",
    "minimize_lbfgs",
]
