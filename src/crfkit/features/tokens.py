"""Features of raw tokens, for when no template is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from crfkit.base.fields import Arrays
from crfkit.features.classes import WordClasses
from crfkit.features.gazetteers import Gazetteer
from crfkit.features.lexicon import Lexicon, class_part
from crfkit.features.plan import FAR, FeaturePlan
from crfkit.features.vectors import WordVectors


def look_at_classes(plan: FeaturePlan, column: int, name: str, prefixes: tuple[int, ...], window: int) -> None:
    """The features of word classes, those of the column ``column`` of a lexicon; the one place that chooses them.

    Prefixes of the bit strings of the token and of those next to it, alone: on held-out sentences of CoNLL-2000 with
    few labels, wider windows, pairs and triples of them gained nothing, and hurt where there were parts of speech.
    """
    for n in prefixes:
        for offset in range(-min(window, 1), min(window, 1) + 1):
            plan.look([(plan.derived(column, "start", n), offset)], f"{name}{n}[{offset}]=")


def look_at_gazetteer(plan: FeaturePlan, column: int, name: str, window: int) -> None:
    """The features of a gazetteer: the marks of the token and of those next to it."""
    for offset in range(-min(window, 1), min(window, 1) + 1):
        plan.look([(plan.derived(column), offset)], f"gazetteer:{name}[{offset}]=")


def look_at_vectors(plan: FeaturePlan, n: int, window: int) -> None:
    """The features of word vectors: the numbers of the token and of those next to it."""
    for offset in range(-min(window, 1), min(window, 1) + 1):
        for k in range(n):
            plan.look([(plan.number(k), offset)], f"vector{k}[{offset}]")


@dataclass(frozen=True)
class TokenFeatures:
    """Features that suit most tagging and chunking tasks, from the tokens alone.

    The first column is the word. Its features are the words around it, word pairs, its lower case, prefixes, suffixes,
    shape (``Xxx-dd``), case, digits and punctuation. Further columns (parts of speech, say) give their values, pairs
    and triples around the token. The first and last tokens are marked. Words can also be looked up in classes learned
    from unlabelled text, in gazetteers, and in word vectors. All of these are saved with a model.

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
    classes : WordClasses, or dict of str and WordClasses, optional
        Classes of words (:class:`~crfkit.WordClasses`): prefixes of their bit strings for the token and those next
        to it. Words without a class have no such feature. If there are several, the names of their attributes begin
        with their keys instead of ``class``.
    vectors : WordVectors, optional
        Vectors of words (:class:`~crfkit.WordVectors`): attributes ``vector0[0]``, ``vector1[0]``, ... whose values are
        the numbers of the token's vector, divided by the root mean square of all numbers; and those of the words next
        to it. :meth:`WordVectors.classes` makes classes of vectors, which are smaller and faster.
    gazetteers : dict of str and Gazetteer, optional
        Names and lists of phrases (:class:`~crfkit.Gazetteer`, or the phrases to make one from): the marks of the token
        and of those next to it (``gazetteer:cities[0]=B``).

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
    classes: WordClasses | Mapping[str, WordClasses] | None = field(default=None, hash=False)
    vectors: WordVectors | None = None
    gazetteers: Mapping[str, Gazetteer | Iterable[str]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.vectors is not None and not isinstance(self.vectors, WordVectors):
            raise ValueError(f"'vectors' of TokenFeatures must be WordVectors, got {self.vectors!r}")
        if self.gazetteers is not None:
            if not isinstance(self.gazetteers, Mapping) or any(isinstance(x, str) for x in self.gazetteers.values()):
                raise ValueError("'gazetteers' of TokenFeatures must be a dict of names and Gazetteers")
            made = {k: x if isinstance(x, Gazetteer) else Gazetteer(x) for k, x in self.gazetteers.items()}
            object.__setattr__(self, "gazetteers", made)
        for name, found in self._classes().items():
            if not isinstance(found, WordClasses) or not isinstance(name, str):
                raise ValueError(f"'classes' of TokenFeatures must be WordClasses, or a dict of them, got {found!r}")
        for name in ("window", "affixes", "near_affixes"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= 100:
                raise ValueError(f"{name!r} of TokenFeatures must be an int from 0 to 100, got {value!r}")

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it changes

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if name != "lexicon"}

    def _classes(self) -> Mapping[str, WordClasses]:
        """The classes by the names that their attributes begin with."""
        found: Any = self.classes
        if found is None or isinstance(found, WordClasses):
            return {} if found is None else {"class": found}
        if isinstance(found, Mapping):
            return found
        raise ValueError(f"'classes' of TokenFeatures must be WordClasses, or a dict of them, got {found!r}")

    def _gazetteers(self) -> Mapping[str, Any]:
        return self.gazetteers or {}

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """The tables that words are looked up in; None if there are none."""
        classes = [class_part("lower" if x.lower else "exact", Arrays(x.arrays())) for x in self._classes().values()]
        gazetteers = [x.part for x in self._gazetteers().values()]
        vectors = [] if self.vectors is None else [self.vectors.part]
        return Lexicon(classes, gazetteers, vectors) if classes or gazetteers or vectors else None

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
        classes = self._classes()
        for k, (name, found) in enumerate(classes.items()):
            look_at_classes(plan, k, name, found.prefixes, self.window)
        for k, name in enumerate(self._gazetteers()):
            look_at_gazetteer(plan, len(classes) + k, name, self.window)
        if self.vectors is not None:
            look_at_vectors(plan, self.vectors.values.shape[1], self.window)
        plan.look([(plan.mark("first"), 0)], "first")
        plan.look([(plan.mark("last"), 0)], "last")
        return plan
