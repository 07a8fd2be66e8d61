"""State shared by the controller's parts: the term and its fence, the lock, the context, and dirty partitions.

Every multi of the controller begins with a check of ``/controller_epoch`` (rule Z1), so a deposed controller that does
not know it yet cannot change anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from klog.coordination import controller_election as registry
from klog.coordination import topics
from klog.coordination.acts import Act
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import Check
from klog.errors import BadVersion, KlogError, NotController, SessionLost, StaleBrokerEpoch, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.server.controller.context import Context
from klog.server.controller.controller_election import ControllerElection
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

AGAIN_S = 0.5
"""Pause before failed work is tried again: ZooKeeper is away."""
REWRITE_TRIES = 10
EARLY_TIMER_S = 0.01
"""Added to waits before a decision: a timer may fire slightly early by the clock."""


class ControllerState:
    """Event loop only, except `fence`, `require`, and what says that it runs in a thread.

    ``lock``: held by each operation of the controller, one at a time. ``on_deposed``: called when a write or a
    broker has told of another controller.
    """

    def __init__(self, runtime: Runtime, on_deposed: Callable[[], None]) -> None:
        self._runtime = runtime
        self.on_deposed = on_deposed
        self._election: ControllerElection | None = None
        self.term: ControllerTerm | None = None
        self._is_in_doubt = False
        """The outcome of the last write is unknown, and the term not begun again."""
        self.lock = asyncio.Lock()
        self.context = Context(runtime.config, runtime.loop.time)
        self.has_work = asyncio.Event()
        """Set while partitions are dirty, or the brokers' registry must be read again."""
        self.deletions_due = asyncio.Event()
        """Set where a topic that is being deleted has no replica left: `TopicManager` finishes."""
        self.is_registry_doubted = False
        self._dirty: set[TopicPartition] = set()
        self._tasks: list[asyncio.Task[None]] = []

    # --- the term -----------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.term is not None and self._runtime.identity.fenced is None

    def require(self) -> ControllerTerm:
        """Raise NotController unless this broker is the controller, SessionLost where only ZooKeeper can tell."""
        if self._is_in_doubt:
            raise SessionLost("ZooKeeper does not answer: what the controller wrote last is not known yet")
        if self.term is None or not self.active:
            raise NotController(f"broker {self._runtime.broker_id} is not the controller")
        return self.term

    @property
    def fence(self) -> Sequence[Check]:
        """The first operations of every multi of the controller."""
        if self.term is None:
            raise NotController(f"broker {self._runtime.broker_id} is not the controller")
        return (self.term.fence,)

    def begin(self, term: ControllerTerm, election: ControllerElection) -> None:
        """The term begins; ``election``: where it was won."""
        self.term = term
        self._is_in_doubt = False
        self._election = election

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until the end of the term."""
        self._tasks.append(self._runtime.spawn(work))

    def keep_up(self, due: asyncio.Event, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Do ``work`` whenever ``due`` is set, until the end of the term. What fails is tried again; ``what`` says in
        the log what is not done yet."""
        self.spawn(self._keep_up(due, work, what))

    async def _keep_up(self, due: asyncio.Event, work: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            await due.wait()
            due.clear()
            try:
                await work()
            except KlogError as error:
                if not self.active:
                    return
                log.warning("%s, trying again: %s", what, error.message)
                await self._runtime.pause(AGAIN_S)
                due.set()

    def end(self) -> None:
        """The term is over."""
        self.term = None
        self._is_in_doubt = False
        self._dirty.clear()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def check_term(self) -> None:
        """In a thread: raise NotController once another controller is elected."""
        term = self.require()
        now = registry.current(self._runtime.zookeeper)
        if now is None or now.epoch_version != term.epoch_version or now.session != term.session:
            self._runtime.from_thread(self.on_deposed)
            raise NotController(f"controller epoch {term.epoch} is over")

    def look_again(self) -> None:
        """Find out which broker is the controller."""
        if self._election is not None:
            self._election.look_again()

    async def resign(self) -> None:
        """Resign. Raises BadVersion or NoNode if another broker is the controller already."""
        if self._election is not None:
            await self._election.resign()

    # --- ZooKeeper ----------------------------------------------------------------------------------------------------

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Read ZooKeeper, or write what may fail, in a thread. Raises what ``function`` does."""
        return await self._runtime.executors.run(Purpose.ELECTIONS, function, *arguments, **named)

    async def write(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Write in a thread. Raises what ``function`` does.

        After SessionLost the outcome is unknown (rule Z2): ZooKeeper was away for longer than a request waits. The
        client gets the error, but the write may have succeeded. So the controller begins its term again and reads
        ZooKeeper, as the next controller would. Until then it does nothing: by what it knew it would undo the write.
        """
        try:
            return await self.run(function, *arguments, **named)
        except SessionLost:
            if self.term is not None and self._election is not None:
                log.warning("the outcome of the last write is unknown: reading everything when ZooKeeper answers")
                self.term = None
                self._is_in_doubt = True
                self._election.begin_again()
            raise

    def registered(self, name: str) -> Topic:
        """In a thread: the topic in ZooKeeper. Raises UnknownTopicOrPartition."""
        topic = topics.find(self._runtime.zookeeper, name)
        if topic is None:
            raise UnknownTopicOrPartition.of_topics(name)
        return topic

    def rewrite(
        self, name: str, change: Callable[[Topic], Topic], act_of: Callable[[Topic, Topic], Act | None]
    ) -> Topic:
        """In a thread: change a topic's node, and write the act of it; ``act_of``: of the topic before and after.

        Keeps what other programs have changed there: a tool has added partitions.
        """
        for _ in range(REWRITE_TRIES):
            there = self.registered(name)
            changed = change(there)
            if changed == there:
                return there
            act = act_of(there, changed)
            acts = () if act is None else (act.write,)
            try:
                return topics.replace_assignment(self._runtime.zookeeper, changed, [*self.fence, *acts])
            except BadVersion:
                self.check_term()
        raise BadVersion(f"topic {name}: other programs keep changing its node")

    # --- dirty partitions ---------------------------------------------------------------------------------------------

    def mark_dirty(self, names: Iterable[TopicPartition]) -> None:
        """These partitions may be affected by a change: reconcile them."""
        self._dirty.update(names)
        self.has_work.set()

    def mark_dirty_later(self, name: TopicPartition, after_s: float) -> None:
        """`mark_dirty` after this time."""
        self._runtime.loop.call_later(after_s + EARLY_TIMER_S, self.mark_dirty, [name])

    def take_dirty(self) -> set[TopicPartition]:
        """Return the dirty partitions, and clear them."""
        names, self._dirty = self._dirty, set()
        return names

    def doubt_registry(self) -> None:
        """The registrations of brokers may have changed: read them again."""
        self.is_registry_doubted = True
        self.has_work.set()

    def check_incarnation(self, broker_id: int, incarnation: int) -> None:
        """Raise StaleBrokerEpoch unless this incarnation of the broker is registered."""
        found = self.context.brokers.get(broker_id)
        if found is None or found.incarnation != incarnation:
            self.doubt_registry()
            raise StaleBrokerEpoch(f"incarnation {incarnation} of broker {broker_id} is not registered")
