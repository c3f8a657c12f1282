"""Block files: the same weights as in memory, whatever the memory, the threads and the kills."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run

from crfkit import CRF, HMM, MEMM, SegmentCRF, Template, TokenFeatures, _core, load, tune
from crfkit.base.fields import ModelError
from crfkit.base.tensors import checksum, read_tensors, write_arrays
from crfkit.chain.constraints import Constraints
from crfkit.data import Blocks, read_columns, read_conllu, read_crfsuite
from crfkit.data.blocks import KEY, WHAT, Group, StoredDataset, block_checksum, in_blocks
from crfkit.data.dataset import NONE, Dataset, Layout, WeightRules, _seen_pairs
from crfkit.features import encoding
from crfkit.training.checks import check_gold
from crfkit.training.needs import Needs, Sizes
from crfkit.training.registry import find_algorithm
from crfkit.training.sequences import Windows

TEMPLATE = (
    "U0:%x[-1,0]\nU1:%x[0,0]\nU2:%x[1,0]\nU3:%x[0,1]\nU4:%x[-1,1]/%x[0,1]\nU5:%x[0,0]/%x[1,0]\nU6:%x[-1,0]/%x[0,0]\nB\n"
)


def some_text(n: int, seed: int = 0) -> str:
    """Sequences of words, parts and labels; words are drawn as in real text, many of them once."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        for _ in range(int(rng.integers(1, 12))):
            word = min(int(rng.zipf(1.3)), 100_000)
            part = "ABCD"[word % 4]
            label = "XYZ"[(word % 7) % 3] if rng.random() < 0.9 else "X"
            lines.append(f"w{word} {part} {label}")
        lines.append("")
    return "\n".join(lines) + "\n"


OTHERS: list[Any] = [HMM(), SegmentCRF()]  # that do not learn from block files


@pytest.fixture(scope="module")
def text(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("blocks") / "train.txt"
    path.write_text(some_text(2500))
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: Any) -> None:
    """Several pieces and runs, even of little data."""
    monkeypatch.setattr("crfkit.data.readers.PieceReader.size", 4096)
    monkeypatch.setattr("crfkit.estimators.penalised._PIECE", 100)
    monkeypatch.setattr(encoding, "_RUN_TOKENS", 1500)


