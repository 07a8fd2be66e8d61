"""Answers to requests about many partitions.

klog's own questions to leaders are answered one after the other, in one thread per log dir. A thread, because an answer
may come from a cold disk; one for all partitions of a log dir, because most answers take less than a change of threads.
`look_ups` limits what a request may cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Answer, Request, error_fields
from klog.server.look_ups import LookUp
from klog.server.parts import Parts
from klog.storage.log_end import LogEnd
from klog.storage.lookup_budget import LookupBudget

Work = Callable[[Any, LedPartition, LogEnd, LookupBudget], Mapping[str, Any]]
"""(question, partition, high watermark when the request came, budget) -> the answer's fields."""


def in_topics(
    topics: Iterable[Any], answers: Iterable[dict[str, Any]], *, name: str = "name", array: str = "partitions"
) -> list[dict[str, Any]]:
    """The answers as the request has the questions: an ``array`` in each topic."""
    left = iter(answers)
    return [{name: getattr(topic, name), array: [next(left) for _ in getattr(topic, array)]} for topic in topics]


Outcomes = dict[TopicPartition, KlogError | None]
"""Parts of a request, each of which succeeds or fails alone."""


def outcome_rows(outcomes: Outcomes) -> Answer:
    """The outcomes as klog's own requests answer them."""
    return {
        "outcomes": [
            {"topic": name.topic, "partition_index": name.partition, **error_fields(error)}
            for name, error in outcomes.items()
        ]
    }


def named_partitions(topics: Iterable[Any], *, topic: str = "name", array: str = "partitions") -> list[TopicPartition]:
    """The partitions of a request that has only their numbers, in an ``array`` in each topic."""
    return [TopicPartition(str(getattr(one, topic)), int(number)) for one in topics for number in getattr(one, array)]


async def of_leaders(
    request: Request, parts: Parts, work: Work, refused: Mapping[str, Any], *, array: str = "partitions"
) -> Answer:
    """The answers of ``work``; ``refused`` with an error code where this broker cannot answer.

    All questions of one request see the same high watermark of a partition.
    """
    asked = [(topic.name, one) for topic in request.entity.topics for one in getattr(topic, array)]
    answers: list[dict[str, Any]] = [{}] * len(asked)
    ends: dict[tuple[str, int], tuple[LedPartition, LogEnd] | KlogError] = {}
    by_disk: dict[str, list[int]] = {}

    def answer(at: int, fields: Mapping[str, Any], code: int = 0) -> None:
        answers[at] = {"partition_index": asked[at][1].partition_index, "error_code": code, **fields}

    share = request.share()
    for at, (topic, one) in enumerate(asked):
        await share.yield_if_due()
        place = (topic, one.partition_index)
        if place not in ends:
            try:
                partition = parts.partitions.leader_of(*place)
                ends[place] = partition, partition.high_watermark
            except KlogError as error:
                ends[place] = error.bare()
        found = ends[place]
        if isinstance(found, KlogError):
            answer(at, refused, found.wire)
        else:
            by_disk.setdefault(found[0].log.log_dir.path, []).append(at)

    def answer_all(places: list[int], budget: LookupBudget) -> None:
        for at in places:
            topic, one = asked[at]
            found = ends[topic, one.partition_index]
            assert not isinstance(found, KlogError)
            try:
                budget.spend()
                answer(at, work(one, *found, budget))
            except KlogError as error:
                answer(at, refused, error.wire)

    with LookUp(parts.runtime.executors, request.connection) as look_up:
        for disk, places in by_disk.items():
            try:
                await look_up.run(disk, functools.partial(answer_all, places))
            except KlogError as error:  # no thread was free in time
                for at in places:
                    answer(at, refused, error.wire)
    return {"topics": in_topics(request.entity.topics, answers, array=array)}
