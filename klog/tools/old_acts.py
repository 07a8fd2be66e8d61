"""Acts that ZooKeeper no longer has, from their events in ``klog.events``.

`klog.coordination.acts` has the fields. Until there are permissions any client can write such an event: these acts are
shown, and not taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klog.client.positions import Position
from klog.coordination.acts import TIME_MS_MAX, Act, Actor, is_act_id
from klog.tools.events import Event, EventFilter, read_events

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

_TEXTS: Final = ("topic", "group", "schema", "path", "undoes", "principal", "acl", "quota", "user")


async def read_old_acts(cluster: Cluster, since: Position, note: Callable[[str], None]) -> list[Act]:
    """The acts in ``klog.events`` from a position on, each once, the oldest first. NoSuchThing without that topic."""
    found: dict[str, Act] = {}

    def keep(event: Event) -> None:
        act = act_of(event)
        if act is not None:
            found.setdefault(act.act_id, act)

    await read_events(cluster, EventFilter(kinds=("act",)), since, keep, follow=False, note=note)
    return sorted(found.values(), key=lambda act: act.time_ms)


def act_of(event: Event) -> Act | None:
    """The act that an event tells of; None if it is not one. States that were too long for the event are null."""
    act_id, time_ms, broker = event.get("act"), event.get("time"), event.get("id")
    words = [event.get(name) for name in ("what", "client", "host")]
    if (
        not isinstance(act_id, str)
        or not is_act_id(act_id)
        or type(time_ms) is not int
        or not 0 <= time_ms <= TIME_MS_MAX
        or not all(isinstance(word, str) for word in words)
        or not all(isinstance(event.get(name), str | None) for name in _TEXTS)
        or not isinstance(broker, int | None)
        or not isinstance(event.get("request"), int | None)
    ):
        return None
    kind, client, host = map(str, words)
    topic, group, schema, path, undoes, principal, acl, quota, user = (event.get(name) for name in _TEXTS)
    return Act(
        act_id,
        time_ms,
        kind,
        Actor(client, host, principal or "", event.get("request")),
        topic,
        group,
        event.get("before"),
        event.get("after"),
        undoes,
        schema,
        broker,
        path,
        acl,
        quota,
        user,
    )
