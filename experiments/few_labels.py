"""Few labels: words alone, word classes, and what else learns from unlabelled sentences.

    python experiments/few_labels.py choose [--setting NAME ...]      held-out training sentences, one draw
    python experiments/few_labels.py choose-all                       all labels of BC2GM: folds, values of c2
    python experiments/few_labels.py test [--setting NAME ...]        test sets, three draws
    python experiments/few_labels.py curve                            the figure of docs/few-labels.md
    python experiments/few_labels.py constraints                      constraints alone, no labelled sentence

All sentences of the training set are used as unlabelled text; labels of a random part of them are known. Recipes with
"all text" also see the words, and no labels, of the other sentences of the corpus, those that are scored among them.
Choices were made by ``choose``, on held-out training sentences; for BC2GM on its development set, four draws of 10% of
the labels, and, with all labels, by ``choose-all`` on folds of 2,500 sentences of the training and development sets.
``test``, ``curve`` and ``constraints`` write numbers/few_labels.*.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import figures
import numpy as np
from label_classes import Shares, Stacked, label_classes, quietly

from crfkit import CRF, Expectations, TokenFeatures, WordClasses, active, metrics
from crfkit.data import load_corpus

HELD_OUT = 800
#: Corpus, number of columns, fraction of the labels.
SETTINGS: dict[str, tuple[str, int, float]] = {
    "conll2000 2%": ("conll2000", 1, 0.02),
    "conll2000 5%": ("conll2000", 1, 0.05),
    "conll2000 10%": ("conll2000", 1, 0.10),
    "conll2000+pos 2%": ("conll2000", 2, 0.02),
    "conll2000+pos 5%": ("conll2000", 2, 0.05),
    "bc2gm 5%": ("bc2gm", 1, 0.05),
    "bc2gm 10%": ("bc2gm", 1, 0.10),
    "snips_slots 5%": ("snips_slots", 1, 0.05),
    "bc2gm 100%": ("bc2gm", 1, 1.0),
}
#: What a corpus has besides its training set.
OTHER_PARTS = {"conll2000": ["test"], "bc2gm": ["dev", "test"], "snips_slots": ["dev", "test"]}
#: Chosen on held-out sentences: see ``choose``.
C2 = 0.1
TRAIN: dict[str, Any] = {"c2": C2, "tol": 1e-4, "max_iter": 150}
#: With all labels.
TRAIN_ALL: dict[str, Any] = {"c2": 0.5, "tol": 1e-4, "max_iter": 400}
#: What labels text without labels, so that classes of words can be made of it.
FIRST: dict[str, Any] = {"c2": 0.5, "tol": 1e-4, "max_iter": 120}


_CLASSES: dict[tuple[Any, ...], WordClasses] = {}  # that several draws have in common


class Draw:
    """Sentences whose labels are known, those whose labels are not, and those that are scored."""

    _marked: tuple[list[Any], Shares] | None = None

    def __init__(self, setting: str, seed: int, held_out: bool) -> None:
        corpus, columns, fraction = SETTINGS[setting]
        self.corpus, self.held_out_seed, self.seed = corpus, seed if held_out else None, seed
        X, y = load_corpus(corpus, "train")
        order = np.random.default_rng(seed).permutation(len(X))
        count = round(fraction * len(X))
        if held_out:
            scored, order = order[:HELD_OUT], order[HELD_OUT:]
            self.X_test, self.y_test = _columns(X[scored], columns), y[scored]
        else:
            self.X_test, self.y_test = load_corpus(corpus, "test")
            self.X_test = _columns(self.X_test, columns)
        known = order[:count]
        X = _columns(X, columns)
        self.X, self.y = X[known], y[known]
        self.pool = X[np.sort(order)]
        self.rest = X[order[count:]]
        others = [_columns(load_corpus(corpus, part).X, columns) for part in OTHER_PARTS[corpus]]
        self.others = [list(x) for part in ([self.X_test] if held_out else []) + others for x in part]

    def f1(self, crf: CRF | Stacked) -> float:
        """Of the spans of the scored sentences, times 100."""
        return 100 * metrics.evaluate(self.y_test, crf.predict(self.X_test)).f1

    def classes(self, *methods: str, all_text: bool = False, **how: Any) -> dict[str, WordClasses]:
        """Learned from all training sentences but the scored ones, or from all sentences of the corpus."""
        found = {}
        for method in methods:
            key = (self.corpus, len(self.pool), self.held_out_seed, all_text, method, *how.items())
            if key not in _CLASSES:
                text = [*map(list, self.pool), *self.others] if all_text else self.pool
                _CLASSES[key] = WordClasses.fit(text, method=method, random_state=0, **how)
            found[method] = _CLASSES[key]
        return found

    def marked(self) -> tuple[list[Any], Shares]:
        """The labelled sentences with classes by labels beside the words, and these classes for other text."""
        if self._marked is None:
            X, y = [list(x) for x in self.X], [list(row) for row in self.y]
            self._marked = label_classes(X, y, self.others, lambda X, y: quietly(CRF(**FIRST), X, y), self.seed)
        return self._marked


class Fold(Draw):
    """All labels of the training and development sets of BC2GM but those of a fold, which is scored."""

    SIZE = 2515

    def __init__(self, k: int) -> None:
        parts = [load_corpus("bc2gm", part) for part in ("train", "dev", "test")]
        X = [list(x) for part in parts[:2] for x in part.X]
        y = [list(row) for part in parts[:2] for row in part.y]
        order = np.random.default_rng(5).permutation(len(X))
        scored = order[k * self.SIZE : (k + 1) * self.SIZE]
        known = np.setdiff1d(order, scored)
        self.corpus, self.held_out_seed, self.seed = "bc2gm", -1 - k, k
        self.X, self.y = [X[i] for i in known], [y[i] for i in known]
        self.X_test, self.y_test = [X[i] for i in scored], [y[i] for i in scored]
        self.pool, self.rest = self.X, []
        self.others = self.X_test + [list(x) for x in parts[2].X]


def _columns(X: Any, n: int) -> Any:
    return X.select(list(range(n))) if X.n_columns > n else X


def fit(draw: Draw, features: Any = "auto", more: Any = None, y_more: Any = None, **changes: Any) -> CRF:
    """A model of the labelled sentences, and of further ones."""
    X, y = list(draw.X), [list(row) for row in draw.y]
    expectations = changes.pop("expectations", None)
    if more is not None:
        X, y = X + list(more), y + list(y_more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopped at max_iter
        return CRF(features, **{**TRAIN, **changes}).fit(X, y, expectations=expectations)


def words(draw: Draw) -> CRF:
    return fit(draw)


def brown(draw: Draw) -> CRF:
    return fit(draw, TokenFeatures(classes=draw.classes("brown")))


def both(draw: Draw) -> CRF:
    return fit(draw, TokenFeatures(classes=draw.classes("brown", "spectral")))


def cased(draw: Draw) -> CRF:
    return fit(draw, TokenFeatures(classes=draw.classes("brown", lower=False)))


def trained_on_itself(draw: Draw) -> CRF:
    features = TokenFeatures(classes=draw.classes("brown", "spectral"))
    return self_trained(draw, features, fit(draw, features), 0.03, draw.rest[:2000])


def sure_in_proportion(draw: Draw) -> CRF:
    return sharpened(draw, TokenFeatures(classes=draw.classes("brown", "spectral")), 0.03, priors=0.1)


def cased_trained_on_itself(draw: Draw) -> CRF:
    features = TokenFeatures(classes=draw.classes("brown", lower=False))
    return self_trained(draw, features, fit(draw, features), 0.03, draw.rest)


def cased_all_text(draw: Draw) -> CRF:
    return fit(draw, TokenFeatures(classes=draw.classes("brown", lower=False, all_text=True)))


def twice_all_text(draw: Draw) -> CRF:
    return fit(draw, cased_and_lower(draw))


def twice_trained_on_itself(draw: Draw) -> CRF:
    features = cased_and_lower(draw)
    return self_trained(draw, features, fit(draw, features), 0.03, draw.rest[:4000])


def all_words(draw: Draw, c2: float = 0.5) -> CRF:
    return fit(draw, **{**TRAIN_ALL, "c2": c2})


def all_cased(draw: Draw, c2: float = 1.0) -> CRF:
    return fit(draw, cased_of_all_text(draw), **{**TRAIN_ALL, "c2": c2})


def all_by_labels(draw: Draw, c2: float = 1.0) -> Stacked:
    return by_labels(draw, TokenFeatures(), c2)


def all_cased_by_labels(draw: Draw, c2: float = 1.0) -> Stacked:
    return by_labels(draw, cased_of_all_text(draw), c2)


def by_labels(draw: Draw, features: TokenFeatures, c2: float) -> Stacked:
    """Classes of words by their labels, beside other features."""
    marked, shares = draw.marked()
    return Stacked(quietly(CRF(features, **{**TRAIN_ALL, "c2": c2}), marked, [list(row) for row in draw.y]), shares)


def cased_of_all_text(draw: Draw) -> TokenFeatures:
    """Brown's classes of cased words from all sentences of the corpus."""
    return TokenFeatures(classes=draw.classes("brown", lower=False, all_text=True, prefixes=(6, 20)))


