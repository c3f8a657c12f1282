"""The entry point of ``crfkit-wapiti``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from crfkit import _core
from crfkit.compat.text_models import read_wapiti_parts
from crfkit.compat.wapiti.labelling import label
from crfkit.compat.wapiti.models import dump_lines, save, updated
from crfkit.compat.wapiti.options import Failure, Options, parse, usage
from crfkit.compat.wapiti.streams import reading, say, writing
from crfkit.compat.wapiti.training import train


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; faults end with a line that begins with ``error:``, and code 1."""
    code = 1
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + 13  # as a tool that SIGPIPE ends
    except KeyboardInterrupt:
        code = 130
    except (Failure, ValueError) as e:
        say(f"error: {e}")
    except OSError as e:
        say(f"error: cannot open {e.filename}\n\t<{e.strerror}>" if e.filename else f"error: {e.strerror or e}")
    except MemoryError:
        say("error: out of memory")
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; gives the exit code."""
    program = os.path.basename(sys.argv[0])
    if not arguments or arguments[0] in ("-h", "--help"):
        say(usage(program))
        if not arguments:
            raise Failure("no mode specified")
        return 1
    if arguments[0] == "--version":
        say(f"Wapiti v1.5.0\n  Optimization mode:   crfkit, {_core.instruction_set()}")
        return 0
    options = parse(arguments)
    return {"train": train, "label": label, "dump": dump, "update": update}[options.mode](options)


def dump(options: Options) -> int:
    """Prints the weights of a model."""
    say("* Load model")
    with reading(options.input) as file:
        parts = read_wapiti_parts(file.read(), options.input or "standard input")
    say("* Dump model")
    with writing(options.output) as out:
        out.writelines(line.encode() for line in dump_lines(parts, options.prec, options.all))
    return 0


def update(options: Options) -> int:
    """Changes weights of a model as a patch says."""
    say("* Load model")
    if options.model is None:
        raise Failure("no model file provided")
    with reading(options.model) as file:
        parts = read_wapiti_parts(file.read(), options.model)
    say("* Update model")
    with reading(options.input) as file:
        parts = updated(parts, file)
    save(parts, options)
    say("* Done")
    return 0


if __name__ == "__main__":
    main()
