"""Factor graphs over discrete variables."""

from __future__ import annotations

import heapq
import itertools
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crfkit.base.messages import warn
from crfkit.base.parameters import check_number
from crfkit.base.shown import Record
from crfkit.graph.checks import check_scores, float_array, int_array, int_list
from crfkit.graph.engine import (
    MAX_BYTES,
    Convergence,
    Cost,
    Engine,
    Inference,
    Scores,
    as_inference,
    pointers,
    warn_unless_converged,
)

Floats = NDArray[np.float64]
_OBSERVED = np.iinfo(np.int64).min  # in place of a factor whose variables are all known


@dataclass(frozen=True, eq=False, repr=False)
class GraphMarginals(Record):
    """Marginals of a factor graph, and log Z.

    Attributes
    ----------
    log_z : float
        Exact, an approximation ("loopy"), an upper ("trw") or a lower bound ("mean_field").
    nodes : list of arrays [cardinality]
        Probabilities of the values of every variable.
    factors : list of arrays
        Probabilities of the entries of every factor, in its own shape.
    convergence : Convergence
    """

    log_z: float
    nodes: list[Floats]
    factors: list[Floats]
    convergence: Convergence


@dataclass(frozen=True, eq=False)
class Assignment:
    """Values of all variables, their score, and how they were found."""

    values: NDArray[np.int32]
    score: float
    convergence: Convergence


