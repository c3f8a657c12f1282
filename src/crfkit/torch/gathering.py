"""Sums of rows of a table, which rows being given: no atomics, so the same bits in every run."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from crfkit.torch.launching import ceil_div, power_of_2, run

__all__: list[str] = []


@triton.jit
def _gather_kernel(
    rows_ptr, index_ptr, bounds_ptr, value_ptr, out_ptr, n_bags, n_columns,
    HAS_VALUES: tl.constexpr, WIDE: tl.constexpr, BAGS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    # out[b] = sum of value[k] rows[index[k]] over k in bounds[b] .. bounds[b + 1]
    bag = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    begin = tl.load(bounds_ptr + bag, mask=bag < n_bags, other=0)
    end = tl.load(bounds_ptr + bag + 1, mask=bag < n_bags, other=0)
    j = tl.arange(0, WIDTH)
    total = tl.zeros([BAGS, WIDTH], WIDE)
    i_next = tl.load(index_ptr + begin, mask=begin < end, other=0)
    for k in range(tl.max(end - begin, axis=0)):
        at = begin + k
        there = at < end
        i = i_next.to(tl.int64)
        i_next = tl.load(index_ptr + at + 1, mask=at + 1 < end, other=0)  # is on its way while this row is
        tile = there[:, None] & (j < n_columns)[None, :]
        row = tl.load(rows_ptr + i[:, None] * n_columns + j[None, :], mask=tile, other=0.0).to(WIDE)
        if HAS_VALUES:
            row = row * tl.load(value_ptr + at, mask=there, other=0.0)[:, None]
        total += row
    place = bag.to(tl.int64)[:, None] * n_columns + j[None, :]
    tl.store(out_ptr + place, total, mask=(bag < n_bags)[:, None] & (j < n_columns)[None, :])


def gather(rows: Tensor, index: Tensor, bounds: Tensor, values: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Sums [bags, L] of the rows [., L] with these numbers, weighted by values if there are any."""
    n_bags, n = len(bounds) - 1, rows.shape[1]
    out = torch.empty((n_bags, n), dtype=dtype, device=rows.device)
    width = max(16, power_of_2(n))
    bags = max(1, 1024 // width)
    wide = tl.float64 if dtype == torch.float64 else tl.float32
    constants = {"HAS_VALUES": values is not None, "WIDE": wide, "BAGS": bags, "WIDTH": width}
    run(_gather_kernel, (ceil_div(n_bags, bags), 1, 1), (rows, index, bounds, values, out, n_bags, n), constants, 4)
    return out
