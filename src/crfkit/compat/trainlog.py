"""CRFsuite's training log: written line by line, and parsed again into numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = ["LabelScore", "TrainLogParser", "iteration_lines", "progress_marks"]


class LabelScore(NamedTuple):
    """Counts and scores of a label on held-out data; scores that are undefined are None."""

    match: int
    model: int
    ref: int
    precision: float | None
    recall: float | None
    f1: float | None


def progress_marks() -> Iterator[str]:
    """The marks of feature generation, one for every 2%: ``0....1....2`` to ``10``."""
    for k in range(51):
        yield "." if k % 5 else str(k // 5)


def _ratio(a: int, b: int) -> float:
    return a / b if b else 0.0


def _held_out_lines(counts: Mapping[str, Sequence[int]], tokens: Sequence[int], whole: Sequence[int]) -> Iterator[str]:
    yield "Performance by label (#match, #model, #ref) (precision, recall, F1):\n"
    sums = [0.0, 0.0, 0.0]
    for label, (match, model, ref) in counts.items():
        if model == 0 and ref == 0:
            yield f"    {label}: (0, 0, 0) (******, ******, ******)\n"
            continue
        precision, recall = _ratio(match, model), _ratio(match, ref)
        f1 = 2 * precision * recall / (precision + recall) if match else 0.0
        sums = [a + b for a, b in zip(sums, (precision, recall, f1), strict=True)]
        yield f"    {label}: ({match}, {model}, {ref}) ({precision:.4f}, {recall:.4f}, {f1:.4f})\n"
    p, r, f = (x / max(1, len(counts)) for x in sums)
    yield f"Macro-average precision, recall, F1: ({p:.6f}, {r:.6f}, {f:.6f})\n"
    yield f"Item accuracy: {tokens[0]} / {tokens[1]} ({_ratio(*tokens):.4f})\n"
    yield f"Instance accuracy: {whole[0]} / {whole[1]} ({_ratio(*whole):.4f})\n"


def iteration_lines(
    number: int,
    numbers: Mapping[str, float],
    seconds: float,
    held_out: tuple[Mapping[str, Sequence[int]], Sequence[int], Sequence[int]] | None,
    word: str = "Iteration",
) -> Iterator[str]:
    """The lines of one iteration; ``numbers`` are named as CRFsuite names them."""
    yield f"***** {word} #{number} *****\n"
    for name, value in numbers.items():
        yield f"{name}: {value}\n" if isinstance(value, int) else f"{name}: {value:.6f}\n"
    yield f"Seconds required for this iteration: {seconds:.3f}\n"
    if held_out is not None:
        yield from _held_out_lines(*held_out)
    yield "\n"


_HEAD = re.compile(r"\*{5} (?:Iteration|Epoch) #(\d+) \*{5}")
_NUMBER = r"(-?\d+(?:\.\d+)?)"
#: What a line of an iteration holds: the keys of ``info`` and how to read them.
_FIELDS: tuple[tuple[str, re.Pattern[str], Any], ...] = tuple(
    (key, re.compile(f"{text}: {_NUMBER}"), kind)
    for key, text, kind in (
        ("loss", "Loss", float),
        ("feature_norm", "Feature norm", float),
        ("error_norm", "Error norm", float),
        ("active_features", "Active features", int),
        ("linesearch_trials", "Line search trials", int),
        ("linesearch_step", "Line search step", float),
        ("time", "Seconds required for this iteration", float),
    )
)
_MACRO = re.compile(r"Macro-average precision, recall, F1: \(([\d.]+), ([\d.]+), ([\d.]+)\)")
_ACCURACY = re.compile(r"(Item|Instance) accuracy: (\d+) / (\d+)")
_LABEL = re.compile(r" {4}(.+): \((\d+), (\d+), (\d+)\) \((.+), (.+), (.+)\)")
_SECONDS = re.compile(r"Seconds required: ([\d.]+)")


class TrainLogParser:
    """Follows a training log line by line.

    Attributes
    ----------
    iterations : list of dict
        The ``info`` of every iteration.
    last_iteration : dict or None
    featgen_percent, featgen_num_features, featgen_seconds, training_seconds, storing_seconds
        What the log says about feature generation, training, and storing the model.
    log : list of str
        All lines.
    events : list of (name, first line, last line)
    """

    def __init__(self) -> None:
        self.state: str | None = None
        self.featgen_percent = -2
        self.featgen_num_features: int | None = None
        self.featgen_seconds: float | None = None
        self.training_seconds: float | None = None
        self.storing_seconds: float | None = None
        self.iterations: list[dict[str, Any]] = []
        self.last_iteration: dict[str, Any] | None = None
        self.log: list[str] = []
        self.events: list[tuple[str, int, int]] = []

    def feed(self, line: str) -> str | None:
        """Takes a line; returns the name of the event that it completes, or None."""
        self.log.append(line)
        if self.state is None:
            self.state = "starting"
            self._starting(line)
            event: str | None = "start"
        else:
            event = getattr(self, f"_{self.state}")(line)
        if event is not None:
            first = self.events[-1][2] if self.events else 0
            # these are known only by the line after them
            last = len(self.log) - (event in ("prepared", "optimization_end"))
            self.events.append((event, first, last))
        return event

    @property
    def last_log(self) -> str:
        """The lines that belong to the last event."""
        _, first, last = self.events[-1]
        return "".join(self.log[first:last])

    def _starting(self, line: str) -> None:
        if line.startswith("Feature generation"):
            self.state = "generating"

    def _generating(self, line: str) -> str | None:
        if line == "." or line.isdigit():
            self.featgen_percent += 2
            return "featgen_progress"
        if line.startswith("Number of features: "):
            self.featgen_num_features = int(line.rpartition(":")[2])
        elif found := _SECONDS.match(line):
            self.featgen_seconds = float(found[1])
            self.state = "generated"
            return "featgen_end"
        return None

    def _generated(self, line: str) -> str | None:
        if _HEAD.match(line):
            self._begin(line)
            return "prepared"
        if "terminated with error" in line:
            self.state = "between"
            return "prepare_error"
        return None

    def _begin(self, line: str) -> None:
        found = _HEAD.match(line)
        assert found is not None
        self.state = "iterating"
        self.last_iteration = {"num": int(found[1]), "scores": {}}
        self.iterations.append(self.last_iteration)

    def _iterating(self, line: str) -> str | None:
        info = self.last_iteration
        assert info is not None
        if line == "\n":
            self.state = "between"
            return "iteration"
        for key, pattern, kind in _FIELDS:
            if found := pattern.match(line):
                info[key] = kind(found[1])
                return None
        if found := _MACRO.match(line):
            for key, text in zip(("avg_precision", "avg_recall", "avg_f1"), found.groups(), strict=True):
                info[key] = float(text)
        elif found := _ACCURACY.match(line):
            key = f"{found[1].lower()}_accuracy"
            info[key] = Fraction(int(found[2]), max(1, int(found[3])))
            info[f"{key}_float"] = float(info[key])
        elif found := _LABEL.match(line):
            counts = [int(x) for x in found.groups()[1:4]]
            scores = [None if "*" in x else float(x) for x in found.groups()[4:]]
            info["scores"][found[1]] = LabelScore(*counts, *scores)
        return None

    def _between(self, line: str) -> str | None:
        if _HEAD.match(line):
            self._begin(line)
        elif line.startswith("Total seconds required for training: "):
            self.training_seconds = float(line.rpartition(":")[2])
        elif line.startswith("Storing the model"):
            self.state = "storing"
            return "optimization_end"
        return None

    def _storing(self, line: str) -> str | None:
        if line == "\n":
            return "end"
        if found := _SECONDS.match(line):
            self.storing_seconds = float(found[1])
        return None
