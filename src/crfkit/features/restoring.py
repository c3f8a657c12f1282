"""Encoders from files, whose contents are not trusted."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.fields import Arrays, damaged, flag, integer, list_of, one_of, optional, record, refuse, text
from crfkit.base.messages import warn
from crfkit.data.blocks import WHAT, Blocks
from crfkit.data.dataset import NONE, Dataset
from crfkit.features.encoders import Encoder, FeatureSource, ItemEncoder, PlanEncoder, restored_lexicon
from crfkit.features.hashing import MOST_BITS, HashedEncoder
from crfkit.features.plan import FeaturePlan


def restore_encoder(
    config: Any, arrays: Arrays, features: FeatureSource, n_attributes: tuple[int, int] | None = None
) -> Encoder:
    """The encoder that a model file holds; raises unless it has ``n_attributes`` attributes, if that is given."""
    kind = record({"kind": text})(config, "encoder")["kind"]
    if kind == "items":
        config = _ITEMS(config, "encoder")
        arrays.of_kind("names.bytes", "u", (None,))
        arrays.of_kind("names.ends", "iu", (None,))
        encoder: Encoder = ItemEncoder.restore(config, arrays, features if callable(features) else None)
    elif kind == "plan":
        config = _PLAN(config, "encoder")
        known = sum(x.size for k, x in arrays.items() if k.startswith("attributes."))
        if max(config["n_attributes"]) > known or sum(config["tables"]) > len(arrays):
            raise ValueError("'encoder.n_attributes' and 'encoder.tables' must not be more than the file's arrays hold")
        encoder = PlanEncoder.restore(config, arrays)
    elif kind == "hashed":
        config = _HASHED(config, "encoder")
        for k in range(2):
            arrays.of_kind(f"kept.{k}", "u", (None,))
        encoder = HashedEncoder.restore(config["bits"], empty_encoder(config["inner"], arrays, features), arrays)
    else:
        raise ValueError(f"unknown kind of features {reprlib.repr(kind)}")
    if n_attributes is not None and encoder.n_attributes != n_attributes:
        raise ValueError(f"its encoder knows {encoder.n_attributes} attributes, it has weights for {n_attributes}")
    return encoder


def numbers_in(blocks: Blocks, encoder: Encoder) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What numbers an encoder gives to the attributes of a block file; looked up once.

    Warns if the encoder knows attributes that may be rare ones of the file's text, which the file does not have.
    """
    held = blocks.numbers
    if held is None or held[0] is not encoder:
        own = StoredEncoder(blocks).load()
        try:
            found = encoder.translate(own)
        except ValueError as e:
            raise ValueError(f"{blocks.path}: {e}") from None
        if blocks.min_freq > 1 and not all(_has_all(x, n) for x, n in zip(found, encoder.n_attributes, strict=True)):
            warn(
                f"{blocks.path}: attributes that occur fewer than {blocks.min_freq:g} times were left out of the file, "
                "and the model may know some of them: labels can differ from those of the text",
                UserWarning,
                stacklevel=5,
            )
        held = blocks.numbers = encoder, found
    return held[1]


def _has_all(numbers: NDArray[np.uint32], n: int) -> bool:
    """Whether all numbers below n occur."""
    seen = np.zeros(n, bool)
    seen[numbers[numbers != NONE]] = True
    return bool(seen.all())


def renumbered(data: Dataset, state: NDArray[np.uint32], edge: NDArray[np.uint32]) -> Dataset:
    """The same data with other numbers of its attributes."""
    edges = None if data.edge_attr is None else edge[data.edge_attr]
    return replace(data, attr=state[data.attr] if len(state) else data.attr, edge_attr=edges)


def empty_encoder(config: Any, arrays: Arrays, features: FeatureSource = None) -> Encoder:
    """An encoder with the features of one in a file, and its lexicon, but without its vocabulary."""
    kind = record({"kind": text})(config, "encoder")["kind"]
    if kind == "hashed":
        config = _HASHED(config, "encoder")
        return HashedEncoder(empty_encoder(config["inner"], arrays, features), config["bits"])
    if kind == "items":
        config = _ITEMS(config, "encoder")
        names: dict[str, NDArray[Any]] = {"names.bytes": np.zeros(0, np.uint8), "names.ends": np.zeros(0, np.uint64)}
        return ItemEncoder.restore(config, names, features if callable(features) else None)
    config = _PLAN(config, "encoder")
    lexicon = restored_lexicon(config, arrays)
    return PlanEncoder(FeaturePlan.from_dict(config["plan"]), None, config.get("n_columns"), lexicon)


def features_of(config: Any) -> dict[str, Any]:
    """What makes attributes of tokens, by an encoder's settings in a file."""
    inner = config.get("inner", config)
    names = ("kind", "plan", "function", "n_columns", "lexicon")
    return {"bits": config.get("bits"), **{name: inner.get(name) for name in names}}


def _has_transitions(config: Any) -> bool:
    """Whether label pairs have weights, by the features of an encoder in a file."""
    config = record({"kind": text})(config.get("inner", config), "encoder")
    return config["kind"] != "plan" or bool(_PLAN(config, "encoder")["plan"]["transitions"])


class StoredEncoder:
    """Stands for the encoder of a block file, which is read only when more than its counts is needed.

    Training needs only the counts, and a vocabulary of millions would take memory.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.n_attributes = blocks.attributes
        with damaged(blocks.path, WHAT):
            self.transitions = _has_transitions(blocks.encoder_config)

    def load(self) -> Encoder:
        """The encoder itself, in memory."""
        with damaged(self.blocks.path, WHAT):
            arrays = self.blocks.encoder_arrays()
            return restore_encoder(self.blocks.encoder_config, arrays, None, self.n_attributes)

    @cached_property
    def _loaded(self) -> Encoder:
        return self.load()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loaded, name)


def _node(value: Any, field: str) -> list[Any]:
    """A node of a plan: its kind, and what belongs to it."""
    if isinstance(value, list) and value and all(type(x) in (int, str) for x in value):
        return value
    return refuse(field, "a list of strings and ints", value)


def _template(value: Any, field: str) -> list[Any]:
    """A template of a plan."""
    if isinstance(value, list) and [type(x) for x in value] == [int, int, str, str, bool]:
        return value
    return refuse(field, "node, offset, two strings and true or false", value)


_PLAN = record(
    {
        "plan": record(
            {
                "pad": integer(0, 2),
                "transitions": flag,
                "nodes": list_of(_node),
                "templates": list_of(_template),
            }
        ),
        "tables": list_of(integer(0, 2**31), 3, 3),
        "n_attributes": list_of(integer(0, 2**32 - 1), 2, 2),
    },
    {"n_columns": optional(integer(1, 2**31)), "lexicon": record({})},
)
_ITEMS = record({"function": optional(text)}, {"text": optional(flag)})
_HASHED = record({"bits": integer(1, MOST_BITS), "inner": record({"kind": one_of("items", "plan")})})
