"""How soon each optimiser gets a good chunker on CoNLL-2000, beside CRFsuite's; Hessian products; HMMs.

    python benchmarks/optimizers.py [--threads 2] [--rounds 3] [--json FILE]

The attributes are those of CRFsuite's chunking example. Seconds are those of training, from encoded data on, without
the time of scoring the held-out data after every pass; of CRFsuite, those that it reports for the shortest training
that reaches it. Beside CRFsuite's processor time stands ours: our stochastic methods run on one thread too.
"""

from __future__ import annotations

import argparse
import json
import re
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
from crfkit.training.registry import find_algorithm

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


def curve(
    algorithm: Any, passes: int, threads: int, target: float | None = TARGET, exact: bool = False
) -> list[dict[str, float]]:
    """(seconds, processor seconds of all threads, objective, F1) after every pass, until the target is reached.

    Stochastic methods report the sum of losses as each sequence was met; if ``exact``, the objective is that of the
    weights after the pass, in double precision, and from the 10th pass on only every tenth part more passes are looked
    at. Seconds are without these measurements.
    """
    X, y = read_columns(DATA / "train.txt")
    held, gold = read_columns(DATA / "test.txt")
    assert gold is not None
    crf = estimator(algorithm, threads, max_iter=passes, tol=0)
    skeleton, problem = crf._prepare(X, y, None, None, grow=True)
    objective = crf._objective(problem, training=True)
    probe = CRF(n_jobs=threads)
    true = estimator("lbfgs", threads, dtype="float64").objective(X, y) if exact else None
    began, paused = time.perf_counter(), 0.0
    began_cpu, paused_cpu = time.process_time(), 0.0
    out: list[dict[str, float]] = []

    def watch(progress: Any, w: Any) -> bool:
        nonlocal paused, paused_cpu
        if exact and out and progress.iteration < min(passes, out[-1]["pass"] * 1.1):
            return False
        now, cpu = time.perf_counter(), time.process_time()
        probe.model_ = crf._model(skeleton, w)
        f1 = metrics.evaluate(gold, probe.predict(held)).f1
        value = progress.value if true is None else true.value_and_grad(w)[0]
        spent = {"seconds": now - began - paused, "cpu": cpu - began_cpu - paused_cpu}
        out.append({"pass": progress.iteration, **spent, "value": value, "f1": f1})
        paused += time.perf_counter() - now
        paused_cpu += time.process_time() - cpu
        return target is not None and f1 >= target

    crf._minimize(objective, np.zeros(objective.size), watch)
    return out


def seconds_to(points: list[dict[str, float]], clock: str = "seconds") -> float:
    return next((p[clock] for p in points if p["f1"] >= TARGET), float("inf"))


#: Numbers of passes tried with CRFsuite, in the order of trial.
TRIED = {
    "ap": [2, 3, 4, 5, 6, 8, 10, 12, 15, 20],
    "pa": [2, 3, 4, 5, 6, 8, 10, 12, 15, 20],
    "l2sgd": [2, 3, 4, 5, 6, 8, 10, 15, 20],
    "arow": [5, 10, 20],
    "lbfgs": [40, 50, 60, 80],
}


def crfsuite() -> dict[str, float]:
    """Seconds of the shortest training of each kind that reaches the held-out score.

    They are those that CRFsuite itself reports for training, calibration included, processor time on its one thread;
    generating features and writing the model do not count, as they do not for us. Trials of a kind end when they take
    longer than the best so far.
    """
    import pycrfsuite

    X, y = read_rows(DATA / "train.txt")
    held, gold = read_rows(DATA / "test.txt")
    items = [attributes(rows) for rows in held]
    trainer = pycrfsuite.Trainer(verbose=False)
    for rows, labels in zip(X, y, strict=True):
        trainer.append(attributes(rows), labels)
    found = dict.fromkeys(TRIED, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for algorithm, tried in TRIED.items():
            trainer.select(algorithm)
            if algorithm in ("lbfgs", "l2sgd"):
                trainer.set_params({"c2": 1.0})
            for passes in tried:
                trainer.set_params({"max_iterations": passes})
                began = time.perf_counter()
                trainer.train(f"{folder}/model")
                wall = time.perf_counter() - began
                log = "".join(trainer.logparser.log).split("Storing the model")[0].split("Seconds required: ", 1)[1]
                seconds = sum(map(float, re.findall(r"^(?:Total seconds.*|Seconds required): ([\d.]+)$", log, re.M)))
                tagger = pycrfsuite.Tagger()
                tagger.open(f"{folder}/model")
                f1 = metrics.evaluate(gold, [tagger.tag(x) for x in items]).f1
                say(f"  crfsuite {algorithm}: {passes} passes, {seconds:.2f} s of {wall:.1f} s, F1 {100 * f1:.2f}")
                if f1 >= TARGET:
                    found[algorithm] = seconds
                if f1 >= TARGET or seconds > min(found.values()):
                    break
    return found


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
    rival.startprob_, rival.transmat_, rival.emissionprob_ = hmm.startprob_, hmm.transmat_, hmm.emissions_[0]
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
    cpu: dict[str, list[float]] = {}
    for k in range(options.rounds):
        for name, limit in {"lbfgs": 100, **passes}.items():
            say(f"{name}, round {k + 1} of {options.rounds}")
            points = curve(find_algorithm(name), limit, options.threads)
            times.setdefault(name, []).append(seconds_to(points))
            cpu.setdefault(name, []).append(seconds_to(points, "cpu"))
            say(
                f"  {len(points)} passes, best F1 {100 * max(p['f1'] for p in points):.2f}, {times[name][-1]:.2f} s, "
                f"processor {cpu[name][-1]:.2f} s"
            )
    ours = {name: statistics.median(x) for name, x in times.items()}
    best = min(passes, key=lambda name: ours[name])
    rows = [("seconds to F1 93.5, best stochastic / our L-BFGS", ours[best], ours["lbfgs"], 2, 5)]
    theirs: dict[str, float] = {}
    if not options.no_crfsuite:
        theirs = crfsuite()
        spent = {name: statistics.median(x) for name, x in cpu.items()}
        least = min(passes, key=lambda name: spent[name])
        rows.append(("the same, processor time / CRFsuite's best", spent[least], min(theirs.values()), 5, 20))
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
    print("processor seconds:", ", ".join(f"{name} {statistics.median(x):.2f}" for name, x in cpu.items()))
    print(
        "CRFsuite, longer than its best where not given:",
        ", ".join(f"{k} {x:.2f}" for k, x in theirs.items() if x < 1e9),
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "seconds": times,
        "cpu": cpu,
        "crfsuite": theirs,
        "hessian": [gradient, product],
        "hmm": [speed, rival],
        "rows": [list(r) for r in rows],
    }
    options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
