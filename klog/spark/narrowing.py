"""What a filter leaves to be read of a topic, from the plan that Spark has made of a query.

Spark 4.3 gives a Python source the wrong plan when it pushes filters down to it (`docs/pipeline.md`, Options): what was
planned for one filter stays with the frame. So klog lets it push none, and makes a source of its own for each plan: the
query is asked again of a source that reads less. The filter stays in the plan, so that this decides what is read, never
what is found.

The conditions joined by AND that bound partition, offset or timestamp (from below) say what need not be read. An upper
bound of timestamp bounds nothing: times are the producers', and an early one may come late. For a lower bound the
broker names the first message that is as late: all before it are earlier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from klog.client.raw_fetch import Range, RawCluster
from klog.errors import UsageError
from klog.names import TopicPartition
from klog.spark.option_values import lowered
from klog.spark.options import SourceOptions
from klog.spark.planning import resolve

_BOUND = re.compile(r"\((?:[\w`]+\.)?(partition|offset) (=|>=|>|<=|<) (-?\d+)L?\)")
_TIME = re.compile(r"\((?:[\w`]+\.)?(timestamp) (>=|>) TIMESTAMP '([0-9: .-]+)'\)")
"""As Spark writes a condition of the plan. The name before a column is the view's: no column here has fields."""


@dataclass
class Bounds:
    """What a filter leaves to be read: partitions and offsets inclusive, ``since_ms`` the earliest time."""

    partition: tuple[int, int] = (0, 2**31 - 1)
    offset: tuple[int, int] = (0, 2**63 - 1)
    since_ms: int | None = None

    def take(self, condition: str) -> None:
        """Narrow them by a condition in Spark's SQL; one that is not understood bounds nothing."""
        found = _BOUND.fullmatch(condition)
        if found is not None:
            number, sign = int(found[3]), found[2]
            low = number if sign in ("=", ">=") else number + 1 if sign == ">" else 0
            high = number if sign in ("=", "<=") else number - 1 if sign == "<" else 2**63 - 1
            known = getattr(self, found[1])
            setattr(self, found[1], (max(known[0], low), min(known[1], high)))
            return
        found = _TIME.fullmatch(condition)
        if found is not None:
            at = datetime.fromisoformat(found[3]).replace(tzinfo=UTC)
            since_ms = int(at.timestamp() * 1000)  # rounded down, so that none is missed
            self.since_ms = since_ms if self.since_ms is None else max(self.since_ms, since_ms)

    def within(self, cluster: RawCluster, ranges: Iterable[Range]) -> list[Range]:
        """What is left of the ranges."""
        ranges = [one for one in ranges if self.partition[0] <= one.partition <= self.partition[1]]
        since = dict.fromkeys((TopicPartition(one.topic, one.partition) for one in ranges), self.since_ms)
        times = {one: at for one, at in since.items() if at is not None}
        first = cluster.offsets(times) if times else {}
        found = []
        for one in ranges:
            start = first.get(TopicPartition(one.topic, one.partition), one.from_offset)
            start = one.to_offset if start < 0 else max(one.from_offset, start, self.offset[0])
            stop = min(one.to_offset, self.offset[1] + 1)
            if start < stop:
                found.append(one._replace(from_offset=start, to_offset=stop))
        return found

    @property
    def is_everything(self) -> bool:
        return self == Bounds()


@dataclass
class Reading:
    """One of klog's in a plan: its options, and what the filter right above it leaves."""

    options: dict[str, str]
    bounds: Bounds

    def left(self) -> str:
        """What is left to be read, as the option ``ranges``."""
        options = SourceOptions.parse(self.options)
        with options.connect() as cluster:
            ranges = options.ranges if options.ranges is not None else resolve(cluster, options)
            return json.dumps(self.bounds.within(cluster, ranges))


def where(frame: Any, condition: Any) -> Any:
    """``frame.where(condition)`` that reads only what the condition leaves, of a frame just loaded.

    ``frame`` is what ``spark.read.format("klog")...load()`` has returned; what it reads is planned again here, and it
    stays as it is. On a Connect server, which shows no plan, everything is read. UsageError for any other frame.
    """
    filtered = frame.where(condition)
    if not hasattr(frame, "_jdf"):
        return filtered
    relation = frame._jdf.queryExecution().analyzed()
    given = _options_of(relation)
    if given is None:
        raise UsageError(
            "this frame is more than a topic as it was read", hint='klog.spark.where takes what format("klog") loads'
        )
    found = _readings(filtered)
    if len(found) != 1 or found[0].bounds.is_everything:
        return filtered
    kept = {name: value for name, value in given.items() if name.lower() not in _SAYING_WHAT}
    fresh = frame.sparkSession.read.format("klog").options(**kept, ranges=found[0].left())
    return fresh.load().where(condition)


_SAYING_WHAT: Final = frozenset(
    {"subscribe", "subscribepattern", "assign", "ranges", "startingoffsetsbytimestampstrategy"}
    | {f"{end}{kind}" for end in ("starting", "ending") for kind in ("offsets", "timestamp", "offsetsbytimestamp")}
)
"""Options that ``ranges`` stands for."""


def readings_of(frame: Any) -> dict[str, Reading]:
    """By topic, those of topics that the optimized plan reads once."""
    found: dict[str, list[Reading]] = {}
    for one in _readings(frame):
        topic = lowered(one.options).get("subscribe")
        if topic is not None:
            found.setdefault(topic, []).append(one)
    return {topic: all_[0] for topic, all_ in found.items() if len(all_) == 1}


def _readings(frame: Any) -> list[Reading]:
    found: list[Reading] = []
    _walk(frame._jdf.queryExecution().optimizedPlan(), None, found)
    return found


def _walk(plan: Any, parent: Any, found: list[Reading]) -> None:
    children = plan.children()
    options = _options_of(plan) if children.isEmpty() else None
    if options is not None:
        bounds = Bounds()
        if parent is not None and parent.nodeName() == "Filter":
            for condition in _conjuncts(parent.condition()):
                bounds.take(condition)
        found.append(Reading(options, bounds))
    for subquery in _all(plan.subqueries()):
        _walk(subquery, None, found)
    for child in _all(children):
        _walk(child, plan, found)


def _all(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _conjuncts(condition: Any) -> list[str]:
    if condition.getClass().getSimpleName() == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [str(condition.sql())]


def _options_of(plan: Any) -> dict[str, str] | None:
    """The options of a relation of ``format("klog")``; None for anything else."""
    if "Relation" not in plan.nodeName() and "Scan" not in plan.nodeName():
        return None
    try:
        relation = plan.relation() if "Scan" in plan.nodeName() else plan
        if relation.table().name() != "klog":
            return None
        return {str(name): str(value) for name, value in dict(relation.options()).items()}
    except Exception:  # py4j: a relation of another kind has no such method
        return None
