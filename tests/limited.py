"""Runs code in a process of its own that may take only so much more memory and processor time than its imports took."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_PREAMBLE = """
import resource, sys
import numpy as np
import crfkit
from crfkit import CRF, ModelError, Template, _core
from crfkit.features.plan import FeaturePlan

def limit(megabytes, seconds):
    pages = int(open("/proc/self/statm").read().split()[0])
    size = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))
"""


def run_limited(code: str, *arguments: object, megabytes: int = 512, seconds: int = 20) -> str:
    """What the code prints; fails if it ends by a signal, an exception, or out of memory.

    The limits are on what it takes after ``crfkit`` is imported; the arguments are its ``sys.argv[1:]``.
    """
    text = f"{_PREAMBLE}\nlimit({megabytes}, {seconds})\n{textwrap.dedent(code)}"
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout
