"""Launches of Triton kernels without the work that Triton does for every launch again.

Which machine code belongs to a call depends on the types of its arguments, on their alignment, on the integers and on
the constants. Triton looks at each of them at every launch; here a call that looks like an earlier one finds its
machine code by one look-up. The look-ups are what a small batch waits for: everything that follows from the shapes is
worked out once, and kept in a :class:`Launch`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

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
_counters: dict[Any, Tensor] = {}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def remembered(function: _Function) -> _Function:
    """A function that keeps its results, for as many different arguments as may come again."""
    found: Any = lru_cache(_MOST_CALLS)(function)
    return found  # type: ignore[no-any-return]


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()


def width_of(n_labels: int) -> int:
    """Labels padded to a power of two."""
    return max(16, power_of_2(n_labels))


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


class Launch:
    """A kernel with its grid and its constants, which are its last parameters; called with all other arguments."""

    def __init__(self, kernel: Any, grid: tuple[int, int, int], constants: dict[str, Any], warps: int) -> None:
        self._kernel, self._grid, self._constants, self._warps = kernel, grid, constants, warps
        self._fixed = tuple(constants.values())
        self._ready: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> None:
        values = [x.data_ptr() if isinstance(x, Tensor) else x for x in arguments]
        kinds = [(x.dtype, v & 15) if isinstance(x, Tensor) else x for x, v in zip(arguments, values, strict=True)]
        key = tuple(kinds)
        found = self._ready.get(key)
        if found is None or found[1] != torch.cuda.current_device():
            compiled = self._kernel[self._grid](*arguments, **self._constants, num_warps=self._warps)
            if isinstance(self._kernel, JITFunction):  # not in the interpreter
                if len(self._ready) >= _MOST_CALLS:
                    self._ready.clear()
                self._ready[key] = compiled, torch.cuda.current_device()
            return
        compiled, device = found
        stream = driver.active.get_current_stream(device)
        hooks: tuple[Any, ...] = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        metadata = None
        if hooks[0] is None or not (hooks[0].calls or hooks[1].calls):  # which is a question for the one who profiles
            hooks = None, None
        else:
            metadata = compiled.launch_metadata(self._grid, stream, *arguments, *self._fixed)
        code = compiled.function, compiled.packed_metadata, metadata
        compiled.run(*self._grid, stream, *code, *hooks, *values, *self._fixed)


@remembered
def _launch_of(kernel: Any, grid: tuple[int, int, int], constants: tuple[tuple[str, Any], ...], warps: int) -> Launch:
    return Launch(kernel, grid, dict(constants), warps)


def run(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], constants: Any, warps: int) -> None:
    """Launches a kernel; the constants are in the order of its parameters, after all arguments."""
    _launch_of(kernel, grid, tuple(constants.items()), warps)(*arguments)


class Kind(NamedTuple):
    """What kernels are compiled for, of a batch."""

    labels: int
    mask: bool
    tags: bool
    pairs: bool
    wide: bool  # whether in double precision

    def constants(self) -> dict[str, Any]:
        """The first ones of a kernel whose first arguments are those of a batch."""
        flags = {"HAS_MASK": self.mask, "HAS_TAGS": self.tags, "HAS_PAIRS": self.pairs}
        return {"WIDTH": width_of(self.labels), **flags, "WIDE": tl.float64 if self.wide else tl.float32}


def kind_of(batch: Batch) -> Kind:
    """Of a batch as the kernels take it: transitions are in the type that is computed in."""
    x, a, _, _, pairwise, mask, tags, _ = batch
    return Kind(x.shape[2], mask is not None, tags is not None, pairwise is not None, a.dtype == torch.float64)


def arguments_of(batch: Batch) -> tuple[Any, ...]:
    """The first arguments of a kernel that takes a batch."""
    x = batch.emissions
    _, n_steps, n_labels = x.shape
    return x, x.stride(0), x.stride(1), *batch[1:], n_steps, n_labels


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    batch: Batch,
    others: tuple[Any, ...],
    constants: dict[str, Any] | None = None,
    warps: int = 4,
) -> None:
    """Runs a kernel whose first arguments are those of a batch."""
    every = kind_of(batch).constants() | (constants or {})
    run(kernel, grid, (*arguments_of(batch), *others), every, warps)
