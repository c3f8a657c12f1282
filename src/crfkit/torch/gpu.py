"""Which kernels a batch goes to, and the calls of those written in Triton."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from crfkit.torch.chains import Batch

__all__: list[str] = []

#: Up to this many labels one program walks one sequence with the transitions on chip.
FUSED_LABELS = 128
#: Up to this many labels, the gradients of a batch are one launch.
TREE_LABELS = 32


_TRITON = importlib.util.find_spec("triton") is not None


def has_triton() -> bool:
    """Whether Triton is installed."""
    return _TRITON


def require_gpu(x: Tensor) -> None:
    """Raises if kernels were asked for and the scores are on the CPU, where only Triton's interpreter runs them."""
    if x.device.type == "cpu":
        from triton import knobs

        if not knobs.runtime.interpret:
            raise ValueError(
                "'backend' is 'triton', which needs scores on a GPU, but these are on the cpu: move them, or use 'auto'"
            )


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
    if backend == "triton":
        if not has_triton():
            raise ValueError("'backend' is 'triton', but triton is not installed")
        require_gpu(emissions)
    n_labels = emissions.shape[2]
    fits = n_labels <= FUSED_LABELS or (pairwise is None and emissions.dtype != torch.float64)
    if not fits or emissions.shape[1] == 0 or emissions.shape[0] == 0:
        if backend == "triton" and not fits:
            raise ValueError(f"no triton kernel for {n_labels} labels with pairwise scores or in float64; use 'core'")
        return "core"
    return "triton"


@cache
def _modules() -> tuple[Any, ...]:
    """The modules of kernels, which need Triton: up to 128 labels, long sequences, many labels, best paths."""
    from crfkit.torch import kernels, scan, wide, wide_best

    return kernels, scan, wide, wide_best


def _module(x: Tensor, decoding: bool = False) -> Any:
    """The kernels for a batch: for many labels, for few long sequences, or one program per sequence."""
    kernels, scan, wide, wide_best = _modules()
    if x.shape[2] > FUSED_LABELS:
        return wide_best if decoding else wide
    return scan if scan.span_of(x, decoding) else kernels


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()


def _prepared(batch: Batch) -> Batch:
    """As the kernels take it: transitions, start and end in the type that is computed in, a mask of bytes."""
    x, a, start, end, pairwise, mask, tags, ignore = batch
    dtype = batch.dtype
    return Batch(
        x if x.stride(2) == 1 else x.contiguous(),
        _as(a, dtype),
        _as(start, dtype),
        _as(end, dtype),
        None if pairwise is None else pairwise.contiguous(),
        None if mask is None else mask.contiguous().view(torch.uint8),
        None if tags is None else _as(tags, torch.int64),
        ignore,
    )


def shape_of_messages(batch: Batch, keep: bool) -> tuple[int, ...]:
    """Of what :func:`forward` keeps."""
    found: tuple[int, ...] = _module(batch.emissions).shape_of_messages(batch, 2 if keep else 0)
    return found


def forward(batch: Batch, keep: bool = True, add: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition log Z [B] or log-likelihood of tags; and, if ``keep``, messages and facts for :func:`backward`.

    With ``add`` the values are added up and multiplied by it, by the kernel that makes them where it can.
    """
    batch = _prepared(batch)
    fused = 0.0 if batch.dtype == torch.float64 else add  # numbers go to kernels in float32
    value, (messages, facts) = _module(batch.emissions).forward(batch, 2 if keep else 0, fused)
    value = value.sum() * add if add and not fused else value
    return value if value.dtype == batch.dtype else value.to(batch.dtype), messages, facts


def makes_gradients_early(inputs: Sequence[Tensor | None], backend: str) -> bool:
    """Whether the gradients of a sum are made in the forward pass: where kernels are short, and nothing is lost by it.

    In half precision a gradient may be lost if its upstream gradient, which may be large for this reason, comes later.
    """
    single = all(x is None or x.dtype == torch.float32 for x in inputs)
    emissions = inputs[0]
    return backend == "triton" and single and emissions is not None and emissions.shape[2] <= TREE_LABELS


def backward(
    batch: Batch, messages: Tensor, facts: Tensor, g: Tensor | None, scale: float = 1.0
) -> tuple[Tensor | None, ...]:
    """Gradients of emissions, transitions, start, end and pairwise of ``scale sum_b g_b value_b``."""
    kernels, _, wide, _ = _modules()
    batch = _prepared(batch)
    if g is not None and g.dtype != batch.dtype:
        g = g.to(batch.dtype)
    if batch.dtype == torch.float64:
        g, scale = batch.emissions.new_ones(()) * scale if g is None else g * scale, 1.0
    module = wide if batch.emissions.shape[2] > FUSED_LABELS else kernels
    found: tuple[Tensor | None, ...] = module.backward(batch, kernels.Walked(messages, facts), g, scale)
    return found


def decode(batch: Batch) -> Tensor:
    """Best labels [B, T]; -1 at masked steps, -2 all over where no labelling is allowed."""
    found: Tensor = _module(batch.emissions, decoding=True).decode(_prepared(batch))
    return found


def has_covariance(emissions: Tensor) -> bool:
    """Whether :func:`covariance` serves a batch: it needs kernels in double precision."""
    n_batch, n_steps, n_labels = emissions.shape
    there = emissions.is_cuda and has_triton() and n_batch * n_steps > 0
    return there and n_labels <= FUSED_LABELS and emissions.dtype != torch.float64  # differences would lose digits


def covariance(batch: Batch, direction: tuple[Any, ...], weight: Tensor | None) -> tuple[Tensor, Any]:
    r"""E[R] [B] of the score R under a direction r, and the weighted covariances of R with all inputs' indicators.

    Both are derivatives along r, of log Z and of the expectations: central differences in double precision, whose
    relative error is about 1e-7.
    """
    r = [
        None if x is None else torch.where(torch.isneginf(x), 0.0, v.detach().double())
        for x, v in zip(batch[:5], direction, strict=True)
    ]
    reach = torch.stack([x.abs().amax() for x in r if x is not None and x.numel()]).amax()
    step = 1e-5 / reach.clamp_min(1.0)
    ones = torch.ones(len(batch.emissions), dtype=torch.float64, device=batch.emissions.device)
    g = ones if weight is None else weight.detach().double()
    sides = []
    for way in (step, -step):
        moved = [
            None if x is None or v is None else x.detach().double() + way * v for x, v in zip(batch[:5], r, strict=True)
        ]
        there = Batch._make((*moved, batch.mask, None, 0))
        value, messages, facts = forward(there)
        sides.append((value, backward(there, messages, facts, g)))
    (above, found), (below, other) = sides
    double = 2 * step
    return (above - below) / double, [
        None if x is None or y is None else (x - y) / double for x, y in zip(found, other, strict=True)
    ]
