"""CRF++ feature templates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from crfkit.features.plan import FeaturePlan

__all__ = ["Template"]

_MACRO = re.compile(r"%x\[(-?\d+),(\d+)\]")
_FAR = 1000  # rows and columns


class Template:
    """A CRF++ template: lines ``U...`` for labels and ``B...`` for label pairs.

    ``%x[row,column]`` stands for the string in that column, ``row`` lines away. A ``U`` line makes one attribute for
    every value it takes, a bare ``B`` weighs label pairs, and a ``B`` line with ``%x`` weighs them depending on the
    input. Without any ``B`` line there are no transition weights. ``#`` begins a comment.

    Parameters
    ----------
    lines : str or iterable of str
        The template's text.
    padding : bool
        Beyond the ends of a sequence, CRF++ reads ``_B-1``, ``_B-2``, ... and ``_B+1``, ``_B+2``, ... With
        ``False`` a line that looks beyond gives no attribute, as in CRFsuite's examples, and the first and
        last tokens get the attributes ``__BOS__`` and ``__EOS__``.
    name : str
        How messages call the template, usually its file.

    Raises
    ------
    ValueError
        With name and line, if a line is neither ``U`` nor ``B`` or has a malformed ``%``.

    Examples
    --------
    >>> t = Template("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]\\nB")
    >>> t.plan().templates
    [(0, 0, 'U00:', '', False), (1, -1, 'U01:', '', False)]
    """

    def __init__(self, lines: str | Iterable[str], *, padding: bool = True, name: str = "<template>") -> None:
        text = lines.splitlines() if isinstance(lines, str) else list(lines)
        self.lines = tuple(line.rstrip("\r\n") for line in text)
        self.padding = padding
        self.name = name
        self.plan()  # so that faults show now

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, padding: bool = True) -> Template:
        """The template in a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls(file.read(), padding=padding, name=os.fspath(path))
        except UnicodeDecodeError as e:
            raise ValueError(f"{os.fspath(path)}: not valid UTF-8") from e

    def plan(self) -> FeaturePlan:
        """The template as the core takes it."""
        plan = FeaturePlan(pad=self.padding, transitions=False)
        for number, raw in enumerate(self.lines, 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            if line[0] not in "UB":
                raise ValueError(f"{self.name}:{number}: a template line begins with U or B, got {line!r}")
            texts = _MACRO.split(line)
            literal, macros = texts[::3], list(zip(texts[1::3], texts[2::3], strict=True))
            if any("%" in text for text in literal):
                raise ValueError(f"{self.name}:{number}: expected %x[row,column] after %, got {line!r}")
            for row, column in macros:
                if abs(int(row)) > _FAR or int(column) > _FAR:
                    raise ValueError(f"{self.name}:{number}: %x[{row},{column}] is more than {_FAR} away")
            edge = line[0] == "B"
            if not macros:
                if edge:
                    plan.transitions = True
                else:
                    plan.look([(plan.mark("always"), 0)], line)
                continue
            pieces = [(plan.leaf(int(column)), int(row)) for row, column in macros]
            plan.look(pieces, literal[0], list(literal[1:-1]), literal[-1], edge)
        if not plan.templates and not plan.transitions:
            raise ValueError(f"{self.name}: the template is empty")
        if not self.padding:
            plan.look([(plan.mark("first"), 0)], "__BOS__")
            plan.look([(plan.mark("last"), 0)], "__EOS__")
        return plan

    def __repr__(self) -> str:
        return f"Template({len(self.lines)} lines from {self.name})"
