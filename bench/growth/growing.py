"""What a curve is, and what the measures of all curves share."""

from __future__ import annotations

import functools
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster_systems import KlogCluster
from bench.commands import klog_seconds
from bench.klog_system import Klog, klog_version
from bench.maven import VERSIONS
from bench.one_log import Log, log_system
from bench.processes import cpu_seconds

TOPIC_TIMEOUT_S = 300.0
TOPIC_PARTITIONS = 1000
"""Of one topic at most: more of them are several topics."""
REQUEST_TOPICS = 5
"""Topics of one CreateTopics request."""
SECONDS = 2.0
VALUE_BYTES = 200
IDLE_S = 2.0
SETTLE_S = 1.0
SYSTEMS = ("klog", "kafka-4.1")

Figures = dict[str, float]
Points = Iterator[tuple[int, Figures]]
Measure = Callable[[str, Path, Sequence[int]], Points]
"""(name of a system, a folder of its own, values in rising order) -> each value with its figures."""

_numbers = count(1)


@dataclass(frozen=True)
class Bar:
    """What klog is to reach: a figure's highest value, or with ``each`` the slope over the whole curve."""

    figure: str
    most: float
    told: str
    each: bool = False


@dataclass(frozen=True)
class Growing:
    """One curve.

    ``figures``: name -> how a person reads it; the first two are drawn. A slope is told of those in ``sloped`` (unit,
    factor). ``limit_s``: a system that takes longer ends its curve there. ``why``: where the cost of one more goes.
    """

    key: str
    title: str
    of: str
    values: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Measure
    figures: dict[str, str]
    sloped: dict[str, tuple[str, float]]
    bars: tuple[Bar, ...] = ()
    systems: tuple[str, ...] = SYSTEMS
    limit_s: float = 75.0
    why: str = ""


def on_one_broker(measure: Callable[[Log, Sequence[int]], Points]) -> Measure:
    """The measure of a curve whose points are all taken on one broker, which is started for it."""

    @functools.wraps(measure)
    def measured(system: str, folder: Path, values: Sequence[int]) -> Points:
        with log_system(system, folder) as running:
            time.sleep(SETTLE_S)
            yield from measure(running, values)

    return measured


def version_of(system: str) -> str:
    return klog_version() if system == "klog" else VERSIONS[system]


def new_name(prefix: str = "growth") -> str:
    return f"{prefix}-{next(_numbers)}"


def admin_at(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def make_topics(bootstrap: str, topics: Sequence[NewTopic], together: int = REQUEST_TOPICS) -> None:
    admin = admin_at(bootstrap)  # held while it works: librdkafka gives up what it does when it goes
    for at in range(0, len(topics), together):
        made = admin.create_topics(list(topics[at : at + together]), operation_timeout=TOPIC_TIMEOUT_S)
        for one in made.values():
            one.result(TOPIC_TIMEOUT_S)


def make_topic(bootstrap: str, partitions: int = 1, replicas: int = 1) -> str:
    name = new_name()
    make_topics(bootstrap, [NewTopic(name, partitions, replicas)])
    return name


def drop_topic(bootstrap: str, name: str) -> None:
    admin = admin_at(bootstrap)
    admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)


def many_topics(partitions: int, replicas: int) -> list[NewTopic]:
    """Topics of `TOPIC_PARTITIONS` each, the last one of fewer, that have so many together."""
    sizes = [min(TOPIC_PARTITIONS, partitions - at) for at in range(0, partitions, TOPIC_PARTITIONS)]
    return [NewTopic(new_name("many"), size, replicas) for size in sizes]


def command_costs(name: str, system: Klog | KlogCluster, *command: str) -> Figures:
    """``NAME_s``: how long ``klog COMMAND`` takes; ``NAME_cpu_s``: CPU of the command and of the brokers it asks."""
    broker_s, own_s = cpu_seconds(system.broker_pids()), _children_cpu_s()
    wall_s = klog_seconds(system.folder, *command, may_find=True)
    cpu_s = cpu_seconds(system.broker_pids()) - broker_s + _children_cpu_s() - own_s
    return {f"{name}_s": wall_s, f"{name}_cpu_s": cpu_s}


def _children_cpu_s() -> float:
    """Of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(action: Callable[[], object]) -> float:
    """Its seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
