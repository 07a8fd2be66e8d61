"""Faults at random in a running figure: one at a time, each healed before the next; by the seed.

    kill     -9: a broker, the controller, ZooKeeper, a whole live cluster; the mirror, a driver of Spark's, a worker
    pause    SIGSTOP for seconds: a broker, the controller, ZooKeeper, the mirror, a driver, a near-line consumer

The order of kinds and parts, and the times between, are the seed's; what a fault meets depends on the machine. Front
ends are spared: one that is killed has messages whose fate is known to itself alone.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import psutil

from bench.figure3.background import Background
from bench.figure3.clusters import DemoCluster
from bench.figure3.deployment import Deployment
from bench.figure3.facts import FaultRow
from bench.figure3.part import Part
from klog.admin.local_state import Part as Server

BETWEEN_S: Final = (1.0, 6.0)
AWAY_S: Final = (0.2, 3.0)
PAUSE_S: Final = (0.5, 5.0)
REPAIR_S: Final = 60.0
REPAIR_AGAIN_S: Final = 0.5

Heal = Callable[[], None]


class Struck(NamedTuple):
    """What was hit, how long it is left so, and what heals it."""

    part: str
    lasts_s: float
    heal: Heal


class Chaos(Background):
    """`start`, then `stop`: everything is healed when it returns."""

    def __init__(self, deployment: Deployment, seed: int, note: Callable[[str], None]) -> None:
        super().__init__("chaos")
        self._deployment = deployment
        self._draw = random.Random(seed)
        self._note = note
        self.problems: list[str] = []
        """What could not be healed."""

    def _work(self) -> None:
        todo: list[str] = []
        while not self._end.wait(self._draw.uniform(*BETWEEN_S)):
            if not todo:  # each kind once before one comes again
                todo = self._draw.sample(sorted(KINDS), len(KINDS))
            kind = todo.pop()
            struck = KINDS[kind](self._deployment, self._draw)
            if struck is None:
                continue
            began_s = self._deployment.seconds
            faults = self._deployment.faults
            faults.append(FaultRow(began_s, kind, struck.part, None))
            self._end.wait(struck.lasts_s)
            try:
                struck.heal()
            except _NotHealed as error:
                self.problems.append(str(error))
            faults[-1] = FaultRow(began_s, kind, struck.part, self._deployment.seconds)
            self._note(f"{kind}: {struck.part}, for {self._deployment.seconds - began_s:.1f} s")


class _NotHealed(Exception):
    pass


# --- Servers ----------------------------------------------------------------------------------------------------------


def _repair(cluster: DemoCluster) -> None:
    """What is missing of a cluster is started, and again where it ends at once."""
    deadline = time.monotonic() + REPAIR_S
    while (trouble := cluster.repair()) is not None:
        if time.monotonic() > deadline:
            raise _NotHealed(f"{cluster.name} did not come back: {trouble}")
        time.sleep(REPAIR_AGAIN_S)


def _kill(cluster: DemoCluster, servers: Sequence[Server], draw: random.Random, what: str = "") -> Struck | None:
    hit = [one.name for one in servers if one.identity is not None and one.identity.send(signal.SIGKILL)]
    if not hit:
        return None
    name = f"{cluster.name}: {what or ', '.join(hit)}"
    return Struck(name, draw.uniform(*AWAY_S), lambda: _repair(cluster))


def _pause(cluster: DemoCluster, server: Server | None, draw: random.Random, what: str = "") -> Struck | None:
    if server is None or server.identity is None or not server.identity.send(signal.SIGSTOP):
        return None
    identity = server.identity

    def heal() -> None:
        identity.send(signal.SIGCONT)
        _repair(cluster)  # one that was silent for longer than its session may end

    return Struck(f"{cluster.name}: {what or server.name}", draw.uniform(*PAUSE_S), heal)


def _any_broker(deployment: Deployment, draw: random.Random) -> tuple[DemoCluster, list[Server]]:
    cluster = draw.choice(deployment.clusters)
    brokers = cluster.brokers()
    return cluster, [draw.choice(brokers)] if brokers else []


def _kill_broker(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster, found = _any_broker(deployment, draw)
    return _kill(cluster, found, draw)


def _pause_broker(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster, found = _any_broker(deployment, draw)
    return _pause(cluster, found[0] if found else None, draw)


def _kill_controller(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster = draw.choice(deployment.clusters)
    found = cluster.controller()
    return None if found is None else _kill(cluster, [found], draw, f"controller, {found.name}")


def _pause_controller(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster = draw.choice(deployment.clusters)
    found = cluster.controller()
    return None if found is None else _pause(cluster, found, draw, f"controller, {found.name}")


def _zookeeper(cluster: DemoCluster) -> list[Server]:
    return [one for one in cluster.servers() if one.kind == "zookeeper"]


def _kill_zookeeper(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster = draw.choice(deployment.clusters)
    return _kill(cluster, _zookeeper(cluster), draw)


def _pause_zookeeper(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster = draw.choice(deployment.clusters)
    return _pause(cluster, next(iter(_zookeeper(cluster)), None), draw)


def _kill_cluster(deployment: Deployment, draw: random.Random) -> Struck | None:
    cluster = draw.choice(deployment.live)
    return _kill(cluster, cluster.servers(), draw, "all of it")


# --- Parts ------------------------------------------------------------------------------------------------------------


def _nothing() -> None:
    """The part is started again by itself."""


def _kill_part(part: Part, draw: random.Random) -> Struck | None:
    return Struck(part.name, draw.uniform(*AWAY_S), _nothing) if part.kill() else None


def _pause_part(part: Part, draw: random.Random) -> Struck | None:
    if not part.send(signal.SIGSTOP):
        return None

    def heal() -> None:
        part.send(signal.SIGCONT)

    return Struck(part.name, draw.uniform(*PAUSE_S), heal)


def _driver(deployment: Deployment, draw: random.Random) -> Part:
    return deployment.parts[draw.choice(("loader", "stream"))]


def _kill_worker(deployment: Deployment, draw: random.Random) -> Struck | None:
    """One of Spark's Python processes, below a driver's JVM."""
    driver = _driver(deployment, draw)
    workers = []
    for one in driver.below():
        with suppress(psutil.Error):
            if any("pyspark" in word for word in one.cmdline()[1:]) and "java" not in one.name():
                workers.append(one)
    if not workers:
        return None
    with suppress(psutil.NoSuchProcess):
        draw.choice(workers).kill()
    return Struck(f"a worker of {driver.name}", 0.0, _nothing)


KINDS: dict[str, Callable[[Deployment, random.Random], Struck | None]] = {
    "kill broker": _kill_broker,
    "pause broker": _pause_broker,
    "kill controller": _kill_controller,
    "pause controller": _pause_controller,
    "kill ZooKeeper": _kill_zookeeper,
    "pause ZooKeeper": _pause_zookeeper,
    "kill cluster": _kill_cluster,
    "kill mirror": lambda deployment, draw: _kill_part(deployment.parts["mirror"], draw),
    "pause mirror": lambda deployment, draw: _pause_part(deployment.parts["mirror"], draw),
    "kill driver": lambda deployment, draw: _kill_part(_driver(deployment, draw), draw),
    "pause driver": lambda deployment, draw: _pause_part(_driver(deployment, draw), draw),
    "kill worker": _kill_worker,
    "pause consumer": lambda deployment, draw: _pause_part(draw.choice(list(deployment.consumers.values())), draw),
}
