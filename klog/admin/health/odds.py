"""Rules of `klog status` about what costs or misleads without any failure: clocks, flushes, what is not compacted."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from klog.admin.health.dead import brokers_named
from klog.admin.health.findings import CRITICAL, WARNING, Finding
from klog.admin.health.snapshot import Snapshot
from klog.client.metadata import Metadata
from klog.config.topic import LogConfig
from klog.errors import InvalidConfig
from klog.render.value_texts import clock_text
from klog.replication.isr import check_flush_rule

CLOCKS_APART_MS: Final = 60_000
"""What brokers take for a wrong clock, too."""
FLUSH_SETTINGS: Final = ("log.flush.interval.messages", "log.flush.interval.ms", "replica.lag.time.max.ms")
UNCOMPACTED_BYTES: Final = 1 << 30
"""From here on what compaction would save is worth a finding."""


def clocks(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    """Of two brokers either may be right: one finding each."""
    middle_ms = median(snapshot.clocks.values()) if snapshot.clocks else 0
    for broker, clock_ms in sorted(snapshot.clocks.items()):
        ahead_ms = clock_ms - middle_ms
        if abs(ahead_ms) > CLOCKS_APART_MS:
            found = f"its clock is {clock_text(ahead_ms)} the brokers' middle"
            do = (
                "set the clock on its host (NTP): by it the broker refuses messages of the future "
                "(message.timestamp.after.max.ms), and deletes old ones (retention.ms)"
            )
            expected = f"at most {CLOCKS_APART_MS // 1000} s from the others"
            yield Finding(CRITICAL, f"broker {broker}", found, expected, do, "clock-skew")


def rare_flushes(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    wrong: dict[str, list[int]] = {}
    for broker, settings in sorted(snapshot.settings.items()):
        given = [settings.get(name) for name in FLUSH_SETTINGS]
        messages, due_ms, lag_ms = [int(one or 1) for one in given]
        try:
            if None not in given:
                check_flush_rule(LogConfig(flush_messages=messages, flush_ms=due_ms), lag_ms)
        except InvalidConfig as error:
            wrong.setdefault(error.message, []).append(broker)
    for found, ids in wrong.items():
        do = "lower log.flush.interval.ms on every broker, or leave out log.flush.interval.messages"
        subject = f"flushes of new topics, {brokers_named(ids)}"
        yield Finding(WARNING, subject, found, "topics with replicas can be created", do, "rare-flushes")


def uncompacted(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for name, size in sorted(snapshot.uncompacted.items()):
        if size >= UNCOMPACTED_BYTES:
            found = (
                f"cleanup.policy asks for compaction, and klog compacts nothing yet: its replicas keep {size:,} bytes"
            )
            expected = f"less than {UNCOMPACTED_BYTES:,} bytes"
            do = f"`klog topic config {name} cleanup.policy=compact,delete retention.ms=N`, where old messages may go"
            yield Finding(WARNING, f"topic {name}", found, expected, do, "not-compacted")
