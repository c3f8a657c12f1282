"""Plots of models and results (needs ``crfkit[plot]``).

Every function draws on the axes it is given (``ax=``) or on new ones, and returns them: set titles and limits there,
and save with ``ax.figure.savefig("name.svg")``. New figures have no background, and colours that can be told apart on
light and on dark pages and by colour-blind readers. In given axes, text has the colour of their labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crfkit import metrics
from crfkit.active import LearningCurve
from crfkit.calibration import CalibrationCurve
from crfkit.estimators.chained import ChainEstimator
from crfkit.model import ChainModel, Explanation
from crfkit.model.explaining import Decision, leading, token_text
from crfkit.training import Progress

__all__ = ["beams", "calibration_curve", "confusion", "explanation", "learning_curve", "marginals", "transitions"]

Axes = Any  # matplotlib is an extra

#: Contrast of at least 3 to white and to dark pages; neighbours differ for colour-blind readers too.
COLOURS = ("#2b7bba", "#d9661f", "#1a9873", "#b0609f", "#a98600", "#8a6d5c")
INK = "#757d87"
#: Of figures without a background, for light and dark pages.
STYLE: dict[str, Any] = {
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "lines.linewidth": 1.8,
    "font.size": 10,
    "svg.hashsalt": "crfkit",  # the same picture is the same file
}


def new_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Given axes, or those of a new figure of that size, in inches."""
    if ax is not None:
        return ax
    try:
        import matplotlib as mpl
        from cycler import cycler
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError("crfkit.plotting needs matplotlib: pip install 'crfkit[plot]'") from None
    style: Any = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with mpl.rc_context(style):
        return plt.subplots(figsize=size, layout="constrained")[1]


def name_lines(ax: Axes, size: float = 9, distance: float = 7) -> None:
    """Writes the name of every line beside its last point, moved up or down where they would overlap.

    A line that ends before the others is named next to its end, where no line and no other text is.
    """
    lines = [line for line in ax.get_lines() if not line.get_label().startswith("_") and len(_pixels(line))]
    if not lines:
        return
    ax.figure.canvas.draw()  # limits are known from here on
    texts = [
        ax.annotate(
            line.get_label(),
            ax.transData.inverted().transform(end),
            xytext=(0, 0),
            textcoords="offset points",
            color=line.get_color(),
            fontsize=size,
            va="center",
            annotation_clip=False,
            in_layout=False,
            parse_math=False,
        )
        for line, end in zip(lines, _ends(ax, lines), strict=True)
    ]
    for _ in range(2):  # names take room, which moves the ends
        early = _name_late(ax, texts, _ends(ax, lines), distance)
        ax.figure.canvas.draw()
    taken = [text.get_window_extent().extents for text in ax.texts if text not in early]
    points = np.concatenate([_dense(xy) for xy in map(_pixels, ax.get_lines()) if len(xy)])
    low, high = np.reshape(ax.bbox.extents, (2, 2))
    points = points[((points >= low) & (points <= high)).all(axis=1)]
    for text in early:
        taken.append(_free_place(text, points, np.array(taken).reshape(-1, 4), distance))


def _name_late(ax: Axes, texts: list[Any], ends: NDArray[np.float64], distance: float) -> list[Any]:
    """Moves the names of lines that end at the right into a column there; the others."""
    (left, bottom), (right, top) = np.reshape(ax.bbox.extents, (2, 2))
    late = ends[:, 0] >= ends[:, 0].max() - 0.06 * (right - left)
    order = np.flatnonzero(late)[np.argsort(ends[late, 1], kind="stable")]
    unit = ax.figure.dpi / 72
    heights = _spread(ends[order, 1], 1.25 * texts[0].get_fontsize() * unit, bottom, top)
    for k, y in zip(order, heights, strict=True):
        texts[k].set_position((distance + (ends[order, 0].max() - ends[k, 0]) / unit, (y - ends[k, 1]) / unit))
        texts[k].set_in_layout(True)
    return [text for text, is_late in zip(texts, late, strict=True) if not is_late]


def _ends(ax: Axes, lines: list[Any]) -> NDArray[np.float64]:
    """Where the figure shows the last points of lines, or where they leave it."""
    low, high = np.reshape(ax.bbox.extents, (2, 2))
    return np.array([np.clip(_pixels(line)[-1], low, high) for line in lines])


