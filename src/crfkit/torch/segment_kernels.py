"""Triton kernels for segmentations: a program walks one sequence in one direction, and all else is done at once.

With u the scores of tokens, d of lengths and a of transitions, alpha_n(j) sums over what ends at border n with a
segment of label j, and enter_n(j) over what leads to a segment of label j that begins there::

    alpha_n(j) = log sum_{k <= K} exp(enter_{n-k}(j) + u_{n-k}(j) + ... + u_{n-1}(j) + d_k(j))
    enter_n(j) = log sum_i exp(alpha_n(i) + a(i, j)),    enter_0 = 0

The sum over the label before comes first, then the one over lengths: a step costs L^2 + K L. From the end it is the
same with time and transitions turned round. With S the running sums of u, the sum over lengths is one over rows
x_s(j) = enter_s(j) - S_s(j) of the last K borders, which lie in a small buffer: rows are added to the scores of
lengths, which stay in registers. Every BLOCK steps the buffer moves up, and what S and the scale have become is taken
out of it, so that its numbers stay small; scales are summed in double precision.

Messages of all borders of both directions are kept in double precision: probabilities of segments and of pairs follow
from them without a recursion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from crfkit.torch.kernels import exponentials, finite
from crfkit.torch.launching import ceil_div, multiprocessors, power_of_2, run

__all__: list[str] = []

#: Steps after which the buffer of rows moves up.
BLOCK = 16
#: Numbers of the buffer that are looked at together.
TILE = 8192
WARPS = 8  # measured on an H200


class Lattices(NamedTuple):
    """Segmentations of ragged sequences."""

    unary: Tensor  # [N, L]
    pairs: Tensor  # [L, L]
    lengths: Tensor  # [K, L]
    offsets: Tensor  # int64 [B + 1], on the device
    borders: Tensor | None  # uint8 [N]: 1 where a segment begins, 2 where none does
    longest: int  # steps of the longest sequence


class Walked(NamedTuple):
    """What the probabilities follow from; rows are the borders of all sequences, N + B."""

    value: Tensor  # float64 [B]: log Z
    leads: Tensor  # float64 [2, N + B, L]: enter - S, from both ends
    ends: Tensor  # float64 [2, N + B, L]: alpha, from both ends
    reach: Tensor  # int32 [N + B, L]: the longest segment that may end here
    total: Tensor  # float64 [B, L]: S of the whole sequence


class Found(NamedTuple):
    """Probabilities, and expected numbers weighted by sequence."""

    nodes: Tensor  # [N, L]
    begins: Tensor  # [N, L]
    ends: Tensor  # [N, L]
    pairs: Tensor  # [L, L]
    lengths: Tensor  # [K, L]


@triton.jit
def _row_sum(x_ptr, d, d_ptr, at, age, n_lengths, n_labels, DEPTH: tl.constexpr, CHUNKS: tl.constexpr,
             BEST: tl.constexpr):  # fmt: skip
    """Log sum over lengths k of exp(x_{n-k} + d_k), or the maximum and the length that has it; `at` is row n - 1."""
    WIDTH: tl.constexpr = d.shape[1]
    r = tl.arange(0, DEPTH)[:, None]
    j = tl.arange(0, WIDTH)[None, :]
    high = tl.full([WIDTH], float("-inf"), d.dtype)
    mass = tl.zeros([WIDTH], d.dtype)
    best = tl.zeros([WIDTH], tl.int32)
    for chunk in range(CHUNKS):
        k = chunk * DEPTH + r + 1
        scores = d
        if CHUNKS > 1:
            scores = tl.load(
                d_ptr + (k - 1) * n_labels + j, mask=(k <= n_lengths) & (j < n_labels), other=float("-inf")
            )
        there = k <= age[None, :]
        z = tl.where(there, tl.load(x_ptr + (at - k + 1) * WIDTH + j, mask=there, other=0.0) + scores, float("-inf"))
        if BEST:
            new, which = tl.max(z, axis=0, return_indices=True)
            best = tl.where(new > high, chunk * DEPTH + which + 1, best)
            high = tl.maximum(high, new)
        elif CHUNKS == 1:
            high, _, mass = exponentials(z, 0)
        else:
            new = tl.maximum(high, tl.max(z, axis=0))
            mass = mass * tl.exp(high - finite(new)) + tl.sum(tl.exp(z - finite(new)[None, :]), axis=0)
            high = new
    if not BEST:
        high = finite(high) + tl.log(mass)
    return high, best


@triton.jit
def _move_up(x_ptr, down, DEPTH: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of the buffer BLOCK places up, with `down` added."""
    WIDTH: tl.constexpr = down.shape[0]
    at = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    for chunk in range(CHUNKS):
        x = tl.load(x_ptr + (chunk * DEPTH + BLOCK) * WIDTH + at)
        tl.debug_barrier()  # all have read what is now written over
        tl.store(x_ptr + chunk * DEPTH * WIDTH + at, x + down[None, :])
    tl.debug_barrier()


