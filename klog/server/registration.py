"""This broker's entry among the live brokers: registers and watches it, and never replaces a live broker's (rule R7).

An entry with the UUIDs of this broker's log dirs comes from its own dead process, or from a live process on a copy of
the folders: a copied folder has the same UUIDs and another lock. So this broker first asks the address in the entry.

    refused, or this broker listens there     dead: its entry is replaced
    a broker of this id answers               alive: this broker does not start
    neither                                   it is asked again for as long as its session may last without it;
                                              a broker that hangs has lost its entry by then

Each registration of a broker id raises the version of the node beside the entry. The broker watches that node: if
another process has raised it, the broker stops appending at once, and then stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klog.coordination import brokers
from klog.coordination.brokers import Registration
from klog.errors import BrokerIdInUse, CannotConnect, ClusterAuthorizationFailed, KlogError, NotLeader
from klog.names import host_port
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.secret import Secret
from klog.server.executors import Purpose
from klog.server.peer_probe import at_socket, introduction
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.5
ANSWER_WITHIN_S = 2.0
SPARE_S = 3.0
"""Added to the session's time-out: ZooKeeper ends sessions in ticks."""
LOOK_AGAIN_S = 1.0


class OwnRegistration:
    """See the module. Event loop only, except `register`."""

    def __init__(self, runtime: Runtime, secret: Secret, on_displaced: Callable[[KlogError, KlogError], None]) -> None:
        """``on_displaced`` is called when another process has replaced this broker's entry: (why this one stops, the
        error of appends from then on)."""
        self._runtime = runtime
        self._identity = runtime.identity
        self._secret = secret
        self._on_displaced = on_displaced

    # --- registering ------------------------------------------------------------------------------------------------

    def register(self, described: brokers.Broker) -> tuple[Registration, bool]:
        """In a thread. The registration, and whether it is still the last one. Raises BrokerIdInUse."""
        zookeeper = self._runtime.zookeeper
        registration = brokers.register(zookeeper, described, self._ask_holder)
        return registration, brokers.is_current(zookeeper, registration, self._watch)

    def _ask_holder(self, held: Registration) -> None:
        """In a thread: return when the holder of the entry is dead, or the entry gone. Raises BrokerIdInUse."""
        own = self._identity.registration
        if own is None or own.incarnation != held.incarnation:  # otherwise it is from this process's last session
            asyncio.run_coroutine_threadsafe(self._await_dead(held), self._runtime.loop).result()

    async def _await_dead(self, held: Registration) -> None:
        runtime, loop = self._runtime, self._runtime.loop
        deadline = loop.time() + runtime.zookeeper.session_timeout_ms / 1000 + SPARE_S
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
            now = await runtime.at_zookeeper(Purpose.ELECTIONS, brokers.find, runtime.broker_id)
            if now is None or now.incarnation != held.incarnation:
                return

    async def _is_dead(self, held: Registration) -> bool:
        """Whether the holder is dead; False if unknown. Raises BrokerIdInUse if it is alive."""
        identity = self._identity
        shown = introduction(identity.broker_id, self._secret, identity.broker_id)
        try:
            channel = await at_socket(held.broker, identity, timeout_s=ANSWER_WITHIN_S, introduction=shown)
        except ClusterAuthorizationFailed:
            return True  # another broker listens there now, or one of another cluster
        except CannotConnect as error:
            return error.is_refused
        try:
            answer = await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
        except KlogError:
            return False
        finally:
            await channel.close()
        if answer.started_at_ms == identity.started_at_ms:
            return True  # this broker answered itself: it listens on the dead one's port
        where = host_port(*held.broker.probe_address)
        raise BrokerIdInUse(
            f"{_holder(held)} answers at {where} and has the same log dirs: the folder was copied",
            hint="stop that one first, or start with an empty log dir: it is filled from the other replicas",
        )

    # --- watching the entry -----------------------------------------------------------------------------------------

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self.look)

    def look(self) -> None:
        """A process, perhaps this one, has registered this id."""
        self._runtime.spawn(self._look())

    async def _look(self) -> None:
        runtime, identity = self._runtime, self._identity
        while not runtime.is_stopping and identity.fenced is None:
            held = identity.registration
            if held is None:
                return
            try:
                is_current = await runtime.at_zookeeper(Purpose.ELECTIONS, brokers.is_current, held, self._watch)
                by = None
                if not is_current:
                    by = await runtime.at_zookeeper(Purpose.ELECTIONS, brokers.find, runtime.broker_id)
            except KlogError as error:
                log.warning("cannot read which process is registered as this broker: %s; retrying", error.message)
                await runtime.pause(LOOK_AGAIN_S)
                continue
            if held is not identity.registration or identity.fenced is not None:
                return  # registered again meanwhile, or about to be: the new registration looks by itself
            if not is_current:
                self._taken(by)
            return

    def _taken(self, by: Registration | None) -> None:
        broker_id = self._identity.broker_id
        who = "another process" if by is None else f"another process at {host_port(by.broker.host, by.broker.port)}"
        log.critical("%s has registered as broker %d: this one stops appending, and shuts down", who, broker_id)
        self._on_displaced(
            BrokerIdInUse(
                f"{who} has registered as broker {broker_id} in place of this one",
                hint="two processes with one broker id, on copies of one folder: let only one of them start",
            ),
            NotLeader(f"another process is broker {broker_id} now"),
        )


def _holder(held: Registration) -> str:
    described = held.broker
    return (
        f"broker {described.broker_id} at {host_port(described.host, described.port)}, incarnation {held.incarnation},"
    )
