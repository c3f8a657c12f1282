"""Where and when a figure was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def processor() -> str:
    """The processor's name, as the system knows it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join(names[0].split()) if names else platform.processor() or platform.machine()


def date() -> str:
    """Today, as pages write it: 16 November 2026."""
    today = datetime.now(UTC)
    return f"{today.day} {today:%B %Y}"


def measured() -> str:
    """The processor, its cores and today's date: what stands beside every time."""
    return f"{processor()}, {os.cpu_count()} cores, {date()}"


if __name__ == "__main__":
    print(measured())
