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
from crfkit.torch.kernels import Spans, Walked, runs_of, shape_of_messages, tag_facts, walk
from crfkit.torch.launching import ceil_div, multiprocessors, run, width_of

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


def _at_bounds(batch: Batch, facts: Tensor, span: int, sides: int, best: bool = False) -> tuple[Tensor, Spans]:
    """Log-partition log Z [runs B], and the spans with the messages at their bounds [sides, runs B, spans + 1, L].

    Before the first step of a sequence they are those of label 0 alone: whatever leads into that step is its start.
    """
    a, end = batch.transitions, batch.end
    n_batch, n_steps, n_labels = batch.emissions.shape
    n = n_batch * runs_of(batch)
    n_spans = ceil_div(n_steps, span)
    rows = a.new_empty(n, n_spans, n_labels, n_labels)
    shift = torch.empty((n, n_spans, n_labels), dtype=torch.float64, device=a.device)
    walk(batch, (n, n_spans, n_labels), shift, facts=facts, spans=Spans(rows, span), best=best)
    shift.masked_fill_(rows.amax(3) == -torch.inf, -torch.inf)
    top = shift.amax(2).nan_to_num_(neginf=0.0)
    rows += (shift - top[..., None]).to(a.dtype)[..., None]
    ends = a.new_zeros(sides, n, n_spans + 1, n_labels)
    ends[0, :, 0, 1:] = -torch.inf
    if sides > 1:
        ends[1, :, 0] = end
        rows = torch.cat([rows, rows.flip(1).transpose(2, 3)])
    products = Batch(ends.flatten(0, 1), torch.zeros_like(a), torch.zeros_like(end), end, rows)
    value, walked = kernels.forward(products, 1, best, torch.float64)
    return value[:n] + top.sum(1), Spans(walked.messages[0, 0].view_as(ends), span)


def forward(batch: Batch, sides: int = 2) -> tuple[Tensor, Walked]:
    """As :func:`crfkit.torch.kernels.forward`."""
    n_batch, n_steps, _ = batch.emissions.shape
    span = span_of(batch.emissions)
    facts, gold = tag_facts(batch)
    log_z, spans = _at_bounds(batch, facts, span, max(1, sides))
    value = log_z if gold is None else torch.where(facts[2] > 0, log_z[n_batch:], gold) - log_z[:n_batch]
    if batch.mask is not None:
        value = value.masked_fill(batch.mask.amax(1) == 0, 0.0)
    runs = runs_of(batch)
    messages = batch.transitions.new_empty(shape_of_messages(batch, sides))
    if sides:
        walk(batch, (runs * n_batch, ceil_div(n_steps, span), sides), None, messages, facts, spans)
    return value, Walked(messages, facts)


def decode(batch: Batch) -> Tensor:
    """As :func:`crfkit.torch.kernels.decode`."""
    x = batch.emissions
    n_batch, n_steps, n_labels = x.shape
    facts, _ = tag_facts(batch)
    _, spans = _at_bounds(batch, facts, span_of(x), 1, best=True)
    n_spans = ceil_div(n_steps, spans.steps)
    back, paths = torch.empty((2, *x.shape), dtype=torch.int16, device=x.device)
    maps = torch.empty((n_batch, n_spans, n_labels), dtype=torch.int16, device=x.device)
    walk(batch, (n_batch, n_spans, 1), paths, back, facts, spans, maps, best=True)
    label = torch.empty((n_batch, n_spans), dtype=torch.int64, device=x.device)
    run(_labels_kernel, (n_batch, 1, 1), (spans.bounds, batch.end, maps, label, n_spans, n_labels),
        {"WIDTH": width_of(x)}, 4)  # fmt: skip
    dead = label[:, :1] < 0
    if batch.mask is not None:
        dead = dead & (batch.mask.amax(1, keepdim=True) > 0)
    last = label.clamp_min(0).repeat_interleave(spans.steps, 1)[:, :n_steps, None]
    found: Tensor = paths.gather(2, last).squeeze(2).long()
    return found.masked_fill_(dead, -2)
