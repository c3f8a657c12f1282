"""Model files of other tools: detecting, reading and converting them."""

from __future__ import annotations

import os

from crfkit.base.fields import ModelError
from crfkit.compat.suite_file import read_suite_model, write_suite_model
from crfkit.compat.text_models import read_crfpp_model, read_wapiti_model
from crfkit.model.chain_model import ChainModel, read_model, write_model

__all__ = ["convert_model", "model_format", "read_foreign_model"]


def model_format(path: str | os.PathLike[str]) -> str:
    """Which tool wrote a model file: ``"crfkit"``, ``"crfsuite"``, ``"crfpp"`` or ``"wapiti"``.

    Raises
    ------
    crfkit.ModelError
        If it is none of these.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     CRF().fit([["a"]], [["A"]]).save(path)
    ...     model_format(path)
    'crfkit'
    """
    with open(path, "rb") as file:
        head = file.read(64)
    if head.startswith(b"lCRF"):
        return "crfsuite"
    if head.startswith(b"#mdl#"):
        return "wapiti"
    if head.startswith(b"version:"):
        return "crfpp"
    if head[8:9] == b"{":
        return "crfkit"
    name = os.fspath(path)
    if len(head) >= 8 and int.from_bytes(head[:4], "little") == 100 and int.from_bytes(head[4:8], "little") == 0:
        raise ModelError(
            f"{name}: a binary CRF++ model; train with -t (or crf_learn -C) to get the text model, and use that"
        )
    raise ModelError(f"{name}: not a model of crfkit, CRFsuite, CRF++ (text) or Wapiti")


def read_foreign_model(path: str | os.PathLike[str], format: str | None = None) -> ChainModel:
    """Reads a model file of crfkit, CRFsuite, CRF++ (text) or Wapiti.

    Parameters
    ----------
    path : path
        A model file of CRFsuite, CRF++ or Wapiti.
    format : {"crfkit", "crfsuite", "crfpp", "wapiti"}, optional
        Detected from the file's first bytes by default.

    Returns
    -------
    ChainModel
        :func:`crfkit.load` makes an estimator of it.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     CRF().fit([["a", "b"]], [["A", "B"]]).save(path)
    ...     read_foreign_model(path).labels
    ('A', 'B')
    """
    kind = format or model_format(path)
    if kind == "crfkit":
        return read_model(path)[0]
    readers = {"crfsuite": read_suite_model, "crfpp": read_crfpp_model, "wapiti": read_wapiti_model}
    if kind not in readers:
        raise ValueError(f"'format' must be crfkit, crfsuite, crfpp or wapiti, got {kind!r}")
    return readers[kind](path)


def convert_model(
    source: str | os.PathLike[str], target: str | os.PathLike[str], to: str = "crfkit", format: str | None = None
) -> ChainModel:
    """Reads a model file of any kind and writes it as crfkit's or CRFsuite's.

    Parameters
    ----------
    source, target : path
        The model to read, and the file to write.
    to : {"crfkit", "crfsuite"}
        Format of the file to write.
    format : str, optional
        Format of the source, as for :func:`read_foreign_model`.

    Returns
    -------
    ChainModel
        The model that was read.

    Examples
    --------
    >>> import tempfile, os
    >>> from crfkit import CRF
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     CRF(start_end=False).fit([[["a"], ["b"]]], [["A", "B"]]).save(path)
    ...     _ = convert_model(path, path + ".crfsuite", to="crfsuite")
    ...     model_format(path + ".crfsuite")
    'crfsuite'
    """
    if to not in ("crfkit", "crfsuite"):
        raise ValueError(f"'to' must be 'crfkit' or 'crfsuite', got {to!r}")
    kind = "crf"
    if (format or model_format(source)) == "crfkit":
        model, header = read_model(source)
        kind = header.get("estimator", "crf")
        if kind == "memm" and to == "crfsuite":
            raise ValueError(f"{os.fspath(source)} is a MEMM, which CRFsuite's format cannot represent")
    else:
        model = read_foreign_model(source, format)
    if to == "crfkit":
        write_model(model, target, kind)
    else:
        write_suite_model(model, target)
    return model
