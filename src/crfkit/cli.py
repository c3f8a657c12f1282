"""The command line: train, tag, eval, inspect, convert, demo."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import crfkit
from crfkit import CRF, HMM, MEMM, Template, inspection, metrics
from crfkit._files import whole_file
from crfkit._threads import resolve_threads
from crfkit.chain.beams import Adaptive, Beam, as_beam
from crfkit.chain.inference import decode_flat, log_partition, nbest, node_marginals
from crfkit.cli_active import app as active_app
from crfkit.data import Columns, DataError, iter_columns, load_corpus, read_columns, read_conllu, read_crfsuite
from crfkit.data.readers import CONLLU_COLUMNS, open_source
from crfkit.estimators.loading import load_chain
from crfkit.streaming import iter_items, tag_columns
from crfkit.training import Progress

app = typer.Typer(
    name="crfkit",
    help="Conditional random fields for sequences: train, tag, evaluate, look inside.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(active_app)


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
CommentOption = Annotated[str, typer.Option("--comment", help="Skip lines of a column file that begin with this.")]
ThreadsOption = Annotated[int, typer.Option("--threads", "-j", "--nthread", help="Threads; -1 for all cores.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for programs, one object a line.")]
ModelOption = Annotated[Path, typer.Option("--model", "--model-file", "-m", help="The model file.")]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _emit(record: dict[str, Any]) -> None:
    print(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False), flush=True)


def _finite(x: Any) -> Any:
    """The same with null for numbers that JSON has not, such as the gradient of an optimiser that computes none."""
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def _read(path: str, kind: Format, label: str | None, columns: str | None, comment: str) -> tuple[Any, Any, Any]:
    """X, y and weights of a labelled file."""
    if kind is Format.crfsuite:
        return tuple(read_crfsuite(path))  # type: ignore[return-value]
    chosen = None if columns is None else [c.strip() for c in columns.split(",")]
    if kind is Format.conllu:
        data = read_conllu(path, label=label or "upos", columns=chosen or ("form",))
        return data.X, data.y, None
    return *read_columns(path, label=_number(label or "-1", "--label"), columns=_numbers(chosen), comment=comment), None


def _read_unlabeled(path: str, kind: Format, label: str | None, columns: str | None, comment: str, like: Any) -> Any:
    """Sequences without labels; a column file may have the label column, which is not looked at."""
    if kind is not Format.columns:
        return _read(path, kind, label, columns, comment)[0]
    table, _ = read_columns(path, label=None, comment=comment)
    if columns is None and table.n_columns == like.n_columns:
        return table
    return _read(path, kind, label, columns, comment)[0]


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{option} of a column file must be a number, got {text!r}") from None


def _numbers(texts: list[str] | None) -> list[int] | None:
    return None if texts is None else [_number(t, "--columns") for t in texts]


class _Watch:
    """Shows training: a live line on a terminal, plain lines now and then elsewhere, JSON lines if asked."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not as_json and not quiet
        self.last = 0.0
        self.tokens = 0

    def __call__(self, p: Progress, w: Any) -> None:
        if self.as_json:
            _emit({"event": "iteration", **_plain_progress(p)})
        elif not self.quiet:
            now = time.monotonic()
            if not self.live and now - self.last < 2:
                return
            self.last = now
            scores = "".join(f"  dev {k} {100 * v:.2f}" for k, v in p.scores.items() if k in ("accuracy", "f1"))
            scores = "".join(f"  {k} {v:.4f}" for k, v in p.terms.items()) + scores
            rate = f"  {p.evaluations * self.tokens / max(p.seconds, 1e-9) / 1e6:.2f}M tokens/s" if self.tokens else ""
            slope = f"  |gradient| {p.gradient_norm:.3g}" if np.isfinite(p.gradient_norm) else ""
            line = (
                f"iteration {p.iteration:4d}  objective {p.value:.4f}{slope}  "
                f"active {p.active}  {p.seconds:.1f}s{rate}{scores}"
            )
            if self.live:
                line = line[: shutil.get_terminal_size().columns - 1]  # a wrapped line could not be rewritten
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
            else:
                _say(line)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)


