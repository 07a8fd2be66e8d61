"""How a command reports a failure: a sentence and a hint, or the same as data; and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from klog.errors import CannotConnect, KlogError, NoSuchThing, TimedOut
from klog.render import Format
from klog.render.fitting import wrapped
from klog.render.visible import for_stream, is_terminal
from klog.render.writer import yaml_text

if TYPE_CHECKING:
    from klog.cli.target import Target

EXIT_FAILED = 1
EXIT_USAGE = 2

HINT_WIDTH = 80
"""Of a terminal: a wider line is hard to read."""

CONNECT_HINT = "check with `klog status` whether a broker runs; start one with `klog up`, or give another: -B HOST:PORT"


class NeedsAnswer(KlogError, code="NEEDS_ANSWER"):
    """Confirmation was needed, and stdin is not a terminal."""

    exit_code = EXIT_USAGE


class Declined(KlogError, code="DECLINED"):
    """The answer was no."""


class Bug(KlogError, code="BUG"):
    """An exception that klog did not raise on purpose."""


def translated(error: Exception) -> KlogError:
    """Any exception as one of klog's, so that all are shown alike."""
    if isinstance(error, KlogError):
        return error
    if isinstance(error, FileNotFoundError):
        return NoSuchThing(f"{error.filename}: no such file or directory")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return KlogError(f"{where}{error.strerror or error}")
    return Bug(
        f"internal error: {type(error).__name__}: {error}", hint="this is a bug in klog; -v shows the stack trace"
    )


def show(error: KlogError, command: str, form: Format, err: TextIO, *, target: Target | None = None) -> None:
    """Write the error to ``err``: as the envelope's ``error`` with JSON and YAML, as sentences otherwise.

    ``target`` is what was talked to; addresses that the error names are not repeated.
    """
    hint = error.hint
    if hint is None and isinstance(error, CannotConnect | TimedOut):
        hint = CONNECT_HINT
    if form.is_structured:
        content: dict[str, Any] = {"code": error.code, "message": error.message, "hint": hint}
        if target is not None:
            content["cluster"] = str(target)
        document = {"_command": command, "error": content}
        text = yaml_text(document) if form is Format.YAML else json.dumps(document, ensure_ascii=False) + "\n"
        write(err, text)
        return
    lines = [f"klog {command.replace('.', ' ')}: {error.message}".replace("klog :", "klog:")]
    if target is not None:
        addresses = (target.bootstrap or target.zookeeper or "").split(",")
        is_named = all(one in error.message for one in addresses)
        lines.append(f"  address: from {target.source}" if is_named else f"  cluster: {target}")
    if hint:
        is_folded = is_terminal(err) and not hint.startswith("klog ")  # a command is pasted
        lines += wrapped(hint, HINT_WIDTH, "  hint: ") if is_folded else [f"  hint: {hint}"]
    write(err, "\n".join(lines) + "\n")


def write(err: TextIO, text: str) -> None:
    """Write to ``err``, as it may be given it."""
    err.write(for_stream(text, err))
    err.flush()


def format_in(arguments: Sequence[str]) -> Format:
    """The output format that a command line asks for, although it could not be parsed."""
    asked = re.findall(r"(?<!\S)(?:-o ?|--output[ =])(\S+)", " ".join(arguments))
    return next((form for form in Format if form.value in asked), Format.TABLE)
