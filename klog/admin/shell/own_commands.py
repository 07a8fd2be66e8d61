"""The shell's own commands: what is about the shell and not about a cluster, and walking through ZooKeeper."""

from __future__ import annotations

import posixpath
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from klog.admin.shell.facts import Place
from klog.admin.shell.screen import Screen
from klog.admin.shell.settings import ShellSettings
from klog.admin.shell.transcript import Transcript
from klog.admin.shell.tree import CommandTree, Kind, command_path
from klog.admin.shell.using import Using
from klog.errors import NoSuchThing, UsageError
from klog.render.visible import for_stream

HISTORY_SHOWN = 50


class Shell(Protocol):
    """The shell, as its own commands see it: `klog.admin.shell.shell.Shell`."""

    tree: CommandTree
    settings: ShellSettings
    screen: Screen
    transcript: Transcript
    variables: dict[str, str]
    using: Using | None
    folder: str
    place: Place | None
    trouble: str
    history: Callable[[], Sequence[str]]

    def look_where(self) -> None: ...

    def run_named(self, text: str, arguments: Sequence[str]) -> int: ...


class OwnCommand(NamedTuple):
    """One of them: its usage line, and what its argument is."""

    usage: str
    help: str
    run: Callable[[Shell, list[str]], int]
    kind: Kind | None = None


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
    shell.using, shell.folder = None, "/"
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
    found = [kind for kind in kinds if name in shell.tree.names(kind, "")]
    if len(found) > 1:
        raise UsageError(f"{name!r} is a topic and a group", hint=f"use topic {name}, or use group {name}")
    if not found or name is None:
        raise NoSuchThing(f"there is no {' or '.join(kinds)} {name!r}", hint="`topic list`, `group list`")
    shell.using = Using(found[0], name)
    return 0


def _named(shell: Shell, words: list[str]) -> int:
    if not words:
        for name, text in sorted(shell.settings.named.items()):
            _say(f"{name}  {text}")
        return 0
    found = shell.settings.named.get(words[0])
    if found is None:
        known = ", ".join(sorted(shell.settings.named)) or "none yet: \\ns NAME COMMAND"
        raise NoSuchThing(f"there is no named command {words[0]!r}", hint=f"named commands: {known}")
    return shell.run_named(found, words[1:])


def _save_named(shell: Shell, words: list[str]) -> int:
    if len(words) < 2:
        raise UsageError("a name and a command are needed", hint="\\ns behind 'lag $1 --only-lagging'")
    shell.settings.save("named", words[0], words[1] if len(words) == 2 else shlex.join(words[1:]))
    return 0


def _delete_named(shell: Shell, words: list[str]) -> int:
    name = _one(words, "\\nd NAME")
    if name is None or name not in shell.settings.named:
        raise NoSuchThing(f"there is no named command {name or ''!r}")
    shell.settings.save("named", name, None)
    return 0


def _alias(shell: Shell, words: list[str]) -> int:
    if not words:
        for name, text in sorted(shell.settings.aliases.items()):
            _say(f"{name}  {text}")
        return 0
    if len(words) < 2:
        raise UsageError("a name and its words are needed", hint="alias tl topic list")
    if words[0] in OWN or shell.tree.knows((words[0],)):
        raise UsageError(f"{words[0]!r} is a command already", hint="choose another name")
    shell.settings.save("aliases", words[0], words[1] if len(words) == 2 else shlex.join(words[1:]))
    return 0


def _unalias(shell: Shell, words: list[str]) -> int:
    name = _one(words, "unalias NAME")
    if name is None or name not in shell.settings.aliases:
        raise NoSuchThing(f"there is no alias {name or ''!r}")
    shell.settings.save("aliases", name, None)
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


def _transcript(shell: Shell, words: list[str]) -> int:
    file = _one(words, "\\o FILE")
    if file is None:
        shell.transcript.stop()
    else:
        shell.transcript.start(Path(file))
    return 0


def _path(shell: Shell, word: str | None) -> str:
    """A znode's path: absolute, or below the folder; ``..`` goes up."""
    return posixpath.normpath(posixpath.join(shell.folder, word or ".")).replace("//", "/")


def _cd(shell: Shell, words: list[str]) -> int:
    word = _one(words, "cd PATH")
    path = "/" if word is None else _path(shell, word)
    shell.tree.names(Kind.ZNODE, path)
    shell.folder = path
    return 0


