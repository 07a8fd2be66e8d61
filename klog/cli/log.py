"""``klog log``: segment files, without a broker. The one noun that reads a broker's files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import Done, progress
from klog.client.positions import Position, parse_position
from klog.errors import UsageError
from klog.names import counted
from klog.render import Format, Report
from klog.render.visible import is_terminal, visible_json_bytes
from klog.tools import log_files, log_repair
from klog.tools.log_survey import LogRange, Meter

if TYPE_CHECKING:
    from klog.tools.schemas import MessageDecoder

T = TypeVar("T")

log = Noun("log", "Dump, verify and repair segment files; needs no broker.")

ROWS = "klog.tools.log_files:LogRow"

LogPath = Annotated[Path, argument("PATH", "A segment file, a partition's folder or a log directory.")]


@log.command("dump", rows=ROWS, connects=False)
def dump(
    invocation: Invocation,
    path: LogPath,
    begin: Position | None = flag(
        "--from POS", "Begin at this offset or time: 1000, @-1h, @2026-02-01T10:00:00Z.", parser=parse_position
    ),
    end: Position | None = flag("--to POS", "End before this offset or time.", parser=parse_position),
    messages: bool = flag("--messages", "Show the messages, as JSON Lines."),
    decode: str | None = flag("--decode avro[:key]", "With --messages: decode values (or keys) of Avro."),
    schemas: list[str] | None = flag("--schema [ID=]FILE", "With --decode: the schema of this id, or of every id."),
    schemas_at: str | None = flag("--schemas-at HOST:PORT", "With --decode: the ZooKeeper that has the schemas."),
) -> Report | int:
    """Show one row per batch, and one per address range without a valid batch; or the messages.

    With --messages each message is a line of JSON, as `klog tail --output jsonl` writes it and `klog produce -i jsonl`
    reads it. Notes tell what cannot be read, and the exit code is then 1. A time is the place of the first message that
    is not older.
    """
    within = LogRange.of(begin, end)
    if messages:
        return _dump_messages(invocation, path, within, decode, schemas or [], schemas_at)
    if decode is not None or schemas or schemas_at is not None:
        raise UsageError("--decode, --schema and --schemas-at need --messages")
    return invocation.report(log_files.dump(path, within))


def _dump_messages(
    invocation: Invocation, path: Path, within: LogRange, decode: str | None, schemas: list[str], schemas_at: str | None
) -> int:
    from klog.tools.log_messages import dump_messages

    if invocation.shared.output not in (None, Format.JSONL):
        raise UsageError(f"--messages writes JSON Lines, not {invocation.shared.output.value}", hint="-o jsonl")
    if decode is None and (schemas or schemas_at is not None):
        raise UsageError("--schema and --schemas-at need --decode", hint="--decode avro")
    out, guard = sys.stdout.buffer, visible_json_bytes if is_terminal(sys.stdout) else bytes
    found = faults = 0

    def note(text: str, is_fault: bool) -> None:
        nonlocal faults
        invocation.warn(text)
        faults += is_fault

    with ExitStack() as closing:
        decoder = None if decode is None else _decoder(closing, decode, schemas, schemas_at)
        for line in dump_messages(path, within, note, decoder):
            out.write(guard(line))
            found += 1
    out.flush()
    invocation.say(counted(found, "message") + (f", {counted(faults, 'damaged range')}" if faults else ""))
    return 1 if faults else 0


def _decoder(closing: ExitStack, decode: str, schemas: list[str], schemas_at: str | None) -> MessageDecoder:
    from klog.tools.schemas import MessageDecoder, schemas_in

    if schemas_at is None:
        if not schemas:
            raise UsageError(
                "--decode needs schemas", hint="--schema orders.avsc, or --schemas-at HOST:PORT of ZooKeeper"
            )
        return MessageDecoder(decode, schemas_in(schemas))
    if schemas:
        raise UsageError("--schemas-at excludes --schema")
    from klog.coordination.schemas import SchemaRegistry
    from klog.coordination.zookeeper import ZooKeeper
    from klog.protocol.schema_errors import SchemaNotFound

    session = closing.enter_context(ZooKeeper(schemas_at))
    session.start()
    session.check_cluster()
    registry = SchemaRegistry(session)

    def schema_of(schema_id: int) -> str:
        found = registry.schemas([schema_id]).get(schema_id)
        if found is None:
            raise SchemaNotFound(f"ZooKeeper has no schema {schema_id}")
        return found.text

    return MessageDecoder(decode, schema_of)


@log.command("verify", rows=ROWS, connects=False)
async def verify(invocation: Invocation, path: LogPath) -> Report:
    """Check every batch. One row per run of valid batches in a file, and one per address range without a valid batch.

    Exit 1 on any damage.
    """
    rows = await _read(invocation, lambda meter: list(log_files.verify(path, meter)))
    faults = sum(row.is_fault for row in rows)
    messages = sum(row.messages or 0 for row in rows)
    found = (
        f"{counted(faults, 'damaged range')}, {counted(messages, 'valid message')}"
        if faults
        else f"{counted(messages, 'message')}, no damage"
    )
    return invocation.report(rows, failed=faults > 0, footer=found)


@log.command("repair", rows=ROWS, connects=False, asks=True)
async def repair(invocation: Invocation, path: LogPath) -> Report:
    """Repair damaged logs: truncate a torn end, and turn a damaged range into a recorded hole.

    Asks first. The damaged bytes are kept beside the log, and every valid batch stays. Fails while a broker uses the
    log.
    """
    plan = await _read(invocation, lambda meter: log_repair.plan_repair(path, meter))
    if not plan.rows:
        return invocation.report([], footer="nothing to repair")
    where = f"{counted(len(plan.rows), 'range')} in {counted(len(plan.folders), 'folder')}"
    question = f"Repair {where} ({counted(plan.kept_messages, 'message')} stay)"
    invocation.confirm(question, invocation.report(plan.rows))
    return invocation.report(log_repair.apply_repair(plan))


async def _read(invocation: Invocation, work: Callable[[Meter], T]) -> T:
    """Files in a thread, with the progress on a terminal. Ctrl-C ends it at the next batch."""
    import asyncio

    meter = Meter()
    with progress(invocation, lambda: Done(meter.done, meter.total), unit="bytes"):
        try:
            return await asyncio.to_thread(work, meter)
        finally:
            meter.stop()
