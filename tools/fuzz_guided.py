"""The fuzzer of tools/fuzz.py, guided by coverage: inputs that reach new code of crfkit's Python are changed further.

    pip install atheris
    python tools/fuzz_guided.py KIND [--seconds 600] [--corpus FOLDER] [--folder findings]

One process and one kind at a time; the corpus grows and can be used again. Findings are kept in the folder once per
place in the source; a crash, more than 10 s or too much memory ends the process, and libFuzzer writes the input
beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["crfkit"]):
    from fuzzing.campaign import try_input
    from fuzzing.kinds import KINDS, quiet


def main() -> None:
    """Runs until the time is over; libFuzzer ends the process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("findings"))
    options = parser.parse_args()
    kind = KINDS[options.kind]
    scratch = Path(tempfile.mkdtemp())
    corpus = options.corpus or scratch / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    quiet()
    for k, data in enumerate(kind.seeds(scratch)):
        (corpus / f"seed{k}").write_bytes(data)
    seen: set[tuple[str, str]] = set()

    def once(data: bytes) -> None:
        fault, where = try_input(kind, data, scratch / "input")
        place = fault.partition(":")[0], where
        if fault not in ("read", "refused") and place not in seen:
            seen.add(place)
            kept = options.folder / f"{kind.name}-guided-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
            kept.write_bytes(data)
            print(f"{kept}: {fault} {where}", flush=True)

    def change(data: bytes, most: int, seed: int) -> bytes:
        return kind.mutate(data, random.Random(seed))[:most]

    limits = [f"-max_total_time={options.seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=200000"]
    reports = ["-print_final_stats=1", "-verbosity=1", f"-seed={options.seed}", f"-artifact_prefix={options.folder}/"]
    atheris.Setup([sys.argv[0], *limits, *reports, str(corpus)], once, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
