"""What users of python-crfsuite and sklearn-crfsuite rely on, without the originals."""

from __future__ import annotations

import collections
import io
import os
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfkit
from crfkit.compat import pycrfsuite, sklearn_crfsuite
from crfkit.compat.pycrfsuite import ItemSequence, Tagger, Trainer
from crfkit.compat.sklearn_crfsuite._fileresource import FileResource
from crfkit.compat.suite_file import suite_bytes, suite_features
from crfkit.compat.trainlog import TrainLogParser

X: list[Any] = [{"walk": 1, "shop": 0.5}, {"walk": 1}, {"clean": 1}, {"walk": 1, "clean": 0.5}]
Y = ["sunny", "sunny", "rainy", "rainy"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    trainer = Trainer(verbose=False, params={"c2": 0.1})
    trainer.append(X, Y)
    trainer.train(tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def tagger(path: Path) -> Tagger:
    out = Tagger()
    out.open(path)
    return out


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ([b"a", "b"], {"a": 1.0, "b": 1.0}),
        ({b"a": 2.0}, {"a": 2.0}),
        ({"a": b"b", b"c": "d"}, {"a:b": 1.0, "c:d": 1.0}),
        ({b"a": {b"b": b"c", "e": {b"f"}}}, {"a:b:c": 1.0, "a:e:f": 1.0}),
        ({"a": "не светит".encode()}, {"a:не светит": 1.0}),
        ({"a": 1, "b": 2}.keys(), {"a": 1.0, "b": 1.0}),
        ({"a": "b"}.values(), {"b": 1.0}),
        (np.array(["a", "b"]), {"a": 1.0, "b": 1.0}),
        (np.array([b"a"]), {"a": 1.0}),
        (np.array(["a"], object), {"a": 1.0}),
        (collections.deque(["a", "b"]), {"a": 1.0, "b": 1.0}),
        (types.MappingProxyType({"a": 2.0}), {"a": 1.0}),
        (collections.UserDict(a=2.0), {"a": 1.0}),
        (frozenset("a"), {"a": 1.0}),
        ([bytearray(b"a")], {"a": 1.0}),
    ],
)
def test_items_are_what_the_original_takes(item: Any, expected: dict[str, float], tagger: Tagger) -> None:
    assert ItemSequence([item]).items() == [expected]
    assert ItemSequence(ItemSequence([item])).items() == [expected]
    trainer = Trainer(verbose=False)
    trainer.append([item], ["y"])
    crf = sklearn_crfsuite.CRF().fit([[item]] * 2, [["y"]] * 2)
    assert crf.predict([[item]]) == [["y"]]
    assert tagger.tag([item])[0] in Y


@pytest.mark.parametrize("item", [(x for x in "a"), iter(["a"]), "ab", b"ab", range(2), 3, None, [1], {1: 1.0}])
def test_other_items_are_refused(item: Any) -> None:
    with pytest.raises(ValueError, match="sequence 0, position 0: "):
        ItemSequence([item])


def test_bytes_that_are_not_utf8_are_latin1(tmp_path: Path) -> None:
    items = [[b"w=caf\xe9", bytearray(b"\xff")], {b"\xe9": 2.0, "x": b"\xc3\xa9"}, {b"a": {b"\xe9": 1.0}}]
    expected = [{"w=caf\xe9": 1.0, "\xff": 1.0}, {"\xe9": 2.0, "x:\xe9": 1.0}, {"a:\xe9": 1.0}]
    assert ItemSequence(items).items() == expected
    trainer = Trainer(verbose=False)
    trainer.append(items, [b"\xe9", b"caf\xc3\xa9", bytearray(b"\xff")])
    trainer.train(tmp_path / "m")
    tagger = Tagger()
    tagger.open(tmp_path / "m")
    assert tagger.labels() == ["\xe9", "caf\xe9", "\xff"]
    assert tagger.tag(items) == tagger.tag(expected)
    assert tagger.marginal(b"\xe9", 0) == tagger.marginal("\xe9", 0)
    crf = sklearn_crfsuite.CRF().fit([items], [[b"\xe9", "b", "b"]])
    assert crf.predict([items]) == crf.predict([expected])


