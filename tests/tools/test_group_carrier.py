"""Groups that a mirror carries over: where an offset of the source is in the target, and what is written there when."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordination import committed
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import UsageError
from klog.names import TopicPartition
from klog.record.batch import read_header
from klog.record.codec import Codec
from klog.record.provenance_header import Marker, Source
from klog.record.records import Record, encode_batch
from klog.tools.copying import group_offsets
from klog.tools.copying.cluster_endpoint import ClusterEndpoint, Fetched
from klog.tools.copying.group_carrier import Reach, decide, find_first, metadata_of, read_metadata
from klog.tools.copying.group_offsets import Commit, GroupNames, GroupOffsets, Position
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import create
from tests.tools.copies import with_sides

ONE, OTHER = Source("AbCd", "orders", 1), Source("AbCd", "orders", 11)

batches_of_sources = st.lists(
    st.tuples(
        st.sampled_from([ONE, ONE, OTHER, None]),
        st.lists(st.integers(1, 30), min_size=1, max_size=6),  # what each is ahead of the one before it, in its source
        st.integers(0, 5000),  # a hole behind it
    ),
    max_size=25,
)


class Log:
    """A partition as it is copied to: batches at byte addresses, read as a leader gives them out."""

    def __init__(self, start: int, batches: list[tuple[Source | None, list[int], int]], codec: Codec) -> None:
        self.start = self.end = start
        self.copies: list[tuple[int, Source, int]] = []
        self.reads = 0
        self._batches: list[tuple[int, bytes]] = []
        ends = {ONE: 0, OTHER: 0}
        for source, steps, hole in batches:
            records = []
            for number, step in enumerate(steps):
                headers: tuple[tuple[str, bytes | None], ...] = ()
                if source is not None:
                    ends[source] += step
                    headers = (Marker(source).header(ends[source]),)
                    self.copies.append((self.end + number, source, ends[source]))
                records.append(Record(number, 1, None, b"v" * step, headers))
            batch = bytes(encode_batch(records, base_offset=self.end, codec=codec))
            self._batches.append((read_header(batch).last_offset + 1, batch))
            self.end += len(batch) + hole

    async def read(self, at: int, size: int) -> Fetched:
        """From the batch that holds an offset or is the next behind it: at least one, else no more than asked for."""
        self.reads += 1
        assert self.start <= at < self.end
        found, after = b"", -1
        for end, batch in self._batches:
            if end <= at:
                continue
            if found and len(found) + len(batch) > size:
                break
            found, after = found + batch, end
        return Fetched(memoryview(found), after, self._batches[-1][0])


@given(
    st.sampled_from([0, 7, 10**12]),
    batches_of_sources,
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.integers(0, 400),
    st.integers(0, 60),
    st.integers(1, 2000),
)
def test_the_first_copy_is_found(
    start: int,
    batches: list[tuple[Source | None, list[int], int]],
    codec: Codec,
    wanted: int,
    known: int,
    most_bytes: int,
) -> None:
    """As by reading everything; from the start, and from where a smaller offset of the source was found before."""
    log = Log(start, batches, codec)
    mine = [(here, there) for here, source, there in log.copies if source == ONE]
    expected = next((here for here, there in mine if there >= wanted), None)
    begin = next((here for here, there in mine if there >= min(known, wanted)), log.start)

    async def read(at: int, size: int) -> Fetched:
        return await log.read(at, min(size, most_bytes))

    for low in {log.start, begin}:
        assert asyncio.run(find_first(read, ONE, wanted, low, log.end)) == expected


def test_a_search_is_short() -> None:
    """In a log of 3,000 batches, one in fifty of which is of this source."""
    batches: list[tuple[Source | None, list[int], int]] = [
        (ONE if number % 50 == 0 else OTHER, [1] * 10, 0) for number in range(3000)
    ]
    log = Log(0, batches, Codec.NONE)
    here = asyncio.run(find_first(log.read, ONE, 300, 0, log.end))
    assert (here, ONE, 300) in log.copies
    assert log.reads < 40


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=30))
def test_what_a_copy_has_reached(looks: list[tuple[int, int]]) -> None:
    """Something that was committed, never more than is copied or is committed now; that itself, where it is copied."""
    reach, position, seen = Reach(), 0, set[int]()
    for offset, copied in looks:
        position += copied
        seen.add(offset)
        found = reach.look(offset, position)
        assert (found is None) == (min(seen) > position)
        if found is not None:
            assert found in seen
            assert found <= min(position, offset)
            assert found == offset or offset > position


def test_who_is_always_behind_the_group() -> None:
    """A copy that is one look late goes along one look late."""
    reach = Reach()
    assert [reach.look(offset, offset - 10) for offset in range(20, 70, 10)] == [None, 20, 30, 40, 50]


A, B = ONE, OTHER


def carried(offset: int, **reached: int) -> Commit:
    return Commit(offset, metadata_of({{"a": A, "b": B}[name]: known for name, known in reached.items()}))


@each(
    ("there", "reached", "here", "before", "lost", "expected"),
    [
        (None, {A: 5}, 70, None, False, 70),
        # What was carried over before, by this run or another.
        (carried(70, a=5), {A: 5}, 75, None, False, None),
        (carried(70, a=5), {A: 6}, 80, {A: 5}, False, 80),
        (carried(70, a=5), {A: 4}, 60, None, False, 60),
        (carried(70, a=5), {A: 6}, 70, None, False, 70),
        (carried(70, a=5), {A: 5}, 50, {A: 5}, True, 50),
        # A source in which it has committed for the first time, and one in which it has no more.
        (carried(70, a=5), {A: 6, B: 1}, 20, {A: 5}, False, 20),
        (carried(20, a=5, b=1), {A: 5}, 70, None, False, 70),
        # The group has consumed in the target.
        (Commit(70), {A: 5}, 60, None, False, None),
        (Commit(70), {A: 6}, 60, {A: 5}, False, None),
        (Commit(70), {A: 6}, 80, {A: 5}, False, 80),
        (Commit(70), {A: 4}, 60, {A: 5}, False, 60),
    ],
)
def test_what_is_written(
    there: Commit | None,
    reached: dict[Source, int],
    here: int,
    before: dict[Source, int] | None,
    lost: bool,
    expected: int | None,
) -> None:
    found = decide(there, reached, here, before=before, lost=lost)
    assert (None if found is None else found.offset) == expected
    if found is not None:
        assert read_metadata(found.metadata) == {str(source): offset for source, offset in reached.items()}
        assert decide(found, reached, here) is None  # a next mirror has nothing to do


@each(
    "text",
    [
        *("", "{}", "[]", "7", '{"klog.groups":2}', '{"klog.groups":1,"of":3}', "\x00"),
        *(
            "[" * 4_000,
            '{"klog.groups":1,"of":{"1":1e999}}',
            '{"klog.mirror":1,"target":"","topic_id":"","of":"","end":1e999}',
        ),
    ],
)
def test_metadata_of_others(text: str) -> None:
    """Any client may commit what it likes: a mirror goes on."""
    assert read_metadata(text) is None
    assert Position.of_commit(Commit(7, text)) == Position(7)
    assert read_metadata(Position(1, "target").commit.metadata) is None


def test_which_groups() -> None:
    there = ["billing", "billing.eu", "search", "mirror-x"]
    cases = [
        (["billing,later"], ["billing", "later"]),
        (["billing.*"], ["billing", "billing.eu"]),
        (["search", "billing|mirror-."], ["search", "billing", "mirror-x"]),
        (["billing.eu"], ["billing.eu"]),
    ]
    for texts, expected in cases:
        assert GroupNames(texts).among(there) == expected
    assert not GroupNames([])
    for wrong in ("(", ",", ""):
        with pytest.raises(UsageError):
            GroupNames([wrong])


def test_groups_are_listed_read_and_written(broker: RunningBroker, registry: ZooKeeper, topic: str) -> None:
    """What klog's own tools see in ZooKeeper; a commit of many partitions goes in parts."""
    create(broker.bootstrap, topic, 2)
    both = [TopicPartition(topic, number) for number in range(2)]
    commits = {both[0]: Commit(5, "said"), both[1]: Commit(7)}

    async def work(side: ClusterEndpoint, _: ClusterEndpoint) -> None:
        groups = GroupOffsets(side)
        await groups.write(topic, commits)
        assert topic in await groups.names()
        assert await groups.read([topic, "nobody"], both[:1]) == {topic: {both[0]: commits[both[0]]}, "nobody": {}}

    with patch.object(group_offsets, "PARTITIONS_AT_ONCE", 1):
        with_sides(work, broker.bootstrap)
    there = committed.read(registry, topic)
    assert {one: Commit(known.offset, known.metadata) for one, known in there.items()} == commits
