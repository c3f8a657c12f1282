"""Segments: the cost of a gradient beside the chain's, lattices beside torch-struct's, growth in K, accuracy.

    python benchmarks/segment.py gradient    # an L-BFGS gradient on CoNLL-2000, K = 8, over the chain's
    python benchmarks/segment.py peers       # forward and backward, beside torch-struct's SemiMarkov
    python benchmarks/segment.py lengths     # L 24, T 10,000: tokens/s as K grows
    python benchmarks/segment.py gpu         # the layer on a GPU, beside flash-semicrf where that is installed
    python benchmarks/segment.py million     # a million steps on a GPU, beside the core in double precision
    python benchmarks/segment.py accuracy [conll2000|bc2gm]    # F1 on the test sets
    python benchmarks/segment.py choose [conll2000|bc2gm]      # F1 on held-out sentences, for values of c2

Timings are medians of the processor time of runs in turn, on one thread. torch-struct needs much memory per sequence:
``--batch`` is how many both get. Accuracy: CRF and SegmentCRF have the same features of tokens and the same limits of
training. ``choose`` holds out folds of a sixth of the training set (of BC2GM, of training and development sets); c2 of
each model was chosen by it. The errors of differences are those of sentences drawn with replacement.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from conll2000 import template_text

from crfkit import CRF, SegmentCRF, Template, TokenFeatures, segment
from crfkit.data import load_corpus
from crfkit.metrics import spans
from crfkit.segment import Potentials, SegmentFeatures

#: c2 of CRF and of the other models, chosen on held-out sentences.
C2 = {"conll2000": (0.5, 0.5), "bc2gm": (0.5, 1.0)}
TRIED = (0.5, 1.0)


def in_turn(runs: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Median seconds of processor time of each, run in turn."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            taken[name].append(time.process_time() - begin)
    return {name: median(x) for name, x in taken.items()}


def gradient(times: int) -> None:
    """An evaluation of the objective of CoNLL-2000."""
    X, y = load_corpus("conll2000", "train")
    features = Template(template_text())
    chain = CRF(features, n_jobs=1).objective(X, y)
    model = SegmentCRF(features, max_length=8, too_long="cut", n_jobs=1)
    listed = SegmentCRF(features, max_length=8, too_long="cut", n_jobs=1, segments=SegmentFeatures())
    f, g = model.objective(X, y), listed.objective(X, y)
    rng = np.random.default_rng(0)
    w = {x: rng.normal(size=x.size) * 0.1 for x in (chain, f, g)}
    runs = {
        "CRF": lambda: chain.value_and_grad(w[chain]),
        "SegmentCRF, K = 8": lambda: f.value_and_grad(w[f]),
        "SegmentCRF, K = 8, dictionary": lambda: g.value_and_grad(w[g]),
    }
    seconds = in_turn(runs, times)
    for name, s in seconds.items():
        print(f"{name:32} {1000 * s:8.1f} ms  {s / seconds['CRF']:.2f}x")
    print(f"sequences through log space: {f.n_redone} and {g.n_redone} of {len(X)}")


def peers(times: int, n_batch: int) -> None:
    """L 8, K 8, T 1,000: log Z and its gradient."""
    import torch
    from torch_struct import SemiMarkovCRF

    from crfkit.torch import SegmentCRF as Layer

    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    steps, n, longest = 1000, 8, 8
    emissions = torch.randn(n_batch, steps, n)
    layer = Layer(n, longest, batch_first=True)
    with torch.no_grad():
        layer.start_transitions.zero_()
        layer.end_transitions.zero_()

    def ours() -> Any:
        x = emissions.clone().requires_grad_(True)
        z: Any = layer.log_partition(x)
        z.sum().backward()
        return z.detach(), x.grad

    def theirs() -> Any:
        # [B, T, K + 1, L, L]: scores of a segment of k tokens from t on with label j, after label i; at the beginning
        # there is a label i as well, over which it sums
        x = emissions.clone().requires_grad_(True)
        c = torch.cat([torch.zeros(n_batch, 1, n), x.cumsum(1)], 1)
        edge = torch.full((n_batch, steps, longest + 1, n, n), -1e9)
        pairs = layer.transitions.detach().T.expand(steps, n, n).clone()
        pairs[0] = -float(np.log(n))
        for k in range(1, longest + 1):
            inner = c[:, k:] - c[:, : steps + 1 - k] + layer.lengths[k - 1].detach()
            edge[:, : steps + 1 - k, k] = inner[..., :, None] + pairs[: steps + 1 - k]
        z = SemiMarkovCRF(edge, lengths=torch.full((n_batch,), steps + 1)).partition
        z.sum().backward()
        return z.detach(), x.grad

    seconds = in_turn({"crfkit": ours}, times)
    begin = time.process_time()
    z, gradient_of_theirs = theirs()
    other = time.process_time() - begin
    mine, gradient_of_ours = ours()
    print(
        f"largest difference: log Z {float((z - mine).abs().max()):.1e}, "
        f"gradient {float((gradient_of_theirs - gradient_of_ours).abs().max()):.1e}"
    )
    print(
        f"crfkit {1000 * seconds['crfkit']:.2f} ms, torch-struct {1000 * other:.0f} ms: "
        f"{other / seconds['crfkit']:.0f}x"
    )


def lengths(times: int) -> None:
    """Tokens per second of log Z and all its gradients, L 24, T 10,000."""
    rng = np.random.default_rng(0)
    n, steps, many = 24, 10_000, 4
    for longest in (12, 25, 50, 100, 200):
        p = Potentials(
            rng.normal(size=(many * steps, n)).astype(np.float32),
            rng.normal(size=(longest, n)).astype(np.float32),
            rng.normal(size=(n, n)).astype(np.float32),
            offsets=np.arange(many + 1) * steps,
        )
        s = in_turn({"": partial(segment.marginals, p, 1)}, times)[""]
        print(
            f"K {longest:4}: {many * steps / s / 1e3:8.0f} thousand tokens/s on one thread, "
            f"{s / longest * 1e3:.2f} ms per length"
        )


def on_device(layer: Any, x: Any) -> tuple[float, float, Any, Any]:
    """Seconds of log Z, and with its gradients; log Z, and the gradient of the emissions."""
    import torch

    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    z = layer.log_partition(x)
    torch.cuda.synchronize()
    middle = time.perf_counter()
    z.sum().backward()
    torch.cuda.synchronize()
    return middle - begin, time.perf_counter() - begin, z.detach(), x.grad


def gpu(times: int) -> None:
    """The shapes of flash-semicrf's own benchmark, four sequences: log Z, all gradients, decoding; milliseconds."""
    import torch

    from crfkit.torch import SegmentCRF as Layer

    try:
        from flash_semicrf.streaming import semi_crf_streaming_forward
    except ImportError:
        semi_crf_streaming_forward = None
    print(torch.__version__, torch.cuda.get_device_name())
    for n, longest in ((24, 100), (39, 30), (11, 500)):
        for steps in (1000, 10_000, 100_000):
            torch.manual_seed(0)
            layer = Layer(n, longest, batch_first=True).cuda()
            with torch.no_grad():  # theirs has a label before the first, over which it sums
                layer.start_transitions.copy_(layer.transitions.logsumexp(0))
                layer.end_transitions.zero_()
            x = torch.randn(4, steps, n, device="cuda")
            found = [on_device(layer, x) for _ in range(1 + min(times, 3))][1:]
            layer.decode(x)
            begin = time.perf_counter()
            layer.decode(x)
            decoding = time.perf_counter() - begin
            ours = median(f[1] for f in found)
            line = f"L {n} K {longest} T {steps:6}: {1e3 * ours:8.1f} ms, decode {1e3 * decoding:8.1f} ms"
            # theirs takes minutes for the longest
            if semi_crf_streaming_forward is not None and steps * longest <= 500_000:
                u = x.clone().requires_grad_()
                tables = [y.detach().clone().requires_grad_() for y in (layer.transitions, layer.lengths)]
                sizes = torch.full((4,), steps, device="cuda")
                taken = []
                for _ in range(2):  # the first compiles
                    u.grad = None
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    sums = torch.cat([u.new_zeros(4, 1, n, dtype=torch.float64), u.double().cumsum(1)], 1)
                    z = semi_crf_streaming_forward(sums, *tables, sizes, longest)
                    z.sum().backward()
                    torch.cuda.synchronize()
                    taken.append(time.perf_counter() - begin)
                gradient = u.grad
                assert gradient is not None
                far = float((found[-1][3] - gradient).norm() / gradient.norm())
                line += (
                    f", flash-semicrf {1e3 * taken[1]:9.1f} ms: {taken[1] / ours:.0f}x; gradients differ by {far:.1e}"
                )
            print(line, flush=True)


