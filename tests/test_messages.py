"""What training says: warnings that it has not converged, lines of progress, the log."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from crfkit import CRF, HMM, MEMM, NeuralCRF
from crfkit.compat import sklearn_crfsuite
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF

pytestmark = pytest.mark.filterwarnings("error:training stopped after")
X = [["two", "red", "cups"], ["one", "cup"], ["red", "wine"]] * 3
Y = [["Q", "A", "N"], ["Q", "N"], ["A", "N"]] * 3
GRAPHS = [(np.eye(2), np.array([[0, 1]])), (np.eye(2)[::-1].copy(), np.array([[0, 1]]))]


@pytest.mark.parametrize(
    "fit",
    [
        lambda: CRF(max_iter=2).fit(X, Y),
        lambda: CRF(max_iter=1, algorithm="newton-cg").fit(X, Y),
        lambda: CRF(max_iter=2, algorithm="sgd").fit(X, Y),
        lambda: CRF(max_iter=2, algorithm="ap").fit(X, Y),
        lambda: MEMM(max_iter=2).fit(X, Y),
        lambda: HMM(n_states=2, max_iter=2, random_state=0).fit(X),
        lambda: GraphCRF(max_iter=1, inference="exact").fit(GRAPHS, [["A", "B"], ["B", "A"]]),
        lambda: SkipChainCRF(max_iter=1).fit(X, Y),
        lambda: FactorialCRF(max_iter=1).fit(X, [[(a, a) for a in y] for y in Y]),
    ],
)
def test_the_end_at_max_iter_is_a_warning(fit: Any) -> None:
    with pytest.warns(
        ConvergenceWarning, match="training stopped after . (iteration|pass)(e?s)?.*raise 'max_iter'"
    ) as all:
        fit()
    assert len(all) == 1
    assert all[0].filename == __file__  # where the caller called fit


def test_ends_that_are_no_failure() -> None:
    CRF().fit(X, Y)
    CRF(max_iter=0).fit(X, Y)
    HMM().fit(X, Y)
    for name in (
        "lbfgs",
        "sgd",
        "adagrad",
        "sag",
        "ap",
        "pa",
        "arow",
    ):  # the default number of passes, and those of a caller who wants no other end
        CRF(algorithm=name).fit(X, Y)
    CRF(algorithm="pa", max_iter=3, tol=0).fit(X, Y)
    CRF(algorithm="pa", max_iter=1).partial_fit(X, Y)
    CRF(max_iter=50, callback=lambda progress, w: True).fit(X, Y)


def test_look_alikes_are_as_silent_as_what_they_look_like() -> None:
    items = [[{"w": token} for token in x] for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sklearn_crfsuite.CRF(max_iterations=2).fit(items, Y)


def test_the_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "crfkit"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in (CRF(max_iter=2), SkipChainCRF(max_iter=2)):
            caplog.clear()
            estimator.fit(X, Y)
            assert [r.levelname for r in caplog.records] == ["INFO", "INFO", "WARNING"]
            assert caplog.records[0].name == "crfkit"
            assert "objective" in caplog.records[0].getMessage()
        caplog.clear()
        HMM(n_states=2, max_iter=2, random_state=0).fit(X)
        assert [r.levelname for r in caplog.records] == ["INFO", "INFO", "WARNING"]
    assert capsys.readouterr() == ("", "")


def test_nothing_is_printed_without_a_handler() -> None:
    program = "from crfkit.base.messages import log; log.warning('seen')"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stderr == out.stdout == ""


def test_a_neural_crf_shows_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    NeuralCRF(hidden=(4,), max_iter=2, verbose=True, random_state=0).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("objective" in line and "|g|" in line for line in lines)
