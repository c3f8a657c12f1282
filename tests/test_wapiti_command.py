"""Wapiti's command line: what its callers give and read."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import crfkit
from crfkit import CRF
from crfkit.chain import log_partition, marginals, nbest, score
from crfkit.compat import read_foreign_model
from crfkit.compat.wapiti.command import main
from crfkit.compat.wapiti.options import parse
from crfkit.compat.wapiti.text import read_text
from crfkit.data import read_columns

COMMAND = [sys.executable, "-m", "crfkit.compat.wapiti.command"]
PATTERNS = """# words, neighbours, shapes
*
U:word=%X[ 0,0]
u:left=%x[-1,0]
u:caps=%t[0,0,"^\\u"]
*:tag=%x[0,1]
b:tags=%x[-1,1]/%x[0,1]
"""
TRAIN = """Two CD B
red JJ I
pears NN I

One CD B
pear NN I
and CC O
three CD B
figs NN I

Wash VB O
the DT O
Figs NN O
"""
TEST = "Two CD B\nfigs NN I\n\nthree  CD\tB \nred JJ I\npear NN I\nand CC X\n"


class Ran(NamedTuple):
    """What a run of the command wrote."""

    stdout: str
    stderr: str


def run(*arguments: Any, code: int = 0, input: str = "") -> Ran:
    """Runs the command within this process, which starts sooner."""
    streams = [io.TextIOWrapper(io.BytesIO(text), encoding="utf-8") for text in (input.encode(), b"", b"")]
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            main([str(x) for x in arguments])
    texts = []
    for stream in streams[1:]:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    assert ended.value.code == code, texts
    return Ran(*texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wapiti")
    for name, text in (("patterns", PATTERNS), ("train", TRAIN), ("test", TEST)):
        (path / name).write_text(text)
    run(
        "train",
        "-p",
        path / "patterns",
        "-1",
        "0.01",
        "-2",
        "0.1",
        "-w",
        0,
        "-e",
        0,
        "-i",
        40,
        path / "train",
        path / "m",
    )
    return path


def test_training_reports_and_writes_as_wapiti_does(folder: Path) -> None:
    """The lines that callers parse: the summary, and one for each iteration."""
    model = folder / "again"
    options = ["--nthread", 2, "-j", 1, "-1", "0.01", "-2", "0.1", "-e", "0.00001", "-w", 20, "-i", 30]
    out = run("train", *options, "-p", folder / "patterns", folder / "train", model)
    assert out.stdout == ""
    lines = out.stderr.splitlines()
    assert lines[:5] == [
        "* Load patterns",
        "* Load training data",
        "* Initialize the model",
        "* Summary",
        "    nb train:    3",
    ]
    assert lines[5] == "    nb labels:   3"
    assert lines[-2:] == ["* Save the model", "* Done"]
    form = r"  \[ *(\d+)\] obj=([\d.]+) +act=(\d+) +err= ?([\d.]+)%/ ?([\d.]+)% time=[\d.]+s/[\d.]+s"
    found = [m.groups() for line in lines if (m := re.fullmatch(form, line))]
    assert 5 < len(found) <= 30
    values = [float(x[1]) for x in found]
    assert values == sorted(values, reverse=True)
    assert found[-1][3:] == ("0.00", "0.00")
    head = model.read_text().splitlines()
    assert re.fullmatch(r"#mdl#2#\d+", head[0])
    assert head[1:4] == ["#rdr#6/1/0", "1:*,", "15:u:word=%X[ 0,0],"]
    blocks, features = (int(lines[k].split()[-1]) for k in (6, 7))
    names = head[head.index("#qrk#3") + 4 :]
    assert names[0] == f"#qrk#{blocks}"
    kinds = [name.partition(":")[2][0] for name in names[1 : blocks + 1]]
    assert features == sum({"u": 3, "b": 9, "*": 12}[kind] for kind in kinds)


@pytest.mark.parametrize(("rho1", "rho2"), [(0.0, 0.2), (0.3, 0.01)])
def test_the_objective_is_wapitis(folder: Path, rho1: float, rho2: float) -> None:
    """Penalty rho1 |w| + rho2 / 2 |w|^2 on the likelihood, at the weights in the file."""
    model = folder / "objective"
    options = ["-1", rho1, "-2", rho2, "-w", 0, "-e", 0, "-i", 200]
    out = run("train", *options, "-p", folder / "patterns", folder / "train", model)
    value = float(re.findall(r"obj=([\d.]+)", out.stderr)[-1])
    crf = crfkit.load(model, kind=crfkit.CRF)
    X, y = read_columns(folder / "train")
    assert y is not None
    p = crf.potentials(X)
    numbers = [[crf.model_.labels.index(label) for label in row] for row in y]
    loss = float(np.sum(log_partition(p)) - np.sum(score(p, numbers)))
    w = crf.model_.weights
    penalised = loss + rho1 * np.abs(w).sum() + rho2 / 2 * (w @ w)
    assert value == pytest.approx(penalised, abs=0.006)  # two decimals are printed
    assert bool((np.array(read_foreign_model(model).weights) != 0).all())


def test_patterns_that_write_the_same_share_an_observation(folder: Path) -> None:
    """As attributes of one name do in CRFsuite's items."""
    (folder / "shared").write_text("u%x[0,0]\nu%x[-1,0]\nb\n")
    out = run(
        *("train", "-p", folder / "shared", "-1", 0, "-2", 1, "-w", 0, "-e", 0, "-i", 200),
        *(folder / "train", folder / "m2"),
    )
    X, y = read_columns(folder / "train")
    items = [[[w, row[t - 1][0] if t else "_x-1"] for t, (w, _) in enumerate(row)] for row in X]
    same = CRF(c2=0.5, all_possible_states=True, start_end=False, tol=1e-9).fit(items, y)
    assert float(re.findall(r"obj=([\d.]+)", out.stderr)[-1]) == pytest.approx(same.result_.value, abs=0.006)
    names = {token for row in items for cell in row for token in cell}
    assert int(re.findall(r"nb blocks: +(\d+)", out.stderr)[0]) == len(names) + 1
    assert crfkit.load(folder / "m2", kind=crfkit.CRF).predict(X) == same.predict(items)


