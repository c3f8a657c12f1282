"""Segments on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command import run

from crfkit import load

DATA = "in O\nNew B-LOC\nYork I-LOC\n\nAnna B-PER\nleft O\nRome B-LOC\n"


def test_train_tag_inspect(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA)
    run("train", data, "-m", model, "--kind", "segment", "--dictionary", "--c2", "0.1", "-q")
    tagged = run("tag", "-m", model, data, "-q").stdout
    assert [line.split()[-1] for line in tagged.splitlines() if line] == [x.split()[1] for x in DATA.splitlines() if x]
    likely = run("tag", "-m", model, data, "-q", "-p").stdout.splitlines()[0].split()
    assert 0.5 < float(likely[-1]) <= 1
    entities = [json.loads(line) for line in run("tag", "-m", model, data, "-q", "--entities").stdout.splitlines()]
    assert [e["text"] for e in entities[0]["entities"]] == ["New York"]
    best = run("tag", "-m", model, data, "-q", "-n", "2").stdout
    assert best.startswith("# 0 0.")
    assert "segment text=new york" in run("inspect", model, "-n", "200").stdout
    assert "New York: LOC" in run("inspect", model, "--explain", data).stdout


def test_tags_of_other_schemes_are_compared_as_segments(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA.replace("I-LOC", "E-LOC").replace("B-PER", "S-PER").replace("Rome B", "Rome S"))
    out = run("train", data, "-m", model, "--kind", "segment", "--c2", "0.01", "--dev", data, "-q", "--json").stdout
    assert json.loads(run("eval", data, "-m", model, "--json").stdout)["accuracy"] == 1.0
    assert '"accuracy": 1.0' in out


def test_seen(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA + "\nto O\nRome B-LOC\n")
    run("train", data, "-m", model, "--kind", "segment", "--seen", "-q")
    names = run("inspect", model, "-n", "200").stdout
    assert "segment seen as LOC: times>=1 share>=0.95" in names
    assert "segment text=" not in names
    assert "--seen is not an option of --kind crf" in run("train", data, "-m", model, "--seen", code=2).stderr


def test_ends(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA)
    run("train", data, "-m", model, "--kind", "segment", "--ends", "-q")
    crf: Any = load(model)
    assert crf.ends
    assert crf.predict([["in", "New", "York"]]) == [["O", "B-LOC", "I-LOC"]]
    assert "--ends is not an option of --kind crf" in run("train", data, "-m", model, "--ends", code=2).stderr


def test_options_are_checked(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text(DATA)
    out = run("train", data, "-m", tmp_path / "m", "--kind", "segment", "--max-length", "1", code=1)
    assert "more than --max-length 1: set --max-length 2, or --too-long cut" in out.stderr
    out = run("train", data, "-m", tmp_path / "m", "--max-length", "1", code=2)
    assert "--max-length is not an option of --kind crf" in out.stderr


def test_plans_are_of_models_that_are_optimised_over_a_file(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text(DATA)
    for kind in ("segment", "hmm"):
        out = run("train", data, "-m", tmp_path / "m", "--kind", kind, "--plan", code=2)
        assert f"--plan is for --kind crf and memm, not for {kind}" in out.stderr


def test_inspect_names_first_and_last_tokens(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA)
    run("train", data, "-m", model, "--kind", "segment", "--ends", "--c2", "0.1", "-q")
    rows = [line.split("\t") for line in run("inspect", model, "--all").stdout.splitlines()]
    assert {x[1] for x in rows if x[0] == "word=New" and "LOC" in x[1]} == {"LOC", "first of LOC"}
    expected = [name if part == "LOC" else f"{part}: {name}" for name, part, _ in rows if part.endswith("LOC")]
    names = [x for x, _ in json.loads(run("inspect", model, "--json", "-n", "9999").stdout)["weights"]["LOC"]]
    assert names == expected[: len(names)]
    assert len(set(names)) == len(names)
    assert {"word=New", "first of LOC: word=New", "last of LOC: word=York"} <= set(names)
    assert "  first of LOC: word=New\n" in run("inspect", model, "--label", "LOC", "-n", "9999").stdout


def test_probabilities_are_of_types(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    data.write_text(DATA)
    run("train", data, "-m", model, "--kind", "segment", "-q")
    rows = [line.split() for line in run("tag", "-m", model, data, "-q", "-p").stdout.splitlines()[:3]]
    crf: Any = load(model)
    chances = crf.predict_marginals([["in", "New", "York"]])[0]
    types = [str(x) for x in crf.model_.labels]
    for (*_, tag, chance), row in zip(rows, chances, strict=True):
        assert abs(float(chance) - row[types.index(tag[2:] or tag)]) < 1e-4
    assert "of its type" in " ".join(run("tag", "--help").stdout.split())
    page = (Path(__file__).parent.parent / "docs" / "segments.md").read_text()
    assert "the probability that the token lies in a segment of type X" in page


def test_transitions_in_a_file_are_whole(tmp_path: Path) -> None:
    data, model = tmp_path / "data.txt", tmp_path / "model"
    kinds = [f"{x}TYPE" for x in "ABCDEFGHIJ"]
    data.write_text("".join(f"w{k} B-{k}\nx O\n" for k in kinds))
    run("train", data, "-m", model, "--kind", "segment", "-q")
    table = run("inspect", model).stdout.split("transitions (row, then column)")[1].splitlines()[1:]
    assert table[0].split() == [*kinds, "O"]
    crf: Any = load(model)
    expected = crf.model_.transition_table()
    assert [[float(x) for x in line.split()[1:]] for line in table[1:12]] == expected.round(2).tolist()