def same(blocks: Blocks, X: Any, y: Any, features: Any = "auto", **settings: Any) -> CRF:
    """Trains both ways; all must be equal to the bit."""
    settings = {"max_iter": 8, "tol": 0, "n_jobs": 2, **settings}
    weights = {k: settings.pop(k) for k in ("sample_weight",) if k in settings}
    with np.errstate(all="ignore"):
        a = CRF(features, **settings).fit(X, y, **weights)
        b = CRF(**settings).fit(blocks)
    assert a.model_.labels == b.model_.labels
    assert a.model_.encoder.names() == b.model_.encoder.names()
    assert a.weights_.tobytes() == b.weights_.tobytes()
    assert a.result_.value == b.result_.value
    assert a.predict(X[:50]) == b.predict(X[:50])
    return b


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c1": 0.5},
        {"algorithm": "newton-cg"},
        {"dtype": "float64"},
        {"constraints": [("X", "Y")], "c2": 0.1},
        {"class_weight": "balanced"},
        {"algorithm": "sgd"},
        {"algorithm": "pa"},
        {"all_possible_transitions": False, "start_end": False},
        {"all_possible_states": True},
        {"beam": "fixed:2"},
        {"warm_start_fraction": 0.3},
    ],
    ids=str,
)
def test_weights_are_those_of_training_in_memory(text: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    X, y = read_columns(text)
    if "constraints" in settings:
        y = [
            [{"Y": "X"}.get(label, label) if t and row[t - 1] == "X" else label for t, label in enumerate(row)]
            for row in y
        ]
        y = [["Z" if label == "Y" and "X" in row else label for label in row] for row in y]
    template = Template(TEMPLATE)
    blocks = CRF(template, n_jobs=2).encode(X, y, tmp_path / "x.blocks")
    same(blocks, X, y, template, **settings)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("min_freq", [0, 2, 3])
def test_rare_attributes_are_left_out_as_in_memory(
    text: Path, tmp_path: Path, monkeypatch: Any, n_jobs: int, min_freq: int
) -> None:
    X, y = read_columns(text)
    template = Template(TEMPLATE)
    path = tmp_path / "x.blocks"
    blocks = CRF(template, min_freq=min_freq, n_jobs=n_jobs).encode(iter(X), iter(y), path, memory="1kB")
    monkeypatch.setattr(encoding, "_RUN_TOKENS", 1 << 30)
    one_run = CRF(template, min_freq=min_freq, n_jobs=1).encode(X, y, tmp_path / "one")
    assert path.read_bytes() == Path(one_run.path).read_bytes()
    os.unlink(one_run.path)
    assert blocks.n_attributes < 10_000 or min_freq < 2
    same(blocks, X, y, template, min_freq=min_freq)
    if min_freq:
        with pytest.raises(ValueError, match=r"occur fewer than .* times were left out"):
            CRF(min_freq=min_freq - 1).fit(blocks)
    assert os.listdir(tmp_path) == ["x.blocks"]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_names_that_several_templates_write(tmp_path: Path, monkeypatch: Any, n_jobs: int) -> None:
    """An attribute has a place for each way to its name; a run may be the first to see one of them."""
    monkeypatch.setattr("crfkit.estimators.penalised._PIECE", 1)
    template = Template("U:%x[0,0]\nU:%x[0,0]/%x[0,1]\nB\n")
    rows = [("a/b", "x"), ("a", "b"), ("c", "b"), ("b/c", "a"), ("a/b", "c"), ("a", "b/c")]
    X, y = [[row] for row in rows], [[label] for label in "ABABBA"]
    made = []
    for tokens in (1, 1 << 30):
        monkeypatch.setattr(encoding, "_RUN_TOKENS", tokens)
        made.append(CRF(template, n_jobs=n_jobs).encode(X, y, tmp_path / str(tokens)))
    assert Path(made[0].path).read_bytes() == Path(made[1].path).read_bytes()
    wanted = CRF(template).fit(X, y).predict_marginals(X)
    found = CRF().fit(made[0]).predict_marginals(X)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(wanted))
    monkeypatch.setattr(encoding, "_RUN_TOKENS", 1 << 30)
    parts = [CRF(template).encode(X[k::2], y[k::2], tmp_path / f"part{k}") for k in range(2)]
    grown = CRF(warm_start=True, max_iter=50).fit(parts[0])
    again = CRF(template, warm_start=True, max_iter=50).fit(X[::2], y[::2])
    np.testing.assert_array_equal(
        np.concatenate(grown.fit(parts[1]).predict_marginals(X)),
        np.concatenate(again.fit(X[1::2], y[1::2]).predict_marginals(X)),
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_keys", [60, 60_000])  # some buckets at a time, or all
def test_vocabularies_of_runs_are_merged_as_one_would_number_them(n_keys: int) -> None:
    rng = np.random.default_rng(n_keys)
    keys = rng.integers(0, 2**64, (n_keys, 2), np.uint64)
    pieces = [rng.integers(0, n_keys, n_keys // 3) for _ in range(9)]
    counts = Counter(int(x) for piece in pieces for x in piece)
    order = list(dict.fromkeys(int(x) for piece in pieces for x in piece))  # as they are first seen
    right = {x: k for k, x in enumerate(x for x in order if counts[x] >= 2)}
    runs, own_words = [], []
    for r in range(3):
        seen: dict[int, int] = {}
        known = []
        for piece in pieces[r::3]:
            for x in piece:
                seen.setdefault(int(x), len(seen))
            known.append(len(seen))
        words = np.array(list(seen))
        often = Counter(int(x) for piece in pieces[r::3] for x in piece)
        sums = np.array([often[x] for x in seen], np.uint32)
        records, first = _core.sort_keys(keys[words], sums)
        numbered = np.stack([np.arange(r, 9, 3), known], axis=1)
        runs.append((records, first, numbered, np.empty(len(words), np.uint32), np.empty(len(words), np.uint8)))
        own_words.append(words)
    assert _core.merge_keys(runs, 2.0, 2) == len(right)
    owned = []
    for (*_, number, own), words in zip(runs, own_words, strict=True):
        assert number.tolist() == [right.get(int(x), NONE) for x in words]
        owned += number[own > 0].tolist()
    assert sorted(owned) == list(range(len(right)))  # each is first seen in one run


def test_unknown_labels_weights_and_sets(text: Path, tmp_path: Path) -> None:
    X, labels = read_columns(text)
    rng = np.random.default_rng(1)
    y: list[Any] = [list(row) for row in labels]
    for i in range(0, len(y), 3):
        y[i][0] = None if i % 2 else {"X", "Z"}
    for i in range(1, len(y), 5):
        y[i] = None
    weights = rng.random(len(y)) + 0.5
    template = Template(TEMPLATE)
    blocks = CRF(template).encode(X, y, tmp_path / "x.blocks", sample_weight=weights)
    assert blocks.n_unknown > 0
    assert blocks.sets is not None
    for more in ({}, {"entropy_weight": 0.1, "entropy_ramp": 2}, {"algorithm": "sgd", "max_iter": 2}):
        same(blocks, X, y, template, sample_weight=weights, **{"max_iter": 4, **more})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_edges_values_and_functions(text: Path, tmp_path: Path) -> None:
    X, y = read_columns(text)
    X, y = X[:300], y[:300]
    template = Template("U0:%x[0,0]\nB0:%x[-1,1]/%x[0,1]\nB\n")
    same(CRF(template).encode(X, y, tmp_path / "edges.blocks"), X, y, template, max_iter=5)
    items = [[{"word": word, "long": len(word) / 7, "zero": 0.0} for word, _ in x] for x in X]
    same(CRF().encode(items, y, tmp_path / "items.blocks"), items, y)
    a = MEMM(template, max_iter=3, tol=0).fit(X, y)
    b = MEMM(max_iter=3, tol=0).fit(Blocks(tmp_path / "edges.blocks"))
    assert a.weights_.tobytes() == b.weights_.tobytes()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_format_is_encoded_by_the_command_line(text: Path, tmp_path: Path) -> None:
    lines = text.read_text().splitlines()[:4000]
    conllu, suite, k = [], [], 0
    for line in lines:
        word, part, label = line.split() if line else ("", "", "")
        k = k + 1 if line else 0
        conllu.append(f"{k}\t{word}\t_\t{label}\t{part}\t_\t_\t_\t_\t_" if line else "")
        suite.append(f"{label}\tw={word}\tp={part}:0.5" if line else "")
    suite.insert(0, "@weight:2")
    (tmp_path / "a.conllu").write_text("\n".join(conllu) + "\n\n")
    (tmp_path / "a.crfsuite").write_text("\n".join(suite) + "\n")
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("\n".join(lines))
    (tmp_path / "template").write_text(TEMPLATE)
    run("encode", tmp_path / "a.txt.gz", "-t", tmp_path / "template", "-o", tmp_path / "a.blocks", "-q")
    run("encode", tmp_path / "a.conllu", "-f", "conllu", "-o", tmp_path / "b.blocks", "-q")
    run("encode", tmp_path / "a.crfsuite", "-f", "crfsuite", "-o", tmp_path / "c.blocks", "-q")
    same(Blocks(tmp_path / "a.blocks"), *read_columns(tmp_path / "a.txt.gz"), Template(TEMPLATE), max_iter=3)
    same(Blocks(tmp_path / "b.blocks"), *read_conllu(tmp_path / "a.conllu"), max_iter=3)
    X, y, weights = read_crfsuite(tmp_path / "a.crfsuite")
    assert weights is not None
    same(Blocks(tmp_path / "c.blocks"), X, y, sample_weight=weights, max_iter=3)


def test_train_and_tag_by_the_command_line(text: Path, tmp_path: Path) -> None:
    (tmp_path / "template").write_text(TEMPLATE)
    template = "-t", tmp_path / "template"
    options = "--min-freq", 2, "--max-iter", 4, "-q"
    blocks = tmp_path / "x.blocks"
    run("encode", text, *template, "-o", blocks, "--min-freq", 2)
    run("train", text, *template, "-m", tmp_path / "a", *options)
    run("train", blocks, "-m", tmp_path / "b", "--dev", blocks, *options[2:])  # the file's --min-freq
    run(
        "train",
        text,
        *template,
        "-m",
        tmp_path / "c",
        "--out-of-core",
        tmp_path / "work",
        "--memory",
        "100MB",
        *options,
    )
    models: list[Any] = [load(tmp_path / name) for name in "abc"]
    for other in models[1:]:
        assert models[0].weights_.tobytes() == other.weights_.tobytes()
        assert models[0].model_.info["reading"] == other.model_.info["reading"]
    run("tag", text, "-m", tmp_path / "b", "-o", tmp_path / "text.jsonl", "-p", "-q")
    run("tag", blocks, "-m", tmp_path / "a", "-o", tmp_path / "blocks.jsonl", "-p", "-q")
    rows = [json.loads(line) for line in (tmp_path / "text.jsonl").read_text().splitlines()]
    plain = [{k: v for k, v in row.items() if k != "tokens"} for row in rows]
    assert plain == [json.loads(line) for line in (tmp_path / "blocks.jsonl").read_text().splitlines()]
    out = run("train", blocks, "-m", tmp_path / "d", "-t", tmp_path / "template", code=2)
    assert "is encoded already" in out.stderr
    plan = json.loads(run("train", blocks, "--plan", "--json").stdout)
    assert plan["weights"] == models[0].model_.layout.size
    assert plan["tokens"] == Blocks(blocks).n_tokens
    assert "--model is missing" in run("train", blocks, code=2).stderr
    packed = tmp_path / "x.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    sizes = json.loads(run("train", packed, *template, "--min-freq", 2, "--plan", "--json").stdout)
    unknown = {"seen", "memory"}  # of a file without the rare attributes of its text
    assert {k: v for k, v in plan.items() if k not in unknown}.items() <= sizes.items()


def test_tags_are_written_as_parquet(text: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = read_columns(text)
    crf = CRF(Template("U:%x[0,0]\nB\n"), max_iter=3, tol=0).fit(X[:300], y[:300])
    crf.save(tmp_path / "model")
    crf.encode(X, y, tmp_path / "x.blocks")
    words = tmp_path / "words.txt"
    words.write_text("\n".join("\n".join(map(" ".join, x)) + "\n" for x in X))
    for source in (words, tmp_path / "x.blocks"):
        run("tag", source, "-m", tmp_path / "model", "-o", tmp_path / "out.parquet", "-p", "-q")
        rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
        assert [row["labels"] for row in rows] == crf.predict(X)
        assert len(rows[0]["probabilities"]) == len(rows[0]["labels"])
        assert ("tokens" in rows[0]) == (source == words)
    (tmp_path / "empty.txt").write_text("")
    for model, source in ((crf, words), (CRF(max_iter=3, tol=0).fit([["a", "b"]], [["X", "Y"]]), tmp_path / "one.txt")):
        model.save(tmp_path / "model")
        (tmp_path / "one.txt").write_text("a\nb\n")
        for more in ([], ["-p"], ["-n", 2]):
            for data in (source, tmp_path / "empty.txt"):
                run("tag", data, "-m", tmp_path / "model", "-o", tmp_path / f"{data.stem}.parquet", "-q", *more)
            full, empty = (parquet.read_schema(tmp_path / f"{name}.parquet") for name in (source.stem, "empty"))
            assert full == empty


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_early_stopping_warm_start_and_checkpoints(text: Path, tmp_path: Path) -> None:
    X, y = read_columns(text)
    template = Template(TEMPLATE)
    blocks = CRF(template).encode(X[:2000], y[:2000], tmp_path / "a.blocks")
    dev = CRF(template).encode(X[2000:], y[2000:], tmp_path / "b.blocks")
    a = CRF(template, early_stopping=2).fit(X[:2000], y[:2000], X_dev=X[2000:], y_dev=y[2000:])
    b = CRF(early_stopping=2, checkpoint=tmp_path / "c", checkpoint_every=0).fit(blocks, X_dev=dev)
    assert a.weights_.tobytes() == b.weights_.tobytes()
    assert a.n_iter_ == b.n_iter_
    assert a.predict(dev) == a.predict(X[2000:])
    a.set_params(warm_start=True, max_iter=3, early_stopping=None).fit(X[2000:], y[2000:])
    b.set_params(warm_start=True, max_iter=3, early_stopping=None, checkpoint=None).fit(dev)
    assert a.state_features_ == b.state_features_
    f = b.objective(dev, None)
    assert f.size == len(b.weights_)
    assert np.isfinite(f.value_and_grad(b.weights_)[0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", ["sgd", "adagrad", "pa", "ap", "arow"])
def test_windows(text: Path, tmp_path: Path, algorithm: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("crfkit._core.tokens_per_block", lambda n: 1000)
    X, y = read_columns(text)
    CRF(Template(TEMPLATE)).encode(X, y, tmp_path / "x.blocks")
    blocks = [Blocks(tmp_path / "x.blocks", window=n) for n in (None, 100, 3)]
    assert blocks[0].dataset.n_blocks > 5
    fits = [CRF(algorithm=algorithm, max_iter=3, tol=0, random_state=1).fit(b) for b in blocks]
    assert fits[0].weights_.tobytes() == fits[1].weights_.tobytes()
    right = [crf.score(X, y) for crf in fits]
    assert right[2] > right[0] - 0.03
    with pytest.raises(ValueError, match="'window' of Blocks must be None"):
        CRF(algorithm="sag").fit(blocks[2])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_joined_and_split(text: Path, tmp_path: Path, monkeypatch: Any) -> None:
    X, y = read_columns(text)
    template = Template(TEMPLATE)
    parts = [slice(0, 900), slice(900, 1000), slice(1000, None)]
    for k, part in enumerate(parts):
        CRF(template).encode(X[part], y[part], tmp_path / f"{k}.blocks")
    run("encode", *(tmp_path / f"{k}.blocks" for k in range(3)), "-o", tmp_path / "all.blocks", "-q")
    whole = Blocks(tmp_path / "all.blocks")
    same(whole, X, y, template, max_iter=3)
    run("encode", whole.path, "--split", 2, "-o", tmp_path / "part.blocks", "-q")
    halves = [Blocks(tmp_path / f"part-{k}.blocks") for k in range(2)]
    assert sum(map(len, halves)) == len(X)
    assert {half.attributes for half in halves} == {whole.attributes}
    run("encode", halves[0].path, halves[1].path, "-o", tmp_path / "again.blocks", "-q")
    assert (tmp_path / "again.blocks").read_bytes() == Path(whole.path).read_bytes()


def test_damaged_files_are_refused(text: Path, tmp_path: Path) -> None:
    X, y = read_columns(text)
    path = tmp_path / "x.blocks"
    CRF(Template(TEMPLATE)).encode(X[:200], y[:200], path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*rng.integers(0, len(good), 60).tolist(), len(good) - 1, 3, 9]:
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ModelError) as found:
            CRF(max_iter=1).fit(Blocks(path))
        assert "\n" not in str(found.value)
        assert str(path) in str(found.value)
    for size in (0, 5, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(ModelError, match=r"x\.blocks"):
            Blocks(path)
    path.write_bytes(good)
    header, _, _, arrays = read_tensors(path, KEY, WHAT, verify=False)
    arrays = {k: v.copy() for k, v in arrays.items()}  # type: ignore[assignment]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"blocks": 2}, "later crfkit"),
        ({"labels": ["a", "a"]}, "'labels'"),
        ({"sequences": 7}, "'offsets'"),
        ({"n_attributes": [1]}, "'n_attributes'"),
    ]
    for change, words in changes:
        header.pop("format", None)
        write_arrays(tmp_path / "bad.blocks", KEY, {**header, **change}, arrays)
        with pytest.raises(ModelError, match=words):
            Blocks(tmp_path / "bad.blocks")
    with pytest.raises(ModelError):
        load(path)


def test_killed_encodings_go_on(text: Path, tmp_path: Path) -> None:
    (tmp_path / "template").write_text(TEMPLATE)
    data = tmp_path / "big.txt"
    data.write_text(some_text(12_000, seed=3))
    target = tmp_path / "x.blocks"
    command = ["encode", data, "-t", tmp_path / "template", "-o", target, "--min-freq", 2, "--resume", "-q"]
    small = "from crfkit.features import encoding\nfrom crfkit.data.readers import PieceReader\n"
    small += "from crfkit.cli import main\nPieceReader.size = 4096; encoding._RUN_TOKENS = 3000; main()"
    kills = 0
    for wait in (0.2, 0.05, 0.3, 0.1, 0.6, 0.2):
        process = subprocess.Popen([sys.executable, "-c", small, *map(str, command)])
        part = tmp_path / "x.blocks.part"
        began = time.monotonic()
        while not part.exists() and process.poll() is None and time.monotonic() < began + 60:
            time.sleep(0.01)
        time.sleep(wait)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if target.exists():
            break
    assert kills
    if part.exists():
        out = run(*[x if x != 2 else 3 for x in command], code=1)
        assert "another --min-freq; to begin anew, leave out --resume" in out.stderr
    subprocess.run([sys.executable, "-c", small, *map(str, command)], check=True)
    assert not part.exists()
    run(*[tmp_path / "whole" if x == target else x for x in command])
    assert target.read_bytes() == (tmp_path / "whole").read_bytes()
    X, y = read_columns(data)
    same(Blocks(target), X, y, Template(TEMPLATE), min_freq=2, max_iter=3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_preparing_takes_little_memory_per_token_and_sequence() -> None:
    n = 1_000_000
    offsets, labels = np.arange(0, 2 * n + 1, 2), np.zeros(2 * n, np.int32)
    starts = np.arange(0, n + 1, 1000)
    counts = np.zeros(len(starts), np.int64)
    none = np.zeros(0, np.uint16)
    empty = Group(none.astype(np.uint32), none, none, None, counts, counts, counts)
    data = StoredDataset(offsets, starts, {"state": empty}, window=5)
    windows = Windows(data, labels, None)
    rules = Constraints.from_forbidden(["X", "Y"], [("X", "Y")])

    def peak(do: Callable[[], Any]) -> int:
        tracemalloc.start()
        do()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(lambda: _seen_pairs(labels, offsets, 2, 0)) < 12e6  # for 2^18 tokens at a time
    assert peak(lambda: check_gold(labels, data, rules, ["X", "Y"])) < 12e6
    order = windows.order(np.random.default_rng(0))
    assert (np.sort(order) == np.arange(n)).all()
    assert peak(lambda: windows.order(np.random.default_rng(0))) < 9 * n
    assert peak(lambda: [len(part) for part in windows.cut(order)]) < 1e6
    assert {len(part) for part in windows.cut(order)} == {5000}


def test_vocabularies_are_written_without_room_for_more(text: Path) -> None:
    X, y = read_columns(text)
    arrays = CRF(Template(TEMPLATE), max_iter=1, tol=0).fit(X, y).model_.encoder.arrays()
    assert all(x[-1] != NONE for name, x in arrays.items() if name.startswith("attributes.") and len(x))


def test_sequences_without_labels_alone_are_encoded(tmp_path: Path) -> None:
    for y in ([None], [[None, None]]):
        blocks = CRF().encode([["a", "b"]], y, tmp_path / "x.blocks")
        assert (blocks.n_unknown, blocks.classes) == (2, ())
        with pytest.raises(ValueError, match="there are no labels to learn from"):
            CRF().fit(blocks)
    for path in (".", "", tmp_path):
        with pytest.raises(IsADirectoryError, match="this is a folder, not a file"):
            CRF().encode([["a"]], [["X"]], path)


def test_hashed_attributes(text: Path, tmp_path: Path) -> None:
    X, y = read_columns(text)
    template = Template(TEMPLATE)
    for min_freq in (0, 2):
        crf = CRF(template, hash_bits=12, min_freq=min_freq)
        blocks = crf.encode(X, y, tmp_path / "x.blocks")
        assert blocks.n_attributes <= 1 << 12
        found = same(blocks, X, y, template, hash_bits=12, min_freq=min_freq, max_iter=4)
        found.save(tmp_path / "model")
        assert load(tmp_path / "model").predict(X[:50]) == found.predict(X[:50])
        assert found.predict(blocks)[:50] == found.predict(X[:50])
        with pytest.raises(ValueError, match="a token has 3 columns, but the model was trained on tokens of 2 columns"):
            found.predict([[("a", "b", "c")]])
    wide = CRF(template, hash_bits=20, max_iter=20).fit(X, y)
    assert abs(wide.score(X, y) - CRF(template, max_iter=20).fit(X, y).score(X, y)) < 0.01
    with pytest.raises(ValueError, match="'hash_bits' of CRF must be at most 30"):
        CRF(hash_bits=31).fit(X, y)


@pytest.mark.parametrize("values", [False, True])
def test_scores_of_blocks_are_those_of_flat_data(values: bool) -> None:
    rng = np.random.default_rng(2)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 60))])
    n = int(offsets[-1])
    ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 6, n))])
    attr = (rng.integers(0, 300, ptr[-1]) ** 2 // 300).astype(np.uint32)
    data = Dataset(offsets, ptr, attr, rng.normal(size=len(attr)) if values else None)
    labels = rng.integers(0, 5, n).astype(np.int32)
    layout = Layout.build(data.take(np.arange(20)), labels[: offsets[20]], 5, (300, 0), WeightRules())
    data = replace(data, attr=np.where(attr > 250, attr + 100, attr).astype(np.uint32))  # some that the model lacks
    w = rng.normal(size=layout.size)
    for kind, scorer in ((np.float64, _core.ScorerF64), (np.float32, _core.ScorerF32)):
        native = scorer(layout.native, w, None, 1)
        found = [(np.empty((n, 5), kind), np.empty((1, 5, 5), kind)) for _ in range(2)]
        native.score(data.native, 1, *found[0])
        blocks = in_blocks(data, 40)
        assert blocks.stored is not None
        native.score_stored(blocks.stored, 2, *found[1])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5 if kind == np.float32 else 1e-12)


