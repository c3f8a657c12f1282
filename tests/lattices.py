"""Random small lattices for property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from crfkit.chain import Potentials


@st.composite
def potentials(
    draw: st.DrawFn,
    max_length: int = 5,
    min_length: int = 0,
    max_labels: int = 4,
    scales: tuple[float, ...] = (1.0, 30.0, 1e4),
    constraints: bool = True,
    dtype: type = np.float64,
) -> Potentials:
    """Potentials of one sequence: shared or per-step transitions, with and without constraints."""
    length = draw(st.integers(min_length, max_length), label="length")
    labels = draw(st.integers(1, max_labels), label="labels")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    scale = draw(st.sampled_from(scales), label="scale")
    per_step = draw(st.booleans(), label="per_step")
    forbid = draw(st.sampled_from([0.0, 0.2, 0.5]), label="forbid") if constraints else 0.0

    def scores(*shape: int) -> Any:
        x: Any = (rng.normal(size=shape) * scale).astype(dtype)
        x[rng.random(shape) < forbid] = -np.inf
        return x

    allowed = None
    if constraints and draw(st.booleans(), label="allowed"):
        allowed = rng.random((length, labels)) < 0.8
    ends = draw(st.booleans(), label="ends")
    return Potentials(
        scores(length, labels),
        scores(max(0, length - 1), labels, labels) if per_step else scores(labels, labels),
        start=scores(labels) if ends else None,
        end=scores(labels) if ends else None,
        allowed=allowed,
    )
