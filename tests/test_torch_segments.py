"""The layer of segments against the functions on arrays, and its gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch")

from crfkit import segment  # noqa: E402
from crfkit.segment import Potentials  # noqa: E402
from crfkit.torch import SegmentCRF  # noqa: E402


def layer(labels: int = 3, longest: int = 3, **more: Any) -> Any:
    torch.manual_seed(0)
    crf = SegmentCRF(labels, longest, batch_first=True, **more).double()
    with torch.no_grad():
        for x in crf.parameters():
            x.normal_()
    return crf


def single(crf: Any, emissions: Any) -> Potentials:
    tables = (x.detach().numpy() for x in (crf.lengths, crf.transitions, crf.start_transitions, crf.end_transitions))
    return Potentials(emissions.detach().numpy(), *tables)


def test_log_partition_and_likelihood_equal_enumeration() -> None:
    crf = layer()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    tags = torch.tensor([[0, 0, 2, 1, 1], [1, 1, 1, 0, 0]])
    begins = torch.tensor([[1, 0, 1, 1, 1], [0, 1, 0, 0, 0]], dtype=torch.bool)
    z = crf.log_partition(x, mask).detach()
    value = crf(x, tags, begins, mask, reduction="none").detach()
    gold = [((0, 2, 0), (2, 3, 2), (3, 4, 1), (4, 5, 1)), ((0, 1, 1), (1, 3, 1))]
    for i, n in enumerate((5, 3)):
        p = single(crf, x[i, :n])
        assert float(z[i]) == pytest.approx(oracle.segmentations(p)[2], abs=1e-10)
        expected = oracle.segmentation_score(p, gold[i]) - oracle.segmentations(p)[2]
        assert float(value[i]) == pytest.approx(expected, abs=1e-10)
        assert crf.decode(x, mask)[i].tolist() == segment.decode(p).tolist()
        assert crf.nbest(x, 2, mask)[i].segments[1].tolist() == segment.nbest(p, 2).segments[1].tolist()
    np.testing.assert_allclose(crf.marginals(x, mask).nodes[5:], segment.marginals(single(crf, x[1, :3])).nodes)


def test_what_is_not_known_is_summed_over() -> None:
    crf = layer(2, 2)
    x = torch.randn(1, 4, 2, dtype=torch.float64)
    tags = torch.tensor([[0, -100, 1, 1]])
    begins = torch.tensor([[1, -100, 1, 0]])
    p = single(crf, x[0])
    every, chances, _ = oracle.segmentations(p)

    def fits(s: Any, borders: bool) -> bool:
        label = {t: j for a, b, j in s for t in range(a, b)}
        first = {a for a, _, _ in s}
        known = label[0] == 0 and label[2] == 1 and label[3] == 1
        return known and (not borders or (2 in first and 3 not in first))

    for given, borders in ((begins, True), (None, False)):
        expected = np.log(sum(c for s, c in zip(every, chances, strict=True) if fits(s, borders)))
        assert float(crf(x, tags, given).detach()) == pytest.approx(float(expected), abs=1e-9)
    for at in (1, 2, 3):  # borders, and no labels
        given = torch.tensor([[True, *(t == at for t in (1, 2, 3))]])
        chance = sum(c for s, c in zip(every, chances, strict=True) if {a for a, _, _ in s} == {0, at})
        value = crf(x, torch.full((1, 4), -100), given)
        assert float(value.detach()) == pytest.approx(np.log(chance) if chance else -np.inf, abs=1e-9)
    with pytest.raises(ValueError, match="begins must be bool, 0, 1 or -100, got 7"):
        crf(x, tags, torch.full((1, 4), 7))


def test_sequences_without_a_segmentation_are_errors() -> None:
    crf = layer(2, 2)
    x = torch.zeros(2, 4, 2)
    x[1, 1] = -torch.inf
    tags = torch.zeros(2, 4, dtype=torch.long)
    for run in (crf.log_partition, lambda x: crf(x, tags), lambda x: crf(x, tags, tags == 0)):
        with pytest.raises(ValueError, match="sequence 1: no segmentation is allowed"):
            run(x)


def test_gradients_equal_differences() -> None:
    crf = layer(2, 3)
    x = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    tags = torch.tensor([[0, 0, 1, 1], [1, 0, 0, 0]])
    begins = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)

    def loss(e: Any, *parameters: Any) -> Any:
        return crf(e, tags, begins, mask) * 0.7 + crf(e, torch.where(tags == 1, -100, tags), begins, mask)

    assert torch.autograd.gradcheck(loss, (x, *crf.parameters()), atol=1e-6)


def test_time_first_and_single_precision() -> None:
    crf = layer()
    x = torch.randn(2, 6, 3)
    turned = SegmentCRF(3, 3)
    turned.load_state_dict(crf.state_dict())
    first = crf.float().log_partition(x)
    assert torch.allclose(turned.log_partition(x.transpose(0, 1)), first, atol=1e-5)
    assert torch.allclose(crf.double().log_partition(x.double()).float(), first, atol=1e-4)


def test_inputs_are_checked() -> None:
    crf = layer(2, 2)
    x = torch.zeros(1, 3, 2)
    with pytest.raises(ValueError, match="emissions must have shape"):
        crf.log_partition(torch.zeros(1, 3, 4))
    with pytest.raises(ValueError, match="tags must be from 0 to 1"):
        crf(x, torch.tensor([[0, 2, 0]]))
    with pytest.raises(ValueError, match="3 tokens, more than 'max_length'=2"):
        crf(x, torch.zeros(1, 3, dtype=torch.long), torch.tensor([[True, False, False]]))
    with pytest.raises(ValueError, match="the same tag"):
        crf(x, torch.tensor([[0, 1, 0]]), torch.tensor([[True, False, True]]))
    wrong: list[tuple[Any, Any, str]] = [(2, 0, "max_length"), (2, 1.5, "max_length"), ("2", 2, "num_tags")]
    for num_tags, max_length, name in wrong:
        with pytest.raises(ValueError, match=f"'{name}' of SegmentCRF must be an int >= 1, got"):
            SegmentCRF(num_tags, max_length)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["emissions", "start_transitions", "transitions", "lengths"])
def test_scores_that_are_no_numbers_are_errors(value: float, place: str) -> None:
    crf = layer(2, 3)
    x = torch.randn(2, 5, 2, dtype=torch.float64)
    with torch.no_grad():
        (x if place == "emissions" else getattr(crf, place))[0].fill_(value)
    tags, begins = torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    for run in (crf.log_partition, crf.decode, lambda x: crf(x, tags, begins), lambda x: crf(x, tags)):
        with pytest.raises(ValueError, match=f"a score must be finite or minus infinity, got {value}"):
            run(x)
    if place == "emissions":  # steps that are masked do not count
        mask = torch.ones(2, 5, dtype=torch.bool)
        mask[0, 1:] = False
        x[0, 0] = 0
        assert torch.isfinite(crf.log_partition(x, mask)).all()
