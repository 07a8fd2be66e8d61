"""The group protocol on the wire, in every version, against one broker and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from klog.coordination import committed, consumers, group_states, offset_changes, paths
from klog.coordination.committed import CommittedOffset
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.group_writer import TOGETHER_BYTES_MAX
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import GroupIsHeld
from klog.groups import bounds
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.groups import commits
from tests.broker_fixture import RunningBroker
from tests.server.asking import borders, comes_to, create, told_of, with_channel
from tests.server.group_speaker import SESSION_MS, Speaker, assignment, code, speakers, subscription
from tests.until import until
from tests.zookeeper_fixture import session_of

UNKNOWN_SERVER_ERROR = -1
INVALID_REQUEST = 42
INVALID_COMMIT_OFFSET_SIZE = 28
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
JOINS = 50
STEP_PARTITIONS = 1000
"""docs/guarantees.md: a commit of so many partitions is one step, where names have some thirty characters."""


@pytest.fixture
def group() -> str:
    """A name that no other test has, of the sort that a path could not hold."""
    return f"g/{secrets.token_hex(4)} ü"


@pytest.fixture
def topic(broker: RunningBroker, topic: str) -> str:
    create(broker.bootstrap, topic, 3)
    return topic


# --- Every version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", borders(ApiKey.JOIN_GROUP, range(9)))
async def test_a_life_of_a_member_in_every_version(broker: RunningBroker, group: str, topic: str, version: int) -> None:
    """All requests in this version, or the highest or lowest there is."""
    one = TopicPartition(topic, 1)
    served = {
        ApiKey.JOIN_GROUP: version,
        ApiKey.SYNC_GROUP: version,
        ApiKey.HEARTBEAT: version,
        ApiKey.LEAVE_GROUP: version,
        ApiKey.OFFSET_COMMIT: max(version, 2),
        ApiKey.OFFSET_FETCH: max(version, 1),
    }
    async with speakers(broker.bootstrap, group, 1, served) as (member,):
        joined = await member.join(subscription(topic))
        assert (code(joined), joined.leader, joined.protocol_name) == (0, member.member_id, "range")
        assert [(each.member_id, each.metadata) for each in joined.members] == [(member.member_id, subscription(topic))]
        assert (await member.sync({member.member_id: assignment(topic, 1)})).assignment == assignment(topic, 1)
        assert await member.heartbeat() == 0
        assert await member.commit({one: 7}, "noted") == [0]
        assert await member.committed(one, TopicPartition(topic, 0)) == [(7, "noted"), (-1, "")]
        if version >= 2:
            assert await member.committed() == [(7, "noted")]
        left = await member.leave()
        assert code(left) == 0
        assert await member.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", borders(ApiKey.DESCRIBE_GROUPS, range(6)))
async def test_what_operators_ask_in_every_version(broker: RunningBroker, group: str, topic: str, version: int) -> None:
    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(topic, 0, 2)
        fields = {"groups": [group, "there is none"], "include_authorized_operations": True}
        described = (await member.ask(ApiKey.DESCRIBE_GROUPS, version, **fields)).groups
        assert [(code(one), one.group_state, one.protocol_data) for one in described] == [
            (0, "Stable", "range"),
            (0, "Dead", ""),
        ]
        if version >= 3:
            assert [one.authorized_operations for one in described] == [1 << 3 | 1 << 6 | 1 << 8] * 2
            unasked = {**fields, "include_authorized_operations": False}
            unasked = (await member.ask(ApiKey.DESCRIBE_GROUPS, version, **unasked)).groups
            assert [one.authorized_operations for one in unasked] == [-(2**31)] * 2
        (found,) = described[0].members
        assert (found.member_id, found.client_id, found.client_host) == (member.member_id, "klog", "/127.0.0.1")
        assert found.member_assignment == assignment(topic, 0, 2)
        listing = min(version, 4)
        listed = await member.ask(ApiKey.LIST_GROUPS, listing, states_filter=["stable"])
        assert (group, "consumer") in {(one.group_id, one.protocol_type) for one in listed.groups}
        if listing >= 4:
            assert {one.group_state for one in listed.groups} == {"Stable"}
        deleting = min(version, 2)
        names = [group, "there is none"]
        gone = (await member.ask(ApiKey.DELETE_GROUPS, deleting, groups_names=names)).results
        assert [code(one) for one in gone] == [NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND]
        assert await member.commit({TopicPartition(topic, 0): 5}) == [0]
        await member.leave()
        gone = (await member.ask(ApiKey.DELETE_GROUPS, deleting, groups_names=[group])).results
        assert [code(one) for one in gone] == [0]
        assert await member.committed(TopicPartition(topic, 0)) == [(-1, "")]
        (described,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, version, **{**fields, "groups": [group]})).groups
        assert described.group_state == "Dead"


# --- Members ----------------------------------------------------------------------------------------------------------


def test_two_members_share_and_the_second_hears_what_the_first_has_said(
    broker: RunningBroker, group: str, topic: str
) -> None:
    async def share() -> None:
        async with speakers(broker.bootstrap, group, 2) as (first, second):
            await first.live_alone(topic, 0, 1, 2)
            coming = asyncio.create_task(second.join(subscription(topic)))
            while await first.heartbeat() != REBALANCE_IN_PROGRESS:
                pass
            assert await first.commit({TopicPartition(topic, 2): 9}) == [0]
            joined = await first.join(subscription(topic))
            assert code(await coming) == 0
            assert {one.member_id for one in joined.members} == {first.member_id, second.member_id}
            assert await first.commit({TopicPartition(topic, 2): 9}) == [REBALANCE_IN_PROGRESS]
            waiting = asyncio.create_task(second.sync())
            shares = {first.member_id: assignment(topic, 0), second.member_id: assignment(topic, 1, 2)}
            assert (await first.sync(shares)).assignment == assignment(topic, 0)
            assert (await waiting).assignment == assignment(topic, 1, 2)
            assert await second.commit({TopicPartition(topic, 2): 10}, generation=1) == [ILLEGAL_GENERATION]
            assert await second.commit({TopicPartition(topic, 2): 10}, member_id="x") == [UNKNOWN_MEMBER_ID]
            assert await second.commit({TopicPartition(topic, 2): 10}) == [0]

    asyncio.run(share())
    told_of(broker.bootstrap, "rebalance", lambda event: event["group"] == group and event["generation"] == 2)
    rebalances = told_of(broker.bootstrap, "rebalance", lambda event: event["group"] == group)
    assert [(one["generation"], len(one["members"])) for one in rebalances] == [(1, 1), (2, 2)]


async def test_a_static_member_comes_back_to_what_it_had(broker: RunningBroker, group: str, topic: str) -> None:
    async with speakers(broker.bootstrap, group, 2) as (old, new):
        old.instance = new.instance = "one"
        await old.live_alone(topic, 0)
        joined = await new.join(subscription(topic))
        assert (code(joined), joined.generation_id) == (0, old.generation)
        assert new.member_id != old.member_id
        assert (await new.sync()).assignment == assignment(topic, 0)
        assert await old.heartbeat() == FENCED_INSTANCE_ID
        assert await old.commit({TopicPartition(topic, 0): 1}) == [FENCED_INSTANCE_ID]
        assert await new.commit({TopicPartition(topic, 0): 1}) == [0]
        left = await old.leave()
        assert [code(one) for one in left.members] == [FENCED_INSTANCE_ID]


LONG = "n" * (bounds.NAME_BYTES_MAX + 1)


async def test_who_says_too_much_is_refused(broker: RunningBroker, group: str) -> None:
    async with speakers(broker.bootstrap, group, 2) as (member, nobody):
        nobody.group = LONG
        assert code(await nobody.join()) == INVALID_GROUP_ID
        nobody.group = group
        nobody.member_id = LONG * 2
        for asked in (nobody.join(), nobody.sync(), nobody.leave()):
            answer = await asked
            assert code(answer) == UNKNOWN_MEMBER_ID
        assert await nobody.heartbeat() == UNKNOWN_MEMBER_ID
        assert await nobody.commit({TopicPartition("unknown", 0): 1}) == [UNKNOWN_TOPIC_OR_PARTITION]
        nobody.member_id, nobody.instance = "", LONG
        assert code(await nobody.join()) == INVALID_REQUEST
        nobody.instance = None
        many = [f"protocol-{number}" for number in range(bounds.PROTOCOLS_MAX + 1)]
        assert code(await nobody.join(protocols=many)) == INVALID_REQUEST
        assert code(await nobody.join(protocols=[LONG])) == INVALID_REQUEST
        assert code(await nobody.join(type=LONG)) == INVALID_REQUEST
        assert code(await nobody.join(metadata=bytes(bounds.MEMBER_BYTES_MAX + 1))) == INVALID_REQUEST
        assert code(await member.join(metadata=bytes(bounds.MEMBER_BYTES_MAX))) == 0, "so much is taken"
        shares = {member.member_id: bytes(bounds.GROUP_BYTES_MAX + 1)}
        assert code(await member.sync(shares)) == INVALID_REQUEST
        assert code(await member.sync({member.member_id: b"all"})) == 0
        assert code(await member.leave()) == 0


def test_of_what_a_client_calls_itself_a_part_is_kept(broker: RunningBroker, group: str) -> None:
    async def join(channel: Channel) -> None:
        member = Speaker(channel, group, {})
        channel._client_id = "c" * 20_000
        assert code(await member.join()) == 0
        assert len(member.member_id) < 300
        asked = codec.request(ApiKey.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False)
        (shown,) = (await channel.request(asked)).groups[0].members
        assert shown.client_id == "c" * bounds.CLIENT_ID_CHARS_MAX

    with_channel(broker.bootstrap, join)


async def test_a_held_heartbeat_is_answered_when_the_group_changes_or_something_else_is_asked(
    broker: RunningBroker, group: str, topic: str
) -> None:
    async with speakers(broker.bootstrap, group, 2) as (first, second):
        named = codec.request(ApiKey.API_VERSIONS, 3, client_software_name="librdkafka", client_software_version="2.0")
        await first.channel.request(named)
        await first.live_alone(topic, 0)
        held = asyncio.create_task(first.heartbeat())
        assert not (await asyncio.wait([held], timeout=0.2))[0]
        assert await first.commit({TopicPartition(topic, 0): 1}) == [0]
        assert held.done(), "answers go out in the order of the requests"
        assert await held == 0
        held = asyncio.create_task(first.heartbeat())
        assert not (await asyncio.wait([held], timeout=0.2))[0]
        coming = asyncio.create_task(second.join())
        assert await held == REBALANCE_IN_PROGRESS
        await first.leave()
        assert code(await coming) == 0
        assert await second.heartbeat() == 0, "of a client that is not known to wait it is not held back"


async def test_of_a_connection_two_joins_wait(broker: RunningBroker, group: str) -> None:
    """Each could make a member: one connection made a thousand of them, and others waited for seconds."""
    async with speakers(broker.bootstrap, group, 2) as (first, crowd):
        first.versions = crowd.versions = {ApiKey.JOIN_GROUP: 3}
        await first.join()
        joins = [asyncio.create_task(crowd.join(rebalance_ms=SESSION_MS)) for _ in range(JOINS)]
        asked = codec.request(ApiKey.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False)
        await asyncio.wait(joins, timeout=0.5)
        assert len((await first.channel.request(asked)).groups[0].members) == 3
        for one in joins:
            one.cancel()


# --- Offsets ----------------------------------------------------------------------------------------------------------


async def test_offsets_of_a_group_without_members(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    one = TopicPartition(topic, 0)
    async with speakers(broker.bootstrap, group, 2) as (member, simple):
        wanted = {one: 3, TopicPartition(topic, 9): 1, TopicPartition("no-such-topic", 0): 1}
        assert await simple.commit(wanted, "m", epoch=4) == [0, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION]
        assert await simple.commit({one: 4}, "m" * 4097) == [OFFSET_METADATA_TOO_LARGE]
        assert await simple.commit({one: 4}, generation=5, member_id="x") == [UNKNOWN_MEMBER_ID]
        assert await simple.committed(one, TopicPartition("../x", 0)) == [(3, "m"), (-1, "")]
        await member.live_alone(topic, 0)
        assert await simple.commit({one: 5}) == [UNKNOWN_MEMBER_ID], "only members commit where there are any"
        assert await member.commit({one: 6}, "by a member") == [0]
        await member.leave()
        assert await simple.commit({one: 7}) == [0]
    found = committed.read(registry, group)[one]
    assert (found.offset, found.leader_epoch, found.metadata) == (7, -1, "")
    assert registry.get(paths.consumer_offset(group, *one)).data == b"7"


async def test_many_commits_at_once_are_all_written(broker: RunningBroker, group: str, topic: str) -> None:
    async with speakers(broker.bootstrap, group, 24) as members:
        for number, member in enumerate(members):
            member.group = f"{group}-{number % 4}"
        outcomes = await asyncio.gather(
            *(member.commit({TopicPartition(topic, number % 3): number}) for number, member in enumerate(members))
        )
        assert outcomes == [[0]] * len(members)
        for number, member in enumerate(members):
            ((offset, _),) = await member.committed(TopicPartition(topic, number % 3))
            assert offset % 12 == number % 12, "the last of those that committed in this partition"


async def test_commits_of_many_partitions_and_of_much_beside_the_offsets(
    make_broker: Callable[..., RunningBroker], group: str
) -> None:
    """On a broker of its own, since the logs of so many partitions stay. As many as are promised are one step:
    ZooKeeper has changed all of them at once. Metadata are bounded: of one offset, of all of a commit, and of what is
    written at once."""
    broker = make_broker().start()
    name = f"a-topic-of-thirty-characters-{secrets.token_hex(4)}"[:30]
    await asyncio.to_thread(create, broker.bootstrap, name, STEP_PARTITIONS)
    partitions = [TopicPartition(name, number) for number in range(STEP_PARTITIONS)]
    offsets = {one: 10**12 + one.partition for one in partitions}
    escaped = {one: one.partition for one in partitions[:150]}
    each = 4000
    wide = partitions[: commits.METADATA_BYTES_MAX // each + 1]
    async with speakers(broker.bootstrap, group, 3) as (one_step, larger, bounded):
        assert set(await one_step.commit(offsets)) == {0}
        larger.group, bounded.group = f"{group}-larger", f"{group}-bounded"
        assert await larger.commit(escaped, "\0" * each) == [0] * 150  # six bytes each in JSON: more than a multi
        assert await larger.committed() == [(number, "\0" * each) for number in escaped.values()]
        assert set(await bounded.commit(dict.fromkeys(wide[:-1], 1), "m" * each)) == {0}
        assert set(await bounded.committed(*wide[:-1])) == {(1, "m" * each)}
        assert set(await bounded.commit(dict.fromkeys(wide, 2), "m" * each)) == {INVALID_COMMIT_OFFSET_SIZE}
        assert await bounded.committed(wide[0]) == [(1, "m" * each)], "none of it is written"
        assert await bounded.commit({wide[0]: 5}, "ü" * 2049) == [OFFSET_METADATA_TOO_LARGE]
    with session_of(broker.zookeeper) as registry:
        nodes = registry.get_many([paths.consumer_offset(group, *one) for one in offsets])
        notes = registry.get_many([paths.commit_note(f"{group}-bounded", *one) for one in wide[:-1]])
    assert len({node.stat.modified_zxid for node in nodes if node is not None}) == 1
    assert {node.data for node in nodes if node is not None} == {str(one).encode() for one in offsets.values()}
    at_once: Counter[int] = Counter()
    for note in notes:
        assert note is not None
        at_once[note.stat.modified_zxid] += len(note.data)
    assert max(at_once.values()) <= TOGETHER_BYTES_MAX


async def test_offsets_are_deleted_but_of_what_is_read(broker: RunningBroker, group: str, topic: str) -> None:
    other = f"{topic}-2"
    await asyncio.to_thread(create, broker.bootstrap, other)
    here, there = TopicPartition(topic, 0), TopicPartition(other, 0)
    asked = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic, other, "no-such-topic")]
    async with speakers(broker.bootstrap, group, 1) as (member,):

        async def ask_delete() -> Any:
            return await member.ask(ApiKey.OFFSET_DELETE, 0, group_id=member.group, topics=asked)

        assert code(await ask_delete()) == GROUP_ID_NOT_FOUND
        await member.live_alone(topic, 0)
        assert await member.commit({here: 1, there: 2}) == [0, 0]
        answer = await ask_delete()
        codes = [code(one.partitions[0]) for one in answer.topics]
        assert codes == [GROUP_SUBSCRIBED_TO_TOPIC, 0, UNKNOWN_TOPIC_OR_PARTITION]
        assert await member.committed(here, there) == [(1, ""), (-1, "")]
        assert await member.commit({there: 3}) == [0]
        await member.leave()
        codes = [code(one.partitions[0]) for one in (await ask_delete()).topics]
        assert codes == [0, 0, UNKNOWN_TOPIC_OR_PARTITION]
        assert await member.committed(here, there) == [(-1, ""), (-1, "")]
        other_type = await member.join(type="connect")
        assert code(other_type) in (0, UNKNOWN_MEMBER_ID)


# --- One registry -----------------------------------------------------------------------------------------------------


async def test_a_group_is_used_in_one_way_at_a_time(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    entry = ConsumerEntry("streamer", {topic: 1})
    consumers.register(registry, group, entry)

    async with speakers(broker.bootstrap, group, 1) as (member,):
        assert code(await member.join()) == INCONSISTENT_GROUP_PROTOCOL
        assert await member.commit({TopicPartition(topic, 0): 1}, generation=-1, member_id="") == [UNKNOWN_MEMBER_ID]
        (described,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=[group])).groups
        assert (described.group_state, described.protocol_type) == ("Stable", "zookeeper")
        gone = (await member.ask(ApiKey.DELETE_GROUPS, 0, groups_names=[group])).results
        assert [code(one) for one in gone] == [NON_EMPTY_GROUP]

    broker.wait_for_log(repr(group), "streamer")
    consumers.unregister(registry, group, "streamer")

    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(topic, 0)
        with pytest.raises(GroupIsHeld, match="klog"):
            await asyncio.to_thread(consumers.register, registry, group, entry)
        await member.leave()
        await asyncio.to_thread(consumers.register, registry, group, entry)


async def test_a_consumer_of_08s_own_holds_its_group_too(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    """It knows nothing of klog's nodes, and makes its entry alone."""
    where = paths.consumer_id(group, "old")
    registry.create(where, consumers.encode(ConsumerEntry("old", {topic: 1}), 1), ephemeral=True, parents=True)
    async with speakers(broker.bootstrap, group, 1) as (member,):
        assert code(await member.join()) == INCONSISTENT_GROUP_PROTOCOL


