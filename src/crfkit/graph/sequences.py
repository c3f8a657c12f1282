"""Estimators whose graphs connect the tokens of sequences, with crfkit's features."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays, anything, optional, record, text
from crfkit.base.later import needs
from crfkit.base.parameters import check_number
from crfkit.data.labels import LabelLists, label_array
from crfkit.data.sequences import check_sequences
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder, plain_lists
from crfkit.features.restoring import restore_encoder
from crfkit.graph.checks import edge_array
from crfkit.graph.engine import Inference
from crfkit.graph.learning import GraphEstimator, Graphs, share_right
from crfkit.graph.objective import EdgeGroup, GraphData, NodeGroup
from crfkit.training.optimiser import Callback

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def repeated_words(sequence: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of tokens with the same capitalised word, each with its next occurrence.

    Examples
    --------
    >>> repeated_words(["Green", "said", "that", "Green", "ran"])
    [(0, 3)]
    """
    last: dict[str, int] = {}
    out = []
    for t, token in enumerate(sequence):
        if not isinstance(token, (str, tuple, list)):
            raise ValueError(
                f"repeated_words connects words, but a token is {token!r}: give SkipChainCRF your own function 'skips'"
            )
        word = token if isinstance(token, str) else token[0]
        if not word[:1].isupper():
            continue
        if word in last and last[word] < t - 1:
            out.append((last[word], t))
        last[word] = t
    return out


def _missing_skips(name: str) -> Callable[[Any], Iterable[tuple[int, int]]]:
    def raise_missing(sequence: Any) -> Any:
        raise ValueError(
            f"the model was trained with skips by the function {name!r}, which a model file cannot hold: give it back "
            f"with set_params(skips={name})"
        )

    return raise_missing


class _SequenceEstimator(GraphEstimator):
    """Graphs over the tokens of sequences, with crfkit's features."""

    _names = ("sequence", "token")

    features: FeatureSource
    min_freq: float
    all_possible_states: bool

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self, "min_freq", self.min_freq, 0)

    def _listed(self, X: Any) -> list[Any]:
        return list(check_sequences(plain_lists(X), text=True))  # whether text is right, the encoder says

    def _encode(self, X: Any, grow: bool) -> tuple[Any, Ints]:
        """Attributes of the tokens as a CSR matrix, and the sequences' offsets."""
        with needs(type(self).__name__, "scipy", "graph"):
            from scipy.sparse import csr_array

        if grow:
            self._encoder: Encoder = make_encoder(self.features, X)
        data = self._encoder.encode(X, grow, self.n_jobs)
        attr, counts = data.attr.astype(np.int64), np.diff(data.ptr)
        n, n_edge = self._encoder.n_attributes
        known = attr < n
        if grow:
            kept = np.bincount(attr, minlength=n) >= max(1, self.min_freq)
            self._encoder = self._encoder.pruned(kept, np.zeros(n_edge, bool))
            known, attr, n = kept[attr], (np.cumsum(kept) - 1)[attr], int(kept.sum())
        value = np.ones(len(attr)) if data.value is None else data.value
        rows = np.repeat(np.arange(len(counts)), counts)[known]
        return csr_array((value[known], (rows, attr[known])), shape=(len(counts), n)), data.offsets

    def _kept(self, data: GraphData, gold: Ints, allowed: NDArray[np.bool_] | None) -> Ints | None:
        """Weights of the attributes and labels that were seen together, and of all edges; unknown labels add none."""
        from scipy.sparse import csr_array

        if self.all_possible_states:
            return None
        parts, first = [], 0
        for nodes, place, shape in zip(data.nodes, data.places, data.shapes, strict=False):
            if allowed is None:
                which, label = np.arange(len(nodes.variables)), gold[nodes.variables]
            else:
                options = allowed[place].reshape(-1, nodes.n_labels)
                which, label = np.nonzero(options & ~options.all(axis=1, keepdims=True))
            seen = csr_array((np.ones(len(which)), (which, label)), shape=(len(nodes.variables), nodes.n_labels))
            together = (abs(nodes.features).T @ seen).tocoo()
            parts.append(np.sort(first + together.row.astype(np.int64) * nodes.n_labels + together.col))
            first += shape[0] * shape[1]
        return np.concatenate([*parts, np.arange(first, data.size)])

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"encoder": self._encoder.config()}, {f"encoder.{k}": v for k, v in self._encoder.arrays().items()}

    def _set_state(self, header: dict[str, Any], arrays: Arrays, features: FeatureSource) -> None:
        if callable(features):
            self.features = features
        config = record({"encoder": anything})(header, "")["encoder"]
        self._encoder = restore_encoder(config, arrays.group("encoder"), features)

    @staticmethod
    def _pairs(offsets: Ints, distance: int) -> Ints:
        """Pairs (t, t + distance) of tokens of the same sequence."""
        sequence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        t = np.arange(max(0, -distance), len(sequence) - max(0, distance))
        t = t[sequence[t] == sequence[t + distance]]
        return np.stack([t, t + distance], axis=1)


