"""From arguments on the command line to values.

Typer has pydantic convert each argument, whose import alone takes 0.1 s of a command's half second. klog converts the
few types that its commands take itself: text, integers, decimal numbers, paths, choices (an Enum or a Literal), and
whatever a ``parser`` returns.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperOption

from klog.cli import other_words
from klog.errors import KlogError, UsageError

Parameter = TyperArgument | TyperOption

INTEGER_MAX = 2**63 - 1


def convert_here(parameter: Parameter, declared: Any, info: Any) -> None:
    """Make a parameter convert its values to a type without pydantic. ``info``: the ``typer.Option`` it was made of.

    ``process_value`` is where Click, and so Typer, turns what was typed into a value.
    """
    convert = info.parser or _converter(declared)
    kind, is_flag = _inner(declared), parameter.param_type_name == "option"
    if info.parser is None and (kind is Path or (kind is str and is_flag)):
        convert = partial(_not_empty, convert, parameter.default)
    if info.min is not None or info.max is not None:
        convert = _within(convert, info.min, info.max)
    parameter.process_value = partial(_process, parameter, convert)  # type: ignore[method-assign]


class WrongWords(typer.BadParameter):
    """Words that do not go together, a value that a parameter does not take, or one that is missing; with a hint."""

    def __init__(self, message: str, ctx: Any, parameter: Parameter | None = None, *, hint: str | None) -> None:
        super().__init__(message, ctx, parameter)
        self.hint = hint

    def format_message(self) -> str:
        if self.param is None:
            return self.message
        is_argument = self.param.param_type_name == "argument"
        name = self.param.metavar if is_argument else "/".join(self.param.opts[:2])
        goes_on = self.message.startswith(("must ", "is "))
        return f"{name} {self.message}" if goes_on else f"{name}: {self.message}"


def _process(parameter: Parameter, convert: Callable[[Any], Any], ctx: typer.Context, value: Any) -> Any:
    """What Click's ``process_value`` does, with klog's conversion: convert, check that it is there, call back."""
    several = parameter.multiple or parameter.nargs == -1
    given = value if several and value is not None else [] if value is None else [value]
    try:
        # What is not text is a default, and has its type already.
        converted = [convert(one) if isinstance(one, str) else one for one in given]
    except KlogError as error:
        raise WrongWords(error.message, ctx, parameter, hint=_two_dashes(parameter, given, ctx) or error.hint) from None
    except ValueError as error:
        raise WrongWords(str(error), ctx, parameter, hint=_two_dashes(parameter, given, ctx)) from None
    if parameter.required and not converted and not ctx.resilient_parsing:
        raise WrongWords("is missing", ctx, parameter, hint=getattr(ctx.command, "usage_hint", lambda _: None)(ctx))
    found = converted if several else converted[0] if converted else None
    return found if parameter.callback is None else parameter.callback(ctx, parameter, found)


def _two_dashes(parameter: Parameter, given: Iterable[Any], ctx: typer.Context) -> str | None:
    """A hint where ``-partitions`` was typed, which is ``-p`` with the value ``artitions``."""
    short = next((name for name in parameter.opts if len(name) == 2), "")
    flags = {name for one in ctx.command.params for name in one.opts}
    meant = (f"-{short}{one}".partition("=")[0] for one in given if short and isinstance(one, str))
    return next((f"did you mean {name}? names of flags have two dashes" for name in meant if name in flags), None)


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
        return _text
    if inner is Path:
        return lambda word: Path(word).expanduser()
    raise TypeError(f"commands have no parameters of type {annotation!r}")


def _inner(annotation: Any) -> Any:
    """``int`` of ``Annotated[int, ...]``, of ``int | None`` and of ``list[int]``."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return _inner(parts[0]) if len(parts) == 1 else annotation
    if get_origin(annotation) is list:
        return _inner(get_args(annotation)[0])
    return annotation


def _one_of(word: str, known: dict[str, Any]) -> Any:
    if word not in known:
        raise ValueError(f"must be one of {', '.join(known)}, got {word!r}{did_you_mean(word, known)}")
    return known[word]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean this or that?``, or nothing where no name is near."""
    from difflib import get_close_matches

    known = list(known)
    meant = other_words.VALUES.get(word.lower())
    near = [meant] if meant in known else get_close_matches(word.lower(), known, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _text(word: Any) -> str:
    """What can be sent and stored. A parameter that takes any bytes (a message's key) has ``parser=str``."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(f"must be UTF-8 text, got {word!r}") from None
    return str(word)


def _not_empty(convert: Callable[[Any], Any], default: Any, word: str) -> Any:
    """An empty value comes of a variable that is not set; it would mean no group, no prefix, or the working folder."""
    if not word and default != "":
        raise UsageError("must not be empty", hint="leave it out, or set the variable that it comes from")
    return convert(word)


def _integer(word: Any) -> int:
    try:
        number = int(word)
    except ValueError:
        raise ValueError(f"must be an integer, got {word!r}") from None
    # Offsets and counts have 64 bits on the wire and in files: what is larger is a slip of the hand.
    if not -INTEGER_MAX <= number <= INTEGER_MAX:
        raise ValueError(f"must be at most {INTEGER_MAX}, got {word}")
    return number


def _decimal(word: Any) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"must be a number, got {word!r}") from None


def _within(convert: Callable[[Any], Any], low: float | None, high: float | None) -> Callable[[Any], Any]:
    def check(word: Any) -> Any:
        value = convert(word)
        if (low is not None and value < low) or (high is not None and value > high):
            limits = (
                f"at least {low}" if high is None else f"at most {high}" if low is None else f"between {low} and {high}"
            )
            raise ValueError(f"must be {limits}, got {word}")
        return value

    return check