async def test_members_stand_in_08s_registry_while_they_live(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(topic, 0, 2)
        owners = {TopicPartition(topic, 0): f"{member.member_id}-0", TopicPartition(topic, 2): f"{member.member_id}-0"}

        def shown() -> bool:
            return consumers.owners(registry, [group])[group] == owners

        await asyncio.to_thread(until, shown)
        (entry,) = await asyncio.to_thread(lambda: consumers.live(registry, [group], of_members=True)[group])
        assert (entry.consumer_id, entry.subscription, entry.is_member) == (member.member_id, {topic: 1}, True)
        assert consumers.live(registry, [group])[group] == []
        await member.leave()
    until(lambda: consumers.owners(registry, [group])[group] == {})
    assert consumers.live(registry, [group], of_members=True)[group] == []


async def test_a_forced_rewind_stays_although_a_member_goes_on_committing(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    one = TopicPartition(topic, 0)
    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(topic, 0)
        assert await member.commit({one: 100}) == [0]
        wanted = {one: CommittedOffset(5)}
        fenced = await asyncio.to_thread(lambda: offset_changes.write(registry, group, wanted, force=True))
        assert [each.member_id for each in fenced] == [member.member_id]
        assert await member.commit({one: 101}) == [UNKNOWN_MEMBER_ID]
        assert await member.heartbeat() == UNKNOWN_MEMBER_ID
        assert await member.committed(one) == [(5, "")]
        before, member.member_id = member.generation, ""
        await member.live_alone(topic, 0)
        assert member.generation > before + 1
        assert await member.commit({one: 6}) == [0]
    assert group_states.read(registry, group).members


@pytest.mark.slow
async def test_members_that_commit_nothing_hear_of_a_forced_rewind_too(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(topic, 0)
        wanted = {TopicPartition(topic, 0): CommittedOffset(5)}
        await asyncio.to_thread(lambda: offset_changes.write(registry, group, wanted, force=True))
        await comes_to(UNKNOWN_MEMBER_ID, member.heartbeat)


async def test_a_rewind_by_a_zookeeper_era_tool_is_seen_at_once(
    broker: RunningBroker, group: str, topic: str, registry: ZooKeeper
) -> None:
    one = TopicPartition(topic, 0)
    async with speakers(broker.bootstrap, group, 1) as (member,):
        assert await member.commit({one: 100}, "noted") == [0]
        await asyncio.to_thread(registry.set, paths.consumer_offset(group, *one), b"42")
        assert await member.committed(one) == [(42, "")]


# --- Whoever asks a broker that does not know -------------------------------------------------------------------------


async def test_groups_are_there_after_the_broker_was_killed(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    """The members are known to the next incarnation, and what they read; they need not join again."""
    broker = make_broker(zookeeper__session__timeout__ms="4000").start()
    name = f"t-{secrets.token_hex(4)}"
    await asyncio.to_thread(create, broker.bootstrap, name, 1)
    one = TopicPartition(name, 0)

    async with speakers(broker.bootstrap, "g", 1) as (before,):
        await before.live_alone(name, 0)
        assert await before.commit({one: 8}, "kept") == [0]
    broker.kill()
    with session_of(broker.zookeeper) as registry:
        registry.create(paths.group("garbage"), b"no JSON")
    broker.start()
    async with speakers(broker.bootstrap, "g", 1) as (member,):
        member.member_id, member.generation = before.member_id, before.generation
        await comes_to(0, member.heartbeat)  # when the slots are given out
        member.group = "garbage"
        assert code(await member.join()) == UNKNOWN_SERVER_ERROR, "one that cannot be read is nobody else's harm"
        member.group, member.member_id, member.generation = "g", before.member_id, before.generation
        assert (await member.sync()).assignment == assignment(name, 0)
        assert await member.committed(one) == [(8, "kept")]
        assert await member.commit({one: 9}) == [0]
    broker.wait_for_log("'garbage'", "server.groups")
