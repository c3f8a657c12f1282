"""The native core: kernels, text tables, objectives. Arrays must be C-contiguous and of the given type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
Floats = NDArray[np.floating[Any]]

def instruction_set() -> str: ...
def sum_product(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    log_z: F64,
    nodes: Floats | None,
    edges: Floats | None,
) -> None: ...
def expectations(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    weight: F64 | None,
    log_z: F64,
    nodes: Floats | None,
    pairs: F64 | None,
    edges: Floats | None,
) -> None: ...
def covariance(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    r: Floats,
    ra: Floats,
    threads: int,
    weight: F64 | None,
    mean: F64,
    nodes: Floats | None,
    pairs: F64 | None,
    edges: Floats | None,
) -> None: ...
def decode(
    unary: Floats, pairwise: Floats, per_step: bool, offsets: I64, threads: int, path: I32, dead: U8
) -> None: ...
def sample(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    uniform: F64,
    log_z: F64,
    path: I32,
) -> None: ...
def beam_sum_product(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    kind: str,
    amount: float,
    size: int,
    keep: I32 | None,
    form: str,
) -> tuple[F64, I64, I32, F64, I64, F64, F64]: ...
def nbest(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    kind: str | None,
    amount: float,
    size: int,
    k: int,
) -> tuple[I64, I32, F64]: ...
def dot(a: F64, b: F64) -> float: ...
def word_form(word: str, form: int, n: int) -> str: ...
def observed_pairs(
    ptr: I64, attr: U32, n_attributes: int, column: U32, n_columns: int, min_count: float
) -> tuple[U32, U32]: ...

class StringTable:
    def __init__(self) -> None: ...
    @staticmethod
    def from_arrays(bytes: U8, ends: U64) -> StringTable: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> str: ...
    def find(self, s: str) -> int: ...
    def add(self, s: str) -> int: ...
    def translate(self, other: StringTable, grow: bool) -> U32: ...
    def copy(self) -> StringTable: ...
    def pruned(self, keep: U8) -> StringTable: ...
    def tolist(self) -> list[str]: ...
    def arrays(self) -> tuple[U8, U64]: ...

class ColumnBuilder:
    def __init__(self, separator: str, comment: str, document: str, conllu: bool) -> None: ...
    def parse(self, text: bytes, first_line: int) -> tuple[int, str] | None: ...
    def read_rows(self, rows: Any) -> None: ...
    def take(self, final: bool) -> tuple[StringTable, U32, I64, int]: ...

class ItemBuilder:
    def __init__(self) -> None: ...
    def parse(self, text: bytes, first_line: int) -> tuple[int, str] | None: ...
    def read_items(self, sequences: Any) -> None: ...
    def take(self) -> tuple[StringTable, I64, I64, U32, F64 | None, StringTable, U32, F64]: ...

class TemplateEncoder:
    def __init__(
        self,
        nodes: Sequence[tuple[Any, ...]],
        templates: Sequence[tuple[int, int, str, str, bool]],
        pad: bool,
    ) -> None: ...
    def encode(
        self, strings: StringTable, ids: U32, offsets: I64, grow: bool, threads: int
    ) -> tuple[I64, U32, I64 | None, U32 | None]: ...
    def n_attributes(self, edge: bool) -> int: ...
    def name(self, attribute: int, edge: bool) -> str: ...
    def names(self, edge: bool) -> list[str]: ...
    @property
    def has_edges(self) -> bool: ...
    @property
    def n_columns(self) -> int: ...
    def copy(self) -> TemplateEncoder: ...
    def pruned(self, keep_state: U8, keep_edge: U8) -> TemplateEncoder: ...
    def vocabulary(self) -> tuple[list[StringTable], list[U32], list[U32]]: ...
    def restore(
        self,
        strings: Sequence[StringTable],
        pairs: Sequence[U32],
        attribute: Sequence[U32],
        n_state: int,
        n_edge: int,
    ) -> None: ...

class Layout:
    def __init__(
        self,
        n_labels: int,
        state_ptr: U32,
        state_label: U16,
        transition: I32,
        start: int,
        end: int,
        edge_ptr: U32,
        edge_pair: U32,
        edge_first: int,
        size: int,
    ) -> None: ...

class Tokens:
    def __init__(
        self,
        offsets: I64,
        ptr: I64,
        attr: U32,
        value: F64 | None,
        edge_ptr: I64 | None,
        edge_attr: U32 | None,
    ) -> None: ...

class ObjectiveF32:
    def __init__(
        self,
        layout: Layout,
        data: Tokens,
        gold: I32,
        seq_weight: F64 | None,
        constraints: F64 | None,
        threads: int,
    ) -> None: ...
    def value_and_grad(self, w: F64, c2: float, g: F64, threads: int) -> float: ...
    def choose_beams(self, w: F64, kind: str, amount: float, size: int, threads: int) -> tuple[int, int, int]: ...
    def beam_sizes(
        self, w: F64, block: int, kind: str, amount: float, size: int, threads: int
    ) -> tuple[int, int, int]: ...
    def drop_beams(self) -> None: ...
    def block_size(self, block: int) -> tuple[int, int]: ...
    def block_value_and_grad(self, w: F64, block: int, beams: bool, g: F64, threads: int) -> float: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def has_beams(self) -> bool: ...
    @property
    def size(self) -> int: ...

class ObjectiveF64(ObjectiveF32): ...

class ScorerF32:
    def __init__(self, layout: Layout, w: F64, constraints: F64 | None, threads: int) -> None: ...
    def score(self, data: Tokens, threads: int, unary: Floats, pairwise: Floats) -> None: ...
    @property
    def per_step(self) -> bool: ...

class ScorerF64(ScorerF32): ...

class Memory:
    def __init__(self, size: int, capacity: int) -> None: ...
    def push(self, x: F64, x_old: F64, g: F64, g_old: F64, threads: int) -> bool: ...
    def direction(self, v: F64, d: F64, threads: int) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
