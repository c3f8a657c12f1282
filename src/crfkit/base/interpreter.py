"""Refuses interpreters that crfkit is not tested on, and instruction sets that it does not know, at its import."""

from __future__ import annotations

import os
import sys
import sysconfig

__all__: list[str] = []

if hasattr(sys, "_is_gil_enabled") and (sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled()):
    raise ImportError("crfkit is not tested on the free-threaded interpreter: use the ordinary build of Python")

if (isa := os.environ.get("CRFKIT_ISA", "base")) not in ("base", "avx2", "avx512"):  # see base/instruction_set.hpp
    raise ImportError(f"the environment variable CRFKIT_ISA must be base, avx2 or avx512, got {isa!r}")
