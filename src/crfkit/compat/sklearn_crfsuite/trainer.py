"""sklearn-crfsuite's trainer, which prints a line for every iteration."""

from __future__ import annotations

from typing import Any

from crfkit.compat import pycrfsuite

__all__ = ["LinePerIterationTrainer"]


class LinePerIterationTrainer(pycrfsuite.Trainer):
    """Prints a line for each iteration, and a table of held-out scores at the end."""

    def on_iteration(self, log: str, info: dict[str, Any]) -> None:
        """Prints the iteration's line."""
        line = f"Iter {info['num']:<3} time={info.get('time', 0):<5.2f} loss={info.get('loss', 0):<8.2f} "
        if "active_features" in info:
            line += f"active={info['active_features']:<5} "
        if "avg_precision" in info:
            line += "precision={avg_precision:.3f}  recall={avg_recall:.3f}  F1={avg_f1:.3f}  ".format(**info)
            accuracies = info["item_accuracy_float"], info["instance_accuracy_float"]
            line += "Acc(item/seq)={:.3f} {:.3f}  ".format(*accuracies)
        if "feature_norm" in info:
            line += f"feature_norm={info['feature_norm']:<8.2f}"
        print(line.strip())

    def on_optimization_end(self, log: str) -> None:
        """Prints the table."""
        last = self.logparser.last_iteration if self.logparser is not None else None
        scores = (last or {}).get("scores")
        if scores:
            width = max(5, *map(len, scores))
            print(f"{'Label':{width}}  Precision  Recall     F1  Support")
            for label, s in sorted(scores.items()):
                numbers = (s.precision or 0.0, s.recall or 0.0, s.f1 or 0.0)
                print("{:{}}  {:9.3f}  {:6.3f}  {:5.3f}  {:7d}".format(label, width, *numbers, s.ref))
        super().on_optimization_end(log)
