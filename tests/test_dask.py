"""Partitions on a cluster: the same weights wherever they lie, and whoever is lost. Clusters and kills are real."""

from __future__ import annotations

import asyncio
import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest

import crfkit
from crfkit.data import DataError, load_corpus, read_columns
from crfkit.data.dataset import Layout, PairCounts, WeightRules
from crfkit.features.encoders import make_encoder
from crfkit.training.partitions import LocalPartitions, Partition, PartitionedObjective, tree, tree_sum

pytest.importorskip("distributed")

import dask
import dask.bag as db
import dask.dataframe as dd
import distributed
import pandas as pd
from distributed import Client, LocalCluster

from crfkit import dask as on_dask
from crfkit.cli import main
from crfkit.cli.cluster import PATIENT
from crfkit.dask import engine, tagging
from crfkit.dask.encoding import _threads, new_encoder
from crfkit.dask.engine import ClusterEngine
from crfkit.dask.sources import Fields, parts_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

Pairs = list[tuple[Any, Any]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    X, y = load_corpus("ingredients")
    return list(zip(list(X[:120]), list(y[:120]), strict=True))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    how: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 50}
    with dask.config.set(PATIENT), LocalCluster(2, **how) as cluster, Client(cluster, set_as_default=False) as one:
        yield one


def bag(pairs: Pairs, n: int = 3) -> Any:
    return db.from_sequence(pairs, npartitions=n)


def crf(**more: Any) -> on_dask.CRF:
    return on_dask.CRF(**{"max_iter": 8, "n_jobs": 1, **more})


def fitted(client: Client | None, data: Any, estimator: on_dask.CRF, **how: Any) -> on_dask.CRF:
    if client is None:
        return estimator.fit(data, **how)
    with client.as_current():
        return estimator.fit(data, **how)


# sums and vocabularies, without a cluster


def test_the_example_of_the_page_runs_as_a_script(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "dask.md").read_text(encoding="utf-8")
    script = tmp_path / "example.py"
    script.write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == page.split("```output\n")[1].split("```")[0], done.stderr


def test_partial_fit_is_that_of_the_local_crf() -> None:
    crf = on_dask.CRF(algorithm="sgd").fit(db.from_sequence([(["a", "b"], ["A", "B"])]))
    assert not hasattr(crf, "partial_fit")
    with pytest.raises(AttributeError, match=r"crfkit.dask.CRF has no 'partial_fit': use to_local\(\).partial_fit"):
        _ = crf.partial_fit
    assert crf.to_local().partial_fit([["c"]], [["C"]]).classes_.tolist() == ["A", "B", "C"]


def test_the_tree_depends_on_the_number_alone_and_adds_everything_once() -> None:
    for n in range(1, 20):
        assert sorted(tree_sum([(k,) for k in range(n)], operator.add)) == list(range(n))
        assert len(list(tree(n))) == n - 1
    assert tree_sum(list("abcde"), lambda a, b: f"({a}{b})") == "(((ab)(cd))e)"


@pytest.mark.parametrize("min_freq", [0, 2])
@pytest.mark.parametrize("kind", ["rows", "items", "hashed"])
def test_a_vocabulary_counted_by_partition_is_that_of_all_data(pairs: Pairs, min_freq: float, kind: str) -> None:
    if kind == "items":
        pairs = [([{"w": t, "n": len(t)} for t in x], y) for x, y in pairs]
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    how: dict[str, Any] = {"max_iter": 0, "min_freq": min_freq, "hash_bits": 12 if kind == "hashed" else None}
    local = crfkit.CRF(**how, n_jobs=1).fit(X, y)
    parts = crf(**how).fit(bag(pairs, 4))
    if kind != "hashed":
        assert parts.model_.encoder.names() == local.model_.encoder.names()
    assert parts.model_.labels == local.model_.labels
    for name, array in local.model_.layout.arrays().items():
        np.testing.assert_array_equal(parts.model_.layout.arrays()[name], array)


def test_counts_give_the_layout_that_the_data_gives() -> None:
    X = [["a", "b", "a"], ["b"], ["c", "a"]]
    labels = np.array([0, 1, -2, 1, 0, 1], np.int32)
    hints = np.zeros((1, 2))
    data = make_encoder("auto", X).encode(X, True, 1)
    n = int(data.attr.max()) + 1
    for rule in (WeightRules(), WeightRules(2), WeightRules(all_possible_states=True, all_possible_transitions=False)):
        right = Layout.build(data, labels, 2, (n, 0), rule, hints=hints)
        found = Layout.of_counts(PairCounts.of(data, labels, 2, (n, 0), hints), (n, 0), rule)
        for name, array in right.arrays().items():
            np.testing.assert_array_equal(found.arrays()[name], array)


