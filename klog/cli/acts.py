"""``klog acts`` and ``klog undo``: who changed what, and how it is taken back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from klog.cli.absent import check_there
from klog.cli.arguments import position
from klog.cli.command import Noun, top_command
from klog.cli.invocation import Invocation
from klog.cli.name_cache import group_names, remember_acts, topic_names
from klog.client.positions import Anchor, Position
from klog.clock import SYSTEM_CLOCK
from klog.errors import UsageError
from klog.render import Report
from klog.render.counts import counted

acts = Noun("acts", "Who changed what of the cluster.")

ROW = "klog.admin.acts:ActRow"
LISTED_MAX = 10
ActId = Annotated[str, typer.Argument(metavar="ACT", help="The act, as `klog acts list` shows it.")]


@acts.command("list", rows=ROW)
async def list_acts(
    invocation: Invocation,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only acts since then: @-1h, @2026-02-01T10:00:00Z.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="PRINCIPAL", help="Only by this principal, or a part of its name.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only on this topic.", autocompletion=topic_names)
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Only on this group.", autocompletion=group_names)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also acts that only klog.events has, from --since on, or of all its time.")
    ] = False,
) -> list[Any]:
    """List the acts that changed the cluster, by whatever client they came, the oldest first.

    So far covered: topics created and deleted, partitions added, settings changed, offsets of groups set by hand or
    deleted, groups deleted, partitions reassigned, leaders elected, schemas and their levels, ACLs, quotas, users'
    passwords, brokers asked to stop, ZooKeeper written by `klog zk`. An act is written in the same transaction as its
    change. ZooKeeper has the last 5,000; `klog.events` has those of a week, and --all lists them too. These cannot be
    taken back.

    The exit code is 1 if there are no acts because the topic or group does not exist.
    """
    from klog.admin import acts as verbs

    since_ms = None if since is None else _time_ms(since)
    older: list[Any] = []
    if everything:
        from klog.tools.old_acts import read_old_acts

        start = Position(Anchor.START) if since_ms is None else Position(Anchor.TIME, since_ms)
        older = await read_old_acts(await invocation.cluster(), start, invocation.say)
    session = await invocation.zookeeper()

    def listed(since_ms: int | None = since_ms, by: str | None = by) -> list[verbs.ActRow]:
        return verbs.list_acts(session, since_ms=since_ms, by=by, topic=topic, group=group, older=older)

    rows = await asyncio.to_thread(listed)
    if not rows and not await asyncio.to_thread(listed, None, None):
        await check_there(invocation, topic=topic, group=group)
    remember_acts(invocation.target, [row.act for row in rows])
    return rows


@acts.command("show", rows=ROW)
async def show(invocation: Invocation, act: ActId) -> Report:
    """Show one act, with the whole state before and after."""
    from klog.admin import acts as verbs

    row, _ = await asyncio.to_thread(verbs.show_act, await invocation.zookeeper(), act)
    return invocation.report([row])


@top_command("undo", rows="klog.admin.undo:UndoRow", asks=True, changes=True)
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


def _time_ms(text: str) -> int:
    found = position(text, "--since")
    if found.anchor is Anchor.START:
        return 0
    if found.anchor is Anchor.END:
        return SYSTEM_CLOCK.now_ms()
    if found.anchor is not Anchor.TIME:
        raise UsageError(f"--since {text!r} is not a time", hint="@-1h, @2026-02-01T10:00:00Z")
    return found.value
