"""A session: a project, a pool that asks, and a learner; all that the page and scripts can do."""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfkit.active.pool import Pool, Question, Strategy
from crfkit.active.scheme import Allowed
from crfkit.active.time_model import TimeModel
from crfkit.annotate.documents import AnnotateError
from crfkit.annotate.learner import Learner
from crfkit.annotate.project import Project
from crfkit.estimators.crf import CRF

_WAIT = 0.6  # seconds that an answer waits for the model at most
_PAGE = 50  # rows of a page of a list
_CONTEXT = 2  # sentences shown before and after

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
        Share of the questions that are drawn at random, to tell how good the model is.
    show_random : bool
        Whether such questions say that they are.
    n_jobs : int
    seed : int
    strategy : Strategy, optional
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
    ) -> None:
        self.project = project
        self.lock = threading.RLock()
        self.seed = seed
        self.defaults = {"random_share": random_share, "show_random": show_random, "overlap": 0.05}
        self.time_default = time_model or TimeModel()
        self._open: dict[str, Json] = {}  # the question that is open for each annotator
        self._asked: dict[str, Question] = {}  # by id
        self._next_id = itertools.count()
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
        self._curve: list[list[float]] = []
        self._tell(project.labelled())
        self.pool.asked = len(project.said())
        self._learned = len(project.store.events)
        self._fit_times()
        if self.pool.known:
            self.pool.learn(2.0, None)
        self.pool.rescore(1.0)
        self.learner = Learner(self.pool, self.lock, self._apply, self._after)
        self.learner.done = self._learned

    # learning

    def _tell(self, sequences: Sequence[int]) -> None:
        """Tells the pool what is known of some sequences now."""
        for i in sequences:
            known = self.project.known(i)
            self.pool.know(i, known)
            done = known is not None and bool((known.sum(axis=1) == 1).all())
            direct = [self.project.store[n] for n in self.project._said.get(i, ())]
            asked = any(self.project.holds(e.number) and e.payload["sequence"] == i for e in direct)
            if done or asked:
                self.pool.closed.add(i)
            else:
                self.pool.closed.discard(i)

    def _apply(self) -> int:
        """Tells the pool what has happened since; called by the learner, with the lock."""
        events = self.project.store.events[self._learned :]
        touched: set[int] = set()
        for event in events:
            if event.kind in ("answer", "edit", "settle"):
                touched.update(self.project.touched(event.number))
            elif event.kind in ("undo", "redo"):
                touched.update(self.project.touched(event.payload["of"]))
            elif event.kind == "labels" and not {"add", "rename", "merge"}.isdisjoint(event.payload):
                self._relabel(event.payload)
                touched.update(self.project.labelled())
        self._tell(sorted(touched))
        self._learned += len(events)
        return self._learned

    def _relabel(self, change: Json) -> None:
        old = self.pool.scheme.names
        renamed = {}
        if "rename" in change:
            renamed = {change["rename"]["to"]: change["rename"]["from"]}
        names = [n for n in self.project.names]
        self.pool.relabel(names, lambda name: renamed.get(name, name) if renamed.get(name, name) in old else None)

    def _after(self) -> None:
        """After a step of the learner, with the lock."""
        self._curve.append([self.pool.asked, round(self.pool.entropy, 3)])

    def _fit_times(self) -> None:
        times = [
            (e.payload["seconds"], e.payload["tokens"], e.payload.get("corrections", 0))
            for e in self.project.said()
            if e.kind == "answer" and e.payload.get("seconds") and e.payload.get("tokens")
        ]
        self.pool.time_model = self.time_default.fitted(times)

    # questions

    def question(self, annotator: str, *, sequence: int | None = None) -> Json:
        """The question that is open for an annotator, else the next one; or that of a sequence."""
        self._check_annotator(annotator)
        with self.lock:
            if sequence is not None:
                self._require_sequence(sequence)
                return self._pose(annotator, self.pool.question(sequence, "chosen", whole=True))
            if annotator in self._open:
                return self._open[annotator]
            return self._next(annotator)

    def _next(self, annotator: str) -> Json:
        """Chooses the annotator's next question."""
        others = {q["sequence"] for who, q in self._open.items() if who != annotator and "sequence" in q}
        mine = self.project._by.get(annotator, [])
        skipped = {self.project.store[n].payload["sequence"] for n in mine if self.project.holds(n)}
        found = None
        turn = len(mine)
        warm = self.pool.version > 0 and self.pool.asked >= self.pool.strategy.cover
        if warm and self._turn(annotator, turn, self._setting("random_share"), 0):
            found = self.pool.ask(others | skipped, kind="random")
        if found is None and warm and self._turn(annotator, turn, self._setting("overlap"), 1):
            found = self._overlap(annotator, skipped)
        if found is None:
            found = self.pool.ask(others | skipped)
        if found is None:
            done = {"id": f"done-{next(self._next_id)}", "kind": "done"}
            self._open[annotator] = done
            return done
        return self._pose(annotator, found)

    def _turn(self, annotator: str, turn: int, share: float, salt: int) -> bool:
        """Whether this question is one of a share, one of each block of them, at a place that is drawn."""
        if share <= 0:
            return False
        size = max(1, round(1 / share))
        seed = [self.seed, zlib.crc32(annotator.encode()), turn // size, salt]
        return turn % size == int(np.random.default_rng(seed).integers(size))

    def _overlap(self, annotator: str, mine: set[int]) -> Question | None:
        """A sentence that somebody else has answered."""
        events = [e for e in self.project.said() if e.annotator != annotator and e.kind == "answer"]
        others = sorted({e.payload["sequence"] for e in events if not e.payload.get("skip")} - mine)
        if not others:
            return None
        rng = np.random.default_rng([self.seed, zlib.crc32(annotator.encode()), len(mine)])
        i = int(rng.choice(others))
        known = self.pool.known.pop(i, None)  # what others said is not shown
        try:
            return replace(self.pool.question(i, whole=True), kind="agree")
        finally:
            if known is not None:
                self.pool.known[i] = known

    def _pose(self, annotator: str, q: Question) -> Json:
        """A question as the page gets it."""
        document = self.project.documents[q.sequence]
        identity = f"{annotator}-{self._learned}-{next(self._next_id)}"
        known = None if q.kind == "agree" else self.pool.known.get(q.sequence)
        hidden = q.kind == "random" and not self._setting("show_random")
        out = {
            "id": identity,
            "kind": "uncertain" if hidden else q.kind,
            "sequence": q.sequence,
            "text": document.text,
            "tokens": [list(t) for t in document.tokens],
            "known": self._known_names(known, len(document.tokens)),
            "before": self._texts(range(q.sequence - _CONTEXT, q.sequence)),
            "after": self._texts(range(q.sequence + 1, q.sequence + 1 + _CONTEXT)),
            "spans": [self._span(q.sequence, span) for span in q.spans],
            "guess": self._chunks(q.guess),
            "freshness": {
                "answers_behind": self._behind(),
                "fresh": round(self.pool.fresh, 4),
            },
            "expected": {"seconds": round(q.seconds, 2), "gain": round(q.gain, 4)},
        }
        self._open[annotator] = out
        self._asked = {**{k: v for k, v in self._asked.items() if k.rsplit("-", 2)[0] != annotator}, identity: q}
        return out

    def _span(self, sequence: int, span: Any) -> Json:
        choices = [{"label": c.label, "p": round(c.p, 4)} for c in span.choices]
        none = {"label": None, "p": 1.0}
        return {
            "start": span.start,
            "end": span.end,
            "guess": choices[0] if choices else none,
            "runner_up": choices[1] if len(choices) > 1 else None,
            "choices": choices,
            "occurrences": self.project.occurrences(sequence, span.start, span.end),
        }

    def _behind(self) -> int:
        events = self.project.store.events[self._learned :]
        return sum(e.kind == "answer" for e in events)

    def _texts(self, numbers: range) -> list[str]:
        documents = self.project.documents
        return [documents[i].text for i in numbers if 0 <= i < len(documents)]

    def _known_names(self, known: Allowed | None, length: int) -> list[str | None]:
        """The model's label of each token that is known for certain."""
        if known is None:
            return [None] * length
        labels = self.pool.scheme.labels
        return [labels[int(row.argmax())] if row.sum() == 1 else None for row in known]

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
            raise AnnotateError("'key' of an answer must be a text of 8 to 100 characters, new for every answer")
        with self.lock:
            number = self.project.store.find(key)
            if number is None:
                payload = self._checked(answer)
                number = self._append("answer", annotator, payload, key)
                self.pool.note(payload["sequence"])
                self._open.pop(annotator, None)
        return self._followed(annotator, number)

    def _append(self, kind: str, annotator: str, payload: Json, key: str | None = None) -> int:
        number = self.project.append(kind, annotator, payload, key=key)
        if kind == "answer" and payload.get("seconds"):
            self._fit_times()
        return number

    def _followed(self, annotator: str, number: int) -> Json:
        """Waits for the model a little, and gives what comes next."""
        self.learner.want(len(self.project.store.events))
        self.learner.wait(number, _WAIT)
        with self.lock:
            return {"event": number, "next": self.question(annotator), "panel": self.panel(annotator)}

    def _checked(self, answer: Json) -> Json:
        """An answer as the event holds it; raises if it makes no sense."""
        i = answer.get("sequence")
        self._require_sequence(i)
        assert isinstance(i, int)
        length = len(self.project.documents[i].tokens)
        spans = self._checked_spans(answer.get("spans", []), length)
        judged = _ranges(answer.get("judged", []), length)
        whole, skip = bool(answer.get("whole", False)), bool(answer.get("skip", False))
        seconds, keys, corrections = (_number(answer, name) for name in ("seconds", "keys", "corrections"))
        covered = np.zeros(length, bool)
        for a, b in [*judged, *((s["start"], s["end"]) for s in spans)]:
            covered[a:b] = True
        if skip:
            spans, judged, whole = [], [], False
        tokens = 0 if skip else length if whole else int(covered.sum())
        question = self._asked.get(answer.get("question", ""))
        return {
            "sequence": i,
            "spans": spans,
            "judged": [list(r) for r in judged],
            "whole": whole,
            "skip": skip,
            "seconds": min(seconds, 86400.0),
            "keys": int(keys),
            "corrections": int(corrections),
            "tokens": tokens,
            "kind": question.kind if question is not None and question.sequence == i else "chosen",
            **self._scored(question, i, spans, whole),
        }

    def _scored(self, question: Question | None, i: int, spans: list[Json], whole: bool) -> Json:
        """What a random question says of the model that had never seen it."""
        if question is None or question.kind != "random" or question.sequence != i or not whole:
            return {}
        return {"guess": question.guess}

    def _checked_spans(self, spans: Any, length: int) -> list[Json]:
        if not isinstance(spans, list):
            raise AnnotateError("'spans' must be a list")
        out: list[Json] = []
        taken = np.zeros(length, bool)
        for span in spans:
            if not isinstance(span, dict):
                raise AnnotateError("'spans' must be a list of records")
            a, b, label = span.get("start"), span.get("end"), span.get("label")
            _require_range(a, b, length)
            if label is not None:
                self.project.label(label if isinstance(label, str) else repr(label))
            if self.project.task == "tokens" and b - a != 1:
                raise AnnotateError(f"in a task of tokens a span is one token, got {a} to {b}")
            if taken[a:b].any():
                raise AnnotateError(f"spans must not overlap: tokens {a} to {b - 1} are in two")
            taken[a:b] = True
            out.append({"start": a, "end": b, "label": label, "everywhere": bool(span.get("everywhere", False))})
        return out

    def undo(self, annotator: str) -> Json:
        """Takes back what an annotator said last."""
        return self._back(annotator, "undo", self.project.undoable)

    def redo(self, annotator: str) -> Json:
        """Says again what the last undo took back."""
        return self._back(annotator, "redo", self.project.redoable)

    def _back(self, annotator: str, kind: str, which: Callable[[str], int | None]) -> Json:
        self._check_annotator(annotator)
        with self.lock:
            of = which(annotator)
            if of is None:
                raise AnnotateError(f"there is nothing to {kind}", 409)
            number = self._append(kind, annotator, {"of": of})
            self._open.pop(annotator, None)
            sequence = self.project.store[of].payload["sequence"]
        self.learner.want(number)
        self.learner.wait(number, _WAIT)
        with self.lock:
            again = self.question(annotator, sequence=sequence) if kind == "undo" else self.question(annotator)
            return {"event": number, "question": again, "panel": self.panel(annotator)}

    # state

    def _setting(self, name: str) -> Any:
        return self.project.settings.get(name, self.defaults[name])

    def state(self, annotator: str) -> Json:
        """What the page shows around the questions."""
        self._check_annotator(annotator)
        with self.lock:
            counts = self.project.counts(self.pool.known)
            settings = {name: self._setting(name) for name in self.defaults}
            m = self.pool.time_model
            return {
                "project": self.project.name,
                "task": self.project.task,
                "labels": [{**label.plain(), "count": counts[label.name]} for label in self.project.labels],
                "annotator": annotator,
                "annotators": self.project.annotators,
                "settings": {**self.project.settings, **settings},
                "time_model": {"sentence": m.sentence, "token": m.token, "correction": m.correction},
                "version": self._learned,
                "sentences": len(self.project.documents),
                "tokens": int(self.pool.offsets[-1]),
                "mine": len([e for e in self.project.said(annotator) if e.kind == "answer"]),
                "undo": self.project.undoable(annotator) is not None,
                "redo": self.project.redoable(annotator) is not None,
            }

    def panel(self, annotator: str) -> Json:
        """Where things stand."""
        with self.lock:
            known = self.pool.known
            tokens = sum(int((allowed.sum(axis=1) == 1).sum()) for allowed in known.values())
            answers = [e for e in self.project.said() if e.kind == "answer" and not e.payload.get("skip")]
            seconds = [e.payload["seconds"] for e in answers if e.payload.get("seconds")]
            counts = self.project.counts(known)
            total = int(self.pool.offsets[-1])
            return {
                "labelled": {"sentences": len(known), "tokens": tokens},
                "remaining": {"sentences": len(self.pool.lengths) - len(known), "tokens": total - tokens},
                "entropy": {"pool": round(self.pool.entropy, 3), "curve": self._curve[-500:]},
                "accuracy": {"token": None, "f1": None, "questions": 0, "curve": []},
                "questions": len(answers),
                "seconds_per_question": round(float(np.median(seconds)), 2) if seconds else None,
                "labels": [{"name": name, "count": counts[name]} for name in self.project.names],
                "expected_gain": None,
                "learning": self.learner.status if hasattr(self, "learner") else "idle",
                "fresh": round(self.pool.fresh, 4),
            }

    def change_labels(self, annotator: str, change: Json) -> Json:
        """Adds, renames, merges or colours a label, or gives it another key."""
        self._check_annotator(annotator)
        if not isinstance(change, dict):
            raise AnnotateError("a change of labels must be a record")
        with self.lock:
            number = self._append("labels", annotator, self.project.check_change(change))
            self._open.clear()
        self.learner.want(number)
        self.learner.wait(number, _WAIT)
        return self.state(annotator)

    def settings(self, annotator: str, change: Json) -> Json:
        """Changes settings of the project."""
        self._check_annotator(annotator)
        if not isinstance(change, dict):
            raise AnnotateError("settings must be a record")
        for name, value in change.items():
            if name == "show_random":
                if not isinstance(value, bool):
                    raise AnnotateError(f"'show_random' must be true or false, got {value!r}")
            elif name in ("random_share", "overlap"):
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                    raise AnnotateError(f"{name!r} must be a number from 0 to 1, got {value!r}")
            else:
                raise AnnotateError(f"there is no setting {name!r}; there are {', '.join(self.defaults)}")
        with self.lock:
            self._append("settings", annotator, dict(change))
        return self.state(annotator)

    def _require_sequence(self, i: Any) -> None:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(self.project.documents):
            raise AnnotateError(f"'sequence' must be from 0 to {len(self.project.documents) - 1}, got {i!r}", 404)

    def _check_annotator(self, annotator: str) -> None:
        if not isinstance(annotator, str) or not 0 < len(annotator) <= 100 or not annotator.isprintable():
            raise AnnotateError("an annotator needs a name of 1 to 100 printable characters")

    def close(self) -> None:
        """Ends the threads and lets go of the file."""
        self.learner.close()
        self.project.close()


def _rows(document: Any) -> list[Any]:
    """The tokens of a document, with further columns where there are any."""
    if document.columns is None:
        return list(document.words)
    return [(word, *more) for word, more in zip(document.words, document.columns, strict=True)]


def _require_range(a: Any, b: Any, length: int) -> None:
    whole = all(isinstance(x, int) and not isinstance(x, bool) for x in (a, b))
    if not whole or not 0 <= a < b <= length:
        raise AnnotateError(f"a span needs 0 <= start < end <= {length}, got {a!r} and {b!r}")


def _ranges(value: Any, length: int) -> list[tuple[int, int]]:
    if not isinstance(value, list):
        raise AnnotateError("'judged' must be a list of ranges")
    out = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise AnnotateError(f"'judged' must hold pairs of tokens, got {pair!r}")
        _require_range(*pair, length)
        out.append((pair[0], pair[1]))
    return out


def _number(answer: Json, name: str) -> float:
    value = answer.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise AnnotateError(f"{name!r} of an answer must be a number >= 0, got {value!r}")
    return float(value)
