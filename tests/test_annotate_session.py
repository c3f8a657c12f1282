"""Sessions: questions, answers, undo, views, what is stated; from one thread and from many."""

from __future__ import annotations

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfkit
from crfkit.active import Strategy
from crfkit.annotate import formats
from crfkit.annotate.agreement import agreement, kappa
from crfkit.annotate.documents import AnnotateError, Document
from crfkit.annotate.estimates import LEAST, Scored, Totals, estimates
from crfkit.annotate.project import Project
from crfkit.annotate.session import Session
from crfkit.annotate.simulation import Person, in_process, play
from crfkit.data import load_corpus
from crfkit.metrics import evaluate

X, Y = ([list(row) for row in part] for part in load_corpus("ingredients"))
KINDS = sorted({label[2:] for row in Y for label in row if label != "O"})


def documents(rows: list[list[str]]) -> list[Document]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_text("".join("\n".join(row) + "\n\n" for row in rows))
        return formats.read_documents([path], format="columns", label="none")


def opened(folder: Path, rows: list[list[str]] = X, labels: list[str] = KINDS, **how: Any) -> Session:
    task = how.pop("task", "spans")
    project = Project.create(folder / "p.crfkit-project", documents(rows), labels=labels, task=task)
    return Session(project, patient=True, n_jobs=1, **how)


def answer(question: dict[str, Any], *spans: tuple[int, int, str | None], **more: Any) -> dict[str, Any]:
    said = [{"start": a, "end": b, "label": label} for a, b, label in spans]
    head = {"key": str(uuid.uuid4()), "question": question["id"], "sequence": question["sequence"], "spans": said}
    return {**head, "judged": [], "whole": True, "seconds": 9.0, "keys": 3, "corrections": 1, **more}


