"""Calibration curves, temperatures and prediction sets."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from sklearn.exceptions import NotFittedError

import crfkit
from crfkit import CRF, HMM, MEMM, chain
from crfkit.calibration import PredictionSets, calibration_curve, conformal_threshold, fit_temperature
from crfkit.data import load_corpus
from crfkit.graph import SkipChainCRF
from crfkit.metrics import spans


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = load_corpus("ingredients")
    return X[:200], y[:200], X[200:], y[200:]


@pytest.fixture(scope="module")
def sharp(data: Any) -> CRF:
    """A model that is too sure."""
    return CRF(c2=0.003, max_iter=60).fit(*data[:2])


def tempered(crf: Any, temperature: float) -> Any:
    out = pickle.loads(pickle.dumps(crf))
    out.model_ = replace(out.model_, temperature=temperature)
    return out


def held_out_loss(crf: Any, X: Any, y: Any) -> float:
    p = crf.potentials(X)
    number = {label: k for k, label in enumerate(crf.model_.labels)}
    return -float(chain.log_probability(p, [[number[x] for x in row] for row in y]).sum())


@pytest.mark.parametrize("make", [lambda: CRF(max_iter=20), lambda: MEMM(max_iter=20), HMM], ids=["crf", "memm", "hmm"])
def test_temperature_is_a_power_of_probabilities(make: Any, data: Any, tmp_path: Path) -> None:
    crf = make().fit(*data[:2])
    x = [["2", "cups"]]
    plain = oracle.probabilities(crf.potentials(x)[0])
    hot = tempered(crf, 2.0)
    expected = np.sqrt(plain) / np.sqrt(plain).sum()
    np.testing.assert_allclose(oracle.probabilities(hot.potentials(x)[0]), expected, rtol=1e-9)
    assert hot.predict(data[2]) == crf.predict(data[2])
    hot.save(tmp_path / "model")
    again: Any = crfkit.load(tmp_path / "model")
    assert again.model_.temperature == 2.0
    assert again.model_.card()["temperature"] == 2.0
    for a, b in zip(again.predict_marginals(data[2]), hot.predict_marginals(data[2]), strict=True):
        np.testing.assert_array_equal(a, b)
    if isinstance(crf, HMM):  # what an HMM says about the tokens is not touched
        np.testing.assert_allclose(hot.log_likelihood(x), crf.log_likelihood(x))
        assert hot.decode(x) == crf.decode(x)
        assert hot.score_samples(x)[0] == pytest.approx(crf.score_samples(x)[0])
        np.testing.assert_allclose(hot.log_joint(x, [["B-QTY", "B-UNIT"]]), crf.log_joint(x, [["B-QTY", "B-UNIT"]]))
    assert make().fit(*data[:2]).model_.temperature == 1.0


def test_a_bad_temperature_in_a_file_is_refused(sharp: CRF, tmp_path: Path) -> None:
    tempered(sharp, float("nan")).save(tmp_path / "model")
    with pytest.raises(crfkit.ModelError, match="temperature"):
        crfkit.load(tmp_path / "model")


def test_explanations_add_up_at_any_temperature(sharp: CRF) -> None:
    hot = tempered(sharp, 3.0)
    a, b = sharp.explain(["2", "cups"])[0], hot.explain(["2", "cups"])[0]
    totals = [sum(c.amount for c in x.contributions) for x in (a, b)]
    assert totals[0] == pytest.approx(3 * totals[1])


@pytest.mark.parametrize("kind", [CRF, MEMM])
def test_the_temperature_minimises_the_held_out_loss(kind: Any, data: Any) -> None:
    crf = kind(c2=0.003, max_iter=60).fit(*data[:2])
    X, y = data[2:]
    keep = [i for i, row in enumerate(y) if set(row) <= set(crf.classes_.tolist())]
    before = calibration_curve(crf, X, y).ece
    found = fit_temperature(crf, X, y)
    assert found == crf.model_.temperature > 1
    assert fit_temperature(crf, X, y) == pytest.approx(found, rel=1e-4)  # whatever it was before
    held = [X[i] for i in keep], [y[i] for i in keep]
    best = held_out_loss(crf, *held)
    for other in (0.99, 1.01):
        assert held_out_loss(tempered(crf, found * other), *held) > best
    assert calibration_curve(crf, X, y).ece < before


def test_temperature_at_its_bounds_and_of_unknown_labels() -> None:
    X, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    crf = CRF().fit(X, y)
    with pytest.warns(UserWarning, match=r"at its bound, 0\.02: .* that the model is sure of"):
        assert fit_temperature(crf, X, y) == pytest.approx(0.02)
    with pytest.warns(UserWarning, match="at its bound, 50: .* worse than chance: check 'y'"):
        assert fit_temperature(crf, X, [["B", "A"], ["A"]]) == pytest.approx(50)
    X_held, y_held = [["a", "b"], ["b", "b"]], [["A", "B"], ["B", "A"]]
    one = fit_temperature(crf, X_held, y_held)
    assert 0.02 < one < 50
    assert fit_temperature(crf, [["a"], *X_held], [["new"], *y_held]) == pytest.approx(one)
    with pytest.raises(ValueError, match="no sequence that is possible under the model"):
        fit_temperature(crf, [["a"]], [["new"]])
    with pytest.raises(ValueError, match="sequence 1 has 1 token, but 2 labels"):
        fit_temperature(crf, X, [["A", "B"], ["B", "B"]])
    with pytest.raises(TypeError, match="takes a CRF, HMM or MEMM, got int"):
        fit_temperature(3, X, y)  # type: ignore[arg-type]


def test_curves_count_what_is_right(sharp: CRF, data: Any) -> None:
    X, y = data[2:]
    curve = calibration_curve(sharp, X, y, bins=5)
    found = [(e, e[:3] in set(spans(row))) for es, row in zip(sharp.predict_entities(X), y, strict=True) for e in es]
    assert curve.counts.sum() == len(found)
    top = [(e.probability, right) for e, right in found if e.probability >= 0.8]
    assert curve.counts[-1] == len(top)
    assert curve.confidence[-1] == pytest.approx(np.mean([p for p, _ in top]))
    assert curve.accuracy[-1] == pytest.approx(np.mean([r for _, r in top]))
    filled = curve.counts > 0
    gaps = np.abs(curve.accuracy - curve.confidence)[filled]
    assert curve.ece == pytest.approx(curve.counts[filled] @ gaps / curve.counts.sum())
    assert "expected calibration error" in str(curve)
    tokens = calibration_curve(sharp, X, y, unit="tokens")
    assert tokens.counts.sum() == sum(len(row) for row in y)
    assert tokens.accuracy[tokens.counts > 0] @ tokens.counts[tokens.counts > 0] == pytest.approx(
        sharp.score(X, y) * tokens.counts.sum()
    )
    with pytest.raises(ValueError, match="'unit' must be one of"):
        calibration_curve(sharp, X, y, unit="words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'bins' of calibration_curve"):
        calibration_curve(sharp, X, y, bins=0)


@pytest.mark.parametrize("unit", ["spans", "tokens"])
def test_curves_refuse_what_does_not_fit(unit: Any, sharp: CRF, data: Any) -> None:
    X, y = data[2:]
    with pytest.raises(ValueError, match=f"'X' holds {len(X)} sequences, but 'y' holds labels for {len(y) - 1}"):
        calibration_curve(sharp, X, y[:-1], unit)
    with pytest.raises(ValueError, match="sequence 1 has 1 token, but 2 labels"):
        calibration_curve(sharp, [["2"], ["2"]], [["B-QTY"], ["B-QTY", "O"]], unit)
    empty: list[list[Any]] = [[], [[]]]
    for nothing in empty:
        with pytest.raises(ValueError, match="'X' and 'y' of calibration_curve contain no tokens"):
            calibration_curve(sharp, nothing, nothing, unit)
    with pytest.raises(NotFittedError):
        calibration_curve(CRF(), X, y, unit)
    for wrong in (3, CRF):
        with pytest.raises(TypeError, match=f"calibration_curve of {unit} takes a CRF, HMM, MEMM or NeuralCRF, got"):
            calibration_curve(wrong, X, y, unit)
    assert calibration_curve(sharp, iter(X), y, unit).counts.sum() > 0


def test_curves_of_spans_need_entities() -> None:
    skip = SkipChainCRF(max_iter=2).fit([["a", "b"]], [["A", "B"]])
    with pytest.raises(TypeError, match="of spans takes a CRF, HMM, MEMM or NeuralCRF, got SkipChainCRF"):
        calibration_curve(skip, [["a", "b"]], [["A", "B"]])


def test_sets_need_a_threshold(sharp: CRF, data: Any) -> None:
    for unit in ("spans", "labellings"):
        sets = PredictionSets(sharp, unit)
        for use in (sets.predict, sets.probabilities, lambda X, sets=sets: sets.measure(X, data[3])):
            with pytest.raises(NotFittedError, match="This PredictionSets instance is not fitted yet"):
                use(data[2])
    with pytest.raises(ValueError, match="of measure contain nothing"):
        sets.fit(*data[2:]).measure([], [])


@pytest.mark.parametrize("unit", ["spans", "labellings"])
def test_sets_hold_what_is_promised(unit: Any, sharp: CRF) -> None:
    """Truths are drawn from the model itself, so that there are many: the coverage is then that of the formula."""
    X = [list(x) for x in load_corpus("ingredients")[0][:60]] * 15
    y = [rows[0] for rows in sharp.sample(X, random_state=0)]
    half = len(X) // 2
    sets = PredictionSets(sharp, unit, coverage=0.8).fit(X[:half], y[:half])
    found = sets.measure(X[half:], y[half:])
    assert found.coverage == pytest.approx(0.8, abs=0.04)
    for one, truth, chances in zip(
        sets.predict(X[half:]), y[half:], sets.true_probabilities(X[half:], y[half:]), strict=True
    ):
        assert all(c.probability >= sets.threshold_ for c in one)
        if unit == "labellings":
            assert (truth in [c[0] for c in one]) == (chances[0] >= sets.threshold_)
        else:
            inside = {c[:3] for c in one}
            assert [tuple(s) in inside for s in spans(truth)] == (chances >= sets.threshold_).tolist()


def test_large_sets_are_whole(sharp: CRF) -> None:
    sets = PredictionSets(tempered(sharp, 20.0), "labellings", max_size=None)
    sets.threshold_ = 1e-4
    x = ["2", "cups", "flour"]
    [found] = sets.predict([x])
    chances = oracle.probabilities(sets.crf.potentials([x])[0])
    assert len(found) == (chances >= 1e-4).sum() > 128


@pytest.mark.parametrize("cap", [1, 3, 20])
def test_sets_of_limited_size_hold_what_is_promised(cap: int, sharp: CRF) -> None:
    crf = tempered(sharp, 3.0)
    X = [list(x) for x in load_corpus("ingredients")[0][:60]] * 20
    y = [rows[0] for rows in crf.sample(X, random_state=0)]
    with pytest.raises(ValueError, match=f"no sets of at most {cap} labelling.* of 600 true ones; ask for a") as e:
        PredictionSets(crf, "labellings", 0.98, cap).fit(X[:600], y[:600])
    most = float(str(e.value).split("at most ")[2].split(",")[0])
    sets = PredictionSets(crf, "labellings", most, cap).fit(X[:600], y[:600])  # what the error names is possible
    found = sets.measure(X[600:], y[600:])
    assert found.coverage == pytest.approx(most, abs=0.06)
    given = sets.predict(X[600:])
    assert max(map(len, given)) == cap
    held = [truth in [c.labels for c in one] for one, truth in zip(given, y[600:], strict=True)]
    assert found.coverage == np.mean(held)
    assert found.size == np.mean([len(one) for one in given])
    with pytest.raises(ValueError, match="'max_size' of PredictionSets must be an int >= 1 or None, got 0"):
        PredictionSets(crf, "labellings", max_size=0)


def test_thresholds() -> None:
    chances = [np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6, 0.7, 0.8, 0.9])]
    assert conformal_threshold(chances, 0.9) == 0.1
    assert conformal_threshold(chances, 0.5) == 0.5
    with pytest.raises(ValueError, match=r"coverage 0\.95 needs at least 19 true examples, got 9"):
        conformal_threshold(chances, 0.95)
    with pytest.raises(ValueError, match=r"no set covers 0\.5"):
        conformal_threshold([np.zeros(3)], 0.5)
    with pytest.raises(ValueError, match="'coverage' of PredictionSets"):
        PredictionSets(CRF().fit([["a"]], [["A"]]), coverage=90)
