"""Training and decoding within beams beside crfkit's own exact kernels, in one run.

    python benchmarks/sparse.py [--rows nettalk,stress,latvian,viterbi,tagger] [--json FILE]

Time to accuracy: processor seconds of training until the held-out accuracy is within 0.1 points of what exact training
by L-BFGS ends at; the time of scoring held-out data is not counted. All on one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crfkit import CRF, chain
from crfkit.chain import Adaptive, MinDivergence, Potentials
from crfkit.data import load_corpus
from crfkit.training import LBFGS, BeamObjective

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
import hmm
import nettalk
from curves import Point, Watched, reached
from machine import measured

THREADS = 1


def timed(work: Callable[[], Any], repeat: int = 5) -> float:
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


class Method(NamedTuple):
    """A way to train."""

    algorithm: str = "lbfgs"
    beam: Any = None
    fraction: float | None = None
    passes: int | None = None

    def curve(self, data: tuple[Any, ...]) -> list[Point]:
        """Held-out accuracy against seconds."""
        settings: Any = {"c2": 0.5, "n_jobs": THREADS, "random_state": 0, "max_iter": self.passes}
        settings |= {"algorithm": self.algorithm, "beam": self.beam, "warm_start_fraction": self.fraction}
        return Watched(nettalk.template(), **settings).learn(*data)


def time_to_accuracy(label: str, methods: dict[str, Method]) -> dict[str, Any]:
    """Of each method."""
    data = nettalk.corpus(label)
    runs = {name: method.curve(data) for name, method in {"exact": Method(), **methods}.items()}
    goal = runs["exact"][-1].accuracy - 0.1
    out: dict[str, Any] = {"goal": goal, "runs": {}}
    exact = reached(runs["exact"], goal)
    assert exact is not None
    for name, points in runs.items():
        at = reached(points, goal)
        out["runs"][name] = {
            "seconds to goal": at,
            "of exact": None if at is None else at / exact,
            "iterations to goal": next((k for k, p in enumerate(points, 1) if p.accuracy >= goal), None),
            "whole run": points[-1].seconds,
            "final accuracy": points[-1].accuracy,
        }
    return out


def latvian() -> dict[str, Any]:
    """One pass near the optimum: value and gradient of all the data."""
    X, y = load_corpus("ud_latvian_lvtb", "train", label="xpos")
    crf = CRF(c2=0.1, n_jobs=THREADS)
    exact = crf.objective(X, y)
    w = LBFGS().minimize(exact, np.zeros(exact.size), max_iter=60, n_jobs=THREADS).w
    fulls, beams = [], {}
    for beam in (MinDivergence(0.1, 2), MinDivergence(0.03, 2), MinDivergence(0.01, 2)):
        fulls += [timed(lambda: exact.value_and_grad(w), 1) for _ in range(3)]
        choose = timed(partial(exact.choose_beams, w, beam), 3)
        watched = BeamObjective(exact, beam, w)  # all labels, where those are too large
        held = timed(lambda: exact.value_and_grad(w))
        beams[beam.text()] = choose, held, watched.measure(w)
        exact.drop_beams()
    full = statistics.median(fulls)
    out: dict[str, Any] = {"labels": exact.layout.n_labels, "tokens": exact.n_tokens, "exact": full, "beams": {}}
    for name, (choose, held, report) in beams.items():
        out["beams"][name] = {
            "average": report.average,
            "held pass": held,
            "choosing": choose,
            "of exact, held": held / full,
            "of exact, chosen every 8th pass": None if report.exact else (held + choose / 8) / full,
            "gap per token": report.gap,
            "gradient error": report.gradient_error,
        }
    return out


def every_label(p: Potentials) -> Any:
    """Exact Viterbi with all labels at each step: where something is forbidden after each of them, none is left out.

    What is forbidden is a label of its own that no path takes.
    """
    x = p.lattice
    unary = np.pad(x.unary, ((0, 0), (0, 1)), constant_values=-1e30)
    pairwise = np.pad(x.pairwise[0], ((0, 1), (0, 1)), constant_values=-np.inf)
    return chain.decode(Potentials(unary, pairwise, offsets=x.offsets), THREADS)


def decoding(p: Potentials, beams: tuple[MinDivergence, ...]) -> dict[str, Any]:
    """Exact Viterbi with all labels against that without dominated ones and against beams: time, and what differs."""
    rival = every_label(p)
    methods = {"exact": partial(chain.decode, p, THREADS)}
    methods |= {beam.text(): partial(chain.decode, p, THREADS, beam=beam) for beam in beams}
    seconds: dict[str, list[float]] = {name: [] for name in ("all labels", *methods)}
    for _ in range(5):
        for name, method in {"all labels": partial(every_label, p), **methods}.items():
            seconds[name].append(timed(method, 1))
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    out: dict[str, Any] = {"labels": p.unary.shape[1], "tokens": len(p.unary), "all labels": middle["all labels"]}
    for name, method in methods.items():
        out[name] = {
            "seconds": middle[name],
            "times faster": middle["all labels"] / middle[name],
            "sequences decoded otherwise": sum(int((a != b).any()) for a, b in zip(method(), rival, strict=True)),
            "sequences": len(rival),
        }
    return out


def viterbi(states: int = 1000) -> dict[str, Any]:
    """Sequences drawn from a hidden Markov model."""
    rng = np.random.default_rng(0)
    model = hmm.make_hmm(states, 5000, rng)
    observed = [hmm.draw(model, 75, rng)[1] for _ in range(32)]
    return decoding(hmm.potentials(model, observed, np.float32), tuple(MinDivergence(e, 4) for e in (1.0, 0.1, 0.03)))


def tagger(passes: int = 5) -> dict[str, Any]:
    """Held-out Latvian sentences, by a perceptron trained on the others."""
    train, test = (load_corpus("ud_latvian_lvtb", split, label="xpos") for split in ("train", "test"))
    crf = CRF(algorithm="ap", max_iter=passes, n_jobs=THREADS).fit(train.X, train.y)
    p = crf.potentials(test.X)
    single = Potentials(np.asarray(p.unary, np.float32), np.asarray(p.pairwise, np.float32), offsets=p.offsets)
    return decoding(single, tuple(MinDivergence(e, 2) for e in (0.1, 0.01, 0.001)))


SGD = {
    "sgd, exact": Method("sgd", passes=12),
    "sgd, min divergence 0.1, 1": Method("sgd", MinDivergence(0.1, 1), passes=12),
    "sgd, min divergence 0.1, 2": Method("sgd", MinDivergence(0.1, 2), passes=12),
    "sgd, adaptive": Method("sgd", Adaptive(0.1, 1), passes=12),
}
PHONES = {
    **SGD,
    "min divergence 0.01, 2": Method(beam=MinDivergence(0.01, 2)),
    "adaptive": Method(beam=Adaptive()),
    "adaptive, 12% start": Method(beam=Adaptive(), fraction=0.12),
}
STRESS = {
    **SGD,
    "min divergence 0.03, 1": Method(beam=MinDivergence(0.03, 1)),
    "adaptive": Method(beam=Adaptive()),
}
ROWS: dict[str, Callable[[], dict[str, Any]]] = {
    "nettalk": lambda: time_to_accuracy("phone", PHONES),
    "stress": lambda: time_to_accuracy("phone+stress", STRESS),
    "latvian": latvian,
    "viterbi": viterbi,
    "tagger": tagger,
}


def show(value: Any, indent: int = 0) -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            print(" " * indent + f"{key}")
            show(item, indent + 2)
        else:
            text = f"{item:.4g}" if isinstance(item, float) else str(item)
            print(" " * indent + f"{key:34} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="which of " + ", ".join(ROWS))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    print(measured())
    results = {}
    for row in arguments.rows.split(","):
        print(f"== {row}", flush=True)
        results[row] = ROWS[row]()
        show(results[row], 2)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
