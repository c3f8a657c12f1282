"""CRFsuite's algorithms and their parameters, as trainers list, check and log them."""

from __future__ import annotations

from typing import Any, NamedTuple

UNLIMITED = 2**31 - 1


class Option(NamedTuple):
    """A training parameter: its type, its default, and what it does."""

    kind: Any
    default: Any
    help: str


def _flag(text: str) -> bool:
    return bool(int(text))


_FEATURES = {
    "feature.minfreq": Option(float, 0.0, "Features whose values sum to less than this get no weight."),
    "feature.possible_states": Option(_flag, False, "Also give weights to (attribute, label) pairs that do not occur."),
    "feature.possible_transitions": Option(_flag, False, "Also give weights to label pairs that do not occur."),
}
_PASSES = {"max_iterations": Option(int, 100, "Maximum number of passes over the data.")}
_EPOCHS = {**_PASSES, "epsilon": Option(float, 0.0, "Training ends when the mean loss of a sequence is below this.")}
OPTIONS: dict[str, dict[str, Option]] = {
    "lbfgs": {
        **_FEATURES,
        "c1": Option(float, 0.0, "Coefficient of the L1 penalty, the sum of absolute weights."),
        "c2": Option(float, 1.0, "Coefficient of the L2 penalty, the sum of squared weights."),
        "max_iterations": Option(int, UNLIMITED, "Maximum number of iterations; 0 for no limit."),
        "num_memories": Option(int, 6, "Accepted; crfkit chooses how many steps L-BFGS remembers."),
        "epsilon": Option(float, 1e-5, "Training ends when the gradient is below this fraction of the weights' norm."),
        "period": Option(int, 10, "Over how many iterations delta is measured."),
        "delta": Option(float, 1e-5, "Training ends when the loss falls by less than this fraction."),
        "linesearch": Option(str, "MoreThuente", "Accepted; crfkit has a line search of its own."),
        "max_linesearch": Option(int, 20, "Accepted; crfkit has a line search of its own."),
    },
    "l2sgd": {
        **_FEATURES,
        "c2": Option(float, 1.0, "Coefficient of the L2 penalty, the sum of squared weights."),
        "max_iterations": Option(int, 1000, "Maximum number of passes over the data."),
        "period": Option(int, 10, "Over how many passes delta is measured."),
        "delta": Option(float, 1e-6, "Training ends when the loss falls by less than this fraction."),
        "calibration.eta": Option(float, 0.1, "The first step that is tried."),
        "calibration.rate": Option(float, 2.0, "The factor between steps that are tried."),
        "calibration.samples": Option(float, 1000.0, "Sequences that steps are tried on."),
        "calibration.candidates": Option(int, 10, "How many steps that lower the loss are tried, in each direction."),
        "calibration.max_trials": Option(int, 20, "How many steps are tried at most."),
    },
    "averaged-perceptron": {
        **_FEATURES,
        **_PASSES,
        "epsilon": Option(float, 0.0, "Training ends when the mean fraction of wrong labels is below this."),
    },
    "passive-aggressive": {
        **_FEATURES,
        "type": Option(int, 1, "0 without slack, 1 for PA-I, 2 for PA-II."),
        "c": Option(float, 1.0, "How strongly an error changes the weights."),
        "error_sensitive": Option(_flag, True, "Whether the number of wrong labels counts."),
        "averaging": Option(_flag, True, "Whether weights are averaged."),
        **_EPOCHS,
    },
    "arow": {
        **_FEATURES,
        "variance": Option(float, 1.0, "Variance of every weight at the beginning."),
        "gamma": Option(float, 1.0, "Trade-off between loss and change."),
        **_EPOCHS,
    },
}
ALIASES = {"ap": "averaged-perceptron", "pa": "passive-aggressive"}
LINE_SEARCHES = ("MoreThuente", "Backtracking", "StrongBacktracking")
#: CRFsuite's algorithms by crfkit's names.
ALGORITHMS = {
    "lbfgs": "lbfgs",
    "l2sgd": "sgd",
    "averaged-perceptron": "ap",
    "passive-aggressive": "pa",
    "arow": "arow",
}
TITLES = {
    "lbfgs": "L-BFGS optimization",
    "l2sgd": "Stochastic Gradient Descent (SGD)",
    "averaged-perceptron": "Averaged perceptron",
    "passive-aggressive": "Passive Aggressive",
    "arow": "Adaptive Regularization of Weights (AROW)",
}
#: How the log of L-BFGS names what differs from the parameter's name.
_LOG_NAMES = {"period": "stop", "max_linesearch": "linesearch.max_iterations"}


def log_value(name: str, value: Any, algorithm: str = "lbfgs") -> str:
    """A parameter as the log writes it."""
    text = f"{value:.6f}" if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
    return f"{_LOG_NAMES.get(name, name) if algorithm == 'lbfgs' else name}: {text}\n"
