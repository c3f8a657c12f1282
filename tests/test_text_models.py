"""Wapiti's patterns, and the text models of CRF++ and Wapiti, against plain Python."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crfkit
from crfkit import CRF, Template
from crfkit.chain import Potentials
from crfkit.compat import convert_model, model_format, read_foreign_model
from crfkit.data import Columns
from crfkit.features.encoders import PlanEncoder
from crfkit.model.chain_model import read_file, write_file

Rows = list[tuple[str, ...]]

CLASSES = {"a": "A-Za-z", "d": "0-9", "l": "a-z", "s": " \t\n\r\v\f", "u": "A-Z", "w": "A-Za-z0-9"}
CLASSES["p"] = re.escape("".join(chr(c) for c in range(33, 127) if not chr(c).isalnum()))


def translated(regex: str) -> str:
    """The same expression for Python: stars take as few as they can."""
    out, i = "", 0
    while i < len(regex):
        c = regex[i]
        if c == "\\":
            i += 1
            x = regex[i]
            known = CLASSES.get(x.lower())
            out += re.escape(x) if known is None else f"[{'^' if x.isupper() else ''}{known}]"
        elif c == "*":
            out += "*?"
        elif c == "." or c == "?" or (c == "^" and i == 0) or (c == "$" and i == len(regex) - 1):
            out += r"\Z" if c == "$" else c
        else:
            out += re.escape(c)
        i += 1
    return out


def wapiti(line: str, rows: Rows, t: int) -> str:
    """One pattern at token t, by Wapiti's rules."""

    def value(m: re.Match[str]) -> str:
        command, at, row, column, regex = m.groups()
        place = int(row)
        if at:
            place = place + len(rows) if place < 0 else place - 1
        else:
            place += t
        if place < 0:
            s = f"_x-{-place}" if -place <= 4 else "_x-#"
        elif place >= len(rows):
            far = place - len(rows) + 1
            s = f"_x+{far}" if far <= 4 else "_x+#"
        else:
            s = rows[place][int(column)]
        if command.lower() == "t":
            s = "true" if re.search(translated(regex), s, re.S) else "false"
        elif command.lower() == "m":
            found = re.search(translated(regex), s, re.S)
            s = found[0] if found else ""
        return re.sub("[A-Z]", lambda x: x[0].lower(), s) if command.isupper() else s

    text = re.sub(r'%([xtmXTM])\[(@?)([+-]?\d+),(\d+)(?:,"((?:\\.|[^"\\])*)")?\]', value, line)
    return text[0].lower() + text[1:]


PATTERNS = [
    "u:bias",
    "*",
    "u:word=%x[0,0]",
    "U:low=%X[-1,0]",
    "*:both=%x[0,1]",
    "b:%x[-1,1]/%x[0,1]",
    'u:cap=%t[0,0,"^\\u"]',
    'u:digits=%t[1,0,"\\d\\d*$"]',
    'u:suf=%m[0,0,".?.?$"]',
    'u:SUF=%M[0,0,".?.?$"]',
    'u:lazy=%m[0,0,"a*b*"]',
    'u:punct=%m[0,0,"\\p"]+%m[0,0,"\\P*\\p"]',
    'u:esc=%t[0,0,"\\.\\""]',
    "u:first=%x[@1,0] last=%x[@-1,0] second=%x[@2,0]",
    "u:far=%x[-3,0] %x[+7,0] %x[@9,0] %x[@-9,0] %x[@0,1]",
    'u:pad=%t[-1,0,"x"] %M[-2,0,"X*"]',
    "u:hash=%x[0,0] # a comment",
]

words = st.text(st.sampled_from('abAB1.é"x'), min_size=1, max_size=5)
sequences = st.lists(st.tuples(words, st.sampled_from("NVx")), min_size=1, max_size=6)


def names_at(encoder: PlanEncoder, rows: list[Rows], edge: bool) -> list[list[str]]:
    data = encoder.encode(Columns.from_sequences(rows), True, 1)
    ptr, attr = (data.edge_ptr, data.edge_attr) if edge else (data.ptr, data.attr)
    assert ptr is not None
    assert attr is not None
    names = encoder.names(edge)
    return [[names[a] for a in attr[i:j]] for i, j in itertools.pairwise(ptr)]


@settings(max_examples=150)
@given(sequences)
def test_wapiti_patterns(rows: Rows) -> None:
    template = Template("\n".join(PATTERNS))
    assert template.dialect == "wapiti"
    assert template.plan().transitions
    encoder = PlanEncoder(template.plan())
    lines = [line.partition("#")[0].rstrip() for line in PATTERNS]
    state = [[wapiti(p, rows, t) for p in lines if p[0] in "uU*"] for t in range(len(rows))]
    edge = [[wapiti(p, rows, t) for p in lines if p[0] in "b*" and p != "*"] if t else [] for t in range(len(rows))]
    assert names_at(encoder, [rows], False) == state
    assert names_at(PlanEncoder(template.plan()), [rows], True) == edge


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([".", "a", "b", "\\d", "\\U", "\\\\", "a*", ".*", "b?", "\\l?", "é", "$"]), max_size=6),
    words,
)
def test_regular_expressions(parts: list[str], word: str) -> None:
    for regex in ("".join(parts), "^" + "".join(parts), "".join(parts) + "$"):
        line = f'u:%m[0,0,"{regex}"]'
        encoder = PlanEncoder(Template(line).plan())
        assert names_at(encoder, [[(word,)]], False) == [[wapiti(line, [(word,)], 0)]]


