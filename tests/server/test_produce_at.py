"""ProduceAt: appended where the log ends as expected, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from klog.errors import (
    EndMoved,
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidTopic,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from klog.names import EVENTS_TOPIC
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import Record, encode_batch
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, channels, create, error, metadata, offsets, produce, values


def facts(bootstrap: str, topic: str) -> tuple[int, UUID]:
    """Leader epoch of partition 0, and the topic's id."""
    (found,) = metadata(bootstrap, [topic], 12).topics
    return int(found.partitions[0].leader_epoch), found.topic_id


def one(
    topic: str,
    end: int,
    epoch: int,
    rows: list[Record] | None = None,
    *,
    partition: int = 0,
    topic_id: UUID | None = None,
    source: str = "",
    writer: str = "me",
) -> dict[str, Any]:
    return {
        "topic": topic,
        "topic_id": topic_id,
        "partition_index": partition,
        "leader_epoch": epoch,
        "expected_end": end,
        "source": source,
        "writer": writer,
        "records": bytes(encode_batch(rows or values(3))),
    }


def produce_at(bootstrap: str, *appends: dict[str, Any], timeout_ms: int = 10_000) -> list[Any]:
    return list(ask(bootstrap, ApiKey.PRODUCE_AT, 0, timeout_ms=timeout_ms, partitions=list(appends)).partitions)


