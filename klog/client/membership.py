"""A consumer's place in its group: its entry, what it sees of the others, what it has claimed. ZooKeeper only.

In the keeper's thread, but for `commit`, which is guarded. Watches call ``on_change`` from ZooKeeper's threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from klog.client.assignment import assign, thread_id
from klog.client.streams import Lease
from klog.client.subscription import STREAMS_MAX, Subscription, threads_of
from klog.coordination import brokers, claims, consumers, paths, topics
from klog.coordination.claims import Claim
from klog.coordination.committed import OffsetWriter
from klog.coordination.zookeeper import Check, WatchEvent, ZooKeeper
from klog.errors import NoNode, NotOwned
from klog.names import TopicPartition

_log = logging.getLogger("klog.consumer")


class Evicted(NoNode):
    """Our entry is not in the registry any more: somebody has taken it out, or the session is another."""


@dataclass(frozen=True, slots=True)
class View:
    """What the registries said when they were read.

    ``wanted``: partition to the number of the stream of ours that is to read it, by Algorithm 1. ``owners``: the same
    with every other consumer's. ``newcomers``: those among ours that came when we were there already.
    """

    wanted: Mapping[TopicPartition, int]
    owners: Mapping[TopicPartition, str]
    fences: Mapping[str, tuple[Check, ...]]
    newcomers: frozenset[TopicPartition]
    bootstrap: str


class Membership:
    """One consumer of a group. `claims` is what it owns, changed by the keeper's thread only."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        group: str,
        subscription: Subscription,
        lease: Lease,
        on_change: Callable[[], None],
        *,
        own_id: str | None,
        exclude_internal: bool,
    ) -> None:
        self.zookeeper = zookeeper
        self.group = group
        self.consumer_id = ""
        self.claims: dict[TopicPartition, Claim] = {}
        self._subscription = subscription
        self._lease = lease
        self._on_change = on_change
        self._own_id = own_id
        self._exclude_internal = exclude_internal
        self._writer = OffsetWriter(zookeeper)
        self._writing = threading.Lock()
        self._entered_zxid = 0
        """The transaction of our first entry."""
        self._counts: dict[str, int] = {}
        """Of each topic: its partitions when it was seen first."""
        self._fences: dict[str, tuple[Check, ...]] = {}
        """Of each topic that `_counts` has: which of the name it is."""

    # --- coming and going ---------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Register under a new id. GroupIsHeld while the group is used the other way."""
        self.consumer_id = consumers.new_consumer_id(self.group, self._own_id)
        consumers.register(self.zookeeper, self.group, self._subscription.entry(self.consumer_id))
        if not self._entered_zxid:
            stat = self.zookeeper.exists(paths.consumer_id(self.group, self.consumer_id))
            self._entered_zxid = stat.created_zxid if stat is not None else 0
        _log.info("group %s: entered as %s", self.group, self.consumer_id)

    def leave(self) -> None:
        """Remove the entry; the others are told by ZooKeeper."""
        if self.consumer_id:
            consumers.unregister(self.zookeeper, self.group, self.consumer_id)

    def confirm(self) -> None:
        """Ask ZooKeeper whether our entry stands, and with it the session: the lease goes on from when it was asked.

        Evicted when it is gone.
        """
        asked = time.monotonic()
        stat = self.zookeeper.exists(paths.consumer_id(self.group, self.consumer_id))
        if stat is None or stat.owner_session != self.zookeeper.session_id:
            raise self._evicted()
        self._lease.until = asked + self.zookeeper.session_timeout_ms / 1000

    def _evicted(self) -> Evicted:
        return Evicted(f"consumer {self.consumer_id} of group {self.group!r} is not registered any more")

    # --- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> View:
        """Read the registries, leaving watches, and compute who reads what. Evicted when our entry is gone."""
        zookeeper = self.zookeeper
        alive = brokers.live(zookeeper, self._changed)
        entries = consumers.members(zookeeper, self.group, self._changed)
        if all(entry.consumer_id != self.consumer_id for entry in entries):
            raise self._evicted()
        names = topics.names(zookeeper, self._changed)
        threads = {entry.consumer_id: threads_of(entry, names, self._exclude_internal) for entry in entries}
        ours = threads[self.consumer_id]
        found = {name: topics.find(zookeeper, name, self._changed) for name in ours}
        there = {name: topic for name, topic in found.items() if topic is not None}
        owners = assign({name: list(topic.partitions) for name, topic in there.items()}, threads)
        numbers = {
            thread_id(self.consumer_id, number): number
            for number in range(min(max(ours.values(), default=0), STREAMS_MAX))
        }
        wanted = {partition: numbers[owner] for partition, owner in owners.items() if owner in numbers}
        return View(
            wanted,
            owners,
            {name: tuple(topic.fence) for name, topic in there.items()},
            self._newcomers(there, wanted),
            ",".join(_address(one.broker.host, one.broker.port) for one in alive),
        )

    def _newcomers(
        self, there: Mapping[str, topics.Topic], wanted: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """A topic that was made after our entry, and partitions that a topic has got since: all in them is new."""
        for name in [
            name for name, fence in self._fences.items() if name not in there or tuple(there[name].fence) != fence
        ]:
            del self._counts[name], self._fences[name]  # another topic of the name is another topic
        names = [name for name in there if name not in self._counts]
        for name, stat in zip(names, self._created(names), strict=True):
            self._fences[name] = tuple(there[name].fence)
            is_older = stat <= self._entered_zxid
            self._counts[name] = len(there[name].partitions) if is_older else 0
        return frozenset(one for one in wanted if one.partition >= self._counts[one.topic])

    def _created(self, names: Collection[str]) -> list[int]:
        nodes = self.zookeeper.get_many([paths.topic(name) for name in names])
        return [0 if node is None else node.stat.created_zxid for node in nodes]

    def _changed(self, event: WatchEvent) -> None:
        """ZooKeeper's watch thread."""
        self._on_change()

    # --- owning -------------------------------------------------------------------------------------------------------

    def outdated(self, view: View) -> set[TopicPartition]:
        """What is claimed of a topic that another of the name has taken the place of: those claims went with it."""
        return {one for one, claim in self.claims.items() if claim.fences[1:] != view.fences.get(one.topic, ())}

    def claim(self, view: View, partitions: Collection[TopicPartition]) -> None:
        """Own these of our share as well, all or none. OwnershipConflict; Evicted when our entry is gone."""
        wanted = {one: view.owners[one] for one in partitions}
        try:
            claimed = claims.claim(self.zookeeper, self.group, self.consumer_id, wanted, view.fences)
        except NoNode:
            raise self._evicted() from None
        with self._writing:
            self.claims = {**self.claims, **claimed}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group stands; to be asked for what is claimed: then nobody else moves it."""
        return claims.start_of(self.zookeeper, self.group, partitions)

    def commit(self, offsets: Mapping[TopicPartition, int], *, only_ours: bool = False) -> set[TopicPartition]:
        """Write offsets of what we own; the partitions that are another's by now. Thread-safe.

        NotOwned, and nothing is written, where one is not ours as far as we know; with ``only_ours`` it is left out.
        """
        with self._writing:
            strange = [one for one in offsets if one not in self.claims]
            if only_ours:
                offsets = {one: offset for one, offset in offsets.items() if one in self.claims}
            elif strange:
                raise NotOwned(
                    f"group {self.group!r}: {', '.join(map(str, strange[:5]))} "
                    f"{'is' if len(strange) == 1 else 'are'} not read by this consumer, which cannot commit there"
                )
            mine = {one: self.claims[one] for one in offsets}
            return claims.commit(self.zookeeper, self.group, self._writer, mine, offsets) if mine else set()

    def release(self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None:
        """Own these no more; with the same write, their offsets. What was another's already is left alone.

        SessionLost: they may still be owned, and are kept.
        """
        with self._writing:
            mine = {one: self.claims[one] for one in partitions if one in self.claims}
            if not mine:
                return
            written = {one: offset for one, offset in offsets.items() if one in mine}
            lost = claims.release(self.zookeeper, self.group, self._writer, mine, written)
            if lost:
                named = ", ".join(map(str, sorted(lost)))
                _log.warning(
                    "group %s: %s was taken over by another consumer, or its topic has gone", self.group, named
                )
            self.claims = {one: claim for one, claim in self.claims.items() if one not in mine}

    def forget(self, offsets: Mapping[TopicPartition, int]) -> None:
        """After the session's end, or our own: nothing is owned. Where nobody has claimed since, these are committed.

        SessionLost: some of it may have to be done again, and can be.
        """
        with self._writing:
            mine = {one: self.claims[one] for one in offsets if one in self.claims}
            self._writer.forget(self.group)
            if mine:
                claims.commit(self.zookeeper, self.group, self._writer, mine, offsets)
            # Of an entry that was taken out while its session lives the owners stand; those of a session went with it.
            standing = claims.standing(self.zookeeper, self.group, self.claims)
            if standing:
                claims.release(self.zookeeper, self.group, self._writer, standing, {})
            self.claims = {}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
