"""The torch layer beside pytorch-crf and torch-struct: forward + backward, decoding, memory; one run.

    python benchmarks/torch_layer.py [--device cuda|cpu] [--quick] [--json FILE]
    python benchmarks/torch_layer.py --steps   # the layer alone on a GPU: eager and captured steps, launches

Float32, medians, peers in turn in the same run; pytorch-crf and torch-struct are left out where they are not
installed. On a GPU the results are also held against a float64 reference written in plain torch. ``--kernels-only``
runs the GPU rows from the source tree on a machine where the native core is not built.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SHAPES = [(64, 128, 32), (256, 128, 64), (64, 128, 128), (64, 128, 512), (16, 4096, 32)]
STEPS = [
    *[(64, 128, 32), (256, 128, 64), (64, 128, 128), (16, 4096, 32), (1024, 64, 16)],
    *[(64, 128, 160), (64, 128, 512), (64, 128, 600), (64, 128, 1024), (64, 128, 2048), (64, 128, 4096)],
]
LONG = [(1, 100_000, 9), (2, 100_000, 32), (1, 100_000, 128)]
CPU_SHAPES = [(64, 128, 32), (16, 64, 9)]


def timed(f: Callable[[], Any], torch: Any, cuda: bool, repeats: int, warm: int = 3) -> float:
    """Median milliseconds of a call."""
    for _ in range(warm):
        f()
    found = []
    for _ in range(repeats):
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        f()
        if cuda:
            torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(found)


def captured(step: Callable[[], Any], torch: Any, repeats: int) -> float:
    """Median milliseconds of a step that is replayed as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return timed(graph.replay, torch, True, repeats)


def path_score(crf: Any, x: Any, tags: Any) -> Any:
    """Scores [B] of the tags in float64."""
    a, s, e = (p.detach().double() for p in (crf.transitions, crf.start_transitions, crf.end_transitions))
    unary = x.detach().double().gather(2, tags[..., None]).squeeze(2).sum(1)
    return unary + s[tags[:, 0]] + e[tags[:, -1]] + a[tags[:, :-1], tags[:, 1:]].sum(1)


def reference(torch: Any, crf: Any, x: Any, tags: Any) -> tuple[Any, Any, Any]:
    """Log-likelihoods [B], their emissions' and transitions' gradients: float64, step by step, in log space."""
    a, s, e = (p.detach().double() for p in (crf.transitions, crf.start_transitions, crf.end_transitions))
    u = x.detach().double()
    n_steps = u.shape[1]
    alpha = [s + u[:, 0]]
    for t in range(1, n_steps):
        alpha.append(u[:, t] + (alpha[-1][:, :, None] + a).logsumexp(1))
    log_z = (alpha[-1] + e).logsumexp(1)
    beta = e.expand_as(alpha[-1])
    nodes = [(alpha[-1] + beta - log_z[:, None]).exp()]
    pairs = torch.zeros_like(a)
    for t in range(n_steps - 2, -1, -1):
        c = u[:, t + 1] + beta
        pairs += (alpha[t][:, :, None] + a + c[:, None, :] - log_z[:, None, None]).exp().sum(0)
        beta = (a + c[:, None, :]).logsumexp(2)
        nodes.append((alpha[t] + beta - log_z[:, None]).exp())
    p = torch.stack(nodes[::-1], 1)
    gold = path_score(crf, x, tags)
    hot = torch.zeros_like(p).scatter_(2, tags[..., None], 1.0)
    flat = (tags[:, :-1] * a.shape[0] + tags[:, 1:]).reshape(-1)
    counts = torch.bincount(flat, minlength=a.numel()).reshape(a.shape).double()
    return gold - log_z, hot - p, counts - pairs


