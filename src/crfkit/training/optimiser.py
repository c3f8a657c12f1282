"""What all optimisers share: how they are called, what they support, what they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import Checkpoint, State
from crfkit.base.parameters import check_number
from crfkit.base.shown import Record
from crfkit.training.beams import BeamReport
from crfkit.training.objective import as_objective

Vector = NDArray[np.float64]

#: Why training ended: the gradient vanished (or nothing was left to do), the objective improved by less than ``tol``,
#: rounding errors hide any improvement, fresh beams bring none; a limit, the callback, held-out scores, the keyboard.
Reason = Literal[
    "converged", "tolerance", "precision", "beams", "max_iter", "callback", "early_stopping", "interrupted"
]

#: The message of a search that was interrupted.
INTERRUPTED = "interrupted; the best weights so far are kept"
#: What a training that ends at ``max_iter`` tells its caller.
SHORTFALL = "training {}, before it had converged: raise 'max_iter', or 'tol' if this is close enough"


@dataclass(frozen=True)
class Progress:
    """State of training after an iteration.

    Attributes
    ----------
    iteration : int
    value : float
        Objective with all regularisation terms.
    gradient_norm : float
        Euclidean norm of the gradient (with ``c1``, of the pseudo-gradient).
    active : int
        Number of nonzero weights.
    step : float
        Length of the step along the search direction.
    evaluations : int
        Objective evaluations so far.
    seconds : float
        Time since training began.
    scores : mapping of str to float
        Held-out scores, if there is held-out data.
    terms : mapping of str to float
        Parts of the objective, if it has several: ``"likelihood"``, the negative log-likelihood of the known labels,
        and, with ``entropy_weight``, ``"entropy"`` without its weight; 0 in the run without the entropy.
    beams : BeamReport or None
        Statistics of the beams, without those measured on a sample; None without beams.
    """

    iteration: int
    value: float
    gradient_norm: float
    active: int
    step: float
    evaluations: int
    seconds: float
    scores: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)
    beams: BeamReport | None = None

    def __str__(self) -> str:
        more = "".join(f"  {k} {v:.4f}" for k, v in {**self.terms, **self.scores}.items())
        return (
            f"{self.iteration:5d}  objective {self.value:.4f}  |g| {self.gradient_norm:.4g}  active {self.active}  "
            f"{self.seconds:.2f}s{more}"
        )


#: Called after every iteration with the progress and the weights; returning True stops training.
Callback = Callable[[Progress, Vector], bool | None]


def lent(callback: Callback, w: Vector) -> Vector:
    """The weights for a callback: a copy, unless it says by an attribute ``borrows`` that it only looks at them."""
    return w if getattr(callback, "borrows", False) else w.copy()


@dataclass(frozen=True, eq=False, repr=False)
class Result(Record):
    """What an optimiser found.

    Attributes
    ----------
    w : float64 array
        The best point seen.
    value : float
        Objective there, with all regularisation terms.
    iterations, evaluations : int
    reason : str
        Why it stopped: ``"converged"``, ``"tolerance"``, ``"precision"`` or ``"beams"`` at an optimum; ``"max_iter"``,
        ``"callback"``, ``"early_stopping"`` or ``"interrupted"`` before.
    message : str
        The same in words.
    beams : BeamReport or None
        Statistics of the beams at the end, if there were any.
    """

    w: Vector
    value: float
    iterations: int
    evaluations: int
    reason: Reason
    message: str
    beams: BeamReport | None = None

    @property
    def converged(self) -> bool:
        """Whether it stopped at an optimum."""
        return self.reason in ("converged", "tolerance", "precision", "beams")

    def state(self) -> State:
        """The same for a checkpoint."""
        return {**vars(self), "beams": None if self.beams is None else vars(self.beams)}

    @classmethod
    def of_state(cls, state: State, size: int) -> Result:
        """What a checkpoint of this many weights holds."""
        try:
            beams = state["beams"]
            out = cls(**{**state, "beams": None if beams is None else BeamReport(**beams)})
            counts = isinstance(out.iterations, int) and isinstance(out.evaluations, int)
            words = isinstance(out.message, str) and out.reason in get_args(Reason)
            if np.shape(out.w) != (size,) or out.w.dtype != np.float64 or not counts or not words:
                raise ValueError("its parts do not fit together")
            return replace(out, value=float(out.value))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise ValueError(f"not the result of a training run ({e})") from e


@dataclass(frozen=True)
class Settings:
    """Settings for every optimiser; see :meth:`Algorithm.minimize`."""

    c1: float
    max_iter: int | None
    tol: float
    random_state: int | np.random.Generator | None
    n_jobs: int | None
    callback: Callback | None
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Algorithm(ABC):
    """An optimiser with its own parameters; use one of :data:`~crfkit.training.ALGORITHMS`.

    A new one defines :meth:`run`, says what it ``supports``, and gets a name in :data:`crfkit.training.ALGORITHMS`.
    """

    #: What it supports: parameters of the estimators, ``partial_fit``, weights and unknown labels of sequences.
    supports: ClassVar[frozenset[str]] = frozenset({"entropy_weight", "sample_weight", "unknown_labels"})
    #: Whether it goes sequence by sequence, and minimises a :class:`~crfkit.training.SequenceObjective`.
    sequential: ClassVar[bool] = False
    #: Working space of each thread, in bytes for each pair of labels.
    bytes_per_pair: ClassVar[int] = 0
    #: Of one that goes sequence by sequence: arrays of the weights' shape that it keeps in single precision.
    vectors: ClassVar[int] = 0
    #: Of one that goes sequence by sequence: whether it keeps the marginals of every sequence.
    keeps_marginals: ClassVar[bool] = False
    # Rules of its parameters, as check_number of base/parameters.py takes them.
    rules: ClassVar[dict[str, dict[str, Any]]] = {}

    @property
    def bytes_per_weight(self) -> int:
        """Memory that the search takes for each weight."""
        return 68

    def check(self) -> None:
        """Raises if a parameter is out of range."""
        for name, rule in self.rules.items():
            check_number(self, name, getattr(self, name), **rule)

    def shortfall(self, result: Result, max_iter: int | None, tol: float) -> str | None:
        """The warning for a search that ``max_iter`` ended before it converged; None for no warning."""
        if result.reason != "max_iter" or not max_iter:
            return None
        return SHORTFALL.format(result.message)

    def minimize(
        self,
        objective: Any,
        w0: Vector | None = None,
        *,
        c1: float = 0.0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        """Minimises an objective.

        Parameters
        ----------
        objective : Objective
            The smooth part, or any object with ``size`` and ``value_and_grad``; stochastic optimisers need a
            SequenceObjective.
        w0 : float64 array [size], optional
            Where to begin; zeros by default.
        c1 : float
            Coefficient of L1 regularisation.
        max_iter : int, optional
            Maximum number of iterations, or of passes over the data.
        tol : float
            Relative improvement, or gradient, below which to stop.
        random_state : int or Generator, optional
            For the order of the sequences; 0 by default.
        n_jobs : int, optional
            Threads; -1 or None for all cores.
        callback : callable, optional
            Called as ``callback(progress, w)`` after every iteration; returning True stops.
        checkpoint : Checkpoint, optional
            Where the state of the search is kept.

        Returns
        -------
        Result
            The best point seen, even if interrupted from the keyboard.
        """
        self.check()
        if c1 and "c1" not in self.supports:
            raise ValueError(f"'c1' must be 0 for {type(self).__name__}, got {c1!r}")
        f = as_objective(objective)
        settings = Settings(c1, max_iter, tol, random_state, n_jobs, callback, checkpoint or Checkpoint())
        return self.run(f, np.zeros(f.size) if w0 is None else np.array(w0, np.float64), settings)

    @abstractmethod
    def run(self, objective: Any, w: Vector, settings: Settings) -> Result:
        """Minimises an objective from w on, which may be changed in place."""
