"""The command line: a module for each command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import crfkit
from crfkit.cli.active import app as active_app
from crfkit.cli.convert import convert
from crfkit.cli.demo import demo
from crfkit.cli.evaluate import evaluate
from crfkit.cli.files import say
from crfkit.cli.inspect import inspect
from crfkit.cli.tag import tag
from crfkit.cli.train import train

__all__: list[str] = []

app = typer.Typer(
    name="crfkit",
    help="Conditional random fields for sequences: train, tag, evaluate, look inside.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(train)
app.command()(tag)
app.command("eval")(evaluate)
app.command()(inspect)
app.command()(convert)
app.command()(demo)
app.add_typer(active_app)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"crfkit {crfkit.__version__} ({crfkit._core.instruction_set()} kernels)")
        raise typer.Exit


def main() -> None:
    """Runs the command line; faults of the user's end with one line and exit code 1."""
    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        say("crfkit: interrupted")
        sys.exit(130)
    except (ValueError, OSError) as e:
        text = f"{e.strerror}: {e.filename}" if isinstance(e, OSError) and e.filename else str(e)
        say(f"crfkit: error: {text}")
        sys.exit(1)
