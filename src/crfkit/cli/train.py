"""``crfkit train``: read, configure, run, report."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from crfkit import metrics
from crfkit.base.checkpoints import seconds_of
from crfkit.base.interrupts import Guard
from crfkit.base.messages import counted
from crfkit.base.parameters import check_number
from crfkit.base.threads import resolve_threads
from crfkit.cli import options as o
from crfkit.cli.cluster import DaskOption, cluster
from crfkit.cli.encode import Tokens, encode_text
from crfkit.cli.files import (
    Reading,
    busy,
    check_output,
    column_number,
    column_numbers,
    emit,
    encoded,
    file_size,
    in_flags,
    is_segments,
    leave_pipes,
    load_chain,
    mark_unknown,
    naming_data,
    read_data,
    read_labelled,
    read_unlabelled,
    require_file,
    say,
    warnings_said,
)
from crfkit.cli.other_names import other_settings
from crfkit.cli.plan import print_plan
from crfkit.data import Blocks, DataError
from crfkit.data.blocks import is_block_file
from crfkit.data.readers import EncodedPath
from crfkit.estimators import CRF, HMM, MEMM, Expectations
from crfkit.estimators.expectations import METHODS
from crfkit.features.encoding import bytes_of
from crfkit.segment import SegmentCRF, SegmentFeatures
from crfkit.training import Progress
from crfkit.training.registry import find_algorithm, supporting

#: What the kinds of models are made by.
_KINDS: dict[str, Any] = {"crf": CRF, "hmm": HMM, "memm": MEMM, "segment": SegmentCRF}
#: Parameters that a kind of model needs for options of other names.
_NEEDS = dict.fromkeys(("template", "dialect", "padding", *o.LEXICON), "features") | {
    "start": "warm_start",
    "param": "algorithm",
    "dictionary": "segments",
    "seen": "segments",
}
_NEEDS |= {"rho2": "c2", "cost": "c2", "resume": "checkpoint"}
#: Defaults of the options that are parameters of CRF.
_DEFAULT: dict[str, Any] = {name: p.default for name, p in CRF._parameters().items()}


def train(
    context: typer.Context,
    data: o.DataArgument,
    model: o.TargetOption = None,
    kind: o.KindOption = o.Kind.crf,
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
    dev: o.DevOption = None,
    unknown: o.UnknownOption = None,
    unlabelled: o.UnlabelledOption = None,
    algorithm: o.AlgorithmOption = _DEFAULT["algorithm"],
    c1: o.C1Option = _DEFAULT["c1"],
    c2: o.C2Option = _DEFAULT["c2"],
    min_freq: o.MinFreqOption = _DEFAULT["min_freq"],
    hash_bits: o.HashOption = _DEFAULT["hash_bits"],
    all_possible_states: o.StatesOption = _DEFAULT["all_possible_states"],
    all_possible_transitions: o.TransitionsOption = _DEFAULT["all_possible_transitions"],
    start_end: o.StartEndOption = _DEFAULT["start_end"],
    constraints: o.ConstraintsOption = _DEFAULT["constraints"],
    entropy_weight: o.EntropyOption = _DEFAULT["entropy_weight"],
    entropy_per: o.EntropyPerOption = _DEFAULT["entropy_per"],
    entropy_ramp: o.EntropyRampOption = _DEFAULT["entropy_ramp"],
    expectations: o.ExpectationsOption = None,
    expectation_weight: o.ExpectationWeightOption = 1.0,
    expectation_method: o.MethodOption = "expectation",
    order: o.OrderOption = _DEFAULT["order"],
    beam: o.BeamOption = _DEFAULT["beam"],
    hidden_states: o.HiddenOption = _DEFAULT["hidden_states"],
    n_init: o.StartsOption = _DEFAULT["n_init"],
    max_iter: o.MaxIterOption = _DEFAULT["max_iter"],
    tol: o.TolOption = _DEFAULT["tol"],
    early_stopping: o.StoppingOption = _DEFAULT["early_stopping"],
    max_length: o.MaxLengthOption = None,
    too_long: o.TooLongOption = "error",
    tail_order: o.TailOption = 0,
    dictionary: o.DictionaryOption = False,
    seen: o.SeenOption = False,
    ends: o.EndsOption = False,
    start: o.StartOption = None,
    warm_start_fraction: o.FractionOption = _DEFAULT["warm_start_fraction"],
    rho2: o.Rho2Option = None,
    cost: o.CostOption = None,
    param: o.ParamOption = None,
    checkpoint: o.CheckpointOption = _DEFAULT["checkpoint"],
    checkpoint_every: o.EveryOption = _DEFAULT["checkpoint_every"],
    resume: o.ResumeOption = False,
    device: o.DeviceOption = _DEFAULT["device"],
    random_state: o.SeedOption = _DEFAULT["random_state"],
    out_of_core: o.OutOfCoreOption = None,
    memory: o.MemoryOption = "1GB",
    window: o.WindowOption = None,
    plan: o.PlanOption = False,
    n_jobs: o.JobsOption = _DEFAULT["n_jobs"],
    dask: DaskOption = None,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Train a model on labelled data, or on a block file of `crfkit encode`.

    Ctrl-C, SIGTERM and SIGHUP end training early and save the best weights so far; a second signal ends at once. With
    --checkpoint, training that was killed continues with --resume.
    """
    options = dict(locals())
    given = o.given_options(context)
    began = time.perf_counter()
    options |= {n: encoded(options[n], encoding) for n in ("data", "dev", "unlabelled") if options[n] is not None}
    reading = Reading(format, label, columns, comment)
    crf = o.check_options(context, lambda: _check(options, given, reading))
    if plan:
        print_plan(crf, options["data"], reading, options)
        return
    assert model is not None  # by _check
    with busy(f"{'reading' if out_of_core is None else 'encoding'} {data}", quiet or json) as tell:
        corpus = _read(options, reading) if out_of_core is None else _encode(options, reading, crf, Tokens(tell))
    tokens = 0 if dask else _size(corpus.X, options)
    with cluster(dask, quiet or json), Guard() as guard, naming_data(data):
        if not quiet and not json and not dask:
            say(f"{corpus.sizes(tokens)} in {time.perf_counter() - began:.2f}s")
        crf.callback = _Watch(json, quiet, max_iter, tokens)
        notes = _run(crf, corpus, resume)
        _save(crf, model, corpus, reading, checkpoint)
        _say(crf, model, corpus, notes, began, json, quiet)
    if crf.callback.closed:
        raise BrokenPipeError
    if guard.signum or crf.result_.reason == "interrupted":
        raise typer.Exit(128 + (guard.signum or signal.SIGINT))


