"""Everything at once, over real sockets: leaders change while logs are cut, connections break, followers come and go.

Whoever leads last, all have its bytes in the end; and nothing that goes wrong on the way is a fault of ours. A seed
repeats the choices, not the timing.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from klog.names import TopicPartition
from klog.replication.follower import FollowerState
from tests.replication.side import Side, batch, content
from tests.storage.log_cases import delete_records
from tests.until import until_async as until

NAMES = [TopicPartition("t", number) for number in range(3)]


async def round_of(sides: list[Side], epoch: int, choose: random.Random) -> None:
    for name in NAMES:
        leader = choose.choice(sides)
        for side in sides:
            if side is not leader and choose.random() < 0.8:
                if choose.random() < 0.3:
                    await side.fetchers.let_go([name])
                side.follow(leader.broker_id, epoch, name, keep_truncated=choose.random() < 0.2)
        if choose.random() < 0.3:  # the followers hear of it first
            await asyncio.sleep(choose.random() / 50)
        await leader.fetchers.let_go([name])
        led = leader.lead(epoch, name=name, isr=tuple(side.broker_id for side in sides))
        for _ in range(choose.randint(0, 6)):
            led.append(batch(choose.randint(1, 4), choose.choice((10, 300, 20_000)), choose.randint(0, 1 << 30)))
            if choose.random() < 0.3:
                await asyncio.sleep(choose.random() / 100)
    if choose.random() < 0.3:
        broken = choose.choice(sides)
        broken.server.close()
        broken.restart_server()
        await asyncio.sleep(choose.random() / 50)
        for side in sides:
            side.knows(*sides)
    if choose.random() < 0.2:
        returns = choose.choice(sides)
        returns.fetchers.suspend()
        returns.incarnation += 1
        for side in sides:
            side.knows(*sides)
    if choose.random() < 0.3:
        log = choose.choice(sides).log(choose.choice(NAMES))
        if log.topic_partition in {name for side in sides for name in side.partitions if side.log(name) is log}:
            delete_records(log, choose.randint(log.start_offset, log.end.offset))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long("further seeds")) for seed in (1, 2, 3))]
)
async def test_whatever_happens_all_have_the_last_leaders_bytes(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(seed)

    settings = {"log_segment_bytes": choose.choice(("2000", "50000", "10000000"))}
    sides = [Side(tmp_path / str(number), number, **settings).start() for number in (1, 2, 3)]
    try:
        for side in sides:
            side.knows(*sides)
        for epoch in range(1, 25):
            await round_of(sides, epoch, choose)
        last, *others = sides
        for name in NAMES:
            for side in others:
                await side.fetchers.let_go([name])
                side.resign(name)
            await last.fetchers.let_go([name])
            led = last.lead(100, name=name, isr=(1, 2, 3))
            followers = [side.follow(1, 100, name) for side in others]
            led.append(batch())
            await until(lambda led=led: led.high_watermark == led.log.end)
            for follower in followers:
                assert follower.state is FollowerState.FETCHING
                start = max(follower.log.start_address, led.log.start_address)
                mine, leaders = content(follower.log), content(led.log)
                assert {at: data for at, data in mine.items() if at >= start} == {
                    at: data for at, data in leaders.items() if at >= start
                }
                assert not follower.log.holes
    finally:
        for side in sides:
            await side.stop()
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback" not in caplog.text
