"""The page of ``crfkit demo``: one HTML file without scripts or links, for light and dark screens."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crfkit import metrics
from crfkit.data.labels import Entity
from crfkit.estimators import CRF
from crfkit.model import Explanation
from crfkit.model.explaining import Decision, leading

#: Of the types of entities, in order: hues that colour-blind readers can tell apart, and names beside them.
HUES = ("#2b7bba", "#d9661f", "#1a9873", "#b0609f", "#a98600", "#8a6d5c", "#5f7d99")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5c6875; --page: #fff; --line: #dfe4ea; --text: #0b1622 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe5ec; --soft: #98a3b0; --page: #14181e; --line: #2c343e; --text: #fff }
}
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1.5rem }
h1 { margin: 0 } h2 { margin: 2.5rem 0 .5rem } h3 { margin: 1.4rem 0 .4rem; font-size: 1rem }
p { margin: .4rem 0; color: var(--soft) }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0 }
.cards div { border: 1px solid var(--line); border-radius: .6rem; padding: .6rem 1.2rem }
.cards b { display: block; font-size: 1.6rem } .cards span { color: var(--soft) }
.raw { font-size: 1.15rem; margin: .8rem 0 }
.raw mark { color: var(--text); border-radius: .35rem; padding: .15rem .45rem; margin: .1rem; line-height: 1.25;
  display: inline-flex; flex-direction: column; vertical-align: text-top;
  background: color-mix(in srgb, var(--hue) 32%, transparent) }
.raw mark small { font-size: .8rem; color: var(--soft); white-space: nowrap }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .85rem }
th { font-weight: 500; color: var(--soft); text-align: right; padding: .15rem .5rem; white-space: nowrap }
.heat td { min-width: 2.3rem; height: 1.7rem; text-align: center; border: 1px solid var(--page); padding: 0 }
.heat thead th { writing-mode: vertical-rl; transform: rotate(180deg); padding: .4rem 0; text-align: left }
.scores td { text-align: right; padding: .15rem .8rem; border-top: 1px solid var(--line) }
.scores svg { vertical-align: middle }
details { border-top: 1px solid var(--line); padding: .5rem 0 } summary { cursor: pointer }
.why td { padding: .1rem .5rem } .why td:nth-child(2) { text-align: right; font-variant-numeric: tabular-nums }
"""


def report_page(crf: CRF, texts: Sequence[Any], X: Any, y: Any) -> str:
    """Entities of raw sentences, scores on held-out data, confusions, transitions, and explained decisions."""
    found = crf.predict(X)
    report = metrics.evaluate(y, found)
    kinds = sorted(kind for kind in report.chunks or {} if kind)  # "" is all together
    hue = {kind: HUES[k % len(HUES)] for k, kind in enumerate(kinds)}
    labels, counts = metrics.confusion(y, found)
    summary = report.summary()
    cards = "".join(
        f"<div><b>{100 * summary[key]:.1f}</b><span>{name}</span></div>"
        for key, name in (
            ("f1", "F1 of entities, %"),
            ("precision", "precision, %"),
            ("recall", "recall, %"),
            ("accuracy", "token accuracy, %"),
            ("sequence_accuracy", "sequence accuracy, %"),
        )
    )
    entities = crf.predict_entities(texts)
    raw = "".join(_marked(x, spans, hue) for x, spans in zip(texts, entities, strict=True))
    names = list(crf.model_.labels)
    why = "".join(_why(crf.explain(x)) for x in texts[:3])
    body = f"""
<h1>crfkit demo</h1>
<p>A CRF with {crf.model_.layout.size:,} weights, trained on recipe ingredients in {crf.n_iter_} iterations, and
tested on {len(y)} lines that it has not seen.</p>
<div class="cards">{cards}</div>
<h2>Entities in raw text</h2><p>Each with its exact probability.</p>{raw}
<h2>Scores by type</h2><div class="scroll">{_scores(report, kinds, hue)}</div>
<h2>Confusion</h2><p>Rows are true labels, columns predicted ones, numbers are tokens.</p>
{_heat(labels, labels, counts / np.maximum(1, counts.sum(axis=1, keepdims=True)), _count_texts(counts))}
<h2>Transitions</h2><p>Weights from one label (row) to the next (column): orange for, blue against.</p>
{_transitions(names, crf.model_.transition_table())}
<h2>Why these labels?</h2><p>What each attribute and transition adds to the log-odds of the label over the runner-up.
Click a token.</p>{why}
"""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>crfkit demo</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>\n'


