"""What a follower's disk has lost is taken from the leader again, in its place (rule L2).

Strategy: holes that recovery has recorded, and stretches that the scrubber finds rotten, are asked of the leader over a
connection of their own (ReplicaFetch's RANGE) and written where they were: nothing is cut for it, so that whatever else
this replica has stays while the leader may die. Until then the leader is told of no flushed end above the gap, so that
nobody counts on what is not there. What the leader has lost as well stays a hole.

One task a follower with gaps. Event loop only; the disk is written in threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from klog.errors import CannotConnect, CorruptLog, KlogError, MalformedRequest, OffsetOutOfRange
from klog.protocol import codec, replica_fetch
from klog.protocol.apis import ApiKey
from klog.protocol.replica_fetch import Failed, Range, Records
from klog.server.executors import Purpose
from klog.server.follower import Follower, FollowerState, Missing
from klog.storage.log import LogEnd
from klog.storage.refill import Refill

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.fetchers import Fetchers

log = logging.getLogger(__name__)

RANGE_BYTES: Final = 1024 * 1024
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
ANSWER_S: Final = 30.0
REST_S: Final = 0.5
"""Between attempts, where the leader cannot be asked just now."""


class _LeaderLacksItError(Exception):
    """The leader has a hole there too, or its log starts later."""


class Refills:
    """See the module. One for a broker's fetchers."""

    def __init__(self, broker: Broker, fetchers: Fetchers) -> None:
        self._broker = broker
        self._fetchers = fetchers
        self._tasks: dict[Follower, asyncio.Task[None]] = {}

    def look_for_holes(self, follower: Follower) -> None:
        """What is missing in its log, anew: at every leader, since the next one may have what the last one lacked."""
        one = follower.log
        holes = [Missing(one.floor(first), end) for first, end in one.holes]
        known = {missing.place.address for missing in holes}
        rotten = [
            missing
            for missing in follower.missing
            if missing.place.address not in known and missing.end <= one.end.address
        ]
        follower.missing = sorted(holes + rotten)

    def lost(self, follower: Follower, first: int, end: int) -> None:
        """A stretch of a segment no longer checks."""
        place = LogEnd(first, min(follower.log.end.offset, first))
        if all(one.place.address != first for one in follower.missing):
            follower.missing = sorted([*follower.missing, Missing(place, end)])
        self.begin(follower)

    def begin(self, follower: Follower) -> None:
        """Ask the leader for what is missing, if anything is and nobody does."""
        if follower.missing and follower not in self._tasks:
            self._tasks[follower] = self._broker.spawn(self._run(follower))

    async def _run(self, follower: Follower) -> None:
        connection: _Connection | None = None
        try:
            while follower.missing and self._is_followed(follower):
                try:
                    if connection is None:
                        connection = await self._connect(follower)
                    if await self._fill(follower, follower.missing[0], connection):
                        continue
                except (KlogError, OSError) as error:  # TimeoutError is an OSError
                    log.warning("%s: what is lost cannot be had just now: %s", follower.topic_partition, error)
                    if connection is not None:
                        connection.close()
                        connection = None
                await asyncio.sleep(REST_S)
        finally:
            del self._tasks[follower]
            if connection is not None:
                connection.close()

    def _is_followed(self, follower: Follower) -> bool:
        is_current = self._fetchers.followed.get(follower.topic_partition) is follower
        return is_current and follower.state is FollowerState.FETCHING

    async def _connect(self, follower: Follower) -> _Connection:
        target = self._fetchers.target_of(follower.leader)
        if target is None:
            raise CannotConnect(f"broker {follower.leader} is not alive")
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(target.host, target.port)
            connection = _Connection(reader, writer)
            try:
                await self._introduce(connection, follower.leader)
            except BaseException:
                writer.close()
                raise
            opened = replica_fetch.read_opened(
                await connection.ask(self._fetchers.open_request(follower.leader, target))
            )
        if opened.error_code:
            writer.close()
            raise CannotConnect(f"broker {follower.leader} refuses: {opened.message}")
        return connection

    async def _introduce(self, connection: _Connection, leader: int) -> None:
        """Raises ClusterAuthorizationFailed."""
        introduction, client_id = self._fetchers.introduction(leader), self._fetchers.client_id
        greeted = await connection.ask(codec.encode_request(introduction.greeting(), 0, client_id))
        proof = introduction.proof(codec.decode_response(greeted, ApiKey.GREET, 0)[1])
        proven = await connection.ask(codec.encode_request(proof, 1, client_id))
        introduction.check(codec.decode_response(proven, ApiKey.PROVE, 0)[1])

    async def _fill(self, follower: Follower, missing: Missing, connection: _Connection) -> bool:
        """Whether that stretch is done with, filled or not."""
        one, name, executors = follower.log, follower.topic_partition, self._broker.executors
        first, end = missing.place.address, missing.end
        try:
            refill = await executors.run_at(one.home.path, Purpose.REPLICAS, one.begin_refill, first, end)
        except OffsetOutOfRange:  # deleted, or cut, meanwhile
            self._done(follower, missing)
            return True
        try:
            while not refill.is_whole:
                records = await self._ask(follower, refill.next_address, connection)
                await executors.run_at(one.home.path, Purpose.REPLICAS, refill.add, records)
            if not await self._finish(follower, refill):
                return False
        except _LeaderLacksItError:
            log.error(
                "%s: addresses %d to %d are lost here, and broker %d lacks them too: they stay a hole",
                name,
                first,
                end,
                follower.leader,
            )
        except CorruptLog as error:
            log.error("%s: addresses %d to %d are lost here and stay so: %s", name, first, end, error.message)
        else:
            log.warning(
                "%s: addresses %d to %d were lost here, and were taken from broker %d again",
                name,
                first,
                end,
                follower.leader,
            )
        finally:
            if not refill.is_whole:
                await executors.run_at(one.home.path, Purpose.REPLICAS, refill.give_up)
        self._done(follower, missing)
        return True

    def _done(self, follower: Follower, missing: Missing) -> None:
        follower.missing = [one for one in follower.missing if one != missing]
        follower.advance()
        if follower.link is not None:
            follower.link.report(follower)

    async def _finish(self, follower: Follower, refill: Refill) -> bool:
        """Take it in, unless the log has changed there meanwhile. No deletion and no cut may run beside it."""
        one, executors = follower.log, self._broker.executors
        async with follower.alone, self._broker.deletions.none_running(one.home.path):
            is_there = refill.into is not None or (refill.first, refill.end) in one.holes
            if not is_there or not self._is_followed(follower) or one.is_closed:
                await executors.run_at(one.home.path, Purpose.REPLICAS, refill.give_up)
                return False
            await executors.run_at(one.home.path, Purpose.REPLICAS, refill.make_last)
            one.take_in_refill(refill)
            await executors.run_at(one.home.path, Purpose.REPLICAS, one.forget_refilled)
        return True

    async def _ask(self, follower: Follower, address: int, connection: _Connection) -> memoryview:
        """Batches from ``address`` on. Raises _LeaderLacksItError, and KlogError for whatever may pass."""
        name = follower.topic_partition
        asked = Range(follower.topic_id, name.partition, follower.leader_epoch, address, RANGE_BYTES, name.topic)
        async with asyncio.timeout(ANSWER_S):
            frame = await connection.ask(replica_fetch.range_request(1, asked))
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


class _Connection:
    """One request, one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, frame: bytes) -> memoryview:
        """What follows the length of the answer. Raises OSError, MalformedRequest."""
        self._writer.write(frame)
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > ANSWER_BYTES_MAX:
                raise MalformedRequest(f"an answer claims {size} bytes")
            return memoryview(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            raise ConnectionError("the leader has closed the connection") from None

    def close(self) -> None:
        self._writer.close()
