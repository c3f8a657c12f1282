"""Looking into a model: its heaviest weights, its transitions, its card."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crfkit.model.chain_model import ChainModel

__all__ = ["EdgeWeight", "StateWeight", "card", "edge_weights", "state_weights", "transition_table"]


class StateWeight(NamedTuple):
    """Weight of an attribute for a label."""

    attribute: str
    label: Any
    weight: float


class EdgeWeight(NamedTuple):
    """Weight of an attribute for a label followed by another."""

    attribute: str
    label: Any
    following: Any
    weight: float


def state_weights(model: ChainModel, top: int | None = None, label: Any = None) -> list[StateWeight]:
    """(attribute, label) weights, the heaviest first.

    Parameters
    ----------
    model : ChainModel
    top : int, optional
        How many.
    label : optional
        Only those of one label.

    Examples
    --------
    >>> from crfkit import CRF
    >>> crf = CRF(features=None).fit([[["a"], ["b"]]], [["A", "B"]])
    >>> sorted((w.attribute, w.label) for w in state_weights(crf.model_, top=2))
    [('a', 'A'), ('b', 'B')]
    """
    layout = model.layout
    weights = model.weights[: len(layout.state_label)]
    chosen = np.arange(len(weights))
    if label is not None:
        if label not in model.labels:
            raise ValueError(f"the model has no label {label!r}: it has {', '.join(map(str, model.labels))}")
        chosen = np.flatnonzero(layout.state_label == model.labels.index(label))
    order = chosen[np.argsort(-np.abs(weights[chosen]), kind="stable")]
    order = order[weights[order] != 0][:top]
    names = model.encoder.names()
    attribute = np.searchsorted(layout.state_ptr, order, side="right") - 1
    return [
        StateWeight(names[a], model.labels[layout.state_label[k]], float(weights[k]))
        for k, a in zip(order.tolist(), attribute.tolist(), strict=True)
    ]


def edge_weights(model: ChainModel, top: int | None = None) -> list[EdgeWeight]:
    """Weights of transitions that look at the input, the heaviest first."""
    layout = model.layout
    n = layout.n_labels
    weights = model.weights[layout.edge_first : layout.edge_first + len(layout.edge_pair)]
    order = np.argsort(-np.abs(weights), kind="stable")
    order = order[weights[order] != 0][:top]
    names = model.encoder.names(edge=True)
    attribute = np.searchsorted(layout.edge_ptr, order, side="right") - 1
    pairs = [divmod(int(layout.edge_pair[k]), n) for k in order]
    return [
        EdgeWeight(names[a], model.labels[i], model.labels[j], float(weights[k]))
        for k, a, (i, j) in zip(order.tolist(), attribute.tolist(), pairs, strict=True)
    ]


def transition_table(model: ChainModel) -> NDArray[np.float64]:
    """Scores [L, L] of label i followed by label j; minus infinity where forbidden.

    Examples
    --------
    >>> from crfkit import CRF
    >>> crf = CRF(constraints=[("B", "A")]).fit([["a", "b"]], [["A", "B"]])
    >>> bool(transition_table(crf.model_)[1, 0] == -float("inf"))
    True
    """
    layout = model.layout
    n = layout.n_labels
    table = np.zeros((n, n))
    known = layout.transition.reshape(n, n) >= 0
    table[known] = model.weights[layout.transition[known.ravel()]]
    if model.constraints is not None:
        table[~model.constraints.transitions] = -np.inf
    return table


def card(model: ChainModel) -> dict[str, Any]:
    """What there is to say about a model at a glance."""
    layout = model.layout
    n_state, n_edge = model.encoder.n_attributes
    kind = model.encoder.config()
    features = f"{len(kind['plan']['templates'])} templates" if kind["kind"] == "plan" else "attributes as given"
    if kind.get("function"):
        features = f"function {kind['function']}"
    return {
        "labels": [str(label) for label in model.labels],
        "features": features,
        "attributes": n_state,
        "transition_attributes": n_edge,
        "weights": layout.size,
        "active_weights": int(np.count_nonzero(model.weights)),
        "constraints": model.constraints is not None,
        "precision": np.dtype(model.dtype).name,
        "parameters": dict(model.params),
        "training": dict(model.info),
    }
