"""Holds the source tree against its floor plan: order of dependence, recursions, functions, public names, lines.

``python tools/floor_plan.py`` prints every figure and ends with 1 if one is over its limit; ``make lint`` runs it.
``python tools/floor_plan.py --lines FOLDER`` counts the lines of another checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CORE, PACKAGE = ROOT / "src" / "core", ROOT / "src" / "crfkit"

#: Each room of the core, and the rooms that it may include; docs/architecture.md draws the same.
CORE_ORDER = {
    "base": "",
    "text": "base",
    "chain": "base",
    "beam": "base chain",
    "segment": "base chain",
    "model": "base chain beam",
    "train": "base chain beam segment model",
    "online": "base chain beam model train",
    "graph": "base beam",
    "words": "base text",
    "bind": "base text chain beam segment model train online graph words",
}

#: Each room of the package, folders and single files, and those that it may import, also within functions.
PACKAGE_ORDER = {
    "base": "_core",
    "data": "_core base",
    "features": "_core base data",
    "chain": "_core base",
    "model": "_core base data features chain",
    "metrics": "base data chain",
    "training": "_core base data chain metrics",
    "estimators": "_core base data features chain model metrics training torch",
    "graph": "_core base data features chain model metrics training",
    "segment": "_core base data features chain model metrics training",
    "torch": "_core base data features chain model metrics training segment",
    "compat": "_core base data features chain model metrics training estimators",
    "loading": "base model estimators graph segment torch compat",
    "calibration": "base data chain model metrics estimators",
    "active": "_core base data features chain model metrics training estimators",
    "plotting": "base chain model metrics training estimators calibration active",
    "integrations": "base data model metrics estimators loading",
    "dask": "_core base data features chain model training estimators integrations",
    "annotate": "_core base data features chain model metrics training estimators graph segment torch compat loading "
    "active",
    "cli": "_core base data features chain model metrics training estimators graph segment torch compat loading active "
    "annotate dask",
    "__main__": "cli",
}

#: At most this many places that hold a recursion, in all languages; each is marked by a comment, ``recursion: kind``.
RECURSIONS = {"forward": 9, "backward": 9, "viterbi": 8, "log-sum-exp": 5}
LONGEST_FUNCTION = 90
MOST_PARAMETERS = 10
MOST_NAMES = 147
MOST_COLUMNS = 120


class Function(NamedTuple):
    """A function's place and name, lines without the docstring, parameters, and whether ``**keywords`` hide some."""

    name: str
    lines: int
    parameters: int
    hidden: bool = False


def sources(folder: Path, *endings: str) -> list[Path]:
    """Files with these endings, in order."""
    return sorted(p for p in folder.rglob("*") if p.suffix in endings)


def core_edges() -> Iterator[tuple[Path, str, str]]:
    """File, its room and the room of each include."""
    for path in sources(CORE, ".hpp", ".cpp"):
        for include in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            yield path, path.relative_to(CORE).parts[0], include.split("/")[0]


