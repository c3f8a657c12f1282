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
from crfkit.torch.kernels import Spans, Walked, add_up, runs_of, shape_of_messages, tag_facts, walk
from crfkit.torch.launching import ceil_div, counters, multiprocessors, run, width_of

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
    if n_batch * width_of(emissions.shape[2]) ** 3 > MOST_WORK * multiprocessors(emissions.device):
        return 0
    return 1 << round(math.log2(n_steps) / 2)


@triton.jit(do_not_specialize=["n_steps", "n_spans", "n_batch"])
def _value_kernel(
    log_z_ptr, top_ptr, facts_ptr, gold_ptr, value_ptr, count_ptr, scale, n_batch, n_spans, n_labels,
    HAS_TAGS: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    # log Z of whole sequences, or the log-likelihood; zero where no step is there
    b = tl.program_id(0)
    last = tl.load(facts_ptr + n_batch + b)
    value = _log_z(log_z_ptr, top_ptr, b, n_spans, n_labels)
    if HAS_TAGS:
        gold = tl.load(gold_ptr + b)
        if tl.load(facts_ptr + 2 * n_batch + b) > 0:
            gold = _log_z(log_z_ptr, top_ptr, b + n_batch, n_spans, n_labels)
        value = gold - value
    tl.store(value_ptr + b, tl.where(last < 0, 0.0, value).to(value_ptr.dtype.element_ty))
    if ADD:
        add_up(value_ptr, count_ptr, tl.num_programs(0), n_batch, scale)


@triton.jit
def _log_z(log_z_ptr, top_ptr, n, n_spans, n_labels):
    """Log Z of a row, whose product of spans began with each of L labels, from what its spans were lowered by."""
    total = tl.load(log_z_ptr + n) - tl.log((n * 0 + n_labels).to(tl.float64))
    for k0 in range(0, n_spans, 128):
        k = k0 + tl.arange(0, 128)
        total += tl.sum(tl.load(top_ptr + n.to(tl.int64) * n_spans + k, mask=k < n_spans, other=0.0), axis=0)
    return total


@triton.jit(do_not_specialize=["n_steps", "n_spans", "n_batch"])
def _labels_kernel(
    bound_ptr, end_ptr, map_ptr, path_ptr, facts_ptr, out_ptr, n_batch, n_steps, n_spans, n_labels,
    WIDTH: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    # the labels of all spans, from the last one back through the spans' maps; -2 where no labelling is allowed
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    x = tl.load(bound_ptr + (b * (n_spans + 1) + n_spans) * n_labels + i, mask=inside, other=float("-inf"))
    top, best = tl.max(x + tl.load(end_ptr + i, mask=inside, other=float("-inf")), axis=0, return_indices=True)
    dead = (top == float("-inf")) & (tl.load(facts_ptr + n_batch + b) >= 0)
    y = best.to(tl.int64)
    for back in range(n_spans):
        span = n_spans - 1 - back
        t = span * SPAN + tl.arange(0, SPAN)
        label = tl.load(path_ptr + (b * n_steps + t) * n_labels + y, mask=t < n_steps, other=0).to(tl.int64)
        tl.store(out_ptr + b * n_steps + t, tl.where(dead, -2, label), mask=t < n_steps)
        y = tl.load(map_ptr + (b * n_spans + span) * n_labels + y).to(tl.int64)


def _at_bounds(batch: Batch, facts: Tensor, span: int, sides: int, best: bool = False) -> tuple[Tensor, Tensor, Spans]:
    """Log sums [runs B] and what they lack, [runs B, spans]; the messages at the spans' bounds, Spans.bounds.

    The products begin with all labels before the first step: whatever leads into that step is its start.
    """
    a = batch.transitions
    n_batch, n_steps, n_labels = batch.emissions.shape
    n = n_batch * runs_of(batch)
    n_spans = ceil_div(n_steps, span)
    rows = a.new_empty(n, n_spans, n_labels, n_labels)
    shift = torch.empty((n, n_spans, n_labels), dtype=torch.float64, device=a.device)
    top = torch.empty((n, n_spans), dtype=torch.float64, device=a.device)
    walk(batch, (n, n_spans, n_labels), shift, facts=facts, spans=Spans(rows, span), maps=top, best=best)
    nothing = torch.zeros_like(a)
    products = Batch(nothing[:1].expand(n, n_spans + 1, n_labels), nothing, nothing[0], batch.end, rows)
    log_z, walked = kernels.forward(products, sides, best=best, dtype=torch.float64)
    return log_z, top, Spans(walked.messages, span)


def forward(batch: Batch, sides: int = 2, add: float = 0.0) -> tuple[Tensor, Walked]:
    """As :func:`crfkit.torch.kernels.forward`."""
    x, a = batch.emissions, batch.transitions
    n_batch, n_steps, n_labels = x.shape
    span, runs = span_of(x), runs_of(batch)
    n_spans = ceil_div(n_steps, span)
    facts, gold = tag_facts(batch)
    log_z, top, spans = _at_bounds(batch, facts, span, max(1, sides))
    value = a.new_empty(n_batch + (add != 0))
    arguments = log_z, top, facts, gold, value, counters(x.device, 1), add, n_batch, n_spans, n_labels
    run(_value_kernel, (n_batch, 1, 1), arguments, {"HAS_TAGS": runs > 1, "ADD": add != 0}, 1)
    messages = a.new_empty(shape_of_messages(batch, sides))
    if sides:
        walk(batch, (runs * n_batch, n_spans, sides), None, messages, facts, spans)
    return value[-1] if add else value, Walked(messages, facts)


def decode(batch: Batch) -> Tensor:
    """As :func:`crfkit.torch.kernels.decode`."""
    x = batch.emissions
    n_batch, n_steps, n_labels = x.shape
    facts, _ = tag_facts(batch)
    _, _, spans = _at_bounds(batch, facts, span_of(x), 1, best=True)
    n_spans = ceil_div(n_steps, spans.steps)
    back, paths = torch.empty((2, *x.shape), dtype=torch.int16, device=x.device)
    maps = torch.empty((n_batch, n_spans, n_labels), dtype=torch.int16, device=x.device)
    walk(batch, (n_batch, n_spans, 1), paths, back, facts, spans, maps, best=True)
    found = torch.empty((n_batch, n_steps), dtype=torch.int64, device=x.device)
    arguments = spans.bounds, batch.end, maps, paths, facts, found, n_batch, n_steps, n_spans, n_labels
    run(_labels_kernel, (n_batch, 1, 1), arguments, {"WIDTH": width_of(n_labels), "SPAN": spans.steps}, 1)
    return found
