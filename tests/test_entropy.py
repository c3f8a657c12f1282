"""Entropies of chains against enumeration, finite differences and the cubic covariance recursion."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lattices import potentials
from numpy.typing import NDArray

from crfkit import chain
from crfkit.chain import Potentials
from crfkit.chain.entropy import token_entropies

Floats = NDArray[np.float64]


def plogp(q: Floats) -> float:
    q = q[q > 0]
    return float(-(q * np.log(q)).sum())


def alive(p: Potentials) -> None:
    assume(len(p.unary) > 0 and np.isfinite(oracle.scores(p)).any())


def span_table(p: Potentials, start: int, end: int) -> dict[tuple[int, ...], float]:
    """Probabilities of the labels of a span."""
    out: dict[tuple[int, ...], float] = {}
    for path, q in zip(oracle.all_paths(p), oracle.probabilities(p), strict=True):
        out[path[start:end]] = out.get(path[start:end], 0.0) + float(q)
    return out


def score_scale(p: Potentials) -> float:
    s = oracle.scores(p)
    return float(max(1.0, np.abs(s[np.isfinite(s)]).max()))


def covariance(p: Potentials) -> tuple[Floats, Floats]:
    """The gradient of the entropy by its definition, -Cov(counts, score)."""
    q, s = oracle.probabilities(p), oracle.scores(p)
    s = np.where(q > 0, s, 0.0)
    s = s - (q @ s)
    steps = max(0, len(p.unary) - 1)
    nodes = np.zeros((len(p.unary), p.n_labels))
    edges = np.zeros((steps, p.n_labels, p.n_labels))
    for path, x, r in zip(oracle.all_paths(p), q, s, strict=True):
        for t, j in enumerate(path):
            nodes[t, j] -= x * r
        for t in range(steps):
            edges[t, path[t], path[t + 1]] -= x * r
    return nodes, edges


def jiao_gradient(p: Potentials) -> tuple[Floats, Floats]:
    """Cov(counts, counts) times scores, edge by edge, O(T^2 L^3): Jiao et al.'s form, the baseline."""
    m = chain.marginals(p)
    x = p.lattice
    steps, n = len(p.unary) - 1, p.n_labels
    pair = [x.pairwise[t if x.per_step else 0] for t in range(steps)]
    score = [pair[t] + x.unary[t + 1] + (x.unary[0][:, None] if t == 0 else 0) for t in range(steps)]
    score = [np.where(m.edges[t] > 0, score[t], 0.0) for t in range(steps)]
    with np.errstate(invalid="ignore", divide="ignore"):
        forward = [np.nan_to_num(m.edges[t] / m.nodes[t][:, None]) for t in range(steps)]
    mean = [float((m.edges[t] * score[t]).sum()) for t in range(steps)]
    edges = np.zeros((steps, n, n))
    for a in range(steps):
        edges[a] -= m.edges[a] * (score[a] - mean[a])
        reach = np.eye(n)  # P(label at b | label at a + 1)
        for b in range(a + 1, steps):
            joint = (forward[b] * score[b]).sum(1) - mean[b]
            edges[a] -= m.edges[a] * (reach @ joint)
            inner = (m.edges[a] * (score[a] - mean[a])).sum(0)  # by the label at a + 1
            edges[b] -= (inner @ reach)[:, None] * forward[b]
            reach = reach @ forward[b]
    nodes = np.zeros((steps + 1, n))
    nodes[:-1] = edges.sum(2)
    nodes[-1] = edges[-1].sum(0)
    return nodes, edges


