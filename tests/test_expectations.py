"""Generalised expectation criteria and posterior regularisation against enumeration, and what they teach."""

from __future__ import annotations

import gzip
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest

from crfkit import CRF, Expectations, metrics
from crfkit.data import DataError, load_corpus
from crfkit.training.dual import SLACK

X = [["a", "b", "c"], ["b", "a"], ["c", "c", "a", "b"], ["a"]]
UNKNOWN = [None] * len(X)
WANTED = Expectations(
    {"a": {"A": 0.7, "B": 0.2, "C": 0.1}, "b": {"B": 0.6}},
    at_least={"c": ({"A", "C"}, 0.9), "*": ("A", 0.1)},
    at_most={"*": ({"B"}, 0.3), "a": ({"C"}, 0.9)},
    weight=2.0,
)


def fitted(**how: Any) -> CRF:
    data = [[[x] for x in sequence] for sequence in X]
    return CRF(None, dtype="float64", **how).fit(data, UNKNOWN, expectations=WANTED)


def divergence(q: list[float], p: list[float]) -> float:
    return float(sum(a * np.log(a / b) for a, b in zip(q, p, strict=True) if a > 0))


def value_by_enumeration(crf: CRF, w: np.ndarray, weight: float, per: str) -> float:
    crf.model_ = replace(crf.model_, weights=w)
    nodes, words = [], []
    for x in X:
        nodes.append(oracle.nodes(crf.potentials([[[word] for word in x]])[0]))
        words += x
    p = np.concatenate(nodes)
    a, b, c = (np.array([word == name for word in words]) for name in "abc")
    every = np.ones(len(words), bool)
    j = {label: k for k, label in enumerate(crf.model_.labels)}

    def share(rows: np.ndarray, *labels: str) -> float:
        return float(p[rows][:, [j[label] for label in labels]].sum(axis=1).mean())

    rules = [
        (a, [0.7, 0.2, 0.1], [share(a, "A"), share(a, "B"), share(a, "C")], True),
        (b, [0.6, 0.4], [share(b, "B"), share(b, "A", "C")], True),
        (c, [0.9, 0.1], [share(c, "A", "C"), share(c, "B")], share(c, "A", "C") < 0.9),
        (every, [0.1, 0.9], [share(every, "A"), share(every, "B", "C")], share(every, "A") < 0.1),
        (every, [0.3, 0.7], [share(every, "B"), share(every, "A", "C")], share(every, "B") > 0.3),
        (a, [0.9, 0.1], [share(a, "C"), share(a, "A", "B")], share(a, "C") > 0.9),
    ]
    return sum(
        weight * (rows.sum() if per == "token" else 1) * divergence(q, shares)
        for rows, q, shares, counts in rules
        if counts
    )


def objective(dtype: str = "float64", **how: Any) -> Any:
    wanted = Expectations(WANTED.distributions, at_least=WANTED.at_least, at_most=WANTED.at_most, weight=2.0, **how)
    data = [[[x] for x in sequence] for sequence in X]
    crf = CRF(None, dtype=dtype, c2=0.0, max_iter=1, tol=0)
    _, problem = crf._prepare(data, UNKNOWN, None, None, grow=True, expectations=wanted)
    return crf._objective(problem)