def test_labels_may_be_bytes(tmp_path: Path) -> None:
    trainer = Trainer(verbose=False)
    trainer.append([["a"], ["b"]], [b"x", bytearray(b"y")])
    trainer.append([["a"], ["b"]], np.array([b"x", b"y"]))  # type: ignore[arg-type]
    trainer.train(tmp_path / "m")
    tagger = Tagger()
    tagger.open(tmp_path / "m")
    assert tagger.labels() == ["x", "y"]
    assert tagger.tag([["a"], [b"b"]]) == ["x", "y"]
    assert tagger.probability([b"x", "y"]) == tagger.probability(["x", "y"])
    assert tagger.marginal(b"x", 0) == tagger.marginal("x", 0)
    with pytest.raises(RuntimeError, match="label identifier: z"):
        tagger.marginal(b"z", 0)
    with pytest.raises(TypeError, match="a label must be a str, got int"):
        tagger.marginal(3, 0)  # type: ignore[arg-type]


def test_probabilities_speak_of_the_sequence_that_was_tagged(tagger: Tagger) -> None:
    tagger.set(X)
    expected = tagger.probability(Y), tagger.marginal("sunny", 0)
    for read in (tagger.tag, tagger.set):
        x = [dict(item) for item in X]
        read(x)
        x[0] = {"clean": 5.0}
        x.pop()
        assert (tagger.probability(Y), tagger.marginal("sunny", 0)) == expected
        read(item for item in X)
        assert (tagger.probability(iter(Y)), tagger.marginal("sunny", 0)) == expected
        read(ItemSequence(X))
        assert (tagger.probability(np.array(Y)), tagger.marginal("sunny", np.int64(0))) == expected  # type: ignore[arg-type]
    assert sum(tagger.marginal(y, 2) for y in tagger.labels()) == pytest.approx(1)
    with pytest.raises(ValueError, match=r"\|x\| = 4, \|y\| = 1"):
        tagger.probability(["sunny"])
    tagger.set([])
    assert tagger.tag() == []
    assert tagger.probability([]) == tagger.marginal("sunny", 0) == 0


def test_a_closed_tagger_says_so(tagger: Tagger, tmp_path: Path) -> None:
    tagger.close()
    asked: tuple[Any, ...] = (tagger.info, tagger.dump, lambda: tagger.dump(tmp_path / "d"))
    for ask in asked:
        with pytest.raises(RuntimeError, match="Tagger is closed"):
            ask()
    assert not (tmp_path / "d").exists()
    asked = (tagger.labels, tagger.tag, lambda: tagger.set(X), lambda: tagger.probability(Y))
    for ask in asked:
        with pytest.raises(ValueError, match="not opened"):
            ask()


def test_a_large_sequence_has_probabilities(tagger: Tagger) -> None:
    """From 4,096 tokens on other threads may run meanwhile; the numbers are the same."""
    long = X * 1500
    assert len(tagger.tag(long)) == len(long)
    middle = tagger.marginal("sunny", 3001)
    tagger.set(X * 1000)
    assert tagger.marginal("sunny", 2001) == pytest.approx(middle, rel=1e-9)


def losses(algorithm: str, data: Any = ((X, Y),), path: Any = "", **params: Any) -> list[float]:
    trainer = Trainer(algorithm, params, verbose=False)
    for x, y in data:
        trainer.append(x, y)
    trainer.train(path)
    assert trainer.logparser is not None
    return [step["loss"] for step in trainer.logparser.iterations]


def test_no_iterations_are_no_limit_of_lbfgs() -> None:
    assert losses("lbfgs", max_iterations=0) == losses("lbfgs")
    assert len(losses("lbfgs", max_iterations=2)) == 2
    assert losses("ap", max_iterations=0) == []


