"""How long an iteration of L-BFGS takes on partitions: against threads, and as a model of tokens and weights.

    python benchmarks/scale.py processes [--tokens 10_000_000]  two processes of a cluster beside two threads
    python benchmarks/scale.py model [--json FILE]                fits the model of docs/scale.md, tries it on others
    python benchmarks/scale.py averaging                          what averaging over partitions costs in accuracy

With --processor, an iteration's time is the processor time of its longest way: that of the optimiser's process and that
of the busiest worker, which wait for each other; of local threads, an even share.
It still grows when others use the caches and the memory.

Data is CoNLL-2000 over and over; in every copy, one word in twenty is changed, so that the vocabulary grows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "conll2000"
TEMPLATE = (
    "U0:%x[-1,0]\nU1:%x[0,0]\nU2:%x[1,0]\nU3:%x[-1,0]|%x[0,0]\nU4:%x[0,0]|%x[1,0]\nU5:%x[0,1]\nU6:%x[-1,1]|%x[0,1]\nB"
)

#: Set by hand for the machines at hand, and for those of the extrapolation: seconds, bytes per second.
LATENCY, BANDWIDTH = 0.004, 1.0e9
FAR_LATENCY, FAR_BANDWIDTH = 0.01, 1.25e9


def part(first: int, last: int) -> tuple[Any, Any]:
    """Tokens ``first`` to ``last`` of the endless corpus, rounded to sequences."""
    from crfkit.data import Columns, read_columns

    X, y = read_columns(DATA / "train.txt")
    n = len(X.ids)
    xs, ys = [], []
    at = first
    while at < last:
        copy, begin = divmod(at, n)
        end = min(n, begin + last - at)
        cut = np.searchsorted(X.offsets, [begin, end])
        if cut[0] == cut[1]:
            break
        some = X[int(cut[0]) : int(cut[1])]
        ids, strings = some.ids.copy(), some.strings.copy()
        changed = np.flatnonzero(np.random.default_rng([copy, begin]).random(len(ids)) < (0.05 if copy else 0))
        words, where = np.unique(ids[changed, 0], return_inverse=True)
        ids[changed, 0] = np.array([strings.add(f"{strings[int(w)]}{copy}") for w in words], np.uint32)[where]
        xs.append(Columns(strings, ids, some.offsets))
        ys.append(y[int(cut[0]) : int(cut[1])])
        at += end - begin
    return Columns.concatenate(xs), Columns.concatenate(ys)


def parts(tokens: int, n: int) -> list[Any]:
    from dask import delayed

    bounds = [tokens * k // n for k in range(n + 1)]
    return [delayed(part)(a, b) for a, b in itertools.pairwise(bounds)]


class Clock:
    """A callback that notes the time of each evaluation.

    Parameters
    ----------
    threads : int
        Among which the work of this process is divided.
    client : distributed.Client, optional
        Of a cluster that does most of it.
    """

    def __init__(self, threads: int = 1, client: Any = None) -> None:
        self.threads, self.client = threads, client
        self.began = time.perf_counter(), self._spent()
        self.evaluations = 0
        self.times: list[tuple[float, dict[str, float]]] = []  # of iterations of one evaluation

    def _spent(self) -> dict[str, float]:
        """Processor seconds of all processes."""
        there = self.client.run(time.process_time) if self.client else {}
        return {**there, "": time.process_time()}

    def __call__(self, progress: Any, w: Any) -> None:
        """After an iteration."""
        ended, spent = time.perf_counter(), self._spent()
        if progress.evaluations == self.evaluations + 1:
            before = self.began[1]
            self.times.append((ended - self.began[0], {who: x - before.get(who, 0.0) for who, x in spent.items()}))
        self.evaluations = progress.evaluations
        self.began = time.perf_counter(), self._spent()

    @property
    def seconds(self) -> float:
        """The shortest time of an iteration of one evaluation: others work on this machine too."""
        return min(seconds for seconds, _ in self.times)

    @property
    def processor(self) -> float:
        """The least processor seconds: of this process, and of the worker that has most of them."""

        def longest(spent: dict[str, float]) -> float:
            return spent[""] / self.threads + max((x for who, x in spent.items() if who), default=0.0)

        return min(longest(spent) for _, spent in self.times)


@contextmanager
def cluster(n: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    how = {"n_workers": n, "threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 40}
    with LocalCluster(**how) as local, Client(local) as client:
        yield client


def run(tokens: int, n: int, min_freq: int, iterations: int) -> dict[str, Any]:
    """An iteration on n partitions of the cluster, a process each."""
    from distributed import default_client

    from crfkit import Template
    from crfkit.dask import CRF

    clock = Clock(client=default_client())
    crf = CRF(Template(TEMPLATE), min_freq=min_freq, max_iter=iterations, tol=0, callback=clock)
    crf.fit(parts(tokens, n))
    out: dict[str, Any] = {"tokens": tokens, "processes": n, "weights": len(crf.weights_)}
    out |= {"seconds": clock.seconds, "processor": clock.processor}
    print(out, flush=True)
    return out


def processes(tokens: int, iterations: int) -> None:
    from crfkit import CRF, Template

    clock = Clock(threads=2)
    X, y = part(0, tokens)
    how: dict[str, Any] = {"min_freq": 2, "max_iter": iterations, "tol": 0, "n_jobs": 2, "callback": clock}
    local = CRF(Template(TEMPLATE), **how).fit(X, y)
    del X, y
    print(f"{len(local.weights_)} weights; an iteration, and its processor seconds:")
    print(f"two threads: {clock.seconds:.3f} s, {clock.processor:.3f} s", flush=True)
    with cluster(2):
        found = run(tokens, 2, 2, iterations)
    print(f"two processes: {found['seconds']:.3f} s, {found['processor']:.3f} s")
    print(f"{found['seconds'] / clock.seconds:.2f} and {found['processor'] / clock.processor:.2f} times as long")


def terms(run: dict[str, Any], latency: float, bandwidth: float) -> tuple[np.ndarray[Any, Any], float]:
    """What the coefficients of the model are multiplied by, and what is known without them."""
    n, p, w = run["tokens"], run["processes"], run["weights"]
    hops = 2 + 2 * np.ceil(np.log2(p))  # weights out, gradients back, one after another
    return np.array([n / p, w, 1.0]), float(hops * (8 * w / bandwidth + latency))


def model(path: Path | None, clock: str) -> None:
    runs = []
    with cluster(2):
        for tokens in (500_000, 750_000, 1_000_000, 1_500_000, 2_000_000):
            runs += [run(tokens, n, min_freq, 15) for n in (1, 2) for min_freq in (0, 3)]
    held_out = [r for r in runs if r["tokens"] in (750_000, 1_500_000)]
    fitted = [r for r in runs if r not in held_out]
    rows, known = zip(*(terms(r, LATENCY, BANDWIDTH) for r in fitted), strict=True)
    seconds = np.array([r[clock] for r in fitted])
    scale = 1 / seconds  # relative errors count
    found = np.linalg.lstsq(np.array(rows) * scale[:, None], (seconds - np.array(known)) * scale, rcond=None)[0]
    print(f"{1e9 * found[0]:.1f} ns per token, {1e9 * found[1]:.2f} ns per weight, {1e3 * found[2]:.0f} ms")

    def predict(r: dict[str, Any], latency: float = LATENCY, bandwidth: float = BANDWIDTH) -> float:
        row, rest = terms(r, latency, bandwidth)
        return float(row @ found + rest)

    for r in held_out:
        r["predicted"] = predict(r)
        print(f"held out: {r}, {100 * (r['predicted'] / r[clock] - 1):+.0f}%")
    far = [
        predict({"tokens": 10**9, "processes": 100, "weights": w}, FAR_LATENCY, FAR_BANDWIDTH) for w in (10**7, 10**8)
    ]
    print(f"10^9 tokens, 100 machines of one thread: {far[0]:.1f} s (10^7 weights), {far[1]:.1f} s (10^8)")
    if path:
        path.write_text(json.dumps({"runs": runs, "coefficients": found.tolist(), "far": far}))


def averaging() -> None:
    from crfkit import CRF, Template, metrics
    from crfkit.dask import CRF as Distributed
    from crfkit.data import read_columns

    X, y = read_columns(DATA / "test.txt")
    train = read_columns(DATA / "train.txt")

    def f1(crf: Any) -> float:
        return 100 * metrics.evaluate(y, crf.predict(X)).summary()["f1"]

    for passes in (5, 10, 20):
        for n in (1, 4, 16):
            crf = Distributed(Template(TEMPLATE), algorithm="sgd", c2=0.5, max_iter=passes, tol=0, n_jobs=2)
            n_tokens = len(train.X.ids)
            found = crf.fit(parts(n_tokens, n))
            print(f"sgd, {n} partitions, {passes} passes: F1 {f1(found):.2f}", flush=True)
        one = CRF(Template(TEMPLATE), algorithm="sgd", c2=0.5, max_iter=passes, tol=0).fit(*train)
        print(f"sgd, all data in turn, {passes} passes: F1 {f1(one):.2f}", flush=True)
    print(f"L-BFGS: {f1(CRF(Template(TEMPLATE), c2=0.5, n_jobs=2).fit(*train)):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["processes", "model", "averaging"])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--processor", action="store_true", help="fit processor time, on a machine that others use too")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="training stopped after")  # on purpose
    if args.what == "processes":
        processes(args.tokens, args.iterations)
    elif args.what == "model":
        model(args.json, "processor" if args.processor else "seconds")
    else:
        averaging()


if __name__ == "__main__":
    main()