def struct_loss(torch: Any, crf: Any, x: Any, tags: Any) -> Any:
    """-sum log p with torch-struct; start and end scores are put into the first and last potentials."""
    import torch_struct

    potentials = x[:, 1:, :, None] + crf.transitions.t()[None, None]
    first = torch.zeros_like(potentials)
    first[:, 0] = (x[:, 0] + crf.start_transitions)[:, None, :]
    first[:, -1] += crf.end_transitions[None, :, None]
    potentials = (potentials + first).contiguous()
    dist = torch_struct.LinearChainCRF(potentials)
    parts = torch_struct.LinearChainCRF.struct.to_parts(tags, x.shape[2]).type_as(x)
    return dist.partition.sum() - (potentials * parts).sum()


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def floor(shape: tuple[int, int, int]) -> dict[str, float]:
    """Least time on an H200 in microseconds: by bytes at 4.3 TB/s, by multiply-adds at 33 T/s, by dependent steps."""
    b, t, n = shape
    bytes_moved = 4.0 * b * t * n * 5  # read u twice, write and read messages, write the gradient
    return {
        "bytes_us": bytes_moved / 4.3e6,
        "operations_us": 3.0 * b * t * n * n / 33e6,
        "steps_us": 2 * t * 0.1,  # a dependent step through registers and shared memory takes some 200 cycles
    }


def run_shape(torch: Any, ct: Any, shape: tuple[int, int, int], device: str, repeats: int) -> dict[str, Any]:
    b, t, n = shape
    cuda = device == "cuda"
    torch.manual_seed(0)
    ours = ct.CRF(n, batch_first=True).to(device)
    x = torch.randn(b, t, n, device=device, requires_grad=True)
    tags = torch.randint(n, (b, t), device=device)
    row: dict[str, Any] = {"shape": f"B{b} T{t} L{n}", "floor": floor(shape)}

    def step(loss: Callable[[], Any], crf: Any) -> Callable[[], None]:
        def run() -> None:
            x.grad = None
            crf.zero_grad(set_to_none=True)
            loss().backward()

        return run

    def measure(name: str, loss: Callable[[], Any], crf: Any, decode: Callable[[], Any] | None, times: int) -> None:
        run = step(loss, crf)
        warm = 3 if times > 3 else 1
        try:
            row[f"{name}_ms"] = timed(run, torch, cuda, times, warm)
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
                run()
                row[f"{name}_mb"] = (torch.cuda.max_memory_allocated() - held) / 2**20
            if decode is not None:
                row[f"{name}_decode_ms"] = timed(decode, torch, cuda, times, warm)
        except torch.cuda.OutOfMemoryError:
            row[f"{name}_ms"] = None
        x.grad = None

    measure("crfkit", lambda: -ours(x, tags), ours, lambda: ours.decode(x), repeats)
    if cuda and n <= 128:
        row["captured_ms"] = captured(step(lambda: -ours(x, tags), ours), torch, repeats)
    if cuda:
        value, dx, da = reference(torch, ours, x, tags)
        got = ours(x, tags, reduction="none")
        x.grad = None
        ours.zero_grad()
        got.sum().backward()
        row["error_value"] = float(((got.double() - value) / value).abs().max())
        row["error_nodes"] = float((x.grad.double() - dx).abs().max())
        row["error_transitions"] = float((ours.transitions.grad.double() - da).abs().max() / (b * t))
        again = x.grad.clone(), ours.transitions.grad.clone()
        x.grad = None
        ours.zero_grad()
        ours(x, tags, reduction="none").sum().backward()
        row["same_twice"] = bool(torch.equal(again[0], x.grad) and torch.equal(again[1], ours.transitions.grad))
        del dx, da
    few = max(3, min(repeats, 5 if t > 1000 else 20))
    if has("torchcrf"):
        import torchcrf

        theirs = torchcrf.CRF(n, batch_first=True).to(device)
        theirs.load_state_dict(ours.state_dict())
        measure("pytorch-crf", lambda: -theirs(x, tags), theirs, lambda: theirs.decode(x), few)
        if cuda or t <= 128:
            paths = [torch.tensor(crf.decode(x), device=device) for crf in (theirs, ours)]
            row["same_tags"] = round(float((paths[0] == paths[1]).float().mean()), 5)
            scores = [path_score(ours, x, y) for y in paths]
            row["score_lost"] = float((scores[0] - scores[1]).max())  # float32 breaks near ties either way
    if has("torch_struct"):
        measure("torch-struct", lambda: struct_loss(torch, ours, x, tags), ours, None, few)
    return row