@pytest.mark.parametrize("per", ["token", "criterion"])
def test_value_and_gradient(per: str) -> None:
    """With "criterion" it is MALLET's: the weighted sum of KL(target, mean of the model) over the criteria."""
    f = objective(per=per)
    crf = fitted()
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.5, 2.0):
        w = scale * rng.normal(size=f.size)
        value, gradient = f.value_and_grad(w)
        assert value == pytest.approx(value_by_enumeration(crf, w, 2.0, per), rel=1e-8, abs=1e-10)
        expected = oracle.finite_difference(lambda x: f.value_and_grad(x)[0], w)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def nearest_by_enumeration(crf: CRF, w: np.ndarray, f: Any) -> float:
    """KL and penalty of the distribution over labellings that the dual variables make."""
    crf.model_ = replace(crf.model_, weights=w)
    c, table = f.criteria, f.criteria.by_label(f._dual.x)
    kl, counts, first = 0.0, np.zeros(c.groups.shape), 0
    for x in X:
        p = crf.potentials([[[word] for word in x]])[0]
        rows = [c.criterion[c.ptr[first + t] : c.ptr[first + t + 1]] for t in range(len(x))]
        paths, prior = oracle.all_paths(p), oracle.probabilities(p)
        more = [sum(table[rows[t], j].sum() for t, j in enumerate(path)) for path in paths]
        q = prior * np.exp(more)
        q /= q.sum()
        kl += float((q * np.log(q / prior)).sum())
        for path, chance in zip(paths, q, strict=True):
            for t, j in enumerate(path):
                counts[rows[t], j] += chance
        first += len(x)
    _, _, shares = c.shares(counts)
    missed = np.where(f._dual.free, c.target - shares, 0.0)
    missed = np.where(c.bound[:, None] == 0, missed, np.maximum(c.bound[:, None] * missed, 0.0))
    return kl + float((c.tokens[:, None] * missed**2).sum()) / (2 * SLACK)


def test_nearest_distribution() -> None:
    """What the dual variables make costs as much as their bound says, so nothing costs less."""
    f, crf = objective(method="posterior"), fitted()
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.5, 2.0, 5.0):
        w = scale * rng.normal(size=f.size)
        value, gradient = f.value_and_grad(w)
        assert value == pytest.approx(2.0 * nearest_by_enumeration(crf, w, f), rel=1e-6, abs=1e-10)
        assert (f._dual.x[2:4] >= 0).all()
        assert (f._dual.x[4:] <= 0).all()
        expected = oracle.finite_difference(lambda x: f.value_and_grad(x)[0], w, 1e-5)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["expectation", "posterior"])
def test_single_precision_and_threads(method: str) -> None:
    w = np.random.default_rng(2).normal(size=objective().size)
    exact = objective(method=method).value_and_grad(w)
    single = objective("float32", method=method)
    value, gradient = single.value_and_grad(w)
    assert value == pytest.approx(exact[0], rel=1e-3)
    np.testing.assert_allclose(gradient, exact[1], atol=5e-3)
    again = objective("float32", method=method)
    again.threads = 3
    np.testing.assert_array_equal(again.value_and_grad(w)[1], gradient)


def test_counts_of_many_tokens_in_single_precision() -> None:
    """Rounding errors do not grow with the number of tokens that a criterion is of."""
    wanted, data = Expectations({"a": {"A": 0.5, "B": 0.5}}), [[["a"]] * 50] * 400
    counts = []
    for dtype in ("float32", "float64"):
        _, problem = CRF(None, dtype=dtype)._prepare(data, [None] * 400, None, None, grow=True, expectations=wanted)
        f: Any = CRF(None, dtype=dtype)._objective(problem)
        w = np.zeros(f.size)
        w[0] = 9.0  # nearly certain
        f.value_and_grad(w)
        counts.append(f._counts)
    np.testing.assert_allclose(counts[0], counts[1], rtol=1e-6)


def test_posterior_fulfils_what_is_expected() -> None:
    words, _ = load_corpus("ingredients", "train")
    wanted = Expectations(
        {"lower[0]=cup": {"UNIT": 0.95}, "digits=all": {"QTY": 0.9}},
        at_least={"lower[-1]=cup": ("NAME", 0.8)},
        at_most={"*": ("NAME", 0.6)},
        method="posterior",
    )
    crf = CRF(min_freq=2, c2=0.1, max_iter=50).fit(words[:300], [None] * 300, expectations=wanted)
    p = np.concatenate(crf.predict_marginals(words[:300]))
    j = crf.classes_.tolist().index
    lower = [word.lower() for row in words[:300] for word in row]
    cup = np.array([word == "cup" for word in lower])
    assert p[cup, j("UNIT")].mean() == pytest.approx(0.95, abs=0.1)
    assert p[:, j("NAME")].mean() < 0.65


