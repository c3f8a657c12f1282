"""Beams against enumeration within them, and against the exact kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import potentials

from crfkit import _core, chain
from crfkit.chain import (
    Adaptive,
    BeamMarginals,
    FixedSize,
    MinDivergence,
    Potentials,
    Threshold,
    decode,
    marginals,
    nbest,
)

rules = st.one_of(
    st.builds(MinDivergence, st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.0]), st.integers(1, 3)),
    st.builds(FixedSize, st.integers(1, 4)),
    st.builds(Threshold, st.sampled_from([0.0, 0.5, 2.0, 7.0])),
)


def alive(p: Potentials) -> bool:
    return bool(np.isfinite(oracle.log_partition(p)))


def beams_of(m: BeamMarginals) -> list[list[int]]:
    return [m.labels[a:b].tolist() for a, b in itertools.pairwise(m.ptr)]


def test_marginals_have_one_type() -> None:
    p = Potentials(np.zeros((3, 2)), np.zeros((2, 2)))
    found: list[chain.Marginals] = [
        chain.marginals(p),
        chain.marginals(p, pairs=True),
        chain.marginals(p, beam="fixed:2"),
    ]
    for m in found:
        assert isinstance(m, chain.Marginals)
        np.testing.assert_allclose(m.log_z, 3 * np.log(2))
        np.testing.assert_allclose(m.nodes, 0.5)
        np.testing.assert_allclose(m.edges, 0.25)
        assert m.edges is m.edges


def inside(p: Potentials, beams: list[list[int]]) -> Potentials:
    """The same lattice with only the beams' labels."""
    allowed = np.zeros(p.unary.shape, bool)
    for t, beam in enumerate(beams):
        allowed[t, beam] = True
    if p.allowed is not None:
        allowed &= p.allowed
    return Potentials(p.unary, p.pairwise, p.start, p.end, allowed)


def chosen(belief: Any, rule: Any, keep: int) -> list[int]:
    """The criterion by its definition: sort, and cut."""
    order = sorted((j for j in range(len(belief)) if belief[j] > 0), key=lambda j: (-belief[j], j))
    if isinstance(rule, FixedSize):
        beam = order[: rule.n]
    elif isinstance(rule, Threshold):
        beam = [j for j in order if np.log(belief[j]) >= np.log(belief[order[0]]) - rule.delta]
    else:
        beam = []
        for j in order:
            if sum(belief[i] for i in beam) >= np.exp(-rule.epsilon) * sum(belief) and len(beam) >= rule.min_size:
                break
            beam.append(j)
    return sorted({*beam, keep} - {-1})


@settings(max_examples=300)
@given(potentials(scales=(1.0, 5.0)), rules, st.integers(0, 2**32 - 1), st.booleans())
def test_frozen_beams_are_chosen_by_the_rule_and_exact_inside(p: Potentials, rule: Any, seed: int, keep: bool) -> None:
    if not alive(p):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            chain.marginals(p, beam=FixedSize(p.n_labels))
        return
    path = None
    if keep:  # an allowed path, as training has it
        good = [y for y, s in zip(oracle.all_paths(p), oracle.scores(p), strict=True) if np.isfinite(s)]
        path = np.array(good[seed % len(good)], int)
    try:
        m = chain.marginals(p, beam=rule, keep=path)
    except ValueError:
        assert path is None  # the beams may have no path in common; with a path kept they have
        return
    beams = beams_of(m)
    # each beam is what the rule picks from the exact forward message over the beams before
    u = p.lattice.unary
    alpha: Any = None
    for t, beam in enumerate(beams):
        if t == 0:
            message = np.exp(u[0])
        else:
            a = p.pairwise if p.pairwise.ndim == 2 else p.pairwise[t - 1]
            message = np.exp(u[t]) * sum(alpha[i] * np.exp(a[i]) for i in beams[t - 1])
        expected = chosen(message, rule, -1 if path is None else int(path[t]))
        if not isinstance(rule, MinDivergence) or t == 0 or len(expected) == len(beam):
            assert beam == expected
        kept = message[beam].sum() / message.sum()
        assert m.divergence[t] == pytest.approx(-np.log(kept), abs=1e-9)
        alpha = message
    q = inside(p, beams)
    assert m.log_z == pytest.approx(oracle.log_partition(q), abs=1e-9)
    assert m.log_z <= oracle.log_partition(p) + 1e-9
    np.testing.assert_allclose(m.nodes, oracle.nodes(q), atol=1e-9)
    np.testing.assert_allclose(m.edges, oracle.edges(q), atol=1e-9)
    if path is not None:
        assert chain.score(p, path) - m.log_z <= 1e-9  # no probability above one


