"""Inference on graphs, side by side with crfkit.chain, pgmpy and plain numpy: processor time, the least of several.

Prints where and when it was measured, and a table; ratios are the other's time over crfkit.graph's, except for the
chain, where it is the other way round.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy comes

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from machine import measured

from crfkit import chain, graph
from crfkit.graph import Inference
from crfkit.graph.factor_graph import GraphMarginals

Floats = NDArray[np.float64]


def least(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Least processor seconds of each call; the calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.process_time()
            call()
            times[name].append(time.process_time() - began)
    return {name: min(t) for name, t in times.items()}


def plan_and_infer(unary: Any, edges: Any, pairwise: Any, jobs: int | None) -> Any:
    g = graph.pairwise_graph(unary, edges, pairwise, n_jobs=jobs)
    return g._engine.infer(g._scores)


def graph_marginals(unary: Any, edges: Any, pairwise: Any, jobs: int | None) -> GraphMarginals:
    return graph.pairwise_graph(unary, edges, pairwise, n_jobs=jobs).marginals()


def chains(repeats: int, jobs: int | None) -> list[dict[str, Any]]:
    """A batch of chains, and the same as one graph of many components."""
    rng = np.random.default_rng(0)
    rows = []
    for n, length, labels in ((1, 2000, 20), (200, 25, 20), (200, 25, 5)):
        parts = [chain.Potentials(rng.normal(size=(length, labels)), rng.normal(size=(labels, labels)))] * n
        p = chain.Potentials.batch(parts)
        starts = np.arange(n)[:, None] * length + np.arange(length - 1)
        edges = np.stack([starts.ravel(), starts.ravel() + 1], axis=1)
        g = graph.pairwise_graph(p.unary, edges, p.pairwise, n_jobs=jobs)
        engine, scores = g._engine, g._scores
        truth = chain.marginals(p, n_jobs=jobs)
        found = engine.infer(scores)
        assert np.abs(found.nodes - truth.nodes.ravel()).max() < 1e-10
        t = least(
            {
                "chain": partial(chain.marginals, p, n_jobs=jobs),
                "graph": partial(engine.infer, scores),
                "with plan": partial(plan_and_infer, p.unary, edges, p.pairwise, jobs),
            },
            repeats,
        )
        rows.append(
            {
                "what": f"{n} chain(s) of {length}, {labels} labels, marginals",
                "crfkit.chain": t["chain"],
                "crfkit.graph": t["graph"],
                "with planning": t["with plan"],
                "times slower": t["graph"] / t["chain"],
            }
        )
    return rows


def to_pgmpy(cards: list[int], factors: list[tuple[list[int], Floats]]) -> Any:
    from pgmpy.factors.discrete import DiscreteFactor

    try:
        from pgmpy.models import DiscreteMarkovNetwork as Network
    except ImportError:
        from pgmpy.models import MarkovNetwork as Network

    model = Network()
    model.add_nodes_from([str(v) for v in range(len(cards))])
    out = []
    for scope, table in factors:
        names = [str(v) for v in scope]
        if len(names) == 2:
            model.add_edge(*names)
        out.append(DiscreteFactor(names, [cards[v] for v in scope], np.exp(table)))
    model.add_factors(*out)
    return model


def pgmpy_marginals(model: Any, order: list[str]) -> list[Floats]:
    """Calibrates a junction tree and reads every variable's marginal off a clique that has it.

    pgmpy is given our elimination order: its own choice makes a clique of twenty variables on the grid.
    """
    from pgmpy.inference import BeliefPropagation

    if model.number_of_edges() >= model.number_of_nodes():
        chordal = model.triangulate(order=order, inplace=False)
        chordal.add_factors(*model.factors)
        model = chordal
    inference = BeliefPropagation(model)
    inference.calibrate()
    best: dict[str, Any] = {}
    for clique, belief in inference.get_clique_beliefs().items():
        for v in clique:
            if v not in best or belief.values.size < best[v].values.size:
                best[v] = belief
    out = []
    for v in range(len(model.nodes())):
        belief = best[str(v)]
        drop = tuple(k for k, name in enumerate(belief.variables) if name != str(v))
        p = belief.values.sum(axis=drop)
        out.append(p / p.sum())
    return out


def _answer(connection: Connection, model: Any, order: list[str]) -> None:
    began = time.process_time()
    found = pgmpy_marginals(model, order)
    connection.send((time.process_time() - began, found))


def pgmpy_within(limit: float, model: Any, order: list[str]) -> tuple[float, list[Floats] | None]:
    """Seconds that pgmpy takes, in a process of its own, and its marginals; None if it takes longer than the limit."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(theirs, model, order), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else (limit, None)
    finally:
        process.kill()
        process.join()