@triton.jit
def _level(row, step, first, n, n_labels, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Mean of the largest scores of the next BLOCK tokens: what the scale is expected to gain at a step."""
    t = first + tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, WIDTH)[None, :]
    u = tl.load(row + t * step + j, mask=(t < n) & (j < n_labels), other=float("-inf")).to(WIDE)
    return tl.sum(finite(tl.max(u, axis=1)), axis=0) / BLOCK


@triton.jit
def _border(border_ptr, at, n, length, HAS_BORDERS: tl.constexpr):
    """What is known of border n: 0 nothing, 1 a segment begins there, 2 none does."""
    known = tl.full([], 0, tl.int32)
    if HAS_BORDERS:
        known = tl.load(border_ptr + at, mask=n < length, other=0).to(tl.int32)
    return known


@triton.jit(do_not_specialize=["n_batch", "n_rows", "buffer"])
def _walk_kernel(
    u_ptr, a_ptr, d_ptr, offset_ptr, border_ptr, x_ptr, value_ptr, lead_ptr, end_ptr, reach_ptr, total_ptr,
    size_ptr, label_ptr, n_batch, n_rows, n_lengths, n_labels, buffer,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr, HAS_BORDERS: tl.constexpr,
    KEEP: tl.constexpr, BEST: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One sequence, from the beginning (side 0) or from the end (side 1); KEEP keeps messages, BEST what was best.

    A token that may not have a label (a score of minus infinity) ends what reaches over it, as a border that must be
    there does: `since` is the first border that a segment with a label may begin at.
    """
    b = tl.program_id(0).to(tl.int64)
    side = tl.program_id(1).to(tl.int64)
    first = tl.load(offset_ptr + b)
    length = (tl.load(offset_ptr + b + 1) - first).to(tl.int32)
    ROWS: tl.constexpr = DEPTH * CHUNKS
    x_ptr += (side * n_batch + b) * buffer
    j = tl.arange(0, WIDTH)
    inside = j < n_labels
    turn = tl.where(side > 0, -1, 1).to(tl.int64)  # which way a token or a border further is
    row = u_ptr + tl.where(side > 0, first + length - 1, first) * n_labels
    kept = side * n_rows + first + b + tl.where(side > 0, length, 0)
    i = j[:, None]
    at = tl.where(side > 0, j[None, :] * n_labels + i, i * n_labels + j[None, :])
    a = tl.load(a_ptr + at, mask=inside[:, None] & inside[None, :], other=float("-inf"))
    r = tl.arange(0, DEPTH)[:, None]
    d = tl.load(d_ptr + r * n_labels + j[None, :], mask=(r < n_lengths) & inside[None, :], other=float("-inf"))
    lead = tl.where(inside, 0.0, float("-inf")).to(WIDE)
    tl.store(x_ptr + (ROWS - 1) * WIDTH + j, lead)
    if KEEP:
        tl.store(lead_ptr + kept * n_labels + j, lead.to(tl.float64), mask=inside)
        tl.store(end_ptr + kept * n_labels + j, lead.to(tl.float64) + float("-inf"), mask=inside)
    tl.debug_barrier()
    alpha = lead
    enter = lead
    since = tl.zeros([WIDTH], tl.int32)
    gained = tl.zeros([WIDTH], WIDE)  # S since the block began, without levels
    total = tl.zeros([WIDTH], tl.float64)  # S
    scale = tl.full([], 0.0, tl.float64)
    u_next = tl.load(row + j, mask=inside & (j * 0 < length), other=float("-inf")).to(WIDE)
    for begin in range(0, length, BLOCK):
        if begin > 0:
            high = finite(tl.max(enter, axis=0))
            _move_up(x_ptr, gained - high, DEPTH, CHUNKS, BLOCK)
            scale += high.to(tl.float64)
            gained = gained * 0
        level = _level(row, turn * n_labels, begin, length, n_labels, BLOCK, WIDTH, WIDE)
        for tau in range(tl.minimum(BLOCK, length - begin)):  # recursion: forward, backward, viterbi
            n = begin + tau + 1
            u = u_next
            u_next = tl.load(row + turn * n * n_labels + j, mask=inside & (j * 0 + n < length), other=float("-inf")).to(
                WIDE
            )
            gone = u == float("-inf")
            gained += tl.where(gone, 0.0, u - level)
            scale += level.to(tl.float64)
            total += tl.where(gone, 0.0, u).to(tl.float64)
            since = tl.where(gone, n, since)
            alpha, size = _row_sum(x_ptr, d, d_ptr, ROWS - 1 + tau, n - since, n_lengths, n_labels, DEPTH, CHUNKS, BEST)
            alpha += gained
            known = _border(border_ptr, first + tl.where(side > 0, length - n, n), n, length, HAS_BORDERS)
            alpha = tl.where(known == 2, float("-inf"), alpha)
            z = alpha[:, None] + a
            if BEST:
                enter, label = tl.max(z, axis=0, return_indices=True)
                tl.store(size_ptr + (kept + n) * n_labels + j, size, mask=inside)
                tl.store(label_ptr + (kept + n) * n_labels + j, label.to(tl.int16), mask=inside)
            else:
                high, _, mass = exponentials(z, 0)
                enter = high + tl.log(mass)
            tl.store(x_ptr + (ROWS + tau) * WIDTH + j, enter - gained)
            if KEEP:
                place = (kept + turn * n) * n_labels + j
                tl.store(lead_ptr + place, enter.to(tl.float64) + (scale - total), mask=inside)
                tl.store(end_ptr + place, alpha.to(tl.float64) + scale, mask=inside)
                if side == 0:
                    tl.store(reach_ptr + place, tl.minimum(n - since, n_lengths), mask=inside)
            since = tl.where(known == 1, n, since)
            tl.debug_barrier()
    if side == 0:
        if BEST:
            value, label = tl.max(alpha, axis=0, return_indices=True)
            tl.store(total_ptr + b, label.to(tl.float64))
        else:
            high, _, mass = exponentials(alpha, 0)
            value = high + tl.log(mass)
            tl.store(total_ptr + b * n_labels + j, total, mask=inside)
        tl.store(value_ptr + b, tl.where(length > 0, value.to(tl.float64) + scale, 0.0))


@triton.jit(do_not_specialize=["n_rows", "steps"])
def _posterior_kernel(
    a_ptr, d_ptr, offset_ptr, value_ptr, lead_ptr, end_ptr, reach_ptr, total_ptr, begins_ptr, ends_ptr, pairs_ptr,
    sizes_ptr, n_rows, n_lengths, n_labels, steps,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Probabilities of what begins and ends at some borders, and sums of those of lengths and of pairs.

    P(s, s + k, j) = exp(enter_s(j) - S_s(j) + d_k(j) + S_{s+k}(j) + leave_{s+k}(j) - log Z): what begins at a border
    and what ends there are sums of the same numbers, in double precision, so that their running difference holds.
    """
    b = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(2)
    first = tl.load(offset_ptr + b)
    length = (tl.load(offset_ptr + b + 1) - first).to(tl.int32)
    base = first + b
    j = tl.arange(0, WIDTH)
    inside = j < n_labels
    k = chunk * DEPTH + tl.arange(0, DEPTH)[:, None] + 1
    known = (k <= n_lengths) & inside[None, :]
    d = tl.load(d_ptr + (k - 1) * n_labels + j[None, :], mask=known, other=float("-inf"))
    log_z = tl.load(value_ptr + b)
    rest = tl.load(total_ptr + b * n_labels + j, mask=inside, other=0.0) - log_z
    side = (b * 0 + n_rows) * n_labels
    later = lead_ptr + side
    sizes = tl.zeros([DEPTH, WIDTH], WIDE)
    lowest = tl.program_id(1) * steps
    highest = tl.minimum(lowest + steps, length + 1)
    for n in range(lowest, highest):
        place = (base + n) * n_labels + j
        y = tl.load(later + place, mask=inside, other=float("-inf")) + rest
        reach = tl.load(reach_ptr + place, mask=inside & (j * 0 + n > 0), other=0)
        there = known & (k <= reach[None, :])
        x = tl.load(lead_ptr + (base + n - k) * n_labels + j[None, :], mask=there, other=float("-inf"))
        p = tl.exp((x + y[None, :]).to(WIDE) + d)
        sizes += p
        tl.store(ends_ptr + chunk * side + place, tl.sum(p.to(tl.float64), axis=0), mask=inside)
        x = tl.load(lead_ptr + place, mask=inside, other=float("-inf"))
        far = (base + n + k) * n_labels + j[None, :]
        there = known & (n + k <= length)
        there = there & (k <= tl.load(reach_ptr + far, mask=there, other=0))
        y = tl.load(later + far, mask=there, other=float("-inf")) + rest[None, :]
        p = tl.exp((x[None, :] + y).to(WIDE) + d)
        tl.store(begins_ptr + chunk * side + place, tl.sum(p.to(tl.float64), axis=0), mask=inside)
    part = b * tl.num_programs(1) + tl.program_id(1)
    tl.store(sizes_ptr + (part * n_lengths + k - 1) * n_labels + j[None, :], sizes, mask=known)
    if chunk == 0:
        square = inside[:, None] & inside[None, :]
        at = j[:, None] * n_labels + j[None, :]
        a = tl.load(a_ptr + at, mask=square, other=float("-inf"))
        pairs = tl.zeros([WIDTH, WIDTH], WIDE)
        after = end_ptr + side
        for n in range(tl.maximum(lowest, 1), tl.minimum(highest, length)):
            place = (base + n) * n_labels + j
            x = tl.load(end_ptr + place, mask=inside, other=float("-inf"))
            y = tl.load(after + place, mask=inside, other=float("-inf")) - log_z
            pairs += tl.exp((x[:, None] + y[None, :]).to(WIDE) + a)
        tl.store(pairs_ptr + part * n_labels * n_labels + at, pairs, mask=square)


@triton.jit
def _trace_kernel(offset_ptr, value_ptr, last_ptr, size_ptr, label_ptr, found_ptr, count_ptr, n_labels):
    # segments (start, end, label) from the last to the first; their number, -1 where no segmentation is allowed
    b = tl.program_id(0).to(tl.int64)
    first = tl.load(offset_ptr + b)
    n = tl.load(offset_ptr + b + 1) - first
    y = tl.load(last_ptr + b).to(tl.int64)
    alive = tl.load(value_ptr + b) > float("-inf")
    count = n * 0
    while alive & (n > 0):
        at = (first + b + n) * n_labels + y
        k = tl.load(size_ptr + at).to(tl.int64)
        place = found_ptr + (first + count) * 3
        tl.store(place, n - k)
        tl.store(place + 1, n)
        tl.store(place + 2, y)
        n -= k
        count += 1
        # of the label y that begins at border n, the one before it
        y = tl.load(label_ptr + (first + b + n) * n_labels + y, mask=n > 0, other=0).to(tl.int64)
    tl.store(count_ptr + b, tl.where(alive, count, -1))


def _shape(x: Lattices) -> dict[str, Any]:
    """Widths of the kernels' tiles."""
    n_lengths, n_labels = x.lengths.shape
    width = max(16, power_of_2(n_labels))
    depth = max(16, min(power_of_2(n_lengths), TILE // width))
    wide = tl.float64 if x.unary.dtype == torch.float64 else tl.float32
    return {"WIDTH": width, "DEPTH": depth, "CHUNKS": ceil_div(n_lengths, depth), "WIDE": wide}


def _walk(x: Lattices, sides: int, walked: Walked, sizes: Tensor | None = None, labels: Tensor | None = None) -> None:
    n_batch, (n_lengths, n_labels) = len(x.offsets) - 1, x.lengths.shape
    shape = _shape(x)
    buffer = (shape["DEPTH"] * shape["CHUNKS"] + BLOCK) * shape["WIDTH"]
    rows = x.unary.new_empty(sides * n_batch * buffer)
    sizes_of = n_batch, len(x.unary) + n_batch, n_lengths, n_labels, buffer
    arguments = (*x[:5], rows, *walked, sizes, labels, *sizes_of)
    constants: dict[str, Any] = {k: shape[k] for k in ("WIDTH", "DEPTH", "CHUNKS")}
    constants |= {"BLOCK": BLOCK, "HAS_BORDERS": x.borders is not None, "KEEP": sides > 1, "BEST": sizes is not None}
    run(_walk_kernel, (n_batch, sides, 1), arguments, {**constants, "WIDE": shape["WIDE"]}, WARPS)


def forward(x: Lattices, keep: bool) -> Walked:
    """Log Z and, if they are kept, the messages of both ends."""
    n_batch, n_rows, n_labels = len(x.offsets) - 1, len(x.unary) + len(x.offsets) - 1, x.unary.shape[1]
    double: dict[str, Any] = {"dtype": torch.float64, "device": x.unary.device}
    shape = (2, n_rows, n_labels) if keep else (0,)
    leads, ends = torch.empty(shape, **double), torch.empty(shape, **double)
    reach = torch.empty(shape[1:], dtype=torch.int32, device=x.unary.device)
    value, total = torch.empty(n_batch, **double), torch.empty((n_batch, n_labels), **double)
    walked = Walked(value, leads, ends, reach, total)
    _walk(x, 2 if keep else 1, walked)
    return walked


def posterior(x: Lattices, walked: Walked, weight: Tensor) -> Found:
    """Probabilities, and sums over sequences of weighted expectations.

    Messages of a long sequence carry a common error that changes slowly along it; the probabilities of a token's labels
    add up to one, which takes it out.
    """
    n_batch, (n_lengths, n_labels) = len(x.offsets) - 1, x.lengths.shape
    n_rows = len(x.unary) + n_batch
    shape = _shape(x)
    chunks = shape["CHUNKS"]
    steps = max(32, ceil_div(n_rows * chunks, 16 * multiprocessors(x.unary.device)))
    programs = ceil_div(x.longest + 1, steps)
    begins, ends = x.unary.new_zeros((2, chunks, n_rows, n_labels), dtype=torch.float64)
    pairs = x.unary.new_empty(n_batch, programs, n_labels, n_labels)
    sizes = x.unary.new_empty(n_batch, programs, n_lengths, n_labels)
    arguments = x.pairs, x.lengths, x.offsets, *walked, begins, ends, pairs, sizes, n_rows, n_lengths, n_labels, steps
    warps = 16 if shape["WIDTH"] * shape["DEPTH"] > 4096 else 8
    run(_posterior_kernel, (n_batch, programs, chunks), arguments, shape, warps)
    begins, ends = begins.sum(0), ends.sum(0)
    sequence = torch.repeat_interleave(
        torch.arange(n_batch, device=x.unary.device), x.offsets.diff(), output_size=len(x.unary)
    )
    rows = torch.arange(len(x.unary), device=x.unary.device) + sequence  # the border before each token
    # each label's differences add up to nothing: one running sum goes through all labels
    inside = (begins - ends).t().reshape(-1).cumsum(0).view(n_labels, n_rows).t()
    nodes = inside[rows].clamp_min_(0)
    mass = nodes.sum(1, keepdim=True)
    mass = torch.where(mass > 0, mass, 1.0)
    # the first token of every program's part
    at = x.offsets[:-1, None] + steps * torch.arange(programs, device=x.unary.device)
    at = torch.minimum(at, x.offsets[1:, None] - 1).clamp_min(0)
    factor = (weight.double()[:, None] / mass[at, 0]).to(x.unary.dtype).reshape(1, -1)
    sums = [(factor @ y.reshape(factor.shape[1], -1)).view(y.shape[2:]) for y in (pairs, sizes)]
    each = [(y / mass).to(x.unary.dtype) for y in (nodes, begins[rows], ends[rows + 1])]
    return Found(*each, *sums)


def decode(x: Lattices) -> tuple[Tensor, Tensor]:
    """Segments (start, end, label) of every sequence from the last to the first [N, 3], and their numbers [B]."""
    n_batch, n_labels, device = len(x.offsets) - 1, x.unary.shape[1], x.unary.device
    n_rows = len(x.unary) + n_batch
    value, last = torch.empty((2, n_batch), dtype=torch.float64, device=device)
    sizes = torch.empty((n_rows, n_labels), dtype=torch.int32, device=device)
    labels = torch.empty((n_rows, n_labels), dtype=torch.int16, device=device)
    nothing = torch.empty(0, dtype=torch.float64, device=device)
    _walk(x, 1, Walked(value, nothing, nothing, sizes, last), sizes, labels)
    found = torch.empty((len(x.unary), 3), dtype=torch.int64, device=device)
    count = torch.empty(n_batch, dtype=torch.int64, device=device)
    run(_trace_kernel, (n_batch, 1, 1), (x.offsets, value, last, sizes, labels, found, count, n_labels), {}, 1)
    return found, count


def segments_of(found: Tensor, count: Tensor, offsets: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Arrays [M, 3] of every sequence, from the first segment on."""
    rows, counts = found.cpu().numpy(), count.cpu().numpy()
    if (counts < 0).any():
        raise ValueError(f"no segmentation is allowed in sequence {int(np.flatnonzero(counts < 0)[0])}")
    return [rows[a : a + n][::-1].copy() for a, n in zip(offsets[:-1].tolist(), counts.tolist(), strict=True)]
