"""Inference against enumeration, finite differences, and its own identities."""

from __future__ import annotations

import resource
import tracemalloc
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import potentials

from crfkit import _core, chain
from crfkit.chain import Potentials


def alive(p: Potentials) -> bool:
    return bool(np.isfinite(oracle.log_partition(p)))


def tolerance(p: Potentials) -> float:
    """What rounding may do: 1e-10 beside scores of one, in proportion beyond."""
    finite = [x[np.isfinite(x)] for x in (p.unary, p.pairwise)]
    size = max([1.0, *(float(np.abs(x).max()) for x in finite if x.size)])
    single = p.unary.dtype == np.float32
    return (2e-5 if single else 1e-10) * size


def with_dtype(p: Potentials, dtype: type) -> Potentials:
    parts: list[Any] = [None if x is None else x.astype(dtype) for x in (p.unary, p.pairwise, p.start, p.end)]
    return Potentials(parts[0], parts[1], parts[2], parts[3], p.allowed)


@settings(max_examples=300)
@given(potentials())
def test_log_partition_and_marginals_equal_enumeration(p: Potentials) -> None:
    if not alive(p):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.marginals(p)
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.log_partition(p)
        return
    m = chain.marginals(p)
    tol = tolerance(p)
    assert m.log_z == pytest.approx(oracle.log_partition(p), abs=tol, rel=1e-12)
    assert chain.log_partition(p) == m.log_z
    np.testing.assert_allclose(m.nodes, oracle.nodes(p), rtol=0, atol=tol)
    np.testing.assert_allclose(m.edges, oracle.edges(p), rtol=0, atol=tol)
    both = chain.marginals(p, pairs=True)
    np.testing.assert_array_equal(both.nodes, m.nodes)
    np.testing.assert_array_equal(both.edges, m.edges)