def test_labels_come_after_the_lines_as_they_are(folder: Path) -> None:
    crf = crfkit.load(folder / "m", kind=crfkit.CRF)
    best = crf.predict(
        [[("Two", "CD"), ("figs", "NN")], [("three", "CD"), ("red", "JJ"), ("pear", "NN"), ("and", "CC")]]
    )
    assert best == [["B", "I"], ["B", "I", "I", "O"]]
    out = run("label", "-m", folder / "m", folder / "test")
    expected = "Two CD B\tB\nfigs NN I\tI\n\nthree  CD\tB \tB\nred JJ I\tI\npear NN I\tI\nand CC X\tO\n\n"
    assert out.stdout == expected
    assert out.stderr.splitlines() == ["* Load model", "* Label sequences", "* Done"]
    run("label", "--model", folder / "m", "--label", folder / "test", folder / "labels")
    assert (folder / "labels").read_text() == "B\nI\n\nB\nI\nI\nO\n\n"


def test_checking_counts_errors(folder: Path) -> None:
    out = run("label", "-c", "-m", folder / "m", folder / "test")
    assert "    Nb sequences  : 2\n    Token error   :  0.00%\n    Sequence error:  0.00%\n" in out.stderr
    assert "    B       Pr=1.00  Rc=1.00  F1=1.00\n" in out.stderr
    assert "    O       Pr=-nan  Rc=-nan  F1=-nan\n" in out.stderr  # X is no label of the model