def cased_and_lower(draw: Draw) -> TokenFeatures:
    """Brown's classes of words as they are and of words in lower case, from all sentences of the corpus."""
    kinds = {"cased": False, "lower": True}
    return TokenFeatures(classes={k: draw.classes("brown", lower=x, all_text=True)["brown"] for k, x in kinds.items()})


RECIPES = {
    "words": words,
    "brown": brown,
    "brown and spectral": both,
    "brown, cased": cased,
    "brown and spectral, self-training": trained_on_itself,
    "brown and spectral, entropy and proportions": sure_in_proportion,
    "brown, cased, self-training": cased_trained_on_itself,
    "brown, cased, all text": cased_all_text,
    "brown, cased and lower, all text": twice_all_text,
    "brown, cased and lower, all text, self-training": twice_trained_on_itself,
}
#: With all labels, and the values of c2 that are tried.
ALL: dict[str, tuple[Callable[..., CRF | Stacked], tuple[float, ...]]] = {
    "words": (all_words, (0.5, 1.0)),
    "brown, cased, all text": (all_cased, (0.5, 1.0)),
    "by labels": (all_by_labels, (0.5, 1.0)),
    "brown and by labels": (all_cased_by_labels, (0.5, 1.0)),
}
#: What was best on held-out sentences of a setting, or else of its corpus; gains are over the first.
CHOSEN = {
    "bc2gm 100%": list(ALL),
    "conll2000": [
        "words",
        "brown and spectral",
        "brown and spectral, self-training",
        "brown and spectral, entropy and proportions",
    ],
    "conll2000+pos": ["words", "brown"],
    "bc2gm": [
        "words",
        "brown, cased",
        "brown, cased and lower, all text",
        "brown, cased and lower, all text, self-training",
    ],
    "snips_slots": ["words", "brown"],
}


