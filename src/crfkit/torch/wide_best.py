"""Triton kernels for the best paths of chains of many labels: a step looks only at labels that can still win.

A program owns some columns of the transition matrix for one sequence; programs of the same sequence wait for each
other's scores, as those of :mod:`crfkit.torch.wide` do. Label i cannot be the best one before any of the columns if its
score and its largest transition into them are below the score and the least transition of some other label. With
telling scores few labels are left, and the result is the same in every bit. If many are left, looking at all of them
for many sequences at once is faster: the programs give up, and others, which do nothing else, begin once more.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.chains import Batch
from crfkit.torch.kernels import finite, is_here, tag_facts
from crfkit.torch.launching import ceil_div, launch, multiprocessors, power_of_2, run
from crfkit.torch.wide import _place, _step_scores, stride_of

__all__: list[str] = []

WARPS = 8
#: Labels that a program takes at once, of those that are left.
CHUNK = 16
#: One of this many labels may be left at a step, over all steps so far and some more.
MOST_LEFT, PATIENCE = 4, tl.constexpr(4)
#: Columns of a program, at least and at most.
LEAST_COLUMNS, MOST_COLUMNS = 256, 1024


@triton.jit
def _bounds_kernel(a_ptr, least_ptr, most_ptr, n_labels, COLUMNS: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr):
    # least and largest transitions from every label into a block of columns
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block = tl.program_id(1)
    least = tl.full([ROWS], float("inf"), tl.float32)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    for j0 in range(0, COLUMNS, PART):
        j = block * COLUMNS + j0 + tl.arange(0, PART)
        there = (i < n_labels)[:, None] & (j < n_labels)[None, :]
        a = tl.load(a_ptr + i.to(tl.int64)[:, None] * n_labels + j[None, :], mask=there, other=float("-inf"))
        most = tl.maximum(most, tl.max(a, axis=1))
        least = tl.minimum(least, tl.min(tl.where(there, a, float("inf")), axis=1))
    tl.store(least_ptr + block * n_labels + i, least, mask=i < n_labels)
    tl.store(most_ptr + block * n_labels + i, most, mask=i < n_labels)


@triton.jit
def _is_missing(x):
    """Whether a score is still to be written."""
    return tl.max(tl.ravel((x.to(tl.int32, bitcast=True) == -1).to(tl.int32)), axis=0) > 0


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "most_left"])
def _few_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, least_ptr, most_ptr, left_ptr, out_ptr, state_ptr, n_blocks, stride, most_left, t_begin, t_end,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Scores of the best paths to every label of every step.

    out[t][j] = u[t][j] + max_i out[t-1][i] + a[i][j] - h with h = max_i out[t-1][i]. Before the launch out holds a NaN
    that no operation returns: what another program is to write has come when that is gone. Programs take their places
    in the order in which they begin, so that those which wait for each other run at the same time. If many labels are
    left again and again, all of them give up.
    """
    ticket = tl.program_id(0)
    if t_end - t_begin > 1:
        ticket = tl.atomic_add(state_ptr, 1)
    b = (ticket // n_blocks).to(tl.int64)
    block = ticket % n_blocks
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    least = tl.load(least_ptr + block * n_labels + i, mask=inside, other=float("-inf"))
    most = tl.load(most_ptr + block * n_labels + i, mask=inside, other=float("-inf"))
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    column_in = j < n_labels
    begin = tl.load(start_ptr + j, mask=column_in, other=float("-inf"))
    origin = tl.load(facts_ptr + b)
    left = left_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    k = tl.arange(0, CHUNK)
    spent = t_begin * 0
    over = tl.load(state_ptr + 1, volatile=True)
    t = tl.where(over > 0, t_end, t_begin)
    while t < t_end:  # recursion: viterbi
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        u = tl.load(u_ptr + b * u_batch + (b * 0 + t) * u_step + j, mask=column_in, other=float("-inf")).to(tl.float32)
        before = out_ptr + (b * n_steps + t - 1) * stride
        linked = inside & (i * 0 + t > 0)
        x = tl.load(before + i, mask=linked, other=float("-inf"), volatile=True)
        while _is_missing(x) & (over == 0):
            x = tl.load(before + i, mask=linked, other=float("-inf"), volatile=True)
            over = tl.load(state_ptr + 1, volatile=True)
        # whose transitions into these columns can be the best ones
        wins = inside & (x > float("-inf")) & (x + most >= tl.max(x + least, axis=0))
        n_left = tl.sum(wins.to(tl.int32), axis=0)
        tl.store(left + tl.cumsum(wins.to(tl.int32), axis=0) - 1, i, mask=wins)
        tl.debug_barrier()
        into = tl.full([CHUNK, COLUMNS], float("-inf"), tl.float32)
        for k0 in range(0, n_left, CHUNK):
            there = k0 + k < n_left
            which = tl.load(left + k0 + k, mask=there, other=0)
            v = tl.load(before + which, mask=there, other=float("-inf"), cache_modifier=".cg")
            place = a_ptr + which.to(tl.int64)[:, None] * n_labels + j[None, :]
            a = tl.load(place, mask=there[:, None] & column_in[None, :], other=float("-inf"))
            into = tl.maximum(into, v[:, None] + a)
        new = u + tl.where(origin < t, tl.max(into, axis=0) - finite(tl.max(x, axis=0)), begin)
        if HAS_MASK:
            old = tl.load(before + j, mask=column_in & (j * 0 + t > 0), other=float("-inf"), cache_modifier=".cg")
            new = tl.where(here > 0, new, old)
        tl.debug_barrier()  # all have read the list that the next step writes over
        spent += n_left
        if spent > (t - t_begin + PATIENCE) * most_left:
            tl.atomic_xchg(state_ptr + 1, 1)
            over = over * 0 + 1
        tl.store(out_ptr + (b * n_steps + t) * stride + j, new, mask=column_in & (j * 0 + over == 0))
        t = tl.where(over > 0, t_end, t + 1)


@triton.jit
def _again_kernel(out_ptr, state_ptr, size, STEP: tl.constexpr):
    # after programs have given up: as before the launch
    if tl.load(state_ptr + 1) > 0:
        place = tl.program_id(0).to(tl.int64) * STEP + tl.arange(0, STEP)
        tl.store(out_ptr + place, tl.full([STEP], -1, tl.int32).to(tl.float32, bitcast=True), mask=place < size)


@triton.jit
def _best_into(before, linked, a_ptr, j, n_labels, DEPTH: tl.constexpr, SLICE: tl.constexpr):
    """The larger of each slice's places, step by step; their maximum at the end."""
    most = tl.full([SLICE, before.shape[0], j.shape[0]], float("-inf"), tl.float32)
    for k0 in range(0, DEPTH, SLICE):
        i = k0 + tl.arange(0, SLICE)[:, None]
        v = tl.load(before[None, :] + i, mask=linked[None, :] & (i < n_labels), other=float("-inf"),
                    cache_modifier=".cg")  # fmt: skip
        there = (i < n_labels) & (j < n_labels)[None, :]
        a = tl.load(a_ptr + i.to(tl.int64) * n_labels + j[None, :], mask=there, other=float("-inf"))
        most = tl.maximum(most, v[:, :, None] + a[:, None, :])
    return tl.max(most, axis=0)


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "n_batch"])
def _many_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, out_ptr, state_ptr, n_batch, stride, t_begin, t_end,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
    SLICE: tl.constexpr,
):  # fmt: skip
    """What :func:`_few_kernel` gave up: every label before every label, for ROWS sequences at once."""
    if tl.load(state_ptr + 1) > 0:
        _, block, a_run, _, r = _place(state_ptr + 2, n_batch, stride, t_end - t_begin, ROWS, COLUMNS, 1)
        row_in = r < n_batch
        r64 = r.to(tl.int64)
        j = block * COLUMNS + tl.arange(0, COLUMNS)
        column_in = j < n_labels
        # all labels in parts, one for each warp
        part = tl.arange(0, PARTS)[:, None, None] * (CHUNK // PARTS)
        k = part + tl.arange(0, CHUNK // PARTS)[None, None, :]
        begin = tl.load(start_ptr + j, mask=column_in, other=float("-inf"))
        origin = tl.load(facts_ptr + r, mask=row_in, other=0)
        for t in range(t_begin, t_end):  # recursion: viterbi
            u, here = _step_scores(u_ptr, u_batch, u_step, mask_ptr, tag_ptr, ignore, n_steps, n_labels, r64, row_in,
                                   j, t, a_run, HAS_MASK, HAS_TAGS)  # fmt: skip
            before = out_ptr + (r64 * n_steps + t - 1) * stride
            linked = row_in & (r * 0 + t > 0)
            high = tl.full([PARTS, ROWS], float("-inf"), tl.float32)
            place, there = before[None, :, None] + k, linked[None, :, None]
            x_next = tl.load(place, mask=there & (k < n_labels), other=float("-inf"), volatile=True)
            for k0 in tl.static_range(0, DEPTH, CHUNK):
                x = x_next
                if k0 + CHUNK < DEPTH:  # the next chunk is on its way while this one is looked at
                    x_next = tl.load(place + k0 + CHUNK, mask=there & (k0 + CHUNK + k < n_labels), other=float("-inf"),
                                     volatile=True)  # fmt: skip
                while _is_missing(x):
                    x = tl.load(place + k0, mask=there & (k0 + k < n_labels), other=float("-inf"), volatile=True)
                high = tl.maximum(high, tl.max(x, axis=2))
            pre = _best_into(before, linked, a_ptr, j, n_labels, DEPTH, SLICE) - finite(tl.max(high, axis=0))[:, None]
            new = u + tl.where((origin < t)[:, None], pre, begin[None, :])
            if HAS_MASK:
                both = linked[:, None] & column_in[None, :]
                old = tl.load(before[:, None] + j[None, :], mask=both, other=float("-inf"), cache_modifier=".cg")
                new = tl.where(here[:, None], new, old)
            tl.store(out_ptr + (r64[:, None] * n_steps + t) * stride + j[None, :], new,
                     mask=row_in[:, None] & column_in[None, :])  # fmt: skip


@triton.jit(do_not_specialize=["n_steps"])
def _trace_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    x_ptr, facts_ptr, path_ptr, n_batch, stride,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # the best path back through the scores x of the best paths there; a holds the transitions turned round
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    row = x_ptr + b * n_steps * stride + i
    end = tl.load(row + (b * 0 + n_steps - 1) * stride, mask=inside, other=float("-inf"))
    high, best = tl.max(end + tl.load(end_ptr + i, mask=inside, other=0.0), axis=0, return_indices=True)
    y = best.to(tl.int64)
    first = tl.load(facts_ptr + b)
    dead = (high == float("-inf")) & (tl.load(facts_ptr + n_batch + b) >= 0)
    for back in range(n_steps):
        t = n_steps - 1 - back
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        tl.store(path_ptr + b * n_steps + t, tl.where(dead, -2, tl.where(here > 0, y, -1)))
        before = tl.maximum(t - 1, 0).to(tl.int64)
        x = tl.load(row + before * stride, mask=inside, other=float("-inf"))
        _, best = tl.max(x + tl.load(a_ptr + y * n_labels + i, mask=inside, other=0.0), axis=0, return_indices=True)
        y = tl.where((here > 0) & (first < t), best.to(tl.int64), y)


class Plan(NamedTuple):
    """How a batch is shared among programs."""

    rows: int  # sequences of a program
    columns: int  # labels of a program
    blocks: int  # programs of a sequence
    together: bool  # whether all programs of a sequence run at the same time: else every step is a launch

    def spans(self, n_steps: int) -> list[tuple[int, int]]:
        """Steps of each launch."""
        return [(0, n_steps)] if self.together else [(t, t + 1) for t in range(n_steps)]


def plan_of(n_batch: int, n_labels: int, device: torch.device, few: bool) -> Plan:
    """Few programs enough that all run at the same time, where that can be; measured on an H200."""
    n = multiprocessors(device)
    rows = 1 if few else 16
    if few:
        columns = min(MOST_COLUMNS, max(LEAST_COLUMNS, power_of_2(ceil_div(n_labels, max(1, n // n_batch)))))
    else:
        columns = 16 if ceil_div(n_batch, 16) * ceil_div(n_labels, 16) <= n else 32
    blocks = ceil_div(n_labels, columns)
    return Plan(rows, columns, blocks, device.type == "cuda" and blocks <= n)


def _scores(batch: Batch, facts: Tensor) -> Tensor:
    """Scores of the best paths to every label of every step, [B, T, stride]."""
    x, a = batch.emissions, batch.transitions
    n_batch, n_steps, n_labels = x.shape
    stride = stride_of(n_labels)
    out = torch.full((n_batch, n_steps, stride), -1, dtype=torch.int32, device=x.device).view(torch.float32)
    state = torch.zeros(3, dtype=torch.int32, device=x.device)  # a ticket, whether programs gave up, another ticket
    plan = plan_of(n_batch, n_labels, x.device, few=True)
    least, most = a.new_empty(2, plan.blocks, n_labels)
    sizes = {"COLUMNS": plan.columns, "ROWS": 32, "PART": 64}
    run(_bounds_kernel, (ceil_div(n_labels, 32), plan.blocks, 1), (a, least, most, n_labels), sizes, 4)
    left = torch.empty((n_batch * plan.blocks, power_of_2(n_labels)), dtype=torch.int32, device=x.device)
    others = facts, least, most, left, out, state, plan.blocks, stride, n_labels // MOST_LEFT
    for span in plan.spans(n_steps):
        constants = {"COLUMNS": plan.columns, "CHUNK": CHUNK}
        launch(_few_kernel, (n_batch * plan.blocks, 1, 1), batch, (*others, *span), constants, WARPS)
    run(_again_kernel, (ceil_div(out.numel(), 16384), 1, 1), (out, state, out.numel()), {"STEP": 16384}, WARPS)
    plan = plan_of(n_batch, n_labels, x.device, few=False)
    chunk, groups = min(512, power_of_2(stride)), ceil_div(n_batch, plan.rows)
    shape = {"ROWS": plan.rows, "COLUMNS": plan.columns, "DEPTH": ceil_div(stride, chunk) * chunk, "CHUNK": chunk}
    blocks = ceil_div(stride, plan.columns)
    for span in plan.spans(n_steps):
        constants = shape | {"PARTS": WARPS, "SLICE": 32}
        launch(
            _many_kernel, (groups * blocks, 1, 1), batch, (facts, out, state, n_batch, stride, *span), constants, WARPS
        )
    return out


def decode(batch: Batch) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    x = batch.emissions
    path = torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)
    facts, _ = tag_facts(batch)
    scores = _scores(batch, facts)
    turned = batch._replace(transitions=batch.transitions.t().contiguous())
    launch(_trace_kernel, (len(x), 1, 1), turned, (scores, facts, path, len(x), scores.shape[2]))
    return path
