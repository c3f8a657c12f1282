"""A seeded campaign: training and saving are killed at random moments, and end with the same bytes.

``make test`` takes a small share of it, ``make test-long`` all 200 kills.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crfkit.training import ALGORITHMS

# the settings of a run, to be killed somewhere between "ready" and its end
RUN = """
import sys
from crfkit import CRF
from crfkit.data import load_corpus
X, y = load_corpus("ingredients", "train")
print("ready", flush=True)
keep = dict(checkpoint=sys.argv[1], checkpoint_every=0) if sys.argv[1] else {{}}
crf = CRF(algorithm={algorithm!r}, max_iter={passes}, random_state=1, n_jobs=1, {more}**keep)
crf.fit(X, y, resume=bool(keep)).save(sys.argv[2])
"""
RUNS = {
    **{name: RUN.format(algorithm=name, passes=4 if name == "newton-cg" else 12, more="") for name in ALGORITHMS},
    "beams": RUN.format(algorithm="lbfgs", passes=40, more="beam='fixed:3', "),
    "warm": RUN.format(algorithm="lbfgs", passes=30, more="warm_start_fraction=0.5, "),
}


def start(code: str, checkpoint: str, model: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", code, checkpoint, str(model)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == b"ready\n"
    return process


def campaign(folder: Path, name: str, kills: int, seed: int) -> None:
    """Kills runs of one kind so many times; whenever one ends, its model is that of a run that was never killed."""
    rng = random.Random(f"{seed}, {name}")
    code, model, checkpoint = RUNS[name], folder / "model", folder / "checkpoint"
    process, began = start(code, "", model), time.perf_counter()
    assert process.wait() == 0
    seconds, expected = time.perf_counter() - began, model.read_bytes()
    model.unlink()
    ended = False
    while kills or not ended:
        process = start(code, str(checkpoint), model)
        try:
            status = process.wait(rng.uniform(0, 1.5 * seconds) if kills else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            status = process.wait()
            kills -= 1
        if ended := status == 0:
            assert model.read_bytes() == expected
            model.unlink()
            checkpoint.unlink()
        else:
            assert status == -signal.SIGKILL
            assert not model.exists() or model.read_bytes() == expected


@pytest.mark.parametrize("name", ["lbfgs", "sgd"])
def test_kills_at_random_moments(name: str, tmp_path: Path) -> None:
    campaign(tmp_path, name, 3, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_two_hundred_kills(name: str, tmp_path: Path) -> None:
    campaign(tmp_path, name, -(-200 // len(RUNS)), seed=1)
