"""Chains of the second and third order: enumeration, finite differences, beams, files, the command line."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from command import run
from test_optimizers import by_sequence

import crfkit
from crfkit import CRF, Expectations, Template, chain
from crfkit.active import uncertainty
from crfkit.chain import FixedSize, MinDivergence, Potentials
from crfkit.chain import ordered as higher
from crfkit.chain.entropy import token_entropies
from crfkit.chain.ordered import TupleScores, ordered
from crfkit.compat import convert_model, write_suite_model
from crfkit.data.dataset import Layout, WeightRules
from crfkit.data.labels import label_numbers
from crfkit.training import ALGORITHMS

X = [["a", "b", "c", "a", "b"], ["b", "a"], ["c"], ["a", "c", "b", "b"]]
Y = [["A", "B", "A", "C", "B"], ["B", "B"], ["A"], ["C", "A", "B", "A"]]


def tuple_scores(order: int, n: int, rng: np.random.Generator, share: float = 0.7) -> TupleScores:
    size = sum(n ** (k + 1) for k in range(2, order + 1))
    tuples = np.flatnonzero(rng.random(size) < share).astype(np.uint64)
    return TupleScores(order, np.arange(n, dtype=np.uint16), tuples, rng.normal(size=len(tuples)))


def full_score(p: Potentials, s: TupleScores, path: tuple[int, ...], attributes: Any = None) -> float:
    """The score by its definition: the first order's, and those of all tuples, alone and with each attribute."""
    total, n = oracle.path_score(p, path), s.n_classes
    known = dict(zip(s.tuples.tolist(), s.scores.tolist(), strict=True))
    many = sum(n ** (k + 1) for k in range(2, s.order + 1))
    for k in range(2, s.order + 1):
        for t in range(k, len(path)):
            number = 0
            for label in path[t - k : t + 1]:
                number = number * n + int(s.classes[label])
            number += n**3 * (k - 2)
            total += known.get(number, 0.0)
            for a in [] if attributes is None else attributes[t]:
                total += known.get(number + (a + 1) * many, 0.0)
    return total


