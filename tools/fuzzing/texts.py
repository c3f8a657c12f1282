"""Templates, regular expressions, and the text models of CRF++ and Wapiti, made and changed by their grammar."""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzzing.mutations import ODD_NUMBERS, mutate_bytes, mutate_lines

_ATOMS = [
    "a",
    "b",
    ".",
    r"\d",
    r"\a",
    r"\w",
    r"\l",
    r"\u",
    r"\p",
    r"\s",
    r"\D",
    r"\P",
    r"\\",
    "é",
    "x",
    "[",
    "]",
    '\\"',
]
_NEAR = [0, 0, 0, 0, 1, -1, 2, -2]


def random_regex(rng: random.Random) -> str:
    """An expression of Wapiti's, seldom one that is hard to match."""
    if rng.random() < 0.1:  # many ways to match, or not
        part = rng.choice(["a*", ".*", "a?", ".*.*x", r"\w*\a*"])
        return part * rng.choice((2, 10, 100, 490)) + rng.choice(["", "x", "$", "^"])
    text = "".join(rng.choice(_ATOMS) + rng.choice(["", "", "*", "?", "**", "*?"]) for _ in range(rng.randrange(6)))
    return rng.choice(["", "^", "*", "?"]) + text + rng.choice(["", "$", "\\", "^"])


def random_macro(rng: random.Random, wapiti: bool) -> str:
    """One piece of a template line."""
    row = rng.choice([*_NEAR, rng.choice(ODD_NUMBERS), 999, -1000])
    column = rng.choice([0, 0, 0, 1, 1, 2, 9, rng.choice(ODD_NUMBERS)])
    if not wapiti or rng.random() < 0.4:
        return f"%x[{row},{column}]"
    command, at = rng.choice("xtmXTM"), rng.choice(["", "", "", "@"])
    regex = f',"{random_regex(rng)}"' if (command in "tmTM") != (rng.random() < 0.03) else ""
    return f"%{command}[{at}{row},{column}{regex}]"


def random_line(rng: random.Random, wapiti: bool) -> str:
    """A line of a template."""
    begin = rng.choice(["u", "b", "*"] if wapiti else ["U", "U", "B"])
    if rng.random() < 0.1:
        return begin
    many = rng.choice((1, 1, 2, 3, 12 if rng.random() < 0.1 else 2))
    between = rng.choice(["/", "/", "", " ", "|", "-x-"])
    name = rng.choice(["", "0:", "00:", "word=", "é"])
    return begin + name + between.join(random_macro(rng, wapiti) for _ in range(many)) + rng.choice(["", "", ":z"])


def mutate_template(data: bytes, rng: random.Random) -> bytes:
    """A template with a line more, a macro changed, or other bytes."""
    wapiti = data[:1] in b"*ub" or rng.random() < 0.05
    kind = rng.randrange(10)
    if kind < 6:
        lines = data.split(b"\n")
        i = rng.randrange(len(lines))
        lines[i : i + (kind < 3)] = [random_line(rng, wapiti).encode()]
        return b"\n".join(lines)
    return mutate_lines(data, rng, b"/%:,") if kind < 9 else mutate_bytes(data, rng)


def _change_part(parts: list[bytes], which: int, rng: random.Random) -> None:
    change: Callable[[bytes, random.Random], bytes]
    change = mutate_template if which == 2 else mutate_lines
    parts[which] = change(parts[which], rng)


