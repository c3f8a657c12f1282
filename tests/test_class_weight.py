"""Weights of labels: the mean over a sequence's labels is the weight of the sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

import crfkit
from crfkit import CRF, HMM
from crfkit.training import ALGORITHMS
from crfkit.training.registry import AlgorithmName

X = [["a", "b"], ["a"], ["a", "a", "c"], ["b"]]
Y = [["A", "B"], ["A"], ["A", "A", "C"], ["B"]]


def weights_of(rule: Any) -> list[float]:
    if rule == "balanced":
        flat = [label for row in Y for label in row]
        names = sorted(set(flat))
        rule = dict(zip(names, compute_class_weight("balanced", classes=np.array(names), y=flat), strict=True))
    return [float(np.mean([rule.get(label, 1) for label in row])) for row in Y]


@pytest.mark.parametrize("rule", ["balanced", {"C": 5, "B": 0.5}])
@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd"])
def test_they_are_weights_of_sequences(rule: Any, algorithm: Any) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm, "max_iter": 5, "random_state": 0}
    mine = CRF(class_weight=rule, **settings).fit(X, Y).weights_
    np.testing.assert_allclose(mine, CRF(**settings).fit(X, Y, sample_weight=weights_of(rule)).weights_)
    both = CRF(class_weight=rule, **settings).fit(X, Y, sample_weight=[1, 2, 3, 4]).weights_
    expected = CRF(**settings).fit(X, Y, sample_weight=np.multiply(weights_of(rule), [1, 2, 3, 4])).weights_
    np.testing.assert_allclose(both, expected)


def test_unknown_labels_do_not_count() -> None:
    y = [["A", None], None, [{"A", "B"}, "A", "C"], ["B"]]
    mine = CRF(class_weight={"A": 3, "C": 7}, max_iter=5).fit(X, y).weights_
    expected = CRF(max_iter=5).fit(X, y, sample_weight=[3, 1, 5, 1]).weights_
    np.testing.assert_allclose(mine, expected)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("even", "'class_weight' must be 'balanced', a dict"),
        ({"X": 1}, "'class_weight' names the label 'X', which does not occur in the data"),
        ({"A": -1}, "'A' of class_weight must be a number >= 0"),
        ({"A": float("inf")}, "'class_weight' must hold finite numbers"),
    ],
)
def test_faults(rule: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF(class_weight=rule).fit(X, Y)


def test_what_is_loaded_is_typed(tmp_path: Path) -> None:
    CRF(max_iter=2).fit(X, Y).save(tmp_path / "m")
    crf: CRF = crfkit.load(tmp_path / "m", kind=CRF)
    assert len(crf.weights_)
    with pytest.raises(crfkit.ModelError, match="m: this is a model of class CRF, not HMM"):
        crfkit.load(tmp_path / "m", kind=HMM)


def test_the_names_of_algorithms_are_typed() -> None:
    assert list(get_args(AlgorithmName)) == list(ALGORITHMS)
