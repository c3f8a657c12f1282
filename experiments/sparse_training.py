"""Training within beams beside exact training: learning curves, accuracy and the exact objective at the end.

    python experiments/sparse_training.py synthetic|nettalk|stress|latvian|brown [--out docs/experiments]

``synthetic``: 100 states, 50 sequences to learn from and 50 to test on, drawn from the paper's HMM with 3,000 symbols.
``nettalk``: letters to 51 phones, after a start on 12% of the words; ``stress``: phones with stress, 162 labels.
``latvian``: the Latvian treebank's xpos tags, 1,175 labels; ``brown``: the Brown corpus's tags, 461 labels. Both take
long; some of the sentences (``--sentences 1000``) have fewer labels. Seconds are of the processor, on one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import hmm
import nettalk
import numpy as np
from curves import Point, Watched

from crfkit.chain import Adaptive, FixedSize, MinDivergence, Threshold
from crfkit.data import load_corpus


def synthetic() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    model = hmm.make_hmm(100, 3000, rng)
    drawn = [hmm.draw(model, 75, rng) for _ in range(100)]
    X = [[[f"s{x}"] for x in symbols] for _, symbols in drawn]
    y = [list(states) for states, _ in drawn]
    methods = {
        "exact": None,
        "min divergence 0.5, 30": MinDivergence(0.5, 30),
        "min divergence 0.05, 4": MinDivergence(0.05, 4),
        "fixed 30": FixedSize(30),
        "threshold 5": Threshold(5.0),
        "adaptive": Adaptive(0.05, 4),
    }
    return X[:50], y[:50], X[50:], y[50:], None, 0.05, methods, None


def words(label: str) -> tuple[Any, ...]:
    methods: dict[str, Any] = {"exact": None}
    if label == "phone":
        methods |= {
            "min divergence 0.005, 10": MinDivergence(0.005, 10),
            "fixed 20": FixedSize(20),
            "threshold 6": Threshold(6.0),
        }
    else:
        methods["min divergence 0.01, 2"] = MinDivergence(0.01, 2)
    methods |= {"adaptive": Adaptive(), "sgd, exact": None}
    methods |= {"sgd, min divergence 0.1, 2": MinDivergence(0.1, 2), "sgd, adaptive": Adaptive(0.1, 1)}
    return *nettalk.corpus(label), nettalk.template(), 0.5, methods, 0.12


def tags(name: str, label: str | None) -> tuple[Any, ...]:
    train = load_corpus(name, "train", label=label)
    test = load_corpus(name, "test", label=label)
    methods: dict[str, Any] = {"exact": None, "min divergence 0.1, 3": MinDivergence(0.1, 3)}
    methods["adaptive"] = Adaptive(0.1, 3)
    methods |= {"sgd, min divergence 0.1, 2": MinDivergence(0.1, 2), "sgd, adaptive": Adaptive(0.1, 2)}
    return train.X, train.y, test.X[:1000], test.y[:1000], "auto", 0.1, methods, None


def forget_peak() -> None:
    """The peak of the memory in use begins anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> str:
    """Most memory in use since then, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return f"{int(next(line for line in lines if line.startswith('VmHWM')).split()[1]) / 1000:.0f}"


DATA: dict[str, Callable[[], tuple[Any, ...]]] = {
    "synthetic": synthetic,
    "nettalk": lambda: words("phone"),
    "stress": lambda: words("phone+stress"),
    "latvian": lambda: tags("ud_latvian_lvtb", "xpos"),
    "brown": lambda: tags("brown", None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(DATA))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "experiments")
    parser.add_argument("--max-iter", type=int, default=150, help="of L-BFGS")
    parser.add_argument("--passes", type=int, default=15, help="of SGD")
    parser.add_argument("--sentences", type=int, help="to learn from; all, if not given")
    parser.add_argument("--methods", help="some of the table's rows, with ; between them")
    arguments = parser.parse_args()
    X, y, X_test, y_test, features, c2, methods, fraction = DATA[arguments.data]()
    X, y = X[: arguments.sentences], y[: arguments.sentences]
    if arguments.methods:
        chosen = arguments.methods.split(";")
        if unknown := set(chosen) - set(methods):
            parser.error(f"there are no rows {sorted(unknown)}; the rows are {'; '.join(methods)}")
        methods = {name: methods[name] for name in chosen}
    arguments.out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, list[Point]] = {}
    found: list[dict[str, Any]] = []
    rows = [
        "| method | CPU s | iterations | accuracy | exact objective | beam at the end | peak, MB |",
        "|---" * 7 + "|",
    ]
    exactly = arguments.data in ("synthetic", "nettalk", "stress")
    for name, beam in methods.items():
        how: dict[str, Any] = {"warm_start_fraction": fraction, "max_iter": arguments.max_iter}
        if name.startswith("sgd"):
            how = {"algorithm": "sgd", "max_iter": arguments.passes}
        forget_peak()
        crf = Watched(features, c2=c2, beam=beam, random_state=0, n_jobs=1, **how)
        curves[name] = crf.learn(X, y, X_test, y_test, exactly)
        memory = peak()
        value = crf.objective(X, y).value_and_grad(np.asarray(crf.weights_))[0]
        last, beams = curves[name][-1], crf.beams_
        size = "all" if beams is None or beams.exact else f"{beams.average:.1f}"
        rows.append(
            f"| {name} | {last.seconds:.1f} | {crf.n_iter_} | {last.accuracy:.2f} | {value:.1f} | {size} | {memory} |"
        )
        print(rows[-1], flush=True)
        found.append(
            {"method": name, "seconds": last.seconds, "iterations": crf.n_iter_, "accuracy": last.accuracy}
            | {"objective": value, "beam": size, "curve": [list(point) for point in curves[name]]}
        )
    figures.keep(f"sparse_{arguments.data}", found)


if __name__ == "__main__":
    main()
