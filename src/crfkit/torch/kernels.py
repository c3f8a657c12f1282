"""Triton kernels for chains of up to 128 labels, fused over time: one program walks one sequence, or a span of one.

All is in log space, stabilised column by column, so that no score however large or small, and no forbidden transition,
needs a second way. Forward messages are lowered by their maximum at every step, which is added up in double precision;
backward, the messages are normalised so that every step's marginals add up to one. Sequences of any length lose no
digits so.

Programs that walk spans (:mod:`crfkit.torch.scan`) begin with the messages ``x`` at their bounds [2, B, spans + 1, L]:
those from the beginning before each span, and those from the end behind it, last span first.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["backward", "decode", "forward"]

#: Where a walk begins: with the sequence, at a span with the messages there, at a span with one label.
SEQUENCE, SPAN, LABEL = 0, 1, 2


@triton.jit
def finite(x):
    """Zero in the place of minus infinity: what may be subtracted."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def is_here(m_ptr, at, HAS_MASK: tl.constexpr):
    """Whether the step is there."""
    here = tl.full([], 1, tl.int32)
    if HAS_MASK:
        here = tl.load(m_ptr + at).to(tl.int32)
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
    """First step of the program and the one behind its last."""
    begin = span * 0
    end = n_steps
    if IN_SPANS:
        begin = tl.program_id(1) * span
        end = tl.minimum(n_steps, begin + span)
    return begin, end


@triton.jit(do_not_specialize=["n_steps", "span"])
def _forward_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, p_ptr, m_ptr, y_ptr, first_ptr, x_ptr, alpha_ptr, value_ptr,
    n_steps, span, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, KEEP: tl.constexpr,
    BEST: tl.constexpr, START: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, WIDTH)
    begin = tl.load(s_ptr + i, mask=inside, other=float("-inf"))
    x = tl.full([WIDTH], float("-inf"), WIDE)  # log forward messages, lowered
    shift = tl.full([], 0.0, tl.float64)
    gold = tl.full([], 0.0, tl.float64)
    seen = tl.full([], 0, tl.int32)
    before = tl.full([], 0, tl.int64)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    place = b * tl.num_programs(1) + tl.program_id(1)  # of the span
    if START > 0:
        seen = (tl.load(first_ptr + b) < t_begin).to(tl.int32)
    if START == 1:
        x = tl.load(x_ptr + (place + b) * n_labels + i, mask=inside, other=float("-inf"))
    if START == 2:
        x = tl.where(i == tl.program_id(2), 0.0, x)
    row = e_ptr + b * e_batch
    u_next = tl.load(row + (b * 0 + t_begin) * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
    for t in range(t_begin, t_end):
        u = u_next
        ahead = tl.minimum(t + 1, n_steps - 1).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        here = is_here(m_ptr, b * n_steps + t, HAS_MASK)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + tl.maximum(t - 1, 0)) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + t > 0), other=0.0).to(WIDE)
        z = x[:, None] + score
        into = tl.max(z, axis=0)
        if not BEST:
            top = finite(into)
            into = top + tl.log(tl.sum(tl.exp(z - top[None, :]), axis=0))
        new = u + tl.where(seen > 0, into, begin)
        high = finite(tl.max(new, axis=0))
        x = tl.where(here > 0, new - high, x)
        shift += tl.where(here > 0, high, 0.0).to(tl.float64)
        if HAS_TAGS:
            y = tl.load(y_ptr + b * n_steps + t)
            y = tl.where(here > 0, y, before)
            mine = tl.load(row + (b * 0 + t) * e_step + y).to(WIDE)
            pair = tl.load(a_ptr + before * n_labels + y)
            if HAS_PAIRS:
                pair += tl.load(p_ptr + step + before * n_labels + y, mask=t > 0, other=0.0).to(WIDE)
            mine += tl.where(seen > 0, pair, tl.load(s_ptr + y))
            gold += tl.where(here > 0, mine, 0.0).to(tl.float64)
            before = y
        seen = tl.maximum(seen, here)
        if KEEP:
            tl.store(alpha_ptr + (b * n_steps + t) * n_labels + i, x, mask=inside)
    if START == 0:
        z = x + tl.load(f_ptr + i, mask=inside, other=float("-inf"))
        top = finite(tl.max(z, axis=0))
        value = shift + (top + tl.log(tl.sum(tl.exp(z - top), axis=0))).to(tl.float64)
        if HAS_TAGS:
            value = gold + tl.load(f_ptr + before).to(tl.float64) - value
        tl.store(value_ptr + b, tl.where(seen > 0, value, 0.0))
    if START == 2:
        place = place * n_labels + tl.program_id(2)
        tl.store(x_ptr + place * n_labels + i, x, mask=inside)
        tl.store(value_ptr + place, shift)