def learn(crf: Any, x: Any, tags: Any) -> Callable[[], None]:
    def run() -> None:
        x.grad = None
        crf.zero_grad(set_to_none=True)
        crf.loss(x, tags, reduction="sum").backward()

    return run


def steps(torch: Any, ct: Any) -> None:
    """Milliseconds of a step, in a row and replayed, of what walks, and of decoding; kernel launches of a step."""
    from torch.profiler import ProfilerActivity, profile

    from crfkit.torch import gpu

    for b, t, n in STEPS:
        torch.manual_seed(0)
        crf = ct.CRF(n, batch_first=True).cuda()
        x = torch.randn(b, t, n, device="cuda", requires_grad=True)
        tags = torch.randint(n, (b, t), device="cuda")
        step = learn(crf, x, tags)

        def many(step: Callable[[], None] = step) -> None:
            for _ in range(50):
                step()

        eager = timed(many, torch, True, 7, 1) / 50
        with torch.autograd.set_multithreading_enabled(False):
            alone = timed(many, torch, True, 7, 1) / 50
        replayed = captured(step, torch, 20)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            torch.cuda.synchronize()
        kernels = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        walks = sum(e.device_time for e in kernels if e.name == "_walk_kernel") / 1e3
        with torch.no_grad():
            batch = crf._batch(x, None, None)
            best = captured(partial(gpu.decode, batch), torch, 20)
            log_z = captured(partial(crf.log_partition, x), torch, 20)
        forward = captured(partial(crf.loss, x, tags, reduction="sum"), torch, 20)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step()
        memory = (torch.cuda.max_memory_allocated() - held) / (4 * x.numel())
        print(
            f"B{b} T{t} L{n}: eager {eager:.3f}, in the calling thread {alone:.3f}, captured {replayed:.3f}, "
            f"its forward {forward:.3f}, walks {walks:.3f}, log Z alone {log_z:.3f}, decode {best:.3f} ms, "
            f"launches {len(kernels)}, {memory:.1f} numbers per score",
            flush=True,
        )