def test_lexicon() -> None:
    lexicon = {"UNIT": ["cup", "cups", "Tablespoon"], "QTY": ["1", "2", "3"], "NAME": ["salt", "unheard-of"]}
    wanted = Expectations.from_lexicon(lexicon, 0.95, weight=2)
    assert wanted.distributions["lower[0]=tablespoon"] == {"UNIT": 0.95}
    words, _ = load_corpus("ingredients", "train")
    crf = CRF(min_freq=2).fit(words[:200], [None] * 200, expectations=wanted)
    assert crf.predict([["2", "cups"]]) == [["QTY", "UNIT"]]
    wanted = Expectations.from_lexicon({"A": ["unheard-of"]})
    with pytest.raises(ValueError, match=r"no attribute 'lower\[0\]=unheard-of'"):
        CRF().fit(words[:20], [None] * 20, expectations=wanted)
    with pytest.raises(ValueError, match="must be a list"):
        Expectations.from_lexicon({"A": "cup"})


def test_hidden_states_of_expected_labels() -> None:
    data = [[[x] for x in sequence] for sequence in X]
    crf = CRF(None, c2=0.01, hidden_states=2).fit(data, UNKNOWN, expectations=WANTED)
    p = np.concatenate(crf.predict_marginals(data))
    a = np.array([word == "a" for x in X for word in x])
    assert p[a, 0].mean() == pytest.approx(0.7, abs=0.05)


def test_no_labels_at_all() -> None:
    crf = fitted(c2=0.01)
    assert crf.classes_.tolist() == ["A", "B", "C"]
    assert crf.predict([[["a"], ["b"]]]) == [["A", "B"]]
    p = np.concatenate(crf.predict_marginals([[["a"]] * 1]))
    assert p[0].argmax() == 0


def test_expectations_beside_labels() -> None:
    """Attributes counted on 30 sentences, which are then set aside, teach from unlabelled ones."""
    words, labels = load_corpus("ingredients", "train")
    test = load_corpus("ingredients", "test")
    wanted = Expectations.count(words[:30], labels[:30])
    assert len(wanted) == 30
    crf = CRF(c2=1.0, min_freq=2).fit(words[30:], [None] * (len(words) - 30), expectations=wanted)
    guess = max(np.bincount(np.unique(np.concatenate([list(r) for r in test[1]]), return_inverse=True)[1])) / sum(
        map(len, test[1])
    )
    accuracy = metrics.token_accuracy(test[1], crf.predict(test[0]))
    assert accuracy > guess + 0.15
    few = CRF().fit(words[:30], labels[:30])
    both = CRF(min_freq=2).fit(words[:200], [*labels[:30], *[None] * 170], expectations=wanted)
    assert metrics.token_accuracy(test[1], both.predict(test[0])) > (
        metrics.token_accuracy(test[1], few.predict(test[0])) - 0.03
    )


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "expectations.txt"
    path.write_text("# what is expected\n\na  A:0.7 B:0.2\tC:0.1\nb\tB:0.6\nc A,C>=0.9\n* B<=0.3\n")
    read = Expectations.read(path, weight=3)
    assert read.distributions == {"a": {"A": 0.7, "B": 0.2, "C": 0.1}, "b": {"B": 0.6}}
    assert read.at_least == {"c": (frozenset("AC"), 0.9)}
    assert read.at_most == {"*": (frozenset("B"), 0.3)}
    assert read.weight == 3
    for text, message in (
        ("a A:0.7 B:0.9\n", "sum to at most 1"),
        ("a A\n", "expected LABEL:FRACTION"),
        ("a\n", "'a' has no expected labels"),
        ("a A:x\n", "a fraction must be a number, got 'x'"),
        ("a A>=2\n", "bound"),
        ("b A:0.5\n", "'b' occurs already in line 1"),
        ("* ,>=0.5\n", "an empty label in ','"),
        ("* C,,A>=0.5\n", "an empty label in 'C,,A'"),
    ):
        path.write_text("b B:1\n" + text)
        with pytest.raises(DataError, match=f"expectations.txt:2: .*{message}"):
            Expectations.read(path)


