"""Runs the command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

CRFKIT = [sys.executable, "-m", "crfkit"]


def run(*arguments: Any, code: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs crfkit; checks the exit code, and that there is never a traceback."""
    out = subprocess.run([*CRFKIT, *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)
    assert "Traceback" not in out.stderr, out.stderr
    assert out.returncode == code, out.stderr
    return out
