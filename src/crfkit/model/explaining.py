"""Why a sequence got its labels: the contribution of every weight to each decision."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfkit.base.messages import counted
from crfkit.base.shown import Record
from crfkit.chain.inference import decode_flat, marginals
from crfkit.chain.potentials import Potentials
from crfkit.data.dataset import Dataset, Layout
from crfkit.data.labels import label_numbers, scores_by
from crfkit.model.chain_model import ChainModel


@dataclass(frozen=True)
class Contribution:
    """What one attribute or transition adds to a decision.

    Attributes
    ----------
    kind : {"attribute", "transition", "transition attribute", "start", "end", "constraint"}
    name : str
        The attribute, or the labels of the transition.
    value : float
        The attribute's value.
    label_weight, runner_up_weight : float
        Weights for the label and for its runner-up.
    amount : float
        value * (label_weight - runner_up_weight).
    """

    kind: str
    name: str
    value: float
    label_weight: float
    runner_up_weight: float
    amount: float


@dataclass(frozen=True, repr=False)
class Decision(Record):
    """Why a token has its label rather than the runner-up.

    Attributes
    ----------
    position : int
    token : object
        The token as given.
    label, runner_up : object
        The label, and the most probable of the others that the constraints allow between its neighbours (None if there
        is none).
    probability, runner_up_probability : float
    log_odds : float
        Sum of the contributions: the log-odds of the whole labelling against the same labelling with the runner-up
        here; infinite if there is no runner-up.
    contributions : tuple of Contribution
        The largest first.
    """

    position: int
    token: Any
    label: Any
    runner_up: Any
    probability: float
    runner_up_probability: float
    log_odds: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, repr=False)
class Explanation:
    """The decisions about a sequence; prints as a table, shows as HTML in notebooks.

    Attributes
    ----------
    decisions : tuple of Decision
        One for each token.
    """

    decisions: tuple[Decision, ...]

    def __len__(self) -> int:
        return len(self.decisions)

    def __getitem__(self, t: int) -> Decision:
        return self.decisions[t]

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def to_dict(self) -> dict[str, Any]:
        """As plain dicts and lists, for JSON; infinite amounts of forbidden labellings are None."""

        def plain(record: Any) -> dict[str, Any]:
            infinite = {k: None for k, v in vars(record).items() if isinstance(v, float) and not np.isfinite(v)}
            return {**vars(record), **infinite}

        decisions = []
        for d in self.decisions:
            contributions = [plain(c) for c in d.contributions]
            decisions.append({**plain(d), "token": token_text(d.token), "contributions": contributions})
        return {"decisions": decisions}

    def to_text(self, top: int = 5) -> str:
        """A table with the ``top`` contributions to each decision."""
        lines = []
        for d in self.decisions:
            lines.append(f"{d.position:4d}  {token_text(d.token)}: {d.label} ({d.probability:.3f}) {_against(d, '  ')}")
            lines += [f"      {c.amount:+9.4f}  {contribution_name(c)}" for c in d.contributions[:top]]
            rest = d.contributions[top:]
            if rest:
                lines.append(f"      {sum(c.amount for c in rest):+9.4f}  {len(rest)} more")
        return "\n".join(lines)

    __str__ = to_text

    def __repr__(self) -> str:
        return f"<Explanation: {' '.join(f'{token_text(d.token)}/{d.label}' for d in self.decisions[:10])}{self._more}>"

    @property
    def _more(self) -> str:
        return "" if len(self) <= 10 else f" ... {len(self)} tokens"

    def to_html(self, top: int = 8) -> str:
        """A small HTML view: the labels above the tokens, and the contributions of each as bars."""
        amounts = [abs(c.amount) for d in self.decisions for c in d.contributions[:top] if np.isfinite(c.amount)]
        largest = max(amounts, default=1.0) or 1.0
        columns = "".join(_html_decision(d, top, largest) for d in self.decisions)
        return f'<div class="crfkit-explanation" style="{_STYLE}">{columns}</div>'

    _repr_html_ = to_html


_STYLE = "display:flex;flex-wrap:wrap;gap:1em;font:13px sans-serif"


def _html_decision(d: Decision, top: int, largest: float) -> str:
    rows = ""
    for c in d.contributions[:top]:
        width = round(100 * min(1.0, abs(c.amount) / largest)) if np.isfinite(c.amount) else 100
        colour = "#3a7" if c.amount >= 0 else "#c55"
        bar = f'<div style="background:{colour};height:.7em;width:{width}%"></div>'
        rows += (
            f'<tr><td style="width:5em">{bar}</td><td style="text-align:right">{c.amount:+.3f}</td>'
            f"<td>{html.escape(contribution_name(c))}</td></tr>"
        )
    rest = d.contributions[top:]
    if rest:
        total = sum(c.amount for c in rest)
        rows += f'<tr><td></td><td style="text-align:right">{total:+.3f}</td><td>{len(rest)} more</td></tr>'
    return (
        f"<div><b>{html.escape(token_text(d.token))}</b><br>"
        f'<span style="color:#357">{html.escape(str(d.label))}</span> '
        f"({d.probability:.3f}) {html.escape(_against(d, ', log-odds '))}<table>{rows}</table></div>"
    )


def _against(d: Decision, before: str) -> str:
    """What the label won against, and by how much."""
    if d.runner_up is None:
        return "no other label is allowed here"
    return f"against {d.runner_up} ({d.runner_up_probability:.3f}){before}{d.log_odds:+.3f}"


def token_text(token: Any) -> str:
    """A token as it is shown."""
    if isinstance(token, str):
        return token
    if isinstance(token, tuple):
        return " ".join(map(str, token))
    text = str(token)
    return text if len(text) <= 60 else f"{text[:57]}..."


def contribution_name(c: Contribution) -> str:
    """An attribute or transition as it is shown."""
    text = c.name if c.kind == "attribute" else f"{c.kind} {c.name}"
    return text if c.value == 1 else f"{text} = {c.value:g}"


def leading(decision: Decision, top: int) -> list[tuple[str, float]]:
    """Names and amounts of a decision's largest finite contributions; what is more than one over, summed up."""
    bars = [(contribution_name(c), c.amount) for c in decision.contributions if np.isfinite(c.amount)]
    if len(bars) > top + 1:
        bars = [*bars[:top], (f"{len(bars) - top} more", sum(amount for _, amount in bars[top:]))]
    return bars


