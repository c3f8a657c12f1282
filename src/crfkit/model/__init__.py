"""The model: labels, weights and encoder in one file; summaries and explanations; labelling large files."""

from crfkit.base.fields import ModelError
from crfkit.data.labels import Entity
from crfkit.model.chain_model import ChainModel
from crfkit.model.explaining import Explanation

__all__ = ["ChainModel", "Entity", "Explanation", "ModelError"]
