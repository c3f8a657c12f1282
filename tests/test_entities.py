"""Entities and their probabilities against enumeration; tokens against their text."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lattices import potentials

from crfkit import CRF, HMM, MEMM, NeuralCRF
from crfkit.chain import Constraints, Potentials
from crfkit.chain.chunks import ChunkLabels, chunk_probabilities, likely_chunks
from crfkit.data import Columns, Token, load_corpus, tokenize
from crfkit.data.labels import Entity
from crfkit.metrics import spans

SCHEMES: dict[str, list[Any]] = {
    "bio": ["B-X", "I-X", "O", "B-Y", "I-Y"],
    "bioes": ["O", "B-X", "I-X", "E-X", "S-X"],
    "bilou": ["B-X", "L-X", "U-X", "I-X", "O"],
    "mixed": ["B-X", "I-X", "E-X", "O", "I-Y"],
    "plain": ["O", "NOUN", "VERB", "ADJ", "X"],
    "numbers": [0, 1, 2, 3, 4],
}


def enumerated(p: Potentials, names: list[Any]) -> dict[tuple[Any, int, int], float]:
    """The probability of every span, by summing over all labellings."""
    out: dict[tuple[Any, int, int], float] = {}
    for path, chance in zip(oracle.all_paths(p), oracle.probabilities(p), strict=True):
        for span in spans([names[j] for j in path]):
            key = span.kind, span.start, span.end
            out[key] = out.get(key, 0.0) + float(chance)
    return out


@settings(max_examples=60)
@given(potentials(max_length=4, max_labels=5, scales=(1.0, 10.0)), st.sampled_from(sorted(SCHEMES)))
def test_probabilities_of_spans_are_sums_over_labellings(p: Potentials, scheme: str) -> None:
    assume(len(p.unary) and np.isfinite(oracle.scores(p)).any())
    names = SCHEMES[scheme][: p.n_labels]
    table = ChunkLabels(names)
    expected = enumerated(p, names)
    batch = Potentials.batch([p, p])
    found, chances = likely_chunks(batch, table, 1e-12)
    for s in (0, 1):
        got = {
            (table.kinds[k], a, b): c
            for i, k, a, b, c in zip(*(x.tolist() for x in (*found, chances)), strict=True)
            if i == s
        }
        assert {k for k, v in expected.items() if v > 1e-9} <= set(got)
        for key, value in got.items():
            assert value == pytest.approx(expected.get(key, 0.0), abs=1e-12)
    np.testing.assert_allclose(chunk_probabilities(batch, table, found), chances, atol=1e-15)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_chunks_of_paths_are_those_of_the_metrics(scheme: str) -> None:
    rng = np.random.default_rng(0)
    names = SCHEMES[scheme]
    table = ChunkLabels(names)
    lengths = np.array([3, 0, 7, 1, 30, 0])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    path = rng.integers(0, len(names), offsets[-1])
    found = table.find(path, offsets)
    for s in range(len(lengths)):
        mine = [(table.kinds[k], a, b) for i, k, a, b in zip(*found, strict=True) if i == s]
        assert mine == [tuple(x) for x in spans([names[j] for j in path[offsets[s] : offsets[s + 1]]])]


def test_large_batches_go_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    offsets = np.array([0, 4, 4, 9, 10])
    names = SCHEMES["bio"]
    rules = Constraints.from_scheme(names, "bio")
    shared = Potentials(
        rng.normal(size=(10, 5)), np.where(rules.transitions, rng.normal(size=(5, 5)), -np.inf), offsets=offsets
    )
    stepwise = Potentials(rng.normal(size=(10, 5)), rng.normal(size=(7, 5, 5)), offsets=offsets)
    table = ChunkLabels(names)
    for p in (shared, stepwise):
        whole = likely_chunks(p, table, 0.01)
        monkeypatch.setattr("crfkit.chain.chunks._PIECE", 25)
        parts = likely_chunks(p, table, 0.01)
        assert all((a == b).all() for a, b in zip(whole[0], parts[0], strict=True))
        np.testing.assert_allclose(whole[1], parts[1])
        np.testing.assert_allclose(chunk_probabilities(p, table, parts[0]), parts[1])
        monkeypatch.undo()


@pytest.fixture(scope="module")
def corpus() -> Any:
    return load_corpus("ingredients")


@pytest.mark.parametrize("make", [lambda: CRF(max_iter=30), lambda: MEMM(max_iter=30), HMM], ids=["crf", "memm", "hmm"])
def test_every_chain_estimator_finds_entities(make: Any, corpus: Any) -> None:
    X, y = corpus
    crf = make().fit(X, y)
    found = crf.predict_entities(X)
    labels = crf.predict(X)
    assert [[(e.label, e.start, e.end) for e in row] for row in found] == [
        [tuple(s) for s in spans(row)] for row in labels
    ]
    assert all(0 < e.probability <= 1 for row in found for e in row)
    first = found[0][0]
    assert first.text == " ".join(X[0][first.start : first.end])
    assert first.char_start is None
    # a span of one token whose neighbours are given is as probable as its label
    [[entity]] = crf.predict_entities([["2"]])
    [p] = crf.predict_marginals([["2"]])
    kind = [str(c)[2:] == entity.label for c in crf.classes_]
    assert entity.probability == pytest.approx(p[0][kind].sum())
    certain = crf.predict_entities(X[:3], given=y[:3])
    assert all(e.probability == pytest.approx(1.0) for row in certain for e in row)


def test_a_threshold_gives_all_probable_spans(corpus: Any) -> None:
    X, y = corpus
    crf = CRF(max_iter=30, constraints="bio").fit(X, y)
    many = crf.predict_entities(X[:50], threshold=0.05)
    few = crf.predict_entities(X[:50])
    assert all(e.probability >= 0.05 for row in many for e in row)
    for a, b in zip(few, many, strict=True):
        assert {e[:4] for e in a if e.probability >= 0.05} <= {e[:4] for e in b}
    assert sum(map(len, many)) > sum(map(len, few))
    wrong: Any
    for wrong in (0.0, -1.0, 1.5, 2, float("nan"), "a", True):
        with pytest.raises(ValueError, match="'threshold' must be a number above 0 and at most 1, got"):
            crf.predict_entities(X[:1], threshold=wrong)


def test_entities_of_rows_and_of_attributes() -> None:
    y = [["B-X", "O"]]
    rows = CRF().fit([[("two", "CD"), ("cups", "NN")]], y)
    [[entity]] = rows.predict_entities([[("two", "CD"), ("cups", "NN")]])
    assert entity.text == "two"
    assert rows.predict_entities(Columns.from_sequences([[("two", "CD"), ("cups", "NN")]])) == [[entity]]
    [[entity]] = CRF().fit([[{"a": 1.0}, {"b": 1.0}]], y).predict_entities(iter([[{"a": 1.0}, {"b": 1.0}]]))
    assert entity.text is None
    assert rows.predict_entities([[]]) == [[]]
    assert rows.predict_entities([]) == []


def test_neural_entities() -> None:
    X, y = [["two", "cups"], ["one", "egg", "white"], []], [["B-Q", "O"], ["B-Q", "B-N", "I-N"], []]
    crf = NeuralCRF(hidden=(), max_iter=30, learning_rate=0.1, random_state=0, pairwise="input", device="cpu").fit(X, y)
    found = crf.predict_entities(X)
    assert [[(e.label, e.start, e.end, e.text) for e in row] for row in found] == [
        [("Q", 0, 1, "two")],
        [("Q", 0, 1, "one"), ("N", 1, 3, "egg white")],
        [],
    ]
    assert all(0.3 < e.probability <= 1 for row in found for e in row)


def test_entities_stand_in_their_text() -> None:
    text = "Anna Lee\nwent home.  Bob Ray left."
    X = tokenize(text)
    crf = CRF(c2=0.1).fit(X, [["B-PER", "I-PER", "O", "O", "O"], ["B-PER", "I-PER", "O", "O"]])
    found = crf.predict_entities(X)
    assert [e.text for row in found for e in row] == ["Anna Lee", "Bob Ray"]
    for row in found:
        for e in row:
            assert isinstance(e, Entity)
            assert text[e.char_start : e.char_end] == e.text
    rows = [[(t, "NN") for t in s] for s in X]
    two = CRF(c2=0.1).fit(rows, [["B-PER", "I-PER", "O", "O", "O"], ["B-PER", "I-PER", "O", "O"]])
    assert [e.char_start for row in two.predict_entities(rows) for e in row] == [0, 21]


TEXTS = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(list(" \n\t.,!?'’-()\"@:/n't0129aAzZ。一\u0301\u094d\u200d\ue000")),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(TEXTS)
def test_tokens_cover_the_text(text: str) -> None:
    sentences = tokenize(text)
    assert all(sentences)
    tokens = [t for s in sentences for t in s]
    assert all(t and text[t.start : t.end] == t and t.source is text for t in tokens)
    assert all(a.end <= b.start for a, b in itertools.pairwise(tokens))
    assert "".join(tokens) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't. It's Anna’s!", "I do n't . | It 's Anna ’s !"),
        ("Mr. J. Smith of the U.S. paid $3.50 (10:30, 1/2).", "Mr. J. Smith of the U.S. paid $ 3.50 ( 10:30 , 1/2 ) ."),
        ("well-known O'Neil -- yes... no", "well-known O'Neil -- yes ... no"),
        ("self-raising 2-inch", "self-raising 2 - inch"),
        ('He said "Yes." Then he left.', 'He said " Yes . " | Then he left .'),
        ("one\n\ntwo\nthree", "one | two three"),
        ("我爱北京。你好", "我 爱 北 京 。 | 你 好"),
        ("नमस्ते दुनिया", "नमस्ते दुनिया"),
        ("cafe\u0301 see https://a.b/c?d=1, me@x.org.", "cafe\u0301 see https://a.b/c?d=1 , me@x.org ."),
        (" \n ", ""),
    ],
)
def test_tokens_of_text(text: str, expected: str) -> None:
    assert " | ".join(" ".join(s) for s in tokenize(text)) == expected


def test_lines_are_sequences_of_their_own() -> None:
    text = "2 c. Flour. Sift\r\n\n \n“Ok.”\n1 egg\u20292 oz"
    found = tokenize(text, lines=True)
    assert [" ".join(s) for s in found] == ["2 c . Flour . Sift", "“ Ok . ”", "1 egg", "2 oz"]
    assert all(text[t.start : t.end] == t for s in found for t in s)
    assert len(tokenize(text)) > len(found)


@pytest.mark.parametrize(
    ("text", "pattern", "lines", "expected"),
    [
        ('Mr. Li left.  "Go!" he said. Ok', r"\S+", False, 'Mr.|Li|left.#"Go!"|he|said.#Ok'),
        ("1-inch bit. Fine\n2", re.compile("[a-z0-9-]+", re.IGNORECASE), True, "1-inch|bit|Fine#2"),
        (" a b. C", "(?s).", False, " |a| |b|.| #C"),
        ("a b", "x*|b", False, "b"),
        ("a b", "z", False, ""),
    ],
)
def test_tokens_of_a_pattern(text: str, pattern: Any, lines: bool, expected: str) -> None:
    found = tokenize(text, pattern=pattern, lines=lines)
    assert "#".join("|".join(s) for s in found) == expected
    assert all(isinstance(t, Token) and text[t.start : t.end] == t for s in found for t in s)


@pytest.mark.parametrize("pattern", ["(", b"a", 7])
def test_what_is_no_pattern_is_refused(pattern: Any) -> None:
    with pytest.raises(ValueError, match="'pattern' of tokenize must be a regular expression"):
        tokenize("a", pattern=pattern)


def test_tokens_can_be_kept() -> None:
    token = tokenize("a bc")[0][1]
    again = pickle.loads(pickle.dumps(token))
    assert (again, again.start, again.end) == ("bc", 2, 4)
    with pytest.raises(TypeError, match="'text' of tokenize must be a str"):
        tokenize(b"a")  # type: ignore[arg-type]