@pytest.mark.parametrize(
    ("y", "wanted", "how", "message"),
    [
        (UNKNOWN, Expectations({"z": {"A": 1.0}}), {}, "no attribute 'z'"),
        ([["A"] * len(x) for x in X], WANTED, {}, "need unlabelled sequences"),
        (UNKNOWN, WANTED, {"hash_bits": 8}, "'hash_bits' must be None where something is expected of attributes: 'a'"),
        (UNKNOWN, WANTED, {"beam": "fixed:2"}, "'beam' of CRF must be None where there are expectations"),
        (UNKNOWN, WANTED, {"gradient": "backward"}, "'gradient' of CRF must be 'forward-backward' where"),
        (UNKNOWN, WANTED, {"algorithm": "sgd"}, "'expectations' of CRF must be None for the algorithm 'sgd'"),
    ],
)
def test_what_cannot_be(y: Any, wanted: Expectations, how: dict[str, Any], message: str) -> None:
    data = [[[x] for x in sequence] for sequence in X]
    with pytest.raises(ValueError, match=message):
        CRF(None, **how).fit(data, y, expectations=wanted)


@pytest.mark.parametrize(
    ("y", "named", "text"),
    [
        (["A", "B", "C"], {"TYPO": 0.9, "A": 0.1}, "1 label that no sequence has: 'TYPO'"),
        ([1, 2, {1: 0.5, 3: 0.5}], {"1": 0.9, 3: 0.05}, "1 label that no sequence has: '1'"),
        ([None, None, "A"], {"x": 0.1, "y": 0.1}, "2 labels that no sequence has: 'x', 'y'"),
    ],
)
def test_labels_that_only_expectations_name(y: list[Any], named: dict[Any, float], text: str) -> None:
    data = [[[x] for x in sequence] for sequence in X]
    with pytest.warns(UserWarning, match=text) as caught:
        CRF(None).fit(data, [y, None, None, None], expectations=Expectations({"a": named}))
    assert caught[0].filename == __file__
    labels = {label for one in y if one is not None for label in (one if isinstance(one, dict) else [one])}
    CRF(None).fit(data, [y, None, None, None], expectations=Expectations({"a": dict.fromkeys(labels, 0.2)}))


