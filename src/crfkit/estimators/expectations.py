"""The user's expectations about the labels of unlabelled sequences."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.messages import counted, warn
from crfkit.base.parameters import check_number
from crfkit.data.dataset import Dataset
from crfkit.data.labels import collect_labels, label_numbers
from crfkit.data.readers import DataError, pieces
from crfkit.data.tokens import lower_case
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder
from crfkit.features.hashing import HashedEncoder
from crfkit.training.expectations import Criteria

#: In place of an attribute: every token.
EVERY = "*"
#: What is made of expectations.
METHODS = ("expectation", "posterior")
_SHOWN = 5  # most names in a message
#: A set of labels, and the fraction of the tokens that have one of them.
Bound = tuple[Iterable[Any], float]


class Expectations:
    r"""Expected label distributions of tokens that have a given attribute and no known label.

    For :meth:`CRF.fit <crfkit.CRF.fit>`, which adds to its objective

    .. math:: \sum_k \lambda_k \mathrm{KL}(q_k \Vert p_k), \qquad p_k = \frac{1}{n_k} \sum_{t \in k} P(y_t \mid x)

    over the unlabelled sequences (Mann and McCallum's generalised expectation criteria): :math:`q_k` is the expected
    distribution, :math:`p_k` the mean of the model's over the :math:`n_k` tokens with the attribute. With
    ``method="posterior"`` (posterior regularisation, Ganchev and others) it adds instead

    .. math::

        \lambda \min_q \Bigl[\mathrm{KL}(q \Vert p)
        + \frac{1}{2 \varepsilon} \sum_k n_k \lVert p_k(q) - q_k \rVert^2\Bigr], \qquad \varepsilon = 0.01

    the divergence of the model from the closest distribution over labellings that nearly has the expected
    distributions. A bound costs only the amount by which it is missed.

    Parameters
    ----------
    distributions : dict
        Maps attributes, named as in :attr:`CRF.state_features_ <crfkit.CRF.state_features_>`, to dicts of labels and
        probabilities; ``"*"`` stands for every token. If they sum to less than 1, the other labels share the rest in
        any proportion.
    at_least, at_most : dict
        Maps attributes to pairs of a label, or a set of labels, and a fraction: of the tokens with the attribute, at
        least, or at most, this fraction has one of the labels: ``at_least`` 1 means always,
        ``at_most`` 0 means never. A bound that is met costs nothing.
    weight : float
        :math:`\lambda_k` is this, times :math:`n_k` if ``per`` is ``"token"``. With ``"posterior"``, :math:`\lambda`.
    per : {"token", "criterion"}
        Whether a criterion is weighted by its number of tokens, as labels are in the likelihood, or counts once, as in
        MALLET. ``"criterion"`` is for the method ``"expectation"`` only.
    method : {"expectation", "posterior"}
        Generalised expectation or posterior regularisation. An evaluation of ``"posterior"`` takes several times as
        long; it constrains the labellings of each sequence, where ``"expectation"`` constrains means.

    Examples
    --------
    >>> from crfkit import CRF, Expectations
    >>> X = [["two", "cups"], ["three", "pears"], ["two", "pears"]]
    >>> wanted = Expectations({"word=two": {"QTY": 0.95}, "word=three": {"QTY": 0.95}, "suffix1=s": {"NAME": 0.9}})
    >>> crf = CRF().fit(X, [None, None, None], expectations=wanted)
    >>> crf.predict([["three", "cups"]])
    [['QTY', 'NAME']]
    """

    def __init__(
        self,
        distributions: Mapping[str, Mapping[Any, float]] | None = None,
        *,
        at_least: Mapping[str, Bound] | None = None,
        at_most: Mapping[str, Bound] | None = None,
        weight: float = 1.0,
        per: str = "token",
        method: str = "expectation",
    ) -> None:
        check_number("Expectations", "weight", weight, 0, strict=True)
        if np.isinf(weight):
            raise ValueError(f"'weight' of Expectations must be finite, got {weight!r}")
        choices = {"per": (per, "token", "criterion"), "method": (method, *METHODS)}
        for name, (value, a, b) in choices.items():
            if value not in (a, b):
                raise ValueError(f"{name!r} of Expectations must be {a!r} or {b!r}, got {value!r}")
        if method == "posterior" and per != "token":
            raise ValueError("'per' of Expectations must be 'token' for the method 'posterior'")
        self.weight, self.per, self.method = float(weight), per, method
        self._may_be_missing = False
        for what, given in (("distributions", distributions), ("at_least", at_least), ("at_most", at_most)):
            if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
                raise ValueError(f"{what!r} of Expectations must be a dict of attributes, got {reprlib.repr(given)}")
        self.distributions = {name: _shares(name, row) for name, row in (distributions or {}).items()}
        self.at_least = {name: _bound(name, ">=", pair) for name, pair in (at_least or {}).items()}
        self.at_most = {name: _bound(name, "<=", pair) for name, pair in (at_most or {}).items()}
        if not len(self):
            raise ValueError("Expectations must hold at least one distribution or bound")

    def __len__(self) -> int:
        return len(self.distributions) + len(self.at_least) + len(self.at_most)

    def __repr__(self) -> str:
        return f"Expectations({len(self)} criteria, weight={self.weight:g}, per={self.per!r}, method={self.method!r})"

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels that are named."""
        named = [set(row) for row in self.distributions.values()]
        named += [set(labels) for labels, _ in (*self.at_least.values(), *self.at_most.values())]
        return collect_labels([sorted(set().union(*named), key=lambda x: (isinstance(x, str), x))])

    @classmethod
    def count(
        cls,
        X: Any,
        y: Any,
        features: FeatureSource = "auto",
        *,
        top: int = 30,
        attributes: Sequence[str] | None = None,
        smoothing: float = 0.1,
        min_count: int = 3,
        **how: Any,
    ) -> Expectations:
        """Estimates the distributions by counting on labelled sequences.

        Parameters
        ----------
        X, y : sequences of tokens, and their labels
            Tokens without a label do not count.
        features
            As for :class:`~crfkit.CRF`.
        top : int
            Number of attributes: those with the highest mutual information with the label.
        attributes : sequence of str, optional
            Use these attributes instead.
        smoothing : float
            Added to each count, so that unseen labels have some probability.
        min_count : int
            Attributes that occur less often are not considered.
        **how
            ``weight``, ``per`` and ``method``, as for the class.

        Examples
        --------
        >>> from crfkit import Expectations
        >>> X, y = [["two", "cups"], ["two", "pears"]], [["QTY", "UNIT"], ["QTY", "NAME"]]
        >>> Expectations.count(X, y, attributes=["word=two"], smoothing=0).distributions
        {'word=two': {'NAME': 0.0, 'QTY': 1.0, 'UNIT': 0.0}}
        """
        check_number("count", "top", top, 1, integer=True)
        check_number("count", "smoothing", smoothing, 0)
        check_number("count", "min_count", min_count, 0)
        if isinstance(attributes, str):
            raise ValueError(f"'attributes' of count must be a list, got {attributes!r}")
        encoder = make_encoder(features, X)
        data = encoder.encode(X, True, 1)
        labels = collect_labels(y)
        numbers, _ = label_numbers(y, labels, data.offsets)
        names = encoder.names()
        token = np.repeat(np.arange(data.n_tokens), np.diff(data.ptr))
        known = numbers[token] >= 0
        counts = np.zeros((len(names), len(labels)))
        np.add.at(counts, (data.attr[known], numbers[token[known]]), 1.0)
        if attributes is None:
            gain = _information(counts, np.bincount(numbers[numbers >= 0], minlength=len(labels)))
            gain[counts.sum(axis=1) < min_count] = -np.inf
            order = np.argsort(-gain, kind="stable")[:top]
            chosen = [names[k] for k in order[np.isfinite(gain[order])].tolist()]
        else:
            chosen = list(attributes)
        place = {name: k for k, name in enumerate(names)}
        rows = {}
        for name in chosen:
            if name not in place:
                raise ValueError(f"the sequences have no attribute {name!r}")
            row = counts[place[name]] + smoothing
            rows[name] = dict(zip(labels, (row / row.sum()).tolist(), strict=True))
        return cls(rows, **how)

    @classmethod
    def from_lexicon(
        cls, lexicon: Mapping[Any, Iterable[str]], share: float = 0.9, attribute: str = "lower[0]=", **how: Any
    ) -> Expectations:
        """Expectations from lists of words that mostly have a certain label.

        Parameters
        ----------
        lexicon : dict
            Maps labels to words. A word listed under several labels is expected to have each of them equally often.
        share : float
            Fraction of a word's occurrences that have one of its labels; the rest is left to the other labels.
        attribute : str
            Prefix of a word's attribute name. The default is that of the lower-cased words of
            :class:`~crfkit.TokenFeatures`, for which the words are lower-cased too.
        **how
            ``weight``, ``per`` and ``method``, as for the class.

        Examples
        --------
        >>> from crfkit import Expectations
        >>> Expectations.from_lexicon({"UNIT": ["cup", "Can"], "NAME": ["can"]}, 0.8).distributions
        {'lower[0]=cup': {'UNIT': 0.8}, 'lower[0]=can': {'UNIT': 0.4, 'NAME': 0.4}}
        """
        check_number("from_lexicon", "share", share, 0, strict=True)
        if not isinstance(lexicon, Mapping):
            raise ValueError(
                f"'lexicon' of from_lexicon must be a dict of labels and lists of words, got {reprlib.repr(lexicon)}"
            )
        labels: dict[str, dict[Any, None]] = {}
        for label, given in lexicon.items():
            words = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
            if isinstance(given, str) or not all(isinstance(word, str) for word in words):
                raise ValueError(f"the words of label {label!r} must be a list of strings, got {reprlib.repr(given)}")
            for word in words:
                labels.setdefault(lower_case(word) if attribute.startswith("lower") else word, {})[label] = None
        rows = {attribute + word: dict.fromkeys(found, share / len(found)) for word, found in labels.items()}
        out = cls(rows, **how)
        out._may_be_missing = True  # few sequences have all words of a lexicon
        return out

    @classmethod
    def read(cls, path: str | os.PathLike[str], **how: Any) -> Expectations:
        """Reads a file: one criterion per line.

        A line holds an attribute, then blanks or tabs, then ``LABEL:FRACTION`` for each label of a distribution, or one
        ``LABEL,LABEL,...>=FRACTION`` or ``<=FRACTION``. Blank lines and lines that begin with ``#`` are skipped::

            word=the      B-NP:0.95 O:0.05
            suffix2=ly    B-ADVP,O>=0.7
            *             O<=0.5

        Parameters
        ----------
        path : path
            A file in UTF-8; one that is compressed with gzip, xz or bzip2 is decompressed.
        **how
            ``weight``, ``per`` and ``method``, as for the class.
        """
        distributions: dict[str, dict[Any, float]] = {}
        bounds: dict[str, dict[str, Bound]] = {">=": {}, "<=": {}}
        seen: dict[tuple[str, str], int] = {}
        for number, line in enumerate(_lines(path), 1):
            line = line.strip(" \t\n")
            if not line or line.startswith("#"):
                continue
            name, *parts = re.split("[ \t]+", line)
            try:
                if not parts:
                    raise ValueError(f"{name!r} has no expected labels")
                if len(parts) == 1 and (found := re.fullmatch(r"(.+)(>=|<=)([^<>=]+)", parts[0])):
                    kind = found[2]
                    bounds[kind][name] = _bound(name, kind, (_parts(found[1]), _number(found[3])))
                else:
                    kind = ":"
                    distributions[name] = _shares(name, _pairs(parts))
                if (kind, name) in seen:
                    raise ValueError(f"{name!r} occurs already in line {seen[kind, name]}")
                seen[kind, name] = number
            except ValueError as e:
                raise DataError(f"{path}:{number}: {e}") from None
        if not seen:
            raise DataError(f"{path}: there is no expectation in the file")
        return cls(distributions, at_least=bounds[">="], at_most=bounds["<="], **how)

    def criteria(self, encoder: Encoder, data: Dataset, labels: Sequence[Any]) -> Criteria:
        """The same in numbers, for unlabelled data and the weights of a model."""
        rows: list[tuple[str, list[tuple[Iterable[Any], float]], int]] = [
            (name, [((label,), share) for label, share in row.items()], 0) for name, row in self.distributions.items()
        ]
        rows += [(name, [pair], 1) for name, pair in self.at_least.items()]
        rows += [(name, [pair], -1) for name, pair in self.at_most.items()]
        place = {name: a for a, name in enumerate(encoder.names())}
        missing = [name for name, _, _ in rows if name != EVERY and name not in place]
        if missing and not (self._may_be_missing and len(missing) < len(rows)):
            if isinstance(encoder, HashedEncoder):
                raise ValueError(f"'hash_bits' must be None where something is expected of attributes: {missing[0]!r}")
            raise ValueError(f"the sequences have no attribute {missing[0]!r}, of which something is expected")
        rows = [row for row in rows if row[0] == EVERY or row[0] in place]
        width = 1 + max(len(parts) for _, parts, _ in rows)
        groups = np.empty((len(rows), len(labels)), np.int64)
        target = np.zeros((len(rows), width))
        states: dict[Any, list[int]] = {}  # a label may have several
        for j, label in enumerate(labels):
            states.setdefault(label, []).append(j)
        for k, (_, parts, _) in enumerate(rows):
            groups[k] = len(parts)  # the rest
            for g, (some, share) in enumerate(parts):
                groups[k, [j for label in some for j in states[label]]] = g
                target[k, g] = share
            target[k, len(parts)] = max(0.0, 1.0 - target[k].sum())
        for (name, _, sign), row in zip(rows, groups, strict=True):
            if sign and (row == 0).all():
                which = "at_least" if sign > 0 else "at_most"
                raise ValueError(f"{which!r} of {name!r} names all labels, which every token has one of: leave one out")
        ptr, criterion = _members([-1 if name == EVERY else place[name] for name, _, _ in rows], len(place), data)
        tokens = np.bincount(criterion, minlength=len(rows))
        idle = list(dict.fromkeys(rows[k][0] for k in np.flatnonzero(tokens == 0)))
        if idle and not (self._may_be_missing and tokens.any()):
            text = f"expectations have no effect for {counted(len(idle), 'attribute')} that no unlabelled token has"
            warn(f"{text}: {_listed(idle)}", UserWarning, stacklevel=5)
        weight = np.full(len(rows), self.weight)
        if self.per == "token" and self.method == "expectation":
            weight *= tokens
        bound = np.array([sign for _, _, sign in rows], np.int8)
        return Criteria(ptr, criterion, groups, target, bound, weight, self.method)


def warn_unseen(named: Iterable[Any], seen: Collection[Any]) -> None:
    """Warns of labels that only expectations name, if other labels have been seen: they may be mistyped."""
    new = [label for label in named if label not in seen]
    if seen and new:
        text = f"expectations name {counted(len(new), 'label')} that no sequence has: {_listed(new)}"
        they = "it is learned as a label" if len(new) == 1 else "they are learned as labels"
        warn(f"{text}; {they}. Check the spelling", UserWarning, stacklevel=5)


def _listed(names: Sequence[Any]) -> str:
    """The first of some names."""
    return ", ".join([*map(repr, names[:_SHOWN]), *(["..."] if len(names) > _SHOWN else [])])


def _members(
    attributes: Sequence[int], n_attributes: int, data: Dataset
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The criteria that each token belongs to, as pointers and numbers, by the criteria's attributes, -1 for all."""
    data, wanted = data.without_zeros(), np.array(attributes, np.int64)
    every, some = np.flatnonzero(wanted < 0), np.flatnonzero(wanted >= 0)
    order = some[np.argsort(wanted[some], kind="stable")]
    first = np.searchsorted(wanted[order], np.arange(n_attributes + 1))  # criteria of each attribute
    entries = np.flatnonzero(np.diff(first)[data.attr] > 0)
    many = np.diff(first)[data.attr[entries]]
    token = np.repeat(np.arange(data.n_tokens), np.diff(data.ptr))[entries].repeat(many)
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    criterion = order[np.repeat(first[data.attr[entries]], many) + within]
    token = np.concatenate([token, np.tile(np.arange(data.n_tokens), len(every))])
    criterion = np.concatenate([criterion, every.repeat(data.n_tokens)])
    pairs = np.unique(token * len(wanted) + criterion)  # an attribute may stand twice at a token
    token, criterion = np.divmod(pairs, len(wanted))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(token, minlength=data.n_tokens))])
    return ptr.astype(np.int64), criterion.astype(np.int32)


