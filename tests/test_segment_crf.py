"""SegmentCRF: its objective, what it learns from, its predictions and its file."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest

import crfkit
from crfkit import CRF, SegmentCRF, segment
from crfkit.segment import SegmentFeatures
from crfkit.segment.entries import Found
from crfkit.training import NewtonCG

X = [
    ["in", "New", "York", "today"],
    ["Anna", "Lee", "left", "Rome"],
    ["Bob", "saw", "New", "York", "City"],
    ["from", "Rome"],
    ["Anna", "saw", "Bob"],
]
Y: list[Any] = [
    ["O", "B-LOC", "I-LOC", "O"],
    ["B-PER", "I-PER", "O", "B-LOC"],
    ["B-PER", "O", "B-LOC", "I-LOC", "I-LOC"],
    ["O", "B-LOC"],
    ["B-PER", "O", "B-PER"],
]
PARTIAL: list[Any] = [["O", "B-LOC", None, None], [None, None, {"O", "B-LOC"}, "B-LOC"], None, ["O", None], Y[4]]


def capitals(sequence: Any, start: int, end: int) -> list[str]:
    return [f"capitals={sum(w[0].isupper() for w in sequence[start:end])}"]


@pytest.mark.parametrize("y", [Y, PARTIAL], ids=["full", "partial"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"begins": False, "ends": True, "lengths": "buckets", "max_length": 4},
        {
            "ends": True,
            "segments": SegmentFeatures(shape=True, gazetteers={"city": ["Rome", "new york"]}, similarity=0.5),
        },
        {"tail_order": 2, "max_length": 2, "segments": capitals},
        {"tail_order": 1, "outside_runs": True},
    ],
    ids=["plain", "buckets", "listed", "tail", "geometric"],
)
def test_the_gradient_is_that_of_the_value(settings: dict[str, Any], y: Any) -> None:
    rng = np.random.default_rng(0)
    omega = rng.random(len(X)) + 0.5
    if settings.get("outside_runs") and y is PARTIAL:  # where a run of O may go on, B-LOC alone cannot be said
        y = [PARTIAL[0], [None, None, {"O", "B-LOC", "I-LOC"}, "B-LOC"], *PARTIAL[2:]]
    f = SegmentCRF(dtype="float64", c2=0.3, **settings).objective(X, y, sample_weight=omega)
    w = rng.normal(size=f.size) * 0.5
    value, gradient = f.value_and_grad(w)
    some = np.unique(np.concatenate([rng.integers(0, f.size, 40), np.arange(f.size - 30, f.size)]))
    for k in some.tolist():
        ends = []
        for step in (1e-5, -1e-5):
            moved = w.copy()
            moved[k] += step
            ends.append(f.value_and_grad(moved)[0])
        assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-6, rel=1e-6)
    single = SegmentCRF(dtype="float32", c2=0.3, **settings).objective(X, y, sample_weight=omega)
    near, slope = single.value_and_grad(w)
    assert near == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(slope, gradient, atol=1e-4)


def test_the_value_is_the_likelihood_of_the_potentials() -> None:
    crf = SegmentCRF(
        c2=0.2, dtype="float64", segments=SegmentFeatures(dictionary=False, shape=False, gazetteers={"x": ["Rome"]})
    )
    crf.fit(X, Y)
    p = crf.potentials(X)
    total = 0.0
    for i, q in enumerate(p):
        types = crf.model_.labels
        rows: list[tuple[int, int, int]] = []
        for t, tag in enumerate(Y[i]):
            if tag.startswith("I-"):
                rows[-1] = (rows[-1][0], t + 1, rows[-1][2])
            else:
                rows.append((t, t + 1, types.index(tag[2:] or tag)))
        total -= segment.log_probability(q, rows)
        assert oracle.segmentations(q)[2] == pytest.approx(segment.log_partition(q), abs=1e-9)
    value = crf.objective(X, Y).value_and_grad(crf.weights_)[0]
    assert value == pytest.approx(total + 0.2 * float(crf.weights_ @ crf.weights_), abs=1e-8)


def test_labels_spans_and_threads_give_the_same_model() -> None:
    tags = SegmentCRF(c2=0.1, n_jobs=1).fit(X, Y)
    spans = [[(a, b, k) for a, b, k in rows] for rows in tags.predict_segments(X)]
    assert tags.predict(X) == Y
    assert spans[2] == [(0, 1, "PER"), (2, 5, "LOC")]
    again = SegmentCRF(c2=0.1, n_jobs=2).fit(X, spans)
    np.testing.assert_array_equal(tags.weights_, again.weights_)
    assert tags.score(X, Y) == again.score(X, spans) == 1.0
    bioes = [["O", "B-LOC", "E-LOC", "O"], ["B-PER", "E-PER", "O", "S-LOC"], ["S-PER", "O", "B-LOC", "I-LOC", "E-LOC"],
             ["O", "S-LOC"], ["S-PER", "O", "S-PER"]]  # fmt: skip
    np.testing.assert_array_equal(SegmentCRF(c2=0.1).fit(X, bioes).weights_, tags.weights_)


def test_segments_that_are_too_long() -> None:
    with pytest.raises(
        ValueError, match=r"sequence 2, position 2: .*'LOC', has 3 tokens.*set max_length=3, or too_long"
    ):
        SegmentCRF(max_length=2).fit(X, Y)
    cut = SegmentCRF(max_length=2, too_long="cut", c2=0.01).fit(X, Y)
    assert max(b - a for rows in cut.predict_segments(X) for a, b, _ in rows) <= 2
    assert SegmentCRF(max_length=1, tail_order=1, c2=0.01).fit(X, Y).predict(X) == Y


def test_probabilities_of_entities_are_those_of_the_segments() -> None:
    crf = SegmentCRF(c2=0.5, segments=SegmentFeatures()).fit(X, Y)
    p = crf.potentials(X)
    for entities, q, likely in zip(crf.predict_entities(X), p, crf.predict_entities(X, threshold=0.05), strict=True):
        expected = oracle.segment_sums(q)["segments"]
        for e in entities:
            j = list(crf.classes_).index(e.label)
            assert e.probability == pytest.approx(expected[e.start, e.end - e.start, j], abs=1e-9)
        outside = list(crf.classes_).index("O")
        many = {(a, k, j) for a, k, j in np.argwhere(expected >= 0.05).tolist() if j != outside}
        assert {(e.start, e.end - e.start, list(crf.classes_).index(e.label)) for e in likely} == many
    nodes = crf.predict_marginals(X)
    np.testing.assert_allclose(nodes[2], oracle.segment_sums(p[2])["nodes"], atol=1e-9)
    best = crf.predict_nbest(X, 3)[0]
    assert best[0].labels == crf.predict(X)[0]
    assert best[0].probability >= best[1].probability
    assert len(crf.sample(X, 4, random_state=0)[1]) == 4


def test_given_labels_and_partial_spans() -> None:
    crf = SegmentCRF(c2=0.1, max_length=4).fit(X, Y)
    assert crf.predict(X[:1], given=[["B-PER", "I-PER", None, None]])[0][:2] == ["B-PER", "I-PER"]
    assert crf.predict(X[3:4], given=[["B-LOC", "B-LOC"]]) == [["B-LOC", "B-LOC"]]
    assert crf.predict(X[3:4], given=[["B-LOC", "I-LOC"]]) == [["B-LOC", "I-LOC"]]
    partial = SegmentCRF(c2=0.1).fit(X, PARTIAL)
    assert partial.predict(X)[4] == Y[4]


def test_texts_of_training_segments_are_attributes() -> None:
    texts = [["x", "Y"], ["z"], ["y", "x", "y"]]
    tags = [["B-A", "I-A"], ["B-A"], ["O", "O", "O"]]
    model, _ = SegmentCRF(segments=SegmentFeatures(), max_length=2)._prepare(texts, tags, None, None, True)
    assert model.finder is not None
    assert model.finder.names() == ["segment text=x y", "segment text=z"]
    columns = model.encoder.read(texts)
    items = model.finder.find(columns, columns.offsets, 2, 0, None, 1)
    assert items.end.tolist() == [2, 3, 6]
    assert items.length.tolist() == [2, 1, 2]
    assert items.attr.tolist() == [0, 1, 0]


def test_texts_that_were_segments_in_other_sentences_are_attributes() -> None:
    texts = [["x", "Y"], ["z", "x"], ["y", "x", "y"], ["X", "y", "z"], ["z", "z"]]
    tags = [["B-A", "I-A"], ["B-A", "O"], ["O", "O", "O"], ["B-B", "I-B", "O"], ["B-A", "B-A"]]
    rule = SegmentFeatures(dictionary=False, seen=True)
    model, _ = SegmentCRF(segments=rule, max_length=2)._prepare(texts, tags, None, None, True)
    assert model.finder is not None
    seen = model.finder.seen
    assert seen is not None
    assert (seen.entries.words, seen.entries.ptr.tolist()) == (["x", "y", "z"], [0, 2, 3])
    assert (seen.labels, seen.occurrences.tolist()) == (["A", "B", "O"], [3, 4])
    assert seen.segments.tolist() == [[1, 1, 0], [3, 0, 0]]
    columns = model.encoder.read(texts)
    names = model.finder.names()

    def found(known: Any) -> list[tuple[int, int, str]]:
        assert model.finder is not None
        items = model.finder.find(columns, columns.offsets, 2, 0, known, 1)
        segments = np.repeat(np.arange(len(items.length)), np.diff(items.attr_ptr))
        rows = zip(items.end[segments].tolist(), items.length[segments].tolist(), items.attr.tolist(), strict=True)
        kept = [(end, length, names[a]) for end, length, a in rows if " seen as " in names[a]]
        return [(end, length, name.removeprefix("segment seen as ")) for end, length, name in kept]

    once, share = "times>=1 share>=", {1: "0.25", 2: "0.5"}
    assert found(None)[:3] == [
        (2, 2, f"A: {once}{share[1]}"),
        (2, 2, f"B: {once}{share[1]}"),
        (3, 1, "A: times>=2 share>=0.75"),
    ]
    known = SegmentCRF(max_length=2)._known(tags, columns.offsets, ["A", "B", "O"])
    assert found(known) == [
        (2, 2, f"B: {once}{share[2]}"),  # elsewhere a B, and nothing
        (3, 1, "A: times>=2 share>=0.5"),  # two of three, without its own
        (7, 2, f"A: {once}{share[2]}"),
        (7, 2, f"B: {once}{share[2]}"),
        (9, 2, f"A: {once}{share[2]}"),
        (10, 1, "A: times>=2 share>=0.95"),  # it is no segment here
        (11, 1, f"A: {once}{share[2]}"),  # both of its own are left out
        (12, 1, f"A: {once}{share[2]}"),
    ]


def test_words_that_begin_and_end_segments_of_other_sentences_are_attributes() -> None:
    texts = [["the", "Abl", "gene"], ["an", "abl"], ["src", "gene", "abl"]]
    tags = [["O", "B-G", "I-G"], ["O", "B-G"], ["B-G", "I-G", "O"]]
    rule = SegmentFeatures(dictionary=False, seen=True)
    model, _ = SegmentCRF(segments=rule, max_length=2)._prepare(texts, tags, None, None, True)
    assert model.finder is not None
    words = model.finder.seen_words
    assert words is not None
    assert words.entries.words == ["the", "abl", "gene", "an", "src"]
    assert words.counts.tolist() == [[1, 3, 2, 1, 1], [0, 2, 0, 0, 1], [0, 1, 2, 0, 0], [0, 2, 2, 0, 1]]
    columns = model.encoder.read([["src", "Gene"], ["abl", "kinase"]])
    names = model.finder.names()

    def found(columns: Any, known: Any) -> list[tuple[int, int, str]]:
        assert model.finder is not None
        items = model.finder.find(columns, columns.offsets, 2, 0, known, 1)
        segments = np.repeat(np.arange(len(items.length)), np.diff(items.attr_ptr))
        rows = zip(items.end[segments].tolist(), items.length[segments].tolist(), items.attr.tolist(), strict=True)
        kept = [(end, length, names[a]) for end, length, a in rows if " words: " in names[a]]
        return [(end, length, name.removeprefix("segment seen words: ")) for end, length, name in kept]

    assert found(columns, None) == [
        (2, 2, "length>=2 first>=0.6 last>=0.6"),
        (2, 2, "length>=2 inside>=0.8"),
        (3, 1, "length>=1 first>=0.6 last>=0.3"),
        (3, 1, "length>=1 inside>=0.6"),
    ]
    columns = model.encoder.read(texts)
    known = SegmentCRF(max_length=2)._known(tags, columns.offsets, ["G", "O"])
    assert found(columns, known) == [
        (2, 1, "length>=1 first>=0.3 last>=0.3"),  # elsewhere a segment of its own, and outside
        (2, 1, "length>=1 inside>=0.4"),
        (3, 2, "length>=2 first>=0.3 last>=0.6"),
        (3, 2, "length>=2 inside>=0.6"),
        (8, 1, "length>=1 first>=0.6 last>=0.3"),
        (8, 1, "length>=1 inside>=0.8"),
    ]


def test_features_of_segments_are_learnt() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(30)]
    names = [[f"w{i}", f"w{j}"] for i, j in rng.integers(0, 30, (12, 2))]
    texts: list[Any] = []
    tags: list[Any] = []
    for _ in range(150):
        before, after = (rng.choice(words, rng.integers(0, 6)).tolist() for _ in range(2))
        texts.append([*before, *names[rng.integers(12)], *after])
        tags.append(["O"] * len(before) + ["B-N", "I-N"] + ["O"] * len(after))
    gazetteer = SegmentFeatures(dictionary=False, gazetteers={"names": [" ".join(n) for n in names]})
    plain = SegmentCRF(features=crfkit.Template("U:%x[0,0]"), c2=0.1).fit(texts[:100], tags[:100])
    listed = SegmentCRF(features=crfkit.Template("U:%x[0,0]"), c2=0.1, segments=gazetteer)
    listed.fit(texts[:100], tags[:100])

    def right(crf: Any) -> float:
        return float(np.mean([a == b for a, b in zip(crf.predict(texts[100:]), tags[100:], strict=True)]))

    assert right(listed) > right(plain) + 0.1


def test_a_file_holds_all_of_it(tmp_path: Path) -> None:
    rule = SegmentFeatures(shape=True, gazetteers={"city": ["Rome"]}, similarity=0.4, seen=True)
    crf = SegmentCRF(c2=0.2, segments=rule, ends=True, max_length=4, tail_order=1).fit(X, Y)
    crf.save(tmp_path / "model")
    again = crfkit.load(tmp_path / "model", kind=SegmentCRF)
    assert again.predict(X) == crf.predict(X)
    np.testing.assert_array_equal(again.weights_, crf.weights_)
    assert again.predict_entities(X) == crf.predict_entities(X)
    assert again.model_.card()["segment_attributes"] == crf.model_.card()["segment_attributes"] > 0
    assert again.get_params()["max_length"] == 4
    with pytest.raises(crfkit.ModelError, match="not CRF"):
        crfkit.load(tmp_path / "model", kind=CRF)


def test_one_token_segments_are_a_chain() -> None:
    labels = [["O", "A", "A", "O"], ["B", "B", "O", "A"], ["B", "O", "A", "A", "A"], ["O", "A"], ["B", "O", "B"]]
    bare = [[f"B-{x}" if x != "O" else x for x in row] for row in labels]
    chain = CRF(c2=0.3, tol=1e-10, dtype="float64").fit(X, labels)
    single = SegmentCRF(c2=0.3, tol=1e-10, dtype="float64", max_length=1, begins=False).fit(X, bare)
    # a weight of the only length is one more that is penalised
    a, b = chain.predict_marginals(X)[1], single.predict_marginals(X)[1]
    order = [list(single.classes_).index(x) for x in chain.classes_]
    np.testing.assert_allclose(a, b[:, order], atol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c2": -1}, "'c2' of SegmentCRF must be a number >= 0"),
        ({"max_length": 0}, "'max_length' of SegmentCRF must be an int >= 1 or None"),
        ({"too_long": "drop"}, "'too_long' of SegmentCRF must be 'error' or 'cut'"),
        ({"algorithm": "sgd"}, "'algorithm' of SegmentCRF must be 'lbfgs'"),
        ({"segments": 3}, "'segments' of SegmentCRF must be"),
    ],
)
def test_parameters_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentCRF(**change).fit(X, Y)


def test_spans_are_checked() -> None:
    with pytest.raises(ValueError, match="must lie within its 2 tokens"):
        SegmentCRF().fit([["a", "b"]], [[(0, 3, "X")]])
    with pytest.raises(ValueError, match="overlaps another"):
        SegmentCRF().fit([["a", "b"]], [[(0, 2, "X"), (1, 2, "Y")]])


def test_function_of_a_loaded_model(tmp_path: Path) -> None:
    X, y = [["a", "b", "c"], ["c", "a"]], [["B-X", "I-X", "O"], ["O", "B-X"]]

    def starts(tokens: list[str], a: int, b: int) -> list[str]:
        return [f"{tokens[a]}{b - a}"]

    crf = SegmentCRF(segments=starts, max_length=3).fit(X, y)
    crf.save(tmp_path / "model.crfkit")
    found = crfkit.load(tmp_path / "model.crfkit")
    with pytest.raises(ValueError, match=r"set_params\(segments=f\)"):
        found.predict(X)
    assert found.set_params(segments=starts).predict(X) == crf.predict(X)


def test_warm_start_begins_at_the_weights_of_the_last_fit() -> None:
    crf = SegmentCRF(segments=SegmentFeatures(), c2=0.1, dtype="float64", warm_start=True).fit(X, Y)
    first = crf.weights_.copy()
    crf.max_iter = 0
    np.testing.assert_array_equal(crf.fit(X, Y).weights_, first)
    before = {(w.attribute, w.label): w.weight for w in crf.model_.state_weights()}
    transitions = crf.model_.transition_weights()
    more = [*X, ["Zoe", "in", "Oslo", "Port", "of", "Old", "Town"]]
    crf.fit(more, [*Y, ["B-ORG", "O", "B-LOC", "I-LOC", "I-LOC", "I-LOC", "I-LOC"]])
    after = {(w.attribute, w.label): w.weight for w in crf.model_.state_weights()}
    assert after == before
    assert crf.model_.transition_weights() == transitions
    assert len(crf.weights_) > len(first)
    assert "ORG" in crf.classes_


def test_early_stopping_keeps_the_best_weights() -> None:
    seen: list[tuple[float, Any]] = []
    crf = SegmentCRF(c2=0.01, max_iter=30, early_stopping=3)
    crf.callback = lambda progress, w: seen.append((progress.scores["f1"], w.copy()))
    crf.fit(X[:3], Y[:3], X_dev=X[3:], y_dev=[[(1, 2, "LOC")], [(0, 1, "PER"), (2, 3, "PER")]])
    best = max(seen, key=lambda pair: pair[0])
    assert crf.result_.reason == "early_stopping"
    np.testing.assert_array_equal(crf.weights_, best[1])
    with pytest.raises(ValueError, match="'early_stopping' of SegmentCRF needs held-out data"):
        SegmentCRF(early_stopping=2).fit(X, Y)


LONG = [["B-X", *["I-X"] * 5], ["B-X", "O"], ["O", "B-X", "I-X"]]
LONG_TEXTS = [list("abcdef"), ["a", "x"], ["y", "a", "b"]]


def test_texts_shorter_than_the_longest_segment_are_looked_up() -> None:
    crf = SegmentCRF(c2=0.1, segments=SegmentFeatures(dictionary=False, seen=True)).fit(LONG_TEXTS, LONG)
    together = crf.predict_marginals([[], ["a"], ["a", "b"], list("abcd"), list("abcdef")])
    for n, expected in zip((0, 1, 2, 4, 6), together, strict=True):
        np.testing.assert_allclose(crf.predict_marginals([list("abcdef")[:n]])[0], expected, atol=1e-6)
    assert crf.predict([[]]) == [[]]


def test_words_whose_lower_case_is_not_that_of_their_letters() -> None:
    X = [["η", "ΟΔΟΣ", "x"], ["οδοσ", "x"], ["İstanbul", "x"]]
    y = [["O", "B-A", "O"], ["B-A", "O"], ["B-A", "O"]]
    rule = SegmentFeatures(dictionary=False, seen=True, gazetteers={"street": ["ΟΔΟΣ", "İstanbul"]})
    crf = SegmentCRF(segments=rule).fit(X, y)
    assert crf.predict(X) == y
    for i, word in ((0, "ΟΔΟΣ"), (1, "οδοσ"), (2, "İstanbul")):
        found = [d for d in crf.explain(X[i]) if d.token == word]
        assert "street" in str(found[0].contributions)


def test_what_is_looked_up_does_not_depend_on_the_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    add, times = Found.add, 0

    def counted(self: Found, *found: Any) -> None:
        nonlocal times
        times += 1
        add(self, *found)

    monkeypatch.setattr(Found, "add", counted)
    rule = SegmentFeatures(dictionary=False, seen=True)
    SegmentCRF(segments=rule, max_length=200, max_iter=1).fit(LONG_TEXTS * 40, LONG * 40)
    assert times <= 2 * max(map(len, LONG_TEXTS)) + 1


def test_the_objective_of_a_fitted_model_is_what_was_minimised(tmp_path: Path) -> None:
    crf = SegmentCRF(c2=0.1, dtype="float64", segments=SegmentFeatures(seen=True)).fit(LONG_TEXTS * 2, LONG * 2)
    crf.save(tmp_path / "m")
    loaded: Any = crfkit.load(tmp_path / "m")
    for one in (crf, loaded):
        value, gradient = one.objective(LONG_TEXTS * 2, LONG * 2).value_and_grad(crf.weights_)
        assert value == pytest.approx(crf.result_.value)
        assert np.abs(gradient).max() < 0.01
    other = crf.objective([["a", "b", "a", "b", "a", "b"] * 3], [["O"] * 18])  # more often than in training
    assert np.isfinite(other.value_and_grad(crf.weights_)[0])
    named = SegmentCRF(segments=lambda x, a, b: [x[a]], max_iter=2).fit(LONG_TEXTS, LONG)
    named.objective([["new"]], [["O"]])  # adds no attribute to the model
    assert named.objective(LONG_TEXTS, LONG).size == len(named.weights_)


def test_fitted_models_are_pickled_and_copied(tmp_path: Path) -> None:
    rule = SegmentFeatures(shape=True, gazetteers={"city": ["Rome", "New York"]}, similarity=0.4, seen=True)
    for segments in (rule, capitals):
        crf = SegmentCRF(c2=0.2, segments=segments).fit(X, Y)
        expected = crf.predict_entities(X)
        assert pickle.loads(pickle.dumps(crf)).predict_entities(X) == expected
        assert copy.deepcopy(crf).predict_entities(X) == copy.copy(crf).predict_entities(X) == expected
        joblib = pytest.importorskip("joblib")
        joblib.dump(crf, tmp_path / "model")
        assert joblib.load(tmp_path / "model").predict_entities(X) == expected


@pytest.mark.parametrize(
    ("tags", "needed"),
    [
        (["B-X", None, "I-X"], 2),
        ([None, "I-X", "O"], 2),
        ([None, "I-X", "I-X"], 3),
        (["B-X", {"I-X", "B-X"}, "I-X"], 2),
        (["B-X", "I-X", {"I-X"}], 3),
        ([None, {"I-Y"}, "O"], 2),
    ],
)
def test_the_longest_segment_is_what_partly_known_tags_require(tags: list[Any], needed: int) -> None:
    texts, y = [list("abc"), list("def")], [tags, ["O", "B-X", "O"]]
    crf = SegmentCRF(c2=0.1).fit(texts, y)
    assert crf.model_.shape.max_length == needed
    assert np.isfinite(crf.result_.value)
    assert len(crf.predict(texts, given=y)) == 2
    assert len(SegmentCRF(c2=0.1, tail_order=1).fit(texts, y).predict(texts, given=y)) == 2
    for too_long in ("error", "cut") if None in tags[:1] else ("error",):
        with pytest.raises(ValueError, match=rf"sequence 0, position \d: .* {needed} tokens, more than 'max_length'=1"):
            SegmentCRF(max_length=1, too_long=too_long).fit(texts, y)


def test_tags_that_no_segmentation_fits_are_named() -> None:
    with pytest.raises(ValueError, match="sequence 1, position 1: no label fits all that is known of the segment of 2"):
        SegmentCRF().fit([list("ab"), list("abc")], [["B-X", "I-X"], ["O", None, "I-O"]])
    crf = SegmentCRF(max_length=2).fit([list("ab")], [["B-X", "I-X"]])
    with pytest.raises(ValueError, match=r"sequence 1, position 0: .* at least 3 tokens, more than 'max_length'=2"):
        crf.predict([["a"], list("abc")], given=[None, [None, "I-X", "I-X"]])


#: Sets of tags of four tokens, and whether training takes them.
SETS: list[tuple[list[Any], bool]] = [
    ([None, {"O", "I-LOC"}, None, None], False),
    ([None, None, None, {"O", "I-LOC"}], False),
    (["B-LOC", {"O", "I-LOC"}, None, {"O", "I-LOC", "I-PER"}], False),
    ([{"O", "B-LOC"}, {"O", "I-LOC"}, "O", None], False),
    ([{"O", "B-LOC"}, "I-LOC", None, None], True),
    (["B-LOC", {"I-LOC", "I-PER"}, None, None], True),
    ([None, {"I-LOC", "I-PER"}, None, {"O", "B-LOC", "I-LOC"}], True),
    ([None, {"O", "B-LOC"}, {"B-LOC", "B-PER"}, None], True),
]


@pytest.mark.parametrize(("tags", "taught"), SETS)
def test_sets_of_tags_are_respected(tags: list[Any], taught: bool) -> None:
    crf = SegmentCRF(c2=0.5, max_length=4, dtype="float64").fit(X, Y)

    def fits(labels: list[str]) -> bool:
        return all(
            tag is None or one in (tag if isinstance(tag, set) else {tag})
            for one, tag in zip(labels, tags, strict=True)
        )

    for x in (["in", "Rome", "left", "Rome"], X[0], X[1]):
        every = [best for best in crf.predict_nbest([x], 100_000)[0] if fits(best.labels)]
        assert crf.predict([x], given=[tags])[0] == every[0].labels
        likely = crf.predict_nbest([x], 100_000, given=[tags])[0]
        assert [b.labels for b in likely] == [b.labels for b in every]
        if not taught:
            with pytest.raises(
                ValueError, match=r"sequence 1, token \d: a set that contains 'I-LOC' and tags without I-"
            ):
                crf.objective([x, x], [None, tags])
            continue
        value = SegmentCRF(c2=0.0, max_length=4, dtype="float64")
        value.model_ = crf.model_
        loss = value.objective([x], [tags]).value_and_grad(crf.weights_)[0]
        assert loss == pytest.approx(-np.log(sum(b.probability for b in every)), abs=1e-9)


#: Soft labels of four tokens, and whether training takes them.
SOFT: list[tuple[list[Any], bool]] = [
    ([None, {"O": 0.9, "B-LOC": 0.05, "I-LOC": 0.05}, None, None], True),
    ([None, {"O": 0.9, "B-LOC": 0.01, "I-LOC": 0.09}, None, None], False),
    ([{"O": 2, "B-LOC": 3, "I-LOC": 5}, {"O": 1, "B-LOC": 1, "I-LOC": 1}, None, {"O", "B-LOC", "I-LOC"}], True),
    ([None, {"I-LOC": 0.3, "I-PER": 0.7}, None, {"O": 0.2, "B-LOC": 0.4, "I-LOC": 0.4}], True),
    (["B-LOC", {"O": 0.2, "I-LOC": 0.8}, None, None], False),
    ([None, {"O": 0.5, "I-LOC": 0.25, "B-LOC": 0.0, "B-PER": 0.15, "I-PER": 0.1}, None, None], False),
    (["O", {"O": 0.5, "B-LOC": 0.1, "I-LOC": 0.4}, {"B-LOC": 0.6, "O": 0.4, "I-LOC": 0.6}, None], True),
]


@pytest.mark.parametrize(("tags", "taught"), SOFT)
def test_soft_labels_are_weights_of_tags(tags: list[Any], taught: bool) -> None:
    crf = SegmentCRF(c2=0.5, max_length=4, dtype="float64").fit(X, Y)

    def weight(labels: list[str]) -> float:
        return float(np.prod([
            1.0 if tag is None else tag.get(one, 0.0) / sum(tag.values()) if isinstance(tag, dict)
            else float(one in tag if isinstance(tag, set) else one == tag)
            for one, tag in zip(labels, tags, strict=True)
        ]))  # fmt: skip

    for x in (["in", "Rome", "left", "Rome"], X[0], X[1]):
        every = {tuple(b.labels): b.probability * weight(b.labels) for b in crf.predict_nbest([x], 100_000)[0]}
        total = sum(every.values())
        for b in crf.predict_nbest([x], 100_000, given=[tags])[0]:
            assert b.probability == pytest.approx(every[tuple(b.labels)] / total, abs=1e-9)
        value = SegmentCRF(c2=0.0, max_length=4, dtype="float64")
        value.model_ = crf.model_
        if taught:
            loss = value.objective([x], [tags]).value_and_grad(crf.weights_)[0]
            assert loss == pytest.approx(-np.log(total), abs=1e-9)
        else:
            with pytest.raises(ValueError, match=r"sequence 1, token 1: a (soft label with|set that contains)"):
                value.objective([x, x], [None, tags])
    with pytest.raises(ValueError, match="sequence 0, token 0: the weights of E-X, I-X must not depend on where"):
        SegmentCRF().fit([["a"]], [[{"I-X": 0.5, "E-X": 0.2, "O": 0.3}]])


def test_scores_compare_segments_whatever_the_scheme() -> None:
    texts, crf = [list("abcd"), list("ab")], SegmentCRF(c2=0.001)
    written = [["B-A", "I-A", "B-B", "O"], ["O", "B-A"]]
    for y in (
        [["B-A", "E-A", "S-B", "O"], ["O", "S-A"]],
        [["B-A", "L-A", "U-B", "O"], ["O", "U-A"]],
        [["I-A", "I-A", "I-B", "O"], ["O", "I-A"]],
        written,
        [[(0, 2, "A"), (2, 3, "B")], [(1, 2, "A")]],
    ):
        seen: list[float] = []
        crf = SegmentCRF(c2=0.001, callback=lambda progress, w: seen.append(progress.scores["accuracy"]))  # noqa: B023
        crf.fit(texts, y, X_dev=texts, y_dev=y)
        assert crf.predict(texts) == written
        assert crf.score(texts, y) == seen[-1] == 1.0
    bioes = [["B-A", "E-A", "S-B", "O"], ["O", "S-A"]]
    assert crfkit.metrics.accuracy_scorer(crf, texts, bioes) == 1.0
    assert crf.as_predicted([["B-A", "E-A", "S-B", "O"]]) == written[:1]
    assert crf.score(texts, [["B-A", "I-A", "I-A", "O"], ["O", "S-Z"]]) == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    "tags", [[None, {"B-X", "I-Y"}, None], [{"S-X", "B-Y"}, None, None], [None, {"B-X", "E-X"}, None]]
)
def test_sets_of_tags_that_cannot_be_expressed_are_refused(tags: list[Any]) -> None:
    texts = [list("ab"), list("abc")]
    crf = SegmentCRF().fit(texts, [["B-X", "I-X"], ["B-Y", "I-Y", "O"]])
    with pytest.raises(ValueError, match=r"sequence 1, token \d: the tags .*: a set must allow 'X' both to begin"):
        crf.fit(texts, [["B-X", "O"], tags])
    with pytest.raises(ValueError, match=r"sequence 1, token \d: the tags .*: a set must allow 'X' both to begin"):
        crf.predict(texts, given=[None, tags])


def test_with_a_tail_segments_as_long_as_in_training_have_features() -> None:
    called: set[int] = set()

    def sizes(sequence: Any, start: int, end: int) -> list[str]:
        called.add(end - start)
        return capitals(sequence, start, end)

    crf = SegmentCRF(tail_order=1, segments=sizes, c2=0.1).fit(X, Y)
    assert called == {1, 2, 3}
    assert (crf.model_.shape.max_length, SegmentCRF(tail_order=1).fit(X, Y).model_.shape.max_length) == (4, 1)
    rule = SegmentFeatures(seen=True)
    model, _ = SegmentCRF(tail_order=2, segments=rule)._prepare(X, Y, None, None, True)
    assert model.finder is not None
    assert "segment text=new york city" in model.finder.names()
    assert SegmentCRF(tail_order=2, segments=rule).fit(X, Y).predict([X[2] * 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"similarity": 0, "gazetteers": {"c": ["Rome"]}}, "'similarity' of SegmentFeatures must be above 0"),
        ({"similarity": 1.5, "gazetteers": {"c": ["Rome"]}}, "'similarity' of SegmentFeatures must be above 0"),
        ({"similarity": float("nan"), "gazetteers": {"c": ["Rome"]}}, "must be above 0 and at most 1, got nan"),
        ({"similarity": True, "gazetteers": {"c": ["Rome"]}}, "must be above 0 and at most 1, got True"),
        ({"similarity": 0.5}, "'gazetteers', which must be given"),
        ({"dictionary": 1}, "'dictionary' of SegmentFeatures must be True or False, got 1"),
        ({"seen": "yes"}, "'seen' of SegmentFeatures must be True or False, got 'yes'"),
        ({"shape": None}, "'shape' of SegmentFeatures must be True or False, got None"),
        ({"gazetteers": ["Rome"]}, "'gazetteers' of SegmentFeatures must be a dict of names and lists"),
        ({"gazetteers": {"c": "Rome"}}, "must have lists of texts, got 'c': 'Rome'"),
        ({"gazetteers": {"c": [3]}}, "the gazetteer 'c' must hold texts or lists of tokens, got 3"),
        ({"function": 3}, "'function' of SegmentFeatures must be callable, got 3"),
    ],
)
def test_arguments_of_features_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentCRF(segments=SegmentFeatures(**arguments)).fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[(0, 1, "X")], ["O", "B-X"]], r"sequence 1: spans .* and labels of tokens cannot be mixed"),
        ([["O", "B-X"], [(0, 1, "X")]], r"sequence 1: spans .* and labels of tokens cannot be mixed"),
        ([[(0, 1, "X")], "OO"], "sequence 1: spans must be a list"),
        ([[(0, 1, "X")], 3], "sequence 1: spans must be a list"),
        ([[(0, 1, "X")], [(0, 1)]], r"sequence 1: a span must be \(start, end, label\), got \(0, 1\)"),
        ([[(0, 1)], []], r"sequence 0: a span must be \(start, end, label\), got \(0, 1\)"),
        ([[(0, 1, 5)], [(0, 1, "A")]], "sequence 0: the label of a span must be a str"),
        ([[], [("0", 1, "X")]], "sequence 1: start and end of a span must be ints"),
        ([[], [(0, 1.0, "X")]], "sequence 1: start and end of a span must be ints"),
        ([[], [(False, True, "X")]], "sequence 1: start and end of a span must be ints"),
        ([[], [(0, 1, None)]], "sequence 1: the label of a span must be a str"),
        ([[], [(0, 1, {"X", "Y"})]], "sequence 1: the label of a span must be a str"),
        ([[], [(0, 1, "")]], "sequence 1: the label of a span must be a str"),
    ],
)
def test_what_spans_hold_is_checked(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentCRF().fit([["a", "b"], ["c", "d"]], y)


def test_numbers_of_spans_may_be_those_of_numpy() -> None:
    rows = SegmentCRF().fit(X, Y).predict_segments(X, given=Y)
    numpy = [[(np.int64(a), np.int32(b), np.str_(k)) for a, b, k in spans] for spans in rows]
    found, expected = SegmentCRF().fit(X, numpy), SegmentCRF().fit(X, rows)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    assert type(found.predict_segments(X)[0][0][0]) is int


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1"])
def test_numbers_that_a_function_returns_are_checked(value: Any) -> None:
    def wrong(sequence: Any, start: int, end: int) -> Any:
        return {"x": value if sequence[start:end] == ["York"] else 1.0}

    with pytest.raises(ValueError, match=r"sequence 0, tokens 2 to 3: .* must return finite numbers, got 'x'"):
        SegmentCRF(segments=wrong).fit(X, Y)


@pytest.mark.parametrize("name", ["max_length", "tail_order"])
def test_lengths_that_no_table_holds_are_refused_at_once(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' of SegmentCRF must be at most"):
        SegmentCRF(**{name: 10**9}).fit([["a"]], [["B-X"]])  # type: ignore[arg-type]


@pytest.mark.parametrize("types", ["one", "two"])
@pytest.mark.parametrize("tail_order", [0, 2])
def test_explanations_compare_with_the_outside(types: str, tail_order: int) -> None:
    y = [[t if t == "O" or types == "two" else f"{t[:2]}X" for t in row] for row in Y]
    settings: dict[str, Any] = {"segments": SegmentFeatures(dictionary=True), "ends": True, "tail_order": tail_order}
    crf = SegmentCRF(c2=0.1, max_length=3 - (tail_order > 0), **settings).fit(X, y)
    ((p, _),) = crf._pieces([X[2]], None, np.float64)
    p = replace(p, offsets=None)
    best = segment.decode(p).tolist()
    assert best[-1][:2] == [2, 5]
    d = crf.explain(X[2]).decisions[-1]
    assert sum(c.amount for c in d.contributions) == pytest.approx(d.log_odds)
    outside = crf.model_.labels.index("O")
    if types == "one":
        assert d.runner_up == "O"
        other = [*best[:-1], *([t, t + 1, outside] for t in range(2, 5))]
        only = np.ones(p.unary.shape, bool)
        only[2:] = np.arange(p.n_labels) == outside
        share = segment.log_partition(replace(p, allowed=only)) - segment.log_partition(p)
        assert d.runner_up_probability == pytest.approx(np.exp(share))
    else:
        other = [*best[:-1], [2, 5, crf.model_.labels.index(d.runner_up)]]
    if d.runner_up == "O":
        other = [*best[:-1], *([t, t + 1, outside] for t in range(2, 5))]
    assert d.log_odds == pytest.approx(segment.score(p, best) - segment.score(p, other), abs=1e-6)


@pytest.mark.parametrize("source", ["file", "generator", "set"])
def test_gazetteers_are_read_once(source: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("New York\nRome\n")
    names: Any = {"generator": (x for x in ("New York", "Rome")), "set": {"New York", "Rome"}}.get(source)
    with (tmp_path / "names").open() as file:
        rule = SegmentFeatures(dictionary=False, gazetteers={"city": file if names is None else names})
    rule = pickle.loads(pickle.dumps(copy.deepcopy(rule)))
    for _ in range(2):
        crf = SegmentCRF(segments=rule, c2=0.1).fit(X, Y)
        assert crf.model_.finder is not None
        assert crf.model_.finder.lists is not None
        assert len(crf.model_.finder.lists.member) == 2


def test_spans_of_the_outside_are_as_if_left_out() -> None:
    texts = [list("abcd"), list("ab")]
    plain = SegmentCRF(max_length=2).fit(texts, [[(0, 1, "A")], []])
    spans = SegmentCRF(max_length=2).fit(texts, [[(1, 4, "O"), (0, 1, "A")], [(0, 2, "O")]])
    np.testing.assert_array_equal(spans.weights_, plain.weights_)
    with pytest.raises(ValueError, match=r"sequence 0: the span \(1, 2, 'A'\) overlaps another"):
        SegmentCRF().fit(texts, [[(0, 2, "O"), (1, 2, "A")], []])
    with pytest.raises(ValueError, match="more than 'max_length'=1: set outside_runs=True, or too_long='cut'"):
        SegmentCRF(max_length=2).fit(texts, [["B-A", "B-O", "I-O", "O"], ["O", "O"]])


def test_given_takes_no_spans() -> None:
    crf = SegmentCRF().fit(X, Y)
    with pytest.raises(ValueError, match=r"'given' must hold a label for each token, .* got spans"):
        crf.predict(X[:2], given=[None, [(0, 2, "PER")]])


def test_nothing_has_a_score_of_zero() -> None:
    crf = SegmentCRF().fit(X, Y)
    assert crf.score([], []) == crf.score([[]], [[]]) == 0.0
    assert crf.as_predicted([[], []]) == [[], []]


@pytest.mark.parametrize("threshold", ["a", True, 0, 1.5, float("nan")])
def test_thresholds_are_checked(threshold: Any) -> None:
    with pytest.raises(ValueError, match="'threshold' must be a number above 0 and at most 1, got"):
        SegmentCRF().fit(X, Y).predict_entities(X, threshold=threshold)


def test_optimisers_that_need_more_than_gradients_are_refused() -> None:
    for algorithm in ("newton-cg", NewtonCG(), "sgd"):
        with pytest.raises(ValueError, match="'algorithm' of SegmentCRF must be 'lbfgs', got"):
            SegmentCRF(algorithm=algorithm).fit(X, Y)


def test_models_with_tails_of_any_order_are_read(tmp_path: Path) -> None:
    crf = SegmentCRF(tail_order=1000, max_iter=2).fit(X, Y)
    crf.save(tmp_path / "m")
    loaded: Any = crfkit.load(tmp_path / "m")
    assert loaded.predict(X) == crf.predict(X)
