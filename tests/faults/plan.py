"""What happens when: plans of faults, drawn from a seed. The same seed is the same plan. Pure.

A cell is one fault on one kind of broker, ``kill/leader``, alone or while the cluster does something else:
``kill/leader+reassign``, ``kill/controller+rolling``. A mix is many faults at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

STEADY_S = 4.0
"""Of load before the first fault."""
PAUSE_S = 3.0
SESSION_S = 6.0
"""zookeeper.session.timeout.ms of the brokers: its default."""
LAG_S = 10.0
"""replica.lag.time.max.ms, likewise."""
BEYOND_SESSION_S = SESSION_S + 4.0

TARGETS = ("leader", "follower", "controller", "all")
BACKGROUNDS = ("reassign", "rolling")


class Kind(NamedTuple):
    """What a fault is, and how long it lasts where that is part of it."""

    what: str
    seconds: float | None = None


FAULTS: dict[str, Kind] = {
    "kill": Kind("kill -9, and started again"),
    "pause": Kind("SIGSTOP for 3 s", PAUSE_S),
    "pause-long": Kind("SIGSTOP for longer than the session", BEYOND_SESSION_S),
    "cut": Kind("cut off from brokers, clients and ZooKeeper, both ways", BEYOND_SESSION_S),
    "cut-out": Kind("nothing that it sends arrives", BEYOND_SESSION_S),
    "cut-in": Kind("nothing arrives that is sent to it", BEYOND_SESSION_S),
    "cut-peers": Kind("cut off from the other brokers, both ways; clients and ZooKeeper reach it", LAG_S + 8.0),
    "cut-zookeeper": Kind("cut off from ZooKeeper, both ways", BEYOND_SESSION_S),
    "slow-disk": Kind("every flush takes half a second longer"),
    "full-disk": Kind("no byte left", LAG_S + 8.0),
    "bit-flip": Kind("bits flipped in closed segments while it runs"),
    "clock": Kind("the wall clock steps by hours or days, forth or back"),
    "zookeeper": Kind("ZooKeeper killed with -9, and started again"),
}

WITHOUT_BROKER = ("zookeeper",)
"""They have no broker as a target."""

_WITH_BACKGROUND = (
    "kill/leader",
    "kill/controller",
    "kill/follower",
    "pause-long/leader",
    "cut/leader",
    "zookeeper/none",
)
_ALONE = ("full-disk", "bit-flip")
"""Looked at by themselves."""
_LIVE_TOGETHER = tuple(fault for fault in FAULTS if fault not in _ALONE)
"""What a mix is drawn from."""
MIX_REST_S = (0.5, 6.0)


@dataclass(frozen=True, slots=True)
class Step:
    """From ``at_s`` on, for ``seconds``. ``target``: which broker, found out when it begins."""

    at_s: float
    fault: str
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    seed: int
    steps: tuple[Step, ...]
    background: str = ""
    brokers: int = 3
    secure: bool = False
    """The cluster is closed: TLS and SCRAM on every connection, permissions on."""

    def secured(self) -> Plan:
        return replace(self, name=f"secure:{self.name}", secure=True)

    @property
    def seconds(self) -> float:
        """Until the last fault is healed."""
        return max((step.at_s + step.seconds for step in self.steps), default=STEADY_S * 3)

    @property
    def targets(self) -> set[str]:
        return {step.target for step in self.steps}

    @property
    def faults(self) -> set[str]:
        return {step.fault for step in self.steps}

    def draw(self) -> random.Random:
        """Everything else that is left to chance in the run."""
        return random.Random(f"{self.seed} {self.name}")


def cells() -> Iterator[str]:
    """The names of all cells, in the order of the table."""
    yield "none/none"
    for fault in FAULTS:
        if fault in WITHOUT_BROKER:
            yield f"{fault}/none"
        else:
            yield from (f"{fault}/{target}" for target in TARGETS)
    for background in BACKGROUNDS:
        yield f"none/none+{background}"
        yield from (f"{cell}+{background}" for cell in _WITH_BACKGROUND)


def cell(name: str, seed: int, seconds: float) -> Plan:
    """The plan of a cell: a while of load, then the fault for ``seconds`` where it has no length of its own."""
    what, _, background = name.partition("+")
    fault, _, target = what.partition("/")
    steps: tuple[Step, ...] = ()
    if fault != "none":
        steps = (Step(STEADY_S, fault, target, FAULTS[fault].seconds or seconds),)
    return Plan(name, seed, steps, background, 4 if background == "reassign" else 3)


def mix(seed: int, seconds: float, *, background: str = "") -> Plan:
    """Faults that begin at random moments and overlap, for so long."""
    draw = random.Random(f"mix {seed}")
    steps = []
    at_s = STEADY_S
    while at_s < seconds:
        fault = draw.choice(_LIVE_TOGETHER)
        target = "none" if fault in WITHOUT_BROKER else draw.choice(TARGETS)
        lasts = FAULTS[fault].seconds or draw.uniform(1.0, BEYOND_SESSION_S)
        steps.append(Step(round(at_s, 2), fault, target, round(lasts, 2)))
        at_s += draw.uniform(*MIX_REST_S) + (lasts if draw.random() < 0.6 else 0.0)
    return Plan(f"mixed/{seconds:g} s", seed, tuple(steps), background, 4 if background == "reassign" else 3)


def sequence(name: str, seed: int, faults: list[tuple[str, str, float]], rest_s: float) -> Plan:
    """Faults one after the other, with a rest between them."""
    steps, at_s = [], STEADY_S / 2
    for fault, target, seconds in faults:
        steps.append(Step(at_s, fault, target, seconds))
        at_s += seconds + rest_s
    return Plan(name, seed, tuple(steps))
