"""Elects other leaders where leaders ask for it in ZooKeeper (`klog.coordination.leadership_transfer`).

A controller that no other broker answers cannot send its decisions. When a leader asks for a transfer, the controller
may be that leader, it resigns, at most once per lag time, and the next controller does the transfer. If the next one
reaches no broker either, the controller changes again, and the request waits.
"""

from __future__ import annotations

import asyncio
import logging

from klog.coordination import leadership_transfer
from klog.coordination.brokers import Registration
from klog.coordination.leadership_transfer import Handover
from klog.errors import BadVersion, KlogError, NoNode, StaleBrokerEpoch
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.elections import Elections
from klog.server.controller.peers import Peers
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

ANSWER_SHARE = 8
"""The part of the lag time without an answer after which a broker counts as unreachable."""


class LeadershipTransfer:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime, state: ControllerState, elections: Elections, peers: Peers) -> None:
        self._runtime = runtime
        self._state = state
        self._elections = elections
        self._peers = peers
        self._requested = asyncio.Event()
        self._lag_s = runtime.config.integer("replica.lag.time.max.ms") / 1000
        self._resigned_s: float | None = None

    def start(self) -> None:
        """The term has begun: do the transfers that are requested."""
        self._requested.set()
        self._state.keep_up(self._requested, self._do_all, "requested leadership transfers are not done yet")

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self._requested.set)

    async def _do_all(self) -> None:
        requests = await self._state.run(leadership_transfer.asked, self._runtime.zookeeper, self._watch)
        if requests and self._may_resign and await self._is_cut_off():
            await self._resign()
            return
        for one in requests:
            await self._transfer(one)

    async def _transfer(self, one: Handover) -> None:
        names = [name for name, epoch in one.epochs.items() if self._leads(one.broker_id, name, epoch)]
        if names:
            log.warning(
                "no follower reaches broker %d: electing other leaders for %d partitions", one.broker_id, len(names)
            )
            try:
                await self._elections.replace_leader(
                    one.broker_id, one.incarnation, names, "is not reached by any follower"
                )
            except StaleBrokerEpoch as error:
                log.info("leadership transfer refused: %s", error.message)
        await self._state.run(leadership_transfer.done, self._runtime.zookeeper, one, self._state.fence)

    def _leads(self, broker_id: int, name: TopicPartition, epoch: int) -> bool:
        context = self._state.context
        state = context.states.get(name)
        return context.knows(name) and state is not None and (state.leader, state.leader_epoch) == (broker_id, epoch)

    # --- a controller that reaches no other broker ------------------------------------------------------------------

    @property
    def _may_resign(self) -> bool:
        return self._resigned_s is None or self._runtime.loop.time() - self._resigned_s >= self._lag_s

    async def _resign(self) -> None:
        log.warning("resigning as controller: no other broker answers, and all are registered")
        self._resigned_s = self._runtime.loop.time()
        try:
            await self._state.resign()
        except (BadVersion, NoNode):
            return  # another controller is elected already

    async def _is_cut_off(self) -> bool:
        """Whether there are other brokers, and none of them answers."""
        others = [found for one, found in self._state.context.live.items() if one != self._runtime.broker_id]
        asked = [asyncio.ensure_future(self._answers(one)) for one in others]
        try:
            for one in asyncio.as_completed(asked):
                if await one:
                    return False
        finally:
            for each in asked:
                each.cancel()
        return bool(others)

    async def _answers(self, there: Registration) -> bool:
        """Over a new connection: an existing one that is cut off does not end."""
        within_s = self._lag_s / ANSWER_SHARE
        try:
            async with asyncio.timeout(within_s):
                channel = await self._peers.reach(there.broker, timeout_s=within_s)
                try:
                    await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0))
                finally:
                    await channel.close()
        except (TimeoutError, KlogError):
            return False
        return True
