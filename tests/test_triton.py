"""The Triton kernels, in Triton's interpreter on the CPU, against the core in double precision."""

from __future__ import annotations

from typing import Any

import interpreter
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

if not interpreter.IS_CHOSEN:

    @pytest.mark.parametrize("share", interpreter.SHARES)
    def test_in_the_interpreter(share: str) -> None:
        interpreter.run_in_it(__file__, share)

else:
    import crfkit.torch
    from crfkit.torch import gpu, scan
    from crfkit.torch.chains import Batch, Chains

    ct: Any = crfkit.torch

    def lattice(b: int, t: int, n: int, pairs: bool, seed: int, dtype: Any, scale: float = 1.0) -> list[Any]:
        g = torch.Generator().manual_seed(seed)
        shapes = [(b, t, n), (n, n), (n,), (n,)] + ([(b, t - 1, n, n)] if pairs else [])
        out: list[Any] = [(torch.randn(s, generator=g) * scale).to(dtype).requires_grad_() for s in shapes]
        return out if pairs else [*out, None]

    def masks(kind: str, b: int, t: int) -> Any:
        if kind == "none":
            return None
        mask = torch.rand((b, t), generator=torch.Generator().manual_seed(5)) < 0.6
        mask[0] = True
        mask[-1] = False
        return mask if kind == "holes" else mask.sort(1, descending=True).values

    def compare(f: Any, inputs: list[Any], tolerance: float) -> None:
        """Values and gradients of f(inputs, backend), triton's against the core's in float64."""
        found = []
        weight = None
        for backend in ("core", "triton"):
            x = [
                None if v is None else (v.detach().double() if backend == "core" else v.detach()).requires_grad_()
                for v in inputs
            ]
            value = f(x, backend)
            weight = torch.linspace(-1, 2, len(value), dtype=torch.float64) if weight is None else weight
            (value * weight.to(value)).sum().backward()
            found.append([value.detach(), *(v.grad for v in x if v is not None)])
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)

    @pytest.mark.parametrize("kind", ["none", "tail", "holes"])
    @pytest.mark.parametrize("pairs", [False, True])
    @pytest.mark.parametrize(("n", "dtype"), [(3, torch.float32), (20, torch.float32), (3, torch.float64)])
    def test_log_partition_and_likelihood(n: int, dtype: Any, pairs: bool, kind: str) -> None:
        inputs = lattice(4, 6, n, pairs, 1, dtype)
        mask = masks(kind, 4, 6)
        tags = torch.randint(n, (4, 6), generator=torch.Generator().manual_seed(2))
        if mask is not None:
            tags = torch.where(mask, tags, -100)
        tolerance = 1e-10 if dtype == torch.float64 else 2e-5
        compare(lambda x, backend: ct.log_partition(*x, mask, backend), inputs, tolerance)
        compare(lambda x, backend: ct.log_likelihood(*x[:4], tags, x[4], mask, backend), inputs, tolerance)

    def test_half_precision() -> None:
        inputs = lattice(2, 5, 4, False, 3, torch.float32)
        inputs[0] = inputs[0].detach().to(torch.bfloat16)
        compare(lambda x, backend: ct.log_partition(*x, None, backend), inputs, 1e-2)

    @pytest.mark.parametrize("scale", [100.0, 1e4])
    def test_no_score_is_too_large(scale: float) -> None:
        inputs = lattice(3, 6, 4, False, 4, torch.float64, scale)
        with torch.no_grad():
            inputs[1][0, 1] = inputs[1][2, 2] = inputs[2][3] = -torch.inf
        compare(lambda x, backend: ct.log_partition(*x, None, backend), inputs, 1e-9)

    @pytest.mark.parametrize("kind", ["none", "tail", "holes"])
    @pytest.mark.parametrize("pairs", [False, True])
    def test_decode(pairs: bool, kind: str) -> None:
        mask = masks(kind, 5, 7)
        x, _, _, _, p = lattice(5, 7, 6, pairs, 6, torch.float32)
        layers = [ct.CRF(6, batch_first=True, backend=b) for b in ("core", "triton")]
        layers[1].load_state_dict(layers[0].state_dict())
        want, got = (layer.decode(x, mask, pairwise=p) for layer in layers)
        assert got == want

    @pytest.mark.parametrize("pairs", [False, True])
    def test_covariance(pairs: bool) -> None:
        """By differences, against the core's recursion; a forbidden transition has no part in it."""
        x: list[Any] = [None if v is None else v.detach() for v in lattice(3, 5, 4, pairs, 8, torch.float64)]
        x[1][0, 1] = -torch.inf
        batch = Batch._make((*x, masks("holes", 3, 5), None, 0))
        chains = Chains(batch)
        for scale in (1.0, 100.0):
            r = [None if v is None else v * 0.5 + scale for v in x]
            weight = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
            forbidden: list[Any] = [None if v is None else v.masked_fill(torch.isneginf(v), 0.0) for v in r]
            want_mean, want = chains.covariance(*chains.direction(*forbidden), weight)
            mean, found = gpu.covariance(batch, tuple(r), weight)
            torch.testing.assert_close(mean, want_mean, rtol=1e-6, atol=1e-6)
            for a, b in zip(found, want, strict=True):
                if b is not None:
                    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * scale)

    def test_the_layer_with_time_first() -> None:
        layers = [ct.CRF(5, backend=b) for b in ("core", "triton")]
        layers[1].load_state_dict(layers[0].state_dict())
        x = torch.randn(7, 3, 5)
        tags = torch.randint(5, (7, 3))
        torch.testing.assert_close(*(layer(x, tags, reduction="mean") for layer in layers))
        assert layers[0].decode(x) == layers[1].decode(x)

    def test_gradients_of_sums() -> None:
        """They are made in the forward pass; the backward pass may come twice, or be differentiated."""
        x, tags = torch.randn(3, 4, 3), torch.randint(3, (3, 4))
        found = []
        for backend in ("core", "triton"):
            torch.manual_seed(0)
            crf = ct.CRF(3, batch_first=True, backend=backend)
            u = x.clone().requires_grad_()
            loss = crf.loss(u, tags) * 3
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
            (first,) = torch.autograd.grad(loss, u, create_graph=True)
            (second,) = torch.autograd.grad((first * first.detach()).sum(), u)
            found.append([u.grad, *(p.grad for p in crf.parameters()), first.detach(), second])
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)

    MANY = [(130, "none"), (130, "tail"), (200, "holes"), (300, "holes"), (300, "none"), (520, "tail")]

    @pytest.mark.parametrize(
        ("n", "kind"),
        [(130, "holes"), *(pytest.param(n, kind, marks=pytest.mark.long) for n, kind in MANY)],
    )
    def test_many_labels(n: int, kind: str) -> None:
        t = 4 if n < 500 else 2  # the interpreter is slow
        inputs = lattice(3, t, n, False, 7, torch.float32)
        mask = masks(kind, 3, t)
        tags = torch.randint(n, (3, t), generator=torch.Generator().manual_seed(2))
        if mask is not None:
            tags = torch.where(mask, tags, -100)
        compare(lambda x, backend: ct.log_partition(*x, mask, backend), inputs, 1e-4)
        compare(lambda x, backend: ct.log_likelihood(*x[:4], tags, x[4], mask, backend), inputs, 1e-4)
        layers = [ct.CRF(n, batch_first=True, backend=b) for b in ("core", "triton")]
        layers[1].load_state_dict(layers[0].state_dict())
        assert layers[0].decode(inputs[0], mask) == layers[1].decode(inputs[0], mask)

    LONG_SCANS = [pytest.param(kind, False, marks=pytest.mark.long) for kind in ("none", "tail")]

    @pytest.mark.parametrize(("kind", "pairs"), [("holes", True), ("rules", False), *LONG_SCANS])
    def test_scan_over_time(kind: str, pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Spans of four steps, the last one shorter; the first step may be masked, a span too."""
        monkeypatch.setattr(scan, "span_of", lambda *_: 4)
        scale = 1e3 if kind == "rules" else 1.0
        inputs = lattice(3, 10, 3, pairs, 8, torch.float64, scale)
        mask = None if kind in ("none", "rules") else masks(kind, 3, 10)
        if mask is not None:
            mask[1, :5] = False
        if kind == "rules":
            with torch.no_grad():
                inputs[1][0, 1] = inputs[1][2, 2] = inputs[2][0] = -torch.inf
        tags = torch.randint(3, (3, 10), generator=torch.Generator().manual_seed(2))
        compare(lambda x, backend: ct.log_partition(*x, mask, backend), inputs, 1e-10)
        if kind != "rules":
            compare(lambda x, backend: ct.log_likelihood(*x[:4], tags, x[4], mask, backend), inputs, 1e-10)
        layers = [ct.CRF(3, batch_first=True, backend=b).double() for b in ("core", "triton")]
        for layer in layers:
            state = dict(zip(("transitions", "start_transitions", "end_transitions"), inputs[1:4], strict=True))
            layer.load_state_dict({k: v.detach() for k, v in state.items()})
        want, got = (layer.decode(inputs[0], mask, pairwise=inputs[4]) for layer in layers)
        assert got == want
        monkeypatch.setattr(scan, "span_of", lambda *_: 0)
        assert layers[1].decode(inputs[0], mask, pairwise=inputs[4]) == want

    def test_scan_without_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scan, "span_of", lambda *_: 4)
        crf = ct.CRF(2, batch_first=True, backend="triton")
        with torch.no_grad():
            crf.transitions.fill_(-torch.inf)
        assert crf.log_partition(torch.zeros(1, 6, 2)).item() == -torch.inf
        with pytest.raises(ValueError, match="no labelling is allowed in sequence 0"):
            crf.decode(torch.zeros(1, 6, 2))

    def test_where_the_scan_is_taken() -> None:
        few, long = torch.zeros(1, 1, 3), 100_000
        assert scan.span_of(few.expand(1, 1023, 3)) == 0
        assert scan.span_of(few.expand(1, 1024, 3)) == 32
        assert scan.span_of(few.expand(1, 1024, 3), True) == 0
        assert scan.span_of(few.expand(1, long, 3), True) == 256
        assert scan.span_of(few.expand(100, long, 3)) == 0

    @pytest.mark.parametrize("n", [3, 40, 130, 300])
    def test_ties_go_as_in_the_core(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
        g = torch.Generator().manual_seed(n)
        crf = ct.CRF(n, batch_first=True)
        for p in crf.parameters():
            p.data = torch.randint(-1, 2, p.shape, generator=g).float()
        x = torch.randint(-1, 2, (2, 9, n), generator=g).float()
        want = crf.decode(x)
        crf.backend = "triton"
        for span in (0, 4) if n == 3 else (0,):
            monkeypatch.setattr(scan, "span_of", lambda *_, span=span: span)
            assert crf.decode(x) == want

    def test_what_has_no_kernel() -> None:
        with pytest.raises(ValueError, match="no triton kernel"):
            gpu.choose(torch.zeros(1, 2, 200), torch.zeros(1, 1, 200, 200), "triton")
        with pytest.raises(ValueError, match="'backend' must be"):
            gpu.choose(torch.zeros(1, 2, 3), None, "cuda")
