"""Votes of sources of unequal skill: what they are worth, and the labels they make."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest

from crfkit import CRF, SegmentCRF, WeakLabels, metrics
from crfkit.chain import Potentials
from crfkit.data import load_corpus

LABELS = ["A", "B", "C"]


def known_model(n: int, seed: int) -> tuple[list[list[str]], dict[str, list[list[str | None]]], dict[str, float]]:
    """Labels of a Markov chain, and the votes of sources of known accuracy and coverage."""
    rng = np.random.default_rng(seed)
    stay = 0.7
    skill = {"good": (0.95, 0.6), "fair": (0.8, 0.9), "poor": (0.6, 0.5), "bold": (0.7, 1.0)}
    truth: list[list[str]] = []
    votes: dict[str, list[list[str | None]]] = {name: [] for name in skill}
    for _ in range(n // 20):
        row = [int(rng.integers(3))]
        while len(row) < 20:
            row.append(row[-1] if rng.random() < stay else int(rng.integers(3)))
        truth.append([LABELS[j] for j in row])
        for name, (accuracy, coverage) in skill.items():
            votes[name].append(
                [
                    None
                    if rng.random() > coverage
                    else LABELS[j if rng.random() < accuracy else (j + rng.integers(1, 3)) % 3]
                    for j in row
                ]
            )
    return truth, votes, {name: accuracy for name, (accuracy, _) in skill.items()}


def test_skills_are_found() -> None:
    truth, votes, skill = known_model(20_000, 0)
    weak = WeakLabels(votes, LABELS, scheme=None)
    X = [[""] * len(row) for row in truth]
    soft = weak.fit_transform(X)
    for one in weak.reliability_:
        assert one.accuracy == pytest.approx(skill[one.source], abs=0.02)
    best = [[max(token, key=token.__getitem__) for token in row] for row in soft]
    accuracy = metrics.token_accuracy(truth, best)
    majority: list[list[str]] = []
    for i, row in enumerate(truth):
        majority.append([])
        for t in range(len(row)):
            cast = [vote for rows in votes.values() if (vote := rows[i][t]) is not None]
            majority[-1].append(max(sorted(set(cast)), key=cast.count) if cast else "A")
    assert accuracy > metrics.token_accuracy(truth, majority) + 0.03


def test_reliability_is_of_the_data() -> None:
    """Votes counted, and the labels' probabilities summed over all labellings of each sequence."""
    rng = np.random.default_rng(3)
    labels = ["O", "A", "B"]
    X = [[""] * n for n in (1, 1, 1, 2, 3, 3)]
    lists = {
        name: [[labels[j] if j < 3 else None for j in rng.integers(k, 4, len(x))] for x in X]
        for k, name in enumerate(["any", "entities", "seldom"])
    }
    weak = WeakLabels(lists, labels, scheme=None).fit(X)
    given = weak.votes(X)
    start, steps = np.log(weak.startprob_), np.log(weak.transmat_)
    seen = [
        np.array(
            [
                sum(
                    np.log(table[:, values.index(vote)])
                    for table, values, vote in zip(weak.emissions_, weak.vocabulary_, token, strict=True)
                )
                for token in row
            ]
        )
        for row in given
    ]
    nodes = np.concatenate([oracle.nodes(Potentials(unary, steps, start=start)) for unary in seen])
    tokens = [token for row in given for token in row]
    for s, one in enumerate(weak.reliability_):
        right = {t: nodes[t, labels.index(v[s])] for t, v in enumerate(tokens) if v[s] in labels}
        assert one.coverage == len(right) / len(tokens)
        assert one.accuracy == pytest.approx(np.mean([*right.values()]), abs=1e-5)
        found = sum(p for t, p in right.items() if tokens[t][s] != "O")
        assert one.recall == pytest.approx(found / nodes[:, 1:].sum(), abs=1e-5)


