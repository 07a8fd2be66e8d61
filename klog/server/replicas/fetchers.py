"""The partitions that a broker follows: fetched from their leaders, appended, reported, truncated (rule R3).

Strategy
    `LeaderLink` is a connection to one leader. One fetch is under way at any time, and the next one is sent as soon as
    its answer has been appended, with the new ends in it. Changes while the leader holds it (a flush has ended, a
    partition has come or gone) are sent behind it in an update, once per turn of the loop, so that an acknowledgement
    never waits for a poll. Bytes are received into one buffer and appended from there: on their way to the page cache
    they are copied once.

    `Fetchers` has the links. A thread truncates a log, restarts it at another address, or moves it past a hole, with no
    deletion in that log dir meanwhile; then the follower asks the leader again. Bytes truncated below the known high
    watermark, or after an unclean election, are kept beside the log as ``.lost`` files, which the log line names.
    Everything else that is truncated was never committed.
Rules
    * Malformed bytes end the connection; a batch with a wrong checksum stops its partition only.
    * An error of a partition backs off that one alone, twice as long each time, `replica.fetch.backoff.ms` at most.
    * A thread that truncates a log has it to itself: nothing is appended meanwhile (`Fetchers.truncate`).
Event loop only.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final
from zlib import crc32

from klog.config import BrokerConfig
from klog.errors import (
    CannotConnect,
    CorruptLog,
    DiskFull,
    KlogError,
    MalformedRequest,
    PeerError,
    StorageError,
    TimedOut,
)
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import replica_fetch
from klog.protocol.replica_fetch import Diverged, Failed, Records
from klog.replication import divergence
from klog.replication.divergence import truncation_address
from klog.replication.follower import Follower, FollowerState
from klog.replication.follower_throttle import Throttle
from klog.secret import Secret
from klog.server.broker_probes import BrokerProbes
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.leader_endpoints import LeaderEndpoint, LeaderEndpoints
from klog.server.replicas.opening import Assignment
from klog.server.replicas.repair import Repairer
from klog.server.runtime import Runtime
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import RetentionRun

log = logging.getLogger(__name__)

BUFFER_BYTES: Final = 256 * 1024
KEEP_BUFFER_BYTES: Final = 2 * 1024 * 1024
"""A larger buffer is freed once an answer would have fitted into a small one."""
FRAME_BYTES_SPARE: Final = 256 * 1024 * 1024
"""Bytes of an answer beyond those asked for: heads, and one batch of any size."""
RETRY_S_MIN: Final = 0.02
"""The first back-off after an error: a leader often learns of its new epoch a moment after its follower."""

_SIZE = struct.Struct(">i")


class LeaderLink:
    """A follower's connection to one leader. Connected as long as ``followers`` is not empty."""

    def __init__(self, fetchers: Fetchers, leader: int, config: BrokerConfig) -> None:
        self.leader = leader
        self.followers: set[Follower] = set()
        self._fetchers = fetchers
        self._partition_bytes_max = config.integer("replica.fetch.max.bytes")
        self._answer_bytes_max = config.integer("replica.fetch.response.max.bytes")
        self._min_bytes = config.integer("replica.fetch.min.bytes")
        self._wait_max_ms = config.integer("replica.fetch.wait.max.ms")
        self._backoff_s = config.integer("replica.fetch.backoff.ms") / 1000
        self._timeout_s = config.integer("replica.socket.timeout.ms") / 1000
        receive = config.integer("replica.socket.receive.buffer.bytes")
        self._receive_buffer_bytes = receive if config.is_given("replica.socket.receive.buffer.bytes") else 0
        self._loop = fetchers.loop
        self._leader_endpoints = fetchers.leader_endpoints
        self._want_flush = fetchers.flusher.want
        self._endpoint: LeaderEndpoint | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        """On which the transport was opened."""
        self._transport: asyncio.Transport | None = None
        self._refusal = ""
        """The last reason why the leader could not be followed; logged once."""
        self._retry_s = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at_s = 0.0
        self._slots: dict[int, Follower] = {}
        self._numbers = itertools.count()
        self._correlation_ids = itertools.count(1)
        self._outstanding: int | None = None
        self._to_forget: list[int] = []
        self._to_ask: dict[Follower, None] = {}
        self._to_report: dict[Follower, None] = {}
        self._resting: set[Follower] = set()
        self._scheduled = False
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0

    # --- its followers ------------------------------------------------------------------------------------------------

    def add(self, follower: Follower) -> None:
        """Start fetching a partition, or start again in another epoch."""
        self.drop(follower)
        follower.link = self
        follower.retry_s = 0.0
        self.followers.add(follower)
        self.ask(follower)
        self.connect()

    def drop(self, follower: Follower) -> None:
        """Stop fetching it."""
        self.followers.discard(follower)
        self._resting.discard(follower)
        self._forget(follower)
        follower.link = None

    def _forget(self, follower: Follower) -> None:
        """Free its slot; late answers for it are dropped."""
        if follower.slot >= 0:
            del self._slots[follower.slot]
            self._to_forget.append(follower.slot)
            follower.slot = -1
            self.schedule()
        self._to_ask.pop(follower, None)
        self._to_report.pop(follower, None)

    def ask(self, follower: Follower) -> None:
        """Fetch from the log end. The request names the partition if the leader does not know it."""
        self._to_ask[follower] = None
        self.schedule()

    def report(self, follower: Follower) -> None:
        """Report its flushed end to the leader."""
        if follower.slot >= 0:
            self._to_report[follower] = None
            self.schedule()

    def rest(self, follower: Follower, error: KlogError) -> None:
        """Back off; the leader drops its slot meanwhile."""
        self._forget(follower)
        follower.become(FollowerState.WAITING)
        follower.is_in_sync = False
        before_s, backoff_s = follower.retry_s, self._backoff_s
        follower.retry_s = min(max(2 * before_s, RETRY_S_MIN), backoff_s)
        if before_s < backoff_s <= follower.retry_s:  # logged once, and not for errors that pass quickly
            log.warning("%s: following broker %d: %s", follower.topic_partition, self.leader, error.message)
        self._resting.add(follower)
        self._loop.call_later(follower.retry_s, self._rested, follower)

    def _rested(self, follower: Follower) -> None:
        if follower in self._resting:
            self._resting.discard(follower)
            self.ask(follower)

    # --- the connection -----------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to the leader's current address, unless this link is connected, or connecting, there."""
        endpoint = self._leader_endpoints.endpoint_of(self.leader)
        if endpoint is None or not self.followers:
            if self._endpoint is not None:
                self._endpoint = None
                self._lost("it is not alive" if self.followers else "it leads nothing that is followed here")
            return
        if endpoint == self._endpoint:
            return
        if self._endpoint is not None:
            self._lost("it, or this broker, has registered again")
        self._endpoint = endpoint
        self._retry_s = 0.0
        self._connect_now()

    def close(self) -> None:
        """Close the connection; the followers stay unchanged."""
        self._endpoint = None
        self._lost("this broker stops")

    def _connect_now(self) -> None:
        self._retry = None
        if self._endpoint is not None and self._connecting is None and self._transport is None:
            self._connecting = self._loop.create_task(self._connect(self._endpoint))

    async def _connect(self, endpoint: LeaderEndpoint) -> None:
        """Run until connected, or cancelled for another endpoint."""
        transport: asyncio.Transport | None = None
        try:
            self._channel = await self._leader_endpoints.connect(self.leader, endpoint, self._timeout_s)
            transport = self._channel.hand_over(_Receiver(self))
        except (CannotConnect, TimedOut) as error:
            log.log(
                logging.WARNING if self._retry_s == 0 else logging.DEBUG,
                "no connection to the leader, broker %d: %s",
                self.leader,
                error.message,
            )
        except KlogError as error:
            if error.message != self._refusal:
                log.error("broker %d cannot be followed: %s", self.leader, error.message)
            self._refusal = error.message
        except Exception:  # followers must not wait for a link that nobody connects
            log.exception("no connection to the leader, broker %d", self.leader)
        self._connecting = None
        if transport is None:
            self._connect_later()
        else:
            self._connected(transport)

    def _connect_later(self) -> None:
        self._retry_s = min(max(2 * self._retry_s, RETRY_S_MIN), self._backoff_s)
        self._retry = self._loop.call_later(self._retry_s, self._connect_now)

    def _connected(self, transport: asyncio.Transport) -> None:
        if self._receive_buffer_bytes > 0:
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        self._transport = transport
        self._refusal = ""
        self._filled = 0
        self._heard_at_s = self._loop.time()
        self._watch = self._loop.call_later(self._timeout_s, self._look)
        self._send()

    def _look(self) -> None:
        """Close a connection over which nothing comes: an answer is always due."""
        silent_s = self._loop.time() - self._heard_at_s
        allowed_s = self._timeout_s + self._wait_max_ms / 1000
        if silent_s >= allowed_s:
            self._broken(f"nothing was received for {silent_s:.1f} s (replica.socket.timeout.ms)")
        else:
            self._watch = self._loop.call_later(allowed_s - silent_s, self._look)

    def _broken(self, reason: str) -> None:
        """Close the connection, and reconnect after a back-off."""
        log.warning("the connection to the leader, broker %d, is closed: %s", self.leader, reason)
        self._fetchers.probes.doubt(self.leader)
        self._lost(reason)
        if self._endpoint is not None:
            self._connect_later()

    def _lost(self, reason: str) -> None:
        """The connection has ended: the next one must name the followers again."""
        log.debug("link to broker %d: %s", self.leader, reason)
        for handle in (self._retry, self._watch):
            if handle is not None:
                handle.cancel()
        self._retry = self._watch = None
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._outstanding = None
        self._filled = 0
        self._slots.clear()
        self._to_forget.clear()
        self._to_report.clear()
        for follower in self.followers:
            self._fetchers.received(follower, 0)  # frees what the throttle has reserved
            follower.slot = -1
            follower.is_in_sync = False
            if follower.state in (FollowerState.NAMED, FollowerState.FETCHING):
                follower.become(FollowerState.WAITING)
            if follower.state is FollowerState.WAITING and follower not in self._resting:
                self._to_ask[follower] = None

    def connection_lost_by(self, receiver: _Receiver, error: Exception | None) -> None:
        if self.is_of(receiver):
            self._broken(str(error) if error is not None else "the leader closed it")

    # --- in -----------------------------------------------------------------------------------------------------------

    def is_of(self, receiver: _Receiver) -> bool:
        """Whether this is the connection in use."""
        return self._transport is not None and self._transport is receiver.transport

    def room(self) -> memoryview:
        """The free part of the buffer."""
        return self._buffer[self._filled :]

    def received(self, nbytes: int) -> None:
        """``nbytes`` more are in the buffer."""
        self._heard_at_s = self._loop.time()
        self._filled += nbytes
        try:
            self._take()
        except PeerError as error:
            self._broken(error.message)
        except Exception:
            log.exception("the connection to the leader, broker %d, is closed: internal error", self.leader)
            self._broken("internal error")

    def _take(self) -> None:
        at, transport = 0, self._transport
        while self._filled - at >= 4:
            (size,) = _SIZE.unpack_from(self._buffer, at)
            if not 4 <= size <= self._answer_bytes_max + FRAME_BYTES_SPARE:
                raise MalformedRequest(f"an answer claims {size} bytes")
            end = at + 4 + size
            if end > self._filled:
                self._make_room(at, 4 + size)
                return
            self._answered(self._buffer[at + 4 : end])
            if self._transport is not transport:
                return
            at = end
        self._make_room(at, 0)

    def _make_room(self, at: int, frame_bytes: int) -> None:
        """Move the rest to the front of a buffer that has room for more of the frame."""
        left = self._filled - at
        size = len(self._buffer)
        if frame_bytes > size:
            # As much again as has come: a false length costs its sender as much as this broker.
            size = min(frame_bytes, max(2 * left, KEEP_BUFFER_BYTES))
        elif size > KEEP_BUFFER_BYTES and not left and self._filled <= BUFFER_BYTES:
            size = BUFFER_BYTES
        if size != len(self._buffer):
            buffer = memoryview(bytearray(size))
            buffer[:left] = self._buffer[at : self._filled]
            self._buffer = buffer
        elif at and left:
            self._buffer[:left] = bytes(self._buffer[at : self._filled])
        self._filled = left

    def _answered(self, frame: memoryview) -> None:
        if replica_fetch.read_correlation_id(frame) != self._outstanding:
            raise MalformedRequest("an answer to a request that was not sent")
        self._outstanding = None
        for entry in replica_fetch.read_answer(frame):
            follower = self._slots.get(entry.slot)
            if follower is not None:
                self._answered_one(follower, entry)
        self._retry_s = 0.0
        self._send()

    def _answered_one(self, follower: Follower, entry: replica_fetch.Answer) -> None:
        if follower.state is FollowerState.TRUNCATING:
            return
        if isinstance(entry, Records):
            self._records(follower, entry)
        elif isinstance(entry, Failed):
            self._failed(follower, entry)
        elif isinstance(entry, Diverged):
            self._fetchers.truncate(follower, entry.epoch, LogEnd(entry.end_address, entry.end_offset))
        else:
            self._fetchers.begin_at(follower, entry.address, entry.start_offset)

    def _records(self, follower: Follower, entry: Records) -> None:
        if follower.state is FollowerState.NAMED:
            follower.become(FollowerState.FETCHING)
            self._fetchers.repairer.begin(follower)  # the leader has all of this log: it can repair what is lost here
        size = len(entry.data)
        self._fetchers.received(follower, size)
        if size:
            if entry.first_address > follower.log.end.address:
                self._fetchers.skip(follower, entry.first_address)
                return
            try:
                follower.log.append_at(entry.data, follower.leader_epoch)
            except (PeerError, CorruptLog) as error:
                if not follower.retry_s:  # logged once; the bytes will be the same the next time
                    log.error("%s: what broker %d sent: %s", follower.topic_partition, self.leader, error.message)
                self.rest(follower, error.bare())
                return
            except StorageError as error:
                if follower.log.log_dir.failure is not None:
                    self.fail(follower, error.bare())
                else:  # the disk is full, no descriptor is free, or the log is being deleted
                    self.rest(follower, error.bare())
                return
            self._want_flush(follower.log)
            self._to_ask[follower] = None
        follower.retry_s = 0.0
        follower.know(LogEnd(entry.high_address, entry.high_offset))
        if entry.start_offset > follower.log.start_offset:
            self._fetchers.raise_start(follower, entry.start_offset)

    def _failed(self, follower: Follower, entry: Failed) -> None:
        del self._slots[follower.slot]
        follower.slot = -1
        self.rest(follower, KlogError(f"error {entry.error_code}: {entry.message}"))

    def fail(self, follower: Follower, error: KlogError) -> None:
        """This broker's disk cannot append."""
        log.error("%s: no longer followed: %s", follower.topic_partition, error.message)
        self._forget(follower)
        follower.is_in_sync = False
        follower.become(FollowerState.FAILED)

    # --- out ----------------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Send the changes at the end of this turn of the loop."""
        if not self._scheduled and self._transport is not None:
            self._scheduled = True
            self._loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._scheduled = False
        if self._transport is not None:
            self._send()

    def _send(self) -> None:
        """Send the changes: as an update while a fetch is under way, else as the next fetch."""
        assert self._transport is not None
        entries = replica_fetch.Entries()
        for slot in self._to_forget:
            entries.forget(slot)
        self._to_forget.clear()
        asked, self._to_ask = self._to_ask, {}
        for follower in asked:
            if follower.state not in (FollowerState.WAITING, FollowerState.NAMED, FollowerState.FETCHING):
                continue
            if not self._fetchers.may_ask(follower):
                self._to_ask[follower] = None  # until the throttle has room again
                continue
            one = follower.log
            if one.log_dir.is_full and not self._has_room(follower):
                continue
            if follower.slot < 0:
                slot = follower.slot = next(self._numbers)
                self._slots[slot] = follower
                name = follower.topic_partition
                entries.name(slot, follower.topic_id, name.partition, follower.leader_epoch, name.topic)
            if follower.state is FollowerState.WAITING:
                follower.become(FollowerState.NAMED)
            flushed = follower.whole_end
            entries.want(
                follower.slot,
                one.last_batch_epoch,
                one.end.address,
                flushed.address,
                flushed.offset,
                self._fetchers.bytes_max(follower, self._partition_bytes_max),
            )
            self._to_report.pop(follower, None)
        for follower in self._to_report:
            flushed = follower.whole_end
            entries.flushed(follower.slot, flushed.address, flushed.offset)
        self._to_report.clear()
        if self._outstanding is None:
            self._outstanding = next(self._correlation_ids)
            self._transport.write(
                replica_fetch.fetch_request(
                    self._outstanding,
                    self._wait_max_ms,
                    self._min_bytes,
                    self._answer_bytes_max,
                    entries,
                )
            )
        elif entries:
            self._transport.write(replica_fetch.update(entries))

    def _has_room(self, follower: Follower) -> bool:
        """Whether its disk, which was full, has room again.

        Without room the follower must not count as in sync: nothing would be committed until it has left the ISR.
        """
        try:
            follower.log.log_dir.check_room(0)
        except DiskFull as error:
            self.rest(follower, error.bare())
            return False
        return True


