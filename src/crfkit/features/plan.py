"""Feature plans, which the core evaluates: nodes, and templates that look at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crfkit.base.shown import Record

#: Forms of a word, in the core's numbering.
FORMS = ("same", "lower", "prefix", "suffix", "shape", "case", "digits", "punctuation", "start")

#: Commands of Wapiti's patterns: the string, whether a regular expression matches, what it matches.
COMMANDS = ("x", "t", "m")

#: How far a template may look, in steps; and its last column.
FAR = 1000

Node = tuple[Any, ...]
TemplateRow = tuple[int, int, str, str, bool]


@dataclass(repr=False)
class FeaturePlan(Record):
    """Nodes and templates, collected one by one; equal nodes are shared.

    A node has a value at every token: a form of a column's string, or a pair of nodes some steps apart. A template is
    a node seen from some steps away, with a name; it makes one attribute per value.

    Attributes
    ----------
    nodes : list of tuple
    templates : list of tuple
        (node, offset, prefix, suffix, whether it belongs to the transition into the token).
    pad : int
        Value of positions outside the sequence: 0 for none, 1 for CRF++'s (``_B-1``, ``_B+1``, ...),
        2 for Wapiti's (``_x-1``, ``_x+1``, ..., ``_x+#``).
    transitions : bool
        Whether label pairs have weights of their own.
    """

    pad: int = 0
    transitions: bool = True
    nodes: list[Node] = field(default_factory=list)
    templates: list[TemplateRow] = field(default_factory=list)
    _places: dict[Node, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _placed: int = field(default=0, init=False, repr=False, compare=False)

    def _node(self, node: Node) -> int:
        for place in range(self._placed, len(self.nodes)):  # those that came otherwise
            self._places.setdefault(self.nodes[place], place)
        place = self._places.setdefault(node, len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        self._placed = len(self.nodes)
        return place

    def leaf(self, column: int, form: str = "same", n: int = 0) -> int:
        """A form of a column's string."""
        return self._node(("leaf", column, FORMS.index(form), n))

    def derived(self, column: int, form: str = "same", n: int = 0) -> int:
        """A form of a string in a column that a lexicon derives."""
        return self._node(("derived", column, FORMS.index(form), n))

    def number(self, k: int) -> int:
        """Number ``k`` of the vector of a word."""
        return self._node(("number", k))

    def pattern(self, column: int, command: str, lower: bool = False, place: int | None = None, regex: str = "") -> int:
        """A column's string as a Wapiti command sees it; ``place`` counts from the ends of the sequence."""
        command_number = COMMANDS.index(command) + 1
        return self._node(("pattern", column, command_number, int(lower), int(place is not None), place or 0, regex))

    def mark(self, kind: str) -> int:
        """A node with one value: ``"always"``, at the ``"first"`` or at the ``"last"`` token."""
        return self._node((kind,))

    def look(
        self,
        pieces: list[tuple[int, int]],
        prefix: str,
        between: list[str] | None = None,
        suffix: str = "",
        edge: bool = False,
    ) -> None:
        """Adds a template over (node, offset) pieces; ``between`` are the texts between their values."""
        node, offset = pieces[0]
        texts = between if between is not None else ["|"] * (len(pieces) - 1)
        for text, (other, place) in zip(texts, pieces[1:], strict=True):
            node = self._node(("join", node, other, place - offset, text))
        self.templates.append((node, offset, prefix, suffix, edge))

    @property
    def n_columns(self) -> int:
        """Number of columns that the plan uses, counted from the first."""
        return max((int(node[1]) + 1 for node in self.nodes if node[0] in ("leaf", "pattern")), default=0)

    def check_lexicon(self, n_columns: int, n_numbers: int) -> None:
        """Raises if the plan looks at more columns, or numbers of vectors, than a lexicon has."""
        for kind, what, most in (("derived", "columns", n_columns), ("number", "numbers", n_numbers)):
            needed = max((int(node[1]) + 1 for node in self.nodes if node[0] == kind), default=0)
            if needed > most:
                raise ValueError(f"the plan looks at {needed} {what} of a lexicon, which has {most}")

    def to_dict(self) -> dict[str, Any]:
        """As plain lists, for the model file."""
        return {
            "pad": int(self.pad),
            "transitions": self.transitions,
            "nodes": [[x if isinstance(x, str) else int(x) for x in node] for node in self.nodes],
            "templates": [[int(a), int(b), str(c), str(d), bool(e)] for a, b, c, d, e in self.templates],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FeaturePlan:
        """The plan that :meth:`to_dict` wrote; fields read from a file must have been checked already."""
        nodes, templates = ([tuple(row) for row in data[name]] for name in ("nodes", "templates"))
        return cls(data["pad"], data["transitions"], nodes, templates)