@pytest.mark.parametrize(
    ("algorithm", "params", "iterations", "ending"),
    [  # as python-crfsuite 0.9.11 has them
        ("ap", {"epsilon": 100}, 1, "Terminated with the stopping criterion\n\nTotal"),
        ("pa", {"epsilon": 100}, 1, "Terminated with the stopping criterion\n\nTotal"),
        ("arow", {"epsilon": 100}, 1, "Terminated with the stopping criterion\n\nTotal"),
        ("ap", {"max_iterations": 2}, 2, "\n\nTotal"),
        ("ap", {"max_iterations": -1}, 0, "Averaged perceptron\nmax_iterations: -1\nepsilon: 0.000000\n\nTotal"),
        ("l2sgd", {"max_iterations": -1}, 0, "SGD terminated with the maximum number of iterations\nLoss"),
        ("lbfgs", {"max_iterations": -1}, 1, "L-BFGS terminated with the maximum number of iterations\nTotal"),
        ("lbfgs", {"epsilon": 0.5}, None, "L-BFGS resulted in convergence\nTotal"),
        ("lbfgs", {"delta": 0.5, "period": 1}, None, "L-BFGS terminated with the stopping criteria\nTotal"),
    ],
)
def test_the_log_says_why_training_ended(
    algorithm: str, params: dict[str, Any], iterations: int | None, ending: str
) -> None:
    trainer = Trainer(algorithm, params, verbose=False)
    trainer.append(X, Y)
    trainer.train("")
    assert trainer.logparser is not None
    log = "".join(trainer.logparser.log)
    assert ending in log
    assert ("Terminated with the stopping criterion\n" in log) == ending.startswith("Terminated")
    assert iterations in (None, len(trainer.logparser.iterations))


def test_lone_surrogates_are_refused_at_once(tagger: Tagger) -> None:
    tagger.set(X)
    trainer = Trainer(verbose=False)
    for refused in (
        lambda: tagger.probability(["\ud800", *Y[1:]]),
        lambda: tagger.marginal("\ud800", 0),
        lambda: trainer.append(X, ["\ud800", *Y[1:]]),
    ):
        with pytest.raises(ValueError, match=r"a label holds a lone surrogate.*'\\ud800'"):
            refused()


def test_the_perceptrons_loss_is_the_fraction_of_wrong_labels() -> None:
    found = losses("ap", max_iterations=10)
    assert all(loss * len(Y) == pytest.approx(round(loss * len(Y))) for loss in found)
    assert max(found) <= 1
    assert found[-1] == 0
    assert len(found) == 10  # a loss of zero is not below an epsilon of zero
    two = losses("ap", [(X, Y), (X[:1], Y[1:2])], max_iterations=1)
    assert two[0] <= 2


@pytest.mark.parametrize("algorithm", ["ap", "pa", "arow"])
def test_epsilon_is_the_mean_loss_of_a_sequence(algorithm: str) -> None:
    data = [(X, Y), (X[::-1], Y[::-1]), (X[1:], Y[1:])]
    every = losses(algorithm, data, max_iterations=40)
    for epsilon in (0.05, 0.4, 1.0):
        below = [k for k, loss in enumerate(every) if loss / len(data) < epsilon]
        assert losses(algorithm, data, max_iterations=40, epsilon=epsilon) == every[: below[0] + 1 if below else None]
    assert len(every) == 40 or (algorithm == "arow" and every[-1] == 0)


def test_period_of_l2sgd() -> None:
    data = [(X, Y), (X[::-1], Y[::-1])]
    for period in (2, 5):
        found = losses("l2sgd", data, period=period, delta=0.01)
        gains = [a - b for a, b in zip(found, found[period:], strict=False)]
        stops = [gain < 0.01 * loss for gain, loss in zip(gains, found[period:], strict=True)]
        assert stops.index(True) == len(stops) - 1


