"""What klog is to reach: a ratio against a peer in the same run, or an absolute figure, with the moonshot behind it."""

from __future__ import annotations

from dataclasses import dataclass

from bench import workloads as w
from bench.klog_system import COMPILED, FIRST, LAST
from bench.run_record import RunRecord

KLOG, NO_FLUSH, KAFKA, FLUSHING = "klog", "klog-no-flush", "kafka-4.1", "kafka-4.1-flush"

MEMORY_IDLE = "memory, idle after start"
MEMORY_LOADED = "memory, after all produce and consume workloads"
MEMORY_PARTITIONS = "memory, with many partitions"
START = "process start to first acknowledged message"
VERSION, HELP, LIST = "klog --version", "klog --help", "klog topic list"
TAIL = "klog tail -o start -e to a pipe, 200-byte messages"
TAIL_JSONL = "klog tail -o start -e --output jsonl to a pipe, 200-byte messages"
EXPORT = "klog export run to Parquet, 200-byte messages"
LIBRARY_ASYNC = "klog.Producer, async, a message a send"
LIBRARY_SETS = "klog.Producer, async, sets of 50"
LIBRARY_SYNC = "klog.Producer, sync, a message a send, 1 thread"
LIBRARY_SYNC_8 = "klog.Producer, sync, a message a send, 8 threads"
LIBRARY_STREAM = "klog.Consumer, 1 stream"
RESTART = "kill -9, restart to first acknowledged message"

KLOG_2 = "klog, 2 processes"
HOST_MEMORY = "memory of one broker process, idle"
HOST_BATCHED = "two clients, batch 4500, acks=all"
HOST_50 = "two clients, batch 50, acks=all"
HOST_1 = "two clients, batch 1, acks=all"

TLS_BATCHED = "TLS: produce, batches up to 1 MB, acks=all"
TLS_50 = "TLS: produce, batch 50, acks=all"
TLS_PUMP_BATCHED = "TLS: ready-made requests, batch 4500, acks=all"
TLS_PUMP_50 = "TLS: ready-made requests, batch 50, acks=all"
TLS_PUMP_1 = "TLS: ready-made requests, batch 1, acks=all"
TLS_CONSUME = "TLS: consume, 1 client"
TLS_CONSUME_10 = "TLS: consume, 10 clients at once"
TLS_CONNECT = "TLS: connect and log in by SCRAM-SHA-256"

KLOG_3, KAFKA_3 = "klog x 3", "kafka-3.9 x 3"
THREE_STARTED = "three brokers, memory of one, idle after start"
THREE_LOADED = "three brokers, memory of one, after producing"
LEADER_KILLED = "leader killed with -9, longest wait for an ack"
LEADER_PAUSED = "leader paused, longest wait for an ack"
CONTROLLER_KILLED = "controller killed with -9, longest wait for an ack"
ALL_KILLED = "all three killed with -9, processes started to first ack"
LED_AGAIN = "many partitions, factor 3: a broker killed, all led again"
ROLLING = "many partitions, factor 3: rolling restart of three"
LEADER_OF_MANY = "leader of many partitions"
STOCK_KILLS = ("leader", LEADER_OF_MANY, "controller", "leader and controller", "coordinator")
STOCK_PRODUCERS = ("librdkafka", "kafka-python", "java")
STOCK_COMMITTERS = ("librdkafka-commits", "kafka-python-commits", "java-commits")
STOCK_WORST_S = 0.6
"""A wait that is longer is told of by the client's own log."""
MOVING = "producers while another topic is moved with a throttle"
SCRAPE = "many partitions, factor 3: one broker's /metrics"
UP = "klog up --brokers 3, process start to first ack"

KAFKA_39, TARGET = "kafka-3.9", "mirror's target"
FIRST_RECORD = "a group of one: subscribe to its first record"
JOINED = "a second member joins: both settled, heartbeats every 0.2 s"
JOINED_DEFAULT = "a second member joins: both settled, heartbeats every 3 s (the clients' default)"
MEMBER_KILLED = "a member killed with -9: all reassigned, beyond its session time-out of 6 s"
STREAMS_ENTER = "16 stream consumers enter at once, 64 partitions: settled after the last change"
STREAMS_LEAVE = "4 of 16 stream consumers leave: settled after the last change"
STREAMS_KILLED = "4 of 12 stream consumers killed with -9: settled after ZooKeeper's last change"
COMMITS = "commits of 100 groups x 10 members every 5 s (raw members, a connection each, one process)"
COORDINATOR_KILLED = "coordinator killed with -9, longest wait of commits: raw member"
COORDINATOR_KILLED_STOCK = "coordinator killed with -9, longest wait of commits: confluent-kafka"
LAG = "lag of 100 groups x 100 partitions, the whole command"
REPLAY = "klog replay, 200-byte messages, the whole command"
MIRROR = "klog mirror --once, 200-byte messages, the whole command"
CONSUMER_ROWS = (
    *(FIRST_RECORD, JOINED, JOINED_DEFAULT, MEMBER_KILLED, STREAMS_ENTER, STREAMS_LEAVE, STREAMS_KILLED, COMMITS),
    *(COORDINATOR_KILLED, COORDINATOR_KILLED_STOCK, LAG, TAIL, TAIL_JSONL, REPLAY, MIRROR),
)

