"""Options of ``crfkit train`` under the names that CRFsuite, CRF++ and Wapiti have for them."""

from __future__ import annotations

from typing import Any

from crfkit.compat.pycrfsuite.parameters import ALGORITHMS, OPTIONS
from crfkit.data import DataError
from crfkit.training import AROW, LBFGS, PassiveAggressive

#: Algorithms by other tools' names.
_ALGORITHMS = {**ALGORITHMS, "l-bfgs": "lbfgs", "CRF": "lbfgs", "CRF-L1": "lbfgs", "CRF-L2": "lbfgs"}

#: CRFsuite's parameters that are settings of CRF.
_SETTINGS = {
    "c1": "c1",
    "c2": "c2",
    "max_iterations": "max_iter",
    "delta": "tol",
    "feature.minfreq": "min_freq",
    "feature.possible_states": "all_possible_states",
    "feature.possible_transitions": "all_possible_transitions",
}
#: CRFsuite's parameters that are parameters of an optimiser here.
_OPTIMISERS: dict[str, tuple[Any, dict[str, str]]] = {
    "lbfgs": (LBFGS, {"num_memories": "memory", "period": "period"}),
    "pa": (
        PassiveAggressive,
        {"type": "type", "c": "c", "error_sensitive": "error_sensitive", "averaging": "average"},
    ),
    "arow": (AROW, {"variance": "variance", "gamma": "r"}),
}


def other_settings(
    algorithm: str, rho2: float | None, cost: float | None, params: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Settings of CRF given by other tools' names; and the names that have no meaning here.

    Examples
    --------
    >>> other_settings("CRF-L1", None, 4.0, [])
    ({'algorithm': 'lbfgs', 'c1': 0.25, 'c2': 0.0}, [])
    >>> other_settings("pa", None, None, ["c=2", "epsilon=0.1", "max_iterations=5"])[0]["max_iter"]
    5
    """
    name = _ALGORITHMS.get(algorithm, algorithm)
    out: dict[str, Any] = {"algorithm": name}
    if rho2 is not None:
        out["c2"] = rho2 / 2
    if cost is not None and not cost > 0:
        raise DataError(f"--cost must be > 0, got {cost}")
    if algorithm == "CRF-L1":
        out |= {"c1": 1 / (cost or 1.0), "c2": 0.0}
    elif cost is not None:
        out["c2"] = 1 / (2 * cost)
    suite = {crfkit: theirs for theirs, crfkit in ALGORITHMS.items()}
    options = OPTIONS[suite.get(name, "lbfgs")]
    optimiser, own = _OPTIMISERS.get(name, (None, {}))
    changed: dict[str, Any] = {}
    unused = []
    for text in params:
        key, equals, value = text.partition("=")
        if not equals or key not in options:
            raise DataError(f"--set takes NAME=VALUE with one of {', '.join(options)}, got {text!r}")
        try:
            number = options[key].kind(value)
        except ValueError:
            raise DataError(f"--set {key} must be a number, got {value!r}") from None
        if key in own:
            changed[own[key]] = number
        elif key in _SETTINGS:
            out[_SETTINGS[key]] = number
        elif key == "epsilon" and "delta" not in options:
            out["tol"] = number
        else:
            unused.append(key)
    if changed:
        out["algorithm"] = optimiser(**changed)
    return out, unused
