"""What simulations found, as ``docs/scale/simulation.json`` keeps it; the page is made from it alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.simulation.costs import Assumed, Measured
from bench.simulation.scenarios import Outcome

NOW, BEFORE = "now", "before"


@dataclass
class Run:
    """One cluster through all scenarios. ``code``: `NOW`, or `BEFORE` for an earlier commit beside it."""

    code: str
    commit: str
    date: str
    brokers: int
    partitions: int
    per_host: int
    per_topic: int
    rolled: int
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.code, self.brokers, self.partitions

    def figure(self, scenario: str, name: str) -> float | None:
        """None where there is none, or the scenario has failed."""
        found = next((one for one in self.outcomes if one.key == scenario), None)
        return None if found is None or found.failed else found.figures.get(name)


@dataclass
class SimulationRecord:
    """A later run of the same code and size replaces the earlier one."""

    machine: dict[str, str] = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)
    assumed: Assumed = field(default_factory=Assumed)
    runs: list[Run] = field(default_factory=list)

    def add(self, run: Run) -> None:
        self.runs = sorted([*(one for one in self.runs if one.key != run.key), run], key=lambda one: one.key)

    def find(self, code: str, brokers: int, partitions: int) -> Run | None:
        return next((one for one in self.runs if one.key == (code, brokers, partitions)), None)

    @property
    def largest(self) -> Run | None:
        """Of the code of now."""
        return max((one for one in self.runs if one.code == NOW), key=lambda one: one.partitions, default=None)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> SimulationRecord:
        told = json.loads(path.read_text())
        runs = [Run(**{**one, "outcomes": [Outcome(**each) for each in one["outcomes"]]}) for one in told["runs"]]
        return cls(told["machine"], Measured(**told["measured"]), Assumed(**told["assumed"]), runs)
