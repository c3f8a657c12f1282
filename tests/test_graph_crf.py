"""Learning on graphs: gradients by finite differences, likelihoods by enumeration, chains against CRF."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import finite_difference, log_sum_exp
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from crfkit import CRF
from crfkit.graph import ConvergenceWarning, FactorialCRF, GraphCRF, Passing, SkipChainCRF

Floats = NDArray[np.float64]


def make_graphs(
    rng: np.random.Generator, edge_features: bool = True, types: bool = False
) -> tuple[list[Any], list[Any]]:
    X, y = [], []
    for n, edges in ((4, [[0, 1], [1, 2], [2, 3], [3, 0]]), (3, [[0, 1], [2, 1]]), (1, []), (2, [[1, 0]])):
        ends = np.array(edges, np.int64).reshape(-1, 2)
        x: tuple[Any, ...] = (rng.normal(size=(n, 3)), ends)
        if edge_features or types:
            x += (rng.normal(size=(len(ends), 2)) if edge_features else None,)
        if types:
            x += (rng.integers(0, 2, len(ends)),)
        X.append(x)
        y.append(rng.integers(0, 3, n).tolist())
    y[0][:3] = [0, 1, 2]
    if types:
        X[0][3][:2] = [0, 1]
    return X, y


@pytest.mark.parametrize("kind", ["likelihood", "pseudo_likelihood", "piecewise"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("edge_features", "types"), [(False, False), (True, False), (False, True), (True, True)])
def test_gradients(kind: str, directed: bool, edge_features: bool, types: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = make_graphs(rng, edge_features, types)
    f = GraphCRF(objective=kind, directed=directed, c2=0.3).make_objective(X, y, sample_weight=[1, 2, 0.5, 3])
    w = rng.normal(size=f.size)
    kept = w.copy()
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w), atol=1e-6)
    np.testing.assert_array_equal(w, kept)


@pytest.mark.parametrize("method", ["loopy", "trw", "mean_field"])
def test_gradients_of_approximate_likelihoods(method: str) -> None:
    rng = np.random.default_rng(1)
    X, y = make_graphs(rng)
    f = GraphCRF(inference=method, passing=Passing(tol=1e-12, max_iter=5000)).make_objective(X, y)
    w = 0.3 * rng.normal(size=f.size)
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w, 1e-5), atol=1e-5)


def test_gradients_with_unknown_labels_and_entropy() -> None:
    rng = np.random.default_rng(2)
    X, y = make_graphs(rng)
    y[0][1] = None
    y[1][0] = {0, 2}
    y[3] = None
    f = GraphCRF(entropy=0.7).make_objective(X, y)
    w = rng.normal(size=f.size)
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w), atol=1e-5)


def test_the_likelihood_equals_enumeration_also_with_unknown_labels() -> None:
    rng = np.random.default_rng(3)
    X, y = make_graphs(rng)
    y[0][1] = None
    y[1][0] = {0, 2}
    crf = GraphCRF(c2=0.0)
    f = crf.make_objective(X, y)
    w = rng.normal(size=f.size)
    crf.weights_ = w
    expected = 0.0
    for x, labels in zip(X, y, strict=True):
        g = crf.factor_graph(x)
        paths = np.array(list(itertools.product(range(3), repeat=len(labels))))
        scores = np.asarray(g.score(paths))
        fits = np.ones(len(paths), bool)
        for v, label in enumerate(labels):
            options = {0, 1, 2} if label is None else label if isinstance(label, set) else {label}
            fits &= np.isin(paths[:, v], list(options))
        expected += log_sum_exp(scores) - log_sum_exp(scores[fits])
    assert f.value_and_grad(w)[0] == pytest.approx(expected)


def test_piecewise_and_pseudo_likelihood_are_what_they_say() -> None:
    rng = np.random.default_rng(4)
    X, y = make_graphs(rng)
    values = {}
    for kind in ("pseudo_likelihood", "piecewise"):
        crf = GraphCRF(objective=kind, c2=0.0)
        f = crf.make_objective(X, y)
        w = np.random.default_rng(5).normal(size=f.size)
        crf.weights_ = w
        values[kind] = f.value_and_grad(w)[0]
    pseudo = pieces = 0.0
    for x, labels in zip(X, y, strict=True):
        g = crf.factor_graph(x)
        for v in range(len(labels)):
            rows = [[*labels[:v], k, *labels[v + 1 :]] for k in range(3)]
            scores = np.asarray(g.score(np.array(rows)))
            pseudo += log_sum_exp(scores) - scores[labels[v]]
            unary = x[0] @ crf.node_weights_[:-1] + crf.node_weights_[-1]
            pieces += log_sum_exp(unary[v]) - unary[v][labels[v]]
        for (a, b), feature in zip(x[1], x[2], strict=True):
            table = np.einsum("f,fij->ij", feature, crf.edge_weights_[0])
            pieces += log_sum_exp(table.ravel()) - table[labels[a], labels[b]]
    assert values["pseudo_likelihood"] == pytest.approx(pseudo)
    assert values["piecewise"] == pytest.approx(pieces)


def test_a_chain_is_learnt_as_crf_learns_it() -> None:
    rng = np.random.default_rng(6)
    words = [[f"w{k}" for k in rng.integers(0, 5, n)] for n in (4, 6, 1, 3)]
    labels = [["ABC"[(int(w[1]) + t) % 3] for t, w in enumerate(s)] for s in words]
    X = [(np.eye(5)[[int(w[1]) for w in s]], [[t, t + 1] for t in range(len(s) - 1)]) for s in words]
    graph = GraphCRF(bias=False, c2=0.5, tol=1e-12).fit(X, labels)
    items = [[{w: 1.0} for w in s] for s in words]
    crf = CRF(c2=0.5, tol=1e-12, start_end=False, all_possible_states=True, dtype="float64").fit(items, labels)
    assert graph.result_.value == pytest.approx(crf.result_.value, rel=1e-7)
    for a, b in zip(graph.predict_marginals(X), crf.predict_marginals(items), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert [p.tolist() for p in graph.predict(X)] == crf.predict(items)


def blobs(n: int = 12) -> tuple[list[Any], list[Any]]:
    """Noisy stripes on small grids, of differing sizes."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for k in range(n):
        height, width = 3 + k % 2, 4
        cell = np.arange(height * width).reshape(height, width)
        labels = np.tile(np.arange(width) // 2, (height, 1)) ^ (k % 2)
        labels ^= rng.random(labels.shape) < 0.08
        features = np.stack([labels + rng.normal(size=labels.shape), rng.normal(size=labels.shape)], axis=-1)
        right = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1)
        down = np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1)
        types = np.repeat([0, 1], [len(right), len(down)])
        X.append((features.reshape(-1, 2), np.concatenate([right, down]), None, types))
        y.append(labels.ravel())
    return X, y


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"inference": "loopy"},
        {"inference": "trw"},
        {"inference": "mean_field", "passing": Passing(max_iter=5000)},
        {"objective": "pseudo_likelihood"},
        {"objective": "piecewise"},
        {"c1": 0.1},
        {"directed": False},
    ],
)
def test_edges_help(params: dict[str, Any]) -> None:
    X, y = blobs()
    lone = [(x[0], np.zeros((0, 2), np.int64), None, np.zeros(0, np.int64)) for x in X]
    node_only = GraphCRF(c2=0.3).fit(lone, y).score(lone, y)
    crf = GraphCRF(c2=0.3, **params).fit(X, y)
    assert crf.score(X, y) > node_only + 0.03
    marginals = crf.predict_marginals(X)
    np.testing.assert_allclose(marginals[0].sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(crf))
    np.testing.assert_array_equal(again.predict(X)[3], crf.predict(X)[3])


