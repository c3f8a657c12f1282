"""crfkit beside python-crfsuite on CoNLL-2000 chunking: the same attributes, the same objective, one run.

    python benchmarks/conll2000.py [--quick] [--json FILE]

Every measurement runs in a process of its own, the two libraries in turn, and figures are medians. ``--quick`` trains
CRFsuite once instead of three times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "conll2000"

# The nineteen templates of CRFsuite's chunking example: (column, offset) pieces; column 0 is the word, 1 its tag.
TEMPLATES = (
    [[(0, k)] for k in (-2, -1, 0, 1, 2)]
    + [[(0, -1), (0, 0)], [(0, 0), (0, 1)]]
    + [[(1, k)] for k in (-2, -1, 0, 1, 2)]
    + [[(1, k), (1, k + 1)] for k in (-2, -1, 0, 1)]
    + [[(1, k), (1, k + 1), (1, k + 2)] for k in (-2, -1, 0)]
)


def template_text() -> str:
    """The templates as CRF++ writes them."""
    lines = []
    for k, pieces in enumerate(TEMPLATES):
        lines.append(f"U{k:02d}:" + "|".join(f"%x[{row},{column}]" for column, row in pieces))
    return "\n".join([*lines, "B"])


# ---------------------------------------------------------------- python-crfsuite's side


def read_rows(path: Path) -> tuple[list[Any], list[Any]]:
    sequences, labels = [], []
    rows: list[list[str]] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                rows.append(line.split())
            elif rows:
                sequences.append(rows)
                labels.append([row[2] for row in rows])
                rows = []
    if rows:
        sequences.append(rows)
        labels.append([row[2] for row in rows])
    return sequences, labels


PREFIXES = [(f"U{k:02d}:", pieces) for k, pieces in enumerate(TEMPLATES)]


def attributes(rows: list[list[str]]) -> list[list[str]]:
    n = len(rows)
    out = []
    for t in range(n):
        token = []
        for prefix, pieces in PREFIXES:
            if t + pieces[0][1] >= 0 and t + pieces[-1][1] < n:
                token.append(prefix + "|".join([rows[t + offset][column] for column, offset in pieces]))
        if t == 0:
            token.append("__BOS__")
        if t == n - 1:
            token.append("__EOS__")
        out.append(token)
    return out


def crfsuite_train(model: str, iterations: int | None) -> dict[str, Any]:
    import pycrfsuite

    began = time.perf_counter()
    X, y = read_rows(DATA / "train.txt")
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c1": 0.0, "c2": 1.0, **({"max_iterations": iterations} if iterations else {})})
    for rows, labels in zip(X, y, strict=True):
        trainer.append(attributes(rows), labels)
    trainer.train(model)
    seconds = time.perf_counter() - began
    log = trainer.logparser.iterations
    return {
        "seconds": seconds,
        "value": log[-1]["loss"],
        "iterations": len(log),
        "evaluation": [float(x["time"]) / x["linesearch_trials"] for x in log[1:]],
    }


def crfsuite_tag(model: str) -> dict[str, Any]:
    import pycrfsuite

    began = time.perf_counter()
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    X, y = read_rows(DATA / "test.txt")
    tags = [tagger.tag(attributes(rows)) for rows in X]
    return {"seconds": time.perf_counter() - began, "f1": f1(y, tags)}


# ---------------------------------------------------------------- crfkit's side


def crfkit_estimator(threads: int) -> Any:
    from crfkit import CRF, Template

    return CRF(
        Template(template_text(), padding=False),
        c2=1.0,
        all_possible_transitions=False,
        start_end=False,
        n_jobs=threads,
    )


def crfkit_train(model: str, threads: int) -> dict[str, Any]:
    from crfkit.data import read_columns

    began = time.perf_counter()
    X, y = read_columns(DATA / "train.txt")
    crf = crfkit_estimator(threads).fit(X, y)
    crf.save(model)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "value": crf.result_.value, "iterations": crf.result_.iterations}


def crfkit_evaluate(threads: int, times: int) -> dict[str, Any]:
    import numpy as np

    from crfkit.data import read_columns

    objective = crfkit_estimator(threads).objective(*read_columns(DATA / "train.txt"))
    w = np.zeros(objective.size)
    g = np.empty(objective.size)
    objective.value_and_grad(w, g)
    seconds = []
    for _ in range(times):
        w -= 1e-4 * g
        began = time.perf_counter()
        objective.value_and_grad(w, g)
        seconds.append(time.perf_counter() - began)
    return {"evaluation": seconds, "size": objective.size}


def crfkit_tag(model: str, threads: int) -> dict[str, Any]:
    import crfkit
    from crfkit.data import read_columns

    began = time.perf_counter()
    crf = crfkit.load(model, n_jobs=threads)
    X, y = read_columns(DATA / "test.txt")
    tags = crf.predict(X)
    return {"seconds": time.perf_counter() - began, "f1": f1(y, tags)}


# ---------------------------------------------------------------- both


def f1(y: Any, tags: Any) -> float:
    from crfkit import metrics

    return metrics.evaluate(y, tags).f1


def worker(call: str) -> None:
    """Runs one measurement in this process and prints it."""
    name, arguments = json.loads(call)
    result = globals()[name](*arguments)
    result["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def measure(name: str, *arguments: Any) -> dict[str, Any]:
    """One measurement in a fresh process."""
    call = json.dumps([name, arguments])
    out = subprocess.run([sys.executable, __file__, "--worker", call], capture_output=True, text=True, check=False)
    if out.returncode != 0:
        sys.exit(out.stderr)
    return dict(json.loads(out.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="train CRFsuite once")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "conll2000.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    if not DATA.is_dir():
        sys.exit(f"no data at {DATA}; set CRFKIT_DATA")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        short = os.path.join(folder, "short")
        evaluations: dict[str, list[float]] = {"crfsuite": [], "one": [], "two": []}
        for k in range(3):
            say(f"evaluations, round {k + 1} of 3")
            evaluations["one"] += measure("crfkit_evaluate", 1, 15)["evaluation"]
            evaluations["crfsuite"] += measure("crfsuite_train", short, 8)["evaluation"]
            evaluations["two"] += measure("crfkit_evaluate", 2, 25)["evaluation"]
        train_ours, train_theirs = [], []
        for k in range(1 if options.quick else 3):
            say(f"training, round {k + 1}")
            train_ours.append(measure("crfkit_train", ours, 2))
            train_theirs.append(measure("crfsuite_train", theirs, None))
            train_ours.append(measure("crfkit_train", ours, 2))
        tag_ours, tag_theirs = [], []
        for k in range(5):
            say(f"tagging, round {k + 1} of 5")
            tag_ours.append(measure("crfkit_tag", ours, 2))
            tag_theirs.append(measure("crfsuite_tag", theirs))

    def median(runs: list[dict[str, Any]], key: str) -> float:
        return float(statistics.median(run[key] for run in runs))

    rows: list[dict[str, Any]] = []

    def row(what: str, unit: str, ours: float, theirs: float, must: float, aim: float) -> None:
        rows.append(
            {
                "what": what,
                "unit": unit,
                "crfkit": ours,
                "crfsuite": theirs,
                "ratio": theirs / ours,
                "must": must,
                "aim": aim,
            }
        )

    slow = statistics.median(evaluations["crfsuite"])
    row("value and gradient, 1 thread", "s", statistics.median(evaluations["one"]), slow, 3.5, 8)
    row("value and gradient, 2 threads", "s", statistics.median(evaluations["two"]), slow, 6, 15)
    row("train.txt to model, 2 threads", "s", median(train_ours, "seconds"), median(train_theirs, "seconds"), 8, 20)
    row("test.txt to tags, 2 threads", "s", median(tag_ours, "seconds"), median(tag_theirs, "seconds"), 10, 30)
    row("peak memory of training", "MB", median(train_ours, "megabytes"), median(train_theirs, "megabytes"), 2, 4)
    value, rival = median(train_ours, "value"), median(train_theirs, "value")
    score, rival_score = median(tag_ours, "f1"), median(tag_theirs, "f1")
    print(f"{'':32} {'crfkit':>10} {'crfsuite':>10} {'ratio':>7}  must  aim")
    for r in rows:
        figures = f"{r['crfkit']:10.3f} {r['crfsuite']:10.3f} {r['ratio']:6.1f}x"
        print(f"{r['what']:32} {figures} {r['must']:4g}x {r['aim']:3g}x  ({r['unit']})")
    difference = abs(value - rival) / rival
    print(f"{'objective at the end':32} {value:10.2f} {rival:10.2f}   relative difference {difference:.1e}")
    print(f"{'chunk F1 on test.txt':32} {100 * score:10.2f} {100 * rival_score:10.2f}")
    print(f"{'iterations':32} {median(train_ours, 'iterations'):10.0f} {median(train_theirs, 'iterations'):10.0f}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "rows": rows,
        "objective": {"crfkit": value, "crfsuite": rival},
        "f1": {"crfkit": score, "crfsuite": rival_score},
    }
    options.json.write_text(json.dumps(record, indent=2) + "\n")
    say(f"wrote {options.json}")


if __name__ == "__main__":
    main()
