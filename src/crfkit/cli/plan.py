"""``crfkit train --plan``: memory and disk space, before anything is done."""

from __future__ import annotations

import bz2
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crfkit.base.messages import counted
from crfkit.base.threads import resolve_threads
from crfkit.cli.encode import encode_text
from crfkit.cli.files import Reading, emit, size_in_words
from crfkit.data import Blocks
from crfkit.data.blocks import is_block_file
from crfkit.data.readers import EncodedPath, open_source
from crfkit.training.needs import Needs, Sizes

_SAMPLE = 1 << 25  # bytes of text from which the rest is told
_PACK = 1 << 22  # bytes of it that tell how well the rest is compressed
#: How files that begin so are compressed.
_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": zlib.compress,
    b"BZ": bz2.compress,
    b"\xfd7": lzma.compress,
}


def print_plan(crf: Any, data: str, how: Reading, as_json: bool) -> None:
    """Prints what training needs: exactly known of a block file, told from the beginning of a text."""
    if is_block_file(data):
        sizes, exact = _sizes_of(crf, Blocks(data)), True
    else:
        sizes, exact = _told(crf, data, how)
    needs = Needs.of(sizes, resolve_threads(crf.n_jobs))
    if as_json:
        emit({"event": "plan", "exact": exact, **sizes._asdict(), **needs._asdict()})
        return
    about = "" if exact else "about "
    parts = {"token": sizes.tokens, "attribute": sizes.attributes, "label": sizes.labels, "weight": sizes.weights}
    print(f"{about}{', '.join(counted(n, noun, ',') for noun, n in parts.items())}")
    rows = [
        ("memory, data in memory", needs.memory),
        ("memory, block file", needs.memory_stored),
        ("  of which the optimiser's", needs.optimiser),
        ("disk, block file", needs.blocks),
        ("disk, while training on it", needs.scratch),
        ("disk, while encoding", needs.encoding),
    ]
    for name, size in rows:
        print(f"{name:<28}{size_in_words(size):>15}")


def _sizes_of(crf: Any, blocks: Blocks) -> Sizes:
    """What a block file holds, and what weights it asks for."""
    skeleton, problem = crf._prepare(blocks, None, None, None, grow=True)
    group = blocks.dataset.groups["state"]
    entries = sum(int(x.first_value[-1]) for x in blocks.dataset.groups.values())
    local = sum(int(x.first_attribute[-1]) for x in blocks.dataset.groups.values())
    listed = int(np.diff(skeleton.layout.state_ptr).clip(1, 4).mean() * group.first_value[-1]) if entries else 0
    del problem
    labels = len(blocks.classes)
    dense = int((np.diff(skeleton.layout.state_ptr) > max(1, -(-labels // 16))).sum())
    counts = blocks.n_tokens, len(blocks), entries, local, listed, dense, blocks.n_attributes
    return Sizes(*counts, labels, skeleton.layout.size)


def _told(crf: Any, data: str, how: Reading) -> tuple[Sizes, bool]:
    """Sizes of a text from its first megabytes: tokens grow as the text does, words and weights by a power of it."""
    with tempfile.TemporaryDirectory() as folder:
        found: list[Sizes] = []
        read = [0, 0]
        for k, share in enumerate((_SAMPLE // 4, _SAMPLE)):
            part = Path(folder) / f"{k}.txt"
            with open_source(data) as file:
                text = file.read(share)
            read[k] = len(text)
            part.write_bytes(text[: text.rfind(b"\n\n") + 2 if len(text) == share else len(text)])
            settings = {"min_freq": crf._least(), "n_jobs": crf.n_jobs}
            target = encode_text([str(part)], Path(folder) / f"{k}.blocks", crf._new_encoder, how, None, settings)
            found.append(_sizes_of(crf, Blocks(target)))
            if len(text) < share:
                return found[-1], True
        if data == "-" or isinstance(data, EncodedPath):
            return found[-1], False
        with open(data, "rb") as raw:
            pack = _PACKED.get(raw.read(2), bytes)
        sample = text[:_PACK]
        times = os.path.getsize(data) * (len(sample) / len(pack(sample))) / read[1]
        a, b = found
        grown = {"attributes", "weights", "dense"}
        scaled = {}
        for name, x, y in zip(Sizes._fields, a, b, strict=True):
            power = np.log(max(y, 1) / max(x, 1)) / np.log(b.tokens / a.tokens) if name in grown else 1.0
            scaled[name] = y if name == "labels" else int(y * times**power)
        return Sizes(**scaled), False
