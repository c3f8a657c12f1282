"""Word classes: Brown's by their definition, spectral ones by numpy's SVD, both whatever the threads; their file."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run

from crfkit import ModelError, WordClasses, WordVectors, _core
from crfkit.data import Columns, DataError
from crfkit.data.readers import iter_text
from crfkit.features.classes import Bigrams

WORDS = [f"w{k}" for k in range(12)]


def random_text(seed: int, n: int = 60) -> list[list[str]]:
    """Sentences in which words of the same remainder by 3 stand in the same places."""
    rng = np.random.default_rng(seed)
    return [[WORDS[3 * rng.integers(4) + t % 3] for t in range(rng.integers(1, 9))] for _ in range(n)]


def counted(text: list[list[str]], min_freq: int = 1) -> tuple[list[str], Bigrams]:
    table = Columns.from_sequences(text)
    counter = _core.WordCounter()
    counter.add(table.strings, table.ids, table.offsets, 0, False)
    words, _, ptr, following, count = counter.bigrams(min_freq, 1)
    return words, (ptr, following, count)


def dense(bigrams: Bigrams) -> np.ndarray:
    ptr, following, count = bigrams
    n = len(ptr) - 1
    out = np.zeros((n, n))
    for w in range(n):
        out[w, following[ptr[w] : ptr[w + 1]]] = count[ptr[w] : ptr[w + 1]]
    return out


def information(c: np.ndarray) -> float:
    """Mutual information of neighbours, times their number."""
    left, right = c.sum(1, keepdims=True), c.sum(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nansum(np.where(c > 0, c * np.log(c * c.sum() / (left * right)), 0.0)))


def grouped(c: np.ndarray, groups: list[list[int]]) -> np.ndarray:
    member = np.zeros((len(groups), len(c)))
    for k, group in enumerate(groups):
        member[k, group] = 1
    return np.asarray(member @ c @ member.T)


def cheapest(c: np.ndarray, groups: list[list[int]]) -> dict[tuple[int, int], float]:
    """What merging each pair of groups loses, by its definition; words outside the groups do not count."""
    now = information(grouped(c, groups))
    out = {}
    for i, j in itertools.combinations(range(len(groups)), 2):
        rest = [g for k, g in enumerate(groups) if k not in (i, j)]
        out[i, j] = now - information(grouped(c, [*rest, groups[i] + groups[j]]))
    return out


@pytest.mark.parametrize(("seed", "n_classes"), [(0, 4), (1, 3), (2, 6), (3, 1), (4, 14), (5, 40)])
def test_every_merge_of_brown_loses_least(seed: int, n_classes: int) -> None:
    _, bigrams = counted(random_text(seed))
    c = dense(bigrams)
    n = len(c)
    leaf, merges, losses, choices = _core.brown_tree(*bigrams, n_classes, 1)
    n_classes = min(n_classes, n)
    groups = [[w] for w in range(n_classes)]

    def merge(a: int, b: int, loss: float) -> None:
        found = cheapest(c, groups)
        i, j = sorted(k for k, g in enumerate(groups) if g[0] in (a, b))
        assert loss == pytest.approx(found[i, j], abs=1e-4)
        assert loss == pytest.approx(min(found.values()), abs=1e-4)
        second = groups.pop(j)
        groups[i] = sorted(groups[i] + second)

    for k, (a, b) in enumerate(choices.reshape(-1, 2).tolist()):
        groups.append([n_classes + k])
        merge(a, b, losses[k])
    assert sorted(sorted(np.flatnonzero(leaf == k).tolist()) for k in range(n_classes)) == sorted(groups)
    first = [int(np.flatnonzero(leaf == k)[0]) for k in range(n_classes)]
    for k, (a, b) in enumerate(merges.reshape(-1, 2).tolist()):
        merge(first[a], first[b], losses[n - n_classes + k])
        first.append(min(first[a], first[b]))
    assert len(groups) == 1
    assert len(losses) == n - 1


def test_bigrams_count_boundaries_and_rare_words() -> None:
    words, bigrams = counted([["a", "b", "a"], [], ["a", "x"]], 2)
    assert words == ["a", "", ""]  # the word, the boundary, rare words
    assert dense(bigrams).tolist() == [[0, 1, 2], [2, 0, 0], [1, 1, 0]]


def test_counts_come_in_pieces_and_in_lower_case() -> None:
    text = random_text(7)
    whole, bigrams = counted(text)
    counter = _core.WordCounter()
    for part in (text[:20], text[20:]):
        table = Columns.from_sequences([[("X", word.upper()) for word in row] for row in part])
        counter.add(table.strings, table.ids, table.offsets, 1, True)
    words, counts, *again = counter.bigrams(1, 2)
    assert words == whole
    assert counter.n_tokens == sum(map(len, text)) == sum(counts) - len(text)
    for a, b in zip(bigrams, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_vectors_are_the_singular_vectors() -> None:
    _, bigrams = counted(random_text(8, 200))
    c = dense(bigrams)
    left, right = (np.where(x > 0, np.maximum(x, 1.0), np.inf) ** -0.25 for x in (c.sum(1), c.sum(0)))
    r = np.sqrt(c) * left[:, None] * right
    u, s, _ = np.linalg.svd(np.hstack([r, r.T]))
    x, values = _core.word_vectors(*bigrams, 5, 0, 1)
    x = x.reshape(len(c), 5)
    np.testing.assert_allclose(values, s[:5], rtol=1e-5)
    np.testing.assert_allclose(x @ x.T, u[:, :5] @ u[:, :5].T, atol=1e-4)


def test_more_vectors_than_directions() -> None:
    _, bigrams = counted([["a", "b"]] * 3)
    x, values = _core.word_vectors(*bigrams, 3, 0, 1)
    assert np.isfinite(x).all()
    assert values[0] > 0


def test_k_means_ends_where_no_point_moves() -> None:
    rng = np.random.default_rng(0)
    middles = 10 * rng.normal(size=(5, 7))
    x = (middles[rng.integers(5, size=400)] + rng.normal(size=(400, 7))).astype(np.float32)
    group, centres = _core.k_means(x, 5, 100, 0, 1)
    centres = centres.reshape(5, 7)
    distance = ((x[:, None] - centres) ** 2).sum(2)
    assert (distance.argmin(1) == group).all()
    for k in range(5):
        np.testing.assert_allclose(centres[k], x[group == k].mean(0), atol=1e-4)


def test_as_many_groups_as_points() -> None:
    x = np.arange(6, dtype=np.float32)[:, None]
    assert sorted(_core.k_means(x, 6, 10, 0, 1)[0]) == list(range(6))
    assert len(_core.k_means(np.zeros((3, 2), np.float32), 2, 10, 0, 1)[0]) == 3


def test_ward_joins_what_costs_least() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(9, 3)).astype(np.float32)
    weight = rng.integers(1, 5, 9).astype(float)
    groups = {k: [k] for k in range(9)}

    def spread(group: list[int]) -> float:
        middle = np.average(x[group].astype(float), axis=0, weights=weight[group])
        return float((weight[group][:, None] * (x[group] - middle) ** 2).sum())

    for k, (a, b) in enumerate(_core.ward_tree(x, weight).reshape(-1, 2).tolist()):
        cost = {
            (i, j): spread(groups[i] + groups[j]) - spread(groups[i]) - spread(groups[j])
            for i, j in itertools.combinations(groups, 2)
        }
        assert cost[min(a, b), max(a, b)] == pytest.approx(min(cost.values()))
        groups[9 + k] = groups.pop(a) + groups.pop(b)
    assert len(groups) == 1


@pytest.mark.parametrize("method", ["brown", "spectral"])
def test_classes_find_the_places(method: str) -> None:
    classes = WordClasses.fit(random_text(9, 300), 3 + (method == "brown"), method=method, random_state=1)
    assert set(classes) == set(WORDS)
    of = [{classes[word] for word in WORDS[k::3]} for k in range(3)]
    assert all(len(x) == 1 for x in of)
    assert len(set.union(*of)) == 3


@pytest.mark.parametrize("method", ["brown", "spectral"])
def test_threads_do_not_matter(method: str) -> None:
    rng = np.random.default_rng(3)
    words = np.minimum(rng.zipf(1.3, 30_000), 3000).astype(str).tolist()  # enough for several threads to wake
    text = [words[k : k + 15] for k in range(0, len(words), 15)]
    one = WordClasses.fit(text, 150, method=method, n_jobs=1)
    several = WordClasses.fit(text, 150, method=method, n_jobs=5)
    assert dict(one) == dict(several)
    assert len(set(one.codes)) > 140


def test_kinds_of_text(tmp_path: Path) -> None:
    sentences = ["two cups of flour .", "a pinch of salt ."] * 3
    rows = [s.split() for s in sentences]
    expected = dict(WordClasses.fit(rows, 3))
    path = tmp_path / "text.txt"
    path.write_text(" ".join(sentences).replace(" .", "."))
    assert dict(WordClasses.fit(sentences, 3)) == expected
    assert dict(WordClasses.fit(Columns.from_sequences([[(w, "X") for w in row] for row in rows]), 3)) == expected
    assert dict(WordClasses.fit(str(path), 3)).keys() == expected.keys()
    assert dict(WordClasses.fit([path], 3)) == dict(WordClasses.fit(path, 3))
    path.write_text("\n".join(sentences))
    assert dict(WordClasses.fit(path, 3, format="tokens")) == expected
    path.write_bytes(gzip.compress("\n\n".join("\n".join(f"X {w}" for w in row) for row in rows).encode()))
    assert dict(WordClasses.fit(path, 3, format="columns", column=1)) == expected
    lines = "\n\n".join("\n".join(f"{t}\t{w}{8 * chr(9)}_" for t, w in enumerate(row, 1)) for row in rows)
    path.write_text(f"# sentences\n{lines}\n")
    assert dict(WordClasses.fit(path, 3, format="conllu")) == expected


def test_faults_are_named(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"good\nb\xffad\n")
    with pytest.raises(DataError, match=r"text\.txt:2: not valid UTF-8"):
        list(iter_text(path))
    path.write_text("word TAG\n" * 50)
    with pytest.raises(DataError, match="every line has 2 fields"):
        WordClasses.fit(path)
    with pytest.raises(DataError, match="there is no column 5"):
        WordClasses.fit(path, format="columns", column=5)
    with pytest.raises(ValueError, match="'format' must be one of"):
        WordClasses.fit(path, format="xml")
    with pytest.raises(ValueError, match="'method' of WordClasses"):
        WordClasses.fit([["a"]], method="mkcls")
    with pytest.raises(ValueError, match="'n_classes' of WordClasses must be an int >= 1, got 0"):
        WordClasses.fit([["a"]], 0)
    with pytest.raises(ValueError, match="no word that occurs 2 times: it has 1 tokens"):
        WordClasses.fit([["a"]])
    with pytest.raises(ValueError, match="'a' twice"):
        WordClasses(["a", "a"], ["0", "1"])
    with pytest.raises(ValueError, match="strings of 0 and 1, got '2'"):
        WordClasses(["a"], ["2"])
    with pytest.raises(ValueError, match="as many as"):
        WordClasses(["a"], [])
    for prefixes in ([0], [], [4, 4]):
        with pytest.raises(ValueError, match="'prefixes' of WordClasses must be distinct ints from 1 to 65535"):
            WordClasses(["a"], ["0"], prefixes=prefixes)
    wrong: Any = 1
    with pytest.raises(ValueError, match="'words' of WordClasses must be strings, got 1"):
        WordClasses([wrong], ["0"])
    with pytest.raises(ValueError, match="'lower' of WordClasses must be True or False, got 1"):
        WordClasses.fit([["a"]], lower=wrong)
    for lower in (True, False):
        classes = WordClasses(["a"], ["0"], lower=lower)
        assert wrong not in classes
        with pytest.raises(KeyError):
            classes[wrong]


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.safetensors"
    classes = WordClasses.fit(random_text(0), 4, lower=True, prefixes=[2, 3])
    classes.save(path)
    again = WordClasses.load(path)
    assert (again.words, again.codes) == (classes.words, classes.codes)
    assert (again.prefixes, again.lower) == ((2, 3), True)
    assert again["W3"] == classes["w3"]
    assert "absent" not in again
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="does not match its checksum"):
        WordClasses.load(path)


def test_command(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "classes.safetensors"
    sentences = ["Two cups of flour.", "A pinch of salt."] * 3
    text.write_text("\n".join(sentences))
    made = run("classes", text, "-o", out, "-c", 3)
    assert "8 words in 3 classes" in made.stderr
    assert dict(WordClasses.load(out)) == dict(WordClasses.fit(sentences, 3))
    made = run("classes", "-", "-o", out, "--method", "spectral", "--json", input=text.read_text())
    assert '"words": 8' in made.stdout
    assert "--n-classes" in run("classes", text, "-o", out, "-c", 0, code=2).stderr
    assert "does not exist" in run("classes", text, "-o", tmp_path / "no" / "file", code=2).stderr


def test_command_with_vectors(tmp_path: Path) -> None:
    vectors, out = tmp_path / "vectors.txt.gz", tmp_path / "classes.safetensors"
    vectors.write_bytes(gzip.compress(b"cup 1 0\nspoon 2 0.1\nsalt 0 1\nSugar 0.1 1\n"))
    made = run("classes", vectors, "-o", out, "--format", "vectors", "--n-classes", 2)
    assert "4 words in 2 classes" in made.stderr
    read = WordClasses.load(out)
    assert dict(read) == dict(WordVectors.from_file(vectors).classes(2))
    assert read["cup"] == read["spoon"] != read["salt"]
    (tmp_path / "train.txt").write_text("cup A\nsalt B\n")
    run("train", tmp_path / "train.txt", "-m", tmp_path / "model", "--classes", out, "-q")
    how = ("-o", out, "--format", "vectors")
    assert "--min-freq is for text, not for vectors" in run("classes", vectors, *how, "--min-freq", 3, code=2).stderr
    assert "--format vectors takes one file" in run("classes", vectors, vectors, *how, code=2).stderr
    assert "--format vectors takes one file, got -" in run("classes", "-", *how, code=2).stderr
    (tmp_path / "text.txt").write_text("two cups of flour")
    assert "text.txt:1: expected a word and" in run("classes", tmp_path / "text.txt", *how, code=1).stderr
