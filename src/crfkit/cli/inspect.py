"""``crfkit inspect``: models, and their decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crfkit.base.files import whole_file
from crfkit.base.messages import counted
from crfkit.cli.files import Reading, check_output, emit, encoded, is_segments, load_chain, read_pieces
from crfkit.cli.options import EncodingOption, JsonOption, OptionError
from crfkit.data import Blocks, DataError
from crfkit.data.blocks import is_block_file
from crfkit.estimators import CRF, HMM
from crfkit.model.chain_model import StateWeight

_WIDEST = 1 << 20  # characters of a table


def inspect(
    model: Annotated[Path | None, typer.Argument(help="The model file, or a block file.")] = None,
    model_file: Annotated[
        Path | None, typer.Option("--model", "--model-file", "-m", help="The model file, in place of the argument.")
    ] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Number of weights to show.")] = 10,
    label: Annotated[str | None, typer.Option(help="Show this label only.")] = None,
    table_too: Annotated[
        bool, typer.Option("--table", help="Show the full transition table, for any number of labels.")
    ] = False,
    all_weights: Annotated[
        bool, typer.Option("--all", help="Print every weight, one per line, tab-separated.")
    ] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Label this data and explain the label of each token.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the explanation as HTML to this file.")] = None,
    encoding: EncodingOption = "utf-8",
    json: JsonOption = False,
) -> None:
    """Show a model's summary, its largest weights for each label and its transitions, or explain its decisions.

    Of a block file, show what it holds.
    """
    if (model is None) == (model_file is None):
        raise OptionError("give one model file: crfkit inspect MODEL, or --model MODEL")
    model = model or model_file
    assert model is not None
    if html is not None and explain is None:
        raise OptionError("--html needs --explain")
    check_output("--html", html, model, explain)
    if is_block_file(model):
        _show_blocks(Blocks(model), explain, json)
        return
    loaded = load_chain(model)
    m = loaded.model_
    if explain is not None:
        _explain(loaded, encoded(explain, encoding), top, html, json)
        return
    distinct = list(dict.fromkeys(m.labels))
    states = m.labels if is_segments(loaded) else m.state_names
    if label is not None and label not in (*distinct, *states):
        known = ", ".join(map(str, distinct))
        raise DataError(f"{model}: the model has no label {label!r}: it has {known}")
    table = m.transition_table()
    if all_weights:
        for w in m.state_weights(label=label):
            print(f"{w.attribute}\t{w.label}\t{w.weight:.17g}")
        for i, a in enumerate(states):
            for j, b in enumerate(states):
                print(f"{a}\t{b}\t{table[i, j]:.17g}")
        for e in m.edge_weights():
            print(f"{e.attribute}\t{e.label}\t{e.following}\t{e.weight:.17g}")
        for t in m.longest_weights():
            print("\t".join([t.attribute or "", *map(str, t.labels), f"{t.weight:.17g}"]))
        return
    chosen = distinct if label is None else [label]
    if json:
        finite = [[None if np.isinf(x) else float(x) for x in row] for row in table]
        weights = {str(x): [[_name(w, x), w.weight] for w in m.state_weights(top, x)] for x in chosen}
        edges = [[e.attribute, str(e.label), str(e.following), e.weight] for e in m.edge_weights(top)]
        record = {"card": m.card(), "weights": weights, "transitions": finite, "transition_attributes": edges}
        if m.card().get("order", 1) > 1:
            record["tuples"] = [[t.attribute, [str(x) for x in t.labels], t.weight] for t in m.longest_weights(top)]
        emit(record)
        return
    console = Console(highlight=False, soft_wrap=True)
    _show_card(console, model, m)
    for x in chosen:
        console.print(f"\nlargest weights for [bold]{escape(str(x))}[/bold]", markup=True)
        for w in m.state_weights(top, x):
            console.print(f"  {w.weight:+9.4f}  {_name(w, x)}", markup=False)
    if m.encoder.n_attributes[1]:
        console.print("\nlargest transition attributes")
        for e in m.edge_weights(top):
            console.print(f"  {e.weight:+9.4f}  {e.label} -> {e.following}  {e.attribute}", markup=False)
    tuples = m.longest_weights(top)
    if tuples:
        console.print("\nlargest weights for three or more labels in a row")
    for t in tuples:
        labels = " -> ".join(map(str, t.labels))
        console.print(f"  {t.weight:+9.4f}  {labels}  {t.attribute or ''}".rstrip(), markup=False)
    _show_transitions(console, [str(x) for x in states], table, len(states) <= 12 or table_too, top)


def _name(w: StateWeight, label: Any) -> str:
    """An attribute among those of a label, with the hidden state, or the first or last token, that the weight is of."""
    return w.attribute if w.label == str(label) or w.label == label else f"{w.label}: {w.attribute}"


def _explain(crf: Any, data: str, top: int, page: Path | None, as_json: bool) -> None:
    if isinstance(crf, HMM):
        crf = CRF.from_hmm(crf)
    if not isinstance(crf, CRF) and not is_segments(crf):
        raise DataError(
            "--explain is for CRFs, HMMs and segments: the weights of a MEMM act through every step's normalisation"
        )
    if is_block_file(data):
        raise DataError(f"--explain needs text: {data} is a block file")
    views = []
    for _, X in read_pieces(data, Reading.of_model(crf)):
        for x in X:
            found = crf.explain(x)
            if page is not None:
                views.append(found.to_html(top))
            elif as_json:
                emit(found.to_dict())
            else:
                print(found.to_text(top), end="\n\n")
    if page is not None:
        head = '<!doctype html><meta charset="utf-8"><title>crfkit</title>'
        with whole_file(page, "w", encoding="utf-8") as file:
            file.write(f"{head}<body>{'<hr>'.join(views)}</body>")


def _show_blocks(blocks: Blocks, explain: str | None, as_json: bool) -> None:
    """What a block file holds."""
    if explain is not None:
        raise DataError(f"--explain needs a model: {blocks.path} is a block file")
    sizes = {"sequences": len(blocks), "tokens": blocks.n_tokens, "attributes": blocks.n_attributes}
    more = {"features": blocks.features, "hash_bits": blocks.hash_bits, "min_freq": blocks.min_freq}
    more |= {"weights": blocks.weights is not None, "unknown_labels": blocks.n_unknown}
    if as_json:
        emit({"blocks": blocks.path, "labels": list(blocks.classes), **sizes, **more})
        return
    rows = {
        "block file": blocks.path,
        "labels": _listed([str(x) for x in blocks.classes]),
        **{name: f"{n:,}" for name, n in sizes.items()},
        "features": more["features"],
        **({} if blocks.hash_bits is None else {"hash bits": blocks.hash_bits}),
        "min-freq": f"{blocks.min_freq:g}",
        "weights": "of sequences" if more["weights"] else "none",
        "unknown": f"labels of {counted(blocks.n_unknown, 'token', ',')}",
    }
    for name, value in rows.items():
        print(f"{name:12} {value}")


def _listed(names: list[str]) -> str:
    """The first dozen names, and how many there are."""
    return ", ".join(names[:12]) + (f", ... ({len(names)})" if len(names) > 12 else "")


def _show_card(console: Console, path: Path, m: Any) -> None:
    card = m.card()
    longer = "order" in card
    rows = {
        "model": str(path),
        "labels": _listed(card["labels"]),
        **({"order": f"{card['order']}, {card['label_tuples']:,} runs of three or more labels"} if longer else {}),
        "features": card["features"] + " (not stored)" * card["features"].startswith("function "),
        "attributes": f"{card['attributes']:,}",
        "weights": f"{card['weights']:,} ({card['active_weights']:,} not zero)",
        "constraints": "yes" if card["constraints"] else "no",
    }
    info = card["training"]
    if {"tokens", "sequences", "iterations", "stopped", "objective"} <= info.keys():
        rows["trained on"] = f"{counted(info['sequences'], 'sequence', ',')}, {counted(info['tokens'], 'token', ',')}"
        course = f"after {counted(info['iterations'], 'iteration')} ({info['stopped']})"
        if info.get("reason") == "max_iter":  # which the message says with their number
            course = f"({info['stopped']})"
        rows["objective"] = f"{info['objective']:.4f} {course}"
    parameters = card["parameters"]
    if "smoothing" in parameters:
        transitions = parameters.get("transition_smoothing")
        rows["smoothing"] = f"emissions {parameters['smoothing']}, transitions {transitions}"
    elif "c2" in parameters:
        rows["penalty"] = f"c1 {parameters.get('c1')}, c2 {parameters.get('c2')}"
    for name, value in rows.items():
        console.print(f"{name:12} {value}", markup=False)


def _show_transitions(console: Console, labels: list[str], table: Any, whole: bool, top: int) -> None:
    if not table.any():  # transitions look at the input alone
        return
    if whole:
        view = Table(title="\ntransitions (row, then column)", title_justify="left", box=None, pad_edge=False)
        view.add_column("")
        for name in labels:
            view.add_column(escape(name), justify="right")
        for name, row in zip(labels, table, strict=True):
            view.add_row(escape(name), *("-" if np.isinf(x) else f"{x:+.2f}" for x in row))
        # as wide as it is, for a file or a pager, rather than cut
        wide = console.measure(view, options=console.options.update(width=_WIDEST)).maximum
        Console(highlight=False, width=max(console.width, wide)).print(view)
        return
    likely = bool((table <= 0).all())  # an HMM's: logarithms of probabilities
    console.print("\nlikeliest transitions" if likely else "\nlargest transitions")
    order = np.argsort(-table if likely else -np.where(np.isinf(table), 0, np.abs(table)), axis=None)[: 2 * top]
    for k in order:
        i, j = divmod(int(k), len(labels))
        console.print(f"  {table[i, j]:+9.4f}  {labels[i]} -> {labels[j]}", markup=False)
