"""Readers: every format, every fault named by file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crfkit
from crfkit.data import (
    Columns,
    DataError,
    Items,
    corpora,
    iter_columns,
    load_corpus,
    read_columns,
    read_conllu,
    read_crfsuite,
)
from crfkit.data.readers import open_source

TEXT = b"the DT O\ndog NN B-X\n\nruns VB O\n"


def read(text: bytes, **options: Any) -> tuple[list[Any], list[Any] | None]:
    X, y = read_columns(io.BytesIO(text), **options)
    return list(X), None if y is None else list(y)


def test_columns() -> None:
    X, y = read(TEXT)
    assert X == [[("the", "DT"), ("dog", "NN")], [("runs", "VB")]]
    assert y == [["O", "B-X"], ["O"]]
    assert read(TEXT, label=None) == ([[("the", "DT", "O"), ("dog", "NN", "B-X")], [("runs", "VB", "O")]], None)
    assert read(TEXT, label=0, columns=[1])[0] == [["DT", "NN"], ["VB"]]
    assert read(TEXT, label=1, columns=[0, 2])[1] == [["DT", "NN"], ["VB"]]


@pytest.mark.parametrize(
    ("label", "columns", "named"),
    [(2, [0, 2], 2), (-1, [0, 1, 2], 2), (2, [-1], -1), (-3, [1, 0], 0), (1, [-2, 0], -2)],
)
def test_labels_are_not_learned_from(label: int, columns: list[int], named: int) -> None:
    with pytest.raises(DataError, match=f"<stream>: column {named} holds the labels"):
        read(TEXT, label=label, columns=columns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a\tO\n\n\n\nb\tO", [["a"], ["b"]]),  # many blank lines, no last newline
        (b"a O\r\n\r\nb O\r\n", [["a"], ["b"]]),  # lines end as on Windows
        (b"\xef\xbb\xbfa O\n", [["a"]]),  # byte order mark
        (b"a  \t O\n", None),  # tab file with blanks in a field: 2 columns
        (b"New York\tO\n", [["New York"]]),  # blanks within tab-separated fields
        (b"-DOCSTART- -X-\n\na O\n", [["a"]]),
        (b"a O\n-DOCSTART- O\nb O\n", [["a"], ["b"]]),
        (b"a\t\n", [["a"]]),  # an empty label is a label
        ("ö ä\n".encode(), [["ö"]]),
        (b"a O\n   \nb O\n", [["a"], ["b"]]),  # a line of blanks
    ],
)
def test_odd_but_right_files(text: bytes, expected: list[list[str]] | None) -> None:
    X, _ = read(text)
    if expected is not None:
        assert expected == X
    else:
        assert X == [["a  "]]


def test_comments_are_skipped_on_request() -> None:
    assert read(b"# 1\na O\n", comment="#")[0] == [["a"]]
    assert read(b"# O\na O\n")[0] == [["#", "a"]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"a b O\nc O\n", {}, r"f\.txt:2: expected 3 columns as in the lines before, got 2: 'c O'"),
        (b"a O\n\n\nb O x\n", {}, r"f\.txt:4: expected 2 columns"),
        (b"a O\n\xff O\n", {}, r"f\.txt:2: not valid UTF-8: byte 0xff"),
        (b"a O\nb \xc3(\n", {}, r"f\.txt:2: not valid UTF-8"),
        (b"a O\nb \xed\xa0\x80\n", {}, r"f\.txt:2: not valid UTF-8"),  # a surrogate
        (b"", {}, r"f\.txt: the file contains no sequences"),
        (b"\n\n  \n", {}, r"f\.txt: the file contains no sequences"),
        (b"a O\n", {"label": 5}, r"f\.txt: there is no label column 5: the file has 2 columns"),
        (b"a O\n", {"label": -3}, r"f\.txt: there is no label column -3"),
        (b"a O\n", {"columns": [7]}, r"f\.txt: there is no column 7"),
        (b"a\n", {}, r"f\.txt: besides the label there is no column"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, text: bytes, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_columns(path, **options)


@pytest.mark.parametrize("mark", ";,")
def test_csv_files_are_recognised(mark: str) -> None:
    with pytest.raises(DataError, match=f"with '{mark}' in its lines it looks like a CSV file.*from_table"):
        read_columns(io.BytesIO(f"word{mark}tag\ntwo{mark}Q\n\ncups{mark}U\n".encode()))
    with pytest.raises(DataError, match=r"no column to learn from$"):
        read_columns(io.BytesIO(f"two\n{mark}\n".encode()))


def test_line_numbers_survive_the_cutting_into_pieces(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    line = b"word TAG O\n"
    n = (1 << 23) // len(line)
    path.write_bytes(line * n + b"broken\n")
    with pytest.raises(DataError, match=rf"long\.txt:{n + 1}: expected 3 columns"):
        read_columns(path)
    path.write_bytes(line * n)
    parts = list(iter_columns(path))
    assert sum(len(p.ids) for p in parts) == n
    assert len(parts) == 1  # one sequence is never cut


def test_pieces_hold_the_same_sequences(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sequences = [[f"w{rng.integers(99999)}" for _ in range(rng.integers(1, 30))] for _ in range(90000)]
    path = tmp_path / "many.txt"
    path.write_text("\n".join("".join(f"{w}\n" for w in s) for s in sequences))
    parts = list(iter_columns(path))
    assert len(parts) > 1
    assert [x for part in parts for x in part] == sequences


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open), (".bz2", bz2.open)])
def test_compressed_files(tmp_path: Path, suffix: str, opener: Any) -> None:
    path = tmp_path / f"f.txt{suffix}"
    with opener(path, "wb") as file:
        file.write(TEXT)
    assert list(read_columns(path).X) == read(TEXT)[0]
    whole = path.read_bytes()
    middle = len(whole) - 6  # of a checksum
    for damaged in (whole[:20], whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{re.escape(str(path))}: cannot read"):
            read_columns(path)
        with pytest.raises(DataError, match=f"{re.escape(str(path))}: cannot read"), open_source(path) as file:
            file.readlines()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        read_columns(tmp_path / "nowhere.txt")


def test_text_mode_is_refused() -> None:
    with pytest.raises(TypeError, match="binary mode"):
        read_columns(io.StringIO("a O\n"))  # type: ignore[arg-type]


CONLLU = """# sent_id = 1
1\tDie\tder\tDET\tART\tCase=Nom\t2\tdet\t_\t_
2-3\tzum\t_\t_\t_\t_\t_\t_\t_\t_
2\tzu\tzu\tADP\tAPPR\t_\t3\tcase\t_\t_
2.1\tx\tx\tX\tX\t_\t_\t_\t_\t_
3\tHund\tHund\tNOUN\tNN\tCase=Dat\t0\troot\t_\t_