def _pwd(shell: Shell, words: list[str]) -> int:
    _say(shell.folder)
    return 0


def _ls(shell: Shell, words: list[str]) -> int:
    return _on_znode(shell, "ls", words)


def _cat(shell: Shell, words: list[str]) -> int:
    if not any(not word.startswith("-") for word in words):
        raise UsageError("a path is needed", hint="cat PATH")
    return _on_znode(shell, "get", words)


def _on_znode(shell: Shell, verb: str, words: list[str]) -> int:
    """``zk VERB`` with its flags, and the path below the folder."""
    shape = shell.tree.shape(command_path(shell.tree, ["zk", verb]))
    assert shape is not None
    if words and not words[0].startswith("-"):
        words = [_path(shell, words[0]), *words[1:]]
    elif words and not words[-1].startswith("-") and not _is_value(shape.flag(words[-2]) if words[1:] else None):
        words = [*words[:-1], _path(shell, words[-1])]
    else:
        words = [shell.folder, *words]
    return shell.tree.execute(["zk", verb, *words])


def _is_value(flag: object) -> bool:
    return bool(getattr(flag, "takes_value", False))


def _set(shell: Shell, words: list[str]) -> int:
    if not words:
        for name, value in sorted(shell.variables.items()):
            _say(f"{name}={value}")
        return 0
    name, value = (words[0], " ".join(words[1:])) if len(words) > 1 else words[0].partition("=")[::2]
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"{name!r} cannot be a variable's name", hint="\\set NAME VALUE")
    shell.variables[name] = value
    return 0


def _unset(shell: Shell, words: list[str]) -> int:
    shell.variables.pop(_one(words, "\\unset NAME") or "", None)
    return 0


def _echo(shell: Shell, words: list[str]) -> int:
    _say(" ".join(words))
    return 0


def _only_behind(shell: Shell, words: list[str]) -> int:
    raise UsageError("\\watch stands behind a command", hint="topic list \\watch 2s")


def _leave(shell: Shell, words: list[str]) -> int:
    return 0  # the loop has ended before


OWN: dict[str, OwnCommand] = {
    "\\c": OwnCommand("\\c [PROFILE|HOST:PORT]", "Talk to another cluster; show this one.", _switch, Kind.PROFILE),
    "use": OwnCommand("use [TOPIC|GROUP]", "Name that later commands may leave out; none ends it.", _use, Kind.TOPIC),
    "\\watch": OwnCommand("COMMAND \\watch [2s]", "Repeat the command until Ctrl-C.", _only_behind),
    "\\n": OwnCommand("\\n [NAME ARGUMENT...]", "Run a named command; list them.", _named),
    "\\ns": OwnCommand("\\ns NAME 'COMMAND $1'", "Keep a named command.", _save_named),
    "\\nd": OwnCommand("\\nd NAME", "Delete a named command.", _delete_named),
    "alias": OwnCommand("alias [NAME WORD...]", "Keep a short name for words; list them.", _alias),
    "unalias": OwnCommand("unalias NAME", "Delete an alias.", _unalias),
    "cd": OwnCommand("cd [PATH]", "Go to a folder of ZooKeeper.", _cd, Kind.ZNODE),
    "pwd": OwnCommand("pwd", "Show the folder of ZooKeeper.", _pwd),
    "ls": OwnCommand("ls [PATH] [FLAGS]", "List the children of a znode.", _ls, Kind.ZNODE),
    "cat": OwnCommand("cat PATH [FLAGS]", "Show the data of a znode.", _cat, Kind.ZNODE),
    "\\set": OwnCommand("\\set [NAME VALUE]", "Set $NAME; list the variables.", _set),
    "\\unset": OwnCommand("\\unset NAME", "Forget a variable.", _unset),
    "\\o": OwnCommand("\\o [FILE]", "Append commands and output to a file; end it.", _transcript, Kind.FILE),
    "history": OwnCommand("history [N|TEXT]", "Show the last lines, or those with a text.", _history),
    "echo": OwnCommand("echo WORD...", "Print words.", _echo),
    "\\h": OwnCommand("\\h [COMMAND]", "Show the shell's own commands, or the help of a command.", _help),
    "help": OwnCommand("help [COMMAND]", "Show klog's commands, or the help of one.", _all_help),
    "exit": OwnCommand("exit", "Leave the shell, as do quit, \\q and Ctrl-D.", _leave),
}
LEAVE = frozenset({"exit", "quit", "\\q"})
