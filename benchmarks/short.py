"""Short sequences, one at a time: taggers and estimators beside CRFsuite's, on the models of usaddress.

Each pair runs in this process in turns; medians of processor time and their ratio are printed.

    python benchmarks/short.py [--rounds 15]

needs python-crfsuite, sklearn-crfsuite and usaddress.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pycrfsuite as original
import sklearn_crfsuite as original_sklearn
import usaddress  # type: ignore[import-not-found, unused-ignore]

from crfkit.compat import pycrfsuite, sklearn_crfsuite

NUMBERS = ["12", "1600", "401B", "7", "2219"]
STREETS = ["Main", "Pennsylvania", "Martin Luther King", "Elm", "County Road 12", "State Highway 64"]
KINDS = ["St.", "Avenue", "Blvd", "Rd", "Lane", "Court"]
UNITS = ["", ", Apt 3", " Suite 200,", " # 14", ", Floor 2"]
CITIES = ["Chicago, IL 60614", "Washington DC 20500", "New York, NY 10001-1234", "Bozeman MT", "San Francisco, CA"]


def addresses(n: int) -> list[str]:
    """Made up, as people write them."""
    rng = random.Random(0)
    parts = (NUMBERS, STREETS, KINDS, UNITS, CITIES)
    return ["{} {} {}{} {}".format(*(rng.choice(part) for part in parts)) for _ in range(n)]


def compare(name: str, per: int, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> None:
    """Prints medians in microseconds for one of the things that a run does, and their ratio."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, kept in zip((theirs, ours), times, strict=True):
            began = time.thread_time()
            run()
            kept.append((time.thread_time() - began) / per * 1e6)
    a, b = (statistics.median(x) for x in times)
    print(f"{name:56} {a:9.1f} {b:9.1f} {a / b:7.2f}x", flush=True)


def sure(tagger: Any, x: Any) -> list[float]:
    """Labels, their probability, and that of each label where it stands: what callers ask of a tagger."""
    tagger.set(x)
    y = tagger.tag()
    return [tagger.probability(y), *(tagger.marginal(label, t) for t, label in enumerate(y))]


def every(tagger: Any, x: Any) -> list[float]:
    """Probability of the best labels, and of all labels everywhere."""
    tagger.set(x)
    labels = tagger.labels()
    return [tagger.probability(tagger.tag()), *(tagger.marginal(y, t) for t in range(len(x)) for y in labels)]


def main(rounds: int) -> None:
    texts = addresses(300)
    items = [usaddress.tokens2features(usaddress.tokenize(x)) for x in texts]
    path = str(Path(usaddress.__file__).parent / "usaddr.crfsuite")
    theirs, ours = original.Tagger(), pycrfsuite.Tagger()
    theirs.open(path)
    ours.open(path)
    for x in items:
        assert theirs.tag(x) == ours.tag(x)
        assert max(abs(a - b) for a, b in zip(every(theirs, x), every(ours, x), strict=True)) < 1e-9
    n = len(items)
    tokens = sum(map(len, items)) / n
    print(f"{n} addresses, {tokens:.1f} tokens each, {len(ours.labels())} labels; microseconds per address")
    print(f"{'':56} {'CRFsuite':>9} {'crfkit':>9} {'ratio':>8}")
    for name, what in (
        ("tag", None),
        ("set, tag, probability, a marginal per token", sure),
        ("... all marginals", every),
    ):

        def run(tagger: Any, what: Any = what) -> Any:
            return [tagger.tag(x) for x in items] if what is None else [what(tagger, x) for x in items]

        compare(name, n, lambda: run(theirs), lambda: run(ours), rounds)

    def probability(tagger: Any) -> None:
        for x, y in zip(items, best, strict=True):
            tagger.set(x)
            tagger.probability(y)
            for t, label in enumerate(y):
                tagger.marginal(label, t)

    best = [ours.tag(x) for x in items]
    compare("set, probability, a marginal per token", n, lambda: probability(theirs), lambda: probability(ours), rounds)

    def parse(tagger: Any) -> None:
        usaddress.TAGGER = tagger
        for x in texts:
            usaddress.parse(x)

    compare("usaddress.parse", n, lambda: parse(theirs), lambda: parse(ours), rounds)
    compare("usaddress.parse without tagging", n, lambda: features(texts), lambda: features(texts), rounds)
    windows(rounds)


def features(texts: list[str]) -> None:
    for x in texts:
        usaddress.tokens2features(usaddress.tokenize(x))


def windows(rounds: int) -> None:
    """Windows of twenty items of some thirty attributes, as gene cluster finders have them; two labels."""
    rng = random.Random(1)
    X = [
        [{f"PF{rng.randint(1, 3000):05d}": rng.random() for _ in range(rng.randint(0, 6))} for _ in range(20)]
        for _ in range(300)
    ]
    y = [[str(int(rng.random() < 0.3)) for _ in x] for x in X]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m")
        crf = original_sklearn.CRF(model_filename=path, max_iterations=20, all_possible_transitions=True).fit(X, y)
        own = sklearn_crfsuite.CRF(model_filename=path)
        assert crf.predict_marginals_single(X[0])[0].keys() == own.predict_marginals_single(X[0])[0].keys()
        compare(
            "predict_marginals_single, windows of 20",
            len(X),
            lambda: [crf.predict_marginals_single(x) for x in X],
            lambda: [own.predict_marginals_single(x) for x in X],
            rounds,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    main(parser.parse_args().rounds)
