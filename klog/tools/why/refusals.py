"""Why a principal is denied, or a client has to wait: from the events that brokers left to the rule or the quota that
applies now, and how to lift it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from klog.admin import acls
from klog.admin.quotas import read_quotas
from klog.client.cluster import Cluster
from klog.clock import SYSTEM_CLOCK
from klog.coordination.quotas import QUOTA_ACT
from klog.errors import KlogError
from klog.names import TAIL_GROUP, counted
from klog.security.permissions import Operation, parse_resource, word_of_text
from klog.security.quotas import DEFAULT, Entity, Limit, QuotaKey, QuotaTable, told_value
from klog.tools.events import Event, row
from klog.tools.why.steps import Step, events_of, moment, time_of

DENIED: Final = "denied"
THROTTLED: Final = "throttled"
SHOWN_MAX: Final = 10
"""Different denials, or clients and quotas, the last ones."""
_FACTS: Final = {"quota": str, "entity": str, "user": str, "client": str, "host": str}


async def why_denied(cluster: Cluster, principal: str | None) -> list[Step]:
    """The last denials of a principal, or of all, the oldest first; then the rule that decides the last one now."""
    whose = principal if principal is None or ":" in principal else f"User:{principal}"

    def is_wanted(event: Event) -> bool:
        return whose in (None, event.get("principal")) and event.get("group") != TAIL_GROUP

    last: dict[tuple[str, ...], Event] = {}
    for event in await events_of(cluster, (DENIED,), is_wanted):
        key = tuple(str(event.get(name)) for name in ("principal", "operation", "resource"))
        last.pop(key, None)
        last[key] = event
    shown = list(last.values())[-SHOWN_MAX:]
    if not shown:
        what = "no request was denied" if whose is None else f"no request of {whose} was denied"
        return [Step(moment(SYSTEM_CLOCK.now_ms()), f"{what} in the last seven days", "events: none")]
    return [*map(_denial, shown), await _decision(cluster, shown[-1])]


def _denial(event: Event) -> Step:
    before = event.get("same_before")
    more = f"; {counted(before, 'denial')} before it" if isinstance(before, int) else ""
    others = event.get("others_before")
    more += f"; {counted(others, 'other denial')} without an event" if isinstance(others, int) else ""
    asked = f"{event.get('principal')}: {event.get('operation')} {event.get('resource')}"
    what = f"{asked} at {event.get('host')} was denied ({event.get('request')})"
    return Step(time_of(event), what, f"event denied: {event.get('rule')}{more}")


async def _decision(cluster: Cluster, event: Event) -> Step:
    """How the same would be decided now."""
    now = moment(SYSTEM_CLOCK.now_ms())
    principal, host = str(event.get("principal")), str(event.get("host"))
    try:
        operation, resource = word_of_text(Operation, str(event["operation"])), parse_resource(str(event["resource"]))
        found = await acls.check(cluster, principal, operation, resource, host)
    except (KlogError, KeyError, ValueError) as error:
        message = error.message if isinstance(error, KlogError) else str(error)
        return Step(now, "whether it is allowed now is not known", message, "`klog acl list` shows the ACLs")
    if found.allowed:
        return Step(now, f"{principal} may {operation.title} {resource} now", found.rule)
    who, which = shlex.quote(principal), shlex.quote(str(resource))  # a stranger may have chosen them
    if found.rule.startswith("Deny"):
        do = f"`klog acl remove` removes the ACL that denies; `klog acl list {which}` shows what else there is"
    else:
        do = f"`klog acl add {who} {operation.word} {which}` allows it"
    return Step(now, f"{principal} may not {operation.title} {resource}", found.rule, do)


class _Throttled(NamedTuple):
    """The client or address that some events are about, and the quota and its entity by which it had to wait."""

    quota: QuotaKey
    entity: str
    user: str
    client: str
    ip: str | None

    def __str__(self) -> str:
        return f"client {self.client!r} of user {self.user!r}" if self.ip is None else f"address {self.ip}"

    def is_named(self, name: str) -> bool:
        return name == self.ip if self.ip is not None else name in (self.user, self.client)

    def limit(self, table: QuotaTable) -> Limit | None:
        if self.ip is not None:
            return table.connection_limit(self.ip)
        return table.limit(self.quota, self.user, self.client)


async def why_throttled(cluster: Cluster, name: str | None) -> list[Step]:
    """Who had to wait, the oldest first; then the quota of the last one now. ``name``: a user, client id or address."""
    events = await events_of(
        cluster, (THROTTLED, "act"), lambda one: one["kind"] == THROTTLED or one.get("what") == QUOTA_ACT
    )
    quotas, now_ms = await read_quotas(cluster), SYSTEM_CLOCK.now_ms()
    whose = None if name is None else name.removeprefix("User:")
    chosen = {who: of_it for who, of_it in _by_client(events).items() if whose is None or who.is_named(whose)}
    if not chosen:
        what = "no client had to wait for a quota" if whose is None else f"{whose!r} did not have to wait for a quota"
        return [Step(moment(now_ms), f"{what} in the last seven days", "events: none")]
    last = list(chosen)[-SHOWN_MAX:]
    limit = last[-1].limit(QuotaTable(quotas))
    found = [_waits(who, chosen[who]) for who in last]
    if limit is not None:
        found += [_set_by(event) for event in events if _sets(event, last[-1].quota, limit)][-1:]
    return [*found, _quota(last[-1], limit, now_ms)]


def _by_client(events: Sequence[Event]) -> dict[_Throttled, list[Event]]:
    """The events of each client and quota, in the order of the last ones. Anyone may have written them."""
    found: dict[_Throttled, list[Event]] = {}
    for event in events:
        if event.get("kind") != THROTTLED or not all(isinstance(event.get(one), kind) for one, kind in _FACTS.items()):
            continue
        try:
            quota = QuotaKey(event["quota"])
        except ValueError:  # of a later version
            continue
        ip = event["host"] if quota.is_of_addresses else None
        who = _Throttled(quota, event["entity"], event["user"], event["client"], ip)
        of_it = found.pop(who, [])
        of_it.append(event)
        found[who] = of_it
    return found


def _waits(who: _Throttled, events: Sequence[Event]) -> Step:
    """From the first event to the last."""
    last = events[-1]
    more = sum(before for one in events if isinstance(before := one.get("same_before"), int))
    times = counted(len(events) + more, "time")
    since = time_of(events[0])
    spread = f" since {since.isoformat(timespec='seconds')}" if len(events) > 1 and since is not None else ""
    others = last.get("others_before")
    silent = f"; {counted(others, 'other wait')} without an event" if isinstance(others, int) else ""
    at = f" at {last['host']}" if who.ip is None else ""
    what = f"{who}{at} had to wait, {times}{spread}"
    return Step(time_of(last), what, f"event throttled: {row(last).what}{silent}")


def _sets(event: Event, key: QuotaKey, limit: Limit) -> bool:
    """Whether it is the act that gave this quota the value that it has."""
    before, after = event.get("before"), event.get("after")
    return (
        event.get("kind") == "act"
        and event.get("what") == QUOTA_ACT
        and event.get("quota") == limit.entity.path
        and isinstance(after, dict)
        and key in after
        and (not isinstance(before, dict) or before.get(key) != after[key])
    )


def _set_by(event: Event) -> Step:
    who = event.get("principal") or f"{event.get('client')}@{event.get('host')}"
    return Step(time_of(event), f"{who} set the quota", f"act {event.get('act')}")


def _quota(who: _Throttled, limit: Limit | None, now_ms: int) -> Step:
    now = moment(now_ms)
    if limit is None:
        return Step(now, f"no {who.quota} applies to {who} now", "quotas: none")
    flags = flags_of(limit.entity)
    do = (
        f"`klog quota set {who.quota}=RATE {flags}` changes it, `klog quota remove {who.quota} {flags}` lifts it; "
        "or have the client take less"
    )
    value = told_value(who.quota, limit.rate)
    return Step(
        now, f"{who.quota} {value} of {limit.entity} applies to {who}", f"the quota is that of {limit.shared_by}", do
    )


def flags_of(entity: Entity) -> str:
    """By which `klog quota` names an entity. Strangers choose client ids: they are quoted."""
    flags = []
    for flag, name in (("user", entity.user), ("client", entity.client), ("ip", entity.ip)):
        if name == DEFAULT:
            flags.append(f"--default-{flag}")
        elif name is not None:
            flags.append(f"--{flag}={shlex.quote(name)}" if name.startswith("-") else f"--{flag} {shlex.quote(name)}")
    return " ".join(flags)
