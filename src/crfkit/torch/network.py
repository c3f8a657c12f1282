"""Networks that give the log-factors of a chain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__: list[str] = []

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU}


def _layers(sizes: Sequence[int], activation: str, dropout: float, bias: bool) -> nn.Sequential:
    """Linear layers with an activation between them; only the last may lack a bias.

    Weights are drawn from U(-b, b) with b = sqrt(6 / (inputs + outputs)), biases are zero; a single layer, which is a
    linear log-factor, begins at zero.
    """
    parts: list[nn.Module] = []
    for k, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        layer = nn.Linear(n_in, n_out, bias=bias or not last)
        bound = 0.0 if len(sizes) == 2 else math.sqrt(6 / (n_in + n_out))
        nn.init.uniform_(layer.weight, -bound, bound)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        parts.append(layer)
        if not last:
            parts.append(ACTIVATIONS[activation]())
            if dropout > 0:
                parts.append(nn.Dropout(dropout))
    return nn.Sequential(*parts)


class WindowFactors(nn.Module):
    r"""Unary log-factors from separate networks for the inputs at offsets -w .. w.

    .. math:: a_u(y_k) = \sum_{d = -w}^{w} 1_{0 \le k + d < K}\, a^{(d)}(x_{k+d})_{y_k}

    Only the network of offset 0 has a bias in its last layer.

    Parameters
    ----------
    n_in, n_labels : int
    window : int
        w.
    hidden : sequence of int
        Sizes of the hidden layers; none makes the log-factors linear.
    activation : {"tanh", "sigmoid", "relu"}
    dropout : float
        Of the hidden units.

    Examples
    --------
    >>> import torch
    >>> WindowFactors(5, 3, window=1, hidden=(8,))(torch.randn(2, 4, 5)).shape
    torch.Size([2, 4, 3])
    """

    def __init__(
        self,
        n_in: int,
        n_labels: int,
        window: int = 0,
        hidden: Sequence[int] = (),
        activation: str = "tanh",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [n_in, *hidden, n_labels]
        self.offsets = list(range(-window, window + 1))
        self.nets = nn.ModuleList(_layers(sizes, activation, dropout, bias=d == 0) for d in self.offsets)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Scores [B, T, L] from inputs [B, T, D]; masked steps are no neighbours."""
        n_steps = x.shape[1]
        total: Any = 0
        for d, net in zip(self.offsets, self.nets, strict=True):
            y = net(x)
            if d != 0:
                if mask is not None:
                    y = y * mask[..., None]
                if abs(d) >= n_steps:
                    y = y * 0
                elif d < 0:  # x at k + d counts for k: to the right
                    y = functional.pad(y[:, :d], (0, 0, -d, 0))
                else:
                    y = functional.pad(y[:, d:], (0, 0, 0, d))
            total = total + y
        assert isinstance(total, Tensor)
        return total


