"""Classes, gazetteers and vectors as features, against plain look-ups in Python."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hostile_files import set_in

import crfkit
from crfkit import CRF, Gazetteer, ModelError, TokenFeatures, WordClasses, WordVectors, _core, active
from crfkit.data import Blocks, Columns, DataError, iter_columns, read_columns
from crfkit.features.encoders import make_encoder
from crfkit.features.rewriting import join_blocks, split_blocks
from crfkit.model.chain_model import read_file, write_file
from crfkit.model.streaming import tag_columns

WORDS = ["New", "York", "Riga", "in", "the", "cup", "Salt", "salt", "old", "x"]
CODES = {"new": "0", "york": "0010", "in": "110", "cup": "01", "salt": "0111"}
VECTORS = {"New": [0.5, -1.0], "salt": [2.0, 0.25], "in": [0.0, 1.5]}
PHRASES = ["New York", "York", "old Riga in the", "old Riga", "cup", "in the cup"]


def features(**more: Any) -> TokenFeatures:
    """All there is, in small."""
    classes = WordClasses(CODES, CODES.values(), prefixes=[2, 3], lower=True)
    vectors = WordVectors(VECTORS, list(VECTORS.values()))
    gazetteers: dict[str, Any] = {"places": Gazetteer(PHRASES), "any": Gazetteer(PHRASES, case="lower")}
    return TokenFeatures(**{"classes": classes, "vectors": vectors, "gazetteers": gazetteers, "window": 1, **more})


def data(n: int = 40, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """Sequences, and labels that depend on the lexicon."""
    rng = random.Random(seed)
    X = [[rng.choice(WORDS) for _ in range(rng.randrange(1, 9))] for _ in range(n)]
    labels = [longest_match(PHRASES, x, "exact") for x in X]
    return X, [[mark or rng.choice("OP") for mark in row] for row in labels]


def longest_match(phrases: list[str], words: list[str], case: str) -> list[str | None]:
    """From left to right, the longest phrase at each place, by trying all."""
    same = str.lower if case == "lower" else str
    known = {tuple(map(same, phrase.split())) for phrase in phrases}
    out: list[str | None] = []
    while len(out) < len(words):
        t = len(out)
        sizes = [n for n in range(1, len(words) - t + 1) if tuple(map(same, words[t : t + n])) in known]
        n = max(sizes, default=0)
        out += [None] if n == 0 else ["U"] if n == 1 else ["B", *["I"] * (n - 2), "L"]
    return out


def named(sequence: list[str], crf_features: TokenFeatures) -> list[dict[str, float]]:
    """Names and values of the attributes of each token."""
    encoder = make_encoder(crf_features, [sequence])
    found = encoder.encode([sequence], True, 1)
    names = encoder.names()
    value = np.ones(len(found.attr)) if found.value is None else found.value
    rows = zip(found.ptr, found.ptr[1:], strict=False)
    return [{names[found.attr[k]]: float(value[k]) for k in range(i, j)} for i, j in rows]


def expected(sequence: list[str]) -> list[dict[str, float]]:
    """What :func:`features` add, by the rules of the docs."""
    codes = [CODES.get(word.lower()) for word in sequence]
    spread = np.sqrt(np.mean(np.square(list(VECTORS.values()))))
    vectors = [VECTORS.get(word, VECTORS.get(word.lower())) for word in sequence]
    lists = {"places": longest_match(PHRASES, sequence, "exact"), "any": longest_match(PHRASES, sequence, "lower")}
    out: list[dict[str, float]] = []
    for t in range(len(sequence)):
        row: dict[str, float] = {}
        for offset in (-1, 0, 1):
            if not 0 <= t + offset < len(sequence):
                continue
            code, vector = codes[t + offset], vectors[t + offset]
            row |= {f"class{n}[{offset}]={code[:n]}": 1 for n in (2, 3) if code}
            row |= {f"gazetteer:{k}[{offset}]={x[t + offset]}": 1 for k, x in lists.items() if x[t + offset]}
            row |= {f"vector{k}[{offset}]": float(np.float32(x / spread)) for k, x in enumerate(vector or [])}
        out.append(row)
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8))
def test_attributes_are_those_of_the_rules(sequence: list[str]) -> None:
    plain = named(sequence, TokenFeatures(window=1))
    for found, base, more in zip(named(sequence, features()), plain, expected(sequence), strict=True):
        assert found.keys() == base.keys() | more.keys()
        for name, value in found.items():
            assert value == pytest.approx(more.get(name, 1), rel=1e-6), name


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abAB"), min_size=1, max_size=5).map(" ".join), max_size=12),
    st.lists(st.sampled_from("abABc"), max_size=20),
    st.sampled_from(["exact", "lower"]),
)
def test_longest_matches(phrases: list[str], words: list[str], case: str) -> None:
    found = Gazetteer(phrases, case=case)
    same = str.lower if case == "lower" else str
    assert len(found) == len({same(phrase) for phrase in phrases})
    assert found.marks(words) == longest_match(phrases, words, case)
    assert pickle.loads(pickle.dumps(found)).marks(words) == found.marks(words)


def test_long_texts_and_long_phrases_on_threads() -> None:
    rng = random.Random(3)
    words = [f"w{k}" for k in range(50)] + ["É", "é"]
    phrases = [" ".join(rng.choices(words, k=rng.choice((1, 2, 2, 3, 64)))) for _ in range(3000)]
    X = [rng.choices(words, k=n) for n in (0, 1, 3000, 7, 20000)]
    given_lists = {"exact": Gazetteer(phrases), "lower": Gazetteer(phrases, case="lower")}
    for case, gazetteer in given_lists.items():
        assert [gazetteer.marks(x) for x in X] == [longest_match_fast(phrases, x, case) for x in X]
    encoder = make_encoder(TokenFeatures(gazetteers=given_lists), X)
    encoder.encode(X, True, 1)
    one, more = (encoder.encode(X, False, n) for n in (1, 3))
    np.testing.assert_array_equal(one.attr, more.attr)
    np.testing.assert_array_equal(one.ptr, more.ptr)


def longest_match_fast(phrases: list[str], words: list[str], case: str) -> list[str | None]:
    """The same as :func:`longest_match` of phrases of few lengths."""
    same = str.lower if case == "lower" else str
    known = {tuple(map(same, phrase.split())) for phrase in phrases}
    lengths = sorted({len(x) for x in known}, reverse=True)
    folded = [same(word) for word in words]
    out: list[str | None] = []
    while len(out) < len(words):
        t = len(out)
        n = next((n for n in lengths if t + n <= len(words) and tuple(folded[t : t + n]) in known), 0)
        out += [None] if n == 0 else ["U"] if n == 1 else ["B", *["I"] * (n - 2), "L"]
    return out


def test_files_of_gazetteers(tmp_path: Path) -> None:
    path = tmp_path / "cities.txt"
    path.write_text("New York\r\n\n  Riga \nold\tRiga in\n")
    found = Gazetteer.from_file(path)
    assert len(found) == 3
    assert found.marks(["old", "Riga", "in", "New", "York"]) == ["B", "I", "L", "B", "L"]
    packed = tmp_path / "cities.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(Gazetteer.from_file(packed)) == 3
    path.write_bytes(b"Riga\n\xff\n")
    with pytest.raises(DataError, match=r"cities.txt:2: not valid UTF-8"):
        Gazetteer.from_file(path)
    path.write_text("Riga\n" + "a " * 65)
    with pytest.raises(DataError, match=r"cities.txt:2: a phrase may have at most 64 words, got 65"):
        Gazetteer.from_file(path)
    with pytest.raises(ValueError, match=r"phrase 1 of a Gazetteer, '': a phrase has no words"):
        Gazetteer(["Riga", ""])
    with pytest.raises(ValueError, match=r"'case' of Gazetteer must be one of exact, lower, got 'upper'"):
        Gazetteer([], case="upper")


VALUES = np.array([[0.5, -1.0, 3.0], [2.0, 0.25, -1e-3]], np.float32)


def binary(values: np.ndarray[Any, Any], newline: bytes = b"\n") -> bytes:
    """A file of word2vec's."""
    rows = zip([b"a", "é b".replace(" ", "\u00a0").encode()], values, strict=True)
    head = f"{len(values)} {values.shape[1]}\n".encode()
    return head + b"".join(word + b" " + row.astype("<f4").tobytes() + newline for word, row in rows)


