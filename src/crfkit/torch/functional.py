"""Differentiable sums over the paths of chains.

All take a batch of potentials: emissions [B, T, L], transitions [L, L], start and end [L], optionally pairwise scores
of every step [B, T - 1, L, L] that are added to the transitions, and a mask [B, T]. Masked steps are left out and
their neighbours become neighbours. Half precision is computed in float32.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from crfkit.torch import gpu
from crfkit.torch.chains import Chains, compute_dtype

__all__ = ["entropy", "log_likelihood", "log_partition", "marginals"]

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]


def _cast(gradients: tuple[Tensor | None, ...], inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Gradients in their inputs' types and on their devices."""
    return tuple(None if x is None or g is None else g.to(x) for g, x in zip(gradients, inputs, strict=True))


def _dead(log_z: Tensor) -> None:
    if bool(torch.isneginf(log_z).any()):
        b = int(torch.isneginf(log_z).nonzero()[0, 0])
        raise ValueError(f"no labelling is allowed in sequence {b}")


class _LogPartition(Function):
    """Log-partition log Z [B]. Backward: posterior probabilities times the upstream gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        pairwise: Tensor | None,
        mask: Tensor | None,
        backend: str,
    ) -> Tensor:
        inputs: Inputs = (emissions, transitions, start, end, pairwise)
        ctx.backend, ctx.known, ctx.saved = backend, None, ()
        if backend == "triton":
            log_z, ctx.saved = gpu.forward(*inputs, mask, None, any(ctx.needs_input_grad))
        elif any(ctx.needs_input_grad):
            log_z, found = Chains(*inputs, mask).expectations(None)
            _dead(log_z)
            ctx.known = found
        else:
            log_z = Chains(*inputs, mask).log_z()
        ctx.save_for_backward(*inputs, mask)
        return log_z.to(emissions.device, compute_dtype(emissions))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (g,) = upstream
        *inputs, mask = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*_Posterior.apply(*inputs, g, mask), None, None)
        if ctx.backend == "triton":
            found = gpu.backward(ctx.saved, g)
        else:
            found = _weighted(ctx.known, g, inputs, mask)
        return (*_cast(found, tuple(inputs)), None, None)


def _weighted(known: Any, g: Tensor, inputs: Any, mask: Tensor | None) -> tuple[Tensor | None, ...]:
    """Marginals times the sequences' upstream gradients; those known already are for weights of one."""
    w = g.detach().cpu()
    if w.numel() and bool((w == w[0]).all()):
        return tuple(None if x is None else x * w[0].to(x) for x in known.each())
    return Chains(*inputs, mask).expectations(w)[1].each()


