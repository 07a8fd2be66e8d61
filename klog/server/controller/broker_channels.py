"""The controller's channels to all registered brokers: changes in order, and whether each broker answers.

Pending changes are kept as names, not as requests. A request is made when it is sent, from the current state, so a
thousand changes are few requests, and the last state of each partition wins. Metadata are the same for every broker
(`MetadataUpdates`); a channel knows how far its broker has been sent them. Each round sends UpdateMetadata, then
LeaderAndIsr, then StopReplica. After a lost connection the broker is sent everything again.

The connection is the quick sign of life. When it ends, the channel connects again. A refusal at the address where the
broker listens means that it is dead, and is reported once. The channel keeps trying while the broker is registered, and
reports when that incarnation answers again (rule R6). `Liveness` draws the conclusions.

While nothing is pending, the channel asks the broker every `ASK_EVERY_S` who it is. Only the time of the answer
matters: when a session ends, the controller reports since when its broker has been silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from klog.client.partition_requests import by_partition
from klog.coordination.brokers import Registration
from klog.coordination.partition_states import NO_LEADER
from klog.errors import CannotConnect, KlogError, StaleBrokerEpoch, StaleControllerEpoch
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.codec import EncodedRequest
from klog.protocol.interbroker import DELETED_TOPIC_EPOCH
from klog.server.controller import requests
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.liveness import Liveness
from klog.server.controller.metadata_updates import MetadataUpdates
from klog.server.controller.peers import Peers
from klog.server.controller.requests import Stop
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

PROBE_EVERY_S = 0.2
AGAIN_S = 0.1
"""Pause before repeating a request to a broker that does not know its own registration yet."""
ASK_EVERY_S = 2.0
SHORT_S = 1.0
"""After a connection that lasted longer, the channel reconnects at once."""


@dataclass(slots=True)
class _Pending:
    """Changes to send."""

    everything: bool = False
    states: set[TopicPartition] = field(default_factory=set)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.everything or self.states or self.stops)


class BrokerChannel:
    """The channel to one incarnation of one broker. Event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        state: ControllerState,
        liveness: Liveness,
        epoch: int,
        registration: Registration,
        updates: MetadataUpdates,
    ) -> None:
        self.registration = registration
        self.broker_id = registration.broker.broker_id
        self._runtime = runtime
        self._peers = peers
        self._state = state
        self._liveness = liveness
        self._context = context = state.context
        self._epoch = epoch
        self._timeout_s = runtime.config.integer("controller.socket.timeout.ms") / 1000
        self._fence = {"controller_epoch": epoch, "incarnation": registration.incarnation}
        self._head = {"controller_id": runtime.broker_id, **self._fence}
        self._pending = _Pending()
        self._updates = updates
        self._told = 0
        """The number of the last metadata change sent; 0: none."""
        self._joined = updates.number
        """The number of the last change before the connection: later ones are sent before everything."""
        self._ended: asyncio.Future[None] = runtime.loop.create_future()
        self._wakeup = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._acknowledged.set()
        self._is_refused = False
        known = context.brokers.get(self.broker_id)
        self._has_described = known is not None and known.facts is not None
        """Its replicas are known: those of the controller's own broker, from the beginning of the term."""
        self._last_failure = ""
        self._task: asyncio.Task[None] | None = None

    # --- what to send -------------------------------------------------------------------------------------------------

    def send_all(self) -> None:
        """Send the broker its whole state."""
        self._pending.everything = True
        self.wake_up()

    def send_states(self, names: Iterable[TopicPartition]) -> None:
        """Send the states of the broker's replicas of these partitions."""
        self._pending.states.update(names)
        self.wake_up()

    def send_stop(self, stops: Mapping[TopicPartition, Stop]) -> None:
        """Stop these replicas."""
        self._pending.stops.update(stops)
        self._pending.states.difference_update(stops)
        self.wake_up()

    def wake_up(self) -> None:
        """Something is pending, or the metadata have changed."""
        self._acknowledged.clear()
        self._wakeup.set()

    def expect(self) -> None:
        """As `wake_up`, but not to be sent at once: `wake_up` follows."""
        self._acknowledged.clear()

    @property
    def is_urgent(self) -> bool:
        """Whether replicas are to lead, follow or stop."""
        return bool(self._pending.states or self._pending.stops)

    @property
    def is_behind(self) -> bool:
        """Whether anything is pending."""
        return bool(self._pending) or self._told < self._updates.number

    async def acknowledged(self) -> None:
        """Wait until the broker has answered everything that was pending."""
        await self._acknowledged.wait()

    # --- sending ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and send what is pending."""
        self._task = self._runtime.spawn(self._run())

    def close(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()
        self._acknowledged.set()

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._connect()
            except KlogError as error:
                if isinstance(error, CannotConnect) and error.is_refused and not self._is_refused:
                    log.warning("broker %d refuses connections: %s", self.broker_id, error.message)
                    self._is_refused = True
                    self._liveness.refused(self.registration)
                elif not isinstance(error, CannotConnect):
                    self._log_failure(error.message)
                await asyncio.sleep(PROBE_EVERY_S)
                continue
            began_s = asyncio.get_running_loop().time()
            try:
                await self._serve(connection)
            except KlogError as error:
                self._log_failure(error.message)
            finally:
                self._peers.probes.doubt(self.broker_id)
                self._liveness.disconnected(self.registration)
                await connection.close()
            if asyncio.get_running_loop().time() - began_s < SHORT_S:
                await asyncio.sleep(AGAIN_S)
            await self._peers.disconnected(self._runtime.identity, self.registration.broker)

    def _log_failure(self, what: str) -> None:
        """Log once, not ten times a second."""
        if what != self._last_failure:
            self._last_failure = what
            log.info("broker %d: %s", self.broker_id, what)

    async def _connect(self) -> Channel | _OwnBroker:
        """Connect to this incarnation. Raises CannotConnect, a refusal only where its own address refuses."""
        if self.broker_id == self._runtime.broker_id:
            return _OwnBroker(self._peers)
        channel = await self._peers.reach(self.registration.broker, timeout_s=self._timeout_s)
        try:
            await self._check_identity(channel)
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _check_identity(self, channel: Channel) -> None:
        found = await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
        if (found.broker_id, found.incarnation) != (self.broker_id, self.registration.incarnation):
            self._state.doubt_registry()
            raise StaleBrokerEpoch(
                f"{channel.address} is incarnation {found.incarnation} of broker {found.broker_id}, "
                f"expected {self.registration.incarnation} of {self.broker_id}"
            )

    async def _serve(self, connection: Channel | _OwnBroker) -> None:
        if not self._has_described:
            described = await connection.request(codec.request(ApiKey.DESCRIBE_REPLICAS, 0, **self._fence))
            self._check(described)
            self._liveness.described(self.registration, described.replicas)
        self._has_described = False
        self._is_refused = False
        self._liveness.answered(self.registration)
        self.send_all()
        self._told, self._joined = 0, self._updates.number
        ended = self._ended = asyncio.ensure_future(connection.wait_closed())
        asking: asyncio.Future[None] | None = None
        try:
            while True:
                while self.is_behind:
                    await self._send_pending(connection)
                self._acknowledged.set()
                self._last_failure = ""
                await self._woken(timeout_s=ASK_EVERY_S)
                is_own = self.broker_id == self._runtime.broker_id
                if not (self.is_behind or is_own) and (asking is None or asking.done()):
                    asking = asyncio.ensure_future(self._ask(connection))
        finally:
            ended.cancel()
            if asking is not None:
                asking.cancel()
            self._acknowledged.clear()

    async def _ask(self, connection: Channel | _OwnBroker) -> None:
        """Ask the broker who it is; a missing answer has no consequence."""
        try:
            await connection.request(codec.request(ApiKey.DESCRIBE_SELF, 0), timeout_s=self._timeout_s)
        except KlogError:
            return
        self._has_answered()

    def _has_answered(self) -> None:
        known = self._context.known(self.registration)
        if known is not None:
            known.answered_ms = self._runtime.zookeeper.clock.now_ms()

    async def _send_pending(self, connection: Channel | _OwnBroker) -> None:
        turn = await self._turn(connection) if self._pending.everything else None
        pending, self._pending = self._pending, _Pending()
        number = self._updates.number
        try:
            await self._send(connection, pending)
            self._told = number
        except BaseException:
            self._keep(pending)
            raise
        finally:
            if turn is not None:
                self._updates.give_back(turn)

    async def _turn(self, connection: Channel | _OwnBroker) -> asyncio.Future[None]:
        """Wait until everything can be sent; sends what is urgent meanwhile. After a controller's death partitions get
        leaders before a thousand brokers have all metadata."""
        turn = self._updates.turn()
        try:
            while not turn.done():
                if self.is_urgent:
                    urgent = _Pending(states=self._pending.states, stops=self._pending.stops)
                    self._pending.states, self._pending.stops = set(), {}
                    try:
                        await self._send(connection, urgent)
                    except BaseException:
                        self._keep(urgent)
                        raise
                    continue
                await self._woken(turn)
        except BaseException:
            self._updates.give_back(turn)
            raise
        return turn

    async def _woken(self, *also: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """Wait until something is pending or one of ``also`` is done. Raises CannotConnect if the connection ends."""
        waking: asyncio.Future[Any] = asyncio.ensure_future(self._wakeup.wait())
        try:
            await asyncio.wait((waking, self._ended, *also), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
        self._wakeup.clear()
        if self._ended.done():
            raise CannotConnect(f"the connection to broker {self.broker_id} has ended")

    def _keep(self, pending: _Pending) -> None:
        """Keep it: it may not have been sent. Everything is sent again; a reconnected broker is described again,
        too."""
        self._pending.everything = True
        self._pending.stops = {**pending.stops, **self._pending.stops}

    async def _send(self, connection: Channel | _OwnBroker, pending: _Pending) -> None:
        context, everything = self._context, pending.everything
        told = 0 if everything else self._told or self._joined
        if everything:
            await self._updates.encode()
        if told < self._updates.number:
            update = self._updates.request(told, self.registration.incarnation)
            self._check(await connection.request(update, timeout_s=self._timeout_s))
        names = context.hosted(self.broker_id) if everything else pending.states
        lead = requests.leader_and_isr(context, self._head, self.broker_id, names, is_full=everything)
        if lead is not None:
            answer = await connection.request(lead, timeout_s=self._timeout_s)
            self._check(answer)
            there = dict(by_partition(lead.topics))
            failed = [TopicPartition(one.topic, one.partition_index) for one in answer.failed]
            for name in failed:
                there.pop(name, None)
            if failed:
                self._liveness.replicas_failed(self.broker_id, failed)
            follow = {name for name, one in there.items() if one.leader not in (NO_LEADER, self.broker_id)}
            self._liveness.replicas_follow(self.broker_id, follow)
            begun = {name for name, one in there.items() if one.is_new and one.leader == self.broker_id}
            if begun:
                self._liveness.replicas_begun(begun)
        wanted = dict(pending.stops)
        if everything:
            wanted |= requests.deletions(context, self.broker_id)  # whatever was to be stopped before
        stops = {name: stop for name, stop in wanted.items() if not self._is_back(name, stop)}
        if stops:
            answer = await connection.request(requests.stop_replica(self._head, stops), timeout_s=self._timeout_s)
            self._check(answer)
            failed_stops = {TopicPartition(one.topic, one.partition_index) for one in answer.failed}
            deleted = {name for name, stop in stops.items() if stop.delete} - failed_stops
            self._liveness.replicas_deleted(self.broker_id, deleted)

    def _is_back(self, name: TopicPartition, stop: Stop) -> bool:
        """Whether the broker was assigned a stopped replica again, or its topic was restored."""
        context = self._context
        if not context.knows(name) or self.broker_id not in context.replicas(name):
            return False
        if stop.leader_epoch == DELETED_TOPIC_EPOCH:
            return context.topics[name.topic].topic_id == stop.topic_id and name.topic not in context.deleting
        return stop.delete

    def _check(self, answer: Any) -> None:
        self._has_answered()
        code = int(answer.error_code)
        if code == StaleControllerEpoch.wire:
            self._state.on_deposed()
        if code != 0:
            raise StaleBrokerEpoch(f"a request of controller epoch {self._epoch} was refused with error {code}")


class _OwnBroker:
    """The controller's own broker: the same handlers, without a socket."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def request(self, entity: Any, *, timeout_s: float | None = None) -> Any:
        return await self._peers.answer_locally(entity.decoded() if isinstance(entity, EncodedRequest) else entity)

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        return


ACKNOWLEDGED_WITHIN_S = 1.0
"""How long a client's request waits for brokers to acknowledge; slower ones learn of the change later."""


WOKEN_AT_ONCE = 50
"""Channels that send the same metadata in one turn of the event loop: some 10 ms."""


class BrokerChannels:
    """Event loop only. Requests to a broker without a channel are dropped: when it registers, it is sent everything."""

    def __init__(self, runtime: Runtime, peers: Peers, state: ControllerState, liveness: Liveness) -> None:
        self._runtime = runtime
        self._peers = peers
        self._state = state
        self._liveness = liveness
        self._channels: dict[int, BrokerChannel] = {}
        self._updates: MetadataUpdates | None = None
        """For the term; None before its first channel."""

    def open(self, epoch: int, registration: Registration) -> None:
        """Connect to this incarnation of a broker, instead of an earlier one, and send it everything."""
        broker_id, state = registration.broker.broker_id, self._state
        self.close(broker_id)
        if self._updates is None:
            self._updates = MetadataUpdates(state.context, self._runtime.broker_id, epoch)
        channel = BrokerChannel(self._runtime, self._peers, state, self._liveness, epoch, registration, self._updates)
        self._channels[broker_id] = channel
        channel.send_all()
        channel.start()

    def close(self, broker_id: int) -> None:
        """Send this broker nothing more."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close_all(self) -> None:
        """The term is over."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._updates = None

    def send_metadata(
        self, names: Iterable[TopicPartition] = (), topics_whole: Iterable[str] = (), gone: Mapping[str, Any] = {}
    ) -> None:
        """Send all brokers the live brokers, and the metadata of these partitions, whole topics, deleted topics."""
        if self._updates is not None:
            self._updates.changed(names, topics_whole, gone)
            self._wake_up()

    def send_slots(self) -> None:
        """Send all brokers the coordinators of groups."""
        if self._updates is not None:
            self._updates.slots_changed()
            self._wake_up()

    def _wake_up(self) -> None:
        """Wake all channels: those of brokers that lead or follow again first, the others some at a time. A thousand
        requests in a row would delay the answers of the first."""
        later = []
        for channel in self._channels.values():
            channel.expect()
            if channel.is_urgent:
                channel.wake_up()
            else:
                later.append(channel)
        self._wake_some(later)

    def _wake_some(self, channels: Sequence[BrokerChannel]) -> None:
        for channel in channels[:WOKEN_AT_ONCE]:
            channel.wake_up()
        if len(channels) > WOKEN_AT_ONCE:
            self._runtime.loop.call_soon(self._wake_some, channels[WOKEN_AT_ONCE:])

    def send_states(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """Send one broker the states of its replicas of these partitions."""
        if broker_id in self._channels:
            self._channels[broker_id].send_states(names)

    def send_stop(self, broker_id: int, stops: Mapping[TopicPartition, Stop]) -> None:
        """Have one broker stop these replicas. Without a channel the operation continues when the broker is back."""
        if broker_id in self._channels:
            self._channels[broker_id].send_stop(stops)

    async def acknowledged(self, broker_ids: Iterable[int], within_s: float | None = ACKNOWLEDGED_WITHIN_S) -> bool:
        """Wait until these brokers have answered all that was sent; False after ``within_s``."""
        waiting = [
            asyncio.ensure_future(self._channels[one].acknowledged()) for one in broker_ids if one in self._channels
        ]
        if not waiting:
            return True
        _, late = await asyncio.wait(waiting, timeout=within_s)
        for one in late:
            one.cancel()
        return not late