@triton.jit(do_not_specialize=["n_steps", "span"])
def _backward_kernel(
    e_ptr, e_batch, e_step, a_ptr, f_ptr, p_ptr, m_ptr, y_ptr, first_ptr, x_ptr, alpha_ptr, g_ptr,
    de_ptr, da_ptr, ds_ptr, df_ptr, dp_ptr, n_steps, span, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, START: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, WIDTH)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    place = b * tl.num_programs(1) + tl.program_id(1)  # of the span
    steps = t_end - t_begin
    linked_before = tl.full([], 0, tl.int32)
    if START > 0:
        spans = tl.num_programs(1)
        behind = (tl.num_programs(0) + b) * (spans + 1) + spans - 1 - tl.program_id(1)
        f_ptr = x_ptr + behind * n_labels
        # one more step, for the pair of this span's first label and the one before
        linked_before = (tl.load(first_ptr + b) < t_begin).to(tl.int32)
        steps += linked_before
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
    last = (b * 0 + t_end - 1).to(tl.int64)
    u_next = tl.load(row + last * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
    x_next = tl.load(alpha_ptr + (b * n_steps + last) * n_labels + i, mask=inside, other=float("-inf"))
    tl.store(ds_ptr + place * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    tl.store(df_ptr + place * n_labels + i, tl.zeros([WIDTH], WIDE), mask=inside)
    for back in range(steps):
        t = t_end - 1 - back
        u = u_next
        x = x_next
        ahead = tl.maximum(t - 1, 0).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        x_next = tl.load(alpha_ptr + (b * n_steps + ahead) * n_labels + i, mask=inside, other=float("-inf"))
        here = is_here(m_ptr, b * n_steps + t, HAS_MASK)
        mine = here
        if START > 0:
            mine = tl.where(t < t_begin, 0, here)
            here = tl.where(t < t_begin, 1, here)  # messages stand still: they are those of the last step there
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + later - 1) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + seen > 0), other=0.0).to(WIDE)
        z = score + c[None, :]
        top = finite(tl.max(z, axis=1))
        p = tl.exp(z - top[:, None])
        mass = tl.sum(p, axis=1)
        beta = tl.where(seen > 0, top + tl.log(mass), finish)
        both = x + beta
        high = finite(tl.max(both, axis=0))
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
            tl.store(dp_ptr + step + at, (pairs * weight), mask=square & (at * 0 + here * seen > 0))
        out = tl.where(mine > 0, node * weight, 0.0)
        own = inside & (i * 0 + t >= t_begin)
        tl.store(de_ptr + (b * n_steps + t) * n_labels + i, out.to(de_ptr.dtype.element_ty), mask=own)
        tl.store(ds_ptr + place * n_labels + i, out, mask=inside & (i * 0 + mine > 0))
        tl.store(df_ptr + place * n_labels + i, out, mask=inside & (i * 0 + mine * (1 - seen) > 0))
        lowered = beta - high - tl.log(tl.where(sum_node > 0, sum_node, 1.0))
        c = tl.where(here > 0, u + lowered, c)
        later = tl.where(here > 0, b * 0 + t, later)
        seen = tl.maximum(seen, here)
    tl.store(da_ptr + place * n_labels * n_labels + at, total * weight, mask=square)


