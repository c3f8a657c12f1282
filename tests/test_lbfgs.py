"""The optimiser on functions whose minima are known."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import rosen, rosen_der

from crfkit import _core
from crfkit.training import LBFGS, Algorithm, NewtonCG, Objective
from crfkit.training.objective import Change

Vector = np.ndarray[Any, Any]


class Function:
    def __init__(self, n: int, f: Any, g: Any) -> None:
        self.size, self.f, self.g = n, f, g
        self.seen: list[float] = []

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        self.seen.append(float(self.f(w)))
        return self.seen[-1], np.asarray(self.g(w), float)


def quadratic(n: int, condition: float, seed: int) -> tuple[Function, Vector]:
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    a = basis @ np.diag(np.geomspace(1, condition, n)) @ basis.T
    target = rng.normal(size=n)
    return Function(n, lambda w: 0.5 * (w - target) @ a @ (w - target), lambda w: a @ (w - target)), target


@settings(max_examples=30)
@given(st.integers(1, 12), st.sampled_from([1.0, 100.0, 1e4]), st.integers(0, 99))
def test_quadratics(n: int, condition: float, seed: int) -> None:
    f, target = quadratic(n, condition, seed)
    result = LBFGS().minimize(f, np.zeros(n), tol=1e-14, n_jobs=1)
    assert result.converged
    np.testing.assert_allclose(result.w, target, atol=1e-5)


def test_rosenbrock() -> None:
    f = Function(10, rosen, rosen_der)
    result = LBFGS().minimize(f, np.zeros(10), tol=1e-12)
    np.testing.assert_allclose(result.w, 1, atol=1e-3)
    assert result.value == min(f.seen)  # the best point is not left behind
    assert result.evaluations == len(f.seen)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(0, 99), st.sampled_from([0.1, 1.0, 5.0]))
def test_owlqn_finds_the_lasso(n: int, seed: int, c1: float) -> None:
    """With independent coordinates the minimum is soft thresholding."""
    rng = np.random.default_rng(seed)
    scale, target = rng.uniform(0.5, 3, n), rng.normal(size=n) * 2
    f = Function(n, lambda w: 0.5 * (scale * (w - target) ** 2).sum(), lambda w: scale * (w - target))
    result = LBFGS().minimize(f, np.zeros(n), c1=c1, tol=1e-12)
    expected = np.sign(target) * np.maximum(np.abs(target) - c1 / scale, 0)
    np.testing.assert_allclose(result.w, expected, atol=1e-5)
    np.testing.assert_array_equal(result.w == 0, expected == 0)


def test_limits_and_messages() -> None:
    f, _ = quadratic(8, 1e4, 0)
    assert LBFGS().minimize(f, np.zeros(8), max_iter=0).iterations == 0
    result = LBFGS().minimize(f, np.zeros(8), max_iter=3)
    assert (result.iterations, result.converged) == (3, False)
    assert "3 iterations" in result.message
    assert (result.reason, result.converged) == ("max_iter", False)
    at_minimum = LBFGS().minimize(Function(1, lambda w: float(w[0] ** 2), lambda w: 2 * w), np.zeros(1))
    assert at_minimum.message == "the gradient vanishes"
    assert (at_minimum.reason, at_minimum.converged) == ("converged", True)
    with pytest.raises(ValueError, match="the objective is nan at the starting point"):
        LBFGS().minimize(Function(1, lambda w: np.nan, lambda w: w), np.zeros(1))


def test_a_wall_of_infinity_is_stepped_back_from() -> None:
    f = Function(1, lambda w: float(-np.log(w[0]) + w[0]) if w[0] > 0 else np.inf, lambda w: -1 / w + 1)
    assert LBFGS().minimize(f, np.array([1e-3]), tol=1e-10).w[0] == pytest.approx(1, abs=1e-4)


def two_loops(pairs: list[tuple[Vector, Vector]], v: Vector) -> Vector:
    """The recursion as textbooks have it."""
    q = v.copy()
    alphas = []
    for s, y in reversed(pairs):
        alpha = s @ q / (s @ y)
        alphas.append(alpha)
        q -= alpha * y
    s, y = pairs[-1]
    q *= s @ y / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q += s * (alpha - y @ q / (s @ y))
    return -q


@pytest.mark.parametrize("size", [1, 7, 4096, 10001])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_memory_is_the_two_loop_recursion(size: int, threads: int) -> None:
    rng = np.random.default_rng(size)
    memory = _core.Memory(size, 4)
    v, d = rng.normal(size=size), np.empty(size)
    x, g = np.zeros(size), np.zeros(size)

    def direction() -> None:
        memory.look(x, v, 0.0, None, threads)
        out = np.empty(size)
        slope = memory.direction(x, v, False, d, 0.5, out, threads)[0]
        assert slope == pytest.approx(v @ d)
        np.testing.assert_array_equal(out, x + 0.5 * d)

    direction()
    np.testing.assert_array_equal(d, -v)
    pairs: list[tuple[Vector, Vector]] = []
    for _ in range(7):
        s = rng.normal(size=size).astype(np.float32).astype(float)
        y = (s * rng.uniform(0.5, 2, size)).astype(np.float32).astype(float)
        assert memory.push(x + s, x, g + y, g, threads)
        pairs.append((s, y))
        direction()
        np.testing.assert_allclose(d, two_loops(pairs[-4:], v), rtol=1e-6, atol=1e-8)
    assert len(memory) == 4
    one = np.ones(size)
    assert not memory.push(one, 0 * one, -one, 0 * one, threads)  # negative curvature is refused
    direction()
    np.testing.assert_allclose(d, two_loops(pairs[-3:], v), rtol=1e-6, atol=1e-8)
    memory.clear()
    assert len(memory) == 0


def test_threads_do_not_change_the_direction() -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    directions = []
    for threads in (1, 2, 5):
        memory, d = _core.Memory(n, 3), np.empty(n)
        rng = np.random.default_rng(0)
        for _ in range(3):
            s = rng.normal(size=n)
            memory.push(s, 0 * s, 2 * s, 0 * s, threads)
        x, g, v, out = rng.normal(size=n), rng.normal(size=n), np.empty(n), np.empty(n)
        x[::3] = 0
        numbers = memory.look(x, g, 0.5, v, threads), memory.direction(x, v, True, d, 1.0, out, threads)
        directions.append((d, v, out, *map(np.array, numbers)))
    for other in directions[1:]:
        for a, b in zip(directions[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [1, 4097, 20_000])
def test_one_pass_does_what_its_parts_do(size: int) -> None:
    """OWL-QN's vectors, against numpy: pseudo-gradient, direction, orthant; and looking while pushing."""
    rng = np.random.default_rng(size)
    c1, n = 0.7, size
    x, x_old, g, g_old = rng.normal(size=(4, n))
    g_old = g - (x - x_old) * rng.uniform(0.5, 2, n)
    x[rng.random(n) < 0.4] = 0
    v = np.empty(n)
    fused, parts = _core.Memory(n, 2), _core.Memory(n, 2)
    assert parts.push(x, x_old, g, g_old, 1)
    again = np.empty(n)
    norms = fused.advance(x, x_old, g, g_old, c1, v, 2)
    assert norms == parts.look(x, g, c1, again, 1)
    np.testing.assert_array_equal(v, again)
    at_zero = np.sign(g) * np.maximum(np.abs(g) - c1, 0)
    np.testing.assert_array_equal(v, np.where(x != 0, g + c1 * np.sign(x), at_zero))
    np.testing.assert_allclose(norms, (v @ v, x @ x, np.count_nonzero(x)), rtol=1e-12)
    d, out = np.empty(n), np.empty(n)
    slope, ascent, l1 = fused.direction(x, v, True, d, 0.25, out, 2)
    assert (d * v <= 0).all()
    assert slope == pytest.approx(v @ d)
    expected = x + 0.25 * d
    expected[expected * np.where(x != 0, np.sign(x), -np.sign(v)) <= 0] = 0
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_allclose((ascent, l1), (v @ (out - x), np.abs(out).sum()), rtol=1e-9)
    moved = np.empty(n)
    assert _core.move(x, v, True, d, 0.25, moved, 3) == (slope, ascent, l1)
    np.testing.assert_array_equal(moved, out)
    with pytest.raises(ValueError, match="v goes with c1"):
        fused.look(x, g, c1, None, 1)


