"""`klog status group G` does not know what the test did to the group: it has to find out.

Method: members that speak the protocol themselves, and one process that is paused; asserted is the name of the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from klog.coordination import group_states
from klog.errors import KlogError
from klog.names import TopicPartition
from tests.cli.runner import klog
from tests.cluster.group_watch import group_of
from tests.cluster.test_groups import coordinator
from tests.cluster_fixture import RunningCluster
from tests.server.group_speaker import Speaker, assignment, code, speakers, subscription
from tests.tools.verbs import send
from tests.zookeeper_fixture import session_of

SESSION_MS = 60_000
"""Nobody sends heartbeats while klog looks."""
Play = Callable[[str, list[Speaker]], Awaitable[None]]


def play(cluster: RunningCluster, group: str, topic: str, what: Play) -> None:
    """Two speakers, connected to the group's coordinator; their members stay when the connections end."""
    bootstrap = cluster.brokers[coordinator(cluster, group)].bootstrap

    async def run() -> None:
        async with speakers(bootstrap, group, 2) as members:
            await what(topic, members)

    asyncio.run(run())


async def live(one: Speaker, topic: str, *partitions: int) -> None:
    joined = await one.join(subscription(topic), session_ms=SESSION_MS)
    assert code(joined) == 0, joined
    await one.sync({one.member_id: assignment(topic, *partitions)})


async def together(first: Speaker, second: Speaker, topic: str) -> None:
    """The second joins a group in which the first lives; the first gets everything."""
    coming = asyncio.create_task(second.join(subscription(topic), session_ms=SESSION_MS))
    while await first.heartbeat() == 0:
        continue
    joined = await first.join(subscription(topic), session_ms=SESSION_MS)
    assert code(joined) == code(await coming) == 0
    waiting = asyncio.create_task(second.sync())
    await first.sync({first.member_id: assignment(topic, 0, 1)})
    await waiting


async def fenced(topic: str, members: list[Speaker]) -> None:
    await live(members[0], topic, 0, 1)
    assert await members[0].commit({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}) == [0, 0]
    await live(members[0], topic, 0, 1)
    assert await members[0].commit({TopicPartition(topic, 0): 1}, generation=1) == [22]


async def rebalances(topic: str, members: list[Speaker]) -> None:
    first, second = members
    await live(first, topic, 0, 1)
    for _ in range(3):
        second.member_id = ""
        await together(first, second, topic)
        await second.leave()
        await live(first, topic, 0, 1)


async def unowned(topic: str, members: list[Speaker]) -> None:
    await live(members[0], topic, 0)
    assert await members[0].commit({TopicPartition(topic, 0): 0}) == [0]


@pytest.mark.parametrize(("what", "words", "do"), [
    (fenced, ("refuses the commits", "is fenced"), "session.timeout.ms"),
    (rebalances, ("rebalances in a loop because of client",), "max.poll.interval.ms"),
    (unowned, ("no live consumer owns", "-1"), "group describe"),
], ids=lambda one: getattr(one, "__name__", ""))  # fmt: skip
def test_the_cause_is_found(three: RunningCluster, topic: str, what: Play, words: tuple[str, ...], do: str) -> None:
    """By the coordinator's events and what it keeps; which facts are which cause: `tests/tools/test_why.py`."""
    three.create(topic, 2)
    for partition in range(2):
        send(three.bootstrap, topic, b"0123456789\n" * 10, partition=partition)
    play(three, f"g-{topic}", topic, what)
    cause = wait_for_cause(three, ("group", f"g-{topic}"), words)
    assert do in cause["do"], cause


def test_whom_a_rebalance_waits_for(three: RunningCluster, topic: str) -> None:
    three.create(topic, 2)
    group = f"g-{topic}"

    async def one_does_not_join_again(topic: str, members: list[Speaker]) -> None:
        first, second = members
        await live(first, topic, 0, 1)
        coming = asyncio.create_task(second.join(subscription(topic), session_ms=SESSION_MS))
        while await first.heartbeat() == 0:
            continue
        await asyncio.to_thread(wait_for_cause, three, ("group", group), ("waits for", first.member_id))
        await first.leave()
        assert code(await coming) == 0

    play(three, group, topic, one_does_not_join_again)


def wait_for_cause(three: RunningCluster, subject: tuple[str, ...], words: tuple[str, ...]) -> dict[str, Any]:
    """The last row. Events are in their topic a moment after they happen."""
    rows: list[dict[str, Any]] = []

    def found() -> bool:
        ran = klog("status", *subject, "-B", three.bootstrap, "-o", "json")
        rows[:] = ran.rows if ran.code == 1 and ran.stdout else []
        return bool(rows) and all(word in rows[-1]["what"] for word in words)

    try:
        three.wait_until(found, f"{words}")
    except AssertionError:
        raise AssertionError(f"{words} not found: {rows}") from None
    assert [row["do"] for row in rows[:-1]] == [None] * (len(rows) - 1)
    return rows[-1]


def test_a_group_that_is_well_and_one_that_is_not_there(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    play(three, f"g-{topic}", topic, lambda topic, members: live(members[0], topic, 0))
    assert klog("status", f"g-{topic}", "-B", three.bootstrap).code == 0
    ran = klog("status", "group", "no-such-group", "-B", three.bootstrap, "-o", "json")
    assert ran.code == 1 and "no-such-group" in ran.error["message"]


def test_a_member_that_hangs(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    with group_of(three, topic, 1, session_ms=1000) as group:
        send(three.bootstrap, topic, b"0123456789\n" * 10)
        member = group.member()
        group.wait_settled(member)
        group.wait_until(lambda: group.committed, "something is committed")
        member.process.send_signal(10)  # SIGUSR1: it stops when it has read more, and before it commits that
        send(three.bootstrap, topic, b"0123456789\n" * 10)
        with session_of(three.zookeeper) as session:

            def is_empty() -> bool:
                try:
                    return not group_states.read(session, group.name).members
                except KlogError:
                    return False

            three.wait_until(is_empty, "the coordinator gave up on it")
        cause = wait_for_cause(three, ("group", group.name), ("hangs or died",))
        assert "kill -CONT" in cause["do"] and "no heartbeat for 1 s" in cause["evidence"]
        member.wake()
