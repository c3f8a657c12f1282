"""The kinds of files: good ones to begin with, how they are changed, and how they are used once they are read."""

from __future__ import annotations

import atexit
import bz2
import gzip
import io
import lzma
import os
import random
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import crfkit
from crfkit import CRF, HMM, MEMM, Expectations, Gazetteer, Template, TokenFeatures, WordClasses, WordVectors
from crfkit.base.fields import Arrays
from crfkit.compat.pycrfsuite import Tagger
from crfkit.data import Blocks, DataError, load_corpus, read_columns, read_conllu, read_crfsuite, tokenize
from crfkit.data.blocks import Group, StoredDataset, block_checksum
from crfkit.data.corpora import corpora
from crfkit.features.encoders import PlanEncoder
from crfkit.features.plan import FeaturePlan
from crfkit.graph import FactorialCRF, GraphCRF, SkipChainCRF
from crfkit.model.streaming import tag_columns
from crfkit.segment import SegmentCRF, SegmentFeatures
from fuzzing import annotations as annotated
from fuzzing.containers import DTYPES, Container, mutate_container
from fuzzing.mutations import mutate_bytes, mutate_lines, repeated
from fuzzing.suite import mutate_suite, random_suite
from fuzzing.texts import mutate_crfpp, mutate_template, mutate_wapiti, random_line, random_regex

ROWS = [[("a", "N"), ("b/c", "V"), ("Über", "N")], [("a", "V")]]
LABELS = [["A", "B", "A"], ["B"]]
WORDS = [[word for word, _ in row] for row in ROWS]
ITEMS = [[{"a": 1.0, "b": 2.0}, {"c": "d"}, {"a": 0.5}], [{"é": 1.0}]]
VECTORS = [np.array([[0.0, 1.0], [1.0, 0.5], [2.0, -1.0]], np.float32), np.ones((1, 2), np.float32)]
GRAPHS = [(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]), [(0, 1), (1, 2)]), (np.array([[1.0, 1.0]]), [])]
TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\nB1:%x[0,1]\n"
PATTERNS = '*\nu:%x[0,0]\n*:%X[-1,1]/%x[@-1,0]\nu:%m[0,0,"^.?\\\\p*$"] %t[0,0,"\\\\u"]\n'
COLUMNS = b"a N A\nb/c V B\n\n-DOCSTART- x O\n\na N A\n"
CONLLU = b"# text\n1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n2-3\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
SUITE = b"@weight:2\nA\ta\tb:2.5\tc\\:d:1e3\nB\tx\n\nA\ty\n"
CRFPP = b"""version: 100
cost-factor: 1
maxid: 14
xsize: 2

A
B

U00:%x[0,0]
U01:%x[-1,0]/%x[0,1]
B
B1:%x[0,1]

0 U00:a
2 U01:_B-1/N
4 U01:b/c/V
6 B
10 B1:N

""" + b"".join(b"%.16f\n" % (0.25 * k - 1) for k in range(14))


class Refused(Exception):
    """A documented error, with a text."""


@contextmanager
def only(*kinds: type[BaseException]) -> Iterator[None]:
    """These errors are documented, if they say something; all others are findings."""
    try:
        yield
    except kinds as e:
        if not str(e) or isinstance(e, UnicodeError):
            raise AssertionError(f"an error without a clear text: {e!r}") from e
        raise Refused(str(e)) from e


@dataclass
class Kind:
    """A kind of file."""

    name: str
    seeds: Callable[[Path], list[bytes]]
    mutate: Callable[[bytes, random.Random], bytes]
    use: Callable[[bytes, Path], None]
    share: int = 4  # of every round, how many inputs
    good: list[bytes] = field(default_factory=list)

    def input(self, seed: int, number: int, folder: Path) -> bytes:
        """The input of this number; the same for the same seed."""
        if not self.good:
            self.good = self.seeds(folder)
        rng = random.Random(f"{seed} {self.name} {number}")
        return self.mutate(rng.choice(self.good), rng)


