"""Optimisers that take a step after every sequence, or after a few.

All of them take a :class:`~crfkit.training.SequenceObjective`, visit its sequences in a random order, call the
callback after every pass, and return a :class:`~crfkit.training.Result`. The same ``random_state`` gives the same
weights.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.checkpoints import State
from crfkit.base.interrupts import is_leaving
from crfkit.base.messages import counted
from crfkit.training.optimiser import INTERRUPTED, Algorithm, Progress, Reason, Result, Settings, lent
from crfkit.training.sequences import SequenceObjective

Vector = NDArray[np.float64]
Order = NDArray[np.int64]
Pass = Callable[[Order, int], float]
if TYPE_CHECKING:  # numpy.random comes with the first generator
    Rng = np.random.Generator

_POSITIVE: dict[str, Any] = {"low": 0, "strict": True}
_COUNT: dict[str, Any] = {"low": 1, "integer": True}


def _falling(objective: SequenceObjective, limit: int) -> Callable[[int], float]:
    """Factors of the steps of the passes: from one, or less later in a stream, linearly to zero after the last."""
    n = max(1, objective.n_sequences)
    first = (n / (objective.seen + n)) ** 0.5
    return lambda p: first * (1 - p / limit)


def _outcome(objective: SequenceObjective, w: Vector, sample: Order, go: Callable[[], object]) -> float:
    """The objective of a sample once ``go`` has changed the core's weights from w on; infinite if they blew up."""
    objective.native.set_weights(w)
    try:
        go()
        moved = objective.weights()
        value = objective.native.loss(sample) + objective.decay * len(sample) / 2 * float(moved @ moved)
    except ValueError:  # no labelling has a finite score; if that is so from w on, training says so
        return np.inf
    return value if np.isfinite(moved).all() and np.isfinite(value) else np.inf


