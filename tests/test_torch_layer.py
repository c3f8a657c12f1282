"""The torch layer against enumeration, finite differences and torchcrf."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

import crfkit.torch  # noqa: E402
from crfkit.chain import Constraints  # noqa: E402

ct: Any = crfkit.torch
F64 = torch.float64


def lattice(b: int, t: int, n: int, pairs: bool, seed: int = 0, scale: float = 1.0, dtype: Any = F64) -> list[Any]:
    g = torch.Generator().manual_seed(seed)
    shapes = [(b, t, n), (n, n), (n,), (n,)] + ([(b, t - 1, n, n)] if pairs else [])
    out: list[Any] = [(torch.randn(s, generator=g, dtype=F64) * scale).to(dtype).requires_grad_() for s in shapes]
    return out if pairs else [*out, None]


def holes(b: int, t: int, seed: int = 1) -> Any:
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand((b, t), generator=g) < 0.6
    mask[0] = True
    mask[-1] = False  # an empty sequence
    return mask


def enumerate_paths(inputs: Any, mask: Any, b: int) -> tuple[list[Any], Any]:
    """All taggings of sequence b and their scores, by the definition."""
    u, a, s, e, p = inputs
    n = u.shape[2]
    at = [t for t in range(u.shape[1]) if mask is None or mask[b, t]]
    paths = list(itertools.product(range(n), repeat=len(at)))
    scores = []
    for y in paths:
        total = u.new_zeros(())
        for k, t in enumerate(at):
            total = total + u[b, t, y[k]]
            if k == 0:
                total = total + s[y[k]]
            else:
                total = total + a[y[k - 1], y[k]]
                if p is not None:
                    total = total + p[b, t - 1, y[k - 1], y[k]]
            if k == len(at) - 1:
                total = total + e[y[k]]
        scores.append(total)
    return paths, torch.stack(scores)


def by_enumeration(what: str, inputs: list[Any], mask: Any) -> Any:
    u = inputs[0]
    rows = []
    for b in range(u.shape[0]):
        paths, scores = enumerate_paths(inputs, mask, b)
        log_z = scores.logsumexp(0)
        p = (scores - log_z).exp()
        if what == "log_partition":
            rows.append(log_z)
        elif what == "entropy":
            rows.append(-torch.where(p > 0, p * (scores - log_z), 0.0).sum())
        else:
            out = torch.zeros(u.shape[1:], dtype=u.dtype)
            at = [t for t in range(u.shape[1]) if mask is None or mask[b, t]]
            for y, q in zip(paths, p, strict=True):
                for k, t in enumerate(at):
                    add = torch.zeros_like(out)
                    add[t, y[k]] = 1
                    out = out + add * q
            rows.append(out)
    return torch.stack(rows)


FUNCTIONS = ["log_partition", "marginals", "entropy"]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("what", FUNCTIONS)
def test_values_and_gradients_are_those_of_enumeration(what: str, masked: bool, pairs: bool) -> None:
    inputs = lattice(4, 4, 3, pairs)
    mask = holes(4, 4) if masked else None
    got = getattr(ct, what)(*inputs, mask)
    want = by_enumeration(what, inputs, mask)
    torch.testing.assert_close(got, want)
    weight = torch.randn(want.shape, dtype=F64, generator=torch.Generator().manual_seed(3))
    wanted = [x for x in inputs if x is not None]
    for g, w in zip(
        torch.autograd.grad((got * weight).sum(), wanted),
        torch.autograd.grad((want * weight).sum(), wanted, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(g, torch.zeros_like(g) if w is None else w)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("what", FUNCTIONS)
def test_gradcheck(what: str, pairs: bool) -> None:
    inputs = lattice(3, 5, 3, pairs, seed=2)
    mask = holes(3, 5)
    assert gradcheck(lambda *x: getattr(ct, what)(*x[:4], x[4] if pairs else None, mask), inputs[: 5 if pairs else 4])


@pytest.mark.parametrize("pairs", [False, True])
def test_gradcheck_of_the_likelihood(pairs: bool) -> None:
    inputs = lattice(3, 5, 3, pairs, seed=4)
    mask = holes(3, 5)
    tags = torch.randint(3, (3, 5), generator=torch.Generator().manual_seed(0))

    def f(*x: Any) -> Any:
        return ct.log_likelihood(*x[:4], tags, x[4] if pairs else None, mask)

    assert gradcheck(f, inputs[: 5 if pairs else 4])
    assert gradgradcheck(f, inputs[: 5 if pairs else 4])


def test_second_derivatives() -> None:
    inputs = lattice(2, 4, 3, False, seed=5)[:4]
    assert gradgradcheck(lambda *x: ct.log_partition(*x, None, holes(2, 4)), inputs)


@pytest.mark.parametrize("scale", [30.0, 1e3])
def test_scores_beyond_the_range_of_exponentials(scale: float) -> None:
    inputs = lattice(3, 5, 3, False, seed=6, scale=scale)
    with torch.no_grad():
        inputs[1][0, 1] = -torch.inf
    for what in FUNCTIONS:
        got, want = getattr(ct, what)(*inputs), by_enumeration(what, inputs, None)
        torch.testing.assert_close(got.detach(), want.detach(), rtol=1e-9, atol=1e-9)
    grads = torch.autograd.grad(ct.entropy(*inputs).sum(), inputs[:4])
    assert all(bool(torch.isfinite(g).all()) for g in grads)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean", "none"])
def test_in_the_place_of_torchcrf(batch_first: bool, reduction: str) -> None:
    torchcrf = pytest.importorskip("torchcrf")
    torch.manual_seed(0)
    theirs = torchcrf.CRF(5, batch_first=batch_first)
    ours = ct.CRF(5, batch_first=batch_first)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]], dtype=torch.uint8)
    emissions, tags = torch.randn(3, 6, 5), torch.randint(5, (3, 6))
    if not batch_first:
        mask, emissions, tags = mask.T, emissions.transpose(0, 1), tags.T
    mask = mask.bool()
    results = []
    for crf in (theirs, ours):
        x = emissions.clone().requires_grad_()
        value = crf(x, tags, mask=mask, reduction=reduction)
        value.sum().backward()
        results.append([value.detach(), x.grad, *(p.grad for p in crf.parameters())])
        results[-1].append(crf.decode(emissions, mask=mask))
    for a, b in zip(*results, strict=True):
        if isinstance(a, list):
            assert a == b
        else:
            torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="dimension of 3"):
        ours(emissions[0], tags)
    with pytest.raises(ValueError, match="last dimension"):
        ours(emissions[..., :4], tags)
    with pytest.raises(ValueError, match="first two dimensions"):
        ours(emissions, tags[:2])
    with pytest.raises(ValueError, match="reduction"):
        ours(emissions, tags, reduction="avg")
    with pytest.raises(ValueError, match="number of tags"):
        ct.CRF(0)


def make(n: int = 3, **settings: Any) -> Any:
    torch.manual_seed(1)
    return ct.CRF(n, batch_first=True, **settings).double()


def probabilities(crf: Any, x: Any, mask: Any, b: int) -> dict[tuple[int, ...], float]:
    a, s, e = (z.detach() for z in crf._scores())
    paths, scores = enumerate_paths((x, a, s, e, None), mask, b)
    return dict(zip(paths, (scores - scores.logsumexp(0)).exp().tolist(), strict=True))


def test_unknown_labels_and_sets() -> None:
    crf, x = make(), torch.randn(2, 4, 3, dtype=F64)
    tags = torch.tensor([[0, -100, 2, 1], [-100, -100, -100, -100]])
    got = crf(x, tags, reduction="none")
    p = probabilities(crf, x, None, 0)
    want = sum(q for y, q in p.items() if y[0] == 0 and y[2] == 2 and y[3] == 1)
    assert got[0].exp().item() == pytest.approx(want)
    assert got[1].item() == pytest.approx(0)
    sets = torch.ones(2, 4, 3, dtype=torch.bool)
    sets[0, 1, 2] = sets[0, 3, 0] = False
    want = sum(q for y, q in p.items() if y[1] != 2 and y[3] != 0)
    assert crf(x, sets, reduction="none")[0].exp().item() == pytest.approx(want)
    assert crf.span_probability(x, tags)[0].item() == pytest.approx(got[0].exp().item())
    crf(x, tags).backward()
    assert torch.isfinite(crf.transitions.grad).all()
    with pytest.raises(ValueError, match="tags must be in"):
        crf(x, torch.full((2, 4), 3))
    with pytest.raises(ValueError, match="tags must be integers"):
        crf(x, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="weight must have shape"):
        crf(x, torch.zeros(2, 4, dtype=torch.long), weight=torch.ones(3))
    for bad in (torch.nan, torch.inf):
        x[1, 2, 0] = bad
        with pytest.raises(ValueError, match=f"a score must be finite or minus infinity, got {bad} in emissions"):
            crf(x, torch.zeros(2, 4, dtype=torch.long))


def test_padding_may_hold_anything() -> None:
    crf, x = make(), torch.randn(2, 4, 3, dtype=F64)
    mask = torch.tensor([[False, True, True, False], [True, False, True, True]])
    tags = torch.tensor([[-100, 1, 2, -100], [0, -100, 1, 1]])
    got = crf(x, tags, mask, reduction="none")
    assert got[0].exp().item() == pytest.approx(probabilities(crf, x, mask, 0)[(1, 2)])
    assert got[1].exp().item() == pytest.approx(probabilities(crf, x, mask, 1)[(0, 1, 1)])


def test_weights() -> None:
    crf, x = make(), torch.randn(2, 4, 3, dtype=F64)
    tags = torch.tensor([[0, 1, 2, 1], [0, 0, -100, 2]])
    plain = crf(x, tags, reduction="none")
    w = torch.tensor([2.0, 0.5])
    torch.testing.assert_close(crf(x, tags, weight=w), (plain * w).sum())
    weighted = make(class_weight=[1.0, 2.0, 4.0])
    torch.testing.assert_close(weighted(x, tags, reduction="none"), plain * torch.tensor([9 / 4, 2.0], dtype=F64))
    torch.testing.assert_close(weighted.span_probability(x, tags), plain.exp())


def test_constraints_hold_in_training_and_decoding() -> None:
    labels = ["O", "B-X", "I-X"]
    crf = make(constraints="bio", labels=labels)
    rules = Constraints.from_scheme(labels, "bio")
    assert set(crf.state_dict()) == {"start_transitions", "end_transitions", "transitions"}
    x = torch.randn(8, 6, 3, dtype=F64)
    x[..., 2] += 5
    for path in crf.decode(x):
        assert rules.start[path[0]]
        assert all(rules.transitions[i, j] for i, j in itertools.pairwise(path))
    total = sum(q for y, q in probabilities(crf, x[:, :3], None, 0).items() if y[0] == 2)
    assert total == 0
    assert crf.marginals(x)[:, 0, 2].abs().max() == 0
    crf(x, torch.ones(8, 6, dtype=torch.long)).backward()
    assert all(torch.isfinite(p.grad).all() for p in crf.parameters())
    with pytest.raises(ValueError, match="'labels' of CRF"):
        ct.CRF(3, constraints="bio")
    dead = ct.CRF(2, batch_first=True, constraints=Constraints(np.zeros((2, 2), bool), *np.ones((2, 2), bool)))
    with pytest.raises(ValueError, match="no labelling is allowed in sequence 0"):
        dead.decode(torch.zeros(1, 3, 2))


def test_nbest_and_sample() -> None:
    crf, x = make(), torch.randn(2, 4, 3, dtype=F64)
    mask = torch.tensor([[True, True, True, True], [True, False, True, False]])
    for b, found in enumerate(crf.nbest(x, mask, k=4)):
        p = probabilities(crf, x, mask, b)
        best = sorted(p.values(), reverse=True)[:4]
        assert [q for _, q in found] == pytest.approx(best)
        assert [p[tuple(y)] for y, _ in found] == pytest.approx(best)
        assert found[0][0] == crf.decode(x, mask)[b]
    drawn = crf.sample(x, mask, n=4000, random_state=0)
    assert [tuple(d.shape) for d in drawn] == [(4000, 4), (4000, 2)]
    for t in range(4):
        share = torch.bincount(drawn[0][:, t], minlength=3) / 4000
        torch.testing.assert_close(share.double(), crf.marginals(x, mask)[0, t].detach(), atol=0.04, rtol=0)
    torch.manual_seed(3)
    first = crf.sample(x, n=2)
    torch.manual_seed(3)
    assert all(torch.equal(p, q) for p, q in zip(first, crf.sample(x, n=2), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype: Any) -> None:
    torch.manual_seed(0)
    crf = ct.CRF(5, batch_first=True)
    x = torch.randn(2, 300, 5).to(dtype)
    tags = torch.randint(5, (2, 300))
    half, single = x.clone().requires_grad_(), x.float().requires_grad_()
    value = crf(half, tags)
    assert value.dtype == torch.float32
    value.backward()
    crf(single, tags).backward()
    torch.testing.assert_close(value, crf(single, tags))
    assert half.grad is not None
    assert single.grad is not None
    assert half.grad.dtype == dtype
    torch.testing.assert_close(half.grad, single.grad.to(dtype))


def test_a_hundred_thousand_steps() -> None:
    torch.manual_seed(0)
    crf = ct.CRF(4, batch_first=True)
    x = torch.randn(1, 100_000, 4, requires_grad=True)
    tags = torch.randint(4, (1, 100_000))
    crf(x, tags).backward()
    assert x.grad is not None
    assert x.grad.sum(-1).abs().max() < 1e-4
    exact = copy.deepcopy(crf).double()
    torch.testing.assert_close(crf.log_partition(x).double(), exact.log_partition(x.double()), rtol=1e-6, atol=0)
    assert len(crf.decode(x)[0]) == 100_000


def test_pickle_deepcopy_and_save() -> None:
    crf, x = make(constraints="bio", labels=["O", "B-X", "I-X"]), torch.randn(1, 5, 3, dtype=F64)
    buffer = io.BytesIO()
    torch.save(crf.state_dict(), buffer)
    buffer.seek(0)
    again = ct.CRF(3, batch_first=True, constraints="bio", labels=["O", "B-X", "I-X"]).double()
    again.load_state_dict(torch.load(buffer))
    for twin in (copy.deepcopy(crf), pickle.loads(pickle.dumps(crf)), again):
        torch.testing.assert_close(twin.log_partition(x), crf.log_partition(x))


def test_export_of_decoding() -> None:
    crf, x = make(), torch.randn(2, 5, 3, dtype=F64)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    decoder = ct.TorchDecoder(crf)
    program = torch.export.export(decoder, (x, mask))
    tags, score = program.module()(x, mask)
    assert [[y for y in row if y >= 0] for row in tags.tolist()] == crf.decode(x, mask)
    assert score[0].item() - crf.log_partition(x)[0].item() == pytest.approx(np.log(crf.nbest(x, k=1)[0][0][1]))


def test_export_for_any_batch() -> None:
    crf = make()
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        ct.TorchDecoder(crf), (torch.randn(2, 5, 3, dtype=F64),), dynamic_shapes=({0: batch},)
    )
    x = torch.randn(7, 5, 3, dtype=F64)
    assert program.module()(x)[0].tolist() == crf.decode(x)


def test_onnx() -> None:
    pytest.importorskip("onnxscript", reason="torch writes ONNX with it")
    runtime = pytest.importorskip("onnxruntime")
    crf = make().float()
    x = torch.randn(2, 5, 3)
    program = torch.onnx.export(ct.TorchDecoder(crf), (x,), dynamo=True, verbose=False)
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    tags = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    assert tags.tolist() == crf.decode(x)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.crf = crfkit.torch.CRF(3, batch_first=True)

    def forward(self, x: Any, y: Any) -> Any:
        return -self.crf(self.linear(x), y)


def one_of_two(rank: int, file: str, state: Any, x: Any, y: Any, out: str) -> None:
    """A process of the next test: half of the batch each."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    tagger = Tagger()
    tagger.load_state_dict(state)
    parallel = nn.parallel.DistributedDataParallel(tagger)
    parallel(x[rank::2], y[rank::2]).backward()
    torch.save([p.grad for p in tagger.parameters()], f"{out}.{rank}")
    # The wrapper goes first: one that held the last reference to the group would wait for gloo's threads with
    # Python's lock in its hands, and they may wait for the lock.
    del parallel
    torch.distributed.destroy_process_group()