def _marked(tokens: Sequence[Any], entities: Iterable[Entity], hue: dict[str, str]) -> str:
    """A sentence with its entities marked."""
    source, at, parts = tokens[0].source, tokens[0].start, []
    for e in entities:
        assert e.char_start is not None
        assert e.char_end is not None
        parts.append(html.escape(source[at : e.char_start]))
        text = html.escape(source[e.char_start : e.char_end])
        name = f"<small>{html.escape(str(e.label))} {e.probability:.2f}</small>"
        parts.append(f'<mark style="--hue:{hue.get(str(e.label), HUES[-1])}">{text}{name}</mark>')
        at = e.char_end
    return f'<div class="raw">{"".join(parts)}{html.escape(source[at : tokens[-1].end])}</div>'


def _scores(report: metrics.Report, kinds: Sequence[str], hue: dict[str, str]) -> str:
    rows = ""
    for kind in kinds:
        s = (report.chunks or {})[kind]
        bar = f'<rect width="{160 * s.f1:.0f}" height="12" rx="3" fill="{hue[kind]}"/>'
        back = '<rect width="160" height="12" rx="3" fill="currentColor" opacity=".12"/>'
        rows += (
            f"<tr><th>{html.escape(kind)}</th><td>{100 * s.precision:.1f}</td><td>{100 * s.recall:.1f}</td>"
            f'<td>{100 * s.f1:.1f}</td><td><svg width="160" height="12">{back}{bar}</svg></td><td>{s.support}</td></tr>'
        )
    head = "<tr><th></th><th>precision</th><th>recall</th><th>F1</th><th></th><th>entities</th></tr>"
    return f'<table class="scores">{head}{rows}</table>'


def _count_texts(counts: Any) -> list[list[str]]:
    return [[str(n) if n else "" for n in row] for row in counts.tolist()]


def _transitions(names: Sequence[Any], table: Any) -> str:
    weights = np.where(np.isfinite(table), table, 0.0)
    strength = weights / (np.abs(weights).max() or 1.0)
    texts = [[f"{w:+.1f}" if abs(w) >= 0.05 else "" for w in row] for row in weights.tolist()]
    return _heat(names, names, strength, texts)


def _heat(rows: Sequence[Any], columns: Sequence[Any], values: Any, texts: list[list[str]]) -> str:
    """A table of coloured cells; values are from -1 (blue) to 1 (orange), or from 0 (blue) up."""
    signed = bool((values < 0).any())
    head = "".join(f"<th>{html.escape(str(x))}</th>" for x in columns)
    lines = ""
    for name, row, shown in zip(rows, values.tolist(), texts, strict=True):
        cells = ""
        for v, text in zip(row, shown, strict=True):
            hue = HUES[1] if signed and v > 0 else HUES[0]
            share = round(100 * min(1.0, abs(v)) ** 0.7)
            ink = ";color:#fff" if share > 70 else ""
            cells += f'<td style="background:color-mix(in srgb, {hue} {share}%, transparent){ink}">{text}</td>'
        lines += f"<tr><th>{html.escape(str(name))}</th>{cells}</tr>"
    return f'<div class="scroll"><table class="heat"><thead><tr><td></td>{head}</tr></thead>{lines}</table></div>'


def _why(explanation: Explanation) -> str:
    """The decisions of a sentence; the least certain is open."""
    least = min(explanation, key=lambda d: d.probability)
    words = html.escape(" ".join(str(d.token) for d in explanation))
    return f"<h3>{words}</h3>" + "".join(_decision(d, d is least) for d in explanation)


def _decision(d: Decision, shown: bool, top: int = 6) -> str:
    against = "" if d.runner_up is None else f" rather than {d.runner_up} ({d.runner_up_probability:.2f})"
    title = f"<b>{html.escape(str(d.token))}</b> is {html.escape(f'{d.label} ({d.probability:.2f}){against}')}"
    bars = leading(d, top)
    largest = max((abs(amount) for _, amount in bars), default=0.0) or 1.0
    rows = ""
    for name, amount in bars:
        width = 90 * abs(amount) / largest
        x, hue = (90, HUES[1]) if amount >= 0 else (90 - width, HUES[0])
        bar = f'<rect x="{x:.1f}" width="{width:.1f}" height="12" rx="2" fill="{hue}"/>'
        rows += (
            f'<tr><td><svg width="180" height="12">{bar}</svg></td><td>{amount:+.2f}</td>'
            f"<td>{html.escape(name)}</td></tr>"
        )
    return f'<details{" open" * shown}><summary>{title}</summary><table class="why">{rows}</table></details>'
