"""A running figure: its clusters and parts, and what each tier has so far. `figure` starts and ends it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.figure3.balancer import BY_LIST, Balancer
from bench.figure3.clusters import DemoCluster
from bench.figure3.commands import OFFLINE, TABLE, Size
from bench.figure3.facts import FaultRow
from bench.figure3.front_ends import FrontEnd
from bench.figure3.part import Part
from bench.figure3.question import Question
from bench.figure3.watch import Watch


@dataclass
class Deployment:
    """Filled as parts are started; any thread may look."""

    size: Size
    live: list[DemoCluster]
    offline: DemoCluster
    balancers: list[Balancer] = field(default_factory=list)
    front_ends: list[FrontEnd] = field(default_factory=list)
    consumers: dict[str, Part] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    """The mirror, the table's loader, the stream job: by name."""
    watches: dict[str, Watch] = field(default_factory=dict)
    """The tiers by name, and the stream job's results."""
    lines: dict[str, int] = field(default_factory=dict)
    """What near-line consumers and the stream job have written to stdout: a message, or a batch, each."""
    faults: list[FaultRow] = field(default_factory=list)
    question: Question | None = None
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.begun_s

    @property
    def clusters(self) -> list[DemoCluster]:
        return [*self.live, self.offline]

    @property
    def tiers(self) -> list[str]:
        """In the order of the way of a message."""
        return [*(one.name for one in self.clusters), TABLE]

    @property
    def balanced_by(self) -> str:
        """What stands before the live clusters, and why."""
        kind = self.balancers[0].kind
        return f"{kind}, since haproxy is not installed" if kind == BY_LIST else kind

    def batches(self) -> dict[str, int]:
        """Of the table's loader and of the stream job, so far."""
        return {"loader": self.watches[TABLE].batches, "stream": self.lines.get("stream", 0)}

    def counts(self) -> dict[str, int]:
        """Messages of each tier, of the results, of near-line consumers, and of the mirror by ``offline:SOURCE``."""
        found = {name: one.messages for name, one in list(self.watches.items())} | self.lines
        if OFFLINE in self.watches:
            hosts = self.watches[OFFLINE].hosts
            for cluster in self.live:
                own = (one.host for one in self.front_ends if one.cluster == cluster.name)
                found[f"{OFFLINE}:{cluster.name}"] = sum(hosts[host] for host in own)
        return found
