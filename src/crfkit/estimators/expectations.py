"""What a user expects of the labels of unlabelled sequences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.parameters import check_number
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import collect_labels, label_numbers
from crfkit.data.readers import DataError
from crfkit.features.encoders import Encoder, FeatureSource, make_encoder
from crfkit.training.expectations import Criteria

#: In place of an attribute: every token.
EVERY = "*"
#: A set of labels, and the fraction of the tokens that have one of them.
Bound = tuple[Iterable[Any], float]


class Expectations:
    r"""Label distributions that tokens with an attribute are expected to have, where their labels are not known.

    For :meth:`CRF.fit <crfkit.CRF.fit>`, which adds to what it minimises

    .. math:: \sum_k \lambda_k \mathrm{KL}(q_k \Vert p_k), \qquad p_k = \frac{1}{n_k} \sum_{t \in k} P(y_t \mid x)

    over the unlabelled sequences (Mann and McCallum's generalised expectation criteria): :math:`q_k` is the expected
    distribution, :math:`p_k` the mean of the model's over the :math:`n_k` tokens with the attribute.

    Parameters
    ----------
    distributions : dict
        Attributes, named as in :attr:`CRF.state_features_ <crfkit.CRF.state_features_>`, to dicts of labels and
        probabilities; ``"*"`` is every token. What is missing to 1 is left to the other labels, however they share it.
    at_least, at_most : dict
        Attributes to pairs of a label, or a set of labels, and a fraction: tokens with the attribute have one of the
        labels at least, or at most, this often. Costs nothing where it is fulfilled.
    weight : float
        :math:`\lambda_k` is this, times :math:`n_k` if ``per`` is ``"token"``.
    per : {"token", "criterion"}
        Whether a criterion counts by its tokens, as labels do in the likelihood, or as a whole.

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
    ) -> None:
        check_number("Expectations", "weight", weight, 0, strict=True)
        if per not in ("token", "criterion"):
            raise ValueError(f"'per' of Expectations must be 'token' or 'criterion', got {per!r}")
        self.weight, self.per = float(weight), per
        self.distributions = {name: _shares(name, row) for name, row in (distributions or {}).items()}
        self.at_least = {name: _bound(name, pair) for name, pair in (at_least or {}).items()}
        self.at_most = {name: _bound(name, pair) for name, pair in (at_most or {}).items()}
        if not len(self):
            raise ValueError("Expectations must hold at least one distribution or bound")

    def __len__(self) -> int:
        return len(self.distributions) + len(self.at_least) + len(self.at_most)

    def __repr__(self) -> str:
        return f"Expectations({len(self)} criteria, weight={self.weight:g}, per={self.per!r})"

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
        weight: float = 1.0,
        per: str = "token",
    ) -> Expectations:
        """Distributions counted on labelled sequences.

        Parameters
        ----------
        X, y : sequences of tokens, and their labels
            Tokens without a label do not count.
        features
            As for :class:`~crfkit.CRF`.
        top : int
            How many attributes: those that tell most about the label, by mutual information.
        attributes : sequence of str, optional
            These instead.
        smoothing : float
            Added to each count, for labels that were not seen.
        min_count : int
            Attributes that occur less often are not considered.
        weight, per
            As for the class.
        """
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
        return cls(rows, weight=weight, per=per)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, weight: float = 1.0, per: str = "token") -> Expectations:
        """Reads a file: one criterion per line.

        A line holds an attribute, then blanks or tabs, then ``LABEL:FRACTION`` for each label of a distribution, or one
        ``LABEL,LABEL,...>=FRACTION`` or ``<=FRACTION``. Blank lines and lines that begin with ``#`` are skipped::

            word=the      B-NP:0.95 O:0.05
            suffix2=ly    B-ADVP,O>=0.7
            *             O<=0.5
        """
        distributions: dict[str, dict[Any, float]] = {}
        bounds: dict[str, dict[str, Bound]] = {">=": {}, "<=": {}}
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                name, *parts = line.split()
                try:
                    if len(parts) == 1 and (found := re.fullmatch(r"(.+)(>=|<=)([^<>=]+)", parts[0])):
                        bounds[found[2]][name] = _bound(name, (found[1].split(","), float(found[3])))
                    else:
                        pairs = [part.rpartition(":") for part in parts]
                        distributions[name] = _shares(name, {label: float(x) for label, _, x in pairs})
                except ValueError as e:
                    raise DataError(f"{path}:{number}: {e}") from None
        return cls(distributions, at_least=bounds[">="], at_most=bounds["<="], weight=weight, per=per)

    def criteria(self, encoder: Encoder, data: Dataset, layout: Layout, labels: Sequence[Any]) -> Criteria:
        """The same in numbers, for unlabelled data and the weights of a model."""
        rows: list[tuple[str, list[tuple[Iterable[Any], float]], int]] = [
            (name, [((label,), share) for label, share in row.items()], 0) for name, row in self.distributions.items()
        ]
        rows += [(name, [pair], 1) for name, pair in self.at_least.items()]
        rows += [(name, [pair], -1) for name, pair in self.at_most.items()]
        place = {name: k for k, name in enumerate(encoder.names())}
        counts = np.bincount(data.attr, data.value, minlength=len(place))
        width = 1 + max(len(parts) for _, parts, _ in rows)
        groups = np.empty((len(rows), len(labels)), np.int64)
        target = np.zeros((len(rows), width))
        tokens = np.empty(len(rows))
        entries: list[tuple[Any, int, Any]] = []
        number = {label: j for j, label in enumerate(labels)}
        for k, (name, parts, _) in enumerate(rows):
            groups[k] = len(parts)  # the rest
            for g, (some, share) in enumerate(parts):
                groups[k, [number[label] for label in some]] = g
                target[k, g] = share
            target[k, len(parts)] = max(0.0, 1.0 - target[k].sum())
            if name == EVERY:
                tokens[k] = data.n_tokens
                entries += _every(layout, k)
            elif name in place:
                a = place[name]
                tokens[k] = counts[a]
                at = np.arange(int(layout.state_ptr[a]), int(layout.state_ptr[a + 1]))
                entries.append((at, k, layout.state_label[at]))
            else:
                raise ValueError(f"the sequences have no attribute {name!r}, of which something is expected")
        feature = np.concatenate([at for at, _, _ in entries]).astype(np.int64)
        criterion = np.concatenate([np.full(len(at), k) for at, k, _ in entries])
        column = np.concatenate([label for _, _, label in entries]).astype(np.int64)
        weight = self.weight * (tokens if self.per == "token" else np.ones(len(rows)))
        bound = np.array([sign for _, _, sign in rows], np.int8)
        return Criteria(feature, criterion, column, groups, target, bound, weight, tokens)


def _every(layout: Layout, k: int) -> list[tuple[Any, int, Any]]:
    """The features that count every token once, by its label: the first one's, and those of transitions."""
    n = layout.n_labels
    if layout.start < 0 or (layout.transition < 0).any():
        raise ValueError("expectations of every token need start_end=True and all_possible_transitions=True")
    return [(layout.start + np.arange(n), k, np.arange(n)), (layout.transition, k, np.tile(np.arange(n), n))]


def _shares(name: str, row: Mapping[Any, float]) -> dict[Any, float]:
    shares = {label: float(x) for label, x in row.items()}
    if not shares or any(not 0 <= x <= 1 for x in shares.values()) or sum(shares.values()) > 1 + 1e-6:
        raise ValueError(f"{name}: probabilities must lie between 0 and 1 and sum to at most 1, got {dict(row)!r}")
    return shares


def _bound(name: str, pair: Bound) -> tuple[frozenset[Any], float]:
    some, share = pair
    labels = frozenset([some] if isinstance(some, (str, int)) else some)
    if not labels or not 0 < float(share) < 1:
        raise ValueError(f"{name}: a bound needs labels and a fraction between 0 and 1, got {pair!r}")
    return labels, float(share)


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
