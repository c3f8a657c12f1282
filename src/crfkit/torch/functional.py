"""Differentiable sums over the paths of chains.

All take a batch of potentials: emissions [B, T, L], transitions [L, L], start and end [L], optionally pairwise scores
of every step [B, T - 1, L, L] that are added to the transitions, and a mask [B, T]. Masked steps are left out and
their neighbours become neighbours. Half precision is computed in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from crfkit.torch import gpu
from crfkit.torch.chains import Batch, Chains, compute_dtype

__all__ = ["entropy", "log_likelihood", "log_partition", "marginals"]

# Autograd wants its tensors one by one: inputs are the first five of a batch, which are those that are differentiated.


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _batch(inputs: Any, mask: Tensor | None, tags: Tensor | None = None, ignore: int = -100) -> Batch:
    return Batch._make((*inputs, mask, tags, ignore))


def _cast(gradients: Any, inputs: Any) -> tuple[Tensor | None, ...]:
    """Gradients in their inputs' types and on their devices."""
    return tuple(None if x is None or g is None else g.to(x) for g, x in zip(gradients, inputs, strict=True))


def _dead(log_z: Tensor) -> None:
    if bool(torch.isneginf(log_z).any()):
        b = int(torch.isneginf(log_z).nonzero()[0, 0])
        raise ValueError(f"no labelling is allowed in sequence {b}")


