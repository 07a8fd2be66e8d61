"""A broker's reports to the controller, which may be itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from klog.coordination.session import SessionState
from klog.errors import KlogError, NotController
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

AGAIN_S = 1.0
REPORT_WITHIN_S = 5.0
LEAVE_WITHIN_S = 15.0
"""How long a controlled shutdown waits for the elections."""


class Reports:
    """Event loop only."""

    def __init__(self, runtime: Runtime, controller: Controller, election: ControllerElection) -> None:
        self._runtime = runtime
        self._controller = controller
        self._election = election

    @property
    def _who(self) -> tuple[int, int]:
        return self._runtime.broker_id, self._runtime.identity.incarnation

    def isr(self, names: Collection[TopicPartition]) -> None:
        """Report that the ISR of these partitions has changed. A lost report does no harm."""
        self._runtime.spawn(self._isr(names))

    async def _isr(self, names: Collection[TopicPartition]) -> None:
        try:
            if self._controller.active:
                await self._controller.isr_reported(names)
            else:
                await self._report(ApiKey.REPORT_ISR, names)
        except KlogError as error:
            log.debug("the change of %d ISRs could not be reported to the controller: %s", len(names), error.message)

    def offline(self, names: Collection[TopicPartition], *, may_follow: bool) -> None:
        """Report that these replicas cannot be served (rule L5) or led (rule R4)."""
        self._runtime.spawn(self._offline(names, may_follow=may_follow))

    async def _offline(self, names: Collection[TopicPartition], *, may_follow: bool) -> None:
        """Repeat until the controller has it: no other broker knows."""
        while not self._runtime.is_stopping:
            try:
                if not self._controller.active:
                    await self._report(ApiKey.REPORT_OFFLINE, names, may_follow=may_follow)
                elif may_follow:
                    await self._controller.give_up_leadership(*self._who, names)
                else:
                    self._controller.replicas_lost(*self._who, names)
            except KlogError as error:
                log.warning(
                    "the loss of %d replicas could not be reported to the controller: %s", len(names), error.message
                )
                if may_follow:
                    return  # the next look reports it again, if it lasts
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
        answer = await self._election.ask(request, within_s=REPORT_WITHIN_S)
        if int(answer.error_code) != 0:
            raise NotController(f"broker {self._election.holder} rejects a report with error {answer.error_code}")

    async def leave(self) -> None:
        """Controlled shutdown (0.8): the controller elects other leaders while this broker still serves."""
        if self._runtime.identity.fenced is not None or not self._runtime.config.flag("controlled.shutdown.enable"):
            return
        if self._runtime.zookeeper.state is not SessionState.CONNECTED:
            log.warning("stopping with leadership: ZooKeeper is away, and no other leader can be elected")
            return
        tries = self._runtime.config.integer("controlled.shutdown.max.retries")
        for left in reversed(range(tries)):
            try:
                remaining = await self._ask()
            except (KlogError, TimeoutError) as error:
                log.warning(
                    "no other leaders are elected yet for the partitions of this broker: %s",
                    error or "no answer in time",
                )
                if left:
                    await asyncio.sleep(self._runtime.config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
            else:
                if remaining:
                    log.info("%d partitions have no leader now: no other replica is in sync", remaining)
                return

    async def _ask(self) -> int:
        """The number of partitions that no other broker may lead."""
        if not self._controller.active:
            try:
                return await self._ask_controller_to_lead()
            except NotController:  # that controller has gone, and this broker may be its successor
                self._controller.require()
        async with asyncio.timeout(LEAVE_WITHIN_S):
            return await self._controller.leave(*self._who)

    async def _ask_controller_to_lead(self) -> int:
        broker_id, incarnation = self._who
        request = codec.request(ApiKey.CONTROLLED_SHUTDOWN, 0, broker_id=broker_id, incarnation=incarnation)
        answer = await self._election.ask(request, within_s=LEAVE_WITHIN_S)
        if int(answer.error_code) != 0:
            raise NotController(
                f"broker {self._election.holder} rejects the controlled shutdown with error {int(answer.error_code)}"
            )
        return int(answer.remaining)
