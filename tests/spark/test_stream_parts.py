"""The rows of a batch in a partition, once: writers that are cut off at every append, beside others, and repeated.

No JVM: a part's rows are what a task of Spark's would have. "Cut off" is a writer that is given up behind an append,
as a killed process is; also one whose append arrives and whose answer does not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from klog.client.positions import LATEST
from klog.client.raw_fetch import RawCluster
from klog.errors import CannotConnect, Refused
from klog.names import TopicPartition
from klog.record.provenance_header import Marker
from klog.streams import part_writer
from klog.streams.part_writer import PartPlan, PartWriter, Row, WrittenPart
from klog.streams.stamp import Stamp, batch_of, place, source_of
from klog.streams.topic_sink import murmur2, partition_of, room_of
from klog.tools.copying.target import TargetLog
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages

QUERY = "0f0f0f0f-0000-4000-8000-000000000001"
SECRET = "5ec2e7"


class _Cut(Exception):
    """The process has ended here."""


def rows(count: int, partition: int = 0, batch: int = 0) -> list[Row]:
    return [(partition, 1_700_000_000_000 + n, f"k{n}".encode(), b"%d of %d" % (n, batch), ()) for n in range(count)]


def ends_of(topic: TopicOnBroker) -> tuple[int, ...]:
    with RawCluster(topic.bootstrap) as cluster:
        numbers = sorted(cluster.describe([topic.name])[topic.name].partitions)
        found = cluster.offsets({TopicPartition(topic.name, one): LATEST for one in numbers})
        return tuple(found[TopicPartition(topic.name, one)] for one in numbers)


def plan_of(topic: TopicOnBroker, batch: int = 0) -> PartPlan:
    return PartPlan(topic.bootstrap, topic.name, QUERY, batch, ends_of(topic), 1_000_000, secret=SECRET)


def write(plan: PartPlan, wanted: Sequence[Row]) -> list[WrittenPart]:
    with PartWriter(plan) as writer:
        return writer.write(iter(wanted))


def cut_behind(monkeypatch: pytest.MonkeyPatch, appends: int, *, arrives: bool) -> None:
    """The process ends at its append of this number: before it is sent, or when it is in the log."""
    left = appends
    append = TargetLog.append

    async def counted(self: TargetLog, *args: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            if arrives:
                await append(self, *args)
            raise _Cut
        return await append(self, *args)

    monkeypatch.setattr(TargetLog, "append", counted)


@pytest.fixture
def small_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows or so in each."""
    monkeypatch.setattr(part_writer, "APPEND_BYTES", 800)


def values(topic: TopicOnBroker) -> list[bytes | None]:
    return [one.value for one in topic.messages()]


