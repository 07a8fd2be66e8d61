"""What a broker follows: which partitions, by which connections, and what becomes of their logs where they disagree.

Strategy: `LeaderLink` asks and appends; here stands everything that is not the path of a message. A log is cut, begun
anew or led over a hole in a thread, with no deletion of the broker running meanwhile, and asked about again when that
is done. What is cut below the high watermark that we know, or after an unclean election, stays beside the log as
``.lost`` files, and the log line says so: everything else that is cut was never committed.

Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID
from zlib import crc32

from klog.errors import CorruptLog, KlogError, StorageError
from klog.names import TopicPartition
from klog.protocol import replica_fetch
from klog.protocol.introduction import Introduction
from klog.replication.divergence import Diverged, cut_address
from klog.server.executors import Purpose
from klog.server.follower import Follower, FollowerState
from klog.server.leader_link import FetchSettings, LeaderLink, Target
from klog.server.reach import introduction
from klog.server.refills import Refills
from klog.server.throttle import Throttle
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import RetentionRun

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


class Fetchers:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self.followed: dict[TopicPartition, Follower] = {}
        self.loop = broker.loop
        self.client_id = broker.client_id
        self._broker = broker
        self._settings = FetchSettings.of(broker.config)
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._jobs: dict[Follower, asyncio.Task[None]] = {}
        self._throttle = Throttle()
        self._throttled: asyncio.TimerHandle | None = None
        self._suspended: int | None = None
        """The incarnation under which nobody is asked any more: its session is gone."""
        self._closed = False
        self._refills = Refills(broker, self)

    # --- what is followed ---------------------------------------------------------------------------------------------

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
        keep_cut: bool = False,
    ) -> Follower:
        """Follow ``leader`` in its epoch from now on; again, with what has changed, at any time.

        ``high_watermark`` is an address: what is known of it (our checkpoint, or our time as leader), taken as far as
        the log goes.
        ``keep_cut``: what is cut stays as ``.lost`` whatever it was, after an unclean election.
        A leader's epoch below the last in our log is refused: the follower is FENCED (rule R3).
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
                keep_cut=keep_cut,
            )
        elif (follower.leader, follower.leader_epoch) == (leader, leader_epoch):
            follower.state_version = state_version
            follower.keep_cut = follower.keep_cut or keep_cut
            if follower.link is not None:
                follower.link.connect()
                follower.link.report(follower)  # who was put out of the ISR is forgotten until he speaks (KIP-841)
            return follower
        if follower.state is FollowerState.FAILED:
            return follower
        self._drop(follower)
        follower.leader, follower.leader_epoch, follower.state_version = leader, leader_epoch, state_version
        follower.keep_cut = keep_cut
        follower.is_in_sync = False
        follower.leader_high = LogEnd(-1, -1)
        if follower.state is not FollowerState.CUTTING:
            partition_log.forget_empty_epochs()
            if leader_epoch < partition_log.last_batch_epoch:
                log.error(
                    "%s: not following broker %d in epoch %d: our log has epoch %d already",
                    name,
                    leader,
                    leader_epoch,
                    partition_log.last_batch_epoch,
                )
                follower.become(FollowerState.FENCED)
                return follower
            follower.become(FollowerState.WAITING)
            self._refills.look_for_holes(follower)
        self._link(follower).add(follower)
        return follower

    def unfollow(self, name: TopicPartition) -> None:
        """Take nothing more for it from now on. A thread may still be at its log: see `let_go`."""
        follower = self.followed.pop(name, None)
        if follower is not None:
            self._drop(follower)

    async def let_go(self, names: Iterable[TopicPartition]) -> None:
        """`unfollow` them, and return when no thread is at their logs any more."""
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
                self.loop.call_soon(link.connect)  # closes it, unless somebody else has come by then

    def _link(self, follower: Follower) -> LeaderLink:
        number = crc32(str(follower.topic_partition).encode()) % self._settings.connections
        key = follower.leader, number
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(self, follower.leader, self._settings)
        return link

    # --- around it ----------------------------------------------------------------------------------------------------

    def brokers_changed(self) -> None:
        """``image.brokers`` is new, or our own incarnation: connect to where the leaders are now."""
        for link in self._links.values():
            link.connect()

    def flushed(self, flushed_log: Log, outcome: LogEnd | StorageError) -> None:
        """A flush has ended; of a log that is not followed it is nothing to us."""
        follower = self.followed.get(flushed_log.topic_partition)
        if follower is None or follower.log is not flushed_log or follower.state is FollowerState.FAILED:
            return
        if isinstance(outcome, StorageError):
            if follower.link is not None and follower.log.home.failure is not None:
                follower.link.fail(follower, outcome)
            return
        follower.advance()
        if follower.link is not None:
            follower.link.report(follower)

    def throttle(self, names: set[TopicPartition], bytes_per_s: float | None) -> None:
        """Take no more than so many bytes a second for all of these together, but for those in sync; None: no limit."""
        self._throttle.set(names, bytes_per_s)
        self._room()

    def damaged(self, damaged_log: Log, first: int, end: int) -> None:
        """Bytes of a log no longer check: taken from the leader again, if it is followed."""
        follower = self.followed.get(damaged_log.topic_partition)
        if follower is not None and follower.log is damaged_log:
            self._refills.lost(follower, first, end)

    def suspend(self) -> None:
        """Our session is gone: ask nobody until we have another incarnation, and `brokers_changed` is called."""
        self._suspended = self._broker.incarnation
        self.brokers_changed()

    def close(self) -> None:
        """Ask nobody any more. What a thread is at is waited for by `let_go`."""
        self._closed = True
        if self._throttled is not None:
            self._throttled.cancel()
        for link in self._links.values():
            link.close()

    # --- what links ask -----------------------------------------------------------------------------------------------

    def target_of(self, leader: int) -> Target | None:
        """Where a leader is reached; None where it is not alive, or we may ask nobody."""
        own = self._broker.incarnation
        broker = self._broker.image.brokers.get(leader)
        if broker is None or self._closed or own == self._suspended:
            return None
        if broker.inter_port > 0:
            return Target(broker.inter_host, broker.inter_port, broker.incarnation, own)
        return Target(broker.host, broker.port, broker.incarnation, own)

    def ended(self, leader: int) -> None:
        """The connection to a leader has ended."""
        self._broker.knocks.doubt(leader)

    def open_request(self, leader: int, target: Target) -> bytes:
        broker = self._broker
        return replica_fetch.open_request(broker.image.cluster_id, broker.broker_id, target.own_incarnation, leader)

    def introduction(self, leader: int) -> Introduction:
        """What shows the leader that we are a broker of its cluster (rule R10)."""
        return introduction(self._broker, leader)

    def bytes_max(self, follower: Follower, bytes_max: int) -> int:
        """How much to ask for a partition."""
        return self._throttle.reserve(follower, bytes_max, self.loop.time())

    def may_ask(self, follower: Follower) -> bool:
        """Whether the throttle has room for more of this partition; if not, its link is told when it has."""
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
        """The leader's log is ours up to our end: what is lost here can be had there."""
        self._refills.begin(follower)

    def received(self, follower: Follower, size: int) -> None:
        """An answer has come, with so many bytes."""
        self._throttle.received(follower, size)
        self._broker.measures.replication_bytes_in += size

    def appended(self, follower: Follower) -> None:
        """The log was appended to: flush it when its rule says so."""
        self._broker.flusher.want(follower.log)

    # --- what changes a log but for appending -------------------------------------------------------------------------

    def cut(self, follower: Follower, epoch: int, end: LogEnd) -> None:
        """The leader has nothing of ``epoch`` behind ``end``: cut there, or at our own end of it, and ask again."""
        self._in_thread(follower, lambda: self._cut(follower, Diverged(epoch, end)))

    def begin_at(self, follower: Follower, address: int, start_offset: int) -> None:
        """The leader has nothing that we have: begin anew where its log begins."""
        self._in_thread(follower, lambda: self._begin_at(follower, address, start_offset))

    def skip(self, follower: Follower, address: int) -> None:
        """The leader's log has a hole behind our end, up to ``address``."""
        self._in_thread(follower, lambda: self._skip(follower, address))

    def _in_thread(self, follower: Follower, work: Callable[[], None]) -> None:
        follower.become(FollowerState.CUTTING)
        self._jobs[follower] = self._broker.spawn(self._job(follower, work))

    async def _job(self, follower: Follower, work: Callable[[], None]) -> None:
        error: KlogError | None = None
        try:
            async with follower.alone, self._broker.deletions.none_running(follower.log.home.path):
                await self._broker.executors.run_at(follower.log.home.path, Purpose.REPLICAS, work)
        except KlogError as problem:
            error = problem.bare()
        finally:
            del self._jobs[follower]
        follower.was_cut()
        self._refills.look_for_holes(follower)
        link = follower.link
        if link is None:
            follower.become(FollowerState.WAITING)
        elif error is None:
            follower.become(FollowerState.WAITING)
            link.ask(follower)
        elif follower.log.home.failure is not None:
            link.fail(follower, error)
        else:
            log.error("%s: %s", follower.topic_partition, error.message)
            link.rest(follower, error)

    def _cut(self, follower: Follower, diverged: Diverged) -> None:
        """In a thread."""
        one, name = follower.log, follower.topic_partition
        end = one.end.address
        address = one.floor(cut_address(one.epoch_starts, one.start_address, end, diverged)).address
        if address >= end:
            raise CorruptLog(
                f"{name}: broker {follower.leader} says that epoch {diverged.epoch} ends at {diverged.end.address};"
                f" our log ends at {end}, and there is nothing to cut"
            )
        keep = self._is_worth_keeping(follower, address)
        files = one.truncate(address, keep_cut=keep)
        self._tell_cut(follower, address, end, f"epoch {diverged.epoch} ends at {diverged.end.address} there", files)

    def _begin_at(self, follower: Follower, address: int, start_offset: int) -> None:
        """In a thread."""
        one = follower.log
        end = one.end.address
        keep = self._is_worth_keeping(follower, address)
        files = one.restart(address, start_offset, keep_cut=keep)
        self._tell_cut(follower, address, end, f"its log begins at {address}, behind all that we have", files)

    def _is_worth_keeping(self, follower: Follower, address: int) -> bool:
        """Whether what is cut from ``address`` on may have been acknowledged.

        After a kill the high watermark is that of the last checkpoint, so where unclean elections are allowed all is.
        """
        may_be_unclean = follower.keep_cut or follower.log.config.unclean_leader_election
        return may_be_unclean or address < follower.high_watermark.address

    def _tell_cut(self, follower: Follower, address: int, end: int, reason: str, files: list[str]) -> None:
        name, leader, epoch = follower.topic_partition, follower.leader, follower.leader_epoch
        if not files:
            log.info(
                "%s: cut at %d (it ended at %d): broker %d leads in epoch %d, and %s",
                name,
                address,
                end,
                leader,
                epoch,
                reason,
            )
            return
        log.error(
            "%s: MESSAGES ARE LOST: cut at %d (it ended at %d, the high watermark was %d): broker %d leads in epoch %d,"
            " and %s; the bytes are kept in %s/%s",
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
        self._broker.from_thread(
            self._broker.tell_facts,
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
            "%s: the leader, broker %d, has nothing from %d to %d: a hole here as well",
            follower.topic_partition,
            follower.leader,
            end,
            address,
        )

    def raise_start(self, follower: Follower, start_offset: int) -> None:
        """The leader's log starts later by now (retention, DeleteRecords): so does ours, as far as it goes."""
        if not follower.raising_start:
            follower.raising_start = True
            self._broker.spawn(self._raise_start(follower, start_offset))

    async def _raise_start(self, follower: Follower, start_offset: int) -> None:
        def plan() -> RetentionRun:
            one = follower.log
            if (
                one.is_closed
                or one.home.failure is not None
                or self.followed.get(follower.topic_partition) is not follower
            ):
                return RetentionRun([])
            deletion = one.plan_delete_records(min(start_offset, one.end.offset))
            return RetentionRun([] if deletion is None else [(one, deletion)])

        try:
            await self._broker.deletions.run(follower.log.home.path, plan)
        finally:
            follower.raising_start = False


def _log_end_at(one: Log, address: int) -> LogEnd:
    """An address as both words for an end; at the log's end at most."""
    if address >= one.end.address:
        return one.end
    if address <= one.start_address:
        return LogEnd(one.start_address, one.start_offset)
    return one.floor(address) if one.is_known(address) else LogEnd(address, address)