def text(values: np.ndarray[Any, Any]) -> str:
    """A file of GloVe's."""
    rows = zip(["a", "é\u00a0b"], values, strict=True)
    return "".join(f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in rows)


@pytest.mark.parametrize("kind", ["glove", "word2vec", "fasttext", "binary", "binary without ends", "packed"])
def test_files_of_vectors(kind: str, tmp_path: Path) -> None:
    content = {
        "glove": text(VALUES).encode(),
        "word2vec": b"2 3\n" + text(VALUES).replace("\n", " \n").encode(),
        "fasttext": b"2 3\r\n" + text(VALUES).replace("\n", "\r\n").encode(),
        "binary": binary(VALUES),
        "binary without ends": binary(VALUES, b""),
        "packed": bz2.compress(binary(VALUES)),
    }[kind]
    path = tmp_path / "vectors"
    path.write_bytes(content)
    found = WordVectors.from_file(path)
    assert found.words == ["a", "é\u00a0b"]
    np.testing.assert_array_equal(found.values, VALUES)
    assert WordVectors.from_file(path, limit=1).words == ["a"]
    assert "A" in found
    assert "b" not in found
    with pytest.raises(KeyError):
        found["b"]


def test_words_of_vectors_with_blanks_and_twice(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"a 1 2\n. . 3 4\na 5 6\n\xff 7 8\n")
    with pytest.warns(UserWarning, match="vectors.txt: 1 word left out, not valid UTF-8; the first is word 4"):
        found = WordVectors.from_file(path)
    assert found.words == ["a", ". ."]
    np.testing.assert_array_equal(found.values, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\nb 1\n", "vectors:2: expected a word and 2 numbers separated by blanks"),
        (b"a 1 x\n", "vectors:1: expected a word and 2 numbers"),
        (b"2 2\na 1 2\nb 1 nan\n", "vectors:3: the numbers of a vector must be finite"),
        (b"2 2\na 1 2\nb 1 1e30\n", "vectors:3: the numbers of a vector must be finite, and at most 1e10"),
        (b"3 2\na 1 2\nb 1 2\n", "vectors: the first line announces 3 words, but the file has 2"),
        (b"1 2\na 1 2\nb 1 2\n", "vectors: the first line announces 1 word, but the file has 2"),
        (b"2 3\nRiga 0.9 0.1\nOslo 1.0 0.2\n", "vectors:2: expected a word and 3 numbers"),
        (b"3 0\n", "vectors:1: a vector has at least one number, got 0"),
        (b"3 99999\n", "vectors:1: a vector may have at most 4096 numbers, got 99999"),
        (b"", "vectors: the file holds no vectors"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0", "vectors: this is a model of fastText .* give its .vec file"),
        (b"word\n", "vectors:1: expected a word and 1 to 4096 numbers, got 0"),
        (binary(VALUES)[:-3], "vectors: it is cut short within word 2"),
        (binary(VALUES * np.float32(np.nan)), "vectors: word 1: the numbers of a vector must be finite"),
        (b"2 300\n" + b"\0" * 100000, "vectors: word 1 is longer than 65536 bytes"),
    ],
)
def test_files_of_vectors_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        WordVectors.from_file(path)


