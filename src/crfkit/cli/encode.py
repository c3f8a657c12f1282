"""``crfkit encode``: text to block files."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli import options as o
from crfkit.cli.files import (
    Reading,
    busy,
    check_output,
    column_number,
    column_numbers,
    emit,
    encoded,
    file_size,
    naming_data,
    require_file,
    say,
    warnings_said,
)
from crfkit.data import Blocks, DataError
from crfkit.data.blocks import is_block_file
from crfkit.data.readers import PieceReader, Weighted
from crfkit.estimators import CRF
from crfkit.features.encoding import BlockWriter, bytes_of
from crfkit.features.rewriting import join_blocks, split_blocks


def encode(
    context: typer.Context,
    data: Annotated[
        list[str],
        typer.Argument(
            help="Labelled data, one file after another; - for standard input. Block files are joined into one."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The block file to write.")],
    format: o.FormatOption = o.Format.columns,
    label: o.LabelOption = None,
    columns: o.ColumnsOption = None,
    comment: o.CommentOption = "",
    encoding: o.EncodingOption = "utf-8",
    template: o.TemplateOption = None,
    dialect: o.DialectOption = o.Dialect.auto,
    padding: o.PaddingOption = True,
    classes: o.ClassesOption = None,
    vectors: o.VectorsOption = None,
    gazetteer: o.GazetteerOption = None,
    unknown: o.UnknownOption = None,
    unlabelled: Annotated[str | None, typer.Option(help="Data without labels, encoded after the rest.")] = None,
    hash_bits: o.HashOption = None,
    min_freq: Annotated[
        float, typer.Option(help="Leave out attributes that occur less often, also while joining block files.")
    ] = 0,
    memory: o.MemoryOption = "1GB",
    split: Annotated[
        int | None,
        typer.Option(metavar="N", help="Split a block file into N files, numbered -0, -1, ... before the extension."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what was interrupted; data and options must be the same.")
    ] = False,
    n_jobs: o.JobsOption = -1,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Encode labelled data into a block file, for training on data larger than memory.

    Text is read once, in constant memory. `crfkit train` takes the file in place of the text, and gives the same
    weights.
    """
    options = dict(locals())
    given = o.given_options(context)
    began = time.perf_counter()
    reading = Reading(format, label, columns, comment)
    sources = [encoded(path, encoding) for path in data]
    more = None if unlabelled is None else encoded(unlabelled, encoding)
    stored = [path for path in data if is_block_file(path)]

    def check() -> CRF:
        reading.check()
        resolve_threads(n_jobs)
        bytes_of(memory)
        if stored:
            _check_stored(given, stored[0], split)
        elif split is not None:
            raise o.OptionError("--split is for a block file")
        for target in _targets(output, split):
            check_output("--output", target, *sources, more, *o.feature_files(options))
        with busy("reading features", quiet or json):
            features = o.read_features(options)
        crf = CRF(features, min_freq=min_freq, hash_bits=hash_bits)
        crf._check_parameters()
        return crf

    crf: CRF = o.check_options(context, check)
    for path in [*sources, *([] if more is None else [more])]:
        require_file(path)
    with busy(f"encoding {', '.join(data)}", quiet or json) as tell, warnings_said(quiet):
        if stored:
            made = _rewrite(data, output, split, min_freq, n_jobs)
        else:
            settings = {"min_freq": min_freq, "memory": memory, "n_jobs": n_jobs, "unknown": unknown, "resume": resume}
            try:
                made = [encode_text(sources, output, crf, reading, more, settings, Tokens(tell))]
            except (KeyboardInterrupt, OSError):
                if "-" not in data and output.with_name(f"{output.name}.part").exists():
                    say("crfkit: the same command with --resume continues from here")
                raise
    for target in made:
        blocks = Blocks(target)
        sizes = {"sequence": len(blocks), "token": blocks.n_tokens, "label": len(blocks.classes)}
        seconds = time.perf_counter() - began
        if json:
            sizes["attribute"] = blocks.n_attributes
            emit(
                {"event": "encoded", "file": str(target), **{f"{k}s": n for k, n in sizes.items()}, "seconds": seconds}
            )
        elif not quiet:
            say(f"encoded {', '.join(counted(n, noun) for noun, n in sizes.items())}")
            say(f"wrote {target} ({file_size(target)}) after {seconds:.1f}s")


