"""The neural CRF as a scikit-learn estimator."""

from __future__ import annotations

import copy
import itertools
import math
import os
import time
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from crfkit.base.checkpoints import Checkpoint, State, digest, seconds_of
from crfkit.base.fields import (
    Arrays,
    anything,
    damaged,
    flag,
    integer,
    label_list,
    list_of,
    number,
    one_of,
    optional,
    record,
    text,
)
from crfkit.base.messages import show
from crfkit.base.parameters import Estimator, check_number
from crfkit.chain import Constraints
from crfkit.chain.beams import Beam
from crfkit.data.labels import Entity, LabelLists, allowed_labels, collect_labels
from crfkit.data.sequences import check_sequences
from crfkit.metrics import evaluate, token_accuracy
from crfkit.model.chain_model import plain_values, write_file
from crfkit.model.entities import find_entities
from crfkit.torch.inputs import Reader, Tokens, make_reader, restore_reader
from crfkit.torch.layer import CRF
from crfkit.torch.network import ACTIVATIONS, ChainNetwork, Shape, TokenEmbedding
from crfkit.torch.training import (
    Inputs,
    Run,
    Steps,
    as_arrays,
    equal_lengths,
    fed,
    make_optimiser,
    padded_targets,
    set_rate,
)
from crfkit.training.checks import sequence_weights
from crfkit.training.optimiser import Callback, Progress

__all__ = ["NeuralCRF"]

_NOT_SAVED = ("features", "constraints", "device", "callback", "checkpoint", "checkpoint_every")


_SIZES = dict.fromkeys(
    ("encoder_size", "encoder_layers", "kernel_size", "embedding_size", "affix_size", "character_filters"),
    integer(1, 2**31),
)
_HEADER = record(
    {
        "labels": label_list,
        "params": record(
            {},
            {
                **_SIZES,
                **dict.fromkeys(("window", "character_size"), integer(0, 2**31)),
                **dict.fromkeys(("hidden", "affixes"), list_of(integer(-(2**31), 2**31))),
                "hidden": list_of(integer(1, 2**31)),
                "activation": one_of(*ACTIVATIONS),
                "pairwise": one_of("table", "input"),
                "encoder": one_of(None, "lstm", "conv"),
                "dropout": number(0),
                "input_dropout": optional(number(0)),
                "word_dropout": number(0),
                "lower": flag,
                "precision": one_of("auto", "float32", "bfloat16"),
            },
        ),
        "reader": record({"kind": text, "config": anything}),
    }
)