class Moving(Objective):
    """A bowl around ``target`` that moves once, after the third review, and then says where to go on."""

    size, noise = 2, 1e-13

    def __init__(self, way: Literal["on", "back", "over"]) -> None:
        self.way, self.target, self.reviews = way, np.array([1.0, 3.0]), 0
        self.seen: list[Vector] = []
        self.old = np.zeros(0)

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        self.seen.append(w.copy())
        x = w - self.target
        return float(x**4 @ [1.0, 5.0] + x @ x), 4 * x**3 * [1.0, 5.0] + 2 * x

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        product: Vector = (12 * (w - self.target) ** 2 * [1.0, 5.0] + 2) * v
        return product

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        self.reviews += 1
        if self.reviews != 3:
            return None
        self.target, self.old = np.array([-1.0, 2.0]), old.copy()
        return Change(new if self.way == "on" else old, self.way)


@pytest.mark.parametrize("algorithm", [LBFGS(), NewtonCG()])
@pytest.mark.parametrize("way", ["on", "back", "over"])
def test_an_objective_that_changes_says_where_to_go_on(algorithm: Algorithm, way: Any) -> None:
    f = Moving(way)
    result = algorithm.minimize(f, np.array([5.0, -1.0]), tol=1e-8)
    at = [w for w in f.seen if way != "on" and np.array_equal(w, f.old)]
    assert len(at) == (0 if way == "on" else 2)  # evaluated again, where it said
    assert (result.reason == "beams") == (way == "over")
    if way == "over":
        np.testing.assert_array_equal(result.w, f.old)
    else:
        np.testing.assert_allclose(result.w, f.target, atol=1e-3)