def _check_stored(given: dict[str, str], path: str, split: int | None) -> None:
    """Raises if options are given that block files do not take when they are joined or cut."""
    o.refuse_encoded(given, path)
    if "resume" in given:
        raise o.OptionError(f"--resume is for text: {path} is encoded already")
    if split is not None and "min_freq" in given:
        raise o.OptionError("--min-freq and --split exclude each other: splitting keeps the vocabulary")


def _targets(output: Path, split: int | None) -> list[Path]:
    """The files to write."""
    many = range(split or 0)
    return [output.with_name(f"{output.stem}-{k}{output.suffix}") for k in many] if many and output.name else [output]


def _rewrite(data: Sequence[str], output: Path, split: int | None, min_freq: float, n_jobs: int) -> list[Path]:
    """Block files joined, or one of them cut."""
    odd = [path for path in data if not is_block_file(path)]
    if odd:
        raise DataError(f"{odd[0]} is not a block file: encode it first, then join the files")
    if split is None:
        return [Path(join_blocks([Blocks(path) for path in data], output, min_freq, n_jobs).path)]
    if len(data) > 1 or split < 1:
        raise o.OptionError(f"--split cuts one block file into one or more, got {split} and {len(data)} files")
    paths = _targets(output, split)
    split_blocks(Blocks(data[0]), paths, n_jobs)
    return paths


def encode_text(
    sources: Sequence[str],
    output: Path,
    crf: Any,
    how: Reading,
    unlabelled: str | None,
    settings: dict[str, Any],
    progress: Callable[[str, int], Any] = lambda what, tokens: None,
) -> Path:
    """Encodes text files, one after another, with the features of an estimator; gives the block file."""
    readers = [_reader(path, how) for path in sources]
    if unlabelled is not None:
        readers.append(_reader(unlabelled, how, labelled=False))

    def pieces() -> Iterator[tuple[PieceReader, Any]]:
        for reader in readers:
            found = reader.pieces()
            for piece in found:
                first = reader.parse(piece)  # tells the layout of the rest
                yield reader, first
                if len(first.X):
                    break
            for piece in found:
                yield reader, piece

    def parse(item: tuple[PieceReader, Any]) -> Weighted:
        reader, piece = item
        return piece if isinstance(piece, Weighted) else reader.parse(piece)

    stream = pieces()
    held: list[Any] = []
    first: Any = None
    for held_item in stream:
        held.append(held_item)
        if len(held_item[1].X):
            first = held_item[1]
            break
    if first is None:
        raise DataError(f"{sources[0]}: the file holds no sequence")
    n_columns = getattr(first.X, "n_columns", None)
    known = {"format": how.format.value, "label": how.label, "columns": how.columns, "n_columns": n_columns}
    about: dict[str, Any] = {
        "files": [_identity(path) for path in [*sources, *([unlabelled] if unlabelled else [])]],
        "reading": known,
    }
    about |= {"unlabelled": unlabelled, "piece": PieceReader.size}  # pieces are known by their numbers
    encoder = crf._new_encoder(first.X)
    writer = BlockWriter(output, encoder, about=about, reading=known, features=crf.features, **settings)
    with naming_data(", ".join(sources)):
        writer.write(itertools.chain(held, stream), parse, progress)
    return output


class Tokens:
    """Counts tokens as they are encoded and written, and tells how many there are."""

    def __init__(self, tell: Callable[[str], Any]) -> None:
        self.tell, self.counts = tell, dict.fromkeys(("encoded", "written"), 0)

    def __call__(self, what: str, tokens: int) -> None:
        """After some tokens."""
        self.counts[what] += tokens
        known = self.counts["encoded"]
        done = f" ({100 * self.counts[what] / max(known, 1):.0f}%)" if what == "written" else ""
        self.tell(f"{self.counts[what] / 1e6:,.1f}M tokens {what}{done}")


def _reader(path: str, how: Reading, labelled: bool = True) -> PieceReader:
    chosen = None if how.columns is None else [c.strip() for c in how.columns.split(",")]
    if how.format is o.Format.columns:
        label: Any = column_number(how.label or "-1", "--label")
        return PieceReader(path, label=label if labelled else None, columns=column_numbers(chosen), comment=how.comment)
    label = how.label or "upos" if labelled else None
    return PieceReader(path, how.format.value, label=label, columns=chosen)


def _identity(path: str) -> list[Any]:
    """What tells a file from another one of the same name."""
    if path == "-":
        return [path]
    status = os.stat(path)
    return [os.path.abspath(path), status.st_size, status.st_mtime_ns]
