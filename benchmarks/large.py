"""Data larger than memory: encoding, training on block files, and a pass over them, against training in memory.

    python benchmarks/large.py build TEXT --tokens 20000000     a corpus: sentences of all corpora, words varied
    python benchmarks/large.py encode TEXT BLOCKS               tokens per second and peak memory
    python benchmarks/large.py train BLOCKS [--iterations 10]   peak anonymous memory, beside 100 bytes a weight
    python benchmarks/large.py pass TEXT BLOCKS                 an evaluation: in memory, mapped, with the cache dropped

Text grows as real text does: frequent words stay as they are, of the others each copy of the corpora takes variants,
old ones mostly and new ones now and then. The seed is fixed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crfkit import CRF, Template
from crfkit.data import Blocks, read_columns, read_conllu
from crfkit.model.chain_model import read_model

DATA = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
TEMPLATE = """U00:%x[-2,0]
U01:%x[-1,0]
U02:%x[0,0]
U03:%x[1,0]
U04:%x[2,0]
U05:%x[-1,0]/%x[0,0]
U06:%x[0,0]/%x[1,0]
B
"""
LABELS = 24
STAY = 2000  # words that are frequent enough to stay as they are


def sentences() -> Iterator[list[tuple[str, str]]]:
    """Words and tags of all corpora."""
    for name in ("train", "test"):
        X, _ = read_columns(DATA / "conll2000" / f"{name}.txt")
        yield from ([(word, tag) for word, tag in x] for x in X)
    for path in sorted((DATA / "brown").glob("c[a-r][0-9][0-9]")):
        for line in path.read_text("latin-1").splitlines():
            if pairs := [word.rpartition("/") for word in line.split()]:
                yield [(word or tag, tag.split("-")[0].upper()) for word, _, tag in pairs]
    for path in sorted(DATA.glob("ud_*/*.conllu")):
        X, y = read_conllu(path, label="xpos" if "english" in path.name else "upos")
        yield from (list(zip(x, labels, strict=True)) for x, labels in zip(X, y, strict=True))
    for path in sorted((DATA / "bc2gm").glob("*.tsv")):
        X, y = read_columns(path)
        yield from (list(zip(x, labels, strict=True)) for x, labels in zip(X, y, strict=True))


def build(path: Path, tokens: int, seed: int = 0) -> None:
    """Writes column text of about so many tokens."""
    rng = np.random.default_rng(seed)
    corpus = [x for x in sentences() if x]
    tags = Counter(tag[:2] for x in corpus for _, tag in x)
    names = {tag: tag for tag, _ in tags.most_common(LABELS - 1)}
    pairs = Counter((word, names.get(tag[:2], "other")) for x in corpus for word, tag in x)
    rank = {word: k for k, (word, _) in enumerate(Counter(word for x in corpus for word, _ in x).most_common())}
    number = {pair: k for k, pair in enumerate(pairs)}
    ids = [np.array([number[word, names.get(tag[:2], "other")] for word, tag in x] + [len(pairs)]) for x in corpus]
    word_of = np.array([rank[word] for word, _ in pairs])
    chance = np.minimum(0.7, word_of / (10 * STAY)) * (word_of >= STAY)
    done = copy = 0
    with open(path, "wb") as file:
        while done < tokens:
            copy += 1
            by_word = rng.random(len(rank)), np.exp(rng.random(len(rank)) * np.log(2 * copy)).astype(int)
            varies = by_word[0][word_of] < (chance if copy > 1 else 0)
            variant = by_word[1][word_of]
            lines = [
                f"{word}{f'~{variant[k]}' if varies[k] else ''}\t{label}\n".encode()
                for k, (word, label) in enumerate(pairs)
            ]
            lines.append(b"\n")
            for k in rng.permutation(len(ids)):
                file.write(b"".join(map(lines.__getitem__, ids[k].tolist())))
                done += len(ids[k]) - 1
                if done >= tokens:
                    break
    print(f"{done:,} tokens, {path.stat().st_size / 1e6:,.0f} MB")


class Memory:
    """The peak of a process's anonymous memory, looked at twenty times a second."""

    def __init__(self, pid: int | str = "self") -> None:
        self.path, self.peak, self.stop = f"/proc/{pid}/status", 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.stop.wait(0.05):
            try:
                with open(self.path) as file:
                    found = next((line.split()[1] for line in file if line.startswith("RssAnon")), "0")
            except OSError:
                return
            self.peak = max(self.peak, int(found) * 1024)

    def end(self) -> int:
        """The peak, in bytes."""
        self.stop.set()
        self.thread.join()
        return self.peak


