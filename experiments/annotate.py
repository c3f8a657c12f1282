"""Annotation campaigns with a simulated person: what questions save, and whether what is stated is true.

    python experiments/annotate.py sample              F1 on the embedded sample after 40 and 150 answers, from no label
    python experiments/annotate.py campaign CORPUS     a person's seconds to 95% of the F1 of training on everything
    python experiments/annotate.py coverage            how often the stated interval holds the true accuracy
    python experiments/annotate.py choose CORPUS       settings of the strategy, compared on held-out training data

Campaigns are played through the JSON interface, in process or (``--http``) over a server. Seconds are those of the time
model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crfkit import CRF
from crfkit.active import Strategy, TimeModel
from crfkit.annotate.documents import Document
from crfkit.annotate.project import Project
from crfkit.annotate.session import Session
from crfkit.annotate.simulation import Person, Step, in_process, over_http, play
from crfkit.data import load_corpus
from crfkit.metrics import evaluate

#: What is compared: spans of sentences; whole sentences by the best strategy; whole sentences at random.
STRATEGIES = {
    "spans": Strategy(),
    "whole": Strategy(whole=True),
    "random": Strategy(whole=True, random=True),
}
SETTINGS = {
    "entropy": Strategy(power=1.0),
    "root": Strategy(power=0.5),
    "reach": Strategy(reach=True),
    "no reach": Strategy(reach=False),
    "spread 0": Strategy(spread=0.0),
    "cover 5": Strategy(cover=5),
    "cover 40": Strategy(cover=40),
    "cover 120": Strategy(cover=120),
    "whole": Strategy(whole=True),
    "random": Strategy(whole=True, random=True),
}


def documents(X: Sequence[Sequence[Any]]) -> list[Document]:
    """Sentences as a project holds them: words with blanks between, further columns beside."""
    out = []
    for row in X:
        words = [token if isinstance(token, str) else token[0] for token in row]
        ends = np.cumsum([len(word) + 1 for word in words])
        tokens = [(int(end) - 1 - len(word), int(end) - 1) for end, word in zip(ends, words, strict=True)]
        columns = None if all(isinstance(token, str) for token in row) else [list(token[1:]) for token in row]
        out.append(Document(" ".join(words), tokens, columns))
    return out


def corpus(name: str, split: str) -> tuple[list[Any], list[list[str]]]:
    """Tokens and labels of a corpus."""
    X, y = load_corpus(name, split)
    return [list(row) for row in X], [list(row) for row in y]


class Campaign:
    """A project in a folder that goes, and a session on it."""

    def __init__(
        self, X: list[Any], y: list[list[str]], strategy: Strategy, seed: int, random_share: float, http: bool
    ) -> None:
        memory = Path("/dev/shm")  # a campaign of minutes need not survive a power cut
        self.folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        kinds = sorted({label[2:] for row in y for label in row if label != "O"})
        project = Project.create(Path(self.folder.name) / "p.crfkit-project", documents(X), labels=kinds)
        share = 0.0 if strategy.random else random_share
        self.session = Session(project, strategy=strategy, random_share=share, seed=seed, patient=True, n_jobs=1)
        self.person = Person(y, time_model=TimeModel())
        self.server: Any = None
        call = in_process(self.session)
        if http:
            import threading

            from crfkit.annotate.server import Server

            self.server = Server(self.session, port=0)
            threading.Thread(target=self.server.run, daemon=True).start()
            while not self.server.started:
                time.sleep(0.01)
            call = over_http(self.server.address("simulated"))
        self.call = call

    def steps(self, answers: int) -> Any:
        """The campaign, step by step."""
        return play(self.call, self.person, answers)

    def model(self) -> CRF:
        """The model of now, trained to its optimum on a copy."""
        with self.session.lock:
            pool = self.session.pool
            problem = pool.problem()
            assert problem is not None
            before = pool.model
            try:
                pool.model = pool.model_of(problem.layout, pool.train(problem, pool.start(problem)).w)
                return pool.estimator()
            finally:
                pool.model = before

    def close(self) -> None:
        """Ends it."""
        if self.server is not None:
            self.server.stop()
        self.session.close()
        self.folder.cleanup()


def show(step: Step, f1: float) -> str:
    """A line of a campaign."""
    kinds = f"{step.tokens:6d} tokens {step.corrections:5d} corrected {step.keys:5d} keys"
    return f"{step.answers:5d} answers {step.seconds / 3600:6.2f} h {kinds}  F1 {100 * f1:6.2f}"


def sample(seeds: int) -> None:
    """F1 on the test part of the embedded sample, after 40 and 150 answers from no label at all."""
    X, y = corpus("ingredients", "train")
    X_test, y_test = corpus("ingredients", "test")
    for name, strategy in STRATEGIES.items():
        rows = []
        for seed in range(seeds):
            campaign = Campaign(X, y, strategy, seed, 0.1, False)
            found = []
            for step in campaign.steps(150):
                if step.answers in (40, 150):
                    f1 = evaluate(y_test, campaign.model().predict(X_test)).f1
                    found += [100 * f1, step.seconds / 3600]
            rows.append(found)
            campaign.close()
        a, b, c, d = np.mean(rows, axis=0)
        print(f"{name:8s} 40 answers: F1 {a:.1f} in {b:.2f} h   150 answers: F1 {c:.1f} in {d:.2f} h", flush=True)


def held_out(name: str, seed: int, size: int) -> tuple[Any, Any, Any, Any]:
    """A pool and held-out sentences, both of the training part."""
    X, y = corpus(name, "train")
    order = np.random.default_rng([7, seed]).permutation(len(X)).tolist()
    pool, rest = order[:size], order[size : size + 800]
    return [X[i] for i in pool], [y[i] for i in pool], [X[i] for i in rest], [y[i] for i in rest]


def to_target(
    name: str, data: tuple[Any, Any, Any, Any], strategy: Strategy, seed: int, target: float, args: argparse.Namespace
) -> Step | None:
    """Plays until the target is reached; the state then, with seconds, tokens and keys interpolated."""
    X, y, X_test, y_test = data
    campaign = Campaign(X, y, strategy, seed, args.random_share, args.http)
    campaign.session.learner.learn_steps = args.steps
    last: tuple[Step, float] | None = None
    found = None
    for step in campaign.steps(args.most):
        if step.answers % args.every:
            continue
        f1 = evaluate(y_test, campaign.model().predict(X_test)).f1
        if args.verbose:
            print("   ", show(step, f1), flush=True)
        if f1 >= target:
            found = step if last is None else between(last, (step, f1), target)
            break
        last = step, f1
    campaign.close()
    return found


def between(a: tuple[Step, float], b: tuple[Step, float], target: float) -> Step:
    """Where a line between two states meets the target."""
    part = (target - a[1]) / (b[1] - a[1])
    numbers = [x + part * (y - x) for x, y in zip(a[0][:5], b[0][:5], strict=True)]
    answers, tokens, corrections, keys = (round(numbers[k]) for k in (0, 2, 3, 4))
    return Step(answers, numbers[1], tokens, corrections, keys, b[0].question, b[0].panel)


def full_f1(data: tuple[Any, Any, Any, Any]) -> float:
    """F1 of the same model trained on the whole pool."""
    X, y, X_test, y_test = data
    crf = CRF(c2=0.3, constraints="bio", max_iter=150, tol=1e-4)
    return evaluate(y_test, crf.fit(X, y).predict(X_test)).f1


def compare(name: str, strategies: dict[str, Strategy], test: bool, args: argparse.Namespace) -> None:
    """The person's seconds to the target, of each strategy, seed by seed; and their ratios."""
    seconds: dict[str, list[float]] = {key: [] for key in strategies}
    for seed in range(args.first, args.first + args.seeds):
        data = held_out(name, seed, args.pool)
        if test:
            data = (*data[:2], *corpus(name, "test"))
        full = full_f1(data)
        print(f"{name} seed {seed}: pool of {len(data[0])}, F1 of training on all {100 * full:.2f}", flush=True)
        for key, strategy in strategies.items():
            began = time.perf_counter()
            step = to_target(name, data, strategy, seed, 0.95 * full, args)
            took = f"({time.perf_counter() - began:.0f} s)"
            if step is None:
                print(f"  {key:14s} not reached {took}", flush=True)
                continue
            seconds[key].append(step.seconds)
            print(f"  {key:14s} {show(step, 0.95 * full)} {took}", flush=True)
    base = seconds.get("spans") or next(iter(seconds.values()))
    for key, found in seconds.items():
        if len(found) == len(base) and found:
            ratio = np.mean(np.array(found) / np.array(base))
            print(f"{name}: {key}: {np.mean(found) / 3600:.2f} h, {ratio:.2f} times the first", flush=True)


