"""Reading data: files, corpora, and the built-in sample."""

from crfkit.data.blocks import Blocks
from crfkit.data.corpora import corpora, load_corpus
from crfkit.data.readers import DataError, iter_columns, read_columns, read_conllu, read_crfsuite
from crfkit.data.sequences import Columns, Items
from crfkit.data.tokens import Token, tokenize

__all__ = [
    "Blocks",
    "Columns",
    "DataError",
    "Items",
    "Token",
    "corpora",
    "iter_columns",
    "load_corpus",
    "read_columns",
    "read_conllu",
    "read_crfsuite",
    "tokenize",
]
