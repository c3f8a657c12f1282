"""The kernels of segments, in Triton's interpreter on the CPU, against the core in double precision."""

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
    import numpy as np

    import crfkit.torch
    from crfkit.torch import segment_kernels

    ct: Any = crfkit.torch

    def layers(labels: int, longest: int, dtype: Any = torch.float64) -> list[Any]:
        torch.manual_seed(labels)
        found = [ct.SegmentCRF(labels, longest, batch_first=True, backend=b) for b in ("core", "triton")]
        with torch.no_grad():
            for x in found[0].parameters():
                x.normal_()
        found[1].load_state_dict(found[0].state_dict())
        return [found[0].double(), found[1].to(dtype)]

    def compare(crfs: list[Any], f: Any, x: Any, tolerance: float) -> None:
        """Values and gradients of f(layer, emissions), the kernels' against the core's."""
        found = []
        for crf in crfs:
            u = x.to(crf.transitions.dtype, copy=True).requires_grad_()
            value = f(crf, u)
            (value * torch.linspace(-1, 2, len(value)).to(value)).sum().backward()
            found.append([value.detach(), u.grad, *(p.grad for p in crf.parameters())])
            crf.zero_grad()
        for want, got in zip(*found, strict=True):
            torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)

    LONG = pytest.param(2, 40, 45, 1e-10, marks=pytest.mark.long)
    SHAPES = [(3, 3, 9, 1e-10), (20, 2, 5, 1e-10), (2, 9, 12, 1e-10), (5, 6, 20, 3e-5), LONG]

    @pytest.mark.parametrize(("labels", "longest", "steps", "tolerance"), SHAPES)
    def test_log_partition_likelihood_and_decode(labels: int, longest: int, steps: int, tolerance: float) -> None:
        crfs = layers(labels, longest, torch.float64 if tolerance < 1e-6 else torch.float32)
        x = torch.randn(3, steps, labels)
        mask = torch.ones(3, steps, dtype=torch.bool)
        mask[1, steps // 2 :] = False
        mask[2, 1] = False
        compare(crfs, lambda crf, u: crf.log_partition(u, mask), x, tolerance)
        tags = torch.randint(labels, (3, steps))
        begins = torch.ones(3, steps, dtype=torch.bool)
        compare(crfs, lambda crf, u: crf(u, tags, begins, mask, reduction="none"), x, tolerance)
        want, got = (crf.decode(x.to(crf.transitions.dtype), mask) for crf in crfs)
        assert [s.tolist() for s in got] == [s.tolist() for s in want]
        want, got = (crf.marginals(x.to(crf.transitions.dtype), mask) for crf in crfs)
        for name in ("log_z", "nodes", "begins", "ends", "pairs", "lengths"):
            a, b = getattr(got, name), getattr(want, name)
            np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance, err_msg=name)

    @pytest.mark.parametrize("given", [True, False])
    def test_what_is_not_known_is_summed_over(given: bool) -> None:
        crfs = layers(3, 4)
        x = torch.randn(2, 20, 3)
        tags = torch.randint(3, (2, 20), generator=torch.Generator().manual_seed(1))
        begins = torch.rand(2, 20, generator=torch.Generator().manual_seed(2)) < 0.5
        begins |= tags != torch.roll(tags, 1, 1)
        begins[:, ::3] = True
        tags[:, 4:9] = -100
        tags[1, -1] = -100
        compare(crfs, lambda crf, u: crf(u, tags, begins if given else None, reduction="none"), x, 1e-10)

    @pytest.mark.long
    def test_lengths_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(segment_kernels, "TILE", 256)
        crfs = layers(3, 37)
        x = torch.randn(2, 50, 3)
        compare(crfs, lambda crf, u: crf.log_partition(u), x, 1e-10)
        want, got = (crf.decode(x.double()) for crf in crfs)
        assert [s.tolist() for s in got] == [s.tolist() for s in want]

    def test_scores_that_drift() -> None:
        """In single precision: a level of scores far from zero, and labels that are far below others for long."""
        crfs = layers(3, 9, torch.float32)
        x = torch.randn(1, 120, 3) + 50
        x[:, :60, 1] -= 40
        x[:, 60:, 2] -= 40
        compare(crfs, lambda crf, u: crf.log_partition(u), x, 2e-4)

    def test_forbidden_labels_and_lengths() -> None:
        crfs = layers(2, 4)
        with torch.no_grad():
            for crf in crfs:
                crf.lengths[0] = -torch.inf
                crf.transitions[0, 0] = crf.transitions[1, 1] = -torch.inf
        x = torch.randn(2, 18, 2)
        x[0, 5, 0] = -torch.inf
        compare(crfs, lambda crf, u: crf.log_partition(u), x, 1e-10)
        dead = torch.zeros(1, 1, 2)
        with pytest.raises(ValueError, match="no segmentation is allowed in sequence 0"):
            crfs[1].decode(dead.double())

    def test_what_has_no_kernel() -> None:
        with pytest.raises(ValueError, match="up to 128 labels"):
            ct.SegmentCRF(200, 2, backend="triton").log_partition(torch.zeros(2, 1, 200))
        with pytest.raises(ValueError, match="'backend' of SegmentCRF"):
            ct.SegmentCRF(2, 2, backend="cuda")
