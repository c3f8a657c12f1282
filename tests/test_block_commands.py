"""Block files in the shell: damaged ones, those without rare attributes, options that they do not take."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import run
from test_blocks import TEMPLATE, some_text

from crfkit import CRF, Template, load, tune
from crfkit.base.fields import ModelError
from crfkit.cli import main
from crfkit.data import Blocks, read_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Text, a template, a model of the text, and block files of it with all attributes and without rare ones."""
    path: Path = tmp_path_factory.mktemp("commands")
    (path / "text").write_text(some_text(300))
    (path / "template").write_text(TEMPLATE)
    run("train", path / "text", "-t", path / "template", "-m", path / "model", "--max-iter", 5, "-q")
    for least in (0, 2):
        name = path / f"{least}.blocks"
        run("encode", path / "text", "-t", path / "template", "--min-freq", least, "-o", name, "-q")
    return path


def call(monkeypatch: Any, capsys: Any, *arguments: Any) -> tuple[int, str]:
    """Exit code and standard error of a command, in this process."""
    monkeypatch.setattr("sys.argv", ["crfkit", *map(str, arguments)])
    monkeypatch.setattr("crfkit.cli.leave_pipes", lambda: None)
    try:
        main()
        code: Any = 0
    except SystemExit as e:
        code = e.code
    return int(code or 0), capsys.readouterr().err


def test_a_changed_bit_is_refused_when_labels_are_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    X, y = read_columns(folder / "text")
    y = [[{"X", "Z"} if i % 7 == 0 and t == 0 else label for t, label in enumerate(row)] for i, row in enumerate(y)]
    weighted = CRF(Template(TEMPLATE)).encode(
        X, y, tmp_path / "weighted", sample_weight=[1 + i % 3 for i in range(300)]
    )
    rng, bad = random.Random(20), tmp_path / "bad.blocks"
    for source, times in ((folder / "0.blocks", 40), (Path(weighted.path), 40)):
        good = source.read_bytes()
        for _ in range(times):
            changed = bytearray(good)
            at, bit = rng.randrange(len(good)), rng.randrange(8)
            changed[at] ^= 1 << bit
            bad.write_bytes(changed)
            code, err = call(monkeypatch, capsys, "tag", "-m", folder / "model", bad, "-o", tmp_path / "out", "-q")
            assert code == 1, (at, bit)
            assert err.count("\n") == err.count(str(bad)) == 1, (at, bit, err)
            assert not (tmp_path / "out").exists()
            with pytest.raises(ModelError):
                load(folder / "model").predict(Blocks(bad))


def test_tags_of_a_file_without_rare_attributes(folder: Path, tmp_path: Path) -> None:
    told = run("tag", "-m", folder / "model", folder / "2.blocks", "-o", tmp_path / "out").stderr
    assert "2.blocks: attributes that occur fewer than 2 times were left out of the file" in told
    assert "left out" not in run("tag", "-m", folder / "model", folder / "0.blocks", "-o", tmp_path / "out").stderr
    run("train", folder / "2.blocks", "-m", tmp_path / "model", "--max-iter", 5, "-q")
    own = run("tag", "-m", tmp_path / "model", folder / "2.blocks", "-o", tmp_path / "out").stderr
    assert "left out" not in own  # it knows none that the file does not have
    with pytest.warns(UserWarning, match="labels can differ from those of the text"):
        load(folder / "model").predict(Blocks(folder / "2.blocks"))


