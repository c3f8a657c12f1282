"""Training that is killed and resumed ends with the weights of one that never was."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from crfkit import CRF, HMM, MEMM, SegmentCRF
from crfkit.base.checkpoints import Checkpoint, State, seconds_of
from crfkit.base.tensors import read_tensors, write_tensors
from crfkit.training import ALGORITHMS, SGD

Data = tuple[Any, Any]


class Killed(BaseException):
    """In place of a signal, where the test goes on in the same process."""


def problem(unknown: bool = False, n: int = 40) -> Data:
    """Sequences with 12 labels that depend on the words; every third without labels if asked for."""
    rng = np.random.default_rng(5)
    X = [[(f"w{k}", f"v{k % 7}") for k in rng.integers(0, 30, rng.integers(1, 9))] for _ in range(n)]
    y: list[Any] = [[f"L{(int(w[1:]) + int(rng.integers(2))) % 12}" for w, _ in x] for x in X]
    if unknown:
        y = [None if i % 3 == 0 else [None if i % 3 == 1 and t == 1 else z for t, z in enumerate(row)]
             for i, row in enumerate(y)]  # fmt: skip
    return X, y


STOCHASTIC = [name for name, kind in ALGORITHMS.items() if kind.sequential]
CASES: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": name, "max_iter": 6} for name in ALGORITHMS},
    "converged": {"c2": 5.0},
    "owl-qn": {"c1": 0.3, "max_iter": 8},
    "double": {"dtype": "float64", "max_iter": 5},
    "warm": {"warm_start_fraction": 0.4, "max_iter": 5, "random_state": None},
    "sgd, mean begun anew": {"algorithm": SGD(batch_size=4), "max_iter": 18, "tol": 0},
    "lbfgs, fixed beams": {"beam": "fixed:3", "c2": 0.1, "max_iter": 40},
    "lbfgs, adaptive beams": {"beam": "adaptive:0.5:2", "c2": 0.1, "max_iter": 60},
    "lbfgs, threshold, warm": {"beam": "threshold:2", "warm_start_fraction": 0.5, "max_iter": 20},
    "sgd, adaptive beams": {"algorithm": "sgd", "beam": "adaptive:0.5:2", "max_iter": 8},
    "adagrad, divergence": {"algorithm": "adagrad", "beam": "min-divergence:0.3:2", "max_iter": 8},
}
ENTROPY: dict[str, dict[str, Any]] = {
    **{
        name: {"algorithm": name, "max_iter": 5}
        for name, kind in ALGORITHMS.items()
        if "entropy_weight" in kind.supports
    },
    "lbfgs, beams": {"beam": "fixed:3", "max_iter": 12},
    "sgd, beams": {"algorithm": "sgd", "beam": "fixed:3", "max_iter": 5},
}


def killed_again_and_again(make: Any, path: Path, monkeypatch: pytest.MonkeyPatch, writes: int = 2) -> Any:
    """Fits, dying after every so many writes, and resuming, until it is done; what was fitted."""
    write, count = Checkpoint._write, itertools.count(1)

    def dying(self: Checkpoint, parts: State) -> None:
        write(self, parts)
        if "finished" not in parts and next(count) % writes == 0:
            raise Killed

    monkeypatch.setattr(Checkpoint, "_write", dying)
    for k in range(200):
        try:
            return make(checkpoint=path, checkpoint_every=0)(resume=True)
        except Killed:
            assert path.exists(), k
    raise AssertionError("it does not get on")


def assert_same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.weights_, b.weights_)
    assert a.weights_.any()
    assert {**a.result_.state(), "w": 0} == {**b.result_.state(), "w": 0}


def check(path: Path, monkeypatch: pytest.MonkeyPatch, data: Data, kind: Any = CRF, **settings: Any) -> None:
    X, y = data
    more = {name: settings.pop(name) for name in ("X_dev", "y_dev") if name in settings}

    def make(**keep: Any) -> Any:
        return lambda **how: kind(**{"random_state": 3, "n_jobs": 1, **settings, **keep}).fit(X, y, **more, **how)

    whole = make()()
    assert_same(killed_again_and_again(make, path, monkeypatch), whole)
    # the file is that of a training that ended
    assert_same(make(checkpoint=path)(resume=True), whole)


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path / "run", monkeypatch, problem(), **CASES[case])


@pytest.mark.parametrize("case", ENTROPY)
def test_entropy_that_grows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path / "run", monkeypatch, problem(True), entropy_weight=0.3, entropy_ramp=3, **ENTROPY[case])


@pytest.mark.parametrize("name", ["lbfgs", "newton-cg", "sgd", "ap"])
def test_early_stopping(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"algorithm": name, "early_stopping": 2, "max_iter": 12}
    check(tmp_path / "run", monkeypatch, problem(), **settings, X_dev=problem()[0][:9], y_dev=problem()[1][:9])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_memm(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path / "run", monkeypatch, problem(), MEMM, algorithm=name, max_iter=5)


@pytest.mark.parametrize("early", [None, 2])
def test_segments(early: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem()
    held = {} if early is None else {"X_dev": X[:9], "y_dev": y[:9]}

    def make(**keep: Any) -> Any:
        crf = SegmentCRF(c1=0.1, max_iter=12, n_jobs=1, early_stopping=early, **keep)
        return lambda **how: crf.fit(X, y, **held, **how)

    whole, path = make()(), tmp_path / "run"
    assert_same(killed_again_and_again(make, path, monkeypatch), whole)
    assert_same(make(checkpoint=path)(resume=True), whole)
    with pytest.raises(ValueError, match=r"another training run: 'c2' was 1.0, now it is 0.5"):
        SegmentCRF(c1=0.1, c2=0.5, max_iter=12, early_stopping=early, checkpoint=path).fit(X, y, **held, resume=True)


def test_hmm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem(True)

    def make(**keep: Any) -> Any:
        return lambda **how: HMM(max_iter=12, random_state=4, **keep).fit(X, y, **how)

    whole, path = make()(), tmp_path / "run"
    assert len(whole.history_) > 4
    for hmm in (killed_again_and_again(make, path, monkeypatch), make(checkpoint=path)(resume=True)):
        np.testing.assert_array_equal(hmm.model_.weights, whole.model_.weights)
        assert hmm.history_ == whole.history_
        assert hmm.result_.reason == whole.result_.reason


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "adam", "dropout": 0.2, "word_dropout": 0.1, "validation_fraction": 0.2, "early_stopping": 2},
        {"algorithm": "sgd", "encoder": "lstm", "hidden": (), "decay": 0.1},
    ],
)
def test_neural_crf(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from crfkit.torch import NeuralCRF

    X, y = problem(True)
    more = {"max_iter": 4, "device": "cpu", "embedding_size": 5, "entropy_weight": 0.1, **settings}

    def make(**keep: Any) -> Any:
        return lambda **how: NeuralCRF(**more, random_state=2, **keep).fit([[w for w, _ in x] for x in X], y, **how)

    whole, path = make()(), tmp_path / "run"
    for crf in (killed_again_and_again(make, path, monkeypatch), make(checkpoint=path)(resume=True)):
        for a, b in ((whole.network_, crf.network_), (whole.crf_, crf.crf_)):
            for one, other in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
                assert torch.equal(one, other)
        assert [p.value for p in crf.history_] == [p.value for p in whole.history_]


def test_neural_crf_with_other_features(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from crfkit.torch import NeuralCRF

    y = [["A", "B"]]
    words, path = [["a", "b"]], tmp_path / "run"
    NeuralCRF(lambda x, t: {x[t]: 1.0}, hidden=(), max_iter=1, inputs="features", checkpoint=path).fit(words, y)
    other = NeuralCRF(lambda x, t: {x[t]: 2.0}, hidden=(), max_iter=1, inputs="features", checkpoint=path)
    with pytest.raises(ValueError, match="another training run: training data differ"):
        other.fit(words, y, resume=True)
    path = tmp_path / "vectors"  # which differ in what print does not show
    dense = NeuralCRF(hidden=(), max_iter=1, checkpoint=path)
    dense.fit([[np.array([0.1, 0.2]), np.array([0.3, 0.4])]], y)
    with pytest.raises(ValueError, match="another training run: training data differ"):
        dense.fit([[np.array([0.1, 0.2]), np.array([0.3, 0.4000001])]], y, resume=True)


#: A process that ends with its n-th checkpoint.
DYING = """
import os, signal, sys
from crfkit.base.checkpoints import Checkpoint
write, left = Checkpoint._write, [{writes}]
def dying(self, parts):
    write(self, parts)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint._write = dying
