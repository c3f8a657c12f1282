"""The public names: few, all there after ``import crfkit``, each in the docs."""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import crfkit

ROOT = Path(__file__).parents[1]
API = runpy.run_path(str(ROOT / "tools" / "api_page.py"))
EXTRAS = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
MOST = 130


def test_the_public_names_can_be_held_in_the_head() -> None:
    found: dict[str, str] = {}
    for name in API["public_modules"]():
        try:
            module = importlib.import_module(name)
        except ImportError:
            assert EXTRAS, f"{name} cannot be imported"
            continue
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name} has no {public}"
            found.setdefault(public, name)
    assert len(found) <= MOST, sorted(found)


@pytest.mark.parametrize(
    "name",
    [
        "active.query",
        "chain.Potentials",
        "chain.marginals",
        "data.load_corpus",
        "features.Template",
        "graph.GraphCRF",
        "integrations.from_table",
        "metrics.evaluate",
        "model.ChainModel",
        "training",
        "CRF",
        "HMM",
        "MEMM",
        "load",
    ],
)
def test_advertised_names_are_there_after_import(name: str) -> None:
    code = f"import crfkit; crfkit.{name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_neural_crf_is_there_after_import() -> None:
    pytest.importorskip("torch")
    code = "import crfkit; assert crfkit.torch.NeuralCRF is crfkit.NeuralCRF"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_names_can_be_listed() -> None:
    assert set(crfkit.__all__) <= set(dir(crfkit))
    with pytest.raises(AttributeError, match="module 'crfkit' has no attribute 'nothing'"):
        crfkit.nothing  # noqa: B018


def test_every_public_name_is_in_the_docs() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    words = set(re.findall(r"\w+", text))
    for module, members in API["names"]().items():
        assert not members.keys() - words, f"names of {module} that no page tells of"


@pytest.mark.skipif(bool(EXTRAS), reason="the page tells of all extras")
def test_the_page_of_names_is_current() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == API["page"](), "run 'make docs'"
