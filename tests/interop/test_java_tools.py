"""Apache Kafka's command-line tools, as people use them: a topic made, filled, read, shown, deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.maven import JavaTools
from klog.record.codec import Codec
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.interop.java import tools_of
from tests.interop.kit import PATIENCE_S, Missing, stored_batches
from tests.server.asking import offsets

pytestmark = pytest.mark.slow


@pytest.fixture
def tools() -> JavaTools:
    try:
        return tools_of("kafka-4.1")
    except Missing as reason:
        pytest.skip(str(reason))


def run(tools: JavaTools, main_class: str, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        tools.command(main_class, *arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_topic_is_made_filled_and_read(broker: RunningBroker, topic: str, tools: JavaTools) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    lines = [f"line {number}" for number in range(20)]
    run(tools, tools.topic_command, *at, "--create", "--topic", topic, "--partitions", "1")
    run(tools, tools.console_producer, *at, "--topic", topic, text="".join(line + "\n" for line in lines))
    which = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(lines)))
    assert run(tools, tools.console_consumer, *at, *which).splitlines() == lines


@pytest.mark.long("nine JVMs")
def test_the_life_of_a_topic(broker: RunningBroker, topic: str, tools: JavaTools) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    lines = [f"line {number} of a log that can be compressed" for number in range(200)]

    run(tools, tools.topic_command, *at, "--create", "--topic", topic, "--partitions", "1", "--config", "flush.ms=1000")
    run(
        tools,
        tools.console_producer,
        *(*at, "--topic", topic, "--compression-codec", "zstd"),
        text="".join(line + "\n" for line in lines),
    )
    stored = stored_batches(broker.bootstrap, topic)
    assert {batch.codec for batch in stored} == {Codec.ZSTD}
    assert all(batch.producer_id >= 0 for batch in stored), "idempotent by default since 3.0"

    read = run(
        tools,
        tools.console_consumer,
        *(*at, "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(lines))),
    )
    assert read.splitlines() == lines
    middle = stored[0].base_offset + 50
    read = run(
        tools,
        tools.console_consumer,
        *(*at, "--topic", topic, "--partition", "0", "--offset", str(middle), "--max-messages", "3"),
    )
    assert read.splitlines() == lines[50:53]

    shown = run(tools, tools.get_offsets, *at, "--topic", topic)
    assert shown.split() == [f"{topic}:0:{offsets(broker.bootstrap, topic)[1]}"]
    described = run(tools, tools.topic_command, *at, "--describe", "--topic", topic)
    assert "PartitionCount: 1" in described
    assert "Leader: 1" in described
    assert "flush.ms=1000" in described
    run(tools, tools.topic_command, *at, "--delete", "--topic", topic)
    assert topic not in run(tools, tools.topic_command, *at, "--list").split()


@pytest.mark.long("six JVMs")
def test_settings_log_dirs_and_deleted_records(
    broker: RunningBroker, topic: str, tools: JavaTools, tmp_path: Path
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    run(tools, tools.topic_command, *at, "--create", "--topic", topic, "--partitions", "2")
    run(tools, tools.console_producer, *at, "--topic", topic, text="a\nb\nc\n")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    run(tools, "kafka.admin.ConfigCommand", *at, *of_topic, "--alter", "--add-config", "retention.ms=1234")
    shown = run(tools, "kafka.admin.ConfigCommand", *at, *of_topic, "--describe")
    assert "retention.ms=1234" in shown
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1234" in shown
    dirs = run(tools, "org.apache.kafka.tools.LogDirsCommand", *at, "--describe", "--topic-list", topic)
    assert str(broker.folder / "data") in dirs
    assert f'"{topic}-1"' in dirs
    wanted = tmp_path / "records.json"
    wanted.write_text(
        f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"offset":-1}},'
        f'{{"topic":"{topic}","partition":1,"offset":-1}}]}}'
    )
    run(tools, "org.apache.kafka.tools.DeleteRecordsCommand", *at, "--offset-json-file", str(wanted))
    for number in range(2):
        start, end = offsets(broker.bootstrap, topic, number)
        assert start == end


@pytest.mark.long("four JVMs")
def test_quotas(broker: RunningBroker, topic: str, tools: JavaTools) -> None:
    """Set by kafka-configs, and shown by klog; and the other way round."""
    configs = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap)
    rate = ("--add-config", "connection_creation_rate=30.0")
    user = f"{topic} <é/*>"
    of_both = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-default")
    run(tools, *configs, *of_both, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")
    (row,) = klog("quota", "list", "--user", user, "-B", broker.bootstrap, "-o", "json").rows
    assert row == {
        "user": user,
        "client": "<default>",
        "producer_byte_rate": 1048576,
        "consumer_byte_rate": None,
        "request_percentage": 12.5,
        "controller_mutation_rate": None,
        "ip": None,
        "connection_creation_rate": None,
    }
    assert klog("quota", "set", "consumer_byte_rate=2MB/s", "--user", user, "-B", broker.bootstrap).code == 0
    shown = run(tools, *configs, "--describe", "--entity-type", "users", "--entity-name", user)
    assert "consumer_byte_rate=2000000" in shown
    run(tools, *configs, "--entity-type", "ips", "--entity-name", "127.0.0.9", "--alter", *rate)
    assert klog("quota", "set", "connection_creation_rate=40", "--default-ip", "-B", broker.bootstrap).code == 0
    shown = run(tools, *configs, "--describe", "--entity-type", "ips")
    assert "127.0.0.9" in shown and "connection_creation_rate=30" in shown and "connection_creation_rate=40" in shown
    for whose in (("--user", user), ("--user", user, "--default-client"), ("--ip", "127.0.0.9"), ("--default-ip",)):
        assert klog("quota", "remove", *whose, "-B", broker.bootstrap).code == 0
