"""Algorithm 1 of the paper: which consumer thread reads which partitions. Pure.

    For each topic T that C_i subscribes to:
        P_T = partitions of T;  C_T = all threads in the group that subscribe to T
        sort P_T, sort C_T
        let i be C_i's place in C_T, and N = |P_T| / |C_T|
        assign partitions from i*N to (i+1)*N - 1 in P_T to C_i

If the division leaves a rest, the first threads get one more each, as in 0.8. Partitions sort as numbers; threads sort
as texts, as in 0.8, so that consumers of both get the same result. Every consumer computes the whole assignment itself,
from the same two registries, and asks no other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from klog.names import TopicPartition


def thread_id(consumer_id: str, number: int) -> str:
    """The thread's name in the ownership registry."""
    return f"{consumer_id}-{number}"


def split(partitions: Collection[int], threads: Collection[str]) -> dict[int, str]:
    """The owner of each partition of one topic; empty without threads."""
    if not threads:
        return {}
    ordered = sorted(partitions)
    each, rest = divmod(len(ordered), len(threads))
    owners: dict[int, str] = {}
    at = 0
    for place, thread in enumerate(sorted(threads)):
        count = each + (place < rest)
        owners.update(dict.fromkeys(ordered[at : at + count], thread))
        at += count
    return owners


def assign(
    topics: Mapping[str, Collection[int]], consumers: Mapping[str, Mapping[str, int]]
) -> dict[TopicPartition, str]:
    """The owner of every partition of a group.

    ``topics``: topic to its partitions. ``consumers``: consumer id to the number of its threads for each topic.
    """
    return {
        TopicPartition(topic, partition): owner
        for topic, partitions in topics.items()
        for partition, owner in split(
            partitions,
            [
                thread_id(consumer, number)
                for consumer, threads in consumers.items()
                for number in range(threads.get(topic, 0))
            ],
        ).items()
    }
