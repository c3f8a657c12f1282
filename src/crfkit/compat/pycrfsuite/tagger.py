"""Taggers: they open models, label sequences, and tell what a model holds."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.files import read_whole
from crfkit.chain.inference import decode_flat, log_partition, marginals
from crfkit.chain.potentials import Potentials
from crfkit.compat.pycrfsuite.items import ItemSequence
from crfkit.compat.suite_file import SuiteFeatures, chain_model, parse_suite, suite_bytes, suite_features
from crfkit.data.dataset import Dataset
from crfkit.features.encoders import ItemEncoder
from crfkit.model.chain_model import ChainModel


class ModelInfo:
    """What :meth:`Tagger.info` tells.

    Attributes
    ----------
    header : dict of str to str
    labels, attributes : dict of name to number (as text)
    transitions : dict of (label, next label) to weight
    state_features : dict of (attribute, label) to weight
    """

    def __init__(self, features: SuiteFeatures, header: dict[str, str]) -> None:
        names = features.names.tolist()
        labels = features.labels
        self.header = header
        self.labels = {label: str(i) for i, label in enumerate(labels)}
        self.attributes = {name: str(i) for i, name in enumerate(names)}
        t, s = features.transitions, features.state
        self.transitions = {
            (labels[i], labels[j]): w
            for i, j, w in zip(t["source"].tolist(), t["target"].tolist(), t["weight"].tolist(), strict=True)
        }
        self.state_features = {
            (names[a], labels[j]): w
            for a, j, w in zip(s["source"].tolist(), s["target"].tolist(), s["weight"].tolist(), strict=True)
        }


class Tagger:
    """Labels sequences with a CRFsuite model.

    ``open`` and ``open_inmemory`` give a context manager that closes the tagger; several threads may share a
    tagger for ``tag(xseq)``.
    """

    def __init__(self) -> None:
        self._model: ChainModel | None = None
        self._header: dict[str, str] | None = None
        self._labels: list[str] = []
        self._tagged: Any = None
        self._sequence: Dataset | None = None
        self._potentials: tuple[Potentials, float, NDArray[Any]] | None = None

    @classmethod
    def _of_model(cls, model: ChainModel) -> Self:
        tagger = cls()
        tagger._adopt(model, None)
        return tagger

    def _adopt(self, model: ChainModel, header: dict[str, str] | None) -> None:
        self._model, self._header = model, header
        self._labels = [str(x) for x in model.labels]
        self._names = model.encoder._names if isinstance(model.encoder, ItemEncoder) else None
        if self._names is None:
            raise ValueError("the model makes attributes by templates; crfkit.load opens it")
        self._scorer = model.scorer(dtype=np.float64)
        self._tagged = self._sequence = self._potentials = None

    def open(self, name: str | os.PathLike[str]) -> contextlib.closing[Self]:
        """Opens a model file: CRFsuite's, or crfkit's if it was trained on items."""
        data = read_whole(name, "model")
        if data[:4] != b"lCRF" and data[8:9] == b"{":
            from crfkit.model.chain_model import read_model

            self._adopt(read_model(name)[0], None)
        else:
            features, header = parse_suite(data, os.fspath(name))
            self._adopt(chain_model(features), header)
        return contextlib.closing(self)

    def open_inmemory(self, value: bytes) -> contextlib.closing[Self]:
        """Opens a model that is in memory."""
        features, header = parse_suite(value)
        self._adopt(chain_model(features), header)
        return contextlib.closing(self)

    def close(self) -> None:
        """Closes the model."""
        self.__init__()  # type: ignore[misc]

    def _opened(self) -> ChainModel:
        if self._model is None:
            raise ValueError("The tagger is not opened")
        return self._model

    def labels(self) -> list[str]:
        """The model's labels."""
        self._opened()
        return list(self._labels)

    def set(self, xseq: Any) -> None:
        """Sets the sequence for :meth:`tag`, :meth:`probability` and :meth:`marginal`."""
        self._sequence = _known(self._opened(), [xseq])
        self._tagged = self._potentials = None

    def tag(self, xseq: Any = None) -> list[str]:
        """The best labels of a sequence, or of that given to :meth:`set`."""
        model = self._opened()
        if xseq is None:
            data = self._current()
            if data is None:
                return []
            p = model.score(data, 1, np.float64)
            return [self._labels[i] for i in decode_flat(p, 1).tolist()]
        if isinstance(xseq, ItemSequence):
            self.set(xseq)
            return self.tag()
        self._tagged, self._sequence, self._potentials = xseq, None, None  # read again only if somebody asks
        return _core.tag_items(self._scorer, self._names, (xseq,), self._labels, 1)[0]  # type: ignore[arg-type]

    def _current(self) -> Dataset | None:
        if self._sequence is None and self._tagged is not None:
            self.set(self._tagged)
        return self._sequence

    def _inference(self) -> tuple[Potentials, float, NDArray[Any]]:
        model = self._opened()
        data = self._current()
        if data is None:
            raise ValueError("there is no sequence: call set or tag first")
        if self._potentials is None:
            p = model.score(data, 1, np.float64)
            self._potentials = (p, float(log_partition(p, 1)[0]), marginals(p, 1).nodes)
        return self._potentials

    def probability(self, yseq: Sequence[str]) -> float:
        """Probability of a labelling of the sequence that was set or tagged last."""
        p, log_z, _ = self._inference()
        n = len(p.unary)
        if len(yseq) != n:
            raise ValueError(f"The numbers of items and labels differ: |x| = {n}, |y| = {len(yseq)}")
        path = np.array([self._number(y) for y in yseq], np.int64)
        score = float(p.unary[np.arange(n), path].sum() + p.pairwise[path[:-1], path[1:]].sum())
        return float(np.exp(score - log_z))

    def _number(self, label: str) -> int:
        if label not in self._labels:
            raise RuntimeError(f"Failed to convert into label identifier: {label}")
        return self._labels.index(label)

    def marginal(self, y: str, pos: int) -> float:
        """Probability of a label at a position of the sequence that was set or tagged last."""
        nodes = self._inference()[2]
        if not 0 <= pos < len(nodes):
            raise ValueError(f"The position {pos} is out of range of {len(nodes)}")
        return float(nodes[pos, self._number(y)])

    def _features(self) -> tuple[SuiteFeatures, dict[str, str]]:
        features = suite_features(self._opened())
        if self._header is None:
            self._header = parse_suite(suite_bytes(features))[1]
        return features, self._header

    def info(self) -> ModelInfo:
        """Header, labels, attributes and weights, in full precision."""
        return ModelInfo(*self._features())

    def dump(self, filename: str | os.PathLike[str] | None = None) -> None:
        """Writes the model as text, as ``crfsuite dump`` does but in full precision; prints it without a file name."""
        if filename is None:
            _write_dump(sys.stdout, *self._features())
        else:
            with open(filename, "w", encoding="utf-8") as file:
                _write_dump(file, *self._features())


