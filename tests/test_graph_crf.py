"""Learning on graphs: gradients by finite differences, likelihoods by enumeration, chains against CRF."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import finite_difference, log_sum_exp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score

from crfkit import CRF, ModelError, load
from crfkit.chain import MinDivergence
from crfkit.graph import FactorialCRF, GraphCRF, Inference, SkipChainCRF
from crfkit.model.chain_model import read_file, write_file

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
    f = GraphCRF(loss=kind, directed=directed, c2=0.3).objective(X, y, sample_weight=[1, 2, 0.5, 3])
    w = rng.normal(size=f.size)
    kept = w.copy()
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w), atol=1e-6)
    np.testing.assert_array_equal(w, kept)


@pytest.mark.parametrize("method", ["loopy", "trw", "mean_field"])
def test_gradients_of_approximate_likelihoods(method: str) -> None:
    rng = np.random.default_rng(1)
    X, y = make_graphs(rng)
    f = GraphCRF(inference=Inference(method, tol=1e-12, max_iter=5000)).objective(X, y)
    w = 0.3 * rng.normal(size=f.size)
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w, 1e-5), atol=1e-5)


def test_gradients_with_unknown_labels_and_entropy() -> None:
    rng = np.random.default_rng(2)
    X, y = make_graphs(rng)
    y[0][1] = None
    y[1][0] = {0, 2}
    y[3] = None
    f = GraphCRF(entropy_weight=0.7).objective(X, y)
    w = rng.normal(size=f.size)
    _, gradient = f.value_and_grad(w)
    np.testing.assert_allclose(gradient, finite_difference(lambda v: f.value_and_grad(v)[0], w), atol=1e-5)


def test_the_likelihood_equals_enumeration_also_with_unknown_labels() -> None:
    rng = np.random.default_rng(3)
    X, y = make_graphs(rng)
    y[0][1] = None
    y[1][0] = {0, 2}
    crf = GraphCRF(c2=0.0)
    f = crf.objective(X, y)
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
        crf = GraphCRF(loss=kind, c2=0.0)
        f = crf.objective(X, y)
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
        {"inference": Inference("mean_field", max_iter=5000)},
        {"loss": "pseudo_likelihood"},
        {"loss": "piecewise"},
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
        GraphCRF(inference=Inference("loopy", max_iter=1, tol=0.0), max_iter=3).fit(X, y)


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
        GraphCRF(loss="pseudo_likelihood").fit(X, [y[0], None, y[2]])
    with pytest.raises(ValueError, match="treewidth"):
        GraphCRF(inference=Inference(max_bytes=100)).fit(X, y)
    with pytest.raises(ValueError, match="entropy regularisation needs"):
        GraphCRF(inference="loopy", entropy_weight=1.0).fit(X, y)


def test_factorial_and_skip_chains_on_columns() -> None:
    X = [[("the", "x"), ("Dog", "y"), ("barks", "x"), ("at", "x"), ("Dog", "x")], [("a", "x"), ("cat", "y")]]
    y = [[("D", "B"), ("N", "I"), ("V", "O"), ("P", "O"), ("N", "B")], [("D", "B"), ("N", "I")]]
    for params in ({}, {"inference": "loopy"}, {"loss": "piecewise"}, {"loss": "pseudo_likelihood"}):
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


WORDS = [["Green", "spoke", "to", "Green"], ["we", "spoke"], ["Green", "ran"]]
NAMES = [["PER", "O", "O", "PER"], ["O", "O"], ["PER", "O"]]


def word_items(x: list[str]) -> list[dict[str, Any]]:
    return [{"w": w, "n": len(w)} for w in x]


def ends_of(x: list[str]) -> list[tuple[int, int]]:
    return [(0, len(x) - 1)] if len(x) > 2 else []


def saved_models() -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    X, y = make_graphs(rng, True, True)
    plain, _ = make_graphs(rng, False, False)
    names = [["abc"[k] for k in labels] for labels in y]
    pairs = [[(label, len(label)) for label in labels] for labels in NAMES]
    items = [word_items(x) for x in WORDS]
    few = Inference("loopy", schedule="flooding", damping=0.1, tol=1e-4, max_iter=50, beam=MinDivergence(1e-9, 2))
    return {
        "graph": (GraphCRF(c2=0.1).fit(X, y), X),
        "undirected": (
            GraphCRF(directed=False, bias=False, loss="piecewise", decoding=few).fit(plain, names),
            plain,
        ),
        "skip": (SkipChainCRF(c2=0.1, min_freq=2).fit(WORDS, NAMES), WORDS),
        "skip items": (SkipChainCRF(None, skips=ends_of).fit(items, NAMES), items),
        "skip functions": (SkipChainCRF(word_items, skips=ends_of).fit(WORDS, NAMES), WORDS),
        "factorial": (FactorialCRF(c1=0.01).fit(WORDS, pairs), WORDS),
    }


MODELS = list(saved_models())


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    crf, X = saved_models()[name]
    path = tmp_path / "model.crfkit"
    crf.save(path)
    again: Any = load(path, features=word_items if name == "skip functions" else None, n_jobs=1)
    assert type(again) is type(crf)
    if name in ("skip items", "skip functions"):
        with pytest.raises(ValueError, match=r"skips by the function 'ends_of'.*set_params\(skips=ends_of\)"):
            again.predict(X)
        again.set_params(skips=ends_of)
    same = {k for k in crf.get_params() if k not in ("n_jobs", "features")}
    assert {k: again.get_params()[k] for k in same} == {k: crf.get_params()[k] for k in same}
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    np.testing.assert_equal([c.tolist() for c in again.classes_], [c.tolist() for c in crf.classes_])
    for copy in (again, pickle.loads(pickle.dumps(crf))):
        np.testing.assert_equal(copy.predict(X), crf.predict(X))
        np.testing.assert_allclose(
            np.concatenate([np.ravel(p) for p in itertools.chain(*copy.predict_marginals(X))]),
            np.concatenate([np.ravel(p) for p in itertools.chain(*crf.predict_marginals(X))]),
            atol=1e-12,
        )
    if isinstance(crf, GraphCRF):
        np.testing.assert_array_equal(again.node_weights_, crf.node_weights_)
        np.testing.assert_equal(again.edge_weights_, crf.edge_weights_)
    assert again.n_iter_ == crf.n_iter_
    assert os.listdir(tmp_path) == ["model.crfkit"]
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_model_is_a_clear_error(tmp_path: Path, name: str) -> None:
    crf, _ = saved_models()[name]
    path = tmp_path / "m"
    crf.save(path)
    whole = path.read_bytes()
    for size in (0, 4, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"m: .*(cut short|truncated|damaged|only)"):
            load(path)


def test_damaged_graph_models(tmp_path: Path) -> None:
    path = tmp_path / "m"
    rng = np.random.default_rng(0)
    models = saved_models()
    cases: list[tuple[str, Any]] = [
        ("graph", lambda a, h: h.update(edge_types=10**9)),
        ("graph", lambda a, h: h.update(features=[2**62, 4])),
        ("graph", lambda a, h: h.update(labels=[["a"]])),
        ("graph", lambda a, h: h.update(labels=[["a", "a", "b"]])),
        ("graph", lambda a, h: h.update(labels=[])),
        ("graph", lambda a, h: h["params"].update(inference="magic")),
        ("graph", lambda a, h: h.update(params=None)),
        ("undirected", lambda a, h: h["params"]["decoding"].update(damping=7)),
        ("undirected", lambda a, h: h["params"]["decoding"].update(beam="magic:1")),
        ("skip", lambda a, h: a.update(weights=a["weights"] * np.nan)),
        ("skip", lambda a, h: h.pop("encoder")),
        ("skip", lambda a, h: h.pop("skips")),
        ("factorial", lambda a, h: a.update(weights=a["weights"][:-1])),
        ("factorial", lambda a, h: a.pop("weights")),
    ]
    for name, change in cases:
        models[name][0].save(path)
        header, arrays = read_file(path)
        change(arrays, header)
        write_file(path, header, arrays)
        with pytest.raises(ModelError, match="damaged"):
            load(path)
    models["graph"][0].save(path)
    header, arrays = read_file(path)
    for wrong, message in ((["x"], "not a linear-chain model"), ("another_crf", "not a linear-chain model")):
        write_file(path, {**header, "estimator": wrong}, arrays)
        with pytest.raises(ModelError, match=message):
            load(path)
    write_file(path, {**header, "format": 99}, arrays)
    with pytest.raises(ModelError, match="newer version of crfkit"):
        load(path)
    for name in MODELS:
        models[name][0].save(path)
        whole = bytearray(path.read_bytes())
        for _ in range(150):
            data = bytearray(whole)
            for k in rng.integers(len(data), size=3):
                data[k] = rng.integers(256)
            path.write_bytes(data)
            with contextlib.suppress(ModelError):
                load(path)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        GraphCRF().save(tmp_path / "m")
    crf = SkipChainCRF().fit([["a", "b"]], [[("x",), ("y",)]])
    with pytest.raises(ValueError, match="connects words"):
        SkipChainCRF(None).fit([[{"a": 1}]], [["x"]])
    with pytest.raises(ValueError, match="strings and numbers"):
        crf.save(tmp_path / "m")
    saved_models()["factorial"][0].save(tmp_path / "m")
    for command in (["inspect", "m"], ["tag", "words", "-m", "m"]):
        (tmp_path / "words").write_text("a\n")
        run = [sys.executable, "-m", "crfkit", *command]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "a FactorialCRF: the command line takes chains and segments only" in done.stderr
        assert "Traceback" not in done.stderr


def tagged(rng: np.random.Generator, n: int = 12) -> tuple[list[Any], list[Any]]:
    """Words, and tags that follow from them and from the tag before."""
    words = [[f"w{k}" for k in rng.integers(0, 6, rng.integers(1, 7))] for _ in range(n)]
    return words, [["ABC"[(int(w[1]) + t // 2) % 3] for t, w in enumerate(s)] for s in words]


@pytest.mark.parametrize("all_states", [False, True])
def test_one_column_is_learnt_as_crf_learns_it(all_states: bool) -> None:
    words, labels = tagged(np.random.default_rng(0))
    items = [[{w: 1.0, f"{w} {t % 3}": 0.5} for t, w in enumerate(s)] for s in words]
    one = FactorialCRF(None, c2=0.3, tol=1e-12, all_possible_states=all_states)
    one.fit(items, [[(a,) for a in s] for s in labels])
    crf = CRF(c2=0.3, tol=1e-12, start_end=False, all_possible_states=all_states, dtype="float64").fit(items, labels)
    assert one.result_.value == pytest.approx(crf.result_.value, rel=1e-8)
    for (a,), b in zip(one.predict_marginals(items), crf.predict_marginals(items), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    unseen = np.count_nonzero(one.weights_ == 0.0)
    assert (unseen == 0) == all_states


def test_weights_of_sets_are_learnt_and_those_of_unknown_labels_are_not() -> None:
    items = [[{"a": 1.0}, {"b": 1.0}, {"c": 1.0}, {"d": 1.0}]]
    crf = SkipChainCRF(None, skips=lambda x: [], c2=0.1).fit(items, [["X", {"X", "Z"}, None, "Y"]])
    assert crf.classes_.tolist() == ["X", "Y", "Z"]
    expected = [[True, False, False], [True, False, True], [False, False, False], [False, True, False]]
    np.testing.assert_array_equal(crf.weights_[:12].reshape(4, 3) != 0, expected)


@pytest.mark.parametrize("links", [(0,), (0, -1), (1,), (2, 0, -1)])
def test_links_tie_tokens_apart(links: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    words, tags = tagged(rng)
    labels = [list(zip(s, ["xy"[k] for k in rng.integers(0, 2, len(s))], strict=True)) for s in tags]
    crf = FactorialCRF(c2=0.1, links=links, max_iter=20).fit(words, labels)
    x = ["w1", "w4", "w2"]
    g = crf.factor_graph(x)
    found = [g._engine.scope_of(k).tolist() for k in range(g.n_factors)]
    expected = [[0, 1], [1, 2], [3, 4], [4, 5]]
    expected += [[t, 3 + t + link] for link in links for t in range(3) if 0 <= t + link < 3]
    assert sorted(found) == sorted(expected)
    paths = np.array(list(itertools.product(*[range(c) for c in g.cardinalities])))
    scores = np.asarray(g.score(paths))
    p = np.exp(scores - log_sum_exp(scores))
    first, second = crf.predict_marginals([x])[0]
    for t in range(3):
        np.testing.assert_allclose(first[t], np.bincount(paths[:, t], p, 3), atol=1e-9)
        np.testing.assert_allclose(second[t], np.bincount(paths[:, 3 + t], p, 2), atol=1e-9)
    objective = crf._make_objective(crf._graphs(words, False), crf._columns(labels), None)
    w = 0.3 * rng.normal(size=objective.size)
    expected_gradient = finite_difference(lambda v: objective.value_and_grad(v)[0], w)
    np.testing.assert_allclose(objective.value_and_grad(w)[1], expected_gradient, atol=1e-5)


@pytest.mark.parametrize("params", [{}, {"inference": "loopy"}, {"loss": "piecewise"}, {"loss": "pseudo_likelihood"}])
def test_shared_tables_are_held_once(params: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    tokens, labels = 3000, 40
    X = [(np.ones((tokens, 1)), np.stack([np.arange(tokens - 1), np.arange(1, tokens)], 1))]
    y = [np.concatenate([np.arange(labels), rng.integers(0, labels, tokens - labels)])]
    f = GraphCRF(bias=False, n_jobs=1, **params).objective(X, y)
    w = 0.1 * rng.normal(size=f.size)
    f.value_and_grad(w)
    tracemalloc.start()
    f.value_and_grad(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 8 * tokens * labels**2  # a table for every edge would be twice that


def test_the_best_labellings_equal_enumeration() -> None:
    X, y = blobs(3)
    X = [(x[0][:5], x[1][(x[1] < 5).all(axis=1)]) for x in X]
    crf = GraphCRF(c2=0.3).fit(X, [labels[:5] for labels in y])
    for x, best in zip(X, crf.predict_nbest(X, 4), strict=True):
        g = crf.factor_graph(x)
        scores = np.sort(g.score(np.array(list(itertools.product(range(2), repeat=5)))))[::-1]
        p = np.exp(scores - log_sum_exp(scores))[:4]
        np.testing.assert_allclose([t.probability for t in best], p)
        numbers = [[crf.classes_.tolist().index(label) for label in t.labels] for t in best]
        np.testing.assert_allclose(np.exp(g.log_probability(np.array(numbers))), p)


F, E = np.array([[1.0], [0.0]]), [[0, 1]]
SKIP: Any = SkipChainCRF
TRIANGLE = (np.zeros((3, 1)), [[0, 1], [1, 2], [2, 0]])


def fit(X: Any, y: Any, **params: Any) -> GraphCRF:
    return GraphCRF(max_iter=2, **params).fit(X, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fit(None, [[0]]), "no labelled graph"),
        (lambda: fit([F], [[0, 1]]), "graph 0 must be"),
        (lambda: fit([(F, E), ([["a"], ["b"]], E)], [[0, 1]] * 2), "graph 1: features must be numbers"),
        (lambda: fit([([[1], [1, 2]], E)], [[0, 1]]), "graph 0: features must be numbers in rows of one length"),
        (
            lambda: fit([([[np.nan], [1]], E)], [[0, 1]]),
            "graph 0: features of node 0 must be numbers from -1e10 to 1e10, got nan",
        ),
        (lambda: fit([(F, [[0.5, 1.0]])], [[0, 1]]), "graph 0: edges must be ints"),
        (lambda: fit([(F, [["a", "b"]])], [[0, 1]]), "graph 0: edges must be ints"),
        (lambda: fit([(F, [[0, 1], [1]])], [[0, 1]]), "graph 0: edges must be ints"),
        (lambda: fit([(F, [0, 1, 0])], [[0, 1]]), r"graph 0: edges must have shape \[m, 2\], got \(3,\)"),
        (lambda: fit([(F, None)], [[0, 1]]), "graph 0: edges must be ints"),
        (lambda: fit([(F, [[0, 1], [0, 2]])], [[0, 1]]), r"graph 0: edges must join .* 0 to 1, got \[0, 2\]"),
        (lambda: fit([(F, E), (np.zeros((2, 3)), E)], [[0, 1]] * 2), "features: graph 0 has 1, graph 1 has 3"),
        (lambda: fit([(F, E, [[1.0]]), (F, E)], [[0, 1]] * 2), "edge features: graph 0 has 1, graph 1 has 0"),
        (lambda: fit([(F, E, [["a"]])], [[0, 1]]), "graph 0: edge features must be numbers"),
        (
            lambda: fit([(F, E, [[np.inf]])], [[0, 1]]),
            "graph 0: edge features of edge 0 must be numbers from -1e10 to 1e10, got inf",
        ),
        (lambda: fit([(F, E, None, [0.5])], [[0, 1]]), "graph 0: edge types must be ints"),
        (lambda: fit([(np.zeros((0, 1)), [])], [[]]), "there are no labels to learn from"),
        (lambda: fit([(F, E)], [3]), "labels of graph 0 must be a list, got 3"),
        (lambda: fit([(F, E)], [[[0], [1]]]), r"graph 0, position 0: a label must be .* got list \[0\]"),
        (lambda: fit([(F, E)], [[float("nan"), 1.0]]), "graph 0, position 0: a label must be .* got float nan"),
        (lambda: fit([(F, E)], [[set(), 1]]), "graph 0, position 0: a set of possible labels must not be empty"),
        (
            lambda: fit([(F, E)], [[0, 1]]).predict([(np.zeros((2, 3)), E)]),
            "trained with 1 features, but graph 0",
        ),
        (lambda: fit([(F, E, [[1.0]])], [[0, 1]]).predict([(F, E)]), "trained with 1 edge features, but graph 0 has 0"),
        (lambda: fit([(F, E)], [[0, 1]]).predict([(F, E, [[1.0]])]), "trained with 0 edge features, but graph 0 has 1"),
        (
            lambda: fit([(F, E)], [[0, 1]]).predict([(F, E, None, [1])]),
            "trained with edge types below 1, but graph 0 has 1",
        ),
        (lambda: fit([(F, E), (F, E, None, [10**6])], [[0, 1]] * 2), "graph 1: edge types must be .* got 1000000"),
        (lambda: fit([(F, E)], [[0, 1]]).score([], []), "there are no labels to score"),
        (lambda: fit([(F, E)], [[0, 1]]).score([(F, E)], None), "there is 1 graph, but labels for 0"),
        (lambda: fit([(F, E)], [[0, 1]]).score([(F, E)], [[0]]), "graph 0 has 2 nodes, but 1 label"),
        (lambda: fit([(F, E)], [[0, 1]]).objective([(F, E)], [[{0, 7}, 1]]), "graph 0, position 0: label 7 is not one"),
        (lambda: GraphCRF().fit([(F, E)], [[0, 1]], sample_weight=["a"]), "'sample_weight' must be numbers"),
        (lambda: fit([(F, E)], [[0, 1]], inference=3), "'inference' of GraphCRF must be one of .* or Inference, got 3"),
        (
            lambda: fit([(F, E), TRIANGLE], [[0, 1], [0, 1, 0]], inference=Inference(max_bytes=200)),
            "on graph 1 of 3 variables",
        ),
        (lambda: FactorialCRF().fit([["a", "b"]], [[1, 2]]), "sequence 0, position 0: the labels of a token must be"),
        (
            lambda: FactorialCRF(links=(0, 0)).fit([["a"]], [[("A", "B")]]),
            "'links' of FactorialCRF must be",
        ),
        (
            lambda: SKIP(skips=lambda x: [(0, 9)]).fit([["a", "b"]], [["A", "B"]]),
            "skips of sequence 0 must",
        ),
        (
            lambda: SKIP(skips=lambda x: [3]).fit([["a", "b"]], [["A", "B"]]),
            "skips of sequence 0 must have",
        ),
        (lambda: SKIP(skips="x").fit([["a", "b"]], [["A", "B"]]), "'skips' of SkipChainCRF must be a function"),
        (lambda: SKIP(skips=lambda x: None).fit([["a", "b"]], [["A", "B"]]), "skips of sequence 0 must .* got None"),
        (lambda: SKIP(skips=lambda x: 3).fit([["a", "b"]], [["A", "B"]]), "skips of sequence 0 must .* got 3"),
        (lambda: SKIP(min_freq=-1).fit([["a", "b"]], [["A", "B"]]), "'min_freq' of SkipChainCRF must be a number >= 0"),
        (lambda: SKIP(all_possible_states="x").fit([["a"]], [["A"]]), "'all_possible_states' of SkipChainCRF must be"),
        (lambda: FactorialCRF().fit([["a"]], [[("A", "B")] * 2]), "sequence 0 has 1 token, but 2 labels"),
        (lambda: fit([(F, E)], [[0, 1]], directed="x"), "'directed' of GraphCRF must be True or False, got 'x'"),
        (lambda: fit([(F, E)], [[0, 1]], bias=3), "'bias' of GraphCRF must be True or False, got 3"),
        (lambda: fit([(F, E)], [[0, 1]], callback=3), "'callback' of GraphCRF must be a function or None, got 3"),
        (lambda: fit([(F, E)], ["ab"]), "labels of graph 0 must be a list, got 'ab'"),
        (lambda: fit([(F, E)], [[0, 1]]).predict(None), "'X' must be a list of graphs, got None"),
        (lambda: fit([(F, E)], [[0, 1]]).predict_nbest([(F, E)], 0), "'k' of GraphCRF must be an int >= 1"),
    ],
)
def test_wrong_input_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_labels_do_not_count_in_scores() -> None:
    crf = GraphCRF(c2=0.01).fit([(F, E)], [[0, 1]])
    assert [p.tolist() for p in crf.predict([(F, E)])] == [[0, 1]]
    three = [(F, E)] * 3
    assert crf.score(three, [None, [0, None], [1, {1, 0}]]) == pytest.approx(2 / 3)
    assert crf.score(three, [[0, 0], None, [0, 1]], sample_weight=[3, 1, 1]) == pytest.approx(5 / 8)
    skip = SkipChainCRF(c2=0.01).fit(WORDS, NAMES)
    assert skip.score(WORDS, [None, ["O", "PER"], [None, {"O", "PER"}]]) == pytest.approx(2 / 3)
    joint = FactorialCRF(c2=0.01).fit([["a", "b"]], [[("A", "X"), ("B", "Y")]])
    assert joint.score([["a", "b"]] * 2, [[("A", None), ({"A"}, "Y")], [None, ("B", "Y")]]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="sequence 0: the labels of a token must be a tuple of 2"):
        joint.score([["a", "b"]], [[("A",), ("B", "Y")]])


def test_many_edge_types_with_gaps() -> None:
    x = (np.zeros((3, 1)), [[0, 1], [1, 2], [2, 0]], None, [4, 0, 2])
    crf = fit([x], [[0, 1, 1]])
    assert len(crf.edge_weights_) == 5
    assert [bool(w.any()) for w in crf.edge_weights_] == [True, False, True, False, True]


def test_graphs_without_nodes_or_edges() -> None:
    empty: Any = (np.zeros((0, 1)), [])
    crf = fit([(F, E), empty], [[0, 1], []])
    assert [p.tolist() for p in crf.predict([empty, (F, [])])] == [[], [0, 1]]


@pytest.mark.parametrize("value", [1e300, -1.1e10, np.inf, np.nan])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_have_a_bound(value: float, sparse: bool) -> None:
    from scipy.sparse import coo_array

    good = np.array([[1e10, 0.0], [0.0, 1.0], [1.0, 2.0]])
    bad = good.copy()
    bad[2, 1] = value
    edges = [[0, 1], [1, 2], [0, 2]]
    as_given = coo_array if sparse else np.asarray
    labels = ["a", "b", "a"]
    fitted = GraphCRF(max_iter=1).fit([(np.ones((3, 2)), edges, np.ones((3, 2)))], [labels])
    fitted.predict([(as_given(good), edges, as_given(good))])
    for x, place in (((bad, good), "features of node 2"), ((good, bad), "edge features of edge 2")):
        graphs = [(good, edges, good), (as_given(x[0]), edges, as_given(x[1]))]
        with pytest.raises(ValueError, match=f"graph 1: {place} must be numbers from -1e10 to 1e10, got"):
            fitted.predict(graphs)
        with pytest.raises(ValueError, match=f"graph 1: {place} must be numbers from -1e10 to 1e10, got"):
            GraphCRF().fit(graphs, [labels] * 2)