@triton.jit(do_not_specialize=["n_steps", "span"])
def _decode_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, p_ptr, m_ptr, first_ptr, x_ptr, back_ptr, path_ptr, map_ptr,
    n_steps, span, n_labels,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_PAIRS: tl.constexpr, START: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, WIDTH)
    begin = tl.load(s_ptr + i, mask=inside, other=float("-inf"))
    x = tl.full([WIDTH], float("-inf"), WIDE)
    seen = tl.full([], 0, tl.int32)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    place = b * tl.num_programs(1) + tl.program_id(1)  # of the span
    if START > 0:
        seen = (tl.load(first_ptr + b) < t_begin).to(tl.int32)
        x = tl.load(x_ptr + (place + b) * n_labels + i, mask=inside, other=float("-inf"))
    row = e_ptr + b * e_batch
    u_next = tl.load(row + (b * 0 + t_begin) * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
    for t in range(t_begin, t_end):
        u = u_next
        ahead = tl.minimum(t + 1, n_steps - 1).to(tl.int64)
        u_next = tl.load(row + ahead * e_step + i, mask=inside, other=float("-inf")).to(WIDE)
        here = is_here(m_ptr, b * n_steps + t, HAS_MASK)
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + tl.maximum(t - 1, 0)) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + t > 0), other=0.0).to(WIDE)
        top, best = tl.max(x[:, None] + score, axis=0, return_indices=True)
        new = u + tl.where(seen > 0, top, begin)
        x = tl.where(here > 0, new - finite(tl.max(new, axis=0)), x)
        tl.store(back_ptr + (b * n_steps + t) * n_labels + i, best.to(tl.int16), mask=inside)
        seen = tl.maximum(seen, here)
    tl.debug_barrier()
    if START > 0:
        # labels on the best ways to every last label of the span, and the labels before it
        y = tl.minimum(i, n_labels - 1).to(tl.int64)
        for back in range(t_end - t_begin):
            at_step = b * n_steps + t_end - 1 - back
            here = is_here(m_ptr, at_step, HAS_MASK)
            tl.store(path_ptr + at_step * n_labels + i, tl.where(here > 0, y, -1).to(tl.int16), mask=inside)
            y = tl.where(here > 0, tl.load(back_ptr + at_step * n_labels + y).to(tl.int64), y)
        tl.store(map_ptr + place * n_labels + i, y.to(tl.int16), mask=inside)
    else:
        top, best = tl.max(x + tl.load(f_ptr + i, mask=inside, other=float("-inf")), axis=0, return_indices=True)
        trace(back_ptr, path_ptr, m_ptr, best.to(tl.int64), (top == float("-inf")) & (seen > 0), b, n_steps, n_labels,
              HAS_MASK)  # fmt: skip


@triton.jit
def trace(back_ptr, path_ptr, m_ptr, y, dead, b, n_steps, n_labels, HAS_MASK: tl.constexpr):
    """Writes the labels from the last one y back to the first."""
    for back in range(n_steps):
        at = b * n_steps + n_steps - 1 - back
        here = is_here(m_ptr, at, HAS_MASK)
        tl.store(path_ptr + at, tl.where(dead, -2, tl.where(here > 0, y, -1)))
        y = tl.where(here > 0, tl.load(back_ptr + at * n_labels + y).to(tl.int64), y)


@triton.jit
def _larger(x, y):
    return tl.maximum(x, y)


@triton.jit(do_not_specialize=["n_steps"])
def _gold_kernel(
    e_ptr, e_batch, e_step, a_ptr, s_ptr, f_ptr, p_ptr, m_ptr, y_ptr, log_z_ptr, value_ptr, n_steps, n_labels,
    STEPS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    gold = tl.full([], 0.0, tl.float64)
    seen = tl.full([], -1, tl.int32)  # the last step that is there
    for t0 in range(0, n_steps, STEPS):
        t = t0 + tl.arange(0, STEPS)
        here = t < n_steps
        earlier = (t > 0) & (t <= n_steps)
        if HAS_MASK:
            here = tl.load(m_ptr + b * n_steps + t, mask=here, other=0) > 0
            earlier = tl.load(m_ptr + b * n_steps + t - 1, mask=earlier, other=0) > 0
        before = tl.maximum(tl.associative_scan(tl.where(earlier, t - 1, -1), 0, _larger), seen)
        y = tl.load(y_ptr + b * n_steps + t, mask=here, other=0)
        unary = tl.load(e_ptr + b * e_batch + t.to(tl.int64) * e_step + y, mask=here, other=0.0).to(WIDE)
        linked = here & (before >= 0)
        pair = tl.load(y_ptr + b * n_steps + before, mask=linked, other=0) * n_labels + y
        score = tl.load(a_ptr + pair, mask=linked, other=0.0)
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + t - 1) * n_labels * n_labels
            score += tl.load(p_ptr + step + pair, mask=linked, other=0.0).to(WIDE)
        first = tl.load(s_ptr + y, mask=here & (before < 0), other=0.0)
        gold += tl.sum((unary + score + first).to(tl.float64), axis=0)
        seen = tl.max(tl.maximum(before, tl.where(here, t, -1)), axis=0)
    gold += tl.load(f_ptr + tl.load(y_ptr + b * n_steps + seen, mask=seen >= 0, other=0)).to(tl.float64)
    tl.store(value_ptr + b, tl.where(seen >= 0, gold - tl.load(log_z_ptr + b), 0.0))


