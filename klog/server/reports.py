"""What a broker reports to the controller, whether that is another broker or itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from klog.coordination.session import SessionState
from klog.errors import KlogError, NotController
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

AGAIN_S = 1.0
REPORT_WITHIN_S = 5.0
LEAVE_WITHIN_S = 15.0
"""How long a controlled shutdown waits for other leaders."""


class Reports:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def _who(self) -> tuple[int, int]:
        return self._broker.broker_id, self._broker.incarnation

    def isr(self, names: Collection[TopicPartition]) -> None:
        """Let the controller know that the ISR of these partitions was changed; a lost report is no harm."""
        self._broker.spawn(self._isr(names))

    async def _isr(self, names: Collection[TopicPartition]) -> None:
        try:
            if self._broker.controller.active:
                await self._broker.controller.isr_reported(names)
            else:
                await self._report(ApiKey.REPORT_ISR, names)
        except KlogError as error:
            log.debug("the controller does not know of %d changed ISRs: %s", len(names), error.message)

    def offline(self, names: Collection[TopicPartition], *, may_follow: bool) -> None:
        """Let the controller know that these replicas cannot be served (rule L5) or led (rule R4)."""
        self._broker.spawn(self._offline(names, may_follow=may_follow))

    async def _offline(self, names: Collection[TopicPartition], *, may_follow: bool) -> None:
        """Until it is heard: nobody else can tell."""
        while not self._broker.is_stopping:
            try:
                if not self._broker.controller.active:
                    await self._report(ApiKey.REPORT_OFFLINE, names, may_follow=may_follow)
                elif may_follow:
                    await self._broker.controller.give_up_leadership(*self._who, names)
                else:
                    self._broker.controller.replicas_lost(*self._who, names)
            except KlogError as error:
                log.warning("the controller does not know of %d replicas that are lost: %s", len(names), error.message)
                if may_follow:
                    return  # it is found out again if it lasts
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _report(self, key: ApiKey, names: Collection[TopicPartition], **more: bool) -> None:
        by_topic: dict[str, list[int]] = {}
        for name in names:
            by_topic.setdefault(name.topic, []).append(name.partition)
        listed = [{"name": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
        broker_id, incarnation = self._who
        request = codec.request(key, 0, broker_id=broker_id, incarnation=incarnation, topics=listed, **more)
        answer = await self._broker.office.ask(request, within_s=REPORT_WITHIN_S)
        if int(answer.error_code) != 0:
            raise NotController(
                f"a report to broker {self._broker.office.holder} was refused with error {answer.error_code}"
            )

    async def have_others_lead(self) -> None:
        """Controlled shutdown: the controller elects other leaders while this broker still serves."""
        if self._broker.fenced is not None or not self._broker.config.flag("controlled.shutdown.enable"):
            return
        if self._broker.zookeeper.state is not SessionState.CONNECTED:
            log.warning("stopping without having others lead: ZooKeeper is away, and nobody can be elected")
            return
        tries = self._broker.config.integer("controlled.shutdown.max.retries")
        for left in reversed(range(tries)):
            try:
                remaining = await self._ask()
            except (KlogError, TimeoutError) as error:
                log.warning("others do not lead yet what this broker leads: %s", error or "no answer in time")
                if left:
                    await asyncio.sleep(self._broker.config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
            else:
                if remaining:
                    log.info("%d partitions are left without a leader: no other replica is in sync", remaining)
                return

    async def _ask(self) -> int:
        """How many partitions nobody else may lead."""
        if not self._broker.controller.active:
            try:
                return await self._ask_controller_to_lead()
            except NotController:  # the one there was has gone, and this broker may have taken its place
                self._broker.controller.require()
        async with asyncio.timeout(LEAVE_WITHIN_S):
            return await self._broker.controller.leave(*self._who)

    async def _ask_controller_to_lead(self) -> int:
        broker_id, incarnation = self._who
        request = codec.request(ApiKey.CONTROLLED_SHUTDOWN, 0, broker_id=broker_id, incarnation=incarnation)
        answer = await self._broker.office.ask(request, within_s=LEAVE_WITHIN_S)
        if int(answer.error_code) != 0:
            raise NotController(f"broker {self._broker.office.holder} refused with error {int(answer.error_code)}")
        return int(answer.remaining)