def _plain_progress(p: Progress) -> dict[str, Any]:
    return {
        "iteration": p.iteration,
        "value": p.value,
        "gradient_norm": p.gradient_norm,
        "active": p.active,
        "step": p.step,
        "evaluations": p.evaluations,
        "seconds": round(p.seconds, 4),
        **({"scores": dict(p.scores)} if p.scores else {}),
        **({"terms": dict(p.terms)} if p.terms else {}),
    }


@app.command()
def train(
    data: Annotated[str, typer.Argument(help="Labelled data; - for standard input, .gz .xz .bz2 are read.")],
    model: Annotated[Path, typer.Option("--model-file", "-m", help="Where to write the model.")],
    kind: Annotated[
        Kind,
        typer.Option(
            "--model", "--kind", "-k", help="What to train; an HMM emits the columns themselves. The file is -m."
        ),
    ] = Kind.crf,
    format: FormatOption = Format.columns,
    label: LabelOption = None,
    columns: ColumnsOption = None,
    comment: CommentOption = "",
    template: Annotated[
        Path | None,
        typer.Option(
            "--template", "-t", "--pattern", help="A CRF++ template or Wapiti patterns; token features without."
        ),
    ] = None,
    dialect: Annotated[Dialect, typer.Option(help="Whose rules the template follows.")] = Dialect.auto,
    padding: Annotated[
        bool, typer.Option(help="Whether templates read _B-1, _B+1 beyond the ends, as CRF++ does.")
    ] = True,
    dev: Annotated[str | None, typer.Option("--dev", "--devel", help="Held-out data, scored while training.")] = None,
    algorithm: Annotated[
        str, typer.Option("--algorithm", "-a", help=f"Optimiser: {', '.join(crfkit.training.ALGORITHMS)}.")
    ] = "lbfgs",
    early_stopping: Annotated[
        int | None, typer.Option(help="Stop when the held-out score has not risen for so many iterations.")
    ] = None,
    c1: Annotated[float, typer.Option("--c1", "--rho1", help="Coefficient of the sum of absolute weights.")] = 0.0,
    c2: Annotated[float, typer.Option(help="Coefficient of the sum of squared weights.")] = 1.0,
    min_freq: Annotated[float, typer.Option(help="Ignore (attribute, label) pairs that are rarer.")] = 0,
    all_states: Annotated[
        bool, typer.Option("--all-states", help="Weights for unseen (attribute, label) pairs too.")
    ] = False,
    all_transitions: Annotated[bool, typer.Option(help="Weights for unseen label pairs too.")] = True,
    start_end: Annotated[bool, typer.Option(help="Weights for the first and last label.")] = True,
    constraints: Annotated[Scheme | None, typer.Option(help="Forbid what the chunking scheme forbids.")] = None,
    max_iter: Annotated[
        int | None, typer.Option("--max-iter", "--maxiter", "--max-iterations", help="Most iterations.")
    ] = None,
    unknown: Annotated[str | None, typer.Option(help="The label that means: not known.")] = None,
    unlabeled: Annotated[str | None, typer.Option(help="Data without labels, for --entropy-weight.")] = None,
    entropy_weight: Annotated[
        float, typer.Option(help="Coefficient of the entropy of sequences without any known label.")
    ] = 0.0,
    entropy_per: Annotated[
        str, typer.Option(help="Whether entropy counts per sequence, or per token of it.")
    ] = "sequence",
    entropy_ramp: Annotated[int, typer.Option(help="Iterations over which the entropy's weight grows.")] = 10,
    tol: Annotated[
        float, typer.Option(help="Stop when ten iterations gain less than this part of the objective.")
    ] = 1e-5,
    beam: Annotated[
        str | None,
        typer.Option(
            help="Train inside of beams of labels: min-divergence:EPSILON[:MIN_SIZE], fixed:N, threshold:DELTA "
            "or adaptive, which ends at the exact optimum."
        ),
    ] = None,
    warm_start_fraction: Annotated[
        float | None, typer.Option(help="First train on this part of the sequences, then on all.")
    ] = None,
    rho2: Annotated[
        float | None, typer.Option(help="Wapiti's coefficient: half the sum of squared weights. Sets c2.")
    ] = None,
    cost: Annotated[float | None, typer.Option(help="CRF++'s C: c2 is 1 / 2C.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter by CRFsuite's name, such as feature.minfreq=2."),
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--start", help="Begin with the weights of this model; new labels are added.")
    ] = None,
    threads: ThreadsOption = -1,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Train a model on labelled data.

    Ctrl-C ends training early and keeps the best weights so far.
    """
    began = time.perf_counter()
    watch = _Watch(json, quiet)
    X, y, weights = _read(data, format, label, columns, comment)
    dev_data = None if dev is None else _read(dev, format, label, columns, comment)
    if unknown is not None:
        y = [[None if name == unknown else name for name in row] for row in y]
    if unlabeled is not None:
        if not entropy_weight:
            raise DataError("--unlabeled does nothing without --entropy-weight")
        more = _read_unlabeled(unlabeled, format, label, columns, comment, X)
        y = [*y, *[None] * len(more)]
        weights = None if weights is None else np.concatenate([weights, np.ones(len(more))])
        X = type(X).concatenate([X, more])
    settings: dict[str, Any] = {
        "c1": c1,
        "c2": c2,
        "min_freq": min_freq,
        "all_possible_states": all_states,
        "all_possible_transitions": all_transitions,
        "start_end": start_end,
        "constraints": None if constraints is None else constraints.value,
        "entropy_weight": entropy_weight,
        "entropy_per": entropy_per,
        "entropy_ramp": entropy_ramp,
        "max_iter": max_iter,
        "tol": tol,
        "beam": beam,
        "warm_start_fraction": warm_start_fraction,
        "n_jobs": threads,
        "algorithm": algorithm,
        "early_stopping": early_stopping,
    }
    settings |= _other_names(rho2, cost, param or [])
    crf: Any
    if kind is not Kind.crf and start is not None:
        raise DataError(f"--start goes on with a CRF, not with an {kind.value.upper()}")
    if kind is Kind.hmm:
        if format is Format.crfsuite or template is not None:
            raise DataError("an HMM emits the columns themselves: it takes no template, and no CRFsuite files")
        if algorithm != "lbfgs":
            raise DataError(f"--algorithm {algorithm} is for CRFs and MEMMs: an HMM is trained by counting")
        crf = HMM(n_jobs=threads, max_iter=100 if max_iter is None else max_iter)
    elif start is None:
        features = "auto" if template is None else Template.from_file(template, padding=padding, dialect=dialect.value)
        if kind is Kind.memm:
            for name in ("constraints", "entropy_weight", "beam", "warm_start_fraction"):
                if settings[name]:
                    raise DataError(f"--{name.replace('_', '-')} is for CRFs")
            for name in set(settings) - set(MEMM._parameters()):
                settings.pop(name)
            crf = MEMM(features, **settings)
        else:
            crf = CRF(features, **settings)
    else:
        if template is not None:
            raise DataError("--template and --start exclude each other: the model has its features already")
        if constraints is None:
            settings.pop("constraints")  # the model's hold
        crf = load_chain(start, n_jobs=threads).set_params(**settings, warm_start=True)
    folder = model.absolute().parent
    if not folder.is_dir():
        raise DataError(f"{model}: there is no folder {folder} to write the model to")
    crf.callback = watch
    watch.tokens = int(X.lengths.sum())
    if not quiet and not json:
        _say(f"read {len(X)} sequences, {watch.tokens} tokens in {time.perf_counter() - began:.2f}s")
    interrupted = False
    try:
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            X_dev, y_dev = dev_data[:2] if dev_data else (None, None)
            if kind is Kind.hmm:
                crf.fit(X, y)
            else:
                crf.fit(X, y, X_dev, y_dev, sample_weight=weights)
        interrupted = "interrupted" in crf.result_.message
        for w in caught:
            if not interrupted:
                _say(f"crfkit: warning: {w.message}")
    finally:
        watch.end()
    reading = {"format": format.value, "label": label, "columns": columns, "n_columns": getattr(X, "n_columns", None)}
    crf._adopt(replace(crf.model_, info={**crf.model_.info, "reading": reading}))
    crf.save(model)
    result = crf.result_
    seconds = time.perf_counter() - began
    beams = getattr(crf, "beams_", None)  # of CRFs
    scores = metrics.evaluate(dev_data[1], crf.predict(dev_data[0])).summary() if dev_data else {}
    if json:
        record = {
            "event": "trained",
            "model": str(model),
            "objective": result.value,
            "iterations": result.iterations,
            "evaluations": result.evaluations,
            "converged": result.converged,
            "stopped": result.message,
            "weights": crf.model_.layout.size,
            "active": int(np.count_nonzero(crf.model_.weights)),
            "seconds": round(seconds, 4),
        }
        if beams is not None:
            record["beams"] = asdict(beams)
        _emit({**record, **({"dev": scores} if scores else {})})
    elif not quiet:
        course = f"{result.iterations} iterations, objective {result.value:.4f}, " if result.iterations else ""
        _say(
            f"{result.message}: {course}"
            f"{np.count_nonzero(crf.model_.weights)} of {crf.model_.layout.size} weights active"
        )
        if beams is not None and beams.exact:
            _say(f"beams were chosen {beams.chosen} times; training ended with all labels")
        elif beams is not None:
            _say(
                f"beams of {beams.average:.1f} labels, at most {beams.largest}; on a sample they hold "
                f"{beams.mass:.2%} of a sequence's mass, and the gradient's error is {beams.gradient_error:.1%}"
            )
        for name, value in scores.items():
            _say(f"dev {name.replace('_', ' ')}: {100 * value:.2f}")
        _say(f"wrote {model} ({os.path.getsize(model) / 1e6:.1f} MB) after {seconds:.1f}s")
    if interrupted:
        raise typer.Exit(130)


#: CRFsuite's parameters: the setting of CRF, and how to read it.
_SUITE_NAMES: dict[str, tuple[str, Any]] = {
    "c1": ("c1", float),
    "c2": ("c2", float),
    "max_iterations": ("max_iter", int),
    "delta": ("tol", float),
    "feature.minfreq": ("min_freq", float),
    "feature.possible_states": ("all_possible_states", lambda text: bool(int(text))),
    "feature.possible_transitions": ("all_possible_transitions", lambda text: bool(int(text))),
}


def _other_names(rho2: float | None, cost: float | None, params: list[str]) -> dict[str, Any]:
    """Settings given by other tools' names."""
    out: dict[str, Any] = {}
    if rho2 is not None:
        out["c2"] = rho2 / 2
    if cost is not None:
        if not cost > 0:
            raise DataError(f"--cost must be > 0, got {cost}")
        out["c2"] = 1 / (2 * cost)
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or name not in _SUITE_NAMES:
            raise DataError(f"--set takes NAME=VALUE with one of {', '.join(_SUITE_NAMES)}, got {text!r}")
        key, read = _SUITE_NAMES[name]
        try:
            out[key] = read(value)
        except ValueError:
            raise DataError(f"--set {name} must be a number, got {value!r}") from None
    return out


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is whole."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.flush()
        yield sys.stdout
        sys.stdout.flush()
        return
    with whole_file(path, "w", encoding="utf-8") as file:
        yield file  # type: ignore[misc]


def _tag_columns(crf: CRF, table: Columns, reading: dict[str, Any]) -> Columns:
    """The columns that the model was trained on, out of all that a file has."""
    n = reading.get("n_columns")
    if reading.get("columns") is not None and reading.get("format", "columns") == "columns":
        return table.select(_numbers(reading["columns"].split(",")) or [])
    if n is None or table.n_columns == n:
        return table
    if table.n_columns == n + 1:  # a column of labels, as in training
        gold = int(reading.get("label") or -1) % table.n_columns
        return table.select([c for c in range(table.n_columns) if c != gold])
    raise DataError(f"the model was trained on {n} columns (and a label), the file has {table.n_columns}")


@app.command()
def tag(
    model: ModelOption,
    data: Annotated[str, typer.Argument(help="Data to label; standard input by default.")] = "-",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output by default.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", "-f", help="Layout of the file; that of training by default.")
    ] = None,
    comment: CommentOption = "",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Append the probability of each label.")
    ] = False,
    nbest: Annotated[
        int, typer.Option("--nbest", "-n", help="Write this many labellings, each with its probability.")
    ] = 1,
    beam: Annotated[
        str | None,
        typer.Option(
            help="Look only at beams of labels: min-divergence:EPSILON[:MIN_SIZE], fixed:N or threshold:DELTA."
        ),
    ] = None,
    threads: ThreadsOption = -1,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Label data: writes its columns with the predicted label appended.

    A CoNLL-U file is written as it is, with the predicted labels in their column. Of a CRFsuite file only the labels
    are written. The input may hold the label column that training had; it is copied, and not looked at. Input of any
    size is labelled piece by piece.
    """
    if nbest < 1:
        raise DataError(f"--nbest must be >= 1, got {nbest}")
    crf = load_chain(model, n_jobs=threads)
    reading = crf.model_.info.get("reading", {})
    kind = format or Format(reading.get("format") or "columns")
    began = time.perf_counter()
    counts = [0, 0]

    def show() -> None:
        if not quiet and sys.stderr.isatty() and output is not None:
            rate = counts[1] / (time.perf_counter() - began)
            print(f"\r\x1b[2K{counts[0]} sequences, {rate:.0f} tokens/s", end="", file=sys.stderr, flush=True)

    with _output(output) as out, _readable_twice(data, kind) as data:
        frame = None
        if kind is Format.conllu and not json and nbest == 1:
            frame = _Conllu(data, reading.get("label") or "upos")
        rule = as_beam(beam)
        if isinstance(rule, Adaptive):
            raise DataError("--beam of tag takes min-divergence, fixed or threshold: adaptive is for training")
        pieces = _tag_pieces(crf, data, kind, reading, comment)
        if kind is Format.columns and not json and nbest == 1 and rule is None:
            pieces = iter(())
            for done in tag_columns(
                crf.model_,
                data,
                select=lambda table: _tag_columns(crf, table, reading),
                comment=comment,
                probabilities=probabilities,
                threads=resolve_threads(threads),
            ):
                out.buffer.write(done.text)
                if data == "-":
                    out.buffer.flush()
                counts[0] += done.sequences
                counts[1] += done.tokens
                show()
        for table, X in pieces:
            _write_tags(crf, table, X, out, probabilities, nbest, json, frame, rule)
            counts[0] += len(X)
            counts[1] += int(X.lengths.sum())
            show()
        if frame is not None:
            out.writelines(frame.lines)
    if counts[0] == 0:
        raise DataError(f"{data}: the file holds no sequence")
    if not quiet:
        seconds = time.perf_counter() - began
        start = "\r\x1b[2K" if sys.stderr.isatty() and output is not None else ""
        _say(f"{start}labelled {counts[0]} sequences, {counts[1]} tokens in {seconds:.2f}s")


def _tag_pieces(crf: CRF, data: str, kind: Format, reading: dict[str, Any], comment: str) -> Iterator[tuple[Any, Any]]:
    """All columns of the input, and those for the model, piece by piece."""
    if kind is Format.crfsuite:
        for X in iter_items(data):
            yield None, X
    elif kind is Format.conllu:
        names = (reading.get("columns") or "form").split(",")
        for table in iter_columns(data, separator="tab", comment="#", document="", conllu=True):
            yield table, table.select([CONLLU_COLUMNS.index(name) for name in names])
    else:
        for table in iter_columns(data, comment=comment):
            yield table, _tag_columns(crf, table, reading)


@contextmanager
def _readable_twice(data: str, kind: Format) -> Iterator[str]:
    """The path of a file with the data; CoNLL-U from standard input goes into a temporary one."""
    if data != "-" or kind is not Format.conllu:
        yield data
        return
    with tempfile.NamedTemporaryFile(suffix=".conllu") as file, open_source(data) as source:
        shutil.copyfileobj(source, file)
        file.flush()
        yield file.name


class _Conllu:
    """A CoNLL-U file that is written again with one column changed; comments, ranges and empty nodes stay."""

    def __init__(self, path: str, label: str) -> None:
        if label not in CONLLU_COLUMNS:
            raise DataError(f"CoNLL-U has no column {label!r}; there are {', '.join(CONLLU_COLUMNS)}")
        self.column = CONLLU_COLUMNS.index(label)
        self.lines = self._read(path)

    def _read(self, path: str) -> Iterator[str]:
        with open_source(path) as file:
            for line in file:
                yield line.decode("utf-8-sig" if line.startswith(b"\xef\xbb\xbf") else "utf-8")

    def sequence(self, labels: list[str], probabilities: list[float] | None) -> Iterator[str]:
        """The lines up to the end of the next sequence."""
        t = 0
        for line in self.lines:
            cells = line.rstrip("\r\n").split("\t")
            if line.startswith("#") or not cells[0].isdigit():
                yield line
                if t and not line.strip():
                    return
                continue
            cells[self.column] = labels[t]
            if probabilities is not None:
                note = f"Probability={probabilities[t]:.6f}"
                cells[9] = note if cells[9] == "_" else f"{cells[9]}|{note}"
            t += 1
            yield "\t".join(cells) + "\n"


def _write_tags(
    crf: CRF,
    table: Columns | None,
    X: Any,
    out: IO[str],
    probabilities: bool,
    k: int,
    as_json: bool,
    frame: _Conllu | None = None,
    beam: Beam | None = None,
) -> None:
    labels = [str(label) for label in crf.model_.labels]
    i = 0
    for p in crf.model_.potentials(X, resolve_threads(crf.n_jobs), np.float64 if probabilities or k > 1 else None):
        assert p.offsets is not None
        bounds = p.offsets.tolist()
        nodes = node_marginals(p, crf.n_jobs) if probabilities else None
        best: list[list[tuple[Any, float]]]
        if k == 1:
            best = [[(path, 0.0)] for path in p.split(decode_flat(p, crf.n_jobs, beam))]
        else:
            log_z = log_partition(p, crf.n_jobs)
            best = [
                list(zip(found.paths, np.exp(found.scores - z).tolist(), strict=True))
                for found, z in zip(nbest(p, k, beam=beam), log_z, strict=True)
            ]
        for s, paths in enumerate(best):
            rows = table[i] if table is not None else None
            for rank, (path, probability) in enumerate(paths):
                names = [labels[j] for j in path.tolist()]
                each = None
                if nodes is not None:
                    each = nodes[np.arange(bounds[s], bounds[s + 1]), path].tolist()
                if frame is not None:
                    out.writelines(frame.sequence(names, each))
                    continue
                _write_sequence(out, rows, names, each, rank, probability if k > 1 else None, as_json)
            i += 1


def _write_sequence(
    out: IO[str],
    rows: list[Any] | None,
    names: list[str],
    probabilities: list[float] | None,
    rank: int,
    probability: float | None,
    as_json: bool,
) -> None:
    if as_json:
        record: dict[str, Any] = {"labels": names}
        if rows is not None:
            record = {"tokens": rows, **record}
        if probabilities is not None:
            record["probabilities"] = [round(x, 6) for x in probabilities]
        if probability is not None:
            record |= {"rank": rank, "probability": probability}
        out.write(json.dumps(record, ensure_ascii=False) + "\n")
        return
    if probability is not None:
        out.write(f"# {rank} {probability:.6f}\n")
    for t, name in enumerate(names):
        row = () if rows is None else rows[t]
        cells = [row] if isinstance(row, str) else list(row)
        if probabilities is not None:
            out.write("\t".join([*cells, name, f"{probabilities[t]:.6f}"]) + "\n")
        else:
            out.write("\t".join([*cells, name]) + "\n")
    out.write("\n")


@app.command("eval")
def evaluate(
    data: Annotated[
        str, typer.Argument(help="Labelled data; without --model its last two columns are truth and prediction.")
    ],
    model: Annotated[
        Path | None, typer.Option("--model", "--model-file", "-m", help="A model, to label the data first.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", "-f", help="Layout of the file; that of training by default.")
    ] = None,
    label: LabelOption = None,
    columns: ColumnsOption = None,
    comment: CommentOption = "",
    confusion: Annotated[bool, typer.Option("--confusion", help="Also show which label is taken for which.")] = False,
    threads: ThreadsOption = -1,
    json: JsonOption = False,
) -> None:
    """Score predictions: tokens, sequences, and chunks as conlleval counts them."""
    if model is None:
        table, predicted = read_columns(data, comment=comment)
        y: Any = table.select([table.n_columns - 1])
        tags: Any = predicted
    else:
        crf = load_chain(model, n_jobs=threads)
        reading = crf.model_.info.get("reading", {})
        kind = format or Format(reading.get("format") or "columns")
        X, y, _ = _read(data, kind, label or reading.get("label"), columns or reading.get("columns"), comment)
        tags = crf.predict(X)
    report = metrics.evaluate(y, tags)
    if json:
        _emit(report.to_dict())
        return
    print(report)
    if confusion:
        labels, counts = metrics.confusion(y, tags)
        wrong = [
            (int(counts[i, j]), str(a), str(b)) for i, a in enumerate(labels) for j, b in enumerate(labels) if i != j
        ]
        print("\nmost frequent errors (true -> predicted):")
        for n, a, b in sorted(wrong, reverse=True)[:20]:
            if n:
                print(f"{n:8d}  {a} -> {b}")


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    top: Annotated[int, typer.Option("--top", "-n", help="How many weights to show.")] = 10,
    label: Annotated[str | None, typer.Option(help="Only this label.")] = None,
    all_weights: Annotated[bool, typer.Option("--all", help="Every weight, one a line, tab-separated.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Data to label: why does each token get its label?")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Where to write the explanation as HTML.")] = None,
    json: JsonOption = False,
) -> None:
    """Look into a model: its card, its heaviest weights for each label, its transitions; or into its decisions."""
    loaded = load_chain(model)
    m = loaded.model_
    if explain is not None:
        _explain(loaded, explain, top, html, json)
        return
    if html is not None:
        raise DataError("--html goes with --explain")
    if label is not None and label not in m.labels:
        known = ", ".join(map(str, m.labels))
        raise DataError(f"{model}: the model has no label {label!r}: it has {known}")
    table = inspection.transition_table(m)
    if all_weights:
        for w in inspection.state_weights(m, label=label):
            print(f"{w.attribute}\t{w.label}\t{w.weight:.17g}")
        for i, a in enumerate(m.labels):
            for j, b in enumerate(m.labels):
                print(f"{a}\t{b}\t{table[i, j]:.17g}")
        for e in inspection.edge_weights(m):
            print(f"{e.attribute}\t{e.label}\t{e.following}\t{e.weight:.17g}")
        return
    chosen = m.labels if label is None else [label]
    if json:
        finite = [[None if np.isinf(x) else float(x) for x in row] for row in table]
        weights = {str(x): [[w.attribute, w.weight] for w in inspection.state_weights(m, top, x)] for x in chosen}
        _emit({"card": inspection.card(m), "weights": weights, "transitions": finite})
        return
    console = Console(highlight=False, soft_wrap=True)
    _show_card(console, model, m)
    for x in chosen:
        console.print(f"\nheaviest weights for [bold]{escape(str(x))}[/bold]", markup=True)
        for w in inspection.state_weights(m, top, x):
            console.print(f"  {w.weight:+9.4f}  {w.attribute}", markup=False)
    if m.encoder.n_attributes[1]:
        console.print("\nheaviest transition attributes")
        for e in inspection.edge_weights(m, top):
            console.print(f"  {e.weight:+9.4f}  {e.label} -> {e.following}  {e.attribute}", markup=False)
    _show_transitions(console, [str(x) for x in m.labels], table, top)


def _explain(crf: Any, data: str, top: int, page: Path | None, as_json: bool) -> None:
    if isinstance(crf, HMM):
        crf = CRF.from_hmm(crf)
    if not isinstance(crf, CRF):
        raise DataError("--explain is for CRFs and HMMs: the weights of a MEMM act through every step's normalisation")
    reading = crf.model_.info.get("reading", {})
    views = []
    for _, X in _tag_pieces(crf, data, Format(reading.get("format") or "columns"), reading, ""):
        for x in X:
            found = crf.explain(x)
            if page is not None:
                views.append(found.to_html(top))
            elif as_json:
                _emit(found.to_dict())
            else:
                print(found.to_text(top), end="\n\n")
    if page is not None:
        head = '<!doctype html><meta charset="utf-8"><title>crfkit</title>'
        with whole_file(page, "w", encoding="utf-8") as file:
            file.write(f"{head}<body>{'<hr>'.join(views)}</body>")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A model file of CRFsuite, CRF++ (text), Wapiti or crfkit.")],
    target: Annotated[Path, typer.Argument(help="Where to write the model.")],
    to: Annotated[FileKind, typer.Option("--to", help="What to write.")] = FileKind.crfkit,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Convert a model of another tool to crfkit's, or one trained on items to CRFsuite's."""
    from crfkit.compat import convert_model, model_format

    kind = model_format(source)
    model = convert_model(source, target, to.value, kind)
    if not quiet:
        n = model.encoder.n_attributes[0]
        _say(f"{source} ({kind}): {len(model.labels)} labels, {n} attributes, {model.layout.size} weights")
        _say(f"wrote {target} ({to.value}, {os.path.getsize(target) / 1e6:.1f} MB)")


