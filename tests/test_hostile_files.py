"""Model files made to do harm: each ends with a ModelError that names file and field, in memory like its own size."""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import os
import struct
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from limited import run_limited
from safetensors.numpy import save_file
from test_checkpoints import begun, problem
from test_files import X, Y, trained

import crfkit
from crfkit import CRF, HMM, Expectations, Gazetteer, ModelError, SegmentCRF, Template, TokenFeatures, WordVectors
from crfkit.base.checkpoints import Checkpoint, digest
from crfkit.base.tensors import read_tensors, write_tensors
from crfkit.compat import write_suite_model
from crfkit.data import DataError, read_columns, read_conllu, read_crfsuite
from crfkit.model.chain_model import read_file, write_file

KINDS = ["crf", "memm", "hmm", "graph", "skip", "factorial", "neural"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of every kind."""
    folder = tmp_path_factory.mktemp("good")
    for kind in KINDS:
        trained(kind).save(folder / kind)
    CRF(None).fit([[["a"], ["b"]]], [["A", "B"]]).save(folder / "items")
    return {name: folder / name for name in (*KINDS, "items")}


def set_in(header: Any, field: str, value: Any) -> None:
    """Sets (or, given ..., removes) what a field names: ``info.unseen.0.1``."""
    *path, last = (int(k) if k.isdigit() else k for k in field.split("."))
    for key in path:
        header = header[key]
    if value is ...:
        del header[last]
    else:
        header[last] = value


ANY = {"params": [1], "labels": "AB", "labels.0": None}
CHAIN: dict[str, Any] = {
    **ANY,
    "labels.0": [["A"]],
    "labels.1": float("nan"),
    "info": None,
    "info.iterations": None,
    "info.sequences": "many",
    "info.tokens": -1,
    "info.stopped": ["x"],
    "info.objective": "low",
    "info.reading": {"format": "odd"},
    "info.reading.n_columns": {"format": "columns", "n_columns": 10**30},
    "info.reading.more": {"more": 1},
    "params.algorithm": ["lbfgs"],
    "params.c1": [1],
    "params.c2": -1,
    "params.tol": float("nan"),
    "params.max_iter": 1.5,
    "params.start_end": 1,
    "params.entropy_per": "word",
    "params.dtype": None,
    "params.random_state": {"seed": 1},
    "dtype": "int32",
    "layout": [],
    "layout.n_labels": 10**400,
    "layout.start": None,
    "layout.size": 2**40,
    "layout.end": ...,
    "temperature": 0,
    "encoder": None,
    "encoder.kind": ["plan"],
    "encoder.plan": [],
    "encoder.plan.pad": 7,
    "encoder.plan.nodes": {"a": 1},
    "encoder.plan.nodes.0": [[["leaf"]]],
    "encoder.plan.templates.0": [0, 0, "U", None, False],
    "encoder.n_columns": "x",
    "encoder.tables": [2**30, 0, 0],
    "encoder.n_attributes": [2**32 - 1, 2**32 - 1],
}
FIELDS: dict[str, dict[str, Any]] = {
    "crf": CHAIN,
    "memm": {**ANY, "params.early_stopping": 0, "params.verbose": None},
    "hmm": {
        "params.smoothing": -1,
        "params.n_states": True,
        "info.unseen": ...,
        "info.unseen.0": 0,
        "info.unseen.0.1": None,
        "info.integers": "yes",
    },
    "graph": {
        "params": None,
        "params.inference": {"magic": 1},
        "params.decoding": ...,
        "info": {},
        "info.iterations": 1e300,
        "labels": [],
        "labels.0": "ab",
        "labels.0.0": None,
        "features": [[3]],
        "features.0": -1,
        "edge_types": 10**9,
    },
    "skip": {"skips": ["x"], "encoder": "plan"},
    "factorial": {"params.links": [10**30], "encoder.kind": None},
    "neural": {
        **ANY,
        "params.hidden": [0],
        "params.hidden.0": "4",
        "params.window": 10**12,
        "params.encoder": "gru",
        "params.activation": [],
        "params.dropout": float("nan"),
        "reader": [],
        "reader.kind": "magic",
        "reader.config": None,
        "reader.config.tables": [[1]],
        "reader.config.alphabet": ...,
        "reader.config.lower": 1,
    },
    "items": {"encoder.function": 3, "encoder.text": "no", "encoder.function.missing": ...},
}


@pytest.mark.parametrize("kind", FIELDS)
def test_damaged_fields_are_named(good: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """Whatever stands in a header, the error names the file and the field."""
    path = tmp_path / "m"
    for field, value in FIELDS[kind].items():
        header, arrays = read_file(good[kind])
        place = "info.reading" if field.startswith("info.reading.") else field.removesuffix(".missing")
        set_in(header, place, value)
        write_file(path, header, arrays)
        with pytest.raises(ModelError) as caught:
            crfkit.load(path)
        names = [part for part in place.split(".") if not part.isdigit()]
        message = str(caught.value)
        assert message.startswith(f"{path}: the model is damaged: "), (field, message)
        assert names[-1] in message, (field, message)
        assert "\n" not in message


def test_parameters_that_json_cannot_hold_are_the_defaults(tmp_path: Path) -> None:
    """They were written as their texts; numbers of numpy are numbers."""
    odd: dict[str, Any] = {"max_iter": np.int64(2), "random_state": np.random.RandomState(0), "c2": np.float32(0.5)}
    crf = CRF(n_jobs=1, **odd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf.fit([["a", "b"]], [["A", "B"]]).save(tmp_path / "m")
    found = crfkit.load(tmp_path / "m")
    assert isinstance(found, CRF)
    assert (found.c2, found.max_iter, found.random_state) == (0.5, 2, None)


ARRAYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "weights": lambda a: a.update(weights=a["weights"][:, None]),
    "weights'": lambda a: a.update(weights=np.ones(len(a["weights"]), np.int32)),
    "layout.transition": lambda a: a.pop("layout.transition"),
    "layout.state_ptr": lambda a: a.update({"layout.state_ptr": np.zeros(3)}),
    "constraints.end": lambda a: a.pop("constraints.end"),
    "constraints": lambda a: a.update(
        {"constraints.transitions": np.ones((1, 1), bool), "constraints.start": np.ones(1, bool)}
        | {"constraints.end": np.ones(1, bool)}
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_damaged_arrays_are_named(good: dict[str, Path], tmp_path: Path, name: str) -> None:
    header, found = read_file(good["crf"])
    arrays = dict(found)
    ARRAYS[name](arrays)
    write_file(tmp_path / "m", header, arrays)
    with pytest.raises(ModelError, match=name.strip("'")):
        crfkit.load(tmp_path / "m")


def test_an_hmm_without_its_parts(good: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "m"
    header, arrays = read_file(good["crf"])
    write_file(path, {**header, "estimator": "hmm", "info": {"unseen": []}, "params": {}}, arrays)
    with pytest.raises(ModelError, match="the attributes of an HMM must be one constant"):
        crfkit.load(path)
    for change in ({"start": -1}, {"transition": np.full(16, -1, np.int32)}):
        header, found = read_file(good["hmm"])
        arrays = found | {f"layout.{k}": v for k, v in change.items() if k == "transition"}  # type: ignore[assignment]
        header["layout"] |= {k: v for k, v in change.items() if k == "start"}
        write_file(path, header, arrays)
        with pytest.raises(ModelError, match="an HMM must have weights for first labels, all label pairs"):
            crfkit.load(path)


def raw(path: Path, table: Any, data: bytes = b"", length: int | None = None) -> None:
    """A safetensors file with this table, which may be text."""
    words = table if isinstance(table, bytes) else json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(words) if length is None else length) + words + data)


def entry(shape: list[Any], first: int, last: int, dtype: str = "F64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


HEAD = {"__metadata__": {"crfkit": '{"format": 1}'}}
TABLES: dict[str, tuple[Any, bytes]] = {
    "begins at byte 0, the one before ends at 8": ({"a": entry([1], 0, 8), "b": entry([1], 0, 8)}, bytes(8)),
    "begins at byte 8, the one before ends at 0": ({"a": entry([1], 8, 16)}, bytes(16)),
    "its arrays have 8 bytes, the file has 9": ({"a": entry([1], 0, 8)}, bytes(9)),
    "it is cut short: the array 'a' ends at byte 16 of 8": ({"a": entry([2], 0, 16)}, bytes(8)),
    "'a' of shape .3. does not have 8 bytes": ({"a": entry([3], 0, 8)}, bytes(8)),
    "'a' of shape .0, 1099511627776, .* does not have 0 bytes": ({"a": entry([0, 2**40, 2**40], 0, 0)}, b""),
    r"'a.shape\[0\]' must be an int from 0": ({"a": entry([-1], 0, 8)}, bytes(8)),
    r"'a.shape\[1\]' must be an int from 0": ({"a": entry([0, 2**62], 0, 0)}, bytes(8)),
    "'a.shape' must be a list of 0 to 16": ({"a": entry([1] * 70, 0, 8)}, bytes(8)),
    "'a.dtype' must be one of": ({"a": entry([1], 0, 8, "C64")}, bytes(8)),
    "'a.data_offsets' must be a list of 2": ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}, bytes(1)),
    "'a.data_offsets' is missing": ({"a": {"dtype": "U8", "shape": [1]}}, bytes(1)),
    "'a' must be an object with named fields": ({"a": 3}, b""),
    "it has 65537 arrays, the maximum is 65536": ({f"a{k}": 0 for k in range(65537)}, b""),
    "'a' holds values that are neither true nor false": ({"a": entry([1], 0, 1, "BOOL")}, b"\x02"),
}


@pytest.mark.parametrize("message", TABLES)
@pytest.mark.parametrize("verify", [True, False])
def test_tables_are_judged(tmp_path: Path, message: str, verify: bool) -> None:
    table, data = TABLES[message]
    raw(tmp_path / "m", HEAD | table, data)
    with pytest.raises(ModelError, match=f"m: the model is damaged: .*{message}"):
        crfkit.load(tmp_path / "m", verify=verify)


DEEP = "[" * 500 + "]" * 500
TEXTS: dict[str, Any] = {
    "nested more than 64 levels deep": {"__metadata__": {"crfkit": f'{{"format": 1, "info": {DEEP}}}'}},
    "it is nested more than 64": f'{{"a": {DEEP}}}'.encode(),
    "nested more": b'{"a": ' + b'{"a":' * 200_000,
    "'__metadata__' must be an object": {"__metadata__": [1]},
    "'__metadata__.crfkit' must be a string": {"__metadata__": {"crfkit": {"format": 1}}},
    "'__metadata__.other' must be a string": {"__metadata__": {"other": 3}},
    "not valid UTF-8 at byte 9": b"{\xff}",
    "'labels.0.' contains a lone surrogate": {"__metadata__": {"crfkit": r'{"format": 1, "labels": ["\ud800"]}'}},
    "contains a lone surrogate": rb'{"\udfff": 1}',
    "a number of 5000 digits is too long": {"__metadata__": {"crfkit": f'{{"format": {"9" * 5000}}}'}},
    "no format number": {"__metadata__": {"crfkit": '{"format": NaN}'}},
}


@pytest.mark.parametrize("message", TEXTS)
def test_headers_are_judged(tmp_path: Path, message: str) -> None:
    raw(tmp_path / "m", TEXTS[message])
    with pytest.raises(ModelError, match=f"m: not a crfkit model: .*{message}"):
        crfkit.load(tmp_path / "m")


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    crf = CRF().fit([["a", "b"]], [["A", "B"]])
    crf.model_ = replace(crf.model_, labels=("A", "\ud800"))
    with pytest.raises(ValueError, match=r"'labels\[1\]' contains a lone surrogate"):
        crf.save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_devices_are_no_models() -> None:
    with pytest.raises(ModelError, match="/dev/zero: not a model: it is not a regular file"):
        crfkit.load("/dev/zero")


CHILD = """
import resource, sys
import crfkit
import crfkit.torch.estimator
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 600_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
used = resource.getrusage(resource.RUSAGE_SELF)
seconds = int(used.ru_utime + used.ru_stime) + 30  # for all files together
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for path in sys.argv[1:]:
    try:
        crfkit.load(path)
        print("loaded")
    except crfkit.ModelError as e:
        print(e)
"""


def suite_of_labels(path: Path, n: int) -> None:
    """A CRFsuite model with many labels and no more than that."""
    crf = CRF(None, start_end=False, all_possible_transitions=False, max_iter=1)
    write_suite_model(crf.fit([[["a"]]] * 2, [["L0"], ["L1"]]).model_, path)
    from crfkit import _core
    from crfkit.compat.suite_file import SuiteFeatures, parse_suite, suite_bytes

    features, _ = parse_suite(path.read_bytes())
    names = _core.StringTable()
    names.add("a")
    labels = tuple(f"L{k}" for k in range(n))
    path.write_bytes(suite_bytes(SuiteFeatures(labels, names, features.state, features.transitions)))


def wide_crfpp(path: Path) -> None:
    """A CRF++ model whose features all have the same weights."""
    n, features = 300, "\n".join(f"0 B1:{k}" for k in range(20_000))
    labels, weights = "\n".join(f"L{k}" for k in range(n)), "1\n" * (n * n)
    head = f"version: 100\ncost-factor: 1\nmaxid: {n * n}\nxsize: 1"
    path.write_text(f"{head}\n\n{labels}\n\nB1:%x[0,0]\n\n{features}\n\n{weights}")


def wide_wapiti(path: Path) -> None:
    """A Wapiti model with one long name among many."""
    names = ["u:" + "x" * 300_000, *(f"u:{k}" for k in range(20_000))]
    strings = "".join(f"{len(x)}:{x},\n" for x in names)
    head = "#mdl#2#1\n#rdr#1/2/0\n9:u:%x[0,0],\n#qrk#2\n1:A,\n1:B,\n"
    path.write_text(f"{head}#qrk#{len(names)}\n{strings}0=0x1p+0\n")


def wide_network(source: Path, path: Path, **params: Any) -> None:
    """A neural CRF that says it is larger than its arrays."""
    header, arrays = read_file(source)
    header["params"] |= params
    write_file(path, header, arrays)


def sparse(source: Path, path: Path, size: int = 6 << 30) -> None:
    """A model whose weights are a hole of some gigabytes."""
    header = read_tensors(source, "crfkit", "model").header | {"format": 1}
    table = {"__metadata__": {"crfkit": json.dumps(header)}, "weights": entry([size // 8], 0, size)}
    raw(path, table)
    os.truncate(path, path.stat().st_size + size)


def long_label(source: Path, path: Path) -> None:
    """A graph model with one long label among many: an array of them would hold their product."""
    header, arrays = read_file(source)
    header["labels"] = [["x" * 1_000_000, *(f"L{k}" for k in range(20_000))]]
    write_file(path, header, arrays)


def many_links(source: Path, path: Path) -> None:
    """A factorial model with kinds of labels times links."""
    header, arrays = read_file(source)
    header["labels"] = [["A"]] * 50_000
    header["params"]["links"] = list(range(50_000))
    write_file(path, header, arrays)


def many_hashes(path: Path, nested: bool) -> None:
    """A model of hashed attributes that says there could be 2^30, of its features or of those within."""
    CRF(None, hash_bits=4, max_iter=2).fit([[["a"], ["b"]]], [["A", "B"]]).save(path)
    header, arrays = read_file(path)
    encoder = header["encoder"]
    header["encoder"] = encoder | ({"inner": encoder | {"bits": 30}} if nested else {"bits": 30})
    write_file(path, header, arrays)


def repeated_states(path: Path) -> None:
    """Hidden states that are a text: a number of labels times it is as many copies."""
    CRF(None, max_iter=2).fit([[["a"], ["b"]]], [["A", "B"]]).save(path)
    header, arrays = read_file(path)
    header["params"]["hidden_states"] = "x" * 4_000_000
    write_file(path, header, arrays)


def many_lists(path: Path) -> None:
    """Thousands of word lists, and arrays of thousands of others."""
    CRF(TokenFeatures(gazetteers={"g": Gazetteer(["a b"])}), max_iter=2).fit([["a", "b"]], [["A", "B"]]).save(path)
    header, arrays = read_file(path)
    header["encoder"]["lexicon"]["gazetteers"] *= 4096
    arrays |= {f"encoder.lexicon.gazetteers.{k}.w": np.zeros(0, np.uint8) for k in range(65_000)}
    write_file(path, header, arrays)


def many_parts(path: Path) -> None:
    """A header of millions of empty objects."""
    raw(path, {"__metadata__": {"crfkit": '{"format": 2, "labels": [' + "{}," * 5_000_000 + "{}]}"}})


def overlapping(path: Path) -> None:
    """Thousands of arrays in the same bytes."""
    raw(path, HEAD | {f"a{k}": entry([200_000], 0, 1_600_000) for k in range(5000)}, bytes(1_600_000))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_memory_is_bounded_by_the_file(good: dict[str, Path], tmp_path: Path) -> None:
    """Small files that once took gigabytes, or minutes, are refused within 600 MB and 30 s."""
    pytest.importorskip("torch")
    makers: dict[str, tuple[Callable[[Path], None], str]] = {
        "suite": (lambda p: suite_of_labels(p, 20_000), "it has 20000 labels in"),
        "crfpp": (wide_crfpp, "the features 'B1:0' and 'B1:1' share weights"),
        "wapiti": (wide_wapiti, "loaded"),
        "hidden": (lambda p: wide_network(good["neural"], p, hidden=[40000, 40000]), "must be of shape"),
        "window": (lambda p: wide_network(good["neural"], p, window=2**31), "more layers than there are arrays"),
        "lstm": (lambda p: wide_network(good["neural"], p, encoder="lstm", encoder_size=2**20), "array 'network."),
        "sparse": (lambda p: sparse(good["crf"], p), "are stored, the rest is holes"),
        "label": (lambda p: long_label(good["graph"], p), "a label in 'labels[0]' is too long"),
        "links": (lambda p: many_links(good["factorial"], p), "'params.links' refer to more weights"),
        "hashes": (lambda p: many_hashes(p, False), "loaded"),
        "nested hashes": (lambda p: many_hashes(p, True), "'encoder.inner.kind' must be one of"),
        "states": (repeated_states, "'params.hidden_states' must be an int from 1 to 2, got 'xxx"),
        "lists": (many_lists, "gazetteers.1."),
        "pairs": (lambda p: suite_of_labels(p, 4096), "it has 4096 labels in"),
        "parts": (many_parts, "more than 1048576 lists and objects"),
        "overlapping": (overlapping, "the one before ends at"),
    }
    for name, (make, _) in makers.items():
        make(tmp_path / name)
        assert (tmp_path / name).stat().st_blocks * 512 < 16_000_000
    paths = [str(tmp_path / name) for name in makers]
    out = subprocess.run([sys.executable, "-c", CHILD, *paths], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    for line, (_, message) in zip(out.stdout.splitlines(), makers.values(), strict=True):
        assert message in line


def test_the_command_line_shows_one_line(good: dict[str, Path], tmp_path: Path) -> None:
    model, data = tmp_path / "m", tmp_path / "data"
    header, arrays = read_file(good["crf"])
    header["info"]["iterations"] = None
    write_file(model, header, arrays)
    data.write_text("the D\n")
    convert = ["convert", model, tmp_path / "n"]
    for command in (["tag", data, "-m", model], ["inspect", model], convert, ["eval", data, "-m", model]):
        out = run(*command, code=1)
        assert out.stderr.count("\n") == 1
        assert "m: the model is damaged: 'info.iterations' must be an int from 0" in out.stderr


def test_a_card_shows_what_there_is(good: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("crf", "hmm"):
        header, arrays = read_file(good[kind])
        header["info"] = {k: v for k, v in header["info"].items() if k in ("tokens", "unseen")}
        header["params"] = {"smoothing": 1}
        write_file(tmp_path / "m", header, arrays)
        assert "smoothing" in run("inspect", tmp_path / "m").stdout


@pytest.mark.parametrize("kind", ["crf", "items", "hmm"])
def test_files_of_the_safetensors_library_load(good: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """Others order the arrays otherwise."""
    file = read_tensors(good[kind], "crfkit", "model")
    save_file({k: v.copy() for k, v in file.arrays.items()}, tmp_path / "m", {"crfkit": file.text})
    for verify in (True, False):
        found: Any = crfkit.load(tmp_path / "m", verify=verify)
        np.testing.assert_array_equal(found.model_.weights, file.arrays["weights"])


def test_checkpoints_with_one_sum_still_load(tmp_path: Path) -> None:
    path, old = tmp_path / "run", tmp_path / "old"
    begun(path)
    file = read_tensors(path, "crfkit checkpoint", "checkpoint")
    words = json.dumps({**file.header, "format": 1})
    names: list[str] = []

    def collect(x: Any) -> None:
        for v in x if isinstance(x, list) else x.get("dict", {}).values() if isinstance(x, dict) else ():
            collect(v)
        if isinstance(x, dict) and "array" in x:
            names.append(x["array"])

    collect(file.header["tree"])
    for sum_, good in ((digest([words, *(file.arrays[k] for k in names)]), True), ("0" * 32, False)):
        save_file({k: v.copy() for k, v in file.arrays.items()}, old, {"crfkit checkpoint": words, "sum": sum_})
        if good:
            crf = CRF(checkpoint=old).fit(*problem(), resume=True)
            np.testing.assert_array_equal(crf.weights_, CRF().fit(*problem()).weights_)
        else:
            with pytest.raises(ModelError, match="old: the checkpoint is damaged: it does not match its checksum"):
                Checkpoint(old, resume=True)


def test_damaged_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for tree, field in (
        ({"array": "x"}, "the array 'x' is missing"),
        ({"array": [1]}, "'tree' must be a string"),
        ({"dict": [1]}, "'tree.dict' must be an object"),
        ({"dict": {"a": {"b": 1}}}, "'tree.a.dict' is missing"),
        ([], "'tree' must be an object"),
    ):
        raw(path, {"__metadata__": {"crfkit checkpoint": json.dumps({"format": 1, "fingerprint": {}, "tree": tree})}})
        with pytest.raises(ModelError, match=f"run: the checkpoint is damaged: {field}"):
            Checkpoint(path, resume=True)
    raw(path, {"__metadata__": {"crfkit checkpoint": '{"format": 1, "fingerprint": {"a": 1}, "tree": {"dict": {}}}'}})
    with pytest.raises(ModelError, match=r"'fingerprint.a' must be a string"):
        Checkpoint(path, resume=True)


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"algorithm": "sgd"}, ("search", "rng", "state", "state"), -1),
        ({"algorithm": "arow"}, ("search", "rng", "uinteger"), 2**40),
        ({"algorithm": "sgd"}, ("search", "objective", "beams", "most"), 2**70),
        ({"algorithm": "sgd"}, ("search", "objective", "beams", "rest"), -1.5),
        ({}, ("search", "evaluations"), "many"),
    ],
)
def test_damaged_states_are_refused(
    tmp_path: Path, settings: dict[str, Any], field: tuple[str, ...], value: Any
) -> None:
    """Right in their names and types, and yet no states."""
    path = tmp_path / "run"
    begun(path, **settings)
    file = read_tensors(path, "crfkit checkpoint", "checkpoint")
    tree = file.header["tree"]
    for name in field[:-1]:
        tree = tree["dict"][name]
    assert field[-1] in tree["dict"]
    tree["dict"][field[-1]] = value
    write_tensors(path, "crfkit checkpoint", file.header, file.arrays)
    with pytest.raises(ValueError, match="run: the checkpoint is damaged: "):
        CRF(checkpoint=path, n_jobs=1, **settings).fit(*problem(), resume=True)


def test_names_with_empty_parts(tmp_path: Path) -> None:
    """An empty text may have no address, which a sanitizer saw."""
    names = ["*", "u:a", "*:/a", "u:b_x-1/a"]
    strings = "".join(f"{len(x)}:{x},\n" for x in names)
    patterns = "1:*,\n9:u:%x[0,0],\n18:*:%X[-1,1]/%x[0,0],\n"
    head = f"#mdl#2#1\n#rdr#3/2/0\n{patterns}#qrk#2\n1:A,\n1:B,\n#qrk#4\n{strings}"
    (tmp_path / "m").write_text(f"{head}0=0x1p+0\n")
    model = crfkit.load(tmp_path / "m")
    assert model.predict([[("a", "x"), ("a", "")]]) == [["A", "A"]]


def items(x: list[str]) -> list[dict[str, Any]]:
    return [{"w": w} for w in x]


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_load_are_used_or_refused(good: dict[str, Path], kind: str) -> None:
    with pytest.raises(ValueError, match=rf"'features' of load is a function, but .*{kind} computes its own features"):
        crfkit.load(good[kind], features=items)
    with pytest.raises(ValueError, match="'features' of load must be a function or None, got Template"):
        crfkit.load(good[kind], features=Template("U:%x[0,0]"))


def test_features_of_load_make_items(tmp_path: Path) -> None:
    crf = CRF(None, start_end=False).fit([items(x) for x in X], Y)
    crf.save(tmp_path / "m")
    write_suite_model(crf.model_, tmp_path / "suite")
    for name in ("m", "suite"):
        assert crfkit.load(tmp_path / name, features=items).predict(X) == crf.predict([items(x) for x in X])


def test_loaded_models_have_types(good: dict[str, Path]) -> None:
    """Type checkers know what all kinds share, and the kind that is asked for."""
    hmm = crfkit.load(good["hmm"], kind=HMM)
    assert hmm.transmat_.shape == (4, 4)
    found = crfkit.load(good["crf"])
    assert isinstance(found, CRF)
    assert found.predict(X) == Y


def test_unknown_instruction_sets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from crfkit.base import interpreter

    monkeypatch.setenv("CRFKIT_ISA", "avx2")
    importlib.reload(interpreter)
    monkeypatch.setenv("CRFKIT_ISA", "foo")
    with pytest.raises(ImportError, match="CRFKIT_ISA must be base, avx2 or avx512, got 'foo'"):
        importlib.reload(interpreter)


def test_the_free_threaded_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from crfkit.base import interpreter

    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    importlib.reload(interpreter)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False)
    with pytest.raises(ImportError, match="crfkit is not tested on the free-threaded interpreter"):
        importlib.reload(interpreter)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED"))
    with pytest.raises(ImportError, match="use the ordinary build"):
        importlib.reload(interpreter)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_long_names_with_many_readings(tmp_path: Path) -> None:
    """Every reading has texts of its own: thousands of a megabyte each."""
    path = tmp_path / "model.txt"
    line = "U00:" + "/".join(["%x[0,0]"] * 12)
    head = "version: 100\ncost-factor: 1\nmaxid: 2\nxsize: 1\n\nA\nB\n\n"
    path.write_text(f"{head}{line}\n\n0 U00:{'a/' * 500_000}\n\n1\n2\n")
    code = """
    try:
        crfkit.load(sys.argv[1])
    except ModelError as e:
        print(e)
    """
    assert "can be read out of the names in too many ways" in run_limited(code, path)


LONG_LINES = """
from crfkit import Expectations, Gazetteer, WordVectors
from crfkit.annotate.formats import read_documents
from crfkit.cli import app
from crfkit.data import read_columns, read_conllu, read_crfsuite
from crfkit.data.readers import iter_text

def tag(*options):
    app(["tag", path, "-m", sys.argv[2], *options], standalone_mode=False)

path = sys.argv[1]
for read in (
    read_columns, read_conllu, read_crfsuite, Gazetteer.from_file, WordVectors.from_file, Expectations.read,
    lambda path: list(iter_text(path)), lambda path: read_documents([path]),
    lambda path: tag(), lambda path: tag("--text"), lambda path: tag("-f", "conllu"), lambda path: tag("--entities"),
):
    try:
        read(path)
    except ValueError as e:
        print(e)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_long_lines_are_refused(good: dict[str, Path], tmp_path: Path, opener: Any) -> None:
    """A small compressed file may hold a line of gigabytes; the message names the file and the line."""
    path = tmp_path / "long"
    with opener(path, "wb") as file:
        file.write(b"\n\n")
        for _ in range(1 << 8):
            file.write(b"x" * (1 << 20))
    out = run_limited(LONG_LINES, path, good["crf"], megabytes=450, seconds=30)
    assert out.splitlines() == [f"{path}:3: the line has more than 16777216 bytes; break it into shorter ones"] * 12


@pytest.mark.parametrize("kind", [*KINDS, "segment", "order"])
@pytest.mark.parametrize("value", [np.nan, 1e38, -1e308])
def test_weights_are_finite_in_single_precision(good: dict[str, Path], tmp_path: Path, kind: str, value: float) -> None:
    """So that what is predicted is; for every kind of model, when it is loaded."""
    path = tmp_path / "m"
    if kind == "segment":
        SegmentCRF(max_iter=2).fit(X, [["O"] * len(x) for x in X[:-1]] + [["B-A"] * len(X[-1])]).save(path)
    elif kind == "order":
        CRF(order=2, max_iter=2).fit(X, Y).save(path)
    header, arrays = read_file(path if path.exists() else good[kind])
    key = "crf.transitions" if kind == "neural" else "weights"
    with np.errstate(over="ignore"):
        arrays[key] = np.full_like(arrays[key], value)
    write_file(path, header, arrays)
    with pytest.raises(ModelError, match=rf"m: the model is damaged: the array '{key}' must hold finite numbers of at"):
        crfkit.load(path)


def test_weights_of_other_tools_are_finite_in_single_precision(tmp_path: Path) -> None:
    path = tmp_path / "m"
    CRF(None, start_end=False).fit([[["a"], ["b"]]], [["A", "B"]]).save(tmp_path / "good")
    model = crfkit.load(tmp_path / "good", kind=CRF).model_
    write_suite_model(replace(model, weights=np.full_like(model.weights, 1e31)), path)
    with pytest.raises(ModelError, match="m: the CRFsuite model is damaged: a weight is not a number of at most"):
        crfkit.load(path)
    path.write_text("version: 100\ncost-factor: 1\nmaxid: 1\nxsize: 1\n\nA\n\nU:%x[0,0]\n\n0 U:a\n\n1e31\n")
    with pytest.raises(ModelError, match=r"m: .*weight 0 is not a number of at most"):
        crfkit.load(path)


CRFPP = "version: 100\ncost-factor: 1\nmaxid: 1\nxsize: 1\n\nA\n\nU:%x[0,0]\n\n0 U:a\n\n1\n"
WAPITI = "#mdl#2#1\n#rdr#1/0/0\n9:u:%x[0,0],\n#qrk#1\n1:A,\n#qrk#1\n3:u:a,\n0=0x1p+0\n"


@pytest.mark.parametrize(
    ("good", "old", "new", "message"),
    [
        (CRFPP, "\n1\n", "\na\n", "weight 0 cannot be read: 'a'"),
        (CRFPP, "\n1\n", "\n1e300\n", "weight 0 is not a number of at most 1e\\+30: '1e300'"),
        (CRFPP, "1\nmaxid", "a\nmaxid", "'cost-factor' must be a number that fits the model, got 'a'"),
        (CRFPP, "xsize: 1", "xsize: 0", "'xsize' must be a number that fits the model, got '0'"),
        (CRFPP, "xsize: 1", f"xsize: {2**40}", "'xsize' must be a number that fits the model"),
        (CRFPP, "version: 100", "version: 99", "'version' must be a number that fits the model, got '99'"),
        (WAPITI, "0=0x1p+0", "0", "weight 0 cannot be read: '0'"),
        (WAPITI, "0=0x1p+0", "0=0x1p+9999", "weight 0 cannot be read"),
        (WAPITI, "0=0x", f"{'9' * 30}=0x", "weight 0 cannot be read"),
        (WAPITI, "0=0x", f"{'9' * 5000}=0x", "weight 0 cannot be read"),
        (WAPITI, "#mdl#2", f"#mdl#{'9' * 5000}", "expected #mdl# with mode and number of weights at byte 0"),
    ],
)
def test_fields_of_text_models_are_named(tmp_path: Path, good: str, old: str, new: str, message: str) -> None:
    path = tmp_path / "m"
    path.write_text(good)
    assert crfkit.load(path, kind=CRF).predict([["a"]]) == [["A"]]
    path.write_text(good.replace(old, new, 1))
    with pytest.raises(ModelError, match=f"m: .* damaged: {message}"):
        crfkit.load(path)
    path.write_text(CRFPP.replace("factor: 1", "factor: 1e300").replace("\n1\n", "\n1e300\n"))
    with pytest.raises(ModelError, match="weight 0 is not a number of at most"):
        crfkit.load(path)


def test_constraints_that_allow_nothing_are_refused(good: dict[str, Path], tmp_path: Path) -> None:
    for key in ("start", "end"):
        header, arrays = read_file(good["crf"])
        arrays[f"constraints.{key}"] = np.zeros_like(arrays[f"constraints.{key}"])
        write_file(tmp_path / "m", header, arrays)
        with pytest.raises(ModelError, match=rf"m: the model is damaged: 'constraints.{key}' must allow a label"):
            crfkit.load(tmp_path / "m")


LONG = ("[" * 100_000, "A\ta:" + "9" * 100_000, "A " * 100_000 + "\nA", "A\ta:" + "\u00e4" * 100_000)


@pytest.mark.parametrize("text", LONG)
def test_messages_quote_a_few_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data"
    path.write_text(text)
    found = []
    for read in (read_columns, read_conllu, read_crfsuite, Expectations.read, WordVectors.from_file, crfkit.load):
        try:
            read(path)
        except (DataError, ModelError) as e:
            found.append(str(e))
    assert len(found) > 3
    for message in found:
        assert message.startswith(f"{path}")
        assert len(message) < len(str(path)) + 1000


@pytest.mark.parametrize("n", [2000, 2001])
def test_labels_of_small_models_of_other_tools(tmp_path: Path, n: int) -> None:
    """A table of all pairs takes up to a gigabyte, so a small file may not claim any number of labels."""
    path = tmp_path / "m"
    labels = "\n".join(f"L{k}" for k in range(n))
    weights = "1\n" * n
    head = f"version: 100\ncost-factor: 1\nmaxid: {n}\nxsize: 1"
    path.write_text(f"{head}\n\n{labels}\n\nU:%x[0,0]\n\n0 U:a\n\n{weights}")
    if n == 2000:
        assert len(crfkit.load(path, kind=CRF).classes_) == n
        return
    with pytest.raises(ModelError, match=r"it has 2001 labels in .* bytes: more than 2000 need a byte for each"):
        crfkit.load(path)


@pytest.mark.parametrize("change", ["number", "type", "cut", "missing"])
def test_damaged_results_of_checkpoints_name_the_file(tmp_path: Path, change: str) -> None:
    """Of a training that has ended."""
    path = tmp_path / "run"
    CRF(checkpoint=path, c2=2.0).fit(*problem())
    file = read_tensors(path, "crfkit checkpoint", "checkpoint")
    arrays, tree = dict(file.arrays), file.header["tree"]
    if change == "number":
        tree["dict"]["finished"], arrays = 3, {}
    elif change == "missing":
        del tree["dict"]["finished"]["dict"]["reason"]
    else:
        w = arrays["/finished/w"]
        arrays["/finished/w"] = w.astype(np.int64) if change == "type" else w[:-1]
    write_tensors(path, "crfkit checkpoint", {"fingerprint": file.header["fingerprint"], "tree": tree}, arrays)
    with pytest.raises(ModelError, match="run: the checkpoint is damaged: not the result of a training run"):
        CRF(checkpoint=path, c2=2.0).fit(*problem(), resume=True)


def test_long_templates_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_text("".join(f"U{k}:%x[0,0]\n" for k in range(20_001)))
    with pytest.raises(ValueError, match="template: a plan may have at most 20000 templates, got 20001"):
        Template.from_file(path)
