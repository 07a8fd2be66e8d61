"""The cluster of a shell: which one it is, the connections to it, and what prompt and completion ask it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from klog.cli.by_schema import registry_of
from klog.cli.flags import GlobalFlags
from klog.cli.invocation import Invocation
from klog.cli.name_cache import ACTS_KEPT, remember, remember_acts, remember_topics
from klog.cli.name_values import connect_by
from klog.cli.session import Session
from klog.cli.target import Target, klog_home, profile_of_addresses, profiles_here, resolve
from klog.cli.traits import Traits
from klog.errors import KlogError, NoNode, TimedOut
from klog.names import TopicPartition

T = TypeVar("T")

BACKGROUND_TIMEOUT_S = 2.0
"""Time limit of an answer for completion and the toolbar; no command waits for it."""

NAMES_SHOWN_MAX = 10_000


class WorstLag(NamedTuple):
    """The group that is furthest behind, over all its partitions; 0 messages: none is."""

    group: str
    messages: int


class ClusterFacts(NamedTuple):
    """Of one moment. ``known`` counts brokers that live or that have replicas; ``trouble`` is why nothing is known."""

    live: int = 0
    known: int = 0
    controller: int | None = None
    under_replicated: int = 0
    offline: int = 0
    trouble: str | None = None


class ShellCluster:
    """The cluster of a shell; ``shared``: the flags it was started with, which its commands have as defaults.

    Used by the shell's thread alone, but for ``look``, which other threads ask.
    """

    def __init__(self, shared: GlobalFlags) -> None:
        self.session = Session()
        self.shared = replace(shared, session=self.session)
        self._background = Background()
        self._secured: tuple[object, Target] | None = None
        """What the background's target was made of, and the target."""

    def place(self) -> Target:
        """The cluster that is meant; KlogError, or OSError of a file that cannot be read. Never waits for an answer."""
        return _place(self.shared)

    def switch(self, where: str) -> None:
        """Talk to another cluster, by a profile's name or an address. KlogError, without a change, for an unknown
        profile."""
        address, profile = (where, None) if ":" in where else (None, where)
        shared = replace(self.shared, bootstrap_server=address, profile=profile, zookeeper=None, address_source=None)
        _place(shared)
        self.shared = shared

    def look(self, kind: str, about: str) -> Any:
        """``facts``, ``lag`` (None where it is not known, for want of a ZooKeeper), or the names of a kind. Blocks, may
        raise anything."""
        if kind == "facts":
            try:
                return self._ask(_facts)
            except Exception as error:
                reason = error.message if isinstance(error, KlogError) else str(error)
                return ClusterFacts(trouble=reason or type(error).__name__)
        if kind == "lag":
            try:
                return self._ask(_worst_lag)
            except (KlogError, OSError):
                return None
        return self.names(kind, about)

    def names(self, kind: str, about: str) -> list[str]:
        """The names of a kind that there are now: ``topics``, ``numbers`` of the partitions of the topic ``about``,
        ``znodes`` below ``about``, ``columns`` of the topic in the form ``about``, as ``klog sql --from`` takes it.
        Blocks, may raise anything."""
        if kind == "profiles":
            known = profiles_here(klog_home(), Path.cwd())
            return [] if known is None else sorted(known.by_name)
        return sorted(self._ask(lambda asking: _names(asking, kind, about)))[:NAMES_SHOWN_MAX]

    def _ask(self, question: Callable[[Invocation], Awaitable[T]]) -> T:
        shared = replace(
            self.shared, session=self._background.session, timeout=BACKGROUND_TIMEOUT_S, quiet=True, trace=False
        )
        asking = Invocation(shared, "shell", Traits(), connect_by=connect_by(shared.connect_by, {}))
        asked = (resolve(shared), shared.client_config, shared.connect_by)
        if self._secured is None or self._secured[0] != asked:  # once: a profile's command may take a while
            if shared.client_config is not None:
                asking.take_client_config(shared)
            self._secured = asked, asking.target
        asking.connect_to(self._secured[1])
        return self._background.ask(lambda: question(asking), BACKGROUND_TIMEOUT_S * 2)

    def close(self) -> None:
        """End the connections."""
        self._background.close()
        self.session.close()


