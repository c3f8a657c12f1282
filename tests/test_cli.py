"""The command line, as a user runs it."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command import run

import crfkit
from crfkit.compat import write_suite_model
from crfkit.data import load_corpus

TRAIN = """two CD B-Q
cups NN B-U
red JJ B-N
wine NN I-N

one CD B-Q
egg NN B-N

three CD B-Q
cups NN B-U
flour NN B-N
"""
UNSEEN = "four CD\ncups NN\nmilk NN\n\none CD\nwine NN\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "train.txt").write_text(TRAIN)
    (folder / "unseen.txt").write_text(UNSEEN)
    run("train", folder / "train.txt", "-m", folder / "model", "-q")
    return folder


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines() if line]


def test_train_says_what_it_does(folder: Path) -> None:
    out = run("train", folder / "train.txt", "-m", folder / "other", "--dev", folder / "train.txt", "--c2", "0.1")
    assert out.stdout == ""
    assert "read 3 sequences, 9 tokens" in out.stderr
    assert "dev f1: 100.00" in out.stderr
    assert "wrote" in out.stderr
    lines = run("train", folder / "train.txt", "-m", folder / "other", "--json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert {r["event"] for r in records} == {"iteration", "trained"}
    assert records[-1]["converged"]


def test_tag(folder: Path) -> None:
    out = run("tag", "-m", folder / "model", folder / "unseen.txt")
    assert rows(out.stdout)[0] == ["four", "CD", "B-Q"]
    assert out.stdout.count("\n\n") == 2
    assert "labelled 2 sequences, 5 tokens" in out.stderr
    assert run("tag", "-m", folder / "model", input=UNSEEN).stdout == out.stdout
    # a column of labels is copied, not looked at
    again = run("tag", "-m", folder / "model", "-q", input=TRAIN.replace("B-U", "B-N"))
    assert rows(again.stdout)[1] == ["cups", "NN", "B-N", "B-U"]
    assert again.stderr == ""
    run("tag", "-m", folder / "model", folder / "unseen.txt", "-o", folder / "out.txt")
    assert (folder / "out.txt").read_text() == out.stdout


def test_tag_with_probabilities_and_alternatives(folder: Path) -> None:
    out = rows(run("tag", "-m", folder / "model", "-p", input=UNSEEN).stdout)
    assert all(0 < float(row[-1]) <= 1 for row in out)
    best = run("tag", "-m", folder / "model", "--nbest", "3", input=UNSEEN).stdout
    ranks = [line.split() for line in best.splitlines() if line.startswith("# ")]
    assert [r[1] for r in ranks] == ["0", "1", "2"] * 2
    assert float(ranks[0][2]) >= float(ranks[1][2])
    records = [
        json.loads(x) for x in run("tag", "-m", folder / "model", "--json", "-p", input=UNSEEN).stdout.splitlines()
    ]
    assert records[0]["tokens"][0] == ["four", "CD"]
    assert len(records[0]["probabilities"]) == 3


def test_eval(folder: Path) -> None:
    out = run("eval", "-m", folder / "model", folder / "train.txt", "--confusion")
    assert "100.00" in out.stdout
    report = json.loads(run("eval", "-m", folder / "model", folder / "train.txt", "--json").stdout)
    assert report["f1"] == 1.0
    tagged = run("tag", "-m", folder / "model", folder / "train.txt").stdout
    (folder / "tagged.txt").write_text(tagged)
    assert json.loads(run("eval", folder / "tagged.txt", "--json").stdout)["f1"] == 1.0


def test_inspect(folder: Path) -> None:
    out = run("inspect", folder / "model", "--top", "3").stdout
    assert "trained on   3 sequences, 9 tokens" in out
    assert "largest weights for B-Q" in out
    assert "transitions" in out
    record = json.loads(run("inspect", folder / "model", "--json", "--label", "B-Q").stdout)
    assert list(record["weights"]) == ["B-Q"]
    lines = run("inspect", folder / "model", "--all").stdout.splitlines()
    assert len([line for line in lines if line.count("\t") == 2]) == len(lines)
    unknown = run("inspect", folder / "model", "--label", "Z", code=1)
    assert "the model has no label 'Z'" in unknown.stderr


def test_templates_formats_and_pipes(folder: Path) -> None:
    (folder / "template").write_text("U:%x[0,0]\nU1:%x[0,1]\nB\n")
    run("train", folder / "train.txt", "-m", folder / "t", "-t", folder / "template", "--constraints", "bio", "-q")
    assert rows(run("tag", "-m", folder / "t", input=UNSEEN).stdout)[0][-1] == "B-Q"
    with gzip.open(folder / "train.gz", "wt") as file:
        file.write(TRAIN)
    run("train", folder / "train.gz", "-m", folder / "g", "-q")
    run("train", "-", "-m", folder / "p", "-q", input=TRAIN)
    assert (folder / "g").read_bytes() == (folder / "p").read_bytes()
    (folder / "f.crfsuite").write_text("A\tw=a\tx:2\n\nB\tw=b\n")
    run("train", folder / "f.crfsuite", "-f", "crfsuite", "-m", folder / "c", "-q")
    assert run("tag", "-m", folder / "c", folder / "f.crfsuite").stdout == "A\n\nB\n\n"
    assert "accuracy" in run("eval", "-m", folder / "c", folder / "f.crfsuite", "--json").stdout
    conllu = (
        "# text = Dogs run\n1-2\tDogsrun\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tDogs\tdog\tNOUN\tNNS\t_\t0\troot\t_\t_\n2\trun\trun\tVERB\tVB\t_\t1\tx\t_\t_\n\n"
    )
    (folder / "f.conllu").write_text(conllu)
    run("train", folder / "f.conllu", "-f", "conllu", "--label", "xpos", "-m", folder / "u", "-q")
    tagged = run("tag", "-m", folder / "u", folder / "f.conllu").stdout
    assert tagged == conllu  # the labels in their column, everything else as it was
    assert run("tag", "-m", folder / "u", input=conllu).stdout == conllu
    assert json.loads(run("eval", "-m", folder / "u", folder / "f.conllu", "--json").stdout)["accuracy"] == 1.0
    run("train", folder / "f.conllu", "-f", "conllu", "--label", "upos+xpos", "-m", folder / "two", "-q")
    assert run("tag", "-m", folder / "two", folder / "f.conllu").stdout == conllu
    error = run("tag", "-m", folder / "u", "-q", input="1\tde\tde\n", code=1).stderr
    assert "<stdin>:1: CoNLL-U has 10 columns, the line has 3" in error


def test_columns_and_label_are_remembered(folder: Path) -> None:
    run("train", folder / "train.txt", "-m", folder / "k", "--columns", "0", "--label", "2", "-q")
    assert rows(run("tag", "-m", folder / "k", folder / "train.txt").stdout)[0] == ["two", "CD", "B-Q", "B-Q"]
    assert json.loads(run("eval", "-m", folder / "k", folder / "train.txt", "--json").stdout)["f1"] == 1.0
    run("train", folder / "train.txt", "-m", folder / "l", "--label", "0", "-q")
    first = rows(run("tag", "-m", folder / "l", folder / "train.txt").stdout)[0]
    assert first == ["two", "CD", "B-Q", "two"]


@pytest.mark.parametrize("hash_bits", [None, 12])
def test_a_model_of_python_takes_a_file_with_labels(hash_bits: int | None, tmp_path: Path) -> None:
    X, y = load_corpus("ingredients", "train")
    crf = crfkit.CRF(hash_bits=hash_bits, max_iter=5, tol=1).fit(X, y)
    crf.save(tmp_path / "model")
    (tmp_path / "test.txt").write_text("".join(f"{a}\tZ\n" for a in X[0]))
    found = rows(run("tag", "-m", tmp_path / "model", tmp_path / "test.txt").stdout)
    assert found == [[*row] for row in zip(X[0], "Z" * len(X[0]), crf.predict([X[0]])[0], strict=True)]
    assert "Z" not in run("inspect", tmp_path / "model", "--explain", tmp_path / "test.txt").stdout.split()
    error = run("tag", "-m", tmp_path / "model", input="a b c\n", code=1).stderr
    assert "the model was trained on 1 column (and a label), the file has 3" in error


@pytest.mark.parametrize("name", ["model.crfkit", "model.crfsuite"])
def test_attributes_that_no_model_knows_are_said(name: str, tmp_path: Path) -> None:
    crf = crfkit.CRF(start_end=False).fit([[["w=a"], ["w=b"]]], [["A", "B"]])
    crf.save(tmp_path / name) if name.endswith("kit") else write_suite_model(crf.model_, tmp_path / name)
    for command, text in (("tag", "a\nb\n"), ("eval", "a\tA\nb\tB\n\n")):
        (tmp_path / "words.txt").write_text(text)
        error = run(command, "-m", tmp_path / name, tmp_path / "words.txt").stderr
        assert error.count("warning") == error.count("words.txt: the model knows no attribute") == 1
        assert "-f crfsuite" in error
        assert "crfkit.load(path, features=...)" in error
        (tmp_path / "items.txt").write_text("A\tw=a\nB\tw=z\n")
        assert "warning" not in run(command, "-m", tmp_path / name, tmp_path / "items.txt").stderr


def _word(x: list[str], t: int) -> list[str]:
    return [x[t]]


def test_models_with_functions_and_of_other_tools(tmp_path: Path) -> None:
    crf = crfkit.CRF(features=_word, start_end=False).fit([["a", "b"]], [["A", "B"]])
    crf.save(tmp_path / "model")
    crfkit.load(tmp_path / "model").save(tmp_path / "again")  # keeps the name
    assert "features     function _word (not stored)\n" in run("inspect", tmp_path / "again").stdout
    error = run("tag", "-m", tmp_path / "again", input="a\n", code=1).stderr
    assert "works in Python only: pass the function to crfkit.load(path, features=_word)" in error
    write_suite_model(crf.model_, tmp_path / "old")
    assert "penalty" not in run("inspect", tmp_path / "old").stdout
    with pytest.raises(ValueError, match=r"set, got str; or give a function that makes them, features= of CRF or crf"):
        crfkit.load(tmp_path / "old").predict([["a", "b"]])
    error = run("tag", "-m", tmp_path / "old", "-e", "-o", tmp_path / "x.csv", input="A\ta\n", code=2).stderr
    assert "name the file .jsonl, not x.csv" in error


def test_labels_that_the_model_has_not_are_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("two CD X\ncups NN Y\n")
    error = run("eval", "-m", folder / "model", tmp_path / "other.txt").stderr
    assert "other.txt (X, Y) are none of the model's (B-N, B-Q, B-U, I-N): see --label" in error
    assert run("eval", "-m", folder / "model", folder / "train.txt").stderr == ""


def test_start_continues(folder: Path) -> None:
    more = TRAIN + "\n! . X\n"
    run("train", "-", "-m", folder / "more", "--warm-start", folder / "model", "-q", input=more)
    assert rows(run("tag", "-m", folder / "more", input="! .\n").stdout) == [["!", ".", "X"]]
    out = run(
        "train",
        "-",
        "-m",
        folder / "x",
        "--warm-start",
        folder / "model",
        "-t",
        folder / "template",
        input=more,
        code=2,
    )
    assert "exclude each other" in out.stderr


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["train", "-", "-m", "m", "--columns", "0,2"], "a b O\n", "crfkit: error: <stdin>: column 2 holds the labels"),
        (["train", "-", "-m", "m"], "a b O\nc O\n", "crfkit: error: <stdin>:2: expected 3 columns"),
        (["train", "missing.txt", "-m", "m"], None, "No such file or directory: missing.txt"),
        (["train", "-", "-m", "m"], "", "<stdin>: the file contains no sequences"),
        (["train", "-", "-m", "m", "--label", "9"], "a O\n", "there is no label column 9"),
        (["train", "-", "-m", "m", "--constraints", "bio"], "a NOUN\n", "label 'NOUN' does not fit scheme 'bio'"),
        (["tag", "-m", "missing"], "", "No such file or directory: missing"),
        (["inspect", "README"], None, "error"),
    ],
)
def test_faults_are_one_line(arguments: list[str], text: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "README").write_text("not a model\n")
    out = subprocess.run(
        [sys.executable, "-m", "crfkit", *arguments], input=text, capture_output=True, text=True, cwd=tmp_path
    )
    assert out.returncode == 1
    faults = [line for line in out.stderr.splitlines() if not line.startswith("read ")]
    assert len(faults) == 1
    assert message in faults[0]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("command", ["train", "tune", "encode"])
def test_too_many_labels_are_said_with_the_file(command: str, tmp_path: Path) -> None:
    data = tmp_path / "swapped.txt"
    data.write_text("".join(f"O x{2 * i}\nO x{2 * i + 1}\n\n" for i in range(5001)))
    option = "-o" if command == "encode" else "-m"
    out = run(command, data, option, tmp_path / "out", code=1)
    assert f"crfkit: error: {data}: there are 10,002 different labels" in out.stderr
    assert not (tmp_path / "out").exists()


def test_the_wrong_columns_are_named(folder: Path) -> None:
    out = run("tag", "-m", folder / "model", input="only\n", code=1)
    assert "the model was trained on 2 columns" in out.stderr
    assert run("train", code=2).stdout == ""  # usage


def test_a_closed_pipe_is_no_fault(folder: Path) -> None:
    big = "\n".join("four CD\ncups NN\n" for _ in range(20000))
    (folder / "big.txt").write_text(big)
    command = f"{sys.executable} -m crfkit tag -m {folder / 'model'} {folder / 'big.txt'} -q | head -n 1"
    out = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert out.stdout == "four\tCD\tB-Q\n"
    assert out.stderr == ""


def test_ctrl_c_writes_the_model(tmp_path: Path) -> None:
    lines = "\n".join("".join(f"w{i * k % 977}\tL{i * k % 97}\n" for i in range(40)) for k in range(1, 400))
    (tmp_path / "t.txt").write_text(lines)
    arguments = ["train", str(tmp_path / "t.txt"), "-m", str(tmp_path / "m"), "--json"]
    process = subprocess.Popen([sys.executable, "-m", "crfkit", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in json.loads(out.splitlines()[-1])["stopped"]
    assert (tmp_path / "m").exists()


def test_demo_version_and_help() -> None:
    out = run("demo").stdout
    assert "sequence accuracy" in out
    assert "smoked STATE 0." in out
    assert "\x1b[" not in out  # no terminal, no colours
    assert run("--version").stdout.startswith("crfkit 0.")
    for command in ("train", "tag", "eval", "inspect", "demo"):
        assert command in run(command, "--help").stdout
    assert "Did you mean 'train'?" in run("trian", code=2).stderr


def test_demo_writes_a_report(tmp_path: Path) -> None:
    out = run("demo", "--report", tmp_path / "report.html").stdout
    assert str(tmp_path / "report.html") in out
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in ("Entities in raw text", "Scores by type", "Confusion", "Transitions", "rather than", "<mark", "<svg"):
        assert part in page
    assert "http" not in page  # self-contained
    assert "<script" not in page
    for tag in ("div", "table", "tr", "td", "th", "mark", "details", "svg"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>")


def test_demo_writes_the_sample(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sample"
    for _ in range(2):  # files that are the same may stay
        out = run("demo", "--write", folder)
        assert [Path(line).name for line in out.stdout.split()] == ["raw.txt", "template.txt", "test.txt", "train.txt"]
    run("train", folder / "train.txt", "-t", folder / "template.txt", "-m", folder / "m", "--max-iter", "20", "-q")
    assert "all" in run("eval", "-m", folder / "m", folder / "test.txt").stdout
    found = run("tag", "-m", folder / "m", "--text", "--entities", folder / "raw.txt", "-q").stdout.splitlines()
    assert [bool(json.loads(line)["entities"]) for line in found] == [True] * 5
    (folder / "test.txt").write_text("mine")
    failed = run("demo", "--write", folder, code=2)
    assert f"{folder / 'test.txt'} already exists" in failed.stderr
    assert (folder / "test.txt").read_text() == "mine"
    failed = run("demo", "--write", folder / "test.txt", code=2)
    assert f"--write: {folder / 'test.txt'} is a file, not a folder" in failed.stderr
    failed = run("demo", "--write", folder, "--report", tmp_path / "report.html", code=2)
    assert "--report needs training, which --write leaves out" in failed.stderr
    failed = run("demo", "--report", tmp_path / "none" / "report.html", code=2)
    assert f"--report: the folder to write to does not exist: {tmp_path / 'none'}\n" in failed.stderr


def test_convert_and_other_tools_names(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from crfkit.cli import app

    run = CliRunner().invoke
    data = tmp_path / "data"
    data.write_text("A\tw=a\nB\tw=b\n\nA\tw=a\nB\tw=c\n")
    a, b, c = (str(tmp_path / x) for x in "abc")
    args = ["train", str(data), "-m", a, "-f", "crfsuite", "--no-start-end", "-q", "--set", "c2=0.25", "--set"]
    assert run(app, [*args, "feature.possible_transitions=0", "--set", "max_iterations=7"]).exit_code == 0
    crf = crfkit.load(a, kind=crfkit.CRF)
    assert (crf.c2, crf.all_possible_transitions, crf.max_iter) == (0.25, False, 7)
    assert run(app, ["convert", a, b, "--to", "crfsuite"]).exit_code == 0
    assert run(app, ["convert", b, c, "-q"]).exit_code == 0
    outputs = [run(app, ["tag", "-m", m, "-q", str(data)]).stdout for m in (a, b, c)]
    assert outputs[0] == outputs[1] == outputs[2] == "A\nB\n\nA\nB\n\n"
    columns = tmp_path / "columns"
    columns.write_text("a A\nb B\n")
    patterns = tmp_path / "patterns"
    patterns.write_text("*\nu:%x[0,0]\n")
    for names, c2 in ((["--rho1", "0.5", "--rho2", "3"], 1.5), (["--cost", "2"], 0.25)):
        assert run(app, ["train", str(columns), "-m", a, "--pattern", str(patterns), "-q", *names]).exit_code == 0
        assert crfkit.load(a, kind=crfkit.CRF).c2 == c2
    train = ["train", str(data), "-m", a, "-f", "crfsuite", "--no-start-end", "--max-iter", "3"]
    for algorithm, ours in (("l2sgd", "sgd"), ("averaged-perceptron", "ap"), ("passive-aggressive", "pa")):
        assert run(app, [*train, "-q", "-a", algorithm]).exit_code == 0
        assert crfkit.load(a, kind=crfkit.CRF).algorithm == ours
    result = run(app, [*train, "--algo", "l-bfgs", "--set", "num_memories=3", "--set", "linesearch=Backtracking"])
    assert result.exit_code == 0
    assert "not used, crfkit chooses by itself: linesearch" in result.stderr
    for names, c1, c2 in ((["-a", "CRF-L1", "--cost", "4"], 0.25, 0.0), (["-a", "CRF-L2", "--cost", "4"], 0.0, 0.125)):
        assert run(app, [*train, "-q", *names]).exit_code == 0
        assert (crfkit.load(a, kind=crfkit.CRF).c1, crfkit.load(a, kind=crfkit.CRF).c2) == (c1, c2)
    weights = []
    for more in ([], ["--set", "c=0.01"], ["--set", "type=2"]):
        assert run(app, [*train, "-q", "-a", "pa", *more]).exit_code == 0
        weights.append(crfkit.load(a, kind=crfkit.CRF).weights_)
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    data.write_text("A\tw=a\tx\nB\tw=b\n")
    assert "add -f crfsuite" in str(run(app, ["train", str(data), "-m", a]).exception)
    for bad in ("c9=1", "c1", "c1=x"):
        assert isinstance(run(app, [*args, bad]).exception, ValueError)
    assert isinstance(run(app, ["convert", str(columns), c]).exception, ValueError)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded sample as column files."""
    folder = tmp_path_factory.mktemp("sample")
    for part in ("train", "test"):
        X, y = load_corpus("ingredients", part)
        sequences = ("".join(f"{a}\t{b}\n" for a, b in zip(*s, strict=True)) for s in zip(X, y, strict=True))
        (folder / part).write_text("\n".join(sequences))
    return folder


def accuracy(sample: Path, *arguments: str) -> float:
    """Trains with held-out data, labels it, and checks that all three commands agree on the score."""
    model = str(sample / "model")
    train = run("train", sample / "train", "-m", model, "--dev", sample / "test", "--json", *arguments)
    strict = [json.loads(line, parse_constant=pytest.fail) for line in train.stdout.splitlines()]
    evaluated = json.loads(run("eval", sample / "test", "--model", model, "--json").stdout)
    assert strict[-1]["dev"]["accuracy"] == pytest.approx(evaluated["accuracy"])
    labelled = rows(run("tag", sample / "test", "--model-file", model, "-q").stdout)
    right = [row[-2] == row[-1] for row in labelled]
    assert sum(right) / len(right) == pytest.approx(evaluated["accuracy"])
    return float(evaluated["accuracy"])


@pytest.mark.parametrize(("kind", "least"), [("hmm", 0.87), ("memm", 0.86), ("crf", 0.88)])
def test_kinds_of_models(sample: Path, kind: str, least: float) -> None:
    options = () if kind == "hmm" else ("--c2", "0.1")
    found = accuracy(sample, "--kind", kind, *options)
    assert found > least
    model = crfkit.load(sample / "model")
    assert type(model).__name__ == kind.upper()
    X, y = load_corpus("ingredients", "test")
    assert model.score(X, y) == pytest.approx(found)
    text = run("train", sample / "train", "-m", sample / "again", "-k", kind, *options).stderr
    assert "weights active" in text
    assert "nan" not in text
    assert crfkit.load(sample / "again").predict(X) == model.predict(X)


