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
from crfkit.data.readers import EncodedPath, open_source, source_name
from crfkit.features.encoding import bytes_of
from crfkit.training.needs import EncodingNeeds, Needs, Sizes
from crfkit.training.registry import find_algorithm

_SAMPLE = 1 << 25  # bytes of text from which the rest is told
_PACK = 1 << 22  # bytes of it that tell how well the rest is compressed
#: How files that begin so are compressed.
_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": zlib.compress,
    b"BZ": bz2.compress,
    b"\xfd7": lzma.compress,
}
_GROWN = {"attributes", "weights", "dense", "rows", "seen"}  # slower than the text


def print_plan(crf: Any, data: str, how: Reading, options: dict[str, Any]) -> None:
    """Prints what training needs: exactly known of a block file, told from the beginning of a text."""
    threads, algorithm = resolve_threads(crf.n_jobs), find_algorithm(crf.algorithm)
    encoding: EncodingNeeds | None = None
    stored = is_block_file(data)
    sizes, power, exact = (_sizes_of(crf, Blocks(data)), 0.0, True) if stored else _told(crf, data, how)
    needs = Needs.of(sizes, algorithm, threads, options["window"])
    if not stored:
        encoding = EncodingNeeds.of(sizes, needs.blocks, power, threads, bytes_of(options["memory"]))
    if options["json"]:
        more = {} if encoding is None else {f"encoding_{name}": x for name, x in encoding._asdict().items()}
        emit({"event": "plan", "exact": exact, **sizes._asdict(), **needs._asdict(), **more})
        return
    about = "" if exact else "about "
    parts = {"token": sizes.tokens, "attribute": sizes.attributes, "label": sizes.labels, "weight": sizes.weights}
    print(f"{about}{', '.join(counted(n, noun, ',') for noun, n in parts.items())}")
    window = "" if options["window"] is None else f", {counted(options['window'], 'block')} at a time"
    print(f"{crf.algorithm}, {counted(1 if algorithm.sequential else threads, 'thread')}{window}")
    rows = [
        ("memory, block file", needs.memory_stored),
        ("  of which the optimiser's", needs.optimiser),
        ("disk, block file", needs.blocks),
        ("disk, while training on it", needs.scratch),
    ]
    if encoding is not None:
        rows = [("memory, data in memory", needs.memory), ("memory, while encoding", encoding.memory), *rows]
        rows.append(("disk, while encoding", encoding.disk))
    for name, size in rows:
        print(f"{name:<28}{size_in_words(size):>15}")
    print(
        "Memory is the peak of anonymous memory; mapped pages of files, which the system drops when needed, are extra."
    )


def _sizes_of(crf: Any, blocks: Blocks, least: float = 0) -> Sizes:
    """What a block file holds, and what weights it asks for; ``least``: without attributes that occur less often."""
    layout = crf._prepare(blocks, None, None, None, grow=True)[0].layout
    labels, n = len(blocks.classes), blocks.attributes[0]
    group = blocks.dataset.groups["state"]
    tables = np.split(group.attributes, group.first_attribute[1:-1])
    occurs = np.zeros(n, np.int64)
    for b in range(blocks.dataset.n_blocks):
        occurs += np.bincount(group.flat(b), minlength=n)
    kept = occurs >= least
    counts = np.diff(layout.state_ptr)
    few, fewer = (max(1, -(-labels // lanes)) for lanes in (8, 16))  # weights that are still single ones
    edge = blocks.dataset.groups.get("edge")
    edges, edge_local = (0, 0) if edge is None else (int(edge.first_value[-1]), int(edge.first_attribute[-1]))
    return Sizes(
        tokens=blocks.n_tokens,
        sequences=len(blocks),
        entries=int(occurs[kept].sum()) + edges,
        local=sum(int(kept[table].sum()) for table in tables) + edge_local,
        listed=int((occurs * np.where(counts > fewer, 1, counts)).sum()) + edges,
        spread=int((occurs * np.where(counts > few, 1, counts)).sum()) + edges,
        dense=int((counts > fewer).sum()),
        rows=int(np.where(counts > few, -(-labels // 8) * 8, counts).sum()),
        attributes=int(kept.sum()) + blocks.attributes[1],
        labels=labels,
        weights=layout.size,
        seen=blocks.n_attributes,
    )


def _told(crf: Any, data: str, how: Reading) -> tuple[Sizes, float, bool]:
    """Sizes of a text from its first megabytes, and the power of its size that the vocabulary grows by."""
    with tempfile.TemporaryDirectory() as folder:
        found: list[Sizes] = []
        read = [0, 0]
        for k, share in enumerate((_SAMPLE // 4, _SAMPLE)):
            part = Path(folder) / f"{k}.txt"
            with open_source(data) as file:
                text = file.read(share)
            read[k] = len(text)
            part.write_bytes(text[: text.rfind(b"\n\n") + 2 if len(text) == share else len(text)])
            try:
                target = encode_text([str(part)], Path(folder) / f"{k}.blocks", crf, how, None, {"n_jobs": crf.n_jobs})
            except ValueError as e:
                e.args = (str(e).replace(str(part), source_name(data)),)
                raise
            found.append(_sizes_of(crf, Blocks(target), crf._least()))
            if len(text) < share:
                return found[-1], _power(found[0].seen, found[-1].seen, found), True
        a, b = found
        power = _power(a.seen, b.seen, found)
        if data == "-" or isinstance(data, EncodedPath):
            return b, power, False
        with open(data, "rb") as raw:
            pack = _PACKED.get(raw.read(2), bytes)
        sample = text[:_PACK]
        times = os.path.getsize(data) * (len(sample) / len(pack(sample))) / read[1]
        scaled = {
            name: y if name == "labels" else int(y * times ** (_power(x, y, found) if name in _GROWN else 1.0))
            for name, x, y in zip(Sizes._fields, a, b, strict=True)
        }
        return Sizes(**scaled), power, False


def _power(x: int, y: int, found: list[Sizes]) -> float:
    """The power of the number of tokens by which something grew from x to y, between the first sizes and the last."""
    if found[-1].tokens <= found[0].tokens:
        return 0.7  # as in most text
    return float(np.log(max(y, 1) / max(x, 1)) / np.log(found[-1].tokens / found[0].tokens))