def _show_card(console: Console, path: Path, m: Any) -> None:
    card = inspection.card(m)
    names = card["labels"]
    shown = ", ".join(names[:12]) + (f", ... ({len(names)})" if len(names) > 12 else "")
    rows = {
        "model": str(path),
        "labels": shown,
        "features": card["features"],
        "attributes": f"{card['attributes']:,}",
        "weights": f"{card['weights']:,} ({card['active_weights']:,} not zero)",
        "constraints": "yes" if card["constraints"] else "no",
    }
    info = card["training"]
    if "tokens" in info:
        rows["trained on"] = f"{info['sequences']:,} sequences, {info['tokens']:,} tokens"
        rows["objective"] = f"{info['objective']:.4f} after {info['iterations']} iterations ({info['stopped']})"
    parameters = card["parameters"]
    if "smoothing" in parameters:
        rows["smoothing"] = f"emissions {parameters['smoothing']}, transitions {parameters['transition_smoothing']}"
    else:
        rows["penalty"] = f"c1 {parameters.get('c1')}, c2 {parameters.get('c2')}"
    for name, value in rows.items():
        console.print(f"{name:12} {value}", markup=False)


def _show_transitions(console: Console, labels: list[str], table: Any, top: int) -> None:
    if len(labels) <= 12:
        view = Table(title="\ntransitions (row, then column)", title_justify="left", box=None, pad_edge=False)
        view.add_column("")
        for name in labels:
            view.add_column(escape(name), justify="right")
        for name, row in zip(labels, table, strict=True):
            view.add_row(escape(name), *("-" if np.isinf(x) else f"{x:+.2f}" for x in row))
        console.print(view)
        return
    likely = bool((table <= 0).all())  # an HMM's: logarithms of probabilities
    console.print("\nlikeliest transitions" if likely else "\nheaviest transitions")
    order = np.argsort(-table if likely else -np.where(np.isinf(table), 0, np.abs(table)), axis=None)[: 2 * top]
    for k in order:
        i, j = divmod(int(k), len(labels))
        console.print(f"  {table[i, j]:+9.4f}  {labels[i]} -> {labels[j]}", markup=False)


@app.command()
def demo(threads: ThreadsOption = -1) -> None:
    """Train on the embedded sample of recipe ingredients and show what it learned."""
    X, y = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    n = int(X.lengths.sum())
    print(f"Training on {len(X)} recipe ingredients ({n} tokens), with built-in token features ...")
    began = time.perf_counter()
    crf = CRF(c2=0.1, n_jobs=threads).fit(X, y)
    seconds = time.perf_counter() - began
    print(f"{crf.n_iter_} iterations, {crf.model_.layout.size} weights, {seconds:.2f} seconds\n")
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


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"crfkit {crfkit.__version__} ({crfkit._core.instruction_set()} kernels)")
        raise typer.Exit


def main() -> None:
    """Runs the command line; faults of the user's end with one line and exit code 1."""
    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        _say("crfkit: interrupted")
        sys.exit(130)
    except (ValueError, OSError) as e:
        text = f"{e.strerror}: {e.filename}" if isinstance(e, OSError) and e.filename else str(e)
        _say(f"crfkit: error: {text}")
        sys.exit(1)


if __name__ == "__main__":
    main()