@pytest.mark.parametrize("command", ["train", "encode", "eval", "tag", "tune"])
def test_options_for_text_are_refused(folder: Path, tmp_path: Path, command: str) -> None:
    blocks, model = folder / "0.blocks", folder / "model"
    out = ["-o", tmp_path / "out"]
    template, memm = ["-t", folder / "template"], ["--kind", "memm", "-a", "sgd"]
    cases: dict[str, list[list[Any]]] = {
        "train": [["--hash-bits", 12], template, ["--kind", "hmm"], ["--window", 0], ["--window", 2]],
        "encode": [["--hash-bits", 12], template, ["--resume"], ["--memory", "1GB"], ["--split", 2, "--min-freq", 2]],
        "eval": [["-m", model, "--unknown", "X"], ["-m", model, "-f", "conllu"], []],
        "tag": [["-m", model, "--text"], ["-m", model, "-f", "crfsuite"]],
        "tune": [["--folds", 1], template],
    }
    cases["train"] += [["--hidden-states", 2], [*memm, "--window", 2]]
    more = {"train": ["-m", tmp_path / "m"], "encode": out, "tag": out}.get(command, [])
    for options in cases[command]:
        found = run(command, blocks, *options, *more, code=2).stderr
        assert found.count("\n") == 1
        assert "--" in found
        assert "' of " not in found
        assert not (tmp_path / "out").exists()


def test_joining_cuts_rare_attributes(folder: Path, tmp_path: Path) -> None:
    X, y = read_columns(folder / "text")
    for k, part in enumerate((slice(0, 100), slice(100, None))):
        CRF(Template(TEMPLATE)).encode(X[part], y[part], tmp_path / f"{k}.blocks")
        CRF(Template(TEMPLATE), min_freq=2).encode(X[part], y[part], tmp_path / f"cut{k}.blocks")
    parts = [tmp_path / f"{k}.blocks" for k in range(2)]
    exact = CRF(Template(TEMPLATE), min_freq=2).encode(X, y, tmp_path / "exact")
    joined = run("encode", *parts, "-o", tmp_path / "joined", "--min-freq", 2).stderr
    assert "warning" not in joined
    assert (tmp_path / "joined").read_bytes() == Path(exact.path).read_bytes()
    run("encode", *parts, "-o", tmp_path / "all", "-q")
    run("encode", tmp_path / "all", "-o", tmp_path / "later", "--min-freq", 2, "-q")
    assert (tmp_path / "later").read_bytes() == Path(exact.path).read_bytes()
    cut = [tmp_path / f"cut{k}.blocks" for k in range(2)]
    assert "to join exactly, encode without a minimum frequency" in run("encode", *cut, "-o", tmp_path / "x").stderr


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_min_freq_is_that_of_the_file_by_default(folder: Path) -> None:
    blocks, (X, y) = Blocks(folder / "2.blocks"), read_columns(folder / "text")
    wanted = CRF(Template(TEMPLATE), min_freq=2, max_iter=5).fit(X, y).weights_
    found = CRF(max_iter=5).fit(blocks)
    assert found.weights_.tobytes() == wanted.tobytes()
    assert found.model_.card()["parameters"]["min_freq"] == 2
    assert tune(CRF(max_iter=2), blocks, None, c1=[0], c2=[1], folds=2).crf.min_freq == 2  # type: ignore[union-attr]
    with pytest.raises(
        ValueError, match=r"'min_freq' of CRF must be at least 2 for .*2\.blocks: attributes that occur"
    ):
        CRF(min_freq=1).fit(blocks)
    with pytest.raises(ValueError, match=r"'all_possible_states' of CRF must be False for .*2\.blocks"):
        CRF(all_possible_states=True).fit(blocks)
    said = run("train", blocks.path, "-m", folder / "none", "--min-freq", 1, code=1).stderr
    assert "--min-freq must be at least 2 for" in said


def test_a_block_file_is_scored(folder: Path, tmp_path: Path) -> None:
    model = folder / "model"
    assert run("eval", folder / "0.blocks", "-m", model).stdout == run("eval", folder / "text", "-m", model).stdout
    hidden = ["-t", folder / "template", "--unknown", "Y", "-o", tmp_path / "hidden"]
    run("encode", folder / "text", *hidden, "-q")
    some = run("eval", tmp_path / "hidden", "-m", model)
    text = run("eval", folder / "text", "-m", model, "--unknown", "Y")
    assert (some.stdout, some.stderr) == (text.stdout, text.stderr)