def million(times: int) -> None:
    """T 1,000,000, L 11, K 500: seconds, memory, and errors of single precision beside the core in double precision."""
    import torch

    from crfkit.torch import SegmentCRF as Layer

    torch.manual_seed(0)
    layer = Layer(11, 500, batch_first=True).cuda()
    with torch.no_grad():
        for y in layer.parameters():
            y.normal_()
    x = torch.randn(1, 1_000_000, 11, device="cuda") * 2
    on_device(layer, x[:, :2000])
    forward, both, z, gradient = on_device(layer, x)
    memory = torch.cuda.max_memory_allocated() / 2**20
    layer.decode(x[:, :2000])
    begin = time.perf_counter()
    segments = layer.decode(x)[0]
    decoding = time.perf_counter() - begin
    print(f"forward {forward:.2f} s, with backward {both:.2f} s, {memory:.0f} MB, decode {decoding:.2f} s")
    plain = Layer(11, 500, batch_first=True).double()
    plain.load_state_dict(layer.state_dict())
    u = x.double().cpu().requires_grad_()
    begin = time.perf_counter()
    want: Any = plain.log_partition(u)
    want.sum().backward()
    assert u.grad is not None
    print(f"core, double precision: {time.perf_counter() - begin:.1f} s; {len(segments)} segments")
    error = (gradient.cpu().double() - u.grad).abs()
    large = u.grad > 1e-3
    log_z = float(want.detach()[0])
    print(
        f"log Z {log_z:.2f}, relative error {abs(float(z[0]) / log_z - 1):.1e}; marginals: largest error "
        f"{float(error.max()):.1e}, relative to those above 0.001 {float((error[large] / u.grad[large]).max()):.1e}"
    )