def enumerated(p: Potentials, s: TupleScores, attributes: Any = None) -> tuple[list[tuple[int, ...]], Any]:
    paths = list(itertools.product(range(p.n_labels), repeat=len(p.unary)))
    return paths, np.array([full_score(p, s, path, attributes) for path in paths])


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("all_labels", [True, False])
@pytest.mark.parametrize("per_step", [True, False])
def test_every_answer_is_that_of_enumeration(
    order: int, all_labels: bool, per_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(order)
    n = 3
    if not all_labels:  # beams that hold all labels
        monkeypatch.setattr(higher, "MOST_SLOTS", 1)
        monkeypatch.setattr(higher, "_LEAST", 0.0)
    for length in (1, 2, 3, 5):
        pairwise = rng.normal(size=(length - 1, n, n) if per_step else (n, n))
        one = Potentials(rng.normal(size=(length, n)), pairwise)
        s = tuple_scores(order, n, rng)
        paths, scores = enumerated(one, s)
        chances = np.exp(scores - oracle.log_sum_exp(scores))
        p = ordered(Potentials.batch([one, one]), s)
        assert p.is_ordered
        assert p.n_labels == n
        for q in (p, p[1]):
            log_z = np.atleast_1d(chain.log_partition(q))
            np.testing.assert_allclose(log_z, oracle.log_sum_exp(scores), rtol=1e-9)
            found = chain.marginals(q)
            nodes, edges = np.zeros((length, n)), np.zeros((length - 1, n, n))
            for path, chance in zip(paths, chances, strict=True):
                for t, j in enumerate(path):
                    nodes[t, j] += chance
                    if t:
                        edges[t - 1, path[t - 1], j] += chance
            np.testing.assert_allclose(found.nodes[-length:], nodes, atol=1e-9)
            np.testing.assert_allclose(found.edges[len(found.edges) - length + 1 :], edges, atol=1e-9)
            np.testing.assert_allclose(np.atleast_1d(chain.entropy(q)), -(chances * np.log(chances)).sum(), rtol=1e-8)
        best = chain.nbest(p[0], 5)
        ranked = np.argsort(-scores)[: len(best)]
        np.testing.assert_allclose(best.scores, scores[ranked], rtol=1e-9)
        assert [tuple(x) for x in best.paths.tolist()] == [paths[k] for k in ranked]
        assert tuple(chain.decode(p[0]).tolist()) == paths[ranked[0]]
        for path, score in zip(paths, scores, strict=True):
            assert chain.score(p[0], path) == pytest.approx(score)
        drawn = chain.sample(p, 200, rng=0)[1]
        assert drawn.shape == (200, length)
        assert drawn.max() < n


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("all_labels", [True, False])
def test_spans_and_entropies_are_those_of_enumeration(
    order: int, all_labels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(order)
    names = ["O", "B-X", "I-X"]
    if not all_labels:
        monkeypatch.setattr(higher, "MOST_SLOTS", 1)
        monkeypatch.setattr(higher, "_LEAST", 0.0)

    def entropy_of(parts: Any) -> float:
        sums: dict[Any, float] = {}
        for part, chance in parts:
            sums[part] = sums.get(part, 0.0) + chance
        return -sum(c * float(np.log(c)) for c in sums.values() if c > 0)

    def entropy(unary: Any, pairwise: Any) -> float:
        found: float = chain.entropy(ordered(Potentials(unary, pairwise, offsets=[0, len(unary)]), s))[0]
        return found

    s = tuple_scores(order, 3, rng)
    singles = [Potentials(rng.normal(size=(length, 3)), pairwise) for length in (5, 1, 2) for pairwise in [np.eye(3)]]
    p = ordered(Potentials.batch(singles), s)
    first = p.lattice.offsets
    spans, (nodes, total) = chain.span_entropies(p), token_entropies(p)
    for i, one in enumerate(singles):
        length = len(one.unary)
        paths, scores = enumerated(one, s)
        chances = np.exp(scores - oracle.log_sum_exp(scores))
        both = list(zip(paths, chances, strict=True))
        for a, b in itertools.combinations(range(length + 1), 2):
            expected = entropy_of((path[a:b], c) for path, c in both)
            assert chain.span_entropy(p[i], a, b) == pytest.approx(expected, abs=1e-9)
            assert spans.span(a, b, i) == pytest.approx(expected, abs=1e-9)
            assert spans.of_length(b - a)[first[i] + a] == pytest.approx(expected, abs=1e-9)
            labels = [1, *[2] * (b - a - 1)]
            chance = sum(c for path, c in both if list(path[a:b]) == labels)
            assert chain.span_probability(p[i], a, b, labels) == pytest.approx(chance)
            entity = sum(c for path, c in both if list(path[a:b]) == labels and path[b : b + 1] != (2,))
            assert chain.entity_probability(p[i], a, b, "X", names) == pytest.approx(entity)
            rest = entropy_of((path, c / chance) for path, c in both if list(path[a:b]) == labels)
            assert chain.conditional_entropy(p[i], a, labels) == pytest.approx(rest, abs=1e-9)
            part = -sum(c * np.log(c) for path, c in both if list(path[a:b]) == labels)
            assert chain.constrained_entropy(p[i], a, labels) == pytest.approx(part, abs=1e-9)
            if b - a == 1:
                assert nodes[first[i] + a] == pytest.approx(expected, abs=1e-9)
        gradient = chain.entropy_gradient(p[i])

        steps = np.repeat(one.pairwise[None], length - 1, axis=0)
        by_token = oracle.finite_difference(partial(entropy, pairwise=steps), one.unary)
        np.testing.assert_allclose(gradient.unary, by_token, atol=1e-6)
        by_step = oracle.finite_difference(partial(entropy, one.unary), steps)
        np.testing.assert_allclose(gradient.pairwise, by_step, atol=1e-6)
        with pytest.raises(ValueError, match="entropy_lattices is for the first order"):
            chain.entropy_lattices(p[i])
    assert total == pytest.approx(chain.entropy(p).sum())
    best = chain.most_uncertain_span(p, (1, 2), rate=0.0)[0]
    assert best.entropy == pytest.approx(spans.of_length(2)[:4].max())


def test_uncertainty_is_of_labels() -> None:
    crf = learned(2).fit(X, Y)
    for x, found in zip(X, uncertainty(crf, X, "token_entropy"), strict=True):
        nodes = np.zeros((len(x), 3))
        for path, c in chances_of(crf, x).items():
            nodes[np.arange(len(x)), [list(crf.classes_).index(label) for label in path]] += c
        assert found == pytest.approx(-(nodes * np.log(nodes)).sum(), rel=1e-5)


def test_distributions_within_other_beams_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    s = tuple_scores(2, 9, rng)
    monkeypatch.setattr(higher, "MOST_SLOTS", 1)
    monkeypatch.setitem(higher.MOST_LABELS, 2, 2)
    p, q = (ordered(Potentials(9 * rng.normal(size=(3, 9)), np.zeros((9, 9)), offsets=[0, 3]), s) for _ in range(2))
    assert p.kl(p)[0] == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="'other' must be of the same order"):
        p.kl(q)


#: Attributes of tokens, and of transitions.
PAIRS = Template("U0:%x[0,0]\nU1:%x[-1,0]\nB\nB0:%x[0,0]\nB1:%x[-1,0]/%x[0,0]")


def learned(order: int, **how: Any) -> CRF:
    settings: dict[str, Any] = {"order": order, "c2": 0.1, "dtype": "float64", "random_state": 0, **how}
    return CRF(**settings)


def chances_of(crf: CRF, x: list[str]) -> dict[tuple[Any, ...], float]:
    """Probabilities of all labellings, out of a model's weights."""
    model = crf.model_
    plain = replace(
        model, layout=replace(model.layout, order=1, tuples=model.layout.tuples[:0], classes=model.layout.classes[:0])
    )
    data = model.encoder.encode([x], False, 1)
    p = plain.score(data, 1, np.float64)[0]
    attributes: Any = None
    if data.edge_ptr is not None and data.edge_attr is not None:
        attributes = np.split(data.edge_attr, data.edge_ptr[1:-1])
    layout = model.layout
    s = TupleScores(layout.order, layout.class_of, layout.tuples, model.weights[layout.tuple_first :])
    paths, scores = enumerated(p, s, attributes)
    chances = np.exp(scores - oracle.log_sum_exp(scores))
    return {tuple(model.labels[j] for j in path): c for path, c in zip(paths, chances, strict=True)}


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"all_possible_transitions": False},
        {"constraints": [("B", "C")]},
        {"features": PAIRS},
        {"features": PAIRS, "constraints": [("B", "C")]},
    ],
)
def test_the_objective_and_its_gradient(order: int, how: dict[str, Any]) -> None:
    crf = learned(order, **how).fit(X, Y)
    f: Any = crf.objective(X, Y)
    w = np.random.default_rng(1).normal(size=f.size)
    crf.model_ = replace(crf.model_, weights=w)
    value, gradient = f.value_and_grad(w)
    expected = -sum(np.log(chances_of(crf, x)[tuple(y)]) for x, y in zip(X, Y, strict=True)) + 0.1 * w @ w
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(gradient, oracle.finite_difference(f.value, w), atol=2e-6)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_unknown_labels(order: int, features: Any) -> None:
    known: Any = [["A", None, "A", {"B", "C"}, "B"], ["B", "B"], [{"A": 3, "B": 1}], ["C", None, None, "A"]]
    crf = learned(order, features=features).fit(X, Y)
    f: Any = crf.objective(X, known)
    w = np.random.default_rng(1).normal(size=f.size)
    crf.model_ = replace(crf.model_, weights=w)

    def weight(label: Any, what: Any) -> float:
        if what is None or label == what:
            return 1.0
        if isinstance(what, dict):
            return float(what.get(label, 0) / sum(what.values()))
        return float(isinstance(what, set) and label in what)

    expected = 0.1 * w @ w
    for x, y in zip(X, known, strict=True):
        sums = [
            c * np.prod([weight(a, b) for a, b in zip(path, y, strict=True)]) for path, c in chances_of(crf, x).items()
        ]
        expected -= np.log(sum(sums))
    assert f.value(w) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(f.value_and_grad(w)[1], oracle.finite_difference(f.value, w), atol=2e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["sgd", "adagrad"])
