"""Gives a function the parts that it names: its keyword-only parameters, found by name and type, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


class Injector:
    """``parts``: a dataclass, whose fields are the parts."""

    def __init__(self, parts: object) -> None:
        self._parts = parts
        self._types = get_type_hints(type(parts))

    def inject(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with its keyword-only parameters filled.

        A class gets them as arguments of its constructor; the result is its instance. TypeError for a parameter that
        is not among the parts, or has another type there.
        """
        constructor: Any = function.__init__ if inspect.isclass(function) else function
        wanted = get_type_hints(constructor)
        chosen: dict[str, Any] = {}
        for name, parameter in inspect.signature(constructor).parameters.items():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
            asking = f"{function.__module__}.{function.__qualname__} asks for the part {name}"
            if name not in self._types:
                raise TypeError(f"{asking}; there are {', '.join(self._types)}")
            if wanted.get(name) != self._types[name]:
                raise TypeError(f"{asking} as {wanted.get(name)}; it is {self._types[name]}")
            chosen[name] = getattr(self._parts, name)
        if inspect.isclass(function):
            instance: Any = function(**chosen)
            return instance  # type: ignore[no-any-return]
        return functools.partial(function, **chosen) if chosen else function
