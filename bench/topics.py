"""A topic for one measurement."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S: Final = 60.0


def admin_client(port: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 4})


@contextmanager
def fresh_topic(admin: AdminClient, partitions: int = 1) -> Iterator[str]:
    """An empty topic, deleted afterwards. Its name is new: the deletion of the one before may be under way."""
    topic = f"bench-{secrets.token_hex(4)}"
    made = NewTopic(topic, partitions, 1)
    admin.create_topics([made], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    try:
        yield topic
    finally:
        admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].exception(TIMEOUT_S)
