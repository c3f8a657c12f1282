"""Model files on the disk: damage is found; a killed save leaves the old or the new model, the next one cleans up."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import crfkit
from crfkit import CRF, HMM, MEMM, ModelError
from crfkit.base.files import check_writable, whole_file
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
from crfkit.model.chain_model import read_file

X = [["the", "old", "dog"], ["a", "dog", "runs"]]
Y = [["D", "A", "N"], ["D", "N", "V"]]
KINDS = ["crf", "memm", "hmm", "graph", "skip", "factorial", "neural"]
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def trained(kind: str) -> Any:
    """A small model of a kind."""
    if kind == "graph":
        nodes = [np.eye(3), np.eye(3)[::-1]]
        return GraphCRF(max_iter=5).fit([(x, [(0, 1), (1, 2)]) for x in nodes], [[0, 1, 1], [1, 1, 0]])
    if kind == "factorial":
        return FactorialCRF(max_iter=5).fit(X, [[(a, a.lower()) for a in y] for y in Y])
    if kind == "neural":
        pytest.importorskip("torch")
        return crfkit.NeuralCRF(hidden=(4,), max_iter=2, random_state=0).fit(X, Y)
    estimators: dict[str, Any] = {"crf": CRF(constraints=[("V", "D")]), "memm": MEMM(), "hmm": HMM()}
    return estimators.get(kind, SkipChainCRF(max_iter=5)).fit(X, Y)


def flip(path: Path, whole: bytes, bit: int) -> None:
    """Writes the file with one bit changed."""
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flips", [200, pytest.param(4000, marks=pytest.mark.long)])
def test_no_flipped_bit_goes_unseen(tmp_path: Path, kind: str, flips: int) -> None:
    path = tmp_path / "m"
    trained(kind).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(flips)
    for bit in rng.choice(8 * len(whole), min(flips, 8 * len(whole)), replace=False).tolist():
        flip(path, whole, bit)
        with pytest.raises(ModelError, match=r"^[^:]*/m: "):
            crfkit.load(path)
    path.write_bytes(whole)
    crfkit.load(path)


def test_the_error_names_file_and_array(tmp_path: Path) -> None:
    path = tmp_path / "m"
    crf = trained("crf")
    crf.save(path)
    whole = path.read_bytes()
    at = whole.rindex(crf.weights_.tobytes())
    flip(path, whole, 8 * at)
    with pytest.raises(ModelError, match=r"m: the model is damaged: 'weights' does not match its checksum"):
        crfkit.load(path)
    other = crfkit.load(path, verify=False, kind=CRF)
    assert (other.weights_ != crf.weights_).sum() == 1
    flip(path, whole, 8 * whole.index(b"float32"))
    with pytest.raises(ModelError, match="its header does not match its checksum"):
        crfkit.load(path)
    assert crf.predict(X) == Y  # a map is not in the way of what is in memory


def test_models_without_checksums_still_load(tmp_path: Path) -> None:
    path = tmp_path / "m"
    crf = trained("crf")
    crf.save(path)
    header, arrays = read_file(path)
    save_file({k: v.copy() for k, v in arrays.items()}, path, {"crfkit": json.dumps({**header, "format": 1})})
    np.testing.assert_array_equal(crfkit.load(path, kind=CRF).weights_, crf.weights_)
    save_file({k: v.copy() for k, v in arrays.items()}, path, {"crfkit": json.dumps(header)})
    with pytest.raises(ModelError, match="its header does not match its checksum"):
        crfkit.load(path)


def test_a_mapped_model_outlives_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "m"
    trained("crf").save(path)
    mapped = crfkit.load(path, verify=False)
    CRF().fit([["b"]], [["B"]]).save(path)
    assert mapped.predict(X) == Y


def test_saving_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "m"
    old = os.umask(0o022)
    try:
        for mode in (0o600, 0o664, 0o444):
            trained("crf").save(path)
            path.chmod(mode)
            trained("crf").save(path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
        path.unlink()
        trained("crf").save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(old)


def test_saving_syncs_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def sync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def replace(old: Any, new: Any) -> None:
        steps.append("rename")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    with whole_file(tmp_path / "m") as file:
        file.write(b"x")
    assert steps == ["file", "rename", "folder"]


def test_stale_files_go_and_living_ones_stay(tmp_path: Path) -> None:
    stale = tmp_path / ".m.0123456789ab.part"
    others = [".m.x.0123456789ab.part", ".m.0123456789ab", "m.0123456789ab.part", ".m.notes.part"]
    for name in (stale.name, *others):
        (tmp_path / name).write_bytes(b"half")
    with whole_file(tmp_path / "m") as first:
        assert not stale.exists()
        with whole_file(tmp_path / "m") as second:
            second.write(b"second")
        first.write(b"first")
    assert (tmp_path / "m").read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == sorted(["m", *others])


def test_savers_at_the_same_time(tmp_path: Path) -> None:
    """Each removes what is stale while others write; none loses its file, and the target is always whole."""
    path, faults = tmp_path / "m", []

    def save(byte: bytes) -> None:
        try:
            for _ in range(30):
                with whole_file(path) as file:
                    file.write(byte * 1000)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=save, args=(byte,)) for byte in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert path.read_bytes() in [byte * 1000 for byte in (b"a", b"b", b"c")]
    assert os.listdir(tmp_path) == ["m"]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "m")
    check_writable(tmp_path / "link")
    trained("crf").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "folder") == ["m"]


def test_targets_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "m")
    check_writable(os.devnull)
    assert os.listdir(tmp_path) == []
    (tmp_path / "m").write_bytes(b"old")
    check_writable(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"old"
    with pytest.raises(IsADirectoryError, match="a folder, not a file"):
        check_writable(tmp_path)
    with pytest.raises(FileNotFoundError, match="the folder to write to does not exist"):
        check_writable(tmp_path / "no" / "m")

    def refuse(path: Any, *_: Any) -> int:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=rf"Read-only file system: '{tmp_path / 'm'}'"):
        check_writable(tmp_path / "m")


def train(*arguments: Any) -> str:
    """What ``crfkit train`` says on its way to an error; the data is a pipe that nobody writes to."""
    command = [sys.executable, "-m", "crfkit", "train", "-", "-m", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.wait(60) == 2
        assert process.stderr is not None
        return process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_the_target_is_tried_before_the_data_is_read(tmp_path: Path) -> None:
    assert f"this is a folder, not a file: {tmp_path}" in train(tmp_path)
    assert f"the folder to write to does not exist: {tmp_path / 'no'}\n" in train(tmp_path / "no" / "m")
    if not IS_ROOT:  # who may write everywhere
        tmp_path.chmod(0o500)
        assert f"Permission denied: {tmp_path / 'm'}" in train(tmp_path / "m")
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("kills", [24, pytest.param(200, marks=pytest.mark.long)])
def test_killed_saves(tmp_path: Path, kills: int) -> None:
    """The file is the old or the new one, byte for byte, whenever its writer is killed; the next save cleans up."""
    script = Path(__file__).with_name("killed_saves.py")
    out = subprocess.run([sys.executable, str(script), str(tmp_path), str(kills)], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    counts = json.loads(out.stdout)
    assert counts["kills"] >= kills
    assert counts["new"] > 0
    assert counts["old"] > 0
    assert counts["left"] > 0, "no kill came while a file was written: make the model larger"
    assert os.listdir(tmp_path) == ["model"]
