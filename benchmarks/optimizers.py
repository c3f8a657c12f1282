"""How soon each optimiser gets a good chunker on CoNLL-2000, beside CRFsuite's; Hessian products; HMMs.

    python benchmarks/optimizers.py [--threads 2] [--rounds 3] [--json FILE]

The attributes are those of CRFsuite's chunking example. Seconds are those of training, from encoded data on, without
the time of scoring the held-out data after every pass; of CRFsuite, those of the shortest training that reaches it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from conll2000 import DATA, attributes, read_rows, template_text

from crfkit import CRF, HMM, Template, metrics
from crfkit.data import read_columns
from crfkit.training.algorithms import find_algorithm

TARGET = 0.935


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def estimator(algorithm: Any, threads: int, **options: Any) -> CRF:
    return CRF(
        Template(template_text(), padding=False),
        c2=1.0,
        all_possible_transitions=False,
        start_end=False,
        n_jobs=threads,
        algorithm=algorithm,
        **options,
    )


def curve(algorithm: Any, passes: int, threads: int, target: float | None = TARGET) -> list[dict[str, float]]:
    """(seconds, objective, F1) after every pass, until the target is reached."""
    X, y = read_columns(DATA / "train.txt")
    held, gold = read_columns(DATA / "test.txt")
    assert gold is not None
    crf = estimator(algorithm, threads, max_iter=passes, tol=0)
    encoder, labels, layout, rules, objective = crf._prepare(X, y, None, None, grow=True)
    probe = CRF(n_jobs=threads)
    began, paused = time.perf_counter(), 0.0
    out: list[dict[str, float]] = []

    def watch(progress: Any, w: Any) -> bool:
        nonlocal paused
        now = time.perf_counter()
        probe._adopt(crf._make_model(encoder, labels, layout, w, rules, np.dtype(np.float32), {}))
        f1 = metrics.evaluate(gold, probe.predict(held)).f1
        out.append({"pass": progress.iteration, "seconds": now - began - paused, "value": progress.value, "f1": f1})
        paused += time.perf_counter() - now
        return target is not None and f1 >= target

    crf._minimize(objective, np.zeros(layout.size), watch, None)
    return out


def seconds_to(points: list[dict[str, float]]) -> float:
    return next((p["seconds"] for p in points if p["f1"] >= TARGET), float("inf"))


def crfsuite(algorithm: str, limit: int) -> float:
    """Seconds of the shortest training that reaches the held-out score."""
    import pycrfsuite

    X, y = read_rows(DATA / "train.txt")
    held, gold = read_rows(DATA / "test.txt")
    items = [attributes(rows) for rows in held]
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for rows, labels in zip(X, y, strict=True):
        trainer.append(attributes(rows), labels)
    low, high = 0, limit
    best = float("inf")
    tried = {"lbfgs": [50, 60, 80], "l2sgd": [5, 10, 20], "ap": [5, 10, 20], "pa": [3, 6, 12], "arow": [3, 6, 12]}[
        algorithm
    ]
    with tempfile.TemporaryDirectory() as folder:
        for passes in [p for p in tried if low < p <= high]:
            trainer.set_params({"max_iterations": passes})
            if algorithm in ("lbfgs", "l2sgd"):
                trainer.set_params({"c2": 1.0})
            began = time.perf_counter()
            trainer.train(f"{folder}/model")
            seconds = time.perf_counter() - began
            tagger = pycrfsuite.Tagger()
            tagger.open(f"{folder}/model")
            f1 = metrics.evaluate(gold, [tagger.tag(x) for x in items]).f1
            say(f"  crfsuite {algorithm}: {passes} passes, {seconds:.1f} s, F1 {100 * f1:.2f}")
            if f1 >= TARGET:
                best = seconds
                break
    return best


def hessian(threads: int, times: int = 9) -> tuple[float, float]:
    """Seconds of a gradient and of a Hessian product, medians."""
    f = estimator("lbfgs", threads).objective(*read_columns(DATA / "train.txt"))
    rng = np.random.default_rng(0)
    w, v = 0.1 * rng.normal(size=f.size), rng.normal(size=f.size)
    g = np.empty(f.size)
    f.hessian_product(w, v)
    f.value_and_grad(w, g)
    a, b = [], []
    for _ in range(times):
        t = time.perf_counter()
        f.value_and_grad(w, g)
        a.append(time.perf_counter() - t)
        t = time.perf_counter()
        f.hessian_product(w, v)
        b.append(time.perf_counter() - t)
    return statistics.median(a), statistics.median(b)


def hidden(threads: int) -> tuple[float, float]:
    """Tokens per second of fitting and tagging with HMM, and of hmmlearn's decoding of the same model."""
    from hmmlearn.hmm import CategoricalHMM

    X, y = read_columns(DATA / "train.txt")
    held, _ = read_columns(DATA / "test.txt")
    X, held = X.select([1]), held.select([1])  # the part-of-speech column
    ours = []
    for _ in range(3):
        began = time.perf_counter()
        hmm = HMM(n_jobs=threads).fit(X, y)
        tags = hmm.predict(held)
        ours.append(time.perf_counter() - began)
    n = int(X.lengths.sum() + held.lengths.sum())
    words = {word: k for k, word in enumerate(hmm.vocabulary_[0])}
    rival = CategoricalHMM(n_components=len(hmm.classes_), init_params="", params="")
    rival.startprob_, rival.transmat_, rival.emissionprob_ = hmm.start_, hmm.transitions_, hmm.emissions_[0]
    rival.n_features = len(words) + 1
    flat = np.array([[words.get(word, len(words))] for s in held for word in s])
    theirs = []
    for _ in range(3):
        began = time.perf_counter()
        _, states = rival.decode(flat, lengths=held.lengths.tolist())
        theirs.append(time.perf_counter() - began)
    same = np.mean([a == hmm.classes_[b] for a, b in zip([t for s in tags for t in s], states, strict=True)])
    say(f"  the two decodings agree on {100 * same:.2f} % of the tokens")
    return n / statistics.median(ours), len(flat) / statistics.median(theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-crfsuite", action="store_true")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "optimizers.json")
    options = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"no data at {DATA}; set CRFKIT_DATA")
    passes = {"sgd": 10, "ap": 20, "pa": 20, "arow": 20, "adagrad": 10}
    times: dict[str, list[float]] = {}
    for k in range(options.rounds):
        for name, limit in {"lbfgs": 100, **passes}.items():
            say(f"{name}, round {k + 1} of {options.rounds}")
            points = curve(find_algorithm(name), limit, options.threads)
            times.setdefault(name, []).append(seconds_to(points))
            say(f"  {len(points)} passes, best F1 {100 * max(p['f1'] for p in points):.2f}, {times[name][-1]:.2f} s")
    ours = {name: statistics.median(x) for name, x in times.items()}
    best = min(passes, key=lambda name: ours[name])
    rows = [("seconds to F1 93.5, best stochastic / our L-BFGS", ours[best], ours["lbfgs"], 2, 5)]
    if not options.no_crfsuite:
        theirs = {name: crfsuite(name, 100) for name in ("lbfgs", "l2sgd", "ap", "pa", "arow")}
        rows.append(("the same / CRFsuite's best", ours[best], min(theirs.values()), 5, 20))
    gradient, product = hessian(options.threads)
    speed, rival = hidden(options.threads)
    print(f"{'':52} {'crfkit':>12} {'other':>12} {'ratio':>7}  must  aim")
    for what, a, b, must, aim in rows:
        print(f"{what:52} {a:12.3f} {b:12.3f} {b / a:6.1f}x {must:4g}x {aim:3g}x")
    print(
        f"{'Hessian product / gradient, s':52} {product:12.4f} {gradient:12.4f} {product / gradient:6.1f}x   <2x <1.5x"
    )
    print(
        f"{'HMM fit, tag / hmmlearn decode, tokens/s':52} {speed:12.0f} {rival:12.0f} {speed / rival:6.1f}x    5x  20x"
    )
    print("seconds to F1 93.5:", ", ".join(f"{name} {x:.2f}" for name, x in ours.items()))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"seconds": times, "hessian": [gradient, product], "hmm": [speed, rival], "rows": [list(r) for r in rows]}
    options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
