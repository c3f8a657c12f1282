"""The command line where things go wrong: signals, wrong options, closed pipes and streams, no memory, odd files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import CRFKIT, run

import crfkit
from crfkit.data.readers import EncodedPath, read_columns

SAMPLE = Path(crfkit.__file__).parent / "data" / "sample"
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    run("train", SAMPLE / "train.txt", "-m", folder / "model", "-q")
    lines = "\n".join("".join(f"w{i * k % 977}\tL{i * k % 97}\n" for i in range(40)) for k in range(1, 400))
    (folder / "slow.txt").write_text(lines)
    return folder


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("how", [[], ["-a", "sgd"], ["--kind", "memm"]], ids=["lbfgs", "sgd", "memm"])
def test_signals_keep_the_model(folder: Path, tmp_path: Path, number: int, how: list[str]) -> None:
    """From the moment that the data is read; here before the first iteration has ended."""
    arguments = ["train", str(folder / "slow.txt"), "-m", str(tmp_path / "m"), "--tol", "0", *how]
    default = partial(signal.signal, number, signal.SIG_DFL)  # under nohup, children would ignore it
    process = subprocess.Popen([*CRFKIT, *arguments], stderr=subprocess.PIPE, text=True, preexec_fn=default)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("read 399 sequences")
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted; the best weights so far are kept" in said
    assert f"wrote {tmp_path / 'm'}" in said
    assert len(crfkit.load(tmp_path / "m").predict([["w1"]])[0]) == 1


def test_a_signal_keeps_hidden_states(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "slow.txt").read_text().replace("L1\n", "?\n")
    (tmp_path / "t.txt").write_text(lines)
    arguments = ["train", tmp_path / "t.txt", "-m", tmp_path / "m", "-k", "hmm", "--unknown", "?", "--tol", "0"]
    process = subprocess.Popen(
        [*CRFKIT, *map(str, arguments), "--max-iter", "100000", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert json.loads(out.splitlines()[-1])["reason"] == "interrupted"
    assert (tmp_path / "m").exists()


def test_the_second_signal_ends_at_once() -> None:
    program = """
import os, signal
from crfkit.base.interrupts import Guard, searching
with Guard() as guard:
    os.kill(os.getpid(), signal.SIGTERM)  # kept back: nothing is searched for
    try:
        with searching():
            print("not here", flush=True)
    except KeyboardInterrupt:
        print("kept", guard.signum, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("nor here", flush=True)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout == f"kept {int(signal.SIGTERM)}\n"
    assert out.returncode == -signal.SIGTERM


def test_ignored_signals_stay_ignored() -> None:
    from crfkit.base.interrupts import Guard

    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Guard() as guard:
            os.kill(os.getpid(), signal.SIGTERM)
        assert guard.signum == 0
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-a foo", "--algorithm must be one of 'lbfgs', "),
        ("-j 0", "--n-jobs must not be 0"),
        ("--c2 -1", "--c2 must be a number >= 0, got -1.0"),
        ("--max-iter -3", "--max-iter must be an int >= 0"),
        ("--kind hmm --tol -1", "--tol must be a number >= 0"),
        ("--early-stopping 3", "--early-stopping needs held-out data: give it with --dev"),
        ("--early-stopping 0 --dev x", "--early-stopping must be an int >= 1"),
        ("--beam wide:3", "--beam must begin with min-divergence, fixed, threshold, adaptive"),
        ("-a pa --beam fixed:3", "--beam must be None for the algorithm 'pa'"),
        ("-t nothing.txt", "--template: No such file or directory: nothing.txt"),
        ("-t bad.txt", "--template: bad.txt:1: "),
        ("-m no/such/folder/m", "--model: the folder to write to does not exist"),
        ("-f conllu --label upos,feats", "several are joined by +, as in upos+feats"),
        ("-f conllu --columns word", "--columns: CoNLL-U has no column 'word'"),
        ("--columns a,b", "--columns of a column file must be a number, got 'a'"),
        ("--encoding nonsense", "--encoding: unknown encoding 'nonsense'"),
        ("--every 5", "--resume and --every need a --checkpoint"),
        ("--unlabelled x", "--unlabelled does nothing without --entropy-weight or --expectations"),
        ("--entropy-weight 0.1", "--entropy-weight needs unlabelled data: give it with --unlabelled"),
        ("--expectations x", "--expectations needs unlabelled data: give it with --unlabelled"),
        ("--expectations x --unlabelled y --expectation-weight 0", "--expectation-weight must be a number > 0"),
        ("--expectations x --unlabelled y --expectation-method m", "--expectation-method must be one of expectation, "),
        ("--expectations x --unlabelled y --kind memm", "--expectations is for --kind crf, not for memm"),
        ("--expectation-weight 2", "--expectation-weight does nothing without --expectations"),
        ("--hidden-states 0", "--hidden-states must be an int >= 1"),
    ],
)
def test_wrong_options_are_found_before_any_data_is_read(options: str, message: str, tmp_path: Path) -> None:
    """Standard input is a pipe that never says anything: reading from it would wait for ever."""
    (tmp_path / "bad.txt").write_text("U:%x[0\n")
    read, write = os.pipe()
    try:
        out = run("train", "-", "-m", "m", *options.split(), code=2, stdin=read, cwd=tmp_path)
    finally:
        os.close(read)
        os.close(write)
    assert out.stderr.count("\n") == 1
    assert message in out.stderr


