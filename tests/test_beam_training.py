"""Training within beams: the gradient, the ways back to the exact optimum, and what is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit import CRF, Template, load
from crfkit.chain import Adaptive, FixedSize, MinDivergence, Potentials, Threshold, log_partition, marginals
from crfkit.chain.beams import as_beam
from crfkit.training import LBFGS, BeamObjective, BeamReport

RULES = [MinDivergence(0.05), MinDivergence(0.3, 2), FixedSize(2), FixedSize(4), Threshold(1.0)]


def data(seed: int = 0, n: int = 60, labels: int = 9, told: float = 0.6) -> tuple[list[list[Any]], list[list[str]]]:
    """Labels that follow a chain, and tokens that tell them in part; with values."""
    rng = np.random.default_rng(seed)
    steps = rng.dirichlet(np.full(labels, 0.2), labels)
    X, y = [], []
    for _ in range(n):
        at, tokens, names = int(rng.integers(labels)), [], []
        for _ in range(int(rng.integers(0, 9))):
            at = int(rng.choice(labels, p=steps[at]))
            word = at if rng.random() < told else int(rng.integers(labels))
            tokens.append({f"w{word}": 1.0, f"v{word % 3}": 0.5 + word})
            names.append(f"L{at}")
        X.append(tokens)
        y.append(names)
    return X, y


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_held_beams(rule: Any, weighted: bool) -> None:
    X, y = data()
    weights = np.linspace(0, 2, len(X)) if weighted else None
    f = CRF(dtype="float64", c2=0.1).objective(X, y, weights)
    rng = np.random.default_rng(1)
    w = rng.normal(size=f.size)
    average, largest, _ = f.choose_beams(w, rule)
    assert 1 <= average <= largest <= 9
    value, gradient = f.value_and_grad(w)
    for k in rng.permutation(f.size)[:40]:
        step = np.zeros(f.size)
        step[k] = 1e-5
        slope = (f.value_and_grad(w + step)[0] - f.value_and_grad(w - step)[0]) / 2e-5
        assert slope == pytest.approx(gradient[k], abs=1e-6)
    f.drop_beams()
    assert f.value_and_grad(w)[0] >= value - 1e-9  # the beams hold part of Z


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.booleans())
def test_all_labels_in_the_beam_are_the_exact_objective(seed: int, constrained: bool) -> None:
    X, y = data(seed, 12, 5)
    if not any(y):
        return
    rules = [("L0", "L1")] if constrained and "L0" in {a for s in y for a in s} >= {"L0", "L1"} else None
    try:
        f = CRF(dtype="float64", constraints=rules).objective(X, y)
    except ValueError:  # the data breaks the rule
        return
    w = np.random.default_rng(seed).normal(0, 2, f.size)
    value, gradient = f.value_and_grad(w)
    for rule in (MinDivergence(0.0), FixedSize(5), Threshold(1e4)):
        f.choose_beams(w, rule)
        inside, slope = f.value_and_grad(w)
        assert inside == pytest.approx(value, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(slope, gradient, atol=1e-9)
        f.drop_beams()


def test_training_beams_hold_the_most_probable_labels() -> None:
    X, y = data(3)
    crf = CRF(dtype="float64").fit(X, y)
    f = crf.objective(X, y)
    rule = MinDivergence(0.1, 2)
    average, largest, fresh = f.choose_beams(crf.weights_, rule)
    number = {label: i for i, label in enumerate(crf.classes_)}
    p: Potentials = crf.potentials(X)
    keep = [np.array([number[label] for label in s], int) for s in y]
    nodes = np.asarray(marginals(p).nodes)
    sizes = []
    forbidden = np.zeros(nodes.shape)
    for row, gold, out in zip(nodes, np.concatenate(keep), forbidden, strict=True):
        order = np.argsort(-row)
        n = max(2, int(np.searchsorted(np.cumsum(row[order]), np.exp(-0.1))) + 1)
        beam = {*order[:n].tolist(), int(gold)}
        out[[j for j in range(len(row)) if j not in beam]] = -np.inf
        sizes.append(len(beam))
    assert average == fresh == pytest.approx(np.mean(sizes))
    assert largest == max(sizes)
    assert f.n_blocks == 1
    assert f.beam_sizes(crf.weights_, rule, 0) == pytest.approx((average, np.sqrt(np.mean(np.square(sizes)))))
    value, _ = f.value_and_grad(crf.weights_)
    penalty = float(crf.weights_ @ crf.weights_)
    inside = Potentials(p.unary + forbidden, p.pairwise, start=p.start, end=p.end, offsets=p.offsets)
    gold_score = sum(float(np.sum(log)) for log in _gold_scores(p, keep))
    assert value - penalty == pytest.approx(float(np.sum(log_partition(inside))) - gold_score, rel=1e-9)


def test_beams_that_grow_keep_their_labels() -> None:
    X, y = data(4)
    f = CRF(dtype="float64").objective(X, y)
    rng = np.random.default_rng(0)
    rule = MinDivergence(0.3, 1)
    first, second = (rng.normal(size=f.size) for _ in range(2))
    f.choose_beams(first, rule)
    alone = f.value_and_grad(first)[0]
    average, _, fresh = f.choose_beams(second, rule, grow=True)
    assert average > fresh
    assert f.value_and_grad(first)[0] >= alone  # no path is lost
    assert f.choose_beams(second, rule)[0] == fresh
    assert f.value_and_grad(first)[0] < alone  # some are, where the beams are chosen afresh


def _gold_scores(p: Potentials, paths: list[Any]) -> Any:
    from crfkit.chain import score

    return [np.asarray(score(p, paths))]


def test_adaptive_ends_at_the_exact_optimum() -> None:
    X, y = data(5, 100, 40)
    exact = CRF(dtype="float64", tol=1e-8).fit(X, y)
    adaptive = CRF(dtype="float64", tol=1e-8, beam=Adaptive(epsilon=1.0, min_size=1)).fit(X, y)
    assert adaptive.beams_ is not None
    assert adaptive.beams_.chosen > 0
    assert adaptive.beams_.exact
    assert adaptive.result_.value == pytest.approx(exact.result_.value, rel=1e-6)


def check_training(crf: CRF, exact: CRF, X: Any, y: Any, factor: float) -> BeamReport:
    """Beams were in use to the end, and led about where exact training did."""
    report = crf.beams_
    assert report is not None
    assert not report.exact
    assert 0 < report.mass <= 1
    assert 0 <= report.gap < 0.5
    assert report.gradient_error > 0
    assert abs(crf.score(X, y) - exact.score(X, y)) < 0.05
    assert exact.objective(X, y).value_and_grad(crf.weights_)[0] < factor * exact.result_.value
    return report


@pytest.mark.parametrize("beam", [MinDivergence(0.05, 8), FixedSize(12), Threshold(8.0), "min-divergence:0.1:8"])
def test_training_inside_of_beams(beam: Any) -> None:
    X, y = data(6, 300, 20, 0.97)
    exact = CRF().fit(X, y)
    crf = CRF(beam=beam).fit(X, y)
    assert 1 <= check_training(crf, exact, X, y, 1.5).average < 20


def test_a_start_on_a_part_of_the_data() -> None:
    X, y = data(7, 200, 8)
    plain = CRF(tol=1e-7).fit(X, y)
    part = CRF(tol=1e-7, warm_start_fraction=0.12, random_state=0).fit(X, y)
    again = CRF(tol=1e-7, warm_start_fraction=0.12, random_state=0).fit(X, y)
    assert part.result_.value == pytest.approx(plain.result_.value, rel=1e-5)
    assert np.array_equal(part.weights_, again.weights_)


def test_beams_when_predicting(tmp_path: Any) -> None:
    X, y = data(8, 100, 12)
    crf = CRF(beam=FixedSize(6)).fit(X, y)
    assert crf.predict(X, beam=FixedSize(12)) == crf.predict(X)
    assert crf.predict(X, beam="threshold:1000") == crf.predict(X)
    assert len(crf.predict(X, beam=MinDivergence(0.1))) == len(X)
    crf.save(tmp_path / "m")
    assert load(tmp_path / "m", kind=CRF).beam == "fixed:6"
    with pytest.raises(ValueError, match="'beam' of predict must not be Adaptive"):
        crf.predict(X, beam="adaptive")


@pytest.mark.parametrize(
    ("beam", "message"),
    [
        ("narrow:3", "'beam' must begin with"),
        ("fixed", "takes 1 number"),
        ("fixed:0", "'n' of FixedSize must be an int >= 1"),
        ("fixed:x", "'beam' 'fixed:x'"),
        ("min-divergence:-1", "'epsilon' of MinDivergence"),
        (7, "'beam' must be MinDivergence"),
    ],
)
def test_bad_beams(beam: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF(beam=beam).fit([["a"]], [["A"]])
    with pytest.raises(ValueError, match="'warm_start_fraction' of CRF"):
        CRF(warm_start_fraction=1.5).fit([["a"]], [["A"]])


def test_beams_read_their_own_text() -> None:
    beams: list[Any] = [*RULES, MinDivergence(0.123456789), Adaptive(0.5, 3, 0.1, 2.0)]
    for beam in beams:
        assert as_beam(beam.text()) == beam


def test_transitions_that_look_at_the_input_have_no_beams() -> None:
    crf = CRF(Template("U:%x[0,0]\nB:%x[0,0]"), beam=FixedSize(2))
    with pytest.raises(ValueError, match="transitions look at the input"):
        crf.fit([["a", "b"]], [["A", "B"]])


def test_a_gap_that_grows_is_noticed() -> None:
    X, y = data(9, 200, 20)
    exact = CRF(dtype="float64").objective(X, y)
    start = np.random.default_rng(1).normal(0, 1, exact.size)
    f = BeamObjective(exact, FixedSize(2), start)
    w = np.random.default_rng(0).normal(0, 3, exact.size)
    # a step to anywhere gains nothing that the lost labels do not explain
    assert f.review(start, w, 1e-3, False) is not None
    assert f.report.chosen == 2


def test_a_search_that_ends_early_gives_no_worse_weights() -> None:
    X, y = data(6, 200, 20)
    exact = CRF(dtype="float64").objective(X, y)
    good = LBFGS().minimize(exact, np.zeros(exact.size), max_iter=15).w
    bad = good + np.random.default_rng(0).normal(size=exact.size)
    watched = BeamObjective(exact, FixedSize(3), good)
    assert watched.uses_beams
    np.testing.assert_array_equal(watched.better(bad), good)
    best = LBFGS().minimize(CRF(dtype="float64").objective(X, y), good).w
    np.testing.assert_array_equal(watched.better(best), best)


def test_tries_that_fail_grow_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of nine labels are in beams of divergence 0; nobody asks at every other iteration."""
    X, y = data(6)
    f = CRF(dtype="float64", c2=0.01).objective(X, y)
    beam_sizes, asked = f.beam_sizes, []

    def ask(*arguments: Any) -> tuple[float, float]:
        asked.append(beam_sizes(*arguments))
        return asked[-1]

    monkeypatch.setattr(f, "beam_sizes", ask)
    w = np.random.default_rng(0).normal(size=f.size)
    g = BeamObjective(f, MinDivergence(0.0), w)
    for _ in range(100):
        assert g.review(w, w, 1.0, False) is None
    assert not g.uses_beams
    assert 5 <= len(asked) <= 7
