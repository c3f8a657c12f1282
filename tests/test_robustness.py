"""Input that once went wrong: long, flat, nested, damaged, concurrent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfkit
from crfkit import CRF, Template, chain
from crfkit.chain import Constraints, Potentials
from crfkit.model.chain_model import read_file, write_file


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("steps", "labels"), [(1500, 2), (240, 22), (20000, 5)])
def test_flat_long_sequences(dtype: Any, steps: int, labels: int) -> None:
    p = Potentials(np.zeros((steps, labels), dtype), np.zeros((labels, labels), dtype))
    assert chain.log_partition(p) == pytest.approx(steps * np.log(labels), rel=1e-6)
    assert chain.marginals(p).log_z == pytest.approx(steps * np.log(labels), rel=1e-6)


def test_training_on_a_long_sequence() -> None:
    X = [[f"w{i % 9}" for i in range(1100)]]
    y = [["XYZ"[i % 3] for i in range(1100)]]
    crf = CRF().fit(X, y)
    assert crf.score(X, y) == 1.0
    assert crf.predict_nbest([["w1", "w2"] * 800], k=1)[0][0].probability > 0


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e4])
def test_probabilities_of_long_sequences_add_up(scale: float) -> None:
    rng = np.random.default_rng(0)
    p = Potentials(rng.normal(0, scale, (100_000, 3)), rng.normal(0, scale, (3, 3)))
    found = chain.marginals(p)
    assert np.abs(found.nodes.sum(1) - 1).max() < 1e-10
    assert np.abs(found.edges.sum((1, 2)) - 1).max() < 1e-10
    assert np.abs(found.edges.sum(2) - found.nodes[:-1]).max() < 1e-9


def test_items_that_hold_themselves() -> None:
    item: dict[str, Any] = {}
    item["x"] = item
    with pytest.raises(ValueError, match=r"sequence 0, position 0: .*nested"):
        CRF(None).fit([[item]], [["A"]])


def test_dict_instead_of_a_sequence() -> None:
    with pytest.raises(ValueError, match="must be a list"):
        CRF().fit([{"a": 1}], [["A"]])


def test_an_error_in_a_generator_is_the_users_own() -> None:
    def broken() -> Any:
        yield {"a": 1}
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        CRF(None).fit([broken()], [["A"]])


@pytest.mark.parametrize("text", ["U:%x[0,2147483647]", "U:%x[-99999999999,0]", "U:%x[-2147483648,0]"])
def test_templates_far_away(text: str) -> None:
    with pytest.raises(ValueError, match=r"<template>:1: .*away"):
        Template(text)


def test_same_text_of_two_columns_is_one_attribute() -> None:
    template = Template("U:%x[0,0]\nU:%x[0,1]\nUj:%x[0,0]/%x[1,0]\nUj:%x[0,1]/%x[1,1]")
    crf = CRF(template, start_end=False).fit([[("a", "p")], [("b", "p")]], [["A"], ["B"]])
    names = crf.model_.encoder.names()
    assert sorted(names) == sorted({"U:a", "U:b", "U:p", "Uj:a/_B+1", "Uj:b/_B+1", "Uj:p/_B+1"})
    # "a" was seen in the first column only, and is the same attribute in the second
    assert crf.predict([[("z", "a")], [("z", "b")]]) == [["A"], ["B"]]


def _models(tmp_path: Path) -> tuple[CRF, Path]:
    crf = CRF(Template("U:%x[0,0]")).fit([["a", "b"]], [["A", "B"]])
    path = tmp_path / "m.crfkit"
    crf.save(path)
    return crf, path


def _edit(path: Path, change: Any) -> None:
    header, arrays = read_file(path)
    change(header)
    write_file(path, header, arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["encoder"]["plan"]["nodes"].__setitem__(0, ["leaf"]),
        lambda h: h["encoder"]["plan"]["nodes"].__setitem__(0, []),
        lambda h: h["encoder"]["plan"]["nodes"].__setitem__(0, ["leaf", "x", 0, 0]),
        lambda h: h["encoder"]["plan"]["nodes"].__setitem__(0, ["leaf", 2147483647, 0, 0]),
        lambda h: h["encoder"]["plan"]["nodes"].__setitem__(0, ["leaf", 10**30, 0, 0]),
        lambda h: h.update(dtype="int32"),
        lambda h: h.update(labels=["A", "A"]),
        lambda h: h.update(labels=[["A"], ["B"]]),
        lambda h: h.update(params=[]),
        lambda h: h.update(info=None),
    ],
)
def test_damaged_headers(tmp_path: Path, change: Any) -> None:
    _, path = _models(tmp_path)
    _edit(path, change)
    with pytest.raises(crfkit.ModelError, match=r"m\.crfkit"):
        crfkit.load(path)


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    _, path = _models(tmp_path)
    crf = crfkit.load(path)
    path.write_bytes(b"")
    assert crf.predict([["a", "b"]]) == [["A", "B"]]


def test_constraints_from_an_iterator_stay() -> None:
    X, y = [["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]]
    crf = CRF(constraints=iter([("A", "A")])).fit(X, y)
    assert crf.model_.constraints is not None
    assert not crf.model_.constraints.transitions[0, 0]


def test_constraints_are_checked() -> None:
    with pytest.raises(ValueError, match="bool array of shape"):
        Constraints(np.ones((2, 2), int), np.ones(2, bool), np.ones(2, bool))
    with pytest.raises(ValueError, match="'ZZ'"):
        CRF(constraints=[("A", "ZZ")]).fit([["a"]], [["A"]])


@pytest.mark.parametrize("out", [np.empty(6, np.float32), np.empty(12)[::2]])
def test_results_are_not_lost_in_a_copy(out: Any) -> None:
    f = CRF(start_end=False, features=None).objective([[["a"], ["b"]]], [["A", "B"]])
    assert f.size == 6
    with pytest.raises(TypeError):
        f.value_and_grad(np.zeros(6), out)


def test_one_objective_on_several_threads() -> None:
    rng = np.random.default_rng(0)
    X = [[str(k) for k in rng.integers(0, 30, 12)] for _ in range(200)]
    y = [[str(k) for k in rng.integers(0, 5, 12)] for _ in range(200)]
    f = CRF().objective(X, y)
    points = [rng.normal(size=f.size) for _ in range(4)]
    expected = [f.value_and_grad(w) for w in points]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(10):
            value, gradient = f.value_and_grad(points[k])
            if value != expected[k][0] or not np.array_equal(gradient, expected[k][1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_no_sequences() -> None:
    p = Potentials(np.zeros((0, 2)), np.zeros((2, 2)), offsets=[0])
    assert chain.decode(p) == []
    assert chain.decode(p, beam=chain.FixedSize(1)) == []
    assert chain.sample(p, 2, rng=0) == []
    assert chain.nbest(p, 2) == []


def test_predictions_in_pieces_name_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    crf = CRF().fit([["a", "b"]], [["A", "B"]])
    monkeypatch.setattr("crfkit.model.chain_model._PIECE", 2)
    assert crf.predict([["a", "b"]] * 5) == [["A", "B"]] * 5
    with pytest.raises(ValueError, match="sequence 3"):
        crf.predict([["a", "b"], ["a"], ["b"], ["a", 3]])


@pytest.mark.parametrize("isa", ["base", "avx2"])
def test_other_instruction_sets_give_the_same(isa: str) -> None:
    code = (
        "import numpy as np; from crfkit import chain, CRF\n"
        "rng = np.random.default_rng(0)\n"
        "p = chain.Potentials(rng.normal(size=(40, 23)).astype('f'), rng.normal(size=(23, 23)).astype('f'))\n"
        "m = chain.marginals(p); b = chain.marginals(p, beam=chain.MinDivergence(0.01, 2))\n"
        "print(m.log_z, m.nodes[7, 3], b.log_z, chain.decode(p).tolist(), chain.nbest(p, 3).scores.tolist())\n"
        "f = CRF().objective([['a', 'b', 'c'] * 9] * 40, [['x', 'y', 'z'] * 9] * 40)\n"
        "v, g = f.value_and_grad(np.linspace(-1, 1, f.size)); print(v, np.abs(g).sum())\n"
    )
    out = []
    for name in (isa, ""):
        env = {**os.environ, "CRFKIT_ISA": name} if name else dict(os.environ)
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        if name and "not" in run.stderr and "instruction" in run.stderr:
            pytest.skip(f"this processor has no {isa}")
        assert run.returncode == 0, run.stderr
        out.append([json.loads(x) for x in run.stdout.replace(", ", ",").split()])
    for a, b in zip(*out, strict=True):
        assert a == pytest.approx(b, rel=2e-5)
