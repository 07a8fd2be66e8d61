"""All curves: what grows, over which values, what is told of a point, and the bars."""

from __future__ import annotations

from collections.abc import Sequence

from bench.growth.clusters import COMMANDS, brokers, factors, three
from bench.growth.growing import Bar, Growing
from bench.growth.one_broker import batches, connections, consumers, log_sizes, message_sizes, partitions
from bench.growth.registry import groups, topics

CURVES: Sequence[Growing] = (
    Growing(
        "partitions",
        "Partitions of one broker",
        "partitions",
        (1, 1000, 10_000, 26_000),
        (1, 50),
        partitions,
        {
            "megabytes": "broker, MB",
            "made_per_s": "made a second",
            "messages_per_s": "produced in turn, messages/s",
            "restart_s": "kill -9 to the first ack, s",
            "restart_cpu_s": "of it: broker's CPU, s",
            "opened_s": "of it: process, logs and ZooKeeper, s",
            "elected_s": "of it: leaders elected and written, s",
            "led_s": "of it: all led, s",
            "metadata_s": "metadata of all, s",
            "list_s": "`klog topic list`, s",
            "list_cpu_s": "of it: CPU of command and broker, s",
            "helper_megabytes": "ZooKeeper, MB",
        },
        {"megabytes": ("KB each", 1e3), "restart_s": ("ms each", 1e3)},
        (
            Bar("megabytes", 6.0, "memory a partition, KB", each=True),
            Bar("restart_s", 8.0, "kill -9 to the first ack, s"),
            Bar("list_s", 1.0, "`klog topic list`, s"),
        ),
        limit_s=120.0,
        why="A restart opens each log (three small files of its folder), has the controller decide about each "
        "partition, writes its state to ZooKeeper, and makes the leader's side of each: all of it is the interpreter's "
        "work, one partition after the other. A list asks for each partition's leader and for its count of messages.",
    ),
    Growing(
        "connections",
        "Connections to one broker",
        "connections",
        (1, 100, 1000, 3000, 8000),
        (1, 50),
        connections,
        {
            "grown_kilobytes": "grown, KB",
            "cores": "idle, cores",
            "p50_ms": "another's ack p50, ms",
            "p99_ms": "another's ack p99, ms",
        },
        {"grown_kilobytes": ("KB each", 1.0)},
        (Bar("grown_kilobytes", 30.0, "memory a connection, KB", each=True),),
    ),
    Growing(
        "three",
        "Partitions of factor 3 on three brokers",
        "partitions",
        (100, 1000, 10_000),
        (2, 20),
        three,
        {
            "led_again_s": "a broker's death to all led again, s",
            "megabytes": "a broker, MB",
            "made_per_s": "made a second",
            "back_s": "started again to all in sync, s",
            "led_again_cpu_s": "led again: the survivors' CPU, s",
            **{f"{name}_s": f"`klog {' '.join(command)}`, s" for name, command in COMMANDS.items()},
            **{f"{name}_cpu_s": f"`klog {' '.join(command)}`, all CPU, s" for name, command in COMMANDS.items()},
            "helper_megabytes": "ZooKeeper, MB",
        },
        {"megabytes": ("KB each", 1e3), "led_again_s": ("ms each", 1e3)},
        (
            Bar("led_again_s", 1.5, "a broker's death to all led again, s"),
            *(Bar(f"{name}_s", 3.0, f"`klog {' '.join(command)}`, s") for name, command in COMMANDS.items()),
        ),
        why="Wall time is that of a machine whose cores are shared; rows of CPU say what is left of it on idle "
        "cores. After a death the controller decides about each partition, writes it to ZooKeeper, and tells the "
        "brokers, a thousand partitions at a time and those without a leader first.",
        limit_s=150.0,
    ),
    Growing(
        "groups",
        "Groups",
        "groups",
        (1, 1000, 5000, 20_000),
        (1, 20),
        groups,
        {
            "commits_per_s": "commits/s",
            "helper_megabytes": "ZooKeeper, MB",
            "first_per_s": "first commits/s",
            "cpu_us": "broker CPU, us a commit",
            "megabytes": "broker, MB",
            "list_s": "`klog group list`, s",
        },
        {"megabytes": ("KB each", 1e3), "helper_megabytes": ("KB each", 1e3)},
        (Bar("list_s", 3.0, "`klog group list`, s"),),
        why="A commit is a write of ZooKeeper, and a group's first one makes its nodes before: the rate is that of one "
        "client that waits for each. Commits of many members share ZooKeeper's flushes (RESULTS.md, commits of 1,000 "
        "members).",
        limit_s=300.0,
    ),
    Growing(
        "topics",
        "Topics of one partition",
        "topics",
        (10, 100, 1000, 3000),
        (2, 12),
        topics,
        {
            "made_per_s": "made a second, 100 a request",
            "one_ms": "one alone, ms",
            "megabytes": "broker, MB",
            "helper_megabytes": "ZooKeeper, MB",
            "metadata_s": "metadata of all, s",
            "list_s": "`klog topic list`, s",
        },
        {"megabytes": ("KB each", 1e3), "helper_megabytes": ("KB each", 1e3)},
        (Bar("list_s", 1.0, "`klog topic list`, s"),),
        ("klog", "kafka-4.1", "kafka-3.9"),
    ),
    Growing(
        "acks",
        "Replication factor, and acknowledgements",
        "replicas",
        (1, 2, 3),
        (1, 2),
        factors,
        {
            "all_per_s": "acks=all, messages/s",
            "leader_per_s": "acks=1, messages/s",
            "none_per_s": "acks=0, messages/s",
        },
        {},
    ),
    Growing(
        "brokers",
        "Brokers on this machine",
        "brokers",
        (1, 3, 5, 8),
        (1, 2),
        brokers,
        {
            "messages_per_s": "messages/s",
            "started_s": "all started, to the first ack, s",
            "cpu_us": "brokers' CPU, us a message",
            "idle_cores": "idle, cores together",
            "megabytes": "a broker, MB",
            "helper_megabytes": "ZooKeeper, MB",
        },
        {"started_s": ("s each", 1.0), "idle_cores": ("cores each", 1.0)},
        limit_s=110.0,
        why="All brokers and the client share the machine's cores: messages/s falls as they become more than "
        "the cores, and so does what a start may have of them.",
    ),
    Growing(
        "message-size",
        "Size of a message",
        "bytes a message",
        (10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000),
        (10, 10_000),
        message_sizes,
        {"megabytes_per_s": "MB/s", "messages_per_s": "messages/s"},
        {},
    ),
    Growing(
        "batch",
        "Messages of a batch",
        "messages a batch",
        (1, 10, 100, 1000, 10_000),
        (1, 100),
        batches,
        {"messages_per_s": "messages/s", "cpu_us": "broker CPU, us a message"},
        {},
    ),
    Growing(
        "consumers",
        "Consumers of the same data",
        "consumers",
        (1, 5, 20, 100),
        (1, 5),
        consumers,
        {"megabytes_per_s": "MB/s together", "cpu_s_per_gb": "broker CPU, s a GB"},
        {},
    ),
    Growing(
        "log",
        "Size of a log",
        "GB",
        (1, 4),
        (1,),
        log_sizes,
        {"restart_s": "kill -9 to the first ack, s", "look_up_ms": "look-up by time, ms"},
        {"restart_s": ("ms a GB", 1e3)},
    ),
)
