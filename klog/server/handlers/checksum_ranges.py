"""ChecksumRanges (klog's own, 10005): the CRC of ranges of addresses of a replica, leading or following.

Behaviour
    The answer has each partition's start, high watermark, end (addresses) and holes, and one CRC per range. With
    ``probe_address`` it also says whether the batch there is valid. A range that retention has cut meanwhile begins at
    the log's present start, and no range goes beyond the log's end. A thread reads the files, page by page from the
    cache as far as they are in it. A request beyond RANGES_MAX ranges or BYTES_MAX bytes is refused as a whole: the
    client asks again for the rest.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from klog.errors import InvalidRequest, KlogError, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts
from klog.storage.lookup_budget import LookupBudget

if TYPE_CHECKING:
    from klog.storage.log import Log

RANGES_MAX: Final = 10_000
BYTES_MAX: Final = 256 * 1024 * 1024
"""Half a second of a thread at the slowest rate from a page cache."""


@handles(ApiKey.CHECKSUM_RANGES, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    topics = request.entity.topics
    ranges = [one for topic in topics for partition in topic.partitions for one in partition.ranges]
    if (
        len(ranges) > RANGES_MAX
        or any(not 0 <= one.from_address <= one.to_address or not 0 <= one.seed < 1 << 32 for one in ranges)
        or sum(one.to_address - one.from_address for one in ranges) > BYTES_MAX
    ):
        raise InvalidRequest(f"expected at most {RANGES_MAX} valid ranges, of at most {BYTES_MAX} bytes together")
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        answers = [await _one(parts, look_up, topic.name, asked) for topic in topics for asked in topic.partitions]
    return {"topics": in_topics(topics, answers)}


async def _one(parts: Parts, look_up: LookUp, topic: str, asked: Any) -> dict[str, Any]:
    name = TopicPartition(topic, asked.partition_index)
    answer: dict[str, Any] = {
        "partition_index": asked.partition_index,
        "error_code": 0,
        "leads": name in parts.partitions,
        "start_address": -1,
        "high_watermark": -1,
        "end_address": -1,
        "probe": -1,
        "holes": [],
        "ranges": [],
    }
    try:
        log = parts.log_dirs.log(name)
        if log is None:
            raise UnknownTopicOrPartition(f"broker {parts.identity.broker_id} has no replica of {name}")
        answer |= {
            "start_address": log.start_address,
            "high_watermark": parts.replicas.high_watermark(log),
            "end_address": log.end.address,
            "holes": [{"from_address": first, "to_address": end} for first, end in log.holes],
        }
        if asked.ranges or asked.probe_address >= 0:
            answer |= await look_up.run(log.log_dir.path, functools.partial(_read, log, asked))
    except KlogError as error:
        return {**answer, "error_code": error.wire}
    return answer


def _read(log: Log, asked: Any, budget: LookupBudget) -> dict[str, Any]:
    """In a thread."""
    start, end = log.start_address, log.end.address
    found = []
    for one in asked.ranges:
        budget.spend(one.to_address - one.from_address)
        first, stop = max(one.from_address, start), min(one.to_address, end)
        crc, size = log.checksum(first, stop, one.seed) if first < stop else (one.seed, 0)
        found.append({"from_address": first, "to_address": stop, "crc": crc, "bytes": size})
    probe = -1 if asked.probe_address < 0 else int(log.batch_checks(asked.probe_address))
    return {"ranges": found, "probe": probe}