def package_edges() -> Iterator[tuple[Path, str, str]]:
    """File, its room and the room of each import, lazy ones too."""
    for path in sources(PACKAGE, ".py"):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "crfkit":
                targets = [f"crfkit.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                targets = [node.module or ""]
            else:
                continue
            for target in targets:
                if target.startswith("crfkit."):
                    yield path, room, target.split(".")[1]


def wrong_ways() -> list[str]:
    """Includes and imports against the order."""
    found = []
    for path, room, other in core_edges():
        if other != room and other not in CORE_ORDER.get(room, "").split():
            found.append(f"{path.relative_to(ROOT)} includes {other}/")
    for path, room, other in package_edges():
        if other != room and not other.startswith("__") and other not in PACKAGE_ORDER.get(room, "").split():
            found.append(f"{path.relative_to(ROOT)} imports crfkit.{other}")
    return found


def recursions() -> Counter[str]:
    """How many places are marked as each kind of recursion."""
    found: Counter[str] = Counter()
    for path in sources(ROOT / "src", ".py", ".hpp", ".cpp"):
        for kinds in re.findall(r"(?://|#) recursion: ([a-z, -]+)", path.read_text()):
            found.update(kind.strip() for kind in kinds.split(","))
    return found


def estimators() -> set[str]:
    """Classes that scikit-learn may clone (they have get_params): every setting must be an argument of ``__init__``."""
    classes = [
        n for p in sources(PACKAGE, ".py") for n in ast.walk(ast.parse(p.read_text())) if isinstance(n, ast.ClassDef)
    ]
    found = {c.name for c in classes if any(getattr(x, "name", "") == "get_params" for x in c.body)}
    while more := {c.name for c in classes if {ast.unparse(b).split(".")[-1] for b in c.bases} & found} - found:
        found |= more
    return found


def is_passed_on(name: str, node: ast.AST) -> bool:
    """Whether a function's keywords ``**name`` are only handed to another function, which knows them by name."""
    uses = [x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id == name]
    calls = [k.value for x in ast.walk(node) if isinstance(x, ast.Call) for k in x.keywords if k.arg is None]
    return bool(uses) and all(use in calls for use in uses)


def python_functions() -> Iterator[Function]:
    """Each function of the package; constructors of estimators, commands and GPU kernels may have many parameters."""
    free = estimators()
    for path in sources(PACKAGE, ".py"):
        tree = ast.parse(path.read_text())
        owner = {f: c.name for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                doc = node.body[0]
                lines -= (doc.end_lineno or 0) - doc.lineno + 1
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            count = len(every) - (bool(a.args) and a.args[0].arg in ("self", "cls"))
            marks = " ".join(ast.unparse(d) for d in node.decorator_list)
            options = path.parent.name == "cli" and any("Option" in ast.unparse(x) for x in a.args if x.annotation)
            clone = owner.get(node) in free and node.name in ("__init__", "set_params")
            if clone or options or "triton.jit" in marks or "command" in marks:
                count = 0
            keywords = a.kwarg is not None and ast.unparse(a.kwarg).endswith(": Any") and not clone
            hidden = keywords and a.kwarg is not None and not is_passed_on(a.kwarg.arg, node)
            yield Function(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines, count, hidden)


def without_comments(text: str) -> str:
    """C++ with comments and strings blanked, line by line as before."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)


def core_functions() -> Iterator[Function]:
    """The same of the core, by its braces: what follows a closing parenthesis of parameters."""
    head = re.compile(
        r"([\w:~]+)\s*\(([^;{}]*?)\)\s*(?:const|noexcept|->[^;{}]*|:[^;{}]*(?:\{[^{};]*\}[^;{}]*)*)*\s*\{"
    )
    for path in sources(CORE, ".hpp", ".cpp"):
        text = without_comments(path.read_text())
        for match in head.finditer(text):
            name = match[1]
            if name in {"if", "for", "while", "switch", "catch", "return", "requires", "decltype"}:
                continue
            depth, end = 1, match.end()
            while depth and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            lines = text[match.start() : end].count("\n") + 1
            flat = re.sub(r"<[^<>]*>|\([^()]*\)", "", re.sub(r"<[^<>]*>", "", match[2]))
            count = len([x for x in flat.split(",") if x.strip()])
            yield Function(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1} {name}", lines, count)


def public_names() -> tuple[dict[str, list[str]], list[str]]:
    """Names in the ``__all__`` of importable modules, and where each is; public modules that declare none.

    ``compat`` does not count. Public are the rooms, and the modules that a page for users names; others are a part of
    their room.
    """
    names: dict[str, list[str]] = defaultdict(list)
    silent = []
    pages = " ".join(p.read_text() for p in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    advertised = set(re.findall(r"crfkit(?:\.\w+)+", pages))
    for path in sources(PACKAGE, ".py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if any(x.startswith("_") and x != "__init__" for x in parts):
            continue
        module = ".".join(("crfkit", *(x for x in parts if x != "__init__")))
        declared = None
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and getattr(target, "id", "") == "__all__":
                declared = ast.literal_eval(node.value)
        if declared is None and (path.name == "__init__.py" or len(parts) == 1 or module in advertised):
            silent.append(f"{module} ({path.relative_to(ROOT)})")
        for name in () if parts[0] == "compat" else declared or ():
            names[name].append(module)
    return names, silent


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    text = path.read_text()
    if path.suffix != ".py" and path.suffix != ".pyi":
        return sum(bool(line.strip()) for line in re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).split("\n"))
    lines: set[int] = set()
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            lines.difference_update(range(doc.lineno, (doc.end_lineno or 0) + 1))
    return len(lines)


def count_lines(root: Path) -> dict[str, int]:
    """Lines of code of the package and of the core under ``root``."""
    return {
        part: sum(code_lines(p) for p in sources(root / "src" / part, ".py", ".pyi", ".hpp", ".cpp"))
        for part in ("crfkit", "core")
    }


def report(title: str, found: list[str], limit: int = 0) -> bool:
    """Prints what is over a limit; whether anything is."""
    print(f"{title}: {len(found)}" + (f" (at most {limit})" if limit else ""))
    if len(found) <= limit:
        return False
    for line in found:
        print(f"  {line}")
    return True


def main() -> int:
    """Checks everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=Path, metavar="FOLDER", help="only count the lines of this checkout")
    args = parser.parse_args()
    if args.lines:
        print(count_lines(args.lines))
        return 0
    failed = report("includes and imports against the order", wrong_ways())
    counts = recursions()
    for kind, most in RECURSIONS.items():
        print(f"recursions, {kind}: {counts[kind]} (at most {most})")
        failed |= not 0 < counts[kind] <= most
    print("other recursions:", ", ".join(f"{k} {n}" for k, n in sorted(counts.items()) if k not in RECURSIONS))
    functions = [*python_functions(), *core_functions()]
    long = [f"{f.name}: {f.lines} lines" for f in functions if f.lines > LONGEST_FUNCTION]
    failed |= report(f"functions of more than {LONGEST_FUNCTION} lines", long)
    many = [f"{f.name}: {f.parameters} parameters" for f in functions if f.parameters > MOST_PARAMETERS]
    failed |= report(f"functions of more than {MOST_PARAMETERS} parameters", many)
    failed |= report("functions whose **keywords are not just passed on", [f.name for f in functions if f.hidden])
    wide = [
        f"{path.relative_to(ROOT)}:{k}"
        for path in sources(CORE, ".hpp", ".cpp")
        for k, line in enumerate(path.read_text().split("\n"), 1)
        if len(line) > MOST_COLUMNS
    ]
    failed |= report(f"lines of more than {MOST_COLUMNS} columns", wide)
    names, silent = public_names()
    failed |= report("public modules without __all__", silent)
    listed = [f"{name}: {', '.join(places)}" for name, places in sorted(names.items())]
    failed |= report("public names", listed, MOST_NAMES)
    print("lines of code:", count_lines(ROOT))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
