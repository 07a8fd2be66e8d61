"""Run seeds: each its own world. A seed that fails says which law was broken, and tells its story."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.cluster import Cluster, Plan
from tests.simulation.removed import taken_out
from tests.simulation.world import TRACE_LINES_SHOWN, Violation


@dataclass
class Outcome:
    seed: int
    violation: Violation | None
    story: list[str]
    acked: int
    faults: Counter[str]
    events: int
    is_waiting: bool

    def told(self, lines: int = TRACE_LINES_SHOWN) -> str:
        """What to print of a seed that failed."""
        shown = self.story[-lines:]
        left_out = len(self.story) - len(shown)
        head = [f"seed {self.seed}: {self.violation}"] + ([f"... {left_out} lines before"] if left_out else [])
        return "\n".join([*head, *shown])


def simulate(seed: int, plan: Plan | None = None) -> Outcome:
    """One world. Any error in it is a violation: nothing may raise but what is meant to be answered."""
    plan = plan or Plan()
    cluster = Cluster(seed, plan)
    violation: Violation | None = None
    with _quiet(), taken_out(plan.without):
        try:
            cluster.run()
        except Violation as found:
            violation = found
        except Exception as error:
            violation = Violation("no error of ours", f"{type(error).__name__}: {error}")
            violation.__cause__ = error
    return Outcome(
        seed,
        violation,
        cluster.world.story() if violation is not None else [],
        len(cluster.laws.acked),
        cluster.chaos.done,
        cluster.world.events,
        cluster.is_waiting,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """What the core logs of all these crashes nobody reads; the trace has it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@dataclass
class Total:
    worlds: int = 0
    waiting: int = 0
    acked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.worlds += 1
        self.waiting += outcome.is_waiting
        self.acked += outcome.acked
        self.faults += outcome.faults
        if outcome.violation is not None:
            self.failed.append(outcome)


def run(seeds: int, first: int = 0) -> int:
    """Simulate ``seeds`` worlds from seed ``first`` on and print what came of them; the exit code."""
    began = time.monotonic()
    total = Total()
    for seed in range(first, first + seeds):
        outcome = simulate(seed)
        total.add(outcome)
        if outcome.violation is not None:
            print(outcome.told(), flush=True)
        if total.worlds % 1000 == 0:
            print(f"{total.worlds} worlds, {len(total.failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    faults = ", ".join(f"{name} {count}" for name, count in total.faults.most_common())
    print(f"{total.worlds} worlds in {time.monotonic() - began:.0f} s: {total.acked} messages acknowledged")
    print(f"{sum(total.faults.values())} faults: {faults}")
    print(f"left waiting for an operator, all in-sync disks being empty: {total.waiting}")
    print(f"failed: {len(total.failed)}" + "".join(f"\n  seed {one.seed}: {one.violation}" for one in total.failed))
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(run(*map(int, sys.argv[1:])))
