"""Settings and paths that all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("crfkit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crfkit")

# Shells let what they run in the background ignore Ctrl-C, and children inherit it; tests send it to theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Where the real corpora lie; tests that need them skip where they are missing."""
    root = Path(os.environ.get("CRFKIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no corpora at {root}; set CRFKIT_DATA")
    return root
