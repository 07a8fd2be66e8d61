"""What a tier has, as it comes: messages by their stamps, and how long they were under way. A thread for each tier.

A cluster's tier is read as any consumer reads it, so a message counts when it is committed and visible. A table's tier
counts a batch when its manifest is there, by the stamps in its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Assigned

from bench.figure3.background import Background
from bench.figure3.delays import Delays
from klog.client.audit import HEADER, Stamp, read_stamp
from klog.client.servers import librdkafka_servers, silent_logger
from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import KlogError
from klog.export.files import format_named
from klog.export.manifest import Manifest
from klog.export.root import ExportRoot
from klog.tools.audit.tally import Tally

RUN_MESSAGES: Final = 2000
WAIT_S: Final = 0.2
LOOK_S: Final = 0.25
WINDOW_MS: Final = 600_000
COLUMNS: Final = ("topic", "timestamp", "headers")


class Watch(Background):
    """``messages`` that the tier has had so far, and their delays. `start`, then any thread may read."""

    def __init__(self, name: str) -> None:
        super().__init__(f"watch-{name}")
        self.name = name
        self.messages = 0
        self.batches = 0
        """Of a table."""
        self.delays = Delays()
        self.hosts: Counter[str] = Counter()
        """Messages by the front end that stamped them."""
        self.since_ms = 0
        """Of messages that were stamped earlier, delays do not count."""
        self.trouble: str | None = None
        """Why nothing can be read now."""

    def count_from(self, time_ms: int) -> None:
        """Delays of what was stamped before are forgotten: Spark was starting then."""
        self.since_ms = time_ms
        self.delays.forget()

    def _take(self, stamps: Iterable[Stamp], arrived_ms: int) -> None:
        delays_ms = []
        for one in stamps:
            self.hosts[one.host] += 1
            if one.time_ms >= self.since_ms:
                delays_ms.append(arrived_ms - one.time_ms)
        self.delays.add(delays_ms)


class LogWatch(Watch):
    """A topic of a cluster, from its start."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._now_ms = clock.now_ms

    def _work(self) -> None:
        consumer = Consumer(
            {
                **librdkafka_servers(self._bootstrap),
                "client.id": "klog-figure3",
                "group.id": "klog-figure3",  # asked for, and never used: partitions are assigned, nothing is committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "reconnect.backoff.max.ms": 1000,
                "logger": silent_logger(),
            }
        )
        try:
            consumer.assign([Assigned(self._topic, one, OFFSET_BEGINNING) for one in range(self._partitions)])
            while not self._end.is_set():
                run = consumer.consume(RUN_MESSAGES, WAIT_S)
                now_ms = self._now_ms()
                good = [one for one in run if one.error() is None]
                self._take((stamp for one in good for stamp in _stamps(one.headers())), now_ms)
                self.messages += len(good)
                if run:
                    last = run[-1].error()
                    self.trouble = None if last is None else last.str()
        finally:
            consumer.close()


class TableWatch(Watch):
    """An export's folder, batch after batch."""

    def __init__(self, name: str, root: Path) -> None:
        super().__init__(name)
        self._root = root

    def _work(self) -> None:
        known: tuple[Manifest, str] | None = None
        place = ExportRoot(str(self._root))
        while not self._end.wait(LOOK_S):
            try:
                for found in place.chain(known):
                    known = found
                    self._add(place, found[0])
                self.trouble = None
            except KlogError as error:
                self.trouble = error.message

    def _add(self, place: ExportRoot, manifest: Manifest) -> None:
        committed_ms = round(datetime.fromisoformat(manifest.committed_at).timestamp() * 1000)
        self._take((stamp for _, _, headers in rows(place, manifest) for stamp in _stamps(headers)), committed_ms)
        self.messages += sum(one.messages for one in manifest.files)
        self.batches += 1


Headers = Sequence[tuple[str, bytes | None]]


def _stamps(headers: Headers | None) -> Iterator[Stamp]:
    for name, value in headers or ():
        if name == HEADER and (stamp := read_stamp(value)) is not None:
            yield stamp


def rows(place: ExportRoot, manifest: Manifest) -> Iterator[tuple[str, int, Headers]]:
    """Topic, timestamp in ms and headers of every message of a batch, out of its files. CorruptLog, StorageError."""
    files = format_named(manifest.format)
    for one in manifest.files:
        with place.store.open_input(place.file_path(manifest, one.path)) as source:
            for batch in files.read(source, COLUMNS):
                columns = (batch.column(name).to_pylist() for name in COLUMNS)
                for topic, timestamp, headers in zip(*columns, strict=True):
                    pairs = [(header["key"], header["value"]) for header in headers or ()]
                    yield topic, round(timestamp.timestamp() * 1000), pairs


def tally_of_table(root: Path) -> Tally:
    """All that an export has, read once from its files."""
    place, tally = ExportRoot(str(root)), Tally(WINDOW_MS)
    for manifest, _ in place.settled(lambda: list(place.chain())):
        for topic, timestamp_ms, headers in rows(place, manifest):
            tally.add(topic, timestamp_ms, headers)
    return tally
