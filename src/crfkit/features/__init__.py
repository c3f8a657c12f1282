"""From text to attributes."""

from crfkit.features.plan import FeaturePlan
from crfkit.features.template import Template
from crfkit.features.tokens import TokenFeatures

__all__ = ["FeaturePlan", "Template", "TokenFeatures"]
