"""Groups while ZooKeeper is away or loses answers: never a false success, and everything goes on afterwards."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator

import pytest

from klog.coordination import group_states
from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.server.asking import comes_to, create
from tests.server.group_speaker import Speaker, assignment, code, speakers, subscription
from tests.zookeeper_fixture import session_of
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy

COORDINATOR_NOT_AVAILABLE = 15
REBALANCE_IN_PROGRESS = 27
TOPIC = "clicks"
ONE = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def proxy(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    made = ZooKeeperProxy(ConnectString.parse(zookeeper.address).servers[0])
    yield made
    made.close()


@pytest.fixture(scope="module")
def chroot() -> str:
    return f"/outage-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def broker(proxy: ZooKeeperProxy, chroot: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Its ZooKeeper is behind the proxy; the tests share it, and have a group each."""
    settings = {"zookeeper__session__timeout__ms": "8000", "offsets__commit__timeout__ms": "700"}
    with RunningBroker(tmp_path_factory.mktemp("outages"), proxy.address + chroot, **settings).running() as broker:
        create(broker.bootstrap, TOPIC)
        yield broker


@pytest.fixture
def group() -> str:
    return f"g-{secrets.token_hex(4)}"


async def test_commits_are_refused_while_zookeeper_is_away_and_members_live_on(
    broker: RunningBroker, proxy: ZooKeeperProxy, group: str
) -> None:
    async with speakers(broker.bootstrap, group, 2) as (member, late):
        await member.live_alone(TOPIC, 0)
        assert await member.commit({ONE: 1}) == [0]
        with proxy.silent():
            began = time.monotonic()
            assert await member.commit({ONE: 2}) == [COORDINATOR_NOT_AVAILABLE]
            assert time.monotonic() - began < 8, "within the request's 0.7 s, not the session's 8 s"
            assert await member.heartbeat() == 0
            late.group = f"{group}-never-read-before"
            assert code(await late.join()) == COORDINATOR_NOT_AVAILABLE
            assert await member.commit({ONE: 3}) == [COORDINATOR_NOT_AVAILABLE]
        await comes_to([0], lambda: member.commit({ONE: 4}))
        assert await member.committed(ONE) == [(4, "")]
        assert await member.heartbeat() == 0, "the generation is the same"


async def test_a_commit_whose_answer_is_lost_is_found_to_be_written(
    broker: RunningBroker, proxy: ZooKeeperProxy, group: str
) -> None:
    before = proxy.lost
    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.live_alone(TOPIC, 0)
        proxy.lose_answer_of(frozenset({MULTI}), of=group.encode())
        lost = await member.commit({ONE: 1}, "made")  # its nodes are made: a second try finds them there
        assert lost in ([0], [COORDINATOR_NOT_AVAILABLE])
        await comes_to([0], lambda: member.commit({ONE: 2}, "set"))
        assert await member.committed(ONE) == [(2, "set")]
    assert proxy.lost == before + 1


async def test_a_generation_whose_answer_is_lost_is_the_groups(
    broker: RunningBroker, proxy: ZooKeeperProxy, zookeeper: ZooKeeperServer, chroot: str, group: str
) -> None:
    before = proxy.lost
    async with speakers(broker.bootstrap, group, 1) as (member,):
        proxy.lose_answer_of(frozenset({MULTI}), of=group.encode())
        await comes_to(0, lambda: _joined(member))
        assert member.generation == 1, "it was written once"
        assert (await member.sync({member.member_id: assignment(TOPIC, 0)})).assignment == assignment(TOPIC, 0)
        assert await member.heartbeat() == 0
    assert proxy.lost == before + 1
    with session_of(zookeeper.address + chroot) as registry:
        state = group_states.read(registry, group)
    assert (state.generation, state.is_assigned, len(state.members)) == (1, True, 1)


async def test_a_generation_that_zookeeper_is_too_late_for_is_joined_again(
    broker: RunningBroker, proxy: ZooKeeperProxy, group: str
) -> None:
    async with speakers(broker.bootstrap, group, 2) as (member, beside):
        await member.live_alone(TOPIC, 0)
        before, beside.member_id, beside.generation = member.generation, member.member_id, member.generation
        with proxy.silent():
            again = asyncio.create_task(member.join(subscription(TOPIC) + b"more"))
            assert not (await asyncio.wait([again], timeout=0.3))[0], "nothing is told before it is written"
            assert await beside.heartbeat() == REBALANCE_IN_PROGRESS
        await again
        await comes_to(0, lambda: _joined(member))
        assert member.generation > before
        await member.sync({member.member_id: assignment(TOPIC, 0)})
        await comes_to([0], lambda: member.commit({ONE: 5}))


async def _joined(member: Speaker) -> int:
    return code(await member.join(subscription(TOPIC)))
