"""Active learning: ask for the labels that the model knows least about."""

from crfkit.active.pool import Pool
from crfkit.active.questions import Strategy
from crfkit.active.simulation import LearningCurve, simulate
from crfkit.active.strategies import STRATEGIES, Query, query, uncertainty
from crfkit.active.time_model import TimeModel

__all__ = [
    "STRATEGIES",
    "LearningCurve",
    "Pool",
    "Query",
    "Strategy",
    "TimeModel",
    "query",
    "simulate",
    "uncertainty",
]
