"""Which kernels a batch goes to, and the calls of those written in Triton."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["FUSED_LABELS", "backward", "choose", "decode", "forward", "has_triton"]

#: Up to so many labels one program walks one sequence with the transitions on chip.
FUSED_LABELS = 128


@cache
def has_triton() -> bool:
    """Whether Triton is there to be used."""
    return importlib.util.find_spec("triton") is not None


def choose(emissions: Tensor, pairwise: Tensor | None, backend: str) -> str:
    """``"core"`` or ``"triton"`` for a batch.

    >>> import torch
    >>> choose(torch.zeros(1, 2, 3), None, "auto")
    'core'
    """
    if backend == "core" or (backend == "auto" and not (emissions.is_cuda and has_triton())):
        return "core"
    if backend not in ("auto", "triton"):
        raise ValueError(f"'backend' must be 'auto', 'core' or 'triton', got {backend!r}")
    if backend == "triton" and not has_triton():
        raise ValueError("'backend' is 'triton', but triton is not installed")
    n_labels = emissions.shape[2]
    fits = n_labels <= FUSED_LABELS or (pairwise is None and emissions.dtype != torch.float64)
    if not fits or emissions.shape[1] == 0 or emissions.shape[0] == 0:
        if backend == "triton" and not fits:
            raise ValueError(f"no triton kernel for {n_labels} labels with pairwise scores or in float64; use 'core'")
        return "core"
    return "triton"


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


def _plain(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.detach().to(dtype).contiguous()


def forward(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None,
    mask: Tensor | None,
    tags: Tensor | None,
    keep: bool = True,
) -> tuple[Tensor, Any]:
    """Log-partition log Z [B], or the log-likelihood of tags, and what backward needs if ``keep``."""
    from crfkit.torch import kernels

    wide = torch.float64 if emissions.dtype == torch.float64 else torch.float32
    x = emissions.detach()
    x = x if x.stride(2) == 1 else x.contiguous()
    a, s, e = _plain(transitions, wide), _plain(start, wide), _plain(end, wide)
    p = None if pairwise is None else pairwise.detach().contiguous()
    m = _bytes(mask)
    y = None if tags is None else tags.contiguous()
    run: Any = kernels.forward if x.shape[2] <= FUSED_LABELS else kernels.forward_wide
    value, saved = run(x, a, s, e, p, m, y, wide, keep)
    return value, (x, a, s, e, p, m, y, saved)


def backward(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None,
    mask: Tensor | None,
    tags: Tensor | None,
    saved: Any,
    g: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of the five inputs of ``sum_b g_b value_b``."""
    from crfkit.torch import kernels

    x, a, s, e, p, m, y, kept = saved
    run: Any = kernels.backward if x.shape[2] <= FUSED_LABELS else kernels.backward_wide
    return run(x, a, s, e, p, m, y, kept, g.detach().to(a.dtype).contiguous())


def decode(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, pairwise: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Best labels [B, T]; -1 at masked steps, -2 all over where no labelling is allowed."""
    from crfkit.torch import kernels

    wide = torch.float64 if emissions.dtype == torch.float64 else torch.float32
    x = emissions.detach()
    x = x if x.stride(2) == 1 else x.contiguous()
    p = None if pairwise is None else pairwise.detach().contiguous()
    return kernels.decode(x, _plain(transitions, wide), _plain(start, wide), _plain(end, wide), p, _bytes(mask), wide)
