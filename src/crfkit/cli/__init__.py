"""The command line: a module for each command."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import crfkit
from crfkit.cli.files import leave_pipes, say
from crfkit.cli.options import OptionError, in_shell
from crfkit.data import DataError

__all__: list[str] = []

#: The module and the function of every command, and what it does: short, so that a terminal of 80 columns cuts nothing.
COMMANDS = {
    "train": ("train", "train", "Train a model on labelled data."),
    "tag": ("tag", "tag", "Label data."),
    "encode": ("encode", "encode", "Encode data larger than memory, for training."),
    "classes": ("classes", "classes", "Learn classes of words from text without labels."),
    "tune": ("tune", "tune", "Find the best regularisation by cross-validation."),
    "eval": ("evaluate", "evaluate", "Score predictions."),
    "inspect": ("inspect", "inspect", "Show a model, or explain its decisions."),
    "convert": ("convert", "convert", "Convert models between tools."),
    "annotate": ("annotate", "annotate", "Label text on a page that learns from the answers."),
    "demo": ("demo", "demo", "Train on an embedded sample and show what was learned."),
    "active": ("active", "app", "Write a batch to label, then add the answers."),
}


#: What pydantic, which checks options for typer, says, and what is said in its place.
_PLAIN = {"Value error, ": "", "Input should be ": "must be "}


class _Failed(BaseException):
    """Carries what went wrong past click, which would take a closed pipe or Ctrl-C for its own."""


class _Commands(typer.core.TyperGroup):
    """The commands, imported when they are called; :func:`main` is told what they raise."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        if cmd_name not in COMMANDS:
            return None
        module, function, short = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"crfkit.cli.{module}"), function)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(cmd_name, short_help=short)(found)
            found = alone
        return typer.main.get_command(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists them, with nothing imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, _, short) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as e:
            raise _Failed from e
        except typer.BadParameter as e:
            for theirs, ours in _PLAIN.items():
                e.message = e.message.replace(theirs, ours)
            raise
        except ValueError as e:
            if len(e.args) == 1 and ctx.invoked_subcommand and not isinstance(e, DataError):  # it may quote data
                e.args = (in_shell(str(e), self.get_command(ctx, ctx.invoked_subcommand)),)
            raise


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
