"""What training minimises."""

from __future__ import annotations

from math import sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.chain.beams import Beam
from crfkit.chain.constraints import Constraints
from crfkit.data.dataset import Dataset, Layout

__all__ = ["LikelihoodObjective", "Objective"]

Vector = NDArray[np.float64]


class Objective(Protocol):
    """A smooth function of a weight vector: all that an optimiser sees."""

    @property
    def size(self) -> int:
        """Number of weights."""
        ...

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w; the gradient is written into ``out`` if given."""
        ...


class LikelihoodObjective:
    r"""Penalised negative log-likelihood of a labelled data set under a linear-chain CRF.

    .. math::

        f(w) = -\sum_s \omega_s \log p_w(y^{(s)} \mid x^{(s)}) + c_2 \lVert w \rVert^2, \qquad
        \log p_w(y \mid x) = s_w(x, y) - \log Z_w(x)

    Its gradient is the expected minus the observed count of every feature, plus :math:`2 c_2 w`.

    Parameters
    ----------
    layout : Layout
        The weights, [size].
    data : Dataset
        S sequences, N tokens.
    labels : int32 array [N]
    c2 : float
        Coefficient of the squared norm, without a half, as in CRFsuite.
    weights : float64 array [S], optional
        Weights of the sequences.
    constraints : Constraints, optional
        What is forbidden has score minus infinity, here as in decoding.
    dtype : numpy dtype
        Precision of the lattices; sums over the data are in double precision either way.
    n_jobs : int, optional
        Threads; the result does not depend on them.
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
        self.n_tokens = self._n_block_tokens = data.n_tokens
        self.c2 = float(c2)
        self.threads = resolve_threads(n_jobs)
        single = np.dtype(dtype) == np.float32
        #: relative size of the rounding errors in the value, for line searches
        self.noise = 3e-8 if single else 1e-13
        native = _core.ObjectiveF32 if single else _core.ObjectiveF64
        scores = None if constraints is None else constraints.as_scores()
        self._native = native(layout.native, data.native, labels, weights, scores, self.threads)

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.layout.size

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        w = self._vector("w", w)
        gradient = np.empty(self.size) if out is None else out
        return self._native.value_and_grad(w, self.c2, gradient, self.threads), gradient

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        r"""The Hessian at w times v, exactly, without forming it.

        .. math::

            \nabla^2 f(w)\, v = \sum_s \omega_s \operatorname{Cov}_{p_w(y \mid x^{(s)})}\big(F(x^{(s)}, y), R_v(y)\big)
            + 2 c_2 v, \qquad R_v(y) = v \cdot F(x^{(s)}, y)

        R is a sum over tokens and transitions, so the covariance takes one more pass over the lattice, O(T L^2).
        """
        out = np.empty(self.size)
        self._native.hessian_product(self._vector("w", w), self._vector("v", v), self.c2, out, self.threads)
        return out

    def _vector(self, name: str, x: Vector) -> Vector:
        x = np.ascontiguousarray(x, dtype=np.float64)
        if x.shape != (self.size,):
            raise ValueError(f"{name!r} must have shape ({self.size},), got {x.shape}")
        return x

    @property
    def n_blocks(self) -> int:
        """Number of blocks that the fully labelled sequences are cut into."""
        return self._native.n_blocks

    def block_size(self, block: int) -> tuple[int, int]:
        """Tokens and sequences of a block."""
        return self._native.block_size(block)

    def block_value_and_grad(self, w: Vector, block: int, beams: bool) -> tuple[float, Vector]:
        """Unpenalised value and gradient of one block, inside of the chosen beams or with all labels."""
        gradient = np.empty(self.size)
        return self._native.block_value_and_grad(w, block, beams, gradient, self.threads), gradient

    def block_scale(self, block: int) -> float:
        """How many times a block's tokens are those of all blocks."""
        return self._n_block_tokens / max(self.block_size(block)[0], 1)

    def estimate(self, w: Vector) -> float:
        """The objective with all labels, as the first block tells it."""
        value = self.block_value_and_grad(w, 0, beams=False)[0]
        return value * self.block_scale(0) + self.c2 * _core.dot(w, w)

    def choose_beams(self, w: Vector, beam: Beam, grow: bool = False) -> tuple[float, int, float]:
        """Lets value and gradient look only at beams of labels that are chosen at w.

        The gold labels are always in the beams.

        Parameters
        ----------
        w : float64 array of shape (size,)
        beam : MinDivergence, FixedSize or Threshold
        grow : bool
            Labels that were in the beams before stay in them.

        Returns
        -------
        tuple of float, int and float
            Mean and largest size, and the mean that the criterion alone would give.
        """
        tokens, labels, largest, fresh = self._native.choose_beams(w, beam.core(), grow, self.threads)
        return labels / max(tokens, 1), largest, fresh / max(tokens, 1)

    def beam_sizes(self, w: Vector, beam: Beam, block: int) -> tuple[float, float]:
        """Mean and root mean square of the sizes of the beams that a block would get at w."""
        tokens, labels, squares = self._native.beam_sizes(w, block, beam.core(), self.threads)
        return labels / max(tokens, 1), sqrt(squares / max(tokens, 1))

    def drop_beams(self) -> None:
        """All labels again."""
        self._native.drop_beams()
