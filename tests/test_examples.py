"""The examples run, without any download."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from crfkit.data import load_corpus  # noqa: E402

ROOT = Path(__file__).parents[1]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pieces(dict[str, Any]):
    """What a tokenizer of transformers gives."""

    words: list[list[int | None]]

    def word_ids(self, b: int) -> list[int | None]:
        return self.words[b]


class Tokenizer:
    """Pieces of three characters, behind one that marks the beginning."""

    def __init__(self, X: Any) -> None:
        self.ids = {p: k + 3 for k, p in enumerate(sorted({p for x in X for w in x for p in self.cut(w)}))}

    @staticmethod
    def cut(word: str) -> list[str]:
        return [word[k : k + 3] for k in range(0, len(word), 3)]

    def __call__(self, X: list[list[str]], **_: Any) -> Pieces:
        rows = [[(None, 1), *((k, self.ids.get(p, 2)) for k, w in enumerate(x) for p in self.cut(w))] for x in X]
        n = max(len(row) for row in rows)
        padded = [row + [(None, 0)] * (n - len(row)) for row in rows]
        out = Pieces(input_ids=torch.tensor([[i for _, i in row] for row in padded]))
        out["attention_mask"] = (out["input_ids"] > 0).long()
        out.words = [[w for w, _ in row] for row in padded]
        return out


class Encoder(nn.Module):
    """A small transformer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.layers(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)


def test_transformer_from_disk(tmp_path: Path) -> None:
    """An encoder of one's own, read from the disk."""
    page = example("transformer")
    train = load_corpus("ingredients", "train")
    X, y = [list(x) for x in train.X[:60]], [list(row) for row in train.y[:60]]
    tokenizer = Tokenizer(X)
    torch.manual_seed(0)
    torch.save(Encoder(len(tokenizer.ids) + 3), tmp_path / "encoder.pt")
    encoder = torch.load(tmp_path / "encoder.pt", weights_only=False)
    labels = sorted({v for row in y for v in row})
    tagger = page.Tagger(encoder, 32, labels, "bio")
    before = page.fit(tagger, tokenizer, X, y, 1, 0.0)
    after = page.fit(tagger, tokenizer, X, y, 8, 0.01)
    assert after < before / 3
    found = page.predict(tagger, tokenizer, X)
    assert [len(path) for path in found] == [len(x) for x in X]
    right = sum(a == b for row, path in zip(y, found, strict=True) for a, b in zip(row, path, strict=True))
    assert right > 0.9 * sum(len(row) for row in y)


def test_first_pieces() -> None:
    pieces = Tokenizer([["flour", "g"]])([["flour", "g"], ["g"]])
    mask = example("transformer").first_pieces(pieces)
    assert mask.tolist() == [[False, True, False, True], [False, True, False, False]]


def test_transformer_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small random model and its tokenizer, written and read by transformers."""
    transformers = pytest.importorskip("transformers")
    import crfkit

    sample = Path(crfkit.__file__).parent / "data" / "sample"
    letters = sorted(set((sample / "train.txt").read_text(encoding="utf-8")) - set("\t\n "))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=False).save_pretrained(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    files = [str(sample / name) for name in ("train.txt", "test.txt")]
    monkeypatch.setattr(sys, "argv", ["transformer.py", str(tmp_path), *files, "--epochs", "1", "--scheme", "bio"])
    example("transformer").main()
    assert "loss" in capsys.readouterr().out
