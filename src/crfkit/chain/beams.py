"""Beams: inference over the few labels that matter at each step."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True)
class _Rule:
    """A beam: its name, and its numbers; ints are at least 1, others at least 0."""

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
        return ":".join([self.name, *(str(x).removesuffix(".0") for x in vars(self).values())])


@dataclass(frozen=True)
class MinDivergence(_Rule):
    r"""The fewest labels whose renormalised belief is within a divergence of the whole belief.

    A belief p restricted to the labels I and renormalised, q, has :math:`KL(q \| p) = -\log \sum_{i \in I} p_i`. So
    the beam takes the most probable labels until they hold :math:`e^{-\epsilon}` of the belief.

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
    r"""For training: divergence beams that adapt to the optimiser, so that training ends at the exact optimum.

    Training begins with all labels, switches to beams of divergence :math:`\epsilon` as soon as they are small, and
    measures the gap :math:`\log Z - \log Z_{beam}` on a sample, exactly, after every step. When the gap is no longer
    small compared with what the steps gain, epsilon shrinks. When the search has converged within the beams, or they
    have become too large to pay off, it continues with all labels until it converges there.

    Parameters
    ----------
    epsilon : float
        Initial divergence.
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
    """A beam from a string; beams and None are returned as they are.

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


def as_rule(beam: Any, owner: str = "inference") -> Beam | None:
    """A beam for inference, as :func:`as_beam` takes it."""
    rule = as_beam(beam)
    if isinstance(rule, Adaptive):
        raise ValueError(f"'beam' of {owner} must not be Adaptive, which is for training")
    return rule  # type: ignore[no-any-return]


def beam_core(beam: Beam | str | None) -> tuple[str, float, int] | None:
    """A beam for inference as the core takes it."""
    rule = as_rule(beam)
    return None if rule is None else rule.core()