@settings(max_examples=200)
@given(potentials(), st.sampled_from([MinDivergence(0.0), FixedSize(9), MinDivergence(0.0, 9)]))
def test_a_beam_of_everything_is_exact(p: Potentials, rule: Any) -> None:
    """Also for scores of 1e4, where the scaled pass does not serve."""
    if not alive(p):
        return
    exact, beam = chain.marginals(p), chain.marginals(p, beam=rule)
    scale = max(1.0, *(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in (p.unary, p.pairwise)))
    assert beam.log_z == pytest.approx(exact.log_z, abs=1e-10 * scale)
    np.testing.assert_allclose(beam.nodes, exact.nodes, atol=1e-10 * scale)
    np.testing.assert_allclose(beam.edges, exact.edges, atol=1e-10 * scale)
    paper = chain.marginals(p, beam=rule, form="paper")
    np.testing.assert_allclose(paper.nodes, exact.nodes, atol=1e-9 * scale)
    np.testing.assert_allclose(paper.edges, exact.edges, atol=1e-9 * scale)
    best = chain.decode(p, beam=rule)
    assert chain.score(p, best) == pytest.approx(chain.score(p, chain.decode(p)), abs=1e-10 * scale)
    for k in (1, 4):
        np.testing.assert_allclose(chain.nbest(p, k, beam=rule).scores, chain.nbest(p, k).scores, atol=1e-10 * scale)


@settings(max_examples=100)
@given(potentials(min_length=1, max_length=4, scales=(1.0,), constraints=False), rules)
def test_frozen_marginals_are_derivatives_of_the_mass(p: Potentials, rule: Any) -> None:
    m = chain.marginals(p, beam=rule)
    q = inside(p, beams_of(m))

    def mass(x: Any) -> float:
        return float(chain.log_partition(Potentials(x, q.pairwise, q.start, q.end, q.allowed)))

    np.testing.assert_allclose(m.nodes, oracle.finite_difference(mass, q.unary), atol=1e-8)