def test_two_processes(tmp_path: Path) -> None:
    """The mean of the processes' gradients is half of the whole batch's."""
    torch.manual_seed(0)
    tagger, x, y = Tagger(), torch.randn(4, 5, 4), torch.randint(3, (4, 5))
    arguments = str(tmp_path / "meet"), tagger.state_dict(), x, y, str(tmp_path / "out")
    processes = torch.multiprocessing.spawn(one_of_two, arguments, nprocs=2, join=False)
    done = any(processes.join(timeout=60) for _ in range(2))  # a call returns when one of them ends
    for process in processes.processes:
        process.kill()
    assert done, "the two processes did not end in two minutes"
    tagger(x, y).backward()
    for rank in range(2):
        for got, p in zip(torch.load(tmp_path / f"out.{rank}"), tagger.parameters(), strict=True):
            assert p.grad is not None
            torch.testing.assert_close(got, p.grad / 2)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_inside_of_a_compiled_model() -> None:
    torch.manual_seed(0)
    model = Tagger()
    x, y = torch.randn(2, 5, 4), torch.randint(3, (2, 5))
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x, y), model(x, y))
    compiled(x, y).backward()
    assert model.linear.weight.grad is not None
    torch.testing.assert_close(
        torch.compile(model.crf.marginals, backend="eager")(x[..., :3]), model.crf.marginals(x[..., :3])
    )


