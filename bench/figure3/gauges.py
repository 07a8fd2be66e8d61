"""What there is to see of a figure: the messages of every tier, sampled each second, as boxes and flows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from bench.figure3.background import Background
from bench.figure3.commands import COUNTS, GROUP, OFFLINE, QUERY, TABLE
from bench.figure3.deployment import Deployment
from bench.figure3.facts import Box, Facts, Flow
from bench.figure3.part import Part, is_paused
from bench.figure3.picture import Place
from klog.clock import SYSTEM_CLOCK
from klog.names import counted

SAMPLE_S: Final = 1.0
RATES_OVER: Final = 6
"""Samples: a rate is of the last five seconds."""


class Gauges(Background):
    """`start` and `stop` by one thread, `facts` by any."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__("gauges")
        self._deployment = deployment
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=RATES_OVER)
        self._delays_ms: dict[str, int | None] = {}
        self.verdict: Sequence[Sequence[str]] = ()

    def _work(self) -> None:
        while not self._end.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        self._samples.append((time.monotonic(), self._deployment.counts()))
        for name, watch in list(self._deployment.watches.items()):
            recent = watch.delays.take_recent()
            if recent is not None or self._rate(name) == 0:
                self._delays_ms[name] = None if recent is None else recent.p50_ms

    def _rate(self, name: str) -> float:
        samples = list(self._samples)
        if len(samples) < 2:
            return 0.0
        (first_s, before), (last_s, now) = samples[0], samples[-1]
        return max(0.0, (now.get(name, 0) - before.get(name, 0)) / max(last_s - first_s, 0.001))

    def _messages(self, name: str) -> int:
        return self._samples[-1][1].get(name, 0) if self._samples else 0

    def facts(self) -> Facts:
        """What there is to see now."""
        deployment = self._deployment
        watches = [deployment.watches[one] for one in deployment.tiers if one in deployment.watches]
        return Facts(
            SYSTEM_CLOCK.now_ms(),
            deployment.seconds,
            list(self._boxes()),
            list(self._flows()),
            [(one.name, one.messages, one.delays.all()) for one in watches],
            () if deployment.question is None else deployment.question.rows,
            QUERY,
            tuple(deployment.faults),
            self.verdict,
            (f"Front ends find their cluster by {deployment.balanced_by}.",) if deployment.balancers else (),
        )

    def places(self) -> dict[str, Place]:
        """Of each box of the picture: front ends, live clusters, the offline cluster, and what comes of it."""
        live = self._deployment.live
        middle = 1 + (len(live) - 1) / 2
        found = {"online-query": Place(2, 0), OFFLINE: Place(2, middle)}
        for number, cluster in enumerate(live, 1):
            found[f"front-{cluster.name}"] = Place(0, number)
            found[cluster.name] = Place(1, number)
            found[f"near-line-{cluster.name}"] = Place(1, 0 if number == 1 else number + 1)
        return found | {TABLE: Place(3, middle - 0.5), COUNTS: Place(3, middle + 0.5)}

    def _boxes(self) -> Iterator[Box]:
        deployment = self._deployment
        for number, cluster in enumerate(deployment.live):
            own = [one for one in deployment.front_ends if one.cluster == cluster.name]
            balancer = deployment.balancers[number] if number < len(deployment.balancers) else None
            dead = [f"{one.host} has ended" for one in own if not one.has_closed and not one.part.is_running]
            if balancer is not None and balancer.is_down:
                dead.append("haproxy has ended")
            by = "starting" if balancer is None else f"by {balancer.kind}"
            yield Box(f"front-{cluster.name}", counted(len(own), "front end"), (by,), dead)
        for cluster in deployment.clusters:
            kind = f"ZooKeeper, {counted(deployment.size.brokers, 'broker')}"
            trouble = [*cluster.troubles(), *self._trouble(cluster.name)]
            yield Box(cluster.name, f"{cluster.name} cluster", (kind,), trouble)
        for name, part in list(deployment.consumers.items()):
            yield Box(name, "near-line consumer", (f"group {GROUP}",), _troubles(part))
        if deployment.question is not None:
            failed = f", {deployment.question.failed} failed" if deployment.question.failed else ""
            yield Box(
                "online-query", "online query", ("klog sql", f"{counted(deployment.question.asked, 'answer')}{failed}")
            )
        for name, box, title, command in (
            ("loader", TABLE, "table", "klog export run"),
            ("stream", COUNTS, "stream job", "klog stream run"),
        ):
            if name in deployment.parts:
                batches = counted(deployment.batches()[name], "batch", "batches")
                yield Box(box, title, (command, batches), [*_troubles(deployment.parts[name]), *self._trouble(box)])

    def _trouble(self, name: str) -> list[str]:
        watch = self._deployment.watches.get(name)
        return [] if watch is None or watch.trouble is None else [watch.trouble]

    def _flows(self) -> Iterator[Flow]:
        live = [one.name for one in self._deployment.live]
        for name in live:
            sent, delay_ms = self._messages(name), self._delays_ms.get(name)
            yield Flow(f"front-{name}", name, "klog produce --audit", sent, self._rate(name), None, delay_ms)
            reader = f"near-line-{name}"
            read = self._messages(reader)
            yield Flow(name, reader, f"klog tail -G {GROUP}", read, self._rate(reader), max(0, sent - read))
        if self._deployment.question is not None:
            yield Flow(live[0], "online-query", "klog sql", self._deployment.question.asked, None)
        yield from self._mirrored(live)
        offline, loaded, results = (self._messages(name) for name in (OFFLINE, TABLE, COUNTS))
        lag, delay_ms = max(0, offline - loaded), self._delays_ms.get(TABLE)
        yield Flow(OFFLINE, TABLE, "klog export run", loaded, self._rate(TABLE), lag, delay_ms)
        yield Flow(OFFLINE, COUNTS, "klog stream run", results, self._rate(COUNTS))

    def _mirrored(self, live: Sequence[str]) -> Iterator[Flow]:
        """By the source that each stamp names."""
        for name in live:
            there, rate = self._messages(f"{OFFLINE}:{name}"), self._rate(f"{OFFLINE}:{name}")
            lag, delay_ms = max(0, self._messages(name) - there), self._delays_ms.get(OFFLINE)
            yield Flow(name, OFFLINE, "klog mirror", there, rate, lag, delay_ms)


def _troubles(part: Part) -> list[str]:
    if part.is_ended:
        return []
    if not part.is_running:
        return [f"{part.name} is down"]
    return [f"{part.name} is paused"] if is_paused(part.process.pid) else []