def test_looking_into_hmms_and_memms(sample: Path) -> None:
    for kind in ("hmm", "memm"):
        run("train", sample / "train", "-m", sample / kind, "-k", kind, "--max-iter", "5")
        out = run("inspect", sample / kind).stdout
        assert ("smoothing    emissions 0.1" in out) == (kind == "hmm")
        assert ("likeliest transitions" in out) == (kind == "hmm")
        assert "nan" not in out
    assert "B-UNIT" in run("inspect", sample / "hmm", "--explain", sample / "test").stdout
    assert (
        "--explain is for CRFs, HMMs and segments"
        in run("inspect", sample / "memm", "--explain", sample / "test", code=1).stderr
    )


@pytest.mark.parametrize("algorithm", ["lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag", "ap", "pa", "arow"])
def test_algorithms(sample: Path, algorithm: str) -> None:
    options = () if algorithm in ("ap", "pa", "arow") else ("--c2", "0.1")
    assert accuracy(sample, "--algorithm", algorithm, *options) > 0.86


def test_a_seed_under_either_name(sample: Path) -> None:
    arguments = ("train", sample / "train", "-m", sample / "model", "-a", "sgd", "--max-iter", "2", "-q")
    found = []
    for option in ((), ("--seed", "0"), ("--random-state", "3"), ("--seed", "3")):
        run(*arguments, *option)
        found.append(crfkit.load(sample / "model", kind=crfkit.CRF).model_.weights)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[2], found[3])
    assert not np.array_equal(found[0], found[2])


