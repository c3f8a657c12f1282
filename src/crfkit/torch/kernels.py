"""Triton kernels for chains of up to 128 labels, fused over time: a program walks sixteen sequences, or spans of them.

The messages from the beginning and from the end are walked at the same time. What is left is no recursion: all steps'
marginals are made at once, each normalised on its own. Messages are lowered by their maximum at every step, and the
maxima are summed in double precision. Sequences of any length therefore keep their precision.

Programs that walk spans (:mod:`crfkit.torch.scan`) begin with the messages at the bounds of the spans [2, B, spans + 1,
L]: those from the beginning before each span, and those from the end after it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.chains import Batch
from crfkit.torch.gpu import TREE_LABELS
from crfkit.torch.launching import (
    Kind,
    Launch,
    arguments_of,
    ceil_div,
    counters,
    kind_of,
    launch,
    power_of_2,
    remembered,
    width_of,
)

__all__: list[str] = []


class Spans(NamedTuple):
    """Spans of sequences that are walked at the same time."""

    bounds: Tensor | None = None  # messages at the bounds of the spans
    steps: int = 0  # of each span


WHOLE = Spans()

# By the width of the labels, measured on an H200.
DOT_WARPS = {16: 2, 32: 4, 64: 8, 128: 8}
WALK_WARPS = {16: 1, 32: 1, 64: 4, 128: 4}
POSTERIOR_WARPS = {16: 1, 32: 1, 64: 8, 128: 16}
STEPS_AT_LEAST = {16: 8, 32: 8, 64: 8, 128: 8}
PROGRAMS = {16: 4096, 32: 2048, 64: 512, 128: 512}
#: How many sums are added up by one program.
FAN = tl.constexpr(16)


class Walked(NamedTuple):
    """What the backward pass takes from the forward pass."""

    messages: Tensor  # [runs, 2 sides, B, T, L]
    facts: Tensor  # int32 [3, B]: first and last step that is there, whether tags are unknown


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
def _log_sum(z, axis: tl.constexpr):
    """Log sum exp z along an axis."""
    high, _, mass = exponentials(z, axis)
    return high + tl.log(mass)


@triton.jit
def together(high, mass, more_high, more_mass):
    """What is kept as exp(high) mass, and more of it: the sum, kept likewise."""
    new = tl.maximum(high, more_high)  # recursion: log-sum-exp
    return new, mass * tl.exp(high - finite(new)) + more_mass * tl.exp(more_high - finite(new))


@triton.jit
def is_here(mask_ptr, at, HAS_MASK: tl.constexpr):
    """Whether the step is there."""
    here = tl.full([], 1, tl.int32)
    if HAS_MASK:
        here = tl.load(mask_ptr + at).to(tl.int32)
    return here


@triton.jit
def is_last(count_ptr, n):
    """Whether the other n - 1 programs with this counter have been here; then what they wrote is there."""
    tl.debug_barrier()
    last = tl.atomic_add(count_ptr, 1) == n - 1
    if last:
        tl.atomic_xchg(count_ptr, 0)
    tl.debug_barrier()
    return last


@triton.jit
def _table(a_ptr, n_labels, side, WIDTH: tl.constexpr):
    """Labels, which of them are inside, and the places and values of the transitions, for side 1 turned round."""
    i = tl.arange(0, WIDTH)
    inside = i < n_labels
    square = inside[:, None] & inside[None, :]
    at = tl.where(side > 0, i[None, :] * n_labels + i[:, None], i[:, None] * n_labels + i[None, :])
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
def _trace(back_ptr, path_ptr, map_ptr, mask_ptr, y, dead, t_begin, t_end, n_steps, n_labels,
           HAS_MASK: tl.constexpr, START: tl.constexpr):  # fmt: skip
    """Writes labels from the last one y back to the first; for a span, from all its last labels to those before it."""
    tl.debug_barrier()
    b = tl.program_id(0).to(tl.int64)
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
def _label_or_zero(y, n_labels):
    return tl.where((y >= 0) & (y < n_labels), y, 0)


@triton.jit
def gold_score(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels, b, exists,
    STEPS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Scores of the tags of sequences b, many steps at a time, and whether some of them are unknown.

    The score is NaN if a tag is not a label, and means nothing if one is unknown.
    """
    gold = b.to(tl.float64) * 0
    seen = (b * 0 - 1).to(tl.int32)  # the last step that is there
    unknown = seen * 0
    wrong = seen * 0
    row = (b * n_steps)[:, None]
    for t0 in range(0, n_steps, STEPS):
        t = t0 + tl.arange(0, STEPS)[None, :]
        here = (t < n_steps) & exists[:, None]
        earlier = (t > 0) & (t <= n_steps) & exists[:, None]
        if HAS_MASK:
            here = tl.load(mask_ptr + row + t, mask=here, other=0) > 0
            earlier = tl.load(mask_ptr + row + t - 1, mask=earlier, other=0) > 0
        before = tl.maximum(tl.associative_scan(tl.where(earlier, t - 1, -1), 1, _larger), seen[:, None])
        y = tl.load(tag_ptr + row + t, mask=here, other=0)
        unknown = tl.maximum(unknown, tl.max((y == ignore).to(tl.int32), axis=1))
        wrong = tl.maximum(wrong, tl.max(((y != ignore) & ((y < 0) | (y >= n_labels))).to(tl.int32), axis=1))
        y = _label_or_zero(y, n_labels)
        unary = tl.load(u_ptr + b[:, None] * u_batch + t.to(tl.int64) * u_step + y, mask=here, other=0.0).to(WIDE)
        linked = here & (before >= 0)
        pair = _label_or_zero(tl.load(tag_ptr + row + before, mask=linked, other=0), n_labels) * n_labels + y
        score = tl.load(a_ptr + pair, mask=linked, other=0.0)
        if HAS_PAIRS:
            step = ((b * (n_steps - 1))[:, None] + t - 1) * n_labels * n_labels
            score += tl.load(p_ptr + step + pair, mask=linked, other=0.0).to(WIDE)
        first = tl.load(start_ptr + y, mask=here & (before < 0), other=0.0)
        gold += tl.sum((unary + score + first).to(tl.float64), axis=1)
        seen = tl.max(tl.maximum(before, tl.where(here, t, -1)), axis=1)
    y = _label_or_zero(tl.load(tag_ptr + b * n_steps + seen, mask=seen >= 0, other=0), n_labels)
    gold += tl.load(end_ptr + y).to(tl.float64)
    return tl.where(wrong > 0, float("nan"), gold), tl.where(wrong > 0, 0, unknown)