@pytest.mark.parametrize("label", [3, -2])
def test_labels_that_are_none_are_refused(text: Path, tmp_path: Path, label: int) -> None:
    """With checksums that match."""
    X, y = read_columns(text)
    path = tmp_path / "x.blocks"
    blocks = CRF(Template(TEMPLATE)).encode(X[:50], y[:50], path)
    labels = blocks.labels.copy()
    labels[7] = label
    sums = [block_checksum(blocks.dataset, labels, b) for b in range(blocks.dataset.n_blocks)]
    file = read_tensors(path, KEY, WHAT, verify=False)
    arrays = {**file.arrays, "labels": labels, "blocks.crc32": np.array(sums, np.uint32)}
    head = {**file.header, "checksums": {k: checksum(k, x) for k, x in arrays.items()}}
    write_arrays(path, KEY, head, arrays)
    with pytest.raises(ModelError, match=r"x\.blocks: .* damaged: the array 'labels' must hold numbers from -1 to 2"):
        CRF(max_iter=1).fit(Blocks(path))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_has_the_features_of_its_file(text: Path, tmp_path: Path) -> None:
    X, y = read_columns(text)
    X, y = X[:300], y[:300]
    template = Template(TEMPLATE)
    settings: list[dict[str, Any]] = [{}, {"hash_bits": 12}, {"min_freq": 2}]
    for how in settings:
        right: Any = CRF(template, max_iter=3, **how).fit(X, y)
        blocks = CRF(template, **how).encode(X, y, tmp_path / "x.blocks")
        for crf in (CRF(max_iter=3), CRF(template, max_iter=3, **how)):
            assert crf.fit(blocks).model_.params == right.model_.params | {"features": repr(template)}
            for name, estimator in (("a", right), ("b", crf)):
                estimator.save(tmp_path / name)
            a, b = (read_tensors(tmp_path / name, "crfkit", "model").header["params"] for name in "ab")
            assert a == b
        assert load(tmp_path / "b", kind=CRF).hash_bits == how.get("hash_bits")
    words = [[a for a, _ in x] for x in X]
    own = CRF(TokenFeatures(window=1)).encode(words, y, tmp_path / "own.blocks")
    assert CRF(TokenFeatures(window=1), max_iter=1).fit(own).n_iter_ == MEMM(max_iter=1).fit(own).n_iter_ == 1
    wrong: list[dict[str, Any]] = [{"features": x} for x in (template, TokenFeatures(), None)]
    for one in [*wrong, {"hash_bits": 12}]:
        message = rf"'{next(iter(one))}' of CRF must be .*, or what .*own\.blocks was encoded with, "
        with pytest.raises(ValueError, match=message):
            CRF(**one).fit(own)
        with pytest.raises(ValueError, match=message):
            tune(CRF(**one), own, None)
    with pytest.raises(ValueError, match=r"'hash_bits' of CRF must be None, or what .* was encoded with, 12, got 11"):
        CRF(hash_bits=11).fit(CRF(hash_bits=12).encode(words, y, tmp_path / "hashed.blocks"))