@settings(max_examples=150)
@given(potentials(min_length=1, scales=(1.0, 3.0), constraints=False), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_beams_of_true_marginals_lose_no_more_than_the_sum_of_their_parts(p: Potentials, epsilon: float) -> None:
    """The union bound: mass inside >= 1 - sum over steps of what each step lost."""
    nodes = chain.marginals(p).nodes
    beams = [chosen(row, MinDivergence(epsilon), -1) for row in nodes]
    lost = sum(1 - row[beam].sum() for row, beam in zip(nodes, beams, strict=True))
    share = np.exp(oracle.log_partition(inside(p, beams)) - oracle.log_partition(p))
    assert share >= 1 - lost - 1e-9


@settings(max_examples=150)
@given(potentials(min_length=2, scales=(1.0, 3.0), constraints=False), st.integers(1, 3))
def test_revising_fixed_beams_never_loses_mass(p: Potentials, n: int) -> None:
    forward = chain.marginals(p, beam=FixedSize(n))
    revised = chain.marginals(p, beam=FixedSize(n), form="paper")
    assert oracle.log_partition(inside(p, beams_of(revised))) >= forward.log_z - 1e-9


@settings(max_examples=100)
@given(potentials(min_length=1, scales=(1.0, 3.0)), rules)
def test_the_papers_form_is_normalised_step_by_step(p: Potentials, rule: Any) -> None:
    if not alive(p):
        return
    try:
        m = chain.marginals(p, beam=rule, form="paper")
    except ValueError:
        return
    np.testing.assert_allclose(m.nodes.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(m.edges.sum(axis=(1, 2)), 1, atol=1e-9)
    frozen = chain.marginals(p, beam=rule)
    assert m.log_z == pytest.approx(frozen.log_z, abs=1e-9)


def test_states_come_back_in_the_papers_backward_pass() -> None:
    """The first step prefers label 0 until the second step's evidence speaks for label 1."""
    p = Potentials(np.log([[0.6, 0.4], [0.5, 0.5]]), np.log([[0.01, 0.01], [0.9, 0.9]]))
    assert beams_of(chain.marginals(p, beam=FixedSize(1)))[0] == [0]
    assert beams_of(chain.marginals(p, beam=FixedSize(1), form="paper"))[0] == [1]


@settings(max_examples=100)
@given(potentials(max_length=4, scales=(1.0, 1e4)), rules, st.integers(1, 5))
def test_best_paths_lie_inside_of_the_beams(p: Potentials, rule: Any, k: int) -> None:
    if not alive(p):
        return
    try:
        best = chain.nbest(p, k, beam=rule)
    except ValueError:
        return
    assert len({tuple(x) for x in best.paths.tolist()}) == len(best)
    assert (np.diff(best.scores) <= 1e-9).all()
    for path, score in zip(best.paths.tolist(), best.scores, strict=True):
        assert oracle.path_score(p, tuple(path)) == pytest.approx(score, rel=1e-12, abs=1e-9)
    top = oracle.scores(p).max()
    assert best.scores[0] <= top + 1e-9 * max(1, abs(top))
    np.testing.assert_array_equal(chain.decode(p, beam=rule), best.paths[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [3, 22, 130])
def test_batches_threads_and_precision(labels: int, dtype: Any) -> None:
    rng = np.random.default_rng(labels)
    lengths = rng.integers(0, 12, size=30)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    unary = (3 * rng.normal(size=(offsets[-1], labels))).astype(dtype)
    p = Potentials(unary, rng.normal(size=(labels, labels)).astype(dtype), offsets=offsets)
    rule = MinDivergence(0.01, 2)
    m = chain.marginals(p, beam=rule, n_jobs=1)
    again = chain.marginals(p, beam=rule, n_jobs=3)
    np.testing.assert_array_equal(m.labels, again.labels)
    np.testing.assert_array_equal(m.edge_probabilities, again.edge_probabilities)
    tol = 1e-9 if dtype is np.float64 else 1e-4
    for s, one in enumerate(p):
        single = chain.marginals(one, beam=rule)
        a, b = offsets[s], offsets[s + 1]
        np.testing.assert_allclose(m.nodes[a:b], single.nodes, atol=tol)
        assert m.log_z[s] == pytest.approx(single.log_z, abs=tol * 10)
    assert m.sizes.min() >= 2
    exact = chain.marginals(p)
    assert (m.log_z <= exact.log_z + tol * 10).all()
    paths = chain.decode(p, beam=rule)
    assert [len(x) for x in paths] == lengths.tolist()
    assert len(chain.nbest(p, 2, beam=rule)) == 30


P = Potentials(np.zeros((2, 2)), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinDivergence(-1.0), "'epsilon' of MinDivergence must be a number >= 0"),
        (lambda: MinDivergence(0.1, 0), "'min_size' of MinDivergence must be an int >= 1"),
        (lambda: MinDivergence(float("nan")), "'epsilon'"),
        (lambda: FixedSize(0), "'n' of FixedSize must be an int >= 1"),
        (lambda: FixedSize(2.5), "'n' of FixedSize"),  # type: ignore[arg-type]
        (lambda: Threshold(-0.1), "'delta' of Threshold"),
        (lambda: chain.marginals(P, beam=FixedSize(1), form="other"), "'form' must be"),  # type: ignore[call-overload]
        (lambda: chain.marginals(P, beam=FixedSize(1), keep=[0]), "must have shape"),
        (lambda: chain.marginals(P, beam=FixedSize(1), keep=[0, 9]), "label numbers from -1 to 1"),
    ],
)
def test_bad_beams_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_core_takes_no_word_that_it_does_not_know() -> None:
    arrays = Potentials(np.zeros((3, 2)), np.zeros((2, 2))).lattice
    with pytest.raises(ValueError, match="there is no beam 'widest'"):
        _core.nbest(arrays, 1, ("widest", 0.0, 1), 2)
    with pytest.raises(ValueError, match="there is no form of beams 'round'"):
        _core.beam_sum_product(arrays, 1, FixedSize(1).core(), None, "round")


def test_a_beam_that_loses_every_path() -> None:
    p = Potentials([[0.0, 5.0], [0.0, 0.0]], [[0.0, 0.0], [-np.inf, -np.inf]])
    assert decode(p, beam=FixedSize(1)).tolist() == decode(p).tolist()
    for form in ("frozen", "smoothed", "paper"):
        with pytest.raises(ValueError, match="the beam fixed:1 discarded every permitted labelling: use a larger one"):
            marginals(p, beam=FixedSize(1), form=form)
    with pytest.raises(ValueError, match="the beam fixed:1 discarded every permitted labelling"):
        nbest(p, 2, beam=FixedSize(1))
    nothing = Potentials([[0.0, 5.0], [0.0, 0.0]], np.full((2, 2), -np.inf))
    for ask in (decode, marginals):
        with pytest.raises(ValueError, match="no labelling is allowed"):
            ask(nothing, beam=FixedSize(1))


@pytest.mark.parametrize(
    ("beam", "message"),
    [
        (Adaptive(), "must not be Adaptive"),
        (3, "'beam' must be MinDivergence"),
        (FixedSize, "'beam' must be"),
        ("fixed:", "not a whole"),
    ],
)
def test_what_is_no_beam(beam: Any, message: str) -> None:
    p = Potentials(np.zeros((3, 2)), np.zeros((2, 2)))
    asks: Any = (decode, marginals, lambda p, beam: nbest(p, 2, beam=beam))
    for ask in asks:
        with pytest.raises(ValueError, match=message):
            ask(p, beam=beam)
    assert asks[0](p, beam="fixed:1").tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="'n' of FixedSize must be an int >= 1"):
        FixedSize(2**31)
    with pytest.raises(ValueError, match="'keep' and 'form' of marginals need a 'beam'"):
        marginals(p, keep=[0, 0, 0])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="keep of sequence 0 must have shape"):
        marginals(p, beam=FixedSize(1), keep=[0])
