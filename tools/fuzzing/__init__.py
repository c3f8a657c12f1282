"""Inputs that know the structure of crfkit's files, and the processes that try them: see tools/fuzz.py."""
