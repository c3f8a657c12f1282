"""Formats of the annotation page: what is not touched comes out byte for byte, what is touched can be read again."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited import run_limited

from crfkit.annotate.documents import AnnotateError, Document
from crfkit.annotate.formats import LIST, NAMES, Export, read_documents, write_documents
from crfkit.annotate.formats.parts import final, from_bio, gaps_of, scheme_of, spans_of, to_bio
from crfkit.data import DataError

ENDS = st.sampled_from(["\n", "\r\n"])
WORD = st.text("abzÀé東ß🙂'-.\"&<>5", min_size=1, max_size=6).filter(lambda w: not w.startswith("-D"))
CHUNK = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "?", "_"])
TYPES = ["PER", "LOC"]


def read(folder: Path, name: str, data: bytes, **how: Any) -> list[Document]:
    (folder / name).write_bytes(data)
    return read_documents([folder / name], **how)


def files(export: Export) -> dict[str, bytes]:
    """What an export holds."""
    if not export.name.endswith(".zip"):
        return {export.name: export.data}
    with zipfile.ZipFile(io.BytesIO(export.data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def meaning(docs: list[Document], labels: list[Any], task: str) -> dict[int, Any]:
    """What each unit of a file says, whatever tokens its sentences are cut into."""
    units: dict[int, list[int]] = {}
    for i, doc in enumerate(docs):
        units.setdefault(doc.source["unit"], []).append(i)
    out: dict[int, Any] = {}
    for unit, members in units.items():
        parts, rows = [docs[i] for i in members], final([docs[i] for i in members], [labels[i] for i in members])
        spans = spans_of(parts, rows, task)
        unknown = {x for a, b in gaps_of(parts, rows) for x in range(a, b)}
        text = {d.source.get("at", 0) + a: w for d in parts for w, (a, _) in zip(d.words, d.tokens, strict=True)}
        letters = {at + k: c for at, w in text.items() for k, c in enumerate(w)}
        said = {x: label for a, b, label in spans for x in range(a, b)} if task == "tokens" else set(spans)
        out[unit] = said, unknown & letters.keys(), letters
    return out


def check_same(folder: Path, name: str, data: bytes, **how: Any) -> list[Document]:
    """Nothing answered: the same bytes. One sentence answered: its labels come back, all others as they were."""
    docs = read(folder, name, data, **how)
    docs = [Document(d.text, d.tokens, d.columns, d.labels, json.loads(json.dumps(d.source))) for d in docs]
    task = how.get("task", "spans")
    assert files(write_documents(docs, [None] * len(docs), task=task))[name] == data
    assert files(write_documents(docs, [d.labels for d in docs], task=task))[name] == data
    for doc in docs:
        assert "".join(doc.text[a:b] for a, b in doc.tokens) == "".join(doc.words)
        assert all(a < b for a, b in doc.tokens)
    shown = {"label": "-1"} if how.get("label") == "none" else {}  # labels that were ignored stay in the file
    before = read(folder, name, data, **{**how, **shown})
    for i in {0, len(docs) - 1}:
        new = ["PER" if task == "tokens" else "B-PER" for _ in docs[i].tokens]
        labels: list[Any] = [None] * len(docs)
        labels[i] = new
        for file, text in files(write_documents(docs, labels, task=task)).items():
            (folder / file).write_bytes(text)
        again = read_documents([folder / name], **{**how, **shown})
        assert meaning(again, [None] * len(again), task) == meaning(before, labels, task)
        units = [[d.source.get("raw") for d in x if d.source["unit"] != docs[i].source["unit"]] for x in (docs, again)]
        if not docs[i].source.get("grows"):
            assert units[0] == units[1]
        (folder / name).unlink()
        (folder / name).with_suffix(".ann").unlink(missing_ok=True)
    return docs


@st.composite
def column_files(draw: Any) -> bytes:
    end = draw(ENDS)
    gap = draw(st.sampled_from(["\t", " ", "  "]))
    width = draw(st.integers(1, 3))
    out = draw(st.sampled_from(["", "\ufeff"]))
    for _ in range(draw(st.integers(1, 4))):
        out += draw(st.sampled_from(["", end, f"{end}{end}", f"  {end}" if gap != "\t" else end, f"# note{end}"]))
        for word in draw(st.lists(WORD, min_size=1, max_size=4)):
            cells = [word, *(draw(WORD) for _ in range(width - 1)), draw(CHUNK)]
            out += gap.join(cells) + draw(st.sampled_from(["", " "]) if gap != "\t" else st.just("")) + end
            out += draw(st.sampled_from(["", "", "", f"# comment{end}"]))
        out += end
    out += draw(st.sampled_from(["", end, f"# last{end}", f"-DOCSTART-{gap}x{end}"]))
    text: str = out if draw(st.booleans()) else out.rstrip("\r\n")
    return text.encode()


@given(column_files(), st.sampled_from([None, "-1", "none"]))
def test_column_files_come_back(tmp_path_factory: Any, data: bytes, label: str | None) -> None:
    folder = tmp_path_factory.mktemp("columns")
    check_same(folder, "a.conll", data, comment="#", label=label)


@given(column_files())
def test_column_files_of_token_tasks_come_back(tmp_path_factory: Any, data: bytes) -> None:
    check_same(tmp_path_factory.mktemp("columns"), "a.conll", data, comment="#", label="-1", task="tokens")


@st.composite
def conllu_files(draw: Any) -> bytes:
    end = draw(ENDS)
    out = draw(st.sampled_from(["", "\ufeff", end]))
    for _ in range(draw(st.integers(1, 3))):
        out += draw(st.sampled_from(["", f"# text = x{end}", f"# sent_id = 1{end}# y{end}"]))
        for k, word in enumerate(draw(st.lists(WORD, min_size=1, max_size=4)), 1):
            out += draw(st.sampled_from(["", f"{k}-{k + 1}" + "\t_" * 9 + end]))
            upos = draw(st.sampled_from(["_", "NOUN", "VERB"]))
            misc = draw(st.sampled_from(["_", "SpaceAfter=No", "NER=B-PER", "X=1|NER=O|Y=2"]))
            out += "\t".join([str(k), word, "l", upos, "x", "_", "0", "r", "_", misc]) + end
            out += draw(st.sampled_from(["", "", f"{k}.1" + "\t_" * 9 + end]))
        out += end
    text: str = out if draw(st.booleans()) else out.rstrip("\r\n")
    return text.encode()


@given(conllu_files(), st.sampled_from(["spans", "tokens"]))
def test_conllu_comes_back(tmp_path_factory: Any, data: bytes, task: str) -> None:
    check_same(tmp_path_factory.mktemp("conllu"), "a.conllu", data, task=task)


PROSE = st.text("Ab ée東🙂.!?\n\r\t\"'&<>{}[]-\u200d\u0301\u05d0\u202e", min_size=1, max_size=40)


def has_word(text: str) -> bool:
    return bool(text.removeprefix("\ufeff").strip())


@given(PROSE.filter(has_word), st.sampled_from(["", "\ufeff"]), st.booleans())
def test_raw_text_comes_back(tmp_path_factory: Any, text: str, bom: str, by_line: bool) -> None:
    data = (bom + text).encode()
    folder = tmp_path_factory.mktemp("text")
    docs = check_same(folder, "a.txt", data, by_line=by_line, format="brat")
    kept = "".join(c for d in docs for w in d.words for c in w)
    assert kept == "".join(text.removeprefix("\ufeff").split())


def test_json_of_one_long_line(tmp_path: Path) -> None:
    data = b"[" + b" " * (17 << 20) + b'{"text": "a b", "spans": [{"start": 0, "end": 1, "label": "X"}]}]'
    (doc,) = read(tmp_path, "x.json", data)
    assert doc.text == "a b"


def test_lines_are_sentences_where_that_is_said(tmp_path: Path) -> None:
    text = "Go. Stop!\nNow\nor never.\n"
    assert [d.words for d in read(tmp_path, "a.txt", text.encode(), by_line=True)] == [
        ["Go", ".", "Stop", "!"],
        ["Now"],
        ["or", "never", "."],
    ]
    assert len(read(tmp_path, "a.txt", text.encode())) == 3


@st.composite
def csv_tokens(draw: Any) -> bytes:
    end, gap = draw(ENDS), draw(st.sampled_from([",", ";", "\t"]))
    labelled = draw(st.booleans())
    out = draw(st.sampled_from(["", "\ufeff"])) + gap.join(["Sentence #", "Word", *(["Tag"] if labelled else [])]) + end
    for k in range(draw(st.integers(1, 3))):
        for j, word in enumerate(draw(st.lists(WORD.filter(str.strip), min_size=1, max_size=3))):
            shown = '"' + word.replace('"', '""') + '"' if '"' in word or draw(st.booleans()) else word
            cells = [f"s{k}" if j == 0 or draw(st.booleans()) else "", shown, *([draw(CHUNK)] if labelled else [])]
            out += gap.join(cells) + end
        out += draw(st.sampled_from(["", end]))
    text: str = out if draw(st.booleans()) else out.rstrip("\r\n")
    return text.encode()


@given(csv_tokens())
def test_tables_of_tokens_come_back(tmp_path_factory: Any, data: bytes) -> None:
    check_same(tmp_path_factory.mktemp("csv"), "a.csv", data)


@st.composite
def csv_texts(draw: Any) -> bytes:
    end = draw(ENDS)
    spans = draw(st.booleans())
    out = draw(st.sampled_from(["", "\ufeff"])) + ",".join(["id", "text", *(["spans"] if spans else [])]) + end
    for k, text in enumerate([*draw(st.lists(PROSE, min_size=1, max_size=3)), "Anna left"]):
        cells = [str(k), '"' + text.replace('"', '""') + '"']
        if spans:
            cells.append(draw(st.sampled_from(["", "[]", '"[[0, 1, ""PER""]]"' if text[:1].strip() else ""])))
        out += ",".join(cells) + end
    whole: str = out if draw(st.booleans()) else out.removesuffix(end)
    return whole.encode()


@given(csv_texts())
def test_tables_of_texts_come_back(tmp_path_factory: Any, data: bytes) -> None:
    check_same(tmp_path_factory.mktemp("csv"), "a.csv", data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('aé"\\\n/', max_size=4),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text("xyz", max_size=3), x, max_size=2),
    max_leaves=4,
)


@st.composite
def record_files(draw: Any, dialect: str) -> bytes:
    end = draw(ENDS)
    style = {"ensure_ascii": draw(st.booleans()), "separators": draw(st.sampled_from([(",", ":"), (", ", ": ")]))}
    out = draw(st.sampled_from(["", "\ufeff", end]))
    for text in [*draw(st.lists(PROSE, max_size=2)), "Anna saw Ben. Ben left."]:
        others = {f"_{k}": v for k, v in draw(st.dictionaries(st.text("xyz", max_size=3), JSON, max_size=2)).items()}
        record = {**others, **record_of(draw, dialect, text), "meta": {"a": 1.50}}
        if draw(st.booleans()):
            record = dict(reversed(record.items()))
        out += draw(st.sampled_from(["", " "])) + json.dumps(record, **style) + draw(st.sampled_from(["", " "])) + end
        out += draw(st.sampled_from(["", end]))
    whole: str = out if draw(st.booleans()) else out.rstrip("\r\n")
    return whole.encode("utf-8", "surrogatepass")


def record_of(draw: Any, dialect: str, text: str) -> dict[str, Any]:
    n = len(text)
    pairs = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for _ in range(draw(st.integers(0, 3)))]
    spans = [(a, b, draw(st.sampled_from(TYPES))) for a, b in pairs]
    if dialect == "doccano":
        return {"text": text, "label": [list(x) for x in spans]}
    if dialect == "entities":
        found = [{"id": k, "label": x, "start_offset": a, "end_offset": b} for k, (a, b, x) in enumerate(spans)]
        return {"text": text, "entities": found, "relations": []}
    if dialect == "prodigy":
        answer = draw(st.sampled_from([{}, {"answer": "accept"}, {"answer": "reject"}]))
        return {"text": text, "spans": [{"start": a, "end": b, "label": x, "s": 0.10} for a, b, x in spans], **answer}
    results = [
        {"from_name": "l", "to_name": "t", "type": "labels", "value": {"start": a, "end": b, "labels": [x]}}
        for a, b, x in spans
    ]
    other = {"type": "choices", "value": {"choices": ["x"]}}
    found = draw(st.sampled_from([{}, {"annotations": []}, {"annotations": [{"result": [*results, other], "id": 7}]}]))
    return {"id": 1, "data": {"text": text, "more": [1]}, **found}


@pytest.mark.filterwarnings("ignore:.*overlaps another span")
@pytest.mark.parametrize("dialect", ["doccano", "entities", "prodigy", "labelstudio"])
@pytest.mark.parametrize("task", ["spans", "tokens"])
@given(data=st.data())
def test_records_come_back(tmp_path_factory: Any, dialect: str, task: str, data: Any) -> None:
    text = data.draw(record_files(dialect))
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    check_same(tmp_path_factory.mktemp("json"), "a.jsonl", text, task=task)


OVERLAPS = {
    "a.jsonl": ('{"text":"Eve","label":[]}\n{"text":"Annabel met","label":[[0,4,"PER"],[2,7,"LOC"]]}\n', 2, "PER"),
    "b.jsonl": (
        '{"data":{"text":"Anna met Ben"},"annotations":[{"result":[{"type":"labels","from_name":"l","to_name":"t",'
        '"value":{"start":0,"end":4,"labels":["PER","ORG"]}}]}]}\n',
        1,
        "ORG",
    ),
    "c.csv": ('text,spans\nAnna met Ben,"[[0, 8, ""PER""], [5, 12, ""LOC""], [5, 12, ""LOC""]]"\n', 2, "LOC"),
    "d.ann": ("T1\tPER 0 4\tAnna\nT2\tORG 0 8\tAnna met\nT3\tORG 0 8\tAnna met\n", 1, "PER"),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_spans_that_overlap_are_said_and_not_taken_for_outside(tmp_path: Path, name: str) -> None:
    text, line, label = OVERLAPS[name]
    (tmp_path / "d.txt").write_text("Anna met Ben")
    (tmp_path / name).write_text(text)
    with pytest.warns(UserWarning, match=rf"{name}:{line}: '{label}' .* overlaps another span") as said:
        docs = read_documents([tmp_path / name])
    assert len(said) == 1
    expected = {
        "a.jsonl": [None, "B-LOC", "I-LOC", "O"],  # An na bel met
        "b.jsonl": [None, "O", "O"],
        "c.csv": ["B-PER", "I-PER", None],
        "d.ann": ["B-ORG", "I-ORG", "O"],
    }
    assert docs[-1].labels == expected[name]
    made = files(write_documents(docs, [None] * len(docs)))
    assert made[name].decode() == text


def test_records_of_label_studio_have_the_files_controls(tmp_path: Path) -> None:
    done = (
        '{"data":{"text":"Eve"},"annotations":[{"result":[{"type":"labels","from_name":"ner_l","to_name":"ner",'
        '"value":{"start":0,"end":3,"labels":["PER"]}}]}]}\n'
    )
    docs = read(tmp_path, "a.jsonl", ('{"data":{"text":"Anna"}}\n' + done).encode())
    made = write_documents(docs, [["B-PER"], None])
    first = json.loads(made.data.splitlines()[0])["annotations"][0]["result"][0]
    assert (first["from_name"], first["to_name"]) == ("ner_l", "ner")


CONLLU_NAMES = "1\tAnna\t_\tPROPN\t_\t_\t_\t_\t_\tNER=B-PER\n2\tleft\t_\tVERB\t_\t_\t_\t_\t_\t_\n\n"


def test_label_none_is_for_every_format(tmp_path: Path) -> None:
    record = '{"text":"Anna left","label":[[0,4,"PER"]]}\n'
    for name, text in (("a.jsonl", record), ("a.conllu", CONLLU_NAMES)):
        docs = read(tmp_path, name, text.encode(), label="none")
        assert docs[0].labels is None, name
        assert write_documents(docs, [None]).data.decode() == text
    docs = read(tmp_path, "a.jsonl", record.encode(), label="none")
    assert json.loads(write_documents(docs, [["O", "B-LOC"]]).data)["label"] == [[5, 9, "LOC"]]
    docs = read(tmp_path, "a.conllu", CONLLU_NAMES.encode(), label="none")
    after = CONLLU_NAMES.replace("NER=B-PER", "_").replace("_\n\n", "NER=B-LOC\n\n")
    assert write_documents(docs, [[None, "B-LOC"]]).data.decode() == after
    (tmp_path / "b.txt").write_text("Anna left")
    (tmp_path / "b.ann").write_text("T1\tPER 0 4\tAnna\n")
    assert read_documents([tmp_path / "b.txt"], label="none")[0].labels is None


@pytest.mark.parametrize(
    ("name", "text", "columns", "after"),
    [
        ("a.txt", "Ben\tB-PER\nwent\tB-X\n", None, "Ben\tB-LOC\nwent\t?\n"),
        ("a.txt", "Ben\tN\t?\nwent\tV\t?\n", [["N"], ["V"]], "Ben\tN\tB-LOC\nwent\tV\t?\n"),
        ("a.txt", "Ben\tN\nwent\tV\n", [["N"], ["V"]], "Ben\tN\tB-LOC\nwent\tV\t?\n"),
        ("a.csv", "token,pos,tag\nBen,N,B-PER\nwent,V,\n", [["N"], ["V"]], "token,pos,tag\nBen,N,B-LOC\nwent,V,\n"),
        (
            "a.csv",
            "token,label\nBen,name\nwent,verb\n",
            [["name"], ["verb"]],
            "token,label,labels\nBen,name,B-LOC\nwent,verb,?\n",
        ),
    ],
)
def test_label_none_leaves_labels_out_of_the_features(
    tmp_path: Path, name: str, text: str, columns: Any, after: str
) -> None:
    """A column that without the option would be that of the labels; new ones are written in their place."""
    docs = read(tmp_path, name, text.encode(), label="none")
    assert (docs[0].labels, docs[0].columns) == (None, columns)
    assert write_documents(docs, [None]).data.decode() == text
    assert write_documents(docs, [["B-LOC", None]]).data.decode() == after


def test_label_none_in_tables_of_texts(tmp_path: Path) -> None:
    text = 'text,spans\nBen went,"[[0, 3, ""PER""]]"\n'
    docs = read(tmp_path, "a.csv", text.encode(), label="none")
    assert docs[0].labels is None
    assert write_documents(docs, [None]).data.decode() == text
    assert write_documents(docs, [["B-LOC", "O"]]).data.decode() == text.replace("PER", "LOC")
    classes = "text,label\nBen went,good\n"  # of something else
    docs = read(tmp_path, "b.csv", classes.encode(), label="none")
    made = write_documents(docs, [["B-LOC", "O"]]).data.decode()
    assert made == 'text,label,spans\nBen went,good,"[[0, 3, ""LOC""]]"\n'
    docs = read(tmp_path, "c.csv", b"text,label,Spans\nBen went,x,note\n", label="none")
    made = write_documents(docs, [["B-LOC", "O"]]).data.decode()
    assert made == 'text,label,Spans,entities\nBen went,x,note,"[[0, 3, ""LOC""]]"\n'
    (tmp_path / "c.csv").write_text(made)
    assert read_documents([tmp_path / "c.csv"], label="entities")[0].labels == ["B-LOC", "O"]
    names = "text,spans,entities,label,labels,annotations"  # all are taken
    docs = read(tmp_path, "d.csv", f"{names}\nBen,x,x,x,x,x\n".encode(), label="none")
    made = write_documents(docs, [["B-LOC"]]).data.decode()
    assert made == f'{names},spans-2\nBen,x,x,x,x,x,"[[0, 3, ""LOC""]]"\n'


@pytest.mark.parametrize(
    ("name", "text", "labels", "columns", "after"),
    [
        ("a.conll", "Ben N\nwent V\n\n", ["A", "B"], [["N"], ["V"]], "Ben N A\nwent V ?\n\n"),
        ("a.conll", "Ben N\nwent V\n\n", [], [["N"], ["V"]], "Ben N A\nwent V ?\n\n"),
        ("a.conll", "Ben x B\nwent y A\n", ["A", "B"], [["x"], ["y"]], "Ben x A\nwent y ?\n"),
        ("a.conll", "Ben B ?\nwent A ?\n", ["A", "B"], [["B"], ["A"]], "Ben B A\nwent A ?\n"),
        ("a.csv", "token,pos\nBen,N\nwent,V\n", ["A"], [["N"], ["V"]], "token,pos,label\nBen,N,A\nwent,V,?\n"),
        ("a.csv", "token,Label\nBen,N\nwent,V\n", [], [["N"], ["V"]], "token,Label,labels\nBen,N,A\nwent,V,?\n"),
        ("a.csv", "token,pos\nBen,B\nwent,A\n", ["A", "B"], None, "token,pos\nBen,A\nwent,?\n"),
    ],
)
def test_label_none_in_token_tasks(
    tmp_path: Path, name: str, text: str, labels: list[str], columns: Any, after: str
) -> None:
    """A column is that of the labels only if all its values are labels that are given."""
    docs = read(tmp_path, name, text.encode(), label="none", task="tokens", labels=labels)
    assert (docs[0].labels, docs[0].columns) == (None, columns)
    assert write_documents(docs, [None], task="tokens").data.decode() == text
    assert write_documents(docs, [["A", None]], task="tokens").data.decode() == after


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        ("a.conll", "a B-X\nb I-X\nc O\n\nd  B-X\n", "a B-Y\nb ?\nc ?\n\nd  B-X\n"),
        ("a.csv", 'token,tag\na,B-X\nb,I-X\nc,O\n\nd,"B-X"\n', 'token,tag\na,B-Y\nb,?\nc,?\n\nd,"B-X"\n'),
    ],
)
def test_label_none_does_not_mix_old_labels_with_new(tmp_path: Path, name: str, text: str, after: str) -> None:
    docs = read(tmp_path, name, text.encode(), label="none")
    assert write_documents(docs, [["B-Y", None, None], [None]]).data.decode() == after


def test_a_label_column_of_many_digits_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no label column 999"):
        read(tmp_path, "a.conll", b"a O\n", label="9" * 5000)


def test_columns_between_tabs_may_be_called_tsv(tmp_path: Path) -> None:
    text = b"Anna\tB-PER\nleft\tO\n\nBen\tB-PER\n"
    docs = read(tmp_path, "a.tsv", text)
    assert [d.labels for d in docs] == [["B-PER", "O"], ["B-PER"]]
    assert docs[0].source["format"] == "columns"
    assert read(tmp_path, "b.tsv", b"token\tlabel\nAnna\tB-PER\n")[0].source["format"] == "csv"
    with pytest.raises(DataError, match="give -f columns"):
        read(tmp_path, "c.csv", b"a,b\nAnna,B-PER\n")


def test_attributes_of_conllu_are_in_order(tmp_path: Path) -> None:
    docs = read(tmp_path, "a.txt", b"Anna, left")
    lines = write_documents(docs, [["B-PER", "O", "O"]], format="conllu").data.decode().splitlines()
    assert lines[1].endswith("\tNER=B-PER|SpaceAfter=No")
    text = CONLLU_NAMES.replace("NER=B-PER", "Gloss=a|NER=B-PER|SpaceAfter=No")
    docs = read(tmp_path, "a.conllu", text.encode())
    made = write_documents(docs, [["B-LOC", "O"]]).data.decode()
    assert "Gloss=a|NER=B-LOC|SpaceAfter=No" in made


@pytest.mark.parametrize("tool", ["doccano", "prodigy", "labelstudio"])
def test_records_hold_what_is_known_of_a_sentence_and_what_is_not(tmp_path: Path, tool: str) -> None:
    docs = read(tmp_path, "notes.txt", b"Anna saw Ben. Ben left. Anna stayed. Eve came.\n")
    partial, whole, none = ["B-PER", "O", None, None], ["B-PER", "O", "O"], ["O", "O", "O"]
    made = write_documents(docs, [partial, whole, none, None], format=tool)
    records = [json.loads(line) for line in made.data.splitlines()]
    assert [r.get("unknown") for r in records] == [[[9, 13]], None, [], [[0, 9]]]
    assert [r["text"] if tool != "labelstudio" else r["data"]["text"] for r in records] == [d.text for d in docs]
    if tool == "labelstudio":
        results = [[x["value"]["text"] for a in r["annotations"] for x in a["result"]] for r in records]
        assert results == [["Anna"], ["Ben"], [], []]
        assert [len(r["annotations"]) for r in records] == [1, 1, 1, 0]
    again = read(tmp_path, "again.jsonl", made.data)
    assert [d.labels for d in again] == [partial, whole, none, None]
    assert write_documents(again, [None] * 4).data == made.data


def test_the_page_is_told_of_formats_that_can_be_written(tmp_path: Path) -> None:
    docs = read(tmp_path, "notes.txt", "Anna saw Ben. 東京です。\n".encode())
    labels = [["B-PER", "O", "B-PER", "O"], *[None] * (len(docs) - 1)]
    for entry in LIST:
        made = write_documents(docs, labels, format=entry["name"])
        for name, data in files(made).items():
            (tmp_path / f"again-{name}").write_bytes(data)
        if entry["name"] == "same":
            continue
        path = next(p for p in tmp_path.glob("again-*") if p.suffix != ".ann")
        again = read_documents([path], format=entry["name"])
        assert again[0].labels == labels[0], entry
        assert all(d.labels is None for d in again[1:]), entry
        for old in tmp_path.glob("again-*"):
            old.unlink()
    with pytest.raises(AnnotateError, match="no format 'xml'"):
        write_documents(docs, labels, format="xml")


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes", "bilou"])
@given(rows=st.lists(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", None]), min_size=1, max_size=6), min_size=1))
def test_schemes_come_back(scheme: str, rows: list[list[str | None]]) -> None:
    bio = [to_bio(row) for row in rows]
    there = [from_bio(row, scheme) for row in bio]
    assert [to_bio(row) for row in there] == bio
    assert [from_bio(row, scheme_of(there)) for row in bio] == there


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.conll", b"a O\nb\n", r"a.conll:2: 1 column, but the lines before have 2"),
        ("a.conllu", b"1\ta\n", r"a.conllu:1: 2 columns, but CoNLL-U has 10"),
        ("a.conllu", b"x" + b"\t_" * 9, r"a.conllu:1: the first column must be a number, got 'x'"),
        ("a.csv", b"word,tag\na,O\nb\n", r"a.csv:3: 1 cell, but the header has 2"),
        ("a.csv", b'word,tag\n"a,O\n', r"a.csv:2: a quote is not closed"),
        ("a.csv", b"x,y\n1,2\n", r"a.csv:1: the header names no column of words"),
        ("a.csv", b"text,spans\nAnna,x\n", r"a.csv:2: the spans must be a list"),
        ("a.csv", b"text,spans\nAnna," + b"[" * 100_000 + b"\n", r"a.csv:2: the spans must be a list"),
        ("a.csv", b"word,tag\na,NOUN\n", r"'NOUN' is not a span label"),
        ("a.jsonl", b'{"text": "a"}\n{"text": }\n', r"a.jsonl:2: not JSON: Expecting value"),
        ("a.jsonl", b'{"text": "a"} {"text": "b"}\n', r"a.jsonl:1: not JSON: more than one value"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a.jsonl:2: a record must be an object"),
        ("a.jsonl", b'{"txt": "a", "label": []}\n', r"a.jsonl:1: the record has no field 'text'"),
        ("a.jsonl", b'{"text": "a", "label": [[0, 9, "X"]]}\n', r"a.jsonl:1: there is no span 0 to 9"),
        ("a.jsonl", b'{"text": "a", "label": [[0, true, "X"]]}\n', r"a.jsonl:1: a span must begin and end at whole"),
        ("a.jsonl", b'{"text": "a", "label": [[0, 1, null]]}\n', r"a.jsonl:1: the label of a span must be text"),
        ("a.jsonl", b'{"text": "a"}\n{"n": ' + b"9" * 5000 + b"}\n", r"a.jsonl:2: not JSON: a number of 5000 digits"),
        ("a.json", b'[{"text": "a"},\n{"n": ' + b"9" * 5000 + b"}]\n", r"a.json:2: not JSON: a number of 5000 digits"),
        ("a.jsonl", b"[" * 100_000, r"a.jsonl: not JSON that can be read: nested too deeply"),
        ("a.txt", b"ok\n\xff\n", r"a.txt:2: not text in utf-8"),
        ("a.txt", b"ok\nx\x00y\n", r"a.txt:2: a null character"),
        ("a.txt", b" \n", r"a.txt: the file holds no text to label"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, data)


def test_errors_of_standoff_name_the_annotations(tmp_path: Path) -> None:
    (tmp_path / "a.ann").write_text("T1\tPER 0 4\tAnna\nT2\tPER x\n")
    with pytest.raises(DataError, match=r"a.ann:2: an annotation must be"):
        read(tmp_path, "a.txt", b"Anna left.")
    (tmp_path / "a.ann").write_text(f"T1\tPER 0 4\tAnna\nT2\tPER 0 {'9' * 5000}\tAnna\n")
    with pytest.raises(DataError, match=r"a.ann:2: an annotation must be"):
        read(tmp_path, "a.txt", b"Anna left.")
    (tmp_path / "a.ann").write_text(f"T1\tPER 0 4;5 {'9' * 5000}\tAnna\n")
    with pytest.raises(DataError, match=r"a.ann:1: an annotation must be"):
        read(tmp_path, "a.txt", b"Anna left.")
    (tmp_path / "a.ann").write_text("T1\tPER 0 40\tAnna\n")
    with pytest.raises(DataError, match=r"a.ann:1: there is no span 0 to 40"):
        read(tmp_path, "a.txt", b"Anna left.")


def test_standoff_keeps_what_it_cannot_show(tmp_path: Path) -> None:
    notes = "T1\tPER 0 4\tAnna\nT2\tLOC 5 8;9 12\tx\nR1\tknows Arg1:T1 Arg2:T3\nT3\tPER 9 12\tBen\n#1\tNote T1\thi\n"
    (tmp_path / "a.ann").write_text(notes)
    with pytest.warns(
        UserWarning, match=r"a\.ann:2: 'LOC' from 5 to 12 is in several pieces: it is left out, and words"
    ):
        docs = read(tmp_path, "a.txt", b"Anna saw Ben")
    assert docs[0].labels == ["B-PER", None, "B-PER"]
    assert files(write_documents(docs, [None]))["a.ann"].decode() == notes
    new = files(write_documents(docs, [["B-PER", "O", "B-LOC"]]))["a.ann"].decode()
    assert new == "T1\tPER 0 4\tAnna\nT2\tLOC 5 8;9 12\tx\n#1\tNote T1\thi\nT4\tLOC 9 12\tBen\n"


def test_folders_and_several_files_come_in_a_zip(tmp_path: Path) -> None:
    for k in (1, 2):
        (tmp_path / f"{k}.txt").write_text(f"Anna saw {k} men.\n")
    (tmp_path / "1.ann").write_text("T1\tPER 0 4\tAnna\n")
    docs = read_documents([tmp_path])
    assert [d.source["file"] for d in docs] == ["1.txt", "2.txt"]
    made = write_documents(docs, [None, None])
    assert made.name == "annotations.zip"
    assert files(made) == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_two_files_of_one_name_stay_two(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "x.jsonl")
        paths[-1].write_text(f'{{"text": "{folder}"}}\n')
    docs = read_documents(paths)
    assert list(files(write_documents(docs, [None, None]))) == ["x.jsonl", "x-2.jsonl"]


@pytest.mark.parametrize(
    ("name", "data", "task", "labels", "expected"),
    [
        ("a.txt", b"Anna left.\nBen came\n", "spans", (), "text"),
        ("a.txt", b"two words\nper line\n", "spans", (), "text"),
        ("a.txt", b"Anna B-PER\nleft O\n", "spans", (), "columns"),
        ("a.txt", b"Anna NOUN\nleft VERB\n", "tokens", ("NOUN", "VERB"), "columns"),
        ("a.txt", b"Anna\tNN\nleft\tVB\n", "spans", (), "columns"),
        ("a.data", b'{"text": "Anna"}\n', "spans", (), "jsonl"),
        ("a.json", b'[{"data": {"text": "Anna"}}]', "spans", (), "jsonl"),
        ("a.tsv", b"token\tlabel\nAnna\tO\n", "spans", (), "csv"),
    ],
)
def test_formats_are_told_by_name_and_content(
    tmp_path: Path, name: str, data: bytes, task: str, labels: tuple[str, ...], expected: str
) -> None:
    docs = read(tmp_path, name, data, task=task, labels=labels)
    assert docs[0].source["format"] == expected
    assert expected in NAMES


def test_other_encodings_come_back(tmp_path: Path) -> None:
    data = "Zoë ging. Ja!\r\n".encode("latin-1")
    docs = read(tmp_path, "a.txt", data, encoding="latin-1")
    assert docs[0].words[0] == "Zoë"
    made = files(write_documents(docs, [["B-PER", "O", "O"], None]))
    assert made["a.txt"] == data
    assert "Zoë".encode("latin-1") in made["a.ann"]


GOOD = {
    "a.txt": b"Anna met Ben. They left.\n",
    "a.conll": b"Anna NN B-PER\nleft VB O\n\nBen NN ?\n",
    "a.conllu": b"# x\n1\tAnna\t_\tPROPN\t_\t_\t_\t_\t_\tNER=B-PER\n1-2\tx" + b"\t_" * 8 + b"\n",
    "a.csv": b'sentence,word,tag\n1,"An""na",B-PER\n,left,O\n',
    "b.csv": b'text,spans\n"Anna, left","[[0, 4, ""PER""]]"\n',
    "a.jsonl": b'{"text": "Anna left", "label": [[0, 4, "PER"]]}\n',
    "b.jsonl": b'{"text": "Anna left", "spans": [{"start": 0, "end": 4, "label": "PER"}], '
    b'"tokens": [{"start": 0, "end": 4}]}',
    "a.json": b'[{"data": {"text": "Anna"}, "annotations": [{"result": [{"type": "labels", '
    b'"value": {"start": 0, "end": 4, "labels": ["PER"]}}]}]}]',
}


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_damaged_files_raise_errors_that_name_them(tmp_path_factory: Any, name: str, data: Any) -> None:
    text = GOOD[name]
    for _ in range(data.draw(st.integers(1, 3))):
        a = data.draw(st.integers(0, len(text)))
        b = data.draw(st.integers(a, min(len(text), a + 8)))
        more = data.draw(st.sampled_from([b"", b'"', b"\t", b"\n", b"[", b"}", b"9", b"-1", b"null", b"\xff", b"\\u"]))
        text = text[:a] + more + text[b:]
    folder = tmp_path_factory.mktemp("damaged")
    error = ""
    try:
        docs = read(folder, name, text)
    except DataError as e:
        error = str(e)
    if error:
        assert name in error
        assert "\n" not in error
        return
    assert files(write_documents(docs, [None] * len(docs)))[name] == text
    write_documents(docs, [["B-PER"] * len(d.tokens) for d in docs])


def test_other_annotations_of_a_record_may_be_anything(tmp_path: Path) -> None:
    first = {"result": [{"type": "labels", "value": {"start": 0, "end": 4, "labels": ["PER"]}}]}
    others = [{"result": 1e308}, {"result": None}, 7]
    record = {"data": {"text": "Anna left"}, "annotations": [first, *others]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(record))
    documents = read_documents([path], format="labelstudio")
    data = json.loads(write_documents(documents, [["O", "B-PER"]]).data)
    assert [x["value"]["text"] for x in data["annotations"][0]["result"]] == ["left"]
    assert data["annotations"][1:] == others


def test_long_sentences_are_written_in_linear_time() -> None:
    code = """
    from crfkit.annotate.documents import Document
    from crfkit.annotate.formats import write_documents

    n = 60_000
    document = Document("a " * n, [(2 * k, 2 * k + 1) for k in range(n)])
    print(write_documents([document], [["B-X"] * n], format="prodigy").data.count(b"token_start"))
    """
    assert run_limited(code, seconds=15) == "60000\n"
