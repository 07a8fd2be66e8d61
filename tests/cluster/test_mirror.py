"""Mirrors between real clusters: every message once and in order, whoever dies; topics, commits, and who is refused."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as At

from klog.client.positions import LATEST
from klog.client.raw_fetch import RawCluster
from klog.coordination import committed
from klog.errors import (
    GroupIsHeld,
    InvalidPartitions,
    KlogError,
    NonEmptyGroup,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.record.codec import Codec
from klog.record.provenance_header import Marker, Source
from klog.record.records import Record
from klog.tools.copying import mirror as mirroring
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.group_offsets import Commit, GroupNames, GroupOffsets
from klog.tools.copying.mirror import Mirror, MirroredOffset, MirrorOptions, MirrorRow, mirrored_offsets
from klog.tools.copying.topics import TopicNames
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.cli.process import started
from tests.cli.runner import klog
from tests.cluster.load import Load
from tests.cluster_fixture import RunningCluster
from tests.server.asking import FIRST_MS, ask, create, error, produce
from tests.tools.copies import codecs_in, everything, values, with_sides
from tests.tools.verbs import delete_before, own_settings
from tests.zookeeper_fixture import session_of

ENDS_WITHIN_S = 60.0


def flags(source: str, target: str, topic: str, *more: str) -> tuple[str, ...]:
    return ("--source", source, "--target", target, "--topic", topic, "--timeout", "5s", *more)


def mirrored(
    source: str | list[str],
    target: str,
    work: Callable[[Mirror], Awaitable[Any]] | None = None,
    *,
    note: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> list[MirrorRow]:
    """A mirror in this process: with `once`, or until ``work`` is done."""

    async def run() -> list[MirrorRow]:
        into = await ClusterEndpoint(target, "target", note=note).open()
        whence = [
            await ClusterEndpoint(one, "source", note=note).open()
            for one in ([source] if isinstance(source, str) else source)
        ]
        shown: list[list[MirrorRow]] = [[]]
        try:
            mirror = Mirror(whence, into, options_of(**options))
            running = asyncio.create_task(mirror.run(shown.append, every_s=0.1))
            if work is not None:
                try:
                    async with asyncio.timeout(ENDS_WITHIN_S):
                        await work(mirror)
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
            else:
                async with asyncio.timeout(ENDS_WITHIN_S):
                    await running
        finally:
            for side in (into, *whence):
                await side.close()
        return shown[-1]

    return asyncio.run(run())


def options_of(*, topics: list[str], exclude: list[str] | None = None, groups: Any = (), **more: Any) -> MirrorOptions:
    return MirrorOptions(topics=TopicNames(topics, exclude or ()), groups=GroupNames(groups), **more)


def numbered(count: int, first: int = 0) -> list[list[Record]]:
    """Batches of ten."""
    return [
        [Record(i, FIRST_MS + i, None, b"%06d" % (first + ten + i)) for i in range(10)] for ten in range(0, count, 10)
    ]


def judge(source: str, target: str, topic: str) -> int:
    """What the source has is in the target, once and in order; how many."""
    before, after = everything(source, topic), everything(target, topic)
    assert before.keys() == after.keys()
    for partition, rows in before.items():
        wanted, found = values(rows), values(after[partition])
        assert len(found) == len(wanted), f"partition {partition}: {len(found)} of {len(wanted)}"
        assert found == wanted, f"partition {partition}"
    return sum(map(len, before.values()))


@pytest.fixture
def source(make_broker: Callable[..., RunningBroker]) -> RunningBroker:
    """A cluster of one broker, which may die and come back."""
    return make_broker().start()


def test_whoever_dies_each_message_once(source: RunningBroker, three: RunningCluster, topic: str) -> None:
    """The mirror, the source's broker and leaders of the target are killed at random moments."""
    chance = random.Random(seed_of("mirror"))
    partitions = 2
    create(source.bootstrap, topic, partitions)
    load = Load(source.bootstrap, topic, partitions)
    words = flags(source.bootstrap, three.bootstrap, topic)
    try:
        for round_ in range(2):
            before = _ends(three.bootstrap, topic, partitions)
            with started("mirror", *words) as running:
                deadline = time.monotonic() + ENDS_WITHIN_S
                while _ends(three.bootstrap, topic, partitions) <= before:  # it is at work
                    assert time.monotonic() < deadline and running.poll() is None, "the mirror copies nothing"
                    time.sleep(0.05)
                time.sleep(chance.random())
                if round_ == 0:
                    leader = three.leader_of(topic, chance.randrange(partitions))
                    if leader > 0:
                        three.kill(leader)
                else:
                    source.send(signal.SIGKILL)
                    source.kill()
                    source.start()
                time.sleep(chance.random())
                assert running.poll() is None, running.communicate()
            three.heal()
    finally:
        load.stop()
    with started("mirror", *words, "--once") as last:
        _, said = last.communicate(timeout=ENDS_WITHIN_S)
        assert last.returncode == 0, said
    assert judge(source.bootstrap, three.bootstrap, topic) > 0


