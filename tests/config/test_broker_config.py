"""A broker's settings: names, aliases, defaults, sources, and what is refused."""

import re
import subprocess
import sys

import pytest

from klog.config import BROKER_SETTINGS, BrokerConfig, LogConfig, text_of
from klog.config.broker import ALIASES
from klog.errors import InvalidConfig
from tests.rows import each

STOCK_FILE = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "advertised.listeners": "PLAINTEXT://your.host.name:9092",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.flush.interval.messages": "10000",
    "log.flush.interval.ms": "1000",
    "log.retention.hours": "168",
    "log.retention.bytes": "1073741824",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}
"""The names of the configuration file that Kafka 3.9 ships."""


def test_kafkas_own_file_is_taken_without_a_warning() -> None:
    assert BrokerConfig.parse(STOCK_FILE).warnings == ()


FILE_OF_07 = {
    "brokerid": "3",
    "hostname": "kafka3.example",
    "port": "9092",
    "num.threads": "8",
    "socket.send.buffer": "1048576",
    "socket.receive.buffer": "1048576",
    "max.socket.request.bytes": "104857600",
    "max.message.size": "1000000",
    "max.topic.name.length": "255",
    "monitoring.period.secs": "600",
    "log.dir": "/tmp/kafka-logs",
    "num.partitions": "1",
    "topic.partition.count.map": "clicks:8, orders:16",
    "log.flush.interval": "10000",
    "log.default.flush.interval.ms": "1000",
    "log.default.flush.scheduler.interval.ms": "1000",
    "topic.flush.intervals.ms": "clicks:3000",
    "log.retention.hours": "168",
    "topic.log.retention.hours": "clicks:10,orders:-1",
    "log.retention.size": "536870912",
    "topic.log.retention.size": "clicks:1000000",
    "log.file.size": "536870912",
    "topic.log.file.size": "clicks:5000",
    "log.roll.hours": "168",
    "topic.log.roll.hours": "clicks:2",
    "log.cleanup.interval.mins": "1",
    "enable.zookeeper": "true",
    "zk.connect": "localhost:2181",
    "zk.connectiontimeout.ms": "1000000",
    "zk.sessiontimeout.ms": "6000",
    "zk.synctime.ms": "2000",
}
"""Every setting of Kafka 0.7.2's brokers."""


def test_the_file_of_07_is_taken_without_a_warning() -> None:
    config = BrokerConfig.parse(FILE_OF_07)
    assert config.warnings == ()
    assert config.listeners.clients.told == ("kafka3.example", None) and config.integer("broker.id") == 3
    assert config.integer("log.retention.check.interval.ms") == 60_000


def test_settings_of_some_topics() -> None:
    config = BrokerConfig.parse({**FILE_OF_07, "log.retention.ms": "5"}, "the file")
    clicks, orders, other = (LogConfig.of(config.of_topic(name), {}) for name in ("clicks", "orders", "other"))
    assert (clicks.segment_bytes, clicks.segment_ms, clicks.flush_ms) == (5000, 7_200_000, 3000)
    assert (clicks.retention_ms, clicks.retention_bytes) == (36_000_000, 1_000_000)
    assert (orders.retention_ms, orders.retention_bytes) == (-1, 536_870_912)
    assert other == LogConfig.of(config, {}) and other.retention_ms == 5
    assert config.of_topic("other") is config
    assert [config.of_topic(name).integer("num.partitions") for name in ("clicks", "orders", "other")] == [8, 16, 1]
    assert LogConfig.of(config.of_topic("clicks"), {"retention.ms": "7"}).retention_ms == 7, "its own come first"
    assert config.of_topic("clicks").source("log.retention.ms") == "the file"


@each("text", ["clicks", "clicks:", ":5", "clicks:5,clicks:6", "clicks:5.5", "clicks:5;a", "a:0x5"])
def test_wrong_settings_of_some_topics(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"topic\.log\.roll\.hours.*TOPIC:NUMBER"):
        BrokerConfig.parse({"topic.log.roll.hours": text})


def test_a_value_that_a_topic_cannot_have() -> None:
    with pytest.raises(InvalidConfig, match=r"topic\.log\.file\.size of clicks.*between 14"):
        BrokerConfig.parse({"topic.log.file.size": "orders:100,clicks:5"})


