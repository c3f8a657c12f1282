"""Templates and token features, against a plain expansion in Python."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit import Template, TokenFeatures, _core
from crfkit.data import Columns
from crfkit.features.encoders import ItemEncoder, PlanEncoder
from crfkit.features.plan import FORMS

Rows = list[list[tuple[str, ...]]]


def expand(template: str, sequence: list[tuple[str, ...]], t: int, padding: bool) -> str | None:
    """The value of one template line at token t, by the rules of CRF++."""
    outside = False

    def value(match: re.Match[str]) -> str:
        nonlocal outside
        row, column = int(match[1]), int(match[2])
        at = t + row
        if at < 0:
            outside = True
            return f"_B{at}"
        if at >= len(sequence):
            outside = True
            return f"_B+{at - len(sequence) + 1}"
        return sequence[at][column]

    text = re.sub(r"%x\[(-?\d+),(\d+)\]", value, template)
    return None if outside and not padding else text


def attributes(encoder: PlanEncoder, sequences: Rows, grow: bool) -> list[list[str]]:
    """Names of the attributes of all tokens."""
    data = encoder.encode(Columns.from_sequences(sequences), grow, 1)
    names = encoder.names()
    return [[names[a] for a in data.attr[i:j]] for i, j in zip(data.ptr, data.ptr[1:], strict=False)]


LINES = [
    "U00:%x[0,0]",
    "U01:%x[-1,0]/%x[0,0]",
    "U02:%x[-2,1]|%x[0,0]|%x[1,1]!",
    "U03:%x[2,1]",
    "U:%x[-1,0]",  # the same text at two places: one bag of attributes
    "U:%x[1,0]",
    "U:%x[0,1]",  # and from another column
    "Ubias",
]

tokens = st.tuples(st.sampled_from(["a", "b", "c/a", "ü"]), st.sampled_from(["X", "Y"]))
rows = st.lists(st.lists(tokens, min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=100)
@given(rows, rows, st.booleans())
def test_templates_expand_as_in_crfpp(train: Rows, test: Rows, padding: bool) -> None:
    encoder = PlanEncoder(Template("\n".join(LINES), padding=padding).plan())

    def expected(sequences: Rows) -> list[list[str]]:
        out = []
        for x in sequences:
            for t in range(len(x)):
                found = [expand(line, x, t, padding) for line in LINES]
                marks = [] if padding else ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == len(x) - 1)
                out.append([f for f in found if f is not None] + marks)
        return out

    assert attributes(encoder, train, grow=True) == expected(train)
    known = {a for token in expected(train) for a in token}
    assert attributes(encoder, test, grow=False) == [[a for a in token if a in known] for token in expected(test)]
    names = encoder.names()
    assert len(set(names)) == len(names) == encoder.n_attributes[0]


@settings(max_examples=50)
@given(rows, rows, st.integers(0, 2**32 - 1))
def test_pruned_and_restored_encoders_know_what_is_left(train: Rows, test: Rows, seed: int) -> None:
    encoder = PlanEncoder(Template("\n".join([*LINES, "B1:%x[0,1]"])).plan())
    attributes(encoder, train, grow=True)
    rng = np.random.default_rng(seed)
    keep = [rng.random(n) < 0.5 for n in encoder.n_attributes]
    small = encoder.pruned(keep[0], keep[1])
    left = {name for name, kept in zip(encoder.names(), keep[0], strict=True) if kept}
    assert set(small.names()) == left
    expected = [[a for a in token if a in left] for token in attributes(encoder, test, grow=False)]
    assert attributes(small, test, grow=False) == expected
    restored = PlanEncoder.restore(small.config(), small.arrays())
    assert attributes(restored, test, grow=False) == expected
    assert restored.names(edge=True) == small.names(edge=True)
    assert attributes(restored, train, grow=True) == attributes(small, train, grow=True)


def test_threads_do_not_change_attributes() -> None:
    rng = np.random.default_rng(0)
    sequences = [
        [(f"w{rng.integers(50)}", f"t{rng.integers(5)}") for _ in range(rng.integers(1, 9))] for _ in range(200)
    ]
    encoder = PlanEncoder(Template("\n".join(LINES)).plan())
    x = Columns.from_sequences(sequences)
    grown = encoder.encode(x, True, 1)
    for threads in (1, 2, 5):
        again = encoder.encode(x, False, threads)
        np.testing.assert_array_equal(again.ptr, grown.ptr)
        np.testing.assert_array_equal(again.attr, grown.attr)


def test_transition_templates_belong_to_transitions() -> None:
    encoder = PlanEncoder(Template("U:%x[0,0]\nB:%x[0,0]\nB").plan())
    assert encoder.transitions
    data = encoder.encode(Columns.from_sequences([["a", "b"], ["a"]]), True, 1)
    assert data.edge_ptr is not None
    assert data.edge_ptr.tolist() == [0, 0, 1, 1]  # no transition leads into a first token
    assert encoder.names(edge=True) == ["B:b"]
    assert not PlanEncoder(Template("U:%x[0,0]").plan()).transitions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("U:%x[0,0]\nX:%x[0,0]", "t:2: a template line begins with U or B, got 'X:%x"),
        ("U:%x[0]", "t:1: expected %x"),
        ("U:%y[0,0]", "t:1: expected %x"),
        ("U:%x[0,-1]", "t:1: expected %x"),
        ("# only a comment\n\n", "t: the template is empty"),
        ("U:%x[0,0]/%x[0,0]\n" * 60_000, "t: a template may have at most 1,000,000 characters, got 1,020,000"),
    ],
)
def test_bad_templates_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Template(text, name="t")


def test_templates_in_files(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_text("# words\nU00:%x[0,0]\r\n\nB\n")
    assert len(Template.from_file(path).plan().templates) == 1
    path.write_bytes(b"U\xff")
    with pytest.raises(ValueError, match="template: not valid UTF-8"):
        Template.from_file(path)
    with pytest.raises(ValueError, match="look at column 3"):
        PlanEncoder(Template("U:%x[0,3]").plan()).encode(Columns.from_sequences([["a"]]), True, 1)


def test_token_features() -> None:
    encoder = PlanEncoder(TokenFeatures(window=1, affixes=2, near_affixes=2).plan())
    first, second = attributes(encoder, [[("IL-2",), ("gene",)]], grow=True)
    assert set(first) == {
        *("word=IL-2", "lower[0]=il-2", "lower[1]=gene", "prefix1=I", "prefix2=IL", "suffix1=2", "suffix2=-2"),
        *("suffix2[1]=ne", "shape=XX-d", "case=upper", "digits=some", "punctuation=some", "shape[1]=xx"),
        *("lower[0]|[1]=il-2|gene", "shape[0]|[1]=XX-d|xx", "first"),
    }
    assert "last" in second
    assert "lower[-1]|[0]=il-2|gene" in second
    wide = PlanEncoder(TokenFeatures().plan(2))
    names = attributes(wide, [[("a", "X"), ("b", "Y"), ("c", "Z")]], grow=True)[1]
    assert {"column1[0]=Y", "column1[-1]|[0]=X|Y", "column1[-1]|[0]|[1]=X|Y|Z"} <= set(names)
    with pytest.raises(ValueError, match="'window' of TokenFeatures"):
        TokenFeatures(window=-1)


def form(word: str, name: str, n: int = 0) -> str:
    return _core.word_form(word, FORMS.index(name), n)


def test_lower_case_and_classes_are_pythons_for_every_character() -> None:
    kinds = {"Lu": "X", "Lt": "X", "Ll": "x", "Lo": "x", "Lm": "x", "Nd": "d", "Nl": "d", "No": "d"}
    for code in range(1, sys.maxunicode + 1):
        c = chr(code)
        category = unicodedata.category(c)
        if category == "Cs":
            continue
        lower = c.lower()
        assert form(c, "lower") == (lower if len(lower) == 1 else c), hex(code)
        if category[0] != "M":
            assert form(c, "shape") == kinds.get(category, c), hex(code)
        assert form(c, "punctuation") == ("all" if category[0] in "PS" else ""), hex(code)


@pytest.mark.parametrize(
    ("word", "name", "n", "expected"),
    [
        ("Straße", "suffix", 2, "ße"),
        ("Straße", "prefix", 6, "Straße"),
        ("Straße", "prefix", 7, ""),
        ("日本語", "suffix", 1, "語"),
        ("McDonald's", "shape", 0, "XxXxx'x"),
        ("2024-11", "shape", 0, "dd-dd"),
        ("NATO", "case", 0, "upper"),
        ("Paris", "case", 0, "title"),
        ("iPhone", "case", 0, "mixed"),
        ("12", "case", 0, ""),
        ("12", "digits", 0, "all"),
        ("a1", "digits", 0, "some"),
        ("...", "punctuation", 0, "all"),
        ("e\u0301", "shape", 0, "x"),
    ],
)
def test_word_forms(word: str, name: str, n: int, expected: str) -> None:
    assert form(word, name, n) == expected


def test_items_and_functions() -> None:
    per_token = ItemEncoder(lambda x, t: [x[t], f"n={len(x)}"])
    assert per_token.encode([["a", "b"]], True, 1).ptr.tolist() == [0, 2, 4]
    assert per_token.names() == ["a", "n=2", "b"]
    per_sequence = ItemEncoder(lambda x: [{"w": w} for w in x])
    per_sequence.encode([["a", "b"]], True, 1)
    assert per_sequence.names() == ["w:a", "w:b"]
    data = per_sequence.encode([["b", "new"]], False, 1)
    assert data.attr[0] == 1
    assert data.attr[1] >= per_sequence.n_attributes[0]  # unknown, and skipped by the core
    with pytest.raises(ValueError, match="must give a list with the attributes of each token, got int"):
        ItemEncoder(len).encode([["a", "b"]], True, 1)
    with pytest.raises(ValueError, match="gave 1 item for 2 tokens"):
        ItemEncoder(lambda x: [["a"]]).encode([["a", "b"]], True, 1)


def test_layout_of_data_too_large_to_sort_at_once() -> None:
    rng = np.random.default_rng(0)
    n, each, labels = 10_000, 900, 5
    attr = rng.integers(0, 50, n * each, dtype=np.uint32)  # more than are sorted at a time
    column = rng.integers(0, labels, n).astype(np.uint32)
    counts = np.bincount(attr * labels + np.repeat(column, each), minlength=50 * labels).reshape(50, labels)
    least = float(np.median(counts))
    ptr, found = _core.observed_pairs(np.arange(n + 1) * each, attr, 50, column, labels, least)
    rows, columns = np.nonzero(counts >= least)
    assert found.tolist() == columns.tolist()
    assert np.diff(ptr).tolist() == np.bincount(rows, minlength=50).tolist()


@pytest.mark.parametrize("least", [0.0, 2.0])
def test_layout_of_few_data_among_many_attributes(least: float) -> None:
    rng = np.random.default_rng(1)
    n, each, labels, many = 20, 4, 3, 5000
    attr = rng.choice([0, 7, 8, 4000, many - 1], n * each).astype(np.uint32)
    column = rng.integers(0, labels, n).astype(np.uint32)
    counts = np.bincount(attr * labels + np.repeat(column, each), minlength=many * labels).reshape(many, labels)
    ptr, found = _core.observed_pairs(np.arange(n + 1) * each, attr, many, column, labels, least)
    rows, columns = np.nonzero(counts >= max(least, 1.0))
    assert found.tolist() == columns.tolist()
    assert np.diff(ptr).tolist() == np.bincount(rows, minlength=many).tolist()
