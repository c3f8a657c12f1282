"""Beams: inference over the few labels of each step that matter."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit import _core
from crfkit.base.shown import Record
from crfkit.base.threads import resolve_threads
from crfkit.chain.potentials import Potentials

Form = Literal["frozen", "smoothed", "paper"]


@dataclass(frozen=True)
class _Rule:
    """A beam: its name, and numbers of which ints are at least 1 and others at least 0."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for f in fields(self):
            value, whole = getattr(self, f.name), f.type == "int"
            good = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
            if not good or not whole <= value < (2**31 if whole else np.inf):
                rule = "an int >= 1" if whole else "a number >= 0"
                raise ValueError(f"{f.name!r} of {type(self).__name__} must be {rule}, got {value!r}")

    def text(self) -> str:
        """As :func:`as_beam` reads it."""
        numbers = (f"{x:g}" if isinstance(x, float) else str(x) for x in vars(self).values())
        return ":".join([self.name, *numbers])


@dataclass(frozen=True)
class MinDivergence(_Rule):
    r"""The fewest labels whose renormalised belief is within a divergence of the whole belief.

    A belief p cut down to the labels I and renormalised, q, has :math:`KL(q \| p) = -\log \sum_{i \in I} p_i`; so these
    are the largest labels until they hold :math:`e^{-\epsilon}` of the belief.

    Parameters
    ----------
    epsilon : float
        Largest divergence per step, in nats.
    min_size : int
        Labels kept in any case.

    Examples
    --------
    >>> import numpy as np
    >>> from crfkit import chain
    >>> p = chain.Potentials(np.log([[0.6, 0.3, 0.1]]), np.zeros((3, 3)))
    >>> chain.marginals(p, beam=MinDivergence(0.2)).labels
    array([0, 1], dtype=int32)
    """

    name = "min-divergence"
    epsilon: float
    min_size: int = 1

    def core(self) -> tuple[str, float, int]:
        """Kind, amount and size, as the core takes them."""
        return "min_divergence", float(self.epsilon), int(self.min_size)


@dataclass(frozen=True)
class FixedSize(_Rule):
    """The ``n`` labels of largest belief.

    Examples
    --------
    >>> FixedSize(20).core()
    ('fixed_size', 0.0, 20)
    """

    name = "fixed"
    n: int

    def core(self) -> tuple[str, float, int]:
        """Kind, amount and size, as the core takes them."""
        return "fixed_size", 0.0, int(self.n)


@dataclass(frozen=True)
class Threshold(_Rule):
    """The labels whose log-belief is within ``delta`` nats of the largest.

    Examples
    --------
    >>> Threshold(6.0).core()
    ('threshold', 6.0, 1)
    """

    name = "threshold"
    delta: float

    def core(self) -> tuple[str, float, int]:
        """Kind, amount and size, as the core takes them."""
        return "threshold", float(self.delta), 1


@dataclass(frozen=True)
class Adaptive(_Rule):
    r"""For training: beams by divergence, tied to the optimiser so that training ends at the exact optimum.

    Training begins with all labels, goes over to beams of divergence :math:`\epsilon` as soon as they are small, and
    measures the gap :math:`\log Z - \log Z_{beam}` on a sample, exactly, after every step. Where the gap is no longer
    small beside what the steps gain, epsilon shrinks; when the search has converged within the beams, or they have
    become too large to pay, it goes on with all labels until it converges there.

    Parameters
    ----------
    epsilon : float
        Divergence to begin with.
    min_size : int
        Labels kept in any case.
    shrink : float
        Factor by which epsilon falls.
    share : float
        Largest gap allowed, as a fraction of what was gained since the beams were chosen.

    Examples
    --------
    >>> Adaptive()
    Adaptive(epsilon=0.01, min_size=2, shrink=0.25, share=1.0)
    """

    name = "adaptive"
    epsilon: float = 0.01
    min_size: int = 2
    shrink: float = 0.25
    share: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shrink >= 1:
            raise ValueError(f"'shrink' of Adaptive must be below 1, got {self.shrink!r}")


#: A rule that picks the labels of a step.
Beam = MinDivergence | FixedSize | Threshold


_RULES: dict[str, type[_Rule]] = {rule.name: rule for rule in (MinDivergence, FixedSize, Threshold, Adaptive)}


def as_beam(beam: Any) -> Any:
    """A beam from itself, from None, or from its text.

    ``min-divergence:EPSILON[:MIN_SIZE]``, ``fixed:N``, ``threshold:DELTA`` or ``adaptive[:EPSILON[:MIN_SIZE]]``.

    Examples
    --------
    >>> as_beam("min-divergence:0.01:4")
    MinDivergence(epsilon=0.01, min_size=4)
    >>> as_beam("adaptive").text()
    'adaptive:0.01:2:0.25:1'
    """
    if beam is None or isinstance(beam, _Rule):
        return beam
    if not isinstance(beam, str):
        raise ValueError(f"'beam' must be MinDivergence, FixedSize, Threshold, Adaptive or a str, got {beam!r}")
    name, *numbers = beam.split(":")
    if name not in _RULES:
        raise ValueError(f"'beam' must begin with {', '.join(_RULES)}, got {beam!r}")
    kinds = [int if f.type == "int" else float for f in fields(_RULES[name])]
    least = sum(f.default is MISSING for f in fields(_RULES[name]))
    if not least <= len(numbers) <= len(kinds):
        often = str(least) if least == len(kinds) else f"{least} to {len(kinds)}"
        raise ValueError(f"'beam' {name} takes {often} number{'s' * (often != '1')}, got {beam!r}")
    values = []
    for kind, x in zip(kinds, numbers, strict=False):
        try:
            values.append(kind(x))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"'beam' {beam!r}: {x!r} is not {what}") from None
    try:
        return _RULES[name](*values)
    except ValueError as e:
        raise ValueError(f"'beam' {beam!r}: {e}") from None


