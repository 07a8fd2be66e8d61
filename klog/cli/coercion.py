"""From words on the command line to values.

typer hands each word to pydantic, whose import alone takes 0.1 s of a command's half second. The few kinds of value
that klog's commands take are converted here instead: text, whole and decimal numbers, paths, one of several words
(an Enum or a Literal), and whatever a ``parser`` makes of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from typer._click.core import Context
from typer._coercion import RuntimeParam
from typer.core import TyperArgument, TyperOption

from klog.errors import KlogError

Parameter = TyperArgument | TyperOption

INTEGER_MAX = 2**63 - 1


@dataclass(frozen=True)
class PlainCoercion(RuntimeParam):
    """The conversion of one parameter, in place of typer's own."""

    convert: Callable[[Any], Any]

    def _coerce_value(self, value: Any, param: Any, ctx: Context) -> Any:
        words = value if isinstance(value, list | tuple) else [value]
        try:
            # What is no text is a default, and has its type already.
            converted = [self.convert(word) if isinstance(word, str) else word for word in words]
        except KlogError as error:
            text = f"{error.message} ({error.hint})" if error.hint else error.message
            raise typer.BadParameter(text, ctx=ctx, param=param) from None
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None
        return converted if isinstance(value, list | tuple) else converted[0]


def coerce_plainly(parameter: Parameter) -> None:
    """Make a parameter convert its words without pydantic."""
    descriptor = parameter.type_descriptor
    info = descriptor.parameter_info
    convert = info.parser or _converter(descriptor.annotation)
    if info.min is not None or info.max is not None:
        convert = _within(convert, info.min, info.max)
    # The one place that reaches into typer: `get_runtime_param` builds this lazily, once, where it is None.
    parameter._runtime_param = PlainCoercion(info, descriptor.annotation, convert)


def choices(parameter: Any) -> tuple[str, ...]:
    """The words that a parameter takes, where it takes one of several; otherwise nothing."""
    annotation = _inner(parameter.type_descriptor.annotation)
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(str(member.value) for member in annotation)
    return ()


def _converter(annotation: Any) -> Callable[[Any], Any]:
    inner = _inner(annotation)
    if get_origin(inner) is Literal:
        words = {str(choice): choice for choice in get_args(inner)}
        return lambda word: _one_of(word, words)
    if isinstance(inner, type) and issubclass(inner, Enum):
        members = {str(member.value): member for member in inner}
        return lambda word: _one_of(word, members)
    if inner is int:
        return _integer
    if inner is float:
        return _decimal
    if inner is bool:
        return bool
    if inner is str:
        return str
    if inner is Path:
        return lambda word: Path(word).expanduser()
    raise TypeError(f"commands have no parameters of type {annotation!r}")


def _inner(annotation: Any) -> Any:
    """``int`` of ``int | None`` and of ``list[int]``."""
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return _inner(parts[0]) if len(parts) == 1 else annotation
    if get_origin(annotation) is list:
        return _inner(get_args(annotation)[0])
    return annotation


def _one_of(word: str, known: dict[str, Any]) -> Any:
    if word not in known:
        raise ValueError(f"{word!r} is none of {', '.join(known)}")
    return known[word]


def _integer(word: Any) -> int:
    try:
        number = int(word)
    except ValueError:
        raise ValueError(f"{word!r} is no whole number") from None
    # Offsets and counts have 64 bits on the wire and in files: what is larger is a slip of the hand.
    if not -INTEGER_MAX <= number <= INTEGER_MAX:
        raise ValueError(f"{word} is not at most {INTEGER_MAX}")
    return number


def _decimal(word: Any) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word!r} is no number") from None


def _within(convert: Callable[[Any], Any], low: float | None, high: float | None) -> Callable[[Any], Any]:
    def check(word: Any) -> Any:
        value = convert(word)
        if (low is not None and value < low) or (high is not None and value > high):
            limits = [f"{text} {limit}" for text, limit in (("at least", low), ("at most", high)) if limit is not None]
            raise ValueError(f"{word} is not {' and '.join(limits)}")
        return value

    return check
