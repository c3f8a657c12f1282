"""Data in: files, corpora, and the embedded sample."""

from crfkit.data.corpora import Corpus, corpora, load_corpus
from crfkit.data.readers import (
    CONLLU_COLUMNS,
    DataError,
    Labelled,
    Weighted,
    iter_columns,
    read_columns,
    read_conllu,
    read_crfsuite,
)
from crfkit.data.sequences import Columns, Items

__all__ = [
    "CONLLU_COLUMNS",
    "Columns",
    "Corpus",
    "DataError",
    "Items",
    "Labelled",
    "Weighted",
    "corpora",
    "iter_columns",
    "load_corpus",
    "read_columns",
    "read_conllu",
    "read_crfsuite",
]
