"""What the NetTalk experiments and benchmarks share: features and data."""

from __future__ import annotations

from typing import Any

from crfkit import Template
from crfkit.data import load_corpus


def template(longest: int = 5, transitions: bool = False) -> Template:
    """Letters -4 to 4, and the runs of two to ``longest`` letters that hold or touch the letter.

    ``transitions``: transitions have the letter as an attribute, and it with the letter before.
    """
    pieces: list[tuple[int, ...]] = [(o,) for o in range(-4, 5)]
    for n in range(2, longest + 1):
        first = -n if n < 4 else 1 - n
        last = 1 if n < 4 else 0
        pieces += [tuple(range(a, a + n)) for a in range(first, last + 1) if a <= 1 and a + n - 1 >= -1]
    lines = [f"U{k}:" + "/".join(f"%x[{o},0]" for o in offsets) for k, offsets in enumerate(pieces)]
    pairs = ["B0:%x[0,0]", "B1:%x[-1,0]/%x[0,0]"] if transitions else []
    return Template("\n".join([*lines, "B", *pairs]))


def corpus(label: str) -> tuple[Any, Any, Any, Any]:
    """Training and test words and their labels: ``"phone"`` or ``"phone+stress"``."""
    train, test = (load_corpus("nettalk", split, label=label) for split in ("train", "test"))
    return train.X, train.y, test.X, test.y