def test_the_sum_over_partitions_is_the_objective(pairs: Pairs) -> None:
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    local = crfkit.CRF(dtype="float64", n_jobs=1)
    skeleton, problem = local._prepare(X, y, None, None, grow=True)
    cuts = [np.arange(0, 50), np.arange(50, 120)]
    first, second = (problem.take(cut) for cut in cuts)
    parts = LocalPartitions([Partition(first, 50 / 120, False), Partition(replace(second, c2=0.0), 70 / 120, False)])
    f = PartitionedObjective(parts, skeleton.layout.size, "float64")
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, f.size))
    value, gradient = f.value_and_grad(w)
    whole = local.objective(X, y)
    right, right_gradient = whole.value_and_grad(w)
    assert value == pytest.approx(right, rel=1e-12)
    np.testing.assert_allclose(gradient, right_gradient, atol=1e-9)
    np.testing.assert_allclose(f.hessian_product(w, v), whole.hessian_product(w, v), atol=1e-8)


@pytest.mark.parametrize(
    "how", [{}, {"c1": 0.1}, {"algorithm": "newton-cg"}, {"dtype": "float64"}, {"class_weight": "balanced"}]
)
def test_one_partition_has_the_weights_of_the_local_crf(how: dict[str, Any]) -> None:
    X, y = (list(part) * 20 for part in load_corpus("ingredients"))  # more than one block
    for labels in (y, [None if k == 3 else [None, *row[1:]] for k, row in enumerate(y)]):
        local = crfkit.CRF(max_iter=5, c2=0.01, **how).fit(X, labels)
        # empty partitions are not counted
        parts = crf(max_iter=5, c2=0.01, **how).fit([dask.delayed(tuple)(x) for x in (([], []), (X, labels))])
        assert (parts.weights_ == local.weights_).all()
        assert parts.result_.value == local.result_.value


def test_unknown_labels_weights_and_class_weights_are_those_of_the_local_crf(pairs: Pairs) -> None:
    given = [(x, [None if t == 1 else b for t, b in enumerate(y)], 1.0 + k % 3) for k, (x, y) in enumerate(pairs)]
    how: dict[str, Any] = {"dtype": "float64", "class_weight": "balanced", "max_iter": 12}
    parts = crf(**how).fit(db.from_sequence(given, npartitions=3))
    X, y, weights = zip(*given, strict=True)
    local = crfkit.CRF(**how, n_jobs=1).fit(list(X), list(y), sample_weight=weights)
    assert parts.result_.value == pytest.approx(local.result_.value, rel=1e-9)
    np.testing.assert_allclose(parts.weights_, local.weights_, atol=1e-6)


def test_lexicons_are_those_of_the_local_crf(pairs: Pairs) -> None:
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    classes = crfkit.WordClasses.fit(X, 12, n_jobs=1)
    lists = {"units": crfkit.Gazetteer(["cup", "cups", "fluid ounces"])}
    how: dict[str, Any] = {"features": crfkit.TokenFeatures(classes=classes, gazetteers=lists), "dtype": "float64"}
    parts = crf(**how).fit(bag(pairs))
    local = crfkit.CRF(**how, max_iter=8, n_jobs=1).fit(X, y)
    assert parts.model_.encoder.names() == local.model_.encoder.names()
    assert parts.model_.encoder.config() == local.model_.encoder.config()
    np.testing.assert_allclose(parts.weights_, local.weights_, atol=1e-6)


def test_soft_labels_are_those_of_the_local_crf(pairs: Pairs) -> None:
    names = sorted({label for _, y in pairs for label in y})
    given = [(x, [{b: 0.8, names[k % len(names)]: 0.1 + 0.001 * k} for b in y]) for k, (x, y) in enumerate(pairs)]
    how: dict[str, Any] = {"dtype": "float64", "max_iter": 12}
    parts = crf(**how).fit(db.from_sequence(given, npartitions=3))
    local = crfkit.CRF(**how, n_jobs=1).fit([x for x, _ in given], [y for _, y in given])
    assert parts.result_.value == pytest.approx(local.result_.value, rel=1e-9)


def test_stochastic_optimisers_average_their_iterates(pairs: Pairs) -> None:
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    best = crfkit.CRF(n_jobs=1, c2=0.1).fit(X, y)
    for algorithm in ("sgd", "adagrad", "ap"):
        found = crf(algorithm=algorithm, c2=0.1, max_iter=10, tol=0).fit(bag(pairs))
        again = crf(algorithm=algorithm, c2=0.1, max_iter=10, tol=0).fit(bag(pairs))
        assert (found.weights_ == again.weights_).all()
        assert found.score(X, y) > best.score(X, y) - 0.05
    with pytest.raises(ValueError, match="must not be 'sag'"):
        crf(algorithm="sag").fit(bag(pairs))


