"""Sparse-feature CRFs through torch, on the CPU and, where there is one, on a GPU: the same optimum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import crfkit  # noqa: E402
from crfkit import CRF  # noqa: E402
from crfkit.torch.sparse import DeviceObjective  # noqa: E402
from crfkit.training import LBFGS, LikelihoodObjective  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def sentences(n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    words, tags = [f"w{k}" for k in range(30)], ["A", "B", "C", "D"]
    lengths = rng.integers(1, 90, n)
    X = [[words[k] for k in rng.integers(30, size=t)] for t in lengths]
    y = [[tags[(int(w[1:]) + (rng.random() < 0.2)) % 4] for w in x] for x in X]
    return X, y


def problem_of(**settings: Any) -> Any:
    X, y = sentences()
    crf = CRF(c2=0.5, **settings)
    return crf._prepare(X, y, None, None, grow=True)[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["plain", "weighted", "constrained", "valued", "double", "unknown"])
def test_value_and_gradient(device: str, kind: str) -> None:
    special: dict[str, dict[str, Any]] = {
        "double": {"dtype": "float64"},
        "constrained": {"constraints": [("C", "B")]},
    }
    settings = special.get(kind, {})
    X, y = sentences()
    if kind == "constrained":
        y = [["C" if a == "B" and k and row[k - 1] == "C" else a for k, a in enumerate(row)] for row in y]
        y = [["A"] * len(row) for row in y[:3]] + [["C"] * len(row) for row in y[3:]]
        y[0] = ["A", "B", "D"] * 30
        y[0] = y[0][: len(X[0])]
    if kind == "valued":
        X = [[{"w": w, "n": 0.5 + k % 3} for k, w in enumerate(x)] for x in X]
    if kind == "unknown":
        y = [[None if k % 5 == 2 else a for k, a in enumerate(row)] for row in y]
    weights = np.linspace(0.5, 2, len(X)) if kind == "weighted" else None
    crf = CRF(c2=0.5, **settings)
    problem = crf._prepare(X, y, weights, None, grow=True)[1]
    want = crf._objective(problem)
    if problem.hints is not None:
        problem = replace(problem, hints=None)
    got = DeviceObjective(problem, device)
    w = np.random.default_rng(1).normal(size=got.size) * 0.3
    value, gradient = want.value_and_grad(w)
    ours, our_gradient = got.value_and_grad(w)
    assert ours == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(our_gradient, gradient, atol=2e-4 * np.abs(gradient).max())
    again = got.value_and_grad(w)
    assert again[0] == ours
    assert np.array_equal(again[1], our_gradient)


@pytest.mark.parametrize("device", DEVICES)
def test_to_the_same_optimum(device: str) -> None:
    problem = problem_of()
    want = LBFGS().minimize(LikelihoodObjective(problem), tol=1e-7)
    got = LBFGS().minimize(DeviceObjective(problem, device), tol=1e-7)
    assert got.converged
    assert isinstance(got.w, np.ndarray)
    assert got.value == pytest.approx(want.value, rel=1e-5)
    assert got.iterations <= 1.5 * want.iterations


def test_vectors_on_a_device_search_as_those_of_the_host() -> None:
    """The same iterations, on a function whose values are exact."""
    problem = problem_of(dtype="float64")
    want = LBFGS().minimize(LikelihoodObjective(problem), max_iter=12, tol=0)
    got = LBFGS().minimize(DeviceObjective(problem, "cpu"), max_iter=12, tol=0)
    assert got.value == pytest.approx(want.value, rel=1e-6)
    assert got.evaluations == want.evaluations


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_estimator(tmp_path: Path) -> None:
    X, y = sentences()
    want, got = CRF(c2=0.5).fit(X, y), CRF(c2=0.5, device="cuda").fit(X, y)
    assert got.result_.value == pytest.approx(want.result_.value, rel=1e-5)
    assert got.predict(X) == want.predict(X)
    got.save(tmp_path / "m.model")
    read = crfkit.load(tmp_path / "m.model")
    assert isinstance(read, CRF)
    assert read.device == "cpu"
    assert read.predict(X) == want.predict(X)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    with pytest.raises(ValueError, match="'device' of CRF is 'cuda', but torch finds no such GPU here"):
        CRF(device="cuda").fit([["a"]], [["A"]])
    with pytest.raises(ValueError, match="must be 'cpu', 'cuda' or 'cuda:N', got 'tpux'"):
        CRF(device="tpux").fit([["a"]], [["A"]])
