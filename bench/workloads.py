"""What is measured: each workload runs on a system that is up, on a fresh topic, and returns its figures by name.

Figures carry their units: ``messages_per_s``, ``megabytes_per_s``, ``broker_cpu_us`` (a message, the broker's processes
alone), ``broker_cpu_s_per_gb``, ``client_cores`` (the bench's own CPU while it ran), ``p50_ms``, ``p99_ms``.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bench.consume import consume_together
from bench.latency import WARM_UP_MESSAGES, Latency, produce_to_ack, produce_to_consumer
from bench.peers import System
from bench.processes import cpu_seconds
from bench.produce import Load, Shape, fill, produce, pump

Figures = Mapping[str, float]
T = TypeVar("T")

MOVED = "moved_megabytes"
"""What went through in a run: added up, it says how much a broker had seen when its memory was weighed."""


@dataclass(frozen=True)
class Sizes:
    """How much each workload does; `smoke` is enough to see that it works, and no measurement."""

    seconds: float = 1.5
    latency_messages: int = 1500
    consume_bytes: int = 256 << 20
    restart_bytes: int = 2 << 30
    partitions: int = 1000
    export_messages: int = 2_000_000
    tail_messages: int = 1_000_000
    throttle_bytes_s: int = 20_000_000
    headroom_s: float = 6.0
    """For so much longer than the producers run there is something to move."""
    load_pause_s: float = 0.0
    """Of the load beside a fault, after a message to each partition."""

    @classmethod
    def smoke(cls) -> Sizes:
        return cls(0.2, 100, 16 << 20, 16 << 20, 50, 0, 20_000, 500_000, 40.0, 0.02)


FILL_MESSAGES = 80
"""Messages of 200 bytes in 16 KB, the batch that Java's producer makes unless told otherwise."""


class Workload(Protocol):
    """One row of the results."""

    @property
    def name(self) -> str: ...

    def partitions(self, sizes: Sizes) -> int: ...

    def prepare(self, system: System, topic: str, sizes: Sizes) -> int:
        """Puts into a fresh topic what the runs read; how many messages that is."""

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures: ...

    @property
    def fresh_topic(self) -> bool:
        """Whether each run needs an empty topic of its own."""

    @property
    def reads_only(self) -> bool:
        """Whether how a system flushes makes no difference to it."""


def weighed(system: System, run: Callable[[], T]) -> tuple[T, float, float]:
    """What `run` returned, and the CPU seconds that the broker, and this process, its client, took meanwhile."""
    ours, theirs = _own_cpu(), cpu_seconds(system.broker_pids())
    done = run()
    return done, cpu_seconds(system.broker_pids()) - theirs, _own_cpu() - ours


def _own_cpu() -> float:
    times = os.times()
    return times.user + times.system


def produced(system: System, run: Callable[[], Load]) -> Figures:
    """The figures of a load of a producer."""
    load, broker_cpu, client_cpu = weighed(system, run)
    return {
        "messages_per_s": load.messages / load.seconds,
        "megabytes_per_s": load.value_bytes / load.seconds / 1e6,
        "broker_cpu_us": 1e6 * broker_cpu / load.messages,
        MOVED: load.value_bytes / 1e6,
        "client_cores": client_cpu / load.seconds,
    }


def consumed(system: System, run: Callable[[], Load]) -> Figures:
    """The figures of a load of consumers."""
    load, broker_cpu, client_cpu = weighed(system, run)
    return {
        "messages_per_s": load.messages / load.seconds,
        "megabytes_per_s": load.value_bytes / load.seconds / 1e6,
        "broker_cpu_s_per_gb": 1e9 * broker_cpu / load.value_bytes,
        MOVED: load.value_bytes / 1e6,
        "client_cores": client_cpu / load.seconds,
    }


def _waited(system: System, measure: Callable[[int, str, int], Latency], topic: str, sizes: Sizes) -> Figures:
    before = cpu_seconds(system.broker_pids())
    latency = measure(system.port, topic, sizes.latency_messages)
    cpu = cpu_seconds(system.broker_pids()) - before
    return {**latency._asdict(), "broker_cpu_us": 1e6 * cpu / (sizes.latency_messages + WARM_UP_MESSAGES)}


@dataclass(frozen=True)
class _Fresh:
    """What workloads on an empty topic share."""

    name: str
    fresh_topic: bool = True
    reads_only: bool = False

    def partitions(self, sizes: Sizes) -> int:
        return 1

    def prepare(self, system: System, topic: str, sizes: Sizes) -> int:
        return 0


@dataclass(frozen=True)
class Produce(_Fresh):
    """librdkafka produces in one shape."""

    shape: Shape = Shape(None)

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        return produced(system, lambda: produce(system.port, topic, self.shape, sizes.seconds))


