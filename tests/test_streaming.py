"""Labelling files piece by piece gives what labelling at once gives, in order."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from crfkit import CRF
from crfkit.cli import app
from crfkit.data import DataError, load_corpus
from crfkit.model import ChainModel, streaming
from crfkit.model.streaming import iter_items, tag_columns


@pytest.fixture(scope="module")
def crf() -> CRF:
    X, y = load_corpus("ingredients", "train")
    return CRF(max_iter=20).fit(X, y)


def plain(crf: CRF, sequences: list[list[str]]) -> bytes:
    out = ""
    for words, labels in zip(sequences, crf.predict(sequences), strict=True):
        out += "".join(f"{w}\t{y}\n" for w, y in zip(words, labels, strict=True)) + "\n"
    return out.encode()


words = st.text(
    st.characters(min_codepoint=33, max_codepoint=300, exclude_categories=["Zs", "Cc"]), min_size=1, max_size=6
)
texts = st.lists(
    st.tuples(st.lists(words, min_size=1, max_size=5), st.sampled_from(["\n", "\n\n", " \n", "\r\n", "\t \n"]))
)


@settings(max_examples=60)
@given(texts, st.sampled_from([1, 7, 40, 1 << 20]), st.booleans())
def test_pieces_of_any_size(crf: CRF, parts: Any, size: int, open_end: bool) -> None:
    text = "".join("".join(f"{w}\n" for w in ws) + gap for ws, gap in parts)
    if open_end and text:
        text = text.rstrip("\r\n \t")
    expected = plain(crf, [ws for ws, _ in parts])
    for threads in (1, 3):
        old, streaming._PIECE = streaming._PIECE, size
        try:
            got = b"".join(
                p.text for p in tag_columns(crf.model_, io.BytesIO(text.encode()), document="", n_jobs=threads)
            )
        finally:
            streaming._PIECE = old
        assert got == expected


def test_order_is_kept(crf: CRF, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PIECE", 512)
    sequences = [[str(i), "g", "flour"] for i in range(3000)]
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress("".join("\n".join(s) + "\n\n" for s in sequences).encode()))
    pieces = list(tag_columns(crf.model_, path, n_jobs=4))
    assert len(pieces) > 20
    assert b"".join(p.text for p in pieces) == plain(crf, sequences)
    assert (sum(p.sequences for p in pieces), sum(p.tokens for p in pieces)) == (3000, 9000)


def test_faults_say_the_line(crf: CRF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PIECE", 64)
    text = b"a\nb\n\n" * 50 + b"c d\n\n" + b"a\n\n" * 50
    for threads in (1, 2):
        with pytest.raises(DataError, match=r"<stream>:151: expected 1 column"):
            list(tag_columns(crf.model_, io.BytesIO(text), n_jobs=threads))
    with pytest.raises(DataError, match=r":4: not valid UTF-8"):
        list(tag_columns(crf.model_, io.BytesIO(b"a\n\nb\n\xff\n")))


def test_stopping_in_the_middle(crf: CRF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PIECE", 64)
    stream: Any = tag_columns(crf.model_, io.BytesIO(b"a\n\n" * 5000), n_jobs=2)
    next(stream)
    stream.close()


def test_the_command_is_the_same_with_threads(crf: CRF, tmp_path: Path) -> None:
    crf.save(tmp_path / "m")
    sequences = [["2", "red", "apples"], ["1", "pear"]] * 200
    text = "".join("\n".join(s) + "\n\n" for s in sequences)
    (tmp_path / "in.txt").write_text(text)
    run = CliRunner().invoke
    outputs = []
    for threads in ("1", "2"):
        out = tmp_path / f"out{threads}"
        args = ["tag", "-m", str(tmp_path / "m"), str(tmp_path / "in.txt"), "-o", str(out), "-q", "-j", threads]
        assert run(app, args).exit_code == 0
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1] == plain(crf, sequences)
    done = subprocess.run(
        [sys.executable, "-m", "crfkit", "tag", "-q", "-p", "-m", str(tmp_path / "m")],
        input=text.encode(),
        capture_output=True,
        check=True,
    )
    rows = [line.split(b"\t") for line in done.stdout.split(b"\n") if line]
    assert [b"\t".join(r[:2]) for r in rows] == [line for line in outputs[0].split(b"\n") if line]
    assert all(0 < float(r[2]) <= 1 for r in rows)


@pytest.mark.parametrize("probabilities", [False, True])
def test_long_pieces_are_scored_in_parts(crf: CRF, probabilities: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"2\nred\napples\n\n1\npear\n\n" * 30

    def tagged() -> bytes:
        return b"".join(p.text for p in tag_columns(crf.model_, io.BytesIO(text), probabilities=probabilities))

    at_once, score, sizes = tagged(), ChainModel.score, []

    def measured(self: ChainModel, data: Any, *how: Any) -> Any:
        sizes.append(data.n_tokens)
        return score(self, data, *how)

    monkeypatch.setattr("crfkit.model.chain_model._PIECE", 10 * len(crf.classes_))
    monkeypatch.setattr(ChainModel, "score", measured)
    assert tagged() == at_once
    assert sizes == [10] * 15


def test_items_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PIECE", 32)
    text = "".join(f"A\tw={i}\nB\tx:{i}.5\n\n" for i in range(50)).encode()
    items = [seq for part in iter_items(io.BytesIO(text)) for seq in part]
    assert items == [[{f"w={i}": 1.0}, {"x": i + 0.5}] for i in range(50)]
    with pytest.raises(DataError, match=":5: "):
        list(iter_items(io.BytesIO(b"A\ta\n\nA\ta\n\nA\ta:b\n")))
