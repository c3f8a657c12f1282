"""Parts of speech and chunks of CoNLL-2000, jointly with a factorial CRF and one after the other.

The pipeline tags parts of speech with a linear chain, then chunks with another one that sees the first one's tags. The
factorial CRF has both chains in one graph. The penalty of every model is chosen on the last fifth of the smaller training
samples. Writes docs/experiments/joint.md and joint.png. Run as ``python experiments/joint.py``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crfkit import CRF, TokenFeatures
from crfkit.data import load_corpus
from crfkit.graph import ConvergenceWarning, FactorialCRF, Passing
from crfkit.metrics import evaluate, token_accuracy

DOCS = Path(__file__).parents[1] / "docs" / "experiments"


class Part(NamedTuple):
    """Words, parts of speech and chunk labels of sentences."""

    words: list[list[str]]
    tags: list[list[str]]
    chunks: list[list[str]]

    def cut(self, begin: int, end: int) -> Part:
        """Some of the sentences."""
        return Part(*(column[begin:end] for column in self))


Tagged = tuple[list[Any], list[Any]]
Model = Callable[[Part, Part, float, int], Tagged]


def load(split: str) -> Part:
    """A part of the corpus."""
    corpus = load_corpus("conll2000", split)
    columns = [[[token[k] for token in x] for x in corpus.X] for k in (0, 1)]
    chunks = [[label if isinstance(label, str) else label[0] for label in y] for y in corpus.y]
    return Part(columns[0], columns[1], chunks)


def joined(words: list[Any], tags: list[Any]) -> list[Any]:
    """Tokens of two columns."""
    return [list(zip(w, t, strict=True)) for w, t in zip(words, tags, strict=True)]


def pipeline(train: Part, test: Part, c2: float, max_iter: int) -> Tagged:
    """Two linear chains, the second one on the first one's tags."""
    tagger = CRF(TokenFeatures(), c2=c2, max_iter=max_iter).fit(train.words, train.tags)
    chunker = CRF(TokenFeatures(), c2=c2, max_iter=max_iter).fit(joined(train.words, train.tags), train.chunks)
    tags = tagger.predict(test.words)
    return tags, chunker.predict(joined(test.words, tags))


def factorial(**params: Any) -> Model:
    """Both in one graph."""

    def tag(train: Part, test: Part, c2: float, max_iter: int) -> Tagged:
        model = FactorialCRF(TokenFeatures(), c2=c2, max_iter=max_iter, **params)
        found = model.fit(train.words, joined(train.tags, train.chunks)).predict(test.words)
        return [[a for a, _ in s] for s in found], [[b for _, b in s] for s in found]

    return tag


LOOPY = Passing(tol=1e-3, max_iter=10)
MODELS: dict[str, Model] = {
    "pipeline": pipeline,
    "factorial, piecewise": factorial(objective="piecewise", decoding="exact"),
    "factorial, loopy likelihood": factorial(inference="loopy", decoding="exact", passing=LOOPY),
    "factorial, exact likelihood": factorial(),
    "factorial, exact likelihood, tag links to two chunks": factorial(links=(0, -1)),
}


def both_right(test: Part, found: Tagged) -> float:
    """Part of the tokens with both labels right."""
    rows = zip(joined(test.tags, test.chunks), joined(*found), strict=True)
    right = [a == b for gold, guess in rows for a, b in zip(gold, guess, strict=True)]
    return sum(right) / len(right)


def main() -> None:
    """Trains all models, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 2000, 8936])
    parser.add_argument("--tune", type=int, default=2000, help="most sentences that c2 is chosen on")
    parser.add_argument("--c2", type=float, nargs="*", default=[0.1, 0.3, 1.0])
    parser.add_argument("--models", type=int, nargs="*", default=list(range(len(MODELS))))
    parser.add_argument("--max-iter", type=int, default=80)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    train, test = load("train"), load("test")
    rows: list[dict[str, Any]] = []
    models = [list(MODELS.items())[k] for k in args.models]
    for name, model in models:
        chosen = 0.0
        for size in sorted(args.sizes):
            if size <= args.tune:
                cut = size * 4 // 5
                scores = {}
                for c2 in args.c2:
                    held = train.cut(cut, size)
                    scores[c2] = both_right(held, model(train.cut(0, cut), held, c2, args.max_iter))
                chosen = max(scores, key=lambda c2: scores[c2])
                print(size, name, {c2: round(100 * s, 2) for c2, s in scores.items()}, flush=True)
            wall, cpu = time.perf_counter(), time.process_time()
            tags, chunks = model(train.cut(0, size), test, chosen, args.max_iter)
            row = {
                "size": size,
                "name": name,
                "c2": chosen,
                "pos": token_accuracy(test.tags, tags),
                "f1": evaluate(test.chunks, chunks).f1,
                "joint": both_right(test, (tags, chunks)),
                "seconds": time.perf_counter() - wall,
                "cpu": time.process_time() - cpu,
            }
            rows.append(row)
            print(row, flush=True)
    rows.sort(key=lambda r: r["size"])
    write(rows, args)
    draw(rows)


if __name__ == "__main__":
    main()
