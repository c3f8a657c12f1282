"""The training objective against enumeration and finite differences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit.chain import Constraints, Potentials
from crfkit.data.dataset import Dataset, Layout, WeightRules
from crfkit.training import LikelihoodObjective, Problem

Case = dict[str, Any]


@st.composite
def cases(draw: st.DrawFn, max_labels: int = 4) -> Case:
    """A small random data set with a random layout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    labels = draw(st.integers(1, max_labels), label="labels")
    lengths = np.array(draw(st.lists(st.integers(0, 4), min_size=1, max_size=6), label="lengths"))
    edges = draw(st.booleans(), label="edges")
    values = draw(st.booleans(), label="values")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    n_attr, n_edge = 5, 3

    def ragged(count: int) -> tuple[np.ndarray, np.ndarray]:
        sizes = rng.integers(0, 4, size=n)
        return np.concatenate([[0], np.cumsum(sizes)]), rng.integers(0, count, sizes.sum()).astype(np.uint32)

    ptr, attr = ragged(n_attr)
    edge_ptr, edge_attr = ragged(n_edge)
    data = Dataset(
        offsets,
        ptr,
        attr,
        rng.normal(size=len(attr)) if values else None,
        edge_ptr if edges else None,
        edge_attr if edges else None,
    )
    gold = rng.integers(0, labels, n).astype(np.int32)
    layout = Layout.build(
        data,
        gold,
        labels,
        (n_attr, n_edge if edges else 0),
        WeightRules(
            all_possible_states=draw(st.booleans(), label="all_possible_states"),
            all_possible_transitions=draw(st.booleans(), label="all_possible_transitions"),
            transitions=draw(st.booleans(), label="transitions"),
            start_end=draw(st.booleans(), label="start_end"),
        ),
    )
    rules = None
    if draw(st.booleans(), label="rules"):
        free = rng.random((labels, labels)) < 0.7
        inner = [t for a, b in itertools.pairwise(offsets) for t in range(a + 1, b)]
        free[gold[np.array(inner, int) - 1], gold[inner]] = True
        rules = Constraints(free, np.ones(labels, bool), np.ones(labels, bool))
    return {
        "data": data,
        "gold": gold,
        "layout": layout,
        "rules": rules,
        "weights": rng.random(len(lengths)) * 2 if draw(st.booleans(), label="weighted") else None,
        "w": rng.normal(size=layout.size) * draw(st.sampled_from([1.0, 200.0]), label="scale"),
        "c2": draw(st.sampled_from([0.0, 0.3])),
    }


