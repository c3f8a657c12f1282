"""Named corpora: the built-in sample, and well-known corpora that the user keeps on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from crfkit.data.readers import DataError, Labelled, read_columns, read_conllu
from crfkit.data.sequences import Columns


def _find(folder: str, name: str) -> Path:
    """A file of a corpus, in the folder that ``CRFKIT_DATA`` names or else in the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crfkit"
    roots = [Path(root) for root in (os.environ.get("CRFKIT_DATA"), cache) if root]
    for root in roots:
        if (root / folder / name).exists():
            return root / folder / name
    raise FileNotFoundError(
        f"the corpus needs {folder}/{name}, which is not in {' or '.join(map(str, roots))}. Set CRFKIT_DATA (an "
        f"environment variable) to the folder that holds {folder}/"
    )


def _split_of(split: str, **names: str) -> str:
    if split not in names:
        raise ValueError(f"'split' must be one of {sorted(names)}, got {split!r}")
    return names[split]


def _ingredients(split: str, label: str | None) -> Labelled:
    name = _split_of(split, train="train.txt", test="test.txt")
    text = Path(__file__).with_name("sample").joinpath(name).read_bytes()
    return read_columns(BytesIO(text))


def _columns(folder: str, **names: str) -> Callable[[str, str | None], Labelled]:
    return lambda split, label: read_columns(_find(folder, _split_of(split, **names)))


def _snips(split: str, label: str | None) -> Labelled:
    folder = _split_of(split, train="train", dev="valid", test="test")

    def lines(name: str) -> list[list[str]]:
        text = _find("snips_slots", f"{folder}/{name}").read_text(encoding="utf-8")
        return [line.split() for line in text.splitlines() if line.strip()]

    return Labelled(Columns.from_sequences(lines("seq.in")), Columns.from_sequences(lines("seq.out")))


def _universal(folder: str, prefix: str) -> Callable[[str, str | None], Labelled]:
    def load(split: str, label: str | None) -> Labelled:
        _split_of(split, train="", dev="", test="")
        return read_conllu(_find(folder, f"{prefix}-ud-{split}.conllu"), label=label or "upos")

    return load


def _part(items: list[Any], split: str, n_test: int) -> list[Any]:
    """The items of a part, the test part being drawn with a fixed seed."""
    if split == "all":
        return items
    test = set(np.random.default_rng(0).permutation(len(items))[:n_test].tolist())
    return [x for i, x in enumerate(items) if (i in test) == (split == "test")]


def _nettalk(split: str, label: str | None) -> Labelled:
    _split_of(split, train="", test="", all="")
    if label not in (None, "phone", "phone+stress"):
        raise ValueError(f"'label' of nettalk must be 'phone' or 'phone+stress', got {label!r}")
    path = _find("nettalk", "nettalk.data")
    words, phones = [], []
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
        fields = line.split("\t")
        if number <= 10 or len(fields) < 3:
            continue
        word, phone, stress = fields[:3]
        if label == "phone+stress":
            if len(stress) != len(word):
                continue  # one entry has no stress
            phones.append([a + b for a, b in zip(phone, stress, strict=True)])
        else:
            phones.append(list(phone))
        if len(phone) != len(word):
            raise DataError(f"{path}:{number}: {len(word)} letters, but {len(phone)} phones")
        words.append(list(word))
    words, phones = _part(words, split, 934), _part(phones, split, 934)
    return Labelled(Columns.from_sequences(words), Columns.from_sequences(phones))


def _brown(split: str, label: str | None) -> Labelled:
    _split_of(split, train="", test="", all="")
    root = _find("brown", "cats.txt").parent
    names = sorted(path.name for path in root.iterdir() if len(path.name) == 4 and path.name[0] == "c")
    words, tags = [], []
    for i, name in enumerate(names):
        if split != "all" and (i % 10 == 9) != (split == "test"):  # every tenth text of every genre is test
            continue
        for line in (root / name).read_text(encoding="latin-1").splitlines():
            pairs = [token.rpartition("/") for token in line.split()]
            if pairs:
                words.append([word for word, _, _ in pairs])
                tags.append([tag for _, _, tag in pairs])
    return Labelled(Columns.from_sequences(words), Columns.from_sequences(tags))


