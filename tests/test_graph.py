"""Factor graphs against enumeration, chains against crfkit.chain, bounds against the truth."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from oracle import log_sum_exp
from sklearn.exceptions import ConvergenceWarning

from crfkit import chain, graph
from crfkit.graph import CostError, FactorGraph, Inference
from crfkit.graph.engine import METHODS

Floats = NDArray[np.float64]
Factors = list[tuple[list[int], Floats]]


def enumerate_graph(card: list[int], factors: Factors) -> tuple[NDArray[np.int32], Floats]:
    """All assignments and their scores."""
    paths = np.array(list(itertools.product(*[range(c) for c in card])), np.int32).reshape(-1, len(card))
    scores = np.zeros(len(paths))
    for scope, table in factors:
        scores += table[tuple(paths[:, v] for v in scope)]
    return paths, scores


def oracle(card: list[int], factors: Factors) -> tuple[float, list[Floats], list[Floats]]:
    """Log Z, node and factor marginals by enumeration."""
    paths, scores = enumerate_graph(card, factors)
    log_z = log_sum_exp(scores)
    p = np.exp(scores - log_z)
    nodes = [np.asarray(np.bincount(paths[:, v], p, card[v]), np.float64) for v in range(len(card))]
    tables = []
    for scope, table in factors:
        out = np.zeros_like(table)
        np.add.at(out, tuple(paths[:, v] for v in scope), p)
        tables.append(out)
    return log_z, nodes, tables


@st.composite
def graphs(draw: Any, forbid: bool = True, arity: int = 3, scale: float = 2.0) -> tuple[list[int], Factors]:
    """Random graphs on up to six variables; at least one assignment is allowed."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(1, 6))
    card = rng.integers(1, 4, n).tolist()
    alive = [int(rng.integers(c)) for c in card]
    factors: Factors = []
    for _ in range(draw(st.integers(0, 9))):
        scope = rng.permutation(n)[: int(rng.integers(1, arity + 1))].tolist()
        table = scale * rng.normal(size=[card[v] for v in scope])
        if forbid:
            table[rng.random(table.shape) < 0.2] = -np.inf
            table[tuple(alive[v] for v in scope)] = rng.normal()
        factors.append((scope, table))
    return card, factors


@st.composite
def loopy_graphs(draw: Any) -> tuple[list[int], Factors]:
    """Random pairwise graphs with weak ties, on which message passing converges."""
    return draw(graphs(forbid=False, arity=2, scale=0.5))  # type: ignore[no-any-return]


@given(graphs(), st.sampled_from(["min_fill", "min_degree", "auto"]))
def test_exact_inference_equals_enumeration(case: tuple[list[int], Factors], order: str) -> None:
    card, factors = case
    log_z, nodes, tables = oracle(card, factors)
    g = FactorGraph(card, factors)
    m = g.marginals(Inference(order=order))
    assert m.log_z == pytest.approx(log_z, abs=1e-10)
    assert g.log_partition(Inference(order=order)) == pytest.approx(log_z, abs=1e-10)
    for got, want in zip(m.nodes + m.factors, nodes + tables, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-10)


@given(graphs(scale=400.0))
def test_exact_inference_survives_extreme_scores(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    log_z, nodes, tables = oracle(card, factors)
    m = FactorGraph(card, factors).marginals()
    assert m.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-9)
    for got, want in zip(m.nodes + m.factors, nodes + tables, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)


