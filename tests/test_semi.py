"""Partly labelled and unlabelled sequences: objective, estimator, forced decoding."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_objective import Case, big_case, cases, potentials_of

from crfkit import CRF, HMM, MEMM, chain, metrics
from crfkit.chain import Adaptive, FixedSize, MinDivergence
from crfkit.data import load_corpus
from crfkit.data.labels import scores_by
from crfkit.training import LikelihoodObjective, Problem, SemiSupervisedObjective


@st.composite
def partly_known(draw: st.DrawFn) -> Case:
    """A case with some labels hidden, some replaced by sets and soft labels; the gold labels always fit."""
    case = draw(cases())
    hide(case, np.random.default_rng(draw(st.integers(0, 1000))))
    case["eta"] = draw(st.sampled_from([0.0, 0.7]), label="eta")
    case["per"] = draw(st.sampled_from(["sequence", "token"]), label="per")
    return case


def hide(case: Case, rng: np.random.Generator) -> None:
    data, gold, n = case["data"], case["gold"], case["layout"].n_labels
    known = gold.copy()
    hints: list[np.ndarray] = []
    for s in range(data.n_sequences):
        kind = rng.integers(3)  # all known, in part, not at all
        for t in range(data.offsets[s], data.offsets[s + 1]):
            if kind == 0:
                continue
            if kind == 2 or rng.random() < 0.4:
                known[t] = -1
            elif rng.random() < 0.5:
                row = rng.random(n) < 0.5
                row[gold[t]] = True
                weight = row * rng.dirichlet(np.ones(n)) if rng.random() < 0.5 else row
                with np.errstate(divide="ignore"):
                    hints.append(np.log(weight))
                known[t] = -1 - len(hints)
    case["known"] = known
    case["hints"] = np.array(hints).reshape(len(hints), n)


def objective_of(case: Case, dtype: Any = np.float64, n_jobs: int = 1, make: Any = SemiSupervisedObjective) -> Any:
    """The objective of a case: of blocks, or what ``make`` gives."""
    problem = Problem(
        case["layout"],
        case["data"],
        case["known"],
        hints=case["hints"],
        weights=case["weights"],
        constraints=case["rules"],
        c2=case["c2"],
        entropy_weight=case["eta"],
        entropy_per=case["per"],
        dtype=dtype,
        n_jobs=n_jobs,
    )
    return make(problem)


def value_by_enumeration(case: Case, w: np.ndarray) -> float:
    data = case["data"]
    total = float(case["c2"] * (w @ w))
    known_scores = scores_by(case["known"], case["hints"])
    for s in range(data.n_sequences):
        begin, end = data.offsets[s], data.offsets[s + 1]
        if begin == end:
            continue
        p = potentials_of(case, w, s)
        weight = 1.0 if case["weights"] is None else case["weights"][s]
        known = case["known"][begin:end]
        if (known == -1).all():
            q = oracle.probabilities(p)
            entropy = -(q[q > 0] * np.log(q[q > 0])).sum()
            total += weight * case["eta"] * entropy / (end - begin if case["per"] == "token" else 1)
            continue
        hinted = [sum(known_scores[begin + t, j] for t, j in enumerate(path)) for path in oracle.all_paths(p)]
        scores = oracle.scores(p)
        total += weight * (oracle.log_sum_exp(scores) - oracle.log_sum_exp(scores + hinted))
    return total


@settings(max_examples=200)
@given(partly_known())
def test_value_equals_enumeration(case: Case) -> None:
    value, _ = objective_of(case).value_and_grad(case["w"])
    assert value == pytest.approx(value_by_enumeration(case, case["w"]), rel=1e-9, abs=1e-8)


@settings(max_examples=100)
@given(partly_known())
def test_gradient_equals_finite_differences(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    f = objective_of(case)
    before = w.copy()
    value, gradient = f.value_and_grad(w)
    np.testing.assert_array_equal(w, before)
    expected = oracle.finite_difference(lambda x: f.value_and_grad(x)[0], w)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    if f.n_blocks:  # of labelled sequences, few enough for one
        assert f.estimate(w) == pytest.approx(value, abs=1e-9)


@settings(max_examples=60)
@given(partly_known())
def test_float32_is_near(case: Case) -> None:
    w = np.clip(case["w"], -3, 3)
    value, gradient = objective_of(case).value_and_grad(w)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(w)
    assert single == pytest.approx(value, rel=1e-5, abs=2e-4)
    np.testing.assert_allclose(single_gradient, gradient, rtol=1e-4, atol=3e-4)


def big(labels: int, edges: bool = False) -> Case:
    case = big_case(labels, edges)
    hide(case, np.random.default_rng(1))
    return {**case, "eta": 0.5, "per": "sequence"}


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (70, False), (5, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit(labels: int, edges: bool, dtype: Any) -> None:
    case = big(labels, edges)
    value, gradient = objective_of(case, dtype).value_and_grad(case["w"])
    for n_jobs in (2, 5):
        again, gradient_again = objective_of(case, dtype, n_jobs).value_and_grad(case["w"])
        assert again == value
        np.testing.assert_array_equal(gradient_again, gradient)


@pytest.mark.parametrize(("labels", "edges"), [(3, False), (22, False), (70, False), (5, True)])
def test_blocks_and_packs(labels: int, edges: bool) -> None:
    """Directional derivatives over many blocks; single precision; huge weights that need log space."""
    case = big(labels, edges)
    f = objective_of(case, n_jobs=2)
    value, gradient = f.value_and_grad(case["w"])
    d = np.random.default_rng(2).normal(size=f.size)
    slope = (f.value_and_grad(case["w"] + 1e-6 * d)[0] - f.value_and_grad(case["w"] - 1e-6 * d)[0]) / 2e-6
    assert slope == pytest.approx(float(gradient @ d), rel=1e-5, abs=1e-3)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(case["w"])
    assert single == pytest.approx(value, rel=1e-6)
    assert np.linalg.norm(single_gradient - gradient) < 3e-5 * np.linalg.norm(gradient)
    w = case["w"] * 40
    value, gradient = f.value_and_grad(w)
    single, single_gradient = objective_of(case, np.float32).value_and_grad(w)
    assert single == pytest.approx(value, rel=1e-4)
    assert np.linalg.norm(single_gradient - gradient) < 1e-2 * np.linalg.norm(gradient)


def test_fully_labelled_is_the_likelihood() -> None:
    case = big_case(5)
    none = np.zeros((0, 5))
    problem = Problem(case["layout"], case["data"], case["gold"], none, c2=0.1, n_jobs=1)
    semi, plain = SemiSupervisedObjective(problem), LikelihoodObjective(problem)
    assert semi.value_and_grad(case["w"])[0] == plain.value_and_grad(case["w"])[0]


X = [["the", "red", "dog"], ["a", "cat"], ["the", "cat"], ["red"]]


def test_hidden_labels_equal_marginalising_by_hand() -> None:
    """The objective of partial labels against potentials of the fitted model."""
    y: list[Any] = [["D", None, {"N", "V"}], ["D", "N"], [None, "N"], None]
    crf = CRF(c2=0.5, dtype="float64").fit(X, y)
    p = crf.potentials(X)
    labels = crf.classes_.tolist()
    expected = 0.5 * float(crf.weights_ @ crf.weights_)
    for i, row in enumerate(y):
        if row is None:
            continue
        sets = [
            None if x is None else [labels.index(k) for k in (sorted(x) if isinstance(x, set) else [x])] for x in row
        ]
        expected -= np.log(chain.span_probability(p[i], 0, len(row), sets))
    assert crf.result_.value == pytest.approx(expected, rel=1e-9)
    assert crf.objective(X, y).value_and_grad(crf.weights_)[0] == pytest.approx(expected, rel=1e-9)


def test_a_set_of_one_and_nothing_hidden_change_nothing() -> None:
    y: Any = [["D", "A", "N"], ["D", "N"], ["D", "N"], ["A"]]
    plain = CRF(dtype="float64", tol=1e-9).fit(X, y)
    sets = CRF(dtype="float64", tol=1e-9).fit(X, [[{label} for label in row] for row in y])
    np.testing.assert_allclose(sets.weights_, plain.weights_, atol=1e-4)
    more = CRF(dtype="float64", tol=1e-9).fit([*X, ["new", "words"]], [*y, None])
    np.testing.assert_allclose(more.weights_, plain.weights_, atol=1e-4)


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="sequence 1, position 0: a set of possible labels must not be empty"):
        CRF().fit([["a"], ["b"]], [["A"], [set()]])
    with pytest.raises(ValueError, match="there are no labels to learn from"):
        CRF().fit([["a"]], [None])
    with pytest.raises(ValueError, match="sequence 1: no labelling fits both"):
        CRF(constraints="bio").fit(
            [["a", "b"], ["a", "b", "c"]], [["B-X", "I-X"], [{"O", "B-Y"}, {"I-X", "I-Y"} - {"I-Y"}, None]]
        )
    with pytest.raises(ValueError, match="'entropy_per' of CRF"):
        CRF(entropy_per="word").fit([["a"]], [["A"]])
    with pytest.raises(ValueError, match="'entropy_weight' of CRF"):
        CRF(entropy_weight=-1).fit([["a"]], [["A"]])
    crf = CRF().fit([["a", "b"]], [["A", "B"]])
    with pytest.raises(ValueError, match="not one of the model's"):
        crf.predict([["a", "b"]], given=[["C", None]])
    with pytest.raises(ValueError, match="'given' holds labels for 2 sequences"):
        crf.predict([["a", "b"]], given=[None, None])


def test_forced_decoding_fits_what_is_given() -> None:
    X_all, y_all = load_corpus("ingredients", "train")
    X_test, y_test = load_corpus("ingredients", "test")
    crf = CRF(c2=0.1, max_iter=30).fit(X_all[:100], y_all[:100])
    rng = np.random.default_rng(0)
    y_list = [list(row) for row in y_test]
    given = [[label if rng.random() < 0.3 else None for label in row] for row in y_list]
    forced = crf.predict(X_test, given=given)
    for row, known in zip(forced, given, strict=True):
        assert all(k is None or k == label for k, label in zip(known, row, strict=True))
    assert metrics.token_accuracy(y_list, forced) > crf.score(X_test, y_list)
    nodes = crf.predict_marginals(X_test, given=given)
    labels = crf.classes_.tolist()
    for node, known in zip(nodes, given, strict=True):
        np.testing.assert_allclose(node.sum(1), 1)
        for t, k in enumerate(known):
            assert k is None or node[t, labels.index(k)] == pytest.approx(1)
    best = crf.predict_nbest(X_test[:5], k=2, given=given[:5])
    assert [b[0].labels for b in best] == forced[:5]


def test_training_with_entropy() -> None:
    """The entropy falls, both terms are told, and training is the same on any number of threads."""
    X_all, y_all = load_corpus("ingredients", "train")
    y = [list(row) if i < 40 else None for i, row in enumerate(y_all)]
    seen = []
    settings: dict[str, Any] = {"c2": 0.5, "entropy_weight": 0.3, "max_iter": 40}
    crf = CRF(**settings, callback=lambda p, w: seen.append(p), n_jobs=1).fit(X_all, y)
    assert {"likelihood", "entropy"} <= set(seen[-1].terms)
    value = seen[-1].terms["likelihood"] + 0.3 * seen[-1].terms["entropy"] + 0.5 * float(crf.weights_ @ crf.weights_)
    assert seen[-1].value == pytest.approx(value, rel=1e-5)
    again = CRF(**settings, n_jobs=2).fit(X_all, y)
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    plain = CRF(c2=0.5).fit(X_all[:40], y[:40])

    def uncertainty(model: CRF) -> float:
        return float(chain.entropy(model.potentials(X_all[40:])).sum())

    assert uncertainty(crf) < 0.7 * uncertainty(plain)


@pytest.mark.parametrize("beam", [MinDivergence(0.02, 2), FixedSize(4), Adaptive()])
def test_entropy_and_beams(beam: Any) -> None:
    """Labelled sequences within beams, unlabelled ones exactly: about the same model, and the entropy falls."""
    X, y = load_corpus("ingredients", "train")
    known = [list(row) for row in y[:150]] + [None] * (len(X) - 150)
    settings: dict[str, Any] = {"c2": 0.3, "entropy_weight": 0.2, "max_iter": 60}
    exact, inside = (CRF(beam=b, **settings).fit(list(X), known) for b in (None, beam))
    assert inside.beams_ is not None
    assert inside.beams_.chosen > 0

    def objective(crf: CRF) -> float:
        return float(exact.objective(list(X), known).value_and_grad(crf.weights_)[0])

    assert objective(inside) < 1.05 * objective(exact)
    supervised = CRF(c2=0.3).fit(list(X[:150]), known[:150])
    entropies = [float(chain.entropy(crf.potentials(X[150:])).sum()) for crf in (inside, supervised)]
    assert entropies[0] < 0.5 * entropies[1]


def test_entropy_with_c1_and_warm_start() -> None:
    X_all, y_all = load_corpus("ingredients", "train")
    y = [list(row) if i < 40 else None for i, row in enumerate(y_all[:120])]
    crf = CRF(c1=0.1, c2=0.1, entropy_weight=0.1, max_iter=15, warm_start=True).fit(X_all[:120], y)
    assert np.isfinite(crf.result_.value)
    before = crf.result_.value
    crf.fit(X_all[:120], y)
    assert crf.result_.value < before + 1e-3 * abs(before)


@pytest.mark.parametrize(
    ("algorithm", "beam"),
    [("lbfgs", None), ("lbfgs", "fixed:3"), ("newton-cg", None), ("sgd", None), ("sgd", "fixed:3")],
)
def test_iterations_count_on_and_both_terms_are_told(algorithm: Any, beam: str | None) -> None:
    X, y = load_corpus("ingredients", "train")
    known = [list(row) for row in y[:40]] + [None] * 40
    seen: list[Any] = []
    crf = CRF(
        algorithm=algorithm,
        beam=beam,
        entropy_weight=0.1,
        max_iter=5,
        all_possible_states=True,
        callback=lambda p, w: seen.append(p),
    ).fit(list(X[:80]), known)
    assert [p.iteration for p in seen] == list(range(1, crf.n_iter_ + 1))
    assert 5 < crf.n_iter_ <= 10
    assert all(set(p.terms) == {"likelihood", "entropy"} for p in seen)
    assert all(np.diff([p.seconds for p in seen]) >= 0)
    assert all(np.diff([p.evaluations for p in seen]) >= 0)


def test_scores_need_labels() -> None:
    X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    crf = CRF().fit(X, y)
    for gold, fault in [
        ([["A", "B"], None], "sequence 1 of '.*' has no labels"),
        ([["A", None], ["B"]], "sequence 0 of '.*', position 1: the label must be known to score it, got None"),
        ([["A", {"A", "B"}], ["B"]], "sequence 0 of '.*', position 1"),
        ([["A", "B"], [{"B": 1.0}]], "sequence 1 of '.*', position 0: the label must be known"),
    ]:
        with pytest.raises(ValueError, match=fault):
            crf.score(X, gold)
        with pytest.raises(ValueError, match=fault):
            metrics.evaluate(gold, [["A", "B"], ["B"]])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=fault):
            CRF(callback=lambda p, w: None).fit(X, y, X_dev=X, y_dev=gold)
        with pytest.raises(ValueError, match=fault):
            CRF(early_stopping=2).fit(X, y, X_dev=X, y_dev=gold)


def test_what_is_given_may_contradict() -> None:
    crf = CRF(constraints="bio").fit([["a", "b"], ["c"]], [["B-X", "I-X"], ["O"]])
    with pytest.raises(ValueError, match="sequence 1: no labelling fits both 'given' and the model's constraints"):
        crf.predict([["a"], ["a", "b"]], given=[None, ["O", "I-X"]])
    with pytest.raises(ValueError, match="'given' holds labels for 1 sequence, but 'X' holds 3"):
        crf.predict([["a"]] * 3, given=[None])
    with pytest.raises(ValueError, match="'entropy_weight' of CRF must be finite, got inf"):
        CRF(entropy_weight=float("inf")).fit([["a"]], [["A"]])


def test_soft_labels_between_labels_and_sets() -> None:
    """All weight on one label is the label; equal weights are the set, but for a constant."""
    X, y = load_corpus("ingredients", "train")
    X, y = X[:60], y[:60]
    plain = CRF(dtype="float64", tol=1e-9).fit(X, y)
    certain = CRF(dtype="float64", tol=1e-9).fit(X, [[{label: 2.0} for label in row] for row in y])
    np.testing.assert_allclose(certain.weights_, plain.weights_, atol=1e-4)
    w = plain.weights_
    sets = plain.objective(X, [[{label, "O"} for label in row] for row in y])
    soft = plain.objective(X, [[{label: 0.5, "O": 0.5} for label in row] for row in y])
    (a, da), (b, db) = sets.value_and_grad(w), soft.value_and_grad(w)
    several = sum(label != "O" for row in y for label in row)
    assert b - a == pytest.approx(several * np.log(2), rel=1e-9)
    np.testing.assert_allclose(da, db, atol=1e-9)


def test_a_teachers_marginals_teach() -> None:
    X, y = load_corpus("ingredients", "train")
    teacher = CRF().fit(X[:150], y[:150])
    names = teacher.classes_.tolist()
    soft = [[dict(zip(names, row, strict=True)) for row in p.tolist()] for p in teacher.predict_marginals(X[150:300])]
    for algorithm in ("lbfgs", "sgd", "pa"):
        pupil = CRF(algorithm=algorithm, random_state=0, max_iter=30).fit(X[150:300], soft)
        assert metrics.token_accuracy(teacher.predict(X[300:]), pupil.predict(X[300:])) > 0.85


def test_soft_labels_are_given() -> None:
    crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
    p = crf.predict_marginals([["a"]])[0][0]
    q = crf.predict_marginals([["a"]], given=[[{"A": 1, "B": 3}]])[0][0]
    expected = p * [0.25, 0.75]
    np.testing.assert_allclose(q, expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ({"A": -1, "B": 2}, "sequence 0, position 1: weights of labels must be >= 0, finite, and not all 0"),
        ({"A": 0.0}, "not all 0"),
        ({"A": float("nan")}, "finite"),
        ({"A": "much"}, "sequence 0, position 1: the weight of label 'A' must be a number, got 'much'"),
        ({}, "must not be empty"),
    ],
)
def test_wrong_soft_labels(label: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF().fit([["a", "b"]], [["A", label]])


def test_soft_labels_elsewhere() -> None:
    with pytest.raises(ValueError, match=r"soft labels .* are for CRF only"):
        HMM().fit([["a", "b"]], [["A", {"A": 0.5, "B": 0.5}]])
    with pytest.raises(ValueError, match="unknown labels in 'y' need a CRF or an HMM"):
        MEMM().fit([["a", "b"]], [["A", {"A": 0.5, "B": 0.5}]])


@pytest.mark.parametrize(
    "how", [{}, {"beam": "min-divergence:0.01"}, {"constraints": "bio"}, {"gradient": "backward"}, {"hash_bits": 16}]
)
def test_soft_labels_by_every_way(how: dict[str, Any]) -> None:
    """With all weight on one label they teach what labels do, with weights of sequences too."""
    X, y = load_corpus("ingredients", "train")
    X, y = X[:60], [list(row) for row in y[:60]]
    soft = [[{label: 2.0} for label in row] for row in y]
    weights = 1.0 + np.arange(60) % 3
    settings = {"max_iter": 10, "tol": 0, "dtype": "float64", **how}
    with warnings.catch_warnings(action="ignore"):  # of the limit
        hard, same = (CRF(**settings).fit(X, z, sample_weight=weights) for z in (y, soft))
    assert same.result_.value == pytest.approx(hard.result_.value, rel=1e-3)
    assert same.predict(X) == hard.predict(X)


def test_soft_labels_of_a_stream() -> None:
    X, y = load_corpus("ingredients", "train")
    soft = [[{label: 0.9, "O": 0.1} for label in row] for row in y[:200]]
    crf = CRF(algorithm="sgd", random_state=0)
    for k in range(0, 200, 50):
        crf.partial_fit(X[k : k + 50], soft[k : k + 50])
    assert metrics.token_accuracy(y[200:300], crf.predict(X[200:300])) > 0.7


def test_sets_of_a_block_file_go_on_with_a_model(tmp_path: Path) -> None:
    X, y = load_corpus("ingredients", "train")
    X, names = X[:80], sorted({label for row in y for label in row})
    sets = [[{label, names[(i + t) % len(names)]} for t, label in enumerate(row)] for i, row in enumerate(y[:80])]
    crf = CRF(max_iter=5, tol=1, warm_start=True).fit(X, y[:80])
    blocks = crf.encode(X, sets, tmp_path / "sets.blocks")
    assert len(crf.fit(blocks).classes_) == len(names)
