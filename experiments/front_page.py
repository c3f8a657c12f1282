"""The entities of the front page's example, for its picture.

    python experiments/front_page.py

Runs the first Python block of README.md, and writes numbers/entities.json and docs/images/entities.svg.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import figures

from crfkit.data import tokenize


def main() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0], names)
    sentences = tokenize(names["text"])
    lines = []
    for tokens, entities in zip(sentences, names["crf"].predict_entities(sentences), strict=True):
        first, last = tokens[0].start, tokens[-1].end
        spans = [[e.char_start - first, e.char_end - first, e.label, round(e.probability, 2)] for e in entities]
        lines.append([names["text"][first:last], spans])
    figures.keep("entities", lines)


if __name__ == "__main__":
    main()