@dataclass
class _Corpus:
    """Labelled data, weights of its sequences, and held-out data."""

    X: Any
    y: Any
    weights: Any = None
    X_dev: Any = None
    y_dev: Any = None
    expectations: Expectations | None = None

    def sizes(self, tokens: int) -> str:
        """What was read, in words."""
        return f"read {counted(len(self.X), 'sequence')}, {counted(tokens, 'token')}"

    def scores(self, crf: Any) -> dict[str, float]:
        """What a model scores on the held-out data."""
        if self.X_dev is None:
            return {}
        y = crf.as_predicted(self.y_dev) if isinstance(crf, SegmentCRF) else self.y_dev
        return metrics.evaluate(y, crf.predict(self.X_dev)).summary()


def _check(options: dict[str, Any], given: dict[str, str], reading: Reading) -> Any:
    """The estimator that the options ask for; raises if anything is wrong that can be known without the data."""
    data, dev, unlabelled = (options[name] for name in ("data", "dev", "unlabelled"))
    if options["model"] is None and not options["plan"]:
        raise o.OptionError("--model is missing: where to write the model")
    given_files = [data, dev, unlabelled, options["expectations"], *o.feature_files(options)]
    check_output("--model", options["model"], *given_files)
    check_output("--checkpoint", options["checkpoint"], options["model"], options["start"], *given_files)
    if options["out_of_core"] is not None and _stored_in(options).exists():
        check_output("--out-of-core", _stored_in(options), *given_files)
    reading.check()
    resolve_threads(options["n_jobs"])
    seconds_of(options["checkpoint_every"])
    if options["checkpoint"] is None and {"resume", "checkpoint_every"} & given.keys():
        raise o.OptionError("--resume and --every need a --checkpoint")
    if options["early_stopping"] is not None and dev is None:
        raise o.OptionError("--early-stopping needs held-out data: give it with --dev")
    used = options["entropy_weight"] or options["expectations"] is not None or options["out_of_core"] is not None
    if unlabelled is not None and not used:
        raise o.OptionError("--unlabelled does nothing without --entropy-weight or --expectations")
    stored = is_block_file(data)
    if options["entropy_weight"] and not stored and unlabelled is None and options["unknown"] is None:
        raise o.OptionError("--entropy-weight needs unlabelled data: give it with --unlabelled")
    _check_expectations(options, given, stored)
    check_number("train", "window", options["window"], 1, integer=True, optional=True)
    if options["window"] is not None and not stored and options["out_of_core"] is None:
        raise o.OptionError("--window is for block files, and for --out-of-core")
    if options["out_of_core"] is not None and options["kind"].value in ("hmm", "segment"):
        raise o.OptionError("--out-of-core is for --kind crf and memm")
    if options["plan"] and options["kind"].value in ("hmm", "segment"):
        raise o.OptionError(f"--plan is for --kind crf and memm, not for {options['kind'].value}")
    bytes_of(options["memory"])
    if stored:
        if options["kind"].value in ("hmm", "segment"):
            raise o.OptionError(f"--kind {options['kind'].value} needs text: {data} is a block file")
        o.refuse_encoded(given, data)
    crf = _configure(options, given)
    if "n_init" in given and options["hidden_states"] == 1:
        raise o.OptionError(f"{given['n_init']} does nothing without --hidden-states")
    if (stored or options["out_of_core"] is not None) and options["hidden_states"] > 1:
        raise o.OptionError("--hidden-states needs the data in memory: no block file or --out-of-core")
    if options["dask"] is not None:
        crf = _on_cluster(crf, options, given)
    crf._check_parameters()
    if options["window"] is not None and options["kind"] is not o.Kind.crf:
        raise o.OptionError(f"--window is for --kind crf, not for {options['kind'].value}")
    if options["window"] is not None and "window" not in find_algorithm(crf.algorithm).supports:
        raise o.OptionError(f"--window is for {supporting('window')}, not for {crf.algorithm!r}")
    for path in (data, dev, unlabelled):
        require_file(path)
    return crf


