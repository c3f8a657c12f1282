"""crfkit.compat.sklearn_crfsuite: the tutorial's code runs with the import changed, and gives what it gave."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import make_scorer
from sklearn.model_selection import RandomizedSearchCV, cross_val_score
from sklearn.utils.validation import check_is_fitted

from crfkit.compat import pycrfsuite, sklearn_crfsuite
from crfkit.compat.sklearn_crfsuite import CRF, metrics, scorers
from crfkit.compat.sklearn_crfsuite.utils import flatten
from crfkit.data import load_corpus

original = pytest.importorskip("sklearn_crfsuite")


def word2features(sentence: list[str], i: int) -> dict[str, Any]:
    """In the manner of the tutorial."""
    word = sentence[i]
    features: dict[str, Any] = {
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-3:]": word[-3:],
        "word.isupper()": word.isupper(),
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
    }
    if i > 0:
        features.update({"-1:word.lower()": sentence[i - 1].lower()})
    else:
        features["BOS"] = True
    if i < len(sentence) - 1:
        features.update({"+1:word.lower()": sentence[i + 1].lower()})
    else:
        features["EOS"] = True
    return features


@pytest.fixture(scope="module")
def corpus() -> tuple[Any, Any, Any, Any]:
    def read(part: str) -> tuple[Any, Any]:
        X, y = load_corpus("ingredients", part)
        assert y is not None
        return [[word2features(s, i) for i in range(len(s))] for s in list(X)[:150]], [list(s) for s in y][:150]

    return (*read("train"), *read("test"))


def test_the_tutorial(corpus: Any) -> None:
    X_train, y_train, X_test, y_test = corpus
    results = []
    for module in (original, sklearn_crfsuite):
        crf = module.CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True)
        crf.fit(X_train, y_train)
        labels = list(crf.classes_)
        y_pred = crf.predict(X_test)
        f1 = metrics.flat_f1_score(y_test, y_pred, average="weighted", labels=labels, zero_division=0)
        report = metrics.flat_classification_report(y_test, y_pred, labels=labels, digits=3, zero_division=0)
        assert isinstance(report, str)
        results.append((labels, f1, crf))
    (labels_a, f1_a, a), (labels_b, f1_b, b) = results
    assert labels_a == labels_b
    assert f1_a == pytest.approx(f1_b, abs=0.02)
    theirs, ours = a.state_features_, b.state_features_
    heavy = [k for k, w in theirs.items() if abs(w) > 0.5]
    assert len(heavy) > 20
    for key in heavy:
        assert ours[key] == pytest.approx(theirs[key], abs=0.1)
    for key, w in a.transition_features_.items():
        assert b.transition_features_.get(key, 0.0) == pytest.approx(w, abs=0.1)


def test_the_same_model_predicts_the_same(corpus: Any, tmp_path: Path) -> None:
    X_train, y_train, X_test, y_test = corpus
    path = str(tmp_path / "m.crfsuite")
    theirs = original.CRF(model_filename=path, max_iterations=30).fit(X_train, y_train)
    ours = CRF(model_filename=path)
    check_is_fitted(ours)
    assert list(ours.predict(X_test)) == [list(y) for y in theirs.predict(X_test)]
    assert ours.classes_ == theirs.classes_
    assert ours.size_ == theirs.size_
    assert ours.num_attributes_ == theirs.num_attributes_
    assert ours.attributes_ == theirs.attributes_
    x = X_test[0]
    assert ours.predict_single(x) == theirs.predict_single(x)
    for a, b in zip(ours.predict_marginals_single(x), theirs.predict_marginals_single(x), strict=True):
        assert a == pytest.approx(b)
    assert len(ours.predict_marginals(X_test[:3])) == 3
    assert ours.score(X_test, y_test) == metrics.flat_accuracy_score(y_test, theirs.predict(X_test))


def test_sklearns_rules(corpus: Any) -> None:
    X, y, X_test, _ = corpus
    crf = CRF(max_iterations=5, c1=0.1)
    assert clone(crf).get_params() == crf.get_params()
    assert crf.get_params().keys() == original.CRF().get_params().keys()
    f1 = make_scorer(metrics.flat_f1_score, average="weighted", zero_division=0)
    search = RandomizedSearchCV(crf, {"c1": [0.01, 0.1], "c2": [0.01, 0.1]}, cv=2, n_iter=2, scoring=f1, random_state=0)
    search.fit(X[:60], y[:60])
    assert search.best_params_.keys() == {"c1", "c2"}
    assert len(cross_val_score(crf, X[:60], y[:60], cv=2, scoring=scorers.flat_accuracy)) == 2
    assert len(cross_val_score(crf, X[:60], y[:60], cv=2, scoring=scorers.sequence_accuracy)) == 2
    fitted = search.best_estimator_
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict(X_test) == fitted.predict(X_test)


def test_prediction_is_lists_even_for_equal_lengths() -> None:
    crf = CRF().fit([[["a"], ["b"]]] * 2, [["A", "B"]] * 2)
    predicted = crf.predict([[["a"], ["b"]]] * 3)
    assert predicted == [["A", "B"]] * 3
    assert isinstance(predicted[0], list)
    assert np.asarray(predicted).shape == (3,)


def test_before_fit() -> None:
    crf = CRF()
    assert (crf.classes_, crf.tagger_, crf.size_, crf.attributes_, crf.state_features_) == (None,) * 5
    with pytest.raises(ValueError, match="not fitted"):
        crf.predict([[["a"]]])
    with pytest.raises(ValueError, match="X_dev and y_dev"):
        crf.fit([[["a"]]], [["A"]], X_dev=[[["a"]]])


def test_held_out_data_and_verbose(corpus: Any, capsys: pytest.CaptureFixture[str]) -> None:
    X, y, X_dev, y_dev = corpus
    crf = CRF(max_iterations=3, verbose=True).fit(X[:50], y[:50], X_dev[:20], y_dev[:20])
    out = capsys.readouterr().out
    assert "Iter 3" in out
    assert "Acc(item/seq)=" in out
    assert "Support" in out
    assert crf.training_log_ is not None
    assert crf.training_log_.last_iteration is not None
    assert crf.training_log_.last_iteration["num"] == 3


def test_trainers_of_ones_own(corpus: Any) -> None:
    X, y, X_test, _ = corpus

    class Mine(pycrfsuite.Trainer):
        seen = 0

        def append(self, xseq: Any, yseq: Any, group: int = 0) -> None:
            Mine.seen += 1
            super().append(xseq, yseq, group)

    import pycrfsuite as foreign

    plain = CRF(max_iterations=20).fit(X[:40], y[:40])
    mine = CRF(max_iterations=20, trainer_cls=Mine).fit(X[:40], y[:40])
    theirs = CRF(max_iterations=20, trainer_cls=foreign.Trainer).fit(X[:40], y[:40])
    assert Mine.seen == 40
    assert plain.predict(X_test) == mine.predict(X_test)
    assert len(theirs.predict(X_test)) == len(X_test)


def test_metrics_agree_with_the_originals() -> None:
    y = [["a", "b"], ["b", "c", "a"]]
    z = [["a", "c"], ["b", "c", "a"]]
    from sklearn_crfsuite import metrics as theirs

    for name in ("precision", "recall", "f1"):
        ours = getattr(metrics, f"flat_{name}_score")(y, z, average="macro")
        assert ours == getattr(theirs, f"flat_{name}_score")(y, z, average="macro")
    assert metrics.flat_fbeta_score(y, z, beta=2, average="macro") == theirs.flat_fbeta_score(y, z, 2, average="macro")
    assert metrics.sequence_accuracy_score(y, z) == 0.5
    assert metrics.sequence_accuracy_score([["a"]], [["a"]]) == 1
    assert metrics.sequence_accuracy_score([], []) == 0
    assert flatten(y) == ["a", "b", "b", "c", "a"]


@pytest.mark.filterwarnings("ignore")
def test_eli5(corpus: Any) -> None:
    eli5 = pytest.importorskip("eli5", exc_type=ImportError)
    crf = CRF(max_iterations=10).fit(corpus[0][:40], corpus[1][:40])
    assert crf.classes_ is not None
    text = eli5.format_as_text(eli5.explain_weights(crf, top=5))
    assert all(label in text for label in crf.classes_)
    assert "Transition features" in text


@pytest.mark.parametrize("algorithm", ["lbfgs", "l2sgd", "ap", "pa", "arow"])
def test_all_five_algorithms_learn(algorithm: str, tmp_path: Any) -> None:
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}], [{"w": "c"}, {"w": "a"}]] * 20
    y = [["A", "B"], ["B"], ["C", "A"]] * 20
    assert sklearn_crfsuite.CRF(algorithm=algorithm).fit(X, y).predict(X) == y
    trainer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False)
    for items, labels in zip(X, y, strict=True):
        trainer.append(items, labels)
    trainer.train(str(tmp_path / "m"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "m"))
    assert [tagger.tag(items) for items in X] == y


@pytest.mark.parametrize(
    "passes",
    [
        1000,  # CRFsuite's default
        4000,
    ],
)
def test_l2sgd_ends_where_lbfgs_does(corpus: Any, passes: int) -> None:
    X, y = corpus[0][:60], corpus[1][:60]

    def objective(**settings: Any) -> float:
        crf: Any = CRF(c2=1.0, all_possible_transitions=True, **settings).fit(X, y)
        w = np.array([*crf.state_features_.values(), *crf.transition_features_.values()])
        total = float(w @ w)
        for items, labels in zip(X, y, strict=True):
            crf.tagger_.set(items)
            total -= np.log(crf.tagger_.probability(labels))
        return total

    best = objective(algorithm="lbfgs", max_iterations=1000, epsilon=1e-9, delta=1e-12)
    found = objective(algorithm="l2sgd", max_iterations=passes, delta=0.0)
    assert best <= found * (1 + 1e-9)
    assert found == pytest.approx(best, rel=1e-4)


def test_numbers_of_sequences_must_agree() -> None:
    with pytest.raises(ValueError, match="there is 1 sequence of items, but 2 of labels"):
        CRF().fit([[{"a": 1}]], [["A"], ["B"]])
