"""A bidirectional LSTM with a CRF on it against the same encoder with a softmax, on the slots of SNIPS.

    python experiments/snips.py [--passes N] [--seeds N] [--jobs N] [--threads N] [--json FILE] [--figure-only]

Both have the same embeddings (lower-cased words, suffixes of three characters), encoder, optimiser, batches and seeds;
the pass is chosen by the F1 of slots on the validation part. Prints a table of F1 and sentences right on the test part
and of seconds, writes the runs to numbers/snips.json and, if matplotlib is there, draws docs/experiments/snips.svg.
Seconds are only worth something with one job.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crfkit.data import load_corpus
from crfkit.metrics import evaluate
from crfkit.torch import CRF

NAMES = {False: "softmax", True: "CRF"}


class Tagger(nn.Module):
    """Embeddings, BiLSTM, scores; a CRF if asked for."""

    def __init__(self, n_words: int, n_suffixes: int, n_labels: int, chain: bool) -> None:
        super().__init__()
        self.words, self.suffixes = nn.Embedding(n_words, 100), nn.Embedding(n_suffixes, 30)
        self.lstm = nn.LSTM(130, 100, bidirectional=True, batch_first=True)
        self.head, self.dropout = nn.Linear(200, n_labels), nn.Dropout(0.4)
        self.crf = CRF(n_labels, batch_first=True) if chain else None

    def forward(self, words: Tensor, suffixes: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of all labels at all words [B, T, L], and which words are there."""
        x = self.dropout(torch.cat([self.words(words), self.suffixes(suffixes)], -1))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        return self.head(self.dropout(y)), words > 0

    def loss(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Mean negative log-likelihood of a tag."""
        if self.crf is None:
            return nn.functional.cross_entropy(scores[mask], tags[mask])
        likelihood: Tensor = self.crf(scores, tags, mask, "token_mean")
        return -likelihood

    def decode(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The best tags of every sentence."""
        if self.crf is not None:
            paths: list[list[int]] = self.crf.decode(scores, mask)
            return paths
        best = scores.argmax(2).tolist()
        return [row[:n] for row, n in zip(best, mask.sum(1).tolist(), strict=True)]


def numbers(X: list[list[str]]) -> dict[str, int]:
    """Numbers from 2; 0 is padding and 1 what is unknown."""
    return {w: k + 2 for k, w in enumerate(sorted({w for x in X for w in x}))}


def encode(X: Any, y: Any, tables: Any) -> list[Tensor]:
    """Numbers of words, suffixes and labels of every sentence, [T, 3]."""
    words, suffixes, labels = tables
    return [
        torch.tensor(
            [
                (words.get(w.lower(), 1), suffixes.get(w.lower()[-3:], 1), labels.get(v, 0))
                for w, v in zip(*row, strict=True)
            ]
        )
        for row in zip(X, y, strict=True)
    ]


def batches(rows: list[Tensor], order: list[int], device: str) -> Any:
    """32 sentences at a time: which, words, suffixes and tags [B, T], and their lengths."""
    for k in range(0, len(order), 32):
        some = order[k : k + 32]
        padded = nn.utils.rnn.pad_sequence([rows[i] for i in some], batch_first=True).to(device)
        yield some, *padded.unbind(2), torch.tensor([len(rows[i]) for i in some])


@torch.no_grad()
def predict(model: Tagger, rows: list[Tensor], names: list[str], device: str) -> list[list[str]]:
    model.eval()
    out: list[list[str]] = [[] for _ in rows]
    for some, w, s, _, lengths in batches(rows, sorted(range(len(rows)), key=lambda i: len(rows[i])), device):
        scores, mask = model(w, s, lengths)
        for i, path in zip(some, model.decode(scores, mask), strict=True):
            out[i] = [names[k] for k in path]
    return out


def run(job: tuple[bool, int, int]) -> dict[str, Any]:
    """F1 and sentences right on the test part, F1 after every pass, seconds of a pass and of decoding."""
    chain, seed, passes = job
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = []
    for split in ("train", "dev", "test"):
        corpus = load_corpus("snips_slots", split)
        parts.append(([list(x) for x in corpus.X], [list(row) for row in corpus.y]))
    X, y = parts[0]
    torch.manual_seed(seed)
    labels = {v: k for k, v in enumerate(sorted({v for row in y for v in row}))}
    lower = [[v.lower() for v in x] for x in X]
    tables = numbers(lower), numbers([[v[-3:] for v in x] for x in lower]), labels
    model = Tagger(len(tables[0]) + 2, len(tables[1]) + 2, len(labels), chain).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.002)
    train, dev, test = (encode(*part, tables) for part in parts)
    kept: dict[str, Tensor] = {}
    history: list[float] = []
    seconds = []
    for k in range(passes):
        model.train()
        begin = time.perf_counter()
        for _, w, s, tags, lengths in batches(train, torch.randperm(len(train)).tolist(), device):
            w = torch.where((torch.rand(w.shape, device=device) < 0.05) & (w > 0), 1, w)  # to know the unknown word
            optimiser.zero_grad(set_to_none=True)
            scores, mask = model(w, s, lengths)
            loss: Any = model.loss(scores, tags, mask)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        f1 = 100 * (evaluate(parts[1][1], predict(model, dev, list(labels), device)).f1 or 0.0)
        print(f"  {NAMES[chain]} {seed} {k + 1} {f1:.2f} {seconds[-1]:.1f} s", flush=True)
        if f1 > max(history, default=-1.0):
            kept = copy.deepcopy(model.state_dict())
        history.append(f1)
    model.load_state_dict(kept)
    begin = time.perf_counter()
    tagged = predict(model, test, list(labels), device)
    decoding = time.perf_counter() - begin
    report = evaluate(parts[2][1], tagged)
    return {
        "model": NAMES[chain],
        "seed": seed,
        "f1": round(100 * (report.f1 or 0.0), 2),
        "sentences": round(100 * report.sequence_accuracy, 2),
        "history": [round(v, 2) for v in history],
        "pass_seconds": round(statistics.median(seconds), 2),
        "decode_seconds": round(decoding, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the runs here, and draw no figure")
    args = parser.parse_args()
    jobs = [(chain, seed, args.passes) for seed in range(args.seeds) for chain in NAMES]
    if args.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(args.jobs, torch.set_num_threads, (args.threads,)) as pool:
            runs = pool.map(run, jobs, chunksize=1)
    else:
        torch.set_num_threads(args.threads)
        runs = [run(job) for job in jobs]
    print("| on the encoder | slot F1 | least, most | sentences right | best pass | s a pass | s decoding |")
    print("|---|---|---|---|---|---|---|")
    for name in NAMES.values():
        rows = [r for r in runs if r["model"] == name]
        f1 = [r["f1"] for r in rows]
        best = statistics.mean(r["history"].index(max(r["history"])) + 1 for r in rows)
        mean = {k: statistics.mean(r[k] for r in rows) for k in ("sentences", "pass_seconds", "decode_seconds")}
        print(
            f"| {name} | {statistics.mean(f1):.2f} | {min(f1):.2f}, {max(f1):.2f} | {mean['sentences']:.2f} | "
            f"{best:.1f} | {mean['pass_seconds']:.1f} | {mean['decode_seconds']:.2f} |"
        )
    if args.json:
        args.json.write_text(json.dumps(runs, indent=1) + "\n")
    elif importlib.util.find_spec("matplotlib"):
        import figures

        figures.keep("snips", runs)


if __name__ == "__main__":
    main()
