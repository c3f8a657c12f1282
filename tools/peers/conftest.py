"""Puts crfkit in the place of python-crfsuite and sklearn-crfsuite for a test suite; lies above the suite's folder."""

import sys
from importlib import import_module

for package in ("pycrfsuite", "sklearn_crfsuite"):
    import_module(f"crfkit.compat.{package}")
for name, module in list(sys.modules.items()):
    if name.startswith(("crfkit.compat.pycrfsuite", "crfkit.compat.sklearn_crfsuite")):
        sys.modules[name.removeprefix("crfkit.compat.")] = module
for package in ("pycrfsuite", "sklearn_crfsuite"):
    assert import_module(package).__name__ == f"crfkit.compat.{package}", "a suite must not run with the original"


def pytest_report_header() -> str:
    """Says what is tested, at the top of pytest's output."""
    return f"pycrfsuite is {sys.modules['pycrfsuite'].__file__}"
