"""A child of the bench: one stock client with its default settings, that sends or commits and tells each success.

    python -m bench.stock_client librdkafka|kafka-python|java BOOTSTRAP TOPIC PARTITIONS
    python -m bench.stock_client librdkafka-commits|kafka-python-commits BOOTSTRAP TOPIC PARTITIONS

Producers send a message to each partition of the topic every 10 ms, whatever becomes of those before, and tell `acked
PARTITION` for each acknowledgement; `failed WHY` for one that was given up. Committers commit a position every 10 ms,
one at a time, for the group of the topic's name, and tell `acked 0` for each commit. Java's is Kafka's own
VerifiableProducer, which chooses partitions itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.children import tell, told
from bench.maven import java_tools

EVERY_S = 0.01
PR_SET_PDEATHSIG = 1


def librdkafka(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    def delivered(error: KafkaError | None, message: Message) -> None:
        tell("acked", message.partition()) if error is None else tell("failed", error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    while True:
        for partition in range(partitions):
            producer.produce(topic, b"x" * 100, partition=partition, on_delivery=delivered)
        producer.poll(0)
        time.sleep(EVERY_S)


def kafka_python(bootstrap: str, topic: str, partitions: int) -> None:
    from kafka import KafkaProducer  # type: ignore[import-untyped]

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
    while True:
        for partition in range(partitions):
            sent = producer.send(topic, b"x" * 100, partition=partition)
            sent.add_callback(lambda about: tell("acked", about.partition))
            sent.add_errback(lambda error: tell("failed", type(error).__name__))
        time.sleep(EVERY_S)


def java(bootstrap: str, topic: str, partitions: int) -> None:
    tools = java_tools("kafka-3.9")
    command = ["java", "-Xmx128m", "-cp", tools.class_path, "org.apache.kafka.tools.VerifiableProducer"]
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(round(1 / EVERY_S))]
    with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
        file.write(f"retries={2**31 - 1}\n")  # the client's default, which the tool sets to 0
    command += ["--producer.config", file.name]
    libc = ctypes.CDLL(None)

    def die_with_us() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_us)  # noqa: PLW1509
    assert child.stdout is not None
    for line in child.stdout:
        name = json.loads(line)["name"] if line.startswith("{") else ""
        if name == "producer_send_success":
            tell("acked", 0)
            Path(file.name).unlink(missing_ok=True)
        elif name == "producer_send_error":
            tell("failed", json.loads(line).get("exception", "unknown").split()[-1])


def librdkafka_commits(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0})
    number = 0
    while True:
        number += 1
        try:
            found = consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
        except KafkaException as error:
            tell("failed", error.args[0].name())
        else:
            assert found is not None
            tell("acked", 0) if found[0].error is None else tell("failed", found[0].error.name())
        time.sleep(EVERY_S)


def kafka_python_commits(bootstrap: str, topic: str, partitions: int) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=topic, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    number = 0
    while True:
        number += 1
        try:
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(number, "", -1)})
        except KafkaError as error:
            tell("failed", type(error).__name__)
        else:
            tell("acked", 0)
        time.sleep(EVERY_S)


CLIENTS: dict[str, Callable[[str, str, int], None]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "java": java,
    "librdkafka-commits": librdkafka_commits,
    "kafka-python-commits": kafka_python_commits,
}


def _end_with_input() -> None:
    for _ in told():
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
