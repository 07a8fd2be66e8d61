"""The replicas of this broker: which it leads, which it follows, and what is done when the controller speaks.

Decide, then do: a LeaderAndIsr request is sorted into what is to be led, followed, adopted and let go; what is led no
more is resigned at once, before anything is waited for; the logs of all are opened or made together, in a thread; then
each takes up its part on the loop. The same request may come twice, and each part of it is done once.

Rules
* R1: a log is made empty by a leader only where the state is marked new, and the mark is cleared before it leads. A
  leader without its log is a replica that failed. A new incarnation does not lead under an epoch of an earlier one.
* R2: whoever leads no more, or under another epoch, fails every acknowledgement that waits.
* R4: a leader whose own disk is what holds everybody up gives its leadership up.
* R6: a leader that nobody fetches from reads its state again.
* L10: a log under another UUID is another topic's: set aside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from kio.static.primitive import i32

from klog.config import LogConfig
from klog.coordination import paths
from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.zookeeper import Check
from klog.errors import (
    KlogError,
    NotLeader,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
    ZooKeeperError,
)
from klog.names import TopicPartition
from klog.protocol.interbroker import LeaderAndIsrPartition, LeaderAndIsrRequest, StopReplicaRequest
from klog.replication.isr import Membership
from klog.replication.partition import REFUSED_S, Partition
from klog.server.disk_watch import at_disks
from klog.server.executors import Purpose
from klog.server.fetchers import Fetchers
from klog.server.isr_keeper import IsrKeeper
from klog.server.isr_writer import write_states
from klog.server.removal import remove_logs, undeletable
from klog.storage.log import Log, LogEnd

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

TOPIC_IS_DELETED = -2
"""In place of a leader epoch in StopReplica (KIP-570)."""


class _Told(NamedTuple):
    """What the controller has said of one replica: the partition's state, and whose."""

    name: TopicPartition
    topic_id: UUID
    state: LeaderAndIsrPartition

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def membership(self) -> Membership:
        state = self.state
        return Membership(
            state.replicas,
            state.isr,
            state.incarnations,
            state.state_version,
            state.controller_epoch,
            state.unclean_epoch,
        )

    def counts_earlier(self, broker_id: int, incarnation: int) -> bool:
        """Whether the ISR still counts an earlier incarnation of this broker."""
        return broker_id in self.state.isr and self.membership.incarnation_of(broker_id) != incarnation


class _Opened(NamedTuple):
    """The logs that are there now, and who is left without."""

    logs: dict[TopicPartition, Log]
    high_watermarks: dict[TopicPartition, LogEnd]
    failed: dict[TopicPartition, KlogError]


