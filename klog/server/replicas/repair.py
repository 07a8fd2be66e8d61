"""Repairs a follower's log: fetches lost bytes from the leader, and writes them in place (rule L2).

Strategy: the holes that recovery has recorded, and the ranges that the scrubber finds damaged, are fetched from the
leader over another connection (ReplicaFetch's RANGE) and written where they were. The log is not truncated for it: if
the leader dies meanwhile, this replica keeps the rest. Until the repair is done the follower reports no flushed end
above the gap, so that the leader does not count on it. A range that the leader has lost as well stays a hole.

One task per follower with gaps. Event loop only; threads write to the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from klog.errors import CannotConnect, CorruptLog, KlogError, MalformedRequest, OffsetOutOfRange, TimedOut
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.net.conversation import next_number
from klog.protocol import replica_fetch
from klog.protocol.replica_fetch import Failed, Range, Records
from klog.replication.follower import Follower, FollowerState, Missing
from klog.server.executors import Purpose
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.leader_endpoints import LeaderEndpoints
from klog.server.runtime import Runtime
from klog.storage.log import LogEnd
from klog.storage.repair import RangeRepair, forget_repaired_damages

log = logging.getLogger(__name__)

RANGE_BYTES: Final = 1024 * 1024
ANSWER_S: Final = 30.0
REST_S: Final = 0.5
"""Pause between attempts, if the leader does not answer."""


class _LeaderLacksItError(Exception):
    """The leader has a hole there too, or its log starts later."""


class Repairer:
    """See the module. One per broker."""

    def __init__(
        self,
        runtime: Runtime,
        deletions: Deletions,
        leader_endpoints: LeaderEndpoints,
        followed: Mapping[TopicPartition, Follower],
    ) -> None:
        self._runtime = runtime
        self._deletions = deletions
        self._leader_endpoints = leader_endpoints
        self._followed = followed
        self._tasks: dict[Follower, asyncio.Task[None]] = {}

    def look_for_holes(self, follower: Follower) -> None:
        """List the log's holes. Repeated for each leader, since the next may have what the last one lacked."""
        one = follower.log
        holes = [Missing(one.floor(first), end) for first, end in one.holes]
        known = {missing.place.address for missing in holes}
        damaged = [
            missing
            for missing in follower.missing
            if missing.place.address not in known and missing.end <= one.end.address
        ]
        follower.missing = sorted(holes + damaged)

    def lost(self, follower: Follower, first: int, end: int) -> None:
        """Note a damaged range of a segment."""
        place = LogEnd(first, min(follower.log.end.offset, first))
        if all(one.place.address != first for one in follower.missing):
            follower.missing = sorted([*follower.missing, Missing(place, end)])
        self.begin(follower)

    def begin(self, follower: Follower) -> None:
        """Fetch missing ranges, unless a task is running."""
        if follower.missing and follower not in self._tasks:
            self._tasks[follower] = self._runtime.spawn(self._run(follower))

    async def _run(self, follower: Follower) -> None:
        channel: Channel | None = None
        try:
            while follower.missing and self._is_followed(follower):
                try:
                    if channel is None:
                        channel = await self._connect(follower)
                    if await self._repair(follower, follower.missing[0], channel):
                        continue
                except KlogError as error:
                    log.warning("%s: its lost range cannot be fetched now: %s", follower.topic_partition, error)
                    if channel is not None:
                        await channel.close()
                        channel = None
                await asyncio.sleep(REST_S)
        finally:
            del self._tasks[follower]
            if channel is not None:
                await channel.close()

    def _is_followed(self, follower: Follower) -> bool:
        is_current = self._followed.get(follower.topic_partition) is follower
        return is_current and follower.state is FollowerState.FETCHING

    async def _connect(self, follower: Follower) -> Channel:
        endpoint = self._leader_endpoints.endpoint_of(follower.leader)
        if endpoint is None:
            raise CannotConnect(f"broker {follower.leader} is not alive")
        try:
            async with asyncio.timeout(ANSWER_S):  # all of its steps
                return await self._leader_endpoints.connect(follower.leader, endpoint, ANSWER_S)
        except TimeoutError:
            raise TimedOut(f"broker {follower.leader} has not opened a session within {ANSWER_S:g} s") from None

    async def _repair(self, follower: Follower, missing: Missing, channel: Channel) -> bool:
        """Repair a range; whether it is done, repaired or not."""
        one, name, executors = follower.log, follower.topic_partition, self._runtime.executors
        first, end = missing.place.address, missing.end
        try:
            repair = await executors.run_at(one.log_dir.path, Purpose.REPLICAS, RangeRepair, one, first, end)
        except OffsetOutOfRange:  # deleted, or truncated, meanwhile
            self._done(follower, missing)
            return True
        try:
            while not repair.is_whole:
                records = await self._ask(follower, repair.next_address, channel)
                await executors.run_at(one.log_dir.path, Purpose.REPLICAS, repair.add, records)
            if not await self._finish(follower, repair):
                return False
        except _LeaderLacksItError:
            log.error(
                "%s: addresses %d to %d are lost here, and broker %d has lost them too: they stay a hole",
                name,
                first,
                end,
                follower.leader,
            )
        except CorruptLog as error:
            log.error(
                "%s: addresses %d to %d are lost here and cannot be repaired: %s", name, first, end, error.message
            )
        else:
            log.warning(
                "%s: addresses %d to %d were lost here: repaired from broker %d",
                name,
                first,
                end,
                follower.leader,
            )
        finally:
            if not repair.is_whole:
                await executors.run_at(one.log_dir.path, Purpose.REPLICAS, repair.discard)
        self._done(follower, missing)
        return True

    def _done(self, follower: Follower, missing: Missing) -> None:
        follower.missing = [one for one in follower.missing if one != missing]
        follower.advance()
        if follower.link is not None:
            follower.link.report(follower)

    async def _finish(self, follower: Follower, repair: RangeRepair) -> bool:
        """Apply it, unless the log has changed there meanwhile. No deletion and no truncation may run beside it."""
        one, executors = follower.log, self._runtime.executors
        async with follower.alone, self._deletions.none_running(one.log_dir.path):
            is_there = repair.into is not None or (repair.first, repair.end) in one.holes
            if not is_there or not self._is_followed(follower) or one.is_closed:
                await executors.run_at(one.log_dir.path, Purpose.REPLICAS, repair.discard)
                return False
            await executors.run_at(one.log_dir.path, Purpose.REPLICAS, repair.make_durable)
            repair.apply()
            await executors.run_at(one.log_dir.path, Purpose.REPLICAS, forget_repaired_damages, one)
        return True

    async def _ask(self, follower: Follower, address: int, channel: Channel) -> memoryview:
        """Batches from ``address`` on. Raises _LeaderLacksItError, and KlogError for what may pass."""
        name = follower.topic_partition
        asked = Range(follower.topic_id, name.partition, follower.leader_epoch, address, RANGE_BYTES, name.topic)
        frame = await channel.request(replica_fetch.range_request(next_number(), asked))
        answer = next(replica_fetch.read_answer(frame), None)
        if isinstance(answer, Failed):
            if answer.error_code == OffsetOutOfRange.wire:
                raise _LeaderLacksItError
            raise KlogError(answer.message)
        if not isinstance(answer, Records):
            raise MalformedRequest(f"broker {follower.leader} does not answer with records")
        if answer.first_address != address or not answer.data:
            raise _LeaderLacksItError
        return answer.data