def _place(shared: GlobalFlags) -> Target:
    """With the profile that has its addresses, too: the protection of that holds here."""
    target = resolve(shared)
    return replace(target, profile=target.profile or profile_of_addresses(target.bootstrap, target.zookeeper))


class Background:
    """A thread with an event loop and a session: what no command waits for. Thread-safe; the thread is a daemon."""

    def __init__(self) -> None:
        self.session = Session()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, question: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """The answer, from another thread; TimedOut where it takes longer."""

        async def bounded() -> T:
            async with asyncio.timeout(timeout_s):
                return await question()

        future = asyncio.run_coroutine_threadsafe(bounded(), self._running())
        try:
            return future.result(timeout_s + 1)
        except TimeoutError:
            raise TimedOut(f"the cluster does not answer within {timeout_s:g} s") from None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="shell-background", daemon=True).start()
            return self._loop

    def close(self) -> None:
        """End its connections and the thread, where they end at once; otherwise with the process."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.session.close_clusters(), loop).result(1)
        except Exception:
            pass  # the process ends, and its connections with it
        loop.call_soon_threadsafe(loop.stop)
        self.session.stop_zookeepers()


async def _facts(asking: Invocation) -> ClusterFacts:
    """How brokers and partitions are."""
    from klog.admin.health.snapshot import Snapshot
    from klog.admin.health.verdict import broker_states, count_partitions

    metadata = await (await asking.cluster()).metadata(fresh=True)
    snapshot = Snapshot(metadata=metadata)
    states, counts = broker_states(snapshot), count_partitions(snapshot)
    live = sum(one.state == "up" for one in states)
    return ClusterFacts(live, len(states), metadata.controller_id, counts.under_replicated, counts.offline)


async def _worst_lag(asking: Invocation) -> WorstLag:
    from klog.admin.group_lag import lag
    from klog.admin.health.snapshot import Snapshot
    from klog.admin.health.verdict import group_lags

    rows = await lag(await asking.cluster(), await asking.zookeeper(), times=False)
    return WorstLag(*next(iter(group_lags(Snapshot(groups=list(rows))).most_common(1)), ("", 0)))


async def _names(asking: Invocation, kind: str, about: str) -> list[str]:
    match kind:
        case "znodes":
            from klog.admin import registries

            zookeeper = await asking.zookeeper()
            try:
                return await asyncio.to_thread(zookeeper.children, about)
            except NoNode:
                path = registries.check_path(about)
                raise await asyncio.to_thread(registries.no_node, zookeeper, path) from None
        case "acts":
            from klog.admin import undo

            acts = await asyncio.to_thread(undo.open_acts, await asking.zookeeper(), ACTS_KEPT)
            known = {one.act: undo.what_was_done(one) for one in acts}
            remember_acts(asking.target, known)
            return [f"{act}\t{what}" for act, what in known.items()]
        case "trash":
            from klog.coordination.topics import deleted

            found = list(await asyncio.to_thread(deleted, await asking.zookeeper(), {}))
            remember(asking.target, kind, found)
            return found
    cluster = await asking.cluster()
    match kind:
        case "groups":
            from klog.admin.groups import phases

            found = list(await phases(cluster))
            remember(asking.target, kind, found)
            return found
        case "brokers":
            found = [str(one.broker_id) for one in await cluster.brokers()]
            remember(asking.target, kind, found)
            return found
        case "numbers":
            return [str(number) for number in (await cluster.topic(about, fresh=True)).partitions]
        case "schemas":
            from klog.schemas import rows

            listed = await asyncio.to_thread(rows.list_schemas, await registry_of(asking), (), deleted=False)
            return list(dict.fromkeys(row.subject for row in listed))
    topics = (await cluster.metadata(fresh=True)).topics
    match kind:
        case "topics":
            remember_topics(asking.target, {name: len(one.partitions) for name, one in topics.items()})
            return list(topics)
        case "partitions":
            return [str(TopicPartition(name, number)) for name, one in topics.items() for number in one.partitions]
    from klog.streams.columns import columns_of
    from klog.streams.program import Input

    by_name = {Input(topic).name: topic for topic in topics}
    if kind == "views":
        return list(by_name)
    name, colon, form = about.partition(":")
    return await columns_of(cluster, Input.parse(f"{by_name.get(name, name)}{colon}{form}"))
