"""What the modules that can be compiled make of the same bytes, good and damaged: one digest a round.

    python -m tests.compiled.outcomes ROUNDS

prints where each module comes from, then the digests. The source and what is compiled from it must print the same.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from typing import Any

from klog.errors import KlogError
from klog.protocol import codec, fetch, produce
from klog.protocol.apis import ApiKey
from klog.protocol.produce import PartitionAnswer
from klog.record import admission, batch, records
from klog.record.codec import Codec
from klog.record.records import Record
from tests.record.leader import LIMITS, check_contents

MODULES = (codec, fetch, produce, admission, batch, records)
BATCH_BYTES_MAX = 100_000


def outcome(act: Callable[[], Any]) -> str:
    """What it returns, or the class and the sentence of the error that it raises."""
    try:
        found = act()
    except KlogError as error:
        return f"{type(error).__name__}: {error.message}"
    return repr(found)


def drawn_batch(chance: random.Random) -> bytearray:
    """Records of any shape; now and then of an idempotent producer, or compressed."""
    rows = [
        Record(
            number,
            1_700_000_000_000 + chance.randrange(-1000, 1000),
            None if chance.random() < 0.2 else chance.randbytes(chance.randrange(20)),
            None if chance.random() < 0.1 else chance.randbytes(chance.choice((0, 5, 70, 300))),
            tuple((f"h{chance.randrange(9)}", chance.randbytes(3)) for _ in range(chance.randrange(3))),
        )
        for number in range(chance.randrange(1, 30))
    ]
    producer = {"producer_id": chance.randrange(9), "producer_epoch": 0, "base_sequence": chance.randrange(99)}
    return records.encode_batch(
        rows,
        codec=chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD)),
        base_offset=chance.randrange(1 << 40),
        **(producer if chance.random() < 0.5 else {}),
    )


def damaged(data: bytearray, chance: random.Random) -> bytearray:
    """Often as it is; else a byte changed, or cut short."""
    how = chance.random()
    if how < 0.3 and data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif how < 0.4:
        del data[chance.randrange(len(data)) :]
    return data


def of_batch(chance: random.Random) -> list[str]:
    data = damaged(drawn_batch(chance), chance)
    view = memoryview(data)
    limits = LIMITS._replace(batch_bytes_max=BATCH_BYTES_MAX, before_max_ms=500 if chance.random() < 0.5 else None)
    found = [
        outcome(lambda: admission.check_headers(view, BATCH_BYTES_MAX)),
        outcome(lambda: admission.admit(view, limits, 1_700_000_000_000, admission.RequestBudget())),
        outcome(lambda: check_contents(view, limits)),
        outcome(lambda: records.decode_batch(data, 0, 1 << 20)),
        outcome(lambda: list(records.record_times(data, 0, 1 << 20))),
        outcome(lambda: list(batch.walk(data, allow_partial=chance.random() < 0.5))),
    ]
    if len(data) >= batch.HEADER_BYTES:
        batch.stamp(view, 0, 77, 5)
    return [*found, hashlib.sha256(data).hexdigest()]


def of_produce(chance: random.Random) -> list[str]:
    version = chance.randrange(3, 10)
    topics = [
        {
            "name": f"topic-{number}",
            "partition_data": [
                {"index": chance.randrange(9), "records": bytes(drawn_batch(chance))}
                for _ in range(chance.randrange(3))
            ],
        }
        for number in range(chance.randrange(3))
    ]
    asked = codec.request(ApiKey.PRODUCE, version, transactional_id=None, acks=-1, timeout=9, topic_data=topics)
    frame = memoryview(damaged(bytearray(codec.encode_request(asked, 7, "client")[4:]), chance))

    def read() -> Any:
        head = codec.read_head(frame)
        request = produce.read_request(frame, head)
        return head, request.acks, [(one.topic, one.partition, bytes(one.records)) for one in request.partitions]

    answers = [
        PartitionAnswer(f"topic-{number}", 0, 3, 5, 0, chance.choice((None, "why")), ((1, "late"),))
        for number in range(chance.randrange(3))
    ]
    head = codec.RequestHead(int(ApiKey.PRODUCE), version, 7, "client", 0)
    return [outcome(read), outcome(lambda: produce.write_response(head, answers))]


def of_fetch(chance: random.Random) -> list[str]:
    version = chance.randrange(4, 13)
    partitions = [
        {"partition": chance.randrange(9), "fetch_offset": chance.randrange(1 << 40), "partition_max_bytes": 1 << 20}
        for _ in range(chance.randrange(4))
    ]
    asked = codec.request(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait=5,
        min_bytes=1,
        max_bytes=9,
        isolation_level=0,
        topics=[{"topic": "t", "partitions": partitions}],
        forgotten_topics_data=[],
    )
    frame = memoryview(damaged(bytearray(codec.encode_request(asked, 7, "client")[4:]), chance))
    return [outcome(lambda: fetch.read_request(frame, codec.read_head(frame)))]


def main(rounds: int) -> None:
    for module in MODULES:
        print(module.__name__, "source" if str(module.__file__).endswith(".py") else "compiled")
    for number in range(rounds):
        chance = random.Random(number)
        found = [*of_batch(chance), *of_produce(chance), *of_fetch(chance)]
        print(number, hashlib.sha256("\n".join(found).encode()).hexdigest(), found[0][:60].replace("\n", " "))


if __name__ == "__main__":
    main(int(sys.argv[1]))
