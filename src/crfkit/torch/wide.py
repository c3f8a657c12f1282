"""Triton kernels for chains of many labels: steps are matrix products.

A program owns some columns of the transition matrix for some sequences, and its steps are matrix products with
exponentials that are scaled by the rows' maxima; programs of the same sequences wait for each other's messages, and
both directions walk at the same time. There, in float32, a way that is e^87 times less likely than the best one up to
its step is lost.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.kernels import finite, first_and_last, is_here, multiprocessors, trace, value_of

__all__ = ["backward", "decode", "forward"]


@triton.jit(do_not_specialize=["n_steps", "t_begin", "t_end", "b_first"])
def _walk_kernel(
    e_ptr, e_batch, e_step, w_ptr, top_ptr, s_ptr, m_ptr, origin_ptr, out_ptr, pre_ptr, shift_ptr,
    n_batch, n_steps, n_labels, b_first, t_begin, t_end,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
    HAS_MASK: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    # out[t] = u[t] + pre[t], pre[t][j] = top[j] + log sum_i exp(out[t-1][i] - h) w[i][j] with h = max_i out[t-1][i],
    # lowered by h; the second side walks from the end, with t+1 for t-1 and the transitions turned round. BEST has
    # pre[t][j] = max_i out[t-1][i] + w[i][j] - h instead. Before the launch out holds a NaN that no operation returns:
    # what another program is to write has come when that is gone.
    side = tl.program_id(2)
    side64 = side.to(tl.int64)
    b_group = b_first + tl.program_id(0) * ROWS
    r = b_group + tl.arange(0, ROWS)
    row_in = r < n_batch
    r64 = r.to(tl.int64)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    column_in = j < n_labels
    both = row_in[:, None] & column_in[None, :]
    w_ptr += side64 * n_labels * n_labels
    out_ptr += side64 * n_batch * n_steps * n_labels
    # the depth of a product in parts, one for each warp
    k = tl.arange(0, PARTS)[:, None, None] * (CHUNK // PARTS) + tl.arange(0, CHUNK // PARTS)[None, None, :]
    kw = tl.arange(0, PARTS)[:, None, None] * (CHUNK // PARTS) + tl.arange(0, CHUNK // PARTS)[None, :, None]
    kb = tl.arange(0, CHUNK)[:, None]
    if BEST:
        at = kb * n_labels + j[None, :]
        w = tl.load(w_ptr + at, mask=(kb < n_labels) & column_in[None, :], other=float("-inf"))
    else:
        at = kw * n_labels + j[None, None, :]
        w = tl.load(w_ptr + at, mask=(kw < n_labels) & column_in[None, None, :], other=0.0)
    top = tl.load(top_ptr + side * n_labels + j, mask=column_in, other=0.0)
    begin = tl.load(s_ptr + side * n_labels + j, mask=column_in, other=float("-inf"))
    origin = tl.load(origin_ptr + side * n_batch + r, mask=row_in, other=0)
    shift = tl.load(shift_ptr + side * n_batch + r, mask=row_in, other=0.0)
    for step in range(t_begin, t_end):
        t = tl.where(side > 0, n_steps - 1 - step, step)
        last = tl.where(side > 0, t + 1, t - 1)
        u = tl.load(e_ptr + r64[:, None] * e_batch + (r64[:, None] * 0 + t) * e_step + j[None, :], mask=both,
                    other=float("-inf")).to(tl.float32)  # fmt: skip
        here = row_in
        if HAS_MASK:
            here = tl.load(m_ptr + r64 * n_steps + t, mask=row_in, other=0) > 0
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
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
        most = tl.full([ROWS // 4, 4, COLUMNS], float("-inf"), tl.float32)
        for k0 in tl.static_range(0, DEPTH, CHUNK):
            if BEST:
                for q in tl.static_range(0, ROWS, 4):
                    row = b_group + q + tl.arange(0, 4)[:, None, None]
                    v = tl.load(out_ptr + (row.to(tl.int64) * n_steps + last) * n_labels + kb[None],
                                mask=(row < n_batch) & (kb[None] < n_labels) & (row * 0 + step > 0),
                                other=float("-inf"), cache_modifier=".cg")  # fmt: skip
                    best = tl.max(v + w[None], axis=1)[None]
                    mine = tl.arange(0, ROWS // 4)[:, None, None] == q // 4
                    most = tl.where(mine, tl.maximum(most, best), most)
            else:
                if DEPTH > CHUNK:
                    x = tl.load(before[None, :, None] + k0 + k, mask=linked[None, :, None] & (k0 + k < n_labels),
                                other=float("-inf"), cache_modifier=".cg")  # fmt: skip
                    w = tl.load(w_ptr + k0 * n_labels + at, mask=(k0 + kw < n_labels) & column_in[None, None, :],
                                other=0.0)  # fmt: skip
                product = tl.dot(tl.exp(x - safe[None, :, None]), w, input_precision="tf32x3")
                total += tl.sum(product, axis=0)
        pre = tl.reshape(most, [ROWS, COLUMNS]) - safe[:, None] if BEST else top[None, :] + tl.log(total)
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
    if tl.program_id(1) == 0:
        tl.store(shift_ptr + side * n_batch + r, shift, mask=row_in)


@triton.jit(do_not_specialize=["n_steps"])
def _decode_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, m_ptr, work_ptr, back_ptr, path_ptr, n_steps, n_labels,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, WIDTH)
    inside = j < n_labels
    k = tl.arange(0, CHUNK)
    begin = tl.load(s_ptr + j, mask=inside, other=float("-inf"))
    x = tl.full([WIDTH], float("-inf"), tl.float32)
    seen = tl.full([], 0, tl.int32)
    row = e_ptr + b * e_batch
    work = work_ptr + b * n_labels
    for t in range(n_steps):
        u = tl.load(row + (b * 0 + t) * e_step + j, mask=inside, other=float("-inf")).to(tl.float32)
        here = is_here(m_ptr, b * n_steps + t, HAS_MASK)
        top = tl.full([WIDTH], float("-inf"), tl.float32)
        best = tl.zeros([WIDTH], tl.int32)
        if t > 0:
            for k0 in range(0, WIDTH, CHUNK):
                i = k0 + k
                v = tl.load(work + i, mask=i < n_labels, other=float("-inf"))
                a = tl.load(a_ptr + i[:, None] * n_labels + j[None, :], mask=(i < n_labels)[:, None] & inside[None, :],
                            other=float("-inf"))  # fmt: skip
                high, where = tl.max(v[:, None] + a, axis=0, return_indices=True)
                best = tl.where(high > top, where + k0, best)
                top = tl.maximum(top, high)
        new = u + tl.where(seen > 0, top, begin)
        x = tl.where(here > 0, new - finite(tl.max(new, axis=0)), x)
        tl.debug_barrier()
        tl.store(work + j, x, mask=inside)
        tl.store(back_ptr + (b * n_steps + t) * n_labels + j, best.to(tl.int16), mask=inside)
        tl.debug_barrier()
        seen = tl.maximum(seen, here)
    top, best = tl.max(x + tl.load(f_ptr + j, mask=inside, other=float("-inf")), axis=0, return_indices=True)
    trace(back_ptr, path_ptr, m_ptr, best.to(tl.int64), (top == float("-inf")) & (seen > 0), b, n_steps, n_labels,
          HAS_MASK)  # fmt: skip


@triton.jit(do_not_specialize=["n_steps"])
def _trace_kernel(
    x_ptr, a_ptr, f_ptr, m_ptr, origin_ptr, path_ptr, n_steps, n_labels, WIDTH: tl.constexpr, HAS_MASK: tl.constexpr
):
    # the best path back through the messages x of the best paths there; a holds the transitions turned round
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    row = x_ptr + b * n_steps * n_labels + i
    end = tl.load(row + (b * 0 + n_steps - 1) * n_labels, mask=inside, other=float("-inf"))
    top, best = tl.max(end + tl.load(f_ptr + i, mask=inside, other=0.0), axis=0, return_indices=True)
    y = best.to(tl.int64)
    origin = tl.load(origin_ptr + b)
    dead = top == float("-inf")
    if HAS_MASK:
        dead = dead & (tl.load(m_ptr + b * n_steps + origin) > 0)
    for back in range(n_steps):
        t = n_steps - 1 - back
        here = is_here(m_ptr, b * n_steps + t, HAS_MASK)
        tl.store(path_ptr + b * n_steps + t, tl.where(dead, -2, tl.where(here > 0, y, -1)))
        before = tl.maximum(t - 1, 0).to(tl.int64)
        x = tl.load(row + before * n_labels, mask=inside, other=float("-inf"))
        _, best = tl.max(x + tl.load(a_ptr + y * n_labels + i, mask=inside, other=0.0), axis=0, return_indices=True)
        y = tl.where((here > 0) & (origin < t), best.to(tl.int64), y)


@triton.jit(do_not_specialize=["n_steps"])
def _posterior_kernel(
    alpha_ptr, b_ptr, c_ptr, m_ptr, y_ptr, g_ptr, first_ptr, top_ptr, de_ptr, left_ptr, right_ptr, n_steps, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr,
):  # fmt: skip
    # gradients of one step's emissions, and its factors left[t], right[t+1] of the pairs' expectations
    b = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    at = (b * n_steps + t) * n_labels + i
    x = tl.load(alpha_ptr + at, mask=inside, other=float("-inf"))
    both = x + tl.load(b_ptr + at, mask=inside, other=0.0)
    high = finite(tl.max(both, axis=0))
    node = tl.exp(both - high)
    mass = tl.sum(node, axis=0)
    mass = tl.where(mass > 0, mass, 1.0)
    upstream = tl.load(g_ptr + b)
    weight = -upstream if HAS_TAGS else upstream
    out = node * (weight / mass)
    if HAS_TAGS:
        out += tl.where(i == tl.load(y_ptr + b * n_steps + t), upstream, 0.0)
    next_in = t + 1 < n_steps
    if HAS_MASK:
        out = tl.where(tl.load(m_ptr + b * n_steps + t) > 0, out, 0.0)
        # forward messages stand still at masked steps, and b is there what leads from them to the next step: pairs of
        # neighbours among the steps that are there are those that lead into one
        next_in = next_in & (tl.load(m_ptr + b * n_steps + t + 1, mask=next_in, other=0) > 0)
        next_in = next_in & (tl.load(first_ptr + b) <= t)
    tl.store(de_ptr + at, out.to(de_ptr.dtype.element_ty), mask=inside)
    high_x = finite(tl.max(x, axis=0))
    tl.store(left_ptr + at, tl.exp(x - high_x), mask=inside)
    c = tl.load(c_ptr + at + n_labels, mask=inside & (i * 0 + t + 1 < n_steps), other=float("-inf"))
    high_c = finite(tl.max(c, axis=0))  # which b is lowered by
    scale = tl.load(top_ptr) + high_x - high - tl.log(mass)
    right = tl.where(next_in, tl.exp(c - high_c + scale) * weight, 0.0)
    tl.store(right_ptr + at, right, mask=inside)


def decode(x: Tensor, a: Tensor, s: Tensor, e: Tensor, p: Tensor | None, m: Tensor | None) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    n_batch, n_steps, n_labels = x.shape
    if 256 < n_labels <= 512:
        return _decode_shared(x, a, s, e, m)
    back = torch.empty((n_batch, n_steps, n_labels), dtype=torch.int16, device=x.device)
    path = torch.empty((n_batch, n_steps), dtype=torch.int64, device=x.device)
    work = a.new_empty(n_batch, n_labels)
    width = triton.next_power_of_2(n_labels)
    _decode_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, m, work, back, path, n_steps, n_labels,
        WIDTH=width, CHUNK=max(1, 16384 // width), HAS_MASK=m is not None, num_warps=16,
    )  # fmt: skip
    return path


def _decode_shared(x: Tensor, a: Tensor, s: Tensor, e: Tensor, m: Tensor | None) -> Tensor:
    """As :func:`decode`, several programs to a sequence: faster where their columns fill the registers."""
    n_batch, n_steps, n_labels = x.shape
    path = torch.empty((n_batch, n_steps), dtype=torch.int64, device=x.device)
    first, _ = first_and_last(x, m)
    out, _, _ = _walk(x, a[None], a[None], s[None], m, first[None], best=True)
    _trace_kernel[(n_batch,)](
        out, a.t().contiguous(), e, m, first, path, n_steps, n_labels,
        WIDTH=triton.next_power_of_2(n_labels), HAS_MASK=m is not None, num_warps=4,
    )  # fmt: skip
    return path


def _tiles(n_labels: int) -> tuple[int, int, int]:
    """Sequences and most columns of a program, and how many rows of the transitions it takes at once."""
    depth = triton.next_power_of_2(n_labels)
    return (16, 32, depth) if depth <= 512 else (16, 32, 256)


def _walk(
    x: Tensor, w: Tensor, top: Tensor, s: Tensor, m: Tensor | None, origin: Tensor, best: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Messages of S sides [S, B, T, L], those from the end without the emissions [B, T, L], and what was taken out."""
    n_batch, n_steps, n_labels = x.shape
    sides = len(w)
    out = torch.full((sides, n_batch, n_steps, n_labels), -1, dtype=torch.int32, device=x.device).view(torch.float32)
    pre = torch.empty_like(out[0]) if sides > 1 else out
    shift = torch.zeros((sides, n_batch), dtype=torch.float64, device=x.device)
    rows, most_columns, chunk = _tiles(n_labels)
    warps, most = 8, max(1, multiprocessors(x.device) // sides)  # so many programs run at once for certain
    groups = triton.cdiv(n_batch, rows)
    columns = 16
    while triton.cdiv(n_labels, columns) * groups > most and columns < most_columns:
        columns *= 2
    blocks = triton.cdiv(n_labels, columns)
    at_once = max(1, most // blocks)
    together = x.is_cuda and blocks <= most
    for first in range(0, groups, at_once):
        spans = [(0, n_steps)] if together else [(t, t + 1) for t in range(n_steps)]
        for begin, end in spans:
            _walk_kernel[(min(at_once, groups - first), blocks, sides)](
                x, x.stride(0), x.stride(1), w, top, s, m, origin, out, pre, shift,
                n_batch, n_steps, n_labels, first * rows, begin, end,
                ROWS=rows, COLUMNS=columns, DEPTH=triton.cdiv(n_labels, chunk) * chunk, CHUNK=chunk, PARTS=warps,
                HAS_MASK=m is not None, BEST=best, num_warps=warps,
            )  # fmt: skip
    return out, pre, shift


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
    """As :func:`crfkit.torch.kernels.forward`; with ``keep`` the backward messages too, in the same walk."""
    first, last = first_and_last(x, m)
    both = torch.stack([a, a.t()]) if keep else a[None]
    top = both.amax(1).nan_to_num(neginf=0.0)
    w = (both - top[:, None]).exp_()
    ends, origin = (torch.stack([s, e]), torch.stack([first, last])) if keep else (s[None], first[None])
    out, b, shift = _walk(x, w, top, ends, m, origin)
    log_z = shift[0] + (out[0, :, -1] + e).logsumexp(1).double()
    value = value_of(x, a, s, e, None, m, y, log_z)
    return value, (out, b, first, last)


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
    """As :func:`crfkit.torch.kernels.backward`.

    With c = u + b the backward messages, the pairs' expectations of all steps are one product:
    sum_t exp(alpha[t] - h) outer w exp(c[t+1] - h' - log sum exp(alpha + b)[t]), times exp(a).
    """
    n_batch, n_steps, n_labels = x.shape
    (alpha, c), b, first, last = saved
    top = a.amax().nan_to_num_(neginf=0.0)
    de = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    left, right = alpha.new_empty(2, n_batch * n_steps, n_labels)
    _posterior_kernel[(n_steps, n_batch)](
        alpha, b, c, m, y, g, first, top, de, left, right, n_steps, n_labels,
        WIDTH=triton.next_power_of_2(n_labels), HAS_MASK=m is not None, HAS_TAGS=y is not None,
    )  # fmt: skip
    da = (left.t() @ right).mul_((a - top).exp_())
    if m is None:
        ds, df = de[:, 0], de[:, -1]
    else:
        seq = torch.arange(n_batch, device=x.device)
        ds, df = de[seq, first.long()], de[seq, last.long()]  # zero where nothing is there
    if y is not None and n_steps > 1:
        pair, w = _gold_pairs(y, None if m is None else m.to(torch.bool), g, n_labels)
        # in double precision, so that the order of the sum does not show
        da = da.add_(da.new_zeros(da.numel(), dtype=torch.float64).scatter_add_(0, pair, w.double()).view_as(da))
    return de, da, ds.sum(0, dtype=a.dtype), df.sum(0, dtype=a.dtype), None


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
