"""The shell's own commands: what is about the shell and the choice of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from klog.admin.shell.facts import Place
from klog.admin.shell.tree import CommandTree, Kind
from klog.admin.shell.using import Using
from klog.errors import NoSuchThing, UsageError
from klog.render.visible import for_stream

HISTORY_SHOWN = 50


class Shell(Protocol):
    """The shell, as its own commands see it: `klog.admin.shell.shell.Shell`."""

    tree: CommandTree
    using: Using | None
    place: Place | None
    trouble: str
    history: Callable[[], Sequence[str]]

    def look_where(self) -> None: ...


class OwnCommand(NamedTuple):
    """One of them: its usage line, and whose names its argument may be."""

    usage: str
    help: str
    run: Callable[[Shell, list[str]], int]
    names: str | None = None


def _say(text: str) -> None:
    sys.stdout.write(for_stream(text, sys.stdout) + "\n")


def _one(words: list[str], usage: str) -> str | None:
    if len(words) > 1:
        raise UsageError(f"too many words: {' '.join(words[1:])}", hint=usage)
    return words[0] if words else None


def _switch(shell: Shell, words: list[str]) -> int:
    where = _one(words, "\\c PROFILE")
    if where is None:
        _say(shell.place.text if shell.place is not None else shell.trouble)
        return 0
    shell.tree.switch(where)
    shell.using = None
    shell.look_where()
    return 0


def _use(shell: Shell, words: list[str]) -> int:
    if not words:
        shell.using = None
        return 0
    kinds = [Kind.TOPIC, Kind.GROUP]
    if words[0] in kinds and len(words) > 1:
        kinds, words = [Kind(words[0])], words[1:]
    name = _one(words, "use TOPIC, use GROUP, or use topic NAME")
    found = [kind for kind in kinds if name in shell.tree.names(f"{kind}s", "")]
    if len(found) > 1:
        raise UsageError(f"{name!r} is a topic and a group", hint=f"use topic {name}, or use group {name}")
    if not found or name is None:
        raise NoSuchThing(f"there is no {' or '.join(kinds)} {name!r}", hint="`topic list`, `group list`")
    shell.using = Using(found[0], name)
    return 0


def _help(shell: Shell, words: list[str]) -> int:
    if words:
        own = OWN.get(words[0])
        if own is None:
            return shell.tree.execute([*words, "--help"])
        _say(f"{own.usage}\n  {own.help}")
        return 0
    width = max(len(own.usage) for own in OWN.values())
    _say("The shell's own commands; `help` lists klog's, `\\h COMMAND` explains one:")
    for own in dict.fromkeys(OWN.values()):
        _say(f"  {own.usage:<{width}}  {own.help}")
    return 0


def _all_help(shell: Shell, words: list[str]) -> int:
    status = shell.tree.execute(["--help"])
    _say("\nThe shell has commands of its own: \\h")
    return status


def _history(shell: Shell, words: list[str]) -> int:
    lines = list(shell.history())
    wanted = " ".join(words)
    shown = [line for line in lines if wanted in line] if wanted and not wanted.isdigit() else lines
    for line in shown[-(int(wanted) if wanted.isdigit() else HISTORY_SHOWN) :]:
        _say(line)
    return 0


def _echo(shell: Shell, words: list[str]) -> int:
    _say(" ".join(words))
    return 0


def _only_behind(shell: Shell, words: list[str]) -> int:
    raise UsageError("\\watch stands behind a command", hint="topic list \\watch 2s")


def _leave(shell: Shell, words: list[str]) -> int:
    return 0  # the loop has ended before


OWN: dict[str, OwnCommand] = {
    "\\c": OwnCommand("\\c [PROFILE|HOST:PORT]", "Talk to another cluster; show this one.", _switch, "profiles"),
    "use": OwnCommand("use [TOPIC|GROUP]", "Name that later commands may leave out; none ends it.", _use, "topics"),
    "\\watch": OwnCommand("COMMAND \\watch [2s]", "Repeat the command until Ctrl-C.", _only_behind),
    "history": OwnCommand("history [N|TEXT]", "Show the last lines, or those with a text.", _history),
    "echo": OwnCommand("echo WORD...", "Print words.", _echo),
    "\\h": OwnCommand("\\h [COMMAND]", "Show the shell's own commands, or the help of a command.", _help),
    "help": OwnCommand("help [COMMAND]", "Show klog's commands, or the help of one.", _all_help),
    "exit": OwnCommand("exit", "Leave the shell, as do quit, \\q and Ctrl-D.", _leave),
}
LEAVE = frozenset({"exit", "quit", "\\q"})