@triton.jit
def _in_log_space(alpha, a_ptr, side, n_labels):
    """Log sum_k exp(alpha(k) + a(k, j)), one label k after another: :func:`exponentials` without a table of L x L."""
    i = tl.arange(0, alpha.shape[1])
    high = tl.full(alpha.shape, float("-inf"), alpha.dtype)
    mass = tl.zeros(alpha.shape, alpha.dtype)
    for k in range(n_labels):
        at = tl.where(side > 0, i * n_labels + k, k * n_labels + i)
        z = tl.sum(tl.where(i[None, :] == k, alpha, 0.0), axis=1)[:, None]
        z = z + tl.load(a_ptr + at, mask=i < n_labels, other=float("-inf"))[None, :]
        high, mass = together(high, mass, z, 1.0)
    return high + tl.log(mass)


@triton.jit
def _message(
    alpha, w, most, a_ptr, p_ptr, at, square, b, linked, into_step, n_steps, n_labels, side,
    HAS_PAIRS: tl.constexpr, BEST: tl.constexpr, KEEP: tl.constexpr, WIDE: tl.constexpr, FAINT: tl.constexpr,
):  # fmt: skip
    """What leads into the next step [ROWS, WIDTH], and the best labels before it where they are kept.

    w holds exp(a - most), for pairwise scores and best paths a itself. `linked` rows have a step before this one.
    """
    best = tl.zeros(alpha.shape, tl.int32)
    if HAS_PAIRS or BEST:
        z = alpha[:, :, None] + w[None, :, :]
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + into_step - 1) * n_labels * n_labels
            there = square[None, :, :] & linked[:, None, None]
            z += tl.load(p_ptr + step[:, None, None] + at[None, :, :], mask=there, other=0.0).to(WIDE)
        if BEST and KEEP == 2:
            into, best = tl.max(z, axis=1, return_indices=True)
        elif BEST:
            into = tl.max(z, axis=1)
        else:
            into = _log_sum(z, 1)
    else:
        if alpha.shape[0] > 1:
            mass = tl.dot(tl.exp(alpha), w, input_precision="tf32x3")
        else:
            mass = tl.sum(tl.exp(alpha)[:, :, None] * w[None, :, :], axis=1)
        into = finite(most)[None, :] + tl.log(mass)
        lost = (mass < FAINT) & (most > float("-inf"))[None, :] & linked[:, None]
        if tl.max(tl.max(lost.to(tl.int32), axis=1), axis=0) > 0:
            into = _in_log_space(alpha, a_ptr, side, n_labels)
    return into, best