@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_beams_of_all_labels_are_exact(order: int, algorithm: str, features: Any) -> None:
    how: dict[str, Any] = {"features": features, "algorithm": algorithm, "max_iter": 4, "tol": 0}
    exact = learned(order, **how).fit(X, Y)
    beams = learned(order, **how, beam=FixedSize(3)).fit(X, Y)
    np.testing.assert_allclose(exact.weights_, beams.weights_, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_within_beams_where_transitions_have_attributes(order: int) -> None:
    f: Any = by_sequence(learned(order, algorithm="sgd", features=PAIRS, beam=FixedSize(2)), X, Y)
    w, sequences = np.random.default_rng(1).normal(size=f.size), np.arange(len(X))
    gradient, unused = np.empty(f.size), np.empty(f.size)

    def value(at: Any) -> float:
        f.native.set_weights(at)
        return float(f.native.gradient(sequences, unused))

    f.native.set_weights(w)
    f.native.gradient(sequences, gradient)
    tokens, labels, _ = f.native.tally
    assert labels < 3 * tokens
    np.testing.assert_allclose(gradient, oracle.finite_difference(value, w), atol=1e-6)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_predictions(order: int, features: Any, tmp_path: Path) -> None:
    crf = learned(order, features=features).fit(X, Y)
    assert crf.predict(X) == Y
    for x in X:
        known = chances_of(crf, x)
        best = max(known, key=lambda names: known[names])
        assert tuple(crf.predict([x])[0]) == best
        for tagging in crf.predict_nbest([x], 4)[0]:
            assert tagging.probability == pytest.approx(known[tuple(tagging.labels)], rel=1e-6)
        nodes = crf.predict_marginals([x])[0]
        for t, j in itertools.product(range(len(x)), range(3)):
            assert nodes[t, j] == pytest.approx(sum(c for y, c in known.items() if y[t] == crf.classes_[j]), abs=1e-6)
    given: Any = [["B", *[None] * (len(x) - 1)] for x in X]
    assert all(y[0] == "B" for y in crf.predict(X, given=given))
    crf.save(tmp_path / "model.crfkit")
    again = crfkit.load(tmp_path / "model.crfkit")
    assert isinstance(again, CRF)
    assert again.order == order
    assert again.predict(X) == Y
    assert again.model_.tuple_weights() == crf.model_.tuple_weights()
    np.testing.assert_array_equal(again.predict_marginals(X)[0], crf.predict_marginals(X)[0])
    assert again.model_.card()["order"] == order


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("n", [3, 25])
@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_scores_per_token_are_not_understated(order: int, n: int, features: Any) -> None:
    """By their number long inputs are cut into pieces that fit the memory."""
    crf = learned(order, features=features, algorithm="sgd", max_iter=1).fit(
        [["a", "b"] * n], [[f"L{k}" for k in range(n)] * 2]
    )
    p = crf.potentials([["a", "b", "c"] * 20])
    scores = [p.unary.size, p.pairwise.size if p.pairwise.ndim == 3 else 0]
    assert crf.model_._scores_per_token >= max(scores) / 60


def test_expectations_are_of_the_first_order(tmp_path: Path) -> None:
    wanted = Expectations({"word=a": {"A": 0.9}})
    with pytest.raises(ValueError, match="'order' of CRF must be 1 where there are expectations"):
        CRF(order=2).fit(X, [None] * len(X), expectations=wanted)
    page = (Path(__file__).parent.parent / "docs" / "higher-order.md").read_text()
    assert "`expectations`" in page[page.index("- **Not available with**") :]
    for name, text in (("data", "a A\n"), ("more", "b\n"), ("wanted", "word=b B:0.9\n")):
        (tmp_path / name).write_text(text)
    how = ("--unlabelled", tmp_path / "more", "--expectations", tmp_path / "wanted", "--order", "2")
    out = run("train", tmp_path / "data", "-m", tmp_path / "m", *how, code=2)
    assert "--expectations needs --order 1" in out.stderr


def test_longer_memory_learns_what_a_pair_cannot() -> None:
    """Labels repeat with period three, and tokens say nothing after the first ones."""
    y = [["A", "A", "B"] * 4, ["A", "B", "A"] * 4, ["B", "A", "A"] * 4]
    x = [[*(["q" + a for a in labels[:2]]), *["-"] * 10] for labels in y]
    first, second = (CRF(order=n, c2=0.01).fit(x, y) for n in (1, 2))
    assert second.predict(x) == y
    assert first.score(x, y) < 1


def test_many_labels_are_trained_and_read_within_beams() -> None:
    names = [f"L{k}" for k in range(40)]
    y = [[names[(7 * i + 3 * t) % 40] for t in range(6)] for i in range(60)]
    x = [[f"w{label}" for label in labels] for labels in y]
    crf = CRF(order=2, algorithm="sgd", max_iter=5, tol=0, random_state=0).fit(x, y)
    assert crf.beams_ is not None
    assert not crf.beams_.exact
    assert crf.beams_.largest <= 9
    assert crf.score(x, y) > 0.99
    for nodes in crf.predict_marginals(x[:3]):
        np.testing.assert_allclose(nodes.sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="'algorithm' of CRF must be 'sgd' or 'adagrad' for order=2 and 40 labels"):
        CRF(order=2).fit(x, y)
    assert CRF(order=3, algorithm="adagrad", max_iter=5, tol=0).fit(x, y).score(x, y) > 0.9


def test_wider_beams_come_near_the_exact_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    p = Potentials(2 * rng.normal(size=(12, 9)), rng.normal(size=(9, 9)), offsets=[0, 12])
    s = tuple_scores(2, 9, rng)
    exact = ordered(p, s)
    monkeypatch.setattr(higher, "MOST_SLOTS", 1)
    monkeypatch.setattr(higher, "_LEAST", 0.0)
    gaps = []
    for most in (2, 4, 9):
        monkeypatch.setitem(higher.MOST_LABELS, 2, most)
        gaps.append(float((chain.log_partition(exact) - chain.log_partition(ordered(p, s)))[0]))
    assert gaps[0] > gaps[1] > gaps[2] >= -1e-9
    assert gaps[2] < 1e-9


def test_many_labels_share_the_tuples_of_their_classes() -> None:
    rng = np.random.default_rng(3)
    names = [f"{a}{b}" for a in "pqrs" for b in range(30)]
    y = [[names[int(k)] for k in rng.integers(0, 120, size=4)] for _ in range(80)]
    x = [[f"w{label}" for label in labels] for labels in y]
    crf = CRF(order=2, algorithm="sgd", max_iter=3, tol=0, dtype="float64", beam=FixedSize(3)).fit(x, y)
    layout = crf.model_.layout
    assert layout.n_classes < 41 < layout.n_labels
    assert len(layout.tuples) == layout.n_classes**3
    f: Any = crf.objective(x[:5], y[:5])
    w = 0.1 * np.random.default_rng(1).normal(size=f.size)
    gradient = f.value_and_grad(w)[1]
    for k in [
        0,
        layout.size - 1,
        *(layout.tuple_first + rng.integers(0, len(layout.tuples), 50)),
        *np.argsort(-np.abs(gradient))[:20],
    ]:
        step = np.zeros(f.size)
        step[k] = 1e-5
        assert gradient[k] == pytest.approx((f.value(w + step) - f.value(w - step)) / 2e-5, abs=1e-5)


@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_new_labels_and_weights_of_a_stream(features: Any) -> None:
    crf = CRF(order=2, warm_start=True, c2=0.1, features=features).fit(X, Y)
    before = crf.model_.tuple_weights()
    layout = Layout.build(*_data(crf), base=crf.model_.layout)
    moved = crf.model_.layout.move_weights(crf.model_.weights, layout)
    assert np.count_nonzero(moved) == np.count_nonzero(crf.model_.weights)
    crf.fit([*X, ["d", "a", "b"]], [*Y, ["D", "A", "B"]])
    assert ("D", "A", "B") in crf.model_.tuple_weights()
    assert len(before) < len(crf.model_.tuple_weights())


def test_weights_of_tuples_with_attributes() -> None:
    crf = learned(2, features=PAIRS).fit(X, Y)
    found = crf.model_.tuple_weights("B1:c/a")
    assert found == pytest.approx({("B", "A", "C"): found["B", "A", "C"]})  # all that was seen
    assert found["B", "A", "C"] > 0
    assert ("B", "A", "C") in crf.model_.tuple_weights()
    rare = learned(2, features=PAIRS, min_freq=2).fit(X, Y)
    assert not rare.model_.tuple_weights("B0:b")


@pytest.mark.parametrize("order", [2, 3])
def test_inspect_shows_weights_of_tuples(order: int, tmp_path: Path) -> None:
    path = tmp_path / "m"
    crf = learned(order, features=PAIRS).fit(X, Y)
    crf.save(path)
    m = crf.model_
    listed = m.longest_weights()
    assert [abs(w.weight) for w in listed] == sorted((abs(w.weight) for w in listed), reverse=True)
    assert {w.labels: w.weight for w in listed if w.attribute is None} == m.tuple_weights()
    assert {w.labels: w.weight for w in listed if w.attribute == "B1:c/a"} == m.tuple_weights("B1:c/a")
    assert len(listed) == np.count_nonzero(m.weights[m.layout.tuple_first :])
    rows = [line.split("\t") for line in run("inspect", path, "--all").stdout.splitlines()]
    tuples = {(x[0] or None, tuple(x[1:-1]), float(x[-1])) for x in rows if len(x) > 4}
    assert tuples == {tuple(w) for w in listed}
    record = json.loads(run("inspect", path, "--json", "-n", "3").stdout)
    assert record["card"]["order"] == order
    assert record["tuples"] == [[w.attribute, list(w.labels), w.weight] for w in listed[:3]]
    text = run("inspect", path, "-n", "3").stdout
    assert f"order        {order}, {len(m.layout.tuples)} runs of three or more labels" in text
    w = next(w for w in listed if w.attribute is not None)
    line = f"  {w.weight:+9.4f}  {' -> '.join(w.labels)}  {w.attribute}"
    assert line in run("inspect", path, "-n", "999").stdout.splitlines()
    w = next(w for w in listed if w.attribute is None)
    assert f"  {w.weight:+9.4f}  {' -> '.join(w.labels)}" in run("inspect", path, "-n", "999").stdout.splitlines()


def test_a_file_whose_tuples_have_unknown_attributes(tmp_path: Path) -> None:
    crf = learned(2, features=PAIRS).fit(X, Y)
    layout = crf.model_.layout
    tuples = layout.tuples.copy()
    tuples[-1] = 3**3 * len(layout.edge_ptr)
    crf.model_ = replace(crf.model_, layout=replace(layout, tuples=tuples))
    crf.save(tmp_path / "model.crfkit")
    with pytest.raises(crfkit.ModelError, match="labels or attributes that do not exist"):
        crfkit.load(tmp_path / "model.crfkit")


def test_tuples_too_many_to_number_are_refused() -> None:
    data, numbers, n_labels, n_attributes, _ = _data(learned(2, features=PAIRS).fit(X, Y))
    rule = WeightRules(order=3, classes=(0, 1, 2, 50_000))
    with pytest.raises(ValueError, match=r"50001 labels and \d+ attributes of transitions are too many for 'order' 3"):
        Layout.build(data, numbers, n_labels, n_attributes, rule)


def _data(crf: CRF) -> tuple[Any, ...]:
    data = crf.model_.encoder.encode(X, False, 1)
    labels = (*crf.model_.labels, "D")
    numbers, _ = label_numbers(Y, labels, data.offsets)
    return data, numbers, len(labels), crf.model_.encoder.n_attributes, WeightRules(order=2)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"order": 4}, "'order' of CRF must be 1, 2 or 3, got 4"),
        ({"order": 0}, "'order' of CRF"),
        ({"order": 2, "hidden_states": 2}, "'hidden_states' of CRF needs order=1"),
        ({"order": 2, "algorithm": "pa"}, "'order' of CRF must be 1 for the algorithm 'pa'"),
        ({"order": 2, "beam": "adaptive", "algorithm": "sgd"}, "'beam' of CRF must not be Adaptive"),
        ({"order": 2, "entropy_weight": 1.0}, "'entropy_weight' of CRF needs order=1"),
        ({"order": 2, "beam": MinDivergence(0.1)}, "'algorithm' of CRF must be 'sgd' or 'adagrad'"),
    ],
)
def test_what_does_not_go_together(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRF(**how).fit(X, Y)


@pytest.mark.parametrize("features", ["auto", PAIRS])
def test_explanations_add_up(features: Any) -> None:
    crf = learned(2, features=features).fit(X, Y)
    known = chances_of(crf, X[0])
    labels = crf.predict([X[0]])[0]
    for t, decision in enumerate(crf.explain(X[0])):
        other = [*labels[:t], decision.runner_up, *labels[t + 1 :]]
        odds = np.log(known[tuple(labels)] / known[tuple(other)])
        assert decision.log_odds == pytest.approx(odds, abs=1e-6)
    assert any("A -> B -> A" in c.name for d in crf.explain(X[0]) for c in d.contributions)


@pytest.mark.parametrize(("order", "kinds", "how"), [(2, 2, {}), (3, 1, {}), (2, 12, {"algorithm": "sgd"})])
def test_entities_of_long_sequences_are_looked_at_by_stretches(
    order: int, kinds: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(order)
    names = ["O", *(f"{tag}-{k}" for k in range(kinds) for tag in "BI")]
    texts = [[f"w{rng.integers(9)}" for _ in range(n)] for n in (1, 2, 7, 8, 9, 30)]
    crf = CRF(order=order, max_iter=3, c2=0.1, **how).fit(texts, [[str(rng.choice(names)) for _ in x] for x in texts])
    whole = crf.predict_entities(texts)
    assert sum(map(len, whole)) > 10
    monkeypatch.setattr("crfkit.chain.chunks._STRETCH", 4)
    for a, b in zip(whole, crf.predict_entities(texts), strict=True):
        assert [x[:3] for x in a] == [x[:3] for x in b]
        np.testing.assert_allclose([x.probability for x in a], [x.probability for x in b], rtol=1e-5)


def test_probabilities_of_entities_are_sums_over_labellings() -> None:
    y = [["B-X", "I-X", "O", "B-X", "O"], ["O", "O"], ["B-X"], ["O", "B-X", "I-X", "O"]]
    crf = learned(2, c2=0.5).fit(X, y)
    known = chances_of(crf, X[0])
    for entity in crf.predict_entities([X[0]])[0]:
        total = sum(
            c
            for path, c in known.items()
            if (entity.label, entity.start, entity.end) in crfkit.metrics.spans(list(path))
        )
        assert entity.probability == pytest.approx(total, abs=1e-6)
    with pytest.raises(ValueError, match="'threshold'"):
        crf.predict_entities([X[0]], threshold=0.5)


@pytest.mark.parametrize(("how", "message"), [({"order": 2}, "order 2"), ({"hidden_states": 2}, "hidden states")])
def test_crfsuites_format_holds_pairs_of_labels_alone(how: dict[str, Any], message: str, tmp_path: Path) -> None:
    crf = CRF(features=None, start_end=False, random_state=0, **how).fit([[[w] for w in x] for x in X], Y)
    source, target = tmp_path / "x.crfkit", tmp_path / "x.crfsuite"
    crf.save(source)
    with pytest.raises(ValueError, match=f"CRFsuite's models cannot hold .*{message}"):
        write_suite_model(crf, target)
    with pytest.raises(ValueError, match=f"CRFsuite's models cannot hold .*{message}"):
        convert_model(source, target, "crfsuite")
    assert message in run("convert", source, target, "--to", "crfsuite", code=1).stderr
    assert not target.exists()


def test_the_shell_names_its_options(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "m"
    data.write_text("\n".join(f"w{k} L{k}" for k in range(15)) + "\n")
    out = run("train", data, "-m", model, "--order", "3", "-q", code=1)
    assert "--algorithm must be 'sgd' or 'adagrad' for --order 3 and 15 labels, got 'lbfgs'" in out.stderr
    out = run("train", data, "-m", model, "--order", "2", "--hidden-states", "2", code=2)
    assert "--hidden-states needs --order 1, got 2" in out.stderr
    pytest.importorskip("dask")
    out = run("train", data, "-m", model, "--order", "2", "--dask", "local:1", code=2)
    assert "error: --order with --dask must be 1, got 2" in out.stderr


@pytest.mark.parametrize("features", [PAIRS, None])
def test_unknown_transition_attributes_are_named(features: Any) -> None:
    given = X if features is not None else [[[w] for w in x] for x in X]
    model = learned(2, features=features).fit(given, Y).model_
    known = r"it has B0:\w, .*, \.\.\. \(\d+\)" if features is not None else "it has none"
    with pytest.raises(ValueError, match=f"the model has no attribute 'nope' of transitions: {known}"):
        model.tuple_weights("nope")


@pytest.mark.parametrize(
    "how",
    [
        *({"algorithm": name} for name in ALGORITHMS if name not in ("lbfgs", "sgd", "adagrad")),
        {"hidden_states": 2},
        {"entropy_weight": 0.1},
        {"warm_start_fraction": 0.5},
        {"gradient": "backward"},
        {"device": "cuda"},
        {"beam": "adaptive"},
        {"beam": "fixed:2"},
    ],
)
def test_the_page_says_what_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="order"):
        CRF(order=2, **how).fit(X, Y)
    page = (Path(__file__).parent.parent / "docs" / "higher-order.md").read_text()
    listed = page[page.index("- **Not available with**") : page.index("- Prediction within beams")]
    ((name, value),) = how.items()
    said = {"beam": "adaptive beams" if value == "adaptive" else "any beam with L-BFGS", "algorithm": f'"{value}"'}
    assert said.get(name, name) in listed
