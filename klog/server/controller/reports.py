"""A broker's reports to the controller, which may be itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from klog.coordination.session import SessionState
from klog.errors import KlogError, NotController
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey, api_name
from klog.server.controller.controller_election import ControllerElection
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

AGAIN_S = 1.0
REPORT_WITHIN_S = 5.0
LEAVE_WITHIN_S = 15.0
"""How long a controlled shutdown waits for the elections."""


class Reports:
    """Event loop only."""

    def __init__(self, runtime: Runtime, election: ControllerElection) -> None:
        self._runtime = runtime
        self._election = election

    def isr(self, names: Collection[TopicPartition]) -> None:
        """Report that the ISR of these partitions has changed. A lost report does no harm."""
        self._runtime.spawn(self._report(ApiKey.REPORT_ISR, names, is_repeated=False))

    def offline(self, names: Collection[TopicPartition], *, may_follow: bool) -> None:
        """Report that these replicas cannot be served (rule L5) or led (rule R4)."""
        # No other broker knows what is not served; what is not led is reported again at the next look, if it lasts.
        self._runtime.spawn(
            self._report(ApiKey.REPORT_OFFLINE, names, is_repeated=not may_follow, may_follow=may_follow)
        )

    async def _report(self, key: ApiKey, names: Collection[TopicPartition], *, is_repeated: bool, **more: bool) -> None:
        by_topic: dict[str, list[int]] = {}
        for name in names:
            by_topic.setdefault(name.topic, []).append(name.partition)
        listed = [{"name": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
        while True:
            try:
                await self._ask(key, REPORT_WITHIN_S, topics=listed, **more)
                return
            except KlogError as error:
                if key is ApiKey.REPORT_ISR:
                    log.debug("the change of %d ISRs could not be reported: %s", len(names), error.message)
                else:
                    log.warning(
                        "the loss of %d replicas could not be reported to the controller: %s", len(names), error.message
                    )
            if not is_repeated or self._runtime.is_stopping:
                return
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, key: ApiKey, within_s: float, **fields: Any) -> Any:
        """The controller's answer. Raises NotController, also for an answer with an error."""
        identity = self._runtime.identity
        request = codec.request(key, 0, broker_id=identity.broker_id, incarnation=identity.incarnation, **fields)
        answer = await self._election.ask(request, within_s=within_s)
        if int(answer.error_code) != 0:
            raise NotController(f"broker {self._election.holder} answers {api_name(key)} with {answer.error_code}")
        return answer

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
                remaining = int((await self._ask(ApiKey.CONTROLLED_SHUTDOWN, LEAVE_WITHIN_S)).remaining)
            except KlogError as error:
                log.warning("no other leaders are elected yet for the partitions of this broker: %s", error.message)
                if left:
                    await asyncio.sleep(self._runtime.config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
            else:
                if remaining:
                    log.info("%d partitions have no leader now: no other replica is in sync", remaining)
                return
