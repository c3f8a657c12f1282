"""Linear and neural CRFs on handwritten words, with and without windows over the input.

    python experiments/ocr_letters.py [--folds N] [--jobs N] [--table-only]

Trains on one fold and tests on the other nine, as is usual; prints a table, and writes
numbers/ocr_letters.json and docs/experiments/ocr_letters.png. The settings were chosen on a quarter of
fold 0 that was held out of it, twice; no other fold was looked at for them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

from crfkit import NeuralCRF

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "ocr_letters"
NEURAL: dict[str, Any] = {"activation": "relu", "dropout": 0.5, "input_dropout": 0.3, "max_iter": 150}
MODELS: dict[str, dict[str, Any]] = {
    "linear, window 0": {"hidden": (), "window": 0, "dropout": 0.3, "decay": 0.05, "max_iter": 100},
    "linear, window 1": {"hidden": (), "window": 1, "dropout": 0.4, "c1": 0.001, "max_iter": 100},
    "neural, window 0": {"hidden": (300, 300), "window": 0, **NEURAL},
    "neural, window 1": {"hidden": (500, 500), "window": 1, "c1": 0.001, "decay": 0.02, **NEURAL},
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


def run(job: tuple[str, int]) -> tuple[str, int, float, float]:
    """Model, fold, accuracy in letters on the other folds, and seconds of training."""
    name, fold = job
    words, letters, folds = read_words()
    train = [i for i, f in enumerate(folds) if f == fold]
    test = [i for i, f in enumerate(folds) if f != fold]
    crf = NeuralCRF(**MODELS[name], batch_size=16, learning_rate=0.003, random_state=fold)
    begin = time.perf_counter()
    crf.fit([words[i] for i in train], [letters[i] for i in train])
    seconds = time.perf_counter() - begin
    return name, fold, crf.score([words[i] for i in test], [letters[i] for i in test]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table-only", action="store_true", help="print the results that were written before")
    args = parser.parse_args()
    if not args.table_only:
        jobs = [(name, fold) for name in list(MODELS)[::-1] for fold in range(args.folds)]
        if args.jobs > 1:
            with multiprocessing.get_context("spawn").Pool(args.jobs, torch.set_num_threads, (1,)) as pool:
                runs = pool.map(run, jobs, chunksize=1)
        else:
            runs = [run(job) for job in jobs]
        table = {
            name: {
                "accuracy": [round(100 * a, 2) for n, _, a, _ in runs if n == name],
                "seconds": round(statistics.mean(s for n, _, _, s in runs if n == name), 1),
            }
            for name in MODELS
        }
        figures.keep("ocr_letters", table)
    table = figures.numbers("ocr_letters")
    print(f"{'model':20s} {'fold 0':>8s} {'mean':>8s} {'least':>8s} {'seconds':>8s}")
    for name, row in table.items():
        a = row["accuracy"]
        print(f"{name:20s} {a[0]:8.2f} {statistics.mean(a):8.2f} {min(a):8.2f} {row['seconds']:8.1f}")


if __name__ == "__main__":
    main()
