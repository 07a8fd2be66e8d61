"""Faults in numbers: what the tests do a few times, done many times, drawn from a seed that is printed.

scripts/faults                          every cell of fault x target, and a mix; writes docs/reliability.md
scripts/faults --cells 'kill|pause'     the cells whose names match, and writes their rows
scripts/faults --mixed --seconds 300    faults of all kinds at random moments for so long
scripts/faults --secure                 the same on a closed cluster: TLS and SCRAM everywhere, permissions
scripts/faults --simulate 10000         so many seeds of the simulated cluster
scripts/faults --pipeline               exports by Spark: drivers, workers, brokers killed; writes docs/reliability.md
scripts/faults --pipeline --cells driver --kills 200       one of its cells, and so many kills
scripts/faults --streams --kills 30     a stream by Spark: driver, workers, broker killed in turn; windows compared
"""

from __future__ import annotations

import argparse
import importlib
import re
import secrets
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from tests.faults import plan as plans
from tests.faults.plan import Plan

CELL_S = 10.0
MIX_S = 120.0


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, help=f"a fault's length ({CELL_S:g}), or a mix's ({MIX_S:g})")
    parser.add_argument("--cells", metavar="REGEX", help="only the cells whose names match")
    parser.add_argument("--mixed", action="store_true", help="only a mix")
    parser.add_argument("--background", choices=plans.BACKGROUNDS, default="", help="what goes on during a mix")
    parser.add_argument("--secure", action="store_true", help="of a closed cluster")
    parser.add_argument("--brokers", type=int, help="so many, whatever the plan says")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="repeat a run")
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    parser.add_argument("--no-write", action="store_true", help="leave docs/reliability.md as it is")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave files, logs and histories here")
    parser.add_argument("--simulate", type=int, metavar="N", help="simulate N seeds")
    parser.add_argument("--pipeline", action="store_true", help="faults of exports by Spark")
    parser.add_argument("--streams", action="store_true", help="kills of a stream's driver, workers and broker")
    parser.add_argument("--kills", type=int, metavar="N", help="of the driver, with --pipeline; of all, with --streams")
    given = parser.parse_args()
    if given.list:
        print("\n".join(plans.cells()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended on the way out
    print(f"seed {given.seed}", flush=True)
    if given.simulate:
        simulation = importlib.import_module("tests.simulation.simulate")
        return int(simulation.run(given.simulate, given.seed) or 0)
    if given.pipeline:
        pipeline = importlib.import_module("tests.faults.pipeline")  # Spark is not loaded for the rest
        names = [name for name in pipeline.CELLS if re.search(given.cells or "", name)]
        with tempfile.TemporaryDirectory(prefix="klog-faults-") as made:
            write = not given.no_write
            return int(pipeline.run_all(names, given.kills, given.seed, Path(made), write=write))
    if given.streams:
        streams = importlib.import_module("tests.faults.streams")
        with tempfile.TemporaryDirectory(prefix="klog-faults-") as made:
            return int(streams.run_all(given.kills, given.seed, Path(made)))
    return run_plans(chosen(given), given)


def chosen(given: argparse.Namespace) -> list[Plan]:
    wanted = [] if given.mixed else [name for name in plans.cells() if re.search(given.cells or "", name)]
    found = [plans.cell(name, given.seed, given.seconds or CELL_S) for name in wanted]
    if given.mixed or not given.cells:
        seconds = given.seconds if given.mixed and given.seconds else MIX_S
        found.append(plans.mix(given.seed, seconds, background=given.background))
    return [one.secured() for one in found] if given.secure else found


def run_plans(wanted: list[Plan], given: argparse.Namespace) -> int:
    """One after the other, each with a folder of its own; the exit code, 1 where one was bad."""
    from tests.faults import report
    from tests.faults.run import Result, run

    results: list[Result] = []
    for at, plan in enumerate(wanted, 1):
        if given.brokers:
            plan = replace(plan, brokers=given.brokers)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="klog-faults-") as made:
            folder, history = Path(made), None
            if given.keep:
                folder = given.keep.resolve() / plan.name.replace("/", "-").replace(" ", "")
                folder.mkdir(parents=True)
                history = folder / "history.jsonl"
            try:
                result = run(plan, folder, keep=history)
            except Exception as error:
                result = Result(plan, problems=[f"the run broke off: {error!r}", *traceback.format_exc().splitlines()])
            results.append(result)
        print(f"[{at}/{len(wanted)}, {time.monotonic() - began:.0f} s] {report.line(result)}", flush=True)
        for said in result.done:
            print(f"      {said}", flush=True)
        if result.notes:
            print(f"      clients said: {result.notes}", flush=True)
        if not given.no_write:
            report.keep([result])
    bad = [result.plan.name for result in results if not result.is_good]
    print(f"{len(results)} plans, {len(bad)} bad{': ' if bad else ''}{', '.join(bad)}; seed {given.seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
