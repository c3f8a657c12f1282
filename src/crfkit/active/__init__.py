"""Active learning: ask for the labels that the model knows least about."""

from crfkit.active.simulation import LearningCurve, plot_curves, simulate
from crfkit.active.strategies import STRATEGIES, Query, query, uncertainty

__all__ = ["STRATEGIES", "LearningCurve", "Query", "plot_curves", "query", "simulate", "uncertainty"]
