"""``crfkit demo``."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from crfkit import metrics
from crfkit.base.messages import counted
from crfkit.cli.options import JobsOption, Option, OptionError
from crfkit.data import load_corpus
from crfkit.estimators import CRF

WriteOption = Annotated[
    Path | None, Option("--write", metavar="DIR", help="Only write the sample's files and a template to this folder.")
]


def demo(write: WriteOption = None, n_jobs: JobsOption = -1) -> None:
    """Train on the embedded sample of recipe ingredients and show what it learned."""
    if write is not None:
        write_sample(write)
        return
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    n = int(X.lengths.sum())
    print(f"Training on {len(X)} recipe ingredients ({n} tokens), with built-in token features ...")
    began = time.perf_counter()
    crf = CRF(c2=0.1, n_jobs=n_jobs).fit(X, y)
    seconds = time.perf_counter() - began
    print(f"{counted(crf.n_iter_, 'iteration')}, {crf.model_.layout.size} weights, {seconds:.2f} seconds\n")
    print(f"On {len(X_test)} ingredients that it has not seen:\n")
    print(metrics.evaluate(y_test, crf.predict(X_test)))
    lines = [
        "2 heaped tablespoons smoked paprika",
        "1 small bunch fresh oregano , leaves picked",
        "350 g cooked prawns , peeled , to serve",
    ]
    print("\nAnd on lines of your own, with the probability of each label:\n")
    tokens = [line.split() for line in lines]
    labels, marginals = crf.predict(tokens), crf.predict_marginals(tokens)
    classes = crf.classes_.tolist()
    for words, names, nodes in zip(tokens, labels, marginals, strict=True):
        for t, (word, name) in enumerate(zip(words, names, strict=True)):
            print(f"  {word:14} {name:8} {nodes[t, classes.index(name)]:.2f}")
        print()
    print("Next: crfkit train YOUR_FILE -m model.crfkit, then crfkit tag -m model.crfkit OTHER_FILE")


def write_sample(folder: Path) -> None:
    """Puts the files of the embedded sample into a folder; others of the same name are not overwritten."""
    sample = {x.name: x.read_bytes() for x in files("crfkit.data").joinpath("sample").iterdir()}
    for name, text in sorted(sample.items()):
        if (folder / name).exists() and (folder / name).read_bytes() != text:
            raise OptionError(f"--write: {folder / name} is there already, with other contents; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(sample.items()):
        (folder / name).write_bytes(text)
        print(folder / name)