def test_appended_where_the_log_ends_there(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    epoch, topic_id = facts(broker.bootstrap, topic)
    (first,) = produce_at(broker.bootstrap, one(topic, 0, epoch, topic_id=topic_id))
    assert (error(first), first.base_offset, first.end_offset) == (0, 0, 3)
    (second,) = produce_at(broker.bootstrap, one(topic, first.end_offset, epoch, topic_id=topic_id))
    assert error(second) == 0
    # Committed when it is answered: what a consumer is shown.
    assert offsets(broker.bootstrap, topic) == (0, second.end_offset)


def test_not_appended_elsewhere(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    epoch, _ = facts(broker.bootstrap, topic)
    (first,) = produce_at(broker.bootstrap, one(topic, 0, epoch, writer="first"))
    (base,) = produce(broker.bootstrap, topic, [values(2)])
    for wrong in (0, first.end_offset, base, base + 1, base + 3, -1):
        (refused,) = produce_at(broker.bootstrap, one(topic, wrong, epoch, writer="second"))
        assert (error(refused), refused.base_offset, refused.end_offset) == (EndMoved.wire, -1, base + 2), wrong
        assert refused.writer == "first"
        assert f"{topic}-0 " in refused.error_message and str(base + 2) in refused.error_message
    assert offsets(broker.bootstrap, topic) == (0, base + 2)


def test_asked_twice_it_is_appended_once(broker: RunningBroker, topic: str) -> None:
    """As after a lost answer: the same request again finds its own end."""
    create(broker.bootstrap, topic)
    epoch, _ = facts(broker.bootstrap, topic)
    first, second = produce_at(broker.bootstrap, one(topic, 0, epoch), one(topic, 0, epoch))
    assert (error(first), error(second)) == (0, EndMoved.wire)
    assert second.end_offset == first.end_offset == 3


def test_of_many_at_once_one_is_appended(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    epoch, _ = facts(broker.bootstrap, topic)

    async def race() -> list[int]:
        end, won = 0, []
        async with channels(broker.bootstrap, 8) as eight:
            for _ in range(10):
                asked = codec.request(ApiKey.PRODUCE_AT, 0, timeout_ms=10_000, partitions=[one(topic, end, epoch)])
                answers = [answer.partitions[0] for answer in await asyncio.gather(*(c.request(asked) for c in eight))]
                won.append(sum(error(answer) == 0 for answer in answers))
                assert all(error(answer) in (0, EndMoved.wire) for answer in answers)
                end = max(answer.end_offset for answer in answers)
        return won

    assert asyncio.run(race()) == [1] * 10


def test_another_epoch_and_another_topic(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    epoch, topic_id = facts(broker.bootstrap, topic)
    wrong = [
        (one(topic, 0, epoch - 1), FencedLeaderEpoch),
        (one(topic, 0, -1), FencedLeaderEpoch),
        (one(topic, 0, epoch + 1), UnknownLeaderEpoch),
        (one(topic, 0, epoch, topic_id=UUID(int=7)), InconsistentTopicId),
        (one(topic, 0, epoch, partition=5), UnknownTopicOrPartition),
        (one(f"{topic}-none", 0, epoch), UnknownTopicOrPartition),
    ]
    answers = produce_at(broker.bootstrap, *(asked for asked, _ in wrong), one(topic, 0, epoch, topic_id=topic_id))
    for (asked, expected), answer in zip(wrong, answers[:-1], strict=True):
        assert error(answer) == expected.wire, (asked["topic"], asked["leader_epoch"], answer)
    assert error(answers[-1]) == 0  # each succeeds or fails alone
    assert offsets(broker.bootstrap, topic) == (0, 3)


def test_the_story_is_written_by_brokers_alone(broker: RunningBroker) -> None:
    (refused,) = produce_at(broker.bootstrap, one(EVENTS_TOPIC, 0, 0))
    assert error(refused) == InvalidTopic.wire


def test_a_source_is_in_its_own_way_alone(broker: RunningBroker, topic: str) -> None:
    """What others append meanwhile does not keep a copier from its work; what is its own source's does."""
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(2)])
    epoch, _ = facts(broker.bootstrap, topic)
    (early,) = produce_at(broker.bootstrap, one(topic, 0, epoch, source="a"))
    assert error(early) == EndMoved.wire  # of what was there before the leader knows nothing
    seen = early.end_offset
    produce(broker.bootstrap, topic, [values(2)])
    (of_a,) = produce_at(broker.bootstrap, one(topic, seen, epoch, source="a", writer="first"))
    (of_b,) = produce_at(broker.bootstrap, one(topic, seen, epoch, source="b", writer="second"))
    (strict,) = produce_at(broker.bootstrap, one(topic, seen, epoch))
    assert [error(answer) for answer in (of_a, of_b, strict)] == [0, 0, EndMoved.wire]
    (again,) = produce_at(broker.bootstrap, one(topic, seen, epoch, source="a", writer="third"))
    assert (error(again), again.writer, again.end_offset) == (EndMoved.wire, "first", of_b.end_offset)
    for wrong in (of_a.end_offset - 1, of_b.end_offset + 1):
        assert error(produce_at(broker.bootstrap, one(topic, wrong, epoch, source="a"))[0]) == EndMoved.wire
    assert error(produce_at(broker.bootstrap, one(topic, of_a.end_offset, epoch, source="a"))[0]) == 0


def test_of_two_writers_of_a_source_the_younger_is_refused(broker: RunningBroker, topic: str) -> None:
    """Once for each time that the older has asked in vain: also where the younger is faster every time."""
    create(broker.bootstrap, topic)
    epoch, _ = facts(broker.bootstrap, topic)

    def by(writer: str, end: int) -> Any:
        return produce_at(broker.bootstrap, one(topic, end, epoch, source="a", writer=writer))[0]

    first = by("2-younger", 0)
    assert error(first) == 0
    lost = by("1-older", 0)
    assert (error(lost), lost.writer) == (EndMoved.wire, "2-younger")
    refused = by("2-younger", first.end_offset)
    assert (error(refused), refused.writer) == (InvalidProducerEpoch.wire, "1-older")
    again = by("2-younger", first.end_offset)  # the older one may have died meanwhile
    assert error(again) == 0
    won = by("1-older", again.end_offset)
    assert error(won) == 0
    lost = by("2-younger", again.end_offset)
    assert (error(lost), lost.writer) == (EndMoved.wire, "1-older")
