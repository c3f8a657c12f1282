"""Writes docs/api.md, a line for every public name, from the docstrings, so that the two cannot drift apart.

``python tools/api_page.py`` writes the page, ``--check`` only compares.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def public_modules() -> list[str]:
    """Importable modules of the package that declare public names; not private ones, and not ``compat``."""
    import crfkit

    found = ["crfkit"]
    for module in pkgutil.walk_packages(crfkit.__path__, "crfkit."):
        parts = module.name.split(".")[1:]
        if parts[0] != "compat" and not any(x.startswith("_") for x in parts):
            found.append(module.name)
    return found


def names() -> dict[str, dict[str, Any]]:
    """Public names by module, each where it is first met: packages before their modules."""
    seen: set[str] = set()
    out: dict[str, dict[str, Any]] = {}
    for name in sorted(public_modules(), key=lambda x: (x.count("."), x)):
        try:
            module = importlib.import_module(name)
        except ImportError:  # an extra that is not installed here
            continue
        for public in getattr(module, "__all__", ()):
            if public not in seen:
                seen.add(public)
                out.setdefault(name, {})[public] = getattr(module, public)
    return out


def first_line(value: Any) -> str:
    """What a name's docstring begins with; of text, and of tuples and mappings of it, what they hold."""
    if isinstance(value, (str, tuple, dict)):
        return ", ".join(f"`{x}`" for x in ([value] if isinstance(value, str) else value))
    text = inspect.getdoc(value) if isinstance(value, ModuleType) or callable(value) else None
    line = (text or type(value).__name__).split("\n\n")[0].replace("\n", " ")
    line = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", line)  # roles of Sphinx
    return line.replace("``", "`").replace("|", "\\|")


def page() -> str:
    """The page's text."""
    lines = [
        "# All public names",
        "",
        "This page is written by `make docs` from the docstrings.",
    ]
    for module, members in names().items():
        lines += ["", f"## {module}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {first_line(value)} |" for name, value in members.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is out of date: run 'make docs'")
    PAGE.write_text(page())
