"""Committed offsets changed by hand on a real ZooKeeper, against members that live, come and sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from klog.coordination import committed, consumers, group_states, groups, offset_changes, ownership_fence, paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.group_states import COORDINATOR, FREE
from klog.coordination.zookeeper import MULTI_BYTES_MAX, ZooKeeper, size_bytes
from klog.errors import BadVersion, NonEmptyGroup, Refused
from klog.names import TopicPartition
from tests.admin.group_registry import commit, enter, join, member
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def zk(connect: Callable[..., ZooKeeper]) -> Iterator[ZooKeeper]:
    session = connect()
    for folder in paths.PERSISTENT:
        session.ensure_path(folder)
    yield session


def offsets(zk: ZooKeeper, group: str = "g") -> dict[TopicPartition, int]:
    return {name: one.offset for name, one in committed.read(zk, group).items()}


def at_each_look(monkeypatch: pytest.MonkeyPatch, then: Callable[[ZooKeeper, int], object]) -> list[int]:
    """Have something happen right behind each look at a group; it gets the number of the look. How many members each
    look has found."""
    found: list[int] = []
    really = groups.read

    def look(zookeeper: ZooKeeper, group: str) -> groups.Group:
        one = really(zookeeper, group)
        then(zookeeper, len(found))
        found.append(len(one.members))
        return one

    monkeypatch.setattr(groups, "read", look)
    return found


def test_a_group_without_members_and_one_that_is_new(zk: ZooKeeper) -> None:
    commit(zk, "g", {ONE: CommittedOffset(5, 2, "note"), TWO: 6})
    assert offset_changes.write(zk, "g", {ONE: CommittedOffset(1), TWO: None}) == []
    assert committed.read(zk, "g")[ONE].metadata == ""
    assert offsets(zk) == {ONE: 1}
    offset_changes.write(zk, "new", {TWO: CommittedOffset(9, 4, "kept")})
    found = committed.read(zk, "new")[TWO]
    assert (found.offset, found.leader_epoch, found.metadata) == (9, 4, "kept")
    offset_changes.write(zk, "g", {})


def test_members_of_the_protocol_are_in_the_way_and_may_be_fenced(zk: ZooKeeper) -> None:
    commit(zk, "g", {ONE: 5})
    state = join(zk, "g", member("m-1", ONE), member("m-2", TWO))
    with pytest.raises(NonEmptyGroup, match=r"'g'.*\b2\b.*m-1 \(client the-client, host 10.0.0.7\), m-2"):
        offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
    assert offsets(zk) == {ONE: 5}
    fenced = offset_changes.write(zk, "g", {ONE: CommittedOffset(1)}, force=True)
    assert [one.member_id for one in fenced] == ["m-1", "m-2"]
    assert offsets(zk) == {ONE: 1}
    now = group_states.read(zk, "g")
    assert (now.group_protocol, now.members, now.is_assigned, now.leader) == (COORDINATOR, (), False, "")
    assert now.generation == state.generation + 1
    with pytest.raises(BadVersion):  # what the coordinator does next
        zk.multi([state.fence, *OffsetWriter(zk).operations("g", {ONE: CommittedOffset(7)})])
    assert offsets(zk) == {ONE: 1}


def test_consumers_by_zookeeper_are_in_the_way_and_may_be_fenced(zk: ZooKeeper) -> None:
    commit(zk, "g", {ONE: 5})
    consumer_id = enter(zk, "g", "t", ONE, TWO)
    with pytest.raises(NonEmptyGroup, match="host-of-it"):
        offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
    before = [zk.get(paths.ownership_fence("g", *name)).stat.version for name in (ONE, TWO)]
    fenced = offset_changes.write(zk, "g", {ONE: CommittedOffset(1)}, force=True)
    assert [one.member_id for one in fenced] == [consumer_id]
    assert consumers.live(zk, ["g"]) == {"g": []}
    assert consumers.owners(zk, ["g"]) == {"g": {}}
    after = [zk.get(paths.ownership_fence("g", *name)).stat.version for name in (ONE, TWO)]
    assert all(new > old for old, new in zip(before, after, strict=True))
    assert offsets(zk) == {ONE: 1}


def test_a_consumer_of_0_8_that_knows_no_other_node_is_seen_too(zk: ZooKeeper) -> None:
    zk.create(
        "/consumers/g/ids/g_old-1-00000000", b'{"version":1,"subscription":{"t":1}}', ephemeral=True, parents=True
    )
    with pytest.raises(NonEmptyGroup, match="g_old"):
        offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
    offset_changes.write(zk, "g", {ONE: CommittedOffset(1)}, force=True)
    assert offsets(zk) == {ONE: 1}


def test_who_slept_through_it_commits_no_more(zk: ZooKeeper, connect: Callable[..., ZooKeeper]) -> None:
    """A consumer whose session is over, and which does not know it yet, has a claim that nobody has taken since."""
    for folder in ("/brokers/topics/t",):
        zk.ensure_path(folder)
    theirs = connect()
    entry = consumers.ConsumerEntry("g_host-1-00000001", {"t": 1})
    consumers.register(theirs, "g", entry)
    held = ownership_fence.claim(theirs, "g", entry.consumer_id, {ONE: f"{entry.consumer_id}-0"}, {"t": []})
    theirs.stop()
    offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
    assert ownership_fence.commit(zk, "g", OffsetWriter(zk), held, {ONE: 99}) == {ONE}
    assert offsets(zk) == {ONE: 1}


@pytest.mark.parametrize("force", [False, True])
def test_a_member_that_comes_between_the_look_and_the_write(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """The check is part of the write: it fails, and the group is looked at again."""
    commit(zk, "g", {ONE: 5})
    looked = at_each_look(monkeypatch, lambda session, number: number or join(session, "g", member("late", ONE)))
    if force:
        (fenced,) = offset_changes.write(zk, "g", {ONE: CommittedOffset(1)}, force=True)
        assert fenced.member_id == "late"
        assert offsets(zk) == {ONE: 1}
    else:
        with pytest.raises(NonEmptyGroup, match="late"):
            offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
        assert offsets(zk) == {ONE: 5}
    assert looked == [0, 1]


def test_a_group_that_changes_all_the_time_is_given_up(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    at_each_look(monkeypatch, lambda session, _: join(session, "g", member("late")))
    with pytest.raises(Refused, match="'g'"):
        offset_changes.write(zk, "g", {ONE: CommittedOffset(1)}, force=True)
    assert offsets(zk) == {}


def test_more_than_a_multi_holds(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the several multis is fenced: what is not written when a member comes stays as it was."""
    topic = "t" * 249
    names = [TopicPartition(topic, number) for number in range(900)]
    sizes: list[int] = []
    really = zk.multi

    def multi(operations: object) -> object:
        sizes.append(sum(size_bytes(one, zk.address.chroot) for one in operations))  # type: ignore[attr-defined]
        return really(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(zk, "multi", multi)
    offset_changes.write(zk, "g", dict.fromkeys(names, CommittedOffset(1)))
    assert len(offsets(zk)) == 900
    assert len(sizes) > 1
    assert max(sizes) <= MULTI_BYTES_MAX
    at_each_look(monkeypatch, lambda session, number: number == 1 and join(session, "g", member("late")))
    with pytest.raises(NonEmptyGroup, match=r"late.*of 900\b"):
        offset_changes.write(zk, "g", dict.fromkeys(names, CommittedOffset(2)))
    assert set(offsets(zk).values()) == {1, 2}


def test_nodes_that_another_makes_and_removes_meanwhile(zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    really = zk.multi
    first = iter([True])

    def multi(operations: object) -> object:
        if next(first, False):
            commit(zk, "g", {ONE: 77})
        return really(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(zk, "multi", multi)
    offset_changes.write(zk, "g", {ONE: CommittedOffset(1)})
    assert offsets(zk) == {ONE: 1}


def test_a_deleted_group_is_listed_nowhere_and_keeps_its_version(zk: ZooKeeper) -> None:
    commit(zk, "g", {ONE: 5})
    state = join(zk, "g", member("m-1"))
    with pytest.raises(NonEmptyGroup):
        offset_changes.delete(zk, "g")
    empty = join(zk, "g")
    assert empty.version == state.version + 1
    zk.ensure_path("/consumers/g/owners/t")
    offset_changes.delete(zk, "g")
    assert groups.names(zk) == []
    assert zk.exists("/consumers/g") is None
    assert zk.exists("/klog/commits/g") is None
    left = group_states.read(zk, "g")
    assert (left.group_protocol, left.members) == (FREE, ())
    assert left.version > empty.version, "a coordinator that remembers the group must see that it has changed"
    offset_changes.delete(zk, "g")
    commit(zk, "g", {ONE: 6})
    assert groups.names(zk) == ["g"]


# --- Answers that are lost --------------------------------------------------------------------------------------------

MANY = {TopicPartition(f"topic-{number % 7}", number): 5 for number in range(4000)}
"""Three multis, so that a change of all of them has a middle."""


@pytest.fixture
def lossy(zk: ZooKeeper, through: Callable[..., ZooKeeper]) -> ZooKeeper:
    """A session through the proxy."""
    return through()


def rewound(zookeeper: ZooKeeper, wanted: dict[TopicPartition, int], **options: bool) -> list[groups.Member]:
    return offset_changes.write(
        zookeeper, "g", {name: CommittedOffset(offset) for name, offset in wanted.items()}, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 2])
def test_a_rewind_goes_on_behind_an_answer_that_is_lost(
    zk: ZooKeeper, lossy: ZooKeeper, proxy: ZooKeeperProxy, after: int
) -> None:
    """Of its first multi, of its last: nothing is left out, and nobody is fenced twice."""
    state = join(zk, "g", member("m-1", *MANY))
    proxy.lose_answer_of(frozenset({MULTI}), after=after)
    fenced = rewound(lossy, MANY, force=True)
    assert proxy.lost == 1
    assert [one.member_id for one in fenced] == ["m-1"]
    assert offsets(zk) == MANY
    now = group_states.read(zk, "g")
    assert (now.members, now.generation) == ((), state.generation + 1)


@pytest.mark.slow
def test_who_joins_while_the_answer_is_lost_ends_the_rewind(
    zk: ZooKeeper, lossy: ZooKeeper, proxy: ZooKeeperProxy
) -> None:
    """What was written stands, is told, and is not written again; the rest is as it was."""
    for part in (dict(list(MANY.items())[at : at + 500]) for at in range(0, len(MANY), 500)):
        commit(zk, "g", part)
    wanted = dict.fromkeys(MANY, 1)
    written: list[int] = []

    def one_comes() -> None:
        join(zk, "g", member("m-1", *MANY))
        written.append(sum(offset == 1 for offset in offsets(zk).values()))

    proxy.lose_answer_of(frozenset({MULTI}), then=one_comes, after=1)
    with pytest.raises(NonEmptyGroup, match=r"\b1\b.*m-1") as refused:
        rewound(lossy, wanted)
    assert proxy.lost == 1
    (done,) = written
    assert 0 < done < len(MANY)
    assert f"{done} of {len(MANY)}" in refused.value.message
    assert sorted(offsets(zk).values()) == [1] * done + [5] * (len(MANY) - done)
    # Stopped and begun again, it ends where it was to.
    rewound(lossy, wanted, force=True)
    assert offsets(zk) == wanted