def test_sources_of_short_sequences() -> None:
    truth = ["N" if i % 10 == 0 else "P" for i in range(1000)]
    wrong = {"N": "P", "P": "N"}
    sources: dict[str, Any] = {
        "one label": [[label if label == "P" else None] for label in truth],
        "nine in ten": [[label if (i // 10) % 10 else wrong[label]] for i, label in enumerate(truth)],
        "all": [[label] for label in truth],
        "none": [None] * 1000,
    }
    weak = WeakLabels(sources, ["P", "N"], scheme=None).fit([["x"]] * 1000)
    assert [one.coverage for one in weak.reliability_] == [0.9, 1.0, 1.0, 0.0]
    assert [one.accuracy for one in weak.reliability_[:3]] == pytest.approx([1.0, 0.9, 1.0], abs=0.01)
    assert [one.recall for one in weak.reliability_] == pytest.approx([0.9, 0.9, 1.0, 0.0], abs=0.01)


def test_soft_and_partial_labels() -> None:
    truth, votes, _ = known_model(2_000, 1)
    weak = WeakLabels(votes, LABELS, scheme=None)
    X = [[""] * len(row) for row in truth]
    soft, sets = weak.fit_transform(X, least=0), weak.transform(X, "set", least=0.2)
    for a, b in zip(soft, sets, strict=True):
        for chances, known in zip(a, b, strict=True):
            assert sum(chances.values()) == pytest.approx(1.0)
            likely = {label for label, p in chances.items() if p >= 0.2}
            assert known == (None if len(likely) == 3 else likely.pop() if len(likely) == 1 else likely)
    found = [[token for token in row if isinstance(token, str)] for row in sets]
    assert sum(map(len, found)) > 1000
    assert any(isinstance(token, set) for row in sets for token in row)
    CRF(max_iter=3, tol=1).fit(X, sets)
    with pytest.raises(ValueError, match="'form' of transform"):
        weak.transform(X, "hard")


def test_rules_teach_a_crf() -> None:
    X, y = load_corpus("ingredients", "train")
    kinds = sorted({label[2:] for row in y for label in row if label != "O"} or {label for row in y for label in row})
    scheme = "bio" if any(label.startswith("B-") for row in y for label in row) else None
    few: dict[str, str] = {}
    for words, labels in zip(X[:40], y[:40], strict=True):
        for word, label in zip(words, labels, strict=True):
            few[word[0] if isinstance(word, tuple) else word] = label
    lexicon = [[few.get(w[0] if isinstance(w, tuple) else w) for w in words] for words in X[40:]]
    rng = np.random.default_rng(0)
    noisy = [[label if rng.random() < 0.6 else None for label in row] for row in y[40:]]
    weak = WeakLabels({"lexicon": lexicon, "annotator": noisy}, kinds, scheme=scheme)
    soft = weak.fit_transform(X[40:])
    crf = CRF().fit(X[40:], soft)
    assert metrics.token_accuracy(y[:40], crf.predict(X[:40])) > 0.75


@pytest.mark.parametrize(("scheme", "tags"), [("bio", "BII"), ("bioes", "BIE"), ("bilou", "BIL"), (None, "")])
def test_spans_are_written_in_the_scheme(scheme: str | None, tags: str) -> None:
    weak = WeakLabels({"rule": lambda x: [(1, 4, "X")]}, ["X"], scheme=scheme)
    expected = [f"{tag}-X" for tag in tags] or ["X"] * 3
    assert [vote for (vote,) in weak.votes([list("abcde")])[0][1:4]] == expected


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"r": lambda x: [(0, 9, "X")]}, "source 'r', sequence 0: a span from 0 to 9 of 2 tokens"),
        ({"r": lambda x: [(0, 1, "Y")]}, "'Y' is not one of the labels"),
        ({"r": [["O"]]}, "must be a vote or None for 2 tokens, got 1"),
        ({"r": [["O", "Y"]]}, "'Y' is not one of the labels"),
        ({}, "'sources' of WeakLabels"),
        ({"r": lambda x: ["O"] * len(x)}, r"source 'r', sequence 0: .* spans \(start, end, type\), got 'O' among them"),
        ({"r": lambda x: [(0, "1", "X")]}, r"source 'r', sequence 0: .*got \(0, '1', 'X'\) among them"),
        ({"r": lambda x: [(0, 1, {"X"})]}, "source 'r', sequence 0: .*among them"),
        ({"r": lambda x: 3}, r"source 'r', sequence 0: .* spans \(start, end, type\) or None, got 3"),
        ({"r": lambda x: "OO"}, r"source 'r', sequence 0: .* or None, got 'OO'"),
        ({"r": [[{"O"}, "O"]]}, "source 'r', sequence 0: {'O'} is not one of the labels"),
        ({"r": [[1, "Y"]]}, "source 'r', sequence 0: 1 is not one of the labels"),
        ({"r": ["OO"]}, "source 'r', sequence 0: votes must be a list of labels or None, got 'OO'"),
        ({"r": [3]}, "source 'r', sequence 0: votes must be a list of labels or None, got 3"),
        ({"r": iter([["O", "O"]])}, "source 'r' must be a function or a list, got <list_iter"),
    ],
)
def test_what_cannot_be(sources: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeakLabels(sources, ["X"]).fit([["a", "b"]])


@pytest.mark.parametrize("rows", [1, 6])
def test_lists_have_votes_for_every_sequence(rows: int) -> None:
    X = [["a", "b"], ["c"], ["d", "e", "f"]]
    votes = [["O", None], None, ["X", "X", None], ["O"], ["O"], ["O"]][:rows]
    message = f"source 'ann': there are votes for {rows} sequences?, but 'X' holds 3"
    with pytest.raises(ValueError, match=message):
        WeakLabels({"rule": lambda x: None, "ann": votes}, ["X"], scheme=None).fit(X)


def test_lists_are_for_the_sequences_of_fit() -> None:
    X: list[Any] = [["a", "b"], ["c", "d"], [("e", "E"), {"f": 1}]]
    votes = [["X", "O"], ["O", "X"], ["X", "X"]]
    weak = WeakLabels({"ann": votes}, ["X", "O"], scheme=None)
    soft = weak.fit_transform(X)
    assert weak.transform([list(x) for x in X]) == soft
    with pytest.raises(ValueError, match="source 'ann' is a list of votes for the sequences of fit, and 'X' holds oth"):
        weak.transform(X[::-1])
    with pytest.raises(ValueError, match="votes for 3 sequences, but 'X' holds 1"):
        weak.transform(X[:1])
    weak.set_params(sources={"ann": votes[::-1]})
    assert weak.transform(X[::-1]) == soft[::-1]
    with pytest.raises(ValueError, match="'sources' of WeakLabels must be those of fit"):
        weak.set_params(sources={"other": votes}).transform(X)
    rule = WeakLabels({"rule": lambda x: [(0, 1, "X")]}, ["X"])
    assert rule.fit_transform(X)[::-1] == rule.transform(X[::-1])


def test_shown_in_a_few_words() -> None:
    def rule(x: Any) -> None:
        return None

    weak = WeakLabels({"rule": rule, "ann": [["O"] * 30] * 500}, ["X"], smoothing=0.5)
    sources = "{'rule': <function rule>, 'ann': <votes for 500 sequences>}"
    assert repr(weak) == f"WeakLabels(sources={sources}, labels=['X'], smoothing=0.5)"
    many = WeakLabels({f"source {k}": rule for k in range(1000)}, [str(k) for k in range(1000)])
    assert len(repr(many)) < 400
    assert repr(WeakLabels([1], ["X"])).startswith("WeakLabels(sources=[1]")  # type: ignore[arg-type]


def test_sequences_that_come_one_by_one() -> None:
    X = [["a", "b"], ["c"]]
    weak = WeakLabels({"rule": lambda x: [(0, 1, "X")]}, ["X"])
    soft = weak.fit_transform(iter(X))
    assert len(soft) == 2
    assert soft == weak.transform(x for x in X)


@pytest.mark.parametrize(
    "name", ["predict", "predict_marginals", "score", "decode", "log_likelihood", "predict_entities", "aic", "save"]
)
def test_what_is_for_tokens_is_refused(name: str) -> None:
    X = [["a", "b"], ["c"]]
    weak = WeakLabels({"rule": lambda x: [(0, 1, "X")]}, ["X"]).fit(X)
    with pytest.raises(AttributeError, match=rf"WeakLabels has no '{name}': .*transform\(X\)"):
        getattr(weak, name)(X)


@pytest.mark.parametrize("labels", [[1, 2], [["X"]], "X", ["X", "X"], [], 3])
def test_labels_are_strings(labels: Any) -> None:
    with pytest.raises(ValueError, match="'labels' of WeakLabels must be a list of distinct strings, got"):
        WeakLabels({"r": [[1, 2]]}, labels, scheme=None).fit([["a", "b"]])


@pytest.mark.parametrize("labels", [["B-PER", "I-PER", "O"], ["PER", "O"], ["B-PER", "I-PER"]])
def test_labels_of_a_scheme_are_types(labels: list[str]) -> None:
    sources: Any = {"r": lambda x: None}
    with pytest.raises(ValueError, match="must be types of spans, such as 'PER', for scheme='bio', got "):
        WeakLabels(sources, labels).fit([["a", "b"]])
    WeakLabels(sources, labels, scheme=None).fit([["a", "b"]])
    WeakLabels(sources, ["B-cell"]).fit([["a", "b"]])


def test_errors_of_functions_say_where() -> None:
    with pytest.raises(ZeroDivisionError) as e:
        WeakLabels({"rule": lambda x: 1 // 0}, ["P"]).fit([["a"]])  # type: ignore[dict-item, return-value]
    assert e.value.__notes__ == ["raised by source 'rule', sequence 0 of WeakLabels"]
    with pytest.raises(ZeroDivisionError) as e:
        SegmentCRF(segments=lambda s, a, b: 1 // 0).fit([["a"]], [["O"]])
    assert e.value.__notes__ == ["raised by the function of segments at sequence 0, tokens 0 to 1"]


def test_least_is_a_probability() -> None:
    weak = WeakLabels({"rule": lambda x: [(0, 1, "P")]}, ["P"]).fit([["a"]])
    for form in ("set", "soft"):
        with pytest.raises(ValueError, match="'least' of transform must be at most 1, got 2"):
            weak.transform([["a"]], form=form, least=2)
