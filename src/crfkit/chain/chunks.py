"""Exact probabilities of chunks: that one of a type begins at one token and ends at another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import inner_tokens, pieces
from crfkit.chain.constraints import chunk_part, goes_on
from crfkit.chain.inference import marginals, reachable
from crfkit.chain.potentials import Floats, Potentials

Ints = NDArray[np.int64]
_PIECE = 1 << 22  # probabilities of label pairs, or scores of slots, held at a time
_STRETCH = 64  # tokens of a stretch


class Chunks(NamedTuple):
    """Chunks of a batch, one after another.

    Attributes
    ----------
    sequence, kind, start, end : int64 arrays [n]
        ``kind`` is a number of ``ChunkLabels.kinds``; ``end`` is the token after the last.
    """

    sequence: Ints
    kind: Ints
    start: Ints
    end: Ints


class ChunkLabels:
    """Which labels continue a chunk, by the rules of :func:`crfkit.metrics.spans`.

    A chunk is a maximal run of labels each of which continues the one before.

    Attributes
    ----------
    kinds : list
        Types of chunks.
    kind : int64 array [L]
        Number of each label's type, -1 for O.
    goes_on : bool array [L, L]
        Whether label j continues the chunk of the label i before it.
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        parts = [chunk_part(label) for label in labels]
        self.kinds = list(dict.fromkeys(kind for tag, kind in parts if tag != "O"))
        self.kind = np.array([self.kinds.index(kind) if tag != "O" else -1 for tag, kind in parts], np.int64)
        self.goes_on = np.array([[goes_on(a, b) for b in parts] for a in parts], bool)
        rows = [np.flatnonzero(self.kind == k) for k in range(len(self.kinds))]
        width = max(map(len, rows), default=0)
        # labels of each type [K, M], the first one again where there are fewer; of these, which count, and which go on
        self.members = np.array([np.resize(row, width) for row in rows], np.int64).reshape(len(rows), width)
        self.counts = np.array([np.arange(width) < len(row) for row in rows], bool).reshape(len(rows), width)
        pairs = self.counts[:, :, None] & self.counts[:, None, :]
        self.pairs = pairs & self.goes_on[self.members[:, :, None], self.members[:, None, :]]

    def find(self, path: NDArray[np.integer[Any]], offsets: Ints) -> Chunks:
        """The chunks of labellings [N], those of all sequences one after another.

        >>> found = ChunkLabels(["B-X", "I-X", "O"]).find(np.array([0, 1, 2, 0, 0]), np.array([0, 4, 5]))
        >>> found.sequence.tolist(), found.start.tolist(), found.end.tolist()
        ([0, 0, 1], [0, 3, 0], [2, 4, 1])
        """
        new = np.ones(len(path) + 1, bool)
        new[1:-1] = ~self.goes_on[path[:-1], path[1:]]
        new[offsets] = True
        first = np.flatnonzero(new)
        begin, end = first[:-1], first[1:]
        chunk = self.kind[path[begin]] >= 0
        begin, end = begin[chunk], end[chunk]
        sequence = np.searchsorted(offsets, begin, side="right") - 1
        shift = offsets[sequence]
        return Chunks(sequence, self.kind[path[begin]], begin - shift, end - shift)


class _Walk:
    r"""From the first tokens of chunks on, token by token, with the probabilities of label pairs.

    By the Markov property, with f(t, j) the probability that a chunk of the type begins at a, goes on up to t, and has
    the label j there,

    .. math:: f(t + 1, j) = \sum_i f(t, i) P(y_{t+1} = j, \text{goes on} \mid y_t = i)

    and the chunk ends after t with probability
    :math:`\sum_i f(t, i) (1 - P(\text{goes on} \mid y_t = i))`. All sums are over the labels of one type.
    """

    def __init__(self, p: Potentials, labels: ChunkLabels, n_jobs: int | None) -> None:
        assert p.offsets is not None
        found = marginals(p, n_jobs, pairs=True)
        self.nodes, self.edges, self.labels, self.offsets = found.nodes, found.edges, labels, p.offsets
        inner = inner_tokens(p.offsets)
        self.into = np.where(inner, np.cumsum(inner) - 1, -1)  # edge into each token
        self.last = np.append(~inner[1:], True) if len(inner) else inner

    def pairs(self, token: Ints, kind: Ints) -> Floats:
        """P(labels i at a token and j at the next one, which goes on), [n, M, M]."""
        members = self.labels.members[kind]
        edge = self.into[token + 1]
        found: Floats = self.edges[edge[:, None, None], members[:, :, None], members[:, None, :]]
        found *= self.labels.pairs[kind]
        return found

    def begin(self, token: Ints, kind: Ints) -> Floats:
        """P(label j at a token, where a chunk begins), [n, M]."""
        f = self.nodes[token[:, None], self.labels.members[kind]] * self.labels.counts[kind]
        inner = self.into[token] >= 0
        f[inner] -= self.pairs(token[inner] - 1, kind[inner]).sum(axis=1)
        found: Floats = np.maximum(f, 0.0)
        return found

    def step(self, token: Ints, kind: Ints, f: Floats) -> tuple[Floats, Floats]:
        """P(the chunk ends after the token) [n], and f at the next one [n, M]."""
        inner = np.flatnonzero(~self.last[token])
        on = np.zeros((*f.shape, f.shape[1]))
        on[inner] = self.pairs(token[inner], kind[inner])
        node = self.nodes[token[:, None], self.labels.members[kind]]
        on = np.divide(on, node[:, :, None], out=np.zeros_like(on), where=node[:, :, None] > 0)
        stops = np.maximum(1.0 - on.sum(axis=2), 0.0)
        after = (f[:, :, None] * on).sum(axis=1)  # recursion: chunk
        return np.minimum((f * stops).sum(axis=1), 1.0), after


