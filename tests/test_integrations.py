"""Tables, data sets of lists, spaCy: each tested where it is installed."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crfkit import CRF
from crfkit.data import tokenize
from crfkit.integrations import from_lists, from_spans, from_table, to_arrow, to_table

X = [["two", "red", "pears"], ["one"], ["a", "pear"]]
Y = [["B-QTY", "O", "B-NAME"], ["B-QTY"], ["B-QTY", "B-NAME"]]
TABLE = {
    "sentence": ["s1", "s1", "s1", "s2", "s3", "s3"],
    "word": [w for x in X for w in x],
    "shape": ["x"] * 6,
    "tag": [t for y in Y for t in y],
}


def tables() -> list[Any]:
    out: list[Any] = [pytest.param(lambda x: x, id="dict")]
    for name, maker in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        if importlib.util.find_spec(name) is not None:
            out.append(pytest.param(getattr(importlib.import_module(name), maker), id=name))
    return out


@pytest.mark.parametrize("make", tables())
def test_tables_in(make: Any) -> None:
    table = make(TABLE)
    data = from_table(table, "word", label="tag", by="sentence")
    assert (list(data.X), list(data.y or [])) == (X, Y)
    both = from_table(table, ["word", "shape"], by="sentence")
    assert both.y is None
    assert both.X[1] == [("one", "x")]
    with pytest.raises(ValueError, match="no column 'nothing': it has sentence, word"):
        from_table(table, "nothing", by="sentence")
    lists = make({"tokens": X, "tags": Y})
    data = from_lists(lists, label="tags")
    assert (list(data.X), list(data.y or [])) == (X, Y)


@pytest.mark.parametrize("make", tables())
def test_numbers_on_the_first_row_only(make: Any) -> None:
    """The layout of the best-known NER table: "Sentence: 1", then nothing until the next sentence."""
    table = make({**TABLE, "sentence": ["Sentence: 1", None, None, "Sentence: 2", "Sentence: 3", None]})
    with pytest.raises(ValueError, match=r"column 'sentence', row 1: the value is missing\. .* give fill=True"):
        from_table(table, "word", label="tag", by="sentence")
    data = from_table(table, "word", label="tag", by="sentence", fill=True)
    assert (list(data.X), list(data.y or [])) == (X, Y)
    numbers = make({**TABLE, "sentence": [1, None, None, 2, 3, None]})  # pandas makes floats and NaN of them
    assert list(from_table(numbers, "word", by="sentence", fill=True).X) == X
    text = make({**TABLE, "sentence": ["1", "", "", "2", "3", " "]})  # as the csv module reads them
    assert list(from_table(text, "word", by="sentence", fill=True).X) == X
    with pytest.raises(ValueError, match="row 1: the value is missing"):
        from_table(text, "word", by="sentence")
    with pytest.raises(ValueError, match="row 0: the value is missing, and there is none above"):
        from_table(make({**TABLE, "sentence": [None, 1, 1, 2, 3, 3]}), "word", by="sentence", fill=True)


@pytest.mark.parametrize("make", tables())
def test_numbers_that_come_back(make: Any) -> None:
    table = make({"s": [1, 2, 1, 2], "doc": ["a", "a", "b", "b"], "w": ["p", "q", "r", "s"]})
    with pytest.raises(ValueError, match=r"column 's', row 2: the sequence 1 of row 0 occurs again .* repeats='group'"):
        from_table(table, "w", by="s")
    assert list(from_table(table, "w", by="s", repeats="group").X) == [["p", "r"], ["q", "s"]]
    assert list(from_table(table, "w", by="s", repeats="new").X) == [["p"], ["q"], ["r"], ["s"]]
    assert list(from_table(table, "w", by=["doc", "s"]).X) == [["p"], ["q"], ["r"], ["s"]]
    with pytest.raises(ValueError, match="'repeats' of from_table"):
        from_table(table, "w", by="s", repeats="join")


@pytest.mark.parametrize("dtype", ["category", "Int64", "float64", "int64[pyarrow]"])
def test_kinds_of_pandas_columns(dtype: str) -> None:
    pd = pytest.importorskip("pandas")
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    table = pd.DataFrame({**TABLE, "sentence": pd.Series([1, None, None, 2, 3, None], dtype=dtype)})
    with pytest.raises(ValueError, match="row 1: the value is missing"):
        from_table(table, "word", by="sentence")
    table["tag"] = table["tag"].astype("category")
    data = from_table(table, "word", label="tag", by="sentence", fill=True)
    assert (list(data.X), list(data.y or [])) == (X, Y)
    table["word"] = table["word"].astype("string").where(table["word"] != "one")
    with pytest.raises(ValueError, match=r"'word', row 3: the value is missing.*keep_default_na"):
        from_table(table, "word", by="sentence", fill=True)


@pytest.mark.parametrize(
    ("library", "maker", "write"), [("pandas", "DataFrame", to_table), ("pyarrow", "table", to_arrow)]
)
def test_tables_out_and_in_again(library: str, maker: str, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(library) is None:  # any table will do
        monkeypatch.setitem(sys.modules, library, SimpleNamespace(**{maker: dict}))
    data = from_table(write(X, Y), "token", label="label", by="sequence")
    assert (list(data.X), list(data.y or [])) == (X, Y)
    wide = write([[("a", "b")]], columns=["word", "tag"])
    assert from_table(wide, ["word", "tag"], by="sequence").X[0] == [("a", "b")]
    with pytest.raises(ValueError, match="sequence 1: 1 token, but 2 labels"):
        write(X, [Y[0], ["A", "B"], Y[2]])


def test_faults() -> None:
    with pytest.raises(ValueError, match="row 1: the value is missing"):
        from_table({"s": [1, 1], "w": ["a", None]}, "w", by="s")
    with pytest.raises(ValueError, match="column 'w' has 3 rows, column 's' has 2"):
        from_table({"s": [1, 1], "w": ["a", "b", "c"]}, "w", by="s")
    with pytest.raises(ValueError, match="'by' of from_table"):
        from_table({"s": [1, 1], "w": ["a", "b"]}, "w", by=[])
    with pytest.raises(ValueError, match="sequence 0: 3 tokens, but 1 label"):
        from_lists({"tokens": X, "tags": [["A"], ["A"], ["A"]]}, label="tags")
    with pytest.raises(ValueError, match="different lengths"):
        from_lists({"a": [["x"]], "b": [["x", "y"]]}, ["a", "b"])


def test_numbered_labels_get_their_names() -> None:
    class Dataset(dict[str, Any]):
        features = {"tags": SimpleNamespace(feature=SimpleNamespace(names=["O", "B"]))}  # noqa: RUF012

    data = from_lists(Dataset(tokens=[["a", "b"]], tags=[[1, 0]]), label="tags")
    assert data.y is not None
    assert list(data.y) == [["B", "O"]]


def test_numbers_that_name_no_label() -> None:
    class Dataset(dict[str, Any]):
        features = {"tags": SimpleNamespace(feature=SimpleNamespace(names=["O", "B"]))}  # noqa: RUF012

    tokens = [["a"], ["a", "b"]]
    data = from_lists(Dataset(tokens=tokens, tags=[[0], [1, -100]]), label="tags")
    assert data.y == [["O"], ["B", None]]
    assert CRF(c2=0.01).fit(*data).predict([["a"]])[0][0] in ("O", "B")
    for number in (-1, 2, -99, 0.5, "O"):
        with pytest.raises(ValueError, match=rf"sequence 1, position 1: there is no label {number!r}: .* 0 to 1"):
            from_lists(Dataset(tokens=tokens, tags=[[0], [1, number]]), label="tags")
    assert from_lists({"tokens": tokens, "tags": [[7], [None, -100]]}, label="tags").y == [["7"], [None, None]]
    with pytest.raises(ValueError, match="sequence 0, position 0: there is no label -1"):
        from_lists({"tokens": tokens, "tags": [[-1], [1, 0]]}, label="tags")
    assert from_lists({"tokens": tokens, "tags": [["-1"], ["-100", "a"]]}, label="tags").y[0] == ["-1"]
    assert from_lists({"tokens": [["a"]], "tags": [[float("nan")]]}, label="tags").y == [[None]]
    assert from_table({"s": [1, 1], "w": ["a", "b"], "t": [-100, 4]}, "w", label="t", by="s").y == [[None, "4"]]
    with pytest.raises(ValueError, match="sequence 0: column 'text' must hold lists, got 'two cups'"):
        from_lists({"text": ["two cups"]}, "text")


def test_estimators_take_arrow_arrays_and_series() -> None:
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    plain = CRF().fit(X, Y).predict(X)
    assert CRF().fit(pa.array(X), pa.array(Y)).predict(pa.chunked_array([X])) == plain
    assert CRF().fit(pd.Series(X), pd.Series(Y)).predict(pd.Series(X)) == plain


@pytest.mark.filterwarnings("ignore")
def test_spacy(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    import crfkit.integrations.spacy

    crf = CRF().fit(X, Y)
    crf.save(tmp_path / "m")
    nlp = spacy.blank("en")
    nlp.add_pipe("crfkit", config={"model": str(tmp_path / "m")})
    doc = nlp("two red pears")
    assert [(e.text, e.label_) for e in doc.ents] == [("two", "QTY"), ("pears", "NAME")]
    assert [len(d.ents) for d in nlp.pipe(["one", "a pear"])] == [1, 2]
    nlp.to_disk(tmp_path / "pipeline")
    tagger = spacy.blank("en")
    tagger.add_pipe("crfkit", config={"model": str(tmp_path / "m"), "sets": "tag"})
    assert [t.tag_ for t in tagger("two red pears")] == Y[0]
    with pytest.raises(ValueError, match="'sets'"):
        spacy.blank("en").add_pipe("crfkit", config={"model": str(tmp_path / "m"), "sets": "lemma"})
    with pytest.raises(ValueError, match="has no model"):
        crfkit.integrations.spacy.CrfkitComponent(None).pipe([]).__next__()


def test_nothing_optional_is_imported() -> None:
    code = "import sys, crfkit, crfkit.integrations, crfkit.compat; "
    code += "print([m for m in ('pandas', 'pyarrow', 'spacy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    names = ["B-NAME", "B-QTY", "O"]
    numbers = [[names.index(t) for t in y] for y in Y]
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=names)),
        }
    )
    numbered = datasets.Dataset.from_dict({"tokens": X, "ner_tags": numbers}, features=features)
    named = datasets.Dataset.from_dict({"tokens": X, "ner_tags": Y})
    for data in (numbered, named):
        x, y = from_lists(data, label="ner_tags")
        assert (list(x), list(y or ())) == (X, Y)
        x, y = from_lists(data.select([2, 0]), label="ner_tags")
        assert (list(x), list(y or ())) == ([X[2], X[0]], [Y[2], Y[0]])
    crf = CRF(c2=0.01).fit(named["tokens"], named["ner_tags"])
    assert crf.predict(named["tokens"]) == Y


def test_labels_are_not_learned_from() -> None:
    rows = {"s": [1, 1], "w": ["a", "b"], "t": ["A", "B"]}
    with pytest.raises(ValueError, match="'columns' of from_table must not hold the column of the labels, 't'"):
        from_table(rows, ["w", "t"], label="t", by="s")
    with pytest.raises(ValueError, match="'columns' of from_lists must not hold the column of the labels, 'tags'"):
        from_lists({"tokens": [["a"]], "tags": [["A"]]}, ["tokens", "tags"], label="tags")


def test_cells_without_anything_in_them() -> None:
    """As csv.DictReader gives them: empty strings."""
    table = {"n": [1, 1], "word": ["a", "b"], "tag": ["A", " "]}
    with pytest.raises(ValueError, match="column 'tag', row 1: the value is missing"):
        from_table(table, "word", label="tag", by="n")
    with pytest.raises(ValueError, match="column 'word', row 0: the value is missing"):
        from_table({**table, "word": ["", "b"], "tag": ["A", "A"]}, "word", label="tag", by="n")


def test_what_is_no_table() -> None:
    with pytest.raises(
        ValueError, match="must be a data frame, an Arrow table, a dict of columns or a list of dicts, got list"
    ):
        from_table([[1, "a"]], "word", by="n")


@pytest.mark.parametrize(("write", "package"), [(to_table, "pandas"), (to_arrow, "pyarrow")])
def test_the_extra_is_named(write: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'crfkit\[tables\]'"):
        write([["a"]])


def test_rows_of_a_csv_file() -> None:
    def lines() -> list[str]:
        return ["s;word;tag", "1;two;Q", "1;pears;N", "2;one;Q"]

    for rows in (csv.DictReader(lines(), delimiter=";"), list(csv.DictReader(lines(), delimiter=";"))):
        X, y = from_table(rows, "word", label="tag", by="s")
        assert list(X) == [["two", "pears"], ["one"]]
        assert list(y or ()) == [["Q", "N"], ["Q"]]
    with pytest.raises(ValueError, match="has no column 'pos': it has s, word"):
        from_table([{"s": 1, "word": "a"}], "pos", by="s")


def test_spans_of_characters() -> None:
    text = "Dr. Li moved to St. Gallen. Ann stayed."
    place = text.index("St."), text.index(". Ann")
    found = from_spans([text, "none"], [[{"start": 4, "end": 6, "label": "PER"}, (*place, "LOC")], []])
    assert found.X == [["Dr.", "Li", "moved", "to", "St.", "Gallen", "."], ["Ann", "stayed", "."], ["none"]]
    assert found.y[0] == ["O", "B-PER", "O", "O", "B-LOC", "I-LOC", "O"]
    assert found.X[1][0].start == text.index("Ann")
    whole = text.index("Gallen"), text.index("Ann") + 3
    joined = from_spans([text], [[(*whole, "X")]])
    assert [len(x) for x in joined.X] == [10]
    assert joined.y[0][5:8] == ["B-X", "I-X", "I-X"]


def test_spans_that_a_model_finds_come_back() -> None:
    texts = ["2 cups brown sugar", "350 g prawns, peeled"]
    crf = CRF(max_iter=20).fit(*from_spans(texts, [[(0, 1, "QTY"), (7, 18, "NAME")], [(0, 3, "QTY"), (6, 12, "NAME")]]))
    found = [crf.predict_entities(tokenize(text))[0] for text in texts]
    assert from_spans(texts, found).y == [crf.predict(tokenize(text))[0] for text in texts]


def test_spans_and_tokens_that_do_not_agree() -> None:
    with pytest.raises(ValueError, match=r"text 0: the span 0 to 3 \(QTY '350'\) does not begin and end with tokens"):
        from_spans(["350ml milk"], [[(0, 3, "QTY")]])
    assert from_spans(["350ml milk"], [[(0, 3, "QTY")]], widen=True).y == [["B-QTY", "O"]]
    with pytest.raises(ValueError, match="overlaps another, or shares a token"):
        from_spans(["350ml milk"], [[(0, 3, "QTY"), (3, 5, "UNIT")]], widen=True)
    wrong: list[tuple[Any, str]] = [
        ([(0, 99, "A")], "there is no span 0 to 99: the text has 4 characters"),
        ([(1, 1, "A")], "there is no span"),
        ([(0, 2)], "must be"),
        ([{"start": 0}], "must be"),
        ([(0, 4, None)], "label of a span must be a str"),
        ([(1, 2, "A")], "holds no token"),
        ([("0", 2, "A")], "must be"),
        (None, "text 0: spans must be a list"),
    ]
    for spans, words in wrong:
        with pytest.raises(ValueError, match=words):
            from_spans(["a  b"], [spans])
    with pytest.raises(ValueError, match="same length"):
        from_spans("text", [])
