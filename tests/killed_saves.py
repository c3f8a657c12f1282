"""``python killed_saves.py FOLDER KILLS``: kills processes while they save a model over another, and looks at the file.

Half of the kills come at random moments, half before one of the calls that a save makes of the system (they have audit
events). Prints how often the old and the new file stood there, and how many files were left beside it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from crfkit.model.chain_model import write_file


def save(path: Path, k: int) -> None:
    """A model file of 8 MB, the same for the same number."""
    write_file(path, {"estimator": "crf", "number": k}, {"weights": np.full(1_000_000, float(k))})


def child(path: Path, k: int, last: int | None) -> None:
    """Saves, and is killed before the event of the number ``last``; otherwise from outside."""
    number = 0

    def count(event: str, _: Any) -> None:
        nonlocal number
        if event.startswith(("open", "os.", "fcntl.")):
            number += 1  # the kill is an event as well
            if number - 1 == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    save(path, k)
    os._exit(0)


def main(folder: Path, kills: int) -> None:
    """Kills, looks, saves."""
    rng = random.Random(kills)
    path = folder / "model"
    save(path, 0)
    whole = {0: path.read_bytes()}
    began = time.perf_counter()
    save(path, 1)
    takes = time.perf_counter() - began
    whole[1] = path.read_bytes()
    counts = {"kills": 0, "old": 0, "new": 0, "left": 0}
    now, event = 1, 0
    while counts["kills"] < kills:
        by_event = counts["kills"] % 2 == 0
        pid = os.fork()
        if pid == 0:
            child(path, 1 - now, event if by_event else None)
        if by_event:
            event += 1
        else:
            time.sleep(rng.uniform(0, 1.2 * takes))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            if by_event:
                event = 0  # there are no more: from the beginning
        found = path.read_bytes()
        assert found in whole.values(), f"kill {counts['kills']}: neither the old file nor the new one"
        counts["kills"] += os.WIFSIGNALED(status)
        counts["old" if found == whole[now] else "new"] += os.WIFSIGNALED(status)
        left = [name for name in os.listdir(folder) if name != "model"]
        assert len(left) <= 1
        counts["left"] += len(left)
        now = 1 - now if found != whole[now] else now
        save(path, now)  # the next save
        assert os.listdir(folder) == ["model"], f"kill {counts['kills']}: the next save left {os.listdir(folder)}"
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
