"""What `klog status` says of brokers that do not serve: what each lacks, and what helps."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from klog.admin.health.findings import CRITICAL, Finding
from klog.admin.health.snapshot import Snapshot
from klog.client.metadata import Metadata, PartitionNode
from klog.names import counted

TOPICS_NAMED_MAX: Final = 5


class State(StrEnum):
    """Why a broker does not serve: no broker of the id was ever there; it hangs, taking connections without answering;
    it is silent; it is dead; or that is unsure, since what hangs at one of the addresses may be it."""

    NEVER = "never"
    HANGS = "hangs"
    SILENT = "silent"
    DEAD = "dead"
    UNSURE = "unsure"


class Away(NamedTuple):
    """A broker that does not serve, and the addresses that the state is about."""

    state: State
    addresses: Sequence[str] = ()


def away(snapshot: Snapshot, broker: int) -> Away | None:
    """None: it is alive, and answers."""
    here = snapshot.here.get(broker)
    address = snapshot.hung.get(broker) or snapshot.located.get(broker) or (here.address if here else None)
    if not snapshot.is_away(broker):
        return None
    if snapshot.answers and never_was(snapshot, broker):
        return Away(State.NEVER)
    if address is not None and (broker in snapshot.hung or address in snapshot.hung_addresses):
        return Away(State.HANGS, [address])
    if broker in snapshot.silent or (not snapshot.answers and here is not None and here.runs):
        return Away(State.SILENT)
    if address is None and snapshot.hung_addresses:
        return Away(State.UNSURE, snapshot.hung_addresses)
    return Away(State.DEAD, [] if address is None else [address])


def dead_brokers(snapshot: Snapshot) -> Iterator[Finding]:
    """Brokers that assignments name and that do not live. Those that are to be started alone are one finding."""
    just_dead: dict[int, int] = {}
    for broker, replicas in sorted(replicas_of_dead(snapshot.metadata).items()):
        state, addresses = away(snapshot, broker) or Away(State.DEAD)
        found = f"not alive; it has {counted(replicas, 'replica')}"
        takes = f"{', '.join(addresses)} accepts connections but does not answer"
        match state:
            case State.NEVER:
                found = f"has never been registered; it is assigned {counted(replicas, 'replica')}"
                do = never_was_do(snapshot, broker)
            case State.HANGS:
                found += f". It hangs: {takes}"
                do = hangs_do(snapshot, addresses, broker)
            case State.UNSURE:
                found += f". {takes}: a broker that hangs"
                do = hangs_do(snapshot, addresses)
            case State.DEAD | State.SILENT:  # it was silent while it was alive
                just_dead[broker] = replicas
                continue
        yield Finding(CRITICAL, f"broker {broker}", found, "alive", do, "dead-broker")
    if just_dead:
        replicas_of_all = counted(sum(just_dead.values()), "replica")
        found = f"not alive; {'they have' if len(just_dead) > 1 else 'it has'} {replicas_of_all}"
        do = _start_dead(snapshot, list(just_dead))
        yield Finding(CRITICAL, brokers_named(just_dead), found, "alive", do, "dead-broker")


def _start_dead(snapshot: Snapshot, brokers: Sequence[int]) -> str:
    """What helps brokers that are dead and do not hang."""
    ways = {broker: how_to_start(snapshot, broker) for broker in brokers}
    if len({*ways.values()}) == 1:
        do = f"start {'them' if len(ways) > 1 else 'it'}{ways[brokers[0]]}"
    else:
        do = "; ".join(f"start broker {broker}{way}" for broker, way in ways.items())
    if len(brokers) == 1 and can_be_replaced(snapshot.metadata, brokers[0]):
        do += f"; or `klog reassign plan --remove-broker {brokers[0]}`"
    first = mend_first(snapshot, brokers)
    logged = next((broker for broker in brokers if broker in snapshot.here), None)
    if logged is not None and not first:
        do += f"; `klog broker log {logged}` shows its last lines"
    do = first + do
    if any(snapshot.located.get(broker) is None for broker in brokers):
        do += ". If its process still runs, it hangs: `kill -9 PID` first"
    return do


def replicas_of_dead(metadata: Metadata) -> Counter[int]:
    """Brokers that are named in assignments and are not alive: how many replicas each has."""
    return Counter(broker for one in metadata.partitions for broker in one.replicas if broker not in metadata.brokers)


def never_was(snapshot: Snapshot, broker: int) -> bool:
    """Whether the cluster has never had this broker; False where that is not known."""
    return snapshot.ever_registered is not None and broker not in snapshot.ever_registered


def never_was_do(snapshot: Snapshot, broker: int) -> str:
    """What helps against a broker that only assignments know."""
    do = f"start a broker of this id: `klog broker start --id {broker} ...`"
    unled = _topics_for_want_of(snapshot, broker)
    if unled:
        named = " ".join(map(shlex.quote, unled[:TOPICS_NAMED_MAX]))
        do += f"; or `klog topic delete {named}`: it has no messages"
    if can_be_replaced(snapshot.metadata, broker):
        do += f"; or `klog reassign plan --remove-broker {broker}`"
    return do


def _topics_for_want_of(snapshot: Snapshot, broker: int) -> list[str]:
    """Topics of which no partition has ever had a replica, and this broker is one of those that it lacks."""
    return [
        name
        for name, topic in snapshot.metadata.topics.items()
        if any(broker in one.replicas for one in topic.partitions.values())
        and all(is_nowhere(snapshot, one) for one in topic.partitions.values())
    ]


def is_nowhere(snapshot: Snapshot, one: PartitionNode) -> bool:
    """The cluster has never had any broker that the partition's assignment names."""
    return one.leader is None and bool(one.replicas) and all(never_was(snapshot, broker) for broker in one.replicas)


