"""``klog undo``: an act taken back."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.cli.name_cache import remember_acts
from klog.render import Report
from klog.render.counts import counted

LISTED_MAX = 10


@top_command("undo", rows="klog.admin.undo:UndoRow", asks=True, changes=True, acts=True)
async def undo(
    invocation: Invocation,
    act: Annotated[
        str | None, typer.Argument(metavar="ACT", help="The act; without it, those that can be taken back.")
    ] = None,
) -> Report:
    """Take an act back; without one, show the last acts that can be taken back, the newest first.

    Changes of a topic's settings, of offsets, of a schema's level, of ACLs and of znodes; reassignments, elections,
    deletions of groups, and of topics that are still in the trash. It is refused if the state has moved on since, with
    the difference. The undo is an act itself.
    """
    from klog.admin import acts as verbs
    from klog.admin import undo as undoing

    session = await invocation.zookeeper()
    if act is None:
        rows = await asyncio.to_thread(verbs.list_acts, session)
        open_ = [one for one in reversed(rows) if undoing.can_be_undone(one)]
        remember_acts(invocation.target, [one.act for one in rows])
        footer = "klog undo ACT takes one back" if open_ else "no act can be taken back"
        return Report(invocation.command, verbs.ActRow, open_[:LISTED_MAX], footer=footer)
    row, found = await asyncio.to_thread(verbs.show_act, session, act)
    plan = await asyncio.to_thread(undoing.plan_undo, session, found)
    if row.undone_by is not None:
        invocation.warn(f"act {act} was undone by {row.undone_by} before")
    invocation.confirm(f"Undo act {act} of {row.principal} on {row.subject}", invocation.report(plan.rows))
    await undoing.undo(await invocation.cluster(client_id=undoing.undo_client(act)), session, plan)
    changed = {
        undoing.SettingsUndo: "setting",
        undoing.OffsetsUndo: "offset",
        undoing.SchemaLevelUndo: "level",
        undoing.ElectionUndo: "leader",
        undoing.ZnodeUndo: "znode",
        undoing.AclUndo: "ACL",
        undoing.QuotaUndo: "quota",
        undoing.DeletionUndo: "topic",
    }
    what = changed.get(type(plan), "partition")
    return invocation.report(plan.rows, footer=f"{counted(len(plan.rows), what)} as before")
