"""What one run of the bench found, as it is kept: one line of results/history.jsonl, and what RESULTS.md is made of."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ONE_BROKER, THREE_BROKERS, CONSUMERS, PIPELINE = "one broker", "three brokers", "consumers", "pipeline"
HOST = "all cores of a host"
ENCRYPTED = "TLS and SCRAM"
STOCK = "stock clients whose broker dies"
KINDS = (ONE_BROKER, THREE_BROKERS, CONSUMERS, PIPELINE, STOCK, HOST, ENCRYPTED)


def numbered(rounds: int, warm: int = 1) -> range:
    """The rounds of a run. Those below 0 come first and do not count: Java compiles what it has seen often.

    One round alone has none before it: it shows that all of it works, and is no measurement.
    """
    return range(-warm if rounds > 1 else 0, rounds)


@dataclass
class RunRecord:
    """`figures[workload][system][figure]` is a list with one number a round; filled by the event of measuring."""

    date: str
    machine: Mapping[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    options: dict[str, Mapping[str, str]] = field(default_factory=dict)
    rounds: int = 0
    sizes: Mapping[str, float] = field(default_factory=dict)
    figures: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kind: str = ONE_BROKER
    remarks: list[list[str]] = field(default_factory=list)
    """Each a title, and lines below it: what was seen besides the figures."""

    def add(self, workload: str, system: str, figures: Mapping[str, float]) -> None:
        kept = self.figures.setdefault(workload, {}).setdefault(system, {})
        for name, value in figures.items():
            kept.setdefault(name, []).append(value)

    def values(self, workload: str, system: str, figure: str) -> list[float]:
        return self.figures.get(workload, {}).get(system, {}).get(figure, [])

    def median(self, workload: str, system: str, figure: str) -> float | None:
        values = self.values(workload, system, figure)
        return statistics.median(values) if values else None

    def append_to(self, history: Path) -> None:
        """One line; a history is added to, never written anew."""
        line = asdict(self)
        line["figures"] = {
            workload: {
                system: {name: [float(f"{value:.5g}") for value in values] for name, values in figures.items()}
                for system, figures in systems.items()
            }
            for workload, systems in self.figures.items()
        }
        with history.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_history(path: Path) -> list[RunRecord]:
    """Every run that was kept, the oldest first."""
    return [RunRecord(**json.loads(line)) for line in path.read_text().splitlines()]
