"""Triton kernels for chains of up to 128 labels, fused over time: one program walks one sequence, or one span of it.

Everything is in log space and stabilised column by column, so that large and small scores and forbidden transitions
need no second implementation. Forward messages are lowered by their maximum at every step, and the maxima are summed in
double precision; backward messages are normalised so that the marginals of each step sum to one. Sequences of any
length therefore keep their precision.

Programs that walk spans (:mod:`crfkit.torch.scan`) begin with the messages at the bounds of the spans [2, B, spans + 1,
L]: those from the beginning before each span, and those from the end after it, last span first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.chains import Batch

__all__: list[str] = []


class Spans(NamedTuple):
    """Spans of sequences that are walked at the same time."""

    first: Tensor | None = None  # first step that is there [B]
    bounds: Tensor | None = None  # messages at the bounds of the spans
    steps: int = 0  # of each span


WHOLE = Spans()


@triton.jit
def finite(x):
    """Zero in place of minus infinity: what may be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def exponentials(z, axis: tl.constexpr):
    """The maximum h of z along an axis, e = exp(z - h) and the sum of e; log sum exp z is h + log sum e."""
    # recursion: log-sum-exp
    high = finite(tl.max(z, axis=axis))
    e = tl.exp(z - (tl.expand_dims(high, axis) if len(z.shape) > 1 else high))
    return high, e, tl.sum(e, axis=axis)


@triton.jit
def is_here(mask_ptr, at, HAS_MASK: tl.constexpr):
    """Whether the step is there."""
    here = tl.full([], 1, tl.int32)
    if HAS_MASK:
        here = tl.load(mask_ptr + at).to(tl.int32)
    return here


@triton.jit
def _table(a_ptr, n_labels, WIDTH: tl.constexpr):
    """Labels, which of them are inside, and the places and values of the transitions."""
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    square = inside[:, None] & inside[None, :]
    at = i[:, None] * n_labels + i[None, :]
    return i, inside, square, at, tl.load(a_ptr + at, mask=square, other=float("-inf"))


@triton.jit
def _bounds_of(n_steps, span, IN_SPANS: tl.constexpr):
    """First step of the program and the one after its last."""
    begin = span * 0
    end = n_steps
    if IN_SPANS:
        begin = tl.program_id(1) * span
        end = tl.minimum(n_steps, begin + span)
    return begin, end


@triton.jit
def _trace(back_ptr, path_ptr, map_ptr, mask_ptr, y, dead, b, t_begin, t_end, n_steps, n_labels,
           HAS_MASK: tl.constexpr, START: tl.constexpr):  # fmt: skip
    """Writes labels from the last one y back to the first; for a span, from all its last labels to those before it."""
    tl.debug_barrier()
    i = tl.arange(0, y.shape[0]) if START > 0 else 0
    for back in range(t_end - t_begin):
        at = b * n_steps + t_end - 1 - back
        here = is_here(mask_ptr, at, HAS_MASK)
        label = tl.where(here > 0, y, -1)
        if START > 0:
            tl.store(path_ptr + at * n_labels + i, label.to(tl.int16), mask=i < n_labels)
        else:
            tl.store(path_ptr + at, tl.where(dead, -2, label))
        y = tl.where(here > 0, tl.load(back_ptr + at * n_labels + y).to(tl.int64), y)
    if START > 0:
        place = b * tl.num_programs(1) + tl.program_id(1)
        tl.store(map_ptr + place * n_labels + i, y.to(tl.int16), mask=i < n_labels)


@triton.jit
def _larger(x, y):
    return tl.maximum(x, y)


