"""Requests of tests to a broker, over klog's own channel: one connection, one answer."""

from __future__ import annotations

import asyncio
import bisect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from klog.client.blocking import BlockingChannel
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.versions import is_flexible
from klog.record.records import Record, encode_batch
from tests.cli.runner import klog
from tests.until import until

T = TypeVar("T")

FIRST_MS = time.time_ns() // 1_000_000 - 60_000
"""When the first record of a test was made: a moment ago, for retention by time would delete older ones."""


@asynccontextmanager
async def channels(bootstrap: str, count: int = 1, **options: Any) -> AsyncIterator[list[Channel]]:
    """So many connections to the broker."""
    host, _, port = bootstrap.rpartition(":")
    made = [await Channel.connect(host, int(port), **options) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


def with_channel(bootstrap: str, work: Callable[[Channel], Awaitable[T]], **options: Any) -> T:
    """Run ``work`` with a channel to the broker."""

    async def run() -> T:
        async with channels(bootstrap, **{"client_id": "test", **options}) as (channel,):
            return await work(channel)

    return asyncio.run(run())


def borders(api: ApiKey, versions: range) -> list[int]:
    """Of these versions the lowest, the highest, and both sides of where the encoding became flexible."""
    first = bisect.bisect(versions, False, key=lambda version: is_flexible(api, version))
    wanted = {0, first - 1, first, len(versions) - 1}
    return [version for place, version in enumerate(versions) if place in wanted]


def answered(bootstrap: str, request: Any) -> Any:
    """What a request is answered: the answer's entity."""
    return with_channel(bootstrap, lambda channel: channel.request(request))


def ask(bootstrap: str, api: ApiKey, version: int, /, **fields: Any) -> Any:
    return answered(bootstrap, codec.request(api, version, **fields))


def error(answer: Any) -> int:
    """The wire code of one part of an answer."""
    code: int = answer.error_code.value
    return code


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    """As CreateTopics has it."""
    numbers = {"num_partitions": partitions, "replication_factor": factor}
    return {"name": name, **numbers, "assignments": [], "configs": [], **more}


def settings_of(**given: str | None) -> list[dict[str, Any]]:
    """As CreateTopics has them; underscores in the names stand for dots."""
    return [{"name": name.replace("_", "."), "value": value} for name, value in given.items()]


def create(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> None:
    """A topic; AssertionError if that is refused. Underscores in the names of settings stand for dots."""
    topic = new_topic(name, partitions, configs=settings_of(**settings))
    answer = ask(bootstrap, ApiKey.CREATE_TOPICS, 5, topics=[topic])
    assert error(answer.topics[0]) == 0, answer.topics[0]


def metadata(bootstrap: str, names: Iterable[str] | None, version: int = 9, **asked: Any) -> Any:
    """The answer about these topics, or (None) about all; none is made."""
    flags = [f"include_{one}_authorized_operations" for one in ("topic", "cluster")]
    asked = {**dict.fromkeys(["allow_auto_topic_creation", *flags], False), **asked}
    asked["topics"] = None if names is None else [{"name": name, "topic_id": None} for name in names]
    return ask(bootstrap, ApiKey.METADATA, version, **asked)


def group_request(
    api: ApiKey, version: int, group: str, member_id: str = "", generation: int = -1, /, **fields: Any
) -> Any:
    """Of a member of a group; of nobody by default."""
    whose = {"group_id": group, "member_id": member_id, "group_instance_id": None}
    whose |= dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), generation)
    return codec.request(api, version, **{**whose, **fields})


def commit(channel: BlockingChannel, group: str, topic: str, partitions: int, metadata: str = "") -> int:
    """The error code of a commit to all partitions."""
    committed = [
        {"partition_index": number, "committed_offset": 0, "committed_metadata": metadata}
        for number in range(partitions)
    ]
    topics = [{"name": topic, "partitions": committed}]
    answer = channel.request(group_request(ApiKey.OFFSET_COMMIT, 5, group, topics=topics))
    return error(answer.topics[0].partitions[0])


def values(count: int, size: int = 20) -> list[Record]:
    """Records 0 to count - 1, a millisecond apart."""
    return [Record(number, FIRST_MS + number, None, b"%0*d" % (size, number), ()) for number in range(count)]


def produce(bootstrap: str, topic: str, batches: list[list[Record]], partition: int = 0) -> list[int]:
    """Each batch in a request of its own, acks=all; the base offsets. AssertionError for a refusal."""

    async def work(channel: Channel) -> list[int]:
        offsets = []
        for batch in batches:
            answer = await channel.request(produce_request(topic, bytes(encode_batch(batch)), partition))
            one = answer.responses[0].partition_responses[0]
            assert error(one) == 0, one
            offsets.append(one.base_offset)
        return offsets

    return with_channel(bootstrap, work)


def produce_request(
    topic: str,
    records: bytes | Mapping[int, bytes],
    partition: int = 0,
    version: int = 8,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Any:
    """``records``: of the partition, or of several."""
    batches = records if isinstance(records, Mapping) else {partition: records}
    return codec.request(
        ApiKey.PRODUCE,
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout=10_000,
        topic_data=[
            {"name": topic, "partition_data": [{"index": number, "records": one} for number, one in batches.items()]}
        ],
    )


def produce_raw(
    bootstrap: str, topic: str, records: bytes, partition: int = 0, version: int = 8, acks: int = -1
) -> Any:
    """What a partition is answered."""
    request = produce_request(topic, records, partition, version, acks)
    return answered(bootstrap, request).responses[0].partition_responses[0]


def offsets_request(topic: str, timestamp: int, *partitions: int, version: int = 5) -> Any:
    asked = [{"partition_index": one, "current_leader_epoch": -1, "timestamp": timestamp} for one in partitions]
    topics = [{"name": topic, "partitions": asked}]
    return codec.request(ApiKey.LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics)


async def comes_to(wanted: object, attempt: Callable[[], Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Until an attempt has this outcome."""
    deadline = time.monotonic() + timeout_s
    while (found := await attempt()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


def told_of(bootstrap: str, kind: str, fits: Callable[[dict[str, Any]], object] = bool) -> list[dict[str, Any]]:
    """The events of a kind that fit, as soon as ``klog.events`` has one."""

    def look() -> list[dict[str, Any]]:
        told = klog("events", "--kind", kind, "--since", "@-1h", "-o", "jsonl", "-B", bootstrap)
        return [event for line in told.stdout.splitlines() if fits(event := json.loads(line))]

    return until(look, kind)


def offsets(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The start and the end that clients are shown."""

    async def work(channel: Channel) -> tuple[int, int]:
        found = []
        for timestamp in (-2, -1):
            one = (await channel.request(offsets_request(topic, timestamp, partition))).topics[0].partitions[0]
            assert error(one) == 0, one
            found.append(one.offset)
        return found[0], found[1]

    return with_channel(bootstrap, work)
