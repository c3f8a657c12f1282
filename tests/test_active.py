"""Active learning: strategies, spans, diversity, simulation and the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crfkit import CRF, ModelError, SegmentCRF, active, chain
from crfkit.cli import app
from crfkit.cli.options import OptionError
from crfkit.data import load_corpus, read_columns


@pytest.fixture(scope="module")
def corpus() -> tuple[Any, Any]:
    return load_corpus("ingredients", "train")


@pytest.fixture(scope="module")
def crf(corpus: tuple[Any, Any]) -> CRF:
    return CRF(c2=0.1, max_iter=20).fit(corpus[0][:30], corpus[1][:30])


def test_uncertainties_are_what_they_say(crf: CRF, corpus: tuple[Any, Any]) -> None:
    X = corpus[0][30:60]
    p = crf.potentials(X)
    lengths = p.lengths
    expected = {
        "least_confidence": [-np.log(chain.confidence(one)) for one in p],
        "margin": [1 - chain.margin(one) for one in p],
        "sequence_entropy": [chain.entropy(one) for one in p],
        "kbest_entropy": [chain.kbest_entropy(one, 10) for one in p],
        "token_entropy": [chain.span_entropies(one).nodes.sum() for one in p],
        "span_entropy": [chain.most_uncertain_span(one, (1, 5), rate=0).entropy for one in p],
    }
    spans = [chain.most_uncertain_span(one, (1, 5), rate=0) for one in p]
    assert set(expected) == set(active.STRATEGIES) - {"random"}
    for name, values in expected.items():
        np.testing.assert_allclose(active.uncertainty(crf, X, name), values, atol=1e-9)
        n = np.array([b.end - b.start for b in spans]) if name == "span_entropy" else lengths
        np.testing.assert_allclose(active.uncertainty(crf, X, name, per_token=True), np.array(values) / n, atol=1e-9)


def test_queries_take_the_most_uncertain(crf: CRF, corpus: tuple[Any, Any]) -> None:
    X = corpus[0][30:90]
    u = active.uncertainty(crf, X)
    found = active.query(crf, X, 7)
    assert [q.sequence for q in found] == np.argsort(-u, kind="stable")[:7].tolist()
    assert all(q.start == 0 and q.end == len(X[q.sequence]) for q in found)
    spans = active.query(crf, X, 7, length=(1, 2))
    p = crf.potentials(X)
    for q in spans:
        assert (q.start, q.end) == chain.most_uncertain_span(p[q.sequence], (1, 2))[:2]
    assert len(active.query(crf, X, 1000)) == len(X)


def test_ranges_of_spans_are_used(crf: CRF, corpus: tuple[Any, Any]) -> None:
    found = active.query(crf, corpus[0][30:], 200, "span_entropy", length=(1, 3))
    counts = np.bincount([q.end - q.start for q in found], minlength=4)
    assert (counts[1:] >= 5).all()


def test_what_is_known_is_not_asked_for(crf: CRF, corpus: tuple[Any, Any]) -> None:
    X, y = corpus[0][30:50], corpus[1][30:50]
    known = set(crf.classes_.tolist())
    given: list[Any] = [list(row) if i < 15 and set(row) <= known else None for i, row in enumerate(y)]
    given[16] = [None] * len(X[16])
    found = {q.sequence for q in active.query(crf, X, 20, given=given)}
    assert found == {i for i, row in enumerate(given) if row is None or None in row}


def test_soft_labels_are_known_in_part() -> None:
    crf = CRF().fit([["a", "b"], ["b"]], [["A", "B"], ["B"]])
    X = [["c", "d"], ["d"], ["c"]]
    soft = {"A": 0.9, "B": 0.1}
    given: list[Any] = [[soft, None], ["A"], [{**soft, "unseen": 1.0}]]
    found = active.uncertainty(crf, X, given=given)
    p = crf.predict_marginals(X[2:], given=[[soft]])[0][0]
    assert found[2] == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
    assert active.uncertainty(crf, X, given=[None, None, [{"unseen": 1.0}]])[2] == active.uncertainty(crf, X)[2]
    for length in (None, 1):
        assert {q.sequence for q in active.query(crf, X, given=given, length=length)} == {0, 2}


def test_diversity_avoids_repetition(crf: CRF, corpus: tuple[Any, Any]) -> None:
    X = [corpus[0][40]] * 5 + [corpus[0][i] for i in range(50, 60)]
    plain = [q.sequence for q in active.query(crf, X, 6, "least_confidence")]
    diverse = [q.sequence for q in active.query(crf, X, 6, "least_confidence", diversity=0.8)]
    assert sum(i < 5 for i in diverse) <= max(1, sum(i < 5 for i in plain))
    assert sum(i < 5 for i in diverse) <= 1
    assert len(set(diverse)) == 6


def test_random_is_reproducible(crf: CRF, corpus: tuple[Any, Any]) -> None:
    X = corpus[0][30:90]
    assert active.query(crf, X, 5, "random", random_state=3) == active.query(crf, X, 5, "random", random_state=3)


def test_faults_are_named(crf: CRF) -> None:
    with pytest.raises(ValueError, match="'strategy' must be one of"):
        active.uncertainty(crf, [["a"]], "best")
    with pytest.raises(ValueError, match="'n' of query"):
        active.query(crf, [["a"]], 0)
    with pytest.raises(ValueError, match="'diversity' must lie"):
        active.query(crf, [["a"]], 1, diversity=2)


def test_models_of_segments_are_refused(corpus: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = [["in", "New", "York"], ["Rome"]], [["O", "B-LOC", "I-LOC"], ["B-LOC"]]
    segments: Any = SegmentCRF(c2=0.1).fit(X, y)
    calls: dict[str, Callable[[], Any]] = {
        "uncertainty": lambda: active.uncertainty(segments, X),
        "query": lambda: active.query(segments, X, 1, "random"),
        "simulate": lambda: active.simulate(segments, X, y, X, y, start=1),
        "Pool": lambda: active.Pool(X, crf=segments),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"'crf' of {name} must be a chain, such as a CRF, got a SegmentCRF"):
            call()
    segments.save(tmp_path / "m")
    (tmp_path / "pool").write_text("in\nNew\nYork\n")
    arguments = "active", "next", str(tmp_path / "pool"), "-m", str(tmp_path / "m"), "-o", str(tmp_path / "b")
    for strategy in ("margin", "entropy_per_second"):
        out = CliRunner().invoke(app, [*arguments, "--strategy", strategy])
        assert isinstance(out.exception, ModelError)
        assert "crfkit active needs a linear chain, such as a CRF, got a SegmentCRF" in str(out.exception)
    assert not (tmp_path / "b").exists()


def test_simulation_counts_what_was_labelled(corpus: tuple[Any, Any]) -> None:
    X, y = corpus[0][:80], corpus[1][:80]
    curve = active.simulate(CRF(c2=0.1, max_iter=10), X, y, X[:20], y[:20], start=10, batch_size=[5] * 3, length=(1, 2))
    assert len(curve.f1) == 4
    known = sum(x is not None for row in curve.known if row is not None for x in row)
    assert curve.tokens[-1] == known
    assert (np.diff(curve.tokens) <= 10).all()
    for row, gold in zip(curve.known, y, strict=True):
        assert row is None or all(a is None or a == b for a, b in zip(row, gold, strict=True))
    whole = active.simulate(CRF(c2=0.1, max_iter=10), X[:30], y[:30], X[:5], y[:5], start=20, batch_size=[50] * 9)
    assert whole.sequences.tolist() == [20, 30]
    assert whole.tokens_to_reach(0.0) == whole.tokens[0]
    assert whole.tokens_to_reach(1.1) is None


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    return result.output


def test_the_command_line_goes_round(corpus: tuple[Any, Any], tmp_path: Path) -> None:
    """Train, ask for spans, answer, add, train on the partial labels, ask again."""
    X, y = corpus
    truth = {tuple(x): list(row) for x, row in zip(X, y, strict=True)}

    def write(path: Path, sequences: Any, labels: Any) -> None:
        with open(path, "w") as file:
            for tokens, row in zip(sequences, labels, strict=True):
                file.writelines(
                    "\t".join([t, *([label] if label else [])]) + "\n" for t, label in zip(tokens, row, strict=True)
                )
                file.write("\n")

    write(tmp_path / "labelled.txt", X[:30], y[:30])
    write(tmp_path / "pool.txt", X[30:100], [[""] * len(x) for x in X[30:100]])
    labelled, pool, batch, model = (str(tmp_path / f) for f in ("labelled.txt", "pool.txt", "batch.txt", "m.crfkit"))
    asked = 0
    for _ in range(2):
        run("train", labelled, "-m", model, "--unknown", "?", "--max-iter", "10", "-q")
        how = ["-m", model, "-o", batch, "--known", labelled, "-n", "5", "--length", "1-3", "--force"]
        said = run("active", "next", pool, *how)
        table, answers = read_columns(batch)
        assert answers is not None
        assert f"{sum(list(row).count('???') for row in answers)} tokens to label" in said
        assert len(answers) == 5
        with open(batch, "w") as file:
            for rows, row in zip(table, answers, strict=True):
                gold = truth[tuple(word for word, _ in rows)]
                asked += list(row).count("???")
                for (word, guess), answer, label in zip(rows, row, gold, strict=True):
                    file.write(f"{word}\t{guess}\t{label if answer == '???' else answer}\n")
                file.write("\n")
        run("active", "add", batch, labelled)
    X_known, y_known = read_columns(labelled)
    assert y_known is not None
    extra = sum(label != "?" for row in y_known[30:] for label in row)
    assert extra == asked > 0
    for tokens, row in zip(X_known, y_known, strict=True):
        assert all(a in ("?", b) for a, b in zip(row, truth[tuple(tokens)], strict=True))


def test_unlabelled_data_on_the_command_line(corpus: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = corpus
    with open(tmp_path / "a.txt", "w") as file:
        for tokens, row in zip(X[:40], y[:40], strict=True):
            file.write("".join(f"{t}\t{label}\n" for t, label in zip(tokens, row, strict=True)) + "\n")
    with open(tmp_path / "b.txt", "w") as file:
        for tokens in X[40:150]:
            file.write("".join(f"{t}\n" for t in tokens) + "\n")
    model = str(tmp_path / "m.crfkit")
    arguments = ["train", str(tmp_path / "a.txt"), "-m", model, "--json", "--max-iter", "8"]
    out = run(*arguments, "--unlabelled", str(tmp_path / "b.txt"), "--entropy-weight", "0.5")
    assert '"entropy"' in out
    result = CliRunner().invoke(app, [*arguments, "--unlabelled", str(tmp_path / "b.txt")])
    assert isinstance(result.exception, ValueError)
    assert "--entropy-weight" in str(result.exception)


def lines(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def fails(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, ValueError | OSError), result.output
    return str(result.exception)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[str, str]:
    """A labelled file and a model."""
    labelled = lines(tmp_path / "labelled.txt", "a\tA\nb\tB\n\nb\tB\n\n")
    model = str(tmp_path / "m.crfkit")
    run("train", labelled, "-m", model, "-q")
    return labelled, model


def test_answers_do_not_spoil_the_labelled_file(trained: tuple[str, str], tmp_path: Path) -> None:
    labelled = Path(trained[0])
    before = labelled.read_text()
    for answer in ("", " ", "?", "???"):
        batch = lines(tmp_path / "batch.txt", f"c\tA\t{answer}\nd\tB\t\n\n")
        stamp = labelled.stat().st_ino
        assert "added 0 labels" in run("active", "add", batch, str(labelled))
        assert labelled.read_text() == before
        assert labelled.stat().st_ino == stamp  # not even written anew
    batch = lines(tmp_path / "batch.txt", "c\tX\tA\tB\n\n")
    assert "has 2 columns besides the suggestion and the answer" in fails("active", "add", batch, str(labelled))
    assert labelled.read_text() == before
    batch = lines(tmp_path / "batch.txt", "c\tA\tBB\nd\tB\tB\n\n")
    out = run("active", "add", batch, str(labelled))
    assert out.count("warning") == 1
    assert f"{batch}:1: the label 'BB' is new" in out
    batch = lines(tmp_path / "batch.txt", "e\tA\t?\n\n\nc\tA\tBB\nd\tB\tA\n\n")
    assert f"{batch}:5: the answer is 'A', but {labelled} has 'B' for this token" in fails(
        "active", "add", batch, str(labelled)
    )


def test_pools_must_fit_the_model(trained: tuple[str, str], tmp_path: Path) -> None:
    model = trained[1]
    rest: tuple[str, ...] = ("-m", model, "-o", str(tmp_path / "batch.txt"))
    pool = lines(tmp_path / "pool.txt", "c\tA\nd\tB\n\n")
    assert "needs the 1 column that the model was trained on, and no label, got 2" in fails(
        "active", "next", pool, *rest
    )
    pool = lines(tmp_path / "pool.txt", "c\nd\n\nc\nd\n\ne\n\n")
    assert "wrote 2 questions" in run("active", "next", pool, *rest)
    assert "already exists: once its answers are added" in fails("active", "next", pool, *rest)
    rest = (*rest, "--force")
    for option, fault in (
        ("-n 0", "--number must be >= 1, got 0"),
        ("--diversity 2", "--diversity must be from 0 to 1"),
    ):
        result = CliRunner().invoke(app, ["active", "next", pool, *rest, *option.split()])
        assert isinstance(result.exception, OptionError)  # the command ends with code 2
        assert fault in str(result.exception)
    assert "No such file" in fails("active", "next", pool, *rest, "--known", str(tmp_path / "none.txt"))
    items = lines(tmp_path / "items.txt", "A\tw=a\tx=1\nB\tw=b\n\n")
    assert "column files only" in fails("active", "next", items, *rest)
    run("train", items, "-f", "crfsuite", "-m", model, "-q")
    assert "column files only" in fails("active", "next", items, *rest)


def test_labels_that_the_model_has_not_seen_are_known(trained: tuple[str, str], tmp_path: Path) -> None:
    model = trained[1]
    pool = lines(tmp_path / "pool.txt", "c\nd\n\ne\n\n")
    known = lines(tmp_path / "known.txt", "c\tNEW\nd\t?\n\ne\tNEW\n\n")
    batch = tmp_path / "batch.txt"
    run("active", "next", pool, "-m", model, "-o", str(batch), "--known", known)
    rows = [line.split("\t") for line in batch.read_text().split("\n") if line]
    assert [(row[0], row[2]) for row in rows] == [("c", "NEW"), ("d", "???")]
    crf = CRF().fit([["a", "b"]], [["A", "B"]])
    found = active.query(crf, [["a", "c"], ["c"]], 5, "span_entropy", length=1, given=[["NEW", None], ["NEW"]])
    assert [q.sequence for q in found] == [0]
    assert active.uncertainty(crf, [["a"]], given=[[{"A", "NEW"}]])[0] == pytest.approx(0.0)


def test_campaigns_need_labels_for_all(corpus: tuple[Any, Any]) -> None:
    X, gold = list(corpus[0][:20]), [list(row) for row in corpus[1][:20]]
    crf = CRF(max_iter=2)
    with pytest.raises(ValueError, match="'X' holds 20 sequences, but 'y' holds labels for 19"):
        active.simulate(crf, X, gold[:-1], X, gold)
    with pytest.raises(ValueError, match="'X_test' holds 20 sequences"):
        active.simulate(crf, X, gold, X, gold[:-1])
    with pytest.raises(ValueError, match="sequence 0 of 'y' has no labels"):
        active.simulate(crf, X, [None, *gold[1:]], X, gold)
    with pytest.raises(ValueError, match="'pool' of simulate must be >= 1, got 0"):
        active.simulate(crf, X, gold, X, gold, pool=0)
    not_fitted = pytest.importorskip("sklearn.exceptions").NotFittedError
    with pytest.raises(not_fitted):
        active.query(CRF(), X)
    with pytest.raises(ValueError, match="'given' holds labels for 1 sequence, but 'X' holds 2"):
        active.query(CRF().fit([["a"]], [["A"]]), [["a"], ["b"]], given=[None])


def test_unlabelled_data_needs_the_columns(tmp_path: Path) -> None:
    a = lines(tmp_path / "a.txt", "a\tX\tA\n\nb\tY\tB\n\n")
    b = lines(tmp_path / "b.txt", "a\n\n")
    out = fails("train", a, "-m", str(tmp_path / "m"), "--unlabelled", b, "--entropy-weight", "0.1")
    assert "b.txt has 1 column, the labelled data has 2 besides the label" in out


def test_unknown_labels_are_not_scored(trained: tuple[str, str], tmp_path: Path) -> None:
    data = lines(tmp_path / "data.txt", "a\tA\nb\tB\n\nb\t?\n\n")
    assert "token accuracy: 66.67% of 3" in run("eval", data, "-m", trained[1])
    out = run("eval", data, "-m", trained[1], "--unknown", "?")
    assert "left out 1 of 2 sequences" in out
    assert "token accuracy: 100.00% of 2" in out
    pairs = lines(tmp_path / "pairs.txt", "a\tA\tA\nb\tB\tA\n\nb\t?\tB\n\n")
    assert "token accuracy: 50.00% of 2" in run("eval", pairs, "--unknown", "?")
    model = str(tmp_path / "n.crfkit")
    assert "sequence 1 of 'y_dev'" in fails("train", data, "-m", model, "--dev", data, "--unknown", "?")


def test_questions_by_the_second(tmp_path: Path, corpus: tuple[Any, Any], crf: CRF) -> None:
    pool, model, batch = (str(tmp_path / name) for name in ("pool.txt", "m.crfkit", "batch.txt"))
    Path(pool).write_text("".join("\n".join(row) + "\n\n" for row in corpus[0][30:90]))
    crf.save(model)
    arguments = ["active", "next", pool, "-m", model, "-o", batch, "-n", "5", "--strategy", "entropy_per_second"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    X, y = read_columns(batch)
    assert len(X) == 5
    asked = [label == "???" for row in y for label in row]
    assert 5 <= sum(asked) < len(asked)
    again = active.Pool(corpus[0][30:90], crf=crf)
    again.rescore()
    question = again.ask()
    assert question is not None
    assert [row[0] for row in X[0]] == list(corpus[0][30 + question.sequence])
    refused = CliRunner().invoke(app, [*arguments[:-1], "entropy_per_second", "--length", "2", "--force"])
    assert refused.exit_code != 0
