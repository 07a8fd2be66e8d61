"""What `klog status` shows of a snapshot and its findings: lines for a person, at most so wide. Pure.

local  127.0.0.1:9092-9094  BROKEN: 12 of 13 partitions refuse acks=all  23:25:52Z
brokers     1 of 3     1* up   2 dead   3 dead   (* controller)
zookeeper   up         127.0.0.1:2181
partitions  13         13 under-replicated, 12 refuse acks=all, 0 without a leader
groups      2          billing 62.3k behind, no member

1 CRITICAL  brokers 2,3: not alive; they have 26 replicas
            why  23:25:47: broker 2 is dead (...)
            so   12 partitions refusing acks=all: payments (6), orders
            do   start them: `klog up --detach`

changed in the last hour
23:19  offsets-set of group billing by root@host        klog undo mwwqwlm16h00
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from klog.admin.acts import ActRow
from klog.admin.health.findings import CRITICAL, Finding, causes
from klog.admin.health.snapshot import Snapshot
from klog.admin.health.verdict import BROKEN, DOWN, WELL, PartitionCounts, Verdict, broker_states, group_lags, verdict
from klog.admin.undo import can_be_undone
from klog.render.fitting import wrapped
from klog.render.value_texts import count_text
from klog.render.visible import visible

WIDTH: Final = 80
"""Where the terminal's is not known."""
HEAD: Final = 12
"""Of the column that says what a line is about."""
COUNT: Final = 11
FINDINGS_MAX: Final = 10
CONSEQUENCES_MAX: Final = 3
ACTS_MAX: Final = 3
BROKERS_MAX: Final = 9
"""With more, only those that are not up are named."""
BAD, GOOD, PLAIN, STRONG = "bold red", "green", "", "bold"
"""rich's names of styles."""


class Line(NamedTuple):
    """A line and its style."""

    text: str
    style: str = PLAIN


def screen(snapshot: Snapshot, findings: Sequence[Finding], title: str, width: int = WIDTH) -> list[Line]:
    """The answer to "how is it?". ``title``: the cluster's name and addresses."""
    found = verdict(snapshot, findings)
    lines = [*_head(snapshot, found, title, width), *_parts(snapshot, found.counts, width)]
    first = causes(findings)
    if first:
        lines.append(Line(""))
    for number, one in enumerate(first[:FINDINGS_MAX], 1):
        lines += _finding(number, one, width)
    if len(first) > FINDINGS_MAX:
        lines.append(Line(f"and {len(first) - FINDINGS_MAX} more: -o wide"))
    if snapshot.acts:
        lines += [Line(""), *_changed(snapshot, width)]
    return lines


def short_addresses(bootstrap: str) -> str:
    """``h:9092-9094`` of servers that differ in the port alone, by one each."""
    servers = [one.rpartition(":") for one in bootstrap.split(",")]
    hosts, ports = {host for host, _, _ in servers}, [int(port) for _, _, port in servers if port.isdecimal()]
    first = ports[0] if ports else 0
    if len(ports) > 1 and len(hosts) == 1 and ports == list(range(first, first + len(servers))):
        return f"{servers[0][0]}:{first}-{ports[-1]}"
    return bootstrap if len(servers) <= 2 else f"{bootstrap.split(',')[0]} and {len(servers) - 1} more"


def _head(snapshot: Snapshot, found: Verdict, title: str, width: int) -> Iterator[Line]:
    style = BAD if found.word in (DOWN, BROKEN) else GOOD if found.word == WELL else STRONG
    clock = f"{datetime.fromtimestamp(snapshot.now_ms / 1000, UTC):%H:%M:%SZ}"
    middle = f"{title}  {found}"
    if len(middle) + len(clock) + 2 <= width:
        yield Line(f"{middle}{clock:>{width - len(middle)}}", style)
        return
    title = textwrap.shorten(title, width - len(clock) - 2, placeholder="...")
    yield Line(f"{title}{clock:>{width - len(title)}}", STRONG)
    yield from (Line(one, style) for one in textwrap.wrap(str(found), width))


def _parts(snapshot: Snapshot, found: PartitionCounts | None, width: int) -> Iterator[Line]:
    yield from _row("brokers", *_brokers(snapshot), width)
    if "zookeeper" in snapshot.asked or snapshot.no_zookeeper is not None:
        yield from _row("zookeeper", *_zookeeper(snapshot), width)
    if found is None:
        yield from _row("partitions", "unknown", "no broker answers", width)
        return
    troubles = [
        (found.under_replicated, "under-replicated"),
        (found.refusing, "refuse acks=all"),
        (found.offline, "without a leader"),
        (found.hanging, "led by a broker that hangs"),
    ]
    said = ", ".join(f"{count:,} {what}" for count, what in troubles if count) or "all in sync"
    yield from _row("partitions", f"{found.partitions:,}", said if found.partitions else "none yet", width)
    if "groups" in snapshot.asked:
        yield from _row("groups", *_groups(snapshot), width)


