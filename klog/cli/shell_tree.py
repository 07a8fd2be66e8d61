"""klog's commands as the shell of `klog.admin.shell` sees them."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperOption

from klog.admin.shell.facts import Place
from klog.admin.shell.tree import Argument, CommandShape, Flag, Kind, Names, Suggestion
from klog.cli import interrupt
from klog.cli.command import VERB_ALIASES, KlogCommand, NounGroup, arguments, usage_of
from klog.cli.command_table import ENTRIES, entry_named
from klog.cli.connect_by import connect_by
from klog.cli.global_flags import GlobalFlags
from klog.cli.name_cache import (
    ACTS_KEPT,
    remember,
    remember_acts,
    remember_topics,
)
from klog.cli.session import Background, Session
from klog.cli.target import Target, TargetFlags, klog_home, profiles_here, resolve, secured
from klog.errors import KlogError, NoNode
from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.admin.health.snapshot import Snapshot
    from klog.admin.shell.screen import Screen
    from klog.coordination.zookeeper import ZooKeeper

BACKGROUND_TIMEOUT_S = 2.0
"""Time limit of an answer for completion and the toolbar; no command waits for it."""

NAMES_SHOWN_MAX = 10_000

KINDS = {
    "TOPIC": Kind.TOPIC,
    "GROUP": Kind.GROUP,
    "ROOT": Kind.EXPORT,
    **dict.fromkeys(("FILE", "PATH", "DIR", "FOLDER", "DIR,..."), Kind.FILE),
    **dict.fromkeys(("QUERY", "SQL"), Kind.SQL),
}
"""What a value is, by its name in usage lines."""


@dataclass(slots=True)
class Question:
    """What the background asks a cluster, as `klog.cli.connect` takes it."""

    shared: GlobalFlags
    target: Target
    timeout_s: float = BACKGROUND_TIMEOUT_S
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    session: ZooKeeper | None = None

    def retarget(self, found: Target) -> None:
        """Take the target with the address that was looked up."""
        self.target = found


class Tree:
    """klog's commands as ``klog.admin.shell.tree.CommandTree``; ``shared`` is what the shell was started with."""

    def __init__(self, shared: GlobalFlags, screen: Screen | None = None) -> None:
        self.session = Session()
        self._shared = replace(shared, session=self.session, screen=screen)
        self._background = Background()
        self._shapes: dict[tuple[str, ...], CommandShape | None] = {}
        self._secured: tuple[tuple[object, ...], Target] | None = None
        """What the background's target was made of, and the target."""

    def execute(self, words: list[str]) -> int:
        """Run one line as ``klog`` would, with the shell's flags below the line's own."""
        from klog.cli.root import root

        before = interrupt.take_over(ends_process=False)
        try:
            return root().execute(words, obj=self._shared)
        except KeyboardInterrupt:
            return interrupt.exit_code()
        except Exception as error:
            sys.stderr.write(f"klog: internal error: {type(error).__name__}: {error}\n")
            return 1
        finally:
            interrupt.give_back(before)

    # --- what there is

    def words_after(self, path: tuple[str, ...]) -> list[Suggestion]:
        """Nouns and commands, or a noun's verbs."""
        if not path:
            return [Suggestion(entry.name, entry.help) for entry in ENTRIES if entry.name != "shell"]
        command = self._command(path)
        if not isinstance(command, NounGroup):
            return []
        return [Suggestion(verb, child.get_short_help_str(60)) for verb, child in command.commands.items()]

    def knows(self, path: tuple[str, ...]) -> bool:
        """Whether a noun or a command has this path."""
        return bool(path) and self._command(path) is not None

    def shape(self, path: tuple[str, ...]) -> CommandShape | None:
        """A command's flags and arguments; asked for after each key."""
        if path not in self._shapes and self.knows(path):
            self._shapes[path] = self._shape(path)
        return self._shapes.get(path)

    def _shape(self, path: tuple[str, ...]) -> CommandShape | None:
        command = self._command(path)
        if not isinstance(command, KlogCommand):
            return None
        names = arguments(command)
        options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
        return CommandShape(
            " ".join((*path, *(usage_of(argument) for argument in names), "[FLAGS]")),
            command.get_short_help_str(80),
            (*map(_flag, options), Flag("help", ("-h", "--help"), "Show the help.", False)),
            tuple(
                Argument(str(one.name), KINDS.get(str(one.metavar), Kind.OTHER), one.required, one.nargs != 1)
                for one in names
            ),
        )

    def offered(
        self, path: tuple[str, ...], words: list[str], taker: str, unfinished: str, names: Names
    ) -> list[Suggestion]:
        """As other shells are offered them, by the names that there are now."""
        from klog.cli.root import root

        ctx: Any = typer.Context(root(), info_name="klog", obj=replace(self._shared, live=names))
        if len(path) > 1:
            ctx = typer.Context(self._command(path[:1]), info_name=path[0], parent=ctx)
        command = self._command(path)
        ctx = command.make_context(command.name, list(words), parent=ctx, resilient_parsing=True)
        parameter = next((one for one in command.params if one.name == taker), None)
        found = [] if parameter is None else parameter.shell_complete(ctx, unfinished)
        value = str(parameter and parameter.metavar)
        what = value.lower() if value.isalpha() else taker.replace("_", " ")
        return [Suggestion(one.value, one.help or what) for one in found if one.type == "plain"]

    def _command(self, path: tuple[str, ...]) -> Any:
        from klog.cli.root import load

        entry = entry_named(path[0]) if path else None
        if entry is None:
            return None
        command: Any = load(entry)
        for verb in path[1:]:
            if not isinstance(command, NounGroup):
                return None
            command = command.commands.get(verb) or command.commands.get(VERB_ALIASES.get(verb, verb))
        return command

    # --- which cluster

    def place(self) -> Place:
        """The cluster that is meant; KlogError, or OSError of a file that cannot be read."""
        return self._place(self._shared)

    def switch(self, where: str) -> Place:
        """Another cluster."""
        is_address = ":" in where
        shared = replace(
            self._shared,
            bootstrap_server=where if is_address else None,
            profile=None if is_address else where,
            zookeeper=None,
        )
        place = self._place(shared)
        self._shared = shared
        return place

    def _place(self, shared: GlobalFlags) -> Place:
        target = _target(shared)
        profile = target.profile
        if profile is not None:
            return Place(profile.name, str(target), profile.colour, profile.protected, profile.read_only)
        name = "local" if target.directory is not None else (target.bootstrap or target.zookeeper or "").split(",")[0]
        known = profiles_here(klog_home(), Path.cwd())
        owner = None if known is None else known.of_addresses(target.bootstrap, target.zookeeper)
        if owner is not None:  # its protection holds here, too
            return Place(owner.name, str(target), owner.colour, owner.protected, owner.read_only)
        return Place(name, str(target))

    # --- what the background asks

    def facts(self, with_lag: bool) -> Snapshot:
        """Brokers and partitions; and the lag of groups."""
        from klog.admin import group_lag
        from klog.admin.health.snapshot import Snapshot
        from klog.cli import connect

        async def ask(session: Session) -> Snapshot:
            question = self._question(session)
            cluster = await connect.open_cluster(question)
            found = Snapshot(metadata=await cluster.metadata(fresh=True))
            try:
                async with asyncio.timeout(BACKGROUND_TIMEOUT_S):
                    if with_lag:
                        found.groups = await group_lag.lag(cluster, await connect.open_zookeeper(question), times=False)
                        found.no_groups = None
            except (KlogError, OSError):
                pass  # a cluster without ZooKeeper, or one whose ZooKeeper is away: the rest is known
            return found

        return self._background.ask(ask, BACKGROUND_TIMEOUT_S * 3)

    def names(self, kind: str, about: str) -> list[str]:
        """The names of a kind."""
        if kind == "profiles":
            known = profiles_here(klog_home(), Path.cwd())
            return [] if known is None else list(known.by_name)
        return self._background.ask(
            lambda session: _names(self._question(session), kind, about), BACKGROUND_TIMEOUT_S * 2
        )

    def _question(self, session: Session) -> Question:
        asked = (_target(self._shared), self._shared.client_config, tuple(self._shared.connect_by or ()))
        if self._secured is None or self._secured[0] != asked:  # once: a profile's command may take a while
            self._secured = asked, _secured(*asked)
        return Question(GlobalFlags(session=session), self._secured[1])

    def close(self) -> None:
        """End the connections."""
        self._background.close()
        self.session.close()


