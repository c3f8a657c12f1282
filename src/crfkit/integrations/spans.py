"""Texts with spans of characters, as annotation tools write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from crfkit.base.messages import counted
from crfkit.data.readers import Labelled
from crfkit.data.tokens import Token, tokenize


def from_spans(
    texts: Sequence[str],
    spans: Sequence[Iterable[Any]],
    *,
    lines: bool = False,
    pattern: str | re.Pattern[str] | None = None,
    widen: bool = False,
) -> Labelled:
    r"""Sequences of tokens with BIO labels, from texts and the spans of characters that are labelled in them.

    Parameters
    ----------
    texts : sequence of str
        The texts that the spans refer to.
    spans : sequence of lists
        Of each text, its spans: ``(start, end, label)``, ``end`` being the character after the last, or a dict with
        these keys, or an :class:`~crfkit.model.Entity`. All other words are outside.
    lines, pattern :
        How a text is cut into sentences and tokens, as in :func:`~crfkit.data.tokenize`. A sentence does not end within
        a span.
    widen : bool
        Whether a span that begins or ends within a token becomes as large as its tokens. Otherwise it is an error.

    Returns
    -------
    Labelled
        ``X``, a list of lists of :class:`~crfkit.data.Token`, and ``y``; one sequence per sentence.

    Examples
    --------
    >>> X, y = from_spans(["2 cups brown sugar", "salt"], [[(0, 1, "QTY"), (7, 18, "NAME")], [(0, 4, "NAME")]])
    >>> X[0], y[0]
    (['2', 'cups', 'brown', 'sugar'], ['B-QTY', 'O', 'B-NAME', 'I-NAME'])
    >>> from_spans(["350ml milk"], [[(0, 3, "QTY")]], pattern=r"\d+|[^\W\d]+|\S").X
    [['350', 'ml', 'milk']]
    """
    if isinstance(texts, str) or len(texts) != len(spans):
        given = "one str" if isinstance(texts, str) else f"{len(texts)} and {len(spans)}"
        raise ValueError(f"'texts' and 'spans' must be lists of the same length, got {given}")
    X: list[list[Token]] = []
    y: list[list[str]] = []
    for i, (text, found) in enumerate(zip(texts, spans, strict=True)):
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise ValueError(f"text {i}: spans must be a list, got {found!r}")
        wanted = sorted((_span(x, text, i) for x in found), key=lambda span: span[:2])
        sentences = _joined(tokenize(text, lines=lines, pattern=pattern), wanted)
        tokens = [token for sentence in sentences for token in sentence]
        labels = iter(_labels(tokens, wanted, text, i, widen))
        X += sentences
        y += [[next(labels) for _ in sentence] for sentence in sentences]
    return Labelled(X, y)


def _span(x: Any, text: str, i: int) -> tuple[int, int, str]:
    """A span, checked."""
    try:
        if hasattr(x, "char_start"):
            x = x.char_start, x.char_end, x.label
        start, end, label = (x["start"], x["end"], x["label"]) if isinstance(x, Mapping) else x
        start, end = index(start), index(end)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"text {i}: a span must be (start, end, label), got {x!r}") from None
    if not 0 <= start < end <= len(text):
        raise ValueError(f"text {i}: there is no span {start} to {end}: the text has {counted(len(text), 'character')}")
    if not isinstance(label, str) or not label:
        raise ValueError(f"text {i}: the label of a span must be a str, got {label!r}")
    return start, end, label


def _joined(sentences: list[list[Token]], spans: list[tuple[int, int, str]]) -> list[list[Token]]:
    """Sentences, put together where a span goes on in the next."""
    out: list[list[Token]] = []
    begun, end = 0, 0  # the spans that begin before the end of what there is, and where the last of them ends
    for sentence in sentences:
        while out and begun < len(spans) and spans[begun][0] < out[-1][-1].end:
            end = max(end, spans[begun][1])
            begun += 1
        if out and end > sentence[0].start:
            out[-1] += sentence
        else:
            out.append(sentence)
    return out


def _labels(tokens: list[Token], spans: list[tuple[int, int, str]], text: str, i: int, widen: bool) -> list[str]:
    labels = ["O"] * len(tokens)
    t = 0
    for a, b, label in spans:
        while t < len(tokens) and tokens[t].end <= a:
            t += 1
        first = t
        while t < len(tokens) and tokens[t].start < b:
            t += 1
        inside = text[a:b].strip()
        where = f"text {i}: the span {a} to {b} ({label} {text[a:b]!r})"
        if first and labels[first - 1] != "O" and tokens[first - 1].end > a:
            raise ValueError(f"{where} overlaps another, or shares a token with it")
        if first == t:
            raise ValueError(f"{where} holds no token")
        start = a + len(text[a:b]) - len(text[a:b].lstrip())
        if not widen and (tokens[first].start != start or tokens[t - 1].end != start + len(inside)):
            raise ValueError(
                f"{where} does not begin and end with tokens, which are {tokens[first:t]!r}. Give a 'pattern' "
                "of tokens that cuts there, or widen=True"
            )
        labels[first:t] = [f"B-{label}", *[f"I-{label}"] * (t - first - 1)]
    return labels