class _Receiver(asyncio.BufferedProtocol):
    """One connection of a link. Bytes of a connection that the link no longer uses are dropped."""

    def __init__(self, link: LeaderLink) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self._link = link
        self._spill = bytearray(4096)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        return self._link.room() if self._link.is_of(self) else self._spill

    def buffer_updated(self, nbytes: int) -> None:
        if self._link.is_of(self):
            self._link.received(nbytes)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.connection_lost_by(self, error)


class Fetchers:
    """One per broker."""

    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        secret: Secret,
        flusher: Flusher,
        deletions: Deletions,
        probes: BrokerProbes,
    ) -> None:
        self.followed: dict[TopicPartition, Follower] = {}
        self.loop = runtime.loop
        self.leader_endpoints = LeaderEndpoints(runtime, image, secret)
        self._runtime = runtime
        self.flusher = flusher
        self._deletions = deletions
        self.probes = probes
        self._connections = runtime.config.integer("num.replica.fetchers")
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._jobs: dict[Follower, asyncio.Task[None]] = {}
        self._throttle = Throttle(runtime.broker_id)
        self._throttled: asyncio.TimerHandle | None = None
        self.repairer = Repairer(runtime, deletions, self.leader_endpoints, self.followed)

    # --- followed partitions ------------------------------------------------------------------------------------------

    def follow(
        self, assigned: Assignment, partition_log: Log, high_watermark: int = 0, *, keep_truncated: bool = False
    ) -> Follower:
        """Follow the leader of an assignment from now on. May be called again at any time, with changed arguments.

        ``high_watermark``: an address, the last one known (from the checkpoint, or from leading), at most the log end.
        ``keep_truncated``: keep truncated bytes as ``.lost`` files in any case, after an unclean election. If the log
        has a later epoch than the leader's, the follower is FENCED (rule R3).
        """
        name, state = assigned.name, assigned.state
        leader, leader_epoch = state.leader, state.leader_epoch
        follower = self.followed.get(name)
        if follower is None or follower.log is not partition_log:
            if follower is not None:
                self._drop(follower)
            follower = self.followed[name] = Follower(
                name,
                assigned.topic_id,
                partition_log,
                leader=leader,
                leader_epoch=leader_epoch,
                state_version=state.version,
                high_watermark=_log_end_at(partition_log, high_watermark),
                keep_truncated=keep_truncated,
            )
        elif (follower.leader, follower.leader_epoch) == (leader, leader_epoch):
            follower.state_version = state.version
            follower.keep_truncated = follower.keep_truncated or keep_truncated
            if follower.link is not None:
                follower.link.connect()
                # The leader forgets the position of a broker that leaves the ISR until its next report (KIP-841).
                follower.link.report(follower)
            return follower
        if follower.state is FollowerState.FAILED:
            return follower
        self._drop(follower)
        follower.leader, follower.leader_epoch, follower.state_version = leader, leader_epoch, state.version
        follower.keep_truncated = keep_truncated
        follower.is_in_sync = False
        follower.leader_high = LogEnd(-1, -1)
        if follower.state is not FollowerState.TRUNCATING:
            partition_log.forget_empty_epochs()
            if leader_epoch < partition_log.last_batch_epoch:
                log.error(
                    "%s: not following broker %d in epoch %d: this log has epoch %d already",
                    name,
                    leader,
                    leader_epoch,
                    partition_log.last_batch_epoch,
                )
                follower.become(FollowerState.FENCED)
                return follower
            follower.become(FollowerState.WAITING)
            self.repairer.look_for_holes(follower)
        self._link(follower).add(follower)
        return follower

    def unfollow(self, name: TopicPartition) -> None:
        """Append nothing more to it. A thread may still use its log: see `let_go`."""
        follower = self.followed.pop(name, None)
        if follower is not None:
            self._drop(follower)

    async def let_go(self, names: Iterable[TopicPartition]) -> None:
        """`unfollow` them, and return when no thread uses their logs."""
        wanted = set(names)
        for name in wanted:
            self.unfollow(name)
        jobs = [job for follower, job in self._jobs.items() if follower.topic_partition in wanted]
        if jobs:
            await asyncio.wait(jobs)

    def _drop(self, follower: Follower) -> None:
        link = follower.link
        if link is not None:
            link.drop(follower)
            if not link.followers:
                self.loop.call_soon(link.connect)  # closes it, unless it has another follower by then

    def _link(self, follower: Follower) -> LeaderLink:
        number = crc32(str(follower.topic_partition).encode()) % self._connections
        key = follower.leader, number
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(self, follower.leader, self._runtime.config)
        return link

    # --- events -------------------------------------------------------------------------------------------------------

    def brokers_changed(self) -> None:
        """``image.brokers`` or this broker's incarnation has changed: connect to the leaders' current addresses."""
        for link in self._links.values():
            link.connect()

    def flushed(self, flushed_log: Log, outcome: LogEnd | StorageError) -> None:
        """A flush has ended. Ignored for a log that is not followed."""
        follower = self.followed.get(flushed_log.topic_partition)
        if follower is None or follower.log is not flushed_log or follower.state is FollowerState.FAILED:
            return
        if isinstance(outcome, StorageError):
            if follower.link is not None and follower.log.log_dir.failure is not None:
                follower.link.fail(follower, outcome)
            return
        follower.advance()
        if follower.link is not None:
            follower.link.report(follower)

    def take_rates(self, update: Any) -> None:
        """Limit the rate of replicas that reassignments add to this broker, by an UpdateMetadata request."""
        if self._throttle.take(update):
            self._room()

    def damaged(self, damaged_log: Log, first: int, end: int) -> None:
        """A range of a log is damaged: repair it from the leader, if the log is followed."""
        follower = self.followed.get(damaged_log.topic_partition)
        if follower is not None and follower.log is damaged_log:
            self.repairer.lost(follower, first, end)

    def suspend(self) -> None:
        """The session has expired: fetch nothing until this broker has registered again and calls `brokers_changed`."""
        self.leader_endpoints.suspend()
        self.brokers_changed()

    def close(self) -> None:
        """Stop fetching. `let_go` waits for the threads that use the logs."""
        self.leader_endpoints.close()
        if self._throttled is not None:
            self._throttled.cancel()
        for link in self._links.values():
            link.close()

    # --- called by links ----------------------------------------------------------------------------------------------

    def bytes_max(self, follower: Follower, bytes_max: int) -> int:
        """The number of bytes to ask for."""
        return self._throttle.reserve(follower, bytes_max, self.loop.time())

    def may_ask(self, follower: Follower) -> bool:
        """Whether the throttle has room for more of this partition. If not, all links try again when it has."""
        wait_s = self._throttle.wait_s(follower, self.loop.time())
        if wait_s <= 0:
            return True
        if self._throttled is None:
            self._throttled = self.loop.call_later(wait_s, self._room)
        return False

    def _room(self) -> None:
        self._throttled = None
        for link in self._links.values():
            link.schedule()

    def received(self, follower: Follower, size: int) -> None:
        """An answer has come, with ``size`` bytes."""
        self._throttle.received(follower, size)
        self._runtime.measures.replication_bytes_in += size

    # --- changes to a log other than appends --------------------------------------------------------------------------

    def truncate(self, follower: Follower, epoch: int, end: LogEnd) -> None:
        """The leader's ``epoch`` ends at ``end``: truncate there, or at this log's end of the epoch, and ask again."""
        self._in_thread(follower, lambda: self._truncate(follower, divergence.Diverged(epoch, end)))

    def begin_at(self, follower: Follower, address: int, start_offset: int) -> None:
        """The leader has nothing of this log: restart it where the leader's begins."""
        self._in_thread(follower, lambda: self._begin_at(follower, address, start_offset))

    def skip(self, follower: Follower, address: int) -> None:
        """The leader's log has a hole from this log's end up to ``address``."""
        self._in_thread(follower, lambda: self._skip(follower, address))

    def _in_thread(self, follower: Follower, work: Callable[[], None]) -> None:
        follower.become(FollowerState.TRUNCATING)
        self._jobs[follower] = self._runtime.spawn(self._job(follower, work))

    async def _job(self, follower: Follower, work: Callable[[], None]) -> None:
        error: KlogError | None = None
        try:
            async with follower.alone, self._deletions.none_running(follower.log.log_dir.path):
                await self._runtime.executors.run_at(follower.log.log_dir.path, Purpose.REPLICAS, work)
        except KlogError as problem:
            error = problem.bare()
        finally:
            del self._jobs[follower]
        follower.was_truncated()
        self.repairer.look_for_holes(follower)
        link = follower.link
        if link is None:
            follower.become(FollowerState.WAITING)
        elif error is None:
            follower.become(FollowerState.WAITING)
            link.ask(follower)
        elif follower.log.log_dir.failure is not None:
            link.fail(follower, error)
        else:
            log.error("%s: %s", follower.topic_partition, error.message)
            link.rest(follower, error)

    def _truncate(self, follower: Follower, diverged: divergence.Diverged) -> None:
        """In a thread."""
        one, name = follower.log, follower.topic_partition
        end = one.end.address
        address = one.floor(truncation_address(one.epoch_starts, one.start_address, end, diverged)).address
        if address >= end:
            raise CorruptLog(
                f"{name}: on broker {follower.leader} epoch {diverged.epoch} ends at {diverged.end.address};"
                f" this log ends at {end}, and there is nothing to truncate"
            )
        keep = self._is_worth_keeping(follower, address)
        files = one.truncate(address, keep_truncated=keep)
        self._tell_truncation(
            follower, address, end, f"epoch {diverged.epoch} ends at {diverged.end.address} there", files
        )

    def _begin_at(self, follower: Follower, address: int, start_offset: int) -> None:
        """In a thread."""
        one = follower.log
        end = one.end.address
        keep = self._is_worth_keeping(follower, address)
        files = one.restart(address, start_offset, keep_truncated=keep)
        self._tell_truncation(follower, address, end, f"its log begins at {address}, above the end of this log", files)

    def _is_worth_keeping(self, follower: Follower, address: int) -> bool:
        """Whether truncated bytes from ``address`` on may have been acknowledged.

        After a kill the high watermark is that of the last checkpoint. With unclean elections allowed, everything is
        kept.
        """
        may_be_unclean = follower.keep_truncated or follower.log.config.unclean_leader_election
        return may_be_unclean or address < follower.high_watermark.address

    def _tell_truncation(self, follower: Follower, address: int, end: int, reason: str, files: list[str]) -> None:
        name, high = follower.topic_partition, follower.high_watermark.address
        why = f"broker {follower.leader} leads in epoch {follower.leader_epoch}, and {reason}"
        if not files:
            log.info("%s: truncated at %d (it ended at %d): %s", name, address, end, why)
            return
        log.error(
            "%s: MESSAGES ARE LOST: truncated at %d (it ended at %d, the high watermark was %d): %s;"
            " the bytes are kept in %s/%s",
            name,
            address,
            end,
            high,
            why,
            follower.log.folder,
            ", ".join(files),
        )
        facts = {
            "topic": name.topic,
            "partition": name.partition,
            "cut_at": address,
            "ended_at": end,
            "high_watermark": high,
            "leader": follower.leader,
            "leader_epoch": follower.leader_epoch,
            "files": files,
        }
        self._runtime.from_thread(self._runtime.tell_facts, "messages-lost", facts)

    def _skip(self, follower: Follower, address: int) -> None:
        """In a thread."""
        one = follower.log
        end = one.end.address
        one.skip_to(address, f"a hole in the log of the leader, broker {follower.leader}")
        log.error(
            "%s: the leader, broker %d, has a hole from %d to %d: it is a hole here as well",
            follower.topic_partition,
            follower.leader,
            end,
            address,
        )

    def raise_start(self, follower: Follower, start_offset: int) -> None:
        """Raise the start offset to the leader's (retention, DeleteRecords), as far as this log goes."""
        if not follower.raising_start:
            follower.raising_start = True
            self._runtime.spawn(self._raise_start(follower, start_offset))

    async def _raise_start(self, follower: Follower, start_offset: int) -> None:
        def plan() -> RetentionRun:
            one = follower.log
            if (
                one.is_closed
                or one.log_dir.failure is not None
                or self.followed.get(follower.topic_partition) is not follower
            ):
                return RetentionRun([])
            deletion = one.plan_records_deletion(min(start_offset, one.end.offset))
            return RetentionRun([] if deletion is None else [(one, deletion)])

        try:
            await self._deletions.run(follower.log.log_dir.path, plan)
        finally:
            follower.raising_start = False


def _log_end_at(one: Log, address: int) -> LogEnd:
    """The `LogEnd` at an address; at the log's end at most."""
    if address >= one.end.address:
        return one.end
    if address <= one.start_address:
        return LogEnd(one.start_address, one.start_offset)
    return one.floor(address) if one.is_known(address) else LogEnd(address, address)
