"""How Sphinx builds the site; ``make docs`` runs it, offline and with warnings as errors."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import sys
from importlib.metadata import version as installed_version
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

project = "crfkit"
author = "The crfkit developers"
copyright = "2026, the crfkit developers"
version = release = installed_version("crfkit")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["api/generated/*.md"]
templates_path = ["_templates"]

myst_enable_extensions = [
    "dollarmath",
    "attrs_inline",
    "attrs_block",
    "colon_fence",
    "deflist",
]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

autodoc_typehints = "none"  # the docstrings say what each parameter may be
autodoc_member_order = "groupwise"
autosummary_ignore_module_all = False
toc_object_entries_show_parents = "hide"  # which the page is about
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False  # types of parameters are words, not references
napoleon_use_rtype = False

# References into crfkit must lead somewhere. Other libraries' names stay plain text: to link them takes the network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!crfkit\b).*")]

html_theme = "pydata_sphinx_theme"
html_title = "crfkit: conditional random fields for Python"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_show_search_summary = False  # it is fetched, which files on disk do not allow
html_context = {"default_mode": "auto"}
# they have no neighbours to list
html_sidebars: dict[str, list[str]] = {"cli": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "crfkit"},
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def mathml(node: nodes.Element, as_block: bool) -> str:
    """A formula as MathML, which browsers show without a script; a warning if it cannot be read."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as e:
        logging.getLogger(__name__).warning("%s in %r", e, node.astext(), location=node)
        return ""


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Writes a formula within a line."""
    translator.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula on a line of its own."""
    translator.body.append(f'<div class="math">{mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def skip_member(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leaves out what a class inherits from other libraries."""
    function = inspect.unwrap(
        member.fget if isinstance(member, property) and member.fget else member
    )
    module = getattr(function, "__module__", None)
    return True if module and module.split(".")[0] not in ("crfkit", "builtins") else None


def split_attributes(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Writes ``a, b_ : type`` below Attributes as one entry per name, whose last underscore is no reference."""
    inside = False
    out: list[str] = []
    for k, line in enumerate(lines):
        if set(line) == {"-"} and k:
            inside = lines[k - 1] == "Attributes"
        if (
            inside
            and line
            and not line[0].isspace()
            and set(line) != {"-"}
            and line != "Attributes"
        ):
            names, colon, kind = line.partition(" : ")
            entries = [x.strip() for x in names.split(",")]
            text = []
            for later in lines[k + 1 :]:
                if later and not later[0].isspace():
                    break
                text.append(later)
            for n, entry in enumerate(entries):
                shown = entry[:-1] + "\\_" if entry.endswith("_") else entry
                out.append(shown + colon + kind)
                if n < len(entries) - 1:
                    out += text
        else:
            out.append(line)
    lines[:] = out


def import_names(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Begins the examples with imports of what they use, so that they run where a reader copies them to."""
    source = "".join(
        example.source for example in doctest.DocTestParser().get_examples("\n".join(lines))
    )
    nodes_ = list(ast.walk(ast.parse(source)))
    bound = {x.id for x in nodes_ if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    bound |= {x.arg for x in nodes_ if isinstance(x, ast.arg)} | set(vars(builtins))
    bound |= {x.asname or x.name.split(".")[0] for x in nodes_ if isinstance(x, ast.alias)}
    bound |= {x.name for x in nodes_ if isinstance(x, (ast.FunctionDef, ast.ClassDef))}
    needed = {x.id for x in nodes_ if isinstance(x, ast.Name)} - bound
    if not needed:
        return
    owner = obj.fget if isinstance(obj, property) else obj
    known = vars(
        obj if isinstance(obj, ModuleType) else importlib.import_module(owner.__module__)
    )
    page = next(
        m
        for m in (name.rsplit(".", k)[0] for k in range(name.count(".") + 1))
        if m in sys.modules
    )
    imports: list[str] = []
    members: dict[str, list[str]] = {}
    for word in sorted(needed):
        found = known[word]
        if isinstance(found, ModuleType):
            parent, _, last = found.__name__.rpartition(".")
            line = f"import {found.__name__}" + (
                f" as {word}" if word != found.__name__ else ""
            )
            imports.append(
                f"from {parent} import {word}" if parent and last == word else line
            )
            continue
        places = [m for m in (page, "crfkit", *sorted(sys.modules)) if m.startswith("crfkit")]
        public = [
            m
            for m in places
            if word in getattr(sys.modules[m], "__all__", ())
            and getattr(sys.modules[m], word, None) is found
            and (m == page or m.count(".") < 2)
        ]
        members.setdefault((public or [found.__module__])[0], []).append(word)
    imports += [f"from {place} import {', '.join(words)}" for place, words in members.items()]
    first = next(k for k, line in enumerate(lines) if line.lstrip().startswith(">>> "))
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    lines[first:first] = [f"{indent}>>> {line}" for line in sorted(imports)]


def setup(app: Sphinx) -> None:
    """Registers what is above."""
    app.connect(
        "autodoc-process-docstring", split_attributes, priority=400
    )  # before napoleon
    app.connect("autodoc-process-docstring", import_names)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("autodoc-skip-member", skip_member)