def _lines(path: str | os.PathLike[str]) -> list[str]:
    data = b"".join(piece for piece, _ in pieces(path))
    try:
        return re.split("\r\n|\r|\n", data.decode())
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise DataError(f"{path}:{line}: not valid UTF-8: {e.reason}") from None


def _parts(text: str) -> list[str]:
    labels = text.split(",")
    if "" in labels:
        raise ValueError(f"there is an empty label in {text!r}")
    return labels


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a fraction must be a number, got {text!r}") from None


def _pairs(parts: Iterable[str]) -> dict[str, float]:
    out: dict[str, float] = {}
    for part in parts:
        label, colon, share = part.rpartition(":")
        if not (label and colon):
            raise ValueError(f"expected LABEL:FRACTION, LABEL,...>=FRACTION or LABEL,...<=FRACTION, got {part!r}")
        if label in out:
            raise ValueError(f"label {label!r} occurs twice")
        out[label] = _number(share)
    return out


def _shares(name: str, row: Mapping[Any, float]) -> dict[Any, float]:
    if not isinstance(row, Mapping) or not all(_is_label(x) for x in row) or not all(map(_is_share, row.values())):
        raise ValueError(f"{name}: a dict of labels and probabilities is needed, got {reprlib.repr(row)}")
    shares = {label: float(x) for label, x in row.items()}
    if not shares or any(not 0 <= x <= 1 for x in shares.values()) or sum(shares.values()) > 1 + 1e-6:
        raise ValueError(f"{name}: probabilities must lie between 0 and 1 and sum to at most 1, got {dict(row)!r}")
    return shares


