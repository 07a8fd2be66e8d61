"""ReadLost (klog's own, 10007): the bytes of a file that ListLost has named, piece by piece.

Behaviour
    The request names a file beside the segments of one of this broker's replicas; any other name, or a missing file, is
    INVALID_REQUEST. One answer has READ_BYTES_MAX bytes at most, also if the request asks for more.
"""

from __future__ import annotations

from typing import Final

from klog.errors import InvalidRequest, NoSuchThing, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.parts import Parts
from klog.storage.quarantine import read_quarantined

READ_BYTES_MAX: Final = 4 * 1024 * 1024


@handles(ApiKey.READ_LOST, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    name = TopicPartition(asked.topic, asked.partition_index)
    log_dir = next((one for one in parts.log_dirs.dirs if name in one.logs), None)
    if log_dir is None:
        raise UnknownTopicOrPartition(f"broker {parts.identity.broker_id} has no replica of {name}")
    size = max(0, min(asked.max_bytes, READ_BYTES_MAX))
    try:
        file_system, folder = log_dir.file_system, log_dir.logs[name].folder
        with LookUp(parts.runtime.executors, request.connection) as look_up:
            data = await look_up.run(
                log_dir.path, lambda _: read_quarantined(file_system, folder, asked.file, asked.position, size)
            )
    except NoSuchThing as error:
        raise InvalidRequest(error.message) from None
    return {"data": data}
