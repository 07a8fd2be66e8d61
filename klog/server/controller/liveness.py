"""Which brokers live, as their registrations and the channels to them tell, and how those that went were lost.

A change marks partitions dirty: the next reconciliation elects. The other brokers learn at once who is back
(`has_news`), and of a loss after the elections that it causes (`take_loss`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from klog.coordination import partition_states
from klog.coordination.brokers import Broker, Registration
from klog.errors import KlogError
from klog.event_kinds import Fate
from klog.names import TopicPartition
from klog.server.controller.context import KnownBroker
from klog.server.controller.controller_state import ControllerState
from klog.server.former_brokers import FormerBrokers
from klog.server.image import BrokerImage, ClusterImage
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)


class Liveness:
    """Event loop only."""

    def __init__(
        self, runtime: Runtime, image: ClusterImage, state: ControllerState, former_brokers: FormerBrokers
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._state = state
        self._former_brokers = former_brokers
        self.has_news = asyncio.Event()
        """Set where brokers or lost replicas are back, of which the others do not know yet."""
        self._followed: set[TopicPartition] = set()
        self._has_lost_broker = False

    def take_followed(self) -> set[TopicPartition]:
        """The partitions of which a lost replica follows again since the last call."""
        followed, self._followed = self._followed, set()
        return followed

    def take_loss(self) -> bool:
        """Whether a broker was lost since the last call. The others are told after the elections: a thousand requests
        before them would delay them."""
        has_lost, self._has_lost_broker = self._has_lost_broker, False
        return has_lost

    # --- registrations ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The term begins: report who has come or gone without a controller."""
        context, known = self._state.context, self._image.brokers
        self.has_news.clear()
        self._followed.clear()
        self._has_lost_broker = False
        for broker_id, left_ms in self._former_brokers.left_ms.items():
            if broker_id not in context.brokers:
                context.how_lost[broker_id] = f"was lost at {_clock_time(left_ms)}, by the last controller's metadata"
        # Often the last controller: one that hangs is replaced only when its session ends. Earlier losses were reported
        # by it; the time is that of this broker's updates.
        for broker_id, one in sorted(known.items()):
            if broker_id in context.brokers:
                continue
            has_left = broker_id in context.left
            how = f"{Fate.SHUT_DOWN} by" if has_left else f"{Fate.SILENT}: its ZooKeeper session ended by"
            how = context.how_lost[broker_id] = f"{how} {_clock_time()}"
            log.warning("broker %d is gone: its registration ended before this term", broker_id)
            self._tell("broker-down", one, reason=f"it {how}")
        for broker_id, new in sorted(context.brokers.items()):
            if broker_id not in known:
                self._tell("broker-up", new.registration.broker)

    def registered(self, found: Iterable[Registration]) -> tuple[list[int], list[Registration]]:
        """The registrations, read again: which brokers are gone, and which incarnations are new."""
        context = self._state.context
        now = {one.broker.broker_id: one for one in found}
        context.ever_registered |= now.keys()
        gone: list[int] = []
        come: list[Registration] = []
        for broker_id in context.brokers.keys() | now.keys():
            was, new = context.brokers.get(broker_id), now.get(broker_id)
            if was is not None and new is not None and was.incarnation == new.incarnation:
                was.registration = new
                continue
            how = ""
            if was is not None:
                session_ended = f"its ZooKeeper session ended at {_clock_time()}{self._silence(was)}"
                how = self._how_lost(was, f"{Fate.SILENT}: {session_ended}")
            context.leaving.discard(broker_id)
            if new is None:
                assert was is not None
                del context.brokers[broker_id]
                gone.append(broker_id)
                log.warning("broker %d is gone: its registration has ended", broker_id)
                if not was.is_refused:  # else that was told
                    self._tell("broker-down", was.registration.broker, reason=f"it {how}")
            else:
                context.brokers[broker_id] = KnownBroker(new)
                come.append(new)
                log.info("broker %d has registered, incarnation %d", broker_id, new.incarnation)
                self._tell("broker-up", new.broker)
            self._state.mark_dirty(context.hosted(broker_id))
        return gone, come

    def _tell(self, kind: str, broker: Broker | BrokerImage, **more: str) -> None:
        self._runtime.tell(kind, id=broker.broker_id, host=broker.host, port=broker.port, **more)

    def _how_lost(self, was: KnownBroker, seen: str) -> str:
        """How a broker was lost, for reasons in logs and events; ``seen``: unless it shut down, or was lost before."""
        context, broker_id = self._state.context, was.registration.broker.broker_id
        if broker_id in context.leaving:
            seen = f"{Fate.SHUT_DOWN} at {_clock_time()}"
        elif was.is_refused:
            seen = context.how_lost.get(broker_id, seen)
        context.how_lost[broker_id] = seen
        return seen

    def _silence(self, was: KnownBroker) -> str:
        """How long a broker has been silent; empty if this incarnation was never heard."""
        if was.answered_ms is None:
            return ""
        silent_s = max(0, self._runtime.zookeeper.clock.now_ms() - was.answered_ms) / 1000
        return f"; it last answered the controller at {_clock_time(was.answered_ms)}, {silent_s:.1f} s before"

    # --- what channels see --------------------------------------------------------------------------------------------

    def refused(self, registration: Registration) -> None:
        """Connections are refused where this broker listened: it is dead, unless that was wrong before (rule R6)."""
        context, broker_id = self._state.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        if known.is_trusted:
            log.warning("broker %d refuses connections again: waiting for the end of its session", broker_id)
            return
        log.warning("broker %d is dead: connections to %s are refused", broker_id, registration.broker.bind)
        how = self._how_lost(known, f"{Fate.SILENT} at {_clock_time()}: connections are refused")
        known.is_refused = True
        self._tell("broker-down", registration.broker, reason=f"it {how}")
        self._has_lost_broker = True
        self._state.mark_dirty(context.hosted(broker_id))

    def answered(self, registration: Registration) -> None:
        """This incarnation answers: it lives, and a refusal before was wrong."""
        context, broker_id = self._state.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        known.is_heard = True
        if known.is_refused:
            log.warning("broker %d answers: it was not dead", broker_id)
            known.is_refused, known.is_trusted = False, True
            self._runtime.tell("broker-up", id=broker_id, reason="it answers again")
            self.has_news.set()
        self._state.mark_dirty(context.hosted(broker_id))

    def disconnected(self, registration: Registration) -> None:
        """The connection has ended: whether the broker lives is unknown."""
        known = self._state.context.known(registration)
        if known is not None:
            known.is_heard = False

    def described(self, registration: Registration, replicas: Iterable[Any]) -> None:
        """The broker has these logs on its disks (`ReplicaFacts`)."""
        context, broker_id = self._state.context, registration.broker.broker_id
        known = context.known(registration)
        if known is None:
            return
        known.facts = {TopicPartition(one.topic, one.partition_index): one for one in replicas}
        known.lost = {name for name, one in known.facts.items() if not one.is_online}
        stray = context.find_stray_logs(broker_id)
        self._state.mark_dirty(context.hosted(broker_id) | stray)

    def replicas_failed(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas could not carry out LeaderAndIsr: they count as lost."""
        failed = set(names)
        log.error("broker %d cannot serve %s", broker_id, ", ".join(map(str, sorted(failed)[:10])))
        self._state.context.brokers[broker_id].lost |= failed
        self._state.mark_dirty(failed)

    def replicas_follow(self, broker_id: int, names: set[TopicPartition]) -> None:
        """These lost replicas follow again, so their logs are there: they are no longer lost."""
        lost = self._state.context.brokers[broker_id].lost
        there = lost & names
        if there:
            lost -= there
            self._followed |= there
            self.has_news.set()
            self._state.mark_dirty(there)

    def replicas_begun(self, names: set[TopicPartition]) -> None:
        """Leaders have cleared the marks of these new partitions (rule R1): read the states.

        Else the next change names an old version: after a leader's death a thousand elections would be refused
        together, read and decided again.
        """
        self._runtime.spawn(self._read_states(names))

    async def _read_states(self, names: set[TopicPartition]) -> None:
        state, context = self._state, self._state.context
        there = [name for name in names if context.knows(name)]
        try:
            found = await state.run(partition_states.read_many, self._runtime.zookeeper, there, {})
        except KlogError as error:  # the next change of each reads it
            log.debug("the states of %d new partitions were not read: %s", len(there), error.message)
            return
        if state.term is not None and state.context is context:
            context.take_states({name: found_state for name, found_state in found.items() if context.knows(name)})

    def replicas_deleted(self, broker_id: int, names: Iterable[TopicPartition]) -> None:
        """These replicas are stopped, and their logs deleted."""
        deleting = self._state.context.deleting
        for name in names:
            left = deleting.get(name.topic, set())
            left.discard((name, broker_id))
            if name.topic in deleting and not left:
                self._state.deletions_due.set()


def _clock_time(at_ms: int | None = None) -> str:
    """Wall-clock time, default now. Events have the date."""
    at = datetime.now(UTC) if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%H:%M:%S}"