def _pixels(line: Any) -> NDArray[np.float64]:
    """The finite points of a line, where the figure shows them."""
    xy = np.asarray(line.get_transform().transform(line.get_xydata()), np.float64)
    return xy[np.isfinite(xy).all(axis=1)]


def _dense(xy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points along a line, two pixels apart, or further if it is very long."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(xy, axis=0).T))])
    at = np.linspace(0.0, along[-1], 2 + int(min(along[-1] / 2, 10000)))
    return np.column_stack([np.interp(at, along, column) for column in xy.T])


def _free_place(text: Any, points: NDArray[np.float64], taken: NDArray[np.float64], distance: float) -> Any:
    """Moves a text to where the fewest points and other texts are, near its line's end; its extents there."""
    left, bottom, right, top = text.axes.bbox.extents
    ways = [(1, 0), (0, 1), (-0.5, 1), (0.5, 1), (0, -1), (0.5, -1), (-0.5, -1), (-1, 0)]
    beside = (right - text.axes.transData.transform(text.xy)[0]) * 72 / text.figure.dpi + 3  # of the axes
    places = [(x * far * distance, 0.7 * y * far * distance) for far in (1.0, 1.8, 2.6) for x, y in ways]
    found: list[tuple[Any, ...]] = []
    for x, y in [*places, (beside, 0.0)]:
        text.set(ha=("center", "left", "right")[int(np.sign(x))], va=("center", "bottom", "top")[int(np.sign(y))])
        text.set_position((x, y))
        a, b, c, d = box = text.get_window_extent().padded(3).extents
        hit = ((points > (a, b)) & (points < (c, d))).all(axis=1).sum()
        hit += 100 * ((taken[:, :2] < (c, d)) & (taken[:, 2:] > (a, b))).all(axis=1).sum()
        hit += 100 * (a < left or b < bottom or a < right < c or d > top)
        found.append((hit, len(found), (x, y), text.get_ha(), text.get_va(), box))
    _, _, place, ha, va, box = min(found, key=lambda way: way[:2])
    text.set(position=place, ha=ha, va=va, in_layout=place[0] == beside)
    return box


def _spread(heights: NDArray[np.float64], gap: float, bottom: float, top: float) -> NDArray[np.float64]:
    """Ascending heights moved as little as possible (by least squares) so that neighbours are ``gap`` apart."""
    steps = gap * np.arange(len(heights))
    blocks: list[list[float]] = []  # sums and counts of what has run together
    for x in heights - steps:
        blocks.append([x, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    level = np.concatenate([np.full(int(n), total / n) for total, n in blocks])
    moved: NDArray[np.float64] = np.clip(level, bottom, max(bottom, top - steps[-1])) + steps
    return moved


def _ink(ax: Axes) -> Any:
    return ax.xaxis.label.get_color()


def _colours(strength: NDArray[np.float64], sign: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Colours of cells: the stronger (0 to 1), the darker; positive ones differ in colour.

    They are the same on light and dark pages, so that text can be chosen to stand out from them. Where nothing is,
    the page shows.
    """
    from matplotlib.colors import to_rgb

    full = np.broadcast_to(to_rgb(COLOURS[0]), (*strength.shape, 3)).copy()
    if sign is not None:
        full[sign > 0] = to_rgb(COLOURS[1])
    depth = 0.12 + 0.88 * strength[..., None]
    return np.concatenate([1 - depth * (1 - full), (strength > 0)[..., None]], axis=-1)


def _text_on(rgba: NDArray[np.float64], page: Any) -> Any:
    """Black or white, whichever has the higher contrast to the cell (at least 4.5); ``page`` where there is none."""
    if rgba[3] == 0:
        return page
    return "black" if contrast(rgba[:3], "black") > contrast(rgba[:3], "white") else "white"


def contrast(one: Any, other: Any) -> float:
    """Of two colours, by their luminance: 1 if they are the same, 21 for black and white."""
    from matplotlib.colors import to_rgb

    rgb = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ (0.2126, 0.7152, 0.0722) + 0.05)
    return float(light / dark)


def _grid(ax: Axes, cells: NDArray[np.float64], texts: Sequence[Sequence[str]], rows: Any, columns: Any) -> None:
    """Coloured cells with text in them, named at both sides."""
    ax.imshow(cells, aspect="auto", interpolation="nearest")
    ax.set_xticks(range(len(columns)), [str(x) for x in columns], parse_math=False)
    ax.set_yticks(range(len(rows)), [str(x) for x in rows], parse_math=False)
    if sum(len(str(x)) + 2 for x in columns) > 11 * ax.get_position().width * ax.figure.get_figwidth():
        ax.tick_params(axis="x", rotation=90)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    room = 72 * ax.get_position().width * ax.figure.get_figwidth() / max(1, len(columns))
    widest = max((len(t) for row in texts for t in row), default=1)
    size = min(9.0, 1.5 * room / max(1, widest))
    if size < 5:  # nobody could read them
        return
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            ax.text(j, i, text, ha="center", va="center", fontsize=size, color=_text_on(cells[i, j], _ink(ax)))


def _chosen(labels: Sequence[Any], some: Sequence[Any] | None, where: str) -> list[int]:
    if some is None:
        return list(range(len(labels)))
    if not len(some):
        raise ValueError(f"'labels' of plotting.{where} must name at least one label, got none")
    for label in some:
        if label not in labels:
            raise ValueError(f"'labels' of plotting.{where}: there is no label {label!r}")
    return [list(labels).index(label) for label in some]


def transitions(model: Any, *, labels: Sequence[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Heat map of a model's transition weights: rows are the label before, columns the label after.

    Orange pairs have positive weights, blue ones have negative weights; x marks pairs that
    constraints forbid.

    Parameters
    ----------
    model : CRF, HMM, MEMM or ChainModel
        Fitted.
    labels : sequence, optional
        Only these, in this order; hidden states by their names (``"A#1"``).
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import CRF, plotting
    >>> crf = CRF().fit([["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]])
    >>> plotting.transitions(crf).get_ylabel()
    'from'
    """
    model = _model(model, "transitions")
    chosen = _chosen(model.state_names, labels, "transitions")
    table = model.transition_table()[np.ix_(chosen, chosen)]
    names = [model.state_names[k] for k in chosen]
    weights = np.where(np.isfinite(table) & (np.abs(table) >= 0.05), table, 0.0)
    strength = np.abs(weights) / (np.abs(weights).max() or 1.0)
    side = 2 + 0.42 * len(names)
    ax = new_axes(ax, (side + 0.6, side))
    texts = [["x" if np.isinf(w) else f"{w:+.1f}" if abs(w) >= 0.05 else "" for w in row] for row in table.tolist()]
    _grid(ax, _colours(strength, weights), texts, names, names)
    ax.set(xlabel="to", ylabel="from")
    return ax


def confusion(y_true: Any, y_pred: Any, *, labels: Sequence[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Confusion matrix: how often each true label (row) got each predicted label (column).

    Colours are fractions of the row, numbers are tokens; empty cells are 0.

    Parameters
    ----------
    y_true, y_pred : lists of lists of labels
        True and predicted labels.
    labels : sequence, optional
        Only these, in this order.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import plotting
    >>> plotting.confusion([["A", "B", "B"]], [["A", "A", "B"]]).get_xlabel()
    'predicted label'
    """
    every, counts = metrics.confusion(y_true, y_pred)
    if not len(every):
        raise ValueError("'y_true' of plotting.confusion has no labels")
    chosen = _chosen(every, labels, "confusion")
    names, n = [every[k] for k in chosen], counts[np.ix_(chosen, chosen)]
    share = n / np.maximum(1, counts[chosen].sum(axis=1, keepdims=True))
    side = 2 + 0.42 * len(names)
    ax = new_axes(ax, (side + 0.6, side))
    _grid(ax, _colours(share), [[str(x) if x else "" for x in row] for row in n.tolist()], names, names)
    ax.set(xlabel="predicted label", ylabel="true label")
    return ax


def explanation(decision: Decision, *, top: int = 8, ax: Axes | None = None) -> Axes:
    """Why a token has its label: what each attribute and transition adds to its log-odds over the runner-up.

    Parameters
    ----------
    decision : Decision
        Of one token: ``crf.explain(x)[t]``.
    top : int
        Number of bars; one more bar sums up the rest.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import CRF, plotting
    >>> crf = CRF().fit([["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]])
    >>> plotting.explanation(crf.explain(["a", "b"])[0]).get_title(loc="left").split(" rather")[0]
    'a is A (0.78)'
    """
    if isinstance(decision, Explanation) or not isinstance(decision, Decision):
        raise TypeError(
            f"'decision' of plotting.explanation must be that of one token, crf.explain(x)[t], "
            f"got {type(decision).__name__}"
        )
    bars = leading(decision, top)
    ax = new_axes(ax, (7, 1.1 + 0.3 * max(1, len(bars))))
    amounts = [amount for _, amount in bars]
    colours = [COLOURS[1] if amount > 0 else COLOURS[0] for amount in amounts]
    ax.barh(range(len(bars)), amounts, color=colours, height=0.7)
    ax.set_yticks(range(len(bars)), [name for name, _ in bars], parse_math=False)
    ax.invert_yaxis()
    ax.axvline(0, color=_ink(ax), linewidth=0.8)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for k, amount in enumerate(amounts):
        side = 1 if amount >= 0 else -1
        ax.annotate(
            f"{amount:+.2f}",
            (amount, k),
            xytext=(3 * side, 0),
            textcoords="offset points",
            va="center",
            ha="left" if side > 0 else "right",
            fontsize=8,
            color=_ink(ax),
        )
    ax.margins(x=0.12)
    title = f"{token_text(decision.token)} is {decision.label} ({decision.probability:.2f})"
    if decision.runner_up is None:
        title += ": no other label is allowed here"
    else:
        title += f" rather than {decision.runner_up} ({decision.runner_up_probability:.2f})"
        ax.set_xlabel(
            f"for {decision.runner_up}  ←  log-odds, {decision.log_odds:+.2f} in all  →  for {decision.label}",
            parse_math=False,
        )
    ax.set_title(title, loc="left", parse_math=False)
    return ax


def marginals(
    crf: Any,
    x: Any,
    *,
    labels: Sequence[Any] | None = None,
    tokens: Sequence[int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Probabilities of all labels along a sentence; the best labelling is framed.

    Parameters
    ----------
    crf : CRF, HMM, MEMM or NeuralCRF
        Fitted.
    x : sequence of tokens
        The tokens.
    labels : sequence, optional
        Only these, in this order; by default all that reach a probability of 0.01 somewhere.
    tokens : sequence of int, optional
        Positions of the tokens to draw, such as ``range(20, 60)``; all by default. A new figure has room for 100.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import CRF, plotting
    >>> crf = CRF().fit([["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]])
    >>> [text.get_text() for text in plotting.marginals(crf, ["a", "b", "b"]).get_xticklabels()]
    ['a', 'b', 'b']
    """
    if not hasattr(crf, "predict_marginals") or not hasattr(crf, "classes_"):
        raise TypeError(f"plotting.marginals takes a fitted CRF, HMM, MEMM or NeuralCRF, got {type(crf).__name__}")
    if isinstance(x, str):
        raise ValueError(
            f"'x' of plotting.marginals must be a list of tokens, got str {x[:40]!r}: split text into tokens "
            "(crfkit.data.tokenize)"
        )
    x = list(x)
    if not x:
        raise ValueError("'x' of plotting.marginals has no tokens")
    places = list(range(len(x)) if tokens is None else tokens)
    if not places or not all(isinstance(t, (int, np.integer)) and 0 <= t < len(x) for t in places):
        raise ValueError(f"'tokens' of plotting.marginals must be positions from 0 to {len(x) - 1}, got {tokens!r}")
    if ax is None and len(places) > 100:
        raise ValueError(
            f"plotting.marginals has room for 100 tokens, got {len(places)}: choose some, such as tokens=range(100)"
        )
    p, best = np.asarray(crf.predict_marginals([x])[0], np.float64)[places], crf.predict([x])[0]
    best = [best[t] for t in places]
    every = crf.classes_.tolist()
    seen = [k for k in range(len(every)) if (len(p) and (p[:, k] >= 0.01).any()) or every[k] in best]
    chosen = seen if labels is None else _chosen(every, labels, "marginals")
    names = [every[k] for k in chosen]
    shown = p[:, chosen].T
    ax = new_axes(ax, (1.6 + min(25, 0.62 * len(p)), 1.1 + 0.32 * len(names)))
    texts = [[f"{v:.2f}".lstrip("0") if v >= 0.005 else "" for v in row] for row in shown.tolist()]
    _grid(ax, _colours(np.where(shown >= 0.005, shown, 0.0)), texts, names, [token_text(x[t]) for t in places])
    from matplotlib.patches import Rectangle

    for t, label in enumerate(best):
        if label in names:
            frame = Rectangle((t - 0.5, names.index(label) - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2)
            ax.add_patch(frame)
    return ax


def calibration_curve(curves: CalibrationCurve | Mapping[str, CalibrationCurve], *, ax: Axes | None = None) -> Axes:
    """Reliability diagram: how often predictions of each probability are right; the diagonal is perfect.

    Every bin has a dot; the area of the disc around it is the number of predictions in the bin.

    Parameters
    ----------
    curves : CalibrationCurve, or mapping of names to them
        Of :func:`crfkit.calibration.calibration_curve`.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import CRF, calibration, plotting
    >>> X, y = [["a", "b"], ["b", "a"]], [["A", "B"], ["B", "A"]]
    >>> curve = calibration.calibration_curve(CRF().fit(X, y), X, y, unit="tokens")
    >>> plotting.calibration_curve({"CRF": curve}).get_ylabel()
    'fraction right'
    """
    if not isinstance(curves, (CalibrationCurve, Mapping)):
        raise TypeError(
            "'curves' of plotting.calibration_curve must be a CalibrationCurve, or map names to them, "
            f"got {type(curves).__name__}"
        )
    named = curves if isinstance(curves, Mapping) else {"": curves}
    for name, curve in named.items():
        if not isinstance(curve, CalibrationCurve):
            raise TypeError(f"'curves' of plotting.calibration_curve: {name!r} is a {type(curve).__name__}")
    if not named:
        raise ValueError("'curves' of plotting.calibration_curve must hold at least one curve")
    ax = new_axes(ax, (6.8, 4.2))
    ax.plot([0, 1], [0, 1], color=_ink(ax), linewidth=1, linestyle=(0, (4, 3)))
    for k, (name, curve) in enumerate(named.items()):
        used = curve.counts > 0
        x, y, n = curve.confidence[used], curve.accuracy[used], curve.counts[used]
        colour = COLOURS[k % len(COLOURS)]
        text = f"{name}: ECE {curve.ece:.3f}".removeprefix(": ")
        ax.plot(x, y, "o-", color=colour, label=text, markersize=5, clip_on=False)
        ax.scatter(x, y, s=500 * n / n.sum(), color=colour, alpha=0.35, linewidths=0, clip_on=False)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="fraction right")
    name_lines(ax, distance=14)
    return ax


def learning_curve(
    curves: Mapping[str, Sequence[LearningCurve]],
    *,
    by: str = "tokens",
    target: float | None = None,
    highlight: Iterable[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Score over labelled data: for each name the mean of its runs, and their range.

    Parameters
    ----------
    curves : mapping of str to sequences of LearningCurve
        Of :func:`crfkit.active.simulate`, the same rounds with different seeds.
    by : {"tokens", "sequences"}
        What was labelled.
    target : float, optional
        A score to mark, as a fraction: 0.8 is drawn at 80.
    highlight : iterable of str, optional
        Names to draw in colour and to name; the others are grey lines behind them. By default all, up to six.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from crfkit import plotting
    >>> from crfkit.active import LearningCurve
    >>> run = LearningCurve(np.array([10, 20]), np.array([50, 110]), np.array([0.6, 0.7]), [])
    >>> ax = plotting.learning_curve({"entropy": [run]}, target=0.65)
    >>> ax.get_xlabel(), ax.get_lines()[0].get_ydata().tolist()
    ('labelled tokens', [60.0, 70.0])
    """
    where = "of plotting.learning_curve"
    if by not in ("tokens", "sequences"):
        raise ValueError(f"'by' {where} must be 'tokens' or 'sequences', got {by!r}")
    rule = f"'curves' {where} must map names to lists of LearningCurve, such as {{'margin': [run]}}"
    if not isinstance(curves, Mapping):
        raise TypeError(f"{rule}, got a {type(curves).__name__}")
    if not curves:
        raise ValueError(f"{rule}, got an empty mapping")
    for name, runs in curves.items():
        if isinstance(runs, LearningCurve):
            raise TypeError(f"{rule}: {name!r} is a single curve, put it in a list")
        if not len(runs):
            raise ValueError(f"{rule}: {name!r} has no curves")
        for run in runs:
            if not isinstance(run, LearningCurve):
                raise TypeError(f"{rule}: {name!r} holds a {type(run).__name__}")
    if target is not None and not 0 <= target <= 1:
        raise ValueError(f"'target' {where} must be a fraction from 0 to 1, got {target}")
    bright = list(curves)[: len(COLOURS)] if highlight is None else list(highlight)
    if missing := [name for name in bright if name not in curves]:
        raise ValueError(f"'highlight' {where} must hold names of 'curves', got {missing[0]!r}")
    ax = new_axes(ax, (7, 4.2))
    for name in sorted(curves, key=lambda name: name in bright):
        runs = curves[name]
        n = min(len(run.f1) for run in runs)
        x = np.mean([getattr(run, by)[:n] for run in runs], axis=0)
        values = 100 * np.array([run.f1[:n] for run in runs])
        if name not in bright:
            ax.plot(x, values.mean(0), color=_ink(ax), linewidth=0.9, alpha=0.8)
            continue
        colour = COLOURS[bright.index(name) % len(COLOURS)]
        ax.plot(x, values.mean(0), color=colour, label=name)
        if len(runs) > 1:
            ax.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
    if target is not None:
        ax.axhline(100 * target, color=_ink(ax), linestyle=(0, (4, 3)), linewidth=1)
        place = (0.0, 100 * target)
        ax.annotate(
            f"{100 * target:.4g}",
            place,
            xycoords=ax.get_yaxis_transform(),
            xytext=(4, 3),
            textcoords="offset points",
            color=_ink(ax),
        )
    last = max(np.max(line.get_xdata()) for line in ax.get_lines())  # those of earlier calls too
    ax.set(xlabel=f"labelled {by}", ylabel="F1, %")
    ax.set_xlim(0 if ax.get_xscale() == "linear" else None, last)
    name_lines(ax)
    return ax


def beams(history: Iterable[Progress], *, ax: Axes | None = None) -> Axes:
    """Labels in the beams over the iterations of training: the mean of all tokens, and the largest.

    Parameters
    ----------
    history : iterable of Progress
        What ``callback`` of an estimator was given, iteration by iteration.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from crfkit import CRF, plotting
    >>> from crfkit.data import load_corpus
    >>> X, y = load_corpus("ingredients", "train")
    >>> history = []
    >>> crf = CRF(beam="fixed:3", max_iter=12, callback=lambda progress, w: history.append(progress)).fit(X, y)
    >>> ax = plotting.beams(history)
    >>> ax.get_ylabel(), float(ax.get_ylim()[0])
    ('labels in the beam', 0.0)
    """
    history = list(history)
    for p in history:
        if not isinstance(p, Progress):
            raise TypeError(f"'history' of plotting.beams must hold what callback was given, got {type(p).__name__}")
    found = [(p.iteration, p.beams) for p in history]
    if not found or any(report is None for _, report in found):
        raise ValueError(
            "'history' of plotting.beams must come from training with a beam: it is empty, or has no beams"
        )
    ax = new_axes(ax, (6.4, 3.4))
    steps = [k for k, _ in found]
    for name, colour, attribute in (("largest", COLOURS[1], "largest"), ("average", COLOURS[0], "average")):
        sizes = [getattr(report, attribute) for _, report in found]
        ax.plot(steps, sizes, color=colour, label=name, drawstyle="steps-post")
    ax.set(xlabel="iteration", ylabel="labels in the beam", ylim=(0, None), xlim=(0, None))
    name_lines(ax)
    return ax


def _model(model: Any, where: str) -> ChainModel:
    found = getattr(model, "model_", None) if isinstance(model, ChainEstimator) else model
    if not isinstance(found, ChainModel):
        raise TypeError(f"plotting.{where} takes a fitted CRF, HMM or MEMM, or its model_, got {type(model).__name__}")
    return found
