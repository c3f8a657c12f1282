"""``n_jobs`` means the same wherever it can be given."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfkit
from crfkit import CRF, HMM, MEMM, SegmentCRF, WeakLabels, chain, graph, training
from crfkit.base.threads import resolve_threads
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
from crfkit.training import ALGORITHMS, LBFGS

X, Y = [["a", "b", "a"], ["b", "b"], ["a"]], [["A", "B", "A"], ["B", "B"], ["A"]]
RNG = np.random.default_rng(0)
P = chain.Potentials.batch([chain.Potentials(RNG.normal(size=(n, 3)), RNG.normal(size=(3, 3))) for n in (4, 1, 6)])
U, A = RNG.normal(size=(4, 2)), RNG.normal(size=(2, 2))
NODES, EDGES = [RNG.normal(size=(3, 2)), RNG.normal(size=(2, 2))], [[(0, 1), (1, 2)], [(0, 1)]]


def fit(estimator: Any) -> Callable[[Any], Any]:
    return lambda n: estimator(n_jobs=n).fit(X, Y).predict(X)


def weights(algorithm: Any, n: Any) -> Any:
    return CRF(algorithm=algorithm, n_jobs=n, max_iter=2).fit(X, Y).weights_


def minimum(n: Any) -> Any:
    return LBFGS().minimize(CRF(c2=1, n_jobs=n).objective(X, Y), np.zeros(CRF().objective(X, Y).size), n_jobs=n).w


def loaded(n: Any, path: Path) -> Any:
    CRF().fit(X, Y).save(path / "model")
    return crfkit.load(path / "model", n_jobs=n).predict(X)


#: A call of everything public that takes n_jobs, by its name.
CALLS: dict[str, Callable[[Any], Any]] = {
    "crfkit.CRF": fit(CRF),
    "crfkit.HMM": fit(HMM),
    "crfkit.MEMM": fit(MEMM),
    "crfkit.SegmentCRF": lambda n: SegmentCRF(n_jobs=n).fit(X, [[f"B-{k}" for k in row] for row in Y]).predict(X),
    "crfkit.WeakLabels": lambda n: WeakLabels({"rule": Y}, ["A", "B"], scheme=None, n_jobs=n).fit_transform(X),
    "crfkit.graph.SkipChainCRF": fit(SkipChainCRF),
    "crfkit.graph.FactorialCRF": lambda n: (
        FactorialCRF(n_jobs=n).fit(X, [[(k, k) for k in row] for row in Y]).predict(X)
    ),
    "crfkit.graph.GraphCRF": lambda n: (
        GraphCRF(n_jobs=n)
        .fit(list(zip(NODES, EDGES, strict=True)), [[0, 1, 0], [1, 1]])
        .predict(list(zip(NODES, EDGES, strict=True)))
    ),
    "crfkit.graph.FactorGraph": lambda n: graph.FactorGraph([2, 2], [((0, 1), A)], n_jobs=n).log_partition(),
    "crfkit.graph.chain": lambda n: graph.chain(U, A, n_jobs=n).log_partition(),
    "crfkit.graph.factorial": lambda n: graph.factorial([U, U], [A, A], [A], n_jobs=n).log_partition(),
    "crfkit.graph.grid": lambda n: graph.grid(U.reshape(2, 2, 2), A, n_jobs=n).log_partition(),
    "crfkit.graph.higher_order_chain": lambda n: graph.higher_order_chain(
        U, np.ones((2, 2, 2)), n_jobs=n
    ).log_partition(),
    "crfkit.graph.pairwise_graph": lambda n: graph.pairwise_graph(U, [(0, 2), (1, 3)], A, n_jobs=n).log_partition(),
    "crfkit.graph.semi_markov_chain": lambda n: graph.semi_markov_chain(U[:, None], A, n_jobs=n).log_partition(),
    "crfkit.graph.skip_chain": lambda n: graph.skip_chain(U, A, [(0, 3)], A, n_jobs=n).log_partition(),
    "crfkit.graph.tree": lambda n: graph.tree([-1, 0, 0, 1], U, A, n_jobs=n).log_partition(),
    "crfkit.chain.kbest_entropy": lambda n: chain.kbest_entropy(P, 2, n_jobs=n),
    "crfkit.chain.marginals": lambda n: chain.marginals(P, n_jobs=n).nodes,
    "crfkit.chain.decode": lambda n: np.concatenate(chain.decode(P, n_jobs=n)),
    "crfkit.chain.log_probability": lambda n: chain.log_probability(P, chain.decode(P), n_jobs=n),
    "crfkit.chain.nbest": lambda n: [b.scores.tolist() for b in chain.nbest(P, 2, n_jobs=n)],
    "crfkit.chain.sample": lambda n: np.concatenate([s.ravel() for s in chain.sample(P, 2, 0, n_jobs=n)]),
    "crfkit.chain.entropy_gradient": lambda n: chain.entropy_gradient(P, n_jobs=n).unary,
    "crfkit.chain.entropy_lattices": lambda n: str(chain.entropy_lattices(P, n_jobs=n)),
    "crfkit.chain.span_entropies": lambda n: chain.span_entropies(P, n_jobs=n).nodes,
    "crfkit.training.Problem": minimum,
}
for name in ("confidence", "entropy", "log_partition", "margin"):
    CALLS[f"crfkit.chain.{name}"] = partial(getattr(chain, name), P)
for name in ALGORITHMS:
    CALLS[f"algorithm {name}"] = partial(weights, name)


def takes_n_jobs(f: Any) -> bool:
    try:
        return "n_jobs" in inspect.signature(f).parameters
    except (TypeError, ValueError):
        return False


def test_all_are_called() -> None:
    public = {
        f"{module.__name__}.{name}"
        for module in (crfkit, chain, graph, training)
        for name in module.__all__
        if takes_n_jobs(getattr(module, name))
    }
    assert public - CALLS.keys() == {"crfkit.load"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_all_cores_or_one(call: Callable[[Any], Any]) -> None:
    one = pickle.dumps(call(1))
    for n in (-1, None, -2, 2, np.int64(2)):
        assert pickle.dumps(call(n)) == one
    for wrong, error in ((0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="'n_jobs' must"):
            call(wrong)


def test_models_are_loaded_for_all_cores(tmp_path: Path) -> None:
    for n in (-1, None, 1, -2):
        assert loaded(n, tmp_path) == loaded(1, tmp_path)


def test_how_many_threads() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert [resolve_threads(n) for n in (1, 3, -1, None)] == [1, 3, cores, cores]
    assert resolve_threads(-2) == max(1, cores - 1)
    assert resolve_threads(-1000) == 1
