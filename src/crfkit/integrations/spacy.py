"""A spaCy pipeline component: ``nlp.add_pipe("crfkit", config={"model": "model.crfkit"})``.

The component labels tokens by their text and sets entities (``sets="ents"``), fine-grained tags (``"tag"``) or coarse
ones (``"pos"``). spaCy finds it by itself once crfkit is installed.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crfkit.loading import Loaded, load
from crfkit.metrics import spans

__all__ = ["CrfkitComponent"]

_SETS = ("ents", "tag", "pos")


class CrfkitComponent:
    """Labels spaCy's documents with a CRF.

    Parameters
    ----------
    crf : CRF
        Trained on tokens that are strings.
    sets : {"ents", "tag", "pos"}
        What the labels become. For ``"ents"`` they are chunks, such as ``B-PER``.
    name : str
        Name of the component in the pipeline.
    """

    def __init__(self, crf: Loaded | None, sets: str = "ents", name: str = "crfkit") -> None:
        if sets not in _SETS:
            raise ValueError(f"'sets' of the crfkit component must be one of {', '.join(_SETS)}, got {sets!r}")
        self.crf = crf
        self.sets = sets
        self.name = name

    def __call__(self, doc: Any) -> Any:
        """Labels one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Any], batch_size: int = 128) -> Iterator[Any]:
        """Labels documents, many at a time."""
        if self.crf is None:
            raise ValueError(f"the component {self.name!r} has no model: give 'model' in its config, or call from_disk")
        documents = iter(stream)
        while batch := list(itertools.islice(documents, batch_size)):
            labelled: Any = self.crf.predict([[token.text for token in doc] for doc in batch])
            for doc, labels in zip(batch, labelled, strict=True):
                self._set(doc, labels)
                yield doc

    def _set(self, doc: Any, labels: list[str]) -> None:
        if self.sets == "ents":
            from spacy.tokens import Span

            doc.ents = [Span(doc, s.start, s.end, label=s.kind) for s in spans(labels)]
            return
        for token, label in zip(doc, labels, strict=True):
            setattr(token, f"{self.sets}_", label)

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Writes the model into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        if self.crf is not None:
            self.crf.save(folder / "model.crfkit")

    def from_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> CrfkitComponent:
        """Reads the model that :meth:`to_disk` wrote."""
        self.crf = load(Path(path) / "model.crfkit")
        return self


def make_crfkit(nlp: Any, name: str, model: str | None = None, sets: str = "ents") -> CrfkitComponent:
    """The factory that spaCy calls."""
    return CrfkitComponent(None if model is None else load(model), sets, name)


if importlib.util.find_spec("spacy") is not None:
    from spacy.language import Language

    Language.factory("crfkit", default_config={"model": None, "sets": "ents"})(make_crfkit)
