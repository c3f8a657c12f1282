"""What crfkit computes, as arrays in one file, so that two versions of it can be held against each other.

    python tools/fingerprint.py run OUT.npz [--threads 1 2] [--only SECTION ...]
    python tools/fingerprint.py compare A.npz B.npz

``run`` trains on 2,000 sentences of CoNLL-2000 (``CRFKIT_DATA`` says where it is) in every way there is, and asks
chains, graphs and the torch layer about random scores, with the kernels that ``CRFKIT_ISA`` chooses. Where a section
fails, the others are written all the same. ``compare`` prints what differs; it ends with 1 if a key is missing, or a
difference is above 1e-12 of the largest magnitude under its key. What is no number must be equal.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy comes

import numpy as np
from numpy.typing import NDArray

from crfkit import CRF, HMM, MEMM, Template, chain, graph, load
from crfkit.data import load_corpus
from crfkit.training import AROW, SGD, PassiveAggressive

Array = NDArray[Any]
LIMIT = 1e-12  # largest relative difference that passes
EDGES = 'U00:%x[0,0]\nU01:%x[0,1]\nU02:%x[-1,1]/%x[0,1]\nU03:%x[0,0]/%x[1,1]\nU04:%m[0,0,"..$"]\nB\nB01:%x[0,1]\n'
STOCHASTIC = ("sgd", "smd", "adagrad", "sag", "ap", "pa", "arow")
PASSES = {"lbfgs": 8, "newton-cg": 2, **dict.fromkeys(STOCHASTIC, 2)}
BEAMS = ("fixed:4", "threshold:4", "min-divergence:0.1:2")


# How things are made: what a renovation that renames parameters has to change, here and in trainings().


def jobs(threads: int) -> dict[str, Any]:
    """The number of threads, as functions and estimators take it."""
    return {"n_jobs": threads}


def make(kind: str, threads: int, **settings: Any) -> Any:
    """An estimator."""
    if kind == "HMM":
        return HMM(smoothing=0.1, random_state=0, **jobs(threads), **settings)
    if kind in ("CRF", "MEMM"):
        return {"CRF": CRF, "MEMM": MEMM}[kind](**{"c2": 1.0, "random_state": 0, **jobs(threads), **settings})
    return getattr(graph, kind)(c2=0.1, max_iter=5, **jobs(threads), **settings)


def inference(method: str, schedule: str, **settings: Any) -> graph.Inference:
    """How messages are passed on graphs."""
    return graph.Inference(method, schedule, max_iter=30, **settings)


def cli_tag(model: Path, data: Path, out: Path, threads: int, *options: str) -> None:
    """Tags a file on the command line."""
    command = [sys.executable, "-m", "crfkit", "tag", "-m", str(model), str(data), "-o", str(out), "-j", str(threads)]
    subprocess.run([*command, *options], check=True, capture_output=True)


def trainings() -> dict[str, dict[str, Any]]:
    """Settings of CRF by name."""
    out: dict[str, dict[str, Any]] = {
        "lbfgs/converged": {"max_iter": 200, "c2": 10.0},
        "owl-qn": {"c1": 0.5, "max_iter": 15},
        "sgd/batch": {"algorithm": SGD(batch_size=8, average=False), "max_iter": 2},
        "pa/0": {"algorithm": PassiveAggressive(type=0, average=False), "max_iter": 2},
        "pa/2": {"algorithm": PassiveAggressive(type=2, error_sensitive=False), "max_iter": 2},
        "arow/10": {"algorithm": AROW(r=10.0), "max_iter": 2},
        "lbfgs/min_freq": {"min_freq": 2, "max_iter": 8, "features": Template("U0:%x[-2,0]/%x[1,1]\nU1:%x[0,0]\nB")},
        "lbfgs/all_states": {"all_possible_states": True, "max_iter": 5},
        "lbfgs/seen": {"all_possible_transitions": False, "start_end": False, "max_iter": 8},
        "lbfgs/warm": {"warm_start_fraction": 0.2, "max_iter": 8},
    }
    for name, passes in PASSES.items():
        out[name] = {"algorithm": name, "max_iter": passes + 2}
        out[f"{name}/float64"] = {"algorithm": name, "max_iter": passes, "dtype": "float64"}
        out[f"{name}/bio"] = {"algorithm": name, "max_iter": passes, "constraints": "bio"}
        if name != "sag":
            out[f"{name}/edges"] = {"algorithm": name, "max_iter": passes, "features": Template(EDGES)}
    beams = (*BEAMS, "adaptive:0.1:2")
    for name, beam, dtype in itertools.product(("lbfgs", "sgd", "adagrad"), beams, ("float32", "float64")):
        passes = 4 if name != "lbfgs" else 20 if beam in BEAMS else 80
        out[f"{name}/{beam}/{dtype}"] = {"algorithm": name, "beam": beam, "dtype": dtype, "max_iter": passes}
    return out


class Data:
    """Sentences of CoNLL-2000; what is not known of their labels is drawn from a seed."""

    def __init__(self) -> None:
        train, test = load_corpus("conll2000", "train"), load_corpus("conll2000", "test")
        self.X, self.y, self.test = train.X[:2000], train.y[:2000], test.X
        self.labels: list[list[str]] = list(self.y)
        rng = np.random.default_rng(1)
        self.partial = [[(z, z, None, {z, "O", "B-NP"})[rng.integers(4)] for z in row] for row in self.labels[:600]]
        self.few = [row if i < 200 else None for i, row in enumerate(self.labels[:500])]


class Store:
    """Arrays by key."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.arrays: dict[str, Array] = {}

    def put(self, key: str, **values: Any) -> None:
        """Keeps values under ``key/name@threads``, parts of them under ``key/name.part@threads``."""
        for name, value in values.items():
            for part, array in as_arrays(value).items():
                full = f"{key}/{name}{part}@{self.threads}"
                if full in self.arrays:
                    raise ValueError(f"{full} is there already")
                self.arrays[full] = array

    def fitted(self, key: str, model: Any) -> None:
        """Keeps weights, the end of training, and how beams stood."""
        end = model.result_
        self.put(key, weights=model.model_.weights, result=[end.value, end.iterations, end.evaluations])
        self.put(key, beams=getattr(model, "beams_", None))


