"""``cleanup.policy=compact``: taken, shown, and nothing is lost by time or size; klog compacts nothing yet."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from klog.admin.health.rules import judge
from klog.admin.health.snapshot import Snapshot
from klog.admin.health.topic_rules import UNCOMPACTED_BYTES
from klog.client.metadata import Metadata
from klog.config import BrokerConfig, LogConfig
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.tools.verbs import send

KEPT = {"retention.ms": "1000", "retention.bytes": "1000", "segment.bytes": "5000"}


@pytest.mark.parametrize(
    ("policy", "deletes"), [("compact", False), ("compact,delete", True), ("delete,compact", True), ("delete", True)]
)
def test_retention_holds_where_the_policy_deletes(policy: str, deletes: bool) -> None:
    assert LogConfig.of(BrokerConfig.parse({}), {"cleanup.policy": policy}).deletes == deletes
    assert LogConfig.of(BrokerConfig.parse({"log.cleanup.policy": policy}), {}).deletes == deletes


def test_a_topic_of_compact_alone_keeps_everything(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker(**{"log.retention.check.interval.ms": "200"}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    policies = {"c": "compact", "cd": "compact,delete"}
    topics = [NewTopic(name, 1, 1, config={"cleanup.policy": one, **KEPT}) for name, one in policies.items()]
    for made in admin.create_topics(topics).values():
        made.result(10)
    for name, policy in policies.items():
        wanted = ConfigResource(ConfigResource.Type.TOPIC, name)
        assert admin.describe_configs([wanted])[wanted].result(10)["cleanup.policy"].value == policy
        for number in range(8):
            send(broker.bootstrap, name, b"k:%d %s\n" % (number, b"x" * 4000), key_delimiter=b":")
    until = time.monotonic() + 30
    while described(broker, "cd")["messages"] == 8:
        assert time.monotonic() < until
    shown = described(broker, "c")
    assert (shown["messages"], shown["log_start_offset"]) == (8, 0)

    told = klog("topic", "describe", "c", "-B", broker.bootstrap).stderr
    assert f"{shown['bytes']:,}" in told
    send(broker.bootstrap, "plain", b"1\n", create=True)
    assert "bytes" not in klog("topic", "describe", "plain", "-B", broker.bootstrap).stderr

    asked = klog(
        "topic", "config", "c", "cleanup.policy=compact,delete", "-B", broker.bootstrap, "--dry-run", "-o", "json"
    )
    assert "8" in str(json.loads(asked.stdout)["rows"]), "it says what would be deleted"


def described(broker: RunningBroker, topic: str) -> dict[str, int]:
    (row,) = klog("topic", "describe", topic, "-B", broker.bootstrap, "-o", "json").rows
    return row


def test_check_tells_what_it_costs() -> None:
    snapshot = Snapshot(asked=("topics",), metadata=Metadata("c", 1, {}, {}, {}))
    snapshot.uncompacted = {"small": UNCOMPACTED_BYTES - 1, "large": UNCOMPACTED_BYTES}
    (finding,) = judge(snapshot)
    assert (finding.kind, finding.what) == ("not-compacted", "topic large")
    assert f"{UNCOMPACTED_BYTES:,}" in finding.found
