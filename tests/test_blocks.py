"""Block files: the same weights as in memory, whatever the memory, the threads and the kills."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfkit import CRF, Template
from crfkit.data import Blocks, read_columns
from crfkit.features import encoding

TEMPLATE = (
    "U0:%x[-1,0]\nU1:%x[0,0]\nU2:%x[1,0]\nU3:%x[0,1]\nU4:%x[-1,1]/%x[0,1]\nU5:%x[0,0]/%x[1,0]\nU6:%x[-1,0]/%x[0,0]\nB\n"
)


def some_text(n: int, seed: int = 0) -> str:
    """Sequences of words, parts and labels; words are drawn as in real text, many of them once."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        for _ in range(int(rng.integers(1, 12))):
            word = min(int(rng.zipf(1.3)), 100_000)
            part = "ABCD"[word % 4]
            label = "XYZ"[(word % 7) % 3] if rng.random() < 0.9 else "X"
            lines.append(f"w{word} {part} {label}")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def text(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("blocks") / "train.txt"
    path.write_text(some_text(2500))
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: Any) -> None:
    """Several pieces, runs and partitions of keys, even of little data."""
    monkeypatch.setattr("crfkit.data.readers.PieceReader.size", 4096)
    monkeypatch.setattr("crfkit.estimators.penalised._PIECE", 100)
    monkeypatch.setattr(encoding, "_RUN_TOKENS", 1500)
    monkeypatch.setattr(encoding, "_AT_ONCE", 500)


def same(blocks: Blocks, X: Any, y: Any, features: Any = "auto", **settings: Any) -> CRF:
    """Trains both ways; all must be equal to the bit."""
    settings = {"max_iter": 8, "tol": 0, "n_jobs": 2, **settings}
    weights = {k: settings.pop(k) for k in ("sample_weight",) if k in settings}
    with np.errstate(all="ignore"):
        a = CRF(features, **settings).fit(X, y, **weights)
        b = CRF(**settings).fit(blocks)
    assert a.model_.labels == b.model_.labels
    assert a.model_.encoder.names() == b.model_.encoder.names()
    assert a.weights_.tobytes() == b.weights_.tobytes()
    assert a.result_.value == b.result_.value
    assert a.predict(X[:50]) == b.predict(X[:50])
    return b


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c1": 0.5},
        {"algorithm": "newton-cg"},
        {"dtype": "float64"},
        {"constraints": [("X", "Y")], "c2": 0.1},
        {"class_weight": "balanced"},
        {"algorithm": "sgd"},
        {"algorithm": "pa"},
        {"all_possible_transitions": False, "start_end": False},
        {"all_possible_states": True},
        {"beam": "fixed:2"},
        {"warm_start_fraction": 0.3},
    ],
    ids=str,
)
def test_weights_are_those_of_training_in_memory(text: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    X, y = read_columns(text)
    if "constraints" in settings:
        y = [
            [{"Y": "X"}.get(label, label) if t and row[t - 1] == "X" else label for t, label in enumerate(row)]
            for row in y
        ]
        y = [["Z" if label == "Y" and "X" in row else label for label in row] for row in y]
    template = Template(TEMPLATE)
    blocks = CRF(template, n_jobs=2).encode(X, y, tmp_path / "x.blocks")
    same(blocks, X, y, template, **settings)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("min_freq", [0, 2, 3])
def test_rare_attributes_are_left_out_as_in_memory(text: Path, tmp_path: Path, n_jobs: int, min_freq: int) -> None:
    X, y = read_columns(text)
    template = Template(TEMPLATE)
    path = tmp_path / "x.blocks"
    blocks = CRF(template, min_freq=min_freq, n_jobs=n_jobs).encode(iter(X), iter(y), path, memory=0)
    assert blocks.n_attributes < 10_000 or min_freq < 2
    same(blocks, X, y, template, min_freq=min_freq)
    if min_freq:
        with pytest.raises(ValueError, match=r"occur less than .* times were left out"):
            CRF(min_freq=min_freq - 1).fit(blocks)
    assert os.listdir(tmp_path) == ["x.blocks"]
