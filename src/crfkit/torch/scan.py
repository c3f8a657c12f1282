"""Few long sequences: a scan over time in spans, whose programs all run at the same time.

A span of steps takes the messages before it to those after it by a matrix; a row of that matrix holds the messages of a
walk that begins with one label. First all rows of all spans' matrices are walked; then the matrices are multiplied from
both ends, one vector at a time, which gives the messages at the bounds of the spans; then all spans are walked again
from there. Of T dependent steps a few times the square root remains; the work grows by the number of labels. Everything
is in log space, as without the scan.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch import kernels
from crfkit.torch.chains import Batch
from crfkit.torch.kernels import Spans, first_and_last, multiprocessors, value_of, walk, width_of

__all__: list[str] = []


#: Shorter sequences are walked whole: measured on an H200, for sums and for decoding.
LEAST_STEPS, LEAST_STEPS_OF_DECODING = 1024, 4096
#: So are those with more exponentials at a step, B L^3, for each multiprocessor.
MOST_WORK = 16_000


def span_of(emissions: Tensor, decoding: bool = False) -> int:
    """How many steps a span has; zero where walking whole sequences is faster."""
    n_batch, n_steps, _ = emissions.shape
    if n_steps < (LEAST_STEPS_OF_DECODING if decoding else LEAST_STEPS):
        return 0
    if n_batch * width_of(emissions) ** 3 > MOST_WORK * multiprocessors(emissions.device):
        return 0
    return 1 << round(math.log2(n_steps) / 2)


@triton.jit
def _labels_kernel(bound_ptr, end_ptr, map_ptr, label_ptr, n_spans, n_labels, WIDTH: tl.constexpr):
    # the last labels of all spans, from the last one back through the spans' maps
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    x = tl.load(bound_ptr + (b * (n_spans + 1) + n_spans) * n_labels + i, mask=inside, other=float("-inf"))
    top, best = tl.max(x + tl.load(end_ptr + i, mask=inside, other=float("-inf")), axis=0, return_indices=True)
    y = best.to(tl.int64)
    for back in range(n_spans):
        place = b * n_spans + n_spans - 1 - back
        tl.store(label_ptr + place, tl.where(top == float("-inf"), -2, y))
        y = tl.load(map_ptr + place * n_labels + y).to(tl.int64)


def _at_bounds(batch: Batch, first: Tensor, span: int, sides: int, best: bool = False) -> tuple[Tensor, Spans]:
    """Log-partition log Z [B], and the spans with the messages at their bounds [sides, B, spans + 1, L].

    Before the first step of a sequence they are those of label 0 alone: whatever leads into that step is its start.
    """
    a, end = batch.transitions, batch.end
    n_batch, n_steps, n_labels = batch.emissions.shape
    n_spans = triton.cdiv(n_steps, span)
    rows = a.new_empty(n_batch, n_spans, n_labels, n_labels)
    shift = torch.empty((n_batch, n_spans, n_labels), dtype=torch.float64, device=a.device)
    walk(batch, (n_batch, n_spans, n_labels), shift, spans=Spans(first, rows, span), best=best)
    shift.masked_fill_(rows.amax(3) == -torch.inf, -torch.inf)
    top = shift.amax(2).nan_to_num_(neginf=0.0)
    rows += (shift - top[..., None]).to(a.dtype)[..., None]
    ends = a.new_zeros(sides, n_batch, n_spans + 1, n_labels)
    ends[0, :, 0, 1:] = -torch.inf
    if sides > 1:
        ends[1, :, 0] = end
        rows = torch.cat([rows, rows.flip(1).transpose(2, 3)])
    products = Batch(ends.flatten(0, 1), torch.zeros_like(a), torch.zeros_like(end), end, rows)
    value, bounds = kernels.forward(products, best=best)
    assert bounds is not None
    return value[:n_batch] + top.sum(1), Spans(first, bounds.view_as(ends), span)


def forward(batch: Batch, keep: bool = True) -> tuple[Tensor, tuple[Tensor, Spans, Tensor] | None]:
    """As :func:`crfkit.torch.kernels.forward`."""
    first, last = first_and_last(batch)
    log_z, spans = _at_bounds(batch, first, span_of(batch.emissions), 1 + keep)
    value = value_of(batch, log_z)
    if not keep:
        return value, None
    alpha = batch.transitions.new_empty(batch.emissions.shape)
    walk(batch, (len(first), _count(spans)), None, alpha, spans)
    return value, (alpha, spans, last)


def _count(spans: Spans) -> int:
    assert spans.bounds is not None
    return spans.bounds.shape[2] - 1


def backward(batch: Batch, saved: tuple[Tensor, Spans, Tensor], g: Tensor) -> tuple[Tensor | None, ...]:
    """As :func:`crfkit.torch.kernels.backward`."""
    alpha, spans, last = saved
    assert spans.first is not None
    n_batch, n_steps, _ = alpha.shape
    if batch.tags is not None and batch.mask is not None:  # masked steps take the label of the last step there
        at = torch.arange(n_steps, device=alpha.device).expand(n_batch, n_steps)
        batch = batch._replace(tags=batch.tags.gather(1, torch.where(batch.mask > 0, at, 0).cummax(1).values))
    du, da, ends, dp = kernels.walk_back(batch, alpha, g, spans)
    seq = torch.arange(n_batch, device=alpha.device)
    ds, de = (ends[k, seq, at.long() // spans.steps].sum(0) for k, at in enumerate((spans.first, last)))
    return du, da.sum((0, 1)), ds, de, dp


def decode(batch: Batch) -> Tensor:
    """As :func:`crfkit.torch.kernels.decode`."""
    x = batch.emissions
    n_batch, n_steps, n_labels = x.shape
    _, spans = _at_bounds(batch, first_and_last(batch)[0], span_of(x), 1, best=True)
    n_spans = _count(spans)
    back, paths = torch.empty((2, *x.shape), dtype=torch.int16, device=x.device)
    maps = torch.empty((n_batch, n_spans, n_labels), dtype=torch.int16, device=x.device)
    walk(batch, (n_batch, n_spans), paths, back, spans, maps, best=True)
    label = torch.empty((n_batch, n_spans), dtype=torch.int64, device=x.device)
    _labels_kernel[(n_batch,)](spans.bounds, batch.end, maps, label, n_spans, n_labels, WIDTH=width_of(x))
    dead = label[:, :1] < 0
    if batch.mask is not None:
        dead = dead & (batch.mask.amax(1, keepdim=True) > 0)
    last = label.clamp_min(0).repeat_interleave(spans.steps, 1)[:, :n_steps, None]
    found: Tensor = paths.gather(2, last).squeeze(2).long()
    return found.masked_fill_(dead, -2)
