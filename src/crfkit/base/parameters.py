"""Parameters by scikit-learn's rules, without importing scikit-learn.

It is not a dependency: importing it takes a second and a hundred megabytes. Where scikit-learn asks for more (clones,
tags), it has been imported already.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass, replace
from functools import cache
from numbers import Integral, Real
from typing import Any, Self

from crfkit.base.messages import not_fitted, warn
from crfkit.base.shown import html_table, shown


def has_lone_surrogate(text: str) -> bool:
    """Whether half of a surrogate pair stands alone in a text, which then has no UTF-8."""
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def check_text(text: str, what: str) -> None:
    """Raises if half of a surrogate pair stands alone in a text."""
    if has_lone_surrogate(text):
        raise ValueError(f"{what} holds a lone surrogate and is not valid text, got {text!r}")


def check_number(
    owner: object,
    name: str,
    value: Any,
    low: float,
    *,
    integer: bool = False,
    optional: bool = False,
    strict: bool = False,
) -> None:
    """Raises if a parameter is not a number of at least (or, if strict, above) ``low``; the owner may be a name."""
    if value is None and optional:
        return
    kind = Integral if integer else Real
    rule = f"{'an int' if integer else 'a number'} {'>' if strict else '>='} {low:g}"
    if optional:
        rule += " or None"
    good = type(value) is not bool and isinstance(value, kind) and value == value
    if not good or (float(value) <= low if strict else float(value) < low):
        whose = owner if isinstance(owner, str) else type(owner).__name__
        raise ValueError(f"{name!r} of {whose} must be {rule}, got {value!r}")


def _settings_of(value: Any) -> list[str]:
    """Names of the settings of a parameter that is a record, such as ``TokenFeatures(window=2)``."""
    return [f.name for f in fields(value) if f.init] if is_dataclass(value) and not isinstance(value, type) else []


class Estimator(ABC):
    """Base of the estimators: parameters are the arguments of ``__init__``, stored under their names."""

    _cloned = False  # whether a search, or somebody else, cloned it: then its checkpoint has a path of its own

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Stores the arguments of ``__init__``, its ``locals()``, under their names."""
        for name in self._parameters():
            setattr(self, name, arguments[name])

    @classmethod
    @cache
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(cls.__init__).parameters
        return {name: p for name, p in parameters.items() if name != "self"}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; if ``deep``, also those of nested objects, such as ``features__window``."""
        out = {name: getattr(self, name) for name in sorted(self._parameters())}
        if deep:
            out |= {f"{name}__{k}": getattr(value, k) for name, value in out.items() for k in _settings_of(value)}
        return out

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name; ``features__window=2`` replaces ``features`` by one with this ``window``."""
        known = self._parameters()
        for name, value in sorted(params.items(), key=lambda item: "__" in item[0]):  # whole ones first
            whole, _, part = name.partition("__")
            if whole not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {sorted(known)}."
                )
            if part:
                old = getattr(self, whole)
                if part not in _settings_of(old):
                    raise ValueError(f"Invalid parameter {name!r} for estimator {self}: {old!r} has no {part!r}.")
                value = replace(old, **{part: value})
            setattr(self, whole, value)
        return self

    def __sklearn_clone__(self) -> Self:
        from sklearn.base import clone

        twin = type(self)(**{name: clone(value, safe=False) for name, value in self.get_params(deep=False).items()})
        twin._cloned = True
        return twin

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, p in self._parameters().items()
            if getattr(self, name) is not p.default and getattr(self, name) != p.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        changed = {k: v for k, v in self.get_params(deep=False).items() if v is not self._parameters()[k].default}
        rows = [(k, shown(v)) for k, v in changed.items()]
        fitted = self._is_fitted()
        if fitted:
            rows += [(k, shown(getattr(self, k))) for k in ("classes_", "n_iter_") if hasattr(self, k)]
        return html_table(f"{type(self).__name__}, {'fitted' if fitted else 'not fitted'}", rows)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, two_d_labels=True),
            input_tags=InputTags(two_d_array=False, string=True, dict=True),
            no_validation=True,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted()

    def _say_not_converged(self, text: str) -> None:
        """Called by ``fit`` if it ends before it converges; the command line and the look-alikes override it."""
        warn(text, stacklevel=3)

    @abstractmethod
    def _is_fitted(self) -> bool:
        """Whether there is a model."""

    def _require_fitted(self) -> None:
        if not self._is_fitted():
            raise not_fitted(self)