def test_a_model_with_a_lexicon_learns_from_answers(tmp_path: Path) -> None:
    features = crfkit.TokenFeatures(
        classes=crfkit.WordClasses.fit(X, 20, n_jobs=1), gazetteers={"units": crfkit.Gazetteer(["cup", "teaspoon"])}
    )
    found = opened(tmp_path, X[:60], crf=crfkit.CRF(features, c2=0.3, constraints="bio"))
    for _ in play(in_process(found, "ann"), Person(Y), 15):
        pass
    crf = found.pool.estimator()
    found.close()
    assert "gazetteer:units[0]=U" in crf.model_.encoder.names()
    crf.save(tmp_path / "model")
    again: Any = crfkit.load(tmp_path / "model")
    assert again.predict(X[60:90]) == crf.predict(X[60:90])
    assert evaluate(Y[60:90], again.predict(X[60:90])).f1 > 0.5


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    found = opened(tmp_path, X[:60])
    yield found
    found.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A campaign of 60 answers."""
    found = opened(tmp_path_factory.mktemp("played"), random_share=0.2)
    for _ in play(in_process(found, "ann"), Person(Y), 60):
        pass
    yield found
    found.close()


class TestCampaign:
    def test_it_learns(self, played: Session) -> None:
        X_test, y_test = load_corpus("ingredients", "test")
        assert evaluate(y_test, played.pool.estimator().predict(X_test)).f1 > 0.74

    def test_the_first_questions_cover(self, played: Session) -> None:
        kinds = [e.payload["kind"] for e in played.project.said()]
        assert kinds[:5] == ["cover"] * 5
        assert kinds.count("random") in (10, 11, 12)
        assert "uncertain" in kinds

    def test_questions_ask_less_than_sentences(self, played: Session) -> None:
        asked = [e.payload for e in played.project.said() if e.payload["kind"] == "uncertain"]
        whole = sum(len(X[p["sequence"]]) for p in asked)
        assert sum(p["tokens"] for p in asked[20:]) < whole

    def test_nothing_is_asked_twice(self, played: Session) -> None:
        sequences = [e.payload["sequence"] for e in played.project.said()]
        assert len(set(sequences)) == len(sequences)

    def test_the_panel(self, played: Session) -> None:
        played.state_accuracy()
        assert played.learner.idle(60)
        panel = json.loads(json.dumps(played.panel("ann"), allow_nan=False))
        assert panel["questions"] == 60
        assert panel["labelled"]["tokens"] + panel["remaining"]["tokens"] == sum(map(len, X))
        curve = panel["entropy"]["curve"]
        assert curve[0][1] > 2 * curve[-1][1] == 2 * panel["entropy"]["pool"]
        assert panel["accuracy"]["questions"] in (10, 11, 12)
        for kind in ("token", "f1"):
            stated = panel["accuracy"][kind]
            assert 0.5 < stated["low"] < stated["value"] < stated["high"] <= 1
        assert panel["expected_gain"]["entropy"] < 0
        assert panel["fresh"] == 1
        assert panel["seconds_per_question"] > 12

    def test_times_are_fitted(self, played: Session) -> None:
        state = played.state("ann")
        assert state["settings"]["time"]["fitted"]
        assert state["settings"]["time"]["token"] == pytest.approx(3.795, rel=0.1)

    def test_random_questions_are_scored_by_a_model_that_had_not_seen_them(self, played: Session) -> None:
        played.state_accuracy()
        scored = played.scored()
        assert len(scored) >= 10
        gold = {tuple(row) for row in Y}
        assert all(tuple(s.truth) in gold for s in scored)
        for k, model in enumerate(played.referee._models):  # a word of this part alone has no weight
            assert model is not None
            part = played._drawn()[k::5]
            others = {w for i in played.pool.known if i not in part for w in X[i]}
            only = {f"word={w}" for i in part for w in X[i]} - {f"word={w}" for w in others}
            attributes = model.encoder.names()
            rows = np.diff(model.layout.state_ptr)
            assert all(rows[attributes.index(name)] == 0 for name in only)

    def test_it_goes_on_after_it_was_left(self, played: Session, tmp_path: Path) -> None:
        played.learner.idle(60)
        copy = tmp_path / "p.crfkit-project"
        with played.lock:
            played.project.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            copy.write_bytes(Path(played.project.path).read_bytes())
        again = Session(Project.open(copy), patient=True, n_jobs=1)
        assert again.panel("ann")["labelled"] == played.panel("ann")["labelled"]
        assert again._drawn() == played._drawn()
        assert len(again.panel("ann")["entropy"]["curve"]) >= 55
        mine, theirs = (s.pool.estimator().predict(X) for s in (again, played))
        assert np.mean([a == b for a, b in zip(mine, theirs, strict=True)]) > 0.95
        again.close()
        later = Session(Project.open(copy), n_jobs=1)  # states the accuracy before anybody answers
        assert later._stating is not None
        deadline = time.monotonic() + 60
        while later.panel("ann")["learning"] != "idle" and time.monotonic() < deadline:
            time.sleep(0.01)
        stated = later.panel("ann")["accuracy"]
        later.close()
        assert stated["questions"] == len(played._drawn())
        assert stated["f1"]["low"] < stated["f1"]["high"]


class TestAnswers:
    def test_a_reload_gives_the_same_question(self, session: Session) -> None:
        first = session.question("ann")
        assert session.question("ann")["id"] == first["id"]
        assert session.question("ben")["sequence"] != first["sequence"]

    def test_sent_twice(self, session: Session) -> None:
        said = answer(session.question("ann"), (0, 1, "QTY"))
        first, second = session.answer("ann", said), session.answer("ann", said)
        assert first["event"] == second["event"]
        assert first["next"]["id"] == second["next"]["id"]
        assert second["panel"]["questions"] == 1

    def test_it_is_on_disk_before_the_reply(self, session: Session) -> None:
        number = session.answer("ann", answer(session.question("ann")))["event"]
        rows = session.project.store._db.execute("SELECT kind FROM events WHERE number = ?", (number,)).fetchall()
        assert rows == [("answer",)]

    def test_skip(self, session: Session) -> None:
        question = session.question("ann")
        with pytest.raises(AnnotateError, match="'skip' says nothing else"):
            session.answer("ann", answer(question, (0, 1, "QTY"), skip=True))
        reply = session.answer("ann", answer(question, whole=False, skip=True))
        assert reply["next"]["sequence"] != question["sequence"]
        assert reply["panel"]["labelled"]["tokens"] == 0

    @pytest.mark.parametrize(
        "change",
        [
            {"key": "short"},
            {"key": None},
            {"sequence": 60},
            {"sequence": -1},
            {"sequence": True},
            {"spans": [{"start": 0, "end": 99, "label": "QTY"}]},
            {"spans": [{"start": 1, "end": 1, "label": "QTY"}]},
            {"spans": [{"start": 0, "end": 1, "label": "NO"}]},
            {"spans": [{"start": 0, "end": 2, "label": "QTY"}, {"start": 1, "end": 3, "label": "UNIT"}]},
            {"spans": "x"},
            {"judged": [[0, 1, 2]]},
            {"judged": [[2, 1]]},
            {"seconds": -1},
            {"keys": "many"},
        ],
    )
    def test_refused(self, session: Session, change: dict[str, Any]) -> None:
        said = {**answer(session.question("ann")), **change}
        with pytest.raises(AnnotateError) as e:
            session.answer("ann", said)
        assert 400 <= e.value.status < 500
        assert not session.project.said()

    def test_undo_and_redo(self, session: Session) -> None:
        question = session.question("ann")
        session.answer("ann", answer(question, (0, 1, "QTY")))
        back = session.undo("ann", key="undo-key-1")
        assert session.undo("ann", key="undo-key-1")["event"] == back["event"]
        assert back["question"]["sequence"] == question["sequence"]
        assert back["question"]["said"]["spans"][0]["label"] == "QTY"
        assert (back["undo"], back["redo"]) == (False, True)
        assert not session.pool.known
        forth = session.redo("ann")
        assert (forth["undo"], forth["redo"]) == (True, False)
        assert list(session.pool.known) == [question["sequence"]]
        with pytest.raises(AnnotateError, match="nothing to redo"):
            session.redo("ann")

    def test_undo_asks_the_same_again(self, tmp_path: Path) -> None:
        """The same kind, the same spans and the answers to them; also after a restart."""
        session = opened(tmp_path, X[:60], random_share=0.0)
        list(play(in_process(session, "ann"), Person(Y), 8))
        question = session.question("ann")
        assert (question["kind"], question["whole"]) == ("uncertain", False)
        first, *rest = [(s["start"], s["end"]) for s in question["spans"]]
        said = answer(question, (*first, "QTY"), *((a, b, None) for a, b in rest), whole=False)
        session.answer("ann", said)
        session.undo("ann")
        for turn in range(2):
            again = session.question("ann")
            assert (again["sequence"], again["kind"]) == (question["sequence"], "uncertain")
            assert [(s["start"], s["end"]) for s in again["spans"]] == [first, *rest]
            assert again["said"]["spans"][0] == {
                "start": first[0],
                "end": first[1],
                "label": "QTY",
                "everywhere": False,
            }
            if not turn:
                session.close()
                session = Session(Project.open(tmp_path / "p.crfkit-project"), patient=True, n_jobs=1)
        session.redo("ann")
        assert session.question("ann")["sequence"] != question["sequence"]
        session.undo("ann")
        session.answer("ann", answer(session.question("ann"), whole=False, skip=True))
        session.undo("ann")
        skipped = session.question("ann")
        assert [(s["start"], s["end"]) for s in skipped["spans"]] == [first, *rest]
        assert skipped["said"]["spans"] == []
        session.close()

    def test_the_curve_goes_back_with_undo(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:60], random_share=0.0)
        list(play(in_process(session, "ann"), Person(Y), 8))
        assert [p[0] for p in session.panel("ann")["entropy"]["curve"]][-1] == 8
        for _ in range(2):
            session.undo("ann")
        assert [p[0] for p in session.panel("ann")["entropy"]["curve"]][-1] == 6
        session.redo("ann")
        panel = session.panel("ann")
        assert [p[0] for p in panel["entropy"]["curve"]][-1] == 7 == panel["questions"]
        labelled, left = panel["labelled"], panel["remaining"]
        assert labelled["sentences"] + left["sentences"] == 60
        assert labelled["sentences"] + labelled["partial"] == 7
        session.close()
        again = Session(Project.open(tmp_path / "p.crfkit-project"), patient=True, n_jobs=1)
        assert [p[0] for p in again.panel("ann")["entropy"]["curve"]][-1] == 7
        again.close()

    def test_an_undone_random_question_stays_one(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:60], random_share=1.0)
        list(play(in_process(session, "ann"), Person(Y), 6))
        question = session.question("ann")
        assert question["kind"] == "random"
        session.answer("ann", answer(question, (0, 1, "QTY")))
        assert session.undo("ann")["question"]["kind"] == "random"
        session.answer("ann", answer(session.question("ann"), (0, 1, "QTY")))
        assert session.project.said()[-1].payload["kind"] == "random"
        session.close()

    def test_a_draft_is_kept_and_not_learned(self, session: Session) -> None:
        question = session.question("ann")
        draft = {"key": "draft-key-1", "question": question["id"], "sequence": question["sequence"]}
        draft |= {"spans": [{"start": 0, "end": 1, "label": "QTY"}], "judged": [[0, 1]]}
        number = session.draft("ann", draft)["event"]
        assert session.draft("ann", draft)["event"] == number == len(session.project.store.events)
        assert not session.project.said()
        assert not session.pool.known
        assert session.question("ann")["said"]["spans"][0]["label"] == "QTY"
        session.close()
        again = Session(Project.open(session.project.path), patient=True, n_jobs=1)
        shown = again.question("ann")
        assert (shown["sequence"], shown["kind"]) == (question["sequence"], question["kind"])
        assert shown["said"] == {
            "spans": [{"start": 0, "end": 1, "label": "QTY", "everywhere": False}],
            "judged": [[0, 1]],
            "whole": False,
        }
        again.answer("ann", answer({**shown, "id": "from before"}, (0, 1, "QTY")))
        assert again.project.said()[0].payload["kind"] == question["kind"]  # the draft knows
        assert again.question("ann")["said"] is None
        with pytest.raises(AnnotateError, match="no longer open"):
            again.draft("ann", {**draft, "key": "draft-key-2", "question": shown["id"]})
        again.close()

    def test_partial_answers_leave_the_rest_open(self, session: Session) -> None:
        question = session.question("ann")
        session.answer("ann", answer(question, (0, 1, "QTY"), whole=False, judged=[[0, 1]]))
        known = session.pool.known[question["sequence"]]
        assert (known.sum(axis=1) == 1).tolist() == [True] + [False] * (len(known) - 1)

    def test_every_occurrence(self, session: Session) -> None:
        session.pool.asked = 5
        i = next(i for i, row in enumerate(X[:60]) if "cup" in row)
        t = X[i].index("cup")
        others = [k for k, row in enumerate(X[:60]) if "cup" in row and k != i]
        said = answer({"id": "", "sequence": i}, (t, t + 1, "UNIT"), whole=False, judged=[])
        said["spans"][0]["everywhere"] = True
        session.answer("ann", said)
        for k in others:
            known = session.pool.known[k]
            assert session.pool.scheme.labels[int(known[X[k].index("cup")].argmax())] == "B-UNIT"
        session.undo("ann")
        assert not session.pool.known

    def test_of_tokens_needs_labels(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:20], ["NOUN", "VERB"], task="tokens")
        question = session.question("ann")
        for said in (
            answer(question),
            answer(question, (0, 1, "NOUN")),
            answer(question, whole=False, judged=[[0, 1]]),
            answer(question, (0, 1, None), whole=False),
        ):
            with pytest.raises(AnnotateError, match="needs a label; token"):
                session.answer("ann", said)
        with pytest.raises(AnnotateError, match="needs a label; token 1"):
            session.edit("ann", 0, [{"start": 0, "end": 1, "label": "NOUN"}], "edit-key-1")
        session.answer("ann", answer(question, (1, 2, "NOUN"), whole=False, judged=[[1, 2]]))
        session.close()

    def test_what_is_settled_is_final_for_questions(self, session: Session) -> None:
        session.add_annotator("ann")
        question = session.question("ben")
        i = question["sequence"]
        session.settle("ann", i, [{"start": 0, "end": 1, "label": "QTY"}], "settle-key")
        with pytest.raises(AnnotateError, match="settled") as e:
            session.answer("ben", answer(question, (0, 1, "UNIT")))
        assert e.value.status == 409
        assert session.question("ben")["sequence"] != i
        session.edit("ben", i, [{"start": 0, "end": 1, "label": "NOTE"}], "edit-key-1")  # a later edit is no answer
        assert session.sequence("ben", i)["spans"][0]["label"] == "NOTE"


class TestLabels:
    @pytest.mark.parametrize("name", ["a|b=c", "?", "_", "none", "O"])
    def test_names_that_files_cannot_hold(self, session: Session, name: str) -> None:
        with pytest.raises(AnnotateError, match="label"):
            session.change_labels("ann", {"uuid": "uuid-0001", "add": {"name": name}})

    @pytest.mark.parametrize("key", list("0=./?"))
    def test_keys_of_the_page_are_refused(self, session: Session, key: str) -> None:
        with pytest.raises(AnnotateError, match="cannot be a label's key"):
            session.change_labels("ann", {"uuid": "uuid-0001", "key": {"name": "QTY", "key": key}})

    def test_names_of_tokens_may_hold_bars(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:10], ["Case=Nom|Number=Sing", "none"], task="tokens")
        assert [label["name"] for label in session.state("ann")["labels"]] == ["Case=Nom|Number=Sing", "none"]
        session.close()

    def test_old_names_are_understood(self, session: Session) -> None:
        """A page that was opened before a label was renamed or merged loses no answer."""
        question = session.question("ann")
        session.change_labels("ben", {"rename": {"from": "QTY", "to": "AMOUNT"}})
        session.change_labels("ben", {"merge": {"from": "UNIT", "to": "NOTE"}})
        session.change_labels("ben", {"add": {"name": "UNIT"}})
        session.change_labels("ben", {"merge": {"from": "UNIT", "to": "STATE"}})
        shown = session.question("ann")
        assert shown["id"] == question["id"]
        names = {choice["label"] for span in shown["spans"] for choice in span["choices"]}
        assert {"QTY", "UNIT"}.isdisjoint(names)
        assert "AMOUNT" in names
        draft = {"key": "draft-key-1", "question": question["id"], "sequence": question["sequence"]}
        session.draft("ann", {**draft, "spans": [{"start": 0, "end": 1, "label": "QTY"}]})
        assert session.question("ann")["said"]["spans"][0]["label"] == "AMOUNT"
        session.answer("ann", answer(question, (0, 1, "QTY"), (1, 2, "UNIT")))
        spans = session.sequence("ann", question["sequence"])["spans"]
        assert [s["label"] for s in spans[:2]] == ["AMOUNT", "STATE"]
        session.edit("ann", 5, [{"start": 0, "end": 1, "label": "QTY"}], "edit-key-5")
        assert session.sequence("ann", 5)["spans"][0]["label"] == "AMOUNT"
        assert session.browse("ann", label="QTY") == session.browse("ann", label="AMOUNT")

    def test_in_the_middle(self, session: Session) -> None:
        question = session.question("ann")
        session.answer("ann", answer(question, (0, 1, "QTY"), (1, 2, "UNIT")))
        session.change_labels("ann", {"add": {"name": "NEW"}, "uuid": "uuid-0001"})
        state = session.change_labels("ann", {"add": {"name": "NEW"}, "uuid": "uuid-0001"})
        assert [label["name"] for label in state["labels"]].count("NEW") == 1
        session.change_labels("ann", {"rename": {"from": "QTY", "to": "AMOUNT"}})
        assert "B-AMOUNT" in session.pool.scheme.labels
        assert session.pool.estimator().predict([X[question["sequence"]]])[0][0] == "B-AMOUNT"
        session.change_labels("ann", {"merge": {"from": "UNIT", "to": "NEW"}})
        row = session.sequence("ann", question["sequence"])
        assert [s["label"] for s in row["spans"]][:2] == ["AMOUNT", "NEW"]
        following = session.question("ann")
        assert session.answer("ann", answer(following, (0, 1, "AMOUNT")))["panel"]["questions"] == 2

    def test_from_no_label(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:20], [])
        question = session.question("ann")
        assert question["whole"]
        session.change_labels("ann", {"add": {"name": "QTY"}})
        reply = session.answer("ann", answer(session.question("ann"), (0, 1, "QTY")))
        assert reply["panel"]["labels"] == [{"name": "QTY", "count": 1}]
        session.close()


class TestViews:
    def test_browse(self, played: Session) -> None:
        found = played.browse("ann", search="CUP")
        assert found["total"] == sum("cup" in " ".join(row).lower() for row in X)
        labelled = {e.payload["sequence"] for e in played.project.said()}
        assert played.browse("ann", by="ann")["total"] == len(labelled)
        total = sum(played.browse("ann", status=s)["total"] for s in ("labelled", "partial", "open"))
        assert total == len(X)
        total = sum(played.browse("ann", confidence=c)["total"] for c in ("low", "middle", "high"))
        assert total == len(X)
        for row in played.browse("ann", label="UNIT", page=1)["rows"]:
            assert any(s["label"] == "UNIT" for s in row["spans"])
        with pytest.raises(AnnotateError, match="confidence"):
            played.browse("ann", confidence="what")

    def test_pages(self, played: Session) -> None:
        first = played.browse("ann")
        seen = [row["sequence"] for p in range(first["pages"]) for row in played.browse("ann", page=p)["rows"]]
        assert seen == list(range(len(X)))
        assert played.browse("ann", page=10**6)["page"] == first["pages"] - 1

    def test_a_sentence(self, played: Session) -> None:
        event = played.project.said()[0]
        row = played.sequence("ann", event.payload["sequence"])
        assert row["status"] == "labelled"
        assert row["answers"][0]["annotator"] == "ann"
        assert len(row["choices"]) == len(row["tokens"])
        assert all(abs(sum(c["p"] for c in choice) - 1) < 0.01 for choice in row["choices"])

    def test_review_finds_a_mistake(self, tmp_path: Path) -> None:
        session = opened(tmp_path)
        for _ in play(in_process(session, "ann"), Person(Y), 40):
            pass
        i = next(i for i in range(len(X)) if i not in session.pool.known and Y[i][:2] == ["B-QTY", "B-UNIT"])
        wrong = [{"start": 0, "end": 1, "label": "NOTE"}, {"start": 1, "end": 2, "label": "UNIT"}]
        session.edit("ann", i, wrong, "edit-key-1", judged=[[0, 2]])
        rows = session.review("ann")["rows"]
        assert i in [row["sequence"] for row in rows]
        doubt = next(row for row in rows if row["sequence"] == i)["doubts"][0]
        (model,) = doubt["model"]
        assert (doubt["said"], model["label"], model["start"], model["end"]) == ("NOTE", "QTY", 0, 1)
        assert doubt["p_said"] < 0.3
        session.edit("ann", i, wrong, "edit-key-2", judged=[[0, 2]], confirm=True)
        assert i not in [row["sequence"] for row in session.review("ann")["rows"]]
        session.close()

    def test_review_finds_wrong_borders(self, tmp_path: Path) -> None:
        session = opened(tmp_path)
        for _ in play(in_process(session, "ann"), Person(Y), 40):
            pass
        start = ["B-QTY", "B-UNIT", "B-NAME", "I-NAME"]
        i = next(i for i in range(len(X)) if i not in session.pool.known and Y[i][:4] == start)
        short = [{"start": k, "end": k + 1, "label": start[k][2:]} for k in range(3)]
        session.edit("ann", i, short, "edit-key-1", judged=[[0, 4]])
        doubts = next(row for row in session.review("ann")["rows"] if row["sequence"] == i)["doubts"]
        doubt = next(d for d in doubts if d["start"] == 3)
        assert doubt["said"] is None
        model = doubt["model"][0]
        assert (model["start"], model["end"], model["label"]) == Person(Y).units(i)[2]
        session.close()

    def test_agree_and_settle(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:10])
        right = Person(Y)
        for i in range(4):
            spans = [{"start": a, "end": b, "label": x} for a, b, x in right.units(i)]
            session.edit("ann", i, spans, f"ann-key-{i}")
            session.edit("ben", i, spans[1:] if i == 2 else spans, f"ben-key-{i}")
        found = session.agree()
        assert (found["annotators"], found["sentences"], found["total"]) == (["ann", "ben"], 4, 1)
        tokens = sum(len(X[i]) for i in range(4))
        assert found["tokens"] == tokens
        assert found["token"]["agreement"] == pytest.approx(1 - 1 / tokens)
        assert 0.5 < found["token"]["kappa"] < 1
        assert found["span"]["agreement"] < 1
        row = found["rows"][0]
        assert (row["sequence"], row["differ"]) == (2, [[0, 1]])
        assert [len(v["spans"]) for v in row["versions"]] == [len(right.units(2)), len(right.units(2)) - 1]
        session.settle("ann", 2, row["versions"][0]["spans"], "settle-key")
        assert session.agree()["total"] == 0
        assert session.pool.scheme.labels[int(session.pool.known[2][0].argmax())] == Y[2][0]
        session.close()

    def test_overlap_is_asked_whole_and_shows_nothing(self, tmp_path: Path) -> None:
        session = opened(tmp_path, X[:40], random_share=0.0)
        for _ in play(in_process(session, "ann"), Person(Y), 8):
            pass
        session.settings("ann", {"overlap": 1.0})
        question = session.question("ben")
        assert question["kind"] == "agree"
        assert question["whole"]
        assert question["known_spans"] == []
        assert question["sequence"] in {e.payload["sequence"] for e in session.project.said("ann")}
        session.close()

    def test_model_and_explain(self, played: Session) -> None:
        played.state_accuracy()
        model = json.loads(json.dumps(played.model(), allow_nan=False))
        assert model["trained"]
        assert {row["label"] for row in model["scores"]["rows"]} <= set(KINDS)
        assert [f["label"] for f in model["features"]] == [*KINDS, None]
        assert all(f["positive"][0][1] > 0 for f in model["features"] if f["positive"])
        why = played.explain(3, 1)
        assert why["p"] > 0.5
        assert why["terms"]
        with pytest.raises(AnnotateError):
            played.explain(3, 99)

    def test_export(self, played: Session, tmp_path: Path) -> None:
        lines = played.export("columns", "labels+guesses").data.decode().split("\n")
        assert sum("\t" in line for line in lines) == sum(map(len, X))
        same = played.export("same", "labels").data.decode()
        untouched = next(i for i in range(len(X)) if i not in played.pool.known)
        assert "\n".join(f"{word} ?" for word in X[untouched]) in same
        path = tmp_path / "m.crfkit"
        path.write_bytes(played.model_bytes())
        assert crfkit.load(path).predict(X[:9]) == played.pool.estimator().predict(X[:9])
        assert {f["name"] for f in played.state("ann")["formats"]} == {f["name"] for f in formats.LIST}

    def test_no_model_yet(self, session: Session) -> None:
        assert session.model()["trained"] is False
        for call in (session.model_bytes, lambda: session.explain(0, 0)):
            with pytest.raises(AnnotateError, match="no model yet"):
                call()


class TestTokens:
    def test_parts_of_speech(self, tmp_path: Path) -> None:
        rows = [row[:4] for row in X[:50]]
        gold = [["num" if w[0].isdigit() else "long" if len(w) > 5 else "short" for w in row] for row in rows]
        session = opened(tmp_path, rows, ["num", "long", "short"], task="tokens")
        steps = list(play(in_process(session, "ann"), Person(gold, spans=False), 25))
        found = session.pool.estimator().predict(rows)
        assert evaluate(gold, found).accuracy > 0.85
        assert steps[-1].panel["accuracy"]["f1"] is None
        assert session.model()["confusion"]["labels"] if session.scored() else True
        question = session.question("ann")
        assert all(s["end"] - s["start"] == 1 for s in question["spans"])
        with pytest.raises(AnnotateError, match="one token"):
            session.answer("ann", answer(question, (0, 2, "num")))
        session.close()


class TestThreads:
    def test_many_annotators_at_once(self, tmp_path: Path) -> None:
        project = Project.create(tmp_path / "p.crfkit-project", documents(X), labels=KINDS)
        session = Session(project, n_jobs=1)
        failed: list[BaseException] = []

        def work(name: str) -> None:
            try:
                for _ in play(in_process(session, name), Person(Y), 10):
                    session.panel(name)
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(f"a{k}",)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failed
        assert len(session.project.said()) == 80
        assert session.learner.idle(60)
        assert session.learner.done == len(session.project.store.events)
        assert session._behind() == 0
        asked = [e.payload["sequence"] for e in session.project.said() if e.payload["kind"] != "agree"]
        assert len(asked) == len(set(asked))
        session.close()

    def test_a_slow_training_blocks_nobody(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        project = Project.create(tmp_path / "p.crfkit-project", documents(X), labels=KINDS)
        session = Session(project, n_jobs=1)
        gate, begun = threading.Event(), threading.Event()
        train = session.pool.train

        def slow(problem: Any, w: Any, seconds: Any = None, max_iter: Any = None, stop: Any = None) -> Any:
            if seconds is None:  # the full training
                begun.set()
                gate.wait(60)
            return train(problem, w, seconds, max_iter, stop)

        monkeypatch.setattr(session.pool, "train", slow)
        monkeypatch.setattr(session.learner, "learn_seconds", 0.0)  # never done at once
        steps = play(in_process(session, "ann"), Person(Y), 6)
        next(steps)
        assert begun.wait(60)
        while session.learner.status != "training":
            time.sleep(0.01)
        for step in steps:
            assert step.panel["learning"] in ("training", "learning")
        assert len(session.project.said()) == 6
        gate.set()
        assert session.learner.idle(60)
        session.close()

    def test_a_learner_that_fails_does_not_stop_the_questions(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = Session(Project.create(tmp_path / "p.crfkit-project", documents(X[:30]), labels=KINDS), n_jobs=1)
        session.wait = 0.05
        learn = session.pool.learn
        calls = []

        def failing(*args: Any, **more: Any) -> bool:
            calls.append(1)
            if len(calls) < 3:
                raise RuntimeError("no")
            return learn(*args, **more)

        monkeypatch.setattr(session.pool, "learn", failing)
        assert len(list(play(in_process(session, "ann"), Person(Y), 4))) == 4
        assert session.learner.idle(60)
        assert len(session.pool.known) == 4
        session.close()


class TestEstimates:
    def test_too_few(self) -> None:
        one = Scored([], [], 10, 1, 1.0, 1, 1.0, 1, 1.0)
        assert estimates([one] * (LEAST - 1), Totals(100, 50, 0, 0, 0, 5, 5, 5, 1000, 100), True) == (None, None)

    def test_a_model_that_is_right_about_itself(self) -> None:
        rng = np.random.default_rng(0)
        covered = 0
        for _ in range(300):
            wrong, false, missed = rng.poisson(1.0, (3, 40))
            rows = [Scored([], [], 10, a, 1.0, b, 1.0, c, 1.0) for a, b, c in zip(wrong, false, missed, strict=True)]
            token, f1 = estimates(rows, Totals(1000, 500, 0, 0, 0, 100, 100, 100, 1000, 1000), True)
            assert token is not None
            assert f1 is not None
            covered += (token.low <= 0.9 <= token.high) + (f1.low <= 0.8 <= f1.high)
        assert 0.86 <= covered / 600 <= 0.95

    def test_the_rest_of_a_small_pool_varies_too(self) -> None:
        rng = np.random.default_rng(1)
        covered = 0
        for _ in range(400):
            rows = [Scored([], [], 10, a, 1.0, a, 1.0, a, 1.0) for a in rng.poisson(1.0, 40)]
            token, _ = estimates(rows, Totals(600, 300, 0, 0, 0, 60, 60, 60, 60, 600), True)
            assert token is not None
            covered += token.low <= 1 - rng.poisson(1.0, 60).sum() / 600 <= token.high
        assert 0.86 <= covered / 400 <= 0.95

    def test_one_that_is_not(self) -> None:
        rows = [Scored([], [], 10, 2, 1.0, 2, 1.0, 2, 1.0)] * 50
        token, _ = estimates(rows, Totals(1000, 500, 0, 0, 0, 100, 100, 100, 1000, 1000), True)
        assert token is not None
        assert token.value == pytest.approx(0.8, abs=0.01)

    def test_what_is_left_is_what_the_model_is_sure_of(self) -> None:
        # it makes 0.4 mistakes more than it expects where it is sure, and fewer elsewhere
        rng = np.random.default_rng(2)
        covered = 0
        for _ in range(300):
            expected = rng.choice([0.2, 3.0], 60)
            wrong = rng.poisson(0.5 + 0.5 * expected)
            rows = [Scored([], [], 10, a, e, a, e, a, e) for a, e in zip(wrong, expected, strict=True)]
            token, _ = estimates(rows, Totals(5000, 2500, 0, 0, 0, 100, 100, 100, 500, 5000), True)
            assert token is not None
            covered += token.low <= 1 - 0.06 <= token.high
        assert 0.86 <= covered / 300 <= 0.96


def test_agreement_by_hand() -> None:
    a = ["B-X", "I-X", "O", "B-Y", "O"]
    b = ["B-X", "O", "O", "B-Y", "O"]
    found = agreement([(a, b)])
    assert (found.tokens, found.agreement, found.f1) == (5, 0.8, 0.5)
    chance = (1 * 1 + 1 * 0 + 2 * 3 + 1 * 1) / 25
    assert found.kappa == pytest.approx((0.8 - chance) / (1 - chance))
    assert kappa([]) is None
    assert kappa([("a", "a")]) is None
    assert kappa([("a", "b"), ("b", "a")]) == -1.0


def test_strategies_of_comparison(tmp_path: Path) -> None:
    session = opened(tmp_path, X[:40], strategy=Strategy(whole=True, random=True), random_share=0.0)
    for step in play(in_process(session, "ann"), Person(Y), 5):
        assert step.question["whole"]
        assert step.question["kind"] == "random"
    session.close()
