"""The parser of what ``Tagger.dump`` writes, where python-crfsuite has it."""

from __future__ import annotations

import re

__all__ = ["CRFsuiteDumpParser", "ParsedDump"]

_BEGIN = re.compile(r"(\w+) = \{")
_WEIGHT = re.compile(r"\(\d+\) (.+) --> (.+): (\S+)")


class ParsedDump:
    """What a dump holds: as :class:`~crfkit.compat.pycrfsuite.ModelInfo`."""

    def __init__(self) -> None:
        self.header: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.transitions: dict[tuple[str, str], float] = {}
        self.state_features: dict[tuple[str, str], float] = {}


class CRFsuiteDumpParser:
    """Takes a dump line by line.

    Attributes
    ----------
    state : str or None
        Name of the part that the lines belong to.
    result : ParsedDump
    """

    def __init__(self) -> None:
        self.state: str | None = None
        self.result = ParsedDump()

    def feed(self, line: str) -> None:
        """Takes the next line."""
        line = line.strip("\r\n")
        if self.state is None:
            begin = _BEGIN.fullmatch(line)
            self.state = begin[1] if begin else None
        elif line == "}":
            self.state = None
        elif self.state in ("TRANSITIONS", "STATE_FEATURES"):
            kept = self.result.transitions if self.state == "TRANSITIONS" else self.result.state_features
            if found := _WEIGHT.fullmatch(line.strip(" ")):
                kept[found[1], found[2]] = float(found[3])
        else:
            key, _, value = line.strip(" ").partition(": ")
            if self.state == "FILEHEADER":
                self.result.header[key] = value
            elif self.state in ("LABELS", "ATTRIBUTES"):
                getattr(self.result, self.state.lower())[value] = key
