"""The layer's operators in the hands of torch: the compiler, export, autocast, checkpointing, sharding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import crfkit.torch  # noqa: E402

ct: Any = crfkit.torch
#: The compiler makes an object of an autograd function, which torch warns of.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # torch's own
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


class Tagger(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A network with the layer on top."""

    def __init__(self, n: int = 5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(7, n)
        self.crf = ct.CRF(n, batch_first=True)

    def forward(self, x: Any, tags: Any, mask: Any = None) -> Any:
        return -self.crf(self.head(x), tags, mask, "token_mean")


def batch(device: str, n: int = 5) -> tuple[Any, Any, Any]:
    g = torch.Generator().manual_seed(1)
    x, tags = torch.randn(4, 6, 7, generator=g), torch.randint(n, (4, 6), generator=g)
    tags[1, 2] = -100
    mask = torch.rand(4, 6, generator=g) < 0.8
    return x.to(device), tags.to(device), mask.to(device)


def gradients(model: Any, *inputs: Any) -> list[Any]:
    model.zero_grad()
    loss = model(*inputs)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_a_break(device: str, dynamic: bool) -> None:
    model, inputs = Tagger().to(device), batch(device)
    want = gradients(model, *inputs)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for a, b in zip(want, gradients(compiled, *inputs), strict=True):
        torch.testing.assert_close(a, b)
    shorter = [y[:, :4] for y in inputs]
    for a, b in zip(gradients(model, *shorter), gradients(compiled, *shorter), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["log_partition", "marginals", "entropy"])
def test_other_sums_compiled(name: str) -> None:
    crf = ct.CRF(5, batch_first=True)
    x = torch.randn(3, 4, 5)
    torch._dynamo.reset()
    compiled = torch.compile(lambda u: getattr(crf, name)(u), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), getattr(crf, name)(x))


@pytest.mark.parametrize("device", DEVICES)
def test_exported(device: str) -> None:
    model, inputs = Tagger().to(device), batch(device)
    program = torch.export.export(model, inputs)
    assert "crfkit.value" in str(program.graph)
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device: str) -> None:
    model, inputs = Tagger().to(device), batch(device)
    want = gradients(model, *inputs)
    with torch.autocast(device, torch.bfloat16):
        scores = model.head(inputs[0])
        assert scores.dtype == torch.bfloat16
        got = gradients(model, *inputs)
    assert got[0].dtype == torch.float32
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_checkpointing(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    model, inputs = Tagger().to(device), batch(device)
    want = gradients(model, *inputs)
    got = gradients(lambda_module(model, checkpoint), *inputs)
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b)


def lambda_module(model: Any, checkpoint: Any) -> Any:
    class Checked(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return checkpoint(self.model, *inputs, use_reentrant=False)

    return Checked()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_sharded(device: str, how: str, tmp_path: Path) -> None:
    """One process of its own kind; two are in test_torch_layer.py."""
    import torch.distributed as dist

    model, inputs = Tagger().to(device), batch(device)
    want = gradients(model, *inputs)
    kind = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(kind, init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        if how == "ddp":
            got = gradients(torch.nn.parallel.DistributedDataParallel(model), *inputs)
        else:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            got = gradients(fully_shard(model, mesh=init_device_mesh(device, (1,))), *inputs)
            got = [x.full_tensor() if hasattr(x, "full_tensor") else x for x in got]
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(a, b)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("tagged", [False, True])
def test_shapes_that_the_compiler_is_told(pairs: bool, tagged: bool) -> None:
    n = 3
    scores = [torch.randn(2, 4, n), torch.randn(n, n), torch.randn(n), torch.randn(n)]
    scores.append(torch.randn(2, 3, n, n) if pairs else None)
    tags = torch.randint(n, (2, 4)) if tagged else None
    arguments = (*scores, torch.ones(2, 4, dtype=torch.bool), tags, -100)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.crfkit.value.default, (*arguments, "core", True, 0.0), test_utils=tests)
    kept = torch.ops.crfkit.value(*arguments, "core", True, 0.0)[1:]
    more = torch.rand(2), *arguments, "core", *kept, -0.5
    torch.library.opcheck(torch.ops.crfkit.gradient.default, more, test_utils=tests)
    direction = (*scores, arguments[5], *scores, torch.rand(2))
    torch.library.opcheck(torch.ops.crfkit.covariance.default, direction, test_utils=tests)
