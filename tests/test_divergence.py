"""Cross-entropy, divergence, counts and relaxed samples of chains, against enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import oracle
import pytest

from crfkit import chain
from crfkit.chain import Constraints, Potentials

RNG = np.random.default_rng(3)


def chains(per_step: bool, steps: int = 4, n: int = 3, forbid: bool = False) -> Potentials:
    unary = RNG.normal(size=(steps, n))
    pairwise = RNG.normal(size=(steps - 1, n, n) if per_step else (n, n))
    if forbid:
        unary[1, 0] = pairwise[..., 1, 2] = -np.inf
    return Potentials(unary, pairwise, start=RNG.normal(size=n), end=RNG.normal(size=n))


def enumerated(p: Potentials, q: Potentials) -> tuple[float, float]:
    """Cross-entropy and divergence."""
    a, b = oracle.probabilities(p), oracle.probabilities(q)
    held = a > 0
    with np.errstate(divide="ignore"):
        logs = np.log(b[held])
        return float(-(a[held] * logs).sum()), float((a[held] * (np.log(a[held]) - logs)).sum())


@pytest.mark.parametrize("p_steps", [False, True])
@pytest.mark.parametrize("q_steps", [False, True])
@pytest.mark.parametrize("forbid", ["neither", "p", "both"])
def test_cross_entropy_and_divergence_by_enumeration(p_steps: bool, q_steps: bool, forbid: str) -> None:
    p, q = chains(p_steps, forbid=forbid != "neither"), chains(q_steps, forbid=forbid == "both")
    cross, divergence = enumerated(p, q)
    assert p.cross_entropy(q) == pytest.approx(cross, rel=1e-9)
    assert p.kl(q) == pytest.approx(divergence, rel=1e-9)
    assert p.kl(p) == pytest.approx(0, abs=1e-12)
    assert p.cross_entropy(p) == pytest.approx(chain.entropy(p), rel=1e-9)


def test_a_divergence_is_infinite_where_the_other_forbids() -> None:
    p, q = chains(False), chains(False, forbid=True)
    assert p.kl(q) == p.cross_entropy(q) == np.inf
    assert np.isfinite(q.kl(p))


def test_divergences_of_a_batch_are_those_of_its_sequences() -> None:
    several = [chains(False, steps=s) for s in (1, 4, 2)]
    others = [chains(False, steps=s, forbid=s == 4) for s in (1, 4, 2)]
    p, q = Potentials.batch(several), Potentials.batch(others)
    np.testing.assert_allclose(p.kl(q), [a.kl(b) for a, b in zip(several, others, strict=True)], rtol=1e-9)
    np.testing.assert_array_equal(q.count(), [b.count() for b in others])
    with pytest.raises(ValueError, match="'other' must have the same labels"):
        p.kl(Potentials.batch(several[:2]))


@pytest.mark.parametrize("per_step", [False, True])
def test_counts_by_enumeration(per_step: bool) -> None:
    p = chains(per_step, forbid=True)
    assert p.count() == np.isfinite(oracle.scores(p)).sum()
    assert Potentials(np.zeros((40, 2)), np.zeros((2, 2))).count() == 2.0**40
    assert Potentials([[-np.inf, -np.inf]], np.zeros((2, 2))).count() == 0


torch: Any = pytest.importorskip("torch")
ct: Any = pytest.importorskip("crfkit.torch")
F64 = torch.float64


def layers(seed: int, n: int = 3) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    return tuple(ct.CRF(n, batch_first=True).double() for _ in range(2))


def potentials(crf: Any, emissions: Any, pairwise: Any, mask: Any, b: int) -> Potentials:
    """Of one sequence of a batch; the mask has no holes."""
    n = int(mask[b].sum())
    table = crf.transitions.detach() + (0 if pairwise is None else pairwise[b, : n - 1].detach())
    scores = emissions[b, :n], table, crf.start_transitions, crf.end_transitions
    return Potentials(*(x.detach().numpy() for x in scores))


@pytest.mark.parametrize("pairs", ["none", "p", "q", "both"])
def test_the_layers_divergences_are_those_of_its_potentials(pairs: str) -> None:
    student, teacher = layers(0)
    x, y = torch.randn(3, 4, 3, dtype=F64), torch.randn(3, 4, 3, dtype=F64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)
    own = torch.randn(3, 3, 3, 3, dtype=F64) if pairs in ("p", "both") else None
    other = torch.randn(3, 3, 3, 3, dtype=F64) if pairs in ("q", "both") else None
    given = {"crf": teacher, "pairwise": own, "other_pairwise": other}
    cross, kl = student.cross_entropy(x, y, mask, **given), student.kl(x, y, mask, **given)
    for b in range(3):
        p, q = potentials(student, x, own, mask, b), potentials(teacher, y, other, mask, b)
        assert (float(cross[b].detach()), float(kl[b].detach())) == pytest.approx(enumerated(p, q), rel=1e-9)
    turned = ct.CRF(3).double()
    turned.load_state_dict(student.state_dict())
    again = turned.kl(x.transpose(0, 1), y.transpose(0, 1), mask.T)
    torch.testing.assert_close(again, student.kl(x, y, mask))
    with pytest.raises(ValueError, match="batch_first"):
        turned.kl(x, y, crf=teacher)
    with pytest.raises(ValueError, match="shape of emissions"):
        student.kl(x, y[:2])


def test_gradients_of_the_divergence() -> None:
    student, teacher = layers(1)
    x, y = (torch.randn(2, 3, 3, dtype=F64, requires_grad=True) for _ in range(2))

    def f(x: Any, y: Any, *_: Any) -> Any:
        return student.kl(x, y, crf=teacher) * torch.tensor([1.0, -2.0], dtype=F64)

    weights = [*student.parameters(), *teacher.parameters()]
    assert torch.autograd.gradcheck(f, (x, y, *weights))


def test_the_layer_counts_what_its_constraints_allow() -> None:
    crf = ct.CRF(3, batch_first=True, constraints=Constraints.from_scheme(["O", "B-X", "I-X"], "bio"))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)
    allowed = [y for y in itertools.product(range(3), repeat=3) if y[0] != 2 and (0, 2) not in itertools.pairwise(y)]
    assert crf.count(torch.zeros(2, 3, 3), mask).tolist() == [len(allowed), 2]
    student = ct.CRF(3, batch_first=True)
    assert torch.isinf(student.kl(torch.zeros(1, 3, 3), torch.zeros(1, 3, 3), crf=crf)).all()
    assert torch.isfinite(crf.kl(torch.zeros(1, 3, 3), torch.zeros(1, 3, 3), crf=student)).all()


def test_relaxed_samples_are_samples() -> None:
    """As often as enumeration says; one-hot, and zero where the mask is."""
    (crf, _), n = layers(2, n=2), 20_000
    x = torch.randn(1, 4, 2, dtype=F64)
    mask = torch.tensor([[True, False, True, True]])  # a hole: its neighbours are neighbours
    torch.manual_seed(0)
    found = crf.gumbel_crf(x.expand(n, -1, -1), mask.expand(n, -1), temperature=0.7).detach()
    assert not found[:, 1].any()
    y = found[:, [0, 2, 3]].argmax(-1)
    torch.testing.assert_close(found[:, [0, 2, 3]], torch.nn.functional.one_hot(y, 2).double())
    p = potentials(crf, x[:, [0, 2, 3]], None, mask[:, [0, 2, 3]], 0)
    counts = torch.bincount(y @ torch.tensor([4, 2, 1]), minlength=8) / n
    np.testing.assert_allclose(counts.numpy(), oracle.probabilities(p), atol=5 * 0.5 / n**0.5)


def test_relaxed_samples_carry_the_gradient_of_the_relaxation() -> None:
    crf, _ = layers(4)
    x = torch.randn(2, 3, 3, dtype=F64, requires_grad=True)
    weight = torch.randn(2, 3, 3, dtype=F64)

    def gradient(hard: bool) -> Any:
        torch.manual_seed(5)
        return torch.autograd.grad((crf.gumbel_crf(x, hard=hard, temperature=0.9) * weight).sum(), x)[0]

    def relaxed(x: Any) -> Any:
        torch.manual_seed(5)
        return crf.gumbel_crf(x, hard=False, temperature=0.9)

    torch.testing.assert_close(gradient(True), gradient(False))
    assert gradient(True).abs().sum() > 0
    assert torch.autograd.gradcheck(relaxed, (x,))
    with pytest.raises(ValueError, match="'temperature' must be > 0"):
        crf.gumbel_crf(x, temperature=0)


def test_what_is_no_tensor_and_no_layer_is_named() -> None:
    crf, x = ct.CRF(2, batch_first=True), torch.zeros(1, 3, 2)
    for measure in (crf.kl, crf.cross_entropy):
        with pytest.raises(TypeError, match="other must be a tensor, got NoneType"):
            measure(x, None)
        with pytest.raises(TypeError, match=r"crf must be a CRF of crfkit.torch or None, got int"):
            measure(x, x, crf=5)