"""


def test_conllu() -> None:
    with pytest.raises(ValueError, match="column 'feats' holds the labels"):
        read_conllu(io.BytesIO(CONLLU.encode()), columns=("form", "feats"), label="upos+feats")
    X, y = read_conllu(io.BytesIO(CONLLU.encode()))
    assert y is not None
    assert (X[0], y[0]) == (["Die", "zu", "Hund"], ["DET", "ADP", "NOUN"])
    X, y = read_conllu(io.BytesIO(CONLLU.encode()), columns=("form", "lemma"), label="upos+feats")
    assert y is not None
    assert X[0][0] == ("Die", "der")
    assert y[0] == ["DET|Case=Nom", "ADP|_", "NOUN|Case=Dat"]
    with pytest.raises(ValueError, match="no column 'pos'"):
        read_conllu(io.BytesIO(CONLLU.encode()), label="pos")
    with pytest.raises(DataError, match="CoNLL-U has 10 columns, the file has 2"):
        read_conllu(io.BytesIO(b"1\ta\n"))


def test_crfsuite_text() -> None:
    text = b"@weight:0.5\nB\ta\tb:2.5\tc\\:d:3\te\\\\f\nI\n\nO\tx:-1e-3\t\ty:0\n"
    X, y, weights = read_crfsuite(io.BytesIO(text))
    assert X[0] == [{"a": 1.0, "b": 2.5, "c:d": 3.0, "e\\f": 1.0}, {}]
    assert X[1] == [{"x": -0.001}]
    assert list(y) == [["B", "I"], ["O"]]
    assert weights is not None
    assert weights.tolist() == [0.5, 1.0]
    assert read_crfsuite(io.BytesIO(b"O\ta\n")).weights is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"O\ta:x\n", ":1: the value of attribute 'a' must be a number from -1e10 to 1e10, got 'x'"),
        (b"O\ta\nO\tb:nan\n", ":2: the value of attribute 'b' must be a number"),
        (b"O\ta:inf\n", ":1: the value of attribute 'a' must be a number"),
        (b"O\ta\n\nO\tb:1e300\n", ":3: the value of attribute 'b' must be a number from -1e10 to 1e10, got '1e300'"),
        (b"O\ta:-1.0001e10\n", ":1: the value of attribute 'a' must be a number"),
        (b"O\t:3\n", ":1: an attribute has no name"),
        (b"\ta\n", ":1: the label is empty"),
        (b"@weight:x\nO\ta\n", ":1: the weight must be a number from 0 to 1e10, got 'x'"),
        (b"@weight:-1\nO\ta\n", ":1: the weight must be a number from 0 to 1e10, got '-1'"),
        (b"@weight:inf\nO\ta\n", ":1: the weight must be a number from 0 to 1e10, got 'inf'"),
        (b"\n", "the file contains no sequences"),
        (b"O\t\xff\n", ":1: not valid UTF-8"),
    ],
)
def test_crfsuite_faults(text: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_crfsuite(io.BytesIO(text))


words = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=5)


@given(st.lists(st.lists(st.tuples(words, words), max_size=4), max_size=5))
def test_columns_are_the_sequences_they_were_made_of(sequences: list[list[tuple[str, str]]]) -> None:
    x = Columns.from_sequences(sequences)
    assert list(x) == sequences
    assert x == sequences
    assert list(x[::-1]) == sequences[::-1]
    assert list(pickle.loads(pickle.dumps(x))) == sequences
    if sequences:
        assert x[-1] == sequences[-1]
        assert list(x[np.array([0, 0])]) == [sequences[0], sequences[0]]


def test_columns_behave_as_a_list() -> None:
    x = Columns.from_sequences([["a"], ["b", "c"], []])
    assert len(x) == 3
    assert x.lengths.tolist() == [1, 2, 0]
    assert x.map_column(0, str.upper) == [["A"], ["B", "C"], []]
    assert list(x[np.array([True, False, True])]) == [["a"], []]
    assert "3 sequences, 3 tokens" in repr(x)
    for key in (3, -4):
        with pytest.raises(IndexError):
            x[key]
    with pytest.raises(IndexError):
        x[np.array([5])]
    with pytest.raises(ValueError, match="there is no column 1"):
        x.select([1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", ("b", "c")]], "sequence 0, position 1: expected 1 columns"),
        ([["a"], [3]], "sequence 1, position 0: a token must be a str"),
        ([["a"], [("b", 3)], []], "sequence 1, position 0"),
        (["abc"], "sequence 0 must be a list of tokens, got a str"),
        ([["\ud800"]], "lone surrogate"),
        ([[()]], "at least one column"),
    ],
)
def test_bad_rows_are_named(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Columns.from_sequences(rows)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: crfkit.CRF().fit([["a"]], [["\ud800"]]),
        lambda: crfkit.CRF().fit([["a"]], [[{"\ud800", "b"}]]),
        lambda: crfkit.HMM().fit([["a"]], [["\ud800"]]),
        lambda: crfkit.SegmentCRF().fit([["a"]], [["B-\ud800"]]),
        lambda: crfkit.Template("U:\ud800%x[0,0]"),
        lambda: crfkit.Template('u:%m[0,0,"\ud800"]'),
        lambda: crfkit.WordVectors(["\ud800"], [[1]]),
    ],
)
def test_lone_surrogates_are_named(refused: Any) -> None:
    with pytest.raises(ValueError, match=r"holds a lone surrogate and is not valid text, got .*\\ud800"):
        refused()


def test_items_follow_python_crfsuite() -> None:
    token = {"a": 2.5, "b": "x", "c": True, "d": {"e": 1.5, "f": "g"}, "h": ["i", "j"], "k": {"l"}, "z": 0}
    x = Items.from_sequences([[token, ["p", "q", "p"], {"s"}], []])
    assert x[0][0] == {"a": 2.5, "b:x": 1.0, "c": 1.0, "d:e": 1.5, "d:f:g": 1.0, "h:i": 1.0, "h:j": 1.0, "k:l": 1.0}
    assert x[0][1] == {"p": 2.0, "q": 1.0}
    assert x[0][2] == {"s": 1.0}
    assert x[1] == []
    again = pickle.loads(pickle.dumps(x))
    assert list(again) == list(x)
    assert list(x[1:]) == [[]]
    assert x[np.array([1, 0])][1] == x[0]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"a": float("nan")}, "sequence 0, position 1: the value of attribute 'a' must be a number from -1e10 to 1e10"),
        ({"a": float("inf")}, "must be a number from -1e10 to 1e10, got inf"),
        ({"a": {"b": -1e300}}, "position 1: the value of attribute 'a:b' must be a number from .*, got -1e\\+300"),
        ({"a": None}, "must be a number, str, dict, list or set, got NoneType"),
        ({3: 1.0}, "an attribute's name must be a str, got int"),
        ([3], "an attribute must be a str, got int"),
        (7, "attributes must be a dict, list or set, got int"),
        ("word", "attributes must be a dict, list or set, got str"),
    ],
)
def test_bad_items_are_named(item: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Items.from_sequences([[["fine"], item]])


def test_the_sample() -> None:
    X, y = load_corpus("ingredients", "train")
    X_test, _ = load_corpus("ingredients", "test")
    assert (len(X), len(X_test)) == (353, 117)
    assert len({label for s in y for label in s} - {"O"}) >= 10
    assert not {tuple(x) for x in X} & {tuple(x) for x in X_test}
    with pytest.raises(ValueError, match="unknown corpus"):
        load_corpus("recipes")
    with pytest.raises(ValueError, match="'split' must be one of"):
        load_corpus("ingredients", "dev")


def test_missing_corpora_say_where_they_were_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRFKIT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"conll2000/train\.txt.*Set CRFKIT_DATA"):
        load_corpus("conll2000")


SIZES = {  # sequences of the training part, and labels in it
    "conll2000": (8936, 22),
    "nettalk": (19074, 51),
    "bc2gm": (12574, 3),
    "snips_slots": (13084, 72),
    "ud_english_ewt": (12544, 17),
    "ud_latvian_lvtb": (2257, 16),
}


@pytest.mark.parametrize("name", sorted(SIZES))
def test_corpora_have_the_documented_sizes(name: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRFKIT_DATA", str(data_folder))
    X, y = load_corpus(name)
    assert X.lengths.tolist() == y.lengths.tolist()
    assert (len(X), len(np.unique(y.ids))) == SIZES[name]


def test_the_other_corpora(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRFKIT_DATA", str(data_folder))
    assert len(load_corpus("ud_latvian_lvtb", "test", label="xpos").X) == 918
    assert len(load_corpus("nettalk", "test", label="phone+stress").X) == 934
    assert len(load_corpus("snakes_grid", "test").X) == 100
    X, y = load_corpus("ocr_letters", "fold3")
    assert X[0].shape == (len(y[0]), 128)
    assert set(SIZES) | {"brown", "cmudict", "ingredients", "ocr_letters", "snakes_grid"} == set(corpora())


def test_sets_of_attributes_have_one_order_in_every_process() -> None:
    code = (
        "from crfkit import CRF\n"
        "X = [[{'b', 'a', 'd'}, {'k': {'z', 'c', 'y'}}], [frozenset('gfe')]]\n"
        "crf = CRF(features=None).fit(X, [['A', 'B'], ['B']])\n"
        "print(crf.weights_.tolist(), crf.model_.encoder.names())"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert len(set(found)) == 1


def test_a_long_line_is_cut_between_characters() -> None:
    for k in range(4):
        with pytest.raises(DataError, match=r"got 1: 'x*(é|漢)+\.\.\.'"):
            read_columns(io.BytesIO(("a b\n" + "x" * k + "漢" * 40 + "\n").encode()))


def test_damaged_corpora_are_data_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRFKIT_DATA", str(tmp_path))
    file = tmp_path / "snakes_grid" / "snakes_train.jsonl"
    file.parent.mkdir()
    for text in (b"{", b'{"x": [[[1, 2, 3]]]}', b"[]", b"\xff", b"0", b"[" * 100_000):
        file.write_bytes(text)
        with pytest.raises(DataError, match="snakes_grid: a file of the corpus is damaged"):
            load_corpus("snakes_grid")
