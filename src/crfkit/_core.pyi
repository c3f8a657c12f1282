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
def backward_messages(unary: F64, pairwise: F64) -> F64: ...
def decode(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    kind: str | None,
    amount: float,
    size: int,
    path: I32,
    dead: U8,
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
def entropies(
    unary: Floats,
    pairwise: Floats,
    per_step: bool,
    offsets: I64,
    threads: int,
    log_z: F64,
    entropy: F64,
    node_entropy: F64 | None,
    step_entropy: F64 | None,
    unary_gradient: Floats | None,
    pairwise_gradient: Floats | None,
    before: F64 | None,
    behind: F64 | None,
) -> None: ...
def dot(a: F64, b: F64) -> float: ...

class GraphStructure:
    def __init__(self, card: I32, scope_ptr: I64, scope: I32) -> None: ...
    def components(self, out: I32) -> int: ...
    def order(self, heuristic: str, limit: float, out: I32) -> int: ...
    def pass_messages(
        self,
        unary: F64,
        tables: F64,
        table_ptr: I64,
        table_of: I32,
        threads: int,
        schedule: str,
        max: bool,
        damping: float,
        tol: float,
        max_iter: int,
        appearance: F64 | None,
        kind: str,
        amount: float,
        size: int,
        nodes: F64,
        factors: F64 | None,
        weights: F64 | None,
        node_terms: F64,
        factor_terms: F64,
    ) -> tuple[bool, int, float, int]: ...
    def mean_field(
        self,
        unary: F64,
        tables: F64,
        table_ptr: I64,
        table_of: I32,
        threads: int,
        tol: float,
        max_iter: int,
        nodes: F64,
        factors: F64 | None,
        weights: F64 | None,
        node_terms: F64,
        factor_terms: F64,
    ) -> tuple[bool, int, float, int]: ...
    def ascend(self, unary: F64, tables: F64, table_ptr: I64, table_of: I32, threads: int, assignment: I32) -> None: ...
    def score(
        self, unary: F64, tables: F64, table_ptr: I64, table_of: I32, threads: int, assignment: I32, out: F64
    ) -> None: ...

class JunctionTree:
    def __init__(self, graph: GraphStructure, order: I32) -> None: ...
    def cost(self) -> tuple[int, float, float, float, int]: ...
    def sum_product(
        self,
        unary: F64,
        tables: F64,
        table_ptr: I64,
        table_of: I32,
        threads: int,
        log_z: F64,
        nodes: F64 | None,
        factors: F64 | None,
        weights: F64 | None,
    ) -> None: ...
    def max_product(
        self, unary: F64, tables: F64, table_ptr: I64, table_of: I32, threads: int, score: F64, assignment: I32
    ) -> None: ...
    def sample(
        self,
        unary: F64,
        tables: F64,
        table_ptr: I64,
        table_of: I32,
        threads: int,
        uniform: F64,
        log_z: F64,
        values: I32,
    ) -> None: ...

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
    def __init__(self, keep_zeros: bool = False) -> None: ...
    def parse(self, text: bytes, first_line: int) -> tuple[int, str] | None: ...
    def read_items(self, sequences: Any) -> None: ...
    def take(self) -> tuple[StringTable, I64, I64, U32, F64 | None, StringTable, U32, F64]: ...

class TemplateEncoder:
    def __init__(
        self,
        nodes: Sequence[tuple[Any, ...]],
        templates: Sequence[tuple[int, int, str, str, bool]],
        pad: int,
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
    def learn(self, state: StringTable, edge: StringTable) -> tuple[U8, U8]: ...
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
    def hessian_product(self, w: F64, v: F64, c2: float, out: F64, threads: int) -> None: ...
    def choose_beams(
        self, w: F64, kind: str, amount: float, size: int, grow: bool, threads: int
    ) -> tuple[int, int, int, int]: ...
    def beam_sizes(
        self, w: F64, block: int, kind: str, amount: float, size: int, threads: int
    ) -> tuple[int, int, float]: ...
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

class SequencesF32:
    def __init__(
        self,
        layout: Layout,
        data: Tokens,
        gold: I32,
        set_tokens: I64,
        set_labels: U8,
        seq_weight: F64 | None,
        constraints: F64 | None,
    ) -> None: ...
    @property
    def entropy_weight(self) -> float: ...
    @entropy_weight.setter
    def entropy_weight(self, value: float) -> None: ...
    @property
    def entropy(self) -> float: ...
    def set_weights(self, w: F64) -> None: ...
    def weights(self, averaged: bool, w: F64) -> None: ...
    def loss(self, order: I64) -> float: ...
    def sgd(
        self,
        order: I64,
        eta0: float,
        decay: float,
        rate: float,
        power: float,
        t0: float,
        batch: int,
        average: bool,
    ) -> float: ...
    def adagrad(self, order: I64, eta: float, decay: float, floor: float, batch: int) -> float: ...
    def perceptron(self, order: I64) -> float: ...
    def passive_aggressive(self, order: I64, type: int, c: float, error_sensitive: bool) -> float: ...
    def arow(self, order: I64, variance: float, r: float) -> float: ...
    def sag(self, order: I64, decay: float, search: int) -> float: ...
    def set_beam(self, kind: str | None, amount: float = ..., size: int = ..., most: int | None = ...) -> None: ...
    @property
    def tally(self) -> tuple[int, int, int]: ...
    def gradient(self, order: I64, g: F64) -> float: ...
    def lipschitz(self) -> F64: ...
    def smd(self, order: I64, eta0: float, mu: float, lam: float, decay: float, damp: float, batch: int) -> float: ...
    @property
    def n_sequences(self) -> int: ...
    @property
    def size(self) -> int: ...

class SequencesF64(SequencesF32): ...

class Memory:
    def __init__(self, size: int, capacity: int) -> None: ...
    def push(self, x: F64, x_old: F64, g: F64, g_old: F64, threads: int) -> bool: ...
    def direction(self, v: F64, d: F64, threads: int) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

def read_cqdb(data: bytes, begin: int, count: int) -> StringTable: ...
def write_cqdb(strings: StringTable) -> bytes: ...
def find_items(names: StringTable, sequences: Any) -> tuple[I64, I64, U32, F64 | None]: ...
def tag_items(
    scorer: ScorerF32, names: StringTable, sequences: Any, labels: Sequence[Any], threads: int
) -> list[list[Any]]: ...
def parse_columns(
    text: bytes, first_line: int, separator: str, comment: str, document: str, conllu: bool, n_columns: int
) -> tuple[StringTable, U32, I64, int] | tuple[int, str]: ...
def write_columns(
    strings: StringTable, ids: U32, offsets: I64, path: I32, labels: Sequence[str], probability: F64 | None
) -> bytes: ...

class SemiObjectiveF32:
    def __init__(
        self,
        layout: Layout,
        data: Tokens,
        n_partial: int,
        allowed: U8,
        seq_weight: F64 | None,
        constraints: F64 | None,
        threads: int,
    ) -> None: ...
    def add(self, w: F64, entropy_weight: float, g: F64, threads: int) -> tuple[float, float]: ...
    def add_hessian_product(self, w: F64, v: F64, entropy_weight: float, out: F64, threads: int) -> None: ...

class SemiObjectiveF64(SemiObjectiveF32): ...
