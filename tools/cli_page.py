"""Writes docs/cli.md from the command line's own help, so that the two cannot drift apart.

``python tools/cli_page.py`` writes the page, ``--check`` only compares.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
INTRODUCTION = """\
# Command line

```console
$ crfkit demo --write .
...
$ crfkit train train.txt -m model.crfkit --c2 0.1 -q
$ crfkit tag -m model.crfkit test.txt -o tagged.txt -q
$ crfkit eval -m model.crfkit test.txt
...
$ crfkit inspect model.crfkit --top 3
...
```

Results go to standard output, messages and progress to standard error. `crfkit --install-completion` sets up
completion for your shell.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an error in the data or the model; one line on standard error says which |
| 2 | a wrong option, found before any data is read |
| 141 | the reader of the output has closed it (`crfkit tag ... \\| head`) |
| 128 + n | ended by signal n: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP. `train` has saved the best weights so far |

Each command's own help (`crfkit COMMAND --help`):
"""
COMMANDS = [
    *("train", "tag", "encode", "tune", "eval", "inspect", "convert"),
    *("classes", "active next", "active add", "annotate", "demo"),
]


def page() -> str:
    """The page's text."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    parts = [
        INTRODUCTION,
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
