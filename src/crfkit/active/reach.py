"""How far the labels of tokens reach: what they tell of other tokens, by the attributes that they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit.base.numbers import over_rows
from crfkit.data.sequences import rows_of

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Weight of an attribute by the number of labelled tokens that have it; the variance of its weights falls with the
#: square of that.
_FADED = (1.0 + np.arange(10_000)) ** -1.5


class Reach:
    r"""What the label of each token tells of the tokens that are not labelled.

    .. math:: r_t = \sum_{a \in t} \frac{u_a}{(1 + n_a)^{3/2}}

    over the attributes of the token: :math:`u_a` is the entropy of all tokens with the attribute, :math:`n_a` the
    number of labelled ones among them.

    Parameters
    ----------
    ptr, attr : arrays [N + 1] and [ptr[-1]]
        The attributes of each token.

    Examples
    --------
    >>> reach = Reach(np.array([0, 1, 3, 4]), np.array([0, 0, 1, 1]))
    >>> reach.update(0, np.array([1.0, 2.0, 0.5]))
    >>> reach.weights(slice(0, 3)).tolist()
    [3.0, 5.5, 2.5]
    >>> reach.tell(0, np.array([True]))
    >>> reach.weights(slice(0, 3)).round(2).tolist()
    [1.06, 3.56, 2.5]
    """

    def __init__(self, ptr: Any, attr: Any) -> None:
        self._ptr: Ints = np.asarray(ptr, np.int64)
        self._attr = np.asarray(attr)
        attributes = int(self._attr.max(initial=0)) + 1
        self._left = np.zeros(attributes)  # u
        self._told = np.zeros(attributes)  # n
        self._worth: Vector | None = None  # of each attribute; None if u or n have changed
        self._entropy = np.zeros(len(self._ptr) - 1)  # of each token, as counted in u
        self._labelled = np.zeros(len(self._ptr) - 1, bool)  # as counted in n

    def tell(self, first: int, labelled: NDArray[np.bool_]) -> None:
        """Which of the tokens from ``first`` on are labelled."""
        place = slice(first, first + len(labelled))
        change = labelled.astype(np.float64) - self._labelled[place]
        self._labelled[place] = labelled
        self._add(self._told, first, change)

    def update(self, first: int, entropy: Vector) -> None:
        """The entropies of the tokens from ``first`` on, zero for those that are not asked again."""
        place = slice(first, first + len(entropy))
        change = entropy - self._entropy[place]
        self._entropy[place] = entropy
        self._add(self._left, first, change)

    def _add(self, sums: Vector, first: int, values: Vector) -> None:
        """Adds a value of each token to those of its attributes."""
        counts = np.diff(self._ptr[first : first + len(values) + 1])
        attr = self._attr[self._ptr[first] : self._ptr[first + len(values)]].astype(np.int64)
        np.add.at(sums, attr, np.repeat(values, counts))
        self._worth = None

    def weights(self, tokens: slice | Ints) -> Vector:
        """How far the labels of some tokens reach."""
        if isinstance(tokens, slice):
            offsets = self._ptr[tokens.start : tokens.stop + 1]
            attr = self._attr[offsets[0] : offsets[-1]]
            offsets = offsets - offsets[0]
        else:
            entries, offsets = rows_of(self._ptr, tokens)
            attr = self._attr[entries]
        if self._worth is None:
            self._worth = self._left * _FADED[np.minimum(self._told, len(_FADED) - 1).astype(np.int64)]
        return over_rows(np.add, self._worth[attr], offsets)
