"""The likelihood as a sum over sequences, for optimisers that look at a few of them at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.chain.constraints import Constraints
from crfkit.dataset import Dataset, Layout

__all__ = ["SequenceObjective"]

Vector = NDArray[np.float64]


class SequenceObjective:
    r"""Penalised negative log-likelihood, sequence by sequence.

    .. math::

        f(w) = \sum_s f_s(w) + c_2 \lVert w \rVert^2, \qquad
        f_s(w) = -\omega_s \log p_w(y^{(s)} \mid x^{(s)})

    The core holds a weight vector of its own, which stochastic optimisers change in place; see
    :mod:`crfkit.training.stochastic`.

    Parameters
    ----------
    layout : Layout
        The weights, [size].
    data : Dataset
        S sequences, N tokens.
    labels : int32 array [N]
    c2 : float
        Coefficient of the squared norm, without a half.
    weights : float64 array [S], optional
        Weights of the sequences.
    constraints : Constraints, optional
    dtype : numpy dtype
        Precision of the weights and of the lattices.
    n_jobs : int, optional
        Not used: steps are taken one after another.

    Examples
    --------
    >>> from crfkit.dataset import Dataset, Layout
    >>> data = Dataset(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 1], np.uint32))
    >>> labels = np.array([0, 1], np.int32)
    >>> f = SequenceObjective(Layout.build(data, labels, 2, (2, 0)), data, labels)
    >>> bool(np.isclose(f.value(np.zeros(f.size)), 2 * np.log(2)))
    True
    """

    def __init__(
        self,
        layout: Layout,
        data: Dataset,
        labels: NDArray[np.int32],
        *,
        c2: float = 0.0,
        weights: Vector | None = None,
        constraints: Constraints | None = None,
        dtype: Any = np.float32,
        n_jobs: int | None = None,
    ) -> None:
        self.layout = layout
        self.n_tokens = data.n_tokens
        self.n_sequences = data.n_sequences
        self.c2 = float(c2)
        #: sequences of a stream that came before these, and bear their share of the penalty
        self.seen = 0
        native = _core.SequencesF32 if np.dtype(dtype) == np.float32 else _core.SequencesF64
        scores = None if constraints is None else constraints.as_scores()
        self.native = native(
            layout.native,
            data.native,
            labels,
            weights,
            scores,
        )

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.layout.size

    @property
    def decay(self) -> float:
        r"""A sequence's share of the penalty's gradient: :math:`2 c_2 / S`, times w; S counts those seen before."""
        return 2 * self.c2 / max(1, self.seen + self.n_sequences)

    def penalty(self, w: Vector) -> float:
        r"""These sequences' part of :math:`c_2 \lVert w \rVert^2`."""
        return self.decay * self.n_sequences / 2 * _core.dot(w, w) if self.c2 else 0.0

    def value(self, w: Vector) -> float:
        """The objective at w; the core's weights are w from then on."""
        self.native.set_weights(w)
        return self.native.loss(np.arange(self.n_sequences)) + self.penalty(w)

    def weights(self, averaged: bool = False) -> Vector:
        """The core's weights, or their mean over the steps so far if an optimiser keeps it."""
        w = np.empty(self.size)
        self.native.weights(averaged, w)
        return w