def test_durations_and_sizes_have_units_in_files_too() -> None:
    given = {
        "log.file.size": "64MB",
        "log.retention.ms": "7d",
        "log.retention.bytes": "-1",
        "log.flush.interval.ms": "9223372036854775807",
        "replica.fetch.max.bytes": "1.5MiB",
        "log.roll.ms": "+5000",
        "listener.name.client.max.connections": "7",
    }
    config = BrokerConfig.parse(given)
    assert config.warnings == ()
    assert (config["log.segment.bytes"], config["log.retention.ms"]) == (64_000_000, 604_800_000)
    assert (config["log.retention.bytes"], config["log.flush.interval.ms"]) == (-1, 2**63 - 1)
    assert (config["replica.fetch.max.bytes"], config["log.roll.ms"]) == (1_572_864, 5000)
    assert dict(config.layers())["settings"]["log.segment.bytes"] == "64000000", "as clients read it"
    for name, text in (("log.file.size", "64MBs"), ("log.retention.hours", "7d"), ("log.retention.ms", "7 weeks")):
        with pytest.raises(InvalidConfig, match=re.escape(f"{name}={text}")):
            BrokerConfig.parse({name: text})


def test_no_broker_is_without_zookeeper() -> None:
    with pytest.raises(InvalidConfig, match="ZooKeeper"):
        BrokerConfig.parse({"enable.zookeeper": "false"})


def test_every_default_is_a_value_of_its_own_setting() -> None:
    for setting in BROKER_SETTINGS.values():
        text = text_of(setting.default)
        if text is not None and setting.default != ():
            assert setting.parse(text) == setting.default, setting.name
        assert setting.doc.endswith("."), setting.name
        assert setting.effect, setting.name


def test_names_and_aliases_are_one_each() -> None:
    assert not set(ALIASES) & set(BROKER_SETTINGS)
    assert len(ALIASES) == sum(len(setting.aliases) for setting in BROKER_SETTINGS.values())
    for setting in BROKER_SETTINGS.values():
        assert all(name in BROKER_SETTINGS for name, _ in setting.follows), setting.name


def test_where_klog_differs_from_kafka() -> None:
    config = BrokerConfig.parse({})
    assert config["log.flush.interval.messages"] == 1
    assert config["delete.topic.enable"] is True
    assert config["unclean.leader.election.enable"] is False
    assert config["replica.lag.max.messages"] is None
    assert config.listeners.clients[2:4] == ("127.0.0.1", 9092)
    assert config.listeners.clients.told == (None, None)


def test_older_names_are_the_same_setting() -> None:
    config = BrokerConfig.parse({"brokerid": "7", "log.file.size": "1000", "port": "1234", "host.name": "0.0.0.0"})
    assert (config["broker.id"], config["log.segment.bytes"]) == (7, 1000)
    assert config.listeners.clients[2:4] == ("0.0.0.0", 1234)
    assert config.warnings == ()


@each("order", [("node.id", "broker.id"), ("broker.id", "node.id")])
def test_todays_name_wins_over_an_older_one_whatever_their_order(order: tuple[str, str]) -> None:
    given = {"node.id": "1", "broker.id": "2"}
    config = BrokerConfig.parse({name: given[name] for name in order})
    assert config["broker.id"] == 2
    assert len(config.warnings) == 1 and re.search(r"^node\.id .*settings.*broker\.id", config.warnings[0])