def test_an_interrupted_encoding_says_how_to_go_on(folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    command = ["encode", folder / "text", "-t", folder / "template", "-o", tmp_path / "x.blocks", "-q"]
    monkeypatch.setattr("crfkit.features.encoding.BlockWriter.finish", _interrupted)
    code, err = call(monkeypatch, capsys, *command)
    assert code == 130
    assert "with --resume" in err
    monkeypatch.undo()
    code, err = call(monkeypatch, capsys, *command, "--resume", "--unknown", "Y", "--label", "-1")
    assert code == 1
    assert "another format, label or columns, and another --unknown label; to begin anew, leave out --resume" in err
    assert call(monkeypatch, capsys, *command, "--resume") == (0, "")
    monkeypatch.setattr("crfkit.cli.encode.encode_text", _interrupted)  # before there is anything to go on from
    assert call(monkeypatch, capsys, *command) == (130, "crfkit: interrupted\n")
    monkeypatch.undo()
    assert run("encode", folder / "text", "-o", tmp_path / "y", "--memory", 0, code=2).stderr.startswith(
        "crfkit: error: --memory must be a number of bytes"
    )


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_the_plan_is_that_of_the_algorithm(folder: Path, tmp_path: Path) -> None:
    def plan(*options: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run("train", *options, "--plan", "--json").stdout)
        return found

    blocks = folder / "0.blocks"
    found = {name: plan(blocks, "-a", name) for name in ("lbfgs", "newton-cg", "sgd", "arow", "sag")}
    weights = found["lbfgs"]["weights"]
    assert found["lbfgs"]["optimiser"] - found["newton-cg"]["optimiser"] == 32 * weights
    assert found["arow"]["memory_stored"] - found["sgd"]["memory_stored"] == 8 * found["sgd"]["rows"]
    assert found["sag"]["memory_stored"] > found["arow"]["memory_stored"]
    assert found["sgd"]["scratch"] == 0
    text = folder / "text", "-t", folder / "template", "--min-freq", 2
    least = plan(*text, "-j", 1)
    unknown = {"seen", "memory"}  # of a file without the rare attributes of its text
    found = plan(folder / "2.blocks", "-j", 1)
    assert {k: v for k, v in found.items() if k not in unknown}.items() <= least.items()
    assert plan(*text, "-j", 3)["encoding_memory"] > least["encoding_memory"] + 10e6
    (tmp_path / "pairs").write_text(f"{TEMPLATE}B0:%x[0,0]\n")
    run("encode", folder / "text", "-t", tmp_path / "pairs", "-o", tmp_path / "pairs.blocks", "-q")
    groups = Blocks(tmp_path / "pairs.blocks").dataset.groups.values()
    assert plan(tmp_path / "pairs.blocks")["local"] == sum(int(x.first_attribute[-1]) for x in groups)
    assert "anonymous memory" in run("train", blocks, "--plan").stdout
    for size in (1, 30, 60, 100):
        (tmp_path / "short.blocks").write_bytes(blocks.read_bytes()[:size])
        said = run("train", tmp_path / "short.blocks", "--plan", code=1).stderr
        assert said.count("\n") == 1
        assert "short.blocks" in said
        assert "/0.txt" not in said


def test_decisions_in_a_block_file_are_not_explained(folder: Path) -> None:
    said = run("inspect", folder / "model", "--explain", folder / "0.blocks", code=1).stderr
    assert said == f"crfkit: error: --explain needs text: {folder / '0.blocks'} is a block file\n"


def test_hashed_features_are_shown(folder: Path, tmp_path: Path) -> None:
    hashed = ["-t", folder / "template", "--hash-bits", 12, "--max-iter", 2]
    said = run("train", folder / "text", *hashed, "-m", tmp_path / "model").stderr
    assert "stopped after 2 iterations: objective" in said
    shown = run("inspect", tmp_path / "model").stdout
    assert "7 templates, hashed to 12 bits" in shown
    assert "(stopped after 2 iterations)" in shown
    assert "after 2 iterations (" not in shown


def test_no_command_overwrites_what_it_reads(folder: Path, tmp_path: Path) -> None:
    text, blocks, model, template = (
        Path(shutil.copy(folder / name, tmp_path)) for name in ("text", "0.blocks", "model", "template")
    )
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "link").symlink_to(text)
    (tmp_path / "text.blocks").symlink_to(blocks)
    (tmp_path / "part-0").symlink_to(blocks)
    core = ["--out-of-core", tmp_path, "--dev", blocks]
    for command in (
        ["encode", "-o", text, text],
        ["encode", "-o", tmp_path / "link", text],
        ["encode", "-o", template, text, "-t", template],
        ["encode", "-o", blocks, blocks],
        ["encode", "-o", tmp_path / "part", "--split", 2, blocks],
        ["tag", "-m", model, blocks, "-o", blocks],
        ["tag", "-m", model, text, "-o", model],
        ["train", text, "-m", tmp_path / "m", "--checkpoint", text],
        ["train", text, "-m", tmp_path / "m", *core],
        ["train", text, "-m", tmp_path / "m", "--dev", text, "--checkpoint", model, "--warm-start", model],
        ["convert", model, model],
        ["classes", text, "-o", text],
        ["tune", text, "-m", text],
        ["inspect", model, "--explain", text, "--html", text],
        ["active", "next", text, "-m", model, "-o", text, "--force"],
        ["active", "add", text, text],
    ):
        assert "would overwrite one of its input files" in run(*command, code=2).stderr, command
    assert all(path.read_bytes() == data for path, data in kept.items())


