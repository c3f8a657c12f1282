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
SHAPES = [
    *[(5, 1, 4), (7, 9, 2), (64, 33, 32), (3, 20, 50), (9, 40, 64), (4, 17, 128), (3, 12, 200), (2, 1500, 9)],
    *[(300, 40, 5), (70, 9, 520), (2, 5, 2100)],
]


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


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("shape", [(64, 33, 32), (1, 1, 3), (300, 40, 5)])
def test_sums_are_those_of_the_parts(shape: tuple[int, int, int]) -> None:
    """The kernels that add up values and gradients of all sequences, many times and on two streams."""
    ours, _ = layers(shape[2])
    x, y, _ = on_gpu(*inputs(shape, False))
    x.requires_grad_()
    each = ours(x, y, reduction="none")
    found = []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()) * 5:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            ours.zero_grad(set_to_none=True)
            x.grad = None
            value = ours(x, y)
            value.backward()
            found.append((value.detach(), ours.transitions.grad.clone(), x.grad))
        torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(found[0][0], each.detach().double().sum().float())
    assert all(torch.equal(a, b) for other in found for a, b in zip(other, found[0], strict=True))
    torch.testing.assert_close(ours(x, y, reduction="mean"), each.mean())


@pytest.mark.filterwarnings("ignore:Warning. Profiler")
@pytest.mark.parametrize("n", [32, 64, 200])
def test_few_launches(n: int) -> None:
    from torch.profiler import ProfilerActivity, profile

    ours, _ = layers(n)
    x, y, _ = on_gpu(*inputs((64, 128, n), False))
    x.requires_grad_()
    ours.loss(x, y).backward()
    x.grad = None
    ours.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        ours.loss(x, y).backward()
        torch.cuda.synchronize()
    names = [e.name for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(names) <= 4, names  # one of them is that with which backward() begins


@pytest.mark.parametrize("shape", [(8, 30, 9), (8, 30, 64), (2, 1500, 9), (20, 12, 200)])
def test_a_second_backward_pass(shape: tuple[int, int, int]) -> None:
    ours, plain = layers(shape[2])
    x, tags, mask = inputs(shape, True)
    found = []
    for crf, (u, y, m) in ((plain, (x.double(), tags, mask)), (ours, on_gpu(x, tags, mask))):
        u = u.clone().requires_grad_()
        loss = crf.loss(u, y, m) * 3
        loss.backward(retain_graph=True)
        loss.backward()
        found.append([z.double().cpu() for z in (loss.detach(), u.grad, *(p.grad for p in crf.parameters()))])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


@pytest.mark.parametrize("n", [130, 700])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_best_paths_of_many_labels(n: int, scale: float) -> None:
    """Whether few labels can win at a step, or most of them."""
    ours, plain = layers(n)
    with torch.no_grad():
        ours.transitions.mul_(100 * scale)
    plain.load_state_dict(ours.state_dict())
    x, _, mask = inputs((5, 40, n), True)
    assert ours.decode(*on_gpu(x, mask)) == plain.float().decode(x, mask)


@pytest.mark.parametrize("pairs", [False, True])
def test_entropies_and_second_derivatives(pairs: bool) -> None:
    ours, plain = layers(7)
    x, tags, mask = inputs((6, 20, 7), True)
    pairwise = torch.randn(6, 19, 7, 7) if pairs else None
    found = []
    for crf, (u, y, m, p) in ((plain, (x.double(), tags, mask, None if pairwise is None else pairwise.double())),
                              (ours, on_gpu(x, tags, mask, pairwise))):  # fmt: skip
        u = u.clone().requires_grad_()
        entropy = crf.entropy(u, m, pairwise=p)
        (slope,) = torch.autograd.grad(entropy.sum(), u)
        (first,) = torch.autograd.grad(crf(u, y, m, pairwise=p), u, create_graph=True)
        (second,) = torch.autograd.grad((first * first.detach()).sum(), u)
        found.append([z.detach().double().cpu() for z in (entropy, slope, first, second)])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


def test_a_network_is_trained_in_captured_steps() -> None:
    from crfkit import NeuralCRF
    from crfkit.torch.training import Steps

    graphs = []
    plain = Steps._capture

    def capture(self: Any, key: Any, batch: Any) -> None:
        plain(self, key, batch)
        graphs.append(len(self._graphs))

    X = [["the", "dog", "runs"], ["a", "big", "cat", "sleeps"]] * 60
    y = [["D", "N", "V"], ["D", "A", "N", "V"]] * 60
    settings: dict[str, Any] = {"encoder": "lstm", "encoder_size": 16, "character_size": 4, "hidden": ()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "_capture", capture)
        crf = NeuralCRF(**settings, batch_size=8, max_iter=6, random_state=0, device="cuda").fit(X, y)
    assert graphs[-1] == 2
    assert crf.history_[-1].value < 0.2 * crf.history_[0].value
    assert crf.predict(X) == y
    eager = NeuralCRF(**settings, batch_size=8, max_iter=6, random_state=0, device="cuda", precision="float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crfkit.torch.training._EAGER_STEPS", 1 << 30)
        eager.fit(X, y)
    replayed = NeuralCRF(**settings, batch_size=8, max_iter=6, random_state=0, device="cuda", precision="float32")
    replayed.fit(X, y)
    for a, b in zip(eager.history_, replayed.history_, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-3)


def test_what_goes_to_the_core() -> None:
    """N-best lists, samples and beams of tensors on a GPU; and rules in the kernels."""
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    ours, plain = layers(5, constraints="bio", labels=names)
    plain = plain.float()
    x, _, _ = inputs((6, 9, 5), False)
    (u,) = on_gpu(x)
    assert ours.decode(u) == plain.decode(x)
    assert ours.decode(u, beam="min-divergence:0.01") == plain.decode(x, beam="min-divergence:0.01")
    for got, want in zip(ours.nbest(u, k=3), plain.nbest(x, k=3), strict=True):
        assert [y for y, _ in got] == [y for y, _ in want]
        assert [p for _, p in got] == pytest.approx([p for _, p in want], abs=1e-5)
    for a, b in zip(ours.sample(u, n=4, random_state=1), plain.sample(x, n=4, random_state=1), strict=True):
        assert a.tolist() == b.tolist()
    torch.testing.assert_close(ours.entropy(u).cpu(), plain.entropy(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.marginals(u).cpu(), plain.marginals(x), atol=1e-5, rtol=1e-4)
    u.requires_grad_()
    (first,) = torch.autograd.grad(ours.log_partition(u).sum(), u, create_graph=True)
    (second,) = torch.autograd.grad((first * first.detach()).sum(), u)
    assert second.is_cuda
    assert bool(second.isfinite().all())


def segment_layers(labels: int, longest: int) -> tuple[Any, Any]:
    torch.manual_seed(labels)
    ours = ct.SegmentCRF(labels, longest, batch_first=True).cuda()
    plain = ct.SegmentCRF(labels, longest, batch_first=True).double()
    plain.load_state_dict(ours.state_dict())
    return ours, plain


@pytest.mark.parametrize(
    ("labels", "longest", "steps"), [(3, 4, 50), (24, 100, 300), (39, 30, 90), (11, 500, 700), (70, 7, 40)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_segments(labels: int, longest: int, steps: int, masked: bool) -> None:
    ours, plain = segment_layers(labels, longest)
    x, tags, mask = inputs((4, steps, labels), masked)
    begins = torch.ones_like(tags, dtype=torch.bool)
    unknown = tags.clone()
    unknown[:, 3:30] = -100
    for y in (tags, unknown):
        found = []
        for crf, u, more in ((plain, x.double(), (y, begins, mask)), (ours, x.cuda(), on_gpu(y, begins, mask))):
            u = u.clone().requires_grad_()
            crf.zero_grad()
            value = crf(u, *more, reduction="none")
            (value * torch.linspace(-1, 2, len(value)).to(value)).sum().backward()
            found.append([z.double().cpu() for z in (value.detach(), u.grad, *(p.grad for p in crf.parameters()))])
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max().clamp_min(1)))
    best = [crf.decode(u, m) for crf, u, m in ((plain, x.double(), mask), (ours, *on_gpu(x, mask)))]
    assert [s.tolist() for s in best[0]] == [s.tolist() for s in best[1]]
    want, got = plain.marginals(x.double(), mask), ours.marginals(*on_gpu(x, mask))
    for name in ("log_z", "nodes", "begins", "ends", "pairs", "lengths"):
        size = abs(getattr(want, name)).max()
        assert abs(getattr(got, name) - getattr(want, name)).max() <= 1e-4 * max(1, size), name
    assert ours.nbest(x.cuda(), 2)[0].segments[0].tolist() == plain.nbest(x.double(), 2)[0].segments[0].tolist()


def test_a_long_segmentation() -> None:
    """Messages of 100,000 steps in single precision, beside the core in double precision."""
    ours, plain = segment_layers(5, 40)
    x = torch.randn(1, 100_000, 5) * 2
    want, got = plain.marginals(x.double()), ours.marginals(x.cuda())
    assert abs(got.log_z / want.log_z - 1).max() < 1e-7
    assert abs(got.nodes - want.nodes).max() < 1e-4


def test_mean_losses_in_double_precision() -> None:
    """Kernels take numbers in single precision: a third is none of them."""
    ours, plain = layers(5)
    ours = ours.double()
    x, tags, _ = inputs((3, 7, 5), False)
    found = []
    for crf, u, y in ((plain, x.double(), tags), (ours, x.double().cuda(), tags.cuda())):
        u = u.clone().requires_grad_()
        loss = crf.loss(u, y)
        loss.backward()
        found.append((loss.detach().cpu(), u.grad.cpu()))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_tags_that_are_no_labels() -> None:
    ours, _ = layers(5)
    x, tags = torch.zeros(3, 4, 5).cuda(), torch.zeros(3, 4, dtype=torch.long).cuda()
    tags[1, 2] = 5
    assert ours(x, tags, reduction="none").isnan().tolist() == [False, True, False]
    ours.validate = True
    with pytest.raises(ValueError, match="got 5 in sequence 1 at step 2"):
        ours(x, tags)


def test_entropy_without_a_labelling() -> None:
    ours, _ = layers(3)
    with torch.no_grad():
        ours.transitions.fill_(-torch.inf)
    mask = torch.tensor([[True, True], [True, False]]).cuda()
    assert ours.entropy(torch.zeros(2, 2, 3).cuda(), mask).isnan().tolist() == [True, False]
