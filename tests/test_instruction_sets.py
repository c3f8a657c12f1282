"""Deterministic methods, run to the end, give the same weights with every instruction set.

On a machine with other instruction sets: ``python -m pytest tests/test_instruction_sets.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfkit import _core

SETS = ["base", "avx2", "avx512"]
SETTINGS: dict[str, dict[str, Any]] = {
    "lbfgs": {"c2": 1.0},
    "owl-qn": {"c1": 0.5, "c2": 1.0},
    "newton-cg": {"algorithm": "newton-cg", "c2": 1.0},
}
TRAIN = """
import sys, warnings
import numpy as np
from crfkit import CRF, _core
from crfkit.data import load_corpus

warnings.simplefilter("ignore")
X, y = load_corpus("ingredients")
X, y = list(X)[:100], list(y)[:100]
found = {"set": _core.instruction_set()}
for name, settings in eval(sys.argv[2]).items():
    for dtype in ("float32", "float64"):
        found[f"{name} {dtype}"] = CRF(tol=1e-10, n_jobs=1, dtype=dtype, **settings).fit(X, y).weights_
np.savez(sys.argv[1], **found)
"""


def trained(isa: str, path: Path) -> dict[str, Any]:
    environment = {**os.environ, "CRFKIT_ISA": isa}
    subprocess.run([sys.executable, "-c", TRAIN, path, repr(SETTINGS)], env=environment, check=True)
    with np.load(path) as file:
        return dict(file)


def test_methods_run_to_the_end_agree_across_instruction_sets(tmp_path: Path) -> None:
    best = _core.instruction_set() if "CRFKIT_ISA" not in os.environ else "avx512"
    there = SETS[: SETS.index(best) + 1]
    if len(there) == 1:
        pytest.skip("this processor, or this build, has one instruction set only")
    found = {isa: trained(isa, tmp_path / f"{isa}.npz") for isa in there}
    first = found["base"]
    for isa in there[1:]:
        if str(found[isa].pop("set")) != isa:
            continue  # asked for more than there is
        for key, weights in found[isa].items():
            apart = np.abs(weights - first[key]).max() / np.abs(first[key]).max()
            assert apart < 1e-6, f"{isa}, {key}: {apart:.1e}"
