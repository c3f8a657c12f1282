"""The structure of a factor graph without its scores: the cost of inference, and inference itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.later import needs
from crfkit.base.messages import warn
from crfkit.base.parameters import check_number
from crfkit.base.threads import resolve_threads
from crfkit.chain.beams import Beam, as_rule, beam_core

Floats = NDArray[np.float64]
METHODS = ("exact", "loopy", "trw", "mean_field")
_SCHEDULES = ("flooding", "sequential", "residual")
_ORDERS = ("auto", "min_fill", "min_degree")
MAX_BYTES = 2.0**31  # that exact inference may take, if nothing else is said
_TRACKED = 1e15  # entries of a table beyond which nobody needs to know more
_QUICK = 2.0**26  # bytes of an exact search that is worth its time to tell why an approximate one found nothing


class CostError(ValueError):
    """Exact inference would need more memory than allowed."""


def _memory(n: float) -> str:
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    power = min(len(units) - 1, int(np.log10(max(1.0, n)) / 3))
    return f"{n / 1000**power:.3g} {units[power]}"


@dataclass(frozen=True)
class Cost:
    """The cost of exact inference.

    Attributes
    ----------
    treewidth : int
        Treewidth of the elimination order found: one less than the number of variables in the largest table.
    largest_table : float
        Entries of the largest table.
    entries : float
        Entries of all tables.
    bytes : float
        Peak memory: the tables of one component of the graph for every thread.
    heuristic : str
        The heuristic that found the order.
    complete : bool
        False if counting was abandoned; the numbers are then lower bounds.
    component : int
        The most expensive component of the graph, or the one at which counting was abandoned.
    """

    treewidth: int
    largest_table: float
    entries: float
    bytes: float
    heuristic: str
    complete: bool = True
    component: int = 0

    def __str__(self) -> str:
        least = "" if self.complete else "at least "
        return (
            f"treewidth {least}{self.treewidth}, largest table {least}{self.largest_table:,.0f} entries, "
            f"{least}{_memory(self.bytes)} of memory"
        )


@dataclass(frozen=True)
class Inference:
    """Method and settings of inference.

    Parameters
    ----------
    method : {"exact", "loopy", "trw", "mean_field"}
        See :class:`FactorGraph`.
    schedule : {"sequential", "flooding", "residual"}
        ``"sequential"``: messages go through the variables and back. ``"flooding"``: all at once, on all threads even
        within one component. ``"residual"``: always the message that would change most.
    damping : float in [0, 1)
        Fraction of the old log-message that is kept.
    tol : float
        Messages have converged when no log-message (for mean field, no probability) changes by more than this.
    max_iter : int
        Maximum number of sweeps over all messages.
    beam : MinDivergence, FixedSize, Threshold or str, optional
        For "loopy": messages are summed only over the values that this rule picks from the sender's belief.
    order : {"auto", "min_fill", "min_degree"}
        For "exact": the heuristic that finds the elimination order; "auto" takes the cheaper of the two.
    max_bytes : float
        Exact inference that needs more memory than this is refused.

    Examples
    --------
    >>> Inference("loopy", schedule="residual", damping=0.5).max_iter
    200
    """

    method: str = "exact"
    schedule: str = "sequential"
    damping: float = 0.0
    tol: float = 1e-6
    max_iter: int = 200
    beam: Beam | str | None = None
    order: str = "auto"
    max_bytes: float = MAX_BYTES

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("schedule", _SCHEDULES), ("order", _ORDERS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name!r} of Inference must be one of {known}, got {getattr(self, name)!r}")
        for name in ("damping", "tol", "max_bytes"):
            check_number(self, name, getattr(self, name), 0)
        if not self.damping < 1:
            raise ValueError(f"'damping' of Inference must be in [0, 1), got {self.damping!r}")
        check_number(self, "max_iter", self.max_iter, 1, integer=True)
        object.__setattr__(self, "beam", as_rule(self.beam, "Inference"))
        if self.beam is not None and self.method != "loopy":
            raise ValueError(f"'beam' of Inference is for the method 'loopy', got {self.method!r}")


def as_inference(inference: str | Inference, name: str = "'inference'") -> Inference:
    """Settings from themselves, or from the name of a method."""
    if isinstance(inference, Inference):
        return inference
    if inference not in METHODS:
        hint = ": max-product is map('loopy')" if inference == "max_product" else ""
        raise ValueError(f"{name} must be one of {METHODS} or Inference, got {inference!r}{hint}")
    return Inference(inference)


@dataclass(frozen=True)
class Convergence:
    """How inference ended: exact inference always converges, in one iteration.

    Attributes
    ----------
    converged : bool
    iterations : int
    residual : float
        Largest change of a message in the last iteration.
    messages : int
        Messages sent.
    """

    converged: bool = True
    iterations: int = 1
    residual: float = 0.0
    messages: int = 0


class Scores(NamedTuple):
    """Scores of a graph: of all values of all variables, distinct tables one after another, table of each factor."""

    unary: Floats
    tables: Floats
    table_ptr: NDArray[np.int64]
    table_of: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Flat results: log Z of every component, probabilities of values and of factors' entries.

    With weights of the components, ``factors`` holds the weighted sums over all factors that share a table, laid out as
    the tables of the scores.
    """

    log_z: Floats
    nodes: Floats
    factors: Floats | None
    convergence: Convergence = field(default_factory=Convergence)


