"""Runs a plan: a cluster, load, faults, quiet, everything read again, the files compared, the checker's verdict."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import SubprocessError
from typing import TypeAlias

from klog.errors import KlogError
from tests.faults import history
from tests.faults.background import reassign, rolling
from tests.faults.checker import Verdict, check, pauses_s
from tests.faults.cluster import FaultCluster, can_fault_disks, can_mount
from tests.faults.history import Ended, Fault, Polled, Replica
from tests.faults.injection import Injection, choose
from tests.faults.plan import WITHOUT_BROKER, Plan, Step
from tests.faults.replica_files import read_partition
from tests.faults.workload import Workload

TOPIC = "faults"
PARTITIONS = 6
FACTOR = 3
MIN_INSYNC = 2
RECOVERY_S = 5.0
"""Of load after the last fault is healed."""
BACKGROUND_REST_S = 3.0
"""What else goes on goes on for so long after the last fault."""
HEAL_S = 60.0
"""How long the cluster may take until every replica is in sync again."""
REFILL_S = 60.0
"""How long a replica may keep a damaged batch that others have whole."""
SETTINGS = {
    "log.segment.bytes": "65536",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "2000",
}
"""Of the brokers: small segments, so that there are closed ones, and whatever happens by time happens in a run."""
SCRUBBING = {"log.scrubber.interval.ms": "1000", "log.scrubber.io.max.bytes.per.second": "104857600"}
NOISE = re.compile(r"\b(Traceback|CRITICAL|AssertionError)\b")
"""What no broker may log, whatever is done to it."""


@dataclass
class Result:
    """What a run showed. `problems` is empty when all is well; `skipped` says why a cell could not be run."""

    plan: Plan
    verdict: Verdict | None = None
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    done: list[str] = field(default_factory=list)
    """The faults as they were: when, what, on which brokers."""
    longest_s: dict[int, float] = field(default_factory=dict)
    """Longest time without an acknowledgement, by partition."""
    first_ack_s: float | None = None
    """From the beginning of the last healing, when processes are started again, to the next acknowledgement."""
    whole_s: float | None = None
    """From the healing of the last fault until every replica was in sync."""
    notes: dict[str, int] = field(default_factory=dict)
    load: float = 0.0
    """The machine's load average of the last minute, when load on the cluster ended: what else it had to do."""
    late_s: float = 0.0
    """The longest that the proxies of this run were late by themselves."""

    @property
    def is_good(self) -> bool:
        return not self.problems and (bool(self.skipped) or (self.verdict is not None and self.verdict.is_clean))


def run(plan: Plan, folder: Path, *, partitions: int = PARTITIONS, keep: Path | None = None) -> Result:
    """Run the plan in the folder; ``keep`` is where the history is written to."""
    result = Result(plan)
    result.skipped = (can_fault_disks() if plan.faults & {"slow-disk", "clock"} else "") or (
        can_mount() if "full-disk" in plan.faults else ""
    )
    if result.skipped:
        return result
    settings = {**SETTINGS, **(SCRUBBING if "bit-flip" in plan.faults else {})}
    with FaultCluster(
        folder,
        plan.brokers,
        settings=settings,
        faulty_disks=bool(plan.faults & {"slow-disk", "clock"}),
        small_disks="full-disk" in plan.faults,
        secure=plan.secure,
    ) as cluster:
        assignment = layout(plan, list(cluster.nodes), cluster.controller(), partitions)
        factor = min(FACTOR, plan.brokers)
        cluster.create_topic(TOPIC, assignment, {"min.insync.replicas": str(min(MIN_INSYNC, factor))})
        security = cluster.admit(TOPIC) if plan.secure else None
        workload = Workload(cluster.bootstrap, TOPIC, partitions, security=security)
        workload.start()
        try:
            workload.await_acks(partitions)
            _run_steps(plan, cluster, workload, result)
        finally:
            workload.stop_sending()
        result.load, result.late_s = os.getloadavg()[0], cluster.network.late_s
        _quiesce(plan, cluster, workload, result, partitions)
    events = workload.record.events
    if keep is not None:
        with keep.open("w") as file:
            history.write(events, file)
    result.verdict = check(events)
    result.longest_s = pauses_s(events)
    result.notes = dict(workload.record.notes)
    result.problems += workload.fatal
    return result


def layout(plan: Plan, brokers: list[int], controller: int | None, partitions: int) -> list[list[int]]:
    """The brokers of each partition, the leader first, so that a plan's target is what it is called.

    For a leader or a follower: one broker leads everything, and is not the controller. For the controller: it leads
    every other partition, so that what its death does to the rest can be seen. Else: spread.
    """
    factor = min(FACTOR, len(brokers))
    others = [one for one in brokers if one != controller] or brokers
    last = [one for one in brokers if one not in others]
    if plan.targets and plan.targets <= {"leader", "follower"}:
        return [[*others, *last][:factor]] * partitions
    if plan.targets == {"controller"}:
        ways = ([*last, *others][:factor], [*others, *last][:factor])
        return [ways[partition % 2] for partition in range(partitions)]
    turned = [[*brokers[at:], *brokers[:at]][:factor] for at in range(len(brokers))]
    return [turned[partition % len(turned)] for partition in range(partitions)]


# --- While there is load --------------------------------------------------------------------------------------------


def _run_steps(plan: Plan, cluster: FaultCluster, workload: Workload, result: Result) -> None:
    began = time.monotonic()
    draw = plan.draw()
    stop = threading.Event()
    background = _background(plan, cluster, stop, result)
    active: _Active = []
    waiting = sorted(plan.steps, key=lambda step: step.at_s)
    try:
        while waiting or active:
            ends = min((until for until, _, _ in active), default=float("inf"))
            begins = waiting[0].at_s if waiting else float("inf")
            _sleep_until(began + min(ends, begins))
            if begins < ends:
                step = waiting.pop(0)
                begun = _begin(step, cluster, workload, result, draw, active)
                if begun is not None:
                    active.append((time.monotonic() - began + step.seconds, step, begun))
            else:
                active.sort(key=lambda one: one[0])
                _, step, injection = active.pop(0)
                _heal(step, injection, workload, result)
        if background is not None:
            _sleep_until(max(began + plan.seconds, time.monotonic() + BACKGROUND_REST_S))
            stop.set()
            background.join()
        elif not plan.steps:
            _sleep_until(began + plan.seconds)
        _recover(cluster, workload, result)
    finally:
        stop.set()
        for _, step, injection in active:
            _heal(step, injection, workload, result)


_Active: TypeAlias = list[tuple[float, Step, Injection]]
"""Faults that are on, with the moment at which each is healed."""


def _begin(
    step: Step, cluster: FaultCluster, workload: Workload, result: Result, draw: random.Random, active: _Active
) -> Injection | None:
    busy = {broker_id for _, _, injection in active for broker_id in injection.brokers}
    if step.fault in WITHOUT_BROKER:
        if any(other.fault == step.fault for _, other, _ in active):
            return None
        brokers: list[int] = []
    else:
        brokers = choose(cluster, step.target, TOPIC, busy)
        if not brokers:
            return None
    injection = Injection(cluster, step.fault, brokers, TOPIC, draw)
    at = workload.record.now()
    workload.record.add(Fault(at, step.fault, ",".join(map(str, brokers)), False))
    injection.begin()
    named = f"{step.target} {brokers}" if brokers else ""
    result.done.append(f"{at:.1f} s {step.fault} {named} for {step.seconds:g} s {injection.said}".strip())
    return injection


def _heal(step: Step, injection: Injection, workload: Workload, result: Result) -> None:
    record = workload.record
    record.add(Fault(record.now(), step.fault, ",".join(map(str, injection.brokers)), True))
    try:
        injection.heal()
    except (AssertionError, OSError, KlogError, SubprocessError) as error:
        result.problems.append(f"{step.fault} could not be healed: {error}")


def _recover(cluster: FaultCluster, workload: Workload, result: Result) -> None:
    """Load goes on for a while after the healing; when it was as before is measured."""
    record = workload.record
    healings = [event.at for event in record.events if isinstance(event, Fault)]
    healed = max(healings, default=record.now())
    began = time.monotonic()
    while time.monotonic() - began < HEAL_S:
        if not cluster.unhealed(TOPIC, workload.partitions):
            result.whole_s = record.now() - healed
            break
        time.sleep(0.1)
    _sleep_until(began + RECOVERY_S)
    if not healings:
        return
    acks = (event.at for event in record.events if isinstance(event, Ended) and event.outcome == "ok")
    first = min((at for at in acks if at > healed), default=None)
    result.first_ack_s = None if first is None else first - healed
    if result.first_ack_s is None:
        result.problems.append("nothing was acknowledged after the last fault was healed")


def _background(plan: Plan, cluster: FaultCluster, stop: threading.Event, result: Result) -> threading.Thread | None:
    acts: dict[str, Callable[[], None]] = {
        "reassign": lambda: reassign(cluster, TOPIC, stop, plan.draw(), result.done, result.problems),
        "rolling": lambda: rolling(cluster, TOPIC, stop, result.done, result.problems),
    }
    if not plan.background:
        return None
    thread = threading.Thread(target=acts[plan.background], name=plan.background, daemon=True)
    thread.start()
    return thread


# --- When it is over ------------------------------------------------------------------------------------------------


def _quiesce(plan: Plan, cluster: FaultCluster, workload: Workload, result: Result, partitions: int) -> None:
    """Every replica in sync, everything read, every broker stopped, every file read."""
    record = workload.record
    result.problems += [f"broker {one} ended by itself" for one in cluster.ended_by_themselves()]
    missing = cluster.await_whole(TOPIC, partitions, HEAL_S)
    result.problems += [f"not whole after {HEAL_S:g} s: {one}" for one in missing[:3]]
    if "bit-flip" in plan.faults:
        result.problems += _await_refill(cluster, partitions)
    if not workload.read_to_the_end():
        result.problems.append("the last catching up did not come to the end")
    _await_consumers(workload)
    workload.stop_reading()
    replicas = {partition: cluster.replicas(TOPIC, partition) for partition in range(partitions)}
    for broker_id in cluster.nodes:
        code = cluster.stop_broker(broker_id)
        if code not in (0, None):
            result.problems.append(f"broker {broker_id} ended with {code} when told to stop")
    for partition, brokers in replicas.items():
        for broker_id in brokers:
            batches, unreadable = read_partition(cluster.partition_folder(broker_id, TOPIC, partition))
            record.add(Replica(record.now(), broker_id, partition, batches, unreadable))
    for broker_id, node in cluster.nodes.items():
        said = [line for line in node.broker.log_text.splitlines() if NOISE.search(line)]
        if said:
            result.problems.append(f"broker {broker_id} logged {len(said)} times: {said[0][:200]}")


def _await_consumers(workload: Workload, timeout_s: float = 20.0) -> None:
    """The consumers that ran all along get to where the final one got, unless something is wrong with them."""
    events = workload.record.events

    def reached(by: str) -> dict[int, int]:
        polls = (event for event in list(events) if isinstance(event, Polled) and event.by == by)
        return {event.partition: event.records[-1][0] for event in polls}

    deadline = time.monotonic() + timeout_s
    wanted = reached("final")
    while time.monotonic() < deadline:
        if all(reached(f"c{number}") == wanted for number in (1, 2)):
            return
        time.sleep(0.2)
    workload.record.notes["a consumer never caught up"] += 1


def _await_refill(cluster: FaultCluster, partitions: int) -> list[str]:
    """Until no replica's files have a damaged batch; what still had one when the time was up."""
    deadline = time.monotonic() + REFILL_S
    while True:
        bad = []
        for partition in range(partitions):
            for broker_id in cluster.replicas(TOPIC, partition):
                batches, _ = read_partition(cluster.partition_folder(broker_id, TOPIC, partition))
                if not all(batch.valid and batch.base_offset == batch.position for batch in batches):
                    bad.append(f"broker {broker_id} still has a damaged batch in {TOPIC}-{partition}")
        if not bad or time.monotonic() > deadline:
            return bad
        time.sleep(0.5)


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.monotonic()))