def test_scikit_learn_takes_it() -> None:
    X, y = blobs()
    crf = GraphCRF(c2=0.1)
    assert clone(crf).get_params() == crf.get_params()
    objects = np.empty(len(X), object)
    for i, x in enumerate(X):
        objects[i] = x
    targets = np.empty(len(y), object)
    for i, labels in enumerate(y):
        targets[i] = labels
    assert cross_val_score(crf, objects, targets, cv=3).mean() > 0.7


def test_unknown_labels_are_learnt_from() -> None:
    X, y = blobs(20)
    partial = [[label if i % 3 == 0 else None for i, label in enumerate(labels)] for labels in y]
    partial[5] = None  # type: ignore[call-overload]
    assert GraphCRF(c2=0.1).fit(X, partial).score(X, y) > 0.8


def test_convergence_of_training_is_reported() -> None:
    X, y = blobs()
    with pytest.warns(ConvergenceWarning, match="loopy inference did not converge in"):
        GraphCRF(inference="loopy", passing=Passing(max_iter=1, tol=0.0), max_iter=3).fit(X, y)


def test_sparse_features_give_the_same() -> None:
    from scipy.sparse import csr_array

    X, y = blobs()
    sparse = [(csr_array(x[0]), *x[1:]) for x in X]
    a, b = GraphCRF().fit(X, y), GraphCRF().fit(sparse, y)
    np.testing.assert_allclose(a.weights_, b.weights_, atol=1e-6)


