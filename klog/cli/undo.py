"""``klog undo``: an act taken back."""

from __future__ import annotations

import asyncio

from klog.cli.command import top_command
from klog.cli.flags import argument
from klog.cli.invocation import Invocation
from klog.cli.name_cache import remember_acts
from klog.names import counted
from klog.render import Report

LISTED_MAX = 10


@top_command("undo", rows="klog.admin.undo:UndoRow", asks=True, changes=True, acts=True)
async def undo(
    invocation: Invocation, act: str | None = argument("ACT", "The act; without it, your own that can be taken back.")
) -> Report:
    """Take an act back; without one, show your last acts that can be taken back, the newest first.

    Changes of a topic's settings, of offsets, of a schema's level, of ACLs and of znodes; reassignments, elections,
    deletions of groups, and of topics that are not purged yet. It is refused if the state has moved on since, with
    the difference. The undo is an act itself.
    """
    from klog.admin import acts as verbs
    from klog.admin import undo as undoing

    session = await invocation.zookeeper()
    if act is None:
        there = await asyncio.to_thread(undoing.open_acts, session)
        remember_acts(invocation.target, {one.act: undoing.what_was_done(one) for one in there})
        user = invocation.target.security.username
        host = await asyncio.to_thread(verbs.own_address, session)
        own = [one for one in there if one.principal == f"User:{user}" or one.principal.rpartition("@")[2] == host]
        footer = "klog undo ACT takes one back" if own else "no act of yours can be taken back"
        if len(there) > len(own):
            footer += f"; so can {counted(len(there) - len(own), 'act')} of others: klog events --kind act"
        return Report(invocation.command, verbs.ActRow, own[:LISTED_MAX], footer=footer)
    row, found = await asyncio.to_thread(verbs.show_act, session, act)
    plan = await asyncio.to_thread(undoing.plan_undo, session, found)
    if row.undone_by is not None:
        invocation.warn(f"act {act} was undone by {row.undone_by} before")
    invocation.confirm(f"Undo act {act} of {row.principal} on {row.subject}", invocation.report(plan.rows))
    await plan.carry_out(await invocation.cluster(client_id=undoing.undo_client(act)), session)
    return invocation.report(plan.rows, footer=f"{counted(len(plan.rows), plan.what)} as before")
