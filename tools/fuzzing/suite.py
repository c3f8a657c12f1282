"""CRFsuite's binary models, changed field by field."""

from __future__ import annotations

import random
import struct

import numpy as np

from crfkit import _core
from crfkit.compat.suite_file import SuiteFeatures, suite_bytes
from fuzzing.mutations import ODD_NUMBERS, mutate_bytes

_RECORD = np.dtype([("type", "<u4"), ("source", "<u4"), ("target", "<u4"), ("weight", "<f8")])


def random_suite(rng: random.Random) -> bytes:
    """A well-formed model of random features, seldom of very many labels."""
    n_labels = rng.choice((1, 2, 5, 40, 20_000 if rng.random() < 0.01 else 3))
    n_names = rng.choice((0, 1, 3, 200))
    names = _core.StringTable()
    for k in range(n_names):
        names.add(rng.choice(["a", "é", "w=", "x" * 50, ""]) + str(k))
    state = np.zeros(rng.randrange(50) if n_names else 0, _RECORD)
    state["source"] = [rng.randrange(n_names) for _ in state]
    state["target"] = [rng.randrange(n_labels) for _ in state]
    transitions = np.zeros(rng.randrange(20), _RECORD)
    transitions["type"] = 1
    for field in ("source", "target"):
        transitions[field] = [rng.randrange(n_labels) for _ in transitions]
    for part in (state, transitions):
        part["weight"] = [rng.gauss(0, 1) for _ in part]
        part.sort(order=["source", "target"])
    return suite_bytes(SuiteFeatures(tuple(f"L{k}" for k in range(n_labels)), names, state, transitions))


def mutate_suite(data: bytes, rng: random.Random) -> bytes:
    """A model with another number in its header, in a chunk's header, in a table or in a feature."""
    if rng.random() < 0.05:
        return random_suite(rng)
    if len(data) < 48 or rng.random() < 0.1:
        return mutate_bytes(data, rng)
    out = bytearray(data)
    places = [p for p in struct.unpack_from("<5I", data, 28) if p + 12 <= len(data)]  # of the five chunks
    kind = rng.randrange(10)
    at = 4 * rng.randrange(12)
    if kind < 6 and places:
        begin = rng.choice(places)
        ends = [p for p in (*places, len(data)) if p > begin]
        length = min(ends, default=len(data)) - begin
        inside = rng.choice((length, 64, 24))  # chunk headers are short, and matter most
        at = begin + 4 * rng.randrange(max(1, min(inside, length) // 4))
    if at + 4 > len(out):
        return mutate_bytes(data, rng)
    (old,) = struct.unpack_from("<I", out, at)
    near = [old + 1, old - 1, old + 4, old - 4, old * 2, old ^ 0x80000000, len(data), len(data) - 4, *places]
    struct.pack_into("<I", out, at, rng.choice([*near, *ODD_NUMBERS[:9]]) % 2**32)
    if kind == 9 and places:  # a weight that is no number
        first = places[0] + 12
        count = max(1, (min((p for p in places if p > first), default=len(out)) - first) // 20)
        where = first + 20 * rng.randrange(count) + 12
        if where + 8 <= len(out):
            struct.pack_into("<d", out, where, rng.choice([float("nan"), float("inf"), 1e308, -1e308, 5e-324]))
    return bytes(out)