def _saved(folder: Path, *estimators: Any) -> list[bytes]:
    out = []
    for k, x in enumerate(estimators):
        path = folder / f"good{k}"
        x.save(path)
        out.append(path.read_bytes())
    return out


def _plans(rng: random.Random) -> Iterator[FeaturePlan]:
    """Plans whose joins share parts, look far and hold patterns."""
    for _ in range(6):
        plan = FeaturePlan(pad=rng.choice((0, 1, 2)))
        made = [plan.leaf(0), plan.leaf(1, rng.choice(("lower", "suffix", "shape")), 2), plan.mark("first")]
        made.append(plan.pattern(0, "m", regex=r"^\a*" if rng.random() < 0.5 else "a?b*"))
        for _ in range(5):
            pieces = [(rng.choice(made), rng.choice((-1, 0, 0, 1))) for _ in range(rng.choice((1, 2, 3)))]
            plan.look(pieces, f"{rng.choice('UZ')}{len(plan.templates)}:", edge=rng.random() < 0.3)
            made.append(len(plan.nodes) - 1)
        yield plan


def _lexicon_features() -> TokenFeatures:
    """Features that look words up."""
    return TokenFeatures(
        window=1,
        classes=WordClasses(["a", "über"], ["01", "0"], prefixes=[1, 2], lower=True),
        vectors=WordVectors(["a", "b/c"], [[0.5, -1.0], [2.0, 0.0]]),
        gazetteers={"x": Gazetteer(["a b/c", "a", "Über a a"]), "y": Gazetteer(["über"], case="lower")},
    )


