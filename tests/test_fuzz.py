"""Files that are nearly right: all that reads files ends with a result or a clear error, in bounded time and memory.

A seeded share of half a minute; ``make fuzz`` tries a million inputs with sanitizers, ``python tools/fuzz.py`` as
many as you like.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("the fuzzer looks at /proc", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from fuzzing import campaign
from fuzzing.campaign import Campaign, try_input
from fuzzing.containers import Container
from fuzzing.kinds import KINDS, Kind

FUZZER = Path(__file__).parents[1] / "tools" / "fuzz.py"
MODELS = ["crf", "hmm", "memm", "graph", "skip-chain", "factorial", "neural", "checkpoint", "blocks", "classes"]
SLOW = {"neural": 60, "checkpoint": 150, "blocks": 150}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", KINDS)
def test_seeded_share(name: str, tmp_path: Path) -> None:
    """In a process of its own: it forks, and what is forked here would wait for threads of torch that are not there."""
    inputs = SLOW.get(name, 300 if name in MODELS else 1500)
    command = [sys.executable, str(FUZZER), name, "--workers", "1", "--folder", str(tmp_path), "--inputs", str(inputs)]
    said = tmp_path / "said"
    with said.open("w") as out:
        fuzzer = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        fuzzer.wait(500)
    finally:
        if fuzzer.poll() is None:  # with the processes that it has forked
            os.killpg(fuzzer.pid, signal.SIGKILL)
            fuzzer.wait()
    text = said.read_text()
    assert fuzzer.returncode == 0, text
    done, read = re.findall(r"^(\d+) inputs in .*: (\d+) read", text, re.M)[0]
    assert int(done) == inputs
    assert int(read) > 0


@pytest.mark.parametrize("name", KINDS)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    for data in kind.seeds(tmp_path):
        fault = try_input(kind, data, tmp_path / "input")
        if name != "template":  # which begins with random ones
            assert fault == ("read", "")


@pytest.mark.parametrize("name", MODELS)
def test_parts_put_together_are_the_file(name: str, tmp_path: Path) -> None:
    data = KINDS[name].seeds(tmp_path)[0]
    if name == "checkpoint":
        data = data[4:]
    again = Container.parse(Container.parse(data).pack())
    assert again == Container.parse(data)


@pytest.mark.parametrize("name", ["crf", "crfsuite", "crfpp", "wapiti"])
def test_every_prefix_of_a_model(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    good = kind.seeds(tmp_path)[0]
    for size in range(0, len(good), max(1, len(good) // 100)):
        assert try_input(kind, good[:size], tmp_path / "short")[0] in ("read", "refused"), size


def _harm(data: bytes, path: Path) -> None:
    """What each input does to the process that tries it."""
    match data[0] % 6:
        case 0:
            os.abort()
        case 1:
            raise KeyError("x")
        case 2:
            began = time.process_time()
            while time.process_time() < began + 60:
                pass
        case 3:
            bytearray(b"x") * (3 << 30)
        case 4:
            os._exit(7)


def test_harm_is_seen_kept_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "SECONDS", 0.5)

    def number(data: bytes, rng: random.Random) -> bytes:
        return bytes([rng.randrange(6)])

    kind = Kind("harm", lambda _: [b"x"], number, _harm, 1)
    report = Campaign([kind], 3, 12, 2, tmp_path).run()
    expected = {k: kind.input(3, k, tmp_path)[0] for k in range(12)}
    faults = ["died: SIGABRT", "KeyError", "time", "MemoryError", "died: exit code 7", ""]
    wrong = {f.number: f.fault for f in report.findings}
    assert set(expected.values()) >= {0, 1, 2, 3, 4}
    assert wrong.keys() == {k for k, what in expected.items() if what != 5}
    for k, fault in wrong.items():
        assert fault.startswith(faults[expected[k]]), (k, fault)
        kept = tmp_path / f"harm-3-{k}"
        assert not kept.exists() or kept.read_bytes() == bytes([expected[k]])
    assert report.inputs == 12
    assert "harm --seed 3 --number" in capsys.readouterr().out


def _depth(nodes: list[Any]) -> int:
    depth: list[int] = []
    for node in nodes:
        joined = isinstance(node, list) and len(node) == 5 and node[0] == "join"
        parts = [depth[x] for x in node[1:3] if isinstance(x, int) and 0 <= x < len(depth)] if joined else []
        depth.append(1 + max(parts, default=0))
    return max(depth, default=0)


def test_hostile_structures_are_made(tmp_path: Path) -> None:
    """Deep joins, joins that share parts, arrays that share bytes, sizes without bytes: with valid checksums."""
    kind, seen = KINDS["crf"], set()
    for number in range(1500):
        data = kind.input(1, number, tmp_path)
        try:
            file = Container.parse(data)
            encoder = file.head["encoder"]
            nodes = list(encoder["plan"]["nodes"])
        except Exception:  # changed beyond its structure
            continue
        if _depth(nodes) > 200:
            seen.add("deep")
        joins = [n for n in nodes if isinstance(n, list) and len(n) == 5 and n[0] == "join"]
        if sum(n[1] == n[2] for n in joins) > 30:
            seen.add("shared")
        size = encoder.get("n_attributes")
        if isinstance(size, list) and any(isinstance(n, int) and n > 2**30 for n in size):
            seen.add("sizes")
    assert seen == {"deep", "shared", "sizes"}
