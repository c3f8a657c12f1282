"""The scores of a linear chain, the input of every inference function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.scores import as_scores, check_scores, check_shapes, check_tokens
from crfkit.base.shown import Record

Floats = NDArray[np.floating[Any]]


class Lattice(NamedTuple):
    """Potentials as the core takes them: start, end and forbidden labels are in the scores.

    Attributes
    ----------
    unary : array [N, L]
    pairwise : array [1, L, L], or [E, L, L] if ``per_step``
    per_step : bool
    offsets : int64 array [S + 1]
        First token of each sequence, and N.
    """

    unary: Floats
    pairwise: Floats
    per_step: bool
    offsets: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Potentials(Record):
    r"""Scores of the labellings of one sequence, or of a ragged batch of sequences.

    A labelling :math:`y` of a sequence of T tokens has the score

    .. math::

        s(y) = \text{start}_{y_0} + \sum_{t=0}^{T-1} U_t(y_t)
             + \sum_{t=0}^{T-2} A_t(y_t, y_{t+1}) + \text{end}_{y_{T-1}}

    and the probability :math:`p(y) = e^{s(y)} / Z`. A score of minus infinity forbids the label or transition.

    Parameters
    ----------
    unary : array [T, L]
        Scores of the labels of each token. For a batch, the tokens of all sequences one after another.
    pairwise : array [L, L] or [T - 1, L, L]
        Scores of label i followed by label j, the same at every step or one matrix per step (for a
        batch, the steps of all sequences one after another).
    start, end : array [L], optional
        Scores of the first and of the last label.
    allowed : bool array [T, L], optional
        Labels that a token may have.
    offsets : int array [S + 1], optional
        Given for a batch: the first token of each sequence, and the number of tokens.

    Raises
    ------
    ValueError
        If shapes do not fit, or a score is NaN or plus infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from crfkit import chain
    >>> p = chain.Potentials(unary=[[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]], pairwise=[[1.0, 0.0], [0.0, 1.0]])
    >>> chain.decode(p)
    array([1, 1, 1], dtype=int32)
    >>> batch = chain.Potentials.batch([p, p])
    >>> len(batch), batch.lengths.tolist()
    (2, [3, 3])
    """

    unary: Floats
    pairwise: Floats
    start: Floats | None = None
    end: Floats | None = None
    allowed: NDArray[np.bool_] | None = None
    offsets: NDArray[np.int64] | None = None

    def __init__(
        self,
        unary: ArrayLike,
        pairwise: ArrayLike,
        start: ArrayLike | None = None,
        end: ArrayLike | None = None,
        allowed: ArrayLike | None = None,
        offsets: ArrayLike | None = None,
    ) -> None:
        scores = as_scores({"unary": unary, "pairwise": pairwise, "start": start, "end": end})
        fields: dict[str, Any] = {
            **scores,
            "allowed": None if allowed is None else np.ascontiguousarray(allowed, dtype=bool),
            "offsets": None if offsets is None else np.ascontiguousarray(offsets, dtype=np.int64),
        }
        for name in ("unary", "pairwise", "start", "end", "allowed", "offsets"):
            object.__setattr__(self, name, fields.get(name))
        self._check_shapes()
        check_scores(scores, self.offsets)

    def _check_shapes(self) -> None:
        check_tokens(self.unary, self.offsets)
        tokens, labels = self.unary.shape
        edges = int(np.maximum(self.lengths - 1, 0).sum())
        expected = [(labels, labels), (edges, labels, labels)]
        if self.pairwise.shape not in expected:
            raise ValueError(f"'pairwise' must have shape {expected[0]} or {expected[1]}, got {self.pairwise.shape}")
        check_shapes(self, {"start": (labels,), "end": (labels,), "allowed": (tokens, labels)})

    def cross_entropy(self, other: Potentials, n_jobs: int | None = None) -> Any:
        r"""Cross-entropy of these potentials' distribution p and that of others, q, in nats.

        .. math::

            H(p, q) = -\sum_y p(y) \log q(y) = \log Z_q - E_p[s_q(y)]

        Parameters
        ----------
        other : Potentials
            Of the same shape.
        n_jobs : int, optional
            Threads; -1 or None for all cores.

        Returns
        -------
        float, or float64 array [S] for a batch
            Infinite if p allows a labelling that q forbids.

        Examples
        --------
        >>> p = Potentials([[0.0, 0.0]] * 3, [[0.0, 0.0], [0.0, 0.0]])
        >>> round(p.cross_entropy(p), 6) == round(float(np.log(8)), 6)
        True
        """
        from crfkit.chain.divergence import cross_entropy

        found = cross_entropy(self, other, n_jobs)
        return found if self.offsets is not None else float(found[0])

    def kl(self, other: Potentials, n_jobs: int | None = None) -> Any:
        r"""Kullback-Leibler divergence of these potentials' distribution p from that of others, q.

        .. math::

            KL(p \,\|\, q) = \sum_y p(y) \log \frac{p(y)}{q(y)} = H(p, q) - H(p)

        Parameters and result are those of :meth:`cross_entropy`.

        Examples
        --------
        >>> p = Potentials([[0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]])
        >>> q = Potentials([[0.0, np.log(3.0)]], [[0.0, 0.0], [0.0, 0.0]])
        >>> p.kl(p), round(p.kl(q), 4)
        (0.0, 0.1438)
        """
        from crfkit.chain.entropy import entropy

        found = np.maximum(self.cross_entropy(other, n_jobs) - entropy(self, n_jobs), 0.0)
        return found if self.offsets is not None else float(found)

    def count(self, n_jobs: int | None = None) -> Any:
        """How many labellings are allowed: a float, or a float64 array [S] for a batch.

        Examples
        --------
        >>> Potentials([[0.0, 0.0]] * 3, [[0.0, -np.inf], [0.0, 0.0]]).count()
        4.0
        """
        from crfkit.chain.divergence import count

        found = count(self, n_jobs)
        return found if self.offsets is not None else float(found[0])

    def split(self, array: NDArray[Any], axis: int = 0) -> list[NDArray[Any]]:
        """The parts of an array over tokens that belong to the sequences of a batch."""
        offsets = np.array([0, len(self.unary)]) if self.offsets is None else self.offsets
        parts = np.split(array, offsets[1:], axis=axis)
        return parts[: len(offsets) - 1]

    @classmethod
    def batch(cls, sequences: Sequence[Potentials]) -> Potentials:
        """Joins the potentials of single sequences into a batch.

        Shared transition scores stay shared if they are the same for all.

        Examples
        --------
        >>> p = Potentials([[0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]])
        >>> Potentials.batch([p, p]).offsets.tolist()
        [0, 1, 2]
        """
        if not sequences:
            raise ValueError("a batch needs at least one sequence")
        if any(p.offsets is not None for p in sequences):
            raise ValueError("a batch is made of single sequences, not of batches")
        lattices = [p.lattice for p in sequences]
        first = lattices[0]
        for i, lattice in enumerate(lattices):
            if lattice.unary.shape[1] != first.unary.shape[1]:
                raise ValueError(
                    f"sequence {i} has {lattice.unary.shape[1]} labels, sequence 0 has {first.unary.shape[1]}"
                )
        shared = all(
            not x.per_step and (x.pairwise is first.pairwise or np.array_equal(x.pairwise, first.pairwise))
            for x in lattices
        )
        if shared:
            pairwise = first.pairwise[0]
        else:
            pairwise = np.concatenate(
                [
                    x.pairwise if x.per_step else np.repeat(x.pairwise, max(0, len(x.unary) - 1), axis=0)
                    for x in lattices
                ]
            )
        offsets = np.cumsum([0] + [len(x.unary) for x in lattices])
        return cls(np.concatenate([x.unary for x in lattices]), pairwise, offsets=offsets)

    @property
    def n_labels(self) -> int:
        """Number of labels, L."""
        return int(self.unary.shape[1])

    # What the lattice says, in terms of labels; of a higher order it speaks of slots (crfkit.chain.ordered).

    def labels_of(self, path: NDArray[Any], tokens: Any = None) -> NDArray[np.int32]:
        """The labels of a path through the lattice [..., N], at all tokens or at those given."""
        return path

    def slots_of(self, path: NDArray[Any]) -> NDArray[np.int64]:
        """The path through the lattice of a labelling [N]; -1 where there is none."""
        return path

    def masked(self, allowed: NDArray[np.bool_]) -> Potentials:
        """Only the labels [N, L] that are allowed."""
        whole = allowed if self.allowed is None else allowed & self.allowed
        return Potentials(self.unary, self.pairwise, self.start, self.end, whole, self.offsets)

    def by_label(self, nodes: Floats) -> Floats:
        """Probabilities of the lattice's nodes, summed by label, [N, L]."""
        return nodes

    def by_pair(self, nodes: Floats) -> Floats | None:
        """Probabilities of label pairs [E, L, L] from those of the nodes; None if they do not determine them."""
        return None

    def shorter_entropies(self, n_jobs: int | None = None) -> list[NDArray[np.float64]]:
        """Entropies [N] of fewer labels than a node of the lattice stands for: none."""
        return []

    @property
    def is_ordered(self) -> bool:
        """Whether a label depends on more than the one before."""
        return False

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, [S]."""
        if self.offsets is None:
            return np.array([len(self.unary)], dtype=np.int64)
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """Number of sequences, 1 if this is not a batch."""
        return 1 if self.offsets is None else len(self.offsets) - 1

    def __getitem__(self, i: int) -> Potentials:
        """Sequence ``i`` of a batch, by itself."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no sequence {i} in a batch of {len(self)}")
        if self.offsets is None:
            return self
        i %= len(self)
        begin, end = int(self.offsets[i]), int(self.offsets[i + 1])
        pairwise = self.pairwise
        if pairwise.ndim == 3:
            edges = np.concatenate([[0], np.cumsum(np.maximum(self.lengths - 1, 0))])
            pairwise = pairwise[edges[i] : edges[i + 1]]
        allowed = None if self.allowed is None else self.allowed[begin:end]
        return Potentials(self.unary[begin:end], pairwise, self.start, self.end, allowed)

    def __iter__(self) -> Iterator[Potentials]:
        return (self[i] for i in range(len(self)))

    @cached_property
    def lattice(self) -> Lattice:
        """The same scores in the form that the core takes."""
        offsets = self.offsets
        if offsets is None:
            offsets = np.array([0, len(self.unary)], dtype=np.int64)
        unary = self.unary
        if self.start is not None or self.end is not None or self.allowed is not None:
            unary = unary.copy()
            filled = np.diff(offsets) > 0
            if self.start is not None:
                unary[offsets[:-1][filled]] += self.start
            if self.end is not None:
                unary[offsets[1:][filled] - 1] += self.end
            if self.allowed is not None:
                unary[~self.allowed] = -np.inf
        per_step = self.pairwise.ndim == 3
        pairwise = self.pairwise if per_step else self.pairwise[np.newaxis]
        return Lattice(unary, pairwise, per_step, offsets)