def test_a_hard_expression_ends() -> None:
    template = Template('u:%t[0,0,"' + "a*" * 30 + 'b"]')
    encoder = PlanEncoder(template.plan())
    assert names_at(encoder, [[("a" * 2000,)]], False) == [["u:false"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x:%x[0,0]", "begins with"),
        ("u:%x[0,0", "after %"),
        ("u:%t[0,0]", "needs a regular expression"),
        ('u:%x[0,0,"a"]', "takes no regular expression"),
        ('u:%m[0,0,"*a"]', "unescaped"),
        ('u:%m[0,0,"a**"]', "unescaped"),
        ("u:%x[5000,0]", "1000 away"),
        ("u:%x[*1,0]", "after %"),
        ("# nothing", "empty"),
    ],
)
def test_malformed_patterns(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Template(text, dialect="wapiti", name="file")


def test_dialects_are_told_apart() -> None:
    assert Template("U00:%x[0,0]\nB").dialect == "crfpp"
    assert Template("# u\nU00:%x[0,0]\nB").dialect == "crfpp"
    assert Template("U00:%X[0,0]\nB").dialect == "wapiti"
    assert Template("U00:%x[@1,0]\nB").dialect == "wapiti"
    assert Template("U00:%x[0,0]\nB", dialect="wapiti").plan().pad == 2
    with pytest.raises(ValueError, match="dialect"):
        Template("B", dialect="mallet")


def test_wapiti_patterns_train_and_save(tmp_path: Path) -> None:
    X = [[("The", "D"), ("dog", "N")], [("A", "D"), ("cat", "N")]]
    crf = CRF(Template("\n".join(PATTERNS))).fit(X, [["d", "n"]] * 2)
    crf.save(tmp_path / "m")
    again = crfkit.load(tmp_path / "m", kind=CRF)
    assert again.predict(X) == [["d", "n"]] * 2
    assert np.array_equal(again.potentials(X).unary, crf.potentials(X).unary)


# Models ------------------------------------------------------------------------------------------------------------


def expand(line: str, rows: Rows, t: int) -> str:
    def value(m: re.Match[str]) -> str:
        place = t + int(m[1])
        if place < 0:
            return f"_B{place}"
        return f"_B+{place - len(rows) + 1}" if place >= len(rows) else rows[place][int(m[2])]

    return re.sub(r"%x\[(-?\d+),(\d+)\]", value, line)


TEMPLATE = ["U00:%x[0,0]", "U01:%x[-1,0]/%x[0,0]/%x[1,1]", "U02:%x[0,1]", "Ubias", "B", "B01:%x[-1,1]%x[0,1]"]
TRAIN: list[Rows] = [
    [("a/b", "N"), ("c", "V"), ("a", "N")],
    [("a", "N"), ("b/c", "V"), ("é", "N"), ("c", "V")],
    [("x/y/z", "V")],
]
LABELS = ["B-X", "I-X", "O"]


def crfpp_model(path: Path, factor: float = 2.0) -> dict[str, np.ndarray[Any, Any]]:
    """A model file by the documented rules, with random weights; gives the weights by name."""
    rng = np.random.default_rng(0)
    names = sorted({expand(line, rows, t) for rows in TRAIN for t in range(len(rows)) for line in TEMPLATE})
    n = len(LABELS)
    weights, ids, at = {}, [], 0
    for name in names:
        ids.append(f"{at} {name}")
        weights[name] = rng.normal(size=n if name[0] == "U" else n * n).round(8)
        at += len(weights[name])
    flat = np.concatenate(list(weights.values()))
    text = "\n".join(["version: 100", f"cost-factor: {factor:g}", f"maxid: {at}", "xsize: 2", "", *LABELS, ""])
    text += "\n" + "\n".join([*TEMPLATE, "", *ids, ""]) + "\n" + "".join(f"{w:.16f}\n" for w in flat)
    path.write_text(text)
    return {k: v * factor for k, v in weights.items()}


def plain_potentials(lines: list[str], weights: Any, rows: Rows, expander: Any) -> tuple[Any, Any]:
    n = len(LABELS)
    unary, pairwise = np.zeros((len(rows), n)), np.zeros((max(0, len(rows) - 1), n, n))
    for t in range(len(rows)):
        for line in lines:
            own = weights.get(expander(line, rows, t))
            if own is None:
                continue
            if line[0] in "Uu*":
                unary[t] += own[:n]
            if line[0] in "Bb*" and t:
                pairwise[t - 1] += own[-n * n :].reshape(n, n)
    return unary, pairwise


TEST: list[Rows] = [*TRAIN, [("a", "N"), ("b", "V")], [("new", "V"), ("a/b", "N"), ("c", "N")]]


def check(crf: CRF, lines: list[str], weights: Any, expander: Any) -> None:
    for rows in TEST:
        unary, pairwise = plain_potentials(lines, weights, rows, expander)
        p = crf.potentials([rows])
        np.testing.assert_allclose(p.unary, unary, atol=1e-12)
        got = p.pairwise if p.pairwise.ndim == 3 else np.repeat(p.pairwise[None], len(pairwise), 0)
        np.testing.assert_allclose(got, pairwise, atol=1e-12)
        expected = crfkit.chain.decode(Potentials(unary, pairwise))
        assert crf.predict([rows])[0] == [
            LABELS[i] for i in np.asarray(expected.path if hasattr(expected, "path") else expected)
        ]


def test_crfpp_text_models(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    weights = crfpp_model(path)
    assert model_format(path) == "crfpp"
    crf = crfkit.load(path, kind=CRF)
    check(crf, TEMPLATE, weights, expand)
    convert_model(path, tmp_path / "m.crfkit")
    check(crfkit.load(tmp_path / "m.crfkit", kind=CRF), TEMPLATE, weights, expand)


WLINES = ["*", "u:w=%x[0,0]", "*:t=%X[-1,1]/%x[0,1]", 'b:s=%m[0,0,".?$"]', 'u:c=%t[0,0,"\\p"] %x[@-1,0]']


def wapiti_model(path: Path, head: str = "#mdl#2#{}", reader: str = "#rdr#{}/2/0") -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    n = len(LABELS)
    names = list(dict.fromkeys(wapiti(line, rows, t) for rows in TRAIN for t in range(len(rows)) for line in WLINES))
    sizes = {"u": n, "b": n * n, "*": n + n * n}
    weights = {name: rng.normal(size=sizes[name[0]]) * (rng.random(sizes[name[0]]) < 0.7) for name in names}
    flat = np.concatenate(list(weights.values()))

    def net(s: str) -> str:
        return f"{len(s.encode())}:{s},\n"

    text = head.format(np.count_nonzero(flat)) + "\n" + reader.format(len(WLINES)) + "\n"
    text += "".join(map(net, WLINES)) + f"#qrk#{n}\n" + "".join(map(net, LABELS))
    text += f"#qrk#{len(names)}\n" + "".join(map(net, names))
    text += "".join(f"{i}={w.hex()}\n" for i, w in enumerate(flat.tolist()) if w)
    path.write_text(text)
    return weights


@pytest.mark.parametrize(("head", "reader"), [("#mdl#2#{}", "#rdr#{}/2/0"), ("#mdl#{}", "#rdr#{}/2")])
def test_wapiti_models(tmp_path: Path, head: str, reader: str) -> None:
    path = tmp_path / "model.wapiti"
    weights = wapiti_model(path, head, reader)
    assert model_format(path) == "wapiti"
    check(crfkit.load(path, kind=CRF), WLINES, weights, wapiti)
    convert_model(path, tmp_path / "m.crfkit")
    check(crfkit.load(tmp_path / "m.crfkit", kind=CRF), WLINES, weights, wapiti)


def test_damaged_text_models(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    crfpp_model(a)
    wapiti_model(b)
    text = a.read_text()
    for old, new in (("maxid: ", "maxid: 9"), ("B-X\n", "O\n"), ("U00:%x[0,0]\n", "Q\n"), ("0 B\n", "0B\n")):
        a.write_text(text.replace(old, new, 1))
        with pytest.raises(crfkit.ModelError, match="CRF"):
            read_foreign_model(a)
    text = b.read_text()
    for old, new in (("#mdl#2", "#mdl#1"), ("#qrk#3", "#qrk#4"), ("1:*,", "9:*,"), ("\n0=", "\n99999=")):
        b.write_text(text.replace(old, new, 1))
        with pytest.raises(crfkit.ModelError, match="Wapiti"):
            read_foreign_model(b)
    a.write_bytes(b"nothing of the kind, at all")
    with pytest.raises(crfkit.ModelError, match="not a model of"):
        read_foreign_model(a)


def test_conversion_keeps_the_kind(tmp_path: Path) -> None:
    memm = crfkit.MEMM().fit([["a", "b"]] * 3, [["A", "B"]] * 3)
    memm.save(tmp_path / "m")
    convert_model(tmp_path / "m", tmp_path / "n")
    assert isinstance(crfkit.load(tmp_path / "n"), crfkit.MEMM)
    header, arrays = read_file(tmp_path / "n")
    del header["estimator"]
    write_file(tmp_path / "n", header, arrays)
    convert_model(tmp_path / "n", tmp_path / "p")
    assert isinstance(crfkit.load(tmp_path / "p"), CRF)
    with pytest.raises(ValueError, match="is a MEMM"):
        convert_model(tmp_path / "m", tmp_path / "o", to="crfsuite")
    assert not (tmp_path / "o").exists()
