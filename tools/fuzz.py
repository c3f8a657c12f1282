"""Feeds mutated files to the parsers for as long as one likes; the tests do the same for half a minute.

    python tools/fuzz.py [TARGET ...] [--seconds 600] [--seed 0] [--folder faults]

TARGET is one of columns, conllu, crfsuite-text, template, patterns, stream, crfkit-items, crfkit-template, crfsuite,
crfpp and wapiti; all by default. An input that leads to a message not seen before is mutated further. What ends with
anything but a result or a ValueError, or takes too long, is kept in the folder; so is the last input, should the
process die.

Faults of memory show in a build with the address sanitizer, which takes some minutes:

    pip install --no-build-isolation --no-deps --target build/asan_site -C build-dir=build/asan \\
        -C cmake.define.CRFKIT_SYMBOLS=ON -C install.strip=false \\
        -C cmake.define.CMAKE_CXX_FLAGS="-fsanitize=address -O1 -g1" .
    PYTHONPATH=build/asan_site ASAN_OPTIONS=detect_leaks=0 \\
        LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" python tools/fuzz.py
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import test_fuzz

MOST = 300  # inputs of a target that are mutated further


class Target:
    """A parser, the inputs that are worth mutating, and the messages they led to."""

    def __init__(self, name: str, good: bytes, run: Callable[[bytes], Any]) -> None:
        self.name = name
        self.run = run
        self.inputs = [good]
        self.outcomes: set[str] = set()
        self.runs = 0

    def step(self, rng: random.Random, last: Path) -> None:
        """Tries one mutation."""
        data = test_fuzz.mutated(rng.choice(self.inputs), rng)
        last.write_bytes(data)
        self.runs += 1
        text = test_fuzz.survive(self.run, data, self.name, self.runs)
        text = "read" if text is None else re.sub(r"'[^']*'|\d+", "#", text)[:80]
        if text not in self.outcomes:
            self.outcomes.add(text)
            if len(self.inputs) < MOST and len(data) < 100_000:
                self.inputs.append(data)


def targets(names: list[str], folder: Path) -> list[Target]:
    """The parsers by name."""
    out = []
    for name in names:
        if name in test_fuzz.FILES:
            out.append(Target(name, *test_fuzz.FILES[name]))
            continue
        path = folder / f"model-{name}"

        def run(data: bytes, path: Path = path) -> None:
            path.write_bytes(data)
            test_fuzz._use_model(path)

        out.append(Target(name, test_fuzz._model(name, folder), run))
    return out


def main() -> int:
    """Runs until the time is over; gives the number of faults."""
    every = [*test_fuzz.FILES, *test_fuzz.MODELS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", nargs="*", choices=[*every, []], help="parsers to feed; all by default")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("faults"), help="where inputs are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        chosen = targets(options.target or every, Path(folder))
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for target in chosen:
                last = options.folder / f"last-{target.name}"
                try:
                    target.step(rng, last)
                except Exception as e:
                    faults += 1
                    kept = last.rename(options.folder / f"{target.name}-{options.seed}-{target.runs}")
                    print(f"{kept}: {e!r}", flush=True)
    for target in chosen:
        print(f"{target.name:16} {target.runs:8d} inputs, {len(target.outcomes)} outcomes")
    print(f"{faults} faults")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
