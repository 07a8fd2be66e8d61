"""librdkafka's texts about connections, as klog says them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from klog.tools.connection_trouble import QUIET_S, ConnectionTrouble

REFUSED = "Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT"


def transport(text: str) -> KafkaError:
    return KafkaError(KafkaError._TRANSPORT, text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"127.0.0.1:9093/3: {REFUSED})",
            "no connection to 127.0.0.1:9093 (broker 3): Connection refused; still trying",
        ),
        (
            f"GroupCoordinator: 127.0.0.1:9093: {REFUSED}, 1 identical error(s) suppressed)",
            "no connection to 127.0.0.1:9093: Connection refused; still trying",
        ),
        (
            "sasl_plaintext://[::1]:9093/bootstrap: Disconnected (after 12ms in state UP)",
            "no connection to [::1]:9093: Disconnected; still trying",
        ),
        (
            "h:9093/bootstrap: Failed to resolve 'h:9093': Name or service not known (after 4ms in state CONNECT)",
            "no connection to h:9093: Failed to resolve 'h:9093': Name or service not known; still trying",
        ),
        ("some other trouble", "some other trouble; still trying"),
    ],
)
def test_a_text_in_words(text: str, sentence: str) -> None:
    assert ConnectionTrouble().sentence(transport(text)) == sentence


def test_an_address_is_named_once_until_it_was_well() -> None:
    now = 0.0
    trouble = ConnectionTrouble(lambda: now)
    first = [
        trouble.sentence(transport(text))
        for text in (
            f"127.0.0.1:9093/bootstrap: {REFUSED})",
            f"127.0.0.1:9093/3: {REFUSED})",
            f"127.0.0.1:9093/3: {REFUSED}, 1 identical error(s) suppressed)",
            "127.0.0.1:9094/4: Disconnected (after 1ms in state UP)",
        )
    ]
    assert [one is not None for one in first] == [True, False, False, True]
    assert trouble.sentence(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")) is None
    now = QUIET_S - 1
    assert trouble.sentence(transport(f"127.0.0.1:9093/3: {REFUSED})")) is None
    now += QUIET_S
    assert trouble.sentence(transport(f"127.0.0.1:9093/3: {REFUSED})")) is not None
