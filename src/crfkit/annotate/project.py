"""A project: sentences, labels, and everything that people said about them, derived from its events."""

from __future__ import annotations

import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crfkit.active.scheme import Allowed, Scheme
from crfkit.annotate.documents import AnnotateError, Document
from crfkit.annotate.events import judge_document, judge_said, judged
from crfkit.annotate.store import Event, ProjectError, Store
from crfkit.annotate.word_index import WordIndex
from crfkit.base.messages import warn

__all__: list[str] = []

TASKS = ("spans", "tokens")
#: Kinds of events that can be undone.
SAID = ("answer", "edit", "settle")
_BATCH = 100_000  # tokens per event, or a sentence more
N_COLORS = 12  # the page's palette
_KEYS = "123456789qwertyuopasdfghjklzxcvbnm"
_NO_TIME = "'sentence' and 'token' of 'time' must not both be 0"
_RESERVED = "0=./?"  # keys of the page; 0 is for what is no entity


class Label:
    """A label: name, number of its colour and key."""

    def __init__(self, name: str, color: int, key: str | None) -> None:
        self.name, self.color, self.key = name, color, key

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "color": self.color, "key": self.key}


class Said:
    """Answers, edits and settlements that hold, in order; of one annotator or of all.

    Attributes
    ----------
    events : list of Event
    sequences : set of int
        What they are about.
    told : int
        Answers that were not skipped.
    answered : set of int
        What these are about.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = []
        self.sequences: set[int] = set()
        self.told = 0
        self.answered: set[int] = set()
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """The next one."""
        self.events.append(event)
        self.sequences.add(event.payload["sequence"])
        if _tells(event):
            self.told += 1
            self.answered.add(event.payload["sequence"])

    def last(self, many: int) -> list[Event]:
        """The last answers that were not skipped, in order."""
        return list(islice((e for e in reversed(self.events) if _tells(e)), many))[::-1]


class Project:
    """A project file and what follows from its events.

    Attributes
    ----------
    documents : list of Document
    task : {"spans", "tokens"}
    settings : dict
    identity : str
        Tells it from all other projects.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.path
        self.documents: list[Document] = []
        self.task = "spans"
        self.settings: dict[str, Any] = {}
        self._labels: list[Label] = []
        self._renamed: list[tuple[int, str, str | None]] = []  # event, old name, new name
        self._live: dict[int, bool] = {}  # of what was said: whether it still holds
        self._said: dict[int, list[int]] = defaultdict(list)  # sequence: events, also by what was said of every copy
        self._by: dict[str, list[int]] = defaultdict(list)  # annotator: what they said
        self._undone: dict[str, list[int]] = defaultdict(list)
        self._begun: dict[str, dict[int, int]] = defaultdict(dict)  # annotator: sequence, draft or undone answer
        self._standing: dict[str | None, Said] = {}  # what was said and holds, until something is undone
        self._seen: list[str] = []
        self._scheme: Scheme | None = None
        first = next(iter(store), None)
        if first is None or first.kind != "project" or first.payload.get("task") not in TASKS:
            store.close()
            raise ProjectError(f"{store.path}: the project file is damaged (it does not say what its task is)")
        self.identity = str(first.payload.get("id", first.time))
        for event in store:
            try:
                if event.kind == "settings" and self._no_time(event.payload):  # an earlier crfkit wrote such events
                    warn(f"{store.path}: event {event.number} is ignored: {_NO_TIME}", UserWarning)
                    continue
                self._judge(event)
                self._take(event)
            except ValueError as e:
                store.close()
                message = f"{store.path}: the project file is damaged (event {event.number}, {event.kind[:60]!r}: {e})"
                raise ProjectError(message) from e

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        documents: Iterable[Document],
        *,
        task: str = "spans",
        labels: Sequence[str] = (),
        settings: dict[str, Any] | None = None,
    ) -> Project:
        """A new project file."""
        if task not in TASKS:
            raise ValueError(f"'task' must be one of {', '.join(TASKS)}, got {task!r}")
        rows = list(documents)
        names = list(dict.fromkeys([*labels, *_names_in(rows, task)]))
        for name in names:
            _check_name(name, task)

        def events() -> Iterator[tuple[str, str, dict[str, Any]]]:
            identity = uuid.uuid4().hex
            yield "project", "", {"task": task, "labels": names, "settings": settings or {}, "id": identity}
            for batch in _batches(rows):
                yield "documents", "", {"documents": [asdict(d) for d in batch]}

        return cls(Store.create(path, events()))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Project:
        """The project of a file."""
        return cls(Store(path))

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return Path(self.path).name.removesuffix(".crfkit-project")

    def append(self, kind: str, annotator: str, payload: dict[str, Any], *, key: str | None = None) -> int:
        """Adds an event, on disk before it returns; a key seen before gives the first event's number.

        What would make the project one that cannot be opened again is refused first.
        """
        before = len(self.store.events)
        if key is None or self.store.find(key) is None:
            try:
                self._judge(Event(before + 1, 0.0, kind, annotator, key, payload))
            except AnnotateError:
                raise
            except ValueError as e:
                raise AnnotateError(str(e)) from e
        number = self.store.append(kind, annotator, payload, key=key)
        if number > before:
            self._take(self.store[number])
        return number

    def close(self) -> None:
        """Lets go of the file."""
        self.store.close()

    # events to state

    def _judge(self, event: Event) -> None:
        """Raises for an event that makes no sense after those before it."""
        p = judged(event.kind, event.payload)
        if event.kind == "project":
            if event.number > 1:
                raise ValueError("it must occur once, as the first event")
            for name in p["labels"]:
                _check_name(name, p["task"])
            if len(set(p["labels"])) != len(p["labels"]):
                raise ValueError("a label occurs twice in 'labels'")
        elif event.kind in SAID or event.kind == "draft":
            judge_said(p, self.documents, self.names)
        elif event.kind in ("undo", "redo") and p["of"] not in self._live:
            raise ValueError(f"'of' is {p['of']}, which is not an answer or an edit")
        elif event.kind == "labels":
            self.check_change(event.payload)
        if event.kind in ("project", "settings") and self._no_time(p.get("settings", p)):
            raise AnnotateError(_NO_TIME)

    def _no_time(self, settings: dict[str, Any]) -> bool:
        """Whether these settings leave no time for a question."""
        time = self._times(judged("settings", settings))
        return not (time.get("sentence", 1) or time.get("token", 1))

    def _times(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The seconds of the settings, after a change."""
        return {**self.settings.get("time", {}), **settings.get("time", {})}

    def _take(self, event: Event) -> None:
        p = event.payload
        if event.annotator and event.annotator not in self._seen:
            self._seen.append(event.annotator)
        if event.kind == "project":
            self.task, self.settings = p["task"], dict(p.get("settings", {}))
            for name in p["labels"]:
                self._add(name)
        elif event.kind == "documents":
            for d in p["documents"]:
                tokens = [(a, b) for a, b in d["tokens"]]
                document = Document(d["text"], tokens, d["columns"], d["labels"], d["source"])
                judge_document(document, self.documents[-1] if self.documents else None, self._is_label)
                self.documents.append(document)
        elif event.kind in SAID:
            self._live[event.number] = True
            for who in (event.annotator, None):
                if who in self._standing:
                    self._standing[who].add(event)
            for i in sorted({p["sequence"], *(i for i, _, _ in self._copies(event))}):
                self._said[i].append(event.number)
            self._by[event.annotator].append(event.number)
            self._undone[event.annotator].clear()
            for begun in self._begun.values() if event.kind == "settle" else (self._begun[event.annotator],):
                begun.pop(p["sequence"], None)
        elif event.kind == "draft":
            self._begin(event.annotator, event)
        elif event.kind == "undo":
            self._live[p["of"]], self._standing = False, {}
            self._undone[event.annotator].append(p["of"])
            if self.store[p["of"]].kind == "answer":
                self._begin(event.annotator, self.store[p["of"]])
        elif event.kind == "redo":
            self._live[p["of"]], self._standing = True, {}
            if p["of"] in self._undone[event.annotator]:
                self._undone[event.annotator].remove(p["of"])
            self._begun[event.annotator].pop(self.store[p["of"]].payload["sequence"], None)
        elif event.kind == "labels":
            self._change(event.number, p)
        elif event.kind == "settings":
            time = self._times(p)
            self.settings |= {**p, **({"time": time} if time else {})}

    def _begin(self, annotator: str, event: Event) -> None:
        """A question is open again, with what a draft or an undone answer says of it."""
        begun = self._begun[annotator]
        begun.pop(event.payload["sequence"], None)  # the last one comes back first
        begun[event.payload["sequence"]] = event.number

    def _is_label(self, label: str) -> bool:
        """Whether a label of a file is one of the project's, BIO or plain."""
        if self.task == "tokens":
            return label in self.names
        return label == "O" or (label[:2] in ("B-", "I-") and label[2:] in self.names)

    def _add(self, name: str, color: int | None = None, key: str | None = None) -> None:
        taken = {label.key for label in self._labels}
        if key is None or key in taken:
            key = next((k for k in _KEYS if k not in taken), None)
        self._labels.append(Label(name, len(self._labels) % N_COLORS if color is None else color, key))

    def _change(self, number: int, p: dict[str, Any]) -> None:
        if "add" in p:
            self._add(p["add"]["name"], p["add"].get("color"), p["add"].get("key"))
        elif "rename" in p:
            self.label(p["rename"]["from"]).name = p["rename"]["to"]
            self._renamed.append((number, p["rename"]["from"], p["rename"]["to"]))
        elif "merge" in p:
            self._labels.remove(self.label(p["merge"]["from"]))
            self._renamed.append((number, p["merge"]["from"], p["merge"]["to"]))
        elif "color" in p:
            self.label(p["color"]["name"]).color = p["color"]["color"]
        elif "key" in p:
            label = self.label(p["key"]["name"])
            for other in self._labels:
                if other.key == p["key"]["key"]:
                    other.key = label.key
            label.key = p["key"]["key"]

    # labels

    @property
    def labels(self) -> list[Label]:
        """The labels, in the order of the keys."""
        return self._labels

    @property
    def names(self) -> list[str]:
        """The labels' names."""
        return [label.name for label in self._labels]

    def label(self, name: str) -> Label:
        """The label of a name."""
        for label in self._labels:
            if label.name == name:
                return label
        raise AnnotateError(f"there is no label {name!r}; the labels are {', '.join(self.names) or 'none'}", 400)

    @property
    def names_before(self) -> set[str]:
        """Names that labels had before they were renamed or merged."""
        return {old for _, old, _ in self._renamed} - set(self.names)

    def current(self, name: str) -> str:
        """The name of a label, also by a name that it had before."""
        if name not in self.names:
            changes = [(old, new) for _, old, new in self._renamed]
            last = max((k for k, (old, _) in enumerate(changes) if old == name), default=len(changes))
            for old, new in changes[last:]:
                name = new if name == old and new is not None else name
        return self.label(name).name

    def scheme(self) -> Scheme:
        """The labels as the model has them."""
        if self._scheme is None or self._scheme.names != tuple(self.names):
            self._scheme = Scheme(self.names, self.task == "spans")
        return self._scheme

    def resolve(self, name: str | None, number: int) -> str | None:
        """What a label that an event used is called now; None for outside, and for a label that is gone."""
        for at, old, new in self._renamed:
            if at > number and name == old:
                name = new
        return name

    def check_change(self, change: dict[str, Any]) -> dict[str, Any]:
        """A change of the labels, as an event holds it; raises if it cannot be made."""
        kinds = [k for k in ("add", "rename", "merge", "color", "key") if k in change]
        if len(kinds) != 1 or not isinstance(change[kinds[0]], dict):
            raise AnnotateError("a change of labels is one record: add, rename, merge, color or key")
        kind, value = kinds[0], change[kinds[0]]
        if kind == "add":
            self._require_new(_str(value, "name"))
            more = {"color": _color} | {"key": _key}
            return {"add": {"name": value["name"], **{k: check(value[k]) for k, check in more.items() if k in value}}}
        if kind in ("rename", "merge"):
            old, new = _str(value, "from"), _str(value, "to")
            self.label(old)
            if kind == "rename":
                self._require_new(new)
            elif self.label(new).name == old:
                raise AnnotateError("a label cannot be merged into itself")
            return {kind: {"from": old, "to": new}}
        name = self.label(_str(value, "name")).name
        return {kind: {"name": name, kind: (_color if kind == "color" else _key)(value.get(kind))}}

    def _require_new(self, name: Any) -> None:
        _check_name(name, self.task)
        if name in self.names:
            raise AnnotateError(f"label {name!r} already exists", 409)

    # what people said

    def events_of(self, sequence: int) -> list[Event]:
        """What was said of a sequence and holds, in order; also of every occurrence of a span that is in it."""
        return [self.store[n] for n in self._said.get(sequence, ()) if self._live[n]]

    @property
    def annotators(self) -> list[str]:
        """Who took part, in the order of their first event."""
        return list(self._seen)

    def said(self, annotator: str | None = None) -> list[Event]:
        """Answers, edits and settlements that hold, in order; of one annotator or of all."""
        return self.standing(annotator).events

    def standing(self, annotator: str | None = None) -> Said:
        """The same, with what follows from them."""
        if annotator not in self._standing:
            numbers = sorted(self._live) if annotator is None else self._by.get(annotator, ())
            self._standing[annotator] = Said(self.store[n] for n in numbers if self._live[n])
        return self._standing[annotator]

    def holds(self, number: int) -> bool:
        """Whether what an event said has not been undone."""
        return self._live.get(number, False)

    def begun(self, annotator: str, sequence: int | None = None) -> Event | None:
        """The draft or undone answer of a question that is to be answered first; or that of a sequence."""
        mine = self._begun[annotator]
        number = next(reversed(mine.values()), None) if sequence is None else mine.get(sequence)
        return None if number is None else self.store[number]

    def is_settled(self, sequence: int) -> bool:
        """Whether its final labels have been set."""
        return any(e.kind == "settle" for e in self.events_of(sequence))

    def undoable(self, annotator: str) -> int | None:
        """What an annotator's next undo takes back."""
        return next((n for n in reversed(self._by[annotator]) if self._live[n]), None)

    def redoable(self, annotator: str) -> int | None:
        """What an annotator's next redo says again."""
        return self._undone[annotator][-1] if self._undone[annotator] else None

    def touched(self, number: int) -> list[int]:
        """Sequences of which an event says something."""
        event = self.store[number]
        return sorted({event.payload["sequence"], *(i for i, _, _ in self._copies(event))})

    def _copies(self, event: Event) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Where else the spans that were meant for every occurrence are: sequence, first token, span."""
        for span in event.payload.get("spans", ()):
            if not span.get("everywhere"):
                continue
            mine = event.payload["sequence"]
            for i, t in self.words.find(self.documents[mine].words[span["start"] : span["end"]]):
                if i != mine:
                    yield i, t, span

    @cached_property
    def words(self) -> WordIndex:
        """Where the words of the pool are."""
        return WordIndex([d.words for d in self.documents])

    def occurrences(self, sequence: int, start: int, end: int) -> int:
        """How often the words of a span are in the pool."""
        return self.words.count(self.documents[sequence].words[start:end])

    def known(self, sequence: int, annotator: str | None = None, *, direct: bool = False) -> Allowed | None:
        """What is known of a sequence [T, L]: labels of the file, then what people said; None for nothing.

        Later answers win over earlier ones, and direct ones over those meant for every occurrence. With ``annotator``,
        only what they said themselves; ``direct`` leaves out what they said elsewhere of every occurrence.
        """
        scheme = self.scheme()
        document = self.documents[sequence]
        length = len(document.tokens)
        out = scheme.anything(length)
        if annotator is None and document.labels is not None:
            out = scheme.path([self._label_now(x) for x in document.labels])
        events = self.events_of(sequence)
        if annotator is not None:
            events = [e for e in events if e.annotator == annotator and e.kind != "settle"]
        for here in (True,) if direct else (False, True):
            for event in events:
                if (event.payload["sequence"] == sequence) is here:
                    out = self._said_of(scheme, sequence, event, out)
        return None if out.all() else out

    def _said_of(self, scheme: Scheme, sequence: int, event: Event, old: Allowed) -> Allowed:
        p, number, length = event.payload, event.number, len(old)
        if p["sequence"] != sequence:
            copies = [(t, t + s["end"] - s["start"], s["label"]) for i, t, s in self._copies(event) if i == sequence]
            spans = [(a, b, self.resolve(label, number)) for a, b, label in copies]
            return scheme.allowed(length, spans, [(a, b) for a, b, _ in spans] if scheme.spans else (), old)
        if p.get("skip"):
            return old
        spans = [(s["start"], s["end"], self.resolve(s["label"], number)) for s in p["spans"]]
        judged = [(0, length)] if p.get("whole") else [tuple(r) for r in p.get("judged", ())]
        return scheme.allowed(length, spans, judged, old)

    def _label_now(self, label: str | None) -> str | None:
        """A label of the file by its current name."""
        if label is None or (label == "O" and self.task == "spans"):
            return label
        tag, name = (label[:2], label[2:]) if self.task == "spans" else ("", label)
        new = self.resolve(name, 0)
        return ("O" if self.task == "spans" else None) if new is None else tag + new

    def labelled(self) -> list[int]:
        """Sequences of which something may be known."""
        imported = {i for i, d in enumerate(self.documents) if d.labels is not None and any(d.labels)}
        return sorted(imported | {i for i, numbers in self._said.items() if any(self._live[n] for n in numbers)})

    def counts(self, known: Allowed | None) -> tuple[int, Counter[str]]:
        """How many tokens of a sequence are known, and how often each label is."""
        if known is None:
            return 0, Counter()
        scheme = self.scheme()
        single = np.flatnonzero(known.sum(axis=1) == 1)
        numbers = known[single].argmax(axis=1)
        if scheme.spans:
            numbers = numbers[numbers % 2 == 1]
        return len(single), Counter(name for name in map(scheme.kind, numbers.tolist()) if name is not None)


def _tells(event: Event) -> bool:
    """Whether an event is an answer that was not skipped."""
    return event.kind == "answer" and not event.payload.get("skip")


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents, some at a time, for an event each."""
    batch: list[Document] = []
    tokens = 0
    for document in documents:
        batch.append(document)
        tokens += len(document.tokens) + 100  # for the rest of what a sentence has
        if tokens >= _BATCH:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def _names_in(documents: Sequence[Document], task: str) -> list[str]:
    """The names of the labels that a file has, most frequent first."""
    found = Counter(label for d in documents for label in d.labels or () if label is not None)
    if task == "tokens":
        return [label for label, _ in found.most_common()]
    kinds: Counter[str] = Counter()
    for label, n in found.items():
        if label != "O":
            if label[:2] not in ("B-", "I-"):
                raise AnnotateError(f"labels of spans must be O, B-TYPE or I-TYPE, got {label!r}")
            kinds[label[2:]] += n
    return [name for name, _ in kinds.most_common()]


def _check_name(name: Any, task: str) -> None:
    if not isinstance(name, str) or not name.strip() or name != name.strip() or len(name) > 100:
        raise AnnotateError(f"a label must be a name of 1 to 100 characters without surrounding blanks, got {name!r}")
    if not name.isprintable() or any(c.isspace() for c in name):
        raise AnnotateError(f"a label must not hold white space or control characters, got {name!r}")
    if name in ("?", "_"):
        raise AnnotateError(f"{name!r} stands for labels that are not known; give the label another name")
    if task == "spans" and name in ("O", "none"):
        raise AnnotateError(f"{name!r} stands for what lies outside all spans; give the label another name")
    if task == "spans" and "|" in name:
        raise AnnotateError(f"a label must not hold '|', which CoNLL-U puts between attributes, got {name!r}")


def _str(value: dict[str, Any], field: str) -> str:
    found = value.get(field)
    if not isinstance(found, str):
        raise AnnotateError(f"'{field}' must be a string, got {found!r}")
    return found


def _color(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < N_COLORS:
        raise AnnotateError(f"'color' must be a number from 0 to {N_COLORS - 1}, got {value!r}")
    return value


def _key(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1 or not value.isprintable() or value.isspace():
        raise AnnotateError(f"'key' must be one character, got {value!r}")
    if value in _RESERVED:
        raise AnnotateError(f"{value!r} cannot be a label's key: the page has it for something else")
    return value