def _ends(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the ends of a topic's partitions; 0 while there is none."""
    try:
        with RawCluster(bootstrap) as cluster:
            if topic not in cluster.describe([topic]):
                return 0
            found = cluster.offsets({TopicPartition(topic, number): LATEST for number in range(partitions)})
            return sum(found.values())
    except KlogError:
        return 0


@pytest.fixture(scope="module")
def pair(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """Two clusters of one broker each, for tests that kill nobody."""
    folder = tmp_path_factory.mktemp("pair")
    both = [
        RunningBroker(
            folder / name, f"{zookeeper.address}/{secrets.token_hex(4)}-{name}", auto__create__topics__enable="false"
        )
        for name in ("source", "target")
    ]
    try:
        for one in both:
            one.start()
        yield both[0], both[1]
    finally:
        for one in both:
            one.end()


def test_topics_by_pattern_and_where_it_is_committed(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    source, target = pair
    for name, partitions in ((f"{topic}.a", 3), (f"{topic}.b", 1), (f"{topic}.not", 1)):
        create(source.bootstrap, name, partitions)
        produce(source.bootstrap, name, numbered(20))
    wanted: dict[str, Any] = {"topics": [rf"{topic}\..*"], "exclude": [r".*\.not"], "group": topic}
    rows = mirrored(source.bootstrap, target.bootstrap, once=True, **wanted)
    assert [(row.topic, row.partition, row.messages, row.lag) for row in rows] == [
        (f"{topic}.a", 0, 20, 0),
        (f"{topic}.a", 1, 0, 0),
        (f"{topic}.a", 2, 0, 0),
        (f"{topic}.b", 0, 20, 0),
    ]
    for name in (f"{topic}.a", f"{topic}.b"):
        judge(source.bootstrap, target.bootstrap, name)
    answer = ask(target.bootstrap, ApiKey.METADATA, 7, topics=None, allow_auto_topic_creation=False)
    assert f"{topic}.not" not in {one.name for one in answer.topics}
    # The commits of the group, and what they say of the target.
    end = _end(source.bootstrap, f"{topic}.b")
    with session_of(source.zookeeper) as session:
        there = committed.read(session, topic)
    assert there[TopicPartition(f"{topic}.b", 0)].offset == end
    mapped = _offsets(source.bootstrap, target.bootstrap, **wanted)
    assert mapped[-1] == MirroredOffset(source.bootstrap, f"{topic}.b", 0, end, _end(target.bootstrap, f"{topic}.b"))


def _end(bootstrap: str, topic: str) -> int:
    return everything(bootstrap, topic)[0][-1].offset + 1


def _offsets(source: str, target: str, **options: Any) -> list[MirroredOffset]:
    return with_sides(lambda one, other: mirrored_offsets([one], other, options_of(**options)), source, target)


def test_a_target_that_has_removed_what_was_copied(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    """Its headers are gone; the commit in the source says how far it was."""
    source, target = pair
    create(source.bootstrap, topic)
    produce(source.bootstrap, topic, numbered(20))
    mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    delete_before(target.bootstrap, topic, -1)
    produce(source.bootstrap, topic, numbered(10, first=20))
    (row,) = mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    assert row.messages == 10
    assert values(everything(target.bootstrap, topic)[0]) == [b"%06d" % i for i in range(20, 30)]
    # Whatever is removed behind the commit, too: a whole copy that somebody wrote behind that hides nothing.
    later = numbered(10, first=30)
    offsets = produce(source.bootstrap, topic, later)
    produce(target.bootstrap, topic, [[Record(0, FIRST_MS, None, b"plain")]])
    delete_before(target.bootstrap, topic, -1)
    whose = ask(source.bootstrap, ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False).cluster_id
    copy = later[0][7]._replace(headers=(Marker(Source(whose, topic, 0)).header(offsets[0] + 7),))
    produce(target.bootstrap, topic, [[copy]])
    (row,) = mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    assert row.messages == 10
    assert values(everything(target.bootstrap, topic)[0]) == [b"000037", *(b"%06d" % i for i in range(30, 40))]
    notes: list[str] = []
    (row,) = mirrored(
        source.bootstrap, target.bootstrap, once=True, topics=[topic], group=f"{topic}-new", note=notes.append
    )
    assert row.messages == 0 and any("taken for copied" in one for one in notes), "without a commit it is said"


def test_topics_and_partitions_that_come_later(
    pair: tuple[RunningBroker, RunningBroker], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    monkeypatch.setattr(mirroring, "LOOK_EVERY_S", 0.2)
    create(source.bootstrap, topic)

    async def work(mirror: Mirror) -> None:
        await asyncio.to_thread(_grow)
        while True:
            if sum(row.messages for row in mirror.rows()) == 30:
                return
            await asyncio.sleep(0.05)

    def _grow() -> None:
        create(source.bootstrap, f"{topic}-late", 2)
        answer = ask(
            source.bootstrap,
            ApiKey.CREATE_PARTITIONS,
            3,
            topics=[{"name": topic, "count": 2, "assignments": None}],
            timeout=5000,
            validate_only=False,
        )
        assert error(answer.results[0]) == 0
        _eventually(lambda: produce(source.bootstrap, topic, numbered(10), 1))
        produce(source.bootstrap, f"{topic}-late", numbered(20), 1)

    mirrored(source.bootstrap, target.bootstrap, work, topics=[f"{topic}.*"])
    for name in (topic, f"{topic}-late"):
        judge(source.bootstrap, target.bootstrap, name)


def test_settings_that_say_what_a_topic_holds_are_taken_over(
    pair: tuple[RunningBroker, RunningBroker], topic: str
) -> None:
    """Into topics that the mirror makes; what is the cluster's own affair is left to the target."""
    source, target = pair
    taken = {"retention.ms": "86400000", "max.message.bytes": "3000000", "segment.bytes": "8388608"}
    names = [f"{topic}-{one}" for one in ("there", "made", "plain")]
    for name in names:
        create(source.bootstrap, name, **taken, min_insync_replicas="1", flush_ms="500")
        # More than a topic takes that has no settings of its own.
        produce(source.bootstrap, name, [[Record(0, FIRST_MS, None, b"x" * 2_000_000)]])
    create(target.bootstrap, names[0], **{**taken, "retention.ms": "1000000"})
    mirrored(source.bootstrap, target.bootstrap, once=True, topics=names[:2])
    with pytest.raises(KlogError, match=r"larg|max\.message\.bytes"):
        mirrored(source.bootstrap, target.bootstrap, once=True, topics=[names[2]], take_settings=False)
    found = [own_settings(target.bootstrap, one) for one in names]
    assert found == [{**taken, "retention.ms": "1000000"}, taken, {}]
    assert [len(row.value or b"") for row in everything(target.bootstrap, names[1])[0]] == [2_000_000]


def _eventually(act: Callable[[], object], within_s: float = 10.0) -> None:
    """A partition that was made a moment ago may have no leader yet; a mirror may have to find the next one."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            act()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def test_who_is_refused(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    source, target = pair
    create(source.bootstrap, topic, 3)
    create(target.bootstrap, topic, 2)
    with pytest.raises(InvalidPartitions, match=r"\b2 partitions.*\b3\b") as few:
        mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    assert few.value.hint == f"klog topic alter {topic} -p 3 -B {target.bootstrap}"
    with pytest.raises(UsageError, match=source.bootstrap):
        mirrored(source.bootstrap, source.bootstrap, once=True, topics=[topic])
    with pytest.raises(UsageError, match="sources"):
        mirrored([source.bootstrap, source.bootstrap], target.bootstrap, once=True, topics=[topic])
    with pytest.raises(UsageError, match="regular expression"):
        mirrored(source.bootstrap, target.bootstrap, once=True, topics=["("])
    with pytest.raises(UnknownTopicOrPartition, match=f"'{topic}-no'"):
        mirrored(source.bootstrap, target.bootstrap, once=True, topics=[f"{topic}-no"])


def test_a_group_that_is_in_use(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    source, target = pair
    create(source.bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": topic, "log_level": 0})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        with pytest.raises(GroupIsHeld, match="members"):
            mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic], group=topic)
    finally:
        consumer.close()


def test_a_source_topic_that_was_made_again(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    """Its offsets begin anew, its commits went with it, and what the target has of the old one does not count."""
    source, target = pair
    create(source.bootstrap, topic)
    produce(source.bootstrap, topic, numbered(20))
    mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    ask(source.bootstrap, ApiKey.DELETE_TOPICS, 4, topic_names=[topic], timeout=5000)
    _eventually(lambda: create(source.bootstrap, topic))
    produce(source.bootstrap, topic, numbered(50, first=50))
    mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic])
    wanted = [b"%06d" % number for number in (*range(20), *range(50, 100))]
    assert values(everything(target.bootstrap, topic)[0]) == wanted


def test_marks_that_others_wrote_hide_nothing(pair: tuple[RunningBroker, RunningBroker], topic: str) -> None:
    """Whoever may write to the target can write the header of a copy: before the mirror, beside it, beyond its end."""
    source, target = pair
    create(source.bootstrap, topic)
    create(target.bootstrap, topic)
    produce(source.bootstrap, topic, numbered(10))
    whose = ask(source.bootstrap, ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False).cluster_id
    marker = Marker(Source(whose, topic, 0))
    notes: list[str] = []

    def forge(*offsets: int) -> None:
        produce(
            target.bootstrap, topic, [[Record(0, FIRST_MS, None, b"forged", (marker.header(one),))] for one in offsets]
        )

    def copied() -> list[bytes | None]:
        mirrored(source.bootstrap, target.bootstrap, once=True, topics=[topic], note=notes.append)
        return [one for one in values(everything(target.bootstrap, topic)[0]) if one != b"forged"]

    forge(4, 1_000)
    assert copied() == [b"%06d" % number for number in range(10)]
    assert any(f"copy of 4 of {marker.source}" in one for one in notes)
    produce(source.bootstrap, topic, numbered(10, first=10))
    forge(14, 10_000)  # behind what is committed
    for _ in range(2):
        assert copied() == [b"%06d" % number for number in range(20)]


# --- groups of the source ---


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    """A stock consumer that commits when it is told to."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def next_values(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + ENDS_WITHIN_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def set_group(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """What whoever is no member commits."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[At(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed_in(bootstrap: str, group: str, topic: str) -> int:
    """-1 for nothing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (one,) = consumer.committed([At(topic, 0)], timeout=10)
        return max(-1, int(one.offset))
    finally:
        consumer.close()


def place_of(bootstrap: str, topic: str, value: bytes) -> int:
    return next(row.offset for row in everything(bootstrap, topic)[0] if row.value == value)


def check_fenced(bootstrap: str, group: str, topic: str) -> None:
    """Of a group that lives nothing can be written."""

    async def write(side: ClusterEndpoint, _: ClusterEndpoint) -> None:
        with pytest.raises(NonEmptyGroup):
            await GroupOffsets(side).write(group, {TopicPartition(topic, 0): Commit(0)})

    with_sides(write, bootstrap)


def test_groups_go_on_in_the_target(
    pair: tuple[RunningBroker, RunningBroker], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exactly the next message, others' messages between; set back with the source; nobody who lives is moved."""
    source, target = pair
    monkeypatch.setattr(mirroring, "COMMIT_EVERY_S", 0.1)
    for one in pair:
        create(one.bootstrap, topic)
    produce(target.bootstrap, topic, [[Record(0, FIRST_MS, None, b"x" * 700)]])
    produce(source.bootstrap, topic, numbered(50))
    with member(source.bootstrap, topic, topic) as consumer:
        assert next_values(consumer, 20) == [b"%06d" % i for i in range(20)]
        consumer.commit(asynchronous=False)
        assert committed_in(source.bootstrap, topic, topic) > 0
        consumer.commit(offsets=[At(topic, 0, place_of(source.bootstrap, topic, b"000020"))], asynchronous=False)
    wanted: dict[str, Any] = {"topics": [topic], "groups": [f"{topic},nobody", "mirror-.*"]}
    words = flags(source.bootstrap, target.bootstrap, topic, "--once", "-o", "json")
    once = klog("mirror", *words, "--groups", f"{topic},nobody", "--groups", "mirror-.*")
    assert once.code == 0, once.stderr
    assert re.search(rf"'{topic}'.*\b1\b", once.stderr)
    assert "'nobody'" in once.stderr
    assert (once.rows[0]["messages"], once.rows[0]["groups"]) == (50, 1)
    shown = [(row.group, row.target_offset) for row in _offsets(source.bootstrap, target.bootstrap, **wanted)]
    assert shown == [(topic, place_of(target.bootstrap, topic, b"000020"))]
    produce(target.bootstrap, topic, [[Record(0, FIRST_MS, None, b"another's")]])
    produce(source.bootstrap, topic, numbered(10, first=50))
    said: list[str] = []

    def work() -> None:
        _eventually(lambda: place_of_is_there(b"000059"))
        with member(target.bootstrap, topic, topic) as consumer:
            assert next_values(consumer, 1) == [b"000020"]
            there = committed_in(target.bootstrap, topic, topic)
            set_group(source.bootstrap, topic, topic, place_of(source.bootstrap, topic, b"000050"))
            _eventually(lambda: is_said("live member"))
            check_fenced(target.bootstrap, topic, topic)
            assert committed_in(target.bootstrap, topic, topic) == there
        _eventually(lambda: stands_at(b"000050"))  # behind another's message
        set_group(source.bootstrap, topic, topic, place_of(source.bootstrap, topic, b"000007"))
        _eventually(lambda: stands_at(b"000007"))
        _eventually(lambda: is_said("was set back"))
        with member(target.bootstrap, topic, topic) as consumer:
            assert next_values(consumer, 2) == [b"000007", b"000008"]
            consumer.commit(asynchronous=False)
            gone_on = committed_in(target.bootstrap, topic, topic)
        # It has gone on in the target by itself: what has not moved in the source takes nothing back.
        set_group(source.bootstrap, "nobody", topic, place_of(source.bootstrap, topic, b"000001"))
        _eventually(lambda: stands_at(b"000001", "nobody"))
        assert committed_in(target.bootstrap, topic, topic) == gone_on

    def place_of_is_there(value: bytes) -> None:
        assert value in values(everything(target.bootstrap, topic)[0])

    def is_said(words: str) -> None:
        assert [one for one in said if words in one and topic in one], said

    def stands_at(value: bytes, group: str = topic) -> None:
        assert committed_in(target.bootstrap, group, topic) == place_of(target.bootstrap, topic, value), said

    async def in_a_thread(_: Mirror) -> None:
        await asyncio.to_thread(work)

    mirrored(source.bootstrap, target.bootstrap, in_a_thread, note=said.append, **wanted)
    assert sum("live member" in one for one in said) == 1, said


@pytest.mark.long("test_groups_go_on_in_the_target has one source")
def test_a_group_of_many_sources(pair: tuple[RunningBroker, RunningBroker], broker: RunningBroker, topic: str) -> None:
    """A partition has one offset for all of them: the earliest, so that nothing is passed over."""
    target = pair[1]
    sources = [pair[0].bootstrap, broker.bootstrap]
    for number, bootstrap in enumerate(sources):
        create(bootstrap, topic)
        produce(bootstrap, topic, numbered(20, first=100 * number))
    wanted: dict[str, Any] = {"topics": [topic], "groups": [topic], "once": True}
    for begin in ([b"000015", b"000105"], [b"000018", b"000119"], [b"000018", b"000100"]):
        for bootstrap, value in zip(sources, begin, strict=True):
            set_group(bootstrap, topic, topic, place_of(bootstrap, topic, value))
        rows = mirrored(sources, target.bootstrap, **wanted)
        assert [row.groups for row in rows] == [1, 1]
        places = [place_of(target.bootstrap, topic, value) for value in begin]
        assert committed_in(target.bootstrap, topic, topic) == min(places)


def test_the_files_of_the_era(pair: tuple[RunningBroker, RunningBroker], topic: str, tmp_path: Path) -> None:
    """consumer.properties with ZooKeeper's address, producer.properties, whitelist; at a rate."""
    source, target = pair
    create(source.bootstrap, topic, 1)
    produce(source.bootstrap, topic, numbered(40))
    from_file, into_file = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    from_file.write_text(f"zookeeper.connect={source.zookeeper}\ngroup.id={topic}\nauto.offset.reset=smallest\n")
    into_file.write_text(f"metadata.broker.list={target.bootstrap}\ncompression.codec=1\n")
    files = ["--consumer.config", from_file, "--producer.config", into_file]
    began = time.monotonic()
    ran = klog("mirror", *files, "--whitelist", topic, "--rate", "40/s", "--once", "-o", "json")
    assert ran.code == 0, ran
    assert [(row["topic"], row["messages"]) for row in ran.rows] == [(topic, 40)]
    assert time.monotonic() - began > 0.5, "at a rate"
    assert len(_offsets(source.bootstrap, target.bootstrap, topics=[topic], group=topic)) == 1
    assert codecs_in(target.bootstrap, topic) == {Codec.GZIP}
    produce(source.bootstrap, topic, numbered(40, first=40))
    more = ["--compression", "zstd", "-X", "linger.ms=5"]
    again = klog("mirror", *files, "--topic", topic, "--once", *more, "-o", "json")
    assert (again.code, again.rows[0]["messages"]) == (0, 40) and "linger.ms" in again.stderr
    assert codecs_in(target.bootstrap, topic) == {Codec.GZIP, Codec.ZSTD}
    wrong = klog("mirror", *files, "--topic", topic, "--once", "-X", "compression.type=rot13")
    assert wrong.code == 2 and "rot13" in wrong.stderr and "zstd" in wrong.stderr


def test_a_file_of_what_both_sides_have_in_common(
    pair: tuple[RunningBroker, RunningBroker], topic: str, tmp_path: Path
) -> None:
    """How to connect, the group and the codec; a cluster's own file goes before it, and its addresses are none."""
    source, target = pair
    create(source.bootstrap, topic, 1)
    produce(source.bootstrap, topic, numbered(40))
    common, into_file = tmp_path / "client.properties", tmp_path / "producer.properties"
    common.write_text(
        f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=PLAINTEXT\ngroup.id={topic}\ncompression.type=gzip\n"
    )
    into_file.write_text(f"metadata.broker.list={target.bootstrap}\ncompression.codec=zstd\n")
    wanted = ["--client-config", common, "--source", source.bootstrap, "--topic", topic, "--once", "-o", "json"]
    ran = klog("mirror", *wanted, "--target", target.bootstrap)
    assert (ran.code, ran.rows[0]["messages"]) == (0, 40) and str(common) in ran.stderr
    assert len(_offsets(source.bootstrap, target.bootstrap, topics=[topic], group=topic)) == 1
    assert codecs_in(target.bootstrap, topic) == {Codec.GZIP}
    produce(source.bootstrap, topic, numbered(40, first=40))
    again = klog("--client-config", common, "mirror", *wanted[2:], "--producer-config", into_file)
    assert (again.code, again.rows[0]["messages"]) == (0, 40), again
    assert codecs_in(target.bootstrap, topic) == {Codec.GZIP, Codec.ZSTD}
    common.write_text("security.protocol=SSL\n")
    secured = klog("mirror", *wanted, "--target", target.bootstrap)
    assert secured.code == 1 and secured.error["code"] == "CANNOT_CONNECT", "by TLS to brokers that have none"


def test_files_that_name_no_cluster(tmp_path: Path) -> None:
    empty = tmp_path / "empty.properties"
    empty.write_text("")
    assert klog("mirror", "--topic", "x", "--target", "h:1").code == 2
    assert klog("mirror", "--topic", "x", "--source", "h:1").code == 2
    assert klog("mirror", "--source", "h:1", "--target", "h:2").code == 2
    ran = klog("mirror", "--consumer-config", empty, "--target", "h:1", "--topic", "x", "-o", "jsonl")
    assert ran.code == 2 and str(empty) in ran.error["message"]
