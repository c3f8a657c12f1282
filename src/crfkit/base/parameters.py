"""Parameters by scikit-learn's rules, without importing scikit-learn.

Importing it takes a second and a hundred megabytes; ``import crfkit`` and the command line do without. Where
scikit-learn asks for more (tags, its own exception), it has been imported already.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from functools import cache
from numbers import Integral, Real
from typing import Any, Self


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
        """Parameters by name."""
        return {name: getattr(self, name) for name in sorted(self._parameters())}

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name."""
        known = self._parameters()
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {sorted(known)}."
                )
            setattr(self, name, value)
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

    @abstractmethod
    def _is_fitted(self) -> bool:
        """Whether there is a model."""

    def _require_fitted(self) -> None:
        if not self._is_fitted():
            from sklearn.exceptions import NotFittedError

            name = type(self).__name__
            raise NotFittedError(
                f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using "
                "this estimator."
            )