def mutate_crfpp(data: bytes, rng: random.Random) -> bytes:
    """A CRF++ model with another header, label, template, feature or weight; counts are made right half of the time."""
    parts = data.split(b"\n\n", 4)
    if len(parts) != 5 or rng.random() < 0.08:
        return mutate_bytes(data, rng)
    kind = rng.randrange(8)
    if kind < 4:
        _change_part(parts, rng.choice((0, 1, 2, 2, 3, 4)), rng)
    elif kind == 4:  # a line, and a feature that it could have written
        line = random_line(rng, False)
        value = rng.choice([b"a", b"a/b", b"a/" * 60 + b"a", b"\xc3\xa9", b"_B-1", b"//", b""])
        parts[2] += b"\n" + line.encode()
        name = line.split("%")[0].encode() + value
        parts[3] += b"\n" + str(rng.choice((0, 1, *ODD_NUMBERS[:3]))).encode() + b" " + name
    elif kind == 5:  # all features at the same weights
        parts[3] = b"\n".join(b"0 " + line.partition(b" ")[2] for line in parts[3].split(b"\n"))
    elif kind == 6:
        many = rng.choice((2, 10, 300, 4096 if rng.random() < 0.02 else 40))
        parts[1] += b"".join(b"\nL%d" % k for k in range(many))
    else:
        parts[4] = b"\n".join(
            rng.choice([b"nan", b"inf", b"1e400", b"0x1", b"", b"1_0", b"-0"]) if rng.random() < 0.2 else w
            for w in parts[4].split(b"\n")
        )
    if rng.random() < 0.5:
        lines = [b"maxid: %d" % len(parts[4].split()) if x.startswith(b"maxid:") else x for x in parts[0].split(b"\n")]
        parts[0] = b"\n".join(lines)
    return b"\n\n".join(parts)


def _netstrings(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    out = []
    for _ in range(count):
        colon = data.index(b":", at)
        length = int(data[at:colon])
        out.append(data[colon + 1 : colon + 1 + length])
        at = colon + 1 + length + 2
    return out, at


def mutate_wapiti(data: bytes, rng: random.Random) -> bytes:
    """A Wapiti model with another pattern, label, observation or weight, and lengths and counts that fit, or not."""
    try:
        if rng.random() < 0.1:
            return mutate_bytes(data, rng)
        head, _, rest = data.partition(b"\n")
        reader, _, rest = rest.partition(b"\n")
        patterns, at = _netstrings(rest, 0, int(reader[5:].split(b"/")[0]))
        end = rest.index(b"\n", at)
        labels, at = _netstrings(rest, end + 1, int(rest[at + 5 : end]))
        end = rest.index(b"\n", at)
        names, at = _netstrings(rest, end + 1, int(rest[at + 5 : end]))
        weights = rest[at:].split(b"\n")
    except (ValueError, IndexError):
        return mutate_bytes(data, rng)
    kind = rng.randrange(7)
    if kind == 0:
        patterns.insert(rng.randrange(len(patterns) + 1), random_line(rng, True).encode())
    elif kind == 1:
        lines = mutate_template(b"\n".join(patterns), rng).split(b"\n")
        patterns = lines
    elif kind == 2:
        labels = mutate_lines(b"\n".join(labels), rng).split(b"\n")
    elif kind == 3:
        names = mutate_lines(b"\n".join(names), rng, b":/").split(b"\n")
    elif kind == 4:
        weights = mutate_lines(b"\n".join(weights), rng, b"=xp").split(b"\n")
    elif kind == 5:
        line = random_line(rng, True)
        patterns.append(line.encode())
        names.append(line.split("%")[0].encode() + rng.choice([b"a", b"a/a/a", b"a/" * 60 + b"a", b"true", b"_x-1"]))
    else:
        head = mutate_lines(head, rng, b"#")
        reader = mutate_lines(reader, rng, b"#/")

    def strings(items: list[bytes]) -> bytes:
        wrong = rng.choice((0, 0, 0, 1, -1)) if rng.random() < 0.05 else 0
        return b"".join(b"%d:%s,\n" % (len(x) + wrong, x) for x in items)

    if kind != 6:
        tag = b"#mdl#2#" if head.count(b"#") > 2 else b"#mdl#"
        head = tag + b"%d" % len([w for w in weights if w])
        reader = b"#rdr#%d/2/0" % len(patterns)
    parts = [head, b"\n", reader, b"\n", strings(patterns), b"#qrk#%d\n" % len(labels), strings(labels)]
    return b"".join([*parts, b"#qrk#%d\n" % len(names), strings(names), b"\n".join(weights)])