def random_data(seed: int) -> list[tuple[list[list[str]], list[str]]]:
    rng = random.Random(seed)
    found = []
    for _ in range(60):
        words = [rng.randrange(30) for _ in range(rng.randint(2, 8))]
        X = [[f"w={w}", f"p={before}"] for before, w in zip(["", *words], words, strict=False)]
        found.append((X, ["ABC"[(w + rng.choice([0, 0, 0, 0, 1])) % 3] for w in words]))
    return found


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_l2sgd_comes_near_the_optimum(seed: int) -> None:
    """With the default parameters; a shorter period stops it earlier, though not at the first rise of the loss."""
    data = random_data(seed)
    least = losses("lbfgs", data)[-1]
    found = losses("l2sgd", data)
    assert least < found[-1] < 1.004 * least
    assert len(found) > 60
    short = losses("l2sgd", data, max_iterations=60, period=3)
    assert len(short) > 30
    assert short[-1] < 1.02 * least


def test_l2sgd_keeps_the_weights_of_the_least_loss(tmp_path: Path) -> None:
    path, data = tmp_path / "m", random_data(3)
    found = losses("l2sgd", data, period=3)
    assert found[-1] > min(found)
    sizes = []
    for passes in (len(found), found.index(min(found)) + 1):
        losses("l2sgd", data, path, period=3, max_iterations=passes)
        sizes.append(path.read_bytes())
    assert sizes[0] == sizes[1]


def test_calibration_of_l2sgd() -> None:
    """A single trial of a tiny step leaves the weights where they began."""
    data = random_data(3)
    tiny = {"calibration.eta": 1e-7, "calibration.candidates": 1, "calibration.max_trials": 1}
    assert losses("l2sgd", data, max_iterations=1, **tiny)[0] > losses("l2sgd", data, max_iterations=1)[0]
    for wrong in ({"calibration.rate": 0.0}, {"calibration.rate": 1.0}, {"calibration.eta": 0.0}):
        with pytest.raises(ValueError, match=r"'calibration.eta' must be > 0 and 'calibration.rate' > 1"):
            losses("l2sgd", data, max_iterations=1, **wrong)
    with pytest.raises(ValueError, match="training diverged in pass 1: use a smaller step"):
        losses("l2sgd", data, max_iterations=1, **{"calibration.eta": 1e30})


def test_the_norm_of_pa_is_that_of_the_weights_before_they_are_averaged() -> None:
    norms = []
    for averaging in (True, False):
        trainer = Trainer("pa", {"max_iterations": 20, "averaging": averaging}, verbose=False)
        for x, y in random_data(3):
            trainer.append(x, y)
        trainer.train("")
        assert trainer.logparser is not None
        norms.append([found["feature_norm"] for found in trainer.logparser.iterations])
    assert norms[0] == norms[1]


def test_the_log_names_what_the_originals_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for algorithm in ("l2sgd", "lbfgs"):
        trainer = pycrfsuite.BaseTrainer(algorithm, {"max_iterations": 3, "period": 7})
        trainer.append(X, Y)
        trainer.train(tmp_path / "m")
        log = capsys.readouterr().out.splitlines()
        assert ("period: 7" if algorithm == "l2sgd" else "stop: 7") in log
        name = {"l2sgd": "SGD", "lbfgs": "L-BFGS"}[algorithm]
        assert f"{name} terminated with the maximum number of iterations" in log
        assert any(line.startswith("Feature L2-norm: ") for line in log) == (algorithm == "l2sgd")
        assert "Writing feature references for attributes" in log


@pytest.mark.parametrize(("algorithm", "more"), [("l2sgd", set()), ("ap", {"feature_norm"})])
def test_iterations_have_the_originals_fields(algorithm: str, more: set[str], tmp_path: Path) -> None:
    trainer = Trainer(algorithm, {"max_iterations": 3}, verbose=False)
    trainer.append(X, Y)
    trainer.train(tmp_path / "m")
    assert trainer.logparser is not None
    assert (trainer.logparser.last_iteration or {}).keys() == {"num", "loss", "scores", "time"} | more


def test_help_names_the_penalties() -> None:
    assert "L1" in Trainer("lbfgs").help("c1")
    assert "L2" in Trainer("l2sgd").help("c2")


