"""Taggers open models, label sequences, and show what a model holds."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.files import read_whole
from crfkit.base.parameters import check_text
from crfkit.compat.pycrfsuite.items import ItemSequence
from crfkit.compat.suite_file import SuiteFeatures, chain_model, parse_suite, suite_bytes, suite_features
from crfkit.features.encoders import ItemEncoder
from crfkit.model.chain_model import ChainModel


class ModelInfo:
    """The result of :meth:`Tagger.info`.

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

    ``open`` and ``open_inmemory`` return a context manager that closes the tagger. Several threads may share a tagger
    for ``tag(xseq)``.
    """

    def __init__(self) -> None:
        self._model: ChainModel | None = None
        self._native: _core.ItemTagger | None = None
        self._header: dict[str, str] | None = None
        self._labels: list[str] = []

    @classmethod
    def _of_model(cls, model: ChainModel) -> Self:
        tagger = cls()
        tagger._adopt(model, None)
        return tagger

    def _adopt(self, model: ChainModel, header: dict[str, str] | None) -> None:
        if not isinstance(model.encoder, ItemEncoder):
            raise ValueError("the model computes its attributes from templates: open it with crfkit.load")
        self._model, self._header = model, header
        self._labels = [str(x) for x in model.labels]
        self._native = None  # made when a sequence comes: a model without labels can be opened, too

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
        if not isinstance(value, (bytes, bytearray)):
            raise TypeError(f"a model in memory must be bytes, got {type(value).__name__}")
        features, header = parse_suite(bytes(value))
        self._adopt(chain_model(features), header)
        return contextlib.closing(self)

    def close(self) -> None:
        """Closes the model."""
        self.__init__()  # type: ignore[misc]

    def _opened(self) -> ChainModel:
        if self._model is None:
            raise ValueError("The tagger is not opened")
        return self._model

    def _tagger(self) -> _core.ItemTagger:
        """The native tagger, which holds the sequence that was set or tagged last."""
        if self._native is None:
            model = self._opened()
            if not self._labels:
                raise ValueError("the model has no labels: it was trained without data")
            assert isinstance(model.encoder, ItemEncoder)
            self._native = _core.ItemTagger(model.scorer(dtype=np.float64), model.encoder._names, self._labels)
        return self._native

    def labels(self) -> list[str]:
        """The model's labels."""
        self._opened()
        return list(self._labels)

    def set(self, xseq: Any) -> None:
        """Sets the sequence for :meth:`tag`, :meth:`probability` and :meth:`marginal`.

        Its items are read immediately: later changes to ``xseq`` have no effect.
        """
        native = self._native or self._tagger()
        if isinstance(xseq, ItemSequence):
            data = self._opened().encoder.encode(xseq._items, False, 1)
            native.set_encoded(data.ptr, data.attr, data.value)
        else:
            native.set(xseq)

    def tag(self, xseq: Any = None) -> list[str]:
        """The best labels of a sequence, or of the one given to :meth:`set`."""
        if isinstance(xseq, ItemSequence):
            self.set(xseq)
            xseq = None
        return (self._native or self._tagger()).tag(xseq)

    def probability(self, yseq: Iterable[str | bytes]) -> float:
        """Probability of a labelling of the sequence that was set or tagged last; 0 if that is empty."""
        native = self._native or self._tagger()
        yseq = yseq if isinstance(yseq, (list, tuple)) else list(yseq)
        for y in yseq:
            _check_label(y)
        return native.probability(yseq)

    def marginal(self, y: str | bytes, pos: int) -> float:
        """Probability of a label at a position of the sequence that was set or tagged last."""
        _check_label(y)
        return (self._native or self._tagger()).marginal(y, int(pos) if isinstance(pos, float) else index(pos))

    def _marginals(self, xseq: Any) -> list[dict[str, float]]:
        """Probabilities of all labels at all positions of a sequence, which is set."""
        if isinstance(xseq, ItemSequence):
            self.set(xseq)
            xseq = None
        return (self._native or self._tagger()).marginals(xseq)

    def _features(self) -> tuple[SuiteFeatures, dict[str, str]]:
        if self._model is None:
            raise RuntimeError("Tagger is closed")
        features = suite_features(self._model)
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
            features = self._features()
            with open(filename, "w", encoding="utf-8") as file:
                _write_dump(file, *features)


def _check_label(y: Any) -> None:
    if isinstance(y, str):
        check_text(y, "a label")


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
