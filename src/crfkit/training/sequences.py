"""The likelihood as a sum over sequences, for optimisers that use a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.checkpoints import State
from crfkit.chain.beams import Adaptive, Beam, FixedSize, MinDivergence, Threshold, beam_core
from crfkit.chain.ordered import MOST_LABELS, tuple_value
from crfkit.data.blocks import StoredDataset
from crfkit.data.sequences import rows_of
from crfkit.training.beams import BeamControl, BeamReport
from crfkit.training.objective import Objective, Problem

Vector = NDArray[np.float64]

_SAMPLE = 100  # sequences on which beams are compared with all labels
_MOST = 16  # labels in a beam by divergence or threshold: more take longer and teach no more
_FIRST = 32  # of those that end at the exact optimum, in the first pass
_LEAST = 1e-7  # smaller divergences are those of all labels
_LARGE = 0.25  # beams with more than this fraction of the labels do not pay


class SequenceObjective(Objective):
    r"""Penalised negative log-likelihood, sequence by sequence.

    .. math::

        f(w) = \sum_s f_s(w) + c_2 \lVert w \rVert^2, \qquad
        f_s(w) = -\omega_s \log p_w(y^{(s)} \mid x^{(s)})

    for sequences whose labels are all known; with ``hints`` in the problem, as for :class:`SemiSupervisedObjective`,
    :math:`f_s = \omega_s (\log Z - \log Z_{known})` for partly labelled ones, and
    :math:`f_s = \eta\, \omega_s H_w(y \mid x^{(s)})` for unlabelled ones.

    The core holds a weight vector of its own, which stochastic optimisers change in place.

    Parameters
    ----------
    problem : Problem
        ``dtype`` is the precision of the weights too; ``n_jobs`` is not used: steps are taken one after another.
    beam : MinDivergence, FixedSize, Threshold or Adaptive, optional
        Train on fully labelled sequences within beams of labels. They are chosen anew each time a sequence is visited,
        from the messages of the beam before, and always hold the gold label; for ``SGD`` and ``AdaGrad``. ``Adaptive``
        ones become tighter when :meth:`end_pass` finds that their gap exceeds what a pass gained.
    seen : int
        Number of earlier sequences of a stream: steps have shrunk accordingly, and the penalty is shared with them.

    Examples
    --------
    >>> from crfkit.data.dataset import Dataset, Layout
    >>> data = Dataset(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 1], np.uint32))
    >>> labels = np.array([0, 1], np.int32)
    >>> f = SequenceObjective(Problem(Layout.build(data, labels, 2, (2, 0)), data, labels))
    >>> bool(np.isclose(f.value(np.zeros(f.size)), 2 * np.log(2)))
    True
    """

    def __init__(self, problem: Problem, beam: Beam | Adaptive | None = None, *, seen: int = 0) -> None:
        self.layout = layout = problem.layout
        self.size = layout.size
        self.c2 = float(problem.c2)
        self.seen, self.ramp = seen, problem.entropy_ramp
        #: whether some labels are not known
        self.partial = problem.hints is not None
        data, labels, weights = problem.data, problem.labels, problem.weights
        if self.partial:
            full, part, unknown, omega = problem.split()
            self.n_unlabelled = len(unknown)
            # those without labels come last
            order = np.concatenate([np.sort(np.concatenate([full, part])), unknown])
            if weights is not None or (problem.entropy_per == "token" and self.n_unlabelled):
                weights = omega[order]
            rows, _ = rows_of(data.offsets, order)
            data, labels = data.take(order), labels[rows]
        self.n_tokens = data.n_tokens
        self.n_labelled = data.n_sequences - self.n_unlabelled
        native = _core.SequencesF32 if problem.is_single else _core.SequencesF64
        longer = layout.order, layout.class_of, layout.tuples, layout.tuple_first
        higher = (*longer, tuple_value(layout.n_labels))
        self.native: _core.SequencesF32
        self.windows: Windows | None = None
        if isinstance(data, StoredDataset) and data.window is not None and data.window < data.n_blocks:
            self.windows = Windows(data, labels, weights)
            make = partial(native, layout.native, constraints=problem.scores, higher=higher)
            self.native = WindowedSequences(self.windows, make)  # type: ignore[assignment]
        else:
            hints = np.zeros((0, layout.n_labels)) if problem.hints is None else problem.hints
            self.native = native(layout.native, data.native, labels, hints, weights, problem.scores, higher)
        self.entropy_weight = float(problem.entropy_weight)
        self.beam = beam
        self._control = BeamControl(beam, layout.n_labels)
        self._limit = self._largest()
        self._most = self._limit
        self._rest = 0  # passes with all labels, until beams are tried again
        self._use_beams()
        self._sample = np.arange(0, self.n_labelled, max(1, self.n_labelled // _SAMPLE))

    def _largest(self) -> int:
        """Maximum number of labels in a beam."""
        n = self.layout.n_labels
        if self.layout.order > 1:
            return min(n, MOST_LABELS[self.layout.order])
        return min(n, _MOST) if isinstance(self.beam, (MinDivergence, Threshold)) else n

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The sequences in use in a random order: all of them, or block by block within windows."""
        return rng.permutation(self.n_sequences) if self.windows is None else self.windows.order(rng)

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

    def terms_of(self, total: float) -> dict[str, float]:
        """The parts of the losses of the last pass, likelihood and, if it counts, entropy, without coefficients."""
        if not self.partial:
            return {}
        entropy = self.native.entropy
        likelihood = {"likelihood": total - self.entropy_weight * entropy}
        return likelihood | ({"entropy": entropy} if self.n_unlabelled else {})

    def begin(self, w: Vector) -> None:
        """Begins training at w.

        From zero weights all labels look alike. Then adaptive beams have a limit, which doubles with every pass.
        """
        self._rest = 0
        self._control.restart()
        self.native.set_weights(w)
        self._most = self._limit if w.any() else min(self._limit, _FIRST)
        self._use_beams()

    def _use_beams(self) -> None:
        self.native.set_beam(beam_core(None if self._rest else self._control.rule), self._most)

    def end_pass(self, fell: float) -> None:
        """After a pass that lowered the losses by ``fell``: tightens adaptive beams whose gap exceeds that."""
        control = self._control
        control.chosen += 1
        tokens, labels, largest = self.native.tally
        if self.beam is not None:
            exact = self._rest or control.rule is None or not tokens
            self.report = control.report() if exact else control.report(labels / tokens, largest)
        if (
            self._is_first
            and not isinstance(control.rule, FixedSize)
            and labels > _LARGE * self.layout.n_labels * tokens
        ):
            self._rest = 3  # large beams cost more than all labels
        self._rest = max(0, self._rest - 1)
        whole = self._most >= self.layout.n_labels  # else the limit hides more than epsilon does
        if isinstance(self.beam, Adaptive) and control.rule is not None and whole and not self._rest:
            scale = self.n_labelled / max(1, len(self._sample))
            control.tighten(self._gap() * scale, max(fell, 0.0))
            if control.epsilon is not None and control.epsilon < _LEAST:
                control.rule = None
        self._most = min(2 * self._most, self._limit)
        self._use_beams()

    @property
    def _is_first(self) -> bool:
        return self.layout.order == 1

    def state(self) -> State:
        """What the core has learned, and how the beams are chosen."""
        beams = {"most": self._most, "rest": self._rest, **self._control.state()}
        return {"core": self.native.state(), "beams": beams}

    def restore(self, state: State) -> None:
        """The core and the beams as they were after a pass."""
        self.native.restore(state["core"])
        self._control.restore(state["beams"])
        self._most, self._rest = state["beams"]["most"], state["beams"]["rest"]
        self._use_beams()

    def measure(self, w: Vector) -> BeamReport | None:
        """Statistics of the beams at w, on a sample of the sequences; None without beams."""
        control = self._control
        if self.beam is None:
            return None
        if control.rule is None or self._rest:
            return control.report()
        self.native.set_weights(w)
        self._use_beams()
        if not self._is_first:  # all labels would take too long
            self.native.loss(self._sample)
            tokens, labels, largest = self.native.tally
            return control.report(labels / max(tokens, 1), largest)
        inside, right = np.empty(self.size), np.empty(self.size)
        low = self.native.gradient(self._sample, inside)
        tokens, labels, largest = self.native.tally
        if not tokens:  # no sequence of the sample has all its labels
            return control.report()
        self.native.set_beam(None)
        gap = self.native.gradient(self._sample, right) - low
        self._use_beams()
        return control.measured(control.report(labels / tokens, largest), gap, tokens, len(self._sample), right, inside)

    def _gap(self) -> float:
        """Log Z - log Z_beam, summed over the sample."""
        inside = self.native.loss(self._sample)
        self.native.set_beam(None)
        return self.native.loss(self._sample) - inside

    @property
    def decay(self) -> float:
        r"""A sequence's share of the penalty's gradient: :math:`2 c_2 / S`, times w; S counts those seen before."""
        return 2 * self.c2 / max(1, self.seen + self.n_sequences)

    def penalty(self, w: Vector) -> float:
        r"""These sequences' part of :math:`c_2 \lVert w \rVert^2`."""
        return self.decay * self.n_sequences / 2 * _core.dot(w, w) if self.c2 else 0.0

    def value_and_grad(self, w: Vector, out: Vector | None = None) -> tuple[float, Vector]:
        """Value and gradient at w, with all labels (of a higher order, within beams if there are any).

        The core's weights are w from then on.
        """
        gradient = np.empty(self.size) if out is None else out
        value = self._exactly(w, lambda order: self.native.gradient(order, gradient))
        gradient += self.decay * self.n_sequences * w
        return value, gradient

    def value(self, w: Vector) -> float:
        """The objective at w, with all labels; the core's weights are w from then on."""
        return self._exactly(w, self.native.loss)

    def _exactly(self, w: Vector, loss: Callable[[NDArray[np.int64]], float]) -> float:
        self.native.set_weights(w)
        if self._is_first:
            self.native.set_beam(None)
        value = loss(np.arange(self.n_sequences)) + self.penalty(w)
        self._use_beams()
        return value

    def weights(self, averaged: bool = False) -> Vector:
        """The core's weights, or their mean over the steps so far if an optimiser keeps it."""
        w = np.empty(self.size)
        self.native.weights(averaged, w)
        return w


