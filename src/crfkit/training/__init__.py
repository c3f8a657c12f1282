"""Objectives and optimisers."""

from crfkit.training.algorithms import ALGORITHMS, LBFGS, NewtonCG
from crfkit.training.backward import BackwardObjective
from crfkit.training.beams import BeamObjective, BeamReport
from crfkit.training.lbfgs import Callback, Progress, Result, minimize_lbfgs
from crfkit.training.objective import LikelihoodObjective, Objective
from crfkit.training.semi import EntropyRamp, SemiSupervisedObjective, minimize_with_entropy
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
    "BeamObjective",
    "BeamReport",
    "Callback",
    "EntropyRamp",
    "LikelihoodObjective",
    "NewtonCG",
    "Objective",
    "PassiveAggressive",
    "Perceptron",
    "Progress",
    "Result",
    "SemiSupervisedObjective",
    "SequenceObjective",
    "minimize_lbfgs",
    "minimize_with_entropy",
]