def long_sequences(torch: Any, ct: Any, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of few long sequences: with the scan over time, and walked as whole sequences."""
    from crfkit.torch import scan

    found = []
    for b, t, n in LONG:
        torch.manual_seed(0)
        crf = ct.CRF(n, batch_first=True).cuda()
        x = torch.randn(b, t, n, device="cuda", requires_grad=True)
        tags = torch.randint(n, (b, t), device="cuda")
        row: dict[str, Any] = {"shape": f"B{b} T{t} L{n}"}
        paths, most = [], scan.MOST_WORK
        for name, limit in (("scan", most), ("walk", 0)):
            scan.MOST_WORK = limit

            row[f"{name}_ms"] = timed(learn(crf, x, tags), torch, True, repeats)
            row[f"{name}_decode_ms"] = timed(partial(crf.decode, x), torch, True, repeats)
            paths.append(torch.tensor(crf.decode(x), device="cuda"))
        scan.MOST_WORK = most
        row["same_tags"] = round(float((paths[0] == paths[1]).float().mean()), 6)
        found.append(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
    return found


def share_of_bilstm(torch: Any, ct: Any, device: str, repeats: int) -> dict[str, Any]:
    """Fraction of a BiLSTM-CRF training step that the CRF takes: the step with it and without."""
    b, t, n, width = 64, 128, 32, 256
    cuda = device == "cuda"
    lstm = torch.nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True).to(device)
    head = torch.nn.Linear(2 * width, n).to(device)
    crf = ct.CRF(n, batch_first=True).to(device)
    modules = torch.nn.ModuleList([lstm, head, crf])
    optimiser = torch.optim.Adam(modules.parameters(), fused=cuda, capturable=cuda)
    x = torch.randn(b, t, width, device=device)
    tags = torch.randint(n, (b, t), device=device)

    def step(with_crf: bool) -> Callable[[], None]:
        def run() -> None:
            optimiser.zero_grad(set_to_none=True)
            scores = head(lstm(x)[0])
            loss = crf.loss(scores, tags) if with_crf else scores.sum()
            loss.backward()
            optimiser.step()

        return run

    whole, rest = timed(step(True), torch, cuda, repeats), timed(step(False), torch, cuda, repeats)
    out = {"step_ms": whole, "without_crf_ms": rest, "share": max(0.0, 1 - rest / whole)}
    if cuda:
        out["gpu_share"] = kernel_share(torch, step(True))
        out["captured_ms"], out["captured_without_crf_ms"] = (captured(step(x), torch, repeats) for x in (True, False))
    return out


def kernel_share(torch: Any, step: Callable[[], None]) -> float:
    """Fraction of the GPU's busy time that the CRF's kernels take, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    step()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        step()
        torch.cuda.synchronize()
    total = mine = 0.0
    for event in found.key_averages():
        spent = event.self_device_time_total
        total += spent
        if any(f"{name}_kernel" in event.key for name in ("_walk", "_posterior")):
            mine += spent
    return mine / total if total else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--kernels-only", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", action="store_true")
    args = parser.parse_args()
    if args.kernels_only:
        from unittest.mock import MagicMock

        sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
        sys.modules["crfkit._core"] = MagicMock()
    import torch

    import crfkit.torch as ct

    warnings.simplefilter("ignore")  # the peers'
    if args.steps:
        print(f"torch {torch.__version__}", torch.cuda.get_device_name())
        steps(torch, ct)
        return
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}", torch.cuda.get_device_name() if device == "cuda" else f"{args.threads} threads")
    rows = []
    for shape in SHAPES if device == "cuda" else CPU_SHAPES:
        row = run_shape(torch, ct, shape, device, 5 if args.quick else 30)
        rows.append(row)
        line = [row["shape"], f"crfkit {row['crfkit_ms']:.3f} ms"]
        for peer in ("pytorch-crf", "torch-struct"):
            if row.get(f"{peer}_ms"):
                line.append(f"{peer} {row[f'{peer}_ms']:.1f} ms ({row[f'{peer}_ms'] / row['crfkit_ms']:.0f}x)")
        line.append(f"decode {row['crfkit_decode_ms']:.3f} ms")
        if row.get("pytorch-crf_decode_ms"):
            line.append(f"(x{row['pytorch-crf_decode_ms'] / row['crfkit_decode_ms']:.0f})")
        for key in ("crfkit_mb", "pytorch-crf_mb"):
            if key in row:
                line.append(f"{key} {row[key]:.0f}")
        line += [f"{k} {row[k]:.2g}" for k in row if k.startswith("error")]
        line += [f"{k} {row[k]}" for k in ("same_twice", "same_tags", "score_lost") if k in row]
        print("  ".join(line), flush=True)
    share = share_of_bilstm(torch, ct, device, 5 if args.quick or device == "cpu" else 30)
    print("BiLSTM-CRF step:", {k: round(v, 4) for k, v in share.items()}, flush=True)
    long = long_sequences(torch, ct, 5) if device == "cuda" else []
    if args.json:
        Path(args.json).write_text(json.dumps({"rows": rows, "bilstm": share, "long": long}, indent=1))


if __name__ == "__main__":
    main()
