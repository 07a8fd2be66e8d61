"""``klog offset``: the offsets at a position, and those that groups have committed, to files and back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Literal

from klog.cli.arguments import Group, Partitions, Topic, all_partitions
from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.client.positions import Position, parse_position
from klog.config.properties import decoded
from klog.errors import Refused, UsageError
from klog.names import counted
from klog.render import Format, Report
from klog.render.visible import for_stream

offset = Noun("offset", "Show offsets at a position; export and import those of groups.")


@offset.command("list", rows="klog.admin.offsets:OffsetRow")
async def list_offsets(
    invocation: Invocation,
    topic: Topic,
    at: Position = flag(
        "--at POSITION", "start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h.", "end", parser=parse_position
    ),
    partitions: Partitions = None,
    before: Position | None = flag(
        "--before POSITION", "Show the last messages before this position instead.", parser=parse_position
    ),
    count: int | None = flag("--count N", "With --before: how many messages (1).", min=1, max=100),
) -> list[Any]:
    """Show the offset of a position in each partition of a topic, or those of the last messages before it."""
    from klog.admin import offsets

    if before is not None:
        if at != parse_position("end"):
            raise UsageError("--at and --before exclude each other")
        cluster = await invocation.cluster()
        return await offsets.list_offsets_before(cluster, topic, before, count or 1, all_partitions(partitions))
    if count is not None:
        raise UsageError("--count needs --before")
    chosen = all_partitions(partitions)
    return await offsets.list_offsets(await invocation.cluster(), topic, at, chosen)


@offset.command("export")
async def export(
    invocation: Invocation,
    name: Group,
    file: Path | None = argument("FILE", "Output file; stdout if not given."),
    form: Literal["zk", "json", "csv"] | None = flag(
        "--format FORMAT", "zk, json or csv; from the file's suffix, else json."
    ),
) -> None:
    """Write the committed offsets of a group, one per line.

    json includes metadata and leader epochs. zk is the form of 0.8, `/consumers/g/offsets/t/0:2868`. csv is Kafka's
    form, `group,topic,partition,offset` without a header.
    """
    from klog.admin import offset_files
    from klog.admin import rewind as rewinding

    if invocation.shared.output not in (None, Format.JSON):
        raise UsageError(
            f"-o {invocation.output.value} does not apply: the command writes a file, not a table",
            hint="--format zk, json or csv",
        )
    if form is not None and invocation.shared.output is not None and form != "json":
        raise UsageError(f"-o json and --format {form} exclude each other")
    by_name: dict[str, Literal["zk", "json", "csv"]] = {".zk": "zk", ".csv": "csv"}
    known = await rewinding.committed_by(await invocation.zookeeper(), name)
    text = offset_files.text_of(name, known, form or by_name.get(file.suffix if file else "", "json"))
    if file is None:
        sys.stdout.write(for_stream(text, sys.stdout))
        return
    await asyncio.to_thread(file.write_text, text, "utf-8")
    invocation.say(f"{counted(len(known), 'offset')} of group {name} written to {file}")


@offset.command("import", rows="klog.coordination.offset_changes:OffsetChange", asks=True, changes=True, acts=True)
async def import_(
    invocation: Invocation,
    file: Path = argument("FILE", "A file of `klog offset export` or of Kafka's tools; - for stdin.", ...),
    skip_bad: bool = flag("--skip-bad", "Skip invalid lines."),
    name: str | None = flag("-g --group GROUP", "Commit for this group instead of the one in the file."),
) -> Report:
    """Commit the offsets of a file, in any of the three forms. Asks first, and shows the changes.

    Fails if the group has live members. On invalid lines it names all of them and commits nothing, unless --skip-bad is
    given. An offset outside the log is moved to the log's start or end, and a note says so.
    """
    from klog.admin import offset_files
    from klog.admin import rewind as rewinding
    from klog.coordination import offset_changes

    if str(file) == "-":
        lines, bad = offset_files.parse(decoded(sys.stdin.buffer.read(), "replace"), name)
    else:
        lines, bad = offset_files.read(file, name)
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plans, missing = await rewinding.plan_lines(cluster, session, lines)
    bad = sorted([*bad, *missing])
    if bad and not skip_bad:
        listed = "".join(f"\n  {one}" for one in bad)
        raise Refused(
            f"{file} has {counted(len(bad), 'invalid line')}, nothing committed:{listed}",
            hint="--skip-bad commits the valid lines",
        )
    if not plans:
        raise Refused(f"{file} contains no offsets" + (": all of its lines are invalid" if bad else ""))
    await rewinding.refuse_members(session, [plan.group for plan in plans])
    for note in (*(f"skipped {one}" for one in bad), *(note for plan in plans for note in plan.notes)):
        invocation.say(note)
    rows = [row for plan in plans for row in plan.rows]
    changed = [row for row in rows if row.prior != row.new]
    summary = offset_changes.in_words(rows)
    plans = [plan for plan in plans if plan.changes]
    if not plans:
        return invocation.report(changed, footer=f"nothing to change: {summary}")
    named = f"group {plans[0].group}" if len(plans) == 1 else f"{len(plans)} groups"
    invocation.confirm(f"Import offsets of {named}: {summary}", invocation.report(changed))
    with counting(invocation, "groups", len(plans)) as done:
        for plan in plans:
            await rewinding.carry_out(cluster, session, plan)
            done.done += 1
    return invocation.report(changed, footer=summary)
