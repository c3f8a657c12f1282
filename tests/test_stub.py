"""The stub of the native module names what the module has."""

from __future__ import annotations

import ast
from pathlib import Path

import crfkit
from crfkit import _core


def test_the_stub_is_complete() -> None:
    tree = ast.parse(Path(crfkit.__file__).with_name("_core.pyi").read_text())
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert functions | set(classes) == public
    for name, node in classes.items():
        stub = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        for base in node.bases:
            assert isinstance(base, ast.Name)
            stub |= {n.name for n in classes[base.id].body if isinstance(n, ast.FunctionDef)}
        members = {m for m in vars(getattr(_core, name)) if not m.startswith("_") or m in ("__len__", "__getitem__")}
        assert members == {m for m in stub if m != "__init__"}, name
