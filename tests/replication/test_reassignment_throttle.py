"""The rate at which a broker takes in what it is given: it follows Metadata, and is gone when the reassignment is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from klog.names import TopicPartition
from klog.replication.reassignment_throttle import ReassignmentThrottle

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Told(list[tuple[set[TopicPartition], float | None]]):
    def limit(self, names: set[TopicPartition], bytes_per_s: float | None) -> None:
        self.append((names, bytes_per_s))


def update(*parts: tuple[TopicPartition, tuple[int, ...], int], is_full: bool = False, deleted: str = "") -> Any:
    """An UpdateMetadata request, as far as this matters: partition, who is being added, the throttle."""
    topics: dict[str, list[Any]] = {}
    for name, adding, throttle in parts:
        one = SimpleNamespace(partition_index=name.partition, adding=adding, throttle=throttle)
        topics.setdefault(name.topic, []).append(one)
    listed = [SimpleNamespace(name=topic, is_deleted=False, partitions=found) for topic, found in topics.items()]
    if deleted:
        listed.append(SimpleNamespace(name=deleted, is_deleted=True, partitions=[]))
    return SimpleNamespace(is_full=is_full, topics=listed)


def test_only_what_this_broker_is_given_is_held_back_at_the_lowest_rate() -> None:
    told = Told()
    throttle = ReassignmentThrottle(3, told.limit)
    throttle.take(update((T0, (3,), 500), (T1, (4,), 100), (U0, (3, 4), 0)))
    assert told == [({T0}, 500)]
    throttle.take(update((T1, (3,), 200)))
    assert told[1:] == [({T0, T1}, 200)]


def test_what_has_not_changed_is_not_said_again() -> None:
    told = Told()
    throttle = ReassignmentThrottle(3, told.limit)
    for _ in range(3):
        throttle.take(update((T0, (3,), 500), (U0, (), 0)))
        throttle.take(update())
    assert len(told) == 1


def test_it_is_gone_with_the_reassignment_however_that_ends() -> None:
    for end in (
        update((T0, (), 0)),  # done, or cancelled
        update((T0, (3,), 0)),  # lifted
        update((T0, (4,), 500)),  # another is added in our place
        update(deleted="t"),
        update((U0, (), 0), is_full=True),  # another controller knows nothing of it
    ):
        told = Told()
        throttle = ReassignmentThrottle(3, told.limit)
        throttle.take(update((T0, (3,), 500)))
        throttle.take(end)
        assert told == [({T0}, 500), (set(), None)]