@dataclass(frozen=True)
class ProduceBesideDd(Produce):
    """The same, and then `dd` that writes as many bytes into the same folder and flushes them: what the disk takes."""

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        figures = super().run(system, topic, sizes, prepared)
        of_disk = dd_megabytes_per_s(system.folder, figures[MOVED])
        rate = figures["megabytes_per_s"]
        return {**figures, "dd_megabytes_per_s": of_disk, "of_dd": rate / of_disk}


def dd_megabytes_per_s(folder: Path, megabytes: float) -> float:
    """`dd` of so much in blocks of 1 MB, with one fdatasync at its end, into a file that is removed."""
    os.sync()
    path = folder / "dd"
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1000000", f"count={max(1, round(megabytes))}", "conv=fdatasync"]
    began_s = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    took_s = time.perf_counter() - began_s
    path.unlink()
    return max(1, round(megabytes)) / took_s


@dataclass(frozen=True)
class ProduceManyPartitions(_Fresh):
    """librdkafka produces round robin over many partitions of a topic that stays: making it takes longer than a run."""

    fresh_topic: bool = False

    def partitions(self, sizes: Sizes) -> int:
        return sizes.partitions

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        shape = Shape(None, partitions=sizes.partitions, linger_ms=20, queue=100_000)
        return produced(system, lambda: produce(system.port, topic, shape, sizes.seconds))


@dataclass(frozen=True)
class Pump(_Fresh):
    """The same ready-made request again and again: the broker's own ceiling."""

    batch: int = 1
    in_flight: int = 1000

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        return produced(system, lambda: pump(system.port, topic, self.batch, 200, self.in_flight, sizes.seconds))


@dataclass(frozen=True)
class Consume(_Fresh):
    """Consumers at once that fetch and discard the same messages, each so many times, from the page cache."""

    consumers: int = 1
    passes: int = 1
    fresh_topic: bool = False
    reads_only: bool = True

    def prepare(self, system: System, topic: str, sizes: Sizes) -> int:
        return fill(system.port, topic, FILL_MESSAGES, 200, sizes.consume_bytes)

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        return consumed(system, lambda: consume_together(system.port, topic, prepared, self.consumers, self.passes))


@dataclass(frozen=True)
class ToAck(_Fresh):
    """One message at a time, until its acknowledgement."""

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        return _waited(system, produce_to_ack, topic, sizes)


@dataclass(frozen=True)
class ToConsumer(_Fresh):
    """One message at a time, until a waiting consumer has it."""

    def run(self, system: System, topic: str, sizes: Sizes, prepared: int) -> Figures:
        return _waited(system, produce_to_consumer, topic, sizes)


BATCHED = "produce, batches up to 1 MB, acks=all"
BATCH_50 = "produce, batch 50, acks=all"
BATCH_1 = "produce, batch 1 pipelined, acks=all"
KILOBYTES = "produce, 1 KB values, batched, acks=all"
PUMP_BATCHED = "ready-made requests, batch 4500, acks=all"
PUMP_50 = "ready-made requests, batch 50, acks=all"
PUMP_1 = "ready-made requests, batch 1, acks=all"
CONSUME = "consume, 1 client"
CONSUME_10 = "consume, 10 clients at once"
TO_ACK = "one message, produce to ack"
TO_CONSUMER = "one message, produce to consumer"
MANY_PARTITIONS = "produce round robin over many partitions, acks=all"

WORKLOADS: tuple[Workload, ...] = (
    Produce(BATCHED),
    Produce(BATCH_50, shape=Shape(50, queue=50_000)),
    Produce(BATCH_1, shape=Shape(1, queue=2000, linger_ms=0)),
    Produce("produce, batch 50, acks=1", shape=Shape(50, acks="1", queue=50_000)),
    Produce("produce, batch 1 pipelined, acks=1", shape=Shape(1, acks="1", queue=2000, linger_ms=0)),
    Produce("produce, batch 50, acks=0", shape=Shape(50, acks="0", queue=50_000)),
    ProduceBesideDd(KILOBYTES, shape=Shape(None, value_bytes=1000, queue=100_000)),
    Pump(PUMP_BATCHED, batch=4500, in_flight=5),
    Pump(PUMP_50, batch=50, in_flight=200),
    Pump(PUMP_1, batch=1, in_flight=1000),
    Consume(CONSUME, passes=4),
    Consume(CONSUME_10, consumers=10),
    ToAck(TO_ACK),
    ToConsumer(TO_CONSUMER),
    ProduceManyPartitions(MANY_PARTITIONS),
)
"""In the order they run: many partitions last, since an idle broker with many is not the same broker."""
