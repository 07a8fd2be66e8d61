"""Why partitions, topics and brokers do not serve: from facts to steps. Nothing here asks the cluster anything.

The first step is the symptom, the last one the cause with what helps. Without a cause nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.admin.health import dead
from klog.admin.health.broker_rules import clocks, log_dirs
from klog.admin.health.topic_rules import deletion_awaits, reassignments
from klog.client.metadata import PartitionNode
from klog.coordination import paths
from klog.names import TopicPartition, counted
from klog.tools.events import Event, EventFilter, number_of
from klog.tools.why.steps import (
    BROKER_KINDS,
    ISR_KINDS,
    LEADER_KINDS,
    MOVE_KINDS,
    Known,
    Step,
    listed,
    moment,
    stopped_by,
    time_of,
    told,
    with_act,
)

Thing = str | TopicPartition | int
"""A topic, a partition or a broker."""


def thing_of(known: Known, kind: str | None, name: str) -> Thing | None:
    """What of the cluster has this name; None where nothing has."""
    topics = known.metadata.topics
    topic, _, number = name.rpartition("-")
    if kind in (None, "topic") and name in topics:
        return name
    if kind in (None, "partition") and topic in topics and number_of(number) in topics[topic].partitions:
        return TopicPartition(topic, number_of(number))
    broker = number_of(name)
    return broker if kind in (None, "broker") and broker >= 0 and knows_broker(known, broker) else None


def why_thing(known: Known, there: Thing) -> list[Step]:
    if isinstance(there, str):
        return why_topic(known, there)
    return why_partition(known, there) if isinstance(there, TopicPartition) else why_broker(known, there)


def why_partition(known: Known, name: TopicPartition) -> list[Step]:
    """Why the partition has no leader, or fewer in-sync replicas than replicas; of one that is well, who leads it."""
    one = known.metadata.topics[name.topic].partitions[name.partition]
    if is_well(one) and name not in _moving(known, name.topic):
        return [*_leads(known, name, one), *_ailing(known, one)]
    return list(partition_steps(known, name, one))


def why_topic(known: Known, topic: str) -> list[Step]:
    moving = _moving(known, topic)
    partitions = known.metadata.topics[topic].partitions.values()
    bad = [one for one in partitions if not is_well(one) or TopicPartition(topic, one.partition) in moving]
    if not bad:
        ailing = next((steps for one in partitions if (steps := list(_ailing(known, one)))), [])
        have = f"all {len(partitions)} partitions of {topic} have leaders"
        if len(partitions) == 1:
            have = f"the partition of {topic} has a leader"
        return ailing or [known.step(f"{have} and all replicas in sync", "metadata")]
    worst = min(bad, key=lambda one: (one.leader is not None, len(one.isr) - len(one.replicas), one.partition))
    return why_partition(known, TopicPartition(topic, worst.partition))


def why_gone(known: Known, topic: str) -> list[Step]:
    """Why there is no such topic; none where it never was, as far as is known."""
    act = next((one for one in known.acts_on(f"topic {topic}") if one.kind == "topic-delete"), None)
    event = known.last(EventFilter(topic, kinds=("topic-deleted",)))
    if act is None and event is None:
        return []
    steps = [known.step(f"topic {topic} does not exist", "metadata")]
    awaited = deletion_awaits(known.snapshot, topic)
    if awaited:
        if act is not None:
            steps.append(Step(act.time, f"{act.principal} deleted topic {topic}", f"act {act.act}"))
        what = f"its deletion waits for broker {listed(awaited)}: the name is taken until then"
        steps.append(Step(moment(known.snapshot.deletions[topic]), what, f"ZooKeeper: {paths.delete_topic(topic)}"))
        return [*steps, *brokers_steps(known, awaited)]
    do = f"`klog topic create {topic}` makes an empty one"
    if topic in known.snapshot.deleted:
        do = f"`klog topic restore {topic}` brings it back"
    if act is None:
        assert event is not None
        by = Step(time_of(event), f"topic {topic} was deleted", "event topic-deleted; no act names the client", do)
        return [*steps, by]
    evidence = f"act {act.act}" + (f", {act.before}" if act.before != "-" else "")
    do = f"{do}; `klog events {act.act}` shows what there was"
    return [*steps, Step(act.time, f"{act.principal} deleted topic {topic}", evidence, do)]


def why_broker(known: Known, broker: int) -> list[Step]:
    """Why the broker does not serve, or does not serve all it has."""
    if not known.snapshot.is_away(broker):
        return list(_disks(known, broker)) or list(_serves(known, broker))
    return list(broker_steps(known, broker))


def _serves(known: Known, broker: int) -> Iterator[Step]:
    """A broker that is well, and since when."""
    node = known.metadata.brokers[broker]
    leads = counted(sum(one.leader == broker for one in known.metadata.partitions), "partition")
    yield known.step(f"broker {broker} answers and leads {leads}", f"metadata: {node.address}")
    event = known.last(EventFilter(broker=broker, kinds=("broker-up",)))
    if event is not None:
        yield told(event)


def knows_broker(known: Known, broker: int) -> bool:
    """Whether the cluster has, or had, a broker of this id."""
    known_now = {*known.metadata.brokers, *known.metadata.dead}
    return broker in known_now or any(event.get("id") == broker for event in known.events)


def is_well(one: PartitionNode) -> bool:
    return one.leader is not None and not one.is_under_replicated


def _moving(known: Known, topic: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The topic's partitions that are reassigned -> the brokers that get a replica."""
    there = known.snapshot.topics.get(topic)
    adding = there.adding if there is not None else {}
    return {TopicPartition(topic, number): tuple(brokers) for number, brokers in adding.items()}


