"""The estimator: what it learns, what it says when it cannot."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from scipy.optimize import minimize

import crfkit
from crfkit import CRF, Template, TokenFeatures, chain, metrics
from crfkit.data import Columns, load_corpus
from crfkit.training import Progress

X = [["the", "old", "dog", "runs"], ["a", "dog"], ["the", "cat", "sleeps"], ["runs", "the", "cat"]]
Y = [["D", "A", "N", "V"], ["D", "N"], ["D", "N", "V"], ["V", "D", "N"]]


@pytest.fixture(scope="module")
def sample() -> tuple[Any, Any, Any, Any]:
    return (*load_corpus("ingredients"), *load_corpus("ingredients", "test"))


@pytest.fixture(scope="module")
def fitted(sample: tuple[Any, Any, Any, Any]) -> CRF:
    return CRF(c2=0.1).fit(*sample[:2])


def test_the_optimum_is_scipys() -> None:
    crf = CRF(dtype="float64", tol=1e-12, c2=0.3).fit(X, Y)
    f = crf.objective(X, Y)
    found = minimize(
        f.value_and_grad,
        np.zeros(f.size),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000},
    )
    assert crf.result_.value == pytest.approx(found.fun, rel=1e-9)
    np.testing.assert_allclose(crf.weights_, found.x, atol=1e-4)
    assert np.abs(f.value_and_grad(crf.weights_)[1]).max() < 1e-3


@pytest.mark.parametrize("settings", [{}, {"c1": 0.1}, {"algorithm": "newton-cg"}])
def test_what_single_precision_cannot_tell_is_found_in_double(settings: dict[str, Any]) -> None:
    for tol, same in ((1e-10, True), (1e-6, False)):
        one, two = (CRF(dtype=dtype, tol=tol, **settings).fit(X, Y) for dtype in ("float32", "float64"))
        assert np.array_equal(one.weights_, two.weights_) == same
        assert one.model_.dtype == np.float32


def test_probabilities_equal_enumeration() -> None:
    """From the weights to every probability, by summing over all labellings of the attributes' own scores."""
    crf = CRF(features=None, dtype="float64", constraints=[("B", "B")]).fit(
        [[["a"], {"b": 2.0}, ["a", "b"]], [["b"]]], [["A", "B", "A"], ["B"]]
    )
    model = crf.model_
    names = model.encoder.names()
    w = crf.weights_
    layout = model.layout
    state = {}
    for a, name in enumerate(names):
        for q in range(layout.state_ptr[a], layout.state_ptr[a + 1]):
            state[name, int(layout.state_label[q])] = w[q]
    test = [["a"], {"b": 3.0, "unknown": 1.0}, ["b"], []]
    unary = np.zeros((4, 2))
    for t, token in enumerate(test):
        for name, value in token.items() if isinstance(token, dict) else [(x, 1.0) for x in token]:
            for j in range(2):
                unary[t, j] += value * state.get((name, j), 0.0)
    pairwise = w[layout.transition].reshape(2, 2).copy()
    pairwise[1, 1] = -np.inf
    p = chain.Potentials(unary, pairwise, w[layout.start : layout.start + 2], w[layout.end : layout.end + 2])
    np.testing.assert_allclose(crf.predict_marginals([test])[0], oracle.nodes(p), atol=1e-10)
    best = crf.predict_nbest([test], k=100)[0]
    expected = sorted(oracle.probabilities(p)[oracle.probabilities(p) > 0], reverse=True)
    np.testing.assert_allclose([x.probability for x in best], expected, atol=1e-10)
    assert best[0].labels == crf.predict([test])[0]