SPARK_KAFKA = "spark-kafka"
READ_NOOP = "Spark reads a topic to nowhere, 200-byte messages"
READ_PARQUET = "Spark reads a topic and writes Parquet, 200-byte messages"
EXPORT_DIRECT = "an export's write step, its tasks writing Parquet, 200-byte messages"
EXPORT_SMALL = "an export of a thousand messages where Spark runs already"
EXPORT_COLD = "klog export run of a thousand messages, the whole command"
EXPORT_NOTHING = "klog export run with nothing new, the whole command"
EXPORT_FOLLOW = "klog export run --follow --every 1s, produced to committed"
EXPORT_SOONER = "klog export run --follow --every 500ms, produced to committed"
EXPORT_DECODED = "an export's write step, its tasks writing Avro values as typed columns of Parquet"
DECODE = "Avro values to typed columns, one core"
READ_MEMORY = "memory of a Python worker that reads: a range, and one four times as long"
DIRECT_MEMORY = "memory of a Python worker that writes Parquet"
PIPELINE_ROWS = (
    *(READ_MEMORY, DIRECT_MEMORY, READ_NOOP, READ_PARQUET, EXPORT_DIRECT, EXPORT_SMALL, EXPORT_COLD),
    *(EXPORT_NOTHING, EXPORT_FOLLOW, EXPORT_SOONER, EXPORT_DECODED, DECODE),
)


def three(workload: str) -> str:
    """The name of a workload where it runs on three brokers."""
    return f"three brokers, factor 3: {workload}"