def _cmudict(split: str, label: str | None) -> Labelled:
    """Letters and phones; they are not aligned, so a word's two lists may differ in length."""
    _split_of(split, train="", test="", all="")
    rows = []
    for line in _find("cmudict", "cmudict.dict").read_text(encoding="utf-8").splitlines():
        entry = line.split("#", 1)[0].split()
        if len(entry) > 1:
            rows.append((list(entry[0].split("(")[0]), entry[1:]))
    keep = _part(rows, split, len(rows) // 10)
    return Labelled([letters for letters, _ in keep], [phones for _, phones in keep])


def _ocr_words() -> Iterator[tuple[int, list[str], np.ndarray[Any, Any]]]:
    letters: list[str] = []
    pixels: list[list[str]] = []
    with open(_find("ocr_letters", "letter.data"), encoding="ascii") as file:
        for line in file:
            fields = line.split("\t")
            letters.append(fields[1])
            pixels.append(fields[6:134])
            if fields[2] == "-1":
                yield int(fields[5]), letters, np.array(pixels, dtype=np.uint8)
                letters, pixels = [], []


def _ocr(split: str, label: str | None) -> Labelled:
    """Arrays [T, 128] of pixels; fold 0 is the training part, as usual for this set."""
    folds = {"train": {0}, "test": set(range(1, 10)), "all": set(range(10))}
    folds |= {f"fold{k}": {k} for k in range(10)}
    if split not in folds:
        raise ValueError(f"'split' must be one of {sorted(folds)}, got {split!r}")
    words = [(letters, x) for fold, letters, x in _ocr_words() if fold in folds[split]]
    return Labelled([x for _, x in words], [letters for letters, _ in words])


def _snakes(split: str, label: str | None) -> Labelled:
    """Images [H, W, 3] and grids of labels [H, W]: a graph, not a sequence."""
    path = _find("snakes_grid", f"snakes_{_split_of(split, train='train', test='test')}.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Labelled([np.array(r["x"], np.uint8) for r in rows], [np.array(r["y"], np.int64) for r in rows])


_CORPORA: dict[str, Callable[[str, str | None], Labelled]] = {
    "ingredients": _ingredients,
    "conll2000": _columns("conll2000", train="train.txt", test="test.txt"),
    "nettalk": _nettalk,
    "bc2gm": _columns("bc2gm", train="train.tsv", dev="devel.tsv", test="test.tsv"),
    "snips_slots": _snips,
    "ud_english_ewt": _universal("ud_english_ewt", "en_ewt"),
    "ud_latvian_lvtb": _universal("ud_latvian_lvtb", "lv"),
    "brown": _brown,
    "cmudict": _cmudict,
    "ocr_letters": _ocr,
    "snakes_grid": _snakes,
}


def corpora() -> list[str]:
    """Names that :func:`load_corpus` knows.

    Examples
    --------
    >>> "ingredients" in corpora()
    True
    """
    return sorted(_CORPORA)


def load_corpus(name: str, split: str = "train", label: str | None = None) -> Labelled:
    """Loads a named corpus.

    ``ingredients`` comes with crfkit: 470 recipe lines labelled with quantity, unit, size, state, name,
    preparation and note. The others are read from the folder that the environment variable
    ``CRFKIT_DATA`` names, or else from ``~/.cache/crfkit``.

    Parameters
    ----------
    name : str
        One of :func:`corpora`.
    split : str
        ``"train"`` or ``"test"``; for some corpora also ``"dev"`` or ``"all"``. Corpora without an official split have
        a fixed one: 934 words of nettalk, every tenth text of brown and a tenth of cmudict are the test part; fold 0 of
        ocr_letters is the training part.
    label : str, optional
        Which labels, where there is a choice: columns of the UD treebanks (``"upos"``, ``"xpos"``, ``"upos+feats"``),
        ``"phone"`` or ``"phone+stress"`` of nettalk.

    Returns
    -------
    Labelled
        ``X`` and ``y``.

    Raises
    ------
    DataError
        If a file of the corpus is damaged.

    Examples
    --------
    >>> X, y = load_corpus("ingredients")
    >>> len(X), list(zip(X[0], y[0]))[:2]
    (353, [('300', 'B-QTY'), ('g', 'B-UNIT')])
    """
    if name not in _CORPORA:
        raise ValueError(f"unknown corpus {name!r}: choose one of {', '.join(corpora())}")
    try:
        return _CORPORA[name](split, label)
    except (LookupError, TypeError, OverflowError, RecursionError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise DataError(f"{name}: a file of the corpus is damaged: {e!r}") from e