def _check_expectations(options: dict[str, Any], given: dict[str, str], stored: bool) -> None:
    """Raises if --expectations cannot be fulfilled with the other options."""
    if options["expectations"] is None:
        for name in ("expectation_weight", "expectation_method"):
            if name in given:
                raise o.OptionError(f"{given[name]} does nothing without --expectations")
        return
    check_number("train", "expectation_weight", options["expectation_weight"], 0, strict=True)
    if options["expectation_method"] not in METHODS:
        raise o.OptionError(f"--expectation-method must be one of {', '.join(METHODS)}")
    if options["kind"].value != "crf":
        raise o.OptionError(f"--expectations is for --kind crf, not for {options['kind'].value}")
    if stored or options["out_of_core"] is not None or options["dask"] is not None:
        raise o.OptionError("--expectations needs the data in memory: no block file, --out-of-core or --dask")
    if options["order"] != 1:
        raise o.OptionError(f"--expectations needs --order 1, got {options['order']}")
    if options["unlabelled"] is None and options["unknown"] is None:
        raise o.OptionError("--expectations needs unlabelled data: give it with --unlabelled")
    require_file(str(options["expectations"]))


def _on_cluster(crf: Any, options: dict[str, Any], given: dict[str, str]) -> Any:
    """The estimator that trains on a cluster."""
    for name in ("unknown", "unlabelled", "start", "out_of_core", "window"):
        if name in given:
            raise o.OptionError(f"{given[name]} and --dask exclude each other")
    if options["data"] == "-" or isinstance(options["data"], EncodedPath):
        raise o.OptionError("--dask needs a file in UTF-8 that all workers see")
    if not isinstance(crf, CRF):
        raise o.OptionError(f"--dask is for --kind crf, not for {options['kind'].value}")
    try:
        from crfkit.dask import CRF as Distributed
    except ImportError as e:
        raise o.OptionError(f"--dask: {e}") from None
    return Distributed(**crf.get_params(deep=False))