@settings(max_examples=300)
@given(potentials(max_length=5))
def test_entropy_equals_enumeration(p: Potentials) -> None:
    alive(p)
    expected = plogp(oracle.probabilities(p))
    tolerance = 1e-9 * max(1.0, 1e-3 * score_scale(p))
    assert chain.entropy(p) == pytest.approx(expected, abs=tolerance)
    assert chain.entropy_gradient(p).entropy == pytest.approx(expected, abs=tolerance)
    assert chain.entropy_lattices(p).entropy == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_at_odds_with_the_transitions_lose_nothing(dtype: Any) -> None:
    unary = [
        [188.54662558, 47.90524542],
        [100.48949592, 314.96259814],
        [-254.3389608, 382.16671126],
        [249.71546961, 752.76438491],
    ]
    pairwise = [[164.55937341, -72.33806722], [127.97083688, 77.94900802]]
    for shrink in (1.0, 0.3, 0.12):  # what underflows in single precision is far from it in double
        p = Potentials(np.array(unary, dtype) * dtype(shrink), np.array(pairwise, dtype) * dtype(shrink))
        exact = Potentials(p.unary.astype(float), p.pairwise.astype(float))
        tolerance = 1e-9 if dtype is np.float64 else 1e-4
        assert chain.entropy(p) == pytest.approx(plogp(oracle.probabilities(exact)), abs=tolerance)
        np.testing.assert_allclose(chain.marginals(p).edges, oracle.edges(exact), rtol=0, atol=tolerance)


@settings(max_examples=200)
@given(potentials(max_length=5))
def test_gradient_equals_the_covariance(p: Potentials) -> None:
    alive(p)
    nodes, edges = covariance(p)
    if p.pairwise.ndim == 2:
        edges = edges.sum(0) if len(edges) else np.zeros(p.pairwise.shape)
    found = chain.entropy_gradient(p)
    tolerance = 1e-9 * score_scale(p)
    np.testing.assert_allclose(found.unary, nodes, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.pairwise, edges, rtol=0, atol=tolerance)


@settings(max_examples=60)
@given(potentials(max_length=4, min_length=1, scales=(1.0, 3.0), constraints=False))
def test_gradient_equals_finite_differences(p: Potentials) -> None:
    unary, pairwise = p.unary.copy(), p.pairwise.copy()
    found = chain.entropy_gradient(p)

    def of(u: Any, a: Any) -> float:
        return float(chain.entropy(Potentials(u, a, p.start, p.end)))

    np.testing.assert_allclose(
        found.unary, oracle.finite_difference(lambda u: of(u, p.pairwise), p.unary), rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(
        found.pairwise, oracle.finite_difference(lambda a: of(p.unary, a), p.pairwise), rtol=1e-6, atol=1e-7
    )
    np.testing.assert_array_equal(p.unary, unary)
    np.testing.assert_array_equal(p.pairwise, pairwise)


@pytest.mark.parametrize("length", [2, 3, 12])
def test_gradient_equals_the_cubic_recursion(length: int) -> None:
    rng = np.random.default_rng(length)
    p = Potentials(rng.normal(size=(length, 5)), rng.normal(size=(length - 1, 5, 5)))
    nodes, edges = jiao_gradient(p)
    found = chain.entropy_gradient(p)
    np.testing.assert_allclose(found.unary, nodes, atol=1e-12)
    np.testing.assert_allclose(found.pairwise, edges, atol=1e-12)


@settings(max_examples=150)
@given(potentials(max_length=5))
def test_span_entropies_equal_enumeration(p: Potentials) -> None:
    alive(p)
    found = chain.span_entropies(p)
    tolerance = 1e-9 * max(1.0, 1e-3 * score_scale(p))
    for start, end in itertools.combinations(range(len(p.unary) + 1), 2):
        expected = plogp(np.array(list(span_table(p, start, end).values())))
        assert found.span(start, end) == pytest.approx(expected, abs=tolerance)
        assert found.of_length(end - start)[start] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [1, 2, 9, 23, 40])
def test_entropies_of_tokens_alone_are_the_same(labels: int, dtype: Any) -> None:
    rng = np.random.default_rng(labels)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 30, 60))])
    unary = rng.normal(0, 6, (offsets[-1], labels)).astype(dtype)
    unary[rng.random(unary.shape) < 0.1] = -np.inf
    unary[:, 0] = 0
    pairwise = rng.normal(0, 2, (labels, labels)).astype(dtype)
    pairwise[rng.random(pairwise.shape) < 0.1] = -np.inf
    pairwise[0] = pairwise[:, 0] = 0
    p = Potentials(unary, pairwise, offsets=offsets)
    nodes, total = token_entropies(p)
    wide = chain.span_entropies(Potentials(unary.astype(np.float64), pairwise.astype(np.float64), offsets=offsets))
    tol = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(nodes, wide.nodes, atol=tol)
    np.testing.assert_allclose(total, float(np.sum(chain.entropy(p))), rtol=10 * tol, atol=10 * tol)


