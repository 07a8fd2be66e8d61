"""Logs that disagree, over real sockets: what a follower cuts, and what it keeps (rule R3, L2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.side import append, batch, content, files, fill, two_sides
from tests.storage.log_cases import delete_records


async def test_what_the_leader_never_had_is_cut_and_not_missed(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        fill(one, 1, 1, 3)
        fill(two, 1, 1)
        fill(two, 2, 2, mark=9)
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await append(led, batch())
        assert content(follower.log) == content(led.log)
        assert follower.log.epoch_starts == led.log.epoch_starts
        assert not files(tmp_path, "*.lost")


async def test_what_is_cut_below_the_high_watermark_is_kept_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_sides(tmp_path) as (one, two):
        fill(one, 1)
        places = fill(two, 1, 1, 1)
        before = content(two.log())
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5, high_watermark=two.log().end.address)
        assert follower.high_watermark == two.log().end
        await append(led, batch(mark=7))
        assert content(follower.log) == content(led.log)
        assert follower.high_watermark.address <= follower.log.end.address
        (lost,) = files(tmp_path, "*.lost")
        assert lost.read_bytes() == b"".join(data for address, data in before.items() if address >= places[1])
        assert lost.name == f"{places[1]:020d}.lost"
        assert "MESSAGES ARE LOST" in caplog.text
        assert lost.name in caplog.text


async def test_after_an_unclean_election_everything_cut_is_kept(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        fill(one, 1)
        fill(two, 1, 1)
        led = one.lead(5, isr=(1, 2))
        two.follow(1, 5, keep_truncated=True)
        await append(led, batch(mark=7))
        assert len(files(tmp_path, "*.lost")) == 1


async def test_a_follower_below_the_leaders_start_begins_there(tmp_path: Path) -> None:
    async with two_sides(tmp_path, log_segment_bytes="150") as (one, two):
        places = fill(one, 1, 1, 1, 2, 2)
        delete_records(one.log(), places[3])
        fill(two, 1)
        led = one.lead(5, isr=(1, 2))
        assert led.log.start_address > two.log().end.address
        follower = two.follow(1, 5)
        await append(led, batch())
        assert content(follower.log) == content(led.log)
        assert (follower.log.start_address, follower.log.start_offset) == (led.log.start_address, led.log.start_offset)


async def test_the_leaders_hole_is_left_by_its_follower(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        places = fill(one, 1, 1, 1, 1, 1)
        await one.damage(places[2] + 70)
        assert one.log().holes == [(places[2], places[3])]
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await append(led, batch())
        assert content(follower.log) == content(led.log)
        assert follower.log.holes == [(places[2], places[3])]
        assert files(tmp_path / "2", "*.damaged")


async def test_an_end_in_the_middle_of_the_leaders_hole_goes_on_behind_it(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        places = fill(one, 1, 1, 1, 1, 1, 1)
        fill(two, 1, 1, 1)
        await one.damage(places[2] + 70, places[3] + 70)
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await append(led, batch())
        assert content(follower.log) == content(led.log) | {places[2]: content(two.log())[places[2]]}
        assert follower.log.holes == [(places[3], places[4])]