def sequences(name: str, parts: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    """Sentences and labels of some parts of a corpus."""
    X: list[Any] = []
    y: list[Any] = []
    for part in parts:
        found = load_corpus(name, part)
        X += list(found.X)
        y += [list(row) for row in found.y]
    return X, y


def models(name: str, iterations: int, c2: tuple[float, float]) -> dict[str, Any]:
    """The models that are compared; ``c2`` of the chain and of the others."""
    features: Any = Template(template_text()) if name == "conll2000" else TokenFeatures()
    limits: dict[str, Any] = {"max_iter": iterations, "tol": 1e-4}
    more: dict[str, Any] = {"max_length": 12 if name == "conll2000" else 16, "too_long": "cut", "c2": c2[1], **limits}
    dictionary, seen = SegmentFeatures(), SegmentFeatures(dictionary=False, seen=True)
    return {
        "CRF": CRF(features, c2=c2[0], **limits),
        "SegmentCRF": SegmentCRF(features, **more),
        "SegmentCRF, ends": SegmentCRF(features, ends=True, **more),
        "SegmentCRF, dictionary, ends": SegmentCRF(features, segments=dictionary, ends=True, **more),
        "SegmentCRF, seen": SegmentCRF(features, segments=seen, **more),
        "SegmentCRF, seen, ends": SegmentCRF(features, segments=seen, ends=True, **more),
    }


def right(gold: Any, found: Any) -> Any:
    """Of each sentence: spans that are right, found, and wanted."""
    pairs = [(set(spans(a)), set(spans(b))) for a, b in zip(gold, found, strict=True)]
    return np.array([(len(a & b), len(b), len(a)) for a, b in pairs], float)


def f1(counts: Any) -> Any:
    """Of counts, times 100."""
    a, b, c = np.moveaxis(counts.sum(-2), -1, 0)
    return 200 * a / (b + c)


def error(counts: Any, base: Any) -> float:
    """The standard error of a difference of F1: over sentences drawn with replacement."""
    drawn = np.random.default_rng(0).integers(0, len(counts), (500, len(counts)))
    return float(np.std([f1(counts[rows]) - f1(base[rows]) for rows in drawn]))


def trained(title: str, model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> Any:
    """Counts of spans in the sentences that are scored."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of iterations
        model.fit(X, y)
    counts = right(y_test, model.predict(X_test))
    taken = time.perf_counter() - begin
    print(f"{title:36} F1 {f1(counts):.2f}  {model.n_iter_} iterations, {taken:.0f} s", flush=True)
    return counts


def accuracy(name: str, iterations: int, only: list[str]) -> None:
    """F1 of segments on a test set."""
    base = None
    for title, model in models(name, iterations, C2[name]).items():
        if only and title not in only:
            continue
        counts = trained(f"{name} {title}", model, *sequences(name, ("train",)), *sequences(name, ("test",)))
        base = counts if base is None else base
        print(f"    {f1(counts) - f1(base):+.2f} ± {error(counts, base):.2f} over the first")


def choose(name: str, iterations: int, only: list[str], folds: int) -> None:
    """F1 of segments on folds of the training data, for values of c2."""
    X, y = sequences(name, ("train",) if name == "conll2000" else ("train", "dev"))
    order, size = np.random.default_rng(5).permutation(len(X)), len(X) // 6
    found: dict[tuple[str, float], list[Any]] = {}
    for k in range(folds):
        scored = order[k * size : (k + 1) * size].tolist()
        known = np.setdiff1d(order, scored).tolist()
        data = [[part[i] for i in rows] for rows in (known, scored) for part in (X, y)]
        for c2 in TRIED:
            for title, model in models(name, iterations, (c2, c2)).items():
                if not only or title in only:
                    counts = trained(f"fold {k} {title}, c2={c2}", model, *data)
                    found.setdefault((title, c2), []).append(counts)
    all_counts = {key: np.concatenate(counts) for key, counts in found.items()}
    base = max((counts for (title, _), counts in all_counts.items() if title == "CRF"), key=f1, default=None)
    for (title, c2), counts in all_counts.items():
        gain = "" if base is None else f"{f1(counts) - f1(base):+.2f} ± {error(counts, base):.2f} over the best CRF"
        print(f"{name} {title:30} c2={c2}: {f1(counts):.2f} {gain}", flush=True)


def main() -> None:
    """Runs one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gradient", "peers", "lengths", "gpu", "million", "accuracy", "choose"])
    parser.add_argument("corpus", nargs="?", choices=["conll2000", "bc2gm"])
    parser.add_argument("--iterations", type=int, default=400, help="of training at most")
    parser.add_argument("--only", nargs="*", default=[], help="some of the models")
    parser.add_argument("--folds", type=int, default=3, help="for choose")
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--batch", type=int, default=16, help="sequences, for peers")
    args = parser.parse_args()
    if args.what in ("accuracy", "choose"):
        for name in [args.corpus] if args.corpus else ["conll2000", "bc2gm"]:
            if args.what == "accuracy":
                accuracy(name, args.iterations, args.only)
            else:
                choose(name, args.iterations, args.only, args.folds)
    else:
        others = {"gradient": gradient, "lengths": lengths, "gpu": gpu, "million": million}
        peers(args.times, args.batch) if args.what == "peers" else others[args.what](args.times)


if __name__ == "__main__":
    main()
