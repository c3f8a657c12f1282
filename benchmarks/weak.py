"""Weak labels: the reliabilities found beside the true ones, and the time of iterations beside skweak's.

    python benchmarks/weak.py [--tokens N] [--skweak PYTHON] [--json FILE]

Votes of eight sources on sequences of 20 tokens are drawn from a known hidden Markov model. PYTHON is an interpreter
that has skweak (0.3.3). For the comparison both get the same votes, without those for O, which skweak does not tell
from no vote, and both run as many iterations. Times are processor time of one thread, from votes in memory on: tuples
for crfkit, data frames for skweak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy comes

import numpy as np

LENGTH, TYPES, STAY = 20, ("PER", "LOC", "ORG"), 0.7
#: Probability that a vote is right, and that there is one, of each source.
SKILL = {
    "careful": (0.97, 0.3),
    "good": (0.93, 0.6),
    "fair": (0.85, 0.8),
    "quick": (0.8, 0.95),
    "rough": (0.72, 0.9),
    "poor": (0.62, 0.5),
    "rare": (0.9, 0.1),
    "bold": (0.68, 1.0),
}
LABELS = ("O", *TYPES)


def draw(n_tokens: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True labels [S, T], and votes [S, T, sources], -1 for none."""
    rng = np.random.default_rng(seed)
    n = n_tokens // LENGTH
    share = np.array([0.55, 0.15, 0.15, 0.15])
    truth = np.empty((n, LENGTH), np.int64)
    truth[:, 0] = rng.choice(4, n, p=share)
    for t in range(1, LENGTH):
        truth[:, t] = np.where(rng.random(n) < STAY, truth[:, t - 1], rng.choice(4, n, p=share))
    votes = np.empty((n, LENGTH, len(SKILL)), np.int64)
    for s, (accuracy, coverage) in enumerate(SKILL.values()):
        right = rng.random(truth.shape) < accuracy
        wrong = (truth + rng.integers(1, 4, truth.shape)) % 4
        there = rng.random(truth.shape) < coverage
        votes[:, :, s] = np.where(there, np.where(right, truth, wrong), -1)
    return truth, votes


def fitted(votes: np.ndarray, **how: Any) -> tuple[Any, list[Any], float]:
    """Crfkit's model of the votes, the votes as it takes them, and the seconds of training."""
    from crfkit import WeakLabels

    names = np.array([*LABELS, None], object)
    lists = {name: names[votes[:, :, s]].tolist() for s, name in enumerate(SKILL)}
    X = [[""] * LENGTH] * len(votes)
    weak: Any = WeakLabels(lists, LABELS, scheme=None, n_jobs=1, **how)
    given = weak.votes(X)
    weak.votes = lambda X: given
    weak._say_not_converged = lambda text: None
    began = time.process_time()
    weak.fit(X)
    return weak, given, time.process_time() - began


def ours(truth: np.ndarray, votes: np.ndarray, iterations: int) -> dict[str, Any]:
    """What crfkit finds, and the time of some iterations without votes for O."""
    from crfkit import HMM

    weak, given, whole = fitted(votes, max_iter=200, tol=1e-7)
    p = np.concatenate(HMM.predict_marginals(weak, given))
    found = np.array([LABELS.index(label) for label in weak.classes_])[p.argmax(axis=1)]
    return {
        "seconds": fitted(np.where(votes == 0, -1, votes), max_iter=iterations, tol=0.0)[2],
        "until converged": whole,
        "iterations": weak.n_iter_,
        "accuracy": float((found == truth.ravel()).mean()),
        "reliability": {r.source: [r.accuracy, r.coverage] for r in weak.reliability_},
    }


def theirs(path: str, iterations: int) -> None:
    """In an interpreter that has skweak: prints what it finds, as JSON."""
    import spacy
    from skweak.generative import HMM
    from spacy.tokens import Doc, Span

    votes = np.load(path)
    vocab = spacy.blank("en").vocab
    docs = []
    for rows in votes:
        doc = Doc(vocab, ["x"] * len(rows))
        for s, name in enumerate(SKILL):
            spans = [Span(doc, t, t + 1, LABELS[v]) for t, v in enumerate(rows[:, s]) if v > 0]
            doc.spans[name] = spans
        docs.append(doc)
    model = HMM("hmm", list(TYPES), prefixes="IO")
    frames = [model.get_observation_df(doc) for doc in docs]
    began = time.process_time()
    model._fit(frames, n_iter=iterations, tol=0.0)
    print(json.dumps({"seconds": time.process_time() - began}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--iterations", type=int, default=4, help="skweak's default")
    parser.add_argument("--skweak", metavar="PYTHON")
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.theirs:
        return theirs(options.theirs, options.iterations)
    truth, votes = draw(options.tokens)
    found = ours(truth, votes, options.iterations)
    print(f"{truth.size:,} tokens, {len(SKILL)} sources: {found['iterations']} iterations until converged")
    print(f"labels right: {100 * found['accuracy']:.2f} %")
    worst = 0.0
    for name, (accuracy, coverage) in SKILL.items():
        a, c = found["reliability"][name]
        worst = max(worst, abs(a - accuracy), abs(c - coverage))
        print(
            f"  {name:8s} accuracy {100 * a:6.2f} (true {100 * accuracy:.0f}), "
            f"coverage {100 * c:6.2f} (true {100 * coverage:.0f})"
        )
    print(f"largest difference: {100 * worst:.2f} points")
    print(
        f"crfkit: {found['seconds']:.2f} s for {options.iterations} iterations, "
        f"{found['until converged']:.2f} s until converged"
    )
    if options.skweak:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "votes.npy"
            np.save(path, votes)
            command = [options.skweak, __file__, "--theirs", str(path), "--iterations", str(options.iterations)]
            out = subprocess.run(command, capture_output=True, text=True, check=False)
        if out.returncode:
            sys.exit(out.stderr)
        found["skweak"] = json.loads(out.stdout.splitlines()[-1])
        seconds = found["skweak"]["seconds"]
        print(f"skweak: {seconds:.2f} s for {options.iterations} iterations, {seconds / found['seconds']:.1f} times")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