def _parts(p: Potentials) -> Iterator[tuple[slice, Potentials]]:
    """Sequences whose pairs of labels fit in memory, at least one at a time, and their potentials."""
    x = p.lattice
    most = max(1, _PIECE // p.n_labels**2)
    edges = np.concatenate([[0], np.cumsum(np.maximum(np.diff(x.offsets) - 1, 0))])
    for begin, end in pieces(x.offsets, most):
        a, b = x.offsets[begin], x.offsets[end]
        pairwise = x.pairwise[edges[begin] : edges[end]] if x.per_step else x.pairwise[0]
        yield slice(begin, end), Potentials(x.unary[a:b], pairwise, offsets=x.offsets[begin : end + 1] - a)


def chunk_probabilities(
    p: Potentials, labels: ChunkLabels, chunks: Chunks, n_jobs: int | None = None
) -> NDArray[np.float64]:
    """Exact probability of each of the given chunks, [n]: that the labelling has it with exactly these boundaries.

    One pass over the lattices for all chunks together.

    Examples
    --------
    >>> labels = ChunkLabels(["B-X", "I-X", "O"])
    >>> p = Potentials(np.zeros((2, 3)), np.zeros((3, 3)), offsets=[0, 2])
    >>> one = Chunks(*(np.array([x]) for x in (0, 0, 0, 1)))
    >>> (9 * chunk_probabilities(p, labels, one)).round(6)  # B-X or I-X, then anything but I-X
    array([4.])
    """
    if p.is_ordered:
        return _ordered_probabilities(p, labels, chunks, n_jobs)
    out = np.empty(len(chunks.start))
    for some, part in _parts(p):
        where = np.flatnonzero((chunks.sequence >= some.start) & (chunks.sequence < some.stop))
        if not len(where):
            continue
        walk = _Walk(part, labels, n_jobs)
        kind = chunks.kind[where]
        token = walk.offsets[chunks.sequence[where] - some.start] + chunks.start[where]
        left = chunks.end[where] - chunks.start[where]
        f = walk.begin(token, kind)
        while len(where):
            ends, f = walk.step(token, kind, f)
            done = left == 1
            out[where[done]] = ends[done]
            where, kind, token, left, f = (x[~done] for x in (where, kind, token + 1, left - 1, f))
    return out


class _Stretches:
    r"""A chain of slots, of which a stretch between two cuts can stand for the whole.

    The messages of what comes before a stretch are added to the scores of its first token, and those of what comes
    after it to its last, so that, for restrictions that lie within it,

    .. math:: Z(\text{stretch, restricted}) / Z(\text{stretch}) = Z(\text{restricted}) / Z

    Messages follow from the marginals of one stretch after another.
    """

    def __init__(self, p: Any, n_jobs: int | None) -> None:
        x = p.lattice
        self.n_jobs, self.unary, self.per_step = n_jobs, x.unary, x.per_step
        self.pairwise = x.pairwise if x.per_step else x.pairwise[0]
        last = len(x.unary) - 1
        self.cuts = np.append(np.arange(0, max(1, last + 1 - _STRETCH), _STRETCH), last)
        n = len(self.cuts)
        self.before, self.after = np.zeros((2, n, x.unary.shape[1]))
        for k in range(1, n - 1):
            self.before[k] = self._message(k - 1, k, 0, self.before[k - 1])
        for k in range(n - 2, 0, -1):
            self.after[k] = self._message(k, k + 1, -1, self.after[k + 1])

    def _message(self, a: int, b: int, known: int, message: Floats) -> Floats:
        """What a stretch says at its other end, given the message at its first (0) or last (-1) token."""
        u = self.unary[self.cuts[a] : self.cuts[b] + 1].copy()
        u[known] += message
        part = Potentials(u, self.pairs(a, b), offsets=np.array([0, len(u)]))
        nodes = marginals(part, self.n_jobs).nodes[-1 - known].astype(np.float64)
        here = nodes > 0
        out = np.full(len(nodes), -np.inf)
        out[here] = np.log(nodes[here]) - self.unary[self.cuts[a if known else b], here]
        return out

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The cuts around the tokens ``first`` to ``last``."""
        a, b = np.searchsorted(self.cuts, first, side="right") - 1, np.searchsorted(self.cuts, last)
        return min(int(a), len(self.cuts) - 2), max(int(b), 1)

    def scores(self, a: int, b: int) -> Floats:
        """Of the slots from one cut to another, with the messages."""
        u: Floats = self.unary[self.cuts[a] : self.cuts[b] + 1].copy()
        u[0] += self.before[a]
        u[-1] += self.after[b]
        return u

    def pairs(self, a: int, b: int) -> Floats:
        """Of the transitions from one cut to another."""
        found: Floats = self.pairwise[self.cuts[a] : self.cuts[b]] if self.per_step else self.pairwise
        return found


def _ordered_probabilities(
    p: Any, labels: ChunkLabels, chunks: Chunks, n_jobs: int | None = None
) -> NDArray[np.float64]:
    """The same where labels depend on more than one before: slots know the label before, so that they are masked."""
    out = np.empty(len(chunks.start))
    for s in np.unique(chunks.sequence).tolist():
        one, mine = p[s], np.flatnonzero(chunks.sequence == s)
        label, before = one.slots[:, 0], one.slots[:, 1]
        goes_on = (before >= 0) & labels.goes_on[before, label]
        whole = _Stretches(one, n_jobs)
        places: dict[tuple[int, int], list[int]] = {}
        for k in mine.tolist():
            last = min(int(chunks.end[k]), len(label) - 1)
            places.setdefault(whole.around(int(chunks.start[k]), last), []).append(k)
        for (a, b), found in places.items():
            u, pairs, first = whole.scores(a, b), whole.pairs(a, b), int(whole.cuts[a])
            kind, on = labels.kind[label[first : first + len(u)]], goes_on[first : first + len(u)]
            most = max(1, _PIECE // max(u.size, pairs.size if whole.per_step else 0))
            for some in (found[i : i + most] for i in range(0, len(found), most)):
                rows = np.repeat(u[None], len(some) + 1, axis=0)  # the last one is not restricted
                for row, k in zip(rows, some, strict=False):
                    start, end = int(chunks.start[k]) - first, int(chunks.end[k]) - first
                    row[start:end][kind[start:end] != chunks.kind[k]] = -np.inf
                    row[start + 1 : end][~on[start + 1 : end]] = -np.inf
                    for border in (start, end):
                        row[border : border + 1][on[border : border + 1]] = -np.inf
                offsets = np.arange(len(rows) + 1) * len(u)
                steps = np.tile(pairs, (len(rows), 1, 1)) if whole.per_step else pairs
                log_z = reachable(Potentials(rows.reshape(-1, u.shape[1]), steps, offsets=offsets), n_jobs)
                out[some] = np.exp(log_z[:-1] - log_z[-1])
    return out


def likely_chunks(
    p: Potentials, labels: ChunkLabels, threshold: float, n_jobs: int | None = None
) -> tuple[Chunks, NDArray[np.float64]]:
    """All chunks whose probability is at least ``threshold``, in order, and their probabilities.

    They may overlap. The search abandons a chunk as soon as the probability that it extends this far falls below the
    threshold.

    Examples
    --------
    >>> labels = ChunkLabels(["B-X", "I-X", "O"])
    >>> p = Potentials([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.zeros((3, 3)), offsets=[0, 2])
    >>> found, probability = likely_chunks(p, labels, 0.3)
    >>> found.start.tolist(), found.end.tolist(), probability.round(2).tolist()
    ([0, 0], [1, 2], [0.4, 0.55])
    """
    if p.is_ordered:
        raise ValueError("'threshold' is for models of the first order; leave it out for the spans of the best labels")
    found: list[tuple[Any, ...]] = []
    for some, part in _parts(p):
        walk = _Walk(part, labels, n_jobs)
        tokens, kinds = len(part.unary), len(labels.kinds)
        start, kind = (x.ravel() for x in np.indices((tokens, kinds)))
        token, f = start, walk.begin(start, kind)
        while len(start):
            keep = f.sum(axis=1) >= threshold
            start, kind, token, f = (x[keep] for x in (start, kind, token, f))
            ends, f = walk.step(token, kind, f)
            hit = ends >= threshold
            found.append((start[hit], token[hit] + 1, kind[hit], ends[hit], some.start, walk.offsets))
            inner = ~walk.last[token]
            start, kind, token, f = (x[inner] for x in (start, kind, token + 1, f))
    rows: list[Any] = [[], [], [], [], []]
    for start, end, kind, ends, first, offsets in found:
        sequence = np.searchsorted(offsets, start, side="right") - 1
        shift = offsets[sequence]
        for row, x in zip(rows, (sequence + first, kind, start - shift, end - shift, ends), strict=True):
            row.append(x)
    columns = [np.concatenate(row) if row else np.empty(0, np.int64) for row in rows]
    order = np.lexsort((columns[1], columns[3], columns[2], columns[0]))
    *where, chances = (x[order] for x in columns)
    return Chunks(*where), chances.astype(np.float64)
