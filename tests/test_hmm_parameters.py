"""HMM by given probabilities and integer tokens: against enumeration."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import crfkit
from crfkit import CRF, HMM
from crfkit.data import Columns
from crfkit.estimators.hmm_tables import Monitor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations, on purpose


def parameters(seed: int, n: int = 3, v: int = 4) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n), n), rng.dirichlet(np.ones(v), n)


def given_hmm(seed: int, n: int = 3, v: int = 4, **settings: Any) -> HMM:
    hmm = HMM(**settings)
    hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = parameters(seed, n, v)
    return hmm


def draws(seed: int, v: int = 4, n: int = 5) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, v, rng.integers(1, 6)) for _ in range(n)]


def joints(seed: int, x: Any, n: int = 3, v: int = 4) -> tuple[list[tuple[int, ...]], Any]:
    """All labellings, and p(x, y) of each."""
    start, transitions, emissions = parameters(seed, n, v)
    paths = list(itertools.product(range(n), repeat=len(x)))
    steps = [np.prod([transitions[i, j] for i, j in itertools.pairwise(path)]) for path in paths]
    seen = [np.prod([emissions[j, k] for j, k in zip(path, x, strict=True)]) for path in paths]
    return paths, np.array([start[path[0]] for path in paths]) * steps * seen


@given(seed=st.integers(0, 500))
def test_given_parameters_by_enumeration(seed: int) -> None:
    X = draws(seed)
    hmm = given_hmm(seed)
    found = [joints(seed, x) for x in X]
    log_probability, labels = hmm.decode(X)
    np.testing.assert_allclose(log_probability, sum(np.log(p.max()) for _, p in found), rtol=1e-10)
    for labelling, (paths, p) in zip(labels, found, strict=True):  # several may be best
        np.testing.assert_allclose(p[paths.index(tuple(labelling))], p.max())
    assert labels == hmm.predict(X)
    log_likelihood, posteriors = hmm.score_samples(X)
    np.testing.assert_allclose(log_likelihood, sum(np.log(p.sum()) for _, p in found), rtol=1e-10)
    np.testing.assert_allclose(hmm.score(X), log_likelihood)
    np.testing.assert_allclose(hmm.score(X, sample_weight=np.full(len(X), 2)), 2 * log_likelihood)
    best = []
    for (paths, p), nodes in zip(found, posteriors, strict=True):
        expected = [[p[[path[t] == j for path in paths]].sum() for j in range(3)] for t in range(len(nodes))]
        np.testing.assert_allclose(nodes, np.array(expected) / p.sum(), atol=1e-10)
        best.append(np.argmax(expected, axis=1).tolist())
    value, labels = hmm.decode(X, algorithm="map")
    assert labels == best
    np.testing.assert_allclose(value, hmm.log_joint(X, best).sum())


@pytest.mark.parametrize("columns", [1, 2])
def test_what_is_impossible_has_no_probability(columns: int, tmp_path: Path) -> None:
    hmm: Any = HMM(smoothing=0, transition_smoothing=0)
    if columns == 1:
        hmm.vocabulary_ = [["a", "b"]]
        hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = [1, 0], [[0.5, 0.5], [0, 1]], [[1, 0], [0.5, 0.5]]
        X: list[Any] = [["a", "b"], ["b"], ["a", "new"], [], ["a", "b", "a", "b"]]
    else:
        hmm.fit([[("a", "x"), ("b", "x")], [("a", "x"), ("a", "x")]], [["A", "B"], ["A", "A"]])
        X = [[("a", "x"), ("b", "x")], [("b", "x")], [("a", "x"), ("a", "new")], [], [("a", "x")]]
    hmm.save(tmp_path / "hmm")
    for model in (hmm, crfkit.load(tmp_path / "hmm", kind=HMM)):
        found = model.log_likelihood(X)
        assert np.isneginf(found).tolist() == [False, True, True, False, False]
        assert found[0] == pytest.approx(np.log(0.25 if columns == 1 else 0.5))
        joint = model.log_joint(X, model.predict(X))
        assert np.isneginf(joint).tolist() == np.isneginf(found).tolist()
        assert model.score(X) == model.decode(X)[0] == model.decode(X, "map")[0] == model.score_samples(X)[0] == -np.inf
        assert model.decode(X)[1] == model.predict(X)
        assert model.aic(X) == model.bic(X) == np.inf
        assert np.isfinite([model.score(X[:1]), model.aic(X[:1]), model.bic(X[:1]), model.decode(X[:1])[0]]).all()
        assert model.score(X, sample_weight=[1, 0, 0, 1, 0]) == pytest.approx(found[0])


def test_zeros_hold_however_improbable_the_rest() -> None:
    hmm = HMM()
    hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = [1, 0], [[1, 0], [0, 1]], [[1e-9, 1 - 1e-9], [0.5, 0.5]]
    X = [[0] * 100]
    likelihood, labels = hmm.decode(X)
    assert labels == [[0] * 100]
    assert likelihood == pytest.approx(100 * np.log(1e-9))
    assert hmm.score(X) == pytest.approx(likelihood)


def test_information_criteria() -> None:
    X, hmm = draws(1), given_hmm(1)
    free = 2 + 3 * 2 + 3 * 3  # each distribution has one parameter less than outcomes
    likelihood = np.log([joints(1, x)[1].sum() for x in X]).sum()
    np.testing.assert_allclose(hmm.aic(X), -2 * likelihood + 2 * free)
    np.testing.assert_allclose(hmm.bic(X), -2 * likelihood + free * np.log(sum(map(len, X))))
    two = HMM().fit([[("a", "x"), ("b", "y"), ("a", "z")]], [["A", "B", "A"]])
    np.testing.assert_allclose(two.aic([[("a", "x")]]), -2 * two.score([[("a", "x")]]) + 2 * (1 + 2 + 2 * 1 + 2 * 2))


def by_hand(seed: int, X: list[Any]) -> tuple[float, Any, Any, Any]:
    """The log-likelihood, and one step of Baum-Welch without smoothing, by enumeration."""
    start, transitions, emissions = np.zeros(3), np.zeros((3, 3)), np.zeros((3, 4))
    total = 0.0
    for x in X:
        paths, p = joints(seed, x)
        total += np.log(p.sum())
        for path, q in zip(paths, p / p.sum(), strict=True):
            start[path[0]] += q
            for i, j in itertools.pairwise(path):
                transitions[i, j] += q
            for j, k in zip(path, x, strict=True):
                emissions[j, k] += q
    return total, *(table / table.sum(axis=-1, keepdims=True) for table in (start, transitions, emissions))


def test_fit_starts_from_given_parameters() -> None:
    X = draws(2, n=20)
    hmm = given_hmm(2, smoothing=0, transition_smoothing=0, warm_start=True, max_iter=1).fit(X)
    likelihood, *expected = by_hand(2, X)
    np.testing.assert_allclose(hmm.monitor_.history, [likelihood])
    for found, table in zip((hmm.startprob_, hmm.transmat_, hmm.emissionprob_), expected, strict=True):
        np.testing.assert_allclose(found, table, atol=1e-10)
    assert hmm.monitor_ == Monitor(hmm.monitor_.history, False)
    before = hmm.score(X)
    hmm.set_params(max_iter=500, tol=1e-9).fit(X)  # goes on
    assert hmm.monitor_.history[0] == pytest.approx(before)
    assert hmm.result_.reason == "tolerance"
    assert hmm.monitor_ == Monitor(hmm.monitor_.history, True)
    assert hmm.monitor_.iter == hmm.n_iter_ > 1
    assert (np.diff(hmm.monitor_.history) > -1e-9).all()
    anew = given_hmm(2, n_states=3, max_iter=1, random_state=0).fit(X)  # without warm_start, from chance
    assert anew.monitor_.history[0] != pytest.approx(likelihood)


@pytest.mark.parametrize("zeros", [False, True])
def test_smoothing_of_what_is_given_as_zero(zeros: bool) -> None:
    """No unseen value, or some others: the objective is the same function from the first iteration on."""
    X = [[0, 0, 1, 1, 2], [2, 2, 0]]
    hmm = HMM(warm_start=True, max_iter=300, tol=0)
    hmm.startprob_, hmm.transmat_ = [0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]]
    hmm.emissionprob_ = [[0.6, 0.4, 0.0], [0.0, 0.3, 0.7]] if zeros else [[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]
    hmm.fit(X)
    assert hmm.n_iter_ > 2
    rises = np.diff(hmm.history_)
    assert (rises >= -1e-9).all()
    assert rises[0] > 50  # the prior wants no zeros
    value, score = hmm.history_[-1], hmm.score(X)
    hmm.fit(X)  # nothing is left to gain
    assert hmm.history_[-1] == pytest.approx(value, rel=1e-6)
    assert hmm.score(X) == pytest.approx(score, rel=1e-4)


def test_monitor_is_the_likelihood_without_the_prior() -> None:
    X = draws(3, n=20)
    seen: list[Any] = []
    hmm = given_hmm(3, smoothing=0.5, warm_start=True, max_iter=3, callback=lambda p, w: seen.append(p)).fit(X)
    assert hmm.monitor_.history == [-p.terms["likelihood"] for p in seen]
    np.testing.assert_allclose(hmm.monitor_.history[0], given_hmm(3).score(X))
    assert hmm.history_[1] != pytest.approx(hmm.monitor_.history[1])
    counted = HMM().fit([["a", "b"]], [["A", "B"]])
    assert counted.monitor_ == Monitor([], True)


def test_some_of_the_parameters_are_given() -> None:
    X = draws(4, n=20)
    hmm = HMM(n_states=3, warm_start=True, max_iter=0, random_state=0)
    hmm.transmat_ = parameters(4)[1]
    with pytest.raises(NotFittedError):
        hmm.predict(X)
    hmm.fit(X)
    np.testing.assert_allclose(hmm.transmat_, parameters(4)[1])
    other = HMM(n_states=3, max_iter=0, random_state=0).fit(X)
    np.testing.assert_allclose(hmm.startprob_, other.startprob_)
    np.testing.assert_allclose(hmm.emissionprob_, other.emissionprob_)


def test_symbols_that_the_data_lacks() -> None:
    hmm = HMM(n_states=2, warm_start=True, random_state=0, smoothing=0)
    hmm.vocabulary_ = [range(5)]
    hmm.fit([[0, 4], [4, 0, 1]])
    assert hmm.vocabulary_ == [[0, 1, 2, 3, 4]]
    assert (hmm.emissionprob_[:, 2:4] == 0).all()


def test_given_zeros_stay_zero() -> None:
    """A left-to-right model stays one, also with smoothing."""
    hmm = HMM(warm_start=True, max_iter=5)
    hmm.startprob_ = [1, 0, 0]
    hmm.transmat_ = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0, 0, 1.0]]
    hmm.emissionprob_ = parameters(5)[2]
    hmm.fit(draws(5, n=20))
    assert hmm.startprob_.tolist() == [1, 0, 0]
    assert (hmm.transmat_[[0, 1, 1, 2, 2], [2, 0, 0, 0, 1]] == 0).all()
    assert (np.diff(hmm.history_) >= -1e-9).all()
    assert all(path == sorted(path) for path in hmm.predict(draws(6, n=20)))


def test_labels_then_unlabelled_text() -> None:
    """What was counted is where Baum-Welch begins; new values share the probability of an unseen one."""
    hmm = HMM(warm_start=True, max_iter=0).fit([["the", "dog"], ["a", "cat"]], [["D", "N"], ["D", "N"]])
    before = hmm.emissions_[0]
    unlabelled = [["the", "bird"], ["this", "cat"]]
    hmm.fit(unlabelled)
    assert hmm.classes_.tolist() == ["D", "N"]
    assert hmm.vocabulary_ == [["the", "dog", "a", "cat", "bird", "this"]]
    np.testing.assert_allclose(hmm.emissions_[0][:, :4], before[:, :4])
    np.testing.assert_allclose(hmm.emissions_[0][:, 4:], np.repeat(before[:, 4:] / 3, 3, axis=1))
    hmm.set_params(max_iter=20).fit(unlabelled)
    assert (np.diff(hmm.history_) >= -1e-9).all()
    assert hmm.predict([["this", "bird"]]) == [["D", "N"]]
    with pytest.raises(ValueError, match="label 'V' is not one of HMM's initial labels"):
        hmm.fit([["runs"]], [["V"]])
    with pytest.raises(ValueError, match="tokens have 2 columns, but HMM starts from a vocabulary of 1"):
        hmm.fit([[("a", "b")]])


@pytest.mark.parametrize("of", [list, np.array, lambda x: np.array(x, np.int32), tuple])
def test_integers_are_symbols(of: Any, tmp_path: Path) -> None:
    X = [of([7, 0, 7]), of([12]), of([])]
    y: list[Any] = [["A", "B", "A"], ["B"], []]
    hmm = HMM().fit(X, y)
    text = HMM().fit([["7", "0", "7"], ["12"], []], y)
    assert hmm.vocabulary_ == [[0, 7, 12]]
    assert {type(x) for x in hmm.vocabulary_[0]} == {int}
    assert hmm.predict([of([7, 12, 99])]) == text.predict([["7", "12", "99"]])
    np.testing.assert_allclose(hmm.log_likelihood(X), text.log_likelihood([["7", "0", "7"], ["12"], []]))
    drawn, _ = hmm.generate(50, random_state=0)
    assert set(drawn) - {"<unseen>"} == {0, 7, 12}
    assert CRF.from_hmm(hmm).predict(X) == hmm.predict(X)
    more = hmm.set_params(warm_start=True, max_iter=1).fit([of([5, 7])])
    assert more.vocabulary_ == [[0, 7, 12, 5]]
    assert text.set_params(warm_start=True, max_iter=1).fit([of([5, 7])]).vocabulary_ == [["7", "0", "12", "5"]]
    hmm.save(tmp_path / "hmm")
    again = crfkit.load(tmp_path / "hmm", kind=HMM)
    assert again.vocabulary_ == [[0, 7, 12, 5]]
    assert again.predict(X) == hmm.predict(X)


def test_columns_of_integers() -> None:
    some: list[Any] = [np.array([3, -1]), [], [10]]
    x = Columns.from_sequences(iter(some))
    assert list(x) == [["3", "-1"], [], ["10"]]
    assert list(Columns.from_sequences(np.array([[1, 2], [2, 1]]))) == [["1", "2"], ["2", "1"]]
    mixed = [np.array([2**53 + 1]), np.array([1], np.uint64), np.array([2], np.int8)]
    assert list(Columns.from_sequences(mixed)) == [["9007199254740993"], ["1"], ["2"]]
    cases: list[tuple[Any, str]] = [
        ([[1, "a"]], "sequence 0: all tokens must be ints"),
        ([[1], [1.5]], "sequence 1: all tokens must be ints"),
        ([[1], [True]], "sequence 1: all tokens must be ints"),
        ([[2**70]], "sequence 0: all tokens must be ints"),
        (np.array([[1], [2]]), r"an array of shape \(2, 1\) must be cut into sequences"),
        ([[True]], "sequence 0, position 0: a token must be a str"),
        ([["a", 1]], "sequence 0, position 1: a token must be a str"),
    ]
    for wrong, text in cases:
        with pytest.raises(ValueError, match=text):
            Columns.from_sequences(wrong)


def test_one_array_of_all_tokens_is_refused() -> None:
    """Arrays and lengths as hmmlearn takes them are no sequences."""
    X, lengths = [[0, 0, 1, 1, 2], [2, 2, 0]], [5, 3]
    column = np.concatenate(X)[:, None]
    hmm: Any = given_hmm(0, warm_start=True, max_iter=1)
    methods = "fit score decode predict score_samples aic bic log_likelihood predict_marginals predict_nbest sample"
    for name in methods.split():
        for flat in (column, column.ravel()):
            with pytest.raises(ValueError, match=r"must be cut into sequences: np\.split\(X\.ravel\(\), np\.cumsum"):
                getattr(hmm, name)(flat)
        with pytest.raises(ValueError, match="got int 0; give one sequence as"):
            getattr(hmm, name)(column.ravel().tolist())
    for call in (hmm.fit, hmm.decode):
        with pytest.raises(ValueError, match=r"an array of shape \(8, 1\) must be cut"):
            call(column, lengths)
    for call in (hmm.fit, hmm.score, hmm.log_joint):
        for many in (lengths, np.array(lengths)):
            with pytest.raises(ValueError, match=r"labels of sequence 0 must be a list.*no lengths.*np\.split"):
                call(X, many)
    cut = np.split(column.ravel(), np.cumsum(lengths)[:-1])
    assert hmm.score(cut) == hmm.score(X)
    assert hmm.score(np.array([[2]])) == hmm.score([[2]])  # one token is one sequence either way
    assert hmm.score(np.array([[2, 0], [1, 1]])) == hmm.score([[2, 0], [1, 1]])


def test_given_words(tmp_path: Path) -> None:
    hmm = HMM()
    hmm.vocabulary_ = [["sun", "rain"]]
    hmm.startprob_, hmm.transmat_, hmm.emissionprob_ = [0.5, 0.5], np.eye(2), [[0.9, 0.05], [0.2, 0.8]]
    np.testing.assert_allclose(hmm.emissions_[0], [[0.9, 0.05, 0.05], [0.2, 0.8, 0]])
    assert hmm.predict([["sun", "sun"], ["rain", "rain"], ["snow"]]) == [[0, 0], [1, 1], [0]]
    hmm.save(tmp_path / "hmm")
    again = crfkit.load(tmp_path / "hmm", kind=HMM)
    for name in ("startprob_", "transmat_", "emissionprob_"):
        np.testing.assert_allclose(getattr(again, name), getattr(hmm, name))
    assert (again.transmat_ == np.eye(2)).all()
    for other in (copy.deepcopy(hmm), pickle.loads(pickle.dumps(hmm))):
        assert other.decode([["sun", "rain"]]) == hmm.decode([["sun", "rain"]])
    assert not hasattr(clone(hmm), "transmat_")
    again.transmat_ = [[0, 1], [1, 0]]
    assert again.predict([["sun", "rain", "sun"]]) == [[0, 1, 0]]
    with pytest.raises(ValueError, match="read-only"):
        hmm.transmat_[0, 0] = 0.5


def test_labels_stay_when_parameters_are_set() -> None:
    hmm = HMM().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
    hmm.startprob_ = [1, 0]
    assert hmm.predict([["b"]]) == [["A"]]


def test_wrong_parameters_are_refused() -> None:
    start, transitions, emissions = parameters(0)
    for name, value, text in [
        ("startprob_", [0.5, 0.6], "'startprob_' of HMM must hold probabilities that sum to 1"),
        ("startprob_", [1.2, -0.2], "'startprob_' of HMM must hold probabilities, which are not negative, got -0.2"),
        ("startprob_", [[1.0]], r"'startprob_' of HMM must have 1 dimensions, got shape \(1, 1\)"),
        ("transmat_", transitions[:2], "'transmat_' of HMM must be for the same number of labels as the others"),
        ("transmat_", -transitions, "'transmat_' of HMM must hold probabilities"),
        ("emissionprob_", emissions[:2], "'emissionprob_' of HMM must be for the same number of labels"),
        ("emissionprob_", emissions * 1.1, "sum to at most 1"),
        ("emissionprob_", emissions[:, :3], r"'emissionprob_' of HMM is for \[3\] values, 'vocabulary_' has \[4\]"),
        ("vocabulary_", ["a", "b", "c", "d"], "'vocabulary_' of HMM must be a list of one list"),
        ("vocabulary_", [["a", "b", "a", "d"]], "'vocabulary_' of HMM must be a list of one list"),
    ]:
        hmm = HMM(n_states=3)
        hmm.vocabulary_ = [["a", "b", "c", "d"]]
        hmm.startprob_ = start
        with pytest.raises(ValueError, match=text):
            setattr(hmm, name, value)
    with pytest.raises(ValueError, match="the same number of labels as the others"):
        HMM(n_states=2).startprob_ = start
    with pytest.raises(ValueError, match="must be set before 'emissionprob_'"):
        given_hmm(0).vocabulary_ = [["a"]]
    with pytest.raises(ValueError, match=r"the initial parameters of HMM must agree in number, got \[2, 3\]"):
        given_hmm(0, warm_start=True).set_params(n_states=2).fit([[0]], [[None]])
    with pytest.raises(ValueError, match="'algorithm' of decode must be"):
        given_hmm(0).decode([[0]], "best")
    with pytest.raises(ValueError, match="there are no tokens to learn from"):
        HMM(n_states=2).fit([[]])
    with pytest.raises(AttributeError, match="this HMM has no such probabilities yet"):
        HMM().startprob_  # noqa: B018
    two = HMM().fit([[("a", "x")]], [["A"]])
    with pytest.raises(AttributeError, match="have 2 columns"):
        two.emissionprob_  # noqa: B018


def test_the_number_of_states_can_be_searched() -> None:
    X = draws(8, n=30)
    search = GridSearchCV(HMM(random_state=0, max_iter=5), {"n_states": [1, 2]}, cv=2).fit(X)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
