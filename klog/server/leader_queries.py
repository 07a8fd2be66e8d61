"""Answers klog's own requests about many partitions: one after the other, in one thread per log dir.

A thread, because an answer may come from a cold disk; one for all partitions of a log dir, because most answers take
less than a change of threads. `look_ups` limits what a request may cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klog.errors import KlogError
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Request
from klog.server.parts import Parts
from klog.storage.log_end import LogEnd
from klog.storage.lookup_budget import UNLIMITED, LookupBudget

Work = Callable[[Any, LedPartition, LogEnd, LookupBudget], Mapping[str, Any]]
"""(question, partition, high watermark when the request came, budget) -> the answer's fields."""


async def answered(
    request: Request, parts: Parts, topics: Sequence[tuple[str, Sequence[Any]]], work: Work, refused: Mapping[str, Any]
) -> list[list[dict[str, Any]]]:
    """The answers, in the order of the questions; ``refused`` with an error code where this broker cannot answer.

    All questions of one request see the same high watermark of a partition.
    """
    ends: dict[tuple[str, int], tuple[LedPartition, LogEnd] | KlogError] = {}
    share = request.share()
    for topic, asked in topics:
        for one in asked:
            await share.yield_if_due()
            place = (topic, one.partition_index)
            if place not in ends:
                try:
                    partition = parts.partitions.leader_of(*place)
                    ends[place] = partition, partition.high_watermark
                except KlogError as error:
                    ends[place] = error.bare()

    def answer(topic: str, one: Any, budget: LookupBudget) -> dict[str, Any]:
        end = ends[topic, one.partition_index]
        try:
            if isinstance(end, KlogError):
                raise end.bare()
            budget.spend()
            fields, code = work(one, *end, budget), 0
        except KlogError as error:
            fields, code = refused, error.wire
        return {"partition_index": one.partition_index, "error_code": code, **fields}

    by_disk: dict[str, list[tuple[int, int]]] = {}
    for at, (topic, asked) in enumerate(topics):
        for index, one in enumerate(asked):
            end = ends[topic, one.partition_index]
            disk = "" if isinstance(end, KlogError) else end[0].log.log_dir.path
            by_disk.setdefault(disk, []).append((at, index))

    answers: list[list[dict[str, Any]]] = [[{}] * len(asked) for _, asked in topics]

    def answer_all(places: list[tuple[int, int]], budget: LookupBudget) -> None:
        for at, index in places:
            topic, asked = topics[at]
            answers[at][index] = answer(topic, asked[index], budget)

    with parts.look_ups.of(request.connection) as look_up:
        for disk, places in by_disk.items():
            try:
                if disk:
                    await look_up.run(disk, functools.partial(answer_all, places))
                else:
                    for one_place in places:
                        await share.yield_if_due()
                        answer_all([one_place], UNLIMITED)
            except KlogError as error:  # no thread was free in time
                for at, index in places:
                    partition_index = topics[at][1][index].partition_index
                    answers[at][index] = {"partition_index": partition_index, "error_code": error.wire, **refused}
    return answers