def _known(model: ChainModel, sequences: list[Any]) -> Dataset:
    assert isinstance(model.encoder, ItemEncoder)
    if isinstance(sequences[0], ItemSequence):
        return model.encoder.encode(sequences[0]._items, False, 1)
    return Dataset(*_core.find_items(model.encoder._names, sequences))


def _write_dump(out: IO[str], features: SuiteFeatures, header: dict[str, str]) -> None:
    def block(title: str, lines: Iterator[str]) -> None:
        out.write(f"{title} = {{\n")
        out.writelines(f"{line}\n" for line in lines)
        out.write("}\n\n")

    def weights(kind: int, records: NDArray[Any], names: Sequence[str]) -> Iterator[str]:
        for _, i, j, w in records.tolist():
            yield f"  ({kind}) {names[i]} --> {features.labels[j]}: {np.format_float_positional(w, trim='0')}"

    names = features.names.tolist()
    block("FILEHEADER", (f"  {k}: {v}" for k, v in header.items()))
    block("LABELS", (f"  {i:5d}: {label}" for i, label in enumerate(features.labels)))
    block("ATTRIBUTES", (f"  {i:5d}: {name}" for i, name in enumerate(names)))
    block("TRANSITIONS", weights(1, features.transitions, features.labels))
    block("STATE_FEATURES", weights(0, features.state, names))