def potentials_of(case: Case, w: np.ndarray, s: int) -> Potentials:
    """Potentials of sequence s by the definition of the layout, one weight at a time."""
    data, layout = case["data"], case["layout"]
    n = layout.n_labels
    begin, end = data.offsets[s], data.offsets[s + 1]
    unary = np.zeros((end - begin, n))
    pairwise = np.zeros((max(0, end - begin - 1), n, n))
    for t in range(begin, end):
        for k in range(data.ptr[t], data.ptr[t + 1]):
            a = data.attr[k]
            value = 1.0 if data.value is None else data.value[k]
            for q in range(layout.state_ptr[a], layout.state_ptr[a + 1]):
                unary[t - begin, layout.state_label[q]] += value * w[q]
        if t == begin:
            continue
        step = pairwise[t - begin - 1]
        for i in range(n):
            for j in range(n):
                if layout.transition[i * n + j] >= 0:
                    step[i, j] += w[layout.transition[i * n + j]]
                if case["rules"] is not None and not case["rules"].transitions[i, j]:
                    step[i, j] = -np.inf
        if data.edge_ptr is not None:
            for k in range(data.edge_ptr[t], data.edge_ptr[t + 1]):
                a = data.edge_attr[k]
                for q in range(layout.edge_ptr[a], layout.edge_ptr[a + 1]):
                    pair = layout.edge_pair[q]
                    step[pair // n, pair % n] += w[layout.edge_first + q]
    start = w[layout.start : layout.start + n] if layout.start >= 0 else None
    last = w[layout.end : layout.end + n] if layout.end >= 0 else None
    return Potentials(unary, pairwise, start, last)


def value_by_enumeration(case: Case, w: np.ndarray) -> float:
    data = case["data"]
    total = float(case["c2"] * (w @ w))
    for s in range(data.n_sequences):
        p = potentials_of(case, w, s)
        gold = tuple(case["gold"][data.offsets[s] : data.offsets[s + 1]].tolist())
        weight = 1.0 if case["weights"] is None else case["weights"][s]
        total += weight * (oracle.log_partition(p) - oracle.path_score(p, gold))
    return total


def objective_of(case: Case, dtype: Any = np.float64, n_jobs: int = 1) -> LikelihoodObjective:
    settings = {"weights": case["weights"], "constraints": case["rules"], "c2": case["c2"]}
    return LikelihoodObjective(
        Problem(case["layout"], case["data"], case["gold"], dtype=dtype, n_jobs=n_jobs, **settings)
    )


@settings(max_examples=150)
@given(cases())
def test_value_equals_enumeration(case: Case) -> None:
    w = case["w"]
    value, _ = objective_of(case).value_and_grad(w)
    assert value == pytest.approx(value_by_enumeration(case, w), rel=1e-10, abs=1e-9)


@settings(max_examples=60)
@given(cases())
def test_gradient_equals_finite_differences(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    f = objective_of(case)
    before = w.copy()
    _, gradient = f.value_and_grad(w)
    np.testing.assert_array_equal(w, before)
    expected = oracle.finite_difference(lambda x: f.value_and_grad(x)[0], w)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=60)
@given(cases())
def test_float32_is_near(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    value, gradient = objective_of(case).value_and_grad(w)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(w)
    assert single == pytest.approx(value, rel=1e-5, abs=1e-4)
    np.testing.assert_allclose(single_gradient, gradient, rtol=1e-4, atol=1e-4)


def big_case(labels: int, edges: bool = False, seed: int = 0) -> Case:
    """Enough tokens for several blocks, with attributes of all frequencies."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, size=900)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    sizes = rng.integers(0, 8, size=n)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    attr = np.minimum(rng.zipf(1.3, size=sizes.sum()), 5000).astype(np.uint32) - 1
    edge_ptr = edge_attr = None
    if edges:
        edge_ptr = np.arange(n + 1)
        edge_attr = rng.integers(0, 7, n).astype(np.uint32)
    data = Dataset(offsets, ptr, attr, None, edge_ptr, edge_attr)
    gold = rng.integers(0, labels, n).astype(np.int32)
    layout = Layout.build(data, gold, labels, (5000, 7 if edges else 0))
    w = rng.normal(size=layout.size)
    return {"data": data, "gold": gold, "layout": layout, "rules": None, "weights": None, "w": w, "c2": 0.1}


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (70, False), (5, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit(labels: int, edges: bool, dtype: Any) -> None:
    case = big_case(labels, edges)
    value, gradient = objective_of(case, dtype).value_and_grad(case["w"])
    for n_jobs in (2, 3, 8):
        again, gradient_again = objective_of(case, dtype, n_jobs).value_and_grad(case["w"])
        assert again == value
        np.testing.assert_array_equal(gradient_again, gradient)


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (70, False), (5, True)])
def test_blocks_and_packs_agree_with_a_plain_sum(labels: int, edges: bool) -> None:
    """Directional derivatives over many blocks, against differences of the value."""
    case = big_case(labels, edges, seed=1)
    f = objective_of(case, n_jobs=2)
    rng = np.random.default_rng(2)
    value, gradient = f.value_and_grad(case["w"])
    for _ in range(3):
        d = rng.normal(size=f.size)
        h = 1e-6
        slope = (f.value_and_grad(case["w"] + h * d)[0] - f.value_and_grad(case["w"] - h * d)[0]) / (2 * h)
        assert slope == pytest.approx(float(gradient @ d), rel=1e-6)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(case["w"])
    assert single == pytest.approx(value, rel=1e-6)
    assert np.linalg.norm(single_gradient - gradient) < 1e-5 * np.linalg.norm(gradient)


def spread(case: Case, transitions: float) -> np.ndarray:
    """Weights with scores beyond the range of single precision; those of the transitions times a factor."""
    w: np.ndarray = case["w"] * 40
    between = case["layout"].transition
    w[between[between >= 0]] *= transitions / 40
    return w


@pytest.mark.parametrize("transitions", [0.1, 4.0, 40.0])
def test_huge_weights(transitions: float) -> None:
    """What underflows cannot come back by small transitions; where it can, log space is taken."""
    case = big_case(5)
    w = spread(case, transitions)
    value, gradient = objective_of(case).value_and_grad(w)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(w)
    assert single == pytest.approx(value, rel=1e-5)
    assert np.linalg.norm(single_gradient - gradient) < 1e-3 * np.linalg.norm(gradient)


def coming_back() -> Case:
    """Three tokens; the second speaks against label 1 by 95, but 1 after 1 gains 60: the best path underflows."""
    data = Dataset(np.array([0, 3, 7]), np.array([0, 0, 1, 1, 1, 1, 1, 1]), np.zeros(1, np.uint32), None, None, None)
    gold = np.array([1, 1, 1, 0, 0, 1, 0], np.int32)
    layout = Layout.build(data, gold, 2, (1, 0))
    w = np.zeros(layout.size)  # one of an attribute, then those of transitions, starts and ends
    w[0] = -95
    w[layout.transition] = [-30, -30, -30, 30]
    return {"data": data, "gold": gold, "layout": layout, "rules": None, "weights": None, "w": w, "c2": 0.0}


def test_what_comes_back_is_not_lost() -> None:
    case = coming_back()
    value, gradient = objective_of(case).value_and_grad(case["w"])
    assert value == pytest.approx(value_by_enumeration(case, case["w"]))
    single, single_gradient = objective_of(case, np.float32).value_and_grad(case["w"])
    assert single == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(single_gradient, gradient, atol=1e-5)


def test_bad_weights_are_named() -> None:
    f = objective_of(big_case(3))
    with pytest.raises(ValueError, match="'w' must have shape"):
        f.value_and_grad(np.zeros(3))