def _partitions(path: str, how: Reading) -> Any:
    """A labelled file, to be read by the workers of a cluster."""
    if is_block_file(path):
        return Blocks(path)
    from dask import delayed

    from crfkit.dask import read_columns

    path = os.path.abspath(path)
    if how.format is not o.Format.columns:
        return [delayed(read_labelled)(path, how)]
    chosen = None if how.columns is None else column_numbers([c.strip() for c in how.columns.split(",")])
    return read_columns(path, label=column_number(how.label or "-1", "--label"), columns=chosen, comment=how.comment)


def _encode(options: dict[str, Any], how: Reading, crf: Any, progress: Tokens) -> _Corpus:
    """A block file of the data in the folder of --out-of-core, made now or by an earlier call that was interrupted."""
    settings = {name: options[name] for name in ("memory", "n_jobs", "unknown")}
    settings |= {"min_freq": crf._least(), "resume": True}
    target = _stored_in(options)
    target.parent.mkdir(parents=True, exist_ok=True)
    encode_text([options["data"]], target, crf, how, options["unlabelled"], settings, progress)
    corpus = _Corpus(Blocks(target, window=options["window"]), None)
    if options["dev"] is not None:
        _read_dev(corpus, options["dev"], options["unknown"], how)
    return corpus


def _stored_in(options: dict[str, Any]) -> Path:
    """The block file of --out-of-core."""
    folder: Path = options["out_of_core"]
    name = "stdin" if options["data"] == "-" else Path(options["data"]).name
    return folder / f"{name}.blocks"


def _read_dev(corpus: _Corpus, path: str, unknown: str | None, how: Reading) -> None:
    """Adds the held-out data."""
    corpus.X_dev, corpus.y_dev, _ = read_data(path, how)
    if isinstance(corpus.X_dev, Blocks):
        corpus.y_dev = corpus.X_dev.label_lists()
    else:
        corpus.y_dev = mark_unknown(corpus.y_dev, unknown, quiet=True)


def _size(X: Any, options: dict[str, Any]) -> int:
    """Number of tokens; says so if a long file is one sequence, which is usual for HMMs alone."""
    tokens = int(X.lengths.sum())
    alone = tokens > 1000 and len(X) == 1 and not isinstance(X, Blocks)
    if alone and not options["quiet"] and options["kind"] is not o.Kind.hmm:
        say(
            f"crfkit: warning: {options['data']}: no blank line found: all {tokens:,} tokens are one sequence; "
            "put a blank line after each sequence, such as a sentence"
        )
    return tokens


