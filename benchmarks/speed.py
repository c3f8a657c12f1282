"""Processor seconds of an L-BFGS iteration on CoNLL-2000 chunking: crfkit, CRFsuite, Wapiti, on one thread each.

    python benchmarks/speed.py [--wapiti PROGRAM] [--rounds N] [--json FILE]

The nineteen templates of ``conll2000.py``, L2 regularisation, no held-out data. Each tool trains for 5 and for 15
iterations in processes of their own; a tenth of the difference is one iteration, without reading and writing. The tools
take turns, figures are medians. Wapiti gives every attribute a weight for each label, the others only for labels it was
seen with. Wapiti is left out unless its program is named. pytorch-crf has no features of its own: its layer is measured
by ``torch_layer.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from conll2000 import DATA, crfkit_estimator, crfsuite_train, template_text

SHORT, LONG = 5, 15


def train_crfkit(iterations: int) -> None:
    from crfkit.data import read_columns

    crfkit_estimator(1).set_params(max_iter=iterations, tol=0.0).fit(*read_columns(DATA / "train.txt"))


def train_crfsuite(iterations: int) -> None:
    crfsuite_train(os.devnull, iterations)


def processor_seconds(command: list[str]) -> float:
    """Of a process and all its threads."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed: {process.stderr.read().decode() if process.stderr else ''}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wapiti", help="Wapiti's program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parents[1] / "experiments" / "numbers" / "speed.json"
    )
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return {"crfkit": train_crfkit, "CRFsuite": train_crfsuite}[options.worker[0]](int(options.worker[1]))
    with tempfile.TemporaryDirectory() as folder:
        pattern, few = Path(folder, "pattern"), Path(folder, "few")
        pattern.write_text(template_text() + "\n")
        few.write_text((DATA / "train.txt").read_text().partition("\n\n")[0] + "\n")  # Wapiti scores every iteration

        def command(tool: str, n: int) -> list[str]:
            if tool != "Wapiti":
                return [sys.executable, __file__, "--worker", tool, str(n)]
            how = ["-t", "1", "-i", str(n), "--rho1", "0", "--rho2", "2", "--stopeps", "0", "--stopwin", "99"]
            files = ["-p", str(pattern), "-d", str(few), str(DATA / "train.txt"), os.devnull]
            return [options.wapiti, "train", "-a", "l-bfgs", *how, *files]

        tools = ["crfkit", "CRFsuite", *(["Wapiti"] if options.wapiti else [])]
        times: dict[str, list[float]] = {tool: [] for tool in tools}
        for _ in range(options.rounds):
            for tool, found in times.items():
                short, long = (processor_seconds(command(tool, n)) for n in (SHORT, LONG))
                found.append((long - short) / (LONG - SHORT))
                print(f"{tool:10} {found[-1]:.3f} s", flush=True)
    figures = {tool: round(statistics.median(found), 4) for tool, found in times.items()}
    record = json.loads(options.json.read_text()) if options.json.exists() else {}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record | {"iteration": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
