"""Writes src/core/text/unicode_tables.hpp: character classes and lower case, from Python's own tables.

Run it when the Unicode version of the oldest supported Python changes: ``python tools/unicode_tables.py``.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

CLASSES = {"Lu": 1, "Lt": 1, "Ll": 2, "Lo": 3, "Lm": 3, "Nd": 4, "Nl": 4, "No": 4}
GROUPS = {"P": 5, "S": 6, "M": 7, "Z": 8, "C": 0}


def character_class(code: int) -> int:
    """Number of the class, as in unicode.hpp."""
    category = unicodedata.category(chr(code))
    return CLASSES.get(category, GROUPS.get(category[0], 0))


def class_starts() -> list[tuple[int, int]]:
    """First code and class of all runs; class 9 is a run of upper and lower case in turn."""
    runs: list[tuple[int, int]] = []
    code = 0x80
    while code <= sys.maxunicode:
        kind = character_class(code)
        end = code
        while end < sys.maxunicode and character_class(end + 1) == kind:
            end += 1
        if end == code and kind == 1:
            pair = code
            while [character_class(pair), character_class(pair + 1)] == [1, 2]:
                pair += 2
            if pair - code >= 6:
                kind, end = 9, pair - 1
        runs.append((code, kind))
        code = end + 1
    return runs


def lower_ranges() -> list[tuple[int, int, int, int]]:
    """(first, last, step, distance): every step-th code of the run has its lower case that far away."""
    distance = {}
    for code in range(0x80, sys.maxunicode + 1):
        lower = chr(code).lower()
        if len(lower) == 1 and ord(lower) != code:
            distance[code] = ord(lower) - code
    runs = []
    codes = sorted(distance)
    while codes:
        first = codes[0]
        best = (first, 1)
        for step in (1, 2):
            last = first
            while distance.get(last + step) == distance[first] and (step == 1 or last + 1 not in distance):
                last += step
            if (last - first) // step > (best[0] - first) // best[1]:
                best = (last, step)
        last, step = best
        runs.append((first, last, step, distance[first]))
        gone = set(range(first, last + 1, step))
        codes = [c for c in codes if c not in gone]
    return runs


def main() -> None:
    """Write the header."""
    out = [
        "// unicode_tables.hpp: made by tools/unicode_tables.py; do not edit.",
        "#pragma once",
        '#include "base/base.hpp"',
        "",
        "namespace crfkit {",
        "",
        "// clang-format off",
        "struct LowerRange { u32 first, last; i32 step, distance; };",
        "",
        "// 16 times the first code of each run, and its class",
        "inline constexpr u32 kClassStarts[] = {",
    ]

    def lines(items: list[str]) -> None:
        line = "   "
        for item in items:
            if len(line) + len(item) > 115:
                out.append(line)
                line = "   "
            line += (" " if line == "   " else "") + item
        out.append(line)

    lines([f"{16 * code + kind}," for code, kind in class_starts()])
    out += ["};", "", "inline constexpr LowerRange kLowerRanges[] = {"]
    lines([f"{{{a},{b},{s},{d}}}," for a, b, s, d in lower_ranges()])
    out += ["};", "// clang-format on", "", "}  // namespace crfkit", ""]
    Path(__file__).parents[1].joinpath("src/core/text/unicode_tables.hpp").write_text("\n".join(out))


if __name__ == "__main__":
    main()
