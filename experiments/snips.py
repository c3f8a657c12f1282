"""A bidirectional LSTM with a CRF on it against the same encoder with a softmax, on the slots of SNIPS.

    python experiments/snips.py [--epochs N] [--seeds N] [--threads N]

Both have the same embeddings (lower-cased words, suffixes of three characters), encoder, optimiser, batches and seeds;
the epoch is chosen by the F1 of slots on the validation part. Prints a table of F1 and sentences right on the test part
and of seconds, and writes it to docs/experiments/snips.table.md.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crfkit.data import load_corpus
from crfkit.metrics import evaluate
from crfkit.torch import CRF

PAGE = Path(__file__).parents[1] / "docs" / "experiments"


class Tagger(nn.Module):
    """Embeddings, BiLSTM, scores; a CRF if asked for."""

    def __init__(self, n_words: int, n_suffixes: int, n_labels: int, chain: bool) -> None:
        super().__init__()
        self.words, self.suffixes = nn.Embedding(n_words, 100), nn.Embedding(n_suffixes, 30)
        self.lstm = nn.LSTM(130, 100, bidirectional=True, batch_first=True)
        self.head, self.dropout = nn.Linear(200, n_labels), nn.Dropout(0.4)
        self.crf = CRF(n_labels, batch_first=True) if chain else None

    def forward(self, words: Tensor, suffixes: Tensor, mask: Tensor) -> Tensor:
        """Scores of all labels at all words, [B, T, L]."""
        x = self.dropout(torch.cat([self.words(words), self.suffixes(suffixes)], -1))
        packed = nn.utils.rnn.pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=mask.shape[1])
        scores: Tensor = self.head(self.dropout(y))
        return scores

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


def batches(X: Any, y: Any, tables: Any, order: list[int], device: str) -> Any:
    """Padded words, suffixes, mask and tags of 32 sentences at a time."""
    words, suffixes, labels = tables
    for k in range(0, len(order), 32):
        some = order[k : k + 32]
        shape = len(some), max(len(X[i]) for i in some)
        w, s, t = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
        mask = torch.zeros(shape, dtype=torch.bool)
        for row, i in enumerate(some):
            n = len(X[i])
            w[row, :n] = torch.tensor([words.get(v.lower(), 1) for v in X[i]])
            s[row, :n] = torch.tensor([suffixes.get(v.lower()[-3:], 1) for v in X[i]])
            t[row, :n] = torch.tensor([labels.get(v, 0) for v in y[i]])
            mask[row, :n] = True
        yield some, w.to(device), s.to(device), mask.to(device), t.to(device)


@torch.no_grad()
def predict(model: Tagger, X: Any, y: Any, tables: Any, device: str) -> list[list[str]]:
    model.eval()
    names = list(tables[2])
    out: list[list[str]] = [[] for _ in X]
    for some, w, s, mask, _ in batches(X, y, tables, sorted(range(len(X)), key=lambda i: len(X[i])), device):
        for i, path in zip(some, model.decode(model(w, s, mask), mask), strict=True):
            out[i] = [names[k] for k in path]
    return out


def run(chain: bool, seed: int, epochs: int, parts: Any) -> dict[str, float]:
    """F1 and sentences right on the test part, epochs to the best one, seconds of an epoch and of decoding."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (X, y), (X_dev, y_dev), (X_test, y_test) = parts
    torch.manual_seed(seed)
    labels = {v: k for k, v in enumerate(sorted({v for row in y for v in row}))}
    lower = [[v.lower() for v in x] for x in X]
    tables = numbers(lower), numbers([[v[-3:] for v in x] for x in lower]), labels
    model = Tagger(len(tables[0]) + 2, len(tables[1]) + 2, len(labels), chain).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.002)
    best, kept, seconds = (-1.0, 0), None, []
    for epoch in range(epochs):
        model.train()
        begin = time.perf_counter()
        for _, w, s, mask, tags in batches(X, y, tables, torch.randperm(len(X)).tolist(), device):
            w = torch.where(torch.rand(w.shape, device=device) < 0.05, 1, w) * mask  # so that unknown words are known
            optimiser.zero_grad(set_to_none=True)
            loss: Any = model.loss(model(w, s, mask), tags, mask)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
        seconds.append(time.perf_counter() - begin)
        f1 = evaluate(y_dev, predict(model, X_dev, y_dev, tables, device)).f1 or 0.0
        print(f"  {'crf' if chain else 'softmax'} {seed} {epoch + 1} {f1:.4f} {seconds[-1]:.1f} s", flush=True)
        if f1 > best[0]:
            best, kept = (f1, epoch + 1), copy.deepcopy(model.state_dict())
    assert kept is not None
    model.load_state_dict(kept)
    begin = time.perf_counter()
    report = evaluate(y_test, predict(model, X_test, y_test, tables, device))
    return {
        "f1": 100 * (report.f1 or 0.0),
        "sentences": 100 * report.sequence_accuracy,
        "epochs": best[1],
        "epoch": statistics.median(seconds),
        "decode": time.perf_counter() - begin,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    parts = []
    for split in ("train", "dev", "test"):
        corpus = load_corpus("snips_slots", split)
        parts.append(([list(x) for x in corpus.X], [list(row) for row in corpus.y]))
    rows: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for seed in range(args.seeds):
        for chain in rows:
            rows[chain].append(run(chain, seed, args.epochs, parts))
    lines = ["| on the encoder | slot F1 | least, most | sentences right | best epoch | s an epoch | s decoding |"]
    lines.append("|---|---|---|---|---|---|---|")
    for chain, found in rows.items():
        f1 = [r["f1"] for r in found]
        means = [statistics.mean(r[k] for r in found) for k in ("sentences", "epochs", "epoch", "decode")]
        lines.append(
            f"| {'CRF' if chain else 'softmax'} | {statistics.mean(f1):.2f} | {min(f1):.2f}, {max(f1):.2f} | "
            f"{means[0]:.2f} | {means[1]:.1f} | {means[2]:.1f} | {means[3]:.2f} |"
        )
    print("\n".join(lines))
    (PAGE / "snips.table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
