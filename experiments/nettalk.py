"""What the NetTalk experiments and benchmarks share: features and data."""

from __future__ import annotations

from typing import Any

from crfkit import Template
from crfkit.data import load_corpus


def template() -> Template:
    """Letters -4 to 4, and the runs of two to five letters that hold or touch the letter."""
    pieces: list[tuple[int, ...]] = [(o,) for o in range(-4, 5)]
    for n in range(2, 6):
        first = -n if n < 4 else 1 - n
        last = 1 if n < 4 else 0
        pieces += [tuple(range(a, a + n)) for a in range(first, last + 1) if a <= 1 and a + n - 1 >= -1]
    lines = [f"U{k}:" + "/".join(f"%x[{o},0]" for o in offsets) for k, offsets in enumerate(pieces)]
    return Template("\n".join([*lines, "B"]))


def corpus(label: str) -> tuple[Any, Any, Any, Any]:
    """Training and test words and their labels: ``"phone"`` or ``"phone+stress"``."""
    train, test = (load_corpus("nettalk", split, label=label) for split in ("train", "test"))
    return train.X, train.y, test.X, test.y
