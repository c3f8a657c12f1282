"""Feeds files that are nearly right to everything that reads files, for as long as one likes.

    python tools/fuzz.py [KIND ...] [--inputs 1000000] [--seed 0] [--workers 2] [--folder findings]
    python tools/fuzz.py KIND --seed 0 --number 123 [--keep FILE]

KIND is one of those in tools/fuzzing/kinds.py, all by default: every kind of model, checkpoints, other tools' models,
templates, expressions, columns, CoNLL-U, CRFsuite's text, JSON lines, packed files, raw text. An input is a good file
with changes of its fields, joins, tables, expressions, or bytes; it is read and, if it is read, used. Allowed are a
result and the documented errors. An input that ends with another error, a crash, more than 10 s of processor time or
more than 1 GB of memory is kept in the folder, and the second form of the command tries it again, here and now.

`make fuzz` runs a million inputs on a build with the address and the undefined-behaviour sanitizer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fuzzing.campaign import Campaign, summary, try_input
from fuzzing.kinds import KINDS, quiet


def main() -> int:
    """Runs a campaign, or one input; gives 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"out of {', '.join(KINDS)}; all by default")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="begin at this place of the schedule")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("findings"), help="where inputs are kept")
    parser.add_argument("--number", type=int, help="try this input of the kind only, in this process")
    parser.add_argument("--keep", type=Path, help="with --number: write the input to this file")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    chosen = [KINDS[name] for name in options.kinds or KINDS]
    quiet()
    if options.number is not None:
        with tempfile.TemporaryDirectory() as folder:
            data = chosen[0].input(options.seed, options.number, Path(folder))
            if options.keep is not None:
                options.keep.write_bytes(data)
            fault, where = try_input(chosen[0], data, Path(folder) / "input")
        print(f"{len(data)} bytes: {fault} {where}")
        return int(fault not in ("read", "refused"))
    campaign = Campaign(
        chosen, options.seed, options.inputs, options.workers, options.folder, options.seconds, options.first
    )
    began = time.monotonic()
    report = campaign.run()
    print(summary(report, time.monotonic() - began))
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
