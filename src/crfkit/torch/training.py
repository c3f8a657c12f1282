"""Training of a network: its state, batches that are copied ahead and, on a GPU, captured steps.

A step of a small network is some hundred kernels, which the GPU runs faster than the host can launch them. A captured
step (a CUDA graph) is one launch. It belongs to one shape of batch, so batches are made of sequences of equal length,
as far as there are enough of them; the others are run as they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crfkit.base.checkpoints import State
from crfkit.training.optimiser import Progress

__all__: list[str] = []

Inputs = dict[str, Tensor]
#: Steps of a shape that are run as they are before one is captured.
_EAGER_STEPS = 3
#: Shapes that are captured at most: each keeps the memory of its step.
_MOST_GRAPHS = 256


def as_arrays(x: Any) -> Any:
    """The same with arrays in place of tensors, and texts as keys, for a checkpoint."""
    if isinstance(x, Tensor):
        return x.detach().cpu().numpy()
    if isinstance(x, tuple):
        return tuple(map(as_arrays, x))
    return {str(k): as_arrays(v) for k, v in x.items()} if isinstance(x, dict) else x


def as_tensors(x: Any) -> Any:
    """The same with tensors in place of arrays."""
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x)
    return {k: as_tensors(v) for k, v in x.items()} if isinstance(x, dict) else x


@dataclass
class Run:
    """Where a training is: between two passes, all that a checkpoint holds."""

    modules: torch.nn.Module
    optimiser: torch.optim.Optimizer
    rng: np.random.Generator
    history: list[Progress] = field(default_factory=list)
    best: tuple[float, Any] | None = None  # held-out score, and the weights that have it
    waited: int = 0  # passes since then
    batches: int = 0

    def result(self) -> State:
        """What a training has come to."""
        return {"modules": as_arrays(self.modules.state_dict()), "history": [vars(p) for p in self.history]}

    def state(self) -> State:
        """All that it goes on from."""
        best = None if self.best is None else {"score": self.best[0], "modules": as_arrays(self.best[1])}
        random = {"rng": self.rng.bit_generator.state, "torch": torch.get_rng_state().numpy()}
        moments = as_arrays(self.optimiser.state_dict()["state"])
        counts = {"waited": self.waited, "batches": self.batches}
        return {**self.result(), "optimiser": moments, **random, **counts, "best": best}

    def restore(self, saved: State) -> None:
        """Takes a state, or a result; raises if it is another network's."""
        if "optimiser" in saved:
            self.waited, self.batches, best = saved["waited"], saved["batches"], saved["best"]
            if best is not None:
                self.best = float(best["score"]), as_tensors(best["modules"])
                self.modules.load_state_dict(self.best[1])  # raises unless it fits
            moments = {int(k): v for k, v in as_tensors(saved["optimiser"]).items()}
            for k, found in moments.items():
                shape = self.optimiser.param_groups[0]["params"][k].shape
                if any(x.ndim and x.shape != shape for x in found.values()):
                    raise ValueError(f"'optimiser.{k}' does not have the shape of its parameter")
                if found and (found.keys() != {"step", "exp_avg", "exp_avg_sq"} or not float(found["step"]) >= 1):
                    raise ValueError(f"'optimiser.{k}' must have 'step' >= 1, 'exp_avg' and 'exp_avg_sq'")
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})
            self.rng.bit_generator.state = saved["rng"]
            torch.set_rng_state(torch.from_numpy(saved["torch"]))
        self.modules.load_state_dict(as_tensors(saved["modules"]))
        self.history[:] = [Progress(**p) for p in saved["history"]]