def test_pairs_of_labels_are_computed_when_asked_for_or_first_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    p = Potentials(rng.normal(size=(500, 1000)), rng.normal(size=(1000, 1000)))
    chain.log_partition(p, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    m = chain.marginals(p, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6  # all pairs would be 4 GB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200e3  # kilobytes, the core's memory too
    assert "edges" not in m.__dict__
    small = chain.marginals(Potentials(p.unary[:3, :4], p.pairwise[:4, :4]))
    assert small.edges is small.edges
    asked = chain.marginals(Potentials(p.unary[:3, :4], p.pairwise[:4, :4]), pairs=True)
    monkeypatch.setattr(chain.inference, "_sum_product", None)  # nothing more is computed
    np.testing.assert_array_equal(asked.edges, small.edges)


@settings(max_examples=100)
@given(potentials(scales=(1.0, 10.0), dtype=np.float32))
def test_float32_is_right_to_its_precision(p: Potentials) -> None:
    assert p.unary.dtype == np.float32
    if not alive(p):
        return
    m = chain.marginals(p)
    tol = tolerance(p)
    assert m.nodes.dtype == np.float32
    assert m.log_z == pytest.approx(oracle.log_partition(p), abs=tol)
    np.testing.assert_allclose(m.nodes, oracle.nodes(p), rtol=0, atol=tol)
    np.testing.assert_allclose(m.edges, oracle.edges(p), rtol=0, atol=tol)


@settings(max_examples=100)
@given(potentials(min_length=1, scales=(1.0,), constraints=False))
def test_marginals_are_the_gradient_of_log_partition(p: Potentials) -> None:
    m = chain.marginals(p)

    def of_unary(x: np.ndarray) -> float:
        return float(chain.log_partition(Potentials(x, p.pairwise, p.start, p.end)))

    def of_pairwise(x: np.ndarray) -> float:
        return float(chain.log_partition(Potentials(p.unary, x, p.start, p.end)))

    np.testing.assert_allclose(m.nodes, oracle.finite_difference(of_unary, p.unary), atol=1e-8)
    edges: Any = m.edges if p.pairwise.ndim == 3 else m.edges.sum(axis=0)
    np.testing.assert_allclose(edges, oracle.finite_difference(of_pairwise, p.pairwise), atol=1e-8)


@settings(max_examples=200)
@given(potentials())
def test_decode_finds_the_best_path(p: Potentials) -> None:
    if not alive(p):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.decode(p)
        return
    path = chain.decode(p)
    assert path.shape == (len(p.unary),)
    best = oracle.scores(p).max()
    assert oracle.path_score(p, tuple(path.tolist())) == pytest.approx(best, abs=tolerance(p))


@settings(max_examples=200)
@given(potentials(max_length=4, max_labels=3), st.integers(1, 100))
def test_nbest_is_ordered_distinct_and_complete(p: Potentials, k: int) -> None:
    if not alive(p):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.nbest(p, k)
        return
    best = chain.nbest(p, k)
    scores = oracle.scores(p)
    scores = np.sort(scores[np.isfinite(scores)])[::-1]
    assert len(best) == min(k, len(scores))
    np.testing.assert_allclose(best.scores, scores[:k], rtol=0, atol=tolerance(p))
    assert len({tuple(path) for path in best.paths.tolist()}) == len(best)
    for path, score in zip(best.paths.tolist(), best.scores, strict=True):
        assert oracle.path_score(p, tuple(path)) == pytest.approx(score, abs=tolerance(p))
    assert chain.score(p, best.paths[0]) == pytest.approx(chain.score(p, chain.decode(p)), abs=tolerance(p))


@settings(max_examples=100)
@given(potentials())
def test_score_and_log_probability(p: Potentials) -> None:
    if not alive(p):
        return
    for path, probability in zip(oracle.all_paths(p)[:20], oracle.probabilities(p), strict=False):
        assert chain.score(p, path) == pytest.approx(oracle.path_score(p, path), abs=tolerance(p))
        assert np.exp(chain.log_probability(p, path)) == pytest.approx(probability, abs=tolerance(p))


@settings(max_examples=15)
@given(potentials(max_length=3, max_labels=3, scales=(1.0, 1e4)))
def test_samples_follow_the_distribution(p: Potentials) -> None:
    if not alive(p):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.sample(p, 3, rng=0)
        return
    n = 4000
    drawn = chain.sample(p, n, rng=0)
    assert drawn.shape == (n, len(p.unary))
    counts = dict.fromkeys(oracle.all_paths(p), 0)
    for path in drawn.tolist():
        counts[tuple(path)] += 1
    expected = oracle.probabilities(p)
    seen = np.array([counts[path] for path in oracle.all_paths(p)]) / n
    assert np.abs(seen - expected).max() < 5 * 0.5 / np.sqrt(n)
    assert seen[expected == 0].sum() == 0


@settings(max_examples=60)
@given(st.lists(potentials(max_labels=3, scales=(1.0, 1e4)), min_size=1, max_size=40), st.integers(1, 3))
def test_a_batch_equals_its_sequences(sequences: list[Potentials], threads: int) -> None:
    labels = sequences[0].n_labels
    sequences = [p for p in sequences if p.n_labels == labels and alive(p)]
    if not sequences:
        return
    batch = Potentials.batch(sequences)
    assert len(batch) == len(sequences)
    m = chain.marginals(batch, n_jobs=threads)
    assert batch.offsets is not None
    edge = 0
    for i, p in enumerate(sequences):
        one = chain.marginals(p)
        tol = tolerance(p)
        a, b = batch.offsets[i], batch.offsets[i + 1]
        assert m.log_z[i] == pytest.approx(one.log_z, abs=tol)
        np.testing.assert_allclose(m.nodes[a:b], one.nodes, rtol=0, atol=tol)
        steps = max(0, int(b - a) - 1)
        np.testing.assert_allclose(m.edges[edge : edge + steps], one.edges, rtol=0, atol=tol)
        edge += steps
        again = batch[i]
        assert chain.log_partition(again) == pytest.approx(one.log_z, abs=tol)
    paths = chain.decode(batch, n_jobs=threads)
    expected = [float(chain.score(p, chain.decode(p))) for p in sequences]
    np.testing.assert_allclose(chain.score(batch, paths), expected, rtol=1e-12, atol=1e-9)
    for p, best in zip(sequences, chain.nbest(batch, 3), strict=True):
        np.testing.assert_allclose(best.scores, chain.nbest(p, 3).scores, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("labels", [1, 2, 3, 5, 8, 9, 16, 17, 22, 33, 51, 70, 130])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_vector_width_agrees_with_log_space(labels: int, dtype: type) -> None:
    rng = np.random.default_rng(labels)
    lengths = rng.integers(0, 9, size=40)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    unary: Any = rng.normal(size=(offsets[-1], labels)).astype(dtype)
    pairwise: Any = rng.normal(size=(labels, labels)).astype(dtype)
    pairwise[rng.random(pairwise.shape) < 0.2] = -np.inf
    np.fill_diagonal(pairwise, 0)
    p = Potentials(unary, pairwise, offsets=offsets)
    m = chain.marginals(p)
    tol = 1e-10 if dtype is np.float64 else 2e-5
    for s, length in enumerate(lengths):
        if length == 0:
            assert m.log_z[s] == 0
            continue
        a = unary[offsets[s]].astype(float)
        for t in range(1, length):
            a = unary[offsets[s] + t] + np.logaddexp.reduce(a[:, None] + pairwise.astype(float), axis=0)
        assert m.log_z[s] == pytest.approx(np.logaddexp.reduce(a), abs=tol * 10)
    np.testing.assert_allclose(m.nodes.sum(axis=1), 1, atol=tol)
    starts = [t for s, n in enumerate(lengths) for t in range(offsets[s], offsets[s] + n - 1)]
    np.testing.assert_allclose(m.edges.sum(axis=2), m.nodes[starts], atol=tol)
    np.testing.assert_allclose(m.edges.sum(axis=1), m.nodes[np.array(starts) + 1], atol=tol)


def test_paths_that_die_and_come_back_are_not_lost() -> None:
    """Two labels that never meet; one falls 800 nats behind, leads by 800, and ends even."""
    length = 320
    lead = np.concatenate([np.full(80, 10.0), np.full(160, -10.0), np.full(80, 10.0)])
    unary = np.stack([lead, np.zeros(length)], axis=1)
    pairwise = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    m = chain.marginals(Potentials(unary, pairwise))
    np.testing.assert_allclose(m.nodes, 0.5, atol=1e-9)
    single = chain.marginals(Potentials(unary.astype(np.float32), pairwise.astype(np.float32)))
    np.testing.assert_allclose(single.nodes, 0.5, atol=1e-5)


def test_a_million_steps() -> None:
    n = 1_000_000
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(n, 3))
    p = Potentials(unary, rng.normal(size=(3, 3)))
    assert np.isfinite(chain.log_partition(p))
    path = chain.decode(p)
    assert np.isfinite(chain.score(p, path))
    # the path of the single-precision pass is as good as that of the double one
    single = chain.decode(Potentials(unary.astype(np.float32), p.pairwise.astype(np.float32)))
    assert chain.score(p, single) == pytest.approx(chain.score(p, path), rel=1e-9)


@pytest.mark.parametrize("peak", [0.0, 200.0])  # scaled, and in log space
def test_probabilities_of_a_million_steps_add_up_to_one_in_single_precision(peak: float) -> None:
    rng = np.random.default_rng(3)
    unary = rng.normal(size=(1_000_000, 3)).astype(np.float32)
    unary[500_000, 1] -= peak
    p = Potentials(unary, rng.normal(size=(3, 3)).astype(np.float32))
    m = chain.marginals(p, pairs=True)
    assert np.abs(m.nodes.sum(1, dtype=np.float64) - 1).max() < 1e-6
    assert np.abs(m.edges.sum((1, 2), dtype=np.float64) - 1).max() < 1e-6


def test_no_labels_to_choose_from() -> None:
    p = Potentials(np.zeros((4, 1)), np.zeros((1, 1)))
    assert chain.log_partition(p) == 0
    assert chain.decode(p).tolist() == [0, 0, 0, 0]
    assert len(chain.nbest(p, 5)) == 1
    empty = Potentials(np.zeros((0, 3)), np.zeros((3, 3)))
    assert chain.log_partition(empty) == 0
    assert chain.decode(empty).shape == (0,)
    assert chain.marginals(empty).edges.shape == (0, 3, 3)
    assert chain.nbest(empty, 4).paths.shape == (1, 0)
    assert chain.sample(empty, 2, rng=0).shape == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unary": np.zeros(3), "pairwise": np.zeros((3, 3))}, r"'unary' must have shape \[T, L\]"),
        ({"unary": np.zeros((2, 0)), "pairwise": np.zeros((0, 0))}, "L >= 1"),
        ({"unary": np.zeros((2, 3)), "pairwise": np.zeros((2, 3))}, "'pairwise' must have shape"),
        ({"unary": np.zeros((2, 3)), "pairwise": np.zeros((2, 3, 3))}, "'pairwise' must have shape"),
        ({"unary": np.zeros((2, 3)), "pairwise": np.zeros((3, 3)), "start": [0.0]}, "'start' must have"),
        ({"unary": np.zeros((2, 3)), "pairwise": np.zeros((3, 3)), "offsets": [0, 3]}, "'offsets' must increase"),
        ({"unary": np.zeros((2, 3)), "pairwise": np.zeros((3, 3)), "allowed": [[True]]}, "'allowed' must have"),
        ({"unary": [[0.0, np.nan]], "pairwise": np.zeros((2, 2))}, r"got nan at unary\[0, 1\]"),
        ({"unary": [[0.0, 1.0]], "pairwise": [[0.0, np.inf], [0, 0]]}, r"got inf at pairwise\[0, 1\]"),
        (
            {"unary": [[0.0], [0.0], [np.inf]], "pairwise": [[0.0]], "offsets": [0, 1, 3]},
            "sequence 1, position 1",
        ),
    ],
)
def test_bad_potentials_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Potentials(**arguments)  # type: ignore[arg-type]


