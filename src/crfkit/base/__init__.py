"""Shared helpers: files, threads, parameter rules, lazy imports."""

__all__: list[str] = []