def test_what_checks_options_is_not_quoted() -> None:
    """Typer's own message, or pydantic's without its wrapping, whichever checks."""
    out = run("train", "x", "-m", "m", "--constraints", "bioo", code=2).stderr
    assert "Invalid value for '--constraints': 'bioo' is not one of 'bio'" in out
    out = run("inspect", "m", "--top", "-1", code=2).stderr
    assert "Input should" not in out
    assert "1" in out.splitlines()[-1]


def test_wrong_options_of_other_commands(folder: Path) -> None:
    model = folder / "model"
    cases: list[tuple[list[Any], str]] = [
        (["tag", "-m", model, "--beam", "wide:3"], "--beam must begin with"),
        (["tag", "-m", model, "-n", "0"], "--nbest must be >= 1"),
        (["eval", SAMPLE / "test.txt", "-m", model, "-j", "0"], "--n-jobs must not be 0"),
        (["active", "next", SAMPLE / "test.txt", "-m", model, "-o", "x", "--strategy", "luck"], "--strategy must be"),
        (["inspect", model, "--html", "x.html"], "--html needs --explain"),
        (["inspect"], "give one model file"),
    ]
    for arguments, message in cases:
        out = run(*arguments, code=2, stdin=subprocess.DEVNULL)
        assert message in out.stderr
        assert out.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")
def test_closed_pipes_and_streams(folder: Path, tmp_path: Path) -> None:
    model, test = folder / "model", SAMPLE / "test.txt"
    (tmp_path / "big.txt").write_text(test.read_text() * 50)

    def shell(command: str) -> tuple[str, str]:
        line = f"{sys.executable} -m crfkit {command}"
        out = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert "Traceback" not in out.stderr
        return out.stdout, out.stderr

    for command in (f"tag -q -m {model} big.txt", f"inspect {model} --all"):
        out, said = shell(f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}")
        assert out.splitlines()[1:] == ["141"]
        assert said == ""
    assert shell(f"tag -m {model} {test} >&-; echo $? >&2")[1] == "crfkit: error: standard output is closed\n1\n"
    assert shell(f"inspect {model} >&-; echo $? >&2")[1] == "crfkit: error: standard output is closed\n1\n"
    labelled = shell(f"tag -m {model} {test} 2>&-")[0]
    assert labelled == shell(f"tag -q -m {model} {test}")[0]
    assert shell(f"train {test} -m closed --max-iter 3 >&- 2>&- && echo done")[0] == "done\n"
    assert crfkit.load(tmp_path / "closed").n_iter_ == 3
    if Path("/dev/full").exists():
        assert "No space left on device\n1\n" in shell(f"inspect {model} >/dev/full; echo $? >&2")[1]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")
