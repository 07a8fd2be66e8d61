"""Writes groups to ZooKeeper: the writes of many groups in one multi, each behind its own fences.

Strategy (group commit): while one multi is under way, further writes gather, and go with the next. All writes of the
same few milliseconds share one round trip and one flush of ZooKeeper.

Every write has two fences: its slot's (rule G1: only the slot's holder writes) and its group's (the group has not
changed since it was read). A multi that fails on a fence is sent again in halves, so that each write fails for its own
reasons only. A write that failed is examined, and raises what is true now:

    NotCoordinator   another broker holds the slot
    GroupChanged     the group's node is at another version; with its state
    SessionLost      ZooKeeper does not answer: the outcome is unknown (rule Z2)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from klog.coordination import group_states, paths
from klog.coordination.committed import OffsetWriter
from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import GroupState
from klog.coordination.zookeeper import Operation, ZooKeeper
from klog.errors import BadVersion, KlogError, NodeExists, NoNode, NotCoordinator
from klog.names import TopicPartition

log = logging.getLogger(__name__)

TOGETHER_BYTES_MAX = 128 * 1024
"""Of several writes in one multi; a single one may be larger. ZooKeeper keeps its last 500 multis in memory, which is
not configurable: with a heap of 128 MB it ran out of memory at 81 of 500 KB each."""
OPERATIONS_MAX = 2000
"""Per multi: a few ms of ZooKeeper's time, in which all other requests wait."""
TRIES = 3
"""Per write: a node that another client creates or removes at the same moment costs another try."""


class GroupChanged(KlogError, wire=15, code="GROUP_CHANGED", retriable=True):
    """The group's node is at another version than expected."""

    def __init__(self, state: GroupState) -> None:
        super().__init__(f"group {state.group!r} was changed outside its coordinator, to version {state.version}")
        self.state = state


@dataclass(slots=True, eq=False)
class GroupWrite:
    """One group's write. ``prepare`` and what it returns run in the writer's thread.

    ``expected`` is the version of the group's node that the write replaces; at another version the operations must
    fail, if need be by a check among them.
    """

    slot: SlotHolder
    group: str
    expected: int
    prepare: Callable[[], Sequence[Operation]]
    commits_in: Collection[TopicPartition] = ()
    """Partitions of offsets to be written: looked up once for all writes of a multi."""
    in_doubt: Sequence[Operation] = ()
    """Operations that were sent before, without an answer."""
    done: asyncio.Future[KlogError | None] = field(default_factory=asyncio.Future)
    """An error or None, as its result: a future with an exception would be in a cycle with the frames that raise it."""


