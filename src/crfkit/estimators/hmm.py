"""The hidden Markov model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.checkpoints import Checkpoint, State, digest, seconds_of
from crfkit.base.interrupts import searching
from crfkit.base.messages import counted as in_words
from crfkit.base.messages import is_watched, show, warn
from crfkit.base.numbers import frozen
from crfkit.base.parameters import check_number
from crfkit.chain.inference import decode, decode_flat, marginals, reachable, score
from crfkit.chain.potentials import Potentials
from crfkit.data.dataset import Dataset, check_label_count
from crfkit.data.labels import LabelLists, collect_labels, label_numbers, require_hard, scores_by
from crfkit.data.sequences import CUT, Columns, holds_integers
from crfkit.estimators.chained import ChainEstimator
from crfkit.estimators.hmm_tables import (
    Counter,
    Floats,
    Monitor,
    Tables,
    Vocabulary,
    checked,
    column_encoder,
    dense_layout,
    is_zero,
    rows,
)
from crfkit.features.encoders import FeatureSource, as_columns
from crfkit.model.chain_model import ChainModel
from crfkit.training.optimiser import INTERRUPTED, SHORTFALL, Callback, Progress, Reason, Result


class HMM(ChainEstimator):
    r"""Hidden Markov model with categorical emissions, one for each column of the tokens.

    .. math::

        p(x, y) = \pi(y_0) \prod_{t > 0} p(y_t \mid y_{t-1}) \prod_t \prod_c p(x_t^{(c)} \mid y_t)

    If labels are known, parameters are smoothed relative frequencies: a count n of N over V possible outcomes gives
    :math:`(n + a) / (N + a V)`, where an unseen value is one more outcome of an emission. If labels are unknown (None)
    or ambiguous (a set), Baum-Welch iterates with expected counts; its objective
    :math:`\log p(x, y_{known}) + a \sum \log \theta` never falls.

    Parameters
    ----------
    smoothing : float, default=0.1
        Added to the counts of emissions.
    transition_smoothing : float, default=0.1
        Added to the counts of transitions and first labels.
    n_states : int, optional
        Number of states if no label is known; they are called 0, 1, ...
    warm_start : bool, default=False
        Start Baum-Welch from the probabilities of the last fit, or from those that were set: ``startprob_``,
        ``transmat_`` and ``emissionprob_``. Parameters that were not set start at random. If all labels are
        known, the probabilities are estimated anew.
    max_iter : int, default=100
        Maximum number of Baum-Welch iterations. Reaching it raises scikit-learn's ConvergenceWarning.
    tol : float, default=1e-6
        Baum-Welch ends when the relative improvement falls below this.
    random_state : int, optional
        Seed for the initial parameters if no label is known.
    n_jobs : int, default=-1
        Threads; -1 for all cores.
    callback : callable, optional
        Called as ``callback(progress, w)`` after every iteration of Baum-Welch; stops if it returns True.
    checkpoint : path, optional
        File that keeps the state of training.
    checkpoint_every : float or str, default="5min"
        As for :class:`~crfkit.CRF`, between two iterations of Baum-Welch.

    Attributes
    ----------
    startprob_ : float64 array [L]
        Probabilities of the first label. May be set; once ``startprob_``, ``transmat_`` and ``emissionprob_`` are all
        set, the model can predict without ``fit``. Zeros that were set stay zero in training.
    transmat_ : float64 array [L, L]
        Probabilities of each label after each label. May be set, as ``startprob_``.
    emissionprob_ : float64 array [L, V]
        Probabilities of the values of the only column, in the order of ``vocabulary_``. May be set. Rows may sum to
        less than one: the rest is the probability of an unseen value.
    emissions_ : list of float64 arrays [L, V + 1]
        For each column, probabilities of its values, and last of an unseen one.
    vocabulary_ : list of lists
        The values of each column: strings, or ints in increasing order if tokens were ints. May be set, before
        ``emissionprob_``; otherwise the values of an ``emissionprob_`` that was set are 0, 1, ...
    history_ : list of float
        Objective of every iteration of Baum-Welch. In training, zeros count as :math:`e^{-700}`, so it is finite.
    monitor_ : Monitor
        ``history``, the log-likelihood of every iteration of Baum-Welch, ``iter``, and whether it has ``converged``.

    Examples
    --------
    >>> from crfkit import HMM
    >>> hmm = HMM().fit([["the", "dog"], ["a", "cat"]], [["D", "N"], ["D", "N"]])
    >>> hmm.predict([["the", "bird"]])
    [['D', 'N']]
    >>> bool(hmm.log_joint([["the", "dog"]], [["D", "N"]])[0] <= hmm.log_likelihood([["the", "dog"]])[0])
    True

    Tokens may be ints, and parameters may be given:

    >>> from crfkit import HMM
    >>> hmm = HMM()
    >>> hmm.startprob_, hmm.transmat_ = [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]]
    >>> hmm.emissionprob_ = [[0.9, 0.1], [0.1, 0.9]]
    >>> log_probability, states = hmm.decode([[0, 0, 1, 1]])
    >>> round(log_probability, 4), states
    (-3.7457, [[0, 0, 1, 1]])
    """

    _kind: ClassVar[str] = "hmm"
    _probabilities: Mapping[str, Any] = MappingProxyType({})  # what is known of Tables, and the vocabulary

    def __init__(
        self,
        *,
        smoothing: float = 0.1,
        transition_smoothing: float = 0.1,
        n_states: int | None = None,
        warm_start: bool = False,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: int | None = None,
        n_jobs: int | None = -1,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self.smoothing = smoothing
        self.transition_smoothing = transition_smoothing
        self.n_states = n_states
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def fit(self, X: Any, y: Any = None, *, resume: bool = False) -> Self:
        """Learns the probabilities.

        Parameters
        ----------
        X : sequences of strings, of ints, or of tuples of strings
            A list of sequences, each with its tokens.
        y : sequences of labels, optional
            ``y[i][t]`` is a label, None, or a set of labels; ``y[i]`` may be None.
        resume : bool
            Continue from ``checkpoint``, if the file exists, as if training had not been interrupted.

        Returns
        -------
        self
        """
        self._check_parameters()
        seconds_of(self.checkpoint_every)
        X = list(X) if isinstance(X, Iterator) else X
        integers = holds_integers(X)
        columns = as_columns(X)
        if len(columns.ids) == 0:
            raise ValueError("there are no tokens to learn from")
        given: Mapping[str, Any] = self._probabilities if self.warm_start else {}
        old = self.model_ if self.warm_start and self._is_fitted() else None
        values = given.get("vocabulary", [columns.texts()] if integers else [])  # ints in the order of their size
        integers &= not given or holds_integers(values)
        encoder = column_encoder(columns.n_columns) if old is None else old.encoder.copy()
        if given and values and columns.n_columns != len(values):
            raise ValueError(
                f"tokens have {in_words(columns.n_columns, 'column')}, but HMM starts from a "
                f"vocabulary of {len(values)}"
            )
        if old is None and values:
            encoder.encode(values, True, 1)
        data = encoder.encode(columns, True, self.n_jobs)
        counted = Counter(data, Vocabulary(encoder))
        labels, numbers, allowed = self._labels(y, data.offsets, () if old is None else old.labels)
        layout = dense_layout(data, len(labels), encoder)
        settings = self._settings()

        def model(tables: Tables, info: dict[str, Any]) -> ChainModel:
            w = tables.weights(layout, counted.vocabulary)
            return ChainModel(encoder, labels, layout, w, None, np.dtype(np.float64), settings, info)

        info: dict[str, Any] = {"sequences": len(columns), "tokens": data.n_tokens, "integers": integers}
        self.history_: list[float] = []
        self.monitor_ = Monitor()
        reason: Reason = "converged"
        if numbers is not None:
            counts = counted.known(numbers, len(labels))
            tables = self._estimate(*counts)
            value, message = tables.objective(counts, self.smoothing, self.transition_smoothing), "counted"
        else:
            assert allowed is not None
            start = self._beginning(counted, allowed, given)
            keep = Checkpoint.of(self, self._fingerprint(data, allowed, labels, given), resume)
            tables, reason, message = self._baum_welch(counted, allowed, start, lambda p: model(p, {}), keep)
            value = self.history_[-1] if self.history_ else float("nan")
        self.n_iter_ = len(self.history_)
        self.monitor_.converged = reason in ("converged", "tolerance")
        info |= {"iterations": self.n_iter_, "unseen": tables.unseen, "objective": value}
        info |= {"reason": reason, "stopped": message}
        fitted = model(tables, info)
        self.model_ = fitted
        self._know(tables, counted.vocabulary.of(integers))
        self.result_ = Result(fitted.weights, value, self.n_iter_, self.n_iter_, reason, message)
        if reason == "interrupted":
            warn(f"training was {message} (iteration {self.n_iter_})", RuntimeWarning)
        if reason == "max_iter" and self.max_iter:
            self._say_not_converged(SHORTFALL.format(message))
        return self

    def _check_parameters(self) -> None:
        for name in ("smoothing", "transition_smoothing", "tol"):
            check_number(self, name, getattr(self, name), 0)
        check_number(self, "n_states", self.n_states, 1, integer=True, optional=True)
        check_number(self, "max_iter", self.max_iter, 0, integer=True)

    def _labels(
        self, y: Any, offsets: NDArray[np.int64], known: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], NDArray[np.int32] | None, NDArray[np.bool_] | None]:
        """The labels, of which some are known before; their numbers, or else which ones each token may have."""
        rows: Any = [None] * (len(offsets) - 1) if y is None else _label_rows(y)
        if not isinstance(rows, Columns):
            rows = [row if row is None or isinstance(row, str) else [_single(x) for x in row] for row in rows]
        some = isinstance(rows, Columns) or any(x is not None for row in rows for x in row or ())
        labels = collect_labels(rows, known) if some else known
        if known and len(labels) > len(known):
            raise ValueError(f"label {labels[len(known)]!r} is not one of HMM's initial labels: {known}")
        n_states = self.n_states or (self._n_given if self.warm_start else None)
        if not labels and n_states is None:
            raise ValueError("'n_states' of HMM must be given if no label is known")
        if n_states is not None and not isinstance(rows, Columns):
            more = max(0, n_states - len(labels))
            labels += tuple(k for k in range(n_states) if k not in labels)[:more]
        check_label_count(len(labels), states=n_states is not None)
        numbers, hints = label_numbers(rows, labels, offsets)
        require_hard(hints)
        if numbers.min(initial=0) >= 0:
            return labels, numbers, None
        return labels, None, scores_by(numbers, hints) == 0

    def _estimate(
        self, start: Floats, transitions: Floats, emissions: list[Floats], zeros: Tables | None = None
    ) -> Tables:
        """Smoothed relative frequencies of counts [L], [L, L] and [L, V]; what is zero in ``zeros`` stays so."""
        a, b = self.smoothing, self.transition_smoothing
        unseen = [np.hstack([e, np.zeros((len(e), 1))]) for e in emissions]
        first, after = (None, None) if zeros is None else (zeros.start[None] > 0, zeros.transitions > 0)
        return Tables(rows(start[None], b, first)[0], rows(transitions, b, after), [rows(e, a) for e in unseen])

    def _beginning(self, counted: Counter, allowed: NDArray[np.bool_], given: Mapping[str, Any]) -> Tables:
        """Where Baum-Welch begins: at what is given, otherwise at what the known labels say and a little noise."""
        n = allowed.shape[1]
        sizes = {n, self._n_given or n, self.n_states or n} if given else {n}
        if len(sizes) > 1:
            raise ValueError(
                f"labels, 'n_states' and the initial parameters of HMM must agree in number, got {sorted(sizes)}"
            )
        rng = np.random.default_rng(self.random_state)
        first = allowed * (0.5 + rng.random(allowed.shape))
        first /= first.sum(axis=1, keepdims=True)
        tables = self._estimate(*counted.expected(iter([(first, None)]), n))
        known = {name: given[name] for name in ("start", "transitions", "emissions") if name in given}
        return replace(tables, **known).grown(counted.vocabulary)

    def _fingerprint(
        self, data: Dataset, allowed: NDArray[np.bool_], labels: tuple[Any, ...], given: Mapping[str, Any]
    ) -> dict[str, str]:
        """What must be the same for the probabilities to be the same."""
        if self.checkpoint is None:
            return {}
        settings = {name: repr(x) for name, x in self._settings().items() if name not in ("n_jobs", "warm_start")}
        start = [given.get("start"), given.get("transitions"), *given.get("emissions", ())]
        learned = digest([data.offsets, data.attr, allowed, labels])
        return {"model": self._kind, **settings, "training data": learned, "starting probabilities": digest(start)}

    def _baum_welch(
        self,
        counted: Counter,
        allowed: NDArray[np.bool_],
        tables: Tables,
        model: Callable[[Tables], ChainModel],
        keep: Checkpoint,
    ) -> tuple[Tables, Reason, str]:
        """Expected counts and new probabilities in turn."""
        n = allowed.shape[1]
        begin = tables

        def state() -> State:
            return {"tables": vars(tables), "history": self.history_, "likelihoods": self.monitor_.history}

        finished = keep.result({**state(), "reason": "", "message": ""})
        if saved := keep.part("em", state) or finished:
            tables, self.history_ = Tables(**saved["tables"]), saved["history"]
            self.monitor_.history = saved["likelihoods"]
        if finished:
            return tables, finished["reason"], finished["message"]

        def ended(tables: Tables, reason: Reason, message: str) -> tuple[Tables, Reason, str]:
            keep.finish({**state(), "tables": vars(tables), "reason": reason, "message": message})
            return tables, reason, message

        try:
            with searching():
                for _ in range(len(self.history_), self.max_iter):
                    m = model(tables)
                    likelihood = 0.0

                    def posteriors(m: ChainModel = m) -> Iterator[tuple[Floats, Floats]]:
                        nonlocal likelihood
                        for piece, (a, b) in counted.pieces(n * n):
                            p = m.score(piece, self.n_jobs)
                            p = Potentials(p.unary, p.pairwise, allowed=allowed[a:b], offsets=piece.offsets)
                            found = marginals(p, self.n_jobs, pairs=True)
                            likelihood += float(np.sum(found.log_z))
                            yield found.nodes.astype(np.float64), found.edges.sum(axis=0)

                    counts = counted.expected(posteriors(), n)
                    value = likelihood + tables.prior(self.smoothing, self.transition_smoothing)
                    self.history_.append(value)
                    self.monitor_.history.append(likelihood)
                    old, tables = tables, self._estimate(*counts, begin)
                    if self.callback is not None or is_watched():
                        k, w = len(self.history_), m.weights
                        terms = {"likelihood": -likelihood}
                        progress = Progress(k, -value, float("nan"), len(w), 1.0, k, 0.0, terms=terms)
                        show(progress)
                        if self.callback is not None and self.callback(progress, w.copy()):
                            return ended(old, "callback", "the callback asked to stop")
                    if len(self.history_) > 1 and value - self.history_[-2] <= self.tol * abs(value):
                        return ended(tables, "tolerance", f"the objective rose by less than {self.tol:g}")
                    keep.tick()
        except KeyboardInterrupt:
            return tables, "interrupted", INTERRUPTED
        return ended(tables, "max_iter", f"stopped after {in_words(self.max_iter, 'iteration')}")

    def _know(self, tables: Tables, values: list[list[Any]]) -> None:
        self._probabilities = vars(tables) | {"vocabulary": values}

    @property
    def _n_given(self) -> int | None:
        """How many labels the probabilities are for, if there are any."""
        p = self._probabilities
        return next(
            (len(x) for x in (p.get("start"), p.get("transitions"), *p.get("emissions", ())) if x is not None), None
        )

    def _read(self, name: str) -> Any:
        if name not in self._probabilities:
            raise AttributeError("this HMM has no such probabilities yet: fit it, or set them")
        return self._probabilities[name]

    def _set(self, name: str, part: str, value: Any) -> None:
        """Keeps what a user gives; with all probabilities there is a model."""
        known = {**self._probabilities, part: value}
        if "emissions" in known:
            known.setdefault("vocabulary", [list(range(known["emissions"][0].shape[1] - 1))])
            sizes = [e.shape[1] - 1 for e in known["emissions"]], [len(v) for v in known["vocabulary"]]
            if sizes[0] != sizes[1]:
                raise ValueError(f"{name!r} of HMM is for {sizes[0]} values, 'vocabulary_' has {sizes[1]}")
        shapes = [known[k].shape for k in ("start", "transitions") if k in known]
        counts = {n for shape in shapes for n in shape} | {len(e) for e in known.get("emissions", ())}
        counts |= {self.n_states or n for n in counts}
        if len(counts) > 1:
            raise ValueError(
                f"{name!r} of HMM must be for the same number of labels as the others, got {sorted(counts)}"
            )
        self._probabilities = known
        if not {"start", "transitions", "emissions"} <= known.keys():
            return
        values = known["vocabulary"]
        tables = Tables(known["start"], known["transitions"], known["emissions"])
        info = {"integers": holds_integers(values), "unseen": tables.unseen}
        if self._is_fitted():
            m = replace(self.model_, info={**self.model_.info, **info})
        else:
            encoder, labels = column_encoder(1), tuple(range(len(tables.start)))
            layout = dense_layout(encoder.encode(values, True, 1), len(labels), encoder)
            m = ChainModel(encoder, labels, layout, np.zeros(0), None, np.dtype(np.float64), self._settings(), info)
        self.model_ = replace(m, weights=tables.weights(m.layout, Vocabulary(m.encoder)))

    @property
    def startprob_(self) -> Floats:
        """Probabilities of the first label, [L]."""
        return frozen(self._read("start"))

    @startprob_.setter
    def startprob_(self, value: ArrayLike) -> None:
        self._set("startprob_", "start", checked(value, "startprob_", 1))

    @property
    def transmat_(self) -> Floats:
        """Probabilities of a label after a label, [L, L]."""
        return frozen(self._read("transitions"))

    @transmat_.setter
    def transmat_(self, value: ArrayLike) -> None:
        self._set("transmat_", "transitions", checked(value, "transmat_", 2))

    @property
    def emissionprob_(self) -> Floats:
        """Probabilities of the values of the only column, [L, V]; rows sum to one less that of an unseen value."""
        emissions = self.emissions_
        if len(emissions) > 1:
            raise AttributeError(f"tokens of this HMM have {len(emissions)} columns: use 'emissions_'")
        return emissions[0][:, :-1]

    @emissionprob_.setter
    def emissionprob_(self, value: ArrayLike) -> None:
        p = checked(value, "emissionprob_", 2, rest=True)
        rest = np.maximum(1 - p.sum(axis=1, keepdims=True), 0)
        self._set("emissionprob_", "emissions", [np.hstack([p, np.where(rest < 1e-12, 0, rest)])])

    @property
    def emissions_(self) -> list[Floats]:
        """Probabilities of the values of each column, [L, V + 1], the last that of an unseen one."""
        return [frozen(e) for e in self._read("emissions")]

    @property
    def vocabulary_(self) -> list[list[Any]]:
        """The values of each column, in the order of ``emissions_``."""
        return [list(values) for values in self._read("vocabulary")]

    @vocabulary_.setter
    def vocabulary_(self, values: Any) -> None:
        if self._is_fitted():
            raise ValueError("'vocabulary_' of HMM must be set before 'emissionprob_', and not after fitting")
        if len(values) != 1 or isinstance(values[0], str) or len({str(x) for x in values[0]}) != len(values[0]):
            raise ValueError(f"'vocabulary_' of HMM must be a list of one list of distinct values, got {values!r}")
        self._set("vocabulary_", "vocabulary", [list(values[0])])

    def decode(self, X: Any, algorithm: str = "viterbi") -> tuple[float, list[list[Any]]]:
        """The best labels of every sequence, and the log-probability of all of them together with the input.

        Parameters
        ----------
        X : sequences of tokens
            What to label.
        algorithm : {"viterbi", "map"}
            The best labelling, or the most probable label of each token.

        Returns
        -------
        log_probability : float
            :math:`\\sum \\log p(x, y)`; :meth:`log_joint` gives it for each sequence. Minus infinity if a sequence is
            impossible; its labels are then those of :meth:`predict`.
        labels : list of lists of labels
        """
        self._require_fitted()
        X = self.model_.encoder.read(X)
        if algorithm not in ("viterbi", "map"):
            raise ValueError(f"'algorithm' of decode must be 'viterbi' or 'map', got {algorithm!r}")
        p = self._joint(X)
        if algorithm == "viterbi":
            paths = p.split(decode_flat(self._joint(X, finite=True), self.n_jobs))
            for i in np.flatnonzero(np.isneginf(score(p, paths)) & ~np.isneginf(reachable(p, self.n_jobs))).tolist():
                paths[i] = decode(p[i])  # a zero was cheaper than what is possible
        else:
            paths = [nodes.argmax(axis=1) for nodes in self.predict_marginals(X)]
        labels = self.model_.labels
        return float(np.sum(score(p, paths))), LabelLists([labels[j] for j in path.tolist()] for path in paths)

    def score_samples(self, X: Any) -> tuple[float, list[NDArray[np.floating[Any]]]]:
        """Log-likelihood of all sequences, and probabilities of all labels at all tokens.

        Returns
        -------
        log_likelihood : float
            :math:`\\sum \\log p(x)`; :meth:`log_likelihood` gives it for each sequence.
        posteriors : list of float64 arrays [T, L]
        """
        return float(self.log_likelihood(X).sum()), self.predict_marginals(X)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """With labels, the fraction of tokens labelled correctly; without, the log-likelihood of all sequences."""
        if y is not None:
            return super().score(X, _label_rows(y), sample_weight)
        found = self.log_likelihood(X)
        if sample_weight is None:
            return float(found.sum())
        weights = np.asarray(sample_weight)
        return float(weights @ np.where(weights == 0, 0, found))  # no weight, no infinity

    def aic(self, X: Any) -> float:
        """Akaike's criterion, :math:`-2 \\log p(x) + 2 k`; lower is better.

        The k free parameters are :math:`(L - 1) + L (L - 1) + \\sum_c L (V_c - 1)`.
        """
        return 2 * self._n_free - 2 * self.score(X)

    def bic(self, X: Any) -> float:
        """Bayesian information criterion, :math:`-2 \\log p(x) + k \\log N` with N tokens; see :meth:`aic`."""
        X = as_columns(X)
        return float(self._n_free * np.log(len(X.ids))) - 2 * self.score(X)

    @property
    def _n_free(self) -> int:
        self._require_fitted()
        n = len(self.model_.labels)
        return n - 1 + n * (n - 1) + sum(n * (len(values) - 1) for values in self.vocabulary_)

    def _joint(self, X: Any, finite: bool = False) -> Potentials:
        """Potentials whose scores are log p(x, y): no temperature divides them, and zeros count in full or finitely."""
        self._require_fitted()
        model = replace(self.model_, temperature=1.0)
        data = model.encoder.encode(X, False, self.n_jobs)
        p = model.score(data, self.n_jobs, np.float64)
        tables = Tables(*(self._probabilities[name] for name in ("start", "transitions", "emissions")))
        if finite or not tables.has_zeros:
            return p
        counts = replace(model, weights=tables.weights(model.layout, Vocabulary(model.encoder), is_zero))
        zeros = counts.score(data, self.n_jobs, np.float64)
        unary, pairwise = (
            np.where(z > 0, -np.inf, x) for z, x in ((zeros.unary, p.unary), (zeros.pairwise, p.pairwise))
        )
        return Potentials(unary, pairwise, offsets=p.offsets)

    def log_joint(self, X: Any, y: Any) -> Floats:
        """Log p(x, y) of every sequence with its labels, [S]; minus infinity where the pair is impossible."""
        p = self._joint(X)
        assert p.offsets is not None
        flat, _ = label_numbers(_label_rows(y), self.model_.labels, p.offsets)
        return np.asarray(score(p, p.split(flat)))

    def log_likelihood(self, X: Any) -> Floats:
        """Log p(x) of every sequence, [S]; minus infinity if it is impossible."""
        return reachable(self._joint(X), self.n_jobs)

    def generate(self, length: int, random_state: int | None = None) -> tuple[list[Any], list[Any]]:
        """A sequence drawn from p(x, y), and its labels. Unseen values come out as ``"<unseen>"``."""
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        X: list[Any] = []
        y: list[Any] = []
        p = self.startprob_
        for _ in range(length):
            j = int(rng.choice(len(p), p=p))
            row = tuple(
                [*words, "<unseen>"][int(rng.choice(len(words) + 1, p=e[j]))]
                for words, e in zip(self.vocabulary_, self.emissions_, strict=True)
            )
            X.append(row if len(row) > 1 else row[0])
            y.append(self.model_.labels[j])
            p = self.transmat_[j]
        return X, y

    @classmethod
    def _of_model(cls, model: ChainModel, params: dict[str, Any], features: FeatureSource, n_jobs: int | None) -> Self:
        out = super()._of_model(model, params, features, n_jobs)
        if "unseen" not in model.info:
            raise ValueError("'info.unseen' is missing")
        vocabulary = Vocabulary(model.encoder)
        tables = Tables.of_weights(np.asarray(model.weights), model.layout, vocabulary, model.info["unseen"])
        out._know(tables, vocabulary.of(model.info.get("integers", False)))
        return out


def _label_rows(y: Any) -> Any:
    """Labels of every sequence; lengths, which hmmlearn takes in their place, are refused."""
    rows = y if isinstance(y, Columns) else list(y)
    for i, row in enumerate(() if isinstance(y, Columns) else rows):
        if row is not None and not isinstance(row, Iterable):
            hint = f"HMM takes labels and no lengths, so cut one array into sequences: {CUT}"
            raise ValueError(f"labels of sequence {i} must be a list, got {row!r}; {hint}")
    return rows


def _single(label: Any) -> Any:
    """A label that is the only one of its set."""
    return next(iter(label)) if isinstance(label, (set, frozenset)) and len(label) == 1 else label
