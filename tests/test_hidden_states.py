"""Labels with several hidden states: likelihood, predictions, files."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from command import run

import crfkit
from crfkit import CRF, chain, metrics
from crfkit.data import load_corpus

X = [["a", "b", "c"], ["b", "a"], ["c"]]
Y = [["A", "B", "A"], ["B", "B"], ["A"]]


def fitted(**how: Any) -> CRF:
    settings = {"hidden_states": 2, "c2": 0.1, "dtype": "float64", "random_state": 1, **how}
    return CRF(**settings).fit(X, Y)


def chances(crf: CRF, x: list[str]) -> dict[tuple[Any, ...], float]:
    """Probabilities of all labellings of a sequence: sums over paths of states."""
    p = crf.potentials([x])[0]
    out: dict[tuple[Any, ...], float] = {}
    for path, chance in zip(oracle.all_paths(p), oracle.probabilities(p), strict=True):
        names = tuple(crf.model_.labels[j] for j in path)
        out[names] = out.get(names, 0.0) + chance
    return out


def test_likelihood_sums_over_states() -> None:
    crf = fitted()
    assert crf.classes_.tolist() == ["A", "B"]
    assert crf.model_.labels == ("A", "A", "B", "B")
    value, gradient = crf.objective(X, Y).value_and_grad(crf.weights_)
    w = crf.weights_
    expected = -sum(np.log(chances(crf, x)[tuple(y)]) for x, y in zip(X, Y, strict=True)) + 0.1 * w @ w
    assert value == pytest.approx(expected, rel=1e-9)
    assert np.abs(gradient).max() < 0.05


def test_backward_passes_alone_give_the_same_gradient() -> None:
    crf = fitted()
    study = CRF(hidden_states=2, c2=0.1, gradient="backward")
    study.model_ = crf.model_
    w = np.random.default_rng(0).normal(size=len(crf.weights_))
    (a, da), (b, db) = (one.objective(X, Y).value_and_grad(w) for one in (crf, study))
    assert a == pytest.approx(b, rel=1e-10)
    np.testing.assert_allclose(da, db, atol=1e-10)


def test_predictions_sum_over_states() -> None:
    crf = fitted()
    for x in X:
        known = chances(crf, x)
        nodes = crf.predict_marginals([x])[0]
        for t, j in itertools.product(range(len(x)), range(2)):
            expected = sum(p for names, p in known.items() if names[t] == crf.classes_[j])
            assert nodes[t, j] == pytest.approx(expected, abs=1e-9)
        best = max(known, key=lambda names: known[names])
        taggings = crf.predict_nbest([x], 50)[0]
        assert len(taggings) == len(known)
        assert taggings[0].labels == list(best) == crf.predict([x], by="nbest")[0]
        for tagging in taggings:
            assert tagging.probability == pytest.approx(known[tuple(tagging.labels)], rel=1e-9)
        marginal = [crf.classes_[j] for j in nodes.argmax(axis=1)]
        assert crf.predict([x], by="marginals")[0] == marginal
        p = crf.potentials([x])[0]
        assert crf.predict([x])[0] == [crf.model_.labels[j] for j in chain.decode(p)]
    with pytest.raises(ValueError, match="'by' of predict"):
        crf.predict(X, by="luck")


def test_given_labels_fix_labels_not_states() -> None:
    crf = fitted()
    assert crf.predict([["a", "b"]], given=[["B", None]])[0][0] == "B"
    nodes = crf.predict_marginals([["a", "b"]], given=[[{"A"}, None]])[0]
    assert nodes[0, 0] == pytest.approx(1.0)


def test_file_and_warm_start(tmp_path: Path) -> None:
    crf = fitted()
    crf.save(tmp_path / "model")
    again = crfkit.load(tmp_path / "model")
    assert isinstance(again, CRF)
    assert again.hidden_states == 2
    assert again.predict_marginals(X)[0].tolist() == crf.predict_marginals(X)[0].tolist()
    grown = CRF(hidden_states=2, warm_start=True).fit(X, Y).fit([*X, ["d"]], [*Y, ["D"]])
    assert grown.model_.labels == ("A", "A", "B", "B", "D", "D")


def test_names_and_explanations() -> None:
    crf = fitted()
    assert {label for _, label in crf.state_features_} == {"A#1", "A#2", "B#1", "B#2"}
    decision = crf.explain(X[0])[0]
    nodes = crf.predict_marginals([X[0]])[0]
    assert {decision.label, decision.runner_up} == {"A", "B"}
    assert decision.probability == pytest.approx(nodes[0, crf.classes_.tolist().index(decision.label)])
    assert [d.label for d in crf.explain(X[0], Y[0]).decisions] == Y[0]


def test_constraints_hold_for_all_states() -> None:
    crf = fitted(constraints=[("A", "A")])
    for path in crf.sample([["a", "b", "c", "a"]], 200, random_state=0)[0]:
        assert ("A", "A") not in itertools.pairwise(path)


def test_several_starts_keep_the_best() -> None:
    seeds = [5, *np.random.SeedSequence(5).generate_state(3).tolist()]
    values = [fitted(random_state=seed, c2=0.01).result_.value for seed in seeds]
    best = fitted(random_state=5, n_init=4, c2=0.01)
    assert best.result_.value == min(values)


def test_starts_of_neighbouring_seeds_differ() -> None:
    begun: list[list[bytes]] = []
    for seed in (0, 1, 2):
        begun.append([])

        def note(progress: Any, w: Any) -> None:
            if progress.iteration == 1:
                begun[-1].append(w.tobytes())

        fitted(random_state=seed, n_init=3, callback=note)
    assert len({start for starts in begun for start in starts}) == 9


@pytest.mark.parametrize("start", [1, 2])
@pytest.mark.parametrize("kind", ["callback", "interrupted"])
def test_whoever_ends_training_ends_all_starts(kind: str, start: int) -> None:
    starts = []

    def stop(progress: Any, w: Any) -> bool:
        starts.append(progress.iteration == 1)
        if sum(starts) < start or progress.iteration < 3:
            return False
        if kind == "interrupted":
            raise KeyboardInterrupt
        return True

    how: dict[str, Any] = {"random_state": 0, "n_init": 4, "c2": 0.01, "callback": stop}
    if kind == "interrupted":
        with pytest.warns(RuntimeWarning, match="training was interrupted"):
            crf = fitted(**how)
    else:
        crf = fitted(**how)
    assert sum(starts) == start
    assert crf.result_.reason == kind
    if start == 2:  # the first one ended by itself, and is better
        assert crf.result_.value == fitted(random_state=0, c2=0.01).result_.value


@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd"])
def test_an_entropy_without_weight_is_not_shown(algorithm: Any) -> None:
    seen = []
    fitted(algorithm=algorithm, callback=lambda progress, w: seen.append(set(progress.terms)))
    assert all(names == {"likelihood"} for names in seen)


def test_states_are_named_wherever_weights_are_shown(tmp_path: Path) -> None:
    crf = fitted()
    crf.save(tmp_path / "model")
    states = ["A#1", "A#2", "B#1", "B#2"]
    rows = run("inspect", tmp_path / "model", "--all").stdout.splitlines()
    shown = [row.split("\t") for row in rows]
    pairs = {(a, b) for a, b, _ in shown if a in states}
    assert pairs == set(itertools.product(states, states))
    table = run("inspect", tmp_path / "model", "--table").stdout.split("transitions (row, then column)")[1]
    assert table.split()[:4] == states
    one = run("inspect", tmp_path / "model", "--label", "B#1").stdout
    assert "largest weights for B#1" in one
    assert crf.model_.state_weights(label="B#1") == [w for w in crf.model_.state_weights() if w.label == "B#1"]
    error = run("inspect", tmp_path / "model", "--label", "C", code=1).stderr
    assert error.rstrip().endswith("the model has no label 'C': it has A, B")
    many = CRF(hidden_states=7, max_iter=1, tol=1).fit(X, Y)
    many.save(tmp_path / "many")
    text = run("inspect", tmp_path / "many", "-n", "20").stdout.split("largest transitions")[1]
    names = [line.split(maxsplit=1)[1] for line in text.splitlines() if line]
    assert len(names) == len(set(names)) == 40


def flip_flop(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Labels that only a memory of two tokens explains: X and Y take turns in pairs, X X Y Y X X ..."""
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for _ in range(n):
        first = rng.integers(4)
        labels = ["XXYY"[(first + t) % 4] for t in range(10)]
        noisy = [label if rng.random() < 0.65 else "XY"[rng.integers(2)] for label in labels]
        xs.append(noisy)
        ys.append(labels)
    return xs, ys


