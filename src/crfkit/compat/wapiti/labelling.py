"""``wapiti label``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.chain.inference import decode_flat, marginals, nbest, score
from crfkit.chain.potentials import Potentials
from crfkit.compat.files import read_foreign_model
from crfkit.compat.wapiti.options import Failure, Options
from crfkit.compat.wapiti.streams import reading, say, writing
from crfkit.compat.wapiti.text import read_text, split_columns
from crfkit.estimators.crf import CRF
from crfkit.features.encoders import PlanEncoder

Path = NDArray[np.int32]


class Labelling(NamedTuple):
    """Labels of a sequence, the score of the whole, and of each token."""

    path: Path
    score: float
    scores: NDArray[np.float64]


def label(options: Options) -> int:
    """Labels sequences as they come; gives the exit code."""
    if options.model is None:
        raise Failure("you must specify a model")
    if options.me:
        raise Failure("--me is not available: the model's patterns say what the features are")
    say("* Load model")
    with reading(options.model):  # says what it says if there is no such file
        model = read_foreign_model(options.model)
    if not isinstance(model.encoder, PlanEncoder):
        raise Failure(f"{options.model}: the model has no patterns")
    crf = CRF._of_model(model, {}, None, 1)
    names = [str(x) for x in model.labels]
    n_columns = model.encoder.plan.n_columns
    count = _Count(names)
    say("* Label sequences")
    with reading(options.input) as file, writing(options.output) as out:
        for text in read_text(file):
            labelled = options.check or options.force
            X, y = split_columns(text, n_columns, labelled, options.input or "standard input")
            given = [[x if x in names else None for x in row] for row in y] if options.force else None
            for lines, gold, found in zip(text.sequences, y, labellings(crf, X, given, options), strict=True):
                for rank, labelling in enumerate(found):
                    out.write(_written(lines, labelling, rank, names, options))
                if options.check:
                    count.add(found[0].path, gold)
                count.show(options.check)
            out.flush()
    if options.check:
        count.report()
    say("* Done")
    return 0


def labellings(crf: CRF, X: Any, given: Any, options: Options) -> Iterator[list[Labelling]]:
    """The best labellings of each sequence, best first."""
    for p in crf._potentials(X, given, np.float64):
        if options.post:
            with np.errstate(divide="ignore"):
                n = p.unary.shape[1]
                p = Potentials(np.log(marginals(p, 1).nodes), np.zeros((n, n)), offsets=p.offsets)
        assert p.offsets is not None
        if options.nbest > 1:
            found = [list(best.paths) for best in nbest(p, options.nbest, n_jobs=1)]
        else:
            found = [[path] for path in p.split(decode_flat(p, 1))]
        for i, paths in enumerate(found):
            if options.score:
                alone = p[i]
                yield [_scored(alone, path, options.post) for path in paths]
            else:
                yield [Labelling(path, 0.0, np.zeros(len(path))) for path in paths]


def _scored(p: Potentials, path: Path, posterior: bool) -> Labelling:
    each = np.array(p.unary[np.arange(len(path)), path], np.float64)
    if len(path) > 1:
        steps = p.pairwise if p.pairwise.ndim == 3 else np.broadcast_to(p.pairwise, (len(path) - 1, *p.pairwise.shape))
        each[1:] += steps[np.arange(len(path) - 1), path[:-1], path[1:]]
    total = float(score(p, path))
    return Labelling(path, math.exp(total), np.exp(each)) if posterior else Labelling(path, total, each)


def _written(lines: list[bytes], found: Labelling, rank: int, names: list[str], options: Options) -> bytes:
    """A sequence with its labels, and a blank line."""
    out = [f"# {rank} {found.score:f}\n".encode()] if options.score else []
    for line, j, value in zip(lines, found.path.tolist(), found.scores.tolist(), strict=True):
        text = names[j].encode()
        if options.score:
            text += b"\t%s/%f" % (text, value)
        out.append((b"" if options.label else line + b"\t") + text + b"\n")
    return b"".join([*out, b"\n"])


@dataclass
class _Count:
    """Errors, against the labels that were given; labels that the model has not are left out."""

    names: list[str]
    sequences: int = 0
    tokens: int = 0
    token_errors: int = 0
    sequence_errors: int = 0
    table: NDArray[np.int64] = field(init=False)  # right, written, both  [3][labels]

    def __post_init__(self) -> None:
        self.table = np.zeros((3, len(self.names)), np.int64)
        self.number = {name: k for k, name in enumerate(self.names)}

    def add(self, path: Path, gold: list[str]) -> None:
        """Counts a sequence's errors."""
        right = np.array([self.number.get(x, -1) for x in gold])
        known = right >= 0
        path, right = path[known], right[known]
        same = path == right
        for row, labels in enumerate((right, path, path[same])):
            self.table[row] += np.bincount(labels, minlength=len(self.names))
        self.tokens += len(gold)
        self.token_errors += int((~same).sum())
        self.sequence_errors += int(not same.all())

    def rates(self) -> tuple[float, float]:
        """Percentages of wrong tokens, and of sequences that have any."""
        return 100 * self.token_errors / max(1, self.tokens), 100 * self.sequence_errors / max(1, self.sequences)

    def show(self, checked: bool) -> None:
        """Counts a sequence, and says so now and then."""
        self.sequences += 1
        if self.sequences % 1000 == 0:
            rates = "\t{:5.2f}%/{:5.2f}%".format(*self.rates()) if checked else ""
            say(f"{self.sequences:10d} sequences labeled{rates}")

    def report(self) -> None:
        """All rates."""
        token, sequence = self.rates()
        say(f"    Nb sequences  : {self.sequences}")
        say(f"    Token error   : {token:5.2f}%")
        say(f"    Sequence error: {sequence:5.2f}%")
        say("* Per label statistics")
        with np.errstate(divide="ignore", invalid="ignore"):
            recall, precision = self.table[2] / self.table[0], self.table[2] / self.table[1]
            f1 = 2 * precision * recall / (precision + recall)
        for name, *each in zip(self.names, precision, recall, f1, strict=True):
            p, r, f = ("-nan" if math.isnan(x) else f"{x:.2f}" for x in each)
            say(f"    {name:<6}  Pr={p}  Rc={r}  F1={f}")
