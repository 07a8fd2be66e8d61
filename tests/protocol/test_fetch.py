"""The hand-written answer to Fetch beside kio, byte for byte, in every version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.protocol import codec, fetch
from klog.protocol.apis import ApiKey
from klog.protocol.fetch import FetchedPartition

partitions = st.lists(
    st.tuples(
        st.sampled_from(["a", "topic-b", "c"]),
        st.integers(0, 5),
        st.sampled_from([0, 1, 3, 6]),
        st.integers(-1, 2**60),
        st.integers(-1, 2**60),
        st.lists(st.binary(min_size=1, max_size=200), max_size=3),
    ),
    max_size=6,
)


@given(partitions=partitions, version=st.integers(4, 12))
def test_the_parts_joined_are_what_kio_writes(
    partitions: list[tuple[str, int, int, int, int, list[bytes]]], version: int
) -> None:
    fetched = [
        FetchedPartition(topic, index, error, high, start, ranges, sum(map(len, ranges)))
        for topic, index, error, high, start, ranges in partitions
    ]
    topics: dict[str, list[dict[str, object]]] = {}
    for topic, index, error, high, start, ranges in partitions:
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "error_code": error,
                "high_watermark": high,
                "last_stable_offset": high,
                "log_start_offset": start,
                "aborted_transactions": None,
                "preferred_read_replica": -1,
                "records": b"".join(ranges),
            }
        )
    reference = codec.response(
        ApiKey.FETCH,
        version,
        error_code=0,
        session_id=0,
        responses=[{"topic": name, "partitions": parts} for name, parts in topics.items()],
    )
    head = codec.RequestHead(ApiKey.FETCH, version, 12, None, 0)
    # A range of a file stands for its bytes here: what matters is what lies around it.
    assert b"".join(fetch.write_response(head, fetched)) == codec.encode_response(head, reference)