class Windows:
    """Sequences of a block file, some blocks at a time.

    Parameters
    ----------
    data : StoredDataset
        ``window`` is the number of blocks.
    labels : int32 array [N]
    weights : float64 array [S], optional
    """

    def __init__(self, data: StoredDataset, labels: NDArray[np.int32], weights: Vector | None) -> None:
        self.data, self.labels, self.weights = data, labels, weights
        assert data.window is not None
        self.tokens = data.window * int(np.diff(data.offsets[data.sequences]).max(initial=1))

    def order(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Blocks in random order, and within each window of them sequences in random order."""
        window, starts = self.data.window, self.data.sequences
        assert window is not None
        blocks, out, first = rng.permutation(self.data.n_blocks), np.empty(self.data.n_sequences, np.int64), 0
        for k in range(0, len(blocks), window):
            inside = np.concatenate([np.arange(starts[b], starts[b + 1]) for b in blocks[k : k + window]])
            out[first : first + len(inside)] = rng.permutation(inside)
            first += len(inside)
        return out

    def cut(self, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Parts of an order that have at most the tokens of a window."""
        offsets, first = self.data.offsets, 0
        while first < len(order):
            some = order[first : first + self.tokens]
            ends = np.cumsum(offsets[some + 1] - offsets[some])
            many = max(1, int(np.searchsorted(ends, self.tokens, side="right")))
            yield some[:many]
            first += many

    def load(self, sequences: NDArray[np.int64]) -> tuple[Any, ...]:
        """Data, labels, no hints, and weights of some sequences in rising order, as the core takes them."""
        rows, _ = rows_of(self.data.offsets, sequences)
        weights = None if self.weights is None else np.ascontiguousarray(self.weights[sequences])
        return self.data.gather(sequences).native, self.labels[rows], np.zeros((0, 1)), weights


class WindowedSequences:
    """The core's sequences, of which it holds a window at a time; passes are made window by window."""

    _PASSES = ("sgd", "adagrad", "smd", "perceptron", "passive_aggressive", "arow", "loss")

    def __init__(self, windows: Windows, make: Callable[..., Any]) -> None:
        self._windows = windows
        data, labels, hints, weights = windows.load(np.arange(int(windows.data.sequences[1])))
        self._native = make(data=data, labels=labels, hints=hints, seq_weight=weights)
        self.mistakes = 0.0

    def __getattr__(self, name: str) -> Any:
        if name == "sag":
            raise ValueError("'window' of Blocks must be None for the algorithm 'sag', which needs all sequences")
        return partial(self._run, name) if name in self._PASSES else getattr(self._native, name)

    @property
    def entropy_weight(self) -> float:
        """Of sequences without labels, of which there are none here."""
        return float(self._native.entropy_weight)

    @entropy_weight.setter
    def entropy_weight(self, value: float) -> None:
        self._native.entropy_weight = value

    def _parts(self, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Loads one window after another, and gives the order within each."""
        for part in self._windows.cut(order):
            present = np.unique(part)
            self._native.replace(*self._windows.load(present))
            yield np.searchsorted(present, part)

    def _run(self, name: str, order: NDArray[np.int64], *settings: Any) -> float:
        total, wrong = 0.0, 0.0
        for part in self._parts(order):
            total += getattr(self._native, name)(part, *settings)
            wrong += self._native.mistakes
        self.mistakes = wrong
        return total

    def gradient(self, order: NDArray[np.int64], g: Vector) -> float:
        """The losses of sequences, and their gradient."""
        g[:] = 0
        total, own = 0.0, np.empty_like(g)
        for part in self._parts(order):
            total += self._native.gradient(part, own)
            g += own
        return total