@triton.jit
def _gold_score(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps, n_labels, b,
    STEPS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Score of the tags, many steps at a time, and the last step that is there or -1."""
    gold = tl.full([], 0.0, tl.float64)
    seen = tl.full([], -1, tl.int32)  # the last step that is there
    for t0 in range(0, n_steps, STEPS):
        t = t0 + tl.arange(0, STEPS)
        here = t < n_steps
        earlier = (t > 0) & (t <= n_steps)
        if HAS_MASK:
            here = tl.load(mask_ptr + b * n_steps + t, mask=here, other=0) > 0
            earlier = tl.load(mask_ptr + b * n_steps + t - 1, mask=earlier, other=0) > 0
        before = tl.maximum(tl.associative_scan(tl.where(earlier, t - 1, -1), 0, _larger), seen)
        y = tl.load(tag_ptr + b * n_steps + t, mask=here, other=0)
        unary = tl.load(u_ptr + b * u_batch + t.to(tl.int64) * u_step + y, mask=here, other=0.0).to(WIDE)
        linked = here & (before >= 0)
        pair = tl.load(tag_ptr + b * n_steps + before, mask=linked, other=0) * n_labels + y
        score = tl.load(a_ptr + pair, mask=linked, other=0.0)
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + t - 1) * n_labels * n_labels
            score += tl.load(p_ptr + step + pair, mask=linked, other=0.0).to(WIDE)
        first = tl.load(start_ptr + y, mask=here & (before < 0), other=0.0)
        gold += tl.sum((unary + score + first).to(tl.float64), axis=0)
        seen = tl.max(tl.maximum(before, tl.where(here, t, -1)), axis=0)
    gold += tl.load(end_ptr + tl.load(tag_ptr + b * n_steps + seen, mask=seen >= 0, other=0)).to(tl.float64)
    return gold, seen


@triton.jit(do_not_specialize=["n_steps", "span"])
def _forward_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps, n_labels,
    first_ptr, bound_ptr, span, kept_ptr, out_ptr, map_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    KEEP: tl.constexpr, BEST: tl.constexpr, START: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    # START, where a walk begins: 0 with the sequence, 1 at a span with the messages there, 2 at a span with one label.
    # KEEP, what is kept of every step: 0 nothing, 1 messages, 2 the labels that best lead into it; then out is a path.
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, WIDTH)
    begin = tl.load(start_ptr + i, mask=inside, other=float("-inf"))
    alpha = tl.full([WIDTH], float("-inf"), WIDE)  # log forward messages, lowered
    shift = tl.full([], 0.0, tl.float64)
    seen = tl.full([], 0, tl.int32)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    place = b * tl.num_programs(1) + tl.program_id(1)  # of the span
    if START > 0:
        seen = (tl.load(first_ptr + b) < t_begin).to(tl.int32)
    if START == 1:
        alpha = tl.load(bound_ptr + (place + b) * n_labels + i, mask=inside, other=float("-inf"))
    if START == 2:
        alpha = tl.where(i == tl.program_id(2), 0.0, alpha)
    row = u_ptr + b * u_batch
    u_next = tl.load(row + (b * 0 + t_begin) * u_step + i, mask=inside, other=float("-inf")).to(WIDE)
    for t in range(t_begin, t_end):  # recursion: forward, viterbi
        u = u_next
        ahead = tl.minimum(t + 1, n_steps - 1).to(tl.int64)
        u_next = tl.load(row + ahead * u_step + i, mask=inside, other=float("-inf")).to(WIDE)
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + tl.maximum(t - 1, 0)) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + t > 0), other=0.0).to(WIDE)
        z = alpha[:, None] + score
        if KEEP == 2:
            into, best = tl.max(z, axis=0, return_indices=True)
            tl.store(kept_ptr + (b * n_steps + t) * n_labels + i, best.to(tl.int16), mask=inside)
        elif BEST:
            into = tl.max(z, axis=0)
        else:
            top, _, mass = exponentials(z, 0)
            into = top + tl.log(mass)
        new = u + tl.where(seen > 0, into, begin)
        high = finite(tl.max(new, axis=0))
        alpha = tl.where(here > 0, new - high, alpha)
        shift += tl.where(here > 0, high, 0.0).to(tl.float64)
        seen = tl.maximum(seen, here)
        if KEEP == 1:
            tl.store(kept_ptr + (b * n_steps + t) * n_labels + i, alpha, mask=inside)
    last = alpha + tl.load(end_ptr + i, mask=inside, other=float("-inf"))
    if KEEP == 2:
        top, best = tl.max(last, axis=0, return_indices=True)
        y = tl.minimum(i, n_labels - 1).to(tl.int64) if START > 0 else best.to(tl.int64)
        dead = (top == float("-inf")) & (seen > 0)
        _trace(kept_ptr, out_ptr, map_ptr, mask_ptr, y, dead, b, t_begin, t_end, n_steps, n_labels, HAS_MASK, START)
    elif START == 0:
        top, _, mass = exponentials(last, 0)
        value = shift + (top + tl.log(mass)).to(tl.float64)
        if HAS_TAGS:
            gold, _ = _gold_score(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps,
                                  n_labels, b, STEPS, HAS_MASK, HAS_PAIRS, WIDE)  # fmt: skip
            value = gold - value
        tl.store(out_ptr + b, tl.where(seen > 0, value, 0.0))
    elif START == 2:
        place = place * n_labels + tl.program_id(2)
        tl.store(bound_ptr + place * n_labels + i, alpha, mask=inside)
        tl.store(out_ptr + place, shift)


@triton.jit(do_not_specialize=["n_steps", "span"])
def _backward_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps, n_labels,
    first_ptr, bound_ptr, span, alpha_ptr, g_ptr, du_ptr, da_ptr, ds_ptr, de_ptr, dp_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, WIDTH)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    spans = tl.num_programs(1)
    place = b * spans + tl.program_id(1)  # of the span
    steps = t_end - t_begin
    if START > 0:
        end_ptr = bound_ptr + ((tl.num_programs(0) + b) * (spans + 1) + spans - 1 - tl.program_id(1)) * n_labels
        # one more step, for the pair of this span's first label and the one before
        steps += (tl.load(first_ptr + b) < t_begin).to(tl.int32)
    finish = tl.load(end_ptr + i, mask=inside, other=float("-inf"))
    weight = tl.load(g_ptr + b)
    if HAS_TAGS:
        weight = -weight  # of the marginals; the tags' own part has the other sign
    total = tl.zeros([WIDTH, WIDTH], WIDE)  # sum of xi, less the pairs of tags
    c = tl.full([WIDTH], float("-inf"), WIDE)  # u + log backward message of the next step that is there
    seen = tl.full([], 0, tl.int32)
    after = tl.full([], 0, tl.int64)
    later = tl.full([], 1, tl.int64)
    row = u_ptr + b * u_batch
    last = (b * 0 + t_end - 1).to(tl.int64)
    u_next = tl.load(row + last * u_step + i, mask=inside, other=float("-inf")).to(WIDE)
    alpha_next = tl.load(alpha_ptr + (b * n_steps + last) * n_labels + i, mask=inside, other=float("-inf"))
    tl.store(ds_ptr + place * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    tl.store(de_ptr + place * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    for back in range(steps):  # recursion: backward
        t = t_end - 1 - back
        u = u_next
        alpha = alpha_next
        ahead = tl.maximum(t - 1, 0).to(tl.int64)
        u_next = tl.load(row + ahead * u_step + i, mask=inside, other=float("-inf")).to(WIDE)
        alpha_next = tl.load(alpha_ptr + (b * n_steps + ahead) * n_labels + i, mask=inside, other=float("-inf"))
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        mine = here
        if START > 0:
            mine = tl.where(t < t_begin, 0, here)
            here = tl.where(t < t_begin, 1, here)  # messages stand still: they are those of the last step there
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + later - 1) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + seen > 0), other=0.0).to(WIDE)
        top, xi, mass = exponentials(score + c[None, :], 1)
        beta = tl.where(seen > 0, top + tl.log(mass), finish)
        high, gamma, norm = exponentials(alpha + beta, 0)
        norm = tl.where(norm > 0, norm, 1.0)
        gamma = gamma / norm
        linked = (here > 0) & (seen > 0)
        xi = xi * tl.where(linked & (mass > 0), gamma / mass, 0.0)[:, None]
        if HAS_TAGS:
            y = tl.load(tag_ptr + b * n_steps + t)
            xi = xi - tl.where((i[:, None] == y) & (i[None, :] == after) & linked, 1.0, 0.0)
            gamma = gamma - tl.where(i == y, 1.0, 0.0)
            after = tl.where(here > 0, y, after)
        total += xi
        if HAS_PAIRS:
            tl.store(dp_ptr + step + at, (xi * weight), mask=square & (at * 0 + here * seen > 0))
        out = tl.where(mine > 0, gamma * weight, 0.0)
        own = inside & (i * 0 + t >= t_begin)
        tl.store(du_ptr + (b * n_steps + t) * n_labels + i, out.to(du_ptr.dtype.element_ty), mask=own)
        tl.store(ds_ptr + place * n_labels + i, out, mask=inside & (i * 0 + mine > 0))
        tl.store(de_ptr + place * n_labels + i, out, mask=inside & (i * 0 + mine * (1 - seen) > 0))
        c = tl.where(here > 0, u + (beta - high - tl.log(norm)), c)
        later = tl.where(here > 0, b * 0 + t, later)
        seen = tl.maximum(seen, here)
    tl.store(da_ptr + place * n_labels * n_labels + at, total * weight, mask=square)


@triton.jit(do_not_specialize=["n_steps"])
def _gold_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps, n_labels,
    log_z_ptr, value_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    gold, seen = _gold_score(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, n_steps,
                             n_labels, b, STEPS, HAS_MASK, HAS_PAIRS, WIDE)  # fmt: skip
    tl.store(value_ptr + b, tl.where(seen >= 0, gold - tl.load(log_z_ptr + b), 0.0))


def launch(kernel: Any, grid: tuple[int, ...], batch: Batch, *others: Any, **constants: Any) -> None:
    """Runs a kernel whose first arguments are those of a batch."""
    x = batch.emissions
    kernel[grid](
        x, x.stride(0), x.stride(1), *batch[1:], *x.shape[1:], *others,
        WIDTH=width_of(x), HAS_MASK=batch.mask is not None, HAS_TAGS=batch.tags is not None,
        HAS_PAIRS=batch.pairwise is not None, WIDE=tl.float64 if batch.dtype == torch.float64 else tl.float32,
        **constants,
    )  # fmt: skip


def width_of(emissions: Tensor) -> int:
    """Labels padded to a power of two."""
    width: int = triton.next_power_of_2(emissions.shape[2])
    return max(16, width)


def tags_at_once(batch: Batch) -> int:
    """Steps that a program takes at once where it adds up the score of tags."""
    steps: int = triton.next_power_of_2(batch.emissions.shape[1])
    return min(1024, steps)


def multiprocessors(device: torch.device) -> int:
    """Of a GPU; one on a CPU, where Triton's interpreter runs program by program."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def walk(
    batch: Batch,
    grid: tuple[int, ...],
    out: Tensor | None,
    kept: Tensor | None = None,
    spans: Spans = WHOLE,
    maps: Tensor | None = None,
    best: bool = False,
) -> None:
    """Runs the forward kernel on whole sequences [B], spans [B, S] or on the labels that spans begin with [B, S, L].

    ``kept`` takes the messages of all steps, or the best labels before theirs as int16; then ``out`` takes the path.
    """
    keep = 0 if kept is None else 1 + (kept.dtype == torch.int16)
    warps = 4 if width_of(batch.emissions) > 32 else 1  # measured on an H200
    launch(
        _forward_kernel, grid, batch, *spans, kept, out, maps,
        KEEP=keep, BEST=best, START=len(grid) - 1, STEPS=tags_at_once(batch), num_warps=warps,
    )  # fmt: skip


