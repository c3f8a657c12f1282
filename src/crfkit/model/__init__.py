"""The model: labels, weights and encoder in one file; what it says of itself; labelling large files with it."""

from crfkit.base.fields import ModelError
from crfkit.data.labels import Entity
from crfkit.model.chain_model import ChainModel
from crfkit.model.explaining import Explanation

__all__ = ["ChainModel", "Entity", "Explanation", "ModelError"]
