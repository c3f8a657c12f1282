"""The model: labels, weights and encoder in one file; what it says of itself; labelling large files with it."""

from crfkit.model.chain_model import ChainModel, ModelError
from crfkit.model.explaining import Explanation

__all__ = ["ChainModel", "Explanation", "ModelError"]
