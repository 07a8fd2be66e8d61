"""What happens to a large cluster, one after the other on the same one: each gives its figures and what is wrong then.

begins       the first controller of the cluster: reads everything, and tells every broker
broker dies  kill -9: connections are refused; its session ends later
it returns   a new incarnation, until it is in sync everywhere
host dies    all brokers of a host at once
rolling      controlled shutdowns one by one, each back in sync before the next; then preferred leaders
controller   kill -9 of the controller's broker
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.simulation.cluster import ATTENDING_READS, Cluster, Process
from klog.coordination.acts import Actor
from klog.names import TopicPartition

FOREVER_S = 100_000.0
SETTLED_S = 2.0
"""A connection that ends after less than a second is made again later."""
WRONG_MAX = 5
"""Examples of what is wrong that are kept."""
OPERATOR = Actor("simulation", "")


@dataclass
class Outcome:
    """``figures``: seconds are virtual, and begin with the event itself."""

    key: str
    figures: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    failed: str = ""
    """Why it has no end."""

    def took(self, name: str, seconds: list[float]) -> None:
        """Half of them, 99 % of them, all."""
        if seconds:
            seconds = sorted(seconds)
            self.figures[f"{name}_p50_s"] = seconds[len(seconds) // 2]
            self.figures[f"{name}_p99_s"] = seconds[int(len(seconds) * 0.99)]
            self.figures[f"{name}_s"] = seconds[-1]


class Scenarios:
    """On one cluster. ``say`` is called with each outcome; a scenario that takes longer than ``limit_s`` fails."""

    def __init__(self, cluster: Cluster, *, say: Callable[[Outcome], None], limit_s: float = FOREVER_S) -> None:
        self.cluster = cluster
        self._say = say
        self._limit_s = limit_s

    async def run(self, rolled: int) -> list[Outcome]:
        """All of them; ``rolled``: how many brokers are restarted."""
        cluster, outcomes = self.cluster, []
        first, second, last = 1, 2, len(cluster.brokers)
        outcomes.append(await self._begins(first))
        if outcomes[0].failed:
            return outcomes
        await cluster.process(second).election.enter()
        await asyncio.sleep(SETTLED_S)
        outcomes += [await self._die("broker", [last]), await self._returns("broker returns", [last])]
        host = cluster.brokers[last].host
        together = [one.broker_id for one in cluster.brokers.values() if one.host == host]
        outcomes += [await self._die("host", together), await self._returns("host returns", together)]
        outcomes.append(await self._rolling(range(last - rolled + 1, last + 1)))
        outcomes.append(await self._controller_dies(first))
        return outcomes

    # --- what happens -------------------------------------------------------------------------------------------------

    async def _begins(self, broker_id: int) -> Outcome:
        cluster, outcome = self.cluster, Outcome("controller begins")
        async with self._measured(outcome):
            began_s = cluster.loop.time()
            await cluster.process(broker_id).election.enter()
            outcome.figures["begun_s"] = cluster.loop.time() - began_s
            await self._all_told(outcome, began_s)
            await self._quiet()
            outcome.figures["quiet_s"] = cluster.loop.time() - began_s
            # Its brokers were never sent their leaderships before: now they lead all there is.
        return self._done(outcome, whole=True)

    async def _die(self, what: str, broker_ids: Sequence[int]) -> Outcome:
        cluster, outcome = self.cluster, Outcome(f"{what} dies")
        names = self._hosted(broker_ids)
        orphans = [name for name in names if cluster.state(name).leader in broker_ids]
        outcome.figures |= {"brokers": len(broker_ids), "replicas": len(names), "led": len(orphans)}
        async with self._measured(outcome):
            began_s = cluster.loop.time()
            cluster.kill(broker_ids)
            await self._each(names, lambda name: self._is_led_without(name, broker_ids))
            outcome.figures["shrunk_s"] = cluster.loop.time() - began_s
            outcome.took("led_again", [self._led_since(name) - began_s for name in orphans])
            await self._quiet()
            outcome.figures["told_s"] = cluster.loop.time() - began_s
            await cluster.until(lambda: cluster.loop.time() - began_s > cluster.assumed.session_s + 0.5, self._limit_s)
            await self._quiet()
        outcome.figures["quiet_s"] = cluster.loop.time() - began_s
        return self._done(outcome, whole=False)

    async def _returns(self, key: str, broker_ids: Sequence[int]) -> Outcome:
        outcome = Outcome(key)
        names = self._hosted(broker_ids)
        async with self._measured(outcome):
            began_s = self.cluster.loop.time()
            await asyncio.gather(*map(self._start, broker_ids))
            await self._each(names, self._is_whole)
            outcome.figures["in_sync_s"] = self.cluster.loop.time() - began_s
            await self._quiet()
            outcome.figures["quiet_s"] = self.cluster.loop.time() - began_s
        return self._done(outcome, whole=True)

    async def _rolling(self, broker_ids: Collection[int]) -> Outcome:
        cluster, outcome = self.cluster, Outcome("rolling restart")
        outcome.figures["brokers"] = len(broker_ids)
        moved: list[float] = []
        restarted: list[float] = []
        async with self._measured(outcome):
            for one in broker_ids:
                began_s = cluster.loop.time()
                process, broker = self._active, cluster.brokers[one]
                await process.controller.leave(one, broker.incarnation)
                moved.append(cluster.loop.time() - began_s)
                with cluster.loop.uncounted():
                    broker.die(session_ends_s=None)
                await asyncio.sleep(cluster.assumed.restart_s)
                await self._start(one)
                await self._each(self._hosted([one]), self._is_whole)
                restarted.append(cluster.loop.time() - began_s)
            outcome.took("moved", moved)
            outcome.took("restart", restarted)
            began_s = cluster.loop.time()
            names = self._hosted(broker_ids)
            await self._active.controller.elections.elect(names, unclean=False, actor=OPERATOR)
            outcome.figures["preferred_s"] = cluster.loop.time() - began_s
            await self._quiet()
        return self._done(outcome, whole=True)

    async def _controller_dies(self, broker_id: int) -> Outcome:
        cluster, outcome = self.cluster, Outcome("controller dies")
        names = self._hosted([broker_id])
        orphans = [name for name in names if cluster.state(name).leader == broker_id]
        async with self._measured(outcome):
            for broker in cluster.brokers.values():
                broker.has_everything = False
            began_s = cluster.loop.time()
            cluster.kill([broker_id])
            reads = len(cluster.brokers) * ATTENDING_READS
            cluster.loop.call_later(cluster.assumed.network_s, cluster.server.occupy, reads)
            await cluster.until(lambda: cluster.active is not None, self._limit_s)
            outcome.figures["elected_s"] = cluster.loop.time() - began_s
            await self._each(names, lambda name: self._is_led_without(name, [broker_id]))
            outcome.took("led_again", [self._led_since(name) - began_s for name in orphans])
            await self._all_told(outcome, began_s)
            await self._quiet()
            outcome.figures["quiet_s"] = cluster.loop.time() - began_s
        return self._done(outcome, whole=False)

    # --- waiting ------------------------------------------------------------------------------------------------------

    @property
    def _active(self) -> Process:
        found = self.cluster.active
        assert found is not None, "there is no controller"
        return found

    async def _start(self, broker_id: int) -> None:
        broker = self.cluster.brokers[broker_id]
        with self.cluster.loop.uncounted():
            broker.start_again()
        await self.cluster.as_broker(broker.register)

    async def _each(self, names: Collection[TopicPartition], holds: Callable[[TopicPartition], bool]) -> None:
        """Until it holds of each; what has held once is not looked at again."""
        left = list(names)

        def all_hold() -> bool:
            while left and holds(left[-1]):
                left.pop()
            return not left

        await self.cluster.until(all_hold, self._limit_s)

    async def _all_told(self, outcome: Outcome, began_s: float) -> None:
        brokers = self.cluster.brokers.values()
        await self.cluster.until(lambda: all(one.has_everything or not one.is_up for one in brokers), self._limit_s)
        outcome.figures["told_s"] = self.cluster.loop.time() - began_s

    async def _quiet(self) -> None:
        """Until the controller has nothing to do, and every broker has answered everything."""
        await self.cluster.until(self._is_quiet, self._limit_s)

    def _is_quiet(self) -> bool:
        process = self.cluster.active
        return process is not None and process.is_quiet

    def _hosted(self, broker_ids: Collection[int]) -> list[TopicPartition]:
        among = set(broker_ids)
        return [name for name, replicas in self.cluster.assignment.items() if among & set(replicas)]

    def _is_led_without(self, name: TopicPartition, gone: Collection[int]) -> bool:
        state = self.cluster.state(name)
        return not set(gone) & {state.leader, *state.isr} and self._leads(name, state.leader, state.leader_epoch)

    def _leads(self, name: TopicPartition, leader: int, epoch: int) -> bool:
        there = self.cluster.brokers.get(leader)
        return there is not None and there.led.get(name, (-1, 0.0))[0] == epoch

    def _led_since(self, name: TopicPartition) -> float:
        return self.cluster.brokers[self.cluster.state(name).leader].led[name][1]

    def _is_whole(self, name: TopicPartition) -> bool:
        state = self.cluster.state(name)
        now = tuple(self.cluster.brokers[one].incarnation for one in state.isr)
        return len(state.isr) == len(self.cluster.assignment[name]) and state.incarnations == now

    # --- figures ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _measured(self, outcome: Outcome) -> AsyncIterator[None]:
        """What is counted from here to the end; a time-out fails the scenario."""
        cluster = self.cluster
        counts, requests = Counter(cluster.server.counts), Counter(cluster.requests)
        cpu_s, leaders, sent_bytes = cluster.loop.meter.now_s(), cluster.leaders_writes, cluster.link.bytes
        cluster.loop.longest_s = cluster.longest_update_s = 0.0
        cluster.server.largest_bytes = 0
        try:
            yield
        except TimeoutError:
            outcome.failed = f"not done after {self._limit_s:g} s"
        written = Counter(cluster.server.counts)
        written.subtract(counts)
        sent = Counter(cluster.requests)
        sent.subtract(requests)
        outcome.figures |= {
            "transactions": written["transactions"],
            "nodes_written": written["nodes written"],
            "of_leaders": cluster.leaders_writes - leaders,
            "nodes_read": written["nodes read"] + written["reads of other brokers"],
            "largest_multi_bytes": cluster.server.largest_bytes,
            "requests": sum(count for name, count in sent.items() if "bytes" not in name and "received" not in name),
            "sent_bytes": cluster.link.bytes - sent_bytes,
            "cpu_s": cluster.loop.meter.now_s() - cpu_s,
            "longest_turn_s": cluster.loop.longest_s,
            "longest_update_s": cluster.longest_update_s,
        }

    def _done(self, outcome: Outcome, *, whole: bool) -> Outcome:
        if not outcome.failed:
            with self.cluster.loop.uncounted():
                outcome.wrong = self.cluster.wrong(whole=whole)[:WRONG_MAX]
        self._say(outcome)
        return outcome
