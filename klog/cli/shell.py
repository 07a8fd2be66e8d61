"""``klog shell``: hands the command tree to the admin shell."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperOption

from klog.cli import interrupt
from klog.cli.command import KlogCommand, NounGroup, arguments, top_command
from klog.cli.command_table import ENTRIES, entry_named
from klog.cli.conversion import choices
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.name_cache import remember_groups, remember_topics
from klog.cli.shared_flags import SharedFlags
from klog.cli.target import NoCluster, Target, TargetFlags, klog_home, resolve
from klog.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.shell.tree import CommandShape, Suggestion

REFRESH_TIMEOUT_S = 2.0
"""Time limit of the background refresh of names; no command waits for it."""


@top_command("shell")
def shell(
    invocation: Invocation,
    commands: Annotated[
        list[str] | None, typer.Option("-e", "--execute", metavar="COMMAND", help="Run this command line and exit.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Run the lines of a file and exit; - for stdin.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("-k", "--keep-going", help="Continue a script after a command that fails.")
    ] = False,
) -> int:
    """Run commands interactively on one cluster.

    Tab completes commands, flags and topics. The history leaves out lines that begin with a space. If stdin is not a
    terminal, its lines are run as a script. A script ends at the first command that fails, with its exit code.
    """
    from klog.admin.shell.prompt import Shell, script_lines

    if commands and file is not None:
        raise UsageError("-e and -f exclude each other")
    running = Shell(Tree(invocation.shared))
    if commands:
        return running.run_lines(commands, keep_going=keep_going)
    if file is not None and str(file) != "-":
        with file.open(encoding="utf-8") as stream:
            return running.run_lines(script_lines(stream), keep_going=keep_going)
    if file is not None or not is_terminal(sys.stdin):
        return running.run_lines(script_lines(sys.stdin), keep_going=keep_going)
    return running.interact(klog_home() / "shell_history")


class Tree:
    """klog's commands as ``klog.admin.shell.tree.CommandTree``; ``shared`` is what the shell was started with."""

    def __init__(self, shared: SharedFlags) -> None:
        self._shared = shared

    def execute(self, words: list[str]) -> int:
        """Run one line as ``klog`` would, with the shell's flags below the line's own."""
        from klog.cli.root import root

        before = interrupt.take_over(ends_process=False)
        try:
            return root().execute(words, obj=self._shared)
        except Exception as error:
            sys.stderr.write(f"klog: internal error: {type(error).__name__}: {error}\n")
            return 1
        finally:
            interrupt.give_back(before)

    def words_after(self, path: tuple[str, ...]) -> list[Suggestion]:
        """Nouns and commands, or a noun's verbs."""
        from klog.admin.shell.tree import Suggestion

        if not path:
            return [Suggestion(entry.name, entry.help) for entry in ENTRIES if entry.name != "shell"]
        command = self._command(path)
        if not isinstance(command, NounGroup):
            return []
        return [Suggestion(verb, child.get_short_help_str(60)) for verb, child in command.commands.items()]

    def shape(self, path: tuple[str, ...]) -> CommandShape | None:
        """A command's flags and arguments."""
        from klog.admin.shell.tree import CommandShape, Flag

        command = self._command(path)
        if not isinstance(command, KlogCommand):
            return None
        options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
        flags = [
            Flag(
                (*option.opts, *option.secondary_opts),
                option.help or "",
                not option.is_flag,
                choices(command.types[option.name]),
            )
            for option in options
        ]
        metavars = [argument.metavar for argument in arguments(command)]
        files = "FILE" in metavars or "PATH" in metavars
        return CommandShape(tuple(flags), "TOPIC" in metavars, files, "GROUP" in metavars)

    def cluster(self) -> str:
        """``127.0.0.1:9092 (from ...)``, or why there is none."""
        try:
            return f"cluster {self._target()}"
        except NoCluster:
            return "no cluster: start one with `up`, or give one: `klog shell -B HOST:PORT`"
        except (KlogError, OSError) as error:
            return f"no cluster: {error}"

    def topic_names(self) -> list[str]:
        """The topics of the cluster, asked for now."""
        names = asyncio.run(_topic_names(self._target()))
        remember_topics(self._target(), names)
        return names

    def group_names(self) -> list[str]:
        """The groups that the brokers of the cluster know, asked for now."""
        names = asyncio.run(_group_names(self._target()))
        remember_groups(self._target(), names)
        return names

    def _target(self) -> Target:
        flags = TargetFlags(self._shared.bootstrap_server, self._shared.zookeeper, self._shared.profile)
        return resolve(flags, os.environ, klog_home())

    def _command(self, path: tuple[str, ...]) -> object:
        from klog.cli.root import load

        entry = entry_named(path[0]) if path else None
        if entry is None:
            return None
        command = load(entry)
        for verb in path[1:]:
            command = command.commands.get(verb) if isinstance(command, NounGroup) else None  # type: ignore[assignment]
        return command


async def _topic_names(target: Target) -> list[str]:
    from klog.client.cluster import Cluster

    if target.bootstrap is None:
        return []
    async with await Cluster.connect(target.bootstrap, source=target.source, timeout_s=REFRESH_TIMEOUT_S) as cluster:
        return list((await cluster.metadata()).topics)


async def _group_names(target: Target) -> list[str]:
    from klog.admin import groups
    from klog.client.cluster import Cluster

    if target.bootstrap is None:
        return []
    async with await Cluster.connect(target.bootstrap, source=target.source, timeout_s=REFRESH_TIMEOUT_S) as cluster:
        return sorted(await groups.phases(cluster))
