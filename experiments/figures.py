"""Draws the figures of docs/ from the numbers that experiments wrote, without running them again.

    python experiments/figures.py [NAME ...]

Numbers are in experiments/numbers/NAME.json; the experiment of that name writes them. Without names, all are drawn.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from machine import measured
from matplotlib import pyplot as plt

from crfkit import plotting
from crfkit.active import LearningCurve
from crfkit.plotting import COLOURS, INK, contrast, name_lines

LIGHT, DARK = "#ffffff", "#14181e"  # pages
NUMBERS = Path(__file__).parent / "numbers"
DOCS = Path(__file__).parents[1] / "docs"
STYLE: Any = {**plotting.STYLE, "axes.prop_cycle": cycler(color=COLOURS)}


def numbers(name: str) -> Any:
    """What an experiment wrote."""
    return json.loads((NUMBERS / f"{name}.json").read_text(encoding="utf-8"))


def keep(name: str, found: Any) -> None:
    """Writes the numbers of an experiment, where and when they were measured, and draws its figure."""
    NUMBERS.mkdir(exist_ok=True)
    origins = numbers("measured") | {name: measured()}
    (NUMBERS / "measured.json").write_text(json.dumps(origins, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(origins[name])
    (NUMBERS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draw(name)


def save(figure: Any, file: str) -> None:
    """Into docs/experiments, or docs/images if the name says so; the same picture is the same file."""
    path = DOCS / file if "/" in file else DOCS / "experiments" / file
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=180, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    if path.suffix == ".svg":
        two_themes(path)


def readable(colour: str, page: str) -> str:
    """The colour, as much darker (or lighter on a dark page) as text in it needs for a contrast of 4.5."""
    to = np.array([0.0, 0.0, 0.0] if contrast(page, "white") < contrast(page, "black") else [1.0, 1.0, 1.0])
    mixed = (mpl.colors.to_hex(a * to + (1 - a) * np.array(mpl.colors.to_rgb(colour))) for a in np.linspace(0, 1, 101))
    return next(c for c in mixed if contrast(c, page) >= 4.55)


def themes() -> str:
    """The style of an SVG whose text is darker on light pages and lighter on dark ones; lines are the same on both."""
    rules = {
        page: "".join(
            f'[id^="text_"]>[style*="{c}"],text[fill="{c}"]{{fill:{readable(c, page)}!important}}'
            for c in (INK, *COLOURS)
        )
        for page in (LIGHT, DARK)
    }
    return f"<style>{rules[LIGHT]}@media(prefers-color-scheme:dark){{{rules[DARK]}}}</style>"


def night() -> str:
    """The style of an SVG with a heat map: on dark pages its cells darken, instead of whiten, towards nothing.

    The map of colours is affine; white text can be read on the darkest orange and blue, and on all between.
    """
    day = np.array([mpl.colors.to_rgb(c) for c in ("white", *COLOURS[:2])])
    dark = np.array([mpl.colors.to_rgb(c) for c in (DARK, *(readable(c, "white") for c in COLOURS[:2]))])
    matrix = np.linalg.lstsq(np.c_[day, np.zeros(3), np.ones(3)], dark, rcond=None)[0].T
    rows = " ".join(f"{x:.4f}" for x in np.r_[matrix, [[0, 0, 0, 1, 0]]].ravel())
    colours = f'<filter id="night" color-interpolation-filters="sRGB"><feColorMatrix values="{rows}"/></filter>'
    rules = 'image{filter:url(#night)}[id^="text_"]>g:not([style*="#"]){fill:#fff}'  # which were black
    return f"{colours}<style>@media(prefers-color-scheme:dark){{{rules}}}</style>"


def two_themes(path: Path) -> None:
    """Gives such styles to an SVG of matplotlib."""
    svg = path.read_text(encoding="utf-8")
    style = themes() + night() * ("<image" in svg)
    path.write_text(svg.replace(" <defs>", f" {style}\n <defs>", 1), encoding="utf-8")


def plain_ticks(axis: Any, at: list[float]) -> None:
    """Ticks where the points are, as plain numbers, on an axis that may be logarithmic."""
    axis.set_ticks(at, [f"{x:,g}" for x in at])
    axis.set_minor_locator(mpl.ticker.NullLocator())


def active(corpus: str) -> None:
    """Six of the strategies; the tokens are logarithmic, so that lines apart by as much save the same fraction."""
    found = numbers(f"active.{corpus}")
    shown = ["random", "sequence_entropy", "least_confidence", "least_confidence, per token", "margin"]
    curves = {
        name: [LearningCurve(np.array(a), np.array(b), np.array(c), []) for a, b, c in found["curves"][name]]
        for name in [*shown, "span queries (1 to 5 tokens)"]
    }
    figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
    ax.set_xscale("log")
    plain_ticks(ax.xaxis, [1000, 2000, 5000, 10000, 20000, 50000])
    plotting.learning_curve(curves, target=found["target"], ax=ax)
    ax.set_xlabel("labelled tokens (logarithmic)")
    save(figure, f"active.{corpus}.svg")


def costs(file: str, panels: list[tuple[str, str, list[Any]]], names: list[str], up: str) -> None:
    """Milliseconds over the sizes of several panels, all axes logarithmic; points are (size, ms of each name)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(8, 3.4), layout="constrained", sharey=True)
    for ax, (across, _, points) in zip(axes, panels, strict=True):
        x = [p[0] for p in points]
        for k, name in enumerate(names):
            last = ax is axes[-1]
            ax.loglog(x, [p[1 + k] for p in points], marker="o", markersize=4, label=name if last else f"_{name}")
        plain_ticks(ax.xaxis, x)
        ax.set_xlabel(across)
    axes[0].set_ylabel(up)
    name_lines(axes[-1])
    save(figure, file)


