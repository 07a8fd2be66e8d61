"""What is taken out of a world to see whether anybody notices: a rule, where it matters most, and how soon it shows.

`BEHIND` are fences behind which another stands: alone they are not missed here, and their own tests are elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tests.simulation.cluster import EVERY_FLUSH, NEVER, Plan


class Removal(NamedTuple):
    """`plan` is the world in which the rule matters, `seed` the first that shows it."""

    rule: str
    without: tuple[str, ...]
    plan: Plan
    seed: int

    @property
    def planned(self) -> Plan:
        return replace(self.plan, without=frozenset(self.without))


WITHIN = 500
"""So many seeds from the recorded one on are tried: any change to what is simulated moves it."""
CLEAR_LINES = 0.0
"""No message is overtaken by far: for worlds in which time is what is looked at."""

REMOVALS = (
    Removal(
        "R1: who was interrupted leaves the ISR",
        ("R1 uninterrupted", "R1 incarnation", "R1 emptied", "R1 no empty log"),
        Plan(weights={"empty and kill": 1}, every_s=1.2),
        0,
    ),
    Removal("R1: a new incarnation leads only under a new epoch", ("R1 incarnation",), Plan(), 4),
    Removal(
        "R1: a log that may lack what was never flushed does not lead",
        ("R1 safe",),
        Plan(config=NEVER, weights={"power": 4, "kill all": 3, "kill": 1, "pause": 1}, every_s=0.5),
        104,
    ),
    Removal(
        "R1: a log that lacks something does not lead",
        ("R1 whole",),
        Plan(config=EVERY_FLUSH, weights={"rot and kill": 1}, every_s=1.5),
        1,
    ),
    Removal(
        "R1: otherwise all must be back",
        ("R1 wait for all",),
        Plan(config=NEVER, weights={"power": 4, "kill all": 3, "kill": 1}, every_s=0.5),
        5,
    ),
    Removal(
        "R1: who crashed as a whole are compared",
        ("R1 compare",),
        Plan(config=EVERY_FLUSH, weights={"set back": 1}, every_s=2.5),
        1,
    ),
    Removal(
        "R1: nobody leaves for one who is only registered",
        ("R1 heard",),
        Plan(config=NEVER, weights={"power": 4, "kill": 6}, every_s=0.3),
        71,
    ),
    Removal(
        "R1: no empty log where an earlier incarnation counts",
        ("R1 no empty log",),
        Plan(weights={"empty": 2, "kill all": 3, "kill": 1, "zookeeper cut": 1}, every_s=0.5),
        44,
    ),
    Removal(
        "R2: an ISR change in flight counts both",
        ("R2",),
        Plan(weights={"isolate": 2, "cut": 2, "kill": 3, "pause": 2, "zookeeper cut": 2}, every_s=0.3),
        23,
    ),
    Removal(
        "R2: in doubt the state is read again",
        ("R2 doubt",),
        Plan(weights={"isolate": 2, "cut": 2, "kill": 3, "pause": 2, "zookeeper cut": 2}, every_s=0.3),
        2,
    ),
    Removal(
        "R3: a position is one incarnation's",
        ("R3 incarnation",),
        Plan(weights={"empty and kill": 1}, every_s=1.2, late_share=0.1),
        203,
    ),
    Removal("R3: a leader looks whether a follower agrees", ("R3 agreement",), Plan(), 1),
    Removal("R3: a follower cuts where it parts, not at its high watermark", ("R3 divergence",), Plan(), 0),
    Removal(
        "D4: a follower reports what it has flushed",
        ("D4 follower",),
        Plan(config=EVERY_FLUSH, weights={"power of all": 3, "slow disk": 3}, every_s=0.4),
        22,
    ),
    Removal(
        "D4: a leader counts what it has flushed",
        ("D4 leader",),
        Plan(config=EVERY_FLUSH, weights={"power of all": 3, "slow disk": 3}, every_s=0.4),
        16,
    ),
    Removal(
        "R5: a dead broker leaves the ISR at once",
        ("R5",),
        Plan(weights={"kill follower": 1}, every_s=0.5, min_insync=1, late_share=CLEAR_LINES, silence_s_max=0.9),
        0,
    ),
    Removal(
        "R6: who was falsely refused is admitted again",
        ("R6 readmit",),
        Plan(weights={"lie": 3, "kill": 1}),
        0,
    ),
    Removal("R8: the end is shown when it is known", ("R8",), Plan(), 12),
    Removal("R9: an acknowledgement is for its own epoch", ("R9",), Plan(), 0),
    Removal(
        "Z1: what a controller writes is fenced",
        ("Z1 controller", "Z1 version"),
        Plan(weights={"zookeeper slow": 3, "lie": 3, "pause": 2, "slow disk": 3}, every_s=0.3),
        4,
    ),
    Removal("Z1: a delete is for one controller only", ("Z1 depose",), Plan(), 8),
    Removal(
        "Z2: a lost answer is not a failure",
        ("Z2",),
        Plan(weights={"pause": 3, "kill": 2, "cut": 2}, every_s=0.2, lost_share=0.4, min_insync=1),
        85,
    ),
)

BEHIND = {
    "R1 emptied": "a broker without a log is not elected in the first place",
    "R2 seen": "a leader by an old state cannot write the next, and the controller says the new one soon",
    "R3 epoch": "who follows another leader disagrees, or has what this one has",
    "Z1 controller": "the version of the state",
    "Z1 version": "the controller's epoch, and the leader's own writes name versions too",
    "Z1 registration": "the version of the state",
    "Z1 controller epoch": "the leader epoch in what brokers are told",
}
