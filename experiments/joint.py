"""Parts of speech and chunks of CoNLL-2000, jointly with a factorial CRF and one after the other.

The pipeline tags parts of speech with a linear chain, then chunks with another one that sees the first one's tags. The
factorial CRF has both chains in one graph. The penalty of every model is chosen on the last fifth of a training sample.
Writes docs/experiments/joint.md and joint.svg. Run as ``python experiments/joint.py``.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import figures
from machine import date
from sklearn.exceptions import ConvergenceWarning

from crfkit import CRF, TokenFeatures
from crfkit.data import load_corpus
from crfkit.graph import FactorialCRF, Inference
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


def pipeline(**params: Any) -> Model:
    """Two linear chains, the second one on the first one's tags."""

    def tag(train: Part, test: Part, c2: float, max_iter: int) -> Tagged:
        tagger = CRF(TokenFeatures(), c2=c2, max_iter=max_iter, **params).fit(train.words, train.tags)
        seen = joined(train.words, train.tags)
        chunker = CRF(TokenFeatures(), c2=c2, max_iter=max_iter, **params).fit(seen, train.chunks)
        tags = tagger.predict(test.words)
        return tags, chunker.predict(joined(test.words, tags))

    return tag


def factorial(**params: Any) -> Model:
    """Both in one graph."""

    def tag(train: Part, test: Part, c2: float, max_iter: int) -> Tagged:
        model = FactorialCRF(TokenFeatures(), c2=c2, max_iter=max_iter, **params)
        found = model.fit(train.words, joined(train.tags, train.chunks)).predict(test.words)
        return [[a for a, _ in s] for s in found], [[b for _, b in s] for s in found]

    return tag


ALL: dict[str, Any] = {"min_freq": 2, "all_possible_states": True}
LOOPY = Inference("loopy", tol=1e-3, max_iter=10)
MODELS: dict[str, Model] = {
    "pipeline": pipeline(),
    "pipeline, all pairs": pipeline(all_possible_states=True),
    "factorial, piecewise": factorial(loss="piecewise", decoding="exact", **ALL),
    "factorial, loopy": factorial(inference=LOOPY, decoding="exact", **ALL),
    "factorial, exact": factorial(**ALL),
    "factorial, exact, two links": factorial(links=(0, 1), **ALL),
    "factorial, exact, seen pairs": factorial(),
}


def both_right(test: Part, found: Tagged) -> float:
    """Part of the tokens with both labels right."""
    rows = zip(joined(test.tags, test.chunks), joined(*found), strict=True)
    right = [bool(a == b) for gold, guess in rows for a, b in zip(gold, guess, strict=True)]
    return sum(right) / len(right)


