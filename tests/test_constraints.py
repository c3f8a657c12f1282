"""Chunking rules against a plain reading of each scheme."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crfkit.chain import Constraints, Potentials, decode

LABELS = {
    "bio": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "iob1": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "bioes": ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y"],
    "bilou": ["O", "B-X", "I-X", "L-X", "U-X"],
}


def is_valid(labels: tuple[str, ...], scheme: str) -> bool:
    """Reads a label sequence from left to right, as an annotator would."""
    last, single = {"bioes": ("E", "S"), "bilou": ("L", "U")}.get(scheme, (" ", " "))
    inside = ""  # type of the open chunk
    before = "O"
    for label in labels:
        tag, _, kind = label.partition("-")
        if scheme == "bio":
            if tag == "I" and (before == "O" or before[2:] != kind):
                return False
        elif scheme == "iob1":
            if tag == "B" and (before == "O" or before[2:] != kind):
                return False
        else:
            if inside and (tag not in ("I", last) or kind != inside):
                return False
            if not inside and tag in ("I", last):
                return False
            if tag in ("B", "I"):
                inside = kind
            elif tag in (last, single, "O"):
                inside = ""
        before = label
    return not inside


@pytest.mark.parametrize("scheme", list(LABELS))
def test_rules_allow_exactly_the_valid_sequences(scheme: str) -> None:
    labels = LABELS[scheme]
    rules = Constraints.from_scheme(labels, scheme)
    for length in (1, 2, 3):
        for path in itertools.product(range(len(labels)), repeat=length):
            allowed = rules.start[path[0]] and rules.end[path[-1]]
            allowed = allowed and all(rules.transitions[a, b] for a, b in itertools.pairwise(path))
            assert allowed == is_valid(tuple(labels[i] for i in path), scheme), [labels[i] for i in path]


def test_decoding_obeys_the_rules() -> None:
    labels = LABELS["bioes"]
    n = len(labels)
    rules = Constraints.from_scheme(labels, "bioes").as_scores()
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = Potentials(rng.normal(size=(6, n)) * 5, rules[: n * n].reshape(n, n), rules[n * n : -n], rules[-n:])
        assert is_valid(tuple(labels[i] for i in decode(p)), "bioes")


def test_forbidden_pairs() -> None:
    rules = Constraints.from_forbidden(["a", "b"], [("a", "b")])
    assert rules.transitions.tolist() == [[True, False], [True, True]]


def test_bad_rules_are_named() -> None:
    with pytest.raises(ValueError, match="label 'NOUN' does not fit scheme 'bio'"):
        Constraints.from_scheme(["NOUN", "O"], "bio")
    with pytest.raises(ValueError, match="must be one of"):
        Constraints.from_scheme(["O"], "iob")
    with pytest.raises(ValueError, match=r"\(label, next label\) pairs"):
        Constraints.from_forbidden(["a"], ["ab"])  # type: ignore[list-item]
