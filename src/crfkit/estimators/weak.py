"""Weak labels: turns votes of rules, lexicons and annotators into soft labels."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from hashlib import blake2b
from typing import Any, NamedTuple, Never, Self

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import counted as in_words
from crfkit.base.parameters import check_number
from crfkit.chain.constraints import SCHEMES, TAGS, Constraints
from crfkit.data.labels import LabelLists
from crfkit.data.sequences import check_sequences
from crfkit.estimators.hmm import HMM
from crfkit.estimators.hmm_tables import Counter, Tables
from crfkit.features.encoders import plain_lists

#: A function of a sequence that gives spans (start, end, label), or None; or labels of all sequences, None for no vote.
Source = Callable[[Any], Iterable[tuple[int, int, str]] | None] | Sequence[Any]

_ABSTAINS = "\x00"  # the vote of a source that has none
_SHOWN = 6  # most sources in a repr
_SURE = 0.9  # how far a first guess trusts the votes


class Reliability(NamedTuple):
    """The reliability of a source.

    Attributes
    ----------
    source : str
    coverage : float
        Fraction of the tokens on which it votes.
    accuracy : float
        Fraction of its votes that are right, as expected from the labels' posterior probabilities.
    recall : float
        Fraction of the tokens whose label is not O on which it votes correctly, as expected in the same way.
    """

    source: str
    coverage: float
    accuracy: float
    recall: float


def _refused(name: str, instead: str = "transform(X) gives labels, with which to train a CRF") -> Any:
    """A method of HMM that is for tokens, and not for votes on them."""

    def refuse(self: WeakLabels) -> Never:
        raise AttributeError(f"WeakLabels has no {name!r}: {instead}")

    return property(refuse, doc=f"Not supported: {instead}.")


class WeakLabels(HMM):
    r"""Combines the votes of several sources of unequal quality into labels.

    The true labels are the states of a hidden Markov model, and each source is one of its emissions. With
    :math:`v_t^{(s)}` the vote of source s on token t, which may be to abstain,

    .. math:: p(v, y) = \pi(y_0) \prod_{t > 0} p(y_t \mid y_{t-1}) \prod_t \prod_s p(v_t^{(s)} \mid y_t)

    Baum-Welch starts from the agreement of the votes, and learns how often each source is right, without true labels.
    Its posterior probabilities are soft labels, which :meth:`CRF.fit <crfkit.CRF.fit>` takes.

    Parameters
    ----------
    sources : dict
        Maps names to sources. A source is a function that takes a sequence and returns spans ``(start, end, type)``,
        where ``end`` is the token after the last, or None; it abstains on all other tokens. Or it is a list of labels
        for every sequence, as from an annotator, with None where there is no vote; a sequence without any votes may be
        None. Such a list is for the sequences of ``fit``: for others, set ``sources`` to their votes.
    labels : sequence of str
        With a ``scheme``, the types of spans: the labels are ``O`` and those that the scheme has for each type. Without
        one, the labels themselves; a span then has its label on each of its tokens.
    scheme : {"bio", "iob1", "bioes", "bilou"} or None
        Scheme of the labels of spans.
    smoothing, transition_smoothing, max_iter, tol, n_jobs
        As for :class:`~crfkit.HMM`.

    Attributes
    ----------
    reliability_ : list of Reliability
        One for each source, on the sequences of ``fit``.
    emissions_ : list of arrays
        For each source, probabilities of its votes (``vocabulary_``) for each label (``classes_``).

    Examples
    --------
    >>> from crfkit import CRF, WeakLabels
    >>> X = [["Anna", "saw", "Paris"], ["Ben", "left"], ["Paris", "slept"]]
    >>> names = {"Anna", "Ben"}
    >>> weak = WeakLabels(
    ...     {
    ...         "names": lambda x: [(t, t + 1, "PER") for t, word in enumerate(x) if word in names],
    ...         "capitals": lambda x: [(t, t + 1, "PER") for t, word in enumerate(x) if word[0].isupper()],
    ...         "cities": lambda x: [(t, t + 1, "LOC") for t, word in enumerate(x) if word == "Paris"],
    ...     },
    ...     ["PER", "LOC"],
    ... )
    >>> soft = weak.fit_transform(X)
    >>> max(soft[0][0], key=soft[0][0].get)
    'B-PER'
    >>> crf = CRF().fit(X, soft)
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        labels: Sequence[str],
        *,
        scheme: str | None = "bio",
        smoothing: float = 0.1,
        transition_smoothing: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-6,
        n_jobs: int | None = -1,
    ) -> None:
        super().__init__(
            smoothing=smoothing, transition_smoothing=transition_smoothing, max_iter=max_iter, tol=tol, n_jobs=n_jobs
        )
        self.sources = sources
        self.labels = labels
        self.scheme = scheme

    predict: Any = _refused("predict")
    predict_marginals: Any = _refused("predict_marginals")
    predict_proba: Any = _refused("predict_proba")
    predict_nbest: Any = _refused("predict_nbest")
    predict_entities: Any = _refused("predict_entities")
    decode: Any = _refused("decode")
    sample: Any = _refused("sample")
    potentials: Any = _refused("potentials")
    score: Any = _refused("score", "compare the labels of transform(X) with true ones")
    score_samples: Any = _refused("score_samples")
    log_joint: Any = _refused("log_joint")
    log_likelihood: Any = _refused("log_likelihood")
    aic: Any = _refused("aic")
    bic: Any = _refused("bic")
    generate: Any = _refused("generate")
    save: Any = _refused("save", "train a CRF on the labels of transform(X) and save that")

    def __repr__(self) -> str:
        sources: Any = self.sources
        if isinstance(sources, Mapping):
            few = [f"{name!r}: {_described(source)}" for name, source in list(sources.items())[:_SHOWN]]
            text = f"{{{', '.join([*few, '...'] if len(sources) > _SHOWN else few)}}}"
        else:
            text = reprlib.repr(sources)
        short = {name: reprlib.repr(getattr(self, name)) for name in self._parameters() if name != "sources"}
        rest = [f"{k}={v}" for k, v in short.items() if v != reprlib.repr(self._parameters()[k].default)]
        return f"WeakLabels({', '.join([f'sources={text}', *rest])})"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise ValueError("'sources' of WeakLabels must be a dict of names and sources, and not empty")
        for name, source in self.sources.items():
            if not callable(source) and (not isinstance(source, Sized) or isinstance(source, (str, Mapping, Set))):
                raise ValueError(f"source {name!r} must be a function or a list, got {reprlib.repr(source)}")
        if self.scheme is not None and self.scheme not in SCHEMES:
            raise ValueError(f"'scheme' of WeakLabels must be one of {', '.join(SCHEMES)} or None, got {self.scheme!r}")
        given: Any = self.labels
        labels = () if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable) else tuple(given)
        if not labels or any(not isinstance(x, str) or not x for x in labels) or len(set(labels)) != len(labels):
            raise ValueError(f"'labels' of WeakLabels must be a list of distinct strings, got {self.labels!r}")
        kinds = [x[2:] for x in labels if x[:1] in TAGS and x[1:2] == "-"]
        if self.scheme is not None and ("O" in labels or len(set(kinds)) < len(kinds)):
            raise ValueError(
                f"'labels' of WeakLabels must be types of spans, such as 'PER', for scheme={self.scheme!r}, got "
                f"{self.labels!r}: leave out tags and O, or set scheme=None"
            )

    @property
    def _names(self) -> tuple[str, ...]:
        """The labels of tokens."""
        if self.scheme is None:
            return tuple(self.labels)
        tags = sorted(SCHEMES[self.scheme].tags, key="BISELU".index)
        return ("O", *(f"{tag}-{kind}" for kind in self.labels for tag in tags))

    def fit(self, X: Any, y: Any = None, *, resume: bool = False) -> Self:
        """Learns how reliable each source is from its votes on the sequences; ``y`` is not used."""
        self._check_parameters()
        X = _listed(X)
        votes = self.votes(X)
        super().fit(votes)
        self.reliability_ = self._measure(votes)
        lists = {name: source for name, source in self.sources.items() if not callable(source)}
        self._learned_from = lists, _trace(X) if lists else b""
        return self

    def fit_transform(self, X: Any, y: Any = None, **how: Any) -> list[list[Any]]:
        """Learns from the votes, and returns the labels of the sequences, as :meth:`transform` does."""
        X = _listed(X)
        return self.fit(X).transform(X, **how)

    def transform(self, X: Any, form: str = "soft", least: float | None = None) -> list[list[Any]]:
        """Labels of the sequences, for :meth:`CRF.fit <crfkit.CRF.fit>`.

        Parameters
        ----------
        X : sequences of tokens
            Those of ``fit``, or others. Sources that are lists have no votes on others, which is an error; it is
            not detected if the other data has the same tokens in the same order.
        form : {"soft", "set"}
            For each token a soft label, a dict of labels and probabilities; or a partial label: the set of labels that
            are probable enough, the label itself if there is only one, None if the set holds all labels.
        least : float, optional
            Labels less probable than this are left out, except the most probable one. The default is 0.001 for soft
            labels and 0.1 for sets.
        """
        if form not in ("soft", "set"):
            raise ValueError(f"'form' of transform must be 'soft' or 'set', got {form!r}")
        check_number("transform", "least", least, 0, optional=True)
        if least is not None and least > 1:
            raise ValueError(f"'least' of transform must be at most 1, got {least!r}")
        least = {"soft": 0.001, "set": 0.1}[form] if least is None else least
        names = self.classes_.tolist()
        X = _listed(X)
        self._check_lists(X)
        out = LabelLists()
        for p in super().predict_marginals(self.votes(X)):
            bounds = np.minimum(least, p.max(axis=1)).tolist()
            out.append(
                [
                    {name: x for name, x in zip(names, row, strict=True) if x >= bound}
                    for row, bound in zip(p.tolist(), bounds, strict=True)
                ]
            )
            if form == "set":
                out[-1] = [_partial(soft, len(names)) for soft in out[-1]]
        return out

    def votes(self, X: Any) -> list[list[tuple[str, ...]]]:
        """The votes of the sources on every token."""
        self._check_parameters()
        X = _listed(X)
        for name, source in self.sources.items():
            if not callable(source) and len(source) != len(X):
                raise ValueError(
                    f"source {name!r}: there are votes for {in_words(len(source), 'sequence')}, but 'X' holds {len(X)}"
                )
        columns = [[self._vote(name, source, i, x) for i, x in enumerate(X)] for name, source in self.sources.items()]
        return [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)]

    def _check_lists(self, X: list[Any]) -> None:
        """Raises if a list of votes for the sequences of ``fit`` would be used for others."""
        if list(self.sources) != (known := [one.source for one in self.reliability_]):
            raise ValueError(f"'sources' of WeakLabels must be those of fit, {known}, got {list(self.sources)}")
        lists, trace = self._learned_from
        old = [name for name, votes in lists.items() if self.sources.get(name) is votes]
        if old and len(self.sources[old[0]]) == len(X) and _trace(X) != trace:  # type: ignore[arg-type]
            raise ValueError(
                f"source {old[0]!r} is a list of votes for the sequences of fit, and 'X' holds others: set 'sources' "
                "to votes for these, or use functions"
            )

    def _vote(self, name: str, source: Source, i: int, x: Any) -> list[str]:
        known, place = set(self._names), f"source {name!r}, sequence {i}"
        if not callable(source):
            given: Any = source[i]
            if given is not None and (isinstance(given, (str, Mapping)) or not isinstance(given, Iterable)):
                raise ValueError(f"{place}: votes must be a list of labels or None, got {reprlib.repr(given)}")
            row = [None] * len(x) if given is None else list(given)
            if len(row) != len(x):
                raise ValueError(
                    f"{place}: there must be a vote or None for {in_words(len(x), 'token')}, got {len(row)}"
                )
            for vote in row:
                if vote is not None and not (isinstance(vote, str) and vote in known):
                    raise ValueError(f"{place}: {vote!r} is not one of the labels")
            return [_ABSTAINS if vote is None else vote for vote in row]
        out = [_ABSTAINS] * len(x)
        try:
            found = source(x)
        except Exception as e:
            e.add_note(f"raised by {place} of WeakLabels")
            raise
        for start, end, kind in _spans(found, place):
            if not 0 <= start < end <= len(x):
                raise ValueError(f"{place}: a span from {start} to {end} of {in_words(len(x), 'token')}")
            if kind not in self.labels:
                raise ValueError(f"{place}: {kind!r} is not one of the labels")
            out[start:end] = self._written(kind, end - start)
        return out

    def _written(self, kind: str, length: int) -> list[str]:
        """A span as labels."""
        if self.scheme is None:
            return [kind] * length
        scheme = SCHEMES[self.scheme]
        if length == 1:
            tags = "".join(sorted(scheme.begins & scheme.ends, key="SUBI".index)[:1])
        else:
            first = min(scheme.begins - (scheme.ends - {"B", "I"}), key="BI".index)
            last = "I" if "I" in scheme.ends else min(scheme.ends, key="ELSU".index)
            tags = first + "I" * (length - 2) + last
        return [f"{tag}-{kind}" for tag in tags]

    def _labels(
        self, y: Any, offsets: NDArray[np.int64], known: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], NDArray[np.int32] | None, NDArray[np.bool_] | None]:
        return self._names, None, np.ones((int(offsets[-1]), len(self._names)), bool)

    def _beginning(self, counted: Counter, allowed: NDArray[np.bool_], given: Mapping[str, Any]) -> Tables:
        """Where the votes agree: each vote counts for its label, and no vote at all for O or for any label."""
        names = self._names
        number = {name: j for j, name in enumerate(names)}
        n = len(names)
        first = np.zeros((counted.data.n_tokens, n))
        for values, column in zip(counted.vocabulary.values, counted.columns, strict=True):
            label = np.array([number.get(value, -1) for value in values])[column]
            voted = np.flatnonzero(label >= 0)
            first[voted, label[voted]] += 1.0
        total = first.sum(axis=1, keepdims=True)
        nobody = np.full(n, 1.0 / n)
        if "O" in number:
            nobody = np.where(np.arange(n) == number["O"], _SURE, (1 - _SURE) / max(n - 1, 1))
        first = np.where(total > 0, _SURE * first / np.maximum(total, 1) + (1 - _SURE) / n, nobody)
        tables = self._estimate(*counted.expected(iter([(first, None)]), n))
        if self.scheme is None:
            return tables
        rules = Constraints.from_scheme(names, self.scheme)
        transitions, start = tables.transitions * rules.transitions, tables.start * rules.start
        return Tables(start / start.sum(), transitions / transitions.sum(axis=1, keepdims=True), tables.emissions)

    def _measure(self, votes: list[list[tuple[str, ...]]]) -> list[Reliability]:
        """Of every source, from its votes and the posterior probabilities of the labels."""
        number = {label: j for j, label in enumerate(self.classes_.tolist())}
        p = np.concatenate(super().predict_marginals(votes)).astype(np.float64)
        outside = number.get("O", -1)
        inside = max(float(np.delete(p, outside, axis=1).sum()) if outside >= 0 else float(len(p)), 1e-300)
        out = []
        for name, column in zip(self.sources, zip(*itertools.chain.from_iterable(votes), strict=True), strict=True):
            label = np.array([number.get(vote, -1) for vote in column])
            voted = np.flatnonzero(label >= 0)
            right = p[voted, label[voted]]
            accuracy, recall = right.sum() / max(len(voted), 1), right[label[voted] != outside].sum() / inside
            out.append(Reliability(name, len(voted) / len(p), float(accuracy), float(recall)))
        return out