@dataclass(frozen=True)
class Bar:
    """`against` names the peer of the ratio; None: the figure itself is held against the bar."""

    workload: str
    figure: str
    against: str | None
    bar: float
    moonshot: float
    at_least: bool = True
    of: str = KLOG
    """The system that is held against it."""
    is_of_worst: bool = False
    """The greatest figure is held against it, not the median; of no ratio."""

    def ours(self, record: RunRecord) -> float | None:
        """What is compared; None where the run lacks it."""
        if self.is_of_worst:
            return max(record.values(self.workload, self.of, self.figure), default=None)
        return record.median(self.workload, self.of, self.figure)

    def value(self, record: RunRecord) -> float | None:
        """The ratio, or the figure; None where the run lacks a part of it."""
        ours = self.ours(record)
        if self.against is None or ours is None:
            return ours
        theirs = record.median(self.workload, self.against, self.figure)
        return ours / theirs if theirs else None

    def verdict(self, value: float) -> str:
        if self.reached(value, self.moonshot):
            return "moonshot"
        return "reached" if self.reached(value, self.bar) else "**short**"

    def reached(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


def stock(what: str, client: str) -> str:
    """The row of a kill that stock clients with their default settings met."""
    return f"{what} killed with -9, longest wait of a stock client: {client}"


RATE, CPU, CPU_PER_GB = "messages_per_s", "broker_cpu_us", "broker_cpu_s_per_gb"

BARS = (
    Bar(w.BATCHED, RATE, KAFKA, 1.0, 1.5),
    Bar(w.BATCH_50, RATE, KAFKA, 1.5, 3),
    Bar(w.BATCH_1, RATE, KAFKA, 2, 8),
    Bar(w.BATCHED, RATE, FLUSHING, 1.2, 2),
    Bar(w.BATCH_50, RATE, FLUSHING, 8, 15),
    Bar(w.BATCH_1, RATE, FLUSHING, 10, 50),
    Bar(w.PUMP_BATCHED, RATE, KAFKA, 1.0, 1.5),
    Bar(w.PUMP_50, RATE, KAFKA, 1.5, 3),
    Bar(w.PUMP_1, RATE, KAFKA, 2, 8),
    *(Bar(one, RATE, earlier, 1.0, 1.2) for earlier in (FIRST, LAST) for one in (w.PUMP_1, w.PUMP_50)),
    *(Bar(one, RATE, KAFKA, bar, 2 * bar, of=COMPILED) for one, bar in ((w.BATCH_50, 2), (w.BATCH_1, 3))),
    *(Bar(one, RATE, KAFKA, bar, 2 * bar, of=COMPILED) for one, bar in ((w.PUMP_50, 3), (w.PUMP_1, 5))),
    Bar(w.PUMP_BATCHED, RATE, FLUSHING, 1.2, 2),
    Bar(w.PUMP_50, RATE, FLUSHING, 8, 15),
    Bar(w.PUMP_1, RATE, FLUSHING, 10, 50),
    Bar(w.BATCHED, RATE, KAFKA, 1.0, 1.5, of=NO_FLUSH),
    Bar(w.BATCH_50, RATE, KAFKA, 2, 3.5, of=NO_FLUSH),
    Bar(w.BATCH_1, RATE, KAFKA, 2, 3, of=NO_FLUSH),
    Bar(w.PUMP_BATCHED, RATE, KAFKA, 1.0, 1.5, of=NO_FLUSH),
    Bar(w.PUMP_50, RATE, KAFKA, 2, 3.5, of=NO_FLUSH),
    Bar(w.PUMP_1, RATE, KAFKA, 2, 3, of=NO_FLUSH),
    Bar(w.KILOBYTES, "of_dd", None, 0.95, 1.0),
    Bar(w.CONSUME, RATE, KAFKA, 1.0, 1.5),
    Bar(w.CONSUME_10, RATE, KAFKA, 1.0, 1.5),
    Bar(w.CONSUME, CPU_PER_GB, KAFKA, 1.0, 0.5, at_least=False),
    Bar(w.CONSUME_10, CPU_PER_GB, KAFKA, 1.0, 0.5, at_least=False),
    Bar(w.TO_ACK, "p50_ms", FLUSHING, 1.0, 0.5, at_least=False),
    Bar(w.TO_ACK, "p50_ms", KAFKA, 1.2, 0.9, at_least=False, of=NO_FLUSH),
    Bar(w.TO_CONSUMER, "p50_ms", FLUSHING, 1.0, 0.5, at_least=False),
    Bar(w.TO_CONSUMER, "p50_ms", KAFKA, 1.0, 0.6, at_least=False, of=NO_FLUSH),
    Bar(w.TO_CONSUMER, "p99_ms", KAFKA, 0.5, 0.3, at_least=False),
    Bar(w.TO_CONSUMER, "p99_ms", KAFKA, 0.5, 0.2, at_least=False, of=NO_FLUSH),
    Bar(w.BATCHED, CPU, KAFKA, 1.0, 0.5, at_least=False),
    Bar(MEMORY_IDLE, "megabytes", None, 100, 50, at_least=False),
    Bar(MEMORY_LOADED, "megabytes", None, 100, 50, at_least=False),
    Bar(MEMORY_PARTITIONS, "megabytes", None, 100, 50, at_least=False),
    Bar(START, "seconds", None, 1.0, 0.6, at_least=False),
    Bar(w.MANY_PARTITIONS, RATE, KAFKA, 1.0, 2),
    Bar(VERSION, "seconds", None, 0.15, 0.1, at_least=False),
    Bar(HELP, "seconds", None, 0.3, 0.15, at_least=False),
    Bar(LIST, "seconds", None, 0.5, 0.25, at_least=False),
    Bar(LIBRARY_ASYNC, RATE, None, 400_000, 600_000),
    Bar(LIBRARY_SETS, RATE, None, 400_000, 600_000),
    Bar(LIBRARY_STREAM, RATE, None, 1_000_000, 1_500_000),
    Bar(TAIL, RATE, None, 300_000, 600_000),
    Bar(TAIL_JSONL, RATE, None, 100_000, 300_000),
    Bar(EXPORT, "messages_per_s", None, 500_000, 2_000_000),
    Bar(RESTART, "seconds", None, 2.0, 0.8, at_least=False),
    Bar(three(w.BATCHED), RATE, KAFKA_3, 1.0, 1.5, of=KLOG_3),
    Bar(three(w.BATCH_50), RATE, KAFKA_3, 2, 5, of=KLOG_3),
    Bar(three(w.BATCH_1), RATE, KAFKA_3, 4, 10, of=KLOG_3),
    Bar(THREE_LOADED, "megabytes", None, 100, 50, at_least=False, of=KLOG_3),
    Bar(LEADER_KILLED, "seconds", None, 1.5, 0.3, at_least=False, of=KLOG_3),
    Bar(LEADER_PAUSED, "seconds", None, 7.0, 6.2, at_least=False, of=KLOG_3),
    Bar(CONTROLLER_KILLED, "seconds", None, 1.5, 0.3, at_least=False, of=KLOG_3),
    Bar(ALL_KILLED, "seconds", None, 3.0, 1.0, at_least=False, of=KLOG_3),
    Bar(LED_AGAIN, "seconds", None, 3.0, 1.0, at_least=False, of=KLOG_3),
    Bar(ROLLING, "seconds", None, 30.0, 10.0, at_least=False, of=KLOG_3),
    Bar(ROLLING, "failed_requests", None, 0, 0, at_least=False, of=KLOG_3),
    *(
        Bar(stock(what, client), "seconds", None, bar, moonshot, at_least=False, of=KLOG_3, is_of_worst=is_of_worst)
        for what in STOCK_KILLS
        for client in (STOCK_COMMITTERS if what == "coordinator" else STOCK_PRODUCERS)
        for is_of_worst, bar, moonshot in ((False, 0.3, 0.15), (True, STOCK_WORST_S, 0.3))
    ),
    Bar(MOVING, "slowed_of_throttle", None, 1.0, 0.0, at_least=False, of=KLOG_3),
    Bar(FIRST_RECORD, "seconds", None, 0.3, 0.1, at_least=False),
    Bar(JOINED, "seconds", None, 1.0, 0.3, at_least=False),
    Bar(MEMBER_KILLED, "beyond_s", None, 0.5, 0.1, at_least=False),
    *(Bar(one, "seconds", None, 3.0, 1.0, at_least=False) for one in (STREAMS_ENTER, STREAMS_LEAVE, STREAMS_KILLED)),
    *(Bar(one, "owned_twice", None, 0, 0, at_least=False) for one in (STREAMS_ENTER, STREAMS_LEAVE, STREAMS_KILLED)),
    Bar(COMMITS, "p99_ms", None, 50, 10, at_least=False),
    Bar(COORDINATOR_KILLED, "seconds", None, 1.5, 0.5, at_least=False, of=KLOG_3),
    Bar(COORDINATOR_KILLED_STOCK, "seconds", None, 1.5, 0.5, at_least=False, of=KLOG_3),
    Bar(LAG, "seconds", None, 2.0, 0.7, at_least=False),
    Bar(REPLAY, RATE, None, 150_000, 300_000),
    Bar(MIRROR, RATE, None, 150_000, 300_000),
    Bar(READ_NOOP, RATE, SPARK_KAFKA, 2.0, 4.0),
    Bar(READ_PARQUET, RATE, None, 500_000, 1_000_000),
    Bar(EXPORT_DIRECT, RATE, None, 1_000_000, 3_000_000),
    Bar(EXPORT_SMALL, "seconds", None, 1.0, 0.4, at_least=False),
    Bar(EXPORT_COLD, "seconds", None, 8.0, 4.0, at_least=False),
    Bar(EXPORT_NOTHING, "seconds", None, 0.7, 0.35, at_least=False),
    Bar(EXPORT_FOLLOW, "p50_ms", None, 2000, 1000, at_least=False),
    Bar(EXPORT_FOLLOW, "p99_ms", None, 2000, 1500, at_least=False),
    Bar(EXPORT_SOONER, "p99_ms", None, 1000, 800, at_least=False),
    Bar(EXPORT_DECODED, RATE, None, 300_000, 1_000_000),
    Bar(DECODE, RATE, None, 300_000, 1_000_000),
    Bar(READ_MEMORY, "grown_megabytes", None, 50, 10, at_least=False),
    Bar(HOST_BATCHED, RATE, KLOG, 1, 1.5, of=KLOG_2),
    Bar(HOST_50, RATE, KLOG, 1.5, 2, of=KLOG_2),
    Bar(HOST_1, RATE, KLOG, 1, 1.5, of=KLOG_2),
    Bar(HOST_50, RATE, KAFKA, 2, 3, of=KLOG_2),
    Bar(HOST_MEMORY, "megabytes", None, 50, 40, at_least=False, of=KLOG_2),
    *(Bar(one, RATE, KAFKA, 1.5, 2) for one in (TLS_BATCHED, TLS_50, TLS_PUMP_BATCHED, TLS_PUMP_50, TLS_PUMP_1)),
    *(Bar(one, CPU, KAFKA, 0.7, 0.5, at_least=False) for one in (TLS_BATCHED, TLS_PUMP_BATCHED)),
    *(Bar(one, RATE, KAFKA, 1.2, 1.5) for one in (TLS_CONSUME, TLS_CONSUME_10)),
    *(Bar(one, CPU_PER_GB, KAFKA, 0.7, 0.5, at_least=False) for one in (TLS_CONSUME, TLS_CONSUME_10)),
    Bar(TLS_CONNECT, "connections_per_s", KAFKA, 1.0, 2),
)
