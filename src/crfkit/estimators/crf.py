"""The linear-chain conditional random field."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.parameters import check_number
from crfkit.base.threads import resolve_threads
from crfkit.chain.beams import Adaptive, Beam, as_beam
from crfkit.chain.constraints import Constraints
from crfkit.data.dataset import Layout
from crfkit.data.labels import collect_labels, label_numbers, label_sets
from crfkit.data.sequences import Columns
from crfkit.estimators.chained import ChainEstimator
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder, plain_lists
from crfkit.metrics import evaluate, require_known
from crfkit.model.chain_model import ChainModel
from crfkit.training.algorithms import LBFGS, Algorithm, find_algorithm
from crfkit.training.backward import BackwardObjective
from crfkit.training.beams import BeamObjective
from crfkit.training.checks import check_gold, check_partial, sequence_weights
from crfkit.training.lbfgs import Callback, Progress, Result
from crfkit.training.objective import LikelihoodObjective
from crfkit.training.semi import SemiSupervisedObjective, minimize_with_entropy
from crfkit.training.sequences import SequenceObjective
from crfkit.training.stochastic import Stochastic

if TYPE_CHECKING:
    from crfkit.estimators.hmm import HMM
    from crfkit.model.explaining import Explanation

__all__ = ["CRF"]

Rules = str | Constraints | Iterable[tuple[str, str]] | None


class CRF(ChainEstimator):
    r"""Linear-chain conditional random field, trained by penalised maximum likelihood.

    .. math::

        p_w(y \mid x) \propto \exp \sum_t \big( u_t(y_t) + a(y_{t-1}, y_t) \big)

    where u sums the weights of the token's attributes for a label. Training minimises
    :math:`-\sum \log p_w(y \mid x) + c_1 \lVert w \rVert_1 + c_2 \lVert w \rVert^2`.

    A sequence is a list of tokens. A token is a string, or a tuple of strings (columns, such as word and part of
    speech), from which ``features`` makes attributes; or it is a dict, list or set of attributes, as for
    python-crfsuite. The readers of :mod:`crfkit.data` give columns directly, which is fastest.

    Parameters
    ----------
    features : "auto", TokenFeatures, Template, callable or None
        How tokens become attributes. ``"auto"`` uses :class:`~crfkit.TokenFeatures` for strings and tuples, and takes
        dicts, lists and sets as they are. A callable is called as ``f(sequence)``, or as ``f(sequence, t)`` if it takes
        two arguments.
    algorithm : {"lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag", "ap", "pa", "arow"} or an optimiser
        How the weights are found; an optimiser of :mod:`crfkit.training` such as ``SGD(batch=4)`` has settings
        of its own. All but ``"ap"``, ``"pa"`` and ``"arow"``, which know no penalty, go to the same minimum.
    gradient : {"forward-backward", "backward"}
        How L-BFGS gets gradients; the second is for study, see :class:`~crfkit.training.BackwardObjective`.
    c1 : float, default=0
        Coefficient of the sum of absolute weights; makes weights exactly zero. For ``"lbfgs"`` only.
    c2 : float, default=1
        Coefficient of the sum of squared weights (without a half, as in CRFsuite).
    min_freq : float, default=0
        (attribute, label) pairs that occur less often get no weight. CRFsuite adds up the attributes' values instead of
        counting, and drops rare transitions too.
    all_possible_states : bool, default=False
        Weights for all (attribute, label) pairs, not only for those seen.
    all_possible_transitions : bool, default=True
        Weights for all label pairs, not only for those seen.
    start_end : bool, default=True
        Weights for the first and for the last label.
    constraints : {"bio", "iob1", "bioes", "bilou"}, Constraints, or list of (label, label), optional
        What may not follow what, in training and in decoding.
    entropy_weight : float, default=0
        Coefficient of the entropy of the sequences that have no labels at all: the model is asked to be sure about
        them. With 0 such sequences are left out. The objective then has many local minima; training begins at the
        optimum of the labelled sequences. Not for ``"ap"``, ``"pa"`` and ``"arow"``, which minimise no likelihood.
    entropy_per : {"sequence", "token"}, default="sequence"
        Whether a sequence counts with its entropy, or with that divided by its length.
    entropy_ramp : int, default=10
        Iterations over which the entropy's weight grows to ``entropy_weight``; for the stochastic optimisers, passes.
    max_iter : int, optional
        Most iterations of the optimiser; for the stochastic ones, passes over the data. With ``entropy_weight`` and
        sequences without labels there are two runs of it, without the entropy and with it, each of so many.
    early_stopping : int, optional
        Stop when the score on the held-out data of :meth:`fit` has not risen for so many iterations, and
        keep the weights that scored best.
    tol : float, default=1e-5
        Training ends when the objective falls by less than this part of itself over ten iterations.
    warm_start : bool, default=False
        Begin at the weights of the last fit; new labels and attributes are added.
    beam : MinDivergence, FixedSize, Threshold, Adaptive or str, optional
        Train inside of beams of labels (see :mod:`crfkit.chain`), for large label sets; a str as for ``--beam`` of the
        command line. For the algorithms ``"sgd"``, the fastest here, ``"adagrad"`` and ``"lbfgs"``; only
        :class:`~crfkit.chain.Adaptive` goes on to the exact optimum. Sequences of which some labels are not known are
        looked at exactly.
    warm_start_fraction : float, optional
        First train on this part of the sequences, picked at random, then on all.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the lattices. Sums over the data are in double precision either way.
    n_jobs : int, default=-1
        Threads; -1 for all cores. Results do not depend on it.
    random_state : int, optional
        Seed of what is picked at random: the part of ``warm_start_fraction``, the order of stochastic optimisers.
    verbose : bool, default=False
        Print a line per iteration to standard error.
    callback : callable, optional
        Called as ``callback(progress, w)`` after every iteration; training stops if it returns True.

    Attributes
    ----------
    classes_ : array of the labels
    weights_ : float64 array
        In the order of ``objective(X, y)``.
    model_ : ChainModel
    n_iter_ : int
    result_ : Result
        How training ended.
    beams_ : BeamReport or None
        How the beams stood at the end of training: sizes, mass, and the error of the gradient on a sample.

    Examples
    --------
    >>> from crfkit import CRF
    >>> X = [["two", "red", "apples"], ["one", "pear"]]
    >>> y = [["QTY", "ADJ", "NAME"], ["QTY", "NAME"]]
    >>> crf = CRF().fit(X, y)
    >>> crf.predict([["two", "pear"]])
    [['QTY', 'NAME']]
    >>> crf.predict_marginals([["two", "pear"]])[0].shape
    (2, 3)
    """

    _sums = False  # whether min_freq sums values, as CRFsuite does

    _kind = "crf"

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        algorithm: str | Algorithm = "lbfgs",
        gradient: str = "forward-backward",
        c1: float = 0.0,
        c2: float = 1.0,
        min_freq: float = 0,
        all_possible_states: bool = False,
        all_possible_transitions: bool = True,
        start_end: bool = True,
        constraints: Rules = None,
        entropy_weight: float = 0.0,
        entropy_per: str = "sequence",
        entropy_ramp: int = 10,
        max_iter: int | None = None,
        tol: float = 1e-5,
        early_stopping: int | None = None,
        warm_start: bool = False,
        beam: Beam | Adaptive | str | None = None,
        warm_start_fraction: float | None = None,
        dtype: str = "float32",
        n_jobs: int | None = -1,
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.features = features
        self.algorithm = algorithm
        self.gradient = gradient
        self.c1 = c1
        self.c2 = c2
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.start_end = start_end
        self.constraints = constraints
        self.entropy_weight = entropy_weight
        self.entropy_per = entropy_per
        self.entropy_ramp = entropy_ramp
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.beam = beam
        self.warm_start_fraction = warm_start_fraction
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def from_hmm(cls, hmm: HMM) -> CRF:
        """The CRF with the posterior of a hidden Markov model: its weights are logarithms of the HMM's probabilities.

        Examples
        --------
        >>> from crfkit import CRF, HMM
        >>> hmm = HMM().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
        >>> CRF.from_hmm(hmm).predict([["b", "a"]]) == hmm.predict([["b", "a"]])
        True
        """
        hmm._require_fitted()
        crf = cls(dtype="float64", n_jobs=hmm.n_jobs)
        crf._adopt(replace(hmm.model_, params=crf._settings()))
        crf.n_iter_ = 0
        return crf

    def _check_parameters(self) -> None:
        for name in ("c1", "c2", "min_freq", "tol", "entropy_weight"):
            check_number(self, name, getattr(self, name), 0)
        if np.isinf(self.entropy_weight):
            raise ValueError(f"'entropy_weight' of CRF must be finite, got {self.entropy_weight!r}")
        check_number(self, "entropy_ramp", self.entropy_ramp, 0, integer=True)
        if self.entropy_per not in ("sequence", "token"):
            raise ValueError(f"'entropy_per' of CRF must be 'sequence' or 'token', got {self.entropy_per!r}")
        check_number(self, "max_iter", self.max_iter, 0, integer=True, optional=True)
        check_number(self, "warm_start_fraction", self.warm_start_fraction, 0, optional=True, strict=True)
        if self.warm_start_fraction is not None and self.warm_start_fraction > 1:
            raise ValueError(f"'warm_start_fraction' of CRF must be at most 1, got {self.warm_start_fraction!r}")
        as_beam(self.beam)
        check_number(self, "early_stopping", self.early_stopping, 1, integer=True, optional=True)
        how = find_algorithm(self.algorithm)
        likelihood = isinstance(how, LBFGS) and self.gradient == "forward-backward"
        if self.warm_start_fraction is not None and not likelihood:
            raise ValueError(f"'warm_start_fraction' of CRF is for the algorithm 'lbfgs', got {self.algorithm!r}")
        if self.beam is not None and self.gradient == "backward":
            raise ValueError("'beam' of CRF needs gradient='forward-backward', got 'backward'")
        if self.beam is not None and not (likelihood or (isinstance(how, Stochastic) and how.beams)):
            raise ValueError(f"'beam' of CRF is for 'lbfgs', 'sgd' and 'adagrad', got {self.algorithm!r}")
        if self.entropy_weight and isinstance(how, Stochastic) and not how.convex:
            raise ValueError(
                f"'entropy_weight' of CRF must be 0 for the algorithm {self.algorithm!r}, which minimises no "
                f"likelihood, got {self.entropy_weight!r}"
            )
        if self.c1 and not isinstance(how, LBFGS):
            raise ValueError(f"'c1' of CRF must be 0 for the algorithm {self.algorithm!r}, got {self.c1!r}")
        if self.gradient not in ("forward-backward", "backward"):
            raise ValueError(f"'gradient' of CRF must be 'forward-backward' or 'backward', got {self.gradient!r}")
        if self.gradient == "backward" and not isinstance(how, LBFGS):
            raise ValueError(f"'gradient' of CRF can be 'backward' only for 'lbfgs', got {self.algorithm!r}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"'dtype' of CRF must be 'float32' or 'float64', got {self.dtype!r}")

    def _rules(self, labels: Sequence[Any]) -> Constraints | None:
        rules = self.constraints
        if rules is None or isinstance(rules, Constraints):
            if rules is not None and len(rules.start) != len(labels):
                raise ValueError(f"'constraints' of CRF are for {len(rules.start)} labels, the data has {len(labels)}")
            return rules
        if not isinstance(rules, Iterable):
            raise TypeError(f"'constraints' of CRF must be a scheme, Constraints or pairs of labels, got {rules!r}")
        if isinstance(rules, str):
            return Constraints.from_scheme(labels, rules)
        return Constraints.from_forbidden(labels, rules)

    def _prepare(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, model: ChainModel | None, grow: bool
    ) -> tuple[Encoder, tuple[Any, ...], Layout, Constraints | None, Any]:
        """What training on labelled data needs, beginning with what ``model`` knows."""
        self._check_parameters()
        threads = resolve_threads(self.n_jobs)
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        if len(X) == 0:
            raise ValueError("there is no sequence to learn from")
        encoder = make_encoder(self.features, X) if model is None else model.encoder.copy() if grow else model.encoder
        data = encoder.encode(X, grow or model is None, threads)
        labels = collect_labels(y, () if model is None else model.labels)
        if model is not None and not grow and len(labels) > len(model.labels):
            raise ValueError(f"label {labels[len(model.labels)]!r} is not one of the model's")
        numbers = label_numbers(y, labels, data.offsets)
        sets = None
        if len(numbers) and numbers.min() < 0:
            sets = label_sets(y, labels, data.offsets)
        weights = sequence_weights(sample_weight, data.n_sequences)
        rules = self._rules(labels)
        if rules is not None:
            check_gold(numbers, data, rules, labels)
            if sets is not None:
                check_partial(numbers, sets, data, rules)
        if model is not None and not grow:
            layout = model.layout
        else:
            layout = Layout.build(
                data,
                numbers,
                len(labels),
                encoder.n_attributes,
                min_freq=self.min_freq,
                all_states=self.all_possible_states,
                all_transitions=self.all_possible_transitions,
                transitions=encoder.transitions,
                ends=self.start_end,
                base=None if model is None else model.layout,
                sums=self._sums,
                sets=sets,
            )
        data = data.without_zeros()
        shared: dict[str, Any] = {
            "c2": self.c2,
            "weights": weights,
            "constraints": rules,
            "dtype": self.dtype,
            "n_jobs": self.n_jobs,
        }
        make = self._objective_class(grow)
        if sets is not None:
            if make is LikelihoodObjective:
                make = SemiSupervisedObjective
            elif make is not SequenceObjective:
                raise ValueError("unknown labels in 'y' need CRF(gradient='forward-backward') or an HMM")
            shared |= {"sets": sets, "entropy_weight": self.entropy_weight, "entropy_per": self.entropy_per}
        if make is SequenceObjective:
            shared["beam"] = as_beam(self.beam)
        objective = make(layout, data, numbers, **shared)
        return encoder, labels, layout, rules, objective

    def _objective_class(self, training: bool) -> Any:
        """What the optimiser looks at."""
        if self.gradient == "backward":
            return BackwardObjective
        if training and isinstance(find_algorithm(self.algorithm), Stochastic):
            return SequenceObjective
        return LikelihoodObjective

    def objective(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LikelihoodObjective:
        """What :meth:`fit` minimises, without the ``c1`` term, for use with any optimiser.

        After :meth:`fit` it has the weights of the fitted model, in the order of ``weights_``; before, those that the
        data asks for, which are the same for the same data.

        Returns
        -------
        LikelihoodObjective
            ``size``, ``value_and_grad(w)`` and ``hessian_product(w, v)``.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
        >>> crf = CRF().fit(X, y)
        >>> f = crf.objective(X, y)
        >>> value, gradient = f.value_and_grad(crf.weights_)
        >>> f.size == len(crf.weights_), bool(np.abs(gradient).max() < 0.01)
        (True, True)
        """
        model = self.model_ if self._is_fitted() else None
        objective: LikelihoodObjective = self._prepare(X, y, sample_weight, model, grow=False)[-1]
        return objective

    def fit(
        self,
        X: Any,
        y: Any,
        X_dev: Any = None,
        y_dev: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : sequences of tokens
        y : sequences of labels
            One label for every token; None where it is not known, or a set of labels of which any may be right. A
            sequence without labels may be None: see ``entropy_weight``. What is learned is the likelihood of what is
            known, :math:`\\log Z_{known} - \\log Z`; ``"ap"``, ``"pa"`` and ``"arow"`` go towards the best labelling
            that fits.
        X_dev, y_dev : optional
            Held-out data, scored after every iteration for the callback; all its labels must be known.
        sample_weight : array [S], optional
            Weights of the sequences.

        Returns
        -------
        self
            Also when interrupted from the keyboard: then with the best weights so far, and a warning.
        """
        if (X_dev is None) != (y_dev is None):
            raise ValueError("'X_dev' and 'y_dev' of fit go together")
        if X_dev is not None and len(X_dev) != len(y_dev):
            raise ValueError(f"'X_dev' holds {len(X_dev)} sequences, 'y_dev' labels for {len(y_dev)}")
        if y_dev is not None:
            require_known(y_dev, "y_dev")
        self._seen = 0
        return self._fit(_as_list(X), _as_list(y), X_dev, y_dev, sample_weight, self.warm_start, None)

    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """One more pass, over data that has just come in; for streams.

        Labels and attributes that are new are added. ``algorithm`` must be a stochastic one. Steps go on shrinking
        where they were, and all sequences so far share the penalty. Averages and variances begin anew with every call,
        so let a call have more than a few sequences; ``"sag"``, which lives on its memory of all of them, is not for
        streams.

        Examples
        --------
        >>> crf = CRF(algorithm="pa")
        >>> for X, y in [([["a", "b"]], [["A", "B"]]), ([["c"]], [["C"]])]:
        ...     crf = crf.partial_fit(X, y)
        >>> crf.classes_.tolist(), crf.predict([["c"]])
        (['A', 'B', 'C'], [['C']])
        """
        if not isinstance(find_algorithm(self.algorithm), Stochastic):
            raise ValueError(f"'algorithm' of CRF must be a stochastic one for partial_fit, got {self.algorithm!r}")
        X, y = _as_list(X), _as_list(y)
        self._fit(X, y, None, None, sample_weight, True, 1)
        self._seen = getattr(self, "_seen", 0) + len(X)
        return self

    def _minimize(
        self,
        exact: Any,
        w0: NDArray[np.float64],
        callback: Callback | None,
        passes: int | None,
        loose: float = 1.0,
    ) -> Result:
        """Runs the optimiser, inside of beams if they are asked for; ``loose`` is a factor of ``tol``."""
        how = find_algorithm(self.algorithm)
        limit = self.max_iter if passes is None else passes
        common: dict[str, Any] = {"tol": loose * self.tol, "max_iter": limit, "callback": callback}
        self.beams_ = None
        minimize: Callable[..., Result] = partial(how.minimize, **common)
        if isinstance(how, Stochastic):
            seen = 0 if passes is None else getattr(self, "_seen", 0)
            minimize = partial(minimize, random_state=self.random_state, seen=seen)
        elif isinstance(how, LBFGS):
            minimize = partial(minimize, c1=self.c1, n_jobs=self.n_jobs)
        beam = as_beam(self.beam)
        objective: Any = exact

        def inside(whole: Any, w: NDArray[np.float64]) -> Any:
            nonlocal objective
            plain = beam is None or isinstance(how, Stochastic) or not whole.n_blocks
            objective = whole if plain else BeamObjective(whole, beam, w)
            return objective

        if getattr(exact, "n_unlabelled", 0):
            ramp = self.entropy_ramp if passes is None else 0
            start = not w0.any()
            result = minimize_with_entropy(
                minimize, exact, w0, ramp=ramp, from_optimum=start, inside=inside, callback=callback
            )
        else:
            result = minimize(inside(exact, w0), w0)
        if isinstance(objective, BeamObjective) and not result.converged:
            result = replace(result, w=objective.better(result.w))
        if isinstance(objective, (BeamObjective, SequenceObjective)):
            self.beams_ = objective.measure(result.w)
        return result

    def _fit(
        self,
        X: Any,
        y: Any,
        X_dev: Any,
        y_dev: Any,
        sample_weight: ArrayLike | None,
        warm: bool,
        passes: int | None,
    ) -> Self:
        old = self.model_ if warm and self._is_fitted() else None
        encoder, labels, layout, rules, objective = self._prepare(X, y, sample_weight, old, grow=True)
        n_tokens = objective.n_tokens
        w0 = np.zeros(layout.size) if old is None else old.layout.move_weights(old.weights, layout)

        def model(w: NDArray[np.float64], encoder: Encoder = encoder, layout: Layout = layout) -> ChainModel:
            return self._make_model(encoder, labels, layout, w, rules, np.dtype(self.dtype), self._settings())

        dev = None if X_dev is None else (X_dev, y_dev)
        if self.early_stopping is not None and dev is None and passes is None:
            raise ValueError("'early_stopping' of CRF needs held-out data: 'X_dev' and 'y_dev' of fit")
        best = _Best(self.early_stopping if passes is None else None)
        started = None
        if self.warm_start_fraction is not None:
            pick = np.random.default_rng(self.random_state).permutation(len(X))
            pick = np.sort(pick[: max(1, round(self.warm_start_fraction * len(X)))])
            part = encoder.encode(encoder.read(X)[pick], False, resolve_threads(self.n_jobs))
            chosen = y[pick] if isinstance(y, Columns) else [y[i] for i in pick]
            numbers = label_numbers(chosen, labels, part.offsets)
            if (numbers < 0).any():
                raise ValueError("'warm_start_fraction' of CRF needs labels for all tokens")
            small = LikelihoodObjective(
                layout, part, numbers, c2=self.c2, constraints=rules, dtype=self.dtype, n_jobs=self.n_jobs
            )
            started = self._minimize(small, w0, None, None, 10)
            w0 = started.w
        if started is not None and "interrupted" in started.message:
            result = started
        else:
            result = self._minimize(objective, w0, self._watch(model, dev, best), passes)
        if best.w is not None and "interrupted" not in result.message:
            result = replace(result, w=best.w, message=best.message or result.message)
        del objective
        keep = [np.diff(ptr) > 0 for ptr in (layout.state_ptr, layout.edge_ptr)]
        if not all(k.all() for k in keep):
            encoder = encoder.pruned(keep[0], keep[1])
            layout = layout.without_empty_rows()
        info = {
            "iterations": result.iterations,
            "objective": result.value,
            "stopped": result.message,
            "sequences": len(X),
            "tokens": n_tokens,
        }
        self._adopt(replace(model(result.w, encoder, layout), info=info))
        self.result_ = result
        self.n_iter_ = result.iterations
        if "interrupted" in result.message:
            warnings.warn(
                f"training was {result.message} (iteration {result.iterations})", RuntimeWarning, stacklevel=2
            )
        return self

    def _make_model(self, *args: Any) -> ChainModel:
        return ChainModel(*args)

    def _settings(self) -> dict[str, Any]:
        settings = {k: v for k, v in self.get_params().items() if k != "callback"}
        beam = as_beam(self.beam)
        return {**settings, "beam": None if beam is None else beam.text()}

    def _watch(self, model: Any, dev: tuple[Any, Any] | None, best: _Best) -> Callback | None:
        """A callback that adds held-out scores and prints, around the user's."""
        if self.callback is None and not self.verbose and best.patience is None:
            return None

        def watch(progress: Progress, w: NDArray[np.float64]) -> bool | None:
            if dev is not None:
                probe = CRF(n_jobs=self.n_jobs)
                probe._adopt(model(w))
                progress = progress.with_scores(evaluate(dev[1], probe.predict(dev[0])).summary())
            if self.verbose:
                held = "".join(f"  {k} {v:.4f}" for k, v in {**progress.terms, **progress.scores}.items())
                print(
                    f"{progress.iteration:5d}  objective {progress.value:.4f}  |g| {progress.gradient_norm:.4g}  "
                    f"active {progress.active}  {progress.seconds:.2f}s{held}",
                    file=sys.stderr,
                    flush=True,
                )
            stop = best.over(progress, w)
            return (None if self.callback is None else self.callback(progress, w)) or stop

        return watch

    @property
    def weights_(self) -> NDArray[np.float64]:
        """The weights, in the order of :meth:`objective`; not to be written to."""
        self._require_fitted()
        weights = self.model_.weights.view()
        weights.flags.writeable = False
        return weights

    def explain(self, x: Any, y: Sequence[Any] | None = None) -> Explanation:
        """Why each token of one sequence has its label rather than the runner-up.

        Parameters
        ----------
        x : sequence of tokens
        y : sequence of labels, optional
            The labels to explain; the predicted ones if not given.

        Returns
        -------
        Explanation
            A decision for each token: attributes and transitions with their contributions. They add up to the log-odds
            of the two labels where the neighbours keep theirs; the probabilities beside the labels are marginals, over
            all labellings. It prints as a table, and has ``to_dict()`` and ``to_html()``.

        Examples
        --------
        >>> X, y = [[["one"], ["pear"]], [["a"], ["pear"]]], [["QTY", "NAME"], ["QTY", "NAME"]]
        >>> decision = CRF().fit(X, y).explain(X[0])[1]
        >>> decision.label, decision.runner_up, decision.contributions[0].name
        ('NAME', 'QTY', 'QTY -> NAME')
        """
        from crfkit.model.explaining import explain

        self._require_fitted()
        return explain(self.model_, x, y)


class _Best:
    """The weights with the best held-out score, and whether it is time to stop."""

    def __init__(self, patience: int | None) -> None:
        self.patience = patience
        self.score = -np.inf
        self.w: NDArray[np.float64] | None = None
        self.since = 0
        self.message = ""

    def over(self, progress: Progress, w: NDArray[np.float64]) -> bool:
        if self.patience is None:
            return False
        score = progress.scores.get("f1", progress.scores["accuracy"])
        self.since += 1
        if score > self.score:
            self.score, self.w, self.since = score, w.copy(), 0
        if self.since < self.patience:
            return False
        self.message = f"the held-out score has not risen for {self.patience} iterations"
        return True


def _as_list(x: Any) -> Any:
    """The same, or a list of what an iterator or an Arrow array gives."""
    return list(x) if isinstance(x, Iterator) else plain_lists(x)
