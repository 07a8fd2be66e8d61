"""``klog events``: what has happened to the cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from klog.cli.command import top_command
from klog.cli.flag_parsing import did_you_mean
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_cache import subjects
from klog.cli.watching import check_watchable, rows_as_they_come
from klog.client.positions import Position, parse_position
from klog.errors import KlogError, NoSuchThing, UsageError
from klog.event_kinds import EVENT_KINDS
from klog.render import Format, Report

if TYPE_CHECKING:
    from klog.tools.events import Event, EventFilter

SINCE = "@-1d"
LAST = 20
"""Of the stories that are shown unless a count or a start is given."""


@top_command("events", rows="klog.tools.events:EventRow")
async def events(
    invocation: Invocation,
    subject: list[str] | None = argument(
        "SUBJECT",
        "Only topic T, partition T-P, group G or broker ID; or a name, or an act's id.",
        autocompletion=subjects,
    ),
    kinds: list[str] | None = flag("--kind KIND", "Only this kind, such as leader-elected."),
    by: str | None = flag("--by PRINCIPAL", "Only acts of this principal, or of a part of its name."),
    since: Position | None = flag(
        "--since POS", f"Start position; a day ago ({SINCE}) if not given.", parser=parse_position
    ),
    count: int | None = flag("-n --last N", f"Only the last N [{LAST}; all with --since].", min=1),
    follow: bool = flag("--follow", "Go on with what happens, until stopped."),
) -> Report | None:
    """Show what has happened to the cluster, and who changed what: brokers, topics, leaders, settings, groups.

    A table tells events of one cause in one line: a broker's death with all that it did, a rolling restart, a topic
    with the act that made it; `-v` shows each event. UNDO has the act for `klog undo`. Brokers write their events to
    the topic `klog.events`, which keeps them for a week. `-o jsonl` shows each event as it was written; the other
    formats have all events since the start position, unless -n is given.

    With an act's id it shows that act, with the whole state before and after. ZooKeeper has the last 5,000 acts.

    The exit code is 1 if there are no events because the topic, group or broker does not exist.
    """
    from klog.coordination.acts import is_act_id
    from klog.tools import events as reading

    if subject and is_act_id(subject[-1]) and subject[:-1] in ([], ["act"]):
        found_act = await _act(invocation, subject[-1], is_said=len(subject) > 1)
        if found_act is not None:
            return found_act
    if subject:
        reading.filter_of(subject, ())  # its errors come before the connection
    for kind in kinds or ():
        if kind not in EVENT_KINDS:
            raise UsageError(
                f"there are no events of the kind {kind!r}{did_you_mean(kind, EVENT_KINDS)}",
                hint=f"kinds: {', '.join(EVENT_KINDS)}",
            )
    if by is not None and kinds and "act" not in kinds:
        raise UsageError("--by is about acts, and --kind leaves them out")
    check_watchable(invocation, watch=follow, flag="--follow")
    show = rows_as_they_come(invocation) if follow else None
    cluster = await invocation.cluster()
    of = reading.filter_of(subject, (await cluster.metadata()).topics) if subject else reading.EventFilter()
    chosen = replace(of, kinds=tuple(kinds or ()) if by is None else ("act",), by=by)
    found: list[Any] = []
    if follow:
        try:
            await reading.check_there(cluster, invocation.zookeeper, of)
        except KlogError as error:  # it may still come
            invocation.say("; ".join(filter(None, [error.message, error.hint])))
    is_folded = not follow and invocation.output is Format.TABLE
    work = reading.read_events(
        cluster,
        reading.EventFilter() if is_folded else chosen,  # a story is shown whole
        since or parse_position(SINCE),
        _shower(invocation, found, show),
        follow=follow,
        note=invocation.say,
    )
    try:
        await work
    except asyncio.CancelledError:
        if not follow:
            raise
    if not follow and not (any(map(chosen.takes, found)) if is_folded else found):
        await reading.check_there(cluster, invocation.zookeeper, of)
    if follow or invocation.output is Format.JSONL:
        return None
    if invocation.output is not Format.TABLE:
        return invocation.report(found if count is None else found[-count:])
    return _told(invocation, found, chosen, count or (LAST if since is None else max(1, len(found))))


async def _act(invocation: Invocation, act_id: str, *, is_said: bool) -> Report | None:
    """One act, whole; None for a word that means something else."""
    from klog.admin import acts

    try:
        row, _ = await asyncio.to_thread(acts.show_act, await invocation.zookeeper(), act_id)
    except NoSuchThing:
        if is_said:
            raise
        return None
    return Report(invocation.command, acts.ActRow, [row])


def _told(invocation: Invocation, found: list[Event], chosen: EventFilter, count: int) -> Report:
    """The last so many, by cause; with ``-v`` each event."""
    from klog.tools.events import in_turn, row
    from klog.tools.history import StoryRow, fold

    events = in_turn(found)
    rows = (
        [row(one) for one in filter(chosen.takes, events)] if invocation.shared.verbose else fold(events, chosen.takes)
    )
    earlier = len(rows) - count
    note = f"{earlier:,} earlier: -n {len(rows)}" if earlier > 0 else ""
    if invocation.shared.verbose:
        return invocation.report(rows[-count:], notes=(note,))
    return Report(invocation.command, StoryRow, rows[-count:], notes=(note,))


def _shower(invocation: Invocation, found: list[Any], show: Callable[[list[Any]], None] | None) -> Any:
    """What is done with each event: a line at once, or a row of the report in the end."""
    from klog.tools.events import row

    def line(event: Event) -> None:
        if show is None:
            found.append(None)  # counted: a long output is not kept
        sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def keep(event: Event) -> None:
        found.append(event if invocation.output is Format.TABLE else row(event))

    if invocation.output is Format.JSONL:
        return line
    return keep if show is None else lambda event: show([row(event)])