def test_entropies_of_tokens_where_scaling_cannot_serve() -> None:
    p = Potentials([[0.0, -2000.0], [-2000.0, 0.0], [0.0, 0.0]], [[0.0, -3000.0], [-3000.0, 0.0]])
    nodes, total = token_entropies(p)
    np.testing.assert_allclose(nodes, chain.span_entropies(p).nodes, atol=1e-12)
    np.testing.assert_allclose(total, chain.entropy(p), atol=1e-9)


@settings(max_examples=100)
@given(potentials(max_length=5), st.data())
def test_what_a_span_leaves_open(p: Potentials, data: st.DataObject) -> None:
    """Conditional and constrained entropy, and the probability of a span's labels."""
    alive(p)
    start = data.draw(st.integers(0, len(p.unary) - 1))
    end = data.draw(st.integers(start + 1, len(p.unary)))
    table = {k: q for k, q in span_table(p, start, end).items() if q > 1e-12}
    labels = data.draw(st.sampled_from(sorted(table)))
    q = np.array(
        [x for path, x in zip(oracle.all_paths(p), oracle.probabilities(p), strict=True) if path[start:end] == labels]
    )
    tolerance = 1e-8 * max(1.0, 1e-3 * score_scale(p))
    assert chain.span_probability(p, start, end, labels) == pytest.approx(table[labels], rel=1e-8)
    assert chain.conditional_entropy(p, start, labels) == pytest.approx(plogp(q / q.sum()), abs=tolerance)
    assert chain.constrained_entropy(p, start, labels) == pytest.approx(plogp(q), abs=tolerance)


@settings(max_examples=60)
@given(potentials(max_length=4, min_length=1, max_labels=4), st.data())
def test_probability_of_sets(p: Potentials, data: st.DataObject) -> None:
    alive(p)
    sets = data.draw(st.lists(st.sets(st.integers(0, p.n_labels - 1), min_size=1), min_size=1, max_size=len(p.unary)))
    start = data.draw(st.integers(0, len(p.unary) - len(sets)))
    end = start + len(sets)
    expected = sum(
        q for path, q in span_table(p, start, end).items() if all(j in b for j, b in zip(path, sets, strict=True))
    )
    assert chain.span_probability(p, start, end, sets) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("scheme", ["bio", "bioes", "bilou"])
def test_entities(scheme: str) -> None:
    from crfkit import metrics

    tags = {"bio": "BI", "bioes": "BIES", "bilou": "BILU"}[scheme]
    names = ["O", *(f"{t}-{k}" for k in "XY" for t in tags)]
    rng = np.random.default_rng(0)
    rules = chain.Constraints.from_scheme(names, scheme)
    pairwise = np.where(rules.transitions, rng.normal(size=(len(names), len(names))), -np.inf)
    start = np.where(rules.start, 0.0, -np.inf)
    p = Potentials(rng.normal(size=(4, len(names))), pairwise, start, np.where(rules.end, 0.0, -np.inf))
    q = oracle.probabilities(p)
    spans = [set(metrics.spans([names[j] for j in path])) for path in oracle.all_paths(p)]
    for a, b, kind in [(0, 1, "X"), (1, 3, "X"), (0, 4, "Y"), (3, 4, "Y"), (1, 4, "X")]:
        expected = sum(x for x, found in zip(q, spans, strict=True) if metrics.Span(kind, a, b) in found)
        assert chain.entity_probability(p, a, b, kind, names, scheme) == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]


