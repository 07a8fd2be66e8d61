"""What all parts of a broker share: settings, threads, the event loop, the ZooKeeper session, the state.

A part gets this and the parts that it works with, never the broker, so that a test can build it from the same few
objects.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Concatenate, ParamSpec, TypeVar

from klog.config import BrokerConfig
from klog.coordination.brokers import Registration
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import InvalidTimestamp, KlogError, NotLeader
from klog.metrics import Measures
from klog.server.executors import Executors, Purpose
from klog.server.peer_addresses import PeerAddresses

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

CLIENT_ID_PREFIX = "klog-broker-"


class BrokerState(Enum):
    """0.8's names and numbers of a broker's states; klog's brokers have no others."""

    STARTING = "Starting", 1
    RUNNING = "RunningAsBroker", 3
    CONTROLLER = "RunningAsController", 4
    STOPPING = "BrokerShuttingDown", 7

    def __init__(self, label: str, number: int) -> None:
        self.label = label
        self.number = number


class Identity:
    """This broker's identity in the cluster. Event loop only."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.client_id = f"{CLIENT_ID_PREFIX}{broker_id}"
        """The client id of requests to other brokers."""
        self.peer_addresses = PeerAddresses()
        """How to connect to other brokers."""
        self.started_at_ms = time.time_ns() // 1_000_000
        self.registration: Registration | None = None
        self.fenced: KlogError | None = None
        """The error of appends while the broker may not append (its session has expired); None while it may."""
        self.clock_ahead_ms = 0
        """How far this broker's clock is ahead of most others', if it is the odd one (`PeerClocks`); else 0."""
        self.is_clock_doubted = False
        """Whether messages were refused for their times since it was last compared."""

    def by_its_clock(self, found: T) -> T | NotLeader:
        """The result; if this broker's clock is wrong, a refusal of messages for their times becomes a retriable
        error."""
        if isinstance(found, InvalidTimestamp):
            if self.clock_ahead_ms:
                return NotLeader(f"{found.message}; but it is this broker's clock that is wrong")
            self.is_clock_doubted = True
        return found

    @property
    def incarnation(self) -> int:
        """The czxid of the registration, -1 without one."""
        return self.registration.incarnation if self.registration is not None else -1


class Runtime:
    """Event loop only, except `from_thread`."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        executors: Executors,
        zookeeper: ZooKeeper,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.config = config
        self.identity = identity
        self.executors = executors
        self.zookeeper = zookeeper
        self.loop = loop
        self.measures = Measures()
        self.connected = asyncio.Event()
        """Set while there is a connection to ZooKeeper."""
        self.on_event: Callable[[str, Mapping[str, Any]], None] | None = None
        """Records the cluster's events; None until the broker can write them."""
        self.on_events_awaited: Callable[[], Awaitable[object]] | None = None
        """Waits until the events so far are in ``klog.events``."""
        self.stopping = asyncio.Event()
        """Set when the controlled shutdown begins."""
        self.state = BrokerState.STARTING
        """Any thread may read it."""
        self.restart = False
        """Whether to serve again after the stop."""
        self.failure: KlogError | None = None
        """The fault that ends the broker; None after a request to stop."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def stop_soon(self, reason: str, failure: KlogError | None = None, *, restart: bool = False) -> None:
        """Start the controlled shutdown. The first call's reason and ``restart`` count."""
        if failure is not None:
            self.failure = failure
        if not self.is_stopping:
            log.info("stopping: %s", reason)
            self.restart = restart
            self.stopping.set()

    @property
    def broker_id(self) -> int:
        return self.identity.broker_id

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task beside the requests; an error is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the broker failed", exc_info=error)

    def cancel_tasks(self) -> None:
        """Cancel the spawned tasks that still run."""
        for task in list(self._tasks):
            task.cancel()

    def from_thread(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the event loop. Any thread; ignored once the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(functools.partial(function, *arguments))
        except RuntimeError:
            pass  # the loop has closed: the broker has stopped

    async def at_zookeeper(
        self,
        purpose: Purpose,
        function: Callable[Concatenate[ZooKeeper, P], T],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """``function(zookeeper, ...)`` in a thread of that purpose; raises what it does."""
        return await self.executors.run(purpose, function, self.zookeeper, *arguments, **named)

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt to reach ZooKeeper: for this time, and until there is a connection."""
        await asyncio.sleep(seconds)
        await self.connected.wait()

    def tell(self, kind: str, /, **facts: Any) -> None:
        """Record an event of the cluster."""
        self.tell_facts(kind, facts)

    def tell_facts(self, kind: str, facts: Mapping[str, Any]) -> None:
        """The same, with the facts as one argument, for `from_thread`."""
        if self.on_event is not None:
            self.on_event(kind, facts)

    async def events_sent(self) -> None:
        """Wait until the events recorded so far are in ``klog.events``, if they go there."""
        if self.on_events_awaited is not None:
            await self.on_events_awaited()