def test_frames_delayed_parts_and_bags_are_the_same_data(pairs: Pairs, tmp_path: Path) -> None:
    right = crf().fit(bag(pairs, 2)).weights_
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    whole = pd.DataFrame({"tokens": X, "tags": y})
    with pytest.raises(ValueError, match=r"column 'tokens' must hold lists, got text: .*convert-string"):
        crf().fit(dd.from_pandas(whole, npartitions=2), columns="tokens", label="tags")
    with dask.config.set({"dataframe.convert-string": False}):
        lists = dd.from_pandas(whole, npartitions=2)
    assert (crf().fit(lists, columns="tokens", label="tags").weights_ == right).all()
    rows = [(i, a, b) for i, (x, labels) in enumerate(pairs) for a, b in zip(x, labels, strict=True)]
    table = pd.DataFrame(rows, columns=["sentence", "word", "tag"])
    starts = [0, 60, len(pairs) - 1]
    frame = dd.from_pandas(table.set_index("sentence"), npartitions=1).repartition(divisions=starts)
    how: dict[str, Any] = {"columns": "word", "label": "tag", "by": "sentence"}
    rows_crf = crf().fit(frame, **how)
    assert (rows_crf.weights_ == right).all()
    half = len(pairs) // 2
    delayed = [dask.delayed(tuple)((X[:half], y[:half])), dask.delayed(tuple)((X[half:], y[half:]))]
    assert (crf().fit(delayed).weights_ == right).all()
    # predictions come in the same partitions and rows
    flat = [label for labels in rows_crf.to_local().predict(X) for label in labels]
    assert rows_crf.predict(frame).compute().tolist() == flat
    assert rows_crf.predict(frame).npartitions == 2
    cut = dd.from_pandas(table, npartitions=3, sort=False)
    with pytest.raises(ValueError, match="lies in partitions 0 and 1: partition the frame by sequences"):
        crf().fit(cut, **how)
    again = pd.concat([table, table[:1]])
    with pytest.raises(ValueError, match=r"occurs again after another\. Give more columns in 'by'.* from_table can"):
        crf().fit(dd.from_pandas(again, npartitions=1, sort=False), **how)


