"""``--client-config``: files of Kafka's clients, as they lie about, with klog's commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klog.client.client_config import read_client_config
from klog.errors import InvalidConfig, NoSuchThing, UsageError
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each

CONSUMER = """
# of some service
bootstrap.servers={bootstrap}
group.id=reports
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
group.protocol=consumer
max.partition.fetch.bytes=2097152
auto.ofset.reset=earliest
"""
PRODUCER = """
bootstrap.servers={bootstrap}
acks=-1
compression.type=gzip
batch.num.messages=2
key.serializer=org.apache.kafka.common.serialization.StringSerializer
"""


def written(folder: Path, text: str, bootstrap: str = "127.0.0.1:1") -> Path:
    path = folder / "client.properties"
    path.write_text(text.format(bootstrap=bootstrap))
    return path


def test_commands_find_their_cluster_by_it(broker: RunningBroker, tmp_path: Path) -> None:
    path = written(tmp_path, CONSUMER, broker.bootstrap)
    for words in (["broker", "list", "--client-config", path], ["--client-config", path, "broker", "list"]):
        ran = klog(*words, "-o", "json")
        assert (ran.code, [row["broker"] for row in ran.rows]) == (0, [broker.broker_id])
        java, unknown = ran.stderr.splitlines()
        assert str(path) in java and "key.deserializer, value.deserializer, group.protocol" in java
        assert "auto.ofset.reset" in unknown and "auto.offset.reset" in unknown
    assert klog("broker", "list", "-q", "--client-config", path).stderr == ""


def test_flags_go_before_it(broker: RunningBroker, tmp_path: Path, dead_address: str) -> None:
    path = written(tmp_path, "bootstrap.servers={bootstrap}\nrequest.timeout.ms=700", dead_address)
    assert klog("broker", "list", "-B", broker.bootstrap, "--client-config", path).code == 0
    ran = klog("-B", broker.bootstrap, "broker", "list", "--client-config", path, "-o", "json")
    assert ran.code == 1 and "--client-config" in ran.error["cluster"], "what is nearer to the command goes first"
    assert klog("-B", broker.bootstrap, "--client-config", path, "broker", "list").code == 0


def test_messages_go_by_its_settings(broker: RunningBroker, tmp_path: Path, topic: str) -> None:
    assert klog("topic", "create", topic, "-p", "1", "-B", broker.bootstrap).code == 0
    path = written(tmp_path, PRODUCER, broker.bootstrap)
    assert (
        klog(
            "produce", topic, "--client-config", path, input=b"".join(bytes([one]) * 500 + b"\n" for one in b"abcd")
        ).code
        == 0
    )
    dump = klog("log", "dump", next(broker.folder.glob(f"**/{topic}-0/*.log")), "-o", "json").rows
    assert {row["codec"] for row in dump} == {"gzip"} and all(row["messages"] <= 2 for row in dump)
    more = ["--compression", "none", "--acks", "1"]
    assert klog("produce", topic, *more, "--client-config", path, input=b"e\n").code == 0
    dump = klog("log", "dump", next(broker.folder.glob(f"**/{topic}-0/*.log")), "-o", "json").rows
    assert dump[-1]["codec"] == "none"
    path = written(tmp_path, CONSUMER, broker.bootstrap)
    ran = klog("tail", topic, "-o", "start", "-e", "--output", "jsonl", "-q", "--client-config", path)
    assert [json.loads(line)["value"][0] for line in ran.stdout.splitlines()] == list("abcde")


@each(
    ("text", "named"),
    [
        ("acks=2", "acks=2"),
        ("compression.type=brotli", "compression.type=brotli"),
        ("security.protocol=SASL_SSL", "security.protocol=SASL_SSL"),
        ("request.timeout.ms=soon", "request.timeout.ms"),
        ("linger.ms=5\nqueue.buffering.max.ms=6", "queue.buffering.max.ms"),
        ("=1", "line 1"),
    ],
)
def test_files_with_which_nothing_begins(broker: RunningBroker, tmp_path: Path, text: str, named: str) -> None:
    path = written(tmp_path, text)
    ran = klog("produce", "t", "-B", broker.bootstrap, "--client-config", path, "-o", "json")
    assert ran.code in (1, 2) and named in ran.error["message"], ran


def test_what_the_file_says(tmp_path: Path) -> None:
    found = read_client_config(
        written(tmp_path, "zookeeper.connect=h:1/c\nmetadata.broker.list=b:2\ncompression.codec=2\nssl.x=1\n")
    )
    assert (found.bootstrap, found.zookeeper, found.timeout_s, found.notes) == ("b:2", "h:1/c", None, ())
    assert found.producer() == {"compression.type": "snappy"}
    assert read_client_config(written(tmp_path, "fetch.wait.max.ms=7")).consumer() == {"fetch.wait.max.ms": "7"}
    with pytest.raises(NoSuchThing):
        read_client_config(tmp_path / "none")
    with pytest.raises(InvalidConfig):
        read_client_config(written(tmp_path, "=1"))
    with pytest.raises(UsageError):
        read_client_config(written(tmp_path, "security.protocol=TLS"))
    closed = read_client_config(written(tmp_path, "security.protocol=SSL")).security
    assert found.security is None and closed is not None and closed.is_encrypted
