"""Triton kernels for chains, fused over time: one program walks one sequence.

All is in log space, stabilised column by column, so that no score however large or small, and no forbidden transition, needs a second
way. Forward messages are lowered by their maximum at every step, which is added up in double precision; backward, the
messages are normalised so that every step's marginals add up to one. Sequences of any length lose no digits so.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["backward", "decode", "forward"]

_NEG = float("-inf")


@triton.jit
def _forward_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, p_ptr, m_ptr, y_ptr, alpha_ptr, value_ptr, n_steps, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, KEEP: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    square = inside[:, None] & inside[None, :]
    at = i[:, None] * n_labels + i[None, :]
    a = tl.load(a_ptr + at, mask=square, other=float("-inf"))
    begin = tl.load(s_ptr + i, mask=inside, other=float("-inf"))
    finish = tl.load(f_ptr + i, mask=inside, other=float("-inf"))
    x = tl.full([WIDTH], float("-inf"), WIDE)  # log forward messages, lowered
    shift = tl.full([], 0.0, tl.float64)
    gold = tl.full([], 0.0, tl.float64)
    seen = tl.full([], 0, tl.int32)
    before = tl.full([], 0, tl.int64)
    row = e_ptr + b * e_batch
    u_next = tl.load(row + i, mask=inside, other=float("-inf")).to(WIDE)
    for t in range(n_steps):
        u = u_next
        ahead = tl.minimum(t + 1, n_steps - 1).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        here = tl.full([], 1, tl.int32)
        if HAS_MASK:
            here = tl.load(m_ptr + b * n_steps + t).to(tl.int32)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + tl.maximum(t - 1, 0)) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (t > 0), other=0.0).to(WIDE)
        z = x[:, None] + score
        top = tl.max(z, axis=0)
        safe = tl.where(top == float("-inf"), 0.0, top)
        into = safe + tl.log(tl.sum(tl.exp(z - safe[None, :]), axis=0))
        new = u + tl.where(seen > 0, into, begin)
        high = tl.max(new, axis=0)
        high = tl.where(high == float("-inf"), 0.0, high)
        x = tl.where(here > 0, new - high, x)
        shift += tl.where(here > 0, high, 0.0).to(tl.float64)
        if HAS_TAGS:
            y = tl.load(y_ptr + b * n_steps + t)
            y = tl.where(here > 0, y, before)
            mine = tl.load(row + t.to(tl.int64) * e_step + y).to(WIDE)
            pair = tl.load(a_ptr + before * n_labels + y)
            if HAS_PAIRS:
                pair += tl.load(p_ptr + step + before * n_labels + y, mask=t > 0, other=0.0).to(WIDE)
            mine += tl.where(seen > 0, pair, tl.load(s_ptr + y))
            gold += tl.where(here > 0, mine, 0.0).to(tl.float64)
            before = y
        seen = tl.maximum(seen, here)
        if KEEP:
            tl.store(alpha_ptr + (b * n_steps + t) * n_labels + i, x, mask=inside)
    z = x + finish
    top = tl.max(z, axis=0)
    safe = tl.where(top == float("-inf"), 0.0, top)
    log_z = shift + (safe + tl.log(tl.sum(tl.exp(z - safe), axis=0))).to(tl.float64)
    value = log_z
    if HAS_TAGS:
        value = gold + tl.load(f_ptr + before).to(tl.float64) - log_z
    tl.store(value_ptr + b, tl.where(seen > 0, value, 0.0))


@triton.jit
def _backward_kernel(
    e_ptr, e_batch, e_step, a_ptr, f_ptr, p_ptr, m_ptr, y_ptr, alpha_ptr, g_ptr, de_ptr, da_ptr, ds_ptr, df_ptr, dp_ptr,
    n_steps, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    square = inside[:, None] & inside[None, :]
    at = i[:, None] * n_labels + i[None, :]
    a = tl.load(a_ptr + at, mask=square, other=float("-inf"))
    finish = tl.load(f_ptr + i, mask=inside, other=float("-inf"))
    weight = tl.load(g_ptr + b)
    if HAS_TAGS:
        weight = -weight  # of the marginals; the labels' own part has the other sign
    total = tl.zeros([WIDTH, WIDTH], WIDE)  # sum of P(i, j), less the labels' pairs
    c = tl.full([WIDTH], float("-inf"), WIDE)  # u + log backward message of the next step that is there
    seen = tl.full([], 0, tl.int32)
    after = tl.full([], 0, tl.int64)
    later = tl.full([], 1, tl.int64)
    row = e_ptr + b * e_batch
    u_next = tl.load(row + (n_steps - 1).to(tl.int64) * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
    x_next = tl.load(alpha_ptr + (b * n_steps + n_steps - 1) * n_labels + i, mask=inside, other=float("-inf"))
    tl.store(ds_ptr + b * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    tl.store(df_ptr + b * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    for back in range(n_steps):
        t = n_steps - 1 - back
        u = u_next
        x = x_next
        ahead = tl.maximum(t - 1, 0).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        x_next = tl.load(alpha_ptr + (b * n_steps + ahead) * n_labels + i, mask=inside, other=float("-inf"))
        here = tl.full([], 1, tl.int32)
        if HAS_MASK:
            here = tl.load(m_ptr + b * n_steps + t).to(tl.int32)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + later - 1) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (seen > 0), other=0.0).to(WIDE)
        z = score + c[None, :]
        top = tl.max(z, axis=1)
        safe = tl.where(top == float("-inf"), 0.0, top)
        p = tl.exp(z - safe[:, None])
        mass = tl.sum(p, axis=1)
        beta = tl.where(seen > 0, safe + tl.log(mass), finish)
        both = x + beta
        high = tl.max(both, axis=0)
        high = tl.where(high == float("-inf"), 0.0, high)
        node = tl.exp(both - high)
        sum_node = tl.sum(node, axis=0)
        node = node / tl.where(sum_node > 0, sum_node, 1.0)
        linked = (here > 0) & (seen > 0)
        share = tl.where(linked & (mass > 0), node / mass, 0.0)
        pairs = p * share[:, None]
        if HAS_TAGS:
            y = tl.load(y_ptr + b * n_steps + t)
            gold_pair = (i[:, None] == y) & (i[None, :] == after) & linked
            pairs = pairs - tl.where(gold_pair, 1.0, 0.0)
            node = node - tl.where(i == y, 1.0, 0.0)
            after = tl.where(here > 0, y, after)
        total += pairs
        if HAS_PAIRS:
            tl.store(dp_ptr + step + at, (pairs * weight), mask=square & linked)
        out = tl.where(here > 0, node * weight, 0.0)
        tl.store(de_ptr + (b * n_steps + t) * n_labels + i, out.to(de_ptr.dtype.element_ty), mask=inside)
        tl.store(ds_ptr + b * n_labels + i, out, mask=inside & (here > 0))
        tl.store(df_ptr + b * n_labels + i, out, mask=inside & (here > 0) & (seen == 0))
        lowered = beta - high - tl.log(tl.where(sum_node > 0, sum_node, 1.0))
        c = tl.where(here > 0, u + lowered, c)
        later = tl.where(here > 0, t, later).to(tl.int64)
        seen = tl.maximum(seen, here)
    tl.store(da_ptr + b * n_labels * n_labels + at, total * weight, mask=square)


@triton.jit
def _decode_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, p_ptr, m_ptr, back_ptr, path_ptr, n_steps, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    square = inside[:, None] & inside[None, :]
    at = i[:, None] * n_labels + i[None, :]
    a = tl.load(a_ptr + at, mask=square, other=float("-inf"))
    begin = tl.load(s_ptr + i, mask=inside, other=float("-inf"))
    x = tl.full([WIDTH], float("-inf"), WIDE)
    seen = tl.full([], 0, tl.int32)
    row = e_ptr + b * e_batch
    u_next = tl.load(row + i, mask=inside, other=float("-inf")).to(WIDE)
    for t in range(n_steps):
        u = u_next
        ahead = tl.minimum(t + 1, n_steps - 1).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        here = tl.full([], 1, tl.int32)
        if HAS_MASK:
            here = tl.load(m_ptr + b * n_steps + t).to(tl.int32)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + tl.maximum(t - 1, 0)) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (t > 0), other=0.0).to(WIDE)
        z = x[:, None] + score
        top, best = tl.max(z, axis=0, return_indices=True)
        new = u + tl.where(seen > 0, top, begin)
        high = tl.max(new, axis=0)
        high = tl.where(high == float("-inf"), 0.0, high)
        x = tl.where(here > 0, new - high, x)
        tl.store(back_ptr + (b * n_steps + t) * n_labels + i, best.to(tl.int16), mask=inside)
        seen = tl.maximum(seen, here)
    top, best = tl.max(x + tl.load(f_ptr + i, mask=inside, other=float("-inf")), axis=0, return_indices=True)
    y = best.to(tl.int64)
    dead = top == float("-inf")
    tl.debug_barrier()
    for back in range(n_steps):
        t = n_steps - 1 - back
        here = tl.full([], 1, tl.int32)
        if HAS_MASK:
            here = tl.load(m_ptr + b * n_steps + t).to(tl.int32)
        tl.store(path_ptr + b * n_steps + t, tl.where(dead & (seen > 0), -2, tl.where(here > 0, y, -1)))
        y = tl.where(here > 0, tl.load(back_ptr + (b * n_steps + t) * n_labels + y).to(tl.int64), y)


def _width(n_labels: int) -> tuple[int, int]:
    """Labels padded to a power of two, and the warps of a program."""
    width = max(16, triton.next_power_of_2(n_labels))
    return width, {16: 1, 32: 1, 64: 4, 128: 8}[width]


def _type(wide: torch.dtype) -> Any:
    return tl.float64 if wide == torch.float64 else tl.float32


def forward(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    wide: torch.dtype,
    keep: bool = True,
) -> tuple[Tensor, Tensor]:
    """log Z, or log-likelihood of ``y``, [B] in float64; and the forward messages [B, T, L]."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = _width(n_labels)
    alpha = torch.empty((n_batch, n_steps, n_labels) if keep else (0,), dtype=wide, device=x.device)
    value = torch.empty(n_batch, dtype=torch.float64, device=x.device)
    _forward_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, y, alpha, value, n_steps, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=y is not None, HAS_PAIRS=p is not None, KEEP=keep,
        WIDE=_type(wide), num_warps=warps,
    )  # fmt: skip
    return value, alpha


def backward(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    alpha: Tensor,
    g: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of emissions, transitions, start, end and pairwise."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = _width(n_labels)
    de = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    da = a.new_empty(n_batch, n_labels, n_labels)
    ends = a.new_empty(2, n_batch, n_labels)
    dp = None if p is None else torch.zeros(p.shape, dtype=a.dtype, device=p.device)
    _backward_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, e, p, m, y, alpha, g, de, da, ends[0], ends[1], dp, n_steps, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=y is not None, HAS_PAIRS=p is not None, WIDE=_type(a.dtype),
        num_warps=warps,
    )  # fmt: skip
    both = ends.sum(1)
    return de, da.sum(0), both[0], both[1], dp


def decode(
    x: Tensor, a: Tensor, s: Tensor, e: Tensor, p: Tensor | None, m: Tensor | None, wide: torch.dtype
) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = _width(n_labels)
    back = torch.empty((n_batch, n_steps, n_labels), dtype=torch.int16, device=x.device)
    path = torch.empty((n_batch, n_steps), dtype=torch.int64, device=x.device)
    _decode_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, back, path, n_steps, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_PAIRS=p is not None, WIDE=_type(wide), num_warps=warps,
    )  # fmt: skip
    return path
