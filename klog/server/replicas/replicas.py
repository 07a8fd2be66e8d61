"""The replicas of this broker: those that it leads and follows, and the controller's requests about them.

Decide, then do: a LeaderAndIsr request is sorted into partitions to lead, to follow, to keep leading with a new ISR,
and to release. Partitions that this broker no longer leads are resigned first, before it waits for anything. A thread
opens or creates all logs together; then each partition is led or followed, on the loop. A request may come twice; each
part of it is carried out once.

Rules
* R1: a leader creates an empty log only if the state is marked new, and clears the mark before it leads. A leader
  without its log is a failed replica. A new incarnation does not lead under an epoch of an earlier one.
* R2: a broker that no longer leads, or leads in another epoch, fails every waiting acknowledgement.
* R4: a leader whose own disk delays the partition hands leadership over.
* R6: a leader without fetching followers reads its state again.
* L10: a log under another UUID belongs to another topic: it is set aside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from klog.coordination import paths
from klog.coordination.partition_states import NO_LEADER
from klog.coordination.zookeeper import Check
from klog.errors import (
    KlogError,
    NotLeader,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
    ZooKeeperError,
)
from klog.names import TopicPartition, counted
from klog.protocol.interbroker import DELETED_TOPIC_EPOCH, LeaderAndIsrRequest, StopReplicaRequest
from klog.replication.isr import incarnation_of
from klog.replication.led_partition import REFUSED_S, LedPartition
from klog.server.authority import Authority
from klog.server.executors import Purpose
from klog.server.image import ClusterImage
from klog.server.replicas.disk_wait import at_disks
from klog.server.replicas.fetchers import Fetchers
from klog.server.replicas.isr_monitor import IsrMonitor
from klog.server.replicas.isr_writer import IsrWriter, write_states
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.opening import Assignment, Opened, open_logs
from klog.server.replicas.removal import remove_logs, undeletable
from klog.server.runtime import Runtime
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)


class Replicas:
    """See the module. Event loop only; disk and ZooKeeper calls run in threads, one request at a time."""

    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        log_dirs: LogDirs,
        flusher: Flusher,
        authority: Authority,
        report_isr: Callable[[Collection[TopicPartition]], None],
        report_offline: Callable[..., None],
        fetchers: Fetchers,
        on_assigned: Callable[[], None],
    ) -> None:
        """``on_assigned`` is called when a request with all of this broker's replicas has been carried out."""
        self._runtime = runtime
        self._identity = runtime.identity
        self._image = image
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._authority = authority
        self._on_assigned = on_assigned
        self.partitions = LedPartitions(runtime.broker_id, image)
        """The partitions that this broker leads."""
        self.fetchers = fetchers
        self.followed = self.fetchers.followed
        """The partitions that this broker follows."""
        self._assignments: dict[TopicPartition, Assignment] = {}
        self._fences: dict[str, int] = {}
        self._applying = asyncio.Lock()
        self._damaged: dict[Log, list[tuple[int, int]]] = {}
        """Logs that this broker leads, and their damaged ranges (rule L2)."""
        self._seen: dict[TopicPartition, tuple[UUID, int]] = {}
        """The newest version of a state that this broker had written or read in ZooKeeper when it stopped leading."""
        self._suspended: int | None = None
        """The incarnation whose session has expired."""
        writer = IsrWriter(runtime, image, report_isr, self.fence_of, self.step_down)
        self._monitor = IsrMonitor(runtime, image, log_dirs, report_offline, self.partitions, self._damaged, writer)

    # --- requests of the controller -----------------------------------------------------------------------------------

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[str, Any]:
        """Lead, follow and release partitions by the controller's LeaderAndIsr request; returns the answer's values.

        A partition fails if its replica has no log, or its disk is offline. Raises what `Authority.check` does, and
        RequestTimedOut if the outcome of a write to ZooKeeper is unknown: the controller repeats its request.
        """
        self._monitor.start()
        async with self._applying:
            await self._authority.check(request.controller_epoch, request.incarnation)
            lead: dict[TopicPartition, Assignment] = {}
            follow: dict[TopicPartition, Assignment] = {}
            named = set()
            adopted = 0
            for topic in request.topics:
                self._fences[topic.name] = topic.fence_version
                for state in topic.partitions:
                    assigned = Assignment.of(topic, state)
                    named.add(assigned.name)
                    adopted += self._sort(assigned, lead, follow)
            if adopted:
                log.info("in-sync sets of %s, from the controller", counted(adopted, "partition"))
            if request.is_full:
                self._release((self._assignments.keys() | self.partitions.keys() | self.followed.keys()) - named)
            try:
                failed = await self._carry_out(lead, follow)
            except KlogError as error:
                log.warning("not all replicas could be assigned: %s; the controller repeats its request", error.message)
                raise RequestTimedOut(error.message) from None
        if request.is_full:
            self._on_assigned()
        return _outcome(failed)

    def _sort(
        self, assigned: Assignment, lead: dict[TopicPartition, Assignment], follow: dict[TopicPartition, Assignment]
    ) -> bool:
        """Decide what to do with one partition. One that this broker stops leading is resigned at once.

        Returns whether it is led as before, with another ISR.
        """
        name, state, known = assigned.name, assigned.state, self._assignments.get(assigned.name)
        if known is not None and known.topic_id == assigned.topic_id:
            if state.leader_epoch < known.leader_epoch:
                log.info("%s: leader epoch %d is over: it is %d now", name, state.leader_epoch, known.leader_epoch)
                return False
            if state.leader_epoch == known.leader_epoch and state.version < known.state.version:
                # This broker has written the state since. It does not name the replicas: the controller's are right.
                state = known.state
                assigned = assigned._replace(state=state)
        self._assignments[name] = assigned
        partition = self.partitions.get(name)
        if partition is not None and self._is_still_led(assigned, partition):
            is_new = partition.adopt(assigned.replicas, state)
            if is_new:  # not one INFO line each: a broker's death concerns ten thousand
                log.debug("%s: ISR %s, from the controller", name, list(state.isr))
            return is_new
        if partition is not None:
            self.resign(name, NotLeader(f"{name} has another leader, or a new leader epoch"))
        if state.leader == self._identity.broker_id:
            if self._may_lead(assigned):
                lead[name] = assigned
        elif state.leader == NO_LEADER:
            self._unfollow(name)
        elif not self._is_still_followed(assigned):
            follow[name] = assigned
        return False

    def _is_still_followed(self, assigned: Assignment) -> bool:
        follower = self.followed.get(assigned.name)
        return (
            follower is not None
            and assigned.topic_id == self._log_dirs.topic_id(assigned.name)
            and (assigned.state.leader, assigned.leader_epoch, assigned.state.version)
            == (follower.leader, follower.leader_epoch, follower.state_version)
        )

    def _is_still_led(self, assigned: Assignment, partition: LedPartition) -> bool:
        return (
            assigned.state.leader == self._identity.broker_id
            and assigned.leader_epoch == partition.leader_epoch
            and assigned.topic_id == self._log_dirs.topic_id(assigned.name)
            and partition.incarnation == self._identity.incarnation
        )

    def _may_lead(self, assigned: Assignment) -> bool:
        """Rule R1: an election of an earlier incarnation does not count for this one. Nor does a state older than one
        that this broker has seen: a deposed controller may still send it (rule R2)."""
        topic_id, version = self._seen.get(assigned.name, (None, -1))
        if topic_id == assigned.topic_id and assigned.state.version < version:
            log.warning(
                "not leading %s by version %d of its state: version %d exists",
                assigned.name,
                assigned.state.version,
                version,
            )
            return False
        elected = incarnation_of(assigned.state, self._identity.broker_id)
        if elected == self._identity.incarnation != self._suspended:
            return True
        log.warning(
            "not leading %s in epoch %d: incarnation %d was elected, this is %d",
            assigned.name,
            assigned.leader_epoch,
            elected,
            self._identity.incarnation,
        )
        return False

    def _release(self, names: Iterable[TopicPartition]) -> None:
        """Release partitions of which the controller knows no replica here. Their logs stay on the disk."""
        for name in names:
            if name in self.partitions or name in self.followed:
                log.warning("%s is no longer served: the controller knows of no replica here; its log stays", name)
            self.resign(name, NotLeader(f"broker {self._identity.broker_id} has no replica of {name}"))
            self._unfollow(name)
            self._assignments.pop(name, None)

    async def _carry_out(
        self, lead: Mapping[TopicPartition, Assignment], follow: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, KlogError]:
        """Lead and follow; returns the failed replicas. Raises KlogError if the outcome of a write is unknown."""
        led_by_others = [name for name in lead if name in self.followed]
        for name in led_by_others:
            self._unfollow(name)
        await self.fetchers.let_go(led_by_others)
        opened, ends = await at_disks(self._runtime.executors, self._log_dirs, self._open, lead, follow)
        new = {name: assigned for name, assigned in lead.items() if assigned.state.new and name in opened.logs}
        cleared = await self._runtime.executors.run(Purpose.REPLICAS, self._clear_marks, new) if new else {}
        failed = dict(opened.failed)
        for name, assigned in lead.items():
            if name not in opened.logs:
                continue
            if assigned.state.new:
                version = cleared.get(name)
                if version is None:
                    log.info("%s: its state has changed meanwhile; the controller sends it again", name)
                    self._assignments.pop(name, None)
                    continue
                assigned = assigned._replace(state=replace(assigned.state, new=False, version=version))
                self._assignments[name] = assigned
            if not self._may_lead(assigned):  # the session may have ended meanwhile
                self._assignments.pop(name, None)
                continue
            try:
                self._lead(assigned, opened.logs[name], ends.get(name))
            except KlogError as refusal:
                failed[name] = refusal.bare()
        for name, assigned in follow.items():
            if name in opened.logs:
                self._follow(assigned, opened.logs[name])
        for name, error in failed.items():
            log.error("%s cannot be served: %s", name, error.message)
            self._assignments.pop(name, None)  # so that a repeated request tries it again
        return failed

    def _open(
        self, lead: Mapping[TopicPartition, Assignment], follow: Mapping[TopicPartition, Assignment]
    ) -> tuple[Opened, dict[TopicPartition, LogEnd]]:
        """In a thread: the logs, and the initial high watermarks of those with followers in the ISR."""
        opened = open_logs(self._runtime, self._image, self._log_dirs, lead, follow)
        ends = {
            name: self.committed_end(opened.logs[name])
            for name, assigned in lead.items()
            if name in opened.logs and len(assigned.state.isr) > 1
        }
        return opened, ends

    def committed_end(self, one: Log) -> LogEnd:
        """The last known high watermark of a log that is neither led nor followed. In a thread: it may read the log."""
        known = one.last_high_watermark
        if known is not None:
            return known if known.address <= one.end.address else one.end
        return one.floor(max(min(one.committed_at_open, one.end.address), one.start_address))

    def _clear_marks(self, new: Mapping[TopicPartition, Assignment]) -> dict[TopicPartition, int]:
        """In a thread: clear the marks of new partitions, whose logs exist now. Returns the new versions of the states,
        without those that another writer has changed.

        Raises ZooKeeperError if the outcome is unknown.
        """
        registration = self._identity.registration
        if registration is None:
            return {}
        states = {name: replace(assigned.state, new=False) for name, assigned in new.items()}
        fences = {name: (*self.fence_of(name), registration.fence) for name in new}
        found = write_states(self._runtime.zookeeper, states, fences)
        return {
            name: state.version
            for name, state in found.items()
            if state is not None and state == replace(states[name], version=states[name].version + 1)
        }

    def _lead(self, assigned: Assignment, one: Log, high_watermark: LogEnd | None) -> None:
        identity, state = self._identity, assigned.state
        one.begin_epoch(state.leader_epoch)
        lost = one.committed_at_open - one.end.address
        if lost > 0 and not one.nothing_lost:
            log.error(
                "%s ends at %d, %d below the high watermark of its checkpoint: the disk has lost what lay between; "
                "leading all the same, as the controller has decided",
                assigned.name,
                one.end.address,
                lost,
            )
        partition = LedPartition(
            assigned.name,
            one,
            want_flush=self._flusher.want,
            broker_id=identity.broker_id,
            incarnation=identity.incarnation,
            replicas=assigned.replicas,
            state=state,
            high_watermark=high_watermark,
            want_isr=self._monitor.look_at,
        )
        partition.refused_until_s = self._runtime.loop.time() + REFUSED_S
        self.partitions[assigned.name] = partition
        one.nothing_lost = True  # in the ISR under an incarnation of this process: no crash since
        if one.flushed_end.address < one.end.address:
            self._flusher.flush_now(one)  # the end is unknown until it is committed (rule R8)

    def _follow(self, assigned: Assignment, one: Log) -> None:
        state, identity = assigned.state, self._identity
        if state.ran_on(identity.broker_id, identity.incarnation):
            one.nothing_lost = True
        known = one.last_high_watermark
        self.fetchers.follow(
            assigned,
            one,
            one.committed_at_open if known is None else known.address,
            # After a kill the high watermark is that of the last checkpoint: what was acknowledged may lie above it.
            keep_truncated=one.last_batch_epoch < state.unclean_epoch,
        )
        for first, end in self._damaged.pop(one, ()):
            self.fetchers.damaged(one, first, end)

    async def stop_replica(self, request: StopReplicaRequest) -> dict[str, Any]:
        """Stop replicas by the controller's StopReplica request, and delete logs where it asks for it; returns the
        answer's values.

        Replicas whose logs may not be deleted (rule R10) are still served. Raises what `Authority.check` does, and
        RequestTimedOut if ZooKeeper or a disk does not answer.
        """
        async with self._applying:
            try:
                await self._authority.check(request.controller_epoch, request.incarnation)
                failed = await undeletable(self._runtime, self._log_dirs, request)
            except ZooKeeperError as error:
                raise RequestTimedOut(error.message) from None
            stopped, doomed = [], []
            for topic in request.topics:
                for one in topic.partitions:
                    name = TopicPartition(topic.name, one.partition_index)
                    if name in failed or not self._may_stop(name, topic.topic_id, one.leader_epoch):
                        continue
                    if one.leader_epoch == DELETED_TOPIC_EPOCH:
                        self.resign(name, UnknownTopicOrPartition(f"topic {topic.name!r} has been deleted"))
                    else:
                        self.resign(name, NotLeader(f"broker {self._identity.broker_id} has no replica of {name}"))
                    self._unfollow(name)
                    stopped.append(name)
                    if one.leader_epoch == DELETED_TOPIC_EPOCH or one.delete:
                        self._assignments.pop(name, None)
                    if one.delete:
                        self._seen.pop(name, None)
                        doomed.append(name)
            await self.fetchers.let_go(stopped)
            failed |= await remove_logs(self._runtime, self._log_dirs, doomed, request)
        return _outcome(failed)

    def _may_stop(self, name: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> bool:
        """Whether a StopReplica request means the replica that is here, and not one of an earlier epoch."""
        there, known = self._log_dirs.topic_id(name), self._assignments.get(name)
        if topic_id is not None and there not in (None, topic_id):
            return False  # another topic of that name by now
        if known is None or leader_epoch == DELETED_TOPIC_EPOCH or known.topic_id != topic_id:
            return True
        if leader_epoch < known.leader_epoch:
            log.info(
                "%s: not stopped by a request of epoch %d: it is in epoch %d", name, leader_epoch, known.leader_epoch
            )
            return False
        return True

    def describe(self) -> list[dict[str, Any]]:
        """Describe every log on the disks (rule R1)."""
        facts: list[dict[str, Any]] = []
        for one_dir in self._log_dirs.dirs:
            for name, one in list(one_dir.logs.items()):
                committed = self.high_watermark(one)
                was_safe = one.nothing_lost or one.config.flush_messages == 1
                # A log that was not flushed may have a hole above the checkpoint and below what was committed.
                known = committed if was_safe else one.end.address
                is_damaged = one in self._damaged or any(damage.first_address < known for damage in one.damages)
                facts.append(
                    {
                        "topic": name.topic,
                        "partition_index": name.partition,
                        "topic_id": one_dir.topic_ids.get(name),
                        "last_epoch": one.last_epoch,
                        "end_address": one.end.address,
                        "is_whole": one.end.address >= committed and not is_damaged,
                        "was_safe": was_safe,
                        "is_online": one_dir.failure is None,
                    }
                )
        return facts

    # --- the end of leadership ----------------------------------------------------------------------------------------

    def resign(self, name: TopicPartition, error: KlogError) -> None:
        """Stop leading, if this broker leads: appends fail from now on, and waiting requests get ``error``."""
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.log.last_high_watermark = partition.high_watermark
            self._saw(name, partition.state_version)
            partition.resign(error)

    def _saw(self, name: TopicPartition, version: int) -> None:
        topic_id = self._log_dirs.topic_id(name)
        if topic_id is not None:
            known_id, known = self._seen.get(name, (None, -1))
            self._seen[name] = topic_id, max(version, known) if known_id == topic_id else version

    def step_down(self, partition: LedPartition, why: str, seen_version: int = -1) -> None:
        """Stop leading because of the state in ZooKeeper (rule R2); the controller assigns what comes next.

        ``seen_version``: that of the state in ZooKeeper.
        """
        name = partition.topic_partition
        if self.partitions.get(name) is partition:
            self._saw(name, seen_version)
            log.warning("%s: no longer leading in epoch %d: %s", name, partition.leader_epoch, why)
            self._assignments.pop(name, None)
            self.resign(name, NotLeader(f"{name} has another leader: {why}"))

    def _unfollow(self, name: TopicPartition) -> None:
        follower = self.followed.get(name)
        if follower is not None:
            follower.log.last_high_watermark = follower.high_watermark
            self.fetchers.unfollow(name)

    def fence_of(self, name: TopicPartition) -> list[Check]:
        """The fences of a write about this topic (rule Z1)."""
        version = self._fences.get(name.topic, -1)
        return [Check(paths.topic_epoch(name.topic), version)] if version >= 0 else []

    # --- events -------------------------------------------------------------------------------------------------------

    def high_watermark(self, one: Log) -> int:
        """The address up to which a log is known to be committed, whether led, followed or neither."""
        name = one.topic_partition
        partition, follower = self.partitions.get(name), self.followed.get(name)
        if partition is not None and partition.log is one:
            return partition.high_watermark.address
        if follower is not None and follower.log is one:
            return follower.high_watermark.address
        known = one.last_high_watermark
        return one.committed_at_open if known is None else known.address

    def flushed(self, one: Log, outcome: LogEnd | StorageError) -> None:
        """Called by the flusher."""
        partition = self.partitions.get(one.topic_partition)
        if partition is None or partition.log is not one:
            self.fetchers.flushed(one, outcome)
        elif isinstance(outcome, StorageError):
            log.error("%s: %s", one.topic_partition, outcome.message)
            partition.failed(outcome)
        else:
            partition.flushed(outcome)
        if isinstance(outcome, StorageError):
            self.look_at_disks()

    def damaged(self, one: Log, first: int, end: int) -> None:
        """A range of a log is damaged: repair it from the leader, now or when another broker leads (rule L2)."""
        partition = self.partitions.get(one.topic_partition)
        if partition is None or partition.log is not one:
            self.fetchers.damaged(one, first, end)
            return
        ranges = self._damaged.setdefault(one, [])
        if (first, end) not in ranges:
            ranges.append((first, end))
            self._monitor.look_at_damaged()

    def look_at_disks(self) -> None:
        """A disk may have failed: report it to the controller (rule L5)."""
        self._monitor.look_at_disks()

    def brokers_changed(self) -> None:
        """The live brokers, their addresses or incarnations have changed in the image."""
        self.fetchers.brokers_changed()
        self._monitor.look_at_all()

    def suspend(self, error: KlogError) -> None:
        """The session has expired: append and acknowledge nothing more under it."""
        self._suspended = self._identity.incarnation
        for partition in self.partitions.values():
            partition.suspend(error)
        for name in list(self.followed):  # the controller assigns leaders to the next incarnation
            self._unfollow(name)
        self.fetchers.suspend()

    def close(self) -> None:
        """Stop leading and following: the broker stops."""
        self._monitor.close()
        self.fetchers.close()
        for name in list(self.partitions):
            self.resign(name, NotLeader(f"broker {self._identity.broker_id} is shutting down"))


def _outcome(failed: Mapping[TopicPartition, KlogError]) -> dict[str, Any]:
    """The values of an answer: only the replicas that failed."""
    return {
        "failed": [
            {"topic": name.topic, "partition_index": name.partition, "error_code": error.wire}
            for name, error in failed.items()
        ]
    }