def forward(batch: Batch, keep: bool = True, best: bool = False) -> tuple[Tensor, Tensor | None]:
    """Log-partition log Z, or log-likelihood of the tags, [B] in float64; and the forward messages [B, T, L]."""
    x = batch.emissions
    alpha = batch.transitions.new_empty(x.shape) if keep else None
    value = torch.empty(len(x), dtype=torch.float64, device=x.device)
    walk(batch, (len(x),), value, alpha, best=best)
    return value, alpha


def backward(batch: Batch, alpha: Tensor, g: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of emissions, transitions, start, end and pairwise."""
    du, da, ends, dp = walk_back(batch, alpha, g)
    start, end = ends.sum((1, 2))
    return du, da.sum((0, 1)), start, end, dp


def walk_back(
    batch: Batch, alpha: Tensor, g: Tensor, spans: Spans = WHOLE
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of emissions and pairwise; of transitions [B, S, L, L], start and end [2, B, S, L] for S spans each."""
    x, a, p = batch.emissions, batch.transitions, batch.pairwise
    n_batch, _, n_labels = x.shape
    n_spans = 1 if spans.bounds is None else spans.bounds.shape[2] - 1
    du = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    da = a.new_empty(n_batch, n_spans, n_labels, n_labels)
    ends = a.new_empty(2, n_batch, n_spans, n_labels)
    dp = None if p is None else torch.zeros(p.shape, dtype=a.dtype, device=p.device)
    launch(
        _backward_kernel, (n_batch, n_spans), batch, *spans, alpha, g, du, da, ends[0], ends[1], dp,
        START=int(spans.bounds is not None), num_warps={16: 1, 32: 1, 64: 4, 128: 16}[width_of(x)],
    )  # fmt: skip
    return du, da, ends, dp


def decode(batch: Batch) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    x = batch.emissions
    path = torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)
    walk(batch, (len(x),), path, torch.empty(x.shape, dtype=torch.int16, device=x.device), best=True)
    return path


def value_of(batch: Batch, log_z: Tensor) -> Tensor:
    """Log-partition log Z or, with tags, their log-likelihoods; zero where no step is there."""
    if batch.tags is None:
        return log_z if batch.mask is None else log_z.masked_fill_(batch.mask.amax(1) == 0, 0.0)
    value = torch.empty_like(log_z)
    launch(_gold_kernel, (len(log_z),), batch, log_z, value, STEPS=tags_at_once(batch))
    return value


def first_and_last(batch: Batch) -> tuple[Tensor, Tensor]:
    """First and last step that is there, [B] each."""
    n_batch, n_steps, _ = batch.emissions.shape
    if batch.mask is None:
        zero = torch.zeros(n_batch, dtype=torch.int32, device=batch.emissions.device)
        return zero, zero + (n_steps - 1)
    first = batch.mask.argmax(1).to(torch.int32)
    last = (n_steps - 1 - batch.mask.flip(1).argmax(1)).to(torch.int32)
    return first, last