def test_every_kind_of_input_gives_the_same_model() -> None:
    """Strings, columns, dicts, a callable per token and one per sequence: the same attributes, the same weights."""
    template = Template("U0:%x[0,0]\nU1:%x[-1,0]\nB", padding=False)

    def per_token(x: Any, t: int) -> list[str]:
        out = [f"U0:{x[t]}"] + ([f"U1:{x[t - 1]}"] if t else [])
        return out + ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == len(x) - 1)

    def per_sequence(x: Any) -> list[list[str]]:
        return [per_token(x, t) for t in range(len(x))]

    items = [per_sequence(x) for x in X]
    dicts = [[dict.fromkeys(token, 1.0) for token in x] for x in items]
    models = [
        CRF(template).fit(X, Y),
        CRF(template).fit(Columns.from_sequences(X), Columns.from_sequences(Y)),
        CRF(per_token).fit(X, Y),
        CRF(per_sequence).fit(X, Y),
        CRF().fit(items, Y),
        CRF(None).fit(dicts, Y),
    ]
    for crf in models[1:]:
        assert sorted(crf.model_.encoder.names()) == sorted(models[0].model_.encoder.names())
        assert crf.result_.value == pytest.approx(models[0].result_.value, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_whatever_the_threads(sample: tuple[Any, Any, Any, Any], dtype: str) -> None:
    runs = [CRF(n_jobs=n, dtype=dtype, max_iter=20).fit(*sample[:2]) for n in (1, 2, 4)]
    for crf in runs[1:]:
        np.testing.assert_array_equal(crf.weights_, runs[0].weights_)


def test_l1_makes_weights_zero_and_reaches_its_optimum(sample: tuple[Any, Any, Any, Any]) -> None:
    data = sample[:2]
    crf = CRF(c1=0.5, c2=0.01, tol=1e-9, dtype="float64").fit(*data)
    w = crf.weights_
    assert 0 < np.count_nonzero(w) < 0.3 * len(w)
    _, g = crf.objective(*data).value_and_grad(w)
    # the subgradient holds zero: |g| <= c1 where w is zero, g = -c1 sign(w) elsewhere
    assert np.abs(g[w == 0]).max() <= 0.5 + 0.02
    np.testing.assert_allclose(g[w != 0], -0.5 * np.sign(w[w != 0]), atol=0.02)


def test_sample_weights_repeat_sequences() -> None:
    twice = CRF(dtype="float64", tol=1e-10).fit([*X, X[1], X[1]], [*Y, Y[1], Y[1]])
    weighted = CRF(dtype="float64", tol=1e-10).fit(X, Y, sample_weight=[1, 3, 1, 1])
    assert weighted.result_.value == pytest.approx(twice.result_.value, rel=1e-6)
    assert weighted.score(X, Y, sample_weight=[0, 1, 0, 0]) == 1.0
    for bad in ([1, 2], [1, 1, 1, -1], [1, 1, 1, np.nan]):
        with pytest.raises(ValueError, match="'sample_weight' must"):
            CRF().fit(X, Y, sample_weight=bad)


def test_warm_start_continues_and_grows() -> None:
    crf = CRF(warm_start=True, dtype="float64", tol=1e-10).fit(X, Y)
    first = crf.result_
    crf.fit(X, Y)
    assert crf.result_.iterations < first.iterations / 2
    assert crf.result_.value <= first.value + 1e-9
    more_x, more_y = [*X, ["dogs", "run", "!"]], [*Y, ["N", "V", "PUNCT"]]
    crf.fit(more_x, more_y)
    assert crf.classes_.tolist() == ["A", "D", "N", "V", "PUNCT"]
    assert crf.predict([["dogs", "run", "!"]]) == [["N", "V", "PUNCT"]]
    cold = CRF(dtype="float64", tol=1e-10).fit(more_x, more_y)
    assert crf.result_.value == pytest.approx(cold.result_.value, rel=1e-6)
    assert crf.predict(X) == cold.predict(X)


def test_warm_start_with_transition_templates() -> None:
    template = Template("U:%x[0,0]\nB:%x[0,0]\nB")
    crf = CRF(template, warm_start=True, dtype="float64", tol=1e-10).fit(X[:2], Y[:2])
    crf.fit(X, Y)
    cold = CRF(template, dtype="float64", tol=1e-10).fit(X, Y)
    assert crf.result_.value == pytest.approx(cold.result_.value, rel=1e-6)


def test_constraints_hold_in_training_and_decoding(sample: tuple[Any, Any, Any, Any]) -> None:
    X_train, y_train, X_test, _ = sample
    template = Template("U0:%x[0,0]\nU1:%x[-1,0]")  # no transition weights
    free = CRF(template, start_end=False).fit(X_train, y_train)
    bound = CRF(template, start_end=False, constraints="bio").fit(X_train, y_train)

    def faults(labels: list[list[str]]) -> int:
        return sum(b[:2] == "I-" and a[2:] != b[2:] for s in labels for a, b in itertools.pairwise(["O", *s]))

    assert faults(free.predict(X_test)) > 0
    assert faults(bound.predict(X_test)) == 0
    for tagging in itertools.chain.from_iterable(bound.predict_nbest(X_test[:5], 20)):
        assert faults([tagging.labels]) == 0
    with pytest.raises(
        ValueError, match=r"sequence 1, position 0: the labels break the constraints: 'I-X' may not begin"
    ):
        CRF(constraints="bio").fit([["a"], ["b"]], [["O"], ["I-X"]])
    with pytest.raises(ValueError, match=r"sequence 0, position 1: .* 'A' may not be followed by 'B'"):
        CRF(constraints=[("A", "B")]).fit([["a", "b"]], [["A", "B"]])


def test_rare_pairs_are_dropped_and_forgotten(sample: tuple[Any, Any, Any, Any]) -> None:
    whole = CRF(max_iter=3).fit(*sample[:2])
    cut = CRF(max_iter=3, min_freq=3).fit(*sample[:2])
    assert cut.model_.encoder.n_attributes[0] < whole.model_.encoder.n_attributes[0] / 2
    assert cut.objective(*sample[:2]).size == len(cut.weights_)
    every = CRF(max_iter=3, all_possible_states=True).fit(*sample[:2])
    n = len(every.classes_)
    assert len(every.weights_) == every.model_.encoder.n_attributes[0] * n + n * n + 2 * n
    seen = CRF(max_iter=3, all_possible_transitions=False, start_end=False).fit(*sample[:2])
    pairs = {p for s in sample[1] for p in itertools.pairwise(s)}
    assert (seen.model_.layout.transition >= 0).sum() == len(pairs)
    assert seen.model_.layout.start == -1


def test_values_scale_scores() -> None:
    crf = CRF().fit([[{"a": 1.0}], [{"a": -1.0}]], [["P"], ["N"]])
    assert crf.predict([[{"a": 5.0}], [{"a": -0.1}]]) == [["P"], ["N"]]


def test_labels_may_be_numbers() -> None:
    crf = CRF().fit([["a", "b"]], [[0, 1]])
    assert crf.predict([["a", "b"]]) == [[0, 1]]
    crf = CRF().fit([["a", "b"]], np.array([[3, 5]]))
    assert crf.predict([["b"]]) == [[5]]


def test_empty_sequences_are_allowed() -> None:
    crf = CRF().fit([*X, []], [*Y, []])
    assert crf.predict([[], X[1], []]) == [[], Y[1], []]
    assert crf.predict([]) == []
    assert crf.predict_marginals([[]])[0].shape == (0, 4)
    assert crf.predict_nbest([[]], 2) == [[crfkit.Tagging([], 1.0)]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"c2": -1.0}, r"'c2' of CRF must be a number >= 0, got -1.0"),
        ({"c1": "much"}, r"'c1' of CRF must be a number"),
        ({"tol": float("nan")}, "'tol' of CRF"),
        ({"max_iter": 1.5}, "'max_iter' of CRF must be an int >= 0 or None, got 1.5"),
        ({"dtype": "float16"}, "'dtype' of CRF must be 'float32' or 'float64'"),
        ({"features": 3}, "'features' of CRF must be"),
        ({"constraints": "iob3"}, "'constraints' must be one of"),
        ({"n_jobs": 0}, "'n_jobs' must not be 0"),
    ],
)
def test_bad_parameters_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF(**arguments).fit(X, Y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:-1], "there are 4 sequences, but labels for 3"),
        (X, [*Y[:-1], ["V"]], "sequence 3 has 3 tokens, but 1 label"),
        ([], [], "there are no sequences"),
        ([[]], [[]], "there are no labels"),
        (X, ["DANV", *Y[1:]], "labels of sequence 0 must be a list"),
        (X, [[1.5, *Y[0][1:]], *Y[1:]], "sequence 0, position 0: a label must be a str or an int, got float"),
        ([["a", 3]], [["A", "B"]], "sequence 0, position 1: a token must be a str"),
    ],
)
def test_bad_data_is_named(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF().fit(x, y)
    with pytest.raises(ValueError, match="must be given together"):
        CRF().fit(X, Y, X_dev=X)


def test_what_is_not_fitted_says_so() -> None:
    from sklearn.exceptions import NotFittedError

    for call in ("predict", "predict_marginals", "predict_nbest"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(CRF(), call)(X)
    with pytest.raises(NotFittedError):
        CRF().save("nowhere")


def test_the_callback_sees_everything_and_can_stop(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []

    def watch(p: Progress, w: np.ndarray) -> bool:
        seen.append(p)
        return p.iteration == 3

    crf = CRF(callback=watch, verbose=True).fit(X, Y, X_dev=X, y_dev=Y)
    assert [p.iteration for p in seen] == [1, 2, 3]
    assert crf.n_iter_ == 3
    assert seen[0].value > seen[2].value == crf.result_.value
    last = seen[-1]
    assert last.scores["accuracy"] == metrics.token_accuracy(Y, crf.predict(X))
    assert last.active == np.count_nonzero(crf.weights_)
    assert last.gradient_norm == pytest.approx(np.linalg.norm(crf.objective(X, Y).value_and_grad(crf.weights_)[1]))
    assert last.seconds > 0
    assert last.step > 0
    assert "objective" in capsys.readouterr().err
    assert "asked to stop" in crf.result_.message
    assert crf.result_.reason == "callback"


def test_ctrl_c_keeps_the_best_weights(sample: tuple[Any, Any, Any, Any]) -> None:
    def interrupt(p: Progress, w: np.ndarray) -> None:
        if p.iteration == 5:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="interrupted"):
        crf = CRF(callback=interrupt).fit(*sample[:2])
    assert crf.n_iter_ == 5
    assert metrics.token_accuracy(sample[1], crf.predict(sample[0])) > 0.5


def test_a_signal_stops_the_core_at_once() -> None:
    """A single evaluation that would take many seconds ends soon after SIGINT."""
    script = textwrap.dedent("""
        import numpy as np, sys
        from crfkit import CRF
        rng = np.random.default_rng(0)
        X = [[f"w{i}" for i in rng.integers(0, 9999, 30)] for _ in range(3000)]
        Y = [[f"L{i}" for i in rng.integers(0, 400, 30)] for _ in range(3000)]
        def ready(p, w): print("ready", flush=True)
        crf = CRF(n_jobs=1, callback=ready).fit(X, Y)
        print("stopped:", crf.result_.message, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert "interrupted" in out


def test_threads_may_predict_at_the_same_time(fitted: CRF, sample: tuple[Any, Any, Any, Any]) -> None:
    expected = fitted.predict(sample[2])
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(fitted.predict(sample[2]))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [expected] * 4


def test_pickle_and_clone(fitted: CRF, sample: tuple[Any, Any, Any, Any]) -> None:
    from sklearn.base import clone

    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(sample[2]) == fitted.predict(sample[2])
    np.testing.assert_array_equal(again.weights_, fitted.weights_)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "model_")
    template = clone(CRF(Template("U:%x[0,0]")))
    assert isinstance(template.features, Template)


def test_it_reaches_what_it_should_on_the_sample(fitted: CRF, sample: tuple[Any, Any, Any, Any]) -> None:
    report = metrics.evaluate(sample[3], fitted.predict(sample[2]))
    assert report.f1 > 0.85
    marginals = fitted.predict_marginals(sample[2])
    assert len(marginals) == len(sample[2])
    np.testing.assert_allclose(np.concatenate(marginals).sum(axis=1), 1, atol=1e-10)


def test_import_is_light() -> None:
    """Neither scikit-learn nor torch come along with ``import crfkit``."""
    code = "import crfkit, sys; print([m for m in ('sklearn', 'scipy', 'torch', 'typer') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.path.expanduser("~")
    )
    assert out.stdout.strip() == "[]"


def test_transition_templates_learn_what_plain_ones_cannot() -> None:
    """The label flips exactly where the input says so: only conditioned transitions can know."""
    rng = np.random.default_rng(0)
    x, y = [], []
    for _ in range(60):
        state, labels, words = int(rng.integers(2)), [], []
        for t in range(8):
            flip = int(rng.integers(2)) if t else 0
            state ^= flip
            words.append(("s" + str(state)) if t == 0 else "flip" if flip else "stay")
            labels.append(str(state))
        x.append(words)
        y.append(labels)
    plain = CRF(Template("U:%x[0,0]\nB")).fit(x, y).score(x, y)
    conditioned = CRF(Template("U:%x[0,0]\nB:%x[0,0]")).fit(x, y)
    assert conditioned.score(x, y) == 1.0
    assert plain < 0.9
    p = conditioned.predict_marginals(x[:1])[0]
    assert p.max(axis=1).min() > 0.5


def test_token_features_object() -> None:
    crf = CRF(TokenFeatures(window=1, affixes=2)).fit(X, Y)
    assert crf.score(X, Y) == 1.0
    rows = [[(w, w[0]) for w in x] for x in X]
    assert CRF().fit(rows, Y).score(rows, Y) == 1.0


def test_a_warning_free_fit(sample: tuple[Any, Any, Any, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf = CRF(tol=0.1).fit(*sample[:2])
        crf.save(tmp_path / "m")
        crfkit.load(tmp_path / "m").predict(sample[2])