def entropy_cost() -> None:
    """Likelihood, entropy gradient, and the quadratic form, over length and labels."""
    found = numbers("entropy_cost")
    panels = [("length (22 labels)", "length", found["length"]), ("labels (length 40)", "labels", found["labels"])]
    costs("entropy_cost.svg", panels, ["marginals", "entropy gradient", "O(n²s³) form"], "ms per sequence")


def backward() -> None:
    """Gradients by backward passes alone, and by forward-backward."""
    found = numbers("backward")
    panels = [(f"{what}", what, found[what]) for what in ("labels", "attributes")]
    costs("backward.svg", panels, ["backward only", "forward-backward"], "ms per gradient")


def label_bias() -> None:
    """Errors over noise."""
    found = numbers("label_bias")
    figure, ax = plt.subplots(figsize=(6.6, 3.5), layout="constrained")
    x = [100 * float(noise) for noise in found]
    for k, (name, style) in enumerate({"CRF": "-", "HMM": "--", "MEMM": "-"}.items()):
        width = 3.2 if name == "CRF" else 1.8  # the two lie on each other
        rows = [100 * row[name] for row in found.values()]
        ax.plot(x, rows, style, color=COLOURS[k], linewidth=width, label=name, marker="o", markersize=4)
    ax.set(xlabel="noise: wrong letters, %", ylabel="wrong labels, %", xlim=(0, None), ylim=(0, None))
    name_lines(ax)
    save(figure, "label_bias.svg")


def ocr_letters() -> None:
    """A dot for every fold, a bar for the mean."""
    found = numbers("ocr_letters")
    figure, ax = plt.subplots(figsize=(6.6, 2.6), layout="constrained")
    for k, (name, row) in enumerate(found.items()):
        values, mean = row["accuracy"], float(np.mean(row["accuracy"]))
        colour = COLOURS[name.startswith("neural")]
        ax.plot(values, [k] * len(values), "o", color=colour, markersize=5, alpha=0.5, markeredgewidth=0)
        ax.plot([mean, mean], [k - 0.3, k + 0.3], color=colour)
        ax.annotate(f"{mean:.1f}", (mean, k - 0.32), ha="center", va="bottom", fontsize=9, color=colour)
    ax.set_yticks(range(len(found)), list(found))
    ax.set(ylim=(len(found) - 0.5, -0.8), xlabel="letters right, %: ten folds and their mean", xlim=(78, 95))
    ax.grid(visible=False, axis="y")
    save(figure, "ocr_letters.png")


def treewidth() -> None:
    """Seconds of exact inference, seen and predicted; the error of loopy belief propagation."""
    found = numbers("treewidth")
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
    for k, (labels, rows) in enumerate(found["rows"].items()):
        x = [r["treewidth"] for r in rows]
        left.semilogy(x, [found["rate"] * r["entries"] for r in rows], color=COLOURS[k], label=f"{labels} labels")
        left.semilogy(x, [r["seconds"] for r in rows], "o", color=COLOURS[k], label="_", markersize=4)
        right.plot(x, [r["error"] for r in rows], "o-", color=COLOURS[k], label=f"{labels} labels", markersize=4)
    left.set(xlabel="treewidth", title="exact, CPU s: measured (dots), predicted (lines)", ylim=(4e-7, 2))
    right.set(xlabel="treewidth", title="loopy: largest error of a probability", ylim=(0, None))
    for ax in (left, right):
        ax.set_xlim(0, None)
        ax.xaxis.set_major_locator(mpl.ticker.MultipleLocator(5))
        name_lines(ax)
    save(figure, "treewidth.svg")


