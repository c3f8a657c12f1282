"""What training minimises."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import State
from crfkit.base.messages import log
from crfkit.base.threads import ordered, resolve_threads
from crfkit.chain.beams import Beam
from crfkit.chain.constraints import Constraints
from crfkit.data.blocks import StoredDataset
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import Hints, split_by_knowledge
from crfkit.data.sequences import rows_of

if TYPE_CHECKING:
    from crfkit.training.beams import BeamReport
    from crfkit.training.expectations import Criteria

Vector = NDArray[np.float64]
#: Relative rounding errors of a value whose lattices are in single precision.
SINGLE_NOISE = 3e-8


@dataclass(frozen=True, eq=False)
class Change:
    """How an objective changed itself between two steps.

    Attributes
    ----------
    at : float64 array [size]
        Where to continue.
    way : {"on", "back", "over"}
        Whether that is where the step ended (``"on"``) or began (``"back"``); or training ends there (``"over"``).
    """

    at: Vector
    way: Literal["on", "back", "over"] = "on"


class Objective(ABC):
    """A smooth function of a weight vector; optimisers see nothing else.

    Subclasses set ``size`` and define :meth:`value_and_grad`; everything else is optional.

    Attributes
    ----------
    size : int
        Number of weights.
    noise : float
        Relative size of the rounding errors in the value, for line searches.
    n_unlabelled : int
        Sequences whose entropy is a part of the objective.
    entropy_weight : float
        Current coefficient of that part.
    """

    size: int
    noise: float = 1e-13
    n_unlabelled: int = 0
    entropy_weight: float = 0.0
    report: BeamReport | None = None  # how beams stand at present

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.size} weights>"

    @abstractmethod
    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w; the gradient is written into ``out`` if given."""

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian at w times v."""
        raise TypeError(f"{type(self).__name__} has no Hessian products")

    def vectors(self, memory: int, threads: int) -> Any:
        """Where L-BFGS keeps its vectors, for an objective that is not evaluated on the host; None for arrays there."""
        return None

    @property
    def terms(self) -> Mapping[str, float]:
        """Parts of the objective at the last evaluation, if it has several."""
        return {}

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        """After a step from ``old`` to ``new``: how the objective changed itself, None if it did not."""
        return None

    def growing(self, within: Objective) -> Objective:
        """What is evaluated, ``within`` beams or not, with an entropy that grows; most grow by themselves, or not."""
        return within

    def state(self) -> State:
        """What a checkpoint must hold besides the weights, for an objective that changes itself."""
        return {}

    def restore(self, state: State) -> None:  # noqa: B027 - most have nothing to restore
        """The objective as it was; it has been made as then, with the same first weights."""

    def better(self, w: Vector) -> Vector:
        """Where to end a search that stopped early at w."""
        return w

    def measure(self, w: Vector) -> BeamReport | None:
        """Statistics of the beams at w; None without beams."""
        return None


class _Plain(Objective):
    """Wraps an object that is not an Objective, but has ``size`` and ``value_and_grad``."""

    def __init__(self, given: Any) -> None:
        self.given, self.size, self.noise = given, given.size, getattr(given, "noise", Objective.noise)

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        return self.given.value_and_grad(w, out)  # type: ignore[no-any-return]

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return self.given.hessian_product(w, v)  # type: ignore[no-any-return]


def as_objective(given: Any) -> Objective:
    """An objective, with the defaults of :class:`Objective` for what is not one."""
    return given if isinstance(given, Objective) else _Plain(given)


@dataclass(frozen=True, eq=False)
class Problem:
    """A learning problem: labelled data, the layout of the weights, and the penalties.

    Attributes
    ----------
    layout : Layout
        The weights, [size].
    data : Dataset
        S sequences, N tokens.
    labels : int32 array [N]
        With ``hints``, -1 where the label is unknown, and -2 - k where hint k describes it.
    hints : float64 array [K, L], optional
        What is known about labels, as logarithms of their weights. None if all labels are known.
    weights : float64 array [S], optional
        Weights of the sequences.
    constraints : Constraints, optional
        Forbidden transitions have a score of minus infinity, in training as in decoding.
    c2 : float
        Coefficient of L2 regularisation: of the squared norm, without a half, as in CRFsuite.
    entropy_weight : float
        Coefficient of the entropy of unlabelled sequences; with 0 they are left out.
    entropy_per : {"sequence", "token"}
        Whether an unlabelled sequence counts with its entropy, or with its entropy divided by its length.
    entropy_ramp : int
        Iterations, or passes over the data, over which the coefficient grows to its full size; 0 or 1 for none.
    dtype : numpy dtype
        Precision of the lattices; sums over the data are in double precision either way.
    n_jobs : int, optional
        Threads; the result does not depend on them.
    criteria : Criteria, optional
        Expected label distributions of unlabelled sequences.
    """

    layout: Layout
    data: Dataset
    labels: NDArray[np.int32]
    hints: Hints | None = None
    weights: Vector | None = None
    constraints: Constraints | None = None
    c2: float = 0.0
    entropy_weight: float = 0.0
    entropy_per: str = "sequence"
    entropy_ramp: int = 0
    dtype: Any = np.float32
    n_jobs: int | None = None
    criteria: Criteria | None = None

    def take(self, sequences: NDArray[np.int64]) -> Problem:
        """The same with some of the sequences, whose labels are all known."""
        return replace(
            self,
            data=self.data.take(sequences),
            labels=self.labels[rows_of(self.data.offsets, sequences)[0]],
            hints=None,
            weights=None if self.weights is None else np.ascontiguousarray(self.weights[sequences]),
        )

    @property
    def is_single(self) -> bool:
        """Whether lattices are in single precision."""
        return bool(np.dtype(self.dtype) == np.float32)

    @property
    def scores(self) -> Vector | None:
        """The constraints, as the core takes them."""
        return None if self.constraints is None else self.constraints.as_scores()

    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Vector]:
        """Sequences that are fully labelled, partly labelled, and unlabelled (if they count); weights of all."""
        full, some, unknown = split_by_knowledge(self.data, self.labels)
        omega = np.ones(self.data.n_sequences) if self.weights is None else np.array(self.weights, np.float64)
        if self.entropy_per == "token":
            omega[unknown] /= np.diff(self.data.offsets)[unknown]
        return full, some, unknown if self.entropy_weight else unknown[:0], omega


class LikelihoodObjective(Objective):
    r"""Penalised negative log-likelihood of a labelled data set under a linear-chain CRF.

    .. math::

        f(w) = -\sum_s \omega_s \log p_w(y^{(s)} \mid x^{(s)}) + c_2 \lVert w \rVert^2, \qquad
        \log p_w(y \mid x) = s_w(x, y) - \log Z_w(x)

    Its gradient is the expected minus the observed count of every feature, plus :math:`2 c_2 w`.

    Parameters
    ----------
    problem : Problem
        All labels must be known.
    """

    packed: NDArray[np.uint8] | None = None  # blocks of a file in the form that training needs, mapped

    def __init__(self, problem: Problem) -> None:
        self.layout = problem.layout
        self.size = problem.layout.size
        self.n_tokens = self._n_block_tokens = problem.data.n_tokens
        self.c2 = float(problem.c2)
        self.threads = resolve_threads(problem.n_jobs)
        self.noise = SINGLE_NOISE if problem.is_single else 1e-13
        native = _core.ObjectiveF32 if problem.is_single else _core.ObjectiveF64
        parts = problem.data.stored or problem.data.native, problem.labels, problem.weights, problem.scores
        self._native = native(problem.layout.native, *parts, self.threads)
        if isinstance(problem.data, StoredDataset):
            self._pack(problem.data.folder)

    def _pack(self, folder: str) -> None:
        """Has the core make each block of a file once, into a file without a name that goes when we go.

        Making a block takes about as long as half an evaluation of it. Where there is no room they are made every time.
        """
        offsets = [0]
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                for made in ordered(self._native.packed_block, iter(range(self.n_blocks)), self.threads):
                    file.write(made.data)
                    offsets.append(offsets[-1] + len(made))
                file.flush()
                if offsets[-1]:
                    self.packed = np.memmap(file, np.uint8, "r")
                    self._native.use_packed(self.packed, np.array(offsets))
        except OSError:
            log.info("not enough space in %s for blocks in training form: every evaluation will rebuild them", folder)

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w."""
        w = self._vector("w", w)
        gradient = np.empty(self.size) if out is None else out
        return self._native.value_and_grad(w, self.c2, gradient, self.threads), gradient

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        r"""The Hessian at w times v, exactly, without forming it.

        .. math::

            \nabla^2 f(w)\, v = \sum_s \omega_s \operatorname{Cov}_{p_w(y \mid x^{(s)})}(F(x^{(s)}, y), R_v(y))
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
        """Unpenalised value and gradient of one block, within the chosen beams or with all labels."""
        gradient = np.empty(self.size)
        return self._native.block_value_and_grad(w, block, beams, gradient, self.threads), gradient

    def block_scale(self, block: int) -> float:
        """How many times a block's tokens are those of all blocks."""
        return self._n_block_tokens / max(self.block_size(block)[0], 1)

    def estimate(self, w: Vector) -> float:
        """The objective with all labels, estimated from the first block."""
        value = self.block_value_and_grad(w, 0, beams=False)[0]
        return value * self.block_scale(0) + self.c2 * _core.dot(w, w)

    def choose_beams(self, w: Vector, beam: Beam, grow: bool = False) -> tuple[float, int, float]:
        """Restricts value and gradient to beams of labels chosen at w.

        The gold labels are always in the beams.

        Parameters
        ----------
        w : float64 array of shape (size,)
            Weights.
        beam : MinDivergence, FixedSize or Threshold
            The rule that chooses beams.
        grow : bool
            Whether labels that are in the beams already stay in them.

        Returns
        -------
        tuple of float, int and float
            Mean and largest size, and the mean that the criterion alone would give.
        """
        tokens, labels, largest, fresh = self._native.choose_beams(w, beam.core(), grow, self.threads)
        return labels / max(tokens, 1), largest, fresh / max(tokens, 1)

    def beam_sizes(self, w: Vector, beam: Beam, block: int) -> tuple[float, float]:
        """Mean and root mean square of the sizes of the beams that a block would get at w.

        :meta private:
        """
        tokens, labels, squares = self._native.beam_sizes(w, block, beam.core(), self.threads)
        return labels / max(tokens, 1), sqrt(squares / max(tokens, 1))

    def drop_beams(self) -> None:
        """All labels again."""
        self._native.drop_beams()

    def beams(self) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]:
        """The labels in the beams, token after token in the order of the blocks, and where those of each begin."""
        return self._native.beams()

    def restore_beams(self, w: Vector, beam: Beam, labels: NDArray[np.uint16], ptr: NDArray[np.uint32]) -> None:
        """The beams that were last chosen at w, which grow by nothing."""
        self._native.set_beams(labels, ptr)
        self.choose_beams(w, beam, grow=True)
