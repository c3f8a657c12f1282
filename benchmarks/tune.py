"""A search over 50 settings of c1 and c2 by five-fold cross-validation on CoNLL-2000, beside python-crfsuite's time.

    python benchmarks/tune.py [--crfsuite] [--c1 0,0.1] [--folds 5] [--json FILE]

Every crfkit setting and fold is trained. CRFsuite trains five of the settings on the first fold, and its time for all
is the mean of these times 250, divided by the cores, as if processes ran side by side without loss.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from conll2000 import DATA, attributes, read_rows, template_text

from crfkit import CRF, Template, tune
from crfkit.data import read_columns


def crfsuite_seconds(settings: list[tuple[float, float]], fold: np.ndarray[Any, Any]) -> list[float]:
    import pycrfsuite

    rows, labels = read_rows(DATA / "train.txt")
    items = [attributes(rows[i]) for i in fold]
    out = []
    for c1, c2 in settings:
        trainer = pycrfsuite.Trainer(verbose=False)
        trainer.set_params({"c1": c1, "c2": c2, "feature.possible_transitions": True, "max_iterations": 1000})
        for i, item in zip(fold, items, strict=True):
            trainer.append(item, labels[i])
        began = time.process_time()
        trainer.train(os.devnull)
        out.append(time.process_time() - began)
        print(f"CRFsuite c1 {c1:g} c2 {c2:g}: {out[-1]:.1f} s", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crfsuite", action="store_true", help="measure CRFsuite instead")
    parser.add_argument("--c1", help="some of the values of c1 only, separated by commas")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from crfkit.estimators.tuning import C1, C2

    cores = len(os.sched_getaffinity(0))
    record: dict[str, Any] = {"cores": cores}
    if args.crfsuite:
        n = len(read_rows(DATA / "train.txt")[0])
        fold = np.setdiff1d(np.arange(n), np.random.default_rng(0).permutation(n)[::5])
        five = [(0.0, 1.0), (0.01, 0.1), (0.03, 0.5), (0.1, 0.05), (0.3, 2.0)]
        seconds = crfsuite_seconds(five, fold)
        record |= {"processor_seconds": seconds, "extrapolated": float(np.mean(seconds)) * 250 / cores}
        print(f"CRFsuite, 250 trainings on {cores} cores: {record['extrapolated'] / 60:.1f} minutes, extrapolated")
    else:
        X, y = read_columns(DATA / "train.txt")
        crf = CRF(Template(template_text()))
        c1 = C1 if args.c1 is None else [float(x) for x in args.c1.split(",")]
        began, cpu = time.perf_counter(), time.process_time()

        def show(trial: Any, done: int, total: int) -> None:
            if done % 10 == 0:
                spent = time.perf_counter() - began, time.process_time() - cpu
                print(f"{done} of {total}, {spent[0]:.0f} s, processor {spent[1]:.0f} s", file=sys.stderr, flush=True)

        found = tune(crf, X, y, c1=c1, c2=C2, folds=args.folds, callback=show)
        cpu = time.process_time() - cpu
        print(found.table(10))
        print(f"{found.scores.size} trainings, {cores} cores: {found.seconds:.0f} s, {cpu:.0f} s of processor time")
        print(f"250 trainings: {cpu * 250 / found.scores.size / cores / 60:.1f} minutes of all cores")
        record |= {"seconds": found.seconds, "processor_seconds": cpu, "best": found.best, "f1": found.best_score}
        record |= {"iterations": int(found.iterations.sum()), "trainings": found.scores.size}
    if args.json:
        args.json.write_text(json.dumps(record))


if __name__ == "__main__":
    main()