def can_be_replaced(metadata: Metadata, broker: int) -> bool:
    """A reassignment can take this broker's replicas elsewhere: live brokers are enough, and each partition has a
    leader that they are copied from."""
    mine = [one for one in metadata.partitions if broker in one.replicas]
    factor = max((len(one.replicas) for one in mine), default=0)
    return len(metadata.brokers) >= factor and all(one.leader is not None for one in mine)


def how_to_start(snapshot: Snapshot, broker: int) -> str:
    """The command that starts a dead broker, and where to give it: `` on HOST: `COMMAND```."""
    here = snapshot.here.get(broker)
    if here is not None:
        return f": `{here.start}`"
    words, address = f"klog broker start --id {broker} --dir DIR", snapshot.located.get(broker)
    if address is None:
        return f" on its host, as it was started: `{words} ...`"
    words += f" --listen {shlex.quote(address)}"
    if snapshot.zookeeper is not None:
        words += f" -z {shlex.quote(snapshot.zookeeper)}"
    return f" on {shlex.quote(address.rpartition(':')[0])}, as it was started: `{words}`"


def mend_first(snapshot: Snapshot, brokers: Sequence[int]) -> str:
    """What comes before starting brokers of this machine that ended with an error: they would end again."""
    failed = next((one for one in brokers if one in snapshot.here and snapshot.here[one].last_error()), None)
    return "" if failed is None else f"mend what broker {failed} logged last (`klog broker log {failed}`), then "


def mend_disk(snapshot: Snapshot, broker: int) -> str:
    """What helps a broker with a log dir that is offline."""
    return f"repair or replace the disk, then `klog broker stop {broker}`, and start it{how_to_start(snapshot, broker)}"


def hangs_do(snapshot: Snapshot, addresses: Sequence[str], broker: int | None = None) -> str:
    """What helps against a process that takes connections at one of these addresses and does not answer."""
    found = sorted({pid for address in addresses for pid in snapshot.processes.get(address, ())})
    pids = " ".join(map(str, found)) or "PID"
    where = "" if found else f" on {', '.join(shlex.quote(one.rpartition(':')[0]) for one in addresses)}"
    log = snapshot.here[broker].log_file if broker in snapshot.here else None
    read = "Read its log" if log is None else f"Read its log, {log}"
    again = "then start it" if broker is None else f"then start it{how_to_start(snapshot, broker)}"
    return (
        f"do not start it: its process lives{where}. {read}; resume it (`kill -CONT {pids}`) if it was stopped, "
        f"otherwise `kill -9 {pids}`, and {again}"
    )


def start(snapshot: Snapshot, ids: Sequence[int]) -> str:
    """How dead brokers come back; of one that hangs its own finding says how."""
    may_hang = any(snapshot.located.get(one) in (None, *snapshot.hung_addresses) for one in ids)
    if snapshot.hung_addresses and may_hang:
        return f"bring {brokers_named(ids)} back (`klog status brokers`)"
    return f"start {brokers_named(ids)}"


def blamed(snapshot: Snapshot, brokers: Sequence[int]) -> str | None:
    """WHAT of the finding about the first of these brokers that does not serve, or whose disk does not."""
    for broker in brokers:
        if snapshot.is_away(broker):
            return f"broker {broker}"
    for one in snapshot.log_dirs:
        if one.broker in brokers and (one.error is not None or one.is_full):
            return f"broker {one.broker}, log dir {one.path}"
    return None


def brokers_named(ids: Collection[int]) -> str:
    """``brokers 1,2``."""
    return f"broker{'s' if len(ids) > 1 else ''} {','.join(map(str, ids))}"
