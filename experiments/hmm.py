"""The synthetic hidden Markov models of the sparse forward-backward paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def make_hmm(states: int, symbols: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Start, transition and emission probabilities.

    Transitions out of a state are Dirichlet(0.1). Three quarters of the states emit ten symbols of their own, the
    others all symbols nearly alike, Dirichlet(10^4).
    """
    start = rng.dirichlet(np.ones(states))
    steps = np.maximum(rng.dirichlet(np.full(states, 0.1), states), 1e-12)
    emission = rng.dirichlet(np.full(symbols, 1e4), states)
    for i in np.flatnonzero(rng.random(states) < 0.75):
        own = rng.choice(symbols, min(10, symbols), replace=False)
        emission[i] = 1e-12
        emission[i, own] = rng.dirichlet(np.ones(len(own)))
    return start, steps / steps.sum(1, keepdims=True), emission / emission.sum(1, keepdims=True)


def draw(hmm: tuple[Array, Array, Array], length: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """States and symbols of one sequence."""
    start, steps, emission = hmm
    cumulative = [np.cumsum(x, axis=-1) for x in (start, steps, emission)]

    def pick(row: Array) -> int:
        return int(min(np.searchsorted(row, rng.random() * row[-1]), len(row) - 1))

    states = [pick(cumulative[0])]
    for _ in range(length - 1):
        states.append(pick(cumulative[1][states[-1]]))
    return states, [pick(cumulative[2][s]) for s in states]


def potentials(hmm: tuple[Array, Array, Array], observed: list[list[int]], dtype: Any = np.float64) -> Any:
    """The posterior of the states of several sequences, as a batch."""
    from crfkit.chain import Potentials

    start, steps, emission = (np.log(x).astype(dtype) for x in hmm)
    offsets = np.cumsum([0, *map(len, observed)])
    flat = [x for sequence in observed for x in sequence]
    return Potentials(np.ascontiguousarray(emission.T[flat]), steps, start=start, offsets=offsets)
