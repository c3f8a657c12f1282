"""Switching from CRFsuite: the same code with another import, the same model in another tagger, a large file.

Each pair runs side by side in this process, in turns; medians and their ratio are printed.

    python benchmarks/switch.py [--sentences 3000] [--iterations 50] [--tokens 20000000] [--skip-file]
    python benchmarks/switch.py --only-file [--threads 2]                   (only tagging a large file)
    python benchmarks/switch.py --train-tokens 20000000 [--train-options "-a pa --max-iter 2"]  (only training on one)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pycrfsuite as original
import sklearn_crfsuite as original_sklearn

from crfkit.compat import pycrfsuite, sklearn_crfsuite
from crfkit.data import load_corpus, read_columns

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
WORD_TEMPLATE = """U00:%x[-2,0]
U01:%x[-1,0]
U02:%x[0,0]
U03:%x[1,0]
U04:%x[2,0]
U05:%x[-1,0]/%x[0,0]
U06:%x[0,0]/%x[1,0]
B
"""
TEMPLATE = """U00:%x[-2,0]
U01:%x[-1,0]
U02:%x[0,0]
U03:%x[1,0]
U04:%x[2,0]
U05:%x[-1,0]/%x[0,0]
U06:%x[0,0]/%x[1,0]
U10:%x[-2,1]
U11:%x[-1,1]
U12:%x[0,1]
U13:%x[1,1]
U14:%x[2,1]
U15:%x[-2,1]/%x[-1,1]
U16:%x[-1,1]/%x[0,1]
U17:%x[0,1]/%x[1,1]
U18:%x[1,1]/%x[2,1]
U20:%x[-2,1]/%x[-1,1]/%x[0,1]
U21:%x[-1,1]/%x[0,1]/%x[1,1]
U22:%x[0,1]/%x[1,1]/%x[2,1]
B
"""


def features(sentence: list[tuple[str, str]], i: int) -> dict[str, Any]:
    """As many and such features as the sklearn-crfsuite tutorial has."""
    word, tag = sentence[i]
    out: dict[str, Any] = {
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-3:]": word[-3:],
        "word[-2:]": word[-2:],
        "word.isupper()": word.isupper(),
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
        "postag": tag,
        "postag[:2]": tag[:2],
    }
    for step in (-1, 1):
        if not 0 <= i + step < len(sentence):
            out["BOS" if step < 0 else "EOS"] = True
            continue
        word, tag = sentence[i + step]
        out |= {
            f"{step:+d}:word.lower()": word.lower(),
            f"{step:+d}:word.istitle()": word.istitle(),
            f"{step:+d}:word.isupper()": word.isupper(),
            f"{step:+d}:postag": tag,
            f"{step:+d}:postag[:2]": tag[:2],
        }
    return out


def timed(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def against(name: str, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> None:
    """Prints both medians and their ratio."""
    a, b = [], []
    for _ in range(rounds):
        a.append(timed(theirs))
        b.append(timed(ours))
    x, y = statistics.median(a), statistics.median(b)
    print(f"{name:52} {x:9.3f}s {y:9.3f}s {x / y:7.2f}x", flush=True)


def tutorial(sentences: int, iterations: int, rounds: int) -> None:
    X, y = _train()
    assert y is not None
    X_train = [[features(s, i) for i in range(len(s))] for s in X[:sentences]]
    y_train = [list(labels) for labels in y[:sentences]]
    held = [[features(s, i) for i in range(len(s))] for s in X[sentences : sentences + 2000]]
    gold = [list(labels) for labels in y[sentences : sentences + 2000]]
    settings: dict[str, Any] = {
        "algorithm": "lbfgs",
        "c1": 0.1,
        "c2": 0.1,
        "max_iterations": iterations,
        "all_possible_transitions": True,
    }
    fitted: dict[str, Any] = {}

    def run(name: str, module: Any) -> None:
        fitted[name] = module.CRF(**settings).fit(X_train, y_train)
        fitted[name + "y"] = fitted[name].predict(held)

    against(
        f"tutorial: fit {sentences} sentences, predict {len(held)}",
        lambda: run("theirs", original_sklearn),
        lambda: run("ours", sklearn_crfsuite),
        rounds,
    )
    accuracy = sklearn_crfsuite.metrics.flat_accuracy_score
    print(f"    accuracy {accuracy(gold, fitted['theirsy']):.4f} and {accuracy(gold, fitted['oursy']):.4f}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.crfsuite")
        trainer = original.Trainer(params={"c2": 0.1, "max_iterations": 20}, verbose=False)
        for x, labels in zip(X_train, y_train, strict=True):
            trainer.append(x, labels)
        trainer.train(path)
        theirs, ours = original.Tagger(), pycrfsuite.Tagger()
        theirs.open(path)
        ours.open(path)
        crf = sklearn_crfsuite.CRF(model_filename=path)
        assert [theirs.tag(x) for x in held] == [ours.tag(x) for x in held] == list(crf.predict(held))
        tag = [theirs.tag(x) for x in held]
        against(
            "Tagger.tag, one sentence a call",
            lambda: [theirs.tag(x) for x in held],
            lambda: [ours.tag(x) for x in held],
            5,
        )
        against("CRF.predict, all sentences", lambda: [theirs.tag(x) for x in held], lambda: crf.predict(held), 5)
        assert tag


def _train() -> Any:
    return read_columns(DATA / "conll2000" / "train.txt")


class Used(NamedTuple):
    """What a run of the command took: seconds, processor seconds, and megabytes at most."""

    seconds: float
    busy: float
    peak: float


#: Runs the command, then says how much processor time and memory it took; the latter as Linux counts it from the
#: start of the program on, without the process that started it.
MEASURED = """
import os
from crfkit.cli import app
app(standalone_mode=False)
status = open("/proc/self/status").read()
print(sum(os.times()[:2]), status.split("VmHWM:")[1].split()[0])
"""


def run_command(*arguments: object) -> Used:
    """Runs ``crfkit`` in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    busy, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Used(time.perf_counter() - began, float(busy), int(peak) / 1024)