@dataclass(frozen=True, eq=False, repr=False)
class BeamMarginals(Record):
    """Probabilities within beams, and how the beams came out.

    Attributes
    ----------
    log_z : float, or float64 array [S] for a batch
        Logarithm of the mass of all labellings within the beams: a lower bound on the log-partition.
    ptr : int64 array [N + 1]
        First label of each token's beam in ``labels``.
    labels : int32 array [ptr[N]]
        The beams, ascending.
    probabilities : float64 array [ptr[N]]
        P(label at token), within the beams.
    edge_ptr, edge_probabilities : arrays
        The same of label pairs: for each step, beam times next beam.
    divergence : float64 array [N]
        Divergence spent at each step, -log of the share of belief that was kept.
    n_labels : int
    """

    log_z: Any
    ptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    probabilities: NDArray[np.float64]
    edge_ptr: NDArray[np.int64]
    edge_probabilities: NDArray[np.float64]
    divergence: NDArray[np.float64]
    n_labels: int
    offsets: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Labels in each token's beam, [N]."""
        return np.diff(self.ptr)

    @cached_property
    def nodes(self) -> NDArray[np.float64]:
        """The probabilities as an array [N, L], zero outside the beams."""
        out = np.zeros((len(self.ptr) - 1, self.n_labels))
        out[np.repeat(np.arange(len(out)), self.sizes), self.labels] = self.probabilities
        return out

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The pairs' probabilities as an array [E, L, L], zero outside the beams."""
        out = np.zeros((len(self.edge_ptr) - 1, self.n_labels, self.n_labels))
        inner = np.ones(len(self.ptr) - 1, bool)
        inner[self.offsets[1:][np.diff(self.offsets) > 0] - 1] = False
        for e, t in enumerate(np.flatnonzero(inner)):
            a = self.labels[self.ptr[t] : self.ptr[t + 1]]
            b = self.labels[self.ptr[t + 1] : self.ptr[t + 2]]
            block = self.edge_probabilities[self.edge_ptr[e] : self.edge_ptr[e + 1]]
            out[e][np.ix_(a, b)] = block.reshape(len(a), len(b))
        return out


def beam_marginals(
    p: Potentials, beam: Beam, keep: ArrayLike | None, form: Form, n_jobs: int | None
) -> tuple[NDArray[np.float64], BeamMarginals]:
    """Log masses [S], and the marginals; see :func:`crfkit.chain.marginals`."""
    if form not in ("frozen", "smoothed", "paper"):
        raise ValueError(f"'form' must be 'frozen', 'smoothed' or 'paper', got {form!r}")
    x = p.lattice
    # the paper's form has no way out of the precision it is given
    dtype = np.float64 if form == "paper" else x.unary.dtype
    kept = None if keep is None else np.ascontiguousarray(keep, np.int32)
    x = x._replace(unary=x.unary.astype(dtype, copy=False), pairwise=x.pairwise.astype(dtype, copy=False))
    found = _core.beam_sum_product(x, resolve_threads(n_jobs), beam.core(), kept, form)
    log_mass = found[0]
    log_z = log_mass if p.offsets is not None else float(log_mass[0])
    return log_mass, BeamMarginals(log_z, *found[1:], p.n_labels, x.offsets)


def as_rule(beam: Any, owner: str = "inference") -> Beam | None:
    """A beam for inference, as :func:`as_beam` takes it."""
    rule = as_beam(beam)
    if isinstance(rule, Adaptive):
        raise ValueError(f"'beam' of {owner} must not be Adaptive, which is for training")
    return rule  # type: ignore[no-any-return]


def beam_core(beam: Beam | None) -> tuple[str, float, int] | None:
    """A rule as the core takes it."""
    return None if beam is None else beam.core()


def beam_paths(
    p: Potentials, beam: Beam | None, k: int, n_jobs: int | None
) -> list[tuple[NDArray[np.int32], NDArray[np.float64]]]:
    """Best paths [k, T] and scores [k] of each sequence; within beams, if a rule for them is given."""
    count, path, score = _core.nbest(p.lattice, resolve_threads(n_jobs), beam_core(beam), min(k, 2**31 - 1))
    out = []
    at = first = 0
    for n, length in zip(count.tolist(), p.lengths.tolist(), strict=True):
        out.append((path[at : at + n * length].reshape(n, length), score[first : first + n]))
        at += n * length
        first += n
    return out
