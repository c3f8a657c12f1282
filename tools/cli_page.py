"""Writes docs/cli.md from the command line's own help, so that the two cannot drift apart.

``python tools/cli_page.py`` writes the page, ``--check`` only compares.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
COMMANDS = ["train", "tag", "eval", "inspect", "convert", "active next", "active add", "demo"]


def page() -> str:
    """The page's text."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    parts = [
        "# The command line\n\nThis page is written by `make docs` from the commands' own help.\n",
        "Exit codes: 0 all went well, 1 a fault in data or model (one line on standard error says which), 2 a wrong",
        "option, which is found before any data is read, 141 nobody reads the output any more (`| head`),",
        "128 + n ended by signal n: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP. `train` has then written the best",
        "weights so far; a second signal ends it at once.\n",
        "Messages and progress go to standard error, results to standard output. `crfkit --install-completion` teaches",
        "your shell the commands, options, algorithms and strategies.\n",
    ]
    for command in COMMANDS:
        out = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; sys.argv[0] = 'crfkit'; from crfkit.cli import app; app(prog_name='crfkit')",
                *command.split(),
                "--help",
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        text = "\n".join(line.rstrip() for line in out.stdout.strip().splitlines())
        parts.append(f"## crfkit {command}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is out of date: run 'make docs'")
    PAGE.write_text(page())
