"""The CRF layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from crfkit.chain import Constraints, Potentials, nbest
from crfkit.chain import sample as sample_paths
from crfkit.chain.beams import Beam
from crfkit.chain.inference import decode_flat
from crfkit.torch import gpu, operators
from crfkit.torch.chains import Batch, Chains, compute_dtype
from crfkit.torch.functional import cross_entropy, edges, entropy, likelihood, log_partition, marginals

__all__ = ["CRF", "TorchDecoder"]

Reduction = Literal["none", "sum", "mean", "token_mean"]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _eager(method: _Method) -> _Method:
    """Leaves a method out of the graphs of torch.compile."""
    disable: Any = torch.compiler.disable
    out: _Method = disable(method)
    return out


class CRF(nn.Module):
    r"""A conditional random field on top of a network.

    Takes the place of ``torchcrf.CRF`` (pytorch-crf 0.7.2): the same arguments, parameters, ``state_dict`` and results.

    .. math:: \log p(y | x) = s_{y_0} + \sum_t u_{t, y_t} + \sum_t a_{y_t, y_{t+1}} + e_{y_{T-1}} - \log Z

    Parameters
    ----------
    num_tags : int
        Number of labels L.
    batch_first : bool
        Whether tensors are [B, T, ...]; otherwise they are [T, B, ...].
    constraints : str or Constraints, optional
        What may follow what, in training and in decoding: rules, or the name of a chunking scheme (``"bio"``,
        ``"iob1"``, ``"bioes"``, ``"bilou"``) with ``labels``.
    labels : sequence of str, optional
        Names of the labels, for a chunking scheme.
    ignore_index : int
        A tag of this value is unknown: the likelihood sums over all labels there.
    class_weight : sequence of L floats, optional
        A sequence's log-likelihood is multiplied by the mean weight of its known tags.
    backend : {"auto", "core", "triton"}
        Kernels to use; by default Triton's for tensors on a GPU if it is installed, otherwise the native core.
    validate : bool
        Whether tags on a GPU are checked before they are used, which synchronises with it. Otherwise a sequence with a
        tag that is not a label has the likelihood NaN there. On the CPU tags are always checked.

    Attributes
    ----------
    start_transitions, end_transitions : parameters [L]
    transitions : parameter [L, L]
        Scores of label i followed by label j.

    Examples
    --------
    >>> import torch
    >>> crf = CRF(3, batch_first=True)
    >>> emissions = torch.randn(2, 4, 3, requires_grad=True)
    >>> tags = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0]])
    >>> mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    >>> loss = -crf(emissions, tags, mask)
    >>> loss.backward()
    >>> [len(path) for path in crf.decode(emissions, mask)]
    [4, 2]
    """

    start_transitions: nn.Parameter
    end_transitions: nn.Parameter
    transitions: nn.Parameter
    _rule_start: Tensor
    _rule_end: Tensor
    _rule_transitions: Tensor
    _class_weight: Tensor | None

    def __init__(
        self,
        num_tags: int,
        batch_first: bool = False,
        *,
        constraints: str | Constraints | None = None,
        labels: Sequence[str] | None = None,
        ignore_index: int = -100,
        class_weight: Sequence[float] | Tensor | None = None,
        backend: Literal["auto", "core", "triton"] = "auto",
        validate: bool = False,
    ) -> None:
        if num_tags <= 0:
            raise ValueError(f"invalid number of tags: {num_tags}")
        if backend not in ("auto", "core", "triton"):
            raise ValueError(f"'backend' of CRF must be 'auto', 'core' or 'triton', got {backend!r}")
        if ignore_index >= 0:
            raise ValueError(f"'ignore_index' of CRF must be negative, got {ignore_index}")
        super().__init__()
        self.num_tags = num_tags
        self.batch_first = batch_first
        self.ignore_index = ignore_index
        self.backend = backend
        self.validate = validate
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        if isinstance(constraints, str):
            if labels is None or len(labels) != num_tags:
                raise ValueError(f"'labels' of CRF must name the {num_tags} labels of scheme {constraints!r}")
            constraints = Constraints.from_scheme(labels, constraints)
        if constraints is not None and len(constraints.start) != num_tags:
            raise ValueError(f"'constraints' of CRF are for {len(constraints.start)} labels, not {num_tags}")
        self.constraints = constraints
        for name in ("start", "end", "transitions"):
            rule = None
            if constraints is not None:
                rule = torch.zeros(getattr(constraints, name).shape)
                rule[torch.from_numpy(~getattr(constraints, name))] = -torch.inf
            # not in the state_dict, whose keys are torchcrf's
            self.register_buffer(f"_rule_{name}", rule, persistent=False)
        weight = None if class_weight is None else torch.as_tensor(class_weight, dtype=torch.float32)
        if weight is not None and weight.shape != (num_tags,):
            raise ValueError(f"'class_weight' of CRF must have {num_tags} entries, got shape {tuple(weight.shape)}")
        self.register_buffer("_class_weight", weight, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters from U(-0.1, 0.1)."""
        for x in (self.start_transitions, self.end_transitions, self.transitions):
            nn.init.uniform_(x, -0.1, 0.1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_tags={self.num_tags})"

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, start and end, with the rules in them."""
        a, s, e = self.transitions, self.start_transitions, self.end_transitions
        if self.constraints is None:
            return a, s, e
        return a + self._rule_transitions, s + self._rule_start, e + self._rule_end

    def _batch(
        self, emissions: Tensor, mask: Tensor | None, pairwise: Tensor | None, tags: Tensor | None = None
    ) -> Batch:
        """What the functions take: batch first, all shapes checked."""
        if emissions.dim() != 3:
            raise ValueError(f"emissions must have dimension of 3, got {emissions.dim()}")
        if emissions.shape[2] != self.num_tags:
            raise ValueError(f"expected last dimension of emissions is {self.num_tags}, got {emissions.shape[2]}")
        for name, x in (("mask", mask), ("tags", tags)):
            if x is not None and x.shape[:2] != emissions.shape[:2]:
                raise ValueError(
                    f"the first two dimensions of emissions and {name} must match, "
                    f"got {tuple(emissions.shape[:2])} and {tuple(x.shape[:2])}"
                )
        emissions = self._turned(emissions)
        mask, pairwise, tags = (None if x is None else self._turned(x) for x in (mask, pairwise, tags))
        n_batch, n_steps, n = emissions.shape
        if pairwise is not None and pairwise.shape != (n_batch, max(0, n_steps - 1), n, n):
            raise ValueError(
                f"pairwise must hold {n} x {n} scores for {max(0, n_steps - 1)} steps of {n_batch} sequences, "
                f"got shape {tuple(pairwise.shape)} (batch first)"
            )
        return Batch(emissions, *self._scores(), pairwise, None if mask is None else mask.to(torch.bool), tags)

    def _turned(self, x: Tensor) -> Tensor:
        """Batch first from the caller's order, and back."""
        return x if self.batch_first else x.transpose(0, 1)

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        reduction: Reduction = "sum",
        *,
        weight: Tensor | None = None,
        pairwise: Tensor | None = None,
    ) -> Tensor:
        """Log-likelihood of the tags.

        Parameters
        ----------
        emissions : tensor [B, T, L] or [T, B, L]
            Scores of the labels at each step.
        tags : int tensor [B, T] or [T, B], or bool tensor [..., L]
            ``ignore_index`` stands for an unknown label; a bool tensor holds sets, any of whose labels may be
            right. The result is then the log-probability of all labellings that fit.
        mask : bool or uint8 tensor, optional
            True for steps that count. Masked steps, anywhere, are skipped: the steps around them become neighbours.
        reduction : {"sum", "mean", "token_mean", "none"}
            Over sequences; "token_mean" divides by the number of unmasked steps.
        weight : tensor [B], optional
            Factors of the sequences' log-likelihoods.
        pairwise : tensor [B, T - 1, L, L] or [T - 1, B, L, L], optional
            Scores added to the transitions, step by step.

        Returns
        -------
        tensor, scalar or [B]
        """
        return self._reduced(1.0, emissions, tags, mask, reduction, weight, pairwise)

    def loss(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        reduction: Reduction = "mean",
        *,
        weight: Tensor | None = None,
        pairwise: Tensor | None = None,
    ) -> Tensor:
        """Negative log-likelihood of the tags, to be minimised; arguments as for :meth:`forward`.

        On a GPU this takes fewer kernels than ``-crf(...)`` and its division by the number of sequences.

        Examples
        --------
        >>> import torch
        >>> crf, x, y = CRF(2, batch_first=True), torch.randn(3, 5, 2), torch.ones(3, 5, dtype=torch.long)
        >>> bool(torch.isclose(crf.loss(x, y), -crf(x, y) / 3))
        True
        """
        return self._reduced(-1.0, emissions, tags, mask, reduction, weight, pairwise)

    def _reduced(
        self,
        sign: float,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None,
        reduction: Reduction,
        weight: Tensor | None,
        pairwise: Tensor | None,
    ) -> Tensor:
        """Log-likelihoods times a sign, reduced."""
        if reduction not in ("none", "sum", "mean", "token_mean"):
            raise ValueError(f"invalid reduction: {reduction}")
        add = 0.0
        if reduction != "none" and weight is None and self._class_weight is None:
            add = sign
        n_batch = emissions.shape[not self.batch_first] if emissions.dim() == 3 else 0
        known = add != 0 and reduction == "mean" and n_batch > 0 and not torch.compiler.is_compiling()
        value, batch = self._log_likelihood(emissions, tags, mask, pairwise, sign / n_batch if known else add)
        if known:
            return value
        if self._class_weight is not None:
            value = value * self._tag_weights(batch)
        if weight is not None:
            if weight.shape != value.shape:
                raise ValueError(f"weight must have shape {tuple(value.shape)}, got {tuple(weight.shape)}")
            value = value * weight.to(value)
        if not add and sign < 0:
            value = -value
        if reduction == "none":
            return value
        total = value if add else value.sum()
        if reduction == "sum":
            return total
        if reduction == "mean":
            return total / len(batch.emissions)
        return total / (batch.emissions[..., 0].numel() if batch.mask is None else batch.mask.sum())

    def _log_likelihood(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None, pairwise: Tensor | None, add: float = 0.0
    ) -> tuple[Tensor, Batch]:
        """Log-likelihoods [B] or ``add`` times their sum, and the batch."""
        batch = self._batch(emissions, mask, pairwise, tags)
        x, y, m = batch.emissions, batch.tags, batch.mask
        assert y is not None
        if y.dtype == torch.bool:
            if y.shape != x.shape:
                raise ValueError(f"a bool tensor of tags must have the shape of emissions, got {tuple(tags.shape)}")
            outside = ~y if m is None else ~(y | ~m[..., None])
            fits = log_partition(x.masked_fill(outside, -torch.inf), *batch[1:6], self.backend)
            value = fits - log_partition(*batch[:6], self.backend)
            return value.sum() * add if add else value, batch
        if y.is_floating_point():
            raise ValueError(f"tags must be integers, or sets in a bool tensor, got {y.dtype}")
        y = y.long()
        batch = batch._replace(tags=y, ignore=self.ignore_index)
        if self.validate and y.is_cuda and not torch.compiler.is_compiling():
            operators.check_tags(batch)
        return likelihood(batch, self.backend, add), batch

    def _tag_weights(self, batch: Batch) -> Tensor:
        """Mean class weight of each sequence's known tags, [B]; one where none is known."""
        y, m = batch.tags, batch.mask
        assert self._class_weight is not None
        assert y is not None
        table = self._class_weight.to(batch.dtype)
        if y.dtype == torch.bool:
            count = y.sum(2)
            per_step = (y.to(batch.dtype) @ table) / count.clamp_min(1)
            here = (count > 0) & (count < self.num_tags)
        else:
            here = y != self.ignore_index
            per_step = table[y.masked_fill(~here if m is None else ~(here & m), 0)]
        if m is not None:
            here = here & m
        n = here.sum(1)
        return torch.where(n > 0, (per_step * here).sum(1) / n.clamp_min(1), torch.ones((), dtype=batch.dtype))

    def log_partition(self, emissions: Tensor, mask: Tensor | None = None, *, pairwise: Tensor | None = None) -> Tensor:
        """Log-partition log Z of every sequence, [B]."""
        return log_partition(*self._batch(emissions, mask, pairwise)[:6], self.backend)

    def marginals(self, emissions: Tensor, mask: Tensor | None = None, *, pairwise: Tensor | None = None) -> Tensor:
        """P(label at step), in the shape of emissions; zero at masked steps. Differentiable.

        Examples
        --------
        >>> import torch
        >>> crf = CRF(2, batch_first=True)
        >>> bool(torch.allclose(crf.marginals(torch.randn(3, 5, 2)).sum(-1), torch.ones(3, 5)))
        True
        """
        return self._turned(marginals(*self._batch(emissions, mask, pairwise)[:6], self.backend))

    def entropy(self, emissions: Tensor, mask: Tensor | None = None, *, pairwise: Tensor | None = None) -> Tensor:
        """Entropy of every sequence's labellings in nats, [B]. Differentiable. On a GPU, NaN if none is allowed."""
        return entropy(*self._batch(emissions, mask, pairwise)[:6], self.backend)

    def _pair(
        self,
        emissions: Tensor,
        other: Tensor,
        mask: Tensor | None,
        crf: CRF | None,
        pairwise: Tensor | None,
        other_pairwise: Tensor | None,
    ) -> tuple[Batch, Batch]:
        """The batches of this model and of the other."""
        for name, x in (("emissions", emissions), ("other", other)):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if not isinstance(crf, CRF | None):
            raise TypeError(f"crf must be a CRF of crfkit.torch or None, got {type(crf).__name__}")
        if other.shape != emissions.shape:
            raise ValueError(
                f"other must have the shape of emissions, {tuple(emissions.shape)}, got {tuple(other.shape)}"
            )
        crf = self if crf is None else crf
        if crf.batch_first != self.batch_first:
            raise ValueError("both models must have the same batch_first")
        return self._batch(emissions, mask, pairwise), crf._batch(other, mask, other_pairwise)

    @_eager
    def cross_entropy(
        self,
        emissions: Tensor,
        other: Tensor,
        mask: Tensor | None = None,
        *,
        crf: CRF | None = None,
        pairwise: Tensor | None = None,
        other_pairwise: Tensor | None = None,
    ) -> Tensor:
        r"""Cross-entropy H(p, q) in nats of every sequence, [B]. Differentiable.

        .. math::

            H(p, q) = -\sum_y p(y) \log q(y) = \log Z_q - E_p[s_q(y)]

        where p has ``emissions`` and this layer's transitions, q has ``other``, in the same shape, and the transitions
        of ``crf``, which is this layer by default. It is infinite where p allows what q forbids.

        Examples
        --------
        >>> import torch
        >>> crf, x = CRF(2, batch_first=True), torch.randn(3, 5, 2)
        >>> bool(torch.allclose(crf.cross_entropy(x, x), crf.entropy(x), atol=1e-5))
        True
        """
        return cross_entropy(*self._pair(emissions, other, mask, crf, pairwise, other_pairwise))

    @_eager
    def kl(
        self,
        emissions: Tensor,
        other: Tensor,
        mask: Tensor | None = None,
        *,
        crf: CRF | None = None,
        pairwise: Tensor | None = None,
        other_pairwise: Tensor | None = None,
    ) -> Tensor:
        r"""Kullback-Leibler divergence of every sequence, [B], for p and q as in :meth:`cross_entropy`. Differentiable.

        .. math::

            KL(p \,\|\, q) = \sum_y p(y) \log \frac{p(y)}{q(y)} = H(p, q) - H(p)

        Examples
        --------
        >>> import torch
        >>> student, teacher = CRF(2, batch_first=True), CRF(2, batch_first=True)
        >>> x, y = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
        >>> bool((student.kl(x, y, crf=teacher) > 0).all())
        True
        """
        p, q = self._pair(emissions, other, mask, crf, pairwise, other_pairwise)
        return cross_entropy(p, q) - entropy(*p[:6])

    @_eager
    @torch.no_grad()
    def count(self, emissions: Tensor, mask: Tensor | None = None, *, pairwise: Tensor | None = None) -> Tensor:
        """How many labellings of every sequence are allowed, [B], in float64.

        Examples
        --------
        >>> import torch
        >>> CRF(3, batch_first=True).count(torch.zeros(1, 4, 3))
        tensor([81.], dtype=torch.float64)
        """
        batch = self._batch(emissions, mask, pairwise)
        free: Any = [None if x is None else torch.where(torch.isneginf(x), x, 0.0).double() for x in batch[:5]]
        found = log_partition(free[0], free[1], free[2], free[3], free[4], batch.mask).exp()
        return torch.where(found < 2.0**48, found.round(), found)

    @_eager
    def gumbel_crf(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        *,
        temperature: float = 1.0,
        hard: bool = True,
        pairwise: Tensor | None = None,
    ) -> Tensor:
        r"""A sample of every sequence whose gradient flows through a relaxation (Fu and others, 2020).

        From the last step to the first, a label is drawn given the one after it, with noise
        :math:`g \sim \text{Gumbel}(0, 1)`:

        .. math::

            \ell_t(i) = \log p(y_t = i \mid y_{t+1}) + g_t(i), \qquad
            y_t = \arg\max_i \ell_t(i), \qquad z_t = \text{softmax}(\ell_t / \tau)

        Parameters
        ----------
        emissions, mask, pairwise
            As for :meth:`forward`.
        temperature : float
            The smaller, the closer the relaxations are to the samples.
        hard : bool
            Whether the values are the samples, which are exact, and only the gradient is that of the relaxations
            (straight-through); otherwise the values, too, are the relaxations.

        Returns
        -------
        tensor in the shape of emissions
            One-hot rows with ``hard``; zero at masked steps. The noise is from torch's generator.

        Examples
        --------
        >>> import torch
        >>> crf, x = CRF(3, batch_first=True), torch.randn(2, 5, 3, requires_grad=True)
        >>> z = crf.gumbel_crf(x, temperature=0.5)
        >>> z.sum(-1).tolist() == torch.ones(2, 5).tolist()
        True
        >>> (z * torch.randn(2, 5, 3)).sum().backward()
        """
        if not temperature > 0:
            raise ValueError(f"'temperature' must be > 0, got {temperature!r}")
        batch = self._batch(emissions, mask, pairwise)
        nodes, pairs = edges(batch)
        tiny = torch.finfo(nodes.dtype).tiny
        noise = -torch.empty_like(nodes).exponential_().clamp_min(tiny).log()
        here = torch.ones_like(nodes[..., :1], dtype=torch.bool) if batch.mask is None else batch.mask[..., None]
        steps: list[Tensor] = []
        begun = torch.zeros_like(here[:, 0])
        given = nodes[:, 0]  # of the step before the one at hand, with the label there
        for t in reversed(range(nodes.shape[1])):
            chances = torch.where(begun, given, nodes[:, t])
            scores = torch.where(chances > 0, chances.clamp_min(tiny).log() + noise[:, t], -torch.inf)
            label = scores.argmax(-1, keepdim=True)
            soft = torch.softmax(scores / temperature, -1)
            value = torch.zeros_like(soft).scatter(-1, label, 1.0) + (soft - soft.detach()) if hard else soft
            steps.append(torch.where(here[:, t], value, 0.0))
            if t > 0:
                column = pairs[:, t - 1].gather(2, label[:, None].expand(-1, pairs.shape[2], -1)).squeeze(2)
                given = torch.where(here[:, t], column, given)
                begun = begun | here[:, t]
        return self._turned(torch.stack(steps[::-1], 1))

    def span_probability(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *, pairwise: Tensor | None = None
    ) -> Tensor:
        """P(the labels are as in ``tags`` wherever these are not ``ignore_index``), [B]. Differentiable.

        For the probability of a chunk, give the label after it a set that does not continue it (a bool tensor).

        Examples
        --------
        >>> import torch
        >>> crf = CRF(2, batch_first=True)
        >>> _ = torch.nn.init.zeros_(crf.transitions), torch.nn.init.zeros_(crf.start_transitions)
        >>> _ = torch.nn.init.zeros_(crf.end_transitions)
        >>> crf.span_probability(torch.zeros(1, 4, 2), torch.tensor([[-100, 1, 1, -100]])).detach()
        tensor([0.2500])
        """
        return self._log_likelihood(emissions, tags, mask, pairwise)[0].exp()

    def _chains(self, batch: Batch) -> tuple[Potentials, Chains]:
        chains = Chains(batch)
        table = chains.pairs if chains.per_step else chains.pairs[0]
        return Potentials(chains.unary, table, offsets=chains.ragged.offsets), chains

    @_eager
    @torch.no_grad()
    def decode(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        *,
        pairwise: Tensor | None = None,
        beam: Beam | str | None = None,
    ) -> list[list[int]]:
        """The best tags of every sequence; masked steps are left out. A ``beam`` is as in :func:`crfkit.chain.decode`.

        Returns
        -------
        list of lists of int
        """
        batch = self._batch(emissions, mask, pairwise)
        if beam is None and gpu.choose(batch.emissions, batch.pairwise, self.backend) == "triton":
            rows: list[list[int]] = gpu.decode(batch).tolist()
            for b, row in enumerate(rows):
                if row and row[0] == -2:
                    raise ValueError(f"no labelling is allowed in sequence {b}")
            return rows if mask is None else [[y for y in row if y >= 0] for row in rows]
        p, chains = self._chains(batch)
        flat = decode_flat(p, -1, beam).tolist()
        return [flat[a:b] for a, b in itertools.pairwise(chains.ragged.offsets.tolist())]

    @_eager
    @torch.no_grad()
    def nbest(
        self, emissions: Tensor, mask: Tensor | None = None, k: int = 5, *, pairwise: Tensor | None = None
    ) -> list[list[tuple[list[int], float]]]:
        """The ``k`` best taggings of every sequence, best first, each with its probability."""
        p, chains = self._chains(self._batch(emissions, mask, pairwise))
        log_z = chains.log_z().numpy()
        return [
            [(y, float(np.exp(s - z))) for y, s in zip(best.paths.tolist(), best.scores, strict=True)]
            for best, z in zip(nbest(p, k), log_z, strict=True)
        ]

    @_eager
    @torch.no_grad()
    def sample(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        n: int = 1,
        *,
        random_state: int | None = None,
        pairwise: Tensor | None = None,
    ) -> list[Tensor]:
        """``n`` taggings of every sequence drawn from the model: int64 tensors [n, steps].

        ``random_state`` is drawn from torch's generator if it is not given.
        """
        p, _ = self._chains(self._batch(emissions, mask, pairwise))
        seed = int(torch.randint(2**31 - 1, ())) if random_state is None else random_state
        return [torch.from_numpy(x.astype(np.int64)) for x in sample_paths(p, n, rng=seed)]