def sparse_decoding() -> None:
    """Average beams over the size of the alphabet, beside the paper's, which leaves that size open."""
    found = numbers("sparse_decoding")
    figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
    symbols = [int(s) for s in found["beams"]]
    aside = symbols[0] / 2.5
    for k, name in enumerate(found["paper"]):
        ax.plot(symbols, [row[name] for row in found["beams"].values()], "o-", color=COLOURS[k], label=name)
        paper = found["paper"][name]  # a number, or a range
        ax.plot([aside] * len(paper), paper, "D-", color=COLOURS[k], markersize=6, linewidth=4)
    ax.axvline(symbols[0] / 1.6, color=INK, linewidth=0.8)
    ax.set(xscale="log", xlabel="symbols (logarithmic)", ylabel="labels in the average beam", ylim=(0, None))
    ax.set_title("Smallest beams that find all of the best paths")
    ax.xaxis.set_ticks([aside, *symbols], ["paper", *(f"{s:,}" for s in symbols)])
    ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    name_lines(ax)
    save(figure, "sparse_decoding.svg")


def sparse_training(data: str) -> None:
    """Seconds of training as bars, with the accuracy at the end."""
    found = numbers(f"sparse_{data}")
    unit = "CPU seconds" if f"sparse_{data}" in numbers("measured") else "seconds"  # older runs were timed by the clock
    figure, ax = plt.subplots(figsize=(7, 0.8 + 0.34 * len(found)), layout="constrained")
    for k, row in enumerate(found):
        colour = COLOURS[1] if "sgd" in row["method"] else COLOURS[0]
        ax.barh(k, row["seconds"], color=colour, height=0.68)
    texts = [f"{row['seconds']:.3g} s, accuracy {row['accuracy']:.2f}" for row in found]
    end_bars(ax, range(len(found)), [row["seconds"] for row in found], texts)
    ax.set_yticks(range(len(found)), [row["method"] for row in found])
    ax.invert_yaxis()
    colours = "blue: L-BFGS, orange: SGD" if any("sgd" in row["method"] for row in found) else "L-BFGS"
    ax.set(xlabel=f"{unit} of training ({colours})", xlim=(0, 1.35 * max(r["seconds"] for r in found)))
    save(figure, f"sparse_{data}.svg")