def _row(head: str, count: str, said: str, width: int) -> Iterator[Line]:
    start = f"{head:{HEAD}}{count:{COUNT - 1}} "
    yield from map(Line, textwrap.wrap(f"{start}{said}", width, subsequent_indent=" " * (HEAD + COUNT)))


def _brokers(snapshot: Snapshot) -> tuple[str, str]:
    states = broker_states(snapshot)
    if not states:
        return "unknown", snapshot.no_brokers or "no broker answers"
    up = sum(one.state == "up" for one in states)
    named = [one for one in states if len(states) <= BROKERS_MAX or one.state != "up"]
    controller = snapshot.metadata.controller_id
    texts = [f"{one.broker}{'*' if one.broker == controller else ''} {one.state}" for one in named]
    if len(named) < len(states):
        texts = texts[:BROKERS_MAX] + ["..."] * (len(texts) > BROKERS_MAX) + ["others up"]
    note = "(no controller)"
    if controller in snapshot.metadata.brokers:
        note = f"(* controller{'' if any('*' in one for one in texts) else f' {controller}'})"
    return f"{up} of {len(states)}", "   ".join([*texts, note])


def _zookeeper(snapshot: Snapshot) -> tuple[str, str]:
    if snapshot.no_zookeeper is not None:
        return "up" if snapshot.no_chroot else "down", snapshot.no_zookeeper
    if snapshot.zookeeper is None:
        return "unknown", "no address of it is known"
    if snapshot.other_cluster is not None:
        return "other" if snapshot.other_cluster else "empty", f"{snapshot.zookeeper} does not have this cluster"
    down = [one for one in snapshot.servers if one.mode is None]
    if not down:
        return "up", str(snapshot.zookeeper)
    said = ", ".join(f"{one.address} down ({one.reason})" for one in down)
    return f"{len(snapshot.servers) - len(down)} of {len(snapshot.servers)}", said


def _groups(snapshot: Snapshot) -> tuple[str, str]:
    if snapshot.no_groups is not None:
        return "unknown", snapshot.no_groups
    behind = group_lags(snapshot)
    if not behind:
        return "none", ""
    (name, unread), *_ = behind.most_common(1)
    if not unread:
        return f"{len(behind):,}", "nothing unread"
    members = next((look.members for look in snapshot.group_looks if look.name == name), ())
    count = count_text(unread).replace(" ", "")
    return f"{len(behind):,}", f"{visible(name)} {count} behind" + ("" if members else ", no member")


def _finding(number: int, one: Finding, width: int) -> Iterator[Line]:
    head = f"{number} {one.severity.upper()}"
    texts = [(head, f"{one.what}: {one.found}")]
    if one.cause is not None:
        texts.append(("why", one.cause))
    texts += [("so", said) for said in one.consequences[:CONSEQUENCES_MAX]]
    if len(one.consequences) > CONSEQUENCES_MAX:
        texts.append(("so", f"{len(one.consequences) - CONSEQUENCES_MAX} more (-o wide)"))
    texts.append(("do", one.do))
    for at, (word, text) in enumerate(texts):
        start = f"{word:{HEAD}}" if at == 0 else f"{'':{HEAD}}{word:5}"
        style = PLAIN if at else BAD if one.severity == CRITICAL else STRONG
        for line in wrapped(visible(text), width, start):
            yield Line(line, style)


def _changed(snapshot: Snapshot, width: int) -> Iterator[Line]:
    yield Line("changed in the last hour")
    for act in snapshot.acts[:ACTS_MAX]:
        undo = undo_command(act)
        start = f"{act.time:%H:%M}  "
        room = width - len(start) - len(undo) - 2 * bool(undo)
        who = f"by {act.principal}" if act.undoes is None else f"as before act {act.undoes}"
        said = visible(f"{act.kind} of {act.subject.removeprefix('quota ')} {who}")
        said = said if len(said) <= room else said[: room - 3] + "..."
        yield Line(f"{start}{said:{room}}  {undo}".rstrip())
    more = snapshot.acts_in_all - len(snapshot.acts[:ACTS_MAX])
    if more > 0:
        yield Line(f"and {more:,} more: `klog events --kind act --since @-1h`")


def undo_command(act: ActRow) -> str:
    """What takes the act back; nothing where it cannot be, or was."""
    return f"klog undo {act.act}" if can_be_undone(act) else ""


def summary(snapshot: Snapshot, findings: Sequence[Finding]) -> Mapping[str, object]:
    """The same for machines, around the findings: what each part is, null where it could not be asked."""
    found = verdict(snapshot, findings)
    return {
        "verdict": found.word,
        "said": found.said,
        "cluster_id": snapshot.metadata.cluster_id,
        "controller": snapshot.metadata.controller_id,
        "brokers": [one._asdict() for one in broker_states(snapshot)] or None,
        "zookeeper": None
        if snapshot.no_zookeeper is not None or snapshot.zookeeper is None
        else [{"address": one.address, "mode": one.mode} for one in snapshot.servers],
        "partitions": None if found.counts is None else found.counts._asdict(),
        "groups": None if snapshot.no_groups is not None else dict(group_lags(snapshot)),
    }