@pytest.mark.parametrize("algorithm", ["lbfgs", "ap"])
def test_training_without_data_gives_a_model_that_knows_nothing(algorithm: str, tmp_path: Path) -> None:
    trainer = Trainer(algorithm, verbose=False)
    trainer.train(tmp_path / "m")
    tagger = Tagger()
    with pytest.raises(crfkit.ModelError, match="has 0 labels"):
        tagger.open(tmp_path / "m")
    trainer.append(X, Y, group=1)
    trainer.train(tmp_path / "m", holdout=1)
    with tagger.open(tmp_path / "m"):
        assert tagger.labels() == ["sunny", "rainy"]
        assert len(tagger.tag(X)) == len(X)
        assert tagger.marginal("rainy", 0) == pytest.approx(0.5)


def test_a_subclass_need_not_call_init(tmp_path: Path) -> None:
    class Capturing(Trainer):
        def __init__(self) -> None:
            self.messages: list[str] = []

        def message(self, message: str) -> None:
            self.messages.append(message)

    trainer = Capturing()
    assert not trainer.verbose
    trainer.append(X, Y)
    trainer.set("max_iterations", 3)
    trainer.train(tmp_path / "m")
    assert "Feature generation\n" in trainer.messages
    assert trainer.get("c2") == 1.0


def test_the_log_parser_is_where_the_original_has_it() -> None:
    from crfkit.compat.pycrfsuite import _logparser

    assert _logparser.TrainLogParser is TrainLogParser


def test_predictions_compare_as_the_originals_arrays() -> None:
    crf = sklearn_crfsuite.CRF().fit([X, X], [Y, Y])
    found: Any = crf.predict([X, X])
    assert (found == [Y, Y]).all()
    assert (found == Y).all()
    assert (found == np.array([Y, Y])).all()
    assert not (found == [Y, Y[::-1]]).all()
    assert found == [Y, Y]
    assert found != [Y]
    assert isinstance(found, list)


def test_modelfile_is_a_file_once_its_name_is_read(tmp_path: Path) -> None:
    assert sklearn_crfsuite.CRF().modelfile.name is None
    crf: Any = sklearn_crfsuite.CRF()
    assert not crf.modelfile.name
    crf.fit([X], [Y])
    name = crf.modelfile.name
    assert name.endswith(".crfsuite")
    assert os.path.getsize(name) == crf.size_
    tagger = Tagger()
    with tagger.open(name):
        assert tagger.tag(X) == crf.predict_single(X)
    again = pickle.loads(pickle.dumps(crf))
    assert again.modelfile.name not in (None, name)
    crf.modelfile.cleanup()
    assert not os.path.exists(name)
    own = sklearn_crfsuite.CRF(model_filename=str(tmp_path / "own")).fit([X], [Y])
    assert own.modelfile.name == str(tmp_path / "own")
    own.modelfile.cleanup()
    own.modelfile.refresh()
    assert (tmp_path / "own").exists()


def test_a_file_travels_in_a_pickle() -> None:
    resource: Any = FileResource(suffix=".x")
    resource.ensure_name()
    assert resource.name is not None
    Path(resource.name).write_bytes(b"content")
    again = pickle.loads(pickle.dumps(resource))
    assert again.name != resource.name
    assert Path(again.name).read_bytes() == b"content"
    first = resource.name
    resource.refresh()
    assert resource.name != first
    assert not os.path.exists(first)