def pointers(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Running sums from zero."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


class Engine:
    """Variables, scopes of factors of two or more of them, and all that follows from these.

    Parameters
    ----------
    cardinalities : int32 array [V]
    scope_ptr : int64 array [F + 1]
    scope : int32 array [scope_ptr[F]]
    n_jobs : int, optional
    graph_of : int array [V], optional
        Where many graphs lie side by side, the graph of each variable: errors name it.

    Attributes
    ----------
    given : int64 array
        Place of every factor as the user gave them among those here, negative for others: errors name the former.
    """

    def __init__(
        self,
        cardinalities: NDArray[np.int32],
        scope_ptr: NDArray[np.int64],
        scope: NDArray[np.int32],
        n_jobs: int | None = None,
        graph_of: NDArray[np.int64] | None = None,
    ) -> None:
        self.graph_of = graph_of
        self.cardinalities = np.ascontiguousarray(cardinalities, np.int32)
        self.scope_ptr = np.ascontiguousarray(scope_ptr, np.int64)
        self.scope = np.ascontiguousarray(scope, np.int32)
        self.threads = resolve_threads(n_jobs)
        self.node_ptr = pointers(self.cardinalities)
        self.native = _core.GraphStructure(self.cardinalities, self.scope_ptr, self.scope)
        logs = np.log(self.cardinalities.astype(float))[self.scope]
        sizes = np.exp(np.add.reduceat(logs, self.scope_ptr[:-1])) if len(self.scope) else np.zeros(0)
        self.factor_ptr = pointers(np.rint(sizes).astype(np.int64))
        self.component = np.empty(self.n_variables, np.int32)
        self.n_components = self.native.components(self.component)
        self._trees: dict[str, tuple[_core.JunctionTree | None, Cost]] = {}
        self.given = np.arange(self.n_factors, dtype=np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = (self.cardinalities, self.scope_ptr, self.scope, self.threads, self.graph_of)
        return Engine, made_of, {"given": self.given}

    @property
    def n_variables(self) -> int:
        """Number of variables, V."""
        return len(self.cardinalities)

    @property
    def n_factors(self) -> int:
        """Number of factors over two or more variables, F."""
        return len(self.scope_ptr) - 1

    def scope_of(self, f: int) -> NDArray[np.int32]:
        """Variables of factor f."""
        return self.scope[self.scope_ptr[f] : self.scope_ptr[f + 1]]

    # exact

    def _plan(self, heuristic: str, limit: float) -> tuple[_core.JunctionTree | None, Cost]:
        order = np.empty(self.n_variables, np.int32)
        beyond = self.native.order(heuristic, limit, order)
        if beyond >= 0:
            most = float(self.cardinalities.max(initial=2))
            width = int(np.log(limit) / np.log(max(2.0, most)))
            return None, Cost(width, limit, limit, 8 * limit, heuristic, False, int(self.component[beyond]))
        tree = _core.JunctionTree(self.native, order)
        treewidth, largest, entries, of_component, component = tree.cost()
        copies = min(self.threads, max(1, self.n_components))
        return tree, Cost(treewidth, largest, entries, 8.0 * of_component * copies, heuristic, True, component)

    def plan(self, heuristic: str = "auto", limit: float = _TRACKED) -> tuple[_core.JunctionTree | None, Cost]:
        """A junction tree and its cost; "auto" takes the cheaper of the two heuristics."""
        if heuristic not in _ORDERS:
            raise ValueError(f"'order' must be one of {_ORDERS}, got {heuristic!r}")
        known = self._trees.get(heuristic)
        if known is not None and (known[1].complete or known[1].largest_table >= limit):
            return known
        names = ("min_fill", "min_degree") if heuristic == "auto" else (heuristic,)
        best: tuple[_core.JunctionTree | None, Cost] | None = None
        for name in names:
            plan = self._plan(name, limit)
            if best is None or (plan[1].complete, -plan[1].entries) > (best[1].complete, -best[1].entries):
                best = plan
            if plan[1].treewidth <= 1:
                break
        assert best is not None
        self._trees[heuristic] = best
        return best

    def tree(self, max_bytes: float, heuristic: str = "auto") -> _core.JunctionTree:
        """A junction tree that fits into the memory allowed.

        Raises
        ------
        CostError
            With the cost, and what to do instead.
        """
        check_number("exact inference", "max_bytes", max_bytes, 0)
        tree, cost = self.plan(heuristic, min(_TRACKED, max(64.0, max_bytes / 8)))
        if tree is None or cost.bytes > max_bytes:
            name, variables, factors = "this graph", self.n_variables, len(self.given)
            if self.graph_of is not None:
                graph = self.graph_of[np.argmax(self.component == cost.component)]
                name, variables = f"graph {graph}", int((self.graph_of == graph).sum())
                factors = int((self.graph_of[self.scope[self.scope_ptr[:-1]]] == graph).sum())
            raise CostError(
                f"exact inference on {name} of {variables} variables and {factors} factors is too expensive: {cost}; "
                f"the limit is {_memory(max_bytes)}. Use inference='loopy' ('trw' for an upper, 'mean_field' for a "
                "lower bound on log Z), observe variables to cut the graph, or raise 'max_bytes'"
            )
        return tree

    def impossible(self, scores: Scores, max_bytes: float) -> bool:
        """Whether no assignment is allowed, as far as a quick exact search can tell."""
        try:
            quick = Inference(max_bytes=min(max_bytes, _QUICK))
            return bool(np.isneginf(self.infer(scores, quick, nodes=False).log_z).any())
        except CostError:
            return False

    # approximate

    @cached_property
    def merged(self) -> tuple[Engine, NDArray[np.int64], list[bool]] | None:
        """The graph with one factor for every scope, which one each factor went into, and whether it is turned around.

        None if no two factors have the same variables.
        """
        arity = np.diff(self.scope_ptr)
        pairs = np.flatnonzero(arity == 2)
        ends = self.scope[self.scope_ptr[pairs][:, None] + np.arange(2)]
        keys = np.sort(ends, axis=1).astype(np.int64) @ np.array([self.n_variables, 1])
        wide = [tuple(sorted(self.scope_of(int(f)).tolist())) for f in np.flatnonzero(arity > 2)]
        if len(np.unique(keys)) == len(keys) and len(set(wide)) == len(wide):
            return None
        found: dict[tuple[int, ...], int] = {}
        into = np.empty(self.n_factors, np.int64)
        turned = []
        scopes: list[list[int]] = []
        for f in range(self.n_factors):
            scope = self.scope_of(f).tolist()
            key = tuple(sorted(scope))
            into[f] = found.setdefault(key, len(scopes))
            if into[f] == len(scopes):
                scopes.append(scope)
            turned.append(scopes[into[f]] != scope)
        ptr = pointers(np.array([len(s) for s in scopes]))
        engine = Engine(self.cardinalities, ptr, np.array(list(itertools.chain(*scopes)), np.int32), self.threads)
        return engine, into, turned

    def _axes(self, f: int, scope: NDArray[np.int32]) -> list[int]:
        """Where the variables of another scope are in that of factor f."""
        mine = self.scope_of(f).tolist()
        return [mine.index(v) for v in scope.tolist()]

    def _merge_scores(self, scores: Scores) -> Scores:
        assert self.merged is not None
        engine, into, turned = self.merged
        tables = np.zeros(int(engine.factor_ptr[-1]))
        for f in range(self.n_factors):
            g = int(into[f])
            begin = int(scores.table_ptr[scores.table_of[f]])
            table = scores.tables[begin : begin + int(self.factor_ptr[f + 1] - self.factor_ptr[f])]
            if turned[f]:
                shape = self.cardinalities[self.scope_of(f)]
                table = table.reshape(shape).transpose(self._axes(f, engine.scope_of(g))).ravel()
            tables[engine.factor_ptr[g] : engine.factor_ptr[g + 1]] += table
        return Scores(scores.unary, tables, engine.factor_ptr, np.arange(engine.n_factors, dtype=np.int32))

    def _split_factors(self, flat: Floats) -> Floats:
        assert self.merged is not None
        engine, into, turned = self.merged
        out = np.empty(int(self.factor_ptr[-1]))
        for f in range(self.n_factors):
            g = int(into[f])
            table = flat[engine.factor_ptr[g] : engine.factor_ptr[g + 1]]
            if turned[f]:
                axes = np.argsort(self._axes(f, engine.scope_of(g)))
                table = table.reshape(engine.cardinalities[engine.scope_of(g)]).transpose(axes).ravel()
            out[self.factor_ptr[f] : self.factor_ptr[f + 1]] = table
        return out

    @cached_property
    def appearances(self) -> Floats:
        """How often each edge is in a spanning forest, over forests that cover all edges, [F].

        These weights come from a distribution over forests, so that the reweighted value is an upper bound.
        """
        with needs("tree-reweighted inference", "scipy", "graph"):
            from scipy.sparse import csr_array
            from scipy.sparse.csgraph import minimum_spanning_tree

        ends = np.sort(self.scope.reshape(-1, 2), axis=1)
        keys = ends[:, 0].astype(np.int64) * self.n_variables + ends[:, 1]
        by_key = np.argsort(keys)
        rng = np.random.default_rng(0)
        count = np.zeros(self.n_factors)
        rounds = 0
        while rounds < 10 or (count == 0).any():
            weight = 1 + count + 0.5 * rng.random(self.n_factors)
            graph = csr_array((weight, (ends[:, 0], ends[:, 1])), shape=(self.n_variables,) * 2)
            forest = minimum_spanning_tree(graph).tocoo()
            used = np.minimum(forest.row, forest.col).astype(np.int64) * self.n_variables + np.maximum(
                forest.row, forest.col
            )
            count[by_key[np.searchsorted(keys, used, sorter=by_key)]] += 1
            rounds += 1
        return count / rounds

    def _by_component(self, node_terms: Floats, factor_terms: Floats) -> Floats:
        log_z = np.bincount(self.component, node_terms, self.n_components)
        return np.asarray(log_z + np.bincount(self._factor_component, factor_terms, self.n_components))

    @cached_property
    def _factor_component(self) -> NDArray[np.int32]:
        """Component of each factor, [F]."""
        return self.component[self.scope[self.scope_ptr[:-1]]]

    def _entries(self, scores: Scores) -> NDArray[np.int64]:
        """Where each entry of each factor is in the scores' tables."""
        begin = scores.table_ptr[scores.table_of] - self.factor_ptr[:-1]
        return np.asarray(np.repeat(begin, np.diff(self.factor_ptr)) + np.arange(int(self.factor_ptr[-1])))

    def _room(self, scores: Scores, weights: Floats | None) -> Floats:
        """For the probabilities of all factors, or for their sums by table."""
        return np.zeros(int(self.factor_ptr[-1]) if weights is None else len(scores.tables))

    def _approximate(
        self, scores: Scores, passing: Inference, factors: bool, maximise: bool, weights: Floats | None
    ) -> Beliefs:
        if self.merged is not None:
            engine = self.merged[0]
            result = engine._approximate(self._merge_scores(scores), passing, factors, maximise, None)
            flat = None if result.factors is None else self._split_factors(result.factors)
            if flat is not None and weights is not None:
                of = np.repeat(weights[self._factor_component], np.diff(self.factor_ptr))
                flat = np.bincount(self._entries(scores), flat * of, len(scores.tables)).astype(np.float64)
            return Beliefs(result.log_z, result.nodes, flat, result.convergence)
        out = self._room(scores, weights) if factors else None
        terms = np.empty(self.n_variables), np.empty(self.n_factors)
        nodes = self._softmax(scores.unary) if passing.method == "mean_field" else np.empty(int(self.node_ptr[-1]))
        beliefs = nodes, out, weights, *terms
        if passing.method == "mean_field":
            report = self.native.mean_field(scores, passing.tol, passing.max_iter, self.threads, beliefs)
        else:
            rule = (
                passing.schedule,
                maximise,
                passing.damping,
                passing.tol,
                passing.max_iter,
                self.appearances if passing.method == "trw" else None,
                beam_core(passing.beam),
            )
            report = self.native.pass_messages(scores, rule, self.threads, beliefs)
        convergence = Convergence(*report)
        return Beliefs(self._by_component(*terms), nodes, out, convergence)

    def _softmax(self, unary: Floats) -> Floats:
        """Distributions by the unary scores alone, zero where these forbid all values."""
        begin = self.node_ptr[:-1]
        top = np.maximum.reduceat(unary, begin) if len(unary) else np.zeros(0)
        p = np.exp(unary - np.repeat(np.where(np.isneginf(top), 0, top), self.cardinalities))
        total = np.add.reduceat(p, begin) if len(p) else np.zeros(0)
        return np.asarray(p / np.repeat(np.where(total > 0, total, 1), self.cardinalities))

    # both

    def infer(
        self,
        scores: Scores,
        inference: str | Inference = "exact",
        *,
        factors: bool = True,
        nodes: bool = True,
        maximise: bool = False,
        silent: bool = False,
        weights: Floats | None = None,
    ) -> Beliefs:
        """The components' log Z and marginals; a warning where message passing has not converged.

        With ``weights`` of the components [C], factors that share a table are added up: see :class:`Beliefs`.
        """
        inference = as_inference(inference)
        method = inference.method
        if method == "exact":
            tree = self.tree(inference.max_bytes, inference.order)
            log_z = np.empty(self.n_components)
            p = np.zeros(int(self.node_ptr[-1])) if nodes else None
            q = self._room(scores, weights) if factors and nodes else None
            tree.sum_product(scores, self.threads, log_z, p, q, weights)
            return Beliefs(log_z, np.zeros(0) if p is None else p, q)
        if method == "trw" and (np.diff(self.scope_ptr) > 2).any():
            f = int(np.flatnonzero(self.given == np.argmax(np.diff(self.scope_ptr) > 2))[0])
            raise ValueError(f"tree-reweighted messages are for factors of at most two variables; factor {f} has more")
        result = self._approximate(scores, inference, factors, maximise, weights)
        if np.isneginf(result.log_z).any():
            if inference.beam is not None:
                raise ValueError("'beam' of Inference leaves no permitted assignment: a message is empty")
            if method == "mean_field" and not self.impossible(scores, inference.max_bytes):
                result = replace(result, convergence=replace(result.convergence, converged=False))
                if not silent:
                    warn(
                        "mean_field inference found no distribution within the hard constraints: its bound on log Z is "
                        "minus infinity",
                        stacklevel=3,
                    )
        elif not silent:
            warn_unless_converged(result.convergence, method)
        return result

    def decode(self, scores: Scores, inference: str | Inference) -> tuple[NDArray[np.int32], Floats, Convergence]:
        """A best assignment [V], the scores of the components, and how it was found."""
        inference = as_inference(inference)
        y = np.zeros(self.n_variables, np.int32)
        if inference.method == "exact" or (inference.method in ("loopy", "trw") and self.is_forest):
            tree = self.tree(inference.max_bytes, inference.order)
            score = np.empty(self.n_components)
            tree.max_product(scores, self.threads, score, y)
            return y, score, Convergence()
        maximise = inference.method != "mean_field"
        result = self.infer(scores, inference, factors=False, maximise=maximise, silent=True)
        y = np.ascontiguousarray(self._argmax(result.nodes))
        self.native.ascend(scores, self.threads, y)
        return y, self.score(scores, y[None])[0], result.convergence

    @cached_property
    def is_forest(self) -> bool:
        """Whether there are no cycles: there max-product is exact, and ties are followed back as exact search does."""
        places = int(self.scope_ptr[-1]) if len(self.scope_ptr) else 0
        return places - (len(self.scope_ptr) - 1) == self.n_variables - self.n_components

    def _argmax(self, nodes: Floats) -> NDArray[np.int32]:
        if self.n_variables == 0:
            return np.zeros(0, np.int32)
        begin = self.node_ptr[:-1]
        top = np.repeat(np.maximum.reduceat(nodes, begin), self.cardinalities)
        place = np.where(nodes == top, np.arange(len(nodes)), len(nodes))
        return (np.minimum.reduceat(place, begin) - begin).astype(np.int32)

    def score(self, scores: Scores, assignments: NDArray[np.int32]) -> Floats:
        """Scores of assignments [n, V] by component, [n, C]."""
        y = np.ascontiguousarray(assignments, np.int32)
        out = np.empty((len(y), self.n_components))
        self.native.score(scores, self.threads, y, out)
        return out

    def energy(self, scores: Scores, result: Beliefs) -> Floats:
        """Expected score of every component under the marginals, [C]."""
        assert result.factors is not None
        nodes = _product(result.nodes, scores.unary)
        of_nodes = np.repeat(self.component, self.cardinalities)
        of_factors = np.repeat(self._factor_component, np.diff(self.factor_ptr))
        factors = _product(result.factors, scores.tables[self._entries(scores)])
        out = np.bincount(of_nodes, nodes, self.n_components)
        return np.asarray(out + np.bincount(of_factors, factors, self.n_components))


def _product(p: Floats, x: Floats) -> Floats:
    """Probabilities times scores, zero where the probability is."""
    return np.where(p > 0, p * np.where(p > 0, x, 0), 0)


def warn_unless_converged(convergence: Convergence, method: str) -> None:
    """Warns if messages have not converged."""
    if not convergence.converged:
        warn(
            f"{method} inference has not converged after {convergence.iterations} iterations (residual "
            f"{convergence.residual:.2g}): raise 'damping' or 'max_iter' of Inference, or try another schedule",
            stacklevel=3,
        )
