"""A child of the bench: many groups whose members all commit now and then.

    python -m bench.commit_load BOOTSTRAP TOPIC GROUPS MEMBERS EVERY_S

Members are `raw_member`s, each on its own connection and its own partition, with a heartbeat every three seconds. Tells
`settled` when all groups are; told `window`, lets each member commit once within EVERY_S, evenly spread, and tells
`window <p50 ms> <p99 ms> <commits> <refused> <cores that this process took>`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from bench.children import tell
from bench.raw_member import RawMember, connect_to_coordinator

HEARTBEAT_S = 3.0
HEARTBEAT_BEFORE_S = 0.3
"""Until all have settled; the first member of a group learns of the others by it."""
CONNECTING_AT_ONCE = 50
SEED = 5


class CommitLoad:
    """All members, in one event loop."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._members: list[RawMember] = []
        self._beating: list[asyncio.Task[None]] = []
        self._offset = 0
        self._chance = random.Random(SEED)
        self._all_settled = asyncio.Event()

    async def start(self, bootstrap: str, topic: str, groups: int, members: int) -> None:
        """Returns when every group has been stable, with all its members, for two heartbeats."""
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def enter(group: str, partition: int) -> None:
            async with gate:
                channel = await connect_to_coordinator(bootstrap, group)
            member = RawMember(channel, group, topic, partition)
            self._members.append(member)
            self._beating.append(asyncio.create_task(self._beat(member)))

        names = [f"{topic}-{group}" for group in range(groups)]
        await asyncio.gather(*(enter(name, partition) for name in names for partition in range(members)))
        deadline = time.monotonic() + 60
        calm_since = time.monotonic()
        while time.monotonic() < calm_since + 2 * HEARTBEAT_BEFORE_S:
            self._check()
            by_group: dict[str, set[int]] = {}
            for one in self._members:
                by_group.setdefault(one.group, set()).add(one.generation if one.is_settled else -1)
            if any(len(found) > 1 or -1 in found for found in by_group.values()):
                calm_since = time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {groups} groups have settled")
            await asyncio.sleep(0.02)
        self._all_settled.set()

    async def _beat(self, member: RawMember) -> None:
        await member.join()
        while not self._all_settled.is_set():
            await asyncio.sleep(HEARTBEAT_BEFORE_S)
            await member.heartbeat()
        await asyncio.sleep(self._chance.uniform(0, HEARTBEAT_S))  # members of real groups do not beat in step
        while True:
            await member.heartbeat()
            await asyncio.sleep(HEARTBEAT_S)

    def _check(self) -> None:
        """Raises what has ended a member."""
        for task in self._beating:
            if task.done():
                task.result()

    async def window(self) -> tuple[list[float], int]:
        """Milliseconds of each commit, in order; how many were refused."""
        self._offset += 1
        began = time.monotonic()
        step_s = self._every_s / len(self._members)

        async def commit(number: int, member: RawMember) -> tuple[float, int]:
            await asyncio.sleep(max(0.0, began + number * step_s - time.monotonic()))
            sent = time.monotonic()
            code = await member.commit(self._offset)
            return 1000 * (time.monotonic() - sent), code

        done = await asyncio.gather(*(commit(number, member) for number, member in enumerate(self._members)))
        self._check()
        return sorted(took for took, _ in done), sum(code != 0 for _, code in done)


async def run(bootstrap: str, topic: str, groups: int, members: int, every_s: float) -> None:
    load = CommitLoad(every_s)
    tell("ready")
    await load.start(bootstrap, topic, groups, members)
    tell("settled")
    while await asyncio.to_thread(sys.stdin.readline):
        began, cpu = time.monotonic(), time.process_time()
        took, refused = await load.window()
        cores = (time.process_time() - cpu) / (time.monotonic() - began)
        tell("window", took[len(took) // 2], took[int(len(took) * 0.99)], len(took), refused, cores)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
