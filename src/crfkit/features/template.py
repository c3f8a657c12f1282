"""Feature templates: CRF++'s and Wapiti's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from crfkit import _core
from crfkit.features.plan import FeaturePlan

_MACRO = re.compile(r"%x\[(-?\d+),(\d+)\]")
_COMMAND = re.compile(r'%([xtmXTM])\[(@?)([+-]?\d+),(\d+)(?:,"((?:\\.|[^"\\])*)")?\]')
_WAPITI = re.compile(r"[ub*]|.*%(?:[tmXTM]\[|x\[@)")
_DIALECTS = ("auto", "crfpp", "wapiti")
_FAR = 1000  # rows and columns


class Template:
    """A template of CRF++ or Wapiti: lines ``U...`` for labels and ``B...`` for label pairs.

    ``%x[row,column]`` stands for the string in that column, ``row`` lines away. A ``U`` line makes one attribute for
    every value it takes, a bare ``B`` weighs label pairs, and a ``B`` line with ``%x`` weighs them depending on the
    input. Without any ``B`` line there are no transition weights. ``#`` begins a comment.

    Wapiti's patterns begin with ``u``, ``b``, or ``*`` for both, in either case. Besides ``%x[row,column]`` they know
    ``%t[row,column,"regex"]``, which is ``true`` or ``false``, and ``%m[row,column,"regex"]``, which is what the
    expression matches; ``%X``, ``%T`` and ``%M`` give it in lower case. ``@`` before the row counts from the
    sequence's beginning (``@1`` is the first token) or end (``@-1`` is the last). Expressions know ``.``, ``^``, ``$``,
    ``*``, ``?`` and the classes ``\\d \\a \\w \\l \\u \\p \\s``, whose upper-case letters are their complements.

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
        How messages call the template, usually its file.

    Raises
    ------
    ValueError
        With name and line, if a line begins with something else or has a malformed ``%``.

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
        if dialect not in _DIALECTS:
            raise ValueError(f"'dialect' of Template must be one of {', '.join(_DIALECTS)}, got {dialect!r}")
        if dialect == "auto":
            wapiti = any(_WAPITI.match(line) for line in self.lines if not line.startswith("#"))
            dialect = "wapiti" if wapiti else "crfpp"
        self.dialect = dialect
        self.plan()  # so that faults show now

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
        plan = self._wapiti_plan() if self.dialect == "wapiti" else self._crfpp_plan()
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

    def _wapiti_plan(self) -> FeaturePlan:
        plan = FeaturePlan(pad=2 if self.padding else 0, transitions=False)
        for number, line in self._used_lines():
            if line[0] not in "ub*":
                raise ValueError(f"{self.name}:{number}: a pattern begins with u, b or *, got {line!r}")
            literal, pieces, end = [], [], 0
            for found in _COMMAND.finditer(line):
                command, at, row, column, regex = found.groups()
                literal.append(line[end : found.start()])
                end = found.end()
                if (regex is None) != (command in "xX"):
                    rule = "takes no" if command in "xX" else "needs a"
                    raise ValueError(f"{self.name}:{number}: %{command} {rule} regular expression, got {line!r}")
                if abs(int(row)) > _FAR or int(column) > _FAR:
                    raise ValueError(f"{self.name}:{number}: {found[0]} is more than {_FAR} away")
                place = int(row) if at else None
                node = plan.pattern(int(column), command.lower(), command.isupper(), place, regex or "")
                try:
                    _core.TemplateEncoder([plan.nodes[node]], [], 0)
                except ValueError as e:
                    raise ValueError(f"{self.name}:{number}: {e}") from None
                pieces.append((node, 0 if at else int(row)))
            literal.append(line[end:])
            if any("%" in text for text in literal):
                raise ValueError(f"{self.name}:{number}: expected %x[row,column] or the like after %, got {line!r}")
            for edge in (False, True):
                if line[0] == ("u" if edge else "b"):
                    continue
                if pieces:
                    plan.look(pieces, literal[0], literal[1:-1], literal[-1], edge)
                elif edge:
                    plan.transitions = True
                else:
                    plan.look([(plan.mark("always"), 0)], line)
        return plan

    def _crfpp_plan(self) -> FeaturePlan:
        plan = FeaturePlan(pad=int(self.padding), transitions=False)
        for number, line in self._used_lines():
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
        return plan

    def __repr__(self) -> str:
        return f"Template({len(self.lines)} lines from {self.name})"
