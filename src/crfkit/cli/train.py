"""``crfkit train``."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import crfkit
from crfkit import CRF, HMM, MEMM, Template, metrics
from crfkit.chain.beams import as_beam
from crfkit.cli.files import emit, file_size, read_labelled, read_unlabelled, say
from crfkit.cli.options import (
    ColumnsOption,
    CommentOption,
    Dialect,
    Format,
    FormatOption,
    JsonOption,
    Kind,
    LabelOption,
    Scheme,
    ThreadsOption,
    UnknownOption,
)
from crfkit.cli.other_names import other_settings
from crfkit.data import DataError
from crfkit.loading import load_chain
from crfkit.training import Progress


class _Watch:
    """Shows training: a live line on a terminal, plain lines now and then elsewhere, JSON lines if asked.

    The live line has a bar where the number of iterations is known.
    """

    def __init__(self, as_json: bool, quiet: bool, most: int | None) -> None:
        self.most = most  # iterations
        self.as_json = as_json
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not as_json and not quiet
        self.last = 0.0
        self.tokens = 0

    def __call__(self, p: Progress, w: Any) -> None:
        if self.as_json:
            emit({"event": "iteration", **_plain_progress(p)})
        elif not self.quiet:
            now = time.monotonic()
            if not self.live and now - self.last < 2:
                return
            self.last = now
            parts = [f"iteration {p.iteration:4d}", f"objective {p.value:.4f}", f"{p.seconds:.1f}s"]
            parts += [f"dev {k} {100 * v:.2f}" for k, v in p.scores.items() if k in ("accuracy", "f1")]
            if self.tokens:
                parts.append(f"{p.evaluations * self.tokens / max(p.seconds, 1e-9) / 1e6:.2f}M tokens/s")
            parts += [f"{k} {v:.4f}" for k, v in p.terms.items()]
            if np.isfinite(p.gradient_norm):
                parts.append(f"|gradient| {p.gradient_norm:.3g}")
            line = "  ".join([*parts, f"active {p.active}"])
            if self.live:
                if self.most:
                    done = min(12, 12 * p.iteration // self.most)
                    line = f"[{'#' * done}{'.' * (12 - done)}] {line}"
                room = shutil.get_terminal_size().columns  # a wrapped line could not be rewritten
                while len(line) >= room and "  " in line:
                    line = line[: line.rindex("  ")].rstrip()
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
            else:
                say(line)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)


def _without(y: Any, unknown: str) -> list[list[Any]]:
    """The labels with None for the one that means: not known."""
    return [[None if name == unknown else name for name in row] for row in y]


def refuse(settings: dict[str, Any]) -> None:
    """Raises where something was set that only CRFs have."""
    for name in ("constraints", "entropy_weight", "beam", "warm_start_fraction"):
        if settings[name]:
            raise DataError(f"--{name.replace('_', '-')} is for CRFs")


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
        str,
        typer.Option(
            "--algorithm",
            "--algo",
            "-a",
            help=f"Optimiser: {', '.join(crfkit.training.ALGORITHMS)}; or what CRFsuite, CRF++ or Wapiti call it.",
        ),
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
    unknown: UnknownOption = None,
    unlabeled: Annotated[str | None, typer.Option(help="Data without labels, for --entropy-weight.")] = None,
    entropy_weight: Annotated[
        float, typer.Option(help="Coefficient of the entropy of sequences without any known label.")
    ] = 0.0,
    entropy_per: Annotated[
        str, typer.Option(help="Whether entropy counts per sequence, or per token of it.")
    ] = "sequence",
    entropy_ramp: Annotated[int, typer.Option(help="Iterations over which the entropy's weight grows.")] = 10,
    tol: Annotated[
        float,
        typer.Option(
            "--tol", "--eta", "--stopeps", help="Stop when ten iterations gain less than this part of the objective."
        ),
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
    watch = _Watch(json, quiet, max_iter)
    as_beam(beam)
    X, y, weights = read_labelled(data, format, label, columns, comment)
    dev_data = None if dev is None else read_labelled(dev, format, label, columns, comment)
    if unknown is not None:
        y = _without(y, unknown)
        if dev_data is not None:
            dev_data = dev_data[0], _without(dev_data[1], unknown), dev_data[2]
    if unlabeled is not None:
        if not entropy_weight:
            raise DataError("--unlabeled does nothing without --entropy-weight")
        more = read_unlabelled(unlabeled, format, label, columns, comment, X)
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
    others, unused = other_settings(algorithm, rho2, cost, param or [])
    settings |= others
    if unused and not quiet:
        say(f"crfkit: note: not used, crfkit chooses by itself: {', '.join(unused)}")
    crf: Any
    if kind is not Kind.crf and start is not None:
        raise DataError(f"--start goes on with a CRF, not with an {kind.value.upper()}")
    if kind is Kind.hmm:
        if format is Format.crfsuite or template is not None:
            raise DataError("an HMM emits the columns themselves: it takes no template, and no CRFsuite files")
        if settings["algorithm"] != "lbfgs":
            raise DataError(f"--algorithm {algorithm} is for CRFs and MEMMs: an HMM is trained by counting")
        refuse(settings)
        crf = HMM(n_jobs=threads, max_iter=100 if max_iter is None else max_iter)
    elif start is None:
        features = "auto" if template is None else Template.from_file(template, padding=padding, dialect=dialect.value)
        if kind is Kind.memm:
            refuse(settings)
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
    for path in (data, dev, template):
        if path is not None and path != "-" and Path(path).exists() and model.exists() and model.samefile(path):
            raise DataError(f"{model}: the model would be written over what it is made from")
    crf.callback = watch
    watch.tokens = int(X.lengths.sum())
    if not quiet and not json:
        say(f"read {len(X)} sequences, {watch.tokens} tokens in {time.perf_counter() - began:.2f}s")
    interrupted = False
    try:
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
                say(f"crfkit: warning: {w.message}")
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
        emit({**record, **({"dev": scores} if scores else {})})
    elif not quiet:
        course = f"{result.iterations} iterations, objective {result.value:.4f}, " if result.iterations else ""
        say(
            f"{result.message}: {course}"
            f"{np.count_nonzero(crf.model_.weights)} of {crf.model_.layout.size} weights active"
        )
        if beams is not None and beams.exact:
            say("training ended with all labels")
        elif beams is not None:
            say(
                f"beams of {beams.average:.1f} labels, at most {beams.largest}; on a sample they hold "
                f"{beams.mass:.2%} of a sequence's mass, and the gradient's error is {beams.gradient_error:.1%}"
            )
        for name, value in scores.items():
            say(f"dev {name.replace('_', ' ')}: {100 * value:.2f}")
        say(f"wrote {model} ({file_size(model)}) after {seconds:.1f}s")
    if interrupted:
        raise typer.Exit(130)