def test_files_are_cut_between_sequences_and_errors_name_file_and_line(pairs: Pairs, tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    text = "\n".join("".join(f"{a} {b}\n" for a, b in zip(x, y, strict=True)) for x, y in pairs)
    path.write_text(text, encoding="utf-8")
    for size in (700, 1500, 1 << 20):
        parts = [part.compute() for part in on_dask.read_columns(path, piece_size=size)]
        assert [x for part in parts for x in part.X] == list(read_columns(path).X)
        assert len(parts) == -(-len(text.encode()) // size) or size > 1000
    lines = text.split("\n")
    bad = next(k for k in range(len(lines) // 2, len(lines)) if lines[k])
    lines[bad] += " more"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=rf"data.txt:{bad + 1}: .*got 3"):
        crf().fit(on_dask.read_columns(tmp_path / "*.txt", piece_size=700))


@pytest.mark.parametrize("on", ["a cluster", "one process"])
def test_files_that_are_not_there_are_named(client: Client, pairs: Pairs, tmp_path: Path, on: str) -> None:
    for missing in ("none.txt", "none*.txt"):
        with pytest.raises(FileNotFoundError, match=rf"no file matches: '.*{missing[:4]}"):
            on_dask.read_columns(tmp_path / missing)
    path = tmp_path / "data.txt"
    path.write_text("two QTY\n\npear NAME\n")
    parts = on_dask.read_columns(path)
    blocks = crfkit.CRF(n_jobs=1).encode(*read_columns(path), tmp_path / "data.blocks")
    path.unlink()
    Path(blocks.path).unlink()
    cluster = client if on == "a cluster" else None
    with pytest.raises(DataError, match=r"^\S*data.txt: No such file or directory: all workers must be able to read"):
        fitted(cluster, parts, crf())
    with pytest.raises(DataError, match=r"^\S*data.blocks: No such file or directory \(partition 0\)"):
        fitted(cluster, blocks, crf())


def test_wrong_names_and_parameters_are_said_before_any_partition_is_made(pairs: Pairs) -> None:
    rows = [(i, a, b) for i, (x, y) in enumerate(pairs[:9]) for a, b in zip(x, y, strict=True)]
    frame = dd.from_pandas(pd.DataFrame(rows, columns=["sentence", "word", "tag"]), npartitions=1)
    how: dict[str, Any] = {"columns": "word", "label": "tag", "by": "sentence"}
    for name in how:
        wrong = rf"'{name}' of fit names 'none', but the frame has the columns 'sentence', 'word', 'tag'"
        with pytest.raises(ValueError, match=wrong):
            crf().fit(frame, **how | {name: "none"})
    found = crf().fit(frame, **how)
    with pytest.raises(
        ValueError, match="predict looks for 'sentence', as fit did, but the frame has the columns 'word'"
    ):
        found.predict(frame[["word"]])
    with pytest.raises(ValueError, match="'by' of predict must be 'path', 'marginals' or 'nbest', got 'sentence'"):
        found.predict(frame, by="sentence")
    with pytest.raises(ValueError, match="beam"):
        found.predict(frame, beam="fixed")
    with pytest.raises(ValueError, match="'label' of fit must name the frame's column of labels, got None"):
        crf().fit(frame, columns="word")
    with pytest.raises(ValueError, match="'y' of fit must be None for a frame: 'label' names"):
        crf().fit(frame, bag(pairs), label="tag", columns="word")
    with pytest.raises(ValueError, match="predict looks for 'tokens', since fit was given no other 'columns', but"):
        crf().fit(bag(pairs)).predict(frame)


def test_what_cannot_be_done_on_partitions_is_said_at_once(pairs: Pairs) -> None:
    for wrong in ({"beam": "fixed:2"}, {"entropy_weight": 1.0}, {"warm_start": True}, {"hidden_states": 2}):
        with pytest.raises(ValueError, match=f"'{next(iter(wrong))}' of crfkit.dask.CRF must be"):
            crf(**wrong).fit(bag(pairs))
    with pytest.raises(ValueError, match=r"must be a dask bag, .* got list; crfkit.CRF takes what is in memory"):
        crf().fit([x for x, _ in pairs])
    with pytest.raises(ValueError, match="there is no sequence to learn from"):
        crf().fit(db.from_sequence(pairs, npartitions=2).filter(lambda pair: False))
    X, y = (bag(pairs).map(operator.itemgetter(k)) for k in range(2))
    for name in ("X_dev", "y_dev"):
        with pytest.raises(ValueError, match=f"'{name}' of fit must be in memory, got Bag: compute it"):
            crf().fit(bag(pairs), **{"X_dev": pairs, "y_dev": pairs, name: X})
    found = crf().fit(bag(pairs))
    for some in ((X, y), ([x for x, _ in pairs], y)):
        with pytest.raises(ValueError, match="of score must be in memory, got Bag: compute it"):
            found.score(*some)
    assert found.score(X.compute(), y.compute()) > 0.5


@pytest.mark.parametrize("on", ["here", "a cluster"])
def test_what_fails_in_a_delayed_part_names_its_partition(client: Client, pairs: Pairs, on: str) -> None:
    made: list[int] = []

    def load(k: int) -> Any:
        made.append(k)
        if k == 2:
            raise KeyError("shelf")
        return [x for x, _ in pairs[:9]], [y for _, y in pairs[:9]]

    parts = [dask.delayed(load)(k) for k in range(4)]
    with pytest.raises(KeyError, match="shelf") as found, dask.config.set(scheduler="sync"):
        fitted(None if on == "here" else client, parts, crf())
    assert found.value.__notes__ == ["in partition 2"]
    if on == "here":  # what was made before it is not made again
        assert all(made.count(k) == 1 for k in made[: made.index(2)])


def test_a_cluster_whose_workers_do_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fail)
    (tmp_path / "text").write_text("a X\n\nb Y\n")
    monkeypatch.setattr("sys.argv", ["crfkit", "train", str(tmp_path / "text"), "-m", "m", "--dask", "local:2", "-q"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "crfkit: error: --dask local:2: the workers did not start: Nanny failed to start.\n"
    )


def test_block_files_are_partitions_and_give_the_weights_of_their_text(pairs: Pairs, tmp_path: Path) -> None:
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    blocks = crfkit.CRF(n_jobs=1).encode(X, y, tmp_path / "data.blocks")
    right = crf().fit(bag(pairs, 1))
    found = crf().fit(blocks)
    assert (found.weights_ == right.weights_).all()
    assert found.predict(X[:3]) == right.predict(X[:3])
    for wrong in ({"features": crfkit.Template("U:%x[0,0]")}, {"hash_bits": 9}):
        with pytest.raises(
            ValueError, match=f"'{next(iter(wrong))}' of CRF must be (None|'auto'), or what .*data.blocks"
        ):
            crf(**wrong).fit([blocks])
    with pytest.raises(ValueError, match="'y' of fit must be None: a block file holds the labels"):
        crf().fit(blocks, y)


@pytest.mark.parametrize("bits", [None, 9])
def test_several_block_files_are_as_one(pairs: Pairs, tmp_path: Path, bits: int | None) -> None:
    X, y = [x for x, _ in pairs], [y for _, y in pairs]
    least = (2, 3)
    for k, part in enumerate((slice(0, 50), slice(50, None))):
        encoder = crfkit.CRF(n_jobs=1, hash_bits=bits)
        encoder.encode(X[part], y[part], tmp_path / f"{k}.blocks")
        encoder.set_params(min_freq=least[k]).encode(X[part], y[part], tmp_path / f"cut{k}.blocks")
    files = [crfkit.data.Blocks(tmp_path / f"{k}.blocks") for k in range(2)]
    how: dict[str, Any] = {"max_iter": 200, "tol": 1e-9, "dtype": "float64"}
    found, right = crf(**how).fit(files), crfkit.CRF(**how, n_jobs=1, hash_bits=bits).fit(X, y)
    assert found.result_.value == pytest.approx(right.result_.value, rel=1e-9)
    assert found.predict(X[:20]) == right.predict(X[:20])
    cut = [crfkit.data.Blocks(tmp_path / f"cut{k}.blocks") for k in range(2)]
    assert crf().fit(cut).model_.params["min_freq"] == 3
    others = crfkit.CRF(n_jobs=1, hash_bits=8 if bits is None else None)
    files.append(others.encode(X, y, tmp_path / "others.blocks"))
    with pytest.raises(ValueError, match=r"others.blocks: its features are not those of .*0.blocks"):
        crf().fit(files)
    one, same = crfkit.CRF(max_iter=8, n_jobs=1).fit(cut[1]), crf().fit(cut[1])
    assert (same.weights_ == one.weights_).all()
    assert {name: same.model_.params[name] for name in ("features", "hash_bits", "min_freq")} == {
        "features": "auto",
        "hash_bits": bits,
        "min_freq": 3,
    }


# a real cluster


def test_weights_do_not_depend_on_the_cluster(client: Client, pairs: Pairs, tmp_path: Path) -> None:
    data = bag(pairs)
    local = fitted(None, data, crf(c1=0.01))
    found = fitted(client, data, crf(c1=0.01))
    assert (found.weights_ == local.weights_).all()
    found.save(tmp_path / "model")
    X = [x for x, _ in pairs[:10]]
    loaded = crfkit.load(tmp_path / "model", kind=crfkit.CRF)
    with client.as_current():
        lazy = found.predict(db.from_sequence(X, npartitions=2))
        assert lazy.npartitions == 2
        assert lazy.compute() == loaded.predict(X) == found.to_local().predict(X)
        chances = found.predict_marginals(db.from_sequence(X, npartitions=2)).compute()
        entities = found.predict_entities(db.from_sequence(X, npartitions=2)).compute()
    np.testing.assert_array_equal(chances[0], loaded.predict_marginals(X)[0])
    assert entities == loaded.predict_entities(X)


def kill_one(client: Client, rng: random.Random, up: dict[int, float]) -> bool:
    """Kills a worker that is up, if another one is; its nanny starts a new one.

    ``up`` is kept by the caller: since when each process is seen. One that a nanny is not done with is left alone: the
    nanny would give up.
    """
    known = client.cluster.scheduler.workers
    nannies = [n for n in client.cluster.workers.values() if n.status.name == "running" and n.worker_address in known]
    since = [time.monotonic() - up.setdefault(n.pid, time.monotonic()) for n in nannies]
    if len(nannies) < 2 or min(since) < 0.5:
        return False
    pid = rng.choice(nannies).pid
    up[pid] = float("inf")  # not twice
    os.kill(pid, signal.SIGKILL)
    return True


class Killer:
    """A callback that kills a worker after some iterations."""

    def __init__(self, client: Client, when: Callable[[int], bool]) -> None:
        self.client, self.when, self.killed, self.rng = client, when, 0, random.Random(0)

    def __call__(self, progress: Any, w: Any) -> None:
        if self.when(progress.iteration):
            up = {n.pid: 0.0 for n in self.client.cluster.workers.values()}
            self.killed += kill_one(self.client, self.rng, up)


def test_a_lost_worker_changes_nothing_but_is_told_of(client: Client, pairs: Pairs) -> None:
    client.wait_for_workers(2, timeout=60)
    right = fitted(None, bag(pairs), crf()).weights_
    killer = Killer(client, lambda iteration: iteration == 3)
    with pytest.warns(RuntimeWarning, match="lost 1 Dask worker .* will be made again; the result is the same"):
        found = fitted(client, bag(pairs), crf(callback=killer))
    assert killer.killed == 1
    assert (found.weights_ == right).all()


def test_a_worker_that_is_lost_while_weights_are_sent_changes_nothing(
    client: Client, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.wait_for_workers(2, timeout=60)
    right = fitted(None, bag(pairs, 1), crf()).weights_
    scheduler, nannies = client.cluster.scheduler, client.cluster.workers.values()
    scatter, sent, killed = distributed.scheduler.scatter_to_workers, 0, ""

    async def scatter_and_kill(*args: Any, **how: Any) -> Any:
        nonlocal sent, killed
        found = await scatter(*args, **how)
        sent += 1
        if sent == 5:  # the worker has the weights, and the scheduler does not know it yet
            killed = next(iter(found[1].values()))[0]
            os.kill(next(n.pid for n in nannies if n.worker_address == killed), signal.SIGKILL)
            while killed in scheduler.workers:
                await asyncio.sleep(0.01)
        return found

    monkeypatch.setattr(distributed.scheduler, "scatter_to_workers", scatter_and_kill)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the partition may have been there
        assert (fitted(client, bag(pairs, 1), crf()).weights_ == right).all()
    assert killed


def test_neighbours_lie_together_and_share_the_threads_of_their_worker(client: Client, pairs: Pairs) -> None:
    client.wait_for_workers(2, timeout=60)
    parts = parts_of(bag(pairs, 4), None, Fields(None, None, None))
    found = ClusterEngine(client, parts, partial(new_encoder, "auto", None), lambda *_: None, lambda _: None)
    assert sorted(found.homes.values()) == sorted(2 * [*client.nthreads()])
    homes = [found.homes[i] for i in range(4)]
    assert homes[0] == homes[1] != homes[2] == homes[3]
    assert client.submit(_threads).result() == 1  # that of the one slot that a worker has
    found.close()


def test_a_cluster_without_workers_is_not_waited_for_forever(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_WAIT", 1.0)
    how: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=1, processes=True, **how) as cluster, Client(cluster, set_as_default=False) as shrunk:

        def lose(progress: Any, w: Any) -> None:
            if progress.iteration == 2:
                cluster.scale(0)

        kept = crf(checkpoint=tmp_path / "checkpoint", checkpoint_every=0, callback=lose)
        with (
            pytest.warns(RuntimeWarning, match="has no worker: waiting for one, for at most 1 seconds"),
            pytest.raises(
                TimeoutError,
                match=r"no worker for 1 seconds .*lost-worker-timeout.*state of training.*resume=True",
            ),
        ):
            fitted(shrunk, bag(pairs), kept)


def kill_all(client: Client) -> None:
    """Kills all workers at once, when all are up; their nannies start new ones."""
    nannies, known = [*client.cluster.workers.values()], client.cluster.scheduler.workers
    while not all(n.process and n.process.status.name == "running" and n.worker_address in known for n in nannies):
        time.sleep(0.02)
    for nanny in nannies:
        os.kill(nanny.pid, signal.SIGKILL)


@pytest.mark.parametrize("when", ["reading", "encoding", "gathering", "evaluating"])
def test_all_workers_lost_at_once_change_nothing(
    client: Client, pairs: Pairs, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.wait_for_workers(2, timeout=60)
    right = fitted(None, bag(pairs, 4), crf()).weights_

    def read(i: int) -> tuple[Any, Any]:
        (tmp_path / f"{i}-{time.time()}").touch()
        if when == "reading":
            time.sleep(1)
        X, y = zip(*pairs[30 * i : 30 * i + 30], strict=True)
        return list(X), list(y)

    def kill() -> None:
        while not [*tmp_path.iterdir()]:
            time.sleep(0.02)
        time.sleep(0.1 if when == "encoding" else 0)
        kill_all(client)

    def kill_at(progress: Any, w: Any) -> None:
        if when == "evaluating" and progress.iteration == 3:
            kill_all(client)

    def gather(self: ClusterEngine, futures: Any) -> list[Any]:
        monkeypatch.undo()
        kill_all(client)
        time.sleep(0.05)  # the scheduler knows by now
        return self._gather(futures)

    killer = threading.Thread(target=kill, daemon=True)
    if when == "gathering":
        monkeypatch.setattr(ClusterEngine, "_gather", gather)
    elif when != "evaluating":
        killer.start()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = fitted(client, [dask.delayed(read)(i) for i in range(4)], crf(callback=kill_at))
    assert any(str(w.message).startswith("lost ") and "4 partitions (0, 1, 2, 3)" in str(w.message) for w in said)
    assert (found.weights_ == right).all()


@pytest.mark.long
def test_fifty_killed_workers_change_nothing(pairs: Pairs) -> None:
    X, y = load_corpus("ingredients")
    data = bag(list(zip(list(X[:600]), list(y[:600]), strict=True)), 5)
    how_long: dict[str, Any] = {"max_iter": 300, "tol": 0, "dtype": "float64", "c2": 0.01}
    right = fitted(None, data, crf(**how_long)).weights_
    how: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 50}
    with (
        dask.config.set(PATIENT),
        LocalCluster(n_workers=2, **how) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        done, killed, rng = threading.Event(), 0, random.Random(0)
        up: dict[int, float] = {}

        def kill() -> None:
            nonlocal killed
            while killed < 50 and not done.wait(rng.random()):
                killed += kill_one(client, rng, up)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()

        def wait(progress: Any, w: Any) -> None:
            while killed < min(50, progress.iteration / 2):  # so that they are spread over the training
                time.sleep(0.1)

        with pytest.warns(RuntimeWarning, match="lost 1 Dask worker"):
            found = fitted(client, data, crf(**how_long, callback=wait))
        done.set()
        killer.join()
    assert killed == 50
    assert (found.weights_ == right).all()


def test_how_training_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert crf()._way_on() == "Without a 'checkpoint', training must begin again"
    assert crf(checkpoint=path)._way_on() == f"{path} has not been written yet: training must begin again"
    path.touch()
    assert "resume=True" in crf(checkpoint=path)._way_on()


def test_a_lost_scheduler_leaves_the_checkpoint(pairs: Pairs, tmp_path: Path) -> None:
    data, path = bag(pairs), tmp_path / "checkpoint"
    how: dict[str, Any] = {"checkpoint": path, "checkpoint_every": 0}
    right = fitted(None, data, crf()).weights_
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
        cluster = LocalCluster(1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50)
        client = Client(cluster, set_as_default=False)

        def lose(progress: Any, w: Any) -> None:
            if progress.iteration == 4:
                cluster.close()

        try:
            with pytest.raises(ConnectionError, match=r"scheduler was lost: .* is in .*checkpoint: .* resume=True"):
                fitted(client, data, crf(**how, callback=lose))
        finally:
            client.close()
            cluster.close()
    assert (fitted(None, data, crf(**how), resume=True).weights_ == right).all()


def test_searches_of_scikit_learn_run_on_dask(client: Client, pairs: Pairs) -> None:
    joblib = pytest.importorskip("joblib")
    from sklearn.model_selection import GridSearchCV

    X, y = [x for x, _ in pairs[:10]], [y for _, y in pairs[:10]]
    search = GridSearchCV(crfkit.CRF(max_iter=2, n_jobs=1), {"c2": [0.1, 1.0]}, cv=2, error_score="raise")
    with client.as_current(), joblib.parallel_backend("dask", wait_for_workers_timeout=60):
        search.fit(X, y)
    right = search.cv_results_["mean_test_score"]
    here = GridSearchCV(crfkit.CRF(max_iter=2, n_jobs=1), {"c2": [0.1, 1.0]}, cv=2).fit(X, y)
    np.testing.assert_array_equal(right, here.cv_results_["mean_test_score"])


def test_tune_runs_on_dask(client: Client, pairs: Pairs) -> None:
    X, y = [x for x, _ in pairs[:40]], [y for _, y in pairs[:40]]
    how: dict[str, Any] = {"c1": [0], "c2": [1, 0.1], "folds": 2}
    found = crfkit.tune(crfkit.CRF(n_jobs=1), X, y, **how, cluster=client)
    here = crfkit.tune(crfkit.CRF(n_jobs=1), X, y, **how)
    np.testing.assert_array_equal(found.scores, here.scores)


def test_the_commands_take_a_cluster(client: Client, pairs: Pairs, tmp_path: Path) -> None:
    text = "\n".join("".join(f"{a} {b}\n" for a, b in zip(x, y, strict=True)) for x, y in pairs)
    (tmp_path / "data.txt").write_text(text, encoding="utf-8")
    address, how = client.scheduler.address, ("--max-iter", "8", "-j", "1", "-m")
    out = command.run("train", "data.txt", "--dask", address, *how, "there", cwd=tmp_path)
    assert "Dask: 2 workers, 2 threads" in out.stderr
    here = fitted(None, on_dask.read_columns(tmp_path / "data.txt"), crf())
    assert (crfkit.load(tmp_path / "there", kind=crfkit.CRF).weights_ == here.weights_).all()
    command.run("tag", "data.txt", "--dask", address, "-q", "-m", "there", "-o", "tagged", cwd=tmp_path)
    command.run("tag", "data.txt", "-q", "-m", "there", "-o", "right", cwd=tmp_path)
    assert (tmp_path / "tagged").read_bytes() == (tmp_path / "right").read_bytes()
    blocks = crfkit.CRF(n_jobs=1).encode(*read_columns(tmp_path / "data.txt"), tmp_path / "data.blocks")
    assert len(blocks) == len(pairs)
    wrong_inputs = ("data.blocks", "not block files"), ("-", "not standard input"), ("data.txt", "not --text")
    for name, message in wrong_inputs:
        text_or_not = ["--text"] if "--text" in message else []
        out = command.run("tag", name, "--dask", address, *text_or_not, "-m", "there", code=2, cwd=tmp_path)
        assert message in " ".join(out.stderr.replace("\u2502", " ").split())
    wrong = ("--dask", "local:x"), ("--dask", address, "--unknown", "?"), ("--dask", "tcp://127.0.0.1:9")
    for options in wrong:
        out = command.run("train", "data.txt", *options, "-m", "no", code=2, cwd=tmp_path)
        assert "--dask" in out.stderr


def test_train_says_at_once_that_a_worker_is_lost(client: Client, pairs: Pairs, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    text = "\n".join("".join(f"{a} {b}\n" for a, b in zip(x, y, strict=True)) for x, y in pairs)
    (tmp_path / "data.txt").write_text(text, encoding="utf-8")
    how = ["--dask", client.scheduler.address, "-a", "sgd", "--max-iter", "100000", "--tol", "0", "-m", "model"]
    train = [*command.CRFKIT, "train", "data.txt", *how]
    with subprocess.Popen(train, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("iteration" in line for line in lines)
        kill_all(client)
        assert any("crfkit: warning: lost " in line for line in lines)
        assert any("iteration" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        assert not any("warning" in line for line in lines)
    assert process.returncode == 128 + signal.SIGTERM
    assert crfkit.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("more", "end"),
    [
        (["-p"], ".parquet"),
        (["-p", "-n", "2"], ".jsonl"),
        (["-n", "2"], ".txt"),
        (["--entities"], ".json"),
        (["--beam", "fixed:3"], ".gz"),
        (["-f", "crfsuite"], ".txt"),
        (["-f", "conllu", "-p"], ".txt"),
        (["--kind", "segment"], ".txt"),
    ],
    ids=" ".join,
)
def test_tag_writes_on_a_cluster_what_it_writes_here(
    client: Client, pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], end: str
) -> None:
    """In this process, with pieces that are small enough for a file to have several."""
    from typer.testing import CliRunner

    from crfkit.cli import app

    client.wait_for_workers(2, timeout=60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("crfkit.dask.tagging._PIECE", 500)
    lines = {
        "columns": lambda i, a, b: f"{a} {b}\n",
        "crfsuite": lambda i, a, b: f"{b}\tw={a}\n".replace(":", ""),
        "conllu": lambda i, a, b: "\t".join([str(i + 1), a, "_", b, *"______"]) + "\n",
    }
    kind = more[1] if "-f" in more else "columns"
    start = "# a sentence\n" if kind == "conllu" else ""
    rows = [start + "".join(lines[kind](i, *row) for i, row in enumerate(zip(x, y, strict=True))) for x, y in pairs]
    Path("data.txt").write_text("\n".join(rows), encoding="utf-8")
    form = ["-f", kind] if "-f" in more else []
    how = more if "--kind" in more else form
    runner = CliRunner()

    def run(*given: str) -> None:
        found = runner.invoke(app, [*given])
        assert found.exit_code == 0, found.output

    run("train", "data.txt", "-m", "model", "--max-iter", "4", "-q", *how)
    given = form if "--kind" in more else more
    run("tag", "data.txt", "-m", "model", "-q", "-o", "here" + end, *given)
    run("tag", "data.txt", "-m", "model", "-q", "-o", "there" + end, *given, "--dask", client.scheduler.address)
    assert Path("there" + end).read_bytes() == Path("here" + end).read_bytes()


def test_tagging_goes_on_when_all_workers_are_lost(
    client: Client, pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.wait_for_workers(2, timeout=60)
    monkeypatch.setattr(tagging, "_PIECE", 300)
    found, path = crf().fit(bag(pairs)), tmp_path / "data.txt"
    path.write_text("\n".join("".join(f"{a}\n" for a in x) for x, _ in pairs), encoding="utf-8")
    out = []
    for k, piece in enumerate(tagging.tag_file(client, found.model_, str(path), tagging.tag_text)):
        out.append(piece.text)
        if k == 1:
            kill_all(client)
    assert len(out) > 8
    assert b"".join(out) == tagging.tag_text(found.model_, str(path)).text