@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd"])
def test_states_gain_where_a_label_has_two_parts(algorithm: Any) -> None:
    train, test = flip_flop(200, 0), flip_flop(100, 1)
    scores = []
    for states in (1, 2):
        crf = CRF(hidden_states=states, n_init=3 if states > 1 else 1, algorithm=algorithm, random_state=0, c2=0.01)
        crf.max_iter = 60
        with warnings.catch_warnings(action="ignore"):  # of the limit
            crf.fit(*train)
        scores.append(metrics.token_accuracy(test[1], crf.predict(test[0])))
    assert scores[1] > scores[0] + 0.05


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"class_weight": "balanced"}, "'class_weight' of CRF needs hidden_states=1"),
        ({"warm_start_fraction": 0.5}, "'warm_start_fraction' of CRF needs hidden_states=1"),
    ],
)
def test_what_cannot_be(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(**how)


def test_states_stay_as_many() -> None:
    crf = fitted(warm_start=True).set_params(hidden_states=3)
    with pytest.raises(ValueError, match="'hidden_states' of CRF is 3, but the model to continue from has 4 states"):
        crf.fit(X, Y)
    with pytest.raises(ValueError, match="'hidden_states' of the CRF for tune must be 1"):
        crfkit.tune(CRF(hidden_states=2), X, Y)


@pytest.mark.parametrize("how", [{"algorithm": "pa"}, {"beam": "min-divergence:0.01"}, {"algorithm": "newton-cg"}])
def test_other_ways_to_train(how: dict[str, Any]) -> None:
    words, labels = load_corpus("ingredients", "train")
    crf = CRF(hidden_states=2, random_state=0, max_iter=10, **how)
    with warnings.catch_warnings(action="ignore"):
        crf.fit(words[:100], labels[:100])
    assert metrics.token_accuracy(labels[100:150], crf.predict(words[100:150])) > 0.7


def test_too_many_states_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'hidden_states' of CRF must be at most 256"):
        CRF(hidden_states=10**12).fit([["a"]], [["x"]])


def test_starts_are_checked_first(tmp_path: Path) -> None:
    X, y = [["a", "b"]], [["A", "B"]]
    with pytest.raises(ValueError, match="'n_init' of CRF must be an int >= 1, got 0"):
        CRF(hidden_states=2, n_init=0).fit(X, y)
    with pytest.raises(ValueError, match="'checkpoint' of CRF needs n_init=1, got 2"):
        CRF(hidden_states=2, n_init=2, checkpoint=tmp_path / "c").fit(X, y)
    assert not (tmp_path / "c").exists()
    (tmp_path / "data").write_text("a A\n")
    out = run("train", tmp_path / "data", "-m", tmp_path / "m", "--n-init", "2", code=2)
    assert "--n-init does nothing without --hidden-states" in out.stderr