def optimizers() -> None:
    """Distance to the optimum over processor seconds, and the seconds until F1 on the test set is 93.5."""
    found = numbers("optimizers")
    best = min(p["value"] for p in found["lbfgs"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.2), layout="constrained", width_ratios=(1.35, 1))
    convex = [name for name in found if name not in ("ap", "pa", "arow")]
    for k, name in enumerate(convex):
        away = [(p["cpu"], p["value"] / best - 1) for p in found[name] if p["value"] > best]
        left.plot(*zip(*away, strict=True), color=COLOURS[k], label=name)
    left.axhline(1e-3, color=INK, linewidth=1, linestyle=":")
    left.set(yscale="log", ylim=(1e-6, 100), xlim=(0, None), xlabel="CPU seconds")
    left.set_title("objective / optimum − 1 (optimum: where lbfgs ends)")
    name_lines(left)
    reached = {name: next((p["cpu"] for p in found[name] if p["f1"] >= 0.935), None) for name in found}
    order = sorted(found, key=lambda name: reached[name] or 1e9)
    for k, name in enumerate(order):
        seconds, most = reached[name], 100 * max(p["f1"] for p in found[name])
        colour = COLOURS[convex.index(name)] if name in convex else INK
        right.barh(k, seconds or 0, color=colour, height=0.62)
        text = f"never: at most {most:.1f}" if seconds is None else f"{seconds:.2g} s"
        right.annotate(text, (seconds or 0, k), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    right.set_yticks(range(len(order)), order)
    right.invert_yaxis()
    right.grid(visible=False)
    right.tick_params(axis="y", length=0)
    last = max(seconds for seconds in reached.values() if seconds)
    right.set(title="CPU seconds until test F1 is 93.5", xlim=(0, 1.2 * last), xlabel="CPU seconds")
    save(figure, "optimizers.svg")


def semi_supervised(corpus: str) -> None:
    """What unlabelled sequences gain or cost, for each weight of their entropy; points of a fraction stand abreast."""
    found = numbers(f"semi_supervised.{corpus}")
    supervised = found.pop("supervised")
    figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    ax.axhline(0, color=INK, linewidth=1)
    for k, (weight, gains) in enumerate(found.items()):
        x = [100 * float(fraction) + 0.25 * (k - 1) for fraction in gains]
        mean, spread = np.array(list(gains.values())).T
        ax.errorbar(x, mean, spread, marker="o", markersize=4, capsize=3, color=COLOURS[k], label=f"_{weight}")
        ax.plot(x, mean, color=COLOURS[k], label=f"weight {weight}")
    x = [100 * float(fraction) for fraction in supervised]
    names = [f"{percent:g}%\nF1 {row[0]:.1f}" for percent, row in zip(x, supervised.values(), strict=True)]
    ax.set_xticks(x, names)
    ax.set(xlabel="labelled sequences, and F1 of supervised training", ylabel="gain, points of F1", xlim=(1, 10.35))
    name_lines(ax)
    save(figure, f"semi_supervised.{corpus}.svg")


def few_labels() -> None:
    """F1 over labelled sentences, and what each recipe gains over words alone."""
    curves = {
        name: {int(n): np.mean(f1) for n, f1 in rows.items()} for name, rows in numbers("few_labels.curve").items()
    }
    words = curves.pop("words alone")
    gains = {name: {n: f1 - words[n] for n, f1 in rows.items()} for name, rows in curves.items()}
    trained = {
        n: numbers("few_labels")[f"conll2000 {n}"] for n in ("2%", "5%")
    }  # their first draw is that of the curves
    gains["classes and self-training"] = {  # of the first draw, which is that of the curves
        round(8936 * float(n[:-1]) / 100): rows["brown and spectral, self-training"][0] - rows["words"][0]
        for n, rows in trained.items()
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4), layout="constrained", width_ratios=(1, 1.25))
    for k, (name, rows) in enumerate({"classes": curves["classes"], "words alone": words}.items()):
        left.plot(
            list(rows), list(rows.values()), "o-", markersize=4, color=(COLOURS[0], INK)[k], label=name, clip_on=False
        )
    for k, (name, rows) in enumerate(gains.items()):
        style = "o--" if name == "classes and constraints" else "o-"
        name = name.replace("classes, ", "with ").replace("classes and", "with")
        right.plot(list(rows), list(rows.values()), style, markersize=4, color=COLOURS[k], label=name, clip_on=False)
    left.set(title="F1 on the test set")
    right.set(title="gain of classes over words alone, points of F1", ylim=(0, None))
    for ax in (left, right):
        ax.set(xscale="log", xlabel="labelled sentences (logarithmic)", xlim=(None, 5000))
        plain_ticks(ax.xaxis, [50, 150, 500, 1500, 5000])
        name_lines(ax)
    save(figure, "few_labels.svg")


def snips() -> None:
    """F1 on the validation set over passes, a line for every run; beside them, F1 on the test set."""
    runs = numbers("snips")
    figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
    n = len(runs[0]["history"])
    for k, name in enumerate(("CRF", "softmax")):
        found = [r for r in runs if r["model"] == name]
        for r in found:
            ax.plot(range(1, n + 1), r["history"], color=COLOURS[k], linewidth=1, label=f"_{name}")
        ax.plot([n + 3] * len(found), [r["f1"] for r in found], "o", color=COLOURS[k], markersize=5, label=name)
    ax.axvline(n + 1.5, color=INK, linewidth=0.8)
    ax.set(xlabel="pass: F1 on the validation set", ylabel="slot F1, %", ylim=(65, 95), xlim=(0, n + 4))
    ax.set_xticks([*range(0, n + 1, 5), n + 3], [*map(str, range(0, n + 1, 5)), "test set"])
    name_lines(ax)
    save(figure, "snips.svg")


