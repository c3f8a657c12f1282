"""Puts crfkit in the place of python-crfsuite and sklearn-crfsuite for a test suite; lies above the suite's folder."""

import sys

for name, module in list(sys.modules.items()):
    if name.startswith(("crfkit.compat.pycrfsuite", "crfkit.compat.sklearn_crfsuite")):
        sys.modules[name.removeprefix("crfkit.compat.")] = module
