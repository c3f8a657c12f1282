"""Estimators out of model files."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from numpy.typing import NDArray

from crfkit.estimators.chained import ChainEstimator
from crfkit.estimators.crf import CRF
from crfkit.estimators.hmm import HMM
from crfkit.estimators.memm import MEMM
from crfkit.features.encoders import FeatureSource
from crfkit.model.chain_model import ChainModel, ModelError, chain_model, read_file
from crfkit.training.algorithms import ALGORITHMS

__all__ = ["load", "load_chain"]

_GRAPHS = {"graph_crf": "GraphCRF", "skip_chain_crf": "SkipChainCRF", "factorial_crf": "FactorialCRF"}


def load(path: str | os.PathLike[str], features: FeatureSource = None, n_jobs: int | None = -1) -> Any:
    """Reads a model that ``save`` of any estimator wrote, or a model file of CRFsuite, CRF++ (text) or Wapiti.

    Parameters
    ----------
    path : path
    features : callable, optional
        The feature function, for models trained with one.
    n_jobs : int, optional
        Not used by a neural CRF.

    Returns
    -------
    CRF, HMM, MEMM, GraphCRF, SkipChainCRF, FactorialCRF or NeuralCRF
        The last needs torch.

    Raises
    ------
    crfkit.ModelError
        If the file is not a model, is cut short or damaged.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF, load
    >>> crf = CRF().fit([["a", "b"]], [["A", "B"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     crf.save(os.path.join(folder, "model.crfkit"))
    ...     again = load(os.path.join(folder, "model.crfkit"))
    >>> again.predict([["a", "b"]])
    [['A', 'B']]
    """
    if _is_neural(path):
        try:
            from crfkit.torch.estimator import NeuralCRF
        except ModuleNotFoundError as e:
            raise ImportError(
                f"{os.fspath(path)} is a neural CRF, which needs torch: pip install 'crfkit[torch]'"
            ) from e
        return NeuralCRF.load(path, features=features if callable(features) else "auto")
    name = os.fspath(path)
    header, found = _read_any(path)
    if isinstance(found, ChainModel):
        model = found
    elif str(header.get("estimator")) in _GRAPHS:
        from crfkit import graph  # its estimators are made of the parts of this package

        return getattr(graph, _GRAPHS[header["estimator"]])._restore(name, header, found, features, n_jobs)
    else:
        model = chain_model(name, header, found, features)
    if header.get("estimator") in ("hmm", "memm"):
        return (HMM if header["estimator"] == "hmm" else MEMM)._restore(model, header, n_jobs)
    known = CRF._parameters()
    params = {k: v for k, v in header["params"].items() if k in known}
    params["features"] = features if callable(features) else "auto"
    params["constraints"] = model.constraints
    params["n_jobs"] = n_jobs
    if params.get("algorithm") not in ALGORITHMS:
        params.pop("algorithm", None)  # an optimiser with settings of its own, which the file names but does not hold
    crf = CRF(**params)
    crf._adopt(model)
    crf.n_iter_ = int(header["info"].get("iterations", 0))
    return crf


def load_chain(path: str | os.PathLike[str], n_jobs: int | None = -1) -> Any:
    """As :func:`load`, for what needs a linear chain."""
    found = load(path, n_jobs=n_jobs)
    if not isinstance(found, ChainEstimator):
        raise ModelError(
            f"{os.fspath(path)}: a {type(found).__name__}, but a linear chain is needed; use it from Python"
        )
    return found


def _is_neural(path: str | os.PathLike[str]) -> bool:
    """Whether the file's header names a neural CRF; what is wrong with a file is told by who reads all of it."""
    with open(path, "rb") as file:
        head = file.read(9)
        if len(head) < 9 or head[8:] != b"{":
            return False
        (length,) = struct.unpack("<Q", head[:8])
        if length > os.fstat(file.fileno()).st_size - 8:
            return False
        text = head[8:] + file.read(length - 1)
    try:
        header = json.loads(json.loads(text)["__metadata__"]["crfkit"])
        return bool(header["estimator"] == "neural_crf")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _read_any(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]] | ChainModel]:
    """The header, and the arrays, or for a file of another tool the model itself."""
    with open(path, "rb") as file:
        head = file.read(8)
    if not head.startswith((b"lCRF", b"#mdl#", b"version:")):
        return read_file(path)
    from crfkit.compat.files import read_foreign_model

    model = read_foreign_model(path)
    return {"params": {**model.params, "dtype": "float64"}, "info": model.info}, model
