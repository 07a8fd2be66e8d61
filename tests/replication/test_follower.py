"""Followers and leaders over real sockets, logs and flushes (rule R3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from klog.server.follower import FollowerState
from tests.replication.side import Side, append, batch, content, until


def run(tmp_path: Path, scene: Callable[[Side, Side], Awaitable[None]], **settings: str) -> None:
    """A scene with two sides that know each other: 1 and 2."""

    async def play() -> None:
        one = Side(tmp_path / "1", 1, **settings).start()
        two = Side(tmp_path / "2", 2, **settings).start()
        try:
            one.knows(one, two)
            two.knows(one, two)
            await scene(one, two)
        finally:
            await two.stop()
            await one.stop()

    asyncio.run(play())


def test_a_follower_has_the_leaders_bytes_at_the_same_addresses(tmp_path: Path) -> None:
    async def scene(one: Side, two: Side) -> None:
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for mark in range(50):
            assert await append(led, batch(1 + mark % 3, 20 + mark, mark)) is None
        assert led.high_watermark == led.log.end == follower.log.flushed_end
        assert content(follower.log) == content(led.log)
        assert follower.state is FollowerState.FETCHING
        await until(lambda: follower.high_watermark == led.high_watermark)
        assert follower.is_in_sync

    run(tmp_path, scene)


def test_an_acknowledgement_does_not_wait_for_a_poll(tmp_path: Path) -> None:
    async def scene(one: Side, two: Side) -> None:
        led = one.lead(5, isr=(1, 2))
        two.follow(1, 5)
        await append(led, batch())
        began = one.loop.time()
        for _ in range(20):
            await append(led, batch())
        assert one.loop.time() - began < 10  # a poll takes a minute here

    run(tmp_path, scene, replica_fetch_wait_max_ms="60000")
