"""Objectives and optimisers."""

from crfkit.training.beams import BeamObjective, BeamReport
from crfkit.training.lbfgs import LBFGS
from crfkit.training.newton import NewtonCG
from crfkit.training.objective import LikelihoodObjective, Objective, Problem
from crfkit.training.optimiser import Algorithm, Progress, Result
from crfkit.training.registry import ALGORITHMS
from crfkit.training.semi import SemiSupervisedObjective
from crfkit.training.sequences import SequenceObjective
from crfkit.training.stochastic import AROW, SAG, SGD, SMD, AdaGrad, PassiveAggressive, Perceptron
from crfkit.training.study import BackwardObjective

__all__ = [
    "ALGORITHMS",
    "AROW",
    "LBFGS",
    "SAG",
    "SGD",
    "SMD",
    "AdaGrad",
    "Algorithm",
    "BackwardObjective",
    "BeamObjective",
    "BeamReport",
    "LikelihoodObjective",
    "NewtonCG",
    "Objective",
    "PassiveAggressive",
    "Perceptron",
    "Problem",
    "Progress",
    "Result",
    "SemiSupervisedObjective",
    "SequenceObjective",
]
