"""Differentiable sums over the paths of chains.

All take a batch of potentials: emissions [B, T, L], transitions [L, L], start and end [L], optionally pairwise scores
of every step [B, T - 1, L, L] that are added to the transitions, and a mask [B, T]. Masked steps are skipped, and
the steps around them become neighbours. Half precision is computed in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from crfkit.torch import gpu, operators
from crfkit.torch.chains import Batch, agrees, compute_dtype

__all__ = ["entropy", "log_likelihood", "log_partition", "marginals"]

# Autograd wants its tensors one by one: inputs are the first five of a batch, which are those that are differentiated.


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _found(gradients: Any, inputs: Any) -> list[Tensor | None]:
    """What an operator gives for the inputs that are there."""
    return [None if x is None else g for g, x in zip(gradients, inputs, strict=True)]


class _Value(Function):
    """Log-partition log Z [B] or, with tags, their log-likelihood, or a multiple of its sum: one function, one graph.

    Backward: posterior probabilities, less the tags' indicators, times the upstream gradient. Those of a sum can be
    made in the forward pass, which leaves a product to the backward pass: Python is slow in its thread.
    """

    @staticmethod
    def forward(ctx: Any, how: Any, mask: Tensor | None, tags: Tensor | None, *inputs: Any) -> Tensor:
        backend, ignore, add, learning = how
        learns = learning and any(ctx.needs_input_grad)
        value: Tensor
        value, *kept = operators.value(*inputs, mask, tags, ignore, backend, learns, add)
        if learns:
            ctx.backend, ctx.ignore, ctx.scale = backend, ignore, add or 1.0
            ctx.early = add != 0 and gpu.makes_gradients_early(inputs, backend)
            if ctx.early:
                kept = operators.gradient(None, *inputs, mask, tags, ignore, backend, *kept, add)
            ctx.save_for_backward(*inputs, mask, tags, *kept)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (g,) = upstream
        saved = ctx.saved_tensors
        inputs, (mask, tags), kept = saved[:5], saved[5:7], saved[7:]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            found = _differentiable(
                Batch._make((*inputs, mask, tags, ctx.ignore)),
                g if g.dim() else (g * ctx.scale).expand(len(inputs[0])),
                ctx.needs_input_grad[3:],
                ctx.backend,
            )
        elif ctx.early:
            there = len(inputs) - (inputs[4] is None)
            found = [*torch._foreach_mul(kept[:there], g), None][:5]
        else:
            found = operators.gradient(g, *inputs, mask, tags, ctx.ignore, ctx.backend, *kept, ctx.scale)
        return (None, None, None, *_found(found, inputs))


def _differentiable(batch: Batch, g: Tensor, needed: Any, backend: str) -> Any:
    """The gradients as functions that can be differentiated once more."""
    if batch.tags is None:
        return _apply(_Posterior, backend, batch.mask, g, *batch[:5])
    found = list(_apply(_Posterior, backend, batch.mask, -g, *batch[:5]))
    if operators.unknown_tags(batch):
        inside = batch.emissions.masked_fill(~agrees(batch), -torch.inf)
        fits = _apply(_Posterior, backend, batch.mask, g, inside, *batch[1:5])
        return [None if x is None else x + y for x, y in zip(found, fits, strict=True)]
    wanted = [k for k, need in enumerate(needed) if need]
    inputs: list[Any] = [batch[k] for k in wanted]
    gold = torch.autograd.grad(gold_score(batch), inputs, g, create_graph=True, allow_unused=True)
    for k, x in zip(wanted, gold, strict=True):
        found[k] = found[k] if x is None else found[k] + x
    return found


class _Posterior(Function):
    """Posterior expectations of all inputs' indicators, weighted: the gradient of sum_b g_b log Z_b.

    Backward, with v the upstream gradients and R(y) the score of y under v in the place of the potentials:
    g_b Cov(indicator, R) for the potentials, E[R] for g.
    """

    @staticmethod
    def forward(ctx: Any, backend: str, mask: Tensor | None, g: Tensor, *inputs: Any) -> tuple[Tensor | None, ...]:
        _, *kept = operators.value(*inputs, mask, None, 0, backend, True, 0.0)
        ctx.save_for_backward(mask, g, *inputs)
        ctx.set_materialize_grads(False)
        return tuple(_found(operators.gradient(g, *inputs, mask, None, 0, backend, *kept, 1.0), inputs))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        mask, g, *inputs = ctx.saved_tensors
        v = [
            None if x is None else (torch.zeros_like(x) if u is None else u)
            for u, x in zip(upstream, inputs, strict=True)
        ]
        mean, *found = operators.covariance(*inputs, mask, *v, g)
        return (None, None, mean.to(g), *_found(found, inputs))


class _Entropy(Function):
    """H [B] = log Z - E[score]. Its gradient is minus the covariance of the score with the indicators."""

    @staticmethod
    def forward(ctx: Any, backend: str, mask: Tensor | None, *inputs: Any) -> Tensor:
        log_z, _, _ = operators.value(*inputs, mask, None, 0, backend, False, 0.0)
        mean, *_ = operators.covariance(*inputs, mask, *inputs, None)
        ctx.save_for_backward(mask, *inputs)
        return (log_z - mean).clamp_min(0)  # type: ignore[no-any-return]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        mask, *inputs = ctx.saved_tensors
        _, *found = operators.covariance(*inputs, mask, *inputs, -upstream[0])
        return (None, None, *_found(found, inputs))


class _Mean(Function):
    """E_p[score_q] [B], for the inputs of p and then those of q, which share a mask.

    Its gradient is the covariance of q's score with the indicators for p, p's marginals for q.
    """

    @staticmethod
    def forward(ctx: Any, backend: str, mask: Tensor | None, *inputs: Any) -> Tensor:
        ctx.save_for_backward(mask, *inputs)
        ctx.backend = backend
        mean: Tensor = operators.covariance(*inputs[:5], mask, *inputs[5:], None)[0]
        return mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        mask, *inputs = ctx.saved_tensors
        p, q = inputs[:5], inputs[5:]
        _, *moved = operators.covariance(*p, mask, *q, upstream[0])
        _, *kept = operators.value(*p, mask, None, 0, ctx.backend, True, 0.0)
        found = operators.gradient(upstream[0], *p, mask, None, 0, ctx.backend, *kept, 1.0)
        return (None, None, *_found(moved, p), *(None if x is None else g.to(x) for g, x in zip(found, q, strict=True)))


def cross_entropy(p: Batch, q: Batch) -> Tensor:
    """H(p, q) = log Z_q - E_p[score_q] [B] of batches with the same mask; infinite where p allows what q forbids."""
    if p.pairwise is None and q.pairwise is not None:  # so that the expectations have a place for it
        p = p._replace(pairwise=torch.zeros_like(q.pairwise))
    if q.pairwise is None and p.pairwise is not None:
        q = q._replace(pairwise=torch.zeros_like(p.pairwise))
    scores = [None if x is None else x.masked_fill(torch.isneginf(x), 0) for x in q[:5]]
    backend = gpu.choose(p.emissions, p.pairwise, "auto")
    value: Tensor = log_partition(*q[:6]) - _apply(_Mean, backend, p.mask, *p[:5], *scores)
    forbidden = [None if x is None else torch.isneginf(x).to(x.dtype) for x in q[:5]]
    if any(x is not None and bool(x.any()) for x in forbidden):
        with torch.no_grad():
            broken = _apply(_Mean, backend, p.mask, *p[:5], *forbidden) > 1e-12
        value = value.masked_fill(broken, torch.inf)
    return value


def edges(batch: Batch) -> tuple[Tensor, Tensor]:
    """P(label at step) [B, T, L], P(labels before and at step) [B, T - 1, L, L]; zero where masked. Differentiable."""
    n_batch, n_steps, n = batch.emissions.shape
    if batch.pairwise is None:
        batch = batch._replace(pairwise=batch.emissions.new_zeros(n_batch, max(0, n_steps - 1), n, n))
    ones = torch.ones(n_batch, dtype=batch.dtype, device=batch.emissions.device)
    backend = gpu.choose(batch.emissions, batch.pairwise, "auto")
    found = _apply(_Posterior, backend, batch.mask, ones, *batch[:5])
    return found[0], found[4]


def _tags_in(mask: Tensor | None, tags: Tensor) -> Tensor:
    return tags if mask is None else tags.masked_fill(~mask, 0)


def gold_score(batch: Batch) -> Tensor:
    """Scores [B] of the tags, from differentiable torch operations."""
    emissions, transitions, start, end, pairwise, mask, tags, _ = batch
    assert tags is not None
    n_batch, n_steps, n_labels = emissions.shape
    dtype = batch.dtype
    y = _tags_in(mask, tags)
    at = torch.arange(n_steps, device=emissions.device).expand(n_batch, n_steps)
    here = torch.ones_like(at, dtype=torch.bool) if mask is None else mask
    # the last step that is there before each step, -1 if none
    seen = torch.where(here, at, -1).cummax(1).values
    before = torch.cat([seen.new_full((n_batch, 1), -1), seen[:, :-1]], 1)
    previous = y.gather(1, before.clamp_min(0))
    unary = emissions.gather(2, y[..., None]).squeeze(2).to(dtype) * here
    steps = transitions.to(dtype)[previous, y]
    if pairwise is not None and n_steps > 1:
        flat = pairwise.reshape(n_batch, n_steps - 1, n_labels * n_labels)
        extra = flat.gather(2, (previous * n_labels + y)[:, 1:, None]).squeeze(2).to(dtype)
        steps = torch.cat([steps[:, :1], steps[:, 1:] + extra], 1)
    zero = steps.new_zeros(())
    steps = torch.where(here & (before >= 0), steps, zero)
    first = torch.where(here & (before < 0), start.to(dtype)[y], zero)
    last = y.gather(1, seen[:, -1:].clamp_min(0)).squeeze(1)
    final = torch.where(seen[:, -1] >= 0, end.to(dtype)[last], zero)
    score: Tensor = (unary + steps + first).sum(1) + final
    return score


def log_partition(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    r"""Log-partition log Z of every sequence.

    .. math:: \log Z = \log \sum_y \exp\Bigl(s_{y_0} + \sum_t u_{t, y_t} + \sum_t a_{y_t, y_{t+1}} + e_{y_{T-1}}\Bigr)

    Parameters
    ----------
    emissions : tensor [B, T, L]
        Scores u of the labels at each step.
    transitions : tensor [L, L]
        Scores a of label pairs.
    start, end : tensors [L]
        Scores s and e of the first and the last label.
    pairwise : tensor [B, T - 1, L, L], optional
        Scores of label pairs of each step, added to ``transitions``.
    mask : bool tensor [B, T], optional
        True for steps that count.
    backend : {"auto", "core", "triton"}
        Where to compute; ``"auto"`` takes Triton for tensors on a GPU.

    Returns
    -------
    tensor [B]
        Differentiable, twice on the CPU.

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> log_partition(z(1, 3, 2), z(2, 2), z(2), z(2)).exp().round()
    tensor([8.])
    """
    how = gpu.choose(emissions, pairwise, backend), 0, 0.0, torch.is_grad_enabled()
    value: Tensor = _apply(_Value, how, mask, None, emissions, transitions, start, end, pairwise)
    return value


def log_likelihood(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    tags: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
    backend: str = "auto",
    ignore_index: int = -100,
) -> Tensor:
    """Log-probability of the labels ``tags`` [B, T] of every sequence, [B].

    A tag of ``ignore_index`` is unknown: the result is then the log-probability of all labellings that fit the others.

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> log_likelihood(z(1, 3, 2), z(2, 2), z(2), z(2), torch.tensor([[0, 1, 1]])).exp()
    tensor([0.1250])
    >>> log_likelihood(z(1, 3, 2), z(2, 2), z(2), z(2), torch.tensor([[0, -100, 1]])).exp()
    tensor([0.2500])
    """
    return likelihood(Batch(emissions, transitions, start, end, pairwise, mask, tags, ignore_index), backend)


def likelihood(batch: Batch, backend: str, add: float = 0.0) -> Tensor:
    """Log-probability of the labels of every sequence, [B]; or, unless ``add`` is zero, ``add`` times its sum."""
    how = gpu.choose(batch.emissions, batch.pairwise, backend), batch.ignore, add, torch.is_grad_enabled()
    value: Tensor = _apply(_Value, how, batch.mask, batch.tags, *batch[:5])
    return value


def marginals(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """P(label at step) [B, T, L], zero at masked steps; differentiable through the covariance kernel.

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> marginals(z(1, 2, 2), z(2, 2), z(2), z(2))
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]])
    """
    dtype = compute_dtype(emissions)
    ones = torch.ones(emissions.shape[0], dtype=dtype, device=emissions.device)
    kind = gpu.choose(emissions, pairwise, backend)
    nodes: Tensor = _apply(_Posterior, kind, mask, ones, emissions.to(dtype), transitions, start, end, pairwise)[0]
    return nodes


def entropy(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    r"""Entropy of every sequence's labellings, [B], in nats; differentiable.

    A sequence without an allowed labelling is an error on the CPU; on a GPU, where nothing waits for the device, its
    entropy is NaN.

    .. math:: H = \log Z - E[s(y)], \qquad \partial H / \partial \theta = -Cov(1_\theta, s)

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> entropy(z(1, 3, 2), z(2, 2), z(2), z(2)).exp().round()
    tensor([8.])
    """
    kind = gpu.choose(emissions, pairwise, backend)
    value: Tensor = _apply(_Entropy, kind, mask, emissions, transitions, start, end, pairwise)
    return value