def _leads(known: Known, name: TopicPartition, one: PartitionNode) -> Iterator[Step]:
    """Who leads, and since when. A partition that is well has no cause."""
    epoch = "" if one.leader_epoch is None else f", epoch {one.leader_epoch}"
    evidence = f"metadata: replicas {listed(one.replicas)}, in-sync {listed(one.isr)}"
    yield known.step(f"broker {one.leader} leads {name}{epoch}", evidence)
    event = known.last(EventFilter(name.topic, name.partition, kinds=LEADER_KINDS))
    if event is not None and event.get("leader") == one.leader and event.get("leader_epoch") == one.leader_epoch:
        yield told(event)
    else:
        why = known.no_events or "the events that are kept do not tell"
        yield Step(None, "since when is not known", f"events: {why}")


def partition_steps(known: Known, name: TopicPartition, one: PartitionNode) -> Iterator[Step]:
    """From the trouble of a partition to its cause."""
    offline = one.leader is None
    what = "has no leader" if offline else f"has {len(one.isr)} of {len(one.replicas)} replicas in sync"
    evidence = f"metadata: replicas {listed(one.replicas)}, in-sync {listed(one.isr)}"
    yield known.step(f"{name} {what}", evidence)
    minimum = known.snapshot.needed(name.topic, one)
    if not offline and len(one.isr) < minimum:
        evidence = f"min.insync.replicas is {minimum}, in-sync replicas {len(one.isr)}"
        yield known.step(f"{name} refuses acks=all", evidence)
    adding = _moving(known, name.topic).get(name, ())
    suspects = (one.isr or one.replicas) if offline else [broker for broker in one.replicas if broker not in one.isr]
    if not offline and (adding or name in _moving(known, name.topic)) and set(suspects) <= set(adding):
        yield from _reassignment(known, name, [broker for broker in adding if broker in suspects])
        return
    kinds = LEADER_KINDS if offline else (*LEADER_KINDS, *ISR_KINDS)
    event = known.last(EventFilter(name.topic, name.partition, kinds=kinds))
    if event is not None:
        yield told(event)
    down = [broker for broker in suspects if known.snapshot.is_away(broker)]
    if down:
        yield from brokers_steps(known, down)
        return
    for broker in suspects:
        disks = list(_disks(known, broker))
        if disks:
            yield from disks
            return
    if offline:
        do = "read the controller's log: `klog broker list` shows which broker that is"
        yield Step(None, "the cause is not known: every in-sync replica's broker answers", "metadata", do)
    else:
        do = f"wait until it caught up; `klog topic describe {name.topic} --under-replicated` shows it"
        yield Step(None, f"broker {listed(suspects)} answers, and is behind the leader", "metadata", do)


def _reassignment(known: Known, name: TopicPartition, filling: list[int]) -> Iterator[Step]:
    """A reassignment, under way or standing still."""
    begun = known.last(EventFilter(name.topic, name.partition, kinds=("reassignment-begun", "reassignment-cancelled")))
    to = _moving(known, name.topic).get(name, ())
    if begun is not None:
        yield told(begun)
    else:
        yield Step(None, f"{name} is being reassigned to {listed(to)}", f"ZooKeeper: {paths.topic(name.topic)}")
    stalled = known.last(EventFilter(name.topic, name.partition, kinds=MOVE_KINDS))
    if stalled is not None and stalled.get("kind") == "reassignment-stalled":
        yield told(stalled)
    down = [broker for broker in filling if known.snapshot.is_away(broker)]
    if down:
        *before, cause = brokers_steps(known, down)
        yield from before
        do = f"{cause.do}, or take the reassignment back: `klog reassign cancel`"
        yield Step(cause.time, cause.what, cause.evidence, do)
        return
    still = next((one for one in reassignments(known.snapshot) if one.what == f"partition {name}"), None)
    if still is not None:
        yield known.step(f"the reassignment stands still: {still.found}", "the logs of its new replicas", still.do)
    else:
        do = "wait: `klog reassign status --watch` shows how far it is"
        yield known.step("the reassignment is under way", "ZooKeeper, and the logs of new replicas grow", do)


def brokers_steps(known: Known, brokers: Iterable[int]) -> Iterator[Step]:
    """Why each of these brokers does not serve: as many causes, since none of them alone is the trouble."""
    return (one for broker in brokers for one in broker_steps(known, broker))