def _bound(name: str, kind: str, pair: Bound) -> tuple[frozenset[Any], float]:
    limits = "above 0 and at most 1 for 'at_least'" if kind == ">=" else "at least 0 and below 1 for 'at_most'"
    rule = f"{name}: a bound needs labels and a fraction {limits}, got {reprlib.repr(pair)}"
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not _is_share(pair[1]):
        raise ValueError(f"{rule}: give (label, fraction)")
    some, share = pair
    labels = [some] if _is_label(some) else list(some) if isinstance(some, Iterable) else []
    within = 0 < float(share) <= 1 if kind == ">=" else 0 <= float(share) < 1
    if not labels or not all(map(_is_label, labels)) or not within:
        raise ValueError(rule)
    return frozenset(labels), float(share)


def _is_label(x: Any) -> bool:
    return isinstance(x, (str, int, np.integer))


def _is_share(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def _information(counts: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """Mutual information of having each attribute and the label, [A], out of counts [A, L] and those of all tokens."""
    total = labels.sum()

    def part(joint: NDArray[np.float64], having: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            term = joint / total * np.log(joint * total / (having[:, None] * labels))
        found: NDArray[np.float64] = np.where(joint > 0, term, 0.0).sum(axis=1)
        return found

    having = counts.sum(axis=1)
    gain: NDArray[np.float64] = part(counts, having) + part(np.maximum(labels - counts, 0.0), total - having)
    return gain
