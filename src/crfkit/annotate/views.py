"""What the views Browse, Review, Agree, Model and Export show."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crfkit.active.scheme import Allowed
from crfkit.annotate import formats
from crfkit.annotate.agreement import agreement
from crfkit.annotate.documents import AnnotateError
from crfkit.base.numbers import over_rows
from crfkit.chain.inference import decode_flat, marginals
from crfkit.metrics import Score, confusion, span_scores
from crfkit.model.chain_model import ChainModel
from crfkit.model.explaining import contribution_name

if TYPE_CHECKING:
    from crfkit.annotate.session import Session

Json = dict[str, Any]
_PAGE = 20
_DOUBT = 0.3  # labels that the model gives less than this are doubtful
_FOLDS = 3  # parts of the labelled sentences, each judged by a model of the others
_TOP = 8  # features of a label
CONFIDENCE = {"low": (0.0, 0.6), "middle": (0.6, 0.9), "high": (0.9, 1.01)}
STATUS = ("labelled", "partial", "open")


class Views:
    """The views of a session; all methods but :meth:`doubts` need its lock."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.project = session.project
        self._doubted: tuple[tuple[int, int], list[tuple[float, int, list[Json]]]] | None = None

    @property
    def pool(self) -> Any:
        """The session's."""
        return self.session.pool

    # rows

    def status(self, i: int) -> str:
        """Whether all tokens of a sentence are known, some, or none."""
        known = self.pool.known.get(i)
        if known is None:
            return "open"
        return "labelled" if (known.sum(axis=1) == 1).all() else "partial"

    def row(self, i: int, p: NDArray[Any] | None = None, path: NDArray[Any] | None = None) -> Json:
        """A sentence as lists show it: what is known, and the model's guesses for the rest."""
        document, known = self.project.documents[i], self.pool.known.get(i)
        if p is None or path is None:
            potentials = self.pool.potentials([i])
            p, path = marginals(potentials, 1).nodes, decode_flat(potentials, 1)
        length = len(document.tokens)
        single = np.zeros(length, bool) if known is None else known.sum(axis=1) == 1
        spans = []
        for a, b, name in self.pool.scheme.chunks(path.tolist()) if length else []:
            if name is not None or (self.project.task == "tokens"):
                person = bool(single[a:b].all())
                chance = None if person else round(float(p[np.arange(a, b), path[a:b]].min()), 4)
                spans.append({"start": a, "end": b, "label": name, "p": chance, "by": "person" if person else "model"})
        rest = [float(p[t, path[t]]) for t in range(length) if not single[t]]
        return {
            "sequence": i,
            "text": document.text,
            "tokens": [list(t) for t in document.tokens],
            "spans": spans,
            "judged": ranges(single),
            "confidence": round(min(rest), 4) if rest else None,
            "people": sorted({e.annotator for e in self.project.events_of(i) if e.payload["sequence"] == i}),
            "status": self.status(i),
        }

    def browse(
        self, search: str, label: str | None, confidence: str | None, by: str | None, status: str | None
    ) -> list[int]:
        """Sentences that fit all filters."""
        documents = self.project.documents
        found = np.ones(len(documents), bool)
        if search:
            wanted = search.casefold()
            found &= np.array([wanted in d.text.casefold() for d in documents], bool)
        if status:
            if status not in STATUS:
                raise AnnotateError(f"'status' must be one of {', '.join(STATUS)}, got {status!r}")
            found &= np.array([self.status(i) == status for i in range(len(documents))], bool)
        if by:
            found &= np.array([self._is_by(i, by) for i in range(len(documents))], bool)
        if label or confidence:
            path, p = self.pool.predictions()
            names = np.array([self.pool.scheme.kind(k) or "" for k in range(len(self.pool.scheme.labels))] or [""])
            for i, known in self.pool.known.items():
                a, b = self.pool.offsets[i], self.pool.offsets[i + 1]
                single = known.sum(axis=1) == 1
                path[a:b][single] = known[single].argmax(axis=1)
                p[a:b][single] = 1.0
            if label:
                label = self.project.current(label)
                found &= np.diff(np.concatenate([[0], np.cumsum(names[path] == label)])[self.pool.offsets]) > 0
            if confidence:
                if confidence not in CONFIDENCE:
                    raise AnnotateError(f"'confidence' must be one of {', '.join(CONFIDENCE)}, got {confidence!r}")
                low, high = CONFIDENCE[confidence]
                worst = over_rows(np.minimum, p, self.pool.offsets, 1.0)
                found &= (worst >= low) & (worst < high)
        return [int(i) for i in np.flatnonzero(found)]

    def _is_by(self, i: int, who: str) -> bool:
        return any(e.annotator == who and e.payload["sequence"] == i for e in self.project.events_of(i))

    def page(self, items: Sequence[Any], number: int, size: int = _PAGE) -> tuple[Sequence[Any], Json]:
        """The items of a page, and what tells which page it is."""
        if number < 0:
            raise AnnotateError(f"'page' must be >= 0, got {number}")
        pages = max(1, -(-len(items) // size))
        number = min(number, pages - 1)
        return items[number * size : (number + 1) * size], {"page": number, "pages": pages, "total": len(items)}

    def sequence(self, i: int) -> Json:
        """One sentence: labels, marginals, who said what."""
        p = self.pool.potentials([i])
        nodes, path = marginals(p, 1).nodes, decode_flat(p, 1)
        choices = []
        for t in range(len(path)):
            chances: dict[str | None, float] = {}
            for k, x in enumerate(nodes[t].tolist()):
                name = self.pool.scheme.kind(k) if self.pool.scheme.labels else None
                chances[name] = chances.get(name, 0.0) + x
            best = sorted(chances.items(), key=lambda item: -item[1])[:3]
            choices.append([{"label": name, "p": round(x, 4)} for name, x in best])
        answers = []
        for e in self.project.events_of(i):
            if e.payload["sequence"] == i and not e.payload.get("skip"):
                when = datetime.datetime.fromtimestamp(e.time, datetime.UTC).isoformat(timespec="seconds")
                spans = [{**s, "label": self.project.resolve(s["label"], e.number)} for s in e.payload["spans"]]
                judged = [[0, len(path)]] if e.payload.get("whole") else e.payload.get("judged", [])
                row = {"annotator": e.annotator, "time": when, "event": e.number, "kind": e.kind}
                answers.append({**row, "spans": spans, "judged": judged})
        context = self.session.context(i)
        return {**self.row(i, nodes, path), **context, "choices": choices, "answers": answers}

    # review

    def doubts(self) -> list[tuple[float, int, list[Json]]]:
        """Labelled sentences with labels that the model finds unlikely, the most unlikely first.

        A model is seldom surprised by what it was trained on, so each label is judged by one that was not: labelled
        sentences are cut into a few parts, and each part is judged by a model of the others.
        """
        with self.session.lock:
            pool, stamp = self.pool, (self.pool.version, len(self.project.store.events))
            if self._doubted is not None and self._doubted[0] == stamp:
                return self._doubted[1]
            told, trained = pool.told(), pool.version > 0
        ids = sorted(told.known)
        parts = [ids[k::_FOLDS] for k in range(_FOLDS)] if trained and len(ids) >= 2 * _FOLDS else []
        problems = [pool.problem(told.without(part)) for part in parts]
        weights = [None if p is None else pool.train(p, np.zeros(p.layout.size), None, 50).w for p in problems]
        with self.session.lock:
            out = []
            for part, problem, w in zip(parts, problems, weights, strict=True):
                if problem is not None and w is not None and told.scheme is pool.scheme:
                    chosen = [i for i in part if i in pool.known and not self._confirmed(i)]
                    out += self._doubted_by(pool.model_of(problem.layout, w), chosen)
            out.sort(key=lambda row: row[:2])
            self._doubted = stamp, out
            return out

    def _doubted_by(self, model: ChainModel, ids: list[int]) -> list[tuple[float, int, list[Json]]]:
        """What a model doubts of the labels of some sentences."""
        if not ids:
            return []
        p = self.pool.potentials(ids, given=False, model=model)
        nodes, paths = marginals(p, self.pool.n_jobs).nodes, decode_flat(p, self.pool.n_jobs)
        out = []
        for k, i in enumerate(ids):
            part = slice(int(p.offsets[k]), int(p.offsets[k + 1]))
            found = self._doubts_of(self.pool.known[i], nodes[part], paths[part])
            if found:
                out.append((min(d["p_said"] for d in found), i, found))
        return out

    def _confirmed(self, i: int) -> bool:
        events = [e for e in self.project.events_of(i) if e.payload["sequence"] == i]
        return bool(events) and bool(events[-1].payload.get("confirm"))

    def _doubts_of(self, known: Allowed, nodes: NDArray[Any], path: NDArray[Any]) -> list[Json]:
        scheme = self.pool.scheme
        single = known.sum(axis=1) == 1
        said = np.where(single, known.argmax(axis=1), path)
        out = []
        guesses = scheme.chunks(path.tolist())
        for a, b, name in scheme.chunks(said.tolist()):
            p_said = float(nodes[np.arange(a, b), said[a:b]].min())
            there = [g for g in guesses if g[0] < b and a < g[1]]
            if not single[a:b].all() or p_said >= _DOUBT or there == [(a, b, name)]:
                continue
            chances = [float(nodes[np.arange(x, y), path[x:y]].min()) for x, y, _ in there]
            model = [
                {"start": x, "end": y, "label": kind, "p": round(p, 4)}
                for (x, y, kind), p in zip(there, chances, strict=True)
                if kind is not None
            ]
            chance = {"p_said": round(p_said, 4), "p_model": round(min(chances), 4)}
            out.append({"start": a, "end": b, "said": name, "model": model, **chance})
        return out

    # agreement

    def agree(self, number: int) -> Json:
        """Agreement of everyone with everyone, and the sentences on which people differ."""
        names: list[str] = []
        shared: dict[int, dict[str, list[str | None]]] = {}
        who: dict[int, set[str]] = {}
        for e in self.project.said():
            if e.kind != "settle" and not e.payload.get("skip"):
                who.setdefault(e.payload["sequence"], set()).add(e.annotator)
        for i, people in sorted(who.items()):
            if len(people) > 1:
                shared[i] = {name: self._said_by(i, name) for name in sorted(people)}
                names += [name for name in people if name not in names]
        names = [name for name in self.project.annotators if name in names]
        pairs, everything = [], []
        for a, b in combinations(names, 2):
            rows = [(rows[a], rows[b]) for rows in shared.values() if a in rows and b in rows]
            if rows:
                found = agreement(rows)
                everything += rows
                measured = {"agreement": found.agreement, "kappa": found.kappa, "f1": found.f1}
                pairs.append({"a": a, "b": b, "tokens": found.tokens, **measured})
        total = agreement(everything)
        differing = [(i, d) for i, rows in shared.items() if (d := _differences(list(rows.values())))]
        differing = [(i, d) for i, d in differing if not self.project.is_settled(i)]
        part, where = self.page(differing, number)
        return {
            "annotators": names,
            "sentences": len(shared),
            "tokens": total.tokens,
            "token": {"agreement": total.agreement, "kappa": total.kappa},
            "span": {"agreement": total.f1, "kappa": total.span_kappa},
            "pairs": pairs,
            "rows": [{**self.row(i), "versions": self._versions(shared[i]), "differ": d} for i, d in part],
            **where,
        }

    def _said_by(self, i: int, who: str) -> list[str | None]:
        known = self.project.known(i, who, direct=True)
        return self.session.known_labels(known, len(self.project.documents[i].tokens))

    def _versions(self, rows: dict[str, list[str | None]]) -> list[Json]:
        scheme = self.pool.scheme
        out = []
        for name, labels in rows.items():
            single = np.array([label is not None for label in labels], bool)
            spans = []
            for first, last in ranges(single):
                path = [scheme.number[str(label)] for label in labels[first:last]]
                parts = scheme.chunks(path)
                spans += [{"start": first + a, "end": first + b, "label": x} for a, b, x in parts if x is not None]
            out.append({"annotator": name, "spans": spans, "judged": ranges(single)})
        return out

    # model

    def model(self) -> Json:
        """Scores on what random questions told, confusion, and the heaviest features."""
        pool, scheme = self.pool, self.pool.scheme
        tokens = sum(int((k.sum(axis=1) == 1).sum()) for k in pool.known.values())
        out: Json = {"trained": pool.version > 0, "labels": list(scheme.names), "sentences": len(pool.known)}
        out |= {"tokens": tokens, "weights": int(np.count_nonzero(pool.model.weights))}
        scored = self.session.scored()
        truth, guess = [list(s.truth) for s in scored], [list(s.guess) for s in scored]
        rows: list[Json] = []
        if scored:
            if scheme.spans:
                parts = {k: v for k, v in span_scores(truth, guess).items() if k}
                labels, counts = confusion(
                    [[_kind(x) for x in row] for row in truth], [[_kind(x) for x in row] for row in guess]
                )
            else:
                labels, counts = confusion(truth, guess)
                parts = {name: _label_score(counts, k) for k, name in enumerate(labels)}
            for name, s in parts.items():
                scores = {"precision": s.precision, "recall": s.recall, "f1": s.f1, "support": s.support}
                rows.append({"label": name, **scores})
            names = [None if name == "O" and scheme.spans else name for name in labels]
            order = sorted(range(len(names)), key=lambda k: (names[k] is None, names[k]))  # what is outside comes last
            out["confusion"] = {"labels": [names[k] for k in order], "counts": counts[order][:, order].tolist()}
        note = "On random questions, each scored by a model that was trained on everything else."
        out["scores"] = {"rows": rows, "questions": len(scored), "note": note}
        out["features"] = self._features() if pool.version else []
        return out

    def _features(self) -> list[Json]:
        model = self.session.pool.estimator().model_
        layout, scheme = model.layout, self.pool.scheme
        weights = model.weights[: len(layout.state_label)]
        names = model.encoder.names()
        attribute = np.searchsorted(layout.state_ptr, np.arange(len(layout.state_label)), side="right") - 1
        out = []
        for name in [*scheme.names, None] if scheme.spans else scheme.names:
            mine = [k for k in range(len(scheme.labels)) if scheme.kind(k) == name]
            chosen = np.flatnonzero(np.isin(layout.state_label, mine))
            order = chosen[np.argsort(weights[chosen], kind="stable")]
            ends = {"positive": order[::-1][:_TOP], "negative": order[:_TOP]}
            tops = {}
            for kind, part in ends.items():
                sign = 1 if kind == "positive" else -1
                rows = [(k, float(weights[k])) for k in part.tolist() if sign * weights[k] > 0]
                tops[kind] = [[_named(names[attribute[k]], model.labels[layout.state_label[k]]), w] for k, w in rows]
            out.append({"label": name, **tops})
        return out

    def explain(self, i: int, token: int) -> Json:
        """Why a token of a sentence has its label rather than the runner-up."""
        document = self.project.documents[i]
        if not 0 <= token < len(document.tokens):
            raise AnnotateError(f"'token' must be from 0 to {len(document.tokens) - 1}, got {token}", 404)
        if not self.pool.version:
            raise AnnotateError("there is no model yet: it starts to learn with the first answers", 409)
        decision = self.session.pool.estimator().explain(self.session.rows(i))[token]
        finite = [c for c in decision.contributions if c.amount and np.isfinite(c.amount)]
        terms = [{"name": contribution_name(c), "value": c.amount} for c in finite[:12]]
        score = decision.log_odds if np.isfinite(decision.log_odds) else sum(c.amount for c in finite)
        return {
            "sequence": i,
            "token": token,
            "text": document.words[token],
            "guess": self._shown(decision.label),
            "p": decision.probability,
            "against": self._shown(decision.runner_up),
            "terms": terms,
            "score": score,
        }

    def _shown(self, label: Any) -> str | None:
        return None if label is None or (label == "O" and self.pool.scheme.spans) else str(label)

    # out

    def export(self, format: str, what: str) -> Any:
        """A file with the labels, and with the model's guesses for the rest if asked."""
        if what not in ("labels", "labels+guesses"):
            raise AnnotateError(f"'what' must be labels or labels+guesses, got {what!r}")
        pool, documents = self.pool, self.project.documents
        rows: list[list[str | None] | None] = []
        for i, document in enumerate(documents):
            known = pool.known.get(i)
            rows.append(None if known is None else self.session.known_labels(known, len(document.tokens)))
        if what == "labels+guesses" and pool.version:
            path = pool.best_labels()
            names = pool.scheme.labels
            rows = [[names[k] for k in part] for part in np.split(path, pool.offsets[1:-1])]
        return formats.write_documents(documents, rows, format=format, task=self.project.task)

    def model_bytes(self) -> bytes:
        """The model's file."""
        if not self.pool.version:
            raise AnnotateError("there is no model yet: it starts to learn with the first answers", 409)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.crfkit"
            self.session.pool.estimator().save(path)
            return path.read_bytes()


def ranges(single: NDArray[np.bool_]) -> list[list[int]]:
    """Runs of true, as [first, last + 1].

    >>> ranges(np.array([True, True, False, True]))
    [[0, 2], [3, 4]]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], single, [False]]).astype(np.int8)))
    return [[int(a), int(b)] for a, b in edges.reshape(-1, 2)]


def _differences(rows: list[list[str | None]]) -> list[list[int]]:
    """Where people say different things, as ranges of tokens."""
    differ = [len({x for x in column if x is not None}) > 1 for column in zip(*rows, strict=True)]
    return ranges(np.array(differ, bool))


def _kind(label: str) -> str:
    return label if label == "O" else label[2:]


def _label_score(counts: NDArray[np.int64], k: int) -> Score:
    return Score.of_counts(int(counts[k].sum()), int(counts[:, k].sum()), int(counts[k, k]))


def _named(attribute: str, label: str) -> str:
    """An attribute; where labels are BIO, with the tag that it speaks for."""
    return f"{attribute} ({label[0]})" if label[:2] in ("B-", "I-") else attribute
