"""Viterbi with many labels, of which those that cannot be on the best path are left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit import chain
from crfkit.chain import Potentials
from crfkit.chain.inference import decode_flat


def with_every_label(p: Potentials, threads: int = 1) -> np.ndarray:
    """With transitions given step by step, of which no label is left out."""
    steps = int(np.maximum(p.lengths - 1, 0).sum())
    pairwise = np.broadcast_to(p.pairwise, (steps, *p.pairwise.shape))
    return decode_flat(Potentials(p.unary, pairwise, p.start, p.end, p.allowed, p.offsets), threads)


def sequential(p: Potentials) -> list[np.ndarray]:
    """The textbook's loop."""
    out = []
    assert p.offsets is not None
    for begin, end in zip(p.offsets[:-1], p.offsets[1:], strict=True):
        if begin == end:
            out.append(np.empty(0, int))
            continue
        v, back = p.unary[begin].astype(float), []
        for t in range(begin + 1, end):
            scores = v[:, None] + p.pairwise
            back.append(scores.argmax(0))
            v = scores.max(0) + p.unary[t]
        path = [int(v.argmax())]
        for b in reversed(back):
            path.append(int(b[path[-1]]))
        out.append(np.array(path[::-1]))
    return out


def potentials(seed: int, sharp: float, dtype: type, whole: bool, forbidden: float) -> Potentials:
    """140 labels, 100 tokens; ``whole`` numbers give ties."""
    rng = np.random.default_rng(seed)
    unary, pairwise = sharp * rng.normal(size=(100, 140)), rng.normal(size=(140, 140))
    if whole:
        unary, pairwise = np.round(unary), np.round(pairwise)
    ban = rng.random((140, 140)) < forbidden
    ban[:, 0] = ban[0] = False
    pairwise[ban] = -np.inf
    return Potentials(unary.astype(dtype), pairwise.astype(dtype), offsets=[0, 40, 41, 41, 80, 100])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.3, 3.0, 10.0, 100.0]),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
    st.sampled_from([0.0, 0.001, 0.3]),
)
def test_the_same_path_number_by_number(seed: int, sharp: float, dtype: type, whole: bool, forbidden: float) -> None:
    p = potentials(seed, sharp, dtype, whole, forbidden)
    np.testing.assert_array_equal(np.concatenate(chain.decode(p, 2)), with_every_label(p))


@pytest.mark.parametrize("sharp", [1.0, 30.0])
def test_against_a_plain_loop(sharp: float) -> None:
    p = potentials(1, sharp, np.float64, whole=False, forbidden=0.0)
    for ours, theirs in zip(chain.decode(p), sequential(p), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_where_nothing_is_allowed() -> None:
    p = potentials(2, 30.0, np.float64, whole=False, forbidden=0.0)
    unary = p.unary.copy()
    unary[50] = -np.inf
    with pytest.raises(ValueError, match="sequence 3"):
        chain.decode(Potentials(unary, p.pairwise, offsets=p.offsets))
