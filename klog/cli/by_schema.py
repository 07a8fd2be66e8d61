"""``--schema``: messages that are JSON on the command line and Avro in the topic, by schemas of the registry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from klog.cli.flags import flag
from klog.cli.invocation import Invocation

if TYPE_CHECKING:
    from klog.schemas.remote import RemoteRegistry
    from klog.tools.schemas import MessageDecoder, MessageEncoder

BySchema = Annotated[
    str | None,
    flag(
        "--schema [ID|SUBJECT]",
        "Values are JSON here and Avro in the topic, by their schema ids, or by this schema.",
        parser=str,
    ),
]
"""Empty without its value: the command's ``value_optional`` has it."""


async def registry_of(invocation: Invocation) -> RemoteRegistry:
    """The schema registry of the command's cluster."""
    from klog.schemas.remote import RemoteRegistry

    return RemoteRegistry(await invocation.cluster(), asyncio.get_running_loop())


async def decoder_by(invocation: Invocation, which: str) -> MessageDecoder:
    """Reads values as the schema of an id, or the newest of a subject; without either each as its own."""
    from klog.schemas import rows
    from klog.tools.schemas import MessageDecoder

    registry = await registry_of(invocation)
    reader = (await asyncio.to_thread(rows.get_schema, registry, which)).schema if which else None
    return MessageDecoder("avro", lambda schema_id: registry.schema(schema_id).text, reader)


async def encoder_by(invocation: Invocation, which: str, topic: str) -> MessageEncoder:
    """Writes values by the schema of an id, or the newest of a subject; without either by the topic's."""
    from klog.schemas import rows
    from klog.tools.schemas import MessageEncoder

    registry = await registry_of(invocation)
    found = await asyncio.to_thread(rows.get_schema, registry, which or f"{topic}-value")
    return MessageEncoder(found.id, found.schema, None if which else lambda one: registry.schema(one).text)
