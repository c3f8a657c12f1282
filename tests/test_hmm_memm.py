"""HMM and MEMM: against counts, enumeration, finite differences and the CRF."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import finite_difference
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import crfkit
from crfkit import CRF, HMM, MEMM, Template, chain
from crfkit.data import Columns, load_corpus
from crfkit.model import chain_model


def tokens(seed: int, columns: int = 2, n: int = 8, length: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X: list[Any] = []
    for _ in range(n):
        rows = [tuple(f"c{c}w{rng.integers(0, 4)}" for c in range(columns)) for _ in range(rng.integers(1, length + 1))]
        X.append(rows if columns > 1 else [r[0] for r in rows])
    y = [[f"L{k}" for k in rng.integers(0, 3, len(x))] for x in X]
    return X, y


def joint(hmm: HMM, x: Any, path: tuple[int, ...]) -> float:
    """Log p(x, y), one factor at a time."""
    total = np.log(hmm.startprob_[path[0]])
    for i, j in itertools.pairwise(path):
        total += np.log(hmm.transmat_[i, j])
    for row, j in zip(x, path, strict=True):
        for word, words, e in zip(
            row if isinstance(row, tuple) else (row,), hmm.vocabulary_, hmm.emissions_, strict=True
        ):
            total += np.log(e[j, words.index(word) if word in words else len(words)])
    return float(total)


@given(seed=st.integers(0, 500), columns=st.integers(1, 3))
def test_hmm_by_enumeration(seed: int, columns: int) -> None:
    X, y = tokens(seed, columns)
    hmm = HMM(smoothing=0.3, transition_smoothing=0.7).fit(X, y)
    for e in (*hmm.emissions_, hmm.transmat_, hmm.startprob_[None]):
        np.testing.assert_allclose(e.sum(axis=1), 1)
    x = [*X[0], tuple("new" for _ in range(columns)) if columns > 1 else "new"]
    n_labels = len(hmm.classes_)
    paths = list(itertools.product(range(n_labels), repeat=len(x)))
    scores = np.array([joint(hmm, x, path) for path in paths])
    top = scores.max()
    np.testing.assert_allclose(hmm.log_likelihood([x])[0], top + np.log(np.exp(scores - top).sum()), rtol=1e-10)
    best = [hmm.classes_[j] for j in paths[int(np.argmax(scores))]]
    np.testing.assert_allclose(hmm.log_joint([x], [best])[0], top, rtol=1e-10)
    np.testing.assert_allclose(hmm.log_joint([x], hmm.predict([x]))[0], top, rtol=1e-10)
    p = np.exp(scores - top)
    p /= p.sum()
    nodes = np.zeros((len(x), n_labels))
    for path, q in zip(paths, p, strict=True):
        nodes[np.arange(len(x)), path] += q
    np.testing.assert_allclose(hmm.predict_marginals([x])[0], nodes, atol=1e-9)
    nbest = hmm.predict_nbest([x], 2)[0]
    np.testing.assert_allclose(nbest[0].probability, p.max(), rtol=1e-8)


def test_hmm_counts() -> None:
    hmm: Any = HMM(smoothing=0, transition_smoothing=0).fit([["a", "b", "a"], ["a"]], [["X", "Y", "X"], ["Y"]])
    np.testing.assert_allclose(hmm.startprob_, [0.5, 0.5])
    np.testing.assert_allclose(hmm.transmat_, np.array([[0, 1], [1, 0]]))
    np.testing.assert_allclose(hmm.emissions_[0], np.array([[1, 0, 0], [0.5, 0.5, 0]]))
    assert hmm.vocabulary_ == [["a", "b"]]
    np.testing.assert_allclose(hmm.result_.value, 4 * np.log(0.5))


def mask(seed: int, y: Any) -> Any:
    rng = np.random.default_rng(seed)
    out: list[Any] = []
    for s in y:
        kinds = rng.integers(0, 3, len(s))
        out.append([label if k == 0 else None if k == 1 else {label, "L0"} for label, k in zip(s, kinds, strict=True)])
    out[0] = None
    return out


@given(seed=st.integers(0, 500), smoothing=st.sampled_from([0.0, 0.1, 1.0]))
def test_em_never_falls(seed: int, smoothing: float) -> None:
    X, y = tokens(seed)
    y[1][0] = "L0"
    partial = mask(seed, y)
    partial[1] = y[1]
    hmm = HMM(smoothing=smoothing, transition_smoothing=smoothing, tol=0, max_iter=15, random_state=seed).fit(
        X, partial
    )
    steps = np.diff(hmm.history_)
    assert (steps >= -1e-8 * np.abs(hmm.history_[:-1])).all()


def test_em_objective_by_enumeration() -> None:
    X, y = tokens(3, n=4, length=3)
    partial = mask(3, y)
    partial[1] = ["L0", "L1", "L2"][: len(X[1])]
    seen: list[Any] = []
    hmm = HMM(
        smoothing=0.5, transition_smoothing=0.5, max_iter=3, tol=0, random_state=0, callback=lambda p, w: seen.append(w)
    )
    hmm.fit(X, partial)
    probe = HMM(smoothing=0.5, transition_smoothing=0.5, max_iter=2, tol=0, random_state=0).fit(
        X, partial
    )  # where the third began
    labels = probe.classes_.tolist()
    total = 0.0
    for x, cells in zip(X, partial, strict=True):
        choices = [
            range(len(labels)) if c is None else [labels.index(k) for k in (c if isinstance(c, set) else {c})]
            for c in (cells or [None] * len(x))
        ]
        total += np.log(sum(np.exp(joint(probe, x, path)) for path in itertools.product(*choices)))
    prior = 0.5 * sum(np.log(t).sum() for t in (probe.startprob_, probe.transmat_, *probe.emissions_))
    np.testing.assert_allclose(hmm.history_[-1], total + prior, rtol=1e-9)
    assert len(seen) == 3


def test_em_finds_states_without_labels() -> None:
    rng = np.random.default_rng(0)
    X = [[f"w{(t % 2) * 3 + rng.integers(0, 3)}" for t in range(20)] for _ in range(30)]
    tries = [HMM(n_states=2, random_state=k, max_iter=200).fit(X) for k in range(5)]
    hmm = max(tries, key=lambda h: h.history_[-1])
    for path in hmm.predict(X[:5]):
        assert all(a != b for a, b in itertools.pairwise(path))


def test_labelled_em_is_counting() -> None:
    X, y = tokens(5)
    a = HMM().fit(X, y)
    almost = [[{label} for label in s] for s in y]
    b = HMM().fit(X, almost)
    np.testing.assert_allclose(a.model_.weights, b.model_.weights)


def test_crf_from_hmm_decides_the_same(tmp_path: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    hmm = HMM().fit(X, y)
    crf = CRF.from_hmm(hmm)
    assert crf.predict(X_test) == hmm.predict(X_test)
    assert hmm.score(X_test, y_test) > 0.7
    for a, b in zip(crf.predict_marginals(X_test), hmm.predict_marginals(X_test), strict=True):
        np.testing.assert_allclose(a, b)
    hmm.save(tmp_path / "hmm")
    again = crfkit.load(tmp_path / "hmm")
    assert isinstance(again, HMM)
    assert again.predict(X_test) == hmm.predict(X_test)
    for a, b in zip(again.emissions_, hmm.emissions_, strict=True):
        np.testing.assert_allclose(a, b)
    np.testing.assert_allclose(again.log_likelihood(X_test), hmm.log_likelihood(X_test))
    better = crf.set_params(warm_start=True, c2=0.001).fit(X, y)
    assert better.score(X, y) > hmm.score(X, y)


def test_hmm_generates() -> None:
    hmm = HMM(smoothing=0, transition_smoothing=0).fit([["a", "b", "a"], ["a"]], [["X", "Y", "X"], ["X"]])
    X, y = hmm.generate(6, random_state=0)
    assert y == ["X", "Y"] * 3
    assert X == ["a", "b"] * 3


def test_hmm_errors() -> None:
    for args, text in [
        (([["a"]], [["A", "B"]]), "sequence 0 has 1 token, but 2 labels"),
        (([["a"]], [[1.5]]), "sequence 0, position 0: a label must be"),
        (([["a"]], None), "'n_states' of HMM must be given"),
        (([["a"]], [["A"], ["B"]]), "there is 1 sequence, but labels for 2"),
    ]:
        with pytest.raises(ValueError, match=text):
            HMM().fit(*args)
    with pytest.raises(ValueError, match="'smoothing' of HMM"):
        HMM(smoothing=-1).fit([["a"]], [["A"]])


EDGES = Template("U0:%x[0,0]\nU1:%x[-1,0]\nB0:%x[0,0]\nB")
PLAIN = Template("U0:%x[0,0]\nU1:%x[1,0]\nB")


@pytest.mark.parametrize("features", [EDGES, PLAIN, lambda x: [{str(w): 0.5 + i} for i, w in enumerate(x)]])
@given(seed=st.integers(0, 300))
def test_memm_by_enumeration(features: Any, seed: int) -> None:
    X, y = tokens(seed, columns=1)
    omega = np.random.default_rng(seed).random(len(X)) + 0.5
    memm = MEMM(features, dtype="float64", c2=0.2).fit(X, y, sample_weight=omega)
    p = memm.potentials(X)
    np.testing.assert_allclose(chain.log_partition(p), 0, atol=1e-10)
    # the objective is the sum of the log-probabilities of the decisions
    f = memm.objective(X, y, omega)
    w = memm.model_.weights
    number = {c: k for k, c in enumerate(memm.classes_.tolist())}
    paths = [[number[c] for c in s] for s in y]
    expected = -omega @ np.asarray(chain.score(p, paths)) + 0.2 * w @ w
    np.testing.assert_allclose(f.value_and_grad(w)[0], expected, rtol=1e-9)
    small = X[int(np.argmin([len(x) for x in X]))]
    one = memm.potentials([small])[0]
    every = list(itertools.product(range(one.n_labels), repeat=len(small)))
    probs = np.exp([chain.score(one, path) for path in every])
    np.testing.assert_allclose(probs.sum(), 1)
    nodes = np.zeros((len(small), one.n_labels))
    for path, q in zip(every, probs, strict=True):
        nodes[np.arange(len(small)), path] += q
    np.testing.assert_allclose(memm.predict_proba([small])[0], nodes, atol=1e-10)


def test_memm_gradient() -> None:
    X, y = tokens(2, columns=1)
    f = MEMM(EDGES, dtype="float64", c2=0.2).objective(X, y)
    w = np.random.default_rng(0).normal(size=f.size)
    numeric = finite_difference(lambda x: f.value_and_grad(x)[0], w)
    np.testing.assert_allclose(f.value_and_grad(w)[1], numeric, atol=1e-6)


def test_memm_greedy_and_files(tmp_path: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    memm = MEMM(c2=0.1).fit(X, y)
    assert memm.score(X_test, y_test) > 0.85
    greedy = memm.predict(X_test, greedy=True)
    p = memm.potentials(X_test)
    number = {c: k for k, c in enumerate(memm.classes_.tolist())}
    best, step = (chain.score(p, [[number[c] for c in s] for s in z]) for z in (memm.predict(X_test), greedy))
    assert (best >= step - 1e-4).all()
    memm.save(tmp_path / "memm")
    again = crfkit.load(tmp_path / "memm")
    assert isinstance(again, MEMM)
    assert again.predict(X_test) == memm.predict(X_test)
    assert len(memm.sample(X_test[:2], 3, random_state=0)[0]) == 3


@pytest.mark.parametrize("algorithm", ["newton-cg", "sgd", "adagrad", "sag", "smd"])
def test_memm_takes_all_optimisers(algorithm: Any) -> None:
    X, y = load_corpus("ingredients", "train")
    X, y = X[:60], y[:60]
    best = MEMM(tol=1e-8, c2=10.0).fit(X, y).result_.value
    found = MEMM(algorithm=algorithm, c2=10.0, tol=1e-5, max_iter=60).fit(X, y).result_.value
    assert best * (1 - 1e-5) < found < best * 1.005


def test_unknown_labels_are_not_for_memms() -> None:
    with pytest.raises(ValueError, match="unknown labels in 'y' need a CRF"):
        MEMM().fit([["a", "b"], ["a"]], [["A", None], ["B"]])


def test_label_bias() -> None:
    """Lafferty's machine: after r, only i or o tell rib from rob; a MEMM must ignore them."""
    X = [["r", "i", "b"]] * 3 + [["r", "o", "b"]]
    y = [["1", "2", "3"]] * 3 + [["4", "5", "3"]]
    now = Template("U0:%x[0,0]\nB")  # each token sees only itself
    assert CRF(now, c2=0.01).fit(X, y).predict([["r", "o", "b"]]) == [["4", "5", "3"]]
    memm = MEMM(now, c2=1e-6, all_possible_transitions=False).fit(X, y)
    assert memm.predict([["r", "i", "b"]]) == [["1", "2", "3"]]
    chain_of = {("1", "2"), ("4", "5")}
    assert tuple(memm.predict([["r", "o", "b"]])[0][:2]) in chain_of | {("1", "5")}


