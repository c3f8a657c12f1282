"""Segmentations as a layer of torch networks: on the native core, and on a GPU by Triton kernels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crfkit import _core
from crfkit.base.parameters import check_number
from crfkit.base.threads import resolve_threads
from crfkit.segment.inference import Marginals, Segments, decode, marginals, nbest
from crfkit.segment.known import ANY, BORDER, INNER
from crfkit.segment.potentials import Potentials
from crfkit.torch import gpu
from crfkit.torch.chains import Ragged, check_scores, compute_dtype

__all__: list[str] = []


class _OnDevice(torch.autograd.Function):
    """log Z of ragged sequences [B] by the kernels for a GPU; messages of both ends are kept, O(T L) numbers."""

    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor, lengths: Tensor, steps: Ragged, borders: Any) -> Tensor:
        from crfkit.torch import segment_kernels

        ctx.lattices = _on_device(unary, pairwise, lengths, steps, borders)
        ctx.walked = segment_kernels.forward(ctx.lattices, any(ctx.needs_input_grad))
        value: Tensor = ctx.walked.value.to(unary.dtype)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        from crfkit.torch import segment_kernels

        x = ctx.lattices
        found = segment_kernels.posterior(x, ctx.walked, grads[0])
        each = torch.repeat_interleave(grads[0], x.offsets.diff(), output_size=len(x.unary))
        return (found.nodes * each[:, None], found.pairs, found.lengths, None, None)


def _on_device(unary: Tensor, pairwise: Tensor, lengths: Tensor, steps: Ragged, borders: Any = None) -> Any:
    """As the kernels take it."""
    from crfkit.torch.segment_kernels import Lattices

    u, a, d = (x.detach().to(unary).contiguous() for x in (unary, pairwise, lengths))
    offsets = torch.from_numpy(steps.offsets)
    known = None if borders is None else torch.from_numpy(borders).to(unary.device)
    return Lattices(u, a, d, offsets.to(unary.device), known, int(np.diff(steps.offsets).max(initial=0)))


class _LogPartition(torch.autograd.Function):
    """log Z of ragged sequences, [B].

    Forward keeps nothing but its inputs; backward goes through the lattice again, in O(T L + K L) memory, with the
    incoming gradients as weights of the sequences.
    """

    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor, lengths: Tensor, offsets: Any, borders: Any) -> Tensor:
        ctx.save_for_backward(unary, pairwise, lengths)
        ctx.more = offsets, borders
        log_z = np.zeros(len(offsets) - 1)
        lattice = _lattice(unary, pairwise, lengths, offsets, borders)
        check_scores({"emissions, start or end": lattice[0], "transitions": lattice[3], "lengths": lattice[4]})
        _core.segment_sums(lattice, resolve_threads(None), None, _out(log_z))
        return torch.from_numpy(log_z).to(unary.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        unary, pairwise, lengths = ctx.saved_tensors
        lattice = _lattice(unary, pairwise, lengths, *ctx.more)
        log_z = np.zeros(len(ctx.more[0]) - 1)
        nodes = np.zeros(unary.shape, lattice[0].dtype)
        pairs, sizes = np.zeros(pairwise.shape), np.zeros(lengths.shape)
        weight = np.ascontiguousarray(grads[0].detach().cpu().double().numpy())
        _core.segment_sums(lattice, resolve_threads(None), weight, _out(log_z, nodes, pairs, sizes))
        found = (torch.from_numpy(x).to(y) for x, y in ((nodes, unary), (pairs, pairwise), (sizes, lengths)))
        return (*found, None, None)


def _array(x: Tensor, kind: torch.dtype) -> NDArray[Any]:
    return np.ascontiguousarray(x.detach().to("cpu", kind).numpy())


def _lattice(unary: Tensor, pairwise: Tensor, lengths: Tensor, offsets: Any, borders: Any) -> tuple[Any, ...]:
    """As the core takes it."""
    kind = compute_dtype(unary)
    u, a, d = (_array(x, kind) for x in (unary, pairwise, lengths))
    return (u, None, None, a, d, None, 0, borders, None, offsets)


def _out(log_z: Any, nodes: Any = None, pairs: Any = None, lengths: Any = None) -> tuple[Any, ...]:
    return (log_z, nodes, None, None, pairs, lengths, None, None, None, None)


def _alive(log_z: Tensor) -> Tensor:
    """Log Z [B]; raises where a sequence has no segmentation, but on a GPU, which nothing is to wait for."""
    dead = torch.isneginf(log_z.detach())
    if log_z.device.type == "cpu" and bool(dead.any()):
        raise ValueError(f"sequence {int(dead.nonzero()[0, 0])}: no segmentation is allowed")
    return log_z


class SegmentCRF(nn.Module):
    r"""Semi-Markov CRF layer: a distribution over the segmentations of a sequence, given emissions.

    .. math::

        \log p(y \mid x) = \sum_{(a, b, j)} \Bigl( \sum_{t=a}^{b-1} e_t(j) + d_{b-a}(j) \Bigr) + \sum_{(i, j)} a(i, j)
            + \text{start} + \text{end} - \log Z

    Time :math:`O(T (L^2 + K L))`, memory :math:`O(T L + K L)`. On the CPU the backward pass computes the lattice again;
    on a GPU the forward pass goes through it from both ends at the same time.

    Parameters
    ----------
    num_tags : int
        Labels of segments, L.
    max_length : int
        The longest segment, K.
    batch_first : bool, default=False
        Whether inputs are [B, T, ...] or [T, B, ...], as for :class:`crfkit.torch.CRF`.
    ignore_index : int
        The tag of a token whose label is not known.
    backend : {"auto", "core", "triton"}
        Kernels to use; by default Triton's for tensors on a GPU with up to 128 labels, otherwise the native core.

    Attributes
    ----------
    transitions : parameter [L, L]
    lengths : parameter [K, L]
    start_transitions, end_transitions : parameters [L]

    Examples
    --------
    >>> import torch
    >>> crf = SegmentCRF(2, max_length=3, batch_first=True)
    >>> emissions = torch.randn(1, 4, 2, requires_grad=True)
    >>> tags, begins = torch.tensor([[0, 0, 1, 1]]), torch.tensor([[True, False, True, True]])
    >>> (-crf(emissions, tags, begins)).backward()
    >>> emissions.grad.shape, [s[-1, 1] for s in crf.decode(emissions)]
    (torch.Size([1, 4, 2]), [np.int64(4)])
    """

    def __init__(
        self,
        num_tags: int,
        max_length: int,
        batch_first: bool = False,
        *,
        ignore_index: int = -100,
        backend: Literal["auto", "core", "triton"] = "auto",
    ) -> None:
        check_number(self, "num_tags", num_tags, 1, integer=True)
        check_number(self, "max_length", max_length, 1, integer=True)
        if ignore_index >= 0:
            raise ValueError(f"'ignore_index' of SegmentCRF must be negative, got {ignore_index}")
        if backend not in ("auto", "core", "triton"):
            raise ValueError(f"'backend' of SegmentCRF must be 'auto', 'core' or 'triton', got {backend!r}")
        super().__init__()
        self.num_tags, self.max_length, self.backend = num_tags, max_length, backend
        self.batch_first, self.ignore_index = batch_first, ignore_index
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.lengths = nn.Parameter(torch.empty(max_length, num_tags))
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters from U(-0.1, 0.1)."""
        for x in self.parameters():
            nn.init.uniform_(x, -0.1, 0.1)

    def __repr__(self) -> str:
        return f"SegmentCRF(num_tags={self.num_tags}, max_length={self.max_length})"

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def _ragged(self, emissions: Tensor, mask: Tensor | None) -> tuple[Tensor, Ragged]:
        """Scores of the steps that are there [N, L], first and last scores in them."""
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            raise ValueError(f"emissions must have shape [B, T, {self.num_tags}], got {tuple(emissions.shape)}")
        if mask is not None and mask.shape != emissions.shape[:2]:
            raise ValueError(f"mask must have shape {tuple(emissions.shape[:2])}, got {tuple(mask.shape)}")
        emissions = self._turned(emissions)
        steps = Ragged(tuple(emissions.shape[:2]), None if mask is None else self._turned(mask).bool())
        flat = emissions.reshape(-1, self.num_tags).to(compute_dtype(emissions))
        if steps.index is not None:
            flat = flat[steps.index.to(flat.device)]
        first, last = steps.first.to(flat.device), steps.last.to(flat.device)
        flat = flat.index_add(0, first, self.start_transitions.to(flat).expand(len(first), -1))
        return flat.index_add(0, last, self.end_transitions.to(flat).expand(len(last), -1)), steps

    def _log_z(self, unary: Tensor, steps: Ragged, borders: Any = None) -> Tensor:
        tables = self.transitions.to(unary), self.lengths.to(unary)
        if self._has_kernels(unary):
            value: Tensor = _OnDevice.apply(unary, *tables, steps, borders)  # type: ignore[no-untyped-call]
            return value
        out: Tensor = _LogPartition.apply(unary, *tables, steps.offsets, borders)  # type: ignore[no-untyped-call]
        return out.to(unary.device)

    def _has_kernels(self, unary: Tensor) -> bool:
        """Whether a batch goes to the kernels for a GPU."""
        if self.backend == "core" or (self.backend == "auto" and not unary.is_cuda):
            return False
        fits = gpu.has_triton() and self.num_tags <= gpu.FUSED_LABELS
        if self.backend == "triton" and not fits:
            raise ValueError("'backend' of SegmentCRF is 'triton', which must be installed and takes up to 128 labels")
        if self.backend == "triton":
            gpu.require_gpu(unary)
        return fits and len(unary) > 0

    def log_partition(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log Z, the logarithm of the sum over all segmentations of each sequence, [B].

        A sequence without any allowed segmentation is an error on the CPU; on a GPU, which is not waited for, its value
        is minus infinity.
        """
        return _alive(self._log_z(*self._ragged(emissions, mask)))

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        begins: Tensor | None = None,
        mask: Tensor | None = None,
        reduction: Literal["none", "sum", "mean"] = "sum",
    ) -> Tensor:
        """Log-likelihood of segmentations: their score minus log Z.

        A sequence without any allowed segmentation is an error on the CPU; on a GPU, which is not waited for, its value
        is NaN.

        Parameters
        ----------
        emissions : tensor [B, T, L] or [T, B, L]
            Scores of the labels at each step.
        tags : int tensor [B, T] or [T, B]
            Labels of the tokens; ``ignore_index`` where one is not known.
        begins : bool or int tensor like tags, optional
            Whether a segment begins at each token, also at those whose label is not known; in an int tensor
            ``ignore_index`` where that is not known. Without it only labels are known: the likelihood is that of all
            segmentations with these labels.
        mask : bool tensor, optional
            True for steps that count.
        reduction : {"none", "sum", "mean"}
            Value per sequence, their sum, or their mean.

        Returns
        -------
        tensor, scalar or [B]

        Examples
        --------
        >>> layer = SegmentCRF(2, max_length=3)
        >>> layer(torch.zeros(1, 4, 2), torch.tensor([[0, 0, 1, 1]])) < 0
        tensor(True)
        """
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"invalid reduction: {reduction}")
        unary, steps = self._ragged(emissions, mask)
        y = self._flat(tags, emissions, steps, "tags")
        wrong = (y != self.ignore_index) & ((y < 0) | (y >= self.num_tags))
        if bool(wrong.any()):
            raise ValueError(
                f"tags must be from 0 to {self.num_tags - 1} or {self.ignore_index}, got {int(y[wrong][0])}"
            )
        borders = None if begins is None else self._borders(self._flat(begins, emissions, steps, "begins"), steps)
        if borders is not None and borders.all() and not bool((y == self.ignore_index).any()):
            gold = self._gold(unary, steps, y, torch.from_numpy(borders == BORDER).to(y.device))
        else:
            fits = (y[:, None] == torch.arange(self.num_tags, device=y.device)) | (y[:, None] == self.ignore_index)
            gold = self._log_z(unary.masked_fill(~fits, -torch.inf), steps, borders)
        value = gold - _alive(self._log_z(unary, steps))
        return value if reduction == "none" else value.sum() if reduction == "sum" else value.mean()

    def _borders(self, b: Tensor, steps: Ragged) -> NDArray[np.uint8]:
        """What is known of the borders, as the core has it."""
        given = b.cpu().numpy().astype(np.int64)
        wrong = ~np.isin(given, (0, 1, self.ignore_index))
        if wrong.any():
            raise ValueError(f"begins must be bool, 0, 1 or {self.ignore_index}, got {given[wrong][0]}")
        out = np.where(given == 1, BORDER, np.where(given == 0, INNER, ANY)).astype(np.uint8)
        out[steps.first.cpu().numpy()] = BORDER
        return out

    def _flat(self, x: Tensor, emissions: Tensor, steps: Ragged, name: str) -> Tensor:
        if x.shape != emissions.shape[:2]:
            raise ValueError(f"{name} must have shape {tuple(emissions.shape[:2])}, got {tuple(x.shape)}")
        x = self._turned(x).reshape(-1)
        return x if steps.index is None else x[steps.index.to(x.device)]

    def _gold(self, unary: Tensor, steps: Ragged, y: Tensor, begins: Tensor) -> Tensor:
        """Scores of the segmentations that are given, [B]."""
        offsets = torch.from_numpy(steps.offsets).to(y.device)
        sequence = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=y.device), offsets.diff())
        out = torch.zeros(len(offsets) - 1, dtype=unary.dtype, device=unary.device)
        out = out.index_add(0, sequence, unary.gather(1, y[:, None])[:, 0])
        start = begins.nonzero()[:, 0]
        size = torch.cat([start[1:], start.new_tensor([len(y)])]) - start
        if len(size) and int(size.max()) > self.max_length:
            raise ValueError(f"a segment has {int(size.max())} tokens, more than 'max_length'={self.max_length}")
        same = y == torch.repeat_interleave(y[start], size)
        if not bool(same.all()):
            raise ValueError("the tokens of a segment must have the same tag")
        out = out.index_add(0, sequence[start], self.lengths.to(unary)[size - 1, y[start]])
        inner = start[1:][sequence[start[1:]] == sequence[start[1:] - 1]]
        return out.index_add(0, sequence[inner], self.transitions.to(unary)[y[inner - 1], y[inner]])

    def _potentials(self, unary: Tensor, steps: Ragged) -> Potentials:
        kind = compute_dtype(unary)
        u, d, a = (_array(x, kind) for x in (unary, self.lengths, self.transitions))
        return Potentials(u, d, a, offsets=steps.offsets)

    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[Segments]:
        """The best segmentation of each sequence: int64 arrays [M, 3] of (start, end, label)."""
        unary, steps = self._ragged(emissions, mask)
        if self._has_kernels(unary):
            from crfkit.torch import segment_kernels

            best = segment_kernels.decode(_on_device(unary, self.transitions, self.lengths, steps))
            return segment_kernels.segments_of(*best, steps.offsets)
        found: list[Segments] = decode(self._potentials(unary, steps))
        return found

    def nbest(self, emissions: Tensor, k: int, mask: Tensor | None = None) -> list[Any]:
        """The ``k`` best segmentations of each sequence, as :func:`crfkit.segment.nbest` gives them."""
        out: list[Any] = nbest(self._potentials(*self._ragged(emissions, mask)), k)
        return out

    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> Marginals:
        """Probabilities of labels, borders and segments, as :func:`crfkit.segment.marginals` gives them.

        Steps of all sequences one after another, without those that are masked; no gradients.
        """
        unary, steps = self._ragged(emissions, mask)
        p = self._potentials(unary, steps)
        if not self._has_kernels(unary):
            return marginals(p)
        from crfkit.torch import segment_kernels

        x = _on_device(unary, self.transitions, self.lengths, steps)
        walked = segment_kernels.forward(x, True)
        found = segment_kernels.posterior(x, walked, torch.ones_like(walked.value))
        nodes, begins, ends, pairs, sizes = (y.cpu().numpy() for y in found)
        expected = pairs.astype(np.float64), sizes.astype(np.float64)
        return Marginals(walked.value.cpu().numpy(), nodes, begins, ends, *expected, None, None, p, None, None)