def test_errors_name_the_graph() -> None:
    X, y = blobs(3)
    with pytest.raises(ValueError, match="graph 1 has 16 nodes, but 2 labels"):
        GraphCRF().fit(X, [y[0], [0, 1], y[2]])
    with pytest.raises(ValueError, match="graph 0: edges must join distinct nodes"):
        GraphCRF().fit([(np.zeros((2, 1)), [[0, 2]])], [[0, 1]])
    with pytest.raises(ValueError, match="'inference' of GraphCRF must be one of"):
        GraphCRF(inference="magic").fit(X, y)
    with pytest.raises(ValueError, match="pseudo_likelihood training needs all labels; graph 1"):
        GraphCRF(objective="pseudo_likelihood").fit(X, [y[0], None, y[2]])
    with pytest.raises(ValueError, match="treewidth"):
        GraphCRF(max_bytes=100).fit(X, y)
    with pytest.raises(ValueError, match="entropy regularisation needs"):
        GraphCRF(inference="loopy", entropy=1.0).fit(X, y)


def test_factorial_and_skip_chains_on_columns() -> None:
    X = [[("the", "x"), ("Dog", "y"), ("barks", "x"), ("at", "x"), ("Dog", "x")], [("a", "x"), ("cat", "y")]]
    y = [[("D", "B"), ("N", "I"), ("V", "O"), ("P", "O"), ("N", "B")], [("D", "B"), ("N", "I")]]
    for params in ({}, {"inference": "loopy"}, {"objective": "piecewise"}, {"objective": "pseudo_likelihood"}):
        joint = FactorialCRF(c2=0.01, **params).fit(X, y)  # type: ignore[arg-type]
        assert joint.predict(X) == y
        assert joint.score(X, y) == 1.0
        first, second = joint.predict_marginals(X)[0]
        assert first.shape == (5, 4)
        assert second.shape == (5, 3)
    holes: list[Any] = [[("D", None), None, ({"V", "N"}, "O"), ("P", "O"), ("N", "B")], [("D", "B"), ("N", "I")]]
    assert FactorialCRF(c2=0.01).fit(X, holes).score(X[1:], y[1:]) == 1.0
    single = [[a for a, _ in s] for s in y]
    skip = SkipChainCRF(c2=0.01).fit(X, single)
    assert skip.predict(X) == single
    assert skip.factor_graph(X[0]).n_factors == 5
    assert len(skip.predict([])) == 0
