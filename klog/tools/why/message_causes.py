"""Why a message can be read, or cannot: from facts to steps. Nothing here asks the cluster anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from klog.admin.acts import SETTINGS
from klog.admin.quarantine import LostRow
from klog.names import TopicPartition, counted
from klog.tools.events import EventFilter
from klog.tools.where import Place
from klog.tools.why.causes import is_well, partition_steps
from klog.tools.why.steps import Known, Step, deleted_by, shortened_by, time_of, with_act

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
COMMITTED: Final = "committed"


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What the leader says of one offset. ``place``: the batch that a fetch there begins with."""

    name: TopicPartition
    offset: int
    start: int = 0
    end: int = 0
    """The high watermark."""
    place: Place | None = None
    settings: Mapping[str, str | None] = field(default_factory=dict)
    first: datetime | None = None
    """The time of the first message that is left."""
    failed: str | None = None
    """Why the leader could not be asked."""


def why_message(known: Known, of: MessageFacts) -> list[Step]:
    """Where the message is; or why it is not there, or cannot be read yet."""
    return list(_steps(known, of))


def _steps(known: Known, of: MessageFacts) -> Iterator[Step]:
    one, place = known.metadata.topics[of.name.topic].partitions[of.name.partition], of.place
    lost = next((row for row in known.snapshot.lost if _has(row, of)), None)
    if of.failed is not None:
        yield known.step(f"offset {of.offset} of {of.name} cannot be looked up", of.failed)
        if is_well(one):
            yield known.step(f"the leader, broker {one.leader}, fails", of.failed, "`klog status`")
        else:
            yield from partition_steps(known, of.name, one)
    elif of.offset < of.start:
        yield from _below(known, of)
    elif place is not None and place.batch_offset <= of.offset < place.batch_offset + place.messages:
        if place.state == COMMITTED:
            batch = f"batch {place.batch_offset} with {counted(place.messages, 'message')}"
            evidence = f"broker {place.broker}: {batch}, leader epoch {place.leader_epoch}"
            yield known.step(f"message {of.offset} of {of.name} is there, committed", evidence)
            return
        yield known.step(f"message {of.offset} of {of.name} is appended, and not committed", f"high watermark {of.end}")
        if is_well(one):
            do = "ask again: a replica that stays behind leaves the in-sync replicas after replica.lag.time.max.ms"
            what = "an in-sync replica has not flushed it yet"
            yield known.step(what, "consumers read up to the high watermark", do)
        else:
            yield from partition_steps(known, of.name, one)
    elif lost is None and place is not None:
        yield known.step(f"{of.name} has no message {of.offset}", f"the log has {of.start} to {of.end}")
        last = place.batch_offset + place.messages - 1
        evidence = f"the next batch has {place.batch_offset} to {last}; nothing was lost there"
        do = f"read from {place.batch_offset}: offsets are addresses, and most addresses are inside of a batch"
        yield Step(None, f"offset {of.offset} was never given to a message", evidence, do)
    else:
        yield known.step(f"{of.name} has no message {of.offset}", f"log start offset {of.start}, end {of.end}")
        if lost is not None:
            yield _cut(lost)
            return
        do = f"`klog tail {of.name.topic} -p {of.name.partition}` shows what comes"
        what = f"it is not written yet: the log ends at {of.end}"
        yield known.step(what, f"leader: high watermark {of.end}", do)


def _has(row: LostRow, of: MessageFacts) -> bool:
    if row.from_ is None or row.to is None:
        return False
    return (row.topic, row.partition) == of.name and row.from_ <= of.offset < row.to


def _cut(row: LostRow) -> Step:
    """A truncation, an unclean election or damage took it; the bytes are kept."""
    show = f"`klog lost show {row.topic} -p {row.partition} --broker {row.broker}`"
    evidence = f"broker {row.broker} keeps {row.from_} to {row.to} in {row.file}"
    do = f"{show} shows what is kept, `klog lost replay` appends it again"
    when = None if isinstance(row.time, str) else row.time
    return Step(when, f"broker {row.broker} set these messages aside: {row.reason}", evidence, do)


def _below(known: Known, of: MessageFacts) -> Iterator[Step]:
    """Retention, or a request to delete records: what is left is too young for retention where it was that."""
    yield known.step(f"{of.name} has no message {of.offset} any more", f"log start offset {of.start}")
    do = "nothing brings it back"
    deletion = deleted_by(known, of.name.topic, of.name.partition, of.offset, do)
    if deletion is not None:
        yield deletion
        return
    retention_ms, retention_bytes = (_number(of.settings.get(name)) for name in (RETENTION_MS, RETENTION_BYTES))
    settings = f"{RETENTION_MS} {retention_ms}, {RETENTION_BYTES} {retention_bytes}"
    since = time_of(known.last(EventFilter(of.name.topic, kinds=("topic-created",))))
    is_young = retention_ms < 0 or (
        since is not None and retention_ms < 1 << 50 and known.now - since < timedelta(milliseconds=retention_ms)
    )
    changed = any(one.kind == SETTINGS for one in known.acts_on(f"topic {of.name.topic}"))
    if is_young and retention_bytes < 0 and not changed:
        evidence = f"{settings}: the topic is younger than its retention"
        do = f"{do}; look for who deletes records (`kafka-delete-records`, a stream program)"
        yield Step(None, "a DeleteRecords request deleted it", evidence, do)
        return
    first = "" if of.first is None else f"; the first message that is left is from {of.first:%Y-%m-%d %H:%M:%S}"
    do = f"{do}; `klog topic config {of.name.topic} retention.ms=N` keeps more of what comes"
    step = Step(of.first, "retention deleted it", f"{settings}{first}", do)
    yield from with_act(step, shortened_by(known, of.name.topic, do))


def _number(text: str | None) -> int:
    try:
        return int(text or "-1")
    except ValueError:
        return -1
