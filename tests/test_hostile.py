"""Texts, templates and models made to do harm: each is refused, or takes time and memory in keeping with its size."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limited import run_limited

import crfkit
from crfkit import CRF, ModelError, Template, TokenFeatures, _core
from crfkit.compat import read_foreign_model
from crfkit.data import Columns
from crfkit.features.encoders import PlanEncoder
from crfkit.features.plan import FeaturePlan
from crfkit.model.chain_model import read_file, write_file

LEAF = ["leaf", 0, 0, 0]
REFUSED = """
try:
    crfkit.load(sys.argv[1])
except ModelError as e:
    print(e)
"""


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """The file of a small model, with its header and arrays changed and its checksums right."""
    model = CRF(Template("U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]\nB"), max_iter=1)
    with pytest.warns(match="max_iter"):
        model.fit([["a", "b"]], [["A", "B"]])
    model.save(path)
    header, arrays = read_file(path)
    change(header, arrays)
    write_file(path, header, arrays)
    return path


def with_plan(path: Path, nodes: list[list[Any]], templates: list[list[Any]] | None = None) -> Path:
    """A model with another plan, and templates that look at its last node."""

    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        header["encoder"]["plan"]["nodes"] = nodes
        header["encoder"]["plan"]["templates"] = templates or [[len(nodes) - 1, 0, "U", "", False]]

    return changed(path, change)


def chain(n: int, distance: int = 0) -> list[list[Any]]:
    """A leaf, and joins of each node with the leaf."""
    return [LEAF] + [["join", k, 0, distance, "/"] for k in range(n)]


@pytest.mark.parametrize("n", [100_000, 99_999, 1000])
def test_nested_joins_are_refused(tmp_path: Path, n: int) -> None:
    two = [*chain(n // 2), ["leaf", 1, 0, 0]]
    two += [["join", len(two) + k - 1, 0, 0, "/"] for k in range(n - len(two) + 1)]
    ends = [[len(two) - 1, 0, "U", "", False], [n // 2, 0, "U", "", False]]
    for nodes, templates in ((chain(n), None), (two, ends)):
        out = run_limited(REFUSED, with_plan(tmp_path / "model", nodes, templates))
        if nodes is two and n == 1000:
            assert "does not fit its templates" in out or "encoder.tables" in out
        else:
            assert "encoder.plan: nodes[1000] joins more than 1000 pieces" in out or "at most 50000 nodes" in out


def test_joins_that_share_their_parts_are_refused(tmp_path: Path) -> None:
    nodes = [LEAF, ["leaf", 0, 1, 0], ["join", 0, 0, 0, "/"], ["join", 1, 1, 0, "/"]]
    for k in range(2, 82):
        nodes.append(["join", k, k, 0, "/"])
    ends = [[len(nodes) - 2, 0, "U", "", False], [len(nodes) - 1, 0, "U", "", False]]
    out = run_limited(REFUSED, with_plan(tmp_path / "model", nodes, ends))
    assert "joins more than 1000 pieces" in out


def test_names_that_repeat_long_texts_are_refused() -> None:
    out = run_limited(
        """
        nodes = [("leaf", 0, 0, 0)] + [("join", k, k, 0, "") for k in range(9)]
        templates = [(9, 0, f"U{k}:", "", False) for k in range(100)]
        encoder = _core.TemplateEncoder(nodes, templates, 0)
        strings = _core.StringTable()
        strings.add("x" * 1_000_000)
        encoder.encode(strings, np.zeros((1, 1), np.uint32), np.array([0, 1]), None, True, 1)
        copy = _core.TemplateEncoder(nodes, templates, 0)
        copy.restore(*encoder.vocabulary(), 100, 0)
        from crfkit.features.encoders import PlanEncoder
        kept = PlanEncoder.__new__(PlanEncoder)
        kept._native = copy
        try:
            kept.names()
        except ModelError as e:
            print(e)
        """
    )
    assert "'encoder.plan': the model is damaged: the names of the attributes take more than" in out


def test_a_node_may_join_a_thousand_pieces() -> None:
    plan = FeaturePlan()
    plan.look([(plan.leaf(0), 0)] * 1000, "U:", ["/"] * 999)
    encoder = PlanEncoder(plan)
    encoder.encode([["a", "b"]], True, 1)
    assert encoder.names() == ["U:" + "/".join(x * 1000) for x in "ab"]


def test_joins_far_away_are_refused(tmp_path: Path) -> None:
    out = run_limited(REFUSED, with_plan(tmp_path / "model", chain(999, 2000)))
    assert "looked at more than 1000 steps away" in out
    nodes = [LEAF] + [["join", 0, 0, 0, f"{k}"] for k in range(6000)]
    ends = [[k, offset, f"{k}", "", False] for k in range(1, 6001) for offset in (-1000, 1000)]
    out = run_limited(REFUSED, with_plan(tmp_path / "model", nodes, ends))
    assert "looked at over too many steps" in out


def test_too_many_forms_are_refused(tmp_path: Path) -> None:
    nodes = [["leaf", 0, 2, k] for k in range(5000)]
    out = run_limited(REFUSED, with_plan(tmp_path / "model", nodes))
    assert "at most 4096 forms of columns, got 5000" in out


@pytest.mark.parametrize(
    ("nodes", "templates", "message"),
    [
        ({"leaf": 1}, None, "encoder.plan.nodes' must be a list"),
        ([LEAF, ["leaf", 0, None, 0]], None, r"encoder.plan.nodes\[1\]' must be a list"),
        ([["leaf", 0, 99, 0]], None, "node of the plan is damaged"),
        ([["join", 0, 0, 0, "/"]], None, r"nodes\[0\] must join earlier nodes"),
        ([LEAF], [[0, 0, 1, "", False]], r"encoder.plan.templates\[0\]' must be"),
        ([LEAF], [[0, 5000, "U", "", False]], r"templates\[0\] must name a node"),
        ([["leaf", 0, 0, 2**70]], None, "encoder.plan"),
    ],
)
def test_damaged_plans_are_named(tmp_path: Path, nodes: Any, templates: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        crfkit.load(with_plan(tmp_path / "model", nodes, templates))


@pytest.mark.parametrize("counts", [[2**32 - 1, 2**32 - 1], [2, 2**32 - 1], [2**40, 0], [None, 0], "ab", [-1, 0]])
def test_counts_are_checked_against_the_arrays(tmp_path: Path, counts: Any) -> None:
    path = changed(tmp_path / "model", lambda header, _: header["encoder"].update(n_attributes=counts))
    assert path.stat().st_size < 4000
    assert "n_attributes" in run_limited(REFUSED, path, megabytes=200)


def test_long_sequences_are_encoded_in_stretches() -> None:
    rng = random.Random(0)
    plan = FeaturePlan(pad=1)
    leaf = plan.leaf(0)
    for k in range(13_000):  # three nodes each: 100 tokens at a time
        plan.look([(leaf, rng.randint(-3, 3)), (leaf, rng.randint(-3, 3))], f"{k}:", [f"{k}"])
        plan.look([(leaf, -1), (leaf, 0), (leaf, 1)], f"{k}|", [f"{k}", "|"], edge=k % 2 == 0)
    encoder = PlanEncoder(FeaturePlan(plan.pad, True, plan.nodes, plan.templates[:40] + plan.templates[-40:]))
    words = [[rng.choice("abc") for _ in range(n)] for n in (250, 1, 0, 101)]
    learned = encoder.encode(words, True, 1)
    for n_jobs in (1, 2):
        again = encoder.encode(words, False, n_jobs)
        for name in ("ptr", "attr", "edge_ptr", "edge_attr"):
            np.testing.assert_array_equal(getattr(again, name), getattr(learned, name))


def crfpp_model(path: Path, template: str, *names: str) -> Path:
    """A text model of CRF++ with one label."""
    features = "\n".join(f"{k} {name}" for k, name in enumerate(names))
    weights = "\n".join("1.0" for _ in names)
    head = f"version: 100\ncost-factor: 1\nmaxid: {len(names)}\nxsize: 1"
    path.write_text(f"{head}\n\nA\n\n{template}\n\n{features}\n\n{weights}\n")
    return path


@pytest.mark.parametrize("last", ["", "/", "#"])
@pytest.mark.parametrize("between", ["", "/"])
def test_names_that_can_be_read_in_many_ways(tmp_path: Path, between: str, last: str) -> None:
    template = "U:" + between.join(["%x[0,0]"] * 12) + last + "%x[0,0]"
    path = crfpp_model(tmp_path / "model", template, "U:" + "a/" * 60)
    out = run_limited(
        """
        from crfkit.compat import read_foreign_model
        try:
            print(read_foreign_model(sys.argv[1]).encoder.names())
        except ModelError as e:
            print(e)
        """,
        path,
    )
    assert out == "[]\n" if last == "#" else "can be read in too many ways" in out


def test_all_names_together_have_a_budget(tmp_path: Path) -> None:
    rng = random.Random(0)
    names = {"U:" + "".join(rng.choice("a/") for _ in range(14)) for _ in range(16_000)}
    path = crfpp_model(tmp_path / "model", "U:" + "%x[0,0]" * 7, *sorted(names))
    with pytest.raises(ModelError, match="in too many ways"):
        read_foreign_model(path)


def test_reading_names_looks_for_interrupts() -> None:
    out = run_limited(
        """
        import signal
        template = Template([f"U%x[0,0]:{k}" for k in range(10_000)])
        plan = template.plan()
        encoder = _core.TemplateEncoder(plan.nodes, plan.templates, 1)
        names = _core.StringTable()
        for k in range(50_000):
            names.add(f"U{k}")
        def stop(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            encoder.learn(names, _core.StringTable())
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("stopped")
        """
    )
    assert out == "stopped\n"


@settings(max_examples=300)
@given(
    st.lists(st.text("a/é", min_size=1, max_size=7), min_size=1, max_size=5, unique=True),
    st.lists(st.tuples(*[st.text("a/é", min_size=1, max_size=3)] * 3), min_size=1, max_size=5),
    st.tuples(*[st.sampled_from(["", "/", "//", "a/"])] * 2),
)
def test_names_are_read_as_templates_write_them(
    names: list[str], rows: list[tuple[str, str, str]], between: tuple[str, str]
) -> None:
    rows_text = [a + between[0] + b + between[1] + c for a, b, c in rows]
    names = list(dict.fromkeys(["U" + name for name in names] + ["U" + text for text in rows_text[::2]]))
    plan = Template("U%x[0,0]{}%x[0,1]{}%x[0,2]".format(*between)).plan()
    encoder = PlanEncoder(plan)
    table = _core.StringTable()
    for name in names:
        table.add(name)
    marks, _ = encoder._native.learn(table, _core.StringTable())
    data = encoder.encode(Columns.from_sequences([rows]), False, 1)
    for t, text in enumerate(rows_text):
        found = data.attr[data.ptr[t] : data.ptr[t + 1]].tolist()
        assert found == ([names.index("U" + text)] if "U" + text in names else [])
        assert not found or marks[found[0]]


def backtracked(regex: str, text: str) -> tuple[int, int] | None:
    """First and last place of the first match, one choice after the other."""
    start, items, i = regex.startswith("^"), [], int(regex.startswith("^"))
    end = False
    while i < len(regex):
        if regex[i] == "$" and i + 1 == len(regex):
            end = True
            break
        atom = regex[i : i + 2] if regex[i] == "\\" else regex[i]
        i += len(atom)
        repeat = regex[i] if i < len(regex) and regex[i] in "*?" else ""
        i += len(repeat)
        items.append((atom, repeat))
    classes = {"d": str.isdigit, "l": str.islower, "u": str.isupper}

    def fits(atom: str, c: str) -> bool:
        if atom == ".":
            return True
        kind = classes.get(atom[1:].lower()) if atom[0] == "\\" else None
        return c == atom[-1] if kind is None else (c.isascii() and kind(c)) == atom[1].islower()

    def match(k: int, at: int) -> int | None:
        if k == len(items):
            return None if end and at != len(text) else at
        atom, repeat = items[k]
        now = at < len(text) and fits(atom, text[at])
        ways = {"": [(k + 1, 1)], "*": [(k + 1, 0), (k, 1)], "?": [(k + 1, 1), (k + 1, 0)]}[repeat]
        for item, step in ways:
            found = match(item, at + step) if now or not step else None
            if found is not None:
                return found
        return None

    for at in range(1 if start else len(text) + 1):
        found = match(0, at)
        if found is not None:
            return at, found
    return None


def matched(regex: str, words: list[str]) -> list[tuple[str, str]]:
    """What ``%m`` and ``%t`` give for each word."""
    encoder = PlanEncoder(Template(f'u:%m[0,0,"{regex}"]\nu=%t[0,0,"{regex}"]').plan())
    data = encoder.encode([[word] for word in words], True, 1)
    names = np.array(encoder.names(), dtype=object)[data.attr]
    return [(m[2:], t[2:]) for m, t in names.reshape(-1, 2).tolist()]


def test_patterns_match_as_a_search_with_backtracking_does() -> None:
    rng = random.Random(0)
    atoms = ["a", "b", "é", ".", "\\d", "\\U", "\\l", "\\\\", "1", "日", "$"]
    for most, longest in [(7, 9)] * 1500 + [(140, 5)] * 60:
        parts = [rng.choice(atoms) + rng.choice(["", "", "*", "?"]) for _ in range(rng.randint(0, most))]
        regex = rng.choice(["", "", "^"]) + "".join(parts) + rng.choice(["", "", "$"])
        if most > 100:  # long expressions match if nearly all may match nothing
            regex = "".join(x if x[-1] in "*?" else x + "?" for x in parts)
        words = ["".join(rng.choice("abé1A日$\\") for _ in range(rng.randint(1, longest))) for _ in range(8)]
        if most > 100:
            words = words[:1]
        expected = [backtracked(regex, word) for word in words]
        found = [("", "false") if x is None else (w[x[0] : x[1]], "true") for w, x in zip(words, expected, strict=True)]
        assert matched(regex, words) == found, regex


def test_long_tokens_match_in_stretches() -> None:
    for n in (4094, 4095, 4096, 4097, 8192, 20_000):
        word = "xa" + "é" * n + "b" + "c" * 5000 + "ab"
        assert matched("a.*b", [word]) == [(word[1 : n + 3], "true")]
        assert matched("a.*b$", [word]) == [(word[1:], "true")]
        assert matched("ab$", [word]) == [("ab", "true")]
        assert matched("^.*bc?", [word]) == [(word[: n + 4], "true")]
        assert matched("é?" * 300 + "b", [word]) == [(word[n + 2 - 300 : n + 3], "true")]


@pytest.mark.parametrize("regex", [".*.*x", "a*" * 100, ".*" * 490 + "x", ".?" * 499])
def test_patterns_take_time_and_memory_in_keeping_with_the_text(regex: str) -> None:
    out = run_limited(
        """
        from crfkit.features.encoders import PlanEncoder
        encoder = PlanEncoder(Template(f'u:%t[0,0,"{sys.argv[1]}"]').plan())
        encoder.encode([["a" * 1_000_000]], True, 1)
        print(encoder.names())
        """,
        regex,
        megabytes=100,
    )
    assert out == ("['u:false']\n" if regex.endswith("x") else "['u:true']\n")


SAVE = """
import sys, crfkit
crfkit.CRF(max_iter=5, n_jobs=1).fit(
    [[f"w{k * k % 97}" for k in range(j, j + 9)] for j in range(20)],
    [["AB"[k * k % 97 % 2] for k in range(j, j + 9)] for j in range(20)],
).save(sys.argv[1])
"""


def test_results_do_not_depend_on_the_seed_of_hashes(tmp_path: Path) -> None:
    files = set()
    for k in range(2):  # each process draws a seed of its own
        path = tmp_path / f"model{k}"
        subprocess.run([sys.executable, "-W", "ignore", "-c", SAVE, str(path)], check=True)
        files.add(path.read_bytes())
    assert len(files) == 1


def colliding(n: int) -> list[str]:
    """Words of eight letters whose hashes, as they were without a seed, lie side by side in tables of 2^18 slots."""
    number, rng = np.uint64, np.random.default_rng(0)
    words: dict[str, None] = {}
    while len(words) < n:
        letters = rng.integers(ord("a"), ord("z") + 1, (2_000_000, 8), dtype=np.uint8)
        h = (letters.view(number)[:, 0] ^ number(0x9E3779B97F4A7C15 ^ 8)) * number(0x9FB21C651E98DF25)
        h ^= h >> number(35)
        for _ in range(2):
            h ^= h >> number(32)
            h *= number(0xD6E8FEB86659FD93)
        h ^= h >> number(32)
        words |= dict.fromkeys(row.tobytes().decode() for row in letters[h & number(2**18 - 2**12) == 0])
    return list(words)[:n]


def test_chosen_words_do_not_collide(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("".join(f"{word} A\n" for word in colliding(120_000)))
    out = run_limited(
        """
        from crfkit.data import read_columns
        X, y = read_columns(sys.argv[1])
        print(len(X.strings))
        """,
        path,
        seconds=4,
    )
    assert int(out) >= 120_000


def test_plans_of_many_columns_take_linear_time() -> None:
    out = run_limited(
        """
        plan = FeaturePlan()
        for turn in range(2):
            for column in range(200_000):
                plan.leaf(column)
        print(len(plan.nodes), plan.leaf(7), plan.mark("first"))
        try:
            CRF().fit([[tuple("x" for _ in range(1_000_000))]], [["A"]])
        except ValueError as e:
            print(e)
        """
    )
    assert out == "200000 7 200000\nTokenFeatures take tokens of at most 1001 columns, got 1000000\n"


def test_training_on_many_columns_takes_linear_time() -> None:
    out = run_limited(
        """
        from crfkit.features.encoders import make_encoder
        X = [[tuple(f"{t}.{c}" for c in range(1001)) for t in range(60)]]
        encoder = make_encoder("auto", X)
        encoder.encode(X, True, 1)
        print(encoder.n_attributes[0] > 600_000)
        """
    )
    assert out == "True\n"


def test_plans_share_equal_nodes() -> None:
    plan = TokenFeatures().plan(2)
    assert len(set(plan.nodes)) == len(plan.nodes)
    again = FeaturePlan.from_dict(plan.to_dict())
    assert again == plan
    again.nodes.append(("leaf", 5, 0, 0))
    assert again.leaf(5) == len(plan.nodes)
    assert again.leaf(0) == plan.nodes.index(("leaf", 0, 0, 0))


@pytest.mark.parametrize(
    "fit",
    [
        "CRF().fit(X, y)",
        "CRF(hidden_states=2, n_init=1).fit(X[:3000], y[:3000])",
        "crfkit.MEMM().fit(X, y)",
        "crfkit.HMM().fit(X, y)",
        "crfkit.HMM(n_states=12000).fit(X)",
        "crfkit.SegmentCRF().fit(X, y)",
        "CRF().encode(X, y, path=sys.argv[1])",
    ],
)
def test_too_many_labels_are_refused_before_their_pairs_take_memory(fit: str, tmp_path: Path) -> None:
    out = run_limited(
        f"""
        X = [["a", "b"]] * 6000
        y = [[f"x{{2 * i}}", f"x{{2 * i + 1}}"] for i in range(6000)]
        try:
            {fit}
        except ValueError as e:
            print(e)
        """,
        tmp_path / "blocks",
        megabytes=300,
    )
    states = "hidden_states" in fit or "n_states" in fit
    assert f"12,000 {'states' if states else 'different labels'}, more than the 10,000 that training takes" in out
    assert ("columns of words and labels swapped?" in out) != states
