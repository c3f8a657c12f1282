"""Finds Chromium for the tests of the annotation page, or installs it; prints where it is.

``python tools/find_chromium.py`` looks for the browser in CRFKIT_CHROMIUM, Playwright's own, and those in PATH. If
there is none, it tries Playwright's download and then Debian's package. It ends with 1 and a message if there is still
none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> Path | None:
    """A browser that starts; None if there is none."""
    given = os.environ.get("CRFKIT_CHROMIUM")
    found = [given] if given else [playwrights(), *map(shutil.which, NAMES)]
    return next((Path(path) for path in found if path and starts(path)), None)


def playwrights() -> str | None:
    """The browser that Playwright has downloaded, if it has."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def starts(path: str) -> bool:
    """Whether a browser can say its version: one whose libraries are missing cannot."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install() -> list[str]:
    """Tries each way to get a browser until one is there; what went wrong."""
    faults = []
    root = [] if not hasattr(os, "geteuid") or os.geteuid() == 0 else ["sudo", "-n"]
    ways = [
        [[sys.executable, "-m", "playwright", "install", "--with-deps", "chromium"]],
        [[*root, "apt-get", "update"], [*root, "apt-get", "install", "-y", "--no-install-recommends", "chromium"]],
    ]
    for way in ways:
        for command in way:
            print("installing Chromium:", *command, file=sys.stderr, flush=True)
            try:
                environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
            except (OSError, subprocess.TimeoutExpired) as e:
                faults.append(f"{' '.join(command)}: {e}")
                break
            if done.returncode:
                last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
                faults.append(f"{' '.join(command)}: {last}")
                break
        if find() is not None:
            return []
    return faults


def main() -> int:
    """Finds or installs."""
    found = find()
    faults = [] if found else install()
    found = found or find()
    if found is None:
        print("the tests of the annotation page need Chromium, and it could not be installed:", file=sys.stderr)
        print(*(f"  {fault}" for fault in faults), sep="\n", file=sys.stderr)
        print("install it (apt-get install chromium) or set CRFKIT_CHROMIUM to its path", file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