def as_arrays(value: Any) -> dict[str, Array]:
    """A value as arrays by the names of its fields, if it has any; a list becomes a flat array."""
    if value is None:
        return {}
    names = [f.name for f in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
    if isinstance(value, chain.Marginals) and not isinstance(value, chain.BeamMarginals):
        names = ["log_z", "nodes", "edges"]
    if names:
        return {f".{name}{k}": x for name in names for k, x in as_arrays(getattr(value, name)).items()}
    if isinstance(value, (list, tuple)):
        parts = [as_arrays(x) for x in value]
        keys = list(parts[0]) if parts else []
        return {k: np.concatenate([part[k].ravel() for part in parts]) for k in keys}
    return {"": np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)}


def tried(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call gives, or that it cannot: beams may lose every labelling, and not all methods take all graphs."""
    try:
        return call(*arguments, **options)
    except ValueError as e:
        return type(e).__name__


# Sections: each is given the store and the data.


def train(out: Store, data: Data) -> None:
    """Every algorithm, exactly and within beams; constraints, precisions, features."""
    for name, settings in trainings().items():
        out.fitted(f"train/{name}", make("CRF", out.threads, **settings).fit(data.X, data.y))
    items = [[{w: 1.0, f"pos={p}": 0.5, "n": float(len(w))} for w, p in row] for row in data.X[:300]]
    weights = np.random.default_rng(2).random(300) + 0.5
    for name in ("lbfgs", "sgd"):
        crf = make("CRF", out.threads, algorithm=name, max_iter=5)
        out.fitted(f"train/items/{name}", crf.fit(items, data.labels[:300], sample_weight=weights))
    crf = make("CRF", out.threads, algorithm="sgd")
    for at in (0, 300, 600):
        crf.partial_fit(data.X[at : at + 300], data.y[at : at + 300])
    out.fitted("train/stream", crf)
    crf = make("CRF", out.threads, gradient="backward", max_iter=2)
    out.fitted("train/backward", crf.fit(data.X[:10], data.y[:10]))


def semi(out: Store, data: Data) -> None:
    """Partial labels, and entropy of sentences without any."""
    for name, passes in PASSES.items():
        for dtype in ("float32", "float64"):
            settings = {"algorithm": name, "max_iter": passes, "dtype": dtype}
            out.fitted(f"partial/{name}/{dtype}", make("CRF", out.threads, **settings).fit(data.X[:600], data.partial))
            if name not in ("ap", "pa", "arow"):
                settings |= {"entropy_weight": 0.1, "entropy_ramp": 2}
                settings["entropy_per"] = "token" if name == "sgd" else "sequence"
                out.fitted(f"entropy/{name}/{dtype}", make("CRF", out.threads, **settings).fit(data.X[:500], data.few))
    crf = make("CRF", out.threads, beam="fixed:4", entropy_weight=0.1, max_iter=10)
    out.fitted("entropy/lbfgs/beam", crf.fit(data.X[:500], data.few))


def objectives(out: Store, data: Data) -> None:
    """Value, gradient and Hessian products at random weights, small ones and such as need the log space."""
    kinds: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "plain": ({}, data.X, data.y),
        "bio": ({"constraints": "bio"}, data.X, data.y),
        "edges": ({"features": Template(EDGES)}, data.X, data.y),
        "partial": ({}, data.X[:600], data.partial),
        "entropy": ({"entropy_weight": 0.3}, data.X[:500], data.few),
    }
    for kind, (settings, X, y) in kinds.items():
        for dtype in ("float32", "float64"):
            f = make("CRF", out.threads, dtype=dtype, **settings).objective(X, y)
            w, v = np.random.default_rng(3).standard_normal((2, f.size))
            for scale in (0.1, 30.0):
                value, gradient = f.value_and_grad(scale * w)
                out.put(f"objective/{kind}/{dtype}/{scale:g}", value=value, gradient=gradient)
            out.put(f"objective/{kind}/{dtype}", hessian=f.hessian_product(0.1 * w, v))


def other_models(out: Store, data: Data) -> None:
    """MEMM and HMM."""
    test = data.test[:500]
    for name in ("lbfgs", "sgd", "pa"):
        memm = make("MEMM", out.threads, algorithm=name, max_iter=PASSES[name]).fit(data.X, data.y)
        out.fitted(f"memm/{name}", memm)
        out.put(f"memm/{name}", predict=memm.predict(test), greedy=memm.predict(test, greedy=True))
        out.put(f"memm/{name}", marginals=memm.predict_marginals(test))
    for name, X, y, settings in (
        ("counted", data.X, data.y, {}),
        ("partial", data.X[:600], data.partial, {"max_iter": 3}),
        ("unknown", data.X[:300], None, {"n_states": 5, "max_iter": 3}),
    ):
        hmm = make("HMM", out.threads, **settings).fit(X, y)
        out.fitted(f"hmm/{name}", hmm)
        out.put(f"hmm/{name}", start=hmm.startprob_, transitions=hmm.transmat_, emissions=hmm.emissions_)
        out.put(f"hmm/{name}", history=hmm.history_, likelihood=hmm.log_likelihood(test), predict=hmm.predict(test))


def random_potentials(n: int, kind: str, per_step: bool, dtype: str) -> chain.Potentials:
    """A batch of 18 sequences, one of them empty; label 0 is always allowed."""
    rng = np.random.default_rng([n, len(kind), per_step])
    lengths = np.concatenate([[0, 1], rng.integers(1, max(4, 36 - n // 2), 16)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    unary = rng.standard_normal((offsets[-1], n)) * (300 if kind == "huge" else 1)
    steps = (int(np.maximum(lengths - 1, 0).sum()),) if per_step else ()
    pairwise = rng.standard_normal((*steps, n, n)) * (200 if kind == "huge" else 1)
    if kind == "forbidden":
        unary[:, 1:][rng.random(unary[:, 1:].shape) < 0.3] = -np.inf
        pairwise[..., 1:][rng.random(pairwise[..., 1:].shape) < 0.2] = -np.inf
    start, end = rng.standard_normal((2, n)).astype(dtype)
    return chain.Potentials(unary.astype(dtype), pairwise.astype(dtype), start, end, offsets=offsets)


def chains(out: Store, data: Data) -> None:
    """All functions of crfkit.chain on random scores."""
    kinds, types = ("plain", "forbidden", "huge"), ("float32", "float64")
    for n, kind, per_step, dtype in itertools.product((2, 9, 22, 70, 130), kinds, (False, True), types):
        if n < 50 or not per_step or dtype == "float64":
            key = f"chain/{n}/{kind}/{'steps' if per_step else 'shared'}/{dtype}"
            one_chain(out, key, random_potentials(n, kind, per_step, dtype))


def one_chain(out: Store, key: str, p: chain.Potentials) -> None:
    """The functions on one batch."""
    job = jobs(out.threads)
    names = "log_partition marginals decode entropy entropy_gradient entropy_lattices kbest_entropy margin confidence"
    out.put(key, **{f: getattr(chain, f)(p, **job) for f in names.split()})
    best = chain.decode(p, **job)
    out.put(key, nbest=chain.nbest(p, 5, **job), sample=chain.sample(p, 3, rng=0, **job), score=chain.score(p, best))
    spans, i = chain.span_entropies(p, **job), int(np.argmax(p.lengths))
    out.put(key, span_nodes=spans.nodes, span_steps=spans.steps, spans=spans.of_length(3))
    for t, labels in ((0, best[i][:1]), (1, best[i][1:3]), (0, [0, 0])):
        part = f"{key}/{t}:{list(map(int, labels))}"
        out.put(part, conditional=chain.conditional_entropy(p[i], t, labels))
        out.put(part, constrained=chain.constrained_entropy(p[i], t, labels))
        out.put(part, probability=chain.span_probability(p[i], t, t + len(labels), labels))
    for beam in BEAMS:
        for form in ("frozen", "smoothed", "paper"):
            out.put(f"{key}/{beam}", **{form: chain.marginals(p, beam=beam, keep=best, form=form, **job)})
        out.put(f"{key}/{beam}", nbest=tried(chain.nbest, p, 3, beam=beam, **job))
        out.put(f"{key}/{beam}", decode=tried(chain.decode, p, beam=beam, **job))


def torch_layer(out: Store, data: Data) -> None:
    """The torch layer on the CPU; gradients by all inputs and parameters."""
    import torch

    from crfkit.torch import CRF as Layer

    mask = torch.arange(12) < torch.tensor([12, 1, 5, 12, 7, 9])[:, None]
    for dtype, n in ((dtype, n) for dtype in (torch.float32, torch.float64) for n in (3, 9, 40)):
        torch.manual_seed(n)
        rules: dict[str, Any] = {"constraints": "bio", "labels": ["B-X", "I-X", "O"]} if n == 3 else {}
        layer = Layer(n, batch_first=True, **rules).to(dtype)
        x, steps = (torch.randn(6, *s, n, dtype=dtype, requires_grad=True) for s in ((12,), (11, n)))
        tags = torch.full((6, 12), 2) if rules else torch.randint(n, (6, 12))
        unknown = torch.where(torch.rand(6, 12) < 0.3, -100, tags)
        for form, more in (("shared", {}), ("steps", {"pairwise": steps})):
            values = {
                "likelihood": layer(x, tags, mask, reduction="none", **more),
                "partial": layer(x, unknown, mask, reduction="none", **more),
                **{f: getattr(layer, f)(x, mask, **more) for f in ("log_partition", "entropy", "marginals")},
            }
            key = f"torch/{dtype}/{n}/{form}"
            for name, value in values.items():
                upstream = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
                found = torch.autograd.grad(value, [x, *layer.parameters(), *more.values()], upstream)
                out.put(f"{key}/{name}", value=value, **{f"d{i}": g for i, g in enumerate(found)})
            out.put(
                key, decode=layer.decode(x, mask, pairwise=more.get("pairwise")), nbest=layer.nbest(x, mask, 3, **more)
            )
            out.put(key, sample=layer.sample(x, mask, 2, random_state=0, **more))


def graphs(out: Store, data: Data) -> None:
    """Factor graphs."""
    draw, job = np.random.default_rng(4).standard_normal, jobs(out.threads)
    shapes = {
        "chain": graph.chain(draw((30, 5)), draw((5, 5)), **job),
        "tree": graph.tree([-1, 0, 0, 1, 1, 2, 2, 3], draw((8, 4)), draw((4, 4)), **job),
        "grid": graph.grid(draw((4, 6, 3)), draw((3, 3)), **job),
        "huge": graph.grid(300 * draw((4, 6, 3)), 300 * draw((3, 3)), **job),
        "skip": graph.skip_chain(draw((12, 4)), draw((4, 4)), [[0, 5], [3, 9]], draw((4, 4)), **job),
        "factorial": graph.factorial([draw((9, 9)), draw((9, 9))], [draw((9, 9))] * 2, [draw((9, 9))], **job),
        "higher": graph.higher_order_chain(draw((9, 3)), draw((3, 3, 3)), **job),
        "segments": graph.semi_markov_chain(draw((10, 3, 2)), draw((2, 2)), **job),
    }
    ways: dict[str, graph.Inference | str] = {"exact": "exact"}
    for method, schedule in itertools.product(("loopy", "trw", "mean_field"), ("sequential", "flooding", "residual")):
        ways[f"{method}/{schedule}"] = inference(method, schedule)
    ways["loopy/beam"] = inference("loopy", "sequential", damping=0.3, beam=chain.FixedSize(2))
    for shape, g in shapes.items():
        for name, how in ways.items():
            answers = {f: tried(getattr(g, f), how) for f in ("marginals", "map", "entropy")}
            out.put(f"graph/{shape}/{name}", **answers)
        out.put(f"graph/{shape}", sample=g.sample(4, random_state=0), nbest=g.nbest(3))


def graph_crfs(out: Store, data: Data) -> None:
    """The estimators on graphs."""
    rng = np.random.default_rng(5)
    X: list[Any] = []
    y: list[Any] = []
    for n in rng.integers(3, 9, 30):
        features, edges = rng.standard_normal((n, 4)), [[i, (i + 1) % n] for i in range(n)]
        X.append((features, edges, rng.standard_normal((n, 2))))
        y.append(((features[:, 0] > 0) + (features[:, 1] > 0)).astype(int).tolist())
    for loss in ("likelihood", "pseudo_likelihood", "piecewise"):
        for method in ("exact", "loopy", "trw", "mean_field"):
            settings = {"loss": loss, "inference": method, "directed": method != "loopy"}
            model = make("GraphCRF", out.threads, **settings).fit(X, y)
            found = {"predict": model.predict(X), "marginals": model.predict_marginals(X)}
            out.put(f"GraphCRF/{loss}/{method}", weights=model.weights_, **found)
    X, y, test = list(data.X[:60]), data.labels[:60], data.test[:20]
    pairs = [[(token[1][0], label) for token, label in zip(*row, strict=True)] for row in zip(X, y, strict=True)]
    for kind, target in (("SkipChainCRF", y), ("FactorialCRF", pairs)):
        for method in ("exact", "loopy"):
            model = make(kind, out.threads, inference=method).fit(X, target)
            found = {"predict": model.predict(test), "marginals": model.predict_marginals(test)}
            out.put(f"{kind}/{method}", weights=model.weights_, **found)


def predictions(out: Store, data: Data) -> None:
    """What a trained CRF says about test sentences, also after saving, and on the command line."""
    crf = make("CRF", out.threads, max_iter=20).fit(data.X, data.y)
    test, few = data.test[:500], data.test[:100]
    given, p = [[None] * (len(s) - 1) + ["O"] for s in few], crf.potentials(few)
    out.put("predict", labels=crf.predict(test), marginals=crf.predict_marginals(test), classes=crf.classes_)
    out.put("predict", given=crf.predict(few, given=given), given_marginals=crf.predict_marginals(few, given=given))
    out.put("predict", sample=crf.sample(few, 2, random_state=0), unary=p.unary, pairwise=p.pairwise)
    out.put("predict", explain=[c.name for s in few[:5] for d in crf.explain(s).decisions for c in d.contributions])
    for beam in (None, *BEAMS):
        out.put(f"predict/{beam}", labels=crf.predict(test, beam=beam))
        out.put(f"predict/{beam}", nbest=tried(crf.predict_nbest, few, 3, beam=beam))
    with tempfile.TemporaryDirectory() as folder:
        model, text, tagged = (Path(folder) / name for name in ("model", "text", "tagged"))
        crf.save(model)
        out.put("predict", loaded=load(model, kind=CRF).model_.weights)
        text.write_text("".join("".join(f"{w} {t}\n" for w, t in s) + "\n" for s in data.test), encoding="utf-8")
        for options in ((), ("-p",), ("--nbest", "3"), ("--json", "-p"), ("--beam", "fixed:4")):
            cli_tag(model, text, tagged, out.threads, *options)
            out.put(" ".join(("cli/tag", *options)), sha256=sha256(tagged.read_bytes()).hexdigest())


PARTS = (train, semi, objectives, other_models, chains, torch_layer, graphs, graph_crfs, predictions)
SECTIONS: dict[str, Callable[[Store, Data], None]] = {part.__name__: part for part in PARTS}


def run(path: Path, threads: list[int], only: list[str]) -> int:
    """Computes everything, and writes it."""
    warnings.simplefilter("ignore")
    data, failed = Data(), 0
    arrays: dict[str, Array] = {}
    for count in threads:
        store = Store(count)
        for name in only:
            began = time.perf_counter()
            try:
                SECTIONS[name](store, data)
            except Exception:
                traceback.print_exc()
                failed = 1
            print(f"{name}, threads {count}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        arrays |= store.arrays
    np.savez(path, allow_pickle=False, **arrays)
    print(f"{len(arrays)} arrays, {sum(a.nbytes for a in arrays.values()) / 1e6:.0f} MB in {path}", file=sys.stderr)
    return failed


def difference(a: Array, b: Array) -> tuple[float, float]:
    """Largest absolute difference, and that relative to the largest magnitude; infinite where there is no number."""
    if a.shape != b.shape or not all(x.dtype.kind in "fiub" for x in (a, b)):
        return np.inf, np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    apart = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if not np.isfinite([x[apart], y[apart]]).all():
        return np.inf, np.inf
    most = float(np.abs(x[apart] - y[apart]).max(initial=0.0))
    return most, most / max(float(np.abs(z[np.isfinite(z)]).max(initial=0.0)) for z in (x, y)) if most else 0.0


def compare(first: Path, second: Path) -> int:
    """Prints what differs."""
    with np.load(first) as a, np.load(second) as b:
        both, rows = sorted(set(a.files) & set(b.files)), []
        gone = {second: sorted(set(a.files) - set(both)), first: sorted(set(b.files) - set(both))}
        for key in both:
            x, y = a[key], b[key]
            if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
                rows.append((key, *difference(x, y), f"{x.dtype}{list(x.shape)} {y.dtype}{list(y.shape)}"))
    print(f"bit-equal: {len(both) - len(rows)} of {len(both)} keys that are in both files")
    print(f"{'differing key':<60} {'absolute':>9} {'relative':>9}  types" if rows else "none differs")
    for key, most, relative, types in sorted(rows, key=lambda row: -row[2]):
        print(f"{key:<60} {most:9.2e} {relative:9.2e}  {types}")
    for path, keys in gone.items():
        print(f"missing in {path}: {len(keys)}" + "".join(f"\n    {key}" for key in keys))
    worst = max((row[2] for row in rows), default=0.0)
    print(f"largest relative difference: {worst:.2e}, at most {LIMIT:g} is allowed")
    return int(worst > LIMIT or any(gone.values()))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs, compares = commands.add_parser("run"), commands.add_parser("compare")
    runs.add_argument("out", type=Path)
    runs.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    runs.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    compares.add_argument("files", type=Path, nargs=2)
    options = parser.parse_args()
    return run(options.out, options.threads, options.only) if options.command == "run" else compare(*options.files)


if __name__ == "__main__":
    sys.exit(main())
