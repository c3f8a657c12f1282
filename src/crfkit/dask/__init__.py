"""Training and labelling on a Dask cluster.

::

    partitions -> encoded where they lie -> gradients, summed in a fixed tree -> optimiser (here) -> model
    bag, frame    vocabulary: counted by partition, merged, cut, sent back      weights: once per worker

The objective is a sum over partitions, and optimisers see nothing else of the cluster. Needs ``crfkit[dask]``.
"""

try:
    import dask as _dask  # noqa: F401
except ModuleNotFoundError as e:
    raise ImportError("crfkit.dask needs dask: pip install 'crfkit[dask]'") from e

from crfkit.dask.estimator import CRF
from crfkit.dask.sources import read_columns

__all__ = ["CRF", "read_columns"]
