"""Triton kernels for chains of many labels: steps are matrix products.

A program owns some columns of the transition matrix for some sequences, and its steps are matrix products with
exponentials that are scaled by the rows' maxima; programs of the same sequences wait for each other's messages, and
both directions walk at the same time. Factors are split into two numbers of half precision each (bf16), whose three
larger products are added in float32: the error of a product is 2^-16 of it. In float32, a path that is e^87 times less
likely than the best one up to its step is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.chains import Batch
from crfkit.torch.kernels import (
    Walked,
    add_up,
    ends_of,
    exponentials,
    finite,
    gold_score,
    is_here,
    is_last,
    runs_of,
    step_of,
    tags_at_once,
    together,
    weight_of,
)
from crfkit.torch.launching import LARGEST_POWER, ceil_div, counters, launch, multiprocessors, power_of_2, run

__all__: list[str] = []

#: Of a program that walks, measured on an H200.
WARPS = 4
STAGES = 3


class Plan(NamedTuple):
    """How a batch is shared among programs."""

    rows: int  # sequences of a program
    columns: int  # labels of a program
    depth: int  # all labels, in whole blocks
    together: bool  # whether all programs of a group run at the same time: else every step is a launch


#: The interpreter knows no products of bf16 numbers.
FACTOR = tl.constexpr(tl.float32 if triton.knobs.runtime.interpret else tl.bfloat16)


@triton.jit
def _halves(x):
    """Two bf16 numbers whose sum is x, within 2^-16."""
    large = x.to(tl.bfloat16)
    return large, (x - large.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _add_product(total, x, x_low, y, y_low):
    """Total + x y, for factors in two halves."""
    total = tl.dot(x_low.to(FACTOR), y.to(FACTOR), total)
    total = tl.dot(x.to(FACTOR), y_low.to(FACTOR), total)
    return tl.dot(x.to(FACTOR), y.to(FACTOR), total)


@triton.jit
def _make_weights(a_ptr, high_ptr, low_ptr, top_ptr, pair_ptr, side, j, n_labels, depth, ROWS: tl.constexpr,
                  COUNT: tl.constexpr):  # fmt: skip
    """Columns j of w = exp(a - top), top their maxima; side 1 has the transitions turned round; zero beyond the labels.

    COUNT: the tags' pairs are counted later, from zero.
    """
    k = tl.arange(0, ROWS).to(tl.int64)
    down = tl.where(side > 0, 1, n_labels)
    right = tl.where(side > 0, n_labels, 1)
    high_ptr += side.to(tl.int64) * depth * depth
    low_ptr += side.to(tl.int64) * depth * depth
    top = tl.full([j.shape[0]], float("-inf"), tl.float32)
    for k0 in range(0, n_labels, ROWS):
        there = ((k0 + k) < n_labels)[:, None] & (j < n_labels)[None, :]
        a = tl.load(a_ptr + (k0 + k)[:, None] * down + j[None, :] * right, mask=there, other=float("-inf"))
        top = tl.maximum(top, tl.max(a, axis=0))
    top = finite(top)
    tl.store(top_ptr + side * n_labels + j, top, mask=j < n_labels)
    for k0 in range(0, depth, ROWS):
        there = ((k0 + k) < n_labels)[:, None] & (j < n_labels)[None, :]
        a = tl.load(a_ptr + (k0 + k)[:, None] * down + j[None, :] * right, mask=there, other=float("-inf"))
        high, low = _halves(tl.exp(a - top[None, :]))
        at = (k0 + k)[:, None] * depth + j[None, :]
        inside = ((k0 + k) < depth)[:, None] & (j < depth)[None, :]
        tl.store(high_ptr + at, high, mask=inside)
        tl.store(low_ptr + at, low, mask=inside)
        if COUNT:
            nothing = tl.zeros([ROWS, j.shape[0]], tl.float64)
            tl.store(
                pair_ptr + (k0 + k)[:, None] * n_labels + j[None, :], nothing, mask=there & (j * 0 + side == 0)[None, :]
            )


@triton.jit
def _make_facts(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, gold_ptr, n_batch, r,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """First and last steps of sequences r; the scores of their tags, and whether some are unknown."""
    exists = r < n_batch
    r64 = r.to(tl.int64)
    first, last = ends_of(mask_ptr, n_steps, r64, exists, STEPS, HAS_MASK)
    unknown = first * 0
    if HAS_TAGS:
        gold, unknown = gold_score(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore,
                                   n_steps, n_labels, r64, exists, STEPS, HAS_MASK, False, tl.float32)  # fmt: skip
        tl.store(gold_ptr + r, gold, mask=exists)
    tl.store(facts_ptr + r, first, mask=exists)
    tl.store(facts_ptr + n_batch + r, last, mask=exists)
    tl.store(facts_ptr + 2 * n_batch + r, unknown, mask=exists)


@triton.jit
def _step_scores(u_ptr, u_batch, u_step, mask_ptr, tag_ptr, ignore, n_steps, n_labels, r, row_in, j, t, a_run,
                 HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr):  # fmt: skip
    """Scores of step t of sequences r, in run 1 of the labels that agree with the tags; and whether it is there."""
    at = r[:, None] * u_batch + (r[:, None] * 0 + t) * u_step + j[None, :]
    both = row_in[:, None] & (j < n_labels)[None, :]
    u = tl.load(u_ptr + at, mask=both, other=float("-inf")).to(tl.float32)
    here = row_in
    if HAS_MASK:
        here = tl.load(mask_ptr + r * n_steps + t, mask=row_in, other=0) > 0
    if HAS_TAGS:
        y = tl.load(tag_ptr + r * n_steps + t, mask=row_in & (r * 0 + a_run > 0), other=ignore)[:, None]
        u = tl.where((y == ignore) | (j[None, :] == y), u, float("-inf"))
    return u, here


@triton.jit
def _place(ticket_ptr, n_batch, stride, steps, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIDES: tl.constexpr):
    """Side, block of columns, run, group of those that meet, and sequences of a program."""
    ticket = tl.program_id(0)
    if steps > 1:
        ticket = tl.atomic_add(ticket_ptr, 1)
    blocks = tl.cdiv(stride, COLUMNS)
    groups = tl.cdiv(n_batch, ROWS)
    group = ticket // SIDES // blocks
    r = group % groups * ROWS + tl.arange(0, ROWS)
    return ticket % SIDES, ticket // SIDES % blocks, group // groups, group, r


@triton.jit
def _log_z(x_ptr, shift_ptr, end_ptr, r, row_in, n_steps, n_labels, stride, COLUMNS: tl.constexpr):
    """Log Z of sequences r, from their last messages and what was taken out of them."""
    j = tl.arange(0, COLUMNS)
    high = tl.full([r.shape[0]], float("-inf"), tl.float32)
    mass = tl.zeros([r.shape[0]], tl.float32)
    at = x_ptr + (r * n_steps + n_steps - 1)[:, None] * stride + j[None, :]
    for j0 in range(0, n_labels, COLUMNS):
        inside = j0 + j < n_labels
        end = tl.load(end_ptr + j0 + j, mask=inside, other=float("-inf"))
        x = tl.load(at + j0, mask=row_in[:, None] & inside[None, :], other=float("-inf"), cache_modifier=".cg")
        peak, _, part = exponentials(x + end[None, :], 1)
        high, mass = together(high, mass, tl.where(part > 0, peak, float("-inf")), part)
    shift = tl.load(shift_ptr + r, mask=row_in, other=0.0, cache_modifier=".cg")
    return shift + (finite(high) + tl.log(mass)).to(tl.float64)


@triton.jit
def _meet(count_ptr, wanted):
    """Waits until all programs of a group have come here; then what they have written is there."""
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="release")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < wanted:
        pass
    tl.debug_barrier()


@triton.jit
def _into(x_ptr, high_ptr, low_ptr, peak_ptr, r, row_in, j, n_blocks, size, depth, COLUMNS: tl.constexpr,
          STAGES: tl.constexpr):  # fmt: skip
    """Sums over labels i of exp(x_i - h) w_ij, block by block of x, and h; with an own maximum each block has come."""
    k = tl.arange(0, COLUMNS)
    high = tl.full([r.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([r.shape[0], COLUMNS], tl.float32)
    x_at = x_ptr + r.to(tl.int64)[:, None] * depth + k[None, :]
    w_at = k.to(tl.int64)[:, None] * depth + j[None, :]
    peak_next = tl.load(peak_ptr + r * n_blocks, mask=row_in, other=float("-inf"), cache_modifier=".cg")
    for block in tl.range(0, n_blocks, num_stages=STAGES):
        peak = peak_next
        more = row_in & (r * 0 + block + 1 < n_blocks)
        peak_next = tl.load(peak_ptr + r * n_blocks + block + 1, mask=more, other=float("-inf"), cache_modifier=".cg")
        x = tl.load(x_at + block * COLUMNS, cache_modifier=".cg")
        x_low = tl.load(x_at + size + block * COLUMNS, cache_modifier=".cg")
        w = tl.load(high_ptr + w_at)
        w_low = tl.load(low_ptr + w_at)
        new = tl.maximum(high, peak)
        product = _add_product(tl.zeros([r.shape[0], COLUMNS], tl.float32), x, x_low, w, w_low)
        total = total * tl.exp(high - finite(new))[:, None] + product * tl.exp(peak - finite(new))[:, None]
        high = new
        w_at += COLUMNS * depth
    return total, finite(high)


@triton.jit
def _prepare(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    high_ptr, low_ptr, top_ptr, pair_ptr, facts_ptr, gold_ptr, shared_ptr, n_batch, groups, depth,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, ROWS: tl.constexpr, SIDES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Facts and weights: programs share this work, and wait until all is done; what one has begun it ends."""
    n_chunks = groups + SIDES * tl.cdiv(depth, 16)
    chunk = tl.atomic_add(shared_ptr, 1)
    while chunk < n_chunks:
        if chunk < groups:
            _make_facts(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore,
                        n_steps, n_labels, facts_ptr, gold_ptr, n_batch, chunk * ROWS + tl.arange(0, ROWS),
                        HAS_MASK, HAS_TAGS, STEPS)  # fmt: skip
        else:
            part = chunk - groups
            columns = part // SIDES * 16 + tl.arange(0, 16)
            _make_weights(a_ptr, high_ptr, low_ptr, top_ptr, pair_ptr, part % SIDES, columns, n_labels, depth, 256,
                          HAS_TAGS and SIDES == 2)  # fmt: skip
        tl.debug_barrier()
        tl.atomic_add(shared_ptr + 1, 1, sem="release")
        chunk = tl.atomic_add(shared_ptr, 1)
    while tl.atomic_add(shared_ptr + 1, 0, sem="acquire") < n_chunks:
        pass
    tl.debug_barrier()