@triton.jit
def _first_message(facts_ptr, bound_ptr, begin, n, n_rows, b, exists, origin, side, t_begin, n_labels,
                   WIDE: tl.constexpr, START: tl.constexpr):  # fmt: skip
    """Where a walk begins: the message before its first step, whether there is one, the scores of a first step."""
    begin = tl.broadcast_to(begin[None, :], [n.shape[0], begin.shape[0]])
    alpha = tl.full(begin.shape, float("-inf"), WIDE)
    seen = n * 0
    i = tl.arange(0, begin.shape[1])
    if START > 0:
        seen = (tl.load(facts_ptr + b, mask=exists, other=0) < t_begin).to(tl.int32)
    if START == 1:  # from the end, the messages of the later spans stand for the scores of the end
        spans = tl.num_programs(1)
        place = (side * n_rows + n).to(tl.int64) * (spans + 1)
        place += tl.program_id(1) + side
        tile = exists[:, None] & (i < n_labels)[None, :]
        bound = tl.load(bound_ptr + (place * n_labels)[:, None] + i[None, :], mask=tile, other=float("-inf"))
        alpha = tl.where(side > 0, alpha, bound)
        begin = tl.where(side > 0, bound, begin)
        seen = tl.where(side > 0, 0, seen)
    if START == 2:
        alpha = tl.where(i[None, :] == origin[:, None], 0.0, alpha)
    return alpha, seen, begin


@triton.jit
def _rows(n_batch, n_rows, n_labels, ROWS: tl.constexpr, START: tl.constexpr):
    """The side, rows, sequences, the labels that walks begin with, and which rows there are, of a program."""
    if START < 2:
        side = tl.program_id(2)
        n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # sequences, and those of the second run after them
        origin = n * 0
        exists = n < n_rows
    else:
        side = tl.program_id(2) * 0
        n = tl.program_id(0) + tl.zeros([ROWS], tl.int32)
        origin = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
        exists = origin < n_labels
    return side, n, (n % n_batch).to(tl.int64), origin, exists


