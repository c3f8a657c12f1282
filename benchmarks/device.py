"""Sparse-feature CRFs on a GPU beside the native core: one value and gradient, and a whole search.

    python benchmarks/device.py

CoNLL-2000 with CRFsuite's templates (c2 = 1), and NetTalk's letters with phones and stress, 162 labels. Medians of wall
time; a value comes to the host after each evaluation. Needs a GPU, and the corpora where ``CRFKIT_DATA`` says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from conll2000 import template_text

from crfkit import CRF, Template
from crfkit.data import load_corpus
from crfkit.torch.sparse import DeviceObjective
from crfkit.training import LBFGS, LikelihoodObjective

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

import nettalk


def milliseconds(f: Callable[[], Any], times: int) -> float:
    """Median of a call, after one that is not counted."""
    f()
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        f()
        taken.append(1e3 * (time.perf_counter() - begin))
    return median(taken)


def problems() -> Iterator[tuple[str, Any]]:
    """Names and training problems."""
    X, y = load_corpus("conll2000", "train")
    yield "CoNLL-2000", CRF(Template(template_text()), c2=1.0)._prepare(X, y, None, None, grow=True)[1]
    X, y, _, _ = nettalk.corpus("phone+stress")
    yield "NetTalk, phones and stress", CRF(nettalk.template(), c2=1.0)._prepare(X, y, None, None, grow=True)[1]


def main() -> None:
    """Prints one line for each."""
    print(f"torch {torch.__version__}", torch.cuda.get_device_name())
    for name, problem in problems():
        ours = DeviceObjective(problem, "cuda")
        w = np.random.default_rng(0).normal(size=ours.size) * 0.1
        x = torch.from_numpy(w).cuda()
        gradient = torch.empty_like(x)
        gpu = milliseconds(lambda f=ours, x=x, g=gradient: float(f.evaluate(x, g)), 20)  # type: ignore[misc]
        core = {}
        for n in (2, 16):
            plain = LikelihoodObjective(replace(problem, n_jobs=n))
            core[n] = milliseconds(partial(plain.value_and_grad, w), 7)
        print(
            f"{name}: {ours.size} weights, GPU {gpu:.2f} ms, core {core[2]:.0f} ms on 2 threads, {core[16]:.0f} on 16: "
            f"{core[2] / gpu:.1f}x and {core[16] / gpu:.1f}x",
            flush=True,
        )
        for _ in range(2):
            begin = time.perf_counter()
            found = LBFGS().minimize(ours, tol=1e-5)
            seconds = time.perf_counter() - begin
            print(
                f"  to the optimum: {seconds:.2f} s, {found.iterations} iterations, value {found.value:.3f}", flush=True
            )


if __name__ == "__main__":
    main()