@pytest.mark.parametrize("hash_bits", [None, 12])
def test_models_hold_their_lexicon(tmp_path: Path, hash_bits: int | None) -> None:
    X, y = data()
    crf = CRF(features(), max_iter=20, hash_bits=hash_bits).fit(X, y)
    crf.save(tmp_path / "model")
    again = crfkit.load(tmp_path / "model")
    test, _ = data(30, seed=1)
    for x in (again, pickle.loads(pickle.dumps(crf)), copy.deepcopy(crf)):
        for a, b in zip(x.predict_marginals(test), crf.predict_marginals(test), strict=True):
            np.testing.assert_array_equal(a, b)
    again.save(tmp_path / "again")
    (_, one), (_, other) = (read_file(tmp_path / name) for name in ("model", "again"))
    assert one.keys() == other.keys()
    for name in (name for name in one if ".lexicon." in name):
        np.testing.assert_array_equal(one[name], other[name])
    assert again.set_params(warm_start=True, max_iter=3).fit(X, y).score(X, y) > 0.5


def test_streaming_is_prediction() -> None:
    X, y = data()
    crf = CRF(features(), max_iter=20).fit(X, y)
    test, _ = data(300, seed=2)
    text = "".join("".join(f"{word}\n" for word in x) + "\n" for x in test).encode()
    lines = b"".join(piece.text for piece in tag_columns(crf.model_, io.BytesIO(text), n_jobs=2)).decode()
    found = [[row.split("\t")[1] for row in part.split("\n")] for part in lines.strip("\n").split("\n\n")]
    assert found == crf.predict(test)


