"""What the pipeline's tests share: topics with known messages, and a writer of Parquet that needs no JVM.

One Spark session serves the whole folder: the tests that use it are one group of xdist, and run in one worker.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as StockTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as StockNewTopic

from bench.maven import PeerMissing, connector_jars
from klog.coordination.schemas import SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.record.records import Record
from tests.broker_fixture import ROOT, RunningBroker
from tests.spark.quick_java import spark_environment
from tests.until import until

Given = TypeVar("Given")

COLUMNS = ["topic", "partition", "offset", "key", "value", "headers"]


NOW_MS = time.time_ns() // 1_000_000
"""Retention looks at the times of messages: old ones could be gone before a test has read them."""


class Message(NamedTuple):
    """What was produced; ``headers`` in order."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = NOW_MS


class TopicOnBroker:
    """A topic of the test's own. `produce` waits for every acknowledgement and returns the offsets."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.partitions = partitions
        admin = AdminClient({"bootstrap.servers": bootstrap})
        # Some tests send times far ahead, or years back, and every five minutes the broker deletes what is too old.
        config = {"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"}
        admin.create_topics([StockNewTopic(name, partitions, 1, config=config)])[name].result()

    def produce(
        self, messages: Sequence[Message], partition: int = 0, codec: str = "none", batch: int = 100_000
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "linger.ms": 50,
                "batch.num.messages": batch,
                "batch.size": 4_000_000,
                "enable.idempotence": True,
            }
        )
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for one in messages:
            producer.produce(
                self.name,
                one.value,
                one.key,
                partition,
                on_delivery=delivered,
                timestamp=one.timestamp_ms,
                headers=list(one.headers),
            )
        assert producer.flush(60) == 0
        assert len(offsets) == len(messages)
        return sorted(offsets)

    def messages(self) -> list[Record]:
        """All with their headers, partition by partition, by a consumer that knows nothing of streams."""
        from tests.tools.copies import everything

        return [one for _, rows in sorted(everything(self.bootstrap, self.name).items()) for one in rows]

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """DeleteRecords: the log starts at ``offset`` when this returns."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.delete_records([StockTopicPartition(self.name, partition, offset)]).values():
            done.result(20)

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # held: it ends its requests when it goes
        admin.delete_topics([self.name])[self.name].result(20)

    def made_again(self) -> TopicOnBroker:
        """Once its deletion is done everywhere: only then is the name free."""

        def made() -> TopicOnBroker | None:
            with suppress(KafkaException):
                return TopicOnBroker(self.bootstrap, self.name, self.partitions)
            return None

        return until(made, f"{self.name} is made again")  # type: ignore[return-value]

    def grow(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(20)


NewTopic = Callable[..., TopicOnBroker]
"""What the fixture `new_topic` is: makes a topic of so many partitions (1)."""


def start_klog(*words: str, stderr: int | None = subprocess.PIPE) -> subprocess.Popen[str]:
    """``klog WORDS``, started, with a Spark and the Python that it chooses, whatever this process's own was given."""
    environment = os.environ | spark_environment()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-m", "klog", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def start_export(topic: TopicOnBroker, root: Path, *options: str, output: str = "json") -> subprocess.Popen[str]:
    """``klog export run``, started."""
    words = ("-B", topic.bootstrap, "-o", output, "export", "run", topic.name, "--to", str(root))
    return start_klog(*words, *options)


def make_messages(count: int, start: int = 0) -> list[Message]:
    """Messages that differ, with keys and no headers."""
    return [Message(f"k{i}".encode(), f"value {i}".encode()) for i in range(start, start + count)]


def exported_rows(root: Path) -> list[dict[str, Any]]:
    """Every row that a reader of the export sees, by partition and offset. It lists first, and then opens."""
    paths = sorted(root.glob("data/batch=*/*.parquet"))
    rows = [row for path in paths for row in pq.read_table(path, columns=COLUMNS).to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def exported_offsets(root: Path, partition: int | None = None) -> list[int]:
    """Of all partitions, or of one."""
    return [row["offset"] for row in exported_rows(root) if partition in (None, row["partition"])]


@pytest.fixture
def new_topic(broker: RunningBroker) -> NewTopic:
    """Makes topics on the shared broker."""

    def make(partitions: int = 1) -> TopicOnBroker:
        return TopicOnBroker(broker.bootstrap, f"t-{secrets.token_hex(6)}", partitions)

    return make


@pytest.fixture(scope="module")
def registry(broker: RunningBroker) -> Iterator[SchemaRegistry]:
    """Of the shared broker's cluster."""
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        yield SchemaRegistry(session)


def race(act: Callable[[Given], object], *given: Given) -> None:
    """Call ``act`` for each of them, in threads that begin together."""
    gate = threading.Barrier(len(given))

    def begin(one: Given) -> None:
        gate.wait(20)
        act(one)

    threads = [threading.Thread(target=begin, args=(one,)) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session, with Spark's retries of tasks, as `klog export run` has it."""
    from klog.spark.running.session import start_session
    from klog.streams.streams import SHUFFLE_PARTITIONS

    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment().items():
            patch.setenv(name, value)
        session = start_session("local[2,4]", {SHUFFLE_PARTITIONS: "2"})  # as many as `klog stream run` has here
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connected(spark: Any) -> Any:
    """The session with Spark's own Kafka connector in it."""
    try:
        jars = connector_jars()
    except PeerMissing as reason:
        pytest.skip(str(reason))
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the Spark session go to one worker."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):  # `connected` asks for it too
            item.add_marker(pytest.mark.xdist_group("spark"))
