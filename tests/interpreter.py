"""Tests in Triton's interpreter, which is chosen when triton is imported: in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IS_CHOSEN = os.environ.get("TRITON_INTERPRET") == "1"


#: Of the test that runs them: all that is not long, or what is.
SHARES = [pytest.param("not long", id="short"), pytest.param("long", marks=pytest.mark.long)]


def run_in_it(file: str, share: str) -> None:
    """Runs the tests of a file whose marks are these."""
    out = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", share, Path(file).name],
        cwd=Path(file).parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stdout[-5000:] + out.stderr[-2000:]