class _Sources:
    """The weights of a model by attribute, as full rows."""

    def __init__(self, model: ChainModel) -> None:
        self.model = model
        layout = model.layout
        self.layout: Layout = layout
        self.names = model.encoder.names()
        self.edge_names = model.encoder.names(edge=True)
        table = model.transition_table()
        self.allowed = np.isfinite(table)
        self.transitions = np.where(self.allowed, table, 0.0)
        n = layout.n_labels
        w = model.weights
        self.start = w[layout.start : layout.start + n] if layout.start >= 0 else np.zeros(n)
        self.end = w[layout.end : layout.end + n] if layout.end >= 0 else np.zeros(n)
        self.tuples = model._tuple_scores
        rules = model.constraints
        self.may_start = np.ones(n, bool) if rules is None else rules.start
        self.may_end = np.ones(n, bool) if rules is None else rules.end

    def fits(self, path: Any, t: int) -> Any:
        """Labels that are allowed at a token whose neighbours keep theirs, [L]."""
        before = self.allowed[path[t - 1]] if t > 0 else self.may_start
        after = self.allowed[:, path[t + 1]] if t + 1 < len(path) else self.may_end
        return before & after

    def tuple_score(self, labels: Any, attribute: int | None = None) -> float:
        """Score of three labels in a row, or more; alone, or with an attribute of the last transition."""
        number = self.tuples.numbers([np.array([x]) for x in labels])
        return float(self.tuples.find(number, None if attribute is None else np.array([attribute], np.uint32))[0])

    def same_label(self, state: int) -> Any:
        """Which states have the label of this one, [L]."""
        labels = self.model.labels
        return np.array([label == labels[state] for label in labels], bool)

    def chance(self, row: Any, state: int) -> float:
        """The probability of the label of a state, out of those of all states."""
        return float(row[self.same_label(state)].sum())

    def state(self, attribute: int) -> Any:
        row = np.zeros(self.layout.n_labels)
        a, b = self.layout.state_ptr[attribute], self.layout.state_ptr[attribute + 1]
        row[self.layout.state_label[a:b]] = self.model.weights[a:b]
        return row

    def edge(self, attribute: int) -> Any:
        n = self.layout.n_labels
        row = np.zeros(n * n)
        a, b = int(self.layout.edge_ptr[attribute]), int(self.layout.edge_ptr[attribute + 1])
        first = self.layout.edge_first
        row[self.layout.edge_pair[a:b]] = self.model.weights[first + a : first + b]
        return row.reshape(n, n)


