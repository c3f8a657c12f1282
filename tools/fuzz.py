"""Fuzzes the parsers with atheris, guided by coverage, until it is stopped.

    pip install atheris
    python tools/fuzz.py TARGET

TARGET is one of columns, conllu, crfsuite-text, template, patterns, stream, crfkit-items, crfkit-template, crfsuite,
crfpp and wapiti.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main() -> None:
    """Runs one target."""
    import atheris
    import test_fuzz

    name = sys.argv.pop(1)
    folder = Path(tempfile.mkdtemp())
    if name in test_fuzz.FILES:
        good, run = test_fuzz.FILES[name]
    else:
        good = test_fuzz._model(name, folder)

        def run(data: bytes) -> None:
            (folder / "mutated").write_bytes(data)
            test_fuzz._use_model(folder / "mutated")

    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "good").write_bytes(good)

    def target(data: bytes) -> None:
        test_fuzz.survive(run, data, name, 0)

    atheris.Setup([*sys.argv, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
