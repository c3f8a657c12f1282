"""Changes of bytes, of JSON trees and of lines."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

ODD_BYTES = [
    *(b"\0", b"\xff", b"\n", b"\n\n", b"\r", b"\t", b" ", b"%", b"%x[", b"*", b"9" * 12, b"-1", b"1e999", b"nan"),
    *(b"0x1p+9999", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b":", b"#", b"\\", b'"', b",", b"=", b"a" * 300),
]
ODD_NUMBERS = [0, 1, -1, 2, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
ODD_TEXTS = ["", "x", "\ud800", "\0", "é", "a" * 3000, "_B-1", "a/b/c", "U0:", "nan", "1e5", "\u2028", "⅓"]

_LARGE = 100_000  # bytes; a change can make it a thousand times as large


def times(rng: random.Random) -> int:
    """How many changes to make: few, or the rest is hardly ever reached."""
    return rng.choice((1, 1, 1, 1, 2, 3, 8))


def repeated(change: Callable[[bytes, random.Random], bytes]) -> Callable[[bytes, random.Random], bytes]:
    """A few changes of this kind; no more once the file is large: large inputs only cost memory."""

    def some(data: bytes, rng: random.Random) -> bytes:
        for _ in range(times(rng)):
            data = change(data, rng) if len(data) < _LARGE else data
        return data

    return some


def odd_value(rng: random.Random) -> Any:
    """Something that JSON can hold and no header expects."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice([-1, 1]) * rng.choice(ODD_NUMBERS)
    if kind < 4:
        return rng.choice([0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), 10**30])
    if kind < 6:
        return rng.choice(ODD_TEXTS)
    if kind < 7:
        return rng.choice([None, True, False, [], {}, [[]], [None], {"": None}, [0, 0], {"a": {"b": [1]}}])
    deep: Any = rng.choice([[], {}, 0])
    for _ in range(rng.choice((3, 30, 900))):
        deep = [deep] if rng.random() < 0.7 else {"a": deep}
    return deep


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one change: bits, bytes, numbers, cuts, copies."""
    out = bytearray(data)
    at = rng.randrange(len(out) + 1)
    kind = rng.randrange(8)
    if kind == 0 and out:
        out[at % len(out)] ^= 1 << rng.randrange(8)
    elif kind == 1 and out:
        out[at % len(out)] = rng.randrange(256)
    elif kind == 2:
        out[at:at] = rng.choice(ODD_BYTES)
    elif kind == 3:
        del out[at : at + rng.choice((1, 4, 50, 1000))]
    elif kind == 4:
        out[at:at] = out[at : at + rng.randrange(100)] * rng.choice((1, 3, 100))
    elif kind == 5 and len(out) >= 4:
        at = rng.randrange(len(out) - 3) // 4 * 4
        number = rng.choice((*ODD_NUMBERS[:9], len(out), rng.randrange(2**32)))
        out[at : at + 4] = struct.pack("<I", number % 2**32)
    elif kind == 6 and rng.random() < 0.3:
        del out[at:]
    else:
        other = rng.randrange(len(out) + 1)
        out[at:at] = out[other : other + 40]
    return bytes(out)


def slots(tree: Any, most: int = 3000) -> list[tuple[Any, Any]]:
    """Places (container, key) of a tree's values, outer ones first."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(found) < most:
        node = waiting.pop(0)
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], (dict, list)):
                waiting.append(node[key])
    return found


def mutate_text(text: str, rng: random.Random) -> str:
    """A text with one change."""
    at = rng.randrange(len(text) + 1)
    return rng.choice(
        [
            rng.choice(ODD_TEXTS),
            text[:at] + rng.choice(ODD_TEXTS) + text[at:],
            text[:at] + text[at + 1 :],
            text * rng.choice((2, 3, 50)),
            text[::-1],
            text.swapcase(),
        ]
    )


def mutate_value(x: Any, rng: random.Random) -> Any:
    """Another value in the place of this one, most often of its type."""
    if rng.random() < 0.35:
        return odd_value(rng)
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return rng.choice([x + 1, x - 1, -x, 2 * x, x * 1000, float(x), str(x), rng.choice(ODD_NUMBERS)])
    if isinstance(x, float):
        return rng.choice([-x, x * 1e300, 0.0, int(x) if abs(x) < 1e18 else 0, x / 2, float("nan"), str(x)])
    if isinstance(x, str):
        return mutate_text(x, rng)
    if isinstance(x, list):
        return rng.choice([x[:-1], x + x[-1:], x[::-1], x * rng.choice((2, 20)), [], [x], dict(enumerate(map(str, x)))])
    if isinstance(x, dict):
        return rng.choice([{}, list(x.values()), list(x), {"": x}, [x]])
    return odd_value(rng)


def mutate_tree(tree: dict[str, Any], rng: random.Random) -> None:
    """Changes one value, name or place of a tree in place."""
    places = slots(tree)
    if not places:
        return
    where, key = rng.choice(places)
    kind = rng.randrange(10)
    if kind == 0:
        del where[key]
    elif kind == 1:
        other, name = rng.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            where[key] = other[name] if not isinstance(other[name], (dict, list)) else 0
    elif kind == 2 and isinstance(where, dict):
        where[rng.choice([*ODD_TEXTS, "array", "dict", "kind"])] = where.pop(key)
    elif kind == 2:
        where.insert(rng.randrange(len(where) + 1), where[key] if not isinstance(where[key], (dict, list)) else 0)
    else:
        where[key] = mutate_value(where[key], rng)


def mutate_lines(data: bytes, rng: random.Random, separators: bytes = b"\t ") -> bytes:
    """Text of lines and fields with one change: of a field, of a line, of their order and number."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 3:
        lines[i:i] = [lines[i]] * rng.choice((2, 50, 2000 if rng.random() < 0.05 else 5))
    elif kind < 8:
        separator = rng.choice([separators[k : k + 1] for k in range(len(separators))])
        fields = lines[i].split(separator)
        k = rng.randrange(len(fields))
        change = rng.randrange(5)
        if change == 0:
            del fields[k]
        elif change == 1:
            fields[k:k] = [fields[k]] * rng.choice((1, 3, 1000 if rng.random() < 0.1 else 2))
        elif change == 2:
            fields[k] = rng.choice([*ODD_BYTES, str(rng.choice(ODD_NUMBERS)).encode()])
        elif change == 3:
            fields[k] = fields[k] * rng.choice((2, 100))
        else:
            fields[k] = mutate_bytes(fields[k], rng)
        lines[i] = separator.join(fields)
    else:
        return mutate_bytes(data, rng)
    return b"\n".join(lines)
