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

STUDY = """\
Forms of the literature, kept to learn from and to compare with; the [guide](guide.md#for-study) says what is for use
instead. Not names, but for study as well: `CRF(gradient="backward")`, and `form="paper"` of `chain.marginals`."""
PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def public_modules() -> list[str]:
    """Importable modules of the package that declare public names; not private ones, nor what ``compat`` imitates."""
    import crfkit

    found = ["crfkit"]
    for module in pkgutil.walk_packages(crfkit.__path__, "crfkit."):
        parts = module.name.split(".")[1:]
        if (parts[0] != "compat" or len(parts) == 1) and not any(x.startswith("_") for x in parts):
            found.append(module.name)
    return found


def names() -> dict[str, dict[str, Any]]:
    """Public names by module, each where it is first met: packages before their modules."""
    seen: set[tuple[str, int]] = set()
    out: dict[str, dict[str, Any]] = {}
    for name in sorted(public_modules(), key=lambda x: (x.count("."), x)):
        try:
            module = importlib.import_module(name)
        except ImportError:  # an extra that is not installed here
            continue
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if (public, id(value)) not in seen:
                seen.add((public, id(value)))
                out.setdefault(name, {})[public] = value
    return out


def is_for_study(value: Any) -> bool:
    """Whether a name is kept to learn and to compare, and something else is for use: it lies in a file ``study.py``."""
    return str(getattr(value, "__module__", "")).endswith(".study")


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
    head = ["", "| name | what it is |", "|---|---|"]
    study = []
    for module, members in names().items():
        lines += ["", f"## {module}", *head]
        for name, value in members.items():
            if is_for_study(value):
                study.append(f"| `{module}.{name}` | {first_line(value)} |")
            else:
                lines.append(f"| `{name}` | {first_line(value)} |")
    lines += ["", "## For study", "", STUDY, *head, *study]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE} is out of date: run 'make docs'")
    PAGE.write_text(page())
