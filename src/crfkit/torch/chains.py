"""Padded batches of torch as the ragged sequences of the native core, and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crfkit import _core
from crfkit.base.threads import resolve_threads
from crfkit.chain.potentials import Lattice

__all__: list[str] = []


def compute_dtype(x: Tensor) -> torch.dtype:
    """What is computed in: float64 for float64, else float32.

    >>> compute_dtype(torch.zeros(1, dtype=torch.bfloat16))
    torch.float32
    """
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class Batch(NamedTuple):
    """The scores of a padded batch of chains.

    Attributes
    ----------
    emissions : tensor [B, T, L]
    transitions : tensor [L, L]
    start, end : tensors [L]
    pairwise : tensor [B, T - 1, L, L], optional
        Added to the transitions, step by step: ``pairwise[:, t - 1]`` for the step into t.
    mask : bool tensor [B, T], optional
        Steps that count. Others are skipped, and the steps around them become neighbours.
    tags : int64 tensor [B, T], optional
        Labels whose likelihood is wanted.
    ignore : int
        The tag of an unknown label, where the kernels take them.
    """

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    pairwise: Tensor | None = None
    mask: Tensor | None = None
    tags: Tensor | None = None
    ignore: int = -100

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return compute_dtype(self.emissions)


def agrees(batch: Batch) -> Tensor:
    """Which labels [B, T, L] agree with the tags: all where these are unknown or masked."""
    assert batch.tags is not None
    y = batch.tags[..., None]
    fits = (y == torch.arange(batch.emissions.shape[2], device=y.device)) | (y == batch.ignore)
    return fits if batch.mask is None else fits | ~batch.mask[..., None]


class Gradients(NamedTuple):
    """Of a sum over sequences, for every input of a chain; in the shapes and the order of the inputs."""

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    pairwise: Tensor | None


class Ragged:
    """Where the steps of a padded batch [B, T] are that the mask leaves.

    Attributes
    ----------
    index : int64 tensor [N], or None if nothing is masked
        Places of the steps in the flattened batch.
    offsets : int64 array [B + 1]
    """

    def __init__(self, shape: tuple[int, ...], mask: Tensor | None) -> None:
        self.n_batch, self.n_steps = shape
        self.index = None
        lengths = np.full(self.n_batch, self.n_steps, np.int64)
        if mask is not None and not bool(mask.all()):
            self.index = mask.cpu().reshape(-1).nonzero().squeeze(1)
            lengths = mask.sum(1).cpu().numpy()
        self.offsets: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @cached_property
    def first(self) -> Tensor:
        """First steps of the sequences that have any, as places in the ragged steps."""
        return torch.from_numpy(self.offsets[:-1][np.diff(self.offsets) > 0])

    @cached_property
    def last(self) -> Tensor:
        """Last steps, likewise."""
        return torch.from_numpy(self.offsets[1:][np.diff(self.offsets) > 0] - 1)

    @cached_property
    def inner(self) -> Tensor:
        """All steps but the first ones, likewise: an edge leads into each."""
        inner = torch.ones(int(self.offsets[-1]), dtype=torch.bool)
        inner[self.first] = False
        return inner.nonzero().squeeze(1)

    @cached_property
    def edge_index(self) -> Tensor:
        """Places in the flattened [B, T - 1] of the pairs' scores: those into the later step."""
        flat = self.inner if self.index is None else self.index[self.inner]
        return flat - flat // self.n_steps - 1

    def take(self, x: Tensor) -> Tensor:
        """The steps of a padded [B, T, ...] tensor, [N, ...]."""
        flat = x.reshape(self.n_batch * self.n_steps, *x.shape[2:])
        return flat if self.index is None else flat.index_select(0, self.index)

    def put(self, x: Tensor) -> Tensor:
        """The other way: [N, ...] to [B, T, ...], zeros at masked steps."""
        shape = (self.n_batch, self.n_steps, *x.shape[1:])
        if self.index is None:
            return x.reshape(shape)
        out = x.new_zeros(self.n_batch * self.n_steps, *x.shape[1:])
        out.index_copy_(0, self.index, x)
        return out.reshape(shape)


def _array(x: Tensor) -> NDArray[Any]:
    return x.detach().contiguous().numpy()