def test_bad_calls_are_named() -> None:
    p = Potentials(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="'k' of nbest must be an int >= 1"):
        chain.nbest(p, 0)
    for n in (-1, 1.5):
        with pytest.raises(ValueError, match="'n' of sample must be an int >= 0, got"):
            chain.sample(p, n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label numbers from 0 to 2"):
        chain.score(p, [0, 3])
    with pytest.raises(ValueError, match=r"must have shape \(2,\)"):
        chain.score(p, [0])
    with pytest.raises(ValueError, match="in sequence 1"):
        chain.decode(Potentials([[0.0], [-np.inf]], [[0.0]], offsets=[0, 1, 2]))
    with pytest.raises(ValueError, match="'n_jobs' must not be 0"):
        chain.decode(p, n_jobs=0)


def test_the_potentials_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    p = Potentials(rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), start=np.ones(3), end=np.ones(3))
    before = [x.copy() for x in (p.unary, p.pairwise)]
    chain.marginals(p)
    chain.decode(p)
    chain.nbest(p, 3)
    chain.sample(p, 3)
    np.testing.assert_array_equal(before[0], p.unary)
    np.testing.assert_array_equal(before[1], p.pairwise)


@pytest.mark.parametrize("per_step", [False, True])
def test_backward_messages_add_up_to_log_z(per_step: bool) -> None:
    rng = np.random.default_rng(2)
    u, a = rng.normal(scale=300, size=(40, 5)), rng.normal(size=(39, 5, 5) if per_step else (5, 5))
    a[..., 2, 3] = -np.inf
    beta = _core.backward_messages(u, a)
    np.testing.assert_array_equal(beta[-1], 0)
    step = np.broadcast_to(a, (39, 5, 5))
    np.testing.assert_allclose(beta[:-1], np.logaddexp.reduce(step + (u + beta)[1:, None], axis=2), rtol=1e-12)
    np.testing.assert_allclose(np.logaddexp.reduce(u[0] + beta[0]), chain.log_partition(Potentials(u, a)), rtol=1e-12)
