"""A group stands still at one message: klog shows which, skips it, and takes the skip back."""

from __future__ import annotations

from confluent_kafka import Consumer

from tests.incidents.operator import Operator


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

    (row,) = operator.rows("group", "lag", topic, "--only-lagging")
    assert row["lag"] == 2
    cause = operator.cause("group", topic, until=lambda row: "member" in row["what"])
    assert cause["do"]
    (stuck,) = operator.rows("group", "peek", topic)
    assert stuck["value"] == "poison"

    assert operator.run("group", "rewind", topic, "--to", stuck["offset"] + 1, "-t", topic, "--yes").code == 0
    (next_one,) = operator.rows("group", "peek", topic)
    assert next_one["value"] == "good 3"
    operator.undo(operator.act(subject=f"group {topic}"))  # the poison was wanted after all
    (again,) = operator.rows("group", "peek", topic)
    assert again["value"] == "poison"
