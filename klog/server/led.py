"""What own requests ask of many partitions at once: answered one after the other, in one thread.

A thread, because an answer may have to be read from a cold disk; one for the whole request, because most partitions are
answered quicker than a thread is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.replication.partition import Partition
from klog.server.executors import Purpose
from klog.storage.log_end import LogEnd

if TYPE_CHECKING:
    from klog.server.broker import Broker

Work = Callable[[Any, Partition, LogEnd], Mapping[str, Any]]
"""(what is asked, its partition, that one's high watermark when the request came) -> the fields of the answer."""


async def answered(
    broker: Broker, topics: Sequence[tuple[str, Sequence[Any]]], work: Work, refused: Mapping[str, Any]
) -> list[list[dict[str, Any]]]:
    """The answers, in the order asked; ``refused`` with the error's code where this broker cannot answer.

    The high watermark of a partition is the same in all that one request asks of it.
    """
    ends: dict[tuple[str, int], tuple[Partition, LogEnd] | KlogError] = {}
    for topic, asked in topics:
        for one in asked:
            place = (topic, one.partition_index)
            if place not in ends:
                try:
                    partition = broker.leader_of(*place)
                    ends[place] = partition, partition.high_watermark
                except KlogError as error:
                    ends[place] = error.bare()

    def answer(topic: str, one: Any) -> dict[str, Any]:
        led = ends[topic, one.partition_index]
        try:
            if isinstance(led, KlogError):
                raise led.bare()
            fields, code = work(one, *led), 0
        except KlogError as error:
            fields, code = refused, error.wire
        return {"partition_index": one.partition_index, "error_code": code, **fields}

    return await broker.executors.run_for(
        (led[0].log for led in ends.values() if not isinstance(led, KlogError)),
        Purpose.LOOK_UPS,
        lambda: [[answer(topic, one) for one in asked] for topic, asked in topics],
    )
