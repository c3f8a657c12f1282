"""Data from other libraries: tables of tokens (pandas, Arrow), lists, spans of characters, and a spaCy component."""

from typing import TYPE_CHECKING

from crfkit.base.later import later
from crfkit.integrations.spans import from_spans
from crfkit.integrations.tables import from_lists, from_table, to_arrow, to_table

if TYPE_CHECKING:
    from crfkit.integrations import spacy
else:
    __getattr__ = later(__name__, "spacy")

__all__ = ["from_lists", "from_spans", "from_table", "spacy", "to_arrow", "to_table"]
