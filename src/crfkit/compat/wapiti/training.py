"""``wapiti train``."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.files import check_writable
from crfkit.base.interrupts import Guard
from crfkit.base.threads import resolve_threads
from crfkit.chain.inference import decode_flat
from crfkit.chain.potentials import Potentials
from crfkit.compat.text_models import WapitiParts, read_wapiti_parts, shared_names, wapiti_chain
from crfkit.compat.wapiti.models import parts_of, pattern_lines, save
from crfkit.compat.wapiti.options import Failure, Options
from crfkit.compat.wapiti.streams import reading, say
from crfkit.compat.wapiti.text import Text, read_text, split_columns
from crfkit.data.sequences import Columns
from crfkit.estimators.crf import CRF
from crfkit.features.template import Template
from crfkit.model.chain_model import ChainModel
from crfkit.training.lbfgs import LBFGS
from crfkit.training.optimiser import Callback, Progress

_ALGORITHMS = ("l-bfgs", "sgd-l1", "bcd", "rprop", "rprop+", "rprop-")
_TYPES = ("maxent", "memm", "crf")
_FLAT = 1e-5  # gradient's norm beside the weights', below which a point is an optimum

Vector = NDArray[np.float64]


def train(options: Options) -> int:
    """Trains a model and writes it; gives the exit code."""
    if (code := _check(options)) is not None:
        return code
    old = None
    if options.model is not None:
        say("* Load previous model")
        with reading(options.model) as file:
            old = read_wapiti_parts(file.read(), options.model)
    template = _patterns(options, old)
    n_columns = template.plan().n_columns
    say("* Load training data")
    X, y = _load(options.input, n_columns)
    held_out = None
    if options.devel is not None:
        say("* Load development data")
        held_out = _load(options.devel, n_columns)
    if options.output is not None:
        check_writable(options.output)
    say("* Initialize the model" if old is None else "* Resync the model")
    crf = _estimator(options, template, old)
    crf.judged = held_out or (X, y)
    crf.summary = [("train", len(X))] + ([] if held_out is None else [("devel", len(held_out[0]))])
    with Guard() as guard, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf.fit(X, y)
        save(parts_of(crf.model_, template, _TYPES.index(options.type)), options)
    say("* Done")
    return 0 if guard.signum in (0, 2) else 128 + guard.signum  # Ctrl-C asks for the model as it is


def _check(options: Options) -> int | None:
    """Raises where an option cannot be; an exit code where only a list was wanted."""
    for name, what, known in (("type", "types of models", _TYPES), ("algo", "training algorithms", _ALGORITHMS)):
        value = getattr(options, name)
        if value == "list":
            say(f"Available {what}:")
            for x in known:
                say(f"\t{x}")
            return 0
        if value not in known:
            raise Failure(f"unknown {'model type' if name == 'type' else 'algorithm'} '{value}'")
    if options.type == "memm":
        raise Failure("models of type memm are not available: use crf or maxent")
    if options.me:
        raise Failure("--me is not available: give the features as columns, and patterns with -p")
    if options.algo != "l-bfgs":
        say(f"warning: l-bfgs is used in place of {options.algo}")
    for name in ("rstate", "sstate"):
        if getattr(options, name) is not None:
            say(f"warning: --{name} is not used")
    return None


def _patterns(options: Options, old: WapitiParts | None) -> Template:
    """The patterns of the model to start from, and those of the file that it has not."""
    lines = [] if old is None else list(old.patterns)
    if options.pattern is not None:
        say("* Load patterns")
        with reading(options.pattern) as file:
            text = file.read().decode("utf-8", "replace")
        lines += [x for x in pattern_lines(_template(text, options.pattern)) if x not in lines]
    if not lines:
        raise Failure("no patterns: give them with -p")
    if options.type == "maxent":
        if any(line.startswith("*") for line in lines):
            raise Failure("a maxent model has no patterns *: write u instead")
        lines = [line for line in lines if not line.startswith("b")]
    return _template(lines, options.pattern or options.model)


def _template(lines: Any, name: str) -> Template:
    try:
        return Template(lines, dialect="wapiti", name=name)
    except ValueError as e:
        raise Failure(str(e)) from None


def _load(path: str | None, n_columns: int) -> tuple[Columns, list[list[str]]]:
    """Labelled sequences."""
    whole, shown = Text(), 0
    with reading(path) as file:
        for text in read_text(file):
            whole.sequences += text.sequences
            whole.first += text.first
            for n in range(shown + 1000, len(whole.first) + 1, 1000):
                say(f"{n:7d} sequences loaded")
                shown = n
    if not whole.first:
        raise Failure("no train data loaded")
    return split_columns(whole, n_columns, True, path or "standard input")


class _Trained(CRF):
    """A CRF with Wapiti's observations, report and ends of training."""

    options: Options
    template: Template
    summary: list[tuple[str, int]]
    judged: tuple[Columns, list[list[str]]]  # data for the error rates

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any, model: ChainModel | None, grow: bool, expectations: Any = None
    ) -> Any:
        skeleton, problem = super()._prepare(X, y, sample_weight, model, grow)
        names = skeleton.encoder.names(False), skeleton.encoder.names(True)
        if model is None and any(len(set(x)) < len(x) for x in names):  # what patterns write alike is one observation
            model = shared_names(self.template, skeleton.labels, *names)
            skeleton, problem = super()._prepare(X, y, sample_weight, model, grow)
            names = skeleton.encoder.names(False), skeleton.encoder.names(True)
        say("* Summary")
        for what, count in self.summary:
            say(f"    nb {what}:    {count}")
        blocks = {*names[0], *names[1], *self.template.label_pair_lines()[:1]}
        n = len(skeleton.labels)
        say(f"    nb labels:   {n}")
        say(f"    nb blocks:   {len(blocks)}")
        say(f"    nb features: {sum((x[0] != 'b') * n + (x[0] != 'u') * n * n for x in blocks)}")
        say(f"* Train the model with {self.options.algo}")
        return skeleton, problem

    def _say_not_converged(self, text: str) -> None:
        pass

    def _callback(self, model: Callable[[Vector], ChainModel]) -> Callback:
        return _Watch(model, self.judged, self.options)


