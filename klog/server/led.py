"""What own requests ask of many partitions at once: answered one after the other, in one thread of each log dir.

A thread, because an answer may have to be read from a cold disk; one for all that a request asks of a log dir, because
most partitions are answered quicker than a thread is changed. What it takes together is bounded: see `look_ups`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.net.connection import Connection
from klog.replication.partition import Partition
from klog.storage.log_end import LogEnd
from klog.storage.patience import ENDLESS, Patience

if TYPE_CHECKING:
    from klog.server.broker import Broker

Work = Callable[[Any, Partition, LogEnd, Patience], Mapping[str, Any]]
"""(what is asked, its partition, that one's high watermark when the request came, patience) -> the answer's fields."""


async def answered(
    broker: Broker,
    connection: Connection | None,
    topics: Sequence[tuple[str, Sequence[Any]]],
    work: Work,
    refused: Mapping[str, Any],
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

    def answer(topic: str, one: Any, patience: Patience) -> dict[str, Any]:
        led = ends[topic, one.partition_index]
        try:
            if isinstance(led, KlogError):
                raise led.bare()
            patience.spend()
            fields, code = work(one, *led, patience), 0
        except KlogError as error:
            fields, code = refused, error.wire
        return {"partition_index": one.partition_index, "error_code": code, **fields}

    by_disk: dict[str, list[tuple[int, int]]] = {}
    for at, (topic, asked) in enumerate(topics):
        for index, one in enumerate(asked):
            led = ends[topic, one.partition_index]
            disk = "" if isinstance(led, KlogError) else led[0].log.home.path
            by_disk.setdefault(disk, []).append((at, index))

    answers: list[list[dict[str, Any]]] = [[{}] * len(asked) for _, asked in topics]

    def answer_all(places: list[tuple[int, int]], patience: Patience) -> None:
        for at, index in places:
            topic, asked = topics[at]
            answers[at][index] = answer(topic, asked[index], patience)

    with broker.look_ups.of(connection) as look_up:
        for disk, places in by_disk.items():
            try:
                if disk:
                    await look_up.run(disk, functools.partial(answer_all, places))
                else:
                    answer_all(places, ENDLESS)
            except KlogError as error:  # no thread was to be had: what is not answered is refused
                for at, index in places:
                    partition_index = topics[at][1][index].partition_index
                    answers[at][index] = {"partition_index": partition_index, "error_code": error.wire, **refused}
    return answers
