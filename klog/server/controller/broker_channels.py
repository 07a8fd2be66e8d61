"""The controller's channels to all registered brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klog.coordination.brokers import Registration
from klog.names import TopicPartition
from klog.server.controller.broker_channel import BrokerChannel, Listener, Stop
from klog.server.controller.context import Context
from klog.server.controller.metadata_updates import MetadataUpdates
from klog.server.controller.peers import Peers
from klog.server.runtime import Runtime

ACKNOWLEDGED_WITHIN_S = 1.0
"""How long a client's request waits for brokers to acknowledge; slower ones learn of the change later."""


WOKEN_AT_ONCE = 50
"""Channels that send the same metadata in one turn of the event loop: some 10 ms."""


class BrokerChannels:
    """Event loop only. Requests to a broker without a channel are dropped: when it registers, it is sent everything."""

    def __init__(self, runtime: Runtime, peers: Peers, listener: Listener) -> None:
        self._runtime = runtime
        self._peers = peers
        self._listener = listener
        self._channels: dict[int, BrokerChannel] = {}
        self._updates: MetadataUpdates | None = None
        """For the term; None before its first channel."""

    def open(self, context: Context, epoch: int, registration: Registration) -> None:
        """Connect to this incarnation of a broker, instead of an earlier one, and send it everything."""
        broker_id = registration.broker.broker_id
        self.close(broker_id)
        if self._updates is None:
            self._updates = MetadataUpdates(context, self._runtime.broker_id, epoch)
        channel = BrokerChannel(self._runtime, self._peers, self._listener, context, epoch, registration, self._updates)
        self._channels[broker_id] = channel
        channel.send_all()
        channel.start()

    def close(self, broker_id: int) -> None:
        """Send this broker nothing more."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def answered_ms(self, broker_id: int) -> int | None:
        """When the broker last answered over its channel; None if it has not, or has none."""
        channel = self._channels.get(broker_id)
        return None if channel is None else channel.answered_ms

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
