"""A batch of an idempotent producer that comes again is answered as the first time, whatever became of the brokers.

Raw requests: what is repeated here a stock client repeats when the answer was lost.
"""

from __future__ import annotations

import struct
import time

import crc32c

from klog.client.blocking import BlockingChannel
from klog.protocol.apis import ApiKey
from klog.record.batch import CRC_AT, CRC_FROM
from klog.record.records import Record, encode_batch
from klog.replication.led_partition import REFUSED_S
from tests.cluster_fixture import RunningCluster
from tests.server.asking import FIRST_MS, error, produce_request

PRODUCER = 7_000_000
WINDOW = 5
NOT_LEADER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER = 6, 19, 45
"""What a client sends again upon, and what it does not."""


def batch(number: int, producer_id: int = PRODUCER) -> bytes:
    """The batch with this number: two records."""
    data = bytearray(encode_batch([Record(at, FIRST_MS, None, b"%06d.%d" % (number, at), ()) for at in range(2)]))
    struct.pack_into(">qhi", data, 43, producer_id, 0, 2 * number)
    struct.pack_into(">I", data, CRC_AT, crc32c.crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


def send(channel: BlockingChannel, topic: str, number: int, producer_id: int = PRODUCER) -> tuple[int, int]:
    """Error code and base offset."""
    answer = channel.request(produce_request(topic, batch(number, producer_id)))
    one = answer.responses[0].partition_responses[0]
    return error(one), one.base_offset


def repeat(channel: BlockingChannel, topic: str, wanted: list[int]) -> None:
    """Each of the last five batches, oldest first and newest first, is where it was; an older one is not known."""
    last = len(wanted)
    while send(channel, topic, last - WINDOW)[0] == NOT_LEADER:  # the segments are still being read
        time.sleep(0.02)
    for number in (*range(last - WINDOW, last), *reversed(range(last - WINDOW, last))):
        assert send(channel, topic, number) == (0, wanted[number])
    assert send(channel, topic, last - WINDOW - 1)[0] == OUT_OF_ORDER


def write(channel: BlockingChannel, topic: str, count: int) -> list[int]:
    found = [send(channel, topic, number) for number in range(count)]
    assert all(code == 0 for code, _ in found)
    return [offset for _, offset in found]


def test_after_the_leader_changed(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2, 3]])
    leader = three.wait_for_leader(topic)
    with three.channel(leader) as channel:
        wanted = write(channel, topic, WINDOW + 1)
    three.kill(leader)
    with three.channel(three.wait_for_leader(topic, other_than=leader)) as channel:
        repeat(channel, topic, wanted)
    three.heal()
    three.wait_in_sync(topic)


def test_after_a_refusal_a_producer_goes_on_from_there(three: RunningCluster, topic: str) -> None:
    """A batch that is in the log and is refused when it comes again must not be overtaken.

    librdkafka would take the acknowledgement of a later one for its own, and report its messages without offsets.
    """
    three.create(topic, assignment=[[1, 2]], min_insync_replicas="2")
    leader = three.wait_for_leader(topic)
    with three.channel(leader) as channel, three.channel(leader) as other:
        wanted = write(channel, topic, WINDOW)
        three.kill(3 - leader)
        three.wait_until(lambda: three.isr_of(topic) == {leader}, "the other left the in-sync set")
        for _ in range(5):
            set_min_insync(three, topic, 2)
            three.wait_until(lambda: send(other, topic, 0, 9)[0] == NOT_ENOUGH_REPLICAS, "two are needed")
            assert send(channel, topic, 3)[0] == NOT_ENOUGH_REPLICAS
            refused_s = time.monotonic()
            set_min_insync(three, topic, 1)
            three.wait_until(lambda: send(other, topic, 0, 9)[0] == 0, "one is enough")
            answers = [send(channel, topic, number) for number in (4, 5)]
            if time.monotonic() - refused_s < REFUSED_S / 2:  # no later, where the machine is slow
                break
        assert [code for code, _ in answers] == [NOT_LEADER, NOT_LEADER]
        assert send(channel, topic, 0, 10)[0] == 0  # another producer on the same connection
        assert [send(channel, topic, number)[1] for number in (3, 4)] == wanted[3:]
        assert send(channel, topic, 5)[0] == 0
    three.heal()


def set_min_insync(three: RunningCluster, topic: str, wanted: int) -> None:
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": str(wanted)}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    asked = {"resources": [resource], "validate_only": False}
    answer = three.ask(three.answering[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, **asked)
    assert error(answer.responses[0]) == 0, answer