def coverage(args: argparse.Namespace) -> None:
    """How often the stated 90% intervals hold the true values, over many campaigns."""
    X, y = (a + b for a, b in zip(corpus(args.corpus, "train"), corpus(args.corpus, "test"), strict=True))
    rows = []
    for seed in range(args.first, args.first + args.seeds):
        pick = np.random.default_rng([11, seed]).permutation(len(X))[: args.pool].tolist()
        pool, gold = [X[i] for i in pick], [y[i] for i in pick]
        campaign = Campaign(pool, gold, Strategy(), seed, args.random_share, False)
        for step in campaign.steps(args.most):
            if step.answers % args.every:
                continue
            session = campaign.session
            stated = session.state_accuracy()
            with session.lock:
                report = evaluate(gold, session.pool.estimator().predict(pool))
            for kind, true in (("token", report.accuracy), ("f1", report.f1)):
                if stated[kind] is not None:
                    low, high, value = (stated[kind][k] for k in ("low", "high", "value"))
                    rows.append(
                        (step.answers, kind, stated["questions"], low <= true <= high, high - low, value - true)
                    )
        campaign.close()
        if (seed + 1 - args.first) % 10 == 0:
            print_coverage(rows)
    print_coverage(rows)


def print_coverage(rows: list[tuple[Any, ...]]) -> None:
    """Coverage, mean width and bias, by answers."""
    for answers, kind in sorted({row[:2] for row in rows}):
        mine = [row for row in rows if row[:2] == (answers, kind)]
        inside, width, bias = (np.mean([row[k] for row in mine]) for k in (3, 4, 5))
        questions = np.mean([row[2] for row in mine])
        head = f"{answers:5d} answers, {questions:5.1f} random, {kind:5s}: {len(mine)} campaigns"
        print(f"{head}: covered {100 * inside:5.1f}%  width {100 * width:5.1f}  bias {100 * bias:+5.2f}", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sample", "campaign", "choose", "coverage"])
    parser.add_argument("corpus", nargs="?", default="ingredients")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--pool", type=int, default=2000, help="sentences of the pool")
    parser.add_argument("--most", type=int, default=1000, help="answers at most")
    parser.add_argument("--every", type=int, default=10, help="answers between two tests")
    parser.add_argument("--steps", type=int, default=30, help="iterations of learning after an answer")
    parser.add_argument("--random-share", type=float, default=0.1)
    parser.add_argument("--only", help="strategies, with semicolons between")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.what == "sample":
        sample(args.seeds)
    elif args.what == "coverage":
        coverage(args)
    else:
        chosen = STRATEGIES if args.what == "campaign" else SETTINGS
        if args.only:
            chosen = {key: chosen[key] for key in args.only.split(";")}
        compare(args.corpus, chosen, args.what == "campaign", args)


if __name__ == "__main__":
    main()
