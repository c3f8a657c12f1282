"""``crfkit tune``: the best coefficients of regularisation by cross-validation."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crfkit.base.messages import counted
from crfkit.cli import options as o
from crfkit.cli.cluster import DaskOption, cluster
from crfkit.cli.files import (
    Reading,
    busy,
    check_output,
    emit,
    encoded,
    file_size,
    mark_unknown,
    naming_data,
    read_data,
    require_file,
    say,
    warnings_said,
)
from crfkit.data.blocks import is_block_file
from crfkit.estimators.crf import CRF
from crfkit.estimators.tuning import C1, C2, Trial, Tuning, check_search
from crfkit.estimators.tuning import tune as search

_NUMBERS = "separated by commas"


def _shown(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{x:g}" for x in numbers)


def tune(
    context: typer.Context,
    data: o.DataArgument,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", help="Where to write the best model, trained on all data; not saved by default."),
    ] = None,
    c1: Annotated[str, typer.Option("--c1", help=f"Coefficients of L1 regularisation, {_NUMBERS}.")] = _shown(C1),
    c2: Annotated[str, typer.Option("--c2", help=f"Coefficients of L2 regularisation, {_NUMBERS}.")] = _shown(C2),
    n_settings: Annotated[
        int | None, typer.Option("--random", metavar="N", help="Draw N settings between the smallest and the largest.")
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="Number of folds, each held out in turn.")] = 5,
    reject: Annotated[
        float | None,
        typer.Option("--reject", help="After the first fold, drop settings that score this much less than the best."),
    ] = None,
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
    min_freq: o.MinFreqOption = 0,
    all_possible_states: o.StatesOption = False,
    constraints: o.ConstraintsOption = None,
    max_iter: o.MaxIterOption = None,
    tol: o.TolOption = 1e-5,
    random_state: o.SeedOption = None,
    top: Annotated[int, typer.Option("--top", help="Settings to show.")] = 10,
    n_jobs: o.JobsOption = -1,
    dask: DaskOption = None,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Search for the best c1 and c2 by cross-validation, and train with them.

    Data is encoded once, and each setting starts from the weights of its neighbour. The score is the F1 of spans, or
    token accuracy where labels form no spans. Sequences with the label of --unknown are trained on, and never held out.
    """
    options = dict(locals())
    reading = Reading(format, label, columns, comment)
    source = encoded(data, encoding)

    def check() -> CRF:
        reading.check()
        if is_block_file(data):
            o.refuse_encoded(o.given_options(context), data)
        check_output("--model", model, source, *o.feature_files(options))
        with busy("reading features", quiet or json):
            features = o.read_features(options)
        shape: dict[str, Any] = {
            "min_freq": min_freq,
            "all_possible_states": all_possible_states,
            "constraints": constraints,
        }
        how: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "n_jobs": n_jobs}
        crf = CRF(features, **shape, **how)
        check_search(crf, folds, reject, n_settings)
        return crf

    crf = o.check_options(context, check)
    grid = _numbers("--c1", c1), _numbers("--c2", c2)
    require_file(source)
    with busy(f"reading {data}", quiet or json):
        X, y, _ = read_data(source, reading)
    y = mark_unknown(y, unknown, quiet)
    watch = _Watch(json, quiet)
    with cluster(dask, quiet or json) as client, warnings_said(quiet):
        given: dict[str, Any] = {
            "c1": grid[0],
            "c2": grid[1],
            "n_settings": n_settings,
            "folds": folds,
            "reject": reject,
        }
        with naming_data(data):
            found = search(crf, X, y, **given, callback=watch, cluster=client)
    watch.end()
    best = found.crf
    assert best is not None
    if model is not None:
        best.model_ = replace(best.model_, info={**best.model_.info, "reading": reading.of_data(X)})
        best.save(model)
    _report(found, model, top, json, quiet)


def _report(found: Tuning, model: Path | None, top: int, json: bool, quiet: bool) -> None:
    if json:
        best = {"c1": found.best.c1, "c2": found.best.c2, found.scoring: found.best_score}
        emit({"event": "tuned", **best, "model": None if model is None else str(model), "seconds": found.seconds})
        return
    if not quiet:
        print(found.table(top))
        say(f"best: c1 {found.best.c1:g}, c2 {found.best.c2:g}, {found.scoring} {100 * found.best_score:.2f}")
        where = "" if model is None else f"; wrote {model} ({file_size(model)})"
        say(f"{counted(len(found.settings), 'setting')} in {found.seconds:.1f}s{where}")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(x) for x in text.split(",")]
    except ValueError:
        raise o.OptionError(f"{option} must be numbers separated by commas, got {text!r}") from None


class _Watch:
    """Shows every training: a live line on a terminal, JSON lines if asked."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.live = sys.stderr.isatty() and not as_json and not quiet
        self.began = self.last = time.monotonic()

    def __call__(self, trial: Trial, done: int, total: int) -> None:
        """After a training."""
        if self.as_json:
            emit({"event": "trial", **trial._asdict(), "done": done, "total": total})
            return
        now = time.monotonic()
        if self.quiet or (not self.live and now - self.last < 10):
            return
        self.last = now
        line = f"{done} of {counted(total, 'training')}, {now - self.began:.0f}s, last score {100 * trial.score:.2f}"
        print(f"\r\x1b[2K{line}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clears the live line."""
        if self.live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
