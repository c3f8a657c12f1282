"""Loads estimators from model files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar, Union, overload

from crfkit.base.fields import ModelError
from crfkit.base.parameters import Estimator
from crfkit.estimators import CRF, HMM, MEMM
from crfkit.model.chain_model import read_file, takes_items, with_function

if TYPE_CHECKING:
    from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
    from crfkit.segment import SegmentCRF
    from crfkit.torch.estimator import NeuralCRF

__all__ = ["load"]

Path = str | os.PathLike[str]
#: What a file may hold.
Loaded = Union[CRF, HMM, MEMM, "GraphCRF", "SkipChainCRF", "FactorialCRF", "SegmentCRF", "NeuralCRF"]
Kind = TypeVar("Kind", bound=Estimator)

_CHAINS = {kind._kind: kind for kind in (CRF, HMM, MEMM)}


@overload
def load(
    path: Path, features: Any = None, n_jobs: int | None = -1, verify: bool = True, *, kind: type[Kind]
) -> Kind: ...
@overload
def load(
    path: Path, features: Any = None, n_jobs: int | None = -1, verify: bool = True, *, kind: None = None
) -> Loaded: ...
def load(
    path: Path,
    features: Any = None,
    n_jobs: int | None = -1,
    verify: bool = True,
    *,
    kind: type[Estimator] | None = None,
) -> Estimator:
    """Reads a model saved by any estimator, or a model file of CRFsuite, CRF++ (text) or Wapiti.

    Parameters
    ----------
    path : path
        A model file of crfkit.
    features : callable, optional
        The feature function, for models that were trained with one. It may also be given for models that were trained
        on items, which it then makes. Other models refuse it.
    n_jobs : int, optional
        Not used by a neural CRF.
    verify : bool
        Whether to verify the checksums of the header and of every array. If False, the file is mapped into memory
        instead of read, so that processes share it and large models load immediately; it must then not be overwritten
        in place while the model is in use (``save`` replaces the file instead).
    kind : type, optional
        Expected type of model, such as ``CRF``; also tells type checkers the result.

    Returns
    -------
    CRF, HMM, MEMM, SegmentCRF, GraphCRF, SkipChainCRF, FactorialCRF or NeuralCRF
        NeuralCRF needs torch.

    Raises
    ------
    crfkit.ModelError
        If the file is not a model, is truncated, or does not match its checksums; the message names the file and the
        array or field. Also if its model is not of type ``kind``.
    ValueError
        If ``features`` is given for a model that has its own features.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF, load
    >>> crf = CRF().fit([["a", "b"]], [["A", "B"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     crf.save(os.path.join(folder, "model.crfkit"))
    ...     again = load(os.path.join(folder, "model.crfkit"), kind=CRF)
    >>> again.predict([["a", "b"]])
    [['A', 'B']]
    """
    found = _load(path, features, n_jobs, verify)
    if kind is not None and not isinstance(found, kind):
        raise ModelError(f"{os.fspath(path)}: this is a model of class {type(found).__name__}, not {kind.__name__}")
    return found


def _load(path: Path, features: Any, n_jobs: int | None, verify: bool) -> Loaded:
    name = os.fspath(path)
    if features is not None and not callable(features):
        raise ValueError(f"'features' of load must be a function or None, got {features!r}")
    with open(path, "rb") as file:
        head = file.read(8)
    if head.startswith((b"lCRF", b"#mdl#", b"version:")):
        from crfkit.compat.files import read_foreign_model

        model = read_foreign_model(path)
        if features is not None:
            _require_items(name, takes_items(model))
            model = with_function(model, features)
        return CRF._of_model(model, {**model.params, "dtype": "float64"}, features, n_jobs)
    header, arrays = read_file(path, verify)
    kind = str(header.get("estimator", "crf"))
    if features is not None:
        _require_items(name, any(key.endswith("names.ends") for key in arrays))
    if kind == "neural_crf":
        try:
            from crfkit.torch.estimator import NeuralCRF
        except ModuleNotFoundError as e:
            raise ImportError(f"{name} is a neural CRF, which needs torch: pip install 'crfkit[torch]'") from e
        return NeuralCRF._restore(name, header, arrays, features)
    if kind in _CHAINS:
        return _CHAINS[kind]._restore(name, header, arrays, features, n_jobs)
    if kind == "segment_crf":
        from crfkit.segment import SegmentCRF

        return SegmentCRF._restore(name, header, arrays, features, n_jobs)
    from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF

    graphs = {kind._kind: kind for kind in (GraphCRF, SkipChainCRF, FactorialCRF)}
    return graphs.get(kind, CRF)._restore(name, header, arrays, features, n_jobs)


def _require_items(name: str, items: bool) -> None:
    """Raises unless a model's tokens are items, which a function may make."""
    if not items:
        raise ValueError(f"'features' of load is a function, but {name} computes its own features: leave it out")
