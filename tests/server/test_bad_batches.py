"""Record batches that a leader must not take: each refused with the protocol's own code, and nothing of it stored."""

from __future__ import annotations

import struct
from collections.abc import Callable

from crc32c import crc32c

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import answered, ask, create, error, offsets, produce, produce_raw, produce_request, values
from tests.server.wire import RawConnection, bystander

CORRUPT, TOO_LARGE, BAD_ACKS, BAD_TIMESTAMP = 2, 10, 21, 32
OLD_FORMAT, NO_TRANSACTIONS, BAD_CODEC, BAD_RECORD = 43, 53, 76, 87
MAGIC_AT, CRC_AT, ATTRIBUTES_AT, COUNT_AT = 16, 17, 21, 57

GOOD = bytes(encode_batch(values(10)))


def changed(at: int, form: str, value: int) -> bytes:
    """The batch with one field changed, under a CRC that is right for all but a changed CRC."""
    out = bytearray(GOOD)
    struct.pack_into(form, out, at, value)
    if at != CRC_AT:
        struct.pack_into(">I", out, CRC_AT, crc32c(bytes(out[ATTRIBUTES_AT:])))
    return bytes(out)


BAD: dict[str, tuple[bytes, int]] = {
    "wrong CRC": (changed(CRC_AT, ">I", 12345), CORRUPT),
    "magic 1": (changed(MAGIC_AT, ">b", 1), OLD_FORMAT),
    "count 0": (changed(COUNT_AT, ">i", 0), BAD_RECORD),
    "codec 5": (changed(ATTRIBUTES_AT, ">h", 5), BAD_CODEC),
    "a batch of a transaction": (changed(ATTRIBUTES_AT, ">h", 0x10), NO_TRANSACTIONS),
    "LogAppendTime": (changed(ATTRIBUTES_AT, ">h", 0x08), BAD_TIMESTAMP),
}
"""One for each code; `tests/record/test_admitted_headers.py` has all that is refused."""


@each("version", [3, 8, 9])
def test_bad_batches_are_refused_and_good_ones_go_on(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    with bystander(broker):
        found = {}
        for name, (records, _) in BAD.items():
            one = produce_raw(broker.bootstrap, topic, records, version=version)
            found[name] = error(one)
            assert one.base_offset == -1, name
            if version >= 8:
                assert one.error_message, name
        assert found == {name: code for name, (_, code) in BAD.items()}
        assert offsets(broker.bootstrap, topic) == (0, 0), "something of a bad batch was stored"
        assert produce(broker.bootstrap, topic, [values(10)]) == [0]
        assert offsets(broker.bootstrap, topic) == (0, 10)


def test_bad_bytes_are_logged_with_the_peer(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce_raw(broker.bootstrap, topic, BAD["wrong CRC"][0])
    broker.wait_for_log(f"{topic}-0", "CRC-32C", "0x00003039")


def test_a_batch_above_the_limit(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, max_message_bytes="2000")
    with bystander(broker):
        assert error(produce_raw(broker.bootstrap, topic, bytes(encode_batch(values(1, 3000))))) == TOO_LARGE
        assert error(produce_raw(broker.bootstrap, topic, bytes(encode_batch(values(3, 600))))) == 0


def test_one_bad_partition_does_not_spoil_the_others(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    asked = produce_request(topic, {0: GOOD, 1: BAD["wrong CRC"][0], 7: GOOD, 2: GOOD})
    answer = answered(broker.bootstrap, asked)
    found = {one.index: error(one) for one in answer.responses[0].partition_responses}
    assert found == {0: 0, 1: CORRUPT, 7: 3, 2: 0}
    assert [offsets(broker.bootstrap, topic, number) for number in range(3)] == [(0, 10), (0, 0), (0, 10)]


@each("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(broker: RunningBroker, topic: str, acks: int) -> None:
    create(broker.bootstrap, topic)
    assert error(produce_raw(broker.bootstrap, topic, GOOD, acks=acks)) == BAD_ACKS
    assert offsets(broker.bootstrap, topic) == (0, 0)


def test_a_transactional_id_is_refused(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    asked = produce_request(topic, GOOD, transactional_id="mine")
    answer = answered(broker.bootstrap, asked)
    assert error(answer.responses[0].partition_responses[0]) == NO_TRANSACTIONS
    refused = ask(broker.bootstrap, ApiKey.INIT_PRODUCER_ID, 4, transactional_id="mine", transaction_timeout=1000)
    assert error(refused) == NO_TRANSACTIONS


@each(
    "spoil",
    [lambda topic: (topic, BAD["wrong CRC"][0]), lambda topic: (topic + "-missing", GOOD)],
    ids=["a bad batch", "no such topic"],
)
def test_without_acks_a_failure_ends_the_connection(
    broker: RunningBroker, topic: str, spoil: Callable[[str], tuple[str, bytes]]
) -> None:
    create(broker.bootstrap, topic)
    name, records = spoil(topic)
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        good = codec.encode_request(produce_request(topic, GOOD, acks=0), 1, "test")
        bad = codec.encode_request(produce_request(name, records, acks=0), 2, "test")
        connection.send(good + bad)
        assert connection.is_closed_by_broker()
    assert offsets(broker.bootstrap, topic) == (0, 10)