def explain(model: ChainModel, x: Any, y: Sequence[Any] | None = None) -> Explanation:
    r"""Why each token of a sequence has its label.

    The contributions at token t sum to

    .. math::

        \log \frac{p(y \mid x)}{p(y' \mid x)}, \qquad y' = (y_1, \ldots, r_t, \ldots, y_T)

    where :math:`r_t` is the runner-up, the most probable other label that the constraints allow there.

    Parameters
    ----------
    model : ChainModel
    x : sequence of tokens
    y : sequence of labels, optional
        The labels to explain; the best ones if not given.

    Returns
    -------
    Explanation
    """
    model = model.tempered()
    encoder = model.encoder
    tokens = encoder.read_one(x, "'x' of explain")
    data = encoder.encode([tokens], False, 1)
    p = model.score(data, 1, np.float64)
    path = decode_flat(p, 1)
    if y is not None:
        if len(y) != data.n_tokens:
            raise ValueError(
                f"'y' of explain must have a label for each of {counted(data.n_tokens, 'token')}, got {len(y)}"
            )
        for t, label in enumerate(y):
            if label not in model.labels:
                raise ValueError(f"position {t}: {label!r} is not one of the model's labels")
        numbers, hints = label_numbers([list(y)], model.labels, data.offsets)
        path = numbers
        if len(hints):  # labels of hidden states: their best path
            path = decode_flat(Potentials(p.unary + scores_by(numbers, hints), p.pairwise, offsets=p.offsets), 1)
    nodes = marginals(p, 1).nodes
    sources = _Sources(model)
    return Explanation(tuple(_decide(sources, data, nodes, path, t, tokens[t]) for t in range(data.n_tokens)))


def _decide(sources: _Sources, data: Dataset, nodes: Any, path: Any, t: int, token: Any) -> Decision:
    labels = sources.model.labels
    a = int(path[t])
    fits = sources.fits(path, t)
    others = np.where(fits, nodes[t].astype(np.float64), -1.0)
    others[sources.same_label(a)] = -1.0
    b = int(np.argmax(others))
    if others[b] < 0:
        return Decision(t, token, labels[a], None, sources.chance(nodes[t], a), 0.0, np.inf, ())
    found = list(_contributions(sources, data, path, t, a, b))
    unit = 1e-4 * max((abs(c.amount) for c in found if np.isfinite(c.amount)), default=0) or 1.0
    # equal ones differ by rounding errors
    found.sort(key=lambda c: (-round(min(abs(c.amount) / unit, 1e9)), c.name))
    total = float(sum(c.amount for c in found))
    chances = sources.chance(nodes[t], a), sources.chance(nodes[t], b)
    return Decision(t, token, labels[a], labels[b], *chances, total, tuple(c for c in found if c.amount))


def _edge_attributes(sources: _Sources, data: Dataset, token: int) -> list[int]:
    """The known attributes of the transition into a token."""
    if data.edge_ptr is None or data.edge_attr is None:
        return []
    found = data.edge_attr[data.edge_ptr[token] : data.edge_ptr[token + 1]].tolist()
    return [a for a in found if a < len(sources.edge_names)]


def _contributions(sources: _Sources, data: Dataset, path: Any, t: int, a: int, b: int) -> Iterator[Contribution]:
    labels = sources.model.state_names
    last = len(path) - 1

    def one(kind: str, name: str, mine: float, other: float, value: float = 1.0) -> Contribution:
        return Contribution(kind, name, value, float(mine), float(other), float(value * (mine - other)))

    for k in range(int(data.ptr[t]), int(data.ptr[t + 1])):
        attribute = int(data.attr[k])
        if attribute < len(sources.names):
            row = sources.state(attribute)
            value = 1.0 if data.value is None else float(data.value[k])
            yield one("attribute", sources.names[attribute], row[a], row[b], value)
    for at, arrow in ((t, "before"), (t + 1, "after")):
        if not 1 <= at <= last:
            continue
        # the transition into token `at`, with the label or with the runner-up at t
        mine = (path[t - 1], a) if arrow == "before" else (a, path[t + 1])
        theirs = (path[t - 1], b) if arrow == "before" else (b, path[t + 1])
        name = f"{labels[mine[0]]} -> {labels[mine[1]]}"
        yield one("transition", name, sources.transitions[mine], sources.transitions[theirs])
        for attribute in _edge_attributes(sources, data, at):
            row = sources.edge(attribute)
            yield one("transition attribute", f"{name} {sources.edge_names[attribute]}", row[mine], row[theirs])
    for n in range(2, sources.layout.order + 1):
        for end in range(max(t, n), min(t + n, last) + 1):
            mine_row, their_row = (np.array(path[end - n : end + 1]) for _ in range(2))
            mine_row[t - end + n], their_row[t - end + n] = a, b
            text = " -> ".join(str(labels[j]) for j in mine_row)
            yield one("transition", text, sources.tuple_score(mine_row), sources.tuple_score(their_row))
            for attribute in _edge_attributes(sources, data, end):
                scores = (sources.tuple_score(row, attribute) for row in (mine_row, their_row))
                yield one("transition attribute", f"{text} {sources.edge_names[attribute]}", *scores)
    if t == 0:
        yield one("start", str(labels[a]), sources.start[a], sources.start[b])
    if t == last:
        yield one("end", str(labels[a]), sources.end[a], sources.end[b])
    if not sources.fits(path, t)[a]:  # labels as the user gave them
        yield one("constraint", f"{labels[a]} is not allowed here", -np.inf, 0.0)