def test_what_an_output_may_be_called(folder: Path, tmp_path: Path) -> None:
    text, model = folder / "text", folder / "model"
    found = run("tag", "-m", model, text, "-o", "-", "-q", cwd=tmp_path).stdout
    assert found == run("tag", "-m", model, text, "-q").stdout
    for command in (["encode", text, "-o", "-"], ["train", text, "-m", "-"], ["convert", model, "-"]):
        assert "must be a file: - stands for standard input" in run(*command, code=2, cwd=tmp_path).stderr
    error = run("tag", "-m", model, text, "-o", tmp_path / "x.parquet.gz", code=2).stderr
    assert "name the file x.parquet, not x.parquet.gz" in error
    assert "this is a folder, not a file" in run("encode", text, "-o", ".", code=2, cwd=tmp_path).stderr
    assert not list(tmp_path.iterdir())


def test_a_block_file_in_the_wrong_place_is_named(folder: Path, tmp_path: Path) -> None:
    blocks = (folder / "0.blocks").read_bytes()
    for command in (["train", "-", "-m", tmp_path / "m"], ["tag", "-m", folder / "model"], ["encode", "-", "-o", "x"]):
        with (folder / "0.blocks").open("rb") as file:
            told = run(*command, code=1, stdin=file, cwd=tmp_path).stderr
        assert "<stdin>: a block file, not text: give it by its name, and not compressed" in told
    (tmp_path / "x.blocks.gz").write_bytes(gzip.compress(blocks))
    for form in ("columns", "conllu", "crfsuite"):
        told = run("train", tmp_path / "x.blocks.gz", "-m", tmp_path / "m", "-f", form, code=1).stderr
        assert "x.blocks.gz: a block file, not text: give it by its name, and not compressed" in told


def test_inspect_shows_a_block_file(folder: Path) -> None:
    out = run("inspect", folder / "2.blocks").stdout
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["labels", "sequences", "tokens", "attributes"]
    found = json.loads(run("inspect", folder / "2.blocks", "--json").stdout)
    blocks = Blocks(folder / "2.blocks")
    assert (found["sequences"], found["tokens"], found["min_freq"]) == (300, blocks.n_tokens, 2)
    assert "--explain needs a model" in run("inspect", folder / "2.blocks", "--explain", "x", code=1).stderr
