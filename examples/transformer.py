"""A CRF on a transformer from your disk; nothing is downloaded.

    python examples/transformer.py FOLDER TRAIN TEST [--epochs N] [--learning-rate R] [--scheme bio]

FOLDER holds a model and its fast tokenizer, as ``save_pretrained`` of transformers writes them; TRAIN and TEST are
column files, the token first and the label last. Labels belong to words, but a tokenizer cuts words into pieces: the
mask leaves only the first piece of every word to the CRF, whose neighbours become neighbours.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from crfkit.data import read_columns
from crfkit.metrics import evaluate
from crfkit.torch import CRF


class Tagger(nn.Module):
    """An encoder, scores of labels, and a CRF.

    Parameters
    ----------
    encoder : callable
        Takes what the tokenizer gives, by name, and gives vectors [B, T, width], or a record with them as
        ``last_hidden_state``.
    width : int
    labels : sequence of str
    scheme : str, optional
        Of chunks, whose rules then hold in training and in decoding.
    """

    def __init__(self, encoder: nn.Module, width: int, labels: list[str], scheme: str | None = None) -> None:
        super().__init__()
        self.encoder, self.labels = encoder, labels
        self.head, self.dropout = nn.Linear(width, len(labels)), nn.Dropout(0.1)
        self.crf = CRF(len(labels), batch_first=True, constraints=scheme, labels=labels)

    def scores(self, pieces: Any) -> Tensor:
        """Scores of all labels at all pieces, [B, T, L]; on a GPU the encoder computes in bfloat16."""
        device = self.crf.transitions.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            found = self.encoder(**pieces)
            vectors = getattr(found, "last_hidden_state", found)
            scores: Tensor = self.head(self.dropout(vectors))
        return scores

    def loss(self, pieces: Any, tags: Tensor, mask: Tensor) -> Tensor:
        """Mean negative log-likelihood of a word's label."""
        return self.crf.loss(self.scores(pieces), tags, mask, "token_mean")

    @torch.no_grad()
    def tag(self, pieces: Any, mask: Tensor) -> list[list[str]]:
        """The best labels of every sentence's words."""
        return [[self.labels[k] for k in path] for path in self.crf.decode(self.scores(pieces), mask)]


def first_pieces(pieces: Any) -> Tensor:
    """Mask [B, T] of the pieces that begin a word."""
    n_batch, n_steps = pieces["input_ids"].shape
    mask = torch.zeros(n_batch, n_steps, dtype=torch.bool)
    for b in range(n_batch):
        words = pieces.word_ids(b)
        for t, word in enumerate(words):
            mask[b, t] = word is not None and (t == 0 or words[t - 1] != word)
    return mask


def batches(tokenizer: Any, X: Any, y: Any, number: dict[str, int], device: Any, size: int = 16) -> Any:
    """Pieces, their tags and their mask, some sentences at a time; labels the model does not know are unknown.

    Copies to a GPU come from pinned memory and do not wait.
    """

    def put(x: Tensor) -> Tensor:
        return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x

    for k in range(0, len(X), size):
        pieces = tokenizer(
            [list(x) for x in X[k : k + size]],
            is_split_into_words=True, padding=True, truncation=True, return_tensors="pt",
        )  # fmt: skip
        mask = first_pieces(pieces)
        tags = torch.full(mask.shape, -100)
        for b, row in enumerate(y[k : k + size]):
            known = [number.get(v, -100) for v in row]
            tags[b, mask[b]] = torch.tensor(known[: int(mask[b].sum())])
        yield {name: put(v) for name, v in pieces.items()}, put(tags), put(mask)


def fit(tagger: Tagger, tokenizer: Any, X: Any, y: Any, epochs: int, rate: float) -> float:
    """Trains the whole network; gives the last epoch's mean loss."""
    number = {v: k for k, v in enumerate(tagger.labels)}
    optimiser = torch.optim.AdamW(tagger.parameters(), lr=rate)
    device = tagger.crf.transitions.device
    mean = 0.0
    for _ in range(epochs):
        tagger.train()
        losses = []
        for pieces, tags, mask in batches(tokenizer, X, y, number, device):
            optimiser.zero_grad()
            loss = tagger.loss(pieces, tags, mask)
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append(loss.detach())
        mean = float(torch.stack(losses).mean())
    return mean


def predict(tagger: Tagger, tokenizer: Any, X: Any) -> list[list[str]]:
    """Labels of all sentences' words."""
    tagger.eval()
    device = tagger.crf.transitions.device
    empty = [[""] * len(x) for x in X]
    return [path for pieces, _, mask in batches(tokenizer, X, empty, {}, device) for path in tagger.tag(pieces, mask)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--scheme", help="of chunks: bio, iob1, bioes, bilou")
    args = parser.parse_args()
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder, local_files_only=True)
    encoder = transformers.AutoModel.from_pretrained(args.folder, local_files_only=True)
    (X, y), (X_test, y_test) = (read_columns(name)[:2] for name in (args.train, args.test))
    if y is None or y_test is None:
        raise SystemExit("the files must hold labels in their last columns")
    labels = sorted({v for row in y for v in row})
    tagger = Tagger(encoder, encoder.config.hidden_size, labels, args.scheme)
    tagger.to("cuda" if torch.cuda.is_available() else "cpu")
    print(f"loss {fit(tagger, tokenizer, X, y, args.epochs, args.learning_rate):.3f}")
    print(evaluate(y_test, predict(tagger, tokenizer, X_test)))


if __name__ == "__main__":
    main()
