"""``crfkit demo``."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from crfkit import metrics
from crfkit.base.messages import counted
from crfkit.cli.files import check_output
from crfkit.cli.options import JobsOption, Option, OptionError
from crfkit.cli.report import report_page
from crfkit.data import load_corpus, tokenize
from crfkit.data.tokens import Token
from crfkit.estimators import CRF

WriteOption = Annotated[
    Path | None, Option("--write", metavar="DIR", help="Only write the sample's files and a template to this folder.")
]
ReportOption = Annotated[
    Path | None, Option("--report", metavar="FILE", help="Write a page with scores, pictures and explanations (HTML).")
]
_COLOURS = ("blue", "yellow", "magenta", "green", "cyan", "red", "bright_black")  # every terminal has them


def demo(write: WriteOption = None, report: ReportOption = None, n_jobs: JobsOption = -1) -> None:
    """Train on the embedded sample of recipe ingredients, and find entities in raw text."""
    if write is not None:
        if report is not None:
            raise OptionError("--report needs training, which --write leaves out: run crfkit demo twice")
        write_sample(write)
        return
    check_output("--report", report)
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    n = int(X.lengths.sum())
    print(f"Training on {len(X)} recipe ingredients ({n:,} tokens), with built-in token features ...")
    began = time.perf_counter()
    crf = CRF(c2=0.1, n_jobs=n_jobs).fit(X, y)
    seconds = time.perf_counter() - began
    print(f"{counted(crf.n_iter_, 'iteration')}, {crf.model_.layout.size:,} weights, {seconds:.2f} seconds\n")
    print(f"On {len(X_test)} ingredients that it has not seen:\n")
    print(metrics.evaluate(y_test, crf.predict(X_test)))
    sentences = tokenize(files("crfkit.data").joinpath("sample", "raw.txt").read_text(encoding="utf-8"))
    print("\nEntities in raw text, with their probabilities:\n")
    show(crf, sentences)
    if report is not None:
        report.write_text(report_page(crf, sentences, X_test, y_test), encoding="utf-8")
        print(f"Scores, confusions, transitions and explanations are in {report.resolve()}: open it in a browser.\n")
    print("Next: crfkit demo --write sample; cd sample; crfkit train train.txt -m model.crfkit")


def show(crf: CRF, sentences: list[list[Token]]) -> None:
    """Prints sentences, their entities in colour where the terminal has any."""
    console = Console(highlight=False, soft_wrap=True)
    kinds: dict[str, str] = {}
    for tokens, entities in zip(sentences, crf.predict_entities(sentences), strict=True):
        line = Text("  ")
        at: int | None = tokens[0].start
        for e in entities:
            hue = kinds.setdefault(str(e.label), _COLOURS[len(kinds) % len(_COLOURS)])
            line.append(tokens[0].source[at : e.char_start])
            line.append(str(e.text), f"{hue} reverse")
            line.append(f" {e.label} {e.probability:.2f}", hue)
            at = e.char_end
        line.append(tokens[0].source[at : tokens[-1].end])
        console.print(line)
    print()


def write_sample(folder: Path) -> None:
    """Puts the files of the embedded sample into a folder; others of the same name are not overwritten."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--write: {folder} is a file, not a folder")
    sample = {x.name: x.read_bytes() for x in files("crfkit.data").joinpath("sample").iterdir()}
    for name, text in sorted(sample.items()):
        if (folder / name).exists() and (folder / name).read_bytes() != text:
            raise OptionError(f"--write: {folder / name} already exists with other contents; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(sample.items()):
        (folder / name).write_bytes(text)
        print(folder / name)
