"""The linear-chain conditional random field."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import ArrayLike

from crfkit.chain.beams import Adaptive, Beam, as_beam
from crfkit.estimators.penalised import PenalisedChain, Rules
from crfkit.features.encoders import FeatureSource
from crfkit.model.chain_model import ChainModel
from crfkit.training.optimiser import Algorithm, Callback
from crfkit.training.registry import ALGORITHMS, AlgorithmName, find_algorithm

if TYPE_CHECKING:
    from crfkit.estimators.hmm import HMM
    from crfkit.model.explaining import Explanation


class CRF(PenalisedChain):
    r"""Linear-chain conditional random field, trained by penalised maximum likelihood.

    .. math::

        p_w(y \mid x) \propto \exp \sum_t \bigl( u_t(y_t) + a(y_{t-1}, y_t) \bigr)

    where u sums the weights of the token's attributes for a label. Training minimises
    :math:`-\sum \log p_w(y \mid x) + c_1 \lVert w \rVert_1 + c_2 \lVert w \rVert^2`.

    A sequence is a list of tokens. A token is a string, or a tuple of strings (columns, such as word and part of
    speech), from which ``features`` makes attributes; or it is a dict, list or set of attributes, as for
    python-crfsuite. The readers of :mod:`crfkit.data` return columns directly, which is fastest.

    Parameters
    ----------
    features : "auto", TokenFeatures, Template, callable or None
        How tokens become attributes. ``"auto"`` uses :class:`~crfkit.TokenFeatures` for strings and tuples, and takes
        dicts, lists and sets as they are. A callable is called as ``f(sequence)``, or as ``f(sequence, t)`` if it takes
        two arguments.
    algorithm : {"lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag", "ap", "pa", "arow"} or an optimiser
        The optimiser, by name or, to change its settings, as an object of :mod:`crfkit.training` such as
        ``SGD(batch_size=4)``. All reach the same optimum, except ``"ap"``, ``"pa"`` and ``"arow"``, which ignore
        regularisation.
    c1 : float, default=0
        Coefficient of L1 regularisation, which sets weights to exactly zero. For ``"lbfgs"`` only.
    c2 : float, default=1
        Coefficient of L2 regularisation: of the sum of squared weights, without a half, as in CRFsuite.
    min_freq : float, default=0
        (attribute, label) pairs that occur less often get no weight; 0 and 1 keep all. CRFsuite sums the
        attributes' values instead of counting, and drops rare transitions too.
    hash_bits : int, optional
        Number attributes by a hash of this many bits instead of a vocabulary: for data with too many attributes whose
        names do not matter. Attributes with the same hash share their weights.
    all_possible_states : bool, default=False
        Weights for all (attribute, label) pairs, not only for those seen.
    all_possible_transitions : bool, default=True
        Weights for all label pairs, not only for those seen.
    start_end : bool, default=True
        Weights for the first and for the last label.
    constraints : {"bio", "iob1", "bioes", "bilou"}, Constraints, or list of (label, label), optional
        Forbidden transitions, in training and in decoding.
    class_weight : "balanced" or dict of labels to weights, optional
        Weights of labels; labels missing from a dict have weight 1, and ``"balanced"`` gives a label the weight
        :math:`N / (L N_j)`, for :math:`N_j` of N tokens. The likelihood of a CRF belongs to whole sequences, so a
        sequence is weighted by the mean weight of its known labels, times its ``sample_weight``.
    entropy_weight : float, default=0
        Coefficient of the entropy of unlabelled sequences: the model is rewarded for being certain about them. With 0
        they are ignored. The objective then has local minima; training starts from the optimum of the labelled
        sequences. Not for ``"ap"``, ``"pa"`` and ``"arow"``, which minimise no likelihood.
    entropy_per : {"sequence", "token"}, default="sequence"
        Whether the entropy counts per sequence, or is divided by the sequence's length.
    entropy_ramp : int, default=10
        Iterations over which the entropy's weight grows to ``entropy_weight``; for the stochastic optimisers, passes.
    beam : MinDivergence, FixedSize, Threshold, Adaptive or str, optional
        Train within beams of labels (see :mod:`crfkit.chain`), for large label sets; a str has the form of the command
        line's ``--beam``. For the algorithms ``"sgd"`` (the fastest with beams), ``"adagrad"`` and ``"lbfgs"``. Only
        :class:`~crfkit.chain.Adaptive` reaches the exact optimum. Sequences with unknown labels are trained exactly.
    gradient : {"forward-backward", "backward"}
        How L-BFGS computes gradients; ``"backward"`` is for study, see :class:`~crfkit.training.BackwardObjective`.
    hidden_states : int, default=1
        Number of hidden states per label. The likelihood of a label sums over its states,
        :math:`p(y \mid x) = \sum_{z: \text{label}(z) = y} p(z \mid x)`, so that a label with different uses can have a
        state for each; transitions and attributes have weights for states. With more than one, the objective has local
        minima. See ``by`` of :meth:`predict`.
    order : {1, 2, 3}, default=1
        Number of previous labels that a label depends on: with 2, :math:`b(y_{t-2}, y_{t-1}, y_t)` is added to the
        scores, with 3 also a score of four labels; all lower orders keep their weights. Tuples of labels that occur
        have weights; with ``all_possible_transitions`` all of them, up to 2^20. Exact with few labels (22 for order 2,
        8 for order 3); with more, the first-order marginals choose a few labels for each token, and ``algorithm`` must
        be ``"sgd"`` or ``"adagrad"``. See :doc:`/higher-order`.
    n_init : int, default=1
        With hidden states, train this many times from different random weights and keep the model with the lowest
        objective. The first start is that of ``n_init=1``. If training is interrupted, or the callback stops it, there
        are no further starts.
    max_iter : int, optional
        Maximum number of iterations; for stochastic optimisers, of passes over the data. With ``entropy_weight`` and
        unlabelled sequences there are two runs, without and with the entropy, each with this limit. Reaching the limit
        raises scikit-learn's ConvergenceWarning. Stochastic optimisers have a default number of passes; with ``tol=0``
        they make exactly ``max_iter`` passes, without a warning.
    tol : float, default=1e-5
        Training ends when the relative improvement over 10 iterations falls below this.
    early_stopping : int, optional
        Stop when the score on the held-out data of :meth:`fit` has not risen for this many iterations, and
        keep the weights that scored best.
    warm_start : bool, default=False
        Start from the weights of the last fit; new labels and attributes are added.
    warm_start_fraction : float, optional
        First train on this fraction of the sequences, drawn at random, then on all.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the lattices. Sums over the data are always in double precision. So is all of training if ``tol``
        is below 3e-8, which single precision cannot resolve; this does not apply to stochastic optimisers.
    device : str, default="cpu"
        ``"cuda"`` trains and predicts on a GPU and reaches the same optimum. It needs torch and ``"lbfgs"``, and does
        not support ``c1``, ``entropy_weight``, ``beam``, sets of labels, or attributes of transitions. Models load on
        any machine.
    random_state : int, optional
        Random seed, for ``hidden_states``, for ``warm_start_fraction``, and for the order of sequences in stochastic
        optimisers.
    n_jobs : int, default=-1
        Threads; -1 for all cores. Results do not depend on it.
    verbose : bool, default=False
        Print a line per iteration to standard error; the logger ``"crfkit"`` also gets it, at level INFO.
    callback : callable, optional
        Called as ``callback(progress, w)`` after every iteration; training stops if it returns True.
    checkpoint : path, optional
        File for the state of training, from which ``fit(..., resume=True)`` continues after a crash as if training had
        not been interrupted. Clones, as made by searches, add a digest of their settings and data to the path.
    checkpoint_every : float or str, default="5min"
        Seconds between two checkpoints, or a string such as ``"30s"``, ``"5min"`` or ``"1h"``; 0 writes one after
        every iteration.

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
        The beams at the end of training: sizes, mass, and the error of the gradient on a sample.

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

    _kind: ClassVar[str] = "crf"

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        algorithm: AlgorithmName | Algorithm = "lbfgs",
        c1: float = 0.0,
        c2: float = 1.0,
        min_freq: float = 0,
        hash_bits: int | None = None,
        all_possible_states: bool = False,
        all_possible_transitions: bool = True,
        start_end: bool = True,
        constraints: Rules = None,
        class_weight: str | Mapping[Any, float] | None = None,
        entropy_weight: float = 0.0,
        entropy_per: str = "sequence",
        entropy_ramp: int = 10,
        beam: Beam | Adaptive | str | None = None,
        gradient: str = "forward-backward",
        hidden_states: int = 1,
        order: int = 1,
        n_init: int = 1,
        max_iter: int | None = None,
        tol: float = 1e-5,
        early_stopping: int | None = None,
        warm_start: bool = False,
        warm_start_fraction: float | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        random_state: int | None = None,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self._keep(locals())

    @classmethod
    def from_hmm(cls, hmm: HMM) -> CRF:
        """A CRF with the same posterior as a hidden Markov model: its weights are the HMM's log-probabilities.

        Examples
        --------
        >>> from crfkit import CRF, HMM
        >>> hmm = HMM().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
        >>> CRF.from_hmm(hmm).predict([["b", "a"]]) == hmm.predict([["b", "a"]])
        True
        """
        hmm._require_fitted()
        crf = cls(dtype="float64", n_jobs=hmm.n_jobs)
        crf.model_ = replace(hmm.model_, params=crf._settings())
        crf.n_iter_ = 0
        return crf

    def partial_fit(self, X: Any, y: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """One pass over new data; for streams.

        New labels and attributes are added. ``algorithm`` must be stochastic, and not ``"sag"``, which needs all
        sequences. Step sizes continue to shrink from call to call, and all sequences so far share the penalty. Averages
        and variances are reset in every call, so pass more than a few sequences at a time.

        Examples
        --------
        >>> crf = CRF(algorithm="pa")
        >>> for X, y in [([["a", "b"]], [["A", "B"]]), ([["c"]], [["C"]])]:
        ...     crf = crf.partial_fit(X, y)
        >>> crf.classes_.tolist(), crf.predict([["c"]])
        (['A', 'B', 'C'], [['C']])
        """
        if "partial_fit" not in find_algorithm(self.algorithm).supports:
            raise ValueError(
                f"'algorithm' of CRF must be stochastic, and not 'sag', for partial_fit, got {self.algorithm!r}"
            )
        return self._fit(X, y, None, sample_weight, stream=True)

    _partitioned = False  # whether it learns from partitions of data only

    def _settings(self) -> dict[str, Any]:
        beam = as_beam(self.beam)
        return {**super()._settings(), "beam": None if beam is None else beam.text()}

    @classmethod
    def _of_model(cls, model: ChainModel, params: dict[str, Any], features: FeatureSource, n_jobs: int | None) -> Self:
        crf = super()._of_model(model, params, features, n_jobs)
        crf.features, crf.constraints = features if callable(features) else "auto", model.constraints
        if params.get("algorithm") in ALGORITHMS:  # files name, but do not hold, an optimiser with settings of its own
            crf.algorithm = params["algorithm"]
        return crf

    def explain(self, x: Any, y: Sequence[Any] | None = None) -> Explanation:
        """Why each token of one sequence has its label rather than the runner-up.

        Parameters
        ----------
        x : sequence of tokens
            The tokens.
        y : sequence of labels, optional
            The labels to explain; the predicted ones if not given.

        Returns
        -------
        Explanation
            A decision for each token: attributes and transitions with their contributions. They sum to the log-odds
            of the two labels, given the neighbours' labels; the probabilities next to the labels are marginals, over
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
