"""The controller's way to each broker: what is to be said to it, in order, and whether it answers.

What waits to be said is kept as names, not as requests: a request is made when it is sent, from what is known then, so
a thousand changes are few requests and the last word on each partition wins. In a round go UpdateMetadata, then
LeaderAndIsr, then StopReplica. A broker that was out of reach is told everything again.

The connection is the quick sign of life (DESIGN: failover). When it ends, the broker is asked anew; a refusal, at the
address where it listens, says that it is dead, and is reported once. Probing goes on for as long as the broker is
registered, and an answer of that incarnation is reported too (rule R6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from klog.coordination.brokers import Registration
from klog.coordination.partition_states import NO_LEADER
from klog.errors import CannotConnect, KlogError, StaleBrokerEpoch, StaleControllerEpoch
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.controller import requests
from klog.server.controller.context import Context
from klog.server.dispatch import answer_locally
from klog.server.reach import knock, reach

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

PROBE_EVERY_S = 0.2
AGAIN_S = 0.1
"""Before something is said again that was refused by a broker that does not know its own registration yet."""
SHORT_S = 1.0
"""A connection that lasted longer and has ended is followed by another at once."""


class Owner(Protocol):
    """The controller, as its links see it. Event loop."""

    context: Context

    def refused(self, registration: Registration) -> None:
        """Nobody listens where this broker did."""

    def answered(self, registration: Registration) -> None:
        """This incarnation answers."""

    def silent(self, registration: Registration) -> None:
        """It answers no more: the connection has ended."""

    def registry_doubted(self) -> None:
        """Another incarnation answers than the one that is known."""

    def deposed(self) -> None:
        """A broker knows a later controller."""

    def told_facts(self, registration: Registration, facts: Iterable[Any]) -> None: ...

    def not_obeyed(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas cannot do what they were told."""

    def follows(self, broker_id: int, names: set[TopicPartition]) -> None:
        """These replicas follow a leader."""

    def stopped(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas are stopped, and deleted if that was asked."""


@dataclass(slots=True)
class _Said:
    """What waits to be said."""

    everything: bool = False
    metadata: bool = False
    topics: dict[str, set[int] | None] = field(default_factory=dict)
    gone: dict[str, UUID | None] = field(default_factory=dict)
    states: set[TopicPartition] = field(default_factory=set)
    stops: dict[TopicPartition, tuple[UUID | None, int, bool]] = field(default_factory=dict)
    slots: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.everything or self.metadata or self.topics or self.gone or self.states or self.stops or self.slots
        )


class Link:
    """To one incarnation of one broker."""

    def __init__(self, owner: Owner, registration: Registration, epoch: int, *, broker: Broker) -> None:
        self.registration = registration
        self._owner = owner
        self._epoch = epoch
        self._broker = broker
        self._said = _Said()
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._is_refused = False
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def broker_id(self) -> int:
        return self.registration.broker.broker_id

    @property
    def _head(self) -> dict[str, Any]:
        return {
            "controller_id": self._broker.broker_id,
            "controller_epoch": self._epoch,
            "incarnation": self.registration.incarnation,
        }

    # --- What to say ---

    def tell_all(self) -> None:
        self._said.everything = True
        self._stir()

    def tell_states(self, names: Iterable[TopicPartition]) -> None:
        self._said.states.update(names)
        self._stir()

    def tell_metadata(self, changed: Mapping[str, Iterable[int] | None], gone: Mapping[str, UUID | None]) -> None:
        said = self._said
        said.metadata = True
        for topic, numbers in changed.items():
            said.gone.pop(topic, None)
            known = said.topics.get(topic, set())
            said.topics[topic] = None if numbers is None or known is None else known | set(numbers)
        for topic, topic_id in gone.items():
            said.topics.pop(topic, None)
            said.gone[topic] = topic_id
        self._stir()

    def tell_slots(self) -> None:
        self._said.slots = True
        self._stir()

    def tell_stop(self, stops: Mapping[TopicPartition, tuple[UUID | None, int, bool]]) -> None:
        """Partition -> (topic id, leader epoch, whether its log goes too)."""
        self._said.stops.update(stops)
        self._said.states.difference_update(stops)
        self._stir()

    def _stir(self) -> None:
        self._quiet.clear()
        self._wake.set()

    async def quiet(self) -> None:
        """Return when the broker has answered to everything that was to be said."""
        await self._quiet.wait()

    # --- Saying it ---

    def start(self) -> None:
        self._task = self._broker.spawn(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._quiet.set()

    async def _run(self) -> None:
        while True:
            try:
                speak = await self._connect()
            except KlogError as error:
                if isinstance(error, CannotConnect) and error.is_refused and not self._is_refused:
                    log.warning("broker %d refuses connections: %s", self.broker_id, error.message)
                    self._is_refused = True
                    self._owner.refused(self.registration)
                elif not isinstance(error, CannotConnect):
                    self._say_trouble(error.message)
                await asyncio.sleep(PROBE_EVERY_S)
                continue
            began_s = asyncio.get_running_loop().time()
            try:
                await self._serve(speak)
            except KlogError as error:
                self._say_trouble(error.message)
            finally:
                self._broker.knocks.doubt(self.broker_id)
                self._owner.silent(self.registration)
                await speak.close()
            if asyncio.get_running_loop().time() - began_s < SHORT_S:
                await asyncio.sleep(AGAIN_S)
            # One that is ending lets connections in for a moment more: asked until it answers or refuses.
            await knock(*self.registration.broker.probe_address)

    def _say_trouble(self, what: str) -> None:
        """Once, not ten times a second for as long as it lasts."""
        if what != self._trouble:
            self._trouble = what
            log.info("broker %d: %s", self.broker_id, what)

    async def _connect(self) -> _Speaker:
        """To this very incarnation; CannotConnect, refused where its own address refuses."""
        if self.broker_id == self._broker.broker_id:
            return _Locally(self._broker)
        timeout_s = self._broker.config.integer("controller.socket.timeout.ms") / 1000
        channel = await reach(self._broker, self.registration.broker, timeout_s=timeout_s)
        try:
            await self._recognize(channel)
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _recognize(self, channel: Channel) -> None:
        found = await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
        if (found.broker_id, found.incarnation) != (self.broker_id, self.registration.incarnation):
            self._owner.registry_doubted()
            raise StaleBrokerEpoch(
                f"{channel.address} is incarnation {found.incarnation} of broker {found.broker_id}, "
                f"expected {self.registration.incarnation} of {self.broker_id}"
            )

    async def _serve(self, speak: _Speaker) -> None:
        head = {name: value for name, value in self._head.items() if name != "controller_id"}
        facts = await speak.request(codec.request(ApiKey.DESCRIBE_REPLICAS, 0, **head))
        self._check(facts)
        self._owner.told_facts(self.registration, facts.replicas)
        self._is_refused = False
        self._owner.answered(self.registration)
        self._said.everything = True
        self._stir()
        ended = asyncio.ensure_future(speak.wait_closed())
        try:
            while not ended.done():
                while self._said:
                    await self._say_all(speak)
                self._quiet.set()
                self._trouble = ""
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait((waking, ended), return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
            raise CannotConnect(f"the connection to broker {self.broker_id} has ended")
        finally:
            ended.cancel()
            self._quiet.clear()

    async def _say_all(self, speak: _Speaker) -> None:
        said, self._said = self._said, _Said()
        try:
            await self._say(speak, said)
        except BaseException:
            self._said.everything = True
            self._said.gone.update(said.gone)
            self._said.stops = {**said.stops, **self._said.stops}
            raise

    async def _say(self, speak: _Speaker, said: _Said) -> None:
        context, timeout_s = self._owner.context, self._broker.config.integer("controller.socket.timeout.ms") / 1000
        if said.everything or said.metadata or said.slots:
            update = requests.update_metadata(
                context, self._head, said.topics, said.gone, is_full=said.everything, with_slots=said.slots
            )
            self._check(await speak.request(update, timeout_s=timeout_s))
        names = context.hosted(self.broker_id) if said.everything else said.states
        lead = requests.leader_and_isr(context, self._head, self.broker_id, names, is_full=said.everything)
        if lead is not None:
            answer = await speak.request(lead, timeout_s=timeout_s)
            self._check(answer)
            failed = [TopicPartition(one.topic, one.partition_index) for one in answer.failed]
            if failed:
                self._owner.not_obeyed(self.broker_id, failed)
            self._owner.follows(self.broker_id, _followers(lead, self.broker_id).difference(failed))
        stops = [(name, *what) for name, what in said.stops.items() if not self._is_back(name, *what[1:])]
        if stops:
            answer = await speak.request(requests.stop_replica(self._head, stops), timeout_s=timeout_s)
            self._check(answer)
            kept = {TopicPartition(one.topic, one.partition_index) for one in answer.failed}
            self._owner.stopped(self.broker_id, said.stops.keys() - kept)

    def _is_back(self, name: TopicPartition, leader_epoch: int, delete: bool) -> bool:
        """A replica that was to go has been given to the broker again since."""
        context = self._owner.context
        return (
            delete
            and leader_epoch != requests.DELETED_TOPIC_EPOCH
            and context.knows(name)
            and self.broker_id in context.replicas(name)
        )

    def _check(self, answer: Any) -> None:
        code = int(answer.error_code)
        if code == StaleControllerEpoch.wire:
            self._owner.deposed()
        if code != 0:
            raise StaleBrokerEpoch(f"a request of controller epoch {self._epoch} was refused with error {code}")


def _followers(lead: Any, broker_id: int) -> set[TopicPartition]:
    """The replicas that a LeaderAndIsr request gives a leader other than the broker itself."""
    return {
        TopicPartition(topic.name, one.partition_index)
        for topic in lead.topics
        for one in topic.partitions
        if one.leader not in (NO_LEADER, broker_id)
    }


class _Speaker(Protocol):
    """A connection, or this broker itself."""

    async def request(self, entity: Any, *, timeout_s: float | None = None) -> Any: ...
    async def wait_closed(self) -> None: ...
    async def close(self) -> None: ...


class _Locally:
    """The controller's own broker: the same handlers, without a socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def request(self, entity: Any, *, timeout_s: float | None = None) -> Any:
        return await answer_locally(self._broker, entity)

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return