class _Value(Function):
    """Log-partition log Z [B] or, with tags, their log-likelihood: one function, no graph but its own.

    Backward: posterior probabilities, less the tags' indicators, times the upstream gradient.
    """

    @staticmethod
    def forward(ctx: Any, backend: str, ignore: int, mask: Tensor | None, tags: Tensor | None, *inputs: Any) -> Tensor:
        batch = _batch(inputs, mask, tags, ignore)
        learns = any(ctx.needs_input_grad)
        ctx.backend, ctx.ignore = backend, ignore
        ctx.save_for_backward(*batch[:7])
        if backend == "triton":
            value, ctx.kept = gpu.forward(batch, learns)
            return value.to(batch.dtype)
        chains = Chains(batch)
        if learns:
            value, ctx.kept = chains.expectations(None)
            _dead(value)
        else:
            value = chains.log_z()
        if tags is not None:
            _dead(value)
            gold, ctx.path = _gold(chains, tags)
            value = gold - value
        return value.to(batch.emissions.device, batch.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (g,) = upstream
        batch = Batch._make((*ctx.saved_tensors, ctx.ignore))
        found: Any
        if torch.is_grad_enabled():
            found = _differentiable(batch, g, ctx.needs_input_grad[4:])
        elif ctx.backend == "triton":
            found = gpu.backward(ctx.kept, g)
        else:
            found = _weighted(ctx.kept, g if batch.tags is None else -g, batch)
            if batch.tags is not None:
                _add_gold(found, ctx.path, g)
        return (None, None, None, None, *_cast(found, batch[:5]))


def _differentiable(batch: Batch, g: Tensor, needed: Any) -> Any:
    """The gradients as functions that can be differentiated once more."""
    if batch.tags is None:
        return _apply(_Posterior, batch.mask, g, *batch[:5])
    found = list(_apply(_Posterior, batch.mask, -g, *batch[:5]))
    known = batch.tags != batch.ignore
    if batch.mask is not None:
        known = known | ~batch.mask
    if not bool(known.all()):
        inside = batch.emissions.masked_fill(~agrees(batch), -torch.inf)
        fits = _apply(_Posterior, batch.mask, g, inside, *batch[1:5])
        return [None if x is None else x + y for x, y in zip(found, fits, strict=True)]
    wanted = [k for k, need in enumerate(needed) if need]
    inputs: list[Any] = [batch[k] for k in wanted]
    gold = torch.autograd.grad(gold_score(batch), inputs, g, create_graph=True, allow_unused=True)
    for k, x in zip(wanted, gold, strict=True):
        found[k] = found[k] if x is None else found[k] + x
    return found


def _weighted(known: Any, g: Tensor, batch: Batch) -> tuple[Tensor | None, ...]:
    """Marginals times the sequences' upstream gradients; those known already are for weights of one."""
    w = g.detach().cpu()
    if w.numel() and bool((w == w[0]).all()):
        return tuple(None if x is None else x * w[0].to(x) for x in known)
    return Chains(batch).expectations(w)[1]


class _Posterior(Function):
    """Posterior expectations of all inputs' indicators, weighted: the gradient of sum_b g_b log Z_b.

    Backward, with v the upstream gradients and R(y) the score of y under v in the place of the potentials:
    g_b Cov(indicator, R) for the potentials, E[R] for g.
    """

    @staticmethod
    def forward(ctx: Any, mask: Tensor | None, g: Tensor, *inputs: Any) -> tuple[Tensor | None, ...]:
        log_z, found = Chains(_batch(inputs, mask)).expectations(g)
        _dead(log_z)
        ctx.save_for_backward(mask, g, *inputs)
        ctx.set_materialize_grads(False)
        return _cast(found, inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        mask, g, *inputs = ctx.saved_tensors
        v: list[Any] = [
            None if x is None else (torch.zeros_like(x) if u is None else u)
            for u, x in zip(upstream, inputs, strict=True)
        ]
        chains = Chains(_batch(inputs, mask))
        mean, found = chains.covariance(*chains.direction(*v), g)
        return (None, mean.to(g), *_cast(found, inputs))


class _Entropy(Function):
    """H [B] = log Z - E[score]. Its gradient is minus the covariance of the score with the indicators."""

    @staticmethod
    def forward(ctx: Any, mask: Tensor | None, *inputs: Any) -> Tensor:
        chains = Chains(_batch(inputs, mask))
        log_z = chains.log_z()
        _dead(log_z)
        mean, _ = chains.covariance(chains.unary, chains.pairs, None)
        ctx.save_for_backward(mask, *inputs)
        return (log_z - mean).clamp_min(0).to(inputs[0].device, chains.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        mask, *inputs = ctx.saved_tensors
        chains = Chains(_batch(inputs, mask))
        _, found = chains.covariance(chains.unary, chains.pairs, -upstream[0])
        return (None, *_cast(found, inputs))


class _Mean(Function):
    """E_p[score_q] [B], for the inputs of p and then those of q, which share a mask.

    Its gradient is the covariance of q's score with the indicators for p, p's marginals for q.
    """

    @staticmethod
    def forward(ctx: Any, mask: Tensor | None, *inputs: Any) -> Tensor:
        ctx.save_for_backward(mask, *inputs)
        chains = Chains(_batch(inputs[:5], mask))
        mean, _ = chains.covariance(*chains.direction(*inputs[5:]), None)
        return mean.to(inputs[0].device, chains.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        mask, *inputs = ctx.saved_tensors
        chains = Chains(_batch(inputs[:5], mask))
        _, moved = chains.covariance(*chains.direction(*inputs[5:]), upstream[0])
        found = chains.expectations(upstream[0].double().cpu())[1]
        return (None, *_cast(moved, inputs[:5]), *_cast(found, inputs[5:]))


def cross_entropy(p: Batch, q: Batch) -> Tensor:
    """H(p, q) = log Z_q - E_p[score_q] [B] of batches with the same mask; infinite where p may do what q forbids."""
    if p.pairwise is None and q.pairwise is not None:  # so that the expectations have a place for it
        p = p._replace(pairwise=torch.zeros_like(q.pairwise))
    if q.pairwise is None and p.pairwise is not None:
        q = q._replace(pairwise=torch.zeros_like(p.pairwise))
    scores = [None if x is None else x.masked_fill(torch.isneginf(x), 0) for x in q[:5]]
    value: Tensor = log_partition(*q[:6]) - _apply(_Mean, p.mask, *p[:5], *scores)
    forbidden = [None if x is None else torch.isneginf(x).to(x.dtype) for x in q[:5]]
    if any(x is not None and bool(x.any()) for x in forbidden):
        with torch.no_grad():
            broken = _apply(_Mean, p.mask, *p[:5], *forbidden) > 1e-12
        value = value.masked_fill(broken, torch.inf)
    return value


def edges(batch: Batch) -> tuple[Tensor, Tensor]:
    """P(label at step) [B, T, L], P(labels before and at step) [B, T - 1, L, L]; zero where masked. Differentiable."""
    n_batch, n_steps, n = batch.emissions.shape
    if batch.pairwise is None:
        batch = batch._replace(pairwise=batch.emissions.new_zeros(n_batch, max(0, n_steps - 1), n, n))
    ones = torch.ones(n_batch, dtype=batch.dtype, device=batch.emissions.device)
    found = _apply(_Posterior, batch.mask, ones, *batch[:5])
    return found[0], found[4]


def agrees(batch: Batch) -> Tensor:
    """Which labels [B, T, L] agree with the tags: all where these are unknown or masked."""
    assert batch.tags is not None
    y = batch.tags[..., None]
    fits = (y == torch.arange(batch.emissions.shape[2], device=y.device)) | (y == batch.ignore)
    return fits if batch.mask is None else fits | ~batch.mask[..., None]


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


def _gold(chains: Chains, tags: Tensor) -> tuple[Tensor, Any]:
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


def _add_gold(found: Any, path: Any, g: Tensor) -> None:
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
    transitions : tensor [L, L]
    start, end : tensors [L]
    pairwise : tensor [B, T - 1, L, L], optional
    mask : bool tensor [B, T], optional
    backend : {"auto", "core", "triton"}

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
    kind = gpu.choose(emissions, pairwise, backend)
    value: Tensor = _apply(_Value, kind, 0, mask, None, emissions, transitions, start, end, pairwise)
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

    A tag of ``ignore_index`` is unknown: then it is the log-probability of all labellings that agree with the others.

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> log_likelihood(z(1, 3, 2), z(2, 2), z(2), z(2), torch.tensor([[0, 1, 1]])).exp()
    tensor([0.1250])
    >>> log_likelihood(z(1, 3, 2), z(2, 2), z(2), z(2), torch.tensor([[0, -100, 1]])).exp()
    tensor([0.2500])
    """
    batch = Batch(emissions, transitions, start, end, pairwise, mask, tags, ignore_index)
    kind = gpu.choose(emissions, pairwise, backend)
    if kind == "core" or not gpu.takes_unknown(emissions):
        known = tags != ignore_index
        if not bool((known if mask is None else known | ~mask).all()):
            inside = emissions.masked_fill(~agrees(batch), -torch.inf)
            return log_partition(inside, *batch[1:6], backend) - log_partition(*batch[:6], backend)
        tags = tags if mask is None or kind == "core" else tags.masked_fill(~mask, 0)
    value: Tensor = _apply(_Value, kind, ignore_index, mask, tags, *batch[:5])
    return value


def marginals(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
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
    nodes: Tensor = _apply(_Posterior, mask, ones, emissions.to(dtype), transitions, start, end, pairwise)[0]
    return nodes


def entropy(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Entropy of every sequence's labellings, [B], in nats; differentiable.

    .. math:: H = \log Z - E[s(y)], \qquad \partial H / \partial \theta = -Cov(1_\theta, s)

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> entropy(z(1, 3, 2), z(2, 2), z(2), z(2)).exp().round()
    tensor([8.])
    """
    value: Tensor = _apply(_Entropy, mask, emissions, transitions, start, end, pairwise)
    return value
