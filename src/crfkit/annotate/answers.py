"""Answers, spans and settings as events hold them; what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.project import Project

Json = dict[str, Any]


def checked_draft(project: Project, said: Json) -> Json:
    """What was said of a sentence so far, as events hold it; raises if it makes no sense."""
    length = len(project.documents[said["sequence"]].tokens)
    return {
        "sequence": said["sequence"],
        "spans": checked_spans(project, said.get("spans", []), length),
        "judged": [list(r) for r in ranges(said.get("judged", []), length)],
        "whole": bool(said.get("whole", False)),
    }


def checked_answer(project: Project, answer: Json) -> Json:
    """An answer as the event holds it, but for what was asked; raises if it makes no sense."""
    said = checked_draft(project, answer)
    length = len(project.documents[said["sequence"]].tokens)
    skip = bool(answer.get("skip", False))
    seconds, keys, corrections = (_number(answer, name) for name in ("seconds", "keys", "corrections"))
    covered = np.zeros(length, bool)
    for a, b in [*said["judged"], *((s["start"], s["end"]) for s in said["spans"])]:
        covered[a:b] = True
    if skip and (said["whole"] or covered.any()):
        raise AnnotateError("an answer with 'skip' says nothing else: leave out 'spans', 'judged' and 'whole'")
    if not skip:
        if length and not (said["whole"] or covered.any()):
            raise AnnotateError("the answer is empty: give 'spans', 'judged', 'whole' or 'skip'")
        require_labels(project, said, length)
    whole = said["whole"]
    return {
        **said,
        "skip": skip,
        "seconds": min(seconds, 86400.0),
        "keys": int(keys),
        "corrections": int(corrections),
        "tokens": 0 if skip else length if whole else int(covered.sum()),
    }


def require_labels(project: Project, said: Json, length: int) -> None:
    """In a task of tokens, raises if a token that somebody confirms has no label."""
    if project.task != "tokens":
        return
    missing = np.zeros(length, bool)
    for a, b in [(0, length)] if said["whole"] else said["judged"]:
        missing[a:b] = True
    for span in said["spans"]:
        missing[span["start"]] = span["label"] is None
    if missing.any():
        first = int(missing.argmax())
        raise AnnotateError(f"in a task of tokens every token that is judged needs a label; token {first} has none")


def checked_spans(project: Project, spans: Any, length: int) -> list[Json]:
    """Spans of a sentence, as events hold them; raises if they make no sense."""
    if not isinstance(spans, list):
        raise AnnotateError("'spans' must be a list")
    out: list[Json] = []
    taken = np.zeros(length, bool)
    for span in spans:
        if not isinstance(span, dict):
            raise AnnotateError("'spans' must be a list of records")
        a, b = _range([span.get("start"), span.get("end")], length)
        label = span.get("label")
        if label is not None:
            label = project.current(label if isinstance(label, str) else repr(label))
        if project.task == "tokens" and b - a != 1:
            raise AnnotateError(f"in a task of tokens a span is one token, got {a} to {b}")
        if taken[a:b].any():
            raise AnnotateError(f"spans must not overlap: tokens {a} to {b - 1} are in two")
        taken[a:b] = True
        out.append({"start": a, "end": b, "label": label, "everywhere": bool(span.get("everywhere", False))})
    return out


def _range(pair: Any, length: int) -> tuple[int, int]:
    whole = isinstance(pair, list) and all(isinstance(x, int) and not isinstance(x, bool) for x in pair)
    if not whole or len(pair) != 2 or not 0 <= pair[0] < pair[1] <= length:
        raise AnnotateError(f"a span needs 0 <= start < end <= {length}, got {pair!r}")
    return pair[0], pair[1]


def ranges(value: Any, length: int) -> list[tuple[int, int]]:
    """Ranges of tokens that were judged."""
    if not isinstance(value, list):
        raise AnnotateError("'judged' must be a list of ranges")
    return [_range(pair, length) for pair in value]


def _number(answer: Json, name: str) -> float:
    value = answer.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
        raise AnnotateError(f"{name!r} of an answer must be a number from 0 to 1e+09, got {value!r}")
    return float(value)


def check_setting(name: str, value: Any) -> None:
    """Raises for a setting that does not exist, or a value that it cannot have."""

    def number(x: Any, most: float) -> bool:
        return not isinstance(x, bool) and isinstance(x, (int, float)) and 0 <= x <= most

    if name in ("random_share", "overlap"):
        if not number(value, 1):
            raise AnnotateError(f"{name!r} must be a number from 0 to 1, got {value!r}")
    elif name == "context":
        if not number(value, 20) or not isinstance(value, int):
            raise AnnotateError(f"'context' must be a whole number from 0 to 20, got {value!r}")
    elif name == "show_random":
        if not isinstance(value, bool):
            raise AnnotateError(f"'show_random' must be true or false, got {value!r}")
    elif name == "time":
        rules = {"sentence": 3600, "token": 3600, "correction": 3600}
        good = isinstance(value, dict) and all(
            number(x, rules[k]) if k in rules else k == "fitted" and isinstance(x, bool) for k, x in value.items()
        )
        if not good:
            raise AnnotateError(f"'time' must hold seconds: sentence, token, correction, got {value!r}")
    else:
        raise AnnotateError(f"there is no setting {name!r}")