@each(
    ("properties", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins(properties: dict[str, str], retention_ms: int) -> None:
    config = BrokerConfig.parse(properties, "the file")
    assert config["log.retention.ms"] == retention_ms
    assert config.source("log.retention.ms") == ("the file" if properties else "default")


def test_settings_that_stand_in_for_others() -> None:
    config = BrokerConfig.parse({"log.dir": "/a", "zookeeper.session.timeout.ms": "9000"})
    assert config.log_dirs == ("/a",)
    assert config["zookeeper.connection.timeout.ms"] == 9000
    assert BrokerConfig.parse({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_later_layers_win_and_sources_are_kept() -> None:
    config = BrokerConfig.layered([("a.properties", {"port": "1", "broker.id": "1"}), ("-X", {"port": "2"})])
    assert (config["port"], config.source("port")) == (2, "-X")
    assert (config["broker.id"], config.source("broker.id")) == (1, "a.properties")


def test_unknown_names_warn() -> None:
    (near, far) = BrokerConfig.parse({"log.segmnt.bytes": "1", "process.roles": "broker"}, "x").warnings
    assert re.search(r"log\.segmnt\.bytes \(from x\).*log\.segment\.bytes\?$", near)
    assert "process.roles (from x)" in far and "?" not in far


def test_bad_ideas_warn() -> None:
    warnings = BrokerConfig.parse(
        {"replica.lag.max.messages": "4000", "unclean.leader.election.enable": "true"}
    ).warnings
    assert len(warnings) == 2


@each(
    ("name", "value", "limits"),
    [
        ("log.segment.bytes", "abc", ("14", "2147483647")),
        ("log.segment.bytes", "13", ("14", "2147483647")),
        ("log.segment.bytes", "", ("14",)),
        ("log.segment.bytes", "1_000", ("14",)),
        ("log.segment.bytes", "1e6", ("14",)),
        ("log.retention.ms", "-2", ("0", "-1")),
        ("log.retention.ms", "9223372036854775808", ("0", "-1")),
        ("auto.create.topics.enable", "yes", ("true", "false")),
        ("log.cleanup.policy", "compress", ("delete", "compact")),
        ("log.dirs", " , ", ()),
        ("listeners", "GATE://h:1", ("PLAINTEXT", "SASL_SSL")),
        ("listener.security.protocol.map", "GATE:TLS", ("NAME:PROTOCOL", "SASL_SSL")),
        ("ssl.client.auth", "perhaps", ("none", "required")),
        ("sasl.enabled.mechanisms", "GSSAPI", ("SCRAM-SHA-256",)),
        ("listeners", "h:1,h:2", ("PLAINTEXT",)),
        ("listeners", "h:70000", ("PLAINTEXT://HOST:PORT",)),
        ("port", "65536", ("0", "65535")),
        ("broker.id", "-1", ("0",)),
        ("log.message.timestamp.type", "LogAppendTime", ("CreateTime",)),
    ],
)
def test_wrong_values_name_setting_value_source_and_limits(name: str, value: str, limits: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        BrokerConfig.parse({name: value}, "server.properties")
    where, _, expected = caught.value.message.partition(": ")
    assert where == f"{name}={value.strip()} (from server.properties)"
    assert all(re.search(rf"(^|[ ,]){re.escape(limit)}\b", expected) for limit in limits), expected


def test_a_wrong_value_is_named_as_it_was_written() -> None:
    with pytest.raises(InvalidConfig, match=r"^log\.file\.size=x"):
        BrokerConfig.parse({"log.file.size": "x"})


def test_what_must_be_given_says_so() -> None:
    with pytest.raises(InvalidConfig, match=r"^zookeeper\.connect "):
        BrokerConfig.parse({}).text("zookeeper.connect")


@each(
    ("listener", "address"),
    [
        ("PLAINTEXT://:9092", ("", 9092)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("PLAINTEXT://[::1]:9092", ("::1", 9092)),
    ],
)
def test_listeners(listener: str, address: tuple[str, int]) -> None:
    assert BrokerConfig.parse({"listeners": listener}).listeners.clients[2:4] == address


def test_advertised_must_be_something_to_connect_to() -> None:
    with pytest.raises(InvalidConfig, match="advertised"):
        BrokerConfig.parse({"advertised.listeners": "PLAINTEXT://:9092"})
    assert BrokerConfig.parse({"advertised.host.name": "h", "advertised.port": "1"}).listeners.clients.told == ("h", 1)


def test_importing_the_settings_loads_nothing_heavy() -> None:
    code = "import sys, klog.config; print([m for m in ('asyncio', 'kio', 'difflib', 'socket') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_brokers_may_have_a_listener_of_their_own() -> None:
    given = {
        "listeners": "PLAINTEXT://0.0.0.0:9092,REPLICATION://10.0.0.1:9192",
        "advertised.listeners": "REPLICATION://r1:9193,PLAINTEXT://b1:9092",
    }
    with pytest.raises(InvalidConfig, match=r"listeners=.*REPLICATION.*inter\.broker\.listener\.name"):
        BrokerConfig.parse(given)
    config = BrokerConfig.parse({**given, "inter.broker.listener.name": "REPLICATION"})
    clients, brokers = config.listeners.clients, config.listeners.brokers
    assert (config.listeners.clients[2:4], brokers[2:4]) == (("0.0.0.0", 9092), ("10.0.0.1", 9192))
    assert (clients.told, brokers.told) == (("b1", 9092), ("r1", 9193))
    alone = BrokerConfig.parse({"listeners": "PLAINTEXT://:1"})
    assert alone.listeners.clients[2:4] == ("", 1) and alone.listeners.brokers == alone.listeners.clients
