"""One check of shape, the same in every method of every estimator."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfkit
from crfkit import CRF, HMM, MEMM, Template, active
from crfkit.graph import FactorialCRF, SkipChainCRF

X = [["two", "cups"], ["one", "egg"], ["salt"]]
Y = [["Q", "U"], ["Q", "N"], ["N"]]
PAIRS = [[(label, label) for label in row] for row in Y]
LABELLED = ("fit", "score", "objective")
METHODS = (*LABELLED, "predict", "predict_marginals", "predict_proba", "predict_nbest", "potentials", "sample")

WRONG = [
    ("2 cups", "'X' must be a list of sequences, got str '2 cups': split text into tokens"),
    (["two", "cups"], "sequence 0 must be a list of tokens, got str 'two': .*one sequence as"),
    ([["two"], "cups"], "sequence 1 must be a list of tokens, got str 'cups'"),
    (b"2 cups", "'X' must be a list of sequences, got bytes"),
    ([b"2 cups"], "sequence 0 must be a list of tokens, got bytes"),
    ([["two"], None], "sequence 1 must be a list of tokens, got NoneType"),
    (7, "'X' must be a list of sequences, got int 7"),
    ([["two"], 7], "sequence 1 must be a list of tokens, got int 7"),
    ({"two": 1}, "'X' must be a list of sequences, got dict"),
    ([{"two": 1}], "sequence 0 must be a list of tokens, got dict"),
]


def estimators() -> list[Any]:
    """Functions that make estimators: fitted ones must not outlive their test."""
    few = {"max_iter": 2}
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (CRF, few),
        (MEMM, few),
        (HMM, {}),
        (SkipChainCRF, few),
        (FactorialCRF, few),
    ]
    if importlib.util.find_spec("torch") is not None:
        kinds.append((crfkit.NeuralCRF, {"hidden": (4,), "max_iter": 1, "random_state": 0, "device": "cpu"}))
    return [pytest.param(partial(kind, **settings), id=kind.__name__) for kind, settings in kinds]


def labels_for(estimator: Any) -> Any:
    return PAIRS if isinstance(estimator, FactorialCRF) else Y


@pytest.mark.parametrize("make", estimators())
def test_wrong_shapes_are_named_everywhere(make: Any) -> None:
    estimator = make()
    y = labels_for(estimator)
    estimator.fit(X, y)
    for name in METHODS:
        method: Callable[..., Any] | None = getattr(estimator, name, None)
        if method is None:
            continue
        for wrong, message in WRONG:
            labels = [y[:2]] if name in LABELLED else []
            with pytest.raises(ValueError, match=message):
                method(wrong, *labels)
        if name not in LABELLED:
            with pytest.raises(ValueError, match=r"sequence 1, position 0: a token (has 2 columns|must be a str)"):
                method([[], [("two", "CD")]])


@pytest.mark.parametrize("make", estimators())
def test_what_holds_sequences_is_taken(make: Any) -> None:
    estimator = make()
    estimator.fit(X, labels_for(estimator))
    expected = list(estimator.predict(X[:2]))
    for same in (
        tuple(tuple(x) for x in X[:2]),
        np.array(X[:2]),
        [np.array(x) for x in X[:2]],
        (x for x in X[:2]),
    ):
        assert list(estimator.predict(same)) == expected
    assert list(estimator.predict([])) == []
    assert [len(labels) for labels in estimator.predict([[], X[0]])] == [0, 2]


def test_integers_in_arrays_are_tokens_of_hmms() -> None:
    x = np.array([[0, 1], [1, 0]])
    assert HMM().fit(x, [["A", "B"], ["B", "A"]]).predict(x) == [["A", "B"], ["B", "A"]]


def test_explain_takes_one_sequence() -> None:
    crf = CRF(max_iter=2).fit(X, Y)
    data = crfkit.data.Columns.from_sequences(X)
    for wrong, message in (
        ("2 cups", "'x' of explain must be a list of tokens, got str '2 cups'"),
        (b"2 cups", "'x' of explain must be a list of tokens, got bytes"),
        (None, "'x' of explain must be a list of tokens, got NoneType"),
        (X[:2], "'x' of explain must be one sequence of tokens, got a list of sequences"),
        ([["salt"], ["pepper"]], "'x' of explain must be one sequence of tokens, got a list of sequences"),
        (data, "'x' of explain must be one sequence of tokens, got Columns of 3"),
        ([("two", "CD")], "position 0: a token has 2 columns, but the model was trained on tokens of 1 column"),
        ([{"two": 1}], "position 0: a token must be a str"),
    ):
        with pytest.raises(ValueError, match=message):
            crf.explain(wrong)
    for right in (X[0], tuple(X[0]), np.array(X[0]), iter(X[0]), data[0]):
        assert [d.token for d in crf.explain(right)] == X[0]
    items = CRF(None, max_iter=2).fit([[{"a": 1}, ["b"]]], [["A", "B"]])
    assert len(items.explain([{"a": 1}, ["b"]])) == 2
    with pytest.raises(ValueError, match="position 0: an attribute must be a str, got dict"):
        items.explain([[{"a": 1}], [{"b": 1}]])


def test_columns_are_as_many_as_in_training(tmp_path: Path) -> None:
    wide = [[(w, "x") for w in x] for x in X]
    crf = CRF(Template("U:%x[0,0]\nB"), max_iter=2).fit(wide, Y)
    crf.save(tmp_path / "m")
    for model in (crf, crfkit.load(tmp_path / "m"), pickle.loads(pickle.dumps(crf))):
        assert model.predict(wide) == crf.predict(wide)
        with pytest.raises(ValueError, match="a token has 1 column, but the model was trained on tokens of 2 columns"):
            model.predict(X)
    with pytest.raises(ValueError, match="trained on tokens of 2 columns"):
        crf.set_params(warm_start=True).fit(X, Y)


def test_text_is_a_sequence_for_functions_that_learned_from_it(tmp_path: Path) -> None:
    def letter(x: Any, t: int) -> list[str]:
        return [x[t]]

    words, tags = ["ab", "ba"], [["A", "B"], ["B", "A"]]
    crf = CRF(letter, c2=0.01).fit(words, tags)
    assert crf.predict(words) == tags
    assert len(crf.explain("ab")) == 2
    crf.save(tmp_path / "m")
    assert crfkit.load(tmp_path / "m", letter).predict(words) == tags
    tokens = CRF(letter, max_iter=2).fit(X, Y)
    tokens.save(tmp_path / "m")
    for model in (tokens, crfkit.load(tmp_path / "m", letter, kind=CRF)):
        for method in (model.predict, model.explain):
            with pytest.raises(ValueError, match=r"must be a list of .*, got str '2 cups'"):
                method("2 cups")
        with pytest.raises(ValueError, match="sequence 0 must be a list of tokens, got str 'two'"):
            model.predict(["two", "cups"])


@pytest.mark.parametrize("strategy", ["random", "sequence_entropy"])
def test_pools_have_the_same_shape(strategy: str) -> None:
    crf = CRF(max_iter=2).fit(X, Y)
    for wrong, message in WRONG[:6]:
        for ask in (active.uncertainty, active.query):
            with pytest.raises(ValueError, match=message):
                ask(crf, wrong, strategy=strategy)
