"""Training within beams, and the control of their error against the exact objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import State
from crfkit.base.shown import Record
from crfkit.chain.beams import Adaptive, Beam, MinDivergence
from crfkit.training.objective import Change, LikelihoodObjective, Objective

Vector = NDArray[np.float64]

_PATIENCE = 10  # choices in a row without gain before training ends
_FIRST = 6  # iterations with all labels, from zero weights
_GROWTH = 2.0  # beams may be this many times as large as if they were chosen afresh


@dataclass(frozen=True, repr=False)
class BeamReport(Record):
    """Statistics of the beams; the last four are measured exactly on a sample of the sequences.

    Attributes
    ----------
    exact : bool
        Whether all labels are currently in use.
    average, largest : float, int
        Mean and maximum number of labels in the beams.
    epsilon : float or None
        Currently allowed divergence, for beams that are limited by divergence.
    chosen : int
        How often beams have been chosen so far.
    tokens : int
        Tokens in the sample.
    gap : float
        log Z - log Z_beam per token.
    mass : float
        Fraction of the probability mass within the beams, per sequence (geometric mean).
    gradient_error : float
        Norm of the error of the sample's gradient, relative to that gradient.
    """

    exact: bool
    average: float
    largest: int
    epsilon: float | None
    chosen: int
    tokens: int = 0
    gap: float = 0.0
    mass: float = 1.0
    gradient_error: float = 0.0


class BeamControl:
    """The current rule for choosing beams, how it becomes tighter, and how beams are reported."""

    def __init__(self, beam: Beam | Adaptive | None, n_labels: int) -> None:
        self.beam, self.n_labels = beam, n_labels
        self.restart()

    def restart(self) -> None:
        """Back to the first rule."""
        beam = self.beam
        self.rule: Beam | None = MinDivergence(beam.epsilon, beam.min_size) if isinstance(beam, Adaptive) else beam
        self.chosen = 0

    @property
    def epsilon(self) -> float | None:
        """Currently allowed divergence, for beams that are limited by divergence."""
        return self.rule.epsilon if isinstance(self.rule, MinDivergence) else None

    def state(self) -> State:
        """For a checkpoint."""
        return {"epsilon": self.epsilon, "chosen": self.chosen, "beams": self.rule is not None}

    def restore(self, state: State) -> None:
        """The rule as it was."""
        if isinstance(self.rule, MinDivergence) and state["epsilon"] is not None:
            self.rule = replace(self.rule, epsilon=state["epsilon"])
        self.rule = self.rule if state["beams"] else None
        self.chosen = state["chosen"]

    def tighten(self, hidden: float = np.inf, gained: float = 0.0) -> None:
        """Shrinks the divergence of adaptive beams whose gap exceeds their share of what was gained."""
        beam = self.beam
        if isinstance(beam, Adaptive) and isinstance(self.rule, MinDivergence) and hidden > beam.share * gained:
            self.rule = replace(self.rule, epsilon=self.rule.epsilon * beam.shrink)

    def report(self, average: float | None = None, largest: int = 0) -> BeamReport:
        """Beams of these sizes; all labels without."""
        if average is None:
            return BeamReport(True, float(self.n_labels), self.n_labels, None, self.chosen)
        return BeamReport(False, average, largest, self.epsilon, self.chosen)

    @staticmethod
    def measured(
        report: BeamReport, gap: float, tokens: int, sequences: int, right: Vector, inside: Vector
    ) -> BeamReport:
        """The report with what a sample says: log Z - log Z_beam, and the gradient with all labels and within beams."""
        norm = float(np.linalg.norm(right))
        return replace(
            report,
            tokens=tokens,
            gap=max(gap, 0.0) / max(tokens, 1),
            mass=float(np.exp(-max(gap, 0.0) / max(sequences, 1))),
            gradient_error=float(np.linalg.norm(right - inside)) / norm if norm else 0.0,
        )


class BeamObjective(Objective):
    """The likelihood within beams that are chosen from time to time, and kept in between.

    The beams depend on the weights. If they were chosen at every evaluation, value and gradient would not belong to a
    single function. So they are chosen at one point of the search and kept, and a line search sees one function. As
    the weights move away, labels outside the beams may come to matter. So after every step the gap
    :math:`\\log Z - \\log Z_{beam}` is measured exactly on a sample. Once it has doubled, or has cancelled what the
    steps gained, new beams are chosen; :class:`~crfkit.chain.Adaptive` ones are chosen larger, and a step that only
    lost labels is undone. Training ends when the exact objective, estimated on a part of the data, no longer falls.

    Parameters
    ----------
    exact : LikelihoodObjective
        The objective with all labels.
    beam : MinDivergence, FixedSize, Threshold or Adaptive
        The rule that chooses beams.
    w : float64 array
        Where the first beams are chosen.
    hold : int
        Initial maximum number of iterations between two choices.
    """

    def __init__(self, exact: LikelihoodObjective, beam: Beam | Adaptive, w: Vector, hold: int = 8) -> None:
        self.exact = exact
        self.beam = beam
        self.hold = hold
        self.size = exact.size
        self.noise = exact.noise
        self._control = BeamControl(beam, exact.layout.n_labels)
        self._age = 0
        self._block = 0
        self._gap = 0.0  # of the sample, when the beams were chosen
        self._ended = 0
        self._fell = 0.0  # since the beams were chosen
        self._wait = 0  # iterations until the next try, while all labels are in use
        self._pause = 2  # how many after the next try that fails
        self._final = False  # nothing changes from now on
        self._grow = False  # whether the next beams keep the labels of the present ones
        self._best = np.inf  # exact objective by the first block, where beams were chosen
        self._at = w  # where that was
        self._where = w  # where the present beams were chosen
        self._stale = 0  # choices in a row that did not improve on it
        self.report: BeamReport = self._control.report()
        if w.any():
            self._choose(w)
        else:  # all labels look alike: no reason to choose one over another
            self._wait = _FIRST

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w, within the beams."""
        return self.exact.value_and_grad(w, out)

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """The Hessian with all labels, times v."""
        return self.exact.hessian_product(w, v)

    @property
    def terms(self) -> Mapping[str, float]:
        """Of the exact objective."""
        return self.exact.terms

    @property
    def uses_beams(self) -> bool:
        """Whether beams are currently in use."""
        return not self.report.exact

    def review(self, old: Vector, new: Vector, fell: float, converged: bool) -> Change | None:
        """After a step from ``old`` to ``new``: chooses new beams if it is time; ends when new ones gain nothing.

        :meta private:
        """
        if self._final:
            return None
        if not self.uses_beams:
            self._wait -= 1
            if self._wait > 0 and not converged:
                return None
            if converged and isinstance(self.beam, Adaptive):
                self._final = True
                return None
            self._choose(new)
            return Change(new) if self.uses_beams else None
        self._age += 1
        self._fell += fell
        gap = self._sample_gap(new)
        scale = self.exact.block_scale(self._block)
        if converged:
            return self._end(new)
        if self._stale >= _PATIENCE and not isinstance(self.beam, Adaptive):
            self._choose(self._at)
            return Change(self._at, "over")
        if (gap - self._gap) * scale > max(self._fell, 0.0):
            # what the steps gained, they gained by losing labels
            back = self._age == 1 and isinstance(self.beam, Adaptive)
            self._control.tighten()
            self._choose(old if back else new)
            return Change(old, "back") if back else Change(new)
        if self._age >= self.hold * (1 + self.report.chosen // 4) or gap > 2 * self._gap:
            self._control.tighten(gap * scale, self._fell)
            self._choose(new)
            return Change(new)
        return None

    _kept: ClassVar = (
        *("_age", "_block", "_gap", "_ended", "_fell", "_wait", "_pause", "_final", "_grow", "_best", "_at", "_stale"),
        "_where",
    )

    def state(self) -> State:
        """How the beams were chosen, and which they are."""
        kept = {name: getattr(self, name) for name in self._kept}
        beams = self.exact.beams() if self.uses_beams else None
        return {**kept, "control": self._control.state(), "report": vars(self.report), "beams": beams}

    def restore(self, state: State) -> None:
        """The beams as they were."""
        for name in self._kept:
            setattr(self, name, state[name])
        self._control.restore(state["control"])
        self.report = BeamReport(**state["report"])
        if state["beams"] is None:
            self.exact.drop_beams()
        elif self._control.rule is not None:
            self.exact.restore_beams(self._where, self._control.rule, *state["beams"])

    def better(self, w: Vector) -> Vector:
        """W, or the point where beams were chosen, if the exact objective, estimated on a sample, is lower there.

        For searches that end early: values within beams that were chosen at different points are not comparable.
        """
        if not self.uses_beams or not self.exact.estimate(w) > self._best:
            return w
        self._choose(self._at)
        return self._at

    def measure(self, w: Vector, blocks: int = 4) -> BeamReport:
        """The report, with what a sample of the data says at w."""
        if not self.uses_beams:
            return self.report
        gap, tokens, sequences = 0.0, 0, 0
        right, inside = np.zeros(self.size), np.zeros(self.size)
        for block in np.unique(np.linspace(0, self.exact.n_blocks - 1, blocks).astype(int)).tolist():
            a, exact = self.exact.block_value_and_grad(w, block, beams=False)
            b, within = self.exact.block_value_and_grad(w, block, beams=True)
            gap += a - b
            right += exact
            inside += within
            size = self.exact.block_size(block)
            tokens, sequences = tokens + size[0], sequences + size[1]
        self.report = self._control.measured(self.report, gap, tokens, sequences, right, inside)
        return self.report

    def _end(self, w: Vector) -> Change | None:
        """The search converged in the present beams."""
        self._ended += 1
        if isinstance(self.beam, Adaptive):
            self._use_all()
            self._final = True
            return Change(w)
        if self._age == 0 or self._ended > 3:
            return None
        self._choose(w)
        return Change(w)

    def _choose(self, w: Vector) -> None:
        rule = self._control.rule
        assert rule is not None
        if isinstance(rule, MinDivergence):
            # the exact kernels take many labels at a time: a pass over beams of which this is the root mean square
            # takes about 20 (size / n_labels)^2 of an exact one, and choosing and watching them must be paid for too
            _, size = self.exact.beam_sizes(w, rule, self._block)
            if size > max(self._control.n_labels / 8, 1.5 * rule.min_size):
                self._use_all()
                self.report = replace(self.report, epsilon=rule.epsilon)
                return
        average, largest, fresh = self.exact.choose_beams(w, rule, grow=self._grow)
        self._where = w.copy()
        # labels that have risen once stay watched, until they are as many as those that matter now
        self._grow = average < _GROWTH * fresh
        self._control.chosen += 1
        self.report = self._control.report(average, largest)
        self._age = 0
        self._fell = 0.0
        value = self.exact.estimate(w)
        self._stale = 0 if value < self._best * (1 - 1e-4) else self._stale + 1
        if value < self._best:
            self._best, self._at = value, w.copy()
        self._block = (self._block + 1) % self.exact.n_blocks
        self._gap = self._sample_gap(w)

    def _use_all(self) -> None:
        self.exact.drop_beams()
        self._grow = False
        self.report = self._control.report()
        self._wait = self._pause
        self._pause *= 2

    def _sample_gap(self, w: Vector) -> float:
        """Log Z - log Z_beam of the block at hand."""
        exact, _ = self.exact.block_value_and_grad(w, self._block, beams=False)
        inside, _ = self.exact.block_value_and_grad(w, self._block, beams=True)
        return max(exact - inside, 0.0)


def within_beams(objective: Objective, beam: Beam | Adaptive | None, w: Vector) -> Objective:
    """A likelihood within beams, chosen at w for the first time; any other objective as it is."""
    if beam is None or not isinstance(objective, LikelihoodObjective) or not objective.n_blocks:
        return objective
    return BeamObjective(objective, beam, w)