def _estimator(options: Options, template: Template, old: WapitiParts | None) -> _Trained:
    """The estimator that the options ask for, with the weights of the old model."""
    crf = _Trained(
        template,
        algorithm=LBFGS(memory=options.histsz, max_linesearch=options.maxls),
        c1=options.rho1,
        c2=options.rho2 / 2,
        all_possible_states=True,
        all_possible_transitions=True,
        start_end=False,
        max_iter=options.maxiter or None,
        tol=0.0,
        warm_start=True,
        n_jobs=options.nthread,
    )
    crf.options, crf.template = options, template
    if old is not None:
        crf.model_ = wapiti_chain(old, pattern_lines(template))
    return crf


class _Watch:
    """Reports each iteration as Wapiti does, and says when to stop."""

    borrows = True

    def __init__(self, model: Callable[[Vector], ChainModel], judged: Any, options: Options) -> None:
        self.model, self.options = model, options
        self.X, self.y = judged
        self.threads = resolve_threads(options.nthread)
        self.values: deque[float] = deque(maxlen=options.objwin)
        self.errors: deque[float] = deque(maxlen=options.stopwin)
        self.last = self.began = time.perf_counter()
        self.chain: ChainModel | None = None

    def __call__(self, p: Progress, w: Vector) -> bool:
        token, sequence = self.error_rates(w)
        now = time.perf_counter()
        say(
            f"  [{p.iteration:4d}] obj={p.value:<10.2f} act={p.active:<8d} err={token:5.2f}%/{sequence:5.2f}% "
            f"time={now - self.last:.2f}s/{now - self.began:.2f}s"
        )
        self.last = now
        return self.is_over(p, token, w)

    def is_over(self, p: Progress, token_error: float, w: Vector) -> bool:
        """Whether error rate, gradient or objective have come to rest."""
        o = self.options
        self.errors.append(token_error)
        if o.stopwin and len(self.errors) == o.stopwin and max(self.errors) - min(self.errors) < o.stopeps:
            return True
        if p.gradient_norm <= _FLAT * max(1.0, float(np.sqrt(_core.dot(w, w, self.threads)))):
            return True
        self.values.append(p.value)
        fell = self.values[0] - p.value
        return bool(p.iteration > o.objwin and abs(fell) < o.stopeps * self.values[0])

    def error_rates(self, w: Vector) -> tuple[float, float]:
        """Percentages of wrong tokens and of sequences that have any."""
        if self.chain is None:
            self.chain = chain = self.model(w)
            self.data = chain.encoder.encode(self.X, False, self.threads)
            known = {label: k for k, label in enumerate(chain.labels)}
            self.gold = np.array([known.get(label, -1) for row in self.y for label in row])
            self.scorer = chain.scorer(self.threads)
        else:
            self.scorer.set(w, self.threads)
        p: Potentials = self.chain.score(self.data, self.threads)
        wrong = decode_flat(p, self.threads) != self.gold
        return 100 * float(wrong.mean()), 100 * float(np.logical_or.reduceat(wrong, self.data.offsets[:-1]).mean())