def write_repeated(path: Path, block: bytes, n_tokens: int, wanted: int) -> int:
    """Writes the block as often as the wanted number of tokens asks for; gives the number of tokens written."""
    repeats = max(1, round(wanted / n_tokens))
    with open(path, "wb") as file:
        for _ in range(repeats):
            file.write(block)
    return n_tokens * repeats


def large_file(tokens: int, threads: int) -> None:
    """CoNLL-2000's words and tags, repeated in a file; tagged by the command."""
    train = DATA / "conll2000" / "train.txt"
    rows = [line.split()[:2] for line in train.read_text().split("\n")]
    block = "".join(" ".join(row) + "\n" for row in rows).encode()
    n = sum(map(bool, rows))
    del rows
    with tempfile.TemporaryDirectory() as folder:
        model, big, template = (Path(folder) / x for x in ("m.crfkit", "big.txt", "template"))
        template.write_text(TEMPLATE)
        run_command("train", "-q", "-t", template, "-m", model, train, "--max-iter", 30)
        total = write_repeated(big, block, n, tokens)
        used = run_command("tag", "-q", "-m", model, big, "-o", os.devnull, "-j", threads)
        print(
            f"tag {total / 1e6:.1f} million tokens from a file: {total / used.seconds / 1e6:.2f} M tokens/s,", end=" "
        )
        print(f"{total / used.busy / 1e6:.2f} M per second of processor time, peak {used.peak:.0f} MB")


def large_training(tokens: int, options: list[str]) -> None:
    """Brown, repeated in a file; trained on by the command.

    Labels are the first two letters of the tags: memory hardly depends on them, time does.
    """
    lines: list[str] = []
    labels: set[str] = set()
    for split in ("train", "test"):
        X, y = load_corpus("brown", split)
        for words, tags in zip(X, y, strict=True):
            lines += [f"{w if isinstance(w, str) else w[0]} {t[:2]}" for w, t in zip(words, tags, strict=True)] + [""]
            labels |= {t[:2] for t in tags}
    n = sum(map(bool, lines))
    block = "\n".join([*lines, ""]).encode()
    del X, y, lines
    with tempfile.TemporaryDirectory() as folder:
        model, big, template = (Path(folder) / x for x in ("m.crfkit", "big.txt", "template"))
        template.write_text(WORD_TEMPLATE)
        total = write_repeated(big, block, n, tokens)
        size = big.stat().st_size
        used = run_command("train", "-q", "-t", template, "-m", model, big, *options)
        print(
            f"train on {total / 1e6:.2f} million tokens ({size / 1e6:.0f} MB, {len(labels)} labels), "
            f"{' '.join(options)}: peak {used.peak:.0f} MB, {used.peak / (total / 1e6):.0f} MB per million tokens, "
            f"{used.seconds:.0f} s, {used.busy:.0f} s of processor time"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--skip-file", action="store_true")
    parser.add_argument("--train-tokens", type=int, help="only train from a file of so many tokens")
    parser.add_argument("--train-options", default="--max-iter 3", help="what crfkit train is told besides")
    parser.add_argument("--threads", type=int, default=-1, help="for tagging the file")
    parser.add_argument("--only-file", action="store_true", help="only tag a large file")
    options = parser.parse_args()
    if options.train_tokens:
        large_training(options.train_tokens, options.train_options.split())
        sys.exit()
    if options.only_file:
        large_file(options.tokens, options.threads)
        sys.exit()
    print(f"{'':52} {'CRFsuite':>10} {'crfkit':>10} {'ratio':>8}")
    tutorial(options.sentences, options.iterations, options.rounds)
    if not options.skip_file:
        large_file(options.tokens, options.threads)
