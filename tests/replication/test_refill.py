"""What a follower's disk has lost comes back from its leader, in its place (rule L2)."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from klog.replication.led_partition import LedPartition
from klog.storage.log import LogEnd
from klog.storage.scrubber import Scrubber
from tests.replication.side import NAME, append, batch, content, files, fill, two_sides
from tests.storage.log_cases import delete_records
from tests.until import until_async as until


async def test_holes_of_a_followers_disk_are_filled_where_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_sides(tmp_path) as (one, two):
        for side in (one, two):
            places = fill(side, 1, 1, 2, 2, 3, 3, 3, 3)
        epochs, ends = one.log().epoch_starts, one.log().end
        await two.damage(places[1] + 70, places[4] + 70, places[5] + 70)
        assert two.log().holes == [(places[1], places[2]), (places[4], places[6])]
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        assert await append(led, batch()) is None
        await until(lambda: not follower.missing)
        assert content(follower.log) == content(led.log)
        assert follower.log.holes == []
        assert follower.log.damages == ()
        assert follower.log.epoch_starts[: len(epochs)] == epochs
        assert follower.log.count(0, ends.address) == led.log.count(0, ends.address)
        assert not files(tmp_path, "*.damaged")
        assert not files(tmp_path, "*.tmp")
        assert sum("broker 1" in text and "addresses" in text for text in caplog.messages) == 2
        await two.damage()  # opened again, from the files alone
        assert content(two.log()) == content(led.log)
        assert two.log().damages == ()


async def test_a_follower_with_a_gap_has_flushed_nothing_above_it(tmp_path: Path) -> None:
    """Or it would be counted in, and the messages in the gap with it."""
    async with two_sides(tmp_path) as (one, two):
        for side in (one, two):
            places = fill(side, 1, 1, 1, 1)
        await two.damage(places[1] + 70)
        led = one.lead(5, isr=(1, 2))
        said: list[int] = []
        taken = LedPartition.replica_fetched

        def listen(
            self: LedPartition, broker_id: int, incarnation: int, end: int, flushed: LogEnd, now_s: float
        ) -> None:
            said.append(flushed.address)
            taken(self, broker_id, incarnation, end, flushed, now_s)

        with patch.object(LedPartition, "replica_fetched", listen):
            follower = two.follow(1, 5)
            assert follower.whole_end.address == places[1]
            assert await append(led, batch()) is None
        assert said[0] == places[1]
        assert said[-1] == led.log.end.address
        assert content(follower.log) == content(led.log)


async def test_what_the_leader_lacks_too_stays_a_hole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_sides(tmp_path) as (one, two):
        for side in (one, two):
            places = fill(side, 1, 1, 1, 1)
        await one.damage(places[1] + 70)
        await two.damage(places[1] + 70)
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await until(lambda: not follower.missing)
        assert follower.log.holes == led.log.holes == [(places[1], places[2])]
        assert sum("broker 1" in text and "addresses" in text for text in caplog.messages) == 1
        assert await append(led, batch()) is None
        assert files(tmp_path / "2", "*.damaged")


async def test_rot_that_the_scrubber_finds_is_written_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for mark in range(6):
            assert await append(led, batch(2, 100, mark)) is None
        before = content(led.log)
        places = list(before)
        segment = follower.log.segments[0]
        for address in (places[2] + 80, places[3] + 5):
            byte = segment.file.read_at(address, 1)[0]
            segment.file.write_at(address, bytes([byte ^ 1]))
        found = []
        scrubber = Scrubber(
            lambda: [follower.log],
            lambda log, damage: found.append((log, damage)),
            interval_s=1000,
            rate_bytes=1 << 30,
        )
        scrubber.scrub()
        for log, damage in found:
            two.fetchers.damaged(log, damage.first_address, damage.end_address)
        assert found
        assert follower.whole_end.address == places[2]
        await until(lambda: not follower.missing)
        assert content(follower.log) == before
        found.clear()
        scrubber.scrub()
        assert found == []
        assert follower.log.holes == []


async def test_a_large_stretch_comes_in_pieces_and_unfinished_ones_leave_no_trace(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        for side in (one, two):
            for mark in range(8):
                side.log().append(batch(1, 600_000, mark), 1)
        places = list(content(one.log()))
        await two.damage(*(place + 80 for place in places[1:7]))
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await until(lambda: not follower.missing)
        assert content(follower.log) == content(led.log)
        assert [segment.base_address for segment in follower.log.segments] == [0, places[1], places[7]]


async def test_a_gap_that_is_deleted_meanwhile_is_none(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        for side in (one, two):
            places = fill(side, 1, 1, 1, 1)
        await two.damage(places[1] + 70)
        delete_records(two.log(), places[3])
        one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await until(lambda: not follower.missing)
        assert follower.log.start_address == places[2]
        assert two.log(NAME).holes == []