class PairFactors(nn.Module):
    """Pairwise log-factors from the input of the later step, [B, T - 1, L, L].

    Examples
    --------
    >>> import torch
    >>> PairFactors(5, 3)(torch.randn(2, 4, 5)).shape
    torch.Size([2, 3, 3, 3])
    """

    def __init__(self, n_in: int, n_labels: int, hidden: Sequence[int] = (), activation: str = "tanh") -> None:
        super().__init__()
        self.n_labels = n_labels
        self.net = _layers([n_in, *hidden, n_labels * n_labels], activation, 0.0, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every step but the first."""
        y: Tensor = self.net(x[:, 1:])
        return y.reshape(*y.shape[:2], self.n_labels, self.n_labels)


class TokenEmbedding(nn.Module):
    """Vectors of tokens: of the word, of its affixes, and the maximum of a convolution over its characters.

    Parameters
    ----------
    sizes : sequence of int
        Vocabulary of every table of words and affixes.
    width : int
        Size of the words' vectors.
    affix_width : int
        Size of the affixes' vectors.
    n_characters, character_width, character_filters : int
        Characters and sizes; no characters, no convolution.

    Examples
    --------
    >>> import torch
    >>> embed = TokenEmbedding([10, 7], 6, 2, 20, 4, 5)
    >>> ids = torch.ones(2, 3, 2, dtype=torch.long)
    >>> embed(ids, torch.ones(2, 3, 8, dtype=torch.long)).shape, embed.width
    (torch.Size([2, 3, 13]), 13)
    """

    def __init__(
        self,
        sizes: Sequence[int],
        width: int,
        affix_width: int,
        n_characters: int = 0,
        character_width: int = 0,
        character_filters: int = 0,
    ) -> None:
        super().__init__()
        widths = [width, *[affix_width] * (len(sizes) - 1)]
        self.tables = nn.ModuleList(nn.Embedding(n, w, padding_idx=0) for n, w in zip(sizes, widths, strict=True))
        self.width = sum(widths)
        self.characters: nn.Embedding | None = None
        if n_characters:
            self.characters = nn.Embedding(n_characters, character_width, padding_idx=0)
            self.convolution = nn.Conv1d(character_width, character_filters, 3, padding=1)
            self.width += character_filters

    def forward(self, ids: Tensor, characters: Tensor | None = None) -> Tensor:
        """Vectors [B, T, width] of ids [B, T, tables] and characters [B, T, C]."""
        parts = [table(ids[..., k]) for k, table in enumerate(self.tables)]
        if self.characters is not None:
            assert characters is not None
            n_batch, n_steps, n = characters.shape
            y = self.characters(characters.reshape(-1, n)).transpose(1, 2)
            y = functional.relu(self.convolution(y)) * (characters > 0).reshape(-1, 1, n)  # whatever the padding
            parts.append(y.amax(2).reshape(n_batch, n_steps, -1))
        return torch.cat(parts, -1)


class Shape(NamedTuple):
    """The parameters of a :class:`NeuralCRF` that shape its network."""

    encoder: str | None
    encoder_size: int
    encoder_layers: int
    kernel_size: int
    hidden: Sequence[int]
    window: int
    activation: str
    dropout: float
    input_dropout: float | None
    pairwise: str


class ChainNetwork(nn.Module):
    """Input, encoder, log-factors: everything of a neural CRF but the chain itself.

    Parameters
    ----------
    n_in : int
        Size of the dense inputs, or number of attributes if ``sparse``.
    n_labels : int
    how : Shape
    embedding : TokenEmbedding, optional
        For token ids.
    sparse : int
        If positive, inputs are sparse and this is the size of the vectors that their attributes are embedded in.
    """

    def __init__(
        self, n_in: int, n_labels: int, how: Shape, embedding: TokenEmbedding | None = None, sparse: int = 0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bag = nn.EmbeddingBag(n_in, sparse, mode="sum") if sparse else None
        if self.bag is not None:
            nn.init.normal_(self.bag.weight, std=0.1)
        width = embedding.width if embedding is not None else sparse or n_in
        self.kind, size, n_layers = how.encoder, how.encoder_size, how.encoder_layers
        self.input_dropout = nn.Dropout(how.dropout if how.input_dropout is None else how.input_dropout)
        self.dropout = nn.Dropout(how.dropout)
        self.encoder: nn.Module | None = None
        if self.kind == "lstm":
            between = how.dropout if n_layers > 1 else 0.0
            self.encoder = nn.LSTM(width, size, n_layers, batch_first=True, bidirectional=True, dropout=between)
            width = 2 * size
        elif self.kind == "conv":
            layers: list[nn.Module] = []
            for _ in range(n_layers):
                layers.append(nn.Conv1d(width, size, how.kernel_size, padding=how.kernel_size // 2))
                width = size
            self.encoder = nn.ModuleList(layers)
        self.factors = WindowFactors(width, n_labels, how.window, how.hidden, how.activation, how.dropout)
        self.pairs = PairFactors(width, n_labels, (), how.activation) if how.pairwise == "input" else None

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Emissions [B, T, L] and pairwise scores or None, from a batch, whose mask may be left out if all is there."""
        mask = batch.get("mask")
        if self.embedding is not None:
            x = self.embedding(batch["ids"], batch.get("characters"))
        elif self.bag is not None:
            assert mask is not None
            flat = self.bag(batch["attr"], batch["ptr"], per_sample_weights=batch["value"])
            x = flat.new_zeros(*mask.shape, flat.shape[1]).masked_scatter(mask[..., None], flat)
        else:
            x = batch["x"]
        x = self.input_dropout(x)
        if self.kind == "lstm":
            assert self.encoder is not None
            if mask is None:
                x = self.encoder(x)[0]
            else:
                lengths, n_steps = mask.sum(1).cpu(), mask.shape[1]
                packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                found = self.encoder(packed)[0]
                x, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True, total_length=n_steps)
            x = self.dropout(x)
        elif self.kind == "conv":
            assert isinstance(self.encoder, nn.ModuleList)
            for layer in self.encoder:
                x = x if mask is None else x * mask[..., None]
                x = functional.relu(layer(x.transpose(1, 2))).transpose(1, 2)
            x = self.dropout(x)
        return self.factors(x, mask), None if self.pairs is None else self.pairs(x)