def test_scores_are_those_of_the_chain(folder: Path) -> None:
    crf = crfkit.load(folder / "m", kind=crfkit.CRF)
    p = crf.potentials([[("Two", "CD"), ("figs", "NN")]])[0]
    text = "Two CD\nfigs NN\n"
    best = nbest(p, 2)
    lines = run("label", "-s", "-n", 2, "-m", folder / "m", input=text).stdout.splitlines()
    assert [line for line in lines if line.startswith("#")] == [f"# {k} {s:f}" for k, s in enumerate(best.scores)]
    each = [float(line.rpartition("/")[2]) for line in lines[1:3]]
    assert sum(each) == pytest.approx(best.scores[0], abs=1e-5)
    nodes = marginals(p).nodes
    lines = run("label", "-s", "-p", "-m", folder / "m", input=text).stdout.splitlines()
    labels = crf.model_.labels
    for line, row in zip(lines[1:3], nodes, strict=True):
        label, _, value = line.rpartition("\t")[2].rpartition("/")
        assert label == labels[int(row.argmax())]
        assert float(value) == pytest.approx(row.max(), abs=1e-5)
    assert float(lines[0].split()[-1]) == pytest.approx(nodes.max(axis=1).prod(), abs=1e-5)


def test_labels_that_are_given_are_kept(folder: Path) -> None:
    out = run("label", "--force", "-l", "-m", folder / "m", input="Two CD O\nfigs NN ?\n")
    crf = crfkit.load(folder / "m", kind=crfkit.CRF)
    assert out.stdout.split() == crf.predict([[("Two", "CD"), ("figs", "NN")]], given=[["O", None]])[0]


