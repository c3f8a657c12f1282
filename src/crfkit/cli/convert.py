"""``crfkit convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crfkit.base.messages import counted
from crfkit.cli.files import busy, check_output, file_size, say
from crfkit.cli.options import FileKind, QuietOption


def convert(
    source: Annotated[Path, typer.Argument(help="A model file of CRFsuite, CRF++ (text), Wapiti or crfkit.")],
    target: Annotated[Path, typer.Argument(help="Where to write the model.")],
    to: Annotated[FileKind, typer.Option("--to", help="Format of the output.")] = FileKind.crfkit,
    quiet: QuietOption = False,
) -> None:
    """Convert a model of another tool to crfkit's format, or a crfkit model trained on items to CRFsuite's."""
    from crfkit.compat import convert_model, model_format

    check_output("TARGET", target, source)
    kind = model_format(source)
    with busy(f"converting {source}", quiet):
        model = convert_model(source, target, to.value, kind)
    if not quiet:
        sizes = {"label": len(model.labels), "attribute": model.encoder.n_attributes[0], "weight": model.layout.size}
        counts = ", ".join(counted(n, noun) for noun, n in sizes.items())
        say(f"{source} ({kind}): {counts}")
        say(f"wrote {target} ({to.value}, {file_size(target)})")