@dataclass(frozen=True)
class Stochastic(Algorithm):
    """What the stochastic optimisers share; use one of its subclasses."""

    #: Passes over the data if the caller sets no limit.
    passes: ClassVar[int] = 50
    #: Whether it goes to the minimum of the penalised likelihood.
    convex: ClassVar[bool] = True
    sequential: ClassVar[bool] = True
    supports: ClassVar = Algorithm.supports | {"partial_fit", "window"}
    vectors: ClassVar[int] = 4

    @property
    def bytes_per_weight(self) -> int:
        """Of the results of passes, and of the places of weights in the core."""
        return 26

    def run(self, objective: SequenceObjective, w: Vector, settings: Settings) -> Result:
        """Makes passes over the sequences until a limit is reached.

        Stops when the losses of five passes differ by less than the fraction ``tol``. The value in Progress sums the
        losses at the time each sequence was visited; that of the result is the objective at the weights found, or the
        losses of the last pass if there is no objective.
        """
        sparse = {"beam": objective.beam is not None, "order": objective.layout.order > 1}
        for feature, wanted in sparse.items():
            if wanted and feature not in self.supports:
                raise ValueError(f"{type(self).__name__} does not support {feature}s")
        tol, callback = settings.tol, settings.callback
        rng = np.random.default_rng(0 if settings.random_state is None else settings.random_state)
        began = time.perf_counter()
        limit = self.passes if settings.max_iter is None else settings.max_iter
        objective.begin(w)
        done, begun = 0, False
        reason: Reason = "max_iter"
        message = f"stopped after {counted(limit, 'pass')}"
        losses: list[float] = []
        entropy_weight = objective.entropy_weight
        ramp = objective.ramp if entropy_weight and objective.n_unlabelled else 0
        try:
            go = self.prepare(objective, w, rng, limit)
            begun = True
            keep = settings.checkpoint

            def search() -> State:
                rest = {"rng": rng.bit_generator.state, "objective": objective.state()}
                return {"done": done, "losses": losses, **rest}

            if saved := keep.part("search", search):
                with keep.restoring():
                    losses, rng.bit_generator.state = saved["losses"], saved["rng"]
                    objective.restore(saved["objective"])
                done = len(losses)
                w = objective.weights(self.averaged)
            while done < limit:
                objective.entropy_weight = entropy_weight * min(1.0, (done + 1) / max(ramp, 1))
                total = go(objective.order(rng), done)
                done += 1
                w = objective.weights(self.averaged)
                if not np.isfinite(total) or not np.isfinite(w).all():
                    raise ValueError(f"training diverged in pass {done}: use a smaller step")
                value = total + (objective.penalty(w) if self.convex else 0.0)
                losses.append(value)
                terms = objective.terms_of(total)
                objective.end_pass(losses[-2] - value if done > 1 else np.inf)
                if callback is not None:
                    counts = int(np.count_nonzero(w)), 0.0, done, time.perf_counter() - began
                    progress = Progress(done, value, float("nan"), *counts, terms=terms, beams=objective.report)
                    if callback(progress, lent(callback, w)):
                        reason, message = "callback", "the callback asked to stop"
                        break
                last = losses[max(ramp - 1, 0) :][-5:]
                if tol and len(last) == 5 and max(last) - min(last) <= tol * abs(value):
                    reason, message = "tolerance", f"the losses changed by less than {tol:g} over 5 passes"
                    break
                keep.tick()
            objective.entropy_weight = entropy_weight
            # the likelihood is no goal of a perceptron, and takes a pass of its own
            final = objective.value(w) if self.convex else losses[-1] if losses else 0.0
        except KeyboardInterrupt:
            w = objective.weights(self.averaged) if begun else w
            objective.entropy_weight = entropy_weight
            exact = self.convex and not is_leaving()  # the objective takes a pass of its own
            final = objective.value(w) if exact else losses[-1] if losses else float("nan")
            reason, message = "interrupted", INTERRUPTED
        finally:
            objective.entropy_weight = entropy_weight
        return Result(w, final, done, done, reason, message)

    def some_passes(
        self, objective: SequenceObjective, w: Vector, done: int, many: int, limit: int, seed: int
    ) -> tuple[Vector, float]:
        """Weights after ``many`` more passes from w on, and the losses of the last one.

        Steps shrink as if ``done`` of ``limit`` passes had come before, of which nothing else is remembered: the same
        call gives the same weights.
        """
        n, c2, zero = objective.n_sequences, objective.c2, np.zeros(objective.size)
        objective.seen, objective.c2 = done * n, c2 * (done + 1)  # a sequence's share of the penalty stays the same
        try:
            objective.begin(zero)
            go = self.prepare(objective, zero, np.random.default_rng(seed), limit)
            objective.begin(w)
            rng, total = np.random.default_rng([seed, done]), 0.0
            for k in range(many):
                total = go(rng.permutation(n), k)
            found = objective.weights(self.averaged)
            share = objective.decay * n / 2 if self.convex else 0.0
            return found, total + share * float(found @ found)
        finally:
            objective.seen, objective.c2 = 0, c2

    def shortfall(self, result: Result, max_iter: int | None, tol: float) -> str | None:
        """As in scikit-learn's SGD and perceptron: none if ``tol`` is 0, nor after the default number of passes."""
        return super().shortfall(result, max_iter, tol) if tol else None

    @property
    def averaged(self) -> bool:
        """Whether the mean of the weights is the result."""
        return False

    @abstractmethod
    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """A function that makes one of at most ``limit`` passes, in a given order, and gives the sum of the losses.

        It is also given how many passes came before, and has no memory of its own: that is all in the core.
        """