class SkipChainCRF(_SequenceEstimator):
    """Linear-chain CRF with further edges between distant tokens, such as repeated names.

    Parameters
    ----------
    features : as for :class:`crfkit.CRF`
        Features of tokens.
    skips : callable, default=repeated_words
        Returns the pairs of tokens of a sequence to connect.
    min_freq : float, default=0
        Attributes that occur less often are ignored; 0 and 1 keep all.
    all_possible_states : bool, default=False
        Whether attributes also have weights for labels with which they were not seen.
    loss, inference, decoding, c1, c2, entropy_weight, max_iter, tol, n_jobs, verbose, callback
        As for :class:`GraphCRF`.

    Examples
    --------
    >>> X = [["Green", "spoke", "to", "Green"], ["we", "spoke"]]
    >>> y = [["PER", "O", "O", "PER"], ["O", "O"]]
    >>> SkipChainCRF().fit(X, y).predict(X)
    [['PER', 'O', 'O', 'PER'], ['O', 'O']]
    """

    _kind = "skip_chain_crf"

    skips: Callable[[Any], Iterable[tuple[int, int]]]

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        skips: Callable[[Any], Iterable[tuple[int, int]]] = repeated_words,
        min_freq: float = 0,
        all_possible_states: bool = False,
        loss: str = "likelihood",
        inference: str | Inference = "loopy",
        decoding: str | Inference | None = None,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy_weight: float = 0.0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self._keep(locals())

    def _shapes(self) -> list[tuple[int, ...]]:
        labels = len(self.classes_)
        return [(self._encoder.n_attributes[0], labels), (labels, labels), (labels, labels)]

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header, arrays = super()._state()
        name = getattr(self.skips, "__qualname__", repr(self.skips))
        return header | {"skips": None if self.skips is repeated_words else name}, arrays

    def _set_state(self, header: dict[str, Any], arrays: Arrays, features: FeatureSource) -> None:
        super()._set_state(header, arrays, features)
        name = record({"skips": optional(text)})(header, "")["skips"]
        if name is not None:
            self.skips = _missing_skips(name)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not callable(self.skips):
            raise ValueError(f"'skips' of SkipChainCRF must be a function, got {self.skips!r}")

    def _graphs(self, X: Any, grow: bool) -> Graphs:
        features, offsets = self._encode(X, grow)
        labels = len(self.classes_)
        far = [np.zeros((0, 2), np.int64)]
        for i, x in enumerate(X):
            begin, end = offsets[i : i + 2]
            found = self.skips(x)
            if not isinstance(found, Iterable):
                raise ValueError(f"skips of sequence {i} must be pairs of tokens, got {found!r}")
            skips = [tuple(pair) if isinstance(pair, (tuple, list)) else pair for pair in found]
            far.append(begin + edge_array(skips, f"skips of sequence {i}", int(end - begin)))
        shape = (labels, labels)
        groups = [
            EdgeGroup(None, self._pairs(offsets, 1), shape),
            EdgeGroup(None, np.concatenate(far), shape),
        ]
        tokens = np.arange(int(offsets[-1]))
        graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        data = GraphData(graph_of, len(offsets) - 1, [NodeGroup(features, tokens, labels)], groups, self.n_jobs)
        return Graphs(data, [tokens], [offsets])

    def predict(self, X: Any) -> list[list[Any]]:
        """The best labels of every sequence."""
        return LabelLists(labels.tolist() for labels in self._decode(X)[0])

    def predict_marginals(self, X: Any) -> list[Floats]:
        """Probabilities of the labels of every token, a list of arrays [T, L]."""
        return self._beliefs(X)[0]

    def score(self, X: Any, y: Any) -> float:
        """Fraction of the tokens that :meth:`predict` labels correctly; unknown labels as in :meth:`GraphCRF.score`."""
        return share_right(y, self.predict(X), names=self._names)


