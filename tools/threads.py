"""Runs everything that works on several threads, on data that gives all of them something to do.

    python tools/sanitize.py thread -- python tools/threads.py

With the thread sanitizer, the first race ends the process with its report and exit code 66.
"""

from __future__ import annotations

import io
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from crfkit import CRF, HMM, MEMM, chain
from crfkit.data import load_corpus
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
from crfkit.model.streaming import tag_columns

THREADS = 4


def drivers() -> dict[str, Callable[[], Any]]:
    """What to run, by name."""
    X, y = (list(x) for x in load_corpus("ingredients"))
    many, labels = X * 12, y * 12  # some blocks for each thread
    rng = np.random.default_rng(0)
    batch = [chain.Potentials(rng.normal(size=(n, 5)), rng.normal(size=(5, 5))) for n in rng.integers(1, 60, 400)]
    p = chain.Potentials.batch(batch)
    quick: dict[str, Any] = {"n_jobs": THREADS, "max_iter": 2}
    crf = CRF(**quick).fit(many, labels)
    text = "\n".join("\n".join(f"{word} x" for word in row) + "\n" for row in X * 40).encode()
    stream = CRF(**quick).fit([[(word, "x") for word in row] for row in X], y)
    graphs = [(rng.normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3)]) for _ in range(200)]
    of_graphs = [rng.integers(0, 3, 4) for _ in graphs]
    pairs = [[(label, label[0]) for label in row] for row in y]

    def at_once() -> None:
        """Threads of Python that share a model."""
        threads = [threading.Thread(target=crf.predict_marginals, args=(X[k::8],)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    out: dict[str, Callable[[], Any]] = {
        "predict": lambda: crf.predict(many),
        "marginals": lambda: crf.predict_marginals(many),
        "nbest": lambda: crf.predict_nbest(X, 3),
        "entities": lambda: crf.predict_entities(X, threshold=0.1),
        "stream": lambda: sum(part.tokens for part in tag_columns(stream.model_, io.BytesIO(text), n_jobs=THREADS)),
        "at once": at_once,
        "hmm": lambda: HMM(n_jobs=THREADS, max_iter=2).fit(many, labels).predict(many),
        "memm": lambda: MEMM(**quick).fit(many, labels).predict(many),
        "skip-chain": lambda: SkipChainCRF(**quick).fit(X, y).predict(X),
        "factorial": lambda: FactorialCRF(**quick).fit(X[:60], pairs[:60]).predict(X[:60]),
        "graph": lambda: GraphCRF(**quick).fit(graphs, of_graphs).predict(graphs),
        "chain.marginals": lambda: chain.marginals(p, n_jobs=THREADS, pairs=True),
        "chain.decode": lambda: chain.decode(p, n_jobs=THREADS),
        "chain.sample": lambda: chain.sample(p, 3, 0, n_jobs=THREADS),
        "chain.nbest": lambda: chain.nbest(p, 3, n_jobs=THREADS),
        "chain.entropy_gradient": lambda: chain.entropy_gradient(p, n_jobs=THREADS),
        "chain beams": lambda: chain.marginals(p, n_jobs=THREADS, beam=chain.FixedSize(2)),
    }
    for name in ("lbfgs", "newton-cg", "sgd", "sag", "arow"):
        out[name] = lambda name=name: CRF(algorithm=name, **quick).fit(many, labels)
    out["lbfgs, c1"] = lambda: CRF(c1=0.1, **quick).fit(many, labels)
    out["beams"] = lambda: CRF(beam="min-divergence:0.1:2", **quick).fit(many, labels)
    out["entropy"] = lambda: CRF(entropy_weight=0.1, **quick).fit(
        many, [*labels[: len(labels) // 2], *[None] * (len(labels) - len(labels) // 2)]
    )
    return out


def main() -> None:
    """Runs those that are named, or all."""
    warnings.simplefilter("ignore")
    found = drivers()
    for name in sys.argv[1:] or found:
        found[name]()
        print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
