"""Stands in for python-crfsuite: ``import crfkit.compat.pycrfsuite as pycrfsuite``.

The classes have the original's names, arguments and defaults, and read and write CRFsuite's model files.

Examples
--------
>>> import os, tempfile
>>> import crfkit.compat.pycrfsuite as pycrfsuite
>>> trainer = pycrfsuite.Trainer(verbose=False)
>>> trainer.append([{"walk": 1, "shop": 0.5}, {"walk": 1}, ["clean"]], ["sunny", "sunny", "rainy"])
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "model.crfsuite")
...     trainer.train(path)
...     with pycrfsuite.Tagger().open(path) as tagger:
...         tagger.tag([{"walk": 1}, ["clean"]])
['sunny', 'rainy']
"""

from crfkit.compat.pycrfsuite import _dumpparser as _dumpparser
from crfkit.compat.pycrfsuite import _logparser as _logparser  # named by pickles of sklearn-crfsuite
from crfkit.compat.pycrfsuite._pycrfsuite import (
    CRFSUITE_VERSION,
    BaseTrainer,
    CRFSuiteError,
    ItemSequence,
    Tagger,
    Trainer,
)
from crfkit.compat.pycrfsuite.tagger import ModelInfo

__all__ = ["CRFSUITE_VERSION", "BaseTrainer", "CRFSuiteError", "ItemSequence", "ModelInfo", "Tagger", "Trainer"]