def _target(shared: GlobalFlags) -> Target:
    flags = TargetFlags(shared.bootstrap_server, shared.zookeeper, shared.profile, shared.address_source)
    return resolve(flags, os.environ, klog_home())


def _secured(target: Target, client_config: Path | None, connect_by_words: tuple[str, ...]) -> Target:
    """The target with how to connect to it, as commands have it."""
    more = connect_by(connect_by_words, {})
    given = None
    if client_config is not None:
        from klog.client.client_config import read_client_config

        given = read_client_config(client_config, more=more)
    return secured(target, given, more)


def _flag(option: Any) -> Flag:
    value = option.metavar or option.name.upper().replace("_", "-")
    words = (*option.opts, *option.secondary_opts)
    return Flag(option.name, words, option.help or "", not option.is_flag, KINDS.get(value, Kind.OTHER), value)


async def _names(question: Question, kind: str, about: str) -> list[str]:
    from klog.admin import groups, registries, undo
    from klog.cli import connect
    from klog.coordination import topics as topic_registry

    if kind == "znodes":
        zookeeper = await connect.open_zookeeper(question)
        try:
            return (await asyncio.to_thread(zookeeper.children, about))[:NAMES_SHOWN_MAX]
        except NoNode as error:
            raise await registries.no_node(zookeeper, about) or error from None
    if kind == "acts":
        acts = await asyncio.to_thread(undo.open_acts, await connect.open_zookeeper(question), ACTS_KEPT)
        known = {one.act: undo.what_was_done(one) for one in acts}
        remember_acts(question.target, known)
        return [f"{act}\t{what}" for act, what in known.items()]
    if kind == "trash":
        found = list(await asyncio.to_thread(topic_registry.deleted, await connect.open_zookeeper(question), {}))
        remember(question.target, "trash", found)
        return found[:NAMES_SHOWN_MAX]
    cluster = await connect.open_cluster(question)
    if kind == "topics":
        topics = (await cluster.metadata(fresh=True)).topics
        remember_topics(question.target, {name: len(one.partitions) for name, one in topics.items()})
        found = list(topics)
    elif kind == "partitions":
        topics = (await cluster.metadata(fresh=True)).topics
        found = [str(TopicPartition(name, number)) for name, one in topics.items() for number in one.partitions]
    elif kind == "groups":
        found = list(await groups.phases(cluster))
        remember(question.target, "groups", found)
    elif kind == "brokers":
        ids = [one.broker_id for one in await cluster.brokers()]
        remember(question.target, "brokers", ids)
        found = list(map(str, ids))
    elif kind == "numbers":
        found = [str(number) for number in (await cluster.topic(about, fresh=True)).partitions]
    elif kind == "schemas":
        from klog.schemas import rows
        from klog.schemas.remote import RemoteRegistry

        registry = RemoteRegistry(cluster, asyncio.get_running_loop())
        listed = await asyncio.to_thread(rows.list_schemas, registry, (), deleted=False)
        found = list(dict.fromkeys(row.subject for row in listed))
    elif kind == "views":
        from klog.streams.program import Input

        found = [Input(topic).name for topic in (await cluster.metadata(fresh=True)).topics]
    elif kind == "columns":
        from klog.streams.columns import columns_of
        from klog.streams.program import Input

        by_name = {Input(topic).name: topic for topic in (await cluster.metadata(fresh=True)).topics}
        name, colon, form = about.partition(":")
        asked = Input.parse(f"{by_name.get(name, name)}{colon}{form}")
        found = await columns_of(cluster, asked)
    else:
        found = []
    return found[:NAMES_SHOWN_MAX]
