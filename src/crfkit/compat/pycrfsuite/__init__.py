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

from crfkit.compat.pycrfsuite import _logparser as _logparser  # named by pickles of sklearn-crfsuite
from crfkit.compat.pycrfsuite.items import ItemSequence
from crfkit.compat.pycrfsuite.tagger import ModelInfo, Tagger
from crfkit.compat.pycrfsuite.trainer import BaseTrainer, Trainer
from crfkit.compat.pycrfsuite.training import CRFSuiteError

__all__ = ["CRFSUITE_VERSION", "BaseTrainer", "CRFSuiteError", "ItemSequence", "ModelInfo", "Tagger", "Trainer"]

#: The version of CRFsuite whose files and behaviour this module follows.
CRFSUITE_VERSION = "0.12.2"