class FactorialCRF(_SequenceEstimator):
    r"""Several labels per token, predicted jointly: chains over the same tokens, connected at each token.

    .. math::

        p(y \mid x) \propto \exp \sum_t \Bigl( \sum_k w^k_{y^k_t} \cdot f_t + \sum_k a^k(y^k_{t-1}, y^k_t)
            + \sum_k \sum_{l \in links} b^{kl}(y^k_t, y^{k+1}_{t+l}) \Bigr)

    The labels of a token are a tuple, one for each column. The treewidth is that of two chains side by side, so exact
    inference takes :math:`L_1^2 L_2` operations per token for two columns.

    Parameters
    ----------
    features : as for :class:`crfkit.CRF`
        Features of tokens.
    min_freq : float, default=0
        Attributes that occur less often are ignored; 0 and 1 keep all.
    all_possible_states : bool, default=False
        Whether attributes also have weights for labels with which they were not seen.
    links : sequence of int, default=(0,)
        Token t of a column is connected to the tokens t + link of the next column. With two columns, (0, -1) or (0, 1)
        costs exact inference no more than (0,); more links cost more.
    loss, inference, decoding, c1, c2, entropy_weight, max_iter, tol, n_jobs, verbose, callback
        As for :class:`GraphCRF`.

    Attributes
    ----------
    classes_ : list of arrays, the labels of each column

    Examples
    --------
    >>> X = [["the", "dog", "barks"], ["a", "cat"]]
    >>> y = [[("D", "B"), ("N", "I"), ("V", "O")], [("D", "B"), ("N", "I")]]
    >>> FactorialCRF().fit(X, y).predict([["the", "cat", "barks"]])
    [[('D', 'B'), ('N', 'I'), ('V', 'O')]]
    """

    _kind = "factorial_crf"

    links: Sequence[int]

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        min_freq: float = 0,
        all_possible_states: bool = False,
        links: Sequence[int] = (0,),
        loss: str = "likelihood",
        inference: str | Inference = "exact",
        decoding: str | Inference | None = None,
        c1: float = 0.0,
        c2: float = 1.0,
        entropy_weight: float = 0.0,
        max_iter: int | None = None,
        tol: float = 1e-5,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self._keep(locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = isinstance(self.links, (tuple, list)) and all(type(link) is int for link in self.links)
        if not known or len(set(self.links)) < max(1, len(self.links)):
            raise ValueError(f"'links' of FactorialCRF must be one or more distinct ints, got {self.links!r}")

    def _set_state(self, header: dict[str, Any], arrays: Arrays, features: FeatureSource) -> None:
        super()._set_state(header, arrays, features)
        if len(self.classes_) * len(self.links) > arrays["weights"].size or max(map(abs, self.links)) > 2**31:
            raise ValueError("'params.links' refer to more weights than there are")
        self.links = tuple(self.links)

    def _columns(self, y: Any) -> list[list[Any]]:
        for i, s in enumerate(y):
            for t, token in enumerate(s or ()):
                if token is not None and not isinstance(token, (tuple, list)):
                    raise ValueError(
                        f"sequence {i}, position {t}: the labels of a token must be a tuple, got {token!r}"
                    )
        width = next((len(token) for s in y if s is not None for token in s if token is not None), 0)
        if width < 1:
            raise ValueError("there are no labels to learn from")
        for i, s in enumerate(y):
            for t, token in enumerate(s or ()):
                if token is not None and len(token) != width:
                    raise ValueError(f"sequence {i}, position {t}: a token must have {width} labels, got {len(token)}")
        blank = (None,) * width
        return [[None if s is None else [(blank if x is None else x)[k] for x in s] for s in y] for k in range(width)]

    def _take_labels(self, kinds: list[tuple[Any, ...]]) -> None:
        if not kinds:
            raise ValueError("there are no labels")
        self.classes_ = [label_array(labels) for labels in kinds]

    @property
    def _labels(self) -> list[tuple[Any, ...]]:
        return [tuple(c.tolist()) for c in self.classes_]

    def _shapes(self) -> list[tuple[int, ...]]:
        sizes = [len(c) for c in self.classes_]
        out: list[tuple[int, ...]] = [(self._encoder.n_attributes[0], n) for n in sizes]
        return out + [(n, n) for n in sizes] + [pair for pair in itertools.pairwise(sizes) for _ in self.links]

    def _graphs(self, X: Any, grow: bool) -> Graphs:
        features, offsets = self._encode(X, grow)
        sizes = [len(c) for c in self.classes_]
        kinds, tokens = len(sizes), int(offsets[-1])
        variables = [k * tokens + np.arange(tokens) for k in range(kinds)]
        steps = self._pairs(offsets, 1)
        nodes = [NodeGroup(features, variables[k], sizes[k]) for k in range(kinds)]
        edges = [EdgeGroup(None, steps + k * tokens, (sizes[k], sizes[k])) for k in range(kinds)]
        for k, link in itertools.product(range(kinds - 1), self.links):
            ends = self._pairs(offsets, link) + tokens * np.array([k, k + 1])
            edges.append(EdgeGroup(None, ends, (sizes[k], sizes[k + 1])))
        graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        data = GraphData(np.tile(graph_of, kinds), len(offsets) - 1, nodes, edges, self.n_jobs)
        return Graphs(data, variables, [offsets] * kinds)

    def predict(self, X: Any) -> list[list[tuple[Any, ...]]]:
        """The best labels of every sequence, a tuple for every token."""
        columns = self._decode(X)
        rows = ([labels.tolist() for labels in graph] for graph in zip(*columns, strict=True))
        return LabelLists(list(zip(*row, strict=True)) for row in rows)

    def predict_marginals(self, X: Any) -> list[tuple[Floats, ...]]:
        """Probabilities of the labels of every token, a tuple of arrays [T, L_k] for every sequence."""
        return list(zip(*self._beliefs(X), strict=True))

    def score(self, X: Any, y: Any) -> float:
        """Fraction of the tokens that :meth:`predict` labels correctly in all columns; unknown labels do not count."""
        return share_right(y, self.predict(X), names=self._names, columns=len(self.classes_))