def joint() -> None:
    """Errors as bars from zero, in groups by the number of training sentences."""
    rows = numbers("joint")
    panels = {"pos": "wrong POS tags, %", "f1": "100 − chunk F1", "joint": "tokens with a wrong label, %"}
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 4.4), layout="constrained", sharey=True)
    sizes = list(dict.fromkeys(r["size"] for r in rows))
    y = [k + 1.2 * sizes.index(r["size"]) for k, r in enumerate(rows)]
    for ax, (key, title) in zip(axes, panels.items(), strict=True):
        wrong = [100 - 100 * r[key] for r in rows]
        ax.barh(y, wrong, color=[COLOURS[r["name"].startswith("factorial")] for r in rows], height=0.7)
        end_bars(ax, y, wrong, [f"{x:.1f}" for x in wrong])
        ax.set(title=title, xlim=(0, 27))
    axes[0].set_yticks(y, [r["name"] for r in rows])
    axes[0].set_ylim(y[-1] + 0.8, -1.6)
    for size in sizes:
        first = next(at for at, r in zip(y, rows, strict=True) if r["size"] == size)
        text = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontweight": "bold", "fontsize": 9}
        axes[0].annotate(f"{size:,} sentences", (0, first - 0.9), **text)
    save(figure, "joint.svg")


def end_bars(ax: Any, y: Any, lengths: Any, texts: list[str]) -> None:
    """Writes a text at the end of every bar, which needs no grid then."""
    for at, length, text in zip(y, lengths, texts, strict=True):
        ax.annotate(text, (length, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.grid(visible=False)
    ax.tick_params(axis="y", length=0)


#: What a cell shows: where the snake goes on.
ARROWS = {(255, 0, 0): "↑", (0, 255, 0): "↓", (255, 255, 0): "→", (0, 255, 255): "←", (0, 0, 255): ""}
#: Colours of the parts of a snake, from 1 to 10: light enough for black numbers.
PARTS = mpl.colormaps["viridis"](np.linspace(0.55, 1, 10))


def snakes() -> None:
    """Two test grids as they are, and as the models without and with edges number them."""
    found = numbers("snakes")
    names = list(found["models"])
    figure, axes = plt.subplots(2, 2 + len(names), figsize=(8, 4.6), layout="constrained", height_ratios=(1.5, 1))
    for row, grid in zip(axes, found["grids"], strict=True):
        truth = np.array(grid["truth"])
        arrows = [[ARROWS[tuple(cell)] for cell in cells] for cells in grid["seen"]]
        show_snake(row[0], -truth, arrows, np.zeros_like(truth))
        for ax, name in zip(row[1:], ["truth", *names], strict=True):
            labels = np.array(grid[name])
            show_snake(ax, labels, np.where(labels, labels, ""), labels != truth)
    axes[0, 0].set_title("seen: where the\nsnake continues", fontsize=9)
    axes[0, 1].set_title("truth", fontsize=9)
    for ax, name in zip(axes[0, 2:], names, strict=True):
        ax.set_title(f"{name.replace(', ', ',' + chr(10))}\n{found['models'][name]:.1f}% of cells right", fontsize=9)
    save(figure, "snakes.svg")


def show_snake(ax: Any, labels: Any, texts: Any, wrong: Any) -> None:
    """Cells with texts, blue where labels are negative; wrong ones have a frame."""
    for (r, c), label in np.ndenumerate(labels):
        colour = PARTS[label - 1] if label > 0 else "#a9cbe6" if label else (*mpl.colors.to_rgb(INK), 0.18)
        ax.add_patch(mpl.patches.Rectangle((c - 0.5, r - 0.5), 1, 1, facecolor=colour, edgecolor="none"))
        ax.text(c, r, texts[r][c], ha="center", va="center", fontsize=9, color="black")
        if wrong[r, c]:
            frame = mpl.patches.Rectangle((c - 0.44, r - 0.44), 0.88, 0.88, fill=False, linewidth=2.5)
            frame.set_edgecolor(COLOURS[1])
            ax.add_patch(frame)
    height, width = labels.shape
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


def speed() -> None:
    """Crfkit beside other tools, for the front page: two tasks, each with an axis of its own that begins at zero."""
    found = numbers("speed")
    panels = [
        ("Training on CoNLL-2000, one thread", "CPU seconds per L-BFGS iteration", found["iteration"]),
        ("torch layer on a CPU, 64 × 128 tokens, 32 labels", "ms forward and backward", found["torch_cpu"]),
    ]
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.3), layout="constrained")
    for ax, (title, across, rows) in zip(axes, panels, strict=True):
        ours = rows["crfkit"]
        for k, (name, value) in enumerate(sorted(rows.items(), key=lambda item: item[1])):
            ax.barh(k, value, color=COLOURS[1] if name == "crfkit" else INK, height=0.62)
            times = "" if name == "crfkit" else f"   {value / ours:.0f}x"
            shown = f"{value:.2f}" if value < 1 else f"{value:.3g}"
            ax.annotate(f"{shown}{times}", (value, k), xytext=(4, 0), textcoords="offset points", va="center")
        ax.set_yticks(range(len(rows)), [name for name, _ in sorted(rows.items(), key=lambda item: item[1])])
        ax.invert_yaxis()
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, loc="left", fontsize=10)
        ax.set(xlabel=across, xlim=(0, 1.25 * max(rows.values())))
    save(figure, "images/speed.svg")


