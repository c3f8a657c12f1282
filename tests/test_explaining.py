"""Explanations: contributions add up to the log-odds that enumeration-free scoring gives."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crfkit import CRF, Template, chain
from crfkit.cli import app
from crfkit.data import load_corpus

X = [[("The", "D"), ("dog", "N"), ("runs", "V")], [("A", "D"), ("cat", "N")], [("dogs", "N"), ("run", "V")]]
Y = [["d", "n", "v"], ["d", "n"], ["n", "v"]]
TEMPLATE = Template("U0:%x[0,0]\nU1:%x[-1,1]/%x[0,1]\nB\nB1:%x[0,1]\nB2:%x[-1,1]/%x[0,1]")


def score(p: chain.Potentials, path: list[int]) -> float:
    n = len(path)
    total = float(p.unary[np.arange(n), path].sum())
    for t in range(1, n):
        table = p.pairwise if p.pairwise.ndim == 2 else p.pairwise[t - 1]
        total += float(table[path[t - 1], path[t]])
    return total


@pytest.mark.parametrize("features", [TEMPLATE, "auto"])
@pytest.mark.parametrize("y", [None, ["v", "d", "n"]])
def test_contributions_add_up(features: Any, y: Any) -> None:
    crf = CRF(features, c2=0.1).fit(X, Y)
    found = crf.explain(X[0], y)
    p = crf.potentials([X[0]])
    labels = list(crf.classes_)
    nodes = crf.predict_marginals([X[0]])[0]
    path = [labels.index(d.label) for d in found]
    assert [d.label for d in found] == (y or crf.predict([X[0]])[0])
    for t, d in enumerate(found):
        other = labels.index(d.runner_up)
        replaced = [*path[:t], other, *path[t + 1 :]]
        assert d.log_odds == pytest.approx(score(p, path) - score(p, replaced), abs=1e-9)
        assert d.log_odds == pytest.approx(sum(c.amount for c in d.contributions))
        assert d.probability == pytest.approx(nodes[t, path[t]])
        assert d.runner_up_probability == pytest.approx(max(nodes[t, j] for j in range(3) if j != path[t]))
        amounts = [abs(c.amount) for c in d.contributions]
        assert all(a > b - 2e-4 * amounts[0] for a, b in itertools.pairwise(amounts))
        same = [(a, b) for a, b in itertools.pairwise(d.contributions) if abs(a.amount) == abs(b.amount)]
        assert all(a.name <= b.name for a, b in same)
        for c in d.contributions:
            assert c.amount == pytest.approx(c.value * (c.label_weight - c.runner_up_weight))


def test_values_and_items() -> None:
    crf = CRF(start_end=False).fit([[{"n": 2.5, "w": "a"}, {"n": -1.0, "w": "b"}]], [["A", "B"]])
    first = crf.explain([{"n": 2.5, "w": "a", "new": 1}])[0]
    assert {(c.kind, c.name, c.value) for c in first.contributions} == {
        ("attribute", "n", 2.5),
        ("attribute", "w:a", 1.0),
    }
    assert "n = 2.5" in str(crf.explain([{"n": 2.5}]))


def test_the_runner_up_is_allowed() -> None:
    """Of the labels that the constraints allow between the neighbours, the most probable; or none."""
    x, y = ["a", "b", "c", "d"], ["B-X", "I-X", "O", "B-Y"]
    crf = CRF(constraints="bio", c2=0.1).fit([x], [y])
    found = crf.explain(x)
    assert [d.label for d in found] == y
    p = crf.potentials([x])
    labels = list(crf.classes_)
    nodes = crf.predict_marginals([x])[0]
    path = [labels.index(label) for label in y]
    for t, d in enumerate(found):
        scores = [score(p, [*path[:t], j, *path[t + 1 :]]) for j in range(len(labels))]
        others = [j for j in range(len(labels)) if j != path[t] and np.isfinite(scores[j])]
        if not others:
            assert (d.runner_up, d.log_odds, d.contributions) == (None, np.inf, ())
            continue
        best = others[int(np.argmax(nodes[t, others]))]
        assert d.runner_up == labels[best]
        assert d.log_odds == pytest.approx(scores[path[t]] - scores[best])
    assert found[0].runner_up is None  # only B-X may stand before I-X
    assert "a: B-X" in str(found)
    assert "no other label is allowed here" in str(found)
    assert "no other label is allowed here" in found.to_html()
    assert "inf" not in str(found) + found.to_html()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["decisions"][0]["log_odds"] is None


def test_given_labels_that_are_forbidden() -> None:
    crf = CRF(constraints="bio").fit([["a", "b", "c"]], [["B-X", "I-X", "O"]])
    found = crf.explain(["a", "b", "c"], ["O", "I-X", "O"])
    assert found[1].log_odds == -np.inf
    assert [c.name for c in found[1].contributions if c.kind == "constraint"] == ["I-X is not allowed here"]
    json.dumps(found.to_dict(), allow_nan=False)


def test_html_escapes() -> None:
    crf = CRF().fit([["<b>", "&"]], [["<A>", "B"]])
    view = crf.explain(["<b>", "&"]).to_html()
    assert "<b>&lt;b&gt;</b>" in view
    assert "<A>" not in view
    assert crf.explain([]).to_html().endswith("</div>")


def test_one_label_and_faults() -> None:
    crf = CRF().fit([["a"]], [["A"]])
    assert crf.explain(["a"])[0].runner_up is None
    assert "A (1.000)" in str(crf.explain(["a"]))
    with pytest.raises(ValueError, match="each of 1 token,"):
        crf.explain(["a"], ["A", "A"])
    with pytest.raises(ValueError, match="position 0: 'B' is not"):
        crf.explain(["a"], ["B"])


def test_command(tmp_path: Path) -> None:
    data, y = load_corpus("ingredients", "train")
    CRF(max_iter=20).fit(data, y).save(tmp_path / "m")
    (tmp_path / "in.txt").write_text("two\nred\napples\n\none\npear\n")
    run = CliRunner().invoke
    text = run(app, ["inspect", str(tmp_path / "m"), "--explain", str(tmp_path / "in.txt"), "-n", "3"])
    assert text.exit_code == 0, text.output
    assert "two: B-QTY" in text.stdout
    lines = run(app, ["inspect", str(tmp_path / "m"), "--explain", str(tmp_path / "in.txt"), "--json"]).stdout
    assert [len(json.loads(line)["decisions"]) for line in lines.splitlines()] == [3, 2]
    page = tmp_path / "page.html"
    assert (
        run(app, ["inspect", str(tmp_path / "m"), "--explain", str(tmp_path / "in.txt"), "--html", str(page)]).exit_code
        == 0
    )
    assert page.read_text().count("crfkit-explanation") == 2