def test_labels_without_sequences_are_refused(text: Path, tmp_path: Path) -> None:
    X, y = (list(part[:150]) for part in read_columns(text))
    for n in (30, 100):
        for some, labels in ((iter(X[:n]), iter(y)), (iter(X[:n]), y), (X[:n], iter(y))):
            with pytest.raises(ValueError, match=f"there are {n} sequences, but labels for more"):
                CRF().encode(some, labels, tmp_path / "x.blocks")
    with pytest.raises(ValueError, match="'y' of encode must hold the labels"):
        CRF().encode(X, None, tmp_path / "x.blocks")
    assert not list(tmp_path.iterdir())


def test_what_is_left_of_an_encoding(text: Path, tmp_path: Path) -> None:
    X, y = (list(part) for part in read_columns(text))
    for error in (RuntimeError, KeyboardInterrupt):

        def sequences(error: Any = error) -> Any:
            yield from X[:2000]
            assert (tmp_path / "x.blocks.part").exists()
            raise error

        with pytest.raises(error):
            CRF(Template(TEMPLATE)).encode(sequences(), iter(y), tmp_path / "x.blocks")
        assert not list(tmp_path.iterdir())
    (tmp_path / "odd").write_text(some_text(50) + "w1 A\n")
    assert run("encode", tmp_path / "odd", "-o", tmp_path / "x.blocks", code=1).stderr
    assert not (tmp_path / "x.blocks.part").exists()
    encoding.BlockWriter(tmp_path / "x.blocks", CRF()._new_encoder(X))  # and killed
    found = run("encode", text, "-o", tmp_path / "x.blocks", "--resume", code=1).stderr
    assert "the interrupted encoding was of data in memory; to begin anew" in found
    CRF().encode(X, y, tmp_path / "x.blocks")
    assert not (tmp_path / "x.blocks.part").exists()
    writer = partial(encoding.BlockWriter, tmp_path / "y.blocks", CRF()._new_encoder(X))
    writer(about={"files": [], "piece": 1})
    with pytest.raises(ValueError, match="encoding had another version of crfkit; to begin anew"):
        writer(about={"files": [], "piece": 2}, resume=True)


