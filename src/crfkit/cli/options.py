"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Layouts of data files."""

    columns = "columns"
    conllu = "conllu"
    crfsuite = "crfsuite"


class Dialect(StrEnum):
    """Rules of templates."""

    auto = "auto"
    crfpp = "crfpp"
    wapiti = "wapiti"


class FileKind(StrEnum):
    """Model files."""

    crfkit = "crfkit"
    crfsuite = "crfsuite"


class Kind(StrEnum):
    """Kinds of models."""

    crf = "crf"
    hmm = "hmm"
    memm = "memm"


class Scheme(StrEnum):
    """Chunking schemes."""

    bio = "bio"
    iob1 = "iob1"
    bioes = "bioes"
    bilou = "bilou"


FormatOption = Annotated[Format, typer.Option("--format", "-f", help="Layout of the data file.")]
OtherFormatOption = Annotated[
    Format | None, typer.Option("--format", "-f", help="Layout of the file; that of training by default.")
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", help="Column of the labels: a number (-1 is the last), or a name such as upos for CoNLL-U."
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option("--columns", help="Columns to learn from, separated by commas; all but the label by default."),
]
UnknownOption = Annotated[str | None, typer.Option("--unknown", help="The label that means: not known.")]
CommentOption = Annotated[str, typer.Option("--comment", help="Skip lines of a column file that begin with this.")]
JobsOption = Annotated[int, typer.Option("--n-jobs", "-j", "--nthread", "--thread", help="Threads; -1 for all cores.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for programs, one object per line.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
ModelOption = Annotated[Path, typer.Option("--model", "--model-file", "-m", help="The model file.")]
