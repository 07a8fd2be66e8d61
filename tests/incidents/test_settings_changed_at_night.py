"""Somebody changes a topic's retention at night: klog shows who, when and what was before, and restores that."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
def test_settings_changed_at_night(operator: Operator, topic: str) -> None:
    operator.cluster.create(topic)
    assert operator.run("topic", "config", topic, "retention.ms=604800000").code == 0
    entry = ConfigEntry("retention.ms", "999999999", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": operator.bootstrap, "client.id": "night shift"})
    client.incremental_alter_configs([resource])[resource].result(20)

    assert operator.runbook("klog status orders", orders=topic).code == 0, "the topic is well: only its settings differ"
    told = operator.event(
        "klog events orders --kind act", "act", orders=topic, until=lambda row: "night shift" in row["what"]
    )
    (changed,) = operator.runbook("klog events ACT", ACT=told["act"]).rows
    assert (changed["before"], changed["after"]) == ("retention.ms=604800000", "retention.ms=999999999")
    shown = operator.run("undo", changed["act"], "--dry-run")
    assert shown.code == 0 and shown.rows[0]["then"] == "604800000"
    operator.runbook("klog undo ACT", ACT=changed["act"])
    settings = {row["name"]: row["value"] for row in operator.rows("topic", "config", topic)}
    assert settings["retention.ms"] == "604800000"
    (changed,) = operator.rows("events", changed["act"])
    assert changed["undone_by"] == operator.act(subject=f"topic {topic}")["act"]
