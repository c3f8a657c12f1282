"""Beams chosen afresh at every sequence, for the optimisers that step after each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limited import run_limited
from test_beam_training import RULES, check_training, data
from test_optimizers import by_sequence

from crfkit import CRF
from crfkit.chain import Adaptive, FixedSize, MinDivergence, Threshold, marginals, score
from crfkit.data import load_corpus
from crfkit.training import AROW, SAG, SGD, SMD, PassiveAggressive, Perceptron, SequenceObjective


def objective(X: Any, y: Any, weights: Any = None, **how: Any) -> SequenceObjective:
    """What training with ``how`` looks at."""
    crf = CRF(algorithm="sgd", dtype="float64", **how)
    found = by_sequence(crf, X, y, weights)
    assert isinstance(found, SequenceObjective)
    return found


def gradient(f: SequenceObjective, w: Any) -> tuple[float, Any]:
    """Sum of the losses, and its gradient, at w."""
    f.native.set_weights(w)
    out = np.empty(f.size)
    return f.native.gradient(np.arange(f.n_sequences), out), out


@pytest.mark.parametrize("rule", RULES)
def test_the_mass_is_that_of_inference_inside_of_beams(rule: Any) -> None:
    X, y = data()
    crf = CRF(dtype="float64", max_iter=8).fit(X, y)
    names = crf.classes_.tolist()
    gold = [np.array([names.index(a) for a in labels], np.int32) for labels in y]
    p = crf.potentials(X)
    mass = np.asarray(marginals(p, beam=rule, keep=gold).log_z)
    value, _ = gradient(objective(X, y, beam=rule), crf.weights_)
    assert value == pytest.approx(mass.sum() - np.asarray(score(p, gold)).sum(), rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_mass(rule: Any, weighted: bool) -> None:
    X, y = data(3)
    weights = np.linspace(0, 2, len(X)) if weighted else None
    f = objective(X, y, weights, beam=rule)
    rng = np.random.default_rng(1)
    w = rng.normal(size=f.size)
    value, slopes = gradient(f, w)
    order = np.arange(f.n_sequences)
    for k in rng.permutation(f.size)[:40]:
        ahead, behind = w.copy(), w.copy()
        ahead[k] += 1e-6
        behind[k] -= 1e-6
        values = []
        for at in (ahead, behind):
            f.native.set_weights(at)
            values.append(f.native.loss(order))
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(slopes[k], abs=1e-5)
    assert value <= gradient(objective(X, y, weights), w)[0] + 1e-9  # the beams hold part of Z


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1.0, 5.0, 60.0]))
def test_a_beam_of_all_labels_is_exact(seed: int, constrained: bool, scale: float) -> None:
    X, y = data(seed, 12, 5)
    if not any(y):
        return
    rules = [("L0", "L1")] if constrained and {a for s in y for a in s} >= {"L0", "L1"} else None
    try:
        exact = objective(X, y, constraints=rules)
    except ValueError:  # the data breaks the rule
        return
    w = np.random.default_rng(seed).normal(0, scale, exact.size)
    value, slopes = gradient(exact, w)
    for rule in (MinDivergence(0.0), FixedSize(5), Threshold(1e4)):
        inside, found = gradient(objective(X, y, constraints=rules, beam=rule), w)
        if scale < 60:
            assert inside == pytest.approx(value, rel=1e-10, abs=1e-10)
            np.testing.assert_allclose(found, slopes, atol=1e-9)
        else:  # what is beyond the range of numbers is not looked for
            assert inside <= value + 1e-9 * abs(value)
            assert np.isfinite(found).all()


@pytest.mark.parametrize("algorithm", ["sgd", "adagrad", SGD(learning_rate=0.02, batch_size=4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training(algorithm: Any, dtype: str) -> None:
    """Steps are small enough for runs that differ by rounding to stay together; what is left is what beams hide."""
    X, y = data(6, 300, 20, 0.97)
    exact = CRF(algorithm=algorithm, dtype=dtype, max_iter=10).fit(X, y)
    crf = CRF(algorithm=algorithm, dtype=dtype, max_iter=10, beam=FixedSize(6)).fit(X, y)
    report = check_training(crf, exact, X, y, 1.2)
    assert 6 <= report.average <= 7
    assert report.chosen == crf.n_iter_
    assert report.mass < 1
    assert report.gap > 0


@pytest.mark.parametrize(("beam", "factor"), [(MinDivergence(0.1, 2), 1.2), (Threshold(3.0), 1.6)])
def test_training_where_beliefs_are_sharp(beam: Any, factor: float) -> None:
    X, y = load_corpus("ingredients", "train")
    exact, crf = (CRF(algorithm="sgd", c2=0.1, max_iter=10, beam=b).fit(X, y) for b in (None, beam))
    assert 1 < check_training(crf, exact, X, y, factor).average < 3


def test_adaptive_beams_tighten_until_all_labels_are_in_use() -> None:
    X, y = data(5, 100, 40)
    exact = CRF(algorithm="sgd", dtype="float64", max_iter=40).fit(X, y)
    crf = CRF(algorithm="sgd", dtype="float64", max_iter=40, beam=Adaptive(epsilon=1.0, min_size=1)).fit(X, y)
    assert crf.beams_ is not None
    assert crf.beams_.exact
    assert crf.result_.value == pytest.approx(exact.result_.value, rel=0.01)


def test_labels_known_in_part_are_looked_at_exactly() -> None:
    X, y = data(2, 40, 8)
    hidden: Any = [[None if t % 2 else a for t, a in enumerate(labels)] for labels in y]
    f, inside = (objective(X, hidden, beam=beam) for beam in (None, FixedSize(1)))
    w = np.random.default_rng(0).normal(size=f.size)
    known = [all(a is not None for a in labels) for labels in hidden]
    assert any(known)
    assert not all(known)
    for s in range(f.n_sequences):
        values = []
        for g in (f, inside):
            g.native.set_weights(w)
            values.append(g.native.loss(np.array([s])))
        assert known[s] or values[0] == pytest.approx(values[1], rel=1e-12)


def test_scores_far_below_zero() -> None:
    X, y = data(1, 20, 7)  # seven labels leave one number of a vector unused
    exact = objective(X, y)
    w = np.full(exact.size, -100.0)
    value, slopes = gradient(exact, w)
    inside, found = gradient(objective(X, y, beam=FixedSize(7)), w)
    assert inside == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(found, slopes, atol=1e-9)


def test_no_sequence_with_all_its_labels() -> None:
    X, y = data(2, 20, 4)
    hidden: Any = [[None, *labels[1:]] if len(labels) > 1 else None for labels in y]
    crf = CRF(algorithm="sgd", beam=FixedSize(2), max_iter=3).fit(X, hidden)
    assert crf.beams_ is not None
    assert crf.beams_.exact


def test_light_sequences_count() -> None:
    X, y = data(3, 20, 5)
    heavy, light = objective(X, y), objective(X, y, np.full(len(X), 1e-9))
    w = np.random.default_rng(0).normal(size=heavy.size)
    np.testing.assert_allclose(1e9 * gradient(light, w)[1], gradient(heavy, w)[1], atol=1e-6)


def test_a_second_run_begins_anew() -> None:
    X, y = data(5, 100, 40)
    f = objective(X, y, beam=Adaptive(epsilon=1.0, min_size=1))
    first = SGD(learning_rate=0.1).minimize(f, max_iter=12)
    second = SGD(learning_rate=0.1).minimize(f, max_iter=12)
    np.testing.assert_array_equal(first.w, second.w)


def test_what_has_no_beams() -> None:
    X, y = data(1, 10, 4)
    f = objective(X, y, beam=FixedSize(2))
    for how in (Perceptron(), PassiveAggressive(), AROW(), SAG(), SMD()):
        with pytest.raises(ValueError, match="does not support beams"):
            how.minimize(f)
    higher = objective(X, y, order=2)
    for how in (Perceptron(), PassiveAggressive(), AROW(), SAG(), SMD()):
        with pytest.raises(ValueError, match="does not support orders"):
            how.minimize(higher)
    for name, how_to in (("sag", (0.1, 1)), ("smd", (0.1, 0.1, 0.9, 0.1, 1.0, 2))):
        with pytest.raises(ValueError, match=f"'{name}' cannot be used within beams, nor for models of a higher order"):
            getattr(higher.native, name)(np.arange(3), *how_to)
    for algorithm in ("smd", "sag", "pa", "ap", "arow", "newton-cg"):
        with pytest.raises(ValueError, match=r"'beam' of CRF must be None .* 'lbfgs', 'sgd', 'adagrad'"):
            CRF(algorithm=algorithm, beam=FixedSize(2)).fit([["a"]], [["A"]])


def test_large_beams_give_way_to_all_labels() -> None:
    X, y = data(4, 60, 12, 0.2)
    crf = CRF(algorithm="sgd", beam=MinDivergence(1e-3, 6), max_iter=2).fit(X, y)
    assert crf.beams_ is not None
    assert crf.beams_.exact
    assert crf.beams_.average == 12
    fixed = CRF(algorithm="sgd", beam=FixedSize(6), max_iter=2).fit(X, y)
    assert fixed.beams_ is not None
    assert not fixed.beams_.exact


def test_beams_need_no_room_for_all_label_pairs_of_all_tokens() -> None:
    code = """
    from crfkit.chain import FixedSize

    def stop(progress, w):
        print(progress.iteration)
        raise RuntimeError  # before the objective is computed without beams

    n = 800
    template = Template("U0:%x[0,0]\\nB\\nB0:%x[0,0]")
    crf = CRF(template, algorithm="sgd", beam=FixedSize(4), n_jobs=1, callback=stop)
    try:
        crf.fit([[f"w{i % 7}" for i in range(n)]], [[f"L{i}" for i in range(n)]])
    except RuntimeError:
        pass
    """
    assert run_limited(code, megabytes=1024) == "1\n"  # 2 GB for [tokens - 1][labels][labels]