def run(name: str, train: Part, test: Part, c2: float, max_iter: int) -> tuple[Tagged, dict[str, float]]:
    """Labels by a model, and what they cost; in a process of its own, so that its memory can be told."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    cpu = time.process_time()
    found = MODELS[name](train, test, c2, max_iter)
    return found, {
        "cpu": time.process_time() - cpu,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    """Trains all models, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 2000, 8936])
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--tune", type=int, default=1000, help="sentences that c2 is chosen on")
    parser.add_argument("--c2", type=float, nargs="*", default=[0.1, 0.3])
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--not-largest", nargs="*", choices=list(MODELS), default=[], help="not at the largest size")
    args = parser.parse_args()
    train, test = load("train"), load("test")
    rows: list[dict[str, Any]] = []
    cut = args.tune * 4 // 5
    held = train.cut(cut, args.tune)
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as pool:
        for name in args.models:
            scores = {}
            for c2 in args.c2:
                found, _ = pool.submit(run, name, train.cut(0, cut), held, c2, args.max_iter).result()
                scores[c2] = both_right(held, found)
            print(name, {c: round(100 * s, 2) for c, s in scores.items()}, flush=True)
            c2 = max(scores, key=lambda c: scores[c])
            for size in args.sizes:
                if name in args.not_largest and size == max(args.sizes):
                    continue
                found, cost = pool.submit(run, name, train.cut(0, size), test, c2, args.max_iter).result()
                row = {
                    "size": size,
                    "name": name,
                    "c2": c2,
                    "pos": token_accuracy(test.tags, found[0]),
                    "f1": evaluate(test.chunks, found[1]).f1,
                    "joint": both_right(test, found),
                    **cost,
                }
                rows.append(row)
                print(row, flush=True)
            ordered = sorted(rows, key=lambda r: r["size"])
            write(ordered, args)
            figures.keep("joint", ordered)


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Who wins, size by size."""
    lines = []
    for size in sorted({r["size"] for r in rows}):
        mine = [r for r in rows if r["size"] == size]
        best = [max(mine, key=itemgetter(key))["name"] for key in ("joint", "f1")]
        names = " and ".join(f"*{name}*" for name in dict.fromkeys(best))
        line = f"- {size:,} sentences: {names} wins."
        sides = [[r for r in mine if r["name"].startswith(side)] for side in ("factorial", "pipeline")]
        if all(sides):
            ahead = {
                k: 100 * (max(r[k] for r in sides[0]) - max(r[k] for r in sides[1])) for k in ("pos", "f1", "joint")
            }
            line += (
                f" The best factorial model against the best pipeline: {ahead['pos']:+.2f} points of POS accuracy,"
                f" {ahead['f1']:+.2f} of chunk F1, {ahead['joint']:+.2f} of both right."
            )
        lines.append(line)
    return lines


def write(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """The page."""
    pipeline = {r["size"]: r["cpu"] for r in rows if r["name"] == "pipeline"}
    lines = [
        "# Parts of speech and chunks, jointly",
        "",
        f"CoNLL-2000, words only: `{shlex.join(['python', 'experiments/joint.py', *sys.argv[1:]])}`, {date()}.",
        "",
        "- The pipeline tags parts of speech with `CRF` and chunks with a second `CRF` that sees words and tags:",
        "  their values, pairs and triples in a window of five tokens. It is trained on true tags, tested on the",
        "  tagger's.",
        "- `FactorialCRF` has both label chains in one graph, connected at each token by one table; with two links, a",
        "  tag is also connected to the chunk label of the next token. A chunk label sees tags only through these",
        "  tables.",
        "",
        "All see the same features of the words. The pipeline has weights for (feature, label) pairs seen in training;",
        "the pipeline with all pairs and the factorial models have weights for all pairs, the latter without features",
        "seen once. `c2` is chosen for every model by the fraction of tokens with both",
        f"labels right, from {', '.join(map(str, args.c2))}: trained on four fifths of the first {args.tune:,}",
        "training sentences, tested on the last fifth of them. At most",
        f"{args.max_iter} iterations; exact decoding of the whole test set. Time is CPU time of training and tagging",
        "together, relative to the pipeline's with as many sentences; memory is the peak.",
        "",
        "| sentences | model | c2 | POS accuracy | chunk F1 | both right | relative time | GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['size']:,} | {r['name']} | {r['c2']:g} | {100 * r['pos']:.2f} % | {100 * r['f1']:.2f} | "
        f"{100 * r['joint']:.2f} % | {r['cpu'] / pipeline[r['size']]:.1f} | {r['gigabytes']:.2f} |"
        for r in rows
    ]
    lines += ["", *verdict(rows), ""]
    lines += [
        "Exact likelihood is far better than piecewise training. The pipeline's chunker sees tags, pairs and triples",
        "of tags around the token; the factorial model has one or two tables of a tag and a chunk label, which is a",
        "likely reason for the difference. Links to the tags on both sides would make the largest clique 22 times as",
        "large.",
        "",
    ]
    lines += ["![Errors of POS tags, chunks and both, for each model and number of training sentences](joint.svg)", ""]
    DOCS.mkdir(parents=True, exist_ok=True)
    (DOCS / "joint.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
