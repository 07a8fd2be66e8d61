"""The faults themselves: how each begins on a cluster, and how it is healed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.faults.cluster import ZOOKEEPER, FaultCluster
from tests.faults.network import CLIENT
from tests.faults.replica_files import segments, walk
from tests.faulty_libc import FaultyLibc

FLUSH_DELAY_S = 0.5
CLOCK_STEPS_S = (-8 * 86400.0, -3600.0, 3600.0, 8 * 86400.0)
"""Behind and ahead by an hour, and by more than the time for which messages are kept (rule L7)."""
START_S = 60.0
FLIPS = 3
"""Bytes changed in each segment that is chosen."""


class Injection:
    """One fault on some brokers. ``begin``, later ``heal``; what it did in words is ``said``."""

    def __init__(self, cluster: FaultCluster, fault: str, brokers: list[int], topic: str, draw: random.Random) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.topic = topic
        self.draw = draw
        self.said = ""
        self._begin, self._heal = _FAULTS[fault]

    def begin(self) -> None:
        self._begin(self)

    def heal(self) -> None:
        self._heal(self)


def _each(act: Callable[[FaultCluster, int], object]) -> Callable[[Injection], None]:
    def on_each(injection: Injection) -> None:
        for broker_id in injection.brokers:
            act(injection.cluster, broker_id)

    return on_each


def _start(injection: Injection) -> None:
    """As whoever watches them does: a broker that does not find ZooKeeper in its time ends, and is started again."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            injection.cluster.start_brokers(injection.brokers)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def _cut(sends: bool, receives: bool, whom: Callable[[FaultCluster], list[str]]) -> tuple[_Act, _Act]:
    def pairs(injection: Injection) -> list[tuple[str, str]]:
        out = injection.cluster.links(injection.brokers, whom(injection.cluster))
        return [*(out if sends else []), *((there, here) for here, there in (out if receives else []))]

    return (
        lambda injection: injection.cluster.network.cut(pairs(injection)),
        lambda injection: injection.cluster.network.heal(pairs(injection)),
    )


def _everybody(cluster: FaultCluster) -> list[str]:
    return cluster.names


def _peers(cluster: FaultCluster) -> list[str]:
    return [name for name in cluster.names if name not in (CLIENT, ZOOKEEPER)]


def _zookeeper_only(cluster: FaultCluster) -> list[str]:
    return [ZOOKEEPER]


def _libcs(injection: Injection) -> list[FaultyLibc]:
    found = [injection.cluster.nodes[broker_id].libc for broker_id in injection.brokers]
    assert None not in found, "the cluster was made without faulty disks"
    return [libc for libc in found if libc is not None]


def _delay_flushes(seconds: float) -> Callable[[Injection], None]:
    def delay(injection: Injection) -> None:
        for libc in _libcs(injection):
            libc.delay_flushes(seconds)

    return delay


def _step_clock(injection: Injection) -> None:
    steps = []
    for libc in _libcs(injection):
        steps.append(injection.draw.choice(CLOCK_STEPS_S))
        libc.step_clock(steps[-1])
    injection.said = f"by {', '.join(f'{step:+g}' for step in steps)} s"


def _right_clock(injection: Injection) -> None:
    for libc in _libcs(injection):
        libc.step_clock(0)


def _fill_disk(injection: Injection) -> None:
    for broker_id in injection.brokers:
        node = injection.cluster.nodes[broker_id]
        assert node.mounted, "the cluster was made without small disks"
        with _ballast(node.broker.folder).open("wb", buffering=0) as file:
            piece = bytes(1 << 20)
            while piece:
                try:
                    file.write(piece)
                except OSError:
                    piece = piece[: len(piece) // 2]


def _free_disk(injection: Injection) -> None:
    for broker_id in injection.brokers:
        _ballast(injection.cluster.nodes[broker_id].broker.folder).unlink(missing_ok=True)


def _ballast(folder: Path) -> Path:
    return folder / "data" / ".ballast"


def _flip_bits(injection: Injection) -> None:
    """Each broker loses bits in partitions of its own: what one has lost, the others have."""
    cluster = injection.cluster
    flipped = []
    for place, broker_id in enumerate(injection.brokers):
        folders = sorted((cluster.nodes[broker_id].broker.folder / "data").glob(f"{injection.topic}-*"))
        for folder in folders[place :: len(injection.brokers)]:
            closed = segments(folder)[:-1]
            if closed:
                path = injection.draw.choice(closed)
                places = flip(path, injection.draw)
                flipped.append(f"b{broker_id} {folder.name}/{path.name} at {places}")
    injection.said = f"{len(flipped)} segments: {'; '.join(flipped[:3])}"


def flip(path: Path, draw: random.Random) -> list[int]:
    """Change single bits of bytes in batches of the file, which may be open; where."""
    data = path.read_bytes()
    batches = [batch for batch, _ in walk(data, 0) if batch is not None]
    places = []
    descriptor = os.open(path, os.O_RDWR)
    try:
        for _ in range(FLIPS if batches else 0):
            batch = draw.choice(batches)
            at = batch.position + draw.randrange(batch.size)
            byte = os.pread(descriptor, 1, at)[0] ^ (1 << draw.randrange(8))
            os.pwrite(descriptor, bytes([byte]), at)
            places.append(at)
    finally:
        os.close(descriptor)
    return sorted(places)


def _nothing(injection: Injection) -> None:
    pass


_Act = Callable[[Injection], None]
_FAULTS: dict[str, tuple[_Act, _Act]] = {
    "kill": (_each(FaultCluster.kill_broker), _start),
    "pause": (_each(FaultCluster.pause_broker), _each(FaultCluster.resume_broker)),
    "pause-long": (_each(FaultCluster.pause_broker), _each(FaultCluster.resume_broker)),
    "cut": _cut(True, True, _everybody),
    "cut-out": _cut(True, False, _everybody),
    "cut-in": _cut(False, True, _everybody),
    "cut-peers": _cut(True, True, _peers),
    "cut-zookeeper": _cut(True, True, _zookeeper_only),
    "slow-disk": (_delay_flushes(FLUSH_DELAY_S), _delay_flushes(0)),
    "full-disk": (_fill_disk, _free_disk),
    "bit-flip": (_flip_bits, _nothing),
    "clock": (_step_clock, _right_clock),
    "zookeeper": (
        lambda injection: injection.cluster.kill_zookeeper(),
        lambda injection: injection.cluster.start_zookeeper(),
    ),
}


def choose(cluster: FaultCluster, target: str, topic: str, busy: Iterable[int] = ()) -> list[int]:
    """The brokers that a target means at this moment; [] where there is none, or all of them are in a fault."""
    free = [broker_id for broker_id in cluster.nodes if broker_id not in set(busy)]
    controller = cluster.controller()
    leader, _ = cluster.state(topic, 0)
    match target:
        case "all":
            return free
        case "leader":
            wanted = [leader]
        case "controller":
            wanted = [] if controller is None else [controller]
        case "follower":
            followers = [one for one in cluster.replicas(topic, 0) if one != leader]
            wanted = sorted(followers, key=lambda one: one == controller)[:1]
        case _:
            wanted = []
    return [one for one in wanted if one in free]
