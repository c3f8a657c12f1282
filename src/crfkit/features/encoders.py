"""Encoders number the attributes that they see in training, and recognise them afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.fields import Arrays, damaged
from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.data.dataset import NONE, Dataset
from crfkit.data.sequences import Columns, Items, check_sequence, check_sequences, rows_of
from crfkit.features.lexicon import Lexicon
from crfkit.features.plan import FeaturePlan
from crfkit.features.template import Template
from crfkit.features.tokens import TokenFeatures

#: What ``CRF(features=...)`` takes.
FeatureSource = str | Template | TokenFeatures | FeaturePlan | Callable[..., Any] | None

Keep = NDArray[np.bool_]
Numbers = NDArray[np.uint32]
Keys = NDArray[np.uint64]
#: The arrays of an encoder, and the numbers that its attributes get, NONE for those that are left out.
Part = tuple[Mapping[str, NDArray[Any]], NDArray[np.uint32], NDArray[np.uint32]]


class Encoder(Protocol):
    """Makes data sets from sequences, with a vocabulary of its own."""

    transitions: bool

    def read(self, X: Any) -> Columns | Items:
        """Sequences of any supported type as columns or items; raises unless they look like the training data."""
        ...

    def read_one(self, x: Any, name: str) -> list[Any]:
        """The tokens of one sequence, which messages call ``name``; checked as by ``read``."""
        ...

    def encode(self, X: Any, grow: bool, n_jobs: int | None) -> Dataset:
        """A data set; ``grow`` numbers what is new, otherwise it is skipped."""
        ...

    @property
    def n_attributes(self) -> tuple[int, int]:
        """Number of attributes of tokens and of transitions."""
        ...

    def names(self, edge: bool = False) -> list[str]:
        """Names of the attributes."""
        ...

    def pruned(self, state: Keep, edge: Keep) -> Encoder:
        """An encoder that knows only the marked attributes."""
        ...

    def copy(self) -> Encoder:
        """One that grows by itself."""
        ...

    def absorb(self, other: Any) -> tuple[Numbers, Numbers]:
        """Numbers, in this encoder, of another's attributes of tokens and of transitions; both have the same features.

        New attributes are added, as if the other's data came after the data seen here.
        """
        ...

    def config(self) -> dict[str, Any]:
        """What a model file needs besides the arrays."""
        ...

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The vocabulary, as arrays for a model file."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that the vocabulary takes, about."""
        ...

    def keys(self, edge: bool, seed: int) -> Keys:
        """A 128-bit key of each attribute, the same in all encoders with these features: low and high half, [n, 2]."""
        ...

    def translate(self, other: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The numbers here of another encoder's attributes, NONE where they are not known."""
        ...

    @property
    def shares_names(self) -> bool:
        """Whether an attribute may have several places in the vocabulary."""
        ...

    def merged(self, parts: Iterable[Part]) -> Encoder:
        """An encoder of the numbered attributes of several, and of those that are here already."""
        ...


def as_columns(X: Any) -> Columns:
    """Columns of whatever holds strings."""
    return X if isinstance(X, Columns) else Columns.from_sequences(check_sequences(plain_lists(X)))


def as_items(X: Any) -> Items:
    """Items of whatever holds attributes."""
    return X if isinstance(X, Items) else Items.from_sequences(check_sequences(plain_lists(X)))


def plain_lists(X: Any) -> Any:
    """The lists in an Arrow array; anything else as it is."""
    return X.to_pylist() if hasattr(X, "to_pylist") else X


class PlanEncoder:
    """Turns columns into attributes by a plan (a template, token features), which may look at a lexicon."""

    def __init__(
        self,
        plan: FeaturePlan,
        native: _core.TemplateEncoder | None = None,
        n_columns: int | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        self.plan = plan
        self.lexicon = lexicon
        self.n_columns = n_columns  # of the tokens in training; None if that is not known
        self.transitions = plan.transitions
        self._native = native or _core.TemplateEncoder(plan.nodes, plan.templates, int(plan.pad))
        if native is None:
            plan.check_lexicon(*((0, 0) if lexicon is None else (lexicon.native.n_columns, lexicon.native.n_numbers)))

    def __repr__(self) -> str:
        return f"<PlanEncoder: {len(self.plan.templates)} templates, {sum(self.n_attributes)} attributes>"

    def read(self, X: Any) -> Columns:
        """The columns of sequences, as many as in training."""
        data = as_columns(X)
        if len(data.ids) and self.n_columns not in (None, data.n_columns):
            i = int(np.argmax(data.lengths > 0))
            raise ValueError(
                f"sequence {i}, position 0: a token has {counted(data.n_columns, 'column')}, but the model was trained "
                f"on tokens of {counted(self.n_columns or 1, 'column')}"
            )
        return data

    def read_one(self, x: Any, name: str) -> list[Any]:
        """The tokens of one sequence; a list of sequences is refused."""
        if isinstance(x, Columns):
            raise ValueError(f"{name} must be one sequence of tokens, got Columns of {len(x)}: give one of them")
        check_sequence(x, name)
        tokens = list(x)
        if self.n_columns == 1 and any(isinstance(token, list) for token in tokens):
            raise ValueError(f"{name} must be one sequence of tokens, got a list of sequences: give one of them")
        return tokens

    def encode(self, X: Any, grow: bool, n_jobs: int | None) -> Dataset:
        """Attributes of columns."""
        data = self.read(X)
        if grow and len(data.ids):
            self.n_columns = data.n_columns
        n_threads = resolve_threads(n_jobs)
        lexicon = None if self.lexicon is None else self.lexicon.native
        found = self._native.encode(data.strings, data.ids, data.offsets, lexicon, grow, n_threads)
        return Dataset(data.offsets, *found)

    @property
    def shares_names(self) -> bool:
        """Whether templates differ only in where the parts of a name come from."""
        with damaged("'encoder.plan'"):
            return self._native.shares_names

    @property
    def n_attributes(self) -> tuple[int, int]:
        """Number of attributes of tokens and of transitions."""
        return self._native.n_attributes(False), self._native.n_attributes(True)

    def names(self, edge: bool = False) -> list[str]:
        """Names of the attributes."""
        with damaged("'encoder.plan'"):  # it may repeat long texts too often
            return self._native.names(edge)

    def pruned(self, state: Keep, edge: Keep) -> PlanEncoder:
        """An encoder that knows only the marked attributes."""
        native = self._native.pruned(state.astype(np.uint8), edge.astype(np.uint8))
        return PlanEncoder(self.plan, native, self.n_columns, self.lexicon)

    def copy(self) -> PlanEncoder:
        """One that grows by itself."""
        return PlanEncoder(self.plan, self._native.copy(), self.n_columns, self.lexicon)

    def absorb(self, other: PlanEncoder) -> tuple[Numbers, Numbers]:
        """Numbers here of the attributes of another encoder of the same plan, which are added if they are new."""
        if other.plan != self.plan or other.n_columns not in (None, self.n_columns or other.n_columns):
            raise ValueError(f"tokens have {other.n_columns} columns in one part of the data, {self.n_columns} before")
        if other.lexicon != self.lexicon:
            raise ValueError("the classes, vectors or gazetteers must be the same for all parts of the data")
        self.n_columns = other.n_columns or self.n_columns
        return self._native.absorb(other._native)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlanEncoder.restore, (self.config(), self.arrays())

    def config(self) -> dict[str, Any]:
        """The plan."""
        return {
            "kind": "plan",
            "plan": self.plan.to_dict(),
            "n_columns": self.n_columns,
            "tables": list(self._native.tables),
            "n_attributes": list(self.n_attributes),
            **({} if self.lexicon is None else {"lexicon": self.lexicon.config()}),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The vocabulary's tables, and those of the lexicon."""
        native = self._native
        n_strings, n_pairs, n_classes = native.tables
        out = lexicon_arrays(self)
        for k in range(n_strings):
            out[f"strings.{k}.bytes"], out[f"strings.{k}.ends"] = native.strings_of(k)
        for k in range(n_pairs):
            out[f"pairs.{k}"] = native.pairs_of(k)
        for k in range(n_classes):
            numbers = native.attributes_of(k)  # with room for more at its end
            known = np.flatnonzero(numbers != NONE)
            out[f"attributes.{k}"] = numbers[: known[-1] + 1 if len(known) else 0]
        return out

    @property
    def memory(self) -> int:
        """Bytes that the vocabulary takes, about."""
        return self._native.memory

    def keys(self, edge: bool, seed: int) -> Keys:
        """128 bits of each attribute."""
        return self._native.keys(edge, seed)

    def translate(self, other: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The numbers here of another encoder's attributes."""
        same = isinstance(other, PlanEncoder) and other.plan.to_dict() == self.plan.to_dict()
        if not same or other.lexicon != self.lexicon:
            raise ValueError("the features are not those of the model")
        return self._native.translate(other._native)

    def merged(self, parts: Iterable[Part]) -> PlanEncoder:
        """An encoder of the numbered attributes of several."""
        out = self.copy()
        n_strings, n_pairs, n_classes = out._native.tables
        for arrays, state, edge in parts:
            out._native.adopt(
                [(arrays[f"strings.{k}.bytes"], arrays[f"strings.{k}.ends"]) for k in range(n_strings)],
                [arrays[f"pairs.{k}"] for k in range(n_pairs)],
                [arrays[f"attributes.{k}"] for k in range(n_classes)],
                state,
                edge,
            )
        return out.pruned(*(np.ones(n, bool) for n in out.n_attributes))  # the order of the parts does not show

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> PlanEncoder:
        """The encoder that a model file holds."""
        tables, counts = config["tables"], config["n_attributes"]
        n_strings, n_pairs, n_classes = tables
        lexicon = restored_lexicon(config, arrays)
        arrays = {name: x for name, x in arrays.items() if not name.startswith(LEXICON)}
        if len(arrays) != 2 * n_strings + n_pairs + n_classes:
            raise ValueError(f"encoder.tables is {tables}, but there are {counted(len(arrays), 'array')}")
        n_columns = config.get("n_columns")
        try:
            encoder = cls(FeaturePlan.from_dict(config["plan"]), None, n_columns, lexicon)
        except (ValueError, TypeError, RuntimeError, KeyError) as e:
            raise ValueError(f"encoder.plan: {e}") from e
        strings = [
            _core.StringTable.from_arrays(arrays[f"strings.{k}.bytes"], arrays[f"strings.{k}.ends"])
            for k in range(n_strings)
        ]
        try:
            encoder._native.restore(
                strings,
                [arrays[f"pairs.{k}"] for k in range(n_pairs)],
                [arrays[f"attributes.{k}"] for k in range(n_classes)],
                *counts,
            )
        except ValueError as e:
            raise ValueError(f"encoder: {e}") from e
        return encoder


#: How the names of a lexicon's arrays begin, among those of its encoder.
LEXICON = "lexicon."


def lexicon_arrays(encoder: Encoder) -> dict[str, NDArray[Any]]:
    """The tables of words that an encoder looks at, for a file."""
    lexicon: Lexicon | None = getattr(encoder, "lexicon", None)
    return {} if lexicon is None else {f"{LEXICON}{name}": x for name, x in lexicon.arrays().items()}


def restored_lexicon(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Lexicon | None:
    """Those that a file holds; the plan must find what it looks at."""
    found = Arrays(arrays, "encoder.").group(LEXICON[:-1])
    if config.get("lexicon") is None:
        if found:
            raise ValueError("there are arrays of a lexicon, but 'encoder.lexicon' is missing")
        return None
    return Lexicon.restore(config["lexicon"], found)


class ItemEncoder:
    """Encodes tokens that are bags of attributes already, or that a function turns into them.

    Parameters
    ----------
    function : callable, optional
        ``function(sequence)`` returns a list of items, ``function(sequence, t)`` the item of token t.
    """

    transitions = True
    shares_names = False

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        names: _core.StringTable | None = None,
        text: bool | None = None,
    ) -> None:
        self.function = function
        self.text = text  # whether the sequences of training were strs, which a function may take; None: not known
        self._per_token = function is not None and _takes_position(function)
        self._names = names or _core.StringTable()

    def __repr__(self) -> str:
        return f"<ItemEncoder: {len(self._names)} attributes>"

    def read(self, X: Any) -> Items:
        """The items of sequences, whatever they come as."""
        function = self.function
        if function is None or isinstance(X, Items):
            try:
                return as_items(X)
            except ValueError as e:
                if not str(e).endswith("must be a dict, list or set, got str"):
                    raise
                raise ValueError(f"{e}; or give a function that makes them, features= of CRF or crfkit.load") from None
        X = check_sequences(plain_lists(X), text=self.text is not False)
        if self._per_token:
            return as_items([[function(x, t) for t in range(len(x))] for x in X])
        items = []
        for i, x in enumerate(X):
            found = function(x)
            if not isinstance(found, Iterable):
                raise ValueError(
                    f"sequence {i}: the feature function must give a list with the attributes of each token, "
                    f"got {type(found).__name__}"
                )
            items.append(list(found))
            if len(x) != len(items[i]):
                raise ValueError(
                    f"sequence {i}: the feature function gave {counted(len(items[i]), 'item')} "
                    f"for {counted(len(x), 'token')}"
                )
        return as_items(items)

    def read_one(self, x: Any, name: str) -> list[Any]:
        """The tokens of one sequence."""
        check_sequence(x, name, text=self.function is not None and self.text is not False)
        return list(x)

    def encode(self, X: Any, grow: bool, n_jobs: int | None) -> Dataset:
        """Attributes of items."""
        items = self.read(X)
        if grow and self.text is None and not isinstance(X, (Iterator, Items, Columns)):
            self.text = any(isinstance(x, str) for x in X)
        numbers = self._names.translate(items.names, grow)
        attr = numbers[items.attr] if len(numbers) else items.attr
        return Dataset(items.offsets, items.ptr, attr, items.value)

    @property
    def n_attributes(self) -> tuple[int, int]:
        """Number of attributes of tokens and of transitions."""
        return len(self._names), 0

    def names(self, edge: bool = False) -> list[str]:
        """Names of the attributes."""
        return [] if edge else self._names.tolist()

    def pruned(self, state: Keep, edge: Keep) -> ItemEncoder:
        """An encoder that knows only the marked attributes."""
        return ItemEncoder(self.function, self._names.pruned(state.astype(np.uint8)), self.text)

    def copy(self) -> ItemEncoder:
        """One that grows by itself."""
        return ItemEncoder(self.function, self._names.copy(), self.text)

    def absorb(self, other: ItemEncoder) -> tuple[Numbers, Numbers]:
        """Numbers here of the attributes of another encoder, which are added if they are new."""
        if other.text is not None:
            self.text = bool(self.text) or other.text
        return self._names.translate(other._names, True), np.zeros(0, np.uint32)

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemEncoder.restore, (self.config(), self.arrays(), self.function)

    def config(self) -> dict[str, Any]:
        """Only that it is one, and how the function was called."""
        function = self.function
        name = None if function is None else getattr(function, "__qualname__", repr(function))
        return {"kind": "items", "function": name, "text": self.text}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The names."""
        text, ends = self._names.arrays()
        return {"names.bytes": text, "names.ends": ends}

    @property
    def memory(self) -> int:
        """Bytes that the names take, about."""
        return self._names.memory

    def keys(self, edge: bool, seed: int) -> Keys:
        """128 bits of each name."""
        return np.zeros((0, 2), np.uint64) if edge else self._names.keys(seed)

    def translate(self, other: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The numbers here of another encoder's attributes."""
        if not isinstance(other, ItemEncoder):
            raise ValueError("the features are not those of the model")
        return self._names.translate(other._names, False), np.zeros(0, np.uint32)

    def merged(self, parts: Iterable[Part]) -> ItemEncoder:
        """An encoder of the numbered names of several, after those that are here."""
        own = np.arange(len(self._names), dtype=np.uint32)
        parts = [*([(self.arrays(), own, own[:0])] if len(own) else []), *parts]
        found: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        for arrays, state, _ in parts:
            kept = np.flatnonzero(state != NONE)
            ends = arrays["names.ends"].astype(np.int64)
            entries, starts = rows_of(np.concatenate([[0], ends]), kept)
            found.append((state[kept], np.diff(starts), arrays["names.bytes"][entries]))
        number, length, text = (np.concatenate(x) for x in zip(*found, strict=True))
        order = np.argsort(number)
        entries, ends = rows_of(np.concatenate([[0], np.cumsum(length)]), order)
        names = _core.StringTable.from_arrays(text[entries], ends[1:].astype(np.uint64))
        return ItemEncoder(self.function, names, self.text)

    @classmethod
    def restore(
        cls,
        config: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        function: Callable[..., Any] | None = None,
    ) -> ItemEncoder:
        """The encoder that a model file holds; ``function`` must be given again if there was one."""
        if config["function"] is not None and function is None:
            function = _missing(config["function"])
        names = _core.StringTable.from_arrays(arrays["names.bytes"], arrays["names.ends"])
        return cls(function, names, config.get("text"))


def _missing(name: str) -> Callable[..., Any]:
    def raise_missing(sequence: Any) -> Any:
        raise ValueError(
            f"the model was trained with the feature function {name!r}, which a model file cannot hold, so that it "
            f"works in Python only: pass the function to crfkit.load(path, features={name})"
        )

    raise_missing.__qualname__ = name
    return raise_missing


def _takes_position(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters) >= 2


def _is_rows(X: Any) -> TypeGuard[Sequence[Any]]:
    """Whether tokens are strings or tuples of strings; judged by the first token."""
    if isinstance(X, Columns):
        return True
    if isinstance(X, Items):
        return False
    for sequence in check_sequences(X):
        for token in sequence:
            return isinstance(token, (str, tuple))
    return False


def make_encoder(features: FeatureSource, X: Any) -> Encoder:
    """The encoder for ``CRF(features=...)``; ``"auto"`` looks at the first token.

    Strings and tuples of strings use :class:`TokenFeatures`; dicts, lists and sets are attributes already.
    """
    if isinstance(features, Template):
        return PlanEncoder(features.plan())
    if isinstance(features, FeaturePlan):
        return PlanEncoder(features)
    if isinstance(features, TokenFeatures) or (features == "auto" and _is_rows(X)):
        tokens = features if isinstance(features, TokenFeatures) else TokenFeatures()
        return PlanEncoder(tokens.plan(_n_columns(X)), lexicon=tokens.lexicon)
    if features is None or features == "auto":
        return ItemEncoder()
    if callable(features):
        return ItemEncoder(features)
    raise ValueError(
        f"'features' of CRF must be 'auto', a Template, TokenFeatures, a function or None, got {features!r}"
    )


def _n_columns(X: Any) -> int:
    if isinstance(X, Columns):
        return X.n_columns
    for sequence in check_sequences(X):
        for token in sequence:
            return 1 if isinstance(token, str) else len(token)
    return 1