def width_and_warps(n_labels: int, back: bool = False) -> tuple[int, int]:
    """Labels padded to a power of two, and the warps of a program, measured on an H200; backward has more to hold."""
    width = max(16, triton.next_power_of_2(n_labels))
    return width, {16: 1, 32: 1, 64: 4, 128: 16 if back else 4}[width]


def multiprocessors(device: torch.device) -> int:
    """Of a GPU; one on a CPU, where Triton's interpreter runs program by program."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def scalar_type(dtype: torch.dtype) -> Any:
    """What Triton calls it."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def forward(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    keep: bool = True,
    best: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-partition log Z, or log-likelihood of ``y``, [B] in float64; and the forward messages [B, T, L]."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels)
    alpha = a.new_empty((n_batch, n_steps, n_labels) if keep else (0,))
    value = torch.empty(n_batch, dtype=torch.float64, device=x.device)
    _forward_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, y, None, None, alpha, value, n_steps, n_steps, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=y is not None, HAS_PAIRS=p is not None, KEEP=keep, BEST=best,
        START=SEQUENCE, WIDE=scalar_type(a.dtype), num_warps=warps,
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
    de, da, ends, dp = walk_back(x, a, e, p, m, y, alpha, g)
    both = ends.sum((1, 2))
    return de, da.sum((0, 1)), both[0], both[1], dp


def walk_back(
    x: Tensor,
    a: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    alpha: Tensor,
    g: Tensor,
    first: Tensor | None = None,
    bounds: Tensor | None = None,
    span: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of emissions and pairwise; of transitions [B, S, L, L], start and end [2, B, S, L] for S spans each."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels, back=True)
    spans = 1 if bounds is None else bounds.shape[2] - 1
    de = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    da = a.new_empty(n_batch, spans, n_labels, n_labels)
    ends = a.new_empty(2, n_batch, spans, n_labels)
    dp = None if p is None else torch.zeros(p.shape, dtype=a.dtype, device=p.device)
    _backward_kernel[(n_batch, spans)](
        x, x.stride(0), x.stride(1), a, e, p, m, y, first, bounds, alpha, g, de, da, ends[0], ends[1], dp,
        n_steps, span, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_TAGS=y is not None, HAS_PAIRS=p is not None,
        START=SEQUENCE if bounds is None else SPAN, WIDE=scalar_type(a.dtype), num_warps=warps,
    )  # fmt: skip
    return de, da, ends, dp


def decode(x: Tensor, a: Tensor, s: Tensor, e: Tensor, p: Tensor | None, m: Tensor | None) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    n_batch, n_steps, n_labels = x.shape
    width, warps = width_and_warps(n_labels)
    back = torch.empty((n_batch, n_steps, n_labels), dtype=torch.int16, device=x.device)
    path = torch.empty((n_batch, n_steps), dtype=torch.int64, device=x.device)
    _decode_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, None, None, back, path, None, n_steps, n_steps, n_labels,
        WIDTH=width, HAS_MASK=m is not None, HAS_PAIRS=p is not None, START=SEQUENCE, WIDE=scalar_type(a.dtype),
        num_warps=warps,
    )  # fmt: skip
    return path


def value_of(
    x: Tensor,
    a: Tensor,
    s: Tensor,
    e: Tensor,
    p: Tensor | None,
    m: Tensor | None,
    y: Tensor | None,
    log_z: Tensor,
) -> Tensor:
    """Log-partition log Z or, with labels, their log-likelihoods; zero where no step is there."""
    n_batch, n_steps, n_labels = x.shape
    if y is None:
        return log_z if m is None else log_z.masked_fill_(m.amax(1) == 0, 0.0)
    value = torch.empty_like(log_z)
    _gold_kernel[(n_batch,)](
        x, x.stride(0), x.stride(1), a, s, e, p, m, y, log_z, value, n_steps, n_labels,
        STEPS=min(1024, triton.next_power_of_2(n_steps)), HAS_MASK=m is not None, HAS_PAIRS=p is not None,
        WIDE=scalar_type(a.dtype),
    )  # fmt: skip
    return value


def first_and_last(x: Tensor, m: Tensor | None) -> tuple[Tensor, Tensor]:
    """First and last step that is there, [B] each."""
    n_batch, n_steps, _ = x.shape
    if m is None:
        zero = torch.zeros(n_batch, dtype=torch.int32, device=x.device)
        return zero, zero + (n_steps - 1)
    first = m.argmax(1).to(torch.int32)
    last = (n_steps - 1 - m.flip(1).argmax(1)).to(torch.int32)
    return first, last
