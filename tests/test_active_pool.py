"""The pool that learns as answers come, the labels of people, and how long answers take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfkit import CRF
from crfkit.active import Pool, Strategy, TimeModel
from crfkit.active.scheme import Scheme
from crfkit.chain import Potentials, entropy, marginals, span_entropies
from crfkit.data import load_corpus
from crfkit.metrics import evaluate, spans

X, Y = ([list(row) for row in part] for part in load_corpus("ingredients"))
KINDS = sorted({label[2:] for row in Y for label in row if label != "O"})


def told(pool: Pool, n: int, start: int = 0) -> None:
    """Tells a pool the true labels of some sentences, whole."""
    for i in range(start, start + n):
        pool.tell(i, [(s.start, s.end, s.kind) for s in spans(Y[i])], [(0, len(Y[i]))])
        pool.note(i, whole=True)


@pytest.fixture(scope="module")
def learned() -> Pool:
    pool = Pool(X, KINDS)
    told(pool, 40)
    pool.learn(max_iter=None)
    pool.rescore()
    return pool


class TestScheme:
    def test_span_ends_are_part_of_an_answer(self) -> None:
        s = Scheme(["X", "Y"], spans=True)
        allowed = s.allowed(5, [(1, 3, "X")], [], s.anything(5))
        assert allowed.sum(axis=1).tolist() == [5, 1, 1, 3, 5]
        assert not allowed[3, [s.number["I-X"], s.number["I-Y"]]].any()

    def test_later_answers_win_and_fit_together(self) -> None:
        s = Scheme(["X"], spans=True)
        old = s.allowed(4, [(0, 4, "X")], [], s.anything(4))
        new = s.allowed(4, [], [(1, 2)], old)
        assert [s.labels[k] for k in new.argmax(axis=1)] == ["B-X", "O", "B-X", "I-X"]

    def test_tokens_have_the_labels_themselves(self) -> None:
        s = Scheme(["N", "V"], spans=False)
        assert s.labels == ("N", "V")
        assert s.constraints is None
        assert s.allowed(2, [(1, 2, "V")], [(0, 2)], s.anything(2)).astype(int).tolist() == [[1, 1], [0, 1]]

    def test_a_span_of_a_file_may_begin_with_i(self) -> None:
        s = Scheme(["X"], spans=True)
        found = s.path(["I-X", "I-X", None, "I-X", "O", "I-X"])
        assert [s.labels[k] for k in found[[0, 1, 3, 4, 5]].argmax(axis=1)] == ["B-X", "I-X", "I-X", "O", "B-X"]

    def test_labels_must_differ(self) -> None:
        with pytest.raises(ValueError, match="must differ"):
            Scheme(["X", "X"], spans=True)


class TestLearning:
    def test_whole_sentences_give_the_model_of_fit(self, learned: Pool) -> None:
        crf = CRF(c2=learned.crf.c2, constraints="bio").fit(X[:40], Y[:40])
        mine = learned.estimator().predict(X[40:])
        same = np.mean([a == b for a, b in zip(mine, crf.predict(X[40:]), strict=True)])
        assert same > 0.97

    def test_partial_answers_teach(self) -> None:
        pool = Pool(X, KINDS)
        for i in range(60):
            chunks = [s for s in spans(Y[i]) if s.kind in ("QTY", "UNIT")]
            pool.tell(i, [(s.start, s.end, s.kind) for s in chunks])
        pool.learn(max_iter=None)
        found = evaluate(Y[100:], pool.estimator().predict(X[100:])).chunks
        assert found is not None
        assert found["QTY"].recall > 0.9

    def test_labels_without_an_example_are_possible(self) -> None:
        pool = Pool([["a", "b"], ["c"]], ["X", "Y"])
        pool.tell(0, [(0, 1, "X")], [(0, 2)])
        pool.learn()
        question = pool.question(1)
        assert {c.label for c in question.spans[0].choices} == {None, "X", "Y"}

    def test_the_estimator_is_saved_and_loaded(self, learned: Pool, tmp_path: object) -> None:
        import crfkit

        path = f"{tmp_path}/model.crfkit"
        learned.estimator().save(path)
        assert crfkit.load(path).predict(X[:50]) == learned.estimator().predict(X[:50])

    def test_a_renamed_label_keeps_what_is_known(self) -> None:
        pool = Pool(X, KINDS)
        told(pool, 20)
        pool.learn()
        new = ["AMOUNT" if name == "QTY" else name for name in KINDS] + ["MORE"]
        pool.relabel(new, lambda name: {"AMOUNT": "QTY", "MORE": None}.get(name, name))
        assert pool.scheme.labels[-1] == "I-MORE"
        for i in range(20):
            labels = [pool.scheme.labels[k] for k in pool.known[i].argmax(axis=1)]
            assert labels == [label.replace("QTY", "AMOUNT") for label in Y[i]]
        before = pool.told()
        problem = pool.problem(before)
        assert problem is not None
        pool.relabel([*new[:-1], "OTHER"], lambda name: None if name == "OTHER" else name)  # as many labels as before
        assert not pool.adopt(before, problem, np.zeros(problem.layout.size))
        pool.learn()
        assert any("B-AMOUNT" in row for row in pool.estimator().predict(X[20:40]))


class TestScores:
    def test_entropies_are_those_given_what_is_known(self, learned: Pool) -> None:
        pool = Pool(X[:30], KINDS)
        pool.model = learned.model
        pool.encoder, pool.data = learned.encoder, learned.data.take(np.arange(30))
        pool._data = [pool.data]
        pool.version = 1
        pool.tell(3, [(0, 1, "QTY")], [(0, 1)])
        pool.tell(7, [], [(1, 3)])
        assert pool.rescore() == 1.0
        total = 0.0
        for i in range(30):
            p = learned.model.score(learned.data.take(np.array([i])), 1, np.float64)[0]
            if i in pool.known:
                p = Potentials(p.unary, p.pairwise, allowed=pool.known[i])
            part = slice(pool.offsets[i], pool.offsets[i + 1])
            exact = span_entropies(p)
            np.testing.assert_allclose(pool._scores.nodes[part], exact.nodes, atol=2e-5)
            total += entropy(p)
        assert pool.entropy == pytest.approx(total, abs=2e-3)
        assert pool._scores.nodes[pool.offsets[3]] == pytest.approx(0, abs=1e-6)

    def test_rescoring_can_be_spread(self, learned: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("crfkit.active.pool._PIECE", 300)
        pool = Pool(X, KINDS)
        told(pool, 5)
        pool.learn()
        fresh = [pool.rescore(0.0) for _ in range(len(pool._pieces))]
        assert len(fresh) > 3
        assert 0 < fresh[0] < fresh[1] < fresh[-1] == 1.0
        pool.learn()
        assert pool.fresh == 0.0
        assert pool.ask() is not None

    def test_probabilities_of_choices_are_exact(self, learned: Pool) -> None:
        question = learned.question(50, whole=True)
        p = learned.potentials([50])
        nodes = marginals(p).nodes
        number = learned.scheme.number
        for span in question.spans:
            if span.end - span.start == 1:
                outside = next(c.p for c in span.choices if c.label is None)
                assert outside == pytest.approx(float(nodes[span.start, number["O"]]), abs=1e-4)
            assert sum(c.p for c in span.choices) <= 1 + 1e-4
            assert [c.p for c in span.choices] == sorted((c.p for c in span.choices), reverse=True)

    def test_expected_mistakes(self, learned: Pool) -> None:
        known, fresh = learned.expect(range(40)), learned.expect(range(40, 353))
        gold = [learned.scheme.number[x] for row in Y[:40] for x in row]
        assert known.wrong.sum() == pytest.approx((known.path != gold).sum(), abs=1e-3)
        report = evaluate(Y[40:], learned.estimator().predict(X[40:]))
        assert fresh.wrong.sum() / fresh.tokens.sum() == pytest.approx(1 - report.accuracy, abs=0.08)
        assert fresh.spans.sum() == report.chunks[""].predicted  # type: ignore[index]


class TestQuestions:
    def test_without_a_label_questions_cover_the_pool(self) -> None:
        pool = Pool(X, KINDS)
        seen: set[str] = set()
        for _ in range(5):
            q = pool.ask()
            assert q is not None
            assert q.kind == "cover"
            fresh = set(X[q.sequence]) - seen
            assert len(fresh) > len(X[q.sequence]) / 2
            seen |= set(X[q.sequence])
            pool.tell(q.sequence, [(s.start, s.end, s.kind) for s in spans(Y[q.sequence])], [(0, len(Y[q.sequence]))])
            pool.note(q.sequence, whole=True)
            pool.learn()

    def test_no_label_name_at_all(self) -> None:
        pool = Pool(X[:20])
        question = pool.ask()
        assert question is not None
        assert question.spans[0].choices == [(None, 1.0)]

    def test_the_spans_asked_pay_more_than_the_rest(self, learned: Pool) -> None:
        q = learned.ask()
        assert q is not None
        first = int(learned.offsets[q.sequence])
        asked = {t for s in q.spans for t in range(s.start, s.end)}
        rest = [t for t in range(int(learned.lengths[q.sequence])) if t not in asked]
        nodes = learned._scores.nodes
        assert asked
        if rest:
            assert max(nodes[first + t] for t in asked) > max(nodes[first + t] for t in rest)

    def test_certain_sentences_are_not_asked(self, learned: Pool) -> None:
        q = learned.ask()
        assert q is not None
        assert q.sequence not in learned.known
        assert q.gain > 0

    def test_reading_costs_time_so_few_spans_are_not_asked_alone(self) -> None:
        cheap, dear = TimeModel(sentence=0.1), TimeModel(sentence=60)
        pool = Pool(X, KINDS)
        told(pool, 40)
        pool.learn()
        pool.rescore()
        sizes = []
        for model in (cheap, dear):
            pool.time_model, pool._rate = model, 0.0
            q = pool.ask()
            assert q is not None
            sizes.append(sum(s.end - s.start for s in q.spans))
        assert sizes[0] < sizes[1]

    @pytest.mark.parametrize("free", [{"sentence": 0.0}, {"token": 0.0, "correction": 0.0}])
    def test_what_takes_no_time_is_asked_all_the_same(self, free: dict[str, float]) -> None:
        pool = Pool(X[:100], KINDS, time_model=TimeModel(**free), n_jobs=1)
        told(pool, 20)
        pool.learn()
        pool.rescore()
        for _ in range(5):
            question = pool.ask()
            assert question is not None
            assert question.spans
            pool.note(question.sequence)

    def test_with_many_labels_it_counts_how_far_a_label_reaches(self) -> None:
        X = [["a", "b"], ["a", "c"], ["c", "d"], ["d", "c", "a"]]
        few, many = Pool(X, ["X"]), Pool(X, [f"L{k}" for k in range(30)])
        assert (few.cover, many.cover) == (5, 30)
        assert few._weight(slice(0, 9)).tolist() == [1.0] * 9
        many.tell(0, [(0, 1, "L0")], [(0, 1)])
        many.closed[1] = True
        many.learn()
        many.rescore()

        def expected() -> list[float]:
            """By the definition, token by token."""
            data, entropy = many.data, many._open_entropies(0, 4)
            attrs = [set(data.attr[data.ptr[t] : data.ptr[t + 1]].tolist()) for t in range(9)]
            labelled = np.concatenate([many._single(i) for i in range(4)])
            out = []
            for mine in attrs:
                shared = [[t for t in range(9) if a in attrs[t]] for a in mine]
                out.append(sum(entropy[s].sum() / (1 + labelled[s].sum()) ** 1.5 for s in shared))
            return out

        np.testing.assert_allclose(many._weight(slice(0, 9)), expected())
        np.testing.assert_allclose(many._weight(np.array([6, 1])), np.array(expected())[[6, 1]])
        many.know(0, None)
        many.rescore()
        np.testing.assert_allclose(many._weight(slice(0, 9)), expected())

    def test_reach_follows_labels_that_are_added(self) -> None:
        pool = Pool([["a", "b"], ["a", "c"]], [f"L{k}" for k in range(20)])
        pool.tell(0, [(0, 1, "L0")], [(0, 2)])
        assert pool._reach is None
        names = [*pool.scheme.names, "L20"]
        pool.relabel(names, lambda name: None if name == "L20" else name)
        pool.learn()
        pool.rescore()
        weight = pool._weight(slice(0, 4))
        assert weight[2] < weight[3]  # a is labelled

    def test_near_copies_wait(self) -> None:
        base = [["2", "cups", "odd", "zorb"], ["5", "grams", "of", "qux", "blip"]]
        pool = Pool([base[0], base[0], base[0], base[1]], ["QTY", "NAME"], strategy=Strategy(cover=1, spread=1.0))
        q = pool.ask()
        assert q is not None
        pool.tell(3, [(0, 1, "QTY")], [(0, 5)])
        pool.note(0)
        pool.closed[3] = True
        pool.learn()
        pool.rescore()
        again = pool.ask()
        assert again is not None
        assert again.gain > 0
        assert pool._likeness(np.array([1, 3])).tolist() == [1.0, 0.0]
        pool.recent = []
        assert pool._likeness(np.array([1])).tolist() == [0.0]

    def test_random_questions_are_whole_and_of_sentences_nobody_touched(self, learned: Pool) -> None:
        for _ in range(20):
            q = learned.ask(kind="random")
            assert q is not None
            assert q.sequence >= 40
            assert sum(s.end - s.start for s in q.spans) == learned.lengths[q.sequence]

    def test_many_ask_from_the_same_candidates(self, learned: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen: list[int] = []
        best = learned._best

        def counted(ids: Any) -> Any:
            chosen.append(len(ids))
            return best(ids)

        monkeypatch.setattr(learned, "_best", counted)
        first = learned.ask(kind="uncertain", quick=True)
        assert first is not None
        once = len(chosen)
        again = learned.ask(kind="uncertain", quick=True)
        assert again == first
        second = learned.ask([first.sequence], kind="uncertain", quick=True)
        assert second is not None
        assert second.sequence != first.sequence
        assert len(chosen) == once
        learned.ask(kind="uncertain")  # of all sentences
        assert len(chosen) > once
        once = len(chosen)
        learned.know(first.sequence, learned.known.get(first.sequence))  # something may have changed
        learned.ask(kind="uncertain", quick=True)
        assert len(chosen) > once
        learned.rescore()

    def test_nothing_left(self) -> None:
        pool = Pool([["a"], ["b"]], ["X"])
        assert pool.ask(exclude=[0, 1]) is None

    def test_labels_that_are_certain_have_no_negative_entropy(self) -> None:
        pool = Pool([["a", "b"]], ["QTY", "UNIT", "NAME"])
        pool.ask()
        pool.tell(0, [], [(0, 1)])
        pool.learn()
        pool.rescore()
        question = pool.ask()
        assert question is not None
        assert question.gain >= 0

    def test_token_tasks(self) -> None:
        gold = [["N", "V"], ["N", "V"], ["V", "N"]]
        pool = Pool([["dogs", "bark"], ["cats", "meow"], ["see", "dogs"]], ["N", "V"], spans=False)
        for i in range(2):
            pool.tell(i, [(t, t + 1, label) for t, label in enumerate(gold[i])])
        pool.learn()
        pool.rescore()
        pool.asked, pool.closed[:2] = 5, True
        q = pool.ask()
        assert q is not None
        assert q.sequence == 2
        assert all({c.label for c in s.choices} == {"N", "V"} for s in q.spans)

    def test_items_as_tokens(self) -> None:
        pool = Pool([[{"w=a": 1.0}, {"w=b": 1.0}], [{"w=b": 2.0}]], ["X"])
        pool.tell(0, [(0, 1, "X")], [(0, 2)])
        pool.learn()
        pool.rescore()
        assert pool.ask() is not None


class TestTimeModel:
    def test_the_published_figures(self) -> None:
        assert TimeModel().seconds(24, 3) == pytest.approx(12.57 + 3.795 * 24 + 5.387 * 3)

    def test_few_times_move_it_a_little(self) -> None:
        one = TimeModel().fitted([(5.0, 10, 0)])
        assert 0.4 < one.seconds(10, 0) / TimeModel().seconds(10, 0) < 1

    def test_many_times_are_fitted(self) -> None:
        rng = np.random.default_rng(0)
        rows = []
        for _ in range(400):
            tokens, wrong = int(rng.integers(1, 12)), int(rng.integers(0, 4))
            rows.append((max(0.2, rng.normal(4 + 0.8 * tokens + 2.5 * wrong, 1.0)), tokens, wrong))
        rows[::40] = [(3600.0, *row[1:]) for row in rows[::40]]  # left the desk
        found = TimeModel().fitted(rows)
        for n, c in ((2, 0), (8, 2), (12, 3)):
            assert found.seconds(n, c) == pytest.approx(4 + 0.8 * n + 2.5 * c, rel=0.3)

    def test_no_negative_seconds(self) -> None:
        found = TimeModel().fitted([(30.0 - 2 * n, n, 0) for n in range(1, 12)] * 30)
        assert min(found.sentence, found.token, found.correction) >= 0

    @pytest.mark.parametrize("bad", [{"token": -1.0}, {"sentence": float("nan")}, {"sentence": 0.0, "token": 0.0}])
    def test_bad_values(self, bad: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="TimeModel"):
            TimeModel(**bad)
