"""From text to attributes."""

from crfkit.features.classes import WordClasses
from crfkit.features.gazetteers import Gazetteer
from crfkit.features.template import Template
from crfkit.features.tokens import TokenFeatures
from crfkit.features.vectors import WordVectors

__all__ = ["Gazetteer", "Template", "TokenFeatures", "WordClasses", "WordVectors"]