class GroupWriter:
    """`write` on the event loop; ZooKeeper is called in one thread of ``executor`` at a time."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        executor: Executor,
        offsets: OffsetWriter,
        admit: Callable[[str], None] = lambda group: None,
    ) -> None:
        """``admit`` raises if a group without a node may not get one."""
        self._zookeeper = zookeeper
        self._offsets = offsets
        self._executor = executor
        self._admit = admit
        self._queue: list[GroupWrite] = []
        self._draining: asyncio.Task[None] | None = None

    async def write(self, write: GroupWrite) -> None:
        """Return when ZooKeeper has it. Raises NotCoordinator, GroupChanged, SessionLost or another KlogError."""
        if write.expected < 0:
            self._admit(write.group)
        self._queue.append(write)
        if self._draining is None or self._draining.done():
            self._draining = asyncio.ensure_future(self._drain())
        error = await write.done
        if error is not None:
            raise error.bare()

    def close(self) -> None:
        """Start no further multi, and refuse the writes that wait."""
        queue, self._queue = self._queue, []
        for write in queue:
            if not write.done.done():
                write.done.set_result(NotCoordinator("the broker is shutting down"))

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            # A commit that was refused meanwhile, by its time-out, must not be written later.
            batch, self._queue = [one for one in self._queue if not one.done.done()], []
            try:
                outcomes = await loop.run_in_executor(self._executor, self._send_all, batch)
            except Exception as error:  # the executor is shut down, or an internal error: every write gets its outcome
                outcomes = [error.bare() if isinstance(error, KlogError) else KlogError(str(error))] * len(batch)
                if not isinstance(error, KlogError):
                    log.exception("internal error while writing %d groups", len(batch))
            for write, outcome in zip(batch, outcomes, strict=True):
                if not write.done.done():
                    write.done.set_result(outcome)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _send_all(self, batch: Sequence[GroupWrite]) -> list[KlogError | None]:
        outcomes: dict[GroupWrite, KlogError | None] = {}
        part: list[tuple[GroupWrite, Sequence[Operation]]] = []
        filled_bytes = filled = 0
        try:
            self._offsets.prepare((write.group, write.commits_in) for write in batch)
        except KlogError as error:
            return [error.bare()] * len(batch)
        for write in batch:
            try:
                operations = write.prepare()
            except KlogError as error:
                outcomes[write] = error.bare()
                continue
            size = sum(map(self._zookeeper.size_bytes, (write.slot.fence, *operations)))
            if part and (filled_bytes + size > TOGETHER_BYTES_MAX or filled + len(operations) > OPERATIONS_MAX):
                outcomes |= self._send(part)
                part, filled_bytes, filled = [], 0, 0
            part.append((write, operations))
            filled_bytes, filled = filled_bytes + size, filled + len(operations) + 1
        if part:
            outcomes |= self._send(part)
        return [outcomes[write] for write in batch]

    def _send(self, part: Sequence[tuple[GroupWrite, Sequence[Operation]]]) -> dict[GroupWrite, KlogError | None]:
        """Send all together; after a failure in halves, so that each write fails alone."""
        if len(part) == 1:
            write, operations = part[0]
            return {write: self._send_one(write, operations)}
        fences = {write.slot.fence: None for write, _ in part}  # a dict for its order
        everything = [one for _, operations in part for one in operations]
        try:
            self._zookeeper.commit([*fences, *everything])
        except (BadVersion, NodeExists, NoNode):
            half = len(part) // 2
            return self._send(part[:half]) | self._send(part[half:])
        except KlogError as error:
            for write, operations in part:
                write.in_doubt = operations
            return {write: error.bare() for write, _ in part}
        for write, operations in part:
            self._offsets.landed(write.group, operations)
        return {write: None for write, _ in part}

    def _send_one(self, write: GroupWrite, operations: Sequence[Operation]) -> KlogError | None:
        error: KlogError | None = None
        for _ in range(TRIES):
            sent = operations
            try:
                self._zookeeper.commit([write.slot.fence, *sent])
                self._offsets.landed(write.group, sent)
                return None
            except (BadVersion, NodeExists, NoNode) as failed:
                error = failed.bare()
            except KlogError as failed:
                write.in_doubt = sent
                return failed.bare()
            try:
                is_settled, why = self._judge(write)
                if is_settled:
                    return why
                self._offsets.forget(write.group)
                operations = write.prepare()
            except KlogError as failed:
                return failed.bare()
        return error

    def _judge(self, write: GroupWrite) -> tuple[bool, KlogError | None]:
        """Whether the outcome is settled, and the error of the fence that has failed: None if an earlier try has
        succeeded after all. It is not settled where the operations themselves have failed."""
        slot = self._zookeeper.find(paths.group_slot(write.slot.slot))
        if slot is None or slot.stat.version != write.slot.version:
            return True, NotCoordinator(f"another broker coordinates group {write.group!r}")
        if self._zookeeper.holds(write.in_doubt):
            self._offsets.landed(write.group, write.in_doubt)
            return True, None
        state = group_states.read(self._zookeeper, write.group)
        if state.version == write.expected:
            return False, None
        return True, GroupChanged(state)
