"""crfkit.compat.pycrfsuite against python-crfsuite itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crfkit
from crfkit import CRF, MEMM
from crfkit.compat import convert_model, model_format, pycrfsuite, read_suite_model, write_suite_model
from crfkit.compat.trainlog import TrainLogParser

original = pytest.importorskip("pycrfsuite")

Sequences = tuple[list[list[Any]], list[list[str]]]


def corpus(seed: int, n: int = 30, values: bool = True) -> Sequences:
    rng = random.Random(seed)
    X, y = [], []
    for _ in range(n):
        labels = [rng.choice("ABC") for _ in range(rng.randint(1, 7))]
        items = []
        for label in labels:
            word = rng.choice("pqrs") if rng.random() < 0.3 else label.lower()
            item: dict[str, Any] = {"word": word, "é:ü": {"x y", word}, "bias": 1.0, "upper": rng.random() < 0.5}
            if values:
                item["n"] = {"a": round(rng.random() * 3, 3), "b": 2}
            items.append(item)
        X.append(items)
        y.append(labels)
    return X, y


def train(module: Any, path: Path, data: Sequences, **params: Any) -> None:
    algorithm = params.pop("algorithm", "lbfgs")
    trainer = module.Trainer(algorithm, params, verbose=False)
    for x, labels in zip(*data, strict=True):
        trainer.append(x, labels)
    trainer.train(str(path))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"c2": 0.1, "feature.possible_transitions": True},
        {"c1": 0.5, "c2": 0.01},
        {"feature.possible_states": True, "feature.minfreq": 2},
        {"feature.minfreq": 7.5},
    ],
)
def test_the_optimum_is_the_originals(tmp_path: Path, params: dict[str, Any]) -> None:
    data = corpus(1)
    exact = {**params, "epsilon": 1e-7, "delta": 1e-10, "max_iterations": 2000}
    infos = []
    for module in (original, pycrfsuite):
        train(module, tmp_path / "m", data, **exact)
        tagger = pycrfsuite.Tagger()
        tagger.open(tmp_path / "m")
        infos.append(tagger.info())
    theirs, ours = infos
    assert list(theirs.labels) == list(ours.labels)
    for a, b in ((theirs.transitions, ours.transitions), (theirs.state_features, ours.state_features)):
        for key in a.keys() | b.keys():
            assert a.get(key, 0.0) == pytest.approx(b.get(key, 0.0), abs=2e-3), key


@pytest.mark.parametrize("seed", range(3))
def test_their_model_in_our_tagger(tmp_path: Path, seed: int) -> None:
    data = corpus(seed)
    path = tmp_path / "m.crfsuite"
    train(original, path, data, c2=0.1)
    theirs, ours = original.Tagger(), pycrfsuite.Tagger()
    theirs.open(str(path))
    ours.open(path)
    compare(theirs, ours, corpus(seed + 10)[0])
    assert ours.info().header == theirs.info().header
    assert ours.info().labels == theirs.info().labels
    assert ours.info().attributes == theirs.info().attributes
    for key, w in theirs.info().state_features.items():
        assert ours.info().state_features[key] == pytest.approx(w, abs=1e-6)


def compare(theirs: Any, ours: pycrfsuite.Tagger, X: list[list[Any]]) -> None:
    assert ours.labels() == theirs.labels()
    for x in X:
        tags = theirs.tag(x)
        assert ours.tag(x) == tags
        assert ours.probability(tags) == pytest.approx(theirs.probability(tags), rel=1e-9)
        for t in range(len(x)):
            for label in ours.labels():
                assert ours.marginal(label, t) == pytest.approx(theirs.marginal(label, t), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_our_model_in_their_tagger(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "m.crfsuite"
    train(pycrfsuite, path, corpus(seed), c2=0.1)
    theirs, ours = original.Tagger(), pycrfsuite.Tagger()
    theirs.open(str(path))
    with ours.open(path):
        compare(theirs, ours, corpus(seed + 10)[0])
        assert ours.info().header == theirs.info().header
        for key, w in theirs.info().transitions.items():
            assert ours.info().transitions[key] == pytest.approx(w, abs=1e-6)
    with pytest.raises(ValueError, match="not opened"):
        ours.tag([["a"]])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=60))
def test_any_names_are_found_by_the_original(tmp_path_factory: Any, names: list[str]) -> None:
    path = tmp_path_factory.mktemp("m") / "m.crfsuite"
    X = [[[name], ["other"]] for name in {"x", *names}]
    crf = CRF(features=None, start_end=False).fit(X, [["A", "B"]] * len(X))
    write_suite_model(crf.model_, path)
    theirs = original.Tagger()
    theirs.open(str(path))
    again = read_suite_model(path)
    assert set(again.encoder.names()) == {x[0][0] for x in X} | {"other"}
    for x in X:
        theirs.set(x)
        p = crf.predict_marginals([x])[0]
        assert theirs.marginal("A", 0) == pytest.approx(p[0, 0], rel=1e-6)


def test_a_model_survives_the_way_there_and_back(tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    train(original, a, corpus(4))
    convert_model(a, b)
    convert_model(b, c, to="crfsuite")
    assert (model_format(a), model_format(b), model_format(c)) == ("crfsuite", "crfkit", "crfsuite")
    X = corpus(5)[0]
    theirs, again = original.Tagger(), original.Tagger()
    theirs.open(str(a))
    again.open(str(c))
    crf = crfkit.load(b)
    for x in X:
        assert theirs.tag(x) == again.tag(x) == crf.predict([x])[0]
        assert theirs.probability(theirs.tag(x)) == pytest.approx(again.probability(again.tag(x)))


def test_an_estimator_is_written_as_its_model(tmp_path: Path) -> None:
    crf = CRF(start_end=False).fit([[["a"], ["b"]]], [["A", "B"]])
    for name, model in (("crf", crf), ("model", crf.model_)):
        write_suite_model(model, tmp_path / name)
    assert (tmp_path / "crf").read_bytes() == (tmp_path / "model").read_bytes()
    for other in (CRF(), MEMM().fit([[["a"], ["b"]]], [["A", "B"]]), "crf"):
        with pytest.raises(TypeError, match="'model' must be a fitted CRF, or its model_, got"):
            write_suite_model(other, tmp_path / "other")


def test_what_crfsuite_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="start weights"):
        write_suite_model(CRF().fit([[["a"], ["b"]]], [["A", "B"]]).model_, tmp_path / "m")
    with pytest.raises(ValueError, match="template"):
        write_suite_model(CRF().fit([["a"]], [["A"]]).model_, tmp_path / "m")
    with pytest.raises(ValueError, match="zero byte"):
        write_suite_model(CRF(start_end=False).fit([[["a\0b"], ["c"]]], [["A", "B"]]).model_, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_parameters_are_the_originals() -> None:
    for name in ("lbfgs", "l2sgd", "ap", "pa", "arow", "averaged-perceptron"):
        theirs, ours = original.Trainer(name), pycrfsuite.Trainer(name)
        assert ours.params() == theirs.params()
        assert ours.get_params() == theirs.get_params()
        assert all(ours.help(p) for p in ours.params())
    trainer = pycrfsuite.Trainer(params={"c1": 2, "feature.possible_states": True, "max_iterations": "7"})
    assert (trainer.get("c1"), trainer.get("feature.possible_states"), trainer.get("max_iterations")) == (2.0, True, 7)
    for call in (lambda: trainer.set("c9", 1), lambda: trainer.get("c9"), lambda: trainer.help("c9")):
        with pytest.raises(ValueError, match="Parameter not found: c9"):
            call()
    with pytest.raises(ValueError, match="Bad arguments"):
        trainer.select("nothing")
    with pytest.raises(ValueError, match="'c1' must be a number"):
        trainer.set("c1", "much")


def test_all_five_algorithms(tmp_path: Path) -> None:
    data = corpus(6)
    for name in ("lbfgs", "l2sgd", "ap", "pa", "arow"):
        train(pycrfsuite, tmp_path / name, data, algorithm=name, max_iterations=20)
        tagger = pycrfsuite.Tagger()
        tagger.open(tmp_path / name)
        right = sum(tagger.tag(x) == y for x, y in zip(*data, strict=True))
        theirs = original.Tagger()
        train(original, tmp_path / "o", data, algorithm=name, max_iterations=20)
        theirs.open(str(tmp_path / "o"))
        assert right >= sum(theirs.tag(x) == y for x, y in zip(*data, strict=True)) - 3


class Recorder(pycrfsuite.Trainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.calls: list[tuple[str, Any]] = []
        super().__init__(*args, **kwargs)

    def on_start(self, log: str) -> None:
        self.calls.append(("start", log))

    def on_featgen_progress(self, log: str, percent: int) -> None:
        self.calls.append(("percent", percent))

    def on_featgen_end(self, log: str) -> None:
        self.calls.append(("featgen_end", log))

    def on_prepared(self, log: str) -> None:
        self.calls.append(("prepared", log))

    def on_iteration(self, log: str, info: dict[str, Any]) -> None:
        self.calls.append(("iteration", info))

    def on_optimization_end(self, log: str) -> None:
        self.calls.append(("optimization_end", log))

    def on_end(self, log: str) -> None:
        self.calls.append(("end", log))


def test_hooks_and_held_out_scores(tmp_path: Path) -> None:
    X, y = corpus(7)
    theirs = original.Trainer(params={"max_iterations": 5}, verbose=False)
    ours = Recorder(params={"max_iterations": 5})
    for i, (x, labels) in enumerate(zip(X, y, strict=True)):
        theirs.append(x, labels, i % 3)
        ours.append(x, labels, i % 3)
    theirs.train(str(tmp_path / "a"), holdout=1)
    ours.train(str(tmp_path / "b"), holdout=1)
    kinds = [kind for kind, _ in ours.calls]
    assert kinds[0] == "start"
    assert [v for k, v in ours.calls if k == "percent"] == list(range(0, 101, 2))
    assert kinds[52:54] == ["featgen_end", "prepared"]
    assert kinds[54:] == ["iteration"] * 5 + ["optimization_end", "end"]
    parser = ours.logparser
    assert parser is not None
    assert parser.featgen_num_features == theirs.logparser.featgen_num_features
    for a, b in zip(theirs.logparser.iterations, parser.iterations, strict=True):
        assert a.keys() == b.keys()
        assert a["scores"].keys() == b["scores"].keys()
        assert [s.ref for s in a["scores"].values()] == [s.ref for s in b["scores"].values()]
        assert a["item_accuracy"].denominator <= 200
        assert b["active_features"] == a["active_features"]


def test_the_parser_reads_the_originals_log(tmp_path: Path) -> None:
    for algorithm in ("lbfgs", "l2sgd", "ap"):
        trainer = original.Trainer(algorithm, {"max_iterations": 3}, verbose=False)
        for i, (x, labels) in enumerate(zip(*corpus(8), strict=True)):
            trainer.append(x, labels, i % 2)
        trainer.train(str(tmp_path / "m"), holdout=1)
        theirs, ours = trainer.logparser, TrainLogParser()
        events = [ours.feed(line) for line in theirs.log]
        assert [e for e in events if e] == [e[0] for e in theirs.events]
        assert [e[1:] for e in ours.events] == [e[1:] for e in theirs.events]
        for a, b in zip(theirs.iterations, ours.iterations, strict=True):
            for key in a.keys() - {"scores"}:
                assert a[key] == b[key], key
            assert {k: tuple(v) for k, v in a["scores"].items()} == {k: tuple(v) for k, v in b["scores"].items()}


def test_an_exception_in_a_hook_stops_training(tmp_path: Path) -> None:
    class Stop(pycrfsuite.Trainer):
        def on_iteration(self, log: str, info: dict[str, Any]) -> None:
            if info["num"] == 3:
                raise RuntimeError("enough")

        def on_start(self, log: str) -> None: ...
        def on_featgen_progress(self, log: str, percent: int) -> None: ...
        def on_featgen_end(self, log: str) -> None: ...
        def on_prepared(self, log: str) -> None: ...

    trainer = Stop()
    for x, labels in zip(*corpus(9), strict=True):
        trainer.append(x, labels)
    with pytest.raises(RuntimeError, match="enough"):
        trainer.train(str(tmp_path / "m"))
    assert not (tmp_path / "m").exists()


def test_the_printed_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = pycrfsuite.Trainer(params={"max_iterations": 2})
    for x, labels in zip(*corpus(3), strict=True):
        trainer.append(x, labels)
    trainer.train(str(tmp_path / "m"))
    out = capsys.readouterr().out
    for text in (
        "Feature generation\n",
        "0....1....2",
        "L-BFGS optimization\n",
        "***** Iteration #2 *****\n",
        "Storing",
    ):
        assert text in out
    assert "L-BFGS terminated with the maximum number of iterations" in out


def test_item_sequences(tmp_path: Path) -> None:
    X, y = corpus(2)
    plain, wrapped = pycrfsuite.Trainer(verbose=False), pycrfsuite.Trainer(verbose=False)
    for i, (x, labels) in enumerate(zip(X, y, strict=True)):
        plain.append(x, labels)
        wrapped.append(pycrfsuite.ItemSequence(x) if i % 2 else x, labels)
    plain.train(tmp_path / "a")
    wrapped.train(tmp_path / "b")
    a, b = pycrfsuite.Tagger(), pycrfsuite.Tagger()
    a.open(tmp_path / "a")
    b.open_inmemory((tmp_path / "b").read_bytes())
    for x in X:
        assert a.tag(x) == b.tag(x) == b.tag(pycrfsuite.ItemSequence(x))
        b.set(x)
        assert b.tag() == a.tag(x)
    item = [{"a": 2.0, "d": "z", "e": {"f"}, "h": True, "i": False}, ["q"]]
    theirs, ours = original.ItemSequence(item), pycrfsuite.ItemSequence(item)
    assert ours.items() == theirs.items()
    assert (len(ours), repr(ours)) == (2, repr(theirs))


def test_faults_name_what_is_wrong(tmp_path: Path) -> None:
    trainer = pycrfsuite.Trainer(verbose=False)
    with pytest.raises(ValueError, match=r"\|x\| = 1, \|y\| = 2"):
        trainer.append([["a"]], ["A", "B"])
    with pytest.raises(TypeError, match="position 1: a label must be a str"):
        trainer.append([["a"], ["b"]], ["A", 3])  # type: ignore[list-item]
    trainer.append([["a"], ["b"]], ["A", "B"])
    with pytest.raises(ValueError, match="must be a number"):
        trainer.append([["a"], {"b": None}], ["A", "B"])
    trainer.train(tmp_path / "m")  # the bad sequence left nothing behind
    tagger = pycrfsuite.Tagger()
    with pytest.raises(FileNotFoundError):
        tagger.open(tmp_path / "nothing")
    tagger.open(tmp_path / "m")
    assert tagger.info().attributes.keys() == {"a", "b"}
    assert tagger.probability(["A"]) == tagger.marginal("A", 0) == 0  # of no sequence
    tagger.tag([["a"], ["b"]])
    with pytest.raises(RuntimeError, match="label identifier: Q"):
        tagger.marginal("Q", 0)
    with pytest.raises(ValueError, match="out of range"):
        tagger.marginal("A", 2)
    for data in (b"", b"lCRF", b"xxxx" * 20, (tmp_path / "m").read_bytes()[:-200]):
        with pytest.raises(crfkit.ModelError):
            tagger.open_inmemory(data)


def test_dump_reads_as_the_originals(tmp_path: Path) -> None:
    train(original, tmp_path / "m", corpus(1))
    theirs, ours = original.Tagger(), pycrfsuite.Tagger()
    theirs.open(str(tmp_path / "m"))
    ours.open(tmp_path / "m")
    theirs.dump(str(tmp_path / "a"))
    ours.dump(tmp_path / "b")
    a, b = ((tmp_path / x).read_text().rstrip().split("\n") for x in "ab")
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if "-->" in x:
            assert np.isclose(float(x.rpartition(":")[2]), float(y.rpartition(":")[2]), atol=1e-6)
        else:
            assert x == y
