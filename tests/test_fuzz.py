"""Mutated files: every parser ends with a result or a clear error, in bounded time and memory.

A seeded run of half a minute in all; CRFKIT_FUZZ=N multiplies the number of mutations. tools/fuzz.py feeds the same
parsers for as long as one likes.
"""

from __future__ import annotations

import io
import os
import random
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crfkit
from crfkit import CRF, Template
from crfkit.compat import read_foreign_model, write_suite_model
from crfkit.data import read_columns, read_conllu, read_crfsuite
from crfkit.model.chain_model import read_model
from crfkit.model.streaming import tag_columns

ROUNDS = float(os.environ.get("CRFKIT_FUZZ", "1"))
SLOWEST = 5.0  # seconds that one input may take on a loaded machine
ODD = [
    b"\0",
    b"\xff",
    b"\n",
    b"\n\n",
    b"%",
    b"%x[",
    b"*",
    b"9" * 12,
    b"-1",
    b"1e999",
    b"nan",
    b"0x1p+9999",
    b"\xc3",
    b":",
    b"#",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few changes, or cut short, or spliced."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(8)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = rng.randrange(256)
        elif kind == 2:
            out[at:at] = rng.choice(ODD)
        elif kind == 3:
            del out[at : at + rng.choice((1, 4, 50, 1000))]
        elif kind == 4:
            end = at + rng.randrange(100)
            out[at:at] = out[at:end] * rng.choice((1, 3))
        elif kind == 5 and len(out) >= 8:
            at = rng.randrange(len(out) - 3) // 4 * 4
            number = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(out), rng.randrange(2**32)))
            out[at : at + 4] = struct.pack("<I", number)
        elif kind == 6:
            del out[at:]
        else:
            other = rng.randrange(len(out) + 1)
            out[at:at] = out[other : other + 40]
    return bytes(out)


SEQUENCE = [("a", "N"), ("b/c", "V"), ("Über", "N")]
ITEMS = [[{"a": 1.0, "b": 2.0}, {"c": "d"}]]
TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\nB1:%x[0,1]\n"
PATTERNS = '*\nu:%x[0,0]\n*:%X[-1,1]/%x[@-1,0]\nu:%m[0,0,"^.?\\\\p*$"] %t[0,0,"\\\\u"]\n'
LABELS = ["A", "B", "A"]
COLUMNS = b"a N A\nb/c V B\n\n-DOCSTART- x O\n\na N A\n"
CONLLU = b"# text\n1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n2-3\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
SUITE = b"@weight:2\nA\ta\tb:2.5\tc\\:d:1e3\nB\tx\n\nA\ty\n"


def _model(kind: str, folder: Path) -> bytes:
    path = folder / kind
    if kind == "crfkit-items":
        CRF().fit(ITEMS, [["A", "B"]]).save(path)
    elif kind == "crfkit-template":
        CRF(Template(TEMPLATE), constraints=[("B", "B")]).fit([SEQUENCE], [LABELS]).save(path)
    elif kind == "crfsuite":
        write_suite_model(CRF(start_end=False).fit(ITEMS, [["A", "B"]]).model_, path)
    elif kind == "crfpp":
        from test_text_models import crfpp_model

        crfpp_model(path)
    else:
        from test_text_models import wapiti_model

        wapiti_model(path)
    return path.read_bytes()


def _use_model(path: Path) -> None:
    model = (
        read_foreign_model(path)
        if read_head(path).startswith((b"lCRF", b"#mdl#", b"version:"))
        else read_model(path)[0]
    )
    crf = crfkit.load(path)
    template = type(model.encoder).__name__ == "PlanEncoder"
    crf.predict([SEQUENCE] if template else ITEMS)


def read_head(path: Path) -> bytes:
    return path.read_bytes()[:8]


def _template(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    template = Template(text)
    crf = CRF(template, max_iter=1).fit([[("a", "b", "c", "d")] * 3], [["A", "B", "A"]])
    crf.predict([[("x", "y", "z", "w")] * 2])


def _stream(data: bytes) -> None:
    crf = CRF(Template("U:%x[0,0]\nB")).fit([[("a", "N", "A"), ("b", "V", "B")]], [["A", "B"]])
    for _ in tag_columns(crf.model_, io.BytesIO(data)):
        pass


FILES: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "columns": (COLUMNS, lambda data: list(read_columns(io.BytesIO(data)).X)),
    "conllu": (CONLLU, lambda data: read_conllu(io.BytesIO(data))),
    "crfsuite-text": (SUITE, lambda data: list(read_crfsuite(io.BytesIO(data)).X)),
    "template": (TEMPLATE.encode(), _template),
    "patterns": (PATTERNS.encode(), _template),
    "stream": (COLUMNS, _stream),
}
MODELS = ["crfkit-items", "crfkit-template", "crfsuite", "crfpp", "wapiti"]


def survive(run: Callable[[bytes], Any], data: bytes, name: str, number: int) -> str | None:
    """Runs; any fault must be a ValueError with a text, which is returned."""
    began = time.perf_counter()
    try:
        run(data)
        fault: ValueError | None = None
    except ValueError as e:
        fault = e
    seconds = time.perf_counter() - began
    assert seconds < SLOWEST, f"{name} {number} took {seconds:.1f}s"
    if fault is None:
        return None
    assert str(fault), f"{name} {number}: an error without a text"
    assert not isinstance(fault, UnicodeError), f"{name} {number}: {fault!r}"
    return str(fault)


@pytest.mark.parametrize("name", FILES)
def test_data_and_templates(name: str) -> None:
    good, run = FILES[name]
    assert survive(run, good, name, -1) is None
    rng = random.Random(name)
    for number in range(int(1500 * ROUNDS)):
        survive(run, mutated(good, rng), name, number)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    good = _model(name, tmp_path)
    path = tmp_path / "mutated"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        _use_model(path)

    assert survive(run, good, name, -1) is None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = random.Random(name)
    for number in range(int(2000 * ROUNDS)):
        survive(run, mutated(good, rng), name, number)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000, f"{name}: {grown} kB more memory"


@pytest.mark.parametrize("name", MODELS)
def test_every_prefix_of_a_model(name: str, tmp_path: Path) -> None:
    good = _model(name, tmp_path)
    path = tmp_path / "short"
    step = max(1, len(good) // 100)
    for size in range(0, len(good), step):
        path.write_bytes(good[:size])
        survive(lambda _: _use_model(path), b"", name, size)
