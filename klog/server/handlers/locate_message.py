"""LocateMessage (klog's own, 10003): the file of the batch that holds an offset, and the batch's place in the file."""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.parts import Parts


@handles(ApiKey.LOCATE_MESSAGE, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    partition = parts.partitions.leader_of(asked.topic, asked.partition_index)
    log = partition.log
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        found = await look_up.run(log.log_dir.path, lambda _: log.locate(asked.offset))
    committed = found.header.next_address <= partition.high_watermark.address
    return {
        "broker_id": parts.identity.broker_id,
        "file": str(found.path),
        "position": found.position,
        "length": found.size,
        "batch_offset": found.header.base_offset,
        "crc": found.header.crc,
        "leader_epoch": found.header.leader_epoch,
        "messages": found.header.count,
        "state": "committed" if committed else "appended",
    }