def entities() -> None:
    """The entities that the front page's lines find, each in a box with its label and probability."""
    hues = dict(zip(["QTY", "UNIT", "STATE", "NAME", "PREP", "NOTE", "SIZE"], [*COLOURS, "#5f7d99"], strict=True))
    hues = {
        label: readable(hue, LIGHT) for label, hue in hues.items()
    }  # white text has the contrast of the same on white
    parts, widest, y = [], 0.0, 8

    def write(x: float, y: float, size: float, colour: str, text: str) -> None:
        # the length is given, so that boxes fit whatever font there is
        wide = f'textLength="{0.6 * size * len(text):.1f}" lengthAdjust="spacingAndGlyphs"'
        parts.append(f'<text x="{x:.1f}" y="{y}" font-size="{size}" {wide} fill="{colour}">{text}</text>')

    for text, spans in numbers("entities"):
        x, at = 4.0, 0
        for a, b, label, p in [*spans, [len(text), len(text), "", 0]]:
            if between := text[at:a].strip():
                write(x - 5, y + 20, 17, INK, between)
                x += 10.2 * len(between) + 2
            if label:
                name = f"{label} {p:.2f}"
                width = max(10.2 * (b - a), 6.6 * len(name)) + 16
                box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="42" rx="6"'
                parts.append(f'<rect {box} fill="{hues[label]}"/>')
                write(x + 8, y + 19, 17, "#fff", text[a:b])
                write(x + 8, y + 35, 11, "#fff", name)
                x += width + 8
            at = b
        widest, y = max(widest, x), y + 54
    size = f'viewBox="0 0 {widest:.0f} {y}" width="{widest:.0f}" height="{y}"'
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace"'
    title = "<title>Entities found in raw text, with their labels and probabilities</title>"
    image = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{title}{themes()}{"".join(parts)}</svg>\n'
    (DOCS / "images").mkdir(exist_ok=True)
    (DOCS / "images" / "entities.svg").write_text(image, encoding="utf-8")


def gallery() -> None:
    """The pictures of docs/plotting.md, by its own lines."""
    page = (DOCS / "plotting.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # the date in an SVG: the same picture is the same file
    with contextlib.chdir(DOCS / "images"), mpl.rc_context({"svg.hashsalt": "crfkit", "savefig.facecolor": "none"}):
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(block, names)
    plt.close("all")
    for file in re.findall(r'savefig\("(.*\.svg)"\)', page):
        two_themes(DOCS / "images" / file)


FIGURES: dict[str, Callable[[], None]] = {
    "active.conll2000": lambda: active("conll2000"),
    "active.snips_slots": lambda: active("snips_slots"),
    "backward": backward,
    "entities": entities,
    "entropy_cost": entropy_cost,
    "few_labels": lambda: None,  # a table
    "few_labels.constraints": lambda: None,
    "few_labels.curve": few_labels,
    "gallery": gallery,
    "joint": joint,
    "label_bias": label_bias,
    "ocr_letters": ocr_letters,
    "optimizers": optimizers,
    **{f"semi_supervised.{x}": lambda x=x: semi_supervised(x) for x in ("conll2000", "bc2gm")},  # type: ignore[misc]
    "snakes": snakes,
    "snips": snips,
    "sparse_decoding": sparse_decoding,
    **{f"sparse_{x}": lambda x=x: sparse_training(x) for x in ("synthetic", "nettalk", "stress", "latvian", "brown")},  # type: ignore[misc]
    "speed": speed,
    "treewidth": treewidth,
}


def draw(name: str) -> None:
    """One figure."""
    with mpl.rc_context(STYLE):
        FIGURES[name]()


if __name__ == "__main__":
    mpl.use("Agg")
    for chosen in sys.argv[1:] or FIGURES:
        draw(chosen)
