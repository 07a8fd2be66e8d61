"""The partitions that a broker follows, the connections to their leaders, and the truncation of diverged logs.

Strategy: `LeaderLink` fetches and appends; this module does everything else. A thread truncates a log, restarts it at
another address, or moves it past a hole, with no deletion in that log dir meanwhile; then the follower asks the leader
again. Bytes truncated below the known high watermark, or after an unclean election, are kept beside the log as
``.lost`` files, which the log line names. Everything else that is truncated was never committed.

Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID
from zlib import crc32

from klog.errors import CorruptLog, KlogError, StorageError
from klog.names import TopicPartition
from klog.replication.divergence import Diverged, truncation_address
from klog.replication.follower import Follower, FollowerState
from klog.replication.follower_throttle import Throttle
from klog.secret import Secret
from klog.server.broker_probes import BrokerProbes
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.leader_endpoints import LeaderEndpoints
from klog.server.replicas.leader_link import FetchSettings, LeaderLink
from klog.server.replicas.repair import Repairer
from klog.server.runtime import Runtime
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import RetentionRun

log = logging.getLogger(__name__)


class Fetchers:
    """See the module."""

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
        self._flusher = flusher
        self._deletions = deletions
        self._probes = probes
        self._settings = FetchSettings.of(runtime.config)
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._jobs: dict[Follower, asyncio.Task[None]] = {}
        self._throttle = Throttle()
        self._throttled: asyncio.TimerHandle | None = None
        self._repairer = Repairer(runtime, deletions, self.leader_endpoints, self.followed)

    # --- followed partitions ------------------------------------------------------------------------------------------

    def follow(
        self,
        name: TopicPartition,
        topic_id: UUID,
        partition_log: Log,
        leader: int,
        leader_epoch: int,
        state_version: int,
        high_watermark: int = 0,
        *,
        keep_truncated: bool = False,
    ) -> Follower:
        """Follow ``leader`` in its epoch from now on. May be called again at any time, with changed arguments.

        ``high_watermark``: an address, the last one known (from the checkpoint, or from leading), at most the log end.
        ``keep_truncated``: keep truncated bytes as ``.lost`` files in any case, after an unclean election. If the log
        has a later epoch than the leader's, the follower is FENCED (rule R3).
        """
        follower = self.followed.get(name)
        if follower is None or follower.log is not partition_log:
            if follower is not None:
                self._drop(follower)
            follower = self.followed[name] = Follower(
                name,
                topic_id,
                partition_log,
                leader=leader,
                leader_epoch=leader_epoch,
                state_version=state_version,
                high_watermark=_log_end_at(partition_log, high_watermark),
                keep_truncated=keep_truncated,
            )
        elif (follower.leader, follower.leader_epoch) == (leader, leader_epoch):
            follower.state_version = state_version
            follower.keep_truncated = follower.keep_truncated or keep_truncated
            if follower.link is not None:
                follower.link.connect()
                # The leader forgets the position of a broker that leaves the ISR until its next report (KIP-841).
                follower.link.report(follower)
            return follower
        if follower.state is FollowerState.FAILED:
            return follower
        self._drop(follower)
        follower.leader, follower.leader_epoch, follower.state_version = leader, leader_epoch, state_version
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
            self._repairer.look_for_holes(follower)
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
        number = crc32(str(follower.topic_partition).encode()) % self._settings.connections
        key = follower.leader, number
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(self, follower.leader, self._settings)
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

    def throttle(self, names: set[TopicPartition], bytes_per_s: float | None) -> None:
        """Limit the rate for all of these together, in-sync replicas excepted; None: no limit."""
        self._throttle.set(names, bytes_per_s)
        self._room()

    def damaged(self, damaged_log: Log, first: int, end: int) -> None:
        """A range of a log is damaged: repair it from the leader, if the log is followed."""
        follower = self.followed.get(damaged_log.topic_partition)
        if follower is not None and follower.log is damaged_log:
            self._repairer.lost(follower, first, end)

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

    def ended(self, leader: int) -> None:
        """The connection to a leader has ended."""
        self._probes.doubt(leader)

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

    def agreed(self, follower: Follower) -> None:
        """The leader has all of this log up to its end: it can repair what is lost here."""
        self._repairer.begin(follower)

    def received(self, follower: Follower, size: int) -> None:
        """An answer has come, with ``size`` bytes."""
        self._throttle.received(follower, size)
        self._runtime.measures.replication_bytes_in += size

    def appended(self, follower: Follower) -> None:
        """Flush the log when its settings say so."""
        self._flusher.want(follower.log)

    # --- changes to a log other than appends --------------------------------------------------------------------------

    def truncate(self, follower: Follower, epoch: int, end: LogEnd) -> None:
        """The leader's ``epoch`` ends at ``end``: truncate there, or at this log's end of the epoch, and ask again."""
        self._in_thread(follower, lambda: self._truncate(follower, Diverged(epoch, end)))

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
        self._repairer.look_for_holes(follower)
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

    def _truncate(self, follower: Follower, diverged: Diverged) -> None:
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
        name, leader, epoch = follower.topic_partition, follower.leader, follower.leader_epoch
        if not files:
            log.info(
                "%s: truncated at %d (it ended at %d): broker %d leads in epoch %d, and %s",
                name,
                address,
                end,
                leader,
                epoch,
                reason,
            )
            return
        log.error(
            "%s: MESSAGES ARE LOST: truncated at %d (it ended at %d, the high watermark was %d): broker %d leads in"
            " epoch %d, and %s; the bytes are kept in %s/%s",
            name,
            address,
            end,
            follower.high_watermark.address,
            leader,
            epoch,
            reason,
            follower.log.folder,
            ", ".join(files),
        )
        self._runtime.from_thread(
            self._runtime.tell_facts,
            "messages-lost",
            {
                "topic": name.topic,
                "partition": name.partition,
                "cut_at": address,
                "ended_at": end,
                "high_watermark": follower.high_watermark.address,
                "leader": leader,
                "leader_epoch": epoch,
                "files": files,
            },
        )

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
            deletion = one.deletion.plan_records(min(start_offset, one.end.offset))
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
    return one.floor(address) if one.reader.is_known(address) else LogEnd(address, address)
