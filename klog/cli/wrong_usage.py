"""A command line that cannot be parsed: the mistake in it, and what was probably meant."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from typer.core import TyperOption

from klog.cli import error_report, other_words
from klog.cli.command import KlogCommand, Noun, arguments, usage_line
from klog.cli.flag_parsing import did_you_mean
from klog.cli.traits import command_name
from klog.errors import KlogError


@runtime_checkable
class WrongUsage(Protocol):
    """What Typer raises where it cannot parse a command line. It exports some of these errors, and no common class."""

    exit_code: int

    def format_message(self) -> str:
        """What does not parse."""
        ...


def show(error: WrongUsage, words: list[str]) -> int:
    """Show the mistake in the command line ``words``; the exit code."""
    ctx = getattr(error, "ctx", None)
    message, hint = _in_words(error, ctx)
    wrong = KlogError(message, hint=hint)
    wrong.code = "USAGE"
    name = command_name(ctx) if ctx is not None else ""
    error_report.show(wrong, name, error_report.format_in(words), sys.stderr)
    return error.exit_code


def _in_words(error: WrongUsage, ctx: Any) -> tuple[str, str]:
    """The message and the hint."""
    message = error.format_message().replace("\n\t", " ")
    see = f"see `{'klog' if ctx is None else ctx.command_path} --help`"
    own_hint = getattr(error, "hint", None)
    if own_hint:
        return message, own_hint
    word = getattr(error, "option_name", None)
    if ctx is None or not isinstance(word, str):
        return message, see
    if not hasattr(error, "possibilities"):  # the flag is there, and its value is not, or should not be
        flag = next((one for one in _flags(ctx) if word in (*one.opts, *one.secondary_opts)), None)
        return _value_of(flag, word), see
    taken = other_words.ARGUMENTS.get(word) or word.lstrip("-").upper()
    if isinstance(ctx.command, KlogCommand) and taken in [one.metavar for one in arguments(ctx.command)]:
        return f"flag {word} does not exist: {taken} is given without a flag", f"usage: {usage_line(ctx)}"
    if re.match(r"-\d", word) and not word.startswith("--"):
        return f"flag {word} does not exist", "an argument that begins with - follows --, which ends the flags"
    return f"flag {word} does not exist{_meant(ctx, word)}", see


def _value_of(flag: TyperOption | None, word: str) -> str:
    """The mistake in the use of a known flag."""
    if flag is None or flag.is_flag or flag.count:
        return f"{word} takes no value"
    return f"{word} needs a value: {word} {flag.metavar}"


def _meant(ctx: Any, word: str) -> str:
    """``; did you mean this or that?``, or nothing."""
    if isinstance(ctx.command, Noun) and word.lstrip("-") in ctx.command.commands:
        return f"; did you mean `{ctx.command_path} {word.lstrip('-')}`?"
    known = {name for flag in _flags(ctx) for name in flag.opts}
    other = other_words.FLAGS.get(word)
    if other is not None and other.needs in known:
        return f"; did you mean {other.written}?"
    if len(word) == 2:
        same = [name for name in sorted(known) if len(name) == 2 and name.lower() == word.lower()]
        near = same or [
            flag.opts[-1]
            for flag in _flags(ctx)
            if flag.opts[-1].startswith(f"--{word[1]}") and getattr(flag, "rich_help_panel", None) is None
        ]
        return f"; did you mean {' or '.join(near[:2])}?" if near else ""
    return did_you_mean(word, sorted(name for name in known if name.startswith("--")))


def _flags(ctx: Any) -> Iterator[TyperOption]:
    for one in ctx.command.get_params(ctx):
        if isinstance(one, TyperOption) and not one.hidden:
            yield one
