"""Scores against seqeval and scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from crfkit import SegmentCRF, metrics

BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]
BIOES = [*BIO, "E-X", "S-X", "E-Y", "S-Y"]


def pairs(labels: list[str]) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    pair = st.tuples(st.sampled_from(labels), st.sampled_from(labels))
    return st.lists(st.lists(pair, min_size=1, max_size=8), min_size=1, max_size=5)


def split(data: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[a for a, _ in s] for s in data], [[b for _, b in s] for s in data]


@settings(max_examples=300)
@given(pairs(BIOES))
def test_spans_are_conllevals(data: list[list[tuple[str, str]]]) -> None:
    for sequence in split(data)[0]:
        expected = [(kind, a, b + 1) for kind, a, b in get_entities(sequence)]
        assert [tuple(span) for span in metrics.spans(sequence)] == expected


@settings(max_examples=100)
@given(pairs(BIO))
def test_scores_equal_seqeval(data: list[list[tuple[str, str]]]) -> None:
    y_true, y_pred = split(data)
    scores = metrics.span_scores(y_true, y_pred)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scores[""].f1 == pytest.approx(f1_score(y_true, y_pred))
        report = classification_report(y_true, y_pred, output_dict=True) if scores[""].support else {}
    for kind, score in scores.items():
        if kind == "":
            continue
        if score.support:
            assert score.precision == pytest.approx(report[kind]["precision"])
            assert score.recall == pytest.approx(report[kind]["recall"])
            assert score.support == report[kind]["support"]


@given(pairs(BIO))
def test_tokens_and_confusion(data: list[list[tuple[str, str]]]) -> None:
    y_true, y_pred = split(data)
    flat_true = [x for s in y_true for x in s]
    flat_pred = [x for s in y_pred for x in s]
    assert metrics.token_accuracy(y_true, y_pred) == pytest.approx(
        np.mean([a == b for a, b in zip(flat_true, flat_pred, strict=True)])
    )
    assert metrics.sequence_accuracy(y_true, y_pred) == np.mean([a == b for a, b in zip(y_true, y_pred, strict=True)])
    labels, counts = metrics.confusion(y_true, y_pred)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of single labels
        np.testing.assert_array_equal(counts, confusion_matrix(flat_true, flat_pred, labels=labels))


def test_report() -> None:
    report = metrics.evaluate([["B-X", "I-X", "O"], ["B-Y"]], [["B-X", "I-X", "O"], ["O"]])
    assert report.summary() == {
        "accuracy": 0.75,
        "sequence_accuracy": 0.5,
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
    }
    text = str(report)
    assert "all" in text
    assert "75.00% of 4" in text
    assert report.to_dict()["chunks"]["X"]["f1"] == 1.0
    tags = metrics.evaluate([["NOUN", "VERB"]], [["NOUN", "NOUN"]])
    assert tags.chunks is None
    assert tags.f1 == 0.5
    assert "NOUN" in str(tags)
    numbers = metrics.evaluate([[1, 2]], [[1, 2]])
    assert numbers.accuracy == 1.0
    empty = metrics.evaluate([], [])
    assert empty.accuracy == 0.0


@settings(max_examples=100)
@given(pairs(BIO))
def test_means_equal_seqevals_and_scikit_learns(data: list[list[tuple[str, str]]]) -> None:
    y_true, y_pred = split(data)
    report = metrics.evaluate(y_true, y_pred)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if report.chunks is not None and report.chunks[""].support:
            expected = classification_report(y_true, y_pred, output_dict=True)
            for mean, name in ((report.macro, "macro avg"), (report.weighted, "weighted avg")):
                for k, part in enumerate(("precision", "recall", "f1-score")):
                    assert mean[k] == pytest.approx(expected[name][part])
        flat = [[x for s in y for x in s] for y in (y_true, y_pred)]
        tags = metrics.evaluate([[f"T{x}" for x in s] for s in y_true], [[f"T{x}" for x in s] for s in y_pred])
        for mean, name in ((tags.macro, "macro"), (tags.weighted, "weighted")):
            expected = precision_recall_fscore_support(*flat, average=name, zero_division=0)
            assert mean[:3] == pytest.approx(expected[:3])


def test_report_shows_its_means() -> None:
    report = metrics.evaluate([["B-X", "I-X", "O"], ["B-<Y>"]], [["B-X", "I-X", "O"], ["O"]])
    assert report.macro[:4] == (0.5, 0.5, 0.5, 2)
    assert report.to_dict()["weighted"]["f1"] == 0.5
    lines = str(report).split("\n")
    assert [line.split()[0] for line in lines[-6:-3]] == ["all", "macro", "weighted"]
    assert repr(report) == "<Report: f1 0.6667, 4 tokens, 2 sequences>"
    assert "<th>&lt;Y&gt;</th><td>0.00</td>" in report._repr_html_()
    assert repr(metrics.evaluate([[1]], [[1]])) == "<Report: accuracy 1.0000, 1 token, 1 sequence>"
    assert str(metrics.evaluate([], []))


class Copy:
    def predict(self, X: list[list[str]]) -> list[list[str]]:
        return X


def test_scorers() -> None:
    y_true, y_pred = [["B-X", "O"], ["B-X"]], [["B-X", "O"], ["O"]]
    assert metrics.f1_scorer(Copy(), y_pred, y_true) == pytest.approx(2 / 3)
    assert metrics.f1_scorer(Copy(), y_pred, y_true, sample_weight=[1, 0]) == 1.0
    assert metrics.f1_scorer(Copy(), [["O"]], [["O"]]) == 0.0
    assert metrics.accuracy_scorer(Copy(), y_pred, y_true) == pytest.approx(2 / 3)
    assert metrics.accuracy_scorer(Copy(), y_pred, y_true, sample_weight=[1, 2]) == 0.5
    with pytest.raises(ValueError, match="got 'NOUN': use accuracy_scorer"):
        metrics.f1_scorer(Copy(), [["NOUN"]], [["O"]])
    with pytest.raises(ValueError, match="a weight for each of 2 sequences"):
        metrics.accuracy_scorer(Copy(), y_pred, y_true, sample_weight=[1])
    with pytest.raises(ValueError, match="must be known"):
        metrics.f1_scorer(Copy(), y_pred, [["B-X", None], ["O"]])
    X, spans = [["a", "b", "c"]] * 2, [[(0, 2, "X")]] * 2
    crf = SegmentCRF().fit(X, spans)
    assert crf.score(X, spans) == metrics.accuracy_scorer(crf, X, spans) == metrics.f1_scorer(crf, X, spans) == 1.0


def test_lengths_must_fit() -> None:
    with pytest.raises(ValueError, match="2 true sequences, but 1 predicted"):
        metrics.token_accuracy([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="sequence 0 has 2 true labels, but 1 predicted"):
        metrics.evaluate([["O", "O"]], [["O"]])
