"""Other tools' interfaces and model files.

:mod:`crfkit.compat.sklearn_crfsuite` and :mod:`crfkit.compat.pycrfsuite` stand in for the packages of those names:
change the import, keep the rest. :func:`read_foreign_model` reads the model files of CRFsuite, CRF++ and Wapiti.
"""

from crfkit.compat.files import convert_model, model_format, read_foreign_model
from crfkit.compat.suite_file import read_suite_model, suite_bytes, write_suite_model

__all__ = [
    "convert_model",
    "model_format",
    "read_foreign_model",
    "read_suite_model",
    "suite_bytes",
    "write_suite_model",
]
