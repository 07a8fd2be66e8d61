"""Messages of many MiB: they go where they may, and are refused at once, by their size, where they may not."""

import re

import pytest

import klog
from klog.client.producer_settings import MESSAGE_BYTES_MAX
from klog.errors import MessageTooLarge
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, send

MIB = 1 << 20


def numbers(text: str) -> set[int]:
    return {int(one.replace(",", "")) for one in re.findall(r"\d[\d,]{4,}", text)}


def test_the_topics_limit_is_named(broker: RunningBroker, topic: str) -> None:
    size = 2 * MIB
    make_topic(broker.bootstrap, topic, max_message_bytes="1500000")
    receipt = send(broker.bootstrap, topic, b"x" * size)
    assert receipt.failed == 1
    assert {size, 1_500_000} <= numbers(receipt.first_error or "") and "max.message.bytes=N" in str(receipt.first_error)
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(MessageTooLarge) as refused:
        producer.send(topic, b"x" * size)
    assert {size, 1_500_000} <= numbers(refused.value.message)


def test_a_message_larger_than_the_buffer_is_refused_at_once(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="1500000")
    settings = {"queue.buffering.max.kbytes": "2000"}
    receipt = send(broker.bootstrap, topic, b"x" * (3 * MIB) + b"\nsmall", librdkafka=settings)
    assert (receipt.messages, receipt.failed) == (1, 1)
    assert {3 * MIB, 2_048_000, 1_500_000} <= numbers(receipt.first_error or "")
    made = klog.Producer(bootstrap_servers=broker.bootstrap, buffer_memory=2_048_000)
    with made as producer, pytest.raises(MessageTooLarge) as refused:
        producer.send(topic, b"x" * (3 * MIB))
    assert {3 * MIB, 2_048_000} <= numbers(refused.value.message)


@pytest.mark.slow
def test_what_no_request_can_carry_is_refused_at_once(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes=str(100 * MIB))
    size = 100 * MIB - 100
    receipt = send(broker.bootstrap, topic, b"x" * size, input="raw")
    assert receipt.failed == 1
    assert {MESSAGE_BYTES_MAX, 100 * MIB} <= numbers(receipt.first_error or "")
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(MessageTooLarge) as refused:
        producer.send(topic, b"x" * size)
    assert {size, MESSAGE_BYTES_MAX} <= numbers(refused.value.message)