class _Renamed(pickle.Unpickler):
    """Finds the original's modules in crfkit, as ``sys.modules`` does after a swap."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in ("sklearn_crfsuite", "pycrfsuite"):
            module = f"crfkit.compat.{module}"
        return super().find_class(module, name)


def _originals_pickle(model: bytes) -> bytes:
    """A fitted CRF as sklearn-crfsuite 0.5 pickles it: the bytes of the model in a file resource."""

    def class_of(module: str, name: str) -> Any:
        return type(name, (), {"__module__": module})

    modules = {name: types.ModuleType(name) for name in ("sklearn_crfsuite", "pycrfsuite")}
    names = {"sklearn_crfsuite.estimator": "CRF", "sklearn_crfsuite._fileresource": "FileResource"}
    made: dict[str, Any] = {}
    for module, name in {**names, "pycrfsuite._logparser": "TrainLogParser"}.items():
        modules[module] = types.ModuleType(module)
        made[name] = class_of(module, name)
        setattr(modules[module], name, made[name])
    crf, resource, log = made["CRF"](), made["FileResource"](), made["TrainLogParser"]()
    data = {"name": None, "auto": True, "keep_tempfiles": False, "suffix": ".crfsuite", "prefix": "model", "fd": 3}
    resource.__dict__ |= {**data, "__FILE_RESOURCE_DATA__": model}
    log.__dict__ |= {"state": "STORING", "iterations": [{"num": 1, "loss": 2.5}], "log": ["Loss: 2.5\n"], "events": []}
    settings = {**dict.fromkeys(sklearn_crfsuite.CRF().get_params()), "c1": 0.1, "verbose": False}
    crf.__dict__ |= {**settings, "modelfile": resource, "training_log_": log, "_tagger": None, "_info_cached": None}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        return pickle.dumps(crf)
    finally:
        for key, known in before.items():
            if known is None:
                del sys.modules[key]
            else:
                sys.modules[key] = known


def test_pickles_of_the_original_load() -> None:
    fitted = sklearn_crfsuite.CRF(c2=0.1).fit([X], [Y])
    data = _originals_pickle(suite_bytes(suite_features(fitted.model_)))
    crf: Any = _Renamed(io.BytesIO(data)).load()
    assert type(crf).__module__ == "crfkit.compat.sklearn_crfsuite.estimator"
    assert crf.c1 == 0.1
    assert crf.predict([X]) == fitted.predict([X])
    assert crf.predict_marginals([X]) == fitted.predict_marginals([X])
    assert crf.training_log_.iterations[0]["loss"] == 2.5
    assert crf.state_features_ == fitted.state_features_
    assert pickle.loads(pickle.dumps(crf)).predict([X]) == fitted.predict([X])


def test_eli5_without_the_original_does_not_break_fit(tmp_path: Path) -> None:
    """eli5's module for CRFs imports sklearn-crfsuite, and fails if that is missing."""
    folder = tmp_path / "eli5" / "sklearn_crfsuite"
    folder.mkdir(parents=True)
    (tmp_path / "eli5" / "__init__.py").touch()
    (tmp_path / "eli5" / "explain.py").write_text("def explain_weights(x): ...\n")
    (folder / "__init__.py").touch()
    (folder / "explain_weights.py").write_text("import a_package_that_is_not_there\n")
    code = "import eli5; from crfkit.compat.sklearn_crfsuite import CRF; print(CRF().fit([[['a']]], [['x']]).classes_)"
    found = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "['x']\n", done.stderr


def test_predictions_compare_label_by_label() -> None:
    crf = sklearn_crfsuite.CRF().fit([[{"a"}, {"b"}]] * 3, [["A", "B"]] * 3)
    found: Any = crf.predict([[{"a"}, {"b"}], [{"b"}, {"b"}]])
    truth: Any = [["A", "B"], ["A", found[1][1]]]
    assert (found == truth).shape == (2, 2)
    assert ((found == truth) != (found != truth)).all()
    assert found.tolist() == [list(x) for x in found]
    assert found != [["A"], ["A", "B"]]


def test_a_model_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sklearn_crfsuite.CRF(model_filename=str(tmp_path / "nowhere")).predict([[{"a"}]])


def test_data_may_come_from_generators() -> None:
    words, labels = [[["a"], ["b"]], [["b"]]], [["x", "y"], ["y"]]
    held = sklearn_crfsuite.CRF().fit(iter(words), iter(labels), X_dev=iter(words), y_dev=iter(labels))
    assert held.predict(words) == sklearn_crfsuite.CRF().fit(words, labels).predict(words) == labels


