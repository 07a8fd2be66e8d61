"""This broker's part in the election of the controller: it is a candidate, or keeps a connection to the controller.

The broker watches ``/controller`` in ZooKeeper. Besides, it keeps a connection to the controller, the quick sign of
life. When the connection ends and connections are refused where the controller listened, the controller is dead, and
the first broker to see that takes its place, in one multi that raises ``/controller_epoch`` (rule Z1). A controller
that was deposed wrongly loses its term and nothing else; a broker does not depose the same incarnation twice (rule R6).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from klog.coordination import brokers
from klog.coordination import controller_election as registry
from klog.coordination.controller_election import ControllerTerm
from klog.errors import CannotConnect, KlogError, NotController
from klog.net.channel import Channel
from klog.server.authority import Authority
from klog.server.controller.peers import Peers
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

AGAIN_S = 0.2
NO_CANDIDATE_S = 3.0
"""How long a controller that has resigned does not stand for election; the others notice within milliseconds."""
ASK_WITHIN_S = 30.0


class Candidate(Protocol):
    """The part that becomes controller when this broker is elected: `Controller`."""

    @property
    def active(self) -> bool: ...
    async def begin(self, term: ControllerTerm, election: ControllerElection) -> None: ...
    def end(self) -> None: ...


class ControllerElection:
    """Event loop only."""

    def __init__(self, runtime: Runtime, authority: Authority, peers: Peers, candidate: Candidate) -> None:
        self._runtime = runtime
        self._zookeeper = runtime.zookeeper
        self._authority = authority
        self._peers = peers
        self._candidate = candidate
        self._term: ControllerTerm | None = None
        self._looking = asyncio.Lock()
        self._attending: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._reachable = asyncio.Event()
        """Set while there is a connection to the controller, or this broker is it."""
        self._deposed: set[int] = set()
        self._candidate_from_s = 0.0
        self._closed = False

    @property
    def holder(self) -> int:
        """The controller's broker id; -1 while unknown."""
        return -1 if self._term is None else self._term.broker_id

    async def enter(self) -> None:
        """Find the controller, or be elected."""
        await self._look(None)

    def look_again(self) -> None:
        """Something may have changed: read ZooKeeper until that succeeds."""
        if not self._closed:
            self._runtime.spawn(self._look_until_known())

    def begin_again(self) -> None:
        """As the controller, after a write of unknown outcome: begin the term again."""
        if self._term is not None:
            self._term = None
            self.look_again()

    def leave(self) -> None:
        """Take no further part: the session has expired, or the broker stops."""
        self._disconnect()
        self._term = None
        self._candidate.end()

    async def resign(self) -> None:
        """Resign. Raises BadVersion or NoNode if another broker is the controller already."""
        term = self._term
        if term is not None and self._candidate.active:
            self._candidate_from_s = self._runtime.loop.time() + NO_CANDIDATE_S
            # The watch on /controller fires here too.
            await self._runtime.at_zookeeper(Purpose.ELECTIONS, registry.resign, term)

    def close(self) -> ControllerTerm | None:
        """Take no further part. Returns this broker's term, to be resigned, if it is the controller."""
        self._closed = True
        term = self._term if self._candidate.active else None
        self.leave()
        return term

    async def _look_until_known(self) -> None:
        while not self._closed and self._runtime.identity.fenced is None:
            try:
                await self._look(None)
            except KlogError as error:
                log.warning("cannot find the controller: %s; trying again", error.message)
                await self._runtime.pause(AGAIN_S)
            else:
                return

    async def _look(self, instead_of: ControllerTerm | None) -> None:
        """Elect if there is no controller, or the one of ``instead_of`` is dead; then follow the outcome."""
        async with self._looking:
            if self._closed:
                return
            term = await self._runtime.executors.run(Purpose.ELECTIONS, self._elect, instead_of)
            if term == self._term:
                return
            self._disconnect()
            self._term = term
            self._authority.learn(term.epoch)
            if term.session == self._zookeeper.session_id:
                try:
                    await self._candidate.begin(term, self)
                except BaseException:
                    self._term = None  # elected, but the term has not begun: the next look begins it
                    raise
                self._reachable.set()  # requests that wait for a connection to the controller have it here
            else:
                self._candidate.end()
                log.info("broker %d is the controller, epoch %d", term.broker_id, term.epoch)
                self._attending = self._runtime.spawn(self._attend(term))

    def _elect(self, instead_of: ControllerTerm | None) -> ControllerTerm:
        """In a thread. Returns the controller's term; the watch reports any later change."""
        while True:
            if self._runtime.loop.time() < self._candidate_from_s and registry.current(self._zookeeper) is None:
                raise NotController("this broker has just resigned")
            term = registry.elect(self._zookeeper, self._runtime.broker_id, instead_of)
            now = registry.current(self._zookeeper, self._watch)
            if now is not None and (now.epoch, now.session) == (term.epoch, term.session):
                return now

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self.look_again)

    # --- when another broker is the controller ----------------------------------------------------------------------

    def _disconnect(self) -> None:
        if self._attending is not None:
            self._attending.cancel()
            self._attending = None
        self._channel = None
        self._reachable.clear()

    async def _attend(self, term: ControllerTerm) -> None:
        """Keep a connection to the controller; when connections are refused, take its place."""
        while term == self._term:
            try:
                found = await self._runtime.at_zookeeper(Purpose.ELECTIONS, brokers.find, term.broker_id)
                if found is not None:
                    await self._converse(found)
            except CannotConnect as error:
                assert found is not None
                if error.is_refused and found.session == term.session and found.incarnation not in self._deposed:
                    self._deposed.add(found.incarnation)
                    log.warning("controller %d is dead: %s", term.broker_id, error.message)
                    self._runtime.spawn(self._succeed(term, found.incarnation))
            except KlogError as error:
                log.debug("controller %d: %s", term.broker_id, error.message)
            await asyncio.sleep(AGAIN_S)

    async def _converse(self, found: brokers.Registration) -> None:
        """Connect, and wait for the end. Raises CannotConnect, a refusal only where its own address refuses."""
        channel = await self._peers.reach(found.broker, timeout_s=ASK_WITHIN_S)
        self._channel = channel
        self._reachable.set()
        try:
            await channel.wait_closed()
        finally:
            self._peers.probes.doubt(found.broker.broker_id)
            if self._channel is channel:  # else this is the connection to the next controller
                self._channel = None
                self._reachable.clear()
            await channel.close()
        await self._peers.disconnected(self._runtime.identity, found.broker)
        await self._peers.probe(found.broker, self._runtime.identity, timeout_s=ASK_WITHIN_S)

    async def _succeed(self, term: ControllerTerm, incarnation: int) -> None:
        """Become controller instead of that incarnation. After a failure the next refusal tries again."""
        try:
            await self._look(term)
        except KlogError as error:
            log.warning("controller %d could not be replaced: %s", term.broker_id, error.message)
            self._deposed.discard(incarnation)
            self.look_again()

    async def ask(self, entity: Any, *, within_s: float = ASK_WITHIN_S, client_id: str | None = None) -> Any:
        """The controller's answer; this broker's own, if it is the controller. Raises NotController.

        ``client_id``: of the client for which the broker asks; such a request is never answered as the broker's own.
        """
        try:
            async with asyncio.timeout(within_s):
                if not self._candidate.active:
                    await self._reachable.wait()
                if self._channel is not None:
                    return await self._channel.request(entity, timeout_s=within_s, client_id=client_id)
                if client_id is None:
                    # It goes on when the time is over, as another controller's does: a state that has been written
                    # is to be sent (rule Z2).
                    return await asyncio.shield(self._runtime.spawn(self._peers.answer_locally(entity)))
                raise NotController("this broker is the controller itself")
        except (TimeoutError, CannotConnect) as error:
            raise NotController(f"cannot reach the controller: {str(error) or 'not found in time'}") from None
