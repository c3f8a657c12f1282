"""The classes, where python-crfsuite has them."""

from crfkit.compat.pycrfsuite.items import ItemSequence
from crfkit.compat.pycrfsuite.tagger import Tagger
from crfkit.compat.pycrfsuite.trainer import BaseTrainer, Trainer
from crfkit.compat.pycrfsuite.training import CRFSuiteError

__all__ = ["CRFSUITE_VERSION", "BaseTrainer", "CRFSuiteError", "ItemSequence", "Tagger", "Trainer"]

#: The version of CRFsuite whose files and behaviour this module follows.
CRFSUITE_VERSION = "0.12.2"
