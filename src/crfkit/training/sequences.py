"""The likelihood as a sum over sequences, for optimisers that look at a few of them at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.chain.beams import Adaptive, Beam, FixedSize, MinDivergence, beam_core
from crfkit.chain.constraints import Constraints
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import Sets, split_by_knowledge
from crfkit.data.sequences import rows_of
from crfkit.training.beams import BeamReport

__all__ = ["SequenceObjective"]

Vector = NDArray[np.float64]

_SAMPLE = 100  # sequences on which beams are compared with all labels
_FIRST = 32  # most labels in a beam in the first pass
_LEAST = 1e-7  # smaller divergences are those of all labels
_LARGE = 0.25  # beams with more than this part of the labels do not pay


class SequenceObjective:
    r"""Penalised negative log-likelihood, sequence by sequence.

    .. math::

        f(w) = \sum_s f_s(w) + c_2 \lVert w \rVert^2, \qquad
        f_s(w) = -\omega_s \log p_w(y^{(s)} \mid x^{(s)})

    for sequences whose labels are all known; with ``sets``, as for :class:`SemiSupervisedObjective`,
    :math:`f_s = \omega_s (\log Z - \log Z_{known})` for those known in part, and
    :math:`f_s = \eta\, \omega_s H_w(y \mid x^{(s)})` for those of which nothing is known.

    The core holds a weight vector of its own, which stochastic optimisers change in place; see
    :mod:`crfkit.training.stochastic`.

    Parameters
    ----------
    layout : Layout
        The weights, [size].
    data : Dataset
        S sequences, N tokens.
    labels : int32 array [N]
        With ``sets``, -1 where the label is not known for certain.
    sets : (int64 array [K], bool array [K, L]), optional
        Tokens with -1 of which something is known, and the labels they may have.
    entropy_weight : float
        Coefficient of the entropy of the sequences about which nothing is known; with 0 they are left out.
    entropy_per : {"sequence", "token"}
        Whether such a sequence counts with its entropy, or with that divided by its length.
    beam : MinDivergence, FixedSize, Threshold or Adaptive, optional
        Look at sequences whose labels are all known inside of beams of labels. They are chosen afresh whenever a
        sequence is met, by the messages of the beam before, and hold the gold label; for ``SGD`` and ``AdaGrad``.
        ``Adaptive`` ones become tighter when :meth:`review` finds that they hide more than a pass gained.
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
    >>> from crfkit.data.dataset import Dataset, Layout
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
        sets: Sets | None = None,
        entropy_weight: float = 0.0,
        entropy_per: Literal["sequence", "token"] = "sequence",
        beam: Beam | Adaptive | None = None,
        c2: float = 0.0,
        weights: Vector | None = None,
        constraints: Constraints | None = None,
        dtype: Any = np.float32,
        n_jobs: int | None = None,
    ) -> None:
        self.n_unlabelled = 0
        #: whether some labels are not known
        self.partial = sets is not None
        if sets is None:
            sets = (np.zeros(0, np.int64), np.zeros((0, layout.n_labels), bool))
        else:
            full, part, unknown = split_by_knowledge(data, labels, sets[0])
            self.n_unlabelled = len(unknown) if entropy_weight else 0
            # those without labels come last
            order = np.concatenate([np.sort(np.concatenate([full, part])), unknown[: self.n_unlabelled]])
            tokens, _ = rows_of(data.offsets, order)
            if weights is not None or (entropy_per == "token" and self.n_unlabelled):
                omega = np.ones(data.n_sequences) if weights is None else np.asarray(weights, np.float64)
                if entropy_per == "token":
                    omega = omega.copy()
                    omega[unknown] /= np.diff(data.offsets)[unknown]
                weights = omega[order]
            place = np.empty(len(labels), np.int64)
            place[tokens] = np.arange(len(tokens))
            moved = np.argsort(place[sets[0]])
            sets = (place[sets[0]][moved], sets[1][moved])
            data, labels = data.take(order), labels[tokens]
        self.layout = layout
        self.n_tokens = data.n_tokens
        self.n_labelled = data.n_sequences - self.n_unlabelled
        self.c2 = float(c2)
        #: sequences of a stream that came before these, and bear their share of the penalty
        self.seen = 0
        native = _core.SequencesF32 if np.dtype(dtype) == np.float32 else _core.SequencesF64
        scores = None if constraints is None else constraints.as_scores()
        self.native = native(
            layout.native,
            data.native,
            labels,
            sets[0],
            np.ascontiguousarray(sets[1]).view(np.uint8),
            weights,
            scores,
        )
        self.entropy_weight = float(entropy_weight)
        self.beam = beam
        self._rule: Beam | None = self._first_rule()
        self._chosen = 0
        self._most = layout.n_labels
        self._rest = 0  # passes with all labels, until beams are tried again
        self._use_beams()
        self._sample = np.arange(0, self.n_labelled, max(1, self.n_labelled // _SAMPLE))

    @property
    def entropy_weight(self) -> float:
        """Coefficient of the entropy; while it is 0, sequences without labels are left out."""
        return self.native.entropy_weight

    @entropy_weight.setter
    def entropy_weight(self, value: float) -> None:
        self.native.entropy_weight = value

    @property
    def n_sequences(self) -> int:
        """Sequences in use, numbered from 0."""
        return self.n_labelled + (self.n_unlabelled if self.entropy_weight else 0)

    def terms(self, total: float) -> dict[str, float]:
        """The parts of the losses of a pass, whose sum is given: likelihood and entropy, without coefficients."""
        if not self.partial:
            return {}
        entropy = self.native.entropy
        return {"likelihood": total - self.entropy_weight * entropy, "entropy": entropy}

    def _first_rule(self) -> Beam | None:
        beam = self.beam
        return MinDivergence(beam.epsilon, beam.min_size) if isinstance(beam, Adaptive) else beam

    def begin(self, w: Vector, seen: int = 0) -> None:
        """Begins training at w, with sequences of a stream that came before.

        From zero weights all labels look alike. Then beams have a limit, which doubles with every pass.
        """
        self.seen = seen
        self._chosen = self._rest = 0
        self._rule = self._first_rule()
        self.native.set_weights(w)
        self._most = self.layout.n_labels if w.any() else _FIRST
        self._use_beams()

    def _use_beams(self) -> None:
        self.native.set_beam(*beam_core(None if self._rest else self._rule), self._most)

    def review(self, gained: float) -> None:
        """After a pass that lowered the losses by so much: tightens adaptive beams that hide more than that."""
        self._chosen += 1
        tokens, labels, _ = self.native.tally
        if not isinstance(self._rule, FixedSize) and labels > _LARGE * self.layout.n_labels * tokens:
            self._rest = 3  # large beams cost more than all labels
        self._rest = max(0, self._rest - 1)
        whole = self._most >= self.layout.n_labels  # else the limit hides more than epsilon does
        if isinstance(self.beam, Adaptive) and isinstance(self._rule, MinDivergence) and whole and not self._rest:
            self._tighten(self.beam, self._rule, gained)
        self._most = min(2 * self._most, self.layout.n_labels)
        self._use_beams()

    def _tighten(self, beam: Adaptive, rule: MinDivergence, gained: float) -> None:
        scale = self.n_labelled / max(1, len(self._sample))
        if self._gap() * scale > beam.share * max(gained, 0.0):
            rule = replace(rule, epsilon=rule.epsilon * beam.shrink)
        self._rule = None if rule.epsilon < _LEAST else rule

    def measure(self, w: Vector) -> BeamReport | None:
        """How the beams stand at w, on a sample of the sequences; None without beams."""
        if self.beam is None:
            return None
        if self._rule is None or self._rest:
            return self._exact_report()
        self.native.set_weights(w)
        self._use_beams()
        inside, right = np.empty(self.size), np.empty(self.size)
        low = self.native.gradient(self._sample, inside)
        tokens, labels, largest = self.native.tally
        if not tokens:  # no sequence of the sample has all its labels
            return self._exact_report()
        self.native.set_beam(None)
        gap = max(self.native.gradient(self._sample, right) - low, 0.0)
        self._use_beams()
        norm = float(np.linalg.norm(right))
        return BeamReport(
            False,
            labels / tokens,
            largest,
            self._rule.epsilon if isinstance(self._rule, MinDivergence) else None,
            self._chosen,
            tokens,
            gap / tokens,
            float(np.exp(-gap / len(self._sample))),
            float(np.linalg.norm(right - inside)) / norm if norm else 0.0,
        )

    def _exact_report(self) -> BeamReport:
        return BeamReport(True, float(self.layout.n_labels), self.layout.n_labels, None, self._chosen)

    def _gap(self) -> float:
        """Log Z - log Z_beam, summed over the sample."""
        inside = self.native.loss(self._sample)
        self.native.set_beam(None)
        return self.native.loss(self._sample) - inside

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
        """The objective at w, with all labels; the core's weights are w from then on."""
        self.native.set_weights(w)
        self.native.set_beam(None)
        value = self.native.loss(np.arange(self.n_sequences)) + self.penalty(w)
        self._use_beams()
        return value

    def weights(self, averaged: bool = False) -> Vector:
        """The core's weights, or their mean over the steps so far if an optimiser keeps it."""
        w = np.empty(self.size)
        self.native.weights(averaged, w)
        return w