@pytest.mark.parametrize("more", [{}, {"vectors": None}], ids=["vectors", "without vectors"])
def test_block_files_are_as_memory(tmp_path: Path, more: dict[str, Any]) -> None:
    X, y = data(200)
    crf = CRF(features(**more), max_iter=15)
    crf.fit(X, y)
    blocks = crf.encode(X, y, tmp_path / "x.blocks")
    stored = CRF(features(**more), max_iter=15).fit(blocks)
    np.testing.assert_array_equal(stored.model_.weights, crf.model_.weights)
    assert stored.predict(X) == crf.predict(X) == crf.predict(blocks)
    a, b = split_blocks(blocks, [tmp_path / "a.blocks"]) * 2
    joined = join_blocks([a, b], tmp_path / "joined.blocks")
    assert joined.encoder_config["lexicon"] == blocks.encoder_config["lexicon"]
    other = CRF(features(gazetteers={"places": ["x"], "any": ["x"]}, **more)).encode(X, y, tmp_path / "other.blocks")
    with pytest.raises(ValueError, match="its features are not those of"):
        join_blocks([blocks, other], tmp_path / "none.blocks")
    with pytest.raises(ValueError, match="the features are not those of the model"):
        crf.predict(other)


def test_active_learning_looks_at_the_lexicon() -> None:
    X, y = data()
    crf = CRF(features(), max_iter=20, n_jobs=1).fit(X[:20], y[:20])
    asked = active.query(crf, X[20:], 5, "token_entropy")
    of_files = active.uncertainty(pickle.loads(pickle.dumps(crf)), X[20:], "token_entropy")
    assert [q.sequence for q in asked] == np.argsort(-of_files, kind="stable")[:5].tolist()
    pool = active.Pool(X, sorted({label for row in y for label in row}), spans=False, crf=CRF(features()), n_jobs=1)
    for i in range(30):
        pool.tell(i, [(t, t + 1, label) for t, label in enumerate(y[i])], [(0, len(X[i]))])
    pool.learn()
    found = pool.estimator()
    assert {"gazetteer:places[0]=B", "class2[0]=00"} <= set(found.model_.encoder.names())
    marked = [
        ("B" in row, "B" in longest_match(PHRASES, x, "exact")) for x, row in zip(X, found.predict(X), strict=True)
    ]
    assert np.mean([a == b for a, b in marked]) > 0.9


def test_explanations_name_the_attributes() -> None:
    X, y = data()
    crf = CRF(features(), max_iter=20).fit(X, y)
    decision = crf.explain(["in", "New", "York"])[1]
    shown = {c.name: c.value for c in decision.contributions}
    assert {"class2[0]=0", "class3[1]=001", "gazetteer:places[0]=B", "vector1[0]"} <= shown.keys()
    assert shown["vector1[0]"] < 0
    attributes = {w.attribute for w in crf.model_.state_weights()}
    assert {"class3[0]=001", "gazetteer:any[-1]=U", "vector0[0]"} <= attributes


