"""Viterbi with many labels, of which those that cannot be on the best path are left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfkit import CRF, chain
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


def test_perceptrons_leave_out_dominated_labels_and_learn_the_same() -> None:
    """Against a perceptron of a few lines, whose Viterbi looks at all labels."""
    rng = np.random.default_rng(2)
    n = 140  # enough labels to leave some out
    y = [rng.integers(0, n, size=7).tolist() for _ in range(60)]
    X = [[[f"w{label}", f"v{label % 9}"] for label in labels] for labels in y]
    crf = CRF(None, algorithm="ap", start_end=False, dtype="float64", max_iter=3, tol=0, random_state=0).fit(X, y)
    labels = {label: k for k, label in enumerate(crf.model_.labels)}
    names = {name: k for k, name in enumerate(crf.model_.encoder.names())}
    seen = np.zeros((len(names), len(labels)), bool)
    for x, row in zip(X, y, strict=True):
        for token, label in zip(x, row, strict=True):
            seen[[names[a] for a in token], labels[label]] = True
    u, a = np.zeros(seen.shape), np.zeros((len(labels), len(labels)))
    mean_u, mean_a, steps = np.zeros_like(u), np.zeros_like(a), 0
    order = np.random.default_rng(0)
    for _ in range(3):
        for s in order.permutation(len(X)):
            scores = np.array([u[[names[k] for k in token]].sum(axis=0) for token in X[s]])
            found = chain.decode(chain.Potentials(scores, a)).tolist()
            gold = [labels[label] for label in y[s]]
            for path, sign in ((gold, 1.0), (found, -1.0)):
                for t, (token, j) in enumerate(zip(X[s], path, strict=True)):
                    rows = [names[k] for k in token]
                    u[rows, j] += sign * seen[rows, j]
                    if t:
                        a[path[t - 1], j] += sign
            mean_u, mean_a, steps = mean_u + u, mean_a + a, steps + 1
    np.testing.assert_allclose(crf.model_.transition_table(), mean_a / steps, atol=1e-9)
    state = {(w.attribute, w.label): w.weight for w in crf.model_.state_weights()}
    for (name, label), weight in state.items():
        assert weight == pytest.approx(mean_u[names[name], labels[label]] / steps, abs=1e-9)
