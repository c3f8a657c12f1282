"""Hashed attributes: no vocabulary, at the price of attributes that share a weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.data.dataset import NONE, Dataset
from crfkit.features.encoders import Encoder, Keep, Keys, Part, lexicon_arrays

_SEED = 20  # part of the format: numbers in model files depend on it
MOST_BITS = 30


class HashedEncoder:
    """Numbers attributes by a hash of ``bits`` bits.

    Parameters
    ----------
    inner : Encoder
        An encoder with features, but without a vocabulary.
    bits : int
    kept : two uint32 arrays, optional
        Hashes of the attributes of tokens and of transitions that the model knows; by default all.
    """

    def __init__(self, inner: Encoder, bits: int, kept: tuple[NDArray[np.uint32], ...] | None = None) -> None:
        self.inner, self.bits = inner, bits
        self.transitions = inner.transitions
        self.shares_names = False  # hashes have no place
        self._some = kept

    @cached_property
    def kept(self) -> tuple[NDArray[np.uint32], ...]:
        """The hashes that the model knows."""
        every = np.arange(1 << self.bits if self._some is None else 0, dtype=np.uint32)
        return self._some or (every, every if _has_edges(self.inner) else every[:0])

    @cached_property
    def _order(self) -> list[NDArray[np.int64]]:
        return [np.argsort(hashes) for hashes in self.kept]

    def _numbers(self, k: int, hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The numbers of hashes, in memory like that of the known ones; NONE for others."""
        if self._some is None:
            return hashes
        kept, order = self.kept[k], self._order[k]
        if not len(kept):
            return np.full(len(hashes), NONE, np.uint32)
        at = order[np.minimum(np.searchsorted(kept, hashes, sorter=order), len(kept) - 1)]
        return np.where(kept[at] == hashes, at, NONE).astype(np.uint32)

    def __repr__(self) -> str:
        return f"<HashedEncoder: {self.bits} bits>"

    def read(self, X: Any) -> Any:
        """The data of sequences."""
        return self.inner.read(X)

    def read_one(self, x: Any, name: str) -> list[Any]:
        """The tokens of one sequence."""
        return self.inner.read_one(x, name)

    def encode(self, X: Any, grow: bool, n_jobs: int | None) -> Dataset:
        """Attributes of sequences."""
        local = self.inner.copy()
        data = local.encode(X, True, n_jobs)
        if grow:
            for name in ("n_columns", "text"):
                if hasattr(local, name):
                    setattr(self.inner, name, getattr(local, name))
        numbers = [self._numbers(k, self._hashes(local, bool(k))) for k in range(2)]
        edge = None if data.edge_attr is None else numbers[1][data.edge_attr]
        return replace(data, attr=numbers[0][data.attr] if len(numbers[0]) else data.attr, edge_attr=edge)

    def _hashes(self, local: Encoder, edge: bool) -> NDArray[np.uint32]:
        return (local.keys(edge, _SEED)[:, 0] >> np.uint64(64 - self.bits)).astype(np.uint32)

    @property
    def n_attributes(self) -> tuple[int, int]:
        """Number of hashes of tokens and of transitions."""
        return len(self.kept[0]), len(self.kept[1])

    def names(self, edge: bool = False) -> list[str]:
        """The hashes, since the names are not stored."""
        return [f"#{k:x}" for k in self.kept[edge].tolist()]

    def pruned(self, state: Keep, edge: Keep) -> HashedEncoder:
        """An encoder that knows only the marked hashes."""
        kept = (self.kept[0][state], self.kept[1][edge] if len(self.kept[1]) else self.kept[1])
        return HashedEncoder(self.inner.copy(), self.bits, kept)

    def copy(self) -> HashedEncoder:
        """One by itself."""
        return HashedEncoder(self.inner.copy(), self.bits, self._some)

    def __reduce__(self) -> tuple[Any, ...]:
        return HashedEncoder, (self.inner, self.bits, self._some)

    def config(self) -> dict[str, Any]:
        """The bits and the features."""
        return {"kind": "hashed", "bits": self.bits, "inner": self.inner.config()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The hashes, and the tables of the lexicon."""
        return {**lexicon_arrays(self.inner), "kept.0": self.kept[0], "kept.1": self.kept[1]}

    @property
    def memory(self) -> int:
        """Zero: there is no vocabulary that grows."""
        return 0

    def keys(self, edge: bool, seed: int) -> Keys:
        """The hashes themselves."""
        low = self.kept[edge].astype(np.uint64) << np.uint64(64 - self.bits)
        return np.stack([low, low], axis=1)

    def absorb(self, other: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The same numbers if all hashes are known here; those of a file that has only some are added."""
        if self._some is None:
            return other.kept[0], other.kept[1]
        found = [self._numbers(k, other.kept[k]) for k in range(2)]
        news = [x == NONE for x in found]
        for x, new, mine in zip(found, news, self.kept, strict=True):
            x[new] = len(mine) + np.arange(new.sum())
        self._some = tuple(np.concatenate([self.kept[k], other.kept[k][news[k]]]) for k in range(2))
        for name in ("kept", "_order"):
            self.__dict__.pop(name, None)
        return found[0], found[1]

    def translate(self, other: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The numbers here of another encoder's attributes."""
        if not isinstance(other, HashedEncoder) or other.bits != self.bits:
            raise ValueError("the features are not those of the model")
        return self._numbers(0, other.kept[0]), self._numbers(1, other.kept[1])

    def merged(self, parts: Iterable[Part]) -> HashedEncoder:
        """An encoder of the numbered hashes of several."""
        found: list[list[Any]] = [[], []]
        for arrays, *numbers in parts:
            for k in range(2):
                which = np.flatnonzero(numbers[k] != NONE)
                found[k].append((numbers[k][which], np.asarray(arrays[f"kept.{k}"])[which]))
        kept = []
        for part in found:
            number, hashes = (np.concatenate(x) for x in zip(*part, strict=True))
            kept.append(hashes[np.argsort(number)].astype(np.uint32))
        return HashedEncoder(self.inner.copy(), self.bits, tuple(kept))

    @classmethod
    def restore(cls, bits: int, inner: Encoder, arrays: Mapping[str, NDArray[Any]]) -> HashedEncoder:
        """The encoder that a model file holds."""
        kept = tuple(np.asarray(arrays[f"kept.{k}"], np.uint32) for k in range(2))
        if any(x.max(initial=0) >= 1 << bits or len(np.unique(x)) != len(x) for x in kept):
            raise ValueError(f"the hashes of the model must be distinct numbers of {bits} bits")
        return cls(inner, bits, kept)


def _has_edges(inner: Encoder) -> bool:
    plan = getattr(inner, "plan", None)
    return plan is not None and any(template[4] for template in plan.templates)
