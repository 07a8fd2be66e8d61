"""Goal: what brokers remember for the lag of groups is right at every minute, and bounded whatever comes.

Method: a clock of the test's own; a model that keeps everything; and a real broker.
"""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Consumer, TopicPartition

from klog.protocol.apis import ApiKey
from klog.server import offset_history
from klog.server.offset_history import UNKNOWN, WINDOW_MS, OffsetHistory, Snapshot
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import ask, create, produce, values

MINUTE_MS = 60_000


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def at(snapshot: Snapshot[str], key: str, time_ms: int) -> int | None:
    """The value of a number at a moment; None where it is not remembered."""
    for one in snapshot.curves:
        if one.key == key:
            value = one.base if snapshot.begin_ms <= time_ms else UNKNOWN
            for minute in snapshot.minutes:
                if minute.time_ms <= time_ms:
                    value = dict(zip(minute.curves, minute.values, strict=True)).get(one.number, value)
            return value
    return None


def test_only_what_changes_takes_room_and_the_minute_that_is_not_over_is_there() -> None:
    clock = Time()
    history = OffsetHistory[str](keeps_idle=True, clock=clock)
    for minute in range(1, 11):
        clock.ms = minute * MINUTE_MS
        history.note("idle", 5)
        history.note("busy", minute)
        history.end_minute()
    clock.ms += MINUTE_MS // 2
    history.note("busy", 100)
    found = history.snapshot()
    assert sum(len(one.curves) for one in found.minutes) == 12 and not found.is_full
    assert [at(found, "busy", minute * MINUTE_MS) for minute in (0, 1, 7, 10)] == [UNKNOWN, 1, 7, 10]
    assert at(found, "busy", clock.ms) == 100 and at(found, "idle", clock.ms) == 5
    assert history.snapshot().minutes[-1] == found.minutes[-1], "looking changes nothing"


@each("keeps_idle", [True, False])
def test_a_day_is_remembered_and_what_is_gone_is_forgotten(keeps_idle: bool) -> None:
    clock = Time()
    history = OffsetHistory[str](keeps_idle=keeps_idle, clock=clock)
    history.note("lost", 1)
    history.note("idle", 2)
    history.end_minute()
    history.note("lost", UNKNOWN)
    history.note("never", UNKNOWN)
    for minute in range(1, WINDOW_MS // MINUTE_MS + 3):
        clock.ms = minute * MINUTE_MS
        history.note("same", 3)
        history.note("busy", minute)
        history.end_minute()
    found = history.snapshot()
    assert {one.key for one in found.curves} == {"same", "busy"} | ({"idle"} if keeps_idle else set())
    assert at(found, "same", clock.ms) == 3
    assert found.minutes[0].time_ms >= clock.ms - WINDOW_MS
    assert at(found, "busy", clock.ms - WINDOW_MS + MINUTE_MS) == minute - WINDOW_MS // MINUTE_MS + 1


def test_further_numbers_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_history, "CURVES_MAX", 10)
    history = OffsetHistory[str](keeps_idle=True, clock=Time())
    for number in range(11):
        history.note(f"k{number}", number)
    assert history.snapshot().is_full and len(history.snapshot().curves) == 10
    history.end_minute()
    assert history.snapshot().is_full, "the minute before had one"
    history.end_minute()
    assert not history.snapshot().is_full


@each("seed", range(2))
def test_however_much_changes_it_is_bounded_and_no_value_is_made_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_history, "POINTS_MAX", 300)
    chance = random.Random(seed)
    clock = Time()
    history = OffsetHistory[str](keeps_idle=True, clock=clock)
    written: dict[str, list[int]] = {f"k{number}": [] for number in range(12)}
    for minute in range(1, 400):
        clock.ms = minute * MINUTE_MS
        for key, known in written.items():
            known.append(known[-1] + chance.randrange(3) if known else 1)
            history.note(key, known[-1])
        history.end_minute()
        assert sum(len(one.curves) for one in history.snapshot().minutes) <= 300
    found = history.snapshot()
    times = [one.time_ms for one in found.minutes]
    assert times == sorted(times) and times[0] < 200 * MINUTE_MS, "the past becomes coarser before it is forgotten"
    assert times[-1] - times[-2] <= 3 * MINUTE_MS, "and the last minutes are as they were"
    for key, known in written.items():
        for minute in range(1, 400):
            value = at(found, key, minute * MINUTE_MS)
            assert value == UNKNOWN or value in known[:minute], "a value of that minute, or of an earlier one"
        assert at(found, key, clock.ms) == known[-1]
        assert [at(found, key, one) for one in times] == [known[one // MINUTE_MS - 1] for one in times]


def test_a_broker_tells_ends_of_topics_that_are_read_and_what_groups_commit(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    create(broker.bootstrap, f"{topic}-unread")
    produce(broker.bootstrap, topic, [values(1000)])
    produce(broker.bootstrap, f"{topic}-unread", [values(10)])
    group = f"{topic}-group"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    assert message is not None and message.error() is None
    consumer.commit(message, asynchronous=False)
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
    consumer.close()
    answer = ask(broker.bootstrap, ApiKey.READ_LAG_HISTORY, 0)
    assert not answer.is_full
    names = {(one.topic, one.partition_index): one for one in answer.end_curves}
    assert (f"{topic}-unread", 0) not in names
    last = [dict(zip(one.curves, one.offsets, strict=True)) for one in answer.end_minutes]
    assert [one[names[topic, 0].number] for one in last if names[topic, 0].number in one][-1] == end
    (committed,) = [one for one in answer.commit_curves if one.group == group]
    last = [dict(zip(one.curves, one.offsets, strict=True)) for one in answer.commit_minutes]
    assert [one[committed.number] for one in last if committed.number in one] == [message.offset() + 1]