def crfkit(*arguments: Any) -> tuple[float, float, int]:
    """Seconds, processor seconds and peak anonymous memory of a command."""
    began = time.perf_counter()
    before = os.times()
    process = subprocess.Popen([sys.executable, "-m", "crfkit", *map(str, arguments)])
    memory = Memory(process.pid)
    if process.wait():
        sys.exit(1)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu, memory.end()


def encode(text: Path, blocks: Path, options: list[str]) -> None:
    """Encodes by the command line."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as template:
        template.write(TEMPLATE)
        template.flush()
        seconds, cpu, peak = crfkit("encode", text, "-t", template.name, "-o", blocks, "--min-freq", 2, *options)
    made = Blocks(blocks)
    n = made.n_tokens
    print(f"{made}, {made.n_attributes:,} attributes, {blocks.stat().st_size / n:.1f} bytes a token")
    print(
        f"{seconds:.1f} s, {cpu:.1f} s CPU: {n / seconds:,.0f} tokens/s, {2 * n / cpu:,.0f} by the CPU time of 2 cores"
    )
    print(f"peak of anonymous memory {peak / 1e6:,.0f} MB")


def train(blocks: Path, iterations: int) -> None:
    """Trains by the command line."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.crfkit"
        seconds, cpu, peak = crfkit("train", blocks, "-m", model, "--min-freq", 2, "--max-iter", iterations)
        weights = read_model(model)[0].layout.size
    rest = peak - 100 * weights
    print(f"{weights:,} weights, {seconds:.1f} s, {cpu:.1f} s CPU")
    print(f"peak of anonymous memory {peak / 1e6:,.0f} MB: {rest / 1e6:,.0f} MB beside 100 bytes a weight")


def drop(mapped: Any) -> None:
    """Has the system forget what it holds of a mapped file."""
    mapped._mmap.madvise(mmap.MADV_DONTNEED)  # mapped pages would stay
    address = mapped.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        if first <= address < last:
            with open(f"/proc/self/map_files/{first:x}-{last:x}", "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def passes(text: Path, blocks: Path, repeats: int = 5) -> None:
    """Times an evaluation of the objective each way, in turns; the least time of each counts."""
    found = Blocks(blocks)
    stored = CRF(min_freq=2).objective(found, None)
    X, y = read_columns(text)
    memory = CRF(Template(TEMPLATE), min_freq=2).objective(X, y)
    del X, y
    w, g = np.full(memory.size, 0.01), np.empty(memory.size)
    times: dict[str, list[float]] = {"memory": [], "mapped": [], "dropped": []}
    cpu: dict[str, list[float]] = {name: [] for name in times}
    ways: dict[str, tuple[Any, Callable[[], None]]] = {
        "memory": (memory, lambda: None),
        "mapped": (stored, lambda: None),
        "dropped": (stored, lambda: drop(stored.packed)),
    }
    values = set()
    for _ in range(repeats):
        for name, (objective, before) in ways.items():
            before()
            began, used = time.perf_counter(), time.process_time()
            values.add(objective.value_and_grad(w, g)[0])
            times[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - used)
    assert len(values) == 1, values
    for name in ways:
        ratio, of_cpu = min(times[name]) / min(times["memory"]), min(cpu[name]) / min(cpu["memory"])
        print(f"{name:8} {min(times[name]):7.2f} s  {ratio:5.3f}x    CPU {min(cpu[name]):7.2f} s  {of_cpu:5.3f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "encode", "train", "pass"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--iterations", type=int, default=10)  # L-BFGS holds eight steps
    parser.add_argument("--repeats", type=int, default=5)
    options, rest = parser.parse_known_args()
    if options.what == "build":
        build(options.files[0], options.tokens)
    elif options.what == "encode":
        encode(options.files[0], options.files[1], rest)
    elif options.what == "train":
        train(options.files[0], options.iterations)
    else:
        passes(options.files[0], options.files[1], options.repeats)


if __name__ == "__main__":
    main()