def make_optimiser(name: str, modules: torch.nn.Module, rate: float, device: torch.device) -> torch.optim.Optimizer:
    """SGD or Adam, whose rate is a tensor on a GPU, so that it may change in captured steps."""
    if name == "sgd":
        return torch.optim.SGD(modules.parameters(), lr=rate)
    if device.type != "cuda":
        return torch.optim.Adam(modules.parameters(), lr=rate)
    return torch.optim.Adam(modules.parameters(), lr=torch.tensor(rate, device=device), capturable=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> bool:
    """Sets the learning rate; whether a captured step will know it."""
    held = optimiser.param_groups[0]["lr"]
    optimiser.param_groups[0]["lr"] = held.fill_(rate) if isinstance(held, Tensor) else rate
    return isinstance(held, Tensor)


def padded_targets(targets: Sequence[Tensor | None], weight: Tensor | None, n_steps: int, n_labels: int) -> Inputs:
    """Of a batch: ``tags`` of the sequences ``labelled``, the ``other`` ones if there are any, and the weights.

    A target is the labels of a sequence [T], the sets that they are in [T, L], or None.
    """
    labelled = [k for k, target in enumerate(targets) if target is not None]
    known = [target for target in targets if target is not None]
    out: Inputs = {}
    if any(x.dim() == 2 for x in known):
        known = [x if x.dim() == 2 else torch.nn.functional.one_hot(x, n_labels).bool() for x in known]
    if known:
        tags = known[0].new_zeros(len(known), n_steps, *known[0].shape[1:])
        for row, x in zip(tags, known, strict=True):
            row[: len(x)] = x
        out["tags"] = tags
    if len(labelled) < len(targets):
        out["labelled"] = torch.tensor(labelled, dtype=torch.long)
        out["other"] = torch.tensor([k for k, target in enumerate(targets) if target is None])
    if weight is not None:
        out["weight"] = weight[torch.tensor(labelled, dtype=torch.long)]
    return out


def equal_lengths(order: NDArray[np.int64], lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Batches of sequences of one length each, in their order; what is left makes batches of similar lengths.

    >>> [x.tolist() for x in equal_lengths(np.arange(5), np.array([3, 2, 3, 2, 3]), 2)]
    [[1, 3], [0, 2], [4]]
    """
    by_length = order[np.argsort(lengths[order], kind="stable")]
    runs = np.split(by_length, np.flatnonzero(np.diff(lengths[by_length])) + 1)
    whole = [run[k : k + size] for run in runs for k in range(0, len(run) - size + 1, size)]
    rest = np.concatenate([run[len(run) - len(run) % size :] for run in runs])
    return whole + [rest[k : k + size] for k in range(0, len(rest), size)]


def fed(batches: Iterator[Inputs], device: torch.device) -> Iterator[Inputs]:
    """Batches on a device; for a GPU the next one is made and copied, from pinned memory, while one is used."""
    if device.type != "cuda":
        yield from ({k: v.to(device) for k, v in batch.items()} for batch in batches)
        return
    side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def load() -> tuple[Inputs, Any] | None:
        batch = next(batches, None)
        if batch is None:
            return None
        with torch.cuda.stream(side):
            found = {k: v.pin_memory().to(device, non_blocking=True) for k, v in batch.items()}
            return found, side.record_event()

    with ThreadPoolExecutor(1) as helper:
        ahead = helper.submit(load)
        while (loaded := ahead.result()) is not None:
            ahead = helper.submit(load)
            batch, ready = loaded
            now = torch.cuda.current_stream(device)
            now.wait_event(ready)
            for x in batch.values():
                x.record_stream(now)
            yield batch


class Steps:
    """Takes steps of an optimiser.

    Parameters
    ----------
    run : callable
        Takes a step on a batch: forward, backward, optimiser; gives the loss of the batch and the norm of its gradient.
    device : torch.device

    Attributes
    ----------
    total : float64 tensor []
        Sum over the batches of their losses times their numbers of sequences, since :meth:`begin`.
    norm : tensor []
        Of the last gradient.
    """

    def __init__(self, run: Callable[[Inputs], tuple[Tensor, Tensor]], device: torch.device) -> None:
        self._run, self.device = run, device
        self.captures = device.type == "cuda"
        self._most = _MOST_GRAPHS
        self._seen: Counter[Any] = Counter()
        self._graphs: dict[Any, tuple[Any, Inputs]] = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if self.captures else None
        # a stream of our own: what autograd remembers of the parameters belongs to the stream of their first use
        self._stream: Any = torch.cuda.Stream(device) if self.captures else None  # type: ignore[no-untyped-call]
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.norm = torch.zeros((), device=device)

    def begin(self) -> None:
        """Before a pass over the data."""
        self.total.zero_()

    def __call__(self, batch: Inputs, regular: bool) -> None:
        """A step; ``regular`` says that a batch of the same shapes takes the same operations."""
        if not self.captures:
            self._step(batch)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            for x in batch.values():
                x.record_stream(self._stream)
            key = tuple((name, x.shape, x.dtype) for name, x in batch.items())
            new = key not in self._graphs and len(self._graphs) < self._most
            if regular and new and self._seen[key] >= _EAGER_STEPS:
                self._capture(key, batch)
            found = self._graphs.get(key)
            if found is None:
                self._seen[key] += regular
                self._step(batch)
            else:
                graph, held = found
                for name, x in batch.items():
                    held[name].copy_(x)
                graph.replay()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def _step(self, batch: Inputs) -> None:
        loss, norm = self._run(batch)
        self.total += loss.detach().double() * len(batch["mask"] if "mask" in batch else next(iter(batch.values())))
        self.norm.copy_(norm.detach())

    def _capture(self, key: Any, batch: Inputs) -> None:
        held = {name: x.clone() for name, x in batch.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            # not by torch.cuda.graph, which collects Python's garbage first; another thread copies the next batch
            graph.capture_begin(self._pool, "thread_local")
            try:
                self._step(held)
            finally:
                graph.capture_end()
        except RuntimeError:  # something in the network cannot be captured: dropout between cuDNN's layers, for one
            self._most = 0
            torch.cuda.synchronize(self.device)
            return
        self._graphs[key] = graph, held
