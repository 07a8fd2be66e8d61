"""Offsets of groups in which nobody lives go after their time; those of live ones stay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.server.asking import create
from tests.server.garbage import counting
from tests.server.group_speaker import code, speakers

RETENTION_MS = 1_000


async def test_offsets_of_groups_in_which_nobody_lives_expire(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    broker = make_broker(offsets__retention__minutes="1", offsets__retention__check__interval__ms="100")
    counting(broker, MINUTE_MS=RETENTION_MS)
    await asyncio.to_thread(create, broker.bootstrap, topic)
    partition = TopicPartition(topic, 0)
    async with speakers(broker.bootstrap, f"{topic}-live", 3) as (live, gone, nobody):
        gone.group, nobody.group = f"{topic}-gone", f"{topic}-nobody"
        for member in (live, gone):
            await member.live_alone(topic, 0)
            assert await member.commit({partition: 5}) == [0]
        assert code(await gone.leave()) == 0
        assert await nobody.commit({partition: 6}, generation=-1, member_id="") == [0]
        deadline = time.monotonic() + 60
        while [await one.committed(partition) for one in (gone, nobody)] != [[(-1, "")]] * 2:
            assert time.monotonic() < deadline, broker.log_text
            assert await live.heartbeat() == 0
            await asyncio.sleep(0.05)  # nobody tells of it
        assert await live.committed(partition) == [(5, "")]
        assert await live.heartbeat() == 0
        assert await nobody.commit({partition: 7}, generation=-1, member_id="") == [0], "it begins anew"
        assert await nobody.committed(partition) == [(7, "")]
        gone.member_id = ""
        await gone.live_alone(topic, 0)
        assert await gone.commit({partition: 8}) == [0]
        assert gone.generation > 1, "a generation only goes up"