def _read(options: dict[str, Any], how: Reading) -> _Corpus:
    unknown, path = options["unknown"], options["unlabelled"]
    given = (_partitions(options["data"], how), None) if options["dask"] else read_data(options["data"], how)
    corpus = _Corpus(*given)
    if isinstance(corpus.X, Blocks) and options["window"] is not None:
        corpus.X = Blocks(options["data"], window=options["window"])
    if options["dev"] is not None:
        _read_dev(corpus, options["dev"], unknown, how)
    corpus.y = mark_unknown(corpus.y, unknown, options["quiet"])
    if path is not None:
        more = read_unlabelled(path, how, corpus.X)
        corpus.y = [*corpus.y, *[None] * len(more)]
        if corpus.weights is not None:
            corpus.weights = np.concatenate([corpus.weights, np.ones(len(more))])
        corpus.X = type(corpus.X).concatenate([corpus.X, more])
    if options["expectations"] is not None:
        settings = {"weight": options["expectation_weight"], "method": options["expectation_method"]}
        corpus.expectations = Expectations.read(options["expectations"], **settings)
    return corpus


def _configure(options: dict[str, Any], given: dict[str, str]) -> Any:
    """The estimator that the options ask for; ``given`` are the names and flags of those on the command line."""
    kind, start = options["kind"].value, options["start"]
    for name, flag in given.items():
        needed = _NEEDS.get(name, name)
        able = [k for k, estimator in _KINDS.items() if needed in estimator._parameters()]
        if able and kind not in able:
            raise DataError(f"{flag} is not an option of --kind {kind}, only of {' and '.join(able)}")
    settings = {name: options[name] for name in _KINDS[kind]._parameters() if name in given}
    if kind != "hmm":
        more, unused = other_settings(options["algorithm"], options["rho2"], options["cost"], options["param"] or [])
        settings |= more
        if unused and not options["quiet"]:
            say(f"crfkit: note: not used, crfkit chooses by itself: {', '.join(unused)}")
    elif options["format"] is o.Format.crfsuite:
        raise DataError("an HMM emits the columns themselves and cannot read CRFsuite files")
    if start is not None:
        for name in ("template", *o.LEXICON):
            if options[name]:
                raise DataError(f"--{name} and --warm-start exclude each other: the model has its features already")
        crf = load_chain(start)
        if is_segments(crf) != (kind == "segment"):
            raise DataError(f"{start}: a {type(crf).__name__} cannot start a training with --kind {kind}")
        default = {name: x for name, x in _DEFAULT.items() if name in options and name != "constraints"}
        default = {name: x for name, x in default.items() if name in crf._parameters()}
        return crf.set_params(**default | settings, warm_start=True)
    if options["dictionary"] or options["seen"]:
        settings["segments"] = SegmentFeatures(dictionary=options["dictionary"], seen=options["seen"])
    if any(options[name] for name in ("template", *o.LEXICON)):
        with busy("reading features", options["quiet"] or options["json"]):
            settings["features"] = o.read_features(options)
    return _KINDS[kind](**settings)


def _run(crf: Any, corpus: _Corpus, resume: bool) -> list[str]:
    """Fits; warnings are given back as messages."""
    notes: list[str] = []
    crf._say_not_converged = notes.append  # without scikit-learn, which would take longer than many a training
    crf._say_lost = crf.callback.note  # a cluster's workers, when it happens
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if isinstance(crf, HMM):
                crf.fit(corpus.X, corpus.y, resume=resume)
            else:
                held_out = {"X_dev": corpus.X_dev, "y_dev": corpus.y_dev}
                weights = {} if corpus.weights is None else {"sample_weight": corpus.weights}
                more = {} if corpus.expectations is None else {"expectations": corpus.expectations}
                crf.fit(corpus.X, corpus.y, **held_out, **weights, **more, resume=resume)
    finally:
        crf.callback.end()
    if crf.result_.reason == "interrupted":
        return []
    return [in_flags(text) for text in (*notes, *(str(w.message) for w in caught))]