@dataclass(frozen=True)
class SGD(Stochastic):
    r"""Stochastic gradient descent with a calibrated step size and averaged weights.

    .. math::

        w \leftarrow (1 + \eta_k \lambda b)^{-1}\, w - \eta_k \sum_{s \in B_k} \nabla f_s(w), \qquad
        \eta_k = \eta_0 (1 + \eta_0 \lambda k)^{-p}, \quad \lambda = 2 c_2 / S

    where k counts sequences. The penalty is one multiplication, since the core keeps w as a number times a vector. With
    ``average``, p is 3/4 and the result is a mean of the weights (Polyak and Ruppert, as in Bottou's and Xu's averaged
    SGD). The mean begins after the first pass, and anew after the 15th, 31st, 63rd, ... so that it forgets the start.
    Without ``average``, p is 1.

    Parameters
    ----------
    learning_rate : float, optional
        Initial step size. By default it is calibrated on a sample of the sequences: the power of two that lowers their
        objective most in one pass.
    batch_size : int, default=1
        Sequences per step.
    average : bool, default=True
        Return the mean of the weights over the steps instead of the last weights.
    calibration_size : int, default=300
        Sequences that the step is calibrated on.

    Examples
    --------
    >>> from crfkit import CRF
    >>> from crfkit.training import SGD
    >>> X, y = [["a", "b"], ["b"]] * 10, [["A", "B"], ["B"]] * 10
    >>> CRF(algorithm=SGD(batch_size=2), c2=0.1).fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    learning_rate: float | None = None
    batch_size: int = 1
    average: bool = True
    calibration_size: int = 300

    supports: ClassVar = Stochastic.supports | {"beam", "order"}
    vectors: ClassVar[int] = 2

    rules: ClassVar = {
        "learning_rate": _POSITIVE | {"optional": True},
        "batch_size": _COUNT,
        "calibration_size": _COUNT,
    }

    @property
    def averaged(self) -> bool:
        """Whether the mean of the weights is the result."""
        return self.average

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native, decay = objective.native, objective.decay
        learning_rate = self.learning_rate or self.calibrate(objective, w, rng)
        power = 0.75 if self.average else 1.0

        def run(order: Order, past: int) -> float:
            mean = self.average and (past > 0 or objective.seen > 0)
            # the pass, counted from 1, in which the mean was begun last, and with it a count of steps
            anew = 1 << (past + 1).bit_length() - 1 if mean and past >= 15 else 1
            if past and anew == past + 1:
                native.set_weights(objective.weights())
            before = objective.seen + (anew - 1) * len(order)
            return native.sgd(order, learning_rate, decay, max(decay, 1e-9), power, before, self.batch_size, mean)

        return run

    def calibrate(self, objective: SequenceObjective, w: Vector, rng: Rng) -> float:
        """The power of two that, as the first step, lowers the objective of a sample most."""
        native, decay = objective.native, objective.decay
        sample = rng.permutation(objective.n_sequences)[: self.calibration_size]

        def after(eta: float) -> float:
            step = partial(native.sgd, sample, eta, decay, max(decay, 1e-9), 1.0, 0, self.batch_size, False)
            return _outcome(objective, w, sample, step)

        eta = 0.125 / self.batch_size
        best = after(eta)
        for factor in (2.0, 0.5):
            tried = False
            while 1e-8 < eta * factor < 1e3:
                value = after(eta * factor)
                if not value < best:
                    break
                eta, best, tried = eta * factor, value, True
            if tried:
                break
        native.set_weights(w)
        return eta


@dataclass(frozen=True)
class AdaGrad(Stochastic):
    r"""AdaGrad: a step size per weight (Duchi, Hazan and Singer).

    .. math::

        h \leftarrow h + g^2, \qquad w \leftarrow w - \eta_p\, g / \sqrt h, \qquad
        \eta_p = \eta_0 \left(1 - \frac{p - 1}{P}\right)

    in pass p of P. The decay of the penalty uses the same metric, and is applied lazily, when a weight is next needed.
    Initially h is :math:`(2 c_2 \eta_0)^2`, so that no weight decays to zero between two sequences that use it. If
    training starts from nonzero weights, unless in a stream, steps are a tenth of these.

    Parameters
    ----------
    learning_rate : float, default=1
        First step.
    batch_size : int, default=1
        Sequences per step.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]] * 10, [["A", "B"], ["B"]] * 10
    >>> CRF(algorithm="adagrad").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    learning_rate: float = 1.0
    batch_size: int = 1

    passes: ClassVar[int] = 60
    supports: ClassVar = Stochastic.supports | {"beam", "order"}
    vectors: ClassVar[int] = 5

    rules: ClassVar = {"learning_rate": _POSITIVE, "batch_size": _COUNT}

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native, decay, steps = objective.native, objective.decay, _falling(objective, limit)
        # its steps are as large as ever where all gradients are small: near an optimum it must walk, not run
        eta = self.learning_rate * (0.1 if w.any() and not objective.seen else 1.0)
        floor = (eta * decay * objective.n_sequences) ** 2
        return lambda order, past: native.adagrad(order, eta * steps(past), decay, floor, self.batch_size)


