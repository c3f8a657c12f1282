"""Data of other libraries: tables of tokens (pandas, Arrow), data sets of lists, and a spaCy component."""

from crfkit.integrations.tables import from_lists, from_table, to_arrow, to_table

__all__ = ["from_lists", "from_table", "to_arrow", "to_table"]
