"""Features of raw tokens, for when no template is given."""

from __future__ import annotations

from dataclasses import dataclass

from crfkit.features.plan import FAR, FeaturePlan


@dataclass(frozen=True)
class TokenFeatures:
    """Features that suit most tagging and chunking tasks, from the tokens alone.

    The first column is taken as the word: the words around it, word pairs, its lower case, prefixes, suffixes, shape
    (``Xxx-dd``), case, digits and punctuation. Further columns (parts of speech, say) give their values, pairs and
    triples around the token. The first and last tokens are marked.

    Parameters
    ----------
    window : int
        Number of tokens to use on either side.
    affixes : int
        Longest prefix and suffix of the word, in characters.
    near_affixes : int
        Longest prefix and suffix of the words next to it.
    shapes : bool
        Shape, case, digits and punctuation of the word, and the shapes next to it.
    pairs : bool
        Pairs of neighbouring words, and of neighbouring shapes.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X = [["2", "cups", "flour"], ["1", "egg"]]
    >>> y = [["QTY", "UNIT", "NAME"], ["QTY", "NAME"]]
    >>> CRF(TokenFeatures(window=1)).fit(X, y).predict([["3", "cups", "sugar"]])
    [['QTY', 'UNIT', 'NAME']]
    """

    window: int = 2
    affixes: int = 4
    near_affixes: int = 3
    shapes: bool = True
    pairs: bool = True

    def __post_init__(self) -> None:
        for name in ("window", "affixes", "near_affixes"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= 100:
                raise ValueError(f"{name!r} of TokenFeatures must be an int from 0 to 100, got {value!r}")

    def plan(self, n_columns: int = 1) -> FeaturePlan:
        """The features of tokens with ``n_columns`` columns, as the core takes them."""
        if n_columns > FAR + 1:
            raise ValueError(f"TokenFeatures take tokens of at most {FAR + 1} columns, got {n_columns}")
        plan = FeaturePlan()
        lower, shape = plan.leaf(0, "lower"), plan.leaf(0, "shape")
        plan.look([(plan.leaf(0), 0)], "word=")
        for offset in range(-self.window, self.window + 1):
            plan.look([(lower, offset)], f"lower[{offset}]=")
        for n in range(1, self.affixes + 1):
            plan.look([(plan.leaf(0, "prefix", n), 0)], f"prefix{n}=")
            plan.look([(plan.leaf(0, "suffix", n), 0)], f"suffix{n}=")
        near = (-1, 1) if self.window else ()
        for offset in near:
            for n in range(2, self.near_affixes + 1):
                plan.look([(plan.leaf(0, "suffix", n), offset)], f"suffix{n}[{offset}]=")
        if self.shapes:
            for form in ("shape", "case", "digits", "punctuation"):
                plan.look([(plan.leaf(0, form), 0)], f"{form}=")
            for offset in near:
                plan.look([(shape, offset)], f"shape[{offset}]=")
        if self.pairs and self.window:
            for offset in (-1, 0):
                where = f"[{offset}]|[{offset + 1}]="
                plan.look([(lower, offset), (lower, offset + 1)], f"lower{where}")
                if self.shapes:
                    plan.look([(shape, offset), (shape, offset + 1)], f"shape{where}")
        for column in range(1, n_columns):
            leaf = plan.leaf(column)
            for offset in range(-self.window, self.window + 1):
                plan.look([(leaf, offset)], f"column{column}[{offset}]=")
            for length in (2, 3) if self.pairs else ():
                for first in range(-self.window, self.window + 2 - length):
                    places = range(first, first + length)
                    name = "|".join(f"[{p}]" for p in places)
                    plan.look([(leaf, p) for p in places], f"column{column}{name}=")
        plan.look([(plan.mark("first"), 0)], "first")
        plan.look([(plan.mark("last"), 0)], "last")
        return plan
