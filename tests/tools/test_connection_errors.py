"""librdkafka's texts about connections, as klog says them."""

from __future__ import annotations

from confluent_kafka import KafkaError

from klog.tools.librdkafka import QUIET_S, ConnectionErrors
from tests.rows import each

REFUSED = "Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT"
RESOLVE = "Failed to resolve 'h:9093': Name or service not known"


def transport(text: str) -> KafkaError:
    return KafkaError(KafkaError._TRANSPORT, text)


@each(
    ("text", "named"),
    [
        (
            f"127.0.0.1:9093/3: {REFUSED})",
            "127.0.0.1:9093 (broker 3): Connection refused",
        ),
        (
            f"GroupCoordinator: 127.0.0.1:9093: {REFUSED}, 1 identical error(s) suppressed)",
            "127.0.0.1:9093: Connection refused",
        ),
        (
            "sasl_plaintext://[::1]:9093/bootstrap: Disconnected (after 12ms in state UP)",
            "[::1]:9093: Disconnected",
        ),
        (
            f"h:9093/bootstrap: {RESOLVE} (after 4ms in state CONNECT)",
            f"h:9093: {RESOLVE}",
        ),
        ("some other errors", "some other errors"),
    ],
)
def test_a_text_in_words(text: str, named: str) -> None:
    said = ConnectionErrors().sentence(transport(text))
    assert f" {named};" in f" {said}" and "after" not in said


def test_an_address_is_named_once_until_it_was_well() -> None:
    now = 0.0
    errors = ConnectionErrors(lambda: now)
    first = [
        errors.sentence(transport(text))
        for text in (
            f"127.0.0.1:9093/bootstrap: {REFUSED})",
            f"127.0.0.1:9093/3: {REFUSED})",
            f"127.0.0.1:9093/3: {REFUSED}, 1 identical error(s) suppressed)",
            "127.0.0.1:9094/4: Disconnected (after 1ms in state UP)",
        )
    ]
    assert [one is not None for one in first] == [True, False, False, True]
    assert errors.sentence(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")) is None
    now = QUIET_S - 1
    assert errors.sentence(transport(f"127.0.0.1:9093/3: {REFUSED})")) is None
    now += QUIET_S
    assert errors.sentence(transport(f"127.0.0.1:9093/3: {REFUSED})")) is not None
