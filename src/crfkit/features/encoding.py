"""Writing block files from any number of sequences, read once, in bounded memory, on all cores.

::

    pieces -> runs: each thread numbers the attributes of its pieces by itself    spooled to the disk, with vocabularies
    runs   -> which attributes they have in common, and how often they occur      by 128-bit keys, some at a time
    spools -> blocks, with the numbers that one vocabulary of all text would give the file

A run ends when its vocabulary has grown to its share of the memory. Attributes are numbered by where they first occur,
so that neither threads nor memory change the result. What is on the disk after a kill is not encoded again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from crfkit import _core
from crfkit.base.files import check_writable, full_disk, whole_file
from crfkit.base.tensors import Spool, checksum, write_arrays
from crfkit.base.threads import ordered, resolve_threads
from crfkit.data.blocks import KEY, KINDS, VERSION, Blocks, Group, checksum_of
from crfkit.data.dataset import NONE, Dataset, check_label_count
from crfkit.data.labels import found_labels, in_label_order, label_numbers, require_hard
from crfkit.data.readers import Weighted
from crfkit.features.encoders import LEXICON, Encoder

_RUN_TOKENS = 8_000_000  # a kill loses at most as many tokens of each thread
_FOLDER = 3  # version of what an unfinished encoding leaves on the disk
_LEAST = 64 << 20  # bytes; less memory than this is not kept to
#: What must be the same for an encoding to be resumed, as a message names it where it is not.
_TOLD = {
    "version": "another version of crfkit",
    "encoder": "other features",
    "files": "other files (or a file has changed since)",
    "unlabelled": "other --unlabelled data",
    "reading": "another format, label or columns",
    "piece": "another version of crfkit",
    "min_freq": "another --min-freq",
    "unknown": "another --unknown label",
}
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def bytes_of(size: float | str) -> int:
    """Bytes from a number, or from a string such as ``"500MB"`` or ``"2GiB"``.

    >>> bytes_of("2GB"), bytes_of("1.5 KiB"), bytes_of(7e6)
    (2000000000, 1536, 7000000)
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([kmgt]i?|)b?", str(size).strip().lower())
    if found is None or not float(found[1]):
        raise ValueError(f"'memory' must be a number of bytes, or a string such as '500MB' or '2GB', got {size!r}")
    if not found[2] and float(found[1]) < 1e6:
        raise ValueError(f"'memory' must be at least 1 MB, got {size} bytes; give a unit, as in '{found[1]}MB'")
    return int(float(found[1]) * _UNITS[found[2]])


@dataclass
class _Record:
    """A piece in the spool of a run: where it lies, and what it has."""

    number: int
    at: int
    sequences: int
    tokens: int
    attributes: list[int]  # entries of tokens, of transitions if there are any
    known: list[int]  # attributes of the run after this piece, of both kinds
    values: bool
    weights: bool
    sets: list[Any]  # token and possible labels

    def layout(self) -> Iterator[tuple[str, Any, int]]:
        """Name, type and length of the arrays, in the order of the spool."""
        yield "lengths", np.int64, self.sequences
        if self.weights:
            yield "weights", np.float64, self.sequences
        if self.values:
            yield "values", np.float64, self.attributes[0]
        yield "labels", np.int32, self.tokens
        for kind, n in zip(KINDS, self.attributes, strict=False):
            yield f"{kind}.attr", np.uint32, n
        for kind, _ in zip(KINDS, self.attributes, strict=False):
            yield f"{kind}.count", np.uint16, self.tokens


