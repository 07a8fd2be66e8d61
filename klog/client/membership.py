"""A consumer's membership in its group: its entry, its view of the others, its claims. ZooKeeper only.

Runs in the rebalancer's thread, except `commit`, which has a lock. Watches call ``on_change`` from ZooKeeper's threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from klog.client.assignment import assign, thread_id
from klog.client.consumer_settings import ConsumerSettings
from klog.client.streams import Lease
from klog.client.subscription import STREAMS_MAX, Subscription, threads_of
from klog.coordination import brokers, committed, consumers, ownership_fence, paths, topics
from klog.coordination.committed import OffsetWriter
from klog.coordination.ownership_fence import OwnershipFence
from klog.coordination.zookeeper import Check, WatchEvent, ZooKeeper
from klog.errors import NoNode, NotOwned
from klog.names import TopicPartition

_log = logging.getLogger("klog.consumer")


class Evicted(NoNode):
    """Our entry is no longer in the registry: another client removed it, or the session is a new one."""


@dataclass(frozen=True, slots=True)
class View:
    """The registries as they were read.

    ``wanted``: partition -> the number of our stream that must read it, by Algorithm 1. ``owners``: partition ->
    thread, of all consumers. ``newcomers``: our partitions that were created after we entered the group.
    """

    wanted: Mapping[TopicPartition, int]
    owners: Mapping[TopicPartition, str]
    fences: Mapping[str, tuple[Check, ...]]
    newcomers: frozenset[TopicPartition]
    bootstrap: str


class Membership:
    """One consumer of a group. `owned` is changed by the rebalancer's thread only."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        group: str,
        subscription: Subscription,
        lease: Lease,
        on_change: Callable[[], None],
        settings: ConsumerSettings,
    ) -> None:
        self.zookeeper = zookeeper
        self.group = group
        self.consumer_id = ""
        self.owned: dict[TopicPartition, OwnershipFence] = {}
        self._subscription = subscription
        self._lease = lease
        self._on_change = on_change
        self._settings = settings
        self._writer = OffsetWriter(zookeeper)
        self._writing = threading.Lock()
        self._entered_zxid = 0
        """The zxid of our first entry."""
        self._seen: dict[str, tuple[tuple[Check, ...], int]] = {}
        """Topic -> its fence, which tells it from a later one of that name, and how many partitions it had at first."""

    # --- coming and going ---------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Register under a new id. GroupIsHeld while members of the brokers' protocol use the group."""
        self.consumer_id = consumers.new_consumer_id(self.group, self._settings.own_id)
        consumers.register(self.zookeeper, self.group, self._subscription.entry(self.consumer_id))
        if not self._entered_zxid:
            stat = self.zookeeper.exists(paths.consumer_id(self.group, self.consumer_id))
            self._entered_zxid = stat.created_zxid if stat is not None else 0
        _log.info("group %s: entered as %s", self.group, self.consumer_id)

    def leave(self) -> None:
        """Remove the entry; ZooKeeper notifies the other members."""
        if self.consumer_id:
            consumers.unregister(self.zookeeper, self.group, self.consumer_id)

    def confirm(self) -> None:
        """Ask ZooKeeper whether our entry and its session still exist; extends the lease from the time of the request.

        Evicted when the entry is gone.
        """
        asked = time.monotonic()
        stat = self.zookeeper.exists(paths.consumer_id(self.group, self.consumer_id))
        if stat is None or stat.owner_session != self.zookeeper.session_id:
            raise self._evicted()
        self._lease.until = asked + self.zookeeper.session_timeout_ms / 1000

    def _evicted(self) -> Evicted:
        return Evicted(f"consumer {self.consumer_id} of group {self.group!r} is no longer registered")

    # --- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> View:
        """Read the registries, set watches, and compute the assignment. Evicted when our entry is gone."""
        zookeeper = self.zookeeper
        alive = brokers.live(zookeeper, self._changed)
        entries = consumers.members(zookeeper, self.group, self._changed)
        if all(entry.consumer_id != self.consumer_id for entry in entries):
            raise self._evicted()
        names = topics.names(zookeeper, self._changed)
        threads = {entry.consumer_id: threads_of(entry, names, self._settings.exclude_internal) for entry in entries}
        ours = threads[self.consumer_id]
        found = {name: topics.find(zookeeper, name, self._changed) for name in ours}
        there = {name: topic for name, topic in found.items() if topic is not None and topic.deletion is None}
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
            brokers.client_addresses(alive, self._settings.security.protocol),
        )

    def _newcomers(
        self, there: Mapping[str, topics.Topic], wanted: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Partitions of topics created after our entry, and partitions added since: all their messages are new."""
        seen, self._seen = self._seen, {}
        for name, topic in there.items():
            fence = tuple(topic.fence)
            first_count = len(topic.partitions) if topic.created_zxid <= self._entered_zxid else 0
            known = seen.get(name)
            self._seen[name] = known if known is not None and known[0] == fence else (fence, first_count)
        return frozenset(one for one in wanted if one.partition >= self._seen[one.topic][1])

    def _changed(self, event: WatchEvent) -> None:
        """Called in ZooKeeper's watch thread."""
        self._on_change()

    # --- owning -------------------------------------------------------------------------------------------------------

    def outdated(self, view: View) -> set[TopicPartition]:
        """Our claims on topics that were deleted or created again: the deletion removed those claims."""
        return {one for one, fence in self.owned.items() if fence.fences[1:] != view.fences.get(one.topic, ())}

    def claim(self, view: View, partitions: Collection[TopicPartition]) -> None:
        """Also claim these partitions of our share, all or none. OwnershipConflict; Evicted when our entry is gone."""
        wanted = {one: view.owners[one] for one in partitions}
        try:
            claimed = ownership_fence.claim(self.zookeeper, self.group, self.consumer_id, wanted, view.fences)
        except NoNode:
            raise self._evicted() from None
        with self._writing:
            self.owned = {**self.owned, **claimed}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets; for owned partitions only, since then no other consumer moves them."""
        found = committed.read(self.zookeeper, self.group, partitions)
        return {one: commit.offset for one, commit in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int], *, only_ours: bool = False) -> set[TopicPartition]:
        """Commit offsets of partitions that we own. Returns those that another consumer has taken. Thread-safe.

        NotOwned, and nothing is written, if we know that we do not own one; ``only_ours`` leaves such partitions out.
        """
        with self._writing:
            strange = [one for one in offsets if one not in self.owned]
            if only_ours:
                offsets = {one: offset for one, offset in offsets.items() if one in self.owned}
            elif strange:
                raise NotOwned(
                    f"group {self.group!r}: {', '.join(map(str, strange[:5]))} "
                    f"{'is' if len(strange) == 1 else 'are'} not read by this consumer, which cannot commit there"
                )
            mine = {one: self.owned[one] for one in offsets}
            return ownership_fence.commit(self.zookeeper, self.group, self._writer, mine, offsets)

    def release(self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int]) -> None:
        """Give up these partitions, and commit their offsets with the same write. Skips those that another has taken.

        SessionLost: we may still own them, and keep them.
        """
        with self._writing:
            mine = {one: self.owned[one] for one in partitions if one in self.owned}
            written = {one: offset for one, offset in offsets.items() if one in mine}
            lost = ownership_fence.commit(self.zookeeper, self.group, self._writer, mine, written, release=True)
            if lost:
                named = ", ".join(map(str, sorted(lost)))
                _log.warning(
                    "group %s: %s was taken over by another consumer, or its topic has gone", self.group, named
                )
            self.owned = {one: fence for one, fence in self.owned.items() if one not in mine}

    def forget(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop all claims, after the session or our membership has ended. Commits these offsets where no other consumer
        has claimed since.

        SessionLost: some of it may not be done; it is safe to repeat.
        """
        with self._writing:
            mine = {one: self.owned[one] for one in offsets if one in self.owned}
            self._writer.forget(self.group)
            ownership_fence.commit(self.zookeeper, self.group, self._writer, mine, offsets)
            # If our entry was removed while the session lives, our owner nodes still exist: remove them.
            standing = ownership_fence.standing(self.zookeeper, self.group, self.owned)
            ownership_fence.commit(self.zookeeper, self.group, self._writer, standing, {}, release=True)
            self.owned = {}
