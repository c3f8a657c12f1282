"""Junction trees inside: cliques as matrix products, sums by table, elimination orders."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import log_sum_exp
from test_graph import Factors, graphs, oracle

from crfkit import graph
from crfkit.graph import FactorGraph, Inference
from crfkit.graph.engine import METHODS, Engine, Scores


@st.composite
def ladders(draw: Any, scale: float = 2.0) -> tuple[list[int], Factors]:
    """Two chains of many labels side by side, which are matrix products; factors name their variables in any order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    card = rng.permutation([8, 9, int(rng.integers(1, 12)), int(rng.integers(2, 10))]).tolist()
    if rng.random() < 0.5:
        card += rng.integers(1, 3, 2).tolist()
    order = rng.permutation(len(card)).tolist()  # the variables' numbers
    numbered = [0] * len(card)
    factors: Factors = []
    for v, c in zip(order, card, strict=True):
        numbered[v] = c
        if rng.random() < 0.7:
            factors.append(([v], scale * rng.normal(size=c)))
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3), *([(2, 4), (3, 5), (4, 5), (3, 4)] if len(card) > 4 else [])]
    alive = [int(rng.integers(c)) for c in numbered]
    for a, b in pairs:
        scope = [order[a], order[b]] if rng.random() < 0.5 else [order[b], order[a]]
        table = scale * rng.normal(size=[numbered[v] for v in scope])
        if rng.random() < 0.3:
            table[rng.random(table.shape) < 0.3] = -np.inf
            table[tuple(alive[v] for v in scope)] = 0.0
        factors.append((scope, table))
    return numbered, factors


@given(st.one_of(ladders(), ladders(scale=300.0)), st.sampled_from(["min_fill", "min_degree"]))
def test_cliques_as_matrix_products_equal_enumeration(case: tuple[list[int], Factors], order: str) -> None:
    card, factors = case
    log_z, nodes, tables = oracle(card, factors)
    g = FactorGraph(card, factors)
    m = g.marginals(Inference(order=order))
    assert m.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-9)
    assert g.log_partition(Inference(order=order)) == pytest.approx(log_z, rel=1e-12, abs=1e-9)
    for got, want in zip(m.nodes + m.factors, nodes + tables, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)


def test_three_chains_of_many_labels() -> None:
    rng = np.random.default_rng(0)
    unaries = [rng.normal(size=(2, n)) for n in (8, 9, 8)]
    transitions = [rng.normal(size=(n, n)) for n in (8, 9, 8)]
    g = graph.factorial(unaries, transitions, [rng.normal(size=(8, 9)), rng.normal(size=(9, 8))])
    m = g.marginals()
    paths = np.array(list(itertools.product(*[range(c) for c in g.cardinalities])), np.int32)
    scores = np.asarray(g.score(paths))
    assert m.log_z == pytest.approx(log_sum_exp(scores))
    p = np.exp(scores - m.log_z)
    for v in range(6):
        np.testing.assert_allclose(m.nodes[v], np.bincount(paths[:, v], p), atol=1e-12)


def shared_tables(rng: np.random.Generator, n_jobs: int) -> tuple[Engine, Scores]:
    """Rings of differing sizes; some tables are shared by all, some are an edge's own."""
    sizes = rng.integers(3, 9, 40)
    first = np.concatenate([[0], np.cumsum(sizes)])
    ends = np.concatenate([first[i] + np.stack([np.arange(n), (np.arange(n) + 1) % n], 1) for i, n in enumerate(sizes)])
    card = np.full(int(first[-1]), 3, np.int32)
    ptr = np.arange(len(ends) + 1, dtype=np.int64) * 2
    own = rng.random(len(ends)) < 0.3
    of = np.where(own, 2 + np.cumsum(own) - 1, rng.integers(0, 2, len(ends))).astype(np.int32)
    tables = 2 + int(own.sum())
    scores = Scores(
        rng.normal(size=3 * len(card)), 0.3 * rng.normal(size=9 * tables), np.arange(tables + 1, dtype=np.int64) * 9, of
    )
    return Engine(card, ptr, ends.astype(np.int32).ravel(), n_jobs), scores


@pytest.mark.parametrize("method", METHODS)
def test_sums_by_table_are_the_sums_of_the_factors(method: str) -> None:
    engine, scores = shared_tables(np.random.default_rng(0), 1)
    weights = np.random.default_rng(1).random(engine.n_components)
    each = engine.infer(scores, method).factors
    result = engine.infer(scores, method, weights=weights)
    assert each is not None
    assert result.factors is not None
    of = weights[engine.component[engine.scope[::2]]]
    expected = np.zeros((len(scores.table_ptr) - 1, 9))
    np.add.at(expected, scores.table_of, each.reshape(-1, 9) * of[:, None])
    np.testing.assert_allclose(result.factors, expected.ravel(), atol=1e-12)
    many, same = shared_tables(np.random.default_rng(0), 3)
    np.testing.assert_array_equal(many.infer(same, method, weights=weights).factors, result.factors)


def test_sums_by_table_where_factors_have_the_same_variables() -> None:
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, 1, 2, 1, 0, 2, 0], np.int32)
    engine = Engine(np.full(3, 2, np.int32), np.arange(5, dtype=np.int64) * 2, ends)
    scores = Scores(
        rng.normal(size=6), rng.normal(size=8), np.array([0, 4, 8], np.int64), np.array([0, 1, 0, 1], np.int32)
    )
    each = engine.infer(scores, "loopy").factors
    sums = engine.infer(scores, "loopy", weights=np.array([2.0])).factors
    assert each is not None
    assert sums is not None
    np.testing.assert_allclose(sums, 2 * (each[:8] + each[8:]))


@given(graphs(arity=4), st.sampled_from(["min_fill", "min_degree"]))
def test_elimination_takes_the_cheapest_variable_first(case: tuple[list[int], Factors], heuristic: str) -> None:
    card, factors = case
    engine = FactorGraph(card, factors)._engine
    order = np.empty(len(card), np.int32)
    assert engine.native.order(heuristic, 1e15, order) == -1
    near: dict[int, set[int]] = {v: set() for v in range(len(card))}
    for scope, _ in factors:
        for a, b in itertools.permutations(scope, 2):
            near[a].add(b)

    def cost(v: int) -> int:
        missing = sum(b not in near[a] for a, b in itertools.combinations(near[v], 2))
        return missing if heuristic == "min_fill" else len(near[v])

    for v in order.tolist():
        assert cost(v) == min(cost(u) for u in near)
        for a in near[v]:
            near[a] |= near[v] - {a}
            near[a].discard(v)
        del near[v]


def test_counting_is_given_up_on_large_grids() -> None:
    cost = graph.grid(np.zeros((150, 150, 2)), np.eye(2)).cost()
    assert not cost.complete
    assert cost.treewidth >= 40
    assert "at least" in str(cost)
