"""Parts of speech and chunks of CoNLL-2000, jointly with a factorial CRF and one after the other.

The pipeline tags parts of speech with a linear chain, then chunks with another one that sees the first one's tags. The
factorial CRF has both chains in one graph. Writes docs/experiments/joint.md and joint.png. Run as
``python experiments/joint.py``.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from crfkit import CRF, TokenFeatures
from crfkit.data import load_corpus
from crfkit.graph import ConvergenceWarning, FactorialCRF, Passing
from crfkit.metrics import evaluate, token_accuracy

DOCS = Path(__file__).parents[1] / "docs" / "experiments"


def split(corpus: Any, n: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Words, parts of speech and chunk labels of the first n sentences."""
    words, tags, chunks = [], [], []
    for x, y in zip(corpus.X[:n], corpus.y[:n], strict=True):
        words.append([token[0] for token in x])
        tags.append([token[1] for token in x])
        chunks.append([label if isinstance(label, str) else label[0] for label in y])
    return words, tags, chunks


def main() -> None:
    """Trains both, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[125, 250, 500])
    parser.add_argument("--test", type=int, default=300)
    parser.add_argument("--max-iter", type=int, default=30)
    parser.add_argument("--c2", type=float, default=0.3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    words_test, tags_test, chunks_test = split(load_corpus("conll2000", "test"), args.test)
    corpus = load_corpus("conll2000", "train")
    rows: list[dict[str, Any]] = []

    def record(size: int, name: str, tags: Any, chunks: Any, seconds: float) -> None:
        both = [
            a == b and c == d
            for p, q, r, s in zip(tags_test, tags, chunks_test, chunks, strict=True)
            for a, b, c, d in zip(p, q, r, s, strict=True)
        ]
        row = {
            "size": size,
            "name": name,
            "pos": token_accuracy(tags_test, tags),
            "f1": evaluate(chunks_test, chunks).f1,
            "joint": sum(both) / len(both),
            "seconds": seconds,
        }
        rows.append(row)
        print(row, flush=True)

    for size in args.sizes:
        words, tags, chunks = split(corpus, size)
        began = time.perf_counter()
        tagger = CRF(TokenFeatures(), c2=args.c2, max_iter=args.max_iter).fit(words, tags)
        seen = [list(zip(w, t, strict=True)) for w, t in zip(words, tags, strict=True)]
        chunker = CRF(TokenFeatures(), c2=args.c2, max_iter=args.max_iter).fit(seen, chunks)
        seconds = time.perf_counter() - began
        guessed = tagger.predict(words_test)
        pipeline = chunker.predict([list(zip(w, t, strict=True)) for w, t in zip(words_test, guessed, strict=True)])
        record(size, "pipeline", guessed, pipeline, seconds)

        y = [list(zip(t, c, strict=True)) for t, c in zip(tags, chunks, strict=True)]
        for name, params in (
            ("factorial, piecewise", {"objective": "piecewise"}),
            ("factorial, loopy likelihood", {"inference": "loopy"}),
        ):
            began = time.perf_counter()
            joint = FactorialCRF(
                TokenFeatures(),
                min_freq=2,
                c2=args.c2,
                max_iter=args.max_iter,
                passing=Passing(tol=1e-3, max_iter=10),
                **params,  # type: ignore[arg-type]
            ).fit(words, y)
            seconds = time.perf_counter() - began
            found = joint.predict(words_test)
            record(size, name, [[a for a, _ in s] for s in found], [[b for _, b in s] for s in found], seconds)
    write(rows, args)
    draw(rows)


def write(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """The page."""
    lines = [
        "# Parts of speech and chunks, jointly",
        "",
        "CoNLL-2000, words only: the pipeline tags parts of speech with `CRF` and chunks with a second `CRF` that sees",
        "words and the first one's tags; `FactorialCRF` has both label chains and the links between them in one graph.",
        f"`{shlex.join(['python', 'experiments/joint.py', *sys.argv[1:]])}`: the first sentences of the",
        f"training part, {args.test} of the test part, `c2={args.c2}`, at most {args.max_iter} iterations, the same",
        "features for all,",
        "of which the factorial models leave out those seen once. The whole training part has 8,936 sentences:",
        "these are small samples. One run, the same `c2` for all: a difference of a point is weak evidence.",
        "",
        "| sentences | model | POS accuracy | chunk F1 | both right | training, s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['size']} | {r['name']} | {100 * r['pos']:.2f} % | {100 * r['f1']:.2f} | {100 * r['joint']:.2f} % | "
        f"{r['seconds']:.1f} |"
        for r in rows
    ]
    lines += ["", "![Chunk F1 and tokens with both labels right, over training sentences](joint.png)", ""]
    DOCS.mkdir(parents=True, exist_ok=True)
    (DOCS / "joint.md").write_text("\n".join(lines), encoding="utf-8")


def draw(rows: list[dict[str, Any]]) -> None:
    """Scores over training sentences."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4))
    for name in dict.fromkeys(r["name"] for r in rows):
        mine = [r for r in rows if r["name"] == name]
        for ax, key in zip(axes, ("f1", "joint"), strict=True):
            ax.plot([r["size"] for r in mine], [100 * r[key] for r in mine], "o-", label=name)
    axes[0].set_title("chunk F1")
    axes[1].set_title("tokens with both labels right, %")
    for ax in axes:
        ax.set_xlabel("training sentences")
        ax.legend()
    fig.tight_layout()
    fig.savefig(DOCS / "joint.png", dpi=80)


if __name__ == "__main__":
    main()
