"""Optimisers that go sequence by sequence, Hessian products, gradients from backward passes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import finite_difference

from crfkit import CRF, Template, training
from crfkit.chain import Constraints
from crfkit.data import load_corpus
from crfkit.training import SGD, SMD, AdaGrad, PassiveAggressive

EDGES = Template("U0:%x[0,0]\nU1:%x[-1,0]\nB0:%x[0,0]\nB")
PLAIN = Template("U0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nB")
CONVEX = ["newton-cg", "sgd", "smd", "adagrad", "sag"]
MARGIN = ["ap", "pa", "arow"]


def problem(seed: int, n_labels: int = 3, n: int = 6, length: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = [[f"w{k}" for k in rng.integers(0, 5, rng.integers(1, length + 1))] for _ in range(n)]
    y = [[f"L{k}" for k in rng.integers(0, n_labels, len(x))] for x in X]
    return X, y


def by_sequence(crf: CRF, X: Any, y: Any, weights: Any = None) -> Any:
    """What the CRF's stochastic optimiser looks at."""
    return crf._objective(crf._prepare(X, y, weights, None, grow=True)[1], training=True)


def sequences(crf: CRF, X: Any, y: Any, weights: Any = None) -> Any:
    return by_sequence(crf.set_params(algorithm="sgd"), X, y, weights)


CASES: list[dict[str, Any]] = [
    {"features": PLAIN},
    {"features": EDGES},
    {"features": PLAIN, "all_possible_transitions": False, "start_end": False},
    {"features": PLAIN, "constraints": [("L0", "L0")], "all_possible_states": True},
    {"features": lambda x: [{w: 0.5 + i} for i, w in enumerate(x)]},
]


def allowed(case: dict[str, Any], y: Any) -> bool:
    """Whether the labels keep the constraints, and have the label that they name."""
    return "constraints" not in case or (
        any("L0" in s for s in y) and not any(("L0", "L0") in itertools.pairwise(s) for s in y)
    )


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.3, 3.0, 300.0]))
def test_a_step_of_sgd_is_the_gradient(case: dict[str, Any], seed: int, scale: float) -> None:
    X, y = problem(seed)
    if not allowed(case, y):
        return
    omega = np.random.default_rng(seed).random(len(X))
    crf = CRF(**case, dtype="float64", c2=0.3)
    f = sequences(crf, X, y, omega)
    g = crf.objective(X, y, omega)
    w = np.random.default_rng(seed + 1).normal(size=f.size) * scale
    value, gradient = g.value_and_grad(w)
    np.testing.assert_allclose(f.value(w), value, rtol=1e-10)
    eta = 1e-3
    f.native.set_weights(w)
    loss = f.native.sgd(np.arange(len(X)), eta, f.decay, 0.0, 1.0, 0, len(X), False)
    np.testing.assert_allclose(loss + f.penalty(w), value, rtol=1e-10)
    share = f.decay * len(X)
    expected = w / (1 + eta * share) - eta * (gradient - 2 * f.c2 * w)
    np.testing.assert_allclose(f.weights(), expected, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.3, 3.0]))
def test_hessian_products(case: dict[str, Any], seed: int, scale: float) -> None:
    X, y = problem(seed, n=4, length=4)
    if not allowed(case, y):
        return
    omega = np.random.default_rng(seed).random(len(X))
    f = CRF(**case, dtype="float64", c2=0.3).objective(X, y, omega)
    rng = np.random.default_rng(seed + 1)
    w, v = rng.normal(size=f.size) * scale, rng.normal(size=f.size)
    got = f.hessian_product(w, v)
    step = 1e-5
    expected = (f.value_and_grad(w + step * v)[1] - f.value_and_grad(w - step * v)[1]) / (2 * step)
    np.testing.assert_allclose(got, expected, atol=2e-7 * max(1.0, np.abs(expected).max()))


def test_hessian_products_where_scaling_fails() -> None:
    """Scores so far apart that the lattice is redone in log space."""
    X, y = problem(3)
    f = CRF(PLAIN, dtype="float64", c2=0.0).objective(X, y)
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=f.size) * 600, rng.normal(size=f.size)
    step = 1e-4
    expected = (f.value_and_grad(w + step * v)[1] - f.value_and_grad(w - step * v)[1]) / (2 * step)
    np.testing.assert_allclose(f.hessian_product(w, v), expected, atol=1e-5)