def broker_steps(known: Known, broker: int) -> Iterator[Step]:
    """Why this broker does not serve."""
    snapshot = known.snapshot
    state, addresses = dead.away(snapshot, broker) or dead.Away(dead.State.DEAD)
    if state == dead.State.NEVER:
        do = dead.never_was_do(snapshot, broker)
        evidence = f"ZooKeeper: no {paths.broker(broker)}, and no {paths.registration(broker)}"
        yield Step(None, f"broker {broker} is not registered, and has never been", evidence, do)
        return
    if snapshot.registered is not None and broker not in snapshot.registered:
        yield Step(None, f"broker {broker} is not registered", f"ZooKeeper: no {paths.broker(broker)}")
    event = _went_down(known, broker)
    time = time_of(event)
    if event is not None:
        yield Step(time, f"broker {broker} went down", told(event).evidence)
    elif known.no_events is not None:
        yield Step(None, "when it went down is not known", f"events could not be read: {known.no_events}")
    evidence = f"{', '.join(addresses)} takes connections and does not answer"
    if state == dead.State.HANGS:
        yield Step(time, f"broker {broker} hangs", evidence, dead.hangs_do(snapshot, addresses, broker))
    elif state == dead.State.SILENT:
        evidence = snapshot.silent.get(broker, "no broker answers")
        yield Step(time, f"broker {broker} does not answer", evidence, "`klog status brokers`")
    elif state == dead.State.UNSURE:
        evidence += "; events do not tell whose it is"
        yield Step(time, f"broker {broker} is dead or hangs", evidence, dead.hangs_do(snapshot, addresses, broker))
    elif not addresses:  # a process that hangs loses its entry just the same
        evidence = "metadata: not among the live brokers; events do not tell its address, so it was not asked"
        do = f"look whether its process still runs: if so, `kill -9 PID` first; then {_start(known, broker)}"
        yield Step(time, f"broker {broker} is dead or hangs", evidence, do)
    else:
        yield from _last_words(known, broker)
        evidence, do = "metadata: not among the live brokers", _start(known, broker)
        dead_one = Step(time, f"broker {broker} is dead", evidence, do)
        yield from with_act(dead_one, stopped_by(known, broker, event, do))


def _start(known: Known, broker: int) -> str:
    return (
        f"{dead.mend_first(known.snapshot, [broker])}start broker {broker}{dead.how_to_start(known.snapshot, broker)}"
    )


def _last_words(known: Known, broker: int) -> Iterator[Step]:
    here = known.snapshot.here.get(broker)
    line = here.last_error() if here is not None else None
    if here is not None and line is not None:
        yield Step(line.time, f"broker {broker} logged an error before it ended", f"log {here.log_file}: {line.text}")


def _went_down(known: Known, broker: int) -> Event | None:
    """The first sign that it went down, since it was last up: the end of its session comes later."""
    found = None
    for event in known.chosen(EventFilter(broker=broker, kinds=BROKER_KINDS)):
        if event.get("kind") == "broker-up":
            found = None
        elif found is None:
            found = event
    return found


def _ailing(known: Known, one: PartitionNode) -> Iterator[Step]:
    """Of a partition that is led and in sync: a replica that does not answer now, or a leader's disk."""
    silent = [broker for broker in one.isr if broker in known.snapshot.silent]
    if silent:
        what = f"in-sync broker {listed(silent)} does not answer: acks=all waits until it leaves the in-sync replicas"
        yield known.step(what, f"metadata: in-sync {listed(one.isr)}")
        yield from brokers_steps(known, silent)
    elif one.leader is not None:
        yield from _disks(known, one.leader)
        yield from _clock(known, one.leader)


def _disks(known: Known, broker: int) -> Iterator[Step]:
    """A log dir of a live broker that is offline, or else one that is full."""
    mine = [one for one in log_dirs(known.snapshot) if one.what.startswith(f"broker {broker}, ")]
    for one in sorted(mine, key=lambda one: one.kind != "log-dir-offline")[:1]:
        path = one.what.partition(", log dir ")[2]
        if one.kind != "log-dir-offline":
            yield known.step(f"broker {broker} has no room for messages", f"log dir {path}")
            yield known.step(f"the disk of {path} on broker {broker} is full", one.found, one.do)
            continue
        yield known.step(f"broker {broker} does not serve all of its log dirs", f"log dir {path}: {one.found}")
        told_of = reversed(list(known.chosen(EventFilter(kinds=("log-dir-offline",)))))
        event = next((one for one in told_of if (one.get("broker"), one.get("dir")) == (broker, path)), None)
        evidence = told(event).evidence if event is not None else f"broker {broker} says {one.found}"
        here = known.snapshot.here.get(broker)
        line = here.last_error(path) if here is not None else None
        if here is not None and line is not None:
            evidence += f"; log {here.log_file}: {line.text}"
        yield Step(time_of(event), f"log dir {path} of broker {broker} is offline", evidence, one.do)


def _clock(known: Known, leader: int) -> Iterator[Step]:
    """A leader whose clock differs from the other brokers': it takes correct messages for ones of the future."""
    for one in clocks(known.snapshot):
        if one.what == f"broker {leader}":
            yield known.step(f"broker {leader} leads it, and {one.found}", "the brokers' answers", one.do)
