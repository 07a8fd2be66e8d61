"""A log system on a folder of its own: klog or a Kafka, one broker, started for a measurement and removed behind it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.klog_system import Klog
from bench.peers import KafkaKraft, KafkaZooKeeper, kafka

TOPIC_TIMEOUT_S = 60.0

Log = Klog | KafkaKraft | KafkaZooKeeper

_numbers = count(1)


@contextmanager
def log_system(name: str, folder: Path) -> Iterator[Log]:
    """klog or a Kafka, running; klog without a trash, so that the disk of a deleted topic is free at once."""
    here = folder / name
    system: Log = Klog(name, here, {"klog.trash.retention.ms": "0"}) if name == "klog" else kafka(name, here)
    system.prepare()
    try:
        system.start("first")
        yield system
    finally:
        system.stop()
        shutil.rmtree(here, ignore_errors=True)


def bootstrap_of(system: Log) -> str:
    return f"127.0.0.1:{system.port}"


def make_topic(system: Log) -> str:
    """A new one with one partition."""
    name = f"paper-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap_of(system), "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    return name


def delete_topic(system: Log, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(system), "log_level": 0})
    admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)


@contextmanager
def topic_of(system: Log) -> Iterator[str]:
    name = make_topic(system)
    try:
        yield name
    finally:
        delete_topic(system, name)


def segments_of(system: Log, topic: str) -> list[Path]:
    """The files that hold its messages, the oldest first."""
    data = system.folder / "data"
    return sorted((data / f"{topic}-0").glob("*.log")) or sorted((data / f"{topic}-0").glob("*.kafka"))


def bytes_below(folder: Path) -> int:
    """What the files take on disk: blocks, so that space that is only reserved does not count."""
    return sum(one.stat().st_blocks * 512 for one in folder.rglob("*") if one.is_file())