def test_training_after_clear_needs_data(tmp_path: Path) -> None:
    trainer = Trainer(verbose=False)
    trainer.append([["a"]], ["x"])
    trainer.clear()
    with pytest.raises(ValueError, match="no sequences to train on since clear"):
        trainer.train(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    trainer.append([["a"]], ["x"])
    trainer.train(tmp_path / "m")
    assert (tmp_path / "m").exists()


def test_what_else_the_original_takes(tmp_path: Path, tagger: Tagger) -> None:
    trainer = Trainer(verbose=False)
    trainer.append([["a"], ["b"]], "AB")
    trainer.set(b"c1", 1)
    trainer.set("linesearch", b"Backtracking")
    assert trainer.get_params()["c1"] == 1
    assert trainer.get("linesearch") == "Backtracking"
    trainer.train(tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    with Tagger().open_inmemory(bytearray(data)) as found:  # type: ignore[arg-type]
        assert found.labels() == ["A", "B"]
    with pytest.raises(TypeError, match="a model in memory must be bytes, got str"):
        Tagger().open_inmemory("abc")  # type: ignore[arg-type]
    tagger.set(X)
    with pytest.raises(TypeError, match="'str' object cannot be interpreted as an integer"):
        tagger.marginal(Y[0], "0")  # type: ignore[arg-type]


def test_the_log_names_memories_first(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = pycrfsuite.BaseTrainer("lbfgs", {"max_iterations": 1})
    trainer.append(X, Y)
    trainer.train("")
    names = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    first = names.index("c1")
    assert names[first : first + 4] == ["c1", "c2", "num_memories", "max_iterations"]


def test_modules_are_where_the_originals_have_them(tagger: Tagger, tmp_path: Path) -> None:
    from sklearn.base import BaseEstimator

    from crfkit.compat.pycrfsuite import _dumpparser, _pycrfsuite
    from crfkit.compat.sklearn_crfsuite import compat

    for name in _pycrfsuite.__all__:
        assert getattr(_pycrfsuite, name) is getattr(pycrfsuite, name)
    assert compat.BaseEstimator is BaseEstimator
    tagger.dump(tmp_path / "dump")
    parser, info = _dumpparser.CRFsuiteDumpParser(), tagger.info()
    for line in (tmp_path / "dump").read_text().splitlines(keepends=True):
        parser.feed(line)
    assert vars(parser.result) == vars(info)
    assert parser.state is None
    code = (
        "import sys, crfkit.compat.pycrfsuite as p, crfkit.compat.sklearn_crfsuite as s\n"
        "sys.modules.update(pycrfsuite=p, sklearn_crfsuite=s)\n"
        "from pycrfsuite._pycrfsuite import Tagger\n"
        "from pycrfsuite._dumpparser import ParsedDump\n"
        "from sklearn_crfsuite.compat import BaseEstimator\n"
        "print(Tagger is p.Tagger, ParsedDump().labels, issubclass(s.CRF, BaseEstimator))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True {} True\n", done.stderr


def test_eli5_explains_where_the_original_is_missing(tmp_path: Path) -> None:
    """Its module for CRFs imports sklearn-crfsuite, for which crfkit stands in while it does."""
    folder = tmp_path / "eli5" / "sklearn_crfsuite"
    folder.mkdir(parents=True)
    (tmp_path / "eli5" / "__init__.py").touch()
    (tmp_path / "eli5" / "explain.py").write_text(
        "from functools import singledispatch\n@singledispatch\ndef explain_weights(x): return 'unknown'\n"
    )
    (folder / "__init__.py").touch()
    (folder / "explain_weights.py").write_text(
        "from sklearn_crfsuite import CRF\ndef explain_weights_sklearn_crfsuite(x): return isinstance(x, CRF)\n"
    )
    code = (
        "import crfkit.compat.sklearn_crfsuite as sklearn_crfsuite, sys\n"
        "sklearn_crfsuite.register_eli5()\n"
        "from eli5.explain import explain_weights\n"
        "print(explain_weights(sklearn_crfsuite.CRF()), 'sklearn_crfsuite' in sys.modules)"
    )
    found = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr
