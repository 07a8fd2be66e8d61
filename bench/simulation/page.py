"""The part of ``docs/scale.md`` about a thousand brokers: the simulation, what limits it, and the sizes on paper.

Every figure is computed from results that programs have written: `simulation.json` beside the page, and the bench's
history for what a message costs a broker.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from bench.simulation.record import BEFORE, NOW, Run, SimulationRecord

HISTORY = Path(__file__).parents[1] / "results" / "history.jsonl"
FACTOR = 3
BROKERS, PARTITIONS, BYTES_S = 1000, 1_000_000, 10e9
"""What the paper's sizes are for."""
MULTI_BYTES_MAX = 512 * 1024
NODES_A_PARTITION = 2
VALUE_BYTES = 1000
"""Of the workload whose cost is taken: 1 KB values, batched."""
WORKLOAD = "produce, 1 KB values, batched, acks=all"

SCENARIOS = {
    "controller begins": (("begun_s", "every leader decided"), ("told_s", "every broker sent everything")),
    "broker dies": (("led_again_s", "all its partitions led again"), ("told_s", "every broker told")),
    "broker returns": (("in_sync_s", "in sync everywhere"), ("quiet_s", "every broker told")),
    "host dies": (("led_again_s", "all its partitions led again"), ("told_s", "every broker told")),
    "host returns": (("in_sync_s", "in sync everywhere"), ("quiet_s", "every broker told")),
    "rolling restart": (
        ("moved_s", "leaders moved away, worst broker"),
        ("restart_p50_s", "one broker, stop to in sync"),
    ),
    "controller dies": (("led_again_s", "its partitions led again"), ("told_s", "every broker sent everything")),
}
"""Each with the two times that matter."""
COUNTS = (
    ("transactions", "transactions"),
    ("nodes_written", "nodes written"),
    ("largest_multi_bytes", "largest transaction, KB"),
    ("requests", "requests to brokers"),
    ("sent_bytes", "sent, MB"),
    ("cpu_s", "controller's CPU, s"),
    ("longest_turn_s", "longest turn of its loop, s"),
)
SCALES = {"largest_multi_bytes": 1e3, "sent_bytes": 1e6}


def section(record: SimulationRecord, docs: Path) -> str:
    """Markdown, from its heading of the second level on. ``docs``: where other results may lie."""
    largest = record.largest
    if largest is None:
        return ""
    parts = [
        _told(record, largest),
        _scenarios(largest),
        _before(record),
        _limits(record, largest),
        _paper(record, largest),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _told(record: SimulationRecord, run: Run) -> str:
    machine = ", ".join(f"{name}: {value}" for name, value in record.machine.items())
    of_model = [*_costs(record.measured, "measured"), *_costs(record.assumed, "assumed")]
    return f"""## {run.brokers:,} brokers, simulated

Written by `scripts/bench --simulation` on {run.date} at commit `{run.commit}` from `docs/scale/simulation.json`.

klog's own controller (election, reassignment, its ZooKeeper client, its codec) runs in one process against a model of
ZooKeeper and of {run.brokers:,} brokers with {run.partitions:,} partitions of factor {FACTOR}, {run.per_host} brokers a
host, in virtual time. The controller's CPU time is real, measured while it runs, and moves the virtual clock. What the
model takes for granted was measured on this machine ({machine}), or is assumed where one machine cannot measure it.
Left out: what a broker does on its disk when it leads or follows, events in `klog.events`, other brokers' own reads.

{_table(("taken for granted", "value", ""), of_model)}"""


def _costs(costs: object, how: str) -> list[tuple[str, str, str]]:
    shown = []
    for one in fields(costs):  # type: ignore[arg-type]
        value = getattr(costs, one.name)
        if isinstance(value, bool):
            continue
        name = one.name.replace("_", " ")
        if name.endswith(" bytes s"):
            shown.append((name.removesuffix(" bytes s"), f"{value / 1e6:,.0f} MB/s", how))
        elif name.endswith(" bytes"):
            shown.append((name.removesuffix(" bytes"), f"{value:,.0f} B", how))
        else:
            is_long = value >= 0.1
            shown.append((name.removesuffix(" s"), f"{value:g} s" if is_long else f"{value * 1e6:,.3g} µs", how))
    return shown


def _scenarios(run: Run) -> str:
    rows = []
    for outcome in run.outcomes:
        times = SCENARIOS[outcome.key]
        told = outcome.failed or "<br>".join(f"{what}: {_shown(outcome.figures.get(name))} s" for name, what in times)
        count = outcome.figures.get("brokers")
        name = f"{outcome.key} ({count:g} brokers)" if count and count > 1 else outcome.key
        rows.append((name, told, *(_count(outcome.figures.get(one), one) for one, _ in COUNTS)))
    wrong = [f"- {one.key}: {each}" for one in run.outcomes for each in one.wrong]
    laws = (
        "\n".join(["After each of them something was wrong:", *wrong])
        if wrong
        else (
            "After each of them every partition is led by a live in-sync replica that was sent its epoch, and every "
            "in-sync set is a subset of the replicas."
        )
    )
    return f"{_table(('what happens', 'time', *(told for _, told in COUNTS)), rows)}\n\n{laws}"


def _before(record: SimulationRecord) -> str:
    pairs = [(one, now) for one in record.runs if one.code == BEFORE and (now := record.find(NOW, *one.key[1:]))]
    if not pairs:
        return ""
    parts = [
        """### What was mended

The same simulation with the sources at an earlier commit, and with today's: all that was changed in between counts. A
commit that is dirty has what the simulation itself needs, and nothing else."""
    ]
    for before, now in pairs:
        rows = []
        for key, times in SCENARIOS.items():
            for name, what in (*times, ("longest_turn_s", "longest turn of the loop"), ("cpu_s", "CPU")):
                old, new = before.figure(key, name), now.figure(key, name)
                if old is not None and new is not None:
                    rows.append((f"{key}: {what}", _shown(old), _shown(new), f"{old / new:.1f} x" if new else ""))
        head = (
            f"{now.brokers:,} brokers, {now.partitions:,} partitions; seconds",
            f"`{before.commit}`",
            f"`{now.commit}`",
            "",
        )
        parts.append(_table(head, rows))
    return "\n\n".join(parts)


class Limit(NamedTuple):
    """``share``: of what there is, 1 being all."""

    what: str
    value: str
    bound: str
    share: float
    lifted_by: str


def limits(record: SimulationRecord, run: Run) -> list[Limit]:
    """What bounds a cluster of this size, the nearest first."""
    measured, assumed = record.measured, record.assumed
    everything = (run.figure("controller begins", "sent_bytes") or 0.0) / run.brokers
    update_s = run.figure("controller begins", "longest_update_s") or 0.0
    turn_s = max((one.figures.get("longest_turn_s", 0.0) for one in run.outcomes if not one.failed), default=0.0)
    multi = max((one.figures.get("largest_multi_bytes", 0.0) for one in run.outcomes if not one.failed), default=0.0)
    begins_s = run.figure("controller dies", "told_s") or 0.0
    heap = measured.node_heap_bytes * NODES_A_PARTITION * run.partitions
    decided_s = run.figure("controller dies", "led_again_s") or 0.0
    found = [
        Limit(
            "a new controller reads and decides everything before it leads again what its predecessor led",
            f"{_shown(decided_s)} s",
            f"{assumed.session_s:g} s, a session: what a death takes that no refused connection shows",
            decided_s / assumed.session_s,
            "a second broker that knows what the controller knows; reads that overlap; what its predecessor led first",
        ),
        Limit(
            "a new controller sends every broker everything",
            f"{_shown(begins_s)} s; {everything / 1e6:.3g} MB a broker, {everything * run.brokers / 1e9:.3g} GB in all",
            "30 s, a client's request.timeout.ms: so old are metadata then",
            begins_s / 30,
            "brokers that ask for what has changed since a number that outlives the controller (as KIP-500's log has)",
        ),
        Limit(
            "a broker takes in everything in one turn of its loop",
            f"{_shown(update_s)} s",
            f"{assumed.session_s:g} s, a session (rule L8)",
            update_s / assumed.session_s,
            "UpdateMetadata in parts of some thousand partitions",
        ),
        Limit(
            "the controller's loop is silent",
            f"{_shown(turn_s)} s",
            f"{assumed.session_s:g} s, a session (rule L8)",
            turn_s / assumed.session_s,
            "not profiled at this size; likely: brokers described some at a time, where all answer at once now",
        ),
        Limit(
            "ZooKeeper's heap",
            f"{heap / 1e9:.3g} GB",
            "4 GB, the most that klog's own server takes unless told otherwise",
            heap / (4 << 30),
            "a larger heap; one node for all states of a topic",
        ),
        Limit(
            "one transaction",
            f"{multi / 1e3:.0f} KB",
            f"{MULTI_BYTES_MAX / 1e3:.0f} KB (rule Z3)",
            multi / MULTI_BYTES_MAX,
            "nothing need: larger ones are split, and each is atomic",
        ),
    ]
    return sorted(found, key=lambda one: -one.share)


def _limits(record: SimulationRecord, run: Run) -> str:
    found = limits(record, run)
    rows = [(one.what, one.value, one.bound, f"{one.share * 100:.0f} %", one.lifted_by) for one in found]
    first = f"The limit that comes first: {found[0].what}."
    return (
        f"### Which limit comes first\n\n{first}\n\n{_table(('what', 'here', 'bound', '', 'what would lift it'), rows)}"
    )


# --- on paper ---------------------------------------------------------------------------------------------------------


def _paper(record: SimulationRecord, run: Run) -> str:
    """1,000 brokers, 1 M partitions, 10 GB/s."""
    measured, assumed = record.measured, record.assumed
    more = PARTITIONS / run.partitions
    everything = (run.figure("controller begins", "sent_bytes") or 0.0) / run.brokers * more
    states = FACTOR * PARTITIONS / BROKERS
    multi = run.figure("broker dies", "largest_multi_bytes")
    dead = run.figure("broker dies", "replicas")
    rows = [
        ("replicas a broker", f"{states:,.0f}", "partitions x factor / brokers"),
        ("written by each broker", f"{BYTES_S * FACTOR / BROKERS / 1e6:,.0f} MB/s", "10 GB/s x factor / brokers"),
    ]
    cpu_us = _history(WORKLOAD, "broker_cpu_us")
    if cpu_us is not None:
        led = BYTES_S / BROKERS / VALUE_BYTES * cpu_us / 1e6
        rows.append(("CPU of a broker to take its messages as leader", f"{led:.3g} cores", f"history: {WORKLOAD}"))
    cpu_gb = _history("consume, 1 client", "broker_cpu_s_per_gb")
    if cpu_gb is not None:
        sent = BYTES_S * FACTOR / BROKERS / 1e9 * cpu_gb
        rows.append(("CPU to send them to two followers and one consumer", f"{sent:.3g} cores", "history: consume"))
    if multi and dead:
        size = states * multi / dead
        count = -(-size // MULTI_BYTES_MAX)
        rows.append(
            (
                "written to ZooKeeper when a broker dies",
                f"{size / 1e3:,.0f} KB in {count:.0f} transactions",
                "simulation",
            )
        )
    led_s = run.figure("broker dies", "led_again_s")
    if led_s is not None and dead:
        rows.append(("a broker's partitions led again", f"{led_s * states / dead:.3g} s", "simulation, by replicas"))
    nodes = NODES_A_PARTITION * PARTITIONS
    rows += [
        ("znodes of partitions", f"{nodes:,}", "two a partition"),
        ("ZooKeeper's heap", f"{nodes * measured.node_heap_bytes / 1e9:.3g} GB", "measured"),
        ("its snapshot", f"{nodes * measured.node_snapshot_bytes / 1e9:.3g} GB", "measured"),
        ("its start", f"{nodes * measured.snapshot_node_s:.3g} s", "measured"),
        ("everything, to one broker", f"{everything / 1e6:.3g} MB", "simulation"),
        (
            "everything, to all, by the network alone",
            f"{everything * BROKERS / assumed.link_bytes_s:.3g} s",
            "simulation; 10 Gbit/s assumed",
        ),
        (
            "a broker's loop while it takes everything in",
            f"{PARTITIONS * measured.apply_partition_s + BROKERS * measured.apply_broker_s:.3g} s of "
            f"{assumed.session_s:g} s",
            "measured",
        ),
    ]
    begun = run.figure("controller begins", "begun_s")
    if begun is not None:
        rows.append(("a new controller: every leader decided", f"{begun * more:.3g} s", "simulation, by partitions"))
    return f"""### On paper: {BROKERS:,} brokers, {PARTITIONS:,} partitions, {BYTES_S / 1e9:g} GB/s

{_table(("what", "computed", "from"), rows)}"""


def _history(workload: str, figure: str) -> float | None:
    """The median of klog's last run that has it."""
    found: Sequence[float] = ()
    for line in HISTORY.read_text().splitlines():
        found = json.loads(line)["figures"].get(workload, {}).get("klog", {}).get(figure, found)
    return statistics.median(found) if found else None


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _count(value: float | None, name: str) -> str:
    if value is None:
        return ""
    return _shown(value) if name.endswith("_s") else f"{value / SCALES.get(name, 1):,.0f}"


def _shown(value: float | None) -> str:
    """Three significant figures."""
    if value is None:
        return "?"
    steps: tuple[tuple[float, Callable[[float], str]], ...] = (
        (99.95, lambda one: f"{one:,.0f}"),
        (9.995, lambda one: f"{one:.1f}"),
        (0.9995, lambda one: f"{one:.2f}"),
    )
    return next((form(value) for least, form in steps if value >= least), f"{value:.3f}")
