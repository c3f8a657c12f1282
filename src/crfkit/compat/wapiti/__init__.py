"""Wapiti's command line: ``crfkit-wapiti``, which a link named ``wapiti`` turns into the program that others call.

::

    options -> train:  patterns, columns -> CRF.fit -> model file
               label:  model file, standard input as it comes -> labels, flushed after every sequence
               dump, update: model file -> text, model file
"""

from __future__ import annotations

__all__: list[str] = []