def test_more_columns_and_several_classes(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("New N B\nYork N I\n\nin P O\nRiga N B\n")
    X, y = read_columns(path)
    brown = WordClasses(["New", "York"], ["01", "00"], prefixes=[1])
    crf = CRF(TokenFeatures(classes={"brown": brown, "other": brown}), max_iter=5).fit(X, y)
    names = crf.model_.encoder.names()
    assert {"brown1[0]=0", "other1[1]=0", "column1[0]=N"} <= set(names)
    assert crf.predict(X) == y


def test_parameters_are_checked() -> None:
    for more, message in (
        ({"classes": 3}, "'classes' of TokenFeatures must be WordClasses"),
        ({"classes": {"a": 3}}, "'classes' of TokenFeatures must be WordClasses"),
        ({"vectors": "file"}, "'vectors' of TokenFeatures must be WordVectors"),
        ({"gazetteers": ["Riga"]}, "'gazetteers' of TokenFeatures must be a dict"),
        ({"gazetteers": {"a": "file"}}, "'gazetteers' of TokenFeatures must be a dict"),
    ):
        with pytest.raises(ValueError, match=message):
            TokenFeatures(**more)
    wrong: list[tuple[list[Any], Any, str]] = [
        (["a", "a"], [[1], [2]], "must be distinct, got 'a' twice"),
        (["a"], [1], r"must have the shape \[1, numbers\], got \[1\]"),
        ([], np.zeros((0, 3)), "'words' of WordVectors must not be empty"),
        (["a", 3], [[1], [2]], "'words' of WordVectors must be strings, got 3"),
    ]
    for words, values, message in wrong:
        with pytest.raises(ValueError, match=message):
            WordVectors(words, values)
    vectors: Any = WordVectors(["a"], [[1]])
    assert 3 not in vectors
    with pytest.raises(KeyError):
        vectors[3]
    with pytest.raises(ValueError, match=r"'n_classes' of WordVectors\.classes must be an int >= 1, got 0"):
        vectors.classes(0)
    assert hash(features()) is not None
    crf: Any = CRF(features())
    assert crf.get_params()["features__vectors"] is crf.features.vectors
    assert crf.set_params(features__window=2).features.lexicon == features().lexicon
    assert features().lexicon != features(vectors=None).lexicon


HEADER: dict[str, tuple[Any, str]] = {
    "encoder.lexicon": (..., "there are arrays of a lexicon, but 'encoder.lexicon' is missing"),
    "encoder.lexicon.classes": (7, "'encoder.lexicon.classes' must be a list"),
    "encoder.lexicon.gazetteers": ([], "the plan looks at 3 columns of a lexicon, which has 1"),
    "encoder.lexicon.vectors": ([], "the plan looks at 2 numbers of a lexicon, which has 0"),
    "encoder.lexicon.vectors.0.folding": ("odd", "must be one of 'exact', 'lower', 'either', got 'odd'"),
    "encoder.lexicon.more": (1, "'encoder.lexicon.more' is not known"),
}
ARRAYS: dict[str, tuple[Any, str]] = {
    "classes.0.class": (lambda x: x + 99, "a word has a class that does not exist"),
    "classes.0.words.ends": (lambda x: x[::-1].copy(), "the ends of the strings must rise"),
    "gazetteers.0.first": (lambda x: x * 0, "the phrases of a gazetteer are damaged"),
    "gazetteers.0.label": (lambda x: x + 1000, "the phrases of a gazetteer are damaged"),
    "gazetteers.0.last": (lambda x: x[:-1], "the phrases of a gazetteer are damaged"),
    "gazetteers.1.words.bytes": (lambda x: x | 128, "a string is not valid UTF-8"),
    "vectors.0.values": (lambda x: np.full_like(x, np.inf), "the numbers of a vector must be finite"),
    "vectors.0.words.ends": (lambda x: x[:-1], "must be of shape"),
    "gazetteers.0.more": (
        lambda x: np.zeros(1),
        "the array 'encoder.lexicon.gazetteers.0.more' does not belong to the lexicon",
    ),
}


@pytest.mark.parametrize("hash_bits", [None, 6])
def test_hostile_lexicons_are_refused(tmp_path: Path, hash_bits: int | None) -> None:
    X, y = data()
    CRF(features(), max_iter=2, hash_bits=hash_bits).fit(X, y).save(tmp_path / "good")
    before = "" if hash_bits is None else "encoder.inner"
    for field, (value, message) in HEADER.items():
        header, arrays = read_file(tmp_path / "good")
        set_in(header, field.replace("encoder", before) if before else field, value)
        gone = f"{field}." if value == [] else "none"
        write_file(tmp_path / "bad", header, {k: x for k, x in arrays.items() if not k.startswith(gone)})
        with pytest.raises(ModelError, match=message):
            crfkit.load(tmp_path / "bad")
    for name, (change, message) in ARRAYS.items():
        header, arrays = read_file(tmp_path / "good")
        key = f"encoder.lexicon.{name}"
        arrays[key] = change(arrays.get(key))
        write_file(tmp_path / "bad", header, arrays)
        with pytest.raises(ModelError, match=message):
            crfkit.load(tmp_path / "bad")


def test_hostile_tries() -> None:
    words = _core.StringTable()
    words.add("a")

    def made(first: list[int], label: list[int], last: list[int]) -> _core.Gazetteer:
        kinds = np.uint32, np.uint32, np.uint8
        arrays = [np.array(x, kind) for x, kind in zip((first, label, last), kinds, strict=True)]
        return _core.Gazetteer(words, "exact", *arrays)

    assert made([1, 2, 2], [0, 0], [0, 1]).marks(["a", "b"]) == ["U", None]
    n = 66
    for bad in (
        ([], [], []),
        ([1], [], []),
        ([1, 1, 2], [0, 0], [0, 1]),  # its own child
        ([1, 2, 2], [0, 1], [0, 1]),  # no such word
        ([1, 3, 3, 3], [0, 0, 0], [0, 1, 1]),  # the same word twice
        ([1, 2, 2], [0, 0], [1, 1]),  # the empty phrase
        ([1, 2, 2], [0, 0], [0, 2]),
        ([1, 2, 3], [0, 0], [0, 1]),
        ([*range(1, n + 1), n], [0] * n, [0] * (n - 1) + [1]),  # too deep
    ):
        with pytest.raises((ValueError, RuntimeError), match="the phrases of a gazetteer are damaged"):
            made(*bad)


def test_an_encoder_without_its_lexicon_says_so() -> None:
    plan = features().plan(1)
    with pytest.raises(ValueError, match="the plan looks at 3 columns of a lexicon, which has 0"):
        CRF(plan).fit([["a"]], [["A"]])
    native = _core.TemplateEncoder(plan.nodes, plan.templates, 0)
    x = Columns.from_sequences([["a"]])
    with pytest.raises(ValueError, match="the templates look at 3 columns and 2 numbers of a lexicon"):
        native.encode(x.strings, x.ids, x.offsets, None, True, 1)
    for nodes, templates, message in (
        ([("number", 0), ("join", 0, 0, 0, "")], [], "must not join numbers"),
        ([("number", 0)], [(0, 0, "x", "", True)], "transitions have no values"),
        ([("number", -1)], [], "must look at a number of a vector"),
        ([("derived", 2000, 0, 0)], [], "must look at columns 0 to 1000"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.TemplateEncoder(nodes, templates, 0)


def test_the_command_line(tmp_path: Path) -> None:
    X, y = data(60)
    rows = zip(X, y, strict=True)
    text = "".join("".join(f"{a} {b}\n" for a, b in zip(*row, strict=True)) + "\n" for row in rows)
    (tmp_path / "train.txt").write_text(text)
    (tmp_path / "places.txt").write_text("\n".join(PHRASES))
    (tmp_path / "vectors.txt").write_text("".join(f"{w} {x[0]} {x[1]}\n" for w, x in VECTORS.items()))
    WordClasses(CODES, CODES.values(), prefixes=[2, 3], lower=True).save(tmp_path / "classes")
    lists = ["--gazetteer", f"places={tmp_path}/places.txt", "--gazetteer", f"any:lower={tmp_path}/places.txt"]
    words = ["--classes", f"{tmp_path}/classes", "--vectors", f"{tmp_path}/vectors.txt", *lists]
    source, model, blocks = (str(tmp_path / name) for name in ("train.txt", "model", "x.blocks"))
    run("train", source, "-m", model, "--max-iter", "20", *words)
    crf = CRF(TokenFeatures(**{**vars(features()), "window": 2}), max_iter=20).fit(X, y)
    np.testing.assert_array_equal(crfkit.load(model, kind=CRF).model_.weights, crf.model_.weights)
    run("encode", source, "-o", blocks, *words)
    np.testing.assert_array_equal(CRF(max_iter=20).fit(Blocks(blocks)).model_.weights, crf.model_.weights)
    both = ["--classes", f"one={tmp_path}/classes", "--classes", f"two={tmp_path}/classes"]
    run("train", source, "-m", model, "--max-iter", "2", *both)
    names = {name.partition("[")[0] for name in crfkit.load(model, kind=CRF).model_.encoder.names()}
    assert {"one2", "one3", "two2", "two3"} <= names
    for options, message in (
        (
            ["--classes", f"{tmp_path}/classes", "--classes", f"{tmp_path}/classes"],
            "several --classes must be NAME=FILE",
        ),
        (["--gazetteer", "places"], "--gazetteer must be NAME=FILE"),
        (["--gazetteer", "x:odd=places.txt"], "--gazetteer: 'case' of Gazetteer must be one of exact, lower"),
        (["--vectors", str(tmp_path / "none")], "--vectors: No such file"),
        (["--classes", source], "--classes: "),
        (2 * ["--vectors", str(tmp_path / "vectors.txt")], "--vectors must be given once, got a second one"),
        (["--template", source, *lists], "--gazetteer and --template exclude each other"),
        (["--format", "crfsuite", *lists], "CRFsuite files have attributes"),
        (["--warm-start", model, *lists], "--gazetteer and --warm-start exclude each other"),
    ):
        assert message in run("train", source, "-m", model, *options, code=2).stderr
    encoded = run("train", blocks, "-m", model, *words[2:4], code=2).stderr
    assert "--vectors is for text" in encoded


def test_what_is_no_list_of_phrases_and_no_vector() -> None:
    with pytest.raises(ValueError, match=r"'phrases' of Gazetteer must be a list, got 'cities\.txt'"):
        Gazetteer("cities.txt")
    for bad in (np.nan, np.inf, 1e39):
        with pytest.raises(ValueError, match="must be finite"):
            WordVectors(["a"], [[bad]])


def test_a_compressed_file_that_is_cut_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(("a 1 2 3\n" + "\n".join(f"w{k} 1 2 {k}" for k in range(500))).encode())
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) // 2])
    readers = (
        read_columns,
        lambda x: list(iter_columns(x)),
        Gazetteer.from_file,
        WordVectors.from_file,
        WordClasses.fit,
    )
    for read in readers:
        with pytest.raises(DataError, match=r"cut\.gz: cannot read"):
            read(str(path))


def test_letters_whose_lower_case_is_two_are_found() -> None:
    classes = WordClasses.fit([["İstanbul", "ΟΔΟΣ", "a"]] * 3, 4)
    assert dict(classes).keys() == {"İstanbul", "οδοσ", "a"}
    assert classes["İSTANBUL"] == classes["İstanbul"]
    assert classes["ΟΔΟΣ"] == classes["οδοσ"]
    crf = CRF(TokenFeatures(classes=classes)).fit([["İSTANBUL", "b"]], [["A", "B"]])
    assert any(w.attribute.startswith("class4[0]=") for w in crf.model_.state_weights())


def test_the_shell_names_words_that_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_bytes("café 0.1 0.2\nRiga 1 2\n".encode("latin-1"))
    (tmp_path / "data").write_text("Riga A\ncafe B\n")
    out = run("train", tmp_path / "data", "-m", tmp_path / "m", "--vectors", tmp_path / "vectors", "-q")
    assert out.stderr.startswith(f"crfkit: warning: {tmp_path / 'vectors'}: 1 word left out, not valid UTF-8")


def test_words_of_gazetteers_must_be_strs() -> None:
    for wrong in (None, float("nan")):
        with pytest.raises(ValueError, match="phrase 1 of a Gazetteer must be a str or a list of strs, got"):
            Gazetteer(["a", wrong])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'words' of marks must be strs, got 1"):
        Gazetteer(["a"]).marks([1])  # type: ignore[list-item]
