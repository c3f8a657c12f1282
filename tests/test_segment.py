"""Inference on segmentations against enumeration, finite differences, and its own identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit import segment
from crfkit.segment import Potentials


@st.composite
def potentials(
    draw: st.DrawFn,
    max_length: int = 6,
    scales: tuple[float, ...] = (1.0, 30.0, 1e4),
    dtype: type = np.float64,
    constraints: bool = True,
) -> Potentials:
    """Potentials of one short sequence, with all that potentials may have."""
    tokens = draw(st.integers(1, max_length), label="tokens")
    labels = draw(st.integers(1, 3), label="labels")
    longest = draw(st.integers(1, 4), label="longest")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    scale = draw(st.sampled_from(scales), label="scale")
    forbid = draw(st.sampled_from([0.0, 0.0, 0.1, 0.3]), label="forbid") if constraints else 0.0
    tail = draw(st.booleans(), label="tail")

    def scores(*shape: int) -> Any:
        x: Any = (rng.normal(size=shape) * scale).astype(dtype)
        x[rng.random(shape) < forbid] = -np.inf
        return x

    def perhaps(*shape: int) -> Any:
        return scores(*shape) if draw(st.booleans()) else None

    most = longest - tail
    places = [(a, b) for a in range(tokens) for b in range(a + 1, min(tokens, a + most) + 1)]
    listed = None
    if len(places) > 0 and draw(st.booleans(), label="listed"):
        listed = np.array([x for x in places if rng.random() < 0.5], np.int64).reshape(-1, 2)
        rng.shuffle(listed)
    borders = rng.choice([0, 0, 0, 1, -1], tokens) if forbid and draw(st.booleans(), label="borders") else None
    if borders is not None:
        borders[0] = max(0, borders[0])
    return Potentials(
        scores(tokens, labels),
        scores(longest, labels),
        scores(labels, labels),
        perhaps(labels),
        perhaps(labels),
        perhaps(tokens, labels),
        perhaps(tokens, labels),
        listed,
        None if listed is None else scores(len(listed), labels),
        scores(labels) if tail else None,
        draw(st.integers(1, 3), label="order") if tail else 1,
        borders,
        rng.random((tokens, labels)) < 0.8 if forbid and draw(st.booleans(), label="allowed") else None,
    )


def tolerance(p: Potentials) -> float:
    """What rounding may do: 1e-10 beside scores of one, in proportion beyond."""
    given = [getattr(p, name) for name in ("unary", "lengths", "pairwise", "first", "last", "segment_scores", "tail")]
    finite = [x[np.isfinite(x)] for x in given if x is not None]
    size = max([1.0, *(float(np.abs(x).max()) for x in finite if x.size)])
    return (5e-5 if p.unary.dtype == np.float32 else 2e-10) * size


def check(p: Potentials) -> None:
    tol = tolerance(p)
    log_z = oracle.segmentations(p)[2]
    if not np.isfinite(log_z):
        for f in (segment.marginals, segment.decode, segment.entropy, segment.sample):
            with pytest.raises(ValueError, match="no segmentation is allowed"):
                f(p)
        return
    m = segment.marginals(p)
    assert m.log_z == pytest.approx(log_z, abs=tol, rel=1e-6 if p.unary.dtype == np.float32 else 1e-12)
    assert segment.log_partition(p) == m.log_z
    expected = oracle.segment_sums(p)
    for name in ("nodes", "begins", "ends", "pairs", "lengths"):
        np.testing.assert_allclose(getattr(m, name), expected[name], rtol=0, atol=tol, err_msg=name)
    if p.tail is not None:
        assert m.tail is not None
        np.testing.assert_allclose(m.tail, expected["tail"], rtol=0, atol=tol * len(p.unary))
    np.testing.assert_allclose(m.borders, expected["begins"].sum(axis=1), rtol=0, atol=tol)
    if p.segments is not None:
        assert m.listed is not None
        for row, (a, b) in zip(m.listed, p.segments, strict=True):
            np.testing.assert_allclose(row, expected["segments"][a, b - a], rtol=0, atol=tol)
    every = [(a, b, j) for a in range(len(p.unary)) for b in range(a + 1, len(p.unary) + 1) for j in range(p.n_labels)]
    got = m.probability(every)
    np.testing.assert_allclose(got, [expected["segments"][a, b - a, j] for a, b, j in every], rtol=0, atol=tol)
    short = min(p.max_length, len(p.unary))
    np.testing.assert_allclose(m.segments[:, :short], expected["segments"][:, 1 : short + 1], rtol=0, atol=tol)


@settings(max_examples=300, deadline=None)
@given(potentials())
def test_sums_equal_enumeration(p: Potentials) -> None:
    check(p)


@settings(max_examples=150, deadline=None)
@given(potentials(scales=(0.3, 1.0, 10.0), dtype=np.float32))
def test_float32_is_right_to_its_precision(p: Potentials) -> None:
    assert p.unary.dtype == np.float32
    check(p)


@settings(max_examples=150, deadline=None)
@given(potentials(max_length=5))
def test_best_segmentations_equal_enumeration(p: Potentials) -> None:
    every = oracle.all_segmentations(p)
    scores = np.array([oracle.segmentation_score(p, x) for x in every])
    alive = np.flatnonzero(scores > -np.inf)
    if not len(alive):
        return
    order = alive[np.argsort(-scores[alive], kind="stable")]
    best = segment.nbest(p, 7)
    size = min(7, len(order))
    tol = tolerance(p)
    np.testing.assert_allclose(best.scores, scores[order[:size]], rtol=1e-12, atol=tol)
    found = [tuple(map(tuple, x.tolist())) for x in best.segments]
    assert len(set(found)) == size
    for x, s in zip(found, best.scores, strict=True):
        assert s == pytest.approx(oracle.segmentation_score(p, x), abs=tol, rel=1e-12)
        assert segment.score(p, np.array(x)) == pytest.approx(s, abs=tol, rel=1e-12)
    assert segment.decode(p).tolist() == best.segments[0].tolist()


@settings(max_examples=60, deadline=None)
@given(potentials(max_length=4, scales=(1.0,)))
def test_entropy_and_its_gradient_equal_enumeration_and_differences(p: Potentials) -> None:
    _, chances, log_z = oracle.segmentations(p)
    if not np.isfinite(log_z):
        return
    some = chances[chances > 0]
    expected = float(-(some * np.log(some)).sum())
    assert segment.entropy(p) == pytest.approx(expected, abs=1e-9)
    gradient = segment.entropy_gradient(p)
    assert gradient.entropy == pytest.approx(expected, abs=1e-9)
    for name in ("unary", "lengths", "pairwise", "first", "last", "tail", "segment_scores"):
        x = getattr(p, name)
        if x is None:
            continue

        def moved(y: Any, name: str = name) -> float:
            fields = {f: getattr(p, f) for f in p.__dataclass_fields__} | {name: y}
            return float(segment.entropy(Potentials(**fields)))

        finite = np.isfinite(x)
        difference = oracle.finite_difference(moved, np.where(finite, x, -np.inf))
        np.testing.assert_allclose(getattr(gradient, name)[finite], difference[finite], rtol=0, atol=1e-6, err_msg=name)


def random_batch(rng: Any, lengths: list[int], labels: int, longest: int, dtype: Any = np.float64, **more: Any) -> Any:
    offsets = np.cumsum([0, *lengths])
    n = int(offsets[-1])

    def scores(*shape: int) -> Any:
        return rng.normal(size=shape).astype(dtype)

    return Potentials(
        scores(n, labels), scores(longest, labels), scores(labels, labels), offsets=offsets,
        first=scores(n, labels), last=scores(n, labels), **more,
    )  # fmt: skip


def test_batches_are_their_sequences_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    lengths = [0, 1, 7, 3, 40, 12, *rng.integers(1, 30, 40).tolist()]
    p = random_batch(rng, lengths, 5, 6)
    one = segment.marginals(p, 1)
    for threads in (2, 3):
        many = segment.marginals(p, threads)
        for name in ("log_z", "nodes", "begins", "ends", "pairs", "lengths"):
            np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    np.testing.assert_allclose(one.log_z, [segment.log_partition(x) for x in p], rtol=1e-12)
    nodes = np.concatenate([segment.marginals(x).nodes for x in p if len(x.unary)])
    np.testing.assert_allclose(one.nodes, nodes, rtol=0, atol=1e-12)
    assert [x.tolist() for x in segment.decode(p)] == [segment.decode(x).tolist() for x in p]
    same = [[y.tolist() for y in x] for x in segment.sample(p, 3, rng=1, n_jobs=2)]
    assert same == [[y.tolist() for y in x] for x in segment.sample(p, 3, rng=1, n_jobs=1)]


def test_samples_have_the_distribution() -> None:
    rng = np.random.default_rng(1)
    p = Potentials(
        rng.normal(size=(3, 2)),
        rng.normal(size=(2, 2)),
        rng.normal(size=(2, 2)),
        tail=np.array([-0.5, -1.0]),
        tail_order=2,
    )
    every, chances, _ = oracle.segmentations(p)
    place = {x: i for i, x in enumerate(every)}
    n = 20000
    counts = np.zeros(len(every))
    for x in segment.sample(p, n, rng=0):
        counts[place[tuple(map(tuple, x.tolist()))]] += 1
    assert np.abs(counts / n - chances).max() < 5 * np.sqrt(0.25 / n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_sequences_and_segments(dtype: Any) -> None:
    """Products over long segments leave the range of the numbers; nothing that counts may be lost."""
    rng = np.random.default_rng(2)
    p = random_batch(rng, [3000, 500], 6, 300, dtype)
    m = segment.marginals(p)
    fields: dict[str, Any] = {
        k: v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v
        for k, v in ((name, getattr(p, name)) for name in p.__dataclass_fields__)
    }
    wide = Potentials(**fields)
    # in log space: no transition is possible between two labels that are never used
    fields["unary"] = np.where(fields["unary"] == fields["unary"], fields["unary"], 0) * 1.0
    fields["unary"][0, 0] += 800.0  # too far from the rest for scaled space
    fields["unary"][1, 0] -= 0.0
    q = Potentials(**fields)
    shifted = segment.marginals(q)
    assert np.isfinite(shifted.log_z).all()
    np.testing.assert_allclose(m.nodes.sum(axis=1), 1.0, atol=1e-4 if dtype == np.float32 else 1e-9)
    reference = segment.marginals(wide)
    tol = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(m.log_z, reference.log_z, rtol=1e-6)
    np.testing.assert_allclose(m.nodes, reference.nodes, atol=tol)
    np.testing.assert_allclose(m.lengths, reference.lengths, atol=tol * 100)


def test_a_chain_is_a_segmentation_into_single_tokens() -> None:
    from crfkit import chain

    rng = np.random.default_rng(3)
    u, a = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    p, q = Potentials(u, np.zeros((1, 3)), a), chain.Potentials(u, a)
    assert segment.log_partition(p) == pytest.approx(chain.log_partition(q), abs=1e-12)
    np.testing.assert_allclose(segment.marginals(p).nodes, chain.marginals(q).nodes, atol=1e-12)
    assert segment.decode(p)[:, 2].tolist() == chain.decode(q).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": np.zeros((3, 0))}, "'unary' must have shape"),
        ({"lengths": np.zeros((2, 3))}, "'lengths' must have shape"),
        ({"pairwise": np.zeros((2, 3))}, "'pairwise' must have shape"),
        ({"unary": np.full((3, 2), np.nan)}, "finite or minus infinity"),
        ({"segments": [[0, 3]], "segment_scores": np.zeros((1, 2))}, r"segments\[0\] must lie in one sequence"),
        ({"segments": [[0, 1]]}, "given together"),
        ({"segments": [[0, 1], [0, 1]], "segment_scores": np.zeros((2, 2))}, "twice"),
        ({"borders": [0, 2, 0]}, "'borders' must be"),
        ({"borders": [0, -0.5, 0]}, "'borders' must hold ints, got float64"),
        ({"borders": [-1, 0, 0]}, r"'borders' must not be -1 where a sequence begins, got -1 at borders\[0\]"),
        ({"borders": [0, 0, -1], "offsets": [0, 0, 2, 3]}, r"got -1 at borders\[2\]"),
        ({"segments": [[0, 1.5]], "segment_scores": np.zeros((1, 2))}, "'segments' must hold ints, got float64"),
        ({"offsets": [0, 1.5, 3]}, "'offsets' must hold ints, got float64"),
        ({"tail": [0.0, 0.0], "tail_order": 2**31}, "'tail_order' must be an int from 1 to 1000, got 2147483648"),
        ({"tail": [0.0, 0.0], "tail_order": 0}, "'tail_order' must be"),
        ({"offsets": [0, 2]}, "'offsets' must increase"),
    ],
)
def test_potentials_are_checked(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"unary": np.zeros((3, 2)), "lengths": np.zeros((2, 2)), "pairwise": np.zeros((2, 2))}
    with pytest.raises(ValueError, match=message):
        Potentials(**(fields | change))


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([(0, 2, -1)], r"labels in 'segments' must be numbers from 0 to 1, got \[-1\]"),
        ([(0, 2, 7)], r"labels in 'segments' must be numbers from 0 to 1, got \[7\]"),
        ([(0, 1.5, 0), (1.5, 2, 0)], "'segments' must be rows of ints"),
        ([(0, 2)], "'segments' must be rows of ints"),
        ([(-1, 2, 0)], r"segments\[0\] must lie in one sequence and have tokens, got \(-1, 2, 0\)"),
        ([(0, 1, 0), (2, 1, 0)], r"segments\[1\] must lie in one sequence and have tokens, got \(2, 1, 0\)"),
        ([(0, 0, 0), (0, 2, 0)], r"segments\[0\] must lie in one sequence and have tokens"),
        ([(0, 3, 0)], r"segments\[0\] must lie in one sequence and have tokens"),
    ],
)
def test_segmentations_to_score_are_checked(segments: Any, message: str) -> None:
    p = segment.Potentials(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    for function in (segment.score, segment.log_probability, lambda p, x: segment.marginals(p).probability(x)):
        with pytest.raises(ValueError, match=message):
            function(p, segments)


def test_probabilities_are_of_segments_in_one_sequence() -> None:
    offsets = np.array([0, 0, 2, 3])
    p = segment.Potentials(np.zeros((3, 1)), np.zeros((2, 1)), np.zeros((1, 1)), offsets=offsets)
    m = segment.marginals(p)
    assert m.probability([(0, 2, 0), (2, 3, 0)]).tolist() == pytest.approx([0.5, 1.0])
    assert m.probability([]).shape == (0,)
    with pytest.raises(ValueError, match=r"segments\[1\] must lie in one sequence"):
        m.probability([(0, 2, 0), (1, 3, 0)])


@pytest.mark.parametrize("rows", [[], [(0, 1, 0)], [(1, 2, 0)], [(0, 1, 0), (0, 2, 0)]])
def test_segmentations_to_score_cover_the_sequence(rows: Any) -> None:
    p = segment.Potentials(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="'segments' must cover the sequence"):
        segment.score(p, rows)
    assert segment.score(segment.Potentials(np.zeros((0, 1)), np.zeros((2, 1)), np.zeros((1, 1))), []) == 0.0


def test_a_list_of_segments_may_be_empty() -> None:
    tables = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))
    nothing: Any = []
    p = segment.Potentials(*tables, segments=nothing, segment_scores=np.zeros((0, 2)))
    assert segment.log_partition(p) == segment.log_partition(segment.Potentials(*tables))


def test_numbers_of_segmentations_are_checked() -> None:
    p = segment.Potentials(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    for k in (0, 1.5, "a", True):
        with pytest.raises(ValueError, match="'k' of nbest must be an int >= 1, got"):
            segment.nbest(p, k)  # type: ignore[arg-type]
    for n in (-1, 1.5, "a"):
        with pytest.raises(ValueError, match="'n' of sample must be an int >= 0, got"):
            segment.sample(p, n)  # type: ignore[arg-type]
    assert len(segment.nbest(p, 10**12).scores) == 6
    assert segment.sample(p, 0) == []


def test_the_order_of_a_tail_needs_a_tail() -> None:
    with pytest.raises(ValueError, match="'tail_order' needs a 'tail', got 3"):
        segment.Potentials(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)), tail_order=3)
