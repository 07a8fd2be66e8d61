"""Algorithm 1 as a pure function, and what a consumer subscribes to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.assignment import assign, split, thread_id
from klog.client.subscription import Subscription, compile_filter, threads_of
from klog.coordination.consumers import BLACK_LIST, STATIC, WHITE_LIST, ConsumerEntry
from klog.errors import InvalidTopic, UsageError
from klog.names import TopicPartition
from tests.rows import each

partitions = st.sets(st.integers(0, 300), max_size=80)
names = st.text("abcxyz-0123456789", min_size=1, max_size=8)
threads = st.sets(names, max_size=20)
groups = st.dictionaries(names, st.dictionaries(st.sampled_from(["t", "u", "v"]), st.integers(1, 5)), max_size=8)


@given(partitions, threads)
def test_every_partition_has_one_owner_and_the_spread_is_even(owned: set[int], by: set[str]) -> None:
    owners = split(owned, by)
    assert set(owners) == (owned if by else set())
    assert set(owners.values()) <= by
    if by:
        counts = Counter(owners.values())
        shares = [counts[thread] for thread in by]
        assert max(shares) - min(shares) <= 1


@given(partitions, threads)
def test_each_thread_has_a_range_and_ranges_follow_the_threads(owned: set[int], by: set[str]) -> None:
    owners = split(owned, by)
    in_order = [owners[partition] for partition in sorted(owners)]
    assert in_order == sorted(in_order)
    # The first get one more where it does not come out even.
    shares = [in_order.count(thread) for thread in sorted(by)]
    assert shares == sorted(shares, reverse=True)


@given(st.lists(st.integers(0, 300), unique=True), st.lists(names, unique=True), st.randoms())
def test_the_order_in_which_the_registry_lists_them_does_not_matter(owned: list[int], by: list[str], draw) -> None:  # type: ignore[no-untyped-def]
    expected = split(owned, by)
    draw.shuffle(owned)
    draw.shuffle(by)
    assert split(owned, by) == expected


@given(partitions, threads)
def test_it_is_the_papers_formula_where_it_comes_out_even(owned: set[int], by: set[str]) -> None:
    """Partitions j * N to (j + 1) * N - 1 of the sorted ones, with N = |P| / |C|."""
    if not by or len(owned) % len(by):
        return
    ordered, each = sorted(owned), len(owned) // len(by)
    for j, thread in enumerate(sorted(by)):
        for partition in ordered[j * each : (j + 1) * each]:
            assert split(owned, by)[partition] == thread


@given(st.dictionaries(st.sampled_from(["t", "u", "v"]), partitions), groups)
def test_a_group_owns_each_partition_of_what_it_subscribes_to(
    topics: dict[str, set[int]], consumers: dict[str, dict[str, int]]
) -> None:
    owners = assign(topics, consumers)
    subscribed = {topic for threads in consumers.values() for topic in threads}
    assert set(owners) == {TopicPartition(t, p) for t, some in topics.items() for p in some if t in subscribed}
    for partition, owner in owners.items():
        consumer, _, number = owner.rpartition("-")
        assert int(number) < consumers[consumer][partition.topic]


def test_what_kafka_0_8_computes() -> None:
    """RangeAssignor's example: five partitions, two consumers of two threads each."""
    owners = split(range(5), ["c1-0", "c1-1", "c2-0", "c2-1"])
    assert owners == {0: "c1-0", 1: "c1-0", 2: "c1-1", 3: "c2-0", 4: "c2-1"}


def test_threads_sort_as_texts_and_partitions_as_numbers() -> None:
    many = [thread_id("c", number) for number in range(11)]
    owners = split(range(11), many)
    assert owners[1] == "c-1"
    assert owners[2] == "c-10"  # as 0.8 sorts them
    assert split([10, 9, 2], ["a", "b", "c"]) == {2: "a", 9: "b", 10: "c"}


# --- subscriptions ---


@each(
    ("pattern", "text", "read"),
    [
        (WHITE_LIST, "t1", ["t1"]),
        (WHITE_LIST, "t.*", ["t1", "t2", "t22"]),
        (WHITE_LIST, "t1,u", ["t1", "u"]),
        (WHITE_LIST, " 't1, u' ", ["t1", "u"]),
        (WHITE_LIST, "t2{1,2}", ["t2", "t22"]),
        (WHITE_LIST, "nothing", []),
        (BLACK_LIST, "t.*", ["u"]),
        (BLACK_LIST, "nothing", ["t1", "t2", "t22", "u"]),
    ],
)
def test_filters(pattern: str, text: str, read: list[str]) -> None:
    there = ["t1", "t2", "t22", "u", "__consumer_offsets", "klog.events"]
    entry = ConsumerEntry("c", {text: 3}, pattern)
    assert threads_of(entry, there) == dict.fromkeys(read, 3)


def test_internal_topics_are_read_where_it_is_asked_for() -> None:
    entry = ConsumerEntry("c", {".*": 1}, WHITE_LIST)
    assert threads_of(entry, ["klog.events", "t"], exclude_internal=False) == {"klog.events": 1, "t": 1}


@each(
    "entry",
    [
        ConsumerEntry("c", {"(": 1}, WHITE_LIST),
        ConsumerEntry("c", {"t": 1}, "a pattern of another time"),
        ConsumerEntry("c", {"t": 0}, STATIC),
        ConsumerEntry("c", {"t": -1}, STATIC),
    ],
)
def test_what_another_tool_wrote_wrong_reads_nothing(entry: ConsumerEntry) -> None:
    assert threads_of(entry, ["t"]) == {}


@each("threads", [{}, {"t": 0}, {"t": -1}, {"t": True}, {"t": "two"}, {"t": 1025}])
def test_wrong_numbers_of_streams(threads: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Subscription.of_topics(threads)


def test_wrong_subscriptions() -> None:
    with pytest.raises(InvalidTopic, match="a/b"):
        Subscription.of_topics({"a/b": 1})
    for white, black in ((None, None), ("a", "b")):
        with pytest.raises(UsageError, match="either"):
            Subscription.of_filter(white, black, 1)
    with pytest.raises(UsageError, match="regular expression"):
        Subscription.of_filter("(", None, 1)
    assert Subscription.of_filter(None, "t", 2).entry("c").pattern == BLACK_LIST
    assert compile_filter("a,b").fullmatch("b")