"""
SCRIPT = (
    DYING
    + """
sys.path.insert(0, {tests!r})
from test_checkpoints import CASES, problem
from crfkit import CRF
how = {{"random_state": 3, "n_jobs": 1, **CASES[{case!r}]}}
CRF(checkpoint={path!r}, checkpoint_every=0, **how).fit(*problem())
"""
)


@pytest.mark.parametrize("case", [*ALGORITHMS, "lbfgs, fixed beams", "warm"])
def test_a_process_that_is_killed(case: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    code = SCRIPT.format(tests=str(Path(__file__).parent), writes=3, path=path, case=case)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    settings = {"random_state": 3, "n_jobs": 2, **CASES[case]}
    assert_same(CRF(checkpoint=path, **settings).fit(*problem(), resume=True), CRF(**settings).fit(*problem()))


COMMAND = (
    DYING
    + """
from crfkit.cli import main
main()
"""
)


@pytest.mark.parametrize("writes", [2, 7])  # in the midst of training, and between its end and the model's file
def test_the_command_line(writes: int, tmp_path: Path) -> None:
    rows = [zip(x, y, strict=True) for x, y in zip(*problem(), strict=True)]
    (tmp_path / "data").write_text("\n".join("".join(f"{w} {v} {z}\n" for (w, v), z in row) for row in rows))
    train = ["train", "data", "--max-iter", "6", "--quiet", "-m"]
    keep = ["--checkpoint", "run", "--every", "0s"]

    def run(*arguments: str, code: str = COMMAND.format(writes=0)) -> int:
        return subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, check=False).returncode

    assert run(*train, "whole") == 0
    assert run(*train, "model", *keep, code=COMMAND.format(writes=writes)) == -signal.SIGKILL
    assert not (tmp_path / "model").exists()
    if writes == 2:
        assert run(*train, "model", *keep) == 1  # not over a checkpoint
    assert run(*train, "model", *keep, "--resume") == 0
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not (tmp_path / "run").exists()
    assert run(*train, "model", "--resume") == 2


def begun(path: Path, **settings: Any) -> None:
    """Leaves the checkpoint of a training that was killed."""
    with pytest.MonkeyPatch.context() as patch:
        write = Checkpoint._write

        def dying(self: Checkpoint, parts: State) -> None:
            write(self, parts)
            raise Killed

        patch.setattr(Checkpoint, "_write", dying)
        with pytest.raises(Killed):
            CRF(checkpoint=path, checkpoint_every=0, n_jobs=1, **settings).fit(*problem())


def test_other_settings_and_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    X, y = problem()
    begun(path)
    with pytest.raises(
        ValueError, match=r"run: the checkpoint belongs to another training run: 'c2' was 1.0, now it is 0.5"
    ):
        CRF(checkpoint=path, c2=0.5).fit(X, y, resume=True)
    with pytest.raises(ValueError, match="to another training run: 'algorithm' was 'lbfgs', now it is 'sgd'"):
        CRF(checkpoint=path, algorithm="sgd").fit(X, y, resume=True)
    with pytest.raises(ValueError, match="to another training run: training data differ"):
        CRF(checkpoint=path).fit(X[1:], y[1:], resume=True)
    with pytest.raises(ValueError, match="to another training run: sample weights differ"):
        CRF(checkpoint=path).fit(X, y, sample_weight=np.full(len(X), 2.0), resume=True)
    with pytest.raises(ValueError, match="to another training run: 'model' was crf, now it is memm"):
        MEMM(checkpoint=path).fit(X, y, resume=True)
    # threads, what is printed, and how often it is written, make no difference
    crf = CRF(checkpoint=path, checkpoint_every="1h", n_jobs=2, callback=lambda p, w: None).fit(X, y, resume=True)
    np.testing.assert_array_equal(crf.weights_, CRF().fit(X, y).weights_)


def test_a_checkpoint_is_not_lost_by_mistake(tmp_path: Path) -> None:
    path = tmp_path / "run"
    begun(path)
    with pytest.raises(ValueError, match="run: this checkpoint belongs to a training run that has not finished"):
        CRF(checkpoint=path).fit(*problem())
    CRF(checkpoint=path).fit(*problem(), resume=True)
    CRF(checkpoint=path, c2=2.0).fit(*problem())  # that one had ended
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="run: not a crfkit checkpoint, or a truncated one"):
        CRF(checkpoint=path).fit(*problem())


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    begun(path)
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little") + 8
    rng = np.random.default_rng(0)
    for at in (*rng.integers(0, header, 400), *rng.integers(header, len(data), 20)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.integers(0, 8)
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError,
            match=r"run: .*(not a crfkit checkpoint|the checkpoint is damaged|newer version of crfkit)",
        ):
            Checkpoint(path, resume=True)


def test_without_a_file_it_begins(tmp_path: Path) -> None:
    crf = CRF(checkpoint=tmp_path / "run").fit(*problem(), resume=True)
    np.testing.assert_array_equal(crf.weights_, CRF().fit(*problem()).weights_)
    with pytest.raises(ValueError, match="'resume' of fit needs a 'checkpoint' of CRF"):
        CRF().fit(*problem(), resume=True)
    with pytest.raises(FileNotFoundError, match="the folder to write to does not exist"):
        CRF(checkpoint=tmp_path / "no" / "run").fit(*problem())


def test_clones_have_paths_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run"
    X, y = problem()
    search = GridSearchCV(CRF(checkpoint=path, checkpoint_every=0, max_iter=3), {"c2": [0.1, 1.0]}, cv=2)
    search.fit(X, y)
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 5  # two settings in two folds, and the best of all
    assert all(name.startswith("run.") for name in names)
    search.fit(X, y, resume=True)
    assert sorted(os.listdir(tmp_path)) == names
    assert clone(CRF(checkpoint=path)).checkpoint == path


def test_seconds() -> None:
    assert [seconds_of(x) for x in (0, 2.5, "10", "30s", "5min", "1.5 h")] == [0, 2.5, 10, 30, 300, 5400]
    bad: list[Any] = ["soon", "-1", -1, "5m", None]
    for wrong in bad:
        with pytest.raises(ValueError, match="'checkpoint_every' must be seconds"):
            CRF(checkpoint_every=wrong).fit(*problem())


def test_a_model_file_says_nothing_of_checkpoints(tmp_path: Path) -> None:
    crf = CRF(checkpoint=tmp_path / "run").fit(*problem())
    assert not any("checkpoint" in name for name in crf.model_.params)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_is_no_checkpoint(resume: bool, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="'checkpoint' must be a file, not a folder"):
        CRF(checkpoint=tmp_path).fit([["a"]], [["A"]], resume=resume)


@pytest.mark.parametrize("algorithm", ["lbfgs", "newton-cg", "sgd", "sag"])
def test_a_forged_state_is_refused(algorithm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, types and shapes that no training writes, under a right checksum."""
    path, (X, y) = tmp_path / "run", problem()

    def crf(**more: Any) -> CRF:
        return CRF(algorithm=algorithm, max_iter=3, n_jobs=1, checkpoint=path, **more)

    def stop(progress: Any, w: Any) -> None:
        if progress.iteration == 2:
            raise KeyError

    with pytest.raises(KeyError):
        crf(checkpoint_every=0, callback=stop).fit(X, y)
    good = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "_compare", lambda self, found: setattr(self, "fingerprint", dict(found)))
        keep = Checkpoint(path, resume=True)
    search = keep._saved["search"]
    others: list[Any] = ["text", 0.5, {}, [["a"]]]
    for name, value in search.items():
        for wrong in others:
            if not isinstance(value, type(wrong)) or wrong == [["a"]]:
                path.write_bytes(good)
                keep._write({**keep._saved, "search": {**search, name: wrong}})
                with pytest.raises(ValueError, match="damaged"):
                    crf().fit(X, y, resume=True)
    if algorithm == "newton-cg":  # which went on for ever
        keep._write({**keep._saved, "search": {**search, "w": np.full_like(search["w"], -np.inf)}})
        with pytest.raises(ValueError, match="not finite"):
            crf().fit(X, y, resume=True)
    if "core" in search["objective"]:
        for name in ("weights", "sum", "pairs", "lipschitz"):
            core = {**search["objective"]["core"], name: np.zeros(0, np.uint8)}
            keep._write({**keep._saved, "search": {**search, "objective": {**search["objective"], "core": core}}})
            if name == "weights" or algorithm == "sag":
                with pytest.raises(ValueError, match=r"damaged|not whole"):
                    crf().fit(X, y, resume=True)
    keep._write({"finished": {"w": np.zeros(1)}})
    with pytest.raises(ValueError, match="damaged"):
        crf().fit(X, y, resume=True)


