"""The layer's operators: what autograd, the compiler and exported programs call.

========================  ==========================================================================================
``crfkit::value``         log Z of every sequence or, with tags, their log-likelihoods, or ``add`` times their sum; and
                          what the gradient needs
``crfkit::gradient``      the gradients of scale sum_b g_b value_b, from what ``value`` kept; no g is a g of ones
``crfkit::covariance``    E[R] of an additive score R, and its weighted covariances with all inputs' indicators
========================  ==========================================================================================

Each has an implementation for tensors, which the native core or the Triton kernels serve, and one that tells the
compiler the shapes. In eager mode the implementation is called directly: a way through torch's dispatcher takes as long
as the kernels of a small batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crfkit.torch import gpu
from crfkit.torch.chains import Batch, Chains, Gradients, agrees, compute_dtype

__all__: list[str] = []

_BATCH = (
    "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor? pairwise, Tensor? mask, Tensor? tags, "
    "int ignore"
)
_SCORES = "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor? pairwise"
_FIVE = "(Tensor, Tensor, Tensor, Tensor, Tensor)"
_torch: Any = torch  # whose library is not typed
_LIBRARY = _torch.library.Library("crfkit", "FRAGMENT")
_PLAIN = (Tensor, torch.nn.Parameter)


class Operator:
    """An operator of torch; in eager mode its implementation."""

    def __init__(self, name: str, schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> None:
        def filled(*arguments: Any) -> tuple[Tensor, ...]:
            """Results as torch takes them: with an empty tensor in the place of None."""
            return tuple(arguments[1].new_empty(0) if x is None else x for x in run(*arguments))

        _LIBRARY.define(f"{name}{schema}")
        _LIBRARY.impl(name, filled, "CompositeExplicitAutograd")
        torch.library.register_fake(f"crfkit::{name}", shapes, lib=_LIBRARY)
        self.run, self.operator = run, getattr(torch.ops.crfkit, name).default

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or any(type(x) not in _PLAIN for x in arguments[:2] if x is not None):
            return self.operator(*arguments)
        return self.run(*arguments)


def like_inputs(gradients: Any, inputs: Any) -> list[Tensor | None]:
    """Gradients in their inputs' types and on their devices; None where there is no input."""
    return [
        None if x is None or g is None else g if g.dtype == x.dtype and g.device == x.device else g.to(x)
        for g, x in zip(gradients, inputs, strict=True)
    ]


def fail_if_dead(log_z: Tensor) -> None:
    """Raises if a sequence has no labelling."""
    if bool(torch.isneginf(log_z).any()):
        b = int(torch.isneginf(log_z).nonzero()[0, 0])
        raise ValueError(f"no labelling is allowed in sequence {b}")


def check_tags(batch: Batch) -> None:
    """Raises if a tag that is there is no label."""
    y, n = batch.tags, batch.emissions.shape[2]
    assert y is not None
    wrong = (y != batch.ignore) & ((y < 0) | (y >= n))
    if batch.mask is not None:
        wrong = wrong & batch.mask
    if bool(wrong.any()):
        b, t = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"tags must be in 0..{n - 1} or ignore_index ({batch.ignore}), got {int(y[b, t])} "
            f"in sequence {b} at step {t}"
        )


def unknown_tags(batch: Batch) -> bool:
    """Whether some tags that are there are unknown."""
    assert batch.tags is not None
    known = batch.tags != batch.ignore
    return not bool((known if batch.mask is None else known | ~batch.mask).all())


def _flat(gradients: Gradients) -> Tensor:
    return torch.cat([x.reshape(-1) for x in gradients if x is not None])


def _unflat(flat: Tensor, batch: Batch) -> Gradients:
    """The gradients that lie in a row, as copies."""
    shapes = [None if x is None else x.shape for x in batch[:5]]
    parts = iter(_torch.split(flat, [s.numel() for s in shapes if s is not None]))
    return Gradients(*(None if s is None else next(parts).clone().view(s) for s in shapes))  # type: ignore[arg-type]


def _inside(batch: Batch) -> Batch:
    """Over the labellings that agree with the tags."""
    inside = batch.emissions.masked_fill(~agrees(batch), -torch.inf)
    return batch._replace(emissions=inside, tags=None)


def _core_value(batch: Batch, keep: bool) -> tuple[Tensor, Tensor]:
    """Values [B] and, flat, their sum's gradient if it is to be kept."""
    if batch.tags is not None:
        check_tags(batch)
    chains = Chains(batch)
    nothing = torch.empty(0, dtype=batch.dtype)
    value, found = chains.expectations(None) if keep else (chains.log_z(), None)
    kept = nothing if found is None else _flat(found)
    if keep or batch.tags is not None:
        fail_if_dead(value)
    if batch.tags is None:
        return value, kept
    if unknown_tags(batch):
        fits, more = _core_value(_inside(batch), keep)
        return fits - value, more - kept
    gold, path = gold_of(chains, batch.tags)
    if found is not None:
        found = Gradients(*(None if x is None else -x for x in found))  # type: ignore[arg-type]
        add_gold(found, path, torch.ones_like(value))
        kept = _flat(found)
    return gold - value, kept


