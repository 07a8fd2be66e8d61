"""The paper's consumers, coordinated by ZooKeeper alone: how soon a group settles after a change, and who owned what.

The registry is looked at all the time. A group has settled when what each of its members owns has stopped changing and
is as even as can be; the time counts from the last change of the members' own entries, whether they came, left, or were
removed by ZooKeeper because their process was killed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.children import Child, wait_until
from bench.groups import topic_of
from klog.coordination import paths
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NoNode
from klog.names import TopicPartition

PROCESSES = 4
LOOK_EVERY_S = 0.01
CALM_S = 0.5
"""So long nothing changes before it is believed."""


class Registry(threading.Thread):
    """What the registry says of a group, each look one moment.

    An owner is made in the step in which its claim (`klog.coordination.ownership_fence`) goes to the version that it
    has; so whoever owned at any moment is named by a claim's version, and `owned_twice` counts versions with two
    owners."""

    def __init__(self, zookeeper: str, group: str, partitions: list[TopicPartition]) -> None:
        super().__init__(name="registry", daemon=True)
        self._session = ZooKeeper(zookeeper)
        self._session.start()
        self._group, self._partitions = group, partitions
        self._ended = threading.Event()
        self._by_claim: dict[tuple[TopicPartition, int], str] = {}
        self.members: frozenset[str] = frozenset()
        self.owners: Mapping[TopicPartition, str] = {}
        now = time.monotonic()
        self.members_changed_at, self.owners_changed_at = now, now
        self._twice: set[tuple[TopicPartition, int]] = set()
        self.start()

    @property
    def owned_twice(self) -> int:
        return len(self._twice)

    def run(self) -> None:
        where = [
            path(self._group, one.topic, one.partition)
            for one in self._partitions
            for path in (paths.consumer_owner, paths.ownership_fence)
        ]
        while not self._ended.wait(LOOK_EVERY_S):
            members = self._entries()
            nodes = self._session.get_many(where)
            now = time.monotonic()
            owners = {}
            for one, owner, claim in zip(self._partitions, nodes[::2], nodes[1::2], strict=True):
                if owner is None or claim is None:
                    continue
                owners[one] = name = owner.data.decode()
                key = one, claim.stat.version
                if owner.stat.created_zxid != claim.stat.modified_zxid or self._by_claim.setdefault(key, name) != name:
                    self._twice.add(key)
            if members != self.members:
                self.members, self.members_changed_at = members, now
            if owners != self.owners:
                self.owners, self.owners_changed_at = owners, now

    def _entries(self) -> frozenset[str]:
        with contextlib.suppress(NoNode):
            return frozenset(self._session.children(paths.consumer_ids(self._group)))
        return frozenset()

    def settled(self, members: int) -> bool:
        """So many members share all partitions, as evenly as they can, and for a while."""
        shares = Counter(owner.rpartition("-")[0] for owner in self.owners.values())
        low = len(self._partitions) // members
        is_even = len(self.owners) == len(self._partitions) and set(shares.values()) <= {low, low + 1}
        changed_at = max(self.members_changed_at, self.owners_changed_at)
        return is_even and len(self.members) == len(shares) == members and time.monotonic() > changed_at + CALM_S

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._session.stop()


def settles(
    bootstrap: str,
    zookeeper: str,
    folder: Path,
    consumers: int,
    partitions: int,
    found: Callable[[str, dict[str, float]], None],
) -> None:
    """`found` is called with "enter", "leave" and "killed" and the figures of each."""
    with topic_of(bootstrap, partitions) as topic, contextlib.ExitStack() as stack:
        group = f"streams-{topic}"
        registry = Registry(zookeeper, group, [TopicPartition(topic, number) for number in range(partitions)])
        stack.callback(registry.end)
        each = consumers // PROCESSES
        children = [
            stack.enter_context(
                Child("bench.stream_members", zookeeper, group, topic, each, log=folder / "streams.log")
            )
            for _ in range(PROCESSES)
        ]
        for child in children:
            child.wait_for("ready")

        def await_settled(what: str, members: int, living: list[Child]) -> None:
            wait_until(lambda: registry.settled(members), f"{members} members settle", living)
            seconds = registry.owners_changed_at - registry.members_changed_at
            found(what, {"seconds": seconds, "owned_twice": float(registry.owned_twice)})

        for child in children:
            child.say("enter")
        await_settled("enter", consumers, children)
        children[0].say("leave")
        await_settled("leave", consumers - each, children)
        children[0].wait_for("left")
        children[1].kill()
        await_settled("killed", consumers - 2 * each, children[2:])
        for child in children[2:]:
            child.say("leave")
        for child in children[2:]:
            child.wait_for("left")
