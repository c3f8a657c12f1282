"""Refuses interpreters that crfkit is not tested on, when it is imported."""

from __future__ import annotations

import sys
import sysconfig

__all__: list[str] = []

if hasattr(sys, "_is_gil_enabled") and (sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled()):
    raise ImportError("crfkit is not tested on the free-threaded interpreter: use the ordinary build of Python")
