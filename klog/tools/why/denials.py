"""Why a principal was denied: from the events that brokers left to the rule that decides now."""

from __future__ import annotations

import shlex
from typing import Final

from klog.admin import acls
from klog.client.cluster import Cluster
from klog.clock import SYSTEM_CLOCK
from klog.errors import KlogError
from klog.names import TAIL_GROUP, counted
from klog.security.permissions import Operation, parse_resource, word_of_text
from klog.tools.events import Event
from klog.tools.why.steps import Step, events_of, moment, time_of

KIND: Final = "denied"
SHOWN_MAX: Final = 10
"""Different denials, the last ones."""


async def why_denied(cluster: Cluster, principal: str | None) -> list[Step]:
    """The last denials of a principal, or of all, the oldest first; then the rule that decides the last one now."""
    whose = principal if principal is None or ":" in principal else f"User:{principal}"

    def is_wanted(event: Event) -> bool:
        return whose in (None, event.get("principal")) and event.get("group") != TAIL_GROUP

    last: dict[tuple[str, ...], Event] = {}
    for event in await events_of(cluster, (KIND,), is_wanted):
        key = tuple(str(event.get(name)) for name in ("principal", "operation", "resource"))
        last.pop(key, None)
        last[key] = event
    shown = list(last.values())[-SHOWN_MAX:]
    if not shown:
        what = "no request was denied" if whose is None else f"no request of {whose} was denied"
        return [Step(moment(SYSTEM_CLOCK.now_ms()), f"{what} in the last seven days", "events: none")]
    return [*map(_told, shown), await _now(cluster, shown[-1])]


def _told(event: Event) -> Step:
    before = event.get("same_before")
    more = f"; {counted(before, 'denial')} before it" if isinstance(before, int) else ""
    others = event.get("others_before")
    more += f"; {counted(others, 'other denial')} without an event" if isinstance(others, int) else ""
    asked = f"{event.get('principal')}: {event.get('operation')} {event.get('resource')}"
    what = f"{asked} at {event.get('host')} was denied ({event.get('request')})"
    return Step(time_of(event), what, f"event denied: {event.get('rule')}{more}")


async def _now(cluster: Cluster, event: Event) -> Step:
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
