"""scikit-learn's rules, wherever sequences allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.validation import check_is_fitted

import crfkit
from crfkit import CRF, HMM, MEMM, TokenFeatures, metrics
from crfkit.data import load_corpus
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
from crfkit.training import SGD

# Checks that give the estimator no data, and so do not assume a table of numbers. The others fit arrays
# [n, features], which are no sequences of tokens.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_no_attributes_set_in_init",
    "check_get_params_invariance",
    "check_set_params",
    "check_parameters_default_constructible",
    "check_mixin_order",
]


@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(name: str) -> None:
    check = getattr(estimator_checks, name, None)
    if check is None:
        pytest.skip(f"this scikit-learn has no {name}")
    check("CRF", CRF())


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    X, y = load_corpus("ingredients")
    return list(X[:120]), list(y[:120])


def test_grid_search(data: tuple[Any, Any]) -> None:
    X, y = data
    search = GridSearchCV(CRF(max_iter=20), {"c1": [0.0, 0.1], "c2": [0.01, 1.0]}, cv=3, n_jobs=1)
    search.fit(X, y)
    assert set(search.best_params_) == {"c1", "c2"}
    assert search.best_estimator_.predict(X[:1]) == search.predict(X[:1])
    assert search.best_score_ > 0.5


def test_searches_in_processes_with_a_scorer(data: tuple[Any, Any]) -> None:
    X, y = data

    def f1(crf: CRF, X: Any, y: Any) -> float:
        return metrics.evaluate(y, crf.predict(X)).f1

    search = RandomizedSearchCV(
        CRF(max_iter=5, n_jobs=1), {"c2": [0.1, 1.0]}, n_iter=2, cv=2, scoring=f1, n_jobs=2, random_state=0
    )
    assert search.fit(X, y).best_score_ > 0


@pytest.mark.parametrize("scorer", [metrics.f1_scorer, metrics.accuracy_scorer])
def test_ready_scorers(data: tuple[Any, Any], scorer: Any) -> None:
    X, y = data
    search = GridSearchCV(CRF(max_iter=5), {"c2": [0.1, 1.0]}, cv=2, scoring=scorer, error_score="raise").fit(X, y)
    assert 0.3 < search.best_score_ < 1
    both = {"f1": metrics.f1_scorer, "accuracy": metrics.accuracy_scorer}
    search = GridSearchCV(CRF(max_iter=5), {"c2": [1.0]}, cv=2, scoring=both, refit="f1", error_score="raise").fit(X, y)
    assert search.cv_results_["mean_test_f1"][0] < search.cv_results_["mean_test_accuracy"][0]


def test_settings_of_parameters(data: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = data
    crf = CRF(TokenFeatures(window=1), algorithm=SGD(batch_size=2), max_iter=3)
    assert crf.get_params()["features__window"] == 1
    assert "features__window" not in crf.get_params(deep=False)
    features = crf.features
    crf.set_params(features__window=0, algorithm__batch_size=4)
    assert (crf.features, features) == (TokenFeatures(window=0), TokenFeatures(window=1))
    assert crf.algorithm == SGD(batch_size=4)
    crf.set_params(features__window=1, features=TokenFeatures(affixes=1))
    assert crf.features == TokenFeatures(window=1, affixes=1)
    for wrong in ({"features__wind": 1}, {"c2__x": 1}, {"feature__window": 1}):
        with pytest.raises(ValueError, match=f"Invalid parameter {next(iter(wrong))!r}"):
            crf.set_params(**wrong)
    with pytest.raises(ValueError, match="'auto' has no 'window'"):
        CRF().set_params(features__window=1)
    grid = {"features__window": [0, 2], "algorithm__batch_size": [1]}
    search = GridSearchCV(crf, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.features.window == search.best_params_["features__window"]
    search.best_estimator_.save(tmp_path / "m")
    assert not [k for k in search.best_estimator_.model_.params if "__" in k]
    assert clone(crf).features == crf.features


def test_cross_validation(data: tuple[Any, Any]) -> None:
    X, y = data
    scores = cross_val_score(CRF(max_iter=10), X, y, cv=3, params={"sample_weight": np.ones(len(X))})
    assert scores.shape == (3,)
    assert scores.min() > 0.5


class Lower(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, X: Any, y: Any = None) -> Lower:
        return self

    def transform(self, X: Any) -> Any:
        return [[w.lower() for w in x] for x in X]


def test_pipelines(data: tuple[Any, Any]) -> None:
    X, y = data
    pipe = make_pipeline(Lower(), CRF(max_iter=5))
    pipe.fit(X, y, crf__sample_weight=np.ones(len(X)))
    assert pipe.predict([["2", "CUPS", "flour"]])[0][0] == "B-QTY"
    pipe.set_params(crf__c2=0.5)
    assert clone(pipe).get_params()["crf__c2"] == 0.5


def test_fitted_or_not(data: tuple[Any, Any]) -> None:
    crf = CRF(max_iter=1)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(crf)
    check_is_fitted(crf.fit(*data))
    assert get_tags(crf).target_tags.required
    with pytest.raises(ValueError, match="Invalid parameter 'c3'"):
        crf.set_params(c3=1)
    assert repr(CRF(c2=0.5)) == "CRF(c2=0.5)"


def graphs(n: int) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    sizes = 2 + np.arange(n) % 3
    X = [(rng.normal(size=(k, 2)), np.stack([np.arange(k - 1), np.arange(1, k)], axis=1)) for k in sizes]
    return X, [(x[0][:, 0] > 0).astype(int).tolist() for x in X]


@pytest.mark.parametrize("estimator", [CRF(), MEMM(), HMM(), SkipChainCRF(), FactorialCRF(), GraphCRF(), None])
def test_cross_val_predict_joins_ragged_lists(estimator: Any) -> None:
    if estimator is None:
        pytest.importorskip("torch")
        estimator = crfkit.NeuralCRF(hidden=(), max_iter=40, learning_rate=0.1, random_state=0)
    X: list[Any] = [["a", "b"], ["a"], ["b", "a", "b"]] * 3
    y: list[Any] = [["A", "B"], ["A"], ["B", "A", "B"]] * 3
    if isinstance(estimator, FactorialCRF):
        y = [[(label, label.lower()) for label in row] for row in y]
    if isinstance(estimator, GraphCRF):
        X, y = graphs(9)
    found = cross_val_predict(estimator, X, y, cv=3)
    assert found.shape == (9,)
    if not isinstance(estimator, GraphCRF):
        assert [list(labels) for labels in found] == y
    assert [len(labels) for labels in found] == [len(labels) for labels in y]