@triton.jit
def _tag_facts(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, n_batch, b, exists,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr, START: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """Scores of the tags, which sequences have unknown ones, and how many runs a program makes.

    The two runs of a whole sequence are one program's; those of spans are rows of their own.
    """
    gold = b.to(tl.float64) * 0
    unknown = (b * 0).to(tl.int32)
    runs = tl.full([], 1, tl.int32)
    if HAS_TAGS and START == 0:
        gold, unknown = gold_score(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore,
                                    n_steps, n_labels, b, exists, STEPS, HAS_MASK, HAS_PAIRS, WIDE)  # fmt: skip
        runs += tl.max(unknown, axis=0)
    elif HAS_TAGS:
        unknown = tl.load(facts_ptr + 2 * n_batch + b, mask=exists, other=0)
    return gold, unknown, runs


@triton.jit
def add_up(value_ptr, count_ptr, n, n_batch, scale):
    """The last of n programs writes the scaled sum of all values after them."""
    if is_last(count_ptr, n):
        total = tl.full([], 0.0, tl.float64)
        for b0 in range(0, n_batch, 128):
            b = b0 + tl.arange(0, 128)
            each = tl.load(value_ptr + b, mask=b < n_batch, other=0.0, cache_modifier=".cg")
            total += tl.sum(each.to(tl.float64), axis=0)
        tl.store(value_ptr + n_batch, (total * scale).to(value_ptr.dtype.element_ty))


@triton.jit
def _level(row_ptr, shift_ptr, top_ptr, count_ptr, n_labels, i, WIDE: tl.constexpr):
    """The last program of a span gives all its rows the same shift: the largest, which it keeps."""
    span = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    if is_last(count_ptr + span, tl.num_programs(2)):
        shift = shift_ptr + span * n_labels
        top = finite(tl.max(tl.load(shift + i, mask=i < n_labels, other=float("-inf"), cache_modifier=".cg"), axis=0))
        tl.store(top_ptr + span, top)
        for k0 in range(0, n_labels, 16):
            k = k0 + tl.arange(0, 16)
            more = tl.load(shift + k, mask=k < n_labels, other=0.0, cache_modifier=".cg") - top
            tile = (k < n_labels)[:, None] & (i < n_labels)[None, :]
            at = row_ptr + (span * n_labels + k)[:, None] * n_labels + i[None, :]
            row = tl.load(at, mask=tile, other=0.0, cache_modifier=".cg")
            tl.store(at, row + more.to(WIDE)[:, None], mask=tile)


@triton.jit(do_not_specialize=["n_steps", "span", "n_batch", "n_rows"])
def _walk_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    n_batch, n_rows, facts_ptr, bound_ptr, span, kept_ptr, out_ptr, map_ptr, count_ptr, scale,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, KEEP: tl.constexpr, BEST: tl.constexpr, START: tl.constexpr, STEPS: tl.constexpr,
    FAINT: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Messages from the beginning (side 0) and from the end (side 1), or best paths from the beginning.

    Side 0: alpha_t(j) = u_t(j) + log sum_i exp(alpha_{t-1}(i) + a(i, j)). Side 1 is the same from the other end, with
    the transitions turned round: c_t(i) = u_t(i) + log sum_j exp(a(i, j) + c_{t+1}(j)). The sums of ROWS sequences are
    one product with exp(a), unless one is so small that something may have been lost: that step is done once more in
    log space. Run 0 is over all labellings, run 1 over those that agree with the tags, where some are unknown.

    START, where a walk begins: 0 with the sequence, 1 at a span with the messages there, 2 at a span with one label.
    KEEP, what is kept of every step: 0 nothing, 1 messages, 2 the labels that best lead into it; then out is a path.
    ADD: whether the last program adds up all values, times a scale; out has a place for the sum after them.
    """
    side, n, b, origin, exists = _rows(n_batch, n_rows, n_labels, ROWS, START)
    t_begin, t_end = _bounds_of(n_steps, span, START > 0)
    gold, unknown, runs = _tag_facts(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr,
                                     ignore, n_steps, n_labels, facts_ptr, n_batch, b, exists, HAS_MASK, HAS_TAGS,
                                     HAS_PAIRS, WIDE, START, STEPS)  # fmt: skip
    exists = exists & ((n < n_batch) | (unknown > 0))
    den = gold * 0
    i, inside, square, at, w = _table(a_ptr, n_labels, side, WIDTH)
    tile = exists[:, None] & inside[None, :]
    most = tl.max(w, axis=0)
    if not (HAS_PAIRS or BEST):
        w = tl.exp(w - finite(most)[None, :])
    start = tl.load(start_ptr + i, mask=inside, other=float("-inf"))
    finish = tl.load(end_ptr + i, mask=inside, other=float("-inf"))
    row = u_ptr + (b * u_batch)[:, None] + i[None, :]
    first = n * 0
    last = n * 0 - 1
    for a_run in range(runs * tl.max(exists.to(tl.int32), axis=0)):
        run = n // n_batch + a_run
        alpha, seen, begin = _first_message(facts_ptr, bound_ptr, tl.where(side > 0, finish, start), n, n_rows, b,
                                            exists, origin, side, t_begin, n_labels, WIDE, START)  # fmt: skip
        shift = b.to(tl.float64) * 0
        later = n * 0 + 1  # the last step of the walk that was there
        kept = (b * n_steps)[:, None] * n_labels + i[None, :]
        if KEEP == 1:
            kept += ((run * 2 + side).to(tl.int64) * n_batch * n_steps * n_labels)[:, None]
        t = tl.where(side > 0, t_end - 1, t_begin)
        u_next = tl.load(row + t.to(tl.int64) * u_step, mask=tile, other=float("-inf")).to(WIDE)
        for _step in range(t_begin, t_end):  # recursion: forward, backward, viterbi
            u = u_next
            ahead = tl.where(side > 0, tl.maximum(t - 1, 0), tl.minimum(t + 1, n_steps - 1)).to(tl.int64)
            u_next = tl.load(row + ahead * u_step, mask=tile, other=float("-inf")).to(WIDE)
            here = exists
            if HAS_MASK:
                here = tl.load(mask_ptr + b * n_steps + t, mask=exists, other=0) > 0
            if HAS_TAGS:
                y = tl.load(tag_ptr + b * n_steps + t, mask=exists & (run > 0), other=ignore)[:, None]
                u = tl.where((y == ignore) | (i[None, :] == y), u, float("-inf"))
            into, best = _message(alpha, w, most, a_ptr, p_ptr, at, square, b, exists & (seen > 0),
                                  tl.where(side > 0, later, tl.maximum(t, 1)), n_steps, n_labels, side,
                                  HAS_PAIRS, BEST, KEEP, WIDE, FAINT)  # fmt: skip
            new = u + tl.where((seen > 0)[:, None], into, begin)
            high = finite(tl.max(new, axis=1))
            alpha = tl.where(here[:, None], new - high[:, None], alpha)
            shift += tl.where(here, high, 0.0).to(tl.float64)
            first = tl.where(here & (seen == 0), t, first)
            last = tl.where(here, t, last)
            later = tl.where(here, t, later)
            seen = tl.maximum(seen, here.to(tl.int32))
            if KEEP > 0:
                tl.store(kept_ptr + kept + t * n_labels, best if KEEP == 2 else alpha, mask=tile)
            t = tl.where(side > 0, t - 1, t + 1)
        end = alpha + finish[None, :]
        if KEEP == 2:  # one row
            high, best = tl.max(end, axis=1, return_indices=True)
            y = tl.minimum(i, n_labels - 1).to(tl.int64) if START > 0 else tl.sum(best.to(tl.int64), axis=0)
            dead = tl.max(((high == float("-inf")) & (seen > 0)).to(tl.int32), axis=0) > 0
            _trace(kept_ptr, out_ptr, map_ptr, mask_ptr, y, dead, t_begin, t_end, n_steps, n_labels, HAS_MASK, START)
        elif START == 2:
            place = (n.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * n_labels + origin
            tl.store(bound_ptr + (place * n_labels)[:, None] + i[None, :], alpha, mask=tile)
            tl.store(
                out_ptr + place, tl.where(tl.max(alpha, axis=1) == float("-inf"), float("-inf"), shift), mask=exists
            )
            _level(bound_ptr, out_ptr, map_ptr, count_ptr, n_labels, i, WIDE)
        elif START == 0:
            value = shift + _log_sum(end, 1).to(tl.float64)
            den = tl.where(run == 0, value, den)
            gold = tl.where((run == 1) & (unknown > 0), value, gold)
    if (START == 0) & (KEEP < 2):
        mine = exists & (n * 0 + side == 0)
        tl.store(out_ptr + b, tl.where(last < 0, 0.0, gold - den if HAS_TAGS else den), mask=mine)
        tl.store(facts_ptr + b, first, mask=mine)
        tl.store(facts_ptr + n_batch + b, last, mask=mine)
        tl.store(facts_ptr + 2 * n_batch + b, unknown, mask=mine)
        if ADD:  # noqa: SIM102
            if side == 0:
                add_up(out_ptr, count_ptr, tl.num_programs(0), n_batch, scale)


@triton.jit
def _put_sums(row, total, at_first, at_last, i, inside, at, square, n_labels):
    """Gradients of transitions, start and end, one after another."""
    tl.store(row + at, total, mask=square)
    tl.store(row + n_labels * n_labels + i, at_first, mask=inside)
    tl.store(row + n_labels * (n_labels + 1) + i, at_last, mask=inside)


@triton.jit
def _add_sums(sums_ptr, out_ptr, count_ptr, place, each, total, at_first, at_last, i, inside, at, square, n_labels):
    """The sums of all programs: those of sixteen, then of sixteen such sums, and so on, each by the last of sixteen.

    A sum takes the place of its first part, the last one that of the result.
    """
    count = (place * 0 + tl.num_programs(0)) * tl.num_programs(1)
    alive = count > 1
    while alive:
        group = place // FAN
        members = tl.minimum(count - group * FAN, FAN)
        alive = is_last(count_ptr + group, members)
        if alive:
            total = total * 0
            at_first = at_first * 0
            at_last = at_last * 0
            first = sums_ptr + group * FAN * each
            for k in range(members):
                row = first + k * each
                total += tl.load(row + at, mask=square, other=0.0, cache_modifier=".cg")
                at_first += tl.load(row + n_labels * n_labels + i, mask=inside, other=0.0, cache_modifier=".cg")
                at_last += tl.load(row + n_labels * (n_labels + 1) + i, mask=inside, other=0.0, cache_modifier=".cg")
            tl.debug_barrier()  # all have read what is now written over
            count = (count + FAN - 1) // FAN
            alive = count > 1
            row = tl.where(alive, first, out_ptr)
            _put_sums(row, total, at_first, at_last, i, inside, at, square, n_labels)
            place = group
            count_ptr += count
            each = each * FAN


@triton.jit(do_not_specialize=["n_steps", "steps", "n_batch"])
def _posterior_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    n_batch, facts_ptr, kept_ptr, g_ptr, g_step, scale, steps, du_ptr, sums_ptr, dp_ptr, count_ptr, out_ptr,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    TREE: tl.constexpr,
):  # fmt: skip
    """Gradients of some steps of one sequence from the messages of both sides, every step on its own.

    xi_t(i, j) = exp(alpha_t(i) + a(i, j) + c_{t'}(j)) / sum, with t' the next step; its sums over j are the marginals.
    With tags, run 1 or, where all tags are known, the tags themselves count for what run 0 counts against. TREE: the
    programs' sums are added up too.
    """
    b = tl.program_id(0).to(tl.int64)
    i, inside, square, at, a = _table(a_ptr, n_labels, 0, WIDTH)
    finish = tl.load(end_ptr + i, mask=inside, other=float("-inf"))
    first = tl.load(facts_ptr + b)
    last = tl.load(facts_ptr + n_batch + b)
    weight = weight_of(g_ptr, g_step, b, scale, WIDE)
    runs = tl.full([], 1, tl.int32)
    if HAS_TAGS:
        runs += tl.load(facts_ptr + 2 * n_batch + b)
    total = tl.zeros([WIDTH, WIDTH], WIDE)
    at_first = tl.zeros([WIDTH], WIDE)
    at_last = tl.zeros([WIDTH], WIDE)
    t_begin = tl.program_id(1) * steps
    for t in range(t_begin, tl.minimum(n_steps, t_begin + steps)):
        here = is_here(mask_ptr, b * n_steps + t, HAS_MASK)
        linked = (here > 0) & (t < last)
        after = t + 1
        if HAS_MASK:
            while linked & (tl.load(mask_ptr + b * n_steps + after, mask=linked, other=1) == 0):
                after += 1
        score = a
        if HAS_PAIRS:
            step = (b * (n_steps - 1) + after - 1) * n_labels * n_labels
            score = a + tl.load(p_ptr + step + at, mask=square & (at * 0 + linked > 0), other=0.0).to(WIDE)
        pairs = tl.zeros([WIDTH, WIDTH], WIDE)
        nodes = tl.zeros([WIDTH], WIDE)
        for run in range(runs * here):
            kept = kept_ptr + (run * 2 * n_batch + b) * n_steps * n_labels + i
            alpha = tl.load(kept + t * n_labels, mask=inside, other=float("-inf"))
            sign = weight
            if HAS_TAGS:
                sign = tl.where(run > 0, weight, -weight)
            if linked:
                c = tl.load(kept + ((b * 0 + n_batch) * n_steps + after) * n_labels, mask=inside, other=float("-inf"))
                z = alpha[:, None] + score + c[None, :]
                xi = tl.exp(z - finite(tl.max(tl.max(z, axis=1), axis=0)))
                gamma = tl.sum(xi, axis=1)
                mass = tl.sum(gamma, axis=0)
                sign = sign / tl.where(mass > 0, mass, 1.0)
                pairs += xi * sign
                nodes += gamma * sign
            else:
                _, gamma, mass = exponentials(alpha + finish, 0)
                nodes += gamma * (sign / tl.where(mass > 0, mass, 1.0))
        if HAS_TAGS:  # noqa: SIM102
            if (runs == 1) & (here > 0):
                y = tl.load(tag_ptr + b * n_steps + t)
                y_after = tl.load(tag_ptr + b * n_steps + after, mask=linked, other=-1)
                nodes += tl.where(i == y, weight, 0.0)
                pairs += tl.where((i[:, None] == y) & (i[None, :] == y_after), weight, 0.0)
        total += pairs
        if HAS_PAIRS:
            tl.store(dp_ptr + step + at, pairs, mask=square & (at * 0 + linked > 0))
        place = (b * n_steps + t) * n_labels + i
        tl.store(du_ptr + place, nodes.to(du_ptr.dtype.element_ty), mask=inside)
        at_first += tl.where(t == first, nodes, 0.0)
        at_last += tl.where(t == last, nodes, 0.0)
    place = b * tl.num_programs(1) + tl.program_id(1)
    each = (b * 0 + n_labels) * (n_labels + 2)  # numbers of one program's sums
    row = sums_ptr + place * each
    if TREE:
        row = tl.where((tl.num_programs(0) > 1) | (tl.num_programs(1) > 1), row, out_ptr)
    _put_sums(row, total, at_first, at_last, i, inside, at, square, n_labels)
    if TREE:
        _add_sums(sums_ptr, out_ptr, count_ptr, place, each, total, at_first, at_last, i, inside, at, square, n_labels)


@triton.jit
def ends_of(mask_ptr, n_steps, b, exists, STEPS: tl.constexpr, HAS_MASK: tl.constexpr):
    """The first and the last step that is there, of sequences b; 0 and -1 if none is."""
    first = (b * 0).to(tl.int32)
    last = first + n_steps - 1
    if HAS_MASK:
        first += n_steps
        last = last * 0 - 1
        for t0 in range(0, n_steps, STEPS):
            t = t0 + tl.arange(0, STEPS)[None, :]
            inside = (t < n_steps) & exists[:, None]
            here = tl.load(mask_ptr + (b * n_steps)[:, None] + t, mask=inside, other=0) > 0
            first = tl.minimum(first, tl.min(tl.where(here, t, n_steps), axis=1))
            last = tl.maximum(last, tl.max(tl.where(here, t, -1), axis=1))
        first = tl.where(last < 0, 0, first)
    return first, last


@triton.jit(do_not_specialize=["n_steps"])
def _facts_kernel(
    u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr, ignore, n_steps, n_labels,
    facts_ptr, gold_ptr, n_batch,
    WIDTH: tl.constexpr, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, HAS_PAIRS: tl.constexpr, WIDE: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64) + tl.zeros([1], tl.int64)
    first, last = ends_of(mask_ptr, n_steps, b, b >= 0, STEPS, HAS_MASK)
    tl.store(facts_ptr + b, first)
    tl.store(facts_ptr + n_batch + b, last)
    if HAS_TAGS:
        gold, unknown = gold_score(u_ptr, u_batch, u_step, a_ptr, start_ptr, end_ptr, p_ptr, mask_ptr, tag_ptr,
                                    ignore, n_steps, n_labels, b, b >= 0, STEPS, HAS_MASK, HAS_PAIRS,
                                    WIDE)  # fmt: skip
        tl.store(gold_ptr + b, gold)
        tl.store(facts_ptr + 2 * n_batch + b, unknown)


def tags_at_once(n_steps: int) -> int:
    """Steps that a program takes at once where it adds up the score of tags."""
    return min(1024, max(64, power_of_2(n_steps)))  # every size is compiled: not one for each length


@remembered
def _walk_of(
    kind: Kind, n_steps: int, grid: tuple[int, int, int], keep: int, start: int, best: bool, add: bool
) -> Launch:
    width = width_of(kind.labels)
    rows = 1 if kind.wide or best or kind.pairs else 16
    n, s, last = grid
    grid = (n, s, ceil_div(last, rows)) if start == 2 else (ceil_div(n, rows), s, last)
    constants = kind.constants() | {"ROWS": rows, "KEEP": keep, "BEST": best, "START": start}
    constants |= {"STEPS": min(tags_at_once(n_steps), 1024 // rows), "FAINT": 1e-280 if kind.wide else 1e-28}
    return Launch(_walk_kernel, grid, constants | {"ADD": add}, (DOT_WARPS if rows > 1 else WALK_WARPS)[width])


def walk(
    batch: Batch,
    grid: tuple[int, int, int],
    out: Tensor | None,
    kept: Tensor | None = None,
    facts: Tensor | None = None,
    spans: Spans = WHOLE,
    maps: Tensor | None = None,
    best: bool = False,
    add: float = 0.0,
) -> None:
    """Walks whole sequences [B, 1, sides], spans [runs B, S, sides] or all rows of spans [runs B, S, L].

    ``kept`` takes the messages of all steps, or the best labels before theirs as int16; then ``out`` takes the path.
    With ``add`` it takes the sum of all values, times that, after them. Of spans, ``maps`` takes the labels before
    their own; of all rows, what the spans' rows are lowered by, and ``out`` what each was lowered by at first.
    """
    n_batch, n_steps, _ = batch.emissions.shape
    keep = 0 if kept is None else 1 + (kept.dtype == torch.int16)
    start = 0 if spans.bounds is None else 2 if kept is None else 1
    count = counters(batch.emissions.device, grid[0] * grid[1]) if add or start == 2 else None
    others = n_batch, grid[0], facts, *spans, kept, out, maps, count, add
    _walk_of(kind_of(batch), n_steps, grid, keep, start, best, add != 0)(*arguments_of(batch), *others)


def forward(
    batch: Batch, sides: int = 2, add: float = 0.0, best: bool = False, dtype: torch.dtype | None = None
) -> tuple[Tensor, Walked]:
    """Log-partition log Z, or log-likelihood of the tags, [B] or, scaled, their sum; and the messages of ``sides``."""
    x, a = batch.emissions, batch.transitions
    n_batch = x.shape[0]
    messages = a.new_empty(shape_of_messages(batch, sides))
    value = a.new_empty(n_batch + (add != 0), dtype=dtype)
    facts = a.new_empty((3, n_batch), dtype=torch.int32)
    walk(batch, (n_batch, 1, max(1, sides)), value, messages if sides else None, facts, best=best, add=add)
    return value[-1] if add else value, Walked(messages, facts)


def runs_of(batch: Batch) -> int:
    """Two where tags may be unknown: over all labellings, and over those that agree with the tags."""
    return 1 + (batch.tags is not None)


def shape_of_messages(batch: Batch, sides: int) -> tuple[int, ...]:
    """Of each run and side, for every step and label."""
    return (runs_of(batch), sides, *batch.emissions.shape)


def step_of(g: Tensor | None) -> int:
    """How far the weights of sequences are apart; zero where one is for all."""
    return 0 if g is None or g.dim() == 0 else g.stride(0)


@triton.jit
def weight_of(g_ptr, g_step, b, scale, TYPE: tl.constexpr):
    """The upstream gradient of sequence b, scaled; without any it is one."""
    weight = tl.full([], 1.0, TYPE)
    if g_ptr is not None:
        weight = tl.load(g_ptr + b * g_step).to(TYPE)
    return weight * scale


@remembered
def _posterior_of(kind: Kind, n_batch: int, n_steps: int) -> tuple[Launch, int, int]:
    """The kernel, how many steps a program has, and how many programs there are."""
    width = width_of(kind.labels)
    # enough steps per program that the sums of all programs, of L (L + 2) numbers each, stay small
    steps = max(STEPS_AT_LEAST[width], ceil_div(n_steps * n_batch, PROGRAMS[width]))
    programs = ceil_div(n_steps, steps)
    constants = kind.constants() | {"TREE": width <= TREE_LABELS}
    launch = Launch(_posterior_kernel, (n_batch, programs, 1), constants, POSTERIOR_WARPS[width])
    return launch, steps, n_batch * programs


def backward(batch: Batch, walked: Walked, g: Tensor | None, scale: float = 1.0) -> tuple[Tensor | None, ...]:
    """Gradients of emissions, transitions, start, end and pairwise, for sequences of weights ``scale`` g."""
    x, a, p = batch.emissions, batch.transitions, batch.pairwise
    n_batch, n_steps, n = x.shape
    posterior, steps, programs = _posterior_of(kind_of(batch), n_batch, n_steps)
    du = x.new_empty(x.shape)
    sums = a.new_empty(programs, n * (n + 2))
    dp = None if p is None else torch.zeros(p.shape, dtype=a.dtype, device=p.device)
    tree = n <= TREE_LABELS
    places = (counters(x.device, ceil_div(programs, 8)), a.new_empty(n * (n + 2))) if tree else (None, None)
    others = n_batch, walked.facts, walked.messages, g, step_of(g), scale, steps, du, sums, dp, *places
    posterior(*arguments_of(batch), *others)
    total = sums.sum(0) if places[1] is None else places[1]
    da, ds, de = total.split_with_sizes((n * n, n, n))
    return du, da.view(n, n), ds, de, dp


def decode(batch: Batch) -> Tensor:
    """Best labels [B, T]: -1 at masked steps, -2 where no labelling is allowed."""
    x = batch.emissions
    path = torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)
    walk(batch, (x.shape[0], 1, 1), path, torch.empty(x.shape, dtype=torch.int16, device=x.device), best=True)
    return path


def tag_facts(batch: Batch) -> tuple[Tensor, Tensor | None]:
    """First and last step that is there, and whether tags are unknown, int32 [3, B]; the tags' scores [B], float64."""
    x = batch.emissions
    facts = torch.empty((3, x.shape[0]), dtype=torch.int32, device=x.device)
    gold = None if batch.tags is None else torch.empty(x.shape[0], dtype=torch.float64, device=x.device)
    launch(_facts_kernel, (x.shape[0], 1, 1), batch, (facts, gold, x.shape[0]), {"STEPS": tags_at_once(x.shape[1])})
    return facts, gold