def test_a_pipe_is_answered_after_each_sequence(folder: Path) -> None:
    """Callers keep the process, write a sequence and a blank line, and wait for as many lines."""
    command = [*COMMAND, "label", "--model", str(folder / "m"), "--label"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            for text, labels in ((b"Two CD\nfigs NN\n\n", [b"B\n", b"I\n"]), (b"and CC\n\n\n", [b"O\n"])):
                process.stdin.write(text)
                process.stdin.flush()
                assert [process.stdout.readline() for _ in labels] == labels
                assert process.stdout.readline() == b"\n"
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0


def test_dump_and_update(folder: Path) -> None:
    text = run("dump", "-p", 8, folder / "m").stdout
    rows = [line.split("\t") for line in text.splitlines() if line]
    model = read_foreign_model(folder / "m")
    assert len(rows) == len(model.weights)
    known = {(s.attribute, s.label): s.weight for s in model.state_weights()}
    for name, before, label, weight in rows:
        if before == "#":
            assert float(weight) == pytest.approx(known[name, label], abs=1e-7)
    patch = "u:word=figs # O 100\n\n* B I -3.5\n"
    changed = folder / "changed"
    run("update", "-m", folder / "m", "-", changed, input=patch, code=1)
    (folder / "patch").write_text(patch)
    run("update", "-m", folder / "m", folder / "patch", changed)
    run("update", "-m", folder / "m", "-c", folder / "patch", folder / "compact")
    for path in (changed, folder / "compact"):
        dumped = run("dump", path).stdout
        assert "u:word=figs\t#\tO\t100.00000\n" in dumped
        assert "*\tB\tI\t-3.50000\n" in dumped
        assert run("label", "-l", "-m", path, input="figs NN\n").stdout == "O\n\n"
    options = ["train", "-1", "1", "-p", folder / "patterns"]
    run(*options, folder / "train", folder / "large")
    out = run(*options, "-c", folder / "train", folder / "small")
    assert int(re.findall(r"(\d+) observations removed", out.stderr)[0]) > 5
    assert (folder / "small").stat().st_size < (folder / "large").stat().st_size
    assert run("dump", folder / "small").stdout == run("dump", folder / "large").stdout
    for bad, message in (
        ("u:word=kiwi # O 1", "bad on observation on line 1"),
        ("\n* B Q 1", "bad label <Q> line 2"),
        ("* B", "invalid line at 1"),
        ("* B I x", "bad weight on line 1"),
        ("u:word=figs B I 1", "the observation on line 1 has no such weights"),
    ):
        out = run("update", "-m", folder / "m", input=bad, code=1)
        assert out.stderr.splitlines()[-1] == f"error: {message}"


def test_training_goes_on_from_a_model(folder: Path) -> None:
    """The patterns may be given again, and more of them: the model's own are not doubled."""
    (folder / "more").write_text(PATTERNS + "u:right=%x[1,0]\n")
    options = ["-1", "0.01", "-2", "0.1", "-i", 1, "-m", folder / "m"]
    for patterns in ([], ["-p", folder / "patterns"], ["-p", folder / "more"]):
        out = run("train", *options, *patterns, folder / "train", folder / "on")
        first = float(re.findall(r"obj=([\d.]+)", out.stderr)[0])
        last = float(
            re.findall(
                r"obj=([\d.]+)",
                run(
                    "train",
                    *options[:4],
                    "-i",
                    40,
                    "-e",
                    0,
                    "-w",
                    0,
                    "-p",
                    folder / "patterns",
                    folder / "train",
                    folder / "full",
                ).stderr,
            )[-1]
        )
        assert first <= last + 0.05
    lines = (folder / "on").read_text().splitlines()
    assert lines[1] == "#rdr#7/1/0"


def test_maxent_has_no_transitions(folder: Path) -> None:
    (folder / "flat").write_text("u:word=%x[0,0]\nu:left=%x[-1,0]\nb\n")
    run("train", "-T", "maxent", "-1", 0, "-2", 0.1, "-p", folder / "flat", folder / "train", folder / "maxent")
    text = (folder / "maxent").read_text()
    assert text.startswith("#mdl#0#")
    assert ":b," not in text
    assert run("label", "-c", "-m", folder / "maxent", folder / "train").stderr.count("Token error   :  0.00%") == 1


def test_held_out_data_and_the_ends_of_training(folder: Path) -> None:
    """Training ends when the token error or the objective have come to rest."""
    base = ["train", "-2", "0.1", "-1", 0, "-p", folder / "patterns"]
    out = run(*base, "-d", folder / "test", "-w", 3, "-e", "0.02", folder / "train", folder / "x")
    assert "    nb devel:    2\n" in out.stderr
    errors = re.findall(r"err= ?([\d.]+)%", out.stderr)
    assert len(set(errors[-3:])) == 1
    assert all(len(set(errors[k : k + 3])) > 1 for k in range(len(errors) - 3))
    lengths = []
    for epsilon in ("0.5", "0.01", "0.0001"):
        out = run(*base, "-w", 0, "-o", 3, "-e", epsilon, folder / "train", folder / "x")
        values = [float(x) for x in re.findall(r"obj=([\d.]+)", out.stderr)]
        assert values[-3] - values[-1] <= float(epsilon) * values[-3] + 0.01
        lengths.append(len(values))
    assert 4 <= lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no mode specified"),
        (["tune"], "unknown mode <tune>"),
        (["train", "--colour"], "unknown option '--colour'"),
        (["train", "-t"], "missing argument for switch '-t'"),
        (["train", "-t", "two"], "invalid value for switch '-t'"),
        (["train", "-1", "-1"], "invalid value for <--rho1>"),
        (["train", "a", "b", "c"], "too much input files on command line"),
        (["train", "-T", "tree"], "unknown model type 'tree'"),
        (["train", "-a", "adam"], "unknown algorithm 'adam'"),
        (["train"], "no patterns: give them with -p"),
        (["label"], "you must specify a model"),
        (["label", "-n", "0"], "invalid value for <--nbest>"),
        (["label", "-c", "--force"], "--check and --force cannot be used together"),
        (["update"], "no model file provided"),
    ],
)
def test_faults_end_with_code_1(arguments: list[str], message: str) -> None:
    assert run(*arguments, code=1, input="").stderr.splitlines()[-1] == f"error: {message}"


