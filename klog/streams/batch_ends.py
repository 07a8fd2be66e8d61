"""Where a topic ended when a batch was first begun, kept beside the query's checkpoint.

    <checkpoint>/klog-sink/0000000017.json

    {"version": 1, "query": "<id>", "batch": 17, "topic": "counts", "topicId": "<id>", "ends": [4711, 0, 88]}

The file is created once, before the first message of the batch is sent, and never changed. Each process that repeats
the batch reads it again. Of the topic that a batch is written to it says that all of the
batch is at or behind these ends, and over how many partitions it is spread, though the topic may grow meanwhile. Of a
topic that batches are joined with (``<checkpoint>/klog-store/<topic>``) it says up to where that is read, so that a
repeated batch is joined with the same values.

Once Spark has written the commit of a batch it never repeats it, and its file goes with the next but one.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from klog.client.raw_fetch import RawCluster
from klog.errors import Refused, StorageError, UnknownTopicOrPartition
from klog.export.stores.store import Store
from klog.names import TopicPartition

VERSION = 1
KEPT = 2
"""Files of so many batches: the one under way, and the one before it, whose commit Spark may not have written."""


@dataclass(frozen=True)
class Ends:
    """``partitions``: the end of each. ``topic_id`` is None where the broker has told none."""

    topic_id: str | None
    partitions: tuple[int, ...]


def bounds_of(bootstrap: str, topic: str) -> tuple[list[int], Ends]:
    """Where the partitions of a topic start and end now. UnknownTopicOrPartition."""
    with RawCluster(bootstrap) as cluster:
        facts = cluster.describe([topic]).get(topic)
        if facts is None:
            raise UnknownTopicOrPartition.of_topics(topic)
        partitions = [TopicPartition(topic, one) for one in sorted(facts.partitions)]
        starts, ends = cluster.bounds(partitions)
        return list(starts.values()), Ends(facts.topic_id, tuple(ends.values()))


def kept_token(store: Store, path: str, size_bytes: int) -> str:
    """A random token in hexadecimal that a store keeps: made once, by whoever comes first. StorageError without one."""
    found = store.read(path)
    if found is None:
        store.create(path, secrets.token_hex(size_bytes).encode(), private=True)
        found = store.read(path)
    if not found:
        raise StorageError(f"{store.location(path)} is empty, or was removed while it was made")
    return found.decode()


class BatchEnds:
    """The files of one query about one topic."""

    def __init__(self, checkpoint: Store, folder: str, query: str, topic: str) -> None:
        """``folder``: of the checkpoint, for this topic alone."""
        self._store = checkpoint
        self._folder = folder
        self._query = query
        self._topic = topic

    def keep(self, batch: int, now: Ends) -> Ends:
        """What is kept for a batch; where nothing is, ``now``, which is durable when this returns.

        Refused where the file is another query's or topic's: a checkpoint is for one query with one target.
        """
        path = self._path(batch)
        known = self._read(path, batch)
        if known is None:
            value = {
                "version": VERSION,
                "query": self._query,
                "batch": batch,
                "topic": self._topic,
                "topicId": now.topic_id,
                "ends": now.partitions,
            }
            self._store.create(path, json.dumps(value).encode())
            known = self._read(path, batch)
        if known is None:
            raise StorageError(f"{self._store.location(path)} was removed while it was made")
        if batch >= KEPT:
            self._store.remove(self._path(batch - KEPT))
        return known

    def _read(self, path: str, batch: int) -> Ends | None:
        data = self._store.read(path)
        if data is None:
            return None
        where = self._store.location(path)
        try:
            value = json.loads(data)
            found = value["version"], value["query"], value["batch"], value["topic"]
            ends = Ends(value["topicId"], tuple(int(one) for one in value["ends"]))
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"{where} does not say where a topic ended",
                hint="bring the file back from a backup, or remove it: then the batch is looked for in the whole topic",
            ) from None
        expected = VERSION, self._query, batch, self._topic
        if found != expected:
            raise Refused(
                f"{where} is of version {found[0]}, query {found[1]}, batch {found[2]}, topic {found[3]};"
                f" this is version {expected[0]}, query {expected[1]}, batch {expected[2]}, topic {expected[3]}",
                hint="a query with another target needs a checkpoint of its own",
            )
        return ends

    def _path(self, batch: int) -> str:
        return f"{self._folder}/{batch:010d}.json"
