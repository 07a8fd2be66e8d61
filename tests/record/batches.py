"""Batches for tests: by strategy, and by another client's own encoder."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from klog.record.codec import Codec
from klog.record.records import Record

CODECS = tuple(Codec)

blobs = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
timestamps_ms = st.integers(0, 2**41) | st.integers(1_700_000_000_000, 1_700_000_100_000)
headers = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=4).map(tuple)


@st.composite
def records(draw: st.DrawFn, max_size: int = 30) -> list[Record]:
    """Records with offsets 0, 1, 2 ... and timestamps in any order."""
    rows = draw(st.lists(st.tuples(timestamps_ms, blobs, blobs, headers), min_size=1, max_size=max_size))
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def plain(count: int, *, first_ms: int = 1_700_000_000_000, value_bytes: int = 20) -> list[Record]:
    """``count`` records, a millisecond apart, each of them different."""
    return [
        Record(i, first_ms + i, b"k%d" % (i % 7), (b"value %d " % i).ljust(value_bytes, b"."), ()) for i in range(count)
    ]


def moved(rows: Sequence[Record], base_offset: int) -> list[Record]:
    """The same records as they are read from a batch at ``base_offset``."""
    return [record._replace(offset=base_offset + record.offset) for record in rows]


def by_kafka_python(rows: Sequence[Record], codec: Codec = Codec.NONE, **producer: int) -> bytes:
    """A batch as kafka-python's producer writes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=1 << 30,
    )
    for delta, record in enumerate(rows):
        builder.append(
            delta, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
        )
    return bytes(builder.build())
