"""The model file: what is written is read back, and damage is an error, never a crash."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import crfkit
from crfkit import CRF, ModelError, Template
from crfkit.model.chain_model import read_file, write_file

X = [["the", "old", "dog"], ["a", "dog", "runs"]]
Y = [["D", "A", "N"], ["D", "N", "V"]]


def items(x: list[str]) -> list[dict[str, Any]]:
    return [{"w": w, "n": len(w)} for w in x]


def models() -> dict[str, CRF]:
    return {
        "tokens": CRF().fit(X, Y),
        "template": CRF(Template("U:%x[0,0]\nU:%x[-1,0]\nB:%x[0,0]\nB"), constraints=[("V", "D")]).fit(X, Y),
        "items": CRF(None, dtype="float64").fit([items(x) for x in X], Y),
        "function": CRF(items).fit(X, Y),
        "numbers": CRF().fit([["a", "b"]], [[1, 2]]),
    }


@pytest.mark.parametrize("name", list(models()))
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    crf = models()[name]
    path = tmp_path / "model.crfkit"
    crf.save(path)
    again = crfkit.load(path, features=items if name == "function" else None, kind=CRF)
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    assert again.classes_.tolist() == crf.classes_.tolist()
    x = [items(s) for s in X] if name == "items" else X
    assert again.predict(x) == crf.predict(x)
    for a, b in zip(again.predict_marginals(x), crf.predict_marginals(x), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.model_.encoder.names() == crf.model_.encoder.names()
    assert again.n_iter_ == crf.n_iter_
    assert again.c2 == crf.c2
    assert os.listdir(tmp_path) == ["model.crfkit"]
    assert load_file(path)["weights"].dtype == np.float64  # plain safetensors


def test_a_loaded_model_can_learn_on(tmp_path: Path) -> None:
    path = tmp_path / "m"
    models()["tokens"].save(path)
    crf = crfkit.load(path).set_params(warm_start=True)
    crf.fit([*X, ["new", "word"]], [*Y, ["A", "X"]])
    assert crf.classes_.tolist() == ["A", "D", "N", "V", "X"]
    assert crf.predict(X) == Y


def test_a_lost_function_is_asked_for(tmp_path: Path) -> None:
    models()["function"].save(tmp_path / "m")
    crf = crfkit.load(tmp_path / "m")
    with pytest.raises(ValueError, match=r"trained with the feature function 'items'.*crfkit\.load"):
        crf.predict(X)


def test_a_failed_save_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    crf = models()["tokens"]
    crf.save(path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        crf.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m"]
    with pytest.raises(FileNotFoundError):
        crf.save(tmp_path / "no" / "folder" / "m")


def test_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m"
    cases: list[tuple[bytes, str]] = [
        (b"", "only 0 bytes"),
        (b"hello", "only 5 bytes"),
        (b"lCRF" + bytes(100), "a CRFsuite model of type"),
        (b"x" * 1000, "not a crfkit model"),
        (struct.pack("<Q", 2) + b"{}", "a safetensors file, but not a crfkit model"),
        (struct.pack("<Q", 4) + b"{ada", "header is damaged"),
        (struct.pack("<Q", 2**63) + b"{}", "truncated"),
    ]
    for data, message in cases:
        path.write_bytes(data)
        with pytest.raises(ModelError, match=message):
            crfkit.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(ModelError, match="not a crfkit model"):
        crfkit.load(path)
    with pytest.raises(FileNotFoundError):
        crfkit.load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        crfkit.load(tmp_path)


def rewritten(path: Path, change: Any) -> None:
    """The model file with its tensors and header changed."""
    header, arrays = read_file(path)
    copies = {name: array.copy() for name, array in arrays.items()}
    change(copies, header)
    write_file(path, header, copies)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, h: h.update(format=99), "written by a newer version of crfkit"),
        (lambda a, h: h.update(format="x"), "no format number"),
        (lambda a, h: h.update(labels=["one"]), "'layout.n_labels' must be 1"),
        (lambda a, h: a.pop("weights"), "the array 'weights' is missing"),
        (lambda a, h: a.update(weights=a["weights"][:-1]), "the array 'weights' must be of shape"),
        (lambda a, h: a.update(weights=a["weights"] * np.nan), "'weights' must hold finite numbers"),
        (lambda a, h: a["layout.state_label"].fill(60000), "names a label that does not exist"),
        (lambda a, h: a["layout.state_ptr"].fill(7), "ascending rows"),
        (lambda a, h: a["layout.transition"].fill(2**30), "names a weight that does not exist"),
        (lambda a, h: h["layout"].update(start=10**9), "start or end weights"),
        (lambda a, h: h["layout"].update(n_labels=0), "damaged"),
        (lambda a, h: h["encoder"].update(kind="magic"), "unknown kind of features"),
        (lambda a, h: h["encoder"]["plan"]["templates"].append([999, 0, "", "", False]), "must name a node"),
        (lambda a, h: h["encoder"]["plan"]["nodes"].append(["join", 99, 99, 0, ""]), "earlier nodes"),
        (lambda a, h: a["encoder.pairs.0"].fill(2**31), "damaged"),
        (lambda a, h: a["encoder.strings.0.ends"].fill(2**60), "damaged"),
        (lambda a, h: a["encoder.strings.0.bytes"].fill(255), "not valid UTF-8"),
        (lambda a, h: a["encoder.attributes.0"].fill(2**20), "does not fit its templates"),
        (lambda a, h: h.pop("encoder"), "'encoder' is missing"),
        (lambda a, h: a.update({"layout.edge_ptr": np.zeros((2, 2), np.uint32)}), "damaged"),
    ],
)
def test_damaged_parts_are_found(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "m"
    models()["tokens"].save(path)
    rewritten(path, change)
    with pytest.raises(ModelError, match=message):
        crfkit.load(path)


@pytest.mark.parametrize("name", ["tokens", "template", "items"])
def test_cut_and_flipped_files_never_crash(tmp_path: Path, name: str) -> None:
    """A file cut anywhere is refused; one with changed bytes, unchecked, is refused or works with other weights."""
    path = tmp_path / "m"
    models()[name].save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for n in sorted({*range(0, 64), *rng.integers(0, len(whole), 150).tolist()}):
        path.write_bytes(whole[:n])
        with pytest.raises(ModelError):
            crfkit.load(path)
    x = [items(s) for s in X] if name == "items" else X
    for _ in range(600):
        data = bytearray(whole)
        for at in rng.integers(0, len(data) if rng.random() < 0.5 else min(3000, len(data)), rng.integers(1, 4)):
            data[at] = rng.integers(256)
        path.unlink()
        path.write_bytes(data)
        try:
            crf = crfkit.load(path, verify=False)
            crf.predict(x)
        except (ModelError, ValueError):
            continue