def _described(source: Source) -> str:
    """A source in a few words."""
    if callable(source):
        return f"<function {getattr(source, '__name__', type(source).__name__)}>"
    return f"<votes for {in_words(len(source), 'sequence')}>" if isinstance(source, Sized) else reprlib.repr(source)


def _spans(found: Any, place: str) -> list[tuple[int, int, str]]:
    """What a function has returned, if it is spans."""
    if found is None:
        return []
    rule = f"{place}: the function must return spans (start, end, type)"
    if isinstance(found, (str, Mapping)) or not isinstance(found, Iterable):
        raise ValueError(f"{rule} or None, got {reprlib.repr(found)}")
    spans = []
    for span in found:
        good = isinstance(span, (tuple, list)) and len(span) == 3
        if not (good and all(isinstance(t, (int, np.integer)) for t in span[:2]) and isinstance(span[2], str)):
            raise ValueError(f"{rule}, got {reprlib.repr(span)} among them")
        spans.append((span[0], span[1], span[2]))
    return spans


def _listed(X: Any) -> list[Any]:
    """The sequences in a list, even if they come one by one."""
    return list(check_sequences(plain_lists(X), text=True))


def _trace(X: Iterable[Any]) -> bytes:
    """A digest of the texts of all tokens; of one without text, only its type counts."""
    out = blake2b(digest_size=16)
    for x in X:
        out.update(repr([_text(token) for token in x]).encode("utf-8", "surrogatepass"))
    return out.digest()


def _text(token: Any) -> Any:
    if isinstance(token, (str, int, np.integer)):
        return str(token)
    if isinstance(token, (list, tuple)):
        return [_text(part) for part in token]
    return sorted(map(str, token)) if isinstance(token, Mapping) else type(token).__name__


def _partial(soft: dict[str, float], n_labels: int) -> str | set[str] | None:
    """A set for a soft label, a label for a set of one, None for that of all."""
    if len(soft) == n_labels and n_labels > 1:
        return None
    return next(iter(soft)) if len(soft) == 1 else set(soft)