def test_empty_batches() -> None:
    crf = ct.CRF(3, batch_first=True)
    assert crf.decode(torch.zeros(0, 4, 3)) == []
    assert crf(torch.zeros(0, 4, 3), torch.zeros(0, 4, dtype=torch.long)).item() == 0
    assert crf.log_partition(torch.zeros(2, 0, 3)).tolist() == [0, 0]
    assert crf.marginals(torch.zeros(2, 0, 3)).shape == (2, 0, 3)


def test_importing_crfkit_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, crfkit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_negative_likelihood(reduction: Any, weighted: bool) -> None:
    crf = ct.CRF(3, batch_first=True, class_weight=[1.0, 2.0, 0.5] if weighted else None).double()
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    tags, mask = torch.randint(3, (4, 5)), torch.arange(5) < torch.tensor([5, 3, 1, 4])[:, None]
    found = []
    for f in (crf.loss, lambda *a: -crf(*a)):
        u = x.clone().requires_grad_()
        value = f(u, tags, mask, reduction)
        value.sum().backward()
        found.append((value.detach(), u.grad))
    torch.testing.assert_close(found[0], found[1])
    assert bool(found[0][0].sum() > 0)


def test_triton_needs_scores_on_a_gpu() -> None:
    pytest.importorskip("triton")
    x, tags = torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.long)
    chain, segments = ct.CRF(2, batch_first=True, backend="triton"), ct.SegmentCRF(2, 2, backend="triton")
    message = "'backend' is 'triton', which needs scores on a GPU, but these are on the cpu"
    calls: list[Callable[[], Any]] = [
        lambda: chain(x, tags),
        lambda: chain.decode(x),
        lambda: chain.marginals(x),
        lambda: ct.log_partition(x, torch.zeros(2, 2), x[0, 0], x[0, 0], backend="triton"),
        lambda: segments(x, tags),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
