"""A search that encodes once and warm-starts finds what a search finds that does neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest

import crfkit
from crfkit import CRF, tune
from crfkit.data import load_corpus
from crfkit.estimators.tuning import Setting


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    X, y = load_corpus("ingredients")
    return X[:90], y[:90]


def test_scores_are_those_of_trainings_from_scratch(data: tuple[Any, Any]) -> None:
    X, y = data
    crf = CRF(n_jobs=2, tol=1e-8, dtype="float64", min_freq=2)
    seen: list[int] = []
    found = tune(crf, X, y, c1=[0, 0.1], c2=[0.1, 1], folds=3, callback=lambda trial, done, total: seen.append(done))
    assert seen == list(range(1, 13))
    assert found.settings == [(0, 1), (0, 0.1), (0.1, 1), (0.1, 0.1)]
    order = np.random.default_rng(0).permutation(len(X))
    held = np.sort(order[1::3])
    rest = np.setdiff1d(order, held)
    gold = [list(y[int(i)]) for i in held]
    for k, (c1, c2) in enumerate(found.settings):
        one = CRF(n_jobs=1, tol=1e-8, dtype="float64", min_freq=2, c1=c1, c2=c2)
        one.fit(X[rest], y[rest])
        right = crfkit.metrics.evaluate(gold, one.predict(X[held])).summary()["f1"]
        assert found.scores[k, 1] == pytest.approx(right, abs=0.01)
    assert found.best_score == found.mean.max()
    assert found.crf is not None
    assert (found.crf.c1, found.crf.c2) == found.best
    assert found.crf.predict(X[:3]) == CRF(
        n_jobs=1, tol=1e-8, dtype="float64", min_freq=2, c1=found.best.c1, c2=found.best.c2
    ).fit(X, y).predict(X[:3])


def test_warm_starts_save_iterations(data: tuple[Any, Any]) -> None:
    X, y = data
    path = tune(CRF(n_jobs=1), X, y, c1=[0], c2=[1, 0.9, 0.8, 0.7], folds=2)
    assert path.iterations[1:].mean() < 0.8 * path.iterations[0].mean()


def test_settings_can_be_drawn_and_rejected(data: tuple[Any, Any]) -> None:
    X, y = data
    found = tune(CRF(n_jobs=2, max_iter=20), X, y, c1=[0, 0.01, 1], c2=[0.01, 100], n_settings=12, folds=3, reject=0.05)
    again = tune(CRF(n_jobs=1, max_iter=20), X, y, c1=[0, 0.01, 1], c2=[0.01, 100], n_settings=12, folds=3, reject=0.05)
    assert found.settings == again.settings
    np.testing.assert_array_equal(found.scores, again.scores)
    assert all(s.c1 == 0 or 0.01 <= s.c1 <= 1 for s in found.settings)
    assert {s.c1 == 0 for s in found.settings} == {True, False}
    dropped = np.isnan(found.scores[:, 1])
    assert dropped.any()
    assert (found.scores[dropped, 0] < found.scores[:, 0].max() - 0.05).all()
    assert not dropped[found.settings.index(found.best)]
    assert "rejected" in found.table()


def test_partly_labelled_sequences_are_trained_on_and_never_held_out(data: tuple[Any, Any]) -> None:
    X, y = data[0][:40], [list(row) for row in data[1][:40]]
    y[3:23] = [[None, *row[1:]] for row in y[3:23]]
    found = tune(CRF(n_jobs=1, tol=1e-8, dtype="float64"), X, y, c1=[0], c2=[0.1], folds=2)
    whole = [i for i, row in enumerate(y) if None not in row]
    held = np.sort(np.random.default_rng(0).permutation(whole)[0::2])
    rest = [i for i in range(40) if i not in held]
    one = CRF(n_jobs=1, tol=1e-8, dtype="float64", c2=0.1).fit([X[i] for i in rest], [y[i] for i in rest])
    right = crfkit.metrics.evaluate([y[i] for i in held], one.predict([X[i] for i in held])).summary()["f1"]
    assert found.scores[0, 0] == pytest.approx(right, abs=0.01)
    with pytest.raises(ValueError, match="number of sequences whose labels are all known, 20, got 30"):
        tune(CRF(), X, y, folds=30)


def test_wrong_arguments_are_named(data: tuple[Any, Any]) -> None:
    X, y = data
    wrong: list[tuple[CRF, dict[str, Any], str]] = [
        (CRF(), {"folds": 1}, "'folds' of tune must be an int >= 2"),
        (CRF(), {"folds": 91}, "'folds' of tune must be at most the number of sequences, 90"),
        (CRF(), {"c2": [-1]}, "'c2' of tune must be a number >= 0"),
        (CRF(), {"c1": []}, "'c1' of tune must hold at least one number"),
        (CRF(algorithm="sgd"), {}, "must be 'lbfgs' or 'newton-cg', got 'sgd'"),
        (CRF(beam="fixed:2"), {}, "'beam' of the CRF for tune must not be set"),
    ]
    for crf, how, text in wrong:
        with pytest.raises(ValueError, match=text):
            tune(crf, X, y, **how)
    with pytest.raises(ValueError, match=r"'crf' of tune must be a crfkit\.CRF, got crfkit\.dask\.CRF; give cluster="):
        tune(pytest.importorskip("crfkit.dask").CRF(), X, y)


def test_the_command_says_little_if_quiet(data: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = data
    lines = "\n".join("".join(f"{a} {b}\n" for a, b in zip(*row, strict=True)) for row in zip(X, y, strict=True))
    (tmp_path / "data.txt").write_text(lines, encoding="utf-8")
    given = "tune", tmp_path / "data.txt", "--c1", "0", "--c2", "1", "--folds", "2", "-j", "1", "--max-iter", "2"
    told = command.run(*given).stderr
    assert "crfkit: warning: training stopped after 2 iterations, before it had converged: raise --max-iter" in told
    assert ".py" not in told
    out = command.run(*given, "-q")
    assert out.stdout + out.stderr == ""


def test_the_command_prints_a_table_and_writes_the_best_model(data: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = data
    lines = "\n".join("".join(f"{a} {b}\n" for a, b in zip(*row, strict=True)) for row in zip(X, y, strict=True))
    (tmp_path / "data.txt").write_text(lines, encoding="utf-8")
    given = "tune", "data.txt", "-m", "model", "--c1", "0", "--c2", "1,0.1", "--folds", "2", "-j", "1"
    out = command.run(*given, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split()[:2] == ["c1", "c2"]
    assert len(out.stdout.splitlines()) == 3
    assert "best: c1 0, c2" in out.stderr
    assert crfkit.load(tmp_path / "model").predict(X[:1])
    assert "--unknown" not in out.stderr
    (tmp_path / "some.txt").write_text(lines.replace(" B-QTY", " ?", 9), encoding="utf-8")
    for name, options in {"tune": given[2:], "train": ("-m", "model", "--max-iter", "2")}.items():
        warned = command.run(name, "some.txt", *options, cwd=tmp_path).stderr
        assert "9 tokens with the label '?'" in warned
        assert "did you mean --unknown '?'" in warned
        assert "'?'" not in command.run(name, "some.txt", *options, "--unknown", "?", cwd=tmp_path).stderr
        assert "?" not in crfkit.load(tmp_path / "model").classes_
    assert Setting(0.0, 1.0).c2 == 1
    command.run("encode", "data.txt", "-o", "data.blocks", "--min-freq", "2", cwd=tmp_path)
    right = command.run(*given, "--min-freq", "2", cwd=tmp_path).stdout
    assert command.run("tune", "data.blocks", *given[2:], cwd=tmp_path).stdout == right
    assert crfkit.load(tmp_path / "model").predict(X[:1])