@pytest.mark.parametrize("estimator", [CRF(EDGES), MEMM(EDGES), HMM(), CRF(constraints=[("L1", "L0")])])
def test_weights_by_name(estimator: Any) -> None:
    """The score of a labelling is the sum of the weights of its features."""
    estimator = clone(estimator)
    with pytest.raises(NotFittedError):
        estimator.state_features_  # noqa: B018
    X, y = tokens(7, columns=1)
    y = [["L0"] * len(x) if i else s for i, (s, x) in enumerate(zip(y, X, strict=True))]
    y[0] = ["L0", "L1", "L2", "L2"][: len(X[0])]
    estimator.fit(X, y)
    state, transition = estimator.state_features_, estimator.transition_features_
    assert all(state.values())
    m = estimator.model_
    assert len(state) + len(transition) + len(m.edge_weights()) <= np.count_nonzero(m.weights)
    names = m.encoder.names()
    data = m.encoder.encode(X, False, 1)
    scores = chain_model.ChainModel.score(m, data, 1, np.float64).unary  # before any normalisation
    inner = np.ones(data.n_tokens, bool)
    inner[data.offsets[:-1]] = inner[data.offsets[1:] - 1] = False  # first and last labels have weights of their own
    for t in np.flatnonzero(inner):
        own = [names[a] for a in data.attr[data.ptr[t] : data.ptr[t + 1]].tolist() if a < len(names)]
        expected = [sum(state.get((name, label), 0.0) for name in own) for label in m.labels]
        np.testing.assert_allclose(scores[t], expected, atol=1e-12)
    table = m.transition_table()
    for (i, a), (j, b) in itertools.product(enumerate(m.labels), repeat=2):
        assert table[i, j] in (transition.get((a, b), 0.0), -np.inf)


def test_states_beside_columns_of_labels() -> None:
    """Labels that come as columns are all known; no state is added to them."""
    y = Columns.from_sequences([["A", "B"], ["B"]])
    assert HMM(n_states=4).fit([["a", "b"], ["b"]], y).classes_.tolist() == ["A", "B"]
