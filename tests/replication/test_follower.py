"""Followers and leaders over real sockets, logs and flushes (rule R3): who may follow, and what they have."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path

import pytest

from klog.config import LogConfig
from klog.errors import StorageError
from klog.replication.follower import FollowerState
from klog.storage.filesystem import OsFileSystem
from tests.replication.side import NAME, Side, append, assigned, batch, content, two_sides
from tests.rows import each
from tests.storage.log_cases import delete_records
from tests.until import until_async as until


async def test_a_follower_has_the_leaders_bytes_at_the_same_addresses(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for mark in range(50):
            assert await append(led, batch(1 + mark % 3, 20 + mark, mark)) is None
        assert led.high_watermark == led.log.end == follower.log.flushed_end
        assert content(follower.log) == content(led.log)
        assert follower.state is FollowerState.FETCHING
        await until(lambda: follower.high_watermark == led.high_watermark)
        assert follower.is_in_sync


async def test_an_acknowledgement_does_not_wait_for_a_poll(tmp_path: Path) -> None:
    async with two_sides(tmp_path, replica_fetch_wait_max_ms="60000") as (one, two):
        led = one.lead(5, isr=(1, 2))
        two.follow(1, 5)
        await append(led, batch())
        began = one.loop.time()
        for _ in range(20):
            await append(led, batch())
        assert one.loop.time() - began < 10  # a poll takes a minute here


@each(
    ("cluster", "knows", "incarnation", "words"),
    [
        ("another", True, 200, r"\banother\b.*\bc-1\b"),
        ("c-1", False, 200, r"broker 2\b"),
        ("c-1", True, 199, r"\b200\b.*\b199\b"),
    ],
)
async def test_who_may_not_follow_is_refused_with_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cluster: str, knows: bool, incarnation: int, words: str
) -> None:
    one = Side(tmp_path / "1", 1).start()
    two = Side(tmp_path / "2", 2, cluster_id=cluster, incarnation=incarnation).start()
    try:
        led = one.lead(5, isr=(1,))
        two.knows(one, two)
        two.incarnation = 200
        one.knows(*([one, two] if knows else [one]))
        two.incarnation = incarnation
        follower = two.follow(1, 5)
        await append(led, batch())
        await until(lambda: re.search(words, caplog.text))
        assert follower.log.end.address == 0
        assert led.position(2) is None
    finally:
        await two.stop()
        await one.stop()


async def test_a_broker_that_is_looked_for_elsewhere_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_sides(tmp_path) as (one, two):
        two.image.brokers = {3: one.entry}
        two.follow(3, 5)
        await until(lambda: "broker 3" in caplog.text)


async def test_a_refused_follower_comes_in_once_it_is_known(tmp_path: Path) -> None:
    """It may hear of its leader before the leader hears of it."""
    async with two_sides(tmp_path) as (one, two):
        one.knows(one)
        led = one.lead(5, isr=(1,))
        await append(led, batch())
        follower = two.follow(1, 5)
        await asyncio.sleep(0.05)
        assert follower.state is FollowerState.WAITING
        one.knows(one, two)
        await until(lambda: follower.log.end == led.log.end)


@each("known", [4, 6])
async def test_epochs_must_be_the_same_on_both_sides(tmp_path: Path, known: int) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1,))
        await append(led, batch())
        follower = two.follow(1, known)
        await asyncio.sleep(0.1)
        assert follower.log.end.address == 0
        assert led.position(2) is None
        if known == 4:
            two.follow(1, 5)
        else:
            led = one.lead(6)
        await until(lambda: follower.log.end == led.log.end and follower.state is FollowerState.FETCHING)


async def test_a_leader_whose_epoch_is_below_our_logs_is_not_followed(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        one.lead(5)
        two.log().append(batch(), 9)
        follower = two.follow(1, 5)
        assert follower.state is FollowerState.FENCED
        await asyncio.sleep(0.05)
        assert two.log().end.address > 0
        assert two.follow(1, 10).state is FollowerState.WAITING


async def test_another_topic_of_the_same_name_is_not_fetched(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5)
        await append(led, batch())
        two.fetchers.follow(assigned(1, 5, topic_id=uuid.UUID(int=8)), two.log())
        await asyncio.sleep(0.1)
        assert two.log().end.address == 0


async def test_the_start_moves_with_the_leaders(tmp_path: Path) -> None:
    async with two_sides(tmp_path, log_segment_bytes="250", replica_fetch_wait_max_ms="100") as (one, two):
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for _ in range(5):
            await append(led, batch(3))
        delete_records(led.log, led.high_watermark.offset - 4)
        await until(lambda: follower.log.start_offset == led.log.start_offset)
        assert follower.log.start_address == led.log.start_address


async def test_the_high_watermark_is_what_the_leader_says_and_we_have_flushed(tmp_path: Path) -> None:
    async with two_sides(tmp_path, replica_fetch_wait_max_ms="100") as (one, two):
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        follower.log.reconfigure(LogConfig(flush_messages=1 << 40, flush_ms=1 << 40))  # not in the time of this test
        await append(led, batch())
        await until(lambda: follower.log.end == led.log.end and follower.leader_high == led.high_watermark)
        assert follower.high_watermark.address == 0
        assert led.position(2).flushed.address == 0
        two.flusher.flush_now(follower.log)
        await until(lambda: follower.high_watermark == led.high_watermark)
        await until(lambda: led.position(2).flushed == led.log.end)


async def test_a_full_disk_rests_a_follower_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule L5."""
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await append(led, batch())
        await until(lambda: follower.log.end == led.log.end)
        monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: 0)
        follower.log.log_dir.is_full = True
        await append(led, batch())
        await until(lambda: follower.retry_s > 0)
        assert follower.log.end != led.log.end
        monkeypatch.undo()
        await until(lambda: follower.log.end == led.log.end)
        assert follower.state is FollowerState.FETCHING


async def test_a_disk_that_fails_ends_the_following_of_its_logs(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await append(led, batch())
        await until(lambda: follower.log.end == led.log.end)
        follower.log.log_dir.fail(StorageError("the test says so"))
        await append(led, batch())
        await until(lambda: follower.state is FollowerState.FAILED)
        assert two.follow(1, 6).state is FollowerState.FAILED
        assert led.position(2).flushed != led.log.end
        await two.fetchers.let_go([NAME])