class _Posterior(Function):
    """Posterior expectations of all inputs' indicators, weighted: the gradient of sum_b g_b log Z_b.

    Backward, with v the upstream gradients and R(y) the score of y under v in the place of the potentials:
    g_b Cov(indicator, R) for the potentials, E[R] for g.
    """

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        pairwise: Tensor | None,
        g: Tensor,
        mask: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        inputs: Inputs = (emissions, transitions, start, end, pairwise)
        log_z, found = Chains(*inputs, mask).expectations(g)
        _dead(log_z)
        ctx.save_for_backward(*inputs, g, mask)
        ctx.set_materialize_grads(False)
        return _cast(found.each(), inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        *inputs, g, mask = ctx.saved_tensors
        v = [
            None if x is None else (torch.zeros_like(x) if u is None else u)
            for u, x in zip(upstream, inputs, strict=True)
        ]
        chains = Chains(*inputs, mask)
        mean, found = chains.covariance(*chains.direction(*cast(Any, v)), g)
        return (*_cast(found.each(), tuple(inputs)), mean.to(g), None)


class _Entropy(Function):
    """H [B] = log Z - E[score]. Its gradient is minus the covariance of the score with the indicators."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        pairwise: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        inputs: Inputs = (emissions, transitions, start, end, pairwise)
        chains = Chains(*inputs, mask)
        log_z = chains.log_z()
        _dead(log_z)
        mean, _ = chains.covariance(chains.unary, chains.pairs, None)
        ctx.save_for_backward(*inputs, mask)
        return (log_z - mean).clamp_min(0).to(emissions.device, compute_dtype(emissions))

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        *inputs, mask = ctx.saved_tensors
        chains = Chains(*inputs, mask)
        _, found = chains.covariance(chains.unary, chains.pairs, -upstream[0])
        return (*_cast(found.each(), tuple(inputs)), None)


def _tags_in(mask: Tensor | None, tags: Tensor) -> Tensor:
    return tags if mask is None else tags.masked_fill(~mask, 0)


def gold_score(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    pairwise: Tensor | None,
    mask: Tensor | None,
    tags: Tensor,
) -> Tensor:
    """Scores [B] of the given labels, from differentiable torch operations."""
    n_batch, n_steps, n_labels = emissions.shape
    dtype = compute_dtype(emissions)
    y = _tags_in(mask, tags)
    device = emissions.device
    at = torch.arange(n_steps, device=device).expand(n_batch, n_steps)
    here = torch.ones_like(at, dtype=torch.bool) if mask is None else mask
    unary = emissions.gather(2, y[..., None]).squeeze(2).to(dtype) * here
    # the last step that is there before each step, -1 if none
    seen = torch.where(here, at, -1).cummax(1).values
    before = torch.cat([seen.new_full((n_batch, 1), -1), seen[:, :-1]], 1)
    linked = here & (before >= 0)
    previous = y.gather(1, before.clamp_min(0))
    steps = transitions.to(dtype)[previous, y]
    if pairwise is not None and n_steps > 1:
        flat = pairwise.reshape(n_batch, n_steps - 1, n_labels * n_labels)
        extra = flat.gather(2, (previous * n_labels + y)[:, 1:, None]).squeeze(2).to(dtype)
        steps = torch.cat([steps[:, :1], steps[:, 1:] + extra], 1)
    steps = torch.where(linked, steps, steps.new_zeros(()))
    first = here & (before < 0)
    ends = torch.where(first, start.to(dtype)[y], steps.new_zeros(()))
    last = seen[:, -1:].clamp_min(0)
    final = torch.where(seen[:, -1] >= 0, end.to(dtype)[y.gather(1, last).squeeze(1)], steps.new_zeros(()))
    return (unary + steps + ends).sum(1) + final


class _LogLikelihood(Function):
    """log p(tags) [B] in one function: no graph but its own."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        pairwise: Tensor | None,
        mask: Tensor | None,
        tags: Tensor,
        backend: str,
    ) -> Tensor:
        inputs: Inputs = (emissions, transitions, start, end, pairwise)
        ctx.backend, ctx.known, ctx.saved = backend, None, ()
        ctx.save_for_backward(*inputs, mask, tags)
        if backend == "triton":
            value, ctx.saved = gpu.forward(*inputs, mask, tags, any(ctx.needs_input_grad))
            return value.to(compute_dtype(emissions))
        chains = Chains(*inputs, mask)
        if any(ctx.needs_input_grad):
            log_z, ctx.known = chains.expectations(None)
            _dead(log_z)
        else:
            log_z = chains.log_z()
        gold, ctx.path = _gold(chains, tags)
        return (gold - log_z).to(emissions.device, compute_dtype(emissions))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (g,) = upstream
        *inputs, mask, tags = ctx.saved_tensors
        if torch.is_grad_enabled():
            gold = gold_score(*inputs, mask, tags)
            log_z = cast(Tensor, _LogPartition.apply(*inputs, mask, ctx.backend))
            wanted = [x for x, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
            found = iter(torch.autograd.grad(gold - log_z, wanted, g, create_graph=True))
            return (*(next(found) if need else None for need in ctx.needs_input_grad[:5]), None, None, None)
        if ctx.backend == "triton":
            found_all = gpu.backward(ctx.saved, g)
        else:
            found_all = _weighted(ctx.known, -g, inputs, mask)
            _add_gold(found_all, ctx.path, inputs, g)
        return (*_cast(found_all, tuple(inputs)), None, None, None)


def _gold(chains: Chains, tags: Tensor) -> tuple[Tensor, Any]:
    """Scores [B] of the labels in float64; and where they stand: steps, labels, edges, sequences."""
    x = chains.ragged
    y = x.take(tags.cpu()).to(torch.int64)
    n = chains.n_labels
    lengths = torch.from_numpy(x.offsets[1:] - x.offsets[:-1])
    seq = torch.repeat_interleave(torch.arange(x.n_batch), lengths)
    unary = torch.from_numpy(chains.unary)
    score = torch.zeros(x.n_batch, dtype=torch.float64)
    score.index_add_(0, seq, unary.gather(1, y[:, None]).squeeze(1).double())
    inner = torch.ones(len(y), dtype=torch.bool)
    inner[x.first] = False
    to = inner.nonzero().squeeze(1)
    pair = y[to - 1] * n + y[to]
    flat = torch.from_numpy(chains.pairs).reshape(-1)
    edge = pair + torch.arange(len(to)) * n * n if chains.per_step else pair
    score.index_add_(0, seq[to], flat[edge].double())
    return score, (x, y, seq, to, pair)


def _add_gold(found: tuple[Tensor | None, ...], path: Any, inputs: Any, g: Tensor) -> None:
    """Adds the labels' own part to the gradient, in place."""
    emissions, transitions, start, end, pairwise = found
    assert emissions is not None
    assert transitions is not None
    assert start is not None
    assert end is not None
    x, y, seq, to, pair = path
    w = g.detach().cpu().to(emissions.dtype)[seq]
    n = emissions.shape[2]
    place = torch.arange(len(y)) if x.index is None else x.index
    flat = emissions.view(-1)
    flat.index_add_(0, place * n + y, w)
    transitions.view(-1).index_add_(0, pair, w[to])
    start.index_add_(0, y[x.first], w[x.first])
    end.index_add_(0, y[x.last], w[x.last])
    if pairwise is not None:
        pairwise.view(-1).index_add_(0, x.edge_index * n * n + pair, w[to])


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

    .. math:: \log Z = \log \sum_y \exp\Big(s_{y_0} + \sum_t u_{t, y_t} + \sum_t a_{y_t, y_{t+1}} + e_{y_{T-1}}\Big)

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
    return cast(Tensor, _LogPartition.apply(emissions, transitions, start, end, pairwise, mask, kind))


def log_likelihood(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    tags: Tensor,
    pairwise: Tensor | None = None,
    mask: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Log-probability of the labels ``tags`` [B, T] of every sequence, [B].

    Examples
    --------
    >>> import torch
    >>> z = torch.zeros
    >>> log_likelihood(z(1, 3, 2), z(2, 2), z(2), z(2), torch.tensor([[0, 1, 1]])).exp()
    tensor([0.1250])
    """
    kind = gpu.choose(emissions, pairwise, backend)
    y = tags if kind == "core" else _tags_in(mask, tags)
    return cast(Tensor, _LogLikelihood.apply(emissions, transitions, start, end, pairwise, mask, y, kind))


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
    out = _Posterior.apply(emissions.to(dtype), transitions, start, end, pairwise, ones, mask)
    return cast(Tensor, out[0])


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
    return cast(Tensor, _Entropy.apply(emissions, transitions, start, end, pairwise, mask))