def test_files_with_a_mark_or_compressed(tmp_path: Path) -> None:
    text = b"a A:0.7\r\n* B<=0.3"
    for name, data in (
        ("bom.txt", b"\xef\xbb\xbf" + text),
        ("a.gz", gzip.compress(text)),
        ("a.xz", lzma.compress(text)),
    ):
        (tmp_path / name).write_bytes(data)
        read = Expectations.read(tmp_path / name)
        assert read.distributions == {"a": {"A": 0.7}}
        assert read.at_most == {"*": (frozenset("B"), 0.3)}
    (tmp_path / "latin.txt").write_bytes(b"a A:0.5\nb \xe9:0.5\n")
    with pytest.raises(DataError, match=r"latin.txt:2: not valid UTF-8"):
        Expectations.read(tmp_path / "latin.txt")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"distributions": {"word=a": 0.9}}, "word=a: a dict of labels and probabilities is needed, got 0.9"),
        ({"distributions": {"word=a": {"A": "x"}}}, "word=a: a dict of labels and probabilities is needed, got"),
        ({"distributions": {"word=a": {("A",): 0.5}}}, "word=a: a dict of labels and probabilities is needed, got"),
        ({"distributions": [("word=a", {"A": 0.5})]}, "'distributions' of Expectations must be a dict of attributes"),
        ({"distributions": {"*": {"A": 0.5}}, "weight": np.inf}, "'weight' of Expectations must be finite, got inf"),
        ({"at_least": {"*": 0.5}}, r"\*: a bound needs labels and a fraction .*, got 0.5"),
        ({"at_least": {"*": ("A", 0.5, 1)}}, r"\*: a bound needs labels and a fraction .*, got \('A', 0.5, 1\)"),
        ({"at_most": {"*": ("A", "x")}}, r"\*: a bound needs labels and a fraction .*, got \('A', 'x'\)"),
        ({"at_most": {"*": ([["A"]], 0.5)}}, r"\*: a bound needs labels and a fraction .*, got"),
        ({"at_most": {"*": (None, 0.5)}}, r"\*: a bound needs labels and a fraction .*, got"),
    ],
)
def test_what_expectations_cannot_be(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expectations(**how)


@pytest.mark.parametrize(
    ("lexicon", "message"),
    [
        (["a"], r"'lexicon' of from_lexicon must be a dict of labels and lists of words, got \['a'\]"),
        ({"P": "a"}, "the words of label 'P' must be a list of strings, got 'a'"),
        ({"P": [1]}, r"the words of label 'P' must be a list of strings, got \[1\]"),
        ({"P": 1}, "the words of label 'P' must be a list of strings, got 1"),
    ],
)
def test_lexicons_hold_words(lexicon: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expectations.from_lexicon(lexicon, 0.9)


def test_every_token_needs_no_name() -> None:
    X, y = [["a", "b"], ["c", "d"]], [["A", "B"], None]
    wanted = Expectations({"*": {"A": 0.5, "B": 0.5}})
    hashed = CRF(hash_bits=20).fit(X, y, expectations=wanted)
    named = CRF().fit(X, y, expectations=wanted)
    np.testing.assert_allclose(hashed.predict_marginals(X)[1], named.predict_marginals(X)[1], atol=1e-3)


def test_what_fit_and_count_refuse() -> None:
    wrong: Any = {"a": {"A": 0.5}}
    with pytest.raises(TypeError, match="'expectations' of fit must be Expectations or None, got "):
        CRF(None).fit([[["a"]]], [None], expectations=wrong)
    words, labels = [["two", "cups"]], [["QTY", "UNIT"]]
    with pytest.raises(ValueError, match="'attributes' of count must be a list, got 'word=two'"):
        Expectations.count(words, labels, attributes="word=two")
    with pytest.raises(ValueError, match="'top' of count must be an int >= 1, got -1"):
        Expectations.count(words, labels, top=-1)


@pytest.mark.parametrize("method", ["expectation", "posterior"])
def test_attributes_that_no_unlabelled_token_has(method: str) -> None:
    data, y = [[["a"], ["b"]], [["b"], ["b"]]], [["A", "B"], None]
    wanted = Expectations({"a": {"A": 0.9}, "b": {"B": 0.8}}, at_most={"a": ("B", 0.5)}, method=method)
    with pytest.warns(UserWarning, match="no effect for 1 attribute that no unlabelled token has: 'a'") as caught:
        CRF(None).fit(data, y, expectations=wanted)
    assert caught[0].filename == __file__
    CRF(None).fit(data, y, expectations=Expectations({"b": {"B": 0.8}}, method=method))
    CRF(None).fit(data, y, expectations=Expectations.from_lexicon({"A": ["a"], "B": ["b"]}, attribute=""))


@pytest.mark.parametrize("method", ["expectation", "posterior"])
@pytest.mark.parametrize("never", [{"at_most": {"word=b": ("B", 0.0)}}, {"at_least": {"word=b": ("A", 1.0)}}])
def test_bounds_may_say_never_and_always(method: str, never: dict[str, Any]) -> None:
    X, y = [["a", "b"], *[["b", "a"]] * 20], [["A", "B"], *[None] * 20]
    crf = CRF(c2=0.01).fit(X, y, expectations=Expectations(method=method, weight=10.0, **never))
    assert crf.predict_marginals(X[1:2])[0][0, list(crf.classes_).index("B")] < 0.01
    other = {"at_most": {"word=b": ("B", 1.0)}, "at_least": {"word=b": ("A", 0.0)}}
    name = next(iter(never))
    with pytest.raises(ValueError, match=f"a bound needs labels and a fraction .* for '{name}'"):
        Expectations(**{name: other[name]})  # type: ignore[arg-type]


def test_expectations_that_cannot_hold_are_refused() -> None:
    X: list[Any] = [["a", "b"], ["b"]]
    for name in ("at_most", "at_least"):
        every: Any = {name: {"*": ({"A", "B"}, 0.5)}}
        with pytest.raises(ValueError, match=f"'{name}' of '\\*' names all labels"):
            CRF().fit(X, [["A", "B"], None], expectations=Expectations(**every))
