"""Chains as a layer of torch networks; needs ``crfkit[torch]``.

:class:`CRF` takes the place of ``torchcrf.CRF``. On the CPU it runs on crfkit's native core, on a GPU on Triton kernels
that are fused over time; so does :class:`SegmentCRF`, the layer of segments. :class:`NeuralCRF` is an estimator that
needs no knowledge of torch.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("crfkit.torch needs torch: pip install 'crfkit[torch]'") from error

from crfkit.torch.estimator import NeuralCRF
from crfkit.torch.functional import entropy, log_likelihood, log_partition, marginals
from crfkit.torch.layer import CRF, TorchDecoder
from crfkit.torch.segments import SegmentCRF

__all__ = ["CRF", "NeuralCRF", "SegmentCRF", "TorchDecoder", "entropy", "log_likelihood", "log_partition", "marginals"]