def self_trained(draw: Draw, features: TokenFeatures, first: CRF, weight: float, unlabelled: Any) -> CRF:
    """Learns once more, also from its own labels of unlabelled sentences, which count ``weight`` times."""
    more = list(unlabelled)
    if not more:
        return first
    X, y = list(draw.X) + more, [list(row) for row in draw.y] + [list(row) for row in first.predict(more)]
    counts = np.r_[np.ones(len(draw.X)), np.full(len(more), weight)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CRF(features, **TRAIN).fit(X, y, sample_weight=counts)


def constrained(draw: Draw, features: TokenFeatures, weight: float, top: int = 100, most: int = 500) -> CRF:
    """Label distributions of attributes, counted on the labelled sentences, expected of unlabelled ones."""
    wanted = Expectations.count(list(draw.X), [list(row) for row in draw.y], features, top=top, weight=weight)
    return fit(draw, features, draw.rest[:most], [None] * min(most, len(draw.rest)), expectations=wanted)


def sharpened(draw: Draw, features: TokenFeatures, weight: float, priors: float = 0, **how: Any) -> CRF:
    """Entropy regularisation on unlabelled sentences; with priors, labels are expected in their known proportions."""
    labels = Counter(label for row in draw.y for label in row)
    wanted = Expectations({"*": {k: n / labels.total() for k, n in labels.items()}}, weight=priors) if priors else None
    more = draw.rest[:500]
    return fit(draw, features, more, [None] * len(more), entropy_weight=weight, expectations=wanted, **how)


def choose(settings: list[str]) -> None:
    """Every recipe on held-out training sentences."""
    for setting in settings:
        draw = Draw(setting, 1000, held_out=True)
        for name, recipe in RECIPES.items():
            show(setting, name, draw.f1(recipe(draw)))
        features = TokenFeatures(classes=draw.classes("brown", "spectral"))
        for c2 in (1.0, 0.3, 0.1, 0.03):
            show(setting, f"words, c2={c2}", draw.f1(fit(draw, c2=c2)))
            show(setting, f"brown and spectral, c2={c2}", draw.f1(fit(draw, features, c2=c2)))
        first = fit(draw, features)
        for weight in (0.03, 0.1, 0.3):
            show(
                setting,
                f"self-training {weight}",
                draw.f1(self_trained(draw, features, first, weight, draw.rest[:2000])),
            )
        for weight in (0.03, 0.3):
            show(setting, f"constraints {weight}", draw.f1(constrained(draw, features, weight)))
        for weight in (0.001, 0.01, 0.03):
            for priors in (0, 0.01, 0.1, 1):
                show(setting, f"entropy {weight}, priors {priors}", draw.f1(sharpened(draw, features, weight, priors)))
            every = sharpened(draw, features, weight, all_possible_states=True)
            show(setting, f"entropy {weight}, all_possible_states", draw.f1(every))
        sure = sure_in_proportion(draw)
        again = self_trained(draw, features, sure, 0.03, draw.rest[:2000])
        show(setting, "entropy 0.03, priors 0.1, self-training", draw.f1(again))


def choose_all(folds: int) -> None:
    """Recipes for all labels of BC2GM, and their c2, on folds of the training and development sets."""
    found: dict[str, list[float]] = {}
    for k in range(folds):
        draw = Fold(k)
        for recipe, (make, tried) in ALL.items():
            for c2 in tried:
                name = f"{recipe}, c2={c2}"
                found.setdefault(name, []).append(draw.f1(make(draw, c2)))
                show(f"fold {k}", name, found[name][-1])
    for name, values in found.items():
        print(f"| {name} | {np.mean(values):.2f} |", flush=True)


BEGAN = time.perf_counter()


def show(setting: str, name: str, f1: float) -> None:
    print(f"{time.perf_counter() - BEGAN:6.0f}s {setting}: {name}: {f1:.2f}", flush=True)


def test(settings: list[str], seeds: int) -> None:
    """The recipes on the test sets."""
    for setting in settings:
        recipes = CHOSEN.get(setting) or CHOSEN[setting.split()[0]]
        rows: dict[str, list[float]] = {name: [] for name in recipes}
        for seed in range(seeds):
            draw = Draw(setting, seed, held_out=False)
            for name in recipes:
                make = ALL[name][0] if setting in CHOSEN else RECIPES[name]
                rows[name].append(draw.f1(make(draw)))
                show(setting, name, rows[name][-1])
        base = np.array(rows[recipes[0]])
        for name, values in rows.items():
            gain = np.array(values) - base
            spread = gain.std(ddof=1) if len(gain) > 1 else 0.0
            print(f"| {setting} | {name} | {np.mean(values):.1f} | {gain.mean():+.1f} ± {spread:.1f} |", flush=True)
        found = figures.numbers("few_labels")
        figures.keep("few_labels", found | {setting: found.get(setting, {}) | rows})


SIZES = (50, 150, 500, 1500, 5000)


def curve(seeds: int) -> None:
    """F1 on the test set of CoNLL-2000, words only, over the number of labelled sentences."""
    X, y = load_corpus("conll2000", "train")
    X = _columns(X, 1)
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(X))
        draw = Draw("conll2000 2%", seed, held_out=False)
        features = TokenFeatures(classes=draw.classes("brown", "spectral"))
        asked = order[: SIZES[0]]
        for size in SIZES:
            if size > 1500 and seed > 0:
                continue
            draw.X, draw.y, draw.rest = X[order[:size]], y[order[:size]], X[order[size:]]
            made = {"words alone": fit(draw), "classes": fit(draw, features)}
            if size <= 500:
                made["classes and constraints"] = constrained(draw, features, CONSTRAINTS)
            if 0 < len(asked) <= 1500:
                made["classes, active learning"] = asking = fit_on(draw, X, y, asked, features)
                left = np.setdiff1d(order, asked)
                more = SIZES[SIZES.index(size) + 1] - len(asked) if size < 1500 else 0
                if more:
                    chosen = active.query(asking, list(X[left]), more, "least_confidence", per_token=True)
                    asked = np.concatenate([asked, left[[q.sequence for q in chosen]]])
                else:
                    asked = asked[:0]
            for name, crf in made.items():
                found.setdefault(name, {}).setdefault(str(size), []).append(draw.f1(crf))
                show(f"{size} sentences", name, found[name][str(size)][-1])
            figures.keep("few_labels.curve", found)


