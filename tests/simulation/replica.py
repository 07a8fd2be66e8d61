"""One broker's replica: led by the real `LedPartition`, or following by the real decisions; its log is the real one.

The shell around them is written again here, for one thread and virtual time: the same steps in the same order as
`klog.server` takes, and every wait is an event.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.coordination.partition_states import PartitionState
from klog.errors import CorruptLog, KlogError, NotLeader
from klog.names import TopicPartition
from klog.replication import divergence
from klog.replication.divergence import StartsElsewhere, truncation_address
from klog.replication.led_partition import LedPartition
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.log import Log, LogEnd
from tests.simulation.network import ENDED, REFUSED, Call
from tests.simulation.registry import LOST, OK, Node
from tests.simulation.states import AGAIN_S, STATE, StateWriter, state_of

if TYPE_CHECKING:
    from tests.simulation.broker import BrokerProcess
    from tests.simulation.cluster import Rules

NAME = TopicPartition("t", 0)
FOLDER = "/data/t-0"
HIGH_WATERMARK = "/data/high-watermark"
REPLICAS = (1, 2, 3)
LAG_S = 1.0
PARKED_S = 0.4
FETCH_PATIENCE_S = 0.8
FETCH_BYTES = 600


class Facts(NamedTuple):
    """As `klog.protocol.interbroker.ReplicaFacts`."""

    last_epoch: int
    end_address: int
    is_whole: bool
    was_safe: bool
    is_online: bool


class Position(NamedTuple):
    """What a follower says of itself."""

    leader_epoch: int
    broker_id: int
    incarnation: int
    last_epoch: int
    end_address: int
    flushed: LogEnd


class _Waiter:
    """Answers a producer when the core says so (rule R9)."""

    def __init__(self, call: Call, answer: Any) -> None:
        self._call, self._answer = call, answer

    def committed(self, error: KlogError | None) -> None:
        self._call.answer(self._answer if error is None else error)


class Replica:
    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.world = process.world
        self.rules: Rules = process.host.cluster.rules
        self.laws = process.host.cluster.laws
        self.broker_id: int = process.host.broker_id
        self.disk = process.host.disk
        self.partition: LedPartition | None = None
        self.leader = -1
        self.leader_epoch = -1
        self.state_version = -1
        self.seen_version = -1
        """Of the state, as we have written or read it ourselves."""
        self.log: Log | None = None
        self.high_watermark = LogEnd(0, 0)
        self.registry = StateWriter(self)
        self.is_whole = True
        self._damaged_at: int | None = None
        """Where recovery has left a hole, until it is taken again from a leader."""
        self.nothing_lost = process.stopped_with == b"kept"
        """Nothing that it ever had: a clean stop after a loss does not make it good."""
        self.checkpointed = 0
        self._is_flushing = False
        self._is_making_new = False
        self._fetching = 0
        """Which fetch is under way; answers to earlier ones are nobody's."""
        self._fetch_sent_s = 0.0
        self._parked: dict[int, tuple[Call, Position]] = {}
        if self.disk.exists(FOLDER):
            self.log = self._open()
            if self.log.damages:
                self._damaged_at = self.log.damages[0].first_address
            saved = self.disk.read(HIGH_WATERMARK)
            if saved is not None:
                address, offset = map(int, saved.split())
                self.checkpointed = address
                self.is_whole = self.log.end.address >= address and not self.log.damages
                self.high_watermark = min(LogEnd(address, offset), self.log.end)

    def _open(self) -> Log:
        clock_ms = lambda: int(self.world.now * 1000)  # noqa: E731
        home = CheckpointedDir(self.disk, FOLDER, clock_ms=clock_ms)
        return Log.open(home, FOLDER, NAME, self.process.host.cluster.log_config)

    def _create(self) -> Log:
        """An empty log, durably."""
        self.disk.make_folder(FOLDER)
        log = self._open()
        log.flush()
        self.world.say("broker %d makes an empty log", self.broker_id)
        return log

    def facts(self) -> Facts | None:
        """What the controller is told of our disk (rule R1)."""
        log = self.log
        if log is None:
            return None
        was_safe = self.nothing_lost or log.config.flush_messages == 1 or not self.rules.holds("R1 safe")
        is_whole = self.is_whole or not self.rules.holds("R1 whole")
        return Facts(log.last_epoch, log.end.address, is_whole, was_safe, True)

    # --- What the controller says -------------------------------------------------------------------------------------

    def obey(self, state: PartitionState) -> str:
        """LeaderAndIsr: "ok", or "failed" where this broker cannot."""
        if state.leader_epoch < self.leader_epoch:
            return "ok"
        if self.log is not None and state.ran_on(self.broker_id, self.process.incarnation):
            self.nothing_lost = True
        if state.leader_epoch == self.leader_epoch and state.leader == self.leader:
            if state.version > self.state_version and self.partition is not None:
                self.adopt(state)
            self.state_version = max(self.state_version, state.version)
            if self.partition is not None or self._is_making_new:
                return "ok"
            if self.leader != self.broker_id and self.log is not None and self._damaged_at is None:
                return "ok"
        if state.leader == self.broker_id:
            return self._be_leader(state)
        self._follow(state)
        return "ok"

    def _be_leader(self, state: PartitionState) -> str:
        if state.version < self.seen_version and self.rules.holds("R2 seen"):
            return "ok"  # we have written or read a later one: whoever says this is behind
        if not state.ran_on(self.broker_id, self.process.incarnation) and self.rules.holds("R1 incarnation"):
            return "ok"  # an earlier incarnation was elected; the controller does not know yet
        if state.new:
            if self.log is None:
                self.log = self._create()
            self._stop_following()
            self.leader, self.leader_epoch, self.state_version = state.leader, state.leader_epoch, state.version
            self._is_making_new = True
            self._clear_mark(state)
            return "ok"
        if self.log is None:
            if self.rules.holds("R1 emptied"):
                return "failed"
            self.log = self._create()
        return self._lead(state)

    def _clear_mark(self, state: PartitionState) -> None:
        """The log is there: from now on nobody may make it empty."""
        made = replace(state, new=False)

        def done(outcome: str, _: object) -> None:
            if outcome == OK:
                self._mark_cleared(replace(made, version=state.version + 1))
            else:
                self.registry.read(look)

        def look(outcome: str, nodes: dict[str, Node | None]) -> None:
            found = state_of(nodes[STATE]) if outcome == OK else state
            if outcome == LOST:
                self.process.after(AGAIN_S, self.registry.read, look)
            elif found == replace(made, version=state.version + 1):
                self._mark_cleared(found)
            elif found == state:
                self._clear_mark(state)
            else:
                self._is_making_new = False

        self.registry.put(made, state.version, done)

    def _mark_cleared(self, state: PartitionState) -> None:
        self._is_making_new = False
        if (self.leader, self.leader_epoch) == (self.broker_id, state.leader_epoch) and self.partition is None:
            self._lead(state)
            self.process.report_isr()

    def _lead(self, state: PartitionState) -> str:
        assert self.log is not None
        self._stop_following()
        try:
            self.log.begin_epoch(state.leader_epoch)
        except KlogError:
            return "failed"
        self._resign()
        self.leader, self.leader_epoch, self.state_version = state.leader, state.leader_epoch, state.version
        self.laws.leads(state.leader_epoch, self.broker_id, self.process.incarnation)
        self.partition = LedPartition(
            NAME,
            self.log,
            want_flush=self.want_flush,
            broker_id=self.broker_id,
            incarnation=self.process.incarnation,
            replicas=REPLICAS,
            state=state,
            high_watermark=self.high_watermark,
            want_isr=self._want_isr,
        )
        self.world.say("broker %d leads in epoch %d, ISR %s", self.broker_id, state.leader_epoch, state.isr)
        self.want_flush(self.log)
        return "ok"

    def _follow(self, state: PartitionState) -> None:
        self._resign()
        self._is_making_new = False
        self._stop_following()
        self.leader, self.leader_epoch, self.state_version = state.leader, state.leader_epoch, state.version
        if self.log is None:
            if self.rules.holds("R1 no empty log") and self._counts_as_earlier(state):
                return  # an empty log must not look like the one that was counted in
            self.log = self._create()
        self.log.forget_empty_epochs()
        if self.leader >= 0 and self._damaged_at is not None and not self._counts_as_earlier(state):
            self._refill(self.log, self._damaged_at)
        if not self.rules.holds("R3 divergence"):
            self._cut(self.high_watermark.address)
        if self.leader >= 0:
            self._fetch()

    def _counts_as_earlier(self, state: PartitionState) -> bool:
        """Whether the ISR still counts an earlier incarnation of this broker."""
        return self.broker_id in state.isr and not state.ran_on(self.broker_id, self.process.incarnation)

    def _refill(self, log: Log, address: int) -> None:
        """What is damaged is taken again from the leader, and all behind it (rule L2)."""
        self._damaged_at = None
        place = log.floor(address).address
        self.world.say("broker %d takes again what is behind %d, damaged", self.broker_id, place)
        log.truncate(place)
        self.high_watermark = min(self.high_watermark, log.end)

    def adopt(self, state: PartitionState) -> None:
        assert self.partition is not None
        if self.partition.adopt(REPLICAS, state):
            self.world.say("broker %d takes over ISR %s", self.broker_id, state.isr)

    def _resign(self) -> None:
        if self.partition is not None:
            partition, self.partition = self.partition, None
            self.high_watermark = max(self.high_watermark, partition.high_watermark)
            self.seen_version = max(self.seen_version, partition.state_version)
            partition.resign(NotLeader("another leads"))
            self._wake(everybody=True)

    def suspend(self) -> None:
        """The session has expired: whatever we led or followed, we know nothing any more."""
        self._resign()
        self._stop_following()
        self._is_making_new = False
        self.leader = -1

    # --- Leading ------------------------------------------------------------------------------------------------------

    def led(self) -> LedPartition:
        if self.partition is None:
            raise NotLeader("not the leader")
        return self.partition

    def produce(self, call: Call, leader_epoch: int, batch: bytes) -> None:
        partition = self.led()
        partition.check_epoch(leader_epoch)
        partition.check_in_sync()
        result = partition.append(memoryview(bytearray(batch)))
        answer = ("acked", result.base_offset, partition.leader_epoch)
        if partition.when_committed(result.end.address, _Waiter(call, answer)):
            call.answer(answer)
        self._wake()

    def consume(self, leader_epoch: int, offset: int) -> tuple[str, bytes]:
        """Batches from ``offset`` up to the high watermark, as they lie in the log."""
        partition = self.led()
        partition.check_epoch(leader_epoch)
        ranges = partition.log.read(offset, FETCH_BYTES, partition.high_watermark.address)
        return "data", b"".join(file.read_at(position, size) for file, position, size in ranges)

    def latest(self, leader_epoch: int) -> tuple[str, int]:
        """ListOffsets (rule R8)."""
        partition = self.led()
        partition.check_epoch(leader_epoch)
        if not partition.end_is_known and self.rules.holds("R8"):
            return "not available", -1
        return "latest", partition.high_watermark.offset

    def fetched(self, call: Call, position: Position, is_report: bool) -> None:
        """ReplicaFetch, and the bare report that a flush has ended (rule R3)."""
        partition = self.led()
        partition.check_replica(position.leader_epoch, position.broker_id, position.incarnation)
        found = divergence.disagreement(partition.log, position.last_epoch, position.end_address)
        if found is not None:
            if not is_report:
                call.answer(("diverged", found))
            return
        partition.replica_fetched(
            position.broker_id, position.incarnation, position.end_address, position.flushed, self.world.now
        )
        if not is_report:
            self._parked[position.broker_id] = call, position
            self._wake()

    def _wake(self, *, everybody: bool = False) -> None:
        """Answer the followers for whom there is something, or who have waited long enough."""
        for broker_id, (call, position) in list(self._parked.items()):
            partition = self.partition
            if partition is None:
                call.answer(NotLeader("not the leader"))
            elif position.end_address < partition.log.end.address:
                start, ranges = partition.log.read_from(position.end_address, FETCH_BYTES)
                data = b"".join(file.read_at(at, size) for file, at, size in ranges)
                call.answer(("data", start, data, partition.high_watermark))
            elif everybody or self.world.now - call.at > PARKED_S:
                call.answer(("data", position.end_address, b"", partition.high_watermark))
            else:
                continue
            del self._parked[broker_id]

    def _want_isr(self, partition: LedPartition) -> None:
        self.process.after(0.0, self._propose)

    def _propose(self) -> None:
        partition = self.partition
        if partition is None:
            return
        change = partition.propose_isr(self.world.now, self.process.alive, LAG_S)
        if change is not None:
            self.registry.write(partition, change)

    def step_down(self, partition: LedPartition) -> None:
        if self.partition is partition:
            self.world.say("broker %d steps down from epoch %d", self.broker_id, partition.leader_epoch)
            self._resign()
            self.leader = -1

    # --- Following ----------------------------------------------------------------------------------------------------

    def _stop_following(self) -> None:
        self._fetching += 1

    def _position(self) -> Position:
        assert self.log is not None
        end = self.log.end
        flushed = self.log.flushed_end if self.rules.holds("D4 follower") else end
        return Position(
            self.leader_epoch,
            self.broker_id,
            self.process.incarnation,
            self.log.last_batch_epoch,
            end.address,
            min(flushed, end),
        )

    def _fetch(self) -> None:
        self._fetching += 1
        number = self._fetching
        self._fetch_sent_s = self.world.now
        arguments = (self._position(), False)
        self.process.ask(self.leader, "fetch", arguments, lambda answer: self._answered(number, answer))

    def _fetch_later(self, number: int) -> None:
        if number == self._fetching:
            self._fetch()

    def _answered(self, number: int, answer: Any) -> None:
        log = self.log
        if number != self._fetching or log is None:
            return
        if isinstance(answer, KlogError) or answer is ENDED or answer is REFUSED:
            self.process.after(AGAIN_S, self._fetch_later, number)
            return
        if answer[0] == "diverged":
            found = answer[1]
            if isinstance(found, StartsElsewhere):
                self.laws.cuts(self.broker_id, found.address, self.high_watermark.address)
                log.restart(found.address, found.offset)
                self.high_watermark = min(self.high_watermark, log.end)
            else:
                self._cut(truncation_address(log.epoch_starts, log.start_address, log.end.address, found))
            self._fetch()
            return
        _, start, data, leaders = answer
        if data:
            try:
                if start > log.end.address:
                    log.skip_to(start, "the leader has a hole there")
                log.append_at(memoryview(bytearray(data)), self.leader_epoch)
            except CorruptLog:
                self.process.after(AGAIN_S, self._fetch_later, number)
                return
            self.want_flush(log)
        known = min(leaders, log.flushed_end)
        if known.address > self.high_watermark.address:
            self.high_watermark = known
        self._fetch()

    def _cut(self, address: int) -> None:
        log = self.log
        assert log is not None
        if address >= log.end.address:
            return
        place = log.floor(address).address
        self.world.say("broker %d cuts its log from %d to %d", self.broker_id, log.end.address, place)
        self.laws.cuts(self.broker_id, place, self.high_watermark.address)
        log.truncate(place)
        self.high_watermark = min(self.high_watermark, log.end)

    # --- Flushing, time -----------------------------------------------------------------------------------------------

    def want_flush(self, log: Log) -> None:
        """As the flusher: one flush at a time, which serves whatever was appended before it."""
        config = log.config
        if self._is_flushing or log.never_flushes or log is not self.log:
            return
        self._is_flushing = True
        wait_s = 0.0 if config.flush_messages == 1 else config.flush_ms / 1000
        self.process.after(wait_s, self._begin_flush, log)

    def _begin_flush(self, log: Log) -> None:
        mark = log.begin_flush()
        slow = self.process.host.slow_disk_s
        self.process.after(0.001 + self.world.draw.random() * (slow or 0.004), self._end_flush, log, mark)

    def _end_flush(self, log: Log, mark: Any) -> None:
        log.finish_flush(mark)
        self._is_flushing = False
        if log is not self.log:
            return
        if log.end.address > log.durable_end.address:
            self.want_flush(log)
        if self.partition is not None:
            self.partition.flushed(log.flushed_end)
        elif self.leader >= 0:
            self.process.ask(self.leader, "fetch", (self._position(), True), lambda answer: None)

    def tick(self) -> None:
        partition = self.partition
        if partition is not None:
            if partition.needs_look:
                partition.mark(self.world.now, LAG_S)
                self._propose()
                if partition.is_deserted(self.world.now, LAG_S):
                    self._read_again(partition)
                partition.settle()
            self._wake()
        elif (
            self.log is not None
            and self.leader not in (-1, self.broker_id)
            and self.world.now - self._fetch_sent_s > FETCH_PATIENCE_S
        ):
            self._fetch()

    def _read_again(self, partition: LedPartition) -> None:
        """Rule R6: a leader that nobody fetches from asks whether it leads."""

        def look(outcome: str, nodes: dict[str, Node | None]) -> None:
            if outcome != OK or partition.resigned:
                return
            found = state_of(nodes[STATE])
            if found is not None and (found.leader, found.leader_epoch) == (self.broker_id, partition.leader_epoch):
                self.adopt(found)
            else:
                self.step_down(partition)

        self.registry.read(look)

    def checkpoint(self) -> None:
        """The high watermark to the disk."""
        if self.partition is not None:
            self.high_watermark = max(self.high_watermark, self.partition.high_watermark)
        if self.log is not None and self.high_watermark.address != self.checkpointed:
            self.checkpointed = self.high_watermark.address
            self.disk.replace(HIGH_WATERMARK, b"%d %d" % self.high_watermark)
