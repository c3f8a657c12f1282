"""Splits raw text into sentences of tokens that know their positions."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from typing import Any

#: Stands for marks (accents, vowel signs, joiners), which belong to the character before; of private use.
_MARK = "\ue000"
#: Stands for the joiner of emoji (U+200D); of private use too.
_JOINER = "\ue001"
_MARKS = f"[{_MARK}{_JOINER}]"
_WORD = rf"[\w{_MARK}{_JOINER}]"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SHORT = "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Rev|Gen|Col|Sen|Rep|Gov|Lt|Sgt|Capt|Inc|Ltd|Corp|Co|vs|etc|cf|al|Fig|fig|No|Nos"
# Patterns are compiled when first used: that takes longer than the import of all else here.
_TOKEN = rf"""
      (?:https?://|www\.)[^\s<>"]*[\w/]                       # addresses
    | {_WORD}[\w{_MARK}.+-]{{0,63}}@{_WORD}[\w{_MARK}-]*(?:\.[\w-]+)+
    | [{_HAN}]{_MARKS}*                                        # scripts without blanks: by character
    | \d+(?:[.,:/]\d+)*{_WORD}*                               # numbers, times, dates
    | (?:[^\W\d_]\.){{2,}}                                    # U.S., e.g.
    | (?:{_SHORT})\.(?!\w)                                    # Mr.
    | [A-Z]\.(?=\ [A-Z][^\W\d_])                              # J. Smith
    | [^\W{_HAN}]{_WORD}*?(?=n['’]t(?!{_WORD}))               # do n't
    | n['’]t(?!{_WORD})
    | ['’](?:s|S|re|ve|ll|d|m)(?!{_WORD})                     # 's
    | (?:(?![{_HAN}]){_WORD})+                                # words, with inner hyphens and apostrophes
      (?:(?:-|['’](?!(?:s|S|re|ve|ll|d|m)(?!{_WORD})))(?:(?![{_HAN}]){_WORD})+)*
    | \.{{2,}} | -{{2,}}
    | [\U0001f1e6-\U0001f1ff]{{2}}                            # flags
    | [^\w\s]{_MARKS}*(?:(?<={_JOINER})[^\w\s]{_MARKS}*)*    # every other sign by itself, joined emoji as one
    """
_END = frozenset(".!?…。！？｡।؟")
_CLOSING = frozenset("\"'”’»)]}」』")
_WIDE_END = frozenset("。！？｡")
_PARAGRAPH = r"\n[^\S\n]*\n|\u2029"
_LINE = r"[\n\u2029]"


class Token(str):
    """A part of a text, a str that knows its position: ``token.source[token.start:token.end] == token``.

    :func:`tokenize` returns them; make your own where the tokens come from another tool. Entities found in them have
    ``char_start`` and ``char_end``.

    Parameters
    ----------
    source : str
        The whole text.
    start, end : int
        Character positions in the text; ``end`` is the one after the last.

    Examples
    --------
    >>> token = Token("two pears", 4, 9)
    >>> token, token.start, token.end
    ('pears', 4, 9)
    """

    source: str
    start: int
    end: int
    __slots__ = ("end", "source", "start")

    def __new__(cls, source: str, start: int, end: int) -> Token:
        """The characters from ``start`` to ``end - 1``."""
        token = super().__new__(cls, source[start:end])
        token.source, token.start, token.end = source, start, end
        return token

    def __reduce__(self) -> Any:
        return Token, (self.source, self.start, self.end)


def lower_case(word: str) -> str:
    """A word in lower case, character by character as in the features; those whose lower case is longer stay.

    >>> lower_case("İstanbul"), lower_case("ΟΔΟΣ")
    ('İstanbul', 'οδοσ')
    """
    if word.isascii():
        return word.lower()
    return "".join(low if len(low := c.lower()) == 1 else c for c in word)


def tokenize(text: str, *, lines: bool = False, pattern: str | re.Pattern[str] | None = None) -> list[list[Token]]:
    r"""Splits raw text into sentences and tokens, much as treebanks do.

    Words keep inner hyphens (``self-raising``) and apostrophes; a number is split from a hyphen that follows it
    (``2 - inch``). English clitics are split (``do n't``, ``Anna 's``), and every punctuation mark is a token. Each Han
    character is a token. A sentence ends at ``.``, ``!``, ``?`` and the like if what follows does not begin with a
    lower-case letter, and at a blank line. Only white space is left out.

    Parameters
    ----------
    text : str
        Running text.
    lines : bool
        Whether each line is a sequence of its own, and sentences do not matter. Lines without tokens are left out.
    pattern : str or compiled pattern, optional
        A regular expression whose matches are the tokens, such as ``r"\S+"`` for words between blanks. Sentences end
        where they do without it.

    Returns
    -------
    list of lists of Token
        Each a ``str`` with ``start`` and ``end``, so that ``text[token.start:token.end] == token``.

    Examples
    --------
    >>> sentences = tokenize("Dr. Li doesn't know. Ask the U.S. office!")
    >>> sentences
    [['Dr.', 'Li', 'does', "n't", 'know', '.'], ['Ask', 'the', 'U.S.', 'office', '!']]
    >>> sentences[1][2].start, sentences[1][2].end
    (29, 33)
    >>> tokenize("2 c. Flour\n1 egg", lines=True)
    [['2', 'c', '.', 'Flour'], ['1', 'egg']]
    >>> tokenize("Dr. Li knows. Ask!", pattern=r"\S+")
    [['Dr.', 'Li', 'knows.'], ['Ask!']]
    """
    if not isinstance(text, str):
        raise TypeError(f"'text' of tokenize must be a str, got {type(text).__name__}")
    if pattern is not None:
        return _matches(text, pattern, [s[0].start for s in tokenize(text, lines=lines)])
    shadow = text if text.isascii() else "".join(map(_shadow, text))
    blank = re.finditer(_LINE if lines else _PARAGRAPH, text)
    gap = next(blank, None)  # the first blank line, or end of a line, that does not lie before the last token
    sentences: list[list[Token]] = [[]]
    ended = False  # whether the last tokens end a sentence
    for match in re.finditer(_TOKEN, shadow, re.VERBOSE):
        token = Token(text, *match.span())
        before = sentences[-1]
        if before:
            while gap is not None and gap.start() < before[-1].end:
                gap = next(blank, None)
            cut = gap is not None and gap.start() < token.start
            apart = token.start > before[-1].end
            if ended and token[0] in _CLOSING and not apart:
                before.append(token)
                continue
            wide = ended and any(t in _WIDE_END for t in before[-3:])
            if cut or (ended and (apart or wide) and not token[0].islower()):
                sentences.append([])
        sentences[-1].append(token)
        ended = not lines and token[0] in _END
    return sentences if sentences[0] else []


def _matches(text: str, pattern: str | re.Pattern[str], starts: list[int]) -> list[list[Token]]:
    """What a pattern finds, cut into the sentences that begin at ``starts``."""
    try:
        found = re.compile(pattern).finditer(text)
    except (re.error, TypeError) as e:
        raise ValueError(f"'pattern' of tokenize must be a regular expression for text, got {pattern!r}: {e}") from None
    sentences: dict[int, list[Token]] = {}
    for match in found:
        if match[0]:
            sentences.setdefault(bisect_left(starts, match.end()) or 1, []).append(Token(text, *match.span()))
    return list(sentences.values())


def _shadow(c: str) -> str:
    """What stands for a character in patterns: marks, among them the colours of skin, and the joiner are not signs."""
    if c == "\u200d":
        return _JOINER
    is_mark = unicodedata.category(c)[0] == "M" or c == "\u200c" or "\U0001f3fb" <= c <= "\U0001f3ff"
    return _MARK if is_mark else c