def _core_gradient(g: Tensor, batch: Batch, kept: Tensor) -> Any:
    """Gradients of sum_b g_b value_b; what is kept is that for weights of one."""
    w = g.detach().cpu()
    w = w if w.dim() else w.expand(len(batch.emissions))
    if not w.numel() or bool((w == w[0]).all()):
        return _unflat(kept * w[0].to(kept) if w.numel() else kept, batch)
    if batch.tags is None:
        return Chains(batch).expectations(w)[1]
    chains = Chains(batch)
    found = chains.expectations(-w)[1]
    if unknown_tags(batch):
        more = Chains(_inside(batch)).expectations(w)[1]
        return [None if x is None or y is None else x + y for x, y in zip(found, more, strict=True)]
    add_gold(found, gold_of(chains, batch.tags)[1], w)
    return found


def _value(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = Batch._make(arguments[:8])
    backend, keep, add = arguments[8:]
    if backend == "triton":
        return gpu.forward(batch, keep, add)
    device = batch.emissions.device
    value, kept = _core_value(batch, keep)
    value = value.sum() * add if add else value
    return value.to(device, batch.dtype), kept, torch.empty(0, dtype=torch.int32, device=device)


def _value_shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = Batch._make(arguments[:8])
    backend, keep, add = arguments[8:]
    x = batch.emissions
    if backend == "triton":
        messages = x.new_empty(gpu.shape_of_messages(batch, keep), dtype=batch.dtype)
        facts = x.new_empty((3, x.shape[0]), dtype=torch.int32)
    else:
        size = sum(y.numel() for y in batch[:5] if y is not None) if keep else 0
        messages = x.new_empty(size, dtype=batch.dtype, device="cpu")
        facts = x.new_empty(0, dtype=torch.int32)
    return x.new_empty(() if add else x.shape[0], dtype=batch.dtype), messages, facts


def _gradient(g: Tensor | None, *arguments: Any) -> list[Tensor | None]:
    batch = Batch._make(arguments[:8])
    backend, messages, facts, scale = arguments[8:]
    if backend == "triton":
        found = gpu.backward(batch, messages, facts, g, scale)
    else:
        ones = batch.emissions.new_ones(()) if g is None else g
        found = _core_gradient(ones * scale, batch, messages)
    return like_inputs(found, batch[:5])


def _gradient_shapes(g: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    inputs = arguments[:5]
    return tuple(
        inputs[0].new_empty(0) if x is None else torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in inputs
    )


def _covariance(*arguments: Any) -> tuple[Tensor | None, ...]:
    scores, mask, direction, weight = arguments[:5], arguments[5], arguments[6:11], arguments[11]
    batch = Batch._make((*scores, mask, None, 0))
    if gpu.has_covariance(scores[0]):
        mean, found = gpu.covariance(batch, direction, weight)
        return mean.to(batch.dtype), *like_inputs(found, scores)
    chains = Chains(batch)
    fail_if_dead(chains.log_z())
    mean, found = chains.covariance(*chains.direction(*direction), weight)
    return mean.to(scores[0].device, chains.dtype), *like_inputs(found, scores)


def _covariance_shapes(*arguments: Any) -> tuple[Tensor, ...]:
    x = arguments[0]
    dtype = compute_dtype(x)
    return x.new_empty(x.shape[0], dtype=dtype), *_gradient_shapes(x, *arguments[:5])


def gold_of(chains: Chains, tags: Tensor) -> tuple[Tensor, Any]:
    """Scores [B] of the tags in float64; and where they are: steps, labels, edges, sequences."""
    x = chains.ragged
    y = x.take(tags.cpu()).to(torch.int64)
    n = chains.n_labels
    lengths = torch.from_numpy(np.diff(x.offsets))
    seq = torch.repeat_interleave(torch.arange(x.n_batch), lengths)
    score = torch.zeros(x.n_batch, dtype=torch.float64)
    score.index_add_(0, seq, torch.from_numpy(chains.unary).gather(1, y[:, None]).squeeze(1).double())
    to = x.inner
    pair = y[to - 1] * n + y[to]
    edge = pair + torch.arange(len(to)) * n * n if chains.per_step else pair
    score.index_add_(0, seq[to], torch.from_numpy(chains.pairs).reshape(-1)[edge].double())
    return score, (x, y, seq, pair)


def add_gold(found: Any, path: Any, g: Tensor) -> None:
    """Adds the tags' own part to the gradient, in place."""
    emissions, transitions, start, end, pairwise = found
    x, y, seq, pair = path
    w = g.detach().cpu().to(emissions.dtype)[seq]
    n = emissions.shape[2]
    place = torch.arange(len(y)) if x.index is None else x.index
    emissions.view(-1).index_add_(0, place * n + y, w)
    transitions.view(-1).index_add_(0, pair, w[x.inner])
    start.index_add_(0, y[x.first], w[x.first])
    end.index_add_(0, y[x.last], w[x.last])
    if pairwise is not None:
        pairwise.view(-1).index_add_(0, x.edge_index * n * n + pair, w[x.inner])


value = Operator(
    "value", f"({_BATCH}, str backend, bool keep, float add) -> (Tensor, Tensor, Tensor)", _value, _value_shapes
)
gradient = Operator(
    "gradient",
    f"(Tensor? g, {_BATCH}, str backend, Tensor messages, Tensor facts, float scale) -> {_FIVE}",
    _gradient,
    _gradient_shapes,
)
covariance = Operator(
    "covariance",
    f"({_SCORES}, Tensor? mask, Tensor r_emissions, Tensor r_transitions, Tensor r_start, Tensor r_end, "
    "Tensor? r_pairwise, Tensor? weight) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _covariance,
    _covariance_shapes,
)