def _save(crf: Any, model: Path, corpus: _Corpus, reading: Reading, checkpoint: Path | None) -> None:
    """Writes the model, with how its data was read; the checkpoint goes if training has ended."""
    known = reading.of_data(corpus.X, getattr(crf.model_.encoder, "n_columns", None))
    crf.model_ = replace(crf.model_, info={**crf.model_.info, "reading": known})
    crf.save(model)
    if crf.result_.reason == "interrupted":
        corpus.X_dev = None  # whoever interrupts does not want to wait for scores
    elif checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


@warnings_said(quiet=True)  # those of the held-out data are in the notes
def _say(crf: Any, model: Path, corpus: _Corpus, notes: list[str], began: float, as_json: bool, quiet: bool) -> None:
    """What there is to say when training is over."""
    for text in () if quiet else notes:
        say(f"crfkit: warning: {text}")
    seconds = time.perf_counter() - began
    if as_json:
        emit(_record(crf, model, corpus, seconds))
    elif not quiet:
        _report(crf, model, corpus, seconds)


def _record(crf: Any, model: Path, corpus: _Corpus, seconds: float) -> dict[str, Any]:
    """How training went, for programs."""
    result, scores, beams = crf.result_, corpus.scores(crf), crf.result_.beams
    return {
        "event": "trained",
        "model": str(model),
        "objective": result.value,
        "iterations": result.iterations,
        "evaluations": result.evaluations,
        "converged": result.converged,
        "reason": result.reason,
        "stopped": result.message,
        "weights": len(crf.model_.weights),
        "active": int(np.count_nonzero(crf.model_.weights)),
        "seconds": round(seconds, 4),
        **({} if beams is None else {"beams": asdict(beams)}),
        **({"dev": scores} if scores else {}),
    }


def _report(crf: Any, model: Path, corpus: _Corpus, seconds: float) -> None:
    """How training went, in words."""
    result, beams = crf.result_, crf.result_.beams
    course = f"objective {result.value:.4f}, " if result.iterations else ""
    if result.iterations and result.reason != "max_iter":  # which has said how many
        course = f"{counted(result.iterations, 'iteration')}, {course}"
    active, size = np.count_nonzero(crf.model_.weights), len(crf.model_.weights)
    say(f"{result.message}: {course}{active} of {counted(size, 'weight')} active")
    if beams is not None and beams.exact:
        say("training ended with all labels")
    elif beams is not None:
        say(
            f"beams of {beams.average:.1f} labels, at most {beams.largest}; on a sample they hold "
            f"{beams.mass:.2%} of a sequence's mass, and the gradient's error is {beams.gradient_error:.1%}"
        )
    for name, value in corpus.scores(crf).items():
        say(f"dev {name.replace('_', ' ')}: {100 * value:.2f}")
    say(f"wrote {model} ({file_size(model)}) after {seconds:.1f}s")


class _Watch:
    """Shows training: a live line on a terminal, plain lines now and then elsewhere, JSON lines if asked.

    The live line has a bar where the number of iterations is known.
    """

    def __init__(self, as_json: bool, quiet: bool, most: int | None, tokens: int) -> None:
        self.most = most  # iterations
        self.as_json = as_json
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not as_json and not quiet
        self.last = 0.0
        self.tokens = tokens
        self.closed = False  # whether whoever read along has gone

    def __call__(self, p: Progress, w: Any) -> None:
        try:
            self.show(p)
        except BrokenPipeError:  # keeps the weights
            self.closed = True
            leave_pipes()
            raise KeyboardInterrupt from None

    def show(self, p: Progress) -> None:
        """Shows an iteration."""
        if self.as_json:
            fields = {k: v for k, v in asdict(p).items() if v or k not in ("scores", "terms", "beams")}
            emit({"event": "iteration", **fields, "seconds": round(p.seconds, 4)})
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

    def note(self, text: str) -> None:
        """Says at once what must not wait for the end."""
        if not self.quiet:
            start = "\r\x1b[2K" if self.live else ""
            say(f"{start}crfkit: warning: {text}")

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)
