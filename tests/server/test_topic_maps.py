"""0.7's settings of some topics, in a running broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.config.test_broker_config import FILE_OF_07


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