@pytest.mark.usefixtures("small_appends")
@pytest.mark.parametrize("arrives", [pytest.param(False, marks=pytest.mark.long("the other half")), True])
def test_a_batch_that_was_cut_off_anywhere_is_in_the_log_once(
    new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    topic = new_topic(2)
    expected: list[Row] = []
    other = 0
    for batch in range(7):
        wanted = [*rows(45, 0, batch), *rows(12, 1, batch)]
        plan = plan_of(topic, batch)
        expected += wanted
        for appends in (batch, batch // 2):  # cut off twice
            with monkeypatch.context() as patch, PartWriter(plan) as writer:
                cut_behind(patch, appends, arrives=arrives)
                try:
                    writer.write(iter(wanted))
                except _Cut:
                    pass
            topic.produce([Message(b"other", b"other")])  # somebody else writes in between
            other += 1
        done = write(plan, wanted)
        assert [(one.partition, one.rows, one.differs) for one in done] == [(0, 45, False), (1, 12, False)]
        again = write(plan, wanted)  # the driver died before Spark's commit
        assert [(one.rows, one.there) for one in again] == [(45, 45), (12, 12)]
    ours = [one.value for one in topic.messages() if one.value != b"other"]
    by_partition = sorted(expected, key=lambda row: row[0])
    assert ours == [row[3] for row in by_partition]
    assert values(topic).count(b"other") == other


@pytest.mark.usefixtures("small_appends")
def test_a_writer_of_an_older_batch_appends_nothing(new_topic: NewTopic) -> None:
    topic = new_topic()
    stale = plan_of(topic, 3)
    write(stale, rows(20, batch=3))
    write(plan_of(topic, 4), rows(20, batch=4))
    before = values(topic)
    assert [(one.rows, one.there, one.differs) for one in write(stale, rows(20, batch=3))] == [(20, 20, False)]
    assert values(topic) == before


@pytest.mark.usefixtures("small_appends")
def test_two_attempts_at_once_write_each_row_once(new_topic: NewTopic) -> None:
    """Speculation, or a driver that was taken for dead: they take turns at random, within the same appends."""
    topic = new_topic()
    plan = plan_of(topic)
    wanted = rows(120)
    chance = random.Random(20261125)
    writers = [PartWriter(plan), PartWriter(plan)]
    parts = [one._begin(0) for one in writers]
    left = [iter(wanted), iter(wanted)]
    ended = [False, False]
    while not all(ended):
        one = chance.choice([number for number, has in enumerate(ended) if not has])
        try:
            row = next(left[one], None)
            if row is None:
                parts[one].finish()
                ended[one] = True
            else:
                parts[one].add(*row[1:])
        except part_writer.Fenced:  # Spark runs the task again
            writers[one].__exit__()
            writers[one] = PartWriter(plan)
            parts[one] = writers[one]._begin(0)
            left[one] = iter(wanted)
    for writer in writers:
        writer.__exit__()
    assert values(topic) == [row[3] for row in wanted]


@pytest.mark.usefixtures("small_appends")
def test_other_rows_in_a_part_that_was_begun_are_refused(new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic()
    plan = plan_of(topic)
    with monkeypatch.context() as patch, PartWriter(plan) as writer, pytest.raises(_Cut):
        cut_behind(patch, 2, arrives=False)
        writer.write(iter(rows(50)))
    before = values(topic)
    assert 0 < len(before) < 50
    changed = rows(50)
    changed[3] = (*changed[3][:3], b"something else", ())
    with pytest.raises(Refused):
        write(plan, changed)
    with pytest.raises(Refused):
        write(plan, rows(5))
    assert values(topic) == before
    later = rows(50)
    later[-1] = (*later[-1][:3], b"behind what is there", ())
    write(plan, later)
    assert values(topic) == [row[3] for row in later]


def test_other_rows_in_a_part_that_is_complete_change_nothing_and_are_named(new_topic: NewTopic) -> None:
    topic = new_topic()
    plan = plan_of(topic)
    write(plan, rows(10))
    before = values(topic)
    done = write(plan, rows(9))
    assert [(one.rows, one.differs) for one in done] == [(9, True)]
    assert values(topic) == before


def test_rows_are_found_without_the_ends_and_only_behind_them(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(50))
    plan = plan_of(topic)
    write(plan, rows(10))
    topic.produce(make_messages(50))
    assert [one.there for one in write(replace(plan, ends=None), rows(10))] == [10]
    assert [one.there for one in write(plan, rows(10))] == [10]


@pytest.mark.usefixtures("small_appends")
def test_what_others_write_in_a_querys_name_hides_nothing(new_topic: NewTopic) -> None:
    """Both headers are there to be read and written again: of a later batch, of this one, with a stamp and without."""
    topic = new_topic()
    plan = plan_of(topic, 1)
    marker = Marker(source_of(QUERY, 0))

    def forge(batch: int, rows: int, *more: tuple[str, bytes]) -> None:
        topic.produce([Message(None, b"other", (marker.header(place(batch, rows - 1)), *more))])

    def stamp(batch: int, rows: int) -> tuple[str, bytes]:
        return Stamp(QUERY, batch, rows, "00" * 8, True).header(TopicPartition(topic.name, 0), "guessed")

    wanted = rows(45, 0, 1)
    forge(2000, 1)
    forge(2000, 1, stamp(2000, 1))
    with PartWriter(plan) as writer:
        part = writer._begin(0)
        for number, row in enumerate(wanted):
            if number == 20:
                forge(1, 45, stamp(1, 45))
                forge(3, 1)
            part.add(*row[1:])
        assert part.finish().there == 0
    assert [one.there for one in write(plan, wanted)] == [45]
    assert [one for one in values(topic) if one != b"other"] == [row[3] for row in wanted]


def test_each_message_has_its_place_and_the_last_one_how_far(new_topic: NewTopic) -> None:
    topic = new_topic()
    headed: list[Row] = [(0, None, None, None, (("a", b"1"), ("a", None)))]
    write(plan_of(topic, 7), [*rows(2), *headed])
    found = topic.messages()
    assert [one.value for one in found] == [b"0 of 0", b"1 of 0", None]
    assert found[2].key is None and [*found[2].headers][:2] == [("a", b"1"), ("a", None)]
    assert found[2].timestamp_ms > 1_700_000_000_000
    where = TopicPartition(topic.name, 0)
    stamps = [Stamp.of(one, where, SECRET) for one in found]
    assert stamps[:2] == [None, None]
    assert stamps[2] is not None and stamps[2][:3] == (QUERY, 7, 3) and stamps[2].is_last
    for others in ((where, "other"), (where._replace(partition=1), SECRET)):
        assert Stamp.of(found[2], *others) is None
    from klog.record.provenance_header import mark_of

    marks = [mark_of(one) for one in found]
    assert [mark and (batch_of(mark[1]), mark[1] & 0xFFFF_FFFF) for mark in marks] == [(7, 0), (7, 1), (7, 2)]
    assert {mark and mark[0] for mark in marks} == {source_of(QUERY, 0).key}


def test_a_notebook_s_event_loop_is_in_nobody_s_way(new_topic: NewTopic) -> None:
    topic = new_topic()

    async def cell() -> int:
        return room_of(topic.bootstrap, topic.name)

    assert asyncio.run(cell()) > 0


def test_no_broker_is_an_error(new_topic: NewTopic) -> None:
    plan = replace(plan_of(new_topic()), bootstrap="127.0.0.1:1")
    with pytest.raises(CannotConnect):
        write(plan, rows(1))


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_keys_are_placed_as_javas_clients_do(key: bytes, expected: int) -> None:
    """The first three are Kafka's own test values of UtilsTest."""
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(key, None, 7) == ((expected & 0x7FFFFFFF) % 7)
    assert partition_of(None, key, 7) == partition_of(key, None, 7)
