"""The maximum-entropy Markov model."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import inner_tokens
from crfkit.chain.beams import Beam
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import LabelLists
from crfkit.estimators.penalised import PenalisedChain
from crfkit.features.encoders import FeatureSource
from crfkit.model.chain_model import LocalChainModel
from crfkit.training.objective import Problem
from crfkit.training.optimiser import Algorithm, Callback
from crfkit.training.registry import AlgorithmName


def as_decisions(data: Dataset, labels: NDArray[np.int32], layout: Layout) -> tuple[Dataset, Layout]:
    """Every token as a sequence of its own, whose attributes include the label before.

    The weights are those of ``layout``, in the same order: rows of state weights, then one row for each label before,
    one for the start, and one for each edge attribute with each label before.
    """
    n, n_tokens = layout.n_labels, data.n_tokens
    state_rows = len(layout.state_ptr) - 1
    has = layout.transition.reshape(n, n) >= 0
    counts: list[Any] = [np.diff(layout.state_ptr.astype(np.int64)), has.sum(axis=1), [n]]
    columns: list[Any] = [layout.state_label, np.nonzero(has)[1], np.arange(n)]
    if len(layout.edge_ptr):
        lengths: Any = np.diff(layout.edge_ptr.astype(np.int64))
        rows = np.repeat(np.arange(len(layout.edge_ptr) - 1), lengths)
        before = layout.edge_pair.astype(np.int64) // n
        counts.append(np.bincount(rows * n + before, minlength=(len(layout.edge_ptr) - 1) * n))
        columns.append(layout.edge_pair.astype(np.int64) % n)
    nothing = np.zeros(0, np.uint32)
    flat = Layout(
        n,
        np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.uint32),
        np.concatenate(columns).astype(np.uint16),
        np.full(n * n, -1, np.int32),
        -1,
        -1,
        nothing,
        nothing,
        layout.size,
        layout.size,
    )
    previous = np.full(n_tokens, n, np.int64)
    inner = inner_tokens(data.offsets)
    at = np.flatnonzero(inner)
    previous[at] = labels[at - 1]
    token = np.repeat(np.arange(n_tokens), np.diff(data.ptr))
    unknown = 2**32 - 1
    parts: list[tuple[Any, Any, Any]] = [(token, np.where(data.attr < state_rows, data.attr, unknown), data.value)]
    parts.append((np.arange(n_tokens), state_rows + previous, None))
    if data.edge_ptr is not None and data.edge_attr is not None and len(layout.edge_ptr):
        owner = np.repeat(np.arange(n_tokens), np.diff(data.edge_ptr))
        keep = inner[owner] & (data.edge_attr < len(layout.edge_ptr) - 1)
        owner, attr = owner[keep], data.edge_attr[keep].astype(np.int64)
        parts.append((owner, state_rows + n + 1 + attr * n + previous[owner], None))
    owners = np.concatenate([p[0] for p in parts])
    order = np.argsort(owners, kind="stable")
    attrs = np.concatenate([p[1] for p in parts])[order].astype(np.uint32)
    value = None
    if data.value is not None:
        value = np.concatenate([np.ones(len(p[0])) if p[2] is None else p[2] for p in parts])[order]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=n_tokens))]).astype(np.int64)
    return Dataset(np.arange(n_tokens + 1), ptr, attrs, value), flat


class MEMM(PenalisedChain):
    r"""Maximum-entropy Markov model: one decision per token, given the previous label and the input.

    .. math::

        p(y \mid x) = \prod_t p(y_t \mid y_{t-1}, x), \qquad
        p(j \mid i, x) = \frac{e^{u_t(j) + a_t(i, j)}}{\sum_k e^{u_t(k) + a_t(i, k)}}

    The features are the CRF's, but probabilities are normalised at each step instead of once for the sequence.
    Training is therefore a logistic regression given the true previous label. The price is label bias: after a label
    with few successors, later evidence cannot correct that label.

    Parameters and optimisers are those of :class:`~crfkit.CRF`.

    Examples
    --------
    >>> from crfkit import MEMM
    >>> memm = MEMM().fit([["two", "red", "apples"], ["one", "pear"]], [["QTY", "ADJ", "NAME"], ["QTY", "NAME"]])
    >>> memm.predict([["two", "pear"]])
    [['QTY', 'NAME']]
    >>> memm.predict([["two", "pear"]], greedy=True)
    [['QTY', 'NAME']]
    """

    _kind: ClassVar[str] = "memm"
    _model_class = LocalChainModel
    _needs_labels = True

    def __init__(
        self,
        features: FeatureSource = "auto",
        *,
        algorithm: AlgorithmName | Algorithm = "lbfgs",
        c1: float = 0.0,
        c2: float = 1.0,
        min_freq: float = 0,
        all_possible_states: bool = False,
        all_possible_transitions: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-5,
        early_stopping: int | None = None,
        dtype: str = "float32",
        random_state: int | None = None,
        n_jobs: int | None = -1,
        verbose: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self._keep(locals())

    def _as_trained(self, problem: Problem) -> tuple[Layout, Problem]:
        """The layout without an end, and decisions in place of sequences."""
        layout, data = problem.layout, problem.data
        if layout.end >= 0:  # the last of the weights before the edges'
            n = layout.n_labels
            layout = replace(layout, end=-1, edge_first=layout.edge_first - n, size=layout.size - n)
        decisions, flat = as_decisions(data, problem.labels, layout)
        weights = problem.weights
        if weights is not None:
            weights = np.repeat(weights, np.diff(data.offsets))
        return layout, replace(problem, layout=flat, data=decisions, weights=weights)

    def predict(
        self, X: Any, *, given: Any = None, beam: Beam | str | None = None, by: str = "path", greedy: bool = False
    ) -> list[list[Any]]:
        """The best labels of every sequence: by Viterbi, or with ``greedy``, token by token."""
        if not greedy:
            return super().predict(X, given=given, beam=beam, by=by)
        self._require_fitted()
        labels = self.model_.labels
        out = LabelLists()
        for p in self.model_.potentials(X, self.n_jobs):
            assert p.offsets is not None
            edge = 0
            for a, b in zip(p.offsets[:-1].tolist(), p.offsets[1:].tolist(), strict=True):
                path: list[int] = []
                for t in range(a, b):
                    row = p.unary[t] if t == a else p.pairwise[edge + t - a - 1, path[-1]] + p.unary[t]
                    path.append(int(np.argmax(row)))
                edge += max(0, b - a - 1)
                out.append([labels[j] for j in path])
        return out
