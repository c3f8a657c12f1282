"""What a gazetteer of a million phrases costs: tagging CoNLL-2000 with and without it, in one run.

    python benchmarks/gazetteer.py [--phrases N] [--dense] [--repeat N] [--json FILE]

Phrases have one to four words. Those of several words are drawn from the corpus by their frequency, so that phrases
begin at nearly every token, and half of them have a made-up word; those of one word are capitalised words of the corpus
and made-up ones. With ``--dense`` all words are drawn by frequency, and nearly all tokens are in phrases. Both models
have the token features of the words alone. The test file is tagged from text to text on one thread, twice in a row;
figures are medians of interleaved runs, in processor time.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from crfkit import CRF, Gazetteer, TokenFeatures, load
from crfkit.data import read_columns
from crfkit.model.streaming import tag_columns

sys.path.insert(0, str(Path(__file__).parent))
from entropy import DATA, interleaved


def phrases(words: list[str], n: int, dense: bool) -> list[str]:
    """Phrases of words in the text, and of words that are not."""
    rng = random.Random(0)
    names = sorted({word for word in words if word[0].isupper()})
    out: set[Any] = set()
    while len(out) < n:
        size = rng.choice((1, 2, 2, 2, 3, 3, 4))
        drawn = rng.choices(words if dense or size > 1 else names, k=size)
        if len(out) % 2:
            drawn[rng.randrange(len(drawn))] = f"Q{rng.randrange(n):x}"
        out.add(" ".join(drawn))
    return sorted(out)


def seconds(call: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phrases", type=int, default=1_000_000)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=10, help="of training; tagging takes as long after more")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    X, y = read_columns(DATA / "train.txt", columns=[0])
    assert y is not None
    words = [word for x in X for word in x]
    made, gazetteer = seconds(lambda: Gazetteer(phrases(words, options.phrases, options.dense)))
    marked = sum(mark is not None for x in X for mark in gazetteer.marks(x))
    text = "".join("".join(f"{word}\n" for word in x) + "\n" for x in read_columns(DATA / "test.txt", columns=[0]).X)
    text_bytes = 2 * text.encode()
    figures: dict[str, Any] = {"phrases": len(gazetteer), "share of tokens in phrases": round(marked / len(words), 3)}
    models: dict[str, Any] = {}
    folder = Path(__file__).parents[1] / "build"
    folder.mkdir(exist_ok=True)
    for name, lists in (("without", None), ("with", {"list": gazetteer})):
        crf = CRF(TokenFeatures(gazetteers=lists), max_iter=options.iterations, n_jobs=1).fit(X, y)
        path = folder / f"gazetteer-{name}.crf"
        crf.save(path)
        figures[f"{name}: megabytes of the model"] = round(path.stat().st_size / 1e6, 1)
        took, models[name] = seconds(lambda path=path: load(path, n_jobs=1))
        figures[f"{name}: seconds to load"] = round(took, 2)
        path.unlink()

    def tag(name: str) -> int:
        return sum(piece.tokens for piece in tag_columns(models[name].model_, io.BytesIO(text_bytes), n_jobs=1))

    tokens = tag("with")
    times = interleaved({name: partial(tag, name) for name in models}, options.repeat)
    for name, found in times.items():
        figures[f"{name}: tokens a second"] = round(tokens / found)
    figures["time with it over time without"] = round(times["with"] / times["without"], 3)
    figures["seconds to make the gazetteer, with its phrases"] = round(made, 2)
    for name, figure in figures.items():
        print(f"{name:50} {figure}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
