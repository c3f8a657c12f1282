"""Estimators out of model files."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from crfkit.estimators.crf import CRF
from crfkit.estimators.hmm import HMM
from crfkit.estimators.memm import MEMM
from crfkit.features.encoders import FeatureSource
from crfkit.model import ChainModel, read_model
from crfkit.training.algorithms import ALGORITHMS

__all__ = ["load"]


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
    CRF, HMM, MEMM or NeuralCRF
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
    model, header = _read_any(path, features)
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


def _read_any(path: str | os.PathLike[str], features: FeatureSource) -> tuple[ChainModel, dict[str, Any]]:
    with open(path, "rb") as file:
        head = file.read(8)
    if not head.startswith((b"lCRF", b"#mdl#", b"version:")):
        return read_model(path, features)
    from crfkit.compat.files import read_foreign_model

    model = read_foreign_model(path)
    return model, {"params": {**model.params, "dtype": "float64"}, "info": model.info}