@triton.jit
def _values(out_ptr, shift_ptr, end_ptr, facts_ptr, gold_ptr, value_ptr, r, exists, n_batch, n_steps, n_labels, stride,
            other, HAS_TAGS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Values of sequences r from the last messages of run 0, and with tags from those of run 1, `other` walks later."""
    r64 = r.to(tl.int64)
    last = tl.load(facts_ptr + n_batch + r, mask=exists, other=0)
    value = _log_z(out_ptr, shift_ptr, end_ptr, r64, exists, n_steps, n_labels, stride, COLUMNS)
    if HAS_TAGS:
        unknown = tl.load(facts_ptr + 2 * n_batch + r, mask=exists, other=0)
        gold = tl.load(gold_ptr + r, mask=exists, other=0.0)
        out_ptr += other * n_batch * n_steps * stride
        fits = _log_z(out_ptr, shift_ptr + other * n_batch, end_ptr, r64, exists & (unknown > 0), n_steps, n_labels,
                      stride, COLUMNS)  # fmt: skip
        value = tl.where(unknown > 0, fits, gold) - value
    tl.store(value_ptr + r, tl.where(last < 0, 0.0, value), mask=exists)


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "n_batch"])
def _walk_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    high_ptr, low_ptr, top_ptr, pair_ptr, facts_ptr, x_ptr, peak_ptr, out_ptr, shift_ptr, value_ptr, ticket_ptr, scale,
    n_batch, n_rows, stride, depth, t_begin, t_end,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIDES: tl.constexpr, STAGES: tl.constexpr, STEPS: tl.constexpr,
    ADD: tl.constexpr,
):  # fmt: skip
    """Messages of all steps, from both ends.

    out[t] = u[t] + pre, pre[j] = top[j] + log sum_i exp(out[t-1][i] - h) w[i][j] with h = max_i out[t-1][i], lowered by
    h; the second side walks from the end, with t+1 for t-1 and the transitions turned round. A program that has a block
    of out[t] leaves its maximum and, in two halves, its exponentials for all others, which wait for them. Run 1 is over
    the labellings that agree with the tags, for sequences some of whose tags are unknown. Programs take their places in
    the order in which they begin: those that wait for each other are neighbours, so that however many run at the same
    time, the earliest can always go on. Before the first step all programs share the making of the weights w and of
    facts. After the last one, the last program of some sequences makes their values; with ADD the last of all adds.
    """
    runs = 2 if HAS_TAGS else 1
    side, block, a_run, group, r = _place(ticket_ptr, n_batch, depth, t_end - t_begin, ROWS, COLUMNS, SIDES)
    r64 = r.to(tl.int64)
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    column_in = j < n_labels
    exists = r < n_batch
    n_blocks = depth // COLUMNS
    groups = tl.cdiv(n_batch, ROWS)
    done_ptr = ticket_ptr + 1 + runs * groups * SIDES
    gold_ptr = shift_ptr + runs * SIDES * n_batch
    if t_begin == 0:
        _prepare(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
                 high_ptr, low_ptr, top_ptr, pair_ptr, facts_ptr, gold_ptr, done_ptr + groups + 2, n_batch, groups,
                 depth, HAS_MASK, HAS_TAGS, ROWS, SIDES, STEPS)  # fmt: skip
    unknown = tl.load(facts_ptr + 2 * n_batch + r, mask=exists, other=0)
    row_in = exists & ((unknown > 0) | (r * 0 + a_run == 0))
    top = tl.load(top_ptr + side * n_labels + j, mask=column_in, other=0.0)
    alive = tl.max(row_in.to(tl.int32), axis=0)
    both = row_in[:, None] & column_in[None, :]
    walk = (a_run * SIDES + side).to(tl.int64)
    high_ptr += side.to(tl.int64) * depth * depth
    low_ptr += side.to(tl.int64) * depth * depth
    all_ptr, all_shift_ptr = out_ptr, shift_ptr
    out_ptr += walk * n_batch * n_steps * stride
    shift_ptr += walk * n_batch
    size = (side * 0 + 1).to(tl.int64) * n_rows * depth  # of a half
    x_ptr += walk * 4 * size
    peak_ptr += walk * 2 * n_rows * n_blocks
    count_ptr = ticket_ptr + 1 + group * SIDES + side
    begin = tl.load(tl.where(side > 0, end_ptr, start_ptr) + j, mask=column_in, other=float("-inf"))
    origin = tl.load(facts_ptr + side * n_batch + r, mask=row_in, other=0)
    shift = tl.load(shift_ptr + r, mask=row_in & (r * 0 + t_begin > 0), other=0.0)
    before = tl.where(side > 0, n_steps - t_begin, t_begin - 1)
    mine = tl.load(out_ptr + (r64[:, None] * n_steps + before) * stride + j[None, :],
                   mask=both & (r * 0 + t_begin > 0)[:, None], other=float("-inf"))  # fmt: skip
    t = tl.where(side > 0, n_steps - 1 - t_begin, t_begin)
    u, here = _step_scores(u_ptr, u_batch, u_step, mask_ptr, tag_ptr, ignore, n_steps, n_labels, r64, row_in, j, t,
                           a_run, HAS_MASK, HAS_TAGS)  # fmt: skip
    for step in range(t_begin, t_end * alive):  # recursion: forward, backward
        seen = tl.where(side > 0, origin > t, origin < t)
        if step > t_begin:
            _meet(count_ptr, (step - t_begin) * n_blocks)
        # those of the next step are on their way during this one
        t_next = tl.where(side > 0, tl.maximum(t - 1, 0), tl.minimum(t + 1, n_steps - 1))
        u_next, here_next = _step_scores(u_ptr, u_batch, u_step, mask_ptr, tag_ptr, ignore, n_steps, n_labels, r64,
                                         row_in, j, t_next, a_run, HAS_MASK, HAS_TAGS)  # fmt: skip
        old = (step + 1) % 2
        total, high = _into(x_ptr + old * 2 * size, high_ptr, low_ptr, peak_ptr + old * n_rows * n_blocks, r, row_in, j,
                            tl.where(step > 0, n_blocks, 0), size, depth, COLUMNS, STAGES)  # fmt: skip
        new = u + tl.where(seen[:, None], top[None, :] + tl.log(total), begin[None, :])
        mine = tl.where(here[:, None], new, mine)
        tl.store(out_ptr + (r64[:, None] * n_steps + t) * stride + j[None, :], mine, mask=both)
        shift += tl.where(here & seen, high, 0.0).to(tl.float64)
        peak = tl.max(tl.where(both, mine, float("-inf")), axis=1)
        large, small = _halves(tl.where(both, tl.exp(mine - finite(peak)[:, None]), 0.0))
        now = step % 2
        tl.store(peak_ptr + (now * n_rows + r) * n_blocks + block, peak)
        at = now * 2 * size + r64[:, None] * depth + j[None, :]
        tl.store(x_ptr + at, large)
        tl.store(x_ptr + size + at, small)
        t, u, here = t_next, u_next, here_next
    tl.store(shift_ptr + r, shift, mask=row_in & (r * 0 + block == 0))
    if (side == 0) & (t_end == n_steps):  # noqa: SIM102
        if is_last(done_ptr + group % groups, runs * n_blocks):
            _values(all_ptr, all_shift_ptr, end_ptr, facts_ptr, gold_ptr, value_ptr, r, exists, n_batch, n_steps,
                    n_labels, stride, walk * 0 + SIDES, HAS_TAGS, COLUMNS)  # fmt: skip
            if ADD:
                add_up(value_ptr, done_ptr + groups, groups, n_batch, scale)
    if is_last(done_ptr + groups + 1, tl.num_programs(0)):  # leaves the counters as they were
        n_counters = 5 + (runs * SIDES + 1) * groups
        for k0 in range(0, n_counters, 128):
            k = k0 + tl.arange(0, 128)
            tl.store(ticket_ptr + k, tl.zeros([128], tl.int32), mask=k < n_counters)


@triton.jit(do_not_specialize=["n_steps"])
def _posterior_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    out_ptr, g_ptr, g_step, scale, facts_ptr, top_ptr, pair_ptr, du_ptr, left_ptr, right_ptr, n_batch, stride, n_rows,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of one step's emissions, and its factors left[t], right[t+1] of the pairs' expectations.

    What leads from a step to the end is c - u; messages stand still at masked steps, so c[t+1] is that of the next step
    that is there. With unknown tags run 1 counts for what run 0 counts against; the pairs of known ones are added up in
    double precision, where the order of the additions does not show.
    """
    b = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    row = b * n_steps + t
    here = is_here(mask_ptr, row, HAS_MASK)
    linked = here * (t < tl.load(facts_ptr + n_batch + b)).to(tl.int32)
    there = inside & (i * 0 + here > 0)
    u = tl.load(u_ptr + b * u_batch + (b * 0 + t) * u_step + i, mask=there, other=float("-inf")).to(tl.float32)
    top = tl.load(top_ptr + i, mask=inside, other=0.0)
    upstream = weight_of(g_ptr, g_step, b, scale, tl.float32)
    nodes = tl.zeros([WIDTH], tl.float32)
    unknown = here * 0
    if HAS_TAGS:
        unknown = tl.load(facts_ptr + 2 * n_batch + b)
        y = tl.load(tag_ptr + row)
        nodes += tl.where(there & (i == y) & (i * 0 + unknown == 0), upstream, 0.0)
        paired = (linked > 0) & (unknown == 0)
        after = t + 1
        if HAS_MASK:
            while paired & (tl.load(mask_ptr + b * n_steps + after, mask=paired, other=1) == 0):
                after += 1
        z = tl.load(tag_ptr + b * n_steps + after, mask=paired, other=-1)
        good = paired & (y >= 0) & (y < n_labels) & (z >= 0) & (z < n_labels)
        tl.atomic_add(pair_ptr + y * n_labels + z, upstream.to(tl.float64), mask=good, sem="relaxed")
    for a_run in tl.static_range(0, 2 if HAS_TAGS else 1):
        counts = here
        weight = upstream
        if HAS_TAGS:
            counts = here if a_run == 0 else here * unknown
            weight = -upstream if a_run == 0 else upstream
        there = inside & (i * 0 + counts > 0)
        onward = inside & (i * 0 + counts * linked > 0)
        at = out_ptr + ((b * 0 + a_run * 2 * n_batch) * n_steps + row) * stride + i
        alpha = tl.load(at, mask=there, other=float("-inf"))
        at += (b * 0 + n_batch) * n_steps * stride
        c = tl.load(at, mask=there, other=float("-inf"))
        high, gamma, mass = exponentials(alpha + tl.where(c > float("-inf"), c - u, float("-inf")), 0)
        mass = tl.where(mass > 0, mass, 1.0)
        nodes += gamma * (weight / mass)
        c = tl.load(at + stride, mask=onward, other=float("-inf"))
        high_alpha = finite(tl.max(alpha, axis=0))
        level = top + (high_alpha - high - tl.log(mass))
        place = (b * 0 + a_run * n_rows + row) * stride + i
        size = (b * 0 + (2 if HAS_TAGS else 1) * n_rows) * stride
        large, small = _halves(tl.exp(alpha - high_alpha))
        tl.store(left_ptr + place, large, mask=i < stride)
        tl.store(left_ptr + size + place, small, mask=i < stride)
        large, small = _halves(tl.where(onward, tl.exp(c - finite(tl.max(c, axis=0)) + level) * weight, 0.0))
        tl.store(right_ptr + place, large, mask=i < stride)
        tl.store(right_ptr + size + place, small, mask=i < stride)
    tl.store(du_ptr + row * n_labels + i, nodes.to(du_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _add_ends(du_ptr, facts_ptr, ends_ptr, part, n_batch, n_steps, n_labels, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """Sums over sequences of the first steps' gradients and, after them, of the last steps', for some labels."""
    side = part % 2
    i = part // 2 * SIZE + tl.arange(0, SIZE)
    total = tl.zeros([SIZE], tl.float64)
    for b0 in range(0, n_batch, ROWS):
        b = b0 + tl.arange(0, ROWS)
        at = tl.load(facts_ptr + side * n_batch + b, mask=b < n_batch, other=-1)
        there = (tl.load(facts_ptr + n_batch + b, mask=b < n_batch, other=-1) >= 0)[:, None] & (i < n_labels)[None, :]
        row = (b.to(tl.int64) * n_steps + at)[:, None] * n_labels
        total += tl.sum(tl.load(du_ptr + row + i[None, :], mask=there, other=0.0).to(tl.float64), axis=0)
    tl.store(ends_ptr + side * n_labels + i, total.to(ends_ptr.dtype.element_ty), mask=i < n_labels)


@triton.jit
def _pairs_kernel(
    left_ptr, right_ptr, a_ptr, top_ptr, pair_ptr, facts_ptr, du_ptr, part_ptr, da_ptr, ends_ptr, count_ptr, n_batch,
    n_steps, n_labels, stride, tiles, splits,
    RUNS: tl.constexpr, SIZE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient of the transitions: sum_t left[t] outer right[t] times w, and the tags' own pairs.

    Each program takes a part of all steps; the last one of a tile adds the parts up. Programs after those take the
    gradients of start and end.
    """
    tile = tl.program_id(0) % (tiles * tiles)
    split = tl.program_id(0) // (tiles * tiles)
    if split < splits:
        n_rows = n_batch * n_steps
        i = tile % tiles * SIZE + tl.arange(0, SIZE)
        j = tile // tiles * SIZE + tl.arange(0, SIZE)
        k = tl.arange(0, DEPTH)
        size = tl.full([], RUNS, tl.int64) * n_rows * stride
        rows = n_rows
        if RUNS > 1:
            unknown = tile * 0
            for b0 in range(0, n_batch, 128):
                b = b0 + tl.arange(0, 128)
                more = tl.load(facts_ptr + 2 * n_batch + b, mask=b < n_batch, other=0)
                unknown = tl.maximum(unknown, tl.max(more, axis=0))
            rows = tl.where(unknown > 0, RUNS * n_rows, n_rows)
        each = tl.cdiv(tl.cdiv(rows, splits), DEPTH) * DEPTH
        total = tl.zeros([SIZE, SIZE], tl.float32)
        for k0 in range(split * each, tl.minimum(rows, (split + 1) * each), DEPTH):
            at = (k0 + k).to(tl.int64) * stride
            x_in = (i < stride)[:, None] & (k0 + k < rows)[None, :]
            y_in = (j < stride)[None, :] & (k0 + k < rows)[:, None]
            x = tl.load(left_ptr + at[None, :] + i[:, None], mask=x_in, other=0.0)
            x_low = tl.load(left_ptr + size + at[None, :] + i[:, None], mask=x_in, other=0.0)
            y = tl.load(right_ptr + at[:, None] + j[None, :], mask=y_in, other=0.0)
            y_low = tl.load(right_ptr + size + at[:, None] + j[None, :], mask=y_in, other=0.0)
            total = _add_product(total, x, x_low, y, y_low)
        inside = (i < n_labels)[:, None] & (j < n_labels)[None, :]
        at = i[:, None] * n_labels + j[None, :]
        each_part = (size * 0 + n_labels) * n_labels
        tl.store(part_ptr + split * each_part + at, total, mask=inside)
        if is_last(count_ptr + tile, splits):
            total = tl.zeros([SIZE, SIZE], tl.float32)
            for part in range(splits):
                total += tl.load(part_ptr + part * each_part + at, mask=inside, other=0.0, cache_modifier=".cg")
            a = tl.load(a_ptr + at, mask=inside, other=float("-inf"))
            total *= tl.exp(a - tl.load(top_ptr + j, mask=j < n_labels, other=0.0)[None, :])
            if RUNS > 1:
                total += tl.load(pair_ptr + at, mask=inside, other=0.0).to(tl.float32)
                tl.store(pair_ptr + at, tl.zeros([SIZE, SIZE], tl.float64), mask=inside)  # for a second backward pass
            tl.store(da_ptr + at, total, mask=inside)
    else:
        part = tl.program_id(0) - tiles * tiles * splits
        _add_ends(du_ptr, facts_ptr, ends_ptr, part, n_batch, n_steps, n_labels, 64, 64)


def stride_of(n_labels: int) -> int:
    """Labels in whole vectors of 16."""
    return ceil_div(n_labels, 16) * 16


def plan_of(n_batch: int, n_labels: int, sides: int, device: torch.device) -> Plan:
    """How programs share a batch: few enough that all that wait for each other run at the same time."""
    most = max(1, multiprocessors(device) // sides)
    shapes = [(16, 32)] if n_labels <= 256 else []
    shapes += [(16, 64), (32, 64), (64, 64)] if n_labels <= 1024 else [(min(64, max(16, power_of_2(n_batch))), 64)]
    fit = (x for x in shapes if ceil_div(n_batch, x[0]) * ceil_div(n_labels, x[1]) <= most)
    rows, columns = next(fit, shapes[-1])
    blocks = ceil_div(n_labels, columns)
    return Plan(rows, columns, blocks * columns, device.type == "cuda" and blocks <= most)


def shape_of_messages(batch: Batch, sides: int) -> tuple[int, ...]:
    """Messages [runs, sides, B, T, stride], the columns' largest transitions [sides, L], and the tags' pairs [L, L]."""
    n_batch, n_steps, n = batch.emissions.shape
    runs, sides = runs_of(batch), max(1, sides)
    pairs = 2 * n * n if runs > 1 and sides > 1 else 0  # in double precision
    return (runs * sides * n_batch * n_steps * stride_of(n) + sides * n + pairs,)


def _cut(batch: Batch, kept: Tensor, sides: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """What :func:`shape_of_messages` names, flat."""
    n_batch, n_steps, n = batch.emissions.shape
    size = runs_of(batch) * sides * n_batch * n_steps * stride_of(n)
    messages, top, pairs = kept.split_with_sizes((size, sides * n, len(kept) - size - sides * n))
    return messages, top, pairs.view(torch.float64) if len(pairs) else None


def forward(batch: Batch, sides: int = 2, add: float = 0.0) -> tuple[Tensor, Walked]:
    """As :func:`crfkit.torch.kernels.forward`."""
    x, a = batch.emissions, batch.transitions
    n_batch, n_steps, n_labels = x.shape
    kept = a.new_empty(shape_of_messages(batch, sides))
    runs, sides = runs_of(batch), max(1, sides)
    messages, top, pairs = _cut(batch, kept, sides)
    plan = plan_of(n_batch, n_labels, sides, x.device)
    depth, groups = plan.depth, ceil_div(n_batch, plan.rows)
    blocks, n_rows = depth // plan.columns, groups * plan.rows
    weights = torch.empty((2, sides, depth, depth), dtype=torch.bfloat16, device=x.device)
    halves = torch.empty((runs, sides, 4, n_rows, depth), dtype=torch.bfloat16, device=x.device)
    peaks = a.new_empty(runs, sides, 2, n_rows, blocks)
    shift = torch.empty((runs * sides + 1, n_batch), dtype=torch.float64, device=x.device)  # and the tags' scores
    facts = torch.empty((3, n_batch), dtype=torch.int32, device=x.device)
    value = a.new_empty(n_batch + (add != 0))
    count = counters(x.device, 5 + (runs * sides + 1) * groups)  # a ticket, and who has come where
    others = *weights, top, pairs, facts, halves, peaks, messages, shift, value, count, add
    others = *others, n_batch, n_rows, stride_of(n_labels), depth
    constants = {"ROWS": plan.rows, "COLUMNS": plan.columns, "SIDES": sides, "STAGES": STAGES}
    constants |= {"STEPS": min(tags_at_once(n_steps), 1024 // plan.rows), "ADD": add != 0}
    for begin, end in [(0, n_steps)] if plan.together else [(t, t + 1) for t in range(n_steps)]:
        launch(_walk_kernel, (runs * groups * blocks * sides, 1, 1), batch, (*others, begin, end), constants, WARPS)
    return value[-1] if add else value, Walked(kept, facts)


def backward(batch: Batch, walked: Walked, g: Tensor | None, scale: float = 1.0) -> tuple[Tensor | None, ...]:
    """As :func:`crfkit.torch.kernels.backward`.

    With c the messages from the end, the pairs' expectations of all steps are one product:
    sum_t exp(alpha[t] - h) outer exp(c[t+1] + top - h' - log sum exp(alpha + c - u)[t]), times w = exp(a - top).
    """
    x, a = batch.emissions, batch.transitions
    n_batch, n_steps, n_labels = x.shape
    messages, top, pairs = _cut(batch, walked.messages, 2)
    runs, stride, n_rows = runs_of(batch), stride_of(n_labels), n_batch * n_steps
    du = x.new_empty(x.shape)
    left, right = torch.empty((2, 2, runs * n_rows, stride), dtype=torch.bfloat16, device=x.device)
    others = messages, g, step_of(g), scale, walked.facts, top, pairs, du, left, right, n_batch, stride, n_rows
    launch(_posterior_kernel, (n_steps, n_batch, 1), batch, others)
    size = 64 if stride <= 256 else 128
    tiles = ceil_div(stride, size)
    splits = max(1, min(LARGEST_POWER, multiprocessors(x.device) // tiles**2, n_rows // 256))
    parts = a.new_empty(splits, n_labels, n_labels)
    da, ends = torch.empty_like(a), a.new_empty(2, n_labels)
    results = du, parts, da, ends, counters(x.device, tiles**2)
    arguments = left, right, a, top, pairs, walked.facts, *results, n_batch, n_steps, n_labels, stride, tiles, splits
    grid = tiles**2 * splits + 2 * ceil_div(n_labels, 64), 1, 1
    run(_pairs_kernel, grid, arguments, {"RUNS": runs, "SIZE": size, "DEPTH": 32}, 8)
    return du, da, *ends, None