def test_faults_name_file_and_line(folder: Path) -> None:
    (folder / "short").write_text("Two CD B\n\nred I\n")
    out = run("train", "-p", folder / "patterns", folder / "short", folder / "x", code=1)
    assert f"error: {folder / 'short'}:3: missing tokens, cannot apply pattern: 1 of 2\n" in out.stderr
    out = run("label", "-m", folder / "nothing", code=1)
    assert f"error: cannot open {folder / 'nothing'}\n\t<No such file or directory>\n" in out.stderr
    out = run("label", "-m", folder / "train", code=1)
    assert "not a model of" in out.stderr
    (folder / "wrong").write_text("u:%y[0,0]\n")
    out = run("train", "-p", folder / "wrong", folder / "train", code=1)
    assert f"error: {folder / 'wrong'}:1: " in out.stderr


def test_versions_and_lists() -> None:
    assert run("--version").stderr.startswith("Wapiti v1.5.0\n")
    assert "--stopeps" in run("-h", code=1).stderr
    assert run("train", "-T", "list").stderr == "Available types of models:\n\tmaxent\n\tmemm\n\tcrf\n"
    assert "l-bfgs is used" in run("train", "-a", "rprop", code=1).stderr


def test_the_first_letter_is_a_mode_too() -> None:
    options = parse(["l", "-n", "3", "--model", "m", "in"])
    assert (options.mode, options.nbest, options.model, options.input, options.output) == ("label", 3, "m", "in", None)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_training_writes_its_model(folder: Path) -> None:
    model = folder / "interrupted"
    model.unlink(missing_ok=True)
    data = folder / "much"
    data.write_text((TRAIN + "\n") * 3000)
    command = [*COMMAND, "train", "-w", "0", "-e", "0", "-1", "0", "-2", "1e-8", "-p", str(folder / "patterns")]
    with subprocess.Popen([*command, str(data), str(model)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("  [   3]"):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(60) == 0, rest
    assert rest.endswith("* Save the model\n* Done\n")
    assert crfkit.load(model, kind=crfkit.CRF).predict([[("Two", "CD"), ("figs", "NN")]]) == [["B", "I"]]


def test_lines_are_counted_over_pieces() -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return self.read(3)

    found = list(read_text(Slow(b"a x\nb y\n \t\n\nc z\n\nd")))
    assert [s for text in found for s in text.sequences] == [[b"a x", b"b y"], [b"c z"], [b"d"]]
    assert [n for text in found for n in text.first] == [1, 5, 7]


@pytest.mark.skipif(shutil.which("wapiti") is None, reason="Wapiti is not in PATH")
def test_wapiti_itself_reads_and_writes_the_same(folder: Path) -> None:
    """Models cross over both ways, and label alike byte for byte."""
    peer = [str(shutil.which("wapiti"))]

    def theirs(*arguments: Any) -> str:
        return subprocess.run([*peer, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

    theirs("train", "-1", "0.01", "-2", "0.1", "-p", folder / "patterns", folder / "train", folder / "their-model")
    for model in (folder / "m", folder / "their-model"):
        for options in ([], ["-c"], ["-s"], ["-s", "-p"], ["-s", "-n", "3"], ["-l"], ["--force", "-s"]):
            arguments = ["label", *options, "-m", model, folder / "test"]
            assert run(*arguments).stdout == theirs(*arguments)
        for options in ([], ["--all"], ["-p", "9"]):
            assert run("dump", *options, model).stdout == theirs("dump", *options, model)


def test_one_way_to_split_lines(tmp_path: Path) -> None:
    """Blanks are ASCII's, whatever else a line holds: what dump writes, update reads."""
    from crfkit.compat.wapiti.text import split_line

    assert split_line("a\u3000b c\u00a0\n".encode()) == ["a\u3000b", "c\u00a0"]
    assert split_line(b"a\x1cb c\n") == split_line("a\x1cb c é\n".encode())[:2]


def test_columns_are_those_that_patterns_look_at() -> None:
    lines = ['u:%t[0,0,"%x[0,9]"]', "u1:%x[0,0]/%x[-1,3]", "b"]
    assert [crfkit.Template(lines[:n], dialect="wapiti").plan().n_columns for n in (1, 2, 3)] == [1, 4, 4]
