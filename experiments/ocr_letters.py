"""Linear and neural CRFs on handwritten words, with and without windows over the input.

    python experiments/ocr_letters.py [--folds N] [--epochs N]

Trains on one fold and tests on the other nine, as is usual; prints a table, and writes
docs/experiments/ocr_letters.png if matplotlib is there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from crfkit import NeuralCRF

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "ocr_letters"
PAGE = Path(__file__).parents[1] / "docs" / "experiments"
MODELS: dict[str, dict[str, Any]] = {
    "linear, window 0": {"hidden": (), "window": 0},
    "linear, window 1": {"hidden": (), "window": 1},
    "neural, window 0": {"hidden": (100,), "window": 0},
    "neural, window 1": {"hidden": (100,), "window": 1},
}


def read_words() -> tuple[list[Any], list[list[str]], list[int]]:
    """Pixels [T, 128], letters and fold of every word."""
    words, letters, folds = [], [], []
    pixels: list[Any] = []
    names: list[str] = []
    with open(DATA / "letter.data", encoding="ascii") as file:
        for line in file:
            row = line.split("\t")
            pixels.append(np.array(row[6:134], np.float32))
            names.append(row[1])
            if row[2] == "-1":
                words.append(np.stack(pixels))
                letters.append(names)
                folds.append(int(row[5]))
                pixels, names = [], []
    return words, letters, folds


def run(settings: dict[str, Any], fold: int, epochs: int, data: Any) -> tuple[float, float]:
    """Accuracy in letters on the other folds, and seconds of training."""
    words, letters, folds = data
    train = [i for i, f in enumerate(folds) if f == fold]
    test = [i for i, f in enumerate(folds) if f != fold]
    crf = NeuralCRF(**settings, max_epochs=epochs, batch_size=16, learning_rate=0.003, dropout=0.2, random_state=fold)
    begin = time.perf_counter()
    crf.fit([words[i] for i in train], [letters[i] for i in train])
    seconds = time.perf_counter() - begin
    return crf.score([words[i] for i in test], [letters[i] for i in test]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=25)
    args = parser.parse_args()
    data = read_words()
    found: dict[str, list[float]] = {}
    print(f"{'model':20s} {'fold 0':>8s} {'mean':>8s} {'seconds':>8s}")
    for name, settings in MODELS.items():
        runs = [run(settings, fold, args.epochs, data) for fold in range(args.folds)]
        found[name] = [100 * a for a, _ in runs]
        mean, seconds = statistics.mean(found[name]), statistics.mean(s for _, s in runs)
        print(f"{name:20s} {found[name][0]:8.2f} {mean:8.2f} {seconds:8.1f}", flush=True)
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    pyplot.figure(figsize=(6, 3))
    pyplot.barh(list(found)[::-1], [statistics.mean(v) for v in found.values()][::-1])
    pyplot.xlabel("letters right, %")
    pyplot.xlim(60, 100)
    pyplot.tight_layout()
    PAGE.mkdir(parents=True, exist_ok=True)
    pyplot.savefig(PAGE / "ocr_letters.png", dpi=120)


if __name__ == "__main__":
    main()