class FactorGraph:
    r"""Discrete variables and the factors that connect them.

    .. math::

        p(y) = \frac{1}{Z} \exp \sum_f \theta_f(y_{S_f})

    Parameters
    ----------
    cardinalities : sequence of int [V]
        Number of values of each variable.
    factors : iterable of (variables, log_table)
        ``log_table[i, j, ...]`` is the score of the values i, j, ... of the variables. Minus infinity forbids them.
        Factors that are given the same array share it.
    n_jobs : int, optional
        Threads.

    Notes
    -----
    Exact inference is exponential in the treewidth; :meth:`cost` gives its cost, and beyond ``max_bytes`` it is
    refused. The methods, given by name or as :class:`Inference` with all settings, are

    ``"exact"``
        junction tree by an elimination order (``order``: min-fill, min-degree, or the better of the two);
    ``"loopy"``
        belief propagation, exact on trees;
    ``"trw"``
        tree-reweighted messages; at convergence log Z is an upper bound (factors of at most two variables);
    ``"mean_field"``
        independent variables; log Z is a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    >>> g = FactorGraph([2, 2, 2], [([0], [1.0, 0.0]), ([0, 1], agree), ([1, 2], agree), ([0, 2], agree)])
    >>> g.cost().treewidth
    2
    >>> m = g.marginals()
    >>> m.nodes[2].round(3)
    array([0.654, 0.346])
    >>> g.map().values
    array([0, 0, 0], dtype=int32)
    >>> g.observe({0: 1}).map().values
    array([1, 1, 1], dtype=int32)
    """

    def __init__(
        self,
        cardinalities: Sequence[int] | NDArray[Any],
        factors: Iterable[tuple[Sequence[int], ArrayLike]],
        n_jobs: int | None = None,
    ) -> None:
        sizes = int_array(cardinalities, "'cardinalities' of FactorGraph")
        if sizes.ndim != 1 or (sizes.size and not 1 <= sizes.min() <= sizes.max() < 2**31):
            wrong = np.flatnonzero((sizes < 1) | (sizes >= 2**31)) if sizes.ndim == 1 else sizes[:0]
            got = f"{sizes[wrong[0]]} for variable {wrong[0]}" if wrong.size else f"shape {sizes.shape}"
            raise ValueError(f"'cardinalities' of FactorGraph must be a sequence of ints from 1 to 2^31 - 1, got {got}")
        card = sizes.astype(np.int32)
        if not isinstance(factors, Iterable):
            raise ValueError(f"'factors' of FactorGraph must be pairs (variables, log_table), got {factors!r}")
        unary = np.zeros(int(card.sum()))
        node_ptr = pointers(card)
        slots: list[int] = []
        scopes: list[list[int]] = []
        tables: list[Floats] = []
        of: list[int] = []
        known: dict[int, tuple[Any, int]] = {}
        for f, factor in enumerate(factors):
            if not isinstance(factor, (tuple, list)) or len(factor) != 2:
                raise ValueError(f"factor {f} must be (variables, log_table), got {reprlib.repr(factor)}")
            variables, table = factor
            scope = int_list(variables)
            if not scope or min(scope) < 0 or max(scope) >= len(card) or len(set(scope)) < len(scope):
                raise ValueError(
                    f"factor {f}: 'variables' must be distinct ints from 0 to {len(card) - 1}, "
                    f"got {reprlib.repr(variables)}"
                )
            shape = tuple(int(card[v]) for v in scope)
            if id(table) not in known or len(scope) == 1:
                values = float_array(table, f"factor {f}: 'log_table'")
                check_scores(values, f"factor {f}")
            else:
                values = tables[known[id(table)][1]]
            if values.shape != shape:
                raise ValueError(f"factor {f}: 'log_table' must have shape {shape}, got {values.shape}")
            if len(scope) == 1:
                unary[node_ptr[scope[0]] : node_ptr[scope[0] + 1]] += values
                slots.append(-1 - scope[0])
                continue
            slots.append(len(scopes))
            scopes.append(scope)
            if id(table) not in known:
                known[id(table)] = (table, len(tables))  # keeps the object, so that no other gets its id
                tables.append(values)
            of.append(known[id(table)][1])
        scope_ptr = pointers(np.array([len(s) for s in scopes], np.int64))
        engine = Engine(card, scope_ptr, np.array(list(itertools.chain(*scopes)), np.int32), n_jobs)
        flat = np.concatenate([t.ravel() for t in tables]) if tables else np.zeros(0)
        ptr = pointers(np.array([t.size for t in tables], np.int64))
        self._set(engine, Scores(unary, flat, ptr, np.array(of, np.int32)), np.array(slots, np.int64))

    def _set(self, engine: Engine, scores: Scores, slots: NDArray[np.int64]) -> None:
        self._engine = engine
        self._scores = scores
        self._slots = engine.given = slots

    @classmethod
    def from_arrays(cls, engine: Engine, scores: Scores) -> FactorGraph:
        """A graph of flat arrays; its factors are those over two or more variables."""
        for name, x in (("unary", scores.unary), ("tables", scores.tables)):
            check_scores(x, name)
        graph = cls.__new__(cls)
        graph._set(engine, scores, np.arange(engine.n_factors, dtype=np.int64))
        return graph

    @property
    def cardinalities(self) -> NDArray[np.int32]:
        """Number of values of each variable, [V]."""
        return self._engine.cardinalities

    @property
    def n_variables(self) -> int:
        """Number of variables, V."""
        return self._engine.n_variables

    @property
    def n_factors(self) -> int:
        """Number of factors as given."""
        return len(self._slots)

    def __repr__(self) -> str:
        return f"FactorGraph({self.n_variables} variables, {self.n_factors} factors)"

    def _table(self, k: int) -> Floats:
        begin = int(self._scores.table_ptr[self._scores.table_of[k]])
        shape = self.cardinalities[self._engine.scope_of(k)]
        return self._scores.tables[begin : begin + int(shape.prod(dtype=np.int64))].reshape(shape)

    def cost(self, order: str = "auto") -> Cost:
        """Treewidth, table sizes and memory of exact inference.

        Examples
        --------
        >>> import numpy as np
        >>> from crfkit.graph import grid
        >>> print(grid(np.zeros((6, 6, 2)), np.zeros((2, 2))).cost())
        treewidth 6, largest table 128 entries, ... of memory
        """
        return self._engine.plan(order)[1]

    def log_partition(self, inference: str | Inference = "exact") -> float:
        """The logarithm of Z, minus infinity if no assignment is allowed; see the class for the methods.

        The bound of ``"mean_field"`` is also minus infinity if it finds no allowed assignment. A warning is given then,
        unless a quick exact search shows that there is none.
        """
        result = self._engine.infer(self._scores, inference, factors=False, nodes=False)
        return float(result.log_z.sum())

    def marginals(self, inference: str | Inference = "exact") -> GraphMarginals:
        """Probabilities of the variables' values and of the factors' entries, and log Z.

        Raises
        ------
        ValueError
            If no assignment is allowed, as far as the method can tell.
        CostError
            If exact inference is beyond ``max_bytes``.
        """
        rule = as_inference(inference)
        result = self._engine.infer(self._scores, rule)
        log_z = float(result.log_z.sum())
        if np.isneginf(log_z) and (rule.method != "mean_field" or result.convergence.converged):
            raise ValueError("the constraints permit no assignment")
        assert result.factors is not None
        engine = self._engine
        nodes = np.split(result.nodes, engine.node_ptr[1:-1]) if self.n_variables else []
        factors: list[Floats] = []
        for slot in self._slots.tolist():
            if slot == _OBSERVED:
                factors.append(np.ones(()))
            elif slot < 0:
                factors.append(nodes[-1 - slot])
            else:
                flat = result.factors[engine.factor_ptr[slot] : engine.factor_ptr[slot + 1]]
                factors.append(flat.reshape(self.cardinalities[engine.scope_of(slot)]))
        return GraphMarginals(log_z, nodes, factors, result.convergence)

    def map(self, inference: str | Inference = "exact") -> Assignment:
        """A best assignment: with "exact" and on trees a global optimum, otherwise a local one.

        "loopy" is max-product, "trw" its tree-reweighted variant, "mean_field" takes the most probable values. From
        there, variables are changed one at a time while that raises the score.

        Raises
        ------
        ValueError
            If no assignment is allowed. If approximate inference finds none, and an exact search would be too
            expensive, the assignment breaks hard constraints and a warning is given.
        """
        rule = as_inference(inference)
        y, score, convergence = self._engine.decode(self._scores, rule)
        if np.isneginf(score).any():
            if rule.method == "exact" or self._engine.impossible(self._scores, rule.max_bytes):
                raise ValueError("the constraints permit no assignment")
            warn(f"{rule.method} inference found no permitted assignment: the result breaks hard constraints")
        warn_unless_converged(convergence, rule.method)
        return Assignment(y, float(score.sum()), convergence)

    def nbest(self, k: int, *, max_bytes: float = MAX_BYTES) -> list[Assignment]:
        """The ``k`` best assignments, best first; for small graphs: each takes V exact searches.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [([0], [0.0, 1.0]), ([0, 1], [[0.0, 0.3], [0.0, 0.1]])])
        >>> [a.values.tolist() for a in g.nbest(3)]
        [[1, 1], [1, 0], [0, 1]]
        """
        check_number(self, "k", k, 1, integer=True)
        engine, scores, rule = self._engine, self._scores, Inference(max_bytes=max_bytes)
        count = itertools.count()

        def best(unary: Floats) -> tuple[float, NDArray[np.int32]]:
            part = Scores(unary, scores.tables, scores.table_ptr, scores.table_of)
            y, score, _ = engine.decode(part, rule)
            return float(score.sum()), y

        score, y = best(scores.unary)
        # (-score, tie, assignment, unary of the part it is best in, variables fixed in that part)
        heap: list[tuple[float, int, NDArray[np.int32], Floats, int]] = []
        if score > -np.inf:
            heap.append((-score, next(count), y, scores.unary, 0))
        else:
            raise ValueError("the constraints permit no assignment")
        out: list[Assignment] = []
        while heap and len(out) < k:
            minus, _, y, unary, fixed = heapq.heappop(heap)
            out.append(Assignment(y, -minus, Convergence()))
            if len(out) == k:
                break
            # the rest of the part, by the first variable that differs from y
            rest = unary.copy()
            for v in range(fixed, self.n_variables):
                begin, end = int(engine.node_ptr[v]), int(engine.node_ptr[v + 1])
                other = rest.copy()
                other[begin + y[v]] = -np.inf
                score, z = best(other)
                if score > -np.inf:
                    heapq.heappush(heap, (-score, next(count), z, other, v))
                keep = rest[begin + y[v]]
                rest[begin:end] = -np.inf
                rest[begin + y[v]] = keep
        return out

    def entropy(self, inference: str | Inference = "exact") -> float:
        r"""Entropy :math:`\log Z - E[s(y)]` in nats; with approximate methods, the entropy of the approximation."""
        result = self._engine.infer(self._scores, inference)
        if np.isneginf(result.log_z).any():
            raise ValueError("the constraints permit no assignment")
        return float((result.log_z - self._engine.energy(self._scores, result)).sum())

    def sample(
        self, n: int = 1, random_state: np.random.Generator | int | None = None, *, max_bytes: float = MAX_BYTES
    ) -> NDArray[np.int32]:
        """Exact samples, [n, V].

        Examples
        --------
        >>> FactorGraph([2], [([0], [0.0, -float("inf")])]).sample(3, 0).tolist()
        [[0], [0], [0]]
        """
        check_number(self, "n", n, 0, integer=True)
        engine = self._engine
        try:
            uniform = np.random.default_rng(random_state).random((n, self.n_variables))
        except (TypeError, ValueError):
            raise ValueError(
                f"'random_state' of sample must be a Generator, an int >= 0 or None, got {random_state!r}"
            ) from None
        log_z = np.empty(engine.n_components)
        out = np.zeros((n, self.n_variables), np.int32)
        engine.tree(max_bytes).sample(self._scores, engine.threads, uniform, log_z, out)
        if np.isneginf(log_z).any():
            raise ValueError("the constraints permit no assignment")
        return out

    def score(self, assignment: ArrayLike) -> Any:
        """Score of an assignment [V], or of several [n, V]."""
        y = int_array(assignment, "'assignment'")
        if y.shape[-1:] != (self.n_variables,) or y.ndim > 2:
            v = self.n_variables
            raise ValueError(f"'assignment' must have shape [{v}] or [n, {v}], got {y.shape}")
        wrong = np.argwhere((y < 0) | (y >= self.cardinalities))
        if len(wrong):
            v = int(wrong[0, -1])
            raise ValueError(f"'assignment': variable {v} has no value {y[tuple(wrong[0])]}")
        total = self._engine.score(self._scores, np.atleast_2d(y)).sum(axis=1)
        return float(total[0]) if y.ndim == 1 else total

    def log_probability(self, assignment: ArrayLike, *, max_bytes: float = MAX_BYTES) -> Any:
        """Logarithm of the probability of an assignment [V], or of several [n, V]."""
        score, log_z = self.score(assignment), self.log_partition(Inference(max_bytes=max_bytes))
        if np.isneginf(log_z):
            raise ValueError("the constraints permit no assignment")
        return score - log_z

    def observe(self, evidence: Mapping[int, int]) -> FactorGraph:
        """The graph with some variables fixed to known values.

        The variables stay, with one allowed value; factors lose them, so that the graph is cut there and inference
        becomes cheaper. Log Z becomes the logarithm of the sum over all assignments that agree with the evidence. The
        marginals of a factor are those of its other variables; if none are left, they are the number one.
        """
        card = self.cardinalities
        if not isinstance(evidence, Mapping) or int_list([*evidence.keys(), *evidence.values()]) is None:
            raise ValueError(f"'evidence' of observe must map variables to values, got {reprlib.repr(evidence)}")
        for v, value in evidence.items():
            if not 0 <= v < self.n_variables or not 0 <= value < card[v]:
                raise ValueError(f"'evidence' of observe: variable {v} has no value {value}")
        factors: list[tuple[list[int], Any]] = []
        unary = np.split(self._scores.unary, self._engine.node_ptr[1:-1])
        slots: list[int | None] = []
        constants: dict[int, float] = {}
        for k in range(self._engine.n_factors):
            scope = self._engine.scope_of(k).tolist()
            table: Any = self._table(k)
            if any(v in evidence for v in scope):
                table = table[tuple(evidence.get(v, slice(None)) for v in scope)]
                rest = [v for v in scope if v not in evidence]
                if not rest:
                    constants[scope[0]] = constants.get(scope[0], 0.0) + float(table)
                    slots.append(_OBSERVED)
                    continue
                scope = rest
            slots.append(-1 - scope[0] if len(scope) == 1 else None)
            factors.append((scope, table))
        for v in range(self.n_variables):
            u = unary[v]
            if v in evidence:
                u = np.full(card[v], -np.inf)
                u[evidence[v]] = unary[v][evidence[v]] + constants.get(v, 0.0)
            factors.append(([v], u))
        graph = FactorGraph(card, factors, self._engine.threads)
        # factors keep the numbers that they had here
        pairs = iter(range(graph._engine.n_factors))
        inner = np.array([next(pairs) if s is None else s for s in slots], np.int64)
        known = [_OBSERVED if -1 - s in evidence else s for s in self._slots.tolist()]
        slots_now = np.array([inner[s] if s >= 0 else s for s in known], np.int64)
        graph._set(graph._engine, graph._scores, slots_now)
        return graph
