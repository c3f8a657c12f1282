"""From text to attributes."""

from crfkit.features.classes import WordClasses
from crfkit.features.template import Template
from crfkit.features.tokens import TokenFeatures

__all__ = ["Template", "TokenFeatures", "WordClasses"]
