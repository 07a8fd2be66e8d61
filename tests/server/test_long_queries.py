"""A question about very many partitions: others are served meanwhile (rule P1)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klog.errors import NotLeader
from klog.net.turns import Turns
from klog.server.executors import Executors
from klog.server.look_ups import LookUps
from klog.server.replicas.leader_queries import answered

TIMES = 100_000


class LedElsewhere:
    """The partitions that a broker leads: none."""

    def leader_of(self, topic: str, partition: int) -> Any:
        raise NotLeader(f"{topic}-{partition}")


class Peer:
    """A client's connection."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.address = "192.0.2.1"


@pytest.mark.long("test_crowds.py has questions without end")
def test_others_are_served_while_very_many_partitions_are_asked_about() -> None:
    async def run() -> None:
        executors = Executors()
        connection: Any = Peer()
        led: Any = LedElsewhere()
        topics = [("t", [SimpleNamespace(partition_index=number) for number in range(TIMES)])]
        work: Any = None
        asking = asyncio.create_task(answered(led, LookUps(executors), connection, topics, work, {"offset": -1}))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 6, "of 50 ms each"
        (answers,) = await asking
        assert [one["partition_index"] for one in answers] == list(range(TIMES))
        executors.close()

    asyncio.run(run())