@pytest.mark.parametrize("part", ["exp_avg", "best", "history", "step", "no moment"])
def test_damaged_states_of_a_network(tmp_path: Path, part: str) -> None:
    """Names and types are right, shapes or fields are not."""
    pytest.importorskip("torch")
    from crfkit.torch import NeuralCRF

    words, y, path = [["a", "b"]], [["A", "B"]], tmp_path / "run"

    def train(**how: Any) -> None:
        def stop(*_: Any) -> None:
            if "resume" not in how and path.exists():
                raise Killed

        quick: dict[str, Any] = {"hidden": (3,), "max_iter": 3, "checkpoint": path, "checkpoint_every": 0}
        NeuralCRF(early_stopping=3, callback=stop, **quick).fit(words, y, X_dev=words, y_dev=y, **how)

    with pytest.raises(Killed):
        train()
    file = read_tensors(path, "crfkit checkpoint", "checkpoint")
    arrays = dict(file.arrays)
    if part == "history":
        (progress,) = file.header["tree"]["dict"]["network"]["dict"]["history"]
        progress["dict"]["later"] = progress["dict"].pop("active")
    elif part == "step":  # of which Adam takes the next: a division by zero
        place = next(k for k in arrays if k.endswith("/step"))
        arrays[place] = np.full_like(arrays[place], -1)
    elif part == "no moment":
        moments = file.header["tree"]["dict"]["network"]["dict"]["optimiser"]["dict"]
        first = next(iter(moments.values()))["dict"]
        first["other"] = first.pop("exp_avg")
    else:
        arrays[next(k for k, x in arrays.items() if f"/{part}" in k and x.ndim == 2)] = np.zeros((1, 1), np.float32)
    write_tensors(path, "crfkit checkpoint", file.header, arrays)
    with pytest.raises(ValueError, match="run: the checkpoint is damaged: "):
        train(resume=True)
