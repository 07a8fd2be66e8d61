"""Kafka's own topics, which klog has not, and requests that it does not serve."""

from __future__ import annotations

import pytest

from klog.names import RESERVED_TOPICS
from klog.protocol.apis import ApiKey
from klog.record.records import Record, encode_batch
from klog.server.dispatch import ROUTES
from klog.server.unsupported_requests import INSTEAD
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.server.asking import ask, error, metadata, new_topic, produce_raw
from tests.server.wire import RawConnection, framed, head

UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_a_reserved_topic_is_never_made_nor_written(broker: RunningBroker, name: str) -> None:
    for version in (1, 4):
        (answer,) = metadata(broker.bootstrap, [name], version, allow_auto_topic_creation=True).topics
        assert error(answer) == UNKNOWN_TOPIC
    created = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 5, topics=[new_topic(name)])
    assert error(created.topics[0]) == INVALID_TOPIC
    batch = bytes(encode_batch([Record(0, 1, None, b"v", ())]))
    assert error(produce_raw(broker.bootstrap, name, batch)) == INVALID_TOPIC
    ran = klog("produce", name, "-B", broker.bootstrap, "-o", "json", input="x\n")
    assert (ran.code, ran.error["code"]) == (1, "INVALID_TOPIC_EXCEPTION")
    assert name not in klog("topic", "list", "--internal", "-B", broker.bootstrap).stdout


@pytest.mark.parametrize(
    ("key", "version", "named"),
    [
        (24, 3, "AddPartitionsToTxn"),
        (68, 0, "ConsumerGroupHeartbeat"),
        (ApiKey.PRODUCE, 99, "Produce"),
        (ApiKey.METADATA, 13, "Metadata"),
        (999, 0, "999"),
    ],
)
def test_what_is_not_served_is_named_and_ends_the_connection(
    broker: RunningBroker, key: int, version: int, named: str
) -> None:
    hello = head(ApiKey.API_VERSIONS, 3) + b"\0" + b"\x0alibrary-x" + b"\x041.2" + b"\0"
    source = f"127.67.{key % 200}.{version + 1}"  # the lines of a peer are bounded
    with RawConnection(broker.bootstrap, source_address=source) as connection:
        connection.send(framed(hello))
        connection.answer()
        connection.send(framed(head(key, version, client_id=b"client\nforged") + bytes(20)))
        assert connection.is_closed_by_broker()
        peer = connection.name
    (line,) = [one for one in broker.log_text.splitlines() if peer in one and "ApiVersions (" not in one]
    for part in (named, f"({int(key)})", f"version {version}", "client\\nforged", "library-x 1.2"):
        assert part in line
    route = ROUTES.get(key)
    assert (f"{route.min_version} to {route.max_version}" if route else INSTEAD.get(key, "")) in line
