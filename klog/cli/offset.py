"""``klog offset``: the offsets at a position, and those that groups have committed, to files and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import Group, Partitions, Topic, all_partitions, position
from klog.errors import Refused, UsageError
from klog.ops.visible import for_stream
from klog.render import Format, Report

offset = Noun("offset", "Offsets: at a position; of groups, to files.")


@offset.command("list", rows="klog.ops.offsets:OffsetRow")
async def list_offsets(
    invocation: Invocation,
    topic: Topic,
    at: Annotated[
        str, typer.Option("--at", metavar="POSITION", help="start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h.")
    ] = "end",
    partitions: Partitions = None,
) -> list[Any]:
    """Show the offset of a position in each partition of a topic."""
    from klog.ops import offsets

    point = position(at, "--at")
    return await offsets.list_offsets(await invocation.cluster(), topic, point, all_partitions(partitions))


@offset.command("export")
async def export(
    invocation: Invocation,
    name: Group,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where to; stdout if not given.")] = None,
    form: Annotated[
        Literal["zk", "json", "csv"] | None,
        typer.Option("--format", metavar="FORMAT", help="zk, json or csv; by the file's name, else json."),
    ] = None,
) -> None:
    """Write what a group has committed, an offset a line.

    json keeps metadata and leader epochs. zk is 0.8's `/consumers/g/offsets/t/0:2868`, csv Kafka's
    `group,topic,partition,offset` without a header.
    """
    from klog.ops import offset_files
    from klog.ops import rewind as rewinding

    if invocation.shared.output not in (None, Format.JSON):
        raise UsageError(
            f"-o {invocation.output.value}: this writes a file, not a table", hint="--format zk, json or csv"
        )
    if form is not None and invocation.shared.output is not None and form != "json":
        raise UsageError(f"-o json and --format {form} say different things: choose")
    by_name: dict[str, Literal["zk", "json", "csv"]] = {".zk": "zk", ".csv": "csv"}
    known = await rewinding.committed_by(await invocation.zookeeper(), name)
    text = offset_files.text_of(name, known, form or by_name.get(file.suffix if file else "", "json"))
    if file is None:
        sys.stdout.write(for_stream(text, sys.stdout))
        return
    file.write_text(text, "utf-8")
    invocation.say(f"{len(known)} offsets of group {name} written to {file}")


@offset.command("import", rows="klog.ops.offset_changes:OffsetChange", asks=True)
async def import_(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `klog offset export` or Kafka's tools write it.")],
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Pass over lines that are none, instead of writing nothing.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="For this group, whichever the file names."),
    ] = None,
) -> Report:
    """Commit the offsets of a file, in any of the forms. Asks first, with the difference to what is committed.

    Refused while members live. All lines that mean nothing are named, and then nothing is written unless --skip-bad
    is given. What the log does not have is moved to its start or its end, with a word about it.
    """
    from klog.cli.group import receipt, write_undo
    from klog.ops import offset_changes, offset_files
    from klog.ops import rewind as rewinding

    lines, bad = offset_files.read(file, name)
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plans, missing = await rewinding.plan_lines(cluster, session, lines)
    bad = sorted([*bad, *missing])
    if bad and not skip_bad:
        listed = "".join(f"\n  {one}" for one in bad)
        raise Refused(
            f"{file} has {len(bad)} bad lines, nothing is written:{listed}", hint="--skip-bad writes the others"
        )
    if not plans:
        raise Refused(f"{file} holds no offsets" + (": all of its lines are bad" if bad else ""))
    await rewinding.refuse_members(session, [plan.group for plan in plans])
    for note in (*(f"skipped {one}" for one in bad), *(note for plan in plans for note in plan.notes)):
        invocation.say(note)
    rows = [row for plan in plans for row in plan.rows]
    changed = [row for row in rows if row.prior != row.new]
    summary = offset_changes.in_words(rows)
    plans = [plan for plan in plans if plan.changes]
    if not plans:
        return invocation.report(changed, footer=f"nothing to do: {summary}")
    named = f"group {plans[0].group}" if len(plans) == 1 else f"{len(plans)} groups"
    invocation.confirm(f"Import offsets of {named}: {summary}", invocation.report(changed))
    kept = []
    for plan in plans:
        kept.append(write_undo(invocation, plan))
        await rewinding.carry_out(cluster, session, plan)
    return invocation.report(changed, footer=summary, notes=receipt(invocation, *kept))
