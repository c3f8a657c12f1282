"""Launches of Triton kernels without the work that Triton does for every launch again.

Which machine code belongs to a call depends on the types of its arguments, on their alignment, on the integers and on
the constants. Triton looks at each of them at every launch; here a call that looks like an earlier one finds its
machine code by one look-up.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from crfkit.torch.chains import Batch

__all__: list[str] = []

LARGEST_POWER = 64
_MOST_CALLS = 4096
_ready: dict[Any, Any] = {}
_counters: dict[Any, Tensor] = {}


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()


@cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; one on a CPU, where Triton's interpreter runs program by program."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def counters(device: torch.device, n: int) -> Tensor:
    """At least ``n`` counters at zero, to be left at zero: kernels of one stream follow each other and share them.

    Captured kernels may run beside others when they are replayed: they have counters of their own.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(n, dtype=torch.int32, device=device)
    key = device.index, driver.active.get_current_stream(device.index)
    found = _counters.get(key)
    if found is None or found.shape[0] < n:
        found = _counters[key] = torch.zeros(max(1024, power_of_2(n)), dtype=torch.int32, device=device)
    return found


def run(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], constants: Any, warps: int) -> None:
    """Launches a kernel; the constants are in the order of its parameters, after all arguments."""
    fixed = tuple(constants.values())
    kinds = [(x.dtype, x.data_ptr() & 15) if isinstance(x, Tensor) else x for x in arguments]
    key = (kernel, warps, fixed, *kinds)
    found = _ready.get(key)
    if found is not None and found[1] == torch.cuda.current_device():
        compiled, device = found
        stream = driver.active.get_current_stream(device)
        hooks: tuple[Any, ...] = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        metadata = None
        if hooks[0] is None or not (hooks[0].calls or hooks[1].calls):  # which is a question for the one who profiles
            hooks = None, None
        else:
            metadata = compiled.launch_metadata(grid, stream, *arguments, *fixed)
        code = compiled.function, compiled.packed_metadata, metadata
        compiled.run(*grid, stream, *code, *hooks, *arguments, *fixed)
        return
    compiled = kernel[grid](*arguments, **constants, num_warps=warps)
    if isinstance(kernel, JITFunction):  # not in the interpreter
        if len(_ready) >= _MOST_CALLS:
            _ready.clear()
        _ready[key] = compiled, torch.cuda.current_device()


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    batch: Batch,
    others: tuple[Any, ...],
    constants: dict[str, Any] | None = None,
    warps: int = 4,
) -> None:
    """Runs a kernel whose first arguments are those of a batch."""
    x = batch.emissions
    every = {
        "WIDTH": width_of(x),
        "HAS_MASK": batch.mask is not None,
        "HAS_TAGS": batch.tags is not None,
        "HAS_PAIRS": batch.pairwise is not None,
        "WIDE": tl.float64 if batch.dtype == torch.float64 else tl.float32,
    }
    every |= constants or {}
    arguments = (x, x.stride(0), x.stride(1), *batch[1:], x.shape[1], x.shape[2], *others)
    run(kernel, grid, arguments, every, warps)


def width_of(emissions: Tensor) -> int:
    """Labels padded to a power of two."""
    return max(16, power_of_2(emissions.shape[2]))
