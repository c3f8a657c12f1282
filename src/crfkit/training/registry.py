"""The optimisers by name."""

from __future__ import annotations

from typing import Literal

from crfkit.training.lbfgs import LBFGS
from crfkit.training.newton import NewtonCG
from crfkit.training.optimiser import Algorithm
from crfkit.training.stochastic import AROW, SAG, SGD, SMD, AdaGrad, PassiveAggressive, Perceptron

#: The names, for type checkers.
AlgorithmName = Literal["lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag", "ap", "pa", "arow"]

#: What ``algorithm=`` takes by name.
ALGORITHMS: dict[str, type[Algorithm]] = {
    "lbfgs": LBFGS,
    "newton-cg": NewtonCG,
    "sgd": SGD,
    "smd": SMD,
    "adagrad": AdaGrad,
    "sag": SAG,
    "ap": Perceptron,
    "pa": PassiveAggressive,
    "arow": AROW,
}


def find_algorithm(algorithm: str | Algorithm, owner: str = "CRF") -> Algorithm:
    """The optimiser of a name, or the one given.

    >>> find_algorithm("sgd")
    SGD(learning_rate=None, batch_size=1, average=True, calibration_size=300)
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        known = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(f"'algorithm' of {owner} must be one of {known}, or an optimiser, got {algorithm!r}")
    return ALGORITHMS[algorithm]()


def supporting(feature: str) -> str:
    """Names of the algorithms that support something.

    >>> supporting("beam")
    "'lbfgs', 'sgd', 'adagrad'"
    """
    return ", ".join(repr(name) for name, kind in ALGORITHMS.items() if feature in kind.supports)
