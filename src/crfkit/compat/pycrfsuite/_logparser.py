"""The parser of training logs, where python-crfsuite has it."""

from crfkit.compat.trainlog import LabelScore, TrainLogParser

__all__ = ["LabelScore", "TrainLogParser"]
