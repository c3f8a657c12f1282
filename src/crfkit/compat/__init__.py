"""Other tools' interfaces and model files.

:mod:`crfkit.compat.sklearn_crfsuite` and :mod:`crfkit.compat.pycrfsuite` stand in for the packages of those names:
change the import, keep the rest. :func:`read_foreign_model` reads the model files of CRFsuite, CRF++ and Wapiti.
"""

from typing import TYPE_CHECKING

from crfkit.base.later import later
from crfkit.compat.files import convert_model, model_format, read_foreign_model
from crfkit.compat.suite_file import read_suite_model, write_suite_model

if TYPE_CHECKING:
    from crfkit.compat import pycrfsuite, sklearn_crfsuite
else:
    __getattr__ = later(__name__, "pycrfsuite", "sklearn_crfsuite")

__all__ = [
    "convert_model",
    "model_format",
    "pycrfsuite",
    "read_foreign_model",
    "read_suite_model",
    "sklearn_crfsuite",
    "write_suite_model",
]