def _use_gazetteer(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    for case in ("exact", "lower"):
        with only(DataError):
            found = Gazetteer.from_file(path, case=case)
        words = data.decode(errors="replace").split()[:200]
        marks = found.marks(words)
        assert len(marks) == len(words)
        assert all(mark in (None, "B", "I", "L", "U") for mark in marks)
        TokenFeatures(gazetteers={"x": found})


def _use_vectors(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with only(DataError):
        found = WordVectors.from_file(path)
    assert found.values.shape == (len(found.words), found.values.shape[1])
    assert np.isfinite(found.values).all()
    assert found.part.native is not None


_VECTORS = [
    b"a 0.5 -1e-3\n\xc3\xa9 2 3\n. . 1 1\n",
    b"2 3\na 1 2 3 \nb 4 5 6\n",
    b"2 2\na " + struct.pack("<2f", 0.5, -1) + b"\nbc " + struct.pack("<2f", 1e-3, 7) + b"\n",
]


def _crf_seeds(folder: Path) -> list[bytes]:
    quick: dict[str, Any] = {"max_iter": 2, "n_jobs": 1}
    crfs = [
        CRF(Template(TEMPLATE), constraints=[("B", "B")], **quick),
        CRF(Template(PATTERNS), **quick),
        CRF(TokenFeatures(), dtype="float64", **quick),
        CRF(_lexicon_features(), **quick),
        CRF(_lexicon_features(), hash_bits=4, **quick),
        *(CRF(plan, **quick) for plan in _plans(random.Random(0))),
    ]
    fitted = [crf.fit(ROWS, LABELS) for crf in crfs]
    return _saved(folder, *fitted, CRF(**quick).fit(ITEMS, LABELS), CRF(**quick).fit(WORDS, [[1, 2, 1], [2]]))


def _ordered_seeds(folder: Path) -> list[bytes]:
    quick: dict[str, Any] = {"features": Template("U:%x[0,0]\nB"), "max_iter": 2, "n_jobs": 1}
    crfs = [CRF(order=2, **quick), CRF(order=3, **quick), CRF(order=2, all_possible_transitions=True, **quick)]
    many = [[str(k % 30) for k in range(40)]], [[str(k % 27) for k in range(40)]]  # more labels than slots are made of
    beams = CRF(order=2, algorithm="sgd", **quick).fit([[(w, w) for w in many[0][0]]], many[1])
    return _saved(folder, *(crf.fit(ROWS, LABELS) for crf in crfs), beams)


def _neural_seeds(folder: Path) -> list[bytes]:
    import torch

    from crfkit import NeuralCRF

    torch.set_num_threads(1)
    quick: dict[str, Any] = {"max_iter": 1, "random_state": 0}
    return _saved(
        folder,
        NeuralCRF(embedding_size=3, character_size=2, affixes=(2, -2), hidden=(3,), **quick).fit(WORDS, LABELS),
        NeuralCRF(hidden=(2, 2), window=1, **quick).fit(VECTORS, LABELS),
        NeuralCRF(features=Template(TEMPLATE), inputs="features", **quick).fit(ROWS, LABELS),
    )


class _Stop(Exception):
    pass


def _neural_training(**settings: Any) -> Any:
    from crfkit import NeuralCRF

    return NeuralCRF(embedding_size=3, character_size=2, hidden=(3,), max_iter=3, random_state=0, **settings)


_TRAININGS: list[Callable[..., Any]] = [
    *(partial(CRF, algorithm=name, max_iter=3, n_jobs=1) for name in ("lbfgs", "sgd", "arow", "sag", "newton-cg")),
    partial(CRF, algorithm="lbfgs", max_iter=3, n_jobs=1, c1=0.1),
    partial(CRF, algorithm="sgd", order=2, max_iter=3, n_jobs=1),
    partial(HMM, max_iter=3, n_jobs=1),
    partial(MEMM, max_iter=3, n_jobs=1),
    _neural_training,
]


def _labels_of(make: Callable[..., Any]) -> list[Any]:
    """Labels to train on; an HMM takes steps only if some are unknown."""
    return [LABELS[0], None] if getattr(make, "func", None) is HMM else LABELS


def _checkpoint_seeds(folder: Path) -> list[bytes]:
    out = []
    for k, make in enumerate(_TRAININGS):
        path = folder / f"checkpoint{k}"
        for stop in (True, False):
            path.unlink(missing_ok=True)
            with suppress(_Stop):
                make(checkpoint=path, checkpoint_every=0, callback=_Later() if stop else None).fit(
                    WORDS, _labels_of(make)
                )
            out.append(struct.pack("<I", k) + path.read_bytes())  # the training that it is of comes first
    return out


class _Later:
    """Stops a training at its second iteration."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            raise _Stop


def _mutate_checkpoint(data: bytes, rng: random.Random) -> bytes:
    return data[:4] + mutate_container(data[4:], rng)


def _use_checkpoint(data: bytes, path: Path) -> None:
    path.write_bytes(data[4:])
    make = _TRAININGS[struct.unpack("<I", data[:4])[0] % len(_TRAININGS)]
    with only(ValueError):
        make(checkpoint=path, checkpoint_every="1h").fit(WORDS, _labels_of(make), resume=True).predict(WORDS)


def _block_seeds(folder: Path) -> list[bytes]:
    out = []
    unknown = [[None, {"A", "B"}, "A"], None]
    for k, (x, y, weights) in enumerate([(ROWS, LABELS, None), (ITEMS, LABELS, [2.0, 0.5]), (ROWS, unknown, None)]):
        path = folder / f"blocks{k}"
        CRF("auto" if k == 1 else Template(TEMPLATE), n_jobs=1).encode(x, y, path, sample_weight=weights)
        out.append(path.read_bytes())
    return out


def _mutate_blocks(data: bytes, rng: random.Random) -> bytes:
    """Changes a block file, mostly so that the checksums of its blocks are right."""
    changed = mutate_container(data, rng)
    try:
        file = Container.parse(changed)
        arrays = {k: np.frombuffer(x.data, DTYPES[x.dtype]).reshape(x.shape) for k, x in file.tensors.items()}
        kinds = {k: Arrays(arrays).group(k) for k in ("state", "edge")}
        starts, offsets = arrays["blocks.sequences"], arrays["offsets"]
        groups = {k: Group.of_file(x, len(starts) - 1, int(offsets[-1])) for k, x in kinds.items() if x}
        stored = StoredDataset(offsets, starts, groups)
        sums = [block_checksum(stored, arrays["labels"], b) for b in range(len(starts) - 1)]
        file.tensors["blocks.crc32"].data = np.array(sums, np.uint32).tobytes()
        return file.pack() if rng.random() < 0.9 else changed
    except Exception:  # changed beyond what it can be taken apart by
        return changed


def _use_blocks(data: bytes, path: Path) -> None:
    """Trains on a block file, and tags it."""
    path.write_bytes(data)
    with only(crfkit.ModelError):
        blocks = Blocks(path)
    with only(ValueError):
        repr(blocks)
        crf = CRF(max_iter=1, tol=0, n_jobs=1).fit(blocks)
        crf.predict(blocks)
        CRF(algorithm="sgd", max_iter=1, tol=0, n_jobs=1).fit(Blocks(path, window=1))


def _classes_seeds(folder: Path) -> list[bytes]:
    made = [
        WordClasses.fit(WORDS * 2, 3, n_jobs=1),
        WordClasses.fit(WORDS, 2, method="spectral", min_freq=1, lower=True, prefixes=[1, 2], n_jobs=1),
        WordClasses([], []),
    ]
    return _saved(folder, *made)


def _use_classes(data: bytes, path: Path) -> None:
    """Loads word classes, and looks words up."""
    path.write_bytes(data)
    with only(crfkit.ModelError):
        classes = WordClasses.load(path)
    for word in [*WORDS[0], *classes]:
        code = classes.get(word)
        assert code is None or set(code) <= {"0", "1"}
    assert len(classes.words) == len(classes.codes)
    repr(classes)


def _use_model(data: bytes, path: Path) -> None:
    """Loads a model, tags with it, and looks into it."""
    path.write_bytes(data)
    with only(crfkit.ModelError):
        model = crfkit.load(path, n_jobs=1, verify=len(data) % 3 > 0)
    with only(ValueError):
        if isinstance(model, (CRF, HMM, MEMM)):
            _use_chain(model)
        elif isinstance(model, SegmentCRF):
            for predict in (model.predict, model.predict_entities, model.predict_marginals):
                predict(ROWS)
            model.model_.state_weights(3)
            model.model_.card()
        elif isinstance(model, GraphCRF):
            model.predict(GRAPHS)
            model.predict_marginals(GRAPHS)
        elif isinstance(model, (SkipChainCRF, FactorialCRF)):
            model.predict(ROWS if isinstance(model._encoder, PlanEncoder) else ITEMS)
        else:
            kind = model._reader.kind
            model.predict({"tokens": WORDS, "dense": VECTORS}.get(kind, ROWS))
        repr(model)


def _use_chain(crf: Any) -> None:
    model = crf.model_
    encoder = model.encoder
    X: Any = ITEMS
    source = getattr(encoder, "inner", encoder)  # of one by hash
    if isinstance(source, PlanEncoder):
        known = source.n_columns or 2
        n = known if 0 < known < 50 else 2
        X = WORDS if n == 1 else [[(*token, *token * n)[:n] for token in row] for row in ROWS]
    crf.predict(X)
    crf.predict_marginals(X[:1])
    model.card()
    model.state_weights(3)
    model.edge_weights(3)
    model.transition_table()
    encoder.names()


def _use_suite(data: bytes, path: Path) -> None:
    if len(data) % 2:
        return _use_model(data, path)
    with only(ValueError):
        tagger = Tagger()
        tagger.open_inmemory(data)
        tagger.tag(ITEMS[0])
        tagger.labels()
        tagger.info()
    return None


def _mutate_plain(data: bytes, rng: random.Random) -> bytes:
    return mutate_lines(data, rng)


def _use_columns(data: bytes, path: Path) -> None:
    separator, label = (("auto", -1), ("blank", 0), ("tab", None))[len(data) % 3]
    with only(DataError):
        X, y = read_columns(io.BytesIO(data), separator=separator, label=label, comment="#" if len(data) % 2 else "")
        list(X), list(y or ())


def _use_conllu(data: bytes, path: Path) -> None:
    with only(DataError):
        X, y = read_conllu(io.BytesIO(data), label=("upos", "upos+feats", None)[len(data) % 3])
        list(X), list(y or ())


def _use_suite_text(data: bytes, path: Path) -> None:
    with only(DataError):
        X, y, _ = read_crfsuite(io.BytesIO(data))
        list(X), list(y)


def _use_expectations(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with only(ValueError):
        wanted = Expectations.read(path, method=("expectation", "posterior")[len(data) % 2])
        X: Any = [["two", "cups"], ["two", "pears"], ["cups"]]
        CRF(max_iter=2, n_jobs=1).fit(X, [None] * 3, expectations=wanted)


def _use_packed(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with only(DataError):
        list(read_columns(path).X)


def _use_text(data: bytes, path: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for sentence in tokenize(text):
        for token in sentence:
            assert text[token.start : token.end] == token


def _use_template(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with only(ValueError):
        template = Template.from_file(path)
        crf = CRF(template, max_iter=1, n_jobs=1).fit([[("a", "b", "c", "d")] * 3], [["A", "B", "A"]])
        crf.predict([[("x", "y", "z", "w")] * 2])
        crf.model_.encoder.names()


def _random_template(rng: random.Random) -> str:
    wapiti = rng.random() < 0.5
    return "\n".join(random_line(rng, wapiti) for _ in range(rng.randrange(1, 8)))


def _template_seeds(_: Path) -> list[bytes]:
    rng = random.Random(0)
    return [TEMPLATE.encode(), PATTERNS.encode(), *(_random_template(rng).encode() for _ in range(40))]


def _mutate_regex(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.6:
        return random_regex(rng).encode() + b"\n" + data.partition(b"\n")[2]
    return mutate_bytes(data, rng)


def _use_regex(data: bytes, path: Path) -> None:
    """A line of an expression, and the text to match."""
    regex, _, text = data.decode("utf-8", "replace").partition("\n")
    with only(ValueError):
        plan = FeaturePlan()
        for command in ("t", "m"):
            plan.look([(plan.pattern(0, command, regex=regex), 0)], f"U{command}:")
        PlanEncoder(plan).encode([[text, "a" * 200, "", "É1."]], True, 1)


_STREAM: list[Any] = []
atexit.register(_STREAM.clear)  # before the core goes


def _use_stream(data: bytes, path: Path) -> None:
    if not _STREAM:
        training = [[("a", "N", "A"), ("b", "V", "B")]]
        _STREAM.append(CRF(Template("U:%x[0,0]\nB"), n_jobs=1).fit(training, [["A", "B"]]).model_)
    with only(ValueError):
        for _ in tag_columns(_STREAM[0], io.BytesIO(data)):
            pass


#: Files of corpora that are not columns: where load_corpus looks for them, and a good one.
_CORPORA = {
    "snakes_grid": (
        "snakes_grid/snakes_train.jsonl",
        b'{"x": [[[0, 1, 2]]], "y": [[3]]}\n{"x": [[[9, 9, 9]]], "y": [[0]]}\n',
    ),
    "nettalk": ("nettalk/nettalk.data", b"#\n" * 10 + b"aardvark\ta-rdvark\t1<<<>2<<\t0\nab\txy\t0<\t0\n" * 3),
    "cmudict": ("cmudict/cmudict.dict", b";;; x\nA  AH0\nABC(2) EY1 B # y\n" * 10),
    "ocr_letters": (
        "ocr_letters/letter.data",
        b"".join(b"%d\ta\t%d\t1\t1\t0\t" % (k, (-1, 2)[k % 2]) + b"0\t1\t" * 64 + b"\n" for k in range(4)),
    ),
}


def _corpus_seeds(_: Path) -> list[bytes]:
    return [struct.pack("<I", k) + good for k, (_, good) in enumerate(_CORPORA.values())]


def _mutate_corpus(data: bytes, rng: random.Random) -> bytes:
    return data[:4] + mutate_lines(data[4:], rng, b"\t ,:[/")


def _use_corpus(data: bytes, path: Path) -> None:
    name = list(_CORPORA)[struct.unpack("<I", data[:4])[0] % len(_CORPORA)]
    assert name in corpora()
    folder = path.parent / "corpora"
    file = folder / _CORPORA[name][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data[4:])
    before = os.environ.get("CRFKIT_DATA")
    os.environ["CRFKIT_DATA"] = str(folder)
    try:
        with only(ValueError):
            X, y = load_corpus(name)
            list(X), list(y or ())
    finally:
        if before is None:
            del os.environ["CRFKIT_DATA"]
        else:
            os.environ["CRFKIT_DATA"] = before


def _use_annotated(data: bytes, path: Path) -> None:
    with only(*annotated.ERRORS):
        annotated.use(data, path)


def _use_project(data: bytes, path: Path) -> None:
    with only(*annotated.ERRORS):
        annotated.use_project(data, path)


def _foreign(data: bytes) -> Callable[[Path], list[bytes]]:
    return lambda _: [data]


def _wapiti(patterns: list[bytes], labels: list[bytes], names: list[bytes], weights: int) -> bytes:
    def strings(items: list[bytes]) -> bytes:
        return b"".join(b"%d:%s,\n" % (len(x), x) for x in items)

    values = b"".join(b"%d=%s\n" % (k, (0.25 * k - 1).hex().encode()) for k in range(weights))
    parts = [b"#mdl#2#%d\n#rdr#%d/2/0\n" % (weights, len(patterns)), strings(patterns)]
    for items in (labels, names):
        parts += [b"#qrk#%d\n" % len(items), strings(items)]
    return b"".join([*parts, values])


_WAPITI = _wapiti(
    [b"*", b"u:%x[0,0]", b"*:%X[-1,1]/%x[0,0]", b'u:t=%t[0,0,"^a"]'],
    [b"A", b"B"],
    [b"*", b"u:a", b"*:_x-1/a", b"u:t=true"],
    16,
)


def _chain(make: Callable[[], Any]) -> Callable[[Path], list[bytes]]:
    return lambda folder: _saved(folder, make().fit(ROWS, LABELS))


def _pairs() -> list[list[tuple[str, str]]]:
    return [[(label, "xy"[k % 2]) for k, label in enumerate(row)] for row in LABELS]


def _graph_seeds(folder: Path) -> list[bytes]:
    quick: dict[str, Any] = {"max_iter": 2, "n_jobs": 1}
    return _saved(folder, *(GraphCRF(directed=d, **quick).fit(GRAPHS, LABELS) for d in (False, True)))


def _factorial_seeds(folder: Path) -> list[bytes]:
    return _saved(folder, FactorialCRF(Template("U:%x[0,0]"), max_iter=2, n_jobs=1).fit(ROWS, _pairs()))


def _segment_seeds(folder: Path) -> list[bytes]:
    quick: dict[str, Any] = {"max_iter": 2, "n_jobs": 1, "features": Template("U:%x[0,0]\nU:%x[0,1]")}
    listed = SegmentFeatures(shape=True, gazetteers={"x": ["a b/c"]}, similarity=0.5)
    plain = SegmentCRF(**quick, tail_order=2, ends=True)
    return _saved(folder, *(crf.fit(ROWS, LABELS) for crf in (plain, SegmentCRF(**quick, segments=listed))))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("crf", _crf_seeds, mutate_container, _use_model, 8),
        Kind("ordered", _ordered_seeds, mutate_container, _use_model, 2),
        Kind("hmm", _chain(partial(HMM, n_jobs=1)), mutate_container, _use_model),
        Kind("segment", _segment_seeds, mutate_container, _use_model, 2),
        Kind("memm", _chain(partial(MEMM, Template(TEMPLATE), max_iter=2, n_jobs=1)), mutate_container, _use_model),
        Kind("graph", _graph_seeds, mutate_container, _use_model),
        Kind(
            "skip-chain",
            _chain(partial(SkipChainCRF, Template(TEMPLATE), max_iter=2, n_jobs=1)),
            mutate_container,
            _use_model,
            2,
        ),
        Kind("factorial", _factorial_seeds, mutate_container, _use_model, 2),
        Kind("neural", _neural_seeds, mutate_container, _use_model, 1),
        Kind("classes", _classes_seeds, mutate_container, _use_classes, 2),
        Kind("blocks", _block_seeds, _mutate_blocks, _use_blocks, 4),
        Kind("checkpoint", _checkpoint_seeds, _mutate_checkpoint, _use_checkpoint, 2),
        Kind(
            "crfsuite",
            lambda _: [random_suite(random.Random(k)) for k in range(20)],
            repeated(mutate_suite),
            _use_suite,
            8,
        ),
        Kind("crfpp", _foreign(CRFPP), repeated(mutate_crfpp), _use_model, 8),
        Kind("wapiti", _foreign(_WAPITI), repeated(mutate_wapiti), _use_model, 8),
        Kind("template", _template_seeds, repeated(mutate_template), _use_template, 4),
        Kind("regex", lambda _: [b"^a*\naab"], repeated(_mutate_regex), _use_regex, 8),
        Kind("columns", _foreign(COLUMNS), repeated(_mutate_plain), _use_columns, 12),
        Kind("conllu", _foreign(CONLLU), repeated(_mutate_plain), _use_conllu, 12),
        Kind("crfsuite-text", _foreign(SUITE), repeated(lambda d, r: mutate_lines(d, r, b"\t:")), _use_suite_text, 12),
        Kind(
            "packed",
            lambda _: [f(COLUMNS) for f in (gzip.compress, bz2.compress, lzma.compress)],
            repeated(mutate_bytes),
            _use_packed,
            4,
        ),
        Kind(
            "expectations",
            _foreign(b"word=two\tA:0.7 B:0.2 C:0.1\n# x\n\nlower[0]=cups  B,A>=0.9\n* B<=0.3\n"),
            repeated(lambda d, r: mutate_lines(d, r, b" ,:<>=")),
            _use_expectations,
            4,
        ),
        Kind("stream", _foreign(COLUMNS), repeated(_mutate_plain), _use_stream, 8),
        Kind(
            "text",
            _foreign("Dr. Li's e-mail: a.b@c.de, U.S.! 「漢字。」".encode()),
            repeated(mutate_bytes),
            _use_text,
            4,
        ),
        Kind(
            "gazetteer", _foreign(b"New York\nRiga\n\xc3\x9cber a\tb c\n"), repeated(_mutate_plain), _use_gazetteer, 8
        ),
        Kind("vectors", lambda _: _VECTORS, repeated(_mutate_plain), _use_vectors, 8),
        Kind("corpora", _corpus_seeds, repeated(_mutate_corpus), _use_corpus, 4),
        Kind("annotated", annotated.seeds, annotated.mutate, _use_annotated, 8),
        Kind("project", annotated.project_seeds, annotated.mutate_project, _use_project, 2),
    )
}


def quiet() -> None:
    """No warnings: numbers out of range may overflow."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
