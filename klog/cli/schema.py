"""``klog schema``: Avro schemas under ids, for messages that name them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation, is_terminal
from klog.errors import UsageError
from klog.ops.visible import visible_json
from klog.render import Report

if TYPE_CHECKING:
    from klog.ops.schemas.remote import RemoteRegistry

schema = Noun("schema", "Avro schemas under ids: list, get, register, check, delete, level, serve.")

STDIN = Path("-")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject; of a topic's values: TOPIC-value.")]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema's file; - or none is stdin.", show_default=False)
]


async def _registry(invocation: Invocation) -> RemoteRegistry:
    from klog.ops.schemas.remote import RemoteRegistry

    return RemoteRegistry(await invocation.cluster(), asyncio.get_running_loop())


@schema.command("list", rows="klog.ops.schemas.rows:SchemaRow")
async def list_schemas(
    invocation: Invocation,
    subjects: Annotated[list[str] | None, typer.Argument(metavar="SUBJECT", help="Only these subjects.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted versions, too.")] = False,
) -> list[Any]:
    """List the versions of subjects, and the ids that messages carry."""
    from klog.ops.schemas import rows

    registry = await _registry(invocation)
    return await asyncio.to_thread(rows.list_schemas, registry, subjects or (), deleted=deleted)


@schema.command("get", rows="klog.ops.schemas.rows:SchemaText")
async def get(
    invocation: Invocation,
    which: Annotated[str, typer.Argument(metavar="ID|SUBJECT", help="A schema's id, or a subject.")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="Of the subject; else its latest version.")
    ] = None,
) -> Report | int:
    """Show a schema, as JSON to read. With `-o` it is a row, the schema's text in it as it is registered."""
    from klog.ops.schemas import rows

    found = await asyncio.to_thread(rows.get_schema, await _registry(invocation), which, version)
    if invocation.shared.output is not None:
        return invocation.report([found])
    text = json.dumps(json.loads(found.schema), indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(visible_json(text) if is_terminal(sys.stdout) else text)
    return 0


@schema.command("register", rows="klog.ops.schemas.rows:SchemaRow")
async def register(invocation: Invocation, subject: Subject, file: File = STDIN) -> list[Any]:
    """Register a schema under a subject and show its id. Equal schemas have one id, everywhere and for ever.

    Refused where it is not compatible with the versions that the subject's level names: `klog schema check` says why,
    place by place.
    """
    from klog.ops.schemas import rows

    registry = await _registry(invocation)
    text = await asyncio.to_thread(_read, invocation, file)
    return [await asyncio.to_thread(rows.register, registry, subject, text)]


@schema.command("check", rows="klog.ops.schemas.rows:IncompatibilityRow")
async def check(
    invocation: Invocation,
    subject: Subject,
    file: File = STDIN,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Against this one, not those that the level names."),
    ] = None,
) -> Report:
    """Check whether a schema could be registered; a row for each place where it could not be read, or could not read.

    READER says which of the two fails: the new schema on old data, or an old one on new data. Exit 1 if there is any.
    """
    from klog.ops.schemas import rows

    registry = await _registry(invocation)
    text = await asyncio.to_thread(_read, invocation, file)
    found = await asyncio.to_thread(rows.check, registry, subject, text, version)
    level = (await asyncio.to_thread(rows.levels, registry, subject))[0].level
    count = "1 incompatibility" if len(found) == 1 else f"{len(found)} incompatibilities"
    footer = count if found else "compatible"
    return invocation.report(found, failed=bool(found), footer=f"{footer} under level {level}")


@schema.command("delete", rows="klog.ops.schemas.rows:DeletedRow")
async def delete(
    invocation: Invocation,
    subject: Subject,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="Only this version; else all.")
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good, what was deleted before: it cannot be brought back.")
    ] = False,
) -> list[Any]:
    """Delete a subject, or one of its versions: serializers find it no more, and it hinders no new version.

    What messages need stays: every schema is kept under its id for ever.
    """
    from klog.ops.schemas import rows

    registry = await _registry(invocation)
    return await asyncio.to_thread(rows.delete, registry, subject, version, permanent=permanent)


@schema.command("level", rows="klog.ops.schemas.rows:LevelRow")
async def level(
    invocation: Invocation,
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="LEVEL",
            help="NONE, BACKWARD, FORWARD or FULL, the last three also with _TRANSITIVE; none: show it.",
        ),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="SUBJECT", help="Of this subject; else of all without their own.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Take the level away that was set.")] = False,
) -> list[Any]:
    """Show or set how compatible versions have to be. Subject * is all those that have no level of their own.

    BACKWARD, the default: a new schema must read what the last one wrote; FORWARD: the last one what the new one
    writes; FULL: both. With _TRANSITIVE it is all versions, not the last one alone.
    """
    from klog.ops.schemas import rows

    if default and wanted is not None:
        raise UsageError("LEVEL and --default are two answers: choose")
    registry = await _registry(invocation)
    if wanted is not None or default:
        await asyncio.to_thread(registry.set_level, subject, wanted)
    return await asyncio.to_thread(rows.levels, registry, subject)


@schema.command("serve", own_interrupt=True)
async def serve(
    invocation: Invocation,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8081,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve the registry over HTTP in the common registry's shape, for stock serializers, until Ctrl-C.

    It asks the brokers and keeps nothing: any number may run. A broker does the same on its port schema.registry.port.
    """
    from klog.net.http_server import HttpServer
    from klog.ops.schemas.http import HttpRegistry

    registry = await _registry(invocation)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.to_thread(
        HttpServer.open, HttpRegistry(registry), host, port, what="the registry of schemas", flag="--port PORT"
    )
    try:
        invocation.say(f"registry of schemas at http://{server.address}")
        await stop.wait()
    finally:
        server.close()


def _read(invocation: Invocation, file: Path) -> str:
    """The schema's text. In a thread; UsageError for a file that cannot be read."""
    if file == STDIN:
        if is_terminal(sys.stdin):
            invocation.say("reading the schema from stdin, up to Ctrl-D")
        return sys.stdin.read()
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no text in UTF-8") from None
