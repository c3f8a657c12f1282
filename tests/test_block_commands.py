"""Block files in the shell: damaged ones, those without rare attributes, options that they do not take."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from command import run
from test_blocks import TEMPLATE, some_text

from crfkit import CRF, Template, load
from crfkit.base.fields import ModelError
from crfkit.cli import main
from crfkit.data import Blocks, read_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Text, a template, a model of the text, and block files of it with all attributes and without rare ones."""
    path: Path = tmp_path_factory.mktemp("commands")
    (path / "text").write_text(some_text(300))
    (path / "template").write_text(TEMPLATE)
    run("train", path / "text", "-t", path / "template", "-m", path / "model", "--max-iter", 5, "-q")
    for least in (0, 2):
        name = path / f"{least}.blocks"
        run("encode", path / "text", "-t", path / "template", "--min-freq", least, "-o", name, "-q")
    return path


def call(monkeypatch: Any, capsys: Any, *arguments: Any) -> tuple[int, str]:
    """Exit code and standard error of a command, in this process."""
    monkeypatch.setattr("sys.argv", ["crfkit", *map(str, arguments)])
    monkeypatch.setattr("crfkit.cli.leave_pipes", lambda: None)
    try:
        main()
        code: Any = 0
    except SystemExit as e:
        code = e.code
    return int(code or 0), capsys.readouterr().err


def test_a_changed_bit_is_refused_when_labels_are_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    X, y = read_columns(folder / "text")
    y = [[{"X", "Z"} if i % 7 == 0 and t == 0 else label for t, label in enumerate(row)] for i, row in enumerate(y)]
    weighted = CRF(Template(TEMPLATE)).encode(
        X, y, tmp_path / "weighted", sample_weight=[1 + i % 3 for i in range(300)]
    )
    rng, bad = random.Random(20), tmp_path / "bad.blocks"
    for source, times in ((folder / "0.blocks", 40), (Path(weighted.path), 40)):
        good = source.read_bytes()
        for _ in range(times):
            changed = bytearray(good)
            at, bit = rng.randrange(len(good)), rng.randrange(8)
            changed[at] ^= 1 << bit
            bad.write_bytes(changed)
            code, err = call(monkeypatch, capsys, "tag", "-m", folder / "model", bad, "-o", tmp_path / "out", "-q")
            assert code == 1, (at, bit)
            assert err.count("\n") == err.count(str(bad)) == 1, (at, bit, err)
            assert not (tmp_path / "out").exists()
            with pytest.raises(ModelError):
                load(folder / "model").predict(Blocks(bad))
