"""``klog man``: the man pages, wherever klog is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated

import typer

from klog.cli.command import top_command
from klog.cli.command_table import ENTRIES, entry_named
from klog.cli.invocation import Invocation, is_terminal
from klog.errors import UsageError

WIDTH_MAX = 100


def command_words(incomplete: str) -> list[str]:
    """For completion: the nouns and top commands."""
    return [entry.name for entry in ENTRIES if entry.name.startswith(incomplete)]


@top_command("man", connects=False)
def man(
    invocation: Invocation,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="A command, such as `topic create`, or a noun.", autocompletion=command_words
        ),
    ] = None,
) -> int:
    """Show the man page of a command; without one, what holds for all commands.

    On a terminal `man` shows the page, if it is installed; otherwise it is plain text.
    """
    from klog.cli import manual

    if not words:
        return _show(manual.overview(), manual.text_overview)
    entry = entry_named(words[0])
    if entry is None:
        near = get_close_matches(words[0], [one.name for one in ENTRIES], n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "`klog --help` lists the commands"
        raise UsageError(f"there is no command {words[0]!r}", hint=hint)
    described = manual.entry_pages(entry)
    name = " ".join(("klog", entry.name, *words[1:]))
    chosen = [one for one in described if one.name == name or len(words) == 1]
    if not chosen:
        verbs = ", ".join(one.name.rpartition(" ")[2] for one in described if one.name != f"klog {entry.name}")
        raise UsageError(
            f"klog {entry.name} has no verb {' '.join(words[1:])!r}", hint=f"verbs: {verbs}" if verbs else None
        )
    return _show(manual.man_page(entry) if len(words) == 1 else None, lambda width: manual.text_pages(chosen, width))


def _show(roff: str | None, text: Callable[[int], str]) -> int:
    if roff is not None and is_terminal(sys.stdout) and shutil.which("man"):
        return subprocess.run(["man", "-l", "-"], input=roff.encode(), check=False).returncode
    sys.stdout.write(text(min(shutil.get_terminal_size().columns, WIDTH_MAX)))
    return 0