def against_pgmpy(repeats: int, jobs: int | None, nodes: int, limit: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    side = 8
    cell = np.arange(side * side).reshape(side, side)
    right = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
    down = np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1)

    def random_tree(n: int) -> NDArray[np.int64]:
        return np.array([[int(rng.integers(v)), v] for v in range(1, n)])

    rows = []
    for name, n, edges in (
        ("8 x 8 grid, 3 labels", side * side, np.concatenate([right, down])),
        (f"random tree of {nodes // 10} nodes, 3 labels", nodes // 10, random_tree(nodes // 10)),
        (f"random tree of {nodes} nodes, 3 labels", nodes, random_tree(nodes)),
    ):
        unary, tables = rng.normal(size=(n, 3)), rng.normal(size=(len(edges), 3, 3))
        factors = [([v], unary[v]) for v in range(n)]
        factors += [(e.tolist(), t) for e, t in zip(edges, tables, strict=True)]
        model = to_pgmpy([3] * n, factors)
        found = np.empty(n, np.int32)
        graph.pairwise_graph(unary, edges, tables)._engine.native.order("min_fill", 1e9, found)
        run = partial(graph_marginals, unary, edges, tables, jobs)
        mine = run().nodes
        seconds, theirs = pgmpy_within(limit, model, [str(v) for v in found])
        if theirs is None:
            name += f" (pgmpy was stopped after {limit:g} s: at least)"
        else:
            assert max(np.abs(a - b).max() for a, b in zip(mine, theirs, strict=True)) < 1e-8
        t = least({"graph": run}, repeats)["graph"]
        rows.append({"what": name, "pgmpy": seconds, "crfkit.graph": t, "times faster": seconds / t})
        show(rows[-1:])
    return rows


def numpy_sweeps(unary: Floats, right: Floats, down: Floats, sweeps: int) -> Floats:
    """Flooding on a grid in plain numpy, log space: four arrays of messages, all updated at once."""
    height, width, labels = unary.shape
    east = np.zeros((height, width, labels))  # message that a cell gets from its left
    west, south, north = np.zeros_like(east), np.zeros_like(east), np.zeros_like(east)

    def send(cavity: Floats, table: Floats, axis: int) -> Floats:
        x = table + np.expand_dims(cavity, -1 if axis == -2 else -2)
        top = x.max(axis=axis, keepdims=True)
        out = np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)
        return np.asarray(out - out.max(axis=-1, keepdims=True))

    for _ in range(sweeps):
        total = unary + east + west + south + north
        new_east = send((total - west)[:, :-1], right, -2)
        new_west = send((total - east)[:, 1:], right, -1)
        new_south = send((total - north)[:-1], down, -2)
        new_north = send((total - south)[1:], down, -1)
        east[:, 1:], west[:, :-1], south[1:], north[:-1] = new_east, new_west, new_south, new_north
    total = unary + east + west + south + north
    p = np.exp(total - total.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def numpy_products(unary: Floats, right: Floats, down: Floats, sweeps: int) -> Floats:
    """The same in probability space, the fastest plain form: no exponential within the sweeps."""
    height, width, labels = unary.shape
    u, r, d = np.exp(unary), np.exp(right), np.exp(down)
    east = np.ones((height, width, labels))
    west, south, north = np.ones_like(east), np.ones_like(east), np.ones_like(east)

    def send(cavity: Floats, table: Floats, rule: str) -> Floats:
        out = np.einsum(rule, table, cavity)
        return np.asarray(out / out.sum(axis=-1, keepdims=True))

    for _ in range(sweeps):
        total = u * east * west * south * north
        new_east = send((total / west)[:, :-1], r, "hwij,hwi->hwj")
        new_west = send((total / east)[:, 1:], r, "hwij,hwj->hwi")
        new_south = send((total / north)[:-1], d, "hwij,hwi->hwj")
        new_north = send((total / south)[1:], d, "hwij,hwj->hwi")
        east[:, 1:], west[:, :-1], south[1:], north[:-1] = new_east, new_west, new_south, new_north
    p = u * east * west * south * north
    return np.asarray(p / p.sum(axis=-1, keepdims=True))


def loopy(repeats: int, jobs: int | None, side: int, sweeps: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(2)
    labels = 5
    unary = rng.normal(size=(side, side, labels))
    right = 0.5 * rng.normal(size=(side, side - 1, labels, labels))
    down = 0.5 * rng.normal(size=(side - 1, side, labels, labels))
    g = graph.grid(unary, right, down, n_jobs=jobs)
    rule = Inference("loopy", schedule="flooding", tol=0.0, max_iter=sweeps)
    run = partial(g._engine.infer, g._scores, rule, factors=False, silent=True)
    mine = run().nodes.reshape(side, side, labels)
    assert np.abs(mine - numpy_sweeps(unary, right, down, sweeps)).max() < 1e-6
    t = least(
        {
            "graph": run,
            "numpy, log space": partial(numpy_sweeps, unary, right, down, sweeps),
            "numpy, products": partial(numpy_products, unary, right, down, sweeps),
        },
        repeats,
    )
    edges = 2 * side * (side - 1) * sweeps
    return [
        {
            "what": f"loopy, {side} x {side} grid, {labels} labels, {sweeps} sweeps, against {name}",
            "numpy edges/s": edges / t[name],
            "graph edges/s": edges / t["graph"],
            "times faster": t[name] / t["graph"],
        }
        for name in ("numpy, log space", "numpy, products")
    ]


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print("  ".join(f"{k}: {v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--side", type=int, default=200)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--tree", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=900, help="seconds after which pgmpy is stopped")
    parser.add_argument("--only", choices=["chain", "pgmpy", "loopy"])
    parser.add_argument("--json", type=Path, help="also write the rows here")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(measured())
    rows = []
    if args.only in (None, "chain"):
        rows += chains(4 * args.repeats, args.jobs)
        show(rows)
    if args.only in (None, "loopy"):
        found = loopy(min(3, args.repeats), args.jobs, args.side, args.sweeps)
        show(found)
        rows += found
    if args.only in (None, "pgmpy") and importlib.util.find_spec("pgmpy") is None:
        print("pgmpy is not installed (pip install '.[bench]'): its rows are left out")
    elif args.only in (None, "pgmpy"):
        rows += against_pgmpy(args.repeats, args.jobs, args.tree, args.limit)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
