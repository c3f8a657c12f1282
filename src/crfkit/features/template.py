"""Feature templates: CRF++'s and Wapiti's."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Iterator

from crfkit import _core
from crfkit.base.parameters import check_text
from crfkit.features.plan import FAR, FeaturePlan

_MACRO = re.compile(r"%x\[(-?\d+),(\d+)\]")
_COMMAND = re.compile(r'%([xtmXTM])\[(@?)[ \t]*([+-]?\d+),[ \t]*(\d+)(?:,"((?:\\.|[^"\\])*)")?\]')
_WAPITI = re.compile(r"[ub*]|.*%(?:[tmXTM]\[|x\[@)")
_MOST_CHARACTERS = 1_000_000
_MOST_PIECES = 1000
_DIALECTS = ("auto", "crfpp", "wapiti")


class Template:
    """A CRF++ or Wapiti template: lines ``U...`` for labels and ``B...`` for label pairs.

    ``%x[row,column]`` stands for the string in that column, ``row`` lines away. A ``U`` line makes one attribute for
    every value it takes, a bare ``B`` weighs label pairs, and a ``B`` line with ``%x`` weighs them depending on the
    input. Without any ``B`` line there are no transition weights. ``#`` begins a comment.

    Wapiti's patterns begin with ``u``, ``b``, or ``*`` for both, in either case. Besides ``%x[row,column]`` they know
    ``%t[row,column,"regex"]``, which is ``true`` or ``false``, and ``%m[row,column,"regex"]``, which is what the
    expression matches; ``%X``, ``%T`` and ``%M`` give it in lower case. ``@`` before the row counts from the
    sequence's beginning (``@1`` is the first token) or end (``@-1`` is the last). Expressions support ``.``, ``^``,
    ``$``, ``*``, ``?`` and the classes ``\\d \\a \\w \\l \\u \\p \\s``, whose upper-case letters are their complements.

    Parameters
    ----------
    lines : str or iterable of str
        The template's text.
    padding : bool
        Beyond the ends of a sequence, CRF++ reads ``_B-1``, ``_B-2``, ... and ``_B+1``, ``_B+2``, ... With
        ``False`` a line that looks beyond gives no attribute, as in CRFsuite's examples, and the first and
        last tokens get the attributes ``__BOS__`` and ``__EOS__``. Wapiti reads ``_x-1`` ... ``_x-4``, ``_x-#``
        and ``_x+1`` ... ``_x+4``, ``_x+#``.
    dialect : {"auto", "crfpp", "wapiti"}
        ``"auto"`` means Wapiti's if a line begins with ``u``, ``b`` or ``*``, or has a command that only Wapiti knows.
    name : str
        Name of the template in error messages, usually its file.

    Raises
    ------
    ValueError
        If a line begins with something else or has a malformed ``%``; the message gives the name and line.

    Examples
    --------
    >>> t = Template("U00:%x[0,0]\\nU01:%x[-1,0]/%x[0,0]\\nB")
    >>> t.plan().templates
    [(0, 0, 'U00:', '', False), (1, -1, 'U01:', '', False)]
    >>> Template('*:dot=%t[0,0,"^.$"]').dialect
    'wapiti'
    """

    def __init__(
        self,
        lines: str | Iterable[str],
        *,
        padding: bool = True,
        dialect: str = "auto",
        name: str = "<template>",
    ) -> None:
        text = lines.splitlines() if isinstance(lines, str) else list(lines)
        self.lines = tuple(line.rstrip("\r\n") for line in text)
        self.padding = padding
        self.name = name
        if (size := sum(map(len, self.lines))) > _MOST_CHARACTERS:
            raise ValueError(f"{name}: a template may have at most {_MOST_CHARACTERS:,} characters, got {size:,}")
        for number, line in enumerate(self.lines, 1):
            check_text(line, f"{name}:{number}: the line")
        if dialect not in _DIALECTS:
            raise ValueError(f"'dialect' of Template must be one of {', '.join(_DIALECTS)}, got {dialect!r}")
        if dialect == "auto":
            wapiti = any(_WAPITI.match(line) for line in self.lines if not line.startswith("#"))
            dialect = "wapiti" if wapiti else "crfpp"
        self.dialect = dialect
        plan = self.plan()  # so that faults show now
        try:
            _core.TemplateEncoder(plan.nodes, plan.templates, int(plan.pad))
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, padding: bool = True, dialect: str = "auto") -> Template:
        """The template in a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls(file.read(), padding=padding, dialect=dialect, name=os.fspath(path))
        except UnicodeDecodeError as e:
            raise ValueError(f"{os.fspath(path)}: not valid UTF-8") from e

    def plan(self) -> FeaturePlan:
        """The template as the core takes it."""
        plan = self._plan()
        if not plan.templates and not plan.transitions:
            raise ValueError(f"{self.name}: the template is empty")
        if not self.padding:
            plan.look([(plan.mark("first"), 0)], "__BOS__")
            plan.look([(plan.mark("last"), 0)], "__EOS__")
        return plan

    def label_pair_lines(self) -> tuple[str, ...]:
        """The lines that weigh label pairs whatever the input, as they are named in model files."""
        kinds = "b*" if self.dialect == "wapiti" else "B"
        return tuple(dict.fromkeys(line for _, line in self._used_lines() if line[0] in kinds and "%" not in line))

    def _used_lines(self) -> Iterator[tuple[int, str]]:
        """Lines with something in them, by their numbers."""
        for number, raw in enumerate(self.lines, 1):
            if self.dialect == "wapiti":
                line = raw.partition("#")[0].rstrip()
                line = line[:1].lower() + line[1:]
            else:
                line = "" if raw.strip().startswith("#") else raw.strip()
            if line:
                yield number, line

    def _plan(self) -> FeaturePlan:
        wapiti = self.dialect == "wapiti"
        plan = FeaturePlan(pad=(2 if wapiti else 1) * self.padding, transitions=False)
        for number, line in self._used_lines():
            if line[0] not in ("ub*" if wapiti else "UB"):
                what, which = ("pattern", "u, b or *") if wapiti else ("template line", "U or B")
                raise ValueError(f"{self.name}:{number}: a {what} begins with {which}, got {line!r}")
            literal: list[str] = []
            pieces: list[tuple[int, int]] = []
            end = 0
            for found in (_COMMAND if wapiti else _MACRO).finditer(line):
                literal.append(line[end : found.start()])
                end = found.end()
                if len(pieces) == _MOST_PIECES:
                    raise ValueError(f"{self.name}:{number}: a line may join at most {_MOST_PIECES} pieces")
                pieces.append(self._command(plan, number, line, found) if wapiti else self._macro(plan, number, found))
            literal.append(line[end:])
            if any("%" in text for text in literal):
                more = " or the like" if wapiti else ""
                raise ValueError(f"{self.name}:{number}: expected %x[row,column]{more} after %, got {line!r}")
            for edge in (False, True):
                if line[0] in ("uU" if edge else "bB"):
                    continue
                if pieces:
                    plan.look(pieces, literal[0], literal[1:-1], literal[-1], edge)
                elif edge:
                    plan.transitions = True
                else:
                    plan.look([(plan.mark("always"), 0)], line)
        return plan

    def _macro(self, plan: FeaturePlan, number: int, found: re.Match[str]) -> tuple[int, int]:
        """Node and offset of CRF++'s ``%x[row,column]``."""
        row, column = self._place(number, found[0], *found.groups())
        return plan.leaf(column), row

    def _command(self, plan: FeaturePlan, number: int, line: str, found: re.Match[str]) -> tuple[int, int]:
        """Node and offset of a command of Wapiti's."""
        command, at, *place, regex = found.groups()
        if (regex is None) != (command in "xX"):
            rule = "takes no" if command in "xX" else "needs a"
            raise ValueError(f"{self.name}:{number}: %{command} {rule} regular expression, got {line!r}")
        row, column = self._place(number, found[0], *place)
        node = plan.pattern(column, command.lower(), command.isupper(), row if at else None, regex or "")
        try:
            _core.TemplateEncoder([plan.nodes[node]], [], 0)
        except ValueError as e:
            raise ValueError(f"{self.name}:{number}: {e}") from None
        return node, 0 if at else row

    def _place(self, number: int, text: str, row: str, column: str) -> tuple[int, int]:
        """Row and column of a macro, checked."""
        if max(len(row), len(column)) > 100 or abs(int(row)) > FAR or int(column) > FAR:
            raise ValueError(f"{self.name}:{number}: {reprlib.repr(text)[1:-1]} is more than {FAR} away")
        return int(row), int(column)

    def __repr__(self) -> str:
        return f"Template({len(self.lines)} lines from {self.name})"
