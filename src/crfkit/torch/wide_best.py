"""Triton kernels for the best paths of chains of many labels: every step is a product of maxima and sums.

A program owns some columns of the transition matrix for some sequences; programs of the same sequences wait for each
other's scores, as those of :mod:`crfkit.torch.wide` do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.chains import Batch
from crfkit.torch.kernels import finite, is_here, tag_facts
from crfkit.torch.launching import ceil_div, launch, multiprocessors, power_of_2
from crfkit.torch.wide import _place, _step_scores, stride_of

__all__: list[str] = []


@triton.jit
def _arrived(x, place, mask):
    """Messages that other programs write, as soon as they are all there; x is what was there a while ago."""
    while tl.max(tl.ravel((x.to(tl.int32, bitcast=True) == -1).to(tl.int32)), axis=0) > 0:
        x = tl.load(place, mask=mask, other=float("-inf"), volatile=True)
    return x


@triton.jit
def _best_into(before, linked, a_ptr, j, n_labels, safe, DEPTH: tl.constexpr, SLICE: tl.constexpr):
    """The larger of each slice's places, step by step; their maximum at the end."""
    most = tl.full([SLICE, before.shape[0], j.shape[0]], float("-inf"), tl.float32)
    for k0 in range(0, DEPTH, SLICE):
        i = k0 + tl.arange(0, SLICE)[:, None]
        v = tl.load(before[None, :] + i, mask=linked[None, :] & (i < n_labels), other=float("-inf"),
                    cache_modifier=".cg")  # fmt: skip
        there = (i < n_labels) & (j < n_labels)[None, :]
        a = tl.load(a_ptr + i * n_labels + j[None, :], mask=there, other=float("-inf"))
        most = tl.maximum(most, v[:, :, None] + a[:, None, :])
    return tl.max(most, axis=0) - safe[:, None]


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "n_batch"])
def _walk_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, out_ptr, ticket_ptr, n_batch, stride, t_begin, t_end,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
    SLICE: tl.constexpr,
):  # fmt: skip
    """Scores of the best paths to every label of every step.

    out[t][j] = u[t][j] + max_i out[t-1][i] + a[i][j] - h with h = max_i out[t-1][i]. Before the launch out holds a NaN
    that no operation returns: what another program is to write has come when that is gone. Programs take their places
    in the order in which they begin, as those of :mod:`crfkit.torch.wide`.
    """
    _, block, a_run, _, r = _place(ticket_ptr, n_batch, stride, t_end - t_begin, ROWS, COLUMNS, 1)
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
        u, here = _step_scores(u_ptr, u_batch, u_step, mask_ptr, tag_ptr, ignore, n_steps, n_labels, r64, row_in, j, t,
                               a_run, HAS_MASK, HAS_TAGS)  # fmt: skip
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
            x = _arrived(x, place + k0, there & (k0 + k < n_labels))
            high = tl.maximum(high, tl.max(x, axis=2))
        safe = finite(tl.max(high, axis=0))
        pre = _best_into(before, linked, a_ptr, j, n_labels, safe, DEPTH, SLICE)
        new = u + tl.where((origin < t)[:, None], pre, begin[None, :])
        if HAS_MASK:
            old = tl.load(before[:, None] + j[None, :], mask=linked[:, None] & column_in[None, :], other=float("-inf"),
                          cache_modifier=".cg")  # fmt: skip
            new = tl.where(here[:, None], new, old)
        tl.store(out_ptr + (r64[:, None] * n_steps + t) * stride + j[None, :], new,
                 mask=row_in[:, None] & column_in[None, :])  # fmt: skip


@triton.jit(do_not_specialize=["n_steps"])
def _trace_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    x_ptr, facts_ptr, path_ptr, n_batch, stride,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # the best path back through the messages x of the best paths there; a holds the transitions turned round
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
    part: int  # labels before them that it takes at once
    warps: int


def plan_of(n_batch: int, n_labels: int, device: torch.device) -> Plan:
    """Few programs enough that all run at the same time, where that can be; measured on an H200."""
    fits = ceil_div(n_batch, 16) * ceil_div(n_labels, 16) <= multiprocessors(device)
    return Plan(16, 16 if fits else 32, 32, 8)


def _scores(batch: Batch, facts: Tensor) -> Tensor:
    """Scores of the best paths to every label of every step, [B, T, stride]."""
    x = batch.emissions
    n_batch, n_steps, n_labels = x.shape
    plan, stride = plan_of(n_batch, n_labels, x.device), stride_of(n_labels)
    chunk, blocks = min(512, power_of_2(stride)), ceil_div(stride, plan.columns)
    constants: dict[str, Any] = {"ROWS": plan.rows, "COLUMNS": plan.columns, "DEPTH": ceil_div(stride, chunk) * chunk}
    constants |= {"CHUNK": chunk, "PARTS": plan.warps, "SLICE": plan.part}
    out = torch.full((n_batch, n_steps, stride), -1, dtype=torch.int32, device=x.device).view(torch.float32)
    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
    together = x.device.type == "cuda" and blocks <= multiprocessors(x.device)
    grid = (ceil_div(n_batch, plan.rows) * blocks, 1, 1)
    for span in [(0, n_steps)] if together else [(t, t + 1) for t in range(n_steps)]:
        launch(_walk_kernel, grid, batch, (facts, out, ticket, n_batch, stride, *span), constants, plan.warps)
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
