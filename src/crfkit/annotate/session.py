"""A session: a project, a pool that asks, and a learner; all that the page and scripts can do."""

from __future__ import annotations

import itertools
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from crfkit import __version__
from crfkit.active.pool import Pool
from crfkit.active.questions import Question, Strategy
from crfkit.active.scheme import Allowed
from crfkit.active.time_model import TimeModel
from crfkit.annotate import formats
from crfkit.annotate.answers import check_setting, checked_answer, checked_draft, checked_spans, require_labels
from crfkit.annotate.answers import ranges as ranges_of
from crfkit.annotate.curves import Curves
from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.estimates import Referee, Scored, estimates
from crfkit.annotate.learner import Learner
from crfkit.annotate.project import SAID, Project
from crfkit.annotate.views import Views, ranges
from crfkit.estimators.crf import CRF

_WAIT = 0.6  # seconds that an answer waits for the model at most
_SHARED_WAIT = 0.1  # the same where others answer too, whom the model keeps up with together
_AWAY = 30.0  # seconds without an answer after which somebody is not counted among these
_TIMES = 500  # answers to which the time model is fitted, the last ones
_PACE = 50  # answers whose seconds the panel shows, the last ones

Json = dict[str, Any]


class Session:
    """Asks questions about a project's sentences and learns from the answers; any thread may call it.

    Parameters
    ----------
    project : Project
    crf : CRF, optional
        Features and penalties of the model.
    time_model : TimeModel, optional
        Where the annotators' own times start from.
    random_share : float
        Fraction of the questions that are drawn at random, to measure how good the model is.
    show_random : bool
        Whether such questions say that they are.
    n_jobs : int
    seed : int
    strategy : Strategy, optional
    patient : bool
        Take all the time that a step of learning needs, so that the same answers always give the same questions; for
        simulations.
    """

    def __init__(
        self,
        project: Project,
        *,
        crf: CRF | None = None,
        time_model: TimeModel | None = None,
        random_share: float = 0.1,
        show_random: bool = True,
        n_jobs: int | None = -1,
        seed: int = 0,
        strategy: Strategy | None = None,
        patient: bool = False,
    ) -> None:
        self.project = project
        self.lock = threading.RLock()
        self.seed = seed
        self.defaults: Json = {"random_share": random_share, "show_random": show_random, "overlap": 0.05, "context": 1}
        self.time_default = time_model or TimeModel()
        self._open: dict[str, Json] = {}  # the question that is open for each annotator
        self._stale: set[str] = set()  # for whom the labels in it have changed
        self._asked: dict[str, tuple[str, Question]] = {}  # by id, with whom it was asked
        self._closed: set[tuple[str, int]] = set()  # ids and sequences of questions that were answered
        self._next_id = itertools.count()
        self._answered: dict[str, float] = {}  # when each annotator answered last
        self._learned = 0  # events that the pool was told
        X = [_rows(d) for d in project.documents]
        if not X:
            raise AnnotateError("the project has no sentences", 409)
        self.pool = Pool(
            X,
            project.names,
            spans=project.task == "spans",
            crf=crf,
            time_model=self.time_default,
            strategy=strategy,
            random_state=seed,
            n_jobs=n_jobs,
        )
        self.views = Views(self)
        self._tally: dict[int, tuple[int, Counter[str]]] = {}  # of each sequence: tokens known, and labels
        self._tokens, self._counts = 0, Counter[str]()
        self._full: set[int] = set()  # sequences of which all is known
        self.curves = Curves()
        self._stated_at = -10  # answers when it was stated
        self._stating: threading.Thread | None = None
        self.referee = Referee(self.pool, self.lock, seed)
        self._stated: Json = {"token": None, "f1": None, "questions": 0}
        self._tell(project.labelled())
        self._count_answers()
        self._learned = len(project.store.events)
        self._fit_times()
        self.curves.restore([e.payload.get("stood", {}) for e in project.said()])
        if self.pool.known:
            self.pool.learn(2.0, None)
        self.pool.rescore(1.0)
        self._after()
        self.wait = 3600.0 if patient else _WAIT
        self.learner = Learner(self.pool, self.lock, self._apply, self._after, self._spare, patient)
        self.learner.done = self._learned
        if self._drawn() and not patient:
            self._spare()  # accuracy was stated when the project was left

    # learning

    def _tell(self, sequences: Sequence[int]) -> None:
        """Tells the pool what is known of some sequences now."""
        for i in sequences:
            known = self.project.known(i)
            self.pool.know(i, known)
            tokens, counts = self.project.counts(known)
            before, gone = self._tally.get(i, (0, Counter()))
            self._tokens += tokens - before
            self._counts.update(counts)
            self._counts.subtract(gone)
            self._tally[i] = tokens, counts
            done = known is not None and bool((known.sum(axis=1) == 1).all())
            (self._full.add if done else self._full.discard)(i)
            asked = any(e.payload["sequence"] == i for e in self.project.events_of(i))
            self.pool.closed[i] = done or asked

    def _apply(self) -> int:
        """Tells the pool what has happened since; called by the learner, with the lock."""
        events = self.project.store.events[self._learned :]
        touched: set[int] = set()
        for event in events:
            if event.kind in SAID:
                touched.update(self.project.touched(event.number))
            elif event.kind in ("undo", "redo"):
                touched.update(self.project.touched(event.payload["of"]))
            elif event.kind == "labels" and not {"add", "rename", "merge"}.isdisjoint(event.payload):
                self._relabel(event.payload)
                touched.update(self.project.labelled())
        self._tell(sorted(touched))
        if any(event.kind in ("undo", "redo") for event in events):
            self._count_answers()
        if any(event.kind == "answer" for event in events):
            self._fit_times()
        self._learned += len(events)
        return self._learned

    def _count_answers(self) -> None:
        """Tells the pool how many answers hold; edits were not asked for."""
        self.pool.asked = sum(e.kind == "answer" for e in self.project.said())

    def _relabel(self, change: Json) -> None:
        old = self.pool.scheme.names
        renamed = {}
        if "rename" in change:
            renamed = {change["rename"]["to"]: change["rename"]["from"]}
        names = self.project.names
        self.pool.relabel(names, lambda name: renamed.get(name, name) if renamed.get(name, name) in old else None)

    def _after(self) -> None:
        """After a step of the learner, with the lock."""
        self.curves.add("entropy", self.pool.asked, round(self.pool.entropy, 3))

    def _spare(self) -> None:
        """When nobody waits: states the accuracy, if it may have changed by much, in a thread."""
        with self.lock:
            old = len(self._drawn()) == self._stated["questions"] and self.pool.asked < self._stated_at + 10
            if not old and (self._stating is None or not self._stating.is_alive()):
                self._stating = threading.Thread(target=self.state_accuracy, args=(self.learner.yields,), daemon=True)
                self._stating.start()

    def _fit_times(self) -> None:
        """Fits the time model to the answers' times, unless its settings say otherwise."""
        given = self.project.settings.get("time", {})
        base = replace(
            self.time_default, **{k: v for k, v in given.items() if k in ("sentence", "token", "correction")}
        )
        times = [
            (p["seconds"], p["tokens"], p["corrections"])
            for p in (e.payload for e in self.project.said()[-_TIMES:] if e.kind == "answer")
            if p.get("seconds") and p.get("tokens")
        ]
        self._fitted = bool(times) and bool(given.get("fitted", True))
        self.pool.time_model = base.fitted(times) if self._fitted else base

    # accuracy

    def scored(self) -> list[Scored]:
        """The random questions that were answered, as a model got them that was not trained on them."""
        return self.referee.scored

    def _drawn(self) -> list[int]:
        """The sentences of random questions that were answered whole."""
        events = [e.payload for e in self.project.said() if e.kind == "answer" and e.payload["kind"] == "random"]
        return list(dict.fromkeys(p["sequence"] for p in events if p["whole"]))

    def state_accuracy(self, stop: Callable[[], bool] | None = None) -> Json:
        """States accuracy and F1 of the current model on the whole pool; takes a few trainings."""
        with self.lock:
            drawn, asked = self._drawn(), self.pool.asked
        found = self.referee.score(drawn, stop) if drawn else None
        with self.lock:
            if drawn and found is None:
                return self._stated  # stopped, or labels have changed
            spans = self.pool.scheme.spans
            token, f1 = (None, None) if found is None else estimates(self.scored(), found[0], spans)
            both = {"token": token, "f1": f1}
            shown = {
                k: None if v is None else {n: round(x, 4) for n, x in v._asdict().items()} for k, v in both.items()
            }
            self._stated, self._stated_at = {**shown, "questions": len(drawn)}, asked
            main = f1 or token
            if main is not None:
                self.curves.add("accuracy", asked, *(round(x, 4) for x in main))
            return self._stated

    # questions

    def question(self, annotator: str, *, sequence: int | None = None) -> Json:
        """The question that is open for an annotator, else the next one; or that of a sequence."""
        self._check_annotator(annotator)
        with self.lock:
            if sequence is not None:
                self._require_sequence(sequence)
                return self._pose(annotator, self.pool.question(sequence, "chosen", whole=True))
            if annotator in self._stale and self.pool.scheme.names == tuple(self.project.names):
                self._stale.discard(annotator)
                self._name_again(annotator)
            if annotator in self._open:
                return self._open[annotator]
            begun = self.project.begun(annotator)
            return self._next(annotator) if begun is None else self._again(annotator, begun.payload)

    def _name_again(self, annotator: str) -> None:
        """Poses the open question again, with the labels as they are called now."""
        shown = self._open.pop(annotator, None)
        _, q = self._asked.get("" if shown is None else shown["id"], (None, None))
        if shown is not None and q is not None:
            self._again(annotator, {"sequence": q.sequence, **_what(q)}, shown["id"])

    def _again(self, annotator: str, about: Json, identity: str | None = None) -> Json:
        """A question once more: that of a draft, of an undone answer, or one that is open while labels change."""
        i, kind = about["sequence"], about.get("kind", "chosen")
        asked = [(a, b) for a, b in about.get("asked", ())]
        q = self.pool.question(i, kind, whole=kind != "uncertain", given=kind != "agree", asked=asked)
        return self._pose(annotator, q, identity)

    def _next(self, annotator: str) -> Json:
        """Chooses the annotator's next question."""
        others = {q["sequence"] for who, q in self._open.items() if who != annotator and "sequence" in q}
        mine = self.project.standing(annotator)
        turn, not_again = len(mine.events), others | mine.sequences
        found = None
        warm = self.pool.version > 0 and self.pool.asked >= self.pool.cover
        if warm and self._turn(annotator, turn, self._setting("random_share"), 0):
            found = self.pool.ask(not_again, kind="random")
        if found is None and warm and self._turn(annotator, turn, self._setting("overlap"), 1):
            found = self._overlap(annotator, mine.sequences)
        if found is None:
            found = self.pool.ask(not_again, quick=not self._alone(annotator))
        if found is None:
            done = {"id": f"done-{next(self._next_id)}", "kind": "done"}
            self._open[annotator] = done
            return done
        return self._pose(annotator, found)

    def _turn(self, annotator: str, turn: int, share: float, salt: int) -> bool:
        """Whether this question is one of a share, one of each block of them, at a place that is drawn."""
        if share < 1e-9:  # never; a block must have a size
            return False
        size = max(1, round(1 / share))
        seed = [self.seed, zlib.crc32(annotator.encode()), turn // size, salt]
        return turn % size == int(np.random.default_rng(seed).integers(size))

    def _overlap(self, annotator: str, mine: set[int]) -> Question | None:
        """A sentence that somebody else has answered."""
        people = [self.project.standing(who) for who in self.project.annotators if who != annotator]
        others = sorted(set().union(*(said.answered for said in people)) - mine)
        others = [i for i in others if not self.project.is_settled(i)]
        if not others:
            return None
        rng = np.random.default_rng([self.seed, zlib.crc32(annotator.encode()), len(mine)])
        return self.pool.question(
            int(rng.choice(others)), "agree", whole=True, given=False
        )  # what others said is hidden

    def _pose(self, annotator: str, q: Question, identity: str | None = None) -> Json:
        """A question as the page gets it."""
        document = self.project.documents[q.sequence]
        identity = identity or f"{self._learned}-{next(self._next_id)}-{zlib.crc32(annotator.encode()):08x}"
        known = None if q.kind == "agree" else self.pool.known.get(q.sequence)
        hidden = q.kind == "random" and not self._setting("show_random")
        whole = q.kind in ("random", "cover", "agree") or self.pool.strategy.whole
        out = {
            "id": identity,
            "kind": "uncertain" if hidden else q.kind,
            "sequence": q.sequence,
            "text": document.text,
            "tokens": [list(t) for t in document.tokens],
            "columns": document.columns,
            "known": self.known_labels(known, len(document.tokens)),
            "known_spans": self._known_spans(known),
            **self.context(q.sequence),
            "whole": whole,
            "spans": [self._span(q.sequence, span) for span in q.spans],
            "guesses": self._chunks(q.guess),
            "said": self._said(annotator, q.sequence),
            "freshness": {"answers_behind": self._behind(), "fresh": round(self.pool.fresh, 4)},
            "expected": {"seconds": round(q.seconds, 2), "gain": round(q.gain, 4)},
        }
        self._open[annotator] = out
        self._asked = {k: v for k, v in self._asked.items() if v[0] != annotator}
        self._asked[identity] = (annotator, q)
        return out

    def _said(self, annotator: str, i: int) -> Json | None:
        """What an annotator has said of a sentence that they are to answer: a draft, or an answer that was undone."""
        begun = self.project.begun(annotator, i)
        if begun is None:
            return None
        p = begun.payload
        spans = [{**s, "label": self.project.resolve(s["label"], begun.number)} for s in p["spans"]]
        return {"spans": spans, "judged": p.get("judged", []), "whole": bool(p.get("whole"))}

    def _span(self, sequence: int, span: Any) -> Json:
        choices = [{"label": c.label, "p": round(c.p, 4)} for c in span.choices]
        return {
            "start": span.start,
            "end": span.end,
            "guess": choices[0] if choices else {"label": None, "p": 1.0},
            "runner_up": choices[1] if len(choices) > 1 else None,
            "choices": choices,
            "occurrences": self.project.occurrences(sequence, span.start, span.end),
        }

    def _behind(self) -> int:
        return sum(e.kind == "answer" for e in self.project.store.events[self._learned :])

    def context(self, i: int) -> Json:
        """The sentences before and after one."""
        many, documents = int(self._setting("context")), self.project.documents
        before, after = range(max(0, i - many), i), range(i + 1, min(len(documents), i + 1 + many))
        return {"before": [documents[k].text for k in before], "after": [documents[k].text for k in after]}

    def rows(self, i: int) -> list[Any]:
        """The tokens of a sentence, as the model takes them."""
        return _rows(self.project.documents[i])

    def known_labels(self, known: Allowed | None, length: int) -> list[str | None]:
        """The model's label of each token that is known for certain."""
        if known is None:
            return [None] * length
        labels = self.pool.scheme.labels
        return [labels[int(row.argmax())] if row.sum() == 1 else None for row in known]

    def _known_spans(self, known: Allowed | None) -> list[Json]:
        """What is known of a sentence, as spans; label null for outside."""
        if known is None:
            return []
        single = known.sum(axis=1) == 1
        out = []
        for first, last in ranges(single):
            parts = self.pool.scheme.chunks(known[first:last].argmax(axis=1).tolist())
            out += [{"start": first + a, "end": first + b, "label": name} for a, b, name in parts]
        return out

    def _chunks(self, guess: Sequence[str]) -> list[Json]:
        scheme = self.pool.scheme
        path = [scheme.number[label] for label in guess]
        return [{"start": a, "end": b, "label": name} for a, b, name in scheme.chunks(path) if name is not None]

    # answers

    def answer(self, annotator: str, answer: Json) -> Json:
        """Takes an answer; on disk before the next question is chosen. The same key again changes nothing."""
        self._check_annotator(annotator)
        key = answer.get("key")
        if not isinstance(key, str) or not 8 <= len(key) <= 100:
            raise AnnotateError("'key' of an answer must be a string of 8 to 100 characters, new for every answer")
        with self.lock:
            number = self.project.store.find(key)
            if number is None:
                i = self._require_sequence(answer.get("sequence"))
                if self.project.is_settled(i):
                    raise AnnotateError(f"sentence {i + 1} has been settled meanwhile: its labels are final", 409)
                closed = answer.get("question", ""), i
                self._require_open(*closed)
                about = self._about(annotator, answer)
                stood = self.curves.stood(self._stated_at)
                payload = {**checked_answer(self.project, answer), **about, "stood": stood}
                number = self.project.append("answer", annotator, payload, key=key)
                self.pool.note(payload["sequence"], whole=True)  # nobody else is asked it meanwhile
                self._open.pop(annotator, None)
                if closed[0]:
                    self._closed.add(closed)
        return self._followed(annotator, number)

    def _followed(self, annotator: str, number: int) -> Json:
        """Waits for the model a little, and gives what comes next."""
        self._answered[annotator] = time.monotonic()
        self.learner.want(len(self.project.store.events))
        self.learner.wait(number, self.wait if self._alone(annotator) else min(self.wait, _SHARED_WAIT))
        with self.lock:
            following = {"next": self.question(annotator), "panel": self.panel(annotator)}
            return {"event": number, **following, **self._can(annotator)}

    def _alone(self, annotator: str) -> bool:
        """Whether nobody else answers, or all wait for the model."""
        now, others = time.monotonic(), [at for who, at in list(self._answered.items()) if who != annotator]
        return self.learner.patient or all(now - at > _AWAY for at in others)

    def _can(self, annotator: str) -> Json:
        able = {"undo": self.project.undoable, "redo": self.project.redoable}
        return {name: which(annotator) is not None for name, which in able.items()}

    def _require_open(self, question: str, i: int) -> None:
        """Raises if a question has been answered, as in another window; after an undo it comes back with another id."""
        if (question, i) in self._closed:
            raise AnnotateError(
                "this question has already been answered, perhaps in another window; that answer counts. To change "
                f"it, undo it, or edit sentence {i + 1} under Browse",
                409,
            )

    def _about(self, annotator: str, said: Json) -> Json:
        """What was asked: kind and spans of the question; one from before a restart is known by its draft."""
        _, question = self._asked.get(said.get("question", ""), (None, None))
        if question is not None and question.sequence == said["sequence"]:
            return _what(question)
        begun = self.project.begun(annotator, said["sequence"])
        known = {} if begun is None else begun.payload
        return {"kind": known.get("kind", "chosen"), "asked": known.get("asked", [])}

    def draft(self, annotator: str, said: Json) -> Json:
        """Keeps what was said of the open question so far, in place of an earlier draft; nothing is learned from it."""
        self._check_annotator(annotator)
        with self.lock:
            number = self.project.store.find(said["key"])
            if number is None:
                i = self._require_sequence(said.get("sequence"))
                self._require_open(said.get("question", ""), i)
                open_ = self._open.get(annotator)
                if open_ is not None and open_["id"] != said.get("question"):
                    raise AnnotateError("this question is no longer open", 409)
                payload = {**checked_draft(self.project, said), **self._about(annotator, said)}
                number = self.project.append("draft", annotator, payload, key=said["key"])
                if open_ is not None:
                    open_["said"] = self._said(annotator, i)
            return {"event": number}

    def undo(self, annotator: str, key: str | None = None) -> Json:
        """Takes back an annotator's last answer or edit."""
        return self._back(annotator, "undo", self.project.undoable, key)

    def redo(self, annotator: str, key: str | None = None) -> Json:
        """Says again what the last undo took back."""
        return self._back(annotator, "redo", self.project.redoable, key)

    def _back(self, annotator: str, kind: str, which: Callable[[str], int | None], key: str | None) -> Json:
        self._check_annotator(annotator)
        with self.lock:
            number = None if key is None else self.project.store.find(key)
            if number is None:
                of = which(annotator)
                if of is None:
                    raise AnnotateError(f"there is nothing to {kind}", 409)
                number = self.project.append(kind, annotator, {"of": of}, key=key)
                if self.project.store[of].kind == "answer":
                    self._open.pop(annotator, None)
            event = self.project.store[self.project.store[number].payload["of"]]
        self._learn(number)
        with self.lock:
            of_ = {"kind": event.kind, "sequence": event.payload["sequence"]}
            following = {"question": self.question(annotator), "panel": self.panel(annotator)}
            return {"event": number, "of": of_, **following, **self._can(annotator)}

    def _learn(self, number: int) -> None:
        """Waits for the model a little."""
        self.learner.want(number)
        self.learner.wait(number, self.wait)

    def edit(
        self, annotator: str, i: int, labels: list[Json], key: str, judged: Any = None, confirm: bool = False
    ) -> Json:
        """Labels a sentence, or those ranges of it that are judged; ``confirm`` keeps labels that the model doubts."""
        return self._revise("edit", annotator, i, labels, key, judged, confirm)

    def settle(self, annotator: str, i: int, labels: list[Json], key: str) -> Json:
        """Sets a sentence's final labels, whatever anybody said before."""
        return self._revise("settle", annotator, i, labels, key, None, False)

    def _revise(self, kind: str, annotator: str, i: int, labels: Any, key: Any, judged: Any, confirm: bool) -> Json:
        self._check_annotator(annotator)
        with self.lock:
            self._require_sequence(i)
            length = len(self.project.documents[i].tokens)
            parts = [] if judged is None else [list(r) for r in ranges_of(judged, length)]
            payload = {"sequence": i, "spans": checked_spans(self.project, labels, length), "judged": parts}
            payload |= {"whole": judged is None, "confirm": bool(confirm)}
            if kind == "edit":  # what is settled may be one person's answer to a part
                require_labels(self.project, payload, length)
            number = self.project.append(kind, annotator, payload, key=key)
            for who in list(self._open) if kind == "settle" else [annotator]:
                if self._open.get(who, {}).get("sequence") == i:
                    self._open.pop(who)
        self._learn(number)
        with self.lock:
            shown = {"sequence": self.views.sequence(i), "panel": self.panel(annotator)}
            return {"event": number, **shown, **self._can(annotator)}

    # views

    def browse(
        self,
        annotator: str,
        *,
        search: str = "",
        label: str | None = None,
        confidence: str | None = None,
        by: str | None = None,
        status: str | None = None,
        page: int = 0,
    ) -> Json:
        """Sentences that fit all filters, a page of them."""
        with self.lock:
            part, where = self.views.page(self.views.browse(search, label, confidence, by, status), page)
            return {"rows": [self.views.row(i) for i in part], **where}

    def sequence(self, annotator: str, i: int) -> Json:
        """One sentence: labels, marginals, who said what."""
        with self.lock:
            self._require_sequence(i)
            return self.views.sequence(i)

    def review(self, annotator: str, page: int = 0) -> Json:
        """Labels that the model finds unlikely, the most unlikely first."""
        doubts = self.views.doubts()
        with self.lock:
            part, where = self.views.page([d for d in doubts if d[1] in self.pool.known], page)
            return {"rows": [{**self.views.row(i), "doubts": found} for _, i, found in part], **where}

    def agree(self, page: int = 0) -> Json:
        """How far annotators agree, and the sentences on which they do not."""
        with self.lock:
            return self.views.agree(page)

    def model(self) -> Json:
        """The model: scores, confusion, heaviest features."""
        with self.lock:
            return self.views.model()

    def explain(self, i: int, token: int) -> Json:
        """Why a token has its label rather than the runner-up."""
        with self.lock:
            self._require_sequence(i)
            return self.views.explain(i, token)

    def export(self, format: str = "same", what: str = "labels") -> Any:
        """The labels as a file: name, media type and bytes."""
        with self.lock:
            return self.views.export(format, what)

    def model_bytes(self) -> bytes:
        """The model's file."""
        with self.lock:
            return self.views.model_bytes()

    def save_model(self, path: str | os.PathLike[str]) -> None:
        """Writes the model's file."""
        with self.lock:
            self.pool.estimator().save(path)

    # state

    def _setting(self, name: str) -> Any:
        return self.project.settings.get(name, self.defaults[name])

    def annotators(self) -> list[str]:
        """Who takes part."""
        with self.lock:
            return self.project.annotators

    def add_annotator(self, name: str, key: str | None = None) -> None:
        """Somebody takes part."""
        self._check_annotator(name)
        with self.lock:
            if name not in self.project.annotators:
                self.project.append("annotator", name, {}, key=key)

    def state(self, annotator: str) -> Json:
        """What the page shows around the questions."""
        self._check_annotator(annotator)
        with self.lock:
            counts = self._counts
            m = self.pool.time_model
            time = {"sentence": m.sentence, "token": m.token, "correction": m.correction, "fitted": self._fitted}
            settings = {name: self._setting(name) for name in self.defaults}
            return {
                "project": self.project.name,
                "project_id": self.project.identity,
                "task": self.project.task,
                "labels": [{**label.plain(), "count": counts[label.name]} for label in self.project.labels],
                "annotator": annotator,
                "annotators": self.project.annotators,
                "answered": sum(e.kind == "answer" for e in self.project.said(annotator)),
                "sentences": len(self.project.documents),
                "tokens": int(self.pool.offsets[-1]),
                "settings": {**settings, "time": time},
                "version": __version__,
                "formats": formats.LIST,
                "event": len(self.project.store.events),
                **self._can(annotator),
            }

    def panel(self, annotator: str) -> Json:
        """Where things stand."""
        with self.lock:
            known, tokens = self.pool.known, self._tokens
            said = self.project.standing()
            seconds = [e.payload["seconds"] for e in said.last(_PACE) if e.payload.get("seconds")]
            counts = self._counts
            total = int(self.pool.offsets[-1])
            stating = self._stating is not None and self._stating.is_alive()
            return {
                "labelled": {"sentences": len(self._full), "partial": len(known.keys() - self._full), "tokens": tokens},
                "remaining": {"sentences": len(self.pool.lengths) - len(self._full), "tokens": total - tokens},
                "entropy": {"pool": round(self.pool.entropy, 3), "curve": self.curves.entropy},
                "accuracy": {**self._stated, "curve": self.curves.accuracy},
                "questions": said.told,
                "seconds_per_question": round(median(seconds), 2) if seconds else None,
                "labels": [{"name": name, "count": counts[name]} for name in self.project.names],
                "expected_gain": self.curves.expected_gain(),
                "learning": "training" if stating and self.learner.status == "idle" else self.learner.status,
                "fresh": round(self.pool.fresh, 4),
            }

    def change_labels(self, annotator: str, change: Json) -> Json:
        """Adds, renames, merges or colours a label, or gives it another key."""
        self._check_annotator(annotator)
        if not isinstance(change, dict):
            raise AnnotateError("a change of labels must be a record")
        key = change.get("uuid")
        with self.lock:
            number = None if key is None else self.project.store.find(key)
            if number is None:
                number = self.project.append("labels", annotator, self.project.check_change(change), key=key)
                self._stale.update(self._open)
        self._learn(number)
        return self.state(annotator)

    def settings(self, annotator: str, change: Json) -> Json:
        """Changes settings of the project."""
        self._check_annotator(annotator)
        if not isinstance(change, dict):
            raise AnnotateError("settings must be a record")
        values = {name: value for name, value in change.items() if name != "key"}
        for name, value in values.items():
            check_setting(name, value)
        with self.lock:
            self.project.append("settings", annotator, values, key=change.get("key"))
            self._fit_times()
        return self.state(annotator)

    def _require_sequence(self, i: Any) -> int:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(self.project.documents):
            raise AnnotateError(f"'sequence' must be from 0 to {len(self.project.documents) - 1}, got {i!r}", 404)
        return i

    def _check_annotator(self, annotator: str) -> None:
        if not isinstance(annotator, str) or not 0 < len(annotator) <= 100 or not annotator.isprintable():
            raise AnnotateError("an annotator needs a name of 1 to 100 printable characters")

    def close(self) -> None:
        """Ends the threads and lets go of the file."""
        self.learner.close()
        if self._stating is not None:
            self._stating.join()
        self.project.close()


def _what(q: Question) -> Json:
    """What a question asks, as events hold it: its kind, and its spans if these were chosen."""
    spans = q.spans if q.kind == "uncertain" else []
    return {"kind": q.kind, "asked": [[span.start, span.end] for span in spans]}


def _rows(document: Any) -> list[Any]:
    """The tokens of a document, with further columns where there are any."""
    if document.columns is None:
        return list(document.words)
    return [(word, *more) for word, more in zip(document.words, document.columns, strict=True)]