def test_algorithms_of_memms(sample: Path) -> None:
    assert accuracy(sample, "--kind", "memm", "--algorithm", "sgd", "--max-iter", "10", "--c2", "0.1") > 0.85


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--kind", "hmm", "-a", "sgd"], 2, "--algorithm is not an option of --kind hmm, only of crf and memm"),
        (["--kind", "hmm", "--c1", "5"], 2, "--c1 is not an option of --kind hmm, only of crf and memm"),
        (["--kind", "hmm", "--c2", "1"], 2, "--c2 is not an option of --kind hmm"),
        (["--kind", "hmm", "--cost", "1"], 2, "--cost is not an option of --kind hmm"),
        (["--kind", "hmm", "--set", "c2=1"], 2, "--set is not an option of --kind hmm"),
        (["--kind", "hmm", "-t", "none.txt"], 2, "--template is not an option of --kind hmm, only of crf and memm"),
        (["--kind", "hmm", "-f", "crfsuite"], 2, ""),
        (["--kind", "memm", "--beam", "fixed:3"], 2, "--beam is not an option of --kind memm, only of crf"),
        (["--kind", "memm", "--no-start-end"], 2, "--start-end is not an option of --kind memm, only of crf"),
        (["--kind", "memm", "--warm-start", "none"], 2, "--warm-start is not an option of --kind memm, only of crf"),
        (["--kind", "memm", "--constraints", "bio"], 2, "--constraints is not an option of --kind memm, only of crf"),
        (["--kind", "some.model"], 2, "'some.model' is not one of 'crf', 'hmm', 'memm'"),
        (["--algorithm", "adam"], 2, "--algorithm must be one of 'lbfgs'"),
    ],
)
def test_kinds_and_algorithms_that_do_not_fit(sample: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in run("train", sample / "train", "-m", sample / "no", *arguments, code=code).stderr
    assert not (sample / "no").exists()


def test_files_that_would_be_lost(folder: Path) -> None:
    data = (folder / "train.txt").read_text()
    (folder / "same.txt").write_text(data)
    error = run("train", folder / "same.txt", "-m", folder / "same.txt", "-q", code=2).stderr
    assert "would overwrite one of its input files" in error
    assert (folder / "same.txt").read_text() == data
    run("train", folder / "same.txt", "-m", folder / "kept", "-q", "--max-iter", "1")
    error = run("tag", "-m", folder / "kept", folder / "same.txt", "-o", folder / "nowhere" / "out", code=2).stderr
    assert "the folder to write to does not exist" in error
    assert "nowhere" in error
    assert run("inspect", folder / "kept", "--top", "0", code=2).stderr


@pytest.mark.parametrize("algorithm", ["lbfgs", "newton-cg", "sgd", "smd", "adagrad", "sag"])
def test_unlabelled_data_with_every_optimiser(folder: Path, algorithm: str) -> None:
    how = ("--entropy-weight", "0.1", "-a", algorithm, "--max-iter", "12")
    out = run(
        "train", folder / "train.txt", "--unlabelled", folder / "unseen.txt", *how, "-m", folder / "semi", "--json"
    )
    told = [json.loads(line) for line in out.stdout.splitlines()]
    assert told[-1]["event"] == "trained"
    assert told[-2]["terms"]["entropy"] > 0
    tagged = run("tag", folder / "unseen.txt", "-m", folder / "semi").stdout
    assert [row[-1] for row in rows(tagged)][:2] == ["B-Q", "B-U"]


@pytest.mark.parametrize("method", ["expectation", "posterior"])
def test_expectations_of_unlabelled_data(folder: Path, method: str) -> None:
    path = folder / "expectations.txt"
    path.write_text("# what is known\nlower[0]=two  B-Q:0.9\n*  B-N,B-U>=0.3\n")
    how = ("--unlabelled", folder / "train.txt", "--expectations", path, "--expectation-method", method)
    out = run("train", folder / "train.txt", *how, "-m", folder / "expected", "--json", "--columns", "0,1")
    told = [json.loads(line) for line in out.stdout.splitlines()]
    assert told[-1]["event"] == "trained"
    assert told[-2]["terms"]["expectations"] >= 0
    assert "entropy" not in told[-2]["terms"]
    path.write_text("\nlower[0]=two  B-Q:high\n")
    error = run("train", folder / "train.txt", *how, "-m", folder / "expected", code=1).stderr
    assert "expectations.txt:2: a fraction must be a number, got 'high'" in error
    path.write_text("label=B  B-Q:2\n")  # an attribute, not an option
    error = run("train", folder / "train.txt", *how, "-m", folder / "expected", code=1).stderr
    assert "expectations.txt:1: label=B: probabilities must lie between 0 and 1" in error


def test_hidden_states(folder: Path) -> None:
    how = ("--hidden-states", "2", "--n-init", "2", "--max-iter", "20", "-q")
    run("train", folder / "train.txt", *how, "-m", folder / "hidden")
    found = crfkit.load(folder / "hidden")
    assert isinstance(found, crfkit.CRF)
    assert len(found.model_.labels) == 2 * len(found.classes_)


def test_margins_take_unknown_labels_but_no_entropy(folder: Path) -> None:
    (folder / "partial.txt").write_text(TRAIN.replace("red JJ B-N", "red JJ ?"))
    run("train", folder / "partial.txt", "--unknown", "?", "-a", "pa", "-m", folder / "margin", "-q")
    how = ("--unlabelled", folder / "unseen.txt", "--entropy-weight", "0.1", "-a", "pa")
    out = run("train", folder / "train.txt", *how, "-m", folder / "margin", code=2)
    assert "--entropy-weight must be 0 for the algorithm 'pa'" in out.stderr


def test_tag_entities_of_raw_text(tmp_path: Path) -> None:
    """Raw text in, entities with their places out; the same labels as of the tokens in columns."""
    (tmp_path / "train.txt").write_text("Anna B-PER\nLee I-PER\nleft O\n. O\n\nBob B-PER\nran O\n. O\n")
    run("train", tmp_path / "train.txt", "-m", tmp_path / "model", "-q", "--c2", "0.1")
    text = "\ufeffAnna Lee ran.\n\nBob  left. Élan ran.\n"
    for name, packed in (("raw.txt", text.encode()), ("raw.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(packed)
        out = run("tag", "-m", tmp_path / "model", tmp_path / name, "--text", "--entities", "-q")
        records = [json.loads(line) for line in out.stdout.splitlines()]
        assert [r["text"] for r in records] == ["Anna Lee ran.", "Bob  left.", "Élan ran."]
        assert records[1]["tokens"] == ["Bob", "left", "."]
        assert [e["text"] for r in records[:2] for e in r["entities"]] == ["Anna Lee", "Bob"]
        for r in records:
            assert text[1:][r["char_start"] : r["char_end"]] == r["text"]
            for e in r["entities"]:
                assert text[1:][e["char_start"] : e["char_end"]] == e["text"]
                assert 0 < e["probability"] <= 1
                assert set(e) == {"label", "start", "end", "text", "probability", "char_start", "char_end"}
    tagged = run("tag", "-m", tmp_path / "model", "--text", "-q", input="Anna Lee ran.").stdout
    assert rows(tagged) == [["Anna", "B-PER"], ["Lee", "I-PER"], ["ran", "O"], [".", "O"]]
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"caf\xe9 au lait\n")
    assert "bad.txt:1: not valid UTF-8" in run("tag", "-m", tmp_path / "model", bad, "--text", code=1).stderr
    many = "Anna Lee ran. Bob left.\r\n\n" * 3000  # more than is read at a time
    out = run("tag", "-m", tmp_path / "model", "--text", "--lines", "--entities", "-q", input=many)
    records = [json.loads(line) for line in out.stdout.splitlines()]
    assert [r["text"] for r in records] == ["Anna Lee ran. Bob left."] * 3000
    assert all(many[r["char_start"] : r["char_end"]] == r["text"] for r in records)
    assert "--lines needs --text" in run("tag", "-m", tmp_path / "model", "--lines", code=2).stderr


@pytest.mark.parametrize("option", ["--entities", "--json"])
def test_tokens_in_json_are_those_of_the_model(option: str, tmp_path: Path) -> None:
    """A label column in the input does not change them."""
    (tmp_path / "train.txt").write_text("2 B-QTY\neggs B-NAME\n\nsalt B-NAME\n")
    (tmp_path / "bare.txt").write_text("2\neggs\n\nsalt\n")
    run("train", tmp_path / "train.txt", "-m", tmp_path / "model", "-q")
    outs = [run("tag", "-m", tmp_path / "model", tmp_path / f, option, "-q").stdout for f in ("train.txt", "bare.txt")]
    assert outs[0] == outs[1]
    assert [json.loads(line)["tokens"] for line in outs[0].splitlines()] == [["2", "eggs"], ["salt"]]


def test_tag_entities_of_columns(folder: Path) -> None:
    out = run("tag", "-m", folder / "model", folder / "unseen.txt", "--entities", "-q").stdout
    records = [json.loads(line) for line in out.splitlines()]
    assert records[0]["tokens"] == [["four", "CD"], ["cups", "NN"], ["milk", "NN"]]
    assert [(e["label"], e["start"], e["end"], e["text"]) for e in records[0]["entities"]] == [
        ("Q", 0, 1, "four"),
        ("U", 1, 2, "cups"),
        ("N", 2, 3, "milk"),
    ]
    for options, message, code in (
        (["--entities", "--nbest", "2"], "leave out --nbest and --beam", 2),
        (["--text", "-f", "conllu"], "leave out --format conllu", 2),
        (["--text"], "--text needs a model of tokens alone", 1),
    ):
        assert message in run("tag", "-m", folder / "model", *options, input="x", code=code).stderr


def test_a_file_without_blank_lines_is_said(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    for text, options, warned in (
        ("a A\nb B\n" * 501, ("--max-iter", "2"), True),
        ("a A\nb B\n" * 501, ("--kind", "hmm"), False),
        ("a A\nb B\n" * 500 + "\na A\nb B\n", ("--max-iter", "2"), False),
    ):
        path.write_text(text)
        error = run("train", path, "-m", tmp_path / "model", *options).stderr
        assert ("long.txt: no blank line found: all 1,002 tokens are one sequence" in error) == warned


def test_an_end_at_max_iter_is_said(folder: Path) -> None:
    out = run("train", folder / "train.txt", "-m", folder / "short", "--max-iter", "2")
    [line] = [line for line in out.stderr.splitlines() if "warning" in line]
    assert "stopped after 2 iterations, before it had converged: raise --max-iter" in line
    assert "(stopped after 2 iterations)" in run("inspect", folder / "short").stdout
    assert "after 2 iterations (stopped" not in run("inspect", folder / "short").stdout
    assert "warning" not in run("train", folder / "train.txt", "-m", folder / "long").stderr
    assert crfkit.load(folder / "long", kind=crfkit.CRF).model_.info["reason"] in ("converged", "tolerance")
