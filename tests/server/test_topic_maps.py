"""0.7's settings of some topics, in a running broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.config.test_broker_config import FILE_OF_07
from tests.server.asking import produce, values


def test_settings_of_some_topics(make_broker: Callable[..., RunningBroker]) -> None:
    maps = {
        "topic__partition__count__map": "clicks:3",
        "topic__log__file__size": "clicks:500",
        "topic__log__retention__hours": "clicks:10",
    }
    broker = make_broker(**maps).start()
    at = ["-B", broker.bootstrap]
    for name, partitions in (("clicks", 3), ("other", 1)):
        created = klog("topic", "create", name, "-o", "json", *at)
        assert created.rows[0]["partitions"] == partitions, created
        produce(broker.bootstrap, name, [[one] for one in values(10, size=200)])
    assert len(list(broker.folder.rglob("clicks-0/*.log"))) > 3
    assert len(list(broker.folder.rglob("other-0/*.log"))) == 1
    shown = {
        row["name"]: (row["value"], row["source"]) for row in klog("topic", "config", "clicks", "-o", "json", *at).rows
    }
    assert shown["retention.ms"] == ("36000000", "start")
    klog("topic", "config", "clicks", "segment.bytes=100000", "-y", *at)
    produce(broker.bootstrap, "clicks", [[one] for one in values(3, size=200)])
    segments = len(list(broker.folder.rglob("clicks-0/*.log")))
    produce(broker.bootstrap, "clicks", [[one] for one in values(10, size=200)])
    assert len(list(broker.folder.rglob("clicks-0/*.log"))) == segments, "the topic's own setting comes first"


def test_the_settings_of_a_broker_with_the_whole_file_of_07(
    make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    given = FILE_OF_07 | {
        "topic.log.roll.hours": "orders:5",
        "topic.log.retention.hours": "orders:10,pay:20",
        "topic.partition.count.map": "orders:2",
        "log.file.size": "64MB",
    }
    of_the_fixture = {"brokerid", "hostname", "port", "log.dir", "zk.connect"}
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in given.items() if name not in of_the_fixture))
    broker = make_broker()
    broker.extra_arguments = ["--config", str(path)]
    at = ["-o", "json", "-B", broker.start().bootstrap]

    of_broker = klog("broker", "config", "1", *at)
    assert of_broker.code == 0, of_broker
    values = {row["name"]: row["value"] for row in of_broker.rows}
    assert values["topic.log.retention.hours"] == given["topic.log.retention.hours"]
    assert values["log.retention.hours"] == "168" and values["log.segment.bytes"] == "64000000"
    assert klog("topic", "create", "orders", *at).rows[0]["partitions"] == 2
    of_topic = {row["name"]: row["value"] for row in klog("topic", "config", "orders", *at).rows}
    assert (of_topic["retention.ms"], of_topic["segment.ms"]) == ("36000000", "18000000")

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConfigResource(ResourceType.BROKER, "1"), ConfigResource(ResourceType.TOPIC, "orders")]
    futures = admin.describe_configs(asked)
    stock_broker, stock_topic = (futures[one].result(20) for one in asked)
    for name in ("topic.log.roll.hours", "topic.log.retention.hours", "topic.partition.count.map"):
        assert stock_broker[name].value == given[name]
        assert stock_broker[name].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert stock_topic["retention.ms"].value == "36000000" and not stock_topic["retention.ms"].is_default