class NeuralCRF(Estimator):
    r"""A CRF whose log-factors are neural networks over windows of the input.

    Minimises, by stochastic gradients over batches of sequences,

    .. math::

        \frac{1}{N} \sum_i -\log p(y_i | x_i) + c_2 \|W\|^2 + c_1 |W|
        + \frac{\gamma}{N_u} \sum_u H(Y_u | x_u)

    with the penalties over all weights except biases, and the entropies over sequences without labels.

    Parameters
    ----------
    features : Template, TokenFeatures, function or "auto"
        As in :class:`crfkit.CRF`, for ``inputs="features"``.
    inputs : {"auto", "dense", "tokens", "features"}
        Vectors [T, D] per sequence, token strings, or crfkit's attributes; "auto" decides by the first token.
    hidden : sequence of int
        Sizes of the hidden layers of each offset's network; none makes the log-factors linear.
    window : int
        Inputs at offsets -window .. window each have their own network.
    activation : {"tanh", "sigmoid", "relu"}
        Activation of the hidden layers.
    pairwise : {"table", "input"}
        Scores of label pairs: a table, or a table plus a linear function of the later step's input.
    encoder : {None, "lstm", "conv"}
        Input of the windows: the inputs themselves, or the outputs of a bidirectional LSTM or a convolution.
    encoder_size, encoder_layers, kernel_size : int
        Outputs per direction, number of layers, and width of the convolution.
    embedding_size : int
        Size of the vectors of words, and of the sums of attributes' vectors.
    affixes : sequence of int
        Lengths of affixes to embed: 3 is a prefix of three characters, -2 a suffix of two.
    affix_size, character_size, character_filters : int
        Sizes of affixes' and characters' vectors and of the convolution over characters; without character_size there
        is no convolution.
    lower : bool
        Whether words are lower-cased.
    dropout : float
        Fraction of the hidden units and of the encoder's outputs dropped in training.
    input_dropout : float, optional
        Dropout of the inputs or embeddings; equal to ``dropout`` by default.
    word_dropout : float
        Fraction of known words treated as unknown in training.
    algorithm : {"adam", "sgd"}
        Optimiser.
    learning_rate : float, optional
        By default 0.001 for Adam and 0.1 for SGD; it decreases as 1 / (1 + decay k) in pass k, from 0.
    decay : float
        How fast the learning rate decreases, per pass.
    batch_size : int
        Sequences per step.
    clip : float, optional
        Maximum norm of the gradient.
    c1, c2 : float
        Coefficients of L1 and L2 regularisation (sums of absolute and of squared weights).
    min_freq : float, default=0
        Words and affixes seen less often are unknown; 0 and 1 keep all.
    constraints : str, Constraints or None
        As in :class:`crfkit.torch.CRF`.
    entropy_weight : float
        Gamma.
    max_iter : int
        Maximum number of passes.
    early_stopping : int, optional
        Stop when the score on the held-out data has not risen for this many passes, and keep the weights that scored
        best. Without held-out data, training runs for all passes.
    validation_fraction : float
        Fraction of the training data held out for early stopping, unless ``fit`` is given held-out data.
    precision : {"auto", "float32", "bfloat16"}
        Precision of the network in training; the chain computes in float32. "auto" is bfloat16 on a GPU that has
        it, otherwise float32.
    device : str, optional
        Where to train; by default a GPU if there is one. After :func:`crfkit.load`, ``set_params(device="cuda")`` moves
        the model to the GPU; without it predictions are made on the CPU.
    random_state : int, optional
        Seed of the weights, the dropout and the order of the sequences.
    verbose : bool
        Print a line per pass to standard error.
    callback : callable, optional
        Called as ``callback(progress, w)`` after every pass; training stops if it returns True.
    checkpoint : path, optional
        File that keeps the state of training.
    checkpoint_every : float or str, default="5min"
        As for :class:`crfkit.CRF`; the state is saved between two passes.

    Attributes
    ----------
    classes_ : array
    network_, crf_ : torch modules
    history_ : list of Progress
        One for every pass: ``iteration``; ``value``, the mean loss of its batches without ``c1`` and ``c2``;
        ``gradient_norm``, that of its last batch; ``step``, the learning rate; and ``scores``, on held-out data.

    Examples
    --------
    >>> X = [["the", "dog", "runs"], ["a", "cat", "sleeps"]] * 20
    >>> y = [["D", "N", "V"]] * 40
    >>> crf = NeuralCRF(hidden=(8,), window=1, max_iter=30, learning_rate=0.01, random_state=0).fit(X, y)
    >>> crf.predict([["the", "cat", "runs"]])
    [['D', 'N', 'V']]
    """

    def __init__(
        self,
        features: Any = "auto",
        *,
        inputs: str = "auto",
        hidden: Sequence[int] = (100,),
        window: int = 1,
        activation: str = "tanh",
        pairwise: str = "table",
        encoder: str | None = None,
        encoder_size: int = 100,
        encoder_layers: int = 1,
        kernel_size: int = 3,
        embedding_size: int = 50,
        affixes: Sequence[int] = (),
        affix_size: int = 10,
        character_size: int = 0,
        character_filters: int = 30,
        lower: bool = False,
        dropout: float = 0.0,
        input_dropout: float | None = None,
        word_dropout: float = 0.0,
        algorithm: str = "adam",
        learning_rate: float | None = None,
        decay: float = 0.0,
        batch_size: int = 32,
        clip: float | None = 5.0,
        c1: float = 0.0,
        c2: float = 0.0,
        min_freq: float = 0,
        constraints: str | Constraints | None = None,
        entropy_weight: float = 0.0,
        max_iter: int = 50,
        early_stopping: int | None = 5,
        validation_fraction: float = 0.0,
        precision: str = "auto",
        device: str | None = None,
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float | str = "5min",
    ) -> None:
        self.features = features
        self.inputs = inputs
        self.hidden = hidden
        self.window = window
        self.activation = activation
        self.pairwise = pairwise
        self.encoder = encoder
        self.encoder_size = encoder_size
        self.encoder_layers = encoder_layers
        self.kernel_size = kernel_size
        self.embedding_size = embedding_size
        self.affixes = affixes
        self.affix_size = affix_size
        self.character_size = character_size
        self.character_filters = character_filters
        self.lower = lower
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.word_dropout = word_dropout
        self.algorithm = algorithm
        self.learning_rate = learning_rate
        self.decay = decay
        self.batch_size = batch_size
        self.clip = clip
        self.c1 = c1
        self.c2 = c2
        self.min_freq = min_freq
        self.constraints = constraints
        self.entropy_weight = entropy_weight
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def _check(self) -> None:
        sizes = "encoder_size encoder_layers kernel_size embedding_size affix_size character_filters"
        for name in (*sizes.split(), "batch_size", "max_iter"):
            check_number(self, name, getattr(self, name), 1, integer=True)
        for name in ("window", "character_size"):
            check_number(self, name, getattr(self, name), 0, integer=True)
        seconds_of(self.checkpoint_every)
        fractions = ("dropout", "input_dropout", "word_dropout", "validation_fraction")
        for name in ("c1", "c2", "min_freq", "decay", "entropy_weight", *fractions):
            check_number(self, name, getattr(self, name), 0, optional=name == "input_dropout")
        check_number(self, "early_stopping", self.early_stopping, 1, integer=True, optional=True)
        for name in fractions:
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
            ("algorithm", ("adam", "sgd")),
            ("precision", ("auto", "float32", "bfloat16")),
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
        kind: Any = reader
        embedding, n_in, sparse = None, 0, 0
        if reader.kind == "tokens":
            sizes, letters = [len(t) + 2 for t in kind.tables], len(kind.alphabet) + 2 if kind.characters else 0
            widths = self.embedding_size, self.affix_size, letters, self.character_size, self.character_filters
            embedding = TokenEmbedding(sizes, *widths)
        else:
            n_in, sparse = kind.size, self.embedding_size if reader.kind == "features" else 0
        self._reader, self._labels = reader, tuple(labels)
        how = Shape(*(getattr(self, name) for name in Shape._fields))
        self.network_ = ChainNetwork(n_in, len(labels), how, embedding, sparse)
        names = [str(x) for x in labels]
        self.crf_ = CRF(len(labels), batch_first=True, constraints=self.constraints, labels=names)
        for p in self.crf_.parameters():
            torch.nn.init.zeros_(p)

    @staticmethod
    def _targets(X: Sequence[Any], y: Sequence[Any], labels: Sequence[Any]) -> list[Tensor | None]:
        """Numbers [T] of labels that are all known, sets [T, L] where not, None for a sequence without any label."""
        offsets = np.cumsum([0, *(len(x) for x in X)])
        allowed = allowed_labels(y, labels, offsets)
        out: list[Tensor | None] = []
        for row, (begin, end) in zip(y, itertools.pairwise(offsets), strict=True):
            rows = torch.from_numpy(allowed[begin:end])
            known = bool((rows.sum(1) == 1).all())
            unknown = row is None or (len(row) > 0 and all(label is None for label in row))
            out.append(None if unknown else rows.int().argmax(1) if known else rows)
        return out

    def _inputs(self, rows: Sequence[Any], targets: Sequence[Tensor | None], weight: Tensor | None) -> Inputs:
        """A batch with its targets; there is no mask where all steps are there."""
        out = self._reader.batch(rows)
        n_steps = out["mask"].shape[1]
        if self._reader.kind != "features" and bool(out["mask"].all()):
            del out["mask"]
        return out | padded_targets(targets, weight, n_steps, len(self._labels))

    def _loss(self, batch: Inputs) -> Tensor:
        """Mean negative log-likelihood of the labelled, plus gamma times the mean entropy of the others."""
        device = self.crf_.transitions.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self._is_half(device)):
            emissions, pairs = self.network_(batch)
        scores, tags, labelled = (emissions, batch.get("mask"), pairs), batch.get("tags"), batch.get("labelled")
        loss: Tensor = emissions.sum() * 0.0 if tags is None else emissions.new_zeros((), dtype=torch.float32)

        def part(rows: Tensor) -> list[Any]:
            return [None if x is None else x[rows] for x in scores]

        if tags is not None:
            x, m, p = scores if labelled is None else part(labelled)
            loss = loss + self.crf_.loss(x, tags, m, weight=batch.get("weight"), pairwise=p)
        if "other" in batch and self.entropy_weight > 0:
            x, m, p = part(batch["other"])
            loss = loss + self.entropy_weight * self.crf_.entropy(x, m, pairwise=p).mean()
        return loss

    def _is_half(self, device: str) -> bool:
        """Whether the network computes in bfloat16."""
        able = device == "cuda" and torch.cuda.is_bf16_supported()
        return able if self.precision == "auto" else self.precision == "bfloat16"

    def _penalty(self) -> Tensor:
        total = torch.zeros((), device=self.crf_.transitions.device)
        for module in (self.network_, self.crf_):
            for name, p in module.named_parameters():
                if name.endswith("bias") or ".bias_" in name:
                    continue
                if self.c2 > 0:
                    total = total + self.c2 * p.square().sum()
                if self.c1 > 0:
                    total = total + self.c1 * p.abs().sum()
        return total

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_dev: Any = None,
        y_dev: Any = None,
        sample_weight: ArrayLike | None = None,
        resume: bool = False,
    ) -> Self:
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
            Weights of the sequences in the loss.
        resume : bool
            Continue from ``checkpoint`` if the file exists; on the CPU, and with the same number of threads, the
            weights will be the same as if training had never been stopped.

        Returns
        -------
        self
        """
        self._check()
        if y is None:
            raise ValueError("'y' of fit must hold the labels of the sequences, got None")
        X, y = self._listed(X), list(y)
        if (X_dev is None) != (y_dev is None):
            raise ValueError("'X_dev' and 'y_dev' of fit must be given together")
        checked = sequence_weights(sample_weight, len(X))
        weights = None if checked is None else torch.from_numpy(checked.astype(np.float32))
        labels = collect_labels(y)
        targets = self._targets(X, y, labels)
        keep = Checkpoint.of(self, self._fingerprint(X, labels, targets, checked, (X_dev, y_dev)), resume)
        seed: State = {"seed": self.random_state}
        if self.random_state is None:
            seed["seed"] = np.random.SeedSequence().entropy
        seed |= keep.part("seed", lambda: seed) or {}
        rng = np.random.default_rng(seed["seed"])
        if X_dev is None and self.validation_fraction > 0:
            known = {i for i, target in enumerate(targets) if target is not None and target.dim() == 1}
            whole = [i for i in rng.permutation(len(X)) if i in known]
            if len(whole) < 2:
                raise ValueError("'validation_fraction' of NeuralCRF needs at least two fully labelled sequences")
            held = sorted(whole[: max(1, round(self.validation_fraction * len(whole)))])
            kept = sorted(set(range(len(X))) - set(held))
            X_dev, y_dev = [X[i] for i in held], [y[i] for i in held]
            X, targets = [X[i] for i in kept], [targets[i] for i in kept]
            weights = None if weights is None else weights[torch.tensor(kept)]
        reader = make_reader(self.inputs, X, self.get_params(deep=False))
        reader.fit(X)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            self._build(reader, labels)
            self._train(X, targets, None if X_dev is None else (X_dev, y_dev), weights, rng, keep)
        return self

    def _fingerprint(
        self,
        X: list[Any],
        labels: Sequence[Any],
        targets: list[Tensor | None],
        weights: NDArray[np.float64] | None,
        held_out: tuple[Any, Any],
    ) -> dict[str, str]:
        """What must be the same for the weights to be the same."""
        if self.checkpoint is None:
            return {}
        rules = vars(self.constraints).values() if isinstance(self.constraints, Constraints) else [self.constraints]
        reader = make_reader(self.inputs, X, self.get_params(deep=False))
        reader.fit(X)
        learned = (*reader.prepare(X), *targets)
        parts: dict[str, Any] = {
            "training data": [*as_arrays(learned), labels],
            "features of tokens": [reader.config(), *reader.arrays().values()],
            "held-out data": [x for side in held_out for x in (() if side is None else side)],
            "sample weights": [weights],
            "constraints of labels": rules,
        }
        left_out = (*_NOT_SAVED, "verbose")
        settings = {name: repr(x) for name, x in self.get_params(deep=False).items() if name not in left_out}
        return {"model": "neural_crf", **settings, **{name: digest(things) for name, things in parts.items()}}

    def _train(
        self,
        X: list[Any],
        targets: list[Tensor | None],
        held_out: tuple[Any, Any] | None,
        weights: Tensor | None,
        rng: np.random.Generator,
        keep: Checkpoint,
    ) -> None:
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        modules = torch.nn.ModuleList([self.network_, self.crf_]).to(device)
        rate = self.learning_rate or (1e-3 if self.algorithm == "adam" else 0.1)
        optimiser, on_gpu = make_optimiser(self.algorithm, modules, rate, device), device.type == "cuda"
        state = Run(modules, optimiser, rng)
        self.history_ = state.history
        finished = keep.result(state.result())
        saved = keep.part("network", state.state)
        with keep.restoring():
            if (found := saved or finished) is not None:
                state.restore(found)
        rows = self._reader.prepare(X)
        lengths = np.array([len(x) for x in X], np.int64)
        filled = np.flatnonzero(lengths)

        def made(some: NDArray[np.int64]) -> Inputs:
            w = None if weights is None else weights[torch.from_numpy(some)]
            return self._inputs([rows[i] for i in some], [targets[i] for i in some], w)

        def step_on(batch: Inputs) -> tuple[Tensor, Tensor]:
            optimiser.zero_grad(set_to_none=True)
            found = self._gradient(batch)
            optimiser.step()
            return found

        steps, begin = Steps(step_on, device), time.perf_counter()
        for epoch in () if finished else range(len(self.history_) + 1, self.max_iter + 1):
            step = rate / (1 + self.decay * (epoch - 1))
            fixed = set_rate(optimiser, step)
            modules.train()
            steps.begin()
            order = filled[rng.permutation(len(filled))]
            parts = [order[k : k + self.batch_size] for k in range(0, len(order), self.batch_size)]
            if on_gpu:
                parts = equal_lengths(order, lengths, self.batch_size)
                parts = [parts[k] for k in rng.permutation(len(parts))]
            for batch in fed(map(made, parts), device):
                steps(batch, regular=not {"mask", "other"} & batch.keys() and (fixed or self.decay == 0))
            state.batches += len(parts)
            total = self._finite(steps.total)
            weight = torch.nn.utils.parameters_to_vector(modules.parameters()).detach().cpu().double().numpy()
            scores = {} if held_out is None else evaluate(held_out[1], self.predict(held_out[0])).summary()
            mean, active = total / max(1, len(order)), int(np.count_nonzero(weight))
            seconds = time.perf_counter() - begin
            progress = Progress(epoch, mean, float(steps.norm), active, step, state.batches, seconds, scores)
            self.history_.append(progress)
            show(progress, self.verbose)
            if held_out is not None and self.early_stopping is not None:
                score = scores.get("f1", scores["accuracy"])
                state.waited += 1
                if state.best is None or score > state.best[0]:
                    state.best, state.waited = (score, copy.deepcopy(modules.state_dict())), 0
            stop = self.callback is not None and bool(self.callback(progress, weight))
            if stop or state.waited == self.early_stopping:
                break
            keep.tick()
        if state.best is not None:
            modules.load_state_dict(state.best[1])
        modules.eval()
        keep.finish(state.result())
        self.n_iter_ = len(self.history_)

    def _gradient(self, batch: Inputs) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the norm of its gradient, which is left in the modules."""
        if self.word_dropout > 0 and "ids" in batch:
            drop = torch.rand(batch["ids"].shape[:2], device=batch["ids"].device) < self.word_dropout
            batch["ids"][..., 0].masked_fill_(drop & batch["mask"] if "mask" in batch else drop, 1)
        loss = self._loss(batch)
        if not loss.is_cuda:  # which would wait for it
            self._finite(loss)
        torch.autograd.backward(loss + self._penalty() if self.c2 > 0 or self.c1 > 0 else loss)
        parameters = [*self.network_.parameters(), *self.crf_.parameters()]
        return loss, torch.nn.utils.clip_grad_norm_(parameters, self.clip or math.inf)

    def _finite(self, loss: Tensor) -> float:
        """A loss as a number."""
        value = float(loss.detach())
        if not math.isfinite(value):
            causes = "labels break 'constraints', or 'learning_rate' is too high"
            raise ValueError(f"the loss is {value} in pass {len(self.history_) + 1}: {causes}")
        return value

    def _listed(self, X: Any) -> list[Any]:
        """The sequences; text is one only for a feature function, whose encoder says whether it is right."""
        text = callable(self.features) or (self._is_fitted() and self._reader.kind == "features")
        return list(check_sequences(X, text=text))

    def _batches(self, X: list[Any], given: Any = None) -> Any:
        """Index lists and padded batches, sequences of near-equal length together; empty sequences are left out."""
        self._require_fitted()
        offsets = np.cumsum([0, *(len(x) for x in X)])
        allowed = None if given is None else torch.from_numpy(allowed_labels(given, self._labels, offsets))
        rows = self._reader.prepare(X)
        if self.device is not None:
            self.network_.to(self.device)
            self.crf_.to(self.device)
        device = self.crf_.transitions.device
        order = sorted((i for i, x in enumerate(X) if len(x)), key=lambda i: len(X[i]))
        self.network_.eval()
        with torch.no_grad():
            for k in range(0, len(order), 128):
                some = order[k : k + 128]
                batch = {n: v.to(device) for n, v in self._reader.batch([rows[i] for i in some]).items()}
                emissions, pairs = self.network_(batch)
                if allowed is not None:
                    for row, i in zip(emissions, some, strict=True):
                        row[: len(X[i])][~allowed[offsets[i] : offsets[i + 1]].to(device)] = -math.inf
                    log_z = self.crf_.log_partition(emissions, batch["mask"], pairwise=pairs)
                    for i in itertools.compress(some, torch.isneginf(log_z).tolist()):
                        raise ValueError(f"sequence {i}: no labelling fits both 'given' and the model's constraints")
                yield some, emissions, batch["mask"], pairs

    def predict(self, X: Any, *, given: Any = None, beam: Beam | str | None = None) -> list[list[Any]]:
        """The best labels of every sequence; ``given`` and ``beam`` as in :meth:`crfkit.CRF.predict`."""
        X = self._listed(X)
        out = LabelLists([] for _ in X)
        for some, emissions, mask, pairs in self._batches(X, given):
            for i, path in zip(some, self.crf_.decode(emissions, mask, pairwise=pairs, beam=beam), strict=True):
                out[i] = [self._labels[k] for k in path]
        return out

    def predict_marginals(self, X: Any, *, given: Any = None) -> list[NDArray[np.floating[Any]]]:
        """Probabilities of all labels at all tokens, of the labellings that fit ``given`` (see :meth:`predict`).

        Arrays [T, L], columns in the order of ``classes_``.
        """
        X = self._listed(X)
        out: list[NDArray[np.floating[Any]]] = [np.zeros((0, len(self.classes_))) for _ in X]
        for some, emissions, mask, pairs in self._batches(X, given):
            p = self.crf_.marginals(emissions, mask, pairwise=pairs).cpu().numpy()
            for i, row in zip(some, p, strict=True):
                out[i] = row[: len(X[i])]
        return out

    def predict_entities(self, X: Any, *, threshold: float | None = None) -> list[list[Entity]]:
        """The spans that the labels of every sequence make, with exact probabilities; see :class:`crfkit.CRF`."""
        X = self._listed(X)
        out: list[list[Entity]] = [[] for _ in X]
        for some, emissions, mask, pairs in self._batches(X):
            double = None if pairs is None else pairs.double()
            p, _ = self.crf_._chains(self.crf_._batch(emissions.double(), mask, double))
            for i, entities in zip(some, find_entities(p, self._labels, [X[i] for i in some], threshold), strict=True):
                out[i] = entities
        return out

    def log_likelihood(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Log-probability of every sequence's labels, [S]; None and sets as in :meth:`fit`."""
        X, y = self._listed(X), list(y)
        targets = self._targets(X, y, self._labels)
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
        """Fraction of the tokens that :meth:`predict` labels right."""
        return token_accuracy(y, self.predict(X), sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to a file that :func:`crfkit.load` reads; functions are not in it.

        Examples
        --------
        >>> import os, tempfile
        >>> import crfkit
        >>> crf = NeuralCRF(hidden=(), max_iter=1, random_state=0).fit([["a", "b"]], [["A", "B"]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     crf.save(os.path.join(folder, "model"))
        ...     again = crfkit.load(os.path.join(folder, "model"))
        >>> again.predict([["a", "b"]]) == crf.predict([["a", "b"]])
        True
        """
        self._require_fitted()
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}
        header = {
            "estimator": "neural_crf",
            "labels": list(self._labels),
            "params": plain_values(params),
            "reader": {"kind": self._reader.kind, "config": self._reader.config()},
        }
        arrays = {f"reader.{k}": v for k, v in self._reader.arrays().items()}
        for name, module in self._modules():
            arrays |= {f"{name}.{k}": v.detach().cpu().numpy() for k, v in module.state_dict().items()}
        rules = self.crf_.constraints
        if rules is not None:
            arrays |= {f"constraints.{k}": v for k, v in vars(rules).items()}
        write_file(path, header, arrays)

    @classmethod
    def _restore(cls, name: str, header: dict[str, Any], arrays: Arrays, features: Any) -> Self:
        """What a model file holds, on the CPU."""
        with damaged(name):
            head = _HEADER(header, "")
            params = {k: v for k, v in head["params"].items() if k in cls._parameters() and k not in _NOT_SAVED}
            rules, n = arrays.group("constraints"), len(head["labels"])
            if rules:
                params["constraints"] = Constraints._restored(rules)
            crf = cls(**params)
            reader = restore_reader(head["reader"], arrays.group("reader"), features)
            tables = len(reader.tables) if isinstance(reader, Tokens) else 0
            if max(crf.window, crf.encoder_layers, len(crf.hidden), tables) > len(arrays):
                raise ValueError("'params' ask for more layers than there are arrays")
            arrays.of_kind("crf.transitions", "f", (n, n))
            with torch.device("meta"):  # shapes without memory
                crf._build(reader, head["labels"])
            crf._compare(arrays)
            crf._build(reader, head["labels"])
            for prefix, module in crf._modules():
                module.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in arrays.group(prefix).items()})
                module.eval()
        return crf

    def _modules(self) -> list[tuple[str, torch.nn.Module]]:
        return [("network", self.network_), ("crf", self.crf_)]

    def _compare(self, arrays: Arrays) -> None:
        """Raises unless the arrays of a file are those of the modules."""
        for prefix, module in self._modules():
            found, wanted = arrays.group(prefix), module.state_dict()
            for key, tensor in wanted.items():
                found.finite(key, tuple(tensor.shape), "fiub")
            if odd := sorted(found.keys() - wanted.keys()):
                raise ValueError(f"the array '{prefix}.{odd[0]}' belongs to no part of the network")