def check_scores(scores: Mapping[str, NDArray[Any]]) -> None:
    """Raises ValueError if a score is NaN or plus infinity; padding has moved it, so that its place says nothing."""
    for name, x in scores.items():
        if not (x < np.inf).all():  # a NaN, too, is not
            raise ValueError(f"a score must be finite or minus infinity, got {x[~(x < np.inf)][0]} in {name}")


class Chains:
    """The potentials of a batch, as the core takes them; everything on the CPU."""

    def __init__(self, batch: Batch) -> None:
        self.dtype = batch.dtype
        self.ragged = Ragged(batch.emissions.shape[:2], batch.mask)
        self.unary, self.pairs = self.direction(*batch[:5])
        check_scores({"emissions, start or end": self.unary, "transitions or pairwise": self.pairs})
        self.per_step = batch.pairwise is not None
        self.n_labels = batch.emissions.shape[2]

    def direction(
        self, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, pairwise: Tensor | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Unary [N, L] and pairwise [1 or E, L, L] scores, with start and end in the unary ones."""
        x = self.ragged
        unary = x.take(emissions.detach().cpu()).to(self.dtype, copy=True)
        if unary.shape[0]:
            unary[x.first] += start.detach().cpu().to(self.dtype)
            unary[x.last] += end.detach().cpu().to(self.dtype)
        table = transitions.detach().cpu().to(self.dtype, copy=True)  # numpy holds on to what it is given
        if pairwise is None:
            return _array(unary), _array(table[None])
        steps = pairwise.detach().cpu().to(self.dtype).reshape(-1, *table.shape).index_select(0, x.edge_index)
        return _array(unary), _array(steps + table)

    def _arrays(self) -> Lattice:
        return Lattice(self.unary, self.pairs, self.per_step, self.ragged.offsets)

    def _threads(self) -> int:
        """One for small batches, whose work is over before a thread has started."""
        return 1 if self.unary.size * self.n_labels < 200_000 else resolve_threads(-1)

    def _outputs(self) -> tuple[NDArray[Any], NDArray[np.float64] | None, NDArray[Any] | None]:
        nodes = np.zeros_like(self.unary)
        if self.per_step:
            return nodes, None, np.zeros_like(self.pairs)
        return nodes, np.zeros(self.pairs.shape[1:]), None

    def _gradients(
        self, nodes: NDArray[Any], pairs: NDArray[np.float64] | None, edges: NDArray[Any] | None
    ) -> Gradients:
        x = self.ragged
        unary = torch.from_numpy(nodes)
        start = unary.index_select(0, x.first).sum(0)
        end = unary.index_select(0, x.last).sum(0)
        if edges is None:
            assert pairs is not None
            return Gradients(x.put(unary), torch.from_numpy(pairs).to(self.dtype), start, end, None)
        steps = torch.from_numpy(edges)
        full = steps.new_zeros(x.n_batch * max(0, x.n_steps - 1), *steps.shape[1:])
        full.index_copy_(0, x.edge_index, steps)
        full = full.reshape(x.n_batch, max(0, x.n_steps - 1), *steps.shape[1:])
        return Gradients(x.put(unary), steps.sum(0), start, end, full)

    def log_z(self) -> Tensor:
        """Log-partition log Z [B], float64."""
        out = np.empty(self.ragged.n_batch)
        _core.expectations(self._arrays(), self._threads(), None, out, None, None, None)
        return torch.from_numpy(out)

    def expectations(self, weight: Tensor | None) -> tuple[Tensor, Gradients]:
        """Log-partition log Z [B], and the gradient of its weighted sum: the marginals."""
        out = np.empty(self.ragged.n_batch)
        nodes, pairs, edges = self._outputs()
        w = None if weight is None else np.ascontiguousarray(weight.detach().cpu().numpy(), np.float64)
        _core.expectations(self._arrays(), self._threads(), w, out, nodes, pairs, edges)
        return torch.from_numpy(out), self._gradients(nodes, pairs, edges)

    def covariance(self, r: NDArray[Any], ra: NDArray[Any], weight: Tensor | None) -> tuple[Tensor, Gradients]:
        """E[R] [B], and the weighted covariances of R with every input's indicator."""
        mean = np.empty(self.ragged.n_batch)
        nodes, pairs, edges = self._outputs()
        w = None if weight is None else np.ascontiguousarray(weight.detach().cpu().numpy(), np.float64)
        _core.covariance(self._arrays(), r, ra, self._threads(), w, mean, nodes, pairs, edges)
        return torch.from_numpy(mean), self._gradients(nodes, pairs, edges)
