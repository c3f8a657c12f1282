"""The neural CRF as a scikit-learn estimator."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from crfkit.base.files import whole_file
from crfkit.base.parameters import Estimator, check_number
from crfkit.chain import Constraints
from crfkit.data.labels import LabelLists, collect_labels
from crfkit.metrics import evaluate, token_accuracy
from crfkit.model.chain_model import ModelError, _map_tensors
from crfkit.torch.inputs import Reader, make_reader, restore_reader
from crfkit.torch.layer import CRF
from crfkit.torch.network import ACTIVATIONS, ChainNetwork, TokenEmbedding
from crfkit.training.checks import sequence_weights

__all__ = ["NeuralCRF"]


def _is_known(row: Any) -> bool:
    """Whether a sequence has a label at every token."""
    return row is not None and all(v is not None and not isinstance(v, (set, frozenset)) for v in row)


class NeuralCRF(Estimator):
    r"""A CRF whose log-factors are neural networks over windows of the input.

    Minimises, by stochastic gradients over batches of sequences,

    .. math::

        \frac{1}{N} \sum_i -\log p(y_i | x_i) + \lambda_2 \|W\|^2 + \lambda_1 |W|
        + \frac{\gamma}{N_u} \sum_u H(Y_u | x_u)

    with the penalties over all weights but biases, and the entropies over sequences without labels.

    Parameters
    ----------
    hidden : sequence of int
        Sizes of the hidden layers of each offset's network; none makes the log-factors linear.
    window : int
        Inputs at offsets -window .. window have networks of their own.
    activation : {"tanh", "sigmoid", "relu"}
    pairwise : {"table", "input"}
        Scores of label pairs: a table, or a table plus a linear function of the later step's input.
    inputs : {"auto", "dense", "tokens", "features"}
        Vectors [T, D] a sequence, token strings, or crfkit's attributes; "auto" looks at the first token.
    encoder : {None, "lstm", "conv"}
        What the windows look at: the inputs, or a bidirectional LSTM's or a convolution's outputs.
    encoder_size, encoder_layers, kernel_size : int
    embedding_size : int
        Size of the vectors of words, and of the sums of attributes' vectors.
    affixes : sequence of int
        Lengths of affixes with embeddings of their own: 3 is a prefix of three characters, -2 a suffix of two.
    affix_size, character_size, character_filters : int
        Sizes of affixes' and characters' vectors and of the convolution over characters; without character_size there
        is no convolution.
    min_count : int
        Rarer words are unknown words.
    lower : bool
        Whether words are lower-cased.
    word_dropout : float
        Part of the known words that are made unknown while training.
    features : Template, TokenFeatures, function or "auto"
        As in :class:`crfkit.CRF`, for ``inputs="features"``.
    optimizer : {"adam", "sgd"}
    learning_rate : float, optional
        0.001 for Adam, 0.1 for SGD if not given; it falls as 1 / (1 + decay epoch).
    decay : float
    batch_size, max_epochs : int
    l2, l1 : float
    dropout : float
        Part of the hidden units and of the encoder's outputs that are left out while training.
    input_dropout : float, optional
        Likewise of the inputs or embeddings; as ``dropout`` if not given.
    clip : float, optional
        Largest norm of a gradient.
    validation_fraction : float
        Part of the training data held out for early stopping, if ``fit`` is given no other; zero: none.
    patience : int
        Epochs without a better score after which training stops; the best epoch's weights are kept.
    constraints : str, Constraints or None
        As in :class:`crfkit.torch.CRF`.
    entropy_weight : float
        Gamma.
    device : str, optional
        Where to train; the CPU, unless a GPU is there.
    random_state : int, optional
    verbose : bool
    callback : callable, optional
        Called with a dict after every epoch; True stops.

    Attributes
    ----------
    classes_ : array
    network_, crf_ : torch modules
    history_ : list of dicts
        One for every epoch.

    Examples
    --------
    >>> X = [["the", "dog", "runs"], ["a", "cat", "sleeps"]] * 20
    >>> y = [["D", "N", "V"]] * 40
    >>> crf = NeuralCRF(hidden=(8,), window=1, max_epochs=30, learning_rate=0.01, random_state=0).fit(X, y)
    >>> crf.predict([["the", "cat", "runs"]])
    [['D', 'N', 'V']]
    """

    def __init__(
        self,
        hidden: Sequence[int] = (100,),
        window: int = 1,
        activation: str = "tanh",
        pairwise: str = "table",
        inputs: str = "auto",
        encoder: str | None = None,
        encoder_size: int = 100,
        encoder_layers: int = 1,
        kernel_size: int = 3,
        embedding_size: int = 50,
        affixes: Sequence[int] = (),
        affix_size: int = 10,
        character_size: int = 0,
        character_filters: int = 30,
        min_count: int = 1,
        lower: bool = False,
        word_dropout: float = 0.0,
        features: Any = "auto",
        optimizer: str = "adam",
        learning_rate: float | None = None,
        decay: float = 0.0,
        batch_size: int = 32,
        max_epochs: int = 50,
        l2: float = 0.0,
        l1: float = 0.0,
        dropout: float = 0.0,
        input_dropout: float | None = None,
        clip: float | None = 5.0,
        validation_fraction: float = 0.0,
        patience: int = 5,
        constraints: str | Constraints | None = None,
        entropy_weight: float = 0.0,
        device: str | None = None,
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
    ) -> None:
        self.hidden = hidden
        self.window = window
        self.activation = activation
        self.pairwise = pairwise
        self.inputs = inputs
        self.encoder = encoder
        self.encoder_size = encoder_size
        self.encoder_layers = encoder_layers
        self.kernel_size = kernel_size
        self.embedding_size = embedding_size
        self.affixes = affixes
        self.affix_size = affix_size
        self.character_size = character_size
        self.character_filters = character_filters
        self.min_count = min_count
        self.lower = lower
        self.word_dropout = word_dropout
        self.features = features
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.decay = decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.l2 = l2
        self.l1 = l1
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.clip = clip
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.constraints = constraints
        self.entropy_weight = entropy_weight
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def _check(self) -> None:
        for name in ("batch_size", "max_epochs", "encoder_size", "encoder_layers", "kernel_size", "embedding_size"):
            check_number(self, name, getattr(self, name), 1, integer=True)
        for name in ("patience", "min_count", "affix_size", "character_filters"):
            check_number(self, name, getattr(self, name), 1, integer=True)
        for name in ("window", "character_size"):
            check_number(self, name, getattr(self, name), 0, integer=True)
        for name in ("l2", "l1", "decay", "entropy_weight", "dropout", "word_dropout", "validation_fraction"):
            check_number(self, name, getattr(self, name), 0)
        check_number(self, "input_dropout", self.input_dropout, 0, optional=True)
        for name in ("dropout", "input_dropout", "word_dropout", "validation_fraction"):
            if (getattr(self, name) or 0) >= 1:
                raise ValueError(f"{name!r} of NeuralCRF must be below 1, got {getattr(self, name)!r}")
        check_number(self, "learning_rate", self.learning_rate, 0, optional=True, strict=True)
        check_number(self, "clip", self.clip, 0, optional=True, strict=True)
        if self.kernel_size % 2 == 0:
            raise ValueError(f"'kernel_size' of NeuralCRF must be odd, got {self.kernel_size}")
        for name, allowed in (
            ("activation", tuple(ACTIVATIONS)),
            ("pairwise", ("table", "input")),
            ("inputs", ("auto", "dense", "tokens", "features")),
            ("encoder", (None, "lstm", "conv")),
            ("optimizer", ("adam", "sgd")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name!r} of NeuralCRF must be one of {allowed}, got {getattr(self, name)!r}")
        for name, values, rule in (("hidden", self.hidden, ">= 1"), ("affixes", self.affixes, "other than 0")):
            whole = isinstance(values, Sequence) and all(
                isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in values
            )
            if not whole or any(n == 0 or (name == "hidden" and n < 0) for n in values):
                raise ValueError(f"{name!r} of NeuralCRF must be a sequence of ints {rule}, got {values!r}")

    def _is_fitted(self) -> bool:
        return hasattr(self, "network_")

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of their numbers."""
        self._require_fitted()
        return np.array(self._labels)

    def _build(self, reader: Reader, labels: Sequence[Any]) -> None:
        """Makes the modules, untrained."""
        embedding = None
        n_in, sparse = 0, 0
        if reader.kind == "tokens":
            tokens: Any = reader
            embedding = TokenEmbedding(
                [len(t) + 2 for t in tokens.tables],
                self.embedding_size,
                self.affix_size,
                len(tokens.alphabet) + 2 if tokens.characters else 0,
                self.character_size,
                self.character_filters,
            )
        else:
            sized: Any = reader
            n_in = sized.size
            sparse = self.embedding_size if reader.kind == "features" else 0
        self._reader, self._labels = reader, tuple(labels)
        self.network_ = ChainNetwork(
            n_in,
            len(labels),
            embedding=embedding,
            sparse=sparse,
            encoder=self.encoder,
            encoder_size=self.encoder_size,
            encoder_layers=self.encoder_layers,
            kernel_size=self.kernel_size,
            hidden=tuple(self.hidden),
            window=self.window,
            activation=self.activation,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            pairwise=self.pairwise,
        )
        names = [str(x) for x in labels]
        self.crf_ = CRF(len(labels), batch_first=True, constraints=self.constraints, labels=names)
        for p in self.crf_.parameters():
            torch.nn.init.zeros_(p)

    def _targets(self, y: Sequence[Any], lengths: Sequence[int], labels: Sequence[Any]) -> list[Tensor | None]:
        """Labels as numbers [T], as sets [T, L] where any is unknown or a set, None without any label."""
        number = {label: k for k, label in enumerate(labels)}
        new = sorted({repr(v) for row in self._known(y) for v in row if v not in number})
        if new:
            raise ValueError(f"labels that the model has not learnt: {', '.join(new)}")
        out: list[Tensor | None] = []
        for i, (row, length) in enumerate(zip(y, lengths, strict=True)):
            if row is None:
                out.append(None)
                continue
            if len(row) != length:
                raise ValueError(f"sequence {i} has {length} tokens, but {len(row)} labels")
            plain = [v.item() if isinstance(v, np.generic) else v for v in row]
            if length and all(v is None for v in plain):
                out.append(None)
            elif any(v is None or isinstance(v, (set, frozenset)) for v in plain):
                sets = torch.zeros(length, len(labels), dtype=torch.bool)
                for t, v in enumerate(plain):
                    if v is None:
                        sets[t] = True
                    else:
                        for one in v if isinstance(v, (set, frozenset)) else (v,):
                            sets[t, number[one]] = True
                out.append(sets)
            else:
                out.append(torch.tensor([number[v] for v in plain], dtype=torch.long))
        return out

    @staticmethod
    def _known(y: Sequence[Any]) -> list[list[Any]]:
        """All labels that stand anywhere, for their collection."""
        out = []
        for row in y:
            flat: list[Any] = []
            for v in row if row is not None else ():
                flat += list(v) if isinstance(v, (set, frozenset)) else [] if v is None else [v]
            out.append(flat)
        return out

    def _loss(self, batch: dict[str, Tensor], targets: Sequence[Tensor | None], weight: Tensor | None) -> Tensor:
        """Mean negative log-likelihood of the labelled, plus gamma times the mean entropy of the others."""
        emissions, pairs = self.network_(batch)
        mask = batch["mask"]
        labelled = [k for k, target in enumerate(targets) if target is not None]
        other = [k for k, target in enumerate(targets) if target is None]
        device, n_steps = emissions.device, emissions.shape[1]
        loss: Tensor = emissions.sum() * 0.0

        def part(rows: list[int]) -> tuple[Tensor, Tensor, Tensor | None]:
            at = torch.tensor(rows, device=device)
            return emissions[at], mask[at], None if pairs is None else pairs[at]

        if labelled:
            x, m, p = (emissions, mask, pairs) if not other else part(labelled)
            rows = [targets[k] for k in labelled]
            if any(r is not None and r.dim() == 2 for r in rows):
                tags = torch.ones(len(rows), n_steps, emissions.shape[2], dtype=torch.bool)
                for k, r in enumerate(rows):
                    assert r is not None
                    one = r if r.dim() == 2 else torch.nn.functional.one_hot(r, emissions.shape[2]).bool()
                    tags[k, : len(one)] = one
            else:
                tags = torch.zeros(len(rows), n_steps, dtype=torch.long)
                for k, r in enumerate(rows):
                    assert r is not None
                    tags[k, : len(r)] = r
            w = None if weight is None else weight[torch.tensor(labelled)].to(device)
            loss = loss - self.crf_(x, tags.to(device), m, "sum", weight=w, pairwise=p) / len(rows)
        if other and self.entropy_weight > 0:
            x, m, p = part(other)
            loss = loss + self.entropy_weight * self.crf_.entropy(x, m, pairwise=p).mean()
        return loss

    def _penalty(self) -> Tensor:
        total = torch.zeros((), device=self.crf_.transitions.device)
        for module in (self.network_, self.crf_):
            for name, p in module.named_parameters():
                if name.endswith("bias") or ".bias_" in name:
                    continue
                if self.l2 > 0:
                    total = total + self.l2 * p.square().sum()
                if self.l1 > 0:
                    total = total + self.l1 * p.abs().sum()
        return total

    def fit(self, X: Any, y: Any, X_dev: Any = None, y_dev: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the weights.

        Parameters
        ----------
        X : sequences
            Arrays [T, D], lists of token strings, or lists of attributes.
        y : sequences of labels
            A label, None (unknown) or a set of labels for every token; None for a sequence without labels.
        X_dev, y_dev : optional
            Held-out data for early stopping.
        sample_weight : array [S], optional

        Returns
        -------
        self
        """
        self._check()
        X, y = list(X), list(y)
        if len(X) != len(y):
            raise ValueError(f"there are {len(X)} sequences, but labels for {len(y)}")
        if (X_dev is None) != (y_dev is None):
            raise ValueError("'X_dev' and 'y_dev' of fit go together")
        rng = np.random.default_rng(self.random_state)
        checked = sequence_weights(sample_weight, len(X))
        weights = None if checked is None else torch.from_numpy(checked.astype(np.float32))
        labels = collect_labels(self._known(y))
        if X_dev is None and self.validation_fraction > 0:
            whole = [i for i in rng.permutation(len(X)) if _is_known(y[i])]
            if len(whole) < 2:
                raise ValueError("'validation_fraction' of NeuralCRF needs sequences all of whose labels are known")
            held = sorted(whole[: max(1, round(self.validation_fraction * len(whole)))])
            kept = sorted(set(range(len(X))) - set(held))
            X_dev, y_dev = [X[i] for i in held], [y[i] for i in held]
            X, y = [X[i] for i in kept], [y[i] for i in kept]
            weights = None if weights is None else weights[torch.tensor(kept)]
        reader = make_reader(self.inputs, X, self.get_params())
        reader.fit(X)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            self._build(reader, labels)
            self._train(X, y, X_dev, y_dev, weights, rng)
        return self

    def _train(
        self, X: list[Any], y: list[Any], X_dev: Any, y_dev: Any, weights: Tensor | None, rng: np.random.Generator
    ) -> None:
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        modules = torch.nn.ModuleList([self.network_, self.crf_]).to(device)
        rows = self._reader.prepare(X)
        lengths = [len(x) for x in X]
        targets = self._targets(y, lengths, self._labels)
        filled = np.array([i for i, n in enumerate(lengths) if n > 0], np.int64)
        if self.optimizer == "adam":
            optimiser: torch.optim.Optimizer = torch.optim.Adam(modules.parameters(), lr=self.learning_rate or 1e-3)
        else:
            optimiser = torch.optim.SGD(modules.parameters(), lr=self.learning_rate or 0.1)
        rate = optimiser.param_groups[0]["lr"]
        best: tuple[float, Any] | None = None
        waited = 0
        self.history_: list[dict[str, Any]] = []
        begin = time.perf_counter()
        for epoch in range(self.max_epochs):
            for group in optimiser.param_groups:
                group["lr"] = rate / (1 + self.decay * epoch)
            modules.train()
            total = 0.0
            order = filled[rng.permutation(len(filled))]
            for k in range(0, len(order), self.batch_size):
                some = order[k : k + self.batch_size]
                batch = {n: v.to(device) for n, v in self._reader.batch([rows[i] for i in some]).items()}
                if self.word_dropout > 0 and "ids" in batch:
                    drop = torch.rand(batch["ids"].shape[:2], device=device) < self.word_dropout
                    batch["ids"] = torch.cat(
                        [torch.where(drop & batch["mask"], 1, batch["ids"][..., 0])[..., None], batch["ids"][..., 1:]],
                        -1,
                    )
                optimiser.zero_grad(set_to_none=True)
                w = None if weights is None else weights[torch.from_numpy(some)]
                loss = self._loss(batch, [targets[i] for i in some], w)
                value = float(loss.detach())
                if not math.isfinite(value):
                    causes = "labels break 'constraints', or 'learning_rate' is too high"
                    raise ValueError(f"the loss is {value} in epoch {epoch + 1}: {causes}")
                total += value * len(some)
                if self.l2 > 0 or self.l1 > 0:
                    loss = loss + self._penalty()
                torch.autograd.backward(loss)
                if self.clip is not None:
                    torch.nn.utils.clip_grad_norm_(modules.parameters(), self.clip)
                optimiser.step()
            info: dict[str, Any] = {
                "epoch": epoch + 1,
                "loss": total / max(1, len(order)),
                "seconds": time.perf_counter() - begin,
            }
            if X_dev is not None:
                report = evaluate(y_dev, self.predict(X_dev)).summary()
                info |= report
                score = report.get("f1", report.get("accuracy", next(iter(report.values()), 0.0)))
                if best is None or score > best[0]:
                    best = (score, copy.deepcopy(modules.state_dict()))
                    waited = 0
                else:
                    waited += 1
            self.history_.append(info)
            if self.verbose:
                print("  ".join(f"{k} {v:.4g}" for k, v in info.items()), file=sys.stderr, flush=True)
            if (self.callback is not None and self.callback(info) is True) or waited >= self.patience:
                break
        if best is not None:
            modules.load_state_dict(best[1])
        modules.eval()
        self.n_iter_ = len(self.history_)

    def _batches(self, X: Any) -> Any:
        """Index lists and padded batches, sequences of near-equal length together; empty sequences are left out."""
        self._require_fitted()
        X = list(X)
        rows = self._reader.prepare(X)
        device = self.crf_.transitions.device
        order = sorted((i for i, x in enumerate(X) if len(x)), key=lambda i: len(X[i]))
        self.network_.eval()
        with torch.no_grad():
            for k in range(0, len(order), 128):
                some = order[k : k + 128]
                batch = {n: v.to(device) for n, v in self._reader.batch([rows[i] for i in some]).items()}
                emissions, pairs = self.network_(batch)
                yield some, emissions, batch["mask"], pairs

    def predict(self, X: Any) -> list[list[Any]]:
        """The best labels of every sequence."""
        X = list(X)
        out = LabelLists([] for _ in X)
        for some, emissions, mask, pairs in self._batches(X):
            for i, path in zip(some, self.crf_.decode(emissions, mask, pairwise=pairs), strict=True):
                out[i] = [self._labels[k] for k in path]
        return out

    def predict_marginals(self, X: Any) -> list[NDArray[np.floating[Any]]]:
        """Probabilities of all labels at all tokens: arrays [T, L], columns in the order of ``classes_``."""
        X = list(X)
        out: list[NDArray[np.floating[Any]]] = [np.zeros((0, len(self.classes_))) for _ in X]
        for some, emissions, mask, pairs in self._batches(X):
            p = self.crf_.marginals(emissions, mask, pairwise=pairs).cpu().numpy()
            for i, row in zip(some, p, strict=True):
                out[i] = row[: len(X[i])]
        return out

    def log_likelihood(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Log-probability of every sequence's labels, [S]; None and sets as in :meth:`fit`."""
        X, y = list(X), list(y)
        targets = self._targets(y, [len(x) for x in X], self._labels)
        out = np.zeros(len(X))
        for some, emissions, mask, pairs in self._batches(X):
            del mask
            for k, i in enumerate(some):
                target, n = targets[i], len(X[i])
                if target is None:
                    continue
                p = None if pairs is None else pairs[k : k + 1, : n - 1]
                out[i] = float(self.crf_(emissions[k : k + 1, :n], target[None].to(emissions.device), pairwise=p))
        return out

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Part of the tokens that :meth:`predict` labels right."""
        if sample_weight is None:
            return token_accuracy(y, self.predict(X))
        weights = np.asarray(sample_weight, float)
        right = [sum(a == b for a, b in zip(s, t, strict=True)) for s, t in zip(y, self.predict(X), strict=True)]
        return float(weights @ right / (weights @ [len(s) for s in y]))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a safetensors file that :meth:`load` reads."""
        self._require_fitted()
        from safetensors.numpy import save

        params: dict[str, Any] = {}
        for name, value in self.get_params().items():
            plain = list(value) if isinstance(value, tuple) else value
            try:
                json.dumps(plain)
                params[name] = plain
            except TypeError:
                continue
        params["constraints"] = None  # they stand in the arrays
        header = {
            "format": 1,
            "estimator": "neural_crf",
            "labels": list(self._labels),
            "params": params,
            "reader": {"kind": self._reader.kind, "config": self._reader.config()},
        }
        arrays = {f"reader.{k}": v for k, v in self._reader.arrays().items()}
        for name, module in (("network", self.network_), ("crf", self.crf_)):
            arrays |= {f"{name}.{k}": v.detach().cpu().numpy() for k, v in module.state_dict().items()}
        rules = self.crf_.constraints
        if rules is not None:
            arrays |= {f"constraints.{k}": getattr(rules, k) for k in ("transitions", "start", "end")}
        data = save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {"crfkit": json.dumps(header)})
        with whole_file(path) as file:
            file.write(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = "auto", device: str | None = None) -> Self:
        """Reads what :meth:`save` wrote.

        Parameters
        ----------
        path : path
        features : callable, optional
            The feature function, if the model was trained with one.
        device : str, optional

        Raises
        ------
        crfkit.ModelError
            If the file is not a neural CRF, is cut short or damaged.

        Examples
        --------
        >>> import os, tempfile
        >>> crf = NeuralCRF(hidden=(), max_epochs=1, random_state=0).fit([["a", "b"]], [["A", "B"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     crf.save(os.path.join(folder, "model"))
        ...     again = NeuralCRF.load(os.path.join(folder, "model"))
        >>> again.predict([["a", "b"]]) == crf.predict([["a", "b"]])
        True
        """
        header, arrays = _map_tensors(path)
        if header.get("estimator") != "neural_crf":
            raise ModelError(f"{os.fspath(path)}: not a neural CRF")
        try:
            params = {k: v for k, v in header["params"].items() if k in cls._parameters()}
            params["device"] = device
            if {f"constraints.{k}" for k in ("transitions", "start", "end")} <= set(arrays):
                params["constraints"] = Constraints(
                    *(arrays[f"constraints.{k}"].astype(bool) for k in ("transitions", "start", "end"))
                )
            crf = cls(**params)
            own = {k.removeprefix("reader."): v for k, v in arrays.items() if k.startswith("reader.")}
            reader = restore_reader(header["reader"]["kind"], header["reader"]["config"], own, features)
            crf._build(reader, header["labels"])
            for name, module in (("network", crf.network_), ("crf", crf.crf_)):
                state = {
                    k.removeprefix(f"{name}."): torch.from_numpy(np.array(v))
                    for k, v in arrays.items()
                    if k.startswith(f"{name}.")
                }
                module.load_state_dict(state)
                module.eval()
        except (KeyError, TypeError, RuntimeError, AttributeError) as e:
            raise ModelError(f"{os.fspath(path)}: the model is damaged: {e}") from e
        if device is not None:
            crf.network_.to(device)
            crf.crf_.to(device)
        return crf
