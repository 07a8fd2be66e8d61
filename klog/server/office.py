"""Who is controller, as this broker sees it: stands for election when nobody is, and speaks to whoever is.

``/controller`` is watched. Besides, every broker holds a connection to the controller, the quick sign of life: when it
ends and nobody listens where the controller did, it is dead, and whoever saw that first takes its place, in one multi
that raises ``/controller_epoch`` (DESIGN: failover; rule Z1). One that was deposed falsely has lost an office and
nothing else; the same incarnation is not deposed twice by the same broker (rule R6).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from klog.coordination import brokers
from klog.coordination import controller as registry
from klog.coordination.controller import ControllerTerm
from klog.errors import CannotConnect, KlogError, NotController
from klog.net.channel import Channel
from klog.server.executors import Purpose
from klog.server.reach import knock, probe, reach

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

AGAIN_S = 0.2
STAND_BACK_S = 3.0
"""For so long a controller that has resigned leaves the office to others: they know of it in milliseconds."""
ASK_WITHIN_S = 30.0


class Office:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._zookeeper = broker.zookeeper
        self._term: ControllerTerm | None = None
        self._looking = asyncio.Lock()
        self._attending: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._reachable = asyncio.Event()
        """There is a connection to the controller, or this broker is it."""
        self._deposed: set[int] = set()
        self._stands_from_s = 0.0
        self._closed = False

    @property
    def holder(self) -> int:
        """The controller's broker id; -1 while nobody is known to be it."""
        return -1 if self._term is None else self._term.broker_id

    async def enter(self) -> None:
        """Find out who is controller, or become it."""
        await self._look(None)

    def look_again(self) -> None:
        """Something may have changed: look, as often as it takes."""
        if not self._closed:
            self._broker.spawn(self._look_until_known())

    def begin_again(self) -> None:
        """This broker is the controller, and does not know any more what is written: its term begins anew."""
        if self._term is not None:
            self._term = None
            self.look_again()

    def leave(self) -> None:
        """Take no part any more: the session is over, or the broker stops."""
        self._stop_attending()
        self._term = None
        self._broker.controller.end()

    async def resign(self) -> None:
        """Give the office up, and let others have it: BadVersion or NoNode where they have it already."""
        term = self._term
        if term is not None and self._broker.controller.active:
            self._stands_from_s = time.monotonic() + STAND_BACK_S
            await self._broker.executors.run(
                Purpose.ELECTIONS, registry.resign, self._zookeeper, term
            )  # and the watch tells us too

    def close(self) -> ControllerTerm | None:
        """Neither stand nor follow any more; the term of this broker, to be resigned, if it is the controller."""
        self._closed = True
        term = self._term if self._broker.controller.active else None
        self.leave()
        return term

    async def _look_until_known(self) -> None:
        while not self._closed and self._broker.fenced is None:
            try:
                await self._look(None)
            except KlogError as error:
                log.warning("it is not known who is controller: %s; trying again", error.message)
                await self._broker.pause(AGAIN_S)
            else:
                return

    async def _look(self, instead_of: ControllerTerm | None) -> None:
        """Elect, and follow whoever was elected."""
        async with self._looking:
            if self._closed:
                return
            term = await self._broker.executors.run(Purpose.ELECTIONS, self._elect, instead_of)
            if term == self._term:
                return
            self._stop_attending()
            self._term = term
            self._broker.authority.learn(term.epoch)
            controller = self._broker.controller
            if term.session == self._zookeeper.session_id:
                try:
                    await controller.begin(term)
                except BaseException:
                    self._term = None  # elected, and not begun: the next look begins
                    raise
                self._reachable.set()  # who waits for the controller to be within reach has it here
            else:
                controller.end()
                log.info("broker %d is the controller, epoch %d", term.broker_id, term.epoch)
                self._attending = self._broker.spawn(self._attend(term))

    def _elect(self, instead_of: ControllerTerm | None) -> ControllerTerm:
        """In a thread. Whoever holds the office then; the watch tells of any change after that."""
        while True:
            if time.monotonic() < self._stands_from_s and registry.current(self._zookeeper) is None:
                raise NotController("this broker has resigned a moment ago")
            term = registry.elect(self._zookeeper, self._broker.broker_id, instead_of)
            now = registry.current(self._zookeeper, self._watch)
            if now is not None and (now.epoch, now.session) == (term.epoch, term.session):
                return now

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._broker.from_thread(self.look_again)

    # --- the controller, when it is another -------------------------------------------------------------------------

    def _stop_attending(self) -> None:
        if self._attending is not None:
            self._attending.cancel()
            self._attending = None
        self._channel = None
        self._reachable.clear()

    async def _attend(self, term: ControllerTerm) -> None:
        """Hold a connection to the controller; when nobody listens there any more, take its place."""
        while term == self._term:
            try:
                found = await self._broker.executors.run(
                    Purpose.ELECTIONS, brokers.find, self._zookeeper, term.broker_id
                )
                if found is not None:
                    await self._converse(found)
            except CannotConnect as error:
                assert found is not None
                if error.is_refused and found.session == term.session and found.incarnation not in self._deposed:
                    self._deposed.add(found.incarnation)
                    log.warning("controller %d is dead: %s", term.broker_id, error.message)
                    self._broker.spawn(self._succeed(term, found.incarnation))
            except KlogError as error:
                log.debug("controller %d: %s", term.broker_id, error.message)
            await asyncio.sleep(AGAIN_S)

    async def _converse(self, found: brokers.Registration) -> None:
        """Be connected for as long as the connection lasts. CannotConnect, refused where its own address refuses."""
        channel = await reach(self._broker, found.broker, timeout_s=ASK_WITHIN_S)
        self._channel = channel
        self._reachable.set()
        try:
            await channel.wait_closed()
        finally:
            self._broker.knocks.doubt(found.broker.broker_id)
            if self._channel is channel:  # else another is the controller by now, and that is the way to it
                self._channel = None
                self._reachable.clear()
            await channel.close()
        # Asked at once where it listens, until it answers or refuses: who is ending lets connections in for a moment.
        await knock(*found.broker.probe_address)
        await probe(found.broker, timeout_s=ASK_WITHIN_S, client_id=self._broker.client_id)

    async def _succeed(self, term: ControllerTerm, incarnation: int) -> None:
        """Take the office of that incarnation. Where that fails it is not deposed, and its next refusal tries again."""
        try:
            await self._look(term)
        except KlogError as error:
            log.warning("controller %d could not be replaced: %s", term.broker_id, error.message)
            self._deposed.discard(incarnation)
            self.look_again()

    async def ask(self, entity: Any, *, within_s: float = ASK_WITHIN_S) -> Any:
        """The controller's answer; NotController when this broker is it, or none is within reach in time."""
        if self._broker.controller.active:
            raise NotController("this broker is the controller itself")
        try:
            async with asyncio.timeout(within_s):
                await self._reachable.wait()
                if self._channel is None:
                    raise NotController("this broker has become the controller itself")
                return await self._channel.request(entity, timeout_s=within_s)
        except (TimeoutError, CannotConnect) as error:
            raise NotController(f"no controller is within reach: {error or 'none was found in time'}") from None