class Replicas:
    """See the module. Event loop only; the disk and ZooKeeper are asked in threads, one request at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.partitions: dict[TopicPartition, Partition] = {}
        """Those that this broker leads."""
        self.fetchers = Fetchers(broker)
        self.followed = self.fetchers.followed
        """Those that it follows."""
        self._told: dict[TopicPartition, _Told] = {}
        self._fences: dict[str, int] = {}
        self._obeying = asyncio.Lock()
        self._high_watermarks: WeakKeyDictionary[Log, LogEnd] = WeakKeyDictionary()
        """Of logs that are neither led nor followed now: the last one known."""
        self._rotten: WeakKeyDictionary[Log, list[tuple[int, int]]] = WeakKeyDictionary()
        """Logs that are led, and the stretches of them that no longer check (rule L2)."""
        self._seen: dict[TopicPartition, tuple[UUID, int]] = {}
        """The newest version of a state that we have written or read in ZooKeeper, when we stopped leading."""
        self._suspended: int | None = None
        """The incarnation whose session is gone."""
        self._keeper = IsrKeeper(broker, self)

    # --- what the controller says -----------------------------------------------------------------------------------

    async def obey(self, request: LeaderAndIsrRequest) -> dict[str, Any]:
        """Lead, follow and let go as the controller says; the answer's values.

        A partition fails where the replica cannot do what it is told to: its log is not there, its disk does not
        serve. Where it is not known how a write to ZooKeeper went the whole request is to be said again.
        """
        self._keeper.start()
        async with self._obeying:
            try:
                await self._broker.authority.check(request.controller_epoch, request.incarnation)
            except KlogError as error:
                return {"error_code": error.wire, "failed": []}
            lead: dict[TopicPartition, _Told] = {}
            follow: dict[TopicPartition, _Told] = {}
            named = set()
            for topic in request.topics:
                self._fences[topic.name] = topic.fence_version
                for state in topic.partitions:
                    told = _Told(
                        TopicPartition(topic.name, state.partition_index), topic.topic_id or UUID(int=0), state
                    )
                    named.add(told.name)
                    self._sort(told, lead, follow)
            if request.is_full:
                self._let_go((self._told.keys() | self.partitions.keys() | self.followed.keys()) - named)
            try:
                failed = await self._take_up(lead, follow)
            except KlogError as error:
                log.warning("not all replicas could be taken up: %s; the controller will say it again", error.message)
                return {"error_code": RequestTimedOut.wire, "failed": []}
        if request.is_full:
            self._broker.told_replicas()
        return {
            "error_code": 0,
            "failed": [
                {"topic": name.topic, "partition_index": name.partition, "error_code": error.wire}
                for name, error in failed.items()
            ],
        }

    def _sort(self, told: _Told, lead: dict[TopicPartition, _Told], follow: dict[TopicPartition, _Told]) -> None:
        """Put one partition where it belongs; what is led no more is resigned here and now."""
        name, state, known = told.name, told.state, self._told.get(told.name)
        if known is not None and known.topic_id == told.topic_id:
            if state.leader_epoch < known.leader_epoch:
                log.info("%s: leader epoch %d is over, it is %d", name, state.leader_epoch, known.leader_epoch)
                return
            if state.leader_epoch == known.leader_epoch and state.state_version < known.state.state_version:
                # We have written the state since. Who the replicas are is not in it: that is as the controller says.
                state = replace(known.state, replicas=state.replicas)
                told = told._replace(state=state)
        self._told[name] = told
        partition = self.partitions.get(name)
        if partition is not None and self._is_still_led(told, partition):
            if partition.adopt(told.membership):
                log.info("%s: ISR %s, says the controller", name, list(state.isr))
            return
        if partition is not None:
            self.resign(name, NotLeader(f"{name} is led by another broker, or under a new epoch"))
        if state.leader == self._broker.broker_id:
            if self._may_lead(told):
                lead[name] = told
        elif state.leader == NO_LEADER:
            self._unfollow(name)
        elif not self._is_still_followed(told):
            follow[name] = told

    def _is_still_followed(self, told: _Told) -> bool:
        follower = self.followed.get(told.name)
        return (
            follower is not None
            and told.topic_id == self._broker.log_dirs.topic_id(told.name)
            and (told.state.leader, told.leader_epoch, told.state.state_version)
            == (follower.leader, follower.leader_epoch, follower.state_version)
        )

    def _is_still_led(self, told: _Told, partition: Partition) -> bool:
        return (
            told.state.leader == self._broker.broker_id
            and told.leader_epoch == partition.leader_epoch
            and told.topic_id == self._broker.log_dirs.topic_id(told.name)
            and partition.incarnation == self._broker.incarnation
        )

    def _may_lead(self, told: _Told) -> bool:
        """Rule R1: what an earlier incarnation was elected for is not ours, and what is older than what we have seen
        ourselves is over: a controller that was deposed may still say it (rule R2).
        """
        topic_id, version = self._seen.get(told.name, (None, -1))
        if topic_id == told.topic_id and told.state.state_version < version:
            log.warning(
                "not leading %s by version %d of its state: %d is there", told.name, told.state.state_version, version
            )
            return False
        elected = told.membership.incarnation_of(self._broker.broker_id)
        if elected == self._broker.incarnation != self._suspended:
            return True
        log.warning(
            "not leading %s in epoch %d: incarnation %d was elected, this is %d",
            told.name,
            told.leader_epoch,
            elected,
            self._broker.incarnation,
        )
        return False

    def _let_go(self, names: Iterable[TopicPartition]) -> None:
        """These are ours no more, as far as the controller knows: their logs stay on the disk."""
        for name in names:
            if name in self.partitions or name in self.followed:
                log.warning("%s is served no more, the controller knows of no replica here; its log stays", name)
            self.resign(name, NotLeader(f"broker {self._broker.broker_id} has no replica of {name}"))
            self._unfollow(name)
            self._told.pop(name, None)

    async def _take_up(
        self, lead: Mapping[TopicPartition, _Told], follow: Mapping[TopicPartition, _Told]
    ) -> dict[TopicPartition, KlogError]:
        """Lead and follow; who could not. Raises KlogError where it is not known whether something was written."""
        led_by_others = [name for name in lead if name in self.followed]
        for name in led_by_others:
            self._unfollow(name)
        await self.fetchers.let_go(led_by_others)
        opened = await at_disks(self._broker, self._open, lead, follow)
        new = {name: told for name, told in lead.items() if told.state.is_new and name in opened.logs}
        cleared = await self._broker.executors.run(Purpose.REPLICAS, self._clear_marks, new) if new else {}
        failed = dict(opened.failed)
        for name, told in lead.items():
            if name not in opened.logs:
                continue
            if told.state.is_new:
                version = cleared.get(name)
                if version is None:
                    log.info("%s: its state has changed meanwhile; the controller will say what it is", name)
                    self._told.pop(name, None)
                    continue
                told = told._replace(state=replace(told.state, is_new=False, state_version=i32(version)))
                self._told[name] = told
            if not self._may_lead(told):  # the session may have ended meanwhile
                self._told.pop(name, None)
                continue
            try:
                self._lead(told, opened.logs[name], opened.high_watermarks.get(name))
            except KlogError as refusal:
                failed[name] = refusal.bare()
        for name, told in follow.items():
            if name in opened.logs:
                self._follow(told, opened.logs[name])
        for name, error in failed.items():
            log.error("%s cannot be served: %s", name, error.message)
            self._told.pop(name, None)  # so that it is tried when it is said again
        return failed

    def _open(self, lead: Mapping[TopicPartition, _Told], follow: Mapping[TopicPartition, _Told]) -> _Opened:
        """In a thread: the logs, made where that may be."""
        broker, dirs = self._broker, self._broker.log_dirs
        concerned = {told.name.topic for told in (*lead.values(), *follow.values())}
        configs = {name: LogConfig.of(broker.config, self._overrides(name)) for name in concerned}
        logs: dict[TopicPartition, Log] = {}
        failed: dict[TopicPartition, KlogError] = {}
        may_be_made: dict[TopicPartition, tuple[UUID, LogConfig]] = {}
        for name, told in (*lead.items(), *follow.items()):
            there = dirs.log(name) if dirs.topic_id(name) == told.topic_id else None
            if there is not None and there.home.failure is not None:
                failed[name] = there.home.failure
            elif there is not None:
                there.reconfigure(configs[name.topic])
                logs[name] = there
            elif name in follow and told.counts_earlier(broker.broker_id, broker.incarnation) and not told.state.is_new:
                # Rule R1: an empty log made now would look like the one that was counted in, and be elected for it.
                # The controller takes us out of the ISR first, and says so.
                log.info("%s: its log is gone; not made anew while the ISR names an earlier incarnation", name)
            elif dirs.is_being_made(name):  # since an earlier request, by a disk that hangs: never twice
                failed[name] = StorageError("its log is being made by a disk that does not answer")
            elif name in follow or told.state.is_new:
                may_be_made[name] = told.topic_id, configs[name.topic]
            else:
                failed[name] = StorageError(
                    f"it has had messages and there is no log of it in the log dirs "
                    f"({', '.join(broker.config.log_dirs)}); leading with an emptied dir would lose them for good"
                )
        for tries_left in reversed(range(len(dirs.dirs))):  # a dir that fails meanwhile leaves the others
            try:
                logs |= dirs.logs_or_create(may_be_made)
                break
            except StorageError as error:
                if not tries_left:
                    failed |= dict.fromkeys(may_be_made, error.bare())
        ends = {name: self.committed_end(logs[name]) for name in lead if name in logs and len(lead[name].state.isr) > 1}
        return _Opened(logs, ends, failed)

    def _overrides(self, topic: str) -> Mapping[str, str]:
        known = self._broker.image.topics.get(topic)
        return {} if known is None else known.overrides

    def committed_end(self, one: Log) -> LogEnd:
        """The last high watermark known of a log that is not led or followed, as a place in it. In a thread: it may be
        looked up.
        """
        known = self._high_watermarks.get(one)
        if known is not None:
            return known if known.address <= one.end.address else one.end
        return one.floor(max(min(one.committed_at_open, one.end.address), one.start_address))

    def _clear_marks(self, new: Mapping[TopicPartition, _Told]) -> dict[TopicPartition, int]:
        """In a thread: the logs are there, so the states say so; their versions. Without those another has changed.

        Raises ZooKeeperError where it is not known.
        """
        registration = self._broker.registration
        if registration is None:
            return {}
        states = {
            name: PartitionState(
                leader=told.state.leader,
                leader_epoch=told.leader_epoch,
                isr=tuple(told.state.isr),
                controller_epoch=told.state.controller_epoch,
                version=told.state.state_version,
                incarnations=tuple(told.state.incarnations),
                unclean_epoch=told.state.unclean_epoch,
            )
            for name, told in new.items()
        }
        fences = {name: (*self.fence_of(name), registration.fence) for name in new}
        found = write_states(self._broker.zookeeper, states, fences)
        return {
            name: state.version
            for name, state in found.items()
            if state is not None and state == replace(states[name], version=states[name].version + 1)
        }

    def _lead(self, told: _Told, one: Log, high_watermark: LogEnd | None) -> None:
        broker, state = self._broker, told.state
        one.begin_epoch(state.leader_epoch)
        lost = one.committed_at_open - one.end.address
        if lost > 0 and not one.nothing_lost:
            log.error(
                "%s ends at %d, %d below the high watermark of its checkpoint: what lay between was lost with its "
                "disk; leading all the same, as the controller says",
                told.name,
                one.end.address,
                lost,
            )
        partition = Partition(
            told.name,
            one,
            leader_epoch=state.leader_epoch,
            want_flush=broker.flusher.want,
            broker_id=broker.broker_id,
            incarnation=broker.incarnation,
            membership=told.membership,
            high_watermark=high_watermark,
            want_isr=self._keeper.look_at,
        )
        partition.refused_until_s = broker.loop.time() + REFUSED_S
        self.partitions[told.name] = partition
        one.nothing_lost = True  # in the ISR under an incarnation of this process: a crash is behind it
        if one.flushed_end.address < one.end.address:
            broker.flusher.flush_now(one)  # until the end is committed it is not known (rule R8)

    def _follow(self, told: _Told, one: Log) -> None:
        state, broker = told.state, self._broker
        if told.membership.incarnation_of(broker.broker_id) == broker.incarnation:
            one.nothing_lost = True
        known = self._high_watermarks.get(one)
        self.fetchers.follow(
            told.name,
            told.topic_id,
            one,
            state.leader,
            state.leader_epoch,
            state.state_version,
            one.committed_at_open if known is None else known.address,
            # After a kill the high watermark is that of the last checkpoint: what was acknowledged may lie above it.
            keep_cut=one.last_batch_epoch < state.unclean_epoch,
        )
        for first, end in self._rotten.pop(one, ()):
            self.fetchers.damaged(one, first, end)

    async def stop(self, request: StopReplicaRequest) -> dict[str, Any]:
        """Serve these replicas no more, and delete their logs where that is asked; the answer's values.

        What is to be deleted and may not be (rule R10) is served on.
        """
        async with self._obeying:
            try:
                await self._broker.authority.check(request.controller_epoch, request.incarnation)
                failed = await undeletable(self._broker, request)
            except KlogError as error:
                wire = RequestTimedOut.wire if isinstance(error, ZooKeeperError) else error.wire
                return {"error_code": wire, "failed": []}
            stopped, doomed = [], []
            for topic in request.topics:
                for one in topic.partitions:
                    name = TopicPartition(topic.name, one.partition_index)
                    if name in failed or not self._may_stop(name, topic.topic_id, one.leader_epoch):
                        continue
                    if one.leader_epoch == TOPIC_IS_DELETED:
                        self.resign(name, UnknownTopicOrPartition(f"topic {topic.name!r} has been deleted"))
                    else:
                        self.resign(name, NotLeader(f"broker {self._broker.broker_id} has no replica of {name}"))
                    self._unfollow(name)
                    stopped.append(name)
                    if one.delete:
                        self._told.pop(name, None)
                        self._seen.pop(name, None)
                        doomed.append(name)
            await self.fetchers.let_go(stopped)
            try:
                failed |= await remove_logs(self._broker, doomed, request)
            except KlogError as error:
                return {"error_code": error.wire, "failed": []}
        return {
            "error_code": 0,
            "failed": [
                {"topic": name.topic, "partition_index": name.partition, "error_code": error.wire}
                for name, error in failed.items()
            ],
        }

    def _may_stop(self, name: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> bool:
        """Whether a StopReplica is about the very replica that is here, and not of an earlier epoch."""
        there, known = self._broker.log_dirs.topic_id(name), self._told.get(name)
        if topic_id is not None and there not in (None, topic_id):
            return False  # another topic of that name by now
        if known is None or leader_epoch == TOPIC_IS_DELETED or known.topic_id != topic_id:
            return True
        if leader_epoch < known.leader_epoch:
            log.info("%s: not stopped in epoch %d, it is in %d", name, leader_epoch, known.leader_epoch)
            return False
        return True

    async def describe(self) -> list[dict[str, Any]]:
        """What is on the disks, of every log (rule R1)."""
        facts = []
        for one_dir in self._broker.log_dirs.dirs:
            for name, one in list(one_dir.logs.items()):
                committed = self.high_watermark(one)
                was_safe = one.nothing_lost or one.config.flush_messages == 1
                # What was not flushed may be back with a hole above the checkpoint, and below what was committed.
                known = committed if was_safe else one.end.address
                is_damaged = one in self._rotten or any(damage.first_address < known for damage in one.damages)
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

    # --- leading no more --------------------------------------------------------------------------------------------

    def resign(self, name: TopicPartition, error: KlogError) -> None:
        """Lead no more, if we do: appends are refused, and whoever waits is told ``error``."""
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self._high_watermarks[partition.log] = partition.high_watermark
            self._saw(name, partition.state_version)
            partition.resign(error)

    def _saw(self, name: TopicPartition, version: int) -> None:
        topic_id = self._broker.log_dirs.topic_id(name)
        if topic_id is not None:
            known_id, known = self._seen.get(name, (None, -1))
            self._seen[name] = topic_id, max(version, known) if known_id == topic_id else version

    def step_down(self, partition: Partition, why: str, seen_version: int = -1) -> None:
        """Lead no more, for what ZooKeeper says (rule R2); what to do instead is the controller's to say.

        ``seen_version`` is that of the state that was found there.
        """
        name = partition.topic_partition
        if self.partitions.get(name) is partition:
            self._saw(name, seen_version)
            log.warning("%s: leading no more in epoch %d: %s", name, partition.leader_epoch, why)
            self._told.pop(name, None)
            self.resign(name, NotLeader(f"{name} is led by another broker: {why}"))

    def _unfollow(self, name: TopicPartition) -> None:
        follower = self.followed.get(name)
        if follower is not None:
            self._high_watermarks[follower.log] = follower.high_watermark
            self.fetchers.unfollow(name)

    def fence_of(self, name: TopicPartition) -> list[Check]:
        """What a write about this topic is fenced by (rule Z1)."""
        version = self._fences.get(name.topic, -1)
        return [Check(paths.topic_epoch(name.topic), version)] if version >= 0 else []

    # --- what happens -----------------------------------------------------------------------------------------------

    def high_watermark(self, one: Log) -> int:
        """The address up to which a log is known to be committed, whatever its part is now."""
        name = one.topic_partition
        partition, follower = self.partitions.get(name), self.followed.get(name)
        if partition is not None and partition.log is one:
            return partition.high_watermark.address
        if follower is not None and follower.log is one:
            return follower.high_watermark.address
        known = self._high_watermarks.get(one)
        return one.committed_at_open if known is None else known.address

    def flushed(self, one: Log, outcome: LogEnd | StorageError) -> None:
        """From the flusher."""
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
        """Bytes of a log no longer check: taken from its leader again, at once or when another leads (rule L2)."""
        partition = self.partitions.get(one.topic_partition)
        if partition is None or partition.log is not one:
            self.fetchers.damaged(one, first, end)
            return
        stretches = self._rotten.setdefault(one, [])
        if (first, end) not in stretches:
            stretches.append((first, end))
            self._keeper.look_at_damaged()

    def is_rotten(self, one: Log) -> bool:
        return one in self._rotten

    def look_at_disks(self) -> None:
        """A disk may have failed: the controller has to know (rule L5)."""
        self._keeper.look_at_disks()

    def brokers_changed(self) -> None:
        """Who lives, where, and under which incarnation has changed in the image."""
        self.fetchers.brokers_changed()
        self._keeper.look_at_all()

    def suspend(self, error: KlogError) -> None:
        """The session has expired: nothing is appended or acknowledged under it any more."""
        self._suspended = self._broker.incarnation
        for partition in self.partitions.values():
            partition.suspend(error)
        for name in list(self.followed):  # the next incarnation is told anew whom to follow
            self._unfollow(name)
        self.fetchers.suspend()

    def close(self) -> None:
        """Shutting down: lead and follow nothing."""
        self._keeper.close()
        self.fetchers.close()
        for name in list(self.partitions):
            self.resign(name, NotLeader(f"broker {self._broker.broker_id} is shutting down"))