@settings(max_examples=100)
@given(potentials(max_length=4, min_length=1))
def test_confidence_margin_and_the_list(p: Potentials) -> None:
    alive(p)
    q = np.sort(oracle.probabilities(p))[::-1]
    assert chain.confidence(p) == pytest.approx(q[0], rel=1e-8)
    assert chain.margin(p) == pytest.approx(q[0] - (q[1] if len(q) > 1 else 0.0), abs=1e-8)
    k = q[: min(3, int((q > 0).sum()))]
    assert chain.kbest_entropy(p, 3) == pytest.approx(plogp(k / k.sum()), abs=1e-7)
    whole = chain.kbest_entropy(p, len(q))
    assert whole == pytest.approx(chain.entropy(p), abs=1e-8 * score_scale(p))


@settings(max_examples=60)
@given(potentials(max_length=6, scales=(1.0, 5.0), constraints=False, dtype=np.float32))
def test_single_precision_is_near(p: Potentials) -> None:
    alive(p)
    double = Potentials(*(None if x is None else x.astype(np.float64) for x in (p.unary, p.pairwise, p.start, p.end)))  # type: ignore[arg-type]
    a, b = chain.entropy_gradient(p), chain.entropy_gradient(double)
    assert a.unary.dtype == np.float32
    assert a.entropy == pytest.approx(b.entropy, abs=2e-5)
    np.testing.assert_allclose(a.unary, b.unary, atol=5e-5)
    np.testing.assert_allclose(a.pairwise, b.pairwise, atol=5e-5)
    assert chain.entropy(p) == pytest.approx(b.entropy, abs=2e-5)


def batch(n: int, labels: int, dtype: Any = np.float64, lengths: tuple[int, int] = (0, 40)) -> Potentials:
    rng = np.random.default_rng(n)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(*lengths, size=n))])
    unary = (2 * rng.normal(size=(offsets[-1], labels))).astype(dtype)
    return Potentials(unary, rng.normal(size=(labels, labels)).astype(dtype), offsets=offsets)


