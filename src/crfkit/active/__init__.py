"""Active learning: ask for the labels that the model knows least about."""

from crfkit.active.simulation import LearningCurve, simulate
from crfkit.active.strategies import STRATEGIES, Query, query, uncertainty

__all__ = ["STRATEGIES", "LearningCurve", "Query", "query", "simulate", "uncertainty"]
