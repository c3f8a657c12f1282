"""How far two people agree: by token, by span, and beyond chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from crfkit.metrics import spans


def kappa(pairs: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    r"""Cohen's kappa of two people's labels of the same things; None if there are none, or chance agrees on all.

    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e}, \qquad p_e = \sum_k p_k^{(1)} p_k^{(2)}

    Examples
    --------
    >>> kappa([("a", "a"), ("a", "a"), ("b", "b"), ("b", "a")])
    0.5
    """
    counts = Counter(pairs)
    n = counts.total()
    if not n:
        return None
    first: Counter[Hashable] = Counter()
    second: Counter[Hashable] = Counter()
    for (a, b), k in counts.items():
        first[a] += k
        second[b] += k
    observed = sum(k for (a, b), k in counts.items() if a == b) / n
    chance = sum(first[label] * second[label] for label in first) / n**2
    return None if chance >= 1 else (observed - chance) / (1 - chance)


class Agreement(NamedTuple):
    """Of two people, over the tokens that both judged.

    Attributes
    ----------
    tokens : int
    agreement : float or None
        Fraction of the tokens with the same label.
    kappa : float or None
        Cohen's, of the tokens' labels.
    f1 : float or None
        Of one person's spans against the other's.
    span_kappa : float or None
        Cohen's, of the labels of the spans that either of them marked, with "none" for what only one did.
    """

    tokens: int
    agreement: float | None
    kappa: float | None
    f1: float | None
    span_kappa: float | None


def agreement(pairs: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Agreement:
    """Agreement of two people's labels of the same sentences; None where one of them has none.

    Examples
    --------
    >>> found = agreement([(["B-X", "O", None], ["B-X", "O", "O"]), (["O", "O"], ["O", "B-X"])])
    >>> found.tokens, found.agreement, round(found.f1, 3)
    (4, 0.75, 0.667)
    """
    tokens: list[tuple[Any, Any]] = []
    marked: list[tuple[Any, Any]] = []
    both = of_first = of_second = 0
    for first, second in pairs:
        shared = [
            (a, b) if a is not None and b is not None else (None, None) for a, b in zip(first, second, strict=True)
        ]
        tokens += [pair for pair in shared if pair[0] is not None]
        # what one of them did not judge ends a span for both
        mine, theirs = ({(s.start, s.end): s.kind for s in spans(_filled(row))} for row in zip(*shared, strict=True))
        for place in mine.keys() | theirs.keys():
            marked.append((mine.get(place), theirs.get(place)))
            both += mine.get(place) == theirs.get(place)
        of_first, of_second = of_first + len(mine), of_second + len(theirs)
    same = sum(a == b for a, b in tokens)
    f1 = 2 * both / (of_first + of_second) if of_first + of_second else None
    return Agreement(len(tokens), same / len(tokens) if tokens else None, kappa(tokens), f1, kappa(marked))


def _filled(row: Sequence[Any]) -> list[str]:
    return ["O" if label is None else label for label in row]