@pytest.mark.parametrize("labels", [1, 2, 7, 22, 70])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_packs_agree_with_single_sequences(labels: int, dtype: Any) -> None:
    """The packed kernel against per-step transitions, which take another path, one by one."""
    p = batch(37, labels, dtype)
    found = chain.entropy_gradient(p)
    spans = chain.span_entropies(p)
    total = np.zeros((labels, labels))
    tolerance = 1e-10 if dtype is np.float64 else 3e-3
    for i, one in enumerate(p):
        steps = max(0, len(one.unary) - 1)
        pairwise = np.repeat(one.pairwise[np.newaxis], steps, axis=0).astype(np.float64)
        alone = chain.entropy_gradient(Potentials(one.unary.astype(np.float64), pairwise))
        total += alone.pairwise.sum(0)
        assert found.entropy[i] == pytest.approx(alone.entropy, abs=tolerance)
        assert spans.entropy[i] == pytest.approx(alone.entropy, abs=tolerance)
        np.testing.assert_allclose(p.split(found.unary)[i], alone.unary, atol=tolerance)
    np.testing.assert_allclose(found.pairwise, total, atol=50 * tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_threads_do_not_change_a_bit(dtype: Any) -> None:
    p = batch(200, 9, dtype)
    one = chain.entropy_gradient(p, n_jobs=1)
    for n_jobs in (2, 5):
        again = chain.entropy_gradient(p, n_jobs=n_jobs)
        np.testing.assert_array_equal(again.entropy, one.entropy)
        np.testing.assert_array_equal(again.unary, one.unary)
        np.testing.assert_array_equal(again.pairwise, one.pairwise)


def test_long_sequences_keep_their_precision_in_single() -> None:
    """Scores are centred: without that, 2,000 steps in single precision would be noise."""
    p = batch(1, 9, lengths=(2000, 2001))
    single = Potentials(p.unary.astype(np.float32), p.pairwise.astype(np.float32), offsets=p.offsets)
    a, b = chain.entropy_gradient(single), chain.entropy_gradient(p)
    np.testing.assert_allclose(a.unary, b.unary, atol=1e-3)
    assert a.entropy[0] == pytest.approx(b.entropy[0], rel=1e-5)


def test_most_uncertain_spans() -> None:
    p = batch(30, 5, lengths=(0, 12))
    spans = chain.span_entropies(p)
    for rate in (None, 0.0, 0.4):
        for i, best in enumerate(chain.most_uncertain_span(p, (2, 4), rate)):
            n = int(p.lengths[i])
            if n == 0:
                assert best is None
                continue
            if n < 2:
                assert best[:2] == (0, n)
                continue
            r = spans.entropy[i] / n if rate is None else rate
            every = [(a, a + k) for k in (2, 3, 4) for a in range(n - k + 1)]
            worth = [spans.span(a, b, i) - (b - a) * r for a, b in every]
            assert best.entropy - (best.end - best.start) * r == pytest.approx(max(worth))


def test_uncertain_spans_are_as_long_as_the_doubt() -> None:
    """Neither always the shortest nor always the longest."""
    for doubt in range(1, 5):
        scores = np.full((9, 2), [9.0, 0.0])
        scores[2 : 2 + doubt] = 0.0
        p = Potentials(scores, np.zeros((2, 2)))
        assert chain.most_uncertain_span(p, (1, 5))[:2] == (2, 2 + doubt)
    p = batch(60, 4, lengths=(5, 12))
    found = {b.end - b.start for b in chain.most_uncertain_span(p, (1, 4))}
    assert len(found) > 2


def test_what_makes_no_sense_is_named() -> None:
    p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [-np.inf, 0.0]])
    both = Potentials.batch([p, p])
    with pytest.raises(ValueError, match="are impossible"):
        chain.conditional_entropy(p, 0, [1, 0])
    assert chain.constrained_entropy(p, 0, [1, 0]) == 0.0
    for length in ("2", 1.5, (1, 2, 3), (2, 1), None):
        with pytest.raises(ValueError, match="'length' must be"):
            chain.most_uncertain_span(p, length)  # type: ignore[arg-type]
    for labels in (["B", "C"], [0, 2], [0.5, 0]):
        with pytest.raises(ValueError, match="'labels' must hold numbers from 0 to 1"):
            chain.span_probability(p, 0, 2, labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one number for each token"):
        chain.constrained_entropy(p, 0, [{0, 1}])  # type: ignore[list-item]
    for sequence in (None, -1, 2):
        with pytest.raises(ValueError, match="'sequence' must be a number from 0 to 1"):
            chain.span_entropy(both, 0, 2, sequence)
    assert chain.span_entropy(both, 0, 2, 1) == pytest.approx(chain.span_entropy(p, 0, 2))
    with pytest.raises(TypeError, match="expected Potentials, got ndarray"):
        chain.entropy(np.zeros((3, 2)))  # type: ignore[arg-type]


def test_entities_need_a_type_and_a_scheme_of_the_labels() -> None:
    p = Potentials(np.zeros((3, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="'kind' must be a type of the labels, got 'Y'"):
        chain.entity_probability(p, 0, 1, "Y", ["B-X", "I-X", "O"])
    with pytest.raises(ValueError, match="not those of the scheme 'bioes': B, I"):
        chain.entity_probability(p, 0, 1, "X", ["B-X", "I-X", "O"], "bioes")
    with pytest.raises(ValueError, match="not those of the scheme 'bio': B, E"):
        chain.entity_probability(p, 0, 2, "X", ["B-X", "E-X", "O"], "bio")
    assert chain.entity_probability(p, 0, 2, "X", ["B-X", "O", "B-Y"]) == 0.0  # never longer than a token


def test_faults_are_named() -> None:
    p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="a span needs"):
        chain.span_entropy(p, 2, 2)
    with pytest.raises(ValueError, match="'labels' must hold 2 labels"):
        chain.span_probability(p, 0, 2, [0])
    with pytest.raises(ValueError, match="takes one sequence"):
        chain.span_probability(Potentials.batch([p, p]), 0, 1, [0])
    with pytest.raises(ValueError, match="'length' must be"):
        chain.most_uncertain_span(p, 0)
    dead = Potentials([[-np.inf, -np.inf]], [[0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="no labelling is allowed"):
        chain.entropy(dead)
    assert chain.span_probability(p, 0, 1, [set()]) == 0.0
