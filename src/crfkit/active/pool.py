"""A pool of sequences, what is known of their labels, a model that learns it, and the questions that pay most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.active.questions import AskedSpan, Choice, Expected, Question, Strategy, Told
from crfkit.active.reach import Reach
from crfkit.active.scheme import Allowed, Scheme
from crfkit.active.strategies import require_chain
from crfkit.active.time_model import TimeModel
from crfkit.base.numbers import over_rows, pieces
from crfkit.chain.chunks import ChunkLabels, Chunks, chunk_probabilities
from crfkit.chain.entropy import span_entropies, token_entropies
from crfkit.chain.inference import decode_flat, marginals
from crfkit.chain.potentials import Potentials
from crfkit.data.blocks import in_blocks
from crfkit.data.dataset import Dataset, Layout, WeightRules
from crfkit.data.sequences import Columns, rows_of
from crfkit.estimators.crf import CRF
from crfkit.features.encoders import make_encoder
from crfkit.model.chain_model import ChainModel
from crfkit.training.objective import Problem
from crfkit.training.optimiser import Progress, Result
from crfkit.training.registry import find_algorithm
from crfkit.training.semi import SemiSupervisedObjective

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]

_PIECE = 1 << 15  # tokens rescored at a time
_READING = 0.05  # seconds to read a sentence, at least: without, single tokens pay most and no sentence stands out
_CANDIDATES = 64  # sentences whose spans are looked at one by one
_MANY = 20  # above this many labels, reach is taken into account
_RECENT = 10  # sentences asked last, to which the next one should not be alike
_FREE: AbstractContextManager[Any] = nullcontext()  # no lock


@dataclass
class _Scores:
    """Entropies of the tokens given what is known, [N], and of which version of the model those of each piece are."""

    nodes: Vector
    tokens: Vector  # of each piece
    total: Vector  # entropies of the sequences of each piece, summed up
    version: Ints
    sentence: Ints  # the same of each sentence


class Pool:
    """Sequences, what is known about their labels, and a model that learns it; asks the most useful questions.

    Everything is encoded once. After an answer, :meth:`learn` changes the model, :meth:`rescore` computes the entropy
    of every token and step again, exactly and given what is known, and :meth:`ask` chooses the sentence, and the spans
    of it, by entropy per second of the person's time.

    Parameters
    ----------
    X : sequences of tokens
        All the text, with or without known labels.
    labels : sequence of str
        Types of spans, or labels of tokens.
    spans : bool
        Whether labels are those of spans (BIO inside) or of single tokens.
    crf : CRF, optional
        Features and regularisation of the model. A fitted CRF, without ``labels``, is the initial model: its labels
        are those of tokens.
    time_model : TimeModel, optional
        Seconds that a person takes; by default those of a published study.
    strategy : Strategy, optional
        How questions are chosen.
    random_state : int
        Seed.
    n_jobs : int
        Threads; -1 or None for all cores.

    Examples
    --------
    >>> pool = Pool([["Anna", "left"], ["Bob", "Ray", "left"]], ["PER"])
    >>> question = pool.ask()
    >>> pool.tell(question.sequence, [(0, 2, "PER")], [(0, 3)])
    >>> pool.learn(), pool.rescore()
    (True, 1.0)
    >>> question.sequence, pool.ask().sequence
    (1, 0)
    """

    def __init__(
        self,
        X: Any,
        labels: Sequence[str] = (),
        *,
        spans: bool = True,
        crf: CRF | None = None,
        time_model: TimeModel | None = None,
        strategy: Strategy | None = None,
        random_state: int = 0,
        n_jobs: int | None = -1,
    ) -> None:
        self.crf = CRF(c2=0.3, constraints="bio" if spans else None) if crf is None else crf
        require_chain(self.crf, "Pool")
        old = self.crf.model_ if self.crf._is_fitted() and not labels else None
        self.scheme = Scheme(labels, spans) if old is None else Scheme.of_model(old.labels, old.constraints)
        self.time_model = time_model or TimeModel()
        self.strategy = strategy or Strategy()
        self.n_jobs = n_jobs
        self.encoder = make_encoder(self.crf.features, X) if old is None else old.encoder.copy()
        read = self.encoder.read(X)
        self.data: Dataset = self.encoder.encode(read, True, n_jobs)
        self.offsets: Ints = self.data.offsets
        self.lengths = np.diff(self.offsets)
        self._words, self._counts = _word_numbers(read, self.data)
        self._pieces = [(a, b) for a, b in pieces(self.offsets, _PIECE)]
        self._firsts = np.array([a for a, _ in self._pieces], np.int64)
        self._data = [self._slice(a, b) for a, b in self._pieces]
        self.known: dict[int, Allowed] = {}
        self.closed = np.zeros(len(self.lengths), bool)  # sentences that are not asked again
        self._untold = np.ones(len(self.lengths), bool)  # sentences of which nothing is known
        self.recent: list[int] = []
        self.asked = 0 if old is None else self.cover
        self.version = int(old is not None)
        self.model = self._empty() if old is None else replace(old, encoder=self.encoder)
        self._rng = np.random.default_rng(random_state)
        n = self.data.n_tokens
        uniform = np.log(max(2, len(self.scheme.labels)))
        tokens = np.array([self.offsets[b] - self.offsets[a] for a, b in self._pieces], np.float64)
        none, nobody = (np.full(size, -1) for size in (len(self._pieces), len(self.lengths)))
        self._scores = _Scores(np.full(n, uniform), tokens, uniform * tokens, none, nobody)
        self._covered = np.zeros(len(self._counts), bool)
        self._reaching: Reach | None = None
        self._chunked: tuple[Scheme, ChunkLabels] | None = None
        self._rate = 0.0
        self._changes = 0  # of what is known, and of scores
        # the candidates of the last question, by version, changes and time model, and what they pay per second
        self._ranked: tuple[tuple[int, int, TimeModel], Ints, Vector] | None = None
        # sentences of each piece that may pay most
        top = [np.arange(a, min(b, a + _CANDIDATES)) for a, b in self._pieces]
        self._top: list[Ints] = top or [np.zeros(0, np.int64)]

    @property
    def cover(self) -> int:
        """Number of first questions, which cover the pool's words."""
        if self.strategy.cover is not None:
            return self.strategy.cover
        return max(5, len(self.scheme.names)) if self._with_reach else 5

    @property
    def _with_reach(self) -> bool:
        """Whether reach is taken into account."""
        return len(self.scheme.names) > _MANY if self.strategy.reach is None else self.strategy.reach

    @property
    def _reach(self) -> Reach | None:
        """How far the labels of tokens reach; None if that does not count."""
        if not self._with_reach:
            return None
        if self._reaching is None:
            self._reaching = Reach(self.data.ptr, self.data.attr)
            self._reaching.update(0, self._open_entropies(0, len(self.lengths)))
            for i in self.known:
                self._reaching.tell(int(self.offsets[i]), self._single(i))
        return self._reaching

    def _open_entropies(self, a: int, b: int) -> Vector:
        """Entropies of the tokens of some sequences; zero in those that are not asked again."""
        nodes = self._scores.nodes[int(self.offsets[a]) : int(self.offsets[b])]
        return np.where(np.repeat(self.closed[a:b], self.lengths[a:b]), 0.0, nodes)

    # what is known

    def tell(
        self, sequence: int, spans: Iterable[tuple[int, int, str | None]], judged: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Adds an answer: spans of a sequence, and the ranges of its tokens that are confirmed."""
        length = int(self.lengths[sequence])
        old = self.known.get(sequence)
        if old is None:
            old = self.scheme.anything(length)
        self.know(sequence, self.scheme.allowed(length, list(spans), list(judged), old))

    def know(self, sequence: int, allowed: Allowed | None) -> None:
        """What is known of a sequence, [T, L]; None for nothing."""
        if allowed is None or allowed.all():
            self.known.pop(sequence, None)
        else:
            self.known[sequence] = allowed
            self._covered[self._words[self.offsets[sequence] : self.offsets[sequence + 1]]] = True
        if (reach := self._reach) is not None:
            reach.tell(int(self.offsets[sequence]), self._single(sequence))
        self._untold[sequence] = sequence not in self.known
        self._changes += 1
        self._scores.version[self._piece_of(sequence)] = self._scores.sentence[sequence] = -1

    def _single(self, sequence: int) -> NDArray[np.bool_]:
        """Which tokens of a sequence have a label that is known."""
        known = self.known.get(sequence)
        return np.zeros(int(self.lengths[sequence]), bool) if known is None else known.sum(axis=1) == 1

    def relabel(self, names: Sequence[str], old_of: Callable[[str], str | None]) -> None:
        """Changes the labels' names; ``old_of`` gives the old name of a label, None for a new one.

        What is known stays known; the model is empty until it learns again. Merged labels are known through
        :meth:`know`.
        """
        before, self.scheme = self.scheme, Scheme(names, self.scheme.spans)
        source = []
        for label in self.scheme.labels:
            tag, name = (label[:2], label[2:]) if self.scheme.spans and label != "O" else ("", label)
            old = "O" if self.scheme.spans and label == "O" else old_of(name)
            source.append(-1 if old is None else before.number[tag + old if old != "O" else "O"])
        kept = np.array(source, np.int64)
        for i, allowed in list(self.known.items()):
            new = np.zeros((len(allowed), len(source)), bool)
            new[:, kept >= 0] = allowed[:, kept[kept >= 0]]
            new[allowed.sum(axis=1) > 1] |= kept < 0
            new[~new.any(axis=1)] = True
            self.known[i] = new
        self.model = self._empty()
        self._reaching = None
        self._changes += 1
        self._scores.version[:] = -1
        self._scores.sentence[:] = -1

    # learning

    def told(self) -> Told:
        """What is known now, to learn it while more is told.

        :meta private:
        """
        return Told(self.scheme, dict(self.known))

    def problem(self, told: Told | None = None) -> Problem | None:
        """The known labels (current, or an earlier snapshot) as a learning problem; None if there are none.

        :meta private:
        """
        scheme, known = told or self.told()
        ids = np.array(sorted(known), np.int64)
        if not len(ids) or not len(scheme.labels):
            return None
        data = self.data.take(ids)
        allowed = np.concatenate([known[i] for i in ids.tolist()])
        count = allowed.sum(axis=1)
        numbers = np.where(count == 1, allowed.argmax(axis=1), -1).astype(np.int32)
        some = np.flatnonzero((count > 1) & (count < allowed.shape[1]))
        crf, n = self.crf, len(scheme.labels)
        shape = crf.min_freq, crf.all_possible_states, crf.all_possible_transitions, crf.start_end
        rule = WeightRules(*shape, self.encoder.transitions)
        layout = Layout.build(data, numbers, n, self.encoder.n_attributes, rule)  # hints ask for no weights
        hints = np.zeros((0, n))
        if len(some):
            sets, which = np.unique(allowed[some], axis=0, return_inverse=True)
            numbers[some] = -2 - which.ravel()
            hints = np.where(sets, 0.0, -np.inf)
        penalties = crf.c2, 0.0, "sequence", 0
        data = data.without_zeros()
        return Problem(layout, data, numbers, hints, None, scheme.constraints, *penalties, crf.dtype, self.n_jobs)

    def learn(
        self, seconds: float | None = None, max_iter: int | None = 30, lock: AbstractContextManager[Any] = _FREE
    ) -> bool:
        """Learns what is known, from the weights of before; within some seconds if given.

        Parameters
        ----------
        seconds : float, optional
            Stop training after about this long.
        max_iter : int, optional
            Maximum number of iterations.
        lock : context manager
            Held while the pool is read or changed, for a moment, but not while what is known is laid out and learned.

        Returns
        -------
        bool
            Whether it reached the optimum.
        """
        with lock:
            told = self.told()
        problem = self.problem(told)
        if problem is None:
            return True
        result = self.train(problem, self.start(problem), seconds, max_iter)
        with lock:
            self.adopt(told, problem, result.w)
        return result.converged

    def start(self, problem: Problem) -> Vector:
        """The current weights, in the places that a problem has for them.

        :meta private:
        """
        model = self.model
        if model.layout.n_labels != problem.layout.n_labels:
            return np.zeros(problem.layout.size)
        return model.layout.move_weights(model.weights, problem.layout)

    def train(
        self,
        problem: Problem,
        w: Vector,
        seconds: float | None = None,
        max_iter: int | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result:
        """Minimises a problem, starting from w; does not touch the pool, so it may run at the same time.

        With ``stop``, which is asked after every iteration and may wait, on one thread.

        :meta private:
        """
        began = time.perf_counter()

        def over(_: Progress, __: Vector) -> bool:
            late = seconds is not None and time.perf_counter() - began > seconds
            return late or (stop is not None and stop())

        setattr(over, "borrows", True)  # noqa: B010 - mypy knows no attributes of functions
        jobs = self.n_jobs if stop is None else 1
        objective = SemiSupervisedObjective(replace(problem, n_jobs=jobs))
        return find_algorithm("lbfgs").minimize(objective, w, max_iter=max_iter, tol=1e-4, n_jobs=jobs, callback=over)

    def adopt(self, told: Told, problem: Problem, w: Vector) -> bool:
        """Copies a problem's weights into the model unless the labels have changed since. Returns whether it did.

        :meta private:
        """
        if told.scheme is not self.scheme:
            return False
        self.model = self.model_of(problem.layout, w)
        self.version += 1
        return True

    def model_of(self, layout: Layout, w: Vector) -> ChainModel:
        """A model of the pool's attributes and labels.

        :meta private:
        """
        rules, dtype = self.scheme.constraints, np.dtype(self.crf.dtype)
        return ChainModel(self.encoder, self.scheme.labels, layout, w, rules, dtype, self.crf._settings())

    def _empty(self) -> ChainModel:
        """A model that knows nothing."""
        n = max(1, len(self.scheme.labels))
        none = np.zeros(0, np.int32)
        data = Dataset(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint32))
        rule = WeightRules(transitions=self.encoder.transitions)
        layout = Layout.build(data, none, n, self.encoder.n_attributes, rule)
        return self.model_of(layout, np.zeros(layout.size))

    def estimator(self) -> CRF:
        """The model by itself, without attributes that have no weight, as a fitted CRF."""
        model = self.model
        keep = [np.diff(ptr) > 0 for ptr in (model.layout.state_ptr, model.layout.edge_ptr)]
        encoder = self.encoder.pruned(*keep)
        info = {"sequences": len(self.known)}
        crf = CRF(**self.crf.get_params(deep=False))
        crf.model_ = replace(model, encoder=encoder, layout=model.layout.without_empty_rows(), info=info)
        crf.n_iter_ = 0
        return crf

    # scores

    def potentials(self, ids: Ints | Sequence[int], given: bool = True, model: ChainModel | None = None) -> Potentials:
        """Scores of some sequences, with what is known of them unless told otherwise; of another model if given."""
        chosen = np.asarray(ids, np.int64)
        p = (model or self.model).score(self.data.take(chosen), self.n_jobs)
        return self._given(p, chosen) if given else p

    def _given(self, p: Potentials, ids: Ints, known: Mapping[int, Allowed] | None = None) -> Potentials:
        """The same, without what contradicts what is known."""
        assert p.offsets is not None
        known = self.known if known is None else known
        for k, i in enumerate(ids.tolist()):
            if (allowed := known.get(i)) is not None:
                p.unary[p.offsets[k] : p.offsets[k + 1]][~allowed] = -np.inf
        return p

    def rescore(self, seconds: float | None = None, lock: AbstractContextManager[Any] = _FREE) -> float:
        """Entropies of all tokens by the current model, or of as many as some seconds allow, oldest first.

        Parameters
        ----------
        seconds : float, optional
            Stop after about this long.
        lock : context manager
            Held while the pool is read or changed, but not while it is scored. Nothing may be told meanwhile.

        Returns
        -------
        float
            The fraction of the pool's tokens whose scores are those of the current model.
        """
        began = time.perf_counter()
        scores = self._scores
        if self.strategy.random:  # nothing is chosen by it
            scores.version[:] = self.version
        while len(self._pieces):
            with lock:
                model, version = self.model, self.version
                k = int(np.argmin(scores.version))
            if scores.version[k] == version:
                break
            a, b = self._pieces[k]
            p = self._given(model.score(self._data[k], self.n_jobs), np.arange(a, b))
            nodes, total = token_entropies(p, self.n_jobs)
            with lock:
                scores.nodes[int(self.offsets[a]) : int(self.offsets[b])], scores.total[k] = nodes, total
                if (reach := self._reach) is not None:
                    reach.update(int(self.offsets[a]), self._open_entropies(a, b))
                self._top[k] = self._tops(k)
                self._changes += 1
                scores.version[k] = scores.sentence[a:b] = version
            if seconds is not None and time.perf_counter() - began > seconds:
                break
        return self.fresh

    @property
    def fresh(self) -> float:
        """Fraction of the pool's tokens whose scores are those of the current model."""
        tokens = self._scores.tokens
        return float(tokens[self._scores.version == self.version].sum() / max(1.0, tokens.sum()))

    @property
    def entropy(self) -> float:
        """Entropy of all labels of the pool given what is known, in nats; as fresh as the scores are."""
        return float(self._scores.total.sum())

    def expect(
        self, ids: Ints | Sequence[int], known: Mapping[int, Allowed] | None = None, model: ChainModel | None = None
    ) -> Expected:
        """How many labels of some sequences are wrong, by the model itself and given what is known.

        Of what is known and of the current model, or of others, with which it may run while the pool changes.
        """
        model = model or self.model
        chosen = np.asarray(ids, np.int64)
        plain = self.potentials(chosen, False, model)
        path = decode_flat(plain, self.n_jobs)
        p = self._given(plain, chosen, known)
        offsets = p.lattice.offsets
        nodes = marginals(p, self.n_jobs).nodes
        none = np.zeros(len(chosen))

        wrong = over_rows(np.add, 1 - nodes[np.arange(len(path)), path], offsets)
        tokens = np.diff(offsets).astype(np.float64)
        if not self.scheme.spans or len(model.labels) < 2:
            return Expected(path, tokens, wrong, none, none, none)
        labels = ChunkLabels(model.labels)
        found = labels.find(path, offsets)
        right = chunk_probabilities(p, labels, found, self.n_jobs)
        spans = np.bincount(found.sequence, minlength=len(chosen)).astype(np.float64)
        hit = np.bincount(found.sequence, right, minlength=len(chosen))
        true = over_rows(np.add, nodes[:, 1::2].sum(axis=1), offsets)
        return Expected(path, tokens, wrong, spans, np.maximum(spans - hit, 0), np.maximum(true - hit, 0))

    def predictions(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The model's label of every token, without using what is known, and its probability; [N] each."""
        path = np.zeros(self.data.n_tokens, np.int32)
        chance = np.ones(self.data.n_tokens, np.float32)
        for k, (a, b) in enumerate(self._pieces):
            p = self.model.score(self._data[k], self.n_jobs)
            part = slice(int(self.offsets[a]), int(self.offsets[b]))
            path[part] = decode_flat(p, self.n_jobs)
            nodes = marginals(p, self.n_jobs).nodes
            chance[part] = nodes[np.arange(len(nodes)), path[part]]
        return path, chance

    def best_labels(self) -> NDArray[np.int32]:
        """The best labelling of every sequence given what is known, [N]."""
        parts = [np.zeros(0, np.int32)]
        for k, (a, b) in enumerate(self._pieces):
            p = self._given(self.model.score(self._data[k], self.n_jobs), np.arange(a, b))
            parts.append(decode_flat(p, self.n_jobs))
        return np.concatenate(parts)

    def _slice(self, a: int, b: int) -> Dataset:
        blocks = _core.tokens_per_block(len(self.scheme.labels))
        return in_blocks(self.data.take(np.arange(a, b)), blocks)

    def _piece_of(self, sequence: int) -> int:
        return int(np.searchsorted(self._firsts, sequence, side="right")) - 1

    # questions

    def ask(self, exclude: Iterable[int] = (), *, kind: str | None = None, quick: bool = False) -> Question | None:
        """The most useful question; None if nothing is left to ask.

        Parameters
        ----------
        exclude : iterable of int
            Sequences that are not asked now.
        kind : {"uncertain", "cover", "random"}, optional
            Which kind of question; by default what the strategy says.
        quick : bool
            If many people ask: reuse the candidates of the last question while scores are the same and half are left.
        """
        open_ = (self.lengths > 0) & ~self.closed
        open_[list(exclude)] = False
        if not open_.any():
            return None
        if kind is None:
            cold = self.asked < self.cover or not self.version
            kind = "random" if self.strategy.random else "cover" if cold else "uncertain"
        if kind == "random":
            fresh = np.flatnonzero(open_ & self._untold)
            return self.question(int(self._rng.choice(fresh)), "random", whole=True) if len(fresh) else None
        if kind == "cover":
            return self._cover(open_)
        return self._uncertain(open_, quick)

    def note(self, sequence: int, whole: bool = False) -> None:
        """Notes that a sequence was asked about: similar ones wait, and if all of it was asked, it is done."""
        self.asked += 1
        self.recent = [*self.recent, sequence][-_RECENT:]
        if whole:
            self.closed[sequence] = True

    def _cover(self, open_: NDArray[np.bool_]) -> Question | None:
        """The sentence with the most new words, by how often they are in the pool, per second."""
        fresh = open_ & self._untold
        if not fresh.any():
            return self._uncertain(open_)
        value = np.log1p(self._counts)[self._words] * ~self._covered[self._words]
        seconds = self.time_model.seconds(0, 0) + self.lengths * (self.time_model.token + self.time_model.correction)
        worth = np.where(fresh, over_rows(np.add, value, self.offsets) / seconds, -1.0)
        return self.question(int(np.argmax(worth)), "cover", whole=True)

    def _uncertain(self, open_: NDArray[np.bool_], quick: bool = False) -> Question | None:
        best, ratio = self._candidates(open_, quick)
        if not len(best):
            return None
        worth = ratio * (1 - self.strategy.spread * self._likeness(best))
        return self.question(int(best[int(np.argmax(worth))]), "uncertain", whole=self.strategy.whole)

    def _candidates(self, open_: NDArray[np.bool_], quick: bool) -> tuple[Ints, Vector]:
        """The sentences that pay most, by the current model, and how much per second."""
        state = self.version, self._changes, self.time_model
        if quick and self._ranked is not None and self._ranked[0] == state:
            _, best, ratio = self._ranked
            left = open_[best]
            if 2 * np.count_nonzero(left) > len(best):
                return best[left], ratio[left]
        best = np.concatenate(self._top)
        best = best[open_[best]]
        if not len(best):
            best = np.flatnonzero(open_)
        best, ratio = self._best(best)
        old = best[self._scores.sentence[best] != self.version]
        if len(old):  # what is asked is asked by the current model
            found, _ = token_entropies(self.potentials(old), self.n_jobs)
            self._scores.nodes[rows_of(self.offsets, old)[0]] = found
            self._scores.sentence[old] = self.version
            best, ratio = self._best(best)
        self._ranked = state, best, ratio
        return best, ratio

    def _best(self, ids: Ints) -> tuple[Ints, Vector]:
        r"""Those of some sentences that pay most, and how much per second, best first.

        With gains g and seconds c of the tokens, the best ratio :math:`\lambda` of a sentence and a subset of its
        tokens is where :math:`\max_i \sum_t \max(0, g_t - \lambda c_t) - \lambda s = 0` (Dinkelbach). Those of the
        other sentences are taken with the same :math:`\lambda`.
        """
        rows, offsets = rows_of(self.offsets, ids)
        gain, cost = self._gains(rows)
        for _ in range(20):
            ratio = self._ratios(gain, cost, offsets, self._rate)
            new = float(ratio.max(initial=0.0))
            done, self._rate = abs(new - self._rate) <= 1e-4 * max(new, 1e-12), new
            if done or self.strategy.whole:
                break
        top = min(_CANDIDATES, len(ids))
        best = np.argsort(-ratio, kind="stable")[:top]
        best = best[ratio[best] > 1e-12]
        return ids[best], ratio[best]

    def _gains(self, where: slice | Ints) -> tuple[Vector, Vector]:
        """What the labels of some tokens would tell, and the seconds that they would take."""
        nodes, m = self._scores.nodes[where], self.time_model
        return nodes**self.strategy.power * self._weight(where), m.token + m.correction * (1 - np.exp(-nodes))

    def _weight(self, where: slice | Ints) -> Vector:
        """What the entropies of some tokens count."""
        reach = self._reach
        return np.ones(len(self._words[where])) if reach is None else reach.weights(where)

    def _ratios(self, gain: Vector, cost: Vector, offsets: Ints, rate: float) -> Vector:
        """Gain per second of sentences, of the tokens that pay more than a rate, or of whole sentences."""
        if not self.strategy.whole:
            used = gain > rate * cost
            gain, cost = np.where(used, gain, 0.0), np.where(used, cost, 0.0)
        reading = max(self.time_model.sentence, _READING)
        return over_rows(np.add, gain, offsets) / (reading + over_rows(np.add, cost, offsets))

    def _tops(self, k: int) -> Ints:
        """The sentences of a piece that may pay most, by the rate of the question before."""
        a, b = self._pieces[k]
        first, last = int(self.offsets[a]), int(self.offsets[b])
        gain, cost = self._gains(slice(first, last))
        ratio = self._ratios(gain, cost, self.offsets[a : b + 1] - first, self._rate)
        ratio[self.closed[a:b]] = -1.0
        top = min(b - a, max(8, 8 * _CANDIDATES // len(self._pieces)))
        best = np.argpartition(-ratio, top - 1)[:top]
        return np.asarray(a + best[ratio[best] > 1e-12])

    def _likeness(self, ids: Ints) -> Vector:
        """How much of the words of some sentences is in the most similar of those asked last, from 0 to 1."""
        if not self.recent:
            return np.zeros(len(ids))
        kinds = len(self._counts)

        def bags(sentences: Ints) -> tuple[Ints, Ints, Vector]:
            rows, _ = rows_of(self.offsets, sentences)
            of = np.repeat(np.arange(len(sentences)), self.lengths[sentences])
            which, words = np.divmod(np.unique(of * kinds + self._words[rows]), kinds)
            return which, words, np.bincount(which, minlength=len(sentences)).astype(np.float64)

        which, words, sizes = bags(ids)
        theirs, their_words, their_sizes = bags(np.array(self.recent, np.int64))
        marked = np.zeros((len(self.recent), kinds), bool)
        marked[theirs, their_words] = True
        common = np.array([np.bincount(which, row[words], minlength=len(ids)) for row in marked])
        alike = common / np.maximum(sizes + their_sizes[:, np.newaxis] - common, 1.0)
        return np.asarray(alike.max(axis=0))

    def _spans_of(self, i: int, units: list[tuple[int, int]], p: Potentials) -> tuple[float, list[tuple[int, int]]]:
        """Gain, and the units that are asked: in the order of gain per second, while the mean rises."""
        entropies, m = span_entropies(p, self.n_jobs), self.time_model
        weight = self._weight(slice(int(self.offsets[i]), int(self.offsets[i + 1])))
        rows = []
        for a, b in units:
            entropy = entropies.span(a, b, 0)
            seconds = m.token * (b - a) + m.correction * (1 - float(np.exp(-entropy)))
            rows.append((entropy**self.strategy.power * float(weight[a:b].max()), seconds, (a, b)))
        rows.sort(key=lambda row: -row[0] / max(row[1], 1e-9))  # it may take no time
        gain, seconds = 0.0, m.sentence
        chosen: list[tuple[int, int]] = []
        for g, s, unit in rows:
            if not self.strategy.whole and chosen and g * seconds <= gain * s:
                break
            if g > 1e-9 or self.strategy.whole:
                gain, seconds = gain + g, seconds + s
                chosen.append(unit)
        return gain, sorted(chosen)

    def question(
        self,
        i: int,
        kind: str = "uncertain",
        *,
        whole: bool = False,
        given: bool = True,
        asked: Sequence[tuple[int, int]] = (),
    ) -> Question:
        """The question about a sentence; ``whole`` asks for all of its spans that are not known.

        With ``given=False``, as if nothing were known of it; with ``asked``, about these spans.
        """
        p = self.potentials([i], given)
        path = decode_flat(p, self.n_jobs).tolist()
        units = [(a, b) for a, b, _ in self.scheme.chunks(path)]
        if whole:
            single = self._single(i) & given
            chosen = [(a, b) for a, b in units if not single[a:b].all()]
            gain = self._spans_of(i, units, p)[0]
        else:
            gain, chosen = self._spans_of(i, units, p)
        spans = self._choices(p, list(asked) or chosen)
        wrong = sum((1 - s.choices[0].p) * (s.end - s.start) for s in spans if s.choices)
        tokens = sum(s.end - s.start for s in spans)
        guess = [self.scheme.labels[k] for k in path] if self.scheme.labels else []
        return Question(i, kind, spans, guess, self.time_model.seconds(tokens, wrong), gain)

    def _chunk_labels(self) -> ChunkLabels:
        """What the labels say of chunks, made once."""
        if self._chunked is None or self._chunked[0] is not self.scheme:
            self._chunked = self.scheme, ChunkLabels(self.scheme.labels)
        return self._chunked[1]

    def _choices(self, p: Potentials, units: list[tuple[int, int]]) -> list[AskedSpan]:
        """The labels that each unit may have, with exact probabilities, most likely first."""
        names = self.scheme.names
        if not self.scheme.spans:
            nodes = marginals(p, self.n_jobs).nodes
            return [
                AskedSpan(a, b, _sorted([Choice(name, float(x)) for name, x in zip(names, nodes[a], strict=True)]))
                for a, b in units
            ]
        if not names:
            return [AskedSpan(a, b, [Choice(None, 1.0)]) for a, b in units]
        labels = self._chunk_labels()
        k = len(names)
        start, end = (np.repeat(np.array([u[j] for u in units], np.int64), k) for j in (0, 1))
        kinds = np.tile(np.array([labels.kinds.index(name) for name in names], np.int64), len(units))
        inside = chunk_probabilities(p, labels, Chunks(np.zeros_like(start), kinds, start, end), self.n_jobs)
        found = marginals(p, self.n_jobs, pairs=True)
        out = []
        for j, (a, b) in enumerate(units):
            nothing = float(found.nodes[a, 0])
            for t in range(a, b - 1):
                nothing *= float(found.edges[t, 0, 0] / max(found.nodes[t, 0], 1e-300))
            some = [Choice(name, float(x)) for name, x in zip(names, inside[j * k : (j + 1) * k], strict=True)]
            out.append(AskedSpan(a, b, _sorted([Choice(None, nothing), *some])))
        return out


def _sorted(choices: list[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda choice: -choice.p)


def _word_numbers(read: Any, data: Dataset) -> tuple[Ints, Vector]:
    """A number for each token's word [N], and how often each is in the pool; of items, the rarest attribute's."""
    if isinstance(read, Columns):
        _, numbers = np.unique(read.ids[:, 0], return_inverse=True)
    elif data.n_tokens and data.attr.size:
        count = np.bincount(data.attr)
        order = over_rows(np.minimum, count[data.attr] * (len(count) + 1) + data.attr, data.ptr, 0)
        _, numbers = np.unique(order % (len(count) + 1), return_inverse=True)
    else:
        numbers = np.zeros(data.n_tokens, np.int64)
    return numbers.astype(np.int64), np.bincount(numbers, minlength=1).astype(np.float64)
