"""The headers of a message, also if a name is not UTF-8.

Kafka calls names text, but no broker looks at them, and confluent-kafka cannot give back a message's headers where one
is not (seen with 2.16: SystemError). Such a message is fetched once more, alone, over klog's own connection; invalid
bytes in a name are U+FFFD then, as Java's client has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from klog.errors import KlogError, UsageError

Headers = list[tuple[str, bytes | None]]

HeadersOf = Callable[[Any], Headers]
"""From confluent-kafka's message to its headers, an empty list if it has none."""


def check_header_name(name: str) -> str:
    """The name, if confluent-kafka can send it: half a surrogate pair ends its process, and a NUL ends the name (seen
    with 2.16). Raises UsageError."""
    if "\0" in name:
        raise UsageError(f"the name of a header has a NUL at character {name.index(chr(0))}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of a header has half a surrogate pair at character {error.start}") from None
    return name


def headers_of(message: Any) -> Headers:
    """The headers from confluent-kafka. Raises SystemError if a name is not UTF-8."""
    return message.headers() or []


def headers_from(bootstrap: str, timeout_s: float) -> HeadersOf:
    """The same; if confluent-kafka fails, the message is fetched from the cluster. Not for an event loop.

    A message that has failed is not asked again: its list is half built then, and ends the process.
    """
    failed: tuple[Any, Headers] | None = None

    def found(message: Any) -> Headers:
        nonlocal failed
        if failed is not None and failed[0] is message:
            return failed[1]
        try:
            return message.headers() or []
        except SystemError:
            place = message.topic(), message.partition(), message.offset()
            failed = message, asyncio.run(_fetched(bootstrap, timeout_s, *place))
            return failed[1]

    return found


async def _fetched(bootstrap: str, timeout_s: float, topic: str, partition: int, offset: int) -> Headers:
    from klog.client.cluster import Cluster
    from klog.client.one_message import first_message
    from klog.names import TopicPartition

    place = TopicPartition(topic, partition)
    async with await Cluster.connect(bootstrap, timeout_s=timeout_s) as cluster:
        record = await cluster.to_leader(place, offset, first_message)
    if record is None or record.offset != offset:
        raise KlogError(f"{place}: the headers of the message at offset {offset} cannot be read")
    return list(record.headers)
