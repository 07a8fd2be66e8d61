"""The registry of groups on a real ZooKeeper: slots, who holds a group, what is committed, who lives (rule G2)."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordination import committed, consumers, group_slots, group_states, paths, topic_deletion, topics
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import COORDINATOR, FREE, GroupState, MemberState
from klog.coordination.zookeeper import Create, SetData, ZooKeeper
from klog.errors import BadVersion, KlogError, NodeExists, UnknownTopicOrPartition, ZooKeeperError
from klog.names import TopicPartition

ONE, TWO = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
ODD_NAMES = ["a/b", "..", ".", "50% off", "with space", "züge", "\N{PILE OF POO}", "line\nbreak", "x" * 200]


def commit(zk: ZooKeeper, group: str, offsets: dict[TopicPartition, CommittedOffset], writer: OffsetWriter) -> None:
    operations = writer.operations(group, offsets)
    zk.multi(operations)
    writer.landed(group, operations)


# --- names ---


@given(st.text(min_size=1).filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)))
def test_a_name_comes_back_from_its_node(name: str) -> None:
    node = paths.group_node(name)
    assert paths.group_name(node) == name
    assert "/" not in node
    assert node not in (".", "..")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_zookeeper_takes_any_name(registry: ZooKeeper, name: str) -> None:
    group_states.write(registry, GroupState(name))
    commit(registry, name, {ONE: CommittedOffset(7)}, OffsetWriter(registry))
    assert group_states.names(registry) == [name]
    assert committed.groups(registry) == [name]
    assert committed.read(registry, name)[ONE].offset == 7


# --- slots ---


def test_slots_are_held_by_version(registry: ZooKeeper) -> None:
    first = group_slots.write_many(registry, [SlotHolder(slot, 1, 77, 1) for slot in range(group_slots.SLOTS)], [])
    assert group_slots.read_all(registry) == first
    taken = group_slots.write_many(registry, [SlotHolder(5, 2, 88, 2, first[5].version)], [first[4].fence])
    assert group_slots.read_all(registry)[5] == taken[5]
    with pytest.raises(BadVersion):
        registry.multi([first[5].fence])
    with pytest.raises(BadVersion):
        group_slots.write_many(registry, [SlotHolder(5, 3, 99, 2, first[5].version)], [])
    with pytest.raises(NodeExists):
        group_slots.write_many(registry, [SlotHolder(5, 3, 99, 2)], [])


def test_groups_spread_over_the_slots() -> None:
    assert len({group_slots.slot_of(f"group-{number}") for number in range(1000)}) == group_slots.SLOTS


# --- who holds a group ---


def member(number: int, blob: bytes = b"\x00\xff") -> MemberState:
    return MemberState(
        f"m-{number}", None if number % 2 else f"i-{number}", "client", "/host", 10_000, 60_000, blob, blob
    )


@pytest.mark.parametrize("members", [0, 3, 2000])
def test_a_group_comes_back_as_it_was(registry: ZooKeeper, members: int) -> None:
    state = GroupState(
        "g", COORDINATOR, 7, "consumer", "range", "m-1", tuple(member(number) for number in range(members)), True
    )
    written = group_states.write(registry, state)
    found = group_states.read(registry, "g")
    assert found.modified_ms > 0
    assert (found.version, found.members, found.generation) == (written.version, state.members, 7)
    assert (found.group_protocol, found.protocol_type, found.protocol, found.leader) == (
        COORDINATOR,
        "consumer",
        "range",
        "m-1",
    )
    assert found.is_assigned


def test_a_state_that_unpacks_to_too_much_is_refused(registry: ZooKeeper) -> None:
    group_states.write(registry, GroupState("g"))
    for zeros, words in ((group_states.UNPACKED_BYTES_MAX + 1, "more than 67108864 bytes"), (100_000, "a part of")):
        registry.set(paths.group("g"), b"z" + zlib.compress(bytes(zeros))[: -5 if zeros == 100_000 else None])
        with pytest.raises(ZooKeeperError, match=words):
            group_states.read(registry, "g")


def test_of_two_that_write_a_group_one_fails(registry: ZooKeeper) -> None:
    seen = group_states.read(registry, "g")
    assert (seen.group_protocol, seen.version) == (FREE, -1)
    group_states.write(registry, seen)
    with pytest.raises(NodeExists):
        group_states.write(registry, seen)
    now = group_states.read(registry, "g")
    group_states.write(registry, now)
    with pytest.raises(BadVersion):
        group_states.write(registry, now)
    with pytest.raises(BadVersion):
        registry.multi([now.fence])


def test_a_group_that_no_node_can_hold(registry: ZooKeeper) -> None:
    import random

    blob = random.Random(1).randbytes(500 * 1024)
    with pytest.raises(ZooKeeperError, match="'g'"):
        group_states.write(registry, GroupState("g", members=(member(1, blob),)))


@pytest.mark.parametrize("data", [b"", b"7", b"{}", b"zzz", b'{"way":"both","members":[]}', b'{"members":[{}]}'])
def test_what_is_no_group_is_an_error_that_names_the_node(registry: ZooKeeper, data: bytes) -> None:
    registry.create(paths.group("g"), data)
    with pytest.raises(KlogError, match="/klog/groups/g"):
        group_states.read(registry, "g")


# --- what is committed ---


def test_a_commit_has_its_number_where_an_old_tool_looks(registry: ZooKeeper) -> None:
    writer = OffsetWriter(registry)
    for offset in (5, 6):
        commit(registry, "g", {ONE: CommittedOffset(offset, 3, "hällo"), TWO: CommittedOffset(9)}, writer)
    assert registry.get("/consumers/g/offsets/clicks/0").data == b"6"
    found = committed.read(registry, "g")
    assert list(found) == [ONE, TWO]
    assert (found[ONE].offset, found[ONE].leader_epoch, found[ONE].metadata) == (6, 3, "hällo")
    assert found[ONE].commit_ms > 0
    assert committed.read_many(registry, {"g": [TWO], "nobody": None}) == {"g": {TWO: found[TWO]}, "nobody": {}}


def test_a_number_written_by_another_tool_has_no_note(registry: ZooKeeper) -> None:
    writer = OffsetWriter(registry)
    commit(registry, "g", {ONE: CommittedOffset(5, 3, "note")}, writer)
    registry.set(paths.consumer_offset("g", *ONE), b"2")
    found = committed.read(registry, "g")[ONE]
    assert (found.offset, found.leader_epoch, found.metadata) == (2, -1, "")
    for nothing in (b"no number", b"", b"--5", b"9223372036854775808", b"1" * 5000, "٣".encode()):
        registry.set(paths.consumer_offset("g", *ONE), nothing)
        assert committed.read(registry, "g") == {}
    registry.create(f"/consumers/g/offsets/{ONE.topic}/{2**31}", b"5")
    assert committed.names(registry, ["g"]) == {"g": [ONE]}


def test_a_writer_learns_of_what_was_deleted(registry: ZooKeeper) -> None:
    writer = OffsetWriter(registry)
    commit(registry, "g", {ONE: CommittedOffset(5)}, writer)
    registry.commit(committed.ends(registry, "g", [ONE, TWO]))
    assert committed.read(registry, "g") == {}
    with pytest.raises(KlogError):
        commit(registry, "g", {ONE: CommittedOffset(6)}, writer)
    writer.forget("g")
    commit(registry, "g", {ONE: CommittedOffset(6)}, writer)
    assert committed.read(registry, "g")[ONE].offset == 6


def test_a_deleted_topic_is_forgotten_by_all_groups(registry: ZooKeeper) -> None:
    other = TopicPartition("views", 0)
    for group in ("g", "a/b"):
        commit(registry, group, {ONE: CommittedOffset(5), other: CommittedOffset(1)}, OffsetWriter(registry))
        registry.create(paths.consumer_owner(group, *ONE), b"me-0", parents=True)
        registry.create(paths.ownership_fence(group, *ONE), b"me-0", parents=True)
    committed.forget_topic(registry, "clicks")
    for group in ("g", "a/b"):
        assert list(committed.read(registry, group)) == [other]
        for path in (
            paths.consumer_owner(group, *ONE),
            paths.ownership_fence(group, *ONE),
            paths.commit_note(group, *ONE),
        ):
            assert registry.exists(path) is None


def test_no_commit_lands_in_a_topic_whose_offsets_are_forgotten(registry: ZooKeeper) -> None:
    """Rule L10: one that was made ready before the deletion fails, and after it none is made ready."""
    topics.create(registry, "clicks", {0: [1]}, {}, [])
    writer = OffsetWriter(registry)
    ready = [*writer.topic_fences(["clicks"]), *writer.operations("g", {ONE: CommittedOffset(5)})]
    assert len(ready) == 3
    topic_deletion.mark_for_deletion(registry, "clicks")
    with pytest.raises(UnknownTopicOrPartition, match="deleted"):
        OffsetWriter(registry).topic_fences(["clicks"])
    topic_deletion.finish_deletion(registry, "clicks", [])
    with pytest.raises(BadVersion):
        registry.multi(ready)
    writer.forget("g")
    topics.create(registry, "clicks", {0: [1]}, {}, [])
    again = [*writer.topic_fences(["clicks"]), *writer.operations("g", {ONE: CommittedOffset(7)})]
    registry.multi(again)
    assert committed.read(registry, "g")[ONE].offset == 7


# --- who lives ---


def test_consumers_and_owners_as_0_8_has_them(registry: ZooKeeper) -> None:
    entry = ConsumerEntry("g_host-1437459282749-abcd", {"clicks": 2}, consumers.WHITE_LIST, 1437459282749)
    registry.create(paths.consumer_id("g", entry.consumer_id), consumers.encode(entry, 1), ephemeral=True, parents=True)
    assert registry.get(paths.consumer_id("g", entry.consumer_id)).data == (
        b'{"version":1,"subscription":{"clicks":2},"pattern":"white_list","timestamp":"1437459282749"}'
    )
    registry.create(paths.consumer_owner("g", *TWO), b"me-0", parents=True)
    (found,) = consumers.live(registry, ["g", "nobody"])["g"]
    assert (found.subscription, found.pattern, found.session) == ({"clicks": 2}, "white_list", registry.session_id)
    assert consumers.owners(registry, ["g", "nobody"]) == {"g": {TWO: "me-0"}, "nobody": {}}


def test_folders_are_made_with_those_above_them_whoever_makes_them_too(registry: ZooKeeper) -> None:
    registry.create("/there/a", parents=True)
    registry.ensure_paths(["/there/a/b", "/new/c/d", "/new/c/e", "/new"])
    registry.ensure_paths(["/new/c/d"])
    found = registry.children_many(["/there/a", "/new/c"])
    assert found == [["b"], ["d", "e"]]


def test_an_offset_writer_looks_for_many_groups_at_once_and_knows_what_it_has_made(registry: ZooKeeper) -> None:
    writer = OffsetWriter(registry)
    writer.prepare([("g", [ONE, TWO]), ("h", [ONE])])
    made = writer.operations("g", {ONE: CommittedOffset(1)})
    assert [type(one) for one in made] == [Create, Create]
    registry.multi(made)
    assert [type(one) for one in writer.operations("g", {ONE: CommittedOffset(2)})] == [Create, Create]
    writer.landed("g", made)
    assert [type(one) for one in writer.operations("g", {ONE: CommittedOffset(2)})] == [SetData, SetData]
    registry.commit(committed.ends(registry, "g", [ONE]))
    writer.forget("g")
    assert [type(one) for one in writer.operations("g", {ONE: CommittedOffset(2)})] == [Create, Create]


def test_an_offset_writer_remembers_the_groups_that_were_written_last(
    registry: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "NODES_MAX", 30)
    writer = OffsetWriter(registry)
    for number in range(20):
        commit(registry, f"g{number}", {ONE: CommittedOffset(1), TWO: CommittedOffset(1)}, writer)
        assert [type(one) for one in writer.operations(f"g{number}", {ONE: CommittedOffset(2)})] == [SetData, SetData]
        assert writer._count == sum(map(len, writer._nodes.values())) <= 30
    for number in (0, 19):
        commit(registry, f"g{number}", {ONE: CommittedOffset(3)}, writer)
        assert committed.read(registry, f"g{number}")[ONE].offset == 3
    for number in range(20):
        writer.forget(f"g{number}")
    assert writer._count == 0


def test_members_of_the_brokers_protocol_are_told_from_consumers(registry: ZooKeeper) -> None:
    for name, is_member in (("member", True), ("consumer", False)):
        entry = ConsumerEntry(name, {"t": 1}, is_member=is_member)
        registry.create(paths.consumer_id("g", name), consumers.encode(entry, 1), ephemeral=True, parents=True)
    assert [one.consumer_id for one in consumers.live(registry, ["g"])["g"]] == ["consumer"]
    everybody = consumers.live(registry, ["g"], of_members=True)["g"]
    assert [(one.consumer_id, one.is_member) for one in everybody] == [("consumer", False), ("member", True)]