class TorchDecoder(nn.Module):
    """Decoding in torch operations alone, for ``torch.export`` and ONNX.

    Takes emissions [B, T, L] and gives tags [B, T] and scores [B]. The number of steps is fixed in the exported graph,
    which holds T small operations; elsewhere :meth:`CRF.decode` is faster. Masked steps must be at the end; their tags
    are -1.

    Parameters
    ----------
    crf : CRF
        The layer whose weights are used.

    Examples
    --------
    >>> import torch
    >>> crf = CRF(3, batch_first=True)
    >>> x = torch.randn(2, 4, 3)
    >>> TorchDecoder(crf)(x)[0].tolist() == crf.decode(x)
    True
    """

    a: Tensor
    s: Tensor
    e: Tensor

    def __init__(self, crf: CRF) -> None:
        super().__init__()
        for name, x in zip(("a", "s", "e"), crf._scores(), strict=True):
            self.register_buffer(name, x.detach().clone())

    def forward(self, emissions: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Tags [B, T] and their scores [B]."""
        x = emissions.to(compute_dtype(emissions))
        score = self.s + x[:, 0]
        back = []
        n_steps = x.shape[1]
        labels = torch.arange(x.shape[2], device=x.device).expand_as(score)
        for t in range(1, n_steps):  # recursion: viterbi
            best, index = (score[:, :, None] + self.a).max(1)
            new = best + x[:, t]
            if mask is not None:
                here = mask[:, t, None]
                new = torch.where(here, new, score)
                index = torch.where(here, index, labels)
            score = new
            back.append(index)
        top, y = (score + self.e).max(1)
        path = [y]
        for index in reversed(back):
            y = index.gather(1, y[:, None]).squeeze(1)
            path.append(y)
        tags = torch.stack(path[::-1], 1)
        return (tags if mask is None else tags.masked_fill(~mask, -1)), top
