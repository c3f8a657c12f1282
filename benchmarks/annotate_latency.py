"""Latency of ``crfkit annotate``: from an answer to the next question, in process.

    python benchmarks/annotate_latency.py [--copies N] [--answers N] [--start N] [--jobs N]

The pool is the training part of CoNLL-2000, 211,727 tokens, or copies of it with other words (--copies 10: 2 million).
``--start`` sentences are labelled before. Prints percentiles of wall time, and the processor's time per answer, which
other programs on the machine hardly change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

from annotate import corpus, documents

from crfkit.annotate.project import Project
from crfkit.annotate.session import Session
from crfkit.annotate.simulation import Person, in_process


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--start", type=int, default=200)
    parser.add_argument("--think", type=float, default=1.0, help="seconds between a question and its answer")
    parser.add_argument("--jobs", type=int, default=-1)
    args = parser.parse_args()
    X, y = corpus("conll2000", "train")
    rows = [
        [(f"{word}~{k}" if k and len(word) > 4 else word, pos) for word, pos in row]
        for k in range(args.copies)
        for row in X
    ]
    gold = y * args.copies
    kinds = sorted({label[2:] for row in y for label in row if label != "O"})
    person = Person(gold)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        project = Project.create(Path(folder) / "p.crfkit-project", documents(rows), labels=kinds)
        for i in np.random.default_rng(0).permutation(len(rows))[: args.start].tolist():
            spans = [{"start": a, "end": b, "label": name} for a, b, name in person.units(i)]
            project.append("edit", "before", {"sequence": i, "spans": spans, "judged": [], "whole": True})
        session = Session(project, n_jobs=args.jobs)
        print(f"{sum(map(len, rows))} tokens, opened in {time.perf_counter() - began:.1f} s", flush=True)
        session.learner.idle(600)
        call = in_process(session)
        question = call("GET", "/api/question", None)
        wall, processor, fresh = [], [], []
        for _ in range(args.answers):
            answer, *_rest = person.answer(question)
            session.learner.idle(args.think)  # while the person thinks
            a, b = time.perf_counter(), time.process_time()
            question = call("POST", "/api/answer", answer)["next"]
            wall.append(time.perf_counter() - a)
            processor.append(time.process_time() - b)
            fresh.append((question["freshness"]["fresh"], question["freshness"]["answers_behind"]))
        session.close()
    ms = [f"{1000 * x:.0f}" for x in np.percentile(wall, [50, 95])]
    cpu = [f"{1000 * x:.0f}" for x in np.percentile(processor, [50, 95])]
    print(f"answer to next question: median {ms[0]} ms, p95 {ms[1]} ms; processor {cpu[0]} and {cpu[1]} ms")
    mean = np.mean(fresh, axis=0)
    print(f"fresh scores: {100 * mean[0]:.0f}% of the pool, {mean[1]:.1f} answers behind")


if __name__ == "__main__":
    main()
