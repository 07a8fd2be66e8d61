"""What every stock client is asked to do: produce, consume by assignment and in a group, make and delete topics.

A client's module has a class with these methods; `test_matrix.py` runs all of them through the same tests. Everything
is about partition 0 of a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from confluent_kafka.admin import AdminClient, ConfigResource

from klog.record.batch import BatchHeader, walk
from klog.record.codec import Codec
from tests.server.asking import error, with_channel
from tests.server.wire import fetch_request

PATIENCE_S = 40.0
"""How long a client may take for what takes milliseconds; the machine may be busy."""


class Missing(Exception):
    """A client cannot be had on this machine; the message says why."""


class From(Enum):
    START = "start"
    END = "end"
    TIME = "time"
    OFFSET = "offset"


class Where(NamedTuple):
    """Where consuming begins; ``at`` is a time in ms or an offset."""

    kind: From
    at: int = 0


class Consumed(NamedTuple):
    records: list[tuple[int, bytes]]
    """(offset, value)"""
    position: int
    """The client's own, when it had read them all."""
    end: int
    """What the client is told the end is."""


class Client(Protocol):
    name: str
    has_admin: bool

    def produce(self, bootstrap: str, topic: str, values: list[bytes], codec: Codec, *, idempotent: bool) -> None:
        """Return when all are acknowledged by acks=all, in as few batches as the client can."""
        ...

    def consume(
        self, bootstrap: str, topic: str, where: Where, count: int, when_there: Callable[[], None] | None = None
    ) -> Consumed:
        """Read ``count`` records and no more, and look at position and end then.

        ``when_there`` is called once the place is known to the client and before anything is read.
        """
        ...

    def consume_in_group(self, bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, bytes]]:
        """Join the group, read ``count`` records from where it stands (at first the start), commit them, and leave."""
        ...

    def transact(self, bootstrap: str) -> str:
        """Set out to produce in transactions, and wait PATIENCE_S at most; what the client says of why it cannot."""
        ...

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]) -> None: ...

    def delete_topic(self, bootstrap: str, topic: str) -> None: ...


def stored_batches(bootstrap: str, topic: str) -> list[BatchHeader]:
    """The headers of all batches of partition 0, as they were stored."""

    found: list[BatchHeader] = []

    async def read(channel: object) -> None:
        offset = 0
        while True:
            request = fetch_request(topic, offset, max_bytes=50 << 20, partition_max_bytes=50 << 20)
            one = (await channel.request(request)).responses[0].partitions[0]  # type: ignore[attr-defined]
            assert error(one) == 0, one
            if not one.records:
                return
            found.extend(header for _, header in walk(bytearray(one.records)))
            offset = found[-1].last_offset + 1

    with_channel(bootstrap, read)
    return found


def cleanup_policy(bootstrap: str, topic: str) -> str:
    """As the topic's maker has set it."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a future of librdkafka's ends with its client
    return str(admin.describe_configs([resource])[resource].result(PATIENCE_S)["cleanup.policy"].value)
