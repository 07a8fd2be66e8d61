"""This broker's entry among those that live: taken, kept an eye on, and never another's (rule R7).

An entry that carries the UUIDs of our log dirs is our own dead one, or that of a process that lives on a copy of them:
a folder that was copied has the same UUIDs, and its lock is another. So the address in the entry is asked first.

    refused, or we listen there ourselves     dead: its entry is replaced
    a broker of this id answers               it lives: this one does not start
    neither                                   it is asked again for as long as its session may last without it;
                                              a broker that has hung loses its entry by then

Whoever registers a broker id raises the version of the node beside the entry. That node is watched: a broker that finds
it raised by another appends nothing more from that moment on, and stops.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from klog.coordination import brokers
from klog.coordination.brokers import Registration
from klog.errors import BrokerIdInUse, CannotConnect, ClusterAuthorizationFailed, KlogError, NotLeader
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.executors import Purpose
from klog.server.reach import CONNECT_WITHIN_S, introduction

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.5
ANSWER_WITHIN_S = 2.0
SPARE_S = 3.0
"""Beyond the session's time-out: ZooKeeper ends sessions in ticks."""
LOOK_AGAIN_S = 1.0


class Entry:
    """See the module. Event loop only, but for `register`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # --- taking it --------------------------------------------------------------------------------------------------

    def register(self, described: brokers.Broker) -> tuple[Registration, bool]:
        """In a thread. The registration, and whether it is still the last one. Raises BrokerIdInUse."""
        zookeeper = self._broker.zookeeper
        registration = brokers.register(zookeeper, described, self._ask_holder)
        return registration, brokers.is_current(zookeeper, registration, self._watch)

    def _ask_holder(self, held: Registration) -> None:
        """In a thread: return when whoever holds the entry is dead, or the entry is gone. Raises BrokerIdInUse."""
        own = self._broker.registration
        if own is None or own.incarnation != held.incarnation:  # else it is ours, of the session before
            asyncio.run_coroutine_threadsafe(self._await_dead(held), self._broker.loop).result()

    async def _await_dead(self, held: Registration) -> None:
        broker, loop = self._broker, self._broker.loop
        deadline = loop.time() + broker.zookeeper.session_timeout_ms / 1000 + SPARE_S
        was_said = False
        while not await self._is_dead(held):
            if loop.time() > deadline:
                raise BrokerIdInUse(
                    f"{_holder(held)} does not answer, and its ZooKeeper session lives",
                    hint="find out what that process does; its entry goes with its session",
                )
            if not was_said:
                log.warning("%s does not answer: asking again until its session ends", _holder(held))
                was_said = True
            await asyncio.sleep(ASK_AGAIN_S)
            now = await broker.executors.run(Purpose.ELECTIONS, brokers.find, broker.zookeeper, broker.broker_id)
            if now is None or now.incarnation != held.incarnation:
                return

    async def _is_dead(self, held: Registration) -> bool:
        """False where it is not known. Raises BrokerIdInUse where it lives."""
        broker = self._broker
        host, port = held.broker.probe_address
        try:
            channel = await Channel.connect(
                host,
                port,
                connect_timeout_s=CONNECT_WITHIN_S,
                timeout_s=ANSWER_WITHIN_S,
                client_id=broker.client_id,
                introduction=introduction(broker, broker.broker_id),
            )
        except ClusterAuthorizationFailed:
            return True  # another broker listens there by now, or one of another cluster
        except CannotConnect as error:
            return error.is_refused
        try:
            answer = await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
        except KlogError:
            return False
        finally:
            await channel.close()
        if answer.started_at_ms == broker.started_at_ms:
            return True  # it is us: our port is that of the dead one
        raise BrokerIdInUse(
            f"{_holder(held)} answers at {host}:{port} and has the same log dirs: the folder was copied",
            hint="stop that one first, or start with an empty log dir: it is filled from the other replicas",
        )

    # --- keeping an eye on it ---------------------------------------------------------------------------------------

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._broker.from_thread(self.look)

    def look(self) -> None:
        """Somebody has registered this id: another process, or this one."""
        self._broker.spawn(self._look())

    async def _look(self) -> None:
        broker = self._broker
        while not broker.is_stopping and broker.fenced is None:
            held = broker.registration
            if held is None:
                return
            try:
                is_current = await broker.executors.run(
                    Purpose.ELECTIONS, brokers.is_current, broker.zookeeper, held, self._watch
                )
                by = None
                if not is_current:
                    by = await broker.executors.run(Purpose.ELECTIONS, brokers.find, broker.zookeeper, broker.broker_id)
            except KlogError as error:
                log.warning("cannot read which process is registered as this broker: %s; retrying", error.message)
                await broker.pause(LOOK_AGAIN_S)
                continue
            if held is not broker.registration or broker.fenced is not None:
                return  # registered anew meanwhile, or about to be: that looks by itself
            if not is_current:
                self._taken(by)
            return

    def _taken(self, by: Registration | None) -> None:
        broker = self._broker
        who = "another process" if by is None else f"another process at {by.broker.host}:{by.broker.port}"
        log.critical("%s has registered as broker %d: this one appends nothing more, and stops", who, broker.broker_id)
        broker.displaced(
            BrokerIdInUse(
                f"{who} has registered as broker {broker.broker_id} in place of this one",
                hint="two processes with one broker id, on copies of one folder: let only one of them start",
            ),
            NotLeader(f"another process is broker {broker.broker_id} now"),
        )


def _holder(held: Registration) -> str:
    described = held.broker
    return f"broker {described.broker_id} at {described.host}:{described.port}, incarnation {held.incarnation},"
