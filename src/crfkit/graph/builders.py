"""Factor graphs of common shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.graph.checks import edge_array, float_array, int_array
from crfkit.graph.engine import Engine, Scores, pointers
from crfkit.graph.factor_graph import FactorGraph

Floats = NDArray[np.float64]
Group = tuple[str, NDArray[np.int32], Floats]  # name of the argument, scopes, tables


def _unary(unary: ArrayLike, name: str = "unary") -> Floats:
    out = float_array(unary, repr(name))
    if out.ndim != 2 or out.shape[1] == 0:
        raise ValueError(f"{name!r} must have shape [V, L], got {out.shape}")
    return out


def _assemble(cards: NDArray[np.int32], unary: Floats, groups: Sequence[Group], n_jobs: int | None) -> FactorGraph:
    """Groups of factors of the same kind: scopes [m, k] and one shared table [...] or m tables [m, ...]."""
    scopes, arity, tables, sizes, of = [], [], [], [], []
    first = 0
    for name, scope, table in groups:
        m, k = scope.shape
        scopes.append(scope.ravel())
        arity.append(np.full(m, k))
        shared = table.ndim == k
        stack = table[None] if shared else table
        expected = tuple(int(cards[v]) for v in scope[0]) if m else stack.shape[1:]
        if stack.shape[1:] != expected or (not shared and len(stack) != m):
            raise ValueError(f"{name} must have shape {expected} or {(m, *expected)}, got {table.shape}")
        tables.append(stack.ravel())
        sizes.append(np.full(len(stack), stack[0].size if len(stack) else 0))
        of.append(np.full(m, first) if shared else first + np.arange(m))
        first += len(stack)

    def join(parts: list[Any], dtype: Any) -> NDArray[Any]:
        return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)

    engine = Engine(cards, pointers(join(arity, np.int64)), join(scopes, np.int32), n_jobs)
    scores = Scores(unary, join(tables, np.float64), pointers(join(sizes, np.int64)), join(of, np.int32))
    return FactorGraph.from_arrays(engine, scores)


def _pairs(a: Any, b: Any) -> NDArray[np.int32]:
    return np.stack([np.ravel(a), np.ravel(b)], axis=1).astype(np.int32)


def pairwise_graph(unary: ArrayLike, edges: ArrayLike, pairwise: ArrayLike, n_jobs: int | None = None) -> FactorGraph:
    """Variables of L values each, and edges between them.

    Parameters
    ----------
    unary : array [V, L]
        Scores of the labels of each node.
    edges : int array [E, 2]
        The nodes at both ends of each edge.
    pairwise : array [L, L] or [E, L, L]
        Scores of the values of an edge's ends, shared or one table per edge.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> g = pairwise_graph(np.zeros((3, 2)), [[0, 1], [1, 2], [2, 0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> g.cost().treewidth
    2
    """
    u = _unary(unary)
    ends = edge_array(edges, "'edges'", len(u)).astype(np.int32)
    cards = np.full(len(u), u.shape[1], np.int32)
    return _assemble(cards, u.ravel(), [("'pairwise'", ends, float_array(pairwise, "'pairwise'"))], n_jobs)


def chain(unary: ArrayLike, pairwise: ArrayLike, n_jobs: int | None = None) -> FactorGraph:
    """A linear chain: what :class:`crfkit.chain.Potentials` holds, as a graph.

    Examples
    --------
    >>> g = chain([[0.0, 1.0], [0.5, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> g.map().values
    array([1, 1], dtype=int32)
    """
    t = np.arange(len(_unary(unary)))
    return pairwise_graph(unary, _pairs(t[:-1], t[1:]), pairwise, n_jobs)


def tree(parents: ArrayLike, unary: ArrayLike, pairwise: ArrayLike, n_jobs: int | None = None) -> FactorGraph:
    """A tree or forest: ``parents[v]`` is the parent of v, -1 for roots; tables are [parent's value, child's value].

    Examples
    --------
    >>> tree([-1, 0, 0, 1], np.zeros((4, 3)), np.eye(3)).cost().treewidth
    1
    """
    up = int_array(parents, "'parents' of tree")
    n = len(_unary(unary))
    if up.shape != (n,):
        raise ValueError(f"'parents' of tree must have shape ({n},), one for every row of 'unary', got {up.shape}")
    wrong = np.flatnonzero((up < -1) | (up >= n))
    if len(wrong):
        raise ValueError(f"'parents' of tree must be -1 or below {n}, got {up[wrong[0]]} for variable {wrong[0]}")
    above = up.copy()  # where the paths upwards have come to, in doubling steps
    for _ in range(len(up).bit_length()):
        above = np.where(above >= 0, above[above], above)
    if (above >= 0).any():
        raise ValueError(f"'parents' of tree must have no cycle: there is one above variable {int(np.argmax(above))}")
    children = np.flatnonzero(up >= 0)
    return pairwise_graph(unary, _pairs(up[children], children), pairwise, n_jobs)


def grid(
    unary: ArrayLike, horizontal: ArrayLike, vertical: ArrayLike | None = None, n_jobs: int | None = None
) -> FactorGraph:
    """A grid of H by W cells; cell (i, j) is variable i * W + j.

    Parameters
    ----------
    unary : array [H, W, L]
        Scores of the labels at each place.
    horizontal : array [L, L] or [H, W - 1, L, L]
        Scores of a cell and the one to its right.
    vertical : array [L, L] or [H - 1, W, L, L], optional
        Scores of a cell and the one below; ``horizontal`` if left out.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> g = grid(np.zeros((3, 4, 2)), [[1.0, 0.0], [0.0, 1.0]])
    >>> g.n_variables, g.n_factors
    (12, 17)
    """
    u = float_array(unary, "'unary'")
    if u.ndim != 3:
        raise ValueError(f"'unary' must have shape [H, W, L], got {u.shape}")
    height, width, labels = u.shape
    cell = np.arange(height * width).reshape(height, width)
    right = float_array(horizontal, "'horizontal'")
    if vertical is None and right.ndim == 4:
        raise ValueError("'vertical' must be given if 'horizontal' has a table for every pair of cells")
    below = right if vertical is None else float_array(vertical, "'vertical'")
    groups = []
    for name, table, a, b in (
        ("horizontal", right, cell[:, :-1], cell[:, 1:]),
        ("vertical", below, cell[:-1], cell[1:]),
    ):
        if table.shape not in ((labels, labels), (*a.shape, labels, labels)):
            expected = f"{(labels, labels)} or {(*a.shape, labels, labels)}"
            raise ValueError(f"{name!r} must have shape {expected}, got {table.shape}")
        groups.append((name, _pairs(a, b), table.reshape(-1, labels, labels) if table.ndim == 4 else table))
    return _assemble(np.full(height * width, labels, np.int32), u.ravel(), groups, n_jobs)


def skip_chain(
    unary: ArrayLike, pairwise: ArrayLike, skips: ArrayLike, skip_table: ArrayLike, n_jobs: int | None = None
) -> FactorGraph:
    """A chain with further edges between distant tokens.

    Parameters
    ----------
    unary : array [T, L]
        Scores of the labels of each token.
    pairwise : array [L, L] or [T - 1, L, L]
        Scores of neighbouring labels.
    skips : int array [M, 2]
        Pairs of tokens.
    skip_table : array [L, L] or [M, L, L]
        Scores of the labels at both ends of a skip edge.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> skip_chain(np.zeros((5, 2)), np.eye(2), [[0, 4]], np.eye(2)).cost().treewidth
    2
    """
    u = _unary(unary)
    t = np.arange(len(u))
    far = edge_array(skips, "'skips'", len(u)).astype(np.int32)
    near = ("'pairwise'", _pairs(t[:-1], t[1:]), float_array(pairwise, "'pairwise'"))
    groups = [near, ("'skip_table'", far, float_array(skip_table, "'skip_table'"))]
    return _assemble(np.full(len(u), u.shape[1], np.int32), u.ravel(), groups, n_jobs)


def factorial(
    unaries: Sequence[ArrayLike],
    transitions: Sequence[ArrayLike],
    links: Sequence[ArrayLike],
    n_jobs: int | None = None,
) -> FactorGraph:
    """Several chains over the same tokens, each connected to the next at every token (a factorial or dynamic CRF).

    Token t of chain k is variable k * T + t.

    Parameters
    ----------
    unaries : K arrays [T, L_k]
        Scores of the labels of each chain.
    transitions : K arrays [L_k, L_k] or [T - 1, L_k, L_k]
        Scores of neighbouring labels in each chain.
    links : K - 1 arrays [L_k, L_{k+1}] or [T, L_k, L_{k+1}]
        Scores of label pairs of each chain and the next.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> g = factorial([np.zeros((4, 3)), np.zeros((4, 2))], [np.eye(3), np.eye(2)], [np.zeros((3, 2))])
    >>> g.cost().treewidth
    2
    """
    us = [_unary(u, "unaries") for u in unaries]
    if len(transitions) != len(us) or len(links) != len(us) - 1:
        raise ValueError("'transitions' must be one per chain, 'links' one per pair of neighbouring chains")
    length = len(us[0])
    if any(len(u) != length for u in us):
        raise ValueError("'unaries' must have the same number of tokens")
    t = np.arange(length)
    groups: list[Group] = []
    for k, table in enumerate(transitions):
        name = f"'transitions' of chain {k}"
        groups.append((name, _pairs(k * length + t[:-1], k * length + t[1:]), float_array(table, name)))
    for k, table in enumerate(links):
        name = f"'links' of chains {k} and {k + 1}"
        groups.append((name, _pairs(k * length + t, (k + 1) * length + t), float_array(table, name)))
    cards = np.repeat([u.shape[1] for u in us], length).astype(np.int32)
    return _assemble(cards, np.concatenate([u.ravel() for u in us]), groups, n_jobs)


def higher_order_chain(unary: ArrayLike, table: ArrayLike, n_jobs: int | None = None) -> FactorGraph:
    """A chain whose factors span k + 1 neighbouring tokens: ``table`` is [L, ..., L] with k + 1 axes, shared.

    Examples
    --------
    >>> higher_order_chain(np.zeros((6, 2)), np.zeros((2, 2, 2))).cost().treewidth
    2
    """
    u = _unary(unary)
    theta = float_array(table, "'table'")
    if theta.ndim < 2 or theta.shape != (u.shape[1],) * theta.ndim:
        raise ValueError(f"'table' must have two or more axes of {u.shape[1]} labels, got {theta.shape}")
    windows = max(0, len(u) - theta.ndim + 1)
    scope = (np.arange(windows)[:, None] + np.arange(theta.ndim)).astype(np.int32)
    return _assemble(np.full(len(u), u.shape[1], np.int32), u.ravel(), [("'table'", scope, theta)], n_jobs)


def semi_markov_chain(segments: ArrayLike, pairwise: ArrayLike, n_jobs: int | None = None) -> FactorGraph:
    """Segments of up to D tokens, as a chain of (label, tokens so far).

    The value of token t is ``label * D + d`` where d + 1 tokens of its segment have been read.

    Parameters
    ----------
    segments : array [T, D, L]
        Score of the segment that begins at a token, has d + 1 tokens, and the label.
    pairwise : array [L, L]
        Scores of neighbouring segments' labels.
    n_jobs : int, optional
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> g = semi_markov_chain(np.zeros((4, 2, 3)), np.zeros((3, 3)))
    >>> int(round(np.exp(g.log_partition())))  # 1+1+1+1, 2+1+1, 1+2+1, 1+1+2, 2+2: 3^4 + 3 * 3^3 + 3^2
    171
    """
    s = float_array(segments, "'segments'")
    if s.ndim != 3 or s.size == 0:
        raise ValueError(f"'segments' must have shape [T, D, L], all above 0, got {s.shape}")
    length, most, labels = s.shape
    a = float_array(pairwise, "'pairwise'")
    if a.shape != (labels, labels):
        raise ValueError(f"'pairwise' must have shape {(labels, labels)}, got {a.shape}")
    ends = np.full((length, most, labels), -np.inf)  # score of the segment of d + 1 tokens that ends here
    for d in range(min(most, length)):
        ends[d:, d] = s[: length - d, d]
    unary = np.zeros((length, labels, most))
    unary[0, :, 1:] = -np.inf
    unary[-1] += ends[-1].T
    steps = np.full((max(0, length - 1), labels, most, labels, most), -np.inf)
    for label in range(labels):
        for d in range(most - 1):
            steps[:, label, d, label, d + 1] = 0.0
    # (label, d) ends and another segment begins
    steps[:, :, :, :, 0] = ends[:-1].transpose(0, 2, 1)[:, :, :, None] + a[None, :, None, :]
    states = labels * most
    return chain(unary.reshape(length, states), steps.reshape(-1, states, states), n_jobs)
