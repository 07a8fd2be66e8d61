"""A group stands still at one message: klog shows which, skips it, and takes the skip back."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
def test_a_stuck_group(operator: Operator, topic: str) -> None:
    operator.cluster.create(topic)
    operator.text("produce", topic, input="good 1\ngood 2\npoison\ngood 3\n")
    settings = {"bootstrap.servers": operator.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    worker = Consumer({**settings, "enable.auto.commit": False})
    worker.subscribe([topic])
    while True:
        message = worker.poll(1)
        if message is None or message.error():
            continue
        if message.value() == b"poison":
            break  # it dies of it, each time
        worker.commit(message, asynchronous=False)
    worker.close()

    (row,) = operator.runbook("klog lag readers --only-lagging", readers=topic).rows
    assert row["lag"] == 2
    assert operator.runbook("klog status group readers", readers=topic).code == 1
    operator.runbook("klog group describe readers", readers=topic)
    cause = operator.cause("group", topic, until=lambda row: "member" in row["what"])
    assert cause["do"]
    (stuck,) = operator.runbook("klog group peek readers", readers=topic).rows
    assert stuck["value"] == "poison"

    behind = {"4711": stuck["offset"] + 1, "orders": topic, "readers": topic}
    operator.runbook("klog group rewind readers -t orders -p 0 --to 4711", **behind)
    (next_one,) = operator.rows("group", "peek", topic)
    assert next_one["value"] == "good 3"
    act = operator.event("klog events group readers", "act", readers=topic)
    operator.runbook("klog undo ACT", ACT=act["act"])  # the poison was wanted after all
    (again,) = operator.rows("group", "peek", topic)
    assert again["value"] == "poison"