@given(graphs())
def test_best_assignments_equal_enumeration(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    paths, scores = enumerate_graph(card, factors)
    g = FactorGraph(card, factors)
    best = g.map()
    assert best.score == pytest.approx(scores.max())
    assert g.score(best.values) == pytest.approx(scores.max())
    allowed = np.sort(scores[scores > -np.inf])[::-1][:5]
    found = g.nbest(5)
    np.testing.assert_allclose([a.score for a in found], allowed)
    assert len({tuple(a.values) for a in found}) == len(found)
    np.testing.assert_allclose(g.score(paths), scores)


@given(graphs())
def test_entropy_and_log_probability_equal_enumeration(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    paths, scores = enumerate_graph(card, factors)
    log_p = scores - log_sum_exp(scores)
    g = FactorGraph(card, factors)
    p = np.exp(log_p)
    assert g.entropy() == pytest.approx(-(p[p > 0] * log_p[p > 0]).sum(), abs=1e-9)
    np.testing.assert_allclose(g.log_probability(paths), log_p, atol=1e-9)


@given(graphs(), st.integers(0, 2**32 - 1))
def test_observing_equals_enumeration(case: tuple[list[int], Factors], seed: int) -> None:
    card, factors = case
    paths, scores = enumerate_graph(card, factors)
    rng = np.random.default_rng(seed)
    alive = paths[scores > -np.inf]
    y = alive[rng.integers(len(alive))]
    evidence = {int(v): int(y[v]) for v in rng.permutation(len(card))[: rng.integers(0, len(card) + 1)]}
    agree = np.all([paths[:, v] == value for v, value in evidence.items()], axis=0) if evidence else slice(None)
    kept = scores[agree]
    m = FactorGraph(card, factors).observe(evidence).marginals()
    assert m.log_z == pytest.approx(log_sum_exp(kept), abs=1e-9)
    p = np.exp(kept - log_sum_exp(kept))
    for v in range(len(card)):
        np.testing.assert_allclose(m.nodes[v], np.bincount(paths[agree][:, v], p, card[v]), atol=1e-9)
    for (scope, _), got in zip(factors, m.factors, strict=True):
        rest = [v for v in scope if v not in evidence]
        if rest:
            want = np.zeros([card[v] for v in rest])
            np.add.at(want, tuple(paths[agree][:, v] for v in rest), p)
            np.testing.assert_allclose(got, want, atol=1e-9)


def test_samples_follow_the_distribution() -> None:
    rng = np.random.default_rng(0)
    card = [2, 3, 2]
    factors: Factors = [
        ([0, 1], rng.normal(size=(2, 3))),
        ([1, 2], rng.normal(size=(3, 2))),
        ([2, 0], rng.normal(size=(2, 2))),
    ]
    factors[0][1][0, 1] = -np.inf
    paths, scores = enumerate_graph(card, factors)
    p = np.exp(scores - log_sum_exp(scores))
    n = 40000
    counts = Counter(map(tuple, FactorGraph(card, factors).sample(n, random_state=1).tolist()))
    for path, prob in zip(paths.tolist(), p, strict=True):
        assert abs(counts[tuple(path)] / n - prob) <= 5 * np.sqrt(prob * (1 - prob) / n)


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("method", ["exact", "loopy", "trw"])
def test_a_chain_as_a_graph_equals_chain(per_step: bool, method: str) -> None:
    rng = np.random.default_rng(3)
    length, labels = 40, 7
    unary = 2 * rng.normal(size=(length, labels))
    pairwise = rng.normal(size=(length - 1, labels, labels) if per_step else (labels, labels))
    pairwise[..., 2, 3] = -np.inf
    p = chain.Potentials(unary, pairwise)
    want = chain.marginals(p)
    g = graph.chain(unary, pairwise)
    got = g.marginals(Inference(method, tol=1e-13))
    assert abs(got.log_z - float(want.log_z)) < 1e-10
    np.testing.assert_allclose(np.stack(got.nodes), want.nodes, atol=1e-10)
    np.testing.assert_allclose(np.stack(got.factors), want.edges, atol=1e-10)
    np.testing.assert_array_equal(g.map(method).values, chain.decode(p))


def test_a_long_chain_neither_overflows_nor_underflows() -> None:
    rng = np.random.default_rng(3)
    unary = 30 * rng.normal(size=(3000, 4))
    p = chain.Potentials(unary, np.zeros((4, 4)))
    assert graph.chain(unary, np.zeros((4, 4))).log_partition() == pytest.approx(
        float(chain.log_partition(p)), rel=1e-13
    )


def test_a_star_of_many_leaves_needs_no_log_space() -> None:
    leaves = 3000
    unary = np.tile(np.log([0.3, 0.7]), (leaves + 1, 1))
    g = graph.tree([-1] + [0] * leaves, unary, np.log([[0.9, 0.1], [0.2, 0.8]]))
    left = np.log(0.3) + leaves * np.log(0.9 * 0.3 + 0.1 * 0.7)
    right = np.log(0.7) + leaves * np.log(0.2 * 0.3 + 0.8 * 0.7)
    assert g.log_partition() == pytest.approx(np.logaddexp(left, right), rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from(["sequential", "flooding", "residual"]))
def test_message_passing_is_exact_on_trees(seed: int, n: int, schedule: str) -> None:
    rng = np.random.default_rng(seed)
    parents = [-1] + [int(rng.integers(-1, v)) for v in range(1, n)]
    unary = rng.normal(size=(n, 3))
    edges = sum(p >= 0 for p in parents)
    tables = rng.normal(size=(edges, 3, 3))
    tables[rng.random(tables.shape) < 0.1] = -np.inf
    g = graph.tree(parents, unary, tables)
    if np.isneginf(g.log_partition()):
        with pytest.raises(ValueError, match="the constraints permit no assignment"):
            g.marginals("loopy")
        return
    want = g.marginals()
    for method in ("loopy", "trw"):
        got = g.marginals(Inference(method, schedule=schedule, tol=1e-12))
        assert got.convergence.converged
        assert got.log_z == pytest.approx(want.log_z, abs=1e-9)
        for a, b in zip(got.nodes + got.factors, want.nodes + want.factors, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
        assert g.map(method).score == pytest.approx(g.map().score)


@given(loopy_graphs())
def test_schedules_agree_and_bounds_hold(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    g = FactorGraph(card, factors)
    log_z = g.log_partition()
    found = [
        g.marginals(Inference("loopy", schedule=schedule, damping=0.3, tol=1e-11, max_iter=2000))
        for schedule in ("sequential", "flooding", "residual")
    ]
    for other in found[1:]:
        assert other.log_z == pytest.approx(found[0].log_z, abs=1e-7)
        for a, b in zip(other.factors, found[0].factors, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    upper = g.marginals(Inference("trw", damping=0.3, tol=1e-11, max_iter=2000))
    assert upper.log_z >= log_z - 1e-7
    lower = g.marginals(Inference("mean_field", tol=1e-9, max_iter=2000))
    assert lower.log_z <= log_z + 1e-9


@given(graphs())
def test_mean_field_is_a_lower_bound_also_with_constraints(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    g = FactorGraph(card, factors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert g.log_partition("mean_field") <= g.log_partition() + 1e-9


@given(graphs(forbid=False))
def test_approximate_beliefs_are_distributions(case: tuple[list[int], Factors]) -> None:
    card, factors = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        m = FactorGraph(card, factors).marginals("loopy")
        best = FactorGraph(card, factors).map("loopy")
    for p, (scope, table) in zip(m.factors, factors, strict=True):
        assert p.shape == table.shape
        assert p.sum() == pytest.approx(1)
        if m.convergence.converged:
            for axis, v in enumerate(scope):
                others = tuple(k for k in range(len(scope)) if k != axis)
                np.testing.assert_allclose(p.sum(axis=others), m.nodes[v], atol=1e-4)
    assert best.score == pytest.approx(FactorGraph(card, factors).score(best.values))


def test_the_bethe_gradient_is_the_belief() -> None:
    """At a fixed point the derivative of the Bethe log Z by a score is the belief; training relies on it."""
    rng = np.random.default_rng(5)
    unary, table = rng.normal(size=(3, 3, 2)), 0.5 * rng.normal(size=(2, 2))
    for method in ("loopy", "trw", "mean_field"):
        rule = Inference(method, tol=1e-13, max_iter=5000)
        m = graph.grid(unary, table).marginals(rule)
        for k in np.ndindex(2, 2):
            values = []
            for step in (1e-5, -1e-5):
                moved = table.copy()
                moved[k] += step
                values.append(graph.grid(unary, moved).log_partition(rule))
            slope = (values[0] - values[1]) / 2e-5
            assert slope == pytest.approx(sum(p[k] for p in m.factors), abs=1e-6)


@pytest.mark.parametrize(
    ("beam", "exact"),
    [(chain.MinDivergence(0.0), True), (chain.FixedSize(6), True), (chain.MinDivergence(0.05), False)],
)
def test_sparse_messages(beam: Any, exact: bool) -> None:
    rng = np.random.default_rng(1)
    unary, table = 3 * rng.normal(size=(4, 4, 6)), 0.3 * rng.normal(size=(6, 6))
    g = graph.grid(unary, table)
    dense = g.marginals("loopy")
    sparse = g.marginals(Inference("loopy", beam=beam))
    assert Inference("loopy", beam=beam) == Inference("loopy", beam=beam.text())
    if exact:
        np.testing.assert_allclose(np.stack(sparse.nodes), np.stack(dense.nodes), atol=1e-9)
    else:
        assert np.abs(np.stack(sparse.nodes) - np.stack(dense.nodes)).max() < 0.05


def test_convergence_is_reported() -> None:
    rng = np.random.default_rng(0)
    g = graph.grid(rng.normal(size=(5, 5, 3)), 4 * rng.normal(size=(3, 3)))
    with pytest.warns(ConvergenceWarning, match="has not converged after 2 iterations"):
        m = g.marginals(Inference("loopy", max_iter=2, tol=1e-12))
    assert not m.convergence.converged
    assert m.convergence.residual > 0


def test_costs_are_told_and_refused() -> None:
    g = graph.grid(np.zeros((30, 30, 4)), np.zeros((4, 4)))
    with pytest.raises(CostError, match=r"900 variables and 1740 factors.*treewidth at least \d+.*inference='loopy'"):
        g.log_partition()
    assert not g.cost().complete
    small = graph.grid(np.zeros((4, 9, 2)), np.zeros((2, 2)))
    assert small.cost().treewidth == 4
    assert small.cost().largest_table == 32
    with pytest.raises(CostError, match="treewidth 4"):
        small.marginals(Inference(max_bytes=3000))
    assert small.log_partition() == pytest.approx(36 * np.log(2))
    assert g.marginals("loopy").log_z == pytest.approx(900 * np.log(4))


def test_large_grids_run() -> None:
    rng = np.random.default_rng(0)
    g = graph.grid(rng.normal(size=(500, 500, 3)), np.eye(3))
    m = g.marginals(Inference("loopy", schedule="flooding", tol=1e-3))
    assert m.convergence.converged
    assert len(m.nodes) == 250000


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"factor 0: 'log_table' must have shape \(2, 3\), got \(3, 2\)"):
        FactorGraph([2, 3], [([0, 1], np.zeros((3, 2)))])
    with pytest.raises(ValueError, match="factor 1: 'variables' must be distinct"):
        FactorGraph([2, 3], [([0], [0, 0]), ([1, 1], np.zeros((3, 3)))])
    with pytest.raises(ValueError, match="factor 0: a score must be finite"):
        FactorGraph([2], [([0], [np.nan, 0])])
    with pytest.raises(ValueError, match="'cardinalities' of FactorGraph"):
        FactorGraph([0], [])
    with pytest.raises(ValueError, match="'inference' must be one of"):
        FactorGraph([2], []).marginals("guess")
    with pytest.raises(ValueError, match="the constraints permit no assignment"):
        FactorGraph([2, 2], [([0, 1], np.full((2, 2), -np.inf))]).map()
    with pytest.raises(ValueError, match="factor 0 has more"):
        FactorGraph([2, 2, 2], [([0, 1, 2], np.zeros((2, 2, 2)))]).marginals("trw")
    with pytest.raises(ValueError, match="variable 0 has no value 5"):
        FactorGraph([2], []).observe({0: 5})


def test_skip_chains_and_factorial_chains_equal_enumeration() -> None:
    rng = np.random.default_rng(0)
    u, a, s = rng.normal(size=(5, 2)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    factors: Factors = (
        [([t], u[t]) for t in range(5)] + [([t, t + 1], a) for t in range(4)] + [([0, 3], s), ([1, 4], s)]
    )
    assert graph.skip_chain(u, a, [[0, 3], [1, 4]], s).log_partition() == pytest.approx(oracle([2] * 5, factors)[0])
    v, b, link = rng.normal(size=(5, 3)), rng.normal(size=(3, 3)), rng.normal(size=(2, 3))
    factors = [([t], u[t]) for t in range(5)] + [([5 + t], v[t]) for t in range(5)]
    factors += [([t, t + 1], a) for t in range(4)] + [([5 + t, 6 + t], b) for t in range(4)]
    factors += [([t, 5 + t], link) for t in range(5)]
    got = graph.factorial([u, v], [a, b], [link]).log_partition()
    assert got == pytest.approx(oracle([2] * 5 + [3] * 5, factors)[0])
    t3 = rng.normal(size=(2, 2, 2))
    factors = [([t], u[t]) for t in range(5)] + [([t, t + 1, t + 2], t3) for t in range(3)]
    assert graph.higher_order_chain(u, t3).log_partition() == pytest.approx(oracle([2] * 5, factors)[0])


def test_semi_markov_chains_sum_over_segmentations() -> None:
    rng = np.random.default_rng(0)
    length, most, labels = 5, 3, 2
    s, a = rng.normal(size=(length, most, labels)), rng.normal(size=(labels, labels))

    def total(begin: int, before: int | None) -> list[float]:
        if begin == length:
            return [0.0]
        out = []
        for d in range(min(most, length - begin)):
            for label in range(labels):
                here = s[begin, d, label] + (0.0 if before is None else a[before, label])
                out += [here + rest for rest in total(begin + d + 1, label)]
        return out

    scores = np.array(total(0, None))
    g = graph.semi_markov_chain(s, a)
    assert g.log_partition() == pytest.approx(log_sum_exp(scores))
    assert g.map().score == pytest.approx(scores.max())


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    unary, edges = rng.normal(size=(60, 3)), [[i, i + 1] for i in range(59) if i % 6 != 5]
    tables = rng.normal(size=(len(edges), 3, 3))
    for method in ("exact", "loopy", "mean_field"):
        results = [
            graph.pairwise_graph(unary, edges, tables, n_jobs=n).marginals(
                Inference(method, schedule="flooding", max_iter=5000)
            )
            for n in (1, 4)
        ]
        assert results[0].log_z == results[1].log_z
        np.testing.assert_array_equal(np.stack(results[0].factors), np.stack(results[1].factors))


def test_ties_on_trees_are_followed_back() -> None:
    g = graph.tree([-1, 0, 0, 2], [[0, 1]] * 4, [[0, 1], [1, 0]])
    assert g.map().score == g.map("loopy").score == g.map("trw").score == 5
    inf = np.inf
    table = [[-inf, 0, 1], [1, -inf, 0], [-inf, 1, -inf]]
    g = graph.tree([-1, 0, 0, 0, 1], [[1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]], table)
    assert g.map("loopy").score == g.map().score == 7


def test_forbidden_answers_are_told() -> None:
    differ = np.array([[-np.inf, 0], [0, -np.inf]])
    g = graph.pairwise_graph(np.zeros((3, 2)), [[0, 1], [1, 2], [2, 0]], differ)
    with pytest.warns(ConvergenceWarning, match="breaks hard constraints"):
        assert g.map(Inference("loopy", max_bytes=1)).score == -np.inf  # an exact search would show that there is none
    for method in (g.map, lambda: g.map("loopy"), lambda: g.nbest(2)):
        with pytest.raises(ValueError, match="the constraints permit no assignment"):
            method()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "factors", [[([0, 1], np.full((2, 2), -np.inf))], [([0, 1], np.zeros((2, 2))), ([0], np.full(2, -np.inf))]]
)
def test_where_nothing_is_allowed_all_methods_say_so(method: str, factors: Factors) -> None:
    g = FactorGraph([2, 2], factors)
    assert g.log_partition(method) == -np.inf
    for ask in (lambda: g.marginals(method), lambda: g.map(method), lambda: g.log_probability([0, 1])):
        with pytest.raises(ValueError, match="the constraints permit no assignment"):
            ask()


def test_mean_field_and_beams_that_find_nothing_say_so() -> None:
    differ = np.array([[-np.inf, 0], [0, -np.inf]])
    g = graph.pairwise_graph(np.zeros((3, 2)), [[0, 1], [1, 2], [2, 0]], differ)
    with pytest.warns(ConvergenceWarning, match="no distribution within the hard constraints"):
        m = g.marginals(Inference("mean_field", max_bytes=1))
    assert not m.convergence.converged
    g = graph.chain([[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [-np.inf, -np.inf]])
    assert g.log_partition("loopy") == pytest.approx(np.log(2))
    with pytest.raises(ValueError, match="leaves no permitted assignment"):
        g.log_partition(Inference("loopy", beam=chain.FixedSize(1)))


SCHEDULES = ("sequential", "flooding", "residual")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("gap", [30, 36, 80, 400])
def test_small_entries_of_messages_must_settle_too(schedule: str, gap: float) -> None:
    """What one factor says of a value may be far below what another says: only their sum is the belief."""
    g = FactorGraph([2, 2], [([0], np.array([0.0, gap])), ([0, 1], np.array([[gap, gap], [0.0, 0.0]]))])
    for method in ("loopy", "trw"):
        m = g.marginals(Inference(method, schedule=schedule, damping=0.5, tol=1e-9))
        assert m.convergence.converged
        np.testing.assert_allclose(m.nodes[0], [0.5, 0.5], atol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_settled_bound_is_a_bound_where_scores_are_far_apart(schedule: str) -> None:
    n = -np.inf
    tables: list[tuple[list[int], Any]] = [
        ([0], [-24.03, -13.2, 10.39]),
        ([0, 1], [[16.91, 2.09, 2.39], [1.76, 7.22, -6.11], [-1.19, -14.98, -13.26]]),
        ([1], [-5.75, 7.73, 9.31]),
        ([2, 1], [[3.11, n, -1.46], [n, -3.9, 1.51]]),
        ([1, 0], [[n, -10.91, -15.16], [17.69, 3.64, 1.57], [-4, -4.06, -4.76]]),
    ]
    g = FactorGraph([3, 3, 2], tables)
    m = g.marginals(Inference("trw", schedule=schedule))
    assert m.convergence.converged
    assert m.log_z >= g.log_partition() - 1e-5


def test_a_value_that_a_beam_gives_up_comes_back_also_with_damping() -> None:
    equal = np.where(np.eye(2) > 0, 0.0, -np.inf)
    factors: Factors = [([0], np.array([1.0, 0.0])), ([1], np.array([0.0, 0.5])), ([2], np.array([0.0, 9.0]))]
    g = FactorGraph([2, 2, 2], [*factors, ([0, 1], equal), ([0, 2], 3 * np.eye(2))])
    m = g.marginals(Inference("loopy", beam=chain.FixedSize(1), damping=0.5))
    np.testing.assert_allclose(m.nodes[1], [0, 1], atol=1e-6)


def test_graphs_are_copied_and_pickled() -> None:
    g = FactorGraph([2, 3], [([0], [0.0, 1.0]), ([0, 1], np.eye(3)[:2])])
    want = g.marginals()
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), copy.copy(g)):
        got = twin.marginals()
        assert got.log_z == want.log_z
        assert [p.shape for p in got.factors] == [p.shape for p in want.factors]
        assert repr(twin) == repr(g)


def test_errors_count_factors_as_they_were_given() -> None:
    wide: Factors = [([0], np.zeros(2)), ([0, 1], np.zeros((2, 2))), ([0, 1, 2], np.zeros((2, 2, 2)))]
    g = FactorGraph([2, 2, 2], [*wide[:2], wide[1], wide[2]])
    with pytest.raises(ValueError, match="factor 3 has more"):
        g.marginals("trw")
    with pytest.raises(ValueError, match="factor 3 has more"):
        FactorGraph([2, 2, 2, 2], [([3], np.zeros(2)), wide[1], wide[0], wide[2]]).observe({3: 0}).log_partition("trw")
    with pytest.raises(CostError, match="of 3 variables and 4 factors"):
        g.log_partition(Inference(max_bytes=1))


def test_max_product_is_found() -> None:
    with pytest.raises(ValueError, match=r"got 'max_product': max-product is map\('loopy'\)"):
        PAIR.map("max_product")


def test_faulty_graphs_are_named() -> None:
    with pytest.raises(ValueError, match=r"'parents' of tree must have shape \(3,\)"):
        graph.tree([-1], np.zeros((3, 2)), np.eye(2))
    with pytest.raises(ValueError, match="-1 or below 2, got -2 for variable 1"):
        graph.tree([-1, -2], np.zeros((2, 2)), np.eye(2))
    with pytest.raises(ValueError, match="no cycle"):
        graph.tree([1, 2, 0], np.zeros((3, 2)), np.eye(2))
    with pytest.raises(ValueError, match="below 2, got 5 for variable 1"):
        graph.tree([-1, 5], np.zeros((2, 2)), np.eye(2))
    with pytest.raises(ValueError, match="'edges' must be ints"):
        graph.pairwise_graph(np.zeros((2, 2)), [[0.5, 1.9]], np.eye(2))
    with pytest.raises(ValueError, match="'beam' must be MinDivergence"):
        Inference("loopy", beam=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'beam' of Inference must not be Adaptive"):
        Inference("loopy", beam="adaptive")
    g = graph.tree([-1, 0], np.zeros((2, 2)), np.eye(2))
    with pytest.raises(ValueError, match="for the method 'loopy', got 'trw'"):
        g.log_partition(Inference("trw", beam=chain.FixedSize(1)))
    with pytest.raises(ValueError, match=r"'inference' must be one of .* or Inference, got 3"):
        g.log_partition(3)  # type: ignore[arg-type]


def test_a_factor_whose_variables_are_all_known() -> None:
    g = FactorGraph([2, 3], [([0, 1], np.zeros((2, 3))), ([0], [0.0, 1.0]), ([1], [0.0, 1.0, 2.0])])
    for seen in (g.observe({0: 1, 1: 2}), g.observe({0: 1}).observe({1: 2}), g.observe({1: 2}).observe({0: 1})):
        assert [p.shape for p in seen.marginals().factors] == [(), (), ()]
        assert [float(p) for p in seen.marginals().factors] == [1.0, 1.0, 1.0]
    assert [p.shape for p in g.observe({0: 1}).marginals().factors] == [(3,), (), (3,)]


PAIR: Any = FactorGraph([2, 3], [([0, 1], np.zeros((2, 3)))])
INFERENCE: Any = Inference
GRAPH: Any = FactorGraph


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: GRAPH([2, 2], [([0], [0, 0]), ([0, 1], [[0, 1], [0]])]),
            "factor 1: 'log_table' must be numbers",
        ),
        (lambda: GRAPH([2], [([0], ["a", "b"])]), "factor 0: 'log_table' must be numbers"),
        (lambda: GRAPH([2], [([0], [1j, 0])]), "factor 0: 'log_table' must be numbers"),
        (lambda: GRAPH([2], [([0], None)]), "factor 0: "),
        (lambda: GRAPH([2, 2], [([0.5, 1], np.zeros((2, 2)))]), "factor 0: 'variables' must be distinct ints"),
        (lambda: GRAPH([2, 2], [(["a", 1], np.zeros((2, 2)))]), "factor 0: 'variables' must be distinct ints"),
        (lambda: GRAPH([2, 2], [(0, [0, 1])]), "factor 0: 'variables' must be distinct ints"),
        (lambda: GRAPH([2, 2], [([2], [0, 1])]), "factor 0: 'variables' must be distinct ints from 0 to 1"),
        (lambda: GRAPH([2], [5]), r"factor 0 must be \(variables, log_table\), got 5"),
        (lambda: GRAPH([2], [([0], [0, 1], 3)]), r"factor 0 must be \(variables, log_table\)"),
        (lambda: GRAPH([2], None), "'factors' of FactorGraph must be pairs"),
        (lambda: GRAPH(["a"], []), "'cardinalities' of FactorGraph must be ints"),
        (lambda: GRAPH([[1], [1, 2]], []), "'cardinalities' of FactorGraph must be ints"),
        (lambda: GRAPH([2.0], []), "'cardinalities' of FactorGraph must be ints"),
        (lambda: GRAPH([2**40], []), "'cardinalities' of FactorGraph must be a sequence of ints from 1"),
        (lambda: PAIR.nbest(1.5), "'k' of FactorGraph must be an int >= 1, got 1.5"),
        (lambda: PAIR.sample(-1), "'n' of FactorGraph must be an int >= 0, got -1"),
        (lambda: PAIR.score([0, 3]), "'assignment': variable 1 has no value 3"),
        (lambda: PAIR.score([0.5, 1]), "'assignment' must be ints"),
        (lambda: PAIR.score(np.zeros((2, 2, 2), int)), r"'assignment' must have shape \[2\] or \[n, 2\]"),
        (lambda: PAIR.observe([0]), "'evidence' of observe must map variables to values"),
        (lambda: PAIR.observe({"a": 0}), "'evidence' of observe must map variables to values"),
        (lambda: PAIR.observe({0: 0.5}), "'evidence' of observe must map variables to values"),
        (lambda: PAIR.marginals(INFERENCE(max_bytes="x")), "'max_bytes' of Inference must be a number"),
        (
            lambda: PAIR.sample(random_state="x"),
            "'random_state' of sample must be a Generator, an int >= 0 or None, got 'x'",
        ),
        (lambda: GRAPH([2], [([0], [-np.inf, 1e308])]), r"factor 0: a score must be below 1e\+300 .* got 1e\+308"),
        (lambda: graph.chain([[0.0, 0.0], [0.0, -1e305]], np.eye(2)), r"unary: a score must be below .* got -1e\+305"),
        (lambda: GRAPH([2, 0], []), "'cardinalities' of FactorGraph .* got 0 for variable 1"),
        (lambda: graph.semi_markov_chain(np.zeros((0, 2, 3)), np.eye(3)), r"'segments' must .* got \(0, 2, 3\)"),
        (lambda: graph.semi_markov_chain(np.zeros((2, 0, 3)), np.eye(3)), r"'segments' must .* got \(2, 0, 3\)"),
        (lambda: graph.chain(np.zeros((3, 2)), np.eye(3)), r"'pairwise' must have shape \(2, 2\) or \(2, 2, 2\)"),
        (lambda: graph.skip_chain(np.zeros((3, 2)), np.eye(2), [[0, 2]], np.eye(3)), "'skip_table' must have shape"),
        (
            lambda: graph.factorial([np.zeros((4, 3)), np.zeros((4, 2))], [np.eye(3), np.eye(3)], [np.zeros((3, 2))]),
            "'transitions' of chain 1 must have shape",
        ),
        (
            lambda: graph.factorial([np.zeros((4, 3)), np.zeros((4, 2))], [np.eye(3), np.eye(2)], [np.zeros((2, 3))]),
            "'links' of chains 0 and 1 must have shape",
        ),
        (
            lambda: graph.grid(np.zeros((2, 3, 2)), np.zeros((2, 2, 2, 2))),
            "'vertical' must be given if 'horizontal'",
        ),
        (lambda: INFERENCE(damping="x"), "'damping' of Inference must be a number"),
        (lambda: INFERENCE(max_iter=2.5), "'max_iter' of Inference must be an int"),
        (lambda: graph.pairwise_graph(np.zeros((3, 2)), [[0, 1, 2]], np.eye(2)), r"'edges' must have shape \[m, 2\]"),
        (lambda: graph.pairwise_graph(np.zeros((3, 2)), [[0, 1], [1]], np.eye(2)), "'edges' must be ints"),
        (lambda: graph.skip_chain(np.zeros((3, 2)), np.eye(2), [[0, 2.7]], np.eye(2)), "'skips' must be ints"),
        (lambda: graph.chain([["a", "b"]], np.eye(2)), "'unary' must be numbers"),
        (lambda: graph.grid(np.zeros((2, 2, 2)), [[0], [0, 1]]), "'horizontal' must be numbers"),
    ],
)
def test_wrong_input_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_empty_graph_has_one_assignment() -> None:
    g = FactorGraph([], [])
    assert g.log_partition() == 0.0
    assert g.map().values.shape == (0,)
    assert [a.values.shape for a in g.nbest(2)] == [(0,)]
    for method in METHODS:
        assert g.marginals(method).nodes == []
