"""``crfkit classes``: word classes from text, or from word vectors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli import options as o
from crfkit.cli.files import busy, check_output, emit, encoded, file_size, require_file, say, warnings_said
from crfkit.data import Columns
from crfkit.data.readers import iter_text
from crfkit.features import WordClasses, WordVectors


class TextFormat(StrEnum):
    """How text is laid out; or vectors of words in place of text."""

    text = "text"
    tokens = "tokens"
    columns = "columns"
    conllu = "conllu"
    vectors = "vectors"


class Method(StrEnum):
    """How classes are learned."""

    brown = "brown"
    spectral = "spectral"


#: Options that vectors have no use for.
_FOR_TEXT = ("method", "min_freq", "lower", "column", "comment", "encoding")


def classes(
    context: typer.Context,
    text: Annotated[
        list[str], typer.Argument(help="Text, one file after another; - for standard input; .gz, .xz, .bz2 are read.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file of classes to write.")],
    n_classes: Annotated[int, typer.Option("--n-classes", "-c", help="Number of classes.")] = 500,
    method: Annotated[Method, typer.Option(help="Brown's classes, or spectral ones.")] = Method.brown,
    min_freq: Annotated[int, typer.Option(help="Words that occur less often get no class.")] = 2,
    lower: Annotated[bool, typer.Option(help="Take words in lower case.")] = True,
    format: Annotated[
        TextFormat,
        typer.Option(
            "--format",
            "-f",
            help="Running text; one sentence per line with blanks between tokens; one token per line; or a file of "
            "word vectors, of word2vec, fastText or GloVe.",
        ),
    ] = TextFormat.text,
    column: Annotated[
        int | None, typer.Option(help="Column of the words; the first by default, the form in CoNLL-U.")
    ] = None,
    comment: o.CommentOption = "",
    encoding: o.EncodingOption = "utf-8",
    random_state: Annotated[int, typer.Option(help="Random seed, for spectral classes and vectors.")] = 0,
    n_jobs: o.JobsOption = -1,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Learn classes of words from text without labels, or make them of word vectors.

    The classes are a binary tree: a word's class is a string of bits, and prefixes of it are larger classes.
    """
    began = time.perf_counter()

    def check() -> None:
        WordClasses._check(n_classes, method.value, min_freq, random_state)
        resolve_threads(n_jobs)

    o.check_options(context, check)
    if format is TextFormat.vectors:
        if len(text) > 1 or text[0] == "-":
            raise o.OptionError(f"--format vectors takes one file, got {', '.join(text)}")
        for name, flag in o.given_options(context).items():
            if name in _FOR_TEXT:
                raise o.OptionError(f"{flag} is for text, not for vectors")
    sources = [encoded(path, encoding) for path in text]
    for path in sources:
        require_file(path)
    check_output("--output", output, *sources)

    def parts() -> Iterator[Columns]:
        for path in sources:
            yield from iter_text(path, format.value, column=column, comment=comment)

    with busy(f"learning classes of {', '.join(text)}", quiet or json), warnings_said():
        if format is TextFormat.vectors:
            found = WordVectors.from_file(text[0]).classes(n_classes, random_state=random_state, n_jobs=n_jobs)
        else:
            found = WordClasses.fit(
                parts(),
                n_classes,
                method=method.value,
                min_freq=min_freq,
                lower=lower,
                random_state=random_state,
                n_jobs=n_jobs,
            )
        found.save(output)
    sizes = {"word": len(found), "class": len(set(found.codes))}
    seconds = time.perf_counter() - began
    if json:
        emit(
            {
                "event": "classes",
                "file": str(output),
                "words": len(found),
                "classes": sizes["class"],
                "seconds": seconds,
            }
        )
    elif not quiet:
        say(f"{counted(len(found), 'word')} in {sizes['class']} classes")
        say(f"wrote {output} ({file_size(output)}) after {seconds:.1f}s")