@dataclass(frozen=True)
class SMD(Stochastic):
    r"""Stochastic meta-descent: gradient descent on the step sizes too (Schraudolph; Vishwanathan and others).

    .. math::

        \eta \leftarrow \eta \cdot \max(\tfrac12, 1 - \mu\, g \cdot v), \qquad
        w \leftarrow w - \eta \cdot g, \qquad
        v \leftarrow \lambda v - \eta \cdot (g + \lambda H v)

    where v is how w depends on the logarithms of the steps, and H v an exact product with the mini-batch's Hessian,
    without the curvature of the entropy of unlabelled sequences. In pass p of P all steps are multiplied by
    :math:`1 - (p - 1) / P`.

    Parameters
    ----------
    learning_rate : float, optional
        Initial step size of a weight that one token uses; if n tokens use it, divided by the fourth root of n. By
        default it is calibrated on a sample of the sequences: half the power of two that lowers their objective most in
        three passes.
    mu : float, default=0.02
        Learning rate of the step sizes. A step size at most doubles at a time.
    lam : float, default=1
        Decay of v; 1 keeps its whole history.
    batch_size : int, optional
        Sequences per step; by default a hundredth of them, at least 4 and at most 32.
    calibration_size : int, default=300
        Sequences that the step is calibrated on.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]] * 10, [["A", "B"], ["B"]] * 10
    >>> CRF(algorithm="smd").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    learning_rate: float | None = None
    mu: float = 0.02
    lam: float = 1.0
    batch_size: int | None = None
    calibration_size: int = 300

    passes: ClassVar[int] = 120
    vectors: ClassVar[int] = 6

    rules: ClassVar = {
        "learning_rate": _POSITIVE | {"optional": True},
        "mu": {"low": 0},
        "lam": {"low": 0},
        "batch_size": _COUNT | {"optional": True},
        "calibration_size": _COUNT,
    }

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        damp, size = _falling(objective, limit), self.batch_size or min(32, max(4, objective.n_sequences // 100))
        eta = self.learning_rate or self.calibrate(objective, w, rng, size)
        how = eta, self.mu, self.lam, objective.decay
        return lambda order, past: objective.native.smd(order, *how, damp(past), size)

    def calibrate(self, objective: SequenceObjective, w: Vector, rng: Rng, size: int) -> float:
        """Half the power of two that, as the first step, lowers the objective of a sample most in three passes."""
        sample = rng.permutation(objective.n_sequences)[: self.calibration_size]

        def go(eta: float) -> None:
            for _ in range(3):  # steps that are too large show only once they have grown
                objective.native.smd(sample, eta, self.mu, self.lam, objective.decay, 1.0, size)

        best, found, eta = _outcome(objective, w, sample, lambda: None), 0.0, 2.0
        while eta > 1e-4 and not found > 4 * eta:
            value = _outcome(objective, w, sample, partial(go, eta))
            if value < best:
                best, found = value, eta
            eta /= 2
        objective.native.set_weights(w)
        return (found or eta) / 2


@dataclass(frozen=True)
class SAG(Stochastic):
    r"""Stochastic average gradient with non-uniform sampling (Schmidt and others, 2015).

    .. math::

        w \leftarrow (1 - \alpha \lambda)\, w - \frac{\alpha}{S} \sum_s d_s, \qquad
        \alpha = \tfrac12 \left( \frac{1}{L_{max} + \lambda} + \frac{1}{\bar L + \lambda} \right)

    where d_s is the gradient of sequence s when it was last seen, kept as marginals, and L_s its Lipschitz constant,
    found by doubling. From the second pass on, half of the sequences are drawn in proportion to their constants.
    If rounding errors hide what a step gains, as for a sequence that is nearly right, its constant is kept. Transitions
    must not depend on the input.

    Parameters
    ----------
    search : int, default=10
        Steps between two updates of a constant.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X, y = [["a", "b"], ["b"]] * 10, [["A", "B"], ["B"]] * 10
    >>> CRF(algorithm="sag").fit(X, y).predict([["a", "b"]])
    [['A', 'B']]
    """

    search: int = 10

    supports: ClassVar = Stochastic.supports - {"partial_fit", "window"}
    keeps_marginals: ClassVar[bool] = True
    rules: ClassVar = {"search": _COUNT}

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native, decay, n = objective.native, objective.decay, objective.n_sequences

        def run(order: Order, past: int) -> float:
            if past and n:
                constants = native.lipschitz()[:n]
                heavy = rng.choice(n, size=n - n // 2, p=constants / constants.sum())
                order = rng.permutation(np.concatenate([order[: n // 2], heavy]))
            return native.sag(order, decay, self.search)

        return run


@dataclass(frozen=True)
class Perceptron(Stochastic):
    r"""Collins' structured perceptron, averaged.

    .. math::

        w \leftarrow w + F(x, y) - F(x, \hat y), \qquad \hat y = \arg\max_y w \cdot F(x, y)

    The result is the mean of w over all steps. There is no regularisation. If a sequence is partly labelled, y is the
    best labelling that fits its labels; so too in :class:`PassiveAggressive` and :class:`AROW`.

    Examples
    --------
    >>> from crfkit import CRF
    >>> CRF(algorithm="ap").fit([["a", "b"], ["b"]], [["A", "B"], ["B"]]).predict([["a", "b"]])
    [['A', 'B']]
    """

    passes: ClassVar[int] = 20
    vectors: ClassVar[int] = 2
    convex: ClassVar[bool] = False
    supports: ClassVar = Stochastic.supports - {"entropy_weight"}

    @property
    def averaged(self) -> bool:
        """Whether the mean of the weights is the result."""
        return True

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native = objective.native
        return lambda order, past: native.perceptron(order)


@dataclass(frozen=True)
class PassiveAggressive(Stochastic):
    r"""Passive-aggressive: the smallest change of the weights that corrects a mistake (Crammer and others).

    With :math:`\Delta = F(x, y) - F(x, \hat y)` and the cost :math:`\ell = m - w \cdot \Delta`, where m is the square
    root of the number of wrong labels, :math:`w \leftarrow w + \tau \Delta` and

    .. math::

        \tau = \ell / \lVert\Delta\rVert^2, \quad
        \min(c, \ell / \lVert\Delta\rVert^2), \quad
        \ell / (\lVert\Delta\rVert^2 + \tfrac{1}{2c})

    for the types 0, 1 and 2.

    Parameters
    ----------
    type : {0, 1, 2}, default=1
        Whether the change is unlimited (0), limited (1), or limited softly (2).
    c : float, default=1
        Aggressiveness: limits the change by one sequence.
    error_sensitive : bool, default=True
        If False, m is 1.
    average : bool, default=True
        Whether the result is the mean of the weights over all steps, rather than the last weights.

    Examples
    --------
    >>> from crfkit import CRF
    >>> CRF(algorithm="pa").fit([["a", "b"], ["b"]], [["A", "B"], ["B"]]).predict([["a", "b"]])
    [['A', 'B']]
    """

    type: int = 1
    c: float = 1.0
    error_sensitive: bool = True
    average: bool = True

    passes: ClassVar[int] = 20
    convex: ClassVar[bool] = False
    supports: ClassVar = Stochastic.supports - {"entropy_weight"}

    @property
    def averaged(self) -> bool:
        """Whether the mean of the weights is the result."""
        return self.average

    rules: ClassVar = {"c": _POSITIVE}

    def check(self) -> None:
        """Raises if a parameter is out of range."""
        super().check()
        if self.type not in (0, 1, 2):
            raise ValueError(f"'type' of PassiveAggressive must be 0, 1 or 2, got {self.type!r}")

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native = objective.native
        return lambda order, past: native.passive_aggressive(order, self.type, self.c, self.error_sensitive)


@dataclass(frozen=True)
class AROW(Stochastic):
    r"""Adaptive regularisation of weights (Crammer, Kulesza and Dredze), with a variance for each weight.

    With :math:`\Delta` as for :class:`PassiveAggressive` and the cost :math:`\ell` = wrong labels
    :math:`- w \cdot \Delta`,

    .. math::

        w \leftarrow w + \frac{\ell}{\Delta^\top \Sigma \Delta + r}\, \Sigma \Delta, \qquad
        \Sigma^{-1} \leftarrow \Sigma^{-1} + \operatorname{diag}(\Delta^2) / r

    Parameters
    ----------
    variance : float, default=1
        Initial variance of every weight.
    r : float, default=1
        Larger values give smaller steps.

    Examples
    --------
    >>> from crfkit import CRF
    >>> CRF(algorithm="arow").fit([["a", "b"], ["b"]], [["A", "B"], ["B"]]).predict([["a", "b"]])
    [['A', 'B']]
    """

    variance: float = 1.0
    r: float = 1.0

    passes: ClassVar[int] = 20
    convex: ClassVar[bool] = False
    supports: ClassVar = Stochastic.supports - {"entropy_weight"}

    rules: ClassVar = {"variance": _POSITIVE, "r": _POSITIVE}

    def prepare(self, objective: SequenceObjective, w: Vector, rng: Rng, limit: int) -> Pass:
        """One pass of steps."""
        native = objective.native
        return lambda order, past: native.arow(order, self.variance, self.r)
