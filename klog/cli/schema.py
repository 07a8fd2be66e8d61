"""``klog schema``: Avro schemas under ids, for messages that name them."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from klog.cli import interrupt
from klog.cli.by_schema import registry_of
from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.config.properties import read_text
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report
from klog.render.visible import is_terminal, visible_json

schema = Noun("schema", "Avro schemas by id: list, get, register, check, delete, level, serve.")

STDIN = Path("-")

Subject = Annotated[str, argument("SUBJECT", "The subject; TOPIC-value for a topic's values.")]
File = Annotated[Path, argument("FILE", "The schema's file; stdin if none or -.", show_default=False)]


@schema.command("list", rows="klog.schemas.rows:SchemaRow")
async def list_schemas(
    invocation: Invocation,
    subjects: list[str] | None = argument("SUBJECT", "Only these subjects."),
    deleted: bool = flag("--deleted", "Include deleted versions."),
) -> list[Any]:
    """List the versions of subjects, and the schema ids that messages carry."""
    from klog.schemas import rows

    registry = await registry_of(invocation)
    return await asyncio.to_thread(rows.list_schemas, registry, subjects or (), deleted=deleted)


@schema.command("get", rows="klog.schemas.rows:SchemaText")
async def get(
    invocation: Invocation,
    which: str = argument("ID|SUBJECT", "A schema id, or a subject.", ...),
    version: int | None = flag("--version N", "Version of the subject; the latest if not given.", min=1),
) -> Report | int:
    """Show a schema as formatted JSON. With `-o` show it as a row, with the text as registered."""
    from klog.schemas import rows

    found = await asyncio.to_thread(rows.get_schema, await registry_of(invocation), which, version)
    if invocation.shared.output is not None:
        return invocation.report([found])
    text = json.dumps(json.loads(found.schema), indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(visible_json(text) if is_terminal(sys.stdout) else text)
    return 0


@schema.command("register", rows="klog.schemas.rows:SchemaRow", changes=True, dry_run=True)
async def register(invocation: Invocation, subject: Subject, file: File = STDIN) -> Report:
    """Register a schema under a subject and show its id. Equal schemas have the same id.

    Fails if the schema is not compatible with the versions that the subject's level requires; `klog schema check` shows
    each incompatibility.
    """
    from klog.admin.undo import no_way_back
    from klog.coordination.schemas import REGISTER_ACT
    from klog.schemas import rows

    text = await asyncio.to_thread(_read, invocation, file)
    registry = await registry_of(invocation)
    if invocation.shared.dry_run:
        there = await asyncio.to_thread(rows.preview_register, registry, subject, text)
        what = f"the schema is registered under subject {subject} already"
        if not there:
            what = f"register a new version of subject {subject}; {no_way_back(REGISTER_ACT)}"
        invocation.end_dry_run(what, invocation.report(there))
    row = await asyncio.to_thread(rows.register, registry, subject, text)
    level = (await asyncio.to_thread(rows.levels, registry, subject))[0].level
    note = ""
    # An export reads later messages by the columns of all earlier schemas, not of the last one alone.
    if level not in ("FORWARD_TRANSITIVE", "FULL_TRANSITIVE"):
        do = f"`klog schema level FORWARD_TRANSITIVE --subject {shlex.quote(subject)}`"
        note = f"the level of {subject} is {level}; FORWARD_TRANSITIVE protects exports: {do}"
    return invocation.report([row], notes=(note,))


@schema.command("check", rows="klog.schemas.compatibility:Found")
async def check(
    invocation: Invocation,
    subject: Subject,
    file: File = STDIN,
    version: int | None = flag(
        "--version N", "Check against this version instead of those that the level requires.", min=1
    ),
) -> Report:
    """Check whether a schema could be registered. One row per incompatibility.

    READER names the side that fails: the new schema on old data, or an old schema on new data. Exit 1 on any
    incompatibility.
    """
    from klog.schemas import rows

    text = await asyncio.to_thread(_read, invocation, file)
    registry = await registry_of(invocation)
    found = await asyncio.to_thread(rows.check, registry, subject, text, version)
    level = (await asyncio.to_thread(rows.levels, registry, subject))[0].level
    count = counted(len(found), "incompatibility", "incompatibilities")
    footer = count if found else "compatible"
    return invocation.report(found, failed=bool(found), footer=f"{footer} under level {level}")


@schema.command("delete", rows="klog.schemas.rows:DeletedRow", changes=True, asks=True)
async def delete(
    invocation: Invocation,
    subject: Subject,
    version: int | None = flag("--version N", "Only this version; all versions if not given.", min=1),
    permanent: bool = flag("--permanent", "Remove deleted versions permanently. Asks first."),
) -> list[Any]:
    """Delete a subject, or one of its versions. Serializers no longer find it, and it does not restrict new versions.

    Every schema stays readable under its id, since messages may carry that id. Without --permanent only a protected
    cluster asks.
    """
    from klog.admin.undo import no_way_back
    from klog.coordination.schemas import DELETE_ACT
    from klog.schemas import rows

    registry = await registry_of(invocation)
    doomed = await asyncio.to_thread(rows.preview_delete, registry, subject, version, permanent=permanent)
    question = f"Delete {counted(len(doomed), 'version')} of subject {subject}{' permanently' if permanent else ''}"
    invocation.confirm(question, invocation.report(doomed), consequence=no_way_back(DELETE_ACT), everywhere=permanent)
    return await asyncio.to_thread(rows.delete, registry, subject, version, permanent=permanent)


@schema.command("level", rows="klog.schemas.rows:LevelRow", dry_run=True, acts=True)
async def level(
    invocation: Invocation,
    wanted: str | None = argument(
        "LEVEL", "NONE, BACKWARD, FORWARD or FULL, the last three also with _TRANSITIVE; shows the level if not given."
    ),
    subject: str | None = flag("--subject SUBJECT", "Level of this subject; the default level if not given."),
    default: bool = flag("--default", "Remove the level."),
) -> list[Any]:
    """Show or set the compatibility level. Subject * is the default for subjects without a level of their own.

    BACKWARD, the default: a new schema must read what the last one wrote. FORWARD: the last one must read what the new
    one writes. FULL: both. With _TRANSITIVE this holds for all versions, not only the last one.
    """
    from klog.schemas import rows
    from klog.schemas.compatibility import parse_level

    if default and wanted is not None:
        raise UsageError("LEVEL and --default exclude each other")
    if wanted is not None:
        parse_level(wanted)
    changes = wanted is not None or default
    if changes and not invocation.shared.dry_run:
        invocation.check_may_change()
    registry = await registry_of(invocation)
    if changes:
        if invocation.shared.dry_run:
            planned = await asyncio.to_thread(rows.preview_level, registry, subject, wanted)
            whose = f"subject {subject}" if subject is not None else "all subjects without one of their own"
            what = f"compatibility level of {whose}: {planned.level}"
            invocation.end_dry_run(what, invocation.report([planned]))
        await asyncio.to_thread(registry.set_level, subject, wanted)
    return await asyncio.to_thread(rows.levels, registry, subject)


@schema.command("serve", own_interrupt=True, changes=True)
async def serve(
    invocation: Invocation,
    port: int = flag("--port PORT", "Port; 0 for a free one.", 8081, min=0, max=65535),
    host: str = flag("--host HOST", "Address to listen on.", "127.0.0.1"),
) -> None:
    """Serve the schema registry over HTTP with the common registry API, for stock serializers, until Ctrl-C.

    It asks the brokers and stores nothing, so any number of servers may run. A broker serves the same API on
    schema.registry.port.
    """
    from klog.net.http_server import HttpServer
    from klog.schemas.http import HttpRegistry

    registry = await registry_of(invocation)
    stop = asyncio.Event()
    interrupt.stop_in_order(stop.set)
    server = await asyncio.to_thread(
        HttpServer.open, HttpRegistry(registry), host, port, what="the schema registry", flag="--port PORT"
    )
    try:
        invocation.say(f"schema registry at http://{server.address}")
        await stop.wait()
    finally:
        server.close()


def _read(invocation: Invocation, file: Path) -> str:
    """The schema's text. In a thread; UsageError for a file that cannot be read."""
    if file == STDIN:
        if is_terminal(sys.stdin):
            invocation.say("reading the schema from stdin; end with Ctrl-D")
        return sys.stdin.read()
    try:
        return read_text(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
