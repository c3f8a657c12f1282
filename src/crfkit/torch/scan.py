"""Few and long sequences: a scan over time in spans, whose programs all run at once.

A span of steps takes the messages before it to those behind it by a matrix, row by row the messages of a walk that
begins with one label. First all rows of all spans' matrices are walked; then the matrices are multiplied from both
ends, one vector at a time, so that the messages at the spans' bounds are known; then all spans are walked again from
there. Of T dependent steps a few times the square root is left; the work grows by the number of labels. All is in log
space, as without the scan.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch import kernels
from crfkit.torch.kernels import LABEL, SPAN, first_and_last, multiprocessors, scalar_type, value_of, width_and_warps

__all__ = ["backward", "decode", "forward", "span_of"]


#: Fewer steps are walked in whole sequences: measured on an H200, for sums and for decoding.
LEAST_STEPS, LEAST_STEPS_OF_DECODING = 1024, 4096
#: Likewise if a step's exponentials, B L^3, are more than so many on each multiprocessor.
MOST_WORK = 16_000


def span_of(x: Tensor, decoding: bool = False) -> int:
    """How many steps a span has; zero where walking whole sequences is faster."""
    n_batch, n_steps, n_labels = x.shape
    if n_steps < (LEAST_STEPS_OF_DECODING if decoding else LEAST_STEPS):
        return 0
    width, _ = width_and_warps(n_labels)
    if n_batch * width**3 > MOST_WORK * multiprocessors(x.device):
        return 0
    return 1 << round(math.log2(n_steps) / 2)


@triton.jit
def _labels_kernel(x_ptr, f_ptr, map_ptr, label_ptr, n_spans, n_labels, WIDTH: tl.constexpr):
    # the last labels of all spans, from the last one back through the spans' maps
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    x = tl.load(x_ptr + (b * (n_spans + 1) + n_spans) * n_labels + i, mask=inside, other=float("-inf"))
    top, best = tl.max(x + tl.load(f_ptr + i, mask=inside, other=float("-inf")), axis=0, return_indices=True)
    y = best.to(tl.int64)
    for back in range(n_spans):
        place = b * n_spans + n_spans - 1 - back
        tl.store(label_ptr + place, tl.where(top == float("-inf"), -2, y))
        y = tl.load(map_ptr + place * n_labels + y).to(tl.int64)


def _at_bounds(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    first: Tensor,
    span: int,
    sides: int,
    best: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-partition log Z [B], and the messages at the spans' bounds [sides, B, spans + 1, L].

    Before a sequence's first step they are those of label 0 alone: whatever leads into that step is its start.
    """
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels)
    spans = triton.cdiv(n_steps, span)
    rows = a.new_empty(n_batch, spans, n_labels, n_labels)
    shift = torch.empty((n_batch, spans, n_labels), dtype=torch.float64, device=x.device)
    kernels._forward_kernel[(n_batch, spans, n_labels)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, None, first, rows, None, shift, n_steps, span, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=False, HAS_PAIRS=p is not None, KEEP=False, BEST=best,
        START=LABEL, WIDE=scalar_type(a.dtype), num_warps=warps,
    )  # fmt: skip
    shift.masked_fill_(rows.amax(3) == -torch.inf, -torch.inf)
    top = shift.amax(2).nan_to_num_(neginf=0.0)
    rows += (shift - top[..., None]).to(a.dtype)[..., None]
    ends = a.new_zeros(sides, n_batch, spans + 1, n_labels)
    ends[0, :, 0, 1:] = -torch.inf
    if sides > 1:
        ends[1, :, 0] = e
        rows = torch.cat([rows, rows.flip(1).transpose(2, 3)])
    value, bounds = kernels.forward(
        ends.flatten(0, 1), torch.zeros_like(a), torch.zeros_like(s), e, rows, None, None, True, best
    )
    return value[:n_batch] + top.sum(1), bounds.view_as(ends)


def forward(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    keep: bool = True,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """As :func:`crfkit.torch.kernels.forward`."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels)
    span = span_of(x)
    first, last = first_and_last(x, m)
    log_z, bounds = _at_bounds(x, a, s, e, p, m, first, span, 1 + keep)
    alpha = a.new_empty(x.shape if keep else (0,))
    if keep:
        kernels._forward_kernel[(n_batch, bounds.shape[2] - 1)](
            x, x.stride(0), x.stride(1), a, s, e, p, m, None, first, bounds, alpha, None, n_steps, span, n_labels,
            WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=False, HAS_PAIRS=p is not None, KEEP=True, BEST=False,
            START=SPAN, WIDE=scalar_type(a.dtype), num_warps=warps,
        )  # fmt: skip
    return value_of(x, a, s, e, p, m, y, log_z), (alpha, bounds, first, last)


def backward(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    saved: tuple[Tensor, ...],
    g: Tensor,
) -> tuple[Tensor | None, ...]:
    """As :func:`crfkit.torch.kernels.backward`."""
    alpha, bounds, first, last = saved
    n_batch, n_steps, _ = x.shape
    span = span_of(x)
    if y is not None and m is not None:  # masked steps take the label of the last step there
        at = torch.arange(n_steps, device=x.device).expand(n_batch, n_steps)
        y = y.gather(1, torch.where(m > 0, at, 0).cummax(1).values)
    de, da, ends, dp = kernels.walk_back(x, a, e, p, m, y, alpha, g, first, bounds, span)
    seq = torch.arange(n_batch, device=x.device)
    ds, df = (ends[k, seq, at.long() // span].sum(0) for k, at in enumerate((first, last)))
    return de, da.sum((0, 1)), ds, df, dp


def decode(x: Tensor, a: Tensor, s: Tensor, e: Tensor, p: Tensor | None, m: Tensor | None) -> Tensor:
    """As :func:`crfkit.torch.kernels.decode`."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels)
    span = span_of(x)
    first, _ = first_and_last(x, m)
    _, bounds = _at_bounds(x, a, s, e, p, m, first, span, 1, best=True)
    spans = bounds.shape[2] - 1
    back, paths = torch.empty((2, n_batch, n_steps, n_labels), dtype=torch.int16, device=x.device)
    maps = torch.empty((n_batch, spans, n_labels), dtype=torch.int16, device=x.device)
    kernels._decode_kernel[(n_batch, spans)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, first, bounds, back, paths, maps, n_steps, span, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_PAIRS=p is not None, START=SPAN, WIDE=scalar_type(a.dtype),
        num_warps=warps,
    )  # fmt: skip
    label = torch.empty((n_batch, spans), dtype=torch.int64, device=x.device)
    _labels_kernel[(n_batch,)](bounds, e, maps, label, spans, n_labels, WIDTH=width)
    dead = label[:, :1] < 0
    if m is not None:
        dead = dead & (m.amax(1, keepdim=True) > 0)
    last = label.clamp_min(0).repeat_interleave(span, 1)[:, :n_steps, None]
    found: Tensor = paths.gather(2, last).squeeze(2).long()
    return found.masked_fill_(dead, -2)
