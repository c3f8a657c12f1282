"""An iteration of L-BFGS beside Wapiti's, on data as GROBID has it: made up, but alike in columns and templates.

Both commands train on the same files with the same options, in turns; the median of an iteration's seconds, as each
prints them, and the objectives are compared. Wapiti's iterations hold the labelling of the training data for the error
rates that they print, and so do those of ``crfkit-wapiti``.

    python benchmarks/wapiti.py [--wapiti PATH] [--threads 2] [--iterations 30] [--rounds 3] [--rho1 0.5]
    python benchmarks/wapiti.py --write FOLDER                              (only the data and the patterns)

Wapiti is looked for in PATH. The source lies in the package libwapiti:

    pip download --no-binary :all: --no-deps libwapiti && tar xf libwapiti-*.tar.gz
    make -C libwapiti-*/cwapiti wapiti
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FIELDS = ("title", "author", "affiliation", "address", "email", "abstract", "keyword", "reference")
#: Words that a document has of each field, at least and at most.
LENGTHS = ((5, 16), (4, 14), (6, 20), (4, 10), (1, 4), (60, 140), (4, 12), (15, 50))
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
MARKS = {",": "COMMA", ".": "DOT", "-": "HYPHEN", "(": "OPENBRACKET", ")": "ENDBRACKET"}


def words_of(rng: random.Random, n: int) -> list[str]:
    """Made-up words, the short ones first."""
    weights = [1 / (k + 3) for k in range(len(LETTERS))]
    out = dict.fromkeys("".join(rng.choices(LETTERS, weights, k=rng.randint(2, 4 + k // 400))) for k in range(n))
    return list(out)


class Row(NamedTuple):
    """A token: its columns without the label, and the label."""

    columns: list[str]
    label: str


def token(word: str, line: str, block: str, size: int, place: int) -> list[str]:
    """The 25 columns of a word: itself, affixes, layout, case, lists it is in, and its place."""
    lower = word.lower()
    digits = sum(c.isdigit() for c in word)
    case = "ALLCAP" if word.isupper() else "INITCAP" if word[0].isupper() else "NOCAPS"
    number = "NODIGIT" if not digits else "ALLDIGIT" if digits == len(word) else "CONTAINSDIGITS"
    lists = [str(int(hash_of(lower, k) % 11 == 0)) for k in range(6)]
    return [
        *(word, lower),
        *(word[: k + 1] for k in range(4)),
        *(word[-k - 1 :] for k in range(4)),
        *(block, line, f"f{size}", str(int(size > 4)), str(int(size % 2))),
        *(case, number, str(int(len(word) == 1))),
        *lists,
        str(place) if word not in MARKS else MARKS[word],
    ]


def hash_of(word: str, k: int) -> int:
    """A number that is the same in every run."""
    total = k + 7
    for c in word:
        total = (total * 31 + ord(c)) % 1_000_003
    return total


def document(rng: random.Random, vocabulary: list[str], ranks: Iterator[int]) -> list[Row]:
    """The fields of a document in their order, some left out; each field prefers words of its own."""
    rows: list[Row] = []
    for f, (field, (least, most)) in enumerate(zip(FIELDS, LENGTHS, strict=True)):
        if rng.random() < 0.2:
            continue
        size, n = rng.choice((3, 4, 5, 6)) + (f == 0), rng.randint(least, most)
        for t in range(n):
            rank = next(ranks)
            own = rng.random() < 0.5  # of the field
            word = vocabulary[(rank * 8 + f) % len(vocabulary) if own else rank]
            if rng.random() < 0.12:
                word = rng.choice(list(MARKS))
            elif rng.random() < (0.6 if f in (1, 2, 3) else 0.1):
                word = word.capitalize()
            elif rng.random() < (0.3 if f in (3, 7) else 0.03):
                word = str(rng.randint(1, 2020))
            line = "LINESTART" if t % 9 == 0 else "LINEEND" if t % 9 == 8 else "LINEIN"
            block = "BLOCKSTART" if t == 0 else "BLOCKEND" if t == n - 1 else "BLOCKIN"
            label = f"I-<{field}>" if t == 0 else f"<{field}>"
            rows.append(Row(token(word, line, block, size, min(11, len(rows) // 20)), label))
    return rows


def make_data(tokens: int, seed: int) -> str:
    """Documents of the wanted number of tokens, or a few more."""
    rng = random.Random(seed)
    vocabulary = words_of(rng, 7000)
    frequencies = [1 / (k + 2) for k in range(len(vocabulary))]
    ranks = iter(rng.choices(range(len(vocabulary)), frequencies, k=2 * tokens))
    lines: list[str] = []
    n = 0
    while n < tokens:
        rows = document(rng, vocabulary, ranks)
        lines += [" ".join([*row.columns, row.label]) for row in rows] + [""]
        n += len(rows)
    return "\n".join(lines) + "\n"


def patterns() -> str:
    """Sixty: words and their neighbours, affixes, flags alone and in pairs; and the pairs of labels."""
    out = [f"%x[{k},0]" for k in range(-2, 3)]
    out += ["%x[-1,0]/%x[0,0]", "%x[0,0]/%x[1,0]"]
    out += [f"%x[{k},1]" for k in (-1, 0, 1)]
    out += [f"%x[0,{c}]" for c in range(2, 25)]
    out += [f"%x[{k},{c}]" for k in (-1, 1) for c in (5, 9, 10, 11, 12, 15, 16, 24)]
    out += [f"%x[{k},{c}]" for k in (-2, 2) for c in (11, 15)]
    out += ["%x[-1,11]/%x[0,11]", "%x[0,15]/%x[1,15]", "%x[-1,15]/%x[0,15]", "%x[0,10]/%x[0,11]/%x[0,12]"]
    out += ["%x[0,15]/%x[0,24]", "%x[0,16]/%x[0,24]"]
    assert len(out) == 59
    return "".join(f"U{k:02d}:{text}\n" for k, text in enumerate(out)) + "B\n"


class Run(NamedTuple):
    """What a training printed: seconds of each iteration, the last objective, the number of weights."""

    seconds: list[float]
    objective: float
    weights: int


def train(command: list[str], options: list[str], data: Path, template: Path, model: Path) -> Run:
    arguments = [*command, "train", *options, "-p", str(template), str(data), str(model)]
    text = subprocess.run(arguments, check=True, capture_output=True, text=True).stderr
    found = re.findall(r"\[ *\d+\] obj=([\d.]+) .*time=([\d.]+)s/", text)
    weights = re.search(r"nb features: (\d+)", text)
    assert found, text
    assert weights, text
    return Run([float(seconds) for _, seconds in found], float(found[-1][0]), int(weights[1]))


def compare(args: argparse.Namespace, folder: Path) -> None:
    peer = args.wapiti or shutil.which("wapiti")
    if peer is None:
        sys.exit("wapiti is not in PATH: give it with --wapiti; the docstring says how to build it")
    options = ["-t", str(args.threads), "-i", str(args.iterations), "-1", args.rho1, "-2", args.rho2, "-w", "0"]
    options += ["-e", "0"]
    ours = [sys.executable, "-m", "crfkit.compat.wapiti.command"]
    theirs_runs, ours_runs = [], []
    for _ in range(args.rounds):
        theirs_runs.append(train([peer], options, folder / "data", folder / "patterns", folder / "theirs"))
        ours_runs.append(train(ours, options, folder / "data", folder / "patterns", folder / "ours"))
        a, b = theirs_runs[-1], ours_runs[-1]
        print(
            f"{a.weights} and {b.weights} weights, an iteration {1e3 * statistics.median(a.seconds):.0f} and "
            f"{1e3 * statistics.median(b.seconds):.0f} ms, objective {a.objective} and {b.objective}",
            flush=True,
        )
    a_all = statistics.median(x for run in theirs_runs for x in run.seconds)
    b_all = statistics.median(x for run in ours_runs for x in run.seconds)
    print(f"iteration: Wapiti {1e3 * a_all:.0f} ms, crfkit {1e3 * b_all:.0f} ms, {a_all / b_all:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wapiti", help="the peer's program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=42000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rho1", default="0.5")
    parser.add_argument("--rho2", default="0.0001")
    parser.add_argument("--write", type=Path, help="write the data and the patterns here, and end")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.write or Path(temporary)
        (folder / "data").write_text(make_data(args.tokens, args.seed))
        (folder / "patterns").write_text(patterns())
        if args.write is None:
            compare(args, folder)


if __name__ == "__main__":
    main()
