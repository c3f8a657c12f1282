"""The layer on a GPU: values, gradients and paths against the core, and that nothing waits for the device.

On a machine without one all of it is skipped; ``make test-gpu`` runs it alone.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import crfkit.torch  # noqa: E402

ct: Any = crfkit.torch
SHAPES = [(5, 1, 4), (7, 9, 2), (64, 33, 32), (3, 20, 50), (9, 40, 64), (4, 17, 128), (3, 12, 200), (2, 1500, 9)]


def layers(n: int, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(n)
    ours = ct.CRF(n, batch_first=True, **options).cuda()
    plain = ct.CRF(n, batch_first=True, backend="core", **options).double()
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def inputs(shape: tuple[int, int, int], masked: bool) -> tuple[Any, Any, Any]:
    b, t, n = shape
    x, tags = torch.randn(shape), torch.randint(n, (b, t))
    mask = torch.rand(b, t) < 0.7 if masked else None
    if mask is not None:
        mask[0] = True
        mask[-1, 0] = False
    return x, tags, mask


def on_gpu(*xs: Any) -> list[Any]:
    return [None if x is None else x.cuda() for x in xs]


def compare(
    shape: tuple[int, int, int], masked: bool, unknown: bool = False, scale: float = 1.0, rtol: float = 1e-4
) -> None:
    ours, plain = layers(shape[2])
    x, tags, mask = inputs(shape, masked)
    x = x * scale
    if unknown:
        tags[torch.rand(tags.shape) < 0.3] = -100
        tags[0] = 0
    found = []
    for crf, (u, y, m) in ((plain, (x.double(), tags, mask)), (ours, on_gpu(x, tags, mask))):
        u = u.clone().requires_grad_()
        value = crf(u, y, m, reduction="none")
        (value * torch.linspace(-1, 2, len(value)).to(value)).sum().backward()
        found.append([z.double().cpu() for z in (value.detach(), u.grad, *(p.grad for p in crf.parameters()))])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol * float(want.abs().max().clamp_min(1)))
    value = ours.log_partition(*on_gpu(x, mask)).double().cpu()
    torch.testing.assert_close(value, plain.log_partition(x.double(), mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, int, int], masked: bool) -> None:
    compare(shape, masked)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_unknown_tags(shape: tuple[int, int, int], masked: bool) -> None:
    compare(shape, masked, unknown=True)


@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_large_scores(scale: float) -> None:
    compare((6, 20, 24), True, scale=scale, rtol=2e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_decode(shape: tuple[int, int, int]) -> None:
    ours, plain = layers(shape[2])
    x, _, mask = inputs(shape, True)
    assert ours.decode(*on_gpu(x, mask)) == plain.float().decode(x, mask)


@pytest.mark.parametrize("shape", [(8, 30, 9), (8, 30, 64), (2, 1500, 9), (20, 12, 200)])
def test_nothing_waits(shape: tuple[int, int, int]) -> None:
    ours, _ = layers(shape[2])
    u, y, m = on_gpu(*inputs(shape, True))
    u.requires_grad_()
    ours(u, y, m).backward()  # compiles
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        ours(u, y, m).backward()
        ours(u, y, m, reduction="token_mean").backward()
        ours.log_partition(u, m).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("shape", [(8, 30, 9), (8, 30, 64), (2, 1500, 9), (20, 12, 200)])
def test_a_captured_step(shape: tuple[int, int, int]) -> None:
    ours, _ = layers(shape[2])
    u, y, _ = on_gpu(*inputs(shape, False))
    u.requires_grad_()

    def step() -> Any:
        u.grad = None
        ours.zero_grad(set_to_none=True)
        loss = -ours(u, y)
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            want = step().item(), u.grad.clone(), ours.transitions.grad.clone()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    graph.replay()
    assert loss.item() == want[0]
    assert torch.equal(u.grad, want[1])
    assert torch.equal(ours.transitions.grad, want[2])


def test_tags_that_are_no_labels() -> None:
    ours, _ = layers(5)
    x, tags = torch.zeros(3, 4, 5).cuda(), torch.zeros(3, 4, dtype=torch.long).cuda()
    tags[1, 2] = 5
    assert ours(x, tags, reduction="none").isnan().tolist() == [False, True, False]
    ours.validate = True
    with pytest.raises(ValueError, match="got 5 in sequence 1 at step 2"):
        ours(x, tags)