#: The weight of constraints, chosen on held-out sentences.
CONSTRAINTS = 0.03


def fit_on(draw: Draw, X: Any, y: Any, chosen: Any, features: TokenFeatures) -> CRF:
    """A model of the chosen sentences."""
    kept = draw.X, draw.y
    draw.X, draw.y = X[chosen], y[chosen]
    crf = fit(draw, features)
    draw.X, draw.y = kept
    return crf


def constraints(seeds: int) -> None:
    """Thirty attributes whose label distributions are counted on 30 sentences, which are then set aside."""
    found: dict[str, Any] = {}
    for corpus in ("ingredients", "conll2000"):
        X, y = load_corpus(corpus, "train")
        X_test, y_test = load_corpus(corpus, "test")
        if corpus == "conll2000":
            X, X_test = _columns(X, 1), _columns(X_test, 1)
            y, y_test = ([[t if t.endswith("-NP") else "O" for t in row] for row in rows] for rows in (y, y_test))
        gold = [list(row) for row in y]
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(X))
            few = [list(X[int(i)]) for i in order[:30]], [gold[int(i)] for i in order[:30]]
            rest = [list(X[int(i)]) for i in order[30:1030]]
            wanted = Expectations.count(*few, top=30)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                alone = CRF(**TRAIN).fit(rest, [None] * len(rest), expectations=wanted)
                supervised = CRF(**TRAIN).fit(*few)
            for name, crf in {"constraints": alone, "supervised": supervised}.items():
                f1 = 100 * metrics.evaluate(y_test, crf.predict(X_test)).f1
                found.setdefault(corpus, {}).setdefault(name, []).append(f1)
                show(corpus, name, f1)
    figures.keep("few_labels.constraints", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "choose-all", "test", "curve", "constraints"])
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3, help="of choose-all")
    options = parser.parse_args()
    if options.what in ("choose", "test"):
        choose(options.setting) if options.what == "choose" else test(options.setting, options.seeds)
    elif options.what == "choose-all":
        choose_all(options.folds)
    else:
        (curve if options.what == "curve" else constraints)(options.seeds)


if __name__ == "__main__":
    main()