@dataclass
class _Run:
    """Pieces with a vocabulary of their own, in a folder."""

    folder: Path
    records: list[_Record] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)  # of the encoder

    def open(self, encoder: Encoder) -> None:
        """Begins to encode."""
        self.folder.mkdir()
        self.encoder = encoder
        self.counts = [np.zeros(1 << 10, np.uint32) for _ in KINDS]
        self.tokens = 0
        self._file: IO[bytes] = open(self.folder / "tokens", "wb")  # noqa: SIM115 - closed by close

    def add(self, number: int, data: Dataset, labels: NDArray[np.int32], weights: Any, sets: list[Any]) -> None:
        """Spools an encoded piece."""
        ptrs = [x for x in (data.ptr, data.edge_ptr) if x is not None]
        attrs = [x for x in (data.attr, data.edge_attr) if x is not None]
        known = list(self.encoder.n_attributes)
        for k, attr in enumerate(attrs):
            if known[k] > len(self.counts[k]):
                grown = np.zeros(max(known[k], 3 * len(self.counts[k]) // 2), np.uint32)
                grown[: len(self.counts[k])] = self.counts[k]
                self.counts[k] = grown
            _core.add_counts(attr, self.counts[k])
        counts = [np.diff(ptr) for ptr in ptrs]
        if any(n.max(initial=0) > 65535 for n in counts):
            raise ValueError("a token has more than 65535 attributes")
        arrays: dict[str, Any] = {"lengths": np.diff(data.offsets), "weights": weights, "values": data.value}
        arrays["labels"] = labels
        for kind, attr, count in zip(KINDS, attrs, counts, strict=False):
            arrays |= {f"{kind}.attr": attr, f"{kind}.count": count.astype(np.uint16)}
        sizes = number, self._file.tell(), data.n_sequences, data.n_tokens, [len(x) for x in attrs], known
        record = _Record(*sizes, data.value is not None, weights is not None, sets)
        for name, dtype, _ in record.layout():
            self._file.write(np.ascontiguousarray(arrays[name], dtype).view(np.uint8).data)
        self._file.write(bytes(-self._file.tell() % 8))
        self.records.append(record)
        self.tokens += data.n_tokens

    def close(self, labels: list[Any], seed: int) -> None:
        """Ends the run: from now on it survives a kill."""
        self._file.flush()
        self._file.close()
        for name, x in self.encoder.arrays().items():
            if not name.startswith(LEXICON):  # which is that of all runs
                np.save(self.folder / f"{name}.npy", x)
        keys = [self.encoder.keys(bool(k), seed) for k in range(len(KINDS))]
        self.config = self.encoder.config()
        del self.encoder  # before more memory is taken
        for k, kind in enumerate(KINDS):
            records, first = _core.sort_keys(keys[k], self.counts[k][: len(keys[k])])
            np.save(self.folder / f"{kind}.keys.npy", records)
            np.save(self.folder / f"{kind}.first.npy", first)
        del self.counts
        about = {
            "labels": labels,
            "encoder": self.config,
            "records": [asdict(record) for record in self.records],
        }
        with whole_file(self.folder / "run.json", "w") as file:
            json.dump(about, file)

    def load(self, name: str) -> NDArray[Any]:
        """An array of the vocabulary, mapped."""
        found: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return found

    @cached_property
    def _tokens(self) -> NDArray[np.uint8]:
        path = self.folder / "tokens"
        return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)

    def arrays(self, record: _Record) -> dict[str, NDArray[Any]]:
        """The arrays of a piece, mapped."""
        out: dict[str, NDArray[Any]] = {}
        at = record.at
        for name, dtype, n in record.layout():
            end = at + n * np.dtype(dtype).itemsize
            out[name] = self._tokens[at:end].view(dtype)
            at = end
        return out


class BlockWriter:
    """Encodes pieces of data into a block file.

    Parameters
    ----------
    path : path
        Path of the file, which appears when all is done. Until then there is a folder beside it, ``path.part``.
    encoder : Encoder
        An encoder with features, but without a vocabulary.
    min_freq : float
        Attributes that occur less often are left out.
    memory : float or str
        Bytes for the vocabularies of the runs; see :func:`bytes_of`.
    n_jobs : int, optional
    unknown : str, optional
        The label of tokens whose label is not known.
    about : dict, optional
        Describes the data and the settings, which must be the same when encoding is resumed. None if it cannot be.
    resume : bool
        Whether to continue an interrupted encoding, if there is one.
    reading : dict
        How the data was read, for the model that is trained on it.
    features : object
        What the encoder was made of, for the model.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: Encoder,
        *,
        min_freq: float = 0,
        memory: float | str = "1GB",
        n_jobs: int | None = -1,
        unknown: str | None = None,
        about: Mapping[str, Any] | None = None,
        resume: bool = False,
        reading: Mapping[str, Any] | None = None,
        features: Any = None,
    ) -> None:
        self.path, self.encoder, self.min_freq = Path(path), encoder, min_freq
        check_writable(self.path)
        self.threads = resolve_threads(n_jobs)
        self.limit = max(bytes_of(memory), _LEAST) // (3 * self.threads)
        self.unknown, self.reading, self.resumable = unknown, dict(reading or {}), about is not None
        self.features = features if features is None or isinstance(features, str) else repr(features)
        self.part = self.path.with_name(f"{self.path.name}.part")
        self.runs: list[_Run] = []
        self.labels: dict[Any, int] = {}
        self._lock = threading.Lock()
        self._own = threading.local()
        self._open: list[_Run] = []
        told = {"version": [VERSION, _FOLDER], "encoder": encoder.config(), **(about or {})}
        told |= {"min_freq": min_freq, "unknown": unknown}
        self._begin(json.loads(json.dumps(told, default=str)), resume)

    def _begin(self, about: dict[str, Any], resume: bool) -> None:
        """Makes the folder, or finds what an earlier process left there."""
        job = self.part / "job.json"
        if resume and job.exists():
            found = json.loads(job.read_text())
            self.seed = found.pop("seed")
            other = dict.fromkeys(_TOLD.get(name, name) for name in found | about if found.get(name) != about.get(name))
            if other:
                why = f"had {', and '.join(other)}" if "files" in found else "was of data in memory"
                raise ValueError(
                    f"{self.part}: the interrupted encoding {why}; to begin anew, leave out --resume, or remove this "
                    "folder"
                )
            for folder in sorted(self.part.glob("run-*")):
                if not (folder / "run.json").exists():
                    shutil.rmtree(folder)
                    continue
                done = json.loads((folder / "run.json").read_text())
                self.runs.append(_Run(folder, [_Record(**record) for record in done["records"]], done["encoder"]))
                self.labels |= {label: i for i, label in enumerate(done["labels"])}
            return
        if self.part.exists():
            shutil.rmtree(self.part)
        self.part.mkdir()
        self.seed = int.from_bytes(os.urandom(7), "little")
        with whole_file(job, "w") as file:
            json.dump({**about, "seed": self.seed}, file)

    def write(
        self,
        pieces: Iterable[Any],
        parse: Callable[[Any], Weighted] = lambda piece: piece,
        progress: Callable[[str, int], Any] = lambda what, tokens: None,
    ) -> Blocks:
        """Encodes all pieces, and returns the file.

        Parameters
        ----------
        pieces : iterable
            Must be the same pieces in the same order if the encoding is resumed.
        parse : callable
            Returns the sequences, labels and weights of a piece; called on threads.
        progress : callable
            Called after each step with ``"encoded"``, later ``"written"``, and the number of tokens.
        """
        with self.cleaned():
            return self._write(pieces, parse, progress)

    @contextmanager
    def cleaned(self) -> Iterator[None]:
        """After an error, what cannot be resumed is removed from the disk."""
        try:
            with full_disk(self.part):
                yield
        except BaseException as e:
            for run in self._open:
                with suppress(OSError):
                    run._file.close()
            if not self.resumable or isinstance(e, ValueError):  # data or options must be others
                shutil.rmtree(self.part, ignore_errors=True)
            raise

    def _write(
        self, pieces: Iterable[Any], parse: Callable[[Any], Weighted], progress: Callable[[str, int], Any]
    ) -> Blocks:
        done = {record.number: record.tokens for run in self.runs for record in run.records}

        def encode(item: tuple[int, Any]) -> int:
            return done[item[0]] if item[0] in done else self._encode(item[0], parse(item[1]))

        tokens = 0
        for n in ordered(encode, iter(enumerate(pieces)), self.threads):
            tokens += n
            progress("encoded", n)
        if not tokens:
            raise ValueError("there is no sequence to encode")
        list(ordered(self.close_run, iter(list(self._open)), self.threads))
        return self.finish(self.min_freq, progress)

    def _encode(self, number: int, piece: Weighted) -> int:
        """Encodes a piece within the run of this thread."""
        if not len(piece.X):
            return 0
        run: _Run | None = getattr(self._own, "run", None)
        if run is None:
            run = self._own.run = self.new_run(self.encoder.copy())
        data = run.encoder.encode(piece.X, True, 1)
        labels, sets = self._label_numbers(piece.y, data.offsets)
        run.add(number, data, labels, piece.weights, sets)
        if run.tokens >= _RUN_TOKENS or run.encoder.memory > self.limit:
            self._own.run = None
            self.close_run(run)
        return data.n_tokens

    def new_run(self, encoder: Encoder) -> _Run:
        """Begins a run."""
        with self._lock:
            numbers = [int(run.folder.name[4:]) for run in [*self.runs, *self._open]]
            run = _Run(self.part / f"run-{max(numbers, default=-1) + 1:06d}")
            run.open(encoder)
            self._open.append(run)
        return run

    def close_run(self, run: _Run) -> None:
        """Ends a run."""
        with self._lock:
            labels = list(self.labels)
        run.close(labels, self.seed)
        with self._lock:
            self.runs.append(run)
            self._open.remove(run)

    def _label_numbers(self, y: Any, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int32], list[Any]]:
        """Numbers of the labels, in the order in which they came, -1 if unknown; and sets of possible ones."""
        if y is None:
            return np.full(int(offsets[-1]), -1, np.int32), []
        found = in_label_order(found_labels(y))
        with self._lock:
            own = [-1 if label == self.unknown else self.labels.setdefault(label, len(self.labels)) for label in found]
        check_label_count(len(self.labels))
        numbers, hints = label_numbers(y, found, offsets)
        require_hard(hints, "a block file holds no soft labels (dicts of labels and weights)")
        possible = [[own[j] for j in np.flatnonzero(row == 0)] for row in hints]
        sets = [[token, possible[-2 - numbers[token]]] for token in np.flatnonzero(numbers < -1).tolist()]
        return np.array([*own, -1], np.int32)[np.maximum(numbers, -1)], sets

    def finish(self, min_freq: float, progress: Callable[[str, int], Any] = lambda what, tokens: None) -> Blocks:
        """All runs to one file, without attributes that occur less often."""
        n_attributes, parts = zip(*(self._merge(kind) for kind in range(len(KINDS))), strict=True)

        def adopted() -> Iterator[Any]:
            for r, run in enumerate(self.runs):
                names = [p.name.removesuffix(".npy") for p in run.folder.glob("*.npy")]
                arrays = {x: run.load(x) for x in names if x.split(".")[0] not in KINDS}
                yield arrays, *(self._placed(*part[r]) for part in parts)

        def merge() -> Encoder:
            encoder = self.encoder.merged(adopted())
            config, inner = self.runs[0].config, getattr(encoder, "inner", encoder)
            config = config.get("inner", config)
            for name in ("n_columns", "text"):  # what an encoder knows of its data besides the vocabulary
                if hasattr(inner, name):
                    setattr(inner, name, config[name])
            return encoder

        labels = in_label_order(set(self.labels))
        numbers = [[numbers for numbers, _ in part] for part in parts]
        with ThreadPoolExecutor(1) as pool:
            encoder = pool.submit(merge)
            _Assembly(self, n_attributes, numbers, labels).write(encoder, min_freq, progress)
        shutil.rmtree(self.part)
        return Blocks(self.path)

    def _placed(self, numbers: NDArray[np.uint32], own: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """Numbers of the attributes whose places a run tells: those first seen in it, and all that may have others."""
        return numbers if self.encoder.shares_names else np.where(own, numbers, np.uint32(NONE))

    def _merge(self, kind: int) -> tuple[int, list[tuple[NDArray[np.uint32], NDArray[np.bool_]]]]:
        """Number of attributes, and for each run: the number of each of its attributes, and whether it is first there.

        An attribute's number says how many were seen before it, of those that are not left out.
        """
        name = KINDS[kind]
        runs = []
        for r, run in enumerate(self.runs):
            keys, first = run.load(f"{name}.keys"), run.load(f"{name}.first")
            pieces = np.array([[record.number, record.known[kind]] for record in run.records], np.int64)
            number, own = (self._scratch(f"{name}.{r}.{x}", t, int(first[-1])) for x, t in _FOUND.items())
            runs.append((keys, first, pieces, number, own))
        n = _core.merge_keys(runs, self.min_freq, self.threads)
        return n, [(number, own.view(np.bool_)) for _, _, _, number, own in runs]

    def _scratch(self, name: str, dtype: Any, n: int) -> NDArray[Any]:
        """An array on the disk, which must have room for it: what is mapped cannot fail later."""
        if not n:
            return np.zeros(0, dtype)
        with open(self.part / name, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n * np.dtype(dtype).itemsize)
        return np.memmap(self.part / name, dtype, "r+" if hasattr(os, "posix_fallocate") else "w+", shape=(n,))


class _Assembly:
    """Puts the blocks of a file together out of runs."""

    def __init__(
        self,
        writer: BlockWriter,
        n_attributes: tuple[int, ...],
        numbers: list[list[NDArray[np.uint32]]],
        labels: list[Any],
    ) -> None:
        self.writer, self.n_attributes, self.numbers, self.labels = writer, n_attributes, numbers, labels
        known = writer.labels
        self.final = np.full(len(known) + 1, -1, np.int32)
        self.final[[known[label] for label in labels]] = np.arange(len(labels), dtype=np.int32)
        places = [(record, r) for r, run in enumerate(writer.runs) for record in run.records]
        self.places = sorted(places, key=lambda place: place[0].number)
        records = [record for record, _ in self.places]
        self.kinds = KINDS[: max(len(record.attributes) for record in records)]
        self.values = any(record.values for record in records)
        self.weighted = any(record.weights for record in records)
        self.first_token = np.cumsum([0] + [record.tokens for record in records])
        lengths = [writer.runs[r].arrays(record)["lengths"] for record, r in self.places]
        self.offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        self.sequences = _cut(self.offsets, _core.tokens_per_block(len(labels)))
        self._packers = threading.local()

    def write(self, merged: Future[Encoder], min_freq: float, progress: Callable[[str, int], Any]) -> None:
        """Writes the file; the encoder must be there when the blocks are."""
        part = self.writer.part
        spools = {"labels": Spool(part / "labels", np.dtype(np.int32))}
        types = {"attributes": np.uint32, "entries": np.uint16, "counts": np.uint16, "values": np.float64}
        for kind in self.kinds:
            for name, dtype in types.items():
                if name != "values" or (self.values and kind == "state"):
                    spools[f"{kind}.{name}"] = Spool(part / f"{kind}.{name}", np.dtype(dtype))
        n_blocks = len(self.sequences) - 1
        first = {f"{kind}.first_{x}": np.zeros(n_blocks + 1, np.int64) for kind in self.kinds for x in _FIRST}
        sums = np.zeros(n_blocks, np.uint32)
        unknown = 0
        for b, made in enumerate(ordered(self._block, iter(range(n_blocks)), self.writer.threads)):
            sums[b] = made.pop("crc32")
            for name, x in made.items():
                spools[name].write(x)
            unknown += int((made["labels"] < 0).sum())
            progress("written", len(made["labels"]))
            for kind in self.kinds:
                first[f"{kind}.first_attribute"][b + 1] = spools[f"{kind}.attributes"].shape[0]
                first[f"{kind}.first_entry"][b + 1] = spools[f"{kind}.entries"].shape[0]
                n = int(made[f"{kind}.counts"].sum(dtype=np.int64))
                first[f"{kind}.first_value"][b + 1] = first[f"{kind}.first_value"][b] + n
        arrays: dict[str, Any] = {**spools, "offsets": self.offsets}
        small: dict[str, Any] = {**first, "blocks.sequences": self.sequences, "blocks.crc32": sums}
        small |= self._of_sequences()
        encoder = merged.result()
        small |= {f"encoder.{name}": x for name, x in encoder.arrays().items()}
        config = {**encoder.config(), "n_attributes": list(self.n_attributes)}
        header = {
            "blocks": VERSION,
            "labels": self.labels,
            "encoder": config,
            "n_attributes": list(self.n_attributes),
            "min_freq": float(min_freq),
            "sequences": len(self.offsets) - 1,
            "tokens": int(self.offsets[-1]),
            "unknown": unknown,
            "reading": self.writer.reading,
            "features": self.writer.features,
            "checksums": {name: checksum(name, x) for name, x in small.items()},
        }
        write_arrays(self.writer.path, KEY, header, {**arrays, **small})

    def _of_sequences(self) -> dict[str, NDArray[Any]]:
        """Weights of the sequences, and sets of labels, if there are any."""
        out: dict[str, NDArray[Any]] = {}
        if self.weighted:
            weights = [
                self.writer.runs[r].arrays(record).get("weights", np.ones(record.sequences))
                for record, r in self.places
            ]
            out["weights"] = np.concatenate(weights)
        sets = [
            (int(first) + token, labels)
            for (record, _), first in zip(self.places, self.first_token, strict=False)
            for token, labels in record.sets
        ]
        if sets:
            out["sets.tokens"] = np.array([token for token, _ in sets], np.int64)
            out["sets.labels"] = np.zeros((len(sets), len(self.labels)), bool)
            for k, (_, labels) in enumerate(sets):
                out["sets.labels"][k, self.final[labels]] = True
        return out

    def _block(self, b: int) -> dict[str, Any]:
        """The arrays of a block, and its checksum."""
        if not hasattr(self._packers, "own"):
            self._packers.own = [_core.BlockPacker(n) for n in self.n_attributes]
        bounds = self.offsets[self.sequences[b] : self.sequences[b + 1] + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        labels: list[NDArray[np.int32]] = []
        parts: list[list[Any]] = [[] for _ in self.kinds]
        place = int(np.searchsorted(self.first_token, first, side="right")) - 1
        while first < last:
            record, r = self.places[place]
            begin = int(self.first_token[place])
            a, z = first - begin, min(last - begin, record.tokens)
            arrays = self._piece(place)
            labels.append(arrays["labels"][a:z])
            for k, kind in enumerate(self.kinds):
                entries = slice(*arrays[f"{kind}.ptr"][[a, z]])
                values = arrays["values"][entries] if record.values and k == 0 else None
                attr, count = arrays[f"{kind}.attr"][entries], arrays[f"{kind}.count"][a:z]
                parts[k].append((attr, count, values, self.numbers[k][r]))
            first = begin + z
            place += 1
        out: dict[str, Any] = {"labels": self.final[np.concatenate(labels)] if labels else np.zeros(0, np.int32)}
        for k, kind in enumerate(self.kinds):
            attr, entry, count, value = self._packers.own[k].pack(parts[k])
            out |= {f"{kind}.attributes": attr, f"{kind}.entries": entry, f"{kind}.counts": count}
            if self.values and k == 0:
                out["state.values"] = np.ones(int(count.sum(dtype=np.int64))) if value is None else value
        out["crc32"] = checksum_of(bounds - bounds[0], *out.values())
        return out

    def _piece(self, place: int) -> dict[str, NDArray[Any]]:
        """The arrays of a piece, with pointers to the attributes of its tokens; the last one stays."""
        held = getattr(self._packers, "piece", None)
        if held is None or held[0] != place:
            record, r = self.places[place]
            arrays = self.writer.runs[r].arrays(record)
            for kind in self.kinds:
                counts = arrays[f"{kind}.count"]
                arrays[f"{kind}.ptr"] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            held = self._packers.piece = place, arrays
        found: dict[str, NDArray[Any]] = held[1]
        return found


_FOUND: dict[str, Any] = {"number": np.uint32, "own": np.uint8}  # of the attributes of a run
_FIRST = [name.removeprefix("first_") for name in Group._fields if name.startswith("first_")]


def _cut(offsets: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    """First sequence of each block, and their number: as training cuts data in memory."""
    out = [0]
    while out[-1] < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[out[-1]] + tokens, side="right")) - 1
        out.append(max(last, out[-1] + 1))
    return np.array(out, np.int64)
