"""Triton kernels for chains of many labels: steps are matrix products.

A program owns some columns of the transition matrix for some sequences, and its steps are matrix products with
exponentials that are scaled by the rows' maxima; programs of the same sequences wait for each other's messages, and
both directions walk at the same time. In float32, a path that is e^87 times less likely than the best one up to its
step is lost.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from crfkit.torch.chains import Batch
from crfkit.torch.kernels import exponentials, finite, first_and_last, is_here, launch, multiprocessors, value_of

__all__: list[str] = []


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "b_first"])
def _walk_kernel(
    u_ptr, u_batch, u_step, w_ptr, top_ptr, ends_ptr, mask_ptr, origin_ptr, out_ptr, pre_ptr, shift_ptr,
    n_batch, n_steps, n_labels, b_first, t_begin, t_end,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
    SLICE: tl.constexpr, HAS_MASK: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """Messages of all steps, from both ends, or scores of best paths.

    out[t] = u[t] + pre[t], pre[t][j] = top[j] + log sum_i exp(out[t-1][i] - h) w[i][j] with h = max_i out[t-1][i],
    lowered by h; the second side walks from the end, with t+1 for t-1 and the transitions turned round. BEST has
    pre[t][j] = max_i out[t-1][i] + w[i][j] - h instead. Before the launch out holds a NaN that no operation
    returns: what another program is to write has come when that is gone.
    """
    side = tl.program_id(2)
    b_group = b_first + tl.program_id(0) * ROWS
    r = b_group + tl.arange(0, ROWS)
    row_in = r < n_batch
    r64 = r.to(tl.int64)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    column_in = j < n_labels
    both = row_in[:, None] & column_in[None, :]
    w_ptr += side.to(tl.int64) * n_labels * n_labels
    out_ptr += side.to(tl.int64) * n_batch * n_steps * n_labels
    # the depth of a product in parts, one for each warp
    k = tl.arange(0, PARTS)[:, None, None] * (CHUNK // PARTS) + tl.arange(0, CHUNK // PARTS)[None, None, :]
    kw = tl.arange(0, PARTS)[:, None, None] * (CHUNK // PARTS) + tl.arange(0, CHUNK // PARTS)[None, :, None]
    columns = column_in[None, None, :]
    w_at = kw * n_labels + j[None, None, :]
    w = tl.load(w_ptr + w_at, mask=(kw < n_labels) & columns, other=0.0)
    top = tl.load(top_ptr + side * n_labels + j, mask=column_in, other=0.0)
    begin = tl.load(ends_ptr + side * n_labels + j, mask=column_in, other=float("-inf"))
    origin = tl.load(origin_ptr + side * n_batch + r, mask=row_in, other=0)
    shift = tl.load(shift_ptr + side * n_batch + r, mask=row_in, other=0.0)
    for step in range(t_begin, t_end):  # recursion: forward, backward, viterbi
        t = tl.where(side > 0, n_steps - 1 - step, step)
        last = tl.where(side > 0, t + 1, t - 1)
        u = tl.load(u_ptr + r64[:, None] * u_batch + (r64[:, None] * 0 + t) * u_step + j[None, :], mask=both,
                    other=float("-inf")).to(tl.float32)  # fmt: skip
        here = row_in
        if HAS_MASK:
            here = tl.load(mask_ptr + r64 * n_steps + t, mask=row_in, other=0) > 0
        seen = tl.where(side > 0, origin > t, origin < t)
        before = out_ptr + (r64 * n_steps + last) * n_labels
        linked = row_in & (r * 0 + step > 0)
        high = tl.full([ROWS], float("-inf"), tl.float32)
        x = tl.full([PARTS, ROWS, CHUNK // PARTS], float("-inf"), tl.float32)
        for k0 in tl.static_range(0, DEPTH, CHUNK):
            waiting = step * 0 + 1
            while waiting > 0:
                x = tl.load(before[None, :, None] + k0 + k, mask=linked[None, :, None] & (k0 + k < n_labels),
                            other=float("-inf"), volatile=True)  # fmt: skip
                absent = (x.to(tl.int32, bitcast=True) == -1).to(tl.int32)
                waiting = tl.max(tl.max(tl.max(absent, axis=2), axis=1), axis=0)
            high = tl.maximum(high, tl.max(tl.max(x, axis=2), axis=0))
        safe = finite(high)
        if BEST:  # the larger of each slice's places, step by step; their maximum at the end
            most = tl.full([SLICE, ROWS, COLUMNS], float("-inf"), tl.float32)
            for k0 in range(0, DEPTH, SLICE):
                i = k0 + tl.arange(0, SLICE)[:, None]
                v = tl.load(before[None, :] + i, mask=linked[None, :] & (i < n_labels), other=float("-inf"),
                            cache_modifier=".cg")  # fmt: skip
                a = tl.load(w_ptr + i * n_labels + j[None, :], mask=(i < n_labels) & column_in[None, :],
                            other=float("-inf"))  # fmt: skip
                most = tl.maximum(most, v[:, :, None] + a[:, None, :])
            pre = tl.max(most, axis=0) - safe[:, None]
        else:
            total = tl.zeros([ROWS, COLUMNS], tl.float32)
            for k0 in tl.static_range(0, DEPTH, CHUNK):
                if DEPTH > CHUNK:
                    x = tl.load(before[None, :, None] + k0 + k, mask=linked[None, :, None] & (k0 + k < n_labels),
                                other=float("-inf"), cache_modifier=".cg")  # fmt: skip
                    w = tl.load(w_ptr + k0 * n_labels + w_at, mask=(k0 + kw < n_labels) & columns, other=0.0)
                total += tl.sum(tl.dot(tl.exp(x - safe[None, :, None]), w, input_precision="tf32x3"), axis=0)
            pre = top[None, :] + tl.log(total)
        pre = tl.where(seen[:, None], pre, begin[None, :])
        new = u + pre
        if HAS_MASK:
            old = tl.load(before[:, None] + j[None, :], mask=linked[:, None] & column_in[None, :], other=float("-inf"),
                          cache_modifier=".cg")  # fmt: skip
            new = tl.where(here[:, None], new, old)
        place = (r64[:, None] * n_steps + t) * n_labels + j[None, :]
        tl.store(out_ptr + place, new, mask=both)
        if not BEST:
            tl.store(pre_ptr + place, pre, mask=both & (r[:, None] * 0 + side > 0))
        shift += tl.where(here & seen, safe, 0.0).to(tl.float64)
    tl.store(shift_ptr + side * n_batch + r, shift, mask=row_in & (r * 0 + tl.program_id(1) == 0))


@triton.jit(do_not_specialize=["n_steps"])
def _trace_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    x_ptr, origin_ptr, path_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # the best path back through the messages x of the best paths there; a holds the transitions turned round
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    row = x_ptr + b * n_steps * n_labels + i
    end = tl.load(row + (b * 0 + n_steps - 1) * n_labels, mask=inside, other=float("-inf"))
    top, best = tl.max(end + tl.load(end_ptr + i, mask=inside, other=0.0), axis=0, return_indices=True)
    y = best.to(tl.int64)
    origin = tl.load(origin_ptr + b)
    dead = top == float("-inf")
    if HAS_MASK:
        dead = dead & (tl.load(mask_ptr + b * n_steps + origin) > 0)
    for back in range(n_steps):
        t = n_steps - 1 - back
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        tl.store(path_ptr + b * n_steps + t, tl.where(dead, -2, tl.where(here > 0, y, -1)))
        before = tl.maximum(t - 1, 0).to(tl.int64)
        x = tl.load(row + before * n_labels, mask=inside, other=float("-inf"))
        _, best = tl.max(x + tl.load(a_ptr + y * n_labels + i, mask=inside, other=0.0), axis=0, return_indices=True)
        y = tl.where((here > 0) & (origin < t), best.to(tl.int64), y)


@triton.jit(do_not_specialize=["n_steps"])
def _posterior_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    alpha_ptr, b_ptr, c_ptr, g_ptr, first_ptr, top_ptr, du_ptr, left_ptr, right_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # gradients of one step's emissions, and its factors left[t], right[t+1] of the pairs' expectations
    b = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    at = (b * n_steps + t) * n_labels + i
    alpha = tl.load(alpha_ptr + at, mask=inside, other=float("-inf"))
    high, gamma, mass = exponentials(alpha + tl.load(b_ptr + at, mask=inside, other=0.0), 0)
    mass = tl.where(mass > 0, mass, 1.0)
    upstream = tl.load(g_ptr + b)
    weight = -upstream if HAS_TAGS else upstream
    out = gamma * (weight / mass)
    if HAS_TAGS:
        out += tl.where(i == tl.load(tag_ptr + b * n_steps + t), upstream, 0.0)
    next_in = t + 1 < n_steps
    if HAS_MASK:
        out = tl.where(tl.load(mask_ptr + b * n_steps + t) > 0, out, 0.0)
        # forward messages stand still at masked steps, and b is there what leads from them to the next step: pairs of
        # neighbours among the steps that are there are those that lead into one
        next_in = next_in & (tl.load(mask_ptr + b * n_steps + t + 1, mask=next_in, other=0) > 0)
        next_in = next_in & (tl.load(first_ptr + b) <= t)
    tl.store(du_ptr + at, out.to(du_ptr.dtype.element_ty), mask=inside)
    high_alpha = finite(tl.max(alpha, axis=0))
    tl.store(left_ptr + at, tl.exp(alpha - high_alpha), mask=inside)
    c = tl.load(c_ptr + at + n_labels, mask=inside & (i * 0 + t + 1 < n_steps), other=float("-inf"))
    high_c = finite(tl.max(c, axis=0))  # which b is lowered by
    scale = tl.load(top_ptr) + high_alpha - high - tl.log(mass)
    right = tl.where(next_in, tl.exp(c - high_c + scale) * weight, 0.0)
    tl.store(right_ptr + at, right, mask=inside)


def _walk(
    batch: Batch, w: Tensor, top: Tensor, ends: Tensor, origin: Tensor, best: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Messages of S sides [S, B, T, L], those from the end without the emissions [B, T, L], and what was taken out."""
    x = batch.emissions
    n_batch, n_steps, n_labels = x.shape
    sides = len(w)
    out = torch.full((sides, *x.shape), -1, dtype=torch.int32, device=x.device).view(torch.float32)
    pre = torch.empty_like(out[0]) if sides > 1 else out
    shift = torch.zeros((sides, n_batch), dtype=torch.float64, device=x.device)
    # sequences of a program, and the rows of the transitions that it takes at once
    rows, chunk = 16, triton.next_power_of_2(n_labels) if n_labels <= 512 else 256
    warps, most = 8, max(1, multiprocessors(x.device) // sides)  # so many programs certainly run at the same time
    groups = triton.cdiv(n_batch, rows)
    columns = 16 if triton.cdiv(n_labels, 16) * groups <= most else 32
    blocks = triton.cdiv(n_labels, columns)
    at_once = max(1, most // blocks)
    together = x.is_cuda and blocks <= most
    for first in range(0, groups, at_once):
        spans = [(0, n_steps)] if together else [(t, t + 1) for t in range(n_steps)]
        for begin, end in spans:
            _walk_kernel[(min(at_once, groups - first), blocks, sides)](
                x, x.stride(0), x.stride(1), w, top, ends, batch.mask, origin, out, pre, shift,
                n_batch, n_steps, n_labels, first * rows, begin, end,
                ROWS=rows, COLUMNS=columns, DEPTH=triton.cdiv(n_labels, chunk) * chunk, CHUNK=chunk, PARTS=warps,
                SLICE=32, HAS_MASK=batch.mask is not None, BEST=best, num_warps=warps,
            )  # fmt: skip
    return out, pre, shift


def _aligned(batch: Batch) -> Batch:
    """With further labels that no step can have, up to a multiple of 16: rows are then read as whole vectors."""
    x, more = batch.emissions, -batch.emissions.shape[2] % 16
    if not more:
        return batch
    a, s, e = (pad(y, (0, more) * y.dim()) for y in batch[1:4])
    return batch._replace(emissions=pad(x, (0, more), value=-torch.inf), transitions=a, start=s, end=e)


def decode(batch: Batch) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    batch = _aligned(batch)
    x, a = batch.emissions, batch.transitions
    path = torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)
    first, _ = first_and_last(batch)
    out, _, _ = _walk(batch, a[None], a[None], batch.start[None], first[None], best=True)
    turned = batch._replace(transitions=a.t().contiguous())
    launch(_trace_kernel, (len(x),), turned, out, first, path, num_warps=4)
    return path


def forward(batch: Batch, sides: int = 2) -> tuple[Tensor, tuple[Tensor, ...]]:
    """As :func:`crfkit.torch.kernels.forward`."""
    batch = _aligned(batch)
    a = batch.transitions
    first, last = first_and_last(batch)
    both = torch.stack([a, a.t()]) if sides > 1 else a[None]
    top = both.amax(1).nan_to_num(neginf=0.0)
    w = (both - top[:, None]).exp_()
    ends, origin = torch.stack([batch.start, batch.end]), torch.stack([first, last])
    out, b, shift = _walk(batch, w, top, ends, origin)
    log_z = shift[0] + (out[0, :, -1] + batch.end).logsumexp(1).double()
    return value_of(batch, log_z), (out, b, first, last)


def backward(batch: Batch, saved: tuple[Tensor, ...], g: Tensor) -> tuple[Tensor | None, ...]:
    """As :func:`crfkit.torch.kernels.backward`.

    With c = u + b the backward messages, the pairs' expectations of all steps are one product:
    sum_t exp(alpha[t] - h) outer w exp(c[t+1] - h' - log sum exp(alpha + b)[t]), times exp(a).
    """
    labels, batch = batch.emissions.shape[2], _aligned(batch)
    x, a = batch.emissions, batch.transitions
    n_batch, n_steps, n_labels = x.shape
    (alpha, c), b, first, last = saved
    g, top = g.contiguous(), a.amax().nan_to_num_(neginf=0.0)
    du = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    left, right = alpha.new_empty(2, n_batch * n_steps, n_labels)
    launch(_posterior_kernel, (n_steps, n_batch), batch, alpha, b, c, g, first, top, du, left, right)
    da = (left.t() @ right).mul_((a - top).exp_())
    ds, de = du[:, 0], du[:, -1]
    if batch.mask is not None:  # zero where nothing is there
        ds, de = (du[torch.arange(n_batch, device=x.device), at.long()] for at in (first, last))
    if batch.tags is not None and n_steps > 1:
        pair, w = _gold_pairs(batch.tags, None if batch.mask is None else batch.mask.to(torch.bool), g, n_labels)
        # in double precision, so that the order of the sum does not show
        da = da.add_(da.new_zeros(da.numel(), dtype=torch.float64).scatter_add_(0, pair, w.double()).view_as(da))
    ends = (d.sum(0, dtype=a.dtype)[:labels] for d in (ds, de))
    return du[..., :labels], da[:labels, :labels], *ends, None


def _gold_pairs(y: Tensor, mask: Tensor | None, g: Tensor, n_labels: int) -> tuple[Tensor, Tensor]:
    """Numbers of the labels' pairs [B T], and their weights."""
    n_batch, n_steps = y.shape
    if mask is None:
        return (y[:, :-1] * n_labels + y[:, 1:]).reshape(-1), g[:, None].expand(-1, n_steps - 1).reshape(-1)
    at = torch.arange(n_steps, device=y.device).expand(n_batch, n_steps)
    seen = torch.where(mask, at, -1).cummax(1).values[:, :-1]
    linked = mask[:, 1:] & (seen >= 0)
    pair = y.gather(1, seen.clamp_min(0)) * n_labels + y[:, 1:]
    return torch.where(linked, pair, 0).reshape(-1), (g[:, None] * linked).reshape(-1)
