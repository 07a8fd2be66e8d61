"""Commits of many members at once, and what a group's commits wait for when its coordinator is killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.children import Child, wait_until
from bench.cluster_load import SETTLE_S
from bench.cluster_systems import BROKERS, Cluster
from bench.cluster_topics import await_in_sync, bootstrap_of
from bench.groups import topic_of
from bench.processes import cpu_seconds
from bench.raw_member import RawMember, connect_to_coordinator, coordinator_of
from klog.errors import KlogError

RETRY_S = 0.02
COMMIT_PAUSE_S = 0.005
HEAL_TIMEOUT_S = 30.0


NAMES = ("p50_ms", "p99_ms", "commits", "refused", "client_cores")


def windows(
    bootstrap: str, pids: Sequence[int], folder: Path, groups: int, members: int, every_s: float, count: int
) -> Iterator[dict[str, float]]:
    """`count` times: every member of every group commits once within `every_s`. `pids`: the broker's."""
    with topic_of(bootstrap, members) as topic:
        arguments = (bootstrap, topic, groups, members, every_s)
        with Child("bench.commit_load", *arguments, log=folder / "commits.log") as child:
            child.wait_for("settled", 90)
            for number in range(count + 1):  # the first one makes the nodes, and does not count
                before, began, cpu = len(child.events), time.monotonic(), cpu_seconds(pids)
                child.say("window")
                wait_until(lambda before=before: len(child.events) > before, "a window's end", [child])  # type: ignore[misc]
                figures = dict(zip(NAMES, map(float, child.wait_for("window").words[1:]), strict=True))
                figures["broker_cores"] = (cpu_seconds(pids) - cpu) / (time.monotonic() - began)
                if number:
                    yield figures


class Committing(threading.Thread):
    """Commits without a pause; `acked` has the time of every commit that was acknowledged."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acked: list[float] = []
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def longest_wait_s(self, since: float) -> float:
        """Between two acknowledgements, the later of which came after that time."""
        times = list(self.acked)
        return max(after - before for before, after in pairwise(times) if after > since)


class RawCommitting(Committing):
    """One member of its group, which asks for its coordinator again as soon as the old one does not answer."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(f"commits of {group}")
        self._servers, self._group, self._topic = bootstrap, group, topic

    def run(self) -> None:
        asyncio.run(self._commit())

    async def _commit(self) -> None:
        member = RawMember(await connect_to_coordinator(self._servers, self._group), self._group, self._topic, 0)
        await member.join()
        offset = 0
        while not self._ended.is_set():
            offset += 1
            with contextlib.suppress(KlogError):
                if await member.commit(offset) == 0:
                    self.acked.append(time.monotonic())
                    await asyncio.sleep(COMMIT_PAUSE_S)
                    continue
            await asyncio.sleep(RETRY_S)
            with contextlib.suppress(KlogError):
                await member.channel.close()
                member.channel = await connect_to_coordinator(self._servers, self._group)
        await member.channel.close()


class StockCommitting(Committing):
    """One of confluent-kafka's consumers, with the shortest pauses before it connects again."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(f"commits of {group}")
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                # It asks for its coordinator behind a fetch that waits, and again whenever a commit that it retries
                # fails because the coordinator's address is changed under it: often some times in a row.
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        owned = threading.Event()
        self._consumer.subscribe([self._topic], on_assign=lambda *_: owned.set())
        offset = 0
        while not self._ended.is_set():
            self._consumer.poll(0 if owned.is_set() else 0.1)
            if not owned.is_set():
                continue
            offset += 1
            try:
                self._consumer.commit(offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False)
            except KafkaException:
                time.sleep(RETRY_S)
                continue
            self.acked.append(time.monotonic())
            time.sleep(COMMIT_PAUSE_S)
        self._consumer.close()


def coordinator_killed(system: Cluster, found: Callable[[str, float], None]) -> None:
    """`found` is called with "raw" and "stock": the longest wait of a member's commits when the broker is killed.

    The broker is started again before this returns.
    """
    bootstrap = bootstrap_of(system)
    with topic_of(bootstrap, 1, BROKERS) as topic:
        await_in_sync(system, topic)
        raw = f"{topic}-raw"
        port = asyncio.run(coordinator_of(bootstrap, raw))[1]
        names = (f"{topic}-stock-{number}" for number in range(1000))
        stock = next(name for name in names if asyncio.run(coordinator_of(bootstrap, name))[1] == port)
        victim = system.ports.index(port)
        kinds = {"raw": RawCommitting(bootstrap, raw, topic), "stock": StockCommitting(bootstrap, stock, topic)}
        for one in kinds.values():
            one.start()
        try:
            _await(lambda: all(len(one.acked) > 20 for one in kinds.values()), "both commit")
            killed = time.monotonic()
            system.broker(victim).kill()
            _await(lambda: all(one.acked[-1] > killed + SETTLE_S for one in kinds.values()), "both commit again")
        finally:
            for one in kinds.values():
                one.end()
            if not system.broker(victim).running:
                system.start_broker(victim)
        for name, one in kinds.items():
            found(name, one.longest_wait_s(killed))
        await_in_sync(system, topic)


def _await(held: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while not held():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {HEAL_TIMEOUT_S:g} s: {what}")
        time.sleep(0.01)
