"""The controller's channels to all registered brokers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from klog.coordination.brokers import Registration
from klog.names import TopicPartition
from klog.server.controller.broker_channel import BrokerChannel, Listener, Stop
from klog.server.controller.context import Context
from klog.server.controller.peers import Peers
from klog.server.runtime import Runtime

ACKNOWLEDGED_WITHIN_S = 1.0
"""How long an act waits for brokers to acknowledge it; one that does not answer in time learns of it later."""


class BrokerChannels:
    """Event loop only. Requests to a broker without a channel are dropped: when it registers, it is sent everything."""

    def __init__(self, runtime: Runtime, peers: Peers, listener: Listener) -> None:
        self._runtime = runtime
        self._peers = peers
        self._listener = listener
        self._channels: dict[int, BrokerChannel] = {}

    def open(self, context: Context, epoch: int, registration: Registration) -> None:
        """Connect to this incarnation of a broker, in place of an earlier one, and send it everything."""
        broker_id = registration.broker.broker_id
        self.close(broker_id)
        channel = BrokerChannel(self._runtime, self._peers, self._listener, context, epoch, registration)
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

    def send_metadata(
        self, names: Iterable[TopicPartition] = (), topics_whole: Iterable[str] = (), gone: Mapping[str, Any] = {}
    ) -> None:
        """To all brokers: the live brokers, and the metadata of these partitions, whole topics, deleted topics."""
        changed: dict[str, set[int] | None] = defaultdict(set)
        for name in names:
            numbers = changed[name.topic]
            if numbers is not None:
                numbers.add(name.partition)
        for topic in topics_whole:
            changed[topic] = None
        for channel in self._channels.values():
            channel.send_metadata(changed, gone)

    def send_slots(self) -> None:
        """To all brokers: who coordinates which groups."""
        for channel in self._channels.values():
            channel.send_slots()

    def ask_for_replicas(self, broker_id: int) -> None:
        """Ask one broker again what is on its disks."""
        if broker_id in self._channels:
            self._channels[broker_id].ask_for_replicas()

    def send_states(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """To one broker: the states of its replicas of these partitions."""
        if broker_id in self._channels:
            self._channels[broker_id].send_states(names)

    def send_stop(self, broker_id: int, stops: Mapping[TopicPartition, Stop]) -> None:
        """To one broker: stop these replicas. The act that wants it goes on when a broker without a channel is back."""
        if broker_id in self._channels:
            self._channels[broker_id].send_stop(stops)

    async def acknowledged(self, broker_ids: Iterable[int], within_s: float | None = ACKNOWLEDGED_WITHIN_S) -> bool:
        """Wait until these brokers have answered everything that was sent; False when the time was too short."""
        waiting = [
            asyncio.ensure_future(self._channels[one].acknowledged()) for one in broker_ids if one in self._channels
        ]
        if not waiting:
            return True
        _, late = await asyncio.wait(waiting, timeout=within_s)
        for one in late:
            one.cancel()
        return not late
