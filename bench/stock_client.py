"""A child of the bench: one stock client with its default settings, that sends or commits and tells each success.

    python -m bench.stock_client librdkafka|kafka-python|java BOOTSTRAP TOPIC PARTITIONS
    python -m bench.stock_client librdkafka-commits|kafka-python-commits|java-commits BOOTSTRAP TOPIC PARTITIONS

Producers send a message to each partition of the topic every 10 ms, whatever becomes of those before, and tell `acked
PARTITION` for each acknowledgement; `failed WHY` for one that was given up. Committers commit a position every 10 ms,
one at a time, for the group of the topic's name, and tell `acked 0` for each commit. Java's are Kafka's own
VerifiableProducer, which chooses partitions itself, and VerifiableConsumer, which commits what it has read, as a member
of its group; librdkafka sends it something to read.

All log at the debug level, into memory. `log FROM_S TO_S PATH` on standard input writes what was said in that time, and
is answered by `logged`.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.children import tell, told
from bench.client_log import ClientLog
from bench.maven import java_tools

EVERY_S = 0.01
PR_SET_PDEATHSIG = 1
LIBRDKAFKA_LOG = {"debug": "metadata,broker,topic,cgrp"}
"""To stderr, as it happens."""
KAFKA_PYTHON_LOGS = ("cluster", "net.manager", "net.inet", "coordinator", "consumer")
"""Those that say little while all is well; of the others what is worth an INFO."""
JAVA_LOGS = ("NetworkClient", "Metadata", "producer.internals.Sender", "consumer.internals.ConsumerCoordinator")
ROUTINE = (
    *(f"{verb} {kind}" for verb in ("Sending", "Received") for kind in ("PRODUCE", "FETCH", "OFFSET_COMMIT")),
    "Nodes with data ready to send",
    "Sent produce request",
    "Committed offset",
    "Using older server API",
    *("|CGRPOP|", "|COMMIT|", "|OFFSET|", "|DUMP", "|ASSIGNDONE|", "|ASSIGNMENT|"),
)


def librdkafka(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    def delivered(error: KafkaError | None, message: Message) -> None:
        tell("acked", message.partition()) if error is None else tell("failed", error.name())

    producer = Producer({"bootstrap.servers": bootstrap, **LIBRDKAFKA_LOG})
    while True:
        for partition in range(partitions):
            producer.produce(topic, b"x" * 100, partition=partition, on_delivery=delivered)
        producer.poll(0)
        time.sleep(EVERY_S)


def kafka_python(bootstrap: str, topic: str, partitions: int) -> None:
    from kafka import KafkaProducer

    _log_kafka_python()
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
    while True:
        for partition in range(partitions):
            sent = producer.send(topic, b"x" * 100, partition=partition)
            sent.add_callback(lambda about: tell("acked", about.partition))
            sent.add_errback(lambda error: tell("failed", type(error).__name__))
        time.sleep(EVERY_S)


def _log_kafka_python() -> None:
    logging.basicConfig(level=logging.INFO, format="[%(threadName)s] %(levelname)s %(name)s - %(message)s")
    for name in KAFKA_PYTHON_LOGS:
        logging.getLogger(f"kafka.{name}").setLevel(logging.DEBUG)


def java(bootstrap: str, topic: str, partitions: int) -> None:
    config = os.memfd_create("producer.config")
    os.write(config, f"retries={2**31 - 1}\n".encode())  # the client's default, which the tool sets to 0
    options = ("--topic", topic, "--throughput", round(1 / EVERY_S), "--producer.config", f"/dev/fd/{config}")
    for event in _java_events("VerifiableProducer", bootstrap, *options, keep_open=[config]):
        if event["name"] == "producer_send_success":
            tell("acked", 0)
        elif event["name"] == "producer_send_error":
            tell("failed", event.get("exception", "unknown").split()[-1])


def java_commits(bootstrap: str, topic: str, partitions: int) -> None:
    threading.Thread(target=_feed, args=(bootstrap, topic), name="feeds", daemon=True).start()
    for event in _java_events("VerifiableConsumer", bootstrap, "--topic", topic, "--group-id", topic):
        if event["name"] == "offsets_committed":
            tell("acked", 0) if event["success"] else tell("failed", event.get("error", "unknown").split()[-1])


def _feed(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    while True:
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
        time.sleep(EVERY_S)


def _java_events(
    tool: str, bootstrap: str, *options: object, keep_open: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """What one of Kafka's verifiable clients tells, an object a line. It ends with this process."""
    jvm = [f"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.{name}=debug" for name in JAVA_LOGS]
    command = ["java", "-Xmx128m", *jvm, "-cp", java_tools("kafka-3.9").class_path, f"org.apache.kafka.tools.{tool}"]
    command += ["--bootstrap-server", bootstrap, *map(str, options)]
    libc = ctypes.CDLL(None)

    def die_with_us() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    out = subprocess.PIPE
    child = subprocess.Popen(command, stdout=out, text=True, pass_fds=keep_open, preexec_fn=die_with_us)  # noqa: PLW1509
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("{"):
            yield json.loads(line)
    raise RuntimeError(f"{tool} ended with {child.wait()}")


def librdkafka_commits(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, **LIBRDKAFKA_LOG})
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

    _log_kafka_python()
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
    "java-commits": java_commits,
}


def _obey(log: ClientLog) -> None:
    """Until standard input ends, which ends this process."""
    for _, from_s, to_s, path in told():
        log.write(float(from_s), float(to_s), Path(path))
        tell("logged")
    os._exit(0)


if __name__ == "__main__":
    own_log = ClientLog(ROUTINE)
    threading.Thread(target=_obey, args=(own_log,), daemon=True).start()
    try:
        CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
    finally:
        own_log.give_back()
