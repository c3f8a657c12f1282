"""What a release states in more than one place agrees."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import crfkit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RELEASE = runpy.run_path(str(ROOT / "tools" / "release.py"))


def test_the_citation_has_the_version_and_its_date() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = re.search(r"^version: (.*)\ndate-released: (.*)$", citation, re.MULTILINE)
    assert found
    assert found[1] == crfkit.__version__
    assert f"## [{found[1]}] - {found[2]}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_changelog_has_the_version_and_the_usual_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(crfkit.__version__)}\] - \d{{4}}-\d\d-\d\d", heads[1])
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    body = text[text.index("## [Unreleased]") :].splitlines()
    assert not [line for line in body if line.startswith("  ")], "one line a change"


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_the_oldest_versions_are_one_pin_per_dependency(version: tuple[int, int]) -> None:
    pins = RELEASE["oldest"](version)
    names = [pin.split("==")[0] for pin in pins]
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["graph"], *extras["sklearn"]]
    assert sorted(names) == sorted({re.split(r"[>=]", d)[0] for d in wanted if not d.startswith("crfkit[")})
    assert ("numpy==1.26" in pins) == (version < (3, 13))


def test_each_tool_of_a_release_is_pinned() -> None:
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    assert {re.split(r"[;>=\s]", tool)[0] for tool in PROJECT["optional-dependencies"]["release"]} <= pinned


def test_no_free_threaded_python_builds_or_tests_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minor, free in ((18, 1), (19, 0)):
        python = tmp_path / f"python3.{minor}"
        python.write_text(f"#!/bin/sh\necho CPython 3 {minor} {free}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = RELEASE["pythons"]()
    assert (3, 18) not in found
    assert found[3, 19] == tmp_path / "python3.19"
