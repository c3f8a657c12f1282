"""The command line: a module for each command."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
import typer.core

import crfkit
from crfkit.cli.active import app as active_app
from crfkit.cli.annotate import annotate
from crfkit.cli.classes import classes
from crfkit.cli.convert import convert
from crfkit.cli.demo import demo
from crfkit.cli.encode import encode
from crfkit.cli.evaluate import evaluate
from crfkit.cli.files import leave_pipes, say
from crfkit.cli.inspect import inspect
from crfkit.cli.options import OptionError
from crfkit.cli.tag import tag
from crfkit.cli.train import train
from crfkit.cli.tune import tune

__all__: list[str] = []


class _Failed(BaseException):
    """Carries what went wrong past click, which would take a closed pipe or Ctrl-C for its own."""


class _Commands(typer.core.TyperGroup):
    """The commands; :func:`main` is told what they raise."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as e:
            raise _Failed from e


app = typer.Typer(
    name="crfkit",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="Conditional random fields for sequences: train, tag, evaluate, inspect.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# short: a terminal of 80 columns must not cut them
app.command(short_help="Train a model on labelled data.")(train)
app.command(short_help="Label data.")(tag)
app.command(short_help="Encode data larger than memory, for training.")(encode)
app.command(short_help="Learn classes of words from text without labels.")(classes)
app.command(short_help="Find the best regularisation by cross-validation.")(tune)
app.command("eval", short_help="Score predictions.")(evaluate)
app.command(short_help="Show a model, or explain its decisions.")(inspect)
app.command(short_help="Convert models between tools.")(convert)
app.command(short_help="Label text on a page that learns from the answers.")(annotate)
app.command(short_help="Train on an embedded sample and show what was learned.")(demo)
app.add_typer(active_app)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"crfkit {crfkit.__version__} ({crfkit._core.instruction_set()} kernels)")
        raise typer.Exit


def main() -> None:
    """Runs the command line; faults end with one line: exit code 2 for options, 1 for all else."""
    _open_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except _Failed as failed:
        e = failed.__cause__
    except Exception as other:
        e = other
    leave_pipes()
    if isinstance(e, BrokenPipeError):
        sys.exit(128 + 13)  # as a tool that SIGPIPE ends
    if isinstance(e, KeyboardInterrupt):
        say("crfkit: interrupted")
        sys.exit(130)
    if isinstance(e, MemoryError) or any(text in str(e) for text in _NO_MEMORY):
        say("crfkit: error: there is not enough memory")
    elif isinstance(e, OSError) and e.errno == errno.EBADF and not e.filename:
        say("crfkit: error: standard output is closed")
    elif isinstance(e, OSError):
        say(f"crfkit: error: {e.strerror or e}{f': {e.filename}' if e.filename else ''}")
    elif isinstance(e, ValueError):
        say(f"crfkit: error: {e}")
    elif e is not None:
        raise e
    sys.exit(2 if isinstance(e, OptionError) else 1)


#: What else is said where memory ends: by the loader of libraries, and when a thread begins.
_NO_MEMORY = ("failed to map segment", "start new thread", "Cannot allocate memory")


def _open_streams() -> None:
    """Streams that were closed (``>&-``) become ones that fail when written to; messages then go nowhere."""
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flags)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