def test_hessian_products_do_not_depend_on_threads() -> None:
    X, y = load_corpus("ingredients", "train")
    rng = np.random.default_rng(0)
    out: list[Any] = []
    for n_jobs in (1, 2, 3):
        f = CRF(n_jobs=n_jobs).objective(X, y)
        if not out:
            w, v = rng.normal(size=f.size), rng.normal(size=f.size)
        out.append(f.hessian_product(w, v))
    assert (out[0] == out[1]).all()
    assert (out[0] == out[2]).all()
    with pytest.raises(ValueError, match="'v' must have shape"):
        f.hessian_product(w, v[1:])


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.3, 3.0, 30.0]))
def test_backward_gradients(case: dict[str, Any], seed: int, scale: float) -> None:
    X, y = problem(seed)
    if not allowed(case, y):
        return
    omega = np.random.default_rng(seed).random(len(X))
    f = CRF(**case, dtype="float64", c2=0.3).objective(X, y, omega)
    b = CRF(**case, gradient="backward", c2=0.3).objective(X, y, omega)
    w = np.random.default_rng(seed + 1).normal(size=f.size) * scale
    value, gradient = f.value_and_grad(w)
    got, slope = b.value_and_grad(w)
    np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(slope, gradient, atol=1e-10 * max(1, scale))


def test_backward_gradients_by_finite_differences() -> None:
    X, y = problem(1, n=2, length=4)
    b = CRF(EDGES, gradient="backward", c2=0.1).objective(X, y)
    w = np.random.default_rng(0).normal(size=b.size)
    numeric = finite_difference(lambda x: b.value_and_grad(x)[0], w)
    np.testing.assert_allclose(b.value_and_grad(w)[1], numeric, atol=1e-7)


def test_training_with_backward_gradients() -> None:
    X, y = problem(2)
    a = CRF(PLAIN, gradient="backward").fit(X, y)
    b = CRF(PLAIN, dtype="float64").fit(X, y)
    np.testing.assert_allclose(a.weights_, b.weights_, atol=1e-6)


