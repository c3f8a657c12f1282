"""Pictures show what they are given, and say what they cannot draw."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crfkit import CRF, HMM, active, calibration, plotting
from crfkit.data import load_corpus

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

CURVE = active.LearningCurve(np.array([1, 2]), np.array([5, 11]), np.array([0.5, 0.75]), [])


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def crf() -> CRF:
    X, y = load_corpus("ingredients", "train")
    return CRF(c2=0.1, max_iter=30, constraints="bio").fit(X, y)


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_transitions_are_the_weights(crf: CRF) -> None:
    labels = ["B-NAME", "I-NAME", "O"]
    ax = plotting.transitions(crf, labels=labels)
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == labels
    number = {label: k for k, label in enumerate(crf.model_.labels)}
    table = crf.model_.transition_table()
    wanted = [[table[number[a], number[b]] for b in labels] for a in labels]
    flat = [w for row in wanted for w in row]
    assert texts(ax) == ["x" if np.isinf(w) else f"{w:+.1f}" if abs(w) >= 0.05 else "" for w in flat]
    assert "x" in texts(ax)  # O to I-NAME
    assert ticks(plotting.transitions(crf.model_).xaxis) == list(map(str, crf.model_.labels))
    plotting.transitions(HMM().fit([["a", "b"]], [["A", "B"]]))
    with pytest.raises(ValueError, match="there is no label 'B-WINE'"):
        plotting.transitions(crf, labels=["B-WINE"])
    with pytest.raises(TypeError, match=r"plotting.transitions takes a fitted CRF, HMM or MEMM, .* got CRF"):
        plotting.transitions(CRF())


def test_transitions_name_hidden_states() -> None:
    crf = CRF(hidden_states=2, random_state=0).fit([["a", "b"], ["b"]], [["P", "Q"], ["Q"]])
    assert ticks(plotting.transitions(crf).xaxis) == ["P#1", "P#2", "Q#1", "Q#2"]
    assert ticks(plotting.transitions(crf, labels=["Q#2", "P#1"]).yaxis) == ["Q#2", "P#1"]


def test_confusion_counts_tokens() -> None:
    ax = plotting.confusion([["A", "B", "B", "C"]], [["A", "A", "B", "C"]])
    assert texts(ax) == ["1", "", "", "1", "1", "", "", "", "1"]
    assert np.allclose(ax.images[0].get_array(), plotting._colours(np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])))
    some = plotting.confusion([["A", "B", "B", "C"]], [["A", "A", "B", "C"]], labels=["B", "A"])
    assert texts(some) == ["1", "1", "", "1"]
    with pytest.raises(ValueError, match=r"'labels' of plotting.confusion must name at least one label"):
        plotting.confusion([["A"]], [["A"]], labels=[])
    with pytest.raises(ValueError, match=r"'y_true' of plotting.confusion has no labels"):
        plotting.confusion([], [])


def test_explanation_adds_up(crf: CRF) -> None:
    decision = crf.explain(["2", "cups", "sugar"])[1]
    ax = plotting.explanation(decision, top=4)
    widths = [bar.get_width() for bar in ax.patches]
    assert len(widths) == 5
    assert sum(widths) == pytest.approx(decision.log_odds)
    assert ticks(ax.yaxis)[-1].endswith(" more")
    assert ax.get_title(loc="left").startswith("cups is B-UNIT (0.9")
    with pytest.raises(TypeError, match=r"must be that of one token, crf.explain\(x\)\[t\], got Explanation"):
        plotting.explanation(crf.explain(["2"]))  # type: ignore[arg-type]


def test_marginals_frame_the_best_labels(crf: CRF) -> None:
    x = ["2", "cups", "brown", "sugar"]
    ax = plotting.marginals(crf, x)
    assert ticks(ax.xaxis) == x
    names = ticks(ax.yaxis)
    assert [names[round(p.get_y() + 0.5)] for p in ax.patches] == crf.predict([x])[0]
    chosen = [crf.classes_.tolist().index(name) for name in names]
    p = crf.predict_marginals([x])[0][:, chosen].T
    assert np.allclose(ax.images[0].get_array(), plotting._colours(np.where(p >= 0.005, p, 0)))
    assert ticks(plotting.marginals(crf, x, labels=["O", "B-QTY"]).yaxis) == ["O", "B-QTY"]
    with pytest.raises(TypeError, match=r"takes a fitted CRF"):
        plotting.marginals(crf.model_, x)
    with pytest.raises(ValueError, match=r"must be a list of tokens, got str 'two cups': split text into tokens"):
        plotting.marginals(crf, "two cups")


def test_marginals_of_some_tokens(crf: CRF) -> None:
    x = ["2", "cups", "brown", "sugar"] * 50
    with pytest.raises(ValueError, match="room for 100 tokens, got 200: choose some"):
        plotting.marginals(crf, x)
    part = plotting.marginals(crf, x, tokens=range(101, 104), labels=["B-UNIT"])
    assert ticks(part.xaxis) == x[1:4]
    p = crf.predict_marginals([x])[0][101:104, crf.classes_.tolist().index("B-UNIT")]
    assert np.allclose(part.images[0].get_array()[0], plotting._colours(np.where(p >= 0.005, p, 0)))
    assert len(part.patches) == sum(label == "B-UNIT" for label in crf.predict([x])[0][101:104])
    assert plotting.marginals(crf, x, tokens=range(100)).figure.get_figwidth() < 27
    for wrong in ([], [200], [-1]):
        with pytest.raises(ValueError, match=r"'tokens' of plotting.marginals must be positions from 0 to 199, got"):
            plotting.marginals(crf, x, tokens=wrong)


def test_dollars_are_drawn_as_they_are() -> None:
    X = [["$5_$", "a$b$c"], ["a$b$c", "$5_$"]]
    y = [["PRP$", "$_$"], ["$_$", "PRP$"]]
    crf = CRF().fit(X, y)
    curve = calibration.calibration_curve(crf, X, y, unit="tokens")
    drawn = [
        plotting.transitions(crf),
        plotting.confusion(y, y),
        plotting.explanation(crf.explain(X[0])[0]),
        plotting.marginals(crf, X[0]),
        plotting.calibration_curve({"$_$": curve}),
        plotting.learning_curve({"$_$": [CURVE]}, target=0.5),
    ]
    for ax in drawn:
        ax.figure.canvas.draw()
        for text in ax.figure.findobj(mpl.text.Text):
            assert "$" not in text.get_text() or not text.get_parse_math()


def test_calibration_curves(crf: CRF) -> None:
    X, y = load_corpus("ingredients", "test")
    curve = calibration.calibration_curve(crf, X, y, bins=4)
    ax = plotting.calibration_curve({"before": curve, "after": curve})
    diagonal, *lines = ax.get_lines()
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    used = curve.counts > 0
    assert lines[0].get_ydata().tolist() == curve.accuracy[used].tolist()
    assert [line.get_label() for line in lines] == [f"{name}: ECE {curve.ece:.3f}" for name in ("before", "after")]
    assert ax.get_xlim() == (0, 1)
    with pytest.raises(TypeError, match="'x' is a int"):
        plotting.calibration_curve({"x": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="at least one curve"):
        plotting.calibration_curve({})
    with pytest.raises(TypeError, match="must be a CalibrationCurve, or map names to them, got list"):
        plotting.calibration_curve([1, 2])  # type: ignore[arg-type]


def test_names_of_lines_that_end_early_cross_no_line() -> None:
    _, ax = plt.subplots()
    for k, n in enumerate((20, 12, 8)):
        ax.plot(range(n), [(5 - k) * t for t in range(n)], label=f"line {k}")
    ax.axhline(33, label="_")
    plotting.name_lines(ax)
    boxes = [text.get_window_extent() for text in ax.texts]
    drawn = [line.get_path().transformed(line.get_transform()) for line in ax.get_lines()]
    for a, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[a + 1 :])
        assert not any(path.intersects_bbox(box, filled=False) for path in drawn)


def test_learning_curves_are_named_at_their_ends() -> None:
    better = active.LearningCurve(CURVE.sequences, CURVE.tokens, CURVE.f1 + 0.001, [])
    curves = {"random": [CURVE, better], "entropy": [better], "other": [CURVE]}
    ax = plotting.learning_curve(curves, by="sequences", target=0.7, highlight=["random", "entropy"])
    assert ax.get_xlabel() == "labelled sequences"
    assert set(texts(ax)) == {"70", "random", "entropy"}
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text() != "70"]
    assert not boxes[0].overlaps(boxes[1])
    assert ax.get_xlim()[0] == 0


@pytest.mark.parametrize(
    ("curves", "more", "fault"),
    [
        ({"a": CURVE}, {}, "'a' is a single curve, put it in a list"),
        ([CURVE], {}, "must map names to lists of LearningCurve, such as .*, got a list"),
        ({"a": [0.5]}, {}, "'a' holds a float"),
        ({"a": []}, {}, "'a' has no curves"),
        ({}, {}, "got an empty mapping"),
        ({"a": [CURVE]}, {"target": 80}, "'target' of plotting.learning_curve must be a fraction from 0 to 1, got 80"),
        ({"a": [CURVE]}, {"by": "hours"}, "must be 'tokens' or 'sequences', got 'hours'"),
        ({"a": [CURVE]}, {"highlight": ["b"]}, "must hold names of 'curves', got 'b'"),
    ],
)
def test_learning_curves_need_lists_of_curves(curves: Any, more: Any, fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=fault):
        plotting.learning_curve(curves, **more)


@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd"])
def test_beams_over_iterations(algorithm: str) -> None:
    X, y = load_corpus("ingredients", "train")
    history: list[Any] = []
    how: dict[str, Any] = {"algorithm": algorithm, "max_iter": 12, "random_state": 0}
    CRF(beam="fixed:3", callback=lambda p, w: history.append(p), **how).fit(X, y)
    assert history[-1].beams.largest < 15
    ax = plotting.beams(history)
    largest, average = ax.get_lines()
    assert list(largest.get_ydata()) == [p.beams.largest for p in history]
    assert list(average.get_ydata()) == [p.beams.average for p in history]
    assert set(texts(ax)) == {"average", "largest"}
    plain: list[Any] = []
    CRF(callback=lambda p, w: plain.append(p), **how).fit(X[:20], y[:20])
    assert plain[0].beams is None
    for wrong in (plain, []):
        with pytest.raises(ValueError, match="must come from training with a beam"):
            plotting.beams(wrong)
    with pytest.raises(TypeError, match="must hold what callback was given, got dict"):
        plotting.beams([{"a": 1}])  # type: ignore[list-item]


def test_axes_can_be_given(crf: CRF) -> None:
    figure, axes = plt.subplots(1, 2)
    assert plotting.transitions(crf, ax=axes[0]) is axes[0]
    assert plotting.marginals(crf, ["salt"], ax=axes[1]) is axes[1]
    assert figure.get_facecolor() == (1, 1, 1, 1)  # as it was
    assert plotting.transitions(crf).figure.get_facecolor()[3] == 0


def test_contrast_is_that_of_luminance() -> None:
    assert plotting.contrast("white", "#000") == pytest.approx(21)
    assert plotting.contrast("#777", (1, 1, 1)) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("colour", [plotting.INK, *plotting.COLOURS])
def test_colours_show_on_light_and_dark_pages(colour: str) -> None:
    for page in ("#ffffff", "#14181e", "#0d1117"):
        assert plotting.contrast(colour, page) >= 3


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_numbers_show_in_every_cell(sign: float) -> None:
    strength = np.linspace(0, 1, 101)[None]
    cells = plotting._colours(strength, np.full(strength.shape, sign))
    assert np.all(np.diff(cells[0, 2:].sum(axis=-1)) < 0)  # the stronger, the darker
    for cell in cells[0]:
        text = plotting._text_on(cell, plotting.INK)
        if cell[3] == 0:
            assert text == plotting.INK
            continue
        assert plotting.contrast(text, cell[:3]) >= 4.5


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = """if True:
        import sys
        sys.modules["matplotlib"] = None
        import crfkit
        try:
            crfkit.plotting.confusion([["A"]], [["A"]])
        except ImportError as error:
            print(error)
    """
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out == "crfkit.plotting needs matplotlib: pip install 'crfkit[plot]'\n"


def test_nothing_to_draw() -> None:
    crf = CRF().fit([["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]])
    with pytest.raises(ValueError, match="'x' of plotting"):
        plotting.marginals(crf, [])
    ticks = plotting.marginals(crf, iter(["a", "b"])).get_xticklabels()
    assert [x.get_text() for x in ticks] == ["a", "b"]
