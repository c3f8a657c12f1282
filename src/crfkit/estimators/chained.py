"""Predictions from a chain model, whichever estimator trained it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.fields import Arrays, Rule, damaged, flag, integer, optional, refuse, text
from crfkit.base.messages import counted
from crfkit.base.parameters import Estimator
from crfkit.chain.beams import Beam, as_rule
from crfkit.chain.inference import decode_flat, log_partition, marginals, nbest, reachable, sample
from crfkit.chain.potentials import Potentials
from crfkit.data.blocks import Blocks, given_labels
from crfkit.data.dataset import Dataset
from crfkit.data.labels import Entity, LabelLists, Tagging, by_label, label_array, label_scores
from crfkit.features.encoders import FeatureSource, plain_lists
from crfkit.metrics import require_known, token_accuracy
from crfkit.model.chain_model import ChainModel, chain_model, write_model
from crfkit.model.entities import find_entities


def _real(value: Any, field: str) -> Any:
    """A number, perhaps infinite."""
    return value if type(value) in (int, float) and value == value else refuse(field, "a number", value)


#: What a file may say of a parameter, by the type that the estimator declares.
_PLAIN: dict[str, Rule] = {"float": _real, "int": integer(), "bool": flag, "str": text}


class ChainEstimator(Estimator):
    """Base of the estimators whose model is a chain of labels; each of them sets ``model_`` in its own way."""

    model_: ChainModel
    n_jobs: int | None
    n_iter_: int
    device: str = "cpu"
    _kind: ClassVar[str] = ""

    def _is_fitted(self) -> bool:
        return hasattr(self, "model_")

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of their numbers."""
        self._require_fitted()
        return label_array(self.model_.distinct_labels)

    @property
    def state_features_(self) -> dict[tuple[str, Any], float]:
        """Weights ``{(attribute, label): w}``, largest first; pairs of weight zero are omitted.

        For an HMM, they are logarithms of a value's probability for a label, relative to that of an unseen value, which
        is the weight of the attribute ``"U:"``.

        Examples
        --------
        >>> from crfkit import CRF
        >>> crf = CRF(features=None).fit([[["a"], ["b"]]], [["A", "B"]])
        >>> sorted(crf.state_features_), sorted(crf.transition_features_)
        ([('a', 'A'), ('b', 'B')], [('A', 'A'), ('A', 'B'), ('B', 'A'), ('B', 'B')])
        """
        self._require_fitted()
        return {(w.attribute, w.label): w.weight for w in self.model_.state_weights()}

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Weights ``{(label, next label): w}``; pairs of weight zero are omitted.

        Weights of input-dependent transitions are in ``model_.edge_weights()``.
        """
        self._require_fitted()
        return self.model_.transition_weights()

    def _potentials(self, X: Any, given: Any, dtype: Any = None) -> Iterator[Potentials]:
        """Potentials of the sequences, piece by piece, with what is given added to them."""
        done = 0

        def known(data: Dataset) -> NDArray[np.float64]:
            if done + data.n_sequences > len(given):
                many = len(X) if hasattr(X, "__len__") else "more"
                raise ValueError(f"'given' holds labels for {counted(len(given), 'sequence')}, but 'X' holds {many}")
            return label_scores(given[done : done + data.n_sequences], self.model_.labels, data.offsets)

        for p in self.model_.potentials(X, self.n_jobs, dtype, None if given is None else known):
            if given is not None:
                dead = np.isneginf(reachable(p))
                if dead.any():
                    i = done + int(np.argmax(dead))
                    raise ValueError(f"sequence {i}: no labelling fits both 'given' and the model's constraints")
                done += len(p)
            yield p
        if given is not None and done != len(given):
            raise ValueError(f"'given' holds labels for {counted(len(given), 'sequence')}, but 'X' holds {done}")

    def predict(
        self, X: Any, *, given: Any = None, beam: Beam | str | None = None, by: str = "path"
    ) -> list[list[Any]]:
        """The best labels of every sequence.

        Parameters
        ----------
        X : sequences of tokens
            What to label.
        given : sequences of labels, optional
            Known labels, as in ``y`` of :meth:`fit`: labels, None, sets of labels or soft labels. Only labellings that
            fit them are considered.
        beam : MinDivergence, FixedSize, Threshold or str, optional
            Consider only a beam of labels at each token: faster with many labels, but may miss the best labelling.
        by : {"path", "marginals", "nbest"}
            ``"path"``: the best labelling; with hidden states, the labels of the best path of states.
            ``"marginals"``: at each token the most probable label, whatever the labels of its neighbours. ``"nbest"``:
            the most probable among the labellings of the ten best paths; with one state per label, the same as
            ``"path"``.

        Returns
        -------
        list of lists of labels

        Examples
        --------
        >>> from crfkit import CRF
        >>> crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
        >>> crf.predict([["a", "b"]], given=[[None, "A"]])
        [['A', 'A']]
        """
        self._require_fitted()
        rule = as_rule(beam, "predict")
        if by not in ("path", "marginals", "nbest"):
            raise ValueError(f"'by' of predict must be 'path', 'marginals' or 'nbest', got {by!r}")
        if by == "marginals":
            names = self.model_.distinct_labels
            chances = self.predict_marginals(X, given=given)
            return LabelLists([[names[i] for i in p.argmax(axis=1).tolist()] for p in chances])
        if by == "nbest":
            return LabelLists([best[0].labels for best in self.predict_nbest(X, 10, given=given, beam=beam)])
        labels = self.model_.labels
        out = LabelLists()
        for numbers, offsets in self._paths(X, given, rule):
            flat = [labels[i] for i in numbers.tolist()]
            out += [flat[a:b] for a, b in itertools.pairwise(offsets.tolist())]
        return out

    def _paths(self, X: Any, given: Any, rule: Any) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Numbers of the best labels, and where sequences begin, piece by piece; on the device if it can."""
        if self.device == "cpu" or given is not None or rule is not None or len(self.model_.layout.edge_pair):
            for p in self._potentials(X, given):
                assert p.offsets is not None
                yield decode_flat(p, self.n_jobs, rule), p.offsets
            return
        from crfkit.torch.sparse import DeviceDecoder, require_device

        require_device(type(self).__name__, self.device)
        model = self.model_.tempered()
        decoder = DeviceDecoder(model.layout, model.weights, model.constraints, self.device)
        for data in self.model_.datasets(X, self.n_jobs):
            yield decoder.decode(data), data.offsets

    def potentials(self, X: Any) -> Potentials:
        """The scores of all labellings of the sequences, for the functions of :mod:`crfkit.chain`.

        Returns
        -------
        Potentials
            A batch, in double precision.

        Examples
        --------
        >>> from crfkit import CRF, chain
        >>> crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
        >>> p = crf.potentials([["a", "b"]])
        >>> chain.marginals(p).edges.shape, chain.sample(p, 3, rng=0)[0].shape
        ((1, 2, 2), (3, 2))
        """
        self._require_fitted()
        return self.model_.score(self.model_.encoder.encode(X, False, self.n_jobs), self.n_jobs, np.float64)

    def predict_marginals(self, X: Any, *, given: Any = None) -> list[NDArray[np.floating[Any]]]:
        """Marginal probabilities of all labels at all tokens, given the labels in ``given`` (see :meth:`predict`).

        Returns
        -------
        list of float64 arrays [T, L]
            Columns in the order of ``classes_``.
        """
        self._require_fitted()
        out: list[NDArray[np.floating[Any]]] = []
        for p in self._potentials(X, given, np.float64):
            out += p.split(by_label(marginals(p, self.n_jobs).nodes, self.model_.labels))
        return out

    def predict_nbest(
        self, X: Any, k: int = 5, *, given: Any = None, beam: Beam | str | None = None
    ) -> list[list[Tagging]]:
        """The ``k`` best labellings of every sequence that fit ``given``, best first, with their probabilities.

        With a ``beam`` (see :meth:`predict`), only labellings within it are considered; their probabilities are exact.
        With hidden states, these are the labellings of the ``k`` best paths of states, of which there may be fewer;
        probabilities are sums over all paths.

        Returns
        -------
        list of lists of Tagging
            ``labels`` and ``probability``.
        """
        self._require_fitted()
        labels, hidden = self.model_.labels, self.model_.has_hidden_states
        out = []
        for p in self._potentials(X, given, np.float64):
            log_z = log_partition(p, self.n_jobs)
            for i, best in enumerate(nbest(p, k, beam=beam, n_jobs=self.n_jobs)):
                found = [
                    ([labels[j] for j in path], score)
                    for path, score in zip(best.paths.tolist(), best.scores, strict=True)
                ]
                if hidden:
                    found = self._summed(p[i], [names for names, _ in found])
                out.append([Tagging(names, float(np.exp(score - log_z[i]))) for names, score in found])
        return out

    def _summed(self, p: Potentials, labellings: list[list[Any]]) -> list[tuple[list[Any], float]]:
        """Distinct labellings of one sequence with the logarithm of the sum over their paths of states, best first."""
        distinct = [list(names) for names in dict.fromkeys(map(tuple, labellings))]
        ends = np.arange(len(distinct) + 1) * len(p.unary)
        known = label_scores(distinct, self.model_.labels, ends)
        pairwise = p.pairwise if p.pairwise.ndim == 2 else np.tile(p.pairwise, (len(distinct), 1, 1))
        sums = log_partition(Potentials(np.tile(p.unary, (len(distinct), 1)) + known, pairwise, offsets=ends), 1)
        order = np.argsort(-sums, kind="stable").tolist()
        return [(distinct[i], float(sums[i])) for i in order]

    def predict_entities(self, X: Any, *, given: Any = None, threshold: float | None = None) -> list[list[Entity]]:
        r"""The entities of every sequence, each with its exact probability.

        Labels form spans by the rules of :func:`crfkit.metrics.spans`: BIO, IOB1, BIOES and BILOU, and runs of equal
        labels where labels have no prefix. The probability of a span is the sum over all labellings that have it, with
        this type and exactly these boundaries:

        .. math:: P(\text{span}) = \sum_{y:\, \text{span} \in \text{spans}(y)} p(y \mid x)

        Parameters
        ----------
        X : sequences of tokens
            With tokens from :func:`crfkit.data.tokenize`, entities have character offsets.
        given : sequences of labels, optional
            Known labels; see :meth:`predict`.
        threshold : float, optional
            Return all spans at least this probable, which may overlap, instead of those of the best labelling.

        Returns
        -------
        list of lists of Entity
            In the order of the tokens.

        Examples
        --------
        >>> from crfkit import CRF
        >>> from crfkit.data import tokenize
        >>> X = tokenize("Anna Lee went home. Bob Ray left.")
        >>> y = [["B-PER", "I-PER", "O", "O", "O"], ["B-PER", "I-PER", "O", "O"]]
        >>> crf = CRF(c2=0.1).fit(X, y)
        >>> [[entity]] = crf.predict_entities(tokenize("Anna Lee left."))
        >>> entity.label, entity.text, entity.start, entity.end, entity.char_start, entity.char_end
        ('PER', 'Anna Lee', 0, 2, 0, 8)
        >>> entity.probability > 0.5
        True
        """
        self._require_fitted()
        if isinstance(X, Blocks):
            raise ValueError("'X' of predict_entities must hold words, and a block file holds none")
        X = list(X) if isinstance(X, Iterator) else plain_lists(X)
        out: list[list[Entity]] = []
        for p in self._potentials(X, given, np.float64):
            out += find_entities(p, self.model_.labels, X[len(out) : len(out) + len(p)], threshold, self.n_jobs)
        return out

    def predict_proba(self, X: Any) -> list[NDArray[np.floating[Any]]]:
        """The same as :meth:`predict_marginals`."""
        return self.predict_marginals(X)

    def sample(self, X: Any, n: int = 1, random_state: int | None = None) -> list[list[list[Any]]]:
        """Labellings drawn from p(y | x): ``n`` for every sequence."""
        drawn = sample(self.potentials(X), n, random_state, self.n_jobs)
        labels = self.model_.labels
        return [[[labels[j] for j in path] for path in paths.tolist()] for paths in drawn]

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Fraction of the tokens that :meth:`predict` labels correctly; all labels must be known.

        A block file, :class:`crfkit.data.Blocks`, holds the labels: ``y`` is then None.
        """
        y = given_labels(X, y, "score")
        require_known(y, "y")
        return token_accuracy(y, self.predict(X), sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads.

        The file is written next to the target and renamed when complete.
        """
        self._require_fitted()
        write_model(self.model_, path, self._kind)

    def _settings(self) -> dict[str, Any]:
        """The parameters that a model file holds."""
        left_out = ("callback", "checkpoint", "checkpoint_every", "device")
        return {k: v for k, v in self.get_params(deep=False).items() if k not in left_out}

    @classmethod
    def _restore(
        cls,
        name: str,
        header: dict[str, Any],
        arrays: Arrays,
        features: FeatureSource,
        n_jobs: int | None,
    ) -> Self:
        """The estimator that a file holds, whose name is for messages."""
        model = chain_model(name, header, arrays, features)
        with damaged(name):
            out = cls._of_model(model, cls._params_of_file(model.params), features, n_jobs)
            out._check_parameters()
            return out

    @classmethod
    def _params_of_file(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a file that have the types that the estimator declares.

        A value that JSON cannot hold (a random generator, say) was written as text; it is replaced by the default.
        """
        out = dict(params)
        for name, p in cls._parameters().items():
            kind, _, more = str(p.annotation).partition(" | ")
            if name not in params or kind not in _PLAIN or more not in ("", "None"):
                continue
            if kind != "str" and isinstance(params[name], str):
                del out[name]
            else:
                rule = optional(_PLAIN[kind]) if more else _PLAIN[kind]
                out[name] = rule(params[name], f"params.{name}")
        return out

    def _check_parameters(self) -> None:
        """Raises if a parameter is out of range."""

    @classmethod
    def _of_model(cls, model: ChainModel, params: dict[str, Any], features: FeatureSource, n_jobs: int | None) -> Self:
        known = cls._parameters()
        out = cls(**{k: v for k, v in params.items() if k in known and k not in ("features", "algorithm", "n_jobs")})
        out.n_jobs = n_jobs
        out.model_ = model
        out.n_iter_ = int(model.info.get("iterations", 0))
        return out