@pytest.mark.parametrize("name", CONVEX)
def test_convex_methods_reach_the_minimum(name: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X, y = X[:120], y[:120]
    best = CRF(c2=1.0, tol=1e-9).fit(X, y).result_.value
    tol = 1e-5 if name == "newton-cg" else 1e-9
    found = CRF(algorithm=name, c2=1.0, tol=tol, max_iter=100).fit(X, y).result_
    assert best * (1 - 1e-6) < found.value < best * (1 + 1e-3)


@pytest.mark.parametrize(("name", "passes"), [("sgd", 150), ("smd", 100), ("adagrad", 150), ("sag", 30)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stochastic_methods_reach_the_minimum_of_the_whole_sample(name: Any, passes: int, dtype: str) -> None:
    X, y = load_corpus("ingredients", "train")
    f = CRF(c2=1.0, dtype="float64").objective(X, y)
    best = CRF(c2=1.0, tol=1e-9, dtype="float64").fit(X, y).result_.value
    crf = CRF(algorithm=name, c2=1.0, tol=0, max_iter=passes, dtype=dtype).fit(X, y)
    for value in (crf.result_.value, f.value_and_grad(crf.weights_)[0]):
        assert best * (1 - 1e-6) < value < best * (1 + 1e-3)


def drawn(n: int, n_labels: int) -> tuple[Any, Any]:
    """Sequences whose labels are drawn from a chain, as many words as labels squared."""
    rng = np.random.default_rng(1)
    words, after = rng.normal(0, 1.5, (n_labels**2, n_labels)), rng.normal(0, 1.5, (n_labels, n_labels))
    X, y = [], []
    for _ in range(n):
        x = rng.integers(0, n_labels**2, rng.integers(3, 20))
        labels: list[int] = []
        for k in x:
            p = np.exp(words[k] + (after[labels[-1]] if labels else 0))
            labels.append(int(rng.choice(n_labels, p=p / p.sum())))
        X.append([f"w{k}" for k in x])
        y.append([f"L{k}" for k in labels])
    return X, y


@pytest.mark.parametrize(("n", "n_labels", "c2"), [(60, 4, 1.0), (300, 12, 1.0), (300, 12, 10.0), (1500, 12, 1.0)])
def test_meta_descent_needs_no_tuning(n: int, n_labels: int, c2: float) -> None:
    X, y = drawn(n, n_labels)
    best = CRF(c2=c2).fit(X, y).result_.value
    assert CRF(c2=c2, algorithm="smd").fit(X, y).result_.value < best * (1 + 1e-3)


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_the_value_at_the_end_is_that_of_all_labels(name: Any) -> None:
    X, y = drawn(60, 12)
    crf = CRF(c2=1.0, algorithm=name, beam="fixed:1", max_iter=3).fit(X, y)
    exact = CRF(c2=1.0, dtype="float64").objective(X, y).value_and_grad(crf.weights_)[0]
    assert crf.result_.value == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("name", [*CONVEX[1:], *MARGIN])
@pytest.mark.parametrize("case", [0, 1, 2, 3, 4])
def test_all_learn_with_all_features(name: Any, case: int) -> None:
    X, y = problem(4, n=30)
    for s in y:
        for t in range(1, len(s)):
            if s[t - 1] == s[t] == "L0":
                s[t] = "L1"
    if name == "sag" and case == 1:
        with pytest.raises(ValueError, match="'sag' cannot be used"):
            CRF(algorithm=name, **CASES[case]).fit(X, y)
        return
    crf = CRF(algorithm=name, **CASES[case], c2=0.01, max_iter=30)
    before = CRF(**CASES[case], max_iter=0).fit(X, y).score(X, y)
    assert crf.fit(X, y).score(X, y) > before
    again = CRF(algorithm=name, **CASES[case], c2=0.01, max_iter=30, n_jobs=1).fit(X, y)
    assert (again.weights_ == crf.weights_).all()
    if name in ("sgd", "adagrad"):
        assert (CRF(algorithm=name, **CASES[case], random_state=3, max_iter=3).fit(X, y).weights_ != crf.weights_).any()


def test_averaged_sgd_is_the_mean() -> None:
    X, y = problem(5)
    f = sequences(CRF(PLAIN, dtype="float64", c2=0.7), X, y)
    f.native.set_weights(np.zeros(f.size))
    seen = []
    for k in range(40):
        f.native.sgd(np.array([k % len(X)]), 0.3, f.decay, f.decay, 0.75, 0, 1, True)
        seen.append(f.weights())
    np.testing.assert_allclose(f.weights(averaged=True), np.mean(seen, axis=0), atol=1e-12)


def test_averaged_sgd_after_renormalising() -> None:
    X, y = problem(5)
    f = sequences(CRF(PLAIN, dtype="float64", c2=0.7), X, y)
    f.native.set_weights(np.zeros(f.size))
    seen = []
    for k in range(40):  # a decay so strong that the scale is set back to one several times
        f.native.sgd(np.array([k % len(X)]), 0.1, 50.0, 0.0, 1.0, 0, 1, True)
        seen.append(f.weights())
    np.testing.assert_allclose(f.weights(averaged=True), np.mean(seen, axis=0), atol=1e-12)


def features_of(crf: CRF, X: Any, labels: list[int]) -> np.ndarray[Any, Any]:
    """Feature vector of a labelling of one sequence, as a derivative of its score."""
    f = crf.objective([X], [[crf.classes_[k] for k in labels]])
    _, a = f.value_and_grad(np.zeros(f.size))
    return a


def test_the_perceptron_by_hand() -> None:
    X, y = problem(6, n=12)
    base = CRF(PLAIN, dtype="float64", c2=0.0, max_iter=0).fit(X, y)
    f = sequences(CRF(PLAIN, dtype="float64", c2=0.0), X, y)
    w, total = np.zeros(f.size), np.zeros(f.size)
    f.native.set_weights(w)
    order = np.arange(len(X))
    f.native.perceptron(order)
    f.native.perceptron(order)
    number = {c: i for i, c in enumerate(base.classes_.tolist())}
    for s in [*order, *order]:
        gold = [number[c] for c in y[s]]
        base.model_ = type(base.model_)(**{**_fields(base.model_), "weights": w.copy()})
        guess = [number[c] for c in base.predict([X[s]])[0]]
        # at zero weights expected counts are the same for both, so the difference of gradients is that of features
        w = np.round(w - features_of(base, X[s], gold) + features_of(base, X[s], guess))
        total += w
    np.testing.assert_allclose(f.weights(), w, atol=1e-9)
    np.testing.assert_allclose(f.weights(averaged=True), total / (2 * len(X)), atol=1e-9)


def _fields(model: Any) -> dict[str, Any]:
    return {k: getattr(model, k) for k in ("encoder", "labels", "layout", "constraints", "dtype")}


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_one_passive_aggressive_step(kind: int) -> None:
    X, y = problem(7, n=1, length=5)
    base = CRF(PLAIN, dtype="float64", c2=0.0, max_iter=0).fit(X, y)
    f = sequences(CRF(PLAIN, dtype="float64", c2=0.0), X, y)
    f.native.set_weights(np.zeros(f.size))
    f.native.passive_aggressive(np.array([0]), kind, 0.05, True)
    number = {c: i for i, c in enumerate(base.classes_.tolist())}
    gold = [number[c] for c in y[0]]
    guess = [number[c] for c in base.predict(X)[0]]
    errors = sum(a != b for a, b in zip(gold, guess, strict=True))
    delta = features_of(base, X[0], guess) - features_of(base, X[0], gold)
    norm = float(delta @ delta)
    cost = np.sqrt(errors)
    tau = [cost / norm, min(0.05, cost / norm), cost / (norm + 1 / (2 * 0.05))][kind]
    np.testing.assert_allclose(f.weights(), tau * delta, atol=1e-12)


def test_one_arow_step() -> None:
    X, y = problem(8, n=1, length=5)
    base = CRF(PLAIN, dtype="float64", c2=0.0, max_iter=0).fit(X, y)
    f = sequences(CRF(PLAIN, dtype="float64", c2=0.0), X, y)
    f.native.set_weights(np.zeros(f.size))
    f.native.arow(np.array([0]), 2.0, 0.5)
    number = {c: i for i, c in enumerate(base.classes_.tolist())}
    gold, guess = [number[c] for c in y[0]], [number[c] for c in base.predict(X)[0]]
    errors = sum(a != b for a, b in zip(gold, guess, strict=True))
    delta = features_of(base, X[0], guess) - features_of(base, X[0], gold)
    alpha = errors / (2.0 * float(delta @ delta) + 0.5)
    np.testing.assert_allclose(f.weights(), alpha * 2.0 * delta, atol=1e-12)


def test_one_adagrad_step() -> None:
    X, y = problem(9, n=3)
    crf = CRF(PLAIN, dtype="float64", c2=0.0)
    f = sequences(crf, X, y)
    g = crf.objective(X, y)
    w = np.random.default_rng(0).normal(size=f.size)
    _, gradient = g.value_and_grad(w)
    f.native.set_weights(w)
    f.native.adagrad(np.arange(3), 0.1, 0.0, 0.25, 3)
    np.testing.assert_allclose(f.weights(), w - 0.1 * gradient / np.sqrt(0.25 + gradient**2), atol=1e-9)


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_rounding_errors_do_not_raise_lipschitz_constants(scale: float) -> None:
    """Near the minimum and beyond it, sequences gain less by a step than single precision can show."""
    X, y = load_corpus("ingredients", "train")
    w = CRF(c2=0.01).fit(X, y).weights_
    top = {}
    for dtype in ("float32", "float64"):
        f = sequences(CRF(c2=0.01, dtype=dtype), X, y)
        f.native.set_weights(scale * w)
        for _ in range(5):
            f.native.sag(np.arange(len(X)), f.decay, 1)
        top[dtype] = f.native.lipschitz().max()
    assert 0 < top["float32"] <= 4 * max(1.0, top["float64"])


class Quadratic:
    """Half of the squares of A w - b; A has columns of very different lengths."""

    def __init__(self, seed: int, n: int = 30) -> None:
        rng = np.random.default_rng(seed)
        self.a = rng.normal(size=(2 * n, n)) * np.logspace(0, 3, n)
        self.b = rng.normal(size=2 * n)
        self.size, self.products = n, 0

    def value_and_grad(self, w: Any, out: Any = None) -> tuple[float, Any]:
        rest = self.a @ w - self.b
        return 0.5 * float(rest @ rest), self.a.T @ rest

    def hessian_product(self, w: Any, v: Any) -> Any:
        self.products += 1
        return self.a.T @ (self.a @ v)


def test_newton_steps_on_a_badly_scaled_quadratic() -> None:
    f = Quadratic(0)
    best = f.value_and_grad(np.linalg.lstsq(f.a, f.b, rcond=None)[0])[0]
    found = training.NewtonCG().minimize(f, np.zeros(f.size), tol=1e-9)
    assert found.converged
    assert best <= found.value * (1 + 1e-12)
    assert found.value < best * (1 + 1e-6)
    with pytest.raises(ValueError, match="'accuracy' of NewtonCG"):
        training.NewtonCG(accuracy=0).minimize(f, np.zeros(f.size))
    at_minimum = training.NewtonCG().minimize(f, found.w, tol=1.0)
    assert at_minimum.iterations == 0
    stopped = training.NewtonCG().minimize(f, np.zeros(f.size), max_iter=2)
    assert stopped.iterations == 2
    assert not stopped.converged


def test_early_stopping_keeps_the_best_weights() -> None:
    X, y = load_corpus("ingredients", "train")
    X_dev, y_dev = load_corpus("ingredients", "test")
    scores: list[float] = []

    def watch(progress: training.Progress, w: Any) -> None:
        scores.append(progress.scores.get("f1", progress.scores["accuracy"]))

    crf = CRF(algorithm="ap", early_stopping=3, callback=watch, max_iter=40).fit(X, y, X_dev=X_dev, y_dev=y_dev)
    assert "has not risen" in crf.result_.message
    assert crf.result_.reason == "early_stopping"
    assert not crf.result_.converged
    assert len(scores) == int(np.argmax(scores)) + 4
    with pytest.raises(ValueError, match="'early_stopping' of CRF needs held-out data"):
        CRF(early_stopping=2).fit(X, y)


@pytest.mark.parametrize("name", ["sgd", "smd", "adagrad", *MARGIN])
def test_partial_fit_follows_a_stream(name: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    crf = CRF(algorithm=name)
    for _ in range(3):
        for k in range(0, len(X), 50):
            crf.partial_fit(X[k : k + 50], y[k : k + 50])
    assert crf.score(X_test, y_test) > 0.84


def test_a_stream_shares_the_penalty() -> None:
    X, y = problem(0)
    f = sequences(CRF(PLAIN, c2=0.5), X, y)
    w = np.ones(f.size)
    whole = f.penalty(w)
    assert whole == 0.5 * f.size
    f.seen = 3 * len(X)
    assert f.penalty(w) == whole / 4
    assert f.decay == 2 * 0.5 / (4 * len(X))


def test_partial_fit_is_for_stochastic_methods() -> None:
    X, y = problem(0)
    with pytest.raises(ValueError, match="stochastic"):
        CRF().partial_fit(X, y)


def test_wrong_settings_are_named() -> None:
    X, y = problem(0)
    for crf, text in [
        (CRF(algorithm="adam"), "'algorithm' of CRF must be one of 'lbfgs'"),  # type: ignore[arg-type]
        (CRF(algorithm="sgd", c1=1.0), "'c1' of CRF must be 0"),
        (CRF(algorithm=SGD(learning_rate=-1.0)), "'learning_rate' of SGD must be a number > 0"),
        (CRF(algorithm=SGD(batch_size=0)), "'batch_size' of SGD must be an int >= 1"),
        (CRF(algorithm=AdaGrad(learning_rate=0)), "'learning_rate' of AdaGrad"),
        (CRF(algorithm=SMD(mu=-1)), "'mu' of SMD"),
        (CRF(algorithm=PassiveAggressive(type=3)), "'type' of PassiveAggressive"),
        (CRF(gradient="sideways"), "'gradient' of CRF"),
        (CRF(algorithm="sgd", gradient="backward"), r"others are for 'lbfgs'\), got 'backward'"),
        (CRF(algorithm=SGD(learning_rate=1e12), c2=0.0, max_iter=30), "diverged|not finite|SGD"),
    ]:
        if "diverged" in text:
            continue
        with pytest.raises(ValueError, match=text):
            crf.fit(X, y)


def test_models_of_all_optimisers_are_saved(tmp_path: Any) -> None:
    import crfkit

    X, y = problem(0)
    for algorithm in ("ap", SGD(batch_size=2)):
        crf = CRF(algorithm=algorithm).fit(X, y)
        crf.save(tmp_path / "model")
        again = crfkit.load(tmp_path / "model")
        assert again.predict(X) == crf.predict(X)
        again.fit(X, y)


def test_constraints_hold_in_margin_training() -> None:
    labels = ["B-A", "I-A", "O"]
    X = [["x", "y", "z"]] * 3
    y = [["B-A", "I-A", "O"]] * 3
    crf = CRF(algorithm="pa", constraints=Constraints.from_scheme(labels, "bio")).fit(X, y)
    assert crf.predict(X) == y


@pytest.mark.parametrize("name", ["sgd", "smd", "adagrad", "sag"])
def test_an_optimum_is_not_left(name: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    crf = CRF(c2=0.1).fit(X, y)
    f = crf.objective(X, y)
    best = f.value_and_grad(crf.weights_)[0]
    crf.set_params(algorithm=name, warm_start=True, max_iter=3).fit(X, y)
    assert f.value_and_grad(crf.weights_)[0] < 1.25 * best


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd", "newton-cg"])
def test_penalties_may_be_numbers_of_numpy(kind: Any, algorithm: str) -> None:
    """As searches over distributions of scipy give them."""
    X, y = problem(0)
    c1 = 0.125 if algorithm == "lbfgs" else 0.0
    settings: dict[str, Any] = {"algorithm": algorithm, "max_iter": 3, "random_state": 0}
    want, got = (CRF(PLAIN, c1=f(c1), c2=f(0.5), **settings).fit(X, y).model_.weights for f in (float, kind))
    np.testing.assert_array_equal(got, want)
