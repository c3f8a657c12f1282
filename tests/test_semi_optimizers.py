"""Partly labelled and unlabelled sequences with every optimiser: losses, steps by hand, and where they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_objective import Case, coming_back, spread
from test_optimizers import CASES, EDGES, PLAIN, by_sequence, features_of, problem
from test_semi import big, objective_of, partly_known, value_by_enumeration

from crfkit import CRF, chain
from crfkit.data import load_corpus
from crfkit.training import SequenceObjective
from crfkit.training.registry import find_algorithm
from crfkit.training.stochastic import Stochastic

STOCHASTIC = ["sgd", "smd", "adagrad", "sag"]
MARGIN = ["ap", "pa", "arow"]


def sequences_of(case: Case, dtype: Any = np.float64) -> SequenceObjective:
    found = objective_of(case, dtype, make=SequenceObjective)
    assert isinstance(found, SequenceObjective)
    return found


def gradient_by_a_step(f: SequenceObjective, w: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
    """The losses and the gradient of all sequences, without penalty, as a step of SGD shows them."""
    n = f.n_sequences
    f.native.set_weights(w)
    eta = 1e-3
    loss = f.native.sgd(np.arange(n), eta, 0.0, 0.0, 1.0, 0, max(n, 1), False)
    return loss, (w - f.weights()) / eta


@settings(max_examples=200)
@given(partly_known())
def test_losses_equal_enumeration(case: Case) -> None:
    f = sequences_of(case)
    if not f.n_sequences:  # nobody bears the penalty
        return
    assert f.value(case["w"]) == pytest.approx(value_by_enumeration(case, case["w"]), rel=1e-9, abs=1e-8)
    value, gradient = f.value_and_grad(case["w"])
    assert value == pytest.approx(f.value(case["w"]), rel=1e-12, abs=1e-9)
    np.testing.assert_allclose(gradient, objective_of(case).value_and_grad(case["w"])[1], rtol=1e-7, atol=1e-7)
    known = value_by_enumeration({**case, "eta": 0.0}, case["w"]) - f.penalty(case["w"])
    terms = f.terms_of(f.native.loss(np.arange(f.n_sequences)))
    assert terms["likelihood"] == pytest.approx(known, rel=1e-9, abs=1e-8)


def in_both_precisions(case: Case, w: np.ndarray[Any, Any]) -> list[tuple[float, np.ndarray[Any, Any]]]:
    """Losses and gradients, in double and in single precision."""
    found = []
    for dtype in (np.float64, np.float32):
        f, gradient = sequences_of(case, dtype), np.zeros(len(w))
        f.native.set_weights(w)
        found.append((f.native.gradient(np.arange(f.n_sequences), gradient), gradient))
    return found


def test_what_comes_back_is_not_lost() -> None:
    case = coming_back()
    case |= {"known": case["gold"], "hints": np.zeros((0, 2)), "eta": 0.0, "per": "token"}
    (value, gradient), (single, single_gradient) = in_both_precisions(case, case["w"])
    assert value == pytest.approx(value_by_enumeration(case, case["w"]))
    assert single == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(single_gradient, gradient, atol=1e-5)


@pytest.mark.parametrize("transitions", [0.1, 4.0, 40.0])
def test_huge_weights(transitions: float) -> None:
    """Labels that underflow in single precision, with and without the way through log space."""
    case = {**big(5), "c2": 0.0, "eta": 0.0}
    w = spread(case, transitions)
    (value, gradient), (single, single_gradient) = in_both_precisions(case, w)
    assert single == pytest.approx(value, rel=1e-5)
    assert np.linalg.norm(single_gradient - gradient) < 1e-3 * np.linalg.norm(gradient)


@settings(max_examples=100)
@given(partly_known())
def test_derivatives_equal_finite_differences(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    f = sequences_of({**case, "c2": 0.0})
    value, gradient = gradient_by_a_step(f, w)
    assert value == pytest.approx(f.value(w), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(gradient, oracle.finite_difference(f.value, w), rtol=1e-5, atol=1e-6)


@settings(max_examples=60)
@given(partly_known())
def test_float32_is_near(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    f, single = sequences_of(case), sequences_of(case, np.float32)
    assert single.value(w) == pytest.approx(f.value(w), rel=1e-5, abs=2e-4)


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (70, False), (5, True)])
@pytest.mark.parametrize("scale", [1, 40])
def test_the_same_objective_as_block_by_block(labels: int, edges: bool, scale: int) -> None:
    """Also with huge weights that need log space, and in single precision."""
    case = {**big(labels, edges), "c2": 0.0}
    w = case["w"] * scale
    value, gradient = objective_of(case).value_and_grad(w)
    loss, slope = gradient_by_a_step(sequences_of(case), w)
    assert loss == pytest.approx(value, rel=1e-9)
    assert np.linalg.norm(slope - gradient) < 1e-7 * np.linalg.norm(gradient)
    single = sequences_of(case, np.float32)
    assert single.value(w) == pytest.approx(value, rel=1e-6 if scale == 1 else 1e-4)


def test_long_unlabelled_sequences_in_single_precision() -> None:
    """Sums do not grow along the sequence: they are centred."""
    rng = np.random.default_rng(0)
    X = [[f"w{k}" for k in rng.integers(0, 30, 2000)], ["w1", "w2"]]
    gradient = {}
    for dtype in ("float32", "float64"):
        crf = CRF(PLAIN, algorithm="sgd", dtype=dtype, entropy_weight=1.0, c2=0.0, all_possible_states=True)
        f = by_sequence(crf, X, [None, ["A", "B"]])
        w = np.random.default_rng(1).normal(size=f.size) * 2 + 5
        f.native.set_weights(w)
        f.native.sgd(np.array([1]), 1.0, 0.0, 0.0, 1.0, 0, 1, False)  # unlabelled ones come last
        gradient[dtype] = w - f.weights()
    error = np.linalg.norm(gradient["float32"] - gradient["float64"])
    assert 0 < error < 1e-4 * np.linalg.norm(gradient["float64"])


@settings(max_examples=60)
@given(partly_known(), st.integers(0, 1000))
def test_hessian_products(case: Case, seed: int) -> None:
    """Exact for what is known; of the entropy, a central difference, which single precision makes rough."""
    w = np.clip(case["w"], -3, 3)
    v = np.random.default_rng(seed).normal(size=len(w))
    f = objective_of(case)
    step = 1e-5
    expected = (f.value_and_grad(w + step * v)[1] - f.value_and_grad(w - step * v)[1]) / (2 * step)
    size = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(f.hessian_product(w, v), expected, atol=1e-6 * size)
    single = objective_of(case, np.float32).hessian_product(w, v)
    np.testing.assert_allclose(single, expected, atol=2e-2 * size)


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (5, True)])
@pytest.mark.parametrize("scale", [1, 40])
def test_hessian_products_of_blocks(labels: int, edges: bool, scale: int) -> None:
    """Threads change no bit; huge weights need log space."""
    case = {**big(labels, edges), "c2": 0.0}
    w, v = case["w"] * scale, np.random.default_rng(2).normal(size=len(case["w"]))
    f = objective_of(case, n_jobs=1)
    product = f.hessian_product(w, v)
    np.testing.assert_array_equal(objective_of(case, n_jobs=3).hessian_product(w, v), product)
    step = 1e-5
    expected = (f.value_and_grad(w + step * v)[1] - f.value_and_grad(w - step * v)[1]) / (2 * step)
    assert np.linalg.norm(product - expected) < 1e-4 * np.linalg.norm(expected)


def partial_problem(seed: int, **how: Any) -> tuple[Any, Any]:
    """Sequences with labels hidden, and sets; every label occurs."""
    X, y = problem(seed, n=8)
    rng = np.random.default_rng(seed)
    for s in y:
        for t in range(len(s)):
            if how.get("constraints") and t and s[t - 1] == s[t] == "L0":
                s[t] = "L1"
    hidden = [
        [x if k < 0.4 else {x, "L2"} if k < 0.7 else None for x, k in zip(row, rng.random(len(row)), strict=True)]
        for row in y
    ]
    return [*X, ["w0", "w1", "w2"]], [*hidden, ["L0", "L1", "L2"]]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("seed", range(4))
def test_two_steps_of_smd_by_hand(case: dict[str, Any], seed: int) -> None:
    """The second step needs the product of the Hessian with how the weights depend on the steps."""
    X, y = partial_problem(seed, **case)
    crf = CRF(**case, dtype="float64", c2=0.3)
    g = crf.objective(X, y)
    f = by_sequence(crf.set_params(algorithm="smd"), X, y)
    n = f.n_sequences
    w = np.random.default_rng(seed).normal(size=f.size)
    f.native.set_weights(w)
    f.native.smd(np.arange(n), 1e-3, 0.0, 0.9, f.decay, 1.0, n)
    gradient = g.value_and_grad(w)[1]
    eta = (w - f.weights()) / gradient  # each weight's own, and mu is 0
    v = -eta * gradient
    w = w + v
    f.native.smd(np.arange(n), 1e-3, 0.0, 0.9, f.decay, 1.0, n)
    gradient = g.value_and_grad(w)[1]
    v = 0.9 * v - eta * (gradient + 0.9 * g.hessian_product(w, v))
    w = w - eta * gradient
    np.testing.assert_allclose(f.weights(), w, atol=1e-12)
    f.native.smd(np.arange(n), 1e-3, 0.5, 0.9, f.decay, 1.0, n)  # now mu shows v
    gradient = g.value_and_grad(w)[1]
    w = w - eta * np.clip(1 - 0.5 * gradient * v, 0.5, 2) * gradient
    np.testing.assert_allclose(f.weights(), w, atol=1e-9)


def hidden_ingredients(known: float, sets: float) -> tuple[Any, Any]:
    """A hundred lines of the sample, this part of whose labels is known, and that part but one of two."""
    X, y = load_corpus("ingredients", "train")
    rng = np.random.default_rng(0)
    return list(X[:100]), [
        [
            x if k < known else {x, "O"} if k < known + sets else None
            for x, k in zip(row, rng.random(len(row)), strict=True)
        ]
        for row in y[:100]
    ]


@pytest.mark.parametrize("name", ["newton-cg", *STOCHASTIC])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_partial_labels_end_at_the_same_optimum(name: Any, dtype: str) -> None:
    X, y = hidden_ingredients(0.7, 0.0)
    best = CRF(c2=1.0, tol=1e-9, dtype="float64").fit(X, y)
    f = best.objective(X, y)
    tol = 1e-5 if name == "newton-cg" else 0
    crf = CRF(algorithm=name, c2=1.0, tol=tol, max_iter=150, dtype=dtype).fit(X, y)
    for value in (crf.result_.value, f.value_and_grad(crf.weights_)[0]):
        assert best.result_.value * (1 - 1e-6) < value < best.result_.value * (1 + 1e-3)


@pytest.mark.parametrize("name", ["newton-cg", *STOCHASTIC])
def test_partial_labels_end_at_a_minimum(name: Any) -> None:
    """With fewer labels there are several; whichever is found, L-BFGS finds nothing much better from there."""
    X, y = hidden_ingredients(0.6, 0.2)
    best = CRF(c2=1.0).fit(X, y).result_.value
    crf = CRF(algorithm=name, c2=1.0, tol=1e-7, max_iter=150, warm_start=True).fit(X, y)
    found = crf.result_.value
    assert found < 1.02 * best
    assert found * (1 - 1e-3) < crf.set_params(algorithm="lbfgs").fit(X, y).result_.value < found * (1 + 1e-5)


@pytest.mark.parametrize("name", ["newton-cg", *STOCHASTIC])
def test_entropy_ends_near_where_lbfgs_does(name: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X = list(X[:160])
    known = [list(row) if i < 40 else None for i, row in enumerate(y[:160])]
    settings: dict[str, Any] = {"c2": 0.5, "entropy_weight": 0.2, "random_state": 0}
    best = CRF(**settings, tol=1e-7).fit(X, known)
    seen: list[Any] = []
    crf = CRF(algorithm=name, **settings, tol=1e-6, max_iter=100, callback=lambda p, w: seen.append(p)).fit(X, known)
    assert {"likelihood", "entropy"} == set(seen[-1].terms)
    first = [p.terms["entropy"] for p in seen].index(max(p.terms["entropy"] for p in seen))
    assert first > 0
    assert all(p.terms["entropy"] == 0 for p in seen[:first])  # the labelled sequences alone
    f = best.objective(X, known)
    values = [float(f.value_and_grad(w)[0]) for w in (best.weights_, crf.weights_)]
    assert values[1] < values[0] * 1.02
    assert crf.result_.value == pytest.approx(values[1], rel=1e-4)
    plain = CRF(c2=0.5).fit(X[:40], known[:40])
    entropy = [float(chain.entropy(m.potentials(X[40:])).sum()) for m in (plain, best, crf)]
    assert entropy[2] < 0.7 * entropy[0]


@pytest.mark.parametrize("name", [*STOCHASTIC, *MARGIN, "newton-cg"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_all_learn_from_partial_labels(name: Any, case: int) -> None:
    X, y = partial_problem(3, **CASES[case])
    if name == "sag" and case == 1:
        return
    crf = CRF(algorithm=name, **CASES[case], c2=0.01, max_iter=30).fit(X, y)
    fits = [
        label in known if isinstance(known, set) else label == known
        for row, guess in zip(y, crf.predict(X), strict=True)
        for known, label in zip(row, guess, strict=True)
        if known is not None
    ]
    assert np.mean(fits) > 0.75
    # of a sequence nothing is known: it is left out
    known = [*y, None]
    left_out = CRF(algorithm=name, **{**CASES[case], "all_possible_states": True}, c2=0.01, max_iter=20)
    with_it = left_out.fit([*X, ["w0", "w3"]], known).weights_.copy()
    np.testing.assert_array_equal(left_out.fit(X, y).weights_, with_it)


def test_steps_that_are_too_large_are_not_taken() -> None:
    X, y = load_corpus("ingredients", "train")
    rng = np.random.default_rng(1)
    known: list[list[Any]] = [[(z, z, None, {z, "O"})[rng.integers(4)] for z in row] for row in y[:100]]
    crf = CRF(algorithm="smd", max_iter=2, n_jobs=1).fit(X[:100], known)  # while it calibrates, weights blow up
    assert crf.result_.value < CRF(algorithm="smd", max_iter=1, n_jobs=1).fit(X[:100], known).result_.value


def test_a_perceptron_step_towards_the_best_path_that_fits() -> None:
    X, y = [["a", "b", "c"]], [["A", None, {"B", "C"}]]
    crf = CRF(PLAIN, algorithm="ap", dtype="float64", c2=0.0, all_possible_states=True, max_iter=0).fit(
        [*X, ["a"]], [*y, ["D"]]
    )
    f = by_sequence(crf, [*X, ["a"]], [*y, ["D"]])
    for seed in range(10):
        w = np.random.default_rng(seed).normal(size=f.size)
        crf.model_ = type(crf.model_)(**{**_fields(crf.model_), "weights": w})
        number = {c: i for i, c in enumerate(crf.classes_.tolist())}
        guess, forced = ([number[c] for c in p[0]] for p in (crf.predict(X), crf.predict(X, given=y)))
        f.native.set_weights(w)
        f.native.perceptron(np.array([0]))
        moved = features_of(crf, X[0], guess) - features_of(crf, X[0], forced)
        np.testing.assert_allclose(f.weights(), w + moved, atol=1e-9)


def _fields(model: Any) -> dict[str, Any]:
    return {k: getattr(model, k) for k in ("encoder", "labels", "layout", "constraints", "dtype")}


@pytest.mark.parametrize("name", MARGIN)
def test_margins_know_no_entropy(name: Any) -> None:
    with pytest.raises(ValueError, match=f"'entropy_weight' of CRF must be 0 for the algorithm '{name}'"):
        CRF(algorithm=name, entropy_weight=0.1).fit([["a"], ["b"]], [["A"], None])


@pytest.mark.parametrize("name", ["newton-cg", *STOCHASTIC, *MARGIN])
def test_contradictions_name_the_sequence(name: Any) -> None:
    with pytest.raises(ValueError, match="sequence 1: no labelling fits both"):
        CRF(algorithm=name, constraints="bio").fit(
            [["a", "b"], ["a", "b", "c"]], [["B-X", "I-X"], [{"O", "B-Y"}, {"I-X"}, None]]
        )


@pytest.mark.parametrize("name", ["newton-cg", *STOCHASTIC])
def test_an_interrupt_keeps_the_weights(name: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    known = [list(row) if i < 30 else None for i, row in enumerate(y[:60])]

    with_entropy: list[int] = []

    def interrupt(progress: Any, w: Any) -> None:
        if progress.terms["entropy"] > 0:
            with_entropy.append(progress.iteration)
        if len(with_entropy) == 3:
            raise KeyboardInterrupt

    crf = CRF(algorithm=name, entropy_weight=0.2, max_iter=6, callback=interrupt)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        crf.fit(list(X[:60]), known)
    assert crf.weights_.any()
    # the objective's weight is as it was: the value is that of the whole
    f = CRF(entropy_weight=0.2).objective(list(X[:60]), known)
    if name != "newton-cg":
        assert crf.result_.value == pytest.approx(float(f.value_and_grad(crf.weights_)[0]), rel=1e-4)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_the_ramp(name: Any) -> None:
    """The weight grows pass by pass, and is whole again afterwards."""
    X, y = load_corpus("ingredients", "train")
    known = [list(row) if i < 30 else None for i, row in enumerate(y[:60])]
    f = by_sequence(CRF(algorithm=name, entropy_weight=0.4), list(X[:60]), known)
    how = find_algorithm(name)
    assert isinstance(how, Stochastic)
    seen: list[float] = []

    def callback(progress: Any, w: Any) -> None:
        seen.append(f.entropy_weight)

    f.ramp = 4
    how.minimize(f, max_iter=6, tol=0, callback=callback)
    np.testing.assert_allclose(seen, [0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert f.entropy_weight == 0.4


def test_streams_with_hidden_labels() -> None:
    X, y = problem(4, n=30)
    crf = CRF(PLAIN, algorithm="sgd", entropy_weight=0.1)
    for k in range(0, 30, 10):
        known: list[Any] = [row if i % 3 else None for i, row in enumerate(y[k : k + 10])]
        crf.partial_fit(X[k : k + 10], known)
    assert np.isfinite(crf.weights_).all()
    assert crf.weights_.any()


def test_transitions_that_look_at_the_input() -> None:
    """The entropy with per-step transitions, through sgd, against L-BFGS."""
    X, y = problem(4, n=30)
    known: list[Any] = [row if i < 15 else None for i, row in enumerate(y)]
    settings: dict[str, Any] = {"c2": 0.3, "entropy_weight": 0.3, "all_possible_states": True}
    best = CRF(EDGES, **settings).fit(X, known)
    crf = CRF(EDGES, algorithm="sgd", **settings, max_iter=100).fit(X, known)
    f = best.objective(X, known)
    assert f.value_and_grad(crf.weights_)[0] < 1.02 * f.value_and_grad(best.weights_)[0]


def test_entropy_weight_is_idle_where_all_is_labelled() -> None:
    """Without an unlabelled sequence the entropy's weight changes nothing, not even when training ends."""
    X, y = [["a", "b", "a"], ["b", "a"]] * 30, [["A", "B", "A"], ["B", "A"]] * 30
    fits = [CRF(algorithm="sgd", entropy_weight=e, tol=0.5, random_state=0).fit(X, y) for e in (0.0, 0.1)]
    assert fits[0].n_iter_ == fits[1].n_iter_
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)