def test_a_full_disk_is_named(text: Path, tmp_path: Path) -> None:
    (tmp_path / "template").write_text(TEMPLATE)
    given = ["encode", text, "-t", tmp_path / "template", "-o", tmp_path / "x.blocks", "-j", 1]
    for size in (20_000, 100_000, 250_000):  # bytes of a file: in the first arrays, and later
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        told = run(*given, code=1, preexec_fn=limit).stderr
        assert "the same command with --resume continues from here" in told
        assert "requested" not in told
        assert f"crfkit: error: File too large: {tmp_path / 'x.blocks'}" in told or "No space left on device: " in told
    run(*given, "--resume", "-q")
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1000, 1000))
    told = run("train", text, "-m", tmp_path / "m", "--max-iter", 1, "-q", code=1, preexec_fn=limit).stderr
    assert told == f"crfkit: error: File too large: {tmp_path / 'm'}\n"


def test_what_block_files_are_not_for(text: Path, tmp_path: Path) -> None:
    X, y = (part[:100] for part in read_columns(text))
    blocks = CRF(Template(TEMPLATE)).encode(X, y, tmp_path / "x.blocks")
    crf = CRF(c2=0.1).fit(blocks)
    assert crf.score(blocks) == crf.score(X, y)
    wrong: list[tuple[Any, str]] = [
        (lambda: crf.score(blocks, y), "'y' of score must be None: a block file holds the labels"),
        (lambda: crf.score(X), "'y' of score must hold the labels of the sequences, got None"),
        (lambda: crf.predict_entities(blocks), "'X' of predict_entities must hold words, and a block file holds none"),
        (lambda: CRF().encode(blocks, y, tmp_path / "y"), "'X' of encode must hold sequences of tokens: .* encoded"),
        *((lambda a=a: a.fit(blocks), "'X' must be a list .*; block files are for CRF and MEMM") for a in OTHERS),
        (lambda: SegmentCRF().fit(X), "'y' of fit must hold the labels of the sequences, got None"),
        (lambda: read_columns(blocks.path), r"x\.blocks: a block file, not text: give it by its name"),
        (lambda: load(blocks.path), r"x\.blocks: not a crfkit model: its header is one of 'crfkit blocks'"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()


def test_memory_in_bytes() -> None:
    assert encoding.bytes_of(1e6) == encoding.bytes_of("1MB") == 1_000_000
    for size in (10, "999999"):
        with pytest.raises(ValueError, match=r"'memory' must be at least 1 MB, got .* bytes; give a unit"):
            encoding.bytes_of(size)


@pytest.mark.parametrize(
    ("sizes", "measured"),  # tokens, sequences, entries, local, listed, spread, dense, rows, attributes, labels, ...
    [
        ((2117270, 89360, 14820890, 3138198, 16322840, 18456760, 18658, 386575, 93743, 22, 177418, 93743), 230e6),
        ((1700015, 80593, 10623514, 4745159, 11392814, 13244388, 49689, 1263837, 547379, 24, 770711, 1823970), 303e6),
        (
            (1700015, 80593, 11900105, 6021750, 12944888, 14940662, 120101, 3700628, 1823970, 24, 2561540, 1823970),
            500e6,
        ),
        (
            (4000962, 189554, 26318517, 12481806, 28364143, 32931026, 100783, 2912037, 1447206, 24, 1995516, 3119757),
            640e6,
        ),
    ],
)
def test_memory_is_predicted_within_a_tenth(sizes: tuple[int, ...], measured: float) -> None:
    """Peaks of L-BFGS on two threads, with the data in memory; the first of ten copies of CoNLL-2000."""
    assert Needs.of(Sizes(*sizes), find_algorithm("lbfgs"), 2).memory == pytest.approx(measured, rel=0.1)
