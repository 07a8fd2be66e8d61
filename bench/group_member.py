"""A child of the bench: one of confluent-kafka's consumers in a group.

    python -m bench.group_member BOOTSTRAP GROUP TOPIC HEARTBEAT_MS SESSION_MS

Tells `ready`, subscribes when it is told anything, then tells `subscribed`, `owns N` whenever what it owns has changed,
and `record` when the first one is there.
"""

from __future__ import annotations

import os
import sys
import threading

from confluent_kafka import Consumer, TopicPartition

from bench.children import tell, told

POLL_S = 0.1


def main(bootstrap: str, group: str, topic: str, heartbeat_ms: str, session_ms: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": int(heartbeat_ms),
            "session.timeout.ms": int(session_ms),
            "log_level": 0,
        }
    )
    tell("ready")
    orders = told()
    if next(orders, None) is None:
        return
    threading.Thread(target=_end_with, args=(orders,), daemon=True).start()
    tell("subscribed")
    consumer.subscribe([topic], on_assign=_owns, on_revoke=_owns_nothing)
    is_first = True
    while True:
        message = consumer.poll(POLL_S)
        if is_first and message is not None and message.error() is None:
            tell("record")
            is_first = False


def _owns(_: Consumer, partitions: list[TopicPartition]) -> None:
    tell("owns", len(partitions))


def _owns_nothing(_: Consumer, partitions: list[TopicPartition]) -> None:
    tell("owns", 0)


def _end_with(orders: object) -> None:
    """With the last order, wherever the other thread is."""
    assert hasattr(orders, "__iter__")
    for _ in orders:
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
