"""`klog lost`, over one real broker whose folders hold what a truncation and a recovery leave."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from klog.admin.quarantine import LostRow, check_no_doubles, choose, list_lost
from klog.errors import NoSuchThing, Refused, UnknownTopicOrPartition
from klog.record.records import Record, encode_batch
from klog.storage.damage_record import DamageRecord
from klog.tools.quarantine_replay import replay, show
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, read, run

FIRST_MS = 1_700_000_000_000


def cut_batches(first: int, marks: list[str]) -> bytes:
    """Batches of two messages each, at their addresses."""
    data = bytearray()
    for mark in marks:
        records = [
            Record(0, FIRST_MS, b"k", f"{mark} one".encode(), (("h", b"1"),)),
            Record(1, FIRST_MS + 1, None, f"{mark} two".encode(), ()),
        ]
        data += encode_batch(records, base_offset=first + len(data), leader_epoch=3)
    return bytes(data)


def set_aside(broker: RunningBroker, topic: str, first: int, data: bytes, suffix: str = "lost") -> Path:
    path = broker.folder / "data" / f"{topic}-0" / f"{first:020d}.{suffix}"
    path.write_bytes(data)
    return path


def test_list_tells_what_was_kept_and_why(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    kept = cut_batches(500, ["a", "b"])
    set_aside(broker, topic, 500, kept)
    damage = DamageRecord(40, 90, "magic 7")
    set_aside(broker, topic, 40, damage.render(b"?" * 50), "damaged")
    rows = run(broker.bootstrap, lambda cluster: list_lost(cluster, [topic]))
    assert [(row.topic, row.partition, row.broker, row.from_, row.to, row.messages, row.reason) for row in rows] == [
        (topic, 0, 1, 40, 90, None, "magic 7"),
        (topic, 0, 1, 500, 500 + len(kept), 4, "cut to follow the leader"),
    ]
    assert all(row.time is not None and row.error is None for row in rows)
    assert any(row.topic == topic for row in run(broker.bootstrap, list_lost))


def test_show_writes_the_messages_as_tail_does(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    set_aside(broker, topic, 500, cut_batches(500, ["a", "b"]))

    def shown(**options: str) -> tuple[bytes, tuple[int, int]]:
        sink = io.BytesIO()

        async def verb(cluster: object) -> tuple[int, int]:
            rows = await choose(cluster, topic)  # type: ignore[arg-type]
            return await show(cluster, rows, sink, **options)  # type: ignore[arg-type]

        counted = run(broker.bootstrap, verb)
        return sink.getvalue(), counted

    assert shown() == (b"a one\na two\nb one\nb two\n", (4, 0))
    assert shown(output="format", form="%o %k %h\\n")[0].splitlines()[:2] == [b"500 k h=1", b"501  "]
    first = json.loads(shown(output="jsonl")[0].splitlines()[0])
    assert (first["topic"], first["offset"], first["key"], first["value"]) == (topic, 500, "k", "a one")


def test_bytes_that_are_no_messages_are_counted(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    damage = DamageRecord(200, 900, "CRC")
    set_aside(broker, topic, 200, damage.render(cut_batches(200, ["a"]) + b"?" * 37), "damaged")
    sink = io.BytesIO()

    async def verb(cluster: object) -> tuple[int, int]:
        return await show(cluster, await choose(cluster, topic, from_address=200), sink)  # type: ignore[arg-type]

    assert run(broker.bootstrap, verb) == (2, 37)
    assert sink.getvalue() == b"a one\na two\n"


def test_replay_sends_keys_headers_and_times(broker: RunningBroker, topic: str) -> None:
    target = f"{topic}-again"
    make_topic(broker.bootstrap, topic)
    make_topic(broker.bootstrap, target, retention_ms="-1")  # what is sent again is old by its timestamps
    set_aside(broker, topic, 500, cut_batches(500, ["a", "b"]))

    async def verb(cluster: object) -> list[object]:
        return list(await replay(cluster, await choose(cluster, topic, broker=1), target))  # type: ignore[arg-type]

    (row,) = run(broker.bootstrap, verb)
    assert (row.messages, row.error, row.target) == (4, None, target)  # type: ignore[attr-defined]
    written, _ = read(broker.bootstrap, target, last=10, until_end=True, output="format", format="%k %s %T %h\\n")
    assert sorted(written.splitlines()) == sorted(
        line
        for mark in (b"a", b"b")
        for line in (b"k %s one %d h=1" % (mark, FIRST_MS), b" %s two %d " % (mark, FIRST_MS + 1))
    )


def test_what_is_not_there_is_said_so(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with pytest.raises(NoSuchThing):
        run(broker.bootstrap, lambda cluster: choose(cluster, topic))
    with pytest.raises(UnknownTopicOrPartition):
        run(broker.bootstrap, lambda cluster: choose(cluster, "no-such-topic"))


def row(broker: int, first: int, end: int, partition: int = 0) -> LostRow:
    return LostRow("t", partition, broker, first, end, 1, "", None)


def test_what_two_replicas_have_kept_is_not_sent_twice() -> None:
    check_no_doubles([row(1, 0, 10), row(2, 10, 20), row(2, 0, 10, partition=1)])
    with pytest.raises(Refused, match="brokers 1 and 2"):
        check_no_doubles([row(1, 0, 10), row(2, 5, 20)])
    with pytest.raises(Refused, match="once"):
        check_no_doubles([row(1, 0, 10), row(1, 0, 10)])