def test_who_reads_along_may_leave(folder: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m crfkit train {folder / 'slow.txt'} -m m --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    out = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert out.stdout.splitlines()[1] == "141"
    assert (tmp_path / "m").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("room", [1, 4, 16])
def test_no_memory_is_one_line(tmp_path: Path, room: int) -> None:
    (tmp_path / "big.txt").write_text((SAMPLE / "train.txt").read_text() * 200)
    program = f"""
import resource, sys
import crfkit.cli
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + {room} * 2**20,) * 2)
crfkit.cli.main()
"""
    arguments = [sys.executable, "-c", program, "train", "big.txt", "-m", "m", "-j", "1", "-q"]
    out = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert out.stderr == "crfkit: error: there is not enough memory\n"
    assert out.returncode == 1
    assert not (tmp_path / "m").exists()


def test_other_encodings(tmp_path: Path) -> None:
    text = "".join(f"{word}\t{label}\n" for word, label in [("café", "Ñ"), ("über", "O"), ("", "")]).rstrip() + "\n"
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        (tmp_path / "t.txt").write_bytes(text.encode(encoding))
        (tmp_path / "t.gz").write_bytes(gzip.compress(text.encode(encoding)))
        X, y = read_columns(EncodedPath(str(tmp_path / "t.txt"), encoding))
        assert (X[0], y[0]) == (["café", "über"], ["Ñ", "O"])
        how = ["--encoding", encoding]
        run("train", tmp_path / "t.gz", "-m", tmp_path / "m", *how, "--c2", "0.01", "--dev", tmp_path / "t.txt")
        for kind in ([], ["--json"], ["-j", "1"]):
            assert "café" in run("tag", "-m", tmp_path / "m", tmp_path / "t.txt", *how, *kind).stdout
        with (tmp_path / "t.txt").open("rb") as file:
            piped = run("tag", "-m", tmp_path / "m", *how, stdin=file).stdout
        assert piped == "café\tÑ\tÑ\nüber\tO\tO\n\n"
        assert "100.00" in run("eval", tmp_path / "t.txt", "-m", tmp_path / "m", *how).stdout
        assert "café" in run("inspect", tmp_path / "m", "--explain", tmp_path / "t.txt", *how).stdout
    (tmp_path / "t.txt").write_bytes(text.encode("latin-1"))
    said = run("train", tmp_path / "t.txt", "-m", tmp_path / "m", "--encoding", "ascii", code=1).stderr
    assert "t.txt: not valid ascii" in said


def test_output_is_compressed_as_its_name_says(folder: Path, tmp_path: Path) -> None:
    arguments = ["tag", "-q", "-m", folder / "model", SAMPLE / "test.txt"]
    plain = run(*arguments).stdout
    for name, opener in (("x.gz", gzip.open), ("x.bz2", bz2.open), ("x.xz", lzma.open), ("x.txt", open)):
        for more in ([], ["-p"]):
            run(*arguments, *more, "-o", tmp_path / name)
        run(*arguments, "-o", tmp_path / name)
        with opener(tmp_path / name, "rt", encoding="utf-8") as file:
            assert file.read() == plain


def test_an_empty_file_is_an_empty_result(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for more in ([], ["--json"], ["-p"], ["--nbest", "2"]):
        out = run("tag", "-m", folder / "model", tmp_path / "empty", *more)
        assert out.stdout == ""
        assert out.stderr.startswith("labelled 0 sequences, 0 tokens")


def test_counts_agree_in_number(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("salt\tN\n")
    said = run("train", tmp_path / "one.txt", "-m", tmp_path / "m", "--max-iter", "1").stderr
    assert "read 1 sequence, 1 token in" in said
    assert "labelled 1 sequence, 1 token in" in run("tag", "-m", tmp_path / "m", tmp_path / "one.txt").stderr


def test_labels_of_two_columns(tmp_path: Path) -> None:
    rows = [("Dogs", "NOUN", "Number=Plur"), ("bark", "VERB", "_")]
    lines = [f"{i}\t{form}\t_\t{upos}\t_\t{feats}\t0\t_\t_\t_\n" for i, (form, upos, feats) in enumerate(rows, 1)]
    (tmp_path / "t.conllu").write_text("".join(lines) + "\n")
    run("train", tmp_path / "t.conllu", "-f", "conllu", "--label", "upos+feats", "-m", tmp_path / "m", "--c2", "0.01")
    assert run("tag", "-m", tmp_path / "m", tmp_path / "t.conllu").stdout == "".join(lines) + "\n"


def test_help_is_whole() -> None:
    for width in ("80", "120"):
        more: dict[str, Any] = {"env": {**os.environ, "COLUMNS": width}}
        for command in ([], ["active"], *([x] for x in ("train", "tag", "eval", "inspect", "convert", "demo"))):
            out = run(*command, "-h", **more).stdout
            assert "..." not in out.replace("[ARGS]...", "")
            assert all(len(line) <= int(width) for line in out.splitlines())
            assert out == run(*command, "--help", **more).stdout


def test_shells_complete_algorithms_and_strategies() -> None:
    for words, expected in (
        ("crfkit train -a s", ["sgd", "smd", "sag"]),
        ("crfkit active next --strategy least", ["least_confidence"]),
    ):
        environment = {"_CRFKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        program = "from crfkit.cli import app; app(prog_name='crfkit')"
        out = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
        )
        assert out.stdout.split() == expected


def test_inspect_takes_the_model_by_either_way(folder: Path) -> None:
    assert run("inspect", folder / "model").stdout == run("inspect", "--model", folder / "model").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")
def test_long_work_shows_that_it_goes_on() -> None:
    import pty

    program = "import time; from crfkit.cli.files import busy\nwith busy('reading x'): time.sleep(3.2)"
    mine, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stderr=theirs)
    process.wait(timeout=60)
    os.close(theirs)
    time.sleep(0.1)
    assert b"reading x ... 2s" in os.read(mine, 10000)
    os.close(mine)


@pytest.mark.parametrize("reading", [{"label": "x"}, {"columns": "x"}, {"format": "conllu", "label": "nothing"}])
def test_a_model_that_says_wrong_things_of_its_data(tmp_path: Path, reading: dict[str, Any]) -> None:
    crf = crfkit.CRF().fit([["a", "b"]], [["A", "B"]])
    info: Any = crf.model_.info
    info["reading"] = reading
    crf.save(tmp_path / "model")
    assert "the model is damaged: 'info.reading'" in run("tag", "-m", tmp_path / "model", code=1, input="a\n").stderr
